# SPDX-License-Identifier: Apache-2.0
# clients.bats - the real openai, anthropic, llm and mcp packages against chimere-serve-stdio. They are installed from PyPI into the
# build directory, once; where that cannot be reached the tests are skipped.

load common

# Checks of a package run in one process, which loads it once; tests look at what it wrote.
setup_file()
{
    local root
    root=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
    export CLIENTS=$root/${BUILD:-build}/clients
    if [ ! -e "$CLIENTS/all-installed" ]; then
        rm -rf "$CLIENTS"
        python3 -m venv "$CLIENTS" > /dev/null 2>&1 &&
            timeout 200 "$CLIENTS/bin/pip" install -q --retries 1 --timeout 10 openai anthropic llm mcp > /dev/null 2>&1 &&
            touch "$CLIENTS/all-installed"
    fi
    [ -e "$CLIENTS/all-installed" ] || return 0
    (
        BATS_TEST_TMPDIR=$BATS_FILE_TMPDIR
        setup
        start && env -u OPENAI_API_KEY -u OPENAI_BASE_URL NO_PROXY='*' timeout 300 "$CLIENTS/bin/python" \
            "$ROOT/tests/clients/openai_client.py" "$(jq -r .url served)" "$ROOT/share/eval/tools.jsonl" . streaming choices \
            tools responses structured logprobs errors cancel threads > checks 2>&1
        teardown
        echo secret > keys
        start --api-key-file keys && env -u ANTHROPIC_API_KEY -u ANTHROPIC_BASE_URL NO_PROXY='*' timeout 300 "$CLIENTS/bin/python" \
            "$ROOT/tests/clients/anthropic_client.py" "$(jq -r .url served)" secret "$ROOT/share/eval/tools.jsonl" . whole \
            streams tools structured errors together >> checks 2>&1
        teardown
    ) || true
}

need_clients()
{
    [ -e "$CLIENTS/all-installed" ] || skip "pip cannot install openai, anthropic, llm and mcp into $CLIENTS"
}
start() # OPTION...
{
    rm -f served
    chimere-serve-stdio --listen 127.0.0.1:0 --parallel 8 "$@" > served 2> served.err 3>&- &
    server=$!
    wait_for test -s served
}
listen()
{
    need_clients
    start || { grep -q 'without HTTP' served.err && skip "built without libmicrohttpd"; }
}
check() # NAME
{
    [ -e "$BATS_FILE_TMPDIR/$1" ] || listen
    cat "$BATS_FILE_TMPDIR/checks" "$BATS_FILE_TMPDIR/$1"
    [ ! -s "$BATS_FILE_TMPDIR/$1" ]
}
teardown()
{
    [ -n "${server:-}" ] || return 0
    kill -KILL "$server" 2> /dev/null || true
    wait "$server" 2> /dev/null || true
}

@test "openai: streams" { check streaming; }
@test "openai: choices, embeddings, models" { check choices; }
@test "openai: tools" { check tools; }
@test "openai: responses" { check responses; }
@test "openai: structured output" { check structured; }
@test "openai: log-probabilities" { check logprobs; }
@test "openai: errors" { check errors; }
@test "openai: cancel by leaving" { check cancel; }
@test "openai: eight at once" { check threads; }

@test "openai: files and batches" {
    need_clients
    printf 'one\ntwo\n' > keys
    start --files kept --api-key-file keys || { grep -q 'without HTTP' served.err && skip "built without libmicrohttpd"; }
    NO_PROXY='*' timeout 120 "$CLIENTS/bin/python" "$ROOT/tests/clients/openai_batches.py" "$(jq -r .url served)" one two 2>&1
}

@test "anthropic: blocks, usage, what ends an answer" { check anthropic-whole; }
@test "anthropic: streams" { check anthropic-streams; }
@test "anthropic: tools, and requests like Claude Code's" { check anthropic-tools; }
@test "anthropic: structured output" { check anthropic-structured; }
@test "anthropic: errors, keys" { check anthropic-errors; }
@test "anthropic: three at once" { check anthropic-together; }

@test "llm: streams, whole answers, schemas, tools" {
    listen
    bash "$ROOT/tests/clients/llm_client.sh" "$(jq -r .url served)" "$CLIENTS/bin/llm"
}

@test "mcp: the handshake of 2025-11-25, 2026-07-28 found out, 2026-07-28 at once" {
    need_clients
    for mode in "legacy 2025-11-25" "auto 2026-07-28" "2026-07-28 2026-07-28"; do
        # shellcheck disable=SC2086
        timeout 60 "$CLIENTS/bin/python" "$ROOT/tests/clients/mcp_client.py" $mode 2>&1
    done
}
