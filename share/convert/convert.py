#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""convert - a Hugging Face checkpoint of Zamba2, Hymba, Ling 3.0 or Qwen4-Exp becomes a GGUF file.

    convert [-f] [--type bf16|f16|f32] [--pre NAME] DIRECTORY OUT.gguf

Needs Python 3.9 and numpy. chimere-families(7) says what is converted and what is refused. Status 1: the system, 2: wrong
options, 3: a checkpoint that is broken, or of another family. Names of tensors are those of transformers 5.24, for Hymba
of its authors' modeling file. At most one tensor of the checkpoint is in memory, or a part of it; two where an adapter is
merged."""
import argparse
import json
import math
import os
import re
import signal
import stat
import struct
import sys
import tempfile

try:
    import numpy as np
except ImportError:
    sys.exit("convert: numpy is not installed")

PIECE = 1 << 24  # elements of a tensor that are read at a time, where rows do not depend on each other
DTYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8"}  # numpy has no bf16: two bytes stand for it
SIZES = {"F64": 8, "U64": 8, "I32": 4, "U32": 4, "I16": 2, "U16": 2, "I8": 1, "U8": 1, "BOOL": 1, "F8_E4M3": 1,
         "F8_E5M2": 1, "F8_E8M0": 1, "F32": 4, "F16": 2, "BF16": 2, "I64": 8}
WIDTH, LAYERS, VOCAB = 1 << 20, 1024, 1 << 24
U32, I32, F32, BOOL, STR, ARR, U64 = 4, 5, 6, 7, 8, 9, 10


class Bad(Exception):
    """The checkpoint is at fault: one line."""


def unique(pairs):
    d = dict(pairs)
    if len(d) != len(pairs):
        raise ValueError("a name is there twice")
    return d


def parse(text, what):
    try:
        d = json.loads(text, object_pairs_hook=unique)
    except (ValueError, RecursionError) as e:
        raise Bad(f"{what}: not JSON: {e}") from None
    if not isinstance(d, dict):
        raise Bad(f"{what}: not a JSON object")
    return d


def open_plain(path):
    f = open(path, "rb", opener=lambda p, flags: os.open(p, flags | os.O_NONBLOCK))  # a FIFO would wait
    if not stat.S_ISREG(os.fstat(f.fileno()).st_mode):
        f.close()
        raise Bad(f"{path}: not a file")
    return f


def read_text(path, most=1 << 28):
    with open_plain(path) as f:
        text = f.read(most + 1)
    if len(text) > most:
        raise Bad(f"{path}: longer than {most} bytes")
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise Bad(f"{path}: not UTF-8") from None


def count(x, least=0, most=1 << 62):
    return type(x) is int and least <= x <= most


class Config:
    """A JSON file whose members are checked when they are read; the first of several names that is there counts."""

    def __init__(self, members, what):
        self.d, self.what = members, what

    def get(self, *names):
        return next((self.d[n] for n in names if self.d.get(n) is not None), None)

    def bad(self, name, why):
        raise Bad(f"{self.what}: {name}: {why}")

    def int(self, *names, least=1, most=WIDTH, default=None):
        v = self.get(*names)
        v = default if v is None else v
        if v is None:
            self.bad(names[0], "missing")
        return v if count(v, least, most) else self.bad(names[0], f"not a whole number from {least} to {most}")

    def float(self, name, default=None):
        v = self.get(name)
        v = default if v is None else v
        ok = type(v) in (int, float) and abs(v) < 1e30
        return float(v) if ok else self.bad(name, "missing" if v is None else "not a number")

    def list(self, name, kind, n=None):
        v = self.get(name)
        ok = isinstance(v, list) and all(type(x) is kind for x in v) and (n is None or len(v) == n)
        return v if ok else self.bad(name, f"not a list of {n or 'some'} {'names' if kind is str else 'whole numbers'}")

    def only(self, default, *names):
        """What must have one value, since nothing else was tested."""
        v = self.get(*names)
        if (default if v is None else v) != default:
            self.bad(next(n for n in names if self.d.get(n) is not None),
                     f"only {json.dumps(default)} is converted")

    def theta(self):
        rope = self.get("rope_parameters", "rope_scaling")
        if rope is not None and not isinstance(rope, dict):
            self.bad("rope_parameters", "not an object")
        rope = Config(rope or {}, self.what + ": rope_parameters")
        rope.only("default", "rope_type", "type")
        return rope.float("rope_theta", self.float("rope_theta", 10000.0)), rope


class Tensor:
    def __init__(self, path, name, dtype, shape, at):
        self.path, self.name, self.dtype, self.shape, self.at, self.used = path, name, dtype, shape, at, False

    def read(self, first=0, n=None):
        if self.dtype not in DTYPES:
            raise Bad(f"{self.name}: type {self.dtype} is not converted, only BF16, F16 and F32")
        n = math.prod(self.shape) - first if n is None else n
        dt = np.dtype(DTYPES[self.dtype])
        with open_plain(self.path) as f:
            f.seek(self.at + first * dt.itemsize)
            a = np.fromfile(f, dt, n)
        if a.size != n:
            raise Bad(f"{self.path}: the file has become shorter")
        return a

    def all(self):
        return self.read().reshape(self.shape)

    def floats(self):
        return floats(self.all())

    def rows(self, first=0, end=None):
        """Rows of the first dimension, in pieces."""
        row = math.prod(self.shape[1:])
        at, end = first * row, (self.shape[0] if end is None else end) * row
        while at < end:
            n = min(PIECE, end - at)
            yield self.read(at, n)
            at += n


def read_header(path, tensors):
    with open_plain(path) as f:
        size = os.fstat(f.fileno()).st_size
        head = f.read(8)
        n = int.from_bytes(head, "little") if len(head) == 8 else size
        if n > size - 8 or n > 100_000_000:
            raise Bad(f"{path}: a header of {n} bytes in a file of {size}" if len(head) == 8 else f"{path}: too short")
        text = f.read(n)
    try:
        entries = parse(text.decode(), path)
    except UnicodeDecodeError:
        raise Bad(f"{path}: the header is not UTF-8") from None
    entries.pop("__metadata__", None)
    spans = []
    for name, e in entries.items():
        shape, span = (e.get("shape"), e.get("data_offsets")) if isinstance(e, dict) else (None, None)
        if not (isinstance(shape, list) and len(shape) <= 8 and all(map(count, shape)) and
                isinstance(span, list) and len(span) == 2 and all(map(count, span)) and isinstance(e.get("dtype"), str)):
            raise Bad(f"{path}: {name!r}: not a type, a shape and two offsets")
        if e["dtype"] not in SIZES:
            raise Bad(f"{path}: {name!r}: unknown type {e['dtype']!r}")
        if span[0] > span[1] or span[1] > size - 8 - n:
            raise Bad(f"{path}: {name!r}: bytes {span[0]} to {span[1]} of {size - 8 - n}")
        if math.prod(shape) * SIZES[e["dtype"]] != span[1] - span[0]:
            raise Bad(f"{path}: {name!r}: {span[1] - span[0]} bytes are not {e['dtype']} of shape {shape}")
        if name in tensors:
            raise Bad(f"{path}: {name!r} is in two files")
        spans.append((*span, name))
        tensors[name] = Tensor(path, name, e["dtype"], shape, 8 + n + span[0])
    spans.sort()
    for a, b in zip(spans, spans[1:]):
        if a[1] > b[0]:
            raise Bad(f"{path}: {a[2]!r} and {b[2]!r} overlap")


class Checkpoint:
    def __init__(self, directory):
        index = os.path.join(directory, "model.safetensors.index.json")
        self.tensors, self.renamed = {}, {}
        files = ["model.safetensors"]
        where = {}
        if os.path.exists(index):
            where = parse(read_text(index), index).get("weight_map")
            if not isinstance(where, dict) or not all(isinstance(f, str) for f in where.values()):
                raise Bad(f"{index}: weight_map does not name a file for each tensor")
            files = sorted(set(where.values()))
        for f in files:
            if not re.fullmatch(r"[\w][\w.-]*\.safetensors", f):
                raise Bad(f"{index}: {f!r} is not the name of a .safetensors file in this directory")
            read_header(os.path.join(directory, f), self.tensors)
        for name, f in where.items():
            if name not in self.tensors or os.path.basename(self.tensors[name].path) != f:
                raise Bad(f"{index}: {name!r} is not in {f}")

    def rename(self, *rules):
        """Other spellings of the same names."""
        for name, t in self.tensors.items():
            for pattern, to in rules:
                name = re.sub(pattern, to, name)
            if name in self.renamed:
                raise Bad(f"{t.name!r} and {self.renamed[name].name!r} are the same tensor")
            self.renamed[name] = t

    def has(self, name):
        return name in self.renamed

    def need(self, name, *shape, kinds=("BF16", "F16", "F32")):
        t = self.renamed.get(name)
        if t is None:
            raise Bad(f"tensor {name} is missing")
        if [n for n in t.shape if n != 1] != [n for n in shape if n != 1]:
            raise Bad(f"tensor {t.name}: shape {t.shape}, not {list(shape)}")
        if t.dtype not in kinds:
            raise Bad(f"tensor {t.name}: type {t.dtype}, not one of {', '.join(kinds)}")
        t.used, t.shape = True, list(shape)
        return t

    def left(self, *unused):
        """Every tensor was used, or is of a part that is left out: how many."""
        n = 0
        for name, t in self.renamed.items():
            if not t.used:
                if not any(re.match(p, name) for p in unused):
                    raise Bad(f"tensor {t.name} is unknown in this family")
                n += 1
        return n


def floats(a):
    if a.dtype == np.uint16:
        return (a.astype(np.uint32) << 16).view(np.float32)
    return a.astype(np.float32)


def encode(a, kind, name):
    a = a.ravel()
    if kind == "f32":
        return floats(a).astype("<f4")
    if kind == "bf16":
        if a.dtype == np.uint16:
            return a
        x = floats(a)
        b = x.view(np.uint32)
        even = ((b + 0x7FFF + ((b >> 16) & 1)) >> 16).astype("<u2")
        return np.where(np.isnan(x), (b >> 16 | 64).astype("<u2"), even)
    x = floats(a)
    with np.errstate(over="ignore"):
        h = x.astype("<f2")
    if (np.isinf(h) & np.isfinite(x)).any():
        raise Bad(f"{name}: too large for f16")
    return h


class Model:
    """What the file will have: metadata, and for each tensor how its numbers are made."""

    def __init__(self, arch, ck):
        self.arch, self.ck, self.meta, self.tensors = arch, ck, [], []

    def key(self, name, kind, value):
        self.meta.append((f"{self.arch}.{name}", kind, value))

    def ints(self, **values):
        for name, v in values.items():
            self.key(name.replace("__", "."), U32, v)

    def add(self, name, shape, *parts, f32=False):
        """shape as in numpy; each of parts is called for an iterable of arrays."""
        self.tensors.append((name, shape, f32 or len(shape) == 1, parts))

    def take(self, to, name, *shape, f32=False, out=None):
        self.add(to, out or shape, self.ck.need(name, *shape).rows, f32=f32)

    def make(self, to, name, shape, f, f32=False, out=None):
        """A tensor that a function of the whole one makes."""
        t = self.ck.need(name, *shape)
        self.add(to, out or shape, lambda: [f(t)], f32=f32)

    def experts(self, b, m, n, ff, embd):
        """Stacked already, gates before ups; or one by one."""
        def rows(t, i, j):
            return lambda: (a for e in range(n) for a in t.rows(e * 2 * ff + i, e * 2 * ff + j))
        if self.ck.has(m + "experts.gate_up_proj"):
            t = self.ck.need(m + "experts.gate_up_proj", n, 2 * ff, embd)
            t.shape = [n * 2 * ff, embd]
            self.add(b + "ffn_gate_exps.weight", (n, ff, embd), rows(t, 0, ff))
            self.add(b + "ffn_up_exps.weight", (n, ff, embd), rows(t, ff, 2 * ff))
            return self.take(b + "ffn_down_exps.weight", m + "experts.down_proj", n, embd, ff)
        for x, shape in (("gate", (ff, embd)), ("up", (ff, embd)), ("down", (embd, ff))):
            each = [self.ck.need(f"{m}experts.{e}.{x}_proj.weight", *shape).rows for e in range(n)]
            self.add(f"{b}ffn_{x}_exps.weight", (n, *shape), *each)

    def mlp(self, b, m, ff, embd, end=""):
        self.take(f"{b}ffn_gate{end}.weight", m + "gate_proj.weight", ff, embd)
        self.take(f"{b}ffn_up{end}.weight", m + "up_proj.weight", ff, embd)
        self.take(f"{b}ffn_down{end}.weight", m + "down_proj.weight", embd, ff)


def minus_exp(t):
    return -np.exp(t.floats())


def zamba2(c, ck, m):
    E, L, V = c.int("hidden_size"), c.int("num_hidden_layers", most=LAYERS), c.int("vocab_size", most=VOCAB)
    kinds = c.list("layers_block_type", str, L)
    n, F = c.int("num_attention_heads"), c.int("intermediate_size", default=4 * E)
    G, N, h, k = (c.int(x) for x in ("mamba_ngroups", "mamba_d_state", "n_mamba_heads", "mamba_d_conv"))
    blocks, rank = c.int("num_mem_blocks", default=1), c.int("adapter_rank", default=128)
    for value, key in (("gelu", "hidden_act"), (2, "mamba_expand"), (False, "use_long_context"), (True, "use_conv_bias"),
                       (False, "add_bias_linear"), (n, "num_key_value_heads")):
        c.only(value, key)
    if set(kinds) - {"mamba", "linear_attention", "hybrid"} or "hybrid" not in kinds or 2 * E % n or 2 * E % h or 2 * E % G:
        raise Bad("config.json: layers_block_type names other layers than mamba and hybrid, or heads do not fit hidden_size")
    D, W, dt = 2 * E, 2 * E // n, 2 * E + 2 * G * N
    m.ints(block_count=L, embedding_length=E, context_length=c.int("max_position_embeddings", most=1 << 30),
           feed_forward_length=F, vocab_size=V, attention__head_count=n, attention__key_length=W,
           attention__value_length=W, ssm__conv_kernel=k, ssm__inner_size=D, ssm__state_size=N, ssm__time_step_rank=h,
           ssm__group_count=G, rope__dimension_count=W if c.get("use_mem_rope") else 0)
    m.key("attention.head_count_kv", ARR, (I32, [n * (x == "hybrid") for x in kinds]))
    m.key("attention.layer_norm_rms_epsilon", F32, c.float("rms_norm_eps", 1e-5))
    if c.get("use_mem_rope"):
        m.key("rope.freq_base", F32, c.theta()[0])
    ck.rename()
    m.take("token_embd.weight", "model.embed_tokens.weight", V, E)
    m.take("output_norm.weight", "model.final_layernorm.weight", E)
    if c.get("tie_word_embeddings") is False:
        m.take("output.weight", "lm_head.weight", V, E)
    hybrid = [i for i in range(L) if kinds[i] == "hybrid"]

    def merged(to, name, use, shape, adapter):
        t = ck.need(name, *shape)
        if adapter is None:
            return m.add(to, shape, t.rows)
        down = ck.need(f"{adapter}.{use}.0.weight", rank, shape[1])
        up = ck.need(f"{adapter}.{use}.1.weight", shape[0], rank)

        def make():
            x = up.floats() @ down.floats()
            x += t.floats()
            return [x]
        m.add(to, shape, make)

    for i in range(L):
        b, p = f"blk.{i}.", f"model.layers.{i}."
        if i in hybrid:
            use = hybrid.index(i)
            s = f"model.layers.{hybrid[use % blocks]}.shared_transformer."
            m.take(b + "ssm_mix.weight", p + "linear.weight", E, E)
            m.take(b + "post_attention_norm.weight", s + "input_layernorm.weight", 2 * E)
            m.take(b + "ffn_norm.weight", s + "pre_ff_layernorm.weight", E)
            for x in "qkv":
                has = c.get("use_shared_attention_adapter") is True
                merged(f"{b}attn_{x}.weight", f"{s}self_attn.{x}_proj.weight", use, (2 * E, 2 * E),
                       f"{s}self_attn.linear_{x}_adapter_list" if has else None)
            m.take(b + "attn_output.weight", s + "self_attn.o_proj.weight", E, 2 * E)
            merged(b + "ffn_up.weight", s + "feed_forward.gate_up_proj.weight", use, (2 * F, E),
                   s + "feed_forward.gate_up_proj_adapter_list")
            m.take(b + "ffn_down.weight", s + "feed_forward.down_proj.weight", E, F)
            p += "mamba_decoder."
        m.take(b + "attn_norm.weight", p + "input_layernorm.weight", E)
        p += "mamba."
        m.take(b + "ssm_in.weight", p + "in_proj.weight", D + dt + h, E)
        m.take(b + "ssm_conv1d.weight", p + "conv1d.weight", dt, k, f32=True)
        m.take(b + "ssm_conv1d.bias", p + "conv1d.bias", dt)
        m.take(b + "ssm_dt.bias", p + "dt_bias", h)
        m.make(b + "ssm_a", p + "A_log", (h,), minus_exp, f32=True, out=(h, 1))
        m.take(b + "ssm_d", p + "D", h, f32=True, out=(h, 1))
        m.take(b + "ssm_norm.weight", p + "norm.weight", D, f32=True, out=(G, D // G))
        m.take(b + "ssm_out.weight", p + "out_proj.weight", E, D)
    # A block that is used again may be stored again: the first layer's counts.
    return [r"lm_head\."] * (c.get("tie_word_embeddings") is not False) + \
        [rf"model\.layers\.{i}\.shared_transformer\." for i in hybrid[blocks:]]


def hymba(c, ck, m):
    E, L, V = c.int("hidden_size"), c.int("num_hidden_layers", most=LAYERS), c.int("vocab_size", most=VOCAB)
    n, kv, F = c.int("num_attention_heads"), c.int("num_key_value_heads"), c.int("intermediate_size")
    N, R, k = c.int("mamba_d_state"), c.int("mamba_dt_rank"), c.int("mamba_d_conv")
    M = c.int("num_memory_tokens", most=4096)
    for value, key in ((2, "mamba_expand"), ("silu", "mlp_hidden_act"), ("silu", "hidden_act"), (True, "mamba_conv_bias"),
                       (False, "mamba_proj_bias"), (True, "mamba_inner_layernorms"), (1, "num_experts"), (1, "num_mamba"),
                       ("none", "kq_norm"), (0, "memory_tokens_interspersed_every"), (False, "kv_weight_reuse"),
                       (-1, "kv_reuse_every_i_layer"), (True, "rope")):
        c.only(value, key)
    if E % n or n % kv:
        raise Bad("config.json: num_attention_heads does not fit hidden_size or num_key_value_heads")
    D, dk, dv = 2 * E, E // n, 2 * E // n
    theta = c.float("rope_theta", 10000.0)
    context = c.int("max_position_embeddings", most=1 << 30)
    if c.get("rope_type") == "ntk" and dk > 2:
        theta *= (2 * context / c.int("orig_max_position_embeddings", most=context) - 1) ** (dk / (dk - 2))
    else:
        c.only("default", "rope_type")
    whole = c.list("global_attn_idx", int)
    of = list(range(L))
    groups = c.get("kv_reuse_group") or []
    for g in groups if isinstance(groups, list) else [None]:
        if not isinstance(g, list) or not g or not all(count(x, 0, L - 1) for x in g) or sorted(set(g)) != g:
            c.bad("kv_reuse_group", "not lists of layers in ascending order")
        for i in g[1:]:
            of[i] = g[0]
    if any(of[of[i]] != of[i] for i in range(L)):
        c.bad("kv_reuse_group", "a layer is in two groups")
    m.ints(block_count=L, embedding_length=E, context_length=context, feed_forward_length=F, vocab_size=V,
           attention__head_count=n, attention__head_count_kv=kv, attention__key_length=dk, attention__value_length=dv,
           attention__sliding_window=c.int("sliding_window", most=1 << 30), meta_token_count=M, rope__dimension_count=dk,
           ssm__conv_kernel=k, ssm__inner_size=D, ssm__state_size=N, ssm__time_step_rank=R)
    m.key("attention.layer_norm_rms_epsilon", F32, c.float("rms_norm_eps", 1e-6))
    m.key("attention.sliding_window_pattern", ARR, (BOOL, [i not in whole for i in range(L)]))
    m.key("attention.kv_of", ARR, (U32, of))
    m.key("rope.freq_base", F32, theta)
    ck.rename()
    m.add("token_embd.weight", (V + M, E), ck.need("model.embed_tokens.weight", V, E).rows,
          ck.need("model.memory_tokens", M, E).rows)
    m.take("output_norm.weight", "model.final_layernorm.weight", E)
    if c.get("tie_word_embeddings") is not True:
        m.take("output.weight", "lm_head.weight", V, E)
    for i in range(L):
        b, p = f"blk.{i}.", f"model.layers.{i}."
        sizes = [("attn_q", E)] + [("attn_k", kv * dk), ("attn_v", kv * dv)] * (of[i] == i) + [("ssm_in", 2 * D)]
        t = ck.need(p + "mamba.in_proj.weight", sum(s for _, s in sizes), E)
        at = 0
        for name, s in sizes:
            m.add(f"{b}{name}.weight", (s, E), lambda t=t, a=at, s=s: t.rows(a, a + s))
            at += s
        m.take(b + "attn_norm.weight", p + "input_layernorm.weight", E)
        m.take(b + "ffn_norm.weight", p + "pre_moe_layernorm.weight", E)
        m.mlp(b, p + "moe.experts.0.", F, E)
        p += "mamba."
        m.take(b + "ssm_conv1d.weight", p + "conv1d.weight", D, k, f32=True)
        m.take(b + "ssm_conv1d.bias", p + "conv1d.bias", D)
        m.take(b + "ssm_x.weight", p + "x_proj.0.weight", R + 2 * N, D)
        m.take(b + "ssm_dt.weight", p + "dt_proj.0.weight", D, R)
        m.take(b + "ssm_dt.bias", p + "dt_proj.0.bias", D)
        m.make(b + "ssm_a", p + "A_log.0", (D, N), minus_exp, f32=True)
        m.take(b + "ssm_d", p + "D.0", D)
        for to, name, s in (("ssm_dt_norm", "dt_layernorm", R), ("ssm_b_norm", "B_layernorm", N),
                            ("ssm_c_norm", "C_layernorm", N), ("attn_output_norm", "pre_avg_layernorm1", D),
                            ("ssm_norm", "pre_avg_layernorm2", D)):
            m.take(f"{b}{to}.weight", f"{p}{name}.weight", s)
        m.take(b + "attn_output.weight", p + "out_proj.weight", E, D)
    return [r"lm_head\."] if c.get("tie_word_embeddings") is True else []


def bailingmoe3(c, ck, m):
    E, L, V = c.int("hidden_size"), c.int("num_hidden_layers", most=LAYERS), c.int("vocab_size", most=VOCAB)
    n, d, F = c.int("num_attention_heads"), c.int("head_dim"), c.int("intermediate_size")
    X, ff, k = c.int("num_experts", "num_local_experts"), c.int("moe_intermediate_size"), c.int("short_conv_kernel_size")
    r, rope, nope, v = (c.int(x) for x in ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"))
    rq, dense = c.int("q_lora_rank", default=0, least=0), c.int("first_k_dense_replace", least=0)
    shared = c.int("num_shared_experts", "n_shared_experts", most=64)
    fs = c.int("moe_shared_expert_intermediate_size", default=ff) * shared
    for value, *keys in ((True, "kda_safe_gate"), (True, "no_kda_lora"), ("sigmoid", "score_function"), ("silu", "hidden_act"),
                         (True, "norm_topk_prob", "moe_renormalize"), (False, "attention_bias"), (None, "mlp_layer_types"),
                         ("head_wise", "gated_attention_proj_granularity_type")):
        c.only(value, *keys)
    for key, x in c.d.items():  # limits of activations, which nobody has tested
        if re.search("clamp|swiglu|_limit", key) and x and x != [0] * (len(x) if isinstance(x, list) else 0):
            c.bad(key, "limits of activations are not converted")
    bound = c.float("kda_lower_bound")
    ck.rename((r"^model\.word_embeddings\.", "model.embed_tokens."), (r"\.attention\.", ".self_attn."),
              (r"\.forget_gate\.", "."), (r"\.self_attn\.dense\.", ".self_attn.o_proj."),
              (r"\.gate\.expert_bias$", ".gate.e_score_correction_bias"))
    mla = [ck.has(f"model.layers.{i}.self_attn.kv_b_proj.weight") for i in range(L)]
    theta, _ = c.theta()
    m.ints(block_count=L, context_length=c.int("max_position_embeddings", "model_max_length", most=1 << 30),
           embedding_length=E, feed_forward_length=F, attention__head_count=n, expert_count=X,
           expert_used_count=c.int("num_experts_per_tok", "num_experts_per_token", most=X),
           expert_group_count=c.int("n_group", "num_expert_group", most=X), expert_group_used_count=c.int("topk_group", most=X),
           expert_gating_func=2, vocab_size=V, ssm__conv_kernel=k, kda__head_dim=d, attention__kv_lora_rank=r,
           rope__dimension_count=rope, attention__key_length=r + rope, attention__value_length=v,
           attention__key_length_mla=nope + rope, attention__value_length_mla=v, expert_feed_forward_length=ff,
           expert_shared_feed_forward_length=fs, expert_shared_count=shared, leading_dense_block_count=dense)
    if rq:
        m.ints(attention__q_lora_rank=rq)
    m.key("attention.head_count_kv", ARR, (I32, [int(x) for x in mla]))
    for key, x in (("rope.freq_base", theta), ("attention.layer_norm_rms_epsilon", c.float("rms_norm_eps", 1e-6)),
                   ("kda.gate_lower_bound", bound), ("expert_weights_scale", c.float("routed_scaling_factor"))):
        m.key(key, F32, x)
    m.key("kda.safe_gate", BOOL, True)
    m.key("expert_weights_norm", BOOL, True)
    m.take("token_embd.weight", "model.embed_tokens.weight", V, E)
    m.take("output_norm.weight", "model.norm.weight", E)
    if c.get("tie_word_embeddings") is not True:
        m.take("output.weight", "lm_head.weight", V, E)
    for i in range(L):
        b, p = f"blk.{i}.", f"model.layers.{i}."
        m.take(b + "attn_norm.weight", p + "input_layernorm.weight", E)
        m.take(b + "ffn_norm.weight", p + "post_attention_layernorm.weight", E)
        a, f = p + "self_attn.", p + "mlp."
        if i < dense:
            m.mlp(b, f, F, E)
        else:
            m.take(b + "ffn_gate_inp.weight", f + "gate.weight", X, E, f32=True)
            m.take(b + "exp_probs_b.bias", f + "gate.e_score_correction_bias", X)
            m.experts(b, f, X, ff, E)
            m.mlp(b, f + "shared_experts.", fs, E, "_shexp")
        if mla[i]:
            q = n * (nope + rope)
            if rq:
                m.take(b + "attn_q_a.weight", a + "q_a_proj.weight", rq, E)
                m.take(b + "attn_q_a_norm.weight", a + "q_a_layernorm.weight", rq)
                m.take(b + "attn_q_b.weight", a + "q_b_proj.weight", q, rq)
            else:
                m.take(b + "attn_q.weight", a + "q_proj.weight", q, E)
            m.take(b + "attn_kv_a_mqa.weight", a + "kv_a_proj_with_mqa.weight", r + rope, E)
            m.take(b + "attn_kv_a_norm.weight", a + "kv_a_layernorm.weight", r)
            t = (n, nope + v, r)
            kv = ck.need(a + "kv_b_proj.weight", n * (nope + v), r)
            m.add(b + "attn_k_b.weight", (n, r, nope), lambda kv=kv, t=t: [kv.all().reshape(t)[:, :nope].transpose(0, 2, 1)])
            m.add(b + "attn_v_b.weight", (n, v, r), lambda kv=kv, t=t: [kv.all().reshape(t)[:, nope:]])
            m.take(b + "attn_gate.weight", a + "g_proj.weight", n, E)
            m.take(b + "attn_output.weight", a + "o_proj.weight", E, n * v)
            continue
        for x in "qkv":
            m.take(f"{b}attn_{x}.weight", f"{a}{x}_proj.weight", n * d, E)
            m.take(f"{b}ssm_conv1d_{x}.weight", f"{a}{x}_conv1d.weight", n * d, k, f32=True, out=(1, n * d, 1, k))
        m.take(b + "ssm_f_a.weight", a + "f_proj.weight", n * d, E)
        m.take(b + "ssm_g_a.weight", a + "g_proj.weight", n * d, E)
        m.take(b + "ssm_beta.weight", a + "b_proj.weight", n, E)
        m.make(b + "ssm_a", a + "A_log", (n,), lambda t: np.exp(t.floats()), f32=True, out=(n, 1))
        m.take(b + "ssm_dt.bias", a + "dt_bias", n * d)
        m.take(b + "ssm_norm.weight", a + "o_norm.weight", d)
        m.take(b + "attn_output.weight", a + "o_proj.weight", E, n * d)
    mtp = c.int("num_nextn_predict_layers", "num_mtp_layers", least=0, most=64, default=0)
    return [rf"model\.layers\.{L + i}\." for i in range(mtp)]


def primes(base, n):
    """The n smallest primes from base on."""
    found = []
    while len(found) < n:
        if base > 1 and all(base % i for i in range(2, math.isqrt(base) + 1)):
            found.append(base)
        base += 1
    return found


def multipliers(seed, vocab, n):
    """Odd numbers that hash tokens: SplitMix64 of the seed and the place, below 2^63 / vocab."""
    mask, out = (1 << 64) - 1, []
    for i in range(n):
        x = seed + 0x9E3779B97F4A7C15 * (i + 2) & mask
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & mask
        x = (x ^ x >> 27) * 0x94D049BB133111EB & mask
        out.append(2 * ((x ^ x >> 31) % max(1, ((1 << 63) - 1) // vocab // 2)) + 1)
    return out


def qwen4exp(c, ck, m):
    E, L, V = c.int("hidden_size"), c.int("num_hidden_layers", most=LAYERS), c.int("vocab_size", most=VOCAB)
    n, kv, d = c.int("num_attention_heads"), c.int("num_key_value_heads"), c.int("head_dim")
    nk, nv, hk, hv, k = (c.int("linear_" + x) for x in
                         ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim", "conv_kernel_dim"))
    X, ff, fs = c.int("num_experts"), c.int("moe_intermediate_size"), c.int("shared_expert_intermediate_size")
    s, r = c.int("hc_count", most=64), c.int("hc_lowrank")
    a, t, budget, ratio = (c.int("indexer_" + x) for x in ("n_heads", "head_dim", "budget", "compress_ratio"))
    for value, key in ((True, "norm_topk_prob"), ("sigmoid", "output_gate_type"), ("silu", "hidden_act"),
                       (False, "attention_bias"), (1, "indexer_kv_heads"), (hk, "linear_value_head_dim")):
        c.only(value, key)
    if c.get("output_gate_type") is None or nv % nk:
        raise Bad("config.json: output_gate_type is missing, or linear_num_value_heads is no multiple of the key heads")
    every = c.int("full_attention_interval", default=4, most=LAYERS)
    if c.get("layer_types") is not None:
        linear = [x == "linear_attention" for x in c.list("layer_types", str, L)]
    else:
        linear = [(i + 1) % every != 0 for i in range(L)]
    theta, rope = c.theta()
    part = c.float("partial_rotary_factor", 1.0) if rope.get("partial_rotary_factor") is None else \
        rope.float("partial_rotary_factor")
    m.ints(block_count=L, context_length=c.int("max_position_embeddings", most=1 << 30), embedding_length=E, vocab_size=V,
           attention__head_count=n, attention__head_count_kv=kv, attention__key_length=d, attention__value_length=d,
           rope__dimension_count=int(d * min(max(part, 0), 1)), expert_count=X,
           expert_used_count=c.int("num_experts_per_tok", most=X), expert_feed_forward_length=ff,
           expert_shared_feed_forward_length=fs, ssm__conv_kernel=k, ssm__state_size=hk, ssm__group_count=nk,
           ssm__time_step_rank=nv, ssm__inner_size=nv * hv, hyper_connection__count=s, hyper_connection__low_rank=r,
           attention__indexer__head_count=a, attention__indexer__key_length=t, attention__indexer__top_k=budget)
    m.key("rope.dimension_sections", ARR, (I32, (rope.list("mrope_section", int, 3) + [0])))
    m.key("rope.freq_base", F32, theta)
    m.key("attention.layer_norm_rms_epsilon", F32, c.float("rms_norm_eps", 1e-6))
    m.key("attention.compress_ratios", ARR, (U32, [0 if x else ratio for x in linear]))
    every = linear.index(False) + 1 if False in linear else 0
    if every and linear == [(i + 1) % every != 0 for i in range(L)]:
        m.ints(full_attention_interval=every)
    else:
        m.key("attention.recurrent_layers", ARR, (BOOL, linear))
    ck.rename((r"^model\.language_model\.", "model."))
    m.take("token_embd.weight", "model.embed_tokens.weight", V, E)
    m.take("output.weight", "model.embed_tokens.weight" if c.get("tie_word_embeddings") is True else "lm_head.weight", V, E)

    def gamma(to, name, width):
        m.make(to, name, (width,), lambda t: t.floats() + np.float32(1))

    def mixer(to, p):
        gamma(to + "_norm.weight", p + "hc_norm.weight", s * E)
        m.take(to + "_down.weight", p + "input_mix_weight_down.weight", r, s * E)
        m.take(to + "_up.weight", p + "input_mix_weight_up.weight", s * E, r)

    def tiled(to, name, shape, width, skip=0, axis=0, **more):
        """Value heads in the file: the first ones of all key heads, then the second ones."""
        def order(t):
            x = np.moveaxis(t.all(), axis, 0)
            heads = x[skip:].reshape(nk, nv // nk, width, *x.shape[1:]).swapaxes(0, 1).reshape(x[skip:].shape)
            return np.moveaxis(np.concatenate((x[:skip], heads)), 0, axis)
        m.make(to, name, shape, order, **more)

    for i in range(L):
        b, p = f"blk.{i}.", f"model.layers.{i}."
        for x, name in (("attn", "attn"), ("ffn", "mlp")):
            mixer(f"{b}hc_{x}", f"{p}{name}_hyper_connection.")
            m.take(f"{b}hc_{x}_inject.weight", f"{p}{name}_hyper_connection.block_inject_weight.weight", s, s * E)
        f = p + "mlp."
        m.take(b + "ffn_gate_inp.weight", f + "gate.weight", X, E, f32=True)
        m.experts(b, f, X, ff, E)
        m.take(b + "ffn_gate_inp_shexp.weight", f + "shared_expert_gate.weight", 1, E, f32=True)
        m.mlp(b, f + "shared_expert.", fs, E, "_shexp")
        if linear[i]:
            p, qk = p + "linear_attn.", 2 * nk * hk
            tiled(b + "attn_qkv.weight", p + "in_proj_qkv.weight", (qk + nv * hv, E), hv, qk)
            tiled(b + "attn_gate.weight", p + "in_proj_z.weight", (nv * hv, E), hv)
            tiled(b + "ssm_conv1d.weight", p + "conv1d.weight", (qk + nv * hv, k), hv, qk, f32=True)
            tiled(b + "ssm_beta.weight", p + "in_proj_b.weight", (nv, E), 1)
            tiled(b + "ssm_alpha.weight", p + "in_proj_a.weight", (nv, E), 1)
            tiled(b + "ssm_dt.bias", p + "dt_bias", (nv,), 1)
            m.make(b + "ssm_a", p + "A_log", (nv,), lambda t: minus_exp(t).reshape(nk, -1).T)
            m.take(b + "ssm_norm.weight", p + "norm.weight", hv)
            tiled(b + "ssm_out.weight", p + "out_proj.weight", (E, nv * hv), hv, axis=1)
        else:
            p += "self_attn."
            for x, rows in (("q", 2 * n * d), ("k", kv * d), ("v", kv * d)):
                m.take(f"{b}attn_{x}.weight", f"{p}{x}_proj.weight", rows, E)
            m.take(b + "attn_output.weight", p + "o_proj.weight", E, n * d)
            qk = ck.need(p + "indexer.index_qk_proj.weight", (a + 1) * t, E)
            m.add(b + "indexer.q_proj.weight", (a * t, E), lambda qk=qk: qk.rows(0, a * t))
            m.add(b + "indexer.k_proj.weight", (t, E), lambda qk=qk: qk.rows(a * t))
            for x in "qk":
                gamma(f"{b}attn_{x}_norm.weight", f"{p}{x}_norm.weight", d)
                gamma(f"{b}indexer.{x}_norm.weight", f"{p}indexer.{x}_layernorm.weight", t)
    mixer("output_hc", "model.hyper_connection_mixer.")
    if c.get("ple_layer_ids"):
        table(c, ck, m, gamma, E, L, V, s)
    return [r"mtp\.", r"model\.visual\."]


def table(c, ck, m, gamma, E, L, V, streams):
    """The table of n-grams, and the layer that reads it."""
    layers = c.list("ple_layer_ids", int)
    if len(layers) != 1 or not 1 <= layers[0] <= L:
        c.bad("ple_layer_ids", "not one layer")
    g, per, k = c.int("ngram_size", least=2, most=16), c.int("heads_per_ngram", most=256), c.int("ple_conv_kernel_size")
    heads = (g - 1) * per
    c.only(E, "ple_embed_dim")
    if E % heads:
        c.bad("heads_per_ngram", "does not divide hidden_size")
    sizes = primes(c.int("ngram_vocab_size_base", most=1 << 31), heads)
    offsets = [sum(sizes[:i]) for i in range(heads)]
    hashes = multipliers(c.int("seed", least=0, most=1 << 62, default=1234), V, g)
    eos = c.get("eos_token_id")
    eos = eos[0] if isinstance(eos, list) and eos else eos
    if not count(eos, 0, V - 1):
        c.bad("eos_token_id", "not a token")
    e, b = f"model.layers.{layers[0] - 1}.ple.", f"blk.{layers[0] - 1}."
    n = e + "ple_embedding."
    for name, want in (("layer_multipliers", hashes), ("ngram_heads_vocab_sizes", sizes), ("ngram_heads_offsets", offsets)):
        if ck.has(n + name) and ck.need(n + name, len(want), kinds=("I64",)).read().tolist() != want:
            raise Bad(f"tensor {n}{name} does not follow from config.json")
    shards = [n + "ngram_embedding.weight"]
    if not ck.has(shards[0]):
        shards = [f"{n}ngram_embedding.shard_{i}.weight" for i in range(c.int("split_ngram_parts", most=1 << 16))]
    parts = []
    for name in shards:
        rows = ck.renamed[name].shape[0] if ck.has(name) and ck.renamed[name].shape else 0
        parts.append(ck.need(name, rows, E // heads))
    rows = sum(t.shape[0] for t in parts)
    if rows < sum(sizes):
        raise Bad(f"the table of n-grams has {rows} rows, not {sum(sizes)}")
    m.add("per_layer_token_embd.weight", (rows, E // heads), *(t.rows for t in parts))
    m.ints(ple__ngram_size=g, ple__heads_per_ngram=per, ple__conv_kernel=k, ple__eos_token_id=eos,
           embedding_length_per_layer_input=E // heads)
    m.key("ple.layers", ARR, (U32, [layers[0] - 1]))
    m.key("ple.layer_multipliers", ARR, (U64, hashes))
    m.key("ple.head_offsets", ARR, (U64, offsets))
    m.key("ple.head_vocab_sizes", ARR, (U64, sizes))
    m.take(b + "ple_key.weight", e + "key_proj.weight", streams * E, E)
    m.take(b + "ple_value.weight", e + "value_proj.weight", E, E)
    for x in ("key", "query", "conv"):
        gamma(f"{b}ple_norm_{x}.weight", f"{e}norm_{x}.weight", streams * E)
    m.take(b + "ple_conv1d.weight", e + "conv1d.weight", streams * E, k, f32=True)


# What tokenizer.json says of words, without possessive signs, and chimere's name of it.
TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
PRE = {WORDS + r"|\p{N}" + TAIL: "qwen2", WORDS + r"|\p{N}{1,3}" + TAIL: "llama-bpe",
       WORDS.replace(r"\p{L}+", r"[\p{L}\p{M}]+") + r"|\p{N}" + TAIL.replace(r"\p{L}", r"\p{L}\p{M}"): "qwen35",
       r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + TAIL.replace("]+|\\s+(", "]|\\s+("): "bailingmoe2"}


def words(pre):
    """The name of the pre-tokenizer; None: it is unknown."""
    steps = pre.get("pretokenizers", [pre]) if isinstance(pre, dict) else []
    if not isinstance(steps, list) or not all(isinstance(x, dict) for x in steps):
        return None
    kinds = [x.get("type") for x in steps]
    if kinds == ["ByteLevel"] and steps[0].get("use_regex", True) is True:
        return "gpt-2"
    if kinds != ["Split", "ByteLevel"] or not isinstance(steps[0].get("pattern"), dict):
        return None
    text = steps[0]["pattern"].get("Regex")
    return PRE.get(text.replace("++", "+").replace("?+", "?")) if isinstance(text, str) else None


def tokenizer(directory, vocab, pre, config):
    def optional(name):
        path = os.path.join(directory, name)
        return parse(read_text(path), path) if os.path.exists(path) else {}
    path = os.path.join(directory, "tokenizer.json")
    d = parse(read_text(path), path)
    model, added = d.get("model"), d.get("added_tokens") or []
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict) or not isinstance(model.get("merges"), list) \
            or not isinstance(added, list):
        raise Bad(f"{path}: not BPE: no vocabulary, merges and added tokens")
    tokens, types = [None] * vocab, [5] * vocab
    pairs = [(text, i, 1) for text, i in model["vocab"].items()]
    for a in added:
        if not isinstance(a, dict) or not isinstance(a.get("content"), str):
            raise Bad(f"{path}: an added token without its text")
        pairs.append((a["content"], a.get("id"), 3 if a.get("special") else 4))
    for text, i, kind in pairs:
        if not count(i, 0, vocab - 1) or tokens[i] not in (None, text):
            raise Bad(f"{path}: token {text!r} has number {i!r}, which is another's, or not below {vocab}")
        tokens[i], types[i] = text, kind
    merges = [x if isinstance(x, str) else " ".join(x) if isinstance(x, list) and len(x) == 2 and
              all(isinstance(y, str) for y in x) else None for x in model["merges"]]
    if None in merges:
        raise Bad(f"{path}: a merge that is not a pair")
    ids = {text: i for i, text in enumerate(tokens) if text is not None}
    tokens = [f"[PAD{i}]" if text is None else text for i, text in enumerate(tokens)]
    g = "tokenizer.ggml."
    spm = model.get("byte_fallback") is True  # made from SentencePiece's: spaces are U+2581, other bytes <0xNN>
    meta = [(g + "model", STR, "llama" if spm else "gpt2"), (g + "tokens", ARR, (STR, tokens))]
    if spm:
        scores = dict.fromkeys(tokens, -1e9)
        for rank, x in reversed(list(enumerate(merges))):  # the earliest merge that makes a token counts
            scores[x.replace(" ", "")] = float(-rank)
        types = [6 if re.fullmatch("<0x[0-9A-F]{2}>", x) else 2 if x == model.get("unk_token") else kind
                 for x, kind in zip(tokens, types)]
        meta.append((g + "scores", ARR, (F32, [scores[x] for x in tokens])))
    else:
        pre = pre or words(d.get("pre_tokenizer"))
        if pre is None:
            raise Bad(f"{path}: an unknown pre-tokenizer: give its name with --pre")
        meta += [(g + "pre", STR, pre), (g + "merges", ARR, (STR, merges))]
    meta.append((g + "token_type", ARR, (I32, types)))
    said = optional("tokenizer_config.json")
    for name, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"), ("unk", "unknown")):
        text = said.get(name + "_token")
        text = text.get("content") if isinstance(text, dict) else text
        i = ids.get(text) if isinstance(text, str) else config.get(name + "_token_id")
        i = i[0] if isinstance(i, list) and i else i
        if count(i, 0, vocab - 1):
            meta.append((f"{g}{key}_token_id", U32, i))
    meta += [(f"{g}{x}_token", BOOL, said[x + "_token"]) for x in ("add_bos", "add_eos") if type(said.get(x + "_token")) is bool]
    path = os.path.join(directory, "chat_template.jinja")
    template = read_text(path) if os.path.exists(path) else said.get("chat_template")
    if isinstance(template, list):  # several by name
        template = next((x.get("template") for x in template if isinstance(x, dict) and x.get("name") == "default"), None)
    return meta + ([("tokenizer.chat_template", STR, template)] if isinstance(template, str) else [])


def packed(kind, v):
    if kind == STR:
        text = v.encode("utf-8", "replace")
        return struct.pack("<Q", len(text)) + text
    if kind == ARR:
        return struct.pack("<IQ", v[0], len(v[1])) + b"".join(packed(v[0], x) for x in v[1])
    return struct.pack("<" + {U32: "I", I32: "i", F32: "f", BOOL: "?", U64: "Q"}[kind], v)


def write(out, model, meta, kind):
    types = {"f32": (0, 4, 0), "f16": (1, 2, 1), "bf16": (30, 2, 32)}  # type, bytes, general.file_type
    meta = [("general.architecture", STR, model.arch)] + meta + model.meta
    meta += [("general.file_type", U32, types[kind][2]), ("general.quantization_version", U32, 2)]
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(model.tensors), len(meta))
    head += b"".join(packed(STR, k) + struct.pack("<I", t) + packed(t, v) for k, t, v in meta)
    at = 0
    for name, shape, f32, _ in model.tensors:
        t, size, _ = types["f32" if f32 else kind]
        head += packed(STR, name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), t, at)
        at += -(-math.prod(shape) * size // 32) * 32
    fd, part = tempfile.mkstemp(dir=os.path.dirname(out) or ".", prefix=os.path.basename(out) + ".")
    try:
        with os.fdopen(fd, "wb") as f:
            f.write(head + bytes(-len(head) % 32))
            for name, shape, f32, parts in model.tensors:
                n = 0
                for a in (a for p in parts for a in p()):
                    a = encode(a, "f32" if f32 else kind, name)
                    n += a.size
                    f.write(a.tobytes())
                assert n == math.prod(shape), name
                f.write(bytes(-f.tell() % 32))
            f.flush()
            mask = os.umask(0)
            os.umask(mask)
            os.fchmod(fd, 0o666 & ~mask)
            os.fsync(fd)
        os.rename(part, out)
    except BaseException:
        os.unlink(part)
        raise
    d = os.open(os.path.dirname(out) or ".", os.O_RDONLY)
    os.fsync(d)
    os.close(d)


FAMILIES = {"zamba2": zamba2, "hymba": hymba, "bailing_hybrid": bailingmoe3, "qwen4_exp": qwen4exp, "qwen4_exp_text": qwen4exp}


def convert(o):
    if not o.force and os.path.lexists(o.out):
        raise OSError(f"{o.out}: exists (-f replaces it)")
    path = os.path.join(o.directory, "config.json")
    c = parse(read_text(path), path)
    family = c.get("model_type")
    make = FAMILIES.get(family) if isinstance(family, str) else None
    if make is None:
        raise Bad(f"{path}: model_type {family!r} is none of zamba2, hymba, bailing_hybrid and qwen4_exp: "
                  "use convert_hf_to_gguf.py of llama.cpp")
    c = Config(c["text_config"] if isinstance(c.get("text_config"), dict) else c, path)
    if c.get("quantization_config") is not None:
        c.bad("quantization_config", "quantised checkpoints are not converted")
    ck = Checkpoint(o.directory)
    m = Model("qwen4exp" if make is qwen4exp else make.__name__, ck)
    left = ck.left(r".*\.rotary_emb\.inv_freq$", *make(c, ck, m))
    name = os.path.basename(os.path.realpath(o.directory))
    meta = [("general.type", STR, "model"), ("general.name", STR, name)]
    write(o.out, m, meta + tokenizer(o.directory, c.int("vocab_size", most=VOCAB), o.pre, c), o.type)
    if left:
        print(f"convert: {left} tensors were left out: other blocks' copies, vision, multi-token prediction", file=sys.stderr)


class Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(2, f"convert: {message}\n")


def main():
    p = Parser(prog="convert", description="Hugging Face checkpoints of zamba2, hymba, bailing_hybrid and qwen4_exp to GGUF.",
               epilog="Others: convert_hf_to_gguf.py of llama.cpp. See chimere-families(7).")
    p.add_argument("-f", "--force", action="store_true", help="replace OUT if it exists")
    p.add_argument("--type", choices=("bf16", "f16", "f32"), default="bf16", help="type of matrices (bf16)")
    p.add_argument("--pre", help="name of the pre-tokenizer, where tokenizer.json has an unknown one")
    p.add_argument("directory", metavar="DIRECTORY", help="with config.json, tokenizer.json and .safetensors")
    p.add_argument("out", metavar="OUT.gguf")
    for s in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(s, lambda n, _: sys.exit(128 + n))
    status = 1
    try:
        convert(p.parse_args())
        return 0
    except Bad as e:
        status, why = 3, str(e)
    except MemoryError:
        why = "out of memory"
    except OSError as e:
        why = f"{e.filename}: {e.strerror}" if e.filename else str(e)
    print("convert: " + re.sub(r"[^\x20-\x7e\u00a0-\U0010ffff]", "?", why)[:400], file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
