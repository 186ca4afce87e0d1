#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The commands of README's section Pipelines, pasted in their order as in a new checkout, and what each of them answers.
load common

# What the commands of each paragraph write, a pattern a paragraph.
answers=(
    '^60401$'
    '^52237$'
    $'^convert ASCII string to floating-point number\nstop$'
    $'^42\nyes$'
    $'"name": "convert_currency",.*315.*GBP.*EUR.*\nThe answer is 93\\.$'
    '^facts: thickened or coalesced in soft thick lumps$'
    '^52237$'
    '^Mrs\. Okafor$'
    $'^[1-9][0-9]{3}\n.*chimere-nano-q5_k_m\\.gguf +qwen35moe.*\n.*\\.weight\tq6_k\t860160$'
    $'^42\n47$'
    '^$'
    '^ ASCII string to floating-point number$'
    $'^(0\\.9[0-9]*|1(\\.0)?)\n0\\.[0-9]+\n(0\\.9[0-9]+|1(\\.0)?)$'
)

@test "README: every command answers what it promises" {
    local i n
    ln -s "${PROGRAM%/*}" bin
    ln -s "$ROOT/share" share
    cp "$ROOT/README.md" .
    unset CHIMERE_MODEL
    # talk.bats has conversations, which need a terminal
    awk '/^## / { on = $2 == "Pipelines" }
        / -i  / { next }
        on && /^    / { if (!in_block) n++; in_block = 1; print substr($0, 5) > ("block." n); next }
        /[^ ]/ { in_block = 0 }' README.md
    n=$(ls block.* | wc -l)
    [ "$n" -eq ${#answers[@]} ]
    for ((i = 1; i <= n; i++)); do
        try 0 bash -euo pipefail block.$i < /dev/null || { cat block.$i; return 1; }
        [[ $(cat out) =~ ${answers[i - 1]} ]] || { cat block.$i out; return 1; }
    done
    [ -s thoughts.txt ]
    [ "$(jq -r '.response.body.choices[0].message.content' answers.jsonl)" = $'5\n8' ]
}
