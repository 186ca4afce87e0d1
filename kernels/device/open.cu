/* SPDX-License-Identifier: Apache-2.0 */
/* open.cu - opens the CUDA device; turns each operation into a recorded node; the table of operations. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/adapt/adapt.cuh"
#include "kernels/device/record.cuh"
extern "C" {
#include "quant/iq_grids.h"
}

enum { STACK = 256 }; /* bytes of each thread */

void cuda_fail(struct cuda *c, cudaError_t e, const char *where)
{
    if (e == cudaSuccess || c->bad != cudaSuccess)
        return;
    c->bad = e;
    c->bad_at = where;
}

/* On the device's own stream: no other waits for it, so that a cudaMemcpy() or cudaMemset(), which may return before
 * its bytes have arrived, could be overtaken by the kernels that read them. */
static void cuda_move(struct cuda *c, void *to, const void *from, size_t n)
{
    TRY(c, cudaMemcpyAsync(to, from, n, cudaMemcpyDefault, c->stream));
    TRY(c, cudaStreamSynchronize(c->stream));
}

static void begin_step(struct cuda *c)
{
    cuda_flush(c);
    c->in_step = true;
}

enum err_code cuda_failed(const struct cuda *c, struct err *e)
{
    if (c->bad == cudaSuccess)
        return ERR_OK;
    return err_set(e, c->bad == cudaErrorMemoryAllocation ? ERR_NOMEM : ERR_DEVICE, "cuda:%d: %s (%s)", c->id,
                   cudaGetErrorString(c->bad), c->bad_at);
}

static enum err_code end_step(struct cuda *c, struct err *e)
{
    cuda_flush(c);
    c->in_step = false;
    return cuda_failed(c, e);
}

static enum err_code launch_step(struct cuda *c, struct err *e)
{
    cuda_launch(c);
    c->in_step = false;
    return cuda_failed(c, e);
}

static enum err_code land_step(struct cuda *c, int lane, struct err *e)
{
    cuda_land(c, lane);
    return cuda_failed(c, e);
}

static void leave_step(struct cuda *c)
{
    cuda_submit(c);
    c->in_step = false;
}

static bool on_device(const void *p)
{
    cudaPointerAttributes a;

    if (cudaPointerGetAttributes(&a, p) != cudaSuccess) {
        (void)cudaGetLastError();
        return false;
    }
    return a.type == cudaMemoryTypeDevice;
}

static void record_zero(struct cuda *c, void *p, size_t n)
{
    if (c->dry_run)
        return;
    struct node *v = cuda_record(c, NODE_ZERO);
    v->out = p;
    v->n = n;
    cuda_recorded(c);
}

static void record_copy(struct cuda *c, void *to, const void *from, size_t n)
{
    if (c->dry_run)
        return;
    (void)cudaSetDevice(c->id);
    if (on_device(to) && on_device(from)) {
        struct node *v = cuda_record(c, NODE_COPY);

        v->out = to;
        v->p[0] = from;
        v->n = n;
        cuda_recorded(c);
        return;
    }
    cuda_flush(c);
    if (c->bad == cudaSuccess)
        cuda_move(c, to, from, n);
}

static void fetch(struct cuda *c, void *to, const void *from, size_t n)
{
    if (!cuda_fetch(c, to, from, n))
        record_copy(c, to, from, n);
}

/* ---- operations ---- */

/* Those that take nothing but tensors, or a factor. */
template <int OP> static void of_two(struct cuda *c, struct tensor y, struct tensor x)
{
    rec2(c, OP, y, x);
    cuda_recorded(c);
}

template <int OP> static void of_three(struct cuda *c, struct tensor y, struct tensor x, struct tensor z)
{
    set_tensor(&rec2(c, OP, y, x)->t[2], z);
    cuda_recorded(c);
}

template <int OP> static void of_factor(struct cuda *c, struct tensor y, float s)
{
    rec1(c, OP, y)->f[0] = s;
    cuda_recorded(c);
}

static constexpr auto op_sigmoid_mul_ = of_two<DEV_OP_sigmoid_mul>;
static constexpr auto op_mul_ = of_two<DEV_OP_mul>;
static constexpr auto op_matmul_ = of_three<DEV_OP_matmul>;
static constexpr auto op_add_gated_ = of_three<DEV_OP_add_gated>;
static constexpr auto op_glu_ = of_three<DEV_OP_glu>;
static constexpr auto op_geglu_ = of_three<DEV_OP_geglu>;
static constexpr auto op_moe_sum_ = of_three<DEV_OP_moe_sum>;
static constexpr auto op_streams_mix_ = of_three<DEV_OP_streams_mix>;
static constexpr auto op_streams_add_ = of_three<DEV_OP_streams_add>;
static constexpr auto op_scale_ = of_factor<DEV_OP_scale>;
static constexpr auto op_silu_ = of_factor<DEV_OP_silu>;

static void op_relu2_(struct cuda *c, struct tensor y)
{
    rec1(c, DEV_OP_relu2, y);
    cuda_recorded(c);
}

static void op_embed_(struct cuda *c, struct tensor y, struct tensor w, const int32_t *token, const struct op_ids *ids,
                      float scale)
{
    bool gather = cuda_is_lookup(c, w.data);

    if (gather && ids != NULL) {
        cuda_fail(c, cudaErrorInvalidValue, "embed: a matrix on the host, ids on the device");
        return;
    }
    if (gather)
        w.data = cuda_look_up(c, w.data, (size_t)quant_row_bytes(w.type, w.ne[0]), token, y.ne[1]);
    struct node *v = rec2(c, DEV_OP_embed, y, w);
    v->p[0] = gather ? NULL : cuda_stage(c, AS_TOKENS, token, (size_t)y.ne[1] * sizeof *token);
    v->p[1] = ids != NULL ? ids->at : NULL;
    v->n = ids != NULL ? (size_t)ids->stride : 0;
    v->f[0] = scale;
    cuda_recorded(c);
}

static void op_rms_norm_(struct cuda *c, struct tensor y, struct tensor x, const float *w, int64_t n_w, int64_t group,
                         float eps)
{
    struct node *v = rec2(c, DEV_OP_rms_norm, y, x);

    v->p[0] = w;
    v->i[0] = (int)n_w;
    v->i[1] = (int)group;
    v->f[0] = eps;
    cuda_recorded(c);
}

static void op_rms_norm_gated_(struct cuda *c, struct tensor y, struct tensor x, struct tensor z, const float *w,
                               int64_t n_w, int64_t group, float eps)
{
    struct node *v = rec2(c, DEV_OP_rms_norm_gated, y, x);

    set_tensor(&v->t[2], z);
    v->p[0] = w;
    v->i[0] = (int)n_w;
    v->i[1] = (int)group;
    v->f[0] = eps;
    cuda_recorded(c);
}

static void op_add_(struct cuda *c, struct tensor y, struct tensor x, float s)
{
    rec2(c, DEV_OP_add, y, x)->f[0] = s;
    cuda_recorded(c);
}

static void op_rows_pick_(struct cuda *c, struct tensor y, struct tensor x, const int32_t *row)
{
    struct node *v = rec2(c, DEV_OP_rows_pick, y, x);

    v->p[0] = cuda_stage(c, AS_PICKS, row, (size_t)y.ne[1] * sizeof *row);
    cuda_recorded(c);
}

static void op_heads_pick_(struct cuda *c, struct tensor y, struct tensor x, int64_t dim, int64_t pitch, int64_t first)
{
    struct node *v = rec2(c, DEV_OP_heads_pick, y, x);

    v->i[0] = (int)dim;
    v->i[1] = (int)pitch;
    v->i[2] = (int)first;
    cuda_recorded(c);
}

static void op_rope_(struct cuda *c, struct tensor x, const struct op_rope *a, const struct op_rows *r)
{
    struct node *v = rec1(c, DEV_OP_rope, x);

    v->rope.dim = a->dim;
    v->rope.n_rot = a->n_rot;
    v->rope.freq = a->freq;
    v->rope.pairs = a->pairs;
    v->rope.first = a->first;
    v->r = cuda_stage_rows(c, r);
    cuda_recorded(c);
}

static void op_hadamard_(struct cuda *c, struct tensor y, struct tensor x, int64_t dim)
{
    rec2(c, DEV_OP_hadamard, y, x)->i[0] = (int)dim;
    cuda_recorded(c);
}

static void op_kv_store_(struct cuda *c, struct tensor k, struct tensor v, const struct op_kv *kv,
                         const struct op_rows *r)
{
    set_kv(c, rec2(c, DEV_OP_kv_store, k, v), kv, r);
    cuda_recorded(c);
}

static void op_attn_(struct cuda *c, struct tensor y, struct tensor q, const struct op_kv *kv, float scale,
                     const struct op_rows *r)
{
    struct node *v = rec2(c, DEV_OP_attn, y, q);

    v->f[0] = scale;
    set_kv(c, v, kv, r);
    cuda_recorded(c);
}

static void op_conv_(struct cuda *c, struct tensor y, struct tensor x, const struct op_conv *a, const struct op_rows *r)
{
    struct node *v = rec2(c, DEV_OP_conv, y, x);

    v->conv.taps = a->taps;
    v->conv.w = a->w;
    v->conv.bias = a->bias;
    v->conv.silu = a->silu;
    v->conv.apart = a->apart;
    set_rec(&v->conv.rec, a->rec);
    v->r = cuda_stage_rows(c, r);
    cuda_recorded(c);
}

static void op_gdn_(struct cuda *c, struct tensor y, struct tensor qkv, struct tensor alpha, struct tensor beta,
                    const struct op_gdn *a, const struct op_rows *r)
{
    struct node *v = rec2(c, DEV_OP_gdn, y, qkv);

    set_tensor(&v->t[2], alpha);
    set_tensor(&v->t[3], beta);
    v->gdn.n_k = a->n_k;
    v->gdn.n_v = a->n_v;
    v->gdn.dim = a->dim;
    v->gdn.dim_v = a->dim_v;
    v->gdn.k_grouped = a->k_grouped;
    v->gdn.eps = a->eps;
    v->gdn.a = a->a;
    v->gdn.dt_bias = a->dt_bias;
    set_rec(&v->gdn.rec, a->rec);
    v->r = cuda_stage_rows(c, r);
    cuda_recorded(c);
}

static void op_kda_(struct cuda *c, struct tensor y, struct tensor qkv, struct tensor decay, struct tensor beta,
                    const struct op_kda *a, const struct op_rows *r)
{
    struct node *v = rec2(c, DEV_OP_kda, y, qkv);

    set_tensor(&v->t[2], decay);
    set_tensor(&v->t[3], beta);
    v->kda.n_head = a->n_head;
    v->kda.dim = a->dim;
    v->kda.eps = a->eps;
    v->kda.a = a->a;
    v->kda.dt_bias = a->dt_bias;
    set_rec(&v->kda.rec, a->rec);
    v->kda.bound = a->bound;
    v->r = cuda_stage_rows(c, r);
    cuda_recorded(c);
}

static void op_ssm1_(struct cuda *c, struct tensor y, struct tensor x, struct tensor dt, struct tensor b,
                     struct tensor cc, const struct op_ssm1 *a, const struct op_rows *r)
{
    struct node *v = rec2(c, DEV_OP_ssm1, y, x);

    set_tensor(&v->t[2], dt);
    set_tensor(&v->t[3], b);
    set_tensor(&v->t[4], cc);
    v->ssm1.n_state = a->n_state;
    v->ssm1.a = a->a;
    v->ssm1.d = a->d;
    v->ssm1.dt_bias = a->dt_bias;
    set_rec(&v->ssm1.rec, a->rec);
    v->r = cuda_stage_rows(c, r);
    cuda_recorded(c);
}

static void op_ssm2_(struct cuda *c, struct tensor y, struct tensor xbc, struct tensor dt, const struct op_ssm2 *a,
                     const struct op_rows *r)
{
    struct node *v = rec2(c, DEV_OP_ssm2, y, xbc);

    set_tensor(&v->t[2], dt);
    v->ssm2.n_head = a->n_head;
    v->ssm2.dim = a->dim;
    v->ssm2.n_group = a->n_group;
    v->ssm2.n_state = a->n_state;
    v->ssm2.a = a->a;
    v->ssm2.d = a->d;
    v->ssm2.dt_bias = a->dt_bias;
    set_rec(&v->ssm2.rec, a->rec);
    v->r = cuda_stage_rows(c, r);
    cuda_recorded(c);
}

static void op_route_(struct cuda *c, int32_t *expert, struct tensor weight, struct tensor logits,
                      const struct op_route *a)
{
    struct node *v = rec2(c, DEV_OP_route, weight, logits);

    v->out = expert;
    v->route.n_expert = a->n_expert;
    v->route.n_used = a->n_used;
    v->route.normalise = a->normalise;
    v->route.scale = a->scale;
    v->route.sigmoid = a->sigmoid;
    v->route.bias = a->bias;
    v->route.n_group = a->n_group;
    v->route.n_group_used = a->n_group_used;
    cuda_recorded(c);
}

/* The lists of a node's rows, and what the step's adapters have for `parts` matrices, pair NULL: nothing. Sizes are
 * rounded up, so that few graphs serve all steps. */
static void set_adapters(struct cuda *c, struct node *v, const struct op_terms *t, int64_t rows,
                         const struct op_adapt *const *part, int parts)
{
    const int n = power_of_two(t->n), max = power_of_two(t->max);

    v->i[0] = max;
    v->i[1] = n;
    v->i[2] = t->floats;
    if (c->measuring)
        return;
    struct adapt_term *list = (struct adapt_term *)malloc((size_t)(rows * max) * sizeof *list);
    struct op_pair *pair = (struct op_pair *)calloc((size_t)(parts * n), sizeof *pair);
    if (list == NULL || pair == NULL) {
        cuda_fail(c, cudaErrorMemoryAllocation, "adapters");
    } else {
        for (int64_t r = 0; r < rows; r++)
            for (int i = 0; i < max; i++)
                list[r * max + i] = i < t->max
                                        ? (struct adapt_term){ t->which[r * t->max + i], t->scale[r * t->max + i] }
                                        : (struct adapt_term){ -1, 0.0f };
        for (int k = 0; k < parts; k++) {
            if (part[k]->pair == NULL)
                continue;
            memcpy(pair + k * n, part[k]->pair, (size_t)t->n * sizeof *pair);
            v->i[3] |= 1 << k;
        }
        v->p[0] = cuda_stage(c, AS_PAIRS, pair, (size_t)(parts * n) * sizeof *pair);
        v->p[3] = cuda_stage(c, AS_LISTS, list, (size_t)(rows * max) * sizeof *list);
    }
    free(list);
    free(pair);
}

static void op_adapt_(struct cuda *c, const struct op_adapt *a, int n, struct tensor x, const int32_t *token,
                      const struct op_terms *t)
{
    for (int i = 0; i < n; i++) {
        const struct op_adapt *part = &a[i];
        const int64_t rows = part->y.ne[1];
        struct node *v = token == NULL ? rec2(c, DEV_OP_adapt, part->y, x) : rec1(c, DEV_OP_adapt, part->y);

        v->t[2].pitch = part->n_out;
        v->t[2].from = part->mat * part->n_out + part->first;
        v->p[1] = token != NULL ? cuda_stage(c, AS_TOKENS, token, (size_t)rows * sizeof *token) : NULL;
        set_adapters(c, v, t, rows, &part, 1);
        cuda_recorded(c);
    }
}

static void set_moe(struct node *v, const struct op_moe *a)
{
    v->moe.n_used = a->n_used;
    v->moe.expert = a->expert;
    set_tensor(&v->moe.weight, a->weight);
    set_tensor(&v->moe.gate, a->gate);
    set_tensor(&v->moe.up, a->up);
    set_tensor(&v->moe.down, a->down);
    v->moe.act = a->act;
    v->moe.slot = a->slot;
}

static void set_moe_adapters(struct cuda *c, struct node *v, const struct op_moe *a, int64_t rows)
{
    if (a->adapt == NULL)
        return;
    const struct op_adapt *const part[3] = { &a->adapt->gate, &a->adapt->up, &a->adapt->down };
    struct tensor *const w[3] = { &v->moe.gate, &v->moe.up, &v->moe.down };

    for (int i = 0; i < 3; i++)
        w[i]->from = part[i]->first;
    set_adapters(c, v, a->adapt->terms, rows, part, 3);
}

template <int OP> static void of_experts(struct cuda *c, struct tensor y, struct tensor x, const struct op_moe *a)
{
    struct node *v = rec2(c, OP, y, x);

    set_moe(v, a);
    set_moe_adapters(c, v, a, x.ne[1]);
    cuda_recorded(c);
}

static constexpr auto op_moe_ = of_experts<DEV_OP_moe>;
static constexpr auto op_moe_pairs_ = of_experts<DEV_OP_moe_pairs>;

static void op_top_(struct cuda *c, void *out, struct tensor logits, const struct op_top *a)
{
    size_t rows = (size_t)logits.ne[1];

    if (a->mask != NULL)
        cuda_masks_record(c, a, logits.ne[1], logits.ne[0]);
    struct node *v = cuda_record(c, DEV_OP_top);
    set_tensor(&v->t[1], logits);
    v->out = out;
    v->i[0] = a->k;
    v->i[1] = a->n_ids;
    v->i[2] = a->mask != NULL;
    v->n = op_top_bytes(a);
    v->p[0] = a->n_ids > 0 ? cuda_stage(c, AS_IDS, a->ids, rows * (size_t)a->n_ids * sizeof *a->ids) : NULL;
    v->p[1] = cuda_stage(c, AS_TEMPS, a->inv_temp, rows * sizeof *a->inv_temp);
    cuda_recorded(c);
}

static void op_hand_out_(struct cuda *c, struct tensor x, const int32_t *expert, const struct op_hand *h)
{
    struct node *v = cuda_record(c, DEV_OP_hand_out);

    set_tensor(&v->t[1], x);
    v->p[0] = expert;
    v->p[1] = h->moe.adapt != NULL && !c->measuring ? cuda_hand_keep(c, h) : h;
    cuda_recorded(c);
}

static void op_hand_in_(struct cuda *c, struct tensor out, struct tensor x, const int32_t *expert,
                        const struct op_hand *h)
{
    struct node *v = rec2(c, DEV_OP_hand_in, out, x);

    v->p[0] = expert;
    v->p[1] = h->moe.adapt != NULL && !c->measuring ? cuda_hand_kept(c) : h;
    if (c->measuring)
        cuda_hand_need(c, x.ne[1], h->moe.n_used, x.ne[0], out.ne[0]);
    else
        c->hand.helper = h->dev;
    cuda_recorded(c);
}

static void op_tally_(struct cuda *c, uint64_t *count, int, const int32_t *expert, int64_t n)
{
    struct node *v = cuda_record(c, DEV_OP_tally);

    v->out = count;
    v->p[0] = expert;
    v->n = (size_t)n;
    cuda_recorded(c);
}

static void set_measuring(struct cuda *c, bool on)
{
    c->measuring = on;
    c->lane = &c->first;
    c->lane->lookup.measured = 0;
}

static const char *device_name(struct cuda *c)
{
    return c->about;
}

static int one_thread(struct cuda *)
{
    return 1;
}

static void close_cuda(struct cuda *c)
{
    if (c->dry_run) {
        free(c->more);
        free(c);
        return;
    }
    (void)cudaSetDevice(c->id);
    if (c->stream != NULL)
        (void)cudaStreamSynchronize(c->stream);
    cuda_drop_graphs(c);
    cuda_hand_close(c);
    for (int i = 0; i < c->hand.cap_adapted; i++)
        free(c->hand.adapted[i]);
    free(c->hand.adapted);
    cuda_lane_close(&c->first);
    for (int i = 0; i < c->n_more; i++)
        cuda_lane_close(&c->more[i]);
    free(c->more);
    cuda_pass_close(c);
    cuda_loaded(c);
    cuda_clock_free(c);
    while (c->weights != NULL) {
        struct weight_block *b = c->weights;

        c->weights = b->next;
        (void)cudaFree(b->p);
        free(b);
    }
    for (int i = 0; i < 2; i++) {
        (void)cudaFreeHost(c->bounce[i]);
        if (c->bounce_done[i] != NULL)
            (void)cudaEventDestroy(c->bounce_done[i]);
    }
    (void)cudaFree(c->done.turn);
    (void)cudaFree(c->handed);
    (void)cudaFree(c->added);
    (void)cudaFree(c->ws);
    (void)cudaFree(c->tab);
    if (c->stream != NULL)
        (void)cudaStreamDestroy(c->stream);
    free(c->node);
    free(c);
}

static uint64_t used_kernels(struct cuda *c)
{
    return c->used;
}

/* F of this device as the table has it, for devices of any kind. */
template <auto F> struct entry;
template <class R, class... A, R (*F)(struct cuda *, A...)> struct entry<F> {
    static R call(void *ctx, A... a)
    {
        return F((struct cuda *)ctx, a...);
    }
};

static struct dev_table make_table(void)
{
    struct dev_table t = {};

#define X(name) t.name = entry<op_##name##_>::call;
    DEV_OPS(X)
#undef X
    t.measure = entry<set_measuring>::call;
    t.reserve = entry<cuda_reserve>::call;
    t.kernels = entry<used_kernels>::call;
    t.weights = entry<cuda_weights>::call;
    t.weights_rows = entry<cuda_weights_rows>::call;
    t.weights_some = entry<cuda_weights_some>::call;
    t.reserve_weights = entry<cuda_reserve_weights>::call;
    t.held = entry<cuda_held>::call;
    t.memory = entry<cuda_memory>::call;
    t.is_host = false;
    t.alloc = entry<cuda_alloc>::call;
    t.free = entry<cuda_release>::call;
    t.begin = entry<begin_step>::call;
    t.submit = entry<cuda_submit>::call;
    t.leave = entry<leave_step>::call;
    t.lanes = entry<cuda_lanes>::call;
    t.begin_in = entry<cuda_begin_in>::call;
    t.launch = entry<launch_step>::call;
    t.land = entry<land_step>::call;
    t.end = entry<end_step>::call;
    t.zero = entry<record_zero>::call;
    t.copy = entry<record_copy>::call;
    t.pass = entry<cuda_pass>::call;
    t.fetch = entry<fetch>::call;
    t.close = entry<close_cuda>::call;
    t.simd = entry<device_name>::call;
    t.threads = entry<one_thread>::call;
    t.read_speed = entry<cuda_read_speed>::call;
    t.time = entry<cuda_time>::call;
    t.time_ns = entry<cuda_time_ns>::call;
    t.launched = entry<cuda_launched>::call;
    t.graphs = entry<cuda_graphs>::call;
    return t;
}

/* Code books with a byte an element. */
static uint2 octet(uint16_t entry, const uint8_t value[4])
{
    uint32_t w[2] = { 0, 0 };

    for (int k = 0; k < 8; k++)
        w[k / 4] |= (uint32_t)value[entry >> 2 * k & 3] << k % 4 * 8;
    return make_uint2(w[0], w[1]);
}

static void spread_tables(struct tables *t)
{
    static const uint8_t magnitude[4] = { 8, 25, 43, 0 }, digit8[4] = { 0, 8, 16, 24 };
    static const uint8_t quad[8] = { 4, 12, 20, 28, 36, 44, 52, 62 };

    for (int i = 0; i < 512; i++) {
        t->iq3s[i] = 0;
        for (int k = 0; k < 4; k++)
            t->iq3s[i] |= (uint32_t)(2 * (quant_iq3s_grid[i] >> 4 * k & 7) + 1) << 8 * k;
        t->iq2xs[i] = octet(quant_iq2xs_grid[i], magnitude);
    }
    for (int i = 0; i < 256; i++) {
        t->iq3xxs[i] = 0;
        for (int k = 0; k < 4; k++)
            t->iq3xxs[i] |= (uint32_t)quad[quant_iq3xxs_grid[i] >> 4 * k & 7] << 8 * k;
        t->iq2xxs[i] = octet(quant_iq2xxs_grid[i], magnitude);
    }
    for (int i = 0; i < 1024; i++)
        t->iq2s[i] = octet(quant_iq2s_grid[i], magnitude);
    for (int i = 0; i < 2048; i++)
        t->iq1s[i] = octet(quant_iq1s_grid[i], digit8);
}

__global__ void probe_kernel(void)
{
}

static enum err_code check_device(int id, char *about, size_t n, struct err *e)
{
    cudaDeviceProp p;
    cudaFuncAttributes f;
    int count = 0;
    cudaError_t bad = cudaGetDeviceCount(&count);

    if (bad == cudaErrorInsufficientDriver)
        return err_set(e, ERR_DEVICE, "no usable CUDA device: the NVIDIA driver is missing or too old");
    if (bad != cudaSuccess || count == 0)
        return err_set(e, ERR_DEVICE, "no usable CUDA device: %s",
                       bad == cudaSuccess ? "none found" : cudaGetErrorString(bad));
    if (id >= count)
        return err_set(e, ERR_ARG, "there is no CUDA device %d: there are %d", id, count);
    bad = cudaSetDevice(id);
    if (bad == cudaSuccess) /* by default memory is taken for 1,024 bytes of every thread */
        bad = cudaDeviceSetLimit(cudaLimitStackSize, STACK);
    if (bad == cudaSuccess)
        bad = cudaGetDeviceProperties(&p, id);
    if (bad == cudaSuccess && cudaFuncGetAttributes(&f, probe_kernel) != cudaSuccess)
        return err_set(e, ERR_DEVICE, "%s has compute capability %d.%d: this program has no kernels for it", p.name,
                       p.major, p.minor);
    if (bad != cudaSuccess)
        return err_set(e, ERR_DEVICE, "CUDA device %d: %s", id, cudaGetErrorString(bad));
    (void)snprintf(about, n, "%s, sm_%d%d", p.name, p.major, p.minor);
    return ERR_OK;
}

static bool set_up(struct cuda *c)
{
    struct tables *t = (struct tables *)malloc(sizeof *t);

    if (t == NULL)
        return false;
    spread_tables(t);
    int major = 0;
    TRY(c, cudaDeviceGetAttribute(&c->sms, cudaDevAttrMultiProcessorCount, c->id));
    TRY(c, cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, c->id));
    c->sm_90 = major == 9;
    c->sm = 10 * major;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    TRY(c, cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", (void **)&c->encode, 12000, cudaEnableDefault,
                                            &found));
    if (found != cudaDriverEntryPointSuccess)
        cuda_fail(c, cudaErrorInsufficientDriver, "cuTensorMapEncodeTiled");
    int least = 0, most = 0; /* steps of the model go before training's (kernels/train) */
    TRY(c, cudaDeviceGetStreamPriorityRange(&least, &most));
    TRY(c, cudaStreamCreateWithPriority(&c->stream, cudaStreamNonBlocking, most));
    TRY(c, cudaMalloc((void **)&c->tab, sizeof *t));
    TRY(c, cudaMalloc((void **)&c->handed, sizeof *c->handed));
    cuda_added_open(c);
    TRY(c, cudaMallocHost((void **)&c->first.fetch.pinned, FETCH_BYTES + sizeof *c->done.said));
    TRY(c, cudaMalloc((void **)&c->done.turn, sizeof *c->done.turn));
    if (c->bad == cudaSuccess) {
        c->done.said = (uint32_t *)(c->first.fetch.pinned + FETCH_BYTES);
        *c->done.said = 0;
        TRY(c, cudaMemsetAsync(c->done.turn, 0, sizeof *c->done.turn, c->stream));
    }
    for (int i = 0; i < 2; i++) {
        TRY(c, cudaMallocHost((void **)&c->bounce[i], BOUNCE));
        TRY(c, cudaEventCreateWithFlags(&c->bounce_done[i], cudaEventDisableTiming));
    }
    if (c->bad == cudaSuccess)
        cuda_move(c, c->tab, t, sizeof *t);
    free(t);
    return c->bad == cudaSuccess;
}

/* A dry run asks no more of the device than how much memory it has, and of one that is absent not even that. */
static void set_up_dry_run(struct cuda *c, bool present)
{
    c->dry_run = true;
    c->mem = (struct dev_memory){ false, -1, -1, -1, false };
    if (present)
        cuda_look(c);
}

extern "C" enum err_code cuda_dev_open(struct dev_impl *out, struct dev *dev, const struct dev_opts *o, struct err *e)
{
    static const struct dev_table table = make_table();
    struct cuda *c;
    char about[288] = "absent";
    bool present = check_device(dev_unit(dev), about, sizeof about, e) == ERR_OK;

    if (!present && !(o->dry_run && o->absent))
        return e->code;
    c = (struct cuda *)calloc(1, sizeof *c);
    if (c == NULL)
        return err_nomem(e);
    c->dev = dev;
    c->lane = &c->first;
    c->id = dev_unit(dev);
    c->fuse = true;
    c->eight = o->acts == QUANT_ACTS_I8;
    c->only = o->kernel;
    memcpy(c->about, about, sizeof about);
    if (o->dry_run) {
        set_up_dry_run(c, present);
    } else if (!set_up(c)) {
        enum err_code code = err_set(e, ERR_DEVICE, "CUDA device %d: %s", c->id, cudaGetErrorString(c->bad));

        close_cuda(c);
        return code;
    }
    out->table = &table;
    out->ctx = c;
    return ERR_OK;
}
