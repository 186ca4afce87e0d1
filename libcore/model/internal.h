/* SPDX-License-Identifier: Apache-2.0 */
/* internal.h - inside the room model: bound weights and the parts of the forward pass.
 *
 * Matrices stay in the mapped file, or are copied to the device, or (with model_placement.copy_weights) to RAM. Vectors
 * (norms, biases, convolution taps) are converted to float once, in the model's arena. */
#ifndef MODEL_INTERNAL_H
#define MODEL_INTERNAL_H
#include "arch/arch.h"
#include "base/arena.h"
#include "model/model.h"
#include "ops/ops.h"

struct attn_weights {
    struct tensor q;                          /* n_embd -> n_head * dim_k, twice that when gated */
    struct tensor k, v, o;                    /* k and v: data NULL where another layer's are read */
    const float *q_norm, *k_norm;             /* [dim_k]; NULL without qk_norm */
    struct tensor index_q, index_k;           /* of an indexer; data NULL: there is none */
    const float *index_q_norm, *index_k_norm; /* [dim] */
};

struct mla_weights {
    struct tensor q_a;  /* n_embd -> rank_q; data NULL: none */
    struct tensor q;    /* n_embd or rank_q -> n_head * (dim_nope + dim_rope) */
    struct tensor kv_a; /* n_embd -> rank + dim_rope */
    struct tensor k_b;  /* dim_nope -> rank, for each head */
    struct tensor v_b;  /* rank -> dim_v, for each head */
    struct tensor o;
    struct tensor gate;            /* n_embd -> n_head; data NULL: none */
    const float *q_norm, *kv_norm; /* [rank_q], [rank] */
};

struct gdn_weights {
    struct tensor qkv, z, alpha, beta, out;
    struct tensor ba;         /* beta and alpha in one matrix, by key head, if ba_fused */
    const float *conv;        /* [taps][channels] */
    const float *dt_bias, *a; /* [n_v] */
    const float *norm;        /* [dim_v] */
};

struct kda_weights {
    struct tensor q, k, v, beta, f_a, f_b, g_a, g_b, out; /* f_b, g_b: data NULL with full_gates */
    const float *conv;                                    /* [taps][3 * n_head * dim] */
    const float *dt_bias;                                 /* [n_head * dim] */
    const float *a;                                       /* [n_head] */
    const float *norm;                                    /* [dim] */
};

struct ssm_weights {
    struct tensor in, out;
    struct tensor x, dt; /* Mamba-1 only */
    const float *conv, *conv_bias;
    const float *dt_bias, *a, *d;           /* Mamba-1: a is [n_state][inner], the others [inner]; 2: [n_head] */
    const float *norm;                      /* Mamba-2: [inner]; NULL: none */
    const float *dt_norm, *b_norm, *c_norm; /* Mamba-1: NULL: none */
};

struct conv_weights {
    struct tensor in, out; /* n_embd -> 3 * n_embd (b, c, x); n_embd -> n_embd */
    const float *conv;
};

struct dense_weights {
    struct tensor gate, up, down; /* gate's data NULL: none */
};

struct moe_weights {
    struct tensor router;         /* n_embd -> n_expert */
    const float *bias;            /* [n_expert] or NULL */
    struct tensor gate, up, down; /* n_expert matrices each; gate's data NULL: none */
    /* Experts on the host; hand NULL: there are none. Else the three tensors above have only the experts on the device,
     * and `slot` says which. */
    struct op_hand *hand;
    const int32_t *slot; /* op_moe.slot, on the device */
    int n_here;
    int cached;                                       /* op_moe.cached */
    struct tensor sh_gate, sh_up, sh_down, sh_router; /* shared expert; data NULL: none */
    struct tensor latent_down, latent_up;             /* data NULL: none */
};

/* What makes a row of several streams, and gives a part's output back to them. */
struct streams_weights {
    const float *norm;      /* [streams * n_embd] */
    struct tensor down, up; /* streams * n_embd -> rank -> streams * n_embd */
    struct tensor inject;   /* streams * n_embd -> streams; data NULL: none */
};

/* See table.c. */
struct table_weights {
    struct tensor rows;                             /* [dim][rows], read by rows */
    struct tensor key, value;                       /* n_embd -> streams * n_embd; n_embd -> n_embd */
    const float *key_norm, *query_norm, *conv_norm; /* [streams * n_embd] */
    const float *conv;                              /* [taps][streams * n_embd] */
};

struct layer_weights {
    const float *rope_freq;           /* [n_rot / 2] on the layer's device */
    const float *mix_norm, *ffn_norm; /* [n_embd]; NULL with several streams */
    const float *front_norm;          /* [2 n_embd]; this and front_mix if arch_plan.front */
    struct tensor front_mix;          /* n_embd -> n_embd */
    struct streams_weights mix_streams, ffn_streams;
    const float *join_norm[2]; /* [inner] of attention, of Mamba: if arch_plan.joined */
    struct attn_weights attn;
    struct mla_weights mla;
    struct gdn_weights gdn;
    struct kda_weights kda;
    struct ssm_weights ssm;
    struct conv_weights conv;
    struct dense_weights dense;
    struct moe_weights moe;
};

/* A multi-token-prediction block: see mtp.c. */
struct nextn_weights {
    struct layer_weights layer;
    struct tensor mix;                               /* 2 n_embd -> n_embd */
    struct tensor embd, head;                        /* data NULL: those of the model */
    const float *embd_norm, *hidden_norm, *out_norm; /* [n_embd]; out_norm NULL: the model's */
};

struct model {
    const struct gguf *gguf;
    struct dev *part[DEV_LIST_MAX];            /* contiguous ranges of layers lie on these, */
    int n_dev;                                 /* the first n_dev; at least 1 once it is open */
    char names[DEV_LIST_MAX * DEV_NAME_BYTES]; /* of several devices: model_info */
    uint8_t *on;                               /* [n_layer] layer i on part[on[i]] */
    struct dev *dev;  /* the last of them: of the head, the logits and what guesses from hidden rows */
    struct dev *host; /* computes experts that stay on the host; NULL: there are none */
    struct arena arena;
    struct arch_plan plan;
    struct model_info info;
    struct tensor embd;      /* on the first device */
    struct tensor embd_last; /* the same matrix on the last device, for drafters; with model_opts.nextn by ids */
    struct tensor head;
    const float *out_norm; /* NULL: out_streams */
    struct streams_weights out_streams;
    struct table_weights table;
    struct layer_weights *layer; /* [n_layer] */
    struct nextn_weights *nextn; /* NULL: none, or not asked for */
    bool *multiplied;            /* [tensors of the file] matrices of products, and the token embedding */
    struct model_weights bytes, bytes_on[DEV_LIST_MAX]; /* of all, and for the layers of each device */
    uint64_t *uses[DEV_LIST_MAX]; /* [layers of the device][n_expert] on each device; NULL: not counted */
    int first[DEV_LIST_MAX + 1];  /* layer of each device, and past the last */
    int count_sets;               /* model_placement */
    int step_rows;                /* model_placement */
    bool dry_run;                 /* model_placement */
};

static inline struct dev *model_dev_of(const struct model *m, int layer)
{
    return m->part[m->on[layer]];
}
/* devices.c: opens the devices, shares out the layers; the plan is known. close: what that took. */
MUST_CHECK enum err_code model_open_devices(struct model *m, const struct model_opts *o, struct err *e);
void model_close_devices(struct model *m);
/* The first device alone. */
MUST_CHECK enum err_code model_one_dev(struct dev **out, const struct model_opts *o, struct err *e);
MUST_CHECK enum err_code model_count_uses(struct model *m, struct err *e); /* room for them */
/* A step begins, or ends, on all devices; the error names the one that failed. One in lane 1 and on does not end, but
 * is launched, and model_land() (forward.h) waits for it. */
void model_begin(const struct model *m, int lane);
MUST_CHECK enum err_code model_end(const struct model *m, struct err *e);
MUST_CHECK enum err_code model_launch(const struct model *m, struct err *e);

/* Finds and checks tensors; the first failure is kept in *e. */
struct binder {
    const struct gguf *g;
    struct arena *arena;
    struct err *e;
    struct dev *dev; /* NULL: tensors are only checked */
    struct dev *host;
    int layer; /* -1: names without "blk.N." */
    int n_layer;
    bool copy, as_stored; /* model_placement */
    bool *used;           /* [tensors of the file] */
    bool *multiplied;     /* struct model; NULL: not a model's file */
    bool cache;           /* model_placement.cache_bytes */
    const uint64_t *uses; /* [n_layer][n_expert], or NULL */
    const bool *here;     /* [n_expert] of the layer: the routed experts that go to dev; NULL: all */
    struct model_weights *bytes;
    const struct dev_section *section; /* bind_heads() */
    int n_section;
};
/* A matrix ne0 -> ne1, ne2 of them, of any type. */
struct tensor bind_mat(struct binder *b, const char *name, int64_t ne0, int64_t ne1, int64_t ne2);
/* One whose rows are of heads: struct dev_pieces. */
struct tensor bind_heads(struct binder *b, const char *name, int64_t ne0, int64_t ne1, const struct dev_section *s,
                         int n);
/* A matrix that only op_embed() reads. by_ids: also with ids in the device's memory, so it is there, too. */
struct tensor bind_rows(struct binder *b, const char *name, int64_t ne0, int64_t ne1, bool by_ids);
/* As bind_rows, of a tensor that adapters do not change. */
struct tensor bind_table(struct binder *b, const char *name, int64_t ne0, int64_t ne1);
/* Routed experts. Returns those for the device; *host gets those that stay on the host. */
struct tensor bind_experts(struct binder *b, const char *name, int64_t ne0, int64_t ne1, int64_t n_expert,
                           struct tensor *host);
/* For op_moe.cached: these experts, which the CPU computes, are read as they are used. */
int bind_cached(struct binder *b, const struct op_moe *moe);
/* For op_moe.slot: which matrix belongs to which expert, for the experts on the device (there) or for the others. */
const int32_t *bind_slots(struct binder *b, int n_expert, bool there);
/* As bind_mat when the file has it, else data is NULL. */
struct tensor bind_mat_opt(struct binder *b, const char *name, int64_t ne0, int64_t ne1, int64_t ne2);
bool bind_has(const struct binder *b, const char *name);
/* n floats, whatever the tensor's dimensions. */
const float *bind_vec(struct binder *b, const char *name, int64_t n);
const float *bind_vec_opt(struct binder *b, const char *name, int64_t n);
/* n floats that are not in the file. */
const float *bind_own(struct binder *b, const char *name, const float *v, int64_t n);
/* `n` matrices [rows][columns] (a convolution's [channels][taps]), widened, transposed, side by side:
 * [columns][n * rows]. */
const float *bind_transposed(struct binder *b, const char *const *names, int n, int64_t columns, int64_t rows);

/* Tensors of n blocks from `first` on stay in the file. */
void bind_unread(const struct binder *b, int first, int n);
/* ERR_UNSUPPORTED: a tensor of the file was not asked for. */
enum err_code bind_all_used(const struct binder *b);

void model_bind_attn(struct layer_weights *l, const struct arch_plan *p, struct binder *b);
void model_bind_mla(struct layer_weights *l, const struct arch_plan *p, struct binder *b);
void model_bind_gdn(struct layer_weights *l, const struct arch_plan *p, struct binder *b);
void model_bind_kda(struct layer_weights *l, const struct arch_plan *p, struct binder *b);
void model_bind_ssm1(struct layer_weights *l, const struct arch_plan *p, struct binder *b);
void model_bind_ssm2(struct layer_weights *l, const struct arch_plan *p, struct binder *b);
void model_bind_conv(struct layer_weights *l, const struct arch_plan *p, struct binder *b);
void model_bind_streams(struct streams_weights *w, const struct arch_plan *p, const char *name, struct binder *b);
void model_bind_table(struct table_weights *w, const struct arch_plan *p, struct binder *b);
void model_bind_dense(struct dense_weights *w, const struct arch_plan *p, int n_ff, struct binder *b);
void model_bind_moe(struct moe_weights *w, const struct arch_plan *p, struct binder *b);

/* One step of the forward pass and what it works on. */
struct step {
    const struct model *m;
    struct dev *d; /* of the layer in hand */
    struct state *state;
    const struct op_rows *rows; /* of the piece in hand, whose first is row `first` of the step */
    int first;
    struct op_seq *choice; /* room for 2 * rows->n_seq, for attention that chooses blocks */
    int32_t *table_row;    /* [rows][heads of all orders] rows of the n-gram table; NULL: there is none */
    /* The rows that recurrent layers compute at a time. Usually this is all rows. If sequences append more rows than
     * undo keeps, the first part has their surplus rows (none of other sequences) and the second part all the rest; in
     * between, the base moves up. */
    int n_part;
    struct op_rows part[2];
    const struct model_adapt *adapt; /* forward.h; NULL: none */
    struct tensor beside;            /* with arch_plan.front: [n][2 n_embd], in its second half the rows' embeddings */
};

/* op_matmul() and op_matmuls(), plus what the step's adapters add. */
void model_mul(const struct step *s, struct tensor y, struct tensor w, struct tensor x);
void model_muls(const struct step *s, const struct op_product *p, int n, struct tensor x);
/* Only what the adapters add, for the lists of these rows; the second one for rows of the token embedding. The step
 * must have adapters. */
void model_adapt(const struct step *s, const struct op_terms *t, const struct op_product *p, int n, struct tensor x);
void model_adapt_embd(const struct step *s, struct tensor x, const int32_t *token);
/* What the adapters add to these experts, for op_moe.adapt; NULL: nothing. on_host: for a device whose memory is the
 * host's. */
struct moe_adapters {
    struct op_moe_adapt a;
    struct op_pair gate[OP_ADAPTERS_MAX], up[OP_ADAPTERS_MAX], down[OP_ADAPTERS_MAX];
};
const struct op_moe_adapt *model_adapt_moe(const struct step *s, const struct op_moe *moe, bool on_host,
                                           struct moe_adapters *room);

/* Recurrent layers: in holds everything that the rows add to the layer's memory (arch_plan_input_floats()).
 * model_scan_X() computes o from it, for the rows of one part, on the given memory. */
struct state_rec;
typedef void model_scan_fn(const struct step *s, int layer, const struct op_rows *part, const struct state_rec *mem,
                           struct tensor o, struct tensor in);
model_scan_fn model_scan_gdn, model_scan_kda, model_scan_ssm1, model_scan_ssm2, model_scan_conv;
model_scan_fn model_scan_table; /* in: all inputs of the layer, the table's last; o: streams * n_embd */
/* All parts of a step on the live memory. */
void model_scan(const struct step *s, int layer, model_scan_fn *scan, struct tensor o, struct tensor in);
/* A tensor for the convolution's results, for the part's rows and for the logged rows that are computed again. */
struct tensor model_mixed(const struct step *s, const struct op_rec *conv, const struct op_rows *part,
                          int64_t channels);
/* Call it between the parts of a step: sets the base to the live block. */
void model_part_done(const struct step *s, int layer, int part, bool conv, bool rec);
/* Call it before a step: makes room in the log of every sequence. */
void model_fold(const struct step *s);
/* Measures the scratch for computing logged rows again. */
void model_replay_measure(const struct step *s);

/* x += scale * (the outputs of the layer's mixers for norm(x)), then the same for its feed-forward. */
void model_layer(const struct step *s, int layer, struct tensor x);
/* y = a row of n_embd made of the streams x; a: what model_streams_add() takes, data NULL: nothing. */
void model_streams_mix(const struct step *s, const struct streams_weights *w, struct tensor y, struct tensor a,
                       struct tensor x);
/* The streams x += what the n-gram table has for the step's tokens. */
void model_add_table(const struct step *s, struct tensor x);
/* y = the part's output for normalised input x; the residual add is the caller's. With arch_plan.joined the output is
 * what the matrix behind both mixers takes. */
void model_mix_attn(const struct step *s, int layer, struct tensor y, struct tensor x);
void model_mix_mla(const struct step *s, int layer, struct tensor y, struct tensor x);
void model_mix_gdn(const struct step *s, int layer, struct tensor y, struct tensor x);
void model_mix_kda(const struct step *s, int layer, struct tensor y, struct tensor x);
void model_mix_ssm1(const struct step *s, int layer, struct tensor y, struct tensor x);
void model_mix_ssm2(const struct step *s, int layer, struct tensor y, struct tensor x);
void model_mix_conv(const struct step *s, int layer, struct tensor y, struct tensor x);
/* y = down(act(gate x) * (up x)), or down(act(up x)) without a gate; up_gated: see arch_plan */
void model_glu(const struct step *s, const struct dense_weights *w, struct tensor y, struct tensor x);
void model_ffn_dense(const struct step *s, int layer, struct tensor y, struct tensor x);
void model_ffn_moe(const struct step *s, int layer, struct tensor y, struct tensor x);
#endif
