# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154
# sandbox.sh - programs that a model wrote run here. Who reads it has set `tmp`, a directory that must not be seen inside,
# and `seconds`; pick_sandbox sets `sandbox` to one of the functions, or leaves it empty.

# A program on stdin, with no files but the system's, no network, little memory and time.
by_systemd() # INTERPRETER ...
{
    systemd-run --user --quiet --wait --pipe --collect -p PrivateNetwork=yes -p PrivateTmp=yes -p PrivateUsers=yes \
        -p PrivateDevices=yes -p PrivateIPC=yes -p ProtectSystem=strict -p ProtectHome=tmpfs -p ProtectProc=invisible \
        -p RestrictAddressFamilies=none -p NoNewPrivileges=yes -p CapabilityBoundingSet= -p MemoryMax=512M -p TasksMax=64 \
        -p RuntimeMaxSec=$seconds -- "$@"
}

by_bwrap()
{
    (ulimit -v 2097152 -t "$seconds" -f 16384 -c 0
        exec timeout -k 1 "$seconds" bwrap --unshare-all --die-with-parent --new-session --clearenv --setenv PATH /usr/bin:/bin \
            --ro-bind /usr /usr --ro-bind-try /lib /lib --ro-bind-try /lib64 /lib64 --ro-bind-try /bin /bin \
            --ro-bind-try /etc/alternatives /etc/alternatives --proc /proc --dev /dev --size 67108864 --tmpfs /tmp --chdir /tmp \
            -- "$@")
}

# One that keeps its promise: inside there is no network, and this run's directory is not seen.
pick_sandbox()
{
    local way
    for way in systemd bwrap; do
        command -v "$([ $way = bwrap ] && echo bwrap || echo systemd-run)" > /dev/null || continue
        if printf '%s\n' 'while read -r device rest; do case $device in *:) [ "$device" = lo: ] || exit 1 ;; esac; done < /proc/net/dev' \
            'read -r dir; [ ! -e "$dir" ] || exit 1' "$tmp" 'echo held' |
            "by_$way" sh -s 2> /dev/null | grep -qx held; then
            sandbox=by_$way
            return
        fi
    done
}
