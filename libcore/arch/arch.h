/* SPDX-License-Identifier: Apache-2.0 */
/* arch.h - what a model family is: data, not code.                        room: arch
 *
 * arch_plan_make() reads a file's metadata into a plan: the shapes of every layer. A family is one file with
 * one function, and one line in archs.def. Every number is checked against the limits below, so
 * that products of a few of them cannot overflow and nothing a file says can ask for absurd memory.
 */
#ifndef ARCH_ARCH_H
#define ARCH_ARCH_H
#include "base/arena.h"
#include "base/base.h"

struct gguf;
struct gguf_kv;

enum {
    ARCH_LAYERS_MAX = 1024,
    ARCH_WIDTH_MAX = 1 << 20, /* any row width, in elements */
    ARCH_HEADS_MAX = 1 << 12,
    ARCH_HEAD_MAX = 1024, /* elements in a head */
    ARCH_EXPERTS_MAX = 1 << 14,
    ARCH_TAPS_MAX = 16,
    ARCH_CTX_MAX = 1 << 24,
};

/* How a layer mixes positions: a set. At most one of them is recurrent. */
enum arch_mixer {
    MIX_ATTN = 1 << 0, /* softmax attention over KV rows */
    MIX_MLA = 1 << 1,  /* the same over one compressed row per position (multi-head latent attention) */
    MIX_GDN = 1 << 2,  /* gated delta net */
    MIX_KDA = 1 << 3,  /* Kimi delta attention */
    MIX_SSM1 = 1 << 4, /* Mamba */
    MIX_SSM2 = 1 << 5, /* Mamba-2 */
    MIX_CONV = 1 << 6, /* gated short convolution (LFM2) */
};

enum arch_ffn {
    FFN_NONE,
    FFN_DENSE,
    FFN_MOE, /* routed experts, optionally a shared one */
};

struct arch_layer_plan {
    unsigned mixers; /* set of enum arch_mixer */
    enum arch_ffn ffn;
    int n_ff; /* width of FFN_DENSE */
};

/* Which keys and values a layer's attention reads, where not all of its own. */
struct arch_reach {
    int window;  /* positions before a row's own, and the first n_meta of the plan; 0: all */
    int kv_from; /* those of layer kv_from - 1, which has its own; 0: its own */
};

enum arch_rope { ROPE_NONE, ROPE_HALVES, ROPE_PAIRS }; /* which elements of a head turn together */

/* Keys and values as they are kept. For MIX_MLA: n_head_kv is 1, a key is the compressed row and the rotary
 * part, a value the compressed row. */
struct arch_attn_plan {
    int n_in; /* width of the input: the model's, or twice that with arch_plan.front */
    int n_head, n_head_kv;
    int dim_k, dim_v; /* elements in a head */
    bool gated;       /* q carries a gate of the same width, head by head */
    bool qk_norm;     /* RMS norm of each head of queries and keys */
    enum arch_rope rope;
    int n_rot; /* rotated elements of a head */
    float rope_base;
    float scale; /* of the scores */
};

struct arch_mla_plan {
    int rank;               /* compressed row */
    int dim_nope, dim_rope; /* parts of a query head */
    int dim_v;              /* value head, after decompression */
    int rank_q;             /* queries come from a compressed row, too; 0: they do not */
    bool head_gate;         /* each head's output is multiplied by a sigmoid of its own */
};

struct arch_gdn_plan { /* MIX_GDN, and MIX_KDA with n_k == n_v */
    int n_k, n_v;      /* key and value heads */
    int dim, dim_v;    /* elements of a key and of a value head */
    bool k_grouped;    /* value head h uses key head h / (n_v / n_k), not h % n_k */
    bool ba_fused;     /* one matrix for beta and alpha, by key head */
    bool full_gates;   /* MIX_KDA: decay and output gate come from one matrix each, not from two of low rank */
    float decay_bound; /* MIX_KDA: of the log decay of a step, below 0; 0: there is none */
    bool sigmoid;      /* output gate: sigmoid, not SiLU */
};

/* Hyper-connections (Zhu et al. 2024) with gates of low rank: the residual stream is n rows of n_embd, side by side. */
struct arch_streams_plan {
    int n; /* 1: an ordinary residual stream */
    int rank;
};

/* Attention over chosen blocks of keys, by an indexer of its own. */
struct arch_index_plan {
    int n_head, dim;            /* of the indexer's queries; it has one key */
    int budget;                 /* positions that a query takes beside its unfinished block */
    int ratio[ARCH_LAYERS_MAX]; /* positions of a block; 0: no choice in this layer, its attention takes all keys */
};

/* Rows of a large table, found by hashes of the last `ngram` tokens, added to the streams before one layer: for each
 * order 2 .. ngram, `heads` rows of `dim` elements. Row of head h: hash % size[h] + first[h]. */
enum { ARCH_NGRAM_MAX = 8, ARCH_TABLE_HEADS_MAX = 64 };
struct arch_table_plan {
    int layer;
    int ngram; /* 0: there is no table */
    int heads, dim;
    int taps;          /* of a convolution whose taps are `ngram` rows apart */
    int32_t end_token; /* what comes before it is not hashed */
    int64_t rows;
    uint64_t multiplier[ARCH_NGRAM_MAX];
    int64_t first[ARCH_TABLE_HEADS_MAX], size[ARCH_TABLE_HEADS_MAX]; /* [(ngram - 1) * heads] */
};

struct arch_ssm_plan { /* MIX_SSM1: n_head 1, n_group 1; MIX_SSM2: dt_rank 0 */
    int inner, n_state;
    int n_head, n_group;
    int dt_rank;
    bool norm;      /* RMS norm without weights of dt, B and C */
    float norm_eps; /* of the norm after a Mamba-2 scan */
};

struct arch_moe_plan {
    int n_expert, n_used;
    int n_ff;         /* width of a routed expert */
    int n_ff_shared;  /* of the shared expert; 0: none */
    bool shared_gate; /* the shared expert has a sigmoid gate for each row */
    bool sigmoid;     /* router: sigmoids, not a softmax */
    bool bias;        /* router chooses with a correction bias */
    bool normalise;
    float scale;
    int n_group, n_group_used;
    int n_latent; /* experts work in a space of this width; 0: that of the model */
};

struct arch_plan {
    const struct arch *arch;
    int n_layer;                 /* of the main stack */
    int n_nextn;                 /* multi-token-prediction blocks after it */
    enum arch_mixer nextn_mixer; /* in those: MIX_ATTN, or MIX_MLA, which no drafter uses */
    int n_unread;                /* blocks after those, which are left in the file */
    int n_embd;
    int32_t n_vocab; /* rows of token_embd.weight without n_meta */
    float norm_eps;
    int64_t ctx_train;
    float embd_scale, residual_scale, logit_scale; /* factors */
    bool relu2;                                    /* feed-forwards are down(relu(up x)^2), without a gate */
    bool gelu;                                     /* gates pass GELU, not SiLU */
    bool up_gated;                                 /* the matrix `up` has the gates first, then what they multiply */
    /* In a layer of several parts attention and feed-forward come first: they read the layer's input beside the
     * embedding of the row's token, and what they give is added to the input of the recurrent mixer only (Zamba2). */
    bool front;
    /* What attention and Mamba beside it give is normed by each, and their mean goes through one matrix (Hymba). */
    bool joined;
    /* Rows of the embedding, after the vocabulary, that stand in front of every sequence: no tokens. */
    int n_meta;
    int taps;                        /* of the recurrent layers' convolution */
    const char *ffn_norm, *out_norm; /* what the file calls these norms ("blk.N." left out) */
    struct arch_attn_plan attn;
    struct arch_mla_plan mla;
    struct arch_gdn_plan gdn;
    struct arch_ssm_plan ssm;
    struct arch_moe_plan moe;
    struct arch_streams_plan streams;
    struct arch_index_plan index;
    struct arch_table_plan table;
    struct arch_layer_plan layer[ARCH_LAYERS_MAX];
    struct arch_reach reach[ARCH_LAYERS_MAX];
};

struct arch_keys;
struct arch {
    const char *name; /* general.architecture */
    void (*make)(struct arch_plan *p, struct arch_keys *k);
    bool moe; /* of two families with one function: that with experts */
};

/* ERR_UNSUPPORTED for an unknown architecture, ERR_FORMAT for a missing or impossible value; the
 * message names the key. */
MUST_CHECK enum err_code arch_plan_make(struct arch_plan *p, const struct gguf *g, struct err *e);

/* Floats of fixed memory that a layer keeps for each sequence: inputs of its convolution, recurrent
 * state. */
int64_t arch_plan_conv_channels(const struct arch_plan *p, int layer);
int64_t arch_plan_conv_floats(const struct arch_plan *p, int layer);
int64_t arch_plan_rec_floats(const struct arch_plan *p, int layer);
/* The same of the table's convolution: 0 but in one layer. */
int64_t arch_plan_table_floats(const struct arch_plan *p, int layer);
bool arch_plan_has_table(const struct arch_plan *p, int layer);
/* Floats of a row of the residual stream. */
int64_t arch_plan_width(const struct arch_plan *p);
/* Width of a recurrent layer's scan output. */
int64_t arch_plan_scan_floats(const struct arch_plan *p, int layer);
/* Floats that one row adds to a recurrent layer's memory: enough to compute the step again. */
int64_t arch_plan_input_floats(const struct arch_plan *p, int layer);

/* For families: metadata under "ARCH.key". The first failure is kept in *e; later reads give 0. */
struct arch_keys {
    const struct gguf *g;
    const char *prefix; /* "qwen35moe" */
    struct err *e;
};
const struct gguf_kv *arch_kv(struct arch_keys *k, const char *key); /* NULL: there is none */
/* A required number in least .. most (else `absent` when there is no such key). */
int arch_int(struct arch_keys *k, const char *key, int least, int most);
int arch_int_or(struct arch_keys *k, const char *key, int least, int most, int absent);
float arch_float(struct arch_keys *k, const char *key, float least, float most);
float arch_float_or(struct arch_keys *k, const char *key, float least, float most, float absent);
bool arch_bool_or(struct arch_keys *k, const char *key, bool absent);
/* One number for each of n layers, or one for all of them. */
void arch_ints(struct arch_keys *k, const char *key, int least, int most, int *out, int n);
/* The number that all entries but zeros of a list share; 0 when all are 0. Different ones are
 * ERR_UNSUPPORTED. */
int arch_shared(struct arch_keys *k, const char *key, const int *list, int n);
/* Every layer has these tensors, which other families may leave out. */
void arch_need(const struct arch_plan *p, struct arch_keys *k, const char *const *names, int n);
void arch_bad(struct arch_keys *k, const char *what);                         /* "FILE: what", ERR_FORMAT */
void arch_refuse(struct arch_keys *k, const char *what);                      /* the same, ERR_UNSUPPORTED */
bool arch_has_tensor(const struct arch_keys *k, const char *name, int layer); /* layer < 0: no "blk.N." */

/* Parts that families share; each checks what it reads. */
void arch_attn(struct arch_plan *p, struct arch_keys *k, int n_head_kv, enum arch_rope rope);
/* dim: elements of a head, or of its rotary part. */
void arch_rope(struct arch_plan *p, struct arch_keys *k, enum arch_rope rope, int dim);
void arch_gdn(struct arch_plan *p, struct arch_keys *k);
void arch_ssm1(struct arch_plan *p, struct arch_keys *k);
void arch_ssm2(struct arch_plan *p, struct arch_keys *k);
void arch_moe(struct arch_plan *p, struct arch_keys *k);
#endif
