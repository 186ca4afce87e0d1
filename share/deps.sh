#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# deps.sh faiss DIR - the C interface of FAISS, which Debian ships as headers alone: built from its source package against
# the installed library, into DIR/lib, for make FAISS=DIR. (It is not among what the others see to.)
# deps.sh [build] [check] - see that what building and testing need is there; on Debian and its kin
# install what is missing (as root, or through sudo). Says nothing and does nothing when all is there.
# Anything found counts, wherever it came from: this asks for headers and programs, not for packages.
# Status 1 only when the compiler or a library is missing at the end; a missing test tool is named,
# and the tests that need it are skipped. Without libmicrohttpd the server has no HTTP, without OpenBLAS training is slow,
# without libedit lines typed on a terminal have no history.
cc=${CC:-cc}

has_lib() # HEADER LIBRARY [LINE BEFORE]: compiles and links
{
    printf '%s\n#include <%s>\nint main(void) { return 0; }\n' "$3" "$1" |
        $cc -x c - -o /dev/null -l"$2" 2> /dev/null
}

missing() # prints the Debian packages that are needed and not there
{
    for group; do
        case $group in
        build)
            command -v "${cc%% *}" > /dev/null || echo gcc
            has_lib stdio.h m || echo libc6-dev
            has_lib jansson.h jansson || echo libjansson-dev
            has_lib pcre2.h pcre2-8 '#define PCRE2_CODE_UNIT_WIDTH 8' || echo libpcre2-dev
            has_lib zstd.h zstd || echo libzstd-dev
            command -v zstd > /dev/null || echo zstd
            has_lib microhttpd.h microhttpd || echo libmicrohttpd-dev
            has_lib openblas_config.h openblas || echo libopenblas-dev
            has_lib histedit.h edit || echo libedit-dev ;;
        check)
            has_lib cmocka.h cmocka '#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>' || echo libcmocka-dev
            command -v bats > /dev/null || echo bats
            command -v jq > /dev/null || echo jq
            command -v bc > /dev/null || echo bc
            command -v curl > /dev/null || echo curl
            command -v python3 > /dev/null || echo python3
            command -v mandoc > /dev/null || echo mandoc
            command -v clang-format > /dev/null || echo clang-format
            command -v clang-tidy > /dev/null || echo clang-tidy
            [ "$(uname -m)" != x86_64 ] || command -v qemu-x86_64 > /dev/null || echo qemu-user ;;
        *)  echo "deps.sh: $group: build or check" >&2; exit 2 ;;
        esac
    done
}

as_root()
{
    if [ "$(id -u)" = 0 ]; then "$@"
    elif [ -t 0 ]; then sudo "$@"
    else sudo -n "$@"
    fi
}

faiss() # DIR
{
    mkdir -p "$1/lib/build/lists/partial" "$1/lib/build/cache/archives/partial" || exit 1
    $cc -include faiss/c_api/index_io_c.h -E -x c /dev/null > /dev/null 2>&1 && command -v g++ > /dev/null ||
        as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install g++ libfaiss-dev || exit 1
    lib=$(cd "$1/lib" && pwd)
    cd "$lib/build" || exit 1
    apt-get indextargets --format 'deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Identifier: Packages' | sort -u > list
    set -- -qq -o Dir::Etc::SourceList="$PWD/list" -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::State::Lists="$PWD/lists" -o Dir::Cache="$PWD/cache"
    apt-get "$@" update && apt-get "$@" source --download-only faiss && tar xf faiss_*.orig.tar.* && cd faiss-*/c_api &&
        g++ -std=c++11 -O2 -fPIC -fopenmp -I.. -c $(sed -n '/FAISS_C_SRC/,/)/s/^  *\(.*cpp\)$/\1/p' CMakeLists.txt) &&
        ar rcs "$lib/libfaiss_c.a" *.o && rm -rf "$lib/build"
}

if [ "$1" = faiss ]; then
    [ -n "$2" ] || { echo "deps.sh: faiss DIR: where its library is built" >&2; exit 2; }
    faiss "$2"
    exit
fi
need=$(missing "$@" | tr '\n' ' ')
[ -n "$need" ] || exit 0
tried=no
if ! command -v apt-get > /dev/null; then
    echo "missing (Debian's names): $need- install them with this system's package manager" >&2
elif [ "$(id -u)" != 0 ] && ! command -v sudo > /dev/null; then
    echo "missing: $need- run as root: apt-get install $need" >&2
else
    tried=yes
    echo "installing: $need"
    as_root apt-get -qq -o DPkg::Lock::Timeout=120 update < /dev/null
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends \
        -o DPkg::Lock::Timeout=120 install $need < /dev/null > /dev/null
fi
if [ $tried = yes ]; then
    need=$(missing "$@" | tr '\n' ' ')
    [ -z "$need" ] || echo "still missing: $need" >&2
fi
for p in $need; do
    case $p in
    libmicrohttpd-dev|libopenblas-dev|libedit-dev) ;;
    gcc*|lib*) exit 1 ;;
    esac
done
exit 0
