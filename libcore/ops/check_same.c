/* SPDX-License-Identifier: Apache-2.0 */
/* check_same.c - how far a result may be from the specification, and the message when it is further. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/check.h"
#include "quant/quant.h"

/* How far floats may be from the specification, times the largest of their row: a GPU rounds in other orders and
 * rounds activations; a scan carries that on from row to row. */
static const float allowed[DEV_OP_N] = {
    [DEV_OP_matmul] = 2e-3f,       [DEV_OP_moe] = 4e-3f,         [DEV_OP_attn] = 2e-4f,
    [DEV_OP_rms_norm] = 1e-5f,     [DEV_OP_gdn] = 1e-3f,         [DEV_OP_kda] = 1e-3f,
    [DEV_OP_ssm1] = 1e-3f,         [DEV_OP_ssm2] = 1e-3f,        [DEV_OP_conv] = 1e-5f,
    [DEV_OP_glu] = 1e-5f,          [DEV_OP_rope] = 1e-5f,        [DEV_OP_rms_norm_gated] = 1e-5f,
    [DEV_OP_moe_pairs] = 4e-3f,    [DEV_OP_hand_in] = 4e-3f,     [DEV_OP_moe_sum] = 1e-5f,
    [DEV_OP_route] = 1e-4f,        [DEV_OP_adapt] = 1e-4f,       [DEV_OP_add] = 1e-6f,
    [DEV_OP_add_gated] = 1e-5f,    [DEV_OP_sigmoid_mul] = 1e-5f, [DEV_OP_geglu] = 1e-5f,
    [DEV_OP_silu] = 1e-5f,         [DEV_OP_streams_mix] = 1e-5f, [DEV_OP_streams_add] = 1e-5f,
    [DEV_OP_streams_gate] = 1e-4f, [DEV_OP_attn_picked] = 2e-4f, [DEV_OP_index_store] = 1e-3f,
};

static const char *const names[DEV_OP_N] = {
#define X(name) #name,
    DEV_OPS(X)
#undef X
};

bool dev_check_begin(struct check *c, struct call *k, enum dev_op op, struct tensor y, struct tensor x)
{
    if (c->found[0] != '\0' || c->no_memory)
        return false;
    *k = (struct call){ .op = op };
    c->call++;
    c->of_op[op]++;
    (void)snprintf(k->shapes, sizeof k->shapes, "%lld x %lld from %lld x %lld%s%s", (long long)y.ne[0],
                   (long long)y.ne[1], (long long)x.ne[0], (long long)x.ne[1], x.type != QUANT_f32 ? " of " : "",
                   x.type != QUANT_f32 ? quant_types[x.type]->name : "");
    return true;
}

void dev_check_report(struct check *c, const struct call *k, const char *what, const char *where, double got,
                      double want)
{
    (void)snprintf(c->found, sizeof c->found,
                   "check: %s (operation %llu of the step, its %llu. %s; %s): %s %s is %.9g, the cpu has %.9g",
                   names[k->op], (unsigned long long)c->call, (unsigned long long)c->of_op[k->op], names[k->op],
                   k->shapes, what, where, got, want);
}

/* What a product may be off by where its terms nearly cancel: their size counts, not that of the sum. */
static double product_slack(const struct call *k, int64_t r, int64_t o)
{
    int64_t n = k->w.ne[0], bytes = quant_row_bytes(k->w.type, n);
    const float *x = (const float *)k->x.data + r * k->x.stride;
    float *w = k->op == DEV_OP_matmul ? malloc((size_t)n * sizeof *w) : NULL;
    double sum = 0, top = 0;

    if (w == NULL)
        return 0;
    quant_types[k->w.type]->decode(w, (const unsigned char *)k->w.data + o * bytes, n);
    for (int64_t i = 0; i < n; i++) {
        sum += (double)w[i] * (double)w[i];
        top = fmax(top, fabs((double)x[i]));
    }
    free(w);
    return 3e-4 * sqrt(sum) * top;
}

/* What differs more than allowed in row r of a result: the worst element, or -1. */
static int64_t worst(const struct check *c, const struct call *k, int64_t r, const float *got, const float *want,
                     int64_t n)
{
    double top = 0, most = 0;
    int64_t at = -1;

    for (int64_t i = 0; i < n; i++)
        top = isfinite(want[i]) ? fmax(top, fabs((double)want[i])) : top;
    for (int64_t i = 0; i < n; i++) {
        if (memcmp(got + i, want + i, sizeof *got) == 0 || (isnan(got[i]) && isnan(want[i])))
            continue;
        double off = fabs((double)got[i] - (double)want[i]);

        off = isfinite(off) ? off : (double)FLT_MAX;
        if (at >= 0 && off <= most)
            continue;
        if (c->exact || (off > (double)allowed[k->op] * top + 1e-30 && off > product_slack(k, r, i))) {
            at = i;
            most = off;
        }
    }
    return at;
}

/* n floats at p on both sides, then the same on both. */
static bool same_floats(struct check *c, const struct call *k, const char *what, int64_t row, void *p, int64_t n)
{
    float *want = dev_check_mirror(c, p);
    const unsigned char *bytes = dev_check_fetch(c, p, (size_t)n * sizeof *want);
    const float *got = (const void *)bytes;

    if (got == NULL)
        return false;
    int64_t at = worst(c, k, row, got, want, n);
    if (at >= 0) {
        char where[64];

        (void)snprintf(where, sizeof where, "%lld, element %lld", (long long)row, (long long)at);
        dev_check_report(c, k, what, where, (double)got[at], (double)want[at]);
    }
    memcpy(want, got, (size_t)n * sizeof *want);
    return at < 0;
}

/* One fetch for all rows; what lies between them is compared too: nothing may be written there. */
void dev_check_rows(struct check *c, const struct call *k, struct tensor y)
{
    if (y.ne[0] == 0 || y.ne[1] == 0)
        return;
    size_t n = (size_t)((y.ne[1] - 1) * y.stride + y.ne[0]);
    const unsigned char *bytes = dev_check_fetch(c, y.data, n * sizeof(float));
    const float *got = (const void *)bytes;
    float *want = dev_check_mirror(c, y.data);

    for (int64_t r = 0; bytes != NULL && r < y.ne[1] && c->found[0] == '\0'; r++) {
        int64_t first = r * y.stride, at = worst(c, k, r, got + first, want + first, y.ne[0]);
        char where[64];

        if (at >= 0) {
            (void)snprintf(where, sizeof where, "%lld, element %lld", (long long)r, (long long)at);
            dev_check_report(c, k, "row", where, (double)got[first + at], (double)want[first + at]);
        }
        for (int64_t i = first + y.ne[0]; r + 1 < y.ne[1] && i < first + y.stride && c->found[0] == '\0'; i++)
            if (memcmp(got + i, want + i, sizeof *got) != 0) {
                (void)snprintf(where, sizeof where, "%lld, %lld elements after its end,", (long long)r,
                               (long long)(i - first - y.ne[0]));
                dev_check_report(c, k, "row", where, (double)got[i], (double)want[i]);
            }
    }
    if (bytes != NULL)
        memcpy(want, bytes, n * sizeof(float));
}

void dev_check_rec(struct check *c, const struct call *k, const struct op_rec *rec, int64_t inputs,
                   const struct op_rows *r)
{
    const struct op_log *l = &rec->log;

    for (int i = 0; rec->floats > 0 && i < r->n_seq && c->found[0] == '\0'; i++) {
        const struct op_seq *s = &r->seq[i];

        if (!same_floats(c, k, "memory of slot", s->slot, rec->data + s->slot * rec->floats, rec->floats))
            return;
        for (int j = s->n - s->logged; j < s->n && c->found[0] == '\0'; j++)
            (void)same_floats(c, k, "logged row", j, l->data + s->slot * l->floats + (s->pos + j) % l->rows * l->width,
                              inputs);
    }
}

void dev_check_mixed(struct check *c, const struct call *k, struct tensor y, const struct op_rec *rec,
                     const struct op_rows *r)
{
    dev_check_rows(c, k, op_slice(y, 0, r->n));
    for (int i = 0; y.ne[1] > r->n && i < r->n_seq && c->found[0] == '\0'; i++)
        dev_check_rows(c, k, op_slice(y, r->n + (int64_t)i * rec->log.most, r->seq[i].again));
}

/* Rows of keys or values of head h at positions pos .. pos + n - 1, all in one page. */
static bool same_kv_rows(struct check *c, const struct call *k, const struct op_kv *kv, int slot, int64_t pos,
                         int64_t n, int h, bool value)
{
    int64_t k_bytes = quant_row_bytes(kv->type_k, kv->dim_k), v_bytes = quant_row_bytes(kv->type_v, kv->dim_v);
    int64_t bytes = value ? v_bytes : k_bytes, dim = value ? kv->dim_v : kv->dim_k;
    int type = value ? kv->type_v : kv->type_k;
    unsigned char *p = kv->pages + (size_t)kv->page[slot][pos / OP_KV_PAGE] * kv->page_bytes +
                       (value ? (int64_t)kv->n_head * OP_KV_PAGE * k_bytes : 0) +
                       ((int64_t)h * OP_KV_PAGE + pos % OP_KV_PAGE) * bytes;
    unsigned char *want = dev_check_mirror(c, p);
    const unsigned char *got = dev_check_fetch(c, p, (size_t)(n * bytes));
    bool same = got != NULL && memcmp(got, want, (size_t)(n * bytes)) == 0;

    if (got == NULL || same)
        return same;
    float *a = malloc((size_t)dim * 2 * sizeof *a), *b = a + dim;
    if (a == NULL) {
        c->no_memory = true;
        return false;
    }
    for (int64_t i = 0; i < n && c->found[0] == '\0'; i++) { /* encoding is exact on every device */
        if (memcmp(got + i * bytes, want + i * bytes, (size_t)bytes) == 0)
            continue;
        quant_types[type]->decode(a, got + i * bytes, dim);
        quant_types[type]->decode(b, want + i * bytes, dim);
        int64_t at = 0;
        char where[96];

        while (at < dim - 1 && memcmp(a + at, b + at, sizeof *a) == 0)
            at++;
        (void)snprintf(where, sizeof where, "%lld, head %d, element %lld", (long long)(pos + i), h, (long long)at);
        dev_check_report(c, k, value ? "value of position" : "key of position", where, (double)a[at], (double)b[at]);
    }
    free(a);
    return false;
}

void dev_check_kv(struct check *c, const struct call *k, const struct op_kv *kv, const struct op_rows *r)
{
    for (int i = 0; i < r->n_seq; i++)
        for (int64_t pos = r->seq[i].pos, end = pos + r->seq[i].n, n; pos < end; pos += n) {
            n = OP_KV_PAGE - pos % OP_KV_PAGE;
            n = n < end - pos ? n : end - pos;
            for (int h = 0; h < 2 * kv->n_head; h++)
                if (!same_kv_rows(c, k, kv, r->seq[i].slot, pos, n, h / 2, h % 2))
                    return;
        }
}

void dev_check_index(struct check *c, const struct call *k, const struct op_kv *kv, int ratio, const struct op_rows *r)
{
    const int64_t bytes = quant_row_bytes(kv->type_x, kv->dim_x);
    float *v = malloc((size_t)kv->dim_x * 2 * sizeof *v);

    if (v == NULL)
        c->no_memory = true;
    for (int i = 0; v != NULL && i < r->n_seq; i++)
        for (int64_t pos = r->seq[i].pos; pos < r->seq[i].pos + r->seq[i].n && c->found[0] == '\0'; pos++) {
            unsigned char *p = kv->pages + (size_t)kv->page[r->seq[i].slot][pos / OP_KV_PAGE] * kv->page_bytes +
                               OP_KV_PAGE * kv->n_head *
                                   (quant_row_bytes(kv->type_k, kv->dim_k) + quant_row_bytes(kv->type_v, kv->dim_v)) +
                               pos % OP_KV_PAGE * bytes;
            unsigned char *want = dev_check_mirror(c, p);
            const unsigned char *got = dev_check_fetch(c, p, (size_t)bytes);
            char where[64];

            if (got == NULL)
                break;
            quant_types[kv->type_x]->decode(v, got, kv->dim_x);
            quant_types[kv->type_x]->decode(v + kv->dim_x, want, kv->dim_x);
            /* only blocks' keys are computed */
            int64_t at = (pos + 1) % ratio == 0 ? worst(c, k, 0, v, v + kv->dim_x, kv->dim_x) : -1;
            if (at < 0 && (pos + 1) % ratio != 0 && memcmp(got, want, (size_t)bytes) != 0)
                at = 0;
            if (at >= 0) {
                (void)snprintf(where, sizeof where, "%lld, element %lld", (long long)pos, (long long)at);
                dev_check_report(c, k, "indexer's key of position", where, (double)v[at], (double)v[kv->dim_x + at]);
            }
            memcpy(want, got, (size_t)bytes);
        }
    free(v);
}
