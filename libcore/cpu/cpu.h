/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.h - inside the CPU device: its context and its operations.       room: cpu
 *
 * Work is cut into pieces by rows, heads or experts and given to one pool; pieces write by index and share
 * no sums, so results do not depend on the thread count.
 */
#ifndef CPU_CPU_H
#define CPU_CPU_H
#include <stdatomic.h>
#include "base/pool.h"
#include "base/softmax.h"
#include "cpu/acts8.h"
#include "cpu/acts16.h"
#include "cpu/kernels.h"
#include "cpu/scans.h"
#include "ops/table.h"
#include "quant/quant.h"

struct cpu {
    struct dev *dev; /* for its scratch */
    struct pool *pool;
    const struct cpu_kernels *kern;
    const struct cpu_scans *scan;
    quant_decode_fn *decode[QUANT_N]; /* fastest for this processor */
    const struct cpu_ints *ints;
    const struct cpu_bytes *bytes;      /* with activations of 8 bits */
    cpu_lay_fn *lay[QUANT_N];           /* what they take as laid out rows; NULL: rows as stored */
    cpu_ints_fn *int_decode[QUANT_N];   /* NULL: products of floats */
    cpu_int_dots_fn *int_dots[QUANT_N]; /* NULL: through a panel */
    cpu_int_two_fn *int_two[QUANT_N];   /* NULL: likewise */
    cpu_int_tile_fn *int_tile[QUANT_N]; /* NULL: likewise */
    enum quant_acts_type acts;
    cpu_round_fn *round;
    size_t held;        /* dev_held() */
    bool (*stop)(void); /* dev_may_stop() */
    atomic_bool stopped;
    bool dry_run;            /* dev_opts */
    struct cpu_copy *copies; /* of weights */
    struct cpu_cache *cache; /* of experts (cache.h); NULL: none */
    struct err failed;       /* in this step; code ERR_OK: nothing */
    const struct softmax_kernels *soft;
};

/* Whether the step was aborted: long loops check it now and then, and after that only keep numbers finite. */
bool cpu_stopped(const struct cpu *c);

/* Row r of float rows. */
static inline float *cpu_row(struct tensor t, int64_t r)
{
    return (float *)t.data + r * t.stride;
}

/* Rows of a recurrent layer's sequence s, the i-th of the step: at counts from its first row in the step; those before
 * it are computed again. Where its inputs are logged; which row of the convolution's it is; and how many may go
 * together from there on, at most `most`. */
static inline float *cpu_log_row(const struct op_rec *rec, const struct op_seq *s, int at)
{
    return rec->log.data + s->slot * rec->log.floats + (s->pos + at) % rec->log.rows * rec->log.width;
}
static inline int64_t cpu_scan_row(const struct op_rec *rec, const struct op_rows *r, int i, int at)
{
    const struct op_seq *s = &r->seq[i];

    return at >= 0 ? s->row + at : r->n + (int64_t)i * rec->log.most + s->again + at;
}
static inline int cpu_scan_some(const struct op_seq *s, int at, int most)
{
    int certain = s->n - s->drafts, end = at < 0 ? 0 : at < certain ? certain : s->n;

    return end - at < most ? end - at : most;
}
/* What a worker has of its own in a scan with a log: a copy of a block of memory for draft rows, and room for results
 * that nobody asked for. */
enum { CPU_SCAN_ROWS = 16, CPU_SCAN_DIM = 1024 };
size_t cpu_scan_need(void *ctx, const struct op_rec *rec, int64_t block);
struct cpu_scan_room {
    float *at;
    int64_t floats, block; /* of a worker */
};
struct cpu_scan_room cpu_scan_take(struct cpu *c, const struct op_rec *rec, int64_t block);
static inline float *cpu_scan_copy(const struct cpu_scan_room *m, int worker)
{
    return m->at + worker * m->floats;
}
static inline float *cpu_scan_waste(const struct cpu_scan_room *m, int worker)
{
    return cpu_scan_copy(m, worker) + m->block;
}

/* Pieces of items so that each is worth about `cost` floating point operations or more, and every thread
 * gets a few; a multiple of `unit`. */
int64_t cpu_grain(const struct cpu *c, int64_t items, int64_t item_cost, int64_t unit);

/* Rows w0 .. w0 + n - 1 of matrix w (expert `e`), as floats n * ne[0]: the mapping itself for f32,
 * else decoded into buf. */
/* weight rows decoded at a time: as floats, as whole numbers */
enum { CPU_PANEL = 16, CPU_INT_PANEL = 48 };
const float *cpu_weights(const struct cpu *c, struct tensor w, int64_t e, int64_t w0, int n, float *buf);
/* Rows x[j], j < n, of k elements rounded for a product with weights of this type (format.h); NULL where it
 * takes floats. In scratch: cpu_acts_need() bytes. */
const struct cpu_act_block **cpu_acts(const struct cpu *c, int type, const float *const *x, int64_t n, int64_t k);
size_t cpu_acts_need(const struct cpu *c, int type, int64_t n, int64_t k);
/* The same without the rounding, of which cpu_round() does a row. */
struct cpu_act_block **cpu_acts_room(const struct cpu *c, int type, int64_t n, int64_t k);
void cpu_round(const struct cpu *c, struct cpu_act_block *a, const float *x, int64_t k, int type);
/* y[j][r] = <row r of w (expert e), x[j]> for at <= r < at + n, j < nx; buf: cpu_panel_floats(c, ne[0]), 64-byte
 * aligned */
int64_t cpu_panel_floats(const struct cpu *c, int64_t k);
struct cpu_rows {
    float *const *y;
    const float *const *x;
    const struct cpu_act_block *const *acts; /* of x, for the type of w */
    int n;
    const char *next;            /* weights that are multiplied after these, where that is known */
    struct cpu_bytes_kept *kept; /* of the worker's buf, or NULL */
};
void cpu_product(const struct cpu *c, struct cpu_rows v, struct tensor w, int64_t e, int64_t at, int64_t n, float *buf);

void cpu_embed(void *ctx, struct tensor y, struct tensor w, const int32_t *token, const struct op_ids *ids,
               float scale);
void cpu_matmul(void *ctx, struct tensor y, struct tensor w, struct tensor x);
size_t cpu_matmul_need(void *ctx, struct tensor y, struct tensor w, struct tensor x);
void cpu_matmuls(void *ctx, const struct op_product *p, int n, struct tensor x);
size_t cpu_matmuls_need(void *ctx, const struct op_product *p, int n, struct tensor x);
/* Whether products with weights of these types take the same activations. */
bool cpu_same_acts(const struct cpu *c, int a, int b);
void cpu_rms_norm(void *ctx, struct tensor y, struct tensor x, const float *w, int64_t n_w, int64_t group, float eps);
void cpu_rms_norm_gated(void *ctx, struct tensor y, struct tensor x, struct tensor z, const float *w, int64_t n_w,
                        int64_t group, float eps);
void cpu_add(void *ctx, struct tensor y, struct tensor x, float s);
void cpu_add_gated(void *ctx, struct tensor y, struct tensor x, struct tensor g);
void cpu_glu(void *ctx, struct tensor y, struct tensor gate, struct tensor up);
void cpu_geglu(void *ctx, struct tensor y, struct tensor gate, struct tensor up);
void cpu_relu2(void *ctx, struct tensor y);
void cpu_act(const struct cpu *c, float *y, const float *gate, const float *up, int64_t n, enum op_act act);
void cpu_sigmoid_mul(void *ctx, struct tensor y, struct tensor g);
void cpu_silu(void *ctx, struct tensor y, float s);
void cpu_streams_mix(void *ctx, struct tensor y, struct tensor x, struct tensor g);
void cpu_streams_add(void *ctx, struct tensor x, struct tensor y, struct tensor a);
void cpu_streams_gate(void *ctx, struct tensor y, struct tensor key, struct tensor query, struct tensor value);
void cpu_rows_pick(void *ctx, struct tensor y, struct tensor x, const int32_t *row);
void cpu_heads_pick(void *ctx, struct tensor y, struct tensor x, int64_t dim, int64_t pitch, int64_t first);
void cpu_rope(void *ctx, struct tensor x, const struct op_rope *a, const struct op_rows *r);
/* Rows begin .. end - 1 of it, by the calling thread. */
void cpu_rope_rows(struct tensor x, const struct op_rope *a, const int32_t *pos, int64_t begin, int64_t end);
void cpu_hadamard(void *ctx, struct tensor y, struct tensor x, int64_t dim);
void cpu_kv_store(void *ctx, struct tensor k, struct tensor v, const struct op_kv *kv, const struct op_rows *r);
void cpu_attn(void *ctx, struct tensor y, struct tensor q, const struct op_kv *kv, float scale,
              const struct op_rows *r);
void cpu_attn_picked(void *ctx, struct tensor y, struct tensor q, const int32_t *pick, const struct op_kv *kv,
                     float scale, const struct op_index *a, const struct op_rows *r);
void cpu_index_store(void *ctx, struct tensor k, const struct op_kv *kv, const struct op_index *a,
                     const struct op_rows *r);
void cpu_index_pick(void *ctx, int32_t *pick, struct tensor q, const struct op_kv *kv, const struct op_index *a,
                    const struct op_rows *r);
size_t cpu_index_need(void *ctx, const struct op_kv *kv, const struct op_index *a, const struct op_rows *r);
/* Where a page has an indexer's key. */
unsigned char *cpu_index_at(const struct op_kv *kv, int slot, int64_t pos);
size_t cpu_attn_need(void *ctx, struct tensor y, struct tensor q, const struct op_kv *kv, const struct op_rows *r);
void cpu_conv(void *ctx, struct tensor y, struct tensor x, const struct op_conv *a, const struct op_rows *r);
void cpu_gdn(void *ctx, struct tensor y, struct tensor qkv, struct tensor alpha, struct tensor beta,
             const struct op_gdn *a, const struct op_rows *r);
void cpu_mul(void *ctx, struct tensor y, struct tensor x);
void cpu_scale(void *ctx, struct tensor y, float s);
void cpu_kda(void *ctx, struct tensor y, struct tensor qkv, struct tensor decay, struct tensor beta,
             const struct op_kda *a, const struct op_rows *r);
void cpu_ssm1(void *ctx, struct tensor y, struct tensor x, struct tensor dt, struct tensor b, struct tensor c,
              const struct op_ssm1 *a, const struct op_rows *r);
void cpu_ssm2(void *ctx, struct tensor y, struct tensor xbc, struct tensor dt, const struct op_ssm2 *a,
              const struct op_rows *r);
/* y = x / sqrt(sum of squares + eps) * s */
void cpu_l2_norm(const struct cpu *c, float *y, const float *x, int n, float eps, float s);
void cpu_route(void *ctx, int32_t *expert, struct tensor weight, struct tensor logits, const struct op_route *a);
size_t cpu_route_need(void *ctx, struct tensor logits);
size_t cpu_top_need(void *ctx, struct tensor logits);
void cpu_top(void *ctx, void *out, struct tensor logits, const struct op_top *a);
struct cpu_adapt_rows {
    float *const *h, *const *y;
    const float *const *x;
    int n; /* at most CPU_ADAPT_ROWS */
};
enum { CPU_ADAPT_ROWS = 24 };
void cpu_adapt(void *ctx, const struct op_adapt *a, int n, struct tensor x, const int32_t *token,
               const struct op_terms *t);
size_t cpu_adapt_need(void *ctx, const struct op_adapt *a, int n, const struct op_terms *t);
/* The two halves for rows x[i], i < n, whose lists are that of row `row`, in matrix mat. h[i]: a x of all terms, one
 * after the other, scaled: numbers from .. to - 1 of them. Then outputs at .. at + n_y - 1 of y[i] get theirs. */
void cpu_adapt_in(const struct cpu *c, const struct op_adapt *a, const struct op_terms *t, int64_t row, int64_t mat,
                  struct cpu_adapt_rows v, int64_t n_in, int from, int to);
void cpu_adapt_out(const struct cpu *c, const struct op_adapt *a, const struct op_terms *t, int64_t row, int64_t mat,
                   struct cpu_adapt_rows v, int64_t at, int64_t n_y);
void cpu_moe(void *ctx, struct tensor y, struct tensor x, const struct op_moe *a);
void cpu_moe_pairs(void *ctx, struct tensor out, struct tensor x, const struct op_moe *a);
void cpu_moe_sum(void *ctx, struct tensor y, struct tensor out, struct tensor weight);
void cpu_hand_out(void *ctx, struct tensor x, const int32_t *expert, const struct op_hand *h);
void cpu_hand_in(void *ctx, struct tensor out, struct tensor x, const int32_t *expert, const struct op_hand *h);
void cpu_tally(void *ctx, uint64_t *count, int n_expert, const int32_t *expert, int64_t n);
size_t cpu_moe_need(void *ctx, struct tensor y, struct tensor x, const struct op_moe *a);
const void *cpu_weights_copy(void *ctx, const struct dev_pieces *v, bool *laid);
void cpu_free_copies(struct cpu *c);
enum err_code cpu_read_speed(void *ctx, size_t n, double *bytes_per_s, int reps, struct err *e);
#endif
