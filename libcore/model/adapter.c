/* SPDX-License-Identifier: Apache-2.0 */
/* adapter.c - adapters laid out for the forward pass, and where it takes them. */
#include <stdio.h>
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
    float *host;                      /* all floats, those of one device after those of the other */
    struct {
        float *host, *dev; /* where the device's memory is the host's, the same */
        size_t bytes;
    } part[DEV_LIST_MAX]; /* with the tensors of each device */
    size_t bytes;
    bool on_host; /* the devices' memory is the host's */
    bool half;
    uint64_t key;
};

static bool tied(const struct model *m)
{
    return m->head.data == m->embd_last.data && m->head.of == m->embd_last.of;
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

/* The device of a tensor but the token embedding. */
static int device_of(const struct model *m, const char *name)
{
    int layer;

    return sscanf(name, "blk.%d.", &layer) == 1 && layer < m->plan.n_layer ? m->on[layer] : m->n_dev - 1;
}

/* What a device has of a matrix. A tied embedding is on the first one for its rows, on the last one as the head. */
static int64_t floats_on(const struct model *m, const struct adapter_mat *w, int dev)
{
    const int last = m->n_dev - 1;
    int64_t n = 0;

    if (!w->rows)
        return dev == device_of(m, w->name) ? a_room(w) + b_room(w) : 0;
    if (dev == 0)
        n += a_room(w) + b_room(w);
    if (dev == last && tied(m))
        n += a_room(w) + (last > 0 ? b_room(w) : 0);
    return n;
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

/* Where each matrix's numbers are: in the host's memory, or in the devices'. */
static void place_pairs(struct model_adapter *b, struct op_pair *pair, bool on_host)
{
    const struct model *m = b->m;
    const int last = m->n_dev - 1;
    float *base[DEV_LIST_MAX];

    for (int k = 0; k < m->n_dev; k++)
        base[k] = on_host ? b->part[k].host : b->part[k].dev;
    for (size_t i = 0; i < b->from->n; i++) {
        const struct adapter_mat *w = &b->from->mat[i];
        const struct gguf_tensor *t = gguf_find(m->gguf, w->name);
        struct op_pair *p = &pair[1 + (t - gguf_tensor_at(m->gguf, 0))];
        const bool half = is_half(b, w);
        float *at = base[w->rows ? 0 : device_of(m, w->name)];

        *p = (struct op_pair){ .rank = w->rank, .scale = b->from->alpha / (float)w->rank, .half = half };
        if (!w->rows) {
            p->a = at;
            p->b = past(at, a_room(w), half);
        } else {
            float *second = at + a_room(w), *head = last > 0 ? base[last] : second;

            b->embd = (struct op_pair){ at, second, w->rank, p->scale * m->plan.embd_scale, false };
            p->a = tied(m) ? head : NULL;
            p->b = tied(m) ? head + b_room(w) : NULL;
        }
        for (int k = 0; k < m->n_dev; k++)
            base[k] = past(base[k], floats_on(m, w, k), half);
    }
}

/* Writes what the devices have of a matrix; to: where each has it, on the host. */
static void write_mat(const struct model_adapter *b, const struct adapter_mat *w, float *const *to)
{
    const struct model *m = b->m;
    const int last = m->n_dev - 1;
    const bool half = is_half(b, w);
    float *at = to[w->rows ? 0 : device_of(m, w->name)];

    for (int64_t k = 0; k < adapter_a_floats(w); k++)
        put(at, k, w->a[k], half);
    transpose(past(at, a_room(w), half), w->b, w->n_mat, w->rows ? w->n_in : w->n_out, w->rank, half);
    if (!w->rows || !tied(m))
        return;
    float *head = last > 0 ? to[last] : at + a_room(w);

    if (last > 0)
        transpose(head, w->b, w->n_mat, w->n_in, w->rank, false);
    transpose(head + b_room(w), w->a, 1, w->n_out, w->rank, false);
}

void model_adapter_update(struct model_adapter *b)
{
    const int n_dev = b->m->n_dev;
    float *to[DEV_LIST_MAX];

    b->half = b->on_host && fits_halves(b->from);
    place_pairs(b, b->host_pair, true);
    if (b->pair != b->host_pair)
        place_pairs(b, b->pair, false);
    for (int k = 0; k < n_dev; k++)
        to[k] = b->part[k].host;
    for (size_t i = 0; i < b->from->n; i++) {
        const struct adapter_mat *w = &b->from->mat[i];

        write_mat(b, w, to);
        for (int k = 0; k < n_dev; k++)
            to[k] = past(to[k], floats_on(b->m, w, k), is_half(b, w));
    }
    for (int k = 0; k < n_dev && !b->on_host; k++)
        if (b->part[k].bytes > 0)
            dev_copy(b->m->part[k], b->part[k].dev, b->part[k].host, b->part[k].bytes);
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

int64_t model_adapter_bytes(const struct model *m, const struct adapter *a, int dev)
{
    int64_t floats = 0;

    for (size_t i = 0; i < a->n; i++)
        floats += floats_on(m, &a->mat[i], dev);
    return floats * (int64_t)sizeof(float);
}

static bool take_room(struct model_adapter *b)
{
    const struct model *m = b->m;
    bool all = true;

    for (int k = 0; k < m->n_dev; k++) {
        b->part[k].bytes = (size_t)model_adapter_bytes(m, b->from, k);
        b->bytes += b->part[k].bytes;
    }
    b->host = calloc(1, b->bytes);
    for (size_t k = 0, at = 0; b->host != NULL && k < (size_t)m->n_dev; at += b->part[k++].bytes) {
        b->part[k].host = b->host + at / sizeof *b->host;
        b->part[k].dev = b->on_host              ? b->part[k].host
                         : b->part[k].bytes == 0 ? NULL
                                                 : dev_alloc(m->part[k], b->part[k].bytes);
        all &= b->part[k].dev != NULL || b->part[k].bytes == 0;
    }
    return all && b->host != NULL;
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
    b->on_host = dev_is_host(m->dev);
    const bool room = take_room(b);

    b->pair = calloc(n, sizeof *b->pair);
    b->host_pair = b->on_host ? b->pair : calloc(n, sizeof *b->host_pair);
    if (!room || b->pair == NULL || b->host_pair == NULL) {
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
    for (int k = 0; k < b->m->n_dev && !b->on_host; k++)
        dev_free(b->m->part[k], b->part[k].dev, b->part[k].bytes);
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
