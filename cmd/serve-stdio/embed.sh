#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# embed.sh FILE...: the files of the page as a table in C (web_page.h), on the standard output.
set -e
type_of() # FILE
{
    case $1 in
    *.html) echo 'text/html; charset=utf-8' ;;
    *.css) echo 'text/css; charset=utf-8' ;;
    *.js) echo 'text/javascript; charset=utf-8' ;;
    *.svg) echo 'image/svg+xml' ;;
    *)  echo "embed.sh: $1: no type is known for it" >&2; exit 1 ;;
    esac
}
echo '#include "serve-stdio/web_page.h"'
n=0
for f; do
    echo "static const char part_$n[] = {"
    od -An -v -to1 "$f" | sed "s/ \([0-7]*\)/'\\\\\1',/g"
    echo "0 };"
    n=$((n + 1))
done
echo 'const struct cli_page cli_pages[] = {'
n=0
for f; do
    type=$(type_of "$f")
    path=${f##*/}
    [ "$path" != index.html ] || path=
    echo "    { \"/$path\", \"$type\", part_$n },"
    n=$((n + 1))
done
echo '    { 0 },'
echo '};'
