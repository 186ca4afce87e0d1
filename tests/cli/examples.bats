#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Every example of the manuals runs, ends with status 0 and writes something, in a directory where the
# files that the examples name exist.
load common

prepare()
{
    printf 'sgml2txt: create plain text output from a LinuxDoc DTD SGML source file\n' > notes.txt
    printf 'What is 12 + 30?\nWhat is the meaning of clotted?\n' > questions.txt
    printf 'a = 16\nb = 41\na, b = b, a\nprint(a, b)\n' > swap.py
    cp "$ROOT/share/eval/math.jsonl" .
    cp "$CHIMERE_MODEL" nano.gguf
    cat > tools.json <<'EOF'
[{"type": "function", "function": {"name": "get_weather", "description": "Get the current weather for a city.",
  "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "Name of the city"}},
  "required": ["city"]}}}]
EOF
}

# Writes the literal blocks of EXAMPLES of a manual to example.1, example.2, ...
extract()
{
    awk '/^\.Sh/ { on = $2 == "EXAMPLES" }
        on && /^\.Bd -literal/ { file = "example." ++n; next }
        /^\.Ed/ { file = "" }
        file { gsub(/\\e/, "\\"); print > file }' "$1"
}

run_examples()
{
    local f
    prepare
    extract "$ROOT/man/$1"
    [ -e example.1 ]
    for f in example.*; do
        rm -f ./*.f32
        try 0 bash -euo pipefail "$f" || { cat "$f"; return 1; }
        if [ ! -s out ] && [ ! -s answer.txt ] && [ ! -s out.f32 ] && ! grep -q cmp "$f"; then
            echo "nothing written by:"
            cat "$f"
            return 1
        fi
        rm -f answer.txt
    done
}

@test "chimere-run(1)" { run_examples chimere-run.1; }
@test "chimere-serve-stdio(1)" { run_examples chimere-serve-stdio.1; }
@test "chimere-bench(1)" { run_examples chimere-bench.1; }
@test "chimere-jsonl(5)" { run_examples chimere-jsonl.5; }
@test "chimere-pipeline(5)" { run_examples chimere-pipeline.5; }
@test "chimere(7)" { run_examples chimere.7; }
