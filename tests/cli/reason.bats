#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Limits of reasoning in the programs: budgets, efforts, loops, and what is told of them.
load common

SUM='What is 347 + 58?'

numbered() { jq -c '.id = input_line_number'; }
got() { grep -q '"id":2' "$1"; }
# after N FIRST THEN [OPTION]: the lines FIRST, and THEN when request 2 was answered
after()
{
    : > "lines$1"
    { printf '%s\n' "$2"; wait_for got "lines$1" > /dev/null 2>&1; printf '%s' "${3:+$3
}"; } | chimere-serve-stdio --ctx 512 "${@:4}" | tee "lines$1"
}

@test "a budget closes at the end of a line, says its message, and is told" {
    try 0 chimere-run -p "$SUM" --reasoning-budget 16 --reasoning-grace 16 --json
    jq -e '.thinking == {end: "budget", tokens: .usage.reasoning_tokens, budget: 16, forced: 1} and
           (.reasoning | endswith("7+8+0=15, write 5 carry 1")) and .usage.reasoning_tokens <= 33 and .text != ""' out
    try 0 chimere-run -p "$SUM" --reasoning-budget 10 --reasoning-grace 0 --reasoning-budget-message 'Enough.' --json
    jq -e '.thinking.end == "budget" and (.reasoning | endswith("\nEnough.")) and
           .usage.reasoning_tokens == 10 + .thinking.forced' out
    try 0 chimere-run -p "$SUM" --reasoning-min 90 --json
    jq -e '.thinking.end == "model" and .usage.reasoning_tokens > 69 and .thinking.budget == null' out
    try 0 chimere-run -p "$SUM" --think off --json
    jq -e '.thinking == {end: "off", tokens: 0, budget: 0, forced: 0}' out
}

@test "efforts are shares of the budget, in all programs" {
    try 0 chimere-run -p "$SUM" --reasoning-budget 128 --reasoning-effort minimal --json
    jq -e '.thinking | .budget == 8 and .end == "budget"' out
    body='"messages":[{"role":"user","content":"'$SUM'"}],"temperature":0,"reasoning_budget":128,"reasoning_effort":"minimal"'
    printf '%s\n' '{"id":1,"method":"chat/completions","body":{'"$body"'}}' \
        '{"id":2,"method":"chat/completions","body":{'"$body"',"stream":true}}' \
        '{"id":3,"method":"responses","body":{"input":"'"$SUM"'","temperature":0,"reasoning":{"effort":"minimal"}}}' \
        '{"id":4,"method":"messages","body":{"max_tokens":200,'"${body%%,\"reasoning*}"',"thinking":{"type":"enabled","budget_tokens":8}}}' \
        '{"id":5,"method":"chat/completions","body":{'"${body%%,\"reasoning*}"',"reasoning_effort":"none","n":2}}' |
        chimere-serve-stdio --ctx 512 > served
    jq -se --slurpfile run out '[.[] | select(.body.chimere) | {id, t: .body.chimere.thinking}] | sort_by(.id) | map(.t) |
        .[0] == $run[0].thinking and .[1] == .[0] and (.[2] | .budget == 8 and .end == "budget") and
        (.[3] | .budget == 8 and .end == "budget") and (.[4] | length == 2 and .[0].end == "off")' served
    after 1 '{"id":2,"method":"chat/completions","body":{'"$body"'}}' '{"id":1,"method":"metrics"}' > served
    grep -q 'chimere_thinking_ended_total{end=\\"budget\\"} 1' served
    after 1 '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"generate","arguments":{"prompt":"'"$SUM"'","temperature":0,"reasoning_effort":"minimal"}}}' '' --mcp |
        jq -se 'map(select(.id == 2))[0].result.structuredContent |
        (.reasoning | length) < 40 and (.text | length) > 0'
}

@test "an answer that repeats itself ends" {
    printf '{{ messages[0].content }}' > raw
    try 0 chimere-run -m "$TINY" --raw -p x -n 400 --logit-bias 7=100 --json
    jq -e '.finish_reason == "loop" and .usage.completion_tokens == 256 and .thinking == null' out
    try 0 chimere-run -m "$TINY" --raw -p x -n 300 --logit-bias 7=100 --think-loops off --json
    jq -e '.finish_reason == "length" and .usage.completion_tokens == 300' out
    b='{"id":1,"method":"completions","body":{"prompt":"x","max_tokens":300,"temperature":0,"logit_bias":{"7":100}'
    printf '%s\n' "$b}}" "$b,\"think_loops\":false}}" "$b,\"ignore_eos\":true}}" | numbered | chimere-serve-stdio -m "$TINY" > served
    jq -se 'map(.body | [.choices[0].finish_reason, .usage.completion_tokens]) |
        sort == [["length", 256], ["length", 300], ["length", 300]]' served
    # A form that wants more goes on.
    try 0 chimere-run -m "$TINY" --raw -p x -n 300 --logit-bias 7=100 --regex '[^z]{400}' --json
    jq -e '.finish_reason == "length"' out
    # Reasoning is closed, and the answer comes.
    id=$(chimere-run --tokenize -r -p ' 7' | jq '.[-1]')
    try 0 chimere-run -p "$SUM" -n 4 --logit-bias "$id=100" --json
    jq -e '.thinking.end == "loop" and .usage.reasoning_tokens < 40' out
}

@test "what goes together, and what does not" {
    while IFS='|' read -r options message; do
        # shellcheck disable=SC2086
        try 2 chimere-run -p x $options
        grep -qF -e "$message" err
    done << 'EOF'
--reasoning-budget 4 --reasoning-grace 5|--reasoning-grace: above the budget of 4 tokens
--reasoning-budget 64 --reasoning-effort low --reasoning-min 9|--reasoning-min: above the budget of 8 tokens
--reasoning-grace 5|--reasoning-grace needs
--reasoning-budget-message x|--reasoning-budget-message needs
--reasoning-budget -1 --reasoning-budget-message x|no budget at whose end
--think off --reasoning-effort low|no effect with --think off
--think off --reasoning-min 3|no effect with --think off
--reasoning-effort max|--reasoning-effort
--reasoning-budget 9223372036854775808|--reasoning-budget
--think-stop cgr:nan|--think-stop: cgr: not a number from 0 to 1
--think-stop same:1|--think-stop: same: not a whole number from 2 to 16
--think-stop sure|--think-stop: not eat, cgr
--think-suppress 1.5|--think-suppress: not a number from 0 to 1
--think-stop eat --think-probe tokens=4|--think-probe: eat looks at one token
--think-stop abf --think-probe every=4|--think-probe: abf looks at what is thought
--think-stop cgr --think-probe every=0|--think-probe: every: not a whole number
--think-probe every=4|--think-probe needs
--think off --think-stop cgr|no effect with --think off
--raw --think-stop cgr|--think-stop
EOF
    CHIMERE_OPTS='--reasoning-budget 9 --think-stop cgr --think-probe lag=2' try 0 chimere-run --think off -n 1 -p x
    try 2 chimere-bench eval --think off --reasoning-budget 4 x
    try 2 chimere-bench eval --reasoning-grace 4 x
    printf '%s' '{% for m in messages %}{{ m.content }}{% endfor %}' > plain
    for o in '--reasoning-budget 4' '--reasoning-effort low' '--reasoning-min 4' '--think-stop cgr' '--think-suppress 1'; do
        # shellcheck disable=SC2086
        try 3 chimere-run --template plain -p x $o
        grep -q "the model's template writes answers of the kind \"plain\"" err
    done
    m='"messages":[{"role":"user","content":"x"}]'
    printf '{"id":1,"method":"chat/completions","body":{%s}}\n' "$m,\"reasoning_budget\":4,\"reasoning_grace\":5" "$m,\"reasoning_min\":-1" \
        "$m,\"reasoning_budget_message\":\"x\"" "$m,\"reasoning_budget_message\":3" "$m,\"think_loops\":1" \
        "$m,\"think_stop\":\"cgr\"" "$m,\"think_stop\":\"eat\"" "$m,\"think_stop\":\"abf:2\"" "$m,\"think_probe\":\"every=4\"" \
        "$m,\"think_stop\":\"abf\",\"enable_thinking\":false" "$m,\"think_suppress\":2" |
        numbered | chimere-serve-stdio | jq -se 'sort_by(.id) | map([.status, .error.param]) == [[400, "/reasoning_grace"], [400, "/reasoning_min"],
            [400, "/reasoning_budget_message"], [400, "/reasoning_budget_message"], [400, "/think_loops"],
            [400, "/think_stop"], [400, "/think_stop"], [400, "/think_stop"], [400, "/think_probe"], [400, "/think_stop"],
            [400, "/think_suppress"]]'
}

@test "thinking ends when the model is certain, in all programs" {
    try 0 chimere-run -p "$SUM" --think-stop cgr:0.9 --json
    jq -e '.thinking | .end == "certainty" and .tokens == 9 and .forced == 1 and .certainty > 0.9 and .probes == 1 and
           .probe_tokens == 4 and .probe_rows == 6 and .held_steps > 0 and .budget == null' out
    cp out run
    try 0 chimere-run -p "$SUM" --think-stop eat --json
    jq -e '.thinking | .end == "certainty" and .probe_tokens == 0 and .probes > 3 and .held_steps == 0' out
    try 0 chimere-run -p "$SUM" --think-stop abf:0.5 --think-probe after=40 --json
    jq -e '.thinking | .end == "certainty" and .tokens > 40 and .probes == 0' out
    try 0 chimere-run -p "$SUM" --think-suppress 0 --json --uncertainty
    jq -e '.thinking | .end == "model" and .suppressed == 0 and .probe_tokens > 0' out
    m='"messages":[{"role":"user","content":"'$SUM'"}],"temperature":0'
    printf '{"id":1,"method":"chat/completions","body":{%s}}\n' "$m" "$m,\"think_stop\":\"same:2\",\"think_probe\":\"every=8\"" \
        "$m,\"think_stop\":false" "$m,\"enable_thinking\":false" "$m,\"think_stop\":\"eat:0\",\"think_suppress\":0.5" |
        numbered | chimere-serve-stdio --think-stop cgr:0.9 --think-probe tokens=6 --parallel 2 > served
    jq -se --slurpfile run run 'sort_by(.id) | map(.body.chimere.thinking) | .[0] == $run[0].thinking and .[1].probes > 1 and
        (.[2] | .end == "model" and .certainty == null and .probes == null) and .[3].end == "off" and
        (.[4] | .end == "model" and .probes == 5 and .probe_tokens == 0)' served
    # The other interfaces take the same members, and tell the same.
    m="$m,\"think_stop\":\"same:2\",\"think_probe\":\"every=8\",\"uncertainty\":true"
    r=${m/\"messages\"/\"input\"}
    for ask in "chat/completions $m" "responses $r" "responses $r,\"stream\":true" "messages $m,\"max_tokens\":99" \
        "messages $m,\"max_tokens\":99,\"stream\":true"; do
        printf '{"id":1,"method":"%s","body":{%s}}\n' "${ask%% *}" "${ask#* }"
    done | numbered | chimere-serve-stdio --think-probe every=8 --parallel 2 > served
    jq -se '[sort_by(.id)[] | {id, body: (.body.response? // .body)} | select(.body.chimere != null) |
            {id, thinking: .body.chimere.thinking, numbers: (.body.chimere.uncertainty // .body.choices[0].uncertainty),
             reasoning: (.body.usage | (.completion_tokens_details // .output_tokens_details) |
                        (.reasoning_tokens // .thinking_tokens))}] |
        map(.id) == [1, 2, 3, 4, 5] and (map(del(.id)) | unique | length) == 1 and (.[0] | .thinking.end == "certainty" and
        (.numbers | length) > 60 and (.numbers | map(.reasoning) | unique | length) == 2 and .reasoning == .thinking.tokens)' served
    grep -v '"enable_thinking": *false' "$ROOT/share/eval/math.jsonl" | head -n 4 > set.jsonl
    try 0 chimere-bench eval set.jsonl --think-stop cgr:0.5 -o a --json
    jq -se 'map(.think_end == "certainty" and .n_probes > 0 and .n_probe_rows > .n_probes) | all' a
    jq -e '.probes >= 1 and .probe_rows > .probes' out
    try 3 chimere-bench eval set.jsonl --think-stop cgr:0.6 -o a
}

# answers [OPTION]: what is answered to the questions, sorted
answers()
{
    chimere-serve-stdio --ctx 512 "$@" < questions | jq -sc 'sort_by(.id)[] | .body | .choices // .'
}

@test "asking how certain the model is changes no byte of an answer" {
    q='"max_tokens":40,"messages":[{"role":"user","content":"What is 347 + 58?"}]'
    t='"type":"function","function":{"name":"add","description":"Adds.","parameters":{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}}'
    printf '{"id":1,"method":"chat/completions","body":{%s}}\n' "$q,\"seed\":7,\"n\":2,\"uncertainty\":true" \
        "$q,\"temperature\":0,\"reasoning_budget\":12,\"regex\":\"[0-9 =a-z]+\",\"logprobs\":true" \
        "$q,\"seed\":3,\"reasoning_budget\":6,\"tools\":[{$t}],\"tool_choice\":\"required\"" |
        numbered > questions
    answers > want
    [ "$(wc -l < want)" -eq 3 ]
    answers --think-stop eat:0 --think-probe every=1 -t 1 --chunk 32 | diff want -
    answers --think-stop same:16 --think-probe every=1,lag=2,tokens=2 --parallel 2 --kv-tokens 1024 | diff want -
    answers --think-stop abf:1 --think-suppress 1 --think-probe every=4,tokens=3,stub=So --draft ngram -t 2 | diff want -
}

@test "task sets are asked with a budget" {
    grep -v '"enable_thinking": *false' "$ROOT/share/eval/math.jsonl" | head -n 4 > set.jsonl
    for g in 0 8; do
        try 0 chimere-bench eval set.jsonl --reasoning-budget 8 --reasoning-grace $g -o a$g --json
        jq -se --argjson g $g 'map(.n_reasoning <= 8 + $g + 2 and .think_end == "budget") | all' a$g
        jq -e '.reasoning_tokens > 8' out
    done
    try 3 chimere-bench eval set.jsonl --reasoning-budget 8 -o a8
    # what is said of the reasoning is in the settings, each part of it
    set -- chimere-bench eval set.jsonl --limit 1 -n 9 --think-stop abf --reasoning-budget 4 -o a --reasoning-budget-message
    try 0 "$@" So
    jq -e '.settings | test("reasoning=4.* message=[0-9a-f]{16} stop=abf( |$)")' a
    try 3 "$@" Thus
}

@test "rules replayed over what was thought once end where they would" {
    jq -c 'select(.sub == "string")' "$ROOT/share/eval/code.jsonl" | head -n 4 > four.jsonl
    try 0 chimere-bench reason four.jsonl --traces traces --json
    [ "$(jq -s '[.[] | select(.threshold)] | length' out)" -eq 40 ]
    jq -se 'map(select(.picked)) | length == 5 and all(.against_budget.n_right <= 2 and .n_items == 2)' out
    jq -se 'map(select(.rule == "none" or .rule == "oracle")) | .[0].accuracy == .[1].accuracy and .[0].tokens >= .[1].tokens' out
    # what is reported is of the second and the fourth
    sed -n '2p;4p' four.jsonl | jq -c '.enable_thinking = true' > two.jsonl
    while IFS='|' read -r case option; do
        # shellcheck disable=SC2086
        chimere-bench eval two.jsonl $option --json -q | jq '[.n_right, .reasoning_tokens, .probe_rows // 0]' > live
        jq --arg c "four $case items=4" 'select(.case == $c) | [.n_right, .tokens, .probe_rows]' out | diff live -
    done << 'EOF'
cgr:0.9|--think-stop cgr:0.9
same:2|--think-stop same:2
eat:0.1|--think-stop eat:0.1
budget 12+0|--reasoning-budget 12 --reasoning-grace 0
EOF
    # nothing is asked again, and the records are the same; what was cut off is
    cp traces whole
    chimere-bench reason four.jsonl --traces traces --json --plot p.svg | jq -S 'del(.command, .time_utc, .hardware)' > again
    jq -S 'del(.command, .time_utc, .hardware)' out | diff - again
    cmp traces whole
    grep -q ">oracle<" p.svg
    head -c -40 whole > traces
    chimere-bench reason four.jsonl --traces traces --json 2> err | jq -S 'del(.command, .time_utc, .hardware)' | diff - again
    grep -q 'was cut off' err
    sort traces | cmp - <(sort whole)
}

@test "what reason refuses" {
    head -n 1 "$ROOT/share/eval/math.jsonl" > one.jsonl
    while IFS='|' read -r code options message; do
        # shellcheck disable=SC2086
        try "$code" chimere-bench reason $options
        grep -qF -e "$message" err
    done << 'EOF'
2||reason: no task set named
2|one.jsonl --may-lose 2|--may-lose 2: not from 0 to 1
2|one.jsonl --think-probe every=3|every a multiple of 4
2|one.jsonl --think-probe lag=2|no lag and no stub
1|one.jsonl --plot none/p.svg|none/p.svg: cannot open its directory
2|one.jsonl --temp 1|--temp does not belong to reason
3|one.jsonl -n 2|one half of the items picks thresholds
EOF
    printf '%s\n' '{"type":"answer","set":"one","id":"math-0000","sample":0,"right":true}' > other
    try 3 chimere-bench reason one.jsonl --traces other
}
