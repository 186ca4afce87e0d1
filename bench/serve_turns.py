# SPDX-License-Identifier: Apache-2.0
"""The time to the first token of the next turn of a conversation, by the length of what came before.

serve_turns.py [TOKENS ...]: for each length a server on lines reads a conversation with about so many tokens, then answers
eight more turns of one question each. A line of JSON for each length: the first turn's and the next turns' time to the first
token (median, least, most), the tokens that were evaluated for a next turn, and the time that the text of all of it takes to
become tokens. Settings from the environment: MODEL, OPTIONS (of the server).
"""
import json
import os
import random
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MODEL = os.environ.get("MODEL", ROOT + "/share/models/chimere-nano-q5_k_m.gguf")
WORDS = "kernel memory signal file page cache socket thread process lock queue timer user group disk block".split()
TURNS = 8


def ask(server, line):
    """The time to the first token, the answer's text and its usage."""
    begin = time.monotonic()
    server.stdin.write(json.dumps(line) + "\n")
    server.stdin.flush()
    first, text, usage = None, "", {}
    while True:
        reply = json.loads(server.stdout.readline())
        if reply["type"] == "error":
            sys.exit(reply["error"]["message"])
        if reply["type"] in ("end", "response"):
            return first or time.monotonic() - begin, text, usage
        usage = reply["body"].get("usage") or usage
        for choice in reply["body"]["choices"]:
            if first is None and choice["delta"].get("content"):
                first = time.monotonic() - begin
            text += choice["delta"].get("content") or ""


def measure(tokens):
    rng = random.Random(tokens)
    words = [rng.choice(WORDS) for _ in range(tokens)]
    talk = [{"role": "user", "content": " ".join(words) + "\nSay something about it."}]
    server = subprocess.Popen([ROOT + "/bin/chimere-serve-stdio", "-m", MODEL, "--ctx", str(tokens * 2 + 4096), "--parallel", "1",
                               *os.environ.get("OPTIONS", "").split()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    body = {"temperature": 0, "max_tokens": 8, "ignore_eos": True, "stream": True, "stream_options": {"include_usage": True},
            "chat_template_kwargs": {"enable_thinking": False}}
    times, fresh = [], []
    for turn in range(TURNS + 1):
        seconds, text, usage = ask(server, {"id": turn, "method": "chat/completions", "body": {**body, "messages": talk}})
        times.append(seconds * 1e3)
        fresh.append(usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"])
        talk += [{"role": "assistant", "content": text}, {"role": "user", "content": f"And what of {rng.choice(WORDS)} {turn}?"}]
    plain, _, _ = ask(server, {"id": "t", "method": "tokenize", "body": {"text": talk[0]["content"]}})
    server.stdin.close()
    server.wait()
    return {"prompt_tokens": usage["prompt_tokens"], "first_turn_ms": round(times[0], 1),
            "next_turn_ms": round(statistics.median(times[1:]), 1), "next_turn_min_ms": round(min(times[1:]), 1),
            "next_turn_max_ms": round(max(times[1:]), 1), "next_turn_new_tokens": statistics.median(fresh[1:]),
            "tokenize_ms": round(plain * 1e3, 1)}


for n in [int(v) for v in sys.argv[1:]] or [100, 1000, 10000]:
    print(json.dumps(measure(n)), flush=True)
