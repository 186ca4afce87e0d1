#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make.py GOLDENS: copies the vectors kept here from a full set (see README.md beside this file).

Writes NAME.q (random blocks of format NAME), weights.f32, half_*.* and two tables:
vectors.tsv  name, id, elements and bytes of a block, bytes before a row, elements of a row,
             elements in all, FNV-1a hash (64 bits) of the decoded floats, little-endian
encode.tsv   name, root of the mean squared error of each row of weights.f32 in that format
"""
import json
import pathlib
import shutil
import sys

RANDOM_ROW = 256


def fnv1a(data):
    h = 0xCBF29CE484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return h


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    source, here = pathlib.Path(sys.argv[1]) / "quants", pathlib.Path(__file__).parent
    manifest = json.loads((source / "manifest.json").read_text())
    formats = {**manifest["types"], **manifest["ik_types"]}
    vectors, errors = [], []
    for upper, t in formats.items():
        name = upper.lower()
        if name in ("f16", "bf16", "q8_0", "q4_0"):
            errors.append([name, *t["plain"]["rmse_per_row"]])
        if "random_values" not in t:
            continue
        if "block" in t:
            elems, size, head = t["block"], t["block_bytes"], 0
        else:  # rows of 256 and of 512 elements tell a block from the head
            elems, size = 256, t["row_bytes_512"] - t["row_bytes_256"]
            head = t["row_bytes_256"] - size
        shutil.copyfile(source / f"{upper}.random.q", here / f"{name}.q")
        decoded = (source / f"{upper}.random.f32").read_bytes()
        vectors.append([name, t["id"], elems, size, head, RANDOM_ROW, len(decoded) // 4,
                        f"{fnv1a(decoded):016x}"])
    for name in ("weights.f32", "half_in.f32", "half_out.f16", "half_out.bf16"):
        shutil.copyfile(source / name, here / name)
    for name, rows in (("vectors.tsv", vectors), ("encode.tsv", errors)):
        (here / name).write_text("".join("\t".join(map(str, r)) + "\n" for r in rows))


if __name__ == "__main__":
    main()
