/* SPDX-License-Identifier: Apache-2.0 */
/* adapt.h - LoRA adapters: low-rank changes to a model's matrices, in memory and as files. room: adapt
 *
 * For each matrix W that it names, an adapter has two small ones of rank r, and the model computes
 *   y = W x + scale * (alpha / r) * b (a x)        (Hu et al. 2021, "LoRA: Low-Rank Adaptation")
 * where the scale is the user's. In the token embedding, row t changes by scale * (alpha / r) * b a[t]; if the output
 * head is the same matrix, it changes in the same way.
 *
 * Files are GGUF in the format of llama.cpp's adapters: general.type "adapter", adapter.type "lora",
 * general.architecture that of the model, adapter.lora.alpha, and for each matrix NAME two tensors, NAME.lora_a and
 * NAME.lora_b. Sizes, fastest first: lora_a [n_in, r], lora_b [r, n_out], with a third for the experts of NAME; of
 * token_embd.weight lora_a [r, n_vocab], lora_b [r, n_embd].
 *
 * Scales are another kind: each row of a quantised matrix is multiplied by a factor, as if all its quantisation scales
 * had been multiplied (Shang et al. 2025, "Fine-tuning Quantized Neural Networks with Zeroth-order Optimization"): y[o]
 * = (1 + scale * b[o]) (W x)[o] Their files are ours: adapter.type "scales", no alpha, and for each matrix NAME a
 * tensor NAME.scale [n_out], with a second size for experts. They are merged into a model; the forward pass does not
 * take them.
 *
 * How the forward pass takes the others: model/adapter.h, run/run.h.
 */
#ifndef ADAPT_ADAPT_H
#define ADAPT_ADAPT_H
#include "base/base.h"

struct gguf;

enum { ADAPTER_RANK_MAX = 1024 };

/* Floats lie as in the file: b has the r numbers of an output side by side. Whoever has the adapter may change them. */
struct adapter_mat {
    const char *name;    /* of the model's tensor: "blk.0.attn_q.weight" */
    int64_t n_in, n_out; /* of the matrix: ne[0] and ne[1] of the model's tensor; n_in 0 of scales from a file */
    int64_t n_mat;       /* matrices in the tensor (experts): ne[2] */
    int rank;            /* 0: scales, in b, [n_mat][n_out] */
    bool rows;           /* token_embd.weight: n_in n_embd, n_out n_vocab */
    float *a;            /* [n_mat][rank][n_in]; with rows [n_out][rank] */
    float *b;            /* [n_mat][n_out][rank]; with rows [n_in][rank] */
};
struct adapter {
    const char *path;   /* as given to adapter_open(); "" of one that was made */
    const char *arch;   /* general.architecture of its models */
    const char *record; /* what its training noted of itself, as JSON: chimere.training; NULL: nothing */
    float alpha;
    size_t n;
    struct adapter_mat *mat; /* [n], in the file's order of lora_a */
};

/* Reads a file: f32, f16, bf16 or q8_0 become float. One line says what is wrong with it: ERR_FORMAT, ERR_UNSUPPORTED
 * for a kind of adapter that is none of these, and what gguf_open() says. Whether it fits a model adapter_check()
 * tells. */
MUST_CHECK enum err_code adapter_open(struct adapter **out, const char *path, struct err *e);
/* A new one with these matrices, of which the floats are not read: they begin as zeros. Names are copied. Scales have
 * alpha 1. ERR_ARG for sizes that no adapter has. */
MUST_CHECK enum err_code adapter_make(struct adapter **out, const char *arch, float alpha,
                                      const struct adapter_mat *mat, size_t n, struct err *e);
void adapter_close(struct adapter *a); /* NULL is allowed */

/* It is scales; of an adapter all matrices are, or none is. */
bool adapter_is_scales(const struct adapter *a);
/* Floats of a matrix's a and of its b. */
int64_t adapter_a_floats(const struct adapter_mat *m);
int64_t adapter_b_floats(const struct adapter_mat *m);
/* Parameters of all. */
int64_t adapter_floats(const struct adapter *a);
int adapter_rank(const struct adapter *a); /* the largest */

/* That a model's file has all its matrices, of these shapes, and is of its architecture; else ERR_FORMAT, and one line
 * names the first that does not fit. */
MUST_CHECK enum err_code adapter_check(const struct adapter *a, const struct gguf *model, struct err *e);

/* What it has for a tensor of the model; NULL: nothing. */
const struct adapter_mat *adapter_find(const struct adapter *a, struct str name);
/* Row r of the tensor that m is for (rows of its matrices follow each other), n floats, becomes that of the merged
 * one: w += scale * (alpha / rank) * (b a)[r], rank by rank, in float32; with scales w *= 1 + scale * b[r]. */
void adapter_merge_row(const struct adapter *a, const struct adapter_mat *m, int64_t r, float scale, float *w,
                       int64_t n);

/* Writes it, whole or not at all (gguf_write_open()). type: "f32", "f16" or "q8_0"; of q8_0 those tensors whose rows
 * are no multiple of 32 (b of a smaller rank) and scales become f16. ERR_ARG for another type, and for a number that is
 * not finite in it. */
MUST_CHECK enum err_code adapter_write(const struct adapter *a, const char *path, const char *type, struct err *e);

/* Two adapters with one fingerprint do the same: a hash of everything but the path and the record. */
uint64_t adapter_fingerprint(const struct adapter *a);
#endif
