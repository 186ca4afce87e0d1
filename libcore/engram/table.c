/* SPDX-License-Identifier: Apache-2.0 */
/* table.c - opens a table: maps it, checks sums, bounds and the order of keys.  room: engram */
#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engram/internal.h"

static const char FILE_MAGIC[8] = "CHIMENGR", EPOCH_MAGIC[8] = "ENGEPOCH";

enum { /* 64-bit words of an epoch's head */
       WORD_MAGIC,
       WORD_BYTES,
       WORD_DAY,
       WORD_ORDER,
       WORD_TOKENS,
       WORD_DOCUMENTS,
       WORD_N,
       WORD_NEXT = WORD_N + ENGRAM_ORDER_MAX,
       WORD_BLOCKS = WORD_NEXT + ENGRAM_ORDER_MAX,
       WORD_SUMS = WORD_BLOCKS + ENGRAM_ORDER_MAX,
       WORD_KNOWN,
       WORD_DOMAIN,
       WORD_HASH = EPOCH_BYTES / 8 - 1,
};
enum { FILE_WORD_BYTES = 4, FILE_WORD_RESUME, FILE_WORD_DONE, FILE_WORD_PART, FILE_WORD_HASH = HEAD_BYTES / 8 - 1 };
enum { BLOCKS_BETWEEN_DROPS = 64 };

static uint64_t word_at(const unsigned char *p, int i)
{
    uint64_t v;

    memcpy(&v, p + 8 * i, sizeof v);
    return v;
}

static void put_word(unsigned char *p, int i, uint64_t v)
{
    memcpy(p + 8 * i, &v, sizeof v);
}

double engram_decay(int64_t days)
{
    return days > 0 ? exp2(-(double)days / ENGRAM_HALF_LIFE_DAYS) : 1;
}

/* ---- heads ---- */

void engram_put_head(unsigned char head[HEAD_BYTES], uint64_t tokenizer, uint64_t bytes)
{
    memset(head, 0, HEAD_BYTES);
    memcpy(head, FILE_MAGIC, 8);
    put_word(head, 1, (uint64_t)FORMAT);
    put_word(head, 2, tokenizer);
    put_word(head, FILE_WORD_BYTES, bytes);
    put_word(head, FILE_WORD_HASH, io_hash(0, head, HEAD_BYTES - 8));
}

enum err_code engram_end_file(struct io_out *out, unsigned char head[HEAD_BYTES], struct err *e)
{
    put_word(head, FILE_WORD_BYTES, io_out_pos(out));
    put_word(head, FILE_WORD_HASH, io_hash(0, head, HEAD_BYTES - 8));
    return io_out_patch(out, 0, head, HEAD_BYTES, e);
}

void engram_put_part(unsigned char head[HEAD_BYTES], uint64_t resume, uint64_t done)
{
    put_word(head, FILE_WORD_RESUME, resume);
    put_word(head, FILE_WORD_DONE, done);
    put_word(head, FILE_WORD_PART, 1);
}

bool engram_get_part(const char *path, uint64_t *resume, uint64_t *done)
{
    struct io_map map;
    struct err e;
    bool is = false;

    if (io_map_open(&map, path, &e))
        return false;
    if (map.size >= HEAD_BYTES && memcmp(map.data, FILE_MAGIC, 8) == 0 && word_at(map.data, FILE_WORD_PART) == 1) {
        *resume = word_at(map.data, FILE_WORD_RESUME);
        *done = word_at(map.data, FILE_WORD_DONE);
        is = true;
    }
    io_map_close(&map);
    return is;
}

void engram_part_bytes(uint64_t bytes[PARTS], uint64_t n, uint64_t n_next, uint64_t n_blocks, bool top)
{
    const uint64_t raw[PARTS] = { 4 * n,      top ? 0 : 8 * n, 8 * n,     4 * n, 4 * FILTER_WORDS * n_blocks,
                                  4 * n_next, 4 * n_next,      2 * n_next };

    for (int i = 0; i < PARTS; i++)
        bytes[i] = (raw[i] + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

static uint64_t sums_bytes(uint64_t body)
{
    return ((body + SUM_BYTES - 1) / SUM_BYTES * 8 + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

/* Fills the levels of an epoch whose head stands at p. `left` bytes are there. *data: bytes of the arrays. */
static enum err_code place_levels(struct epoch *ep, const unsigned char *p, uint64_t left, uint64_t *data,
                                  struct err *e)
{
    uint64_t at = EPOCH_BYTES;

    for (int l = 0; l < ep->order; l++) {
        struct level *v = &ep->level[l];
        uint64_t bytes[PARTS], start[PARTS];

        v->n = word_at(p, WORD_N + l);
        v->n_next = word_at(p, WORD_NEXT + l);
        v->n_blocks = word_at(p, WORD_BLOCKS + l);
        if (v->n > left / 4 || v->n_next > left / 4 || v->n_blocks > left / 32 || v->n_blocks == 0)
            return err_set(e, ERR_FORMAT, "order %d is larger than the file", l + 1);
        engram_part_bytes(bytes, v->n, v->n_next, v->n_blocks, l + 1 == ep->order);
        for (int i = 0; i < PARTS; i++) {
            start[i] = at;
            at += bytes[i];
        }
        if (at > left)
            return err_set(e, ERR_FORMAT, "order %d ends after the file", l + 1);
        v->token = (const void *)(p + start[0]);
        v->child_end = (const void *)(p + start[1]);
        v->next_end = (const void *)(p + start[2]);
        v->total = (const void *)(p + start[3]);
        v->filter = (const void *)(p + start[4]);
        v->next = (const void *)(p + start[5]);
        v->count = (const void *)(p + start[6]);
        v->age = (const void *)(p + start[7]);
    }
    ep->n_known = word_at(p, WORD_KNOWN);
    if (ep->n_known > (left - at) / 8)
        return err_set(e, ERR_FORMAT, "its list of documents is larger than the file");
    ep->known = (const void *)(p + at);
    at += (8 * ep->n_known + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    if (ep->bytes != at + sums_bytes(at - EPOCH_BYTES))
        return err_set(e, ERR_FORMAT, "its parts do not add up to its size");
    *data = at - EPOCH_BYTES;
    return ERR_OK;
}

/* A table may be larger than memory: what was checked of it stays in the system's cache, and not in this process. */
static enum err_code check_sums(const struct io_map *map, const unsigned char *p, uint64_t data, struct err *e)
{
    if (io_hash(0, p + EPOCH_BYTES + data, sums_bytes(data)) != word_at(p, WORD_SUMS))
        return err_set(e, ERR_FORMAT, "wrong checksum of its checksums");
    for (uint64_t at = 0; at < data; at += SUM_BYTES) {
        const uint64_t n = data - at < SUM_BYTES ? data - at : SUM_BYTES;

        if (io_hash(0, p + EPOCH_BYTES + at, n) != word_at(p + EPOCH_BYTES + data, (int)(at / SUM_BYTES)))
            return err_set(e, ERR_FORMAT, "wrong checksum of block %" PRIu64, at / SUM_BYTES);
        if (at / SUM_BYTES % BLOCKS_BETWEEN_DROPS == BLOCKS_BETWEEN_DROPS - 1)
            io_map_drop(map, map->data, map->size);
    }
    return ERR_OK;
}

/* ---- what the arrays say ---- */

static enum err_code check_nexts(const struct level *v, uint64_t k, uint64_t from, struct err *e)
{
    for (uint64_t i = from; i < v->next_end[k]; i++) {
        const bool first = i == from;

        if (v->next[i] > ENGRAM_TOKEN_MAX || !(v->count[i] > 0) || !isfinite(v->count[i]) ||
            (!first &&
             (v->count[i] > v->count[i - 1] || (v->count[i] == v->count[i - 1] && v->next[i] <= v->next[i - 1]))))
            return err_set(e, ERR_FORMAT, "row %" PRIu64 " is out of order", i);
    }
    if (!(v->total[k] >= 0) || !isfinite(v->total[k]))
        return err_set(e, ERR_FORMAT, "the total of context %" PRIu64 " is no count", k);
    return ERR_OK;
}

/* A context's ranges lie behind those of the one before it and within the arrays. */
static enum err_code check_level(const struct epoch *ep, int l, struct err *e)
{
    const struct level *v = &ep->level[l];
    const bool top = l + 1 == ep->order;
    const uint64_t n_children = top ? 0 : ep->level[l + 1].n;
    uint64_t next = 0, child = 0;

    for (uint64_t k = 0; k < v->n; k++) {
        if (v->token[k] > ENGRAM_TOKEN_MAX || v->next_end[k] < next || v->next_end[k] > v->n_next)
            return err_set(e, ERR_FORMAT, "order %d, context %" PRIu64 ": out of bounds", l + 1, k);
        if (check_nexts(v, k, next, e))
            return err_wrap(e, "order %d", l + 1);
        next = v->next_end[k];
        if (top)
            continue;
        if (v->child_end[k] < child || v->child_end[k] > n_children)
            return err_set(e, ERR_FORMAT, "order %d, context %" PRIu64 ": children out of bounds", l + 1, k);
        for (uint64_t c = child + 1; c < v->child_end[k]; c++)
            if (ep->level[l + 1].token[c] <= ep->level[l + 1].token[c - 1])
                return err_set(e, ERR_FORMAT, "order %d, context %" PRIu64 ": out of order", l + 2, c);
        child = v->child_end[k];
    }
    if (next != v->n_next || (!top && child != n_children))
        return err_set(e, ERR_FORMAT, "order %d: rows that belong to no context", l + 1);
    for (uint64_t k = 1; l == 0 && k < v->n; k++)
        if (v->token[k] <= v->token[k - 1])
            return err_set(e, ERR_FORMAT, "order 1, context %" PRIu64 ": out of order", k);
    return ERR_OK;
}

static enum err_code open_epoch(struct epoch *out, const struct io_map *map, uint64_t from, struct err *e)
{
    const unsigned char *p = map->data + from;
    const uint64_t left = map->size - from;
    struct epoch ep = { 0 };
    uint64_t data = 0;

    if (left < EPOCH_BYTES || memcmp(p, EPOCH_MAGIC, 8) != 0)
        return err_set(e, ERR_FORMAT, "does not begin like one");
    if (word_at(p, WORD_HASH) != io_hash(0, p, EPOCH_BYTES - 8))
        return err_set(e, ERR_FORMAT, "wrong checksum of its head");
    ep.bytes = word_at(p, WORD_BYTES);
    ep.day = (int64_t)(word_at(p, WORD_DAY) & INT32_MAX);
    ep.tokens = word_at(p, WORD_TOKENS);
    ep.documents = word_at(p, WORD_DOCUMENTS);
    ep.at = p;
    memcpy(ep.domain, p + 8 * WORD_DOMAIN, sizeof ep.domain);
    if (ep.domain[0] != '\0' &&
        (memchr(ep.domain, '\0', sizeof ep.domain) == NULL || !engram_domain_ok(str_of(ep.domain))))
        return err_set(e, ERR_FORMAT, "its domain is no name");
    if (word_at(p, WORD_ORDER) < 1 || word_at(p, WORD_ORDER) > ENGRAM_ORDER_MAX)
        return err_set(e, ERR_FORMAT, "contexts of %" PRIu64 " tokens", word_at(p, WORD_ORDER));
    ep.order = (int)word_at(p, WORD_ORDER);
    if (ep.bytes < EPOCH_BYTES || ep.bytes > left)
        return err_set(e, ERR_FORMAT, "ends after the file");
    if (place_levels(&ep, p, ep.bytes, &data, e) || check_sums(map, p, data, e))
        return e->code;
    for (int l = 0; l < ep.order; l++) {
        io_map_drop(map, map->data, map->size);
        if (check_level(&ep, l, e))
            return e->code;
    }
    for (uint64_t i = 1; i < ep.n_known; i++)
        if (ep.known[i] <= ep.known[i - 1])
            return err_set(e, ERR_FORMAT, "its list of documents is out of order");
    *out = ep;
    return ERR_OK;
}

void engram_put_epoch(unsigned char head[EPOCH_BYTES], const struct epoch *ep, uint64_t sums_hash)
{
    memset(head, 0, EPOCH_BYTES);
    memcpy(head, EPOCH_MAGIC, 8);
    put_word(head, WORD_BYTES, ep->bytes);
    put_word(head, WORD_DAY, (uint64_t)ep->day);
    put_word(head, WORD_ORDER, (uint64_t)ep->order);
    put_word(head, WORD_TOKENS, ep->tokens);
    put_word(head, WORD_DOCUMENTS, ep->documents);
    for (int l = 0; l < ep->order; l++) {
        put_word(head, WORD_N + l, ep->level[l].n);
        put_word(head, WORD_NEXT + l, ep->level[l].n_next);
        put_word(head, WORD_BLOCKS + l, ep->level[l].n_blocks);
    }
    put_word(head, WORD_KNOWN, ep->n_known);
    memcpy(head + 8 * WORD_DOMAIN, ep->domain, sizeof ep->domain);
    put_word(head, WORD_SUMS, sums_hash);
    put_word(head, WORD_HASH, io_hash(0, head, EPOCH_BYTES - 8));
}

/* ---- files ---- */

static enum err_code check_head(struct file *f, uint64_t tokenizer, struct err *e)
{
    const unsigned char *p = f->map.data;

    if (f->map.size < HEAD_BYTES || memcmp(p, FILE_MAGIC, 8) != 0)
        return err_set(e, ERR_FORMAT, "not an engram table");
    if (word_at(p, 1) != FORMAT)
        return err_set(e, ERR_UNSUPPORTED, "version %" PRIu64 " of the format; this program knows %d", word_at(p, 1),
                       FORMAT);
    if (word_at(p, FILE_WORD_HASH) != io_hash(0, p, HEAD_BYTES - 8))
        return err_set(e, ERR_FORMAT, "wrong checksum of the head");
    if (word_at(p, FILE_WORD_BYTES) != 0 && word_at(p, FILE_WORD_BYTES) != f->map.size)
        return err_set(e, ERR_FORMAT, "is %s: %zu bytes, and its head says %" PRIu64,
                       word_at(p, FILE_WORD_BYTES) > f->map.size ? "cut" : "longer than it was written", f->map.size,
                       word_at(p, FILE_WORD_BYTES));
    f->tokenizer = word_at(p, 2);
    if (tokenizer != 0 && f->tokenizer != tokenizer)
        return err_set(e, ERR_FORMAT, "was made with another tokenizer than the model's");
    return ERR_OK;
}

enum err_code engram_map(struct file *out, const char *path, uint64_t tokenizer, struct err *e)
{
    struct file f = { 0 };
    struct err own;
    enum err_code code;

    e = e != NULL ? e : &own;
    if (io_map_open(&f.map, path, e))
        return e->code;
    code = check_head(&f, tokenizer, e);
    for (uint64_t at = HEAD_BYTES; code == ERR_OK && at < f.map.size;) {
        struct epoch *more = NULL;

        if (f.n_epochs == ENGRAM_EPOCHS_MAX)
            code = err_set(e, ERR_LIMIT, "more than %d epochs", ENGRAM_EPOCHS_MAX);
        else if ((more = realloc(f.epoch, (size_t)(f.n_epochs + 1) * sizeof *more)) == NULL)
            code = err_nomem(e);
        if (code != ERR_OK)
            break;
        f.epoch = more;
        code = open_epoch(&more[f.n_epochs], &f.map, at, e);
        if (code != ERR_OK) {
            err_wrap(e, "epoch %d", f.n_epochs);
            break;
        }
        at += more[f.n_epochs++].bytes;
    }
    if (code != ERR_OK) {
        engram_unmap(&f);
        return err_wrap(e, "%s", path);
    }
    io_map_drop(&f.map, f.map.data, f.map.size);
    *out = f;
    return ERR_OK;
}

void engram_unmap(struct file *f)
{
    io_map_close(&f->map);
    free(f->epoch);
    *f = (struct file){ 0 };
}

static struct range range_of(const uint64_t *end, uint64_t k, uint64_t n)
{
    const struct range r = { k > 0 ? end[k - 1] : 0, end[k] };

    /* Checked at open; a file that changes under its mapping must not lead out of it. */
    return r.begin <= r.end && r.end <= n ? r : (struct range){ 0, 0 };
}

struct range engram_children(const struct epoch *ep, int level, uint64_t k)
{
    if (level + 1 >= ep->order)
        return (struct range){ 0, 0 };
    return range_of(ep->level[level].child_end, k, ep->level[level + 1].n);
}

struct range engram_nexts(const struct epoch *ep, int level, uint64_t k)
{
    return range_of(ep->level[level].next_end, k, ep->level[level].n_next);
}

bool engram_domain_ok(struct str name)
{
    for (size_t i = 0; i < name.n; i++)
        if (!isalnum((unsigned char)name.p[i]) && strchr("._-", name.p[i]) == NULL)
            return false;
    return name.n > 0 && name.n < ENGRAM_DOMAIN_BYTES;
}

/* Leaves the epochs of the domains "a,b,c" alone. A name that no epoch has is a mistake. */
static enum err_code choose_domains(struct file *f, const char *path, const char *domains, struct err *e)
{
    bool with[ENGRAM_EPOCHS_MAX] = { false };
    int n = 0;

    for (const char *at = domains; at != NULL; at = strchr(at, ',')) {
        at += at != domains;
        const size_t length = strcspn(at, ",");
        bool found = false;

        for (int i = 0; length > 0 && i < f->n_epochs; i++)
            if (strncmp(at, f->epoch[i].domain, length) == 0 && f->epoch[i].domain[length] == '\0')
                with[i] = found = true;
        if (!found)
            return err_set(e, ERR_ARG, "%s: has no epoch of the domain '%.*s'", path,
                           (int)(length < 200 ? length : 200), at);
    }
    for (int i = 0; i < f->n_epochs; i++)
        if (with[i])
            f->epoch[n++] = f->epoch[i];
    f->n_epochs = n;
    return ERR_OK;
}

enum err_code engram_open(struct engram **out, const char *const *paths, int n_paths, const struct engram_opts *o,
                          struct err *e)
{
    struct engram *g;

    if (n_paths < 1 || n_paths > ENGRAM_FILES_MAX)
        return err_set(e, ERR_ARG, "1 to %d tables, not %d", ENGRAM_FILES_MAX, n_paths);
    g = calloc(1, sizeof *g);
    if (g == NULL)
        return err_nomem(e);
    g->day = o->day;
    g->has = engram_filter_has();
    for (; g->n_files < n_paths; g->n_files++) {
        const uint64_t first = g->n_files > 0 ? g->file[0].tokenizer : 0;
        enum err_code code =
            engram_map(&g->file[g->n_files], paths[g->n_files], o->tokenizer != 0 ? o->tokenizer : first, e);

        const char *const domains = o->domains != NULL ? o->domains[g->n_files] : NULL;

        if (code == ERR_OK && domains != NULL && choose_domains(&g->file[g->n_files], paths[g->n_files], domains, e)) {
            engram_unmap(&g->file[g->n_files]);
            code = e->code;
        }
        if (code != ERR_OK) {
            engram_close(g);
            return code;
        }
        const char *slash = strrchr(paths[g->n_files], '/');

        (void)snprintf(g->file[g->n_files].name, NAME_BYTES, "%s", slash != NULL ? slash + 1 : paths[g->n_files]);
    }
    *out = g;
    return ERR_OK;
}

enum err_code engram_join(struct engram **out, const struct engram *first, const struct engram *second, struct err *e)
{
    const int n = first->n_files + second->n_files;
    struct engram *g;

    if (n > ENGRAM_FILES_MAX)
        return err_set(e, ERR_ARG, "1 to %d tables, not %d", ENGRAM_FILES_MAX, n);
    g = malloc(sizeof *g);
    if (g == NULL)
        return err_nomem(e);
    *g = *first;
    memcpy(g->file + first->n_files, second->file, (size_t)second->n_files * sizeof *g->file);
    g->n_files = n;
    g->borrowed = true;
    g->own = NULL;
    *out = g;
    return ERR_OK;
}

void engram_close(struct engram *g)
{
    if (g == NULL)
        return;
    for (int i = 0; !g->borrowed && i < g->n_files; i++)
        engram_unmap(&g->file[i]);
    free(g->own);
    free(g);
}

/* ---- what is in a file ---- */

int engram_n_files(const struct engram *g)
{
    return g->n_files;
}

const char *engram_file_name(const struct engram *g, int file)
{
    return g->file[file].name;
}

int engram_n_epochs(const struct engram *g, int file)
{
    return g->file[file].n_epochs;
}

uint64_t engram_file_bytes(const struct engram *g, int file)
{
    return g->file[file].map.size;
}

struct engram_epoch_stat engram_epoch_stat(const struct engram *g, int file, int epoch)
{
    const struct epoch *ep = &g->file[file].epoch[epoch];
    struct engram_epoch_stat s = { .day = ep->day,
                                   .order = ep->order,
                                   .tokens = ep->tokens,
                                   .documents = ep->documents,
                                   .bytes = ep->bytes,
                                   .domain = ep->domain };

    for (int l = 0; l < ep->order; l++) {
        uint64_t bytes[PARTS];

        engram_part_bytes(bytes, ep->level[l].n, ep->level[l].n_next, ep->level[l].n_blocks, l + 1 == ep->order);
        s.of[l] = (struct engram_order_stat){ ep->level[l].n, ep->level[l].n_next, 0 };
        for (int i = 0; i < PARTS; i++)
            s.of[l].bytes += bytes[i];
    }
    return s;
}

bool engram_knows(const struct engram *g, uint64_t known)
{
    for (int f = 0; f < g->n_files; f++)
        for (int i = 0; i < g->file[f].n_epochs; i++) {
            const struct epoch *ep = &g->file[f].epoch[i];

            if (ep->n_known > 0 && bsearch(&known, ep->known, (size_t)ep->n_known, sizeof known, io_by_hash) != NULL)
                return true;
        }
    return false;
}

struct walk {
    const struct epoch *ep;
    engram_row_fn *fn;
    void *ctx;
    int32_t context[ENGRAM_ORDER_MAX]; /* filled from its end */
};

static bool walk_level(struct walk *w, int l, struct range nodes)
{
    const struct level *v = &w->ep->level[l];
    int32_t *context = w->context + ENGRAM_ORDER_MAX - 1 - l;

    for (uint64_t k = nodes.begin; k < nodes.end; k++) {
        const struct range next = engram_nexts(w->ep, l, k);

        *context = (int32_t)v->token[k];
        if (l + 1 < w->ep->order && !walk_level(w, l + 1, engram_children(w->ep, l, k)))
            return false;
        *context = (int32_t)v->token[k];
        for (uint64_t i = next.begin; i < next.end; i++) {
            const struct engram_row r = { context, l + 1, (int32_t)v->next[i], (double)v->count[i], v->age[i] };

            if (!w->fn(w->ctx, &r))
                return false;
        }
    }
    return true;
}

void engram_rows(const struct engram *g, int file, int epoch, engram_row_fn *fn, void *ctx)
{
    struct walk w = { .ep = &g->file[file].epoch[epoch], .fn = fn, .ctx = ctx };

    (void)walk_level(&w, 0, (struct range){ 0, w.ep->level[0].n });
}
