/* SPDX-License-Identifier: Apache-2.0 */
/* taps.c - rows of the residual stream that a step leaves on the device for a drafter. */
#include <stdlib.h>
#include <string.h>

#include "arch/arch.h"
#include "model/forward.h"
#include "ops/ops.h"
#include "run/internal.h"
#include "run/taps.h"

enum err_code run_taps_open(struct run *r, const struct run_opts *o, struct err *e)
{
    const struct arch_plan *p = model_plan(r->m);

    if (o->n_taps < 0 || o->n_taps > RUN_TAPS_MAX)
        return err_set(e, ERR_ARG, "%d taps are not in 0 .. %d", o->n_taps, RUN_TAPS_MAX);
    for (int i = 0; i < o->n_taps; i++)
        if (o->tap_layers[i] < 0 || o->tap_layers[i] > p->n_layer)
            return err_set(e, ERR_ARG, "tap of layer %d: not in 0 .. %d", o->tap_layers[i], p->n_layer);
    for (int i = 0; i < o->n_taps; i++)
        if (p->streams.n > 1 && o->tap_layers[i] != p->n_layer)
            return err_set(e, ERR_UNSUPPORTED,
                           "layer %d has %d hidden rows for a token: neither drafters nor vectors of texts use them",
                           o->tap_layers[i], p->streams.n);
    if (o->n_taps == 0)
        return ERR_OK;
    memcpy(r->tap_layer, o->tap_layers, (size_t)o->n_taps * sizeof *r->tap_layer);
    r->taps = (struct model_taps){ r->tap_layer, o->n_taps, r->rows_max, NULL };
    r->tap_bytes = (size_t)o->n_taps * (size_t)r->rows_max * (size_t)p->n_embd * sizeof(float);
    r->taps.rows = dev_alloc(model_dev(r->m), r->tap_bytes);
    if (r->taps.rows == NULL)
        return err_set(e, ERR_NOMEM, "out of memory: %zu MiB for hidden rows", r->tap_bytes >> 20);
    return ERR_OK;
}

void run_taps_close(struct run *r)
{
    dev_free(model_dev(r->m), r->taps.rows, r->tap_bytes);
}

const struct model_taps *run_taps(const struct run *r)
{
    return &r->taps;
}

/* The last step, if it left any. */
static const struct run_asked *tapped(const struct run *r)
{
    return r->taps.n > 0 && r->last == &r->asked[0] ? r->last : NULL;
}

int run_first_row(const struct run *r, int seq)
{
    const int n = tapped(r) != NULL ? tapped(r)->n_used : 0;

    for (int i = 0; i < n; i++)
        if (r->seq[i].slot == seq)
            return r->seq[i].row;
    return -1;
}

int run_n_taps(const struct run *r)
{
    return r->taps.n;
}

bool run_tap(struct run *r, int tap, int i, float *out)
{
    const size_t width = (size_t)model_plan(r->m)->n_embd;

    if (tap < 0 || tap >= r->taps.n || i < 0 || i >= run_tap_n(r))
        return false;
    const size_t row = (size_t)tap * (size_t)r->rows_max + (size_t)r->place[i];
    dev_copy(model_dev(r->m), out, r->taps.rows + row * width, width * sizeof *out);
    return true;
}

int run_tap_n(const struct run *r)
{
    return tapped(r) != NULL ? tapped(r)->n_rows : 0;
}

void run_tap_rows(const struct run *r, int tap, int row, int n, float *out)
{
    const size_t width = (size_t)model_plan(r->m)->n_embd;
    const size_t from = (size_t)tap * (size_t)r->rows_max + (size_t)row;

    dev_copy(model_dev(r->m), out, r->taps.rows + from * width, (size_t)n * width * sizeof *out);
}
