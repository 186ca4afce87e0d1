/* SPDX-License-Identifier: Apache-2.0 */
/* arch.h - what a model family is: data, not code.                        room: arch (base gguf)
 *
 * plan_make() reads a file's metadata into a plan: the shapes of every layer. A family is one file with
 * one function, and one line in archs.def. Every number is checked against the limits below, so
 * that products of a few of them cannot overflow and nothing a file says can ask for absurd memory.
 */
#ifndef ARCH_ARCH_H
#define ARCH_ARCH_H
#include "base/arena.h"
#include "base/base.h"

struct gguf;

enum {
    ARCH_LAYERS_MAX  = 1024,
    ARCH_WIDTH_MAX   = 1 << 20, /* any row width, in elements */
    ARCH_HEADS_MAX   = 1 << 12,
    ARCH_HEAD_MAX    = 1024,    /* elements in a head */
    ARCH_EXPERTS_MAX = 1 << 14,
    ARCH_TAPS_MAX    = 16,
    ARCH_CTX_MAX     = 1 << 24,
};

/* How a layer mixes positions: a set. */
enum mixer {
    MIX_ATTN = 1 << 0, /* softmax attention over KV rows */
    MIX_GDN  = 1 << 1, /* gated delta net */
};

enum ffn {
    FFN_NONE,
    FFN_MOE, /* routed experts, optionally a shared one with a sigmoid gate */
};

struct layer_plan {
    unsigned mixers; /* set of enum mixer */
    enum ffn ffn;
};

struct attn_plan {
    int     n_head, n_head_kv;
    int     dim_k, dim_v;  /* elements in a head */
    bool    gated;         /* q carries a gate of the same width, head by head */
    int     n_rot;         /* rotated elements of a head; 0: none */
    float   rope_base;
    float   scale;         /* of the scores */
};

struct gdn_plan {
    int  n_k, n_v;         /* key and value heads */
    int  dim, dim_v;       /* elements of a key and of a value head */
    int  taps;             /* convolution */
    bool k_grouped;        /* value head h uses key head h / (n_v / n_k), not h % n_k */
};

struct moe_plan {
    int   n_expert, n_used;
    int   n_ff;            /* width of a routed expert */
    int   n_ff_shared;     /* of the shared expert; 0: none */
    bool  normalise;
    float scale;
};

struct plan {
    const struct arch *arch;
    int                n_layer;  /* of the main stack */
    int                n_nextn;  /* multi-token-prediction blocks after it */
    int                n_embd;
    int32_t            n_vocab;  /* rows of token_embd.weight */
    float              norm_eps;
    int64_t            ctx_train;
    struct attn_plan   attn;
    struct gdn_plan    gdn;
    struct moe_plan    moe;
    struct layer_plan  layer[ARCH_LAYERS_MAX];
};

struct arch {
    const char *name; /* general.architecture */
    enum err_code (*make)(struct plan *p, const struct gguf *g, struct err *e);
};

/* ERR_UNSUPPORTED for an unknown architecture, ERR_FORMAT for a missing or impossible value; the
 * message names the key. */
MUST_CHECK enum err_code plan_make(struct plan *p, const struct gguf *g, struct err *e);

/* Floats of fixed memory that a layer keeps for each sequence: inputs of its convolution, recurrent
 * state. */
int64_t plan_conv_channels(const struct plan *p, int layer);
int64_t plan_conv_floats(const struct plan *p, int layer);
int64_t plan_rec_floats(const struct plan *p, int layer);

/* For families: metadata under "ARCH.key". */
struct arch_keys {
    const struct gguf *g;
    const char        *prefix; /* "qwen35moe" */
    struct err        *e;      /* first failure is kept; later reads give 0 */
};
/* A required number in least .. most. A value stored as an array of per-layer numbers is refused. */
int   arch_int(struct arch_keys *k, const char *key, int least, int most);
int   arch_int_or(struct arch_keys *k, const char *key, int least, int most, int absent);
float arch_float(struct arch_keys *k, const char *key, float least, float most);
float arch_float_or(struct arch_keys *k, const char *key, float least, float most, float absent);
#endif
