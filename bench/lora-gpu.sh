#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# lora-gpu.sh - what an adapter costs on a GPU, as JSON lines (chimere-jsonl(5)) on standard output, and a table of medians
# on standard error: decode, rows, sequences and prompts of the 35B shape of Qwen3.6 without an adapter, with one for all
# matrices of attention and delta nets, with the shared experts', and with all experts', in turns.
# usage: bench/lora-gpu.sh [DEVICE [DIR]]   DIR: the model's and the adapters' files go there (20 and 4 GB)
# In the environment: SHAPE (default qwen3.6-35b-a3b), MIX (q4k), RANK (16), ROUNDS (3), KINDS (none mixers dense all),
# PART_S, seconds for a run (100), OPTIONS of chimere-bench speed.
set -eu
device=${1:-cuda} dir=${2:-} root=$(cd "$(dirname "$0")/.." && pwd)
bin=${BIN:-$root/bin}
[ -n "$dir" ] || { dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT; }
model=$dir/shape.gguf
read -ra options <<< "${OPTIONS:---prompt 512 --depth 0 --rows 1,8 --seqs 1,8 --reps 3 --tokens 64}"
[ -f "$model" ] || "$bin/chimere-bench" synth --shape "${SHAPE:-qwen3.6-35b-a3b}" --mix "${MIX:-q4k}" --write "$model" -q > /dev/null
for kind in ${KINDS:-none mixers dense all}; do
    case $kind in
    none) continue ;;
    mixers) which='blk[.][0-9]+[.](attn_|ssm_out)' ;;
    dense) which='blk[.][0-9]+[.](attn_|ssm_out|.*_shexp)' ;;
    *) which='blk[.][0-9]+[.](attn_|ssm_out|.*_shexp|.*_exps)' ;;
    esac
    "$bin/chimere-run" -m "$model" --inspect --json | jq -r --arg r "$which" \
        '.tensors[] | select((.name | test($r)) and (.name | test("inp|norm") | not)) | [.name] + (.ne | map(tostring)) | join(":")' |
        TYPE=f16 xargs python3 "$root/tests/cli/make_lora.py" "$dir/$kind.gguf" qwen35moe 0.001 "${RANK:-16}" 1
done
for round in $(seq 1 "${ROUNDS:-3}"); do
    for kind in ${KINDS:-none mixers dense all}; do
        timeout --foreground -s INT "${PART_S:-100}" "$bin/chimere-bench" speed -m "$model" --device "$device" --kv f16 --json "${options[@]}" \
            $([ "$kind" = none ] || printf -- '--lora %s' "$dir/$kind.gguf") | jq -c --arg k "$kind" --argjson r "$round" '. + {adapter: $k, round: $r}'
    done
done | tee "$dir/speed.jsonl"
jq -rs '[.[] | select(.case != "load")] | group_by(.case)[] | .[0].case as $c | group_by(.adapter)[] |
    [$c, .[0].adapter, (map(.[.metric]) | sort | .[(length - 1) / 2 | floor]), .[0].metric] | @tsv' "$dir/speed.jsonl" >&2
