#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# bench/project.sh on records made from known costs, and bench/gpu.sh on the CPU.
load common

# decode NAME LAUNCHES BYTES WEIGHTS: a record of a GPU where a launch costs 2 us and bytes move at 3e12 per second
decode()
{
    jq -nc --arg name "$1" --argjson l "$2" --argjson b "$3" --argjson w "$4" '
        {type: "speed", case: "decode depth=0", decode_tps: (1 / ($l * 2e-6 + $b / 3e12)), step_launches: $l, step_bytes: $b,
         bandwidth_bytes_per_s: 4e12, model: {name: $name, weight_bytes: $w}, hardware: {kernels: "GPU, sm_90"}}'
}

@test "costs that are known come back, and give the speed of another GPU" {
    { decode big 300 2e9 20e9; decode small 100 1e7 3e7; decode other 200 1.5e9 12e9; } > records
    GPU=Other GBPS=400 GB=16 "$ROOT/bench/project.sh" records > out
    grep -qx 'measured on GPU, sm_90, 4000 GB/s read:' out
    grep -qx 'a launch costs 2 us, bytes move at 3000 GB/s, 75 % of what is read' out
    # big: 300 * 2 us + 2e9 / (0.75 * 400e9) = 7.2667 ms; with all of 400e9 5.6 ms
    awk -F '\t' '$1 == "big" && $6 == 0 && $7 == 137.6 && $8 == 178.6 && $9 == "weights of 20 GB do not fit" { n++ }
        $1 == "other" && $6 == 0 && $7 == 185.2 && $8 == 241 && $9 == "" { n++ } END { exit n != 2 }' out
    # few processors: 3e12 * 12 / 120 = 3e11 of them
    FROM_SMS=120 SMS=12 GBPS=400 "$ROOT/bench/project.sh" records | awk -F '\t' '$1 == "big" { exit $8 != 137.6 }'
    # a bandwidth record counts before what the speeds were held against
    echo '{"type": "bandwidth", "read_bytes_per_s": 6e12}' >> records
    "$ROOT/bench/project.sh" records | grep -q '3000 GB/s, 50 % of'
}

@test "records that cannot tell launches from bytes are refused" {
    { decode a 100 1e9 1e9; decode b 200 2e9 1e9; decode c 300 3e9 1e9; } > records
    try 3 "$ROOT/bench/project.sh" records
    grep -q 'no telling them apart' err
    head -n 2 records > two
    try 3 "$ROOT/bench/project.sh" two
    grep -q 'fewer than three' err
    { cat records; decode d 10 2e9 1e9 | sed 's/sm_90/sm_120/'; } > mixed
    try 3 "$ROOT/bench/project.sh" mixed
    grep -q 'several GPUs' err
    # more launches, less time
    { decode a 100 1e9 1e9; decode b 100 2e9 1e9; decode c 900 1e9 1e9 | jq -c '.decode_tps = 5000'; } > odd
    try 3 "$ROOT/bench/project.sh" odd
    grep -q 'below zero' err
}

@test "gpu.sh measures its parts" {
    export BIN=${PROGRAM%/*} PROMPTS=8 DEPTHS=0,16 ROWS=1,2 SEQS=1 REPS=1 TOKENS=2 KV=f32
    PARTS="embedded granite-4-h-tiny,layers=2,experts=8,vocab=256:q4k" "$ROOT/bench/gpu.sh" cpu > out
    jq -es '([.[] | select(.case == "decode depth=16")] | length) == 2
        and ([.[] | select(.type == "bandwidth")] | length) >= 1
        and ([.[] | .model.name // empty] | unique) == ["chimere-nano-q5_k_m.gguf",
            "shape:granite-4-h-tiny,layers=2,experts=8,vocab=256:q4k"]' out
    mkdir files
    PARTS=granite-4-h-tiny,layers=2,experts=8,vocab=256:q4k KEEP=1 "$ROOT/bench/gpu.sh" cpu files > out
    ls files/*.gguf
    jq -es 'any(.[]; .case == "load")' out
    # a part that is over in time says so, and the next one runs
    PART_S=0.01 PARTS="embedded embedded" "$ROOT/bench/gpu.sh" cpu > out 2> err
    [ "$(grep -c 'PART_S, was over' err)" -eq 2 ]
}
