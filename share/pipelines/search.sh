#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# search.sh - a question to a search engine: expand, search, fuse, fetch, chunk, rerank, judge, search again, answer, quote
#
#   search.sh [-s SEARCH] [-f FETCH] [-n PAGES] [-k NOTES] [-c BYTES] [-e] [-j] [--strict] [--notes] [QUESTION [OPTION ...]]
#
# SEARCH, a command: gets a query on its standard input and prints {"url", "title", "snippet"} lines, the best first.
# FETCH: gets a URL there and prints {"text", "title"} lines. Both are words, no shell; $SEARCH and $FETCH by default.
# -n: pages to fetch, 5 by default; -k: notes for the model, 3; -c: bytes of one at most, 300. -e: the model words the
# question anew, too. -j: JSON. OPTION: of chimere-run.
# --notes: only what was found. Without QUESTION it is the standard input. An answer that cannot be quoted says so; with
# --strict that is status 4, as is a question to which nothing is found.
# Exit status: 1 a program failed or is missing; 2 wrong use; 4 see above.
set -eu
export LC_ALL=C.UTF-8
here=$(cd -- "$(dirname -- "$0")" && pwd)
usage() { sed -n '3,/^[^#]/ { s/^# \{0,1\}//p; }' "$0" >&2; exit 2; }
die() { printf 'search.sh: %s\n' "$1" >&2; exit 1; }

search=${SEARCH:-} fetch=${FETCH:-} pages=5 k=3 chunk=300 expand='' json='' strict='' only=''
while [ $# -gt 0 ]; do
    case $1 in
    -s) [ $# -gt 1 ] || usage; search=$2; shift ;;
    -f) [ $# -gt 1 ] || usage; fetch=$2; shift ;;
    -n) [ $# -gt 1 ] || usage; pages=$2; shift ;;
    -k) [ $# -gt 1 ] || usage; k=$2; shift ;;
    -c) [ $# -gt 1 ] || usage; chunk=$2; shift ;;
    -e) expand=1 ;;
    -j) json=-j ;;
    --strict) strict=--strict ;;
    --notes) only=1 ;;
    -*) usage ;;
    *) break ;;
    esac
    shift
done
for n in "$pages" "$k" "$chunk"; do case $n in '' | 0* | *[!0-9]* | ?????*) usage ;; esac; done
[ -n "$search" ] && [ -n "$fetch" ] || die 'there is no SEARCH or no FETCH command'
if [ $# -gt 0 ]; then
    question=$1
    shift
else
    question=$(head -c 4000)
fi
[ -n "$question" ] || usage
tmp=$(mktemp -d)
trap 'rm -rf -- "$tmp"' EXIT
mkdir "$tmp/pages"
: > "$tmp/hits"

# What a page says is data. It is cut to size, comes through jq, and is never a word of a command, a name or a program.
bounded() { { timeout -k 1 "$1" sh -c 'set -f; exec $0' "$2" 2> /dev/null || echo $? > "$tmp/failed"; } | head -c 2000000; }
found_pages() { [ -n "$(find "$tmp/pages" -type f -size +0 -print | head -n 1)" ]; }

# A query's results: the ranks of URLs, by 1 / (60 + rank).
ask_engine() # QUERY
{
    printf '%s\n' "$1" | bounded 15 "$search" | head -n 50 |
        jq -cR 'fromjson? | objects | select((.url | type) == "string" and (.url | test("^[a-z]+:[^[:cntrl:] ]{1,2000}$"))) |
            {url: (.url | sub("#.*"; ""))}' | jq -cs 'to_entries[] | {url: .value.url, score: (1 / (61 + .key))}' >> "$tmp/hits"
}

# Pages that were not fetched yet, the best first.
fetch_pages()
{
    jq -rs --argjson n "$pages" 'group_by(.url) | map({url: .[0].url, score: (map(.score) | add)}) | sort_by(-.score)[:$n][].url' \
        "$tmp/hits" > "$tmp/urls"
    while IFS= read -r url; do
        page=$tmp/pages/$(printf '%s' "$url" | cksum | tr -d ' ').txt
        [ ! -e "$page" ] || continue
        printf '%s\n' "$url" | bounded 15 "$fetch" | jq -rR 'fromjson? | objects | .text | strings' > "$page"
        jq -cn --arg file "$page" --arg url "$url" '{$file, $url}' >> "$tmp/sources"
    done < "$tmp/urls"
}

# Chunks, ranked by the words of the question; those that have a third of their weight are kept.
rank_chunks()
{
    rm -f "$tmp/index"
    echo '{"notes":[],"text":""}' > "$tmp/notes"
    found_pages || return 0
    chimere-engram-build index -q --vectors none --chunk "$chunk" -o "$tmp/index" "$tmp/pages" || die 'the pages cannot be indexed'
    chimere-engram-build query "$tmp/index" --bm25 --json -k "$k" -p "$question" |
        jq -cs --slurpfile s "$tmp/sources" 'map(select(.type == "hit" and .share >= 0.33) | .file as $f |
            {source: ($s[] | select(.file == $f).url), line: (.line // 1), text, share, score}) |
            {notes: ., text: (map(.text) | join("\n"))}' > "$tmp/notes"
}
nothing() { jq -e '.notes == []' "$tmp/notes" > /dev/null; }

# 1. The question, its longer words alone, and what the model makes of it; 2. to 4.
ask_engine "$question"
if [ -n "$expand" ]; then
    printf 'Say this in other words, as a query for a search engine, in one line: %s' "$question" |
        chimere-run --think off -n 60 "$@" 2> /dev/null | head -n 1 | tr -d '\000-\037' > "$tmp/query"
    [ ! -s "$tmp/query" ] || ask_engine "$(head -c 300 "$tmp/query")"
fi
fetch_pages
rank_chunks
if nothing; then # 5. judged: none of it is about the question; searched once more
    ask_engine "$(printf '%s' "$question" | tr -cs '[:alnum:]_-' ' ' | awk '{ for (i = 1; i <= NF; i++) if (length($i) > 4) printf "%s ", $i }')"
    fetch_pages
    rank_chunks
fi
found_pages || [ ! -e "$tmp/failed" ] || die "SEARCH or FETCH failed with status $(cat "$tmp/failed")"
[ -z "$only" ] || { cat "$tmp/notes"; exit 0; }
# 6. The answer, of the notes alone, and where it stands.
if nothing; then
    printf 'I do not know: nothing is found.' > "$tmp/answer"
else
    jq --arg q "$question" '[{role: "user", content: "Use these notes.\n\(.text)\n\n\($q)"}]' "$tmp/notes" > "$tmp/messages"
    chimere-run --messages "$tmp/messages" --think off "$@" < /dev/null > "$tmp/answer" || die 'the model gave no answer'
fi
cat "$tmp/notes" "$tmp/answer" | sh "$here/quote.sh" $json $strict
