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

start_machines()
{
    ssh-keygen -q -t ed25519 -N '' -f host
    ssh-keygen -q -t ed25519 -N '' -f user
    mkdir -p /run/sshd
    start_machine 2201
    start_machine 2202
}
batch() # N TOKENS
{
    for ((i = 1; i <= $1; i++)); do
        printf '{"custom_id":"q%d","method":"POST","url":"/v1/completions","body":{"prompt":"Chapter %d","max_tokens":%d,"ignore_eos":true,"seed":1}}\n' $i $i "$2"
    done > in.jsonl
}
on_machines() # MACHINE...
{
    PARALLEL_SSH="ssh -F $PWD/config" exec "${as[@]}" bash "$here/share/pipelines/batch-parallel.sh" in.jsonl all "$@"
}
proved() # the merge has all, and its answers are those of one process
{
    diff <(jq -r .custom_id in.jsonl) <(jq -r .custom_id all)
    chimere-serve-stdio -q --batch in.jsonl -o one
    diff <(jq -c '[.custom_id, .response.body.choices]' one | sort) <(jq -c '[.custom_id, .response.body.choices]' all | sort)
}

# Here, and on a machine behind sshd: when the script has ended, no worker is left, and the same command goes on.
ended()
{
    batch 24 50
    for way in 'TERM 143 one' 'HUP 129 one' 'TERM 143 group' 'INT 130 group'; do
        # shellcheck disable=SC2086
        set -- $way
        as=(setsid env --default-signal="$1")
        rm -f all*
        on_machines : m2201 2> err &
        run=$!
        until [ -s all.shard1 ] && [ -s all.shard2 ]; do kill -0 $run; sleep 0.05; done
        if [ "$3" = group ]; then kill -s "$1" -- -$run; else kill -s "$1" $run; fi
        got=0
        wait $run || got=$?
        [ $got -eq "$2" ]
        if pgrep -f 'chimere-serve-stdio.*in[.]jsonl'; then exit 1; fi
        [ "$(cat all.shard? | wc -l)" -lt 24 ]
        for i in 1 2; do flock -n all.shard$i true; done
        as=()
        cat all.shard1 all.shard2 > before
        (on_machines : m2201)
        cat all.shard1 all.shard2 | grep -cxFf before | grep -x "$(wc -l < before)"
        proved
    done
    cat err
}

lost()
{
    batch 40 50
    as=()
    on_machines m2201 m2202 &
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
    proved
}

if [ $# -gt 0 ]; then # with set -e, which try would take away
    set -eu
    "$@"
    exit
fi
command -v parallel ssh jq > /dev/null && [ -x /usr/sbin/sshd ] && [ "$(id -u)" = 0 ] || skip 'needs parallel, ssh, sshd and jq, as root'
work=$(mktemp -d) && cd "$work" || exit 1
export BIN PATH=$BIN:$PATH
start_machines > log 2>&1 || { cat log; echo "reach/parallel: 0 passed, 1 failed: sshd does not start"; exit 1; }
trap 'kill $(cat pid.*) 2> /dev/null || true' EXIT
try 'a signal ends all workers, here and elsewhere, and the same command goes on' bash "$script" ended
try 'the shard of a lost machine goes to the other one, which continues it' bash "$script" lost
finish
