#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# expert_cache.bats - --expert-cache: experts are read from the disk as they are used.
# tests/unit/expert_cache_test.c compares logits of all families.
load common

ASK='What is 347 + 58?'

# One expert of the embedded model takes 39 pages.
ONE=159744

@test "answers are the same, whatever the memory holds" {
    chimere-run --json --temp 0 -n 8 -p "$ASK" | jq -c '[.reasoning, .text]' > want
    for options in "$ONE -t 1 --draft mtp" "1M --no-mmap" "900k --expert-profile p.json" \
        "900k --expert-profile p.json" "10G --chunk 7"; do
        # shellcheck disable=SC2086
        chimere-run --json --temp 0 -n 8 -p "$ASK" --expert-cache $options > out
        jq -c '[.reasoning, .text]' out | cmp - want
        jq -e '.expert_cache | .reads > 0 and .read_bytes > .reads * 4096 and .memory_bytes <= .expert_bytes * 2 and
            .slots >= 1 and .experts == 128 and .wait_ms >= 0 and (.direct | type) == "boolean"' out
    done
    jq -e '.expert_cache | .reads <= 128 and .slots == 128 and .hits > .reads' out # each was read once
    chimere-run --temp 0 -n 2 -p "$ASK" --expert-cache 900k --expert-profile p.json -v > out 2> notes
    grep '^experts  read from the file as they are used: 0.00 GB hold 5 of 128, 0.02 GB' notes
    grep '^         3 that were used most stay once read' notes
    grep -E '^experts  [0-9]+ in memory, [0-9]+ read \([0-9]+ of them ahead\), [0-9.]+ MB, waited [0-9.]+ ms' notes
}

@test "sessions, and answers side by side" {
    try 0 chimere-run -n 8 --temp 0 -p "$ASK" --session a
    try 0 chimere-run -n 8 --temp 0 -p "$ASK" --session b --expert-cache 400k
    cmp a b
    chimere-run -n 8 --temp 0 -p 'And 2 more?' --session a > want
    chimere-run -n 8 --temp 0 -p 'And 2 more?' --session b --expert-cache "$ONE" | cmp - want
    for i in 1 2 3; do
        jq -nc --argjson id $i --arg ask "What is $i * 34?" '{id: $id, method: "chat/completions",
            body: {temperature: 0, max_tokens: 8, messages: [{role: "user", content: $ask}]}}'
    done > asked
    for cache in 400k 16G; do
        (cat asked; sleep 0.01; echo '{"id":9,"method":"metrics"}') | chimere-serve-stdio --parallel 3 --expert-cache $cache |
            tee all | jq -c 'select(.id < 4)' | jq -cs 'sort_by(.id)[].body.choices[0].message' > $cache
    done
    chimere-serve-stdio --parallel 3 < asked | jq -cs 'sort_by(.id)[].body.choices[0].message' | cmp - 16G
    cmp 400k 16G
    jq -r 'select(.id == 9).body.text' all > metrics
    for name in hits_total reads_total read_bytes_total wait_seconds_total; do
        grep "^chimere_expert_${name} [0-9]" metrics
    done
    grep '^chimere_expert_cache_bytes [1-9]' metrics
}

@test "the plan says what comes from the disk" {
    chimere-run --plan --expert-cache 2M > out
    grep -E '^  from the disk  experts of the CPU, as they are used: 0.002 GB of memory hold 13 of 128 \(0.018 GB\), about 10 % of the uses' out
    grep -E 'speed .*, and 0.00[0-9]* GB from the disk at [0-9.]+ GB/s \(measured\)' out
    chimere-run --plan --json --expert-cache 2M | jq -e '.expert_cache == {memory_bytes: 2076672, expert_bytes: 17858560,
        slots: 13, experts: 128, share: (13 / 128)} and .speed.disk_measured and .speed.disk_step_bytes > 0 and
        .speed.disk_bytes_per_s > 0'
    chimere-run --plan --json | jq -e 'has("expert_cache") | not'
    chimere-run --plan --vram 393M --ctx 512 --chunk 64 --expert-cache 2M > out
    grep '^  from the disk' out
    no grep '^  copied' out
}

@test "mistakes" {
    fails 1 "--expert-cache: 1 bytes are less than one expert, $ONE" chimere-run -p hi --expert-cache 1
    fails 2 '--expert-cache' chimere-run -p hi --expert-cache 0
    fails 2 '--expert-cache' chimere-run -p hi --expert-cache many
    fails 3 '--expert-cache: device check:cpu does not read experts from the file' \
        chimere-run -p hi --expert-cache 1M --device check:cpu
    chimere-run -m "$ROOT/tests/golden/models/falconmamba-a.gguf" --tokens <(echo '[1, 2]') -n 1 --expert-cache 1M > out 2> err
    grep 'expert-cache has no effect: the CPU computes no routed experts of this model' err
    fails 2 '--expert-cache does not belong' chimere-bench bandwidth --expert-cache 1M
}

@test "a file that cannot be read past the page cache: the same answer" {
    find_shim
    ask() { LD_PRELOAD=$shim chimere-run --json -n 2 -p "$ASK" --expert-cache 400k "$@" < /dev/null; }
    CHIMERE_TEST_FAULT_LOG=log ask > want
    jq -e .expert_cache.direct want || skip "this file system reads all through its cache"
    for ((n = $(sed -n 's/^open //p' log); n > 0; n--)); do
        CHIMERE_TEST_FAULT=open:$n ask > out 2> err && ! jq -e .expert_cache.direct out && break
    done
    [ "$n" -gt 0 ]
    jq -c '[.reasoning, .text]' want | cmp - <(jq -c '[.reasoning, .text]' out)
    (ulimit -l 0 && ask > out)
    jq -c '[.reasoning, .text]' want | cmp - <(jq -c '[.reasoning, .text]' out)
}

@test "a disk that fails ends that answer, and the server goes on" {
    find_shim
    ask='{"id":1,"method":"chat/completions","body":{"temperature":0,"max_tokens":4,"messages":[{"role":"user","content":"Hi"}]}}'
    echo "$ask" | CHIMERE_TEST_FAULT_LOG=log LD_PRELOAD=$shim chimere-serve-stdio --expert-cache "$ONE" > want
    n=$(sed -n 's/^read //p' log)
    (echo "$ask"; echo "${ask/1/2}") | CHIMERE_TEST_FAULT=read:$((n - 30)) LD_PRELOAD=$shim \
        chimere-serve-stdio --expert-cache "$ONE" --parallel 1 > out
    jq -se 'any(.[]; .id == 1 and (.error.message | test("cannot read expert [0-9]+ of layer [0-9]+: Input/output error")))' out
    jq -c 'select(.id == 2).body.choices[0].message' out > got
    jq -c '.body.choices[0].message' want | cmp - got
    n=$(CHIMERE_TEST_FAULT_LOG=log LD_PRELOAD=$shim chimere-run -p Hi -n 2 --expert-cache "$ONE" > /dev/null
        sed -n 's/^read //p' log)
    CHIMERE_TEST_FAULT=read:$((n - 5)) LD_PRELOAD=$shim fails 1 'cannot read expert' \
        chimere-run -p Hi -n 2 --expert-cache "$ONE"
}
