# SPDX-License-Identifier: Apache-2.0
# jobs.jq - what the filters of this directory share. jq 1.6 and later.

# Of a line of text: its object. Empty lines are nothing.
def as_object:
    select(. != "") | (try (fromjson | if type == "object" then . else error("no object") end) catch {type: "unreadable"});

# The input with a number each, from 1.
def numbered: foreach (inputs | select(.type != "unreadable")) as $x (0; . + 1; {n: .} + $x);
# Ends the filter with a message and a status, 3 or 4.
def refuse($status; $message): "\($message)\n" | halt_error($status + 10);

# Words of a text; as one line, which is for short texts: joining takes long; and what makes it the same answer, whatever
# its case, spaces and last mark.
def words: [split("\n")[] | split("\t")[] | split("\r")[] | split(" ")[] | select(. != "")];
def flat: words | join(" ");
def bare: rtrimstr("?") | rtrimstr("!") | rtrimstr(".");
def same: ascii_downcase | words | if length > 0 then .[-1] |= bare else . end | map(select(. != ""));

# A number that looks like chance, and is always the same for a text.
def hash: reduce (tostring | explode[]) as $c (7; (. * 31 + $c) % 1000003);

# A text with at most n characters.
def cut_to(n): if length > n then .[:n] + "..." else . end;

def content: if type == "string" then . elif type == "array" then map(objects | .text | strings) | join("") else "" end;
def is_chat: (.messages | type) == "array" and (.messages | length) > 0 and
    all(.messages[]; type == "object" and (.role | type) == "string");
# What was asked: of an object with messages or a prompt.
def question: if is_chat then .messages[-1].content | content else .prompt | strings end;
def asked: if is_chat then {messages} else {prompt: (.prompt | strings)} end;
# Equal for what is the same question: all of the conversation.
def question_key: if is_chat then [.messages[] | [.role, (.content | content | same), .tool_calls]] | tojson
    else .prompt | strings | same end;
def with_question($text): if is_chat then .messages[-1].content = $text else .prompt = $text end;

# A text that a terminal shows as it is: no escapes, nothing that turns the direction of writing.
def shown: explode | map(if (. < 32 and . != 10 and . != 9) or (. >= 127 and . < 160) or (. >= 8234 and . <= 8238) or
    (. >= 8294 and . <= 8297) or . == 8206 or . == 8207 then 65533 else . end) | implode;

# How an answer begins: its first three words.
def opening: ascii_downcase | words | .[:3] | map(rtrimstr(",") | bare) | join(" ");

# The groups of shapes.txt: arrays of {form, pre, post, words}.
def shapes: split("\n") | map(select(startswith("#") | not)) | join("\n") | split("\n\n") |
    map(split("\n") | map(select(. != "") | . as $form | (if contains("%%") then "%%" else "%" end) as $slot | split($slot) |
        {form: $form, pre: .[0], post: .[1], words: ($slot == "%%")}));
# What stands in the slot of a shape, or nothing.
def slot($shape): flat | bare as $q | ($shape.post | bare) as $post | ($q | ascii_downcase) as $low |
    if ($low | startswith($shape.pre | ascii_downcase)) and ($low | endswith($post | ascii_downcase)) then
        ($shape.pre | length) as $a | ($q | length - ($post | length)) as $b |
        if $b > $a then $q[$a:$b] | select(. == flat and ($shape.words or (contains(" ") | not))) else empty end
    else empty end;
def filled($slot): "\(.pre)\($slot)\(.post)";
# Of a short question: what stands in a frame, if it is in one, and the group with the longest shape that fits.
def fitting($shapes):
    if length > 400 or contains("\n") then {} else . as $q |
        ([$shapes[0][].pre as $pre | select($q | ascii_downcase | startswith($pre | ascii_downcase)) | $q[($pre | length):]][0]) as $inner |
        ($inner // $q) as $q | {$q, $inner} +
        ([$shapes[1:][] as $group | $group[] as $shape | $q | slot($shape) | {slot: ., group: $group, fit: ($shape.form | length)}] | max_by(.fit) // {})
    end;
# Its other wordings: what stands in the frame, and the forms of the group.
def wordings($shapes): fitting($shapes) | . as $fit |
    [.inner // empty, (.group[]? | filled($fit.slot) | select(same != ($fit.q | same)))];
# A question in a frame: says the same, whatever it is.
def framed($shapes): . as $q | [$shapes[0][] | filled($q)];
