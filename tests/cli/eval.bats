#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# chimere-bench eval: what is asked with every item, what stands beside the model, answers that were recorded.
load common

item() # ID QUESTION ANSWER
{
    jq -nc '{id: $ARGS.positional[0], messages: [{role: "user", content: $ARGS.positional[1]}], enable_thinking: false,
        answer: $ARGS.positional[2], check: "exact"}' --args "$@"
}

prepare()
{
    printf 'zorble: fold paper maps along old creases\nqwimp: print the name of the oldest file\n' > notes
    item z 'What is the zorble command for?' 'fold paper maps along old creases' > new.jsonl
    item q 'What is the qwimp command for?' 'print the name of the oldest file' >> new.jsonl
}

@test "eval: notes, recited texts, a document and tables are those of chimere-run" {
    prepare
    chimere-engram-build index --lines -o notes.index notes
    chimere-engram-build build -o t.engram notes
    for beside in '--examples notes.index:2' '--recite notes.index' '--context notes' '--engram t.engram:0.5'; do
        # shellcheck disable=SC2086
        chimere-bench eval $beside -n 24 -o answers new.jsonl > record 2> err
        [[ $beside = --engram* ]] || jq -e '.n_right == 2' record
        # shellcheck disable=SC2086
        chimere-run $beside --think off -n 24 -p 'What is the qwimp command for?' --json > run
        jq -s '.[0] as $run | .[1:][] | select(.id == "q") | .text == $run.text and .notes == $run.notes' run answers |
            grep -qx true
        # answers with something else beside the model are not taken for these
        fails 3 "was asked with" chimere-bench eval -n 24 -o answers new.jsonl
        mv answers "answers.${beside%% *}"
    done
    try 3 chimere-bench eval --engram notes.index new.jsonl
    try 3 chimere-bench eval --recite t.engram new.jsonl
    try 3 chimere-bench eval --context /dev/null new.jsonl
    try 1 chimere-bench eval --examples none.index new.jsonl
}

@test "eval: a system message and messages before are a part of every prompt" {
    prepare
    printf 'Be brief.\n\n' > system
    printf '{"messages": [{"role": "system", "content": "Their own."}, {"role": "user", "content": "1 + 1?"},
        {"role": "assistant", "content": "2"}], "temperature": 1}' > before
    jq -c '.messages |= [{role: "system", content: "Mine."}] + .' new.jsonl > own.jsonl
    asked() { rm -f a; chimere-bench eval -n 1 --limit 1 -o a "$@" > /dev/null 2> err; jq -r .asked a; }
    # same NAME FILTER OPTION...: own.jsonl with the options is asked what the filter makes of it
    same()
    {
        jq -c "$1" own.jsonl > spelled.jsonl
        [ "$(asked "${@:2}" own.jsonl)" = "$(asked spelled.jsonl)" ]
    }
    same '.messages[0].content = "Be brief."' -s @system
    same '.messages[0].content = "Be brief."' --system 'Be brief.'
    shots='[{role: "user", content: "1 + 1?"}, {role: "assistant", content: "2"}]'
    same '.messages |= [{role: "system", content: "Their own."}] + '"$shots"' + .[1:]' --messages-before before
    same '.messages |= [{role: "system", content: "Be brief."}] + '"$shots"' + .[1:]' --messages-before before -s @system
    jq "$shots" <<< null > shots
    same '.messages |= .[:1] + '"$shots"' + .[1:]' --messages-before shots
    [ "$(asked -s @system own.jsonl)" != "$(asked own.jsonl)" ]
    asked --messages-before before new.jsonl
    grep -q 'before: only its messages are used, not temperature' err
    [ "$(chimere-run -s @system -p hi --show-prompt)" = "$(chimere-run -s 'Be brief.' -p hi --show-prompt)" ]
    fails 3 'neither an array' chimere-bench eval --messages-before <(echo '{}') new.jsonl
    fails 1 'no-file' chimere-bench eval --system @no-file new.jsonl
    fails 1 'no-file' chimere-run --system @no-file -p hi
    printf 'a\0b' > system
    fails 3 'is no text' chimere-run --system @system -p hi
}

@test "eval --judge-only: recorded answers have the tables of asked ones" {
    prepare
    { item m '1 + 1?' 2; item t '2 + 2?' 4; } > sums.jsonl
    head -1 "$ROOT/share/eval/tools.jsonl" > tools.jsonl
    export CHIMERE_MODEL=/nowhere # no model is opened
    printf '%s\n' '{"id":"z","answer":"wrong"}' '{"id":"other","answer":"x"}' '{"id":"m","text":"2","n_tokens":1}' '' \
        '{"id":"t","answer":"so</think>4","ended":false}' '{"id":"z","answer":" fold paper maps along old creases\n"}' > recorded
    jq -c '{id, answer}' tools.jsonl >> recorded
    chimere-bench eval --judge-only recorded -o judged new.jsonl sums.jsonl tools.jsonl > records 2> err
    jq -sc 'map([.set, .n_right, .n_items, .n_cut])' records | grep -qxF '[["new",1,2,0],["sums",1,2,1],["tools",1,1,0]]'
    jq -es 'all(.[]; .type == "eval" and .accuracy_lo <= .accuracy and .accuracy <= .accuracy_hi and .model == null)' records
    grep -q 'recorded: 1 of 6 answers are to nothing that is asked' err
    grep -q 'recorded: 1 of 5 answers are missing and count as wrong' err
    # a file of answers can be judged, too, and pairs of both are compared
    chimere-bench eval --judge-only judged -o again new.jsonl sums.jsonl tools.jsonl > second 2> err
    diff <(jq -c '[.set, .n_right]' records) <(jq -c '[.set, .n_right]' second)
    chimere-bench eval --compare judged again | jq -es 'map(select(.set == "all"))[0] | .n_items == 4 and .difference == 0'
    # from the same answers nothing is judged twice, and others are refused
    cp judged before
    chimere-bench eval --judge-only recorded -o judged new.jsonl sums.jsonl tools.jsonl > second 2> err
    diff <(jq -c '[.set, .n_right]' records) <(jq -c '[.set, .n_right]' second)
    cmp before judged
    fails 3 'was asked with' chimere-bench eval --judge-only before -o judged new.jsonl sums.jsonl tools.jsonl
    sed 's/"set":"new"/"set":"old"/' judged > other
    chimere-bench eval --judge-only other new.jsonl 2> err | jq -e '.n_right == 0'
    # several samples, and sets in which an item comes twice
    printf '%s\n' '{"id":"m","answer":"2"}' '{"id":"m","answer":"3","sample":1}' '{"id":"m","answer":"2","sample":2}' > many
    { cat sums.jsonl; item copy '1 + 1?' 2; } > copies.jsonl
    chimere-bench eval --judge-only many --samples 2 copies.jsonl 2> err | jq -e '.n_items == 2 and .accuracy == 0.25'
    grep -q 'copies of earlier ones' err
    for bad in '{"id":1,"answer":"x"}' '{"id":"m"}' '{"id":"m","answer":3}' '[]' '{"id":"m","text":null}'; do
        printf '%s\n' "$bad" > bad
        fails 3 'bad: item 1 has no id' chimere-bench eval --judge-only bad sums.jsonl
    done
    echo '{' > bad
    fails 3 'bad: line 1' chimere-bench eval --judge-only bad sums.jsonl
    fails 1 'none' chimere-bench eval --judge-only none sums.jsonl
    fails 2 'no task set' chimere-bench eval --judge-only many
    fails 2 'do not go together' chimere-bench eval --judge-only many -m x sums.jsonl
}
