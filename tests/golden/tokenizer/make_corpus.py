#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the saved inputs of fuzz_text: small vocabularies, sound and broken, and texts.

usage: make_corpus.py DIR      (DIR is tests/fuzz/corpus/text)
"""
import os
import struct
import sys

STR, ARR, U32, I32, F32, BOOL = 8, 9, 4, 5, 6, 7


def string(s):
    b = s if isinstance(s, bytes) else s.encode()
    return struct.pack("<Q", len(b)) + b


def value(kind, v):
    pack = {U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}
    return string(v) if kind == STR else struct.pack(pack[kind], v)


def gguf(pairs):
    out = b"GGUF" + struct.pack("<IQQ", 3, 0, len(pairs))
    for key, kind, v in pairs:
        out += string(key)
        if isinstance(v, list):
            out += struct.pack("<IIQ", ARR, kind, len(v)) + b"".join(value(kind, x) for x in v)
        else:
            out += struct.pack("<I", kind) + value(kind, v)
    return out


def byte_spellings():
    shown = [b for b in range(256) if 0x20 < b < 0x7F or 0xA0 < b and b != 0xAD]
    rest = iter(range(256, 512))
    return [chr(b) if b in shown else chr(next(rest)) for b in range(256)]


def bpe(tokens=(), merges=(), types=None, pre="qwen2", more=()):
    tokens = byte_spellings() + list(tokens)
    types = [1] * 256 + list(types or [1] * (len(tokens) - 256))
    return [("tokenizer.ggml.model", STR, "gpt2"), ("tokenizer.ggml.pre", STR, pre),
            ("tokenizer.ggml.tokens", STR, tokens), ("tokenizer.ggml.token_type", I32, types),
            ("tokenizer.ggml.merges", STR, list(merges))] + list(more)


def spm(words, score=lambda i: -float(i), more=()):
    tokens = ["<unk>", "<s>", "</s>"] + ["<0x%02X>" % b for b in range(256)] + list(words)
    types = [2, 3, 3] + [6] * 256 + [1] * len(words)
    return [("tokenizer.ggml.model", STR, "llama"), ("tokenizer.ggml.tokens", STR, tokens),
            ("tokenizer.ggml.token_type", I32, types),
            ("tokenizer.ggml.scores", F32, [score(i) for i in range(len(tokens))]),
            ("tokenizer.ggml.unknown_token_id", U32, 0)] + list(more)


WORDS = ["\u2581", "S", "o", "m", "e", "t", "x", "\u2581S", "So", "om", "\u2581t", "ex", "ext", "\u2581text"]
LONG = "=" * 600
FILES = {
    "bpe.gguf": gguf(bpe(["So", "me", "Some", "ab"], ["S o", "m e", "So me", "a b"])),
    "bpe-specials.gguf": gguf(bpe(["<s>", "</s>", "<|im_end|>", "\u0120t", "a b"], ["\u0120 t"],
                                  [3, 3, 4, 1, 4], "llama-bpe",
                                  [("tokenizer.ggml.bos_token_id", U32, 256),
                                   ("tokenizer.ggml.add_eos_token", BOOL, True)])),
    "bpe-same-twice.gguf": gguf(bpe(["ab", "ab", ""], ["a b", "a b"])),
    "bpe-no-bytes.gguf": gguf([("tokenizer.ggml.model", STR, "gpt2"), ("tokenizer.ggml.pre", STR, "gpt-2"),
                               ("tokenizer.ggml.tokens", STR, ["a", "e", "ae"]),
                               ("tokenizer.ggml.merges", STR, ["a e"])]),
    "bpe-bad-spelling.gguf": gguf(bpe([b"\xff\xfe", "\u4e00", "ab"], ["a b"])),
    "bpe-unknown-part.gguf": gguf(bpe(["ab"], ["a b", "ab cd"])),
    "bpe-types-short.gguf": gguf(bpe(["ab"], ["a b"])[:3] + [("tokenizer.ggml.token_type", I32, [1]),
                                                              ("tokenizer.ggml.merges", STR, ["a b"])]),
    "bpe-eos-far.gguf": gguf(bpe(["ab"], ["a b"], more=[("tokenizer.ggml.eos_token_id", U32, 999)])),
    "bpe-long-special.gguf": gguf(bpe([LONG], [], [3])),
    "bpe-pre-unknown.gguf": gguf(bpe(["ab"], ["a b"], pre="nothing")),
    "tokens-not-strings.gguf": gguf([("tokenizer.ggml.model", STR, "gpt2"),
                                     ("tokenizer.ggml.tokens", U32, [1, 2])]),
    "spm.gguf": gguf(spm(WORDS)),
    "spm-equal-scores.gguf": gguf(spm(WORDS, lambda i: 0.0)),
    "spm-inside-space.gguf": gguf(spm(WORDS + ["e\u2581t", "Some\u2581t", "me\u2581"])),
    "spm-nan.gguf": gguf(spm(WORDS, lambda i: float("nan"))),
    "spm-plain.gguf": gguf(spm(WORDS, more=[("tokenizer.ggml.add_space_prefix", BOOL, False),
                                            ("tokenizer.ggml.remove_extra_whitespaces", BOOL, True)])),
    "text-plain": b"\0Some plain text, 12345 and more.\n\n  Indented\tline\r\n",
    "text-specials": b"\1<|im_start|>user\nhi<|im_end|>\n<think>\n\n</think>\n",
    "text-add": b"\3stop\n<|im_start|>\n\n",
    "text-bad": b"\0\xff\xc3(\xe2\x82 \xf0\x9f\x98 \xed\xa0\x80 \xf4\x90\x80\x80 \xc0\xaf \xf8\x88\x80\x80\x80",
    "text-scripts": "\0\u6f22\u5b57 \u0939\u093f\u0928\u094d\u0926\u0940 e\u0301\u0301 \U0001f600\u200d".encode(),
    "text-spaces": b"\2" + b" " * 300 + b"\t\n" * 40 + b"x",
    "text-run": b"\0" + b"a" * 700 + b"A" * 700 + b"7" * 100,
    "text-repeats": b"\0" + b"the same words again and again, " * 60,
}

os.makedirs(sys.argv[1], exist_ok=True)
for name, data in FILES.items():
    with open(os.path.join(sys.argv[1], name), "wb") as f:
        f.write(data)
