#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# faiss.sh BUILD [DIR | 0] - what to link for the C interface of FAISS, as make asks; nothing: it is not there, or not
# wanted. Its headers also come without it, so that a program is linked. DIR has include/ and lib/, or lib/ alone beside
# the system's headers (share/deps.sh faiss DIR makes such a one). What is found is kept in BUILD/faiss.
build=$1 dir=$2 cc=${CC:-cc}
[ "$dir" != 0 ] || exit 0
inc=${dir:+-idirafter $dir/include} lib=${dir:+-L$dir/lib}
$cc $inc -include faiss/c_api/index_io_c.h -E -x c /dev/null > /dev/null 2>&1 || exit 0
if [ "$(head -n 1 "$build/faiss" 2> /dev/null)" != "$cc $dir" ]; then
    mkdir -p "$build"
    echo "$cc $dir" > "$build/faiss"
    for libs in '-lfaiss_c' '-lfaiss_c -lfaiss -lopenblas -lstdc++' '-lfaiss_c -lfaiss -llapack -lblas -lstdc++'; do
        libs="$lib $libs -lgomp"
        if $cc $inc -x c - -o "$build/faiss-try" $libs -lm 2> /dev/null << 'END'
#include <faiss/c_api/index_factory_c.h>
#include <faiss/c_api/index_io_c.h>
int main(int n, char **v)
{
    FaissIndex *i;
    return faiss_index_factory(&i, n, v[0], METRIC_INNER_PRODUCT) || faiss_read_index_fname(v[0], 0, &i);
}
END
        then
            echo $libs >> "$build/faiss"
            break
        fi
    done
    rm -f "$build/faiss-try"
fi
sed -n 2p "$build/faiss"
