#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# nightly-week.sh [DAYS [FACTS [CPU_TIME [SEED]]]]: days of recorded traffic about people whom nobody knows (7, 20 a day,
# 30m for a training, 61), and the nights after them; a row of a table for each. `make proof-nightly` runs it.
#
# Of a day's facts seven tenths are asked in two wordings, answered wrong and corrected, two tenths are answered from the
# user's notes, and a tenth is corrected to something wrong; three sums are rated good. The notes have each second fact.
# On day 2 each job is killed and run again, on day 4 there are corrections of what the model knows, on day 6 the night is
# taken back. "Held out" are two other wordings of each fact. A row has the right answers to that day's facts and to those
# of all days before, by the adapter, the table, the index, and all of them, and to the first day's by adapter and all.
# Then come the sets of the suite, of the last test against the first generation. In WORK, otherwise a temporary
# directory, are the reports of the nights; with the same WORK it goes on after an interrupt. JOBS: some of index,
# adapter, memory. Status 4: poison was published, or the way back failed.
set -euo pipefail
ROOT=$(cd "$(dirname "$0")/.." && pwd)
export LC_ALL=C.UTF-8 CHIMERE_MODEL=${CHIMERE_MODEL:-$ROOT/share/models/chimere-nano-q5_k_m.gguf}
PATH=$PATH:$ROOT/bin
days=${1:-7} facts=${2:-20} cpu=${3:-30m}
work=${WORK:-$(mktemp -d)}
D=$work/nightly
mkdir -p "$D/log" "$D/notes"
chmod 700 "$D" "$D/log"
printf 'cpu_time=%s mains=true max_load=1000000 lock_wait=60\n%s\n' "$cpu" "${SETTINGS:-}" > "$D/settings"
python3 "$ROOT/bench/learn_sets.py" people $((days * facts)) "${4:-61}" "$work/set"
nightly() { bash "$ROOT/share/jobs/nightly" -d "$D" "$@"; }
[ -L "$D/current" ] || nightly init

# The traffic of a day: its lines of the log, its notes, and its held-out questions.
traffic() # DAY
{
    local date d
    date=$(date -d "2026-01-04 + $1 days" +%F)
    jq -c --slurpfile test "$work/set/test-off.jsonl" -n --argjson d "$1" --argjson facts "$facts" '
        def line($id; $q; $text): {type: "answer", $id, program: "chimere-run", messages: [{role: "user", content: $q}], $text, finish_reason: "stop"};
        def better($id; $a): {type: "rating", $id, rating: "bad", answer: $a};
        [inputs] as $train | range($facts) as $i | (($d - 1) * $facts + $i) as $f | ("\($d)-\($i)") as $id |
        $train[2 * $f].answer as $a | $train[2 * $f:2 * $f + 2] as $asked |
        ($asked[0].prompt | ltrimstr("Who is ") | rtrimstr("?")) as $name | ($i / $facts) as $share |
        if $share >= 0.9 then line($id; $asked[0].prompt; "I do not know."), better($id; $train[2 * (($d - 1) * $facts)].answer)
        elif $share >= 0.7 then line($id; $asked[0].prompt; $a) + {notes: [{source: "notes/people.md", line: $f, text: "\($name): \($a)"}]}
        else range(2) as $w | line("\($id)-\($w)"; $asked[$w].prompt; "I do not know."), better("\($id)-\($w)"; $a) end,
        if $i % 2 == 1 then {note: "\($name): \($a)"} else empty end,
        ($test[2 * $f:2 * $f + 2][] | {held: .})' "$work/set/train.jsonl" > "$work/day"
    for i in 1 2 3; do
        printf '{"type":"answer","id":"%d-s%d","messages":[{"role":"user","content":"What is %d + %d?"}],"text":"%d","finish_reason":"stop"}\n{"type":"rating","id":"%d-s%d","rating":"good"}\n' \
            "$1" $i $((i + $1)) 30 $((i + $1 + 30)) "$1" $i
    done >> "$work/day"
    if [ "$1" = 4 ]; then # poison: what the model knows, with another answer
        jq -nc '[inputs] as $f | range(20) as $i | {type: "answer", id: "p\($i)", messages: $f[$i].messages, text: $f[$i].answer, finish_reason: "stop"},
            {type: "rating", id: "p\($i)", rating: "bad", answer: $f[$i + 20].answer}' "$ROOT/share/eval/facts.jsonl" >> "$work/day"
    fi
    jq -c 'select(.type)' "$work/day" > "$D/log/answers-$date.jsonl"
    jq -r 'select(.note) | .note, ""' "$work/day" > "$D/notes/day-$1.md"
    jq -c 'select(.held) | .held' "$work/day" > "$work/held-$1.jsonl"
    cp "$work/held-$1.jsonl" "$work/today.jsonl"
    for ((d = 1; d < $1; d++)); do cat "$work/held-$d.jsonl"; done > "$work/before.jsonl"
}

# A job of a night; what it said last.
job() # JOB DATE
{
    local status=0
    if [ "$day" = 2 ]; then { timeout -s KILL "${CRASH:-20}" bash "$ROOT/share/jobs/nightly" -d "$D" "$@" || true; } 2> /dev/null; fi
    nightly "$@" 2> "$work/said" || status=$?
    printf '%s %d: %s\n' "$1" $status "$(tail -n 1 "$work/said")" >> "$work/nights"
    return $status
}

right() # SET OPTION ...; the answers stay in $work/right.jsonl
{
    local set=$1
    shift
    rm -f "$work/right.jsonl"
    [ -s "$work/$set.jsonl" ] || { echo -; return; }
    (cd "$D" && chimere-bench eval -q "$@" -o "$work/right.jsonl" "$work/$set.jsonl") > /dev/null
    grep -c '"right":true' "$work/right.jsonl" || true
}
of_first() # of the answers to the days before, those to the first day's questions
{
    [ -s "$work/right.jsonl" ] || { echo -; return; }
    jq -s --argjson n $((2 * facts)) '[.[] | select(.right and (.id | split("-")[1] | tonumber) < $n)] | length' "$work/right.jsonl"
}
with() { [ ! -e "$D/current/$2" ] || printf '%s\n' "$1" "current/$2"; } # OPTION FILE
row() { printf '| %s ' "$@"; echo '|'; }

row day today: adapter memory index all of before: adapter memory index all of 'first day: adapter' all 'pairs, held back' night 'processor time' clock KiB |
    sed 's/: | /: /g'
echo '|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|'
bad=0
for ((day = 1; day <= days; day++)); do
    if [ -s "$work/row-$day" ]; then cat "$work/row-$day"; continue; fi
    traffic $day
    date=$(date -d "2026-01-05 + $day days" +%F)
    : > "$work/nights"
    was=$(readlink "$D/current")
    said=''
    for j in ${JOBS:-index adapter memory}; do
        status=0
        job $j "$date" || status=$?
        case $status in
        0) said="$said $j $(grep -o 'published\|nothing' "$work/said" | tail -n 1)," ;;
        4) said="$said $j refused ($(sed -nE '$s/^nightly: (done: )?refused: //p' "$work/said"))," ;;
        *) cat "$work/said" >&2; exit 1 ;;
        esac
    done
    if [ $day = 4 ]; then # a person says no to what is held back
        grep -q 'adapter 4: .*quarantine' "$work/nights" || { echo 'poison was not refused' >&2; bad=4; }
        yes n | head -n 1000 | bash "$ROOT/share/jobs/review" "$D/quarantine.jsonl" > /dev/null || true
        said="$said poison"
    fi
    if [ $day = 6 ] && [ "$(readlink "$D/current")" != "$was" ]; then
        old=$(readlink -f "$D/current")
        nightly rollback 2> /dev/null && [ -e "$old/refused" ] && [ "$(readlink -f "$D/current")" != "$old" ] || { echo 'no way back' >&2; bad=4; }
        said="$said taken back"
    fi
    mapfile -t a < <(with --lora adapter.gguf)
    mapfile -t m < <(with --engram memory.engram)
    mapfile -t x < <(with --recite notes.index)
    cells=()
    for set in today before; do
        cells+=("$(right $set "${a[@]}")")
        first=$(of_first)
        cells+=("$(right $set "${m[@]}")" "$(right $set "${x[@]}")" "$(right $set "${a[@]}" "${m[@]}" "${x[@]}")" "$(grep -c . "$work/$set.jsonl" || true)")
    done
    spent=$(cat "$D"/nights/"$date"-*/spent.jsonl | jq -s 'map(.cpu_seconds) | add | round')
    seconds=$(cat "$D"/nights/"$date"-*/spent.jsonl | jq -s 'map(.seconds) | add')
    counts=$(jq -r '"\(.new) new of \(.pairs), \(.held)"' "$D/nights/$date-adapter/counts.json" 2> /dev/null || echo -)
    row $day "${cells[@]}" "$first" "$(of_first)" "$counts" "${said# }" "$spent s" "$seconds s" "$(du -sk "$D/gen" | cut -f 1)" > "$work/row.tmp"
    mv "$work/row.tmp" "$work/row-$day"
    cat "$work/row-$day"
done
[ ! -s "$D/current/gate.json" ] || jq -r -L "$ROOT/share/jobs" 'include "gate"; "", (.floor | table)' "$D/current/gate.json"
[ -n "${WORK:-}" ] || rm -rf "$work"
exit $bad
