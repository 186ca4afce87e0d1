#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Calls of tools and their schemas: what is kept, what is told, and what is no call.
load common

LOOSE='tool convert_currency is not held to its schema: #/properties/from_currency/pattern: '
LOOSE+='column 2: looking ahead and behind are not supported'
ASK='Can you convert 315 GBP to EUR?'

run_chat() # OPTION...
{
    chimere-run --think off "$@"
}

# The demo's tools, with a change to the parameters of the first.
tools() # FILTER
{
    jq "(.[0].function.parameters) |= ($1)" "$ROOT/share/demo/tools.json"
}

arguments() # FILTER
{
    jq -e ".tool_calls[0].function | select(.name == \"convert_currency\") | .arguments | fromjson | $1" out
}

@test "texts of a call keep their schema, with auto too" {
    tools '.properties.from_currency.maxLength = 2' > t
    try 0 run_chat --json --tools t -p "$ASK"
    arguments '.from_currency == "GB" and .amount == 315'
    [ ! -s err ]
    tools '.properties.from_currency = {anyOf: [{type: "string", pattern: "^U[A-Z]{2}$"}, {type: "null"}]} |
           .properties.to_currency.const = "EUR"' > t
    try 0 run_chat --json --tools t --tool-choice required -p "$ASK"
    arguments '(.from_currency == null or (.from_currency | test("^U[A-Z]{2}$"))) and .to_currency == "EUR"'
    # A model that writes null means null.
    tools '.properties.from_currency = {type: ["string", "null"], enum: ["null", null]}' > t
    try 0 run_chat --json --tools t --tool-choice convert_currency -p "$ASK"
    arguments '.from_currency == null'
}

@test "what auto cannot keep is told" {
    tools '.properties.from_currency.pattern = "^(?=G)"' > t
    try 0 run_chat --json --tools t -p "$ASK"
    arguments '.amount == 315'
    [ "$(cat err)" = "chimere-run: $LOOSE" ]
    try 3 run_chat --tools t --tool-choice required -p "$ASK"
    jq -nc --slurpfile t t --arg q "$ASK" '{id: 1, method: "chat/completions", body: {messages: [{role: "user", content: $q}],
        tools: $t[0], chat_template_kwargs: {enable_thinking: false}}}' > requests
    jq -nc --slurpfile t t --arg q "$ASK" '{id: 2, method: "messages", body: {max_tokens: 99,
        messages: [{role: "user", content: $q}], tools: ($t[0] | map(.function | {name, input_schema: .parameters}))}},
        {id: 3, method: "responses", body: {input: $q, tools: ($t[0] | map(.function + {type: "function"}))}}' >> requests
    try 0 chimere-serve-stdio < requests
    jq -es --arg loose "$LOOSE" 'length == 3 and all(.[]; .body.warnings == [$loose])' out
}

@test "a strict tool whose schema cannot be kept is refused, in every interface" {
    local why='tool convert_currency: #/properties/from_currency/pattern: column 2: looking ahead and behind are not supported'
    local at=parameters/properties/from_currency/pattern
    tools '.properties.from_currency.pattern = "^(?=G)"' | jq '.[0].function.strict = true' > t
    try 3 run_chat --tools t -p "$ASK"
    [ "$(cat err)" = "chimere-run: $why" ]
    try 0 run_chat --tools t --tool-choice none -p hi -n 3 # nothing is called
    jq '.[0].function.strict = false | .[1].function.strict = true' t > other
    try 0 run_chat --tools other -p "$ASK" -n 3
    grep -qF "chimere-run: $LOOSE" err
    jq -c --slurpfile t t -n '{messages: [{role: "user", content: "x"}]} as $chat | ($t[0] | map(.function)) as $f |
        {id: 1, method: "chat/completions", body: ($chat + {tools: $t[0]})},
        {id: 2, method: "chat/completions", body: ($chat + {functions: $f})},
        {id: 3, method: "responses", body: {input: "x", tools: ($f | map(. + {type: "function"}))}},
        {id: 4, method: "messages", body: ($chat + {max_tokens: 9,
            tools: ($f | map({name, input_schema: .parameters, strict}))})}' > requests
    try 0 chimere-serve-stdio < requests
    jq -es --arg why "$why" --arg at $at 'map(.status) == [400, 400, 400, 400] and all(.[]; .error.message == $why) and
        map(.error.param) == ["/tools/0/function/" + $at, "/functions/0/" + $at, "/tools/0/" + $at,
                              "/tools/0/input_schema/properties/from_currency/pattern"]' out
    jq -c 'select(.id == 1) | {custom_id: "a", method: "POST", url: "/v1/chat/completions", body}' requests > in.jsonl
    try 0 chimere-serve-stdio --batch in.jsonl -o answers
    jq -e --arg why "$why" '.response.status_code == 400 and .response.body.error.message == $why' answers.errors
    tools . | jq '.[0].function |= (.strict = true | .name = "a<b")' > t
    fails 3 'tool a<b: a tool of this name cannot be called' run_chat --tools t -p "$ASK"
}

@test "a stop string ends the text, not a call" {
    local t=$ROOT/share/demo/tools.json
    for stop in from_currency $'\n' '>' 315; do
        try 0 run_chat --json --tools "$t" --stop "$stop" -p "$ASK"
        arguments '.from_currency == "GBP"'
    done
    try 0 run_chat --json --stop 5 -p 'What is 2 + 3?'
    jq -e '.text | contains("5") | not' out
}

@test "one verdict for a schema with reasoning and without; long limits cost nothing" {
    jq -n '{type: "object", properties: ([range(20) | {key: "p\(.)", value: {type: "string", maxLength: 10000}}] |
        from_entries), required: ["p0"]}' > big
    for think in on off; do
        try 0 chimere-run --think $think --schema big -p hi -n 3
    done
    jq -nc '[{type: "function", function: {name: "f", parameters: $s[0]}}]' --slurpfile s big > t
    try 0 run_chat --tools t --tool-choice f -p hi -n 3
    echo '{"items": {"minLength": 2000000}}' > big
    for how in '-p hi' '-p hi --think off' --check; do
        # shellcheck disable=SC2086
        try 3 chimere-run --schema big $how < /dev/null
        grep -F '#/items/minLength: 2000000 is more than the limit of 1048576' err
    done
}

@test "the empty line behind the reasoning is no part of the form" {
    local ask='What is 347 + 58?' mark=4091 empty=272
    echo '{"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}' > schema
    echo 'root ::= [0-9]+' > digits
    # The same thoughts, the same answer as without a form, and an empty line that the model writes between them.
    try 0 chimere-run --json -p "$ask"
    mv out free
    for form in '--regex [0-9]+' '--grammar digits'; do
        # shellcheck disable=SC2086
        try 0 chimere-run --json -p "$ask" $form
        jq -es '.[0] as $free | .[1] | .text == $free.text and .token_ids == $free.token_ids' free out
    done
    jq -e --argjson m $mark --argjson e $empty '.token_ids | index($m) as $at | .[$at + 1] == $e' out
    try 0 chimere-run --json -p "$ask" --schema schema
    # JSON begins right behind the mark: after an empty line this model would go on with digits.
    jq -e --argjson m $mark --argjson e $empty '(.token_ids | index($m) as $at | .[$at + 1] != $e) and
        (.text | .[:1] == "{" and (fromjson | has("sum")))' out
    # Streams and texts have only the form, also behind a budget's own mark.
    try 0 chimere-run --jsonl -p "$ask" --regex '[0-9]+' --reasoning-budget 6
    jq -es 'map(select(.type == "token").text // "") | add | test("^[0-9]+$")' out
    try 0 chimere-run -p "$ask" --regex '[0-9]+'
    grep -qxE '[0-9]+' out
    # Calls that are asked for had it before.
    try 0 chimere-run --json --tools "$ROOT/share/demo/tools.json" --tool-choice required -p "$ASK"
    jq -e '.text == "" and .reasoning != null and (.tool_calls | length) > 0' out
}

@test "a keyword's value of the wrong kind is refused with its place, also where the keyword says nothing" {
    echo '{"$defs": {"a/b": {"anyOf": [true, {"type": "null", "required": "u"}]}}, "type": "string"}' > s
    for how in '-p hi' --check; do
        # shellcheck disable=SC2086
        try 3 chimere-run --schema s $how < /dev/null
        [ "$(cat err)" = 'chimere-run: s: #/$defs/a~1b/anyOf/1/required: not a list of names' ]
    done
    jq -c '.type = "object" | [{type: "function", function: {name: "f", parameters: .}}]' s > t
    try 3 run_chat --tools t --tool-choice f -p hi
    grep -qF 'tool f: parameters: #/$defs/a~1b/anyOf/1/required: not a list of names' err
    echo '{"title": null, "description": null, "type": "string", "enum": ["a"], "required": null}' > s
    [ "$(run_chat --schema s -p hi)" = '"a"' ]
}

@test "--check takes what the program printed, with its newline" {
    echo '{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}' > schema
    try 0 run_chat --schema schema -p 'What is 2+3?'
    cp out printed
    try 0 chimere-run --check --schema schema < printed
    printf '{"n": 1}\n\n' | try 4 chimere-run --check --schema schema
    printf 'a\n' | try 0 chimere-run --check --regex 'a\n'
    printf 'a\n' | try 0 chimere-run --check --regex 'a'
    printf 'a\n' | try 4 chimere-run --check --regex 'a\nb'
}
