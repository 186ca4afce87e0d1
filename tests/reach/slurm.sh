#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# slurm.sh - batches as arrays of a real Slurm: one node with slurmctld, slurmd and munged.
# packages: slurm-wlm munge procps jq mount zstd
script=$(realpath "$0") here=$(realpath "$(dirname "$0")/../..")
. "$here/tests/reach/lib.sh"
BIN=$(realpath "${BIN:-$here/bin}") pipelines=$here/share/pipelines

# A node with a GPU that is none. A requeued job waits cred_expire, by default two minutes.
start_slurm()
{
    local host
    host=$(hostname -s)
    mkdir -p /etc/slurm /run/munge slurm/state slurm/spool
    chown munge: /run/munge
    runuser -u munge -- munged
    cat > /etc/slurm/slurm.conf << END
ClusterName=reach
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=cred_expire=2
CredType=cred/munge
StateSaveLocation=$PWD/slurm/state
SlurmdSpoolDir=$PWD/slurm/spool
SlurmctldPidFile=$PWD/slurm/ctld.pid
SlurmdPidFile=$PWD/slurm/d.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
KillWait=5
SchedulerParameters=sched_interval=2,batch_sched_delay=1,bf_interval=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
GresTypes=gpu
NodeName=$host NodeAddr=127.0.0.1 CPUs=2 RealMemory=4000 Gres=gpu:1
PartitionName=all Nodes=ALL Default=YES State=UP
END
    printf 'AutoDetect=off\nName=gpu File=/dev/null\n' > /etc/slurm/gres.conf
    slurmctld -L "$PWD/slurm/ctld.log"
    slurmd -L "$PWD/slurm/d.log"
    wait_for idle || { tail -n 5 slurm/*.log; return 1; }
}
idle() { [ "$(sinfo -h -o %t 2> /dev/null)" = idle ]; }
wait_for() # COMMAND...: for three minutes
{
    local i
    for ((i = 0; i < 3000; i++)); do
        ! "$@" || return 0
        sleep 0.2
    done
    echo "waited in vain: $*"
    squeue
    return 1
}
over() { [ -z "$(squeue -h -j "$1" 2> /dev/null)" ]; }
state() { scontrol show job "$1" | grep -o 'JobState=[A-Z]* ' | head -n 1; }
has_lines() { [ -s "$1" ]; }
submit() { sbatch --parsable -o "$PWD/log.%j" "$@"; }
batch() # N TOKENS
{
    for ((i = 1; i <= $1; i++)); do
        printf '{"custom_id":"q%d","method":"POST","url":"/v1/completions","body":{"prompt":"Chapter %d","max_tokens":%d,"ignore_eos":true,"seed":7}}\n' $i $i "$2"
    done
}
proved() # OUT: the merge has each request once, and its answers are those of one process
{
    diff <(jq -r .custom_id in.jsonl) <(jq -r .custom_id "$1")
    [ -e one ] || chimere-serve-stdio -q --batch in.jsonl -o one
    diff <(jq -c '[.custom_id, .response.body.choices]' one | sort) <(jq -c '[.custom_id, .response.body.choices]' "$1" | sort)
}

# Which options the program gets on the node: the processors of the task, and the GPU only if one was asked for.
options_of_a_task()
{
    batch 4 2 > in.jsonl
    mkdir -p seen
    printf '#!/bin/sh\necho "$@" > "seen/$SLURM_ARRAY_TASK_ID"\n' > seen/chimere-serve-stdio
    chmod +x seen/chimere-serve-stdio
    for ask in '-c 1' '-c 2' '-c 1 --gres=gpu:1' '--exclusive'; do
        # shellcheck disable=SC2086
        PATH=$PWD/seen:$PATH submit -W --array=1 --mem=500M $ask "$pipelines/batch-slurm.sh" in.jsonl all
        { cat seen/1; echo " # $ask"; } | sed -E 's/--batch [^#]*//' | tr -d '\n' >> options
        echo >> options
    done
    diff options - << 'END'
--threads 1  # -c 1
--threads 2  # -c 2
--threads 1 --device cuda  # -c 1 --gres=gpu:1
--threads 2 --device cuda  # --exclusive
END
    # a GPU that no node has is refused at once
    ! submit --array=1 --gres=gpu:2 "$pipelines/batch-slurm.sh" in.jsonl all 2> why
    grep 'Requested node configuration is not available' why
}

kill_requeue_full_disk()
{
    local job merge
    rm -f one
    batch 40 60 > in.jsonl
    mkdir small
    mount -t tmpfs -o size=8k none small
    ln -s "$PWD/small/part" all.shard4
    job=$(submit --array=1-4 -c 1 --mem=500M "$pipelines/batch-slurm.sh" in.jsonl all)
    merge=$(submit -c 1 --mem=500M -d "afterany:$job" "$pipelines/batch-slurm.sh" in.jsonl all)
    wait_for has_lines all.shard1
    kill -9 "$(pgrep -f 'chimere-serve-stdio.*all[.]shard1 ')"
    wait_for has_lines all.shard2
    scontrol requeue "${job}_2"
    wait_for over "$merge"
    scontrol show job "${job}_2" | grep 'Restarts=1 '
    state "${job}_2" | grep COMPLETED
    state "${job}_1" | grep FAILED
    state "${job}_4" | grep FAILED
    grep -h 'No space left' log.*
    scontrol show job "$merge" | grep 'ExitCode=4:0'
    [ ! -e all ]
    # exactly the requests of these two shards are missing, and only these
    grep -h '"missing"' "log.$merge" | jq -r .custom_id > missing
    [ -s missing ] && ! awk '{ n = substr($0, 2) % 4 } n != 1 && n != 0 { print; bad = 1 } END { exit !bad }' missing
    mount -o remount,size=1m small
    job=$(submit --array=1,4 -c 1 --mem=500M "$pipelines/batch-slurm.sh" in.jsonl all 4)
    merge=$(submit -W -c 1 --mem=500M -d "afterany:$job" "$pipelines/batch-slurm.sh" in.jsonl all)
    proved all
}

# held OUT: a program of which the first run of a task stands still after some answers until it is told to end
held()
{
    mkdir -p held
    cat > held/chimere-serve-stdio << 'END'
#!/bin/bash
[ "${SLURM_RESTART_COUNT:-0}" -eq 0 ] && [ -n "$SLURM_ARRAY_TASK_ID" ] || exec "$BIN/chimere-serve-stdio" "$@"
"$BIN/chimere-serve-stdio" "$@" &
until [ -s "$HELD.shard$SLURM_ARRAY_TASK_ID" ]; do sleep 0.01; done
kill -STOP $!
trap 'kill -TERM $!; kill -CONT $!' TERM
wait $!
wait $!
END
    chmod +x held/chimere-serve-stdio
    export HELD=$1
}
restarts() { scontrol show job "$1" | grep -q "Restarts=$2 "; }

time_limit()
{
    local job merge
    rm -f one
    batch 24 20 > in.jsonl
    held limited
    # Slurm looks twice a minute, and tells the end of a minute 55 seconds before
    job=$(PATH=$PWD/held:$PATH submit --array=1-2 -c 1 --mem=500M -t 1 --signal=B:USR1@55 "$pipelines/batch-slurm.sh" in.jsonl limited)
    merge=$(submit -c 1 --mem=500M -d "afterany:$job" "$pipelines/batch-slurm.sh" in.jsonl limited)
    wait_for over "$merge"
    for i in 1 2; do restarts "${job}_$i" 1; done
    grep -h 'batch-slurm.sh: limited.shard[12]: the time is nearly over' log.* | sort -u | wc -l | grep -x 2
    proved limited
}

# The last task, whose SLURM_JOB_ID is that of the array, is told alone: the others go on. Then all are cancelled.
told_and_cancelled()
{
    local job
    rm -f one
    batch 24 20 > in.jsonl
    held alone
    job=$(PATH=$PWD/held:$PATH submit --array=1-2 -c 1 --mem=500M "$pipelines/batch-slurm.sh" in.jsonl alone)
    wait_for has_lines alone.shard1
    wait_for has_lines alone.shard2
    scancel -b -s USR1 "${job}_2"
    wait_for restarts "${job}_2" 1
    state "${job}_1" | grep RUNNING
    restarts "${job}_1" 0
    wait_for over "${job}_2"
    scancel "$job"
    wait_for over "$job"
    sleep 5 # longer than cred_expire, after which a requeued job would be there
    over "$job"
    state "${job}_1" | grep CANCELLED
    restarts "${job}_1" 0
    [ "$(wc -l < alone.shard1)" -lt 12 ] && [ "$(wc -l < alone.shard2)" -eq 12 ]
    submit -W --array=1 -c 1 --mem=500M "$pipelines/batch-slurm.sh" in.jsonl alone 2
    submit -W -c 1 --mem=500M "$pipelines/batch-slurm.sh" in.jsonl alone
    proved alone
}

# The time is shorter than the warning: nothing would be answered, however often.
too_short()
{
    local job
    batch 4 2 > in.jsonl
    mkdir -p never
    printf '#!/bin/sh\nexec sleep 600\n' > never/chimere-serve-stdio
    chmod +x never/chimere-serve-stdio
    job=$(PATH=$PWD/never:$PATH submit --array=1 -c 1 --mem=500M -t 1 "$pipelines/batch-slurm.sh" in.jsonl short)
    wait_for over "$job"
    restarts "${job}_1" 0
    state "${job}_1" | grep FAILED
    grep -h 'short.shard1: the time (-t) is over before anything was answered' log.*
}

# A type, a recipe and a budget of a small model, one task each, and their table: it has the numbers of programs without Slurm.
sweep()
{
    local job
    mkdir -p sweep
    zstd -dqf "$here/tests/golden/models/qwen35moe-a.gguf.zst" -o sweep/source
    zstd -dcq "$here/share/eval/heldout-docs.txt.zst" | head -c 3000 > sweep/text
    printf 'default q8_0\nffn = q4_0\n' > sweep/mine.recipe
    chimere-quantize -q --measure sweep/losses --method probes --random --tokens 64 sweep/source
    job=$(submit --array=1-4 -c 1 --mem=500M "$pipelines/sweep-slurm.sh" sweep/source sweep/text sweep q8_0 sweep/mine.recipe size=500000 no_type)
    ! submit -W -c 1 --mem=500M -d "afterany:$job" -o table "$pipelines/sweep-slurm.sh" sweep/source sweep/text sweep q8_0 no_type
    cat table
    [ "$(grep -c '^sweep-slurm.sh: no numbers of no_type$' table)" -eq 1 ] && sed -i '/^sweep-slurm.sh/d' table
    submit -W -c 1 --mem=500M "$pipelines/sweep-slurm.sh" sweep/source sweep/text sweep q8_0
    chimere-quantize -q -t q8_0 sweep/source by-hand.gguf
    cmp by-hand.gguf sweep/q8_0.gguf
    chimere-bench ppl -q -m by-hand.gguf --threads 1 --json sweep/text > by-hand
    for f in size=500000 mine.recipe q8_0; do
        printf '%s %.4f\n' "$(stat -c %s "sweep/$f.gguf")" "$(jq .ppl "sweep/$f.ppl.json")"
    done > wanted
    diff <(awk 'NR > 1 { print $1, $2 }' table) wanted
    [ "$(jq .ppl by-hand)" = "$(jq .ppl sweep/q8_0.ppl.json)" ]
    [ "$(stat -c %s sweep/size=500000.gguf)" -le 500000 ]
}

if [ $# -gt 0 ]; then # one of these, with set -e, which try would take away
    set -eu
    "$@"
    exit
fi
command -v slurmctld munged jq > /dev/null && [ "$(id -u)" = 0 ] || skip 'needs slurmctld, slurmd, munged and jq, as root'
[ ! -e /etc/slurm/slurm.conf ] || skip 'this machine has a Slurm of its own'
work=$(mktemp -d) && cd "$work" || exit 1
export PATH=$BIN:$PATH BIN
one() { bash "$script" "$@"; }
stop_slurm()
{
    local p
    for p in slurm/d.pid slurm/ctld.pid /run/munge/munged.pid; do [ ! -e $p ] || kill "$(cat $p)"; done
    umount -q small
    rm -f /etc/slurm/slurm.conf /etc/slurm/gres.conf
}
trap stop_slurm EXIT
if ! one start_slurm > start.log 2>&1; then
    cat start.log
    echo "reach/slurm: 0 passed, 1 failed: Slurm does not start"
    exit 1
fi
try 'a task has the processors and the GPU that it got; a GPU that no node has is refused' one options_of_a_task
try 'kill -9 of a task, a requeue, a full disk: the merge tells what is missing, then has all' one kill_requeue_full_disk
try 'the end of a task'"'"'s time: it is told before, goes back to the queue, and all is answered' one time_limit
try 'a task that is told goes back alone; scancel ends an array for good' one told_and_cancelled
try 'a time that is too short for any answer ends a task' one too_short
try 'a sweep of types, recipes and budgets, and its table' one sweep
finish
