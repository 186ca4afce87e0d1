# SPDX-License-Identifier: Apache-2.0
"""Clients at once of a server with OpenAI's interface: tokens a second, and the time to the first one. See serve.sh.

serve_load.py URL CLIENTS REQUESTS PROMPT_WORDS TOKENS SEED: one line of JSON.
"""
import http.client
import json
import random
import statistics
import sys
import threading
import time
import urllib.parse

URL = urllib.parse.urlparse(sys.argv[1])
CLIENTS, REQUESTS, WORDS, TOKENS, SEED = map(int, sys.argv[2:7])
POOL = "the kernel maps a page of memory into each process and signals when files or sockets change while threads wait".split()
first, counts, todo, lock = [], [], list(range(REQUESTS)), threading.Lock()


def ask(i):
    rng = random.Random(SEED * 1000 + i)
    body = {"model": "x", "prompt": " ".join(rng.choices(POOL, k=WORDS)), "max_tokens": TOKENS, "temperature": 0, "stream": True,
            "stream_options": {"include_usage": True}, "ignore_eos": True}
    c = http.client.HTTPConnection(URL.hostname, URL.port, timeout=600)
    began, seen, n = time.perf_counter(), None, 0
    c.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    r = c.getresponse()
    assert r.status == 200, r.read()
    for line in r:
        if line.startswith(b"data: {"):
            o = json.loads(line[6:])
            if o.get("choices") and o["choices"][0].get("text") and seen is None:
                seen = time.perf_counter() - began
            n = (o.get("usage") or {}).get("completion_tokens", n)
    c.close()
    with lock:
        first.append(seen if seen is not None else time.perf_counter() - began)
        counts.append(n)


def client():
    while True:
        with lock:
            if not todo:
                return
            i = todo.pop(0)
        ask(i)


work = [threading.Thread(target=client) for _ in range(CLIENTS)]
began = time.perf_counter()
for t in work:
    t.start()
for t in work:
    t.join()
took = time.perf_counter() - began
assert len(counts) == REQUESTS and all(n == TOKENS for n in counts), counts
print(json.dumps({"clients": CLIENTS, "tokens_per_s": round(sum(counts) / took, 1),
                  "first_token_ms": round(1e3 * statistics.median(first), 1),
                  "first_token_p95_ms": round(1e3 * sorted(first)[int(0.95 * (len(first) - 1))], 1)}))
