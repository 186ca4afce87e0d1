#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# picture.sh README.md: the tokens a second of decoding of its table as a picture, SVG. A range is drawn to its lower end.
set -eu
awk -F ' *[|] *' '
    function xml(s) { gsub(/`/, "", s); gsub(/&/, "\\&amp;", s); gsub(/</, "\\&lt;", s); return s }
    /^\| machine \| model \|/ { on = 1; next }
    on && /^\|-/ { next }
    on && !/^\|/ { exit }
    on {
        value = $5
        gsub(/,/, "", value)
        name[++n] = xml($2 ", " ($3 ~ /^the same/ ? model substr($3, 9) : $3))
        if ($3 !~ /^the same/) model = $3
        told[n] = xml($5)
        speed[n] = value + 0
    }
    END {
        if (n == 0) exit 1
        printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1000\" height=\"%d\" font-family=\"sans-serif\" font-size=\"12\">\n", n * 22 + 40
        print "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>"
        print "<text x=\"10\" y=\"20\" font-size=\"14\">Decoding, tokens a second (logarithmic)</text>"
        for (i = 1; i <= n; i++) {
            width = 40 * log(speed[i] / 10) / log(2)
            y = 30 + (i - 1) * 22
            printf "<text x=\"510\" y=\"%d\" text-anchor=\"end\">%s</text>\n", y + 14, (length(name[i]) > 84 ? substr(name[i], 1, 82) "..." : name[i])
            printf "<rect x=\"520\" y=\"%d\" width=\"%.0f\" height=\"16\" fill=\"%s\"/>\n", y + 2, width, (name[i] ~ /^H200/ ? "#3b7d4f" : "#3b6ea5")
            printf "<text x=\"%.0f\" y=\"%d\">%s</text>\n", 526 + (width), y + 14, told[i]
        }
        print "</svg>"
    }' "$1"
