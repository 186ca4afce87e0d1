/* SPDX-License-Identifier: Apache-2.0 */
/* product.c - the time of one product on a device. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "model/model.h"
#include "ops/ops.h"

enum { TIMES = 20 }; /* products of one measurement */

/* Float rows on the device, of small numbers. */
static struct tensor put_rows(struct dev *d, int64_t ne0, int64_t ne1)
{
    const size_t n = (size_t)(ne0 * ne1);
    struct tensor t = {
        .type = QUANT_f32, .ne = { ne0, ne1, 1 }, .stride = ne0, .data = dev_alloc(d, n * sizeof(float))
    };
    float *v = malloc(n * sizeof *v);

    for (size_t i = 0; v != NULL && i < n; i++)
        v[i] = (float)(i % 251) / 251.0f - 0.5f;
    if (v != NULL && t.data != NULL)
        dev_copy(d, t.data, v, n * sizeof *v);
    else
        t.data = NULL;
    free(v);
    return t;
}

/* Random bytes of one row, again and again: what numbers they are does not matter to the time. */
static struct tensor put_weights(struct dev *d, void **host, const struct model_product *p)
{
    const size_t bytes = (size_t)quant_row_bytes(p->type, p->k);
    struct tensor w = { .type = p->type, .ne = { p->k, p->n, 1 }, .stride = p->k, .pitch = p->n };
    unsigned char *at = malloc(bytes * (size_t)p->n);

    *host = at;
    if (at == NULL)
        return w;
    for (size_t i = 0; i < bytes; i++)
        at[i] = (unsigned char)(rng_unit(1, 0, i) * 256.0);
    for (int64_t r = 1; r < p->n; r++)
        memcpy(at + (size_t)r * bytes, at, bytes);
    w.data = (void *)(uintptr_t)dev_weights(d, at, bytes * (size_t)p->n);
    return w;
}

static enum err_code multiply(struct dev *d, struct tensor y, struct tensor w, struct tensor x, struct err *e)
{
    dev_begin(d);
    op_matmul(d, y, w, x);
    return dev_end(d, e);
}

static uint64_t time_of(const struct dev *d)
{
    struct dev_timing t[64];
    uint64_t ns = 0;

    for (int i = dev_timings(d, t, 64) - 1; i >= 0; i--)
        ns += t[i].ns;
    return ns;
}

static enum err_code measure_product(struct model_product *p, struct dev *d, struct err *e)
{
    void *host = NULL;
    struct tensor w = put_weights(d, &host, p), x = put_rows(d, p->k, p->rows), y = put_rows(d, p->n, p->rows);
    enum err_code code = w.data == NULL || x.data == NULL || y.data == NULL ? err_nomem(e) : ERR_OK;

    if (code == ERR_OK) {
        dev_measure(d, true);
        op_matmul(d, y, w, x);
        dev_measure(d, false);
        code = dev_reserve(d, dev_scratch_peak(d), e);
    }
    for (int i = 0; i < 3 && code == ERR_OK; i++) /* code is loaded, and the step recorded */
        code = multiply(d, y, w, x, e);
    for (int r = 0; r < p->reps && code == ERR_OK; r++) {
        dev_time(d, true);
        for (int i = 0; i < TIMES && code == ERR_OK; i++)
            code = multiply(d, y, w, x, e);
        p->us[r] = (double)time_of(d) / 1e3 / TIMES;
        dev_time(d, false);
    }
    dev_free(d, x.data, (size_t)(p->k * p->rows) * sizeof(float));
    dev_free(d, y.data, (size_t)(p->n * p->rows) * sizeof(float));
    free(host);
    return code;
}

enum err_code model_product_time(struct model_product *p, const struct model_opts *o, struct err *e)
{
    const struct dev_opts opts = { .n_threads = o->n_threads, .acts = o->acts, .kernel = p->kernel };
    struct dev *d;

    if (dev_open(&d, o->device == NULL ? "cpu" : o->device, &opts, e))
        return e->code;
    enum err_code code = measure_product(p, d, e);

    p->launched = p->kernel > 0 && (dev_kernels(d) >> (p->kernel - 1) & 1u) != 0;
    snprintf(p->device, sizeof p->device, "%s", dev_name(d));
    snprintf(p->kernels, sizeof p->kernels, "%s", dev_simd(d));
    dev_close(d);
    return code;
}
