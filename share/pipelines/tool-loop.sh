#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tool-loop.sh - a model that may calculate and look at files: runs the tools it asks for and gives it the results,
# until it answers.
#
#   tool-loop.sh [-d DIRECTORY] [-n ROUNDS] QUESTION [OPTION OF chimere-run ...]
#
# -d: the directory whose files the model may list (default: this one); -n: how often it may ask (default 8).
# The answer goes to stdout, each call and its result to stderr. Needs chimere-run, jq and bc in PATH.
# Exit status: that of chimere-run where it fails; 1 when the answer cannot be written or a program is missing; 4 when the model goes on
# asking after the last round.
#
# What a model writes is data: a tool runs only if its name is in the list below, no shell ever sees an argument, the
# calculator takes digits and operators alone, and the listing stays within its directory.
set -euo pipefail
export LC_ALL=C.UTF-8

usage()
{
    sed -n 's/^# \{0,1\}//; 2,10p' "$0" | sed 1d >&2
    exit 2
}

dir=. rounds=8
while getopts d:n: option; do
    case $option in
    d) dir=$OPTARG ;;
    n) rounds=$OPTARG ;;
    *) usage ;;
    esac
done
shift $((OPTIND - 1))
[ $# -ge 1 ] || usage
case $rounds in '' | *[!0-9]* | ?????????*) usage ;; esac
rounds=$((10#$rounds))
for program in chimere-run jq bc; do
    command -v $program > /dev/null || { echo "tool-loop.sh: $program: not found" >&2; exit 1; }
done
question=$1
shift
dir=$(cd -- "$dir" && pwd -P)
files=$(mktemp -d)
trap 'rm -rf "$files"' EXIT

cat > "$files/tools.json" << 'END'
[{"type": "function", "function": {
    "name": "list_files",
    "description": "List the files in a directory.",
    "parameters": {"type": "object", "required": ["directory"], "properties": {
        "directory": {"type": "string", "description": "Directory path"}}}}},
 {"type": "function", "function": {
    "name": "calculator",
    "description": "Evaluate an arithmetic expression.",
    "parameters": {"type": "object", "required": ["expression"], "properties": {
        "expression": {"type": "string", "description": "Expression"}}}}}]
END

calculator() # EXPRESSION
{
    local out
    case $1 in
    '' | *[!0-9.+*/^\(\)\ -]*) echo "error: only numbers, + - * / ^ and brackets"; return ;;
    esac
    [ ${#1} -le 200 ] || { echo "error: the expression is longer than 200 characters"; return; }
    # bc says what is wrong on stderr and still ends with status 0.
    out=$(ulimit -v 262144 -t 5; printf '%s\n' "$1" | env -u BC_ENV_ARGS BC_LINE_LENGTH=0 timeout 5 bc -l 2>&1) ||
        out=error
    case $out in
    *[!0-9.-]* | '') echo "error: this cannot be worked out" ;;
    *) printf '%s\n' "$out" ;;
    esac
}

list_files() # DIRECTORY
{
    local path
    path=$(realpath -e -- "$dir/${1:-.}" 2> /dev/null) || { echo "error: there is no such directory"; return; }
    case $path/ in
    "${dir%/}"/*) ;;
    *) echo "error: outside of the directory"; return ;;
    esac
    [ -d "$path" ] || { echo "error: not a directory"; return; }
    find "$path" -mindepth 1 -maxdepth 1 -printf '%f%y\n' | sed 's/d$/\//; t; s/.$//' | sort | head -n 100
}

member() # NAME JSON: a member of the arguments, as text
{
    jq -r --arg k "$1" '.[$k] // empty | tostring' <<< "$2" 2> /dev/null || true
}

# The list of tools: what is not here does not run.
run_tool() # NAME ARGUMENTS
{
    case $1 in
    calculator) calculator "$(member expression "$2")" ;;
    list_files) list_files "$(member directory "$2")" ;;
    *) echo "error: there is no such tool" ;;
    esac
}

jq -n --arg q "$question" '[{role: "user", content: $q}]' > "$files/messages.json"
for ((round = 0; round <= rounds; round++)); do
    chimere-run --json --messages "$files/messages.json" --tools "$files/tools.json" "$@" < /dev/null > "$files/answer.json"
    if jq -e '.tool_calls // [] | length == 0' "$files/answer.json" > /dev/null; then
        jq -r .text "$files/answer.json" || exit 1
        exit 0
    fi
    [ "$round" -lt "$rounds" ] || break
    jq '[{role: "assistant", content: .text, reasoning_content: .reasoning, tool_calls: .tool_calls}]' \
        "$files/answer.json" > "$files/new.json"
    calls=$(jq '.tool_calls | length' "$files/answer.json")
    for ((i = 0; i < calls; i++)); do
        name=$(jq -r ".tool_calls[$i].function.name" "$files/answer.json")
        arguments=$(jq -r ".tool_calls[$i].function.arguments" "$files/answer.json")
        result=$(run_tool "$name" "$arguments")
        printf '%s %s\n%s\n' "$name" "$arguments" "$result" | tr -d '\000-\010\013-\037\177' >&2
        jq --arg r "$result" --argjson i "$i" --slurpfile a "$files/answer.json" \
            '. + [{role: "tool", tool_call_id: $a[0].tool_calls[$i].id, name: $a[0].tool_calls[$i].function.name, content: $r}]' \
            "$files/new.json" > "$files/more.json"
        mv "$files/more.json" "$files/new.json"
    done
    jq -s add "$files/messages.json" "$files/new.json" > "$files/more.json"
    mv "$files/more.json" "$files/messages.json"
done
echo "tool-loop.sh: no answer after $rounds rounds of calls" >&2
exit 4
