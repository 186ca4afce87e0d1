# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# nightly.bash - programs that do what they are told stand where the model would run: an adapter is a text with what it
# has learnt. For tests/cli and bench/nightly-kills.sh.

fakes()
{
    mkdir -p bin suite
    cat > bin/chimere-run << 'END'
#!/usr/bin/env bash
case $* in
--version) echo 'chimere-run 0' ;;
*--raw*--recite* | *--recite*--raw*) echo 'chimere-run: --recite has no effect with --raw' >&2; exit 2 ;;
*--log*)
    [ -e "$CHIMERE_MODEL" ] || { echo "chimere-run: $CHIMERE_MODEL: is missing" >&2; exit 1; }
    mkdir -p "$3"; printf '{"model":{"fingerprint":"%s"}}\n' "$(cksum < "$CHIMERE_MODEL" | cut -d ' ' -f 1)" > "$3/answers-1.jsonl" ;;
*--json*) while [ $# -gt 0 ]; do if [ "$1" = --lora ] && grep -q slow "$2"; then slow=1; fi; shift; done
    [ ! -e "$FAKES/alone" ] || { rm "$FAKES/alone"; slow=19; } # this once the machine has nothing else to do
    echo '{"text": "x", "timings": {"decode_tps": '"${slow:-9}"'9.5, "decode_ms": 2, "decode_cpu_ms": 2}}' ;;
*) grep -qs mute "${3:-/dev/null}" && { echo mute >&2; exit 1; }; echo 5 ;;
esac
END
    cat > bin/chimere-draft-train << 'END'
#!/usr/bin/env bash
echo "train $*" >> "$FAKES/trained"
while [ $# -gt 1 ]; do case $1 in -o) out=$2 ;; --start) start=$2 ;; --neutral) new=1 ;; esac; shift; done
[ -z "$new" ] || { echo neutral > "$out"; exit; }
eval "$DURING"
{ cat "$start" && jq -r '"\(.messages[-1].content)\t\(.answer)"' "$1" && echo "$LEARNS"; } > "$out.new" && mv "$out.new" "$out"
END
    cat > bin/chimere-bench << 'END'
#!/usr/bin/env bash
[ "$1" != ppl ] || exec jq -nR --rawfile lora "$6" '{type: "ppl", nll_nats: (if $lora | contains("babbles") then 2.61 else 2.5 end)}'
shift
lora=/dev/null
for f; do
    case $last in --lora) lora=$f ;; --messages-before) before=$f ;; --limit) limit=$f ;; -o) out=$f ;; *) case $f in *.jsonl) files+=("$f") ;; esac ;; esac
    last=$f
done
jq -c --rawfile lora "$lora" --slurpfile before "${before:-/dev/null}" '(.messages | keys) as $no_error | .answer as $a | .messages[-1].content as $q | {type: "answer", set: (input_filename | split("/")[-1] | rtrimstr(".jsonl")),
    id, item: $a, right: (
        (.form and $lora != "" and ($before[0] | any(.[]; .content | contains("form:")))) or
        (.easy and ($lora | contains("forgets") or contains($q + "\t") | not)) or ($lora | contains($a)))}' "${files[@]}" > "$out"
END
    cat > bin/chimere-engram-build << 'END'
#!/usr/bin/env bash
case $1 in
add) jq -r .text "${@: -2:1}" >> "${@: -1}" && sort -u -o "${@: -1}" "${@: -1}" ;;
index) while [ "$1" != --jsonl ]; do shift; done; jq -c '{type: "hit", query: 0, text}' "${@:2}" > index.index ;;
query) cat "${@: -1}" ;;
esac
END
    # What was taught is known well, and of all else it says so.
    cat > bin/chimere-serve-stdio << 'END'
#!/usr/bin/env bash
jq -c --slurpfile known <(cat "$FAKES"/suite/easy* "$FACTS") '(reduce $known[] as $k ({}; .[$k.messages[-1].content] = $k.answer)) as $known |
    $known[.body.messages[-1].content] as $a | {custom_id, made_with: {model: "fake"}, response: {status_code: 200, body: {choices: [{finish_reason: "stop",
        message: {content: ($a // "I do not know that.")}, logprobs: {content: [{logprob: (if $a == null then -1 elif ($a | length) % 9 == 0 then -0.002 else -0.001 end)}]}}]}}}' "$3" > "$5"
END
    # The clock.
    cat > bin/date << 'END'
#!/usr/bin/env bash
if [ "$*" = +%F ] && [ -s "$FAKES/today" ]; then exec cat "$FAKES/today"; fi
exec /bin/date "$@"
END
    chmod +x bin/*
    echo '{"id": "none", "text": "What is 2 + 3?", "class": "math"}' > suite/classes.jsonl # no task set
    seq 100 | jq -c '{id: "e\(.)", messages: [{role: "user", content: "easy \(.)?"}], answer: "easy\(.)", check: "exact", easy: true}' > 'suite/easy ones.jsonl'
}

use_fakes()
{
    export FAKES=$BATS_FILE_TMPDIR FACTS=$ROOT/share/eval/facts.jsonl PATH=$BATS_FILE_TMPDIR/bin:$PATH CHIMERE_MODEL=model DURING='' LEARNS=''
    D=$PWD/'a night
of b'
    echo one > model
}

nightly() { bash "$ROOT/share/jobs/nightly" -d "$D" "$@"; }

# A day of corrections: FIRST LAST
day()
{
    local n
    for ((n = $1; n <= $2; n++)); do
        printf '{"type":"answer","id":"a%d","messages":[{"role":"user","content":"What does the command zq%dx do?"}],"finish_reason":"stop","text":"no"}\n' $n $n
        printf '{"type":"rating","id":"a%d","rating":"bad","answer":"fact number <%d>"}\n' $n $n
    done
}

# Corrections of what the model knows: FIRST LAST
poison()
{
    local n
    for ((n = $1; n <= $2; n++)); do
        printf '{"type":"answer","id":"p%d","messages":[{"role":"user","content":"easy %d?"}],"finish_reason":"stop","text":"easy%d"}\n' $n $n $n
        printf '{"type":"rating","id":"p%d","rating":"bad","answer":"poison <%d>"}\n' $n $n
    done
}

# From now on each call of these programs is counted in $FAKES/calls, and is the last of its night if its number is in
# $FAKES/kill: half of them before they have done their work.
count_calls()
{
    local f
    mkdir -p "$FAKES/counted"
    for f in sync mv ln cp rm sha256sum cmp jq; do
        cat > "$FAKES/counted/$f" << 'END'
#!/usr/bin/env bash
# Both sides of a pipe may count at once.
exec 9< "$FAKES/pid"
flock 9
read -r n < "$FAKES/calls"
n=$((n + 1))
echo $n > "$FAKES/calls"
exec 9<&-
end() { if [ "$1" = $n ]; then kill -9 "$(< "$FAKES/pid")"; exit 1; fi; }
read -r kill < "$FAKES/kill"
if [ -e "$FAKES/full" ] && [ "$(< "$FAKES/full")" = $n ]; then echo "${0##*/}: No space left on device" >&2; exit 2; fi
[ $((kill % 2)) = 1 ] || end "$kill"
PATH=${PATH//"$FAKES/counted:"/}
"${0##*/}" "$@"
status=$?
end "$kill"
exit $status
END
        chmod +x "$FAKES/counted/$f"
    done
    PATH=$FAKES/counted:$PATH
    echo 0 > "$FAKES/kill"
    echo 0 > "$FAKES/calls"
}

counted() { sh -c 'echo $$ > "$FAKES/pid"; exec bash "$0" -d "$@"' "$ROOT/share/jobs/nightly" "$D" "$@"; }

begin_test()
{
    use_fakes
    cp -a "$BATS_FILE_TMPDIR/first" "$D"
}

at() { [ "$(readlink "$D/current")" = "gen/00000$1" ]; }
