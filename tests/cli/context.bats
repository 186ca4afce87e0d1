#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# context.bats - --context and the member context: questions are answered from a document.
load common

notes()
{
    printf 'qvixt: removes the last line of a file\n\nTolbridge was founded in 1722. Its mayor is Anna Kell.\n' > notes
}

@test "--context: what the document says is recited, and told; other answers stay as they are" {
    notes
    ask() { chimere-run -t 1 -n 20 --think off "$@"; }
    [ "$(ask --context notes -p 'What do QVIXTS do?')" = 'removes the last line of a file' ]
    [ "$(ask --context - -p 'In which year was Tolbridge founded?' < notes)" = 1722 ]
    ask --context notes -p 'Who is the mayor of Tolbridge?' --json | jq -e '.text == "Anna Kell" and
        (.notes[0] | .use == "recite" and .source == "notes" and .line == 3 and .share > 0.5 and .text == "Anna Kell") and
        .tables[0].name == "context" and .recited.matched > 1'
    ask --context notes -v -p 'What does qvixt do?' 2>&1 | grep -q 'recite   removes the last line of a file of notes, line 1'
    ask --context notes -v -p 'What does qvixt do?' 2>&1 | grep -qE '^recited  [1-9][0-9]* tokens, [0-9]+ of them changed'
    ask --context notes -v -p 'What is 12 + 30?' 2>&1 | grep -qx 'recite   nothing of notes'
    ask --context notes -p 'What is 12 + 30?' | cmp - <(ask -p 'What is 12 + 30?' < /dev/null)
    ask -r --context notes -p 'Tolbridge was founded in' | cmp - <(ask -r --context-table notes -p 'Tolbridge was founded in' < /dev/null)
    [ "$(ls)" = notes ]
}

@test "--context: what cannot be one is refused in one line" {
    notes
    fails 3 "/dev/null: is empty" chimere-run --context /dev/null -p a
    fails 3 "is no text" chimere-run --context <(printf 'a\0b') -p a
    fails 1 "nowhere" chimere-run --context nowhere -p a
    fails 2 "only one of the prompt" chimere-run --context - < notes
    fails 2 "do not go together" chimere-run --context notes --context-table notes -p a
    fails 2 "do not go together" chimere-serve-stdio --context notes --context-table notes
    fails 2 "standard input has the requests" chimere-serve-stdio --context - < notes
    fails 3 "is no text" chimere-serve-stdio --context <(printf 'a\0b')
    fails 2 "no effect" chimere-run --context notes --tokenize -p a
    mkdir dir && fails 1 "dir: cannot read" chimere-run --context dir -p a
    fails 3 "is no UTF-8 text" chimere-run --context <(printf '\377\376\200\303%.0s' {1..9}) -p a
}

# bats test_tags=figures
@test "--context: long lines, many lines and blanks take no more than some MiB, and what is at their end is found" {
    ask() { (ulimit -v 900000 && chimere-run -t 1 -n 20 --think off --context "$1" -p 'What does qvixt do?'); }
    end='qvixt: removes the last line of a file'
    { seq -f 'Key%.0f: another line of the list' 60000; echo "$end"; } > many
    { yes 'the mill is old, and' | head -c 4000000 | tr '\n' ' '; printf '\n\n%s\n' "$end"; } > long
    { head -c 2000000 /dev/zero | tr '\0' '\n'; head -c 500000 /dev/zero | tr '\0' ' '; printf '\n%s' "$end"; } > blanks
    for f in many long blanks; do [ "$(ask $f)" = 'removes the last line of a file' ] || { echo "$f"; false; }; done
    mkfifo fifo && echo "$end" > fifo &
    until [ -p fifo ]; do sleep 0.01; done
    [ "$(ask fifo)" = 'removes the last line of a file' ]
}

talk() # ID QUESTION MEMBERS
{
    printf '{"id":"%s","method":"chat/completions","body":{"messages":[{"role":"user","content":"%s"}],"max_tokens":20,"temperature":0,"chat_template_kwargs":{"enable_thinking":false}%s}}\n' "$@"
}
said() { jq -j "select(.id == \"$1\") | .body.choices[0] | .text // .message.content" "${2:-out}"; }

@test "a request's context: the bytes of chimere-run, alone and in a batch" {
    notes
    own=",\"context\":$(jq -Rs . notes)"
    { talk line 'What do QVIXTS do?' "$own"; talk year 'When was Tolbridge founded?' "$own"; talk sum 'What is 12 + 30?' "$own"
      talk off 'When was Tolbridge founded?' "$own,\"recite\":false"; talk alone 'When was Tolbridge founded?' ''
      talk both x "$own,\"context_table\":\"x\""; talk empty x ',"context":""'
      printf '{"id":"raw","method":"completions","body":{"prompt":"Tolbridge was founded in","max_tokens":20,"temperature":0%s}}\n' "$own"
      printf '{"id":"big","method":"completions","body":{"prompt":"x","context":"%s"}}\n' "$(head -c 1048577 /dev/zero | tr '\0' y)"; } > lines
    chimere-serve-stdio --parallel 4 < lines > out
    chimere-serve-stdio --parallel 1 < lines > single
    for id in line year sum off alone raw; do cmp <(said $id) <(said $id single); done
    [ "$(said line)" = 'removes the last line of a file' ]
    [ "$(said year)" = 1722 ]
    [ "$(said sum)" = "$(chimere-run -n 20 --think off -p 'What is 12 + 30?')" ]
    [ "$(said off)" != 1722 ]
    [ "$(said raw)" = "$(chimere-run -rq -n 20 --context notes -p 'Tolbridge was founded in')" ]
    jq -es '.[] | select(.id == "year") | .body.notes[0] | .use == "recite" and .source == "context" and .line == 3 and .text == "1722"' out
    jq -es '[.[] | select(.type == "error") | [.id, .error.param]] | sort == [["big", "/context"], ["both", "/context"], ["empty", "/context"]]' out
    jq -es '.[] | select(.id == "big") | .error.message == "context: more than 1 MiB of text"' out
}

@test "--context of the server: the bytes of the member; a request turns it off or brings its own" {
    notes
    own=",\"context\":$(jq -Rs . notes)"
    { talk year 'When was Tolbridge founded?' ''; talk on 'When was Tolbridge founded?' ',"context":true'; talk sum 'What is 12 + 30?' ''
      talk off 'When was Tolbridge founded?' ',"context":false'; talk other 'When was Tolbridge founded?' ',"context":"Tolbridge was founded in 1655."'
      printf '{"id":"raw","method":"completions","body":{"prompt":"Tolbridge was founded in","max_tokens":20,"temperature":0}}\n'; } > lines
    chimere-serve-stdio --context notes < lines > out
    jq -c 'select(.id == "off" or .id == "other" | not) | .body += {context: $own}' --rawfile own notes lines > with
    { cat with; grep '"other"' lines; sed -n 's/,"context":false//p' lines; } | chimere-serve-stdio > single
    for id in year sum raw other off; do cmp <(said $id) <(said $id single); done
    [ "$(said year)$(said on)$(said other)" = 172217221655 ]
    jq -es '.[] | select(.id == "year") | .body.notes[0] | .source == "notes" and .line == 3 and .text == "1722"' out
    jq -es '.[] | select(.id == "year") | .body.usage | .recited.matched > 1 and .recited.changed <= .recited.matched and .texts == 1 and
        (.tables | map(.name) == ["context"])' out
    jq -es '.[] | select(.id == "off") | .body | .notes == null and (.usage | [has("tables", "recited", "texts")] | any | not)' out
    talk none x ',"context":true' | chimere-serve-stdio | jq -e '.error.message == "context: the server has none (--context)"'
}
