#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# chimere-run --inspect: what is in a model file, from its header alone.
load common

@test "sums agree with the tensors" {
    try 0 chimere-run --inspect --json
    [ "$(wc -l < out)" -eq 1 ]
    jq -e '(.tensors | map(.bytes) | add) == .total.bytes and
           (.tensors | length) == .total.n_tensors and
           (.tensors | map(.ne | reduce .[] as $n (1; . * $n)) | add) == .total.n_weights and
           ([.by_quant[] | .bytes] | add) == .total.bytes and
           ([.by_use[] | .bytes] | add) == .total.bytes and
           .total.bytes < .file_bytes' out
    [ "$(jq .file_bytes out)" -eq "$(stat -c %s "$CHIMERE_MODEL")" ]
    jq -e '.total.bits_per_weight - .total.bytes * 8 / .total.n_weights | fabs < 1e-6' out
}

@test "metadata, types, uses" {
    try 0 chimere-run --inspect --json
    jq -e '.metadata["general.architecture"] == {kind: "str", value: "qwen35moe"} and
           (.metadata["tokenizer.ggml.tokens"] | .kind == "arr" and .elem_kind == "str" and
               .n == 4096 and (.first | length) == 6) and
           (.tensors[] | select(.name == "blk.0.ffn_up_exps.weight") |
               .quant == "q5_k" and .ne == [256, 256, 16] and .use == "experts" and
               .bits_per_weight == 5.5) and
           .by_use.mtp.n_tensors == 20' out
}

@test "the text says the same" {
    try 0 chimere-run --inspect
    cp out text
    chimere-run --inspect --json > json
    grep -q "general.architecture = qwen35moe" text
    grep -q "tensors: $(jq .total.n_tensors json)\$" text
    grep -qE "^  all .* $(jq .total.bytes json) bytes" text
    [ "$(grep -c '^  blk\..* bytes$' text)" -eq "$(jq '[.tensors[] | select(.name | test("^blk"))] | length' json)" ]
}

@test "weights are not read: 64 GB of them take no time" {
    le()
    {
        local i n=$2
        for ((i = 0; i < $1; i++)); do
            # shellcheck disable=SC2059
            printf "\\x$(printf %02x $((n & 255)))"
            n=$((n >> 8))
        done
    }
    {
        printf GGUF; le 4 3; le 8 1; le 8 0
        le 8 4; printf huge; le 4 2; le 8 1048576; le 8 16384; le 4 0; le 8 0
    } > huge.gguf
    truncate -s $((64 + 68719476736 + 64)) huge.gguf 2> /dev/null || skip "no file of that size here"
    try 0 timeout 5 chimere-run -m huge.gguf --inspect --json
    jq -e '.total.bytes == 68719476736 and .total.n_weights == 17179869184' out
}

@test "what a file says does not reach the terminal raw" {
    {
        printf 'GGUF\3\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0'
        printf '\1\0\0\0\0\0\0\0k\10\0\0\0\12\0\0\0\0\0\0\0\33[2J\ntwo\0x'
    } > escape.gguf
    try 0 chimere-run -m escape.gguf --inspect
    grep -qF '  k = \x1b[2J\ntwo\x00x' out
    [ "$(tr -dc '\033' < out | wc -c)" -eq 0 ]
    try 0 chimere-run -m escape.gguf --inspect --json
    jq -e '.metadata.k.value == "\u001b[2J\ntwo\u0000x"' out
}
