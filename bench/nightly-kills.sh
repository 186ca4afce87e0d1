#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# nightly-kills.sh [STRIDE [JOB ...]]: nights that are killed by SIGKILL before or after each STRIDE-th call of sync, mv, ln, cp, rm,
# sha256sum, cmp or jq (1: each call), or to whom each third of these says that the disk is full, and then run again. After
# the kill the generation in use has to be whole, and at the end the result has to be the same to the byte. Programs stand
# where the model would run (tests/cli/nightly.bash). tests/cli/bad_nights.bats does it for a few kills of one night.
set -eu
ROOT=$(cd "$(dirname "$0")/.." && pwd)
stride=${1:-1}
shift || true
[ $# -gt 0 ] || set -- adapter memory index prompts
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
BATS_FILE_TMPDIR=$work
. "$ROOT/tests/cli/nightly.bash"
fakes
use_fakes
mkdir -p "$D/log" "$D/notes" "$D/prompts"
printf 'suite=%q guard=off lock_wait=0.3 mains=true max_load=10000\n' "$FAKES/suite" > "$D/settings"
day 1 6 > "$D/log/answers-2026-01-02.jsonl"
printf 'Zebras are striped.\n\nOwls hoot.\n' > "$D/notes/a b.md"
seq 48 | jq -c '{id: ., messages: [{role: "user", content: "write \(.)"}], answer: "form: \(.)", form: true}' > "$D/prompts/a form.jsonl"
nightly init
cp -a "$D" first
count_calls
plain=${PATH//"$FAKES/counted:"/}

fresh() { rm -rf -- "$D" && cp -a first "$D"; }
# The files of the current generation, which have to be those of its MANIFEST.
files() { (PATH=$plain; cd "$D/current" && jq -r '.files | to_entries[] | "\(.value)  \(.key)"' MANIFEST | tee "$FAKES/files" | sha256sum --quiet -c); }
# What a night has done to the generation in use: the old one, or the whole new one.
check() { files && { [ "$(readlink "$D/current")" = gen/000000 ] || cmp -s files "wanted.$1"; }; }

for job; do
    fresh
    echo 0 > calls
    counted $job 2026-01-03 2> said
    files && mv files "wanted.$job"
    calls=$(cat calls)
    for how in kill full; do
        n=0 other=0 old=0 wrong=0
        for ((i = 1; i <= calls; i += $([ $how = kill ] && echo $stride || echo $((3 * stride))))); do
            fresh
            echo 0 > calls
            echo $i > $how
            got=0
            counted $job 2026-01-03 2> said || got=$?
            rm -f full
            echo 0 > kill
            n=$((n + 1))
            [ $got -ne 0 ] || { other=$((other + 1)); continue; }
            check $job || wrong=$((wrong + 1))
            [ "$(readlink "$D/current")" != gen/000000 ] || old=$((old + 1))
            counted $job 2026-01-03 2> said || { cat said; wrong=$((wrong + 1)); }
            files && cmp -s files "wanted.$job" && [ "$(readlink "$D/current")" = gen/000001 ] || { echo "$job $how $i"; wrong=$((wrong + 1)); }
        done
        echo "{\"job\": \"$job\", \"how\": \"$how\", \"calls\": $calls, \"runs\": $n, \"not_hit\": $other, \"old_one_in_use\": $old, \"wrong\": $wrong}"
    done
done 2> shell
