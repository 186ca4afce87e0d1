#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# learn-gpu.sh - adapters with default options for sets that decided no option: what is learnt and what is lost, as a table
# of tabs on standard output: training, strength (- where nothing was published), seconds, steps, set, right answers, items.
# usage: bench/learn-gpu.sh sets DIR    makes the sets with bench/learn_sets.py; `packages` needs apt's lists
#        bench/learn-gpu.sh DIR OUT     trains and tests; adapters, events and messages go to OUT
# In the environment: SEEDS (4 5 6), FACTS (packages devices), SIZES (20 100 350), RULES (commit recipe units digits; of the
# first seed, 100 items), FORGET (facts math tools code verify facts-context); TIMES (20=66 100=120 350=200, seconds by the
# number of items), CLOCK (--time; --cpu-time: TIMES are seconds of processor time), GPUS (0 1 2 3), PER (2 at a time on each),
# DEVICE (cuda), EVAL_DEVICE (DEVICE), LIMIT (seconds until the last test, 490), THREADS (8), OPTIONS of chimere-draft-train, EVAL
# of chimere-bench eval.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd) bin=${BIN:-}
bin=${bin:-$root/bin}
read -ra seeds <<< "${SEEDS:-4 5 6}"

make_sets() {
    make() { # kind items seed
        python3 "$root/bench/learn_sets.py" "$@" "$dir/$1-$2-$3"
    }
    for seed in "${seeds[@]}"; do
        for kind in ${FACTS:-packages devices}; do
            for n in ${SIZES:-20 100 350}; do
                make "$kind" "$n" "$seed"
                python3 "$root/bench/learn_sets.py" "$kind" "$n" "$seed" "$dir/new" --new
                for way in off on; do mv "$dir/new/test-$way.jsonl" "$dir/$kind-$n-$seed/new-$way.jsonl"; done
            done
        done
    done
    for kind in ${RULES-commit recipe units digits}; do make "$kind" 100 "${seeds[0]}"; done
    rm -rf "$dir/new"
}

# name gpu
# shellcheck disable=SC2086,SC2059
train_and_test() {
    local name=$1 n=${1#*-} status=0 time=150 pair sets a=$out/$1
    export CUDA_VISIBLE_DEVICES=$2
    n=${n%-*}
    for pair in ${TIMES:-20=66 100=120 350=200}; do [ "${pair%=*}" != "$n" ] || time=${pair#*=}; done
    [ $((SECONDS + time)) -le "${LIMIT:-490}" ] || { echo "$name: no time is left" >&2 && return; }
    "$bin/chimere-draft-train" lora -o "$a.gguf" --device "$device" -t "${THREADS:-8}" --seed "${name##*-}" "${CLOCK:---time}" "${time}s" \
        --held-out "$dir/$name/test-off.jsonl" --jsonl "$a.events" -v ${OPTIONS:-} "$dir/$name/train.jsonl" > "$a.log" 2>&1 || status=$?
    if [ -f "$a.gguf" ]; then
        sets=$(printf "$root/share/eval/%s.jsonl " ${FORGET:-facts math tools code verify facts-context})
        (cd "$dir/$name" && timeout $((${LIMIT:-490} + 50 - SECONDS)) "$bin/chimere-bench" eval --device "${EVAL_DEVICE:-$device}" -t "${THREADS:-8}" \
            --lora "$a.gguf" --json ${EVAL:-} ./*-off.jsonl ./*-on.jsonl $sets) \
            > "$a.eval" 2>> "$a.log" || echo "$name: the test ended with $?" >&2
    fi
    python3 - "$name" "$status" "$a" >> "$out/rows.tsv" << 'END'
import json, os, sys

name, status, at = sys.argv[1:]
events = list(map(json.loads, open(at + ".events"))) if os.path.exists(at + ".events") else []
end = [o for o in events if o["type"] == "end"]
took, steps = (round(end[0]["seconds"]), end[0]["steps"]) if end else ("-", "-")
strength = "%.3g" % end[0]["strength"] if end and end[0]["published"] else "-"
rows = [("published" if strength != "-" else "status " + status, "", "")]
for o in events:
    if o["type"] == "test" and strength == "-":
        rows.append(("refused, " + o["set"], o["exact"], o["items"]))
if os.path.exists(at + ".eval"):
    rows += [(o["set"], o["n_right"], o["n_items"]) for o in map(json.loads, open(at + ".eval")) if o["type"] == "eval"]
for row in rows:
    print(name, strength, took, steps, *row, sep="\t")
END
}

# A GPU takes the next name that no other has.
work() {
    local name
    while read -r name; do
        if mkdir "$out/$name.taken" 2> /dev/null; then train_and_test "$name" "$1"; fi
    done < "$out/names"
}

[ $# -eq 2 ] || { sed -n '3,12s/^# //p' "$0" >&2 && exit 2; }
if [ "$1" = sets ]; then
    dir=$2
    make_sets
    exit
fi
mkdir -p "$2"
dir=$(cd "$1" && pwd) out=$(cd "$2" && pwd) device=${DEVICE:-cuda}
for f in "$dir"/*/train.jsonl; do basename "$(dirname "$f")"; done | sort -t- -k2,2nr > "$out/names" # the longest first
: > "$out/rows.tsv"
for ((k = 0; k < ${PER:-2}; k++)); do
    for gpu in ${GPUS:-0 1 2 3}; do work "$gpu" & done
done
wait
printf 'training\tstrength\tseconds\tsteps\tset\tright\titems\n'
sort "$out/rows.tsv"
rm -rf "$out"/*.taken
