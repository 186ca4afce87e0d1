#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# --log: answers of every way to ask are kept, can be rated, and nothing of it costs an answer.
load common

# The log's lines of a type.
kept() { cat log/*.jsonl | jq -c "select(.type == \"$1\")"; }

@test "chimere-run keeps an answer, and says its id" {
    printf 'qvixt: a thing that does \n' > text
    chimere-engram-build index -q -o notes text
    try 0 chimere-run --log log --redact 'sk-\w+' --redact blue -q --think off -j --examples notes \
        -s 'I am sk-123.' \
        -p 'What does qvixt do?'
    [ "$(stat -c '%a %a' log log/*.jsonl | sort -u)" = "$(printf '600 600\n700 700')" ]
    jq -es 'length == 1 and (.[0].notes[0] | .use == "examples" and .source == "notes" and .id == 0 and .share > 0.4 and
        (.text | startswith("qvixt")))' out
    kept answer | jq -es --slurpfile said out 'length == 1 and (.[0] | .id == $said[0].id and .program == "chimere-run" and
        [.messages[].content] == ["I am [redacted].", "What does qvixt do?"] and .text == $said[0].text and
        .notes == $said[0].notes and .usage.completion_tokens == $said[0].usage.completion_tokens and
        .mean_logprob <= 0 and .min_logprob <= .mean_logprob and .mean_entropy >= 0 and .sampler.temperature == 0 and
        (.model.fingerprint | length) == 16 and .adapters == [] and .timings.decode_ms >= 0 and .cut == null)'
    id=$(jq -r .id out)
    try 0 chimere-run --log log --rate "$id" bad --answer 'a blue one'
    [ ! -s out ] && [ ! -s err ]
    kept rating | jq -e --arg id "$id" '.id == $id and .rating == "bad" and .answer == "a blue one"'
    try 0 chimere-run --log log --redact blue --rate "$id" bad --answer 'a blue one'
    kept rating | tail -1 | jq -e '.rating == "bad" and .answer == "a [redacted] one"'
    fails 2 'chimere-run: --rate: the log has no answer run-1' chimere-run --log log --rate run-1 good
    fails 2 'say good or bad' chimere-run --log log --rate "$id"
    fails 2 'say good or bad' chimere-run --log log --rate "$id" well
    fails 2 'corrects an answer that is bad' chimere-run --log log --rate "$id" good --answer 'a blue one'
    fails 1 'cannot open' chimere-run --log nothing --rate "$id" good
    fails 2 '--rate needs --log' chimere-run --rate "$id" good
    fails 2 '--redact needs --log' chimere-run --redact x -p x
    fails 2 "--redact: '('" chimere-run --log log --redact '(' -p x
    ln -s log link
    fails 1 'link: is a link' chimere-run --log link/ -p x
    chmod 770 log
    fails 1 'others can write there' chimere-run --log log -p x
}

@test "a conversation has all its messages, a text and ids theirs; what cannot be kept costs no answer" {
    try 0 chimere-run --log log -q --think off -n 4 --session s -p 'What is 2 + 3?'
    try 0 chimere-run --log log -q --think off -n 4 --session s -p 'And 4 + 4?' --jsonl
    jq -es --arg id "$(kept answer | tail -1 | jq -r .id)" '.[-1].type == "end" and .[-1].id == $id' out
    kept answer | tail -1 | jq -e '[.messages[].role] == ["user", "assistant", "user"] and .messages[2].content == "And 4 + 4?"'
    kept answer | jq -es '.[0].parent == null and .[1].parent == .[0].id'
    try 0 chimere-run -q --think off -n 4 --session s -p 'And 1 + 1?' # is not in the log, so the next one has no parent there
    try 0 chimere-run --log log --redact 'run-\w+' -q --think off -n 4 --session s -p 'And 2 + 2?'
    try 0 chimere-run --log log --redact 'run-\w+' -q --think off -n 4 --session s -p 'And 3 + 3?'
    kept answer | jq -es '.[2].parent == null and .[3].parent == .[2].id and (.[3].messages | length) == 9'
    printf '{"type":"answer","te' >> "$(ls log/answers*)"
    try 0 chimere-run --log log -q -n 2 --raw -p 'one two'
    tail -1 log/answers* | jq -e '.prompt == "one two" and .messages == null and .finish_reason == "length"'
    echo '[1, 2, 3]' > ids
    try 0 chimere-run --log log -q -n 2 --tokens ids
    tail -1 log/answers* | jq -e '.prompt == [1, 2, 3]'
    try 0 chimere-run -n 2 --raw -p 'one two'
    cp out want
    n=$(wc -l < "$(ls log/answers*)")
    for redact in '(o|[a-z])*\d' nothing; do # gives up; and no room for a line
        try 0 bash -c "ulimit -f 1; exec chimere-run --log log --redact '$redact' -n 2 --raw -p 'one two $(printf '%0400d' 0 | tr 0 o)'"
        [ "$(grep -c 'an answer is not kept' err)" -eq 1 ] || { cat err; return 1; }
    done
    try 0 bash -c 'ulimit -f 1; exec chimere-run --log log -n 2 --raw -p "one two"'
    cmp out want
}

@test "the server keeps answers of all methods, and takes ratings" {
    ask() { jq -cn --arg id "$1" --arg method "$2" --argjson body "$3" '{$id, $method, $body, client: "me"}'; }
    say='"messages":[{"role":"user","content":"What is 12 + 30?"}],"max_tokens":40,"temperature":0,"chat_template_kwargs":{"enable_thinking":false}'
    { ask chat chat/completions "{$say}"; ask stream chat/completions "{$say,\"stream\":true}"
      ask two completions '{"prompt":["a","b"],"n":2,"max_tokens":2,"seed":1}'
      ask off chat/completions "{$say,\"store\":false}"; ask no-text completions '{"prompt":"a","max_tokens":0}'
      ask response responses '{"input":"What is 2 + 2?","max_output_tokens":80,"temperature":0,"stream":true}'
      ask message messages '{"messages":[{"role":"user","content":"What is 2 + 2?"}],"max_tokens":30,"temperature":0}'
      ask vector embeddings '{"input":"x"}'; ask models models '{}'
      ask unknown feedback '{"id":"chatcmpl-1","rating":"good"}'; ask wrong feedback '{"id":"chatcmpl-1","rating":"fine"}'
    } > lines
    chimere-serve-stdio --log log --parallel 2 < lines > out
    kept answer > answers
    jq -es 'length == 8 and all(.program == "chimere-serve-stdio" and .client == "me" and .timings.first_token_ms > 0) and
        ([.[] | select(.prompt != null) | [.prompt, .index]] | sort) == [["a", 0], ["a", 1], ["b", 2], ["b", 3]]' answers
    # the id, the text and the figures are those of the reply, whole or in parts
    jq -es --slurpfile kept answers '(.[] | select(.id == "chat" and .type == "response").body) as $r |
        ($kept[] | select(.id == $r.id)) as $k | $k.text == $r.choices[0].message.content and $k.finish_reason == "stop" and
        $k.usage.completion_tokens == $r.usage.completion_tokens and
        ([.[] | select(.id == "stream" and .type == "chunk").body] as $c | $kept[] | select(.id == $c[0].id) |
            .text == ([$c[].choices[0].delta.content // ""] | add) and .text == $k.text and .mean_logprob == $k.mean_logprob and
            .mean_entropy == $k.mean_entropy and .mean_entropy > 0)' out
    jq -es --slurpfile kept answers '(.[] | select(.body.type == "response.completed").body.response) as $r |
        $kept[] | select(.id == $r.id) | (.id | startswith("resp_")) and .text == $r.output[-1].content[0].text and
        .reasoning == $r.output[0].content[0].text' out
    jq -es --slurpfile kept answers '(.[] | select(.id == "message").body) as $r | $kept[] | select(.id == $r.id) |
        (.id | startswith("msg_")) and .usage.completion_tokens == $r.usage.output_tokens' out
    jq -es '(.[] | select(.id == "models").body.data[0].feedback) == true and
        ([.[] | select(.id == "unknown") | .status, .error.param] == [404, "/id"]) and
        ([.[] | select(.id == "wrong") | .status, .error.param] == [400, "/rating"])' out
    id=$(jq -rs '.[] | select(.id == "two" and .type == "response").body.id' out)
    { ask good feedback "{\"id\":\"$id\",\"rating\":\"good\",\"index\":3}"
      ask better feedback "{\"id\":\"$id\",\"rating\":\"bad\",\"answer\":\"b c\"}"
      ask none feedback "{\"id\":\"$id\",\"rating\":\"bad\",\"index\":4}"; } > lines
    chimere-serve-stdio --log log < lines > out
    jq -es '[.[] | .status] == [200, 200, 404] and .[2].error.param == "/index" and .[0].body.rating == "good"' out
    kept rating | jq -es '[.[] | [.index, .rating, .answer, .client]] == [[3, "good", null, "me"], [0, "bad", "b c", "me"]]'
    chimere-serve-stdio < lines | jq -es 'all(.status == 404 and (.error.message | contains("--log")))'
}

@test "a batch and the Model Context Protocol are kept, with the generation that the link names" {
    mkdir -p gen/1 gen/2
    ln -s gen/1 current
    echo 'This is a text of some words for a table of n-grams.' > text
    chimere-engram-build build -q -o gen/1/t text
    jq -cn '{custom_id: "a", method: "POST", url: "/v1/completions", body: {prompt: "a", max_tokens: 2, seed: 1}}' > in
    try 0 chimere-serve-stdio -q --log log --engram current/t:0.5 --batch in -o answers
    kept answer | jq -e --slurpfile a answers '.id == $a[0].response.body.id and .generation == "gen/1" and
        .tables == [{file: "current/t", weight: 0.5}]'
    { echo '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}'
      echo '{"jsonrpc":"2.0","method":"notifications/initialized"}'
      echo '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"generate","arguments":{"prompt":"What is 2 + 2?","max_tokens":8}}}'
      while [ "$(kept answer | wc -l)" -lt 2 ]; do sleep 0.05; done; } | chimere-serve-stdio --log log --mcp > out
    kept answer | tail -1 | jq -e '.messages[0].content == "What is 2 + 2?" and .generation == null'
}

@test "over HTTP an answer is rated with the key that asked for it" {
    printf 'secret-one\nsecret-two\n' > keys
    chimere-serve-stdio --log log --listen unix:socket --api-key-file keys > listening 2> err &
    server=$!
    wait_for test -s listening
    post() { curl -s --unix-socket socket -H "Authorization: Bearer $1" -d "$3" "http://localhost/v1/$2"; }
    post secret-one completions '{"prompt":"a","max_tokens":2}' > out
    id=$(jq -r .id out)
    kept answer | jq -e --arg key "$(printf secret-one | sha256sum | cut -d ' ' -f 1)" '.key == $key and .client == null'
    no grep -q secret log/*
    [ "$(post secret-two feedback "{\"id\":\"$id\",\"rating\":\"bad\"}" | jq -r .error.message)" = "the answer was given to another key" ]
    [ "$(post wrong feedback "{\"id\":\"$id\",\"rating\":\"bad\"}" | jq -r .error.code)" = invalid_api_key ]
    post secret-one feedback "{\"id\":\"$id\",\"rating\":\"bad\",\"answer\":\"b\"}" | jq -e '.object == "feedback"'
    # A conversation names the answer that it goes on from, in any dialect, for the key that had it.
    turns() # KEY PATH JQ: a turn of the messages, changed; its parent
    {
        post "$1" "$2" "$(jq -c "$3 | {messages: ., max_tokens: 6, temperature: 0} + $4" messages)" > reply
        kept answer | tail -n 1 | jq -r '.parent // "none"'
    }
    plain='{chat_template_kwargs: {enable_thinking: false}}'
    echo '[{"role":"user","content":"What is 2 + 3?"}]' > messages
    [ "$(turns secret-one chat/completions . "$plain")" = none ]
    id=$(jq -r .id reply)
    jq -c --slurpfile r reply '. + [{role: "assistant", content: $r[0].choices[0].message.content}, {role: "user", content: "And 4?"}]' messages > next
    mv next messages
    [ "$(turns secret-one chat/completions . "$plain")" = "$id" ]
    [ "$(turns secret-one messages '.[1].content |= [{type: "text", text: .}]' {})" = "$id" ]
    [ "$(turns secret-one chat/completions '.[0].content = "What is 2 + 4?"' "$plain")" = none ]
    [ "$(turns secret-two chat/completions . "$plain")" = none ]
    kill "$server"
    wait "$server" || true
    kept rating | jq -es 'length == 1 and .[0].answer == "b"'
}
