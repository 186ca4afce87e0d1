#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# deb.sh [OUT] - builds the Debian packages of share/debian from this tree in a clean root (root.sh), checks them with lintian
# and autopkgtest, and puts them into OUT (build/deb). As root; nothing is installed on this machine.
# In the environment: REACH, the directory of the roots; DEB_BUILD_OPTIONS (nocheck, noopt, parallel=N);
# DEB_BUILD_PROFILES=pkg.chimere.cuda builds chimere-cuda, too, with the toolkit in CUDA_HOME, for CUDA_ARCHS (90 and 120);
# ARCH=arm64 builds for that; QUICK: not empty, packages only, and in another directory, with nothing checked.
set -eu
cd "$(dirname "$0")/.."
out=${1:-build/deb} reach=${REACH:-build/reach} arch=${ARCH:-} here=$PWD
mkdir -p "$out" "$reach"
out=$(realpath "$out") root=$(realpath "$reach")/deb${arch:+-$arch}
here() { sh "$here/share/root.sh" run "$root" "$@"; }
QUICK=${QUICK:-}
version=$(sed -n 's/^VERSION *= *//p' Makefile)
[ -d "$root" ] || {
    sh share/root.sh new "$root.new" build-essential fakeroot ${arch:+crossbuild-essential-$arch}
    mv "$root.new" "$root"
}
# The source: these files, and share/debian as debian. The time of all is that of the changelog.
[ "$version" = "$(sed -n '1s/.*(\(.*\)).*/\1/p' share/debian/changelog)" ] || { echo "share/debian/changelog: not $version" >&2; exit 1; }
time=$(sed -n 's/^ -- .*>  //p' share/debian/changelog | head -n 1)
room=/build/${QUICK:+again/}chimere dir=$root$room
rm -rf "$root/build" && mkdir -p "$dir/chimere-$version"
{ git ls-files -z 2> /dev/null || find . -type f ! -path './build/*' ! -path './bin/*' -print0; } |
    tar -c --null -T - --mode=u+rw,go+r,go-w | tar -x -C "$dir/chimere-$version"
cp -r share/debian "$dir/chimere-$version/debian"
find "$dir/chimere-$version" -exec touch -h -d "$time" {} +
flock "$reach/debs/partial" sh share/root.sh run "$root" sh -euc 'export DEBIAN_FRONTEND=noninteractive
    [ -z "$1" ] || { dpkg --add-architecture $1; apt-get -qq update; }
    apt-get -qq -y -P "$3" ${1:+--host-architecture $1} build-dep "$2"
    id build > /dev/null 2>&1 || useradd -d /build build
    chown -R build /build' sh "$arch" "$room/chimere-$version" "${arch:+cross,nocheck}" >> "$reach/deb.log" 2>&1
start=$(date +%s)
path=/usr/sbin:/usr/bin:/sbin:/bin${CUDA_HOME:+:$CUDA_HOME/bin}
BIND="${CUDA_HOME:-}" here env -i HOME=/build LC_ALL=C.UTF-8 PATH="$path" \
    ${CUDA_ARCHS:+CUDA_ARCHS="$CUDA_ARCHS"} DEB_BUILD_OPTIONS="${DEB_BUILD_OPTIONS:-}" DEB_BUILD_PROFILES="${DEB_BUILD_PROFILES:-}${arch:+ cross nocheck}" \
    setpriv --reuid=build --regid=build --clear-groups sh -euc 'cd "$1"; shift; dpkg-buildpackage "$@" > ../log 2>&1; times' sh \
    "$room/chimere-$version" -us -uc --source-option=-Zgzip --source-option=-z1 ${arch:+-b -a$arch} ${QUICK:+-b} > "$reach/times" ||
    { tail -n 30 "$dir/log"; exit 1; }
echo "packages: built in $(($(date +%s) - start)) s, processor time $(tail -n 1 "$reach/times")"
rm "$dir/log" && find "$dir" -maxdepth 1 -type f -exec cp {} "$out" \;
[ -z "$QUICK" ] || exit 0

# What others say of the packages.
bad=0
[ -d "$reach/lint" ] || { sh share/root.sh new "$reach/lint.new" lintian > "$reach/lint.log" 2>&1 && mv "$reach/lint.new" "$reach/lint"; }
rm -rf "$reach/lint/pkg" && cp -r "$out" "$reach/lint/pkg"
sh share/root.sh run "$reach/lint" sh -c 'lintian -I --pedantic --allow-root --fail-on error,warning,info /pkg/*.changes' > "$reach/lintian" 2>&1 || bad=1
cat "$reach/lintian"
[ $bad = 1 ] || echo "lintian: nothing but the above"
sh share/root.sh new "$reach/try" autopkgtest > "$reach/try.log" 2>&1
mkdir "$reach/try/pkg" && cp "$out"/*.deb "$out"/*.dsc "$out"/*.tar.* "$reach/try/pkg" && rm -f "$reach"/try/pkg/chimere-cuda_* "$reach"/try/pkg/*dbgsym*
if sh share/root.sh run "$reach/try" sh -c 'autopkgtest /pkg/*.deb /pkg/*.dsc -- null' > "$reach/autopkgtest" 2>&1; then echo "autopkgtest: passed"
else tail -n 30 "$reach/autopkgtest"; bad=1
fi
exit $bad
