# SPDX-License-Identifier: Apache-2.0
# dvts.py FILE - what bench/dvts.sh has written: answers that are right, with Wilson's 95 % intervals, tokens, and the items that only one
# of two has right, with McNemar's exact p.
import json
import math
import sys


def interval(k, n, z=1.959964):
    p, d = k / n, 1 + z * z / n
    c, h = (p + z * z / (2 * n)) / d, z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / d
    return f"{100 * p:.1f} % [{100 * (c - h):.1f}, {100 * (c + h):.1f}]"


def vote(candidates, weighted):
    weight, first = {}, {}
    for i, c in enumerate(candidates):
        if c["answer"] is not None:
            weight[c["answer"]] = weight.get(c["answer"], 0) + ((c["score"] or 0) if weighted else 1)
            first.setdefault(c["answer"], (-i, c["text"]))
    if weighted and not any(weight.values()):
        return vote(candidates, False)
    return max(weight, key=lambda a: (weight[a], first[a][0]), default=None), first


def text(candidates, weighted):
    answer, first = vote(candidates, weighted)
    return first[answer][1] if answer is not None else ""


items = [json.loads(line) for line in open(sys.argv[1])]
rows, n = {}, len(items)
k = len(items[0]["best"]["search"]["candidates"])
for i in items:
    c, t, want = i["best"]["search"]["candidates"], i["tree"], i["want"]
    for few in sorted({1, 4, k}):
        tokens = sum(x["tokens"] for x in c[:few])
        for name, kept in (("majority", text(c[:few], False)), ("weighted", text(c[:few], True))):
            rows.setdefault(f"{few}, {name}", []).append((kept == want, tokens))
    rows.setdefault(f"{k}, any", []).append((any(x["text"] == want for x in c), sum(x["tokens"] for x in c)))
    rows.setdefault(f"tree {t['search']['n']}x{t['search']['width']}", []).append((t["text"] == want, t["search"]["generated_tokens"]))
for name, row in rows.items():
    print(f"{name:16} {interval(sum(r for r, _ in row), n):26} {sum(t for _, t in row) / n:7.0f} tokens")
tree = rows[next(r for r in rows if r.startswith("tree"))]
for other in (f"{k}, majority", f"{k}, weighted"):
    a = sum(x[0] and not y[0] for x, y in zip(tree, rows[other]))
    b = sum(y[0] and not x[0] for x, y in zip(tree, rows[other]))
    p = min(1, 2 * sum(math.comb(a + b, j) for j in range(min(a, b) + 1)) / 2 ** (a + b))
    print(f"only the tree {a}, only {other} {b}, p {p:.2g}, n = {n}")
