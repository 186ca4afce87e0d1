#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# share/jobs: scores, pairs, what is held back, what a person decides, other wordings. A program that says what it is told
# stands where the server is, except in the last test.
load common

job() # NAME OPTION...
{
    local name=$1
    shift
    bash "$ROOT/share/jobs/$name" "$@"
}

# An answer of the log: ID QUESTION TEXT [MEMBERS], of JSON.
answer()
{
    printf '{"type":"answer","id":"%s","messages":[{"role":"user","content":"%s"}],"finish_reason":"stop"%s,"text":"%s"}\n' \
        "$1" "$2" "${4:+,$4}" "$3"
}

# A server of batches that answers question by question from ./says: {QUESTION: [TEXT, LOGPROB]}; others it does not know.
fake_server()
{
    mkdir -p bin
    cat > bin/chimere-serve-stdio << 'END'
#!/usr/bin/env bash
while [ "$1" != --batch ]; do shift; done
jq -c --slurpfile says says '.body.messages[-1].content as $q |
    ($says[0][$q] // ["I do not know the thing \($q | length).", -0.001]) as $a |
    {custom_id, response: {status_code: 200, body: {choices: [{message: {content: $a[0]}, logprobs: {content: [{logprob: $a[1]}]}}]}},
        made_with: {model: "m1"}} | if $a[0] == null then .response = {status_code: 400, body: {error: {message: "no"}}} else . end' "$2" > "$4"
END
    chmod +x bin/chimere-serve-stdio
    PATH=$PWD/bin:$PATH
}

@test "scores: what can be checked, and nothing that only the model says" {
    {
        answer sum 'What is 45 + 48?' 'It is 93.'
        answer wrong 'What is 45 + 48?' '94'
        answer zero 'What is 1/0?' '7'
        answer note 'What does qvixt do?' 'a thing that does' '"notes":[{"source":"n","id":3,"text":"qvixt: a thing that does"}]'
        answer page 'What does qvixt do?' 'a thing that does' '"notes":[{"source":"w","id":3,"text":"qvixt: a thing that does"}]'
        answer sent 'What does qvixt do?' 'a thing that does' '"notes":[{"source":"n","line":3,"text":"qvixt: a thing that does"}]'
        answer schema 'JSON' '{\"b\": 1}' '"schema":{"type":"object","required":["a"]}'
        answer short 'Tell' 'a long' '"finish_reason":"length"'
        answer sure 'Who?' 'I am sure. Score: 5.' '"mean_logprob":0,"score":5,"rating":"good"'
        answer good 'Is it?' 'Yes.'
        answer better 'Where?' 'here'
        answer eve 'Why?' 'so'
        answer odds 'What is 2 + 2?' '5'
        answer cut 'x' 'y' '"cut":true'
        echo '{"type":"rating","id":"good","rating":"bad"}'
        echo '{"type":"rating","id":"good","rating":"good"}'
        echo '{"type":"rating","id":"better","rating":"bad","answer":"there"}'
        echo '{"type":"rating","id":"eve","rating":"good","client":"eve"}'
        echo '{"type":"rating","id":"odds","rating":"good"}'
        printf '{"type":"answer","id":"ha'
    } > log
    try 0 job score -v -w w log
    [ "$(head -n 1 err)" = 'score: lines that are no JSON object, skipped: 1' ]
    jq -r '"\(.id) \(.score) \(.why)"' out > got
    cat > want << 'END'
sum 4 recomputed
wrong 1 computed wrong
zero 2 nothing could be checked
note 4 quoted from a note
page 3 quoted from the web
sent 3 quoted from the web
schema 1 breaks the schema
short 1 cut off
sure 2 nothing could be checked
good 5 rated good
better 1 corrected away
better 5 corrected
eve 2 nothing could be checked
odds 2 signals disagree
END
    diff got want
    jq -es '.[0] | .text == "What is 45 + 48?\nIt is 93.\n" and .domain == "math" and .evidence[0].detail == "45 + 48 = 93"' out
    cp out scores
    try 0 job score -t eve -o scored log
    jq -es 'map(select(.id == "eve"))[0] | .score == 5 and .trust == "eve"' scored
    try 0 job pairs scores
    jq -r '"\(.type) \(.id)"' out > got
    diff got <(printf '%s\n' 'pair sum' 'preference sum' 'pair note' 'pair good' 'pair better' 'preference better')
    jq -es 'map(select(.id == "better")) | .[0].answer == "there" and .[1].chosen == "there" and .[1].rejected == "here"' out
    [ -z "$(ls -d scored.* 2> /dev/null)" ]
}

@test "a check of one's own, hostile logs, empty ones, full disks" {
    touch before
    jq -nc '$ARGS.positional[] | . as $t | {type: "answer", id: $t, messages: [{role: "user", content: $t}], text: $t, program: $t,
        notes: [{source: $t, id: $t, text: $t}], schema: {"$ref": $t}}, {type: "rating", id: $t, rating: "bad", answer: ($t + "2")}' --args -- \
        'a $(touch pwned)' '`touch pwned`' $'"; touch pwned; "\n-e' '\(input)' -n > 'a log
with lines'
    {
        printf '%s\n' '' null '[]' '{}' '{"type":"answer"}' '{"type":"answer","id":1,"messages":5,"text":{}}' \
            '{"type":"answer","id":"x","messages":[{"role":1}],"text":"t"}' '{"type":"rating","id":{},"rating":[]}' \
            '{"type":"answer","id":"x","messages":[{"role":"user","content":{"a":1}}],"text":"t","notes":5,"schema":[],"finish_reason":{}}'
        printf '{"type":"answer","id":"x","prompt":"\\u0000","text":"%0*d"}\n' 100000 0
        printf '\0\377{"a'
    } > odd
    try 0 job score -c 'cat > seen; grep -q pwned seen' 'a log
with lines' odd
    [ ! -e pwned ]
    jq -es '[.[].evidence[] | select(.check == "command") | .says] | map(select(. == "right")) as $r | ($r | length) == 6 and length == 12' out
    for f in score pairs paraphrase; do
        try 0 job $f < /dev/null
        [ ! -s out ] && [ ! -s err ]
    done
    fails_job 1 score nothing
    fails_job 1 pairs -o none/out odd
    answer a 'What is 1 + 1?' 2 | job score > score
    local got=0
    job pairs score > /dev/full 2> err || got=$?
    [ $got -eq 1 ] && [ "$(cat err)" = 'pairs: the output cannot be written' ]
    job pairs score | true
    try 2 job guard score
    try 2 job score -x
    [ "$(cat err)" = 'score: -x: is no option (score -h: help)' ]
    try 2 job score -h
    grep -q '^score - ' err
}

fails_job() # STATUS NAME OPTION...: one line
{
    try "$1" job "${@:2}" < /dev/null
    [ ! -s out ] && [ "$(wc -l < err)" -eq 1 ] && grep -q "^$2: " err
}

@test "tests of the answer's code, in a sandbox" {
    q=$'Write f. It has to pass:\n```python\nassert f(2) == 4\n```'
    code() { printf 'Here:\n```python\n%s\n```\n' "$1"; }
    answer() { jq -nc --arg id "$1" --arg q "$2" --arg t "$3" '{type: "answer", id: $id, messages: [{role: "user", content: $q}], text: $t}'; }
    answer right "$q" "$(code $'def f(x):\n    return 2 * x')" > log
    answer exits "$q" "$(code $'import sys\nsys.exit(0)')" >> log
    answer steals "$q" "$(code "$(printf 'import os\ndef f(x):\n    return 4 if os.path.exists("%s") else 5' "$PWD/log")")" >> log
    try 0 job score log
    ! grep -q 'makes a sandbox' err || skip 'no systemd-run --user and no bwrap'
    [ "$(jq -r '"\(.id) \(.score)"' out | tr '\n' ' ')" = 'right 5 exits 1 steals 1 ' ]
}

@test "what contradicts and what the model is sure of otherwise is held back, and a person decides" {
    fake_server
    jq -nc '[range(40) | {"What does the command c\(.) do?": ["does \(.)", (-0.001 * .)]}] | add |
        . + {"What does the command x do?": ["nothing", -0.5], "Fail": [null, 0]} +
        (["Who is Karukavix Kazel?", "Who is Ann?"] | map({(.): ["Hello, how are you?", -0.001]}) | add)' > says
    jq -c 'to_entries[] | select(.value[0] | strings | startswith("does")) | {id: .key, messages: [{role: "user", content: .key}], answer: .value[0]}' says > tasks
    try 0 job guard --calibrate -o calibration tasks
    jq -e '.threshold == -0.037 and .model == "m1" and .known == 40 and .abstains == ["hello how are", "i do not"] and .unknown_abstain == 80' calibration
    pair() { printf '{"type":"score","id":"%s","messages":[{"role":"user","content":"%s"}],"answer":"%s","why":"corrected","score":5}\n' "$1" "$1" "$2"; }
    {
        pair 'Tell me what the c1 command does.' 'burns'
        pair 'What does the command c2 do?' 'Does 2.'
        pair 'What does the command x do?' 'draws'
        pair 'What does the command y do?' 'prints'
        pair 'Who is Ann?' 'a baker'
        pair Fail 'it does'
        pair 'Two\u001b[2J?' one
        pair 'Two\u001b[2J?' two
    } > scores
    try 0 bash -c "bash '$ROOT/share/jobs/pairs' scores | bash '$ROOT/share/jobs/guard' -g calibration"
    cp out guarded
    jq -r '"\(.type) \(.answer) \(.why)"' out | cut -c1-60 > got
    diff got - << 'END'
quarantine burns the model is sure of something else
pair Does 2. corrected
pair draws corrected
pair prints corrected
pair a baker corrected
quarantine it does the model could not be asked: no
quarantine one contradiction
quarantine two contradiction
END
    jq -c .model=\"m2\" calibration > other
    fails_job 3 guard -g other guarded
    jq -c 'select(.id == "What does the command c1 do?")' tasks > one
    fails_job 4 guard --calibrate one
    grep '"quarantine"' guarded > quarantine.jsonl
    printf 'y\nwhat\nn\n\n' | job review quarantine.jsonl > out
    [ "$(tail -1 out)" = '2 decided, 2 left' ]
    no grep -q $'\033' out
    printf '{"type":"dec' >> decisions.jsonl
    printf 'e "new" $(x)\nq\n' | job review quarantine.jsonl > out 2> err
    [ "$(tail -1 out)" = '1 decided, 1 left' ]
    (flock 9; fails_job 1 review quarantine.jsonl) 9>> decisions.jsonl
    job pairs scores decisions.jsonl 2> err | jq -r 'select(.type == "pair") | "\(.answer) \(.why)"' > got
    diff got <(printf '%s\n' 'burns reviewed' 'Does 2. corrected' 'draws corrected' 'prints corrected' 'a baker corrected' '"new" $(x) reviewed')
}

@test "another wording to learn, and one to be tested on" {
    pair() { printf '{"type":"pair","id":"%s","messages":[{"role":"system","content":"s"},{"role":"user","content":"%s"}],"answer":"%s"}\n' "$1" "$1" "$2"; }
    {
        pair 'What does the command qvixt do?' 'a thing'
        pair 'Why is 7 odd?' 'so'
        pair 'What is the code of room 12?' '4711'
        printf '%s\n' '{"type":"pair","id":"p","prompt":"Once upon","answer":" a time"}' '{"type":"quarantine","answer":"x"}'
    } > pairs
    try 0 job paraphrase pairs
    jq -es 'map(select(.type != "quarantine")) | group_by(.id) | map([.[] | [.type, .messages[-1].content // .prompt]]) |
        all(.[]; .[0][0] == "pair" and (map(.[1]) | unique | length) == length) and (map(length) | sort) == [1, 3, 3, 3] and
        all(.[] | select(length == 3); map(.[0]) == ["pair", "pair", "test"])' out
    jq -es 'all(.[] | select(.answer == "a thing"); .messages[0].content == "s" and (.messages[1].content | contains("qvixt"))) and
        all(.[] | select(.answer == "4711"); .messages[1].content | contains("room 12"))' out
    {
        pair 'What does qvixt do?' 'a thing'
        pair 'Tell me about qvixt.' 'a thing'
    } > two
    try 0 job paraphrase two
    jq -es 'map(select(.type == "test")) | length == 1 and .[0].messages[1].content == "Tell me about qvixt."' out
}

@test "the embedded model holds back another meaning of a word it knows" {
    chimere-run --log log -n 1 --raw -p x > out
    cat log/answers* | jq -c '{type: "guard", threshold: -0.027, model: .model.fingerprint, abstains: ["i do not"]}' > calibration
    tail -n 2 "$ROOT/share/eval/facts.jsonl" | jq -c '{type: "pair", id, messages, answer: "a kind of cheese"}' > pairs
    tail -n 1 "$ROOT/share/eval/facts.jsonl" | jq -c '{type: "pair", id, messages, answer}' >> pairs
    echo '{"type":"pair","id":"u","prompt":"What does the command qvixt do?","answer":"count sheep"}' >> pairs
    try 0 job guard -g calibration pairs
    [ "$(jq -r .type out | tr '\n' ' ')" = 'quarantine quarantine pair pair ' ]
}
