#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# experts.bats - --experts: fewer routed experts for each token than the model was trained with, 4 in the embedded one.
# tests/unit/run_test.c has the values: those of a model whose file has the number.
load common

ASK='What is 347 + 58?'

logits() # FILE OPTION...
{
    chimere-run --raw -p 'The kernel of a system' -n 0 --logits "$1" "${@:2}"
}

@test "as many as trained change nothing, fewer do, more are refused" {
    logits want
    logits all --experts 4
    cmp want all
    for k in 1 2 3; do
        logits k$k --experts $k
        no cmp -s want k$k
        logits again --experts $k --chunk 2 -t 1
        cmp k$k again
    done
    no cmp -s k1 k2
    for program in 'run -p hi' serve-stdio 'bench ppl'; do
        # shellcheck disable=SC2086
        fails 2 '--experts 5: the model was trained with 4 for each token, and more make it worse' chimere-$program --experts 5
        for bad in 0 -1 65537 99999999999999999999 x ''; do
            # shellcheck disable=SC2086
            fails 2 '--experts' chimere-$program --experts "$bad"
        done
    done
    CHIMERE_OPTS='--experts 7' fails 2 '--experts is from CHIMERE_OPTS' chimere-run -p hi
    fails 2 '--override-kv: use --experts N' chimere-run --override-kv qwen35moe.expert_used_count=int:2 -p hi
}

@test "answers side by side are those alone, with drafts and without" {
    try 0 chimere-run --json --experts 2 -p "$ASK"
    jq -c '[.reasoning, .text]' out > want
    for draft in mtp ngram; do
        try 0 chimere-run --json --experts 2 -p "$ASK" --draft $draft
        jq -c '[.reasoning, .text]' out | cmp - want
    done
    for ask in "$ASK" 'What is 12 * 34?' 'Who are you?' "$ASK"; do
        jq -nc --arg ask "$ask" '{id: 1, method: "chat/completions", body: {temperature: 0, messages: [{role: "user", content: $ask}]}}'
    done | jq -c --slurp 'to_entries[] | .value + {id: .key}' | chimere-serve-stdio --experts 2 --parallel 4 --draft mtp > served
    jq -c 'select(.id == 0 or .id == 3).body.choices[0].message | [.reasoning_content, .content]' served | uniq | cmp - want
}

@test "what was computed with another number is not used" {
    try 0 chimere-run -p Hi --session s --experts 2
    fails 3 "a session of the model 'chimere-nano-q5_k_m.gguf, 2 experts for each token'" chimere-run -p more --session s
    fails 3 "not of 'chimere-nano-q5_k_m.gguf, 1 expert for each token'" chimere-run -p more --session s --experts 1
    try 0 chimere-run -p more --session s --experts 2
    chimere-run -p Hi -n 2 --experts 2 --expert-profile p.json > out
    jq -e '([.uses[][]] | add) % 2 == 0' p.json
    fails 3 'of another model, or with another --experts' chimere-run -p Hi -n 2 --expert-profile p.json
    # A server's conversations on disk.
    ask='{"id":1,"method":"chat/completions","body":{"temperature":0,"max_tokens":4,"messages":[{"role":"user","content":"WORDS"}]}}'
    ask=${ask/WORDS/$(printf 'kernel, memory, process, thread, signal, socket, file, page, cache%.0s, ' 1 2 3 4 5)}
    for k in 4 4 2 2; do
        echo "$ask" | chimere-serve-stdio --cache-dir dir --experts $k | jq .body.usage.prompt_tokens_details.cached_tokens
    done > cached
    [ "$(sed -n 1p cached)" -eq 0 ] && [ "$(sed -n 2p cached)" -gt 0 ] && [ "$(sed -n 3p cached)" -eq 0 ] && [ "$(sed -n 4p cached)" -gt 0 ]
}

@test "chimere-bench: divergence, answers, bytes of a step, plans" {
    head -c 3000 "$ROOT/share/eval/heldout-docs.txt" > text
    for k in 4 3 1; do
        chimere-bench kl --ctx 64 --windows 2 --experts $k --reference "$CHIMERE_MODEL" text --json
    done > kl.jsonl
    jq -es 'map(.model.experts_used) == [4, 3, 1] and .[0].kl_max_nats == 0 and .[1].kl_mean_nats > 0.003 and
        .[2].kl_mean_nats > 5 * .[1].kl_mean_nats' kl.jsonl
    for k in 4 1; do
        chimere-bench speed --experts $k --prompt 8 --depth 0 --rows 1 --seqs 1 --reps 1 --tokens 2 --bandwidth 10 --json
    done > speed.jsonl
    jq -es 'map(select(.case == "decode depth=0").step_bytes_by_kind.experts) | .[0] / .[1] - 4 | fabs < 1e-6' speed.jsonl
    head -n 2 "$ROOT/share/eval/math.jsonl" > set.jsonl
    try 0 chimere-bench eval --experts 3 -o answers set.jsonl --json
    fails 3 'by another model' chimere-bench eval -o answers set.jsonl
    chimere-run --plan --json --experts 2 | jq -e '.experts == 16 and .experts_used == 2'
    fails 2 'bandwidth' chimere-bench bandwidth --experts 2
}
