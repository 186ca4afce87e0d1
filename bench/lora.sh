#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# lora.sh [RANK] [ROUNDS] - what an adapter costs: CPU time of a token with and without, one thread, in turns.
# On the 35B shape of Qwen3.6 cut to 8 layers, 32 experts and a vocabulary of 32,768 tokens (0.7 GB), and on the embedded
# model; an adapter for all matrices of attention, delta nets and shared experts, and one for the experts, too.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
bin=${BIN:-$root/bin} rank=${1:-16} rounds=${2:-5}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
echo '[1, 2, 3, 4]' > ids
names() # MODEL REGEX: its tensors of the main stack with their sizes
{
    "$bin/chimere-run" -m "$1" --inspect --json | jq -r --arg r "$2" \
        '.tensors[] | select((.name | test($r)) and (.name | test("inp|norm|blk.8") | not)) | [.name] + (.ne | map(tostring)) | join(":")'
}
seconds() # MODEL N ADAPTER: of the user's time for N tokens
{
    python3 -c 'import resource, subprocess, sys
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime)' "$bin/chimere-run" -m "$1" --tokens ids -n "$2" -q -t 1 \
        --ignore-eos ${3:+--lora "$3"}
}
token() # MODEL N ADAPTER: milliseconds
{
    awk "BEGIN { printf \"%.3f\n\", ($(seconds "$@") - $(seconds "$1" 1 "${3:-}")) * 1000 / ($2 - 1) }"
}
"$bin/chimere-bench" synth --shape qwen3.6-35b-a3b,layers=8,experts=32,vocab=32768 --mix q4_k_m --write shape.gguf -q > /dev/null
ln -s "$root/share/models/chimere-nano-q5_k_m.gguf" embedded.gguf
for m in shape embedded; do
    dense=$(names $m.gguf 'attn_|ssm_out|_shexp')
    experts=$(names $m.gguf '_exps')
    # shellcheck disable=SC2086
    python3 "$root/tests/cli/make_lora.py" dense.gguf qwen35moe 0.001 "$rank" 1 $dense
    # shellcheck disable=SC2086
    python3 "$root/tests/cli/make_lora.py" all.gguf qwen35moe 0.001 "$rank" 1 $dense $experts
    n=$([ $m = shape ] && echo 40 || echo 150)
    for i in $(seq "$rounds"); do
        printf '%s, round %d: none %s ms, dense %s ms, with experts %s ms\n' $m "$i" "$(token $m.gguf "$n")" \
            "$(token $m.gguf "$n" dense.gguf)" "$(token $m.gguf "$n" all.gguf)"
    done
done
