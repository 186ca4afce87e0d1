#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# words.sh - what the repository does not say: paths of somebody's machine, marks of unfinished work,
# addresses that a build or a program would reach out to. And what every source says: its licence.
cd "$(dirname "$0")/../.." || exit 1
set -u
bad=0
if git rev-parse --git-dir > /dev/null 2>&1; then files=$(git ls-files)
else files=$(find . -type f ! -path './.git/*' ! -path './build/*' ! -path './bin/*' | sed 's|^\./||')
fi
text=$(printf '%s\n' "$files" |
    grep -vE '\.(gguf|f32|i32|q|bin|tsv|jsonl)$|^tests/(golden|fuzz/corpus)/|^tests/style/words\.sh$|^share/eval/.*\.txt$|^LICENSE$')
sources=$(printf '%s\n' "$text" | grep -E '(^Makefile|\.(c|h|cu|cuh|inc|def|sh|bash|bats|py))$')

complain() # TEXT, with the offending lines on stdin
{
    local lines
    lines=$(cat)
    [ -z "$lines" ] && return
    printf '%s:\n%s\n' "$1" "$lines"
    bad=1
}

among() { printf '%s\n' "$sources" | grep -E "$1"; echo /dev/null; }

# shellcheck disable=SC2046,SC2086
{
    complain "a path of one machine" < <(grep -nIE '(^|[^A-Za-z0-9_.])/(work|home|root)/' $text | grep -v '^share/models/train/')
    complain "a path of one machine in a record" < <(
        printf '%s\n' "$files" | grep -E '^bench/results/.*\.zst$' | xargs zstdcat | grep -noE '[ "]/(work|home|root|tmp)/[^ "]*')
    complain "a path outside the repository" < <(grep -nIF '../shared' $text | grep -v '^\.ci/run:')
    complain "unfinished work" < <(grep -nIwE 'TODO|FIXME|XXX|HACK|WIP' $(among .))
    complain "unfinished work" < <(grep -nIiE 'not (yet )?implemented|placeholder' $(among '^(libcore|cmd|kernels)/'))
    complain "a build or a program that reaches out" < <(
        grep -nIE '[a-z]+://[a-z]' $(among '^(Makefile|share/[a-z-]+\.sh)')
        # fetch.c prints a command for the user to run
        grep -nIE '"[^"]*[a-z]+://[a-z]' $(among '^(libcore|cmd|kernels)/' | grep -vx cmd/cli/fetch.c))
    complain "no SPDX line" < <(grep -LE 'SPDX-License-Identifier: Apache-2\.0' \
        $(among '^(libcore|cmd|kernels|tests)/.*\.(c|h|cu|cuh|sh)$') | grep -v '^/dev/null$')
    complain "a phrase that hides what is meant: give the number, the name or the usual word" < <(
        hidden='(^|[^a-z])so many|comes? apart|taken apart|(goes|comes?) along|left aside|gone on (from|with)|what (there is|is there)'
        hidden="$hidden|by whomever|(is|are) said([^a-z]|$)|are told|memory of their own|of no use"
        grep -nIiE "$hidden" $(among '^(libcore|cmd|kernels)/') $(printf '%s\n' "$text" | grep -E '^man/'))
    complain "a line over 132 columns" < <(grep -nIE '.{133}' $(among '\.(c|h|cu|cuh|inc|def)$'))
    complain "a line over 160 columns that has no JSON" < <(
        grep -nIE '.{161}' $(among '\.(sh|bash|bats|py)$' | grep -v '^share/models/train/') | grep -vE '\{\\?"|\{[a-z_]+: ')
    complain "white space at the end of a line" < <(grep -nIE '[[:space:]]+$' $(among '\.(c|h|cu|cuh|sh)$'))
    complain "a tab (four spaces)" < <(grep -nP '\t' $(among '\.(c|h|cu|cuh)$'))
}
exit $bad
