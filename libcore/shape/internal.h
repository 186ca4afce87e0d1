/* SPDX-License-Identifier: Apache-2.0 */
/* internal.h - inside the room shape: a row of the table, a shape that was opened. */
#ifndef SHAPE_INTERNAL_H
#define SHAPE_INTERNAL_H
#include "shape/shape.h"

struct row {
    const char *name, *arch, *pattern;
    int n_layer, n_embd, n_vocab, ctx;
    int n_head, n_head_kv, dim; /* attention: elements in a head */
    int n_rot;                  /* rotated elements of a head; 0: no positions */
    float rope_base, eps;
    int n_ff; /* dense feed-forward */
    int n_expert, n_used, n_ff_exp, n_ff_shared;
    float expert_scale;                                    /* 0: none */
    int n_latent;                                          /* width of the space that experts work in; 0: the model's */
    int n_dense;                                           /* leading layers with a dense feed-forward */
    int exp_groups, exp_groups_used;                       /* 0: experts are in no groups */
    int rank_q, rank_kv;                                   /* latent attention; rank_q 0: queries are not compressed */
    int inner, n_state, n_group, n_rec_head;               /* recurrent layers */
    int streams, stream_rank;                              /* hyper-connections; 0: none */
    int index_heads, index_dim, index_budget, index_ratio; /* attention over chosen blocks */
    int table, table_heads, ngram; /* of n-grams, before layer 1: rows of each head, heads of each order; 0: none */
    bool tied;                     /* the output is the embedding */
    float embd_scale, residual_scale, logit_scale, attn_scale; /* 0: not in the file */
};

struct shape {
    struct row row;
    int type[16]; /* by role of a matrix */
    double skew;  /* of the router's choices; 0: even */
    struct shape_tensor *tensor;
    size_t n, room;
    bool failed;
};

char shape_letter(const struct row *r, int layer); /* of the pattern */
/* A table of n-grams: heads of all orders, 0: there is none; the first row of a head, or behind the last one. */
enum { SHAPE_TABLE_LAYER = 1 };
int shape_table_heads(const struct row *r);
int64_t shape_table_first(const struct row *r, int head);

/* Random rows of a type, root mean square 1 / sqrt(ne0); shape_can_fill() says for which types. */
bool shape_can_fill(int type);
MUST_CHECK enum err_code shape_fill(unsigned char *rows, int type, int64_t ne0, int64_t n_rows, uint64_t seed,
                                    struct err *e);
#endif
