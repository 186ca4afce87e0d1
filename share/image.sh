#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# image.sh [DEBS] - an image for containers from the packages in DEBS (build/deb; of chimere-cuda, if that is there): they, the
# libraries that they depend on and busybox, no package manager. build/image gets it as NAME.tar for docker and podman, and its
# packages as NAME.spdx.json. By buildah in a root of its own (root.sh), without a daemon. As root.
set -eu
cd "$(dirname "$0")/.."
debs=${1:-build/deb} reach=${REACH:-build/reach} out=build/image
mkdir -p "$reach" "$out"
root=$(realpath "$reach")/image
for deb in "$debs"/chimere_*_amd64.deb "$debs"/chimere-cuda_*_amd64.deb; do [ ! -e "$deb" ] || program=$deb; done
[ -n "${program:-}" ] || { echo "image.sh: no package in $debs: make deb" >&2; exit 1; }
name=$(dpkg-deb -f "$program" Package) version=$(dpkg-deb -f "$program" Version)
time=$(date -d "$(sed -n 's/^ -- .*>  //p' share/debian/changelog | head -n 1)" +%s)
[ -d "$root" ] || { sh share/root.sh new "$root.new" buildah > "$reach/image.log" 2>&1 && mv "$root.new" "$root"; }
rm -rf "$root/image" && mkdir -p "$root/image/debs/partial" "$root/image/tree"
cp share/image/chimere-image "$program" "$debs"/chimere-data_*_all.deb "$root/image"

# Packages are unpacked, none of their scripts run: what those of libraries do is caches, and one link to the OpenBLAS there is.
needs=$(dpkg-deb -f "$program" Depends | tr ',' '\n' | sed -n 's/^ *\([^ |]*\).*/\1/p' | grep -v '^chimere')
# shellcheck disable=SC2016,SC2086
sh share/root.sh run "$root" sh -euc 'cd /image
    apt-get -qq -y --download-only -o Dir::State::status=/dev/null -o Dir::Cache::archives=/image/debs install "$@"
    mv *.deb debs
    for deb in debs/*.deb; do
        dpkg-deb -x $deb tree
        mkdir -p tree/var/lib/dpkg/status.d
        { dpkg-deb -f $deb; echo "Status: install ok installed"; } > "tree/var/lib/dpkg/status.d/$(dpkg-deb -f $deb Package)"
    done
    cd tree
    for lib in usr/lib/*/openblas-pthread/libopenblas.so.0; do ln -s openblas-pthread/libopenblas.so.0 "${lib%/openblas-pthread/*}"; done
    ln -s busybox bin/sh
    rm -rf usr/lib/*/gconv usr/share/man usr/share/locale usr/share/zsh usr/share/fish usr/share/bash-completion usr/lib/systemd
    find usr/share/doc -type f ! -name copyright -delete
    mkdir -p etc models cache tmp proc sys dev run
    chmod 1777 tmp cache
    echo "chimere:x:10001:10001::/tmp:/bin/sh" > etc/passwd
    echo "chimere:x:10001:" > etc/group
    install -m 755 ../chimere-image usr/bin' sh busybox $needs >> "$reach/image.log" 2>&1 || { tail "$reach/image.log"; exit 1; }

# One line of JSON a package.
for f in "$root"/image/tree/var/lib/dpkg/status.d/*; do
    awk -F ': ' '{ v[$1] = $2 } END { gsub(/"/, "", v["Maintainer"]); id = v["Package"]; gsub(/[+]/, "-plus-", id)
        printf "{\"SPDXID\": \"SPDXRef-%s\", \"name\": \"%s\", \"versionInfo\": \"%s\", \"supplier\": \"Organization: %s\", ", \
            id, v["Package"], v["Version"], v["Maintainer"]
        printf "\"downloadLocation\": \"NOASSERTION\", \"filesAnalyzed\": false, \"externalRefs\": [{\"referenceCategory\": \"PACKAGE-MANAGER\", "
        printf "\"referenceType\": \"purl\", \"referenceLocator\": \"pkg:deb/debian/%s@%s?arch=%s\"}]}\n", v["Package"], v["Version"], v["Architecture"] }' "$f"
done > "$reach/packages"
{
    printf '{"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": "%s-%s",\n' "$name" "$version"
    printf '"documentNamespace": "urn:%s:%s:%s",\n' "$name" "$version" "$(sha256sum < "$reach/packages" | cut -c 1-32)"
    printf '"creationInfo": {"created": "%s", "creators": ["Tool: image.sh"]},\n"packages": [\n' "$(date -u -d "@$time" +%FT%TZ)"
    sed '$!s/$/,/' "$reach/packages"
    printf '],\n"relationships": [\n'
    sed -n 's/^{"SPDXID": "\([^"]*\)".*/{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": "\1"}/p' \
        "$reach/packages" | sed '$!s/$/,/'
    echo ']}'
} > "$out/$name.spdx.json"
cp "$out/$name.spdx.json" "$root/image/tree/usr/share/doc/$name/sbom.spdx.json"

# shellcheck disable=SC2016
sh share/root.sh run "$root" sh -euc 'name=$1 version=$2 time=$3 commit=$4
    export BUILDAH_ISOLATION=chroot BUILDAH_FORMAT=docker STORAGE_DRIVER=vfs HOME=/root
    storage="--root /image/storage --runroot /image/run"
    b() { buildah $storage "$@"; }
    c=$(b from scratch)
    b copy -q $c /image/tree / > /dev/null
    b config --user 10001:10001 --entrypoint "[\"/usr/bin/chimere-image\"]" --cmd "" --port 8080 --workingdir /tmp --stop-signal SIGTERM \
        --env CHIMERE_MODELS=/models:/usr/share/chimere/models --volume /models --volume /cache \
        --healthcheck "CMD busybox wget -q -O /dev/null http://127.0.0.1:8080/health" --healthcheck-interval 10s --healthcheck-timeout 2s \
        --healthcheck-start-period 10m \
        --label org.opencontainers.image.title=$name --label org.opencontainers.image.version=$version \
        --label org.opencontainers.image.revision=$commit --label org.opencontainers.image.licenses=Apache-2.0 \
        --label org.opencontainers.image.description="Large hybrid language models at home: the server of chimere" $c
    b commit -q --timestamp $time $c $name:$version > /dev/null
    b inspect --type image $name:$version > /image/inspect.json
    b push -q $name:$version docker-archive:/image/$name.tar:$name:$version' \
    sh "$name" "$version" "$time" "$(git describe --always --dirty --exclude '*' 2> /dev/null || echo unknown)" >> "$reach/image.log" 2>&1 || {
        tail "$reach/image.log"
        exit 1
    }
cp "$root/image/$name.tar" "$root/image/inspect.json" "$out"
echo "image: $name:$version, $(du -sm --apparent-size "$root/image/tree" | cut -f 1) MB, $out/$name.tar"
