#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes unicode_tables.h from this Python's own str methods: python3 make_unicode_tables.py > unicode_tables.h"""
import unicodedata

N = 0x110000
BITS = ["SPACE", "PRINT", "ALPHA", "DECIMAL", "DIGIT", "NUMERIC", "LOWER", "UPPER", "TITLE", "IGNORABLE"]


def flags(c):
    ignorable = ("A" + c + "\u03a3").lower()[-1] == "\u03c2" and ("1" + c + "\u03a3").lower()[-1] != "\u03c2"
    b = [c.isspace(), c.isprintable(), c.isalpha(), c.isdecimal(), c.isdigit(), c.isnumeric(), c.islower(),
         c.isupper(), c.istitle() and not c.isupper(), ignorable]
    return sum(1 << i for i, on in enumerate(b) if on)


def rows(values, per):
    for i in range(0, len(values), per):
        print("".join(values[i:i + per]))


def case_ranges(name, fn, base):
    """Runs of code points with one distance; what becomes several code points goes to a second table."""
    runs, many = [], []
    for cp in range(N):
        if 0xD800 <= cp < 0xE000:
            continue
        to, was = fn(chr(cp)), base(chr(cp))
        if to == was:
            continue
        if len(to) > 1:
            many.append((cp, [ord(x) for x in to]))
            continue
        d = ord(to) - cp
        if runs and runs[-1][2] == d and (cp - runs[-1][1]) in (1, 2):
            step = cp - runs[-1][1]
            if runs[-1][0] == runs[-1][1] or runs[-1][3] == step:
                runs[-1][1], runs[-1][3] = cp, step
                continue
        runs.append([cp, cp, d, 1])
    print(f"static const struct case_run {name}_runs[] = {{")
    rows([f"{{0x{a:X},0x{b:X},{d},{s}}}," for a, b, d, s in runs], 4)
    print("};")
    print(f"static const struct case_many {name}_many[] = {{")
    rows(["{0x%X,{%s}}," % (cp, ",".join(f"0x{x:X}" for x in to)) for cp, to in many], 4)
    print("};")


print("/* SPDX-License-Identifier: Apache-2.0 */")
print("/* unicode_tables.h - Unicode %s, written by make_unicode_tables.py.        room: chat */" % unicodedata.unidata_version)
print("#ifndef CHAT_UNICODE_TABLES_H\n#define CHAT_UNICODE_TABLES_H\n#include <stdint.h>\n")
print("enum {")
for i, b in enumerate(BITS):
    print(f"    UNI_{b} = 1 << {i},")
print("    UNI_BITS = %d,\n};" % len(BITS))
print("/* The code points from `first` to `last`, `step` apart, map to themselves plus `delta`. */")
print("struct case_run {\n    uint32_t first, last;\n    int32_t delta;\n    uint32_t step;\n};")
print("struct case_many {\n    uint32_t cp, to[3]; /* 0: no more */\n};")
print("/* Begin of a run of code points << UNI_BITS | their UNI_ bits; sorted. */")
print("static const uint32_t uni_runs[] = {")
runs, last = [], None
for cp in range(N):
    f = flags(chr(cp))
    if f != last:
        runs.append(f"0x{cp << len(BITS) | f:X},")
        last = f
rows(runs, 12)
print("};")
case_ranges("upper", str.upper, lambda c: c)
case_ranges("lower", lambda c: c.lower(), lambda c: c)
case_ranges("title", str.title, str.upper)
case_ranges("fold", str.casefold, str.lower)
print("#endif")
