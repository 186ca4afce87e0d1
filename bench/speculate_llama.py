#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""speculate_llama.py LLAMA_SERVER MODEL DRAFTER LIMIT ROUNDS SET.jsonl ...: llama.cpp's speculation on a model, beside chimere's.

A llama-server for each kind of speculation, with two threads; the first LIMIT items of each set are asked of one after the other, in
an order that turns, greedily, and after each round chimere-bench answers the same items. What counts is the server's own time of
the answers, without the prompts. Prints times as fast as without speculation [least, most] and tokens a step.
"""
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request

LENGTH = 240


def kinds(drafter):
    return {
        "plain": [],
        "draft-mtp, 1 guess": ["--spec-type", "draft-mtp", "--spec-draft-n-max", "1"],
        "draft-mtp, 3 guesses": ["--spec-type", "draft-mtp", "--spec-draft-n-max", "3"],
        "draft-dflash, 7 guesses": ["--spec-type", "draft-dflash", "-md", drafter, "--spec-draft-n-max", "7"],
        "draft-dflash, 15 guesses": ["--spec-type", "draft-dflash", "-md", drafter, "--spec-draft-n-max", "15"],
        "ngram-simple": ["--spec-type", "ngram-simple"],
        "ngram-cache": ["--spec-type", "ngram-cache"],
    }


def start(server, model, options, port):
    log = open("/tmp/speculate_llama.%d.log" % port, "wb")
    return subprocess.Popen([server, "-m", model, "-t", "2", "-c", "2048", "--parallel", "1", "--port", str(port), "--no-webui"]
                            + options, stdout=log, stderr=log)


def ready(process, port):
    for _ in range(240):
        if process.poll() is not None:
            return False
        try:
            urllib.request.urlopen("http://127.0.0.1:%d/health" % port, timeout=2)
            return True
        except (urllib.error.URLError, OSError):
            time.sleep(0.25)
    return False


def ask(port, item):
    body = {"messages": item["messages"], "max_tokens": LENGTH, "temperature": 0, "cache_prompt": False,
            "chat_template_kwargs": {"enable_thinking": bool(item.get("enable_thinking"))}}
    if item.get("tools"):
        body["tools"] = item["tools"]
    r = urllib.request.Request("http://127.0.0.1:%d/v1/chat/completions" % port, json.dumps(body).encode(),
                               {"Content-Type": "application/json"})
    t = json.load(urllib.request.urlopen(r, timeout=120))["timings"]
    return t["predicted_ms"], t["predicted_n"], t.get("draft_n", 0), t.get("draft_n_accepted", 0)


def ours(model, drafter, limit, sets):
    out = subprocess.run(["bin/chimere-bench", "speculate", "-m", model, "-t", "2", "--json", "--draft", drafter, "--draft", "mtp",
                          "--draft", "ngram", "--draft", "auto", "--limit", str(limit), "-n", str(LENGTH), "--reps", "1"] + sets,
                         capture_output=True, text=True, check=True).stdout
    for line in out.splitlines():
        r = json.loads(line)
        if r["set"] == "all":
            yield r["draft"].split("/")[-1], r["tokens"] / r["tps"] * 1e3, r["tokens"], r["tokens_per_step"]


def main():
    server, model, drafter, limit, rounds, *sets = sys.argv[1:]
    items = []
    for path in sets:
        with open(path, encoding="utf-8") as f:
            items += [json.loads(line) for line, _ in zip(f, range(int(limit)))]
    running, sums = {}, {}
    try:
        for i, (name, options) in enumerate(kinds(drafter).items()):
            process = start(server, model, options, 18700 + i)
            running[name] = process
            if not ready(process, 18700 + i):
                print("%s: does not start: see /tmp/speculate_llama.%d.log" % (name, 18700 + i))
                process.kill()
                del running[name]
        ports = {name: 18700 + i for i, name in enumerate(kinds(drafter)) if name in running}
        for item in items[:1]:
            for port in ports.values():
                ask(port, item)
        for at in range(int(rounds)):
            for name in ports:
                sums.setdefault(name, []).append([0, 0, 0, 0])
            for i, item in enumerate(items):
                order = list(ports)
                order = order[(i + at) % len(order):] + order[:(i + at) % len(order)]
                for name in order:
                    sums[name][-1] = [a + b for a, b in zip(sums[name][-1], ask(ports[name], item))]
            for name, ms, tokens, a_step in ours(model, drafter, int(limit), sets):
                sums.setdefault("chimere: " + name, []).append([ms, tokens, a_step, None])
    finally:
        for process in running.values():
            process.kill()
    for name, rows in sums.items():
        base = sums["chimere: off" if name.startswith("chimere") else "plain"]
        speed = [r[1] / r[0] * 1e3 for r in rows]
        times = sorted(s / (b[1] / b[0] * 1e3) for s, b in zip(speed, base))
        steps = [r[2] if r[3] is None else r[1] / max(1, r[1] - r[3]) for r in rows]
        print("%-36s %7.1f tokens/s  x %.2f [%.2f, %.2f]  %.2f tokens a step" % (
            name, sorted(speed)[len(speed) // 2], times[len(times) // 2], times[0], times[-1], steps[0]))


main()
