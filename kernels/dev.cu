/* SPDX-License-Identifier: Apache-2.0 */
/* dev.cu - the CUDA device: memory, the record of a step, graphs, the table of operations. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda.h"
extern "C" {
#include "quant/iq_grids.h"
}

enum { PAD = 512, SLAB = 64 << 20, SMALL = 8 << 20, BOUNCE = 8 << 20, GRAPH_ROWS = 64 };

void cuda_fail(struct cuda *c, cudaError_t e, const char *where)
{
    if (e == cudaSuccess || c->bad != cudaSuccess)
        return;
    c->bad = e;
    c->bad_at = where;
}
#define TRY(call) cuda_fail(c, call, #call)

/* ---- memory ---- */

static void *take(struct cuda *c, size_t n)
{
    void *p = NULL;

    (void)cudaSetDevice(c->id);
    if (cudaMalloc(&p, n + PAD) != cudaSuccess) {
        (void)cudaGetLastError();
        return NULL;
    }
    return p;
}

static void *alloc(void *ctx, size_t n)
{
    struct cuda *c = (struct cuda *)ctx;
    void *p = take(c, n);

    if (p != NULL)
        TRY(cudaMemset(p, 0, n + PAD));
    return p;
}

static void drop_graphs(struct cuda *c)
{
    for (int i = 0; i < GRAPHS; i++) {
        struct graph *g = &c->graph[i];

        if (g->exec != NULL)
            (void)cudaGraphExecDestroy(g->exec);
        free(g->node);
        *g = (struct graph){};
    }
}

static void flush(struct cuda *c);

static void release(void *ctx, void *p, size_t n)
{
    struct cuda *c = (struct cuda *)ctx;

    (void)n;
    (void)cudaSetDevice(c->id);
    flush(c);
    drop_graphs(c);
    (void)cudaFree(p);
}

/* A place for n bytes of weights: small ones share slabs. */
static unsigned char *place(struct cuda *c, size_t n)
{
    size_t need = round_up(n + 64, 256);
    unsigned char *p;

    if (need > SMALL || c->slab_left < need) {
        struct weight_block *b = (struct weight_block *)malloc(sizeof *b);

        if (b == NULL)
            return NULL;
        b->p = (unsigned char *)take(c, need > SMALL ? need : (size_t)SLAB);
        b->next = c->weights;
        if (b->p == NULL) {
            free(b);
            return NULL;
        }
        c->weights = b;
        if (need > SMALL)
            return b->p;
        c->slab = b->p;
        c->slab_left = SLAB;
    }
    p = c->slab;
    c->slab += need;
    c->slab_left -= need;
    return p;
}

static const void *weights(void *ctx, const void *host, size_t n)
{
    struct cuda *c = (struct cuda *)ctx;
    unsigned char *p = place(c, n);

    for (size_t at = 0; p != NULL && at < n; at += BOUNCE) {
        size_t part = n - at < BOUNCE ? n - at : (size_t)BOUNCE;
        int i = c->bounce_next;

        c->bounce_next = 1 - i;
        TRY(cudaEventSynchronize(c->bounce_done[i]));
        memcpy(c->bounce[i], (const unsigned char *)host + at, part);
        TRY(cudaMemcpyAsync(p + at, c->bounce[i], part, cudaMemcpyHostToDevice, c->stream));
        TRY(cudaEventRecord(c->bounce_done[i], c->stream));
    }
    if (p != NULL) /* kernels may read a little past the end, for nothing */
        TRY(cudaMemsetAsync(p + n, 0, 64, c->stream));
    return c->bad != cudaSuccess ? NULL : p;
}

/* ---- data of a step: pinned host memory and its copy on the device, in chunks that stay where they are ---- */

static uint64_t hash_bytes(const void *p, size_t n, uint64_t h)
{
    const unsigned char *b = (const unsigned char *)p;

    for (; n >= 8; n -= 8, b += 8) {
        uint64_t v;

        memcpy(&v, b, 8);
        h = (h ^ v) * 0x9e3779b97f4a7c15u;
        h ^= h >> 29;
    }
    for (; n > 0; n--)
        h = (h ^ *b++) * 0x100000001b3u;
    return h;
}

static struct chunk *chunk_for(struct cuda *c, size_t n)
{
    for (int i = 0; i < CHUNKS; i++) {
        struct chunk *k = &c->chunk[i];

        if (k->host == NULL) {
            size_t cap = n > 1 << 20 ? round_up(n, 4096) : 1 << 20;

            TRY(cudaMallocHost((void **)&k->host, cap));
            k->dev = (unsigned char *)take(c, cap);
            if (c->bad != cudaSuccess || k->dev == NULL) {
                cuda_fail(c, cudaErrorMemoryAllocation, "step data");
                return NULL;
            }
            k->cap = cap;
        }
        if (k->cap - k->used >= n)
            return k;
    }
    cuda_fail(c, cudaErrorMemoryAllocation, "step data");
    return NULL;
}

/* Where the step finds these n bytes. */
static void *stage(struct cuda *c, const void *data, size_t n)
{
    uint64_t hash = hash_bytes(data, n, n);
    size_t size = round_up(n, 64);

    for (int i = 0; i < c->n_staged; i++) {
        const struct staged *s = &c->staged[i];

        if (s->hash == hash && s->n == n && memcmp(c->chunk[s->chunk].host + s->at, data, n) == 0)
            return c->chunk[s->chunk].dev + s->at;
    }
    struct chunk *k = chunk_for(c, size);
    if (k == NULL)
        return NULL;
    memcpy(k->host + k->used, data, n);
    if (c->n_staged < STAGED)
        c->staged[c->n_staged++] = (struct staged){ hash, n, (int)(k - c->chunk), k->used };
    k->used += size;
    return k->dev + k->used - size;
}

static int power_of_two(int64_t n)
{
    int p = 1;

    while (p < n)
        p *= 2;
    return p;
}

static struct rows stage_rows(struct cuda *c, const struct op_rows *r)
{
    struct rows out = {};
    int most = 1;

    out.n = r->n;
    out.n_seq = r->n_seq;
    out.seq = (const op_seq *)stage(c, r->seq, (size_t)r->n_seq * sizeof *r->seq);
    for (int i = 0; i < r->n_seq; i++)
        most = r->seq[i].n > most ? r->seq[i].n : most;
    out.max_n = power_of_two(most);
    if (r->pos == NULL)
        return out;
    out.pos = (const int *)stage(c, r->pos, (size_t)r->n * sizeof *r->pos);
    int *of = (int *)malloc((size_t)r->n * sizeof *of);
    if (of == NULL) {
        cuda_fail(c, cudaErrorMemoryAllocation, "rows");
        return out;
    }
    memset(of, 0, (size_t)r->n * sizeof *of);
    for (int i = 0; i < r->n_seq; i++)
        for (int j = 0; j < r->seq[i].n; j++)
            of[r->seq[i].row + j] = i;
    out.of = (const int *)stage(c, of, (size_t)r->n * sizeof *of);
    free(of);
    return out;
}

static struct pages stage_pages(struct cuda *c, const struct op_kv *kv, const struct op_rows *r)
{
    struct pages out = {};
    int64_t most = 1;

    for (int i = 0; i < r->n_seq; i++) {
        int64_t n = (r->seq[i].pos + r->seq[i].n + OP_KV_PAGE - 1) / OP_KV_PAGE;

        most = n > most ? n : most;
    }
    out.stride = power_of_two(most);
    int *page = (int *)calloc((size_t)r->n_seq * (size_t)out.stride, sizeof *page);
    if (page == NULL) {
        cuda_fail(c, cudaErrorMemoryAllocation, "pages");
        return out;
    }
    for (int i = 0; i < r->n_seq; i++) {
        int64_t n = (r->seq[i].pos + r->seq[i].n + OP_KV_PAGE - 1) / OP_KV_PAGE;

        memcpy(page + (int64_t)i * out.stride, kv->page[r->seq[i].slot], (size_t)n * sizeof *page);
    }
    out.page = (const int *)stage(c, page, (size_t)r->n_seq * (size_t)out.stride * sizeof *page);
    free(page);
    return out;
}

/* ---- running what is recorded ---- */

static bool same_nodes(const struct graph *g, const struct cuda *c)
{
    return g->n == c->n_node && memcmp(g->node, c->node, (size_t)g->n * sizeof *g->node) == 0;
}

/* The graph entry of the recorded nodes; a new one replaces the least used. NULL: not worth one. */
static struct graph *graph_of(struct cuda *c)
{
    struct graph *old = &c->graph[0];
    uint64_t hash;

    for (int i = 0; i < c->n_node; i++)
        if (c->node[i].t[0].ne[1] > GRAPH_ROWS)
            return NULL;
    hash = hash_bytes(c->node, (size_t)c->n_node * sizeof *c->node, (uint64_t)c->n_node);
    for (int i = 0; i < GRAPHS; i++) {
        struct graph *g = &c->graph[i];

        if (g->n > 0 && g->hash == hash && same_nodes(g, c)) {
            g->age = ++c->steps;
            g->seen++;
            return g;
        }
        if (g->age < old->age)
            old = g;
    }
    if (old->exec != NULL)
        (void)cudaGraphExecDestroy(old->exec);
    free(old->node);
    *old = (struct graph){};
    old->node = (struct node *)malloc((size_t)c->n_node * sizeof *old->node);
    if (old->node == NULL)
        return NULL;
    memcpy(old->node, c->node, (size_t)c->n_node * sizeof *old->node);
    old->n = c->n_node;
    old->hash = hash;
    old->age = ++c->steps;
    old->seen = 1;
    return old;
}

static void capture(struct cuda *c, cudaGraphExec_t *exec)
{
    cudaGraph_t graph = NULL;

    TRY(cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal));
    cuda_exec(c, c->node, c->n_node, true);
    cudaError_t e = cudaStreamEndCapture(c->stream, &graph);
    TRY(e);
    if (c->bad == cudaSuccess)
        TRY(cudaGraphInstantiate(exec, graph, 0));
    if (graph != NULL)
        (void)cudaGraphDestroy(graph);
}

/* Runs the nodes with an event after each launch; as a graph of its own where a graph would run them else, so that
 * launches follow each other as closely. */
static void run_timed(struct cuda *c, bool as_graph)
{
    cudaGraphExec_t exec = NULL;

    cuda_clock_begin(c, c->n_node);
    if (as_graph)
        capture(c, &exec);
    else
        cuda_exec(c, c->node, c->n_node, false);
    if (exec != NULL && c->bad == cudaSuccess)
        TRY(cudaGraphLaunch(exec, c->stream));
    TRY(cudaStreamSynchronize(c->stream));
    cuda_clock_end(c);
    if (exec != NULL)
        (void)cudaGraphExecDestroy(exec);
}

static void ensure_ws(struct cuda *c)
{
    size_t need = 0;

    for (int i = 0; i < c->n_node; i++) {
        size_t n = cuda_ws(&c->node[i]);

        need = n > need ? n : need;
    }
    if (need <= c->ws_cap)
        return;
    TRY(cudaStreamSynchronize(c->stream));
    drop_graphs(c);
    (void)cudaFree(c->ws);
    c->ws_cap = 0;
    c->ws = (unsigned char *)take(c, need);
    if (c->ws == NULL)
        cuda_fail(c, cudaErrorMemoryAllocation, "working memory");
    else
        c->ws_cap = need;
}

/* Uploads the step's data and runs its nodes; nothing is recorded afterwards. Does not wait. */
static void run(struct cuda *c)
{
    if (c->n_node > 0 && c->bad == cudaSuccess) {
        for (int i = 0; i < CHUNKS && c->chunk[i].used > 0; i++)
            TRY(cudaMemcpyAsync(c->chunk[i].dev, c->chunk[i].host, c->chunk[i].used, cudaMemcpyHostToDevice,
                                c->stream));
        ensure_ws(c);
        struct graph *g = graph_of(c);

        if (c->clock.on && c->bad == cudaSuccess) {
            run_timed(c, g != NULL);
            c->n_node = 0;
            return;
        }
        if (g != NULL && g->exec == NULL && g->seen >= 2 && c->bad == cudaSuccess)
            capture(c, &g->exec);
        if (c->bad == cudaSuccess && g != NULL && g->exec != NULL)
            TRY(cudaGraphLaunch(g->exec, c->stream));
        else if (c->bad == cudaSuccess)
            cuda_exec(c, c->node, c->n_node, false);
    }
    c->n_node = 0;
}

/* Runs and waits. */
static void flush(struct cuda *c)
{
    if (c->n_node > 0)
        run(c);
    TRY(cudaStreamSynchronize(c->stream));
    c->n_staged = 0;
    for (int i = 0; i < CHUNKS; i++)
        c->chunk[i].used = 0;
}

static struct node *record(struct cuda *c, int op)
{
    if (c->n_node == c->cap_node) {
        int cap = c->cap_node > 0 ? 2 * c->cap_node : 1024;
        struct node *v = (struct node *)realloc(c->node, (size_t)cap * sizeof *v);

        if (v == NULL) {
            cuda_fail(c, cudaErrorMemoryAllocation, "record");
            return &c->node[0];
        }
        c->node = v;
        c->cap_node = cap;
    }
    struct node *v = &c->node[c->n_node++];
    memset(v, 0, sizeof *v);
    v->op = op;
    return v;
}

static void done(struct cuda *c)
{
    if (!c->in_step)
        flush(c);
}

static void begin(void *ctx)
{
    struct cuda *c = (struct cuda *)ctx;

    (void)cudaSetDevice(c->id);
    flush(c);
    c->in_step = true;
}

static enum err_code end(void *ctx, struct err *e)
{
    struct cuda *c = (struct cuda *)ctx;

    flush(c);
    c->in_step = false;
    if (c->bad == cudaSuccess)
        return ERR_OK;
    return err_set(e, c->bad == cudaErrorMemoryAllocation ? ERR_NOMEM : ERR_IO, "cuda:%d: %s (%s)", c->id,
                   cudaGetErrorString(c->bad), c->bad_at);
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

static void zero(void *ctx, void *p, size_t n)
{
    struct cuda *c = (struct cuda *)ctx;
    struct node *v = record(c, NODE_ZERO);

    v->out = p;
    v->n = n;
    done(c);
}

static void copy(void *ctx, void *to, const void *from, size_t n)
{
    struct cuda *c = (struct cuda *)ctx;

    (void)cudaSetDevice(c->id);
    if (on_device(to) && on_device(from)) {
        struct node *v = record(c, NODE_COPY);

        v->out = to;
        v->p[0] = from;
        v->n = n;
        done(c);
        return;
    }
    flush(c);
    if (c->bad == cudaSuccess)
        TRY(cudaMemcpy(to, from, n, cudaMemcpyDefault));
}

/* ---- operations ---- */

/* Field by field: bytes between fields stay zero, so that nodes compare as memory. */
static void set(struct tensor *d, struct tensor s)
{
    d->type = s.type;
    for (int i = 0; i < 3; i++)
        d->ne[i] = s.ne[i];
    d->stride = s.stride;
    d->pitch = s.pitch;
    d->data = s.data;
}

static struct node *rec1(struct cuda *c, int op, struct tensor y)
{
    struct node *v = record(c, op);

    set(&v->t[0], y);
    return v;
}

static struct node *rec2(struct cuda *c, int op, struct tensor y, struct tensor x)
{
    struct node *v = rec1(c, op, y);

    set(&v->t[1], x);
    return v;
}

static void set_rec(struct op_rec *d, struct op_rec s)
{
    d->data = s.data;
    d->floats = s.floats;
}

static void op_embed_(void *ctx, struct tensor y, struct tensor w, const int32_t *token, float scale)
{
    struct cuda *c = (struct cuda *)ctx;
    struct node *v = rec2(c, DEV_OP_embed, y, w);

    v->p[0] = stage(c, token, (size_t)y.ne[1] * sizeof *token);
    v->f[0] = scale;
    done(c);
}

static void op_matmul_(void *ctx, struct tensor y, struct tensor w, struct tensor x)
{
    struct cuda *c = (struct cuda *)ctx;

    set(&rec2(c, DEV_OP_matmul, y, w)->t[2], x);
    done(c);
}

static void op_rms_norm_(void *ctx, struct tensor y, struct tensor x, const float *w, int64_t n_w, int64_t group,
                         float eps)
{
    struct cuda *c = (struct cuda *)ctx;
    struct node *v = rec2(c, DEV_OP_rms_norm, y, x);

    v->p[0] = w;
    v->i[0] = (int)n_w;
    v->i[1] = (int)group;
    v->f[0] = eps;
    done(c);
}

static void op_rms_norm_gated_(void *ctx, struct tensor y, struct tensor x, struct tensor z, const float *w,
                               int64_t n_w, int64_t group, float eps)
{
    struct cuda *c = (struct cuda *)ctx;
    struct node *v = rec2(c, DEV_OP_rms_norm_gated, y, x);

    set(&v->t[2], z);
    v->p[0] = w;
    v->i[0] = (int)n_w;
    v->i[1] = (int)group;
    v->f[0] = eps;
    done(c);
}

static void op_add_(void *ctx, struct tensor y, struct tensor x, float s)
{
    struct cuda *c = (struct cuda *)ctx;

    rec2(c, DEV_OP_add, y, x)->f[0] = s;
    done(c);
}

static void op_add_gated_(void *ctx, struct tensor y, struct tensor x, struct tensor g)
{
    struct cuda *c = (struct cuda *)ctx;

    set(&rec2(c, DEV_OP_add_gated, y, x)->t[2], g);
    done(c);
}

static void op_glu_(void *ctx, struct tensor y, struct tensor gate, struct tensor up)
{
    struct cuda *c = (struct cuda *)ctx;

    set(&rec2(c, DEV_OP_glu, y, gate)->t[2], up);
    done(c);
}

static void op_relu2_(void *ctx, struct tensor y)
{
    struct cuda *c = (struct cuda *)ctx;

    rec1(c, DEV_OP_relu2, y);
    done(c);
}

static void op_sigmoid_mul_(void *ctx, struct tensor y, struct tensor g)
{
    struct cuda *c = (struct cuda *)ctx;

    rec2(c, DEV_OP_sigmoid_mul, y, g);
    done(c);
}

static void op_mul_(void *ctx, struct tensor y, struct tensor x)
{
    struct cuda *c = (struct cuda *)ctx;

    rec2(c, DEV_OP_mul, y, x);
    done(c);
}

static void op_scale_(void *ctx, struct tensor y, float s)
{
    struct cuda *c = (struct cuda *)ctx;

    rec1(c, DEV_OP_scale, y)->f[0] = s;
    done(c);
}

static void op_rows_pick_(void *ctx, struct tensor y, struct tensor x, const int32_t *row)
{
    struct cuda *c = (struct cuda *)ctx;
    struct node *v = rec2(c, DEV_OP_rows_pick, y, x);

    v->p[0] = stage(c, row, (size_t)y.ne[1] * sizeof *row);
    done(c);
}

static void op_heads_pick_(void *ctx, struct tensor y, struct tensor x, int64_t dim, int64_t pitch, int64_t first)
{
    struct cuda *c = (struct cuda *)ctx;
    struct node *v = rec2(c, DEV_OP_heads_pick, y, x);

    v->i[0] = (int)dim;
    v->i[1] = (int)pitch;
    v->i[2] = (int)first;
    done(c);
}

static void op_rope_(void *ctx, struct tensor x, const struct op_rope *a, const struct op_rows *r)
{
    struct cuda *c = (struct cuda *)ctx;
    struct node *v = rec1(c, DEV_OP_rope, x);

    v->rope.dim = a->dim;
    v->rope.n_rot = a->n_rot;
    v->rope.freq = a->freq;
    v->rope.pairs = a->pairs;
    v->r = stage_rows(c, r);
    done(c);
}

static void set_kv(struct cuda *c, struct node *v, const struct op_kv *kv, const struct op_rows *r)
{
    v->kv.type_k = kv->type_k;
    v->kv.type_v = kv->type_v;
    v->kv.n_head = kv->n_head;
    v->kv.dim_k = kv->dim_k;
    v->kv.dim_v = kv->dim_v;
    v->kv.pages = kv->pages;
    v->kv.page_bytes = kv->page_bytes;
    v->r = stage_rows(c, r);
    v->pg = stage_pages(c, kv, r);
}

static void op_kv_store_(void *ctx, struct tensor k, struct tensor v, const struct op_kv *kv, const struct op_rows *r)
{
    struct cuda *c = (struct cuda *)ctx;

    set_kv(c, rec2(c, DEV_OP_kv_store, k, v), kv, r);
    done(c);
}

static void op_attn_(void *ctx, struct tensor y, struct tensor q, const struct op_kv *kv, float scale,
                     const struct op_rows *r)
{
    struct cuda *c = (struct cuda *)ctx;
    struct node *v = rec2(c, DEV_OP_attn, y, q);

    v->f[0] = scale;
    set_kv(c, v, kv, r);
    done(c);
}

static void op_conv_(void *ctx, struct tensor y, struct tensor x, const struct op_conv *a, const struct op_rows *r)
{
    struct cuda *c = (struct cuda *)ctx;
    struct node *v = rec2(c, DEV_OP_conv, y, x);

    v->conv.taps = a->taps;
    v->conv.w = a->w;
    v->conv.bias = a->bias;
    v->conv.silu = a->silu;
    set_rec(&v->conv.rec, a->rec);
    v->r = stage_rows(c, r);
    done(c);
}

static void op_gdn_(void *ctx, struct tensor y, struct tensor qkv, struct tensor alpha, struct tensor beta,
                    const struct op_gdn *a, const struct op_rows *r)
{
    struct cuda *c = (struct cuda *)ctx;
    struct node *v = rec2(c, DEV_OP_gdn, y, qkv);

    set(&v->t[2], alpha);
    set(&v->t[3], beta);
    v->gdn.n_k = a->n_k;
    v->gdn.n_v = a->n_v;
    v->gdn.dim = a->dim;
    v->gdn.dim_v = a->dim_v;
    v->gdn.k_grouped = a->k_grouped;
    v->gdn.eps = a->eps;
    v->gdn.a = a->a;
    v->gdn.dt_bias = a->dt_bias;
    set_rec(&v->gdn.rec, a->rec);
    v->r = stage_rows(c, r);
    done(c);
}

static void op_kda_(void *ctx, struct tensor y, struct tensor qkv, struct tensor decay, struct tensor beta,
                    const struct op_kda *a, const struct op_rows *r)
{
    struct cuda *c = (struct cuda *)ctx;
    struct node *v = rec2(c, DEV_OP_kda, y, qkv);

    set(&v->t[2], decay);
    set(&v->t[3], beta);
    v->kda.n_head = a->n_head;
    v->kda.dim = a->dim;
    v->kda.eps = a->eps;
    v->kda.a = a->a;
    v->kda.dt_bias = a->dt_bias;
    set_rec(&v->kda.rec, a->rec);
    v->r = stage_rows(c, r);
    done(c);
}

static void op_ssm1_(void *ctx, struct tensor y, struct tensor x, struct tensor dt, struct tensor b, struct tensor cc,
                     const struct op_ssm1 *a, const struct op_rows *r)
{
    struct cuda *c = (struct cuda *)ctx;
    struct node *v = rec2(c, DEV_OP_ssm1, y, x);

    set(&v->t[2], dt);
    set(&v->t[3], b);
    set(&v->t[4], cc);
    v->ssm1.n_state = a->n_state;
    v->ssm1.a = a->a;
    v->ssm1.d = a->d;
    v->ssm1.dt_bias = a->dt_bias;
    set_rec(&v->ssm1.rec, a->rec);
    v->r = stage_rows(c, r);
    done(c);
}

static void op_ssm2_(void *ctx, struct tensor y, struct tensor xbc, struct tensor dt, const struct op_ssm2 *a,
                     const struct op_rows *r)
{
    struct cuda *c = (struct cuda *)ctx;
    struct node *v = rec2(c, DEV_OP_ssm2, y, xbc);

    set(&v->t[2], dt);
    v->ssm2.n_head = a->n_head;
    v->ssm2.dim = a->dim;
    v->ssm2.n_group = a->n_group;
    v->ssm2.n_state = a->n_state;
    v->ssm2.a = a->a;
    v->ssm2.d = a->d;
    v->ssm2.dt_bias = a->dt_bias;
    set_rec(&v->ssm2.rec, a->rec);
    v->r = stage_rows(c, r);
    done(c);
}

static void op_route_(void *ctx, int32_t *expert, struct tensor weight, struct tensor logits, const struct op_route *a)
{
    struct cuda *c = (struct cuda *)ctx;
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
    done(c);
}

static void op_moe_(void *ctx, struct tensor y, struct tensor x, const struct op_moe *a)
{
    struct cuda *c = (struct cuda *)ctx;
    struct node *v = rec2(c, DEV_OP_moe, y, x);

    v->moe.n_used = a->n_used;
    v->moe.expert = a->expert;
    set(&v->moe.weight, a->weight);
    set(&v->moe.gate, a->gate);
    set(&v->moe.up, a->up);
    set(&v->moe.down, a->down);
    v->moe.act = a->act;
    done(c);
}

/* Working memory is the device's own, not the caller's scratch. */
static size_t matmul_need(void *, struct tensor, struct tensor, struct tensor)
{
    return 0;
}
static size_t attn_need(void *, struct tensor, struct tensor, const struct op_kv *)
{
    return 0;
}
static size_t route_need(void *, struct tensor)
{
    return 0;
}
static size_t moe_need(void *, struct tensor, struct tensor, const struct op_moe *)
{
    return 0;
}

static const char *simd(void *ctx)
{
    return ((struct cuda *)ctx)->about;
}

static int threads(void *)
{
    return 1;
}

static void close_cuda(void *ctx)
{
    struct cuda *c = (struct cuda *)ctx;

    (void)cudaSetDevice(c->id);
    if (c->stream != NULL)
        (void)cudaStreamSynchronize(c->stream);
    drop_graphs(c);
    cuda_clock_free(c);
    for (int i = 0; i < CHUNKS; i++) {
        (void)cudaFreeHost(c->chunk[i].host);
        (void)cudaFree(c->chunk[i].dev);
    }
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
    (void)cudaFree(c->ws);
    (void)cudaFree(c->tab);
    if (c->stream != NULL)
        (void)cudaStreamDestroy(c->stream);
    free(c->node);
    free(c);
}

static struct dev_table make_table(void)
{
    struct dev_table t = {};

#define X(name) t.name = op_##name##_;
    DEV_OPS(X)
#undef X
    t.matmul_need = matmul_need;
    t.attn_need = attn_need;
    t.route_need = route_need;
    t.moe_need = moe_need;
    t.weights = weights;
    t.is_host = false;
    t.alloc = alloc;
    t.free = release;
    t.begin = begin;
    t.end = end;
    t.zero = zero;
    t.copy = copy;
    t.close = close_cuda;
    t.simd = simd;
    t.threads = threads;
    t.read_speed = cuda_read_speed;
    t.time = cuda_time;
    t.time_ns = cuda_time_ns;
    t.launches = cuda_launches;
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

__global__ void probe(void)
{
}

static enum err_code check_device(int id, char *about, size_t n, struct err *e)
{
    cudaDeviceProp p;
    cudaFuncAttributes f;
    int count = 0;
    cudaError_t bad = cudaGetDeviceCount(&count);

    if (bad == cudaErrorInsufficientDriver)
        return err_set(e, ERR_UNSUPPORTED, "no usable CUDA device: the NVIDIA driver is missing or too old");
    if (bad != cudaSuccess || count == 0)
        return err_set(e, ERR_UNSUPPORTED, "no usable CUDA device: %s",
                       bad == cudaSuccess ? "none found" : cudaGetErrorString(bad));
    if (id >= count)
        return err_set(e, ERR_ARG, "there is no CUDA device %d: there are %d", id, count);
    bad = cudaSetDevice(id);
    if (bad == cudaSuccess)
        bad = cudaGetDeviceProperties(&p, id);
    if (bad == cudaSuccess && cudaFuncGetAttributes(&f, probe) != cudaSuccess)
        return err_set(e, ERR_UNSUPPORTED, "%s has compute capability %d.%d: this program has no kernels for it",
                       p.name, p.major, p.minor);
    if (bad != cudaSuccess)
        return err_set(e, ERR_UNSUPPORTED, "CUDA device %d: %s", id, cudaGetErrorString(bad));
    (void)snprintf(about, n, "%s, sm_%d%d", p.name, p.major, p.minor);
    return ERR_OK;
}

static bool set_up(struct cuda *c)
{
    struct tables *t = (struct tables *)malloc(sizeof *t);

    if (t == NULL)
        return false;
    spread_tables(t);
    TRY(cudaDeviceGetAttribute(&c->sms, cudaDevAttrMultiProcessorCount, c->id));
    TRY(cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking));
    TRY(cudaMalloc((void **)&c->tab, sizeof *t));
    for (int i = 0; i < 2; i++) {
        TRY(cudaMallocHost((void **)&c->bounce[i], BOUNCE));
        TRY(cudaEventCreateWithFlags(&c->bounce_done[i], cudaEventDisableTiming));
    }
    if (c->bad == cudaSuccess)
        TRY(cudaMemcpy(c->tab, t, sizeof *t, cudaMemcpyHostToDevice));
    free(t);
    return c->bad == cudaSuccess;
}

extern "C" enum err_code cuda_dev_open(struct dev_impl *out, struct dev *dev, const struct dev_opts *,
                                       struct err *e)
{
    static const struct dev_table table = make_table();
    struct cuda *c;
    char about[288];

    if (check_device(dev_unit(dev), about, sizeof about, e) != ERR_OK)
        return e->code;
    c = (struct cuda *)calloc(1, sizeof *c);
    if (c == NULL)
        return err_set(e, ERR_NOMEM, "out of memory");
    c->dev = dev;
    c->id = dev_unit(dev);
    c->fuse = true;
    memcpy(c->about, about, sizeof about);
    if (!set_up(c)) {
        enum err_code code = err_set(e, ERR_UNSUPPORTED, "CUDA device %d: %s", c->id, cudaGetErrorString(c->bad));

        close_cuda(c);
        return code;
    }
    out->table = &table;
    out->ctx = c;
    return ERR_OK;
}
