#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a LoRA adapter in GGUF: make_lora.py OUT ARCH ALPHA RANK SEED NAME:N_IN:N_OUT[:N_EXPERT] ...

In f32, or with TYPE=f16 in the environment in that. Large matrices repeat the same random numbers."""
import math
import os
import random
import struct
import sys

out, arch, alpha, rank, seed = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
rng = random.Random(seed)
MOST = 1 << 18  # numbers


def text(s):
    return struct.pack("<Q", len(s)) + s.encode()


kvs = [("general.type", 8, text("adapter")), ("adapter.type", 8, text("lora")), ("general.architecture", 8, text(arch)),
       ("adapter.lora.alpha", 6, struct.pack("<f", alpha))]
tensors = []
for spec in sys.argv[6:]:
    name, *sizes = spec.split(":")
    n_in, n_out, *n_mat = map(int, sizes)
    tensors.append((name + ".lora_a", [n_in, rank] + n_mat, n_in ** -0.5))
    tensors.append((name + ".lora_b", [rank, n_out] + n_mat, 1.0))
head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(kvs))
for key, kind, value in kvs:
    head += text(key) + struct.pack("<I", kind) + value
kind, code, width = (1, "e", 2) if os.environ.get("TYPE") == "f16" else (0, "f", 4)
at = 0
drawn = {}
for name, ne, size in tensors:
    head += text(name) + struct.pack("<I", len(ne)) + struct.pack(f"<{len(ne)}Q", *ne) + struct.pack("<IQ", kind, at)
    at += -(-math.prod(ne) * width // 32) * 32
with open(out, "wb") as f:
    f.write(head + b"\0" * (-len(head) % 32))
    for name, ne, size in tensors:
        n = math.prod(ne)
        some = drawn.get(size) if n > MOST else None
        if some is None:
            some = struct.pack(f"<{min(n, MOST)}{code}", *(rng.gauss(0, size) for _ in range(min(n, MOST))))
        if n > MOST:
            drawn[size] = some
        for left in range(n * width, 0, -len(some)):
            f.write(some[:left])
        f.write(b"\0" * (-n * width % 32))
