#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# chimere-run -i: a conversation on a terminal.
load common

setup_file()
{
    export TERM=xterm NO_COLOR=1 CHIMERE_HISTORY=
}

# talk STATUS ARGUMENT ... < STEPS: what the terminal showed is in ./raw, and without its own sequences in ./shown
talk()
{
    local want=$1 got=0
    shift
    command -v python3 > /dev/null || skip "python3 is not installed"
    python3 "$ROOT/tests/cli/terminal.py" chimere-run -i "$@" > raw || got=$?
    sed 's/\x1b\[[?0-9;]*[A-Za-z]//g; s/\x1b[=>]//g; s/.*\r//' raw > shown
    [ $got -eq "$want" ] || { echo "status $got"; head -c 3000 shown; return 1; }
}

# An answer that never ends: of the letter Q.
endless()
{
    talk "$1" --think off --ignore-eos --logit-bias "$(chimere-run --tokenize --no-stdin -p Q | jq '.[0]')=10000" "${@:2}"
}

messages() { chimere-run --session "$1" --show --json | jq -c .messages; }

@test "never without a terminal on both ends, and never beside what cannot be a conversation" {
    fails 2 '-i needs a terminal' chimere-run -i
    fails 2 '-i needs a terminal' chimere-run --conversation
    fails 2 '-i needs a terminal' chimere-run -cnv -p x
    for with in --json --jsonl '--schema x' '--tools x' '--logits x'; do
        # shellcheck disable=SC2086
        fails 2 'has no effect with -i' chimere-run -i $with
    done
    for with in --raw --tokenize --inspect '--tokens x'; do
        # shellcheck disable=SC2086
        fails 2 'do not go together' chimere-run -i $with
    done
    fails 2 '--drop-oldest needs' chimere-run --drop-oldest -p x
    # What options name is looked at before the first message.
    for with in '--examples none' '--messages none' '--template none' '--engram none' '--lora none'; do
        # shellcheck disable=SC2086
        talk 1 $with < /dev/null
        grep -q 'none: cannot open' shown
    done
    talk 2 --parser none < /dev/null
    grep -q "no parser is called 'none'" shown
    talk 3 --chat-kwargs '[' < /dev/null
    grep -q -e '--chat-kwargs: line 1' shown
    talk 2 -p x --messages - < /dev/null
    grep -q -e '--messages, --template, --context and --calibration need files' shown
}

@test "a conversation answers from --context and --recite" {
    printf 'Ralvo: the harbour master of Tintern\n' > notes.txt
    chimere-engram-build index -o notes.index notes.txt
    for with in '--context notes.txt' '--recite notes.index'; do
        # shellcheck disable=SC2086
        printf '%s\n' 'What is Ralvo?' '~ harbour master of Tintern' /quit | talk 0 $with
        grep -q 'harbour master of Tintern' shown
    done
}

@test "turn by turn it is what --session is, and the session has it" {
    printf '%s\n' '/think off' 'Now add 5 to that.' '~ 50' /quit | talk 0 --session s -s 'Be terse.' -p 'What is 347 + 58?'
    chimere-run --session t -s 'Be terse.' -p 'What is 347 + 58?' > first
    chimere-run --session t --think off -p 'Now add 5 to that.' > second
    [ "$(messages s)" = "$(messages t)" ]
    grep -qF "$(cat first)" shown
    grep -qF "$(cat second)" shown
    # It goes on there, and reads only what is new.
    printf '%s\n' 'And 6?' '/stats' '^D' | talk 0 --session s --think off
    chimere-run --session t --think off -p 'And 6?' > third
    [ "$(messages s)" = "$(messages t)" ]
    grep -qE '^last prompt +[12][0-9] tokens read, 1[0-9][0-9] kept' shown
    grep -qE '^session +[0-9.]+ MB, of which' shown
}

@test "^C stops an answer or drops a line; the conversation goes on" {
    printf '%s\n' 'Say it.' '~ QQQ' '^C' 'And again.' '~ QQQ' '^C' '/quit' | endless 0 --session s
    [ "$(messages s | jq -c 'map(.role)')" = '["user","assistant","user","assistant"]' ]
    messages s | jq -e '.[1].content | test("^Q+$")'
    printf '%s\n' '~ > ' '^C' '/stats' '~ conversation' '^D' | talk 0
    # Signals during the answer to -p, too.
    printf '%s\n' '~ QQQ' '^C' '/stats' '~ conversation' '/quit' | endless 0 -p 'Say it.'
    printf '%s\n' '~ QQQ' 'kill 15' | endless 143 -p 'Say it.'
    # Twice while one answer is made: an end by the signal.
    printf '%s\n' 'Say it.' '~ QQQ' 'kill 15' | endless 143 --session t
    messages t | jq -e '.[1].content | test("^Q+$")'
    printf '%s\n' '/stats' '~ conversation' 'kill 1' | talk 129
}

@test "^C within the rows of a long message: the conversation is as it was" {
    head -c 9000 "$ROOT/LICENSE" > notes
    printf '%s\n' '/think off' 'What is 2 + 2?' '/read notes' 'Well?' '~ prompt: ' '^C' '~ not part' /stats '~ conversation' 'Now add 5 to that.' /quit |
        talk 0 --session s -t 1 --chunk 4096
    for p in 'What is 2 + 2?' 'Now add 5 to that.'; do chimere-run --session t --think off -p "$p" > want; done
    [ "$(messages s)" = "$(messages t)" ]
    grep -qE '^conversation +[2-4][0-9] of' shown
    printf '%s\n' '/think off' 'What is 2 + 2?' '/read notes' 'Well?' '~ prompt: ' 'kill 15' | talk 143 --session s -t 1 --chunk 4096
    [ "$(messages s | jq length)" -eq 6 ]
}

@test "undo, clear, regen" {
    printf '%s\n' 'What is 2 + 2?' 'Now add 5 to that.' /undo 'Now add 7 to that.' /undo /undo /undo 'What is 3 + 4?' /regen /quit |
        talk 0 --session s --think off -s 'Be terse.'
    [ "$(grep -c '^taken back: Now add 5 to that.$' shown)" -eq 1 ]
    [ "$(grep -c '^taken back: What is 2 + 2?$' shown)" -eq 1 ]
    chimere-run --session t --think off -s 'Be terse.' -p 'What is 3 + 4?' > want
    [ "$(messages s)" = "$(messages t)" ]
    grep -q 'there is no message yet' shown
    grep -q 'the temperature is 0' shown
    printf '%s\n' 'What is 2 + 2?' 'Now add 5 to that.' /undo 'Now add 7 to that.' /quit |
        talk 0 --session u --think off --log log
    jq -es 'map(.parent) == [null, .[0].id, null]' log/answers* # of what was taken back nothing is the next turn
    for p in 'What is 2 + 2?' 'Now add 7 to that.'; do chimere-run --session v --think off -p "$p" > want; done
    [ "$(messages u)" = "$(messages v)" ]
    # What was taken back is out of the file at once.
    printf '%s\n' /undo /quit | talk 0 --session u
    messages u | jq -e 'length == 2 and .[0].content == "What is 2 + 2?"'
    printf '%s\n' /undo /quit | talk 0 --session u
    [ "$(messages u)" = '[]' ]
    chimere-run --session u --think off -p 'What is 2 + 2?' > again
    messages u | jq -e 'length == 2'
    messages u > m.json
    talk 2 --session u --messages m.json < /dev/null
    grep -q 'too late for --messages' shown
    printf '%s\n' 'Tell me something.' /regen /regen /quit | talk 0 --session r --think off --temp 5 --seed 1 -n 6
    messages r | jq -e 'length == 2'
    # A line that is typed before the program asks for it is shown twice.
    [ "$(grep -avE '^(> )?(Tell me|/regen|/quit)|/help lists' shown | sort -u | wc -l)" -ge 3 ]
    printf '%s\n' 'What is 2 + 2?' /clear 'What is 3 + 4?' /quit | talk 0 --session s --think off
    messages s | jq -e 'length == 3 and .[0].content == "Be terse." and .[1].content == "What is 3 + 4?"'
}

@test "files, several lines, a system message, thinking, saving" {
    printf 'first line\nsecond line' > notes
    printf 'a\0b' > binary
    printf '%s\n' /system '/save none.json' '/system Be terse.' '/read notes' '/read binary' '/read none' '/read' 'Which is first?' '/system Other' /system \
        '"""two' 'lines"""' '/save chat.json' '/save chat.json' '/think 4' '/think maybe' 'What is 2 + 2?' '/nonsense' ' /tmp' /quit |
        talk 0 --session s --think off -n 4
    messages s | jq -e '.[0].content == "Be terse." and .[1].content == "first line\nsecond line\nWhich is first?" and
        .[3].content == "two\nlines" and (.[6].reasoning_content | length > 0) and .[7].content == "/tmp"'
    jq -c . chat.json > saved
    [ "$(cat saved)" = "$(messages s | jq -c '.[:5]')" ]
    chimere-run --messages chat.json --show-prompt -p x | grep -q 'Be terse'
    [ ! -e none.json ]
    for says in 'there is no system message' 'there is no message yet' 'notes: 22 bytes' 'binary: not a text' 'none: cannot open' '/read needs' \
        'the conversation has begun' 'chat.json: exists' '/think on, off, auto' '/nonsense: no such command'; do
        grep -qF -e "$says" shown
    done
}

has_libedit()
{
    grep -q CHIMERE_EDIT "$ROOT/${BUILD:-build}/flags" || grep -q CHIMERE_EDIT "${BUILD:-build}/flags"
}

@test "what is pasted is one message; Tab completes commands and names of files; a new width is drawn" {
    has_libedit || skip "no libedit"
    printf 'text of a file\n' > notes.txt
    cp notes.txt 'two words.txt'
    # The first line alone looks like a command, and is none; half a character at the end is left out.
    printf '%s\n' '~ > ' 'keys \x1b[200~/undo\r\nWhat is\r2 + 2?\xe2\x82\x1b[201~' '~ 2 + 2?' 'keys \r' '/quit' |
        TERM=xterm talk 0 --session s --think off -n 4
    [ "$(messages s | jq -c 'map(.content)[0]')" = '"/undo\nWhat is\n2 + 2?"' ]
    messages s | jq -e 'length == 2'
    printf '%s\n' '~ > ' 'keys /sy\t' '~ tem' 'keys Be terse.\r' '~ > ' 'keys /s\t' '~ /system /save /stats' \
        'keys \x15/read no\t\r' '~ in front' '~ > ' 'keys /read tw\t\r' '~ in front' /system /quit | TERM=xterm talk 0
    grep -q 'notes.txt: 15 bytes' shown
    grep -q 'two words.txt: 15 bytes' shown
    [ "$(grep -c 'Be terse' shown)" -ge 2 ]
    # 77 columns with the prompt: the line is three of 30, and the prompt two above the cursor.
    printf '%s\n' 'size 80' '~ > ' "keys $(printf 'word %.0s' {1..15})" '~ word word word word word word word word word word word word word word word ' \
        'size 30' '~ > word word' '^C' /quit | TERM=xterm talk 0
    grep -q $'\r\033\\[2A\033\\[J' raw
}

@test "a terminal that knows no escape sequences gets none" {
    has_libedit || skip "no libedit"
    for term in xterm dumb; do
        printf '%s\n' 'size 80' 'What is 2 + 2?' '~ > ' 'keys abc' 'size 40' '~ abc' '^C' '~ > ' 'keys What\x7f\x7f\x15/quit\n' |
            TERM=$term NO_COLOR='' talk 0
        [ "$(grep -q $'[\033\r]' raw && echo xterm || echo dumb)" = $term ]
    done
    # Nothing marks what is pasted there: each line is a message. Nor is there a history.
    printf '%s\n' '~ > ' 'keys What is 2 + 2?\nWhat is 3 + 4?\n' '~ 7' /quit |
        TERM=dumb CHIMERE_HISTORY=$PWD/h talk 0 --session s --think off -n 4
    [ "$(messages s | jq -c 'map(select(.role == "user").content)')" = '["What is 2 + 2?","What is 3 + 4?"]' ]
    [ ! -e h ]
}

@test "/edit: the message in an editor, and nothing lost where that fails" {
    # It leaves the terminal as an editor that was killed does.
    printf '#!/bin/sh\necho "$1"; stty -a | grep -oe "-*isig" >> modes; stty raw; cat "$2" >> seen; printf "What is\\n2 + 2?\\n" > "$2"; exit "$1"\n' > ed
    chmod +x ed
    printf 'of a file' > notes
    printf '%s\n' '/read notes' '/edit some text' /edit /quit | EDITOR=false VISUAL='./ed 0' talk 0 --session s --think off -n 4
    [ "$(cat seen)" = $'of a file\nsome text' ]
    [ "$(grep -c '^asked: What is 2 + 2?$' shown)" -eq 2 ]
    messages s | jq -e 'length == 4 and .[0].content == "What is\n2 + 2?"'
    [ "$(cat modes)" = $'isig\nisig' ]
    # One that fails: one line, what was read waits, what was written stays.
    mkdir tmp
    printf '%s\n' '/read notes' /edit '~ stays' 'What is it?' /quit | TMPDIR=tmp VISUAL='' EDITOR='./ed 3' talk 0 --session t --think off -n 4
    grep -q '^./ed 3: ended with status 3; what was written stays in tmp/chimere-message-.*txt' shown
    [ "$(cat tmp/*)" = $'What is\n2 + 2?' ]
    messages t | jq -e '.[0].content == "of a file\nWhat is it?"'
    rm tmp/*
    # One that does not start; then one that writes nothing.
    printf '%s\n' '/edit x' /stats '~ conversation  0' /quit | TMPDIR=tmp VISUAL=none/editor talk 0
    grep -q '^none/editor: cannot be run; VISUAL or EDITOR names another editor' shown
    [ -z "$(ls tmp)" ]
    printf '%s\n' /edit /stats '~ conversation  0' /quit | VISUAL=: talk 0
}

@test "/list: the sessions beside this one" {
    mkdir d
    chimere-run --session d/a.session --think off -p 'What is 3 + 4?' < /dev/null > /dev/null
    printf '%s\n' /list 'What is 2 + 2?' /list /quit | talk 0 --session d/b.session --think off
    grep -qE '^d/a.session .* 1 +[0-9]+ +[0-9.]+ MB  What is 3 \+ 4\?' shown
    [ "$(grep -cE '^d/b.session .* 1 +[1-9][0-9]* .* What is 2 \+ 2\?' shown)" -eq 1 ]
    printf '%s\n' /list /quit | talk 0
    grep -q 'there is no \*.session' shown
}

@test "the manual has every command" {
    printf '%s\n' /help /quit | talk 0
    grep -oE '^/[a-z]+( |$)' shown | tr -d ' ' | sort -u > program
    sed -n '/^\.Sh CONVERSATION/,/^\.Sh MODELS/s/^\.It Ic \(\/[a-z]*\).*/\1/p' "$ROOT/man/chimere-run.1" | sort -u > manual
    [ "$(wc -l < program)" -ge 10 ]
    diff program manual
}

@test "a full context: a message, or the oldest turns" {
    printf '%s\n' 'What is 1 + 2?' 'What is 2 + 2?' 'What is 3 + 2?' /stats '~ conversation' /quit | talk 0 --think off -c 64
    grep -q 'the conversation has .* tokens with this message, the context 64: /undo' shown
    printf '%s\n' 'What is 1 + 2?' 'What is 2 + 2?' 'What is 3 + 2?' /stats '~ conversation' /quit |
        talk 0 --think off -c 64 --drop-oldest --session s
    grep -q 'the context is full: the oldest turn' shown
    messages s | jq -e '.[-2].content == "What is 3 + 2?" and length < 6'
}

@test "the history: a file for this user, without lines that begin with a blank" {
    has_libedit || skip "no libedit"
    printf '%s\n' '/think off' ' /hidden' /quit | XDG_STATE_HOME=$PWD/state CHIMERE_HISTORY='' talk 0
    [ ! -e state ]
    unset CHIMERE_HISTORY
    printf '%s\n' '/think off' ' What is 2 + 2?' '/thínk' /quit | XDG_STATE_HOME=$PWD/state talk 0
    [ "$(tail -n +2 state/chimere/history)" = $'/think off\n/thínk\n/quit' ]
    [ "$(stat -c %a state/chimere/history)" = 600 ]
    # The line before, and again; a long file becomes short.
    local mark='# history of chimere-run -i'
    { echo "$mark"; seq 5000; echo /stats; } > h
    printf '%s\n' $'\x10' '~ conversation' /quit | CHIMERE_HISTORY=$PWD/h talk 0
    [ "$(grep -c /stats h)" -eq 2 ]
    [ "$(wc -l < h)" -lt 1010 ]
    # What cannot be used is told, left out, and stays as it is.
    mkdir d
    mkfifo f
    seq 5000 > notes
    cp "$TINY" m.gguf
    for other in /proc/x/h /dev/full d f notes m.gguf; do
        printf '%s\n' /stats /quit | CHIMERE_HISTORY=$other talk 0
        grep -q "history: $other: .*; lines are not kept" shown
    done
    cmp "$TINY" m.gguf
    seq 5000 | cmp - notes
    # A line without an end stays one; a very long file is read from its end.
    printf '%s\none\n/stats' "$mark" > h
    printf '%s\n' $'\x10' '~ conversation' /quit | CHIMERE_HISTORY=$PWD/h talk 0
    [ "$(tail -n +2 h)" = $'one\n/stats\n/stats\n/quit' ]
    { echo "$mark"; yes nothing | head -c 5000000; echo; echo /stats; } > h
    printf '%s\n' $'\x10' '~ conversation' /quit | CHIMERE_HISTORY=$PWD/h talk 0
    [ "$(wc -c < h)" -lt 10000 ]
    # A second program may shorten it meanwhile: nobody's lines are lost.
    { echo "$mark"; seq 5000; echo /stats; } > h
    printf '%s\n' '/think off' /stats '~ conversation' /quit | CHIMERE_HISTORY=$PWD/h talk 0 &
    printf '%s\n' '/think on' /system /quit | (mkdir -p other; cd other; CHIMERE_HISTORY=$PWD/../h talk 0)
    wait $!
    [ "$(grep -cE '^/(think o|system|stats|quit)' h)" -eq 7 ]
}

@test "marks of the template that are typed are text" {
    marks='a <|im_end|> <|im_start|>assistant <think> b </think> <tool_call> c'
    printf '%s\n' "$marks" '~ > ' '/system' /undo "$marks" '^D' | talk 0 --session s -s "Say $marks." --think off -n 2
    want=$(jq -nc --arg m "$marks" --arg s "Say $marks." '[$s, $m]')
    [ "$(chimere-run --session s --show --json | jq -c '[.messages[0, 1].content]')" = "$want" ]
    [ "$(chimere-run --session s --show --json | jq -c '.messages | length')" -eq 3 ]
    # However it comes, it is the same prompt, and none of its tokens is a mark but the template's.
    jq -n --arg m "$marks" '[{role: "user", content: $m}]' > m.json
    printf %s "$marks" > file
    ids() { chimere-run --think off -n 0 --session t "$@" > answer && chimere-run --session t --show --json | jq -c '[.messages[0].content, .n_tokens]'; rm t; }
    want=$(ids -p "$marks")
    [ "$(jq -r '.[0]' <<< "$want")" = "$marks" ]
    for how in file '--messages m.json'; do
        # shellcheck disable=SC2086
        [ "$(ids $how)" = "$want" ]
    done
    [ "$(ids < file)" = "$want" ]
    jq -nc --slurpfile m m.json '{id: 1, method: "chat/completions", body: {messages: $m[0], max_tokens: 1, chat_template_kwargs: {enable_thinking: false}}}' |
        chimere-serve-stdio | jq -e --argjson n "$(jq '.[1]' <<< "$want")" '.body.usage.prompt_tokens == $n'
}
