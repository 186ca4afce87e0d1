#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What users of other engines have reported, and odd uses beside: each case has the right behaviour here.
load common

ids() { jq -c .token_ids; }

# changed FROM TO PYTHON: a copy of a model file with its bytes d changed; at(KEY) is where the value of a key begins.
changed()
{
    python3 - "$@" << 'END_OF'
import struct, sys
d = bytearray(open(sys.argv[1], 'rb').read())
def at(key):
    k = struct.pack('<Q', len(key)) + key.encode()
    assert d.count(k) == 1
    return d.index(k) + len(k) + 4
exec(sys.argv[3])
open(sys.argv[2], 'wb').write(d)
END_OF
}

@test "answers of -n tokens, stop texts over tokens, and bytes that are no text" {
    for n in 0 1 2 3; do [ "$(chimere-run --raw -p 'The kernel' -n $n --json | jq '.token_ids | length')" -eq $n ]; done
    # The bytes a to h, one token each.
    bias='' x=60
    for c in a b c d e f g h; do
        bias+=" --logit-bias $(chimere-run --tokenize -p $c | jq '.[0]')=$((x -= 4))000"
    done
    forced() { chimere-run --raw -p Q -n 8 $bias --presence-penalty 1000000 --penalty-last-n -1 "$@"; } # shellcheck disable=SC2086
    [ "$(forced)" = abcdefgh ]
    for stop in 'de abc' 'defx abcdefgh' 'gh abcdef' 'a ' 'h abcdefg'; do [ "$(forced --stop "${stop% *}")" = "${stop#* }" ]; done
    [ "$(forced --stop bc --stop abc)" = '' ]
    [ "$(forced --stop fx --stop e --stream)" = abcd ]
    [ "$(forced --stop gh --json | jq -r '.text + .finish_reason')" = abcdefstop_string ]
    # A byte that begins a character, three times.
    forced() { chimere-run --raw -p hi -n 3 --logit-bias 172=10000 "$@"; }
    [ "$(forced)" = $'\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd' ]
    [ "$(forced --json | jq -r .text)" = $'\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd' ]
    forced --jsonl | jq -es 'length > 3'
    # Bytes that only the end makes a text complete the stop, too, and the answer has stopped.
    forced --json --stop $'\xef\xbf\xbd' | jq -e '.text == "" and (.finish_reason | startswith("stop"))'
}

@test "numbers of each token: those of the whole row, the same everywhere, and nothing else changes" {
    chimere-run --raw -p 'The kernel' -n 4 --json --uncertainty > one
    chimere-run --raw -p 'The kernel' -n 4 --jsonl --uncertainty > lines
    chimere-run --raw -p 'The kernel' -n 1 --logits row --logits-last 1
    python3 - << 'END_OF'
import array, json, math
said = json.load(open('one'))['uncertainty']
x = array.array('f')
x.frombytes(open('row', 'rb').read())
most = max(x)
w = [math.exp(v - most) for v in x]
p = [v / sum(w) for v in w]
entropy = sum(-v * math.log(v) for v in p if v > 0)
best = sorted(p)
want = entropy, sum(v * (-math.log(v) - entropy) ** 2 for v in p if v > 0), best[-1] - best[-2]
assert all(abs(said[0][k] - v) < 1e-5 for k, v in zip(('entropy', 'varentropy', 'margin'), want)), (said[0], want)
END_OF
    jq -es --slurpfile one one 'map(select(.token_id != null) | [.entropy, .varentropy, .margin]) ==
        ($one[0].uncertainty | map([.entropy, .varentropy, .margin]))' lines
    body='"prompt":"The kernel","max_tokens":4,"temperature":0,"uncertainty":true'
    printf '%s\n' "{\"id\":1,\"method\":\"completions\",\"body\":{$body}}" "{\"id\":2,\"method\":\"completions\",\"body\":{$body,\"stream\":true}}" \
        '{"id":3,"method":"messages","body":{"messages":[{"role":"user","content":"x"}],"max_tokens":1,"uncertainty":1}}' |
        chimere-serve-stdio --parallel 2 > out
    jq -es --slurpfile one one '($one[0].uncertainty | map([.entropy, .margin])) as $want |
        ([.[] | select(.id == 1).body.choices[0].uncertainty[] | [.entropy, .margin]] == $want) and
        ([.[] | select(.id == 2).body.choices[]?.uncertainty[]? | [.entropy, .margin]] == $want) and
        any(.error.param == "/uncertainty")' out
    chimere-run --raw -p 'The kernel' -n 4 --json | jq -e --slurpfile one one '.uncertainty == null and .text == $one[0].text'
    chimere-run -p Hi --think off --regex 'ab?c' --jsonl --uncertainty |
        jq -es '[.[] | select(.token_id != null) | .entropy] | .[0] > 0 and .[-1] == null'
    fails 2 "--uncertainty needs --json or --jsonl" chimere-run --uncertainty -p x
}

# bats test_tags=slow
@test "first tokens come as often as the softmax says" {
    # Pearson's test over 600 seeds at a temperature, and 300 of the three likeliest: the seeds are fixed, so the result is, too.
    python3 - << 'END_OF'
import collections, json, math, subprocess
said = json.loads(subprocess.run(['chimere-run', '--raw', '-p', 'The kernel', '-n', '1', '--json', '--logprobs', '4096'],
                                 capture_output=True, check=True).stdout)
for n, keep, more in (600, 4096, {}), (300, 3, {'top_k': 3}):
    asked = [json.dumps({'id': i, 'method': 'completions',
                         'body': dict(prompt='The kernel', max_tokens=1, temperature=0.8, seed=i, **more)}) for i in range(n)]
    replies = subprocess.run(['chimere-serve-stdio', '--parallel', '64'], input='\n'.join(asked), capture_output=True, text=True,
                             check=True).stdout.splitlines()
    seen = collections.Counter(json.loads(line)['body']['choices'][0]['text'] for line in replies)
    assert sum(seen.values()) == n
    p = [(t['text'], math.exp(t['logprob'] / 0.8)) for t in said['logprobs'][0]['top'][:keep]]
    expected = [(text, n * x / sum(y for _, y in p)) for text, x in p]
    often = [(text, x) for text, x in expected if x >= 5]
    bins = [(seen[text], x) for text, x in often]
    rest = n - sum(x for _, x in often), n - sum(seen[text] for text, _ in often)
    if keep > 3:
        bins.append((rest[1], rest[0]))
    else:
        assert rest[1] == 0 and len(often) == 3
    chi, free = sum((a - x) ** 2 / x for a, x in bins), len(bins) - 1
    assert chi < free + 4 * math.sqrt(2 * free), (n, chi, free)
END_OF
}

# bats test_tags=slow
@test "penalties over thousands of repeated tokens cost next to nothing" {
    jq -nc '[range(3800) | 300 + . % 2]' > rep.json
    TIMEFORMAT=%U
    repeats() { { time chimere-run -m "$TINY" -t 1 --tokens rep.json -n 200 --ignore-eos "$@" > out; } 2>&1; }
    without=$(repeats)
    with=$(repeats --dry-multiplier 1 --dry-last-n -1 --repeat-penalty 1.1 --presence-penalty 1 --frequency-penalty 0.1 --penalty-last-n -1)
    echo "$without s without, $with s with"
    jq -ne "$with < 1.5 * $without + 0.3"
}

@test "any bias is a number that can be added" {
    echo '[5, 6, 7, 8]' > ids.json
    first() { chimere-run -m "$TINY" --tokens ids.json -n 1 --json "$@" | jq '.token_ids[0]'; }
    for bias in 5=1e38 5=0x400 '5= 900'; do [ "$(first --logit-bias "$bias")" -eq 5 ]; done
    for bias in 5=3e38 5+3e38; do [ "$(first --logit-bias $bias --logit-bias $bias --temp 1 --seed 3)" -eq 5 ]; done
    [ "$(first --logit-bias "$(first)=-1e39")" -ne "$(first)" ]
    for bias in 5=inf 5=1e39 5+inf ' 5=1' '5 =1' 5=1x; do fails 2 'bias' chimere-run -m "$TINY" --tokens ids.json -n 1 --logit-bias "$bias"; done
}

@test "a model file with any one byte changed runs, or is refused in a line" {
    echo '[5, 6, 7, 8]' > ids.json
    python3 - "$TINY" << 'END_OF'
import subprocess, sys
model = open(sys.argv[1], 'rb').read()
ends = []
for at in range(24, 16000, 401):
    open('t.gguf', 'wb').write(model[:at] + bytes([model[at] ^ 1 << at % 8]) + model[at + 1:])
    r = subprocess.run(['chimere-run', '-m', 't.gguf', '--tokens', 'ids.json', '-n', '1'], capture_output=True, timeout=20)
    assert r.returncode == 0 or r.returncode == 3 and r.stderr.count(b'\n') == 1 and not r.stdout, (at, r)
    ends.append(r.returncode)
assert 0 in ends and 3 in ends
END_OF
}

@test "files by other programs: byte order, alignment, parts, names" {
    cp "$TINY" t.gguf
    chimere-run -m t.gguf --tokens <(echo '[1,2,3]') -n 3 > want
    changed t.gguf big.gguf 'd[4:8] = struct.pack(">I", 3)'
    fails 3 'big-endian' chimere-run -m big.gguf --inspect
    changed t.gguf bad.gguf 'd[4:8] = struct.pack("<I", 9)'
    fails 3 'bad.gguf: offset 4' chimere-run -m bad.gguf --inspect
    changed t.gguf bad.gguf 'd[8:16] = struct.pack("<Q", 1 << 60)'
    fails 3 'bad.gguf: ' chimere-run -m bad.gguf --inspect
    changed t.gguf bad.gguf 'd[16:24] = struct.pack("<Q", 1 << 60)'
    fails 3 'bad.gguf: ' chimere-run -m bad.gguf --inspect
    for alignment in 0 24 1073741824; do
        { printf GGUF; printf '\3\0\0\0'; printf '\0%.0s' {1..8}; printf '\1\0\0\0\0\0\0\0'; printf '\21\0\0\0\0\0\0\0general.alignment\4\0\0\0'
          python3 -c "import sys, struct; sys.stdout.buffer.write(struct.pack('<I', $alignment))"; } > a.gguf
        fails 3 'alignment' chimere-run -m a.gguf --inspect
    done
    head -c 700000 t.gguf > cut.gguf
    fails 3 'an incomplete download?' chimere-run -m cut.gguf --inspect
    # What no tool of ours writes, and none of them shows.
    python3 - << 'END_OF'
import struct
text = lambda x: struct.pack('<Q', len(x)) + x
head = lambda tensors, keys: b'GGUF' + struct.pack('<IQQ', 3, tensors, keys)
tensor = lambda dims, kind: head(1, 0) + text(b't') + struct.pack('<I', len(dims)) + \
    struct.pack('<%dQ' % len(dims), *dims) + struct.pack('<IQ', kind, 0) + bytes(64)
open('nested.gguf', 'wb').write(head(0, 1) + text(b'a') + struct.pack('<IIQIQII', 9, 9, 1, 4, 2, 1, 2))
open('kind.gguf', 'wb').write(tensor([32], 999))
open('none.gguf', 'wb').write(tensor([], 0))
open('five.gguf', 'wb').write(tensor([1] * 5, 0))
END_OF
    fails 3 'is an array of arrays' chimere-run --inspect nested.gguf
    fails 3 'type id 999' chimere-run --inspect kind.gguf
    for f in none five; do fails 3 'allowed are 1 to 4' chimere-run --inspect $f.gguf; done
    # A link, a name that is no UTF-8, a FIFO and a device.
    mkdir "$(printf 'd\xff\n x')"
    ln -s ../t.gguf "$(printf 'd\xff\n x/\xfe.gguf')"
    chimere-run -m "$(printf 'd\xff\n x/\xfe.gguf')" --tokens <(echo '[1,2,3]') -n 3 | cmp - want
    chimere-run -m "$(printf 'd\xff\n x/\xfe.gguf')" --inspect --json | jq -e .file
    mkfifo f.gguf
    for other in f.gguf /dev/zero /dev/null .; do
        got=0
        timeout 10 chimere-run -m $other -p x > out 2> err < /dev/null || got=$?
        [ $got -eq 1 ] || [ $got -eq 3 ]
        [ "$(wc -l < err)" -eq 1 ]
    done
    fails 2 'too long' chimere-run -m "$(printf '%05000d' 0)" -p x
}

@test "long words and odd texts take linear time and come back" {
    for c in a ' ' 5 '<' 'é'; do
        python3 -c "print(200000 * '$c', end='')" > text
        timeout 20 chimere-run --tokenize text > ids
        chimere-run --detokenize ids | cmp - text
    done
    printf 'a\0b\xe2\x80\xa8c \xef\xbc\xa1 e\xcc\x81\r\n' > text
    chimere-run --tokenize text | chimere-run --detokenize | cmp - text
    head -c 20000 "$CHIMERE_MODEL" > bytes
    chimere-run --tokenize bytes | chimere-run --detokenize > text
    iconv -f UTF-8 -t UTF-8 text > /dev/null
    # A byte order mark and lines of Windows are text.
    printf '\xef\xbb\xbfWhat is 2 + 2?\r\n' | try 0 chimere-run --think off
    [ "$(cat out)" = 4 ]
}

@test "contexts, limits and numbers at their edges" {
    echo '[5, 6, 7, 8]' > ids.json
    fails 1 'the prompt has 4 tokens, the context 3' chimere-run --tokens ids.json -c 3
    for c in 4 5 7; do
        chimere-run --tokens ids.json -c $c --ignore-eos --json | jq -e --argjson n $((c - 3)) '(.token_ids | length) == $n and .finish_reason == "context"'
    done
    chimere-run --tokens ids.json -n 9223372036854775807 -c 8 --ignore-eos --json | jq -e '.token_ids | length == 5'
    for c in 100000000 9223372036854775807; do fails 2 '--ctx' chimere-run --tokens ids.json -c $c; done
    for with in '--temp 1e-40' '--temp 1e38' '--temp 1 --top-p 0' '--temp 1 --min-p 1' '--temp 1 --typical 0' '--temp 1 --top-k 1'; do
        # shellcheck disable=SC2086
        [ "$(chimere-run --tokens ids.json -n 2 --ignore-eos --json $with | jq '.token_ids | length')" -eq 2 ]
    done
    for kv in 'f16,' ',f16' 'f16,f16,f16' F16 ''; do fails 2 '' chimere-run --tokens ids.json --kv "$kv"; done
    # Nothing is left to choose from.
    jq -nr '[range(512) | "--logit-bias \(.)=-inf"] | join(" ")' > all
    # shellcheck disable=SC2046
    for with in '' '--temp 1 --typical 0.5' '--temp 1 --top-p 0.1'; do
        fails 2 'every token' chimere-run -m "$TINY" --tokens ids.json -n 1 $with $(cat all)
    done
    # The same seed, from JSON again; sums of probabilities; any number of threads.
    chimere-run --tokens ids.json -n 8 --temp 1 --json > one
    chimere-run --tokens ids.json -n 8 --temp 1 --json --seed "$(jq .seed one)" | ids | cmp - <(ids < one)
    chimere-run -m "$TINY" --tokens ids.json -n 1 --json --logprobs 512 |
        jq -e '.logprobs[0].top | length == 512 and (map(.logprob | exp) | add - 1 | fabs < 1e-4) and
        ([.[].logprob] | . == (sort | reverse))'
    for t in 1 64 512; do chimere-run --tokens ids.json -n 8 -t $t | cmp - <(chimere-run --tokens ids.json -n 8); done
    # The decimal comma of a locale is none of ours.
    LC_ALL=tr_TR.UTF-8 chimere-run --tokens ids.json -n 8 --temp 0.5 --seed 3 --json | jq -e '.timings.prompt_ms'
}

@test "messages by other programs" {
    say() { chimere-run --messages <(printf '%s' "$1") --show-prompt; }
    say '[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]' | grep -q ab
    # The last message of the assistant is a turn of its own.
    say '[{"role":"user","content":"q"},{"role":"assistant","content":"The answer"}]' | tail -n 3 | grep -q assistant
    for bad in '[]' '{}' '5' 'null' '[5]' '[null]' '[{}]' '[{"role":5,"content":"x"}]' '[{"role":"user","content":5}]' \
        '[{"role":"user","content":NaN}]' '[{"role":"user","content":"x"}' '[{"role":"user","content":"x"}] x' \
        '[{"role":"user","content":"\ud800"}]' '[{"role":"user","role":"user","content":"x"}]' "$(printf '[%.0s' {1..5000})"; do
        got=0
        chimere-run --messages <(printf '%s' "$bad") -n 1 > out 2> err < /dev/null || got=$?
        [ $got -eq 3 ] || [ $got -eq 2 ] || { echo "$bad: $got"; false; }
        [ ! -s out ]
        [ "$(wc -l < err)" -eq 1 ]
    done
    for bad in '[1.5]' '[1e3]' '[true]' '["1"]' '[[1]]' '[1,]' '[1] 2' '[-1]' '[99999999999999999999]' '{"a":1}' '"x"' 'null' ''; do
        got=0
        chimere-run --tokens <(printf '%s' "$bad") -n 1 > out 2> err < /dev/null || got=$?
        [ $got -eq 3 ] || [ $got -eq 2 ] || { echo "$bad: $got"; false; }
        [ "$(wc -l < err)" -eq 1 ]
    done
}

@test "words in any order, and files in any place" {
    echo ' keeps' > more
    chimere-run --raw -n 4 -p 'The kernel' more > want
    chimere-run more -rp 'The kernel' -n4 | cmp - want
    chimere-run --raw more -n 4 '-pThe kernel' | cmp - want
    chimere-run --raw -n 4 '--prompt=The kernel' -- more | cmp - want
    echo ' x' > -n
    chimere-run --raw -n 4 -p 'The kernel' -- -n > got
    POSIXLY_CORRECT=1 fails 1 '--raw: ' chimere-run -n 4 more --raw
    # Sessions and logits: devices, links and long names.
    echo '[5, 6, 7, 8]' > ids.json
    for other in /dev/null /dev/zero /dev/full; do fails 1 'not a regular file' chimere-run --tokens ids.json -n 1 --session $other; done
    ln -s nowhere link
    fails 1 'leads nowhere' chimere-run --raw -n 1 -p x --session link
    : > nowhere
    chimere-run --raw -n 1 -p x --session link > out
    [ -L link ]
    [ -s nowhere ]
    for name in "$(printf '%0255d' 0)" "$(printf '字%.0s' {1..85})"; do
        chimere-run --tokens ids.json -n 1 --session "$name" > out
        [ -s "$name" ]
        rm "$name"
        chimere-run --tokens ids.json -n 0 --logits "$name"
        [ -s "$name" ]
    done
    fails 1 'too long' chimere-run --tokens ids.json -n 0 --logits "$(printf '%0256d' 0)"
    fails 1 'too long' chimere-run --tokens ids.json -n 1 --session "$(printf '%0256d' 0)"
    # Logits beside a session are those without one.
    echo '[5, 6, 7, 8, 9, 10]' > more.json
    chimere-run --tokens ids.json -n 1 --session t > out
    chimere-run --tokens more.json -n 0 --logits a.f32
    for last in '' '--logits-last 1'; do
        cp t u
        # shellcheck disable=SC2086
        chimere-run --tokens more.json -n 0 --session u --logits b.f32 $last
        tail -c "$(stat -c %s b.f32)" a.f32 | cmp - b.f32
    done
    # Limits of the system: one line, and what was there stays.
    cp t before
    got=0
    (ulimit -f 64; chimere-run --tokens more.json -n 1 --session t > out 2> err) || got=$?
    [ $got -eq 1 ]
    [ "$(wc -l < err)" -eq 1 ]
    cmp t before
}

@test "measurements: the same figures, and none of what was not measured" {
    head -c 4000 "$ROOT/share/eval/math.jsonl" > text
    for with in '--chunk 1' '--chunk 7' '--chunk 512 -t 1'; do
        # shellcheck disable=SC2086
        chimere-bench ppl -c 64 --windows 2 $with text | jq -c '[.ppl, .n_scored]' > got
        [ -e want ] || cp got want
        cmp got want
    done
    [ "$(jq '.[1]' want)" -gt 10 ]
    : > empty
    printf x > tiny
    for short in empty tiny; do fails 2 'shorter than a window' chimere-bench ppl -c 64 $short; done
    fails 2 'shorter than a window' chimere-bench ppl -c 100000 text
    fails 1 'none: cannot open' chimere-bench ppl -c 64 text none
    fails 2 '--stride 65: must be' chimere-bench ppl -c 64 --stride 65 text
    sed 's/$/\r/' text > crlf
    head -c 3000 "$CHIMERE_MODEL" > bytes
    printf '<|im_end|>%.0s' {1..100} > marks
    for odd in crlf bytes marks; do chimere-bench ppl -c 64 --windows 1 $odd | jq -e '.n_scored > 10 and .ppl > 1'; done
    # A stride of a window scores each token of it but the first.
    chimere-bench ppl -c 64 --windows 1 --stride 64 text | jq -e '.n_scored == 63'
    # Logits that were saved of something else, or are not whole.
    chimere-bench kl -c 64 --windows 2 --save saved text > record
    tail -c 3000 text > other
    { cat saved; printf x; } > longer
    head -c 9000 saved > cut
    differs() { local status=$1 says=$2; shift 2; fails "$status" "$says" chimere-bench kl -c 64 --windows 2 "$@"; }
    differs 3 'saved of another text' --reference saved other
    fails 3 'saved of another text' chimere-bench kl -c 64 --windows 1 --reference saved text
    differs 3 'is too long' --reference longer text
    differs 3 'is cut' --reference cut text
    differs 1 'not a regular file' --reference /dev/zero text
    differs 1 'cannot open its directory' --save no/where text
    differs 1 'not a regular file' --save /dev/full text
    # Items that are none are named; an expression that backtracks for ever is no match.
    while read -r item; do
        echo "$item" > bad.jsonl
        fails 3 'bad.jsonl: item 1' chimere-bench eval bad.jsonl
    done << 'END_OF'
5
[]
{}
{"id":"a","messages":5,"check":"exact","answer":"x"}
{"id":"a","messages":[{"role":"user","content":"x"}]}
{"id":"a","messages":[{"role":"user","content":"x"}],"check":"other","answer":"x"}
{"id":"a","messages":[{"role":"user","content":"x"}],"check":"regex","answer":"("}
{"id":"a","messages":[{"role":"user","content":"x"}],"check":"exact","answer":5}
{"id":5,"messages":[{"role":"user","content":"x"}],"check":"exact","answer":"x"}
{"id":"a","messages":[{"role":"king","content":"x"}],"check":"exact","answer":"x"}
END_OF
    jq -nc '{id: "a", messages: [{role: "user", content: "What is 2 + 2?"}], enable_thinking: false, check: "regex",
             answer: "((\\w|4|.)*)*x$"}' > slow.jsonl
    timeout 20 chimere-bench eval slow.jsonl | jq -e '.n_items == 1 and .n_right == 0'
    # Records: none, broken, missing; a drawing's directory, and what is no drawing.
    speed() { chimere-bench bandwidth --size 1M --reps 1 -t 1 "$@"; }
    speed --against empty > record 2> err
    grep -q 'nothing to compare with' err
    echo '{' > broken
    fails 3 'broken: line 1' chimere-bench bandwidth --against broken
    fails 1 'missing: cannot open' chimere-bench bandwidth --against missing
    chimere-bench ppl -c 64 --windows 2 text > record
    chimere-bench eval "$ROOT/share/eval/math.jsonl" --limit 1 > record
    fails 1 'cannot open its directory' chimere-bench plot record -o no/x.svg
    printf 'my notes' > x.svg
    fails 2 'and stays as it is' chimere-bench plot record -o x.svg
    [ "$(cat x.svg)" = 'my notes' ]
    for i in 1 2; do try 0 chimere-bench plot record -o y.svg; done
    grep -q accuracy y.svg
    fails 2 'limit' chimere-bench eval --compare a b --limit 3
}

# held SESSION: tokens that it has
held() { if [ -s "$1" ]; then chimere-run --session "$1" --show --json | jq .n_tokens; else echo 0; fi; }

# bats test_tags=slow
@test "a signal is obeyed within the rows of a long prompt, and what was there stays" {
    seq 5 1404 | jq -cs . > ids.json
    jq -c '.[:40]' ids.json > first.json
    for how in '' '--session s' '--session t' '--session-ro --session u' "--draft $CHIMERE_MODEL"; do
        rm -f s
        for f in t u; do [ -e $f ] || chimere-run --tokens first.json -n 0 --session $f > out; done
        # shellcheck disable=SC2086
        chimere-run --tokens ids.json -n 1 -t 1 --chunk 4096 --json -v $how > out 2> err &
        pid=$!
        wait_for grep -q '^device ' err # all rows in one step, which has begun
        sleep 0.1
        from=$(date +%s%N)
        kill -TERM $pid
        status=0
        wait $pid || status=$?
        [ $status -eq 143 ]
        jq -e '.finish_reason == "interrupted" and .token_ids == []' out
        echo "$how: $((($(date +%s%N) - from) / 1000000)) ms"
        [ "$(held s)" -eq 0 ]
        [ "$(held t)" -eq 40 ]
    done
    # Measurements, too: this one would take a minute.
    chimere-bench speed -t 1 --prompt 4000 --chunk 4096 --reps 20 --depth 0 --rows '' --seqs '' > out 2> err &
    pid=$!
    sleep 0.5
    from=$(date +%s%N)
    kill -TERM $pid
    status=0
    wait $pid || status=$?
    [ $status -eq 143 ]
    [ $((($(date +%s%N) - from) / 1000000)) -lt 1500 ]
    # What was read of a prompt that comes whole in several steps is kept, and goes on as if nothing had been.
    chimere-run --tokens ids.json -n 4 > want
    chimere-run --tokens ids.json -n 4 -t 1 --chunk 256 --session s > out &
    pid=$!
    sleep 0.4
    kill -TERM $pid
    wait $pid || true
    chimere-run --tokens ids.json -n 4 --session s | cmp - want
    chimere-run --tokens ids.json -n 4 --session t | cmp - want
}

# bats test_tags=slow
@test "a session has the penalties' history, and goes on after what stopped it" {
    raw() { chimere-run --raw "$@"; }
    for f in '--repeat-penalty 1.3' '--presence-penalty 2 --penalty-last-n -1' '--frequency-penalty 1 --penalty-last-n 20' \
        '--dry-multiplier 2' '--temp 1 --seed 4 --top-k 40 --repeat-penalty 1.2'; do
        rm -f s
        # shellcheck disable=SC2086
        { raw -p 'The kernel keeps' -n 17 $f --session s && raw -p '' -n 23 $f --session s; } | cmp - <(raw -p 'The kernel keeps' -n 40 $f < /dev/null)
    done
    # The stop text is in the session, though not in the answer: the next turn goes on behind it.
    rm -f s
    [ "$(raw -n 40 -p 'The kernel keeps' --stop list --session s; echo .)" = ' a .' ]
    whole="The kernel keeps$(raw -n 20 -p 'The kernel keeps')"
    raw -n 14 -p '' --session s > out
    [[ "The kernel keeps a list$(cat out)" == "$whole"* ]] || [[ "$whole" == "The kernel keeps a list$(cat out)"* ]]
}

@test "calls with marks and escapes in their arguments, and marks that stand alone" {
    cat > m.json << 'END'
[{"role":"user","content":"t"},{"role":"assistant","tool_calls":[{"type":"function","function":{"name":"f",
"arguments":"{\"a\": \"x: y \\u0041 \\ud83d\\ude00 \\\\u \\\"q\\\"\", \"b\": {\"c\": [1, \"d:e\"]}}"}}]},{"role":"tool","content":"noon"}]
END
    chimere-run --messages m.json --show-prompt > got
    grep -qxF 'x: y A 😀 \u "q"' got
    grep -qxF '{"c": [1, "d:e"]}' got
    # A second end of the reasoning is text.
    mark=$(chimere-run --tokenize -p '</think>' | jq '.[0]')
    for think in on off; do
        chimere-run --think $think -p hi -n 2 --logit-bias "$mark=100000" --json | jq -e '.text == "</think></think>" and (.reasoning // "") == ""'
    done
    # Tools that are none; odd ones that are allowed.
    for bad in '5' '"x"' '{}' 'null' '[' ''; do fails 3 '' chimere-run --tools <(printf '%s' "$bad") -p x -n 1; done
    for good in '[]' '[{"type":"function","function":{"name":"f"}}]'; do try 0 chimere-run --tools <(echo "$good") --think off -p x -n 1; done
}

# bats test_tags=slow
@test "descriptors that are closed at start are no data file, and a pipe that is closed ends a program" {
    head -3 "$ROOT/share/eval/math.jsonl" > m.jsonl
    chimere-bench eval -o want m.jsonl -n 5 > record 2> err
    head -c 2000 "$ROOT/share/eval/heldout-docs.txt" > text
    chimere-bench kl -c 64 --windows 1 --save wanted text > record
    for fds in '<&-' '>&-' '2>&-' '<&- >&- 2>&-'; do
        rm -f a s l
        bash -c "chimere-bench eval -o a m.jsonl -n 5 $fds" > out 2> err || [ $? -eq 1 ]
        cmp <(jq -c '[.id, .text]' a | sort) <(jq -c '[.id, .text]' want | sort)
        bash -c "chimere-run --raw -p x -n 1 --logits l --session s $fds" > out 2> err || [ $? -eq 1 ]
        [ $(($(stat -c %s l) % 16384)) -eq 0 ]
        [ "$(held s)" -ge 1 ]
        bash -c "chimere-bench kl -c 64 --windows 1 --save k text $fds" > out 2> err || [ $? -eq 1 ]
        cmp k wanted
    done
    # Its messages have no reader: as any program of Unix. What it would write is not half there.
    rm -f s
    (bash -c 'sleep 0.2; exec chimere-run --raw -v -p hi -n 2 --session s' 2>&1 > out || echo $? > status) | true
    wait_for test -s status
    [ "$(cat status)" -eq 141 ]
    [ ! -e s ]
    (bash -c 'sleep 0.2; exec chimere-run --raw -p hi -n 2' 2>&1 > out && echo 0 > status) | true
    wait_for grep -qx 0 status
    # A full disk, then room: the figure is that of one that was never interrupted.
    (ulimit -f 1; chimere-bench eval -o b "$ROOT/share/eval/math.jsonl" --limit 8 -n 40 > out 2> err) && false
    [ "$(wc -l < err)" -eq 1 ]
    chimere-bench eval -o b "$ROOT/share/eval/math.jsonl" --limit 8 -n 40 2> err | jq .n_right > got
    [ "$(wc -l < b)" -eq 8 ]
    chimere-bench eval "$ROOT/share/eval/math.jsonl" --limit 8 -n 40 2> err | jq .n_right | cmp - got
}

@test "a session that may not be written, by another user" {
    [ "$(id -u)" -eq 0 ] && command -v setpriv > /dev/null || skip "needs root and setpriv"
    as() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
    chmod 755 "$BATS_RUN_TMPDIR" "$BATS_RUN_TMPDIR"/* . 2> /dev/null || true
    as test -x "$PROGRAM" -a -r "$CHIMERE_MODEL" -a -x . || skip "nobody may not read the tree"
    chimere-run --raw -p x -n 1 --session s > out
    cp s before
    for mode in 444 600; do
        chmod $mode s
        try 1 as chimere-run --raw -p y -n 1 --session s
        [ "$(wc -l < err)" -eq 1 ]
        cmp s before
    done
    chmod 666 s # a file that may be written, in a directory where none may be made
    try 0 as chimere-run --raw -p y -n 1 --session s
    [ "$(held s)" -ge 3 ]
}

@test "an output replaces a file of its own kind, and no other" {
    head -c 3000 "$ROOT/share/eval/heldout-docs.txt" > text
    # says COMMAND... OUT: the notes at OUT stay; a file that it wrote itself is replaced.
    replaces()
    {
        local out=${!#}
        rm -rf "$out"
        "$@" > record
        cp "$out" first
        "$@" > record
        cmp "$out" first
        printf 'my notes\nlast line' > "$out"
        fails 2 'and stays as it is' "$@"
        printf 'my notes\nlast line' | cmp - "$out"
        : > "$out"
        "$@" > record
        cmp "$out" first
    }
    replaces chimere-engram-build build -f --day 2026-01-15 text --out t.engram
    replaces chimere-engram-build index -f text --out t.index
    replaces chimere-bench kl -c 64 --windows 1 text --save t.logits
    replaces chimere-bench synth --shape qwen3.5-0.8b,layers=1,vocab=256 --write t.gguf
    replaces chimere-run --raw -p 'The kernel' -n 0 --logits t.f32
    replaces chimere-engram-build merge t.engram --out m.engram
}

# bats test_tags=slow
@test "limits of memory, a session at its end, task sets in odd forms, an evaluation that is killed" {
    for kilobytes in 20000 40000 400000; do
        got=0
        (ulimit -v $kilobytes; exec chimere-run --raw -n 1 -p x) > out 2> err || got=$?
        [ $got -eq 0 ] || { [ $got -eq 1 ] && [ "$(wc -l < err)" -eq 1 ]; }
    done
    for i in 1 2; do try 0 chimere-run --session s --raw -c 30 -n 20 -p ' w' --ignore-eos; done
    fails 1 'the context 30' chimere-run --session s --raw -c 30 -p ' w'
    try 0 chimere-run --session s --raw -c 60 -n 2 -p ' w'
    math=$ROOT/share/eval/math.jsonl
    head -2 "$math" | sed 's/$/\r/' > crlf.jsonl
    { head -1 "$math"; echo; sed -n 2p "$math"; echo; } > lines.jsonl
    head -2 "$math" | head -c -1 > last.jsonl
    for set in crlf lines last; do chimere-bench eval $set.jsonl | jq -e '.n_items == 2 and .n_right == 2'; done
    head -2 "$math" | chimere-bench eval - | jq -e '.n_items == 2'
    head -2 "$math" | head -c -30 > cut.jsonl
    fails 3 'cut.jsonl: line 2' chimere-bench eval cut.jsonl
    # An evaluation that is killed, and another one that would write to the same file: the bytes of one that ran alone.
    asks() { chimere-bench eval -o "$1" "$math" --limit 6 --parallel 1 > out 2> err; }
    asks whole
    asks k &
    pid=$!
    wait_for test -s k
    kill -KILL "$(pgrep -P $pid chimere-bench)"
    wait $pid || true
    [ "$(wc -l < k)" -lt 6 ]
    cp k part
    asks k &
    pid=$!
    wait_for no cmp -s k part
    kill -STOP "$(pgrep -P $pid chimere-bench)"
    fails 1 'k: another process writes it' chimere-bench eval -o k "$math" --limit 6 --parallel 1
    kill -CONT "$(pgrep -P $pid chimere-bench)"
    wait $pid
    cmp k whole
}
