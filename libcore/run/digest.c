/* SPDX-License-Identifier: Apache-2.0 */
/* digest.c - rows of logits, or what is wanted of them, from the device. */
#include <stdlib.h>
#include <string.h>

#include "model/forward.h"
#include "ops/ops.h"
#include "run/internal.h"

/* What the step in hand asks for, and the answers of all that may be under way. */
struct run_want_memory {
    int32_t *ids;          /* [logits_max][LOGITS_IDS_MAX] */
    float *inv_temp;       /* [logits_max] */
    int32_t *n_top;        /* [logits_max]; 0: the row is wanted */
    const uint32_t **mask; /* [logits_max] */
    size_t row_bytes;      /* of the longest answer */
    size_t bytes;          /* of all answers */
    unsigned char *dev, *host;
};

enum err_code run_want_open(struct run *r, struct err *e)
{
    const struct op_top most = { .k = LOGITS_TOP_MAX, .n_ids = LOGITS_IDS_MAX };
    size_t rows = (size_t)r->logits_max;
    struct run_want_memory *w;

    if (dev_is_host(model_dev(r->m)))
        return ERR_OK;
    w = r->want = calloc(1, sizeof *w);
    if (w == NULL)
        return err_nomem(e);
    w->row_bytes = op_top_bytes(&most);
    w->bytes = rows * w->row_bytes;
    w->dev = dev_alloc(model_dev(r->m), w->bytes);
    w->host = malloc(w->bytes);
    w->ids = malloc(rows * LOGITS_IDS_MAX * sizeof *w->ids);
    w->inv_temp = malloc(rows * sizeof *w->inv_temp);
    w->n_top = malloc(rows * sizeof *w->n_top);
    w->mask = malloc(rows * sizeof *w->mask);
    if (w->dev == NULL || w->host == NULL || w->ids == NULL || w->inv_temp == NULL || w->n_top == NULL ||
        w->mask == NULL)
        return err_set(e, ERR_NOMEM, "out of memory: %zu MiB for digests of %d rows", w->bytes >> 20, r->logits_max);
    return ERR_OK;
}

void run_want_close(struct run *r)
{
    if (r->want == NULL)
        return;
    dev_free(model_dev(r->m), r->want->dev, r->want->bytes);
    free(r->want->host);
    free(r->want->ids);
    free(r->want->inv_temp);
    free(r->want->n_top);
    free(r->want->mask);
    free(r->want);
}

enum err_code run_want_check(const struct run *r, const struct run_row *rows, const struct logits_want *want, int n,
                             struct err *e)
{
    for (int i = 0; want != NULL && i < n; i++) {
        if (!rows[i].logits)
            continue;
        if (want[i].n_top < 0 || want[i].n_top > LOGITS_TOP_MAX)
            return err_set(e, ERR_ARG, "%d logits of a row is not in 0 .. %d", (int)want[i].n_top, LOGITS_TOP_MAX);
        if (want[i].n_ids < 0 || want[i].n_ids > LOGITS_IDS_MAX)
            return err_set(e, ERR_ARG, "logits of %d tokens is not in 0 .. %d", (int)want[i].n_ids, LOGITS_IDS_MAX);
        for (int32_t j = 0; want[i].n_top > 0 && j < want[i].n_ids; j++)
            if (want[i].ids[j] < -1 || want[i].ids[j] >= r->n_vocab)
                return err_set(e, ERR_ARG, "token %d is not in the vocabulary of %d", (int)want[i].ids[j],
                               (int)r->n_vocab);
    }
    return ERR_OK;
}

/* The row of logits of a step's row i; -1: it has none. */
static int row_of(const struct run *r, const struct run_asked *a, int i)
{
    return i < 0 || i >= a->n_rows ? -1 : r->logits_of[a->first_row + i];
}

/* The sizes that all rows of a step share: those of the row that wants most. */
static struct op_top sizes_of(const struct run *r, const struct logits_want *want)
{
    struct op_top top = { .k = 0 };

    for (int i = 0; i < r->now->n_rows; i++) {
        if (row_of(r, r->now, i) < 0 || want[i].n_top == 0)
            continue;
        top.k = want[i].n_top > top.k ? want[i].n_top : top.k;
        while (top.n_ids < want[i].n_ids) /* powers of two: a device records a graph for each size */
            top.n_ids = top.n_ids > 0 ? 2 * top.n_ids : 16;
    }
    return top;
}

/* The want of a row of the step in hand, and what it is to have of the masks. */
static void take_want(struct run_want_memory *w, struct run_asked *a, int row, const struct logits_want *want)
{
    int32_t *ids = w->ids + (size_t)row * (size_t)a->top.n_ids, n_ids = want->n_top > 0 ? want->n_ids : 0;

    for (int32_t j = 0; j < a->top.n_ids; j++)
        ids[j] = j < n_ids ? want->ids[j] : -1;
    w->inv_temp[row] = want->inv_temp;
    w->n_top[a->first_pick + row] = want->n_top;
    w->mask[row] = want->n_top > 0 ? want->mask : NULL;
    if (w->mask[row] != NULL)
        a->top.mask = w->mask;
}

const struct op_top *run_want_begin(struct run *r, const struct logits_want *want, run_masks *masks, void *ctx,
                                    void **digest, void **answer)
{
    struct run_want_memory *w = r->want;
    struct run_asked *a = r->now;

    if (w != NULL) {
        a->top = want != NULL ? sizes_of(r, want) : (struct op_top){ .k = 0 };
        a->digests = a->top.k > 0;
        for (int i = 0; a->digests && i < a->n_rows; i++)
            if (row_of(r, a, i) >= 0)
                take_want(w, a, row_of(r, a, i), &want[i]);
    }
    if (masks != NULL && (w == NULL || a->top.mask == NULL))
        masks(ctx);
    if (w == NULL || !a->digests)
        return NULL;
    a->top.ids = w->ids;
    a->top.inv_temp = w->inv_temp;
    a->top.masks = a->top.mask != NULL ? masks : NULL;
    a->top.ctx = ctx;
    *digest = w->dev; /* steps are done one after the other there, and the answers fetched */
    *answer = w->host + (size_t)a->first_pick * w->row_bytes;
    return &a->top;
}

bool run_digests(const struct run *r)
{
    return r->want != NULL;
}

bool run_digest(struct run *r, int i, struct logits_digest *out)
{
    const struct run_want_memory *w = r->want;
    const struct run_asked *a = r->last;
    const int row = row_of(r, a, i);

    if (w == NULL || !a->digests || row < 0 || w->n_top[a->first_pick + row] == 0)
        return false;
    *out = op_top_digest(&a->top, w->host + (size_t)a->first_pick * w->row_bytes, row, w->n_top[a->first_pick + row]);
    return true;
}

/* Row `row` of logits comes whole because that was wanted. */
static bool comes_whole(const struct run *r, int row)
{
    return !r->last->digests || r->want->n_top[r->last->first_pick + row] == 0;
}

/* A row that was wanted whole comes with its neighbours of which the same is true, another one alone. */
static void fetch_rows(struct run *r, int row)
{
    const struct run_asked *a = r->last;
    const size_t width = (size_t)r->n_vocab;
    int first = row, end = row + 1;

    while (comes_whole(r, row) && first > 0 && comes_whole(r, first - 1))
        first--;
    while (comes_whole(r, row) && end < a->n_pick && comes_whole(r, end))
        end++;
    const size_t from = (size_t)(a->first_pick + first), n = (size_t)(end - first);

    dev_copy(model_dev(r->m), r->fetched + from * width, r->logits + from * width, n * width * sizeof(float));
    memset(r->here + from, 1, n * sizeof *r->here);
}

const float *run_logits(struct run *r, int i)
{
    const int row = row_of(r, r->last, i);

    if (row < 0)
        return NULL;
    if (r->fetched != r->logits && !r->here[r->last->first_pick + row])
        fetch_rows(r, row);
    return r->fetched + (size_t)(r->last->first_pick + row) * (size_t)r->n_vocab;
}
