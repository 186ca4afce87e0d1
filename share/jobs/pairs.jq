# SPDX-License-Identifier: Apache-2.0
# pairs.jq - scores, by what was asked, to pairs.
include "jobs";

# Of a line of scores or decisions: what pairs are made from, or nothing. says: good, bad, no or decided. No program takes
# a NUL.
def gathered:
    select((.type == "score" or .type == "decision") and (.answer | type) == "string" and (.answer | same) != [] and
        (if is_chat then .messages[-1].role != "assistant" else (.prompt | type) == "string" end) and
        ([asked, .answer] | (tojson | contains("\\u0000")) and any(.. | strings | explode[]; . == 0) | not)) |
    (if .type == "decision" then {y: "decided", edit: "decided", n: "no"}["\(.decision)"]
        elif (.score | type) == "number" and .score >= 4 then "good" elif .score == 1 then "bad" else null end) as $says |
    select($says) | {key: question_key, says: $says, same: (.answer | same), asked: asked, id, answer} +
        if $says == "decided" then {why: "reviewed", score: 5} else {why, score} end;

# What was said last of an answer holds, and what was decided holds before anything else. One good answer is a pair,
# several contradict each other.
def sorted:
    [group_by(.same)[] | (map(select(.says == "decided" or .says == "no"))[-1] // map(select(.says == "good"))[-1] // .[-1])] |
    .[0].asked as $asked | map(select(.says == "bad")) as $bad |
    (map(select(.says == "decided")) | if length > 0 then [max_by(.n)] else null end) // map(select(.says == "good")) |
    . as $good |
    if length == 1 then .[0] as $one |
        {type: "pair", id: $one.id} + $asked + {answer: $one.answer, why: $one.why, score: $one.score},
        ($bad[] | select(.answer as $a | $one.answer | startswith($a) | not) |
            {type: "preference", id: $one.id} + $asked + {chosen: $one.answer, rejected: .answer, why: "\($one.why); \(.why)"})
    else .[] | . as $one |
        {type: "quarantine", id} + $asked + {answer, why: "contradiction", score, others: [$good[].answer | select(. != $one.answer)]}
    end;

def paired: [foreach .[] as $x (0; . + 1; {n: .} + $x)] | group_by(.key) | sort_by(.[0].n)[] | sorted;
