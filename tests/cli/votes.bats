#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Several answers in the server, of which votes keep one: best_of, vote, verifier.

bats_require_minimum_version 1.5.0
load common

ROOMS='A house has 3 rooms with 4 windows each. How many windows does it have?'

# A request of stdin: ID FILTER, what jq changes in its body.
ask()
{
    jq -cn --arg id "$1" --arg q "$ROOMS" '{id: $id, method: "chat.completions", body: ({messages: [{role: "user", content: $q}],
        enable_thinking: false, temperature: 1.5, seed: 3, max_tokens: 16, best_of: 6} | '"${2:-.}"')}'
}

# The verifier of verify.bats: it says of each solution what its arguments say, in turn.
judge()
{
    cat > judge << 'EOF'
#!/usr/bin/env bash
i=0 say=("$@")
echo $$ > pid
while read -r line; do
    printf '%s\n' "$line" >> got
    [ "${say[i]}" != end ] || exit 5
    [ "${say[i]}" != wait ] || sleep 100
    echo "${say[i]}"
    i=$(((i + 1) % ${#say[@]}))
done
EOF
    chmod +x judge
}

@test "a server keeps the same answer as chimere-run" {
    judge
    run=(chimere-run -p "$ROOMS" --think off --temp 1.5 --seed 3 -n 16 --best-of 6 --json)
    { ask majority; ask self '. + {vote: "weighted", verifier: "self"}'; ask best '. + {vote: "best", verifier: true}'; } |
        try 0 chimere-serve-stdio --parallel 6 --verifier 'cmd:./judge 0.1 0.2 0.9 0.3 0.8 0.4'
    cp out answers
    "${run[@]}" > majority.run
    "${run[@]}" --vote weighted --verifier self > self.run
    rm got
    "${run[@]}" --vote best --verifier 'cmd:./judge 0.1 0.2 0.9 0.3 0.8 0.4' > best.run
    for id in majority self best; do
        jq -se --arg id "$id" --slurpfile r $id.run '.[] | select(.id == $id) | .body |
            (.choices | length) == 1 and .choices[0].message.content == $r[0].text and .choices[0].index == 0 and
            (.chimere.search | del(.cached_tokens, .verifier)) == ($r[0].search | del(.cached_tokens, .verifier)) and
            .usage.completion_tokens == .chimere.search.generated_tokens + .chimere.search.verifier_tokens' answers
    done
    jq -se '.[] | select(.id == "self") | .body.chimere.search | .verifier == "self" and .verifier_tokens > 0 and
        ([.candidates[].score] | all(. >= 0 and . <= 1))' answers
    jq -se '.[] | select(.id == "best") | .body.chimere.search.verifier == "server"' answers
}

@test "votes in streams, other interfaces, batches and the Model Context Protocol" {
    { ask whole; ask stream '. + {stream: true, stream_options: {include_usage: true}}'
      ask r 'del(.messages, .max_tokens) + {input: .messages[0].content, max_output_tokens: 16}' | jq -c '.method = "responses"'
      ask m . | jq -c '.method = "messages"'; } > in
    try 0 chimere-serve-stdio < in
    jq -e -s '[.[] | select(.id == "whole").body][0] as $w | [.[] | select(.id == "stream").body] as $s |
        ([$s[].choices[]?.delta.content // ""] | add) == $w.choices[0].message.content and
        ($s[-2].usage.completion_tokens, $s[-3].chimere.search.votes) == ($w.usage.completion_tokens, $w.chimere.search.votes)' out
    jq -e -s '[.[] | select(.id == "whole").body][0] as $w |
        ([.[] | select(.id == "r").body][0] | [.output[].content[].text] == [$w.choices[0].message.content] and
         .usage.output_tokens == $w.usage.completion_tokens) and
        ([.[] | select(.id == "m").body][0] | [.content[].text] == [$w.choices[0].message.content] and
         .usage.output_tokens == $w.usage.completion_tokens)' out
    jq -r 'select(.id == "whole").body.choices[0].message.content' out > whole
    ask b | jq -c '{custom_id: .id, method: "POST", url: "/v1/chat/completions", body}' > batch
    try 0 chimere-serve-stdio --batch batch -o done
    jq -r '.response.body.choices[0].message.content' done | cmp - whole
    ask x '{reasoning_budget: 0, prompt: .messages[0].content, temperature, seed, max_tokens, best_of}' |
        jq -c '{jsonrpc: "2.0", id: 1, method: "tools/call", params: {name: "generate", arguments: .body,
            _meta: {"io.modelcontextprotocol/protocolVersion": "2026-07-28",
                    "io.modelcontextprotocol/clientCapabilities": {}}}}' | try 0 chimere-serve-stdio --mcp
    jq -e --rawfile w whole '.result.structuredContent | .text + "\n" == $w and .search.n == 6' out
}

@test "a vote counts in the metrics, and its log has the answer that is kept" {
    { ask a; sleep 1; echo '{"id": "m", "method": "metrics", "body": {}}'; } | try 0 chimere-serve-stdio --log log
    jq -r 'select(.id == "m").body.text' out > text
    n=$(jq 'select(.id == "a").body.usage.completion_tokens' out)
    grep -qx 'chimere_votes_total 1' text
    grep -qx 'chimere_candidates_total 6' text
    grep -qx "chimere_completion_tokens_total $n" text
    jq -e -s --slurpfile o out 'length == 1 and .[0].text == ($o[] | select(.id == "a").body.choices[0].message.content)' log/*.jsonl
}

@test "a request names no command, and what contradicts itself is refused" {
    { ask n '. + {n: 2}'; ask zero '.temperature = 0'; ask none '.best_of = 0'; ask many '.best_of = 1000000000'
      ask best '. + {vote: "best"}'; ask true '. + {verifier: true}'; ask cmd '. + {verifier: "cmd:true"}'
      ask file '. + {verifier: "x.gguf"}'; ask vote '. + {vote: "none"}'; ask alone 'del(.best_of) + {verifier: "self"}'; } > in
    try 0 chimere-serve-stdio < in
    jq -e -s 'length == 10 and all(.status == 400)' out
    jq -r '.id + " " + .error.param' out | sort > params
    printf '%s\n' 'alone /verifier' 'best /vote' 'cmd /verifier' 'file /verifier' 'many /best_of' 'n /n' 'none /best_of' 'true /verifier' \
        'vote /vote' 'zero /best_of' | cmp - params
    fails 2 '"verifier": "self"' chimere-serve-stdio --verifier self
    fails 2 'needs --verifier' chimere-serve-stdio --verifier-time 3
    fails 1 'cmd:./none: cannot start' chimere-serve-stdio --verifier cmd:./none < in
}

@test "a verifier that fails ends its request, and is started again for the next" {
    judge
    { ask a '. + {verifier: true}'; ask b '. + {verifier: true}'; ask c; } |
        try 0 chimere-serve-stdio --parallel 1 --verifier 'cmd:./judge 0.5 end'
    jq -e -s '(map(select(.id == "c"))[0].status == 200) and ([.[] | select(.id != "c") | .status, .error.param, .error.message] ==
        [range(2) | 500, "/verifier", "--verifier: cmd:./judge: ended with status 5 before solution 2 had a score"])' out
    ask a '. + {verifier: true}' | try 0 chimere-serve-stdio --verifier 'cmd:./judge NaN'
    jq -e '.status == 500 and (.error.message | contains("is no score"))' out
    ask a '. + {verifier: true}' | try 0 chimere-serve-stdio --verifier 'cmd:./judge wait' --verifier-time 1
    jq -e '.status == 500 and (.error.message | contains("no score of solution 1 after 1 s"))' out
    # a request that nobody waits for any more, and a server that ends in the meantime: nothing goes on
    rm got
    { ask a '. + {verifier: true}'; until [ -s got ]; do sleep 0.1; done; echo '{"id": "c", "method": "cancel", "body": {"id": "a"}}'; } |
        try 0 chimere-serve-stdio --verifier 'cmd:./judge wait' --verifier-time 86400
    no kill -0 "$(cat pid)"
    rm got
    mkfifo in
    chimere-serve-stdio --verifier 'cmd:./judge wait' --verifier-time 86400 --drain 1 < in > out &
    exec 9> in
    ask a '. + {verifier: true}' >&9
    until [ -s got ]; do sleep 0.1; done
    kill -TERM $!
    wait $!
    exec 9>&-
    [ ! -s out ]
    no kill -0 "$(cat pid)"
}
