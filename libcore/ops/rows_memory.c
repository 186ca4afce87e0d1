/* SPDX-License-Identifier: Apache-2.0 */
/* rows_memory.c - memory of devices that share every layer: addresses, and copies that put parts together.  room: ops
 *
 * Of what is the same on all devices the caller's address is that of the first one. Areas with parts have addresses
 * that nothing lies at: the caller's code counts with them as if they were whole. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/memory.h"
#include "ops/rows.h"

struct rows_part dev_rows_part_of(const struct rows *c, int k, int64_t n)
{
    return n < c->n ? (struct rows_part){ 0, n, false } : (struct rows_part){ n * k / c->n, n * (k + 1) / c->n, true };
}

static struct rows_range *range_of(struct rows *c, const void *p)
{
    const unsigned char *at = p;

    for (int i = 0; i < c->n_range && p != NULL; i++) {
        struct rows_range *r = &c->range[(c->last + i) % c->n_range];

        if (at >= r->at && at < r->at + r->n) {
            c->last = (c->last + i) % c->n_range;
            return r;
        }
    }
    return NULL;
}

/* The last area that begins at or before `at`. */
static const struct rows_area *area_at(const struct rows_range *r, size_t at)
{
    int low = 0, high = r->n_area;

    while (high - low > 1) {
        const int mid = (low + high) / 2;

        *(r->area[mid].at <= at ? &low : &high) = mid;
    }
    return &r->area[low];
}

/* A byte of a period: which piece of which section it is in. */
struct place {
    const struct dev_section *section;
    size_t before[DEV_LIST_MAX]; /* bytes of sections before it on each device */
    size_t rest;                 /* from it to the end of the piece */
    int64_t round, piece;
    size_t in; /* of the piece */
};

static struct place place_of(const struct rows *c, const struct rows_area *a, size_t at)
{
    struct place p = { .section = a->area.section };

    for (int i = 0;; i++, p.section++) {
        const size_t whole = p.section->piece * (size_t)p.section->n, all = whole * (size_t)p.section->times;

        if (at < all || i == a->area.n_section - 1) {
            p.round = (int64_t)(at / whole);
            p.piece = (int64_t)(at % whole / p.section->piece);
            p.in = at % p.section->piece;
            p.rest = p.section->piece - p.in;
            return p;
        }
        at -= all;
        for (int k = 0; k < c->n; k++) {
            const struct rows_part own = dev_rows_part_of(c, k, p.section->n);

            p.before[k] += p.section->piece * (size_t)((own.end - own.first) * p.section->times);
        }
    }
}

static bool has_piece(const struct rows *c, int k, const struct place *p)
{
    const struct rows_part own = dev_rows_part_of(c, k, p->section->n);

    return p->piece >= own.first && p->piece < own.end;
}

/* Where the byte is in a period of device k; if that has not the piece, where its next one is. */
static size_t place_on(const struct rows *c, int k, const struct place *p)
{
    const struct rows_part own = dev_rows_part_of(c, k, p->section->n);
    const int64_t piece = p->piece > own.first ? p->piece - own.first : 0;

    return p->before[k] + p->section->piece * (size_t)(p->round * (own.end - own.first) + piece) +
           (has_piece(c, k, p) ? p->in : 0);
}

static unsigned char *area_there(const struct rows *c, int k, const struct rows_range *r, size_t at)
{
    const struct rows_area *a = area_at(r, at);
    const size_t period = (at - a->at) / a->period;
    const struct place p = place_of(c, a, (at - a->at) % a->period);

    return r->to[k] + a->to[k] + period * a->period_of[k] + place_on(c, k, &p);
}

/* ---- weights ---- */

/* How many of them begin at or before p. */
static int weights_before(const struct rows *c, const unsigned char *p)
{
    int low = 0, high = c->n_weights;

    while (low < high) {
        const int mid = (low + high) / 2;

        if (c->weights[mid].at <= p)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static const struct rows_weights *weights_at(const struct rows *c, const unsigned char *p)
{
    const int i = weights_before(c, p);

    return i > 0 && p < c->weights[i - 1].at + c->weights[i - 1].n ? &c->weights[i - 1] : NULL;
}

/* What lay there before has gone. */
bool dev_rows_note_weights(struct rows *c, const struct rows_weights *w)
{
    int i = weights_before(c, w->at), end = i;

    if (i > 0 && c->weights[i - 1].at + c->weights[i - 1].n > w->at)
        i--;
    while (end < c->n_weights && c->weights[end].at < w->at + w->n)
        end++;
    if (memory_room(&c->weights, &c->cap_weights, (size_t)c->n_weights + 1, sizeof *c->weights, NULL) != ERR_OK)
        return false;
    memmove(c->weights + i + 1, c->weights + end, (size_t)(c->n_weights - end) * sizeof *c->weights);
    c->n_weights += 1 + i - end;
    c->weights[i] = *w;
    return true;
}

/* Rows of w from its first one to byte `end` of what it is in, at most all. */
static int64_t rows_to(const struct rows_weights *in, struct tensor w, size_t end)
{
    const int64_t n = (in->at + end - (const unsigned char *)w.data) / quant_row_bytes(w.type, w.ne[0]);

    return n < 0 ? 0 : n < w.ne[1] ? n : w.ne[1];
}

struct rows_part dev_rows_of(const struct rows *c, int k, struct tensor w)
{
    const struct rows_weights *in = weights_at(c, w.data);
    const struct rows_part own = dev_rows_part_of(c, k, in != NULL ? in->units : 0);

    if (!own.cut)
        return (struct rows_part){ 0, w.ne[1], false };
    return (struct rows_part){ rows_to(in, w, (size_t)own.first * in->unit),
                               rows_to(in, w, k < c->n - 1 ? (size_t)own.end * in->unit : in->n), true };
}

int64_t dev_rows_together(const struct rows *c, struct tensor w)
{
    const struct rows_weights *in = weights_at(c, w.data);

    return in != NULL ? rows_to(in, w, in->n) : w.ne[1];
}

void *dev_rows_there(struct rows *c, int k, const void *p)
{
    const struct rows_weights *w = weights_at(c, p);
    struct rows_range *r = w == NULL ? range_of(c, p) : NULL;
    const size_t at = r != NULL ? (size_t)((const unsigned char *)p - r->at) : 0;

    if (w != NULL)
        return (void *)(uintptr_t)(w->to[k] + ((const unsigned char *)p - w->at)); /* never written */
    if (r == NULL)
        return (void *)(uintptr_t)p;
    return r->n_area > 0 ? area_there(c, k, r, at) : r->to[k] + at;
}

const struct rows_area *dev_rows_area(struct rows *c, const void *p)
{
    const struct rows_range *r = range_of(c, p);

    return r != NULL && r->n_area > 0 ? area_at(r, (size_t)((const unsigned char *)p - r->at)) : NULL;
}

size_t dev_rows_period(struct rows *c, int k, const void *p, size_t otherwise)
{
    const struct rows_area *a = dev_rows_area(c, p);

    return a != NULL ? a->period_of[k] : otherwise;
}

/* ---- taking it ---- */

static void give_back(struct rows *c, struct rows_range *r)
{
    for (int k = 0; k < c->n; k++)
        dev_free(c->dev[k], r->to[k], r->bytes[k]);
    if (r->n_area > 0 && r->at != NULL)
        munmap((void *)(uintptr_t)r->at, r->n);
    free(r->area);
}

/* Takes r->bytes[k] on each device and notes the range; with areas the caller gets an address of its own. */
static void *take_range(struct rows *c, struct rows_range *r)
{
    bool good = memory_room(&c->range, &c->cap_range, (size_t)c->n_range + 1, sizeof *c->range, NULL) == ERR_OK;

    for (int k = 0; k < c->n && good; k++) {
        r->to[k] = dev_alloc(c->dev[k], r->bytes[k]);
        good = r->to[k] != NULL;
    }
    r->at = r->to[0];
    if (r->n_area > 0) {
        void *p = good ? mmap(NULL, r->n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) : MAP_FAILED;

        r->at = p != MAP_FAILED ? p : NULL;
        good = p != MAP_FAILED;
    }
    if (!good) {
        give_back(c, r);
        return NULL;
    }
    c->range[c->n_range++] = *r;
    return (void *)(uintptr_t)r->at;
}

void *dev_rows_alloc(void *ctx, size_t n)
{
    struct rows *c = ctx;
    struct rows_range r = { .n = n > 0 ? n : 1 };

    for (int k = 0; k < c->n; k++)
        r.bytes[k] = n;
    return take_range(c, &r);
}

static size_t aligned(size_t n)
{
    return (n + 63) / 64 * 64;
}

/* Lays an area out behind what r has so far. */
static void add_area(const struct rows *c, struct rows_range *r, const struct dev_area *area)
{
    struct rows_area *a = &r->area[r->n_area++];

    *a = (struct rows_area){ .area = *area, .at = r->n };
    for (int i = 0; i < area->n_section; i++) {
        const struct dev_section *s = &area->section[i];

        a->period += s->piece * (size_t)s->n * (size_t)s->times;
        for (int k = 0; k < c->n; k++) {
            const struct rows_part own = dev_rows_part_of(c, k, s->n);

            a->period_of[k] += s->piece * (size_t)((own.end - own.first) * s->times);
        }
    }
    r->n += area->bytes;
    for (int k = 0; k < c->n; k++) {
        a->to[k] = r->bytes[k];
        r->bytes[k] += aligned(area->bytes / a->period * a->period_of[k]);
    }
}

void *dev_rows_alloc_areas(void *ctx, const struct dev_area *area, int n)
{
    struct rows *c = ctx;
    struct rows_range r = { .area = calloc((size_t)n + 1, sizeof *r.area) };

    if (r.area == NULL)
        return NULL;
    for (int i = 0; i < n; i++)
        add_area(c, &r, &area[i]);
    r.n = r.n > 0 ? r.n : 1;
    return take_range(c, &r);
}

void dev_rows_free(void *ctx, void *p, size_t n)
{
    struct rows *c = ctx;
    struct rows_range *r = range_of(c, p);

    (void)n;
    assert(r != NULL && r->at == p);
    give_back(c, r);
    *r = c->range[--c->n_range];
    c->last = 0;
}

size_t dev_rows_areas_bytes(struct rows *c, int k, const void *p)
{
    const struct rows_range *r = range_of(c, p);

    return r != NULL ? r->bytes[k] : 0;
}

size_t dev_rows_area_bytes(struct rows *c, int k, const void *p)
{
    const struct rows_area *a = dev_rows_area(c, p);

    return a != NULL ? a->area.bytes / a->period * a->period_of[k] : 0;
}

/* ---- copies ---- */

/* What the next bytes from p on are: up to the end of a piece. */
struct stretch {
    const struct rows_range *range;
    struct place place;
    size_t at, n;
};

static struct stretch stretch_at(struct rows *c, const void *p, size_t most)
{
    const struct rows_range *r = range_of(c, p);
    const size_t at = (size_t)((const unsigned char *)p - r->at);
    const struct rows_area *a = area_at(r, at);
    const struct place place = place_of(c, a, (at - a->at) % a->period);

    return (struct stretch){ r, place, at, place.rest < most ? place.rest : most };
}

static bool in_areas(struct rows *c, const void *p)
{
    const struct rows_range *r = range_of(c, p);

    return r != NULL && r->n_area > 0;
}

/* Whole periods, which lie side by side on every device, too: bytes of them there, 0 where n bytes at p are others. */
static size_t whole_periods(struct rows *c, int k, const void *p, size_t n)
{
    const struct rows_range *r = range_of(c, p);
    const size_t at = (size_t)((const unsigned char *)p - r->at);
    const struct rows_area *a = area_at(r, at);

    return (at - a->at) % a->period == 0 && n % a->period == 0 ? n / a->period * a->period_of[k] : 0;
}

/* From the host to every device that has the piece, or from the first of them. */
static void copy_pieces(struct rows *c, unsigned char *to, const unsigned char *from, size_t n, bool out)
{
    for (size_t done = 0; done < n;) {
        const struct stretch r = stretch_at(c, out ? from + done : to + done, n - done);
        bool more = true;

        for (int k = 0; k < c->n && more; k++) {
            if (!has_piece(c, k, &r.place))
                continue;
            unsigned char *there = area_there(c, k, r.range, r.at);

            dev_copy(c->dev[k], out ? to + done : there, out ? there : from + done, r.n);
            more = !out;
        }
        done += r.n;
    }
}

/* n bytes as a tensor. */
static struct tensor floats_at(const void *p, size_t n)
{
    const int64_t ne0 = (int64_t)((n + sizeof(float) - 1) / sizeof(float));

    return (struct tensor){ .type = QUANT_f32, .ne = { ne0, 1, 1 }, .stride = ne0, .data = (void *)(uintptr_t)p };
}

void dev_rows_copy(void *ctx, void *to, const void *from, size_t n)
{
    struct rows *c = ctx;
    const bool into = in_areas(c, to), out = in_areas(c, from), here = range_of(c, to) != NULL;

    dev_rows_whole(c, (const struct tensor[]){ floats_at(from, n) }, 1);
    dev_rows_writes(c, floats_at(to, n));
    if (into != out) {
        copy_pieces(c, to, from, n, out);
        return;
    }
    for (int k = 0; k < (here ? c->n : 1); k++) {
        const size_t bytes = into ? whole_periods(c, k, to, n) : n;

        assert(n == 0 || bytes > 0);
        assert(!into || bytes == whole_periods(c, k, from, n));
        dev_copy(c->dev[k], dev_rows_there(c, k, to), dev_rows_there(c, k, from), bytes);
    }
}

void dev_rows_zero(void *ctx, void *p, size_t n)
{
    struct rows *c = ctx;

    dev_rows_writes(c, floats_at(p, n));
    for (int k = 0; k < c->n; k++) {
        const size_t bytes = in_areas(c, p) ? whole_periods(c, k, p, n) : n;

        assert(n == 0 || bytes > 0);
        dev_zero(c->dev[k], dev_rows_there(c, k, p), bytes);
    }
}
