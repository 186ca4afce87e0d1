#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# via.bats - chimere-run --via: a running server answers, with the same bytes and the same exit status; what is said
# where there is none, another one, or one that fails. same_answer.bats asks all of its questions this way, too.
load common

Q='What is 347 + 58?'

# serve [OPTION ...]: a server at ./s, which teardown ends.
serve()
{
    rm -f served
    chimere-serve-stdio --listen "unix:$PWD/s" "$@" > served 2> served.err 3>&- &
    servers+=($!)
    wait_for test -s served || no grep -q 'without HTTP' served.err || skip "built without libmicrohttpd"
}

# fake PYTHON: a server of one file, with a socket `l` that listens at ./s; it has begun when ./ready is there.
fake()
{
    {
        printf 'import json, os, socket, sys, time\nl = socket.socket(socket.AF_UNIX)\nl.bind("s")\nl.listen(8)\n%s\n' \
            "open('ready', 'w').close()"
        printf '%s\n' "$1"
    } > fake.py
    python3 fake.py 3>&- &
    servers+=($!)
    wait_for test -e ready
}

teardown()
{
    local p
    for p in ${servers[@]+"${servers[@]}"}; do
        kill -CONT "$p" 2> /dev/null || true
        kill -KILL "$p" 2> /dev/null || true
        wait "$p" 2> /dev/null || true
    done
}

via() { chimere-run --via "unix:$PWD/s" "$@"; }
# metric NAME VALUE: whether the server has it.
metric() { curl -sS --unix-socket s http://localhost/metrics | grep -qx "$1 $2"; }

# alike ARGUMENT ...: --via and without: what comes out, what is said, the exit status. Times differ.
alike()
{
    local own=0 got=0
    chimere-run "$@" > own 2> own.err < "${from:-/dev/null}" || own=$?
    via "$@" > got 2> got.err < "${from:-/dev/null}" || got=$?
    sed -i -E 's/"timings":\{[^}]*\}/"timings":{}/' own got
    if [ $own -ne $got ] || ! cmp own got || ! cmp own.err got.err; then
        echo "$*: $own and $got"
        head -c 600 own got own.err got.err
        return 1
    fi
}

@test "all kinds of output, and mistakes, are those of a run of its own" {
    serve --think-probe tokens=6
    printf '{"type":"object","properties":{"x":{"type":"integer"}},"required":["x"]}' > schema.json
    printf '{"type":"nonsense"}' > bad.json
    printf '[1]' > odd.json
    printf '[1,2,99999]' > ids.json
    n='-n 12'
    alike -p "$Q" $n --think off
    alike -p "$Q" --reasoning stdout
    alike -p "$Q" $n --reasoning stderr --stream
    alike -p "$Q" $n --jsonl --logprobs 2 --uncertainty
    alike -p "$Q" $n --json --logprobs 2 --temp 1 --seed 7
    alike -p "$Q" $n --json --reasoning-effort low --ctx 600
    alike -p "$Q" $n --json --think-stop cgr:0.9 --think-suppress 0.5
    alike -p "$Q" --json --ctx 40
    alike -p "$Q" --json -n 0
    alike -p "$Q" --ctx 10
    alike -p "$Q" $n --schema schema.json --think off
    alike -p "$Q" --schema bad.json
    alike -p "$Q" --regex '[0-9'
    alike -p "$Q" --tool-choice no
    alike -p "$Q" --logit-bias 99999=1
    alike -p "$Q" --json --logprobs 9999
    alike -p "$Q" --stop-token 99999
    alike --messages odd.json
    alike --tokens ids.json
    alike -p ''
    alike -r -p $'\xff\xfe \n<|im_end|>' $n --plain --json
    printf 'a\0b' > nul
    from=nul alike -r $n
    from=nul alike -s 'Be brief.' $n
}

# The server's directory is another one, so names without a directory in front would be other files there.
@test "files and the standard input are read by the one who asks" {
    serve
    mkdir here
    cd here
    ln -s ../s s
    printf '{"type":"object","properties":{"x":{"enum":[1,2]}},"required":["x"]}' > schema.json
    printf 'root ::= "yes" | "no"' > g.gbnf
    printf '[{"role":"user","content":"What is 12 + 30?"},{"role":"assistant","content":"42"}]' > m.json
    printf '[{"type":"function","function":{"name":"add","parameters":{"type":"object","properties":{"a":{"enum":[347]}},"required":["a"]}}}]' > tools.json
    printf 'Answer in one word.\n' > system
    printf 'Use these notes. What does ls do?\n' > notes
    printf '[1,2,3,4]' > ids.json
    n='-n 10'
    alike -p "$Q" --think off --schema schema.json
    alike -p "$Q" --think off --grammar g.gbnf
    alike -p "$Q" --think off --tools tools.json --tool-choice add --json
    alike -p 'And 5 more?' --messages m.json $n --json
    alike --messages m.json --continue $n --json
    alike -p "$Q" -s @system $n --think off
    alike -p 'Be brief.' notes system $n
    alike --tokens ids.json $n --json
    local name
    for name in none .; do
        for option in --schema --grammar --messages --tools --tokens; do
            alike -p "$Q" $option $name $n
        done
        alike -p "$Q" -s @$name
        alike -p "$Q" $name
    done
    from=notes
    alike $n --json
    alike -p "$Q" $n --json
    alike -p "$Q" --no-stdin $n --json
    alike -p "$Q" system - $n --json
    alike --messages m.json - $n --json
    from=m.json
    alike -p 'And 5 more?' --messages - $n --json
    from=/dev/null
    # What changes an answer by a file that the server would have to open is refused before anybody is asked.
    for option in --engram --context --context-table --examples --recite --calibration; do
        fails 2 "$option and --via do not go together" via -p "$Q" $option notes
    done
}

@test "the log is kept by the one who asks" {
    serve
    chimere-run -p "$Q" -n 9 --log own
    via -p "$Q" -n 9 --log got
    jq -S 'del(.timings, .id, .time)' own/*.jsonl > own.json
    jq -S 'del(.timings, .id, .time)' got/*.jsonl | diff own.json -
}

@test "options of files: auto stands back, a named server is refused" {
    fails 2 '--via x: neither auto nor unix:PATH' chimere-run --via x -p "$Q"
    fails 2 '--session and --via do not go together' chimere-run --via auto --session s.session -p "$Q"
    fails 2 '--draft and --via do not go together' chimere-run --via auto --draft ngram -p "$Q"
    fails 2 'a server answers one question' chimere-run --via unix:s --best-of 2 --temp 1 -p "$Q"
    fails 2 'has no effect with --inspect' chimere-run --via auto --inspect
    export CHIMERE_OPTS='--context-table notes -n 3'
    printf 'The kernel\n' > notes
    fails 2 '--context-table and --via do not go together' chimere-run --via unix:s -p "$Q"
    chimere-run --via auto -p "$Q" -v > out 2> err
    grep -q 'server   none: --context-table is not for one' err
    grep -q '^table    context: ' err
    # Drafts of a file are for answers without a server.
    XDG_RUNTIME_DIR='' CHIMERE_OPTS='--via auto --draft ngram' chimere-run -p "$Q" -n 3 --json | jq -e .drafts
    # The other way round: what is typed counts.
    export CHIMERE_OPTS='--via unix:no'
    chimere-run -p "$Q" -n 3 --session s.session > out
    fails 1 '--via unix:no: no server answers' chimere-run -p "$Q" -n 3
}

@test "auto: no directory, no socket, nobody behind it" {
    chimere-run -p "$Q" -n 9 > want
    XDG_RUNTIME_DIR='' chimere-run --via auto -p "$Q" -n 9 -v > out 2> err
    grep -q 'server   none: XDG_RUNTIME_DIR names no directory' err
    cmp want out
    export XDG_RUNTIME_DIR=$PWD
    chimere-run --via auto -p "$Q" -n 9 -v > out 2> err
    grep -q 'server   none: no server answers: No such file' err
    cmp want out
    mkdir chimere
    python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("chimere/serve.sock")'
    chimere-run --via auto -p "$Q" -n 9 -v > out 2> err
    grep -q 'server   none: no server answers: Connection refused' err
    cmp want out
    chimere-run --via auto -p "$Q" -n 9 > out 2> err
    [ ! -s err ]
    fails 1 'no server answers' chimere-run --via "unix:$PWD/chimere/serve.sock" -p "$Q"
    rm chimere/serve.sock
    serve
    ln -s ../s chimere/serve.sock
    asked() { chimere-run --via auto -p "$Q" -n 9 -v > out 2> err && grep -qx "server   $PWD/chimere/serve.sock" err; }
    wait_for asked # which a busy machine may keep from it for two seconds
    cmp want out
}

@test "a server that says nothing: auto answers by itself after two seconds" {
    chimere-run -p "$Q" -n 9 > want
    mkdir chimere
    ln -s ../s chimere/serve.sock
    fake 'kept = []
while True:
    kept.append(l.accept()[0])'
    XDG_RUNTIME_DIR=$PWD chimere-run --via auto -p "$Q" -n 9 -v > out 2> err
    grep -q 'server   none: the server says nothing for 2 seconds' err
    cmp want out
}

# Each reply of the fake server is a line of ./replies, one for each connection; {} stands for what a server has open.
@test "other servers: refused in a line, or auto answers by itself" {
    serve
    facts=$(curl -sS --unix-socket s http://localhost/props | jq -c .chimere)
    kill "${servers[0]}"
    wait_for test ! -e s
    chimere-run -p "$Q" -n 9 > want
    mkdir chimere
    ln -s ../s chimere/serve.sock
    export XDG_RUNTIME_DIR=$PWD
    fake 'while True:
    c = l.accept()[0]
    c.recv(1 << 20)
    c.sendall(open("reply").read().encode())
    c.close()'
    while IFS='~' read -r status why change; do
        body=$(jq -c "{chimere: ($change)}" <<< "$facts")
        printf 'HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s' ${#body} "$body" > reply
        fails "$status" "$why" via -p "$Q"
        chimere-run --via auto -p "$Q" -n 9 -v > out 2> err < /dev/null
        grep -qF "server   none: $why" err
        cmp want out
    done << 'END'
2~the server is another version of these programs~.version = "0.0.0/0"
2~the server is another version of these programs~null
2~the server has another model, or the file has changed since (-m)~.model = "1:2 3 4.5"
2~the server has other activations (--acts)~.acts = "i8"
2~the server has other adapters (--lora)~.adapters = "1234567812345678"
2~the server keeps keys and values as q8_0,q8_0 (--kv)~.kv = "q8_0,q8_0" | .kv_default = false
END
    while IFS='~' read -r status why reply; do
        printf '%b' "$reply" > reply
        fails "$status" "$why" via -p "$Q"
    done << 'END'
1~what answers is no server of ours~SSH-2.0\r\n
1~what answers is no server of ours~HTTP/1.1 200 OK\r\n\r\n{}
1~what answers is no server of ours~HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999\r\n\r\n{}
1~what answers is no server of ours~HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{]
1~the server ended before its answer did~HTTP/1.1 200 OK\r\n
1~the server ended before its answer did~HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}
1~the server answers 429: too many~HTTP/1.1 429 No\r\nContent-Length: 32\r\n\r\n{"error":{"message":"too many"}}
1~the server answers 500: no reason~HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\n{}
END
}

# A server that has what ours has, and then sends what it should not: lines of ./events behind an answer that has begun.
@test "events that are none: a line, whole lines of JSON, no crash" {
    serve
    curl -sS --unix-socket s http://localhost/props > props
    kill "${servers[0]}"
    wait_for test ! -e s
    fake 'props = open("props", "rb").read()
def head(c):
    got = b""
    while b"\r\n\r\n" not in got:
        got += c.recv(1 << 20)
while True:
    c = l.accept()[0]
    head(c)
    c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(props) + props)
    head(c)
    c.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    for line in open("events", "rb"):
        c.sendall(b"data: " + line + b"\n")
    c.shutdown(socket.SHUT_WR)
    while c.recv(1 << 20):
        pass
    c.close()'
    begun='{"asked":{"prompt_tokens":9,"ctx_tokens":99,"parser":"qwen3.5"}}
{"read":9,"ms":1}
{"token":18,"text":"3"}'
    while IFS='~' read -r why event; do
        printf '%s\n%s' "$begun" "$event" > events
        status=0
        via -p "$Q" --jsonl > out 2> err < /dev/null || status=$?
        [ $status -eq 1 ] || [ $status -eq 3 ]
        [ "$(wc -l < err)" -eq 1 ]
        grep -qF -e "$why" err
        jq -es --argjson status $status '.[0].type == "start" and .[1].token_id == 18 and .[-1].status == $status' out
    done << 'END'
the server: out of memory~{"error":{"message":"out of memory"}}
the server ended before its answer did~{"token":19,"text":
the server ended before its answer did~[DONE]
not a token~{"token":4096,"text":""}
not a text~{"token":1,"text":7}
not an end of an answer~{"end":77,"text":""}
no more room~{"end":8,"text":"","error":{"code":6,"message":"no more room"}}
END
    printf '{"error":{"message":"out of memory"}}' > events
    fails 1 'the server: out of memory' via -p "$Q"
}

@test "options that are the server's, too" {
    serve --kv q8_0 --acts i8
    chimere-run -p "$Q" -n 9 --kv q8_0 --acts i8 > want
    via -p "$Q" -n 9 --kv q8_0,q8_0 --acts i8 > out
    cmp want out
    fails 2 'the server has other activations' via -p "$Q"
    fails 2 'the server keeps keys and values as q8_0,q8_0' via -p "$Q" --acts i8
    fails 2 'the server computes on cpu' via -p "$Q" --acts i8 --kv q8_0 --device cuda
    fails 2 'the server has another model' via -p "$Q" -m "$TINY" --acts i8 --kv q8_0
    fails 2 'the question may take 100000 tokens' via -p "$Q" --acts i8 --kv q8_0 --ctx 100000
}

@test "another user's server is refused" {
    [ "$(id -u)" -eq 0 ] || skip "only root can be another user"
    chmod 755 .
    fake 'os.chmod("s", 0o777)
os.setuid(65534)
l.listen(8) # whose it is from then on
print("up", flush=True)
time.sleep(600)' > up
    wait_for test -s up
    fails 1 "the server is another user's (uid 65534)" via -p "$Q"
}

@test "killed in the middle of an answer: a line, whole lines of JSON, status 1" {
    serve
    for how in --jsonl --json --stream; do
        [ "$how" = --jsonl ] || serve
        via -p "$Q" $how --ignore-eos --think-loops off > out 2> err &
        asker=$!
        if [ $how = --json ]; then
            wait_for metric chimere_requests_running 1
        else
            wait_for test -s out
        fi
        kill -KILL "${servers[-1]}"
        status=0
        wait $asker || status=$?
        [ $status -eq 1 ]
        [ "$(wc -l < err)" -eq 1 ]
        grep -q "^chimere-run: --via unix:.*: the server ended before its answer did" err
        rm -f s
        [ $how != --json ] || [ ! -s out ]
        [ $how != --jsonl ] || jq -es '.[0].type == "start" and .[-1].type == "error" and .[-1].status == 1' out
    done
}

@test "an interrupt ends the work of the server, too" {
    serve
    # A shell's background jobs ignore SIGINT: env gives it back.
    env --default-signal=INT chimere-run --via "unix:$PWD/s" -p "$Q" --jsonl --ignore-eos --think-loops off > out 2> err &
    asker=$!
    wait_for grep -q reasoning out
    kill -INT $asker
    status=0
    wait $asker || status=$?
    [ $status -eq 130 ]
    jq -es '.[-1] | .type == "end" and .finish_reason == "interrupted"' out
    wait_for metric chimere_cancelled_total 1
    wait_for metric chimere_requests_running 0
    chimere-run -p "$Q" -n 5 > want
    via -p "$Q" -n 5 | cmp want -
}

@test "busy with 16 others" {
    serve --parallel 2
    chimere-run -p "$Q" -n 12 > want
    kill -STOP "${servers[0]}"
    for i in $(seq 16); do
        via -p "Count to $i." -n 3 --think off > "other.$i" &
        others+=($!)
    done
    via -p "$Q" -n 12 > out &
    asker=$!
    kill -CONT "${servers[0]}"
    wait $asker
    cmp want out
    wait "${others[@]}"
    [ "$(cat other.* | wc -l)" -eq 16 ]
}

@test "a question of 4 MB" {
    serve
    { printf '{"type":"string","enum":["yes"],"description":"'; head -c 4000000 /dev/zero | tr '\0' x; printf '"}'; } > schema.json
    alike -p "$Q" --schema schema.json --think off
    grep -q yes got
}

@test "--exit-idle: ends by itself, and a question of that moment is answered" {
    fails 2 '--exit-idle needs --listen' chimere-serve-stdio --exit-idle 1
    serve --exit-idle 1
    server=${servers[0]}
    kill -STOP "$server"
    via -p "$Q" -n 5 > out &
    asker=$!
    sleep 1.2 # the time is over when it goes on
    kill -CONT "$server"
    wait $asker
    [ -s out ]
    wait "$server"
    [ ! -e s ]
    fails 1 'no server answers' via -p "$Q"
}

# What a socket unit does: the socket stays, and who connects starts the server.
@test "--exit-idle with a socket that was handed down: the next question starts it again" {
    fake 'import select, subprocess
for n in (1, 2):
    select.select([l], [], [])
    if l.fileno() != 3:
        os.dup2(l.fileno(), 3, inheritable=True)
    os.set_inheritable(3, True)
    code = subprocess.call(["chimere-serve-stdio", "--listen", "fd:3", "--exit-idle", "1"], pass_fds=[3])
    open("ended." + str(n), "w").write(str(code))'
    chimere-run -p "$Q" -n 5 > want
    via -p "$Q" -n 5 | cmp want -
    wait_for test -s ended.1
    via -p "$Q" -n 5 | cmp want -
    wait_for test -s ended.2
    [ "$(cat ended.1 ended.2)" = 00 ]
}
