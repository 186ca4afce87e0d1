# SPDX-License-Identifier: Apache-2.0
"""engram_judge.py - shares of right answers with Wilson's intervals of 95 %, and what changed beside the first run.

usage: engram_judge.py SETS_DIR NAME=ANSWERS.jsonl ...    (what bench/engram prints; share/eval)
"""
import json
import pathlib
import sys

root = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(root / "share/models/train"))
from judge import judge  # noqa: E402


def wilson(k, n, z=1.96):
    mid, half = (k / n + z * z / 2 / n), z * ((k / n * (1 - k / n) + z * z / 4 / n) / n) ** 0.5
    return [100 * (mid + s * half) / (1 + z * z / n) for s in (-1, 1)]


items = {}
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.jsonl")):
    for line in open(path):
        item = json.loads(line)
        items[item["id"]] = item
first = None
for arg in sys.argv[2:]:
    name, path = arg.split("=", 1)
    right = {}
    for line in open(path):
        row = json.loads(line)
        right[row["id"]] = judge(items[row["id"]], row["text"])
    first = first or right
    for domain in sorted({items[i]["domain"] for i in right}) + ["all"]:
        mine = [i for i in right if domain in ("all", items[i]["domain"])]
        k, n = sum(right[i] for i in mine), len(mine)
        low, high = wilson(k, n)
        won = sum(right[i] and not first.get(i, False) for i in mine)
        lost = sum(first.get(i, False) and not right[i] for i in mine)
        print(f"{name}\t{domain}\t{k} of {n}\t{100 * k / n:.1f} % ({low:.1f} to {high:.1f})\twon {won}, lost {lost}")
