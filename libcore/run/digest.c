/* SPDX-License-Identifier: Apache-2.0 */
/* digest.c - rows of logits, or what is wanted of them, from the device. */
#include <stdlib.h>
#include <string.h>

#include "model/forward.h"
#include "ops/ops.h"
#include "run/internal.h"

/* What the step in hand asks for, and the answers. */
struct run_want_memory {
    struct op_top  top;
    bool           asked;  /* of the last step */
    int32_t        ids[RUN_WANT_ROWS * RUN_WANT_IDS];
    float          inv_temp[RUN_WANT_ROWS];
    int32_t        n_top[RUN_WANT_ROWS];
    size_t         bytes;  /* of all answers */
    unsigned char *dev, *host;
    struct run_top best[RUN_WANT_TOP];
};

enum err_code run_want_open(struct run *r, struct err *e)
{
    const struct op_top most = { .k = RUN_WANT_TOP, .n_ids = RUN_WANT_IDS };
    struct run_want_memory *w;

    if (dev_is_host(model_dev(r->m)))
        return ERR_OK;
    w = r->want = calloc(1, sizeof *w);
    if (w == NULL)
        return err_set(e, ERR_NOMEM, "out of memory");
    w->bytes = RUN_WANT_ROWS * op_top_bytes(&most);
    w->dev = dev_alloc(model_dev(r->m), w->bytes);
    w->host = malloc(w->bytes);
    if (w->dev == NULL || w->host == NULL)
        return err_set(e, ERR_NOMEM, "out of memory");
    return ERR_OK;
}

void run_want_close(struct run *r)
{
    if (r->want == NULL)
        return;
    dev_free(model_dev(r->m), r->want->dev, r->want->bytes);
    free(r->want->host);
    free(r->want);
}

const struct op_top *run_want_begin(struct run *r, const struct run_want *want, void **digest, void **answer)
{
    struct run_want_memory *w = r->want;
    struct op_top top = { .k = 1 };

    if (w == NULL)
        return NULL;
    w->asked = false;
    if (want == NULL || r->n_pick == 0 || r->n_pick > RUN_WANT_ROWS)
        return NULL;
    for (int i = 0; i < r->n_rows; i++) {
        if (r->logits_of[i] < 0)
            continue;
        if (want[i].n_top < 1 || want[i].n_top > RUN_WANT_TOP || want[i].n_ids > RUN_WANT_IDS)
            return NULL;
        top.k = want[i].n_top > top.k ? want[i].n_top : top.k;
        while (top.n_ids < want[i].n_ids) /* few different sizes: each is a step of its own to a device */
            top.n_ids = top.n_ids > 0 ? 2 * top.n_ids : 16;
    }
    for (int i = 0; i < r->n_rows; i++) {
        int row = r->logits_of[i];

        if (row < 0)
            continue;
        int32_t *ids = w->ids + (size_t)row * (size_t)top.n_ids;
        for (int32_t j = 0; j < top.n_ids; j++)
            ids[j] = j < want[i].n_ids ? want[i].ids[j] : -1;
        w->inv_temp[row] = want[i].inv_temp;
        w->n_top[row] = want[i].n_top;
    }
    top.ids = w->ids;
    top.inv_temp = w->inv_temp;
    w->top = top;
    w->asked = true;
    *digest = w->dev;
    *answer = w->host;
    return &w->top;
}

bool run_digest(struct run *r, int i, struct run_digest *out)
{
    struct run_want_memory *w = r->want;

    if (w == NULL || !w->asked || i < 0 || i >= r->n_rows || r->logits_of[i] < 0)
        return false;
    int row = r->logits_of[i];
    const struct op_top_row *from = (const void *)(w->host + (size_t)row * op_top_bytes(&w->top));
    const struct op_top_entry *entry = (const void *)(from + 1);
    int n = from->n < w->n_top[row] ? from->n : w->n_top[row];

    for (int j = 0; j < n; j++)
        w->best[j] = (struct run_top){ entry[j].id, entry[j].logit };
    *out = (struct run_digest){ w->best, n, (const float *)(const void *)(entry + w->top.k), from->max, from->total,
                                from->heated, from->weighted };
    return true;
}

/* All rows at once where nothing else was wanted of them, else the one. */
const float *run_logits(struct run *r, int i)
{
    if (i < 0 || i >= r->n_rows || r->logits_of[i] < 0)
        return NULL;
    int row = r->logits_of[i];
    size_t width = (size_t)r->n_vocab;
    if (r->fetched != r->logits && !r->here[row]) {
        bool one = r->want != NULL && r->want->asked;
        size_t first = one ? (size_t)row : 0, n = one ? 1 : (size_t)r->n_pick;

        dev_copy(model_dev(r->m), r->fetched + first * width, r->logits + first * width, n * width * sizeof(float));
        memset(r->here + first, 1, n * sizeof *r->here);
    }
    return r->fetched + (size_t)row * width;
}
