/* SPDX-License-Identifier: Apache-2.0 */
/* run.c - rows in any order to one forward pass. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "arch/arch.h"
#include "model/forward.h"
#include "model/model.h"
#include "ops/ops.h"
#include "quant/quant.h"
#include "run/internal.h"
#include "state/state.h"

enum {
    ROWS_HOST = 512,
    ROWS_SHARED = 1024,
    ROWS_DEVICE = 2048,
    ROWS_MOST = 1 << 16,
    LOGITS_MOST = 1 << 15,
    LOGITS_BYTES = 64 << 20,
    DRAFTS_MOST = 64
};

/* A prompt in larger steps is faster on a GPU, also where the host computes some experts, which it then reads less
 * often; but then their memory is taken from experts. Several devices have a piece of the step each. More rows than the
 * sequences can have are not needed. */
static int rows_default(const struct model *m, int64_t ctx)
{
    const int whole = model_step_rows(m) > 0 ? model_step_rows(m) : ROWS_DEVICE;
    const int one = model_host(m) != NULL ? ROWS_SHARED : whole, piece = one > ROWS_SHARED ? one / 2 : one;
    const int most = model_n_devs(m) > 1 ? MODEL_DEV_PIECES * model_n_devs(m) * piece : one;

    if (dev_is_host(model_dev(m)) || ctx < ROWS_HOST)
        return ROWS_HOST;
    return ctx < most ? (int)ctx : most;
}

enum err_code run_kv_known(const char *type, struct err *e)
{
    if (strcmp(type, "f32") != 0 && strcmp(type, "f16") != 0 && strcmp(type, "q8_0") != 0 && strcmp(type, "q4_0") != 0)
        return err_set(e, ERR_ARG, "KV type '%s' is not one of f32, f16, q8_0, q4_0", type);
    return ERR_OK;
}

static enum err_code kv_type(int *type, const char *want, struct err *e)
{
    *type = quant_find_name(str_of(want));
    return run_kv_known(want, e);
}

static enum err_code alloc_all(struct run *r, struct err *e)
{
    size_t n = (size_t)r->rows_max;

    r->logits_bytes = (size_t)r->logits_max * (size_t)r->n_vocab * sizeof *r->logits;
    r->logits = dev_alloc(model_dev(r->m), r->logits_bytes);
    r->fetched = dev_is_host(model_dev(r->m)) ? r->logits : malloc(r->logits_bytes);
    r->here = calloc(n, sizeof *r->here);
    r->token = calloc(n, sizeof *r->token);
    r->pos = calloc(n, sizeof *r->pos);
    r->pick = calloc(2 * n, sizeof *r->pick);
    r->logits_of = calloc(n, sizeof *r->logits_of);
    r->place = calloc(n, sizeof *r->place);
    r->seq = calloc(6 * (size_t)r->n_seq, sizeof *r->seq);
    r->count = calloc((size_t)r->n_seq, sizeof *r->count);
    r->draft = calloc((size_t)r->n_seq, sizeof *r->draft);
    r->grow = calloc((size_t)r->n_seq, sizeof *r->grow);
    r->flight = calloc((size_t)r->n_seq, sizeof *r->flight);
    r->feed = calloc(n, sizeof *r->feed);
    r->table_row = calloc(n, (size_t)(model_table_rows(r->m) + 1) * sizeof *r->table_row);
    if (r->logits == NULL || r->fetched == NULL || r->here == NULL || r->token == NULL || r->pos == NULL ||
        r->pick == NULL || r->logits_of == NULL || r->place == NULL || r->seq == NULL || r->count == NULL ||
        r->draft == NULL || r->grow == NULL || r->flight == NULL || r->feed == NULL || r->table_row == NULL)
        return err_set(e, ERR_NOMEM, "out of memory: %zu MiB for logits of %d rows", r->logits_bytes >> 20,
                       r->logits_max);
    return ERR_OK;
}

/* A row for each sequence, also where steps under way share them. */
static int logits_rows(const struct run_opts *o, int n_seq, int n_devs, int rows_max, int32_t n_vocab)
{
    int64_t n = o->logits_max > 0 ? o->logits_max : LOGITS_BYTES / ((int64_t)n_vocab * (int64_t)sizeof(float));
    const int64_t least = (int64_t)(n_seq + n_devs - 1) / n_devs * n_devs;

    n = n < 1 ? 1 : n;
    n = o->logits_max == 0 && n < least ? least : n;
    n = n > rows_max ? rows_max : n;
    return n > LOGITS_MOST ? LOGITS_MOST : (int)n;
}

/* Computes the rows that stand in front of every sequence, in a slot that is empty, with a sequence's adapters. */
static enum err_code put_meta_rows(struct run *r, int slot, struct err *e)
{
    const struct arch_plan *p = model_plan(r->m);
    struct run_asked *const now = r->now;
    enum err_code code = ERR_OK;

    r->now = &r->asked[0];
    for (int at = 0; at < p->n_meta && code == ERR_OK;) {
        const int n = p->n_meta - at < r->rows_max ? p->n_meta - at : r->rows_max;
        const struct op_rows in = { n, r->token, r->pos, 1, r->seq };

        r->seq[0] = (struct op_seq){ 0, n, slot, at, 0, 0, 0 };
        for (int i = 0; i < n; i++) {
            r->token[i] = r->n_vocab + at + i;
            r->pos[i] = at + i;
        }
        r->now->n_used = 1;
        r->now->n_pick = 0;
        const struct model_step st = { .rows = &in,
                                       .parts = r->seq + r->n_seq,
                                       .adapt = slot < r->n_seq ? run_adapt_begin(r) : NULL,
                                       .stop = r->stop };
        code = model_forward(r->m, r->state, &st, e);
        at += n;
    }
    r->now = now;
    return code;
}

static enum err_code reserve_steps(const struct run *r, struct err *e)
{
    const struct model_sizes most = { .rows = r->rows_max,
                                      .logits = r->logits_max,
                                      .lanes = r->n_flights > 1 ? r->n_flights : 0,
                                      .lane_rows = r->asked[1].rows_max,
                                      .lane_logits = r->asked[1].logits_max,
                                      .adapt_rank = r->adapt.rank };

    return model_reserve(r->m, r->state, &most, e);
}

enum err_code run_open(struct run **out, struct model *m, const struct run_opts *o, struct err *e)
{
    const struct arch_plan *p = model_plan(m);
    struct state_opts so = { o->ctx_tokens > 0 ? o->ctx_tokens : p->ctx_train,
                             o->n_seq > 0 ? o->n_seq : 1,
                             0,
                             0,
                             o->undo_tokens,
                             o->draft_max,
                             o->kv_tokens };
    const char *kv = dev_is_host(model_dev(m)) ? "f32" : "f16";
    struct run *r;

    if (kv_type(&so.type_k, o->kv_k != NULL ? o->kv_k : kv, e) ||
        kv_type(&so.type_v, o->kv_v != NULL ? o->kv_v : kv, e))
        return e->code;
    if (o->rows_max < 0 || o->rows_max > ROWS_MOST)
        return err_set(e, ERR_ARG, "%d rows in a step is not in 1 .. %d", o->rows_max, ROWS_MOST);
    if (o->draft_max < 0 || o->draft_max > DRAFTS_MOST)
        return err_set(e, ERR_ARG, "%d draft rows are not in 0 .. %d", o->draft_max, DRAFTS_MOST);
    r = calloc(1, sizeof *r);
    if (r == NULL)
        return err_nomem(e);
    r->m = m;
    r->ctx = so.ctx_tokens;
    r->n_seq = so.n_seq;
    r->stop = o->stop;
    r->stop_keeps = o->stop != NULL && o->stop_keeps && dev_is_host(model_dev(m));
    r->rows_max = o->rows_max > 0 ? o->rows_max : rows_default(m, r->ctx);
    r->draft_max = o->draft_max;
    r->n_vocab = p->n_vocab;
    r->logits_max = logits_rows(o, r->n_seq, model_n_devs(m), r->rows_max, r->n_vocab);
    run_flights_open(r, o);
    r->type_k = so.type_k;
    r->type_v = so.type_v;
    const struct state_place place = model_place(m);
    if (state_open(&r->state, &place, p, &so, e) || alloc_all(r, e) || run_want_open(r, e) || run_taps_open(r, o, e) ||
        run_cache_open(r, o->checkpoint_bytes, e) || run_adapt_open(r, o, e) || reserve_steps(r, e) ||
        (p->n_meta > 0 && !model_is_dry(m) && put_meta_rows(r, r->n_seq, e))) {
        enum err_code code = e->code;

        run_close(r);
        return code;
    }
    if (p->n_meta > 0 && !model_is_dry(m))
        state_begin(r->state);
    *out = r;
    return ERR_OK;
}

void run_close(struct run *r)
{
    if (r == NULL)
        return;
    run_cache_close(r);
    run_want_close(r);
    run_taps_close(r);
    run_adapt_close(r);
    if (r->fetched != r->logits)
        free(r->fetched);
    dev_free(model_dev(r->m), r->logits, r->logits_bytes);
    state_close(r->state);
    free(r->here);
    free(r->token);
    free(r->pos);
    free(r->pick);
    free(r->logits_of);
    free(r->place);
    free(r->seq);
    free(r->count);
    free(r->table_row);
    free(r->draft);
    free(r->grow);
    free(r->flight);
    free(r->feed);
    free(r);
}

/* Whether there are KV rows for r->grow. */
static enum err_code check_room(const struct run *r, struct err *e)
{
    int64_t need = state_kv_need(r->state, r->grow);

    if (need > state_kv_left(r->state))
        return err_set(e, ERR_LIMIT, "%lld KV rows are needed, %lld of %lld for all sequences are left",
                       (long long)need, (long long)state_kv_left(r->state), (long long)state_kv_rows(r->state));
    return ERR_OK;
}

static enum err_code check_rows(struct run *r, const struct run_row *rows, int n, struct err *e)
{
    int n_logits = 0;

    if (n < 1 || n > r->now->rows_max)
        return err_set(e, ERR_ARG, "%d rows in a step is not in 1 .. %d", n, r->now->rows_max);
    for (int i = 0; i < n; i++)
        n_logits += rows[i].logits;
    if (n_logits > r->now->logits_max)
        return err_set(e, ERR_ARG, "logits of %d rows in a step: at most %d", n_logits, r->now->logits_max);
    memset(r->count, 0, (size_t)r->n_seq * sizeof *r->count);
    for (int i = 0; i < n; i++) {
        if (rows[i].token < 0 || rows[i].token >= r->n_vocab)
            return err_set(e, ERR_ARG, "token %d is not in the vocabulary of %d", (int)rows[i].token, (int)r->n_vocab);
        if (rows[i].seq < 0 || rows[i].seq >= r->n_seq)
            return err_set(e, ERR_ARG, "there is no sequence %d", rows[i].seq);
        if (r->flight[rows[i].seq] > 0)
            return err_set(e, ERR_ARG, "sequence %d is in a step that has not ended", rows[i].seq);
        r->count[rows[i].seq]++;
    }
    for (int q = 0; q < r->n_seq; q++)
        if (r->count[q] > 0 && r->draft[q] > 0)
            return err_set(e, ERR_ARG, "sequence %d has draft rows that are not settled", q);
    for (int q = 0; q < r->n_seq; q++)
        if (state_pos(r->state, q) + r->count[q] > r->ctx)
            return err_set(e, ERR_LIMIT, "the context of %lld tokens is full", (long long)r->ctx);
    for (int q = 0; q < r->n_seq; q++)
        r->grow[q] = r->count[q];
    if (run_adapt_check(r, e))
        return e->code;
    return check_room(r, e);
}

enum err_code run_meta_rows(struct run *r, int seq, struct err *e)
{
    if (model_plan(r->m)->n_meta == 0 || r->adapt.list[seq].n == 0 || run_pos(r, seq) > 0)
        return ERR_OK;
    memset(r->grow, 0, (size_t)r->n_seq * sizeof *r->grow);
    memset(r->count, 0, (size_t)r->n_seq * sizeof *r->count);
    r->grow[seq] = model_plan(r->m)->n_meta;
    r->count[seq] = 1;
    state_empty(r->state, seq);
    if (check_room(r, e) == ERR_OK && run_adapt_check(r, e) == ERR_OK)
        (void)put_meta_rows(r, seq, e);
    if (e->code != ERR_OK)
        state_clear(r->state, seq);
    return e->code;
}

/* Sequences of this step that begin with adapters. */
static enum err_code begin_adapted(struct run *r, const struct run_row *rows, int n, struct err *e)
{
    bool some = false;

    for (int i = 0; i < n; i++) {
        const int q = rows[i].seq;

        if (model_plan(r->m)->n_meta == 0 || r->adapt.list[q].n == 0 || run_pos(r, q) > 0 ||
            (i > 0 && rows[i - 1].seq == q))
            continue;
        some = true;
        e->code = ERR_OK;
        if (run_meta_rows(r, q, e) != ERR_OK)
            return e->code;
    }
    return some ? check_rows(r, rows, n, e) : ERR_OK;
}

/* Draft rows are the last of their sequence, and not too many. */
static enum err_code check_drafts(struct run *r, const struct run_row *rows, int n, struct err *e)
{
    enum err_code code = ERR_OK;

    for (int i = 0; i < n && code == ERR_OK; i++) {
        int *drafts = &r->draft[rows[i].seq];

        if (rows[i].draft)
            (*drafts)++;
        else if (*drafts > 0)
            code = err_set(e, ERR_ARG, "a row of sequence %d follows a draft row in the same step", rows[i].seq);
        if (*drafts > r->draft_max)
            code = err_set(e, ERR_ARG, "%d draft rows of sequence %d in a step: at most %d", *drafts, rows[i].seq,
                           r->draft_max);
    }
    for (int i = 0; i < n; i++)
        r->draft[rows[i].seq] = 0;
    return code;
}

/* Sorts the rows by sequence, order kept, into r->token, r->pos, r->seq. Returns the sequences used. */
static int sort_rows(struct run *r, const struct run_row *rows, int n)
{
    int *place = r->place + r->now->first_row, n_used = 0, at = 0;

    for (int q = 0; q < r->n_seq; q++) {
        int rows_of = r->count[q];

        if (rows_of == 0)
            continue;
        r->seq[n_used++] = (struct op_seq){ at, rows_of, q, state_row(r->state, q), state_again(r->state, q), 0, 0 };
        r->count[q] = at;
        at += rows_of;
    }
    for (int i = 0; i < n; i++) {
        place[i] = r->count[rows[i].seq]++;
        r->token[place[i]] = rows[i].token;
        r->draft[rows[i].seq] += rows[i].draft;
    }
    for (int s = 0; s < n_used; s++)
        r->seq[s].drafts = r->seq[s].logged = r->draft[r->seq[s].slot];
    for (int s = 0; s < n_used; s++)
        for (int j = 0; j < r->seq[s].n; j++)
            r->pos[r->seq[s].row + j] = (int32_t)(r->seq[s].pos + j);
    return n_used;
}

/* The rows whose logits are wanted, as they are sorted. */
static void pick_rows(struct run *r, const struct run_row *rows, int n)
{
    struct run_asked *a = r->now;
    const int *place = r->place + a->first_row;
    int *at = r->pick + r->rows_max; /* of a sorted row in the list */

    a->n_pick = 0;
    for (int i = 0; i < n; i++)
        at[place[i]] = rows[i].logits ? 0 : -1;
    for (int i = 0; i < n; i++)
        if (at[i] == 0) {
            at[i] = a->n_pick;
            r->pick[a->n_pick++] = i;
        }
    for (int i = 0; i < n; i++)
        r->logits_of[a->first_row + i] = at[place[i]];
}

enum err_code run_start(struct run *r, int number, const struct run_row *rows, const struct logits_want *want, int n,
                        run_masks *masks, void *ctx, struct err *e)
{
    struct run_asked *a = r->now = &r->asked[number];
    void *digest = NULL, *answer = NULL;

    if (check_rows(r, rows, n, e) != ERR_OK || begin_adapted(r, rows, n, e) != ERR_OK ||
        check_drafts(r, rows, n, e) != ERR_OK || run_want_check(r, rows, want, n, e) != ERR_OK ||
        run_cache_before(r, rows, n, e) != ERR_OK)
        return e->code;
    struct op_rows in = { n, r->token, r->pos, sort_rows(r, rows, n), r->seq };
    pick_rows(r, rows, n);
    a->n_rows = n;
    a->n_used = in.n_seq;
    memset(r->here + a->first_pick, 0, (size_t)a->n_pick * sizeof *r->here);
    const struct op_top *top = run_want_begin(r, want, masks, ctx, &digest, &answer);
    const struct model_step st = { .rows = &in,
                                   .pick = r->pick,
                                   .n_pick = a->n_pick,
                                   .pick_here = r->pick + r->rows_max,
                                   .logits = r->logits + (size_t)a->first_pick * (size_t)r->n_vocab,
                                   .top = top,
                                   .digest = digest,
                                   .answer = answer,
                                   .parts = r->seq + r->n_seq,
                                   .table_row = r->table_row,
                                   .hidden = r->hidden,
                                   .taps = number == 0 && r->taps.n > 0 ? &r->taps : NULL,
                                   .adapt = run_adapt_begin(r),
                                   .stop = r->stop,
                                   .lane = number };
    if (model_forward(r->m, r->state, &st, e) != ERR_OK) {
        for (int i = 0; e->code != ERR_DEVICE && i < in.n_seq; i++)
            run_cache_back(r, r->seq[i].slot);
        return e->code;
    }
    for (int i = 0; i < in.n_seq; i++)
        run_cache_append(r, r->seq[i].slot, run_pos(r, r->seq[i].slot) - r->seq[i].n, r->token + r->seq[i].row,
                         r->seq[i].n);
    return ERR_OK;
}

enum err_code run_step_want(struct run *r, const struct run_row *rows, const struct logits_want *want, int n,
                            run_masks *masks, void *ctx, struct err *e)
{
    if (r->n_under_way > 0)
        return err_set(e, ERR_ARG, "%d steps have not ended", r->n_under_way);
    r->last = &r->asked[0];
    if (run_start(r, 0, rows, want, n, masks, ctx, e))
        return e->code;
    for (int i = 0; i < r->last->n_used; i++)
        if (r->draft[r->seq[i].slot] == 0)
            run_cache_grown(r, r->seq[i].slot);
    return ERR_OK;
}

void run_settle(struct run *r, int seq, int keep)
{
    int drafts = r->draft[seq];

    assert(keep >= 0);
    r->draft[seq] = 0;
    if (keep < drafts)
        state_settle(r->state, seq, drafts - keep);
    if (drafts > 0)
        run_cache_grown(r, seq);
}

enum err_code run_step(struct run *r, const struct run_row *rows, int n, struct err *e)
{
    return run_step_want(r, rows, NULL, n, NULL, NULL, e);
}

const float *run_logits_last(struct run *r)
{
    return run_logits(r, r->last->n_rows - 1);
}

/* Rows of one step of a feed: fewer when more of them want logits than a step may. */
static int feed_rows(const struct run *r, int64_t left, int64_t plain)
{
    int64_t n = left < r->rows_max ? left : r->rows_max;

    plain = plain < 0 ? 0 : plain;
    return (int)(n > plain + r->logits_max ? plain + r->logits_max : n);
}

enum err_code run_feed(struct run *r, int seq, const int32_t *tokens, int64_t n, int64_t n_logits, run_sink *sink,
                       void *ctx, const struct progress *progress, struct err *e)
{
    int64_t first = n - n_logits; /* the first token whose logits are wanted */

    if (n_logits < 0 || n_logits > n || (sink == NULL && n_logits > 1))
        return err_set(e, ERR_ARG, "logits of %lld of %lld tokens", (long long)n_logits, (long long)n);
    if (seq >= 0 && seq < r->n_seq && run_pos(r, seq) + n > r->ctx)
        return err_set(e, ERR_LIMIT, "%lld tokens after %lld do not fit the context of %lld", (long long)n,
                       (long long)run_pos(r, seq), (long long)r->ctx);
    if (seq >= 0 && seq < r->n_seq && run_kv_need(r, seq, n) > run_kv_left(r))
        return check_room(r, e); /* of the same */
    for (int64_t i = 0; i < n;) {
        int64_t due = seq >= 0 && seq < r->n_seq ? run_due(r, seq) : n;
        int rows = feed_rows(r, n - i < due ? n - i : due, first - i);

        if (!progress_tick(progress, (uint64_t)i, (uint64_t)n))
            return err_set(e, ERR_CANCEL, "interrupted");
        for (int j = 0; j < rows; j++)
            r->feed[j] = (struct run_row){ tokens[i + j], seq, i + j >= first, false };
        int64_t pos = seq >= 0 && seq < r->n_seq ? run_pos(r, seq) : 0;
        if (run_step(r, r->feed, rows, e) != ERR_OK)
            return e->code;
        for (int j = 0; sink != NULL && j < rows; j++)
            if (r->feed[j].logits && sink(ctx, pos + j, run_logits(r, j), e) != ERR_OK)
                return e->code;
        i += rows;
    }
    (void)progress_tick(progress, (uint64_t)n, (uint64_t)n);
    return ERR_OK;
}

int64_t run_pos(const struct run *r, int seq)
{
    return state_pos(r->state, seq);
}

int64_t run_ctx(const struct run *r)
{
    return r->ctx;
}

int64_t run_kv_rows(const struct run *r)
{
    return state_kv_rows(r->state);
}

int64_t run_kv_left(const struct run *r)
{
    return state_kv_left(r->state);
}

int64_t run_kv_need(const struct run *r, int seq, int64_t n)
{
    memset(r->grow, 0, (size_t)r->n_seq * sizeof *r->grow);
    r->grow[seq] = n;
    return state_kv_need(r->state, r->grow);
}

int run_rows_max(const struct run *r)
{
    return r->rows_max;
}

int run_logits_max(const struct run *r)
{
    return r->logits_max;
}

int run_draft_max(const struct run *r)
{
    return r->draft_max;
}

int run_n_seq(const struct run *r)
{
    return r->n_seq;
}

int run_n_embd(const struct run *r)
{
    return model_plan(r->m)->n_embd;
}

int32_t run_n_vocab(const struct run *r)
{
    return r->n_vocab;
}

void run_kv(const struct run *r, const char **k, const char **v)
{
    *k = quant_types[r->type_k]->name;
    *v = quant_types[r->type_v]->name;
}

void run_clear(struct run *r, int seq)
{
    assert(r->flight[seq] == 0);
    r->draft[seq] = 0;
    state_clear(r->state, seq);
    run_cache_cut(r, seq, 0);
}

int64_t run_undoable(const struct run *r, int seq)
{
    return r->draft[seq] > 0 ? 0 : state_undoable(r->state, seq);
}

enum err_code run_undo(struct run *r, int seq, int64_t n, struct err *e)
{
    if (seq < 0 || seq >= r->n_seq || n < 0 || n > run_undoable(r, seq))
        return err_set(e, ERR_ARG, "%lld tokens of sequence %d cannot be undone", (long long)n, seq);
    if (model_undo(r->m, r->state, seq, n, e) != ERR_OK)
        return e->code;
    run_cache_cut(r, seq, run_pos(r, seq));
    return ERR_OK;
}

enum err_code run_fork(struct run *r, int dst, int src, struct err *e)
{
    if (dst < 0 || dst >= r->n_seq || src < 0 || src >= r->n_seq)
        return err_set(e, ERR_ARG, "there is no sequence %d", dst < 0 || dst >= r->n_seq ? dst : src);
    if (r->draft[src] > 0)
        return err_set(e, ERR_ARG, "sequence %d has draft rows that are not settled", src);
    r->draft[dst] = 0;
    r->adapt.list[dst] = r->adapt.list[src];
    state_fork(r->state, dst, src);
    run_cache_fork(r, dst, src);
    return ERR_OK;
}

int64_t run_state_bytes(const struct run *r)
{
    return state_bytes(r->state);
}

bool run_expert_reads(const struct run *r, struct io_cache_stats *out)
{
    return model_cache_stats(r->m, out);
}
