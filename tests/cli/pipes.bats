#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# chimere-run among other programs: where prompts come from, what goes where, pipes that break.
load common

@test "the prompt: -p, a file, stdin, -" {
    printf 'What is 2 + 3?\n' > question
    try 0 chimere-run --show-prompt -p 'What is 2 + 3?'
    cp out want
    grep -q 'What is 2 + 3?' want
    try 0 chimere-run --show-prompt question
    cmp out want
    try 0 chimere-run --show-prompt < question
    cmp out want
    try 0 chimere-run --show-prompt - < question
    cmp out want
    try 0 chimere-run --show-prompt -- question
    cmp out want
}

@test "what is piped in comes after -p, whatever is asked" {
    printf 'from stdin' > in
    for how in '' '-'; do
        # shellcheck disable=SC2086
        try 0 chimere-run --raw --show-prompt -p 'from -p' $how < in
        [ "$(cat out)" = $'from -p\nfrom stdin' ]
    done
    [ "$( (sleep 0.3; cat in) | chimere-run --raw --show-prompt -p 'from -p')" = $'from -p\nfrom stdin' ]
    [ "$(chimere-run --tokenize -p 'from -p' < in)" = "$(printf 'from -p\nfrom stdin' | chimere-run --tokenize)" ]
    [ "$(chimere-run --think off -p 'What is' <<< '347 + 58?')" = "$(chimere-run --think off -p $'What is\n347 + 58?' < /dev/null)" ]
    # The rest of a file, as a loop leaves it; the loop has its lines with --no-stdin.
    printf 'a\nb\n' > lines
    [ "$( (head -c 2 > first; chimere-run --raw --show-prompt -p x) < lines)" = $'x\nb' ]
    while read -r line; do chimere-run --raw --show-prompt --no-stdin -p "$line."; done < lines > out
    [ "$(cat out)" = a.b. ]
}

@test "without input beside -p, a standard input that is no pipe or file is not waited for" {
    : > empty
    for in in /dev/null empty; do
        try 0 chimere-run --raw --show-prompt -p x < $in
        [ "$(cat out)" = x ] && [ ! -s err ]
    done
    try 0 chimere-run --raw --show-prompt -p x <&-
    [ "$(cat out)" = x ]
    [ "$(: | chimere-run --raw --show-prompt -p x)" = x ]
    printf 'the standard input' > in # is something else here
    try 0 chimere-run --raw --show-prompt -p x empty < in
    [ "$(cat out)" = x ]
    fails 2 '--no-stdin needs --prompt' chimere-run --no-stdin
    # A pipe that nobody writes to and nobody closes: told, and not read with --no-stdin.
    mkfifo f
    exec 5<> f
    try 0 chimere-run --raw --show-prompt --no-stdin -p x < f
    chimere-run --raw --show-prompt -p x < f > out 2> err 3>&- &
    wait_for test -s err
    kill $!
    no wait $!
    [ ! -s out ]
    [ "$(cat err)" = 'chimere-run: waits for the standard input, which comes after -p; --no-stdin or < /dev/null leaves it out' ]
    # A socket and a terminal are not waited for either.
    python3 - "$(command -v chimere-run)" << 'END'
import os, pty, socket, subprocess, sys
for fd in socket.socketpair()[0], pty.openpty()[1]:
    assert subprocess.run([sys.argv[1], "--raw", "--show-prompt", "-p", "x"], stdin=fd, capture_output=True, timeout=60).stdout == b"x"
END
}

@test "a text in another encoding is told, once" {
    printf 'Wie sp\xe4t ist es? \xe4' > latin
    printf 'What is 2 + 2?' | iconv -t UTF-16 > wide
    for text in latin wide; do
        try 0 chimere-run --think off -n 1 $text
        grep -qE '^chimere-run: the text is not UTF-8, at byte [0-9]+; iconv' err
        [ "$(wc -l < err)" -eq 1 ]
    done
    grep -q 'byte 0;' err
    try 0 chimere-run --think off -q -n 1 latin
    [ ! -s err ]
    iconv -f LATIN1 -t UTF-8 latin > text
    try 0 chimere-run --think off -n 1 text
    [ ! -s err ]
}

@test "files are put together as they are" {
    printf 'one\n' > a
    printf 'two' > b
    printf 'three\n' > c
    cp b b2
    try 0 chimere-run --raw --show-prompt a b - c < b2
    [ "$(cat out; echo .)" = $'one\ntwotwothree\n.' ]
}

@test "tokens and back, byte for byte" {
    printf 'Grüße, 世界! \xf0\x9f\x8c\x8d\ttab\n\n<|im_start|> x = [1, 2];  \n' > text
    try 0 chimere-run --tokenize text
    jq -e 'type == "array" and length > 10' out
    [ "$(wc -l < out)" -eq 1 ]
    chimere-run --detokenize out | cmp - text
    chimere-run --tokenize --plain text > plain
    [ "$(jq length plain)" -gt "$(jq length out)" ]
    chimere-run --detokenize --plain plain | cmp - text
    : > nothing
    [ "$(chimere-run --tokenize nothing)" = '[]' ]
    [ -z "$(chimere-run --detokenize -p '[]')" ]
}

@test "tokens as the prompt give what their text gives" {
    chimere-run --raw -n 8 -p 'The kernel keeps a list' > want
    chimere-run --tokenize -p 'The kernel keeps a list' | chimere-run --tokens - -n 8 | cmp - want
    [ "$(wc -c < want)" -gt 4 ]
}

@test "only the answer is on stdout, and nothing on stderr" {
    try 0 chimere-run -n 12 -p 'What is 2 + 3?' --think=off
    [ ! -s err ]
    [ "$(wc -l < out)" -ge 1 ]
    try 0 chimere-run -n 12 -p 'What is 2 + 3?' --think=off -v
    grep -q '^device ' err
    grep -q 'tokens/s' err
    no grep -q 'tokens/s' out
}

@test "a chat's answer ends with a newline, a raw text does not" {
    [ "$(chimere-run --think=off -n 3 -p 'What is 347 + 58?' | tail -c 1 | od -An -c | tr -d ' ')" = '\n' ]
    [ "$(chimere-run --raw -n 3 -p 'What is 347 + 58?' | tail -c 1 | od -An -c | tr -d ' ')" != '\n' ]
}

@test "a signal ends the wait for who writes to a pipe or reads from it" {
    local i=0 pid=()
    waits() { mkfifo f$((++i)); "$@" > out$i 2> err$i 0<&7 & pid+=($!); }
    mkfifo silent
    exec 7<> silent
    : > none
    for command in eval ppl 'eval --compare none' 'kl --save l' 'speed --against' 'plot -o p.svg'; do
        # shellcheck disable=SC2086
        waits chimere-bench $command f$((i + 1))
    done
    for command in eval ppl; do waits chimere-bench $command -; done
    waits chimere-engram-build build f$((i + 1)) --out t
    waits chimere-engram-build build - --out u
    waits chimere-quantize --recipe f$((i + 1)) "$TINY" t.gguf
    waits chimere-draft-train lora -m "$TINY" -o a.gguf f$((i + 1))
    for command in '' --messages --tokens '--raw --grammar-file'; do
        # shellcheck disable=SC2086
        waits chimere-run $command f$((i + 1))
    done
    waits chimere-run
    waits chimere-run --tokenize -
    sleep 0.4
    from=$(date +%s%N)
    kill -TERM "${pid[@]}"
    for p in "${pid[@]}"; do
        got=0
        wait "$p" || got=$?
        [ $got -eq 143 ] || { tail err*; false; }
    done
    [ $((($(date +%s%N) - from) / 1000000)) -lt 2000 ]
    exec 7>&-
    # What cannot be read again is no file of answers; a prompt need not be.
    fails 1 'f1: is not a regular file' chimere-bench eval -o f1 "$ROOT/share/eval/math.jsonl" --limit 1
    echo '[{"role":"user","content":"2 + 2?"}]' > f2 &
    try 0 chimere-run --think off --messages f2
    [ "$(cat out)" = 4 ]
}

@test "a reader that goes away ends it quietly" {
    set +o pipefail
    chimere-run --raw --stream --ignore-eos -n 400 -p 'The kernel' 2> err | head -c 1 > out
    [ "${PIPESTATUS[0]}" -eq 141 ]
    [ ! -s err ]
}

@test "a full disk is a failure" {
    for args in '--raw -n 4' '-n 4 --json' '-n 4 --jsonl' --tokenize --show-prompt; do
        status=0
        # shellcheck disable=SC2086
        chimere-run $args -p 'The kernel' > /dev/full 2> err || status=$?
        [ $status -eq 1 ]
        [ "$(wc -l < err)" -eq 1 ]
        grep -q '^chimere-run: standard output: .*: No space left on device$' err
    done
    for args in -h --version --inspect '--inspect --json' '--completion bash'; do
        status=0
        # shellcheck disable=SC2086
        chimere-run $args > /dev/full 2> err || status=$?
        [ $status -eq 1 ]
        [ "$(cat err)" = 'chimere-run: standard output: cannot write: No space left on device' ]
        # shellcheck disable=SC2086
        chimere-run $args >&- 2> err && false
        [ "$(cat err)" = 'chimere-run: standard output: cannot write: Bad file descriptor' ]
    done
}

@test "threads and chunks do not change a byte" {
    head -c 300 "$ROOT/LICENSE" > text
    chimere-run --raw -n 12 --threads 1 --logits want.f32 --logits-last 3 text > want
    for args in '--threads 2' '--chunk 1' '--chunk 7 --threads 2' '--chunk 512' '--ctx 2k'; do
        # shellcheck disable=SC2086
        chimere-run --raw -n 12 $args --logits got.f32 --logits-last 3 text | cmp - want
        cmp got.f32 want.f32
    done
}

# blocked SIGNAL PROGRAM ...: with a small non-blocking pipe as standard output that nobody reads; prints how it ended, and
# the milliseconds from the signal.
blocked()
{
    python3 - "$@" << 'END'
import fcntl, os, signal, subprocess, sys, time
r, w = os.pipe2(os.O_NONBLOCK)
fcntl.fcntl(w, fcntl.F_SETPIPE_SZ, 4096)
with open('err', 'wb') as err:
    p = subprocess.Popen(sys.argv[2:], stdin=subprocess.DEVNULL, stdout=w, stderr=err)
os.close(w)
while len(open(f'/proc/{p.pid}/wchan').read()) == 0 or 'poll' not in open(f'/proc/{p.pid}/wchan').read():
    time.sleep(0.02)
time.sleep(0.1)
begin = time.time()
p.send_signal(getattr(signal, sys.argv[1]))
p.wait(20)
print(-p.returncode, int(1000 * (time.time() - begin)))
END
}

@test "a signal is obeyed within half a second where nobody reads the answer, and a session has the turn" {
    command -v python3 > /dev/null || skip "python3 is not installed"
    for name in SIGTERM SIGHUP SIGINT; do
        rm -f s
        read -r signal ms < <(blocked $name chimere-run --raw --stream --ignore-eos -p 'The kernel' --session s)
        [ "$(kill -l "$signal")" = "${name#SIG}" ]
        [ "$ms" -lt 500 ] || [ -n "$SLOW" ]
        [ "$(cat err)" = "chimere-run: standard output: nobody read it when the signal came: the rest is lost" ]
        [[ "$(chimere-run --session s --show)" == "The kernel will"* ]]
    done
    read -r signal ms < <(blocked SIGTERM chimere-run --raw --jsonl --ignore-eos -p 'The kernel')
    [ "$signal" -eq 15 ]
    [ "$(wc -l < err)" -eq 1 ]
}

@test "a non-blocking pipe is waited for" {
    command -v python3 > /dev/null || skip "python3 is not installed"
    seq 3000 > numbers
    for words in 'chimere-run --tokenize numbers' 'chimere-run -h' 'chimere-run --inspect' 'chimere-bench -h' 'chimere-quantize -h' \
        'chimere-engram-build --help-json' 'chimere-draft-train --help-json' 'chimere-serve-stdio -h'; do
        # shellcheck disable=SC2086
        $words > want
        # shellcheck disable=SC2086
        python3 - $words > got << 'END'
import fcntl, os, subprocess, sys, time
r, w = os.pipe2(os.O_NONBLOCK)
fcntl.fcntl(w, fcntl.F_SETPIPE_SZ, 4096)
p = subprocess.Popen(sys.argv[1:], stdout=w, stderr=w)
os.close(w)
time.sleep(0.1)
os.set_blocking(r, True)
while data := os.read(r, 1000):
    sys.stdout.buffer.write(data)
sys.exit(p.wait())
END
        cmp got want
    done
}
