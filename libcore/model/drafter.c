/* SPDX-License-Identifier: Apache-2.0 */
/* drafter.c - what both kinds of drafters share: memory, rows of taps, order of device steps. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "adapt/adapt.h"
#include "gguf/gguf.h"
#include "model/drafter_internal.h"
#include "quant/quant.h"

static const struct op_top best = { .k = 1 };

void model_drafter_close(struct model_drafter *d)
{
    struct dev *dev;
    size_t row, n;

    if (d == NULL)
        return;
    dev = d->net.dev;
    row = (size_t)d->width * sizeof(float);
    n = (size_t)d->n_seq;
    for (int i = 0; i < 2; i++)
        dev_free(dev, d->saved[i], (size_t)d->n_saved * row);
    dev_free(dev, d->last, n * (size_t)d->net.plan.n_embd * sizeof(float));
    dev_free(dev, d->digest, n * MODEL_GUESSES_MAX * op_top_bytes(&best));
    model_adapter_close(d->adapter);
    adapter_close(d->changes);
    state_close(d->state);
    arena_free(&d->net.arena);
    free(d);
}

enum err_code model_draft_open(struct model_drafter **out, const struct model *m, const struct drafter_kind *kind,
                               struct err *e)
{
    struct model_drafter *d = calloc(1, sizeof *d);

    if (d == NULL)
        return err_nomem(e);
    d->kind = kind;
    d->target = m;
    d->net.gguf = m->gguf;
    d->net.dev = m->dev;
    *out = d;
    return ERR_OK;
}

const struct model_drafter_info *model_drafter_info(const struct model_drafter *d)
{
    return &d->info;
}

void model_draft_note(struct model_drafter *d, float **trace, struct tensor x)
{
    const size_t n = (size_t)x.ne[0] * (size_t)x.ne[1];

    if (*trace == NULL || x.data == NULL)
        return;
    assert(x.stride == x.ne[0]);
    dev_copy(d->net.dev, *trace, x.data, n * sizeof(float));
    *trace += n;
}

int64_t model_drafter_ctx(const struct model_drafter *d)
{
    return state_ctx(d->state);
}

void model_drafter_crop(struct model_drafter *d, int slot, int64_t rows)
{
    if (rows < state_pos(d->state, slot))
        state_settle(d->state, slot, state_pos(d->state, slot) - rows);
}

void model_drafter_fork(struct model_drafter *d, int dst, int src)
{
    state_fork(d->state, dst, src);
}

/* ---- rows of a device step ---- */

struct op_rows model_draft_rows(const struct model_drafter *d, int view)
{
    const struct drafter_batch *b = &d->batch;
    const bool each = view == AS_SEEN || view == AS_SEEN_IN_WINDOW; /* a sequence for each row */

    return (struct op_rows){ b->n, b->token, b->pos[view], each ? b->n : b->n_seq, b->seq[view] };
}

/* Rows of a slot from pos on, of which page `first` is the first one in a window. */
static void append_at(struct model_drafter *d, int slot, int64_t pos, int n, int64_t first)
{
    struct drafter_batch *b = &d->batch;
    const int64_t from[2] = { pos, pos - first * OP_KV_PAGE };
    const int stored[2] = { AS_STORED, AS_STORED_IN_WINDOW };
    const int seen[2] = { AS_SEEN, AS_SEEN_IN_WINDOW };

    for (int w = 0; w < 2; w++) {
        b->seq[stored[w]][b->n_seq] = (struct op_seq){ .row = b->n, .n = n, .slot = slot, .pos = from[w] };
        for (int i = 0; i < n; i++) {
            b->pos[stored[w]][b->n + i] = (int32_t)(from[w] + i);
            b->pos[seen[w]][b->n + i] = (int32_t)(from[w] + n - 1);
            b->seq[seen[w]][b->n + i] =
                (struct op_seq){ .row = b->n + i, .n = 1, .slot = slot, .pos = from[w] + n - 1 };
        }
    }
    b->n_seq++;
    b->n += n;
}

void model_draft_append(struct model_drafter *d, int slot, int n)
{
    const int64_t pos = d->measuring ? state_ctx(d->state) - n : state_pos(d->state, slot);
    const int64_t from = pos - d->window + 1;
    const int64_t first = d->window > 0 && from > 0 ? from / OP_KV_PAGE : 0;

    if (!d->measuring)
        state_prepare(d->state, slot, n);
    d->page[slot] = state_kv(d->state, 0)->page[slot] + first;
    append_at(d, slot, pos, n, first);
}

void model_draft_advance(struct model_drafter *d)
{
    for (int i = 0; i < d->batch.n_seq; i++)
        state_advance(d->state, d->batch.seq[AS_STORED][i].slot, d->batch.seq[AS_STORED][i].n, 0);
}

static struct tensor rows_at(const float *data, int64_t ne0, int64_t ne1)
{
    return (struct tensor){ .type = QUANT_f32, .ne = { ne0, ne1, 1 }, .stride = ne0, .data = (void *)(uintptr_t)data };
}

/* Rows of a layer. */
static struct tensor rows_of(const struct model_drafter *d, const struct model_taps *t, int layer)
{
    const int64_t n_embd = d->net.plan.n_embd;
    int i = 0;

    while (i + 1 < t->n && t->layer[i] != layer)
        i++;
    assert(t->rows == NULL || t->layer[i] == layer);
    return rows_at(t->rows == NULL ? NULL : t->rows + (int64_t)i * t->rows_max * n_embd, n_embd, t->rows_max);
}

/* Rows row[0 .. n) of all taps, side by side. */
static void pick_taps(struct model_drafter *d, struct tensor y, const struct model_taps *t, const int32_t *row)
{
    const int64_t n_embd = d->net.plan.n_embd;

    for (int i = 0; i < d->info.n_tap; i++)
        op_rows_pick(d->net.dev, op_cols(y, i * n_embd, n_embd), rows_of(d, t, d->info.tap[i]), row);
}

/* Saved rows and rows of taps, in the order given. */
static struct tensor gather_rows(struct model_drafter *d, const struct model_taps *t,
                                 const struct model_drafter_row *row, int n)
{
    struct dev *dev = d->net.dev;
    struct tensor y = dev_scratch(dev, d->width, n), x = dev_scratch(dev, d->width, n);
    int n_saved = 0, n_tap;
    bool sorted = true;

    for (int i = 0; i < n; i++)
        n_saved += row[i].saved;
    n_tap = n_saved;
    for (int i = 0, s = 0; i < n; i++) {
        d->order[i] = row[i].saved ? s++ : n_tap++;
        d->pick[d->order[i]] = row[i].row;
        sorted &= d->order[i] == i;
    }
    if (n_saved > 0)
        op_rows_pick(dev, op_slice(y, 0, n_saved), rows_at(d->saved[0], d->width, d->n_saved), d->pick);
    if (n_saved < n)
        pick_taps(d, op_slice(y, n_saved, n - n_saved), t, d->pick + n_saved);
    if (sorted)
        return y;
    op_rows_pick(dev, x, y, d->order);
    return x;
}

enum err_code model_drafter_save(struct model_drafter *d, const struct model_taps *t, const int32_t *row, int n, int at,
                                 struct err *e)
{
    assert(at >= 0 && n >= 0 && at + n <= d->n_saved);
    if (n == 0)
        return ERR_OK;
    dev_begin(d->net.dev);
    pick_taps(d, op_slice(rows_at(d->saved[0], d->width, d->n_saved), at, n), t, row);
    return dev_leave(d->net.dev, e);
}

enum err_code model_drafter_keep(struct model_drafter *d, const int32_t *from, int n, struct err *e)
{
    float *to = d->saved[1];

    assert(n >= 0 && n <= d->n_saved);
    if (n == 0)
        return ERR_OK;
    dev_begin(d->net.dev);
    op_rows_pick(d->net.dev, rows_at(to, d->width, n), rows_at(d->saved[0], d->width, d->n_saved), from);
    d->saved[1] = d->saved[0];
    d->saved[0] = to;
    return dev_leave(d->net.dev, e);
}

/* ---- keys and values ---- */

void model_draft_remember(const struct step *s, int i, struct tensor x, const struct op_kv *kv,
                          const struct op_rows *turn, const struct op_rows *store)
{
    const struct arch_attn_plan *a = &s->m->plan.attn;
    const struct attn_weights *w = &s->m->layer[i].attn;
    const struct op_rope rope = { a->dim_k, a->n_rot, s->m->layer[i].rope_freq, a->rope == ROPE_PAIRS, 0 };
    struct tensor k = dev_scratch(s->d, w->k.ne[1], x.ne[1]);
    struct tensor v = dev_scratch(s->d, w->v.ne[1], x.ne[1]);

    model_muls(s, (const struct op_product[]){ { k, w->k }, { v, w->v } }, 2, x);
    if (a->qk_norm)
        op_rms_norm(s->d, k, k, w->k_norm, a->dim_k, a->dim_k, s->m->plan.norm_eps);
    if (a->rope != ROPE_NONE)
        op_rope(s->d, k, &rope, turn);
    if (op_kv_rotated(kv))
        op_hadamard(s->d, k, k, a->dim_k);
    op_kv_store(s->d, k, v, kv, store);
}

/* ---- guesses ---- */

/* The output matrix's rows as they are in the file; NULL: only the device has them, in its own layout. */
static const unsigned char *head_rows(const struct model_drafter *d)
{
    return !d->head.laid    ? d->head.data
           : d->head.of > 0 ? gguf_tensor_at(d->target->gguf, (size_t)d->head.of - 1)->data
                            : NULL;
}

enum err_code model_drafter_narrow(struct model_drafter *d, const int32_t *token, int n, struct err *e)
{
    const size_t bytes = (size_t)quant_row_bytes(d->head.type, d->head.ne[0]);

    assert(n > 0 && d->narrow.token == NULL && d->state != NULL);
    if (!dev_is_host(d->net.dev) || head_rows(d) == NULL || n >= d->head.ne[1])
        return ERR_OK;
    d->narrow.rows = arena_alloc(&d->net.arena, (size_t)n * bytes);
    d->narrow.token = arena_array(&d->net.arena, (size_t)n, sizeof *token);
    if (d->narrow.rows == NULL || d->narrow.token == NULL) {
        d->narrow.token = NULL;
        return err_nomem(e);
    }
    memcpy(d->narrow.token, token, (size_t)n * sizeof *token);
    d->narrow.n = n;
    return ERR_OK;
}

/* The rows of the output matrix that guesses are made from. */
static struct tensor narrow_head(struct model_drafter *d)
{
    const size_t bytes = (size_t)quant_row_bytes(d->head.type, d->head.ne[0]);
    struct tensor w = d->head;

    if (d->narrow.token == NULL)
        return w;
    for (int i = 0; i < d->narrow.n && !d->narrow.copied; i++)
        memcpy(d->narrow.rows + (size_t)i * bytes, head_rows(d) + (size_t)d->narrow.token[i] * bytes, bytes);
    d->narrow.copied = true;
    w.ne[1] = w.pitch = d->narrow.n;
    w.data = d->narrow.rows;
    w.laid = false;
    w.of = 0;
    return w;
}

/* Answers r .. r + n - 1 have numbers of rows of a narrow head: they become tokens. */
static void name_tokens(struct model_drafter *d, int64_t r, int64_t n)
{
    const struct op_ids ids = op_top_ids(&best, d->digest);
    int32_t *at = (int32_t *)(uintptr_t)ids.at; /* of d->digest, in the host's memory */

    for (int64_t i = r; i < r + n && d->narrow.token != NULL; i++)
        if (at[i * ids.stride] >= 0)
            at[i * ids.stride] = d->narrow.token[at[i * ids.stride]];
}

void model_draft_head(struct model_drafter *d, struct tensor x, int64_t r)
{
    struct dev *dev = d->net.dev;
    const struct tensor w = narrow_head(d);
    struct tensor logits = dev_scratch(dev, w.ne[1], x.ne[1]);
    const struct op_top top = { .k = 1, .inv_temp = d->inv_temp };
    const size_t bytes = op_top_bytes(&top);

    model_draft_note(d, &d->trace.hidden, x);
    op_matmul(dev, logits, w, x);
    model_draft_note(d, &d->trace.logits, logits);
    op_top(dev, d->digest + (size_t)r * bytes, logits, &top);
    name_tokens(d, r, x.ne[1]);
}

struct op_ids model_draft_ids(const struct model_drafter *d)
{
    return op_top_ids(&best, d->digest);
}

int32_t model_draft_answer(const struct model_drafter *d, int64_t r, float *p)
{
    const struct logits_digest row = op_top_digest(&best, d->answer, r, 1);

    *p = row.n_top > 0 ? (float)(1.0 / row.total) : 0.0f;
    return row.n_top > 0 ? row.top[0].token : -1;
}

/* The rows are grouped by slot already: where a group is cut, the next step has the rest. */
static void group(struct model_drafter *d, const struct model_drafter_row *row, int n)
{
    d->batch.n = d->batch.n_seq = 0;
    for (int i = 0, k; i < n; i += k) {
        for (k = 0; i + k < n && row[i + k].slot == row[i].slot; k++)
            d->batch.token[i + k] = row[i + k].next;
        model_draft_append(d, row[i].slot, k);
    }
}

enum err_code model_drafter_run(struct model_drafter *d, const struct model_taps *t,
                                const struct model_drafter_row *row, int n_row, const struct model_drafter_ask *ask,
                                int n_ask, struct err *e)
{
    int i = 0;

    if (n_row == 0 && n_ask == 0)
        return ERR_OK;
    d->n_last = 0;
    for (int s = 0; s < d->n_seq; s++)
        d->last_of[s] = -1;
    do {
        const int n = n_row - i < DRAFT_ROWS ? n_row - i : DRAFT_ROWS;

        dev_begin(d->net.dev);
        if (n > 0) {
            group(d, row + i, n);
            d->kind->take(d, gather_rows(d, t, row + i, n));
            model_draft_advance(d);
        }
        i += n;
        if (i == n_row && n_ask > 0) {
            const int n_answer = d->kind->guess(d, ask, n_ask);

            if (n_answer > 0)
                dev_fetch(d->net.dev, d->answer, d->digest, (size_t)n_answer * op_top_bytes(&best));
        }
        if (dev_end(d->net.dev, e) != ERR_OK)
            return e->code;
    } while (i < n_row);
    if (n_ask > 0)
        d->kind->finish(d, ask, n_ask);
    return ERR_OK;
}

/* ---- memory ---- */

/* A device step of n rows, at the end of a context; returns the scratch that is in use when its guesses begin. */
static size_t measure_take(struct model_drafter *d, int n)
{
    const struct model_taps t = { .rows_max = n };
    struct model_drafter_row row[DRAFT_ROWS] = { { .saved = true } };

    dev_begin(d->net.dev);
    group(d, row, n);
    d->kind->take(d, gather_rows(d, &t, row, n));
    return dev_mark(d->net.dev);
}

/* The guesses of a step take the same whatever number of rows there was: they are measured behind the most scratch. */
static enum err_code reserve_scratch(struct model_drafter *d, struct err *e)
{
    enum { EACH = 64 }; /* small steps may take more than large ones, by other kernels */
    struct dev *dev = d->net.dev;
    size_t most = 0;
    int at = 1;

    d->measuring = true;
    dev_measure(dev, true);
    for (int n = 1; n <= DRAFT_ROWS; n += n < EACH ? 1 : EACH) {
        const size_t used = measure_take(d, n);

        at = used > most ? n : at;
        most = used > most ? used : most;
    }
    for (int n_ask = 1; n_ask <= d->n_seq; n_ask++) {
        (void)measure_take(d, at);
        d->kind->measure(d, n_ask);
    }
    dev_measure(dev, false);
    d->measuring = false;
    return dev_reserve(dev, dev_scratch_peak(dev), e);
}

/* Lists of adapters: all rows have the one there is. */
static bool adapter_lists(struct model_drafter *d, size_t rows)
{
    int32_t *which = arena_array(&d->net.arena, rows, sizeof *which);
    float *scale = arena_array(&d->net.arena, rows, sizeof *scale);

    for (size_t i = 0; scale != NULL && i < rows; i++)
        scale[i] = 1.0f;
    d->adapt.of = (const struct model_adapter *const *)&d->adapter;
    d->adapt.rows = d->adapt.picked =
        (struct op_terms){ .n = 1, .max = 1, .which = which, .scale = scale, .floats = adapter_rank(d->changes) };
    return which != NULL && scale != NULL;
}

/* Allocates the arrays on the host for `rows` rows. */
static bool host_arrays(struct model_drafter *d, size_t rows)
{
    struct arena *a = &d->net.arena;
    const size_t n = (size_t)d->n_seq, guesses = n * MODEL_GUESSES_MAX;
    bool all = true;

    for (int v = 0; v < DRAFT_VIEWS; v++) {
        d->batch.pos[v] = arena_array(a, rows, sizeof *d->batch.pos[v]);
        d->batch.seq[v] = arena_array(a, rows, sizeof *d->batch.seq[v]);
        all &= d->batch.pos[v] != NULL && d->batch.seq[v] != NULL;
    }
    d->batch.token = arena_array(a, rows, sizeof *d->batch.token);
    d->order = arena_array(a, rows, sizeof *d->order);
    d->pick = arena_array(a, rows, sizeof *d->pick);
    d->last_of = arena_array(a, n, sizeof *d->last_of);
    d->live = arena_array(a, n, sizeof *d->live);
    d->rows_before = arena_array(a, n, sizeof *d->rows_before);
    d->page = arena_array(a, n, sizeof *d->page);
    d->inv_temp = arena_array(a, guesses, sizeof *d->inv_temp);
    d->answer = arena_array(a, guesses, op_top_bytes(&best));
    for (size_t i = 0; d->inv_temp != NULL && i < guesses; i++)
        d->inv_temp[i] = 1.0f;
    return all && d->batch.token != NULL && d->order != NULL && d->pick != NULL && d->last_of != NULL &&
           d->live != NULL && d->rows_before != NULL && d->page != NULL && d->inv_temp != NULL && d->answer != NULL;
}

enum err_code model_drafter_reserve(struct model_drafter *d, int n_seq, int64_t ctx_tokens, int n_saved, struct err *e)
{
    struct dev *dev = d->net.dev;
    const int type = dev_is_host(dev) ? QUANT_f32 : QUANT_f16;
    const int64_t most = ctx_tokens + MODEL_GUESSES_MAX + 1;
    const struct state_opts so = {
        .ctx_tokens = most < ARCH_CTX_MAX ? most : ARCH_CTX_MAX, .n_seq = n_seq, .type_k = type, .type_v = type
    };
    const size_t rows = DRAFT_ROWS + (size_t)n_seq * (MODEL_GUESSES_MAX + 1), n = (size_t)n_seq;

    assert(d->state == NULL);
    if (state_open(&d->state, &(struct state_place){ &dev, 1, NULL }, &d->net.plan, &so, e) != ERR_OK)
        return e->code;
    d->n_seq = n_seq;
    d->n_saved = n_saved;
    d->last = dev_alloc(dev, n * (size_t)d->net.plan.n_embd * sizeof(float));
    d->digest = dev_alloc(dev, n * MODEL_GUESSES_MAX * op_top_bytes(&best));
    for (int i = 0; i < 2; i++)
        d->saved[i] = dev_alloc(dev, (size_t)n_saved * (size_t)d->width * sizeof(float));
    if (!host_arrays(d, rows) || (d->adapter != NULL && !adapter_lists(d, rows)) || d->last == NULL ||
        d->digest == NULL || d->saved[0] == NULL || d->saved[1] == NULL)
        return err_set(e, ERR_NOMEM, "out of memory: rows of a drafter");
    return reserve_scratch(d, e);
}
