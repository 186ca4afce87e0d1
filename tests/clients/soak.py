# SPDX-License-Identifier: Apache-2.0
"""Mixed requests through chimere-serve-stdio, many at a time, some of them cancelled: each answer is the one that the
request gets alone, and memory stays as it is. Run by bench/soak.sh, and with few requests by tests/cli/serve.bats.

soak.py REQUESTS [SEQUENCES [KINDS [OPTION ...]]]      options are the server's that is asked side by side
CANCELS in the environment is the part that is cancelled, 0.1 by default.
"""
import json
import os
import random
import subprocess
import sys
import time

TOTAL = int(sys.argv[1])
SEQUENCES = int(sys.argv[2]) if len(sys.argv) > 2 else 16
KINDS = int(sys.argv[3]) if len(sys.argv) > 3 else 120
CANCELS = float(os.environ.get("CANCELS", "0.1"))
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}, "ok": {"type": "boolean"}}, "required": ["n", "ok"],
          "additionalProperties": False}
random.seed(5)


def kind(i):
    """The i-th of the requests that are mixed."""
    words = random.choices(["kernel", "memory", "signal", "file", "page", "cache", "socket", "thread"], k=random.randrange(2, 60))
    text, n, seed = " ".join(words), random.randrange(1, 24), {"seed": i, "temperature": random.choice([0, 0.7, 1.5])}
    talk = {"messages": [{"role": "user", "content": f"What is {i} + {n}? {text}"}], "max_tokens": n}
    return random.choice([
        ("completions", {"prompt": text, "max_tokens": n, **seed}),
        ("completions", {"prompt": text, "max_tokens": n, "n": 2, "logprobs": 2, **seed}),
        ("completions", {"prompt": text, "max_tokens": n, "stream": True, "repeat_penalty": 1.2, **seed}),
        ("completions", {"prompt": text, "max_tokens": 0, "echo": True, "logprobs": 0}),
        ("chat/completions", {**talk, **seed}),
        ("chat/completions", {**talk, "stream": True, **seed}),
        ("chat/completions", {**talk, **seed, "chat_template_kwargs": {"enable_thinking": False},
                              "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}}),
        ("embeddings", {"input": [text, "x"]}),
        ("tokenize", {"text": text}),
        ("completions", {"prompt": text, "temperature": -1}),
    ])


class Server:
    def __init__(self, sequences, options=()):
        # freed memory that the address sanitizer holds back would look like growth
        checker = os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=4"
        self.process = subprocess.Popen(["chimere-serve-stdio", "--parallel", str(sequences), *options], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, bufsize=1, env={**os.environ, "ASAN_OPTIONS": checker})

    def send(self, name, method, body):
        self.process.stdin.write(json.dumps({"id": name, "method": method, "body": body}) + "\n")
        self.process.stdin.flush()

    def reply(self):
        line = self.process.stdout.readline()
        assert line, "the server has ended"
        return json.loads(line)

    def memory(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmRSS:"))

    def metric(self, name):
        self.send("metrics", "metrics", {})
        reply = self.reply()
        while reply["id"] != "metrics":
            reply = self.reply()
        lines = reply["body"]["text"].splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(f"chimere_{name} "))

    def end(self):
        self.process.stdin.close()
        assert self.process.wait(60) == 0


def essence(parts):
    """What does not depend on the time and on what was cached."""
    seen = []
    for r in parts:
        body = r.get("body") or {}
        choices = [{k: c[k] for k in c if k != "message"} | {"message": {k: v for k, v in c.get("message", {}).items() if k != "tool_calls"}}
                   for c in body.get("choices", [])]
        seen.append([r["type"], r.get("status"), choices, body.get("data"), body.get("tokens"), r.get("error")])
    return json.dumps(seen)


def alone(kinds):
    server, wanted = Server(1), []
    for method, body in kinds:
        server.send(0, method, body)
        parts = [server.reply()]
        while parts[-1]["type"] == "chunk":
            parts.append(server.reply())
        wanted.append(essence(parts))
    server.end()
    return wanted


def main():
    kinds = [kind(i) for i in range(KINDS)]
    wanted = alone(kinds)
    server, open_now, sent, done, cancelled, first, worst = Server(SEQUENCES, sys.argv[4:]), {}, 0, 0, 0, 0, 0
    began, warm = time.time(), max(TOTAL // 5, 40)  # every sequence has been used several times
    while done < TOTAL:
        while sent < TOTAL and len(open_now) < 2 * SEQUENCES:
            which = random.randrange(KINDS)
            open_now[sent] = (which, [])
            server.send(sent, *kinds[which])
            if random.random() < CANCELS:
                server.send(f"cancel {sent}", "cancel", {"id": sent})
            sent += 1
        r = server.reply()
        if isinstance(r["id"], str):
            continue
        which, parts = open_now[r["id"]]
        if r["type"] == "cancelled":
            cancelled += 1
        else:
            parts.append(r)
            if r["type"] == "chunk":
                continue
            assert essence(parts) == wanted[which], (kinds[which], parts, wanted[which])
        del open_now[r["id"]]
        done += 1
        if done == warm:
            first = server.memory()
        if done > warm and done % 50 == 0:
            worst = max(worst, server.memory())
        if sys.stderr.isatty() and done % 100 == 0:
            print(f"\r{done} of {TOTAL}", end="", file=sys.stderr)
    drafted, kept = server.metric("drafted_tokens_total"), server.metric("kept_tokens_total")
    server.end()
    print(json.dumps({"requests": done, "sequences": SEQUENCES, "kinds": KINDS, "cancelled": cancelled, "drafted": drafted, "kept": kept,
                      "seconds": round(time.time() - began, 1), "resident_kib_warm": first, "resident_kib_most_later": worst}))
    room = 8192 + (16384 if sys.argv[4:] else 0)  # drafters' keys and values, which are taken when they are first written
    assert worst <= first * 1.05 + room, "memory grows"


main()
