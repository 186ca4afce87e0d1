#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# engram-nightly.sh - scored answers into tables of n-grams, a table for each domain, published only where that
# does not hurt.
#
#   engram-nightly.sh [-s LEAST] [-k KEEP] TABLES HELD_OUT SCORED.jsonl ...
#   engram-nightly.sh -r DOMAIN TABLES
#
# A line of SCORED.jsonl is an object with "text", "score" and, if it has one, "domain". Lines with a score of LEAST
# (default 4) and more are added to TABLES/DOMAIN.engram as an epoch; a line is added once, also when it comes again.
# The new table takes the place of the old one if the model's perplexity on the text HELD_OUT rises by no more than 0.1 %.
# The last KEEP (default 7) tables stay as DOMAIN.engram.1, .2 ...; -r puts the newest of them back.
# Status: 0 done, 4 a domain would have been hurt and has its old table, others as those of chimere-engram-build.
set -euo pipefail
usage() { sed -n 's/^# \{0,1\}//; 3,14p' "$0" >&2; exit 2; }
least=4 keep=7 back=''
while getopts s:k:r: c; do
    case $c in
    s) least=$OPTARG ;;
    k) keep=$OPTARG ;;
    r) back=$OPTARG ;;
    *) usage ;;
    esac
done
shift $((OPTIND - 1))
[[ $least =~ ^[0-9.]+$ && $keep =~ ^[1-9][0-9]*$ ]] || usage
[ -n "$back" ] && { [ $# -eq 1 ] || usage; } || [ -n "$back" ] || [ $# -ge 3 ] || usage
tables=$1
mkdir -p "$tables"
exec 9> "$tables/.lock"
flock -n 9 || { echo "engram-nightly.sh: $tables: another one is at work" >&2; exit 1; }

if [ -n "$back" ]; then
    table=$tables/$back.engram
    to=0 # 0: the table itself
    for ((i = 1; i <= 1000; i++)); do # a night that was killed may have left a gap
        [ -e "$table.$i" ] || continue
        mv "$table.$i" "$table$([ $to -eq 0 ] || echo ".$to")"
        to=$((to + 1))
    done
    [ $to -gt 0 ] || { echo "engram-nightly.sh: $table: no older table" >&2; exit 1; }
    exit 0
fi
held_out=$2
shift 2
rm -rf "$tables"/.work.* # of a night that was killed
work=$(mktemp -d "$tables/.work.XXXXXX")
trap 'rm -rf "$work"' EXIT

sum() { sha256sum < "$1" | cut -c1-64; }

# A list of lines that was written for a table is its list if that table was published before the night was killed.
for list in "$tables"/.*.seen.????????????????????????????????????????????????????????????????; do
    [ -e "$list" ] || continue
    seen=${list%.*} domain=${list##*/.}
    table=$tables/${domain%.seen.*}.engram
    if [ -e "$table" ] && [ "$(sum "$table")" = "${list##*.}" ]; then mv "$list" "$seen"; else rm "$list"; fi
done

# Texts by domain, sorted: lines that are the same count once.
jq -cR --argjson least "$least" 'fromjson? | objects | select((.score | type) == "number" and .score >= $least and (.text | type) == "string") |
    {domain: (.domain // "general" | tostring | gsub("[^A-Za-z0-9_-]"; "_") | if . == "" then "general" else . end), text}' "$@" | LC_ALL=C sort -u > "$work/all"
jq -r .domain "$work/all" | sort -u > "$work/domains"

perplexity() { chimere-engram-build score -q -j --engram "$1" "$held_out" | jq .ppl_engram; }

status=0
while read -r domain; do
    table=$tables/$domain.engram new=$work/$domain.engram seen=$tables/.$domain.seen
    touch "$seen"
    jq -c --arg d "$domain" 'select(.domain == $d) | {text}' "$work/all" | LC_ALL=C sort -u | LC_ALL=C comm -23 - "$seen" \
        > "$work/new.jsonl"
    [ -s "$work/new.jsonl" ] || continue
    if [ -e "$table" ]; then
        cp "$table" "$new"
        chimere-engram-build add -q -o "$new" "$work/new.jsonl"
        before=$(perplexity "$table")
    else
        chimere-engram-build build -q -o "$new" "$work/new.jsonl"
        before=$(chimere-engram-build score -q -j --engram "$new:0" "$held_out" | jq .ppl)
    fi
    after=$(perplexity "$new")
    lines=$(wc -l < "$work/new.jsonl")
    if jq -en "$after > $before * 1.001" > /dev/null; then
        echo "$domain: $lines texts would change the perplexity from $before to $after: not published" >&2
        status=4
        continue
    fi
    # Killed at any place here, a night leaves the old table or the new one, and the list that belongs to it.
    list=$seen.$(sum "$new")
    LC_ALL=C sort -u "$seen" "$work/new.jsonl" > "$list"
    sync "$list"
    for ((i = 1; i < keep; i++)); do # the older ones move up to the first gap, or the last falls out
        [ -e "$table.$i" ] || break
    done
    for (( ; i > 1; i--)); do
        mv "$table.$((i - 1))" "$table.$i"
    done
    if [ -e "$table" ]; then
        ln -f "$table" "$table.1" 2> /dev/null || { cp -p "$table" "$work/old" && mv "$work/old" "$table.1"; }
    fi
    mv "$new" "$table"
    mv "$list" "$seen"
    echo "$domain: $lines texts, perplexity $before to $after"
done < "$work/domains"
exit $status
