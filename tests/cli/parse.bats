#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# chimere-run --parse: an answer on stdin, split as a family of models writes it, without a model.
load common

tools()
{
    jq -n '[{type: "function", function: {name: "search", parameters: {type: "object", properties:
        {query: {type: "string"}, limit: {type: "integer"}, exact: {type: "boolean"}}}}}]' > tools.json
}

parse() # STATUS OPTION...: of chimere-run --parse
{
    local want=$1
    shift
    try "$want" chimere-run --parse "$@" < text
}

@test "reasoning, text, a call" {
    tools
    { printf 'why\n</think>\n\nLook.\n\n<tool_call>\n<function=search>\n<parameter=query>\n007\n</parameter>\n<parameter=limit>\n'
      printf '%s\n</parameter>\n<parameter=exact>\nTrue\n</parameter>\n</function>\n</tool_call>' 18446744073709551617; } > text
    parse 0 qwen3.5 --tools tools.json --reasoning-open
    [ "$(wc -l < out)" -eq 1 ]
    jq -e '.reasoning == "why" and .content == "Look." and (.tool_calls | length) == 1 and (has("cut_off") | not) and
           .tool_calls[0].type == "function" and (.tool_calls[0].id | type) == "string" and
           .tool_calls[0].function.name == "search" and
           .tool_calls[0].function.arguments ==
               "{\"query\": \"007\", \"limit\": 18446744073709551617, \"exact\": true}"' out
}

@test "without tools a call is text" {
    printf '<tool_call>{"name": "search", "arguments": {}}</tool_call>' > text
    parse 0 hermes
    jq -e --rawfile text text '.content == $text and .tool_calls == []' out
}

@test "what is cut off is said to be" {
    tools
    printf 'a <tool_call>{"name": "sea' > text
    parse 0 hermes --tools tools.json
    jq -e '.content == "a" and .tool_calls == [] and .cut_off == "tool_call"' out
    printf '<think>a' > text
    parse 0 hermes
    jq -e '.reasoning == "a" and .cut_off == "reasoning"' out
}

@test "bytes that are no UTF-8; nothing at all" {
    printf 'a\377b' > text
    parse 0 plain
    jq -e '.content == "a\ufffdb"' out
    : > text
    parse 0 hermes
    jq -e '. == {reasoning: "", content: "", tool_calls: []}' out
}

@test "what is refused" {
    : > text
    parse 2 qwen
    grep -q "no parser is called 'qwen'; there are: hermes " err
    echo '{"a": 1}' > tools.json
    parse 3 hermes --tools tools.json
    echo '[{"type": "function"}]' > tools.json
    parse 3 hermes --tools tools.json
    parse 2 hermes --tools -
    [ ! -s out ]
}
