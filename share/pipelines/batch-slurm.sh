#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# batch-slurm.sh - one batch file as an array of Slurm jobs, each with a shard of it, and a job that merges them.
#
#   sbatch --array=1-8 batch-slurm.sh BATCH.jsonl OUT.jsonl              the shards; prints the number of the job
#   sbatch -d afterany:NUMBER batch-slurm.sh BATCH.jsonl OUT.jsonl       the merge, when all have ended
#   sbatch --array=3 batch-slurm.sh BATCH.jsonl OUT.jsonl 8              shard 3 of 8 again, which the merge has missed
#
# Options of sbatch come before the script: -c PROCESSORS, --mem=SIZE, -t TIME, --gres=gpu:1 to answer on a GPU.
# A task is told two minutes before its time is over. If it has answered anything, it then goes back to the queue and
# goes on where it was; so it does when its machine is lost. scancel ends it; the same command goes on.
#SBATCH --job-name=chimere
#SBATCH --cpus-per-task=2
#SBATCH --time=12:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@120
set -euo pipefail
shopt -s extglob
program='' told='' cancelled='' again=''
trap 'told=1; end_program' USR1 # the time is nearly over; it may be the first that happens
trap 'cancelled=1; end_program' TERM
end_program()
{
    again=1
    [ -z "$program" ] || kill -TERM "$program" 2> /dev/null || true
}
[ $# -ge 2 ] && [ -n "${SLURM_JOB_ID:-}" ] || { sed -n 's/^# \{0,1\}//; 3,11p' "$0" >&2; exit 2; }
if [ -z "${SLURM_ARRAY_TASK_ID:-}" ]; then
    exec chimere-serve-stdio --merge "$2" "$1" "$2".shard+([0-9])
fi
out=$2.shard$SLURM_ARRAY_TASK_ID
lines() { { cat "$out" "$out.errors" 2> /dev/null || true; } | wc -l; }
before=$(lines)
chimere-serve-stdio --threads "${SLURM_CPUS_ON_NODE:-2}" ${SLURM_JOB_GPUS:+--device cuda} --batch "$1" -o "$out" \
    --shard "auto${3:+/$3}" &
program=$!
[ -z "$again" ] || end_program
again=1
while [ -n "$again" ]; do # a signal ends the wait alone
    again='' status=0
    wait $program || status=$?
done
[[ $status =~ ^(75|143)$ && -n $told && -z $cancelled ]] || exit "$status" # 143: it had hardly begun
if [ "$(lines)" -le "$before" ]; then
    echo "batch-slurm.sh: $out: the time (-t) is over before anything was answered, so the task does not go back to the queue" >&2
    exit 1
fi
echo "batch-slurm.sh: $out: the time is nearly over, back to the queue" >&2
exec scontrol requeue "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID" # SLURM_JOB_ID of the last task means all of them
