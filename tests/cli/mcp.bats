# SPDX-License-Identifier: Apache-2.0
# mcp.bats - chimere-serve-stdio --mcp: messages of both revisions, as they stand on the wire.

load common

# The members that each request of 2026-07-28 has.
META='"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}'

got() { [ "$(wc -l < out)" -ge "$1" ]; }
# say N LINE...: sends the lines, and ends the input when N lines came back
say()
{
    : > out
    # shellcheck disable=SC2086
    { printf '%s\n' "${@:2}"; wait_for got "$1" > /dev/null 2>&1; } | chimere-serve-stdio --mcp ${OPTIONS:-} > out 2> err
    [ "$(wc -l < out)" -eq "$1" ] && [ ! -s err ] || { cat out err; return 1; }
    jq -es 'all(.[]; .jsonrpc == "2.0" and (has("method") or (has("id") and (has("result") != has("error")))))' out
}
modern() # ID METHOD [MEMBERS]
{
    printf '{"jsonrpc":"2.0","id":%s,"method":"%s","params":{%s%s}}' "$1" "$2" "$META" "${3:+,$3}"
}
legacy()
{
    printf '{"jsonrpc":"2.0","id":%s,"method":"%s"%s}' "$1" "$2" "${3:+,\"params\":{$3\}}"
}
of() # ID FILTER
{
    jq -es --argjson id "$1" ".[] | select(.id == \$id) | $2" out || { cat out; return 1; }
}
BEGIN='"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}'
SUM='"name":"generate","arguments":{"prompt":"What is 347 + 58?","temperature":0}'

@test "2026-07-28: discover, list, call, each on its own" {
    say 4 "$(modern 1 server/discover)" "$(modern 2 tools/list)" "$(modern '"three"' tools/call "$SUM")" \
        "$(modern 4 tools/call '"name":"score","arguments":{"context":"The kernel","text":" will"}')"
    of 1 '.result | (.supportedVersions | index("2026-07-28")) and .capabilities.tools == {} and .resultType == "complete" and .ttlMs >= 0'
    of 2 '.result | .resultType == "complete" and .cacheScope == "public" and ([.tools[].name] == ["generate", "score"]) and
        all(.tools[]; .inputSchema.type == "object" and .outputSchema.type == "object")'
    of '"three"' '.result | .resultType == "complete" and .isError == false and .content[0].text == "405" and
        .structuredContent.finish_reason == "stop" and (.structuredContent.reasoning | test("347"))'
    of 4 '.result.structuredContent | .tokens == [" will"] and .token_logprobs == [.logprob] and .logprob < 0 and .perplexity > 1'
}

@test "2025-11-25: initialize, ping, list, call; results without what came later" {
    say 4 "$(legacy 1 initialize "$BEGIN")" '{"jsonrpc":"2.0","method":"notifications/initialized"}' "$(legacy 2 ping)" \
        "$(legacy 3 tools/list)" "$(legacy 4 tools/call "$SUM")"
    of 1 '.result | .protocolVersion == "2025-11-25" and .capabilities.tools == {} and .serverInfo.name == "chimere"'
    of 2 '.result == {}'
    of 3 '.result | keys == ["tools"]'
    of 4 '.result | .content[0].text == "405" and (has("resultType") | not)'
    say 1 "$(legacy 1 initialize '"protocolVersion":"1999-01-01","capabilities":{},"clientInfo":{"name":"x","version":"1"}')"
    of 1 '.result.protocolVersion == "2025-11-25"'
}

@test "both revisions in one process; what is not of a revision is not served by it" {
    say 7 "$(legacy 1 tools/list)" "$(legacy 2 server/discover)" "$(legacy 3 initialize "$BEGIN")" "$(modern 4 ping)" \
        "$(modern 5 initialize "$BEGIN")" "$(modern 6 tools/list)" "$(legacy 7 tools/list)"
    of 1 '.error.code == -32602'
    of 2 '.error.code == -32602'
    of 4 '.error.code == -32601'
    of 5 '.error.code == -32601'
    of 6 '.result.resultType == "complete"'
    of 7 '.result.tools | length == 2'
    say 4 "$(modern 1 tools/list | sed 's/2026-07-28/2031-01-01/')" "$(modern 2 tools/list | sed 's/"2026-07-28"/5/')" \
        '{"jsonrpc":"2.0","id":3,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}' \
        "$(modern 4 resources/list)"
    of 1 '.error | .code == -32022 and .data.requested == "2031-01-01" and (.data.supported | index("2026-07-28"))'
    of 2 '.error.code == -32602'
    of 3 '.error.code == -32602'
    of 4 '.error.code == -32601'
}

@test "lines that are no messages, and arguments that are wrong" {
    say 10 'x' '[]' "[$(modern 1 tools/list)]" '5' '{"jsonrpc":"1.0","id":2,"method":"ping"}' '{"jsonrpc":"2.0","id":null,"method":"ping"}' \
        '{"jsonrpc":"2.0","id":1.5,"method":"ping"}' '{"jsonrpc":"2.0","id":3}' '{"jsonrpc":"2.0","id":4,"method":"ping","params":[]}' \
        '{"jsonrpc":"2.0","id":5,"result":{}}' '{"jsonrpc":"2.0","method":"no/such"}' '{"jsonrpc":"2.0","method":"notifications/cancelled"}' \
        '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":77}}' "$(printf 'x\xff')"
    jq -es '[.[].error.code] == [-32700, -32600, -32600, -32600, -32600, -32600, -32600, -32600, -32602, -32700]' out
    say 1 '{"jsonrpc":"2.0","id":9,"method":"ping\u0000"}'
    jq -es '.[0] | .id == 9 and .error.code == -32700' out
    set -- '{}' '{"prompt":"x","messages":[]}' '{"prompt":5}' '{"prompt":"x","temperature":-1}' '{"prompt":"x","stop":[""]}' \
        '{"prompt":"x","model":"y"}' '{"prompt":"x","raw":1}' '{"prompt":"x","raw":true,"system":"y"}' '{"messages":[]}' \
        '{"messages":[{"role":"user","content":"x"}],"system":"y"}' '{"prompt":"x","schema":{"type":"strange"}}' \
        '{"prompt":"","raw":true}' '{"prompt":"x","reasoning_effort":"huge"}'
    lines=()
    for i in $(seq 1 $#); do lines+=("$(modern "$i" tools/call "\"name\":\"generate\",\"arguments\":${!i}")"); done
    lines+=("$(modern 90 tools/call '"name":"score","arguments":{"text":""}')" "$(modern 91 tools/call '"name":"score","arguments":{"text":"a","context":1}')"
        "$(modern 92 tools/call '"name":"score"')" "$(modern 93 tools/call '"name":"score","arguments":{"text":"x","top":1}')"
        "$(modern 94 tools/call '"name":"score","arguments":{"text":"x"}')") # one token, before which nothing stands
    say $((${#lines[@]} + 3)) "${lines[@]}" "$(modern 100 tools/call '"name":"none"')" "$(modern 101 tools/call '"arguments":{}')" \
        "$(modern 102 tools/call '"name":"score","arguments":[]')"
    jq -es '[.[] | select(.id >= 100) | .error.code] == [-32602, -32602, -32602]' out
    jq -es 'all(.[] | select(.id < 100); .result | .isError and (.content[0].text | length > 5) and .resultType == "complete")' out
}

@test "reasoning that ends early, and numbers of each token" {
    local think='"think_stop":"same:2","think_probe":"every=8","uncertainty":true'
    OPTIONS='--think-probe every=8' say 5 "$(modern 1 tools/call "${SUM%\}},$think}")" "$(modern 2 tools/call "$SUM")" \
        "$(modern 3 tools/call "${SUM%\}},\"think_stop\":3}")" "$(modern 4 tools/call "${SUM%\}},\"raw\":true,\"think_stop\":\"eat\"}")" \
        "$(modern 5 tools/call "${SUM%\}},\"raw\":true,\"max_tokens\":3,\"uncertainty\":true}")"
    of 1 '.result.structuredContent | .thinking.end == "certainty" and .thinking.probes > 1 and .reasoning_tokens == .thinking.tokens and
        (.uncertainty | length) == .completion_tokens and (.uncertainty[0] | .reasoning and .entropy > 0)'
    of 2 '.result.structuredContent | .thinking.end == "model" and .reasoning_tokens > 0 and .uncertainty == null'
    of 3 '.result | .isError and (.content[0].text | startswith("think_stop: not a text"))'
    of 4 '.result | .isError and (.content[0].text | startswith("raw: "))'
    of 5 '.result.structuredContent | .reasoning_tokens == 0 and (.uncertainty | map(.reasoning)) == [false, false, false]'
}

@test "progress, a cancelled call, an id in use, the end of the input" {
    long='"name":"generate","arguments":{"prompt":"The","raw":true,"max_tokens":400,"seed":1}'
    : > out
    { modern 1 tools/call "$long" | sed 's/"_meta":{/&"progressToken":"t",/'; echo
      wait_for grep -q progress out
      modern 1 tools/list; echo
      echo '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"enough"}}'
      modern 1 tools/list; echo
      wait_for grep -q '"tools"' out
      modern 2 tools/call "$long"; echo; } | timeout 20 chimere-serve-stdio --mcp > out # at the end nobody waits for it
    jq -es '[.[] | select(.method == "notifications/progress").params] | length >= 1 and .[0].progressToken == "t" and
        ([.[].progress] | . == (unique))' out
    jq -es '[.[] | select(.id == 1)] | length == 2 and .[0].error.code == -32600 and (.[1].result.tools | length == 2)' out
    jq -es '[.[] | select(.id == 2)] == []' out
    # With a full queue no line is read; the end of the input is seen all the same.
    for i in 1 2 3 4; do modern $i tools/call "${long/400/4000}"; echo; done | timeout 20 chimere-serve-stdio --mcp --parallel 1 --max-queue 1 > out
    [ ! -s out ]
    head -c 17000000 /dev/zero | tr '\0' a | chimere-serve-stdio --mcp | jq -e '.id == null and .error.code == -32600'
    fails 2 '--mcp and --lenient do not go together' chimere-serve-stdio --mcp --lenient
    fails 2 '--batch and --mcp do not go together' chimere-serve-stdio --mcp --batch x -o y
}

@test "echo with logprobs: what a prompt's tokens cost is what answering them costs" {
    printf '%s\n' '{"id":1,"method":"completions","body":{"prompt":"The kernel","max_tokens":4,"temperature":0,"logprobs":2}}' |
        chimere-serve-stdio > said
    text=$(jq -r '.body.choices[0].text' said; echo .)
    jq -nc --arg t "The kernel${text%??}" '{id: 1, method: "completions", body: {prompt: $t, max_tokens: 0, echo: true, logprobs: 2}}' |
        chimere-serve-stdio --chunk 2 > echoed
    jq -es '(.[0].body.choices[0].logprobs) as $a | (.[1].body.choices[0].logprobs) as $b | $b.tokens[2:] == $a.tokens and
        $b.token_logprobs[0] == null and $b.top_logprobs[0] == null and ([range(4)] | all(.[]; . as $i |
        ($a.token_logprobs[$i] - $b.token_logprobs[$i + 2] | fabs) < 1e-5 and ($a.top_logprobs[$i] | keys) == ($b.top_logprobs[$i + 2] | keys)))' said echoed
    printf '%s\n' '{"id":1,"method":"completions","body":{"prompt":["A","The kernel"],"n":2,"max_tokens":2,"echo":true,"logprobs":0,"temperature":0}}' |
        chimere-serve-stdio | jq -e '[.body.choices[].logprobs.tokens | length] == [3, 3, 4, 4]'
}
