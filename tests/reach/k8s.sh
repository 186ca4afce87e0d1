#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# k8s.sh - share/k8s: the files keep Kubernetes' schemas, and their commands run as a kubelet runs them.
# packages: python3-yaml python3 jq mount iproute2 procps
# pypi: kubernetes-validate
here=$(realpath "$(dirname "$0")/../..")
. "$here/tests/reach/lib.sh"
BIN=$(realpath "${BIN:-$here/bin}")
py=${PYTHON:-python3}

# The schemas of what kubernetes-validate does not know: the members of InferencePool v1 and of a kustomization.
schemas()
{
    cat > check.py << 'END'
import copy, pathlib, sys, warnings, yaml
import kubernetes_validate

pool = {"apiVersion": str, "kind": str, "metadata": {"name": str}, "spec": {"selector": {"matchLabels": None},
    "targetPorts": [{"number": int}], "endpointPickerRef": {"group": str, "kind": str, "name": str, "port": {"number": int},
    "failureMode": str}}}
kustomization = {"apiVersion": str, "kind": str, "resources": [str]}
own = {"InferencePool": (pool, "inference.networking.k8s.io/v1"), "Kustomization": (kustomization, "kustomize.config.k8s.io/v1beta1")}

def keeps(value, schema):
    if schema is None:
        return True
    if isinstance(schema, dict):
        return isinstance(value, dict) and all(k in schema and keeps(v, schema[k]) for k, v in value.items())
    if isinstance(schema, list):
        return isinstance(value, list) and all(keeps(v, schema[0]) for v in value)
    return isinstance(value, schema)

def valid(doc):
    if doc.get("kind") in own:
        schema, version = own[doc["kind"]]
        return keeps(doc, schema) and doc.get("apiVersion") == version
    try:
        kubernetes_validate.validate(doc, "1.37", strict=True)
        return True
    except (kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError, kubernetes_validate.InvalidSchemaError, KeyError):
        return False

# Their keys are the user's own.
free = {"labels", "matchLabels", "annotations", "requests", "limits"}

def misspelt(node, root, name=""):
    if isinstance(node, dict):
        for k in list(node):
            if name not in free and not (name == "selector" and "matchLabels" not in node):
                was = dict(node)
                node.clear()
                node.update({(x + "x" if x == k else x): v for x, v in was.items()})
                yield k
                node.clear()
                node.update(was)
            yield from misspelt(node[k], root, k)
    elif isinstance(node, list):
        for item in node:
            yield from misspelt(item, root, name)

tried = 0
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.yaml")):
    for doc in yaml.safe_load_all(path.read_text()):
        assert valid(doc), f"{path.name}: refused"
        copied = copy.deepcopy(doc)
        keys = 0
        for key in misspelt(copied, copied):
            assert not valid(copied), f"{path.name}: {key}x was accepted"
            keys += 1
        assert keys >= 3 and copied == doc
        tried += keys
        if doc["kind"] == "Kustomization":
            assert all((path.parent / r).is_file() for r in doc["resources"])
print(tried, "keys misspelt, each refused")
END
    "$py" check.py "$here/share/k8s"
    for f in "$here"/share/k8s/*.yaml; do "$py" -m kubernetes_validate --strict "$f" || kubernetes-validate --strict "$f"; done
}

# The times of the deployment fit: what runs after SIGTERM ends before SIGKILL, and the probe sees the end before the socket goes.
times()
{
    "$py" - "$here/share/k8s/deployment.yaml" << 'END'
import sys, yaml
pod = yaml.safe_load(open(sys.argv[1]))["spec"]["template"]["spec"]
c = pod["containers"][0]
arg = {a.split("=")[0]: a.split("=")[1] for a in c["args"]}
notice, drain = int(arg["--notice"]), int(arg["--drain"])
ready = c["readinessProbe"]
assert pod["terminationGracePeriodSeconds"] > c["lifecycle"]["preStop"]["sleep"]["seconds"] + notice + drain
assert notice > ready["periodSeconds"] * ready["failureThreshold"]
mounts = {m["name"] for m in c["volumeMounts"]}
assert mounts == {v["name"] for v in pod["volumes"]}
END
}

# A container by hand: its root is read-only, its user has no rights, its volumes are directories here.
# container FILE [NAME=VALUE]... [+COMMAND]: the command with the file's own arguments
container()
{
    local file=$1
    shift
    "$py" - "$here/share/k8s/$file" "$@" > command << 'END'
import shlex, sys, yaml
doc = next(yaml.safe_load_all(open(sys.argv[1])))
c = doc["spec"]["template"]["spec"]["containers"][0]
words = c["command"] + c["args"]
for name, value in (v.split("=", 1) for v in sys.argv[2:]):
    words = [w.replace(f"$({name})", value) for w in words]
assert not any("$(" in w for w in words)
print(" ".join(map(shlex.quote, words)))
END
    # shellcheck disable=SC2016
    exec unshare --mount --propagation unchanged --fork --kill-child sh -euc 'root=$PWD/root
        mkdir -p root volumes/models volumes/cache volumes/batches volumes/tmp
        mount --bind / root
        mkdir -p /models /cache /batches /keys
        for v in models cache batches keys tmp; do mount --bind "volumes/$v" "root/$v"; done
        mount --bind "$1" root/mnt
        mount -o remount,bind,ro root
        [ -z "${READONLY:-}" ] || mount -o remount,bind,ro "root/$READONLY"
        mount -t proc proc root/proc
        mount --rbind /dev root/dev
        command=$(cat command)
        exec chroot root env PATH=/mnt:$PATH HOME=/nonexistent \
            sh -c "exec setpriv --reuid 10001 --regid 10001 --clear-groups --no-new-privs --bounding-set=-all $command"' sh "$BIN" "$@"
}
volumes()
{
    mkdir -p volumes/models volumes/cache volumes/batches volumes/tmp volumes/keys
    cp "$here/share/models/chimere-nano-q5_k_m.gguf" volumes/models/model.gguf
    echo secret > volumes/keys/keys
    chown -R 10001:10001 volumes
}

jobs_and_merge()
{
    volumes
    for i in {1..20}; do
        printf '{"custom_id":"q%d","method":"POST","url":"/v1/completions","body":{"prompt":"Chapter %d","max_tokens":4}}\n' $i $i
    done > volumes/batches/in.jsonl
    for i in {0..7}; do
        [ $i -ne 5 ] || continue
        (JOB_COMPLETION_INDEX=$i container shards.yaml THREADS=2 JOB_COMPLETION_INDEX=$i)
    done
    got=0
    (container merge.yaml) > list 2> err || got=$? # one is missing
    [ $got -ne 0 ] && [ ! -e volumes/batches/out.jsonl ]
    (JOB_COMPLETION_INDEX=5 container shards.yaml THREADS=2 JOB_COMPLETION_INDEX=5)
    (container merge.yaml)
    diff <(jq -r .custom_id volumes/batches/out.jsonl) <(jq -r .custom_id volumes/batches/in.jsonl)
}

read_only_cache()
{
    volumes
    got=0
    (READONLY=cache container deployment.yaml THREADS=1) > out 2> err || got=$?
    cat err
    [ $got -eq 1 ] && [ ! -s out ] && [ "$(wc -l < err)" -eq 1 ] && grep -q 'cache-dir: /cache: not a directory that this user may write to' err
}

# As a kubelet asks: a new connection each time, a second for the answer, whatever runs; and what it sees at the end.
probes()
{
    volumes
    ip link set lo up
    cat > kubelet.py << 'END'
import http.client, json, subprocess, sys, threading, time

pod, times, said, answers, lock = int(sys.argv[1]), [], [], [], threading.Lock()

def request(method, path, body=None, timeout=1, key=None):
    c = http.client.HTTPConnection("127.0.0.1", 8080, timeout=timeout)
    c.request(method, path, body, {"Authorization": f"Bearer {key}"} if key else {})
    r = c.getresponse()
    text = r.read()
    c.close()
    return r.status, text

def probe():
    began = time.monotonic()
    try:
        status, text = request("GET", "/health")
        state = json.loads(text)["status"]
    except OSError as e:
        status, state = 0, type(e).__name__
    return time.monotonic() - began, status, state

def ask(i, words, tokens):
    body = {"prompt": " ".join(f"word{i * 7919 + j * 31 % 997}" for j in range(words)), "max_tokens": tokens, "ignore_eos": True}
    status, text = request("POST", "/v1/completions", json.dumps(body), 300, "secret")
    with lock:
        answers.append((status, json.loads(text)["usage"]))

def load(n, words, tokens):
    threads = [threading.Thread(target=ask, args=(i, words, tokens)) for i in range(n)]
    [t.start() for t in threads]
    return threads

for _ in range(900): # the probe of the start
    if probe()[1] == 200:
        break
    time.sleep(0.2)
running = load(8, 500, 8)
while any(t.is_alive() for t in running):
    took, status, state = probe()
    times.append(took)
    assert status == 200, (status, state, took)
    time.sleep(0.05)
[t.join() for t in running]
print(f"{len(times)} probes beside {sum(u['prompt_tokens'] for _, u in answers)} tokens of prompts: the longest took {max(times):.3f} s")
assert len(times) >= 20 and len(answers) == 8 and min(u["prompt_tokens"] for _, u in answers) > 1000
running = load(4, 100, 400)
time.sleep(0.5)
subprocess.run(["kill", "-TERM", str(pod)], check=True)
time.sleep(0.2)
while (seen := probe())[1]:
    said.append(seen[1:])
    time.sleep(0.1)
[t.join() for t in running]
assert set(said) == {(503, "ending")}, said
assert len(answers) == 12 and all(status == 200 for status, _ in answers), answers
END
    (container deployment.yaml THREADS=2) > said 2> err &
    container=$!
    until pod=$(pgrep -P $container -f 'chimere-serve-stdio --model'); do kill -0 $container; sleep 0.1; done
    "$py" kubelet.py "$pod" || { cat err; return 1; }
    wait $container
}

if [ $# -gt 0 ]; then # one of these, with set -e, which try would take away
    set -eu
    mkdir "$1" && cd "$1"
    "$@"
    exit
fi
"$py" -c 'import kubernetes_validate, yaml' 2> /dev/null || skip 'needs kubernetes-validate'
script=$(realpath "$0") work=$(mktemp -d) && cd "$work" || exit 1
one() { bash "$script" "$1"; }
try 'each file keeps its schema, and each misspelt key is refused' one schemas
try 'the times of the deployment fit each other' one times
try 'the Job of shards, then that of the merge' one jobs_and_merge
try 'probes of a second while prompts run, then SIGTERM: none fails, all is answered' unshare --net bash "$script" probes
try 'a volume for the cache that is read-only: one line' one read_only_cache
finish
