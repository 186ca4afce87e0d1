# SPDX-License-Identifier: Apache-2.0
# http.bats - chimere-serve-stdio --listen: what curl and the real openai client see.

load common
load http
long='{"prompt":"The kernel","max_tokens":3000,"ignore_eos":true,"stream":true}'

@test "a completion, a chat, embeddings, models, health and metrics, as over stdin" {
    start
    post completions '{"prompt":"The kernel","max_tokens":6,"temperature":0}' > out
    [ "$(jq -r '.choices[0].text' out)" = "$(chimere-run --raw -p 'The kernel' -n 6)" ]
    post chat/completions '{"messages":[{"role":"user","content":"What is 347 + 58?"}],"temperature":0}' |
        jq -e '.choices[0] | .message.content == "405" and .finish_reason == "stop"'
    post embeddings '{"input":["one","two"]}' | jq -e '.data | length == 2'
    curl -sS "$url/v1/models" | jq -e '.data[0].object == "model"'
    curl -sS "$url/models" | jq -e '.data[0].object == "model"' # what comes without /v1
    curl -sS "$url/v1/models/" | jq -e '.data[0].id' > id       # or with a slash at its end
    curl -sS "$url/v1/models/$(jq -r . id)" | jq -e --slurpfile id id '.object == "model" and .id == $id[0]'
    [ "$(status_of "$url/v1/models/other")" = 404 ]
    jq -e '.error.code == "model_not_found"' body
    curl -sS "$url/props" | jq -e '.default_generation_settings.n_ctx == 4096 and .total_slots == 4 and
        (.chat_template | test("im_start")) and .modalities.vision == false'
    said='"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"What is 347 + 58?"}]'
    curl -sS "$url/apply-template" -d "{$said,\"chat_template_kwargs\":{\"enable_thinking\":false}}" | jq -j .prompt > prompt
    chimere-run --show-prompt --think=off --system 'Be brief.' -p 'What is 347 + 58?' | cmp - prompt
    post chat/completions "{$said,\"max_tokens\":1}" | jq .usage.prompt_tokens > n
    post chat/completions/input_tokens "{$said}" | jq -e --slurpfile n n '.input_tokens == $n[0]'
    post responses/input_tokens '{"instructions":"Be brief.","input":"What is 347 + 58?"}' | jq -e --slurpfile n n '.input_tokens == $n[0]'
    curl -sS "$url/tokenize" -d "{$said}" | jq -e --slurpfile n n '.count == $n[0] and (.tokens | length) == $n[0]'
    curl -sS "$url/tokenize" -d '{"content":"hi \u00e9","with_pieces":true}' | jq -ce '[.tokens[].piece] == ["h", "i", " ", [195], [169]]'
    curl -sS "$url/tokenize" -d '{"prompt":"hi there","return_token_strs":true}' | jq -ce '.token_strs == ["h", "i", " there"] and .count == 3'
    curl -sS "$url/tokenize" -d '{"special":true}' | jq -e '.error.param == "/text"'
    curl -sS "$url/completions" -d '{"prompt":"The kernel","max_tokens":6,"temperature":0}' | jq -r '.choices[0].text' | cmp - <(jq -r '.choices[0].text' out)
    curl -sS "$url/tokenize" -d '{"text":"The kernel"}' > tokens
    curl -sS "$url/detokenize" -d @tokens | jq -e '.text == "The kernel" and .content == .text and .prompt == .text'
    for at in v1/rerank v2/rerank rerank v1/reranking; do
        curl -sS "$url/$at" -d '{"query":"b","documents":["a","b"]}' | jq -e '.results | map(.index) == [1, 0]'
    done
    curl -sS "$url/health" | jq -e '.status == "ok" and .waiting == 0'
    curl -sS -I "$url/health" | grep -q '^HTTP/1.1 200'
    [ "$(metric 'requests_total{method="completions"}')" -eq 2 ]
    curl -sS -D - "$url/metrics" | grep -qi '^content-type: text/plain; version=0.0.4'
}

@test "responses: whole, and as events with names" {
    start
    local body='{"input":"What is 347 + 58?","temperature":0,"max_output_tokens":200'
    post responses "$body}" | jq -e '.object == "response" and .output[-1].content[0].text == "405" and .status == "completed"'
    post responses "$body,\"stream\":true}" > out
    [ "$(grep -c '^event: response.output_text.delta$' out)" -ge 1 ]
    [ "$(grep -c '^event: ' out)" -eq "$(($(grep -c '^data: ' out) - 1))" ] # the last one is [DONE]
    [ "$(sed -n 's/^data: //p' out | grep -v DONE | jq -rs '.[-1].response.output[-1].content[0].text')" = 405 ]
    [ "$(post responses '{"input":5}' | jq -r .error.param)" = /input ]
    [ "$(metric 'requests_total{method="responses"}')" -eq 3 ]
}

@test "metrics add up" {
    start
    for i in 1 2 3; do
        post chat/completions '{"messages":[{"role":"user","content":"What is 347 + 58?"}],"temperature":0,"max_tokens":30}' > "out$i"
    done
    post completions '{"prompt":""}' > /dev/null
    post embeddings '{"input":"one"}' > /dev/null
    curl -sS "$url/metrics" > text
    value() { awk -v name="chimere_$1" '$1 == name { print $2 }' text; }
    [ "$(value prompt_tokens_total)" -eq "$(($(jq -s 'map(.usage.prompt_tokens) | add' out[123]) + 1))" ]
    [ "$(value cached_tokens_total)" -eq "$(jq -s 'map(.usage.prompt_tokens_details.cached_tokens) | add' out[123])" ]
    [ "$(value cached_tokens_total)" -gt 10 ]
    [ "$(value completion_tokens_total)" -eq 90 ]
    [ "$(value errors_total)" -eq 1 ] && [ "$(value requests_running)" -eq 0 ] && [ "$(value requests_waiting)" -eq 0 ]
    [ "$(value held_tokens)" -ge 30 ] && [ "$(value kv_used_tokens)" -ge "$(value kv_page_tokens)" ]
    [ "$(value kv_used_tokens)" -le "$(value kv_size_tokens)" ] && [ $(($(value kv_used_tokens) % $(value kv_page_tokens))) -eq 0 ]
    [ "$(value first_token_seconds_count)" -eq 3 ] && [ "$(value between_tokens_seconds_count)" -eq 87 ]
    [ "$(value queue_seconds_count)" -eq 4 ]
    for h in first_token between_tokens queue; do # buckets grow up to the count; 0 < sum
        awk -v name="chimere_${h}_seconds" 'index($1, name "_bucket{") == 1 { bad += $2 < last; last = $2 }
            $1 == name "_count" { ok = $2 == last } $1 == name "_sum" { sum = $2 } END { exit !(ok && !bad && sum > 0) }' text
    done
    # every metric has its help, its type and a line in the manual
    sed -n 's/^# TYPE chimere_\([a-z_]*\) .*/\1/p' text | sort > names
    [ "$(wc -l < names)" -gt 15 ]
    sed -n 's/^# HELP chimere_\([a-z_]*\) .*/\1/p' text | sort | diff names -
    sed -n '/^\.Ss Metrics/,/^\.Ss Model Context/p' "$ROOT/man/chimere-serve-stdio.1" | grep -o 'chimere_[a-z_]*' | sed s/chimere_// | sort -u |
        grep -v '^expert_' | diff names - # those are there with --expert-cache alone
}

@test "a stream is server-sent events that add up to the whole answer" {
    start
    body='"messages":[{"role":"user","content":"What is 347 + 58?"}],"temperature":0'
    post chat/completions "{$body}" > whole
    post chat/completions "{$body,\"stream\":true,\"stream_options\":{\"include_usage\":true}}" -N -D head > events
    grep -qi '^content-type: text/event-stream' head
    [ "$(tail -n 2 events)" = "data: [DONE]" ]
    [ "$(grep -c '^data: ' events)" -eq "$(grep -c . events)" ]
    sed -n 's/^data: {/{/p' events > chunks
    for part in content reasoning_content; do
        [ "$(jq -rs "[.[].choices[0].delta.$part // \"\"] | add" chunks)" = "$(jq -r ".choices[0].message.$part" whole)" ]
    done
    diff <(jq -s '.[-1].usage | del(.prompt_tokens_details)' chunks) <(jq '.usage | del(.prompt_tokens_details)' whole)
}

@test "errors have OpenAI's form: 400, 403, 404, 405, 413" {
    start --max-body 1000
    for case in "404 $url/v1/nothing" "405 $url/v1/completions" "405 $url/health -d {}" "400 $url/v1/completions -d {" \
        "400 $url/v1/completions -d []" "400 $url/v1/completions -d {\"prompt\":\"\"}" "403 $url/health -H Origin:http://a.example" \
        "403 $url/health -H Host:a.example" "400 $url/v1/chat/completions -X POST" "405 $url/v1/completions/" "404 $url//health" "400 $url/health -H Host:"; do
        # shellcheck disable=SC2086
        set -- $case
        [ "$(status_of "${@:2}")" = "$1" ] || { echo "$case"; cat body; return 1; }
        jq -e '.error | .code == null and (.message | length > 0) and .type == "invalid_request_error" and has("param")' body
    done
    curl -sS -i "$url/v1/completions" | grep -q '^Allow: POST'
    head -c 5000 /dev/zero > zeros
    [ "$(status_of --data-binary @zeros "$url/v1/completions")" = 413 ]
    [ "$(status_of -H 'Transfer-Encoding: chunked' --data-binary @<(head -c 3000 zeros) "$url/v1/completions")" = 413 ]
    jq -e '.error.code == null' body
    status_of -H 'Transfer-Encoding: chunked' --data-binary @zeros "$url/v1/completions" || true # cut off
    post completions '{"prompt":"x","temperature":-1}' | jq -e '.error.param == "/temperature"'
    curl -sS "$url/health" | jq -e '.status == "ok"'
}

@test "what is too long for the context says so at once, and is no queue that is full" {
    start --max-queue 20 -c 64
    one='{"type":"message","role":"user","content":"Say hi, and say it again."}'
    post responses "{\"input\":[$one$(yes ",$one" | head -n 30 | tr -d '\n')]}" > reply
    jq -e '.error | .code == "context_length_exceeded" and .param == "/input"' reply
    # a form that nobody needs is not made: this one would be refused
    post chat/completions "{\"messages\":[{\"role\":\"user\",\"content\":\"$(printf 'word %.0s' {1..99})\"}],\"regex\":\"(\"}" |
        jq -e '.error.code == "context_length_exceeded"'
    for method in completions embeddings; do
        post $method "{\"$([ $method = completions ] && echo prompt || echo input)\":[\"x\"$(yes ',"x"' | head -n 64 | tr -d '\n')]}" |
            jq -e '.error.message == "more than 64 prompts"'
    done
}

@test "a head that two readers may take differently is refused" {
    start
    local body='{"prompt":"x","max_tokens":1}' head='Host: localhost' fields line
    while IFS='|' read -r want fields; do
        exec {to}<> "/dev/tcp/127.0.0.1/${url##*:}"
        printf 'POST /v1/completions HTTP/1.1\r\nConnection: close\r\n%b\r\n\r\n%s' "$fields" "$body" >&"$to"
        read -r -t 20 line <&"$to"
        exec {to}>&-
        [[ $line == "HTTP/1.1 $want "* ]] || { echo "$want $fields: $line"; return 1; }
    done <<< "200|$head\r\nContent-Length: ${#body}
400|$head\r\n$head\r\nContent-Length: ${#body}
400|$head\r\nhost: a.example\r\nContent-Length: ${#body}
403|$head:80:80\r\nContent-Length: ${#body}
400|$head\r\nContent-Length: 5\r\nContent-Length: ${#body}
400|$head\r\nContent-Length: 5\r\nTransfer-Encoding: chunked
501|$head\r\nTransfer-Encoding: gzip
415|$head\r\nContent-Encoding: gzip\r\nContent-Length: ${#body}
400|$head\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b\r\nContent-Length: ${#body}"
}

@test "a client that leaves cancels its request, streamed or not" {
    start
    timeout 1 curl -sSN "$url/v1/completions" -d "$long" > part || true
    [ -s part ]
    timeout 1 curl -sS "$url/v1/completions" -d "${long/true\}/false\}}" || true
    settled() { [ "$(metric cancelled_total)" -eq 2 ] && [ "$(metric requests_running)" -eq 0 ]; }
    wait_for settled
}

@test "many at once, and a queue that is full" {
    start --parallel 2 --max-queue 1
    clients=()
    asked() { [ "$(metric 'requests_total{method="completions"}')" -ge "$1" ]; }
    for i in 1 2 3; do
        curl -sSN "$url/v1/completions" -d "$long" > "long$i" &
        clients+=($!)
        wait_for asked "$i"
    done
    waiting() { [ "$(metric requests_waiting)" -ge 1 ]; }
    wait_for waiting
    [ "$(status_of -D head "$url/v1/completions" -d "$long")" = 429 ]
    jq -e '.error.type == "rate_limit_error" and .error.code == "rate_limit_exceeded"' body
    grep -q '^Retry-After: ' head
    kill "${clients[@]}"
    idle() { [ "$(metric requests_running)" -eq 0 ] && [ "$(metric requests_waiting)" -eq 0 ]; }
    wait_for idle
    for i in 1 2 3 4 5 6 7 8; do # a client that is refused tries again
        curl -sS --retry 60 --retry-delay 1 "$url/v1/completions" -d "{\"prompt\":\"Chapter $i\",\"max_tokens\":8,\"seed\":$i}" -o "answer$i" &
        clients[i]=$!
    done
    wait "${clients[@]:1}" || true
    for i in 1 2 3 4 5 6 7 8; do
        [ "$(jq -r '.choices[0].text' "answer$i")" = "$(post completions "{\"prompt\":\"Chapter $i\",\"max_tokens\":8,\"seed\":$i}" | jq -r '.choices[0].text')" ]
    done
}

@test "a request with many answers takes turns with others, and counts as many" {
    start --parallel 1 --max-queue 70
    curl -sS "$url/v1/completions" -d '{"prompt":"The kernel","max_tokens":120,"ignore_eos":true,"n":60,"user":"greedy"}' > many &
    client=$!
    running() { [ "$(metric requests_running)" -eq 1 ]; }
    wait_for running
    [ "$(status_of "$url/v1/completions" -d '{"prompt":["a","b"],"n":10,"user":"other"}')" = 429 ]
    post completions '{"prompt":"A socket","max_tokens":2,"user":"modest"}' | jq -e '.usage.completion_tokens == 2'
    kill -0 "$client" # with most of its answers to come
    kill "$client"
    idle() { [ "$(metric requests_running)" -eq 0 ]; }
    wait_for idle
    # Alone it gets what it always got, choice by choice.
    post completions '{"prompt":["The kernel","A socket"],"max_tokens":5,"n":3,"seed":7}' | jq -c '[.choices[].text]' > four
    printf '{"id":1,"method":"completions","body":{"prompt":["The kernel","A socket"],"max_tokens":5,"n":3,"seed":7}}' |
        chimere-serve-stdio --parallel 6 | jq -c '[.body.choices[].text]' | cmp - four
}

@test "a stream that waits for its turn has its head and a sign of life" {
    start --parallel 1 -c 60000
    curl -sS "$url/v1/completions" -d '{"prompt":"The kernel","max_tokens":59000,"ignore_eos":true}' > long &
    client=$!
    running() { [ "$(metric requests_running)" -eq 1 ]; }
    wait_for running
    curl -sSN -D head "$url/v1/completions" -d '{"prompt":"A socket","max_tokens":2,"stream":true}' > events &
    waits=$!
    wait_for grep -q '^:' events
    kill -0 "$client" # which is still answered
    head -n 1 head | grep -q ' 200 '
    no grep -q '^data:' events
    kill "$client"
    wait "$waits"
    [ "$(tail -n 2 events)" = "data: [DONE]" ]
    # What is wrong is found before a stream begins, and has its status.
    [ "$(status_of "$url/v1/completions" -d '{"prompt":"","stream":true}')" = 400 ]
    [ "$(status_of "$url/v1/chat/completions" -d '{"messages":[{"role":"user","content":"x"}],"stream":true,"temperature":-1}')" = 400 ]
}

@test "keys: none, a wrong one, a part of one, the right one" {
    need_http
    printf 'secret-1\r\n\nsecret-2' > keys
    for odd in 'a b' ' ' $'a\001' 'é' $'a\rb'; do # no client could send it
        printf 'secret\n%s\n' "$odd" > odd
        fails 3 'odd: line 2: a key has' chimere-serve-stdio --listen 127.0.0.1:0 --api-key-file odd
    done
    echo 'some text' > doc
    serve --listen 127.0.0.1:0 --api-key-file keys --context-table doc
    [ "$(status_of "$url/health")" = 200 ]
    [ "$(status_of "$url/v1/models")" = 401 ]
    jq -e '.error.type == "authentication_error" and .error.code == "invalid_api_key"' body
    for key in secret secret-3 secret-11 '' ' secret-1'; do
        [ "$(status_of -H "Authorization: Bearer $key" "$url/v1/models")" = 401 ]
    done
    for key in secret-1 secret-2; do
        [ "$(status_of -H "Authorization: Bearer $key" "$url/v1/models")" = 200 ]
    done
    [ "$(status_of -H "Authorization: Basic secret-1" "$url/v1/models")" = 401 ]
    [ "$(status_of "$url/nothing")" = 401 ]
    [ "$(status_of -H 'Host: a.example' -H 'Authorization: Bearer secret-1' "$url/v1/models")" = 200 ]
    # SIGHUP: the file counts as it is now; a file without keys is none, and the old keys stay.
    has() { [ "$(status_of -H "Authorization: Bearer $1" "$url/v1/models")" = "$2" ]; }
    echo secret-9 > keys
    has secret-9 401 && has secret-1 200
    kill -HUP "$server"
    wait_for has secret-9 200
    has secret-1 401
    : > keys
    kill -HUP "$server"
    wait_for grep -q -e '--api-key-file: keys: has no key; what was there stays' served.err
    has secret-9 200 && has '' 401
    rm keys
    kill -HUP "$server"
    wait_for grep -q -e '--api-key-file: .*No such file' served.err
    rm doc
    mkfifo keys doc # which nobody writes
    kill -HUP "$server"
    wait_for grep -q -e '--api-key-file: keys: is not a regular file; what was there stays' served.err
    grep -q -e '--context-table: doc: is not a regular file; what was there stays' served.err
    has secret-9 200
}

@test "what one key has asked is not seen with another" {
    need_http
    printf 'alice\nbob\n' > keys
    local secret='{"messages":[{"role":"user","content":"The secret launch code of project Walrus is 7318-alpha-kilo, and nobody may know that it is."},{"role":"assistant","content":"Yes."},{"role":"user","content":"Say it."}],"max_tokens":2,"temperature":0' run
    cached() # KEY [MEMBERS]: how many tokens were there already
    {
        curl -sS "$url/v1/chat/completions" -H "Authorization: Bearer $1" -d "$secret${2:-}}" | jq .usage.prompt_tokens_details.cached_tokens
    }
    for run in 1 2; do # the second server has what the first one has kept
        serve --listen 127.0.0.1:0 --api-key-file keys --cache-dir kept
        [ $run = 2 ] || [ "$(cached alice)" -eq 0 ]
        [ "$(cached alice)" -gt 30 ]
        [ $run = 2 ] || [ "$(cached alice ',"prompt_cache_key":"other"')" -eq 0 ]
        [ $run = 2 ] || [ "$(cached bob)" -eq 0 ]
        [ "$(cached bob)" -gt 30 ]
        kill -TERM "$server"
        stopped 0
        rm served
    done
    serve --listen 127.0.0.1:0 --cache-dir kept # without keys
    [ "$(cached none)" -eq 0 ]
}

@test "pages of another origin, when asked for" {
    start --cors http://a.example
    [ "$(status_of -D head -H 'Origin: http://a.example' "$url/health")" = 200 ]
    grep -q '^Access-Control-Allow-Origin: http://a.example' head
    [ "$(status_of -H 'Origin: http://b.example' "$url/health")" = 403 ]
    [ "$(status_of -H "Origin: $url" "$url/health")" = 200 ]
    [ "$(status_of -D head -X OPTIONS -H 'Origin: http://a.example' "$url/v1/completions")" = 204 ]
    grep -q '^Access-Control-Allow-Headers: Authorization' head
    asked='authorization,content-type,x-stainless-os,x-stainless-retry-count' # what the JavaScript client sends
    [ "$(status_of -D head -X OPTIONS -H 'Origin: http://a.example' -H "Access-Control-Request-Headers: $asked" "$url/v1/chat/completions")" = 204 ]
    grep -q "^Access-Control-Allow-Headers: $asked" head && grep -q '^Access-Control-Max-Age: ' head
    [ "$(status_of -X OPTIONS -H 'Origin: http://b.example' -H "Access-Control-Request-Headers: $asked" "$url/v1/models")" = 403 ]
}

@test "SIGTERM: running answers end, new requests find nobody, status 0" {
    start --drain 300 # however slow this build is
    post completions '{"prompt":"The kernel","max_tokens":3000,"ignore_eos":true}' > out &
    client=$!
    running() { [ "$(metric requests_running)" -eq 1 ]; }
    wait_for running
    kill -TERM "$server"
    refused() { local got=0; curl -sS -m 9 "$url/health" > /dev/null 2>&1 || got=$?; [ $got -eq 7 ]; }
    wait_for refused
    kill -0 "$client" # it is not answered yet
    wait "$client"
    jq -e '.usage.completion_tokens == 3000' out
    stopped 0
}

@test "SIGTERM: the drain is over before the answer is" {
    start --drain 0
    curl -sSN "$url/v1/completions" -d "$long" > out 2> why &
    client=$!
    wait_for test -s out
    kill -TERM "$server"
    stopped 0
    no wait "$client"
    no grep -q DONE out
}

@test "slow clients are cut off and take no place for ever" {
    start --timeout 1 --connections 4
    for i in 1 2 3 4; do
        exec {fd}<> "/dev/tcp/127.0.0.1/${url##*:}"
        case $i in # half a body, half a head, half a line; and a line that never ends
        1) printf 'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{' >&"$fd" ;;
        2) printf 'GET /health HTTP/1.1\r\nHost: loc' >&"$fd" ;;
        3) printf 'GET /hea' >&"$fd" ;;
        4) { printf 'GET /'; for _ in {1..900}; do sleep 0.1; printf a; done; } >&"$fd" 2> /dev/null 3>&- & drip=$! ;;
        esac
    done
    healthy() { curl -sS -m 1 "$url/health" 2> /dev/null | jq -e '.status == "ok"'; }
    wait_for healthy
    cut() { no kill -0 "$drip" 2> /dev/null; }
    wait_for cut
    for text in 'garbage\r\n\r\n' '\x16\x03\x01\x02\x00garbage' 'GET /health\r\n\r\n'; do # no HTTP
        exec {fd}<> "/dev/tcp/127.0.0.1/${url##*:}"
        # shellcheck disable=SC2059
        printf "$text" >&"$fd"
        timeout 10 cat <&"$fd" > said
        [ ! -s said ] || grep -q '^HTTP/1.1 400 ' said
    done
}

# raw PORT CODE: runs Python code with connect(), get(socket, n): what comes until the end or n bytes, and alive().
raw()
{
    timeout 100 python3 - "$1" << END
import socket, sys
def connect(source="127.0.0.1"):
    return socket.create_connection(("127.0.0.1", int(sys.argv[1])), 50, (source, 0))
def get(s, n=1 << 20):
    out = b""
    while len(out) < n and (part := s.recv(n - len(out))):
        out += part
    return out
def alive(source="127.0.0.1"):
    s = connect(source)
    s.sendall(b"GET /health HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n")
    return get(s).startswith(b"HTTP/1.1 200 ")
def post(body, more=b""):
    return b"POST /v1/completions HTTP/1.1\\r\\nHost: localhost\\r\\n%sContent-Length: %d\\r\\n\\r\\n%s" % (more, len(body), body)
$2
END
}

@test "small answers wait for no clock" {
    start
    local i urls=()
    for i in {1..100}; do urls+=("$url/health" "$url/v1/models"); done
    timeout 30 curl -sS "${urls[@]}" > out # two a second once, a thousand now
    [ "$(grep -o '"status":"ok"' out | wc -l)" -eq 100 ]
}

@test "connections that left are found at once, and one address does not take all" {
    start --connections 16
    raw "${url##*:}" '
for n in 20, 60, 100: # half a head, and gone before anybody looked
    lines = [connect() for i in range(n)]
    for s in lines:
        s.sendall(b"GET /health HTTP/1.1\r\nHost: loc")
    for s in lines:
        s.close()
    assert alive()
held = [connect() for i in range(40)]
for s in held:
    s.sendall(post(b"{}" * 50)[:-1]) # all but the last byte
assert alive() and alive("127.0.0.2")
assert len([s for s in held if s.fileno() >= 0]) == 40
busy = []
for i in range(30): # requests that are being answered stay
    s = connect()
    s.sendall(post(b"{\"prompt\":\"x\",\"max_tokens\":3000,\"ignore_eos\":true,\"stream\":true}"))
    busy.append(s)
import select
said = {}
while list(said.values()).count(b"HTTP/1.1 429 ") < 14:
    for s in select.select([s for s in busy if s not in said], [], [], 50)[0]:
        said[s] = get(s, 13)
        assert said[s] in (b"HTTP/1.1 200 ", b"HTTP/1.1 429 "), said
assert alive("127.0.0.2")
'
}

@test "a client that closes its sending side is answered; one that has left is not" {
    start
    raw "${url##*:}" '
for body in b"{\"prompt\":\"The kernel\",\"max_tokens\":4}", b"{\"prompt\":\"The kernel\",\"max_tokens\":1500,\"ignore_eos\":true}", \
        b"{\"prompt\":\"The kernel\",\"max_tokens\":400,\"stream\":true}", b"{\"x\":1}":
    s = connect()
    s.sendall(post(body))
    s.shutdown(socket.SHUT_WR)
    said = get(s).replace(b"HTTP/1.1 100 Continue\r\n\r\n", b"")
    assert said.count(b"HTTP/1.1 ") == 1 and (b"\"finish_reason\":\"" in said or b" 400 " in said), said
s = connect()
s.sendall(post(b"{\"prompt\":\"The kernel\",\"max_tokens\":6000,\"ignore_eos\":true}"))
s.shutdown(socket.SHUT_WR)
s.close()
'
    settled() { [ "$(metric cancelled_total)" -eq 1 ] && [ "$(metric requests_running)" -eq 0 ]; }
    wait_for settled
}

@test "an error has one head, also where the library finds it, and a key is asked for before a body is read" {
    need_http
    echo secret > keys
    serve --listen 127.0.0.1:0 --api-key-file keys
    raw "${url##*:}" '
import json
for status, head in [(400, b"Content-Length: " + v) for v in (b"abc", b"-5", b"+3", b"1, 1", b"")] + \
        [(413, b"Content-Length: 99999999999999999999999"), (431, b"Cookie: " + b"a" * 100000)]:
    slow = connect() # half a head beside it
    slow.sendall(b"GET /health HTTP/1.1\r\nHost: loc")
    s = connect()
    s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n" + head + b"\r\n\r\n")
    said = get(s)
    assert said.count(b"HTTP/1.1 ") == 1 and said.startswith(b"HTTP/1.1 %d " % status), said
    assert json.loads(said.split(b"\r\n\r\n", 1)[1])["error"]["type"] == "invalid_request_error"
    slow.sendall(b"alhost\r\nConnection: close\r\n\r\n")
    assert get(slow).startswith(b"HTTP/1.1 200 ")
s = connect()
s.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nCookie: " + b"a" * 20000 + b"\r\n\r\n")
assert get(s).startswith(b"HTTP/1.1 200 ")
s = connect()
s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n")
assert get(s).startswith(b"HTTP/1.1 401 ")
def ask(line, fields=b"", body=b""):
    s = connect()
    s.sendall(line + b"\r\nHost: localhost\r\nAuthorization: Bearer secret\r\nConnection: close\r\n" + fields + b"\r\n" + body)
    said = get(s)
    assert said.count(b"HTTP/1.1 ") == 1, said
    return int(said[9:12]), said
chunked = b"Transfer-Encoding: chunked\r\n"
for status, of in [(414, (b"GET /" + b"a" * 100000 + b" HTTP/1.1",)), (505, (b"GET /health HTTP/2.0",)), (400, (b"GET /health",)),
                   (400, (b"GET /health http/1.1",)), (400, (b"GET /health HTTP/1.1", b"no colon\r\n")),
                   (400, (b"GET /health HTTP/1.1", b"X : y\r\n")), (431, (b"GET /health HTTP/1.1", b"X: y\r\n" * 20000)),
                   (400, (b"POST /tokenize HTTP/1.1", chunked, b"zz\r\n{}\r\n0\r\n\r\n")),
                   (400, (b"POST /tokenize HTTP/1.1", chunked, b"1\r\n{}\r\n0\r\n\r\n")),
                   (413, (b"POST /tokenize HTTP/1.1", chunked, b"f" * 17 + b"\r\n{}\r\n")),
                   (404, (b"GET /health%00x HTTP/1.1",)), (404, (b"GET * HTTP/1.1",)),
                   (400, (b"GET http://elsewhere/health HTTP/1.1",)), (405, (b"DELETE /v1/models HTTP/1.1",))]:
    got, said = ask(*of)
    error = json.loads(said.split(b"\r\n\r\n", 1)[1])["error"]
    assert got == status and error["type"] == ("server_error" if got > 500 else "invalid_request_error"), (of[0][:99], said)
for line, fields, body in [(b"GET /health HTTP/1.1", b"", b""), (b"GET http://localhost/health HTTP/1.1", b"", b""),
                           (b"GET /health HTTP/1.1", b"Content-Length: 2\r\n", b"{}"), (b"GET /%68ealth?x=%00 HTTP/1.1", b"", b""),
                           (b"GET /health HTTP/1.0", b"", b"")]:
    assert ask(line, fields, body)[0] == 200, line
for path, verbs in [(b"/health", b"GET, HEAD, OPTIONS"), (b"/v1/completions", b"POST, OPTIONS"), (b"*", b"GET, POST, HEAD, OPTIONS")]:
    status, said = ask(b"OPTIONS " + path + b" HTTP/1.1")
    assert status == 204 and b"\r\nAllow: " + verbs + b"\r\n" in said, said
for path, status in [(b"/health", 200), (b"/v1/models", 200), (b"/metrics", 200), (b"/", 200), (b"/v1/completions", 405), (b"/nothing", 404)]:
    got, said = ask(b"HEAD " + path + b" HTTP/1.1")
    assert got == status and said.endswith(b"\r\n\r\n") and said.count(b"\r\n\r\n") == 1, said
'
}

@test "a Unix socket: for this user alone, an old one is replaced, other files are not" {
    need_http
    serve --listen "unix:$PWD/s"
    [ "$(stat -c %a s)" = 700 ]
    curl -sS --unix-socket s http://localhost/health | jq -e '.status == "ok"'
    fails 1 'in use' chimere-serve-stdio --listen "unix:$PWD/s"
    kill -KILL "$server"
    no wait "$server"
    [ -S s ]
    rm -f served
    serve --listen "unix:$PWD/s"
    curl -sS --unix-socket s http://localhost/health | jq -e '.status == "ok"'
    kill -TERM "$server"
    stopped 0
    [ ! -e s ]
    echo mine > file
    fails 1 'no socket' chimere-serve-stdio --listen "unix:$PWD/file"
    [ "$(cat file)" = mine ]
}

@test "a socket that was handed down" {
    need_http
    python3 -c 'import os, socket, sys
s = socket.create_server(("127.0.0.1", 0))
os.dup2(s.fileno(), 3)
os.set_inheritable(3, True)
os.execvp("chimere-serve-stdio", ["chimere-serve-stdio", "--listen", "fd:3"])' > served 2> served.err 3>&- &
    server=$!
    wait_for test -s served
    url=$(jq -r .url served)
    curl -sS "$url/health" | jq -e '.status == "ok"'
    kill -TERM "$server"
    stopped 0
}

@test "what --listen refuses before the model is opened" {
    need_http
    for bad in '' 8080 localhost 127.0.0.1: 127.0.0.1:x 127.0.0.1:99999 ::1:80 unix: fd:0 fd:x fd:77; do
        fails 2 --listen chimere-serve-stdio --listen "$bad"
    done
    fails 2 '--api-key-file is needed' chimere-serve-stdio --listen 0.0.0.0:0
    printf '\n\n' > empty
    fails 3 'has no key' chimere-serve-stdio --listen 127.0.0.1:0 --api-key-file empty
    fails 2 '--batch and --listen do not go together' chimere-serve-stdio --listen 127.0.0.1:0 --batch empty -o new
    fails 2 '--cors needs --listen' chimere-serve-stdio --cors '*'
}

@test "the page: parts of the program, with a policy that lets nothing else in; it needs no key" {
    local part
    need_http
    echo secret > keys
    serve --listen 127.0.0.1:0 --api-key-file keys
    curl -sS -D head "$url/" > page
    grep -q '^HTTP/1.1 200' head
    grep -qi '^content-type: text/html; charset=utf-8' head
    grep -qi "^content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base" head
    grep -qi '^x-content-type-options: nosniff' head
    cmp page "$ROOT/cmd/serve-stdio/page/index.html"
    mkdir parts
    # what the page loads, and what that loads
    for part in $({ grep -oE '(src|href)="[a-z.]+"' page; grep -hoE "from '\./[a-z.]+'" "$ROOT"/cmd/serve-stdio/page/*.js; } |
        grep -oE '[a-z]+\.(css|js|svg)' | sort -u); do
        [ "$(status_of "$url/$part")" = 200 ]
        mv body "parts/$part"
        cmp "parts/$part" "$ROOT/cmd/serve-stdio/page/$part"
    done
    [ "$(cd parts && ls)" = "$(cd "$ROOT/cmd/serve-stdio/page" && ls --ignore=index.html)" ]
    [ "$(cat page parts/* | wc -c)" -le $((150 << 10)) ]
    # a namespace and a licence, no host that anything is asked for
    [ "$(cat page parts/* | grep -oE 'https?://[A-Za-z0-9][^" )]*' | sort -u | tr '\n' ' ')" = \
        'http://www.w3.org/2000/svg https://github.com/chjj/ https://github.com/markedjs/ ' ]
    no grep -qE 'innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function' parts/*.js
    no grep -qE '<script>|<style|style="| on[a-z]+="' page
    [ "$(status_of "$url/" -X POST -d '')" = 405 ]
    [ "$(status_of "$url/chat.html")" = 401 ]
}

@test "the page in Chromium, as a person uses it" {
    local chromium
    chromium=$(command -v chromium-headless-shell chromium chromium-browser google-chrome | head -n 1) || true
    [ -n "$chromium" ] || skip "no Chromium is installed"
    need_http
    echo secret > keys
    serve --listen 127.0.0.1:0 --api-key-file keys --log log
    NO_PROXY='*' timeout 500 python3 "$ROOT/tests/clients/page.py" "$chromium" "$url" secret
    cat log/ratings* | jq -es '[.[] | [.rating, .answer]] == [["good", null], ["bad", "Four <b>."]]'
}
