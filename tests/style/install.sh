#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# install.sh - what `make install` puts down works where it lies and `make uninstall` takes it all away.
cd "$(dirname "$0")/../.." || exit 1
set -eu
make=${MAKE:-make -s} build=${BUILD:-build} bin=${BIN:-bin}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
# -o all: what was built is installed as it is, by whichever compiler and flags
$make -o all BUILD="$build" BIN="$bin" DESTDIR="$dir" PREFIX=/usr install > "$dir/log" || { cat "$dir/log"; exit 1; }
for p in cmd/*.c; do
    p=chimere-$(basename "$p" .c)
    "$dir/usr/bin/$p" --version > "$dir/version"
    for f in bin/$p share/man/man1/$p.1 share/bash-completion/completions/$p \
        share/zsh/site-functions/_$p share/fish/vendor_completions.d/$p.fish; do
        [ -s "$dir/usr/$f" ] || { echo "usr/$f is missing or empty"; exit 1; }
    done
done
case $(file -b "$dir/usr/bin/chimere-run" 2> /dev/null) in *'not stripped'*) echo "programs are not stripped"; exit 1 ;; esac
env -u CHIMERE_MODEL "$dir/usr/bin/chimere-run" --inspect > "$dir/inspect"
grep -q chimere-nano "$dir/inspect"
for f in score pairs paraphrase; do "$dir/usr/share/chimere/jobs/$f" < /dev/null; done
# As a unit starts it: without an environment.
[ "$(env -i "$dir/usr/share/chimere/jobs/nightly" -d "$dir/none" status 2>&1)" = 'nightly: there is nothing yet: nightly init' ]
# Units name the programs where they lie, verify, and no job is exposed by more than 2.0.
units=$dir/usr/share/chimere/systemd
if grep -r '@PREFIX@' "$units"; then exit 1; fi
if command -v systemd-analyze > /dev/null; then
    sed -i "s|\"/usr/|\"$dir/usr/|g" "$units"/*/*.service
    XDG_RUNTIME_DIR=$dir systemd-analyze --user verify --man=no "$units"/user/*.* > "$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }
    grep -rh OnCalendar "$units" | cut -d = -f 2 | xargs -d '\n' systemd-analyze calendar > "$dir/log" || { cat "$dir/log"; exit 1; }
    systemd-analyze verify --man=no "$units"/system/*.* > "$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }
    for f in "$units"/*/chimere.service "$units/user/chimere-nightly@.service"; do
        systemd-analyze security --offline=true --threshold=20 "$f" > "$dir/log" 2>&1 || { tail -n 1 "$dir/log"; exit 1; }
    done
fi
# After a build without CUDA no kernel is compiled for the installation, whatever compilers there are.
mkdir "$dir/plain"
echo cc > "$dir/plain/flags"
env -u CUDA $make -n BUILD="$dir/plain" BIN="$dir/plain" DESTDIR="$dir" install > "$dir/log" 2>&1 || { tail -n 1 "$dir/log"; exit 1; }
if ! grep -q libcore/gen/gen.c "$dir/log" || grep -q '\.cu$' "$dir/log"; then echo 'installation compiles kernels'; exit 1; fi
for f in LICENSE README.md tools.json; do [ -s "$dir/usr/share/chimere/$f" ] || { echo "share/chimere/$f is missing or empty"; exit 1; }; done
$make BUILD="$build" BIN="$bin" DESTDIR="$dir" PREFIX=/usr uninstall > "$dir/log" || { cat "$dir/log"; exit 1; }
left=$(find "$dir/usr" -type f)
[ -z "$left" ] || { printf 'uninstall left:\n%s\n' "$left"; exit 1; }
