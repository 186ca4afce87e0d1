#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# quote.sh - each claim of an answer with the file and line where it stands, or the word that it stands nowhere
#
#   quote.sh [-j] [--strict] < INPUT
#
# INPUT: a line of JSON, {"notes": [{"source", "line", "text"}, ...]}, and behind it the answer. -j: JSON, with the words that
# are the same. --strict: status 4 unless every claim is quoted.
set -eu
export LC_ALL=C.UTF-8
here=$(cd -- "$(dirname -- "$0")" && pwd)
form=shown strict=
for word; do
    case $word in
    -j) form=. ;;
    --strict) strict=1 ;;
    *) sed -n '3,/^[^#]/ { s/^# \{0,1\}//p; }' "$0" >&2; exit 2 ;;
    esac
done
IFS= read -r notes || notes=''
[ -n "$notes" ] && printf '%s' "$notes" | jq -e '.notes | type == "array" and all(.[]; (.text | type) == "string")' > /dev/null 2>&1 ||
    { echo 'quote.sh: the first line has no notes' >&2; exit 3; }
checked=$(jq -cRs -L "$here" --argjson notes "$notes" 'include "quote"; rtrimstr("\n") | check($notes.notes)')
printf '%s\n' "$checked" | jq -rc -L "$here" "include \"quote\"; $form"
[ -z "$strict" ] || printf '%s\n' "$checked" | jq -e .quoted > /dev/null || exit 4
