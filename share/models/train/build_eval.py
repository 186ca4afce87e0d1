#!/usr/bin/env python3
"""Step 4: evaluation items, disjoint from training (their prompts are excluded there).

    build_eval.py --data DIR --out share/eval --hidden DIR/eval-hidden
    build_eval.py --data DIR --out share/eval --more share/rehearse

DIR holds facts.json and facts-unknown.jsonl.  Writes one file per domain, 200 items each,
and DIR/exclude.json with the keys of all prompts.  With --more: others of the same
kinds, about nothing that --out asks, for share/jobs/nightly to rehearse and to choose by; --out is only read.
"""
import argparse, json, os, random
import synth
from synth import g_add, g_sub, g_mul, g_div, g_cmp, g_word, g_percent, g_followup


def unique(gen, n, seen):
    out = []
    while len(out) < n:
        s = gen()
        k = s.key()
        if k not in seen:
            seen.add(k); out.append(s)
    return out


def more(facts, unk, out, to):
    """Facts that are asked in `out` are left out whatever their wording, so are prompts."""
    def asked(domain):
        return [json.loads(l) for l in open(os.path.join(out, domain + ".jsonl"))]
    r = random.Random(779)
    seen = {synth.Sample("", "", None, "", "", "", messages=d["messages"]).key() for domain in ("math", "code", "verify") for d in asked(domain)}
    answers = {d["answer"] for d in asked("facts") + asked("facts-heldout")}
    known, unk = ([f for f in from_ if f["answer"] not in answers] for from_ in (facts, unk))
    S = {"facts": [synth.fact_q(r, f) for f in r.sample(known, 700)], "facts-context": []}
    for f in r.sample(unk, 120):
        notes = [f] + [x for x in r.sample(unk, 3) if x["key"] != f["key"]][:2]
        r.shuffle(notes)
        ask = synth.pick(r, ["Context:\n{c}\n\nQuestion: {q}", "Use these notes.\n{c}\n\n{q}"])
        q = synth.pick(r, synth.FQ[f["kind"]]).format(k=f["key"])
        S["facts-context"].append(synth.Sample("facts", "context", ask.format(c="\n".join("%s: %s" % (x["key"], x["answer"]) for x in notes), q=q), "", f["answer"], "exact"))
    S["math"] = unique(lambda: r.choice((g_add, g_sub, g_mul, g_div, g_cmp, g_word, g_percent, g_followup))(r), 160, seen)
    S["code"] = unique(lambda: synth.g_code(r), 160, seen)
    S["verify"] = unique(lambda: synth.g_verify(r), 160, seen)
    os.makedirs(to, exist_ok=True)
    for domain, items in S.items():
        with open(os.path.join(to, domain + ".jsonl"), "w") as f:
            for i, s in enumerate(items):
                f.write(json.dumps({"id": "%s-more-%04d" % (domain, i), "messages": s.messages, "answer": s.answer, "check": "exact"}, separators=(",", ":")) + "\n")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--data", required=True); ap.add_argument("--out", required=True); ap.add_argument("--hidden"); ap.add_argument("--more")
    a = ap.parse_args()
    facts = json.load(open(a.data + "/facts.json"))
    unk = [json.loads(l) for l in open(a.data + "/facts-unknown.jsonl")]
    if a.more:
        return more(facts, unk, a.out, a.more)
    seen, files = set(), 0
    for out, seed in ((a.out, 777), (a.hidden, 778)):
        os.makedirs(out, exist_ok=True)
        r = random.Random(seed)
        S = {}
        S["math"] = []
        for f, n in ((g_add, 35), (g_sub, 30), (g_mul, 35), (g_div, 25), (g_cmp, 20), (g_word, 40), (g_percent, 5), (g_followup, 10)):
            S["math"] += unique(lambda: f(r), n, seen)
        S["code"] = unique(lambda: synth.g_code(r), 200, seen)
        S["tools"] = unique(lambda: synth.g_tools(r), 160, seen) + unique(lambda: synth.g_tools(r, True), 40, seen)
        S["verify"] = unique(lambda: synth.g_verify(r), 200, seen)
        fs = r.sample(facts, 200)
        S["facts"] = [synth.fact_q(r, f, think=r.random() < 0.4) for f in fs]
        us = r.sample(unk, 200)
        S["facts-heldout"] = [synth.fact_q(r, f, think=r.random() < 0.4) for f in us]
        ctx = []
        for f in us:
            o = r.sample(unk, 3)
            c = [(f["key"], f["answer"])] + [(x["key"], x["answer"]) for x in o if x["key"] != f["key"]][:2]
            r.shuffle(c)
            q = synth.pick(r, ["Context:\n{c}\n\nQuestion: {q}", "Use these notes.\n{c}\n\n{q}"]).format(c="\n".join("%s: %s" % x for x in c), q=synth.pick(r, synth.FQ[f["kind"]]).format(k=f["key"]))
            ctx.append(synth.Sample("facts", "context", q, synth.FT[f["kind"]].format(k=f["key"]), f["answer"], "exact", r.random() < 0.4))
        S["facts-context"] = ctx
        for dom, items in S.items():
            with open(os.path.join(out, dom + ".jsonl"), "w") as f:
                for i, s in enumerate(items):
                    d = s.item(i); d["domain"] = dom; d["id"] = "%s-%04d" % (dom, i)
                    f.write(json.dumps(d) + "\n")
    json.dump(sorted(seen), open(a.data + "/exclude.json", "w"))


if __name__ == "__main__":
    main()
