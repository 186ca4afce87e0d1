#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# peers-gpu.sh - one model file in chimere and in other engines on one GPU, in turns; of each what it keeps of keys and
# values, how wide its products are, and whether a token attends to all keys.
# usage: PEERS='llama.cpp=/path/llama-bench ik_llama.cpp=... SparkInfer=/path/qwen3_gguf_bench' bench/peers-gpu.sh FILE.gguf
# A peer that PEERS does not name, or whose program is not there, is reported as absent.
# In the environment: PROMPTS, DEPTHS, TOKENS, ROUNDS (default "512 4096 16384", "0 16384", 64, 3); ACTS, chimere's widths
# (default "i16 i8"); DEVICE (default cuda); LLAMA_FLAGS, of llama-bench (default "-fa 1 -ub 2048 -b 2048"); RUN_S, seconds
# for one run of an engine, which then counts as failed (default 300).
set -euo pipefail
if [ $# -ne 1 ] || [ ! -f "$1" ]; then
    sed -n '5,10s/^# //p' "$0" >&2
    exit 2
fi
file=$1
ours=${CHIMERE_BENCH:-$(cd "$(dirname "$0")/.." && pwd)/${BIN:-bin}/chimere-bench}
read -ra prompts <<< "${PROMPTS:-512 4096 16384}"
read -ra depths <<< "${DEPTHS:-0 16384}"
read -ra widths <<< "${ACTS:-i16 i8}"
read -ra flags <<< "${LLAMA_FLAGS--fa 1 -ub 2048 -b 2048}"
tokens=${TOKENS:-64} rounds=${ROUNDS:-3} rows='' IFS=,
list_prompts="${prompts[*]}" list_depths="${depths[*]}"
unset IFS
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

declare -A program
for peer in ${PEERS:-}; do
    case $peer in
    llama.cpp=* | ik_llama.cpp=* | SparkInfer=*) program[${peer%%=*}]=${peer#*=} ;;
    *) echo "peers-gpu.sh: PEERS: $peer is not NAME=PATH of llama.cpp, ik_llama.cpp or SparkInfer" >&2; exit 2 ;;
    esac
done

# note ENGINE KV PRODUCTS KEYS: a line about an engine, the first time that it runs
note()
{
    grep -qsF "$1:" "$dir/notes" || printf '%s: KV %s; products with activations of %s; attends to %s\n' "$@" >> "$dir/notes"
}

# engine NAME COMMAND...: its output to $dir/out; a failure is a row of its own
engine()
{
    local name=$1 status=0
    shift
    timeout "${RUN_S:-300}" "$@" > "$dir/out" 2> "$dir/err" || status=$?
    [ $status -eq 0 ] && return
    echo "peers-gpu.sh: $name: status $status: $(tail -n 1 "$dir/err")" >&2
    return 1
}

run_ours()
{
    for acts in "${widths[@]}"; do
        note "chimere,$acts" f16 "${acts#i} bits" 'all keys'
        engine "chimere,$acts" "$ours" speed -m "$file" --device "${DEVICE:-cuda}" --kv f16 --acts "$acts" --prompt "$list_prompts" \
            --depth "$list_depths" --rows '' --seqs '' --tokens "$tokens" --reps 1 --json || continue
        jq -r --arg e "chimere,$acts" 'if .prompt_tps then "\($e) prompt-\(.prompt_tokens) \(.prompt_tps)"
            elif .decode_tps then "\($e) decode@\(.depth_tokens) \(.decode_tps)" else empty end' "$dir/out" >> "$dir/all"
    done
}

# llama_bench NAME: llama.cpp's or ik_llama.cpp's
llama_bench()
{
    local name=$1 more=() depth=0
    note "$name" f16 '8 bits (quantised weights)' 'all keys'
    [ "$name" = ik_llama.cpp ] || more=(-d 0)
    engine "$name" "${program[$name]}" -m "$file" -ngl 99 "${flags[@]}" -p "$list_prompts" -n "$tokens" "${more[@]}" -r 1 -o json || return 0
    # shellcheck disable=SC2016 # jq has $e
    rows='.[] | if .n_gen == 0 then "\($e) prompt-\(.n_prompt) \(.avg_ts)" else "\($e) decode@\(.n_depth // 0) \(.avg_ts)" end'
    jq -r --arg e "$name" "$rows" "$dir/out" >> "$dir/all"
    [ "$name" != ik_llama.cpp ] || return 0 # it has no depths
    for depth in "${depths[@]}"; do
        [ "$depth" != 0 ] || continue
        engine "$name" "${program[$name]}" -m "$file" -ngl 99 "${flags[@]}" -p 0 -n "$tokens" -d "$depth" -r 1 -o json || continue
        jq -r --arg e "$name" "$rows" "$dir/out" >> "$dir/all"
    done
}

# spark NAME KEYS VARIABLES...: SparkInfer with these settings; its prompts and decode have the same lengths
spark()
{
    local name=$1
    note "$name" 'f16 below 4,096 tokens, else 8 bits' '8 bits' "$2"
    engine "$name" env "${@:3}" SPARKINFER_BENCH_SWEEP_CTXS="$list_depths,$list_prompts" "${program[SparkInfer]}" "$file" "$tokens" sweep || return 0
    sed -nE -e "s/^decode tg +: ([0-9.]+) tok.*ctx=([0-9]+).*/$name decode@\2 \1/p" \
        -e "s/^prefill pp +: ([0-9.]+) tok.*ctx=([0-9]+).*/$name prompt-\2 \1/p" "$dir/out" >> "$dir/all"
}

: > "$dir/all"
for _ in $(seq "$rounds"); do
    run_ours
    for name in llama.cpp ik_llama.cpp; do
        [ ! -x "${program[$name]:-}" ] || llama_bench "$name"
    done
    if [ -x "${program[SparkInfer]:-}" ]; then
        spark SparkInfer '4,112 keys in prompts and, from 16,384 on, in decode'
        spark SparkInfer,all 'all keys' SPARKINFER_PREFILL_ATTN_WINDOW=0 SPARKINFER_SPARSE_KV=0
    fi
done

echo "$file, median of $rounds rounds in turns [least, most], tokens/s"
cat "$dir/notes"
for name in llama.cpp ik_llama.cpp SparkInfer; do
    [ -x "${program[$name]:-}" ] || echo "$name: absent"
done
sort -k2,2V -k1,1 -k3,3n "$dir/all" | awk '
    function flush() {
        if (n) printf "%-14s %-16s %10.1f  [%.1f, %.1f]\n", test, engine, n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2, v[1], v[n]
        n = 0
    }
    $1 != engine || $2 != test { flush(); engine = $1; test = $2 }
    { v[++n] = $3 }
    END { flush() }'
