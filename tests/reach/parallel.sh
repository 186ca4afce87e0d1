#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# parallel.sh - batch-parallel.sh with GNU parallel and two machines behind sshd, of which one is lost.
# packages: parallel openssh-server openssh-client jq procps
script=$(realpath "$0") here=$(realpath "$(dirname "$0")/../..")
. "$here/tests/reach/lib.sh"
BIN=$(realpath "${BIN:-$here/bin}")

start_machine() # PORT
{
    printf '%s\n' "Port $1" 'ListenAddress 127.0.0.1' "HostKey $PWD/host" "PidFile $PWD/pid.$1" "AuthorizedKeysFile $PWD/user.pub" \
        'PermitRootLogin yes' 'StrictModes no' 'UsePAM no' "SetEnv PATH=$BIN:/usr/bin:/bin" > "sshd.$1"
    /usr/sbin/sshd -f "$PWD/sshd.$1"
    printf '%s\n' "Host m$1" " Port $1" ' HostName 127.0.0.1' ' User root' " IdentityFile $PWD/user" ' StrictHostKeyChecking no' \
        ' UserKnownHostsFile /dev/null' ' LogLevel ERROR' >> config
}
tree() # PROCESS: it and all that it started
{
    local p
    for p in $(pgrep -P "$1"); do tree "$p"; done
    echo "$1"
}

lost()
{
    ssh-keygen -q -t ed25519 -N '' -f host
    ssh-keygen -q -t ed25519 -N '' -f user
    mkdir -p /run/sshd
    start_machine 2201
    start_machine 2202
    trap 'kill $(cat pid.*) 2> /dev/null || true' EXIT
    for i in {1..40}; do
        printf '{"custom_id":"q%d","method":"POST","url":"/v1/completions","body":{"prompt":"Chapter %d","max_tokens":50,"ignore_eos":true,"seed":1}}\n' $i $i
    done > in.jsonl
    PARALLEL_SSH="ssh -F $PWD/config" bash "$here/share/pipelines/batch-parallel.sh" in.jsonl all m2201 m2202 &
    run=$!
    until compgen -G 'all.shard*' > /dev/null && [ -n "$(pgrep -P "$(cat pid.2201)")" ] && # which shard is on the machine
        n=$(for p in $(tree "$(cat pid.2201)"); do tr '\0' ' ' < "/proc/$p/cmdline"; done | sed -n 's/.*all[.]shard\([12]\).*/\1/p' | head -n 1) &&
        [ -n "$n" ] && [ -s "all.shard$n" ]; do
        kill -0 $run
        sleep 0.05
    done
    # shellcheck disable=SC2046
    kill -9 $(tree "$(cat pid.2201)")
    cp "all.shard$n" before
    wait $run
    [ -s before ] && [ "$(wc -l < before)" -lt 20 ]
    cmp -n "$(wc -c < before)" before "all.shard$n" # it went on where the lost machine was
    diff <(jq -r .custom_id in.jsonl) <(jq -r .custom_id all)
    PATH=$BIN:$PATH
    chimere-serve-stdio -q --batch in.jsonl -o one
    diff <(jq -c '[.custom_id, .response.body.choices]' one | sort) <(jq -c '[.custom_id, .response.body.choices]' all | sort)
}

if [ $# -gt 0 ]; then # with set -e, which try would take away
    set -eu
    "$@"
    exit
fi
command -v parallel ssh jq > /dev/null && [ -x /usr/sbin/sshd ] && [ "$(id -u)" = 0 ] || skip 'needs parallel, ssh, sshd and jq, as root'
work=$(mktemp -d) && cd "$work" || exit 1
export BIN PATH=$BIN:$PATH
try 'the shard of a lost machine goes to the other one, which continues it' bash "$script" lost
finish
