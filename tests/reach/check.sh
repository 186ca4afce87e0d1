#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check.sh [TOPIC...] - runs tests/reach/TOPIC.sh, each or these: packages, images and other machines, by the real programs.
# A topic prints "reach/TOPIC: N passed, M failed" or "reach/TOPIC: skipped: WHY" last (lib.sh does). One with a line
# "# packages: NAME..." (Debian's) or "# pypi: NAME..." runs in a fresh Debian that has them, with the tree in /src; the others
# make such roots themselves (share/root.sh). In all of them BIN is the directory of the programs. So nothing is installed on
# this machine; where this is not Debian, or the user not root, a topic runs here if it finds what it needs.
# In the environment: BIN, and REACH, the directory of the roots (a few GB).
set -u
cd "$(dirname "$0")/../.." || exit 1
export BIN="${BIN:-bin}" REACH="${REACH:-build/reach}" LC_ALL=C.UTF-8
BIN=$(realpath "$BIN") && mkdir -p "$REACH" && REACH=$(realpath "$REACH") || exit 1
[ $# -gt 0 ] || set -- $(ls tests/reach | sed -n '/^\(check\|lib\)\.sh$/d; s/\.sh$//p')
of() { for t; do sed -n "s/^# $key: //p" "tests/reach/$t.sh"; done | tr ' ' '\n' | sort -u; }
mapfile -t packages < <(key=packages of "$@")
mapfile -t pypi < <(key=pypi of "$@")
inside=
if [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null && [ ${#packages[@]} -gt 0 ]; then
    # the libraries of the programs, and what topics use besides
    sh share/root.sh new "$REACH/check" bash jq curl procps python3 ca-certificates \
        libjansson4 libpcre2-8-0 libzstd1 libmicrohttpd12 libopenblas0-pthread libedit2 ${pypi:+python3-pip} "${packages[@]}" > "$REACH/check.log" 2>&1 ||
        { tail "$REACH/check.log"; echo "no root: $REACH/check.log" >&2; exit 1; }
    inside=$REACH/check
    mkdir -p "$inside/src/bin"
    { git ls-files -z 2> /dev/null || find . -type f ! -path './build/*' ! -path './bin/*' -print0; } | tar -c --null -T - | tar -x -C "$inside/src"
    cp "$BIN"/chimere-* "$inside/src/bin"
    [ ${#pypi[@]} -eq 0 ] || { # pip as it is set up here
        for f in ${PIP_CERT:-} ${SSL_CERT_FILE:-} /etc/pip.conf; do [ ! -f "$f" ] || cp --parents "$f" "$inside"; done
        sh share/root.sh run "$inside" pip3 -q install --break-system-packages "${pypi[@]}" >> "$REACH/check.log" 2>&1 || tail -n 3 "$REACH/check.log"
    }
fi
missing() # TOPIC: packages that it needs here
{
    local p
    for p in $(key=packages of "$1"); do dpkg-query -W "$p" > /dev/null 2>&1 || printf ' %s' "$p"; done
    for p in $(key=pypi of "$1"); do python3 -m pip show -q "$p" > /dev/null 2>&1 || printf ' %s' "$p"; done
}
topic() # TOPIC: its log ends with its count and how long it took
{
    local start=$SECONDS
    if [ -z "$(key=packages of "$1"; key=pypi of "$1")" ]; then
        timeout 3600 bash "tests/reach/$1.sh"
    elif [ -n "$inside" ]; then
        timeout 3600 sh share/root.sh run "$inside" env -C /src BIN=/src/bin bash "tests/reach/$1.sh"
    elif [ -n "$(missing "$1")" ]; then
        echo "reach/$1: skipped: not installed:$(missing "$1")"
    else
        timeout 3600 bash "tests/reach/$1.sh"
    fi < /dev/null > "$REACH/$1.out" 2>&1
    tail -n 1 "$REACH/$1.out" | grep -q "^reach/$1: " || echo "reach/$1: 0 passed, 1 failed: it ended without a count" >> "$REACH/$1.out"
    echo "reach/$1 took $((SECONDS - start)) s" >> "$REACH/$1.out"
}
lane() { local t; for t; do topic "$t"; cat "$REACH/$t.out"; done; }
# Those of the common root, which wait for much of their time, beside those that make their own.
common=() own=()
for t; do
    if [ -n "$inside" ] && [ -n "$(key=packages of "$t"; key=pypi of "$t")" ]; then common+=("$t"); else own+=("$t"); fi
done
lane "${common[@]}" &
lane "${own[@]}"
wait
good=0 bad=0 skipped=0
for t; do
    b=1 g=0 s=0
    read -r b g s < <(sed -nE "s|^reach/$t: ([0-9]+) passed, ([0-9]+) failed.*|\2 \1 0|p; s|^reach/$t: skipped: .*|0 0 1|p" "$REACH/$t.out")
    good=$((good + g)) bad=$((bad + b)) skipped=$((skipped + s))
done
times > "$REACH/spent" # a pipe would have its own
echo "$good passed, $bad failed, $skipped skipped in $SECONDS s, processor time $(tail -n 1 "$REACH/spent")"
exit $((bad > 0))
