#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# chimere-quantize: types, recipes, what is written and what is refused.
load common
load quantize

# The golden model with bf16 or f32 matrices, rows of 64 and 256.
source_model() { ls "$MODELS"/qwen35moe-a.gguf; }

@test "the manual has every option of the program, with the same argument, and no other" {
    chimere-quantize --help-json | jq -r '.options[] | [.letter // "-", .name, .arg // "-"] | join(" ")' | sort > program
    sed -n -e 's/^\.It Fl \([a-zA-Z]\) , Fl -\([a-z-]*\) Ar \(.*\)$/\1 \2 \3/p' \
        -e 's/^\.It Fl \([a-zA-Z]\) , Fl -\([a-z-]*\)$/\1 \2 -/p' \
        -e 's/^\.It Fl -\([a-z-]*\) Ar \(.*\)$/- \1 \2/p' \
        -e 's/^\.It Fl -\([a-z-]*\)$/- \1 -/p' "$ROOT/man/chimere-quantize.1" | sort > manual
    diff program manual
    try 0 chimere-quantize -h
    [ "$(awk 'length > 80' out | wc -l)" -eq 0 ]
}

@test "every mix that comes along plans the embedded model, with the sizes that llama-quantize gives" {
    local n=0
    for f in "$ROOT"/share/recipes/*.recipe; do
        try 0 chimere-quantize --recipe "$f" --allow-requantize --dry-run "$CHIMERE_MODEL"
        [ "$(wc -l < out)" -eq 170 ]
        n=$((n + 1))
    done
    [ $n -ge 25 ]
    # tensors' bytes of the files that llama-quantize writes, padding apart
    while read -r mix bytes; do
        try 0 chimere-quantize -t "$mix" --allow-requantize --dry-run "$CHIMERE_MODEL"
        grep -q "^169 tensors, $bytes bytes, " out || { echo "$mix"; tail -1 out; false; }
    done <<'EOF'
Q2_K 13904896
q3_k_m 17918912
Q4_K_M 22547584
q5_k_m 26175616
q6_k 30030400
q8_0 38813568
iq3_m 16669632
iq4_xs 20024448
EOF
}

@test "q5_k_m is the mix of the embedded model, tensor by tensor" {
    chimere-quantize -t q5_k_m --dry-run "$CHIMERE_MODEL" > out
    [ "$(grep -c ' kept$' out)" -eq 169 ]
}

@test "a file is written, checked and run; bytes do not depend on threads or instruction sets" {
    local in
    in=$(source_model)
    try 0 chimere-quantize -t q4_k_m --threads 1 "$in" a.gguf
    try 0 chimere-quantize -q -t q4_k_m --threads 3 "$in" b.gguf
    [ ! -s out ] && [ ! -s err ]
    cmp a.gguf b.gguf
    try 0 chimere-quantize --check a.gguf
    grep -q 'as they were written' out
    chimere-run -m a.gguf --inspect --json > a.json
    jq -e '[.tensors[].quant] | index("q5_0") or index("q4_k")' a.json
    chimere-run -m a.gguf --inspect | grep -q 'chimere.quantize.recipe'
    try 0 chimere-run -m a.gguf -n 3 --raw -p 'a b c' --ignore-eos
}

@test "types of ik_llama.cpp, q1_0 and q2_0: written by any number of threads, with --unbiased, and read" {
    local in=$MODELS/qwen35moe-k.iq3_s.gguf type
    local rules=(-q -f -t iq3_s --pure --allow-requantize)
    for type in iq2_k iq3_k iq4_k iq4_ks iq5_k iq6_k q1_0 q2_0; do
        try 0 chimere-quantize "${rules[@]}" --tensor "^blk\.1\.attn_=$type" --threads 1 "$in" a.gguf
        try 0 chimere-quantize "${rules[@]}" --tensor "^blk\.1\.attn_=$type" --threads 3 "$in" b.gguf
        cmp a.gguf b.gguf
        chimere-run -m a.gguf --inspect --json | jq -e --arg t $type 'any(.tensors[]; .quant == $t)'
        try 0 chimere-run -m a.gguf -n 2 --raw -p 'a b c' --ignore-eos
        try 0 chimere-quantize "${rules[@]}" --unbiased --tensor "^blk\.1\.attn_=$type" "$in" b.gguf
    done
    # Rows of 64: types of smaller blocks.
    chimere-quantize -t iq6_k --pure --dry-run "$(source_model)" > out
    awk '/too short/ { print $3 }' out | sort -u > types
    [ "$(tr '\n' ' ' < types)" = "f16 q8_0 " ]
}

@test "a flipped bit is found" {
    chimere-quantize -t q8_0 "$(source_model)" a.gguf
    local size
    size=$(stat -c %s a.gguf)
    printf '\x55\xaa' | dd of=a.gguf bs=1 seek=$((size - 40)) conv=notrunc 2> /dev/null
    try 4 chimere-quantize --check a.gguf
    grep -q 'differs from what was written' out
    refuses 3 "has no hashes" chimere-quantize --check "$(source_model)"
}

@test "rules: the first that fits counts, --tensor before all" {
    printf '%s\n' '# comment' 'attn_q\.weight = q8_0 # here too' 'attn_ = Q5_1' 'default q4_0' > r
    try 0 chimere-quantize --recipe r --tensor 'attn_v=f16' --dry-run "$(source_model)"
    awk '/attn_q.weight/ && $3 != "q8_0" || /attn_v.weight/ && $3 != "f16" || /attn_output.weight/ && $3 != "q5_1"' out > bad
    [ ! -s bad ]
    grep -q 'norm.*kept' out
    no grep -qE '_norm.weight .* q' out
    printf '%s\n' 'ffn_down = q8_0 if first=1' 'default q4_0' > r
    try 0 chimere-quantize --recipe r --dry-run "$(source_model)"
    [ "$(grep ffn_down out | grep -c q8_0)" -ge 1 ]
    [ "$(grep ffn_down out | grep -v blk.0 | grep -c q8_0)" -eq 0 ]
}

@test "recipes that are wrong: file, line and what is wrong" {
    local line
    while IFS='|' read -r line text; do
        printf '# one\n%s\n' "$line" > r
        refuses 3 "r:2: $text" chimere-quantize --recipe r --dry-run "$(source_model)"
    done <<'EOF'
nonsense|neither a rule
a = q9_9|q9_9: not a tensor type
a =|the type is missing
a = i8|i8: a type that is read but not written
( = q8_0|the expression
a b = q8_0|a space
 = q8_0|the expression is empty
a = q8_0 when tied|when: "if" is expected
a = q8_0 if|no condition
a = q8_0 if first=|first=: not a condition
a = q8_0 if first=1/0|first=1/0: not a condition
a = q8_0 if blue|blue: not a condition
default|the type is missing
file-type x|a number
EOF
    printf 'default q8_0\nfile-type 2\ndefault q4_0\n' > r
    refuses 3 'r:3: a second "default"' chimere-quantize --recipe r --dry-run "$(source_model)"
    printf '# none\nunbiased\n' > r
    refuses 3 "neither a rule nor a default" chimere-quantize --recipe r "$(source_model)" b.gguf
    [ ! -e b.gguf ]
    refuses 2 "--tensor a=q9_9: " chimere-quantize --tensor 'a=q9_9' --dry-run "$(source_model)"
    # one rule and nothing else, of a matrix that is there
    for line in '' '#=q8_0' 'default q8_0' 'file-type 3'; do
        refuses 2 "--tensor " chimere-quantize -t q8_0 --tensor "$line" --dry-run "$(source_model)"
    done
    refuses 2 "has no matrix of such a name" chimere-quantize -t q8_0 --tensor 'no_such=q4_0' --dry-run "$(source_model)"
    refuses 2 "has no matrix of such a name" chimere-quantize -t q8_0 --tensor '_norm=q4_0' --dry-run "$(source_model)"
    refuses 2 "--type i8: is read but not written" chimere-quantize -t i8 --dry-run "$(source_model)"
    printf '\xef\xbb\xbfdefault q8_0\r\n' > r
    try 0 chimere-quantize --recipe r --dry-run "$(source_model)"
    refuses 2 "neither a tensor type nor a mix" chimere-quantize -t q4_k_x --dry-run "$(source_model)"
    refuses 2 "neither a tensor type nor a mix" chimere-quantize -t ../recipes/q4_k_m --dry-run "$(source_model)"
    cp "$(type -P chimere-quantize)" . # away from its mixes
    refuses 2 "the mixes that come with the program are not there (/" ./chimere-quantize -t q4_k_m --dry-run "$(source_model)"
    refuses 2 "no rule has a type" chimere-quantize --tensor 'attn_v=q8_0' --dry-run "$(source_model)"
    printf '%s = q8_0\n' '(a*)*(a*)*(a*)*b$' | sed 's/a/[a-z._0-9]/g' > r
    echo 'default q8_0' >> r
    refuses 3 "too many steps" chimere-quantize --recipe r --dry-run "$(source_model)"
    refuses 2 'is --type (-t) card16' chimere-quantize --recipe card16 --dry-run "$(source_model)"
}

@test "an output is not replaced unless asked, an input never" {
    cp "$(source_model)" in.gguf
    echo mine > out.gguf
    refuses 2 "exists" chimere-quantize -t q8_0 in.gguf out.gguf
    [ "$(cat out.gguf)" = mine ]
    try 0 chimere-quantize -f -t q8_0 in.gguf out.gguf
    refuses 2 "is the input" chimere-quantize -f -t q8_0 in.gguf in.gguf
    ln in.gguf hard.gguf
    ln -s in.gguf soft.gguf
    refuses 2 "is the input" chimere-quantize -f -t q8_0 in.gguf hard.gguf
    refuses 2 "is the input" chimere-quantize -f -t q8_0 in.gguf soft.gguf
    echo 'default q8_0' > r
    refuses 2 "is an input" chimere-quantize -f --recipe r in.gguf r
    cmp in.gguf "$(source_model)"
    refuses 3 "would be rounded twice" chimere-quantize -t q4_0 out.gguf again.gguf
    try 0 chimere-quantize --allow-requantize -t q4_0 out.gguf again.gguf
    refuses 1 "nowhere/x.gguf" chimere-quantize -t q8_0 in.gguf nowhere/x.gguf
}

@test "usage" {
    refuses 2 "file with a name" chimere-quantize -t q4_k x.gguf -
    refuses 2 "two files" chimere-quantize -t q8_0 a
    refuses 2 "no types" chimere-quantize a b
    refuses 2 "-t and --recipe do not go together" chimere-quantize -t q8_0 --recipe r a b
    refuses 2 "--pure needs" chimere-quantize --pure --recipe r a b
    refuses 2 "--check takes one file" chimere-quantize --check
    refuses 2 "--check and -t do not go together" chimere-quantize --check -t q8_0 a
    refuses 1 "nowhere.gguf" chimere-quantize -t q8_0 nowhere.gguf b
    echo GGUF > bad.gguf
    refuses 3 "bad.gguf" chimere-quantize -t q8_0 bad.gguf b
    LC_ALL=C sed 's/qwen35moe/gpt-99moe/g' "$(source_model)" > unknown.gguf
    refuses 3 "architecture 'gpt-99moe' is not known" chimere-quantize -t q8_0 unknown.gguf b
    # what chimere-run would not open: a key is missing, a tensor is
    local name
    for name in qwen35moe.expert_used_count blk.1.attn_qkv.weight; do
        LC_ALL=C sed "s/$name/${name%?}_/" "$(source_model)" > broken.gguf
        refuses 3 "$name is missing" chimere-quantize -t q8_0 broken.gguf b
        refuses 3 "$name is missing" chimere-quantize -t q8_0 --dry-run broken.gguf
    done
    [ ! -e b ]
}

@test "values that are not finite are refused, and nothing is left" {
    cp "$(source_model)" nan.gguf
    local size
    size=$(stat -c %s nan.gguf)
    # the last tensors of the file: every byte 0xff is not a number in f32 and bf16
    head -c 4000 /dev/zero | tr '\0' '\377' | dd of=nan.gguf bs=1 seek=$((size - 300000)) conv=notrunc 2> /dev/null
    refuses 3 "not finite" chimere-quantize -t q8_0 nan.gguf b.gguf
    [ ! -e b.gguf ]
    [ -z "$(find . -name '.b.gguf*')" ]
}

@test "an interrupt ends it by that signal and leaves nothing" {
    # A shell's background jobs ignore SIGINT: env gives it back.
    env --default-signal=INT chimere-quantize -t iq1_m --pure --allow-requantize --threads 1 "$CHIMERE_MODEL" long.gguf 2> err &
    local pid=$! status=0
    wait_for sh -c 'ls -A | grep -q "^\.long"'
    kill -INT $pid
    wait $pid || status=$?
    [ $status -eq 130 ]
    [ ! -e long.gguf ]
    [ -z "$(find . -name '.long*')" ]
}

# make_imatrix FILE NAME,.. N M [bad|zero]: an imatrix file for these matrices, each with n columns and m matrices; weights 1
# but 100 in column 0, or one of them below 0, or all 0.
make_imatrix()
{
    python3 - "$@" <<'EOF'
import struct, sys
path, names, n, m, kind = sys.argv[1], sys.argv[2].split(','), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5:]
s = lambda t: struct.pack('<Q', len(t)) + t.encode()
head = b'GGUF' + struct.pack('<IQQ', 3, 2 * len(names), 1) + s('general.type') + struct.pack('<I', 8) + s('imatrix')
info, body = b'', b''
sums = [0.0] * n if kind == ['zero'] else [-1.0 if kind else 1e6] + [4.0] * (n - 1)
for name in names:
    for part, k, values in ('in_sum2', n, sums * m), ('counts', 1, [4.0] * m):
        info += s(name + '.' + part) + struct.pack('<IQQIQ', 2, k, m, 0, len(body))
        body += struct.pack(f'<{k * m}f', *values)
        body += bytes(-len(body) % 32)
open(path, 'wb').write(head + info + bytes(-(len(head) + len(info)) % 32) + body)
EOF
}

@test "the list of mixes and types; a mix as the third operand, as llama-quantize takes it" {
    local in
    in=$(source_model)
    try 0 chimere-quantize -t list
    [ "$(grep -c ' mix ' out)" -eq "$(ls "$ROOT/share/recipes/" | wc -l)" ]
    grep -qE '^q4_k_m +mix   4-bit blocks' out
    grep -qE '^q4_k +type  4.5 bits per weight$' out
    awk '$2 == "type" { print $1 }' out | while read -r name; do chimere-quantize -t "$name" --pure --dry-run "$in" > plan < /dev/null; done
    chimere-quantize -q -t q4_k_m "$in" a.gguf
    chimere-quantize -q "$in" b.gguf Q4_K_M
    cmp a.gguf b.gguf
    refuses 2 "neither a tensor type nor a mix (-t list prints all)" chimere-quantize "$in" c.gguf q4_k_x
    refuses 2 "--type IQ4_KSS: a type of ik_llama.cpp that is neither read nor written" chimere-quantize "$in" c.gguf IQ4_KSS
    refuses 2 "two files are needed" chimere-quantize -t q4_k_m "$in" c.gguf q4_k_m
    chimere-quantize -q "$in" t.gguf Q4_K_M 2
    cmp a.gguf t.gguf
    chimere-quantize -q -f -t q4_k_m "$in" t.gguf 1
    cmp a.gguf t.gguf
    refuses 2 "8: not a type; a number of threads comes behind the type: IN OUT q4_k_m 8" chimere-quantize "$in" c.gguf 8
    refuses 2 "x: not a number of threads" chimere-quantize "$in" c.gguf q4_k_m x
    refuses 2 "0: not a number of threads" chimere-quantize "$in" c.gguf q4_k_m 0
    refuses 2 "2: the number of threads is given twice" chimere-quantize --threads 1 "$in" c.gguf q4_k_m 2
    refuses 2 "takes no files" chimere-quantize -t list "$in"
}

@test "importance: it changes that matrix, and files that do not fit are refused" {
    local in name n
    in=$(source_model)
    read -r name n <<< "$(chimere-run -m "$in" --inspect | awk '/attn_q.weight/ { print $1, $3; exit }')"
    make_imatrix im.gguf "$name" "$n" 1
    chimere-quantize -q -t q4_0 --pure "$in" plain.gguf
    chimere-quantize -q -t q4_0 --pure --imatrix im.gguf "$in" weighted.gguf
    [ "$(stat -c %s plain.gguf)" -eq "$(stat -c %s weighted.gguf)" ]
    no cmp -s plain.gguf weighted.gguf
    # What the file does not have is counted, and named with -v.
    local all
    all=$(chimere-quantize -t q4_0 --pure --dry-run "$in" | grep -cv -e kept -e '^[0-9]* tensors')
    try 0 chimere-quantize -t q4_0 --pure --imatrix im.gguf --dry-run "$in"
    [ "$(cat err)" = "chimere-quantize: im.gguf: importance for 1 of $all matrices (-v names the others)" ]
    try 0 chimere-quantize -v -t q4_0 --pure --imatrix im.gguf --dry-run "$in"
    [ "$(grep -c 'no importance, its columns count alike' err)" -eq $((all - 1)) ]
    no grep -q "^$name: no importance" err
    # Of another model, although one matrix has the same name; and no numbers at all.
    make_imatrix two.gguf "$name,blk.70.attn_q.weight,blk.71.attn_q.weight" "$n" 1
    make_imatrix zero.gguf "$name" "$n" 1 zero
    refuses 3 "two.gguf: is of another model: 2 of its 3 matrices are not in this one, such as blk.70.attn_q.weight" \
        chimere-quantize -t q4_0 --pure --imatrix two.gguf --dry-run "$in"
    refuses 3 "zero.gguf: all its numbers are 0" chimere-quantize -t q4_0 --pure --imatrix zero.gguf --dry-run "$in"
    make_imatrix short.gguf "$name" $((n / 2)) 1
    refuses 3 "another shape" chimere-quantize -t q4_0 --pure --imatrix short.gguf --dry-run "$in"
    make_imatrix bad.gguf "$name" "$n" 1 bad
    refuses 3 "is not a number of at least 0" chimere-quantize -t q4_0 --pure --imatrix bad.gguf "$in" b.gguf
    make_imatrix other.gguf other.weight "$n" 1
    refuses 3 "has no matrix of this model" chimere-quantize -t q4_0 --pure --imatrix other.gguf --dry-run "$in"
    refuses 3 "not an imatrix" chimere-quantize -t q4_0 --pure --imatrix "$in" "$in" b.gguf
    [ ! -e b.gguf ]
}

# bats test_tags=slow
@test "a run that was killed at any moment goes on, with the same bytes" {
    local wait=0.02 had=0
    run_it() { chimere-quantize -t q3_k --effort highest --allow-requantize --threads 1 "$TINY" "$@"; }
    run_it -q whole.gguf
    for ((i = 0; i < 6; i++)); do
        rm -f a.gguf
        chimere-quantize -q -t q3_k --effort highest --allow-requantize --threads 1 "$TINY" a.gguf &
        sleep "$wait"
        kill -KILL $! || true
        wait $! || true # only then is its lock gone
        [ ! -e .a.gguf.part ] || had=1
        run_it -f a.gguf 2> err
        cmp a.gguf whole.gguf
        [ ! -e .a.gguf.part ]
        wait=$(awk "BEGIN { print $wait * 1.8 }")
    done
    [ $had -eq 1 ]
    # tensors that are there stay, but those of another job or with other bytes do not
    cp whole.gguf .b.gguf.part
    run_it b.gguf
    cmp b.gguf whole.gguf
    head -c 60000 /dev/urandom > .c.gguf.part
    run_it c.gguf
    cmp c.gguf whole.gguf
    ln -s whole.gguf .d.gguf.part
    try 1 run_it d.gguf
    cmp b.gguf whole.gguf
}
