/* SPDX-License-Identifier: Apache-2.0 */
/* write.c - adapters to GGUF files. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adapt/internal.h"
#include "gguf/gguf.h"
#include "quant/quant.h"

enum { NAME_BYTES = 128 };

/* One tensor of the file: a or b of a matrix, or its scales. */
struct half {
    char name[NAME_BYTES];
    const float *v;
    int64_t ne[3], rows; /* rows of ne[0], in all */
    int n_dims, type;
};

static struct half half_of(const struct adapter_mat *m, bool a, int type)
{
    struct half h = { .v = a ? m->a : m->b, .n_dims = m->n_mat > 1 ? 3 : 2, .type = type };

    if (m->rank == 0) {
        h = (struct half){ .v = m->b,
                           .ne = { m->n_out, m->n_mat, 1 },
                           .rows = m->n_mat,
                           .n_dims = m->n_mat > 1 ? 2 : 1,
                           .type = type == QUANT_q8_0 ? QUANT_f16 : type };
        (void)snprintf(h.name, sizeof h.name, "%s%s", m->name, ADAPTER_S);
        return h;
    }
    (void)snprintf(h.name, sizeof h.name, "%s%s", m->name, a ? ADAPTER_A : ADAPTER_B);
    h.ne[0] = a && !m->rows ? m->n_in : m->rank;
    h.ne[1] = a ? (m->rows ? m->n_out : m->rank) : m->rows ? m->n_in : m->n_out;
    h.ne[2] = m->n_mat;
    h.rows = h.ne[1] * h.ne[2];
    if (h.ne[0] % quant_types[type]->block_elems != 0)
        h.type = QUANT_f16;
    return h;
}

static size_t n_halves(const struct adapter *a)
{
    return adapter_is_scales(a) ? a->n : 2 * a->n;
}

static struct half half_at(const struct adapter *a, size_t i, int type)
{
    return adapter_is_scales(a) ? half_of(&a->mat[i], false, type) : half_of(&a->mat[i / 2], i % 2 == 0, type);
}

static enum err_code write_head(struct gguf_writer *w, const struct adapter *a, int type, struct err *e)
{
    if (gguf_write_str(w, "general.type", str_of("adapter"), e) ||
        gguf_write_str(w, "general.architecture", str_of(a->arch), e) ||
        gguf_write_str(w, "adapter.type", str_of(adapter_is_scales(a) ? "scales" : "lora"), e) ||
        (!adapter_is_scales(a) && gguf_write_f32(w, "adapter.lora.alpha", a->alpha, e)) ||
        (a->record != NULL && gguf_write_str(w, ADAPTER_RECORD, str_of(a->record), e)))
        return e->code;
    for (size_t i = 0; i < n_halves(a); i++) {
        const struct half h = half_at(a, i, type);

        if (gguf_write_tensor(w, str_of(h.name), h.type, h.n_dims, h.ne, e))
            return e->code;
    }
    return ERR_OK;
}

static enum err_code write_half(struct gguf_writer *w, const struct half *h, unsigned char *row, float *back,
                                struct err *e)
{
    const struct quant_type *t = quant_types[h->type];

    for (int64_t r = 0; r < h->rows; r++) {
        t->encode(row, h->v + r * h->ne[0], h->ne[0], NULL);
        t->decode(back, row, h->ne[0]);
        for (int64_t i = 0; i < h->ne[0]; i++)
            if (!isfinite(back[i]))
                return err_set(e, ERR_ARG, "%s: number %lld of row %lld, %g, is not finite as %s", h->name,
                               (long long)i, (long long)r, (double)h->v[r * h->ne[0] + i], t->name);
        if (gguf_write_data(w, row, (size_t)quant_row_bytes(h->type, h->ne[0]), e))
            return e->code;
    }
    return ERR_OK;
}

static enum err_code write_all(struct gguf_writer *w, const struct adapter *a, int type, struct err *e)
{
    int64_t longest = 1;
    float *back;
    unsigned char *row;
    enum err_code code;

    for (size_t i = 0; i < n_halves(a); i++) {
        const struct half h = half_at(a, i, type);

        longest = h.ne[0] > longest ? h.ne[0] : longest;
    }
    back = malloc(2 * (size_t)longest * sizeof *back); /* a row, and the same as stored, which is no longer */
    if (back == NULL)
        return err_nomem(e);
    row = (unsigned char *)(back + longest);
    code = write_head(w, a, type, e);
    for (size_t i = 0; i < n_halves(a) && code == ERR_OK; i++) {
        const struct half h = half_at(a, i, type);

        code = write_half(w, &h, row, back, e);
    }
    free(back);
    return code;
}

enum err_code adapter_write(const struct adapter *a, const char *path, const char *type, struct err *e)
{
    const int t = quant_find_name(str_of(type));
    struct gguf_writer *w;

    if (t != QUANT_f32 && t != QUANT_f16 && t != QUANT_q8_0)
        return err_set(e, ERR_ARG, "adapters are written as f32, f16 or q8_0, not %s", type);
    if (gguf_write_open(&w, path, e))
        return e->code;
    if (write_all(w, a, t, e)) {
        gguf_write_abort(w);
        return e->code;
    }
    return gguf_write_commit(w, e);
}
