/* SPDX-License-Identifier: Apache-2.0 */
/* import.c - tables of an earlier format (".engr", version 1) into a table of this one.  room: engram
 *
 * Such a file has a hash table whose keys are 64-bit FNV-1a hashes of a context of `order` tokens, and not the tokens.
 * Contexts are found again in texts: each one there whose hash the file has. What followed it makes the next context,
 * and so on, for contexts were taken from running text. A false find takes a collision of 64 bits.
 *
 *     0   u32 0x454E4752, u32 version 1, u32 order, u32 slots T, u32 contexts
 *     20  T slots: u64 hash (0: empty), u32 place of a record behind the slots, u32 total
 *         a slot is taken at hash mod T, or the next free one
 *     ..  records: u32 n, n times u32 token, u32 count
 */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "engram/internal.h"

enum { OLD_MAGIC = 0x454E4752, OLD_HEAD = 20, OLD_SLOT = 16 };

struct engram_import {
    struct io_map map;
    uint32_t order, slots, contexts;
    const unsigned char *data; /* records */
    uint64_t n_data;
    unsigned char *found; /* [slots] */
    struct found {
        int32_t token[ENGRAM_ORDER_MAX + 1]; /* a context, oldest first, and room for what follows */
        uint32_t slot;
    } * v; /* [n] contexts, the first `done` of them went on */
    size_t n, cap, done;
};

static uint32_t u32_at(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint64_t hash_of(const struct engram_import *x, uint32_t slot)
{
    const unsigned char *p = x->map.data + OLD_HEAD + (uint64_t)OLD_SLOT * slot;

    return u32_at(p) | (uint64_t)u32_at(p + 4) << 32;
}

/* A record of a slot; *n pairs. */
static const unsigned char *record_of(const struct engram_import *x, uint32_t slot, uint32_t *n)
{
    const uint64_t at = u32_at(x->map.data + OLD_HEAD + (uint64_t)OLD_SLOT * slot + 8);

    *n = u32_at(x->data + at);
    return x->data + at + 4;
}

/* A whole file has the contexts that it says, a free slot, where a search ends, and records that share no bytes. */
static enum err_code check_slots(const struct engram_import *x, struct err *e)
{
    uint32_t used = 0;
    uint64_t bytes = 0;

    for (uint32_t s = 0; s < x->slots; s++) {
        const uint64_t at = u32_at(x->map.data + OLD_HEAD + (uint64_t)OLD_SLOT * s + 8);

        if (hash_of(x, s) == 0)
            continue;
        if (at + 4 > x->n_data || (x->n_data - at - 4) / 8 < u32_at(x->data + at))
            return err_set(e, ERR_FORMAT, "slot %u: its record ends after the file", s);
        used++;
        bytes += 4 + 8 * (uint64_t)u32_at(x->data + at);
    }
    if (used != x->contexts)
        return err_set(e, ERR_FORMAT, "it says %u contexts, and its slots have %u", x->contexts, used);
    if (used == x->slots)
        return err_set(e, ERR_FORMAT, "none of its %u slots is free", used);
    return bytes <= x->n_data ? ERR_OK : err_set(e, ERR_FORMAT, "its records overlap");
}

static enum err_code check_head(struct engram_import *x, struct err *e)
{
    const unsigned char *p = x->map.data;

    if (x->map.size < OLD_HEAD || u32_at(p) != OLD_MAGIC)
        return err_set(e, ERR_FORMAT, "not an .engr table");
    if (u32_at(p + 4) != 1)
        return err_set(e, ERR_UNSUPPORTED, "version %u of .engr; this program knows 1", u32_at(p + 4));
    x->order = u32_at(p + 8);
    x->slots = u32_at(p + 12);
    x->contexts = u32_at(p + 16);
    if (x->order < 1 || x->order > ENGRAM_ORDER_MAX)
        return err_set(e, ERR_UNSUPPORTED, "contexts of %u tokens; a table has 1 to %d", x->order, ENGRAM_ORDER_MAX);
    if (x->slots == 0 || x->slots > (x->map.size - OLD_HEAD) / OLD_SLOT)
        return err_set(e, ERR_FORMAT, "its slots end after the file");
    x->data = p + OLD_HEAD + (uint64_t)OLD_SLOT * x->slots;
    x->n_data = x->map.size - OLD_HEAD - (uint64_t)OLD_SLOT * x->slots;
    return check_slots(x, e);
}

enum err_code engram_import_open(struct engram_import **out, const char *path, struct err *e)
{
    struct engram_import *x = calloc(1, sizeof *x);
    enum err_code code;

    if (x == NULL)
        return err_nomem(e);
    code = io_map_open(&x->map, path, e);
    if (code == ERR_OK && check_head(x, e))
        code = err_wrap(e, "%s", path);
    if (code == ERR_OK && (x->found = calloc(x->slots, 1)) == NULL)
        code = err_nomem(e);
    if (code == ERR_OK)
        *out = x;
    else
        engram_import_close(x);
    return code;
}

void engram_import_close(struct engram_import *x)
{
    if (x == NULL)
        return;
    io_map_close(&x->map);
    free(x->found);
    free(x->v);
    free(x);
}

/* Takes the context if the file has it and it is new. */
static enum err_code take_context(struct engram_import *x, const int32_t *token, struct err *e)
{
    uint64_t h = 0xcbf29ce484222325u;
    uint32_t s;

    for (uint32_t i = 0; i < x->order; i++)
        for (int shift = 0; shift < 32; shift += 8)
            h = (h ^ ((uint32_t)token[i] >> shift & 255U)) * 0x100000001b3u;
    s = (uint32_t)(h % x->slots);
    for (uint32_t tries = 0; tries < x->slots; tries++, s = s + 1 < x->slots ? s + 1 : 0) {
        const uint64_t have = hash_of(x, s);

        if (have == 0)
            return ERR_OK;
        if (have == h)
            break;
    }
    if (hash_of(x, s) != h || x->found[s])
        return ERR_OK;
    if (memory_room(&x->v, &x->cap, x->n + 1, sizeof *x->v, e))
        return e->code;
    x->found[s] = 1;
    memcpy(x->v[x->n].token, token, x->order * sizeof *token);
    x->v[x->n++].slot = s;
    return ERR_OK;
}

/* What followed the contexts that were found makes more of them. */
static enum err_code go_on(struct engram_import *x, struct err *e)
{
    for (; x->done < x->n; x->done++) {
        int32_t token[ENGRAM_ORDER_MAX + 1];
        uint32_t n;
        const unsigned char *p = record_of(x, x->v[x->done].slot, &n);

        memcpy(token, x->v[x->done].token, x->order * sizeof *token);
        for (uint32_t i = 0; i < n; i++) {
            token[x->order] = (int32_t)(u32_at(p + 8 * (uint64_t)i) & INT32_MAX);
            if (take_context(x, token + 1, e))
                return e->code;
        }
    }
    return ERR_OK;
}

enum err_code engram_import_text(struct engram_import *x, const int32_t *token, int64_t n, struct err *e)
{
    for (int64_t i = 0; i + (int64_t)x->order <= n; i++)
        if (take_context(x, token + i, e))
            return e->code;
    return go_on(x, e);
}

void engram_import_stat(const struct engram_import *x, uint64_t *found, uint64_t *all)
{
    *found = x->n;
    *all = x->contexts;
}

/* ---- into a table ---- */

static int by_context(const void *a, const void *b)
{
    const struct engram_row_at *x = a, *y = b;

    for (int l = 1; l <= x->order; l++)
        if (x->at[-l] != y->at[-l])
            return x->at[-l] < y->at[-l] ? -1 : 1;
    return (*x->at > *y->at) - (*x->at < *y->at);
}

enum err_code engram_import_write(const struct engram_import *x, const char *path, const struct engram_build_opts *o,
                                  struct err *e)
{
    struct engram_build_opts own = *o;
    struct engram_row_at *row;
    int32_t *token;
    size_t n = 0, k = 0;
    uint64_t total = 0;
    enum err_code code;

    for (size_t i = 0; i < x->n; i++) {
        uint32_t pairs;

        (void)record_of(x, x->v[i].slot, &pairs);
        n += pairs;
    }
    row = malloc((n + 1) * sizeof *row);
    token = malloc((n + 1) * (ENGRAM_ORDER_MAX + 1) * sizeof *token);
    code = row != NULL && token != NULL ? ERR_OK : err_set(e, ERR_NOMEM, "out of memory: %zu rows", n);
    for (size_t i = 0; code == ERR_OK && i < x->n; i++) {
        uint32_t pairs;
        const unsigned char *p = record_of(x, x->v[i].slot, &pairs);

        for (uint32_t j = 0; j < pairs; j++, p += 8) {
            int32_t *t = token + k * (ENGRAM_ORDER_MAX + 1);

            if (u32_at(p) > ENGRAM_TOKEN_MAX - 8 || u32_at(p + 4) == 0)
                continue; /* no token, or never */
            memcpy(t, x->v[i].token, x->order * sizeof *t);
            t[x->order] = (int32_t)u32_at(p);
            row[k++] = (struct engram_row_at){ t + x->order, (int)x->order, (double)u32_at(p + 4) };
            total += u32_at(p + 4);
        }
    }
    if (code == ERR_OK) {
        qsort(row, k, sizeof *row, by_context);
        own.order = (int)x->order;
        code = engram_write_rows(path, row, k, &own, total, e);
    }
    free(row);
    free(token);
    return code;
}
