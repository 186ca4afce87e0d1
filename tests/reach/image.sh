#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# image.sh - the image from the packages in build/deb (of tests/reach/deb.sh, else built now), started as its own configuration
# says: as its user, on a root that nobody can write to. There is no daemon to start it: a mount namespace and chroot do.
. tests/reach/lib.sh
[ "$(id -u)" = 0 ] && command -v apt-get > /dev/null || skip "needs root on Debian"
command -v jq > /dev/null && command -v curl > /dev/null || skip "jq and curl are not both installed"
export REACH="$(realpath "${REACH:-build/reach}")"
ls build/deb/chimere_*.deb > /dev/null 2>&1 || QUICK=1 DEB_BUILD_OPTIONS="nocheck parallel=2" sh share/deb.sh > "$REACH/built.log" 2>&1
tree=$REACH/image-tree config=$REACH/image-config.json url=http://127.0.0.1:8080
keys=$(mktemp) && chmod 644 "$keys" && echo a-key-of-this-test > "$keys" && trap 'rm -f "$keys"' EXIT

unpacks()
{
    local dir=$REACH/image-archive
    rm -rf "$dir" "$tree" && mkdir -p "$dir" "$tree" && tar -xf build/image/chimere.tar -C "$dir" || return 1
    cp "$dir/$(jq -r '.[0].Config' "$dir/manifest.json")" "$config"
    jq -r '.[0].Layers[]' "$dir/manifest.json" | while read -r layer; do tar -xf "$dir/$layer" -C "$tree" || exit 1; done
}
# start ENV... -- OPTION...: $tree is read-only; /tmp and /cache are memory, as an orchestrator gives them
start()
{
    local env=() user
    while [ "$1" != -- ]; do env+=("$1"); shift; done
    shift
    mapfile -t -O ${#env[@]} env < <(jq -r '.config.Env[]' "$config")
    user=$(jq -r .config.User "$config")
    # shellcheck disable=SC2016
    exec unshare --mount bash -euc 'tree=$1 keys=$2 user=$3
        shift 3
        mount --bind "$tree" "$tree"
        mount -o remount,ro,bind "$tree"
        mount -t proc proc "$tree/proc"
        mount -t tmpfs -o mode=1777 tmp "$tree/tmp"
        mount -t tmpfs -o mode=1777 cache "$tree/cache"
        mount -t tmpfs run "$tree/run"
        mkdir "$tree/run/secrets"
        [ -z "$keys" ] || cp "$keys" "$tree/run/secrets/chimere-keys"
        mount --bind /dev "$tree/dev"
        exec chroot --userspec="$user" "$tree" "$@"' start "$tree" "${with_keys:-}" "$user" \
        /bin/busybox env -i "${env[@]}" $(jq -r '.config.Entrypoint[]' "$config") "$@"
}
built() { sh share/image.sh && unpacks; }
small() { [ "$(du -sm --apparent-size "$tree" | cut -f 1)" -le 120 ] && [ "$(stat -c %s build/image/chimere.tar)" -le 120000000 ]; }
configured()
{
    jq -e '.config | .User == "10001:10001" and .StopSignal == "SIGTERM" and (.Healthcheck.Test | length) > 1 and
        (.Labels["org.opencontainers.image.version"] | length) > 2 and .Labels["org.opencontainers.image.licenses"] == "Apache-2.0"' "$config"
}
no_model()
{
    (start -- > "$REACH/said" 2>&1)
    [ $? -eq 2 ] && [ "$(wc -l < "$REACH/said")" -eq 1 ] && grep -q '^chimere: no model: ' "$REACH/said"
}
no_keys() { (start CHIMERE_MODEL=chimere-nano-q5_k_m -- > "$REACH/said" 2>&1); [ $? -eq 2 ] && [ "$(wc -l < "$REACH/said")" -eq 1 ]; }
all_start()
{
    local p
    for p in "$tree"/usr/bin/chimere-*; do
        [ "${p##*/}" = chimere-image ] || (start -- "${p##*/}" --version) || return 1
    done
}
ask() { curl -sSf -H 'Authorization: Bearer a-key-of-this-test' "$url/v1/chat/completions" -d "$1"; }
answers() # also says how long the first answer took from the start
{
    local from=${EPOCHREALTIME/./} i
    (with_keys=$keys start CHIMERE_MODEL=chimere-nano-q5_k_m -- --cache-dir /cache --drain 60) > "$REACH/served" 2>&1 &
    pid=$!
    for ((i = 0; i < 600; i++)); do
        ask '{"messages": [{"role": "user", "content": "What is 2 + 3?"}]}' > "$REACH/reply" 2> /dev/null && break
        kill -0 $pid || break
        sleep .05
    done
    echo "$(((${EPOCHREALTIME/./} - from) / 1000))" > "$REACH/first"
    jq -e '.choices[0].message.content == "5"' "$REACH/reply"
}
healthy() { chroot "$tree" /bin/busybox $(jq -r '.config.Healthcheck.Test[1:] | join(" ")' "$config" | sed 's/^busybox //'); }
drains() # a stream that runs when the signal comes ends whole, and the server with 0
{
    ask '{"messages": [{"role": "user", "content": "Tell me about sums."}], "max_tokens": 300, "stream": true, "ignore_eos": true}' > "$REACH/stream" &
    local curl=$! i
    for ((i = 0; i < 200; i++)); do [ "$(wc -l < "$REACH/stream")" -lt 4 ] || break; sleep .05; done
    kill -TERM $pid
    wait $curl && grep -q 'data: \[DONE\]' "$REACH/stream" && wait $pid
}
listed()
{
    jq -e '.spdxVersion == "SPDX-2.3" and (.packages | all(.name and .versionInfo and .SPDXID and .downloadLocation))' build/image/chimere.spdx.json &&
        diff <(jq -r '.packages[].name' build/image/chimere.spdx.json | sort) <(ls "$tree/var/lib/dpkg/status.d" | sort) &&
        jq -e '[.packages[].name] | contains(["chimere", "chimere-data", "libc6", "libopenblas0-pthread"])' build/image/chimere.spdx.json
}
try "built from the packages, without a daemon" built
try "at most 120 MB" small
try "user, stop signal, health check, labels" configured
try "without a model: one line, status 2" no_model
try "without keys: one line, status 2" no_keys
try "every program finds its libraries" all_start
answers > "$REACH/said" 2>&1
try "answers on a read-only root, as its user" grep -qx true "$REACH/said"
echo "     image: $(du -sm --apparent-size "$tree" | cut -f 1) MB, first answer after $(cat "$REACH/first") ms"
try "its health check" healthy
try "SIGTERM ends it when the running answer is whole" drains
try "its list of packages is SPDX and complete" listed
finish
