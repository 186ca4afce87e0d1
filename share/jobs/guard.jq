# SPDX-License-Identifier: Apache-2.0
# guard.jq - what a model is sure of.
include "jobs";

def is_calibration: type == "object" and .type == "guard" and (.threshold | type) == "number" and (.model | type) == "string" and
    (.abstains | type) == "array";

# Questions about names that do not exist, made of syllables: always the same ones. Their numbers are negative.
def unknown:
    ["ka", "to", "mi", "ru", "zel", "vix", "qua", "dro", "pim", "osk"] as $s |
    ["What does the command % do?", "Define %.", "What does the function % do?", "What is %?", "What is the meaning of %?",
        "Who was %?", "Where is %?", "Tell me what % is used for."] as $shapes |
    range(40) | . as $n | ([$s[$n % 10], $s[($n * 7 + 3) % 10], $s[($n * 3 / 10 | floor) % 10], $s[($n * 11 + 5) % 10]] | join("")) as $name |
    {n: (-1 - $n), messages: [{role: "user", content: ($shapes[$n % 8] | split("%") | join($name))}]},
    # and about people
    (["Who is %?", "Tell me who % is.", "Do you know %?"][$n % 3] as $shape | [$name, $s[$n * 3 % 10] + $s[($n + 4) % 10]] |
        map(.[:1] as $c | ($c | ascii_upcase) + .[1:]) | join(" ") as $name |
        {n: (-41 - $n), messages: [{role: "user", content: ($shape | split("%") | join($name))}]});

# The threshold: above it are 95 of 100 right answers. Three words with which at least five answers about unknown names
# begin, or one of which it is as sure as of what it knows, and no right answer does, say that the model does not know.
def calibrated($tasks):
    map(select((.text | type) == "string" and .mean_logprob != null) | .opening = (.text | opening)) as $replies |
    (reduce ($tasks[] | select(.n >= 0)) as $t ({}; .["\($t.n)"] = ($t.answer | same))) as $answers |
    ($replies | map(select(.n >= 0) | select((.text | same) == $answers["\(.n)"]))) as $right |
    ($replies | map(select(.n < 0))) as $unknown | ($right | map(.mean_logprob) | sort) as $known |
    if ($known | length) < 20 then refuse(4; "guard: the model knows \($known | length) of \($answers | length): at least 20 are needed") else
        $known[($known | length) * 5 / 100 | floor] as $threshold |
        ([$unknown | group_by(.opening)[] | select(length >= 5 or any(.[]; .mean_logprob > $threshold)) | .[0].opening |
            select(split(" ") | length == 3)] - ($right | map(.opening))) as $abstains |
        {type: "guard", threshold: $threshold, model: $right[0].model, known: ($known | length), asked: ($answers | length),
            abstains: $abstains, unknown: ($unknown | length),
            unknown_abstain: ([$unknown[] | select(.opening | IN($abstains[]))] | length),
            unknown_above: ([$unknown[] | select((.opening | IN($abstains[]) | not) and .mean_logprob > $threshold)] | length)}
    end;

# What the model is asked about a pair: the question, and if it is a short one other wordings of it. n: that of the pair,
# and up to seven more.
def asks($shapes):
    select(.type == "pair" and .why != "reviewed") | .n as $n | (question | strings) as $question |
    (if is_chat then . else {messages: [{role: "user"}]} end) as $chat |
    [$question, ($question | wordings($shapes)[:4][])] | to_entries[] | .value as $text |
    {n: ($n * 8 + .key), messages: ($chat | with_question($text) | .messages)};

def by_pair: sort_by(.n) | reduce .[] as $r ({}; .["\($r.n / 8 | floor)"] += [$r]);

# A pair after the model's answers: held back if one is sure and another one, and none is the pair's.
def guarded($c; $replies):
    del(.n) | . as $pair | (.answer | tostring) as $answer |
    if .type != "pair" or .why == "reviewed" then .
    elif ($replies[0].text | type) != "string" then
        .type = "quarantine" | .why = "the model could not be asked: \($replies[0].error | tostring | cut_to(200))"
    else [$replies[] | select((.text | type) == "string")] |
        map(select(.mean_logprob != null and .mean_logprob > $c.threshold and (.text | opening | IN($c.abstains[]) | not))) as $sure |
        if any(.[]; (.text | same) == ($answer | same) or (.cut and (.text as $text | $answer | startswith($text)))) or ($sure | length) == 0 then $pair
        else ($sure | max_by(.mean_logprob)) as $other | $pair + {type: "quarantine", why: "the model is sure of something else",
            model_answer: $other.text, mean_logprob: $other.mean_logprob} end
    end;
