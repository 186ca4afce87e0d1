#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# sanitize.sh - the tests of operations on a GPU under NVIDIA's compute-sanitizer, in parts side by side; a line for each part, its
# log if anything was reported, and at the end "N clean, M not". A part that has not ended after LIMIT_S seconds (status 124) is not.
# usage: bash tests/sanitize.sh [PROGRAM...]   (few_gpu_test ops_gpu_test check_test golden_test of BUILD)
# Built with -DRACECHECK (kernels/common/tma.cuh), for racecheck: make BUILD=build/sanitize NVCC_APPEND_FLAGS=-DRACECHECK \
#     build/sanitize/test/{few_gpu,ops_gpu,check,golden}_test && BUILD=build/sanitize bash tests/sanitize.sh
# In the environment: BUILD; TOOLS (memcheck initcheck racecheck), ACTS (i16 i8), PARTS of a program (16), ONLY, which of them
# (all), JOBS at a time (8), LIMIT_S (1200), SANITIZER, LOGS, a directory, for what was printed; for the tests
# CHIMERE_TEST_FILTER, which (all), CHIMERE_TEST_STEPS, how many of many steps (2). racecheck of models of true width
# (CHIMERE_TEST_FILTER=models PARTS=60, or other_formats and 108) takes up to 15 GB of memory a part.
set -eu
build=${BUILD:-build}
sanitizer=${SANITIZER:-$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)}
export CHIMERE_TEST_STEPS="${CHIMERE_TEST_STEPS:-2}"
export sanitizer PARTS="${PARTS:-16}" LIMIT_S="${LIMIT_S:-1200}" CHIMERE_TEST_DEVICE="${CHIMERE_TEST_DEVICE:-cuda}"
[ $# -gt 0 ] || set -- "$build"/test/{few_gpu,ops_gpu,check,golden}_test
[ -n "${LOGS:-}" ] || { LOGS=$(mktemp -d) && trap 'rm -rf "$LOGS"' EXIT; }
export LOGS
mkdir -p "$LOGS"
[ -x "$sanitizer" ] || { echo "sanitize.sh: $sanitizer: cannot be run" >&2; exit 1; }

part() # PROGRAM TOOL ACTS PART
{
    local log=$LOGS/${1##*/}.$2.$3.$4 rc=0 t=$SECONDS what
    CHIMERE_TEST_ACTS=$3 CHIMERE_TEST_PART=$4/$PARTS timeout "$LIMIT_S" \
        "$sanitizer" --tool "$2" --error-exitcode 9 "$1" > "$log" 2>&1 || rc=$?
    what="$2 $3 ${1##*/} $4/$PARTS, $((SECONDS - t)) s"
    if [ $rc -eq 0 ] && grep -q ' OK \]' "$log" &&
        grep -Eq 'SUMMARY: 0 (errors|hazards displayed \(0 errors, 0 warnings\))' "$log"; then
        echo "clean  $what"
    else
        what="not    $what: status $rc"$'\n'$(grep -Ev '^\[|^ *$' "$log" | head -n 20 | sed 's/^/    /')
        echo "$what" # at once, as others do this beside it
    fi
}
export -f part

for program; do
    [ -x "$program" ] || { echo "sanitize.sh: $program: cannot be run" >&2; exit 1; }
    for tool in ${TOOLS:-memcheck initcheck racecheck}; do
        for acts in ${ACTS:-i16 i8}; do
            for i in ${ONLY:-$(seq 0 $((PARTS - 1)))}; do echo "$program $tool $acts $i"; done
        done
    done
done > "$LOGS/parts"
clean=0
while IFS= read -r line; do
    echo "$line"
    [[ $line != clean* ]] || clean=$((clean + 1))
done < <(xargs -P "${JOBS:-8}" -L 1 bash -c 'part "$@"' part < "$LOGS/parts")
all=$(wc -l < "$LOGS/parts")
echo "$clean clean, $((all - clean)) not"
[ "$all" -gt 0 ] && [ "$clean" -eq "$all" ]
