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
    # Neither do bytes of 8 bits, nor names.
    {
        printf 'GGUF\3\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0'
        printf '\3\0\0\0\0\0\0\0k\302\233\10\0\0\0\4\0\0\0\0\0\0\0\233\302\233a'
    } > $'e\033[2J.gguf'
    try 0 chimere-run -m $'e\033[2J.gguf' --inspect
    grep -qF '  k\xc2\x9b = \x9b\xc2\x9ba' out
    grep -qF 'file e\x1b[2J.gguf' out
    try 0 chimere-run --inspect $'e\033[2J.gguf' $'e\033[2J.gguf'
    [ "$(LC_ALL=C tr -dc '\033\233' < out | wc -c)" -eq 0 ]
}

@test "several files: a table, and a line of JSON for each" {
    cp "$CHIMERE_MODEL" a.gguf
    cp "$TINY" 'b c.gguf'
    head -c 100000 a.gguf > cut.gguf
    echo text > none.gguf
    sed 's/qwen35moe/qwen99moe/' a.gguf > other.gguf
    try 3 chimere-run --inspect ./*.gguf
    [ ! -s err ]
    [[ "$(grep '^a.gguf' out)" =~ ^a.gguf\ +qwen35moe\ +yes\ +q5_k,q6_k\ +26.3\ MB\ +4096\ +qwen3.5\ +mtp\ +yes ]]
    [[ "$(grep '^b c.gguf' out)" =~ ^b\ c.gguf\ +qwen35moe\ +yes\ +iq3_s,q6_k\ +[0-9.]+\ MB\ +4096\ +-\ +-\ +yes ]]
    grep -A1 '^cut.gguf ' out | grep -q '^    ./cut.gguf: offset'
    grep -A1 '^none.gguf ' out | grep -q 'not a GGUF file'
    grep -A1 '^other.gguf  *qwen99moe  *no ' out | grep -q "architecture 'qwen99moe' is not known"
    [ "$(awk 'length > 100 && !/^    /' out | wc -l)" -eq 0 ]
    try 3 chimere-run --inspect --json ./*.gguf
    [ "$(wc -l < out)" -eq 5 ]
    jq -se 'map(.type == "model") | all' out
    jq -se '.[0] | .runs and .fits and .ctx_tokens == 4096 and .chat == "qwen3.5" and .drafter == "mtp" and .error == null and
            .need_bytes > .file_bytes and (.quant_bytes | keys_unsorted[0]) == "q5_k"' out
    jq -se '[.[] | select(.error)] | map(.file) | sort == ["./cut.gguf", "./none.gguf", "./other.gguf"]' out
    sed -n 1p out | jq -r 'keys[]' | sort | diff - <(awk '/^\.S[sh]/ { on = $2 == "model" } on && /^\.It Li/ { print $3 }' \
        "$ROOT/man/chimere-jsonl.5" | sort)
    # Files that run make a status of 0, one that is not there 1.
    try 0 chimere-run --inspect a.gguf 'b c.gguf'
    try 1 chimere-run --inspect a.gguf nowhere.gguf
    grep -q 'nowhere.gguf: cannot open' out
    # All parts of a split file are one row.
    for i in 1 2 3; do : > "p-0000$i-of-00003.gguf"; done
    try 3 chimere-run --inspect a.gguf p-*
    [ "$(grep -c '^p-' out)" -eq 1 ]
}

@test "one file is the model, with -m and without" {
    cp "$TINY" t.gguf
    chimere-run --inspect t.gguf > got
    chimere-run --inspect -m t.gguf | cmp - got
    chimere-run --plan t.gguf > got
    chimere-run --plan -m t.gguf | cmp - got
    fails 2 'named twice' chimere-run --inspect -m t.gguf t.gguf
    fails 2 'takes one model' chimere-run --plan t.gguf t.gguf
}

@test "a prompt in the place of a file" {
    for word in help version; do fails 2 "did you mean --$word?" chimere-run $word; done
    fails 2 "'What is 2 + 2?': no such file; a prompt is given by -p 'TEXT'" chimere-run 'What is 2 + 2?'
    fails 1 'none: cannot open' chimere-run none
}
