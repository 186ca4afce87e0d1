#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# --session: going on gives the bytes of one run that was never interrupted, whatever happens to the writer.
load common

SUM='What is 347 + 58?'

# ids FILE: the prompt of a run and its answer, as one list.
whole()
{
    jq -cs 'add' "$@"
}

@test "whole prompts of tokens: what the session has is not evaluated, the answer is the same" {
    chimere-run --tokenize "$ROOT/README.md" | jq -c '.[:700]' > a.json
    chimere-run --tokens a.json -n 20 --json > one
    jq -e '.cache == null and .usage.cached_tokens == null' one
    try 0 chimere-run --tokens a.json -n 20 --json --session s
    jq -e '.usage.cached_tokens == 0 and .usage.evaluated_tokens == 700 and .cache.held_tokens == 0' out
    [ "$(jq -c .token_ids out)" = "$(jq -c .token_ids one)" ]
    jq -c .token_ids one > answer.json
    echo '[11,12,13]' > b.json
    whole a.json answer.json b.json > ab.json
    chimere-run --tokens ab.json -n 20 --json --logits want.f32 --logits-last 2 > two
    for chunk in 1 512; do
        cp s s.copy
        try 0 chimere-run --tokens ab.json -n 20 --json --session s.copy --chunk $chunk --threads $((chunk % 2 + 1)) \
            --logits got.f32 --logits-last 2
        jq -e '.usage.prompt_tokens == 723 and .usage.cached_tokens == 719 and .usage.evaluated_tokens == 4 and
               .cache.held_tokens == 719 and .cache.common_tokens == 719 and .cache.had == null' out
        [ "$(jq -c '[.token_ids, .text]' out)" = "$(jq -c '[.token_ids, .text]' two)" ]
        cmp want.f32 got.f32
    done
}

@test "the first token that differs is told, with text around it" {
    chimere-run --tokenize "$ROOT/README.md" | jq -c '.[:200]' > a.json
    jq -c '.[100] = 5 | .[:150]' a.json > b.json
    chimere-run --tokens a.json -n 4 --session s > /dev/null
    chimere-run --tokens b.json -n 4 --json > want
    try 0 chimere-run --tokens b.json -n 4 --json --session s -v
    jq -e --slurpfile a a.json '.cache.common_tokens == 100 and .cache.kept_tokens <= 100 and
           .cache.had.token_id == $a[0][100] and .cache.given.token_id == 5 and
           (.cache.before | length > 0) and (.cache.had.after | length > 0)' out
    [ "$(jq -c .token_ids out)" = "$(jq -c .token_ids want)" ]
    grep -q 'token 100 differs' err
    # Keys as documented, in usage and in cache.
    jq -r '.cache | keys[]' out | sort | diff - <(awk '/^\.S[sh]/ { on = $2 == "cache" }
        on && /^\.It Li/ { print $3 }' "$ROOT/man/chimere-jsonl.5" | sort)
    jq -e '(.usage | keys) == ["cached_tokens", "completion_tokens", "evaluated_tokens", "prompt_tokens",
           "reasoning_tokens"]' out
}

@test "the same prompt again costs its last message's end" {
    echo '[{"role": "user", "content": "What is 347 + 58?"}]' > m.json
    chimere-run --messages m.json --json --session s > one
    try 0 chimere-run --messages m.json --json --session s
    [ "$(jq .text out)" = "$(jq .text one)" ]
    jq -e '.usage.evaluated_tokens < 8 and .usage.cached_tokens > 10 and .cache.common_tokens == .usage.prompt_tokens' out
    # The next question in the chat: the template leaves the reasoning out, the session goes back to before it.
    jq -c '. + [{"role": "assistant", "content": "405"}, {"role": "user", "content": "And 5 more?"}]' m.json > m2.json
    chimere-run --messages m2.json --json > want
    try 0 chimere-run --messages m2.json --json --session s
    [ "$(jq -c .token_ids out)" = "$(jq -c .token_ids want)" ]
    jq -e '.cache.kept_tokens > 10' out
}

@test "a conversation, turn by turn" {
    try 0 chimere-run -p "$SUM" --session s --json
    jq -c .token_ids out > answer.json
    chimere-run --show-prompt -p "$SUM" | chimere-run --tokenize > first.json
    # The rest of the turn, as the template ends it, and the next one.
    { printf '<|im_end|>\n'; chimere-run --show-prompt -p 'And 20 more?'; } | chimere-run --tokenize > next.json
    whole first.json answer.json next.json > all.json
    chimere-run --tokens all.json --json > want
    try 0 chimere-run -p 'And 20 more?' --session s --json
    [ "$(jq -c .token_ids out)" = "$(jq -c .token_ids want)" ]
    jq -e --argjson n "$(jq length next.json)" '.usage.evaluated_tokens == $n' out
    [ "$(jq .usage.prompt_tokens out)" -eq "$(jq length all.json)" ]
    # Standard input and plain text work as well.
    echo "$SUM" | try 0 chimere-run --session s
    [ -s out ]
}

@test "an answer that was cut inside its reasoning is ended before the next turn" {
    chimere-run -p "$SUM" --session s --json -n 7 > one
    chimere-run --show-prompt -p "$SUM" | chimere-run --tokenize > first.json
    jq -c .token_ids one > answer.json
    { printf '\n</think>\n\n<|im_end|>\n'; chimere-run --show-prompt -p 'Go on.'; } | chimere-run --tokenize > next.json
    whole first.json answer.json next.json > all.json
    chimere-run --tokens all.json -n 30 --json > want
    try 0 chimere-run -p 'Go on.' -n 30 --session s --json
    [ "$(jq -c .token_ids out)" = "$(jq -c .token_ids want)" ]
    jq -e '.cache.had == null' out
}

@test "raw text goes on where it ended, in pieces as in one" {
    all=$(chimere-run --raw -n 60 -p 'The kernel keeps'; echo .)
    first=$(chimere-run --raw -n 25 -p 'The kernel keeps' --session s; echo .)
    second=$(chimere-run --raw -n 1 -p '' --session s --kv f32; echo .)
    third=$(chimere-run --raw -n 34 -p '' --session s; echo .)
    [ "${first%.}${second%.}$third" = "$all" ]
}

@test "a text that is cut within a character loses nothing of it" {
    # Four tokens that are the bytes of one character, f0 9f 98 80, and one that is a letter.
    bytes=$(for b in 172 253 246 222; do printf -- '--logit-bias %s=%s ' $b $((16000 - (b == 253) * 4000 - (b == 246) * 8000 - (b == 222) * 12000)); done)
    forced() { chimere-run --raw $bytes --presence-penalty 1000000 --penalty-last-n -1 "$@"; } # shellcheck disable=SC2086
    [ "$(forced -p hi -n 4)" = $'\xf0\x9f\x98\x80' ]
    for first in 1 2 3; do
        rm -f s
        one=$(forced -p hi -n $first --session s; echo .)
        [ "$one" = . ]
        two=$(forced -p '' -n $((4 - first)) --session s)
        [ "$two" = $'\xf0\x9f\x98\x80' ]
    done
    rm -f s
    forced -p hi -n 2 --session s --json | jq -e '.text == ""'
    # Without a session there is nothing that could complete it.
    forced -p hi -n 2 | cmp - <(printf '\xef\xbf\xbd\xef\xbf\xbd')
}

@test "the session's types of keys and values are the default" {
    chimere-run --raw -n 5 -p 'The kernel' --session s --kv f16,q8_0 > /dev/null
    try 0 chimere-run --raw -n 5 -p ' keeps' --session s
    fails 2 's: a session with keys and values of types f16,q8_0, not f32,f32' \
        chimere-run --raw -n 5 -p ' keeps' --session s --kv f32
}

@test "a session is of one model, one kind, one place" {
    chimere-run -p "$SUM" --session s -n 3 > /dev/null
    cp s before
    chimere-run --tokens <(echo '[1,2]') -n 1 --session q > /dev/null
    fails 3 "q: a session of the model 'chimere-nano-q5_k_m.gguf' (qwen35moe, fingerprint " \
        chimere-run -m "$TINY" --tokens <(echo '[1,2]') -n 1 --session q
    grep -q "not of 'qwen35moe-k.iq3_s.gguf'" err
    fails 2 's: the session is a chat' chimere-run --raw -p x --session s
    fails 2 's: the session has begun' chimere-run -p x -s 'Be brief.' --session s
    fails 2 '--session has no effect with --inspect' chimere-run --inspect --session s
    fails 1 'tokens, the context 10' chimere-run -p x --session s --ctx 10
    # Also a prompt that comes whole does not take the place of a conversation of the other kind.
    echo '[1, 2, 3]' > ids.json
    echo '[{"role": "user", "content": "hi"}]' > m.json
    fails 2 's: the session is a chat' chimere-run --tokens ids.json -n 1 --session s
    cmp s before
    chimere-run --raw -n 1 -p x --session r > /dev/null
    cp r before
    fails 2 'r: the session is no chat' chimere-run -p x --session r
    fails 2 'r: the session is no chat' chimere-run --messages m.json -n 1 --session r
    cmp r before
    # Another name of the same model is the same model.
    cp "$CHIMERE_MODEL" other-name.gguf
    try 0 chimere-run -m other-name.gguf -p x -n 1 --session s
}

@test "what is no session file" {
    mkdir d
    fails 1 'd: is a directory' chimere-run -p x --session d
    fails 1 'no/s: cannot open its directory' chimere-run -p x --session no/s
    fails 1 'cannot create' chimere-run -p x --session /proc/s
    echo text > t
    fails 3 't: is not a session file' chimere-run -p x --session t
    : > empty
    try 0 chimere-run -p x --session empty # one that has not begun
    fails 1 'is not a regular file' chimere-run -p x --session /dev/null
    [ "$(cat t)" = text ]
    chimere-run -p x -n 1 --session s > /dev/null
    head -c 300 s > cut
    fails 3 'cut: offset ' chimere-run -p x --session cut
    cp s junk
    printf '%1000s' '' >> junk
    try 0 chimere-run -p x -n 1 --session junk
    head -c $(($(stat -c %s s) / 2)) s | cat - /dev/zero | head -c "$(stat -c %s s)" > bad
    fails 3 'bad: offset ' chimere-run -p x --session bad
}

@test "one program at a time" {
    chimere-run -p x -n 1 --session s > /dev/null
    exec 9< s
    flock -x 9
    fails 1 'another process has this session open' chimere-run -p x --session s
    exec 9<&-
    try 0 chimere-run -p x -n 1 --session s
}

@test "an interrupted answer is kept" {
    chimere-run --raw -p 'The kernel' --ignore-eos -n 100000 --session s > text &
    pid=$!
    for _ in $(seq 100); do [ -s text ] && break; sleep 0.05; done
    kill -TERM $pid # a shell's background job ignores SIGINT
    status=0
    wait $pid || status=$?
    [ $status -eq 143 ]
    [ -s s ]
    try 0 chimere-run --raw -p '' -n 5 --session s --json
    jq -e '.cache.had == null and .usage.evaluated_tokens <= 2 and .usage.cached_tokens > 2' out
}

@test "killed at any moment: the old or the new session" {
    chimere-run --tokenize "$ROOT/README.md" | jq -c '.[:300]' > a.json
    jq -c '.[:200]' a.json > short.json
    chimere-run --tokens short.json -n 3 --session old --json > one
    chimere-run --tokens a.json -n 8 --json > want
    for i in $(seq 15); do
        cp old s
        chimere-run --tokens a.json -n 3 --session s > /dev/null 2>&1 &
        pid=$!
        sleep "0.$(printf %03d $((i * 12)))"
        kill -KILL $pid 2> /dev/null || true
        wait $pid 2> /dev/null || true
        try 0 chimere-run --tokens a.json -n 8 --session s --json
        [ "$(jq -c .token_ids out)" = "$(jq -c .token_ids want)" ]
        jq -e '.cache.kept_tokens >= 199' out > /dev/null
    done
}

@test "every write, sync and rename fails in turn: the session is what it was, or complete" {
    shim=${BUILD:-build}/test/fault-shim.so
    [ "${shim#/}" != "$shim" ] || shim=$ROOT/$shim
    [ -e "$shim" ] || skip "no $shim"
    export ASAN_OPTIONS=verify_asan_link_order=0
    echo '[1, 2, 3, 4, 5]' > a.json
    run() { chimere-run -m "$TINY" --tokens a.json -n 2 --threads 1 --ctx 64 --session s; }
    run > /dev/null
    cp s old
    for have in no old; do
        for kind in write sync rename open alloc; do
            for n in $(seq 9); do
                rm -f s
                [ $have = no ] || cp old s
                status=0
                CHIMERE_TEST_FAULT=$kind:$n LD_PRELOAD=$shim run > out 2> err || status=$?
                [ $status -eq 0 ] || { [ "$(wc -l < err)" -eq 1 ] && grep -q '^chimere-run: ' err; }
                if [ -e s ]; then run > again; elif [ $have = old ]; then false; fi
            done
        done
    done
    [ -z "$(find . -name '.s.*')" ]
}

@test "closed descriptors never become the session" {
    for fd in 0 1 2; do
        rm -f s
        chimere-run --raw --session s -p 'The kernel' -n 2 > /dev/null
        case $fd in
        0) chimere-run --raw --session s -p ' keeps' -n 2 <&- > out ;;
        1) try 1 bash -c 'chimere-run --raw --session s -p " keeps" -n 2 >&-' ;;
        2) chimere-run --raw --session s -p ' keeps' -n 2 -v 2>&- > out ;;
        esac
        try 0 chimere-run --raw --session s -p ' a' -n 1 --json
        [ "$(jq .cache.held_tokens out)" -ge 3 ]
    done
}

@test "a session that was made, replaced or removed meanwhile" {
    mkfifo f
    slow() # a turn that waits for its prompt
    {
        chimere-run --raw -n 2 --session s < f > out 2> err 3>&- &
        pid=$!
        exec 9> f
        sleep 0.5
    }
    ends() # STATUS
    {
        local got=0
        printf Alpha >&9
        exec 9>&-
        wait $pid || got=$?
        [ $got -eq "$1" ]
    }
    slow
    chimere-run --raw -n 2 -p Beta --session s > /dev/null
    cp s beta
    ends 1
    grep -q "s: another" err
    cmp s beta
    slow
    cp s mine
    mv s gone
    echo other > s
    ends 1
    grep -q "s: was replaced" err
    [ "$(cat s)" = other ]
    cmp gone mine
    mv gone s
    slow
    rm s
    ends 0
    grep -q "s: had been removed" err
    chimere-run --raw -n 0 -p x --session s --json | jq -e '.cache.held_tokens > 3'
}

@test "damage in an earlier turn is found and costs nothing" {
    for i in 1 2 3 4; do chimere-run --raw -n 3 -p " w$i" --session q > /dev/null; done
    python3 - << 'END'
import struct
d = bytearray(open('q', 'rb').read()); o = 256
while struct.unpack_from('<I', d, o)[0] != 5: o += 64 + struct.unpack_from('<Q', d, o + 32)[0]
d[o + 64 + 10] ^= 4; open('q', 'wb').write(d)
END
    cp q damaged
    fails 3 "damaged" chimere-run --raw -n 2 -p x --session q
    cmp q damaged
}

@test "a session that was cut says so, and reading leaves it as it is" {
    for i in 1 2; do chimere-run --raw -n 3 -p " w$i" --session q > answer; [ $i = 2 ] || cp q first; done
    chimere-run --session first --show > want
    size=$(stat -c %s q) begin=$(stat -c %s first)
    for cut in 1 64 65 $(((size - begin) / 2)) $((size - begin - 1)); do
        cp q c
        truncate -s -"$cut" c
        cp c before
        try 0 chimere-run --session c --show
        cmp out want
        [ "$(cat err)" = "chimere-run: c: its last turn is not whole and is left out ($((size - begin - cut)) bytes): \
the file was cut, or a program was killed while it saved" ]
        try 0 chimere-run --raw -n 1 -p x --session c --session-ro
        grep -q 'is not whole' err
        cmp c before
    done
    try 0 chimere-run --raw -n 1 -p x --session c
    grep -q 'is not whole' err
    try 0 chimere-run --session c --show
    [ ! -s err ]
}

@test "an output is never another file of the command line" {
    chimere-run --raw -p hi -n 1 --session s > /dev/null
    cp s before
    cp "$CHIMERE_MODEL" m.gguf
    echo hello > prompt
    ln prompt link
    for out in s ./s; do fails 2 'is also' chimere-run --raw -p '' -n 1 --session s --logits $out; done
    fails 2 "--logits m.gguf: is also" chimere-run -m m.gguf --raw -p hi -n 1 --logits m.gguf
    fails 2 "--logits m.gguf: is also" env CHIMERE_MODEL=m.gguf chimere-run --raw -p hi -n 1 --logits m.gguf
    for out in prompt link; do fails 2 "is also" chimere-run --raw -n 1 --logits $out prompt; done
    fails 2 "is also" chimere-run --raw -n 1 --session prompt prompt
    fails 2 "needs the name" chimere-run --raw -p hi -n 1 --logits -
    try 2 bash -c 'chimere-run --raw -p hi -n 1 --logits /dev/stdout > file'
    cmp s before
    cmp m.gguf "$CHIMERE_MODEL"
    [ "$(cat prompt)" = hello ]
}

@test "several sessions as a table, the last one by its name" {
    fails 2 'there is no *.session' chimere-run --session last -p x
    fails 2 '--show needs --session' chimere-run --show
    for p in 'What is 2 + 2?' 'Now add 5 to that.'; do chimere-run --session a.session --think off -p "$p" < /dev/null > /dev/null; done
    chimere-run --session b.session --raw -n 2 -p 'The kernel keeps a list' > /dev/null
    touch -d '2026-01-15 12:00' b.session
    echo no > c.session
    try 3 chimere-run --show -- *.session
    [ "$(wc -l < out)" -eq 4 ]
    grep -qE '^a.session +20[0-9-]+ [0-9:]+ +2 +[0-9]+ +[0-9.]+ MB  What is 2 \+ 2\?$' out
    grep -qE '^b.session  2026-01-15 12:00 +- +[0-9]+ +[0-9.]+ MB  The kernel keeps a list' out
    grep -q '^c.session .*not a session' out
    # On a terminal the words are as long as a row.
    script -qec 'stty cols 72; exec chimere-run --show a.session b.session' typescript < /dev/null | tr -d '\r' > shown
    grep -qx 'b.session  2026-01-15 12:00      - .* MB  The kernel ke\.\.\.' shown || { cat shown; false; }
    [ "$(awk 'length > 71' shown | wc -l)" -eq 0 ]
    try 3 chimere-run --show --json -- *.session
    jq -es 'map(.n_turns) == [2, null, null] and .[0].first_words == "What is 2 + 2?" and .[2].error != null and
        .[0].file_bytes == '"$(stat -c %s a.session)" out
    # Of another model the words are unknown.
    try 3 chimere-run -m "$TINY" --show -- *.session
    grep -q '^a.session .* (of chimere-nano-q5_k_m.gguf)$' out
    # One is shown, by name or as the last.
    rm c.session
    chimere-run --session a.session --show > want
    chimere-run --show a.session | cmp - want
    mkdir d.session # no file, so not the last
    chimere-run --session last --show | cmp - want
    fails 2 'the session is named twice' chimere-run --session a.session --show b.session
    chimere-run --session last --think off -p 'And 2 more?' < /dev/null > /dev/null
    chimere-run --session a.session --show --json | jq -e '.messages | length == 6'
    # A file of that name is what is meant.
    chimere-run --session last --think off -p 'What is 2 + 2?' < /dev/null > /dev/null
    mv a.session last
    chimere-run --session last --show --json | jq -e '.messages | length == 8'
}
