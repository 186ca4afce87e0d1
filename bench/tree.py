#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tree.py PLACES.jsonl: tokens a step of chains and trees of guesses with as many rows, from what bench/tree.c printed.

chain   the likeliest token of each place
tree    the nodes whose product of probabilities is largest, found best first; a node is a row
paths   the chain and at most one other path from the newest token on, whichever is expected to keep most; the second
        path's rows are counted in full, as of a sequence of its own
One of the rows is the newest token's. Every way takes its own steps through the answer. 95 % intervals: bootstrap over answers.

With costs, in steps of one row - of a row more, of a call of the drafter, of a branch of a tree or of the second path - the
speed over plain steps where each step has as many rows as the drafter's probabilities say are best.
"""
import heapq
import json
import random
import sys

ROWS = (4, 8, 16)


def chain(places, rows):
    kept = 0
    for place in places[:rows - 1]:
        if place[0] != 0:
            break
        kept += 1
    return kept, 0


def tree(places, rows):
    """Nodes are paths of ranks. The likeliest first: a node's first child and next sibling are less likely than it is."""
    heap = [(-places[0][1], (0,), 1.0)] if places else []
    nodes = set()
    while heap and len(nodes) < rows - 1:
        minus, path, before = heapq.heappop(heap)
        nodes.add(path)
        depth, rank = len(path), path[-1]
        if rank + 2 < len(places[depth - 1]):
            heapq.heappush(heap, (-before * places[depth - 1][rank + 2], path[:-1] + (rank + 1,), before))
        if depth < len(places):
            heapq.heappush(heap, (minus * places[depth][1], path + (0,), -minus))
    path, kept = (), 0
    for place in places:
        path += (place[0],)
        if path not in nodes:
            break
        kept += 1
    leaves = sum(1 for n in nodes if n + (0,) not in nodes and
                 not any(n + (c,) in nodes for c in range(1, 8)))
    return kept, max(0, leaves - 1)


def paths(places, rows):
    """Places behind the other token are guessed as if the chain's had come: a block knows no better."""
    p = [place[1] for place in places]
    good, total, product = [0.0], 0.0, 1.0
    for x in p:
        product *= x
        total += product
        good.append(total)
    best, choice = good[min(rows - 1, len(p))], None
    for at in range(min(len(p), rows - 3)):
        before = good[at] - good[at - 1] if at else 1.0
        tail, product = 0.0, before * places[at][2]
        for more in range(len(p) - at):
            second = at + 1 + more
            first = rows - 2 - second
            tail += product
            if first < 0:
                break
            product *= p[at + 1 + more] if at + 1 + more < len(p) else 0
            if good[min(first, len(p))] + tail > best:
                best, choice = good[min(first, len(p))] + tail, (first, at, second)
    if choice is None:
        return chain(places, rows)
    first, at, second = choice
    kept = chain(places, first + 1)[0]
    other = 0
    for i, place in enumerate(places[:second]):
        if place[0] != (1 if i == at else 0):
            break
        other += 1
    return max(kept, other), 1


def promise(way, places, rows):
    """Tokens that a way is expected to give: what it keeps if the truth is drawn from the drafter's probabilities."""
    sure, total, product = [place[1] for place in places], 1.0, 1.0
    if way == "tree":
        heap, taken = [(-places[0][1], 1, 0, 1.0)] if places else [], 0
        while heap and taken < rows - 1:
            minus, depth, rank, before = heapq.heappop(heap)
            taken += 1
            total -= minus
            if rank + 2 < len(places[depth - 1]):
                heapq.heappush(heap, (-before * places[depth - 1][rank + 2], depth, rank + 1, before))
            if depth < len(places):
                heapq.heappush(heap, (minus * places[depth][1], depth + 1, 0, -minus))
        return total
    for x in sure[:rows - 1]:
        product *= x
        total += product
    return total


WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16)


def speed(answers, way, row, call, branch):
    """Times the speed of plain steps. The drafter is asked for every step; steps without it are not worth it here."""
    tokens = time = 0.0
    for answer in answers:
        at = 0
        while at < len(answer):
            best = max(WIDTHS, key=lambda n: promise(way, answer[at], n) / (1 + row * (n - 1) + call))
            kept, more = WAYS[way](answer[at], best)
            time += 1 + row * (best - 1) + call + branch * more
            at += kept + 1
        tokens += len(answer)
    return tokens / time


WAYS = {"chain": chain, "tree": tree, "paths": paths}


def walk(answer, way, rows):
    at = steps = branches = 0
    while at < len(answer):
        kept, more = WAYS[way](answer[at], rows)
        at += kept + 1
        steps += 1
        branches += more
    return len(answer), steps, branches


def ratio(sums):
    return sum(s[0] for s in sums) / max(1, sum(s[1] for s in sums))


def main():
    sets = {}
    for line in open(sys.argv[1], encoding="utf-8"):
        record = json.loads(line)
        if record["at"]:
            sets.setdefault(record["set"].split(".")[0], []).append(record["at"])
    sets["all"] = [a for answers in sets.values() for a in answers]
    costs = [float(x) for x in sys.argv[2:]]
    for row, call, branch in zip(costs[::3], costs[1::3], costs[2::3]):
        print("a row %g, a call %g, a branch %g:" % (row, call, branch))
        for name, answers in sets.items():
            print("    %-16s chain %.3f, tree %.3f, tree whose branches cost nothing %.3f" % (
                name, speed(answers, "chain", row, call, 0), speed(answers, "tree", row, call, branch),
                speed(answers, "tree", row, call, 0)))
    if costs:
        return
    draw = random.Random(1)
    print("| set | rows | chain | tree | tree / chain [95 %] | branches a step | paths / chain [95 %] |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, answers in sets.items():
        for rows in ROWS:
            done = {w: [walk(a, w, rows) for a in answers] for w in WAYS}
            spread = {w: [] for w in WAYS}
            for _ in range(1000):
                pick = [draw.randrange(len(answers)) for _ in answers]
                base = ratio([done["chain"][i] for i in pick])
                for w in ("tree", "paths"):
                    spread[w].append(ratio([done[w][i] for i in pick]) / base)
            base = ratio(done["chain"])
            cells = {w: "%.3f [%.3f, %.3f]" % (ratio(done[w]) / base, sorted(spread[w])[25], sorted(spread[w])[974])
                     for w in ("tree", "paths")}
            branches = sum(s[2] for s in done["tree"]) / sum(s[1] for s in done["tree"])
            print("| %s | %d | %.2f | %.2f | %s | %.1f | %s |" %
                  (name, rows, base, ratio(done["tree"]), cells["tree"], branches, cells["paths"]))


main()
