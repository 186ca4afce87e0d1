# SPDX-License-Identifier: Apache-2.0
# messages.bats - Anthropic's Messages interface in chimere-serve-stdio: over stdin, in a batch, over HTTP.

load common

teardown()
{
    [ -n "${server:-}" ] || return 0
    kill -KILL "$server" 2> /dev/null || true
    wait "$server" 2> /dev/null || true
}
line() # ID METHOD MEMBERS: of a question whose answer is the same each time
{
    printf '{"id":"%s","method":"%s","body":{"temperature":0,"max_tokens":300,%s}}\n' "$@"
}
of() # ID FILTER: of the lines with this id, as an array
{
    jq -es --arg id "$1" "map(select(.id == \$id)) | $2" out > /dev/null || { grep "\"id\":\"$1\"" out; return 1; }
}
sum='"messages":[{"role":"user","content":"What is 347 + 58?"}]'
off='"thinking":{"type":"disabled"}'

@test "messages: blocks, as the chat answers" {
    head -n 1 "$ROOT/share/eval/tools.jsonl" > item
    tools="\"tools\":$(jq -c '[.tools[].function | {name, description, input_schema: .parameters}]' item)"
    asked=$(jq -c .messages item)
    {
        line whole messages "$sum"
        line stream messages "\"stream\":true,$sum"
        line hidden messages "\"thinking\":{\"type\":\"adaptive\",\"display\":\"omitted\"},$sum"
        line plain messages "$off,$sum"
        line stop messages "$off,\"stop_sequences\":[\"never\",\"05\"],$sum"
        line short messages "\"max_tokens\":5,\"betas\":[\"x\"],\"cache_control\":{\"type\":\"ephemeral\"},$sum" | sed 's/"max_tokens":300,//'
        line begun messages "$off,"'"messages":[{"role":"user","content":"What is 347 + 58?"},{"role":"assistant","content":"4"}]'
        line call messages "\"stream\":true,$tools,\"messages\":$asked"
        line cut messages "\"max_tokens\":60,\"stream\":true,$tools,\"messages\":$asked" | sed 's/"max_tokens":300,//'
        line cutwhole messages "\"max_tokens\":60,$tools,\"messages\":$asked" | sed 's/"max_tokens":300,//'
        line chat chat/completions "$sum"
        line count messages/count_tokens "$sum"
        line long messages "\"messages\":[{\"role\":\"user\",\"content\":\"$(yes a | head -n 3000 | tr '\n' ' ')\"}]"
    } > in; chimere-serve-stdio --ctx 2048 < in > out
    of whole '.[0].body | .type == "message" and .role == "assistant" and (.id | startswith("msg_")) and .stop_reason == "end_turn" and
        .stop_sequence == null and (.content | map(.type)) == ["thinking", "text"] and .content[1].text == "405" and (.content[0].signature | length > 0)'
    jq -es 'map({key: .id, value: .body}) | from_entries | .whole.content[0].thinking == .chat.choices[0].message.reasoning_content and
        .whole.usage.output_tokens == .chat.usage.completion_tokens and .count.input_tokens == .chat.usage.prompt_tokens and
        .whole.usage.input_tokens + .whole.usage.cache_read_input_tokens == .chat.usage.prompt_tokens and
        .hidden.content[0].thinking == "" and .hidden.content[0].signature == .whole.content[0].signature and
        .hidden.content[1] == .whole.content[1]' out
    of plain '.[0].body | .content == [{"type":"text","text":"405"}] and .usage.output_tokens_details.thinking_tokens == 0'
    of stop '.[0].body | .content[0].text == "4" and .stop_reason == "stop_sequence" and .stop_sequence == "05"'
    of short '.[0].body | .stop_reason == "max_tokens" and .usage.output_tokens == 5'
    of begun '.[0].body.content == [{"type":"text","text":"05"}]'
    of long '.[0] | .status == 400 and (.error.message | test("the prompt is too long: [0-9]+ tokens > 2048 of the context"))'
    # events of a stream add up to the whole
    of stream 'map(.body.type // .type) | map(select(. != "content_block_delta")) == ["message_start", "ping", "content_block_start", "content_block_stop",
        "content_block_start", "content_block_stop", "message_delta", "message_stop", "end"]'
    whole=$(jq -c 'select(.id == "whole").body' out)
    jq -es --argjson whole "$whole" 'map(select(.id == "stream").body | select(. != null)) |
        (map(select(.delta.type == "thinking_delta").delta.thinking) | add) == $whole.content[0].thinking and
        (map(select(.delta.type == "text_delta").delta.text) | add) == "405" and
        map(select(.delta.type == "signature_delta").delta.signature) == [$whole.content[0].signature] and
        (map(select(.type == "content_block_delta" and .delta.type == "text_delta").index) | unique) == [1] and
        (.[-2] | .delta.stop_reason == "end_turn" and .usage.output_tokens == $whole.usage.output_tokens)' out
    of call '(map(select(.body.content_block.type == "tool_use").body.content_block) | length == 1 and (.[0].id | length > 0)) and
        (map(select(.body.delta.type == "input_json_delta").body.delta.partial_json) | length > 5 and (add | fromjson | type == "object")) and
        (map(select(.body.type == "message_delta"))[0].body.delta.stop_reason == "tool_use")'
    # one that is cut off has no whole input, and is none of the whole answer
    of cut '(map(select(.body.delta.type == "input_json_delta").body.delta.partial_json) | add | startswith("{\"recipient\"") and (endswith("}") | not)) and
        (map(.body.type // .type) | .[-4:] == ["content_block_stop", "message_delta", "message_stop", "end"]) and .[-3].body.delta.stop_reason == "max_tokens"'
    of cutwhole '.[0].body | (.content | map(.type)) == ["thinking"] and .stop_reason == "max_tokens"'
    # the next turn gives back the blocks and the results of the calls, and has the prompt of the chat that says the same
    input=$(jq -s 'map(select(.id == "call")) | map(select(.body.delta.type == "input_json_delta").body.delta.partial_json) | add | fromjson' -c out)
    {
        line back messages/count_tokens "$tools,\"messages\":$(jq -c --argjson input "$input" '. + [{role: "assistant", content: [{type: "thinking",
            thinking: "so", signature: "x"}, {type: "tool_use", id: "call00000", name: "f", input: $input}]},
            {role: "user", content: [{type: "tool_result", tool_use_id: "call00000", content: [{type: "text", text: "done"}]}]}]' <<< "$asked")"
        jq -c --argjson input "$input" '{id: "chat", method: "chat/completions", body: {max_tokens: 1, tools, messages: (.messages + [{role: "assistant", content: "",
            reasoning_content: "so", tool_calls: [{id: "call00000", type: "function", function: {name: "f", arguments: ($input | tojson)}}]},
            {role: "tool", tool_call_id: "call00000", content: "done"}])}}' item
    } | chimere-serve-stdio > out
    jq -es 'map({key: .id, value: .body}) | from_entries | .back.input_tokens == .chat.usage.prompt_tokens' out
}

@test "messages: in a batch" {
    printf '{"custom_id":"a","method":"POST","url":"/v1/messages","body":{"temperature":0,"max_tokens":9,%s}}\n' "$off,$sum" > in
    echo '{"custom_id":"b","method":"POST","url":"/v1/messages","body":{"max_tokens":9}}' >> in
    chimere-serve-stdio --batch in -o answers 2> said
    jq -e '.response.body.content[0].text == "405"' answers
    jq -e '.response | .status_code == 400 and .body.type == "error" and .body.error.param == "/messages"' answers.errors
}

@test "messages: over HTTP, with either head for a key" {
    command -v curl > /dev/null || skip "curl is not installed"
    echo secret > keys
    chimere-serve-stdio --listen 127.0.0.1:0 --api-key-file keys > served 2> served.err 3>&- &
    server=$!
    wait_for test -s served || { grep -q 'without HTTP' served.err && skip "built without libmicrohttpd"; }
    url=$(jq -r .url served)
    post() # PATH BODY [OPTION OF curl ...]
    {
        curl -sS -w '\n%{http_code}\n' "$url/$1" -H 'anthropic-version: 2023-06-01' -H 'anthropic-beta: a-2025-01-01,b' -d "$2" "${@:3}" > out
    }
    body='{"temperature":0,"max_tokens":300,'"$off,$sum"
    post 'v1/messages?beta=true' "$body}" -H 'x-api-key: secret'
    [ "$(head -n 1 out | jq -r '.content[0].text')" = 405 ]
    post messages "$body,\"stream\":true}" -H 'Authorization: Bearer secret'
    [ "$(grep -c '^event: content_block_delta$' out)" -ge 1 ]
    [ "$(grep -c '^event: ' out)" -eq "$(grep -c '^data: ' out)" ] # nothing but events
    [ "$(sed -n 's/^data: //p' out | tail -n 1)" = '{"type":"message_stop"}' ]
    post v1/messages/count_tokens "{$sum}" -H 'x-api-key: secret'
    head -n 1 out | jq -e '.input_tokens > 10'
    fault() # STATUS TYPE
    {
        [ "$(tail -n 1 out)" = "$1" ]
        head -n 1 out | jq -e --arg type "$2" '.type == "error" and .error.type == $type and (.error.message | length > 0)'
    }
    post v1/messages "$body}"
    fault 401 authentication_error
    post v1/messages "$body}" -H 'x-api-key: wrong'
    fault 401 authentication_error
    post v1/messages "$body}" -H 'x-api-key: secret' -H 'x-api-key: secret'
    fault 400 invalid_request_error
    post v1/messages '{' -H 'x-api-key: secret'
    fault 400 invalid_request_error
    post v1/messages '{}' -H 'x-api-key: secret' -X PUT
    fault 405 invalid_request_error
    post v1/messages '{}' -H 'x-api-key: secret' -H 'Content-Length: 99999999999' -m 5
    fault 413 request_too_large
}
