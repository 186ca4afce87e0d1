#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Defaults: models by name, options in a file beside the model, what the model's file recommends.
load common

# with_keys FROM TO KEY=VALUE ...: a copy of a model file with more numbers in its metadata.
with_keys()
{
    python3 - "$@" << 'END'
import struct, sys
data = bytearray(open(sys.argv[1], 'rb').read())
def kv(key, kind, value): return struct.pack('<Q', len(key)) + key.encode() + struct.pack('<I', kind) + value
more = b''
for word in sys.argv[3:]:
    key, value = word.split('=')
    more += kv(key, 6, struct.pack('<f', float(value))) if '.' in value else \
        kv(key, 5, struct.pack('<i', int(value))) if value.lstrip('-').isdigit() else \
        kv(key, 8, struct.pack('<Q', len(value)) + value.encode())
fill = -(len(more) + len(kv('x.fill', 8, bytes(8)))) % 32 # the data stay aligned
more += kv('x.fill', 8, struct.pack('<Q', fill) + b' ' * fill)
data[16:24] = struct.pack('<Q', struct.unpack_from('<Q', data, 16)[0] + len(sys.argv) - 2)
open(sys.argv[2], 'wb').write(data[:24] + more + data[24:])
END
}

@test "a model by its name" {
    mkdir -p one two
    cp "$CHIMERE_MODEL" two/nano.gguf
    cp "$TINY" one/tiny
    chimere-run --raw -n 3 -p 'The kernel' > want
    export CHIMERE_MODELS=none:one::two
    chimere-run -m nano --raw -n 3 -p 'The kernel' | cmp - want
    chimere-run -m nano.gguf --raw -n 3 -p 'The kernel' | cmp - want
    CHIMERE_MODEL=nano chimere-run --raw -n 3 -p 'The kernel' | cmp - want
    [ "$(chimere-run -m tiny --inspect --json | jq -r .file)" = one/tiny ]
    [ "$(chimere-run --inspect nano tiny --json | jq -c .runs)" = $'true\ntrue' ]
    fails 1 'three: cannot open: no such file here, nor in the directories of CHIMERE_MODELS' chimere-run -m three -p x
    CHIMERE_MODELS='' fails 1 'three: cannot open: No such file' chimere-run -m three -p x
    fails 1 './nano: cannot open' chimere-run -m ./nano -p x
    # A file here comes first.
    cp "$TINY" nano
    [ "$(chimere-run -m nano --inspect --json | jq -r .file)" = nano ]
    rm nano
    fails 2 'is also the file of --model' chimere-run -m nano -p x -n 1 --raw --logits two/nano.gguf
    cmp two/nano.gguf "${CHIMERE_MODEL}"
    echo '{"id": 1, "method": "tokenize", "body": {"text": "The kernel"}}' | chimere-serve-stdio -m nano | jq -e '.body.tokens | length > 1'
}

# bats test_tags=slow
@test "a copy of the program, and one without /proc, finds the model of the installation" {
    local share
    share=$(cd "$ROOT" && cat "$BUILD/prefix")/share
    [ -d "$share" ] && unshare -rm mount -t tmpfs none "$share" || skip "needs a mount namespace and $share"
    mkdir elsewhere
    cp "$(command -v chimere-run)" elsewhere/run
    ln -s "$(command -v chimere-run)" link
    unshare -rm sh -euc '
        mount -t tmpfs none "$1"
        model=$CHIMERE_MODEL
        unset CHIMERE_MODEL
        ! elsewhere/run --raw -n 3 -p "The kernel" 2> lost
        mkdir -p "$1/chimere/models"
        cp "$model" "$1/chimere/models"
        elsewhere/run --raw -n 3 -p "The kernel" > copy
        ./link --raw -n 3 -p "The kernel" > linked
        mount -t tmpfs none /proc
        "$(command -v chimere-run)" --raw -n 3 -p "The kernel" > without
        rm -r "$1/chimere"
        ! "$(command -v chimere-run)" --raw -n 3 -p "The kernel" 2> gone' sh "$share"
    chimere-run --raw -n 3 -p 'The kernel' | tee want | cmp - copy
    cmp want linked
    cmp want without
    grep -q "no model: use -m FILE or set CHIMERE_MODEL (also tried $PWD/{share" lost
    grep -q "also tried ${share%/share}/{share" gone
}

@test "options in a file beside the model: the command line and the environment win" {
    cp "$CHIMERE_MODEL" m.gguf
    chimere-run --raw -n 4 -p 'The kernel' > want
    printf '# defaults\n--raw -n 2\n--stop "a b" # not a comment here\n' > m.gguf.opts
    fails 2 'm.gguf.opts: here: only options' chimere-run -m m.gguf -p x
    printf '# defaults\r\n--raw -n 2\r\n#--nonsense\n\n--system-prompt "x y"\n' > m.gguf.opts
    try 0 chimere-run -m m.gguf -p x
    fails 2 '-s has no effect with --raw' chimere-run --raw -s x -m m.gguf -p x
    printf '# defaults\n--raw -n 2 --n-predict 3\n' > m.gguf.opts
    chimere-run -m m.gguf -n 4 -p 'The kernel' | cmp - want
    CHIMERE_OPTS='-n 4' chimere-run -m m.gguf -p 'The kernel' | cmp - want
    CHIMERE_MODEL=m.gguf try 0 chimere-run -p 'The kernel' --json -v
    jq -e '.usage.completion_tokens == 3' out
    grep -q '^options  --predict is from m.gguf.opts' err
    chimere-run -m m.gguf -q --raw -p x -n 1 > out 2> err
    [ ! -s err ]
    # It is no part of looking at the model, and writes nothing.
    echo '--nonsense' > m.gguf.opts
    try 0 chimere-run -m m.gguf --inspect
    fails 2 'm.gguf.opts: --nonsense' chimere-run -m m.gguf -p x
    for bad in '--logits x' '--session x' '-m other.gguf' -h --version '-p x' -i --tokenize --inspect --plan; do
        echo "$bad" > m.gguf.opts
        fails 2 'does not belong in a file of defaults' chimere-run -m m.gguf -p x
    done
    [ ! -e x ]
    echo '-n many' > m.gguf.opts
    fails 2 'm.gguf.opts: -n many: not a number' chimere-run -m m.gguf -p x
    printf '%070000d' 0 > m.gguf.opts
    fails 1 'm.gguf.opts' chimere-run -m m.gguf -p x
    printf '\357\273\277# a mark\n--raw -n 3\n' > m.gguf.opts
    chimere-run -m m.gguf -n 4 -p 'The kernel' | cmp - want
    : > m.gguf.opts
    try 0 chimere-run -m m.gguf -p x -n 1
}

@test "a file of options is a text, or told; a plan takes it, too" {
    ln -s "$CHIMERE_MODEL" m.gguf
    mkfifo m.gguf.opts
    fails 1 'm.gguf.opts: is not a regular file' timeout 10 chimere-run -m m.gguf -p x
    fails 1 'm.gguf.opts: is not a regular file' timeout 10 chimere-serve-stdio -m m.gguf
    rm m.gguf.opts
    for other in /dev/zero /dev/null /proc /dev/stdin; do
        ln -sfn $other m.gguf.opts
        fails 1 'm.gguf.opts: ' timeout 10 chimere-run -m m.gguf -p x
    done
    ln -sfn nowhere m.gguf.opts
    try 0 chimere-run -m m.gguf --raw -n 1 -p x
    ln -sfn m.gguf.opts m.gguf.opts
    fails 1 'm.gguf.opts: ' chimere-run -m m.gguf -p x
    rm m.gguf.opts
    # Its files are held against outputs.
    echo '--template m.jinja' > m.gguf.opts
    echo x > m.jinja
    fails 2 'is also the file of --template' chimere-run -m m.gguf -p x -n 1 --logits m.jinja
    [ "$(cat m.jinja)" = x ]
    printf -- '--raw\0--nonsense' > m.gguf.opts
    fails 3 'm.gguf.opts: not a text' chimere-run -m m.gguf -p x
    printf -- '-c 128 --kv q8_0\n-s x --temp 1 --alias y --listen z --drain 3\n' > m.gguf.opts
    for how in '--plan m.gguf' '-m m.gguf --plan'; do
        # shellcheck disable=SC2086
        chimere-run $how --json | jq -es '.[0].ctx_tokens == 128 and .[0].kv == "q8_0,q8_0"'
    done
}

@test "a server has the defaults of its model, and requests their own" {
    S=general.sampling
    with_keys "$CHIMERE_MODEL" m.gguf $S.temp=0.9 $S.top_k=30 $S.penalty_repeat=1.1
    text() { jq -r 'select(.id == "a") | .body.choices[0].text'; }
    ask() # MEMBERS ARGUMENTS
    {
        echo '{"id": "a", "method": "completions", "body": {"prompt": "The kernel", "max_tokens": 8, "seed": 5'"$1"'}}' |
            chimere-serve-stdio "${@:2}" | text
    }
    want=$(ask ', "temperature": 0.9, "top_k": 30, "repeat_penalty": 1.1')
    [ "$(ask '' -m m.gguf)" = "$want" ]
    [ "$(ask '' --temp 0.9 --top-k 30 --repeat-penalty 1.1)" = "$want" ]
    greedy=$(ask ', "temperature": 0')
    [ "$greedy" != "$want" ]
    [ "$(ask ', "temperature": 0, "repeat_penalty": 1' -m m.gguf)" = "$greedy" ]
    [ "$(ask '' -m m.gguf --temp 0 --repeat-penalty 1)" = "$greedy" ]
    echo '--temp 0 --raw --repeat-penalty 1' > m.gguf.opts
    [ "$(ask '' -m m.gguf)" = "$greedy" ]
    [ "$(ask ', "temperature": 0.9, "repeat_penalty": 1.1' -m m.gguf)" = "$want" ]
    echo '--top-p 2' > m.gguf.opts
    fails 2 'top-p' chimere-serve-stdio -m m.gguf
}

@test "what the model's file recommends, unless options say otherwise" {
    S=general.sampling
    with_keys "$CHIMERE_MODEL" m.gguf $S.temp=0.9 $S.top_k=30 $S.top_p=0.8 $S.min_p=0.01 $S.penalty_repeat=1.1 $S.penalty_last_n=32
    run_both() { chimere-run --raw -n 12 -p 'The kernel' --seed 5 "$@"; }
    chimere-run --raw -n 12 -p 'The kernel' --seed 5 --temp 0.9 --top-k 30 --top-p 0.8 --min-p 0.01 --repeat-penalty 1.1 \
        --penalty-last-n 32 > want
    run_both -m m.gguf -v 2> notes | cmp - want
    grep -q "^options  --temp 0.9 is from the model's file" notes
    [ "$(grep -c 'from the model' notes)" -eq 6 ]
    run_both > greedy
    no cmp -s want greedy
    run_both -m m.gguf --temp 0 --top-k 0 --top-p 1 --min-p 0 --repeat-penalty 1 | cmp - greedy
    # The file beside it comes before the file itself.
    echo '--temp 0 --repeat-penalty 1' > m.gguf.opts
    run_both -m m.gguf | cmp - greedy
    rm m.gguf.opts
    for bad in temp=-0.5 top_p=7.5 penalty_repeat=0.0 top_k=hot temp=1e99.; do
        with_keys "$CHIMERE_MODEL" bad.gguf "$S.$bad" 2> err || continue
        fails 3 "bad.gguf: $S" chimere-run -m bad.gguf -p x -n 1
        try 0 chimere-run -m bad.gguf --inspect
    done
}

@test "a session keeps what it began with, whatever defaults say by now" {
    ln -s "$CHIMERE_MODEL" m.gguf
    chimere-run --session s -s 'Be terse.' --think off -n 2 -p 'What is 2 + 2?' > answer
    for i in 1 2; do cp s s$i; done
    chimere-run --session s --think off -n 2 -p 'And 3?' > want
    CHIMERE_OPTS='--raw --kv q8_0' try 0 chimere-run --session s1 --think off -n 2 -p 'And 3?'
    cmp out want
    [ ! -s err ]
    echo "-s 'Be long.' --kv q8_0" > m.gguf.opts
    try 0 chimere-run -m m.gguf --session s2 --think off -n 2 -p 'And 3?'
    cmp out want
    [ "$(cat err)" = "chimere-run: s2: goes on with the system message that it began with; --system of m.gguf.opts is for new sessions" ]
    fails 2 'leave --system out, or name another file' chimere-run --session s -s 'Be long.' -p x
    fails 2 'without --kv it goes on with its own' chimere-run --session s --kv q8_0 -p x
    chimere-run --raw --session r -n 1 -p x > answer
    CHIMERE_OPTS='-s A' fails 2 'r: the session is no chat' chimere-run --session r -p x
}
