# SPDX-License-Identifier: Apache-2.0
# pass_at.py make N SEED              N fresh items of code of the training generator, to answer directly, on standard output
# pass_at.py SET.jsonl ANSWERS SEED...  ANSWERS answers to each item at temperature TEMP (default 1) with each seed: right
# ones in the mean of k (pass@k, the unbiased estimate) and by majority, with 95 % intervals over the items (a thousand
# bootstrap samples). In the environment: BIN (default bin), TEMP.
import collections
import json
import math
import os
import random
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BIN = os.environ.get("BIN", os.path.join(ROOT, "bin"))


def make(n, seed):
    sys.path.insert(0, os.path.join(ROOT, "share/models/train"))
    import synth

    r, seen = random.Random(seed), {json.loads(line)["messages"][0]["content"]
                                    for line in open(os.path.join(ROOT, "share/eval/code.jsonl"))}
    while n > 0:
        s = synth.g_code(r)
        if s.messages[0]["content"] in seen:
            continue
        seen.add(s.messages[0]["content"])
        n -= 1
        print(json.dumps({"id": f"code-{seed}-{n}", "messages": s.messages, "enable_thinking": False,
                          "answer": s.answer, "check": "exact"}))


def ask(items, answers, seed):
    lines = [json.dumps({"custom_id": o["id"], "method": "POST", "url": "/v1/chat/completions", "body": {
        "messages": o["messages"], "chat_template_kwargs": {"enable_thinking": False}, "n": answers, "seed": seed,
        "temperature": float(os.environ.get("TEMP", "1")), "max_tokens": 100}}) for o in items]
    at = f"/tmp/pass_at.{os.getpid()}"
    with open(at + ".in", "w") as f:
        f.write("\n".join(lines) + "\n")
    subprocess.run([os.path.join(BIN, "chimere-serve-stdio"), "--batch", at + ".in", "-o", at + ".out", "--parallel", "16", "-q"],
                   check=True)
    said = {}
    for line in open(at + ".out"):
        o = json.loads(line)
        said[o["custom_id"]] = [c["message"]["content"].strip() for c in o["response"]["body"]["choices"]]
    os.remove(at + ".in")
    os.remove(at + ".out")
    return said


def interval(values):
    r = random.Random(1)
    means = sorted(sum(r.choices(values, k=len(values))) / len(values) for _ in range(1000))
    return f"{100 * sum(values) / len(values):.1f} % [{100 * means[25]:.1f}, {100 * means[974]:.1f}]"


def main():
    if sys.argv[1] == "make":
        return make(int(sys.argv[2]), int(sys.argv[3]))
    items = [json.loads(line) for line in open(sys.argv[1])]
    n = int(sys.argv[2])
    ks = [k for k in (1, 4, 16, 64) if k <= n]
    rows = collections.defaultdict(lambda: [0.0] * len(items))
    for seed in map(int, sys.argv[3:]):
        said = ask(items, n, seed)
        for i, o in enumerate(items):
            right = [a == o["answer"].strip() for a in said[o["id"]]]
            for k in ks:
                rows[f"pass@{k}"][i] += (1 - math.comb(n - sum(right), k) / math.comb(n, k)) / len(sys.argv[3:])
                best = collections.Counter(said[o["id"]][:k]).most_common(1)[0][0]  # of equals the first
                rows[f"majority of {k}"][i] += (best == o["answer"].strip()) / len(sys.argv[3:])
    for name, values in rows.items():
        print(f"| {name} | {interval(values)} |")


main()
