# SPDX-License-Identifier: Apache-2.0
# score.jq - what can be checked of an answer, and what follows from it.
include "jobs";

# Does a value follow a JSON Schema? null: it has a keyword that is not known here, or it is too deep.
def follows($s; $root; $depth):
    def all_of(f): reduce f as $r (true; if . == false or $r == false then false elif . == null or $r == null then null else true end);
    . as $v | type as $type |
    if $depth > 40 then null elif ($s | type) == "boolean" then $s elif ($s | type) != "object" then null
    elif ($s | keys - ["type", "enum", "const", "properties", "required", "additionalProperties", "items", "minItems",
        "maxItems", "minLength", "maxLength", "minimum", "maximum", "anyOf", "allOf", "$ref", "$defs", "definitions", "title",
        "description", "default", "examples", "$schema", "$id"] | length) > 0 then null
    else all_of(
        if $s["$ref"] then ($s["$ref"] | split("/")) as $p |
            if $p[0] == "#" then $v | follows(try ($root | getpath($p[1:])) catch 0; $root; $depth + 1) else null end else true end,
        if $s.type then any($s.type | if type == "array" then .[] else . end;
            . == $type or (. == "integer" and $type == "number" and $v == ($v | floor))) else true end,
        if $s.enum then any($s.enum[]; . == $v) else true end,
        if $s | has("const") then $s.const == $v else true end,
        if $type == "object" then
            ($s.required // [] | all(.[]; . as $k | $v | has($k))),
            ($v | to_entries[] | .key as $k | .value | follows(if $s.properties | has($k)? // false then $s.properties[$k]
                elif $s | has("additionalProperties") then $s.additionalProperties else true end; $root; $depth + 1))
        elif $type == "array" then
            ($v | length >= ($s.minItems // 0) and length <= ($s.maxItems // infinite)),
            ($v[] | follows(if $s | has("items") then $s.items else true end; $root; $depth + 1))
        elif $type == "string" then ($v | length >= ($s.minLength // 0) and length <= ($s.maxLength // infinite))
        elif $type == "number" then ($v >= ($s.minimum // -infinite) and $v <= ($s.maximum // infinite))
        else true end,
        if $s.allOf then $s.allOf[] as $one | $v | follows($one; $root; $depth + 1) else true end,
        if $s.anyOf then [$s.anyOf[] as $one | $v | follows($one; $root; $depth + 1)] |
            if any(. == true) then true elif any(. == null) then null else false end else true end)
    end;

# The sum that a question asks for and nothing else, as bc takes it; null where it asks for something else.
def sum_of:
    if length > 200 or (test("[0-9)] ?[-+*/x×÷·−–%]") | not) then null else flat |
        gsub("×|·"; "*") | gsub("÷"; "/") | gsub("−|–"; "-") | gsub("(?<a>[0-9]) ?x ?(?<b>[0-9])"; "\(.a)*\(.b)") |
        sub("^(please )?(what is|what's|how much is|compute|calculate|evaluate|work out|solve)?:? *"; ""; "i") |
        sub("[ =?.]*$"; "") |
        if test("^[0-9]{4}-[0-9]{2}-[0-9]{2}$") then null
        elif test("^[0-9]+(\\.[0-9]+)? ?% of [0-9]+(\\.[0-9]+)?$") then sub(" ?% of "; "*") + "/100"
        elif test("^[0-9.+*/() -]+$") and test("[0-9)] *[-+*/] *[-(0-9]") and (test("[0-9] +[0-9]") | not) then .
        else null end end;

def numbers: gsub("(?<a>[0-9]),(?<b>[0-9]{3})(?![0-9])"; "\(.a)\(.b)") | [scan("(?<![0-9.])-?[0-9]+(?:\\.[0-9]+)?")];
def plain: sub("^(?<s>-?)\\."; "\(.s)0.") | if test("\\.") then sub("0+$"; "") | rtrimstr(".") else . end | if . == "-0" then "0" else . end;
# A number as an answer has it, against what bc says: equal, or rounded to two decimals or more.
def is_sum($sum): plain as $mine | ($sum | plain) as $right | $mine == $right or
    ((split(".")[1] // "" | length) as $d | $d >= 2 and ((tonumber - ($sum | tonumber)) | fabs) <= 0.500001 * pow(10; -$d));
def sum_says($question; $sum):
    if length > 2000 then null else numbers as $mine | ($question | flat | numbers) as $given |
        if ($mine | length) == 0 then null
        elif ($mine[-1] | is_sum($sum)) and all($mine[]; is_sum($sum) or (ltrimstr("-") | IN($given[] | ltrimstr("-")))) then "right"
        elif length <= 60 and (any($mine[]; is_sum($sum)) | not) then "wrong" else null end end;

# The blocks of code of a text, between lines that begin with three backquotes: {language, code}.
def blocks:
    reduce split("\n")[] as $line ({in: null, all: []};
        if $line | startswith("```") then
            if .in then .all += [.in | .code |= join("\n")] | .in = null
            else .in = {language: ($line[3:] | flat | ascii_downcase), code: []} end
        elif .in then .in.code += [$line] else . end) | .all[] |
    .language |= ({py: "python", python3: "python", python: "python", sh: "bash", bash: "bash", shell: "bash"}[.]) |
    select(.language);
# Tests are lines of a question that assert or test something, in a block that defines nothing.
def code_of($question):
    if (contains("```") and ($question | contains("```"))) | not then null
    else . as $text | [$question | blocks | select(.code | split("\n") |
            any(.[]; startswith("assert ") or startswith("assert(") or startswith("test ") or startswith("[ ")) and
            (any(.[]; startswith("def ") or startswith("class ")) | not))][0] as $tests |
        if $tests == null then null
        else [$text | blocks | select(.language == $tests.language) | .code] |
            if length == 0 then null else {language: $tests.language, code: join("\n"), tests: $tests.code} end
        end
    end;

# Three words or more, one after the other in a note; which one. What a person said before is no note.
def quoted_from($notes; $program; $web):
    def marks: map(until((.[-1:] | IN(".", ",", ";", ":", "!", "?", "\"", "\u0027", ")", "`")) | not; .[:-1]) |
        until((.[:1] | IN("\"", "\u0027", "(", "`")) | not; .[1:])) | join(" ");
    if ($notes | type) != "array" or $notes == [] or length > 8000 then null else (ascii_downcase | words) as $w |
        if ($w | length) < 3 then null else
        (" " + ($w | marks) + " ") as $mine |
        [$notes[]? | objects | select((.text | type) == "string" and (.source | type) == "string" and .file != "corrections.jsonl" and
            (" " + (.text[:20000] | ascii_downcase | words | marks) + " " | contains($mine)))] |
        map(. + {own: ((has("id") or $program == "chimere-run") and (.source | IN($web[]) | not) and
            ([.source, .text] | any(startswith("http://") or startswith("https://")) | not))}) |
        sort_by(.own) | last // null | if . then {own, source, at: (.id // .line)} else null end end end;

# Of a line of the log: its answer, and what it should have been if somebody said so.
def cases($ratings; $web):
    select(.type == "answer" and (.id | type) == "string" and (.text | type) == "string" and .cut != true) |
    select(is_chat or (.prompt | type) == "string") | . as $line | question as $question |
    ($ratings["\(.id) \(.index // 0)"]) as $rating |
    ($rating.answer? | strings | if same == [] then empty else . end) // null |
    . as $better | ($better != null and ($better | same) != ($line.text | same)) as $corrected |
    {id: $line.id, index: ($line.index // 0), asked: ($line | asked), question: $question, schema: $line.schema, tools: $line.tools,
        trust: (if $rating then $rating.key // $rating.client // "owner" else null end)} as $case |
    ($question | if $line | is_chat then sum_of else null end) as $sum |
    def case($text): $case + {answer: $text, sum: $sum, code: ($text | try code_of($question) catch null),
        schema_says: (if $line.schema | type == "object" then $text |
            (try (fromjson | {v: .}) catch {}) | if has("v") then .v | (try follows($line.schema; $line.schema; 0) catch null) else false end
            else null end)};
    (case($line.text) + {rated: (if $corrected then "corrected away" elif $rating then "rated " + $rating.rating else null end),
        whole: ($line.finish_reason | IN("length", "context", "interrupted", "cancelled", "canceled") | not),
        quoted: ($line.text | try quoted_from($line.notes; $line.program; $web) catch null)}),
    if $corrected then case($better) + {rated: "corrected", whole: true, quoted: null} else empty end;

# The score of a case, with what the checks found.
def judged($found):
    . as $c | [
        if .sum and $found.sum then .question as $q | (.answer | try sum_says($q; $found.sum) catch null) as $says |
            select($says != null) | {check: "arithmetic", says: $says, detail: "\(.sum) = \($found.sum)"} else empty end,
        if $found.tests and $found.tests != "none" then {check: "tests", says: $found.tests, detail: .code.language} else empty end,
        if $found.check then {check: "command", says: $found.check, detail: $found.check_says} else empty end,
        if .schema_says != null then {check: "schema", says: (if .schema_says then "right" else "wrong" end)} else empty end,
        if .quoted then {check: (if .quoted.own then "quoted" else "quoted from the web" end), says: "right",
            detail: "\(.quoted.source) \(.quoted.at)"} else empty end,
        if .whole then empty else {check: "length", says: "wrong", detail: "cut off"} end] as $evidence |
    def first_of($says; $names): [$names[] as $n | $evidence[] | select(.check == $n and .says == $says) | .check][0];
    first_of("wrong"; ["tests", "arithmetic", "command", "schema", "length"]) as $wrong |
    first_of("right"; ["tests", "arithmetic", "command", "quoted"]) as $right |
    {tests: "tests pass", arithmetic: "recomputed", command: "passed the check", quoted: "quoted from a note"} as $good |
    {tests: "tests fail", arithmetic: "computed wrong", command: "failed the check", schema: "breaks the schema", length: "cut off"} as $bad |
    (if .rated | IN("corrected", "rated good") then if $wrong then [2, "signals disagree"] else [5, .rated] end
    elif .rated then if $right then [2, "signals disagree"] else [1, .rated] end
    elif $wrong and $right then if $wrong == "length" then [1, "cut off"] else [2, "signals disagree"] end
    elif $wrong then [1, $bad[$wrong]]
    elif $right then [(if $right == "tests" then 5 else 4 end), $good[$right]]
    elif first_of("right"; ["quoted from the web"]) then [3, "quoted from the web"]
    else [2, "nothing could be checked"] end) as $s |
    {type: "score", id, index} + .asked + {answer, text: (.question + (if .asked.messages then "\n" else "" end) + .answer + "\n"),
        domain: ({tests: "code", arithmetic: "math", quoted: "notes"}[$right // ""] // "chat"),
        score: $s[0], why: $s[1], evidence: $evidence, trust};
