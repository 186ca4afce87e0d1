#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# When to think: thresholds from one half of 2,000 questions, areas and the frontier from the other (bench/reason.md).
#   bash bench/calibrate.sh DIRECTORY
# The second 200 questions of math, code and tools are those that build_eval.py made beside the first, and that training
# left out, too. Those of verify are of today's generator, which training was not told of; of the facts there are only the
# first 200.
set -euo pipefail

dir=${1:?a directory}
here=$(cd "$(dirname "$0")/.." && pwd)
model=${MODEL:-$here/share/models/chimere-nano-q5_k_m.gguf}
mkdir -p "$dir"
PYTHONPATH=$here/share/models/train python3 - "$here/share/eval" "$dir" <<'EOF'
import json, random, sys
import synth
from build_eval import unique
from synth import g_add, g_sub, g_mul, g_div, g_cmp, g_word, g_percent, g_followup

shipped, out = sys.argv[1:]
seen = set()
for seed in (777, 778):
    r = random.Random(seed)
    sets = {"math": []}
    for f, n in ((g_add, 35), (g_sub, 30), (g_mul, 35), (g_div, 25), (g_cmp, 20), (g_word, 40), (g_percent, 5),
                 (g_followup, 10)):
        sets["math"] += unique(lambda: f(r), n, seen)
    sets["code"] = unique(lambda: synth.g_code(r), 200, seen)
    sets["tools"] = unique(lambda: synth.g_tools(r), 160, seen) + unique(lambda: synth.g_tools(r, True), 40, seen)
    sets["verify"] = unique(lambda: synth.g_verify(r), 200, seen)
    for name, items in sets.items():
        made = [dict(s.item(i), domain=name, id="%s-%04d" % (name, i)) for i, s in enumerate(items)]
        if seed == 777 and name == "verify":
            continue
        if seed == 777:
            there = [json.loads(line) for line in open("%s/%s.jsonl" % (shipped, name))]
            assert made == there, name + ": these are not the questions of share/eval"
        else:
            with open("%s/%s-2.jsonl" % (out, name), "w") as f:
                f.writelines(json.dumps(m) + "\n" for m in made)
EOF
"$here/bin/chimere-bench" calibrate -m "$model" --classify "${ROUTES:-$here/share/eval/routes.json}" \
    -o "$dir/calibration.json" --table \
    "$here"/share/eval/{math,code,tools,verify,facts,facts-context}.jsonl "$dir"/{math,code,tools,verify}-2.jsonl
