#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shapes.sh [ROUNDS] [SHAPE...] - decoding of shapes beside that of the 35B shape: bytes that a token reads for a second of
# the processor's time, one thread, in turns. Shapes are cut to 64 experts and a vocabulary of 32,768 tokens.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
bin=${BIN:-$root/bin} rounds=${1:-3} n=${N:-40}
shift || true
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
echo '[1, 2, 3, 4]' > ids
cut=experts=64,vocab=32768
shapes=("qwen3.6-35b-a3b,layers=8,$cut")
for s in "${@:-ling-3.0-tiny,layers=12}"; do
    shapes+=("$s,$cut")
done
seconds() # MODEL N: of the user's time for N tokens
{
    python3 -c 'import resource, subprocess, sys
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime)' "$bin/chimere-run" -m "$1" --tokens ids -n "$2" -q -t 1 \
        --ignore-eos
}
for i in "${!shapes[@]}"; do
    "$bin/chimere-bench" synth --shape "${shapes[i]}" --mix q4k --write "$i.gguf" -q |
        jq -r '.step_bytes' > "$i.bytes"
done
for r in $(seq "$rounds"); do
    for i in "${!shapes[@]}"; do
        awk -v a="$(seconds "$i.gguf" "$n")" -v b="$(seconds "$i.gguf" 1)" -v bytes="$(cat "$i.bytes")" -v n="$n" -v r="$r" \
            -v s="${shapes[i]}" 'BEGIN { t = (a - b) / (n - 1)
            printf "round %d: %-46s %6.2f ms a token, %5.1f MB, %.2f GB/s\n", r, s, t * 1e3, bytes / 1e6, bytes / t / 1e9 }'
    done
done
