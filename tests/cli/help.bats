#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# -h, the manual and the completions come to the same options; -h and --version say what they should.
load common

# "letter name arg" for each option, sorted.
options_of_program()
{
    chimere-run --help-json | jq -r '.options[] | [.letter // "-", .name, .arg // "-"] | join(" ")' | sort
}

options_of_manual()
{
    sed -n -e 's/^\.It Fl \([A-Za-z]\) , Fl -\([a-z-]*\) Ar \(.*\)$/\1 \2 \3/p' \
        -e 's/^\.It Fl \([A-Za-z]\) , Fl -\([a-z-]*\)$/\1 \2 -/p' \
        -e 's/^\.It Fl -\([a-z-]*\) Ar \(.*\)$/- \1 \2/p' \
        -e 's/^\.It Fl -\([a-z-]*\)$/- \1 -/p' "$ROOT/man/chimere-run.1" | sort
}

@test "the manual has every option of the program, with the same argument, and no other" {
    options_of_program > program
    options_of_manual > manual
    [ "$(wc -l < program)" -gt 40 ]
    diff program manual
}

@test "-h lists every option, in 80 columns" {
    try 0 chimere-run -h
    [ ! -s err ]
    chimere-run --help-json | jq -r '.options[] | "--" + .name + (if .arg then " " + .arg else "" end)' > names
    while read -r name; do grep -qF -e " $name" out || { echo "$name"; false; }; done < names
    [ "$(awk 'length > 80' out | wc -l)" -eq 0 ]
    chimere-run --help | cmp - out
}

@test "sections of -h are those of the manual" {
    chimere-run --help-json | jq -r '[.options[].section] | unique | .[]' | sort > program
    sed -n '/^\.Sh DESCRIPTION/,/^\.Sh SAMPLING/s/^\.Ss //p' "$ROOT/man/chimere-run.1" | sort > manual
    diff program manual
}

@test "--version" {
    try 0 chimere-run --version
    grep -qE '^chimere-run [0-9]+\.[0-9]+\.[0-9]+$' out
    grep -q '^devices: cpu' out
    grep -q '^libraries: jansson ' out
    grep -q '^devices: cpu; .*CUDA' out || grep -q '^devices: cpu, cuda:0 (' out
    for p in "${PROGRAM%/*}"/chimere-*; do
        "$p" -V > short
        "$p" --version | cmp - short
        fails 2 'help: did you mean --help?' "$p" help
        fails 2 'version: did you mean --version?' "$p" version
    done
    fails 2 '--list-devices: --version lists them' chimere-run --list-devices
}

@test "completions: bash" {
    chimere-run --completion bash > c
    bash -n c
    # shellcheck disable=SC1091
    source ./c
    COMP_WORDS=(chimere-run --think '') COMP_CWORD=2
    _chimere_run
    [ "${COMPREPLY[*]}" = "on off auto" ]
    COMP_WORDS=(chimere-run --log) COMP_CWORD=1
    _chimere_run
    [ "${COMPREPLY[*]}" = "--logprobs --logit-bias --logits --logits-last --log --log-size" ]
    touch file.gguf
    COMP_WORDS=(chimere-run -m fil) COMP_CWORD=2
    _chimere_run
    [ "${COMPREPLY[*]}" = "file.gguf" ]
    complete -p chimere-run
}

# words PROGRAM COMMAND-LINE...: what bash completes after it
words()
{
    "$1" --completion bash > c
    bash -c 'source ./c; shift 0; COMP_WORDS=("$@" ""); COMP_CWORD=$#; "_${1//-/_}"; echo "${COMPREPLY[*]}"' bash "$@"
}

# bats test_tags=slow
@test "completions know what options take, and all of it is understood" {
    [ "$(words chimere-bench chimere-bench)" = "speed bandwidth ppl kl eval synth plot state speculate kernels score classify reason calibrate" ]
    [ "$(words chimere-run chimere-run --tool-choice)" = "auto none required" ]
    for kv in $(words chimere-run chimere-run --kv); do try 0 chimere-run --raw -p x -n 1 --kv "$kv"; done
    for device in $(words chimere-run chimere-run --device); do
        [ "$device" = cuda ] || try 0 chimere-run --raw -p x -n 1 --device "$device"
    done
    for parser in $(words chimere-run chimere-run --parse); do echo x | chimere-run --parse "$parser" > out; done
    touch drafter.gguf
    for draft in $(words chimere-run chimere-run --draft); do
        [ "$draft" = engram ] || [ "$draft" = drafter.gguf ] || [ "${draft%.gguf}" != "$draft" ] || [ -e "$draft" ] ||
            try 0 chimere-run --raw -p x -n 1 --draft "$draft"
    done
    [[ " $(words chimere-run chimere-run --draft) " == *" drafter.gguf "* ]]
    [[ " $(words chimere-run chimere-run --lora) " == *" drafter.gguf "* ]]
    [ "$(words chimere-bench chimere-bench synth --shape | tr ' ' '\n')" = \
        "$(chimere-bench synth | head -n "$(words chimere-bench chimere-bench synth --shape | wc -w)")" ]
    for mix in $(words chimere-bench chimere-bench synth --mix); do
        try 0 chimere-bench synth --shape qwen3.5-0.8b --mix "$mix"
    done
    for type in $(words chimere-quantize chimere-quantize --type); do
        [ "$type" = list ] || [ -e "$ROOT/share/recipes/$type.recipe" ] || { echo "$type"; false; }
    done
    no grep -q 'CHIMERE' c
}

@test "completions: zsh" {
    chimere-run --completion zsh > c
    [ "$(head -n 1 c)" = "#compdef chimere-run" ]
    [ "$(grep -c -- '--' c)" -ge 50 ]
    command -v zsh > /dev/null || skip "zsh is not installed"
    zsh -n c
    grep -q -- "--device=\[.*\]:name:(cpu cuda auto)'" c
}

@test "completions: fish" {
    chimere-run --completion fish > c
    [ "$(grep -c '^complete -c chimere-run' c)" -eq "$(options_of_program | wc -l)" ]
    command -v fish > /dev/null || skip "fish is not installed"
    fish -n c
}

@test "the manuals are clean, with exit statuses and examples" {
    command -v mandoc > /dev/null || skip "mandoc is not installed"
    for m in chimere.7 chimere-run.1 chimere-jsonl.5; do
        mandoc -T lint -W warning "$ROOT/man/$m"
        grep -q '^\.Sh EXAMPLES' "$ROOT/man/$m"
    done
    grep -q '^\.Sh EXIT STATUS' "$ROOT/man/chimere-run.1"
}

@test "manuals keep their quotes, and tables fit into 80 columns" {
    no grep -nE '^\.[A-Z].* "[^"]*"[^ "]' "$ROOT"/man/* # a macro takes quotes around an argument away
    no grep -nE '^\..*Dq .* Dq ' "$ROOT"/man/*           # the second quotation would be within the first
    command -v groff > /dev/null || skip "groff is not installed"
    for m in "$ROOT"/man/*; do
        groff -mdoc -T ascii "$m" > /dev/null 2>> warnings
    done
    no grep . warnings
}

@test "the manual names the architectures that there are" {
    sed -n 's/^ARCH(\(.*\))$/\1/p' "$ROOT/libcore/arch/archs.def" | sort > program
    [ -s program ]
    sed -n 's/^\.It \([^ ]*\) Ta .*/\1/p' "$ROOT/man/chimere-families.7" | tr - _ | sort > manual
    diff program manual
}

@test "help by topic and by command" {
    try 0 chimere-run --help=sampl
    grep -q -e '--top-k' out
    no grep -q -e '--messages' out
    fails 2 "no such topic" chimere-run --help=nonsense
    try 0 chimere-bench speed -h
    grep -q '^usage: chimere-bench speed' out
    grep -q -e '--depth' out
    no grep -q -e '--stride' out
    try 0 chimere-bench -h
    for c in speed bandwidth ppl kl eval synth plot state speculate; do grep -qE "^  $c  +[A-Z]" out; done
    [ "$(awk 'length > 80' out | wc -l)" -eq 0 ]
    try 0 chimere-run -V
    chimere-run --version | cmp - out
}

@test "completions: commands, and choices behind =" {
    chimere-bench --completion bash > c
    bash -n c
    # shellcheck disable=SC1091
    source ./c
    COMP_WORDS=(chimere-bench spee) COMP_CWORD=1
    _chimere_bench
    [ "${COMPREPLY[*]}" = speed ]
    COMP_WORDS=(chimere-bench eval --think = o) COMP_CWORD=4
    _chimere_bench
    [ "${COMPREPLY[*]}" = "on off" ]
    touch file
    COMP_WORDS=(chimere-bench ppl fil) COMP_CWORD=2
    _chimere_bench
    [ "${COMPREPLY[*]}" = file ]
}

@test "the picture of speeds is that of the tables in bench" {
    bash "$ROOT/bench/picture.sh" "$ROOT/bench/cpu.md" "$ROOT/bench/serve.md" > picture
    [ "$(grep -c '<rect x' picture)" -eq 22 ]
    # bars are as long as their numbers: 529 and 263 of 793 tokens a second
    grep -q 'width="110.1".*>529<' picture && grep -q 'width="54.7".*>263<' picture && grep -q 'width="165.0".*>793<' picture
    cmp picture "$ROOT/bench/speed.svg"
}
