#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# same_answer.bats - the same question gets the same bytes, whoever asks: the questions of questions.jsonl, with options of
# all kinds, through chimere-run, as lines, over HTTP, as a batch, and where its items can say it through chimere-bench eval.
load common

questions() # WHAT [FILE ...]: what questions.jq makes of the questions, or of what came out
{
    jq -c -r --arg for "$1" --arg url "${url:-}" -f "$BATS_TEST_DIRNAME/questions.jq" "${@:2}"
}
all=$BATS_TEST_DIRNAME/questions.jsonl

setup_file()
{
    cd "$BATS_FILE_TMPDIR" || return 1
    export PATH=${CHIMERE_BIN:-${BIN:-bin}}:$PATH
    [ "${PATH#/}" != "$PATH" ] || PATH=$BATS_TEST_DIRNAME/../../$PATH
    export CHIMERE_MODEL=$BATS_TEST_DIRNAME/../../share/models/chimere-nano-q5_k_m.gguf
    questions run "$all" > run.sh
    bash -e -o pipefail run.sh > run.out 2> run.err
    questions "of run" run.out | sort > "$BATS_FILE_TMPDIR/want"
}
same() # FILE: its answers are those of chimere-run
{
    sort "$1" | diff "$BATS_FILE_TMPDIR/want" -
}
teardown()
{
    [ -n "${server:-}" ] || return 0
    kill -KILL "$server" 2> /dev/null || true
    wait "$server" 2> /dev/null || true
}

@test "chimere-run answers all, and no two questions are one" {
    [ "$(wc -l < "$BATS_FILE_TMPDIR/want")" -eq "$(wc -l < "$all")" ]
    [ "$(wc -l < "$all")" -ge 60 ]
    [ ! -s "$BATS_FILE_TMPDIR/run.err" ]
    [ "$(jq -r .id "$all" | sort -u | wc -l)" -eq "$(wc -l < "$all")" ]
    # Nearly all options change the answer to their question.
    jq -s 'map(del(.id)) | unique | length >= 50' "$BATS_FILE_TMPDIR/want" | grep -x true
}

@test "lines on stdin, side by side" {
    questions stdin "$all" | chimere-serve-stdio > out
    questions "of server" out > got
    same got
}

@test "chimere-run through a server: the same objects, but for the times" {
    chimere-serve-stdio --listen "unix:$PWD/s" > served 2> served.err 3>&- &
    server=$!
    wait_for test -s served || no grep -q 'without HTTP' served.err || skip "built without libmicrohttpd"
    sed 's/ | jq .*//' "$BATS_FILE_TMPDIR/run.sh" > run.sh
    CHIMERE_OPTS="--via unix:$PWD/s" bash -e run.sh > out
    jq -c 'del(.timings, .model)' out > got
    jq -c 'del(.timings, .model, .id)' "$BATS_FILE_TMPDIR/run.out" | cmp - got
}

@test "a batch" {
    questions batch "$all" > requests
    chimere-serve-stdio --batch requests --output out
    jq -c '{id: .custom_id, body: .response.body}' out | questions "of server" > got
    same got
}

@test "HTTP" {
    command -v curl > /dev/null || skip "curl is not installed"
    no chimere-serve-stdio --listen unix:no/such/place 2> why
    no grep -q 'without HTTP' why || skip "built without libmicrohttpd"
    chimere-serve-stdio --listen 127.0.0.1:0 > served 2> served.err 3>&- &
    server=$!
    wait_for test -s served
    url=$(jq -r .url served)
    questions http "$all" | tail -n +2 > asked
    curl -sS -K asked > out
    jq -c --slurpfile asked "$all" -n '[inputs] | to_entries[] | {id: $asked[.key].id, body: .value}' out |
        questions "of server" > got
    same got
}

@test "items of chimere-bench eval" {
    questions eval "$all" > items.jsonl
    [ "$(wc -l < items.jsonl)" -ge 12 ]
    chimere-bench eval -n 2000 --out answers items.jsonl > out
    jq -c .tools items.jsonl | grep -m 1 function > tools.json
    jq -c --slurpfile items items.jsonl \
        '.id as $id | ($items[] | select(.id == $id)) as $i | . + {thinks: $i.enable_thinking, tools: ($i.tools != [])}' \
        answers > read
    questions parse read > parse.sh
    bash -e -o pipefail parse.sh | questions "of eval" > got
    # Items with the same prompt are asked once.
    [ "$(wc -l < got)" -ge 12 ]
    jq -c --slurpfile got got 'select([.id] | inside($got | map(.id)))' "$BATS_FILE_TMPDIR/want" | diff - <(sort got)
}

# A template that leaves the reasoning to the model: its first token is made likely. The budget holds everywhere.
@test "a model that opens its reasoning itself keeps its budget" {
    printf '%s' '{%- for m in messages -%}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}<|im_start|>assistant
{# <think> and </think> are what the model writes #}' > own.jinja
    think=$(printf '<think>' | chimere-run --tokenize | tr -d '[]')
    chimere-run --template own.jinja -p 'What is 12+30?' -n 60 --logit-bias "$think=15" --reasoning-budget 6 --json > run
    jq -e '.usage.reasoning_tokens > 6 and .usage.reasoning_tokens <= 10 and (.reasoning | length) > 0' run
    printf '%s\n' '{"id":1,"method":"chat/completions","body":{"messages":[{"role":"user","content":"What is 12+30?"}],
        "temperature":0,"max_tokens":60,"logit_bias":{"'"$think"'":15},"reasoning_budget":6}}' | tr -d '\n' |
        chimere-serve-stdio --template own.jinja > served
    [ "$(jq -c '[.reasoning, .text, .usage.reasoning_tokens]' run)" = "$(jq -c '.body | [(.choices[0].message | .reasoning_content, .content),
        .usage.completion_tokens_details.reasoning_tokens]' served)" ]
}
