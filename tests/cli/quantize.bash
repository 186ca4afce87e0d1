# SPDX-License-Identifier: Apache-2.0
# quantize.bash - for the tests of chimere-quantize.

# refuses STATUS TEXT COMMAND...: that status, one line with TEXT on stderr, nothing on stdout.
refuses()
{
    local want=$1 text=$2
    shift 2
    try "$want" "$@" < /dev/null || return 1
    [ ! -s out ] && [ "$(wc -l < err)" -eq 1 ] && grep -q '^chimere-quantize: ' err && grep -qF -e "$text" err && return
    echo "$*: wanted one line with '$text', got:"
    cat out err
    return 1
}
