#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# index.bats - directories into an index: which files, how they are cut, what is found in them; files that do harm.
load common

index() { chimere-engram-build index -f --vectors none -o x.index "$@"; }
hits() { chimere-engram-build query --bm25 -k 9 -p "$1" x.index; } # WORDS
files() { index "$@" && hits common | jq -r .file | sort | tr '\n' ' '; }

@test "index: a directory's files are cut at headings and paragraphs" {
    mkdir -p d/sub d/.hidden
    printf 'first words common\n\nsecond part\n' > d/a.txt
    printf '# Top\ntext\n## Deep\nzorbl common\n' > d/b.md
    printf '<title>Page</title><h1>Head</h1>\n<p>parrots &amp; common</p>' > d/sub/c.html
    printf '.Dd x\n.Dt TOOL 1\n.Sh OPTIONS\n.It Fl x Ar file\nbells common\n' > d/sub/tool.1
    printf '{"text":"object common","id":7}\n[1]\n' > d/sub/o.jsonl
    printf 'common' | tee d/.hidden/a d/.b > /dev/null
    try 0 index -v d
    grep -q 'files: 5; left out: 0 (no text' err
    hits common > all
    [ "$(jq -r '"\(.file):\(.line) \(.heading)"' all | sort | tr '\n' ';')" = "d/a.txt:1 null;d/b.md:4 Top > Deep;$(
        )d/sub/c.html:2 Page > Head;d/sub/o.jsonl:1 null;d/sub/tool.1:4 TOOL(1) > OPTIONS;" ]
    jq -se 'map(select(.members)) | length == 1 and .[0].members == {id: 7}' all
    hits bells | jq -e '.text == "-x file bells common"'
    hits deep | jq -e '.file == "d/b.md"' # the words of a heading are those of its text
    # the same for files that are named, where they are cut
    index --chunk 100 d/b.md d/a.txt
    hits 'second part' | jq -e '.file == "d/a.txt" and .line == 1'
    index --chunk 100 --overlap 20 <(true) d/a.txt
    fails 3 'has no vectors' chimere-engram-build query --hybrid -p x x.index
    chimere-engram-build query -p parts x.index | cmp - <(chimere-engram-build query --bm25 -p parts x.index) # the default
    chimere-engram-build check x.index
}

@test "index: a snippet is the part that a question is about" {
    mkdir d
    { seq -s ' ' 1000 1400; echo 'the parrots are counted by zorbl'; seq -s ' ' 2000 2400; } | tr '\n' ' ' > d/a
    index --chunk 8000 d
    chimere-engram-build query --bm25 --snippet -p 'who counts the parrot?' x.index |
        jq -se 'length == 1 and (.[0] | .snippet | length <= 200 and contains("parrots are counted by zorbl")) and (.[0] | has("text") | not)'
    [ -z "$(chimere-engram-build query --bm25 --exact -p parrot x.index)" ] # no stems
    # a text without blanks
    jq -rn '[range(20000; 20400), 40550, 40521, range(20400; 20800)] | implode' > d/a
    index --chunk 8000 d
    chimere-engram-build query --bm25 --snippet -p '鹦鹉' x.index |
        jq -se 'length == 1 and (.[0].snippet | contains("鹦鹉") and (contains("\ufffd") | not) and utf8bytelength > 190)'
    fails 2 'compares no words' chimere-engram-build query --exact --vectors only -p parrot x.index
    fails 2 '--vectors none: for query it is only' chimere-engram-build query --vectors none -p parrot x.index
}

@test "index: on a terminal a hit is one line with its file; the question is an operand" {
    on_terminal() { python3 "$ROOT/tests/cli/terminal.py" chimere-engram-build query "$@" < /dev/null > shown; }
    mkdir d
    printf '# Notes\n\nzorbl: a \033[31mtool that counts\nparrots\n' > d/z.md
    { printf 'bells '; seq -s ' ' 1 200; } > d/long
    index d
    try 0 chimere-engram-build query x.index 'which tool counts parrots?'
    jq -es 'length == 1 and .[0].line == 3 and (.[0].text | endswith("\nparrots"))' out
    on_terminal x.index 'which tool counts parrots?'
    [ "$(cat shown)" = 'd/z.md:3: zorbl: a ?[31mtool that counts' ]
    on_terminal x.index qvixt && grep -q 'no text has a word of the question' shown
    on_terminal --snippet x.index 'which tool counts parrots?'
    [ "$(cat shown)" = 'd/z.md:3: zorbl: a ?[31mtool that counts parrots' ]
    on_terminal x.index bells
    [ "$(cat shown)" = "d/long:1: bells $(seq -s ' ' 1 200 | cut -c 1-61)..." ] # 80 columns
    on_terminal --json x.index bells
    jq -e '.file == "d/long"' shown
    echo bells | chimere-engram-build index --vectors none -o y.index
    on_terminal y.index bells
    [ "$(cat shown)" = 'text 0: bells' ]
    fails 2 'd/z.md is a file (--prompt' chimere-engram-build query x.index d/z.md
    fails 2 'put the words in quotes' chimere-engram-build query x.index a b
    fails 2 'takes one index' chimere-engram-build query -p hi x.index y.index
    fails 2 'the question is blank' chimere-engram-build query x.index ' '
}

@test "index: what is ignored or excluded is left out; links are followed if asked" {
    mkdir -p d/keep/build d/build d/very/deep/x other
    for f in a.txt a.log b.log keep/c.txt keep/build/d.txt build/e.txt very/deep/x/f.txt very/g.o; do echo common > d/$f; done
    echo common > other/far
    [ "$(files d)" = "d/a.log d/a.txt d/b.log d/build/e.txt d/keep/build/d.txt d/keep/c.txt d/very/deep/x/f.txt d/very/g.o " ]
    printf '\xef\xbb\xbf*.log\n# comment\n!b.log\n/build/\nvery/**/f.t[a-x]t\nkeep/b**.txt\n' > d/.gitignore
    printf 'c*\n' > d/keep/.gitignore
    [ "$(files d)" = "d/a.txt d/b.log d/keep/build/d.txt d/very/g.o " ]
    [ "$(files --exclude '*.o' --exclude keep/build d/)" = "d/a.txt d/b.log " ]
    fails 2 '--exclude #*: leaves nothing out' chimere-engram-build index -o y --exclude '#*' d
    fails 2 '--exclude !a: leaves nothing out' chimere-engram-build index -o y --exclude '!a' d
    ln -s .. d/keep/loop
    ln -s ../other d/link
    ln -s ../other/far d/fil
    [ "$(files d)" = "d/a.txt d/b.log d/keep/build/d.txt d/very/g.o " ]
    [ "$(files --follow d)" = "d/a.txt d/b.log d/fil d/keep/build/d.txt d/link/far d/very/g.o " ]
    rm d/.gitignore d/keep/.gitignore
    [ "$(files --exclude '[[:alpha:]].txt' --exclude '[^b[:digit:]].log' --exclude '[\[:o]*.o' d)" = "d/b.log d/very/g.o " ]
    touch d/'é.txt' d/7.txt && echo common | tee d/'é.txt' > d/7.txt
    [ "$(files --exclude '*.log' --exclude '*.o' --exclude '[[:lower:]c-f].txt' d)" = "d/7.txt d/é.txt " ]
}

@test "index: filters make text of other files" {
    mkdir d
    printf 'common here' | gzip > d/a.txt.gz
    printf '.Dd x\n.Sh NAME\ncommon' | gzip > d/b.1.gz
    printf 'COMMON' > 'd/c d.up'
    [ "$(files --filter 'gz=gzip -dc' --filter 'up=tr A-Z a-z' d)" = "d/a.txt.gz d/b.1.gz d/c d.up " ]
    hits name | jq -e '.heading == "NAME" and .text == "common"'
    # one that fails costs its file, and one line
    cp d/c* d/x.bad && cp d/c* d/y.none && cp d/c* d/z.sig
    printf '#!/bin/sh\nkill -9 $$\n' > sig && chmod +x sig
    try 0 index --filter 'gz=gzip -dc' --filter 'bad=false x' --filter 'none=./no-such' --filter "sig=$PWD/sig" d
    [ "$(wc -l < err)" -eq 3 ]
    grep -q 'd/x.bad: false: ended with status 1$' err
    grep -q 'd/y.none: ./no-such: cannot start: No such file' err
    grep -q 'd/z.sig: .*/sig: ended by signal 9$' err
    fails 2 "is not EXTENSION=COMMAND" chimere-engram-build index -o y --filter pdf d
    fails 2 "is not for directories" chimere-engram-build index -o y --lines d
    fails 2 "at most half of --chunk" chimere-engram-build index -o y --overlap 600 d
    fails 2 "standard input cannot be read" chimere-engram-build index -o y d -
    fails 1 "no-such: cannot open" chimere-engram-build index -o y --vectors none d no-such
    [ ! -e y ]
}

@test "index: files that are no text, cannot be read, or have odd names" {
    mkdir -p d/closed d/$'a\nb'
    echo common > d/$'a\nb'/$'c\td'
    head -c 3000 /dev/urandom > d/binary
    printf 'a\0common' > d/nul
    mkfifo d/fifo
    : > d/empty
    head -c 1000000 /dev/zero | tr '\0' '\n' > d/blank.jsonl
    ln -s nowhere d/dangling
    ln -s dangling d/dangling2
    { head -c 3000000 /dev/zero | tr '\0' x; echo ' common'; } > d/long
    try 0 index -v d
    grep -q 'files: 3; left out: 6 (' err
    hits common | jq -s . > all
    jq -e 'map(.file) | sort == ["d/a\nb/c\td", "d/long"]' all
    touch -d 2400-01-01 d/long # more nanoseconds than a number holds
    index d
    hits common | jq -se 'map(select(.file == "d/long").time >= "2038") == [true]'
    fails 2 'no file with text' chimere-engram-build index --vectors none -o y.index --exclude '*' d # nothing is left
    mkdir nothing && fails 2 'left out: 0 (no text' chimere-engram-build index --vectors none -o y.index nothing
    fails 2 'there are no vectors' chimere-engram-build index --vectors none --faiss Flat -o y.index d
    # what is named twice, or lies in what is named
    mkdir -p t/u && echo common > t/u/a && echo common > t/b
    [ "$(files t/b t t/u t/u/a t/../t)" = 't/b t/u/a ' ] && [ "$(files t/u t)" = 't/b t/u/a ' ]
    [ "$(id -u)" -eq 0 ] || {
        echo common > d/closed/a; echo common > d/no; chmod 0 d/closed d/no
        try 0 index d
        grep -q 'd/closed: cannot open: Permission denied' err && grep -q 'd/no: cannot open' err
        chmod 700 d/closed
    }
}

@test "index: a second run makes the vectors of what is new, and forgets what is gone" {
    mkdir d
    seq 1 40 | sed 's/.*/line & says something/' > d/a
    echo 'zorbl counts parrots' > d/b
    again() { chimere-engram-build index -v -o x.index --chunk 100 d 2>&1 | grep -o 'vectors of .* were there'; }
    [ "$(again)" = "vectors of 0 were there" ]
    cp x.index one
    [ "$(again)" = "vectors of $(chimere-engram-build stats -j one | jq .texts) were there" ]
    cmp x.index one
    # a text that is new, one that moved, one that is gone
    { echo 'qvixt removes lines'; echo; cat d/a; } > d/c && rm d/a
    n=$(again | tr -cd 0-9)
    [ "$n" -gt 2 ] && [ "$n" -lt "$(chimere-engram-build stats -j x.index | jq .texts)" ]
    rm d/b
    again
    no grep -q zorbl x.index
    chimere-engram-build query --vectors only -p 'qvixt removes lines' -k 1 x.index | jq -e '.file == "d/c" and .score > 0.8'
    # killed, the old index serves; a full disk costs nothing; a damaged one is written anew
    cp x.index one
    seq 1 3000 > d/d
    chimere-engram-build index -q -o x.index --chunk 100 d &
    sleep 0.2; kill -9 $!; wait $! || true
    cmp x.index one
    (ulimit -f 2; trap '' XFSZ; try 1 chimere-engram-build index -q --vectors none -o x.index --chunk 100 d)
    cmp x.index one
    [ -z "$(find . -name '.x.index*tmp')" ] || chimere-engram-build index -q --vectors none -o x.index --chunk 100 d
    rm d/d
    printf X | dd of=x.index bs=1 seek=700 conv=notrunc status=none
    [ "$(again)" = "vectors of 0 were there" ]
    chimere-engram-build check x.index
}
