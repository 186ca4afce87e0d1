#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# rag.sh - a question to an index of documents: what is found, the answer, and where each claim of it stands
#
#   rag.sh -i INDEX [-k NOTES] [-r] [-j] [--strict] [--notes] QUESTION [OPTION OF chimere-run ...]
#
# INDEX: of chimere-engram-build index; small texts (--chunk 300) are quoted best. -k: notes for the model, 3 by default.
# -r: let the model judge the best texts first (--rerank). -j: JSON. --notes: only what is found, without an answer.
# An answer that cannot be quoted says so; --strict: it ends with status 4, as does a question without an answer.
# Exit status: that of the program that failed; 2 wrong use; 4 see above.
set -eu
export LC_ALL=C.UTF-8
here=$(cd -- "$(dirname -- "$0")" && pwd)
usage() { sed -n '3,/^[^#]/ { s/^# \{0,1\}//p; }' "$0" >&2; exit 2; }

index='' k=3 rerank='' json='' strict='' only=''
while [ $# -gt 0 ]; do
    case $1 in
    -i) [ $# -gt 1 ] || usage; index=$2; shift ;;
    -k) [ $# -gt 1 ] || usage; k=$2; shift ;;
    -r) rerank=--rerank ;;
    -j) json=-j ;;
    --strict) strict=--strict ;;
    --notes) only=1 ;;
    -*) usage ;;
    *) break ;;
    esac
    shift
done
case $k in '' | 0* | *[!0-9]* | ????*) usage ;; esac
[ -n "$index" ] && [ $# -ge 1 ] || usage
question=$1
shift
tmp=$(mktemp -d)
trap 'rm -rf -- "$tmp"' EXIT

# Two rankings, fused by reciprocal ranks: by words as they are written, and as the index ranks, by stems and vectors.
chimere-engram-build query "$index" --json -k 10 --bm25 --exact -p "$question" > "$tmp/words"
chimere-engram-build query "$index" --json -k 10 $rerank -p "$question" > "$tmp/own"
jq -cs --argjson k "$k" 'map(select(.type == "hit")) | group_by(.id) |
    map({source: (.[0].file // .[0].source // "text"), line: (.[0].line // .[0].id), text: .[0].text,
        share: (map(.share // 0) | max), score: (map(1 / (60 + .rank)) | add)}) |
    sort_by(-.score, -.share) | map(select(.share >= 0.33))[:$k] | {notes: ., text: (map(.text) | join("\n"))}' \
    "$tmp/words" "$tmp/own" > "$tmp/notes"
[ -z "$only" ] || { cat "$tmp/notes"; exit 0; }
if jq -e '.notes == []' "$tmp/notes" > /dev/null; then
    printf 'I do not know: nothing is found.' > "$tmp/answer"
else
    # The notes are a part of the question, and data: no tool is offered, and nothing that they say is a command here.
    jq --arg q "$question" '[{role: "user", content: "Use these notes.\n\(.text)\n\n\($q)"}]' "$tmp/notes" > "$tmp/messages"
    chimere-run --messages "$tmp/messages" --think off "$@" < /dev/null > "$tmp/answer"
fi
cat "$tmp/notes" "$tmp/answer" | sh "$here/quote.sh" $json $strict
