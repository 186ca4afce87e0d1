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
for f in k8s/kustomization.yaml k8s/deployment.yaml; do [ -s "$dir/usr/share/chimere/$f" ] || { echo "$f is missing"; exit 1; }; done
for f in score pairs paraphrase; do "$dir/usr/share/chimere/jobs/$f" < /dev/null; done
if grep -r /usr/local/share "$dir/usr/share/man"; then echo "a manual names files where they are not"; exit 1; fi
[ -x "$dir/usr/share/chimere/convert" ] || { echo "share/chimere/convert is no program"; exit 1; }
# As a unit starts it: without an environment.
[ "$(env -i "$dir/usr/share/chimere/jobs/nightly" -d "$dir/none" status 2>&1)" = 'nightly: there is nothing yet: nightly init' ]
# Units name the programs where they lie, verify, and no job is exposed by more than 2.0.
units=$dir/usr/share/chimere/systemd
if grep -rE '@PREFIX@|PATH=.*/usr/bin:.*/usr/bin' "$units"; then exit 1; fi
if command -v systemd-analyze > /dev/null; then
    sed -i "s|\"/usr/|\"$dir/usr/|g" "$units"/*/*.service
    XDG_RUNTIME_DIR=$dir systemd-analyze --user verify --man=no "$units"/user/*.* > "$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }
    grep -rh OnCalendar "$units" | cut -d = -f 2 | xargs -d '\n' systemd-analyze calendar > "$dir/log" || { cat "$dir/log"; exit 1; }
    systemd-analyze verify --man=no "$units"/system/*.* > "$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }
    for f in "$units"/*/chimere.service "$units/user/chimere-run.service" "$units"/*/chimere-nightly@.service; do
        systemd-analyze security --offline=true --threshold=20 "$f" > "$dir/log" 2>&1 || { tail -n 1 "$dir/log"; exit 1; }
    done
    # At both changes of summer time a night has its chances.
    for day in 2026-03-29 2026-10-25; do
        for f in "$units"/*/chimere-nightly@.timer; do
            TZ=Europe/Berlin systemd-analyze calendar --iterations=7 --base-time="$(date -d "$day - 1 day" +%F) 23:30" \
                "$(sed -n 's/^OnCalendar=//p' "$f")" > "$dir/log" || { cat "$dir/log"; exit 1; }
            [ "$(grep -cE "(Next elapse|Iter\. #[0-9]+): ... $day 0[1-6]:00:00 CES?T" "$dir/log")" -ge 5 ] || { cat "$dir/log"; exit 1; }
        done
    done
fi
# The table of cron: names with a value, or five fields within their bounds and a command.
awk '/^#|^[A-Z]+=/ { next }
    { n++; split("59 23 31 12 7", max, " ")
      for (i = 1; i <= 5; i++) { if ($i !~ /^(\*|[0-9]+(-[0-9]+)?)(\/[0-9]+)?$/) exit bad = 1
          split($i, of, /[-\/*]/); for (k in of) if (of[k] + 0 > max[i]) exit bad = 1 }
      if ($6 != "nice") exit bad = 1 }
    END { exit bad || n != 4 }' "$units/crontab" || { echo "crontab: $(cat "$units/crontab")"; exit 1; }
if command -v crontab > /dev/null && crontab -n /dev/null > /dev/null 2>&1; then crontab -n "$units/crontab" > /dev/null || exit 1; fi
# The line that a unit starts does a night, up to an empty log, with nothing but its environment.
mkdir -p "$dir/home/.local/share/chimere/nightly"
echo 'suite_items=1 mains=true max_load=1000000' > "$dir/home/.local/share/chimere/nightly/settings"
unit=$units/user/chimere-nightly@.service
line=$(sed -n "s|^ExecStart=\"/usr/|\"$dir/usr/|; s|^ExecStart=||; s|%h|$dir/home|g; s|%i|adapter|p" "$unit" | grep /jobs/nightly)
path=$(sed -n 's|^Environment="PATH=\(.*\)"$|\1|p' "$unit" | sed "s|/usr/bin|$dir/usr/bin|")
said=$(env -i PATH="$path" HOME="$dir/home" sh -c "$line" 2>&1) && [ -z "$said" ] && [ -L "$dir/home/.local/share/chimere/nightly/current" ] ||
    { echo "$line: $said"; exit 1; }
# After a build without CUDA no kernel is compiled for the installation, whatever compilers there are.
mkdir "$dir/plain"
echo cc > "$dir/plain/flags"
env -u CUDA $make -n BUILD="$dir/plain" BIN="$dir/plain" DESTDIR="$dir" install > "$dir/log" 2>&1 || { tail -n 1 "$dir/log"; exit 1; }
if ! grep -q libcore/gen/gen.c "$dir/log" || grep -q '\.cu$' "$dir/log"; then echo 'installation compiles kernels'; exit 1; fi
for f in LICENSE README.md tools.json; do [ -s "$dir/usr/share/chimere/$f" ] || { echo "share/chimere/$f is missing or empty"; exit 1; }; done
$make BUILD="$build" BIN="$bin" DESTDIR="$dir" PREFIX=/usr uninstall > "$dir/log" || { cat "$dir/log"; exit 1; }
left=$(find "$dir/usr" -type f)
[ -z "$left" ] || { printf 'uninstall left:\n%s\n' "$left"; exit 1; }
