#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Below which mean log-probability of its answer a model looks up texts: picked on one half, reported on the other, three
# times, each with its own order of items and devices; then asked in earnest about devices of a fourth seed (bench/retrieval.md).
#   bash bench/retrieve.sh DIRECTORY
set -euo pipefail

dir=${1:?a directory}
here=$(cd "$(dirname "$0")/.." && pwd)
PATH=${BIN:-$here/bin}:$PATH
set_of() # SEED: facts that are taught, facts and devices that are not, in DIRECTORY/SEED, and an index of the last two
{
    mkdir -p "$dir/$1"
    python3 "$here/bench/learn_sets.py" devices 60 "$1" "$dir/$1" > "$dir/$1/log"
    apt-cache dumpavail | python3 -c '
import json, random, re, sys
shipped, out, seed = sys.argv[1:]
r = random.Random(int(seed))
sets = {n: [json.loads(l) for l in open("%s/%s.jsonl" % (shipped, n))] for n in ("facts", "facts-heldout")}
sets["devices"] = [json.loads(l) for l in open(out + "/test-off.jsonl")][::2]
notes = {l for i in map(json.loads, open(shipped + "/facts-context.jsonl"))
         for l in i["messages"][-1]["content"].split("\n\n")[0].split("\n")[1:]}
for i in map(json.loads, open(out + "/train.jsonl")):
    notes.add(i["prompt"].rstrip("?.").replace(" configured", "").split()[-1] + ": " + i["answer"])
# and short descriptions of packages of Debian, of which some are found for what was taught
apt = re.findall(r"^Package: (.+)\n(?:.+\n)*?Description: (.+)$", sys.stdin.read(), re.M)
notes |= {"%s: %s" % p for p in r.sample(sorted(set(apt)), 20000)}
with open(out + "/notes.txt", "w") as f:
    f.writelines(n + "\n" for n in sorted(notes))
for name, items in sets.items():
    r.shuffle(items)
    with open("%s/%s.jsonl" % (out, name), "w") as f:
        f.writelines(json.dumps(dict(i, enable_thinking=False)) + "\n" for i in items)
' "$here/share/eval" "$dir/$1" "$1"
    chimere-engram-build index -q -f --vectors none --lines -o "$dir/$1/notes.index" "$dir/$1/notes.txt"
}

for seed in 1 2 3; do
    set_of "$seed"
    rm -f "$dir/$seed/c.json"
    chimere-bench calibrate --table --examples "$dir/$seed/notes.index" -o "$dir/$seed/c.json" "$dir/$seed"/{facts,facts-heldout,devices}.jsonl
done
set_of 4
for seed in 1 2 3; do
    chimere-bench eval --table --think off --retrieve auto --calibration "$dir/$seed/c.json" --examples "$dir/4/notes.index" "$dir/4/devices.jsonl"
done
