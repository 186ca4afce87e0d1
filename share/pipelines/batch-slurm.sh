#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# batch-slurm.sh - one batch file as an array of Slurm jobs: each answers a shard of it, and goes on after a requeue.
#
#   sbatch --array=1-8 batch-slurm.sh BATCH.jsonl OUT.jsonl
#
# Once all are done: for i in {1..8}; do cat OUT.jsonl.$i; done > OUT.jsonl
# Requests that were refused are in OUT.jsonl.N.errors.
#SBATCH --job-name=chimere
#SBATCH --cpus-per-task=8
#SBATCH --requeue
set -euo pipefail
[ $# -eq 2 ] && [ -n "${SLURM_ARRAY_TASK_ID:-}" ] || { sed -n 's/^# \{0,1\}//; 3,8p' "$0" >&2; exit 2; }
exec chimere-serve-stdio -q --threads "${SLURM_CPUS_PER_TASK:-8}" --batch "$1" \
    -o "$2.$SLURM_ARRAY_TASK_ID" --shard "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT"
