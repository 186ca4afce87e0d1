#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Chats with the embedded model: tools, templates, answers that are held to a form, and what is refused.
load common

ASK='Can you convert 315 GBP to EUR?'

run_chat() # OPTION...
{
    chimere-run --think off "$@"
}

fails() # STATUS TEXT COMMAND...: fails with that status, and one line that has the text
{
    local text=$2
    try "$1" "${@:3}"
    [ ! -s out ] && [ "$(wc -l < err)" -eq 1 ] && grep -F -- "$text" err
}

@test "a call that is cut is left out, and the program says so" {
    local tools=$ROOT/share/demo/tools.json
    try 0 run_chat --json --tools "$tools" -n 20 -p "$ASK"
    jq -e '.text == "" and .tool_calls == []' out
    grep -F 'inside a call of a tool' err
    try 0 run_chat --json --tools "$tools" -p "$ASK"
    jq -e '.finish_reason == "stop" and .tool_calls[0].function.name == "convert_currency"' out
    [ ! -s err ]
}

@test "reasoning that is not wanted is closed, whoever opens it, and the context has room for what is" {
    local turn='{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n'
    printf '%b<think>\n\n' "$turn" > opens
    printf '%b\n' "$turn" > leaves
    try 0 chimere-run --template opens --parser qwen3.5 --json -n 5 -p 'What is 3 + 4?'
    jq -e '.usage.reasoning_tokens > 0' out
    for off in '--think off' '--reasoning-budget 0'; do
        # shellcheck disable=SC2086
        try 0 chimere-run --template opens --parser qwen3.5 $off --json -p 'What is 3 + 4?'
        jq -e '.reasoning == null and .usage.reasoning_tokens == 0 and .text == "7"' out
    done
    jq -c '{id: .[0], method: "chat/completions", body: ({messages: [{role: "user", content: "What is 3 + 4?"}], temperature: 0} + .[1])}' > in << 'END'
[1, {"reasoning_budget": 0}]
[2, {"chat_template_kwargs": {"enable_thinking": false}}]
[3, {"max_tokens": 4}]
END
    chimere-serve-stdio --template opens --parser qwen3.5 < in > served
    jq -es 'sort_by(.id) | map(.body) | all(.[:2][]; .choices[0].message.content == "7" and
            .usage.completion_tokens_details.reasoning_tokens == 0) and .[2].usage.completion_tokens_details.reasoning_tokens == 4' served
    # the model opens it: the mark, and what closes it
    local opens
    opens=$(chimere-run --tokenize -p '<think>' | jq '.[0]')
    try 0 chimere-run --template leaves --parser qwen3.5 --logit-bias "$opens=100000" --json -c 64 -n 2 -p 'What is 3 + 4?'
    jq -e '.usage.reasoning_tokens > 10' out
    try 0 chimere-run --template leaves --parser qwen3.5 --think off --logit-bias "$opens=100000" --json -c 64 -n 2 -p 'What is 3 + 4?'
    jq -e '(.reasoning == null or .reasoning == "") and .usage.reasoning_tokens < 5' out
    try 0 chimere-run --template leaves --parser qwen3.5 --jsonl -n 5 -p 'What is 3 + 4?'
    jq -es '.[0].ctx_tokens > 1000' out
    try 0 chimere-run --template leaves --parser qwen3.5 --think off --jsonl -n 5 -p 'What is 3 + 4?'
    jq -es '.[0].ctx_tokens < 50' out
}

@test "a call grows line by line" {
    local tools=$ROOT/share/demo/tools.json
    try 0 run_chat --jsonl --tools "$tools" -p "$ASK"
    jq -es 'map(select(.type == "tool_call_part")) as $p | map(select(.type == "tool_call")) as [$c] |
            ($p[0] | del(.type)) == {call: 0, id: $c.tool_call.id, name: "convert_currency"} and ($p | length) > 4 and
            ($p[1:] | map(.arguments) | add) == $c.tool_call.function.arguments and ($c.token_id | type) == "number" and
            all(.[] | select(.type == "token"); .text == "" and .token_id != null)' out
    # each token of the answer is still a line
    [ "$(jq -s 'map(select(.token_id != null)) | length' out)" -eq "$(jq 'select(.type == "end").usage.completion_tokens' out)" ]
    try 0 run_chat --jsonl --tools "$tools" -n 30 -p "$ASK"
    jq -es 'any(.[]; .type == "tool_call_part" and .name == "convert_currency") and all(.[]; .type != "tool_call")' out
}

@test "an answer that is held to a form is text, whatever it looks like" {
    local call=$'<tool_call>\n<function=convert_currency>\n</function>\n</tool_call>'
    for text in "x${call}y" '<think>abc</think>def' $'\n\nab'; do
        try 0 run_chat --json --tools "$ROOT/share/demo/tools.json" --regex "$text" -p "$ASK"
        jq -e --arg t "$text" '.text == $t and .reasoning == null and .tool_calls == []' out
    done
    # With --parser it is read.
    try 0 run_chat --json --tools "$ROOT/share/demo/tools.json" --parser qwen3.5 --regex "$call" -p "$ASK"
    jq -e '.text == "" and .tool_calls[0].function == {name: "convert_currency", arguments: "{}"}' out
}

@test "a number behind reasoning is that of the reasoning; an object ends" {
    echo '{"anyOf": [{"type": "number"}, {"type": "null"}]}' > number.json
    try 0 chimere-run --json --schema number.json -p 'What is 347 + 58?' < /dev/null
    jq -e '.text == "405" and .finish_reason == "stop"' out
    echo '{"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}' > object.json
    try 0 chimere-run --json -n 60 --schema object.json -p 'What is 347 + 58?' < /dev/null
    jq -e '(.text | fromjson | has("sum")) and .finish_reason == "stop"' out
}

@test "guesses change no byte of what a schema allows, at any temperature" {
    echo '{"type": "object", "properties": {"name": {"type": "string", "maxLength": 20}, "n": {"type": "array",
        "items": {"type": "integer", "maximum": 999}, "maxItems": 5}}, "required": ["name", "n"]}' > schema.json
    for seed in 1 2 3; do
        try 0 run_chat --schema schema.json --temp 1.5 --seed $seed -p 'A record of a person.'
        cp out plain
        chimere-run --check --schema schema.json < <(head -c -1 plain)
        for draft in ngram mtp; do
            try 0 run_chat --schema schema.json --temp 1.5 --seed $seed --draft $draft -p 'A record of a person.'
            cmp out plain
        done
    done
}

@test "a session reads calls of later turns with --tools" {
    local tools=$ROOT/share/demo/tools.json
    try 0 run_chat --session s --tools "$tools" -p 'Who are you?'
    cp s t
    try 0 run_chat --session s --tools "$tools" --json -p "$ASK"
    jq -e '.tool_calls[0].function.name == "convert_currency" and .usage.cached_tokens > 400' out
    jq -c .token_ids out > ids
    # The prompt is the same without; the call is text then.
    try 0 run_chat --session t --json -p "$ASK"
    jq -e '.tool_calls == [] and (.text | startswith("<tool_call>"))' out
    jq -c .token_ids out | cmp - ids
}

@test "variables of the template override those of options, but for messages and tools" {
    try 0 run_chat --show-prompt --chat-kwargs '{"add_generation_prompt": false}' -p x
    [ "$(cat out)" = $'<|im_start|>user\nx<|im_end|>' ]
    echo '{{ documents[0] }} {{ enable_thinking }}' > t.jinja
    try 0 run_chat --show-prompt --template t.jinja --chat-kwargs '{"documents": ["d"], "enable_thinking": 3}' -p x
    [ "$(cat out)" = 'd 3' ]
    fails 2 'messages and tools' chimere-run --chat-kwargs '{"messages": []}' -p x
    fails 2 'messages and tools' chimere-run --chat-kwargs '{"tools": []}' -p x
}

@test "the standard input is one thing" {
    for options in '--messages - --tools -' '--template -' '--tools -' '--messages - -' '- -' '--parse hermes --tools -'; do
        # shellcheck disable=SC2086
        fails 2 'can be standard input' chimere-run $options < /dev/null
    done
    echo '[]' > empty
    try 0 run_chat -n 2 --tools - -p x < empty
}

@test "what is beyond a limit of ours is bad data, with and without a model" {
    echo '{}' > vars
    echo '{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}' > t.jinja
    fails 3 'too many steps' chimere-run --render t.jinja --vars vars
    fails 3 'too many steps' chimere-run --template t.jinja -p x
    fails 3 '131072 states' chimere-run --regex '[ab]*a[ab]{40}' -p x
    fails 3 '131072 states' chimere-run --regex '[ab]*a[ab]{40}' --check < /dev/null
    jq -n 'reduce range(100) as $i (0; [.])' > deep
    fails 3 'nested deeper' chimere-run --messages deep
    fails 3 'nested deeper' chimere-run --schema deep -p x
}

@test "dates that are none, tools with an empty name, a full disk" {
    echo '{}' > vars
    echo '{{ "x" * 100000 }}' > t.jinja
    fails 2 'the month has no such day' chimere-run --render t.jinja --vars vars --now 2026-02-29
    try 0 chimere-run --render t.jinja --vars vars --now 2028-02-29
    echo '[{"type": "function", "function": {"name": ""}}]' > tools
    fails 3 'tool 0 is not a function with a name' chimere-run --tools tools -p x
    echo '[{"type": "function", "function": {"name": "f", "strict": "yes", "parameters": {"type": "object"}}}]' > tools
    fails 3 'tool 0: strict is not true or false' chimere-run --tools tools -p x
    fails 1 'No space left on device' bash -c 'chimere-run --render t.jinja --vars vars > /dev/full'
    fails 1 'No space left on device' bash -c 'chimere-run --inspect --json > /dev/full'
}

@test "a request saved for another program: what is not taken is told; the role developer" {
    echo '{"messages":[{"role":"user","content":"hi"}],"temperature":1,"max_tokens":3,"response_format":{"type":"json_object"},"grammar":"x","dry_base":2,"own":1,"stop":null}' > r.json
    try 0 chimere-run --messages r.json --think off -n 2
    [ "$(cat err)" = "chimere-run: r.json: only its messages and tools are used, \
not temperature, max_tokens, response_format, grammar, dry_base, own: use options for that" ]
    # a character of an answer may be any, as it may for the server; elsewhere it may not
    echo '[{"role":"user","content":"a\u0000b"}]' > nul.json
    chimere-run --messages nul.json --show-prompt | tr '\0' '@' | grep -q 'a@b'
    echo '[{"role":"us\u0000er","content":"a"}]' > nul.json
    fails 3 '\u0000 is not allowed in "role"' chimere-run --messages nul.json -p x
    echo '{"messages":[{"role":"user","content":"hi"}],"model":"x","stream":true}' > r.json
    try 0 chimere-run --messages r.json --think off -n 2
    [ ! -s err ]
    for role in developer system; do
        printf '[{"role":"%s","content":"Be terse."},{"role":"user","content":"hi"}]' $role > m.json
        chimere-run --messages m.json --show-prompt > $role
    done
    cmp developer system
    echo "{% for m in messages %}{{ m.role }}:{{ m.content }}{% endfor %}{# developer #}" > t.jinja
    chimere-run --messages <(sed 's/system/developer/' m.json) --template t.jinja --show-prompt | grep -q '^developer:'
}
