#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# root.sh new DIR [PACKAGE...] - a fresh Debian of this machine's release in DIR, with these packages, from the sources that
# apt has here: a copy of base beside it, which is made once. Packages that were fetched stay in debs beside it. Nothing is
# installed on this machine: where there is no mmdebstrap, it is unpacked there, too.
# root.sh run DIR COMMAND... - run it in there, with /proc, /sys and /dev, as its own process tree, which ends with it.
# $BIND: directories of this machine that are there, too.
# All as root.
set -eu
[ "$(id -u)" = 0 ] || { echo "root.sh: needs root" >&2; exit 1; }
self=$(realpath "$0") what=${1:-} dir=${2:-}
[ -n "$dir" ] || { echo "root.sh: new DIR [PACKAGE...], or run DIR COMMAND..." >&2; exit 2; }
shift 2

bootstrap() # base, by mmdebstrap
{
    tool=mmdebstrap
    if ! command -v mmdebstrap > /dev/null; then
        tool=$PWD/mmdebstrap
        mkdir -p "$tool"
        (cd "$tool" && apt-get -qq -o APT::Sandbox::User=root download mmdebstrap && dpkg-deb -x mmdebstrap_*.deb .)
        tool=$tool/usr/bin/mmdebstrap
    fi
    . /etc/os-release
    # What apt has to know to reach its sources; a machine whose clock is not the archive's says so there.
    apt-config dump --format '%F "%v";%n' Acquire::http Acquire::https Acquire::Check-Valid-Until Acquire::Check-Date > apt.conf
    apt-get indextargets --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 'Origin: Debian' |
        sort -u > apt.list
    "$tool" --quiet --mode=root --variant=apt --skip=cleanup/apt --aptopt=apt.conf --aptopt='Acquire::Languages "none";' \
        --aptopt='APT::Install-Recommends "0";' --dpkgopt=force-unsafe-io "$VERSION_CODENAME" base.new apt.list
    mv base.new base
}

case $what in
new)
    mkdir -p "$(dirname "$dir")/debs/partial"
    cd "$(dirname "$dir")"
    rm -rf --one-file-system "${dir##*/}" base.new
    [ -d base ] || bootstrap
    cp -a base "${dir##*/}"
    [ $# -eq 0 ] || DEBIAN_FRONTEND=noninteractive flock debs/partial sh "$self" run "${dir##*/}" apt-get -qq -y install "$@" ;;
run)
    # shellcheck disable=SC2016
    exec unshare --mount --pid --fork --kill-child sh -euc 'dir=$1; shift
        mount --bind "$dir" "$dir" # buildah wants a root that is a mount
        mount -t proc proc "$dir/proc"
        mount --rbind /sys "$dir/sys"
        mount --rbind /dev "$dir/dev"
        mkdir -p "$dir/var/cache/apt/archives"
        debs=$(dirname "$dir")/debs
        [ ! -d "$debs" ] || mount --bind "$debs" "$dir/var/cache/apt/archives"
        for b in ${BIND:-}; do mkdir -p "$dir$b"; mount --bind "$b" "$dir$b"; done
        exec chroot "$dir" "$@"' run "$dir" "$@" ;;
*)  echo "root.sh: $what: new or run" >&2; exit 2 ;;
esac
