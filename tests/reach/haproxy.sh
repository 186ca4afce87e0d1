#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# haproxy.sh - two replicas behind a real haproxy with share/haproxy.cfg: which one a conversation goes to, and what clients
# see when one of them ends or is killed.
# packages: haproxy python3 curl jq procps
here=$(realpath "$(dirname "$0")/../..")
. "$here/tests/reach/lib.sh"
BIN=$(realpath "${BIN:-$here/bin}")
if [ $# -eq 0 ]; then
    command -v haproxy python3 curl jq > /dev/null || skip 'needs haproxy, python3, curl and jq'
fi

declare -A replica=() # process by its name
start_replica() # NAME [OPTION...]
{
    local name=$1 port
    shift
    port=$(cat "port.$name" 2> /dev/null || echo 0)
    "$BIN/chimere-serve-stdio" -t 1 --listen "127.0.0.1:$port" --alias nano --notice 3 "$@" > "said.$name" 2> "err.$name" &
    replica[$name]=$!
    wait_for ready "$name"
    url "$name" | sed 's/.*://' > "port.$name"
}
url() { jq -r .url "said.$1"; }
ready() { [ -s "said.$1" ] && [ "$(curl -s -o /dev/null -w '%{http_code}' "$(url "$1")/health")" = 200 ]; }
wait_for() # COMMAND...
{
    local i
    for ((i = 0; i < 1200; i++)); do
        ! "$@" || return 0
        sleep 0.1
    done
    echo "waited in vain: $*"
    return 1
}
start_haproxy() # the file as it is, at other ports
{
    local port
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    sed -e "s/127.0.0.1:8000/127.0.0.1:$port/; s/127.0.0.1:8081/127.0.0.1:$(cat port.one)/; s/127.0.0.1:8082/127.0.0.1:$(cat port.two)/" \
        -e "/^global/a\    stats socket $PWD/stats.sock" "$here/share/haproxy.cfg" > haproxy.cfg
    haproxy -q -c -f haproxy.cfg
    haproxy -q -f haproxy.cfg &
    proxy=$!
    front=http://127.0.0.1:$port
    wait_for up 2
}
up() # HOW MANY replicas haproxy sees
{
    [ "$(python3 -c 'import socket
s = socket.socket(socket.AF_UNIX); s.connect("stats.sock"); s.sendall(b"show stat\n")
print(sum(l.split(",")[1:2] in (["one"], ["two"]) and l.split(",")[17].startswith("UP") for l in s.makefile()))' 2> /dev/null)" = "$1" ]
}
begin()
{
    start_replica one "$@"
    start_replica two "$@"
    start_haproxy
}
counted() { curl -s "$(url "$1")/metrics" | sed -n "s/^chimere_$2 //p"; }

# load.py URL OUT REQUESTS STREAMS: asks them, 16 at a time, each another prompt; a line for each answer, in their order
cat_load()
{
    cat > load.py << 'END'
import http.client, json, sys, threading, urllib.parse
url, out, requests, streams = urllib.parse.urlparse(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
jobs, lines, lock, done = list(range(requests + streams)), {}, threading.Lock(), open(out + ".done", "a")

def ask(i):
    stream = i % (1 + requests // streams) == 0 and i // (1 + requests // streams) < streams
    body = {"prompt": f"Chapter {i}", "max_tokens": 80 if stream else 16, "ignore_eos": True, "seed": i, "stream": stream}
    c = http.client.HTTPConnection(url.hostname, url.port, timeout=300)
    text, end = "", "cut off"
    try:
        c.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        r = c.getresponse()
        if r.status != 200:
            end = f"status {r.status}"
        elif not stream:
            text, end = json.loads(r.read())["choices"][0]["text"], "whole"
        else:
            for line in r:
                if line == b"data: [DONE]\n":
                    end = "whole"
                elif line.startswith(b"data: "):
                    part = json.loads(line[6:])
                    if "error" in part:
                        end = "error: " + part["error"]["message"]
                    else:
                        text += part["choices"][0]["text"]
    except (OSError, http.client.HTTPException) as e:
        end = f"cut off: {type(e).__name__}"
    return {"i": i, "stream": stream, "end": end, "text": text}

def work():
    while True:
        with lock:
            if not jobs:
                return
            i = jobs.pop(0)
        line = ask(i)
        with lock:
            lines[i] = line
            done.write(".")
            done.flush()
threads = [threading.Thread(target=work) for _ in range(16)]
[t.start() for t in threads]
[t.join() for t in threads]
with open(out, "w") as f:
    f.writelines(json.dumps(lines[i]) + "\n" for i in sorted(lines))
END
}

conversations()
{
    begin
    cat > talk.py << 'END'
import http.client, json, sys
host, cached, prompts = sys.argv[1].split("/")[2], 0, 0
for c in range(12):
    system = [{"role": "system", "content": "You answer shortly, in plain words."}] if c % 2 else []
    messages = system + [{"role": "user", "content": f"What is {c} plus 5? Say it in one sentence, please."}]
    for turn in range(4):
        h = http.client.HTTPConnection(host, timeout=300)
        body = {"model": "nano", "temperature": 0, "max_tokens": 24, "reasoning_budget": 0, "messages": messages}
        h.request("POST", "/v1/chat/completions", json.dumps(body))
        r = json.loads(h.getresponse().read())
        if turn > 0:
            cached += r["usage"]["prompt_tokens_details"]["cached_tokens"]
            prompts += r["usage"]["prompt_tokens"]
        messages = messages + [r["choices"][0]["message"], {"role": "user", "content": f"And {turn} more?"}]
print(f"{cached / prompts:.3f} of the tokens of later turns were there")
sys.exit(cached < 0.5 * prompts)
END
    python3 talk.py "$front"
    # both were asked
    for name in one two; do [ "$(counted $name 'requests_total{method="chat_completions"}')" -ge 8 ]; done
}

# of_two SIGNAL: to one of them while 200 requests and 20 streams run; compared with the answers of one replica alone
of_two()
{
    cat_load
    begin
    [ -e ../alone ] || { python3 load.py "$(url one)" ../alone 200 20 && ! grep -v '"end": "whole"' ../alone; }
    python3 load.py "$front" all 200 20 &
    load=$!
    wait_for some 60
    kill "-$1" "${replica[two]}"
    wait "${replica[two]}" || ended=$?
    wait $load
    up 1
    echo "ends: $(jq -r '(if .stream then "stream " else "request " end) + .end' all | sort | uniq -c | tr -s ' \n' ' ,')"
    [ "$(wc -l < all)" -eq 220 ]
    # every request without a stream, and each byte
    cmp <(jq -c 'select(.stream | not)' all) <(jq -c 'select(.stream | not)' ../alone)
    # a stream is whole, or its client knows, and what it has is right
    jq -e -n --slurpfile a ../alone --slurpfile b all '[range(220) | . as $i | select($a[$i].stream) |
        if $b[$i].end == "whole" then $a[$i] == $b[$i] else ($b[$i].end | test("^(cut off|error: )")) and
        ($b[$i].text as $t | $a[$i].text | startswith($t)) end] | length == 20 and all' > /dev/null
    [ "$1" != TERM ] || { [ "${ended:-0}" -eq 0 ] && ! grep -v '"end": "whole"' all; }
    start_replica two # it comes back
    wait_for up 2
}
some() { [ -e all.done ] && [ "$(wc -c < all.done)" -ge "$1" ]; }

leaves()
{
    begin
    curl -s -m 2 "$front/v1/completions" -d '{"prompt":"The kernel","max_tokens":7000,"ignore_eos":true}' && return 1
    gone() { [ "$(($(counted one cancelled_total) + $(counted two cancelled_total)))" -eq 1 ]; }
    wait_for gone
}

long_body()
{
    begin
    python3 -c 'import json; print(json.dumps({"input": "word " * 80000, "add_special": False, "text": "word " * 80000}))' > long.json
    sed -i 's/"input": "[^"]*", //; s/"add_special": false, //' long.json
    [ "$(curl -s "$front/tokenize" -H 'Content-Type: application/json' -d @long.json | jq '.tokens | length')" -ge 80000 ]
}

if [ $# -gt 0 ]; then # one of these, with set -e, which try would take away
    set -eu
    mkdir "$1${2:-}"; cd "$1${2:-}"
    trap 'kill -9 "${replica[@]}" $proxy 2> /dev/null || true' EXIT
    proxy=
    "$1" ${2:+"$2"}
    exit
fi
script=$(realpath "$0") work=$(mktemp -d) && cd "$work" || exit 1
one() { bash "$script" "$1" "${2:-}"; }
try 'a conversation stays with its replica, and both are asked' one conversations
try 'SIGTERM to one of two replicas: 200 requests and 20 streams are answered as by one' one of_two TERM
try 'SIGKILL: 200 requests are; a stream is whole or its client knows' one of_two KILL
try 'a client that leaves does not have its answer computed' one leaves
try 'a body longer than the buffer' one long_body
finish
