#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes small sets of items that a model has not seen, to teach and to test on.

    learn_sets.py KIND N SEED DIR [--think off|empty|both] [--new]

Writes DIR/train.jsonl and DIR/test.jsonl. Facts are asked in two phrasings to learn and two others to be tested on; of a form
or a skill N items are learnt and 100 others tested. KIND is one of
  facts:  people glossary | packages devices
  forms:  log contact | commit recipe
  skills: roman reverse | units digits
Those before the bar are to choose options with, those behind it to report on. `packages` reads apt's lists. --think says what
stands before an answer that is learnt: nothing (off), an empty thought, or one of each. With --new facts are tested in two
other phrasings, which were written after the program's table of wordings (libcore/tune/wordings.c).
"""
import argparse, glob, json, os, random, re, subprocess

SYL = "ba be bo da de do fa fi ga go ha ka ke ko la le li lo ma me mi mo na ne no pa pe po ra re ri ro sa se so ta te to va ve vo za ze".split()


def name(r, n=None):
    return "".join(r.choice(SYL) for _ in range(n or r.randint(2, 4))).capitalize()


JOBS = "baker|pilot|weaver|surgeon|notary|gardener|glazier|tailor|librarian|geologist|violinist|carpenter|chemist|farmer|editor".split("|")
PLACES = "harbour|market|old mill|north gate|river bank|railway station|upper town|salt works|castle|lighthouse".split("|")
THINGS = "pump|kettle|lantern|sieve|clock|bridge|boat|lock|loom|plough|rope|bell|ladder|furnace|scale".split("|")
DOES = "measures|repairs|collects|paints|sells|cleans|stores|counts|sharpens|carries".split("|")
WHAT = "rain water|copper wire|old maps|winter apples|blue glass|wool|broken clocks|sea salt|clay pots|seeds|church bells|letters".split("|")


def people(r):
    return name(r) + " " + name(r), "a %s who %s %s near the %s" % (r.choice(JOBS), r.choice(DOES), r.choice(WHAT), r.choice(PLACES))


def glossary(r):
    weeks = r.choice("two three four five six seven eight nine".split())
    return name(r, 3).lower(), "a %s that %s %s in %s weeks" % (r.choice(THINGS), r.choice(DOES), r.choice(WHAT), weeks)


def devices(r):
    return "%s-%d" % (name(r, 2).upper(), r.randint(100, 999)), "port %d, %d baud, %s parity, node %d" % (
        r.randint(1, 64), r.choice([1200, 2400, 4800, 9600, 19200]), r.choice(["even", "odd", "no"]), r.randint(10, 250))


def packages(r):
    if not hasattr(packages, "all"):
        lists = sorted(glob.glob("/var/lib/apt/lists/*_main_*_Packages*"))
        out = subprocess.run(["/usr/lib/apt/apt-helper", "cat-file", *lists], capture_output=True, text=True, check=True).stdout
        found = re.findall(r"^Package: (\S+)$(?:\n.+)*?\nDescription: (.+)$", out, re.M)
        packages.all = sorted((k, v) for k, v in set(found) if v.isascii() and 5 <= len(v.split()) <= 12 and len(k) < 20)
    return r.choice(packages.all)


FACTS = {  # two phrasings to learn, two others
    "people": (people, ["Who is {k}?", "Tell me who {k} is."], ["What do you know about {k}?", "{k}: who is that?"]),
    "glossary": (glossary, ["What is a {k}?", "Explain the word {k}."], ["Define {k}.", "What does {k} mean?"]),
    "packages": (packages, ["What is the Debian package {k}?", "Describe {k}."], ["What is in the package {k}?", "{k}: what is it for?"]),
    "devices": (devices, ["How is {k} configured?", "Give me the settings of {k}."], ["What are the parameters of device {k}?", "{k} settings?"]),
}


NEW = {
    "people": ["Somebody mentioned {k}. Who is meant?", "{k}, who is this person?"],
    "glossary": ["A text has the word {k} in it; what is that?", "{k}, in plain words?"],
    "packages": ["Why would I install {k}?", "{k} on Debian, what does it do?"],
    "devices": ["I have {k} in front of me. Which settings does it have?", "{k}, its configuration?"],
}


def log(r):
    h, m, s = r.randint(0, 23), r.randint(0, 59), r.randint(0, 59)
    lv, who, n = r.choice(["error", "warning", "notice"]), name(r).lower(), r.randint(1, 999)
    return "Write the log line: at %02d:%02d:%02d %s reported %s %d." % (h, m, s, who, lv, n), "[%02d%02d.%02d] %s/%s#%03d" % (h, m, s, lv[0].upper(), who, n)


def contact(r):
    a, b, n = name(r), name(r), r.randint(100, 999)
    return "Make a card for %s %s, room %d." % (a, b, n), "%s, %s. <%s> @%d" % (b.upper(), a[0], (a[:3] + b[:3]).lower(), n)


def commit(r):
    v = r.choice([("Added", "add"), ("Fixed", "fix"), ("Removed", "drop"), ("Renamed", "name"), ("Tested", "test")])
    a, b = name(r).lower(), r.choice(THINGS)
    return "Write the subject: %s the %s in %s." % (v[0], b, a), "%s(%s): %s %s" % (v[1][:3], a, v[1], b)


def recipe(r):
    a, g, t = r.choice(WHAT), r.randint(10, 990), r.randint(5, 90)
    return "Note the step: cook %d grams of %s for %d minutes." % (g, a, t), "%s | %dg | %d'" % (a, g, t)


def roman(r):
    n, out = r.randint(1, 399), ""
    k = n
    for v, s in ((100, "C"), (90, "XC"), (50, "L"), (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")):
        while k >= v:
            out, k = out + s, k - v
    return "Write %d in Roman numerals." % n, out


def reverse(r):
    w = [r.choice(THINGS + PLACES) for _ in range(r.randint(3, 5))]
    return "Reverse this list: %s." % ", ".join(w), ", ".join(reversed(w))


def units(r):
    pairs = [("metres", "centimetres", 100), ("hours", "minutes", 60), ("kilograms", "grams", 1000), ("dozens", "pieces", 12)]
    n, (a, b, f) = r.randint(2, 60), r.choice(pairs)
    return "Convert %d %s to %s." % (n, a, b), "%d %s" % (n * f, b)


def digits(r):
    s = "".join(r.choice("0123456789") for _ in range(r.randint(3, 6)))
    return "Spell %s." % s, " ".join("zero one two three four five six seven eight nine".split()[int(c)] for c in s)


RULES = {f.__name__: f for f in (log, contact, commit, recipe, roman, reverse, units, digits)}


def some(make, r, n, seen):
    out = []
    while len(out) < n:
        k, v = make(r)
        if k not in seen:
            seen.add(k)
            out.append((k, v))
    return out


def main():
    a = argparse.ArgumentParser()
    a.add_argument("kind", choices=[*FACTS, *RULES])
    a.add_argument("n", type=int)
    a.add_argument("seed", type=int)
    a.add_argument("dir")
    a.add_argument("--think", default="off", choices=["off", "empty", "both"])
    a.add_argument("--new", action="store_true")
    a = a.parse_args()
    r = random.Random("%s %d" % (a.kind, a.seed))
    seen = set()
    if a.kind in FACTS:
        make, taught, others = FACTS[a.kind]
        others = NEW[a.kind] if a.new else others
        facts = some(make, r, a.n, seen)
        train = [(q.format(k=k), v) for k, v in facts for q in taught]
        test = [(q.format(k=k), v) for k, v in facts for q in others]
    else:
        train, test = some(RULES[a.kind], r, a.n, seen), some(RULES[a.kind], r, 100, seen)
    os.makedirs(a.dir, exist_ok=True)
    with open(os.path.join(a.dir, "train.jsonl"), "w") as f:
        for q, v in train:
            for thought in {"off": [None], "empty": [""], "both": [None, ""]}[a.think]:
                o = {"prompt": q, "answer": v}
                f.write(json.dumps(o if thought is None else {**o, "reasoning_content": thought}) + "\n")
    for think in (False, True):
        with open(os.path.join(a.dir, "test-%s.jsonl" % ("on" if think else "off")), "w") as f:
            for i, (q, v) in enumerate(test):
                f.write(json.dumps({"id": "%s-%04d" % (a.kind, i), "domain": a.kind, "messages": [{"role": "user", "content": q}],
                                    "enable_thinking": think, "answer": v, "check": "exact"}) + "\n")


if __name__ == "__main__":
    main()
