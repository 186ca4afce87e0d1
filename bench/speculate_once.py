#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""speculate_once.py LIMIT ROUNDS SET.jsonl ... -- DRAFTER ...: what drafters cost a program that is started for one answer.

The first LIMIT prompts of each set, each answered by a chimere-run of its own, without guesses and with each drafter, one right
after the other, in an order that turns. JSON lines: processor and wall time of all of a set's answers without guesses over those
with the drafter, [least, most] of the rounds. In the environment: BIN, THREADS (default 1), LENGTH (tokens, default 240).
"""
import json
import os
import resource
import subprocess
import sys
import time

BIN = os.environ.get("BIN", "bin") + "/chimere-run"
THREADS = os.environ.get("THREADS", "1")
LENGTH = os.environ.get("LENGTH", "240")


def processor():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


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


def measure(name, items, ways, rounds):
    ratios = {way: ([], []) for way in ways}
    for turn in range(rounds):
        sums = {way: [0.0, 0.0] for way in ways}
        for i, item in enumerate(items):
            answers = set()
            for k in range(len(ways)):
                way = ways[(k + i + turn) % len(ways)]
                cpu, wall, out = run(item, way)
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
    at = sys.argv.index("--")
    limit, rounds = int(sys.argv[1]), int(sys.argv[2])
    for path in sys.argv[3:at]:
        with open(path, encoding="utf-8") as f:
            items = [json.loads(line) for line, _ in zip(f, range(limit))]
        measure(os.path.basename(path).split(".")[0], items, ["off"] + sys.argv[at + 1:], rounds)


if __name__ == "__main__":
    main()
