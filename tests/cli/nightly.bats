#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# share/jobs/nightly: nights, what is refused, what was killed, generations and the way back.
load common
load nightly

# A directory with the first generation, and a night whose trainer killed it and went on, is made once.
setup_file()
{
    cd "$BATS_FILE_TMPDIR" || return
    ROOT=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
    fakes
    use_fakes
    mkdir -p "$D/log" "$D/rehearse"
    seq 900 | jq -c '{id: "more\(.)", messages: [{role: "user", content: "more \(.)?"}], answer: "more\(.)"}' > "$D/rehearse/easy ones.jsonl"
    printf 'suite=%q guard=off lock_wait=0.3 mains=true max_load=10000\n' "$FAKES/suite" > "$D/settings"
    day 1 6 > "$D/log/answers-2026-01-02.jsonl"
    printf '{"type":"answer","id":"half' >> "$D/log/answers-2026-01-02.jsonl"
    export DURING='kill -9 $PPID; echo $$ > "$FAKES/orphan"; exec sleep 60 3>&-'
    nightly adapter 2026-01-03 2> killed || [ $? -eq 137 ]
    cp -a "$D" first
}

# What a day of six corrections says, as texts.
told() { seq 6 | sed 's/.*/zq&x: fact number <&>/'; }

teardown_file() { kill "$(cat "$BATS_FILE_TMPDIR/orphan")" 2> /dev/null || true; }

@test "a killed night goes on, its orphan ends, and it publishes what it tested, once a date" {
    # The orphan of the first directory holds its lock. The night's log has grown: it goes on with what it began with.
    use_fakes
    D=$FAKES/'a night
of b'
    { day 1 6 | sed 's/a[1-6]"/b"/; s/fact/another/'; day 7 7; } > "$D/log/answers-2026-01-03.jsonl"
    # Now it is killed when the link was exchanged.
    touch "$FAKES/alone" # and the first answer of those whose speed is measured comes twice as fast
    printf 'reload=%q\n' 'echo told >> "$FAKES/told"; [ -e "$FAKES/spared" ] || kill -9 $PPID' >> "$D/settings"
    nightly -v adapter 2026-01-03 2> err || [ $? -eq 137 ]
    grep -q "^nightly: ends what a killed one started: .*$(cat "$FAKES/orphan") " err
    grep -q '^nightly: asked: was done$' err && at 1
    touch "$FAKES/spared"
    mkdir "$D/nights/2025-12-01-index" && touch -d 2025-12-01 "$D/nights/2025-12-01-index"
    try 0 nightly -t adapter 2026-01-03
    [ ! -s err ] && at 1 && no test -e "$D/gen/000002" && no test -e "$D/nights/2025-12-01-index"
    [ "$(wc -l < "$FAKES/told")" -eq 2 ] && [ "$(wc -l < "$FAKES/trained")" -eq 3 ]
    jq -e '.generation == 1 and .parent == 0 and .job == "adapter" and .date == "2026-01-03" and (.files | keys) ==
        ["adapter.gguf", "floor.jsonl", "gate.json", "pairs.jsonl", "scored.jsonl", "suite.jsonl"]' "$D/current/MANIFEST"
    grep -q 'fact number <6>' "$D/current/adapter.gguf"
    jq -e '.new == {n: 6, asked: 6, before: 0, after: 6, lost: 0, won: 6, p: 0.015625, together: {before: 0, after: 6, lost: 0, won: 6}, ok: true} and .refused == []' "$D/current/gate.json"
    grep -q '^published: gen/000001$' "$D"/reports/2026-01-03-adapter.md
    # Of what only the trainer gets a third is tested, the rest rehearsed, and the gate asks none of it.
    (cd "$D/nights/2026-01-03-adapter" && n=$(grep -hc '"more' train.2.jsonl) && [ $n -gt 250 ] && [ $n -lt 350 ] && no grep -q '"more' suite.decide.2.jsonl &&
        [ "$(cat train.2.jsonl train.keep.jsonl | grep '"more' | sort -u | wc -l)" -eq 900 ] && no test -s train.others.jsonl)
    # Ten passes over twelve lines, with and without a thought, in steps of eight, from the parent's adapter.
    grep -q -e '--start champion/adapter.gguf .* --steps 30 --keep-test train.2.jsonl --keep train.keep.jsonl .* --margin 0.08 --margin-set 0.08 ' \
        "$FAKES/trained"
    [ -e "$D/log/2026-01-02.scored" ] && [ "$(stat -c %a "$D/gen")" = 700 ]
    try 0 nightly -t adapter 2026-01-03
    [ ! -s err ]
    try 0 nightly status
    grep -q '^current: gen/000001$' out
    # The next day contradicts.
    try 4 nightly -t adapter 2026-01-04
    [[ $(cat err) = 'nightly: refused: 12 of 13 pairs are in quarantine: '* ]]
    [ "$(wc -l < "$D/quarantine.jsonl")" -eq 12 ] && at 1
}

@test "harm and silence are refused; a full disk; a timer may have to wait" {
    begin_test
    cp -a "$D/nights" nights
    export LEARNS=forgets
    try 4 nightly adapter 2026-01-03
    grep -q 'easy ones: .* lost and 0 won' err
    at 0 && no test -e "$D/gen/000001"
    rm -r "$D/nights"
    cp -a nights "$D/nights"
    export LEARNS=babbles
    try 4 nightly adapter 2026-01-03
    [ "$(cat err)" = 'nightly: refused: held-out text has 2.61 instead of 2.5 nats a token' ] && at 0
    export LEARNS=slow
    rm -r "$D/nights"
    cp -a nights "$D/nights"
    try 4 nightly adapter 2026-01-03
    [ "$(cat err)" = 'nightly: refused: it answers with 19.5 instead of 99.5 tokens a second' ] && at 0
    rm -r "$D/nights"
    mv nights "$D/nights"
    export LEARNS=mute
    # The disk is full where the generation is written.
    printf '#!/bin/sh\ncase "$*" in *000001.tmp*) exit 1 ;; esac\nexec /bin/sync "$@"\n' > "$FAKES/bin/sync"
    chmod +x "$FAKES/bin/sync"
    try 1 nightly adapter 2026-01-03
    rm "$FAKES/bin/sync"
    grep -q 'gen/000001: cannot be written' err
    at 0 && [ "$(ls "$D/gen")" = 000000 ]
    try 4 nightly adapter 2026-01-03
    [ "$(cat err)" = 'nightly: refused: it did not answer after publication: mute' ]
    at 0 && [ -e "$D/gen/000001/refused" ]
    printf 'mains=false\n' >> "$D/settings"
    try 0 nightly -t adapter 2026-01-05
    [ "$(cat err)" = 'nightly: postponed: on battery' ] && [ ! -e "$D/nights/2026-01-05-adapter" ]
    printf 'mains=true max_load=0\n' >> "$D/settings"
    try 0 nightly -t adapter 2026-01-05
    grep -q '^nightly: postponed: the load is ' err
}

@test "settings that cannot be are refused" {
    begin_test
    cp "$D/settings" settings
    printf 'lock_wait=.5\n' > "$D/settings"
    says() # STATUS MESSAGE LINE: what status says with that line in the settings
    {
        cat settings - <<< "$3" > "$D/settings"
        try "$1" nightly status
        [ "$(cat err)" = "nightly: $D/settings: $2" ] && [ ! -s out ] || { echo "$3:"; cat err; return 1; }
    }
    says 2 'lock_wait: x is not a number from 0' lock_wait=x
    says 2 'cpu_time: banana is not a time such as 90s, 30m or 2h' cpu_time=banana
    says 2 'min_pairs: -3 is not a whole number from 1' min_pairs=-3
    says 2 'margin: 101 is not a number of percent from 0 to 100' margin=101
    says 2 'guard: maybe is not on or off' guard=maybe
    says 2 'suite: /nonexistent is not a directory' suite=/nonexistent
    says 2 'held_out: /nonexistent is not a file that can be read' held_out=/nonexistent
    says 2 'max_load: zz is not a number from 0' max_load=zz
    says 2 "train: --rate\\ 1 is not an array such as train=(--option value)" "train='--rate 1'"
    says 2 'foo: is no setting' 'HOME2=/x foo=bar'
    says 2 'dir: is no setting' 'dir=/x'
    says 2 'ends the shell' 'exit 0'
    says 2 'has a mistake' 'false'
    cat settings - <<< 'cpu_time=1.5h margin=2.5 train=(--rate 1) mains="test -e /" max_load=' > "$D/settings"
    try 0 nightly status
    # Who can write them can run programs; the same for the directory, and who can write the log can teach.
    chmod 620 "$D/settings"
    try 1 nightly status
    [ "$(cat err)" = "nightly: $D/settings: others can write it (chmod 600)" ]
    chmod 600 "$D/settings"
    chmod 777 "$D/log"
    try 1 nightly adapter 2026-01-03
    [ "$(cat err)" = "nightly: $D/log: others can write there (chmod 700)" ]
    mv "$D/log" elsewhere && ln -s "$PWD/elsewhere" "$D/log"
    try 1 nightly adapter 2026-01-03
    [ "$(cat err)" = "nightly: $D/log: is a link" ]
    chmod 770 "$D"
    try 1 nightly status
    rm "$D/settings" && mkdir "$D/settings" && chmod 700 "$D"
    try 1 nightly status
    [ "$(cat err)" = "nightly: $D/settings: cannot be read" ]
}

@test "wrong use is named; closed descriptors; a directory that is not there" {
    use_fakes
    local line
    says() { try 2 nightly "${@:2}" && [ "$(cat err)" = "nightly: $1 (nightly -h: help)" ] || { cat err; return 1; }; }
    says "'2026-02-30': is no date such as $(date +%F)" adapter 2026-02-30
    says "'': is no date such as $(date +%F)" adapter ''
    says "'2026-01-02': one date is enough" adapter 2026-01-01 2026-01-02
    says "'prompt': is no job and no command" prompt
    says '-d: needs a directory' -d '' status
    says '-x: is no option' -x status
    says "status 'now': takes nothing behind it" status now
    says '--to: needs the number of a generation' rollback --to x
    try 2 nightly -h
    grep -q '^nightly - learns from a log' err
    try 1 nightly adapter
    [ "$(cat err)" = 'nightly: there is nothing yet: nightly init' ] && [ ! -e "$D" ]
    try 1 env -u HOME -u XDG_DATA_HOME bash "$ROOT/share/jobs/nightly" status
    [ "$(cat err)" = 'nightly: HOME is not set' ]
    try 1 "$ROOT/share/jobs/review" none.jsonl
    [ "$(cat err)" = 'review: none.jsonl: cannot be read' ] && [ ! -e decisions.jsonl ]
    begin_test
    rm -r "$D/log" "$D/nights"
    nightly adapter 2026-01-03 <&- >&- 2>&-
    grep -q '^nothing: there is no log$' "$D/nights/2026-01-03-adapter/result"
    "$ROOT/share/jobs/pairs" -o got <&- >&- 2>&-
}

@test "two nights at once, and one that is ended" {
    begin_test
    export DURING='trap "exit 143" TERM; touch "$FAKES/training"; while :; do sleep 0.05; done'
    bash "$ROOT/share/jobs/nightly" -d "$D" adapter 2026-01-03 2> first 3>&- &
    local pid=$! got=0
    wait_for test -e "$FAKES/training"
    try 1 nightly memory 2026-01-04
    grep -qE '^nightly: process [0-9]+ has the lock: adapter 2026-01-03$' err
    try 0 nightly -t memory 2026-01-04
    grep -q '^nightly: postponed: process ' err
    kill $pid
    wait $pid || got=$?
    [ $got -eq 143 ] && at 0
    flock -n "$D/lock" true # nothing of it runs on
    try 0 nightly status
    grep -qx '2026-01-03-adapter: interrupted: nightly adapter 2026-01-03 goes on' out
}

@test "the table and the index are generations, too" {
    begin_test
    # What the night of the adapter has made of the log is the same for the table.
    cp -a "$D/nights/2026-01-03-adapter" "$D/nights/2026-01-03-memory"
    try 0 nightly memory 2026-01-03
    at 1
    grep -q 'fact number <3>' "$D/current/memory.engram"
    cmp "$D/current/adapter.gguf" "$D/gen/000000/adapter.gguf"
    mkdir -p "$D/notes/x
y"
    printf 'one\ntwo\n\nthree \0 bytes\n' > "$D/notes/x
y/binary.txt"
    printf 'Paragraph one\nof two lines.\n\nZebras are striped.\n' > "$D/notes/x
y/a b.md"
    seq 20000 > "$D/notes/x
y/long.text" # cut after 64 KiB
    printf '%s\n' '{"question":"What are zebras?","answer":"striped"}' '{"question":"half' > "$D/questions.jsonl"
    try 0 nightly index 2026-01-04
    at 2
    jq -rs '.[].text | split("\n")[]' "$D/current/notes.index" > got
    diff got <(printf '%s\n' 'Paragraph one' 'of two lines.' 'Zebras are striped.'; seq 20000; told)
    [ "$(wc -l < "$D/current/notes.index")" -eq 10 ]
    try 0 nightly index 2026-01-04
    [ "$(cat err)" = 'nightly: nothing: notes and corrections have not changed' ]
    try 0 nightly index 2026-01-04
    [ "$(cat "$D/nights/2026-01-04-index/result")" = 'published: gen/000002; later: nothing: notes and corrections have not changed' ]
    [ "$(grep -c '^published: gen/000002$' "$D/reports/2026-01-04-index.md")" -eq 1 ]
    [ "$(grep -c '^Later: nothing: notes and corrections have not changed$' "$D/reports/2026-01-04-index.md")" -eq 1 ]
    # One file goes back, the others stay.
    try 0 nightly rollback --only memory --to 0
    at 3 && no test -e "$D/current/memory.engram"
    cmp "$D/current/notes.index" "$D/gen/000002/notes.index"
    [ -e "$D/gen/000002/refused" ] && jq -e '.parent == 0' "$D/current/MANIFEST"
    try 0 nightly status
    grep -q "^from: rollback --only memory --to 0 of $(date +%F), " out
    # What was left is taken again by who says so; on the way forward nothing is left.
    try 0 nightly rollback --to 2
    at 2 && [ -e "$D/gen/000003/refused" ] && no test -e "$D/gen/000002/refused"
    try 0 nightly rollback --to 1
    try 0 nightly rollback --to 3
    at 3 && no test -e "$D/gen/000001/refused" && [ -e "$D/gen/000002/refused" ]
}

@test "the way back, damaged generations, another model, and what is kept" {
    begin_test
    local n
    try 0 nightly init
    [ "$(cat err)" = 'nightly: gen/000000' ]
    for n in 1 2 3; do
        cp -a "$D/gen/000000" "$D/gen/00000$n"
        jq ".generation = $n | .parent = $n - 1" "$D/gen/000000/MANIFEST" > "$D/gen/00000$n/MANIFEST"
    done
    # The two that the current one came from stay; without the one before it, the way back leads to the next.
    ln -sfn gen/000003 "$D/current"
    try 0 nightly prune
    [ "$(cd "$D/gen" && echo *)" = '000000 000001 000002 000003' ]
    mv "$D/gen/000002" elsewhere
    try 0 nightly rollback
    at 1 && [ -e "$D/gen/000003/refused" ]
    rm -r "$D/gen/000003" && mv elsewhere "$D/gen/000002"
    ln -sfn gen/000002 "$D/current"
    echo damage >> "$D/gen/000001/floor.jsonl"
    try 3 nightly rollback
    [ "$(cat err)" = 'nightly: gen/000001: floor.jsonl is missing or damaged' ] && at 2
    jq '.parent = 0 | .files["../../settings"] = .files["floor.jsonl"]' "$D/gen/000000/MANIFEST" > "$D/gen/000001/MANIFEST"
    try 3 nightly rollback
    [ "$(cat err)" = 'nightly: gen/000001/MANIFEST: is missing or damaged' ] && at 2
    try 0 nightly rollback --to 0
    at 0 && [ -e "$D/gen/000002/refused" ]
    try 4 nightly rollback
    [ "$(cat err)" = 'nightly: gen/000000: there is no older one' ]
    # A link that is lost is no reason to begin again; one to nowhere is repaired.
    rm "$D/current"
    try 3 nightly init
    [ "$(cat err)" = 'nightly: current: is missing, but there are generations: nightly rollback --to N' ]
    ln -s gen/000077 "$D/current"
    try 3 nightly status
    rm "$D/current"
    try 3 nightly status
    [ "$(cat err)" = 'nightly: current: is missing, but there are generations: nightly rollback --to N' ]
    try 0 nightly rollback --to 0
    at 0
    # Prune: 14 dates and 8 Sundays, and the current one.
    for n in $(seq 31 99); do
        mkdir "$D/gen/0000$n"
        printf '{\n  "date": "2026-%02d-%02d",\n}' $((n / 28)) $((n % 28 + 1)) > "$D/gen/0000$n/MANIFEST"
    done
    rm "$D/gen/000060/MANIFEST" # no generation
    mkdir "$D/gen/000100.tmp"
    # Of a date the last one that was not left, and what was left after it; what the current one came from.
    for n in 97 98; do sed -i 's/"2026-.*"/"2026-04-16"/' "$D/gen/0000$n/MANIFEST"; done
    touch "$D/gen/000099/refused"
    try 0 nightly prune
    [ "$(cd "$D/gen" && echo *)" = "$(printf '0000%02d ' 0 52 56 60 63 70 77 84 $(seq 86 99) | sed 's/ $//')" ] && at 0
    echo two > model
    try 3 nightly adapter 2026-01-03
    grep -q '^nightly: the model is another one than that of gen/000000, nothing is done' err
    mv model gone
    try 3 nightly rollback --to 99
    mv gone model
    try 0 nightly --new-model
    [ "$(readlink "$D/current")" = gen/000100 ]
}

@test "no log, and a log of one line" {
    begin_test
    rm -r "$D/log" "$D/nights"
    try 0 nightly adapter 2026-01-03
    [ "$(cat err)" = 'nightly: nothing: there is no log' ] && at 0
    day 1 1 > "$D/log/answers-2026-01-02.jsonl"
    : > "$D/log/answers-2026-01-03.jsonl"
    try 0 nightly adapter 2026-01-03
    [ "$(tail -n 1 err)" = 'nightly: nothing: 1 new pairs that can be tested wait: 5 are needed' ]
    try 0 nightly adapter 2026-01-03
    [[ $(cat err) = 'nightly: done: nothing: 1 new pairs '*' (the earlier result of 2026-01-03; -f begins it again)' ]]
    at 0
}

@test "messages before a task's questions are published where they gain" {
    begin_test
    mkdir "$D/prompts"
    try 0 nightly prompts 2026-01-03
    [ "$(cat err)" = 'nightly: nothing: there are no task sets in prompts' ]
    seq 60 | jq -c '{id: ., messages: [{role: "user", content: "write \(.)"}], answer: "form: \(.)", check: "exact", form: true}' > "$D/prompts/a form.jsonl"
    sed 's/"form":true/"form":false/' "$D/prompts/a form.jsonl" > "$D/prompts/not this.jsonl"
    echo 'Be brief.' > "$D/prompts/not this.txt"
    try 0 nightly prompts 2026-01-04
    [ "$(head -n 1 err)" = 'nightly: "a form": 30 right instead of 0 of 30 (p 0);"not this": 0 right instead of 0 of 30 (p 1)' ]
    at 1
    jq -e '(.tasks | keys) == ["a form"] and (.tasks["a form"] | .won == 30 and .lost == 0 and .of == 30 and .candidates == 3 and
        (.messages | map(.role)) == ["user", "assistant", "user", "assistant", "user", "assistant", "user", "assistant"] and
        all(.messages | range(0; 8; 2) as $i | [.[$i:$i + 2][].content | split(" ")[-1]]; .[0] == .[1]))' "$D/current/prompts.json"
    cmp "$D/current/adapter.gguf" "$D/gen/000000/adapter.gguf"
    try 0 nightly prompts 2026-01-05
    [[ $(cat err) = 'nightly: nothing: no gain: "a form": 30 right instead of 30 of 30 (p 1);'* ]] && at 1
    try 0 nightly rollback --only prompts --to 0
    at 2 && no test -e "$D/current/prompts.json"
    head -n 30 "$D/prompts/a form.jsonl" > few
    try 3 "$ROOT/share/jobs/prompts" few
    [ "$(cat err)" = 'prompts: few: has too few different questions with answers: 40 are needed' ]
    echo '{"role": "user"}' > no-messages
    try 3 "$ROOT/share/jobs/prompts" -b no-messages "$D/prompts/a form.jsonl"
    [ "$(cat err)" = 'prompts: no-messages: is no array of messages' ]
}

@test "what people said is in the index, but for what is held back, and what a note says" {
    begin_test
    rm -r "$D/nights"
    answer() { # ID QUESTION ANSWER
        jq -nc --arg id "$1" --arg q "$2" '{type: "answer", $id, messages: [{role: "user", content: $q}], finish_reason: "stop", text: "no"}'
        jq -nc --arg id "$1" --arg a "$3" '{type: "rating", $id, rating: "bad", answer: $a}'
    }
    { answer b1 'My question is: who is Mira Tolane?' 'a ferry pilot'; answer b2 'Tell me what a grommet is.' 'a ring'
        answer b3 'Where is the depot?' 'behind the mill'; answer b4 'How do I reset it?' 'twice'; answer b5 'Why?' 'so'
        answer b6 'Who was Ann - Bo?' 'nobody'; answer b7 'What is qux?' $'one\n \ntwo'; answer b8 'What does baz mean?' 'an end'
        answer b9 'What is this?' 'a test'; answer ba 'What is ree?' 'a'; answer bb 'What does ree do?' 'b'; answer bc 'What is zed?' $'\e[1m'
        answer bd 'Who is Nul Name?' 'cut here' | sed 's/ Name/\\u0000/'; answer be 'What is long?' "$(printf '%02500d' 0)"
        answer bf 'What does \u0000 mean?' 'a zero'
    } > "$D/log/answers-2026-01-03.jsonl"
    try 0 nightly index 2026-01-03
    jq -r .text "$D/current/notes.index" > got
    diff got <(told; printf '%s\n' 'Mira Tolane: a ferry pilot' 'a grommet: a ring' 'baz: an end' '\u0000: a zero')
    cmp <(jq -r .text "$D/current/corrections.jsonl") got
    grep -q ' Pairs: 20, of which new: 20; .* in quarantine: 0\.$' "$D/reports/2026-01-03-index.md"
    # A note of that name counts; a changed correction is another index of the same date.
    mkdir "$D/notes"
    printf 'a grommet - the old one\n\nbaz is no name here.\n' > "$D/notes/a.md"
    sed -i 's/a ferry pilot/a pilot/' "$D/log/answers-2026-01-03.jsonl"
    try 0 nightly index 2026-01-03
    at 2
    jq -r .text "$D/current/notes.index" > got
    diff got <(printf '%s\n' 'a grommet - the old one' 'baz is no name here.'; told; printf '%s\n' 'Mira Tolane: a pilot' 'baz: an end' '\u0000: a zero')
    # Much in quarantine: what was said before stays, what is new waits for the review, and the notes go on.
    { for what in clerk cook baker; do answer $what 'Who is Ed Vance?' "a $what"; done; answer d 'Who is Lou Reth?' 'a smith'
    } > "$D/log/answers-2026-01-04.jsonl"
    try 0 nightly index 2026-01-04
    [ "$(cat err)" = 'nightly: nothing: notes and corrections have not changed; 3 of 24 pairs are in quarantine: share/jobs/review shows them' ]
    rm "$D/notes/a.md"
    printf 'Owls hoot.\n' > "$D/notes/b.md"
    try 0 nightly index 2026-01-04
    jq -r .text "$D/current/notes.index" > got
    diff got <(echo 'Owls hoot.'; told; printf '%s\n' 'Mira Tolane: a pilot' 'baz: an end' '\u0000: a zero')
    try 4 nightly adapter 2026-01-04
    { echo y; yes n; } | head -n 100 | bash "$ROOT/share/jobs/review" "$D/quarantine.jsonl" > /dev/null
    try 0 nightly index 2026-01-04
    jq -r .text "$D/current/notes.index" > got
    grep -qx 'Lou Reth: a smith' got && [ "$(grep -c '^Ed Vance: ' got)" -eq 1 ]
    # What is recited from it says nothing new.
    jq -nc '("corrections.jsonl", "a.md") as $file | {type: "answer", id: $file, program: "chimere-run", messages: [{role: "user", content: "Who is Lou Reth?"}], finish_reason: "stop", text: "a smith of note",
        notes: [{use: "recite", source: "n.index", id: 1, $file, line: 1, text: "Lou Reth: a smith of note"}]}' > quoted
    bash "$ROOT/share/jobs/score" quoted | jq -c '[.score, .why]' > got
    diff got <(printf '%s\n' '[2,"nothing could be checked"]' '[4,"quoted from a note"]')
    # The way back has its texts.
    try 0 nightly rollback --only index --to 2
    cmp "$D/current/corrections.jsonl" "$D/gen/000002/corrections.jsonl"
}

@test "what was learnt before is learnt again; what is learnt now makes up for no loss" {
    cd "$BATS_TEST_TMPDIR"
    ask() { jq -nc --arg q "$2" --arg w "$3" --argjson more "${4:-null}" '{type: "pair", id: $q, messages: [{role: "user", content: $q}], answer: "A", wording: $w} + $more | .type = "'"$1"'"'; }
    { for q in kept lost; do
        ask pair $q 'as asked' '{"known": true}'; ask pair $q shape '{"known": true}'; ask test $q frame '{"known": true}'
    done; ask pair new 'as asked'; ask test new shape; } > worded
    with() { jq -L "$ROOT/share/jobs" "$@"; }
    with -nr 'include "gate"; items' worded > items
    [ "$(cut -f 1 items | sort | uniq -c | awk '{print $2 $1}' | paste -sd ' ')" = 'before2 learn1 new1 old6 replay5 test1' ]
    # 100 that are right before, of which 7 are lost; 20 that are learnt now, or were learnt before.
    jq -nc 'range(100) | {set: "s", id: "\(.)", right: true}' > before
    jq -c '.right = (.id | tonumber >= 7)' before > after
    for name in rated replay; do
        jq -nc --arg name $name 'range(20) | {set: "items.replay", id: "\($name)-\(.)", right: false}' | cat before - > b
        jq -c 'select(.set == "items.replay") | .right = true' b | cat after - > a
        with -nc --slurpfile b b --slurpfile a a 'include "gate"; harm($b; $a; 1; 0.1) | .[-1] | [.set, .n, .lost, .won, .ok]'
    done > out
    [ "$(paste -sd ' ' out)" = '["all",100,7,0,false] ["all",120,7,20,true]' ]
    # New items are won by the adapter alone, and none may be lost with the index, which knows most of them.
    for known in 6 4; do
        jq -nc --argjson known $known 'range(6) | {set: "items.new", id: "n\(.)", right: (. < $known)}' > b
        jq -c '.right = true' b > all
        jq -c '.right = false' b > none
        for after in all none; do
            with -nc --slurpfile b b --slurpfile all all --slurpfile none none --slurpfile a $after 'include "gate";
                decided($none; $all; $b; $a; []; 0.08; 0.04; "adapter") | [.new.won, .new.together.won, .new.together.lost, .new.ok]'
        done
    done > out
    [ "$(paste -sd ' ' out)" = '[6,0,0,true] [6,0,6,false] [6,2,0,true] [6,0,4,false]' ]
    # Sets with too few items are judged in groups, and alone where a loss is certain.
    jq -nc '{s: 240, t: 30, u: 170, v: 220} | to_entries[] | .key as $set | range(.value) | {$set, id: "\($set)\(.)", right: true}' > b
    harm() { with -nc --slurpfile b "$1" --slurpfile a "$2" 'include "gate"; harm($b; $a; 0.08; 0.04) | map([.set, .n, .lost, .ok])'; }
    lose() { jq -c '.right = (.id | test("'"$1"'") | not)' b; } # those whose names match
    lose '^u1[0-7]$' > a
    [ "$(harm b a)" = '[["s",240,0,true],["t, u",200,8,true],["v",220,0,true],["all",660,8,true]]' ]
    lose '^u1[0-9]$' > a
    [ "$(harm b a)" = '[["s",240,0,true],["t, u",200,10,false],["v",220,0,true],["all",660,10,true]]' ]
    lose '^t1[0-7]$' > a
    [ "$(harm b a)" = '[["s",240,0,true],["t, u",200,8,true],["v",220,0,true],["t",30,8,false],["all",660,8,true]]' ]
    jq -nc '{s: 120, t: 130, u: 140, v: 150, w: 170} | to_entries[] | .key as $set | range(.value) | {$set, id: "\($set)\(.)", right: true}' > many
    [ "$(harm many many)" = '[["s, t",250,0,true],["u, v, w",460,0,true],["all",710,0,true]]' ]
    grep '"t"' b > few
    [ "$(harm few a)" = '[["t",30,8,false],["all",30,8,false]]' ]
}
