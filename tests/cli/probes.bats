# SPDX-License-Identifier: Apache-2.0
# probes.bats - /health and /metrics as orchestrators and gateways ask them: while the model is loading, during a step,
# and at the end.

load common
load http

health() # prints the status of HTTP and the one in the body
{
    curl -sS -o health -w '%{http_code} ' "${curl_with[@]}" "$url/health"
    jq -r .status health
}
says() # WHAT health is
{
    [ "$(health)" = "$1" ]
}

# A server whose answers wait for the log while the file "hold" exists: so does the step that they are a part of.
runs() { [ "$(metric requests_running)" -eq 1 ]; }
start_slow() # OPTION...
{
    find_shim
    LD_PRELOAD=$shim CHIMERE_TEST_FAULT_HOLD=$PWD/hold start --log log "$@"
    touch hold
}
start_held() # OPTION...
{
    start_slow "$@"
    curl -sS "${curl_with[@]}" "$url/v1/completions" -d '{"prompt":"The kernel","max_tokens":2}' > held 2> why &
    client=$!
    wait_for runs
    steps=$(metric steps_total)
}

# A server that loads until somebody writes its template.
start_loading()
{
    need_http
    mkfifo template
    url=http://localhost curl_with=(--unix-socket socket)
    chimere-serve-stdio --listen unix:socket --template template > served 2> served.err 3>&- &
    server=$!
    wait_for test -S socket
    says '503 loading'
}

@test "while the model is loading: health with its progress, everything else later; then it serves" {
    start_loading
    jq -e '.progress >= 0 and .progress <= 1' health
    curl -sS -D head -o body "${curl_with[@]}" "$url/v1/models"
    grep -q '^HTTP/1.1 503' head
    grep -qi '^Retry-After: ' head
    jq -e '.error.message == "the model is loading"' body
    [ "$(status_of "${curl_with[@]}" "$url/metrics")" = 503 ]
    printf '{%% for m in messages %%}{{ m.content }}{%% endfor %%}' > template
    wait_for says '200 ok'
    [ "$(curl -sS "${curl_with[@]}" "$url/v1/models" | jq -r '.data[0].object')" = model ]
}

@test "a socket that was handed down: requests wait while the model is loading" {
    need_http
    mkfifo template
    python3 -c 'import os, socket
s = socket.socket(socket.AF_UNIX)
s.bind("socket")
s.listen()
os.dup2(s.fileno(), 3)
os.set_inheritable(3, True)
os.execvp("chimere-serve-stdio", ["chimere-serve-stdio", "--listen", "fd:3", "--template", "template"])' > served 2> served.err 3>&- &
    server=$!
    url=http://localhost curl_with=(--unix-socket socket)
    wait_for test -S socket
    loading() { says '503 loading' 2> /dev/null; }
    wait_for loading
    post completions '{"prompt":"The kernel","max_tokens":1}' > first &
    client=$!
    says '503 loading'
    printf '{%% for m in messages %%}{{ m.content }}{%% endfor %%}' > template
    wait "$client"
    jq -e '.usage.completion_tokens == 1' first
    says '200 ok'
}

@test "SIGTERM while the model is loading: status 0, and no socket stays" {
    start_loading
    kill -TERM "$server"
    stopped 0
    [ ! -e socket ] && [ ! -s served ] && [ ! -s served.err ]
    # nor a verifier, which nobody would end: it starts when all else is there
    printf '#!/bin/sh\necho > ran\n' > judge
    chmod +x judge
    mkfifo text
    chimere-serve-stdio --listen unix:socket --context-table text --verifier cmd:./judge > served 2> served.err 3>&- &
    server=$!
    exec 9> text
    kill -TERM "$server"
    stopped 0
    exec 9>&-
    [ ! -e ran ]
}

@test "during a step: probes are answered, on one connection too; the rest waits for it" {
    start_held
    for _ in 1 2 3; do says '200 ok'; done
    curl -sS "$url/metrics" "$url/health" "$url/metrics" -o m1 -o h -o m2 -w '%{num_connects}' > connects
    [ "$(cat connects)" = 100 ] # one connection for all three
    [ "$(grep -c "^chimere_steps_total $steps\$" m1 m2 | tr '\n' ' ')" = 'm1:1 m2:1 ' ]
    curl -sS "$url/v1/models" > models &
    asks=$!
    [ "$(status_of "$url/nowhere")" = 404 ]
    no wait_for_long "$asks"
    kill -0 "$client"
    rm hold
    wait "$client" "$asks"
    jq -e '.usage.completion_tokens == 2' held
    jq -e '.data[0].object == "model"' models
}
wait_for_long() # PROCESS: whether it ends while ten more probes are answered
{
    local i

    for ((i = 0; i < 10; i++)); do
        says '200 ok'
        kill -0 "$1" || return 0
    done
    return 1
}

@test "during a step: who leaves is cancelled after it, and keys are asked for" {
    echo secret > keys
    curl_with=(-H 'Authorization: Bearer secret')
    start_slow --api-key-file keys
    python3 - "${url##*:}" <<'EOF' &
import os, socket, struct, sys, time
def ask():
    s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    body = b'{"prompt":"The kernel","max_tokens":2}'
    s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: secret\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    return s
asks = [ask()]
while not os.path.exists("leave"):
    time.sleep(0.01)
asks.append(ask()) # which the engine sees, or not
for s in asks:
    s.close() # at once
EOF
    client=$!
    wait_for runs
    [ "$(curl -sS -o body -w '%{http_code}' "$url/metrics")" = 401 ]
    [ "$(curl -sS -o body -w '%{http_code}' "$url/metrics" -H 'Authorization: Bearer secreT')" = 401 ]
    [ "$(curl -sS -o body -w '%{http_code}' "$url/health")" = 200 ] # needs none
    touch leave
    wait "$client"
    for _ in 1 2 3; do says '200 ok'; done # it has looked for them by then
    rm hold
    asked() { metric 'requests_total{method="completions"}'; }
    left() { [ "$(metric requests_running)" -eq 0 ] && [ "$(metric cancelled_total)" -eq "$(asked)" ]; }
    wait_for left
    [ "$(asked)" -ge 1 ]
    post completions '{"prompt":"The kernel","max_tokens":1}' | jq -e '.usage.completion_tokens == 1'
}

@test "--stuck: a step that does not end, and ends" {
    start_held --stuck 1
    wait_for says '503 stuck'
    jq -e '.reason | test("^a step of the engine has not ended for [0-9]+ s$")' health
    rm hold
    wait "$client"
    says '200 ok'
}

@test "--notice: health says that the server ends, requests are still taken" {
    start --notice 600
    says '200 ok'
    kill -TERM "$server"
    wait_for says '503 ending'
    post completions '{"prompt":"The kernel","max_tokens":1}' | jq -e '.usage.completion_tokens == 1'
    kill -TERM "$server"
    stopped 143
}

@test "--notice: its end begins the drain" {
    start --notice 1
    kill -TERM "$server"
    stopped 0
}

@test "1000 probes by eight clients during a step: all are answered, and so is the request" {
    start_held
    python3 - "${url##*:}" << 'EOF'
import http.client, sys, threading
good = []
def ask():
    c = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=60)
    for _ in range(125):
        c.request("GET", "/health")
        r = c.getresponse()
        good.append(r.status == 200 and b'"ok"' in r.read())
threads = [threading.Thread(target=ask) for _ in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
sys.exit(len(good) != 1000 or not all(good))
EOF
    rm hold
    wait "$client"
    jq -e '.usage.completion_tokens == 2' held
}

@test "a probe that never reads, and 200 connections that send nothing, during a step" {
    start_held
    python3 - "${url##*:}" <<'EOF'
import http.client, socket, sys
port = int(sys.argv[1])
mute = socket.create_connection(("127.0.0.1", port))
mute.settimeout(60)
mute.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50)
idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(200)]
for byte in b"GET /hea":  # one that comes byte by byte
    idle[-1].send(bytes([byte]))
for _ in range(20):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    c.request("GET", "/health")
    assert c.getresponse().status == 200
EOF
    rm hold
    wait "$client"
    jq -e '.usage.completion_tokens == 2' held
}

@test "--metrics-names vllm: gauges by both names, of the same values" {
    start --metrics-names vllm
    post completions '{"prompt":"The kernel","max_tokens":300}' > out
    curl -sS "$url/metrics" > metrics
    awk '/^chimere_kv_size_tokens / { size = $2 } /^chimere_kv_used_tokens / { used = $2 } /^chimere_kv_usage / { usage = $2 }
        /^vllm:kv_cache_usage_perc[{]/ { theirs = $2 } /^chimere_kv_page_tokens / { page = $2 }
        /^vllm:cache_config_info[{]/ { config = $1 }
        END { exit !(used > 0 && usage > used / size - 1e-5 && usage < used / size + 1e-5 && theirs > usage - 1e-5 &&
            theirs < usage + 1e-5 && config == "vllm:cache_config_info{block_size=\"" page "\",num_gpu_blocks=\"" size / page "\"}") }' metrics
    grep -q '^vllm:num_requests_running{model_name="chimere-nano-q5_k_m.gguf"} 0$' metrics
    grep -q '^vllm:num_requests_waiting{model_name="chimere-nano-q5_k_m.gguf"} 0$' metrics
    no grep -q lora metrics # there is none
    [ "$(grep -c '^# TYPE' metrics)" -eq "$(grep '^# TYPE' metrics | sort -u | wc -l)" ]
}

@test "metrics name the adapters in use" {
    for name in a b; do
        python3 "$ROOT/tests/cli/make_lora.py" $name.gguf qwen35moe 4 2 1 output.weight:256:4096
    done
    start_slow --metrics-names vllm --lora a.gguf --lora b.gguf
    post completions '{"prompt":"a","max_tokens":2,"lora":[{"id":1,"scale":0.5}]}' > held &
    client=$!
    wait_for runs
    [ "$(metric adapters_running)" -eq 1 ]
    curl -sS "$url/metrics" | grep -qE '^vllm:lora_requests_info\{max_lora="2",running_lora_adapters="b.gguf",waiting_lora_adapters=""\} [0-9]{10}$'
    rm hold
    wait "$client"
    [ "$(metric adapters_running)" -eq 0 ]
}
