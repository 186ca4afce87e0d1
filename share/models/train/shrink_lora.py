#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""shrink_lora.py IN.gguf RANK OUT.gguf - a LoRA adapter in fewer numbers: each change b a of a matrix is cut to its
largest RANK singular values, and both halves are written as q8_0. Needs numpy. For adapters of dense matrices in f16,
as chimere-draft-train writes them; RANK is a multiple of 32. Prints how much of the changes is kept.
"""
import math
import struct
import sys

import numpy as np

F16, Q8_0 = 1, 8
source, rank, out = sys.argv[1], int(sys.argv[2]), sys.argv[3]
data = open(source, "rb").read()
at = 0


def take(form):
    global at
    v = struct.unpack_from("<" + form, data, at)
    at += struct.calcsize("<" + form)
    return v[0] if len(v) == 1 else v


def text():
    global at
    n = take("Q")
    at += n
    return data[at - n:at]


SIZE = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


def skip(kind):
    global at
    if kind == 8:
        text()
    elif kind == 9:
        inner, n = take("IQ")
        for _ in range(n):
            skip(inner)
    else:
        at += SIZE[kind]


magic, version, n_tensor, n_kv = take("4sIQQ")
assert magic == b"GGUF" and version == 3
keys = []  # name, kind, bytes
for _ in range(n_kv):
    name, kind = text(), take("I")
    start = at
    skip(kind)
    keys.append((name, kind, data[start:at]))
tensors = []
for _ in range(n_tensor):
    name, n_dims = text().decode(), take("I")
    ne = [take("Q") for _ in range(n_dims)]
    kind, offset = take("IQ")
    assert kind == F16 and n_dims == 2, name
    tensors.append((name, ne, offset))
begin = -(-at // 32) * 32
half = {name: np.frombuffer(data, np.float16, math.prod(ne), begin + offset).astype(np.float64).reshape(ne[1], ne[0])
        for name, ne, offset in tensors}


def q8_0(m):
    x = m.astype(np.float32).reshape(-1, 32)
    d = (np.abs(x).max(axis=1, keepdims=True) / 127).astype(np.float16)
    q = np.round(np.divide(x, d, out=np.zeros_like(x), where=d > 0)).clip(-127, 127).astype(np.int8)
    return np.concatenate([d.view(np.uint8), q.view(np.uint8)], axis=1).tobytes()


kept = whole = 0.0
made = []
for name in [t[0] for t in tensors if t[0].endswith(".lora_a")]:
    a, b = half[name], half[name[:-1] + "b"]
    qb, rb = np.linalg.qr(b)
    qa, ra = np.linalg.qr(a.T)
    u, s, v = np.linalg.svd(rb @ ra.T)
    whole, kept = whole + (s ** 2).sum(), kept + (s[:rank] ** 2).sum()
    root = np.sqrt(s[:rank])
    made += [(name, (v[:rank].T * root).T @ qa.T), (name[:-1] + "b", qb @ (u[:, :rank] * root))]
    scale = half[name].shape[0]
print("%.2f %% of the squares are kept" % (100 * kept / whole))
head = struct.pack("<4sIQQ", b"GGUF", 3, len(made), len(keys))
for name, kind, value in keys:
    if name == b"adapter.lora.alpha":  # alpha / rank stays
        value = struct.pack("<f", struct.unpack("<f", value)[0] * rank / scale)
    head += struct.pack("<Q", len(name)) + name + struct.pack("<I", kind) + value
body = b""
for name, m in made:
    head += struct.pack("<Q", len(name)) + name.encode()
    head += struct.pack("<IQQIQ", 2, m.shape[1], m.shape[0], Q8_0, len(body))
    body += q8_0(m)
    body += b"\0" * (-len(body) % 32)
with open(out, "wb") as f:
    f.write(head + b"\0" * (-len(head) % 32) + body)
