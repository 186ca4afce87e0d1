/* SPDX-License-Identifier: Apache-2.0 */
/* table.h - what a device fills in; seen by devices and by dev.c and ops.c only.   room: ops */
#ifndef OPS_TABLE_H
#define OPS_TABLE_H
#include "ops/ops.h"

/* clang-format off */
#define DEV_OPS(X) \
    X(embed) X(matmul) X(rms_norm) X(rms_norm_gated) X(add) X(add_gated) X(glu) X(geglu) X(relu2) \
    X(sigmoid_mul) X(mul) X(scale) X(rows_pick) X(heads_pick) X(rope) X(hadamard) X(kv_store) X(attn) X(conv) X(gdn) \
    X(kda) X(ssm1) X(ssm2) X(route) X(moe) X(moe_pairs) X(moe_sum) X(hand_out) X(hand_in) X(tally) X(top) \
    X(adapt) X(silu) X(streams_mix) X(streams_add) X(streams_gate) X(index_store) X(index_pick) X(attn_picked)
/* clang-format on */

enum dev_op {
#define X(name) DEV_OP_##name,
    DEV_OPS(X)
#undef X
        DEV_OP_N
};

/* Same contracts as ops.h; shapes have been checked. The context is the device's own. */
struct dev_table {
    void (*embed)(void *c, struct tensor y, struct tensor w, const int32_t *token, const struct op_ids *ids,
                  float scale);
    void (*matmul)(void *c, struct tensor y, struct tensor w, struct tensor x);
    void (*matmuls)(void *c, const struct op_product *p, int n, struct tensor x); /* or NULL: matmul of each */
    void (*rms_norm)(void *c, struct tensor y, struct tensor x, const float *w, int64_t n_w, int64_t group, float eps);
    void (*rms_norm_gated)(void *c, struct tensor y, struct tensor x, struct tensor z, const float *w, int64_t n_w,
                           int64_t group, float eps);
    void (*add)(void *c, struct tensor y, struct tensor x, float s);
    void (*add_gated)(void *c, struct tensor y, struct tensor x, struct tensor g);
    void (*glu)(void *c, struct tensor y, struct tensor gate, struct tensor up);
    void (*geglu)(void *c, struct tensor y, struct tensor gate, struct tensor up);
    void (*relu2)(void *c, struct tensor y);
    void (*sigmoid_mul)(void *c, struct tensor y, struct tensor g);
    void (*mul)(void *c, struct tensor y, struct tensor x);
    void (*scale)(void *c, struct tensor y, float s);
    void (*silu)(void *c, struct tensor y, float s);
    void (*streams_mix)(void *c, struct tensor y, struct tensor x, struct tensor g);
    void (*streams_add)(void *c, struct tensor x, struct tensor y, struct tensor a);
    void (*streams_gate)(void *c, struct tensor y, struct tensor key, struct tensor query, struct tensor value);
    void (*index_store)(void *c, struct tensor k, const struct op_kv *kv, const struct op_index *a,
                        const struct op_rows *r);
    void (*index_pick)(void *c, int32_t *pick, struct tensor q, const struct op_kv *kv, const struct op_index *a,
                       const struct op_rows *r);
    void (*attn_picked)(void *c, struct tensor y, struct tensor q, const int32_t *pick, const struct op_kv *kv,
                        float scale, const struct op_index *a, const struct op_rows *r);
    void (*rows_pick)(void *c, struct tensor y, struct tensor x, const int32_t *row);
    void (*heads_pick)(void *c, struct tensor y, struct tensor x, int64_t dim, int64_t pitch, int64_t first);
    void (*rope)(void *c, struct tensor x, const struct op_rope *a, const struct op_rows *r);
    void (*hadamard)(void *c, struct tensor y, struct tensor x, int64_t dim);
    void (*kv_store)(void *c, struct tensor k, struct tensor v, const struct op_kv *kv, const struct op_rows *r);
    void (*attn)(void *c, struct tensor y, struct tensor q, const struct op_kv *kv, float scale,
                 const struct op_rows *r);
    void (*conv)(void *c, struct tensor y, struct tensor x, const struct op_conv *a, const struct op_rows *r);
    void (*gdn)(void *c, struct tensor y, struct tensor qkv, struct tensor alpha, struct tensor beta,
                const struct op_gdn *a, const struct op_rows *r);
    void (*kda)(void *c, struct tensor y, struct tensor qkv, struct tensor decay, struct tensor beta,
                const struct op_kda *a, const struct op_rows *r);
    void (*ssm1)(void *c, struct tensor y, struct tensor x, struct tensor dt, struct tensor b, struct tensor cc,
                 const struct op_ssm1 *a, const struct op_rows *r);
    void (*ssm2)(void *c, struct tensor y, struct tensor xbc, struct tensor dt, const struct op_ssm2 *a,
                 const struct op_rows *r);
    void (*route)(void *c, int32_t *expert, struct tensor weight, struct tensor logits, const struct op_route *a);
    void (*moe)(void *c, struct tensor y, struct tensor x, const struct op_moe *a);
    void (*moe_pairs)(void *c, struct tensor out, struct tensor x, const struct op_moe *a);
    void (*moe_sum)(void *c, struct tensor y, struct tensor out, struct tensor weight);
    void (*hand_out)(void *c, struct tensor x, const int32_t *expert, const struct op_hand *h);
    void (*hand_in)(void *c, struct tensor out, struct tensor x, const int32_t *expert, const struct op_hand *h);
    void (*tally)(void *c, uint64_t *count, int n_expert, const int32_t *expert, int64_t n);
    void (*top)(void *c, void *out, struct tensor logits, const struct op_top *a);
    void (*adapt)(void *c, const struct op_adapt *a, int n, struct tensor x, const int32_t *token,
                  const struct op_terms *t); /* NULL: it has no adapters */

    /* Measuring: either measure(true) is called, then the operations as if to compute (data are NULL), and the device
     * notes the memory that it will need, which reserve() takes (false: there is none); or measure is NULL, and these
     * return the bytes of scratch that the device takes for the duration of such a call; NULL: none. */
    void (*measure)(void *c, bool on);
    bool (*reserve)(void *c);
    size_t (*embed_need)(void *c, struct tensor y, struct tensor w);
    size_t (*matmul_need)(void *c, struct tensor y, struct tensor w, struct tensor x);
    size_t (*matmuls_need)(void *c, const struct op_product *p, int n, struct tensor x);
    size_t (*attn_need)(void *c, struct tensor y, struct tensor q, const struct op_kv *kv, const struct op_rows *r);
    size_t (*index_need)(void *c, const struct op_kv *kv, const struct op_index *a, const struct op_rows *r);
    size_t (*scan_need)(void *c, const struct op_rec *rec, int64_t block); /* of gdn, kda, ssm1, ssm2 */
    size_t (*route_need)(void *c, struct tensor logits);
    size_t (*top_need)(void *c, struct tensor logits);
    size_t (*adapt_need)(void *c, const struct op_adapt *a, int n, const struct op_terms *t);
    size_t (*moe_need)(void *c, struct tensor y, struct tensor x, const struct op_moe *a);

    const void *(*weights)(void *c, const void *host, size_t n);
    const void *(*weights_rows)(void *c, const void *host, size_t n); /* NULL: as weights */
    const void *(*weights_some)(void *c, const void *host, size_t piece_bytes, int64_t n, const bool *keep);
    const void *(*weights_pieces)(void *c, const struct dev_pieces *v); /* NULL: weights or weights_some */
    /* NULL: those, which copy. */
    const void *(*weights_copy)(void *c, const struct dev_pieces *v, bool *laid);
    bool (*reserve_weights)(void *c, size_t n); /* NULL: as they come */
    /* All NULL: it has no cache of experts. */
    int (*cache_layer)(void *c, const struct dev_cached *l);
    enum err_code (*cache_open)(void *c, size_t bytes, struct err *e);
    bool (*cache_stats)(void *c, struct io_cache_stats *out);
    size_t (*held)(void *c);
    struct dev_memory (*memory)(void *c);
    bool is_host;
    void *(*alloc)(void *c, size_t n);
    void *(*alloc_areas)(void *c, const struct dev_area *a, int n); /* NULL: alloc of all */
    void (*free)(void *c, void *p, size_t n);
    void (*released)(void *c, size_t used);        /* scratch behind that; NULL: it does not look at addresses */
    void (*begin)(void *c);                        /* NULL: nothing to do */
    void (*submit)(void *c);                       /* NULL: it does not record */
    void (*awake)(void *c, bool on);               /* NULL: no threads */
    void (*may_stop)(void *c, bool (*stop)(void)); /* NULL: never */
    bool (*stopped)(void *c);
    enum err_code (*end)(void *c, struct err *e); /* NULL: nothing is left to do */
    void (*leave)(void *c);                       /* NULL: as end */
    /* All NULL: it computes at once. */
    bool (*lanes)(void *c, int n);       /* false: there is no memory */
    void (*begin_in)(void *c, int lane); /* also while measuring */
    enum err_code (*launch)(void *c, struct err *e);
    enum err_code (*land)(void *c, int lane, struct err *e);
    void (*zero)(void *c, void *p, size_t n);
    void (*copy)(void *c, void *to, const void *from, size_t n);
    /* to: another device with this table. NULL: its memory is the host's, and `to` copies. */
    void (*pass)(void *from, void *to, struct tensor y, struct tensor x);
    void (*fetch)(void *c, void *to, const void *from, size_t n); /* NULL: as copy */
    void (*close)(void *c);
    const char *(*simd)(void *c);
    int (*threads)(void *c);
    enum err_code (*read_speed)(void *c, size_t n, double *bytes_per_s, int reps, struct err *e);
    /* Devices whose calls return before the work is done measure themselves; all NULL: calls are timed. */
    void (*time)(void *c, bool on);
    uint64_t (*time_ns)(void *c, enum dev_op op);
    int (*launched)(void *c, struct dev_launched *out, int max); /* NULL: it has no launches */
    uint64_t (*graphs)(void *c);                                 /* NULL: it makes none */
    uint64_t (*kernels)(void *c);                                /* NULL: it has no table of them */
};

/* Contents for read_speed: word i of a buffer of 64-bit words is i * DEV_READ_WORD, and the exclusive or of the
 * first n (even) of them is dev_read_sum(n). */
#define DEV_READ_WORD 0x9e3779b97f4a7c15u
uint64_t dev_read_sum(uint64_t n);

/* devs.def: a device's opener. *dev is the device itself, for its scratch. */
struct dev_impl {
    const struct dev_table *table;
    void *ctx;
};
typedef enum err_code dev_opener(struct dev_impl *out, struct dev *dev, const struct dev_opts *o, struct err *e);
/* check.c: the device "check:" before the name of the one to test. */
MUST_CHECK enum err_code dev_check_open(struct dev_impl *out, const char *name, const struct dev_opts *o,
                                        struct err *e);
/* absent.c: dry runs of a GPU, of which the program has no code. */
MUST_CHECK enum err_code dev_absent_open(struct dev_impl *out, struct err *e);
#ifdef CHIMERE_TEST
struct dev_impl *dev_test_impl(struct dev *d); /* for a test to break */
struct dev *dev_test_tested(struct dev *d);    /* of a check device: what it tests */
#endif
#define DEV(name) dev_opener name##_dev_open;
#include "ops/devs.def"
#undef DEV
#endif
