# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154
# generations.sh - the lock, and generations: directories of files that were tested together, of which a link names one.
#
# DIR/gen/000012 has adapter.gguf, memory.engram, notes.index and prompts.json, as far as there are some; scored.jsonl,
# pairs.jsonl and corrections.jsonl, which they were learnt from; suite.jsonl and floor.jsonl, what this generation and the
# first one answer to the suite; gate.json; and MANIFEST, with the SHA-256 of each. A generation never changes; one that was left has a file `refused`.
artefacts='adapter.gguf memory.engram notes.index notes.sum corrections.jsonl prompts.json'
child=''

file_of()
{
    case $1 in
    adapter) echo adapter.gguf ;;
    memory) echo memory.engram ;;
    index) echo notes.index notes.sum corrections.jsonl ;;
    prompts) echo prompts.json ;;
    esac
}
name_of() { printf 'gen/%06d' "$((10#$1))"; }

# Runs a command so that a signal to this script ends it at once. What ends it by a signal can be continued.
run() # COMMAND ...
{
    local status=0
    "$@" < /dev/null &
    child=$!
    wait "$child" || status=$?
    child=''
    return $status
}

end_by() # SIGNAL
{
    trap - "$1"
    [ -z "$child" ] || { kill -TERM "$child" 2> /dev/null && wait "$child"; } || true
    clean_up
    kill -s "$1" $$
}

# The processes that have the lock: this script and what it started have it as descriptor 9.
holders()
{
    local fd pid
    for fd in /proc/[0-9]*/fd/9; do
        pid=${fd#/proc/} pid=${pid%%/*}
        [ "$fd" -ef "$dir/lock" ] 2> /dev/null && [ "$pid" != $$ ] && printf '%s %s\n' "$pid" "$(tr -d '\n' < "/proc/$pid/comm")"
    done 2> /dev/null
    true
}

# One night at a time. What a killed one started still has the lock: it is asked to end, and keeps what it has done.
take_lock()
{
    local pid='' what='' held status=0
    exec 8>> "$dir/lock" || die 1 "$dir/lock: cannot be written"
    flock -w "$lock_wait" 8 || status=$?
    [ $status -le 1 ] || die 1 "$dir/lock: cannot be locked"
    if [ $status -eq 1 ]; then
        read -r pid what < "$dir/lock" || true
        [[ $pid =~ ^[0-9]+$ ]] || pid=0
        held=$(holders)
        if [ "/proc/$pid/fd/9" -ef "$dir/lock" ]; then
            [ -z "$timed" ] || { printf '%s: postponed: process %s has the lock: %s\n' "$me" "$pid" "$what" >&2; exit 0; }
            die 1 "process $pid has the lock: $what"
        fi
        printf '%s: ends what a killed one started: %s\n' "$me" "$(tr '\n' ' ' <<< "$held")" >&2
        cut -d ' ' -f 1 <<< "$held" | xargs -r kill -TERM 2> /dev/null || true
        flock -w 60 8 || die 1 "a killed one's process has the lock: $(holders | head -n 1)"
    fi
    exec 9>&8 8>&-
    printf '%d %s %s\n' $$ "$command" "$date" > "$dir/lock" || die 1 "$dir/lock: cannot be written"
}

fingerprint()
{
    run chimere-run -q --log "$tmp/probe" -n 1 --raw -p x > /dev/null 2> "$tmp/said" ||
        die 3 "the model cannot be used, nothing is done: $(head -n 1 "$tmp/said")"
    grep -ohm 1 '"fingerprint":"[0-9a-f]*"' "$tmp"/probe/answers-*.jsonl | head -n 1 | cut -d '"' -f 4
    rm -rf -- "$tmp/probe"
}

# Everything that MANIFEST of a generation says is there and unchanged; otherwise this ends. Its parent's number, or null,
# to $parent_of.
verify() # N
{
    local name
    name=$(name_of "$1")
    [ -d "$dir/$name" ] || die 3 "$name: is missing"
    jq -re 'select(.type == "generation" and (.model.fingerprint | type) == "string" and (.parent | . == null or type == "number")) | .parent, (.files |
        if all(to_entries[]; (.key | test("\\A[a-z]+\\.[a-z]+\\z")) and (.value | test("\\A[0-9a-f]{64}\\z"))) then
            to_entries[] | "\(.value)  \(.key)" else error end)' "$dir/$name/MANIFEST" > "$tmp/manifest" 2> /dev/null ||
        die 3 "$name/MANIFEST: is missing or damaged"
    { read -r parent_of; cat > "$tmp/sums"; } < "$tmp/manifest"
    (cd -- "$dir/$name" && sha256sum --strict --quiet -c "$tmp/sums" > "$tmp/bad" 2> /dev/null) ||
        die 3 "$name: $(head -n 1 "$tmp/bad" | cut -d : -f 1) is missing or damaged"
}

manifest() { jq -r "$2" "$dir/$(name_of "$1")/MANIFEST"; } # N FILTER

# The number of the current generation, verified, to $now.
find_current()
{
    local link
    link=$(readlink -- "$dir/current") || die 3 'current: is no link'
    [[ $link =~ ^gen/[0-9]{6,9}$ ]] || die 3 'current: does not lead to a generation'
    now=$((10#${link#gen/}))
    verify $now
}

of_this_model() # N
{
    grep -qxF "    \"fingerprint\": \"$fingerprint\"" "$dir/$(name_of "$1")/MANIFEST" ||
        die 3 "the model is another one than that of $(name_of "$1"), nothing is done: nightly --new-model starts again from the log"
}

next_number()
{
    local g max=-1
    for g in "$dir"/gen/[0-9]*; do
        g=${g##*/} g=${g%.tmp}
        [[ $g =~ ^[0-9]{6,9}$ ]] && [ $((10#$g)) -gt $max ] && max=$((10#$g))
    done
    echo $((max + 1))
}

# A generation of the files of a directory, and others of an older generation.
make_generation() # N PARENT|null OLDER|null FILES-DIR
{
    local name f from=''
    name=$(name_of "$1") new=$dir/$name.tmp
    [ "$3" = null ] || from=$dir/$(name_of "$3")
    rm -rf -- "$new"
    mkdir -- "$new" || die 1 "$name: cannot be made"
    for f in $artefacts scored.jsonl pairs.jsonl suite.jsonl floor.jsonl gate.json; do
        # What a night goes on writing to must not be a file of a generation.
        if [ -s "$4/$f" ]; then cp --reflink=auto -- "$4/$f" "$new/$f" || die 1 "$name: cannot be written"
        elif [ -n "$from" ] && [ -s "$from/$f" ] && [ ! -e "$4/without.$f" ]; then put "$from/$f" "$new/$f"
        fi
    done
    (cd -- "$new" && sha256sum -- *) > "$tmp/sums"
    run_jq -Rn --argjson generation "$1" --argjson parent "$2" --arg job "$command" --arg date "$date" \
        --arg model "${CHIMERE_MODEL:-}" --arg fingerprint "$fingerprint" --arg time "$(date -u +%FT%TZ)" \
        --arg program "$(chimere-run --version | head -n 1)" --arg options "${train[*]-}" '{type: "generation", $generation, $parent, $job,
            $date, $time, model: {file: $model, $fingerprint}, $program, $options,
            files: ([inputs | split("  ") | {(.[1]): .[0]}] | add)}' "$tmp/sums" > "$new/MANIFEST" ||
        die 1 "$name: cannot be written"
    sync -- "$new"/* "$new" && mv -T -- "$new" "$dir/$name" && sync -- "$dir/gen" || die 1 "$name: cannot be written"
    new=''
}

put() { ln -- "$1" "$2" 2> /dev/null || cp -- "$1" "$2" || die 1 "${2##*/}: cannot be written"; } # FROM TO

# Publication is the exchange of one link.
point_to() # N
{
    rm -f -- "$dir/current.tmp"
    ln -s -- "$(name_of "$1")" "$dir/current.tmp" && mv -fT -- "$dir/current.tmp" "$dir/current" && sync -- "$dir" ||
        die 1 'current: cannot be exchanged'
    [ -z "$reload" ] || run sh -c "$reload" > /dev/null 2> "$tmp/said" 9>&- ||
        printf '%s: the server was not told: %s\n' "$me" "$(head -n 1 "$tmp/said")" >&2
}

options_of() # DIRECTORY: an option a line; the directory's name has neither a line feed nor a colon
{
    [ ! -e "$1/adapter.gguf" ] || printf '%s\n' --lora "$1/adapter.gguf"
    [ ! -e "$1/memory.engram" ] || printf '%s\n' --engram "$1/memory.engram"
    [ ! -e "$1/notes.index" ] || printf '%s\n' --recite "$1/notes.index"
}

# What was published answers.
canary_sings()
{
    local options
    if [ -n "$canary" ]; then
        run sh -c "$canary" > /dev/null 2> "$tmp/said" 9>&-
    else
        mapfile -t options < <(cd -- "$dir" && options_of current)
        (cd -- "$dir" && exec chimere-run -q "${options[@]}" --think off -n 8 -p 'What is 2 + 3?' < /dev/null) > "$tmp/canary" 2> "$tmp/said" &&
            [ -s "$tmp/canary" ]
    fi
}

mark_refused() # N: it is never a parent again
{
    : > "$dir/$(name_of "$1")/refused" && sync -- "$dir/$(name_of "$1")" || die 1 "$(name_of "$1"): cannot be written"
}

# Publishes a generation that exists; one that does not answer is left at once.
publish() # N FORMER
{
    point_to "$1"
    canary_sings && return
    mark_refused "$1"
    [ "$2" = null ] || point_to "$2"
    return 4
}

# A link that is lost is no reason to begin again.
has_generation()
{
    [ ! -L "$dir/current" ] || return 0
    [ "$(next_number)" -le 1 ] || die 3 'current: is missing, but there are generations: nightly rollback --to N'
    return 1
}

first_generation() # DIRECTORY with what is kept of an older one, or nothing
{
    local n
    [ ! -t 2 ] || verbose=1 # it takes minutes
    say 'the first generation: an adapter that changes nothing, and its answers to the suite'
    fingerprint=$(fingerprint)
    work=$tmp/first
    mkdir -- "$work" "$work/files"
    cd -- "$work"
    run chimere-draft-train lora -q --neutral -o files/adapter.gguf || die 1 'no adapter can be made for this model'
    do_suite
    say "questions of the suite: $(cat suite.decide.*.jsonl | wc -l)"
    mkdir new && ln -s ../files/adapter.gguf new/adapter.gguf
    eval_suite suite.answers new files/suite.jsonl
    cp files/suite.jsonl files/floor.jsonl
    [ -z "$1" ] || [ ! -s "$1/scored.jsonl" ] || cp -- "$1/scored.jsonl" files/
    n=$(next_number)
    make_generation "$n" null null "$work/files"
    publish "$n" null || die 4 "$(name_of "$n"): does not answer: $(head -n 1 "$tmp/said")"
}

new_model()
{
    local old=''
    [ ! -d "$dir/current/" ] || old=$(cd -- "$dir/current/" && pwd -P)
    first_generation "$old"
}

rollback()
{
    local now target f next
    now=$(readlink -- "$dir/current") || now=''
    target=$to
    if [[ $now =~ ^gen/[0-9]{6,9}$ ]]; then
        now=$((10#${now#gen/}))
    else # a link that was lost is made again
        [ -n "$to" ] && [ -z "$only" ] || die 4 'current: does not lead to a generation: say --to N'
        now=''
    fi
    if [ -z "$target" ]; then
        # The generation before may have been left, too; then the one before that.
        target=$(manifest "$now" .parent 2> /dev/null) || die 3 "$(name_of "$now")/MANIFEST: is missing or damaged: say --to N"
        while [ "$target" != null ] && { [ ! -d "$dir/$(name_of "$target")" ] || [ -e "$dir/$(name_of "$target")/refused" ]; }; do
            target=$(older_than "$target")
        done
        [ "$target" != null ] || die 4 "$(name_of "$now"): there is no older one"
    fi
    target=$((10#$target))
    [ "$target" != "$now" ] || die 4 "$(name_of "$now") is the current one"
    verify "$target"
    fingerprint=$(fingerprint)
    of_this_model "$target"
    if [ -n "$only" ]; then
        verify "$now"
        mkdir -- "$tmp/files"
        for f in $(file_of "$only"); do
            if [ -s "$dir/$(name_of "$target")/$f" ]; then put "$dir/$(name_of "$target")/$f" "$tmp/files/$f"
            else : > "$tmp/files/without.$f"; fi
        done
        # These files together were never asked the suite, and of what was left nothing counts as learnt.
        : > "$tmp/files/without.suite.jsonl"; : > "$tmp/files/without.gate.json"
        if [ "$only" = adapter ]; then
            put_if "$dir/$(name_of "$target")/pairs.jsonl" "$tmp/files/pairs.jsonl"
        fi
        next=$(next_number) date=$(date +%F) command="rollback --only $only --to $target"
        make_generation "$next" "$target" "$now" "$tmp/files"
    fi
    # What is newer is left; going forward again leaves nothing. Who says --to may want what was left.
    [ -n "$only" ] || rm -f -- "$dir/$(name_of "$target")/refused"
    [ -z "$now" ] || [ "$now" -lt "$target" ] || [ ! -d "$dir/$(name_of "$now")" ] || mark_refused "$now"
    point_to "${next:-$target}"
    tell "$(name_of "${next:-$target}")"
}

# The generation that this one came from; if that is not known, the newest one before it.
older_than() # N
{
    local n
    if [ -s "$dir/$(name_of "$1")/MANIFEST" ]; then manifest "$1" .parent
    else
        for ((n = $1 - 1; n >= 0; n--)); do [ ! -s "$dir/$(name_of $n)/MANIFEST" ] || break; done
        [ $n -ge 0 ] && echo $n || echo null
    fi
}

put_if() { if [ -s "$1" ]; then put "$1" "$2"; else : > "${2%/*}/without.${2##*/}"; fi; } # FROM TO

# Of the last 14 dates, and of the last 8 Sundays, the last generation that was not left is kept, and those that were left
# after it; the current one and the two that it came from; and the first one of the model. What has no MANIFEST is no
# generation, and stays.
prune()
{
    local now n date day nights=0 sundays=0 before='' has='' keep first
    find_current
    cd -- "$dir/gen" && rm -rf -- ./*.tmp
    # MANIFEST is written by jq, a member a line.
    first=$(grep -sFlx '  "parent": null,' [0-9]*/MANIFEST | tail -n 1) || true
    keep=" $now $parent_of $([ "$parent_of" = null ] || older_than "$parent_of") $((10#0${first%/*})) "
    { grep -sEx '  "date": "[0-9-]+",' [0-9]*/MANIFEST /dev/null || true; } | sed -E 's|/.* "([0-9-]+)",$| \1|' | sort -rn > "$tmp/all"
    cut -d ' ' -f 2 "$tmp/all" | date -f - +%u | paste -d ' ' "$tmp/all" - > "$tmp/days"
    while read -r n date day; do
        if [ "$date" != "$before" ]; then
            before=$date nights=$((nights + 1)) has=''
            [ "$day" != 7 ] || sundays=$((sundays + 1))
        fi
        [ -z "$has" ] || continue
        [ -e "$n/refused" ] || has=1
        [ $nights -gt 14 ] && { [ "$day" != 7 ] || [ $sundays -gt 8 ]; } || keep="$keep$((10#$n)) "
    done < "$tmp/days"
    for n in [0-9]*; do
        [[ $n =~ ^[0-9]{6,9}$ ]] && [ -f "$n/MANIFEST" ] && [[ $keep != *" $((10#$n)) "* ]] || continue
        say "gen/$n is removed"
        rm -rf -- "$n"
    done
    forget_nights
}

forget_nights() { find "$dir/nights" -mindepth 1 -maxdepth 1 -mtime +14 -exec rm -rf -- {} +; }

status()
{
    local now night running
    has_generation || { echo 'no generation yet'; return; }
    find_current
    printf 'current: %s\n' "$(name_of "$now")"
    manifest "$now" '"from: \(if .date == "" then "the beginning" else "\(.job) of \(.date)" end), \(.time)", "parent: \(.parent)",
        "model: \(.model.fingerprint)", "files: \(.files | keys | join(" "))"'
    [ ! -s "$dir/quarantine.jsonl" ] || printf 'to review: %d\n' "$(wc -l < "$dir/quarantine.jsonl")"
    running=$(holders)
    cd -- "$dir/nights" && for night in *-*/; do
        night=${night%/}
        if [ -f "$night/result" ]; then printf '%s: %s\n' "$night" "$(cat "$night/result")"
        elif [ -d "$night" ] && [ -z "$running" ]; then printf '%s: interrupted: nightly %s %s goes on\n' "$night" "${night:11}" "${night:0:10}"
        fi
    done | tail -n 14
    [ -z "$running" ] || printf 'running: %s\n' "$running"
}
