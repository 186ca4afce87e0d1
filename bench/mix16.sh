#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# mix16.sh - makes share/recipes/card16.recipe: the mix of the 35B shape for a card of 16 GB and 32K tokens of context.
# usage: bench/mix16.sh LOSSES.jsonl > card16.recipe
# LOSSES.jsonl: chimere-quantize --measure LOSSES.jsonl chimere-nano-bf16.gguf, the embedded model's losses, which are
# taken over by role. Its weights are not needed: the shape's file has holes.
# In the environment: SHAPE, and the budgets VRAM, CTX and TOKEN_BYTES. What is predicted goes to standard error.
set -eu
bin=$(cd "$(dirname "$0")/.." && pwd)/${BIN:-bin}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$bin/chimere-bench" synth --shape "${SHAPE:-qwen3.6-35b-a3b}" --mix bf16 --holes --write "$dir/holes.gguf" -q > /dev/null
# The embedding costs a card nothing: its rows are read from the host.
"$bin/chimere-quantize" -q --measure "$1" --by-role --tensor '^token_embd\.weight=q5_k' --budget "vram=${VRAM:-15500M},ctx=${CTX:-32k}" \
    --budget "token-bytes=${TOKEN_BYTES:-1500M}" --save-recipe "$dir/all" "$dir/holes.gguf"
grep '^# [pb]' "$dir/all" >&2
# A rule for each tensor becomes one for each role and type: the most frequent type of a role is for all other layers.
cat << 'EOF'
# SPDX-License-Identifier: Apache-2.0
# card16.recipe - for a card of 16 GB: the 35B shape with 32K tokens of context, few bytes a token
# Made by bench/mix16.sh from what each role loses in the embedded model, a small one of the family; how much it
# loses in a model of that size was not measured. bench/quant.md has its bytes and its bounds.
default iq4_xs
EOF
awk '
    /^#/ { next }
    !/ = / { print; next }
    {
        name = $1
        layer = -1
        gsub(/^\^|\$$/, "", name)
        if (match(name, /^blk\\\.[0-9]+\\\./)) {
            layer = substr(name, 6, RLENGTH - 7)
            name = substr(name, RLENGTH + 1)
        }
        if (!(name in seen)) {
            seen[name] = 1
            role[++roles] = name
        }
        key = name SUBSEP $3
        n[key]++
        list[key] = list[key] (list[key] == "" ? "" : "|") layer
        if (!(key in known)) {
            known[key] = 1
            types[name] = types[name] " " $3
        }
        where[name] = layer
    }
    END {
        for (i = 1; i <= roles; i++) {
            r = role[i]
            m = split(types[r], t, " ")
            most = 1
            for (k = 2; k <= m; k++)
                if (n[r SUBSEP t[k]] > n[r SUBSEP t[most]])
                    most = k
            for (k = 1; k <= m; k++)
                if (k != most)
                    printf "^blk\\.(%s)\\.%s = %s\n", list[r SUBSEP t[k]], r, t[k]
            printf "^%s%s = %s\n", where[r] < 0 ? "" : "blk\\.\\d+\\.", r, t[most]
        }
    }' "$dir/all"
