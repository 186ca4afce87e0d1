# SPDX-License-Identifier: Apache-2.0
# paraphrase.jq - other wordings of questions.
include "jobs";

# Words of questions as such; what else a question says has to be in every wording of it.
def common: "a about an and any are as at be by can could did do does explain describe define definition for from give going had has have
    he her his how i in into is it its know line me mean meaning much many my of on one or our please question say she should tell
    that the their them then there these they this those to us use used want was we were what when where which who whom whose why
    will with word words would you your" | [words[] | {(.): 1}] | add;
def key_words: common as $common |
    [ascii_downcase | words[] | until((.[-1:] | IN("?", "!", ".", ",", ":", ";", "\"", "\u0027", ")", "`")) | not; .[:-1]) |
        until((.[:1] | IN("\"", "\u0027", "(", "`")) | not; .[1:]) | rtrimstr("(") | select(. != "" and ($common[.] | not))] | unique;
def numbers: [scan("[0-9]+(?:[.,][0-9]+)*")] | sort;
def keeps($question): key_words as $mine | ($question | key_words) as $key |
    $key - $mine == [] and ($mine - $key | length) <= 2 and numbers == ($question | numbers);

def single: .type == "pair" and is_chat and ([.messages[].role] - ["system"]) == ["user"] and
    (question | length <= 400 and (contains("\n") | not)) and (.answer | type) == "string";
def asks: select(single) | {n, messages: [{role: "user", content: "Ask this in other words, as one question: \(question)"}]};
# Of what the model wrote: a question that keeps what has to be kept, in another wording, without the answer in it; put
# to the model again with the answer as a note.
def checks($pairs):
    (reduce $pairs[] as $p ({}; .["\($p.n)"] = $p)) as $pair | inputs | select((.text | type) == "string") | .n as $n |
    $pair["\(.n)"] as $p | ($p | question) as $question | (.text | flat) as $text |
    select(($text | length) <= 400 and ($text | endswith("?")) and ($text | same) != ($question | same) and ($text | keeps($question)) and
        ($text | ascii_downcase | contains($p.answer | ascii_downcase | bare) | not)) |
    {n: $n, answer: $p.answer, wording: $text, messages: [{role: "user",
        content: "Use these notes.\n\($question | key_words | join(" ")): \($p.answer)\n\n\($text)"}]};
def kept($notes):
    (reduce $notes[] as $p ({}; .["\($p.n)"] = $p)) as $note | inputs | $note["\(.n)"] as $p |
    select((.text | type) == "string" and (.text | same) == ($p.answer | same)) | {n, wording: $p.wording};

# Questions with the same answer and the same rare words: the second one is a test of the first. By n: "first", "test".
def siblings:
    [.[] | select(single)] | map({n, question: question, words: (question | key_words), answer: (.answer | same)}) |
    group_by([.answer, .words]) | map(unique_by(.question | same) | select(length > 1) | sort_by(.n) | {("\(.[0].n)"): "first", ("\(.[1].n)"): "test"}) | add;

def paraphrased($shapes; $written):
    siblings as $siblings | (reduce $written[] as $w ({}; .["\($w.n)"] = $w.wording)) as $written |
    (reduce (.[] | question | strings | same | tojson) as $q ({}; .[$q] = 1)) as $taken |
    .[] | .n as $n | del(.n) |
    if .type != "pair" or ((question | type) != "string") then .
    elif $siblings["\($n)"] == "test" then . + {type: "test", wording: "own"}
    else . as $pair | question as $question | ($question | explode | add) as $turn |
        def turned: ($turn % ([length, 1] | max)) as $at | .[$at:] + .[:$at];
        [$written["\($n)"] | strings | {text: ., wording: "model"}] +
        ($question | wordings($shapes) | turned | map({text: ., wording: "shape"})) +
        (if $pair | is_chat then $question | framed($shapes) | turned | map({text: ., wording: "frame"}) else [] end) |
        map(select($taken[.text | same | tojson] | not)) |
        $pair + {wording: "as asked"},
        (.[1] | select(.) | . as $w | $pair | with_question($w.text) + {wording: $w.wording}),
        (.[0] | select(. and $siblings["\($n)"] == null) | . as $w | $pair | with_question($w.text) + {type: "test", wording: $w.wording})
    end;
