#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The class of a prompt: chimere-run --classify, chimere-bench classify.
load common

ROUTES='{"default":"other","threshold":0.5,"classes":[{"name":"code","about":"programs","words":["rust","c\\+\\+"],
 "patterns":["^fn \\w+"],"files":["rs"]},{"name":"sport","words":["goal"],"files":["gpx"]},{"name":"code2"}]}'
routes() { jq -c "$1" <<< "$ROUTES" > routes.json; }
# class TEXT WANTED: the line begins with this
class()
{
    try 0 chimere-run --classify routes.json -p "$1" || return 1
    grep -q "^$2" out || { echo "$1: $(cat out), not $2"; return 1; }
}

@test "words stand alone, patterns are as they are, files have types" {
    routes .
    export CHIMERE_MODEL=/none # patterns need no model
    class 'My Rust program' 'code pattern 1.000'
    class 'c++, please' 'code pattern'
    class 'fn main' 'code pattern'
    class 'see src/main.RS for it' 'code file 1.000'
    class 'the Goal in rust.gpx' 'sport file' # both classes have a word, the file decides
    fails 1 none chimere-run --classify routes.json -p 'I trust you' # the model is asked
    fails 1 none chimere-run --classify routes.json -p 'main.rsx'
    echo hello > track.gpx
    try 0 chimere-run --classify routes.json track.gpx
    grep -qx 'sport file 1.000' out
}

@test "the model decides among what is left, or the default" {
    routes '.threshold = 0'
    try 0 chimere-run --classify routes.json -p 'Who has the ball?' --json
    jq -e '.type == "route" and .stage == "model" and ([.certainties[]] | length == 3 and (add - 1 | fabs < 1e-6)) and
        .certainty == ([.certainties[]] | max) and .certainties[.class] == .certainty' out
    try 0 chimere-run --classify routes.json -p 'rust or a goal' --json
    jq -e '.certainties.code2 == null and (.certainties.code + .certainties.sport - 1 | fabs < 1e-6)' out
    routes '.threshold = 1'
    class 'Who has the ball?' 'other default'
    printf '%s\n' '{"text":"Who has the ball?","class":"sport"}' '{"text":"rust","class":"code"}' \
        '{"text":"x","files":"a.rs","class":"other"}' > set.jsonl
    try 0 chimere-bench classify routes.json set.jsonl
    jq -e '.accuracy > 0.33 and .accuracy < 0.34 and .stages.pattern == {n: 1, right: 1} and
        .confusion == {code: {code: 1}, sport: {other: 1}, code2: {}, other: {code: 1}}' out
}

@test "a bad file of routes names the place" {
    while IFS='|' read -r change where what; do
        routes "$change"
        fails 3 "routes.json: $where: " chimere-run --classify routes.json -p x
        grep -qF -e "$what" err
    done << 'END'
.classes[0].words[1] = "a)(b"|/classes/0/words/1|the expression, at character
.classes[0].patterns[0] = "["|/classes/0/patterns/0|missing terminating ]
.classes[0].words[0] = ""|/classes/0/words/0|is not a text
.classes[1].files[0] = "a b"|/classes/1/files/0|no file type
.classes[2].name = "code"|/classes/2/name|another class has it
.classes[2].name = "a b"|/classes/2/name|is no name
.classes[1].word = []|/classes/1/word|there is no such member
.classes[1].words = {}|/classes/1/words|is not an array
.classes[1] = 7|/classes/1|is not an object
.classes = []|/classes|1 to 64
.threshold = 1.5|/threshold|0 .. 1
del(.default)|/default|is no name
END
    echo '{' > routes.json
    fails 3 'routes.json' chimere-run --classify routes.json -p x
    fails 1 none.json chimere-run --classify none.json -p x
    routes .
    fails 2 '--best-of' chimere-run --classify routes.json -p x --best-of 2
    echo '{"text":"x","class":"y"}' > set.jsonl
    fails 3 'item 1: the routes have no class "y"' chimere-bench classify routes.json set.jsonl
    # an expression that would take for ever is not found
    routes '.classes[0].patterns = ["(a+)+$"] | .classes = .classes[0:1] | .threshold = 1'
    printf 'a%.0s' {1..200} > long
    echo 'b' >> long
    try 0 chimere-run --classify routes.json long
    # nor one that takes few steps at each place of a long prompt, or too much memory
    routes '.classes[0].patterns = ["\\s*y", "(*LIMIT_HEAP=0)(a|b)*[zq]$"]'
    printf 'ab%.0s' {1..2000} > long
    printf '%60000s' zy >> long
    CHIMERE_MODEL=/none fails 1 none chimere-run --classify routes.json long
    class "$(printf '%2000s' '')y" 'code pattern'
}
