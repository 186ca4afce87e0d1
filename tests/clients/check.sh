#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check.sh [CLIENT ...] - the first steps of public clients, at the versions in requirements/, with chimere-serve-stdio and the
# embedded model: a line for each step, at the end a table. Run by `make check-clients`, which needs PyPI and several GB of room.
# Exit status 1 if a step fails that KNOWN does not name.
set -euo pipefail
cd "$(dirname "$0")/../.."
BUILD=${BUILD:-build}
BIN=$(cd "${BIN:-bin}" && pwd)
VENV=$PWD/$BUILD/check-clients
CLIENTS=(openai litellm langchain llama_index instructor pydantic_ai openai_agents dspy guidance outlines smolagents strands llm aider mcp
    anthropic)
# What the server refuses, with its reason: a step that fails with another one counts as a failure.
KNOWN='^openai	(custom tools|dimensions|suffix|best_of|previous_response_id|conversations|images in messages)	fail: (BadRequest|NotFound)Error'
[ $# -eq 0 ] || CLIENTS=("$@")

# aider and strands want other versions of packages that the others have, too
install() # NAME
{
    local wanted=tests/clients/requirements/$1.txt
    if ! cmp -s "$wanted" "$VENV/$1/installed"; then
        rm -rf "${VENV:?}/$1"
        python3 -m venv "$VENV/$1"
        "$VENV/$1/bin/pip" install -q -r "$wanted"
        cp "$wanted" "$VENV/$1/installed"
    fi
}
install all
for client in "${CLIENTS[@]}"; do
    case $client in aider | strands) install "$client" ;; esac
done

work=$(mktemp -d)
servers=()
# shellcheck disable=SC2317
finish()
{
    [ ${#servers[@]} -eq 0 ] || kill "${servers[@]}" 2> /dev/null || true
    wait
    rm -rf "$work"
}
trap finish EXIT
printf 'one\ntwo\n' > "$work/keys"
serve() # NAME OPTION...
{
    "$BIN/chimere-serve-stdio" --listen 127.0.0.1:0 --parallel 8 --files "$work/$1.files" "${@:2}" > "$work/$1" 2> "$work/$1.err" &
    servers+=($!)
    for _ in $(seq 300); do [ -s "$work/$1" ] && return; sleep .1; done
    cat "$work/$1.err" >&2
    return 1
}
serve open
serve locked --api-key-file "$work/keys"
OPEN=$(jq -r .url "$work/open")
LOCKED=$(jq -r .url "$work/locked")
export OPEN LOCKED AIDER=$VENV/aider/bin/aider TOOLS=$PWD/share/eval/tools.jsonl PATH="$BIN:$PATH" HOME=$work NO_PROXY='*'
export DO_NOT_TRACK=1 OPENAI_AGENTS_DISABLE_TRACING=1 LITELLM_LOCAL_MODEL_COST_MAP=True HF_HUB_OFFLINE=1
unset OPENAI_API_KEY OPENAI_BASE_URL ANTHROPIC_API_KEY ANTHROPIC_BASE_URL
for client in "${CLIENTS[@]}"; do
    python=$VENV/all/bin/python
    [ "$client" != strands ] || python=$VENV/strands/bin/python
    "$python" tests/clients/first_steps.py "$client" 2> "$work/err" > "$work/steps" ||
        printf 'the client\tfail: %s\n' "$(tail -n 1 "$work/err")" >> "$work/steps"
    sed -u "s/^/$client\t/" "$work/steps" | tee -a "$work/all"
done
echo
awk -F '\t' '!($1 in n) { order[++clients] = $1 } { n[$1]++; all++ } $3 == "pass" { ok[$1]++; good++ } $3 ~ /^small/ { small[$1]++; little++ }
    END { for (i = 1; i <= clients; i++) { c = order[i]
              printf "%s: %d of %d%s\n", c, ok[c], n[c], small[c] ? ", the small model: " small[c] : "" }
          printf "all: %d of %d, the small model: %d\n", good, all, little }' "$work/all"
! grep -P '\tfail' "$work/all" | grep -vE "$KNOWN" | grep -q .
