#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# chimere-draft-train: a drafter from nothing, the gate, versions, what it refuses. Seconds, on a tiny model.
load common

prompts() # FIRST LAST
{
    local i
    for ((i = $1; i <= $2; i++)); do printf '{"prompt": "a text number %d that says %d"}\n' $i $((i * i)); done
}

small=(--layers 1 --ff 32 --block 4 --predict 24 --ctx 96 --sequences 4 --batch 4 --memory 4M --threads 2)
train() # OPTION...
{
    chimere-draft-train dflash -m "$TINY" "${small[@]}" --held-out t.jsonl "$@" p.jsonl
}

@test "draft-train: the manual has every option, and -h fits 80 columns" {
    chimere-draft-train --help-json | jq -r '.options[] | [.letter // "-", .name, .arg // "-"] | join(" ")' | sort > program
    sed -n -e 's/^\.It Fl \([A-Za-z]\) , Fl -\([a-z-]*\) Ar \(.*\)$/\1 \2 \3/p' \
        -e 's/^\.It Fl \([A-Za-z]\) , Fl -\([a-z-]*\)$/\1 \2 -/p' \
        -e 's/^\.It Fl -\([a-z-]*\) Ar \(.*\)$/- \1 \2/p' \
        -e 's/^\.It Fl -\([a-z-]*\)$/- \1 -/p' "$ROOT/man/chimere-draft-train.1" | sort > manual
    diff program manual
    [ "$(chimere-draft-train -h | awk 'length > 80' | wc -l)" -eq 0 ]
}

@test "draft-train: a drafter that chimere-run takes, events, a picture; an old one that is as good stays" {
    local status=0
    head -n 50 "$ROOT/share/eval/math.jsonl" > p.jsonl
    sed -n 41,60p "$ROOT/share/eval/math.jsonl" > t.jsonl
    nano=(--layers 1 --ff 128 --block 8 --predict 24 --ctx 96 --batch 4 --memory 16M --threads 2 --held-out t.jsonl)
    chimere-draft-train dflash -o d.gguf "${nano[@]}" --time 1h --steps 30 --rate 0.01 --jsonl e.jsonl --plot loss.svg p.jsonl \
        > table 2> err || status=$?
    [ $status -eq 0 ] || { cat err table; false; }
    grep -q '^all ' table
    jq -se 'map(.type) | .[0] == "begin" and .[-1] == "end" and any(. == "test")' e.jsonl
    jq -se '.[0].prompts == 40 and (.[-1] | .published and .p < 0.05 and .steps == 30)' e.jsonl # 10 are tested on
    jq -se 'map(select(.type == "test" and .class == "all")) | .[0].tokens_per_step > 1' e.jsonl
    grep -q '<svg ' loss.svg
    [ ! -e d.gguf.train ] && [ ! -e d.gguf.new ] && [ ! -e d.gguf.lock ] && [ ! -e d.gguf.1 ]
    chimere-run -n 24 -p 'What is 51 + 292?' > plain
    chimere-run -n 24 --draft d.gguf -p 'What is 51 + 292?' | cmp - plain
    # from its weights, with a step so small that nothing changes
    cp d.gguf was
    tiny=(dflash -o d.gguf "${nano[@]}" --time 100s --steps 1 --rate 1e-12 p.jsonl)
    shim=${BUILD:-build}/test/fault-shim.so
    [ "${shim#/}" != "$shim" ] || shim=$ROOT/$shim
    if [ -e "$shim" ]; then # killed at its end, it goes on with the same old one only
        ASAN_OPTIONS=verify_asan_link_order=0 CHIMERE_TEST_FAULT=kill:1 LD_PRELOAD=$shim no chimere-draft-train "${tiny[@]}" > out 2>&1
        printf '\125\252' | dd of=d.gguf bs=1 seek=$(($(stat -c %s d.gguf) - 64)) conv=notrunc status=none
        try 2 chimere-draft-train "${tiny[@]}"
        grep -q 'other prompts or settings' err
        cp was d.gguf
    fi
    chimere-draft-train "${tiny[@]}" > /dev/full 2> err || status=$?
    [ $status -eq 4 ] || { cat err; false; }
    [ ! -e "$shim" ] || grep -q 'goes on after .* 1 steps' err
    grep -q 'standard output: cannot write: No space left on device' err # the table
    cmp d.gguf was
    [ ! -e d.gguf.1 ] && [ ! -e d.gguf.new ] && [ ! -e d.gguf.train ]
    # through a link: what lies beside the file is looked for there
    mkdir there
    mv d.gguf there
    ln -s there/d.gguf d.gguf
    echo x > there/d.gguf.train
    try 3 chimere-draft-train dflash -o d.gguf "${nano[@]}" p.jsonl
    grep -q 'there/d.gguf.train: ' err
}

@test "draft-train: interrupted, it keeps what it learnt, and the same command goes on" {
    local pid
    prompts 1 20 > p.jsonl
    prompts 21 30 > t.jsonl
    chimere-draft-train dflash -m "$TINY" -o d.gguf "${small[@]}" --held-out t.jsonl --time 60s --jsonl e.jsonl p.jsonl \
        > table 2> err &
    pid=$!
    for _ in {1..300}; do ! grep -q '"type":"step"' e.jsonl 2> /dev/null || break; sleep 0.1; done
    fails 1 'another program' chimere-draft-train dflash -m "$TINY" -o d.gguf p.jsonl
    kill -TERM $pid
    no wait $pid
    [ -s d.gguf.train ] && [ ! -e d.gguf ] && [ ! -e d.gguf.lock ]
    grep -q 'goes on from there' err
    try 2 chimere-draft-train dflash -m "$TINY" -o d.gguf "${small[@]}" --held-out t.jsonl --layers 2 --time 60s p.jsonl
    grep -q 'other prompts or settings' err
    head -n 15 p.jsonl > fewer.jsonl
    try 2 chimere-draft-train dflash -m "$TINY" -o d.gguf "${small[@]}" --held-out t.jsonl --time 60s fewer.jsonl
    try 2 train -o d.gguf --time 60s --scratch
    [ -s d.gguf.train ]
    : > .d.gguf.4999999-0.tmp # of a killed one
    prompts 41 50 > $'w\e[1m\xff.jsonl'
    train -o d.gguf --held-out $'w\e[1m\xff.jsonl' --time 60s --steps 1 --jsonl e.jsonl > table 2> err || [ $? -eq 4 ]
    grep -q 'goes on after' err
    grep -q '^t ' table && grep -qF 'w?[1m?  ' table
    jq -se 'any(.class == "w?[1m?")' e.jsonl > also
    [ ! -e d.gguf.train ] && [ ! -e .d.gguf.4999999-0.tmp ]
}

@test "draft-train: a full disk" {
    prompts 1 20 > p.jsonl
    prompts 21 30 > t.jsonl
    (
        ulimit -f 8 # blocks of 1 KiB
        try 1 train -o d.gguf --time 60s --steps 3
    )
    grep -q 'without that file an interrupted training cannot go on' err
    [ "$(echo d.gguf*)" = 'd.gguf*' ]
}

# bats test_tags=slow
@test "draft-train: too little address space is an error, not a wait" {
    prompts 1 20 > p.jsonl
    prompts 21 30 > t.jsonl
    (
        # what the program itself takes, with kernels for GPUs or without, and too little for a training
        ulimit -v $((145000 + $(stat -Lc %s "$(command -v chimere-draft-train)") / 1024))
        OPENBLAS_NUM_THREADS=1 fails 1 'ulimit -v' train -o d.gguf -q
    )
}

@test "draft-train: when the reader of its events goes, it ends like an interrupted one" {
    prompts 1 20 > p.jsonl
    prompts 21 30 > t.jsonl
    train -o d.gguf --time 60s --jsonl - 2> err | head -n 1 > first
    [ "${PIPESTATUS[0]}" -eq 141 ]
    no grep -q "standard output" err
    grep -q begin first
    [ ! -e d.gguf ] && [ ! -e d.gguf.lock ]
}

@test "draft-train: in a short time there are fewer tests; in none there is nothing" {
    prompts 1 20 > p.jsonl
    prompts 21 30 > t.jsonl
    prompts 31 40 > u.jsonl
    try 2 train -o d.gguf --held-out u.jsonl --time 1e-9s --jsonl e.jsonl
    grep -qE ' [5-9] of 20 held-out prompts are tested on: the time is too short' err
    grep -q 'too short for a step' err
    jq -e '.type == "begin" and .tests >= 5' e.jsonl
}

@test "draft-train: steps that blow the weights up are an error, and write nothing" {
    prompts 1 20 > p.jsonl
    prompts 21 30 > t.jsonl
    try 3 train -o d.gguf --time 60s --rate 1e30
    grep -q 'not a number' err
    [ "$(echo d.gguf*)" = 'd.gguf*' ]
}

@test "draft-train: --rollback goes round the versions, to what can be used" {
    local i
    for i in 0 1 2; do
        python3 "$ROOT/tests/cli/make_lora.py" was$i qwen35moe 8 4 $i blk.0.ssm_out.weight:256:256
        cp was$i d$([ $i -eq 0 ] || echo .$i)
    done
    chimere-draft-train lora -o d --rollback -q
    cmp d was1 && cmp d.1 was2 && cmp d.2 was0
    chimere-draft-train mtp -o d --rollback -q
    chimere-draft-train lora -o d --rollback -q
    cmp d was0 && cmp d.1 was1 && cmp d.2 was2
    fails 1 'no version before it' chimere-draft-train dflash -o other --rollback
    fails 3 'd.1' chimere-draft-train dflash -o d --rollback # another kind of file
    head -c 1000 was1 > d.1
    fails 3 'd.1' chimere-draft-train lora -o d --rollback
    rm d.1
    mkdir d.1
    fails 1 'd.1: is a directory' chimere-draft-train lora -o d --rollback
    cmp d was0 && cmp d.2 was2 && [ ! -e d.3 ]
}

@test "draft-train: what it refuses; what was there stays" {
    prompts 1 20 > p.jsonl
    fails 2 '--out' chimere-draft-train dflash
    fails 2 'beside d.gguf' chimere-draft-train dflash -o d.gguf --plot ./d.gguf.1 p.jsonl
    fails 2 'beside d.gguf' chimere-draft-train dflash -o d.gguf --jsonl d.gguf.train p.jsonl
    fails 2 'not one of' chimere-draft-train lorax
    fails 2 '--rollback and --time do not go together' chimere-draft-train dflash -o d --rollback --time 2h
    fails 2 '--taps 1,1: layer 1 is named twice' chimere-draft-train dflash -o d --taps 1,1
    fails 2 'not a time' chimere-draft-train dflash -o d --time 2
    cp p.jsonl mine.jsonl
    fails 3 'cannot replace' chimere-draft-train dflash -m "$TINY" -o mine.jsonl p.jsonl
    cmp p.jsonl mine.jsonl
    cp "$ROOT/tests/golden/draft/dflash-a.gguf" other.gguf
    fails 3 'other.gguf' chimere-draft-train dflash -m "$TINY" -o other.gguf p.jsonl
    cmp other.gguf "$ROOT/tests/golden/draft/dflash-a.gguf"
    : > empty.jsonl
    try 3 chimere-draft-train dflash -m "$TINY" -o d --held-out empty.jsonl p.jsonl
    grep -q '0 prompts to test on are too few' err
    echo '{"a": 1}' > bad.jsonl
    fails 3 'bad.jsonl: line 1' chimere-draft-train dflash -m "$TINY" -o d bad.jsonl
    head -n 1 p.jsonl > one.jsonl
    try 3 chimere-draft-train dflash -m "$TINY" -o d one.jsonl
    prompts 21 30 > t.jsonl
    fails 3 'to train on; 20 are tested on' train -o d --held-out p.jsonl
    fails 3 'left out (-c: a longer context)' train -o d -c 9 -n 8
    fails 2 '--lines' train -o d --lines
    fails 2 'once only' train -o d --held-out - -
    echo '{"messages": []}' > chat.jsonl
    fails 3 'no chat template: it can go on with' chimere-draft-train dflash -m "$TINY" -o d chat.jsonl
    [ ! -e d ] && [ ! -e d.lock ]
    fails 2 'also a file that is read' chimere-draft-train dflash -m "$TINY" -o d --jsonl p.jsonl p.jsonl
    fails 2 'the file of --jsonl' chimere-draft-train dflash -m "$TINY" -o d --jsonl d p.jsonl
    fails 1 'none/l.svg' chimere-draft-train dflash -m "$TINY" -o d --plot none/l.svg p.jsonl
    fails 2 '--predict' chimere-draft-train dflash -m "$TINY" -o d -n 200 -c 100 p.jsonl
}
