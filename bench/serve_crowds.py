# SPDX-License-Identifier: Apache-2.0
"""What crowds and attackers do to chimere-serve-stdio --listen: how long small answers take while nothing else is asked, the
first token of 16 clients beside that of one, and the next requests after connections that came and went. Lines of JSON.

serve_crowds.py [ROUNDS]      PATH has the program; THREADS, WORDS, TOKENS, EACH (requests of a client) as for serve.sh
"""
import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import time

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 3
HERE = os.path.dirname(os.path.abspath(__file__))
THREADS, WORDS, TOKENS, EACH = (os.environ.get(k, v) for k, v in [("THREADS", "1"), ("WORDS", "60"), ("TOKENS", "32"), ("EACH", "2")])


class Server:
    def __init__(self, *options):
        self.process = subprocess.Popen(["chimere-serve-stdio", "--listen", "127.0.0.1:0", "-t", THREADS, "--parallel", "16", "-c", "1024",
                                         *options], stdout=subprocess.PIPE, text=True)
        self.url = json.loads(self.process.stdout.readline())["url"]
        self.port = int(self.url.rsplit(":", 1)[1])

    def ask(self, path, body=None, keep=None):
        """Milliseconds, and the reply."""
        began = time.perf_counter()
        c = keep or http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        c.request("POST" if body else "GET", path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
        reply = c.getresponse().read()
        if not keep:
            c.close()
        return 1e3 * (time.perf_counter() - began), reply

    def memory(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmRSS:"))

    def end(self):
        self.process.terminate()
        assert self.process.wait(60) == 0


def tell(what, **values):
    print(json.dumps({"what": what} | {k: round(v, 2) if isinstance(v, float) else v for k, v in values.items()}), flush=True)


def idle(server):
    for path in "/health", "/v1/models", "/metrics":
        kept = http.client.HTTPConnection("127.0.0.1", server.port)
        for how, keep in ("new connection", None), ("kept", kept):
            ms = sorted(server.ask(path, keep=keep)[0] for _ in range(200))
            tell("idle", path=path, connection=how, median_ms=statistics.median(ms), p95_ms=ms[190])


def crowd(server):
    for i in range(ROUNDS + 1):  # the first one warms up
        p95 = {}
        for clients in 1, 16:
            out = subprocess.run([sys.executable, os.path.join(HERE, "serve_load.py"), server.url, str(clients), str(16 * int(EACH)), WORDS, TOKENS,
                                  str(100 * i + clients)], check=True, capture_output=True, text=True).stdout
            p95[clients] = json.loads(out)["first_token_p95_ms"]
            if i:
                tell("crowd", round=i, **json.loads(out))
        if i:
            tell("crowd", round=i, ratio=p95[16] / p95[1])


def flood(server):
    body = {"prompt": "The kernel", "max_tokens": 4, "temperature": 0}
    text = [c["text"] for c in json.loads(server.ask("/v1/completions", body)[1])["choices"]]
    for n in 100, 200, 400:
        for close in "all at the end", "each at once":
            began, open_now = time.perf_counter(), []
            for _ in range(n):
                s = socket.create_connection(("127.0.0.1", server.port))
                s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Le")
                open_now.append(s)
                if close == "each at once":
                    s.close()
            if close != "each at once":
                time.sleep(max(0, 1.5 - (time.perf_counter() - began)))
            for s in open_now:
                s.close()
            health = server.ask("/health")[0]
            ms, reply = server.ask("/v1/completions", body)
            tell("flood", connections=n, closed=close, seconds=time.perf_counter() - began, health_ms=health, completion_ms=ms,
                 same=[c["text"] for c in json.loads(reply)["choices"]] == text, resident_kib=server.memory())


for part in idle, crowd, flood:
    running = Server()
    part(running)
    running.end()
