#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# chimere-from-llama(7): every row of its tables is what the programs do.
load common

# rows TITLE: "form<TAB>name" for each spelling of each row; the name is empty where there is no such option here.
rows()
{
    awk -v title="$1" -F'"' '
        /^\.S[sh] / { on = $0 == ".Ss " title }
        on && /^\.It Li "/ { n = split($2, form, /, /) }
        on && /^\.Fl -/ { split($0, word, " "); for (i = 1; i <= n; i++) print form[i] "\t" word[2]; n = 0 }
        on && /^no: / { for (i = 1; i <= n; i++) print form[i] "\t"; n = 0 }' "$ROOT/man/chimere-from-llama.7"
}

# try_rows PROGRAM TITLE LEAST
try_rows()
{
    local form name words bad=0
    rows "$2" > rows
    [ "$(wc -l < rows)" -ge "$3" ]
    "$1" --help-json | jq -r '.options[].name' > names
    while IFS=$'\t' read -r form name; do
        read -ra words <<< "$(tried "$form")"
        if [ -n "$name" ]; then
            grep -qxF -e "${name#-}" names || { echo "$form: no option -$name"; bad=1; }
            "$1" "${words[@]}" -h > out 2> err || { echo "$form: refused: $(cat err)"; bad=1; }
        else
            status=0
            "$1" "${words[@]}" -h > out 2> err || status=$?
            # An answer of its own, which names the option as it was typed.
            if [ $status -ne 2 ] || ! grep -qF -e "${words[0]}" err || grep -q 'unknown option' err; then
                echo "$form: status $status: $(cat err)"
                bad=1
            fi
        fi
    done < rows
    [ $bad -eq 0 ]
}

# The words of a form, with a value that it takes in place of N and the like.
tried() { sed -e 's/ N$/ 1/; s/ X$/ 0.5/; s/+X$/+0.5/; s/ FILE$/ some.file/; s/ TEXT$/ word/; s/ T$/ q8_0/' <<< "$1"; }

@test "every name sets the option that the table names, and no other" {
    ln -s "$CHIMERE_MODEL" m.gguf
    rows 'llama-cli and chimere-run' | awk -F'\t' '$2 != ""' > rows
    n=0
    for name in $(cut -f 2 rows | sort -u); do
        # No file may have these, or they decide what is told.
        case ${name#-} in model | session | help | verbose | quiet) continue ;; esac
        awk -F'\t' -v name="$name" '$2 == name { print $1 }' rows |
            while IFS= read -r form; do tried "$form"; done > m.gguf.opts
        echo x | chimere-run -v -m m.gguf --tokenize > out 2> err || true
        sed -n 's/^options  --\(.*\) is from m.gguf.opts$/\1/p' err > got
        [ "$(cat got)" = "${name#-}" ] || { echo "$name: $(cat got err)"; cat m.gguf.opts; false; }
        n=$((n + 1))
    done
    [ $n -ge 30 ]
}

@test "llama-cli's options" {
    try_rows chimere-run 'llama-cli and chimere-run' 100
}

@test "llama-server's options" {
    try_rows chimere-serve-stdio 'llama-server and chimere-serve-stdio' 25
}

@test "aliases do what the option does" {
    chimere-run --raw -n 6 -p 'The kernel' --temp 0.5 --seed 3 --penalty-last-n 8 --repeat-penalty 1.2 --chunk 4 > want
    chimere-run --raw --n-predict 6 --prompt 'The kernel' --temperature 0.5 --seed 3 --repeat-last-n 8 --repeat-penalty 1.2 \
        -b 4 | cmp - want
    chimere-run -sys 'Be terse.' --system-prompt 'Be terse.' -p x --show-prompt > got
    chimere-run -s 'Be terse.' -p x --show-prompt | cmp - got
    echo '{"type": "integer"}' > s
    printf 12 | chimere-run --check -jf s
}
