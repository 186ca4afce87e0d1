# SPDX-License-Identifier: Apache-2.0
# serve.bats - chimere-serve-stdio(1): requests as lines, batches that are killed and gone on with.

load common

ask() # LINE...: replies in `out`
{
    printf '%s\n' "$@" | chimere-serve-stdio > out 2> err
}
chat() # ID BODY
{
    printf '{"id":"%s","method":"chat/completions","body":{"messages":[{"role":"user","content":"What is 347 + 58?"}],"temperature":%s}}\n' "$1" "$2"
}

@test "a chat, a completion, tokens and back, models, health, metrics" {
    ask "$(chat a 0)" '{"id":2,"method":"completions","body":{"prompt":"The kernel","max_tokens":6,"temperature":0}}' \
        '{"id":"t","method":"tokenize","body":{"text":"The kernel"}}' '{"id":"d","method":"detokenize","body":{"tokens":[257,309]}}' \
        '{"id":"m","method":"models"}' '{"id":"h","method":"health"}' '{"id":"x","method":"metrics"}'
    [ "$(wc -l < out)" -eq 7 ]
    [ ! -s err ]
    jq -es '.[] | select(.id == "a") | .body.choices[0] | .message.content == "405" and .finish_reason == "stop" and
            (.message.reasoning_content | test("347"))' out
    want=$(chimere-run --raw -p 'The kernel' -n 6; echo .)
    [ "$(jq -rs '.[] | select(.id == 2) | .body.choices[0].text' out; echo .)" = "${want%.}
." ]
    [ "$(jq -cs '.[] | select(.id == "t") | .body.tokens' out)" = "$(printf 'The kernel' | chimere-run --tokenize)" ]
    jq -es '.[] | select(.id == "m") | .body.data[0].object == "model"' out
    jq -es '.[] | select(.id == "h") | .body.status == "ok"' out
    jq -es '.[] | select(.id == "x") | .body.text | test("chimere_requests_total")' out
}

@test "a stream adds up to the whole answer, and ends with its usage" {
    ask "$(chat s '0,"stream":true,"stream_options":{"include_usage":true}')" "$(chat w 0)"
    [ "$(jq -rs '[.[] | select(.id == "s" and .type == "chunk") | .body.choices[0].delta.content // ""] | add' out)" = 405 ]
    [ "$(jq -rs '[.[] | select(.id == "s" and .type == "chunk") | .body.choices[0].delta.reasoning_content // ""] | add' out)" = \
        "$(jq -rs '.[] | select(.id == "w") | .body.choices[0].message.reasoning_content' out)" ]
    jq -es '[.[] | select(.id == "s")] | .[-1].type == "end" and .[-2].body.usage.completion_tokens > 60 and .[-2].body.choices == []' out
}

@test "the same request gets the same answer alone and beside others" {
    for i in 1 2 3 4 5 6 7 8; do
        printf '{"id":%d,"method":"completions","body":{"prompt":"Chapter %d","max_tokens":20,"temperature":1,"seed":%d}}\n' $i $i $i
    done > lines
    chimere-serve-stdio --parallel 5 < lines | jq -c 'select(.type == "response") | [.id, .body.choices[0].text]' | sort > many
    [ "$(wc -l < many)" -eq 8 ]
    while read -r line; do
        printf '%s\n' "$line" | chimere-serve-stdio --parallel 1 | jq -c '[.id, .body.choices[0].text]'
    done < lines | sort > alone
    diff alone many
}

@test "structured output, choices, logprobs, embeddings" {
    ask "$(chat j '1.5,"seed":1,"chat_template_kwargs":{"enable_thinking":false},"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}}}')" \
        '{"id":"n","method":"completions","body":{"prompt":"The","n":3,"max_tokens":5,"seed":4}}' \
        '{"id":"l","method":"completions","body":{"prompt":"The","max_tokens":2,"logprobs":3,"temperature":0}}' \
        '{"id":"e","method":"embeddings","body":{"input":["one","two"]}}' '{"id":"b","method":"embeddings","body":{"input":"one","encoding_format":"base64"}}'
    jq -es '.[] | select(.id == "j") | .body.choices[0].message.content | fromjson | keys == ["n"] and (.n | type == "number")' out
    jq -es '.[] | select(.id == "n") | .body.choices | length == 3 and ([.[].text] | unique | length) > 1' out
    jq -es '.[] | select(.id == "l") | .body.choices[0].logprobs | (.tokens | length) == 2 and (.top_logprobs[0] | length) == 3' out
    jq -es '.[] | select(.id == "e") | .body.data | length == 2 and ([.[0].embedding[] | . * .] | add | . > 0.999 and . < 1.001)' out
    jq -es '.[] | select(.id == "b") | .body.data[0].embedding | type == "string"' out
}

@test "what is wrong is said with its place, and the others go on" {
    ask 'no json' '[1]' '{"method":"models"}' '{"id":1,"method":"nothing"}' '{"id":2,"method":"chat/completions","body":{}}' \
        '{"id":3,"method":"chat/completions","body":{"messages":[{"role":"user","content":"x"}],"foo/bar":1}}' \
        '{"id":4,"method":"completions","body":{"prompt":"x","temperature":-1}}' \
        '{"id":5,"method":"completions","body":{"prompt":[5,99999]}}' '{"id":6,"method":"completions","body":{"prompt":"x","max_tokens":1}}' \
        '{"id":7,"method":"chat/completions","body":{"messages":[{"role":"user","content":"x"}],"response_format":{"type":"json_schema","json_schema":{"schema":{"type":"strange"}}}}}'
    [ "$(jq -s '[.[] | select(.type == "error")] | length' out)" -eq 9 ]
    jq -es '.[] | select(.id == 3) | .error.param == "/foo~1bar"' out
    jq -es '.[] | select(.id == 4) | .error.param == "/temperature"' out
    jq -es '.[] | select(.id == 6) | .type == "response"' out
    jq -es '.[] | select(.id == 7) | .error.param | startswith("/response_format")' out
    ask '{"id":3,"method":"completions","body":{"prompt":"x","max_tokens":1,"foo":1}}'
    jq -e '.type == "error"' out
    printf '%s\n' '{"id":3,"method":"completions","body":{"prompt":"x","max_tokens":1,"foo":1}}' | chimere-serve-stdio --lenient | jq -e '.type == "response"'
}

@test "cancel, and an id that is in use" {
    ask '{"id":"long","method":"completions","body":{"prompt":"x","max_tokens":3000,"ignore_eos":true}}' \
        '{"id":"long","method":"health"}' '{"id":"c","method":"cancel","body":{"id":"long"}}' '{"id":"d","method":"cancel","body":{"id":"none"}}'
    jq -es '[.[] | select(.id == "long")] | map(.type) | sort == ["cancelled", "error"]' out
    jq -es '.[] | select(.id == "c") | .body.found == true' out
    jq -es '.[] | select(.id == "d") | .body.found == false' out
    ask '{"id":1,"method":"health"}' '{"id":"c","method":"cancel","body":{"id":1}}' # its reply is ready, and nobody took it
    jq -es 'map(.id) | sort == [1, "c"]' out
}

@test "hostile lines: long, not UTF-8, empty, many" {
    { head -c 20000000 /dev/zero | tr '\0' a; echo; printf '\xff\xfe\n\n  \n'; echo '{"id":1,"method":"health"}'; } | chimere-serve-stdio > out
    [ "$(wc -l < out)" -eq 3 ]
    jq -es '[.[] | select(.type == "error")] | length == 2 and .[0].status == 413' out
    yes 'x' | head -n 20000 | chimere-serve-stdio > out
    [ "$(wc -l < out)" -eq 20000 ]
    printf '{"id":1,"method":"health"}' | chimere-serve-stdio | jq -e '.body.status == "ok"' # no newline at the end
}

batch()
{
    for i in $(seq 1 "$1"); do
        printf '{"custom_id":"q%d","method":"POST","url":"/v1/completions","body":{"prompt":"Chapter %d","max_tokens":12,"temperature":1,"seed":%d}}\n' "$i" "$i" "$i"
    done
}

@test "a batch, killed again and again, has each answer once" {
    batch 40 > in.jsonl
    echo '{"custom_id":"bad","method":"POST","url":"/v1/completions","body":{"prompt":""}}' >> in.jsonl
    chimere-serve-stdio --batch in.jsonl -o whole.jsonl
    [ "$(wc -l < whole.jsonl)" -eq 40 ]
    jq -e '.custom_id == "bad" and .response.status_code == 400' whole.jsonl.errors
    for i in $(seq 1 25); do
        timeout -s KILL "0.$((RANDOM % 20 + 5))" chimere-serve-stdio --batch in.jsonl -o out.jsonl || true
    done 2> /dev/null
    chimere-serve-stdio --batch in.jsonl -o out.jsonl
    [ "$(jq -r .custom_id out.jsonl | sort | uniq -d | wc -l)" -eq 0 ]
    diff <(jq -c '[.custom_id, .response.body.choices[0].text]' whole.jsonl | sort) <(jq -c '[.custom_id, .response.body.choices[0].text]' out.jsonl | sort)
    cp out.jsonl before
    chimere-serve-stdio --batch in.jsonl -o out.jsonl
    cmp before out.jsonl
}

@test "a batch in shards; what is refused before anything is done" {
    batch 10 > in.jsonl
    for i in 1 2 3; do chimere-serve-stdio --batch in.jsonl -o "out$i" --shard "$i/3"; done
    [ "$(cat out1 out2 out3 | jq -r .custom_id | sort -u | wc -l)" -eq 10 ]
    { batch 2; batch 1; } > twice.jsonl
    fails 3 'custom_id "q1" comes a second time' chimere-serve-stdio --batch twice.jsonl -o new
    [ ! -e new ]
    printf 'my notes\nlast line' > notes
    fails 3 'notes: line 1' chimere-serve-stdio --batch in.jsonl -o notes
    [ "$(cat notes)" = "$(printf 'my notes\nlast line')" ]
    echo '{"custom_id":"a","url":"/v1/files","body":{}}' > odd.jsonl
    fails 3 'url is not' chimere-serve-stdio --batch odd.jsonl -o new
    fails 2 '--batch needs --output' chimere-serve-stdio --batch in.jsonl
}
