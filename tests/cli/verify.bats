#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Verifiers and votes: chimere-bench score, and chimere-run with --best-of, --vote, --verifier, --verify.
load common

SUM='What is 47 + 58?'
ROOMS='There are 6 rooms. Each room has 4 tables, and each table has 8 chairs. How many chairs are there?'
GOOD='{"problem":"2+3","steps":["2 + 3 = 5","5"]}'

# A verifier that gives what its arguments say of each solution, in turn, and writes what it gets to ./got.
scores()
{
    printf '#!/bin/sh\nfor s in %s; do read -r line || exit; printf "%%s\\n" "$line" >> got; echo "$s"; done\ncat > /dev/null\n' \
        "$*" > judge
    chmod +x judge
}
# Whether a process runs: one that has ended may wait for its parent.
runs() { grep -qsv ') [ZX] ' "/proc/$1/stat"; }

@test "a command scores solutions, a line for each" {
    scores 0.25 "'{\"score\":1,\"steps\":[0.5,null]}'"
    printf '%s\n' '{"id":7,"problem":"p","text":" one\n\ntwo \r\n","answer":"a"}' '{"problem":"q","steps":["x","y"]}' > in
    try 0 chimere-bench score --verifier 'cmd:./judge "a b"' in
    jq -se '. == [{id: 7, problem: "p", text: " one\n\ntwo \r\n", answer: "a", score: 0.25, step_scores: [null, null]},
        {problem: "q", steps: ["x", "y"], score: 1, step_scores: [0.5, null]}]' out
    jq -se '. == [{problem: "p", steps: ["one", "two"], answer: "a"}, {problem: "q", steps: ["x", "y"], answer: null}]' got
    scores 0.9 0.9 0.1 0.8
    for r in true false false true; do printf '{"problem":"p","text":"t","right":%s}\n' $r; done > in
    try 0 chimere-bench score --verifier cmd:./judge < in
    grep -q 'area under ROC 0.625 +- .*, 75.0 % scored above 0.5, n = 4' err
}

@test "a verifier that fails is named, and nothing is left running" {
    printf '%s\n' "$GOOD" "$GOOD" > in
    for c in '3:is no score:echo yes' '3:is no score:echo nan' '3:not 0 .. 1:echo 7' \
        '3:is no array of 2:echo "{\"score\":1,\"steps\":[1]}"' '1:ended with status 3:exit 3' '3:is no score:echo' \
        '1:ended by signal 9:kill -9 $$' '1:closed its standard output:exec >&-; sleep 9' \
        '1:ended with status 0 before solution 2:echo 1' '3:before it got solution 2:printf "1\n1\n"; sleep 9'; do
        printf '#!/bin/sh\nread x\n%s\n' "${c#*:*:}" > judge
        chmod +x judge
        fails "${c%%:*}" "$(IFS=: && set -- $c && echo "$2")" chimere-bench score --verifier cmd:./judge in
    done
    printf '#!/bin/sh\necho $$ > pid\nread x\nsleep 99 &\necho $! >> pid\nwait\n' > judge
    fails 1 'no score of solution 1 after 1 s' chimere-bench score --verifier cmd:./judge --verifier-time 1 in
    for p in $(cat pid); do no runs "$p"; done
    # its standard input is closed, and the line is longer than a pipe
    jq -nc '{problem: ("x" * 200000), steps: ["y"]}' > long
    printf '#!/bin/sh\necho $$ > pid\nexec <&-\nsleep 99\n' > judge
    fails 1 'closed its standard input' chimere-bench score --verifier cmd:./judge long
    no runs "$(cat pid)"
    fails 1 'cmd:./none: cannot start' chimere-bench score --verifier cmd:./none in
    fails 2 'the command is empty' chimere-bench score --verifier 'cmd: ' in
    fails 2 'a quote is not closed' chimere-bench score --verifier 'cmd:x "y' in
    fails 1 none.gguf chimere-bench score --verifier ./none.gguf in
    fails 2 'needs --verifier' chimere-bench score in
    for l in '{}' '[1]' '{"problem":"p"}' '{"problem":"p","steps":[1]}' '{"problem":"p","text":" \n"}' \
        "$(jq -nc '{problem: "p", text: ("x\n" * 300)}')"; do
        printf '%s\n' "$GOOD" "$l" > bad
        fails 3 'bad: item 2: ' chimere-bench score --verifier cmd:./judge bad
    done
}

@test "a model finds a wrong step" {
    printf '%s\n' '{"problem":"Compute ((2 + 46) - 4) - 19.","steps":["2 + 46 = 48","48 - 4 = 72","72 - 19 = 53"]}' \
        '{"problem":"Compute (20 + 7) - 3.","text":"20 + 7 = 27\n27 - 3 = 24"}' > in
    try 0 chimere-bench score --verifier self in
    jq -se '.[0].score < 0.1 and .[0].step_scores[1] < 0.5 and .[1].score > 0.9 and
        (.[1].step_scores | length == 2 and min > 0.9)' out
    cp out alone
    try 0 chimere-bench score --verifier "$CHIMERE_MODEL" --parallel 1 in
    cmp out alone
    try 0 chimere-bench score --verifier self --think off in
    jq -se '[.[] | .score, .step_scores[]] | all(. >= 0 and . <= 1)' out
    fails 3 'no chat template' chimere-bench score --verifier "$TINY" in
}

@test "of several answers the vote keeps one" {
    try 0 chimere-run -p "$ROOMS" --think off --temp 1.5 --seed 3 -n 16 --json
    jq .text out > first
    try 0 chimere-run -p "$ROOMS" --think off --temp 1.5 --seed 3 -n 16 --best-of 6 --json
    jq '.search.candidates[0].text' out | cmp - first
    jq -e '.search | .n == 6 and .vote == "majority" and .verifier == null and .yes_rate == null and
        (.candidates | length == 6) and .cached_tokens > 5 * 10' out
    cp out majority
    # a command that is sure of the third answer
    scores 0.1 0 1 0.2 0 0
    try 0 chimere-run -p "$ROOMS" --think off --temp 1.5 --seed 3 -n 16 --best-of 6 --vote best --verifier cmd:./judge --json
    jq -e --slurpfile m majority '.text == .search.candidates[2].text and .search.candidates[2].score == 1 and
        ([.search.candidates[].text] == [$m[0].search.candidates[].text]) and .search.votes >= 1' out
    jq -se --arg p "$ROOMS" 'length >= 1 and all(.problem == $p and .steps == [.answer])' got
    jq -r .text out > want
    try 0 chimere-run -p "$ROOMS" --think off --temp 1.5 --seed 3 -n 16 --best-of 6 --vote best --verifier cmd:./judge
    cmp out want
    scores 0 0 0 0 0 0
    try 0 chimere-run -p "$ROOMS" --think off --temp 1.5 --seed 3 -n 16 --best-of 6 --vote weighted --verifier cmd:./judge
    grep -q 'gives every answer 0' err
}

@test "an answer that scores too low is tried once more" {
    scores 0.3 0.7
    try 0 chimere-run -p "$SUM" --verify=0.6 --strict --verifier cmd:./judge --json
    jq -e '.verify == {score: 0.7, attempts: 2, passed: true} and .text == .search.candidates[1].text' out
    scores 0.3 0.2
    try 4 chimere-run -p "$SUM" --verify --strict --verifier cmd:./judge --json
    jq -e '.verify == {score: 0.3, attempts: 2, passed: false} and .text == .search.candidates[0].text' out
    scores 0.3 0.2
    try 0 chimere-run -p "$SUM" --verify --verifier cmd:./judge
    scores 0.5
    try 0 chimere-run -p "$SUM" --verify --verifier cmd:./judge --json
    jq -e '.verify == {score: 0.5, attempts: 1, passed: true}' out
    printf '#!/bin/sh\nexit 5\n' > judge
    try 1 chimere-run -p "$SUM" --verify --verifier cmd:./judge
    grep -q 'ended with status 5' err
    grep -qx 105 out
}

@test "what was found is printed before a verifier's error, and after an interrupt" {
    ask=(env --default-signal=INT chimere-run -p "$ROOMS" --think off --temp 1.5 --seed 3 -n 16 --best-of 6 --vote best)
    try 0 "${ask[@]}" --vote majority --json
    jq -r '.search.candidates[1].text' out > second
    printf '#!/bin/sh\nread l; echo 0.2; read l; echo 0.7; read l; exit 3\n' > judge
    chmod +x judge
    try 1 "${ask[@]}" --verifier cmd:./judge
    cmp out second
    [ "$(cat err)" = 'chimere-run: --verifier: cmd:./judge: ended with status 3 before solution 3 had a score' ]
    printf '#!/bin/sh\nread l; echo 0.2; read l; echo 0.7; read l; echo 2\n' > judge
    try 3 "${ask[@]}" --verifier cmd:./judge --json
    jq -e '.search | [.candidates[].score] == [0.2, 0.7, null, null, null, null] and .verifier == "cmd:./judge"' out
    printf '#!/bin/sh\necho $$ > pid\nread l; echo 0.2; read l; echo 0.7; kill -INT $PPID; sleep 99\n' > judge
    try 130 "${ask[@]}" --verifier cmd:./judge
    cmp out second
    [ ! -s err ]
    no runs "$(cat pid)"
}

@test "another model as the verifier counts in the plan" {
    chimere-run --plan --best-of 8 --json > alone
    try 0 chimere-run --plan --best-of 8 --verifier "$CHIMERE_MODEL" --json
    jq -e --slurpfile a alone '.verifier_bytes > .kv_bytes and .total_bytes == $a[0].total_bytes + .verifier_bytes and
        $a[0].verifier_bytes == null' out
    for v in self cmd:x; do
        try 0 chimere-run --plan --best-of 8 --verifier $v --json
        cmp out alone
    done
    try 0 chimere-run --plan --vram 600M --best-of 8 --verifier "$CHIMERE_MODEL" # experts make room for it
    grep -q '^  verifier  *[0-9.]* MB$' out
    grep -Eq 'experts of layers 0 to [67]: ([0-9]|1[0-5]) of 16 on the device' out
    fails 1 'are too little' chimere-run --plan --vram 400M --best-of 8 --verifier "$CHIMERE_MODEL"
    fails 1 none.gguf chimere-run --plan --best-of 8 --verifier none.gguf
    [ "$(awk '/MemAvailable/ { print $2 }' /proc/meminfo)" -gt 30000000 ] ||
        fails 1 'GB with those of the verifier, and' chimere-run -p "$SUM" --best-of 128 --temp 1 --ctx 65536 --kv f32 --verifier "$CHIMERE_MODEL"
}

@test "the demo's hard sum: greedy is wrong, what a command has checked is right" {
    hard=$(sed -n "s/^hard='\(.*\)'$/\1/p" "$ROOT/share/demo.sh")
    [ "$(chimere-run --temp 0 -p "$hard")" = 'The answer is 698.' ]
    [ $((106 * 6 + 2)) -eq 638 ]
    try 0 chimere-run --temp 1 --seed 2 --best-of 8 --vote weighted --verifier "cmd:bash '$ROOT/share/demo/recompute.sh'" -p "$hard" --json
    jq -e '.text == "The answer is 638." and ([.search.candidates[] | .score == (if .answer == "638" then 1 else 0 end)] | all)' out
    try 0 chimere-run --temp 1 --seed 2 --best-of 8 -p "$hard"
    grep -qx 'The answer is 698.' out
}

@test "options of several answers that make no sense" {
    fails 2 '--best-of 0' chimere-run -p x --best-of 0
    fails 2 '--best-of 1000000000' chimere-run -p x --best-of 1000000000
    fails 2 'needs --temp' chimere-run -p x --best-of 2
    fails 1 'the context 3' chimere-run -p "$SUM" --best-of 16 --temp 1 --ctx 3
    # on the CPU memory is taken as it is written: what does not fit is refused before that
    [ "$(awk '/MemAvailable/ { print $2 }' /proc/meminfo)" -gt 30000000 ] ||
        fails 1 '256 sequences of 65536 tokens take' chimere-run -p x --best-of 256 --temp 1 --ctx 65536 --kv f32
    fails 2 'needs a --verifier' chimere-run -p x --best-of 2 --temp 1 --vote weighted
    fails 2 '--vote' chimere-run -p x --vote best
    fails 2 '--verifier' chimere-run -p x --verifier self
    fails 2 '--strict' chimere-run -p x --strict
    for x in nan -1 2 x; do fails 2 "--verify=$x" chimere-run -p x --verify=$x; done
    for o in --jsonl --stream '--session s' --raw; do fails 2 '' chimere-run -p x --best-of 2 --temp 1 $o; done
    fails 1 'the context 3' chimere-run -p "$SUM" --best-of 16 --temp 1 --ctx 3
}
