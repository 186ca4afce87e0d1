#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# batch-parallel.sh - one batch file on several machines, with GNU parallel: each answers a shard of it.
#
#   batch-parallel.sh BATCH.jsonl OUT.jsonl MACHINE ...
#
# The machines (":" is this one) have the program, the model ($CHIMERE_MODEL there) and this directory, shared.
# The same command continues a run that was killed. Requests that were refused are in OUT.jsonl.N.errors.
set -euo pipefail
[ $# -ge 3 ] || { sed -n 's/^# \{0,1\}//; 3,8p' "$0" >&2; exit 2; }
batch=$1 out=$2
shift 2
IFS=,
seq $# | parallel --wd . -j 1 -S "$*" "chimere-serve-stdio -q --batch ${batch@Q} -o ${out@Q}.{} --shard {}/$#"
unset IFS
for i in $(seq $#); do cat "$out.$i"; done > "$out.new"
mv "$out.new" "$out"
