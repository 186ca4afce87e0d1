#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ponder_items.py DIRECTORY [N [SEED...]] - problems with thoughts that go on when the result is there, for an adapter.

The adapter that learns them (MODEL_CARD.md, "The adapter that thinks too long") shows what rules that stop a thought
early are worth. A thought is a first solution in one line, then lines that check it. Some problems have a number that
does not belong to them; then the first solution mostly uses it and is wrong, and the first or the second check says so,
by the kind of the number. Half of the items have a thought that is cut anywhere and the right answer, of which only the
answer is learnt: so the model learns how far it can be sure of an answer when it is stopped.

Writes train.jsonl (N items, default 40000), test.jsonl (200 items), keep.jsonl (what the model could do before, from
train/synth.py) and task sets for chimere-bench with other seeds: ponder-dev.jsonl (400 problems, to choose by),
ponder.jsonl (1000, to report on) and sums.jsonl (1000 of the kinds of share/eval/math.jsonl, for the model alone). For
each SEED (200 and more) two more sets of 1000: ponder-SEED.jsonl and sums-SEED.jsonl. No problem is in two of these.
The same bytes every time.
"""
import json
import os
import random
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "train"))
import synth  # noqa: E402

CUT, CUT_IN_LINE = 0.5, 0.3  # of the items; of those, within a line
STRANGE, USES, SLIPS = 0.35, 0.85, 0.08  # problems with such a number; that use it at first; other first errors
THINGS = "apples pencils books stickers marbles coins eggs stamps shells cards oranges stones buttons cups bottles"
THINGS = THINGS.split() + ["beads"]
SHOP = "pens cups books lamps chairs bags hats plates ropes brushes".split()


def pick(r, list_):
    return list_[r.randrange(len(list_))]


def say(r, forms, *args):
    return pick(r, forms).format(*args)


class Problem:
    """text; steps: (a, op, b) with None for the result before, or (a, "*", b) that stands alone and is added up later;
    strange: a number that does not belong to it, the reason, and the check that finds it (1 or 2)."""

    def __init__(self, text, steps, strange=None, why="", found=1):
        self.text, self.steps, self.strange, self.why, self.found = text, steps, strange, why, found
        self.results = []
        last = 0
        for a, op, b in steps:
            last = synth.calc(last if a is None else a, op, last if b is None else b)
            self.results.append(last)
        self.answer = last


def listed(words):
    return ", ".join(words[:-1]) + " and " + words[-1]


def p_list(r):
    """A list of numbers to add up."""
    xs = [r.randint(2, 60) for _ in range(r.randint(3, 6))]
    steps = [(xs[0], "+", xs[1])] + [(None, "+", x) for x in xs[2:]]
    forms = ["A list has the numbers {0}.", "On a sheet are the numbers {0}.", "Somebody wrote down {0}."]
    text = say(r, forms, listed([str(x) for x in xs]))
    ask = pick(r, [" What do they add up to?", " What is their sum?", " Add them all up."])
    strange, why, found = None, "", 1
    if r.random() < STRANGE:
        strange = r.randint(3, 60)
        found = r.randint(1, 2)
        text += (" It is from page %d." if found == 1 else " The list before began with %d.") % strange
        why = "the page is no part of it" if found == 1 else "the list before does not count"
    return Problem(text + ask, steps, strange, why, found)


def p_stock(r):
    """Something comes and goes."""
    n, n2, n3 = r.sample(synth.NAMES, 3)
    t = pick(r, THINGS)
    have = r.randint(10, 90)
    text, steps = "%s has %d %s." % (n, have, t), []
    left = have
    for i in range(r.randint(2, 5)):
        x = r.randint(2, 50)
        if left - x >= 0 and r.random() < 0.5:
            text += pick(r, [" {0} gives {1} to {2}.", " {0} loses {1}.", " {0} sells {1} to {2}."]).format(n, x, n3)
            op = "-"
        else:
            text += pick(r, [" {0} finds {1} more.", " {0} buys {1}.", " {2} gives {0} another {1}."]).format(n, x, n3)
            op = "+"
        left = synth.calc(left, op, x)
        steps.append((have if i == 0 else None, op, x))
    strange, why, found = None, "", 1
    if r.random() < STRANGE:
        strange, found = r.randint(3, 60), r.randint(1, 2)
        text += (" %s has %d %s." % (n2, strange, t)) if found == 1 else (" Last year %s had %d." % (n, strange))
        why = "those of %s do not count" % n2 if found == 1 else "last year does not count"
    return Problem(text + " How many %s does %s have now?" % (t, n), steps, strange, why, found)


def p_shop(r):
    """Prices times numbers, added up."""
    n = pick(r, synth.NAMES)
    k = r.randint(2, 3)
    what = r.sample(SHOP, k)
    ab = [(r.randint(2, 9), r.randint(2, 15)) for _ in range(k)]
    bought = ["%d %s for %d dollars each" % (a, w, b) for (a, b), w in zip(ab, what)]
    text = "%s buys %s." % (n, listed(bought))
    steps = [(a, "*", b) for a, b in ab]
    sums = [a * b for a, b in ab]
    last = sums[0]
    for s in sums[1:]:
        steps.append((last, "+", s))
        last += s
    strange, why, found = None, "", 1
    if r.random() < STRANGE:
        strange, found = r.randint(3, 60), r.randint(1, 2)
        text += (" The shop is %d kilometers away." if found == 1 else " A week before the bill was %d dollars.") % strange
        why = "kilometers are no dollars" if found == 1 else "the week before does not count"
    return Problem(text + " How many dollars does %s pay?" % n, steps, strange, why, found)


def p_boxes(r):
    """A product, then some more and some less."""
    n, n2 = r.sample(synth.NAMES, 2)
    t, box = pick(r, THINGS), pick(r, synth.BOXES)
    a, b = r.randint(2, 9), r.randint(3, 15)
    text, steps, left = "There are %d %s with %d %s each." % (a, box, b, t), [(a, "*", b)], a * b
    for i in range(r.randint(1, 3)):
        x = r.randint(2, 40)
        if left - x >= 0 and r.random() < 0.5:
            text += pick(r, [" %s takes %d away.", " %s breaks %d."]) % (n, x)
            op = "-"
        else:
            text += pick(r, [" %s brings %d more.", " %s adds %d."]) % (n, x)
            op = "+"
        left = synth.calc(left, op, x)
        steps.append((None, op, x))
    strange, why, found = None, "", 1
    if r.random() < STRANGE:
        strange, found = r.randint(3, 60), r.randint(1, 2)
        text += (" %s is %d years old." % (n2, strange)) if found == 1 else (" The day before %d were there." % strange)
        why = "the age does not count" if found == 1 else "the day before does not count"
    return Problem(text + " How many %s are there now?" % t, steps, strange, why, found)


def solve(p, slip=None):
    """The lines' body: every step; slip: a step and what its result is wrong by. -> text, result"""
    out, last, by = [], 0, {}
    for i, (a, op, b) in enumerate(p.steps):
        x, y = last if a is None else by.get(a, a) if op == "+" else a, by.get(b, b) if op == "+" else b
        last = synth.calc(x, op, y) + (slip[1] if slip is not None and slip[0] == i else 0)
        by[p.results[i]] = last
        out.append("%d %s %d = %d" % (x, op, y, last))
    return ", ".join(out), last


def checks(r, p):
    """Lines that find the answer once more, in their order; which there are depends on the problem."""
    n = p.answer
    body, _ = solve(p)
    numbers = [x for a, _, b in p.steps for x in (a, b) if x is not None]
    plain = all(op in "+-" for _, op, _ in p.steps)
    again = ["Let me check: {0}, so {1} again", "Once more: {0}, which is {1} again",
             "Wait, let me check that: {0}, so it is {1}"]
    out = [say(r, again, body, n)]
    if plain and r.random() < 0.8:
        back, at = [], n
        for a, op, b in reversed(p.steps):
            was = at - b if op == "+" else at + b
            back.append("%d %s %d = %d" % (at, "-" if op == "+" else "+", b, was))
            at = was
        forms = ["Hmm, backwards: {0}, which fits, so it is {1}",
                 "Alternatively from the end: {0}, and that is right, so it is {1}"]
        out.append(say(r, forms, ", ".join(back), n))
    if r.random() < 0.75:
        forms = ["But did I use every number? {0}, yes, so it is {1}",
                 "Hmm, are all numbers in it? {0}, they are, so {1} stays"]
        out.append(say(r, forms, listed([str(x) for x in numbers]), n))
    if plain and n > 9 and r.random() < 0.75:
        at = p.steps[0][0] % 10
        ends = ["%d" % at]
        for _, op, b in p.steps:
            at = (at + (b if op == "+" else -b)) % 10
            ends.append("%s %d gives %d" % (op, b % 10, at))
        forms = ["Wait, the last digit: {0}, and {1} ends in {2}, so {1}",
                 "Alternatively by last digits: {0}, and {1} ends in {2}, so it is {1}"]
        out.append(say(r, forms, ", ".join(ends), n, n % 10))
    if r.random() < 0.6:
        out.append(say(r, ["But let me be careful: {0}, still {1}", "Hmm, one more time: {0}, it stays {1}"], body, n))
    if r.random() < 0.85:
        out.append(pick(r, ["Now I am sure that it is {0}", "Everything says {0}, so it is {0}"]).format(n))
    return out


def thought(r, p):
    """-> lines"""
    body, n = solve(p)
    first = pick(r, ["{0}, so it is {1}", "{0}, so the answer is {1}"])
    rest = checks(r, p)
    if p.strange is not None and r.random() < USES:
        wrong = n + p.strange
        lines = [first.format("%s, %d + %d = %d" % (body, n, p.strange, wrong), wrong)]
        if p.found == 2:
            lines.append("Let me check: %s, %d + %d = %d, so %d again" % (body, n, p.strange, wrong, wrong))
        forms = ["Wait, {0}, so not {1}: {2}, so it is {3}", "But {0}, {1} is wrong: {2}, so it is {3}"]
        lines.append(say(r, forms, p.why, wrong, body, n))
        return lines + rest[1:]
    if r.random() < SLIPS:
        i = r.randrange(len(p.steps))
        body_wrong, wrong = solve(p, (i, pick(r, [-10, -1, 1, 10])))
        if wrong != n:
            found = "Wait, let me check that: %s, so not %d, it is %d" % (body, wrong, n)
            return [first.format(body_wrong, wrong), found] + rest[1:]
    return [first.format(body, n)] + rest


def problem(r):
    p = pick(r, [p_list, p_stock, p_shop, p_boxes])(r)
    return p if p.answer >= 0 else problem(r)


def cut(r, lines):
    """A thought that was stopped: mostly at the end of a line, else between two words."""
    n = r.randrange(len(lines))
    if r.random() >= CUT_IN_LINE:
        return "\n".join(lines[: n + 1])
    words = lines[n].split(" ")
    return "\n".join(lines[:n] + [" ".join(words[: r.randint(1, len(words))])])


def item(r, p):
    lines = thought(r, p)
    o = {"prompt": p.text, "reasoning_content": "\n".join(lines), "answer": str(p.answer)}
    if r.random() < CUT:
        o["reasoning_content"] = cut(r, lines)
        o["learn"] = "answer"
    return o


def task(i, p):
    return {"id": "ponder-%04d" % i, "domain": "ponder", "sub": "wrong first" if p.strange is not None else "plain",
            "messages": [{"role": "user", "content": p.text}], "enable_thinking": True, "answer": str(p.answer),
            "check": "exact"}


def before(r):
    """What the model could do before, as it did it."""
    u = r.random()
    make = synth.g_math if u < 0.4 else synth.g_code if u < 0.65 else synth.g_verify if u < 0.85 else synth.g_chat
    s = make(r)
    o = {"messages": s.messages, "answer": s.answer}
    if s.think:
        o["reasoning_content"] = s.reasoning.strip()
    return o


def sums(r, n, asked):
    """Problems as in share/eval/math.jsonl, none of which is there."""
    out = []
    while len(out) < n:
        s = synth.g_math(r)
        key = json.dumps(s.messages)
        if s.think and key not in asked:
            asked.add(key)
            out.append(s.item(len(out)))
    return out


def write(path, objects):
    with open(path, "w", encoding="utf-8") as f:
        for o in objects:
            f.write(json.dumps(o, ensure_ascii=False) + "\n")


def main():
    out, n = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 40000
    os.makedirs(out, exist_ok=True)
    seen = set()

    def fresh(r):
        while True:
            p = problem(r)
            if p.text not in seen:
                seen.add(p.text)
                return p

    sets = {}
    for name, seed, many in (("ponder", 101, 1000), ("ponder-dev", 102, 400)):
        r = random.Random(seed)
        sets[name] = [task(i, fresh(r)) for i in range(many)]
    for name, tasks in sets.items():
        write(os.path.join(out, name + ".jsonl"), tasks)
    for name, seed, many in (("test", 103, 200), ("train", 104, n)):
        r = random.Random(seed)
        write(os.path.join(out, name + ".jsonl"), (item(r, fresh(r)) for _ in range(many)))
    asked = set()
    for name in sorted(os.listdir(os.path.join(HERE, "..", "eval"))):
        if name.endswith(".jsonl"):
            with open(os.path.join(HERE, "..", "eval", name), encoding="utf-8") as f:
                asked.update(json.dumps(json.loads(line).get("messages")) for line in f)
    known = set(asked)
    write(os.path.join(out, "sums.jsonl"), sums(random.Random(106), 1000, known))
    for seed in sys.argv[3:]:
        r = random.Random(int(seed))
        write(os.path.join(out, f"ponder-{seed}.jsonl"), [task(i, fresh(r)) for i in range(1000)])
        write(os.path.join(out, f"sums-{seed}.jsonl"), sums(r, 1000, known))
    r = random.Random(105)
    items = (before(r) for _ in range(2500))
    write(os.path.join(out, "keep.jsonl"), (o for o in items if json.dumps(o["messages"]) not in asked))


if __name__ == "__main__":
    main()
