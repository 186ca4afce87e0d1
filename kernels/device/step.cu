/* SPDX-License-Identifier: Apache-2.0 */
/* step.cu - a step: its data, its nodes, and how they run or are replayed as a CUDA graph. */
#include <stdlib.h>
#include <string.h>

#include "kernels/device/cuda.h"

enum { GRAPH_ROWS = 64, GRAPH_NODES = 12 };

void cuda_drop_graphs(struct cuda *c)
{
    for (int i = 0; i < GRAPHS; i++) {
        struct graph *g = &c->graph[i];

        if (g->exec != NULL)
            (void)cudaGraphExecDestroy(g->exec);
        free(g->node);
        *g = (struct graph){};
    }
}

/* The host's part of what was launched as graphs, in order. The device waits for it: nothing that may wait for the
 * device comes before. */
static void serve(struct cuda *c)
{
    struct hand *h = &c->hand;
    bool ended = false;

    if (c->lane->masks.launched)
        cuda_masks_give(c);
    for (int i = 0; i < h->n_due; i++)
        for (int j = 0; j < h->due[i].n && c->bad == cudaSuccess; j++)
            if (h->due[i].node[j].op == DEV_OP_hand_in)
                ended = cuda_hand_work(c, &h->due[i].node[j], ended);
    h->n_due = 0;
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

enum { DATA = 1 << 20 }; /* of a step, in one chunk; there are more for those with more */

static bool new_chunk(struct cuda *c, struct chunk *k, size_t cap)
{
    TRY(c, cudaMallocHost((void **)&k->host, cap));
    k->dev = (unsigned char *)cuda_take(c, cap);
    if (c->bad == cudaSuccess && k->dev == NULL)
        cuda_fail(c, cudaErrorMemoryAllocation, "step data");
    k->cap = cap;
    return c->bad == cudaSuccess;
}

static struct chunk *chunk_for(struct cuda *c, size_t n)
{
    for (int i = 0; i < CHUNKS; i++) {
        struct chunk *k = &c->lane->chunk[i];

        if (k->host == NULL) {
            serve(c);
            if (!new_chunk(c, k, n > DATA ? round_up(n, 4096) : (size_t)DATA))
                return NULL;
        }
        if (k->cap - k->used >= n)
            return k;
    }
    cuda_fail(c, cudaErrorMemoryAllocation, "step data");
    return NULL;
}

/* Where the step finds these n bytes. */
void *cuda_stage(struct cuda *c, enum staged_as as, const void *data, size_t n)
{
    if (c->measuring)
        return NULL;
    struct lane *l = c->lane;
    uint64_t hash = hash_bytes(data, n, n);
    size_t size = round_up(n, 64);

    for (int i = 0; i < l->n_staged && as != AS_PAIRS; i++) {
        const struct staged *s = &l->staged[i];

        if (s->as == as && s->hash == hash && s->n == n && memcmp(l->chunk[s->chunk].host + s->at, data, n) == 0)
            return l->chunk[s->chunk].dev + s->at;
    }
    struct chunk *k = chunk_for(c, size);
    if (k == NULL)
        return NULL;
    memcpy(k->host + k->used, data, n);
    if (l->n_staged < STAGED && as != AS_PAIRS) /* no two tensors have the same */
        l->staged[l->n_staged++] = (struct staged){ hash, as, n, (int)(k - l->chunk), k->used };
    k->used += size;
    return k->dev + k->used - size;
}

struct rows cuda_stage_rows(struct cuda *c, const struct op_rows *r)
{
    struct rows out = {};
    int most = 1, sum = 0;

    out.n = r->n;
    out.n_seq = r->n_seq;
    out.seq = (const op_seq *)cuda_stage(c, AS_SEQS, r->seq, (size_t)r->n_seq * sizeof *r->seq);
    for (int i = 0; i < r->n_seq; i++) {
        most = r->seq[i].n > most ? r->seq[i].n : most;
        sum += r->seq[i].n;
        out.logs |= r->seq[i].logged > 0;
    }
    out.max_n = power_of_two(most);
    out.all = sum == r->n;
    if (r->pos == NULL)
        return out;
    out.pos = (const int *)cuda_stage(c, AS_POSITIONS, r->pos, (size_t)r->n * sizeof *r->pos);
    int *of = (int *)malloc((size_t)r->n * sizeof *of);
    if (of == NULL) {
        cuda_fail(c, cudaErrorMemoryAllocation, "rows");
        return out;
    }
    memset(of, 0, (size_t)r->n * sizeof *of);
    for (int i = 0; i < r->n_seq; i++)
        for (int j = 0; j < r->seq[i].n; j++)
            of[r->seq[i].row + j] = i;
    out.of = (const int *)cuda_stage(c, AS_SEQ_OF_ROW, of, (size_t)r->n * sizeof *of);
    free(of);
    return out;
}

struct pages cuda_stage_pages(struct cuda *c, const struct op_kv *kv, const struct op_rows *r)
{
    struct pages out = {};
    int64_t most = 1;

    for (int i = 0; i < r->n_seq; i++) {
        int64_t n = (r->seq[i].pos + r->seq[i].n + OP_KV_PAGE - 1) / OP_KV_PAGE;

        most = n > most ? n : most;
    }
    out.stride = power_of_two(most);
    if (c->measuring)
        return out;
    int *page = (int *)calloc((size_t)r->n_seq * (size_t)out.stride, sizeof *page);
    if (page == NULL) {
        cuda_fail(c, cudaErrorMemoryAllocation, "pages");
        return out;
    }
    for (int i = 0; i < r->n_seq; i++) {
        int64_t n = (r->seq[i].pos + r->seq[i].n + OP_KV_PAGE - 1) / OP_KV_PAGE;

        memcpy(page + (int64_t)i * out.stride, kv->page[r->seq[i].slot], (size_t)n * sizeof *page);
    }
    out.page = (const int *)cuda_stage(c, AS_PAGES, page, (size_t)r->n_seq * (size_t)out.stride * sizeof *page);
    free(page);
    return out;
}

/* ---- running what is recorded ---- */

static bool same_nodes(const struct graph *g, const struct cuda *c)
{
    return g->n == c->n_node && memcmp(g->node, c->node, (size_t)g->n * sizeof *g->node) == 0;
}

/* Experts' rows are counted before they are used by several. */
static int64_t rows_of(const struct node *v)
{
    if (v->r.n_seq > 0) /* the tensors may have room for rows that are computed again */
        return v->r.n;
    if (v->op == DEV_OP_embed) /* a table of n-grams has several rows for a token */
        return 1;
    return v->t[v->op == DEV_OP_moe_pairs || v->op == DEV_OP_hand_in].ne[1];
}

/* The graph entry of the recorded nodes, which is then the first; a new one replaces the least used. NULL: not worth
 * one. Short steps and single operations between steps are not: clearing a sequence is some for each layer, a drafter's
 * rows are copied to another place each time, and they would take the places of all graphs of long steps. */
static struct graph *graph_of(struct cuda *c)
{
    struct graph g;
    int at = 0;

    if (!c->in_step || c->n_node < GRAPH_NODES)
        return NULL;
    for (int i = 0; i < c->n_node; i++)
        if (rows_of(&c->node[i]) > GRAPH_ROWS)
            return NULL;
    while (at < GRAPHS - 1 && !same_nodes(&c->graph[at], c))
        at++;
    g = c->graph[at];
    if (!same_nodes(&g, c)) {
        if (g.exec != NULL)
            (void)cudaGraphExecDestroy(g.exec);
        free(g.node);
        g = (struct graph){ (struct node *)malloc((size_t)c->n_node * sizeof *g.node), 0, 0, NULL };
        if (g.node != NULL) {
            memcpy(g.node, c->node, (size_t)c->n_node * sizeof *g.node);
            g.n = c->n_node;
        }
    }
    g.seen++;
    memmove(c->graph + 1, c->graph, (size_t)at * sizeof *c->graph);
    c->graph[0] = g;
    return g.node != NULL ? c->graph : NULL;
}

static void capture_graph(struct cuda *c, cudaGraphExec_t *exec)
{
    cudaGraph_t graph = NULL;

    TRY(c, cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal));
    cuda_exec(c, c->node, c->n_node, true);
    cudaError_t e = cudaStreamEndCapture(c->stream, &graph);
    TRY(c, e);
    if (c->bad == cudaSuccess)
        TRY(c, cudaGraphInstantiate(exec, graph, 0));
    c->captured++;
    if (graph != NULL)
        (void)cudaGraphDestroy(graph);
}

/* Working memory of at least n bytes. */
static void ensure_ws(struct cuda *c, size_t n)
{
    if (n <= c->ws_cap)
        return;
    if (c->ws_cap > 0)
        cuda_count(c, c->ws_cap, false);
    c->ws_cap = 0;
    if (!c->dry_run) {
        serve(c);
        TRY(c, cudaStreamSynchronize(c->stream));
        cuda_drop_graphs(c);
        (void)cudaFree(c->ws);
        c->ws = (unsigned char *)cuda_take(c, n);
        if (c->ws == NULL) {
            cuda_fail(c, cudaErrorMemoryAllocation, "working memory");
            return;
        }
    }
    c->ws_cap = n;
    cuda_count(c, n, true);
}

void cuda_pass_close(struct cuda *c)
{
    struct passing *p = &c->passing;

    (void)cudaFreeHost(p->pinned);
    for (int i = 0; i < PASSES; i++) {
        if (p->full[i] != NULL)
            (void)cudaEventDestroy(p->full[i]);
        if (p->taken[i] != NULL)
            (void)cudaEventDestroy(p->taken[i]);
    }
    *p = (struct passing){ .need = p->need };
}

static void pass_event(struct cuda *c, cudaEvent_t *event)
{
    if (*event == NULL)
        TRY(c, cudaEventCreateWithFlags(event, cudaEventDisableTiming));
}

/* Nothing is on its way. */
static void pass_reserve(struct cuda *c)
{
    struct passing *p = &c->passing;
    const size_t each = round_up(p->need, 256);

    if (each <= p->cap || c->dry_run)
        return;
    (void)cudaFreeHost(p->pinned);
    p->pinned = NULL;
    TRY(c, cudaMallocHost((void **)&p->pinned, PASSES * each));
    p->cap = c->bad == cudaSuccess ? each : 0;
}

/* ---- lanes ---- */

bool cuda_lanes(struct cuda *c, int n)
{
    if (n <= c->n_more)
        return true;
    struct lane *more = (struct lane *)realloc(c->more, (size_t)n * sizeof *more);
    if (more == NULL)
        return false;
    memset(more + c->n_more, 0, (size_t)(n - c->n_more) * sizeof *more);
    c->more = more;
    for (; c->n_more < n; c->n_more++)
        cuda_count(c, DATA, true);
    return true;
}

/* The first one took it when the device was opened, or takes it with the first step. */
static void lane_reserve(struct cuda *c, struct lane *l)
{
    if (l == &c->first || c->dry_run)
        return;
    if (l->fetch.pinned == NULL)
        TRY(c, cudaMallocHost((void **)&l->fetch.pinned, FETCH_BYTES));
    if (l->chunk[0].host == NULL && c->bad == cudaSuccess)
        (void)new_chunk(c, &l->chunk[0], DATA);
}

void cuda_lane_close(struct lane *l)
{
    cuda_masks_close(&l->masks);
    cuda_lookup_close(&l->lookup);
    for (int i = 0; i < CHUNKS; i++) {
        (void)cudaFreeHost(l->chunk[i].host);
        (void)cudaFree(l->chunk[i].dev);
    }
    (void)cudaFreeHost(l->fetch.pinned);
}

bool cuda_reserve(struct cuda *c)
{
    (void)cudaSetDevice(c->id);
    cuda_loaded(c);
    pass_reserve(c);
    ensure_ws(c, c->ws_need);
    cuda_hand_reserve(c);
    for (int i = 0; i <= c->n_more; i++) {
        c->lane = i == 0 ? &c->first : &c->more[i - 1];
        lane_reserve(c, c->lane);
        cuda_masks_reserve(c);
        cuda_lookup_reserve(c);
    }
    c->lane = &c->first;
    return c->bad == cudaSuccess;
}

/* Threads that compute experts of this step on the host, if there are such. */
static void wake(struct cuda *c, bool on)
{
    if (c->hand.helper != NULL)
        dev_awake(c->hand.helper, on);
}

/* Node by node, with the host's part where it is due. */
static void run_plain(struct cuda *c)
{
    int from = 0;

    wake(c, true);
    for (int i = 0; i < c->n_node; i++) {
        const bool masks = c->node[i].op == DEV_OP_top && c->lane->masks.due;

        if (c->node[i].op != DEV_OP_hand_in && !masks)
            continue;
        cuda_exec(c, c->node + from, i - from, false);
        if (masks)
            cuda_masks_give(c);
        else
            (void)cuda_hand_work(c, &c->node[i], false);
        from = i;
    }
    cuda_exec(c, c->node + from, c->n_node - from, false);
}

/* The graph of these nodes, of which the host's part is due. */
static void run_graph(struct cuda *c, cudaGraphExec_t exec, const struct node *node, int n)
{
    struct hand *h = &c->hand;

    if (h->n_due == DUE)
        serve(c);
    if (c->bad == cudaSuccess)
        TRY(c, cudaGraphLaunch(exec, c->stream));
    c->lane->masks.launched = c->lane->masks.due;
    wake(c, true); /* takes a while, in which the device is under way */
    if (h->helper == NULL)
        return;
    h->due[h->n_due].node = node;
    h->due[h->n_due++].n = n;
}

/* Runs the nodes with an event after each launch; as a graph of its own where a graph would run them else, so that
 * launches follow each other as closely. */
static void run_timed(struct cuda *c, bool as_graph)
{
    cudaGraphExec_t exec = NULL;

    cuda_clock_begin(c, 2 * c->n_node); /* a part before each hand-over has an event more */
    if (as_graph)
        capture_graph(c, &exec);
    else
        run_plain(c);
    if (exec != NULL)
        run_graph(c, exec, c->node, c->n_node);
    serve(c);
    TRY(c, cudaStreamSynchronize(c->stream));
    cuda_clock_end(c);
    if (exec != NULL)
        (void)cudaGraphExecDestroy(exec);
}

static void run_nodes(struct cuda *c)
{
    struct graph *g = graph_of(c);

    if (g == NULL || g->exec == NULL)
        serve(c);
    if (c->clock.on && c->bad == cudaSuccess) {
        run_timed(c, g != NULL);
        return;
    }
    if (g != NULL && g->exec == NULL && g->seen >= 2 && c->bad == cudaSuccess)
        capture_graph(c, &g->exec);
    if (g != NULL && g->exec != NULL)
        run_graph(c, g->exec, g->node, g->n);
    else if (c->bad == cudaSuccess)
        run_plain(c);
}

/* Bytes sent ... used of pinned memory to their copy: by the step's first node, if they are few; k: which of its
 * two. */
static void send_bytes(struct cuda *c, int k, unsigned char *dev, const unsigned char *host, size_t *sent, size_t used)
{
    struct node *v = &c->node[0];
    const size_t n = used - *sent;

    if (n == 0)
        return;
    if (n > SMALL_MOVE || k > 1) {
        TRY(c, cudaMemcpyAsync(dev + *sent, host + *sent, n, cudaMemcpyHostToDevice, c->stream));
    } else if (k == 0) {
        v->out = dev + *sent;
        v->p[0] = host + *sent;
        v->n = n;
    } else {
        v->p[1] = dev + *sent;
        v->p[2] = host + *sent;
        v->i[0] = (int)n;
    }
    *sent = used;
}

/* Uploads the step's data and runs what is recorded of it. Does not wait. */
static void run_recorded(struct cuda *c)
{
    struct lane *l = c->lane;
    size_t need = 0;

    send_bytes(c, 0, l->lookup.dev, l->lookup.host, &l->lookup.sent, l->lookup.used);
    for (int i = 0; i < CHUNKS && l->chunk[i].used > 0; i++)
        send_bytes(c, 1 + i, l->chunk[i].dev, l->chunk[i].host, &l->chunk[i].sent, l->chunk[i].used);
    for (int i = 0; i < c->n_node; i++) {
        size_t n = cuda_ws(&c->node[i]);

        need = n > need ? n : need;
    }
    ensure_ws(c, need);
    run_nodes(c);
    c->n_node = 0;
    c->under_way = true;
}

/* Steps that are timed stay whole. */
void cuda_submit(struct cuda *c)
{
    (void)cudaSetDevice(c->id);
    if (c->n_node > 0 && c->bad == cudaSuccess && !c->clock.on)
        run_recorded(c);
}

/* What the device has been given runs; steps that are timed stay whole. */
static void hand_on(struct cuda *c)
{
    if (c->clock.on)
        cuda_flush(c);
    else
        cuda_submit(c);
}

/* Through pinned memory: neither device has to reach the other's. The host waits for neither, but for its own part of
 * what `a` computes; `a` waits where all places have rows that nobody has taken yet. */
void cuda_pass(struct cuda *a, void *to, struct tensor y, struct tensor x)
{
    struct cuda *b = (struct cuda *)to;
    struct passing *p = &a->passing;
    const size_t n = (size_t)(x.ne[0] * x.ne[1]) * sizeof(float);

    if (a->measuring) {
        p->need = n > p->need ? n : p->need;
        return;
    }
    b->passing.before = a;
    hand_on(b); /* that used the memory of y */
    /* On one GPU kernels of b that wait for the host may leave no room for those of a. */
    if (a->id == b->id)
        serve(b);
    hand_on(a);
    if (p->cap < n) {
        serve(a);
        TRY(a, cudaStreamSynchronize(a->stream));
        (void)cudaSetDevice(b->id);
        TRY(b, cudaStreamSynchronize(b->stream));
        (void)cudaSetDevice(a->id);
        p->need = n > p->need ? n : p->need;
        pass_reserve(a);
    }
    const unsigned at = p->turn++ % PASSES;
    unsigned char *place = p->pinned + at * p->cap;
    cudaEvent_t *taken = &b->passing.taken[b->passing.turn_taken++ % PASSES];
    pass_event(a, &p->full[at]);
    if (a->bad != cudaSuccess)
        return;
    if (p->empty[at] != NULL)
        TRY(a, cudaStreamWaitEvent(a->stream, p->empty[at], 0));
    TRY(a, cudaMemcpyAsync(place, x.data, n, cudaMemcpyDeviceToHost, a->stream));
    TRY(a, cudaEventRecord(p->full[at], a->stream));
    a->under_way = true;
    serve(a);
    (void)cudaSetDevice(b->id);
    pass_event(b, taken);
    if (b->bad != cudaSuccess)
        return;
    TRY(b, cudaStreamWaitEvent(b->stream, p->full[at], 0));
    TRY(b, cudaMemcpyAsync(y.data, place, n, cudaMemcpyHostToDevice, b->stream));
    TRY(b, cudaEventRecord(*taken, b->stream));
    b->under_way = true;
    p->empty[at] = *taken;
}

bool cuda_fetch(struct cuda *c, void *to, const void *from, size_t n)
{
    struct fetch *f = &c->lane->fetch;

    if (f->n == FETCHES || FETCH_BYTES - f->used < n)
        return false;
    struct node *v = cuda_record(c, NODE_COPY);
    v->out = f->pinned + f->used;
    v->p[0] = from;
    v->n = n;
    f->part[f->n].to = to;
    f->part[f->n].at = f->used;
    f->part[f->n++].n = n;
    f->used += round_up(n, 64);
    cuda_recorded(c);
    return true;
}

/* Runs what is left of the step; the device says when it is done. */
static void run_last(struct cuda *c)
{
    (void)cuda_record(c, NODE_DONE);
    c->done.turns++;
    run_recorded(c);
    serve(c);
}

/* All that a lane's step gave is done: the host gets it, and the lane is empty. */
static void empty_lane(struct cuda *c)
{
    struct lane *l = c->lane;
    struct fetch *f = &l->fetch;

    cuda_masks_end(c);
    for (int i = 0; i < f->n && c->bad == cudaSuccess; i++)
        memcpy(f->part[i].to, f->pinned + f->part[i].at, f->part[i].n);
    f->n = 0;
    f->used = 0;
    l->n_staged = 0;
    l->lookup.used = l->lookup.sent = l->lookup.measured = 0;
    for (int i = 0; i < CHUNKS; i++)
        l->chunk[i].used = l->chunk[i].sent = 0;
}

void cuda_flush(struct cuda *c)
{
    (void)cudaSetDevice(c->id);
    if (c->n_node > 0 && c->bad == cudaSuccess) {
        run_last(c);
        if (c->bad == cudaSuccess)
            c->under_way = !cuda_await(c, c->done.turns);
    }
    serve(c);
    c->n_node = 0;
    wake(c, false);
    c->hand.helper = NULL;
    if (c->under_way)
        TRY(c, cudaStreamSynchronize(c->stream));
    c->under_way = false;
    empty_lane(c);
    c->hand.n_adapted = 0;
}

void cuda_begin_in(struct cuda *c, int lane)
{
    if (c->n_node > 0) /* of a step that nobody has waited for */
        cuda_flush(c);
    c->lane = &c->more[lane - 1];
    c->lane->lookup.measured = 0;
    c->in_step = !c->measuring;
}

/* The lane keeps what the device has not read yet. */
void cuda_launch(struct cuda *c)
{
    struct lane *l = c->lane;

    (void)cudaSetDevice(c->id);
    l->waits = c->n_node > 0 && c->bad == cudaSuccess;
    if (l->waits) {
        run_last(c);
        l->turn = c->done.turns;
    }
    serve(c);
    c->n_node = 0;
    c->lane = &c->first;
}

void cuda_land(struct cuda *c, int lane)
{
    (void)cudaSetDevice(c->id);
    c->lane = &c->more[lane - 1];
    if (c->lane->waits && c->bad == cudaSuccess)
        (void)cuda_await(c, c->lane->turn);
    c->lane->waits = false;
    empty_lane(c);
    c->lane = &c->first;
}

struct node *cuda_record(struct cuda *c, int op)
{
    if (c->measuring) { /* one at a time, for what it needs */
        memset(&c->probe, 0, sizeof c->probe);
        c->probe.op = op;
        return &c->probe;
    }
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
    if (c->n_node == 0 && op != NODE_SEND)
        (void)cuda_record(c, NODE_SEND); /* what it sends is known when the nodes are launched */
    struct node *v = &c->node[c->n_node++];
    memset(v, 0, sizeof *v);
    v->op = op;
    if (op == NODE_SEND)
        v->i[1] = c->lane == &c->first ? 0 : 1 + (int)(c->lane - c->more);
    return v;
}

void cuda_recorded(struct cuda *c)
{
    if (c->measuring) {
        size_t n = cuda_ws(&c->probe);

        c->ws_need = n > c->ws_need ? n : c->ws_need;
        return;
    }
    if (!c->in_step)
        cuda_flush(c);
}
