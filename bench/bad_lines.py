# SPDX-License-Identifier: Apache-2.0
"""Lines that are wrong in many ways, through one chimere-serve-stdio: each gets one error, a good request between them gets the
answer that it gets at the start, and memory stays as it is.

bad_lines.py [LINES]      a line of JSON says what came back; OPTIONS from the environment are the server's
"""
import collections
import json
import os
import random
import subprocess
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TOTAL = int(sys.argv[1]) if len(sys.argv) > 1 else 1000000
EVERY = 10000  # lines from one good request to the next
GOOD = b'{"id":"good","method":"completions","body":{"prompt":"The kernel","max_tokens":4,"temperature":0}}\n'
CHAT = b'{"id":%d,"method":"chat/completions","body":{"messages":%s%s}}'
ASK = b'[{"role":"user","content":"x"}]'
rng = random.Random(7)


def noise(n):
    return bytes(rng.choice(range(1, 256)) for _ in range(n)).replace(b"\n", b"?").replace(b"\r", b"?")


def bad(i):
    """A line that has to be refused; never one of spaces alone, which is no line."""
    return rng.choice([
        lambda: b"?" + noise(rng.randrange(1, 200)),
        lambda: b'{"id":%d' % i,
        lambda: b'{"id":%d,"method":"chat/completions","body":"\xff\xfe\xc3"}' % i,
        lambda: b'{"id":%d,"method":"completions","body":{"stop":"a\\u0000b"}}' % i,
        lambda: b'{"id":%d,"method":"completions","body":{"prompt":"a\x00b"}}' % i,
        lambda: b"[" * rng.randrange(1, 5000),
        lambda: b"[" * 1000 + b"]" * 1000,
        lambda: b"[]", lambda: b"null", lambda: b"1e999999",
        lambda: b'{"method":"models"}',
        lambda: b'{"id":1.5,"method":"models"}',
        lambda: b'{"id":%d,"method":"%s"}' % (i, b"x" * rng.randrange(1, 3000)),
        lambda: b'{"id":%d,"method":7}' % i,
        lambda: b'{"id":%d,"method":"embeddings"}' % i,
        lambda: b'{"id":%d,"id":%d,"method":"models"}' % (i, i),
        lambda: b'{"id":%d,"method":"cancel","body":{}}' % i,
        lambda: b'{"id":%d,"method":"detokenize","body":{"tokens":[-1]}}' % i,
        lambda: b'{"id":%d,"method":"tokenize","body":{"text":[]}}' % i,
        lambda: CHAT % (i, b"[]", b""),
        lambda: CHAT % (i, b'[{"role":"nobody"}]', b""),
        lambda: CHAT % (i, ASK, b',"temperature":-1'),
        lambda: CHAT % (i, ASK, b',"n":1e3'),
        lambda: CHAT % (i, ASK, b',"%s":1' % (b"y" * rng.randrange(1, 500))),
        lambda: CHAT % (i, ASK, b',"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"g"'),
        lambda: CHAT % (i, ASK, b',"response_format":{"type":"json_schema","json_schema":{"name":"a","schema":{"$ref":"#/no"}}}'),
        lambda: CHAT % (i, ASK, b',"lora":[{"id":3,"scale":1}]'),
        lambda: CHAT % (i, ASK, b',"logit_bias":{"x":1}'),
        lambda: b'{"id":%d,"method":"completions","body":{"prompt":[999999999]}}' % i,
        lambda: b'{"id":%d,"method":"responses","body":{"input":[{"type":"x"}]}}' % i,
    ])() + b"\n"


def lines():
    for i in range(TOTAL):
        if i % EVERY == 0:
            yield GOOD
        if i in (TOTAL // 10, TOTAL // 2):
            yield b'{"id":"' + b"z" * (100 << 20) + b'"}\n'  # longer than a line may be
        elif i % (TOTAL // 20 + 1) == 7:
            yield b'{"id":"' + b"z" * (8 << 20) + b'"}\n'
        else:
            yield bad(i)
    yield GOOD


def main():
    server = subprocess.Popen([ROOT + "/bin/chimere-serve-stdio", "-q", *os.environ.get("OPTIONS", "").split()],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def write():
        for line in lines():
            server.stdin.write(line)
        server.stdin.close()

    def memory():
        with open(f"/proc/{server.pid}/status", encoding="ascii") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmRSS:"))

    threading.Thread(target=write, daemon=True).start()
    seen, wanted, good, first, worst, began = collections.Counter(), None, 0, 0, 0, time.time()
    for line in server.stdout:
        reply = json.loads(line)
        if reply["id"] == "good":
            text = reply["body"]["choices"][0]["text"]
            wanted = wanted or text
            assert text == wanted, (text, wanted)
            good += 1
            continue
        assert reply["type"] == "error" and 400 <= reply["status"] < 500 and reply["error"]["message"], reply
        seen[reply["status"]] += 1
        n = seen.total()
        if n % 100 == 0 and n < TOTAL * 99 // 100:
            first, worst = (max(first, memory()), 0) if n <= TOTAL // 5 else (first, max(worst, memory()))
        if sys.stderr.isatty() and n % 1000 == 0:
            print(f"\r{n} of {TOTAL}", end="", file=sys.stderr)
    assert server.wait() == 0
    print(json.dumps({"lines": TOTAL, "errors": dict(sorted(seen.items())), "good": good, "seconds": round(time.time() - began, 1),
                      "resident_kib_most_in_the_first_fifth": first, "resident_kib_most_later": worst}))
    assert seen.total() == TOTAL and good == (TOTAL + EVERY - 1) // EVERY + 1
    assert worst <= first * 1.05 + 8192, "memory grows"


main()
