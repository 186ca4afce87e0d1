#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# chimere-run --dvts: a search over the steps of an answer.
load common

SUM='What is 47 + 58?'
LIST='What does this program print?
```python
x = 0
for item in [131, 113, 110]:
    x += item
print(x)
```'

# A verifier whose score hangs on the newest step, with many different ones; it writes what it gets to ./got.
judge()
{
    export CHIMERE_OPTS='-t 1'
    printf '#!/bin/sh\nwhile read -r l; do printf "%%s\\n" "$l" >> got; n=${#l}; echo 0.$((n %% 7)); done\n' > judge
    chmod +x judge
}
tree() { chimere-run -p "$LIST" --temp 1.6 --seed 5 --verifier cmd:./judge "$@"; }

@test "of each step the best branch is kept, and the trees vote" {
    judge
    try 0 tree --dvts 4x2 --json
    jq -e '. as $top | .search | .n == 4 and .width == 2 and .vote == "weighted" and (.candidates | length == 2) and
        (.steps | all((.scores | length == 2) and (.tokens | all(. > 0)) and
            .scores[.kept] == (.scores | max) and (.kept as $k | .scores | index(max) == $k))) and
        ([.steps[].tokens[]] | add) == .generated_tokens and
        (. as $s | range(2) | . as $t | [$s.steps[] | select(.subtree == $t)] |
            ([.[].step] == [range(length)]) and length == $s.candidates[$t].steps and
            .[-1].scores[.[-1].kept] == $s.candidates[$t].score and
            ([.[] | .tokens[.kept]] | add) == $s.candidates[$t].tokens) and
        any(.candidates[]; .text == $top.text)' out
    # each branch begins where its tree has come to: one token is read again, and of the first step but one all
    jq -e '.usage.prompt_tokens as $n | .search as $s | [range(2) | . as $t | [$s.steps[] | select(.subtree == $t)] |
            . as $v | range(1; length) | 2 * ($n - 1 + ([$v[:.][] | .tokens[.kept]] | add))] | add + 3 * ($n - 1) ==
        $s.cached_tokens' out
    # the verifier gets the answer up to there, and the answer itself when it is whole
    jq -se --slurpfile o out --arg p "$LIST" 'all(.problem == $p) and .[0].answer == null and
        ([.[].steps | length] | min) == 1 and (map(select(.answer != null)) | length > 0)' got
    jq -r .text out > want
    try 0 tree --dvts 4x2
    cmp out want
    try 0 tree --dvts 4x2 --jsonl
    jq -se '([.[].type] | unique) == ["end", "reasoning", "start", "step", "token"] and
        [.[] | select(.type == "step") | del(.type)] == .[-1].search.steps' out
    jq -j 'select(.type == "token").text' out | cmp - <(head -c -1 want)
}

@test "a search is the same with any threads, rows of a step and drafts" {
    judge
    tree --dvts 4x2 -t 1 --draft off --json | jq -c '[.text, .reasoning, .token_ids, .search]' > want
    for o in '-t 2' '--chunk 5' '--draft ngram'; do
        tree --dvts 4x2 $o --json | jq -c '[.text, .reasoning, .token_ids, .search]' | cmp - want
    done
}

@test "a search with one branch is the answer that there is without it" {
    judge
    for o in '' '--think off --regex [0-9]{1,5}' '-n 30' '--reasoning-budget 20 --reasoning-budget-message So'; do
        chimere-run -p "$SUM" $o --json | jq -c '[.text, .reasoning, .token_ids, .finish_reason, .thinking]' > want
        chimere-run -p "$SUM" $o --dvts 1 --verifier cmd:./judge --json 2> err |
            jq -c '[.text, .reasoning, .token_ids, .finish_reason, .thinking]' | diff - want
    done
    # steps of another kind: sentences, or so long that there is one
    for end in '5' 'no such text'; do
        chimere-run -p "$SUM" --json | jq -c .token_ids > want
        chimere-run -p "$SUM" --dvts 1 --step-end "$end" --verifier cmd:./judge --json > out
        jq -c .token_ids out | diff - want
        jq -e --arg e "$end" '.search.steps | all(.[:-1][].text; test($e)) and (length == 1) == ($e != "5")' out
    done
}

@test "an interrupt prints the best so far; a verifier that ends is an error" {
    printf '#!/bin/sh\nn=0\nwhile read -r l; do n=$((n+1)); [ $n -lt 9 ] || { echo $$ > asked; sleep 99; }; echo 0.$n; done\n' > judge
    chmod +x judge
    for json in '' --json; do
        rm -f asked
        # A shell's background jobs ignore SIGINT: env gives it back.
        env --default-signal=INT chimere-run -p "$SUM" --dvts 4x2 --temp 1 --verifier 'cmd:./judge' $json > out 2> err &
        pid=$!
        wait_for test -s asked
        kill -INT $pid
        status=0
        wait $pid || status=$?
        [ $status -eq 130 ]
        no grep -qsv ') [ZX] ' "/proc/$(cat asked)/stat"
        if [ -n "$json" ]; then
            jq -e '.finish_reason == "interrupted" and (.search.steps | length == 4) and .search.votes == 0' out
        else
            printf '47 + 58\n7+8+0=15, write 5 carry 1\n' | cmp out -
        fi
    done
    # before the first step has ended
    printf '#!/bin/sh\nread l; kill -INT $PPID; sleep 99\n' > judge
    try 130 env --default-signal=INT chimere-run -p "$SUM" --dvts 4x2 --temp 1 --verifier cmd:./judge --json
    jq -e '.finish_reason == "interrupted" and .token_ids == [] and .search.steps == []' out
    printf '#!/bin/sh\nread l; echo 1; exit 3\n' > judge
    fails 1 'ended with status 3' chimere-run -p "$SUM" --dvts 4x2 --temp 1 --verifier cmd:./judge
    printf '#!/bin/sh\nread l; echo nan\ncat > /dev/null\n' > judge
    fails 3 'is no score' chimere-run -p "$SUM" --dvts 4x2 --temp 1 --verifier cmd:./judge
}

@test "searches that make no sense, or do not fit" {
    judge
    for n in 0 -4 1000000000 4x3 4x8 6 x 4x 257 1e3 nan ''; do
        fails 2 "--dvts $n" chimere-run -p x --dvts "$n" --temp 1 --verifier cmd:./judge
    done
    fails 2 'needs --verifier' chimere-run -p x --dvts 4 --temp 1
    fails 2 'needs --temp' chimere-run -p x --dvts 4 --verifier cmd:./judge
    fails 2 '--step-end' chimere-run -p x --dvts 4 --temp 1 --verifier cmd:./judge --step-end ''
    fails 2 'of 1 .. 64 bytes' chimere-run -p x --dvts 4 --temp 1 --verifier cmd:./judge --step-end "$(printf '%065d' 0)"
    fails 2 '--step-end' chimere-run -p x --step-end x
    for o in '--best-of 2' --verify --stream '--session s' --raw -i '--think-stop eat' '--reasoning-min 3' '--logprobs 1 --json' \
        "--context judge"; do
        fails 2 '' chimere-run -p x --dvts 4 --temp 1 --verifier cmd:./judge $o
    done
    fails 1 'the context 3' chimere-run -p "$SUM" --dvts 16 --temp 1 --ctx 3 --verifier cmd:./judge
    # on the CPU memory is taken as it is written: what does not fit is refused before that
    [ "$(awk '/MemAvailable/ { print $2 }' /proc/meminfo)" -gt 30000000 ] ||
        fails 1 'sequences of 65536 tokens take' chimere-run -p x --dvts 256 --temp 1 --ctx 65536 --kv f32 --verifier cmd:./judge
    chimere-run --plan --json > one
    try 0 chimere-run --plan --dvts 16x4 --json
    jq -e --slurpfile one one '.kv_bytes == 16 * $one[0].kv_bytes and .state_bytes == 16 * $one[0].state_bytes' out
    no test -e got
}
