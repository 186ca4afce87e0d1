# SPDX-License-Identifier: Apache-2.0
# gate.jq - is a generation better, and no worse, than the one before?
include "jobs";
include "paraphrase";

# By a hash of the item's name: an eighth of a set for the trainer to test on, an eighth to rehearse, and what decides.
def part: (.id | hash) % 8 | if . == 0 then "search" elif . == 4 then "keep" else "decide" end;
# An item as the trainer asks it, without thinking; an answer that is no text is the model's own.
def for_trainer: del(.enable_thinking) | if (.answer | type) != "string" then del(.answer, .check) else . end;

# A file of something else, such as questions with their classes, is no task set.
# $whole: all of it decides.
def suite($n; $name; $whole): [inputs] | select(any(.[]; .messages?)) |
    (.[] | (if $whole then "decide" else part end) as $part | "\($part).\($n)\t\(if $part == "decide" then . else for_trainer end | tojson)"),
    "name.\($n)\t\({set: "suite.decide.\($n)", $name} | tojson)";
# Of a file that is only for the trainer, a third to test on, the rest to rehearse.
def more($n): inputs | "\(if (.id | hash) % 3 == 0 then "search" else "keep" end).\($n)\t\(for_trainer | tojson)";
# Answers to a suite, as a generation keeps them: with the names of its sets.
def results($names): (reduce $names[] as $n ({}; .[$n.set] = $n.name)) as $names |
    inputs | select(.type == "answer") | {set: ($names[.set] // .set), id, item, right};

# Of lines of jobs/paraphrase: what to learn, and task sets to test it on. Questions without messages cannot be asked so.
def task($id): {$id, messages, answer, check: "exact", enable_thinking: false};
def items: [inputs | select(.type == "pair" or .type == "test")] |
    (map(select(.type == "pair" and (.known | not)))[-4000:][] | "learn\t\(tojson)"),
    (map(select(.type == "test" and (.known | not)))[-400:][] | "test\t\(tojson)"),
    (map(select(.type == "test" and .known))[-200:][] | "before\t\(del(.known) | tojson)"),
    (to_entries | map(.value.id = "\(.key)" | .value) |
        (.[] | select(is_chat and .type == "test" and (.known | not)) | "new\t\(task("new-\(.id)") | tojson)"),
        (map(select(is_chat and (.wording == "as asked" or (.type == "test" and .known))))[-400:][] |
            "replay\t\(task("\(if .known then "replay" else "rated" end)-\(.id)") | tojson)"),
        # What a night was tested on is learnt with the rest in the next ones.
        (.[] | select(.known) | "old\t\(del(.known) | tojson)"));

# Of files of text, line by line: a text for each paragraph, or for so much of it as is quickly put together.
def paragraphs:
    foreach ((inputs | {file: input_filename, line: .}), {file: null, line: ""}) as $l ({text: ""};
        .out = null | if $l.file != .file or (.text | utf8bytelength > 65536) or ($l.line | test("^\\s*$")) then (if .text != "" then .out = {text, source: .file} else . end) | .text = "" else . end |
        .file = $l.file | if $l.line | test("^\\s*$") then . else .text += (if .text == "" then "" else "\n" end) + ($l.line | gsub("\u0000"; "")) end;
        .out | values);

# Of pairs: what a person said something is, as a text "NAME: ANSWER", unless a note of that name is there, or something
# else was said, too. Not where or when it is, and how it is done: a text has one answer.
def corrections($shapes; $notes): [$notes[].text] as $notes |
    [inputs | select(.why == "corrected" or .why == "reviewed") | select(is_chat and ([.messages[].role] - ["system"]) == ["user"]) |
        {name: (question | fitting($shapes) | select(.group) | select(.group[0].form | test("^(Where|When|How) ") | not) | .slot), answer} |
        select(.name | key_words != [] and (contains(": ") or contains(" - ") | not)) |
        select(.answer | (type == "string") and length <= 2000 and (test("[\\x00-\\x08\\x0b-\\x1f\\x7f]|\n\\s*\n") | not)) |
        .name as $name | select(any($notes[]; startswith("\($name): ") or startswith("\($name) - ")) | not)] |
    reduce .[] as $c ({}; .[$c.name] += [$c.answer]) | to_entries[] | select(.value | unique_by(same) | length == 1) |
    {text: "\(.key): \(.value[-1])", asks: "what"};

# A question and what a text has to contain to answer it, in lower case.
def asked_of_notes:
    if .type == "score" then select(.why == "quoted from a note") | {question, answer}
    else {question, answer} end | select((.question | type) == "string" and (.answer | type) == "string" and .answer != "") |
    .answer |= (ascii_downcase | bare);
def found($questions): (reduce .[] as $h ({}; .["\($h.query)"] += [$h.text | ascii_downcase])) as $texts |
    range($questions | length) as $i | $questions[$i].answer as $a | select(any($texts["\($i)"][]?; contains($a)));

def key: [.set, .id, .item] | tojson;
def by_key: reduce .[] as $r ({}; .[$r | key] = $r.right);
# Of results by name: the names of those that do not have all of this suite.
def missing($by_name): [inputs | key] as $keys | $by_name | to_entries[] | (.value | by_key) as $b | select(any($keys[]; $b[.] == null)) | .key;

# The upper 95 % bound of the share that is lost: the score interval for paired shares (Tango, Statistics in Medicine 17,
# 1998). n items, of which some are lost and some are won.
def upper($lost; $won; $n):
    if $n == 0 then 1 else
        def z($d): (2 * $n) as $a | (-$lost - $won + (2 * $n - $lost + $won) * $d) as $b | (-$won * $d * (1 - $d)) as $c |
            ([($b * $b - 4 * $a * $c), 0] | max | sqrt | (. - $b) / (2 * $a)) as $q |
            ($n * (2 * $q + $d * (1 - $d))) as $v | if $v <= 0 then -infinite else ($lost - $won - $n * $d) / ($v | sqrt) end;
        reduce range(50) as $i ([(($lost - $won) / $n), 1]; ((.[0] + .[1]) / 2) as $m | if z($m) > -1.6448536 then [$m, .[1]] else [.[0], $m] end) | .[1]
    end;

# The probability of so many wins, or more, if wins and losses were as likely.
def chance($lost; $won): ($lost + $won) as $n |
    (reduce range($n) as $i ([1]; . as $row | [range(length + 1) as $k | ((if $k > 0 then $row[$k - 1] else 0 end) + ($row[$k] // 0)) / 2])) |
    .[$won:] | add;

# Items that both were asked and that at least one of them knows; the others say nothing about harm.
def pairs_of($before; $after): ($before | by_key) as $b | [$after[] | {set, id, was: $b[key], is: .right} | select(.was != null)];
def compared: {n: (map(select(.was or .is)) | length), asked: length, before: (map(select(.was)) | length), after: (map(select(.is)) | length),
    lost: (map(select(.was and (.is | not))) | length), won: (map(select(.is and (.was | not))) | length)};
# So many items are needed for no loss at all to show that less than the margin is lost: 32 for 8 %, 65 for 4 %.
def least($margin): 2.7055435 * (1 - $margin) / $margin;
def judged($name; $margin): compared | . + {set: $name, margin: $margin, upper: upper(.lost; .won; .n)} |
    .ok = if .n < least($margin) then .lost <= .won + 1 else .upper < $margin end;

# A set says enough alone with so many items: of changes that lose 3.5 % and win 1 %, a margin of 8 % lets 93 of 100 pass with
# 200 items, 67 with 100 and 30 with 50 (simulated).
def enough: 200;
# Sets in groups of enough items: each with so many is a group of its own, the others go together in the order of their sizes.
def grouped: sort_by(compared.n) | map(select(compared.n >= enough) | [.]) + (map(select(compared.n < enough)) |
    reduce .[] as $set ([]; if length > 0 and (.[-1] | add | compared.n) < enough then .[-1] += [$set] else . + [[$set]] end) |
    if length > 1 and (.[-1] | add | compared.n) < enough then .[:-2] + [.[-2] + .[-1]] else . end);

# Groups of sets, then all. A set of a group that loses more than the margin for certain, by the lower bound of its loss, is
# named alone, too. Where even all have too few items, one more may be lost than won.
# What is learnt now makes up for no loss.
def harm($before; $after; $margin; $margin_all):
    pairs_of($before; $after) | map(select(.set != "items.new" and (.was or .set != "items.replay" or ("\(.id)" | startswith("replay-")))) |
        if .set == "items.replay" then .set = "rated questions" else . end) | . as $all | group_by(.set) | grouped |
    (map((map(.[0].set) | sort | join(", ")) as $names | add | judged($names; $margin)) | sort_by(.set)) +
    (map(select(length > 1)[] | judged(.[0].set; $margin) | select(-upper(.won; .lost; .n) > $margin) | .ok = false)) +
    (if ($all | length) == 0 then [] else [$all | judged("all"; $margin_all)] end);

def percent: . * 1000 | round / 10 | tostring + " %";
def new_of($before; $after): pairs_of($before; $after) | map(select(.set == "items.new")) | compared;
# $was and $is answer the new items with what was made alone, $before and $after all items with all files of a generation.
def decided($was; $is; $before; $after; $floor; $margin; $margin_all; $job):
    (new_of($was; $is) | . + {p: chance(.lost; .won)}) as $new | new_of($before; $after) as $together |
    harm($before; $after; $margin; $margin_all) as $sets |
    harm($floor; $after; $margin; $margin_all) as $floor |
    {type: "gate", job: $job, new: ($new + {together: ($together | {before, after, lost, won}),
        ok: ($job != "adapter" or ($new.p < 0.05 and $together.lost <= $together.won))}), sets: $sets, floor: $floor} |
    .refused = [
        (select(.new.ok | not) | "of new items \($new.won) were won and \($new.lost) lost (p \($new.p * 1000 | round / 1000)), with all files \($together.won) and \($together.lost)"),
        ($sets[] | select(.ok | not) | "\(.set): \(.lost) lost and \(.won) won of \(.n), at most \(.upper | percent) may be lost, \(.margin | percent) are allowed"),
        ($floor[] | select(.ok | not) | "since the first generation \(.set): \(.lost) lost and \(.won) won of \(.n), at most \(.upper | percent)")];

def row: "| \(.set) | \(.n) of \(.asked) | \(.before) | \(.after) | \(.lost) | \(.won) | \(.upper | percent) | \(.margin | percent) | \(if .ok then "yes" else "no" end) |";
def table: "| set | counted | before | after | lost | won | at most lost | allowed | passed |", "|---|---|---|---|---|---|---|---|---|", (.[] | row);
def report($night; $how; $words; $counts; $gate; $text; $speed; $times):
    "# \($night)", "", "\($how): \($words | shown)", "",
    (if $counts.scored then "Scored: \([$counts.scored | to_entries[] | "\(.value) \(.key)"] | join(", ")). Pairs: \($counts.pairs), of which new: \($counts.new); with a test: \($counts.tests); in quarantine: \($counts.held).", "" else empty end),
    (if $gate then "New items: \($gate.new.before) of \($gate.new.asked) before, \($gate.new.after) after; won \($gate.new.won), lost \($gate.new.lost), p \($gate.new.p * 10000 | round / 10000). With all files of the generation \($gate.new.together.before) before, \($gate.new.together.after) after.", "",
        "Against the generation before:", "", ($gate.sets | table), "", "Against the first generation:", "", ($gate.floor | table), "" else empty end),
    (if $text then "Held-out text, nats a token: \($text.before * 1000 | round / 1000) before, \($text.after * 1000 | round / 1000) after.", "" else empty end),
    (if $speed then "Tokens a second of processor time: \($speed.before * 10 | round / 10) before, \($speed.after * 10 | round / 10) after.", "" else empty end),
    (if ($times | length) > 0 then "| step | seconds | processor time |", "|---|---|---|", ($times[] | "| \(.step) | \(.seconds) | \(.cpu_seconds * 10 | round / 10) s |"),
        "| all | \([$times[].seconds] | add) | \([$times[].cpu_seconds] | add * 10 | round / 10) s |" else empty end);
