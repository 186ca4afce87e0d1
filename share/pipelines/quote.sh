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
    -j) form=tojson ;;
    --strict) strict=1 ;;
    *) sed -n '3,/^[^#]/ { s/^# \{0,1\}//p; }' "$0" >&2; exit 2 ;;
    esac
done
# One line more in front: whether all is quoted, or that there are no notes.
checked=$(jq -rRs -L "$here" "include \"quote\"; (split(\"\n\")[0] // \"\") as \$line | (\$line | fromjson? // {}) as \$first |
    if (\$first | type == \"object\" and (.notes | type) == \"array\" and all(.notes[]; (.text? | type) == \"string\")) then
        (.[(\$line | length) + 1:] | rtrimstr(\"\n\") | check(\$first.notes)) | .quoted, ($form)
    else \"none\" end")
quoted=${checked%%"
"*}
[ "$quoted" != none ] || { echo 'quote.sh: the first line has no notes' >&2; exit 3; }
printf '%s\n' "${checked#*"
"}"
[ -z "$strict" ] || [ "$quoted" = true ] || exit 4
