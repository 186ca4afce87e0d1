#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# lora.bats - adapters in the programs: --lora, requests with their own, sessions, what is refused.
load common

adapter() # OUT [SEED [ARCH]]: of the embedded model
{
    python3 "$ROOT/tests/cli/make_lora.py" "$1" "${3:-qwen35moe}" 4 2 "${2:-1}" blk.0.ffn_gate_exps.weight:256:256:16 \
        blk.3.attn_output.weight:256:256 output.weight:256:4096
}
answer()
{
    chimere-run --think off -n 12 --json -q "$@" -p 'What is a kernel?' | jq -c .token_ids
}

@test "an adapter changes the answer, by its scale, and 0 is none" {
    adapter a.gguf
    plain=$(answer)
    with=$(answer --lora a.gguf)
    half=$(answer --lora a.gguf:0.5)
    [ "$plain" != "$with" ] && [ "$half" != "$with" ]
    [ "$(answer --lora a.gguf:0)" = "$plain" ]
    [ "$(answer --lora-scaled a.gguf:1)" = "$with" ]
    [ "$(answer --lora a.gguf:1 --lora a.gguf:-1)" = "$plain" ]
    [ "$(answer --lora a.gguf -t 1 --chunk 3)" = "$with" ]
    chimere-run --plan --vram 1G --device cuda --lora a.gguf | grep -q 'adapters  '
}

@test "requests side by side have their own, and go on from their own alone" {
    adapter a.gguf
    body='"messages":[{"role":"user","content":"What is a kernel?"}],"max_tokens":12,"temperature":0,"reasoning_effort":"none","logprobs":true'
    for i in 1 2; do
        printf '{"id":"d%s","method":"chat/completions","body":{%s}}\n' $i "$body"
        printf '{"id":"p%s","method":"chat/completions","body":{%s,"lora":[]}}\n' $i "$body"
        printf '{"id":"w%s","method":"chat/completions","body":{%s,"lora":[{"id":0,"scale":1.0}]}}\n' $i "$body"
    done > lines
    printf '%s\n' '{"id":"x","method":"completions","body":{"prompt":"x","lora":[{"id":1,"scale":1}]}}' \
        '{"id":"y","method":"completions","body":{"prompt":"x","lora":[{"id":0}]}}' >> lines
    chimere-serve-stdio --lora a.gguf:0.5 -q < lines > out
    text() { jq -cs ".[] | select(.id == \"$1\") | .body.choices[0].logprobs.content | map(.token)" out; }
    [ "$(text p1)" = "$(text p2)" ] && [ "$(text w1)" = "$(text w2)" ] && [ "$(text d1)" = "$(text d2)" ]
    [ "$(text p1)" != "$(text w1)" ] && [ "$(text d1)" != "$(text w1)" ]
    jq -es '[.[] | select(.type == "error") | .error.param] | sort == ["/lora/0/id", "/lora/0/scale"]' out
    for id in p:0 w:1 d:0.5; do
        [ "$(text "${id%:*}1" | jq length)" = "$(answer --lora "a.gguf:${id#*:}" | jq length)" ]
        want=$(chimere-run --think off -n 12 --json -q --lora "a.gguf:${id#*:}" -p 'What is a kernel?' | jq -r .text)
        [ "$(jq -rs ".[] | select(.id == \"${id%:*}2\") | .body.choices[0].message.content" out)" = "$want" ]
    done
}

@test "a session keeps to its adapters" {
    adapter a.gguf
    try 0 chimere-run --think off -n 4 -q --lora a.gguf --session s -p 'One.'
    try 3 chimere-run --think off -n 4 -q --session s -p 'Two.'
    grep -q "a session of the model 'chimere-nano-q5_k_m.gguf + a.gguf:1'" err
    try 3 chimere-run --think off -n 4 -q --lora a.gguf:0.5 --session s -p 'Two.'
    try 0 chimere-run --think off -n 4 -v --lora a.gguf --session s -p 'Two.'
    grep -q 'session .* were kept' err
}

@test "what is no adapter of the model is refused in a line" {
    adapter a.gguf
    adapter other.gguf 1 llama
    head -c 3000 a.gguf > cut.gguf
    for f in other.gguf cut.gguf "$TINY" missing.gguf; do
        try $([ "$f" = missing.gguf ] && echo 1 || echo 3) chimere-run --lora "$f" -p x
        [ "$(wc -l < err)" -eq 1 ]
    done
    echo "[1, 2]" > ids
    try 3 chimere-run -m "$TINY" --lora a.gguf --tokens ids
    try 3 chimere-run -m a.gguf -p x
    grep -q 'not a model but a LoRA adapter, for --lora' err
    try 2 chimere-run --lora a.gguf:1e -p x
    fails 2 'from -1e+06 to 1e+06' chimere-run --lora a.gguf:1e30 -p x
    try 2 chimere-run --lora a.gguf --tokenize -p x
    try 2 chimere-bench synth --lora a.gguf
    try 2 chimere-run $(for _ in 1 2 3 4 5 6 7 8 9; do echo --lora a.gguf; done) -p x
}

@test "what an adapter is" {
    adapter a.gguf
    try 0 chimere-run -m a.gguf --inspect
    grep -q 'a LoRA adapter for models of architecture qwen35moe: rank 2, alpha 4, 3 matrices' out
    try 0 chimere-run -m a.gguf --inspect --json
    jq -e '.adapter == {kind: "lora", architecture: "qwen35moe", rank: 2, alpha: 4, matrices: 3, numbers: 26112}' out
    python3 "$ROOT/tests/cli/make_lora.py" b.gguf qwen35moe 0 2 1 x:4:4
    try 0 chimere-run -m b.gguf --inspect
    grep -q 'cannot be used: .*alpha is 0' out
}

@test "measured: perplexity moves, the divergence from the model without is not 0" {
    adapter a.gguf
    printf 'The kernel is the part of an operating system that is always there, and the first that is loaded.\n' > t
    try 0 chimere-bench kl --ctx 16 --reference "$CHIMERE_MODEL" --lora a.gguf:0.1 --json t
    jq -es '.[-1].kl_mean_nats > 1e-6 and (.[-1].model.name | test("a.gguf:0.1"))' out
    try 0 chimere-bench kl --ctx 16 --reference "$CHIMERE_MODEL" --lora a.gguf:0 --json t
    jq -es '.[-1].kl_mean_nats < 1e-9' out
}

@test "merged into the weights it does the same" {
    local base=$MODELS/qwen35moe-a.gguf
    python3 "$ROOT/tests/cli/make_lora.py" a.gguf qwen35moe 4 2 1 blk.2.attn_q.weight:64:384 blk.0.ffn_up_exps.weight:64:32:9
    echo '[1, 2, 3, 5, 8, 13]' > ids
    logits() { chimere-run --tokens ids --logits "$1" -n 0 -q --acts f32 "${@:2}" > /dev/null; }
    off() # A B: the largest difference
    {
        python3 -c 'import sys
x, y = (memoryview(open(f, "rb").read()).cast("f") for f in sys.argv[1:3])
print(max(abs(a - b) for a, b in zip(x, y)))' "$1" "$2"
    }
    logits plain -m "$base"
    logits with -m "$base" --lora a.gguf:0.5
    try 0 chimere-quantize -q --merge-lora a.gguf:0.5 --type f32 --pure "$base" m.gguf
    logits merged -m m.gguf
    echo "$(off plain with) $(off merged with)"
    awk "BEGIN { exit !($(off plain with) > 0.1 && $(off merged with) < 1e-3) }"
    try 0 chimere-quantize --check m.gguf
    chimere-run -m m.gguf --inspect | grep -q 'chimere.quantize.merged = a.gguf:0.5'
    try 0 chimere-quantize -q --merge-lora a.gguf "$base" same.gguf # types as they were
    [ "$(chimere-run -m same.gguf --inspect --json | jq -c .by_quant)" = "$(chimere-run -m "$base" --inspect --json | jq -c .by_quant)" ]
    try 0 chimere-quantize -q --merge-lora a.gguf:0 "$base" none.gguf
    logits none -m none.gguf
    cmp none plain
    try 3 chimere-quantize --merge-lora a.gguf "$TINY" x.gguf
    try 2 chimere-quantize --merge-lora a.gguf -f "$base" a.gguf
    grep -q 'is an input' err
    try 2 chimere-quantize --check --merge-lora a.gguf m.gguf
    [ ! -e x.gguf ]
}
