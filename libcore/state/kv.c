/* SPDX-License-Identifier: Apache-2.0 */
/* kv.c - KV pages: a page number stands for OP_KV_PAGE positions in every layer with KV rows; sequences that
 * were forked share pages until one of them writes. */
#include <assert.h>

#include "quant/quant.h"
#include "state/internal.h"

static int32_t take_page(struct state *s)
{
    assert(s->n_spare > 0); /* the caller asked state_kv_need() */
    int32_t page = s->spare[--s->n_spare];
    s->shared[page] = 1;
    return page;
}

static void let_go(struct state *s, int32_t page)
{
    if (--s->shared[page] == 0)
        s->spare[s->n_spare++] = page;
}

void state_prepare(struct state *s, int slot, int64_t n)
{
    struct slot *q = &s->slot[slot];

    for (int64_t i = q->pos / OP_KV_PAGE; i * OP_KV_PAGE < q->pos + n; i++) {
        int32_t old = q->page[i];

        if (old >= 0 && s->shared[old] == 1)
            continue;
        q->page[i] = take_page(s);
        for (int l = 0; old >= 0 && l < s->plan->n_layer; l++) {
            const struct layer_memory *m = &s->layer[l];

            if (m->kv.page_bytes > 0 && !m->borrows)
                dev_copy(m->dev, m->kv.pages + (size_t)q->page[i] * m->kv.page_bytes,
                         m->kv.pages + (size_t)old * m->kv.page_bytes, m->kv.page_bytes);
        }
        if (old >= 0)
            let_go(s, old);
    }
}

/* Whether a step copies page i of a slot: others hold it, too, and keep it. Of those that write to it in this step
 * the last one finds itself alone when all others that hold it have written. */
static bool copies(const struct state *s, const int64_t *n, int slot, int64_t i)
{
    int32_t page = s->slot[slot].page[i];
    int32_t before = 0;

    if (s->shared[page] == 1)
        return false;
    for (int q = 0; q < slot; q++)
        before += n[q] > 0 && s->slot[q].page[i] == page && s->slot[q].pos / OP_KV_PAGE <= i &&
                  i * OP_KV_PAGE < s->slot[q].pos + n[q];
    return before + 1 < s->shared[page];
}

int64_t state_kv_need(const struct state *s, const int64_t *n)
{
    int64_t pages = 0;

    for (int q = 0; q < s->n_seq; q++) {
        const struct slot *t = &s->slot[q];

        for (int64_t i = t->pos / OP_KV_PAGE; n[q] > 0 && i * OP_KV_PAGE < t->pos + n[q]; i++)
            pages += t->page[i] < 0 || copies(s, n, q, i);
    }
    return pages * OP_KV_PAGE;
}

int64_t state_kv_rows(const struct state *s)
{
    return (int64_t)(s->n_pages - (s->plan->n_meta + OP_KV_PAGE - 1) / OP_KV_PAGE) * OP_KV_PAGE;
}

int64_t state_kv_left(const struct state *s)
{
    return (int64_t)s->n_spare * OP_KV_PAGE;
}

void state_kv_drop(struct state *s, int slot, int64_t pos)
{
    struct slot *q = &s->slot[slot];

    for (int64_t i = (pos + OP_KV_PAGE - 1) / OP_KV_PAGE; i < s->seq_pages && q->page[i] >= 0; i++) {
        let_go(s, q->page[i]);
        q->page[i] = -1;
    }
}

void state_kv_share(struct state *s, int dst, int src)
{
    state_kv_drop(s, dst, 0);
    for (int64_t i = 0; i < s->seq_pages && s->slot[src].page[i] >= 0; i++) {
        s->slot[dst].page[i] = s->slot[src].page[i];
        s->shared[s->slot[dst].page[i]]++;
    }
}

int64_t state_layer_kv_bytes(const struct state *s, int layer)
{
    const struct layer_memory *l = &s->layer[layer];

    return l->borrows ? 0 : (int64_t)l->kv.page_bytes * s->n_pages;
}

int64_t state_member_kv_bytes(const struct state *s, int member)
{
    int64_t n = 0;

    for (int i = 0; i < s->plan->n_layer; i++)
        if (!s->layer[i].borrows && s->layer[i].kv.page_bytes > 0)
            n += (int64_t)dev_area_bytes(s->layer[i].dev, s->layer[i].kv.pages, member);
    return n;
}

size_t state_kv_bytes(const struct state *s)
{
    size_t n = 0;

    for (int l = 0; l < s->plan->n_layer; l++)
        n += s->layer[l].borrows ? 0 : s->layer[l].kv.page_bytes / OP_KV_PAGE;
    return n;
}

/* Copies rows between the pages and the serial form. */
static void transfer(const struct state *s, int slot, int64_t pos, int64_t n, unsigned char *serial, bool out)
{
    for (int l = 0; l < s->plan->n_layer; l++) {
        const struct op_kv *kv = &s->layer[l].kv;

        if (kv->page_bytes == 0 || s->layer[l].borrows)
            continue;
        const size_t row[3] = { (size_t)quant_row_bytes(kv->type_k, kv->dim_k),
                                (size_t)quant_row_bytes(kv->type_v, kv->dim_v),
                                kv->dim_x > 0 ? (size_t)quant_row_bytes(kv->type_x, kv->dim_x) : 0 };
        const int heads[3] = { kv->n_head, kv->n_head, kv->dim_x > 0 };
        size_t before = 0; /* bytes of a page */

        for (int part = 0; part < 3; before += (size_t)heads[part] * OP_KV_PAGE * row[part], part++)
            for (int h = 0; h < heads[part]; h++)
                for (int64_t at = pos, left = n, take; left > 0; at += take, left -= take) {
                    int32_t page = s->slot[slot].page[at / OP_KV_PAGE];
                    unsigned char *p = kv->pages + (size_t)page * kv->page_bytes + before;

                    assert(page >= 0);
                    take = OP_KV_PAGE - at % OP_KV_PAGE;
                    take = take < left ? take : left;
                    p += ((size_t)h * OP_KV_PAGE + (size_t)(at % OP_KV_PAGE)) * row[part];
                    dev_copy(s->layer[l].dev, out ? serial : p, out ? p : serial, (size_t)take * row[part]);
                    serial += (size_t)take * row[part];
                }
    }
}

void state_kv_read(const struct state *s, int slot, int64_t pos, int64_t n, void *out)
{
    assert(pos >= 0 && n >= 0 && pos + n <= state_pos(s, slot));
    transfer(s, slot, pos + s->plan->n_meta, n, out, true);
}

void state_kv_write(struct state *s, int slot, int64_t pos, int64_t n, const void *in)
{
    int64_t keep = s->slot[slot].pos;

    pos += s->plan->n_meta;
    assert(pos >= keep && pos + n <= s->seq_pages * OP_KV_PAGE);
    state_prepare(s, slot, pos + n - keep);
    transfer(s, slot, pos, n, (unsigned char *)(uintptr_t)in, false);
}
