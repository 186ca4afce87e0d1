#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# share/pipelines/tool-loop.sh: what it runs for a model and what it refuses. A program that says what it is told stands
# where chimere-run is: answer N comes from ./answer.N, and ./messages.N is what it was asked.
load common

play() # ANSWER...: JSON of the calls, or the text, of one answer after the other
{
    local i=0 a
    mkdir bin
    cat > bin/chimere-run << 'END'
#!/usr/bin/env bash
n=$(cat count 2> /dev/null || echo 0)
echo $((n + 1)) > count
while [ "$1" != --messages ]; do shift; done
cp "$2" "messages.$n"
cat "answer.$n"
END
    chmod +x bin/chimere-run
    for a; do
        case $a in
        '['*) jq -n --argjson c "$a" '{type: "completion", text: "", reasoning: "r", tool_calls: [$c[] |
            {id: "call\(.[0])", type: "function", function: {name: .[0], arguments: (.[1] | tojson)}}]}' ;;
        *) jq -n --arg t "$a" '{type: "completion", text: $t, reasoning: ""}' ;;
        esac > "answer.$i"
        i=$((i + 1))
    done
    PATH=$PWD/bin:$PATH
    mkdir -p files/sub/deep && touch files/a.txt files/sub/b outside && ln -s "$PWD" files/up
}

loop() # STATUS OPTION...
{
    local want=$1
    shift
    try "$want" bash "$ROOT/share/pipelines/tool-loop.sh" -d files "$@"
}

# The result of call I (from 0) of answer N.
result()
{
    jq -r --argjson i "${2:-0}" '[.[] | select(.role == "tool")][$i].content' "messages.$1"
}

@test "an answer without calls" {
    play 'It is "so".'
    loop 0 'What $(is) it?'
    [ "$(cat out)" = 'It is "so".' ]
    jq -e '. == [{role: "user", content: "What $(is) it?"}]' messages.0
}

@test "calls, results, answer" {
    play '[["calculator", {"expression": "(3 + 4) * 2.5"}], ["list_files", {}]]' '[["list_files", {"directory": "sub"}]]' done
    loop 0 question --temp 0
    [ "$(cat out)" = done ]
    [ "$(result 1 0)" = 17.5 ]
    [ "$(result 1 1)" = "$(printf 'a.txt\nsub/\nup')" ]
    [ "$(result 2 2)" = "$(printf 'b\ndeep/')" ]
    jq -e 'map(.role) == ["user", "assistant", "tool", "tool", "assistant", "tool"] and
           .[1].tool_calls[0].id == "callcalculator" and .[2].tool_call_id == "callcalculator" and
           .[1].reasoning_content == "r"' messages.2
    grep -q '^calculator {"expression":"(3 + 4) \* 2.5"}$' err
}

@test "no tool but those of the list" {
    play '[["sh", {"command": "touch x"}], ["run_tool", {}], ["usage", {}], ["", {}]]' done
    loop 0 question
    for i in 0 1 2 3; do [ "$(result 1 $i)" = 'error: there is no such tool' ]; done
}

@test "the calculator takes no program" {
    play '[["calculator", {"expression": "$(touch x)"}], ["calculator", {"expression": "while (1) {}"}],
           ["calculator", {"expression": "1\n2"}], ["calculator", {"expression": "1/0"}],
           ["calculator", {"expression": "9^9^9^9"}], ["calculator", {"expression": ""}],
           ["calculator", {"expression": ["`touch x`"]}], ["calculator", {"expression": "(1"}], ["calculator", []]]' done
    loop 0 question
    for i in 0 1 2 3 4 5 6 7 8; do [[ $(result 1 $i) == error:* ]]; done
    [ ! -e x ]
}

@test "the listing stays in its directory" {
    play '[["list_files", {"directory": ".."}], ["list_files", {"directory": "up"}], ["list_files", {"directory": "/etc"}],
           ["list_files", {"directory": "sub/../.."}], ["list_files", {"directory": "a.txt"}], ["list_files", {"directory": "-x"}],
           ["list_files", {"directory": "; touch x"}]]' done
    loop 0 question
    for i in 0 1 2 3 4 5 6; do [[ $(result 1 $i) == error:* ]]; done
    [ ! -e x ]
}

@test "a model that does not stop asking" {
    play '[["list_files", {}]]' '[["list_files", {}]]' '[["list_files", {}]]'
    loop 4 -n 2 question
    [ "$(cat count)" -eq 3 ]
    [ ! -s out ]
}

@test "a model that fails" {
    play x
    printf '#!/bin/sh\nexit 3\n' > bin/chimere-run
    loop 3 question
    loop 2
    loop 2 -n x question
}

@test "the embedded model calculates, and looks at files" {
    mkdir -p files/man && touch files/man/a.1 files/man/b.1
    loop 0 'Use the calculator for 45 + 48.'
    grep -q 93 out
    grep -q '^calculator ' err
    loop 0 'List the files in man.'
    grep -q '^list_files ' err
    grep -q '^a.1$' err
}

@test "rounds with zeros in front, rounds that are no number, a full disk" {
    play '[["calculator", {"expression": "1+1"}]]' 'two'
    loop 0 -n 08 'question'
    [ "$(cat out)" = two ]
    for rounds in 9999999999 x -1; do
        loop 2 -n $rounds 'question'
    done
    rm count
    local got=0
    bash "$ROOT/share/pipelines/tool-loop.sh" question > /dev/full || got=$?
    [ $got -eq 1 ]
}

@test "a program that is missing is named" {
    play done
    ln -s "$(command -v jq)" bin/jq
    try 1 env PATH="$PWD/bin" "$(command -v bash)" "$ROOT/share/pipelines/tool-loop.sh" -d files question
    [ "$(cat err)" = 'tool-loop.sh: bc: not found' ] && [ ! -e count ]
}
