#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# chimere-run --pipeline: steps, what they cost, what they keep, and what is refused.
load common

steps() # JSON of the steps, to p.json
{
    printf '{"steps": [%s]}' "$1" > p.json
}

pipe() # STATUS OPTION...
{
    local want=$1
    shift
    try "$want" chimere-run --pipeline p.json "$@" < /dev/null
}

told() # FILTER: of the object of --json
{
    jq -c "$1" out
}

# A command that begins and does not end.
make_wait()
{
    printf '#!/bin/sh\n: > begun\nexec sleep 100\n' > wait.sh
    chmod +x wait.sh
}

@test "steps share a conversation, and a step costs what is new in it" {
    steps '{"name": "sum", "prompt": "{{input}}", "think": false},
           {"name": "more", "prompt": "Now add 5 to 660.", "think": false},
           {"name": "other", "fork": "sum", "prompt": "Please add 1 to 3.", "think": false},
           {"name": "fresh", "fork": false, "prompt": "Please add 1 to 3.", "think": false}'
    pipe 0 -p 'Please add 95 to 660.' --json
    [ "$(told '[.steps[] | .json]')" = '[755,665,4,4]' ]
    # What a session of the same turns says: prompts that begin with all of the turn before.
    told '.steps | map(.usage) | (.[1].cached_tokens == .[0].prompt_tokens + .[0].completion_tokens) and
          .[2].cached_tokens == .[1].cached_tokens and .[3].cached_tokens < .[0].prompt_tokens and
          all(.evaluated_tokens == .prompt_tokens - .cached_tokens)' | grep -x true
    told '(.usage.evaluated_tokens == ([.steps[].usage.evaluated_tokens] | add)) and
          (.messages | map(.content)) == ["Please add 1 to 3.", "4"]' | grep -x true
    chimere-run -p 'Please add 95 to 660.' --think off --session s --json < /dev/null > 1
    chimere-run -p 'Now add 5 to 660.' --think off --session s --json < /dev/null > 2
    [ "$(told '[.steps[:2][].usage.evaluated_tokens]')" = "$(jq -c .usage.evaluated_tokens 1 2 | jq -cs .)" ]
    pipe 0 -p 'Please add 95 to 660.' -v
    [ "$(cat out)" = 4 ]
    grep -qE '^step     more: [0-9]+ of [0-9]+ tokens evaluated' err
}

@test "a parallel group is one batch over one state" {
    steps '{"name": "plan", "prompt": "{{input}}", "think": false},
           {"parallel": [{"name": "a", "prompt": "Now add 5 to 660.", "think": false},
                         {"name": "b", "prompt": "Please add 1 to 3.", "think": false},
                         {"name": "c", "command": ["tr", "0-9", "a-j"], "stdin": "{{plan}}"}]},
           {"name": "end", "prompt": "Please add 2 to 3.", "think": false}'
    printf '%s' "$(jq -c '.output = "{{a}} {{b}} {{c}} {{end}}"' p.json)" > q && mv q p.json
    pipe 0 -p 'Please add 95 to 660.' --json
    [ "$(told .text)" = '"665 4 hff 5"' ]
    told '[.steps[] | select(.usage)] | .[0].usage as $p | map(.usage.cached_tokens) | .[1:] |
          all(. >= $p.prompt_tokens + $p.completion_tokens)' | grep -x true
    # Both prompts begin before one of them has ended.
    pipe 0 -p 'Please add 95 to 660.' --jsonl
    jq -r 'select(.type | startswith("pipeline_")) | .type + " " + (.name // "")' out | sed -n '/_step [ab]$/,/_result [ab]$/p' |
        cut -d ' ' -f 1 | head -n 3 | tr '\n' ' ' | grep -qx 'pipeline_step pipeline_step pipeline_result '
    # The same answers as alone.
    pipe 0 -p 'Please add 95 to 660.'
    [ "$(cat out)" = '665 4 hff 5' ]
}

@test "when, repeat, require, show and output" {
    printf '#!/bin/sh\ncat\nread -r n < n 2> /dev/null || n=0\necho $((n + 1)) > n\necho $((n + 1))\n' > count.sh
    chmod +x count.sh
    steps '{"name": "no", "command": ["false"], "when": "input == `other`"},
           {"name": "yes", "command": ["sh", "-c", "exit 3"], "show": true, "require": "yes.status == 3"},
           {"steps": [{"name": "n", "command": ["./count.sh"], "stdin": "{{n|`0`}}:"},
                      {"name": "m", "command": ["echo", "seen"], "when": "n contains `2`"}],
            "repeat": {"until": "m", "max": 5}, "require": "m == `seen`"}'
    sed -i "s/\`/'/g" p.json
    pipe 0 -p other2 --json
    [ "$(told '[.steps[] | [.name, .text, .status]]')" = '[["yes","",3],["n","0:1",0],["n","0:1:2",0],["m","seen",0]]' ]
    rm n
    pipe 0 -p x
    [ "$(cat out)" = "$(printf '\nseen')" ]
    # Two rounds are not enough: the answer is no.
    steps '{"name": "n", "command": ["false"], "repeat": {"until": "n.status == 0", "max": 3}, "require": "n.status == 0"},
           {"name": "never", "command": ["touch", "never"]}'
    pipe 4 -p x --json
    [ "$(told '[.failed, (.steps | length)]')" = '["/steps/0",3]' ]
    [ ! -e never ]
    pipe 4 -p x
    [ ! -s out ] && grep -qF 'p.json: /steps/0: what it requires' err
}

@test "a text with NUL is printed whole" {
    echo '{"steps": [{"name": "a", "command": ["printf", "a\\0b"], "show": true}], "output": "<{{a}}>"}' > p.json
    pipe 0 -p x
    printf 'a\0b\n<a\0b>\n' | cmp - out
    pipe 0 -p x --json
    told .text | grep -xF '"<a\u0000b>"'
}

@test "tools of the file run, within its limits" {
    printf '#!/bin/sh\njq -r .expression | bc -l\n' > calc.sh
    chmod +x calc.sh
    cat > p.json << 'END'
{"limits": {"seconds": 5, "bytes": 100, "calls": 2},
 "tools": [{"name": "calculator", "description": "Evaluate an arithmetic expression.", "command": ["./calc.sh"],
            "parameters": {"type": "object", "required": ["expression"], "properties": {
                "expression": {"type": "string", "description": "Expression"}}}}],
 "steps": [{"name": "calc", "tools": ["calculator"], "prompt": "{{input}}"}]}
END
    pipe 0 -p 'Use the calculator to evaluate 12 * 34.' --json
    told '[.text, .steps[0].calls[0].name, .steps[0].calls[0].result.text, (.messages | map(.role))]' |
        grep -xF '["408","calculator","408",["user","assistant","tool","assistant"]]'
    # A result comes after what is there: nothing is read twice.
    told '.steps[0].usage | .evaluated_tokens < .prompt_tokens' | grep -x true
    printf '#!/bin/sh\necho wrong; exit 7\n' > calc.sh
    pipe 0 -p 'Use the calculator to evaluate 12 * 34.' --json
    [ "$(told '.messages[2].content')" = '"error: status 7\nwrong"' ]
}

@test "a schema, a system message, json of a result" {
    steps '{"name": "a", "prompt": "Please add 95 to 660.", "think": false, "schema": {"type": "integer"}},
           {"name": "b", "prompt": "Hello", "system": "You are a clerk.", "think": false, "tokens": 4},
           {"name": "c", "command": ["cat"], "stdin": "{\"x\": [{{a.json}}]}"},
           {"name": "d", "command": ["cat"], "stdin": "{{c.json.x.0}} {{input.json.k}} {{c.json.x}}"}'
    pipe 0 -p '{"k": "v"}' --json
    [ "$(told '[.steps[0].json, .steps[1].usage.completion_tokens, .text]')" = '[755,4,"755 v [755]"]' ]
    [ "$(told '.messages[0].role')" = '"system"' ]
    # As an ordinary question.
    [ "$(told '.steps[1].text')" = "$(chimere-run -p Hello -s 'You are a clerk.' --think off -n 4 --json < /dev/null | jq -c .text)" ]
}

@test "events and streams" {
    steps '{"name": "a", "prompt": "{{input}}", "think": false, "show": true}, {"name": "b", "command": ["echo", "hi"]},
           {"name": "c", "prompt": "Please add 1 to 3.", "think": false}'
    pipe 0 -p 'Please add 95 to 660.' --jsonl
    [ "$(jq -r .type out | uniq | tr '\n' ' ')" = \
        'pipeline_start pipeline_step token pipeline_result pipeline_step token pipeline_result pipeline ' ] ||
        [ "$(jq -r .type out | grep -c pipeline_result)" -eq 3 ]
    [ "$(jq -j 'select(.type == "token").text' out)" = 7554 ]
    pipe 0 -p 'Please add 95 to 660.'
    [ "$(cat out)" = "$(printf '755\n4')" ]
    pipe 0 -v -p 'Please add 95 to 660.'
    grep -q 'keys and values f32,f32,' err
    # Keys are those of the manual.
    steps '{"name": "a", "prompt": "{{input}}", "think": true}, {"name": "b", "command": ["echo", "hi"]}'
    pipe 0 -p 'Please add 95 to 660.' --jsonl
    for type in pipeline pipeline_start pipeline_step pipeline_result; do
        awk -v type=$type '/^\.S[sh]/ { on = $2 == type } on && /^\.It Li/ { print $3 }' "$ROOT/man/chimere-jsonl.5" |
            grep -vxE 'calls|notes' | sort > manual
        [ $type != pipeline ] || sed -i /steps/d manual
        jq -r "select(.type == \"$type\") | keys[]" out | grep -vx type | sort -u | diff manual -
    done
}

@test "a mistake is named by its place, before anything runs" {
    steps '{"name": "a", "command": ["touch", "ran"]}, {"name": "b", "prompt": "{{c}}"}, {"name": "c", "prompt": "x"}'
    fails 3 'p.json: /steps/1/prompt: step c comes later' chimere-run --pipeline p.json -p x
    steps '{"name": "a", "command": ["touch", "ran"]}, {"name": "b", "prompt": "{{nothing}}"}'
    fails 3 'p.json: /steps/1/prompt: there is no step nothing' chimere-run --pipeline p.json -p x
    steps '{"name": "a", "prompt": "x", "fork": "b"}, {"name": "b", "prompt": "x", "fork": "a"}'
    fails 3 'p.json: /steps/0/fork: step b comes later' chimere-run --pipeline p.json -p x
    steps '{"name": "a", "command": ["touch", "ran"]}, {"name": "b", "prompt": "x", "schema": {"type": "strang"}}'
    fails 3 'p.json: /steps/1/schema/type' chimere-run --pipeline p.json -p x
    steps '{"name": "a", "command": ["touch", "ran"]}, {"name": "b", "prompt": "x", "memory": {"index": "none.index"}}'
    fails 1 'p.json: /steps/1/memory: ./none.index' chimere-run --pipeline p.json -p x
    printf '{"steps": [' > p.json
    fails 3 'p.json: line 1' chimere-run --pipeline p.json -p x
    fails 1 'none.json' chimere-run --pipeline none.json -p x
    fails 2 'needs the name of a file' chimere-run --pipeline - -p x
    fails 2 '--pipeline-state' chimere-run --pipeline-state s -p x
    fails 2 '--schema' chimere-run --pipeline p.json --schema p.json -p x
    [ ! -e ran ]
    jq -n '{steps: [range(10000) | {name: "s\(.)", prompt: "x"}]}' > p.json
    fails 3 'p.json: /steps: the file has more than 256 steps' chimere-run --pipeline p.json -p x
    jq -n '{steps: [{name: "a", prompt: ("x" * 1048576)}]}' > p.json
    fails 3 'p.json: /steps/0/prompt: a text of more than' chimere-run --pipeline p.json -p x
}

@test "commands that do not end, print too much, die, or are not there" {
    steps '{"name": "long", "command": ["sh", "-c", "sleep 1000 & echo $! > pid; echo part; wait"], "seconds": 1},
           {"name": "much", "command": ["yes"], "bytes": 10}, {"name": "dead", "command": ["sh", "-c", "kill -9 $$"]}'
    pipe 0 -p x --json
    [ "$(told '[.steps[] | [.status, .end, .text]]')" = \
        '[[124,"time","part"],[125,"bytes","y\ny\ny\ny\ny"],[137,"signal",""]]' ]
    [[ "$(ps -o stat= -p "$(cat pid)")" =~ ^(Z.*)?$ ]] # ended, if not yet waited for
    steps '{"name": "a", "command": ["./nothing"]}'
    fails 3 'p.json: /steps/0 (a): ./nothing: cannot start' chimere-run --pipeline p.json -p x
}

@test "a state: a run that was cut short goes on, of the same pipeline and input alone" {
    make_wait
    steps '{"name": "a", "prompt": "{{input}}", "think": false}, {"name": "n", "command": ["sh", "-c", "echo x >> runs"]},
           {"name": "w", "command": ["./wait.sh"]}, {"name": "b", "prompt": "Now add 5 to 660.", "think": false}'
    # A shell's background jobs ignore SIGINT: env gives it back.
    env --default-signal=INT chimere-run --pipeline p.json -p 'Please add 95 to 660.' --pipeline-state st < /dev/null > out 2> err &
    pid=$!
    wait_for test -e begun
    # A second one does not get it.
    fails 1 'st: another program is writing it' chimere-run --pipeline p.json -p 'Please add 95 to 660.' --pipeline-state st
    kill -INT $pid
    status=0
    wait $pid || status=$?
    [ $status -eq 130 ]
    [ "$(jq -c '[.ran[].step]' st)" = '["a","n"]' ]
    [ ! -s out ]
    no ls .st* st.lock 2> /dev/null
    cp st before
    fails 3 'st: belongs to another input' chimere-run --pipeline p.json -p other --pipeline-state st
    printf '#!/bin/sh\necho done\n' > wait.sh
    try 0 chimere-run --pipeline p.json -p 'Please add 95 to 660.' --pipeline-state st --json < /dev/null
    [ "$(told '[.text, [.steps[].name]]')" = '["665",["w","b"]]' ]
    [ "$(wc -l < runs)" -eq 1 ]
    jq .messages out > resumed
    rm runs
    try 0 chimere-run --pipeline p.json -p 'Please add 95 to 660.' --json < /dev/null
    jq .messages out | cmp - resumed
    # Complete: it is only told again.
    try 0 chimere-run --pipeline p.json -p 'Please add 95 to 660.' --pipeline-state st < /dev/null
    [ "$(cat out)" = 665 ] && [ "$(wc -l < runs)" -eq 1 ]
    sed -i 's/660\./661./' p.json
    fails 3 'st: belongs to another pipeline' chimere-run --pipeline p.json -p 'Please add 95 to 660.' --pipeline-state st
    echo '{"type": "pipeline-state", "ran": [' > st
    fails 3 'st: line' chimere-run --pipeline p.json -p x --pipeline-state st
    echo '{"type": "other"}' > st
    mkfifo pipe
    fails 1 'pipe: is not a regular file' timeout 30 chimere-run --pipeline p.json -p x --pipeline-state pipe
    fails 3 'st: is no state' chimere-run --pipeline p.json -p x --pipeline-state st
    # Tokens that the model does not have.
    steps '{"name": "a", "prompt": "{{input}}", "think": false}'
    : > s2 # of mktemp, and as a session
    try 0 chimere-run --pipeline p.json -p 'Please add 1 to 3.' --pipeline-state s2 < /dev/null
    jq -c '.ran[0].tokens[0] = 999999' s2 > s3
    fails 3 's3: has a token' chimere-run --pipeline p.json -p 'Please add 1 to 3.' --pipeline-state s3
    jq -c '.ran[0].step = "b"' s2 > s3
    fails 3 's3: has steps in another order' chimere-run --pipeline p.json -p 'Please add 1 to 3.' --pipeline-state s3
}

@test "an interrupt within an answer" {
    steps '{"name": "a", "prompt": "{{input}}", "think": true, "repeat": {"until": "false", "max": 100}}'
    env --default-signal=INT chimere-run --pipeline p.json -p 'What is 51945 + 292?' --pipeline-state st < /dev/null > out 2> err &
    pid=$!
    wait_for test -s st
    kill -INT $pid
    status=0
    wait $pid || status=$?
    [ $status -eq 130 ] && [ ! -s out ]
    jq -e '(.ran | length) >= 1 and (.ran | length) < 100 and all(.ran[]; .result.text == "52237") and
        ([.ran[] | select(.tokens)] | length) == 1' st
    steps '{"name": "a", "prompt": " {{input}}"}'
    fails 2 'p.json: /steps/0 (a): the prompt is empty' chimere-run --pipeline p.json
}

@test "a reader that went away" {
    steps '{"name": "a", "prompt": "{{input}}", "think": false}, {"name": "b", "command": ["echo", "hi"], "show": true},
           {"name": "c", "command": ["echo", "there"]}'
    chimere-run --pipeline p.json -p 'Please add 1 to 3.' --pipeline-state st >&- 2> err < /dev/null && false
    [ "$(wc -l < err)" -eq 1 ]
    [ "$(jq -c '[.ran[].step]' st)" = '["a","b"]' ]
    # What was kept is not done again.
    try 0 chimere-run --pipeline p.json -p 'Please add 1 to 3.' --pipeline-state st --json < /dev/null
    [ "$(told '[.text, [.steps[].name]]')" = '["there",["c"]]' ]
}

@test "answers of steps are logged" {
    steps '{"name": "a", "prompt": "{{input}}", "think": false}, {"name": "b", "prompt": "Now add 5 to 660.", "think": false}'
    pipe 0 -p 'Please add 95 to 660.' --log log
    cat log/answers-*.jsonl > lines
    [ "$(wc -l < lines)" -eq 2 ]
    [ "$(jq -c '[.text, (.messages | map(.content))]' lines | tail -n 1)" = \
        '["665",["Please add 95 to 660.","755","Now add 5 to 660."]]' ]
    [ "$(tail -n 1 lines | jq .parent)" = "$(head -n 1 lines | jq .id)" ]
}

@test "memory of a step: an index, a table, a generation with its adapter" {
    mkdir -p gen
    printf 'zerit: wash the drum of a printing machine\n' > notes.txt
    chimere-engram-build index -q --lines --vectors none -o gen/notes.index notes.txt
    for i in 1 2 3 4; do echo 'The valve of the ombel opens at dawn and closes at noon.'; done > text.txt
    chimere-engram-build build -q -o table.engram text.txt
    cp "$ROOT/share/models/chimere-nano-ponder.gguf" gen/adapter.gguf
    steps '{"name": "none", "prompt": "What does the command zerit do?", "think": false},
           {"name": "index", "fork": false, "prompt": "What does the command zerit do?", "think": false, "memory": {"index": "gen/notes.index:1"}},
           {"name": "table", "fork": false, "prompt": "Hello", "think": false, "memory": {"tables": ["table.engram:0.5"]}},
           {"name": "gen", "fork": false, "prompt": "What does the command zerit do?", "think": false, "memory": {"generation": "gen"}},
           {"name": "after", "fork": false, "prompt": "Compute (45 + 48) - 12.", "think": true},
           {"name": "adapted", "fork": false, "prompt": "Compute (45 + 48) - 12.", "think": true, "memory": {"generation": "gen"}}'
    pipe 0 -p x --json
    told '.steps | map({(.name): .}) | add | .none.text == "I do not know the command zerit." and (.none | has("notes") | not) and
        .index.text == "wash the drum of a printing machine" and .index.notes[0].source == "./gen/notes.index" and
        .gen.notes[0].text == .index.notes[0].text and .adapted.reasoning != .after.reasoning' | grep -x true
    # As with the options.
    [ "$(told '.steps[5].reasoning')" = "$(chimere-run --lora gen/adapter.gguf --examples gen/notes.index -p 'Compute (45 + 48) - 12.' --json < /dev/null |
        jq -c .reasoning)" ]
    # The options hold for steps without a memory of their own.
    pipe 0 -p x --json --examples gen/notes.index
    [ "$(told '[.steps[0].text, (.steps[2] | has("notes"))]')" = '["wash the drum of a printing machine",false]' ]
    steps '{"name": "a", "prompt": "x", "memory": {"generation": "nothing"}}'
    fails 1 'p.json: /steps/0/memory: ./nothing: there is no such generation' chimere-run --pipeline p.json -p x
    cp notes.txt gen/adapter.gguf
    steps '{"name": "a", "prompt": "x", "memory": {"generation": "gen"}}'
    fails 3 'p.json: /steps/0/memory:' chimere-run --pipeline p.json -p x
}
