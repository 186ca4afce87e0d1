/* SPDX-License-Identifier: Apache-2.0 */
/* open.cu - gradients on the GPU: memory, weights, and what a pass is told.  room: kernels
 *
 * Weights are floats where all of them fit into half of the memory. Else as many as fit into three quarters are kept as
 * they are stored, and decoded when they are used, TILE floats at a time; the rest is also sent then. Embeddings are
 * decoded by the host, a pass's rows of them. */
#include <stdlib.h>
#include <string.h>

#include "kernels/grad/grad.cuh"

enum { THREADS = 256, TILE = 1 << 26, TILE_LEAST = 1 << 16 };

void *cuda_grad_take(struct cgrad *g, int64_t bytes)
{
    void *p = NULL;

    if (g->held + bytes > g->most || (p = cuda_take(g->c, (size_t)bytes)) == NULL)
        return NULL;
    g->held += bytes;
    return p;
}

void cuda_grad_give(struct cgrad *g, void *p, int64_t bytes)
{
    if (p == NULL)
        return;
    (void)cudaStreamSynchronize(g->c->stream);
    (void)cudaFree(p);
    g->held -= bytes;
}

static void close_grad(void *device)
{
    struct cgrad *g = (struct cgrad *)device;

    (void)cudaSetDevice(g->c->id);
    (void)cudaStreamSynchronize(g->c->stream);
    (void)cudaFree(g->tile);
    (void)cudaFree(g->raw);
    (void)cudaFree(g->memory);
    (void)cudaFree(g->sent);
    (void)cudaFreeHost(g->pinned);
    (void)cudaFree(g->cut_experts);
    (void)cudaFree(g->adapters);
    (void)cudaFree(g->noise);
    for (int i = 0; g->floats != NULL && i < g->n_mat; i++)
        (void)cudaFree((void *)(uintptr_t)g->floats[i]);
    for (int i = 0; g->stored != NULL && i < g->n_mat; i++)
        (void)cudaFree(g->stored[i]);
    for (int i = 0; i < g->n_vector; i++)
        (void)cudaFree(g->vector[i]);
    free(g->vector);
    free(g->floats);
    free(g->stored);
    free(g->round);
    free(g->order);
    free(g);
}

static const float *vector(struct grad *gr, const float *v, int64_t n)
{
    struct cgrad *g = (struct cgrad *)gr->device;
    float **more = (float **)realloc(g->vector, (size_t)(g->n_vector + 1) * sizeof *more), *to;

    if (more == NULL)
        return NULL;
    g->vector = more;
    to = (float *)cuda_grad_take(g, n * (int64_t)sizeof *to);
    if (to == NULL)
        return NULL;
    g->vector[g->n_vector++] = to;
    TRY(g->c, cudaMemcpyAsync(to, v, (size_t)n * sizeof *to, cudaMemcpyHostToDevice, g->c->stream));
    TRY(g->c, cudaStreamSynchronize(g->c->stream));
    return g->c->bad == cudaSuccess ? to : NULL;
}

/* ---- weights ---- */

static int64_t row_bytes(const struct grad_matrix *m)
{
    return (int64_t)quant_row_bytes(m->type, m->n_in);
}

static int64_t rows_of(const struct grad_matrix *m)
{
    return m->n_expert * m->n_out;
}

static void decode_rows(struct cuda *c, float *to, const unsigned char *from, const struct grad_matrix *m, int64_t n)
{
    struct node v = {};

    v.t[0].data = to;
    v.t[0].ne[0] = m->n_in;
    v.t[0].ne[1] = n;
    v.t[0].stride = m->n_in;
    v.t[1].data = (void *)(uintptr_t)from;
    v.t[1].type = m->type;
    v.t[1].ne[0] = m->n_in;
    v.f[0] = 1.0f;
    cuda_embed(c, &v);
}

/* From the file; kernels may read a little past the end. */
static void send_rows(struct cuda *c, unsigned char *to, const struct grad_matrix *m, int64_t first, int64_t n)
{
    TRY(c, cudaMemcpyAsync(to, (const unsigned char *)m->data + first * row_bytes(m), (size_t)(n * row_bytes(m)),
                           cudaMemcpyHostToDevice, c->stream));
}

int64_t cuda_grad_tile_rows(const struct pass *p, int matrix)
{
    const struct cgrad *g = cgrad_of(p);
    const struct grad_matrix *m = &p->g->mat[matrix];
    const int64_t n = g->tile_floats / m->n_in;

    return g->floats[matrix] != NULL ? rows_of(m) : n;
}

const float *cuda_grad_weights(const struct pass *p, int matrix, int64_t first, int64_t n)
{
    struct cgrad *g = cgrad_of(p);
    const struct grad_matrix *m = &p->g->mat[matrix];
    unsigned char *from = g->stored[matrix];

    if (g->floats[matrix] != NULL)
        return g->floats[matrix] + first * m->n_in;
    if (from != NULL)
        from += first * row_bytes(m);
    else
        send_rows(g->c, from = g->raw, m, first, n);
    decode_rows(g->c, g->tile, from, m, n);
    return g->tile;
}

/* Embeddings alone are not multiplied. */
static bool multiplied(const struct grad *gr, int i)
{
    return i != gr->embd || i == gr->head;
}

static bool all_floats(const struct grad *gr, struct cgrad *g)
{
    for (int i = 0; i < g->n_mat; i++) {
        const struct grad_matrix *m = &gr->mat[i];
        const int64_t most = g->tile_floats / m->n_in;
        float *to;

        if (!multiplied(gr, i))
            continue;
        g->floats[i] = to = (float *)cuda_grad_take(g, rows_of(m) * m->n_in * (int64_t)sizeof *to);
        if (to == NULL)
            return false;
        for (int64_t r = 0, n; r < rows_of(m); r += n) {
            n = most < rows_of(m) - r ? most : rows_of(m) - r;
            send_rows(g->c, g->raw, m, r, n);
            decode_rows(g->c, to + r * m->n_in, g->raw, m, n);
        }
    }
    return true;
}

static bool some_stored(const struct grad *gr, struct cgrad *g)
{
    for (int i = 0; i < g->n_mat; i++) {
        const struct grad_matrix *m = &gr->mat[i];
        const int64_t bytes = rows_of(m) * row_bytes(m);

        if (!multiplied(gr, i) || g->held + bytes > g->most / 4 * 3)
            continue;
        g->stored[i] = (unsigned char *)cuda_grad_take(g, bytes);
        if (g->stored[i] == NULL)
            return false;
        send_rows(g->c, g->stored[i], m, 0, rows_of(m));
    }
    return true;
}

static bool take_weights(const struct grad *gr, struct cgrad *g)
{
    int64_t floats = 0, longest = 0, row = 0;

    for (int i = 0; i < g->n_mat; i++) {
        const struct grad_matrix *m = &gr->mat[i];

        floats += multiplied(gr, i) ? rows_of(m) * m->n_in : 0;
        longest = m->n_in > longest ? m->n_in : longest;
        row = row_bytes(m) > row ? row_bytes(m) : row;
    }
    const bool all = floats * (int64_t)sizeof(float) <= g->most / 2;
    g->tile_floats = g->most / 16 / (int64_t)sizeof(float);
    g->tile_floats = g->tile_floats > TILE         ? (int64_t)TILE
                     : g->tile_floats < TILE_LEAST ? (int64_t)TILE_LEAST
                                                   : g->tile_floats;
    g->tile_floats = g->tile_floats < longest ? longest : g->tile_floats;
    g->raw_bytes = 0;
    for (int i = 0; i < g->n_mat; i++) {
        const struct grad_matrix *m = &gr->mat[i];
        const int64_t most = g->tile_floats / m->n_in, bytes = (most < rows_of(m) ? most : rows_of(m)) * row_bytes(m);

        g->raw_bytes = bytes > g->raw_bytes ? bytes : g->raw_bytes;
    }
    g->raw = (unsigned char *)cuda_grad_take(g, g->raw_bytes);
    if (g->raw == NULL)
        return false;
    if (all) {
        const bool ok = all_floats(gr, g);

        cuda_grad_give(g, g->raw, g->raw_bytes);
        g->raw = NULL;
        return ok;
    }
    g->tile = (float *)cuda_grad_take(g, g->tile_floats * (int64_t)sizeof *g->tile);
    return g->tile != NULL && some_stored(gr, g);
}

/* ---- memory of a pass ---- */

static float *pass_memory(struct grad *gr, int64_t floats)
{
    struct cgrad *g = (struct cgrad *)gr->device;

    (void)cuda_grad_grow(g, &g->memory, &g->memory_floats, floats);
    return g->memory;
}

/* What is left but for a pass's own data: adapters and their gradients, rows. */
static int64_t memory_left(const struct grad *gr)
{
    const struct cgrad *g = (const struct cgrad *)gr->device;
    const int64_t left = g->most - g->held + g->memory_floats * (int64_t)sizeof(float);

    return left > 0 ? left / 8 * 7 : 0;
}

/* ---- what a pass is told ---- */

/* Places of pinned memory, which is sent as one; base NULL: only counted. */
struct letter {
    unsigned char *host, *dev;
    size_t used;
};

template <typename T> static T *letter_space(struct letter *l, size_t n, const T **dev)
{
    const size_t at = l->used;

    l->used += round_up((n > 0 ? n : 1) * sizeof(T), 256);
    *dev = (const T *)(const void *)(l->dev == NULL ? NULL : l->dev + at);
    return (T *)(void *)(l->host == NULL ? NULL : l->host + at);
}

static void write_rows(struct letter *l, const struct pass *p)
{
    struct cgrad *g = cgrad_of(p);
    int *of = letter_space(l, (size_t)p->n, &g->of), *first = letter_space(l, (size_t)p->b->n_seq + 1, &g->all.cut);

    g->all.n = p->b->n_seq + 1;
    if (l->host == NULL)
        return;
    for (int s = 0; s <= p->b->n_seq; s++)
        first[s] = (int)p->first[s];
    for (int s = 0; s < p->b->n_seq; s++)
        for (int64_t r = p->first[s]; r < p->first[s + 1]; r++)
            of[r] = s;
}

static void write_losses(struct letter *l, const struct pass *p)
{
    struct cgrad *g = cgrad_of(p);
    const int64_t max = grad_loss_rows_max(p);
    const struct loss_row *dev;
    const struct grad_soft *said_dev;
    int n = 0, n_said = 0;

    for (int s = 0; s < p->b->n_seq; s++)
        for (int i = 0; i < p->b->seq[s].n; i++)
            if (p->b->seq[s].target[i] >= 0) {
                n++;
                n_said += p->b->seq[s].said != NULL;
            }
    const int64_t chunks = ceil_div(n, max);
    struct loss_row *row = letter_space(l, (size_t)n, &dev);
    struct grad_soft *said = letter_space(l, (size_t)n_said, &said_dev);
    int *cut = letter_space(l, (size_t)chunks * (size_t)(p->b->n_seq + 1), &g->loss_cut);
    g->loss_row = (struct loss_row *)(uintptr_t)dev;
    g->said = (struct grad_soft *)(uintptr_t)said_dev;
    g->n_loss = n;
    if (l->host == NULL)
        return;
    n = n_said = 0;
    for (int s = 0; s < p->b->n_seq; s++) {
        const struct grad_seq *q = &p->b->seq[s];
        int mine = 0;

        for (int64_t c = 0; c < chunks; c++) {
            const int64_t before = n - c * max;

            cut[c * (p->b->n_seq + 1) + s] = (int)(before < 0 ? 0 : before < max ? before : max);
        }
        for (int i = 0; i < q->n; i++) {
            if (q->target[i] < 0)
                continue;
            row[n++] = { (int)p->first[s] + i, q->target[i], q->said != NULL ? n_said : -1, q->weight };
            if (q->said != NULL)
                said[n_said++] = q->said[mine++];
        }
    }
    for (int64_t c = 0; c < chunks; c++)
        cut[c * (p->b->n_seq + 1) + p->b->n_seq] = (int)(n - c * max < max ? n - c * max : max);
}

static int64_t a_floats(const struct grad *gr, const struct grad_adapter *a)
{
    return gr->mat[a->matrix].n_expert * gr->mat[a->matrix].n_in * a->rank;
}

static int64_t b_floats(const struct grad *gr, const struct grad_adapter *a)
{
    return gr->mat[a->matrix].n_expert * gr->mat[a->matrix].n_out * (a->rank > 0 ? a->rank : 1);
}

static bool joins(const struct round *r, const struct grad_adapter *last, const struct grad_adapter *a)
{
    return r->matrix == a->matrix && r->rank == a->rank && last->to <= a->from;
}

/* Places of the adapters by matrix, otherwise in the caller's order: order[]. */
static bool sort_adapters(struct cgrad *g, const struct pass *p)
{
    const int n = p->b->n_adapter;
    int *more = (int *)realloc(g->order, (size_t)(n + g->n_mat + 1) * sizeof *more), *at;

    if (more == NULL)
        return false;
    g->order = more;
    at = more + n;
    memset(at, 0, (size_t)(g->n_mat + 1) * sizeof *at);
    for (int i = 0; i < n; i++)
        at[p->b->adapter[i].matrix + 1]++;
    for (int m = 0; m < g->n_mat; m++)
        at[m + 1] += at[m];
    for (int i = 0; i < n; i++)
        g->order[at[p->b->adapter[i].matrix]++] = i;
    if (n > g->round_cap) {
        free(g->round);
        g->round = (struct round *)malloc((size_t)n * sizeof *g->round);
        g->round_cap = g->round == NULL ? 0 : n;
    }
    return n <= g->round_cap;
}

/* Floats of an adapter that are copied: it is not here already. */
static int64_t copied(const struct pass *p, const struct grad_adapter *a)
{
    return cuda_grad_is_param(cgrad_of(p), a->b) ? 0 : a_floats(p->g, a) + b_floats(p->g, a);
}

/* Adapters and their gradients on the device: a, b, a, b ... in the caller's order, then the same of the gradients. */
static bool take_adapters(struct cgrad *g, int64_t n, bool backward)
{
    g->n_adapt = n;
    return cuda_grad_grow(g, &g->adapters, &g->adapters_cap, backward ? 2 * n : n);
}

/* Neighbours in the caller's memory go together. */
struct run {
    const struct cgrad *g;
    float *host;
    int64_t at, n;
    bool back;
};

static void end_run(struct run *r)
{
    float *dev = r->g->adapters + r->at;
    const size_t bytes = (size_t)r->n * sizeof *dev;

    if (r->n > 0 && r->back)
        TRY(r->g->c, cudaMemcpyAsync(r->host, dev, bytes, cudaMemcpyDeviceToHost, r->g->c->stream));
    else if (r->n > 0)
        TRY(r->g->c, cudaMemcpyAsync(dev, r->host, bytes, cudaMemcpyHostToDevice, r->g->c->stream));
    r->n = 0;
}

static void move_run(struct run *r, const float *host, int64_t at, int64_t n)
{
    if (r->n == 0 || host != r->host + r->n || at != r->at + r->n) {
        end_run(r);
        r->host = (float *)(uintptr_t)host;
        r->at = at;
    }
    r->n += n;
}

/* Parameters there, gradients there or back. */
static void move_adapters(const struct pass *p, bool gradients, bool back)
{
    const struct cgrad *g = cgrad_of(p);
    struct run r = { g, NULL, 0, 0, back };
    int64_t at = gradients ? g->n_adapt : 0;

    for (int i = 0; i < p->b->n_adapter; i++) {
        const struct grad_adapter *a = &p->b->adapter[i];
        const int64_t n_a = a_floats(p->g, a), n_b = b_floats(p->g, a);
        const float *of_a = gradients ? a->da : a->a, *of_b = gradients ? a->db : a->b;

        if (copied(p, a) == 0)
            continue;
        if (of_a != NULL)
            move_run(&r, of_a, at, n_a);
        if (of_b != NULL)
            move_run(&r, of_b, at + n_a, n_b);
        at += n_a + n_b;
    }
    end_run(&r);
}

static int64_t adapters_floats(const struct pass *p)
{
    int64_t n = 0;

    for (int i = 0; i < p->b->n_adapter; i++)
        n += copied(p, &p->b->adapter[i]);
    return n;
}

/* Members by rounds; their floats lie in the caller's order. */
static void write_adapters(struct letter *l, const struct pass *p)
{
    struct cgrad *g = cgrad_of(p);
    const int n = p->b->n_adapter;
    const struct member *dev;
    struct member *m = letter_space(l, (size_t)n, &dev);
    int64_t *at = letter_space(l, (size_t)n, &g->places); /* for the host alone */

    g->member = (struct member *)(uintptr_t)dev;
    g->n_round = 0;
    if (l->host == NULL)
        return;
    for (int i = 0; i < n; i++)
        at[i] = i == 0 ? 0 : at[i - 1] + copied(p, &p->b->adapter[i - 1]);
    for (int i = 0; i < n; i++) {
        const struct grad_adapter *a = &p->b->adapter[g->order[i]];
        const bool here = copied(p, a) == 0;
        float *of = g->adapters + at[g->order[i]], *d = of + g->n_adapt;
        struct round *r = &g->round[g->n_round - 1];

        if (i == 0 || !joins(r, &p->b->adapter[g->order[i - 1]], a)) {
            r = &g->round[g->n_round++];
            *r = { a->matrix, a->rank, i, 0, false };
        }
        m[i] = { here ? a->a : of,
                 here ? a->b : of + a_floats(p->g, a),
                 a->da == NULL ? NULL : d,
                 a->db == NULL ? NULL : d + a_floats(p->g, a),
                 a->scale,
                 a->from,
                 a->to };
        r->n++;
        r->learns |= p->backward && (a->da != NULL || a->db != NULL);
    }
}

static void write_words(struct letter *l, const struct pass *p)
{
    float *to = letter_space(l, (size_t)(p->n * p->g->plan.n_embd), &cgrad_of(p)->words);

    if (to != NULL)
        grad_host_embed(p, to);
}

static void write_all(struct letter *l, const struct pass *p)
{
    struct cgrad *g = cgrad_of(p);

    write_rows(l, p);
    write_losses(l, p);
    write_adapters(l, p);
    write_words(l, p);
    const double *dev;
    g->loss_host = letter_space(l, (size_t)g->n_loss, &dev);
    g->loss = (double *)(uintptr_t)dev;
}

static bool take_letter(struct cgrad *g, size_t n)
{
    if (n <= g->sent_cap)
        return true;
    cuda_grad_give(g, g->sent, (int64_t)g->sent_cap);
    (void)cudaFreeHost(g->pinned);
    g->pinned = NULL;
    g->sent_cap = 0;
    g->sent = (unsigned char *)cuda_grad_take(g, (int64_t)n);
    if (g->sent == NULL || cudaMallocHost((void **)&g->pinned, n) != cudaSuccess) {
        (void)cudaGetLastError();
        cuda_grad_give(g, g->sent, (int64_t)n);
        g->sent = NULL;
        return false;
    }
    g->sent_cap = n;
    return true;
}

static bool take_cuts(struct cgrad *g, const struct pass *p)
{
    const int64_t n = (int64_t)p->g->plan.moe.n_expert * (p->b->n_seq + 1);

    const bool ok = cuda_grad_grow(g, &g->cut_experts, &g->cut_cap, n);

    g->experts.cut = g->cut_experts;
    g->experts.n = p->b->n_seq + 1;
    return ok;
}

static int64_t longest_sequence(const struct grad *gr)
{
    return cuda_grad_attn_rows(&gr->plan);
}

static bool begin_pass(struct pass *p)
{
    struct cgrad *g = cgrad_of(p);
    const int64_t pairs = p->n * (p->g->plan.moe.n_used > 1 ? p->g->plan.moe.n_used : 1);
    struct letter l = {};

    g->low = grad_take(&p->stack, 2 * pairs * p->rank);
    if (p->stack.base == NULL)
        return true;
    (void)cudaSetDevice(g->c->id);
    g->bad = BAD_LONG;
    for (int s = 0; s < p->b->n_seq; s++)
        if (p->b->seq[s].n > cuda_grad_attn_rows(&p->g->plan))
            return false;
    g->bad = BAD_ROOM;
    write_all(&l, p);
    if (!sort_adapters(g, p) || !take_adapters(g, adapters_floats(p), p->backward) || !take_letter(g, l.used) ||
        !take_cuts(g, p))
        return false;
    g->bad = BAD_NOTHING;
    l = { g->pinned, g->sent, 0 };
    write_all(&l, p);
    TRY(g->c, cudaMemcpyAsync(g->sent, g->pinned, l.used, cudaMemcpyHostToDevice, g->c->stream));
    move_adapters(p, false, false);
    if (p->backward)
        move_adapters(p, true, false);
    return g->c->bad == cudaSuccess;
}

static enum err_code end_pass(struct pass *p, struct err *e)
{
    struct cgrad *g = cgrad_of(p);
    struct cuda *c = g->c;

    if (g->bad == BAD_LONG)
        return err_set(e, ERR_UNSUPPORTED, "%s: a sequence is too long for gradients on a GPU", c->about);
    if (g->bad == BAD_ROOM)
        return err_set(e, ERR_NOMEM, "cuda:%d: out of memory for adapters and rows", c->id);
    if (p->backward && c->bad == cudaSuccess)
        move_adapters(p, true, true);
    TRY(c, cudaStreamSynchronize(c->stream));
    return cuda_failed(c, e);
}

static void embed(const struct pass *p, float *x)
{
    cuda_grad_copy(p, x, cgrad_of(p)->words, p->n * p->g->plan.n_embd);
}

static void embed_back(const struct pass *p, const float *dx)
{
    struct cuda *c = cgrad_of(p)->c;
    const int64_t n = p->n * p->g->plan.n_embd;
    float *v = (float *)malloc((size_t)n * sizeof *v);
    int32_t *row = (int32_t *)malloc((size_t)p->n * sizeof *row);

    if (v == NULL || row == NULL)
        cuda_fail(c, cudaErrorMemoryAllocation, "trace");
    else {
        for (int64_t i = 0; i < p->n; i++)
            row[i] = (int32_t)i;
        TRY(c, cudaMemcpyAsync(v, dx, (size_t)n * sizeof *v, cudaMemcpyDeviceToHost, c->stream));
        TRY(c, cudaStreamSynchronize(c->stream));
        if (c->bad == cudaSuccess)
            p->b->trace(p->b->trace_ctx, p->g->embd, 0, p->n, NULL, v, row);
    }
    free(v);
    free(row);
}

static struct grad_ops make_ops(void)
{
    struct grad_ops o = {};

    o.close = close_grad;
    o.vector = vector;
    o.memory = pass_memory;
    o.room = memory_left;
    o.longest = longest_sequence;
    o.begin = begin_pass;
    o.end = end_pass;
    o.zero = cuda_grad_zero;
    o.copy = cuda_grad_copy;
    o.add = cuda_grad_add;
    o.embed = embed;
    o.embed_back = embed_back;
    o.norm = cuda_grad_norm;
    o.norm_back = cuda_grad_norm_back;
    o.product = cuda_grad_product;
    o.product_back = cuda_grad_product_back;
    o.attn = cuda_grad_attn;
    o.attn_back = cuda_grad_attn_back;
    o.gdn = cuda_grad_gdn;
    o.gdn_back = cuda_grad_gdn_back;
    o.glu = cuda_grad_glu;
    o.glu_back = cuda_grad_glu_back;
    o.route = cuda_grad_route;
    o.moe_sum = cuda_grad_moe_sum;
    o.moe_sum_back = cuda_grad_moe_sum_back;
    o.gather_back = cuda_grad_gather_back;
    o.loss = cuda_grad_loss;
    o.params_take = cuda_grad_params_take;
    o.params_give = cuda_grad_params_give;
    o.params_copy = cuda_grad_params_copy;
    o.noise_pairs = cuda_grad_noise_pairs;
    o.noise_add = cuda_grad_noise_add;
    return o;
}

static bool set_up(const struct grad *gr, struct cgrad *g)
{
    g->floats = (const float **)calloc((size_t)g->n_mat, sizeof *g->floats);
    g->stored = (unsigned char **)calloc((size_t)g->n_mat, sizeof *g->stored);
    if (g->floats == NULL || g->stored == NULL || !take_weights(gr, g))
        return false;
    TRY(g->c, cudaStreamSynchronize(g->c->stream));
    return true;
}

extern "C" enum err_code cuda_grad_open(struct grad *gr, void *dev_context, int64_t most_bytes, struct err *e)
{
    enum { SPARE = 256 << 20 }; /* what others on the device may take meanwhile */
    static const struct grad_ops ops = make_ops();
    struct cuda *c = (struct cuda *)dev_context;
    const struct dev_memory m = cuda_memory(c);
    struct cgrad *g;

    if (cuda_grad_attn_rows(&gr->plan) == 0 || !cuda_grad_gdn_fits(&gr->plan))
        return err_set(e, ERR_UNSUPPORTED, "%s: its heads are too wide for gradients on a GPU", gr->plan.arch->name);
    g = (struct cgrad *)calloc(1, sizeof *g);
    if (g == NULL)
        return err_nomem(e);
    g->c = c;
    g->n_mat = gr->n_mat;
    g->most = m.free_bytes > 2 * SPARE ? m.free_bytes - SPARE : m.free_bytes / 2;
    g->most = most_bytes > 0 && most_bytes < g->most ? most_bytes : g->most;
    gr->device = g;
    gr->ops = &ops;
    if (!set_up(gr, g))
        return err_set(e, ERR_NOMEM, "cuda:%d: out of memory for weights", c->id);
    return cuda_failed(c, e);
}
