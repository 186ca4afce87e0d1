# SPDX-License-Identifier: Apache-2.0
# prompts.jq - messages before a task's questions.
include "jobs";
include "gate";

# Half of the questions decides; of the others a third gives examples, the rest is searched with. In a fixed order that has
# nothing to do with the file's.
def parts:
    [inputs | select(is_chat and (.id | type | IN("string", "number")) and has("answer"))] | unique_by(question_key) |
    map({item: ., h: (.id | hash)}) | sort_by(.h, .item.id) | to_entries[] |
    {part: (if .key % 2 == 1 then "decide" elif .key % 6 == 0 then "examples" else "search" end), item: .value.item};

# Questions with right answers: scored ones first, and none that is searched or decided with.
def single: is_chat and (.messages | map(.role)) == ["user"] and (question | type) == "string" and question != "" and
    (.answer | type) == "string" and (.answer | same) != [];
def pool($parts):
    (reduce ($parts[] | select(.part != "examples") | .item | question_key) as $k ({}; .[$k] = 1)) as $asked |
    [inputs | select(single and (.type != "score" or .score >= 4) and (.check == null or .check == "exact") and ($asked[question_key] | not))] |
    unique_by(question_key) | sort_by(.type != "score", (question | hash))[:64][] | {question: question, answer};

def instruction_asked:
    [inputs] as $pool | range([2, ($pool | length / 4 | floor)] | min) | . as $n | $pool[($n * 4):($n * 4 + 4)] |
    {n: $n, messages: [{role: "user", content: ("Here are questions with their right answers.\n\n" +
        (map("Question: \(.question)\nAnswer: \(.answer)") | join("\n\n")) +
        "\n\nWrite one short instruction that says how such questions have to be answered.")}]};
def instruction: select((.text | type) == "string" and (.cut | not)) | .text | flat | select(. != "" and length <= 400);

# Arrays of messages; the first is what is used today.
def candidates($base; $file; $lines; $n):
    if ($base | length) != 1 or ($base[0] | type) != "array" or (all($base[0][]; type == "object" and (.role | type) == "string") | not) then refuse(3; "prompts: \($file): is no array of messages") else
        [inputs] as $pool | ([($pool | length / ([$n, 1] | max) | floor), 4] | min) as $sets |
        [[], (range(if $n > 0 then $sets else 0 end) | . as $s | [range($n) | $pool[. * $sets + $s] |
            {role: "user", content: .question}, {role: "assistant", content: .answer}])] as $examples |
        [[], ($lines | split("\n")[] | select(. != "") | [{role: "system", content: .}])] as $instructions |
        $base[0], ([range($instructions | length) as $i | range($examples | length) as $e | select($i + $e > 0) | {order: ([$i, $e] | min), all: ($instructions[$i] + $examples[$e])}] |
            sort_by(.order)[:23][].all)
    end;

def gain($before; $after; $messages; $candidates):
    (pairs_of([$before[] | select(.type == "answer")]; [$after[] | select(.type == "answer")]) | compared) as $c | chance($c.lost; $c.won) as $p |
    {type: "prompts", gain: ($c.won > $c.lost and $p < 0.05), before: $c.before, after: $c.after, of: $c.asked, won: $c.won, lost: $c.lost, $p, $candidates, $messages};
