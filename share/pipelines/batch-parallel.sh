#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# batch-parallel.sh - one batch file on several machines, with GNU parallel: each answers a shard of it.
#
#   batch-parallel.sh BATCH.jsonl OUT.jsonl MACHINE ...
#
# The machines (":" is this one) have the program, the model ($CHIMERE_MODEL there) and this directory, shared.
# The shard of a machine that is lost goes to another one, which goes on where it was. The same command continues a run
# that was killed. In the end all is merged; requests that were refused are in OUT.jsonl.errors.
set -euo pipefail
[ $# -ge 3 ] || { sed -n 's/^# \{0,1\}//; 3,9p' "$0" >&2; exit 2; }
batch=$1 out=$2
shift 2
IFS=,
seq $# | parallel --wd . -j 1 --retries 3 --ssh "${PARALLEL_SSH:-ssh -o ServerAliveInterval=15}" -S "$*" \
    "chimere-serve-stdio -q --batch ${batch@Q} -o ${out@Q}.shard{} --shard {}/$#"
unset IFS
parts=()
for i in $(seq $#); do parts+=("$out.shard$i"); done
chimere-serve-stdio --merge "$out" "$batch" "${parts[@]}"
