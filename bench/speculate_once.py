#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""speculate_once.py LIMIT ROUNDS SET.jsonl ... -- DRAFTER ...: what drafters cost a program that is started for one answer.

The first LIMIT prompts of each set, each answered by a chimere-run of its own, without guesses and with each drafter, one right
after the other, in an order that turns. JSON lines: processor and wall time of all of a set's answers without guesses over those
with the drafter, [least, most] of the rounds. In the environment: BIN, THREADS (default 1), LENGTH (tokens, default 240),
SERVE=1 (a chimere-serve-stdio for each drafter answers all of it), XDG_CACHE_HOME (what is known of costs; an empty directory
by default).
"""
import json
import os
import resource
import subprocess
import sys
import tempfile
import time

BIN = os.environ.get("BIN", "bin") + "/chimere-run"
SERVE = os.environ.get("BIN", "bin") + "/chimere-serve-stdio"
THREADS = os.environ.get("THREADS", "1")
LENGTH = os.environ.get("LENGTH", "240")


def processor():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def servers(ways):
    """A chimere-serve-stdio for each way; none without SERVE."""
    options = ["-t", THREADS, "--parallel", "1", "-q"]
    return {way: subprocess.Popen([SERVE] + options + (["--draft", way] if way != "off" else []), stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True) for way in ways} if os.environ.get("SERVE") else {}


def used_by(process):
    """Seconds of processor time of all its threads."""
    total = 0
    for task in os.listdir("/proc/%d/task" % process.pid):
        with open("/proc/%d/task/%s/schedstat" % (process.pid, task), encoding="ascii") as f:
            total += int(f.read().split()[0])
    return total / 1e9


def ask(item, process):
    """The same as run(), by a server."""
    body = {"messages": item["messages"], "max_tokens": int(LENGTH), "temperature": 0,
            "chat_template_kwargs": {"enable_thinking": bool(item.get("enable_thinking"))}}
    if item.get("tools"):
        body["tools"] = item["tools"]
    before, start = used_by(process), time.monotonic()
    process.stdin.write(json.dumps({"id": 1, "method": "chat/completions", "body": body}) + "\n")
    process.stdin.flush()
    message = json.loads(process.stdout.readline())["body"]["choices"][0]["message"]
    return used_by(process) - before, time.monotonic() - start, json.dumps(message, sort_keys=True)


def run(item, drafter):
    """Processor and wall time of one answer, and the answer."""
    command = [BIN, "-t", THREADS, "-n", LENGTH, "--think", "on" if item.get("enable_thinking") else "off", "-p",
               item["messages"][-1]["content"]]
    before, start = processor(), time.monotonic()
    out = subprocess.run(command + (["--draft", drafter] if drafter != "off" else []), stdout=subprocess.PIPE, check=True).stdout
    return processor() - before, time.monotonic() - start, out


def spread(values):
    values = sorted(values)
    return [round(v, 3) for v in (values[len(values) // 2], values[0], values[-1])]


def measure(name, items, ways, rounds, at):
    ratios = {way: ([], []) for way in ways}
    for turn in range(rounds):
        sums = {way: [0.0, 0.0] for way in ways}
        for i, item in enumerate(items):
            answers = set()
            for k in range(len(ways)):
                way = ways[(k + i + turn) % len(ways)]
                cpu, wall, out = ask(item, at[way]) if at else run(item, way)
                sums[way][0] += cpu
                sums[way][1] += wall
                answers.add(out)
            if len(answers) != 1:
                sys.exit("%s: item %d has another answer with guesses" % (name, i))
        for way in ways:
            for kind in (0, 1):
                ratios[way][kind].append(sums["off"][kind] / sums[way][kind])
    for way in ways:
        print(json.dumps({"set": name, "draft": way, "n": len(items), "processor": spread(ratios[way][0]),
                          "wall": spread(ratios[way][1]), "off_s": round(sums["off"][1], 3)}), flush=True)


def main():
    sets = sys.argv.index("--")
    limit, rounds, ways = int(sys.argv[1]), int(sys.argv[2]), ["off"] + sys.argv[sets + 1:]
    with tempfile.TemporaryDirectory() as empty:
        os.environ.setdefault("XDG_CACHE_HOME", empty)
        at = servers(ways)
        for path in sys.argv[3:sets]:
            with open(path, encoding="utf-8") as f:
                items = [json.loads(line) for line, _ in zip(f, range(limit))]
            measure(os.path.basename(path).split(".")[0], items, ways, rounds, at)
        for process in at.values():
            process.stdin.close()
            process.wait()


if __name__ == "__main__":
    main()
