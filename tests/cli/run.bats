#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# chimere-run answers: text, reasoning, JSON as chimere-jsonl(5) says, sampling, logits, signals.
load common

SUM='What is 347 + 58?' # the embedded model can do this one

# Keys that chimere-jsonl(5) documents for a type.
documented()
{
    awk -v type="$1" '/^\.S[sh]/ { on = $2 == type } on && /^\.It Li/ { print $3 }' \
        "$ROOT/man/chimere-jsonl.5" | sort
}

@test "a question: reasoning, then the answer" {
    try 0 chimere-run -p "$SUM" --json
    jq -e '.text == "405" and .finish_reason == "stop" and (.reasoning | contains("7+8+0=15")) and
           (.reasoning | startswith("\n") or endswith("\n") | not) and
           .usage.prompt_tokens == 23 and .usage.completion_tokens == (.token_ids | length) and
           .usage.reasoning_tokens > 40 and .usage.reasoning_tokens < .usage.completion_tokens' out
    jq -r .reasoning out > reasoning
    try 0 chimere-run -p "$SUM"
    [ "$(cat out)" = 405 ]
    [ ! -s err ]
    try 0 chimere-run -p "$SUM" --reasoning=none
    [ "$(cat out)" = 405 ]
    try 0 chimere-run -p "$SUM" --reasoning=stderr
    [ "$(cat out)" = 405 ]
    cmp err reasoning
    try 0 chimere-run -p "$SUM" --reasoning=stdout
    [ ! -s err ]
    { echo '<think>'; cat reasoning; printf '</think>\n\n405\n'; } | cmp - out
}

@test "activations of 8 bits: the same bytes with any number of threads, other logits than with 16" {
    chimere-run -r -p "The river" -n 8 --logprobs 2 --json --acts i8 --threads 1 --chunk 1 | jq .logprobs > one
    chimere-run -r -p "The river" -n 8 --logprobs 2 --json --acts i8 --threads 3 -v 2> err | jq .logprobs > three
    chimere-run -r -p "The river" -n 8 --logprobs 2 --json | jq .logprobs > i16
    cmp one three
    ! cmp -s one i16
    grep -q '^device .* activations i8 on a CPU$' err
    fails 2 "--acts i4: not one of i16|i8|f32" chimere-run -p x --acts i4
}

@test "more forced tokens than rows of a step: the answer is the same" {
    local chunk
    echo '{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}' > schema.json
    chimere-run -r -p "A long enough prompt" -n 8 --schema schema.json --json | jq -c '[.token_ids, .finish_reason]' > want
    grep -q length want
    for chunk in 1 2 3; do
        chimere-run -r -p "A long enough prompt" -n 8 --schema schema.json --json --chunk $chunk |
            jq -c '[.token_ids, .finish_reason]' | cmp - want
    done
    # a step has no more rows than the prompt: `{"a":` is more than two
    chimere-run -r -p hi -n 8 --schema schema.json --json | jq -e '.finish_reason == "length"'
    # two such answers do not wait for each other
    jq -c '(1, 2) as $id | {id: $id, method: "completions", body: {prompt: "hi", temperature: 0, max_tokens: 8,
        response_format: {type: "json_schema", json_schema: {name: "a", schema: .}}}}' schema.json > two
    timeout 60 chimere-serve-stdio -q --chunk 1 < two | jq -es 'length == 2 and all(.[]; .body.usage.completion_tokens == 8)'
}

@test "without thinking" {
    try 0 chimere-run -p "$SUM" --think=off --json
    jq -e '.reasoning == null and .usage.reasoning_tokens == 0 and (.text | test("^[0-9]+$"))' out
}

@test "an answer that ends inside the reasoning is no answer" {
    try 0 chimere-run -p "$SUM" -c 31 --json
    jq -e '.text == "" and .finish_reason == "context" and .usage.completion_tokens == .usage.reasoning_tokens and
           (.reasoning | length > 2)' out
    grep -q 'ended inside the reasoning' err
    try 0 chimere-run -p "$SUM" -c 31
    [ ! -s out ]
    grep -q 'ended inside the reasoning' err
}

@test "-n counts the answer, a budget the reasoning" {
    try 0 chimere-run -p "$SUM" -n 1 --json
    jq -e '.text != "" and .finish_reason == "length" and .usage.reasoning_tokens > 40 and
           .usage.completion_tokens - .usage.reasoning_tokens <= 2' out
    try 0 chimere-run -p "$SUM" --reasoning-budget 5 --json
    jq -e '.text != "" and .finish_reason == "stop" and .usage.reasoning_tokens == 7' out # and the end: a new line, the mark
    [ "$(jq -c '.token_ids[0:5]' out)" = "$(chimere-run -p "$SUM" --json | jq -c '.token_ids[0:5]')" ]
    [ "$(chimere-run -p "$SUM" --reasoning-budget 0)" = "$(chimere-run -p "$SUM" --think off)" ]
}

@test "marks that are no tokens: a budget leaves an answer, a session that breaks off goes on" {
    local turns="{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
"
    printf '%s' "$turns[THINK]{{ '\\n' }}{% endif %}{# [/THINK] [TOOL_CALLS] #}" > mistral
    try 0 chimere-run --template mistral -p 'What is 12+30?' -n 20 --reasoning-budget 5 --json
    jq -e '.text != "" and .reasoning != "" and (.text + .reasoning | contains("THINK") | not) and
           .finish_reason == "stop" and .usage.completion_tokens > .usage.reasoning_tokens' out
    # The form of the answer begins behind the mark, or behind an empty line there.
    try 0 chimere-run --template mistral -p 'What is 12+30?' -n 20 --reasoning-budget 5 --regex '[a-c]{2,3}'
    grep -qxE '[a-c]{2,3}' out
    try 0 chimere-run --template mistral -p 'What is 12+30?' --ctx 30 --session s --json
    jq -e '.text == "" and .finish_reason == "context"' out
    try 0 chimere-run --template mistral -p 'And 1+1?' --session s -n 4 --json
    try 0 chimere-run --template mistral --session s --show --json
    jq -e '.messages | map(.role) == ["user", "assistant", "user", "assistant"] and
           (.[1] | .content == "" and .reasoning_content != "") and .[2].content == "And 1+1?"' out
    # A model that opens its reasoning itself keeps to the budget.
    printf '%s' "$turns{% endif %}{# <think> </think> #}" > own
    try 0 chimere-run --template own -p 'What is 12+30?' -n 60 --logit-bias 4090=15 --reasoning-budget 6 --json
    jq -e '.text != "" and .usage.reasoning_tokens == 9' out # the mark, 6, a new line and the mark
    # A syntax without reasoning has none to close.
    printf '%s' "$turns{% endif %}" > plain
    try 3 chimere-run --template plain -p 'What is 12+30?' --reasoning-budget 6
    grep -q 'no mark that ends reasoning' err
}

@test "lines of programs that write side by side stay whole" {
    for i in 1 2 3 4 5 6 7 8; do echo "$i"; done |
        xargs -P 4 -I{} chimere-run --think off -p 'What does the C function strtod do?' > all
    [ "$(wc -l < all)" -eq 8 ]
    [ "$(sort -u all | wc -l)" -eq 1 ]
}

@test "messages, a system message, tools" {
    cat > chat.json <<'EOF'
{"messages": [{"role": "user", "content": "What is 12 + 30?"}, {"role": "assistant", "content": "42"}],
 "tools": [{"type": "function", "function": {"name": "find_lesson", "parameters": {"type": "object", "properties": {}}}}]}
EOF
    try 0 chimere-run --show-prompt --messages chat.json -s 'Be brief.' -p 'And 5 more?'
    grep -q find_lesson out
    grep -q 'Be brief.' out
    [ "$(grep -c '^<|im_start|>user$' out)" -eq 2 ]
    [ "$(tail -n 1 out)" = '<think>' ]
    jq .messages chat.json > list.json
    echo 'And 5 more?' | try 0 chimere-run --show-prompt --messages list.json -
    no grep -q find_lesson out
    [ "$(grep -c '^<|im_start|>user$' out)" -eq 2 ]
    try 0 chimere-run --show-prompt --messages list.json < /dev/null
    [ "$(grep -c '^<|im_start|>user$' out)" -eq 1 ]
    head -n 1 "$ROOT/share/eval/tools.jsonl" > task.json
    try 0 chimere-run --messages task.json
    jq -e '.type == "function" and .function.name == "import_lesson"' out
}

@test "guesses where there is a plan: the drafters are those of the model that is loaded" {
    try 0 chimere-run -p "$SUM" -n 12 --json
    jq -c .token_ids out > plain
    for draft in mtp ngram "$CHIMERE_MODEL"; do
        try 0 chimere-run --device auto --draft "$draft" -p "$SUM" -n 12 --json
        jq -c .token_ids out | diff plain -
    done
}

@test "guesses: auto finds the embedded model's drafter, and not a byte changes; it is worth several tokens a step" {
    local file=$ROOT/share/models/chimere-nano-dflash.gguf
    try 0 chimere-run --think=on -p "$SUM" -n 48 --json
    jq -c .token_ids out > plain
    try 0 chimere-run -v --think=on --draft auto -p "$SUM" -n 48 --json
    grep -q "  $file  .* kept" err
    jq -c .token_ids out | diff plain -
    cp "$CHIMERE_MODEL" alone-q5_k_m.gguf # nothing beside it
    try 0 chimere-run -v -m alone-q5_k_m.gguf --draft auto -p "$SUM" -n 2
    no grep -q dflash err
    echo no > alone-dflash.gguf
    try 0 chimere-run -v -m alone-q5_k_m.gguf --draft auto -p "$SUM" -n 2
    grep -q 'left out: alone-dflash.gguf: ' err
    # "off" takes back what stood before it, as of a file of defaults; a drafter that is named twice is there once
    CHIMERE_OPTS='--draft auto' try 0 chimere-run -v --draft off -p "$SUM" -n 2
    no grep -q '^drafts' err
    ln -s "$file" again.gguf
    try 0 chimere-run --json --draft mtp --draft off --draft "$file" --draft again.gguf --draft "$file" -p "$SUM" -n 2
    jq -e --arg file "$file" '[.drafts.drafters[].name] == [$file]' out
    local many=() # names that are there already take no place of others
    for _ in {1..12}; do many+=(--draft ngram); done
    try 0 chimere-run --json "${many[@]}" --draft mtp -p "$SUM" -n 2
    jq -e '[.drafts.drafters[].name] == ["ngram", "mtp"]' out
    for name in nosuch '' ngram,mtp; do fails 2 "neither auto, ngram" chimere-run --draft "$name" -p x; done
    fails 1 "cannot open" chimere-run --draft ./nosuch -p x
    chimere-bench speculate --draft "$file" --fixed --limit 1 -n 48 --reps 1 "$ROOT/share/eval/math.jsonl" > out
    jq -es 'map(select(.draft != "off")) | .[0].tokens_per_step > 8' out
}

# id comes with --log, others with an index, a table or several answers; log.bats, examples.bats, engram.bats and
# verify.bats look at them
always() { documented "$1" | grep -vxE 'id|notes|recited|retrieve|search|tables|uncertainty|verify|entropy|varentropy|margin'; }

@test "keys of --json are the documented ones" {
    try 0 chimere-run -p "$SUM" -n 12 --json --logprobs 2 --draft ngram
    [ "$(wc -l < out)" -eq 1 ]
    [[ $(cat out) == '{"type":"completion",'* ]]
    jq -r 'keys[]' out | sort | diff - <(always completion)
    jq -e '(.usage | keys) == ["completion_tokens", "prompt_tokens", "reasoning_tokens"] and
           (.timings | keys) == ["decode_cpu_ms", "decode_ms", "decode_tps", "device_ms", "first_token_ms", "load_ms", "prompt_ms", "prompt_tps",
               "start_ms", "warm_up_ms", "weights_ms"] and
           (.timings | all(. > 0)) and (.logprobs | length) == (.token_ids | length) and
           (.logprobs[0] | keys) == ["logprob", "text", "token_id", "top"] and
           (.logprobs[0].top[0] | keys) == ["logprob", "text", "token_id"]' out
    [ "$(jq -r .model out)" = "$CHIMERE_MODEL" ]
}

@test "keys of --jsonl are the documented ones" {
    try 0 chimere-run -p "$SUM" --jsonl --logprobs 1
    for type in start token end; do
        jq -s "[.[] | select(.type == \"$type\" and .token_id != null or .type == \"$type\" and .type != \"token\")]
            | [.[] | keys] | unique | .[][]" -r out | sort | diff - <(always $type)
    done
    jq -s '[.[] | select(.type == "reasoning") | keys] | unique | .[][]' -r out | sort | diff - <(always token)
    [ "$(head -n 1 out | jq -r .type)" = start ]
    [ "$(tail -n 1 out | jq -r .type)" = end ]
    [ "$(cut -c 1-9 out | sort -u)" = '{"type":"' ]
}

@test "keys of --inspect and --help-json are the documented ones" {
    chimere-run --inspect --json | jq -r 'keys[]' | sort | diff - <(documented inspect | grep -vx adapter)
    chimere-run --help-json | jq -r 'keys[]' | sort | diff - <(documented help)
}

@test "events add up to the object" {
    chimere-run -p "$SUM" --json > json
    chimere-run -p "$SUM" --jsonl > events
    [ "$(jq -j 'select(.type == "token").text' events)" = "$(jq -r .text json)" ]
    [ "$(jq -j 'select(.type == "reasoning").text' events)" = "$(jq -r .reasoning json)" ]
    [ "$(jq -c 'select(.token_id).token_id' events | jq -cs .)" = "$(jq -c .token_ids json)" ]
    [ "$(jq -c 'select(.type == "end") | [.finish_reason, .usage, .seed]' events)" = \
        "$(jq -c '[.finish_reason, .usage, .seed]' json)" ]
}

@test "an error after the first event is an event" {
    status=0
    chimere-run -p "$SUM" -n 3 --jsonl --logits nowhere/out.f32 > out 2> err || status=$?
    [ $status -eq 1 ]
    tail -n 1 out | jq -r 'keys[]' | sort | diff - <(documented error)
    [ "chimere-run: $(tail -n 1 out | jq -r .message)" = "$(cat err)" ]
    [ "$(tail -n 1 out | jq .status)" -eq 1 ]
}

@test "stop strings" {
    all=$(chimere-run --raw -n 40 -p 'The kernel keeps')
    stop=${all:30:5}
    want=${all%%"$stop"*}
    try 0 chimere-run --raw -n 40 -p 'The kernel keeps' --stop 'is not there' --stop "$stop" --json
    jq -e '.finish_reason == "stop_string"' out
    [ "$(jq -j .text out; echo .)" = "$want." ]
    [ "$(chimere-run --raw -n 40 -p 'The kernel keeps' --stop "$stop"; echo .)" = "$want." ]
    # Text that begins like a stop string and is none comes out, at the end at the latest.
    [ "$(chimere-run --raw -n 40 -p 'The kernel keeps' --stop "${all: -3}, and no more")" = "$all" ]
    # Reasoning is not searched.
    [ "$(chimere-run -p "$SUM" --stop '=')" = 405 ]
    # A long one, a line feed, one that is no character of the answer; bytes that are no text.
    [ "$(chimere-run --raw -n 40 -p 'The kernel keeps' --stop "$(printf '%0100000d' 0)" --stop 😀)" = "$all" ]
    [ "$(chimere-run --think off -p 'List three colours.' --stop $'\n' | wc -l)" -le 1 ]
    fails 2 'not UTF-8' chimere-run --raw -n 3 -p x --stop $'\xff\xfe'
}

@test "the ways to end" {
    [ "$(chimere-run --raw -n 3 -p 'The kernel' --json | jq -r .finish_reason)" = length ]
    [ "$(chimere-run -p "$SUM" --json | jq -r .finish_reason)" = stop ]
    try 0 chimere-run --raw -p 'The kernel' --ctx 20 --ignore-eos --json
    jq -e '.finish_reason == "context" and .usage.prompt_tokens + .usage.completion_tokens == 21' out
    try 0 chimere-run -p "$SUM" --ignore-eos -n 200 --json
    jq -e '.finish_reason == "length" and (.usage.completion_tokens - .usage.reasoning_tokens | . == 200 or . == 201)' out
    try 0 chimere-run -p "$SUM" -n 0 --json
    jq -e '.token_ids == [] and .text == "" and .finish_reason == "length"' out
    try 0 chimere-run -p "$SUM" -n 0
    [ ! -s out ]
}

@test "the same seed gives the same text, another one another" {
    for seed in 1 2 3 1 2 3; do
        chimere-run --raw -n 16 --temp 1 --seed $seed -p 'The kernel keeps' | tr '\n' ' ' >> texts
        echo >> texts
    done
    [ "$(sort -u texts | wc -l)" -eq 3 ]
    try 0 chimere-run --raw -n 16 --temp 1 -p 'The kernel keeps' --json
    seed=$(jq .seed out)
    jq -c .token_ids out > want
    chimere-run --raw -n 16 --temp 1 -p 'The kernel keeps' --json --seed "$seed" | jq -c .token_ids | cmp - want
    [ "$(chimere-run --raw -n 2 -p 'The kernel keeps' --json | jq .seed)" -eq 0 ]
}

@test "sampling options do something" {
    greedy=$(chimere-run --raw -n 24 -p 'The kernel keeps' --json | jq -c .token_ids)
    with() { chimere-run --raw -n 24 -p 'The kernel keeps' --json --seed 7 "$@" | jq -c .token_ids; }
    for args in '--top-k 1' '--top-p 0.000001' '--min-p 1'; do
        # shellcheck disable=SC2086
        [ "$(with --temp 3 $args)" = "$greedy" ]
    done
    [ "$(with --temp 3)" != "$greedy" ]
    [ "$(with --temp 3 --typical 0.5)" != "$(with --temp 3)" ]
    [ "$(with --temp 3 --top-k -1)" = "$(with --temp 3)" ]
    for args in '--repeat-penalty 2' '--presence-penalty 9' '--frequency-penalty 9'; do
        # shellcheck disable=SC2086
        [ "$(with $args)" != "$greedy" ]
        # shellcheck disable=SC2086
        [ "$(with $args --penalty-last-n 0)" = "$greedy" ]
    done
    long() { chimere-run --raw -n 90 -p 'The kernel keeps' --json "$@" | jq -c .token_ids; }
    [ "$(long --dry-multiplier 5)" != "$(long)" ]
    first=$(jq '.[0]' <<< "$greedy")
    [ "$(with --logit-bias "$first=-inf" | jq '.[0]')" -ne "$first" ]
    [ "$(with --logit-bias 1000=1000 | jq -c unique)" = '[1000]' ]
}

@test "log-probabilities" {
    try 0 chimere-run --raw -n 8 -p 'The kernel keeps' --json --logprobs 5
    jq -e '.token_ids as $ids | .logprobs | (map(.token_id) == $ids) and
        all(.token_id == .top[0].token_id and .logprob == .top[0].logprob and (.top | length) == 5 and
            (.top | map(.logprob)) == (.top | map(.logprob) | sort | reverse) and
            (.top | map(.logprob | exp) | add) <= 1.000001 and .logprob <= 0)' out
    try 0 chimere-run --raw -n 2 -p 'The kernel keeps' --json --logprobs 0
    jq -e '.logprobs | all(.top == [])' out
}

@test "logits" {
    chimere-run --tokenize -p 'The kernel keeps a list of all processes' > ids.json
    n=$(jq length ids.json)
    try 0 chimere-run --tokens ids.json -n 0 --logits all.f32
    [ ! -s out ]
    [ "$(stat -c %s all.f32)" -eq $((n * 4096 * 4)) ]
    try 0 chimere-run --tokens ids.json -n 2 --logits last.f32 --logits-last 3
    tail -c $((3 * 4096 * 4)) all.f32 | cmp - last.f32
    try 0 chimere-run --tokens ids.json -n 0 --logits last.f32 --logits-last 1k
    cmp all.f32 last.f32
    # The largest of the last row is what comes next.
    next=$(tail -c $((4096 * 4)) all.f32 | od -An -v -t f4 -w4 | awk 'NR == 1 || $1 > m { m = $1; i = NR - 1 } END { print i }')
    [ "$(chimere-run --tokens ids.json -n 1 --json | jq '.token_ids[0]')" -eq "$next" ]
    files=(*.f32*)
    [ "${files[*]}" = "all.f32 last.f32" ]
}

@test "the greedy continuation of the reference" {
    ids_of "$MODELS/a.i32" > ids.json
    for name in qwen35moe-a qwen3next-a; do
        ids_of "$MODELS/$name/greedy.i32" > want
        try 0 chimere-run -m "$MODELS/$name.gguf" --tokens ids.json -n 32 --ignore-eos --json
        [ "$(jq -c .token_ids out)" = "$(jq -c . want)" ]
    done
}

@test "a model without a tokenizer" {
    LC_ALL=C sed '0,/gpt2/s//none/' "$TINY" > none.gguf
    ids_of "$MODELS/short.i32" > ids.json
    fails 3 "none.gguf" chimere-run -m none.gguf -p x
    chimere-run -m "$TINY" --tokens ids.json -n 6 --ignore-eos --json | jq -c .token_ids > want
    try 0 chimere-run -m none.gguf --tokens ids.json -n 6 --ignore-eos --json
    [ "$(jq -c .token_ids out)" = "$(cat want)" ]
    jq -e '.text == "" and .reasoning == null' out
    try 0 chimere-run -m none.gguf --tokens ids.json -n 6 --ignore-eos
    [ "$(cat out)" = "$(jq -r 'join(" ")' want)" ]
    chimere-run -m none.gguf --tokens ids.json -n 6 --ignore-eos --jsonl |
        jq -c 'select(.type == "token").token_id' | jq -cs . | cmp - want
}

@test "KV types" {
    chimere-run --raw -n 8 -p 'The kernel keeps' --logits f32.f32 > want
    chimere-run --raw -n 8 -p 'The kernel keeps' --kv f32,f32 | cmp - want
    for kv in f16 q8_0,f16 q8_0 f16,q4_0; do
        try 0 chimere-run --raw -n 8 -p 'The kernel keeps' --kv $kv --logits kv.f32
        no cmp -s kv.f32 f32.f32
    done
}

@test "SIGINT ends with what is there, and by the signal" {
    # A shell's background jobs ignore SIGINT: env gives it back.
    env --default-signal=INT chimere-run --raw -p 'The kernel' --ignore-eos --ctx 100k --jsonl > out 2> err &
    wait_for grep -q '"token"' out
    kill -INT $!
    status=0
    wait $! || status=$?
    [ $status -eq 130 ]
    [ ! -s err ]
    tail -n 1 out | jq -e '.type == "end" and .finish_reason == "interrupted" and .usage.completion_tokens > 0'
    chimere-run --raw -p 'The kernel' --ignore-eos --ctx 100k > said 2> err & # a file that has nothing of the run before
    wait_for test -s said
    kill -TERM $!
    status=0
    wait $! || status=$?
    [ $status -eq 143 ]
    [ ! -s err ]
}

@test "a second signal of whichever kind kills" {
    mkfifo f
    for second in HUP INT; do
        # until nobody reads what it writes; after one signal alone it would wait a little and say what is lost
        env --default-signal=INT chimere-run --raw --jsonl --logprobs 99 --ignore-eos -n 100000 -p 'The kernel' > f 2> err 9>&- &
        pid=$!
        exec 9< f
        read -r -u 9 line
        wait_for grep -q pipe "/proc/$pid/wchan" || sleep 2
        kill -STOP $pid
        kill -TERM $pid
        kill -$second $pid
        kill -CONT $pid
        status=0
        wait $pid || status=$?
        exec 9<&-
        [ $status -eq 143 ] || [ $status -eq $((128 + $(kill -l $second))) ]
        [ ! -s err ] || { cat err; false; }
    done
}

@test "SIGUSR1 asks how far it is" {
    chimere-run --raw -p 'The kernel' --ignore-eos --ctx 100k > out 2> err &
    pid=$!
    wait_for test -s out
    kill -USR1 $pid
    wait_for test -s err
    kill -TERM $pid
    wait $pid || true
    grep -qE '^chimere-run: [0-9]+ tokens, [0-9.]+ tokens/s$' err
}

@test "on a terminal the reasoning is dim, unless NO_COLOR" {
    command -v script > /dev/null || skip "script(1) is not installed"
    script -qec true /dev/null > /dev/null 2>&1 < /dev/null || skip "there are no pseudo-terminals"
    export TERM=xterm
    script -qec "chimere-run -p '$SUM' > out" tty > /dev/null < /dev/null
    [ "$(cat out)" = 405 ]
    grep -q $'\033\\[2m.*347' tty
    grep -q '7+8+0=15' tty
    NO_COLOR=1 script -qec "chimere-run -p '$SUM' > out" tty > /dev/null < /dev/null
    grep -q '7+8+0=15' tty
    no grep -q $'\033\\[2m' tty
    # The answer begins on a line of its own, also where it cannot be told by its colour.
    for how in '' NO_COLOR=1; do
        script -qec "$how chimere-run -p '$SUM'" tty > /dev/null < /dev/null
        tr -d '\r' < tty | grep -qE $'^(\033\\[0m)?405$'
    done
    script -qec "chimere-run -p '$SUM' --reasoning=none > out" tty > /dev/null < /dev/null
    no grep -q '7+8+0=15' tty
}

@test "a model on a slow file system of another machine: one warning, with the speed" {
    find_shim
    speed() { LD_PRELOAD=$shim CHIMERE_TEST_FAULT_FS=$1 try 0 chimere-run -m "$TINY" --raw -p a -n 1 "${@:2}"; }
    local kind
    for kind in 0x01021997:9p 0x6969:NFS 0xff534d42:SMB 0x65735546:FUSE; do
        speed "${kind%:*}"
        [ "$(wc -l < err)" -eq 1 ]
        grep -qE "^chimere-run: .*gguf: lies on ${kind#*:}.* is read with [0-9]+ MB/s: a copy on a local disk" err
    done
    speed 0x6969 -q
    [ ! -s err ]
    speed 0xef53 # ext4
    [ ! -s err ]
}
