#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# chimere-engram-build: tables from text, and what is no text or table.
load common

# fails_build STATUS TEXT ARGUMENT...: that status, nothing on stdout, one line with TEXT on stderr.
fails_build()
{
    local want=$1 text=$2
    shift 2
    try "$want" chimere-engram-build "$@" < /dev/null || return 1
    [ ! -s out ] && [ "$(wc -l < err)" -eq 1 ] && grep -qF -e "$text" err || { cat out err; return 1; }
}

text()
{
    printf 'The tool reads one file.\nThe tool reads one line.\n\n  A word   here.\n'
}

@test "engram: the manual has every option, and -h fits 80 columns" {
    chimere-engram-build --help-json | jq -r '.options[] | [.letter // "-", .name, .arg // "-"] | join(" ")' |
        sort > program
    sed -n -e 's/^\.It Fl \([A-Za-z]\) , Fl -\([a-z0-9-]*\) Ar \(.*\)$/\1 \2 \3/p' \
        -e 's/^\.It Fl \([A-Za-z]\) , Fl -\([a-z0-9-]*\)$/\1 \2 -/p' \
        -e 's/^\.It Fl -\([a-z0-9-]*\) Ar \(.*\)$/- \1 \2/p' \
        -e 's/^\.It Fl -\([a-z0-9-]*\)$/- \1 -/p' "$ROOT/man/chimere-engram-build.1" | sort > manual
    [ "$(wc -l < program)" -gt 15 ]
    diff program manual
    [ "$(chimere-engram-build -h | awk 'length > 80' | wc -l)" -eq 0 ]
}

@test "engram: files, standard input, zstd and JSON lines give the same table" {
    text > a.txt
    text | zstd -q > a.zst
    jq -Rsc '{text: .}' a.txt > a.jsonl
    chimere-engram-build build --day 2026-01-15 -o a a.txt
    chimere-engram-build build --day 2026-01-15 -o b < a.txt
    chimere-engram-build build --day 2026-01-15 -o c a.zst
    chimere-engram-build build --day 2026-01-15 -o d a.jsonl
    zstd -q a.jsonl
    chimere-engram-build build --day 2026-01-15 -o e --threads 3 a.jsonl.zst
    for t in b c d e; do cmp a $t; done
    chimere-engram-build check a b
}

@test "engram: a full disk is told with the name of the table" {
    seq -f 'Line %g of the text.' 300 > a.txt
    (
        ulimit -f 2 # blocks of 1 KiB
        fails_build 1 't: a temporary file beside it: cannot write: File too large' build -o t a.txt
    )
    [ ! -e t ]
}

@test "engram: what is in a table are the tokens of the text" {
    text > a.txt
    chimere-engram-build build --order 1 -o a a.txt
    chimere-run --raw --tokenize a.txt > ids
    # of each token and the next one in the text, how many there are
    jq -c '[range(1; length) as $i | [.[$i - 1], .[$i]]] | group_by(.) | map([.[0][0], .[0][1], length]) | sort' ids > want
    chimere-engram-build dump a | jq -sc 'map([.context[0], .next, .count]) | sort' > have
    cmp want have
    chimere-engram-build dump -m "$CHIMERE_MODEL" a | jq -se 'any(.context_text == "The" and .next_text == " tool")'
}

@test "engram: long text is cut where its tokens stay the same" {
    for i in $(seq 4000); do echo "Line $i of the text, with numbers like $((i * 7919)) in it."; done > a.txt
    [ "$(wc -c < a.txt)" -gt 200000 ]
    chimere-engram-build build -o a a.txt
    chimere-run --raw --tokenize a.txt | jq length > want
    chimere-engram-build stats --json a | jq .tokens | cmp want -
}

@test "engram: add keeps what was there; merge and prune make new files" {
    text > a.txt
    chimere-engram-build build --day 2026-01-15 -o a a.txt
    cp a before
    chimere-engram-build add --day 2026-02-14 -o a a.txt
    cmp <(tail -c +4097 before) <(tail -c +4097 a | head -c $(($(wc -c < before) - 4096)))
    [ "$(chimere-engram-build stats -j a | jq -r .day | tr '\n' ' ')" = "2026-01-15 2026-02-14 " ]
    chimere-engram-build merge -o m a
    [ "$(chimere-engram-build dump m | jq -s 'map(.count) | min')" = 1.5 ] # the first write counts half
    chimere-engram-build merge -o w before:3 before
    [ "$(chimere-engram-build dump w | jq -s 'map(.count) | min')" = 4 ]
    chimere-engram-build prune --size 20000 -o p m
    [ "$(wc -c < p)" -le 20000 ]
    [ "$(chimere-engram-build dump p | wc -l)" -gt 10 ]
    chimere-engram-build decay --day 2026-05-01 -o d a # 106 and 76 days later
    [ "$(chimere-engram-build dump d | jq -s 'map(.unused_days) | unique')" = "$(jq -n '[76]')" ]
    fails_build 2 "no row would be left: d is not written" decay --day 2026-06-01 -o d a
    [ "$(chimere-engram-build dump d | wc -l)" -gt 0 ]
    fails_build 2 "is before the last epoch of a, 2026-02-14" decay --day 2026-02-13 -o d a
    head -c "$(wc -c < before)" a > cut # at the border of an epoch
    fails_build 3 "is cut" check cut
    fails_build 3 "is cut" stats cut
    fails_build 2 "also a file that is read" merge -o a a
    fails_build 2 "not a number from 0 to" merge -o x a:9999999
    [ ! -e x ] && [ ! -e a.lock ]
}

@test "engram: mistakes of use" {
    fails_build 2 "no command"
    fails_build 2 "not one of" make
    fails_build 2 "build needs --out" build
    fails_build 2 "does not belong to" stats --lines x
    fails_build 2 "not a date" build --day 2026-13-01 -o a
    fails_build 2 "not a date" build --day 2026-02-29 -o a
    fails_build 2 "needs --size, or --min-count" prune -o a b
    fails_build 1 "cannot open" build -f -o a nothing.txt
    fails_build 2 "no text: a is not written" build -f -o a # nothing on standard input
    [ ! -e a ] && [ ! -e a.lock ]
    for command in check rollback dump "add --from x"; do
        fails_build 2 "name of a file is empty" $command ""
    done
    fails 2 "names no table" chimere-run --raw --engram @tools -p x
    ln -s nowhere/t link
    echo '{"text": "x", "score": 5}' > x
    for command in "build -f -o link x" "add --from x link" "rollback link"; do
        fails_build 1 "leads nowhere" $command
    done
    [ -L link ] && [ ! -e link.night ]
}

@test "engram: what is no table or text is refused, and nothing is lost" {
    text > a.txt
    chimere-engram-build build -o a a.txt
    cp a kept
    head -c 5000 a > cut
    fails_build 3 "cut" check cut
    fails_build 3 "not an engram table" stats a.txt
    fails_build 3 "another tokenizer" add -m "$TINY" -o a a.txt
    echo '{"text": 3}' > bad.jsonl
    fails_build 3 "line 1: has no text" add -o a bad.jsonl
    printf '{"text": "x"}\n{"text' > bad.jsonl
    fails_build 3 "line 2" add -o a bad.jsonl
    zstd -q a.txt && head -c 20 a.txt.zst > bad.zst
    fails_build 3 "zstd data is cut" add -o a bad.zst
    # what is no text, packed or not; a few bytes that are no UTF-8 are told
    fails_build 3 "is no text: byte 6 is a NUL" add -o a <(printf 'a text\0')
    fails_build 3 "a NUL" add -o a <(zstd -qc a)
    fails_build 3 "is no UTF-8 text: 5 of its first 9 bytes" add -o a <(printf 'caf\351\377\376 \355\240')
    fails_build 3 "is no text" index -f -o a.index a.txt a
    fails_build 3 "is no text" build -f -o b a.txt a
    cmp a kept
    [ -z "$(ls | grep -E 'lock|part|tmp')" ]
    { text; printf 'caf\351 \360\237\246\234 \342\202'; } > few.txt
    chimere-engram-build build -o few few.txt 2> err
    grep -q 'few.txt: 2 bytes are no UTF-8' err
    fails 3 "is no text" chimere-run --context-table a -p x
    fails 3 "is no text" chimere-run --context-table <(printf '\0') -p x
}

@test "engram: an interrupt and a second writer leave the table as it was" {
    text > a.txt
    chimere-engram-build build -o a a.txt
    cp a kept
    mkfifo pipe
    chimere-engram-build add -o a - < pipe 2> first &
    exec 9> pipe
    wait_for test -e a.lock
    fails_build 1 "another program is writing it" add -o a a.txt
    ln -s a link
    fails_build 1 "another program is writing it" add -o link a.txt
    rm link
    kill -TERM $!
    exec 9>&-
    local got=0
    wait $! || got=$?
    [ $got -eq 143 ]
    cmp a kept
    [ -z "$(ls | grep -E 'lock|part|tmp')" ]
}

@test "engram: an answer follows a table where the model knows nothing" {
    printf 'zorbl - a tool that counts green parrots\nqvixt - removes the last\n' > a.txt
    chimere-engram-build build --lines -o a a.txt
    for key in "zorbl - " "zorbl -"; do # with the space and without it
        chimere-run --raw -q -p "$key" -n 20 --engram a --stop $'\n' > out
        grep -q '^ *a tool that counts green parrots$' out
    done
    chimere-run --raw -q -p "zorbl - " -n 8 > plain
    chimere-run --raw -q -p "zorbl - " -n 8 --engram a:0 | cmp plain -
    try 3 chimere-run --raw -p x -m "$TINY" --engram a
    grep -q "another tokenizer" err
    try 2 chimere-run --raw -p x --engram a:2
    try 2 chimere-run --raw -p x --engram-thinking
    try 3 chimere-run --raw -p x --engram a.txt
}

@test "engram: reasoning is the model's own unless it is said" {
    ask() { chimere-run -q -p "What is 24 * 37?" --reasoning stdout -n 30 "$@"; }
    ask > plain
    [ "$(wc -l < plain)" -gt 10 ]
    { head -c 60 plain; echo "zebras, and more zebras."; } > a.txt # the beginning, and other words
    chimere-engram-build build -o a a.txt
    ask --engram a | cmp plain -
    ask --engram a --engram-thinking > thought
    no cmp -s plain thought
}

@test "engram: a table does not go on where the model ends its answer" {
    ask() { chimere-run -q --think off -n 60 -p "What is funzip used for on Linux?" "$@"; }
    ask > plain
    [ "$(wc -w < plain)" -gt 8 ]
    { cat plain; echo "and more words follow it here."; } > a.txt
    chimere-engram-build build -o a a.txt
    ask --engram a:1 | cmp - plain
}

@test "engram: a table guesses ahead, and the answer stays the same" {
    ask() { chimere-run -q -p "What is 24 * 37?" --reasoning stdout -n 30 "$@"; }
    ask > plain
    chimere-engram-build build -o a plain
    for how in "--engram a:0 --engram-drafts" "--engram a:0 --draft off --draft engram"; do
        ask $how | cmp - plain
    done
    ask --engram a --engram-thinking > mixed
    ask --engram a --engram-thinking --engram-drafts --draft auto --temp 0.5 --seed 1 > with
    ask --engram a --engram-thinking --temp 0.5 --seed 1 | cmp - with
    chimere-run -p "What is 24 * 37?" -n 30 --engram a:0 --engram-drafts --json | jq -e '.drafts.drafters[0].name == "engram"'
    fails 2 "--engram-drafts needs --engram, --context or --context-table" chimere-run --engram-drafts -p x
    fails 2 "no effect with --tokenize" chimere-run --tokenize --engram a --engram-drafts -p x
    fails 2 "tables of n-grams" chimere-run --draft engram -p x
}

@test "engram: score" {
    for i in 1 2 3 4 5 6 7 8 9; do text; echo "zorbl $i counts green parrots and blue parrots."; done > a.txt
    chimere-engram-build build -o a a.txt
    chimere-engram-build score -j --engram a a.txt > with
    jq -e '.type == "engram-score" and .ppl_engram < .ppl and .change_hi_percent < 0' with
    chimere-engram-build score -j --engram a:0 a.txt | jq -e '.ppl_engram == .ppl'
    # a table that misleads about a text costs hardly anything: of 8 words before it knows another one behind them
    seq -s ' ' 100 300 > b.txt
    awk '{ for (i = 9; i <= NF; i++) { for (k = 8; k > 0; k--) printf "%s ", $(i - k); print ($i * 7) % 1000 } }' b.txt > wrong.txt
    chimere-engram-build build --lines -o wrong wrong.txt
    chimere-engram-build score -j --engram wrong b.txt | jq -e '(.ppl_engram / .ppl | log) * .tokens < 2.78'
    fails_build 2 "score needs --engram" score a.txt
}

@test "engram: what tables did is told" {
    printf 'zorbl: a tool that counts green parrots\n' > a.txt
    printf 'other words, which nobody asks for\n' > b.txt
    chimere-engram-build build --lines -o a a.txt
    chimere-run --raw --temp 0 -n 9 -p 'zorbl: a' --engram a --context-table b.txt -v --json > out 2> err
    jq -e '.tables | map(.name) == ["a", "context"] and .[0].matched > 3 and .[0].changed > 1 and
           .[0].changed <= .[0].matched and .[0].weight > 0.9 and .[1].matched == 0 and .[1].weight == 0.875' out
    grep -q 'table    a: [0-9]* tokens matched, [0-9]* changed, believed [01]\.[0-9]* at the end' err
    chimere-run --raw --temp 0 -n 9 -p 'zorbl: a' --json | jq -e 'has("tables") | not'
    # The same prompt from a session, in other chunks and with drafts: the same weights, to the last digit.
    chimere-run --tokenize -p 'zorbl: a tool that' > a.json
    chimere-run --tokens a.json -n 4 --json --session s --engram a | jq -c --slurpfile a a.json '$a[0] + .token_ids + [366]' > ab.json
    chimere-run --tokens ab.json -n 6 --json --engram a > alone
    jq -e '.tables[0].matched > 0' alone
    chimere-run --tokens ab.json -n 6 --json --engram a --session s --chunk 3 --engram-drafts > kept
    jq -e '.usage.cached_tokens > 4' kept
    [ "$(jq -c '[.token_ids, .tables]' alone)" = "$(jq -c '[.token_ids, .tables]' kept)" ]
}

facts()
{
    printf 'zorbl: a tool that counts green parrots\nqvixt: removes the last line of a file\nplonkd: the daemon of bells\n'
}

@test "engram: a text longer than a prompt has room for" {
    printf 'rsync copies files. %.0s' {1..6000} > f.txt
    chimere-engram-build index -q -o f.index f.txt
    chimere-engram-build query --rerank -f -p 'what copies files' f.index | jq -se 'length == 1'
    chimere-run --examples f.index -p 'rsync copies files?' -n 1
}

@test "engram: a text that is too long for one becomes several" {
    { printf 'zorbl counts parrots. %.0s' {1..60000}; echo; echo; facts; } > f.txt
    chimere-engram-build index -o f.index f.txt 2> err
    grep -q '1 texts of more than 1048576 bytes became several' err
    chimere-engram-build query --bm25 -k 9 -p zorbl f.index > hits
    # the parts are the whole, and end where a word does
    jq -js 'map(select(.id < 2)) | sort_by(.id) | map(.text) | join("")' hits | cmp - <(head -n 1 f.txt | sed 's/ $//' | tr -d '\n')
    jq -se 'length == 3 and (map(select(.id == 0)) | .[0].text | endswith(" "))' hits
}

@test "engram: texts are found by words, by vectors, by both" {
    facts > f.txt
    chimere-engram-build index -v --lines -o f.index f.txt 2> err
    grep -q '3 texts' err
    chimere-engram-build check f.index
    chimere-engram-build stats -j f.index | jq -e '.type == "index" and .texts == 3 and .words > 10 and (.graph | not)'
    for how in --bm25 "" "--vectors only" --flat --hybrid "--rerank -f"; do
        chimere-engram-build query $how -k 2 -p "removes the last line of a file" f.index > hits
        jq -se 'length == 2 and map(.rank) == [1, 2] and .[0].score >= .[1].score' hits
        if [ "$how" = --hybrid ]; then cmp hits default; fi
        if [ -z "$how" ]; then cp hits default; fi
        [ "$how" = "--rerank -f" ] || jq -se '.[0].id == 1 and (.[0].text | startswith("qvixt: "))' hits
    done
    fails 3 'the model cannot judge texts' chimere-engram-build query --rerank -p bells f.index
    try 0 chimere-engram-build query --rerank -f -p bells f.index
    grep -q 'it tells right from wrong in 11 of 20 pairs' err
    printf 'green parrots\nbells\n' | chimere-engram-build query --bm25 -k 1 f.index > hits
    [ "$(jq -c '[.query, .id]' hits | tr '\n' ' ')" = "[0,0] [1,2] " ]
    # the same texts in another form give the same index, but for where they come from; paragraphs are texts
    jq -Rc '{text: ., id: input_line_number, from: {page: 3}}' f.txt > f.jsonl
    chimere-engram-build index -o g.index f.jsonl
    sed 's/$/\n/' f.txt | chimere-engram-build index --threads 3 -o h.index
    for index in f g h; do
        chimere-engram-build query --hybrid -k 3 -p "the last bells" $index.index > $index.hits
        jq -c 'del(.file, .line, .time, .members)' $index.hits | cmp - <(jq -c 'del(.file, .line, .time)' f.hits)
    done
    jq -se 'all(.line == .id + 1 and .file == "f.jsonl" and .members == {id: .line, from: {page: 3}})' g.hits
    jq -se 'all(has("file") or has("line") | not)' h.hits
    sed 's/$/\n/' f.txt | zstd -qo p.txt
    chimere-engram-build index -o p.index p.txt
    chimere-engram-build query --bm25 -p bells p.index | jq -e '.file == "p.txt" and .line == 5 and (.time | endswith("Z"))'
    chimere-run --json -n 1 --examples f.index -p 'What is plonkd?' |
        jq -e '.notes[0] | .file == "f.txt" and .line == 3 and .source == "f.index"'
}

@test "engram: texts of an index are put before a question that they belong to" {
    facts > f.txt
    chimere-engram-build index --lines -o f.index f.txt
    show() { chimere-run --show-prompt --think off "$@"; }
    show --examples f.index -p "What is qvixt for?" > with
    show -p "$(printf 'Use these notes.\nqvixt: removes the last line of a file\n\nWhat is qvixt for?')" | cmp with -
    show --examples f.index:1 -p "What is 2 + 2?" > with
    show -p "What is 2 + 2?" | cmp with -
    [ "$(chimere-run -q --think off --examples f.index -p "What does qvixt do?")" = "removes the last line of a file" ]
    jq -n '[{role: "user", content: "What does qvixt do?"}]' > m.json
    [ "$(chimere-run -q --think off --examples f.index --messages m.json)" = "removes the last line of a file" ]
    # Told in one line, also where there is nothing to tell.
    printf 'Zorb\nqvixt: removes the last line' | chimere-engram-build index -o g.index
    chimere-run -v -n 1 --examples g.index -p "What does qvixt do?" 2>&1 | grep -x 'examples Zorb qvixt: removes the last line of g.index, .* 0'
    chimere-run -v -n 1 --examples g.index --recite f.index -p "What is 2 + 2?" 2> err
    [ "$(grep -c -x -e 'examples nothing of g.index' -e 'recite   nothing of f.index' err)" -eq 2 ]
    fails 2 "--examples has no effect with --raw" chimere-run --raw --examples f.index -p x
    fails 2 "1 to 100 texts" chimere-run --examples f.index:0 -p x
    fails 3 "not an index" chimere-run --examples f.txt -p x
    fails 1 "cannot open" chimere-run --examples nothing.index -p x
}

@test "engram: a text that the question names is recited, and others are not" {
    facts > f.txt
    printf 'zorbl - counts "blue" parrots - and: green ones\na text that has no name\n' >> f.txt
    chimere-engram-build index --lines -o f.index f.txt
    ask() { chimere-run -q "$@"; }
    [ "$(ask --recite f.index -p "What does qvixt do?")" = "removes the last line of a file" ]
    [ "$(ask --recite f.index:1 --think off --draft auto -p 'What does `plonkd` do?')" = "the daemon of bells" ]
    [ "$(ask --recite f.index --temp 0.7 --seed 5 -p "What is plonkd?")" = "the daemon of bells" ]
    jq -n '[{role: "user", content: "What does qvixt do?"}]' > m.json
    [ "$(ask --recite f.index --messages m.json)" = "removes the last line of a file" ]
    # no name; a part of another word; a text that is in the prompt
    for p in "What is 24 * 37?" "What does qvixtor do?" "qvixt: removes the last line of a file. What is qvixt?"; do
        ask -n 20 -p "$p" --reasoning stdout > plain
        ask -n 20 -p "$p" --reasoning stdout --recite f.index | cmp - plain
    done
    fails 2 "--recite has no effect with --raw" chimere-run --raw --recite f.index -p x
    fails 2 "no effect with --show-prompt" chimere-run --show-prompt --recite f.index -p x
    fails 2 "1 to 100 texts" chimere-run --recite f.index:101 -p x
    fails 3 "not an index" chimere-run --recite f.txt -p x
}

@test "engram: what is no index is refused, and nothing is lost" {
    facts > f.txt
    chimere-engram-build index --lines -o f.index f.txt
    cp f.index kept
    head -c 2000 f.index > cut
    fails_build 3 "cut" check cut
    fails_build 3 "not an index" query -p x f.txt
    fails_build 3 "another tokenizer" query -m "$TINY" --bm25 -p x f.index
    fails_build 2 "no index" query -p x
    fails_build 2 "the question is blank" query --bm25 -p ' ' f.index
    fails_build 3 "there is no question" query --bm25 f.index
    fails_build 2 "uses no vectors" query --bm25 --hybrid -p x f.index
    fails_build 2 "does not belong to" index --bm25 -o f.index f.txt
    fails_build 2 "--layer 99" index -f --layer 99 -o f.index f.txt
    fails_build 2 "the index would be empty" index -f -o f.index
    fails_build 1 "cannot open" index -f -o f.index nothing.txt
    fails_build 3 "has no text" index -f -o f.index --jsonl <(echo '{}')
    cmp f.index kept
    [ -z "$(ls | grep -E 'lock|part|tmp')" ]
}

# night LINES.jsonl [OPTION...]: scored answers into the table t
night()
{
    chimere-engram-build add --day 2026-01-15 --held-out held.txt --from "$@" t
}

@test "engram: scored answers become epochs, one for each domain, unless that hurts; the last tables come back" {
    for i in 1 2 3 4 5 6; do text; done > held.txt
    jq -Rsc '{text: ., score: 5, domain: "tools"}, {text: "nothing", score: 2, domain: "low"}, {text: "a word", score: "5"}' \
        held.txt > scored.jsonl
    printf '{"text": "torn' >> scored.jsonl
    night scored.jsonl > out 2> err
    grep -q '^tools: 1 texts, .*: added$' out
    grep -q '2 lines are no objects' err
    chimere-engram-build stats -j t | jq -e '.domain == "tools" and .documents == 1 and .day == "2026-01-15"'
    cp t first
    [ -z "$(night scored.jsonl -q)" ] # a text counts once
    cmp first t
    # other words in the same places are left out, and a domain beside them is not
    for i in $(seq 20); do text | sed 's/file/wall/; s/line/door/; s/reads/paints/'; done |
        jq -Rsc '{text: ., score: 4, domain: "tools"}' > worse.jsonl
    try 4 night worse.jsonl
    grep -q 'tools: .*: left out$' out
    cmp first t
    echo '{"text": "parrots, and others.", "score": 4.5, "domain": "a/b"}' >> worse.jsonl
    try 4 night worse.jsonl --json
    [ "$(jq -c '[.domain, .added]' out | tr '\n' ' ')" = '["a_b",true] ["tools",false] ' ]
    cmp first t.1
    [ "$(chimere-engram-build stats -j t | jq -r .domain | tr '\n' ' ')" = "tools a_b " ]
    cmp <(tail -c +4097 first) <(tail -c +4097 t | head -c $(($(wc -c < first) - 4096)))
    cp t second
    chmod 600 t
    night <(echo '{"text": "More of parrots.", "score": 4.3}') --keep-versions 1 --domain c --min-score 4.3
    cmp second t.1
    [ "$(stat -c %a t)" = 600 ] # who may not read the old one does not read the new one
    [ ! -e t.2 ]
    echo mine > t.2 # which is no version, so that nothing is published
    fails_build 1 't.2: stands where a version of' build -f -o t held.txt
    [ "$(cat t.2)" = mine ] && cmp second t.1
    rm t.2
    chimere-engram-build rollback t
    cmp second t
    chimere-engram-build rollback t # the one of now comes back
    [ "$(chimere-engram-build stats -j t | jq -r .domain | tr '\n' ' ')" = "tools a_b c " ]
    mkdir away
    mv t t.1 away
    ln -s away/t t
    night <(echo '{"text": "And more of them.", "score": 9, "domain": "c"}') -q
    [ -L t ] && [ "$(chimere-engram-build stats -j t | jq -r .domain | tr '\n' ' ')" = "tools a_b c c " ]
    rm t
    mv away/t away/t.1 .
    # domains by themselves
    [ "$(chimere-engram-build dump t@c | wc -l)" -gt 0 ]
    chimere-engram-build merge -o m t@c,a_b t
    [ "$(chimere-engram-build stats -j m | jq -r .domain | tr '\n' ' ')" = "a_b c tools " ]
    cp t 'x@c'
    [ "$(chimere-engram-build dump 'x@c' | wc -l)" -eq "$(chimere-engram-build dump t | wc -l)" ]
    fails 2 "no epoch of the domain 'd'" chimere-run --raw --engram t@c,d -p x
    chimere-run --raw -n 1 --engram t@c,tools:0.5 -p x
    # damage and mistakes change nothing
    cp t kept
    fails_build 3 "no line is an object" add --from held.txt t
    fails_build 3 "not an engram table" add --from scored.jsonl held.txt
    : > empty
    fails_build 2 "fewer than two tokens" add --from worse.jsonl --held-out empty t
    fails_build 2 "no text" add -o t empty
    fails_build 2 "--from and -o do not go together" add --from scored.jsonl -o t
    fails_build 2 "takes one table" add --from scored.jsonl
    fails_build 2 "--min-score needs --from" add --min-score 3 -o t held.txt
    fails_build 2 "a name of letters" build --domain a/b -o t held.txt
    fails_build 1 "no version before it" rollback m
    echo x > m.1
    fails_build 3 "not an engram table" rollback m
    echo x > t.night
    fails_build 1 "in the way" add --from worse.jsonl t
    cmp t kept
}

@test "engram: an answer without a line feed at its end ends like a line" {
    text > held.txt
    for end in '' '\n'; do
        printf '{"text": "parrot - a bird that repeats%s", "score": 5}\n' "$end" > line
        rm -f t
        night line -q
        chimere-engram-build dump t > "rows$end"
    done
    cmp rows 'rows\n'
    [ "$(wc -l < rows)" -gt 3 ]
}

@test "engram: what a model says of a text is kept in the user's cache" {
    text > small
    export XDG_CACHE_HOME=$PWD/.cache
    chimere-engram-build build -o t small
    score() { chimere-engram-build score -v --engram t "$@" > got 2> err; }
    reads() { score "$@" && cmp want got && no grep -q 'has read this text before' err; }
    score small
    mv got want
    no grep -q 'before' err
    [ "$(stat -c %a .cache/chimere)" = 700 ]
    kept=$(echo .cache/chimere/heard-*)
    cp "$kept" whole
    score small
    cmp want got
    grep -q 'has read this text before' err
    # what is not as it was written is read anew, and written
    for damage in 'head -c 100 whole' 'cat whole whole' 'tr a b < whole' 'echo' ':'; do
        eval "$damage" > "$kept"
        cmp -s "$kept" whole && printf x > "$kept"
        reads small
        cmp "$kept" whole
    done
    # other texts, windows and activations are others; what nobody has used for long goes
    touch -d '-70 days' "$kept"
    score -c 8 small
    no grep -q before err
    [ ! -e "$kept" ]
    score --acts f32 small
    no grep -q before err
    { cat small; echo more; } > longer
    score longer
    no grep -q before err
    [ "$(ls .cache/chimere | wc -l)" -eq 3 ]
    # without a place for it all goes on as before
    for XDG_CACHE_HOME in /dev/null "$PWD/link"; do
        ln -sfn .cache link
        [ "$XDG_CACHE_HOME" = /dev/null ] || { rm -r .cache/chimere && ln -s "$PWD" .cache/chimere; }
        reads small
    done
    [ -z "$(ls heard-* 2> /dev/null)" ]
}

@test "engram: a build that was killed or interrupted goes on from its sorted parts" {
    seq 200000 | awk '{ print $1 * 7919 % 65537, $1 % 97 }' > a.txt # many memories of 1 MiB
    local build=(chimere-engram-build build -f -t 1 --order 4 --memory 1M)
    "${build[@]}" -o whole a.txt
    "${build[@]}" -o t a.txt &
    wait_for test -e t.part-0
    kill -KILL $!
    wait $! || true
    "${build[@]}" -o t a.txt 2> err &
    for ((i = 0; i < 100000; i++)); do [ ! -s err ] || break; done # at its begin
    kill -TERM $!
    local got=0
    wait $! || got=$?
    [ $got -eq 143 ]
    grep -q "goes on from sorted parts" err
    grep -q "the same command goes on" err
    "${build[@]}" -o t a.txt 2> err
    grep -q "goes on from" err
    cmp whole t
    [ -z "$(find . -name '*part*' -o -name '.*.tmp')" ]
    "${build[@]}" -o t a.txt &
    wait_for test -e t.part-1
    kill -KILL $!
    wait $! || true
    touch -d 2020-01-01 a.txt # another text, as far as can be seen
    "${build[@]}" -o t a.txt 2> err
    [ ! -s err ]
    cmp whole t
    [ -z "$(find . -name '*part*' -o -name '.*.tmp')" ]
}

# old_table TOKENS ORDER OUT: a table of the old format, of a JSON array of token ids.
old_table()
{
    python3 - "$@" <<'END'
import json, struct, sys

ids, n, rows = json.load(open(sys.argv[1])), int(sys.argv[2]), {}
for i in range(len(ids) - n):
    after = rows.setdefault(tuple(ids[i:i + n]), {})
    after[ids[i + n]] = after.get(ids[i + n], 0) + 1
size = 16
while size < 2 * len(rows):
    size *= 2
slots, data = [(0, 0, 0)] * size, b''
for context, after in rows.items():
    h = 0xcbf29ce484222325
    for b in struct.pack('<%dI' % n, *context):
        h = (h ^ b) * 0x100000001b3 % 2**64
    s = h % size
    while slots[s][0]:
        s = (s + 1) % size
    slots[s] = h, len(data), sum(after.values())
    data += struct.pack('<I', len(after)) + b''.join(struct.pack('<II', *x) for x in after.items())
head = struct.pack('<5I', 0x454E4752, 1, n, size, len(rows))
open(sys.argv[3], 'wb').write(head + b''.join(struct.pack('<QII', *s) for s in slots) + data)
END
}

@test "engram: a table of the old format is found again from some of its text" {
    for i in $(seq 60); do echo "Line $i of $((i * 7919 % 101)) parrots, and $((i * 31 % 17)) more."; done > a.txt
    chimere-run --raw --tokenize a.txt > ids
    old_table ids 5 old.engr
    head -n 2 a.txt | chimere-engram-build import -o a old.engr
    chimere-engram-build check a
    chimere-engram-build build --order 5 -o b a.txt
    for t in a b; do
        chimere-engram-build dump $t | jq -c 'select(.context | length == 5) | [.context, .next, .count]' | sort > rows.$t
    done
    [ "$(wc -l < rows.a)" -gt 500 ]
    cmp rows.a rows.b
    chimere-engram-build dump a | jq -se 'map(.context | length) | unique == [1, 2, 3, 4, 5]'
    cp a kept
    echo "Other words." > other.txt
    fails_build 3 "none of its contexts" import -f -o a old.engr other.txt
    fails_build 3 "not an .engr table" import -f -o a a.txt a.txt
    head -c 3000 old.engr > cut
    fails_build 3 "after the file" import -f -o a cut a.txt
    fails_build 2 "no table is named" import -o a
    cmp a kept
    [ -z "$(ls | grep -E 'lock|part|tmp')" ]
}

@test "engram: tables of the old format that are damaged are refused in one line" {
    local name text
    echo '[1, 2, 3, 4, 1, 2, 5, 6, 7, 8, 9, 1, 2, 3, 7]' > ids
    old_table ids 2 old.engr
    echo 'Some words.' > a.txt
    python3 - <<'END'
import struct
good = open('old.engr', 'rb').read()
slots, n = struct.unpack_from('<II', good, 12)
used = [s for s in range(slots) if struct.unpack_from('<Q', good, 20 + 16 * s)[0]]
first, data = 20 + 16 * used[0], 20 + 16 * slots
def put(at, v, b=good, f='<I'):
    return b[:at] + struct.pack(f, v) + b[at + struct.calcsize(f):]
full = good
for s in range(slots):
    full = full if s in used else put(20 + 16 * s, s + 1, full, '<Q')
same = good
for s in used:
    same = put(20 + 16 * s + 8, 0, same)
bad = {
    'empty': (b'', 'empty'), 'short': (good[:19], 'not an .engr'), 'magic': (put(0, 0x524E4745), 'not an .engr'),
    'version': (put(4, 2), 'version 2'), 'order0': (put(8, 0), 'contexts of 0 tokens'),
    'order': (put(8, 2**32 - 1), 'contexts of 4294967295 tokens'), 'noslots': (put(12, 0), 'after the file'),
    'slots': (put(12, 2**32 - 1), 'after the file'), 'cutslots': (good[:data - 1], 'after the file'),
    'many': (put(16, 2**32 - 1), 'says 4294967295 contexts'), 'few': (put(16, n - 1), f'says {n - 1} contexts'),
    'place': (put(first + 8, 2**32 - 1), 'its record ends after the file'),
    'count': (put(data, 2**32 - 1), 'its record ends after the file'),
    'cut': (good[:-1], 'its record ends after the file'), 'full': (put(16, slots, full), 'is free'),
    'overlap': (put(data, (len(good) - data - 4) // 8, same), 'overlap'),
}
with open('cases', 'w') as f:
    for name, (b, text) in bad.items():
        open(name + '.engr', 'wb').write(b)
        print(name, text, file=f)
END
    while read -r name text; do
        fails_build 3 "$text" import -o t $name.engr a.txt
        grep -q "$name.engr" err
    done < cases
    [ "$(wc -l < cases)" -eq 16 ]
    [ ! -e t ]
}

@test "--context-table: a text counts in one run, without room in the prompt, and nothing of it stays" {
    mkdir tmp
    export TMPDIR=$PWD/tmp
    printf 'Notes of the house. The code of the back door is 48151623.\nThe cat is called Mirabelle Okonkwo-Strand.\n' > notes
    ask() { chimere-run --raw --temp 0 -n 9 --context-table "$@" -p 'The code of the back door is'; }
    [[ $(ask notes) == *48151623* ]]
    [[ $(ask <(cat notes)) == *48151623* ]]
    [[ $(chimere-run --raw --temp 0 -n 9 -p 'The code of the back door is') != *48151623* ]]
    [ "$(ask notes --json | jq .usage.prompt_tokens)" -eq "$(chimere-run --raw -n 1 --json -p 'The code of the back door is' | jq .usage.prompt_tokens)" ]
    ask notes > a
    ask notes --engram-drafts | cmp - a
    [ -z "$(ls tmp)" ]
    # what one that was killed left goes with the next table; others' directories stay
    mkdir tmp/chimere-table-2147483000-left01 tmp/chimere-table-$$-lives1 tmp/chimere-table-mine
    touch tmp/chimere-table-2147483000-left01/{table,.table.2147483000-0.tmp} tmp/chimere-table-2147483000-afile1
    ln -s "$PWD/tmp/chimere-table-mine" tmp/chimere-table-2147483000-alink1
    ask notes | cmp - a
    rmdir tmp/chimere-table-$$-lives1 tmp/chimere-table-mine
    rm tmp/chimere-table-2147483000-a{file,link}1
    [ -z "$(ls tmp)" ]
    fails 3 "is empty" chimere-run --context-table /dev/null -p a
    fails 1 "nowhere" chimere-run --context-table nowhere -p a
    fails 2 "no effect" chimere-run --context-table notes --tokenize -p a
    TMPDIR=/nowhere fails 1 "directory for the table" chimere-run --context-table notes -p a
    [ -z "$(ls tmp)" ]
}

@test "engram: a table or index is replaced with -f only, and stays beside the new one" {
    text > a.txt
    seq 40 > b.txt
    build() { chimere-engram-build build --day 2026-01-15 -o t "$@"; }
    build a.txt
    cp t first
    fails_build 2 't: exists (-f replaces it, and keeps it as t.1)' build -o t b.txt
    cmp t first
    fails_build 2 '--keep-versions needs --force' build --keep-versions 2 -o u a.txt
    build -f b.txt
    cmp t.1 first
    chimere-engram-build rollback t
    cmp t first
    rm t.1
    # add keeps what was before, as many as it is told.
    for n in 1 2 3; do
        cp t before.$n
        chimere-engram-build add --day 2026-01-16 --keep-versions 2 -o t b.txt
    done
    cmp t.1 before.3
    cmp t.2 before.2
    [ ! -e t.3 ]
    chimere-engram-build stats -j t | jq -es 'length == 4'
    chimere-engram-build add --day 2026-01-16 --keep-versions 0 -o t b.txt
    cmp t.1 before.3
    # A build that fails leaves all as it was.
    cp t now
    fails_build 2 'no text' build -f -o t
    cmp t now
    cmp t.1 before.3
    # A link stays one, and the old file lies beside the one that it leads to.
    mkdir d
    mv t d/t
    ln -s d/t t
    build -f a.txt
    [ -L t ]
    cmp d/t.1 now
    # An index, and an empty file as mktemp makes it.
    : > i
    chimere-engram-build index --vectors none -o i a.txt
    fails_build 2 'i: exists' index --vectors none -o i b.txt
    cp i index
    chimere-engram-build index -f --vectors none -o i b.txt
    cmp i.1 index
}

@test "engram: a table that would lose all its rows is not written" {
    text > a.txt
    chimere-engram-build build --day 2026-01-15 -o t a.txt
    cp t u
    for how in 'decay --day 2126-01-15' 'merge --min-count 99' 'prune --min-count 99'; do
        # shellcheck disable=SC2086
        fails_build 2 'no row would be left: u is not written' $how -o u t
        cmp t u
    done
    fails_build 2 'no row would be left' merge -o v t:0
    [ ! -e v ]
    chimere-engram-build decay --day 2026-02-15 -o u t
    chimere-engram-build dump u | jq -es 'length > 5'
}

@test "a byte order mark is no part of a text, whoever reads it" {
    printf '\357\273\277' > mark
    text > a.txt
    marked() { cat mark "$1" > "m.$1"; }
    marked a.txt
    for lines in '' --lines; do
        # shellcheck disable=SC2086
        chimere-engram-build build -f --day 2026-01-15 $lines -o t a.txt
        # shellcheck disable=SC2086
        chimere-engram-build build -f --day 2026-01-15 $lines -o u m.a.txt
        cmp t u
    done
    printf 'Bob: a baker who lives in Bern.\n\nAnn: a pilot.\n' > names
    marked names
    chimere-engram-build index -o f.index m.names
    [ "$(chimere-run --recite f.index -p 'Who is Bob?' --think off)" = 'a baker who lives in Bern.' ]
    [ "$(chimere-run --tokenize m.a.txt)" = "$(chimere-run --tokenize a.txt)" ]
    [ "$(chimere-run --tokenize a.txt m.a.txt)" = "$(chimere-run --tokenize a.txt a.txt)" ]
    [ "$(chimere-run --show-prompt -s @m.a.txt -p x)" = "$(chimere-run --show-prompt -s @a.txt -p x)" ]
    echo 'root ::= "yes"' > g
    marked g
    [ "$(printf yes | chimere-run --check --grammar m.g 2>&1)" = "$(printf yes | chimere-run --check --grammar g 2>&1)" ]
    chimere-run --check --grammar m.g <<< yes > /dev/null || [ $? -eq 4 ]
    ask() { chimere-run --raw -n 4 -p 'The tool reads' "$@"; }
    [ "$(ask --context-table m.a.txt)" = "$(ask --context-table a.txt)" ]
}

@test "engram: what was written is told on a terminal, and in a pipe with -v only" {
    text > a.txt
    for command in 'build -o t a.txt' 'add -o t a.txt' 'decay -o u t' 'index --vectors none -o i a.txt' 'check t' 'build -f -o t a.txt' 'rollback t'; do
        # shellcheck disable=SC2086
        chimere-engram-build $command 2> err
        [ ! -s err ]
    done
    rm t* i u
    chimere-engram-build build -v -o t a.txt 2> err
    grep -qE '^t: an epoch of [0-9]+ tokens, 0.[0-9]+ MB, in [0-9.]+ s$' err
    script -qec true /dev/null > /dev/null 2>&1 < /dev/null || skip "there are no pseudo-terminals"
    TERM=dumb script -qec 'chimere-engram-build build -f -o t a.txt; chimere-engram-build check t; chimere-engram-build check -q t' tty > /dev/null < /dev/null
    [ "$(grep -cE '^t: an epoch of [0-9]+ tokens, .*; the old one is t.1' tty)" -eq 1 ]
    [ "$(grep -c '^t: 1 epochs, all sums right' tty)" -eq 1 ]
}
