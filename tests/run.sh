#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh - every test there is, suites side by side; one line for each in the order of this file, the output of what
# failed, at the end the slowest suites and "N passed, M failed" (", K skipped" when something was). Called by `make check`,
# which has built all.
# In the environment: MAKE, CC, BUILD, BIN, GOLDENS (a directory, or empty), FAST (not empty: only what takes a minute).
# Given names, runs only the suites whose names begin with one of them.
set -u
cd "$(dirname "$0")/.." || exit 1
MAKE=${MAKE:-make -s} BUILD=${BUILD:-build} BIN=${BIN:-bin}
export MAKE BUILD BIN CC="${CC:-cc}" LC_ALL=C.UTF-8
[ -n "${GOLDENS:-}" ] && export GOLDENS || unset GOLDENS
unset CHIMERE_MODEL CHIMERE_OPTS CHIMERE_TEST_SIMD CHIMERE_TEST_FAULT NO_COLOR
if [ -n "${GOLDENS:-}" ] && [ ! -d "$GOLDENS" ]; then
    echo "run.sh: GOLDENS: $GOLDENS is not a directory" >&2
    exit 1
fi

want=("$@")
logs=$(mktemp -d)
trap 'kill $(jobs -p) 2> /dev/null; wait; rm -rf "$logs"' EXIT
trap 'exit 1' INT TERM
passed=0 failed=0 skipped=0
names=() reported=() told=0 took="" # told: suites before it are all reported

# What takes more than a few seconds, which a fast check leaves out.
slow=" $(printf 'unit %s ' cache check draft gen gen_random placement reader session session_harm settle state) lint \
$(printf 'cli %s ' bench beside budget cache clients draft-train engram examples http jobs llama lora-train mtp-train) \
$(printf 'cli %s ' placement quantize rag reports serve session talk tool_loop same_answer) "

wanted() # NAME
{
    [[ -n ${FAST:-} && $slow == *" $1 "* ]] && return 1
    [ ${#want[@]} -eq 0 ] && return 0
    local w
    for w in "${want[@]}"; do [[ $1 == "$w"* ]] && return 0; done
    return 1
}

# Passed, failed and skipped, from the TAP lines in a file. Tests planned and never reported have failed, and
# so has a program that ends badly without saying which.
tap_counts() # STATUS LOG
{
    awk -v rc="$1" '
        /^1\.\.[0-9]+/ { plan += substr($1, 4) }
        /^(not )?ok [0-9]+.*# [Ss][Kk][Ii][Pp]/ { skip++; next }
        /^ok [0-9]+/ { good++ }
        /^not ok [0-9]+/ { bad++ }
        END {
            lost = plan - good - bad - skip
            if (lost > 0) bad += lost
            if (rc != 0 && !bad) bad = 1
            if (!good && !bad && !skip) bad = 1
            print good + 0, bad + 0, skip + 0
        }' "$2"
}

# One suite: its output to LOG.log, then "PASSED FAILED SKIPPED SECONDS" to LOG. What a shell starts beside
# itself would ignore interrupts, which tests send.
suite() # KIND LOG COMMAND...
{
    local kind=$1 log=$2 rc counts t
    shift 2
    t=$(date +%s.%N)
    env --default-signal=INT,QUIT timeout "${seconds_most:-900}" "$@" > "$log.log" 2>&1 < /dev/null &
    # shellcheck disable=SC2064
    trap "kill $! 2> /dev/null; exit 1" TERM
    wait $!
    rc=$?
    if [ "$kind" = tap ]; then
        counts=$(tap_counts $rc "$log.log")
    else
        counts="$((rc == 0)) $((rc != 0)) 0"
    fi
    [ $rc -eq 0 ] || echo "exit status $rc" >> "$log.log"
    echo "$counts $(date +%s.%N) $t" | awk '{ print $1, $2, $3, $4 - $5 }' > "$log.new"
    mv "$log.new" "$log"
}

# Reports the suites that have ended, in the order in which they began; a build holds up none.
tell()
{
    local i log good bad skip seconds

    for ((i = told; i < ${#names[@]}; i++)); do
        log=$logs/$i
        [ -z "${reported[i]:-}" ] || continue
        if [ ! -e "$log" ]; then
            [[ ${names[i]} == *' build' ]] || break
            continue
        fi
        reported[i]=1
        read -r good bad skip seconds < "$log"
        if [ "$good" = why ]; then
            skipped=$((skipped + 1))
            printf 'skip %-28s %s\n' "${names[i]}" "$bad $skip $seconds"
            continue
        fi
        took+="$seconds ${names[i]}"$'\n'
        passed=$((passed + good)) failed=$((failed + bad)) skipped=$((skipped + skip))
        printf '%-4s %-28s %5d passed %3d failed %3d skipped %6.1f s\n' \
            "$([ "$bad" -eq 0 ] && echo ok || echo FAIL)" "${names[i]}" "$good" "$bad" "$skip" "$seconds"
        if [ "$bad" -ne 0 ]; then
            grep -vE '^(ok |not ok .*# [Ss][Kk][Ii][Pp])' "$log.log" | tail -n 60 | sed 's/^/    /'
        fi
    done
    while [ -n "${reported[told]:-}" ]; do told=$((told + 1)); done
}

# Suites share nothing: as many run at a time as there are processors, and one for those that wait.
begin() # KIND NAME COMMAND...
{
    local kind=$1 name=$2
    shift 2
    wanted "$name" || return 0
    while [ "$(jobs -rp | wc -l)" -gt "$(nproc)" ]; do
        wait -n
        tell
    done
    suite "$kind" "$logs/${#names[@]}" "$@" &
    names+=("$name")
}

finish()
{
    wait
    tell
}

check() { begin check "$@"; } # NAME COMMAND...: one test, the command's status
tap() { begin tap "$@"; }     # NAME COMMAND...: many tests, TAP lines on stdout
export CMOCKA_MESSAGE_OUTPUT=TAP

# A build beside other suites, on half of the processors.
build() # NAME COMMAND...
{
    ! wanted "$1" || seconds_most=1800 check "$1 build" "${@:2}" -j$((($(nproc) + 1) / 2))
}

# Waits for a build; fails when that does, or was not wanted.
built() # NAME
{
    local i

    for i in "${!names[@]}"; do
        [ "${names[i]}" = "$1 build" ] || continue
        until [ -e "$logs/$i" ]; do
            wait -n
            tell
        done
        [[ $(< "$logs/$i") == "1 0 "* ]]
        return
    done
    return 1
}

skip() # NAME WHY
{
    wanted "$1" || return 0
    echo "why $2" > "$logs/${#names[@]}"
    names+=("$1")
    tell
}

# The last line, and the end.
result()
{
    local tail=""

    finish
    [ -n "${FAST:-}" ] || printf '%s' "$took" | sort -rn | head -n 10 | awk '{ s = $1; sub(/^[^ ]* /, ""); printf "slowest %-28s %6.1f s\n", $0, s }'
    [ $skipped -eq 0 ] || tail=", $skipped skipped"
    echo "$passed passed, $failed failed$tail"
    exit $((failed > 0))
}

# Random programs that write files take long: fewer of them than the 1,000 that the tests run alone.
units() # PREFIX DIRECTORY [ROOM...]: unit tests built in DIRECTORY, run by the emulator $emulator if there is one
{
    local prefix=$1 dir=$2 t name
    shift 2
    for t in tests/unit/*_test.c; do
        name=$(basename "$t" _test.c)
        [ $# -eq 0 ] || [[ " $* " == *" $name "* ]] || continue
        # shellcheck disable=SC2086
        case $name in
        cache | session | session_harm | settle | state) CHIMERE_TEST_PROGRAMS=${CHIMERE_TEST_PROGRAMS:-100} tap "$prefix $name" "$dir/${name}_test" ;;
        gen_random) CHIMERE_TEST_PROGRAMS=${CHIMERE_TEST_PROGRAMS:-40} tap "$prefix $name" "$dir/${name}_test" ;;
        *) tap "$prefix $name" ${emulator:-} "$dir/${name}_test" ;;
        esac
    done
}

corpora() # PREFIX DIRECTORY: each fuzz target over its saved corpus, with the plain driver
{
    local f name
    for f in tests/fuzz/fuzz_*.c; do
        [ -e "$f" ] || continue
        name=$(basename "$f" .c)
        check "$1 ${name#fuzz_}" "$2/test/$name" "tests/fuzz/corpus/${name#fuzz_}"
    done
}

scripts() # PREFIX FILE...: bats files; $without: a filter of tags, as bats takes it
{
    local prefix=$1 f
    shift
    for f; do
        [ -e "$f" ] || continue
        if command -v bats > /dev/null && command -v jq > /dev/null; then
            tap "$prefix $(basename "$f" .bats)" bats --tap ${without:+--filter-tags "$without"} "$f"
        else
            skip "$prefix $(basename "$f" .bats)" "bats and jq are not both installed"
        fi
    done
}

if command -v clang-tidy > /dev/null; then
    check lint $MAKE CUDA=0 lint
else
    skip lint "clang-tidy is not installed"
fi
command -v systemd-analyze > /dev/null || skip "style install: units" "systemd is not installed"
for s in tests/style/*.sh; do check "style $(basename "$s" .sh)" bash "$s"; done
if command -v mandoc > /dev/null; then
    for m in man/*.[157]; do
        [ -e "$m" ] && check "manual $(basename "$m")" mandoc -T lint -W warning "$m"
    done
else
    skip manual "mandoc is not installed"
fi

# The longest build goes on beside everything else: what it makes is run last.
# shellcheck disable=SC2016
[ -n "${FAST:-}" ] || build asan $MAKE SAN=asan PLAIN="$BUILD" CFLAGS='$(if $(filter cmd/% tests/%,$<),-O0,-O1) -g1 -fno-omit-frame-pointer' \
    BUILD="$BUILD/asan" BIN="$BUILD/asan/bin" tests

units unit "$BUILD/test"
corpora corpus "$BUILD"
scripts cli tests/cli/*.bats
[ -z "${FAST:-}" ] || result
scripts fault tests/fault/*.bats

# The other compiler, another processor and sanitizers, as far as they are installed: built beside what follows.
other=$([[ $CC == *clang* ]] && echo gcc || echo clang)
both=(base cpu gguf golden quant quant_int sample sample_bounds text)
threads=(base base_pool cpu_ops run)
programs_of() # DIRECTORY TEST...: the programs of unit tests
{
    printf '%s\n' "${@:2}" | sed "s|.*|$1/test/&_test|"
}
# of the library, what the tests of threads link
shared=$(printf '%s\n' libcore/*/*.c libcore/*/*/*.c | grep -vE '^libcore/(chat|engram|eval|gen|measure|ramp|serve|shape|text|tune)/')
# shellcheck disable=SC2046
build tsan $MAKE SAN=tsan BUILD="$BUILD/tsan" BIN="$BUILD/tsan/bin" LIB_C="${shared//$'\n'/ }" $(programs_of "$BUILD/tsan" "${threads[@]}")
if command -v "$other" > /dev/null; then
    # code that its programs do not run is compiled for its warnings alone
    never=$(printf 'libcore/%s/%% ' adapt ask chat engram eval gen grammar journal measure ramp reason recall serve shape train tune)
    # shellcheck disable=SC2046,SC2016
    build "$other" $MAKE CUDA=0 CC="$other" CFLAGS='$(if $(filter '"$never"'cmd/%,$<),-O0,-O2) -g1' BUILD="$BUILD/$other" BIN="$BUILD/$other/bin" all \
        $(programs_of "$BUILD/$other" "${both[@]}")
else
    skip "$other" "$other is not installed"
fi
# the headers of jansson and so on are this system's
if echo '#include <math.h>' | aarch64-linux-gnu-gcc -E - > /dev/null 2>&1; then
    build aarch64 $MAKE CUDA=0 CC="aarch64-linux-gnu-gcc -idirafter /usr/include" BUILD="$BUILD/aarch64" \
        "$BUILD/aarch64/libchimere.a"
else
    skip aarch64 "aarch64-linux-gnu-gcc and its C library are not both installed"
fi

# Unit tests with no more than one instruction set (those that go through all sets themselves are above); skipped
# where the processor lacks it. Every kernel must give what the scalar ones give.
features=" none $("$BIN/chimere-run" --version | tr '\n' ' ') "
in_set() # PREFIX SET ROOM...
{
    local prefix=$1 set=$2
    shift 2
    if [[ $features == *" $set "* ]]; then
        CHIMERE_TEST_SIMD=$set units "${prefix}simd=$set" "$BUILD/test" "$@"
    else
        skip "${prefix}simd=$set" "this processor has no $set"
    fi
}
for simd in none avx2 avx512; do in_set "" $simd cpu_ops cpu_seq golden; done
# From here on the small vectors of tests/golden are enough.
unset GOLDENS
for simd in avx2 avx512; do in_set "" $simd run; done

# The same programs on lesser processors: an instruction that one of them lacks ends a test.
same_answer='cmp <($0 "$BIN/chimere-run" --raw -p "The kernel" -n 4 2> /dev/null) <("$BIN/chimere-run" --raw -p "The kernel" -n 4)'
if command -v qemu-x86_64 > /dev/null && [ "$(uname -m)" = x86_64 ]; then
    for cpu in Haswell-noTSX Nehalem; do
        emulator="qemu-x86_64 -cpu $cpu" units "qemu $cpu" "$BUILD/test" base base_io gguf cpu quant quant_int
        check "qemu $cpu answer" bash -c "${same_answer/\$0/qemu-x86_64 -cpu $cpu}"
    done
else
    skip qemu "qemu-x86_64 is not installed, or this is another processor"
fi

# Activations as they are: another set of products, the same limits. And of 8 bits.
export CHIMERE_TEST_PROGRAMS=60
for acts in f32 i8; do
    export CHIMERE_TEST_ACTS=$acts
    units "acts=$acts" "$BUILD/test" cpu_ops golden run state
done
for simd in none avx2 avx512 vnni; do in_set "acts=i8 " $simd cpu_ops golden; done
unset CHIMERE_TEST_ACTS

if built "$other"; then units "$other" "$BUILD/$other/test" "${both[@]}"; fi

# Sanitizers look for what a plain run survives.
export CHIMERE_TEST_PROGRAMS=15
if built tsan; then units tsan "$BUILD/tsan/test" "${threads[@]}"; fi
if built asan; then
    units asan "$BUILD/asan/test"
    corpora asan-corpus "$BUILD/asan"
    ln -sfn "$(pwd)/share" "$BUILD/asan/share" # programs look for recipes beside bin
    export CHIMERE_MODEL=$PWD/share/models/chimere-nano-q5_k_m.gguf
    BIN="$BUILD/asan/bin" CHIMERE_FAULT_PER_KIND=6 scripts asan-fault tests/fault/*.bats
    # bench measures; the manuals' examples, the clients and same_answer run what the other scripts run; training would take
    # minutes; nights are run by the shell
    # shellcheck disable=SC2046
    BIN="$BUILD/asan/bin" without='!figures,!slow' scripts asan-cli \
        $(printf '%s\n' tests/cli/*.bats | grep -vE '/(bench|budget|clients|draft-train|examples|llama|lora-train|nightly|readme|same_answer)\.bats')
fi

result
