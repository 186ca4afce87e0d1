# SPDX-License-Identifier: Apache-2.0
"""A server whose allocations, opened files, reads, writes and so on fail one after the other, each within one request
(shim.c). The request gets its right answer, or 503 or 507; the next one is answered as by a server without faults; and
the server ends well. Run by fault.bats.

serve.py lines|http|mcp SHIM PLACES DIRECTORY [REQUEST ...]   places tried of each request and kind; which requests (all)
"""
import http.client
import json
import mmap
import os
import socket
import struct
import subprocess
import sys
import time

WAY, SHIM, PLACES, DIRECTORY = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
KINDS = ["alloc", "map", "open", "read", "write", "sync", "rename"]  # as in shim.c
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}, "s": {"type": "string", "maxLength": 4}}, "required": ["n"]}
TOOL = {"name": "f", "description": "Does it.", "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}}}
HI = [{"role": "system", "content": "Short."}, {"role": "user", "content": "Say hi."}]
SHORT = {"temperature": 0, "seed": 1}
CHAT = {**SHORT, "messages": HI, "max_tokens": 6}
REQUESTS = {
    "tools": ("POST", "chat/completions", {**CHAT, "tools": [{"type": "function", "function": TOOL}], "tool_choice": "required",
                                           "max_tokens": 40, "chat_template_kwargs": {"enable_thinking": False}}),
    "schema": ("POST", "chat/completions", {**CHAT, "max_tokens": 16, "chat_template_kwargs": {"enable_thinking": False},
                                            "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}}),
    "stream": ("POST", "chat/completions", {**CHAT, "stream": True, "n": 2, "logprobs": True, "top_logprobs": 2,
                                            "stream_options": {"include_usage": True}, "repeat_penalty": 1.2, "min_tokens": 2}),
    "completion": ("POST", "completions", {**SHORT, "prompt": ["The kernel", "A file"], "n": 2, "max_tokens": 4, "logprobs": 1, "echo": True,
                                           "stop": ["zzz"]}),
    "responses": ("POST", "responses", {**SHORT, "input": "Say hi.", "max_output_tokens": 6, "stream": True}),
    "messages": ("POST", "messages", {**SHORT, "messages": [{"role": "user", "content": [{"type": "text", "text": "Say hi."}]}], "max_tokens": 6,
                                      "stream": True, "system": "Short.", "tools": [{"name": "f", "input_schema": TOOL["parameters"]}]}),
    "items": ("POST", "responses", {**SHORT, "input": [{"role": "user", "content": [{"type": "input_text", "text": "Say hi."}]}],
                                    "max_output_tokens": 4, "tools": [{"type": "function", **TOOL}], "instructions": "Short."}),
    "blocks": ("POST", "messages", {**SHORT, "messages": HI[1:], "max_tokens": 4, "thinking": {"type": "enabled", "budget_tokens": 2}}),
    "count": ("POST", "messages/count_tokens", {"messages": HI[1:]}),
    "embeddings": ("POST", "embeddings", {"input": ["one", "two"], "encoding_format": "base64"}),
    "vectors": ("POST", "embeddings", {"input": "one"}),
    "rerank": ("POST", "rerank", {"query": "a file", "documents": ["one file", {"text": "no"}], "top_n": 2, "return_documents": True}),
    "rated": ("POST", "feedback", {"id": "chatcmpl-none", "rating": "good"}),
    "table": ("POST", "completions", {**SHORT, "prompt": "The kernel", "max_tokens": 3, "context_table": "a text to read"}),
    "examples": ("POST", "chat/completions", {**CHAT, "examples": 1, "recite": 1}),
    "tokenize": ("POST", "tokenize", {"text": "a text"}),
    "detokenize": ("POST", "detokenize", {"tokens": [65, 66, 67]}),
    "refused": ("POST", "completions", {"prompt": "The", "temperature": -1}),
    "template": ("POST", "apply-template", {"messages": HI}),
    "models": ("GET", "models", {}),
    "props": ("GET", "props", {}),
    "health": ("GET", "health", {}),
    "metrics": ("GET", "metrics", {}),
    "nowhere": ("GET", "nothing", {}),
}
if WAY == "http":
    REQUESTS.update({
        "listed": ("GET", "files?limit=1", {}),
        "nobatch": ("POST", "batches", {"input_file_id": "file-0", "endpoint": "/v1/completions", "completion_window": "24h"}),
        "batches": ("GET", "batches", {}),
    })
META = {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}}
if WAY == "mcp":
    REQUESTS = {
        "discover": ("", "server/discover", META),
        "list": ("", "tools/list", META),
        "generate": ("", "tools/call", {**META, "name": "generate", "arguments": {"prompt": "The kernel", "temperature": 0, "max_tokens": 4}}),
        "score": ("", "tools/call", {**META, "name": "score", "arguments": {"context": "The kernel", "text": " will"}}),
        "unknown": ("", "tools/call", {**META, "name": "none", "arguments": {}}),
    }
WANTED = sys.argv[5:] or REQUESTS
VARIES = {"id", "created", "created_at", "completed_at", "cached_tokens", "item_id", "call_id", "code", "uptime_s", "input_tokens",
          "cache_read_input_tokens", "first_id", "last_id"}
FAILED = ("server_error", "overloaded_error", "api_error")  # as OpenAI's interface says it, and Anthropic's


def essence(value):
    """Without what differs between two equal requests."""
    if isinstance(value, dict):
        return {k: essence(v) for k, v in value.items() if k not in VARIES}
    return [essence(v) for v in value] if isinstance(value, list) else value


def by_choice(parts):
    """Chunks of several choices may come in another order."""
    return sorted(parts, key=lambda p: (p.get("choices") or [{"index": 99}])[0].get("index", 99))


class Faults:
    """What fails in the server: a file that both map (struct live of shim.c)."""

    def __init__(self, path):
        with open(path, "w+b") as f:
            f.write(bytes(8 * (4 + 16)))
            f.flush()
            self.map = mmap.mmap(f.fileno(), 0)

    def set(self, kind, at):
        struct.pack_into("<3q", self.map, 0, kind, at, 0)
        struct.pack_into("<16q", self.map, 32, *[0] * 16)

    def failed(self):
        return struct.unpack_from("<q", self.map, 16)[0]

    def held(self):
        return struct.unpack_from("<q", self.map, 24)[0]

    def held_at_most(self, most):
        """Pieces of memory, once the server has given back what the last request had."""
        for _ in range(100):
            if self.held() <= most:
                break
            time.sleep(0.02)
        return self.held() <= most

    def count(self, kind):
        return struct.unpack_from("<q", self.map, 32 + 8 * kind)[0]


class Server:
    def __init__(self, faults):
        corpus = os.path.join(DIRECTORY, "corpus")
        options = ["--parallel", "2", "-c", "512", "-t", "1", "--table-memory", "1", "--examples", corpus, "--recite", corpus]
        # what the sanitizer's own allocations are is not ours to fail
        env = {**os.environ, "LD_PRELOAD": SHIM, "CHIMERE_TEST_FAULT_LIVE": faults}
        self.errors = open(os.path.join(DIRECTORY, "err"), "w+", encoding="utf-8")
        self.process = subprocess.Popen(["chimere-serve-stdio", *options, *self.more()], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors, text=True, bufsize=1, env=env)

    def end(self):
        self.process.stdin.close()
        self.stop()
        assert self.process.wait(60) == 0, self.process.returncode
        self.errors.seek(0)
        said = self.errors.read()
        assert said == "", said


    place = ""  # that fails


class Lines(Server):
    @staticmethod
    def more():
        return []

    def ask(self, name):
        _, method, body = REQUESTS[name]
        self.process.stdin.write(json.dumps({"id": "x", "method": method, "body": body}) + "\n")
        parts = []
        while not parts or parts[-1]["type"] == "chunk":
            line = self.process.stdout.readline()
            assert line, f"{self.place}: the server has ended"
            parts.append(json.loads(line))
        status = parts[-1].get("status", 200)
        if status in (503, 507):
            assert parts[-1]["error"]["type"] in FAILED, parts
            return status, None
        return status, method if method == "metrics" else by_choice([essence(p.get("body", p)) for p in parts])

    def connect(self):
        pass

    def stop(self):
        pass


class Mcp(Lines):
    @staticmethod
    def more():
        return ["--mcp"]

    def ask(self, name):
        _, method, params = REQUESTS[name]
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": "x", "method": method, "params": params}) + "\n")
        line = self.process.stdout.readline()
        assert line, f"{self.place}: the server has ended"
        reply = json.loads(line)
        if "memory" in reply.get("error", {}).get("message", ""):
            return 503, None
        reply = essence(reply)
        if method == "tools/call" and "result" in reply:
            reply["result"]["content"] = []  # the same again as a text
        return 200, reply


class Http(Server):
    @staticmethod
    def more():
        return ["--listen", "127.0.0.1:0", "--files", os.path.join(DIRECTORY, "files")]

    def __init__(self, faults):
        super().__init__(faults)
        url = json.loads(self.process.stdout.readline())["url"]
        self.address = ("127.0.0.1", int(url.rsplit(":", 1)[1]))
        self.connection = None

    def connect(self):
        """A connection that has been used: without memory for a new one nothing can be answered."""
        if self.connection is None:
            self.connection = http.client.HTTPConnection(*self.address, timeout=60)
            self.connection.request("GET", "/health")
            self.connection.getresponse().read()

    def ask(self, name):
        verb, path, body = REQUESTS[name]
        self.connect()
        self.connection.request(verb, "/" + path, json.dumps(body) if verb == "POST" else None, {"Content-Type": "application/json"})
        reply = self.connection.getresponse()
        text = reply.read().decode()
        if reply.will_close:
            self.connection.close()
            self.connection = None
        if reply.headers["Content-Type"] == "text/event-stream":
            events = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
            parts = [json.loads(e) for e in events if e != "[DONE]"]
            if parts and "error" in parts[-1]:
                assert parts[-1]["error"]["type"] in FAILED, parts
                return 503, None
            return 200, by_choice(essence(parts)) + ["[DONE]" in events]
        if reply.status in (503, 507):
            assert json.loads(text)["error"]["type"] in FAILED, text
            return reply.status, None
        return reply.status, essence(json.loads(text)) if path != "metrics" else path

    def stop(self):
        self.process.terminate()


def places(n):
    """Which calls of n fail: a third at the start, the others evenly spread."""
    first = min(n, PLACES // 3)
    left = PLACES - first
    return sorted({*range(1, first + 1), *(first + (i + 1) * (n - first) // left for i in range(left))} - {0})


def main():
    os.makedirs(DIRECTORY, exist_ok=True)
    corpus = os.path.join(DIRECTORY, "corpus")
    with open(corpus + ".txt", "w", encoding="utf-8") as f:
        f.write("Say hi to the kernel.\nA file is a list of bytes.\n")
    subprocess.run(["chimere-engram-build", "index", "--lines", "-o", corpus, corpus + ".txt"], check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    live = os.path.join(DIRECTORY, "live")
    faults = Faults(live)
    server = {"lines": Lines, "mcp": Mcp, "http": Http}[WAY](live)
    wrong = []
    for name in WANTED:
        alone = [server.ask(name) for _ in range(3)][-1]  # what is allocated once for all is there
        assert alone[1] is not None, (name, alone)
        for kind, kind_name in enumerate(KINDS):
            server.connect()
            faults.set(kind, 0)
            assert server.ask(name) == alone, (name, "alone")
            time.sleep(0.02)
            n, refused, held = faults.count(kind), 0, faults.held()
            for at in places(n):
                server.connect()
                server.place = f"{name}: {kind_name} {at} of {n}"
                faults.set(kind, at)
                got = server.ask(name)
                failed = faults.failed()
                faults.set(kind, 0)
                if got != alone and (not failed or got[0] not in ([503] if kind_name == "alloc" else [503, 507])):
                    wrong.append(f"{name}: {kind_name} {at} of {n}: {[p for p in got[1] or [] if p not in (alone[1] or [])]}, {got[0]}")
                refused += got != alone
                got = server.ask(name)
                if got != alone:
                    wrong.append(f"{name}: {kind_name} {at} of {n}, then: {got}, not {alone}")
            if not faults.held_at_most(held + 3 + 3 * len(places(n)) // 2):  # the reply of a request has more
                wrong.append(f"{name}: {kind_name}: memory is not given back")
            if n:
                print(f"{WAY} {name} {kind_name}: {len(places(n))} of {n}, {refused} refused", flush=True)
    server.end()
    assert wrong == [], "\n".join(wrong)


main()
