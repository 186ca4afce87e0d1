/* SPDX-License-Identifier: Apache-2.0 */
/* adapt.c - which adapters a sequence has, and what a step's rows take of them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "adapt/adapt.h"
#include "base/io.h"
#include "model/adapter.h"
#include "run/internal.h"

enum { MAX = RUN_ADAPTERS_MAX };
_Static_assert((int)RUN_ADAPTERS_MAX == (int)OP_TERMS_MAX && (int)RUN_ADAPTERS_STEP == (int)OP_ADAPTERS_MAX,
               "what operations take");

enum err_code run_adapt_open(struct run *r, const struct run_opts *o, struct err *e)
{
    struct run_adapt *a = &r->adapt;
    const size_t rows = (size_t)r->rows_max * MAX, picked = (size_t)r->logits_max * MAX;

    if (o->adapter_rank < 0 || o->adapter_rank > MAX * ADAPTER_RANK_MAX)
        return err_set(e, ERR_ARG, "adapters of %d ranks are not in 0 .. %d", o->adapter_rank, MAX * ADAPTER_RANK_MAX);
    if (o->adapter_rank > 0 && !dev_adapts(model_dev(r->m)))
        return err_set(e, ERR_UNSUPPORTED, "device %s computes no adapters", dev_name(model_dev(r->m)));
    a->list = calloc((size_t)r->n_seq, sizeof *a->list);
    a->rank = o->adapter_rank;
    if (a->rank > 0) {
        a->which = calloc(rows, sizeof *a->which);
        a->scale = calloc(rows, sizeof *a->scale);
        a->which_picked = calloc(picked, sizeof *a->which_picked);
        a->scale_picked = calloc(picked, sizeof *a->scale_picked);
    }
    if (a->list == NULL ||
        (a->rank > 0 && (a->which == NULL || a->scale == NULL || a->which_picked == NULL || a->scale_picked == NULL)))
        return err_nomem(e);
    return ERR_OK;
}

void run_adapt_close(struct run *r)
{
    free(r->adapt.list);
    free(r->adapt.which);
    free(r->adapt.scale);
    free(r->adapt.which_picked);
    free(r->adapt.scale_picked);
}

/* The list without what has no effect. */
static enum err_code make_list(const struct run *r, struct run_list *l, const struct run_adapter *a, int n,
                               struct err *e)
{
    int ranks = 0;

    l->n = 0;
    if (n < 0 || n > MAX)
        return err_set(e, ERR_ARG, "%d adapters: a sequence has at most %d", n, MAX);
    for (int i = 0; i < n; i++) {
        if (!isfinite(a[i].scale))
            return err_set(e, ERR_ARG, "%s: an adapter with scale %g", model_adapter_from(a[i].adapter)->path,
                           (double)a[i].scale);
        if (a[i].scale == 0.0f)
            continue;
        ranks += adapter_rank(model_adapter_from(a[i].adapter));
        l->key[l->n] = model_adapter_key(a[i].adapter);
        l->v[l->n++] = a[i];
    }
    if (ranks > r->adapt.rank)
        return err_set(e, ERR_ARG, "adapters of %d ranks for a sequence: the run has room for %d", ranks,
                       r->adapt.rank);
    return ERR_OK;
}

static bool same_list(const struct run_list *a, const struct run_list *b)
{
    bool same = a->n == b->n;

    for (int i = 0; same && i < a->n; i++)
        same = a->v[i].scale == b->v[i].scale && a->key[i] == b->key[i];
    return same;
}

bool run_has_adapters(const struct run *r, int seq, const struct run_adapter *a, int n)
{
    struct run_list l;
    struct err e;

    return make_list(r, &l, a, n, &e) == ERR_OK && same_list(&l, &r->adapt.list[seq]);
}

enum err_code run_check_adapters(const struct run *r, const struct run_adapter *a, int n, struct err *e)
{
    struct run_list l;

    return make_list(r, &l, a, n, e);
}

enum err_code run_set_adapters(struct run *r, int seq, const struct run_adapter *a, int n, struct err *e)
{
    struct run_list l;

    if (seq < 0 || seq >= r->n_seq)
        return err_set(e, ERR_ARG, "there is no sequence %d", seq);
    if (make_list(r, &l, a, n, e))
        return e->code;
    if (!same_list(&l, &r->adapt.list[seq]))
        run_clear(r, seq);
    r->adapt.list[seq] = l;
    return ERR_OK;
}

void run_forget_adapter(struct run *r, const struct model_adapter *a)
{
    for (int q = 0; q < r->n_seq; q++) {
        struct run_list *l = &r->adapt.list[q];
        bool has = false;

        for (int i = 0; i < l->n; i++)
            has = has || l->v[i].adapter == a;
        if (!has)
            continue;
        run_clear(r, q);
        l->n = 0;
    }
}

static uint64_t add_hash(uint64_t h, uint64_t key, float scale)
{
    h = io_hash(h, &key, sizeof key);
    return io_hash(h, &scale, sizeof scale);
}

uint64_t run_adapters_hash(const struct run_adapter *a, int n)
{
    uint64_t h = 0;

    for (int i = 0; i < n; i++)
        if (a[i].scale != 0.0f)
            h = add_hash(h, model_adapter_key(a[i].adapter), a[i].scale);
    return h;
}

uint64_t run_adapt_hash(const struct run *r, int seq)
{
    const struct run_list *l = &r->adapt.list[seq];
    uint64_t h = 0;

    for (int i = 0; i < l->n; i++)
        h = add_hash(h, l->key[i], l->v[i].scale);
    return h;
}

/* The number of an adapter among those of the step, to which it is added; -1: there are too many. */
static int number_of(struct run_adapt *a, const struct model_adapter *b)
{
    int i = 0;

    while (i < a->step.rows.n && a->of[i] != b)
        i++;
    if (i == RUN_ADAPTERS_STEP)
        return -1;
    a->step.rows.n += i == a->step.rows.n;
    a->of[i] = b;
    return i;
}

enum err_code run_adapt_check(struct run *r, struct err *e)
{
    struct run_adapt *a = &r->adapt;

    a->step.rows.n = a->step.rows.max = 0;
    for (int q = 0; q < r->n_seq; q++) {
        struct run_list *l = &a->list[q];

        for (int i = 0; r->count[q] > 0 && i < l->n; i++) {
            const uint64_t key = model_adapter_key(l->v[i].adapter);

            if (run_pos(r, q) == 0)
                l->key[i] = key;
            if (l->key[i] != key)
                return err_set(e, ERR_ARG, "an adapter of sequence %d has changed since its first token: clear it", q);
            if (number_of(a, l->v[i].adapter) < 0)
                return err_set(e, ERR_ARG, "more than %d adapters in a step", RUN_ADAPTERS_STEP);
        }
        if (r->count[q] > 0 && l->n > a->step.rows.max)
            a->step.rows.max = l->n;
    }
    return ERR_OK;
}

/* Row `at` of the lists gets those of a sequence. */
static void put_list(struct run_adapt *a, int32_t *which, float *scale, int at, int seq)
{
    const struct run_list *l = &a->list[seq];
    const int max = a->step.rows.max;

    for (int i = 0; i < max; i++) {
        which[at * max + i] = i < l->n ? number_of(a, l->v[i].adapter) : -1;
        scale[at * max + i] = i < l->n ? l->v[i].scale : 0.0f;
    }
}

const struct model_adapt *run_adapt_begin(struct run *r)
{
    struct run_adapt *a = &r->adapt;
    const int max = a->step.rows.max;

    if (max == 0)
        return NULL;
    for (int s = 0; s < r->now->n_used; s++)
        for (int i = 0; i < r->seq[s].n; i++)
            put_list(a, a->which, a->scale, r->seq[s].row + i, r->seq[s].slot);
    for (int i = 0; i < r->now->n_pick; i++) {
        memcpy(a->which_picked + i * max, a->which + r->pick[i] * max, (size_t)max * sizeof *a->which);
        memcpy(a->scale_picked + i * max, a->scale + r->pick[i] * max, (size_t)max * sizeof *a->scale);
    }
    a->step.of = a->of;
    a->step.rows.which = a->which;
    a->step.rows.scale = a->scale;
    a->step.rows.floats = a->rank;
    a->step.picked = a->step.rows;
    a->step.picked.which = a->which_picked;
    a->step.picked.scale = a->scale_picked;
    return &a->step;
}
