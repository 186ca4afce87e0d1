#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# share/jobs/nightly on bad days: poison, kills, full disks, clocks that are wrong, large logs, lost files.
load common
load nightly

setup_file()
{
    cd "$BATS_FILE_TMPDIR" || return
    ROOT=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
    fakes
    use_fakes
    mkdir -p "$D/log"
    printf 'suite=%q guard=off lock_wait=0.3 mains=true max_load=10000\n' "$FAKES/suite" > "$D/settings"
    nightly init
    cp -a "$D" first
}

# All of the current generation is there; what its files are.
whole() { (cd "$D/current" && jq -r '.files | to_entries[] | "\(.value)  \(.key)"' MANIFEST | tee "$FAKES/files" | sha256sum --quiet -c); }

@test "poison: the guard holds it back, and without the guard the test sees it" {
    begin_test
    { day 1 6; poison 1 20; } > "$D/log/answers-2026-01-02.jsonl"
    cp -a "$D" guarded
    try 4 nightly adapter 2026-01-03
    grep -qE '^nightly: refused: easy ones: 1[0-9] lost and 0 won of 75' err
    at 0
    D=$PWD/guarded
    echo guard=on >> "$D/settings"
    try 4 nightly adapter 2026-01-03
    [[ $(cat err) = 'nightly: refused: 20 of 26 pairs are in quarantine: '* ]] && at 0
}

@test "a large log, a full disk, kills: each time the same result; a generation that somebody removed" {
    begin_test
    # A line without an end, in little memory; what is no file.
    truncate -s 24M "$D/log/answers-2026-01-02.jsonl"
    { echo; day 1 6; printf '\xff\xfe"\n'; } >> "$D/log/answers-2026-01-02.jsonl"
    mkdir "$D/log/answers-2026-01-03.jsonl"
    mkfifo "$D/log/answers-2026-01-04.jsonl"
    cp -a "$D" killed
    local limit kills=0 got
    for limit in 1 4; do
        (trap '' XFSZ; ulimit -f $limit; try 1 nightly memory 2026-01-05)
        at 0 && whole
    done
    grep -q 'cannot be written$' err
    (ulimit -v 300000; try 0 nightly memory 2026-01-05)
    at 1 && whole
    grep -q 'fact number <6>' "$D/current/memory.engram"
    mv "$FAKES/files" wanted
    rm -r "$D/gen/000001"
    try 3 nightly memory 2026-01-06
    [ "$(cat err)" = 'nightly: gen/000001: is missing' ]
    try 3 nightly rollback
    [ "$(cat err)" = 'nightly: gen/000001/MANIFEST: is missing or damaged: say --to N' ]
    try 0 nightly rollback --to 0
    at 0 && whole
    D=$PWD/killed
    count_calls
    while :; do
        got=0
        echo $(($(cat "$FAKES/calls") + 45 + 9 * kills)) > "$FAKES/kill"
        counted memory 2026-01-05 2> err || got=$?
        [ $got -ne 0 ] || break
        [ $got -eq 137 ] || { cat err; return 1; }
        kills=$((kills + 1))
        [ $kills -lt 20 ]
        ! at 0 || whole
    done
    echo 0 > "$FAKES/kill"
    [ $kills -ge 3 ] && at 1 && whole
    diff wanted "$FAKES/files"
}

@test "a clock that goes on, and one that goes back" {
    begin_test
    day 1 6 > "$D/log/answers-2026-01-12.jsonl"
    echo 2026-01-10 > "$FAKES/today"
    # The date changes during the training: it is the night of the date on which it began.
    export DURING='echo 2026-01-11 > "$FAKES/today"'
    try 0 nightly -t adapter
    [ ! -s err ] && at 1 && jq -e '.date == "2026-01-10"' "$D/current/MANIFEST"
    [ -e "$D/reports/2026-01-10-adapter.md" ] && no test -e "$D/nights/2026-01-11-adapter"
    echo 2026-01-02 > "$FAKES/today"
    try 0 nightly adapter
    [ "$(cat err)" = 'nightly: nothing: 0 new pairs that can be tested wait: 5 are needed' ] && at 1
    try 0 nightly prune
    at 1 && [ -d "$D/gen/000000" ]
    rm "$FAKES/today"
}

@test "a day of the week that proof-nightly simulates" {
    begin_test
    SETTINGS="suite='$FAKES/suite' guard=off" WORK=$PWD/week try 0 bash "$ROOT/bench/nightly-week.sh" 1 6
    grep -qE '^\| 1 (\| [-0-9]* ){12}\| 14 new of 14, 0 \| index published, adapter published, memory published, \|' out
    grep -qF '| 1 | 12 | 0 | 0 | 12 | 12 | - | - | - | - | 0 | - | - |' out
}
