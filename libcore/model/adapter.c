/* SPDX-License-Identifier: Apache-2.0 */
/* adapter.c - adapters laid out for the forward pass, and where it takes them. */
#include <stdlib.h>
#include <string.h>

#include "adapt/adapt.h"
#include "gguf/gguf.h"
#include "model/adapter.h"
#include "model/forward.h"
#include "model/internal.h"
#include "quant/half.h"

/* For each matrix a as it is, then b transposed, so that a rank's outputs lie side by side. Where the output head is
 * the token embedding, that has a transposed, too: its product takes b as a, and this as b. On the CPU numbers that
 * half precision has exactly, as those of a file of type f16, lie so, from the beginning of the room for floats on: a
 * step reads half the bytes. */
struct model_adapter {
    const struct model *m;
    const struct adapter *from;
    struct op_pair *pair, *host_pair; /* [tensors of the model's file + 1], as struct tensor says of; a NULL: none */
    struct op_pair embd;              /* of rows of the token embedding */
    float *host, *dev;                /* the floats; where the device's memory is the host's, the same */
    size_t bytes;
    bool half;
    uint64_t key;
};

static bool tied(const struct model *m)
{
    return m->head.data == m->embd.data && m->head.of == m->embd.of;
}

/* A GPU reads these floats by fours, so each part begins at a multiple of 16 bytes. */
static int64_t whole_fours(int64_t floats)
{
    return (floats + 3) / 4 * 4;
}

static int64_t a_room(const struct adapter_mat *w)
{
    return whole_fours(adapter_a_floats(w));
}

static int64_t b_room(const struct adapter_mat *w)
{
    return whole_fours(adapter_b_floats(w));
}

static int64_t floats_of(const struct model *m, const struct adapter_mat *w)
{
    return a_room(w) * (w->rows && tied(m) ? 2 : 1) + b_room(w);
}

static bool has_halves(const float *v, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (half_f32_bits(half_to_f32(half_of_f32(v[i]))) != half_f32_bits(v[i]))
            return false;
    return true;
}

/* All matrices of products are of such numbers. Rows of the embedding stay floats. */
static bool fits_halves(const struct adapter *a)
{
    for (size_t i = 0; i < a->n; i++) {
        const struct adapter_mat *w = &a->mat[i];

        if (!w->rows && (!has_halves(w->a, adapter_a_floats(w)) || !has_halves(w->b, adapter_b_floats(w))))
            return false;
    }
    return true;
}

static bool is_half(const struct model_adapter *b, const struct adapter_mat *w)
{
    return b->half && !w->rows;
}

/* n numbers later. */
static float *past(float *p, int64_t n, bool half)
{
    return half ? (float *)(void *)((uint16_t *)(void *)p + n) : p + n;
}

static void put(float *to, int64_t i, float v, bool half)
{
    if (half)
        ((uint16_t *)(void *)to)[i] = half_of_f32(v);
    else
        to[i] = v;
}

/* to: [n][columns][rows] from [n][rows][columns]. */
static void transpose(float *to, const float *from, int64_t n, int64_t rows, int64_t columns, bool half)
{
    for (int64_t i = 0; i < n; i++, from += rows * columns)
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < columns; c++)
                put(to, (i * columns + c) * rows + r, from[r * columns + c], half);
}

/* Where each matrix's numbers are, in `base`. */
static void place_pairs(const struct model_adapter *b, struct op_pair *pair, struct op_pair *embd, float *base)
{
    const struct model *m = b->m;

    for (size_t i = 0; i < b->from->n; i++) {
        const struct adapter_mat *w = &b->from->mat[i];
        const struct gguf_tensor *t = gguf_find(m->gguf, w->name);
        struct op_pair *p = &pair[1 + (t - gguf_tensor_at(m->gguf, 0))];
        const bool half = is_half(b, w);
        float *second = past(base, a_room(w), half);

        *p = (struct op_pair){ .rank = w->rank, .scale = b->from->alpha / (float)w->rank, .half = half };
        if (!w->rows) {
            p->a = base;
            p->b = second;
        } else {
            *embd = (struct op_pair){ base, second, w->rank, p->scale * m->plan.embd_scale, false };
            p->a = tied(m) ? second : NULL;
            p->b = tied(m) ? second + b_room(w) : NULL;
        }
        base = past(base, floats_of(m, w), half);
    }
}

void model_adapter_update(struct model_adapter *b)
{
    float *to = b->host;

    b->half = b->dev == b->host && fits_halves(b->from);
    place_pairs(b, b->host_pair, &b->embd, b->host);
    if (b->pair != b->host_pair)
        place_pairs(b, b->pair, &b->embd, b->dev);
    for (size_t i = 0; i < b->from->n; i++) {
        const struct adapter_mat *w = &b->from->mat[i];
        const bool half = is_half(b, w);

        for (int64_t k = 0; k < adapter_a_floats(w); k++)
            put(to, k, w->a[k], half);
        transpose(past(to, a_room(w), half), w->b, w->n_mat, w->rows ? w->n_in : w->n_out, w->rank, half);
        if (w->rows && tied(b->m))
            transpose(to + a_room(w) + b_room(w), w->a, 1, w->n_out, w->rank, false);
        to = past(to, floats_of(b->m, w), half);
    }
    if (b->dev != b->host)
        dev_copy(b->m->dev, b->dev, b->host, b->bytes);
    b->key = adapter_fingerprint(b->from);
}

static enum err_code check_adapter(const struct model *m, const struct adapter *a, struct err *e)
{
    if (adapter_is_scales(a))
        return err_set(e, ERR_UNSUPPORTED, "%s: scales become a part of the model: chimere-quantize --merge-lora",
                       a->path);
    if (adapter_check(a, m->gguf, e))
        return e->code;
    for (size_t i = 0; i < a->n; i++) {
        const struct gguf_tensor *t = gguf_find(m->gguf, a->mat[i].name);

        if (!m->multiplied[t - gguf_tensor_at(m->gguf, 0)])
            return err_set(e, ERR_FORMAT, "%s: %s is not a matrix that the model multiplies with", a->path,
                           a->mat[i].name);
    }
    if (!dev_adapts(m->dev))
        return err_set(e, ERR_UNSUPPORTED, "%s: device %s computes no adapters", a->path, dev_name(m->dev));
    return ERR_OK;
}

enum err_code model_adapter_open(struct model_adapter **out, const struct model *m, const struct adapter *a,
                                 struct err *e)
{
    const size_t n = gguf_n_tensors(m->gguf) + 1;
    struct model_adapter *b;

    if (check_adapter(m, a, e))
        return e->code;
    b = calloc(1, sizeof *b);
    if (b == NULL)
        return err_nomem(e);
    b->m = m;
    b->from = a;
    for (size_t i = 0; i < a->n; i++)
        b->bytes += (size_t)floats_of(m, &a->mat[i]) * sizeof *b->host;
    b->host = calloc(1, b->bytes);
    b->dev = dev_is_host(m->dev) ? b->host : dev_alloc(m->dev, b->bytes);
    b->pair = calloc(n, sizeof *b->pair);
    b->host_pair = b->dev == b->host ? b->pair : calloc(n, sizeof *b->host_pair);
    if (b->host == NULL || b->dev == NULL || b->pair == NULL || b->host_pair == NULL) {
        err_set(e, ERR_NOMEM, "out of memory: %zu MiB for the adapter %s", b->bytes >> 20, a->path);
        model_adapter_close(b);
        return e->code;
    }
    model_adapter_update(b);
    *out = b;
    return ERR_OK;
}

void model_adapter_close(struct model_adapter *b)
{
    if (b == NULL)
        return;
    if (b->dev != b->host)
        dev_free(b->m->dev, b->dev, b->bytes);
    if (b->host_pair != b->pair)
        free(b->host_pair);
    free(b->pair);
    free(b->host);
    free(b);
}

const struct adapter *model_adapter_from(const struct model_adapter *b)
{
    return b->from;
}

uint64_t model_adapter_key(const struct model_adapter *b)
{
    return b->key;
}

/* ---- in the forward pass ---- */

/* What the step's adapters have for w, of which y is a product; pair NULL: nothing. on_host: where the host finds it.
 * A step that is measured has something for all. */
static struct op_adapt part_of(const struct step *s, struct tensor y, struct tensor w, bool on_host,
                               struct op_pair room[OP_ADAPTERS_MAX])
{
    const struct model_adapt *t = s->adapt;
    struct op_adapt a = { .y = y, .n_out = w.pitch };
    bool some = t->of == NULL && w.of > 0;

    if (w.of == 0)
        return a;
    for (int i = 0; t->of != NULL && i < t->rows.n; i++) {
        room[i] = (on_host ? t->of[i]->host_pair : t->of[i]->pair)[w.of];
        some |= room[i].a != NULL;
    }
    a.pair = some ? room : NULL;
    a.mat = w.from / w.pitch;
    a.first = w.from % w.pitch;
    return a;
}

void model_adapt(const struct step *s, const struct op_terms *t, const struct op_product *p, int n, struct tensor x)
{
    struct op_pair room[OP_PRODUCTS_MAX][OP_ADAPTERS_MAX];
    struct op_adapt a[OP_PRODUCTS_MAX];
    int some = 0;

    for (int i = 0; i < n; i++) {
        a[some] = part_of(s, p[i].y, p[i].w, false, room[some]);
        some += a[some].pair != NULL;
    }
    if (some > 0)
        op_adapt(s->d, a, some, x, NULL, t);
}

void model_mul(const struct step *s, struct tensor y, struct tensor w, struct tensor x)
{
    op_matmul(s->d, y, w, x);
    if (s->adapt != NULL)
        model_adapt(s, &s->adapt->rows, &(struct op_product){ y, w }, 1, x);
}

void model_muls(const struct step *s, const struct op_product *p, int n, struct tensor x)
{
    op_matmuls(s->d, p, n, x);
    if (s->adapt != NULL)
        model_adapt(s, &s->adapt->rows, p, n, x);
}

void model_adapt_embd(const struct step *s, struct tensor x, const int32_t *token)
{
    const struct model_adapt *t = s->adapt;
    struct op_pair room[OP_ADAPTERS_MAX];
    const struct op_adapt a = { .y = x, .pair = room, .n_out = x.ne[0] };
    bool some = t->of == NULL;

    for (int i = 0; t->of != NULL && i < t->rows.n; i++) {
        room[i] = t->of[i]->embd;
        some |= room[i].a != NULL;
    }
    if (some)
        op_adapt(s->d, &a, 1, x, token, &t->rows);
}

const struct op_moe_adapt *model_adapt_moe(const struct step *s, const struct op_moe *moe, bool on_host,
                                           struct moe_adapters *room)
{
    const struct tensor none = { .data = NULL };

    if (s->adapt == NULL)
        return NULL;
    room->a = (struct op_moe_adapt){ part_of(s, none, moe->gate, on_host, room->gate),
                                     part_of(s, none, moe->up, on_host, room->up),
                                     part_of(s, none, moe->down, on_host, room->down), &s->adapt->rows };
    return room->a.gate.pair != NULL || room->a.up.pair != NULL || room->a.down.pair != NULL ? &room->a : NULL;
}
