#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# arm64.sh - the package for arm64, compiled by Debian's cross compiler against its arm64 libraries, run by qemu: the same
# bytes as the programs in BIN. With one thread: the qemu of Debian 12 waits for ever in pthread_create of a program of five lines.
. tests/reach/lib.sh
[ "$(id -u)" = 0 ] && command -v apt-get > /dev/null || skip "needs root on Debian"
[ "$(uname -m)" = x86_64 ] || skip "compares with x86_64"
BIN=$(realpath "${BIN:-bin}") REACH=$(realpath "${REACH:-build/reach}") root=$REACH/deb-arm64
export REACH CHIMERE_MODEL=/chimere/share/models/chimere-nano-q5_k_m.gguf
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT

builds() { ARCH=arm64 QUICK=1 sh share/deb.sh build/deb-arm64; }
unpacks()
{
    rm -rf "$root/arm" "$root/chimere" && mkdir -p "$root/chimere/share" "$root/chimere/models" &&
        dpkg-deb -x build/deb-arm64/chimere_*_arm64.deb "$root/arm" && cp -r share/models "$root/chimere/share" &&
        cp tests/golden/models/*.gguf "$root/chimere/models"
}
arm() # OUT OPTION...
{
    local out=$1
    shift
    sh share/root.sh run "$root" env CHIMERE_MODEL="$CHIMERE_MODEL" timeout 300 qemu-aarch64 /arm/usr/bin/chimere-run -t 1 "$@" > "$out"
}
x86() # OUT OPTION...: the same files by the same names, by the programs of BIN
{
    local out=$1
    shift
    cp "$BIN/chimere-run" "$root/chimere/run"
    sh share/root.sh run "$root" env CHIMERE_MODEL="$CHIMERE_MODEL" /chimere/run "$@" > "$out"
}
says_version() { arm "$work/version" --version && grep -q '^chimere-run ' "$work/version"; }
same_answer() # ACTS: text, token ids and log-probabilities
{
    local p
    for p in arm x86; do
        $p "$work/$p" -p 'What is 347 + 58?' --acts "$1" --json --logprobs 3 || return 1
        jq -c '{text, reasoning, token_ids, finish_reason, usage, logprobs}' "$work/$p" > "$work/$p.said" || return 1
    done
    jq -e '.text == "405" and (.logprobs | length) > 40' "$work/arm.said" && cmp "$work/arm.said" "$work/x86.said"
}
golden() # MODEL: the last four rows of prompt a are those of another implementation, within the limit of golden_test.c; all rows are those of x86
{
    local ids
    ids=$(od -An -v -t d4 -w4 tests/golden/models/a.i32 | tr -d ' ' | paste -sd ,) && echo "[$ids]" > "$root/chimere/ids" || return 1
    for p in arm x86; do
        $p "$work/text" -m "/chimere/models/$1.gguf" --tokens /chimere/ids -n 4 --temp 0 --logits /chimere/logits.$p || return 1
    done
    cmp "$root/chimere/logits.arm" "$root/chimere/logits.x86" || return 1
    paste <(tail -c 8192 "$root/chimere/logits.arm" | od -An -v -f -w4) <(od -An -v -f -w4 "tests/golden/models/$1/a.logits.f32") |
        awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > worst) worst = d; n++ } END { print n " logits, worst " worst; exit !(n == 2048 && worst < 2e-3) }'
}
try "the package is built" builds
try "it is unpacked" unpacks
try "its program starts" says_version
for acts in i16 i8 f32; do try "an answer with its log-probabilities, --acts $acts" same_answer $acts; done
for m in qwen35moe-a falconmamba-a lfm2moe-a; do try "golden $m" golden $m; done
finish
