# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154
# steps.sh - a night: steps in a directory of their own, each done once for what the steps before it made.
#
# The step NAME is the function do_NAME. It writes files NAME.*; NAME.done has a hash of what the step depends on and the
# hashes of its files, and is written when these are on the disk. NAME.begun is that hash of a step that was begun: files
# of an interrupted step stay for it to go on with.

tell() { [ -n "$timed" ] || printf '%s: %s\n' "$me" "$1" >&2; }

on_mains()
{
    local supply online=''
    for supply in /sys/class/power_supply/*; do
        [ "$(cat "$supply/type" 2> /dev/null)" = Mains ] || continue
        [ "$(cat "$supply/online")" = 1 ] && return
        online=no
    done
    [ -z "$online" ]
}

# Of a timer: is this the time? Done for this date is silent, postponed until the next chance says why.
may_start()
{
    local load
    if [ "$command" != index ] && [ -f "$dir/nights/$date-$command/result" ]; then exit 0; fi
    load=$(cut -d ' ' -f 1 /proc/loadavg 2> /dev/null || echo 0)
    if ! $mains; then echo "$me: postponed: on battery" >&2; exit 0; fi
    if awk -v load="$load" -v max="${max_load:-$(nproc)}" 'BEGIN { exit !(load >= max) }'; then
        printf '%s: postponed: the load is %s\n' "$me" "$load" >&2
        exit 0
    fi
}

no_sleep() # while this script runs, this machine does not go to sleep by itself
{
    command -v systemd-inhibit > /dev/null || return 0
    systemd-inhibit --what=idle:sleep --who=chimere --why='learning from the log' tail --pid=$$ -f /dev/null \
        > /dev/null 2>&1 < /dev/null 3>&- 8>&- 9>&- &
    disown
}

step() # NAME [STEP ...]
{
    local name=$1 key was='' s before earlier
    shift
    key=$({ declare -f "do_$name"; for s; do tail -n +2 -- "$s.done"; done; } | sha256sum)
    key=${key%% *}
    [ ! -s "$name.done" ] || read -r was < "$name.done"
    if [ "$was" = "$key" ] && tail -n +2 "$name.done" | sha256sum --strict --status -c; then
        say "$name: was done"
        return
    fi
    [ "$(cat "$name.begun" 2> /dev/null)" = "$key" ] || { rm -rf -- "$name".*; printf '%s\n' "$key" > "$name.begun"; }
    rm -f -- "$name.done"
    say "$name"
    before=$SECONDS
    count_cpu
    earlier=$cpu
    "do_$name"
    rm -f -- "$name.begun" "$name".*.tmp
    sync -- "$name".*
    { printf '%s\n' "$key"; sha256sum -- "$name".*; } > done.tmp && sync -- done.tmp && mv -f done.tmp "$name.done" && sync . ||
        die 1 "$work: cannot be written"
    count_cpu
    cpu=$((cpu - earlier))
    printf '{"step":"%s","seconds":%d,"cpu_seconds":%d.%03d}\n' "$name" $((SECONDS - before)) $((cpu / 1000)) $((cpu % 1000)) >> spent.jsonl
}

# Processor time in ms of everything that this script has waited for, to $cpu. A subshell would know only its own.
count_cpu()
{
    local t
    times > "$tmp/times"
    cpu=0
    # Such as 1m2.345s, of this shell and of its children, for user and system.
    for t in $(< "$tmp/times"); do
        [[ $t =~ ^([0-9]+)m([0-9]+)[.,]([0-9]{3})s$ ]] || continue
        cpu=$((cpu + BASH_REMATCH[1] * 60000 + BASH_REMATCH[2] * 1000 + 10#${BASH_REMATCH[3]}))
    done
}

# How a night ends: a line for people, a report, and a word that says that this date is done.
ended() # published|nothing|refused WORDS
{
    local earlier=''
    : >> spent.jsonl
    echo null > none.json
    run_jq -nr --arg night "$night" --arg how "$1" --arg words "$2" --slurpfile times spent.jsonl \
        --slurpfile counts <(cat counts.json 2> /dev/null || echo '{}') --slurpfile gate "$([ -s gate.json ] && echo gate.json || echo none.json)" \
        --slurpfile text "$([ -s text.json ] && echo text.json || echo none.json)" \
        --slurpfile speed "$([ -s speed.json ] && echo speed.json || echo none.json)" \
        'include "gate"; report($night; $how; $words; $counts[0]; $gate[0]; $text[0]; $speed[0]; $times)' > report.md
    if [ -s earlier.result ] && [ "$1" = nothing ]; then
        cp -- earlier.md report.md
        [ "$(tail -n 1 report.md)" = "Later: nothing: $2" ] || printf '\nLater: nothing: %s\n' "$2" >> report.md
        earlier="$(cat earlier.result); later: "
    elif [ -s earlier.result ]; then
        { echo; cat earlier.md; } >> report.md
    fi
    cp -- report.md "$dir/reports/.$night.tmp" && sync -- "$dir/reports/.$night.tmp" && mv -f -- "$dir/reports/.$night.tmp" "$dir/reports/$night.md" ||
        die 1 'the report cannot be written'
    printf '%s%s: %s\n' "$earlier" "$1" "$2" > result.tmp && sync -- result.tmp && mv -f result.tmp result && sync . || die 1 "$work: cannot be written"
    if [ "$1" = published ]; then prune; else forget_nights; fi
    [ "$1" != refused ] || { printf '%s: refused: %s\n' "$me" "$2" >&2; exit 4; }
    tell "$1: $2"
    exit 0
}

night()
{
    # Who can write the log can teach.
    [ ! -L "$dir/log" ] || die 1 "$dir/log: is a link"
    is_ours "$dir/log" || die 1 "$dir/log: others can write there (chmod 700)"
    has_generation || first_generation ''
    night=$date-$command work=$dir/nights/$date-$command
    [ -z "$again" ] || rm -rf -- "$work"
    mkdir -p -- "$work" && cd -- "$work" || die 1 "$work: cannot be made"
    # Notes may change at any hour. What was published or refused before on this date stays in the report.
    if [ "$command" = index ] && [ -e result ]; then
        rm -f -- number
        case $(cat result) in
        published* | refused*)
            cp -- report.md earlier.tmp && mv -f earlier.tmp earlier.md && sed 's/; later: nothing: .*//' result > earlier.tmp &&
                mv -f earlier.tmp earlier.result || die 1 "$work: cannot be written" ;;
        esac
        rm -f -- result
    fi
    case $(cat result 2> /dev/null) in
    nothing*)
        # Without these nothing was looked at.
        [ ! -e score.done ] && [ ! -e prompts.done ] || { tell "done: $(cat result) (the earlier result of $date; -f begins it again)"; exit 0; } ;;
    published*) tell "done: $(cat result)"; exit 0 ;;
    refused*) printf '%s: done: %s (-f begins it again)\n' "$me" "$(cat result)" >&2; exit 4 ;;
    esac
    number=$(cat number 2> /dev/null) || number=''
    fingerprint=${fingerprint:-$(fingerprint)}
    find_current
    parent=$now
    # Killed after the exchange of the link: what is left to do is the canary. A generation that was left is no parent.
    [ "$now" != "$number" ] || parent=$parent_of
    while [ -e "$dir/$(name_of "$parent")/refused" ]; do
        parent=$(manifest "$parent" .parent)
        [ "$parent" != null ] || die 3 "$(name_of "$now") was left, and has no parent: nightly --new-model begins again"
        [ "$now" = "$number" ] || point_to "$parent"
    done
    [ "$parent" = "$now" ] || verify "$parent"
    of_this_model "$parent"
    printf '0\n%s  of the parent\n' "$(sha256sum < "$dir/$(name_of "$parent")/MANIFEST")" > parent.done
    rm -f champion && ln -s "../../$(name_of "$parent")" champion
    no_sleep
    "night_$command"
}

logs() { find -L "$dir/log" -maxdepth 1 -type f -name '*-[0-9]*.jsonl' -print0 | sort -z; }

# What the log says, as it is now: a step that is done does not look again, so that a night goes on with what it began.
# Scores of the parent whose answers are no longer in the log stay.
do_score()
{
    local files
    mapfile -d '' files < <(logs)
    : > score.new.tmp
    : > score.jsonl
    [ ${#files[@]} -eq 0 ] || run "$here/score" "${score[@]}" ${verbose:+-v} -o score.new.tmp "${files[@]}" || exit
    # A log may be large, and most of it scores nothing that is kept: only what the parent keeps is held in memory.
    { cat champion/scored.jsonl 2> /dev/null || true; } > score.old.tmp
    run_jq -nc --slurpfile old score.old.tmp '(reduce $old[] as $s ({}; .[$s.id | tostring] = 1)) as $known |
        (reduce (inputs | .id | tostring | select($known[.])) as $id ({}; .[$id] = 1)) as $seen | $old[] | select($seen[.id | tostring] | not)' \
        score.new.tmp > score.jsonl
    run_jq -c 'select(.score >= 4 or .score == 1)' score.new.tmp >> score.jsonl
    cat -- "$dir/decisions.jsonl" > score.decisions.jsonl 2> /dev/null || true
    # Days that end here before the night's: their scores go into the next generation.
    printf '%s\0' "${files[@]##*/}" > score.files
}

do_pairs() { run "$here/pairs" ${verbose:+-v} -o pairs.jsonl score.jsonl score.decisions.jsonl || exit; }

# What the parent has learnt is not asked again; what it would be asked against is the parent itself.
do_guard()
{
    local status=0
    run_jq -nc --slurpfile known <(cat champion/pairs.jsonl 2> /dev/null) 'include "jobs"; def key: [question_key, (.answer | tostring | same)] | tojson;
        (reduce $known[] as $p ({}; .[$p | key] = 1)) as $known | inputs | select(.type != "preference") |
        if .type == "pair" and $known[key] then . + {known: true} else . end' pairs.jsonl > guard.asked.tmp
    if [ "$guard" != off ] && grep -qv -e '"known":true' -e '"type":"quarantine"' guard.asked.tmp; then
        export CHIMERE_OPTS='--lora champion/adapter.gguf'
        run "$here/guard" --calibrate -o guard.calibration.tmp ${verbose:+-v} || status=$?
        { grep -v '"known":true' guard.asked.tmp || true; } > guard.new.tmp
        case $status in
        0) run "$here/guard" -g guard.calibration.tmp ${verbose:+-v} -o guard.new.jsonl guard.new.tmp || exit ;;
        4)
            echo 'the model knows too little of the suite to say what it is sure of; guard=off goes without' > guard.refused
            : > guard.new.jsonl ;;
        *) exit $status ;;
        esac
        unset CHIMERE_OPTS
        { grep '"known":true' guard.asked.tmp || true; } | cat - guard.new.jsonl > guard.jsonl
    else
        cp guard.asked.tmp guard.jsonl
    fi
    { grep '^{"type":"pair"' guard.jsonl || true; } > guard.pairs.jsonl
}

# What is learnt, what it is tested on, and what has to stay: rated questions, and tests of what was learnt before.
do_items()
{
    run "$here/paraphrase" ${verbose:+-v} -o items.worded.tmp guard.pairs.jsonl || exit
    run_jq -nr 'include "gate"; items' items.worded.tmp | by_name items learn test before new replay old
}

# Lines NAME TAB JSON to files STEP.NAME.jsonl.
by_name() # STEP NAME ...
{
    local name
    cat > "$1.all.tmp" || die 1 "$work: cannot be written"
    for name in "${@:2}"; do
        sed -n "s/^$name\t//p" "$1.all.tmp" > "$1.$name.jsonl" 2> /dev/null || die 1 "$work: cannot be written"
    done
}

# The trainer chooses a strength by, and rehearses, the file of the same name in rehearse, or, without one, a quarter of a
# task set; what decides it never sees.
do_suite()
{
    local f n=0 name whole from=$suite more=$rehearse
    if [ -z "$from" ]; then
        from=$dir/suite
        [ -n "$(find -L "$from" -maxdepth 1 -name '*.jsonl' -print -quit 2> /dev/null)" ] || from=$here/../eval more=${more:-$here/../rehearse}
    fi
    [ -n "$more" ] || more=$dir/rehearse
    while IFS= read -r -d '' f; do
        n=$((n + 1)) name=$(basename -- "$f" .jsonl) whole=false
        [ ! -s "$more/$name.jsonl" ] || whole=true
        { head -n "$suite_items" -- "$f" | run_jq -nr --arg n $n --arg name "$name" --argjson whole $whole 'include "gate"; suite($n; $name; $whole)'
            ! $whole || run_jq -nr --arg n $n 'include "gate"; more($n)' "$more/$name.jsonl"; } |
            by_name suite search.$n keep.$n decide.$n name.$n
    done < <(find -L "$from" -maxdepth 1 -name '*.jsonl' -type f -print0 2> /dev/null | sort -z)
    [ -n "$(cat suite.decide.*.jsonl 2> /dev/null | head -c 1)" ] || die 1 "$from: has no task sets"
}

# Answers of the files of a directory to task sets. What was answered before an interrupt is not asked again.
answer_tasks() # ANSWERS DIRECTORY TASKS ...
{
    local options tasks=() f
    mapfile -t options < <(options_of "$2")
    for f in "${@:3}"; do [ ! -s "$f" ] || tasks+=("$f"); done
    : >> "$1"
    [ ${#tasks[@]} -gt 0 ] || return 0
    run chimere-bench eval -q "${options[@]}" -o "$1" "${tasks[@]}" > "$1.tmp" 2> "$tmp/said" || die $? "the test failed: $(tail -n 1 "$tmp/said")"
}

eval_suite() # ANSWERS DIRECTORY RESULTS
{
    answer_tasks "$1" "$2" suite.decide.*.jsonl
    run_jq -nc --slurpfile names <(cat suite.name.*.jsonl) 'include "gate"; results($names)' "$1" > "$3"
}

# New questions for an adapter alone: what the index finds already would hide what is learnt.
ask_alone() # DIRECTORY ANSWERS
{
    [ "$command" = adapter ] || return 0
    mkdir -p "$1.alone"
    ln -sfn "../$1/adapter.gguf" "$1.alone/adapter.gguf"
    answer_tasks "$2" "$1.alone" items.new.jsonl
}

do_asked()
{
    answer_tasks asked.answers champion items.new.jsonl items.replay.jsonl
    ask_alone champion asked.alone
}

# With the numbers of the parent's adapter, all new pairs, and the newest 1000 old ones. What has to stay is what the
# model says without an adapter, so that small losses do not add up over the nights. New pairs get ten passes, old ones two
# (each is learnt with and without a thought), first of all what is not known. The trainer's test has the rule of the gate,
# but all sets together may lose as much as one: two thirds of what it tests are facts, of what the gate asks a fifth.
do_train()
{
    local f options=() status=0
    # Killed after the trainer had published its result: it is not trained twice.
    [ ! -s train.gguf ] || return 0
    : > train.others.jsonl
    tail -n 3000 items.old.jsonl > train.learn.jsonl
    options=(--steps $((($(lines_in items.learn.jsonl) * 20 + $(lines_in train.learn.jsonl) * 4 + 7) / 8)))
    cat items.learn.jsonl >> train.learn.jsonl
    # The trainer cannot test what is no text, such as tool calls: that is rehearsed. Sets too small to show anything by
    # themselves are one.
    for f in suite.search.*.jsonl; do
        grep -F '"answer":' "$f" > "train.${f#suite.search.}" || continue
        if [ "$(lines_in "train.${f#suite.search.}")" -ge 200 ]; then options+=(--keep-test "train.${f#suite.search.}")
        else cat "train.${f#suite.search.}" >> train.others.jsonl; fi
    done
    [ "$(lines_in train.others.jsonl)" -lt 5 ] || options+=(--keep-test train.others.jsonl)
    { grep -hvF '"answer":' suite.search.*.jsonl || true; } | cat - suite.keep.*.jsonl > train.keep.jsonl
    [ "$(lines_in train.keep.jsonl)" -lt 25 ] || options+=(--keep train.keep.jsonl)
    [ "$(lines_in items.test.jsonl)" -ge 5 ] || options+=(--held-out items.before.jsonl)
    run chimere-draft-train lora --keep-versions 0 -o train.gguf --start champion/adapter.gguf --held-out items.test.jsonl "${options[@]}" \
        --cpu-time "$cpu_time" --batch 8 --keep-batch 12 --keep-weight 30 --epochs 10 --rate 0.001 --rehearse 800 \
        --margin "$(hundredth "$margin")" --margin-set "$(hundredth "$margin")" "${train[@]}" train.learn.jsonl > train.said.txt 2>&1 || status=$?
    [ -z "$verbose" ] || cat train.said.txt >&2
    case $status in
    0) ;;
    4)
        { grep -h 'nothing is written' train.said.txt || tail -n 1 train.said.txt; } |
            sed 's/^chimere-draft-train: train.gguf: /the trainer: /' > train.refused ;;
    *) die $status "the training failed: $(tail -n 1 train.said.txt 2> /dev/null)" ;;
    esac
}

# The table: the texts of the pairs that may be learnt; the program leaves out what makes held-out text less likely.
do_table()
{
    local status=0
    run_jq -nc --slurpfile scores score.jsonl 'include "jobs"; def key: [question_key, (.answer | same)] | tojson;
        (reduce ($scores[] | select(.score >= 4)) as $s ({}; .[$s | key] = $s)) as $scored | inputs |
        $scored[key] // {text: "\(question)\(if is_chat then "\n" else "" end)\(.answer)\n", domain: "chat"} |
        {text, domain, score: 5}' guard.pairs.jsonl > table.texts.jsonl
    [ ! -s champion/memory.engram ] || cp -- champion/memory.engram table.engram || die 1 "$work: cannot be written"
    run chimere-engram-build add -j -q --keep-versions 0 --from table.texts.jsonl table.engram > table.events.jsonl 2> "$tmp/said" || status=$?
    case $status in 0 | 4) ;; *) die $status "the table failed: $(tail -n 1 "$tmp/said")" ;; esac
}

# Paragraphs of the files in notes, with the file's name.
do_texts()
{
    : > texts.jsonl
    [ -d "$dir/notes" ] || return 0
    find -L "$dir/notes" -name '.?*' -prune -o -type f -size -16M \( -name '*.txt' -o -name '*.md' -o -name '*.markdown' -o -name '*.org' \
        -o -name '*.rst' -o -name '*.text' \) -print0 2> /dev/null | sort -z | { xargs -0 -r grep -lIZ -e . -- || true; } |
        xargs -0 -r jq -nRc -L "$here" 'include "gate"; paragraphs' -- > texts.jsonl
}

# What people said in the log, by what they asked about. As long as nothing of the log may be learnt, what they had said before.
do_corrections()
{
    if [ -n "$unlearnable" ]; then cat champion/corrections.jsonl 2> /dev/null || true
    else
        run_jq -nc --rawfile shapes "$here/shapes.txt" --slurpfile notes texts.jsonl \
            'include "jobs"; include "gate"; ($shapes | shapes) as $shapes | corrections($shapes; $notes)' guard.pairs.jsonl
    fi > corrections.jsonl
}

do_index()
{
    local f files=()
    for f in texts.jsonl corrections.jsonl; do [ ! -s $f ] || files+=($f); done
    run chimere-engram-build index -q -o index.index -f --keep-versions 0 --jsonl "${files[@]}" 2> "$tmp/said" ||
        die $? "the index failed: $(tail -n 1 "$tmp/said")"
}

# How many of the questions that were answered from notes, and of questions.jsonl, find their answer among three texts.
do_recall()
{
    local who
    cat champion/scored.jsonl "$dir/questions.jsonl" > recall.asked.tmp 2> /dev/null || true
    read_lines recall.asked.tmp
    run_jq -nc --slurpfile texts texts.jsonl 'include "gate"; [$texts[].text | ascii_downcase] as $texts |
        [inputs | asked_of_notes | select(.answer as $a | any($texts[]; contains($a)))] | unique | .[-20:][]' \
        "$tmp/lines" > recall.questions.jsonl
    for who in champion/notes.index index.index; do
        if [ -s recall.questions.jsonl ] && [ -s $who ]; then
            run_jq -r '.question | gsub("\\s+"; " ")' recall.questions.jsonl > recall.lines.tmp
            chimere-engram-build query -q --bm25 -k 3 $who < recall.lines.tmp || die 3 'the index cannot be searched'
        fi | run_jq -nc --slurpfile questions recall.questions.jsonl 'include "gate"; [inputs | select(.type == "hit")] | found($questions)' |
            wc -l
    done > recall.counts
}

do_gate()
{
    local who new=answers
    [ "$command" != adapter ] || new=alone
    answer_tasks gate.answers challenger items.new.jsonl items.replay.jsonl
    ask_alone challenger gate.alone
    eval_suite gate.suite.answers challenger gate.suite.jsonl
    # The parent, and the first generation, were asked the same suite before, unless that has changed.
    for who in suite floor; do cat champion/$who.jsonl > gate.$who.before.tmp 2> /dev/null || true; done
    for who in $(run_jq -nr --slurpfile suite gate.suite.before.tmp --slurpfile floor gate.floor.before.tmp \
        'include "gate"; missing({$suite, $floor})' gate.suite.jsonl); do
        mkdir -p plain
        eval_suite gate.$who.answers.again "$([ $who = suite ] && echo champion || echo plain)" gate.$who.before.tmp
    done
    cp gate.floor.before.tmp gate.floor.jsonl
    run_jq -nc --slurpfile before <(cat asked.answers gate.suite.before.tmp) --slurpfile after <(cat gate.answers gate.suite.jsonl) \
        --slurpfile floor gate.floor.jsonl --slurpfile was asked.$new --slurpfile is gate.$new --arg job "$command" \
        --argjson margin "$margin" --argjson margin_all "$margin_all" \
        'include "gate"; decided($was; $is; $before; $after; $floor; $margin / 100; $margin_all / 100; $job)' > gate.json || exit
}

# Tokens a second of processor time, whatever else runs, of an answer with the files of a directory; 0: none came.
speed_of() # DIRECTORY
{
    local options
    mapfile -t options < <(options_of "$1")
    run chimere-run -q -t 1 "${options[@]}" --json --think off --ignore-eos -n 64 -p 'Once upon a time' > speed.said.tmp 2> "$tmp/said" ||
        die $? "the speed cannot be measured: $(tail -n 1 "$tmp/said")"
    run_jq -r '.timings // empty | .decode_tps * .decode_ms / (.decode_cpu_ms + 1e-9)' speed.said.tmp | tail -n 1
}

# Nats a token of text that nobody teaches.
do_text()
{
    local who
    for who in champion challenger; do
        run chimere-bench ppl -q --windows 8 --lora $who/adapter.gguf "${held_out:-$here/../eval/heldout-docs.txt}" > text.$who.tmp 2> "$tmp/said" ||
            die $? "the held-out text cannot be measured: $(tail -n 1 "$tmp/said")"
    done
    run_jq -nc --argjson more "$more_nats" '[inputs | select(.type == "ppl").nll_nats] | {before: .[0], after: .[1]} | .ok = (.after <= .before + $more)' \
        text.champion.tmp text.challenger.tmp > text.json
}

# In turns, as other programs use the same caches: five times, and up to fifteen as long as the new one is slow. Of each
# turn only the ratio counts: one that had the machine for itself says nothing about the others.
do_speed()
{
    local i was is
    : > speed.turns.tmp
    for ((i = 1; i <= 15; i++)); do
        was=$(speed_of champion) && is=$(speed_of challenger) || exit
        printf '{"was":%s,"is":%s}\n' "${was:-0}" "${is:-0}" >> speed.turns.tmp
        run_jq -nc --argjson slower "$slower" 'def median: sort | .[length / 2 | floor];
            [inputs] | (map(.is / (.was + 1e-9)) | median) as $ratio | (map(.was) | median) as $before |
            {before: $before, after: ($before * $ratio), ok: ($ratio >= 1 - $slower / 100)}' speed.turns.tmp > speed.json
        [ $i -lt 5 ] || ! grep -q '"ok":true' speed.json || break
    done
}

hundredth() { awk -v x="$1" 'BEGIN { print x / 100 }'; }
lines_in() { { cat -- "$@" 2> /dev/null || true; } | wc -l; } # FILE ...

has_log() { [ -s "$dir/current/scored.jsonl" ] || [ -n "$(logs | head -c 1 | tr '\0' x)" ]; }

# The steps to pairs that may be learnt, which three jobs share; $unlearnable: why none may.
judge_log()
{
    local held all
    step score
    step pairs score
    step guard pairs parent
    { grep '"type":"quarantine"' guard.jsonl || true; } > quarantine.tmp
    sync quarantine.tmp && mv -f quarantine.tmp "$dir/quarantine.jsonl" || die 1 "$dir/quarantine.jsonl: cannot be written"
    step items guard
    held=$(lines_in "$dir/quarantine.jsonl") all=$(lines_in "$dir/quarantine.jsonl" guard.pairs.jsonl)
    run_jq -nc --slurpfile pairs guard.pairs.jsonl --slurpfile scores score.jsonl --argjson held "$held" --argjson tests "$(lines_in items.new.jsonl)" \
        '{scored: ([$scores[] | "\(.score) \(.why)"] | group_by(.) | map({(.[0]): length}) | add // {}), pairs: ($pairs | length),
          new: ([$pairs[] | select(.known | not)] | length), $tests, $held}' > counts.json
    unlearnable=$(cat guard.refused 2> /dev/null) || unlearnable=''
    [ "$held" -lt 2 ] || [ $((held * 10)) -le "$all" ] ||
        unlearnable="$held of $all pairs are in quarantine: share/jobs/review shows them"
}

learnable()
{
    has_log || ended nothing 'there is no log'
    judge_log
    [ -s pairs.jsonl ] && grep -q '"type":"\(pair\|quarantine\)"' pairs.jsonl || ended nothing 'no answer of the log can be learnt'
    [ -z "$unlearnable" ] || ended refused "$unlearnable"
}

night_adapter()
{
    local wrong
    learnable
    [ "$(lines_in items.new.jsonl)" -ge "$min_pairs" ] ||
        ended nothing "$(lines_in items.new.jsonl) new pairs that can be tested wait: $min_pairs are needed"
    step suite
    step asked items parent
    wrong=$(grep '"set":"items.new"' asked.alone | grep -c '"right":false') || true
    [ "$wrong" -ge "$min_pairs" ] || ended nothing "of the new pairs $wrong are not known yet: $min_pairs are needed"
    step train items suite asked parent
    [ ! -e train.refused ] || ended refused "$(cat train.refused)"
    challenger adapter.gguf train.gguf
    step gate train items suite asked parent
    decide
}

night_memory()
{
    learnable
    step table guard score parent
    if [ ! -s table.engram ] || cmp -s table.engram champion/memory.engram; then
        no_harm=$(run_jq -n '[inputs | select(.added == false)] | length' table.events.jsonl)
        [ "$no_harm" -eq 0 ] || ended refused 'the new texts make held-out text less likely'
        ended nothing 'the table has every text that may be learnt'
    fi
    step suite
    step asked items parent
    challenger memory.engram table.engram
    step gate table items suite asked parent
    decide
}

night_index()
{
    local before after
    [ -d "$dir/notes" ] || has_log || ended nothing 'there is no directory notes, and no log'
    # Both may have changed since this date's index was made.
    rm -f -- texts.* score.*
    step texts
    judge_log
    step corrections guard texts parent
    cat texts.jsonl corrections.jsonl | sha256sum > notes.sum
    if cmp -s notes.sum champion/notes.sum || { [ ! -s texts.jsonl ] && [ ! -s corrections.jsonl ] && [ ! -s champion/notes.index ]; }; then
        ended nothing "notes and corrections have not changed${unlearnable:+; $unlearnable}"
    fi
    step suite
    step asked items parent
    if [ -s texts.jsonl ] || [ -s corrections.jsonl ]; then
        step index texts corrections
        step recall index texts parent
        { read -r before; read -r after; } < recall.counts
        [ "$after" -ge "$before" ] || ended refused "fewer questions find their answer: $after instead of $before"
        challenger notes.index index.index
    else
        rm -f index.*
        challenger notes.index /dev/null
    fi
    step gate "$([ -s index.index ] && echo index || echo texts)" items suite asked parent
    decide
}

# For each task set in prompts: messages before its questions. Instructions to try are lines of a file of its name in .txt.
do_prompts()
{
    local f name n=0 with scored
    while IFS= read -r -d '' f; do
        name=$(basename -- "$f" .jsonl; echo .) name=${name%$'\n.'} n=$((n + 1))
        [ ! -s "prompts.$n.jsonl" ] || continue
        { cat champion/prompts.json 2> /dev/null || true; } | run_jq -c --arg name "$name" '.tasks[$name].messages // []' > prompts.base.tmp
        [ -s prompts.base.tmp ] || echo '[]' > prompts.base.tmp
        with=(-b prompts.base.tmp -o prompts.found.tmp)
        [ ! -f "${f%.jsonl}.txt" ] || with+=(-i "${f%.jsonl}.txt")
        scored=()
        [ ! -s champion/scored.jsonl ] || scored=(champion/scored.jsonl)
        run "$here/prompts" -g champion "${prompts[@]}" "${with[@]}" ${verbose:+-v} "$f" "${scored[@]}" || exit
        run_jq -c --arg name "$name" '{$name} + .' prompts.found.tmp > "prompts.$n.tmp" && mv "prompts.$n.tmp" "prompts.$n.jsonl"
    done < <(find -L "$dir/prompts" -maxdepth 1 -name '*.jsonl' -type f -print0 2> /dev/null | sort -z)
    cat prompts.*.jsonl > prompts.all 2> /dev/null || true
}

night_prompts()
{
    local gains
    step prompts parent
    [ -s prompts.all ] || ended nothing 'there are no task sets in prompts'
    rm -rf files && mkdir files
    run_jq -nc --slurpfile old <(cat champion/prompts.json 2> /dev/null || true) '[inputs | select(.gain)] as $new | select($new != []) |
        {type: "prompts", tasks: (($old[0].tasks // {}) + ($new | map({(.name): del(.name, .type, .gain)}) | add))}' prompts.all > files/prompts.json
    gains=$(run_jq -r '"\(.name | tojson): \(.after) right instead of \(.before) of \(.of) (p \(.p * 1000 | round / 1000))"' prompts.all | paste -sd ';')
    [ -s files/prompts.json ] || ended nothing "no gain: $gains"
    tell "$gains"
    publish_files prompts.json
}

# The parent's files with another one in their midst; nothing, if that is empty.
challenger() # NAME FILE
{
    local f
    rm -rf challenger files
    mkdir challenger files
    for f in adapter.gguf memory.engram notes.index; do
        [ "$f" = "$1" ] || [ ! -s "champion/$f" ] || ln -s "../champion/$f" "challenger/$f"
    done
    if [ -s "$2" ]; then
        ln -s "../$2" "challenger/$1"
        put "$2" "files/$1"
    else
        : > "files/without.$1"
    fi
}

# What the gate says; then publication.
decide()
{
    local refused
    refused=$(run_jq -r '.refused | join("; ")' gate.json)
    [ -z "$refused" ] || ended refused "$refused"
    if [ "$command" = adapter ]; then
        step text gate
        grep -q '"ok":true' text.json ||
            ended refused "$(run_jq -r 'def two: . * 100 | round / 100;
                "held-out text has \(.after | two) instead of \(.before | two) nats a token"' text.json)"
    fi
    step speed gate
    grep -q '"ok":true' speed.json ||
        ended refused "$(run_jq -r 'def one: . * 10 | round / 10; "it answers with \(.after | one) instead of \(.before | one) tokens a second"' speed.json)"
    put gate.suite.jsonl files/suite.jsonl
    put gate.floor.jsonl files/floor.jsonl
    put gate.json files/gate.json
    if [ "$command" = index ]; then
        put notes.sum files/notes.sum
        put_if corrections.jsonl files/corrections.jsonl
    fi
    if [ -s score.jsonl ]; then put score.jsonl files/scored.jsonl; fi
    if [ "$command" = adapter ]; then sed 's/,"known":true}$/}/' guard.pairs.jsonl > files/pairs.jsonl; fi
    publish_files gate.json
}

publish_files() # FILE of files, by which this night's generation is known again
{
    local f
    if [ -n "$number" ] && [ -d "$dir/$(name_of "$number")" ]; then
        verify "$number"
        [ "$(manifest "$number" ".files[\"$1\"]")" = "$(sha256sum < "files/$1" | cut -c 1-64)" ] || number=''
    fi
    if [ -z "$number" ]; then
        number=$(next_number)
        echo "$number" > number.tmp && sync number.tmp && mv -f number.tmp number && sync . || die 1 "$work: cannot be written"
    fi
    [ -d "$dir/$(name_of "$number")" ] || make_generation "$number" "$parent" "$parent" files
    publish "$number" "$parent" || ended refused "it did not answer after publication: $(head -n 1 "$tmp/said")"
    # What the generation remembers may leave the log when that is full.
    if [ -s score.files ]; then
        while IFS= read -r -d '' f; do
            [[ $f =~ ^answers-([0-9]{4}-[0-9]{2}-[0-9]{2})\.jsonl$ ]] && [[ ${BASH_REMATCH[1]} < $date ]] && : >> "$dir/log/${BASH_REMATCH[1]}.scored"
        done < score.files || true
    fi
    ended published "$(name_of "$number")"
}
