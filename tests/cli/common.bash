# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# common.bash - what the tests of the programs share. Each test runs in a directory of its own, with the
# programs first in PATH and the embedded model as default. BIN (or CHIMERE_BIN) is where the programs are.

setup()
{
    ROOT=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
    local bin=${CHIMERE_BIN:-${BIN:-bin}}
    [ "${bin#/}" != "$bin" ] || bin=$ROOT/$bin
    PROGRAM=$bin/chimere-run
    PATH=$bin:$PATH
    MODELS=$ROOT/tests/golden/models
    TINY=$MODELS/qwen35moe-k.iq3_s.gguf # 512 tokens, random weights, about a megabyte
    export PATH CHIMERE_MODEL=$ROOT/share/models/chimere-nano-q5_k_m.gguf
    export XDG_CACHE_HOME=${BATS_FILE_TMPDIR:-$BATS_TEST_TMPDIR}/.cache
    unset NO_COLOR CHIMERE_OPTS CHIMERE_MODELS
    cd "$BATS_TEST_TMPDIR" || return 1
}

# try STATUS COMMAND...: runs it with stdout to ./out and stderr to ./err; fails on another status.
try()
{
    local want=$1 got=0
    shift
    "$@" > out 2> err || got=$?
    if [ $got -ne "$want" ]; then
        echo "$*: status $got, wanted $want"
        head -c 2000 out err
        return 1
    fi
}

# no COMMAND...: fails if it succeeds (bats does not see a failing "! command").
no()
{
    ! "$@"
}

# The library of tests/fault, which makes calls fail or wait: $shim, for LD_PRELOAD.
find_shim()
{
    shim=${BUILD:-build}/test/fault-shim.so
    [ "${shim#/}" != "$shim" ] || shim=$ROOT/$shim
    [ -e "$shim" ] || skip "no $shim"
    export ASAN_OPTIONS=verify_asan_link_order=0
}

# wait_for COMMAND...: until it succeeds, for a minute at most.
wait_for()
{
    local i
    for ((i = 0; i < 600; i++)); do
        "$@" && return 0
        sleep 0.1
    done
    return 1
}

# fails STATUS TEXT COMMAND...: that status, nothing on stdout, one line on stderr, with TEXT in it.
fails()
{
    local want=$1 text=$2
    shift 2
    try "$want" "$@" < /dev/null || return 1
    if [ -s out ] || [ "$(wc -l < err)" -ne 1 ] || ! grep -qE '^chimere-[a-z-]+: ' err ||
        ! grep -qF -e "$text" err; then
        echo "$*: wanted one line with '$text', got:"
        cat out err
        return 1
    fi
}

# The numbers of a .i32 file as a JSON array.
ids_of()
{
    od -An -v -t d4 "$1" | tr -s ' \n' ',' | sed 's/^,*/[/; s/,*$/]/'
}
