/* SPDX-License-Identifier: Apache-2.0 */
/* internal.h - inside the room model: bound weights and the parts of the forward pass.
 *
 * Matrices stay where the file is mapped; vectors (norms, biases, convolution taps) are widened to float
 * once, in the model's arena. */
#ifndef MODEL_INTERNAL_H
#define MODEL_INTERNAL_H
#include "arch/arch.h"
#include "base/arena.h"
#include "model/model.h"
#include "ops/ops.h"

struct attn_weights {
    struct tensor q;              /* [n_embd] -> n_head * dim_k, twice that when gated */
    struct tensor k, v, o;
    const float  *q_norm, *k_norm; /* [dim_k] or NULL */
};

struct gdn_weights {
    struct tensor qkv, z, alpha, beta, out;
    const float  *conv;           /* [taps][channels] */
    const float  *dt_bias, *a;    /* [n_v] */
    const float  *norm;           /* [dim_v] */
};

struct moe_weights {
    struct tensor router;         /* n_embd -> n_expert */
    struct tensor gate, up, down; /* n_expert matrices each */
    struct tensor sh_gate, sh_up, sh_down, sh_router; /* shared expert; data NULL: none */
};

struct layer_weights {
    const float        *mix_norm, *ffn_norm; /* [n_embd] */
    struct attn_weights attn;
    struct gdn_weights  gdn;
    struct moe_weights  moe;
};

struct model {
    struct dev           *dev;
    struct arena          arena;
    struct plan           plan;
    struct model_info     info;
    struct tensor         embd, head;
    const float          *out_norm;
    const float          *rope_freq; /* [n_rot / 2] */
    struct layer_weights *layer;     /* [n_layer] */
};

/* Finds and checks tensors; the first failure is kept in *e. */
struct binder {
    const struct gguf *g;
    struct arena      *arena;
    struct err        *e;
    int                layer; /* -1: names without "blk.N." */
};
/* A matrix ne0 -> ne1, ne2 of them, of any type. */
struct tensor bind_mat(struct binder *b, const char *name, int64_t ne0, int64_t ne1, int64_t ne2);
bool          bind_has(const struct binder *b, const char *name);
const float  *bind_vec(struct binder *b, const char *name, int64_t n);
/* conv1d.weight is stored [channels][taps]; returned as [taps][channels]. */
const float  *bind_conv(struct binder *b, const char *name, int64_t taps, int64_t channels);

void model_bind_attn(struct attn_weights *w, const struct plan *p, struct binder *b);
void model_bind_gdn(struct gdn_weights *w, const struct plan *p, struct binder *b);
void model_bind_moe(struct moe_weights *w, const struct plan *p, struct binder *b);

/* One step of the forward pass and what it works on. */
struct state;
struct step {
    const struct model   *m;
    struct dev           *d;
    const struct state   *state;
    const struct op_rows *rows;
};
/* y = the part's output for normalised input x; the residual add is the caller's. */
void model_mix_attn(const struct step *s, int layer, struct tensor y, struct tensor x);
void model_mix_gdn(const struct step *s, int layer, struct tensor y, struct tensor x);
void model_ffn_moe(const struct step *s, int layer, struct tensor y, struct tensor x);
#endif
