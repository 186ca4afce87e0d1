# SPDX-License-Identifier: Apache-2.0
# convert.bats - checkpoints of Hugging Face become GGUF files: share/convert/convert.py, in PYTHON or python3 with numpy.

load common

convert()
{
    "$python" "$ROOT/share/convert/convert.py" "$@"
}
needs_numpy()
{
    python=${PYTHON:-python3}
    "$python" -c 'import numpy' 2> /dev/null || skip "numpy is not installed (Debian: python3-numpy)"
}

@test "drawn models of four families come back from their checkpoints, byte for byte, and answer the same" {
    needs_numpy
    # Two key heads of the linear layers: their value heads lie in another order in a file.
    sed '/^hash/d; s/group_count u32 1/group_count u32 2/; s/time_step_rank u32 2/time_step_rank u32 4/; s/inner_size u32 32/inner_size u32 64/
        s/attn_qkv.weight bf16 32x64/attn_qkv.weight bf16 32x128/; s/\(conv1d.weight f32 4x\)64/\1128/; s/\(attn_gate.weight bf16 32x\)32/\164/
        s/\(ssm_[a-z.]* f32\) 2 /\1 4 /; s/\(ssm_[ab].*a.weight bf16 32x\)2/\14/; s/ssm_out.weight bf16 32/ssm_out.weight bf16 64/' \
        "$MODELS/qwen4exp-s.draw" > q.draw
    (cd "$ROOT" && "${BUILD:-build}/test/draw" "$BATS_TEST_TMPDIR/q.draw" "$BATS_TEST_TMPDIR/q.gguf")
    for m in "$MODELS"/{zamba2-c,hymba-c,bailingmoe3-a}.gguf q.gguf; do
        "$python" "$ROOT/tests/cli/checkpoint.py" make "$m" made
        try 0 convert made got.gguf
        [ ! -s out ]
        "$python" "$ROOT/tests/cli/checkpoint.py" same made.gguf got.gguf
        for f in made got; do chimere-run -m $f.gguf --raw --temp 0 -n 12 -p 'the line' > $f.text; done
        [ -s got.text ]
        cmp made.text got.text
        rm -r made got.gguf
    done
}

@test "a type, an output that exists, wrong options, damaged checkpoints" {
    needs_numpy
    "$python" "$ROOT/tests/cli/checkpoint.py" make "$MODELS/zamba2-c.gguf" made
    convert --type f32 made got.gguf
    chimere-run -m got.gguf --raw --temp 0 -n 12 -p 'the line' > f32.text
    chimere-run -m made.gguf --raw --temp 0 -n 12 -p 'the line' | cmp - f32.text
    cp got.gguf before
    try 1 convert made got.gguf
    grep -q 'exists (-f replaces it)' err
    cmp got.gguf before
    try 1 convert -f made no/such/place.gguf
    try 2 convert --type q3 made out.gguf
    [ "$(wc -l < err)" = 1 ]
    try 1 convert nowhere out.gguf
    grep -q '^convert: nowhere/config.json: No such file' err
    "$python" "$ROOT/tests/cli/checkpoint.py" damage "$ROOT/share/convert/convert.py" made
}
