#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes inputs of the fuzz targets, from the repository root: tests/fuzz/corpus/gguf/*.gguf with gguf.expect, and
tests/fuzz/corpus/state/*.

gguf: small files for each rule that the reader keeps, and some that it accepts (ok-*). gguf.expect has a
line for each file to open: its path, tab, error code as in base.h (0: opens), tab, message.
Offsets are counted here, while a file is put together, not taken from the reader.

state: a session file of two saves and a third one cut short is kept as it is (cut). The others are its first
bytes with something wrong in them; a name says what.
"""
import os
import struct

U8, I8, U16, I16, U32, I32, F32, BOOL, STR, ARR, U64, I64, F64 = range(13)
OK, ARG, IO, FORMAT, UNSUPPORTED = range(5)
PACK = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q",
        I64: "q", F64: "d"}
DIR = "tests/fuzz/corpus/gguf"
STATE_DIR = "tests/fuzz/corpus/state"
expect = []


class File:
    """Bytes of a file; methods return the offset at which they began."""

    def __init__(self, n_tensors=0, n_kv=0, version=3, magic=b"GGUF"):
        self.b = bytearray(magic + struct.pack("<IQQ", version, n_tensors, n_kv))

    def put(self, fmt, *v):
        at = len(self.b)
        self.b += struct.pack("<" + fmt, *v)
        return at

    def raw(self, data):
        at = len(self.b)
        self.b += data
        return at

    def text(self, s, n=None):
        s = s if isinstance(s, bytes) else s.encode()
        at = self.put("Q", len(s) if n is None else n)
        self.b += s
        return at

    def value(self, kind, v):
        return self.text(v) if kind == STR else self.put(PACK[kind], v)

    def kv(self, key, kind, v):
        """Returns the offsets of the key, its kind and its value."""
        k = self.text(key)
        return k, self.put("I", kind), self.value(kind, v)

    def arr(self, key, kind, vs, n=None):
        """Returns the offsets of the element kind, the count and the first element."""
        self.text(key)
        self.put("I", ARR)
        e = self.put("I", kind)
        c = self.put("Q", len(vs) if n is None else n)
        first = len(self.b)
        for v in vs:
            self.value(kind, v)
        return e, c, first

    def tensor(self, name, ne, kind=0, offset=0):
        """Returns the offsets of the name, n_dims, the dimensions, the type and the offset."""
        at = (self.text(name), self.put("I", len(ne)), len(self.b))
        for n in ne:
            self.put("Q", n)
        return at + (self.put("I", kind), self.put("Q", offset))

    def data(self, n, align=32):
        self.b += bytes(-len(self.b) % align)
        self.b += bytes(i * 7 % 251 for i in range(n))
        return self

    def left(self, at):
        return len(self.b) - at

    def save(self, name):
        with open(path(name), "wb") as f:
            f.write(self.b)

    def bad(self, name, code, at, message):
        """Saves, and expects this message when the file is opened."""
        self.save(name)
        fails(name, code, name, at, message)


def path(name):
    return f"{DIR}/{name}.gguf"


def fails(name, code, where, at, message):
    """Opening name fails with a message about the file where."""
    expect.append(f"{path(name)}\t{code}\t{path(where)}: offset {at}: {message}")


def opens(name):
    expect.append(f"{path(name)}\t{OK}\t")


def heads():
    f = File()
    f.b = bytearray()
    f.bad("empty", FORMAT, 0, "truncated: the magic number takes 4 bytes, the file has 0 left")
    f = File(magic=b"GGML")
    f.bad("magic", FORMAT, 0, "magic: not a GGUF file")
    File(magic=b"FUGG").bad("byte-order-magic", UNSUPPORTED, 0,
                             "byte-order: a big-endian GGUF file")
    File(version=0x03000000).bad("byte-order-version", UNSUPPORTED, 4,
                                  "byte-order: a big-endian GGUF file")
    for v, code in ((0, FORMAT), (1, UNSUPPORTED), (4, UNSUPPORTED)):
        File(version=v).bad(f"version-{v}", code, 4,
                             f"version: GGUF version {v}, supported are 2 and 3")
    for n, at, what, size in ((3, 0, "the magic number", 4), (7, 4, "the version", 4),
                              (15, 8, "the tensor count", 8), (20, 16, "the key count", 8)):
        f = File()
        del f.b[n:]
        f.bad(f"truncated-head-{n}", FORMAT, at,
               f"truncated: {what} takes {size} bytes, the file has {n - at} left")
    for n in (1, 1 << 60, (1 << 64) - 1):
        File(n_tensors=n).bad(f"tensor-count-{n:x}", FORMAT, 8,
                               f"tensor-count: {n} tensors, the file has 0 bytes left")
        File(n_kv=n).bad(f"key-count-{n:x}", FORMAT, 16,
                          f"key-count: {n} keys, the file has 0 bytes left for them")


def names():
    for what, n_t, n_k, top in (("a key", 0, 1, 65535), ("a tensor name", 1, 0, 64)):
        tag = what.split()[1]
        for label, n in (("wrap", (1 << 64) - 1), ("40", 40)):
            f = File(n_t, n_k)
            at = f.text("abc", n)
            f.raw(bytes(30))
            f.bad(f"{tag}-string-length-{label}", FORMAT, at,
                   f"string-length: {what} of {n} bytes, the file has 33 left")
        f = File(n_t, n_k)
        at = f.text("")
        f.raw(bytes(40))
        f.bad(f"{tag}-empty", FORMAT, at,
               f"name-length: {what} of 0 bytes, allowed are 1 to {top}")
        for label, text in (("cut", b"ab\xe2\x82"), ("overlong", b"\xc0\xaf"), ("nul", b"a\0b"),
                            ("surrogate", b"\xed\xa0\x80"), ("newline", b"a\nb"),
                            ("high", b"\xf4\x90\x80\x80"), ("overlong3", b"\xe0\x80\x80"),
                            ("overlong4", b"\xf0\x80\x80\x80"), ("delete", b"\x7f")):
            f = File(n_t, n_k)
            at = f.text(text)
            f.raw(bytes(40))
            f.bad(f"{tag}-text-{label}", FORMAT, at + 8,
                   f"name-text: {what} is not UTF-8 or has a control character")
    f = File(1, 0)
    at = f.tensor("n" * 65, [8])[0]
    f.data(32).bad("name-length-65", FORMAT, at,
                    "name-length: a tensor name of 65 bytes, allowed are 1 to 64")


def values():
    f = File(0, 1)
    at = f.text("k")
    f.put("IQ", 13, 0)
    f.bad("kind-13", FORMAT, at + 9, "kind: key k has value kind 13, allowed are 0 to 12")
    f = File(0, 1)
    at = f.text("k")
    f.put("IIQ", ARR, 99, 0)
    f.bad("kind-element", FORMAT, at + 13, "kind: key k has value kind 99, allowed are 0 to 12")
    f = File(0, 1)
    at = f.text("k")
    f.put("IIQ", ARR, ARR, 1)
    f.bad("nested-array", FORMAT, at + 13, "nested-array: key k is an array of arrays")
    for kind, n, width, given in ((U8, 9, 1, 8), (F64, 1 << 61, 8, 8), (U32, 1 << 62, 4, 8),
                                  (STR, (1 << 64) - 1, 8, 8)):
        f = File(0, 1)
        at = f.arr("k", kind, [], n)[1]
        f.raw(bytes(given))
        f.bad(f"array-count-{kind}", FORMAT, at,
               f"array-count: key k has {n} elements of at least {width} bytes, "
               f"the file has {given} left")
    f = File(0, 1)
    at = f.kv("k", BOOL, 2)[2]
    f.bad("bool-2", FORMAT, at, "bool: key k is 2, allowed are 0 and 1")
    f = File(0, 1)
    at = f.kv("k" * 79 + "\u4e16" * 9, BOOL, 3)[2]
    f.bad("long-key-shown", FORMAT, at, f"bool: key {'k' * 79} is 3, allowed are 0 and 1")
    f = File(0, 1)
    at = f.arr("k", BOOL, [0, 1, 255])[2]
    f.bad("bool-array", FORMAT, at + 2, "bool: key k is 255, allowed are 0 and 1")
    for n in (6, 1 << 63, (1 << 64) - 8):
        f = File(0, 1)
        f.text("k")
        f.put("I", STR)
        at = f.text("abcde", n)
        f.bad(f"string-length-{n:x}", FORMAT, at,
               f"string-length: string 0 of key k of {n} bytes, the file has 5 left")
    f = File(0, 1)
    at = f.arr("k", STR, ["abcdefgh", ""])[2]
    struct.pack_into("<Q", f.b, at, 12)
    f.bad("string-cut", FORMAT, at + 20, "truncated: string 1 of 2 of key k")
    f = File(0, 1)
    f.text("key")
    at = f.raw(b"\4\0\0")
    f.bad("truncated-kind", FORMAT, at,
          "truncated: a value kind takes 4 bytes, the file has 3 left")
    f = File(0, 1)
    at = f.kv("k", U64, 1)[2]
    del f.b[-1:]
    f.bad("truncated-value", FORMAT, at, "truncated: a value takes 8 bytes, the file has 7 left")
    f = File(0, 1)
    f.text("k")
    f.put("I", ARR)
    at = f.put("I", U32) + 4
    f.put("I", 1)
    f.bad("truncated-count", FORMAT, at,
           "truncated: an array's count takes 8 bytes, the file has 4 left")
    f = File(0, 1)
    f.text("k")
    at = f.put("I", ARR) + 4
    f.raw(b"\0")
    f.bad("truncated-element-kind", FORMAT, at,
           "truncated: a value kind takes 4 bytes, the file has 1 left")
    f = File(0, 2)
    f.kv("general.name", U32, 1)
    at = f.raw(b"\1\0\0\0")
    f.bad("truncated-key", FORMAT, at, "truncated: a key takes 8 bytes, the file has 4 left")
    f = File(0, 3)
    f.kv("b", U32, 1)
    f.kv("a", U32, 1)
    at = f.kv("b", STR, "other")[0]
    f.bad("duplicate-key", FORMAT, at, "duplicate-key: b")
    for v in (0, 3, 4, 33, 1 << 21, 1 << 31):
        f = File(0, 1)
        at = f.kv("general.alignment", U32, v)[2]
        f.bad(f"alignment-{v}", FORMAT, at,
               f"alignment: {v} is not a power of two from 8 to 1048576")
    f = File(0, 1)
    at = f.kv("general.alignment", STR, "32")[1]
    f.bad("alignment-kind", FORMAT, at,
           "alignment: general.alignment has value kind 8, needed is 4 (u32)")


def tensors():
    for n in (0, 5, (1 << 32) - 1):
        f = File(1)
        at = f.tensor("t", [1] * min(n, 8))[1]
        struct.pack_into("<I", f.b, at, n)
        f.data(32).bad(f"dimensions-{n}", FORMAT, at,
                        f"dimensions: tensor t has {n}, allowed are 1 to 4")
    f = File(1)
    at = f.tensor("t", [8, 0, 2])[2]
    f.data(64).bad("zero-dimension", FORMAT, at + 8, "zero-dimension: tensor t: dimension 1 is 0")
    for label, ne, bad in (("product", [1 << 32, 1 << 31], 1), ("four", [1 << 16] * 4, 3),
                           ("negative", [8, (1 << 64) - 1], 1), ("sign", [1 << 63], 0)):
        f = File(1)
        at = f.tensor("t", ne)[2]
        f.data(64).bad(f"overflow-{label}", FORMAT, at + 8 * bad,
                        "overflow: tensor t has more than 2^63 - 1 elements")
    for label, ne in (("row", [(1 << 63) - 1]), ("rows", [1 << 32, 1 << 30])):
        f = File(1)
        at = f.tensor("t", ne)[2]
        f.data(64).bad(f"overflow-{label}", FORMAT, at,
                       "overflow: tensor t: its bytes do not fit in memory")
    for kind, name in ((4, None), (5, None), (31, None), (36, "i2_s"), (145, "iq2_ks"), (146, "iq4_kss"), (158, "iq1_kt"),
                       (9999, None), ((1 << 32) - 1, None)):
        f = File(1)
        at = f.tensor("t", [32], kind)[3]
        f.data(128).bad(f"type-{kind}", UNSUPPORTED, at,
                         f"type: tensor t has type id {kind}, which this build does not know" if name is None else
                         f"type: tensor t is {name} (type {kind}), a type of ik_llama.cpp that is not read")
    for kind, n, name, block in ((2, 33, "q4_0", 32), (12, 128, "q4_k", 256), (8, 31, "q8_0", 32)):
        f = File(1)
        at = f.tensor("t", [n, 2], kind)[2]
        f.data(512).bad(f"block-{name}", FORMAT, at,
                         f"block: tensor t: rows of {n} elements, {name} has blocks of {block}")
    f = File(1)
    at = f.tensor("t", [8], 0, 16)[4]
    f.data(64).bad("offset-alignment", FORMAT, at,
                    "offset-alignment: tensor t at 16 is not aligned to 32")
    f = File(1, 1)
    f.kv("general.alignment", U32, 64)
    at = f.tensor("t", [8], 0, 32)[4]
    f.data(128, 64).bad("offset-alignment-64", FORMAT, at,
                         "offset-alignment: tensor t at 32 is not aligned to 64")
    for label, offset, size, have in (("one", 0, 32, 31), ("far", 64, 32, 64), ("next", 96, 32, 64),
                                      ("wrap", (1 << 64) - 32, 32, 64), ("none", 0, 32, 0)):
        f = File(1)
        at = f.tensor("t", [8], 0, offset)[4]
        if have:
            f.data(have)
        f.bad(f"past-end-{label}", FORMAT, at,
               f"past-end: an incomplete download? tensor t of {size} bytes at {offset}, the data section has {have}")
    f = File(2)
    f.tensor("a", [16], 0, 0)
    at = f.tensor("b", [8], 0, 32)[4]
    f.data(64).bad("overlap", FORMAT, at, "overlap: tensors a and b")
    f = File(3)
    f.tensor("a", [8], 0, 64)
    f.tensor("b", [8], 0, 0)
    at = f.tensor("c", [8], 0, 64)[4]
    f.data(96).bad("overlap-same", FORMAT, at, "overlap: tensors a and c")
    f = File(2)
    f.tensor("a", [8], 0, 0)
    at = f.tensor("a", [8], 0, 32)[0]
    f.data(64).bad("duplicate-tensor", FORMAT, at, "duplicate-tensor: a")
    for part, what, size in ((0, "a tensor name", 8), (1, "a number of dimensions", 4),
                             (2, "a dimension", 8), (3, "a tensor type", 4),
                             (4, "a tensor's offset", 8)):
        f = File(2)
        f.tensor("n" * 64, [8, 1, 1, 1])
        at = f.tensor("t", [8], 0, 32)[part]
        del f.b[at + 2:]
        f.bad(f"truncated-tensor-{part}", FORMAT, at,
               f"truncated: {what} takes {size} bytes, the file has 2 left")


def part(no, count, total, tensors, extra=(), keys=("no", "count", "tensors.count"),
         count_kind=U16):
    """A part of a set, and the offset of its key split.count."""
    f = File(len(tensors), len(keys) + len(extra))
    at = None
    for key, kind, v in extra:
        f.kv(key, kind, v)
    for key, kind, v in (("no", U16, no), ("count", count_kind, count),
                         ("tensors.count", I32, total)):
        if key in keys:
            k = f.kv("split." + key, kind, v)[0]
            at = k + 8 if key == "count" else at  # the key's text
    for i, name in enumerate(tensors):
        f.tensor(name, [8], 0, 32 * i)
    return f.data(32 * len(tensors)) if tensors else f, at


def split():
    part(0, 2, 3, ["a", "b"], [("general.name", STR, "set")])[0].save("ok-set-00001-of-00002")
    part(1, 2, 3, ["c"])[0].save("ok-set-00002-of-00002")
    opens("ok-set-00001-of-00002")
    opens("ok-set-00002-of-00002")
    part(0, 1, 2, ["a", "b"])[0].save("ok-split-of-one")
    opens("ok-split-of-one")
    ends = "split: the name of this part must end in "
    f, at = part(0, 2, 2, ["a"])
    f.bad("split-name", FORMAT, at, ends + "-00001-of-00002.gguf")
    f, at = part(0, 3, 2, ["a"])
    f.bad("split-other-00002-of-00003", FORMAT, at, ends + "-00001-of-00003.gguf")
    f, at = part(2, 2, 2, ["a"])
    f.bad("split-no-00003-of-00002", FORMAT, at, "split: split.no 2 of split.count 2")
    f, at = part(0, 100000, 1, [], count_kind=U32)
    f.bad("split-count", FORMAT, at, "split: split.no 0 of split.count 100000")
    for key in ("no", "tensors.count"):
        f, at = part(0, 2, 2, ["a"], keys=[k for k in ("no", "count", "tensors.count") if k != key])
        f.bad(f"split-without-{key}", FORMAT, at, f"split: a part of 2 without the key split.{key}")
    for label, kind, v in (("text", STR, "2"), ("negative", I32, -2), ("fraction", F32, 2.5)):
        f = File(0, 1)
        at = f.kv("split.count", kind, v)[2]
        f.bad(f"split-{label}", FORMAT, at, "split: split.count is not a whole number")
    part(0, 2, 2, ["a"])[0].save("split-alone-00001-of-00002")
    expect.append(f"{path('split-alone-00001-of-00002')}\t{IO}\t"
                  f"{path('split-alone-00002-of-00002')}: cannot open: No such file or directory")


def split_pairs():
    """Sets of two parts that disagree, opened by either."""
    needs = "split: part {} of {} with {} tensors, needed is part {} of {} with {}"
    ends = "split: the name of this part must end in -0000{}-of-0000{}.gguf"
    for label, parts, messages in (
            ("no", ((0, 2, 2, ["a"]), (0, 2, 2, ["b"])),
             ((2, needs.format(0, 2, 2, 1, 2, 2)), (2, ends.format(1, 2)))),
            ("counts", ((0, 2, 2, ["a"]), (1, 3, 2, ["b"])),
             ((2, needs.format(1, 3, 2, 1, 2, 2)), (2, ends.format(2, 3)))),
            ("totals", ((0, 2, 2, ["a"]), (1, 2, 5, ["b"])),
             ((2, needs.format(1, 2, 5, 1, 2, 2)), (1, needs.format(0, 2, 2, 0, 2, 5)))),
            ("sum", ((0, 2, 5, ["a"]), (1, 2, 5, ["b"])),
             ((1, "split: 2 tensors in all parts, split.tensors.count is 5"),
              (2, "split: 2 tensors in all parts, split.tensors.count is 5"))),
            ("twice", ((0, 2, 4, ["a", "x"]), (1, 2, 4, ["b", "x"])),
             ((2, "duplicate-tensor: x"), (2, "duplicate-tensor: x")))):
        names = [f"split-{label}-0000{i}-of-00002" for i in (1, 2)]
        at = []
        for name, args in zip(names, parts):
            f, key_at = part(*args)
            f.save(name)
            at.append(f.b.index(struct.pack("<Q", 1) + b"x") if label == "twice" else key_at)
        for name, (where, message) in zip(names, messages):
            fails(name, FORMAT, names[where - 1], at[where - 1], message)


def accepted():
    File().save("ok-empty")
    opens("ok-empty")
    File(version=2).save("ok-version-2-empty")
    opens("ok-version-2-empty")
    f = File(2, 2, version=2)
    f.kv("general.architecture", STR, "test")
    f.kv("general.alignment", U32, 64)
    f.tensor("b", [4, 2], 0, 64)
    f.tensor("a", [32, 1, 1, 1], 8, 0)
    f.data(96, 64).save("ok-version-2")
    opens("ok-version-2")
    f = File(0, 12 + 13 + 2)
    for kind, v in ((U8, 200), (I8, -100), (U16, 60000), (I16, -30000), (U32, 4000000000),
                    (I32, -2000000000), (F32, 0.1), (BOOL, 1), (STR, "text"),
                    (U64, (1 << 64) - 1), (I64, -(1 << 63)), (F64, 0.1)):
        f.kv(f"scalar.{kind}", kind, v)
        f.arr(f"array.{kind}", kind, [v, v, v] if kind != STR else ["", "a", "\u00e4\u00f6"])
    f.arr("array.empty", U32, [])
    f.arr("array.empty.text", STR, [])
    f.kv("a.key \u00e4 \u4e16 \U0001f600", STR, b"\xff not UTF-8: a value may be any bytes\0")
    f.save("ok-kinds")
    opens("ok-kinds")
    f = File(3, 1)
    f.kv("general.name", STR, "tensors out of order, a gap, the last one not padded")
    f.tensor("t.last", [2, 3, 1, 1], 0, 128)
    f.tensor("n" * 64, [32], 2, 0)
    f.tensor("t.first", [5], 1, 64)
    f.data(128 + 24).save("ok-order")
    opens("ok-order")


WHOLE = 13385  # bytes of two saves

# name: how many of the bytes, and at which offset other ones (hexadecimal)
SESSIONS = {
    "blob-long": (WHOLE, {6433: "701101"}),
    "codec-2": (WHOLE, {340: "02"}),
    "commit-count": (WHOLE, {13337: "00"}),
    "commit-elsewhere": (WHOLE, {6519: "01"}),
    "decoded-huge": (WHOLE, {361: "0000000001"}),
    "grown": (WHOLE, {}),
    "kind-9": (WHOLE, {256: "09"}),
    "kv-gap": (WHOLE, {6667: "fa"}),
    "kv-many": (WHOLE, {352: "0101"}),
    "kv-not-packed": (WHOLE, {340: "00"}),
    "magic": (8, {}),
    "one": (6575, {}),
    "short-header": (200, {}),
    "snapshot-at-0": (WHOLE, {2359: "00"}),
    "snapshot-far": (WHOLE, {11196: "00", 11201: "01"}),
    "stored-huge": (WHOLE, {368: "0000", 375: "80"}),
    "token-negative": (WHOLE, {320: "fbffffff"}),
    "tokens-gap": (WHOLE, {6583: "40420f"}),
    "tokens-huge": (WHOLE, {272: "00", 279: "40"}),
    "torn": (700, {}),
    "zstd-bad": (WHOLE, {404: "ffffffffffffffff"}),
}


def sessions():
    with open(f"{STATE_DIR}/cut", "rb") as f:
        cut = f.read()
    for name, (size, changes) in SESSIONS.items():
        data = bytearray(cut[:size])
        for at, other in changes.items():
            data[at:at + len(other) // 2] = bytes.fromhex(other)
        with open(f"{STATE_DIR}/{name}", "wb") as f:
            f.write(data)


def main():
    os.makedirs(DIR, exist_ok=True)
    for make in (heads, names, values, tensors, split, split_pairs, accepted):
        make()
    sessions()
    with open("tests/fuzz/corpus/gguf.expect", "w", encoding="utf-8") as f:
        f.write("".join(line + "\n" for line in expect))


if __name__ == "__main__":
    main()
