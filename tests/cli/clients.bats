# SPDX-License-Identifier: Apache-2.0
# clients.bats - the real openai package against chimere-serve-stdio --listen. It is installed from PyPI into the build
# directory, once; where that cannot be reached the tests are skipped.

load common

setup_file()
{
    local root
    root=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
    export CLIENTS=$root/${BUILD:-build}/clients
    [ -e "$CLIENTS/installed" ] && return 0
    rm -rf "$CLIENTS"
    python3 -m venv "$CLIENTS" > /dev/null 2>&1 &&
        timeout 100 "$CLIENTS/bin/pip" install -q --retries 1 --timeout 10 openai > /dev/null 2>&1 &&
        touch "$CLIENTS/installed"
    return 0
}

check() # NAME [ARGUMENT]
{
    [ -e "$CLIENTS/installed" ] || skip "pip cannot install openai into $CLIENTS"
    chimere-serve-stdio --listen 127.0.0.1:0 --parallel 8 > served 2> served.err 3>&- &
    server=$!
    wait_for test -s served || { grep -q 'without HTTP' served.err && skip "built without libmicrohttpd"; }
    env -u OPENAI_API_KEY -u OPENAI_BASE_URL NO_PROXY='*' timeout 60 "$CLIENTS/bin/python" \
        "$ROOT/tests/clients/openai_client.py" "$(jq -r .url served)" "$@" 2>&1
}
teardown()
{
    [ -n "${server:-}" ] || return 0
    kill -KILL "$server" 2> /dev/null || true
    wait "$server" 2> /dev/null || true
}

@test "openai: streams" { check streaming; }
@test "openai: choices, embeddings, models" { check choices; }
@test "openai: tools" { check tools "$ROOT/share/eval/tools.jsonl"; }
@test "openai: structured output" { check structured; }
@test "openai: log-probabilities" { check logprobs; }
@test "openai: errors" { check errors; }
@test "openai: cancel by leaving" { check cancel; }
@test "openai: eight at once" { check threads; }
