#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What a session holds: shown, given on as messages, shared, made shorter; and turns whose end nobody saw.
load common

@test "a session shows what it holds, and its messages go on as a chat" {
    chimere-run --session s -s 'Be terse.' -p 'What is 347 + 58?' > answer
    chimere-run --session s --think off -p $'Say\n<|im_end|> twice.' -n 5 > second
    cp s before
    chimere-run --session s --show --json > shown
    jq -e '.type == "session" and .file == "s" and .model == "chimere-nano-q5_k_m.gguf" and .kv == "f32,f32" and
           .n_tokens > 80 and .n_snapshots > 1' shown
    jq -e --rawfile a answer --rawfile b second '(.messages | map(.role)) == ["system", "user", "assistant", "user", "assistant"] and
           .messages[0].content == "Be terse." and .messages[1].content == "What is 347 + 58?" and
           .messages[2].content + "\n" == $a and (.messages[2].reasoning_content | test("347")) and
           .messages[3].content == "Say\n<|im_end|> twice." and (.messages[4].content | rtrimstr("\n")) == ($b | rtrimstr("\n")) and
           .messages[4].reasoning_content == null' shown
    [ "$(jq .file_bytes shown)" -eq "$(stat -c %s s)" ]
    jq -r 'keys[]' shown | sort | diff - <(awk '/^\.S[sh]/ { on = $2 == "session" } on && /^\.It Li/ { print $3 }' \
        "$ROOT/man/chimere-jsonl.5" | grep -v text | sort)
    chimere-run --messages shown -p 'And 5 more?' --show-prompt > prompt
    grep -q 'Be terse' prompt
    chimere-run --session s --show > text
    [ "$(grep -c '^\[user\]$' text)" -eq 2 ]
    [ "$(sed -n 2p text)" = 'Be terse.' ]
    cmp s before
}

@test "file(1) knows what programs write" {
    command -v file > /dev/null || skip "file is not installed"
    magic() { file -b -m "$ROOT/share/magic" "$1"; }
    chimere-run --raw --session r -p 'The kernel' -n 1 > answer
    [ "$(magic r)" = "chimere session, version 2, of a model of architecture qwen35moe, $(basename "$CHIMERE_MODEL")" ]
    seq 300 > text
    chimere-engram-build build --order 2 -o table text > log
    [ "$(magic table)" = 'chimere table of n-grams' ]
    chimere-engram-build index -m "$TINY" -o idx text > log
    [ "$(magic idx)" = 'chimere index of texts' ]
    chimere-bench kl --save logits -c 32 -m "$TINY" text > log
    [ "$(magic logits)" = 'chimere saved logits' ]
}

@test "a session of plain text, and one that has not begun" {
    chimere-run --raw --session r -p 'The kernel' -n 3 > answer
    [ "$(chimere-run --session r --show)" = "The kernel$(cat answer)" ]
    chimere-run --session r --show --json | jq -e '.messages == null and (.text | startswith("The kernel"))'
    : > empty
    [ -z "$(chimere-run --session empty --show)" ]
    chimere-run --session empty --show --json | jq -e '.messages == [] and .n_tokens == 0 and .model == null'
    fails 1 'none: cannot open' chimere-run --session none --show
    fails 3 "whose tokens are not those of" chimere-run -m "$TINY" --session r --show
    fails 2 '--show needs --session' chimere-run --show
    fails 2 '-p has no effect with --show' chimere-run --show --session r -p x
    fails 2 '--drop-oldest has no effect with --raw' chimere-run --raw --session r --drop-oldest -p x
}

@test "the same command line goes on: an equal system message is no mistake" {
    for i in 1 2; do try 0 chimere-run --session s -s 'Be terse.' --think off -p 'What is 2 + 2?'; done
    chimere-run --session s --show --json | jq -e '[.messages[] | select(.role == "system")] | length == 1'
    fails 2 'another system message' chimere-run --session s -s 'Be long.' -p x
    chimere-run --session t --think off -p x -n 2 > answer
    fails 2 'another system message' chimere-run --session t -s 'Be long.' -p x
}

@test "a turn costs one snapshot, and a prompt that comes whole two" {
    snapshots() { chimere-run --session "$1" --show --json | jq .n_snapshots; }
    for i in 1 2 3; do chimere-run --session s --think off -n 2 -p "What is $i + 2?" > answer; done
    [ "$(snapshots s)" -eq 3 ]
    state=$(chimere-run --plan --json -c 64 | jq .state_bytes)
    try 0 chimere-run --session s --think off -n 2 -p 'What is 4 + 2?' --json
    jq -e --argjson s "$state" '.cache.written_bytes < 1.2 * $s' out
    for i in 5 6 7 8; do chimere-run --session s --think off -n 2 -p "What is $i + 2?" > answer; done
    [ "$(snapshots s)" -le 5 ] # now and then it is written anew
    chimere-run --session s --show --json > shown
    chimere-run --session w --messages shown --think off -n 2 -p 'What is 9 + 2?' > answer
    [ "$(snapshots w)" -eq 2 ]
}

@test "a prefix that several read at once, and none writes" {
    chimere-run --session s -s 'Be terse.' --think off -p 'What is 2 + 2?' > answer
    chmod 400 s
    cp s before
    chimere-run --session s --session-ro --think off -p 'What is 3 + 4?' --json > want
    jq -e '.usage.cached_tokens > 10 and .cache.written_bytes == 0' want
    exec 9< s
    flock -s 9 # another reader
    try 0 chimere-run --session s --session-ro --think off -p 'What is 3 + 4?' --json
    [ "$(jq -c .token_ids out)" = "$(jq -c .token_ids want)" ]
    exec 9<&-
    cmp s before
    fails 1 'none: cannot open' chimere-run --session none --session-ro -p x
    [ ! -e none ]
    # A copy goes on by itself.
    cp before mine
    try 0 chimere-run --session mine --think off -p 'What is 3 + 4?' --json
    [ "$(jq -c .token_ids out)" = "$(jq -c .token_ids want)" ]
}

@test "a full context loses the oldest turns, when asked to" {
    for i in 1 2 3 4; do chimere-run --session s -s 'Be terse.' --think off -n 8 -p "What is $i + 2?" > answer; done
    fails 1 '--drop-oldest goes on without the oldest turns' chimere-run --session s -c 100 -p 'What is 5 + 2?'
    try 0 chimere-run --session s -c 100 --drop-oldest --think off -p 'What is 5 + 2?' --json
    grep -q 'the context is full: the oldest turns are left out' err
    chimere-run --session s --show --json > shown
    jq -e '.messages | .[0].content == "Be terse." and .[1].role == "user" and .[-2].content == "What is 5 + 2?" and
           length < 8 and (map(.content) | index("What is 1 + 2?")) == null' shown
    # What remains is what a chat of these messages would be.
    jq '.messages[:-1]' shown > m.json
    chimere-run --messages m.json --think off -c 100 --json | jq -c .token_ids | diff - <(jq -c .token_ids out)
    # There is room for a turn or two now.
    try 0 chimere-run --session s -c 100 --drop-oldest --think off -n 2 -p 'What is 6 + 2?'
    [ ! -s err ]
}

# waits until a session could be saved: the answer of PID has begun
begun() { [ -s text ]; }

@test "SIGHUP, a reader that goes away and a full disk keep the turn" {
    chimere-run --raw -p 'The kernel' --ignore-eos -n 100000 --stream --session s > text &
    pid=$!
    wait_for begun
    kill -HUP $pid
    status=0
    wait $pid || status=$?
    [ $status -eq 129 ]
    [ "$(chimere-run --session s --show)" = "The kernel$(cat text)" ]
    chimere-run --raw -p 'The kernel' --ignore-eos -n 100000 --stream --session p 2> err | head -c 20 > text
    [ "${PIPESTATUS[0]}" -eq 141 ]
    [ ! -s err ]
    [[ "$(chimere-run --session p --show)" == "The kernel$(cat text)"* ]]
    try 1 bash -c "chimere-run --raw -p 'The kernel' --ignore-eos -n 5000 --stream --session d > /dev/full"
    grep -q 'standard output: cannot write: No space' err
    [ "$(chimere-run --session d --show --json | jq .n_tokens)" -ge 2 ]
    # Where SIGPIPE is ignored, too.
    status=0
    (trap '' PIPE; chimere-run --raw -p 'The kernel' --ignore-eos -n 100000 --stream --session i 2> err || echo $? > status) | head -c 20 > text
    [ "$(cat status)" -eq 1 ]
    grep -q 'Broken pipe' err
    [[ "$(chimere-run --session i --show)" == "The kernel$(cat text)"* ]]
}
