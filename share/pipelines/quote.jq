# SPDX-License-Identifier: Apache-2.0
# quote.jq - which claims of an answer stand in notes, by the words that follow each other in both.

# A number with its sign and decimals is one word.
def words: ascii_downcase | [scan("(?<!\\S)-\\p{N}+(?:[.,]\\p{N}+)*|[\\p{L}\\p{N}_]*\\p{N}(?:[.,]\\p{N}+)+|[\\p{L}\\p{N}_]+")];

# A sentence or a line each, of a line's first 4000 characters.
def claims: [split("\n")[] | .[:4000] | splits("(?<=[.!?])\\s+") | select(test("[\\p{L}\\p{N}_]"))];

# The longest run of a claim's words that is one of a text's, too: its length and where in the claim it begins.
def longest_run($words): . as $w | length as $n | " " + ($words | join(" ")) + " " | . as $t |
    reduce range($n) as $i ({n: 0, at: 0}; . as $best |
        if $n - $i <= $best.n then . else
            ([range($n; $i + $best.n; -1) | select(. as $j | $t | contains(" " + ($w[$i:$j] | join(" ")) + " "))][0] // 0) as $j |
            if $j > 0 then {n: ($j - $i), at: $i} else . end end);

# A note with its words, the lines where they stand, and where each word stands.
def indexed: [.text | split("\n") | to_entries[] | .key as $line | (.value | words)[] | [$line, .]] as $t |
    . + {words: [$t[][1]], lines: [$t[][0]]} |
    .at = (.words | to_entries | group_by(.value) | map({key: .[0].value, value: map(.key)}) | from_entries);

# Where a claim's words stand in a text in their order, with at most two other words between two of them, of which none
# denies: the first such place, as {n, at}; n 0: nowhere.
def in_order($note): . as $w | $note.words as $t |
    def denies: IN("not", "no", "never", "nor", "without", "unless", "except", "hardly", "t");
    reduce $w[1:][] as $one ([$note.at[$w[0]][]? | [., .]]; . as $from |
        if $from == [] then $from else [$note.at[$one][]? | . as $p |
            ([$from[] | select($p - .[0] >= 1 and $p - .[0] <= 3 and (any($t[.[0] + 1:$p][]; denies) | not))] | last | select(.) | [$p, .[1]])] end) |
    if length == 0 then {n: 0, at: 0} else .[0] as [$last, $first] | {n: ($w | length), run: $t[$first:$last + 1]} end;

# Words that claim nothing by themselves.
def light: IN("a", "an", "the", "it", "its", "this", "that", "they", "their", "he", "she", "his", "her", "you", "your", "is", "are",
    "was", "were", "be", "so", "and", "of", "to", "yes");

# A claim is quoted where a note has its words in this order, or four fifths of them, and at least three, in one run, and the
# others are light; if it is longer than 100 words it is not. {"text", "quoted", "share", "n", "source", "line", "quote"};
# n: the number of the note, from 1.
def quote($notes): . as $claim | (.[:4000] | words) as $all | $all[:100] as $w |
    ([range($notes | length) | . as $i | ($w | in_order($notes[$i])) as $whole |
        (if $whole.n > 0 then $whole else ($w | longest_run($notes[$i].words) | .run = $w[.at:.at + .n]) end) + {note: $i}] |
        max_by([.n, -.note]) // {n: 0, run: []}) as $best |
    ($best.n / ($w | length)) as $share | (($claim | length) <= 4000 and $all == $w and
        any($w[]; (light or . == "no") | not) and ($share == 1 or ($share >= 0.8 and $best.n >= 3 and
        all(($w[:$best.at] + $w[$best.at + $best.n:])[]; light)))) as $yes |
    {text: $claim, quoted: $yes, share: $share} +
    if $yes then $notes[$best.note] as $note | {n: ($best.note + 1), source: $note.source,
        line: (($note.line // 1) + $note.lines[$note.words | index($best.run)]), quote: ($best.run | join(" "))} else {} end;

# What says that there is no answer.
def abstains: test("^\\s*(I (do not|don't|cannot|can't) |There is no answer|No answer)"; "i");

# The first 100 claims; what comes after them is not quoted.
def check($notes): . as $text | [$notes[] | indexed] as $n | [.[:16384] | limit(101; claims[])] as $all |
    (if abstains then [] else [$all[:100][] | quote($n)] +
        if ($all | length) > 100 or ($text | length) > 16384 or any($text | split("\n")[]; length > 4000) then [{text: "...", quoted: false, share: 0}] else [] end end) as $c |
    {answer: $text, claims: $c, quoted: (($c | length) > 0 and all($c[]; .quoted))};

# For people: each claim and where it stands.
def shown: if (.claims | length) == 0 then .answer + " [no answer]"
    else .claims[] | .text + if .quoted then " [\(.source):\(.line)]" else " [not quoted]" end end;
