#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# batch-parallel.sh - one batch file on several machines, with GNU parallel: each answers a shard of it.
#
#   batch-parallel.sh BATCH.jsonl OUT.jsonl MACHINE ...
#
# The machines (":" is this one) have the program, the model ($CHIMERE_MODEL there) and this directory, shared.
# The shard of a machine that is lost goes to another one, which goes on where it was. The same command continues a run
# that was killed; SIGTERM, SIGINT and SIGHUP end all workers first. In the end all is merged; requests that were
# refused are in OUT.jsonl.errors.
set -euo pipefail
[ $# -ge 3 ] || { sed -n 's/^# \{0,1\}//; 3,10p' "$0" >&2; exit 2; }
batch=$1 out=$2 parts=() workers=''
shift 2
for ((i = 1; i <= $#; i++)); do parts+=("$out.shard$i"); done

# parallel ends what runs here. A worker elsewhere ends when its connection is lost, a second later: its lock says so.
end_by() # SIGNAL
{
    local part
    trap '' TERM INT HUP
    while [ -n "$workers" ] && kill -TERM "$workers" 2> /dev/null; do # before the first job has begun, parallel takes no notice
        timeout 12 tail -s 0.1 --pid="$workers" -f /dev/null || true
    done
    for part in "${parts[@]}"; do
        [ ! -e "$part" ] || flock -w 15 "$part" true || true
    done
    trap - "$1"
    kill -s "$1" $$
}

for signal in TERM INT HUP; do
    # shellcheck disable=SC2064
    trap "end_by $signal" $signal
done
IFS=,
seq $# | parallel --wd . -j 1 --retries 3 --termseq TERM,10000,KILL,25 --ssh "${PARALLEL_SSH:-ssh -o ServerAliveInterval=15}" \
    -S "$*" "chimere-serve-stdio --batch ${batch@Q} -o ${out@Q}.shard{} --shard {}/$#" &
workers=$!
unset IFS
wait "$workers"
trap - TERM INT HUP
chimere-serve-stdio --merge "$out" "$batch" "${parts[@]}"
