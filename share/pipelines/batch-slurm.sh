#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# batch-slurm.sh - one batch file as an array of Slurm jobs, each with a shard of it, and a job that merges them.
#
#   sbatch --array=1-8 batch-slurm.sh BATCH.jsonl OUT.jsonl              the shards; prints the number of the job
#   sbatch -d afterany:NUMBER batch-slurm.sh BATCH.jsonl OUT.jsonl       the merge, when all have ended
#   sbatch --array=3 batch-slurm.sh BATCH.jsonl OUT.jsonl 8              shard 3 of 8 again, which the merge has missed
#
# Options of sbatch come before the script: -c PROCESSORS, --mem=SIZE, -t TIME, --gres=gpu:1 to answer on a GPU.
# A task is told to end two minutes before its time is over; it then goes back to the queue and goes on where it was.
# So it does when its machine is lost.
#SBATCH --job-name=chimere
#SBATCH --cpus-per-task=2
#SBATCH --time=12:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:TERM@120
set -euo pipefail
shopt -s extglob
[ $# -ge 2 ] && [ -n "${SLURM_JOB_ID:-}" ] || { sed -n 's/^# \{0,1\}//; 3,11p' "$0" >&2; exit 2; }
if [ -z "${SLURM_ARRAY_TASK_ID:-}" ]; then
    exec chimere-serve-stdio --merge "$2" "$1" "$2".shard+([0-9])
fi
chimere-serve-stdio -q --threads "${SLURM_CPUS_ON_NODE:-2}" ${SLURM_JOB_GPUS:+--device cuda} --batch "$1" \
    -o "$2.shard$SLURM_ARRAY_TASK_ID" --shard "auto${3:+/$3}" &
program=$! told='' status=0
trap 'told=1; kill -TERM $program 2> /dev/null || true' TERM
wait $program || status=$?
if [ -n "$told" ] && [ $status -gt 128 ]; then # the signal has ended the wait alone
    status=0
    wait $program || status=$?
fi
[ $status -ne 75 ] || exec scontrol requeue "$SLURM_JOB_ID"
exit $status
