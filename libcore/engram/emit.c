/* SPDX-License-Identifier: Apache-2.0 */
/* emit.c - writes an epoch from its contexts in order.                       room: engram
 *
 * The arrays grow side by side, so each is a temporary file of its own until all is known. Memory: the filter of
 * one order at a time. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engram/internal.h"

enum { PART_TOKEN, PART_CHILD, PART_END, PART_TOTAL, PART_HASH, PART_NEXT, PART_COUNT, PART_AGE };
enum {
    BUFFER_BYTES = 1 << 16,
    FEW = 24 /* entries that are sorted by insertion */,
    AHEAD = 16 /* keys under way to a filter */
};

/* An array that grows: its bytes so far, of which the last n are not in the file yet. */
struct part {
    int fd;           /* -1: closed */
    const char *path; /* of the table, for messages */
    size_t n;
    unsigned char *buf; /* [BUFFER_BYTES] */
};
struct emit {
    int order;
    bool dry;
    uint64_t n[ENGRAM_ORDER_MAX], n_next[ENGRAM_ORDER_MAX];
    struct part part[ENGRAM_ORDER_MAX][PARTS];
};

static enum err_code open_part(struct part *out, const char *path, struct err *e)
{
    char *name = malloc(strlen(path) + 8);

    out->path = path;
    out->buf = malloc(BUFFER_BYTES);
    if (name == NULL || out->buf == NULL) {
        free(name);
        return err_nomem(e);
    }
    memcpy(name, path, strlen(path));
    memcpy(name + strlen(path), ".XXXXXX", 8);
    out->fd = mkstemp(name);
    if (out->fd >= 0)
        unlink(name);
    else
        err_errno(e, ERR_IO, errno, "%s: cannot make a temporary file beside it", path);
    free(name);
    return out->fd >= 0 ? ERR_OK : e->code;
}

/* What waits goes to the file. */
static enum err_code drain(struct part *p, struct err *e)
{
    if (io_write_all(p->fd, p->buf, p->n, e))
        return err_wrap(e, "%s: a temporary file beside it", p->path);
    p->n = 0;
    return ERR_OK;
}

static inline bool put_part(struct part *p, const void *v, size_t n, struct err *e)
{
    if (p->n + n > BUFFER_BYTES && drain(p, e))
        return false;
    memcpy(p->buf + p->n, v, n);
    p->n += n;
    return true;
}

enum err_code engram_emit_open(struct emit **out, const char *path, int order, struct err *e)
{
    struct emit *m = calloc(1, sizeof *m);

    if (m == NULL)
        return err_nomem(e);
    m->order = order;
    m->dry = path == NULL;
    for (int l = 0; l < order; l++)
        for (int i = 0; i < PARTS; i++)
            m->part[l][i].fd = -1;
    for (int l = 0; !m->dry && l < order; l++)
        for (int i = 0; i < PARTS; i++)
            if (open_part(&m->part[l][i], path, e)) {
                engram_emit_close(m);
                return e->code;
            }
    *out = m;
    return ERR_OK;
}

void engram_emit_close(struct emit *m)
{
    if (m == NULL)
        return;
    for (int l = 0; l < m->order; l++)
        for (int i = 0; i < PARTS; i++) {
            if (m->part[l][i].fd >= 0)
                close(m->part[l][i].fd);
            free(m->part[l][i].buf);
        }
    free(m);
}

/* Most contexts have few entries. */
void engram_sort_entries(struct entry *v, size_t n, int (*order)(const void *, const void *))
{
    if (n > FEW) {
        qsort(v, n, sizeof *v, order);
        return;
    }
    for (size_t i = 1; i < n; i++) {
        const struct entry x = v[i];
        size_t j = i;

        for (; j > 0 && order(&v[j - 1], &x) > 0; j--)
            v[j] = v[j - 1];
        v[j] = x;
    }
}

static int by_count(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;

    if (x->count != y->count)
        return x->count > y->count ? -1 : 1;
    return (x->token > y->token) - (x->token < y->token);
}

enum err_code engram_emit(struct emit *m, int level, uint32_t token, uint64_t hash, struct entry *v, size_t n,
                          struct err *e)
{
    struct part *part = m->part[level];
    const uint64_t child_end = level + 1 < m->order ? m->n[level + 1] : 0;
    double total = 0;
    bool ok = true;

    m->n[level]++;
    m->n_next[level] += n;
    if (m->dry)
        return ERR_OK;
    for (size_t i = 0; i < n; i++) /* in the file's precision, so that equal ones are ordered by token */
        v[i].count = (double)(float)v[i].count;
    if (n > 1)
        engram_sort_entries(v, n, by_count);
    for (size_t i = 0; i < n; i++) {
        const float count = (float)v[i].count;
        const uint16_t age = (uint16_t)(v[i].age < AGE_MAX ? v[i].age : AGE_MAX);

        total += v[i].count;
        ok = ok && put_part(&part[PART_NEXT], &v[i].token, 4, e) && put_part(&part[PART_COUNT], &count, 4, e) &&
             put_part(&part[PART_AGE], &age, 2, e);
    }
    const float sum = (float)total;

    ok = ok && put_part(&part[PART_TOKEN], &token, 4, e) && put_part(&part[PART_CHILD], &child_end, 8, e) &&
         put_part(&part[PART_END], &m->n_next[level], 8, e) && put_part(&part[PART_TOTAL], &sum, 4, e) &&
         put_part(&part[PART_HASH], &hash, 8, e);
    return ok ? ERR_OK : e->code;
}

static uint64_t known_bytes(uint64_t n)
{
    return (8 * n + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

/* ep: n_known is set. */
static void sizes_of(const struct emit *m, struct epoch *ep, uint64_t *data)
{
    *data = known_bytes(ep->n_known);
    ep->order = m->order;
    for (int l = 0; l < m->order; l++) {
        struct level *v = &ep->level[l];
        uint64_t bytes[PARTS];

        v->n = m->n[l];
        v->n_next = m->n_next[l];
        v->n_blocks = engram_filter_blocks(m->n[l]);
        engram_part_bytes(bytes, v->n, v->n_next, v->n_blocks, l + 1 == m->order);
        for (int i = 0; i < PARTS; i++)
            *data += bytes[i];
    }
    const uint64_t sums = (*data + SUM_BYTES - 1) / SUM_BYTES * 8;

    ep->bytes = EPOCH_BYTES + *data + (sums + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

uint64_t engram_emit_contexts(const struct emit *m)
{
    uint64_t n = 0;

    for (int l = 0; l < m->order; l++)
        n += m->n[l];
    return n;
}

uint64_t engram_emit_bytes(const struct emit *m, uint64_t n_known)
{
    struct epoch ep = { .n_known = n_known };
    uint64_t data;

    sizes_of(m, &ep, &data);
    return ep.bytes;
}

/* ---- the arrays one behind the other, with their sums ---- */

struct writer {
    struct io_out *out;
    unsigned char *block; /* [SUM_BYTES] */
    size_t n;
    uint64_t *sum;
    size_t n_sums;
};

static enum err_code flush_block(struct writer *w, struct err *e)
{
    if (w->n == 0)
        return ERR_OK;
    w->sum[w->n_sums++] = io_hash(0, w->block, w->n);
    const size_t n = w->n;

    w->n = 0;
    return io_out_write(w->out, w->block, n, e);
}

static enum err_code add_bytes(struct writer *w, const void *data, size_t n, struct err *e)
{
    const unsigned char *p = data;

    while (n > 0) {
        const size_t now = n < SUM_BYTES - w->n ? n : SUM_BYTES - w->n;

        if (p != NULL) {
            memcpy(w->block + w->n, p, now);
            p += now;
        } else
            memset(w->block + w->n, 0, now);
        w->n += now;
        n -= now;
        if (w->n == SUM_BYTES && flush_block(w, e))
            return e->code;
    }
    return ERR_OK;
}

/* From the start again: the next bytes, at most BUFFER_BYTES, 0 at the end. */
static enum err_code rewind_part(struct part *p, struct err *e)
{
    if (drain(p, e))
        return e->code;
    if (lseek(p->fd, 0, SEEK_SET) != 0)
        return err_errno(e, ERR_IO, errno, "%s: a temporary file beside it: cannot read", p->path);
    return ERR_OK;
}

static enum err_code next_bytes(struct part *p, size_t *n, struct err *e)
{
    ssize_t got;

    for (*n = 0; *n < BUFFER_BYTES; *n += (size_t)got) {
        got = read(p->fd, p->buf + *n, BUFFER_BYTES - *n);
        if (got == 0)
            break;
        if (got < 0 && errno != EINTR)
            return err_errno(e, ERR_IO, errno, "%s: a temporary file beside it: cannot read", p->path);
        got = got > 0 ? got : 0;
    }
    return ERR_OK;
}

static enum err_code copy_part(struct writer *w, struct part *p, uint64_t padded, struct err *e)
{
    uint64_t done = 0;
    size_t got;

    if (rewind_part(p, e))
        return e->code;
    do {
        if (next_bytes(p, &got, e) || add_bytes(w, p->buf, got, e))
            return e->code;
        done += got;
    } while (got > 0 && done < padded);
    return add_bytes(w, NULL, (size_t)(padded - done), e);
}

static uint64_t hash_at(const struct part *p, size_t i)
{
    uint64_t v;

    memcpy(&v, p->buf + i * sizeof v, sizeof v);
    return v;
}

static enum err_code write_filter(struct writer *w, struct part *hashes, uint64_t n_blocks, struct err *e)
{
    uint32_t *filter = calloc(n_blocks, FILTER_WORDS * sizeof *filter);
    size_t got = 1;

    if (filter == NULL)
        return err_set(e, ERR_NOMEM, "out of memory: a filter of %llu bytes", (unsigned long long)n_blocks * 32);
    enum err_code code = rewind_part(hashes, e);

    while (code == ERR_OK && got > 0) {
        code = next_bytes(hashes, &got, e);
        const size_t n = code == ERR_OK ? got / sizeof(uint64_t) : 0;

        for (size_t i = 0; i < n + AHEAD; i++) {
            if (i < n)
                engram_filter_fetch(filter, n_blocks, hash_at(hashes, i));
            if (i >= AHEAD)
                engram_filter_add(filter, n_blocks, hash_at(hashes, i - AHEAD));
        }
    }
    if (code == ERR_OK)
        code = add_bytes(w, filter, (size_t)n_blocks * FILTER_WORDS * sizeof *filter, e);
    const size_t odd = (size_t)(n_blocks * FILTER_WORDS * sizeof *filter % ALIGN_BYTES);

    if (code == ERR_OK && odd > 0)
        code = add_bytes(w, NULL, ALIGN_BYTES - odd, e);
    free(filter);
    return code;
}

static enum err_code write_level(struct writer *w, struct emit *m, int l, uint64_t n_blocks, struct err *e)
{
    struct part *part = m->part[l];
    uint64_t bytes[PARTS];

    engram_part_bytes(bytes, m->n[l], m->n_next[l], n_blocks, l + 1 == m->order);
    for (int i = 0; i < PARTS; i++)
        if (i == PART_HASH ? write_filter(w, &part[i], n_blocks, e)
                           : bytes[i] > 0 && copy_part(w, &part[i], bytes[i], e))
            return e->code;
    return ERR_OK;
}

enum err_code engram_emit_write(struct emit *m, struct io_out *out, const struct epoch *of, struct err *e)
{
    struct epoch ep = *of;
    struct writer w = { .out = out };
    const uint64_t head_at = io_out_pos(out);
    unsigned char head[EPOCH_BYTES] = { 0 };
    uint64_t data;
    enum err_code code = ERR_OK;

    sizes_of(m, &ep, &data);
    const size_t sums = (size_t)(ep.bytes - EPOCH_BYTES - data);

    w.block = malloc(SUM_BYTES);
    w.sum = calloc(1, sums + 8);
    if (w.block == NULL || w.sum == NULL)
        code = err_nomem(e);
    if (code == ERR_OK)
        code = io_out_write(out, head, sizeof head, e);
    for (int l = 0; code == ERR_OK && l < m->order; l++)
        code = write_level(&w, m, l, ep.level[l].n_blocks, e);
    if (code == ERR_OK)
        code = add_bytes(&w, ep.known, (size_t)(8 * ep.n_known), e) ||
                       add_bytes(&w, NULL, (size_t)(known_bytes(ep.n_known) - 8 * ep.n_known), e) || flush_block(&w, e)
                   ? e->code
                   : io_out_write(out, w.sum, sums, e);
    if (code == ERR_OK) {
        engram_put_epoch(head, &ep, io_hash(0, w.sum, sums));
        code = io_out_patch(out, head_at, head, sizeof head, e);
    }
    free(w.block);
    free(w.sum);
    return code;
}
