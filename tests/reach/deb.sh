#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# deb.sh - the Debian packages: built, read by lintian, tried by autopkgtest; built again to the same bytes; built without
# optimising; installed, upgraded, purged.
. tests/reach/lib.sh
[ "$(id -u)" = 0 ] && command -v apt-get > /dev/null || skip "needs root on Debian"
export REACH="$(realpath "${REACH:-build/reach}")"
out=build/deb root=$REACH/install
inside() { sh share/root.sh run "$root" sh -euc "export DEBIAN_FRONTEND=noninteractive HOME=/root; $1"; }

rm -rf "$out" "$out-again" "$out-noopt" "$out-old"
sh share/deb.sh "$out" > "$REACH/built.log" 2>&1
built=$?
tail -n 3 "$REACH/built.log" | sed 's/^/     /'
try "the packages are built, unit tests among them" grep -q '^packages: built' "$REACH/built.log"
try "lintian finds no error, warning or information" grep -q '^lintian: nothing' "$REACH/built.log"
try "autopkgtest passes" grep -q '^autopkgtest: passed' "$REACH/built.log"
try "nothing failed" [ $built -eq 0 ]

again() { DEB_BUILD_OPTIONS="$1" QUICK=1 sh share/deb.sh "$2"; }
same_bytes()
{
    again "nocheck parallel=2" "$out-again" || return 1
    local deb
    for deb in "$out"/*.deb; do cmp "$deb" "$out-again/${deb##*/}" || return 1; done
    [ "$(ls "$out"/*.deb | wc -l)" -ge 3 ]
}
try "another directory, without tests: the same bytes" same_bytes
answers_unoptimised()
{
    again "nocheck noopt parallel=2" "$out-noopt" && rm -rf "$REACH/noopt" && dpkg-deb -x "$out"-noopt/chimere_*.deb "$REACH/noopt" || return 1
    cp -r "$REACH/noopt" "$REACH/deb/noopt" # its libraries are there
    sh share/root.sh run "$REACH/deb" sh -euc 'rm -rf /opt/noopt; mv /noopt /opt; mkdir -p /opt/noopt/usr/share/chimere
        cp -r /build/again/chimere/chimere-*/share/models /opt/noopt/usr/share/chimere
        [ "$(/opt/noopt/usr/bin/chimere-run -p "What is 2 + 3?" -n 60)" = 5 ]'
}
try "DEB_BUILD_OPTIONS='nocheck noopt' gives programs that answer" answers_unoptimised
symbols()
{
    rm -rf "$REACH/symbols" && dpkg-deb -x "$out"/chimere-dbgsym_*.deb "$REACH/symbols" || return 1
    local f n=0
    for f in "$REACH"/symbols/usr/lib/debug/.build-id/*/*.debug; do
        cp "$f" "$REACH/deb/build/one.debug"
        sh share/root.sh run "$REACH/deb" readelf -sW /build/one.debug | grep -q 'FUNC .* cli_model_path$' && n=$((n + 1))
    done
    [ $n -ge 5 ]
}
try "chimere-dbgsym has the functions of the programs" symbols
units()
(
    rm -rf "$REACH/units" && dpkg-deb -x "$out"/chimere_*.deb "$REACH/units" || return 1
    cd "$REACH/units/usr/lib/systemd/user" && [ "$(ls | wc -l)" -ge 8 ] &&
        ! grep -r '@PREFIX@\|Exec.*/usr/local' . && ! zgrep '/usr/local/share' ../../../share/man/man?/* &&
        grep -q '^ExecStart="/usr/bin/chimere-serve-stdio' chimere.service
)
try "units are in usr/lib/systemd/user, they and the manuals name /usr" units

# The version before: these files and one more, with a lower number.
older()
{
    local p dir
    mkdir -p "$out-old"
    for p in chimere chimere-data; do
        dir=$REACH/old-$p
        rm -rf "$dir" && dpkg-deb -R "$out/${p}"_*.deb "$dir" || return 1
        sed -i 's/^Version: .*/Version: 0.0.9-1/; s/(= 0\.[0-9.-]*)/(= 0.0.9-1)/' "$dir/DEBIAN/control"
        [ "$p" = chimere ] || echo old > "$dir/usr/share/chimere/no-longer-there"
        dpkg-deb -Zgzip -z1 -b "$dir" "$out-old" || return 1
    done
    rm -rf "$root/pkg" && mkdir -p "$root/pkg/old" && cp "$out"/chimere_*.deb "$out"/chimere-data_*.deb "$root/pkg" && cp "$out-old"/*.deb "$root/pkg/old"
}
list='find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /pkg -o -path /var/cache -o -path /var/log -o -path /var/lib/dpkg -o -path /var/lib/apt \
    -o -path /tmp -o -name ld.so.cache \) -prune -o -print | sort'
installs()
{
    sh share/root.sh new "$root" && older && inside 'apt-get -qq -y install libjansson4 libopenblas0 libmicrohttpd12 libedit2 libpcre2-8-0 libzstd1 jq bc' &&
        inside "$list > /tmp/before; "'mkdir -p $HOME/.local/share/chimere/nightly $HOME/.config/systemd/user
            echo mine | tee $HOME/.local/share/chimere/nightly/settings > $HOME/.config/systemd/user/chimere.service
            apt-get -qq -y install /pkg/old/*.deb
            chimere-run -p "What is 347 + 58?" | grep -qx 405
            [ -e /usr/share/chimere/no-longer-there ]'
}
try "apt install" installs
upgrades()
{
    inside 'apt-get -qq -y install /pkg/*.deb
        dpkg-query -W chimere chimere-data | tee /dev/stderr | grep -vc 0.0.9 | grep -qx 2
        [ ! -e /usr/share/chimere/no-longer-there ]
        chimere-run -p "What is 347 + 58?" | grep -qx 405'
}
try "an upgrade over the version before" upgrades
elsewhere()
{
    inside 'ln -s /usr/bin/chimere-run /tmp/ask; cp /usr/bin/chimere-run /tmp/copy
        [ "$(/tmp/ask -p "What is 347 + 58?")" = 405 ] && [ "$(/tmp/copy -p "What is 347 + 58?")" = 405 ]' || return 1
    # no /proc is mounted
    chroot "$root" sh -euc '[ ! -e /proc/self ] && [ "$(/tmp/ask -p "What is 347 + 58?")" = 405 ]
        [ "$(chimere-run -p "What is 347 + 58?")" = 405 ]
        rm /tmp/ask /tmp/copy'
}
try "the model is found by a link, by a copy, and without /proc" elsewhere
purges()
{
    inside "apt-get -qq -y purge chimere chimere-data; $list > /tmp/after"'
        grep -v "^$HOME/\.\(local\|config\)" /tmp/after | diff /tmp/before - >&2
        [ "$(cat $HOME/.local/share/chimere/nightly/settings $HOME/.config/systemd/user/chimere.service)" = "$(printf "mine\nmine")" ]'
}
try "a purge leaves nothing but the user's files" purges
finish
