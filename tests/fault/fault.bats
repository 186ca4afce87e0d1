#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Each allocation, mapping, open, read, write, fsync and rename of a run fails in turn (shim.c). Whatever
# happens, the program ends by itself: either status 0 with the complete output, or status 1 with one line
# on stderr and no file that is not complete. CHIMERE_FAULT_PER_KIND is the number of places tried of each kind
# (all of them when there are fewer; a third at the start, then evenly spread).

setup_file()
{
    export BIN=${BIN:-bin} BUILD=${BUILD:-build}
    export SHIM=$PWD/$BUILD/test/fault-shim.so MODEL=$PWD/tests/golden/models/qwen35moe-k.iq3_s.gguf
    [ "${BUILD#/}" = "$BUILD" ] || SHIM=$BUILD/test/fault-shim.so
    export ASAN_OPTIONS=verify_asan_link_order=0 CHIMERE_FAULT_PER_KIND=${CHIMERE_FAULT_PER_KIND:-70}
}

places() # COUNT: which calls to fail
{
    awk -v n="$1" -v most="$CHIMERE_FAULT_PER_KIND" 'BEGIN {
        first = int(most / 3)
        for (i = 1; i <= n && i <= first; i++) print i
        step = (n - first) / (most - first)
        if (step < 1) step = 1
        for (x = first + step; x <= n + 0.5; x += step) print int(x)
    }'
}

# One line that names the program, and each file either complete or not there; status 1.
failed_well() # DIRECTORY STATUS
{
    local f
    [ "$(wc -l < "$1/got.err")" -eq 1 ] && grep -q '^chimere-run: .' "$1/got.err" || return 1
    for f in $(ls -A "$1/got"); do cmp "$1/want/$f" "$1/got/$f" || return 1; done
    [ "$2" -eq 1 ]
}

# in_turn COMMAND...: run in a directory of its own, where it may write files.
in_turn()
{
    local dir=$BATS_TEST_TMPDIR kind count n status tried=0
    mkdir -p "$dir/want" "$dir/got"
    (cd "$dir/want" && "$@" < /dev/null > ../want.out 2> ../want.err) || { cat "$dir/want.err"; return 1; }
    (cd "$dir/got" && CHIMERE_TEST_FAULT_LOG=$dir/log LD_PRELOAD=$SHIM "$@" < /dev/null > ../got.out 2> /dev/null)
    cmp "$dir/want.out" "$dir/got.out"
    [ -s "$dir/log" ]
    while read -r kind count; do
        [ "$kind" != cut ] && [ "$kind" != kill ] || continue
        for n in $(places "$count"); do
            rm -rf "$dir/got"
            mkdir "$dir/got"
            status=0
            (cd "$dir/got" && CHIMERE_TEST_FAULT=$kind:$n LD_PRELOAD=$SHIM timeout 20 "$@" \
                < /dev/null > ../got.out 2> ../got.err) || status=$?
            tried=$((tried + 1))
            if [ $status -eq 0 ]; then
                cmp "$dir/want.out" "$dir/got.out" && diff -r "$dir/want" "$dir/got" && continue
            elif failed_well "$dir" $status; then
                continue
            fi
            echo "$kind $n of $count: status $status, stderr and files:"
            cat "$dir/got.err"
            ls -A "$dir/got"
            return 1
        done
    done < "$dir/log"
    echo "$tried places"
    [ $tried -ge 6 ]
}

@test "inspect" {
    in_turn "$PWD/$BIN/chimere-run" -m "$MODEL" --inspect
}

@test "inspect as JSON" {
    in_turn "$PWD/$BIN/chimere-run" -m "$MODEL" --inspect --json
}

@test "tokenize" {
    in_turn "$PWD/$BIN/chimere-run" -m "$MODEL" --tokenize -p "The kernel keeps a list, 42 long."
}

@test "generate" {
    in_turn "$PWD/$BIN/chimere-run" -m "$MODEL" --raw -p "The kernel" -n 2 --temp 0 --threads 2 --ctx 64
}

@test "generate from copied weights" {
    CHIMERE_FAULT_PER_KIND=$((CHIMERE_FAULT_PER_KIND / 2))
    in_turn "$PWD/$BIN/chimere-run" -m "$MODEL" --raw -p "The kernel" -n 2 --temp 0 --threads 2 --ctx 64 --no-mmap
}

@test "answer a chat with tools" {
    echo '[{"role": "user", "content": "Can you convert 315 GBP to EUR?"}]' > "$BATS_FILE_TMPDIR/messages.json"
    CHIMERE_FAULT_PER_KIND=$((CHIMERE_FAULT_PER_KIND / 2))
    in_turn "$PWD/$BIN/chimere-run" -m "$PWD/share/models/chimere-nano-q5_k_m.gguf" -n 1 --temp 0 --threads 1 \
        --messages "$BATS_FILE_TMPDIR/messages.json" --tools "$PWD/share/demo/tools.json" --ctx 512
}

@test "logits to a file" {
    echo '[1, 2, 3, 4]' > "$BATS_FILE_TMPDIR/ids.json"
    in_turn "$PWD/$BIN/chimere-run" -m "$MODEL" --tokens "$BATS_FILE_TMPDIR/ids.json" -n 0 --threads 1 \
        --ctx 64 --logits logits.f32
}

@test "a model file that is cut while it is mapped" {
    for copy in "" --no-mmap; do
        cp "$MODEL" "$BATS_TEST_TMPDIR/cut.gguf"
        status=0
        CHIMERE_TEST_FAULT=cut:1 LD_PRELOAD=$SHIM "$BIN/chimere-run" -m "$BATS_TEST_TMPDIR/cut.gguf" --raw $copy \
            -p "The kernel" -n 2 --temp 0 > "$BATS_TEST_TMPDIR/out" 2> "$BATS_TEST_TMPDIR/err" || status=$?
        cat "$BATS_TEST_TMPDIR/err"
        [ "$(stat -c %s "$BATS_TEST_TMPDIR/cut.gguf")" -lt "$(stat -c %s "$MODEL")" ]
        [ $status -eq 3 ]
        [ "$(wc -l < "$BATS_TEST_TMPDIR/err")" -eq 1 ]
        grep -q '^chimere-run: .*cut\.gguf' "$BATS_TEST_TMPDIR/err"
    done
}

@test "a full disk" {
    status=0
    "$BIN/chimere-run" -m "$MODEL" --raw -p "The kernel" -n 2 --temp 0 > /dev/full 2> "$BATS_TEST_TMPDIR/err" ||
        status=$?
    cat "$BATS_TEST_TMPDIR/err"
    [ $status -eq 1 ]
    [ "$(wc -l < "$BATS_TEST_TMPDIR/err")" -eq 1 ]
}

# A running server, asked over lines and over HTTP: serve.py says what is tried.
serve_with_faults() # WAY
{
    local places=$((CHIMERE_FAULT_PER_KIND / 20))
    PATH=$PWD/$BIN:$PATH CHIMERE_MODEL=$PWD/share/models/chimere-nano-q5_k_m.gguf \
        python3 tests/fault/serve.py "$1" "$SHIM" "$((places > 3 ? places : 3))" "$BATS_TEST_TMPDIR"
}

@test "a server asked by lines: what fails within a request ends that one" {
    serve_with_faults lines
}

@test "a server asked over HTTP: what fails within a request ends that one" {
    ! grep -q 'without HTTP' <("$BIN/chimere-serve-stdio" --listen unix:no/such/place 2>&1) || skip "built without libmicrohttpd"
    serve_with_faults http
}

@test "a server asked over MCP: what fails within a request ends that one" {
    serve_with_faults mcp
}
