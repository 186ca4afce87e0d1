# SPDX-License-Identifier: Apache-2.0
# files.bats - files and batches of clients: chimere-serve-stdio --listen --files. The openai package's view of them is in
# clients.bats.

load common

start() # OPTION...: the server with the directory `kept`
{
    command -v curl > /dev/null || skip "curl is not installed"
    no chimere-serve-stdio --listen unix:no/such/place 2> why
    no grep -q 'without HTTP' why || skip "built without libmicrohttpd"
    rm -f served
    chimere-serve-stdio --listen 127.0.0.1:0 --files kept "$@" > served 2> served.err 3>&- &
    server=$!
    wait_for test -s served || { cat served.err; return 1; }
    url=$(jq -r .url served)/v1
}
teardown()
{
    [ -n "${server:-}" ] || return 0
    kill -KILL "$server" 2> /dev/null || true
    wait "$server" 2> /dev/null || true
    server=
}
upload() # FILE: its id
{
    curl -sS "$url/files" -F purpose=batch -F "file=@$1" | jq -r .id
}
begin() # FILE: a batch of it; its id
{
    curl -sS "$url/batches" -d "{\"input_file_id\":\"$1\",\"endpoint\":\"/v1/completions\",\"completion_window\":\"24h\"}" | jq -r .id
}
status_is() # ID STATUS
{
    [ "$(curl -sS "$url/batches/$1" | tee batch | jq -r .status)" = "$2" ]
}
content() # output|error: of the batch that was looked at last
{
    curl -sS "$url/files/$(jq -r ".$1_file_id" batch)/content"
}
refused() # STATUS TEXT OPTION OF curl...
{
    [ "$(curl -sS -o body -w '%{http_code}' "${@:3}")" = "$1" ] && jq -e --arg t "$2" '.error.message | contains($t)' body > said || {
        cat body
        return 1
    }
}
requests() # COUNT TOKENS
{
    seq "$1" | jq -c '{custom_id: "q\(.)", method: "POST", url: "/v1/completions", body: {prompt: "Number \(.)", max_tokens: '"$2"', temperature: 0, ignore_eos: true}}'
}

@test "a directory that others can change is refused; forms and paths that are none" {
    mkdir -m 777 open
    mkdir other
    ln -s other link
    echo text > file
    fails 1 'open: others can write there' chimere-serve-stdio --listen 127.0.0.1:0 --files open
    fails 1 'link: is a link' chimere-serve-stdio --listen 127.0.0.1:0 --files link/
    fails 1 'file: cannot open the directory: Not a directory' chimere-serve-stdio --listen 127.0.0.1:0 --files file
    fails 1 'none/kept: cannot make the directory' chimere-serve-stdio --listen 127.0.0.1:0 --files none/kept
    start --files-size 20k
    [ "$(stat -c %a kept)" = 700 ]
    fails 1 'another process writes it' chimere-serve-stdio --listen 127.0.0.1:0 --files kept
    requests 3 4 > in.jsonl
    head -c 30000 /dev/zero > large
    refused 400 'multipart/form-data' "$url/files" -d '{}'
    refused 400 'file: missing or empty' "$url/files" -F purpose=batch
    refused 400 'file: has no filename' "$url/files" -F purpose=batch -F file=text
    refused 400 'purpose: only' "$url/files" -F file=@in.jsonl
    refused 400 'expires_after[seconds]' "$url/files" -F purpose=batch -F 'expires_after[seconds]=3600' -F file=@in.jsonl
    refused 400 'comes a second time' "$url/files" -F purpose=batch -F file=@in.jsonl -F file=@in.jsonl
    refused 400 'purpose: comes a second time' "$url/files" -F purpose=ba -F purpose=tch -F file=@in.jsonl
    refused 400 'multipart/form-data' "$url/files" -H 'Content-Type: multipart/form-data; boundary=' -d 'no form'
    refused 400 'a part of the form has no name' "$url/files" -H 'Content-Type: multipart/form-data; boundary=abc' \
        --data-binary $'--abc\r\nContent-Disposition: form-data\r\n\r\nabc\r\n--abc--\r\n'
    refused 400 'cut off' "$url/files" -H 'Content-Type: multipart/form-data; boundary=abc' \
        --data-binary $'--abc\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nabc'
    refused 413 'no room for the file' "$url/files" -F purpose=batch -F file=@large
    refused 413 'no room for the file' "$url/files" -H 'Transfer-Encoding: chunked' -F purpose=batch -F file=@large
    refused 404 'nothing is served' "$url/files/..%2f..%2fetc"
    refused 404 'nothing is served' "$url/files/../../etc" --path-as-is
    refused 404 'there is no file lock' "$url/files/lock/content"
    refused 405 'ask with GET, DELETE' -X POST "$url/files/a"
    refused 400 'limit: not' "$url/batches?limit=101"
    refused 400 'the body: ' "$url/batches" -d '{'
    refused 400 'half of a surrogate pair' "$url/batches" -d '{"metadata":{"a":"\ud800"}}'
    jq -e '.error.param == "/metadata/a"' body
    refused 400 'x: not a member' "$url/batches" -d '{"x":1}'
    refused 404 'there is no batch x' "$url/batches?after=x"
    [ "$(ls -A kept)" = lock ] # nothing of these is kept

    # answers for which there is no room end their batch
    requests 60 4 > many.jsonl
    id=$(begin "$(upload many.jsonl)")
    wait_for status_is "$id" failed
    jq -e '.errors.data[0].code == "storage_limit_exceeded" and .request_counts.completed > 0' batch
    [ "$(content output | jq -es length)" -eq "$(jq .request_counts.completed batch)" ]
    for file in $(curl -sS "$url/files" | jq -r '.data[].id'); do curl -sS -X DELETE "$url/files/$file" | jq -e .deleted; done
    id=$(begin "$(upload in.jsonl)") # what is removed makes room
    wait_for status_is "$id" completed

    # a line that is refused before it is asked counts
    { cat in.jsonl; echo '{"custom_id":"s","method":"POST","url":"/v1/completions","body":{"prompt":"\ud800"}}'; } > half.jsonl
    id=$(begin "$(upload half.jsonl)")
    wait_for status_is "$id" completed
    jq -e '.request_counts == {total: 4, completed: 3, failed: 1}' batch
    content error | jq -e '.custom_id == "s"'

    # what somebody else did to a file
    id=$(upload half.jsonl)
    rm "kept/$id"
    mkfifo "kept/$id"
    refused 503 'the file cannot be read' "$url/files/$id/content"
}

@test "a batch outlasts a server that is killed; other requests come first; expired, other settings, a full disk" {
    requests 20 24 > in.jsonl
    requests 4 5000 > long.jsonl
    chimere-serve-stdio --batch in.jsonl -o whole.jsonl
    start --parallel 1
    id=$(begin "$(upload in.jsonl)")
    late=$(begin "$(upload long.jsonl)")
    wait_for eval 'content output; curl -sS "$url/batches/$id" | jq -e ".request_counts.completed > 1"'
    teardown # kill -9
    start
    wait_for status_is "$id" completed
    jq -e '.request_counts == {total: 20, completed: 20, failed: 0} and .error_file_id == null' batch
    content output > out.jsonl
    diff <(jq -c '[.custom_id, .response.body.choices[0].text]' whole.jsonl | sort) <(jq -c '[.custom_id, .response.body.choices[0].text]' out.jsonl | sort)

    # --parallel 4, and four long requests: another one takes the place of one of them
    wait_for status_is "$late" in_progress
    wait_for eval '[ "$(curl -sS "${url%/v1}/metrics" | awk "/^chimere_requests_running/ { print \$2 }")" -eq 4 ]'
    curl -sS "$url/completions" -d '{"prompt":"The kernel","max_tokens":3}' | jq -e '.usage.completion_tokens == 3'
    status_is "$late" in_progress
    jq -e '.request_counts.completed == 0' batch
    teardown

    # its time is over when the server comes back
    jq -c '.object.expires_at = 1' "kept/$late.json" > edited
    cp edited "kept/$late.json"
    touch kept/file-left kept/.file-left.1-0.tmp
    start --alias other
    wait_for status_is "$late" expired
    jq -e '.request_counts == {total: 4, completed: 0, failed: 4} and .expired_at > 1 and .output_file_id == null' batch
    content error | jq -es 'length == 4 and all(.[]; .response == null and .error.code == "batch_expired")'
    [ ! -e kept/file-left ]

    # answered with other settings: asked again, as if the server had been killed before the end
    teardown
    jq -c '.object |= (.status = "in_progress" | .output_file_id = null)' "kept/$id.json" > edited
    cp edited "kept/$id.json"
    start --alias third
    wait_for status_is "$id" completed
    content output > out.jsonl
    jq -es 'length == 20 and all(.[]; .response.body.model == "third") and (map(.made_with) | unique | length) == 1' out.jsonl
    [ "$(curl -sS "$url/files/$(jq -r .output_file_id batch)" | jq .bytes)" -eq "$(stat -c %s out.jsonl)" ]
    teardown

    # a disk that is full costs the batch, not the server
    trap '' XFSZ
    ulimit -S -f 6
    start
    id=$(begin "$(upload in.jsonl)")
    wait_for status_is "$id" failed
    jq -e '.errors.data[0] | .code == "storage_failed" and (.message | startswith("the answers: cannot write"))' batch
    content output | jq -es 'length > 0 and all(.[]; .response.status_code == 200)'
    curl -sS "$url/completions" -d '{"prompt":"The kernel","max_tokens":3}' | jq -e '.usage.completion_tokens == 3'
}
