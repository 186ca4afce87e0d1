#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# rivals.sh - the same model file in chimere, llama.cpp and ik_llama.cpp, in turns, side by side.
# usage: rivals.sh [-t THREADS] [-p PROMPT] [-d DEPTHS] [-n TOKENS] [-r ROUNDS] FILE.gguf
# LLAMA_BENCH, IK_LLAMA_BENCH and CHIMERE_BENCH name the programs; a rival that is not there is left out.
# LLAMA_FLAGS, IK_LLAMA_FLAGS and CHIMERE_FLAGS are added to each one's own. Depths other than 0 are not asked of ik_llama.cpp.
# CHIMERE_ACTS ("i16 i8"): each of these in turn; the rivals round activations to 8 bits. Default: i16.
set -euo pipefail
threads=$(nproc) prompt=512 depths=0 tokens=32 rounds=3
while getopts t:p:d:n:r: o; do
    case $o in
    t) threads=$OPTARG ;; p) prompt=$OPTARG ;; d) depths=$OPTARG ;; n) tokens=$OPTARG ;; r) rounds=$OPTARG ;;
    *) sed -n '3,7s/^# //p' "$0" >&2; exit 2 ;;
    esac
done
shift $((OPTIND - 1))
[ $# -eq 1 ] || { sed -n '3,7s/^# //p' "$0" >&2; exit 2; }
file=$1
here=$(cd "$(dirname "$0")/.." && pwd)
ours=${CHIMERE_BENCH:-$(command -v chimere-bench || echo "$here/bin/chimere-bench")}
llama=${LLAMA_BENCH:-$(command -v llama-bench || true)}
ik=${IK_LLAMA_BENCH:-}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# Lines "ENGINE TEST TOKENS_PER_SECOND", one for each round.
for _ in $(seq "$rounds"); do
    for acts in ${CHIMERE_ACTS:-i16}; do
        # shellcheck disable=SC2086
        "$ours" speed -m "$file" --threads "$threads" --prompt "$prompt" --depth "$depths" --rows '' --seqs '' \
            --tokens "$tokens" --reps 1 --kv f16 --acts "$acts" ${CHIMERE_FLAGS:-} |
            jq -r --arg a "$acts" 'if .prompt_tps then "chimere,\($a) prompt-\(.prompt_tokens) \(.prompt_tps)"
                elif .decode_tps then "chimere,\($a) decode@\(.depth_tokens) \(.decode_tps)" else empty end' >> "$dir/all"
    done
    if [ -n "$llama" ]; then
        # shellcheck disable=SC2086
        "$llama" -m "$file" -t "$threads" -p "$prompt" -n "$tokens" -d "$depths" -r 1 ${LLAMA_FLAGS:-} -o json 2> /dev/null |
            jq -r '.[] | if .n_gen == 0 then (if .n_depth == 0 then "llama.cpp prompt-\(.n_prompt) \(.avg_ts)" else empty end)
                else "llama.cpp decode@\(.n_depth) \(.avg_ts)" end' >> "$dir/all"
    fi
    if [ -n "$ik" ]; then
        # shellcheck disable=SC2086
        "$ik" -m "$file" -t "$threads" -p "$prompt" -n "$tokens" -r 1 ${IK_LLAMA_FLAGS:-} -o json 2> /dev/null |
            jq -r '.[] | if .n_gen == 0 then "ik_llama prompt-\(.n_prompt) \(.avg_ts)"
                else "ik_llama decode@0 \(.avg_ts)" end' >> "$dir/all"
    fi
done
[ -n "$llama$ik" ] || echo "llama-bench is not installed: set LLAMA_BENCH" >&2
echo "$file, $threads threads, median of $rounds rounds [least, most], tokens/s"
sort -k2,2 -k1,1 -k3,3n "$dir/all" | awk '
    function flush() {
        if (n) printf "%-14s %-11s %10.2f  [%.2f, %.2f]\n", test, engine, n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2, v[1], v[n]
        n = 0
    }
    $1 != engine || $2 != test { flush(); engine = $1; test = $2 }
    { v[++n] = $3 }
    END { flush() }'
