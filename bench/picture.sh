#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# picture.sh cpu.md serve.md: bars of the rows q4k, and of 8 clients, of their tables, each engine beside the other, SVG.
set -eu
awk -F ' *[|] *' '
    function number(s) { gsub(/[*,]/, "", s); sub(/ .*/, "", s); return s + 0 }
    function bar(x, y, value, most, ours) {
        printf "<rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"14\" fill=\"%s\"/>", x, y, 165 * value / most, ours ? "#0b62a4" : "#b8b8b8"
        printf "<text x=\"%.1f\" y=\"%d\">%s</text>\n", x + 165 * value / most + 5, y + 11, value < 100 ? sprintf("%.1f", value) : sprintf("%.0f", value)
    }
    function pair(x, y, ours, theirs, most) {
        bar(x, y, ours, most, 1)
        bar(x, y + 15, theirs, most, 0)
    }
    function title(x, a, b) {
        printf "<text x=\"%d\" y=\"20\" font-size=\"13\" font-weight=\"bold\">%s</text>", x, a
        printf "<text x=\"%d\" y=\"36\" fill=\"#555\">%s</text>\n", x, b
    }
    $2 ~ /^Xeon with AMX/ { amx = 1 }
    $3 ~ /^Zen 5: prompt/ { amx = 0 }
    $2 == "q4k" && amx { n++; name[n] = "Xeon, AMX"; prompt[n] = number($4); there[n] = number($3); decode[n] = number($7); slow[n] = number($6) }
    $2 == "q4k" && !amx {
        for (i = 0; i < 3; i++) {
            n++
            name[n] = "EPYC, Zen " (5 - i)
            prompt[n] = number($(3 + 4 * i))
            there[n] = prompt[n] / number($(4 + 4 * i))
            decode[n] = number($(5 + 4 * i))
            slow[n] = decode[n] / number($(6 + 4 * i))
        }
    }
    FILENAME ~ /serve/ && $2 == "8" && !served { served = number($3); server = number($4); first = number($6); late = number($7) }
    END {
        if (n != 4 || !served) exit 1
        for (i = 1; i <= n; i++) {
            top = prompt[i] > top ? prompt[i] : top
            high = decode[i] > high ? decode[i] : high
        }
        print "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"860\" height=\"244\" font-family=\"sans-serif\" font-size=\"12\">"
        print "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>"
        title(100, "Prompts, tokens/s", "35B shape cut to 8 layers, Q4_K")
        title(360, "Answers, tokens/s", "the same, two cores, one sequence")
        title(620, "8 clients of a server, tokens/s", "embedded model, a busy machine")
        for (i = 1; i <= n; i++) {
            y = 48 + 40 * (i - 1)
            printf "<text x=\"92\" y=\"%d\" text-anchor=\"end\">%s</text>\n", y + 18, name[i]
            pair(100, y, prompt[i], there[i], top)
            pair(360, y, decode[i], slow[i], high)
        }
        pair(620, 48, served, server, served)
        printf "<text x=\"620\" y=\"106\" font-size=\"13\" font-weight=\"bold\">their first token after, ms</text>\n"
        pair(620, 114, first, late, late)
        print "<rect x=\"100\" y=\"218\" width=\"12\" height=\"12\" fill=\"#0b62a4\"/><text x=\"118\" y=\"229\">chimere</text>"
        print "<rect x=\"190\" y=\"218\" width=\"12\" height=\"12\" fill=\"#b8b8b8\"/>"
        print "<text x=\"208\" y=\"229\">ik_llama.cpp (faster than llama.cpp on every file); on the right llama-server</text>"
        print "</svg>"
    }' "$1" "$2"
