#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# chimere-draft-train mtp: the block of the embedded model learns some facts that the model knows; what it refuses.
load common

# Sixteen words, each asked in two ways and tested in a third.
setup_words()
{
    local w
    for w in asset attacker retailer inflow rajah overt warehousing bimolecular shoelace roughneck entice clotted fumes \
        reassurance strenuously flowing; do
        printf '{"messages": [{"role": "user", "content": "%s %s%s"}], "enable_thinking": false}\n' \
            'What is the meaning of' $w '?' Define $w . >&3
        printf '{"messages": [{"role": "user", "content": "Tell me the meaning of the word %s."}], "enable_thinking": false}\n' $w
    done 3> p.jsonl > t.jsonl
}

small=(--held-out t.jsonl --predict 32 --ctx 96 --memory 8M --threads 2)

# bats test_tags=slow
@test "mtp: the block learns; chimere-run drafts with the adapter, to the same bytes; an old one that is as good stays" {
    local status=0
    setup_words
    chimere-draft-train mtp -o a.gguf "${small[@]}" --batch 4 --time 1h --steps 50 --rate 0.005 --jsonl e.jsonl p.jsonl \
        > table 2> err || status=$?
    [ $status -eq 0 ] || { cat err table; false; }
    grep -q '^all ' table
    jq -se '(.[-1] | .published and .p < 0.05) and
            (map(select(.class == "all"))[0] | .tokens_per_step > .tokens_per_step_before)' e.jsonl
    [ "$(echo a.gguf*)" = a.gguf ]
    chimere-run -n 24 -p 'Define rajah.' > plain
    chimere-run -n 24 --draft a.gguf -p 'Define rajah.' | cmp - plain
    chimere-run -n 24 --draft a.gguf --json -p 'Define rajah.' | jq -e '.drafts.drafters | map(.name) == ["a.gguf"]'
    # the programs guess with it: of as many steps, more than the block alone
    chimere-bench speculate --fixed --draft mtp --draft a.gguf --draft-max 1 -n 12 --reps 1 --json t.jsonl > guesses
    jq -se 'map(select(.draft != "off")) | length == 2 and .[0].draft == "mtp" and
            .[1].kept / .[1].drafted > .[0].kept / .[0].drafted + 0.1' guesses
    fails 2 'named before mtp' chimere-run --draft mtp --draft a.gguf -p a
    fails 3 '--draft drafts with it' chimere-run --lora a.gguf -p a
    cp a.gguf was
    try 4 chimere-draft-train mtp -o a.gguf "${small[@]}" --steps 1 --rate 1e-12 p.jsonl
    cmp a.gguf was
    fails 2 'needs --scratch' chimere-draft-train mtp -o a.gguf --rank 4 p.jsonl
    fails 3 'file of --out: a.gguf: an adapter of blk.' chimere-draft-train lora -o a.gguf p.jsonl
    grep -q 'which is of the multi-token-prediction block, not of the model$' err
}

@test "mtp: steps that change no guess end early and leave no file; --steps takes them all" {
    setup_words
    tail -n 10 t.jsonl > ten.jsonl
    try 4 chimere-draft-train mtp -o a.gguf "${small[@]}" --held-out ten.jsonl --batch 1 --time 1h --rate 1e-12 --jsonl e.jsonl p.jsonl
    grep -qE 'stopped after 40 steps: (1\.[0-9]+) tokens per step on [0-9]+ texts, \1 before, a gain of at most 0\.0 %' err
    jq -se '(map(select(.type == "early"))[0] | .step == 40 and .texts >= 10 and .gain_most == 0 and .stopped) and
            (.[-1] | .type == "end" and .published == false and .steps == 40) and (map(select(.type == "begin")) == [])' e.jsonl
    [ "$(echo a.gguf*)" = 'a.gguf*' ]
    try 4 chimere-draft-train mtp -o a.gguf "${small[@]}" --batch 1 --time 1h --steps 1 --rate 1e-12 --jsonl all.jsonl p.jsonl
    jq -se '(map(select(.type == "early")) == []) and .[-1].steps == 1' all.jsonl
}

@test "mtp: what it refuses; what was there stays" {
    setup_words
    fails 3 'no multi-token-prediction block' chimere-draft-train mtp -m "$TINY" -o a.gguf p.jsonl
    fails 2 'targets' chimere-draft-train mtp -o a.gguf --targets attention p.jsonl
    cp p.jsonl mine.jsonl
    fails 3 'cannot replace' chimere-draft-train mtp -o mine.jsonl p.jsonl
    cmp p.jsonl mine.jsonl
    python3 "$ROOT/tests/cli/make_lora.py" model.gguf qwen35moe 4 2 1 blk.3.attn_output.weight:256:256
    fails 3 'file of --out: model.gguf: an adapter of blk.3.attn_output.weight, which is of the model, not' \
        chimere-draft-train mtp -o model.gguf p.jsonl
    [ ! -e a.gguf ]
}
