#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# bench/peers-gpu.sh with stand-ins for the peers: turns, settings, medians, what is absent and what fails.
load common

@test "peers-gpu.sh: each engine in turns, SparkInfer with both settings, absent peers by name" {
    chimere-bench synth --shape qwen3.6-35b-a3b,layers=2,experts=8,vocab=256 --mix q4k --write m.gguf > record
    cat > llama-bench << 'EOF'
#!/usr/bin/env bash
echo "llama $*" >> calls
n=$(grep -c ^llama calls)
case " $* " in
*' -d 16 '*) echo "[{\"n_prompt\": 0, \"n_gen\": 4, \"n_depth\": 16, \"avg_ts\": $((n * 10))}]" ;;
*) echo "[{\"n_prompt\": 8, \"n_gen\": 0, \"n_depth\": 0, \"avg_ts\": $((n * 100))}, {\"n_prompt\": 0, \"n_gen\": 4, \"n_depth\": 0, \"avg_ts\": 7}]" ;;
esac
EOF
    cat > spark << 'EOF'
#!/usr/bin/env bash
echo "spark window=${SPARKINFER_PREFILL_ATTN_WINDOW:-} sparse=${SPARKINFER_SPARSE_KV:-} ctxs=$SPARKINFER_BENCH_SWEEP_CTXS" >> calls
[ -z "${SPARKINFER_SPARSE_KV:-}" ] || { echo 'no memory' >&2; exit 3; }
echo 'decode tg    : 55.50 tok/s  (n=4, ctx=16, bs=1)'
echo 'prefill pp   : 4321.00 tok/s  (ctx=8, sequential KV fill)'
EOF
    chmod +x llama-bench spark
    export CHIMERE_BENCH DEVICE=cpu PROMPTS=8 DEPTHS='0 16' TOKENS=4 ROUNDS=2 ACTS='i16 i8'
    CHIMERE_BENCH=$(type -P chimere-bench)
    PEERS="llama.cpp=$PWD/llama-bench ik_llama.cpp=$PWD/none SparkInfer=$PWD/spark" bash "$ROOT/bench/peers-gpu.sh" m.gguf > out 2> err
    grep -qx 'ik_llama.cpp: absent' out
    [ "$(grep -c absent out)" -eq 1 ]
    grep -q '^chimere,i8: KV f16; products with activations of 8 bits; attends to all keys$' out
    grep -q '^SparkInfer: KV .* attends to 4,112 keys in prompts' out
    grep -q '^SparkInfer,all: .* attends to all keys$' out
    # two rounds: calls 1 to 4 of llama-bench, in turns with the others
    grep -qE '^prompt-8 +llama.cpp +200.0  \[100.0, 300.0\]$' out
    grep -qE '^decode@16 +llama.cpp +30.0  \[20.0, 40.0\]$' out
    grep -qE '^decode@16 +SparkInfer +55.5  ' out
    grep -qE '^prompt-8 +SparkInfer +4321.0  ' out
    [ "$(grep -cE '^(prompt-8|decode@0|decode@16) +chimere,i(16|8) +[0-9.]+  \[' out)" -eq 6 ]
    [ "$(cut -d' ' -f1 calls | tr '\n' ' ')" = 'llama llama spark spark llama llama spark spark ' ]
    grep -qx 'spark window= sparse= ctxs=0,16,8' calls
    grep -qx 'spark window=0 sparse=0 ctxs=0,16,8' calls
    # what fails is said, and has no row
    [ "$(grep -cx 'peers-gpu.sh: SparkInfer,all: status 3: no memory' err)" -eq 2 ]
    no grep -qE '^(prompt|decode).* SparkInfer,all ' out
}

@test "peers-gpu.sh: wrong use" {
    touch m.gguf
    try 2 env PEERS=vllm=/bin/true bash "$ROOT/bench/peers-gpu.sh" m.gguf
    grep -q 'vllm=/bin/true is not NAME=PATH' err
    try 2 bash "$ROOT/bench/peers-gpu.sh" none.gguf
    grep -q '^usage: ' err
}
