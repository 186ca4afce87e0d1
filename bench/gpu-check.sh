#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# gpu-check.sh - builds for the GPU that is here and runs the tests of `make check-gpu` on it, several at once: a line
# "ok" or "FAILED" for each, the end of what a failed one said, and the count. Status 1 if any failed.
# usage: bench/gpu-check.sh [TEST...]   names of GPU_TESTS in the Makefile (settle, gen, ...); all unless given
# In the environment: CUDA_DEVICE (default cuda), CUDA_ARCHS (default the GPU's own), ACTS (default "i16 i8"), GOLDENS,
# JOBS, tests at once (default 6), LIMIT_S, seconds for all tests, those that have not ended then have failed (default
# 300), CHIMERE_TEST_PROGRAMS, random programs for each family (default 60), BENCH=1 builds chimere-bench, too,
# CUDA=0 with CUDA_DEVICE=cpu tries this script where there is no GPU.
# DEBS, a folder of Debian packages that are unpacked into build/debs and used from there, for a machine
# without a network: libjansson-dev libpcre2-dev libzstd-dev libcmocka-dev, their libraries, and zstd.
set -u
cd "$(dirname "$0")/.." || exit 1
if [ -n "${DEBS:-}" ]; then
    root=$PWD/build/debs
    mkdir -p "$root"
    for deb in "$DEBS"/*.deb; do dpkg -x "$deb" "$root" || exit 1; done
    lib=$root/usr/lib/$(gcc -dumpmachine)
    export CPATH=$root/usr/include LIBRARY_PATH=$lib LD_LIBRARY_PATH=$lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} PATH=$PATH:$root/usr/bin
else
    sh share/deps.sh build check || exit 1
fi
arch=${CUDA_ARCHS:-$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d .)}
make=(make -s CUDA="${CUDA:-1}" "CUDA_ARCHS=$arch")
from=$SECONDS
[ $# -gt 0 ] && tests=$* || tests=$(sed -n 's/^GPU_TESTS = //p' Makefile)
# shellcheck disable=SC2046,SC2086
"${make[@]}" $(printf 'build/test/%s_test ' $tests) ${BENCH:+bin/chimere-bench} || { echo "FAILED build"; exit 1; }
echo "built for $arch in $((SECONDS - from)) s"

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
export logs end=$((SECONDS + ${LIMIT_S:-300})) CHIMERE_TEST_DEVICE=${CUDA_DEVICE:-cuda} GOLDENS=${GOLDENS:-}
export CHIMERE_TEST_PROGRAMS=${CHIMERE_TEST_PROGRAMS:-60}

one() # ACTS TEST SECONDS
{
    local log=$logs/$1-$2 from=$SECONDS rc=0
    CHIMERE_TEST_ACTS=$1 timeout "$3" "build/test/$2_test" > "$log" 2>&1 || rc=$?
    if [ $rc -eq 0 ]; then
        echo "ok     $1 $2 ($((SECONDS - from)) s)"
    else
        echo "FAILED $1 $2 ($((SECONDS - from)) s, status $rc$([ $rc -ne 124 ] || echo ": out of time"))"
        grep -v -e '^\[ RUN' -e '^\[ *OK' "$log" | tail -12 | sed 's/^/    /'
    fi | tee -a "$logs/all"
}

for acts in ${ACTS:-i16 i8}; do
    for test in $tests; do
        while [ "$(jobs -pr | wc -l)" -ge "${JOBS:-6}" ]; do wait -n; done
        left=$((end - SECONDS))
        one "$acts" "$test" $((left > 1 ? left : 1)) &
    done
done
wait
failed=$(grep -c ^FAILED "$logs/all")
echo "$(grep -c '^ok' "$logs/all") passed, $failed failed, $((SECONDS - from)) s with the build"
[ "$failed" -eq 0 ]
