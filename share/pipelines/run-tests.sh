#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run-tests.sh - Python that a model wrote, and tests of it, in a sandbox. Standard input: a line of JSON with the tests
# ({"tests": "assert ..."}), behind it the code, in a fence or not. What an expression at its end gives is `answer`.
#
# Exit status: 0 the tests passed; 1 they did not, and the reason is printed; 77 there is no sandbox, or no Python in it.
set -euo pipefail
export LC_ALL=C.UTF-8
here=$(cd -- "$(dirname -- "$0")" && pwd)
. "$here/../jobs/sandbox.sh"
tmp=$(mktemp -d) seconds=10 sandbox=''
trap 'rm -rf -- "$tmp"' EXIT
pick_sandbox
[ -n "$sandbox" ] || { echo 'there is no sandbox here: neither systemd-run --user nor bwrap makes one'; exit 77; }
"$sandbox" python3 -I -c '' 2> /dev/null || { echo 'there is no python3 in the sandbox'; exit 77; }
IFS= read -r line
# Nothing that the model writes becomes a part of a command or of the program around it: it is a string there.
case_json=$(awk '/^```/ { if (fence++) exit; text = ""; next } { text = text $0 "\n" } END { printf "%s", text }' |
    jq -cRs --argjson case "$line" '[., ($case.tests // "" | tostring)]')
word=$(cat /proc/sys/kernel/random/uuid)
status=0
{
    printf 'import ast, json\ncode, tests = json.loads(%s)\n' "$(jq -n --arg s "$case_json" '$s')"
    cat << 'END'
scope = {'__name__': '__main__'}
tree = ast.parse(code, 'code')
last = ast.Expression(tree.body.pop().value) if tree.body and isinstance(tree.body[-1], ast.Expr) else None
exec(compile(tree, 'code', 'exec'), scope)
if last:
    scope['answer'] = eval(compile(last, 'code', 'eval'), scope)
exec(compile(tests, 'tests', 'exec'), scope)
END
    printf "print('\\\\n%s')\n" "$word"
} | "$sandbox" python3 -I - > "$tmp/out" 2>&1 || status=$?
[ "$(tail -c 1000 "$tmp/out" | tail -n 1)" = "$word" ] && exit 0
[ $status -ne 124 ] || echo "it took longer than $seconds seconds"
# What went wrong, and where: the end of Python's report, without this program's own lines.
tail -c 2000 "$tmp/out" | awk '/^  File "(code|tests)", line/ { at = $2 " " $3 " " $4; sub(/,$/, "", at) } { last = $0 }
    END { gsub(/"/, "", at); print last (at != "" ? " (" at ")" : "") }' | tail -c 500
exit 1
