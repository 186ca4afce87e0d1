#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Files of calibration: made by chimere-bench, used by --think auto in every program.
load common

EASY='What is 7 + 5?'
HARD='What is 34 + 27?'

# A file for the embedded model, with a threshold for all questions and one for a class.
calibrated()
{
    [ ! -f "$BATS_FILE_TMPDIR/c.json" ] || { cp "$BATS_FILE_TMPDIR/c.json" . && return; }
    chimere-bench calibrate --limit 2 -n 4 -o made.json "$ROOT/share/eval/math.jsonl" --json > /dev/null
    jq -c '.all = {n: 2, think: "below", below: 0.9, knots: [[0.5, 0.25], [1, 0.75]]} |
        .routes = {default: "other", classes: [{name: "never", words: ["zebra"]}, {name: "always", words: ["think"]}]} |
        .classes = [{name: "never", think: "never", knots: []}, {name: "always", think: "always", knots: []}]' made.json > c.json
    cp c.json "$BATS_FILE_TMPDIR"
}

@test "calibrate fits one half and reports the other" {
    set -- --limit 4 -n 24 --classify "$ROOT/share/eval/routes.json" "$ROOT/share/eval/math.jsonl" "$ROOT/share/eval/code.jsonl"
    try 0 chimere-bench calibrate -o a.json --parallel 12 --json "$@"
    mv out a.jsonl
    try 0 chimere-bench calibrate -o b.json --parallel 1 --table "$@"
    cmp a.json b.json
    try 0 chimere-bench calibrate -o b.json --limit 2 -n 2 "$ROOT/share/eval/math.jsonl" # one of its own is replaced
    no cmp -s a.json b.json
    grep -q '^always think' out && grep -q '^auto, by class' out
    jq -e '.type == "calibration" and (.fingerprint | test("^[0-9a-f]{16}$")) and .routes.default == "other" and
        .all.n == 4 and .classes == [] and (.all.knots | length > 0)' a.json
    jq -se 'map(select(.type == "calibrate")) | (map(select(.case == "class all"))[0] | .n_items == 4 and .n_picked == 4 and
            .area >= 0 and .calibration_error >= 0) and
        (map(select(.case == "always think"))[0] | .difference == 0 and .n_items == 4) and
        (map(select(.case == "never think"))[0].tokens < map(select(.case == "always think"))[0].tokens)' a.jsonl
}

@test "calibrate goes on after a kill, and does not ask again" {
    set -- --limit 6 -n 24 --parallel 2 "$ROOT/share/eval/math.jsonl"
    chimere-bench calibrate -o a.json "$@" > /dev/null
    no test -e a.json.part
    (ulimit -f 1 && ! chimere-bench calibrate -o b.json "$@" > out 2> err) # a file of 1 KiB: in the middle of a line
    [ ! -e b.json ]
    n=$(wc -l < b.json.part)
    [ "$n" -ge 1 ] && [ "$n" -le 4 ] && [ -n "$(tail -c 1 b.json.part)" ]
    try 0 chimere-bench calibrate -v -o b.json "$@"
    grep -q "b.json.part: has $n of 12 answers" err
    cmp a.json b.json
    no test -e b.json.part
    # those of other options do not count, and another file is left alone
    chimere-bench calibrate -o c.json --limit 2 -n 4 "$ROOT/share/eval/math.jsonl" > /dev/null
    printf 'mine\n' > c.json.part
    fails 3 'c.json.part: line 1 is no answer of a calibration' chimere-bench calibrate -o c.json --limit 2 -n 4 "$ROOT/share/eval/math.jsonl"
    [ "$(cat c.json.part)" = mine ]
}

@test "--think auto thinks where the direct answer is in doubt, in all programs" {
    calibrated
    same='[.text, .reasoning, .token_ids]'
    try 0 chimere-run --think auto --calibration c.json --json -p "$HARD"
    jq -e '.thinking | .thought and .class == "other" and .least < 0.9 and .calibrated == null and .direct_tokens > 0 and
        .read_again == 1' out
    jq -c "$same" out > auto
    try 0 chimere-run --json -p "$HARD"
    jq -c "$same" out | cmp - auto
    try 0 chimere-run --think auto --calibration c.json --json -p "$EASY"
    jq -e '.thinking | .thought == false and .least > 0.99 and .calibrated > 0.7 and .direct_tokens == 0 and .read_again == 0' out
    jq -c "$same" out > auto
    try 0 chimere-run --think off --json -p "$EASY"
    jq -c "$same" out | cmp - auto
    # of one that is cut off that is not known
    try 0 chimere-run --think auto --calibration c.json --json -p "$EASY" -n 1
    jq -e '.finish_reason == "length" and (.thinking | .thought == false and .least > 0.99 and .calibrated == null)' out
    try 0 chimere-run --think auto --calibration c.json --jsonl -n 9 -p "zebra: $HARD"
    jq -se '.[-1].thinking | .thought == false and .class == "never" and .least == null' out
    try 0 chimere-run --think auto --calibration c.json --json -n 1 --reasoning-budget 4 -p "think: $EASY"
    jq -e '.thinking | .thought and .class == "always" and .budget == 4 and .direct_tokens == 0' out
    try 0 chimere-run --think auto --calibration c.json --session s.session -p "$HARD"
    cp out first
    try 0 chimere-run --think auto --calibration c.json --session s.session -p "$EASY" --json
    jq -e '.usage.cached_tokens > 0 and .text == "12"' out

    jq -nc --arg e "$EASY" --arg h "$HARD" '{temperature: 0, enable_thinking: "auto"} as $o |
        ([$h, $e, $h, $e] | map({messages: [{role: "user", content: .}]} + $o) + [{messages: [{role: "user", content: $h}],
            stream: true, n: 2} + $o] | map({method: "chat/completions", body: .})),
        [{method: "responses", body: ({input: $h} + $o)}] | .[]' | jq -c '.id = input_line_number' |
        chimere-serve-stdio --ctx 512 --parallel 2 --calibration c.json > served
    jq -se 'map(select(.type == "response")) | sort_by(.id) | map(.body.chimere.thinking |
            [.thought, .direct_tokens > 0, .read_again]) ==
        [[true, true, 1], [false, false, 0], [true, true, 1], [false, false, 0], [true, true, 1]]' served
    jq -se --rawfile first first 'map(select(.id == 5 and .type == "chunk") | .body.choices[]) |
        map(select(.index == 1) | .delta.content // "") | add == ($first | rtrimstr("\n"))' served
}

@test "task sets are asked with --think auto" {
    calibrated
    head -n 4 "$ROOT/share/eval/math.jsonl" > m.jsonl
    try 0 chimere-bench eval --think auto --calibration c.json -o a.jsonl --json m.jsonl
    jq -e '.thought_fraction > 0 and .thought_fraction < 1 and .tokens > 1' out
    cp out first
    jq -se 'map(select(.reasoned)) | length > 0 and all(.least < 0.9 and .direct_tokens > 0)' a.jsonl
    jq -se 'map(select(.reasoned | not)) | length > 0 and all(.least >= 0.9 and .direct_tokens == 0 and .n_reasoning == 0)' a.jsonl
    try 0 chimere-bench eval --think auto --calibration c.json -o a.jsonl --json m.jsonl # all of them are there
    jq -c '[.accuracy, .tokens, .thought_fraction]' out first | uniq | wc -l | grep -qx 1
    jq '.all.below = 0.8' c.json > d.json
    fails 3 'calibration=' chimere-bench eval --think auto --calibration d.json -o a.jsonl m.jsonl
}

@test "files of calibration and options that make no sense" {
    calibrated
    auto=(chimere-run --think auto --no-stdin -p x --calibration)
    jq -c '.fingerprint = "0123456789abcdef"' c.json > other.json
    fails 3 'other.json: is of another model, 0123456789abcdef' "${auto[@]}" other.json
    fails 3 'is of another model' chimere-bench eval --think auto --calibration other.json "$ROOT/share/eval/math.jsonl"
    fails 3 'is of another model' chimere-serve-stdio --calibration other.json
    jq -c '.all.knots[0] = [2, 3]' c.json > bad.json
    fails 3 'bad.json: /all/knots/0:' "${auto[@]}" bad.json
    fails 3 'routes.json: /type:' "${auto[@]}" "$ROOT/share/eval/routes.json"
    head -c 40 c.json > cut.json
    fails 3 'cut.json' "${auto[@]}" cut.json
    fails 1 'none.json' "${auto[@]}" none.json
    fails 2 'needs a --calibration' chimere-run --think auto -p x
    fails 2 'no effect without --think auto' chimere-run --think on --calibration c.json -p x
    fails 2 'with --reasoning-budget 0' "${auto[@]}" c.json --reasoning-budget 0
    fails 2 'with --reasoning-effort none' "${auto[@]}" c.json --reasoning-effort none
    fails 2 'not with several answers' "${auto[@]}" c.json --best-of 2 --temp 1
    fails 2 'do not go together' "${auto[@]}" c.json --logits l
    fails 2 'decides already' "${auto[@]}" c.json --chat-kwargs '{"enable_thinking": true}'
    fails 2 'needs --out' chimere-bench calibrate "$ROOT/share/eval/math.jsonl"
    fails 2 'only self' chimere-bench calibrate -o x.json --verifier cmd:x "$ROOT/share/eval/math.jsonl"
    fails 2 'no task set' chimere-bench calibrate -o x.json
    fails 2 'eval with a --calibration' chimere-bench eval --think auto "$ROOT/share/eval/math.jsonl"
    echo text > x.json
    fails 2 'x.json' chimere-bench calibrate -o x.json "$ROOT/share/eval/math.jsonl"
    # before anything is asked, of as many items as the set has
    fails 1 'none/y.json' chimere-bench calibrate -o none/y.json "$ROOT/share/eval/math.jsonl"
    fails 1 'not a regular file' chimere-bench calibrate -o /dev/full "$ROOT/share/eval/math.jsonl"
    fails 3 'so two are needed' chimere-bench calibrate -o y.json --limit 1 "$ROOT/share/eval/math.jsonl"
    no test -e y.json
    fails 2 'with 0 tokens' "${auto[@]}" c.json -n 0
    b='{"method":"chat/completions","body":{"messages":[{"role":"user","content":"x"}]'
    printf '%s,%s}}\n' "$b" '"enable_thinking":"auto","reasoning_effort":"none"' "$b" '"enable_thinking":"often"' \
        "$b" '"enable_thinking":"auto","max_tokens":0' |
        jq -c '.id = input_line_number' | chimere-serve-stdio --ctx 512 --calibration c.json > served
    jq -se 'map(.error.param) == ["/enable_thinking", "/enable_thinking", "/enable_thinking"]' served
    printf '%s,"enable_thinking":"auto"}}\n' "$b" | jq -c '.id = 1' | chimere-serve-stdio --ctx 512 | grep -q 'server with --calibration'
}

@test "a verifier that is no better than chance is told" {
    calibrated
    jq -c '.verifier = {n: 40, area: 0.55, lo: 0.4, hi: 0.7, yes_rate: 0.9}' c.json > v.json
    try 0 chimere-run --verify --calibration v.json --think off -n 2 -p "$EASY"
    grep -qF 'not known to be better than chance: area under ROC 0.55 [0.40, 0.70], n = 40, 90 %' err
    try 0 chimere-run --verify --calibration c.json --think off -n 2 -p "$EASY"
    grep -q 'says nothing of the model as a verifier' err
    jq -c '.verifier = {n: 40, area: 0.9, lo: 0.8, hi: 1, yes_rate: 0.5}' c.json > v.json
    try 0 chimere-run --verify --calibration v.json --think off -n 2 -p "$EASY"
    no grep -q verifier err
}
