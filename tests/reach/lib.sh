# SPDX-License-Identifier: Apache-2.0
# lib.sh - read by each topic: counts what passes and prints the line that check.sh waits for.
set -u
topic=$(basename "$0" .sh) passed=0 failed=0

try() # NAME COMMAND...: one test; the end of what a failing one wrote is shown
{
    local name=$1 log
    shift
    log=$(mktemp)
    "$@" > "$log" 2>&1 < /dev/null
    local status=$?
    if [ $status -eq 0 ]; then
        passed=$((passed + 1))
        echo "ok   $topic: $name"
    else
        failed=$((failed + 1))
        echo "FAIL $topic: $name (status $status)"
        tail -n 20 "$log" | sed 's/^/    /'
    fi
    rm -f "$log"
}

skip() # WHY: the whole topic
{
    echo "reach/$topic: skipped: $*"
    exit 0
}

finish()
{
    echo "reach/$topic: $passed passed, $failed failed"
    exit $((failed > 0))
}
