# SPDX-License-Identifier: Apache-2.0
# shards.bats - one batch on several machines: which requests each has, how a job ends, and the merge that proves that
# nothing is missing.

load common

batch() # N [PREFIX]
{
    for i in $(seq 1 "$1"); do
        printf '{"custom_id":"%s%d","method":"POST","url":"/v1/completions","body":{"prompt":"Chapter %d","max_tokens":2,"temperature":0}}\n' \
            "${2:-q}" "$i" "$i"
    done
}
answer() # OPTION...
{
    chimere-serve-stdio -m "$TINY" -t 1 "$@"
}
merge() # OPERAND...
{
    chimere-serve-stdio --merge all "$@"
}
# One batch of nine, of which q5 is refused, in three shards.
setup_parts()
{
    batch 9 | sed '5s/"prompt":"[^"]*"/"prompt":""/' > in.jsonl
    for i in 1 2 3; do answer --batch in.jsonl -o "part$i" --shard "$i/3" 2> /dev/null; done
}
# tells LINE...: what the merge lists, as custom_id type file line, and that nothing was written
tells()
{
    local got=0

    merge in.jsonl "${parts[@]}" > list 2> err || got=$?
    [ $got -eq 4 ] && [ ! -e all ] && [ ! -e all.errors ]
    [ "$(wc -l < err)" -eq 1 ] && grep -q 'all: not written' err
    printf '%s\n' "$@" | diff - <(jq -r '"\(.custom_id) \(.type) \(.file) \(.line)"' list)
}

@test "a merge has the order of the batch, and the lines as they were" {
    setup_parts
    try 0 merge in.jsonl part3 part1 part2
    [ ! -s out ] && [ "$(cat err)" = 'chimere-serve-stdio: 1 of 9 requests were refused, see all.errors' ]
    [ "$(jq -r .custom_id all | tr '\n' ' ')" = 'q1 q2 q3 q4 q6 q7 q8 q9 ' ]
    [ "$(jq -r '"\(.custom_id) \(.response.status_code)"' all.errors)" = 'q5 400' ]
    cmp <(cat part[123] part[123].errors | sort) <(sort all all.errors)
    cp all before
    try 4 merge --strict in.jsonl part[123] # again, over what it made
    cmp all before
    zstd -q in.jsonl
    try 0 merge in.jsonl.zst part[123]
    cmp all before
    truncate -s -1 part3 # the end of the last line alone
    try 0 merge in.jsonl part[123]
    cmp all before
}

@test "a merge lists what is missing, doubled, foreign and made with other settings" {
    setup_parts
    parts=(part1 part3)
    tells 'q2 missing in.jsonl 2' 'q5 missing in.jsonl 5' 'q8 missing in.jsonl 8'
    parts=(part1 part2 part3 part1)
    tells 'q1 doubled part1 1' 'q4 doubled part1 2' 'q7 doubled part1 3'
    grep -q 'a part of another number of shards has to be removed' err
    truncate -s -9 part3
    parts=(part1 part2 part3)
    tells 'null foreign part3 3' 'q9 missing in.jsonl 9'
    batch 3 other > other.jsonl
    answer --batch other.jsonl -o part3.other 2> /dev/null
    head -n 2 part3 > part3.new && cat part3.other >> part3.new && mv part3.new part3
    tells 'other1 foreign part3 3' 'other2 foreign part3 4' 'other3 foreign part3 5' 'q9 missing in.jsonl 9'
    sed 's/Chapter 9/Chapter 10/' in.jsonl > changed.jsonl # the same ids, another request
    answer --batch changed.jsonl -o part3.changed --shard 3/3 2> /dev/null
    mv part3.changed part3
    tells 'q9 foreign part3 3' 'q9 missing in.jsonl 9'
    answer --batch in.jsonl -o part3.warm --shard 3/3 --alias other 2> /dev/null
    mv part3.warm part3
    tells 'q3 settings part3 1' 'q6 settings part3 2' 'q9 settings part3 3'
}

@test "a merge refuses what is written now, what is not there, and to write over other files" {
    setup_parts
    flock part2 chimere-serve-stdio --merge all in.jsonl part[123] > out 2> err && return 1
    grep -q 'part2: another process writes it' err
    fails 1 'part4' merge in.jsonl part[123] part4
    fails 2 'needs the batch and the outputs' merge in.jsonl
    fails 3 'line 1' merge part1 part2
    echo mine > all
    fails 2 'all: exists' merge in.jsonl part[123]
    [ "$(cat all)" = mine ]
    ln -s all new.errors # it need not be named
    fails 2 '--merge new.errors: exists, is no file of errors, and stays as it is' chimere-serve-stdio --merge new in.jsonl part[123]
    [ "$(cat all)" = mine ] && [ ! -e new ]
    rm new.errors
    fails 2 '' chimere-serve-stdio --merge part1 in.jsonl part[123]
    cp part2.errors refused
    ln in.jsonl new.errors
    for out in 'part2.errors' 'new --errors part2.errors' 'new'; do # read, or written, without being named
        # shellcheck disable=SC2086
        fails 2 'errors: is also a file that is read' chimere-serve-stdio --merge $out in.jsonl part[123]
        cmp refused part2.errors && [ "$(wc -l < in.jsonl)" -eq 9 ] && [ ! -e new ]
    done
    rm new.errors
    fails 2 '--merge' chimere-serve-stdio --merge all --ctx 512 in.jsonl part1
    : > empty
    fails 3 'no requests' chimere-serve-stdio --merge new empty part1
    head -c 100 /dev/zero | zstd -q | head -c 12 > cut.zst
    fails 3 'cut.zst: the zstd data is cut' chimere-serve-stdio --merge new cut.zst part1
    zstd -q in.jsonl
    printf x | dd of=in.jsonl.zst bs=1 seek=9 conv=notrunc status=none
    fails 3 'in.jsonl.zst: cannot be unpacked by zstd' chimere-serve-stdio --merge new in.jsonl.zst part1
    zstd -q part1
    fails 3 'part1.zst: is packed with zstd' chimere-serve-stdio --merge new in.jsonl part1.zst
}

@test "a signal ends a merge, and nothing of it stays" {
    find_shim
    batch 100 > in.jsonl
    answer --batch in.jsonl -o part
    touch hold
    LD_PRELOAD=$shim CHIMERE_TEST_FAULT_HOLD=$PWD/hold chimere-serve-stdio --merge all in.jsonl part 2> err 3>&- &
    until compgen -G ".all.*.tmp" > left; do sleep 0.05; done
    kill -TERM $!
    rm hold
    wait $! && return 1 || [ $? -eq 143 ]
    grep -q interrupted err && no compgen -G "*all*" && no compgen -G ".all*"
}

@test "--shard auto takes what a scheduler sets" {
    batch 4 > in.jsonl
    zstd -q in.jsonl
    SLURM_ARRAY_TASK_ID=6 SLURM_ARRAY_TASK_MIN=4 SLURM_ARRAY_TASK_MAX=6 SLURM_ARRAY_TASK_STEP=2 SLURM_ARRAY_TASK_COUNT=2 \
        answer --batch in.jsonl.zst -o slurm --shard auto
    [ "$(jq -r .custom_id slurm | sort | tr '\n' ' ')" = 'q2 q4 ' ]
    JOB_COMPLETION_INDEX=0 answer --batch in.jsonl -o pod --shard auto/2
    PARALLEL_SEQ=1 answer --batch in.jsonl -o seq --shard auto/2
    [ "$(jq -r .custom_id pod | sort | tr '\n' ' ')" = 'q1 q3 ' ]
    cmp <(jq -r .custom_id pod | sort) <(jq -r .custom_id seq | sort)
    merge in.jsonl slurm pod
    [ "$(wc -l < all)" -eq 4 ]
    SLURM_ARRAY_TASK_ID='' fails 2 'SLURM_ARRAY_TASK_ID= is not a number' answer --batch in.jsonl -o new --shard auto
    fails 2 'none of SLURM_ARRAY_TASK_ID' answer --batch in.jsonl -o new --shard auto
    JOB_COMPLETION_INDEX=x fails 2 'JOB_COMPLETION_INDEX=x is not a number' answer --batch in.jsonl -o new --shard auto/2
    JOB_COMPLETION_INDEX=2 fails 2 'JOB_COMPLETION_INDEX is 2' answer --batch in.jsonl -o new --shard auto/2 # 0 and 1 are there
    for shard in auto/0 0/0 1/0 auto/ auto/x; do fails 2 'not I/N with I from 1 to N' answer --batch in.jsonl -o new --shard $shard; done
    [ ! -e new ]
    [ "$(find . -name '.*batch*' | wc -l)" -eq 0 ]
}

@test "a batch is a regular file, and its ids are kept as they are" {
    batch 2 > in.jsonl
    fails 2 '-: a batch is read more than once' answer --batch - -o new
    fails 2 '-: a batch is read more than once' chimere-serve-stdio --merge new - part
    mkfifo pipe
    fails 2 'pipe: a batch is read more than once' answer --batch pipe -o new
    for id in 'a\u0000b' '\u0000' '\ud800' 'a\udc00'; do
        printf '{"body":{"prompt":"a\\ud800"},"custom_id":"%s","method":"POST","url":"/v1/completions"}\n' "$id" > odd
        fails 3 'odd: line 1: custom_id has \u0000 or half of a surrogate pair' answer --batch odd -o new
    done
    [ ! -e new ]
    jq -c '.custom_id |= "\(.)\ud83d\ude00\ufffd"' in.jsonl > odd
    answer --batch odd -o new
    [ "$(jq -r .custom_id new | sort | tr '\n' ' ')" = "q1$(printf '\U1f600\ufffd') q2$(printf '\U1f600\ufffd') " ]
}

@test "what was refused is asked again with --lenient, and stays answered without it" {
    batch 3 | sed '2s/"max_tokens"/"odd":1,&/' > in.jsonl
    answer --batch in.jsonl -o out.jsonl 2> err
    grep -q '1 of 3 requests were refused' err
    cp out.jsonl before
    answer --batch in.jsonl -o out.jsonl --lenient -v 2> err
    grep -q '1 answered, 2 were there' err && [ ! -s out.jsonl.errors ] && [ "$(wc -l < out.jsonl)" -eq 3 ]
    cmp -n "$(wc -c < before)" before out.jsonl
    answer --batch in.jsonl -o out.jsonl -v 2> err
    grep -q '0 answered, 3 were there' err
    merge in.jsonl out.jsonl
    sed -i '2s/"prompt":"[^"]*"/"prompt":""/' in.jsonl # which --lenient does not help: it is asked once
    answer --batch in.jsonl -o other --lenient 2> err
    jq -e .lenient other.errors
    answer --batch in.jsonl -o other --lenient -v 2> err
    grep -q '0 answered, 3 were there' err
}

@test "outputs that a batch cannot write leave no empty files" {
    batch 2 > in.jsonl
    name=$(printf 'x%.0s' {1..250})
    fails 1 'File name too long' answer --batch in.jsonl -o "$name"
    fails 1 'other.errors: another process writes it' flock other.errors chimere-serve-stdio -m "$TINY" --batch in.jsonl -o new --errors other.errors
    rm other.errors
    for n in 5 6 7 8; do
        got=0
        bash -c "ulimit -n $n"' && exec "$@"' - chimere-serve-stdio -m "$TINY" --batch in.jsonl -o new 2> err 3>&- || got=$?
        [ $got -eq 0 ] || { [ $got -eq 1 ] && grep -q 'Too many open files' err && [ ! -e new ] && [ ! -e new.errors ]; }
        rm -f new new.errors
    done
    : > mine
    fails 1 'no/such' answer --batch in.jsonl -o mine --errors no/such
    [ -e mine ] && rm mine
    mkdir new.errors
    fails 1 'new.errors' answer --batch in.jsonl -o new
    [ "$(echo x* new* other*)" = 'x* new.errors other*' ]
}

@test "SIGTERM ends a batch with 75 while requests are left, and what was answered stays" {
    batch 2 | sed '2s/"max_tokens":2/"max_tokens":400,"ignore_eos":true/' > in.jsonl
    find_shim
    touch hold # until the signal is there, no answer is written
    LD_PRELOAD=$shim CHIMERE_TEST_FAULT_HOLD=$PWD/hold chimere-serve-stdio -m "$TINY" -t 1 --parallel 1 --batch in.jsonl -o out.jsonl 2> err &
    job=$!
    wait_for test -e out.jsonl.errors
    kill -TERM $job
    rm hold
    got=0
    wait $job || got=$?
    [ $got -eq 75 ]
    answer --batch in.jsonl -o out.jsonl
    [ "$(jq -r .custom_id out.jsonl | sort | tr '\n' ' ')" = 'q1 q2 ' ]
}

# slurm ID COUNT SCRIPT ...: as a task of an array, or, with ID "", as a job of its own
slurm()
{
    local id=$1 n=$2
    shift 2
    [ -z "$id" ] || local -x SLURM_ARRAY_TASK_ID=$id SLURM_ARRAY_TASK_MIN=1 SLURM_ARRAY_TASK_MAX=$n SLURM_ARRAY_TASK_STEP=1 \
        SLURM_ARRAY_TASK_COUNT=$n
    CHIMERE_MODEL=$TINY SLURM_JOB_ID=7 SLURM_ARRAY_JOB_ID=6 SLURM_CPUS_ON_NODE=1 bash "$ROOT/share/pipelines/$1" "${@:2}"
}

@test "batch-slurm.sh: shards, the merge of all and no other files, one shard again" {
    batch 5 > in.jsonl
    for i in 1 2; do slurm $i 2 batch-slurm.sh in.jsonl all; done
    slurm '' 0 batch-slurm.sh in.jsonl all
    [ "$(jq -r .custom_id all | tr '\n' ' ')" = 'q1 q2 q3 q4 q5 ' ]
    mv all.shard2 before && rm all
    got=0
    slurm '' 0 batch-slurm.sh in.jsonl all > list 2> err || got=$?
    [ $got -eq 4 ] && [ "$(jq -r .custom_id list | tr '\n' ' ')" = 'q2 q4 ' ]
    SLURM_ARRAY_TASK_ID=2 slurm '' 0 batch-slurm.sh in.jsonl all 2
    cmp <(jq -c '[.custom_id, .response.body.choices]' before) <(jq -c '[.custom_id, .response.body.choices]' all.shard2)
    got=0
    bash "$ROOT/share/pipelines/batch-slurm.sh" in.jsonl all 2> err || got=$?
    [ $got -eq 2 ] && grep -q 'sbatch --array=1-8' err
}

# A task whose program holds its second answer back, and the signals that it gets. Its status is in $got.
slurm_told() # SIGNAL...
{
    touch hold
    got=0
    PATH=$PWD/stubs:$PATH CHIMERE_MODEL=$TINY SLURM_JOB_ID=7 SLURM_ARRAY_JOB_ID=6 SLURM_ARRAY_TASK_ID=1 \
        bash "$ROOT/share/pipelines/batch-slurm.sh" in.jsonl all 1 2> err 3>&- &
    local task=$! signal
    wait_for test -e all.shard1.errors
    for signal; do
        kill -s "$signal" $task
        wait_for test -e told
        rm told
    done
    rm hold
    wait $task || got=$?
}

@test "batch-slurm.sh: at the end of its time a task goes back to the queue, if it has answered anything" {
    find_shim
    batch 3 | sed '3s/"max_tokens":2/"max_tokens":400,"ignore_eos":true/' > in.jsonl
    mkdir stubs
    printf '#!/bin/sh\necho "$@" > requeued\n' > stubs/scontrol
    # the program, which says when it has been told to end
    cat > stubs/chimere-serve-stdio << END
#!/usr/bin/env bash
trap 'kill \$program; : > told' TERM
PATH=$(printf %q "$PATH") LD_PRELOAD=$(printf %q "$shim") CHIMERE_TEST_FAULT_HOLD=hold chimere-serve-stdio --parallel 1 "\$@" &
program=\$!
for _ in 1 2 3; do # a signal ends the wait alone
    wait \$program && status=0 || status=\$?
    [ \$status = 143 ] || break
done
exit \$status
END
    chmod +x stubs/*
    slurm_told USR1
    [ $got -eq 0 ] && [ "$(cat requeued)" = 'requeue 6_1' ] && [ -s all.shard1 ] && [ "$(wc -l < all.shard1)" -lt 3 ]
    grep -q "chimere-serve-stdio: $(wc -l < all.shard1) of 3 requests are answered" err || { cat err; false; }
    grep -q 'batch-slurm.sh: all.shard1: the time is nearly over, back to the queue' err || { cat err; false; }
    rm requeued all.shard1.errors
    sed -i '1q' all.shard1
    for signals in TERM 'USR1 TERM'; do # scancel, also of a task that was told
        # shellcheck disable=SC2086
        slurm_told $signals
        [ $got -eq 75 ] && [ ! -e requeued ]
        rm all.shard1.errors
    done
    slurm 1 1 batch-slurm.sh in.jsonl all
    slurm '' 0 batch-slurm.sh in.jsonl all
    [ "$(jq -r .custom_id all | tr '\n' ' ')" = 'q1 q2 q3 ' ]
    # nothing was answered, perhaps not even begun: it would be so for ever
    printf '#!/bin/sh\nkill -USR1 $PPID; exec sleep 60\n' > stubs/chimere-serve-stdio
    got=0
    PATH=$PWD/stubs:$PATH SLURM_JOB_ID=7 SLURM_ARRAY_JOB_ID=6 SLURM_ARRAY_TASK_ID=1 \
        bash "$ROOT/share/pipelines/batch-slurm.sh" in.jsonl all 1 2> err || got=$?
    [ $got -eq 1 ] && [ ! -e requeued ] && grep -q 'the time (-t) is over before anything was answered' err
}

@test "sweep-slurm.sh: a model for each name, and their table" {
    for i in {1..400}; do echo "A file is a list of bytes, and $i is a number of them."; done > text
    printf '%s\n' '.*=q8_0' > mine.recipe
    for i in 1 2; do slurm $i 2 sweep-slurm.sh "$MODELS/qwen3next-a.gguf" text sweep q4_0 mine.recipe; done
    slurm '' 0 sweep-slurm.sh "$MODELS/qwen3next-a.gguf" text sweep > table
    [ "$(awk 'NR > 1 { print $4 }' table | tr '\n' ' ')" = 'q4_0.gguf mine.recipe.gguf ' ]
    awk 'NR > 1 && ($1 <= last || $2 <= 1 || $3 <= 0) { exit 1 } { last = $1 + 0 } END { exit NR != 3 }' table
    no slurm 3 3 sweep-slurm.sh "$MODELS/qwen3next-a.gguf" text sweep q4_0 mine.recipe 2> err
    grep -q 'no name for task 3' err
    slurm '' 0 sweep-slurm.sh "$MODELS/qwen3next-a.gguf" text sweep q4_0 > again
    cmp again table
    no slurm '' 0 sweep-slurm.sh "$MODELS/qwen3next-a.gguf" text sweep q4_0 q8_0 2> err > again
    cmp again table
    grep -qx 'sweep-slurm.sh: no numbers of q8_0' err
}

@test "batch-parallel.sh: shards on machines, merged" {
    parallel --version 2> /dev/null | grep -q '^GNU parallel' || skip "no GNU parallel"
    batch 5 > in.jsonl
    CHIMERE_MODEL=$TINY bash "$ROOT/share/pipelines/batch-parallel.sh" in.jsonl all : 2> err
    [ "$(jq -r .custom_id all | tr '\n' ' ')" = 'q1 q2 q3 q4 q5 ' ]
}
