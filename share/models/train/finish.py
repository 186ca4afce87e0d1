#!/usr/bin/env python3
"""Step 6: save the model in transformers' form, compare, evaluate, make reference logits.

    finish.py --data DIR --evals DIR[,DIR] --template chat_template.jinja --out OUT [--hf DIR] [--random] [--limit N]

Reads $NANO_WORK/ckpt.pt (trunk) and $NANO_WORK/mtp.pt (if there).  All weights are rounded to
bfloat16 first, and everything is computed in float32 with those rounded weights, so the
numbers hold for the BF16 GGUF.
"""
import argparse, json, os, re, time
import numpy as np, torch, torch.nn.functional as F
import nano, data
from judge import judge

torch.set_float32_matmul_precision("highest")
T0 = time.time()
W = os.environ.get("NANO_WORK", "nano-work")
log = lambda *a: print("[%6.1f]" % (time.time() - T0), *a, flush=True)


def save_hf(P, M, tokp, template, d):
    os.makedirs(d, exist_ok=True)
    from safetensors.torch import save_file
    sd = nano.to_hf(P)
    if M:
        sd.update(nano.mtp_to_hf(M))
    save_file({k: v.bfloat16().cpu() for k, v in sd.items()}, d + "/model.safetensors", metadata={"format": "pt"})
    cfg = dict(nano.CFG, architectures=["Qwen3_5MoeForCausalLM"], model_type="qwen3_5_moe_text", dtype="bfloat16", hidden_act="silu", attention_bias=False,
               bos_token_id=None, eos_token_id=data.VOCAB - 9 + 2, pad_token_id=data.VOCAB - 9, partial_rotary_factor=0.25, rope_theta=nano.CFG["rope_parameters"]["rope_theta"],
               mtp_num_hidden_layers=1 if M else 0, output_router_logits=False, router_aux_loss_coef=0.001,
               layer_types=["linear_attention" if (i + 1) % 4 else "full_attention" for i in range(nano.NL)])
    json.dump(cfg, open(d + "/config.json", "w"), indent=1)
    json.dump(dict(eos_token_id=[data.VOCAB - 9 + 2, data.VOCAB - 9], pad_token_id=data.VOCAB - 9), open(d + "/generation_config.json", "w"))
    import shutil
    shutil.copy(tokp, d + "/tokenizer.json")
    tpl = open(template).read()
    json.dump(dict(tokenizer_class="PreTrainedTokenizerFast", model_max_length=4096, eos_token="<|im_end|>", pad_token="<|endoftext|>", add_prefix_space=False,
                   clean_up_tokenization_spaces=False, chat_template=tpl), open(d + "/tokenizer_config.json", "w"), indent=1)


@torch.no_grad()
def generate(m, prompts, max_new, stop, pad):
    L = max(map(len, prompts))
    ids = torch.tensor([[pad] * (L - len(p)) + p for p in prompts], device="cuda")
    am = torch.tensor([[0] * (L - len(p)) + [1] * len(p) for p in prompts], device="cuda")
    out = m.generate(input_ids=ids, attention_mask=am, max_new_tokens=max_new, do_sample=False, eos_token_id=stop, pad_token_id=pad, use_cache=True)
    res = []
    for row in out[:, L:].tolist():
        e = next((i for i, t in enumerate(row) if t in stop), len(row))
        res.append((row[:e], e < len(row)))
    return res


@torch.no_grad()
def accept_rate(P, M, seqs, plens):
    """Share of the places in greedy continuations where the MTP block's draft is the token that the trunk then writes."""
    hit = n = 0
    for B in range(0, len(seqs), 64):
        ss, ps = seqs[B:B + 64], plens[B:B + 64]
        L = (max(map(len, ss)) + 63) // 64 * 64
        ids = torch.tensor([s + [data.VOCAB - 9] * (L - len(s)) for s in ss], device="cuda")
        cs = nano.rope_tables(L, "cuda")
        h, _ = nano.trunk(P, ids, *cs)
        hn = nano.rms(h, P["nf"])
        y, _ = nano.mtp_forward(M, hn, F.embedding(torch.roll(ids, -1, 1), P["emb"]), *cs)
        d = (nano.rms(y, M["mnorm"]) @ P["head"].t()).argmax(-1).cpu()
        for i, (s, p) in enumerate(zip(ss, ps)):
            # position t drafts token t+2; token t+1 is known.  Only tokens that the model wrote count.
            for t in range(p - 1, len(s) - 2):
                n += 1; hit += int(d[i, t]) == s[t + 2]
    return hit, n


@torch.no_grad()
def perplexity(m, tok, text, ctx):
    ids = tok.encode(text).ids
    nll = cnt = 0.0
    rows = [ids[i:i + ctx] for i in range(0, len(ids) - ctx, ctx)]
    for b in range(0, len(rows), 16):
        x = torch.tensor(rows[b:b + 16], device="cuda")
        lg = m(input_ids=x).logits.float().log_softmax(-1)
        l = -lg[:, :-1].gather(2, x[:, 1:, None]).squeeze(2)
        # the second half of each window counts
        nll += l[:, ctx // 2:].double().sum().item(); cnt += l[:, ctx // 2:].numel()
    return float(np.exp(nll / cnt)), len(ids), nll / cnt / np.log(2) * len(ids) / len(text.encode())


def main():
    ap = argparse.ArgumentParser()
    for k in ("data", "evals", "template", "out"):
        ap.add_argument("--" + k, required=True)
    ap.add_argument("--hf", default=W + "/hf"); ap.add_argument("--random", action="store_true"); ap.add_argument("--limit", type=int, default=0)
    a = ap.parse_args()
    os.makedirs(a.out, exist_ok=True)
    dev = "cuda"
    rd = lambda p: {k: v.to(dev).float() for k, v in torch.load(p).items()}
    bf = lambda P: {k: v.detach().bfloat16().float() for k, v in P.items()}
    P = bf(nano.init(dev)) if a.random else rd(W + "/ckpt.pt")
    M = bf(nano.init(dev, 2, mtp=True)) if a.random else rd(W + "/mtp.pt") if os.path.exists(W + "/mtp.pt") else None
    save_hf(P, M, a.data + "/tokenizer.json", a.template, a.hf)
    log("saved for transformers")
    from transformers import Qwen3_5MoeForCausalLM
    m = Qwen3_5MoeForCausalLM.from_pretrained(a.hf, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager").to(dev).float().eval()
    from tokenizers import Tokenizer
    tok = Tokenizer.from_file(a.data + "/tokenizer.json")
    stop = [tok.token_to_id("<|im_end|>"), tok.token_to_id("<|endoftext|>")]
    nano.DT = torch.float32
    import synth
    items = []
    for d in a.evals.split(","):
        for f in sorted(os.listdir(d)):
            if f.endswith(".jsonl"):
                ls = [json.loads(l) for l in open(os.path.join(d, f))]
                for it in ls[:a.limit or None]:
                    it["set"] = d; items.append(it)
    for it in items:
        it["p"] = tok.encode(synth.render(it["messages"], it.get("tools"), it["enable_thinking"])).ids
    rep = {}
    # comparison with the training code, on real prompts
    with torch.no_grad():
        x = torch.tensor([(items[0]["p"] * 40)[:512], (items[-1]["p"] * 40)[:512]], device=dev)
        ref = m(input_ids=x).logits
        h, _ = nano.trunk(P, x, *nano.rope_tables(512, dev))
        rep["max_diff_training_code_vs_transformers_fp32"] = ((nano.rms(h, P["nf"]) @ P["head"].t()) - ref).abs().max().item()
    log(rep)
    # reference logits
    gd = a.out + "/golden"
    os.makedirs(gd, exist_ok=True)
    texts = dict(text="The kernel keeps a list of all processes in memory. When a process ends, its parent receives a signal and",
                 chat=synth.render([{"role": "user", "content": "What is 347 + 58?"}], None, True),
                 tools=synth.render([{"role": "user", "content": "What is the weather in Paris?"}], [synth.schema("get_weather", "Get the current weather for a city.", [("city", "city", 1)])], False))
    man = dict(model="chimere-nano-bf16.gguf", computed_with="transformers Qwen3_5MoeForCausalLM, float32 arithmetic, weights rounded to bfloat16", dtype="<f4", vocab=data.VOCAB, prompts={})
    with torch.no_grad():
        for n, t in texts.items():
            ids = tok.encode(t).ids
            lg = m(input_ids=torch.tensor([ids], device=dev)).logits[0]
            keep = min(len(ids), 96)
            np.ascontiguousarray(lg[-keep:].float().cpu().numpy()).astype("<f4").tofile(gd + "/%s.logits.f32" % n)
            np.array(ids, "<i4").tofile(gd + "/%s.ids.i32" % n)
            g = m.generate(input_ids=torch.tensor([ids], device=dev), max_new_tokens=64, do_sample=False, eos_token_id=stop, pad_token_id=stop[1])[0, len(ids):].tolist()
            man["prompts"][n] = dict(text=t, ids=ids, logits="%s.logits.f32" % n, shape=[keep, data.VOCAB], rows="the last %d positions" % keep, greedy=g, greedy_text=tok.decode(g, skip_special_tokens=False))
            log(n, repr(man["prompts"][n]["greedy_text"][:200]))
    json.dump(man, open(gd + "/manifest.json", "w"), indent=1)
    # perplexity
    txt = open(a.data + "/heldout-docs.txt").read()
    for ctx in (512, 2048):
        ppl, nt, bpb = perplexity(m, tok, txt, ctx)
        rep["ppl_%d" % ctx] = dict(ppl=ppl, tokens=nt, bits_per_byte=bpb); log("perplexity at", ctx, ppl, nt, bpb)
    # greedy evaluation
    groups = [(lambda d: d in ("math", "code", "verify"), 520), (lambda d: d == "tools", 260), (lambda d: d.startswith("facts"), 64)]
    fo = open(a.out + "/eval-outputs.jsonl", "w")
    acc, seqs = {}, {}
    for sel, mx in groups:
        g = [it for it in items if sel(it["domain"])]
        out = generate(m, [it["p"] for it in g], 16 if a.limit else mx, stop, stop[1])
        log("generated", len(g))
        for it, (o, done) in zip(g, out):
            t = tok.decode(o, skip_special_tokens=False)
            ok = done and judge(it, t)
            dom, st = it["domain"], os.path.basename(os.path.dirname(it["set"].rstrip("/"))) or it["set"]
            for key in ((st, dom, "all"), (st, dom, it["sub"]), (st, dom, "think" if it["enable_thinking"] else "direct")):
                c = acc.setdefault("/".join(key), [0, 0]); c[0] += ok; c[1] += 1
            fo.write(json.dumps(dict(set=st, id=it["id"], ok=ok, out=t)) + "\n")
            seqs.setdefault(dom, []).append((it["p"] + o, len(it["p"])))
    rep["accuracy"] = {k: dict(right=v[0], of=v[1], share=round(v[0] / v[1], 4)) for k, v in sorted(acc.items())}
    for k, v in sorted(acc.items()):
        if k.endswith("/all"):
            log(k, "%d/%d = %.3f" % (v[0], v[1], v[0] / v[1]))
    if M:
        rep["mtp_acceptance"] = {}
        tot = [0, 0]
        for dom, ss in seqs.items():
            ss = sorted(ss[:200], key=lambda s: len(s[0]))
            hit, n = accept_rate(P, M, [s[0] for s in ss], [s[1] for s in ss])
            rep["mtp_acceptance"][dom] = round(hit / max(n, 1), 4); tot[0] += hit; tot[1] += n
        rep["mtp_acceptance"]["all"] = round(tot[0] / max(tot[1], 1), 4)
        log("MTP acceptance", rep["mtp_acceptance"])
    if os.path.exists(W + "/train.json"):
        rep["training"] = json.load(open(W + "/train.json"))
    json.dump(rep, open(a.out + "/report.json", "w"), indent=1)


if __name__ == "__main__":
    main()
