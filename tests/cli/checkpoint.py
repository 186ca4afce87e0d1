#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""checkpoint.py - for convert.bats: a Hugging Face checkpoint out of a GGUF file, and comparisons.

    make MODEL.gguf DIRECTORY    config.json, tokenizer.json and two .safetensors with the same model: the reverse of what
                                 the converter does, written from the formulas of the families. Prints nothing.
                                 Also DIRECTORY.gguf, which should come out.
    same A.gguf B.gguf           metadata and bytes of tensors are equal; -exp(log(x)) may be off by 2^-20
    damage CONVERT DIRECTORY     each kind of damage is one line and status 3, in 2 GiB, and leaves nothing behind
"""
import contextlib
import importlib.util
import io
import json
import math
import os
import resource
import struct
import sys

import numpy as np

FORMATS = {0: "B", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q"}


def load(path):
    """Metadata by key; tensors by name, floats or the two bytes of bf16, views of the file's bytes."""
    data = bytearray(open(path, "rb").read())
    at = 24

    def take(fmt):
        nonlocal at
        at += struct.calcsize("<" + fmt)
        return struct.unpack_from("<" + fmt, data, at - struct.calcsize("<" + fmt))

    def value(kind):
        nonlocal at
        if kind == 9:
            kind, n = take("IQ")
            return [value(kind) for _ in range(n)]
        if kind != 8:
            return take(FORMATS[kind])[0]
        n, = take("Q")
        at += n
        return data[at - n:at].decode()
    n_tensors, n_kv = struct.unpack_from("<QQ", data, 8)
    meta, infos, tensors = {}, [], {}
    for _ in range(n_kv):
        key = value(8)
        meta[key] = value(take("I")[0])
    for _ in range(n_tensors):
        name = value(8)
        infos.append((name, take(f"{take('I')[0]}Q")[::-1], *take("IQ")))
    at += -at % 32
    for name, shape, kind, offset in infos:
        a = np.frombuffer(data, {0: "<f4", 30: "<u2"}[kind], math.prod(shape), at + offset)
        tensors[name] = a.reshape(shape)
    return meta, tensors, data


def floats(a):
    return (a.astype(np.uint32) << 16).view(np.float32) if a.dtype == np.uint16 else a


def store(path, tensors):
    head, blob = {"__metadata__": {"format": "pt"}}, b""
    for name, a in tensors.items():
        a = np.ascontiguousarray(a)
        kind = {"<u2": "BF16", "<f4": "F32", "<i8": "I64"}[a.dtype.str]
        head[name] = {"dtype": kind, "shape": a.shape, "data_offsets": [len(blob), len(blob) + a.nbytes]}
        blob += a.tobytes()
    text = json.dumps(head).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + blob)


def tokenizer(meta, to):
    g = {k[15:]: v for k, v in meta.items() if k.startswith("tokenizer.ggml.")}
    ids = list(zip(g["tokens"], g["token_type"]))
    regex = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
             r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    json.dump({"model": {"type": "BPE", "vocab": {t: i for i, (t, k) in enumerate(ids) if k == 1},
                         "merges": [m.split(" ") for m in g["merges"]]},
               "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                   {"type": "Split", "pattern": {"Regex": regex}}, {"type": "ByteLevel", "use_regex": False}]},
               "added_tokens": [{"id": i, "content": t, "special": k == 3} for i, (t, k) in enumerate(ids) if k in (3, 4)]},
              open(to + "/tokenizer.json", "w"))
    token = {f"{n}_token": g["tokens"][g[f"{k}_token_id"]] for n, k in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"))
             if f"{k}_token_id" in g}
    json.dump({**token, **({"add_bos_token": g["add_bos_token"]} if "add_bos_token" in g else {}), "chat_template": "{{ messages[0]['content'] }}"},
              open(to + "/tokenizer_config.json", "w"))


def zamba2(h, t, out):
    """One block for all layers: what differs between them is in the adapters, of full rank."""
    E, n, F = h["embedding_length"], h["attention.head_count"], h["feed_forward_length"]
    kinds = ["hybrid" if x else "mamba" for x in h["attention.head_count_kv"]]
    uses = [i for i, x in enumerate(kinds) if x == "hybrid"]
    block = f"model.layers.{uses[0]}.shared_transformer."
    for i, kind in enumerate(kinds):
        b, p = f"blk.{i}.", f"model.layers.{i}."
        if kind == "hybrid":
            out[p + "linear.weight"] = t[b + "ssm_mix.weight"]
            for x, name in (("attn_output", "self_attn.o_proj"), ("ffn_down", "feed_forward.down_proj"),
                            ("ffn_norm", "pre_ff_layernorm"), ("post_attention_norm", "input_layernorm")):
                t[f"{b}{x}.weight"][:] = out.setdefault(f"{block}{name}.weight", t[f"{b}{x}.weight"])
            for x, name, adapter in (("attn_q", "self_attn.q_proj", "self_attn.linear_q_adapter_list"),
                                     ("attn_k", "self_attn.k_proj", "self_attn.linear_k_adapter_list"),
                                     ("attn_v", "self_attn.v_proj", "self_attn.linear_v_adapter_list"),
                                     ("ffn_up", "feed_forward.gate_up_proj", "feed_forward.gate_up_proj_adapter_list")):
                w = floats(t[f"{b}{x}.weight"])
                shared = out.setdefault(f"{block}{name}.weight", w + np.float32(0.5))
                use = f"{block}{adapter}.{uses.index(i)}."
                out[use + "0.weight"] = np.eye(2 * E, w.shape[1], dtype="<f4")
                out[use + "1.weight"] = np.pad(w - shared, ((0, 0), (0, 2 * E - w.shape[1])))
            p += "mamba_decoder."
        out[p + "input_layernorm.weight"] = t[b + "attn_norm.weight"]
        for x, name in (("ssm_in.weight", "in_proj.weight"), ("ssm_conv1d.bias", "conv1d.bias"), ("ssm_dt.bias", "dt_bias"),
                        ("ssm_out.weight", "out_proj.weight")):
            out[f"{p}mamba.{name}"] = t[b + x]
        out[p + "mamba.conv1d.weight"] = t[b + "ssm_conv1d.weight"][:, None]
        out[p + "mamba.A_log"] = np.log(-t[b + "ssm_a"].ravel())
        out[p + "mamba.D"] = t[b + "ssm_d"].ravel()
        out[p + "mamba.norm.weight"] = t[b + "ssm_norm.weight"].ravel()
    out["model.final_layernorm.weight"] = t["output_norm.weight"]
    out["model.embed_tokens.weight"] = t["token_embd.weight"]
    return {"model_type": "zamba2", "layers_block_type": kinds, "num_mem_blocks": 1, "adapter_rank": 2 * E,
            "use_shared_attention_adapter": True, "use_mem_rope": True, "rope_theta": h["rope.freq_base"],
            "mamba_ngroups": h["ssm.group_count"], "mamba_d_state": h["ssm.state_size"], "mamba_d_conv": 4,
            "n_mamba_heads": h["ssm.time_step_rank"], "num_key_value_heads": n, "tie_word_embeddings": True}


def hymba(h, t, out):
    V, of, L = h["vocab_size"], h["attention.kv_of"], h["block_count"]
    out["model.embed_tokens.weight"], out["model.memory_tokens"] = np.split(t["token_embd.weight"], [V])
    out["model.final_layernorm.weight"] = t["output_norm.weight"]
    for i in range(L):
        b, p = f"blk.{i}.", f"model.layers.{i}."
        own = ("attn_q", "attn_k", "attn_v", "ssm_in") if of[i] == i else ("attn_q", "ssm_in")
        out[p + "mamba.in_proj.weight"] = np.concatenate([t[f"{b}{x}.weight"] for x in own])
        out[p + "input_layernorm.weight"] = t[b + "attn_norm.weight"]
        out[p + "pre_moe_layernorm.weight"] = t[b + "ffn_norm.weight"]
        for x in ("gate", "up", "down"):
            out[f"{p}moe.experts.0.{x}_proj.weight"] = t[f"{b}ffn_{x}.weight"]
        p += "mamba."
        for x, name in (("ssm_conv1d.bias", "conv1d.bias"), ("ssm_x.weight", "x_proj.0.weight"), ("ssm_d", "D.0"),
                        ("ssm_dt.weight", "dt_proj.0.weight"), ("ssm_dt.bias", "dt_proj.0.bias"),
                        ("ssm_dt_norm.weight", "dt_layernorm.weight"), ("ssm_b_norm.weight", "B_layernorm.weight"),
                        ("ssm_c_norm.weight", "C_layernorm.weight"), ("attn_output_norm.weight", "pre_avg_layernorm1.weight"),
                        ("ssm_norm.weight", "pre_avg_layernorm2.weight"), ("attn_output.weight", "out_proj.weight")):
            out[p + name] = t[b + x]
        out[p + "conv1d.weight"] = t[b + "ssm_conv1d.weight"][:, None]
        out[p + "A_log.0"] = np.log(-t[b + "ssm_a"])
    groups = [[i] + [j for j in range(L) if j > i and of[j] == i] for i in range(L)]
    return {"model_type": "hymba", "num_key_value_heads": h["attention.head_count_kv"], "num_memory_tokens": h["meta_token_count"],
            "mamba_d_state": h["ssm.state_size"], "mamba_dt_rank": h["ssm.time_step_rank"], "mamba_d_conv": 4,
            "sliding_window": h["attention.sliding_window"], "kv_reuse_group": [g for g in groups if len(g) > 1],
            "global_attn_idx": [i for i, x in enumerate(h["attention.sliding_window_pattern"]) if not x],
            "rope_type": "default", "rope_theta": h["rope.freq_base"], "tie_word_embeddings": True}


def experts(t, b, m, out):
    for x in ("gate", "up", "down"):
        for e, w in enumerate(t[f"{b}ffn_{x}_exps.weight"]):
            out[f"{m}experts.{e}.{x}_proj.weight"] = w


def bailingmoe3(h, t, out):
    plain = {"attn_norm.weight": "input_layernorm.weight", "ffn_norm.weight": "post_attention_layernorm.weight",
             "ffn_gate_inp.weight": "mlp.gate.weight", "exp_probs_b.bias": "mlp.gate.expert_bias", "attn_q": "q_proj",
             "attn_output": "dense", "attn_k": "k_proj", "attn_v": "v_proj", "ssm_f_a": "f_proj", "ssm_g_a": "g_proj",
             "ssm_beta": "b_proj", "ssm_norm": "o_norm", "attn_q_a": "q_a_proj", "attn_q_a_norm": "q_a_layernorm",
             "attn_q_b": "q_b_proj", "attn_kv_a_mqa": "kv_a_proj_with_mqa", "attn_kv_a_norm": "kv_a_layernorm",
             "attn_gate": "g_proj", "ssm_dt.bias": "attention.dt_bias"}
    for name, a in t.items():
        if not name.startswith("blk."):
            continue
        _, i, x = name.split(".", 2)
        p, stem = f"model.layers.{i}.", x[:-7]
        if x in plain:
            out[p + plain[x]] = a
        elif stem in plain:
            out[f"{p}attention.{plain[stem]}.weight"] = a
        elif x == "ssm_a":
            out[p + "attention.A_log"] = np.log(a.ravel())
        elif "conv1d" in x:
            out[f"{p}attention.{stem[-1]}_conv1d.weight"] = a.reshape(-1, 1, a.shape[-1])
        elif stem.endswith("_shexp"):
            out[f"{p}mlp.shared_experts.{stem[4:-6]}_proj.weight"] = a
        elif stem in ("ffn_gate", "ffn_up", "ffn_down"):
            out[f"{p}mlp.{stem[4:]}_proj.weight"] = a
        elif x == "attn_k_b.weight":
            both = np.concatenate((a.transpose(0, 2, 1), t[f"blk.{i}.attn_v_b.weight"]), 1)
            out[p + "attention.kv_b_proj.weight"] = both.reshape(-1, both.shape[2])
        elif x == "ffn_up_exps.weight":
            experts(t, f"blk.{i}.", p + "mlp.", out)
    out["model.word_embeddings.weight"], out["model.norm.weight"] = t["token_embd.weight"], t["output_norm.weight"]
    out["lm_head.weight"] = t["output.weight"]
    out[f"model.layers.{h['block_count']}.eh_proj.weight"] = t["output.weight"]  # a block that is left out
    nope = h["attention.key_length_mla"] - h["rope.dimension_count"]
    return {"model_type": "bailing_hybrid", "head_dim": h["kda.head_dim"], "num_experts": h["expert_count"],
            "moe_intermediate_size": h["expert_feed_forward_length"], "short_conv_kernel_size": h["ssm.conv_kernel"],
            "kv_lora_rank": h["attention.kv_lora_rank"], "qk_rope_head_dim": h["rope.dimension_count"],
            "qk_nope_head_dim": nope, "v_head_dim": h["attention.value_length_mla"], "num_experts_per_tok": h["expert_used_count"],
            "q_lora_rank": h["attention.q_lora_rank"], "first_k_dense_replace": h["leading_dense_block_count"],
            "num_shared_experts": 1, "kda_lower_bound": h["kda.gate_lower_bound"], "n_group": h["expert_group_count"],
            "topk_group": h["expert_group_used_count"], "routed_scaling_factor": h["expert_weights_scale"],
            "rope_theta": h["rope.freq_base"], "num_nextn_predict_layers": 1}


def qwen4exp(h, t, out):
    nk, nv, d = h["ssm.group_count"], h["ssm.time_step_rank"], h["ssm.state_size"]

    def grouped(a, width, skip=0):
        v = a[skip:].reshape(nv // nk, nk, width, *a.shape[1:]).swapaxes(0, 1)
        return np.concatenate((a[:skip], v.reshape(a[skip:].shape)))

    def mixer(to, name):
        for x, y in (("down", "input_mix_weight_down"), ("up", "input_mix_weight_up"), ("inject", "block_inject_weight")):
            if f"{name}_{x}.weight" in t:
                out[f"{to}{y}.weight"] = t[f"{name}_{x}.weight"]
        out[to + "hc_norm.weight"] = t[name + "_norm.weight"] - 1
    for i in range(h["block_count"]):
        b, p = f"blk.{i}.", f"model.language_model.layers.{i}."
        mixer(p + "attn_hyper_connection.", b + "hc_attn")
        mixer(p + "mlp_hyper_connection.", b + "hc_ffn")
        out[p + "mlp.gate.weight"] = t[b + "ffn_gate_inp.weight"]
        out[p + "mlp.shared_expert_gate.weight"] = t[b + "ffn_gate_inp_shexp.weight"]
        for x in ("gate", "up", "down"):
            out[f"{p}mlp.shared_expert.{x}_proj.weight"] = t[f"{b}ffn_{x}_shexp.weight"]
        if i % 2:
            experts(t, b, p + "mlp.", out)
        else:
            out[p + "mlp.experts.gate_up_proj"] = np.concatenate([t[f"{b}ffn_{x}_exps.weight"] for x in ("gate", "up")], 1)
            out[p + "mlp.experts.down_proj"] = t[b + "ffn_down_exps.weight"]
        if b + "attn_qkv.weight" in t:
            n = p + "linear_attn."
            out[n + "in_proj_qkv.weight"] = grouped(t[b + "attn_qkv.weight"], d, 2 * nk * d)
            out[n + "conv1d.weight"] = grouped(t[b + "ssm_conv1d.weight"], d, 2 * nk * d)[:, None]
            out[n + "in_proj_z.weight"] = grouped(t[b + "attn_gate.weight"], d)
            out[n + "in_proj_a.weight"] = grouped(t[b + "ssm_alpha.weight"], 1)
            out[n + "in_proj_b.weight"] = grouped(t[b + "ssm_beta.weight"], 1)
            out[n + "dt_bias"] = grouped(t[b + "ssm_dt.bias"], 1)
            out[n + "A_log"] = np.log(-grouped(t[b + "ssm_a"], 1))
            out[n + "norm.weight"] = t[b + "ssm_norm.weight"]
            out[n + "out_proj.weight"] = grouped(t[b + "ssm_out.weight"].T, d).T
            continue
        n = p + "self_attn."
        for x in "qkv":
            out[f"{n}{x}_proj.weight"] = t[f"{b}attn_{x}.weight"]
        out[n + "o_proj.weight"] = t[b + "attn_output.weight"]
        for x in "qk":
            out[f"{n}{x}_norm.weight"] = t[f"{b}attn_{x}_norm.weight"] - 1
            out[f"{n}indexer.{x}_layernorm.weight"] = t[f"{b}indexer.{x}_norm.weight"] - 1
        out[n + "indexer.index_qk_proj.weight"] = np.concatenate([t[f"{b}indexer.{x}_proj.weight"] for x in "qk"])
    mixer("model.language_model.hyper_connection_mixer.", "output_hc")
    out["model.language_model.embed_tokens.weight"], out["lm_head.weight"] = t["token_embd.weight"], t["output.weight"]
    layer = h["ple.layers"][0]
    n, b = f"model.language_model.layers.{layer}.ple.", f"blk.{layer}.ple_"
    for x in ("key", "value"):
        out[f"{n}{x}_proj.weight"] = t[f"{b}{x}.weight"]
    for x in ("key", "query", "conv"):
        out[f"{n}norm_{x}.weight"] = t[f"{b}norm_{x}.weight"] - 1
    out[n + "conv1d.weight"] = t[b + "conv1d.weight"][:, None]
    for i, part in enumerate(np.array_split(t["per_layer_token_embd.weight"], 11)):
        out[f"{n}ple_embedding.ngram_embedding.shard_{i}.weight"] = part
    out[n + "ple_embedding.layer_multipliers"] = np.array(h["ple.layer_multipliers"], "<i8")
    out["mtp.fc.weight"] = out["model.visual.patch"] = t["output.weight"]
    every = h["full_attention_interval"]
    text = {"model_type": "qwen4_exp_text", "num_key_value_heads": h["attention.head_count_kv"],
            "head_dim": h["attention.key_length"], "linear_num_key_heads": nk, "linear_num_value_heads": nv,
            "linear_key_head_dim": d, "linear_value_head_dim": d, "linear_conv_kernel_dim": h["ssm.conv_kernel"],
            "num_experts": h["expert_count"], "num_experts_per_tok": h["expert_used_count"],
            "moe_intermediate_size": h["expert_feed_forward_length"],
            "shared_expert_intermediate_size": h["expert_shared_feed_forward_length"], "hc_count": h["hyper_connection.count"],
            "hc_lowrank": h["hyper_connection.low_rank"], "indexer_n_heads": h["attention.indexer.head_count"],
            "indexer_kv_heads": 1, "indexer_head_dim": h["attention.indexer.key_length"],
            "indexer_budget": h["attention.indexer.top_k"], "indexer_compress_ratio": max(h["attention.compress_ratios"]),
            "output_gate_type": "sigmoid", "ple_layer_ids": [layer + 1], "ngram_size": h["ple.ngram_size"],
            "heads_per_ngram": h["ple.heads_per_ngram"], "ple_conv_kernel_size": h["ple.conv_kernel"], "seed": 1234,
            "ngram_vocab_size_base": h["ple.head_vocab_sizes"][0], "split_ngram_parts": 11,
            "eos_token_id": [h["ple.eos_token_id"], 0], "layer_types": ["linear_attention" if (i + 1) % every else
                                                                         "full_attention" for i in range(h["block_count"])],
            "rope_parameters": {"rope_theta": h["rope.freq_base"], "partial_rotary_factor": 0.25,
                                "mrope_section": h["rope.dimension_sections"][:3]}}
    return {"model_type": "qwen4_exp", "text_config": text}


def make(model, to):
    meta, t, data = load(model)
    arch, out = meta["general.architecture"], {}
    h = {k.split(".", 1)[1]: v for k, v in meta.items() if k.startswith(arch + ".")}
    config = globals()[arch](h, t, out)
    text = config.get("text_config", config)
    text.update(hidden_size=h["embedding_length"], num_hidden_layers=h["block_count"], vocab_size=h["vocab_size"],
                num_attention_heads=h["attention.head_count"], intermediate_size=h.get("feed_forward_length", 1),
                max_position_embeddings=h["context_length"], rms_norm_eps=h["attention.layer_norm_rms_epsilon"])
    os.mkdir(to)
    json.dump(config, open(to + "/config.json", "w"))
    tokenizer(meta, to)
    where = {n: f"model-{1 + i % 2}.safetensors" for i, n in enumerate(out)}
    for f in set(where.values()):
        store(f"{to}/{f}", {n: a for n, a in out.items() if where[n] == f})
    json.dump({"weight_map": where}, open(to + "/model.safetensors.index.json", "w"))
    with open(to + ".gguf", "wb") as f:
        f.write(data)


def same(a, b):
    (meta_a, a, _), (meta_b, b, _) = load(a), load(b)
    for key in set(meta_a) | set(meta_b):
        if key not in ("general.name", "general.file_type", "tokenizer.chat_template", "general.quantization_version"):
            x, y = meta_a.get(key), meta_b.get(key)
            assert x == y or (key.endswith("expert_shared_feed_forward_length") and x is None), f"{key}: {x} {y}"
    assert meta_b["tokenizer.chat_template"] == "{{ messages[0]['content'] }}"
    assert set(a) == set(b), set(a) ^ set(b)
    for name in a:
        assert a[name].shape == b[name].shape and a[name].dtype == b[name].dtype, (name, a[name].shape, b[name].shape)
        if name.endswith("ssm_a"):
            assert (np.abs(a[name] / b[name] - 1) < 2 ** -20).all(), name
        else:
            assert a[name].tobytes() == b[name].tobytes(), name


def damage(convert, to):
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
    sys.dont_write_bytecode = True
    spec = importlib.util.spec_from_file_location("convert", convert)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    one, index, config = (f"{to}/{x}" for x in ("model-1.safetensors", "model.safetensors.index.json", "config.json"))
    data = open(one, "rb").read()
    n = int.from_bytes(data[:8], "little")
    head = json.loads(data[8:8 + n])
    a, b, c = (x for x in list(head)[1:4])

    def header(**tensors):  # members of the header's tensors, replaced
        text = json.dumps({k: {**v, **tensors.get(k, {})} for k, v in head.items()}).encode()
        return one, struct.pack("<Q", len(text)) + text + data[8 + n:]

    def edited(path, **members):
        return path, json.dumps({**json.load(open(path)), **members}).encode()
    last = len(data) - 8 - n
    span = head[a]["data_offsets"]
    cases = {
        "a header of 9223372036854775808 bytes": (one, struct.pack("<Q", 1 << 63) + data[8:]),
        "too short": (one, b"1234"),
        "not JSON": (one, struct.pack("<Q", n - 1) + data[8:]),
        "not JSON: maximum recursion": (one, struct.pack("<Q", 1 << 20) + b"[" * (1 << 20)),
        "header is not UTF-8": (one, struct.pack("<Q", 2) + b"{\xff"),
        "overlap": header(**{b: head[a]}),
        f"bytes {last} to {last + span[1]} of {last}": header(**{a: {"data_offsets": [last, last + span[1]]}}),
        "not a type, a shape and two offsets": header(**{a: {"data_offsets": [-8, span[1] - 8]}}),
        "are not BF16 of shape": header(**{c: {"shape": [1 << 40, 1 << 40], "dtype": "BF16"}}),
        "unknown type 'F3'": header(**{a: {"dtype": "F3"}}),
        "type U16, not one of": header(**{k: {"dtype": "U16"} for k, v in head.items() if v.get("dtype") == "BF16"}),
        "'../model.safetensors' is not the name": (index, b'{"weight_map": {"x": "../model.safetensors"}}'),
        "is not in model-2": (index, open(index, "rb").read().replace(b"model-1", b"model-2", 1)),
        "is missing": (index, b'{"weight_map": {"' + b.encode() + b'": "model-1.safetensors"}}'),
        "config.json: not JSON": (config, b'{"model_type": "zamba2"'),
        "config.json: not a JSON object": (config, b"[]"),
        "num_hidden_layers: not a whole number": edited(config, num_hidden_layers=1e99),
        "layers_block_type: not a list": edited(config, num_hidden_layers=1024),
        "shape [": edited(config, hidden_size=1 << 20),
        "convert_hf_to_gguf.py of llama.cpp": edited(config, model_type="llama"),
        "only \"gelu\" is converted": edited(config, hidden_act="relu"),
        "which is another's, or not below": (to + "/tokenizer.json", b'{"model": {"vocab": {"a": -1}, "merges": []}}'),
        "give its name with --pre": (to + "/tokenizer.json", b'{"model": {"vocab": {"a": 1}, "merges": []}}'),
    }
    for said, (path, text) in cases.items():
        with open(path, "rb") as f:
            before = f.read()
        with open(path, "wb") as f:
            f.write(text)
        sys.argv, err = ["convert", to, to + "/out"], io.StringIO()
        with contextlib.redirect_stderr(err):
            status = program.main()
        assert status == 3 and said in err.getvalue() and err.getvalue().count("\n") == 1, (said, status, err.getvalue())
        assert not [x for x in os.listdir(to) if x.startswith("out")], said
        with open(path, "wb") as f:
            f.write(before)


{"make": make, "same": same, "damage": damage}[sys.argv[1]](*sys.argv[2:])
