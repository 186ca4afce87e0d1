/* SPDX-License-Identifier: Apache-2.0 */
/* state.c - the memory of every layer and sequence, in one reservation of each device. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "quant/quant.h"
#include "state/internal.h"

static size_t aligned(size_t n)
{
    return (n + 63) / 64 * 64;
}

static bool has_kv(const struct arch_plan *p, int layer)
{
    return (p->layer[layer].mixers & (MIX_ATTN | MIX_MLA)) != 0;
}

/* Of keys and values and, where blocks are chosen, of an indexer's keys, which are at least halves: what is chosen
 * depends on them. */
static size_t page_bytes(const struct op_kv *kv)
{
    size_t row = (size_t)(quant_row_bytes(kv->type_k, kv->dim_k) + quant_row_bytes(kv->type_v, kv->dim_v));
    size_t x = kv->dim_x > 0 ? (size_t)quant_row_bytes(kv->type_x, kv->dim_x) : 0;

    return ((size_t)kv->n_head * row + x) * OP_KV_PAGE;
}

/* Memory as it is given out: what the areas are before there is any, then from a device's reservation on. */
struct taking {
    unsigned char *at; /* NULL: bytes and areas are only noted */
    size_t bytes;
    struct dev_area *area;
    int n_area;
};

static void *take(struct taking *t, struct dev_area area)
{
    void *p = t->at;

    t->bytes += area.bytes;
    if (t->at != NULL)
        t->at += area.bytes;
    else if (area.bytes > 0)
        t->area[t->n_area++] = area;
    return p;
}

/* n floats for each of n_seq sequences, which the sections are `periods` times. */
static float *take_floats(struct taking *t, size_t n_seq, int64_t n, const struct dev_section *section, int n_section)
{
    struct dev_area area = { .bytes = aligned(n_seq * (size_t)n * sizeof(float)), .n_section = n_section };

    memcpy(area.section, section, (size_t)n_section * sizeof *section);
    return take(t, area);
}

static float *take_whole(struct taking *t, size_t n_seq, int64_t n)
{
    return take_floats(t, n_seq, n, &(struct dev_section){ (size_t)n * sizeof(float), 1, 1 }, 1);
}

/* The heads that a recurrent layer's memory can be shared out by, `times` times n, of `floats` floats each. Mamba and
 * convolutions have none. */
static struct dev_section rec_heads(const struct arch_plan *p, int layer)
{
    const struct arch_gdn_plan *g = &p->gdn;
    const int64_t floats = arch_plan_rec_floats(p, layer);
    struct dev_section s = { (size_t)floats * sizeof(float), 1, 1 };

    if (p->layer[layer].mixers & MIX_GDN) { /* by key heads */
        s.n = g->n_k;
        s.times = g->k_grouped ? 1 : g->n_v / g->n_k;
    } else if (p->layer[layer].mixers & MIX_KDA) {
        s.n = g->n_v;
    } else if (p->layer[layer].mixers & MIX_SSM2) {
        s.n = p->ssm.n_group > 1 ? p->ssm.n_group : p->ssm.n_head;
    }
    s.piece /= (size_t)s.n * (size_t)s.times;
    return s;
}

int state_channels(struct dev_section *out, const struct arch_plan *p, int layer, size_t each)
{
    const struct dev_section head = rec_heads(p, layer);
    const bool ssm = p->layer[layer].mixers & MIX_SSM2;
    const int n = ssm ? p->ssm.n_group : head.n;
    const int64_t v = arch_plan_scan_floats(p, layer), rest = arch_plan_conv_channels(p, layer) - v;
    const struct dev_section values = { (size_t)(v / head.n / head.times) * each, head.n, head.times };
    const struct dev_section two = { (size_t)(rest / 2 / n) * each, n, 2 }; /* queries and keys, or b and c */

    out[0] = ssm || rest == 0 ? values : two;
    out[1] = ssm ? two : values;
    return rest == 0 ? 1 : 2;
}

/* A logged row: inputs of the convolution, then those of the scan, of which heads have their own, then the table's. */
static int log_sections(struct dev_section out[DEV_SECTIONS_MAX], const struct arch_plan *p, int layer)
{
    const struct dev_section head = rec_heads(p, layer);
    const unsigned mixers = p->layer[layer].mixers;
    size_t rest = (size_t)arch_plan_input_floats(p, layer) * sizeof(float);
    int n = state_channels(out, p, layer, sizeof(float));

    if (mixers & MIX_GDN) { /* alpha, beta */
        out[n++] =
            (struct dev_section){ sizeof(float) * (size_t)(p->gdn.n_v / head.n / head.times), head.n, 2 * head.times };
    } else if (mixers & MIX_KDA) { /* decay, beta */
        out[n++] = (struct dev_section){ sizeof(float) * (size_t)p->gdn.dim, head.n, 1 };
        out[n++] = (struct dev_section){ sizeof(float), head.n, 1 };
    } else if (mixers & MIX_SSM2) { /* dt */
        out[n++] = (struct dev_section){ sizeof(float) * (size_t)(p->ssm.n_head / head.n), head.n, 1 };
    }
    for (int i = 0; i < n; i++)
        rest -= out[i].piece * (size_t)out[i].n * (size_t)out[i].times;
    if (rest > 0)
        out[n++] = (struct dev_section){ rest, 1, 1 };
    return n;
}

/* Keys of each head, then values, then those of an indexer. */
static struct dev_area pages_area(const struct op_kv *kv, int32_t n_pages)
{
    struct dev_area a = { (size_t)n_pages * kv->page_bytes,
                          2,
                          { { (size_t)quant_row_bytes(kv->type_k, kv->dim_k) * OP_KV_PAGE, kv->n_head, 1 },
                            { (size_t)quant_row_bytes(kv->type_v, kv->dim_v) * OP_KV_PAGE, kv->n_head, 1 } } };

    if (kv->dim_x > 0)
        a.section[a.n_section++] =
            (struct dev_section){ (size_t)quant_row_bytes(kv->type_x, kv->dim_x) * OP_KV_PAGE, 1, 1 };
    return a;
}

static void take_pages(const struct state *s, const struct state_opts *o, int i, struct taking *t)
{
    const struct arch_plan *p = s->plan;
    struct layer_memory *l = &s->layer[i];

    l->borrows = p->reach[i].kv_from > 0;
    if (l->borrows) {
        l->kv = s->layer[p->reach[i].kv_from - 1].kv;
    } else if (has_kv(p, i)) {
        l->kv = (struct op_kv){ .type_k = o->type_k,
                                .type_v = o->type_v,
                                .n_head = p->attn.n_head_kv,
                                .dim_k = p->attn.dim_k,
                                .dim_v = p->attn.dim_v,
                                .page = s->page,
                                .type_x = o->type_k == QUANT_f32 ? QUANT_f32 : QUANT_f16,
                                .dim_x = p->index.ratio[i] > 0 ? p->index.dim : 0 };
        l->kv.page_bytes = page_bytes(&l->kv);
        l->kv.pages = take(t, pages_area(&l->kv, s->n_pages));
    }
    l->kv.window = p->reach[i].window;
    l->kv.always = p->n_meta;
}

/* Blocks of a layer: live, or the base. */
static void take_blocks(const struct state *s, int i, struct state_rec *to, struct taking *t)
{
    const struct arch_plan *p = s->plan;
    const size_t n_seq = (size_t)s->n_slots;
    const struct dev_section heads = rec_heads(p, i);
    struct dev_section row[DEV_SECTIONS_MAX];
    const int n = state_channels(row, p, i, sizeof(float));

    to->conv.floats = arch_plan_conv_floats(p, i);
    to->rec.floats = arch_plan_rec_floats(p, i);
    to->table.floats = arch_plan_table_floats(p, i);
    to->conv.data = take_floats(t, n_seq, to->conv.floats, row, n);
    to->rec.data = take_floats(t, n_seq, to->rec.floats, &heads, 1);
    to->table.data = take_whole(t, n_seq, to->table.floats);
}

/* Lays out layer i. */
static void lay_out(struct state *s, const struct state_opts *o, int i, struct taking *t)
{
    const struct arch_plan *p = s->plan;
    struct layer_memory *l = &s->layer[i];
    struct dev_section section[DEV_SECTIONS_MAX];

    take_pages(s, o, i, t);
    l->live = (struct state_rec){ .conv = { .data = NULL } };
    take_blocks(s, i, &l->live, t);
    if (s->log_rows == 0 || l->live.conv.floats == 0)
        return;
    struct op_log log = { .width = arch_plan_input_floats(p, i), .rows = s->log_rows, .most = s->drafts };
    log.floats = log.rows * log.width;
    log.data = take_floats(t, (size_t)s->n_slots, log.floats, section, log_sections(section, p, i));
    l->live.conv.log = l->live.rec.log = log;
    if (l->live.table.floats > 0)
        l->live.table.log = log;
    if (log.data != NULL) {
        l->live.rec.log.data += arch_plan_conv_channels(p, i);
        l->live.table.log.data += l->live.table.floats > 0 ? log.width - arch_plan_width(p) : 0;
    }
    if (s->undo == 0)
        return;
    l->base = l->live;
    take_blocks(s, i, &l->base, t);
}

static void link_pages(struct state *s)
{
    s->n_spare = s->n_pages;
    for (int32_t i = 0; i < s->n_pages; i++)
        s->spare[i] = s->n_pages - 1 - i;
    for (int q = 0; q < s->n_slots; q++) {
        s->page[q] = s->slot[q].page = s->slot_pages + q * s->seq_pages;
        for (int64_t i = 0; i < s->seq_pages; i++)
            s->slot[q].page[i] = -1;
    }
}

static enum err_code check_kv(const struct arch_plan *p, int type, int dim, const char *what, struct err *e)
{
    if (quant_types[type]->encode == NULL)
        return err_set(e, ERR_ARG, "%s cannot be stored as %s", what, quant_types[type]->name);
    if (p->attn.n_head_kv > 0 && quant_row_bytes(type, dim) < 0)
        return err_set(e, ERR_ARG, "%s of %d elements a head cannot be stored as %s (blocks of %d)", what, dim,
                       quant_types[type]->name, quant_types[type]->block_elems);
    return ERR_OK;
}

/* Lays out the layers of each device, from at[k].at on. */
static void lay_out_all(struct state *s, const struct state_opts *o, const uint8_t *on, struct taking *at)
{
    for (int i = 0; i < s->plan->n_layer; i++) {
        const int k = on != NULL ? on[i] : 0;

        s->layer[i].dev = s->part[k].dev;
        lay_out(s, o, i, &at[k]);
    }
}

/* A reservation of each device for what its layers take, laid out. */
static bool reserve_all(struct state *s, const struct state_opts *o, const uint8_t *on)
{
    enum { OF_LAYER = 8 }; /* areas: pages, the log, three blocks, their base */
    struct taking at[DEV_LIST_MAX] = { { .at = NULL } };
    bool good = true;

    for (int k = 0; k < s->n_dev; k++) {
        at[k].area = calloc((size_t)s->plan->n_layer * OF_LAYER, sizeof *at[k].area);
        good &= at[k].area != NULL;
    }
    if (good)
        lay_out_all(s, o, on, at);
    for (int k = 0; k < s->n_dev; k++) {
        s->part[k].bytes = at[k].bytes;
        if (good)
            s->part[k].data = dev_alloc_areas(s->part[k].dev, at[k].area, at[k].n_area);
        good &= s->part[k].data != NULL;
        free(at[k].area);
        at[k] = (struct taking){ .at = s->part[k].data };
    }
    if (good)
        lay_out_all(s, o, on, at);
    return good;
}

static bool alloc_all(struct state *s, const struct state_opts *o, const uint8_t *on)
{
    size_t n_pages = (size_t)s->n_pages, n_slot_pages = (size_t)s->n_slots * (size_t)s->seq_pages;

    s->layer = calloc((size_t)s->plan->n_layer, sizeof *s->layer);
    s->slot = calloc((size_t)s->n_slots, sizeof *s->slot);
    s->recent = calloc((size_t)s->n_slots, (size_t)(s->n_recent > 0 ? s->n_recent : 1) * sizeof *s->recent);
    s->slot_pages = calloc(n_slot_pages, sizeof *s->slot_pages);
    s->shared = calloc(n_pages, sizeof *s->shared);
    s->spare = calloc(n_pages, sizeof *s->spare);
    s->page = calloc((size_t)s->n_slots, sizeof *s->page);
    if (s->layer == NULL || s->slot == NULL || s->recent == NULL || s->slot_pages == NULL || s->shared == NULL ||
        s->spare == NULL || s->page == NULL || !reserve_all(s, o, on))
        return false;
    link_pages(s);
    return true;
}

/* Pages of the positions in front of every sequence. */
static int32_t first_pages(const struct arch_plan *p)
{
    return (p->n_meta + OP_KV_PAGE - 1) / OP_KV_PAGE;
}

/* Pages of all sequences, which may each write to a copy of those in front. Without KV rows they cost nothing, and
 * there are enough. */
static int32_t pages_of_all(const struct arch_plan *p, const struct state_opts *o, int64_t seq_pages)
{
    int64_t most = seq_pages * o->n_seq,
            asked = o->kv_tokens / OP_KV_PAGE + (o->kv_tokens % OP_KV_PAGE > 0) + (int64_t)first_pages(p) * o->n_seq;
    bool kv = false;

    for (int i = 0; i < p->n_layer; i++)
        kv |= has_kv(p, i);
    return (int32_t)(kv && o->kv_tokens > 0 && asked < most ? asked : most);
}

enum err_code state_open(struct state **out, const struct state_place *place, const struct arch_plan *p,
                         const struct state_opts *o, struct err *e)
{
    int64_t seq_pages = (o->ctx_tokens + p->n_meta + OP_KV_PAGE - 1) / OP_KV_PAGE;
    struct state *s;

    if (check_kv(p, o->type_k, p->attn.dim_k, "keys", e) || check_kv(p, o->type_v, p->attn.dim_v, "values", e))
        return e->code;
    if (o->n_seq < 1 || o->n_seq > 4096)
        return err_set(e, ERR_ARG, "%d sequences are not in 1 .. 4096", o->n_seq);
    if (o->ctx_tokens < 1 || o->ctx_tokens > ARCH_CTX_MAX || seq_pages * o->n_seq > INT32_MAX)
        return err_set(e, ERR_ARG, "--ctx: a context of %lld tokens for %d sequence%s is not in 1 .. %lld",
                       (long long)o->ctx_tokens, o->n_seq, o->n_seq == 1 ? "" : "s",
                       (long long)(ARCH_CTX_MAX < INT32_MAX / o->n_seq * (int64_t)OP_KV_PAGE
                                       ? ARCH_CTX_MAX
                                       : INT32_MAX / o->n_seq * (int64_t)OP_KV_PAGE));
    if (o->undo_tokens < 0 || o->undo_tokens > 4096)
        return err_set(e, ERR_ARG, "undo of %d tokens is not in 0 .. 4096", o->undo_tokens);
    if (o->kv_tokens < 0)
        return err_set(e, ERR_ARG, "KV rows for %lld tokens", (long long)o->kv_tokens);
    s = calloc(1, sizeof *s);
    if (s == NULL)
        return err_nomem(e);
    s->n_dev = place->n_dev;
    for (int k = 0; k < s->n_dev; k++)
        s->part[k].dev = place->dev[k];
    s->plan = p;
    s->n_seq = o->n_seq;
    s->undo = o->undo_tokens;
    s->drafts = o->draft_max;
    s->log_rows = s->drafts + 2 * s->undo;
    s->n_last = p->table.ngram > 0 ? p->table.ngram - 1 : 0;
    s->n_recent = s->n_last > 0 ? s->n_last + s->log_rows : 0;
    s->seq_pages = seq_pages;
    s->n_slots = s->n_seq + (p->n_meta > 0);
    s->n_pages = pages_of_all(p, o, seq_pages) + first_pages(p);
    if (!alloc_all(s, o, place->on)) {
        enum err_code code =
            err_set(e, ERR_NOMEM, "out of memory: %zu MiB for %lld KV rows and the state of %d sequences",
                    (size_t)state_bytes(s) >> 20, (long long)state_kv_rows(s), o->n_seq);
        state_close(s);
        return code;
    }
    *out = s;
    return ERR_OK;
}

void state_close(struct state *s)
{
    if (s == NULL)
        return;
    for (int k = 0; k < s->n_dev; k++)
        dev_free(s->part[k].dev, s->part[k].data, s->part[k].bytes);
    free(s->page);
    free(s->spare);
    free(s->shared);
    free(s->slot_pages);
    free(s->slot);
    free(s->recent);
    free(s->layer);
    free(s);
}

int64_t state_part_bytes(const struct state *s, int dev)
{
    return dev_members(s->part[0].dev) == 1 ? (int64_t)s->part[dev].bytes
                                            : (int64_t)dev_areas_bytes(s->part[0].dev, s->part[0].data, dev);
}

int64_t state_bytes(const struct state *s)
{
    int64_t n = 0;

    for (int k = 0; k < s->n_dev; k++)
        n += (int64_t)s->part[k].bytes;
    return n;
}

int64_t state_ctx(const struct state *s)
{
    return s->seq_pages * OP_KV_PAGE;
}

int64_t state_pos(const struct state *s, int slot)
{
    const int64_t n = s->slot[slot].pos - s->plan->n_meta;

    return n > 0 ? n : 0;
}

int64_t state_row(const struct state *s, int slot)
{
    return s->slot[slot].pos;
}

void state_empty(struct state *s, int slot)
{
    s->slot[slot].pos = s->slot[slot].stored = s->slot[slot].base = 0;
    state_kv_drop(s, slot, 0);
    for (int i = 0; i < s->plan->n_layer; i++) {
        const struct layer_memory *l = &s->layer[i];
        const struct op_rec *rec[6] = { &l->live.conv, &l->live.rec, &l->live.table,
                                        &l->base.conv, &l->base.rec, &l->base.table };

        for (int j = 0; j < 6; j++)
            if (rec[j]->floats > 0)
                dev_zero(l->dev, rec[j]->data + slot * rec[j]->floats, (size_t)rec[j]->floats * sizeof(float));
    }
}

void state_clear(struct state *s, int slot)
{
    if (s->begun)
        state_fork(s, slot, s->n_seq);
    else
        state_empty(s, slot);
}

void state_begin(struct state *s)
{
    s->begun = true;
    for (int i = 0; i < s->n_seq; i++)
        state_clear(s, i);
}

const struct op_kv *state_kv(const struct state *s, int layer)
{
    return &s->layer[layer].kv;
}
