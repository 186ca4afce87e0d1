/* SPDX-License-Identifier: Apache-2.0 */
/* build.c - tokens into an epoch.                                            room: engram
 *
 * All places of a text are sorted by the tokens before them, newest first, then by the token there: the contexts of
 * every order are runs of that one order. Many places are split by one token (multikey quicksort: Bentley and Sedgewick
 * 1997), few by as many tokens as a number of 64 bits holds, byte by byte, so that each place is read once for several
 * tokens. When memory is full, what was sorted becomes a table beside the file; at the end those tables are merged.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/pool.h"
#include "engram/internal.h"

enum { BORDER = -1, MEMORY_LEAST = 1 << 20, SMALL = 32, PLACE_BYTES = 12, PACKED = 16384, AHEAD = 16 };

struct engram_builder {
    struct engram_build_opts o;
    char *path;
    int32_t *token;       /* [cap] documents, BORDER before each */
    uint32_t *place;      /* [cap] of tokens to sort */
    uint32_t *start;      /* where those with one newest token begin, in place */
    size_t n, cap, first; /* first: tokens before it are context only */
    bool inside;          /* a document */
    int32_t token_max;
    uint64_t tokens, documents;
    uint64_t put, done; /* tokens and borders so far; those that parts have */
    struct file *part;  /* [n_parts] sorted already */
    int n_parts;
};

/* ---- sorting ---- */

/* A place and some columns of its key. */
struct packed {
    uint64_t key;
    uint32_t place;
};
struct sort {
    const int32_t *token;
    uint32_t *place;
    int order;
    int bits;               /* of a column in a key */
    struct packed *scratch; /* [workers][2][PACKED] */
};

/* Column c of the key of a place: tokens before it, newest first, then itself. Behind a BORDER there is nothing. */
static int32_t column(const struct sort *s, uint32_t place, int c)
{
    return c < s->order ? s->token[place - 1 - (uint32_t)c] : s->token[place];
}

/* Columns c .. c + n - 1, as one number. */
static uint64_t pack_columns(const struct sort *s, uint32_t place, int c, int n)
{
    uint64_t key = 0;
    bool ends = false;

    for (int i = c; i < c + n; i++) {
        const int32_t x = ends && i < s->order ? BORDER : column(s, place, i);

        ends = ends || x == BORDER;
        key = key << s->bits | (uint64_t)(x + 1);
    }
    return key;
}

/* Sorts v by its keys; t has room for as many. The result is in v. */
static void sort_keys(struct packed *v, struct packed *t, size_t n)
{
    uint32_t count[8][256];
    struct packed *from = v;

    if (n <= SMALL) {
        for (size_t i = 1; i < n; i++) {
            const struct packed x = v[i];
            size_t j = i;

            for (; j > 0 && v[j - 1].key > x.key; j--)
                v[j] = v[j - 1];
            v[j] = x;
        }
        return;
    }
    memset(count, 0, sizeof count);
    for (size_t i = 0; i < n; i++)
        for (int d = 0; d < 8; d++)
            count[d][v[i].key >> 8 * d & 255]++;
    for (int d = 0; d < 8; d++) {
        uint32_t *const at = count[d], sum = 0;

        if (at[from[0].key >> 8 * d & 255] == n)
            continue; /* all have the same */
        for (int i = 0; i < 256; i++) {
            const uint32_t x = at[i];

            at[i] = sum;
            sum += x;
        }
        for (size_t i = 0; i < n; i++)
            t[at[from[i].key >> 8 * d & 255]++] = from[i];
        struct packed *const old = from;

        from = t;
        t = old;
    }
    if (from != v)
        memcpy(v, from, n * sizeof *v);
}

/* The column to go on with. */
static int after_border(const struct sort *s, uint32_t place, int c)
{
    for (int i = 0; i < c && i < s->order; i++)
        if (column(s, place, i) == BORDER)
            return c > s->order ? c : s->order;
    return c;
}

/* n <= PACKED places that are equal in the columns before c. */
static void sort_packed(const struct sort *s, uint32_t *v, size_t n, int c, struct packed *t)
{
    const int left = s->order + 1 - c, k = left < 64 / s->bits ? left : 64 / s->bits;

    if (n < 2 || left <= 0)
        return;
    for (size_t i = 0; i < n; i++) {
        if (i + AHEAD < n)
            __builtin_prefetch(s->token + v[i + AHEAD] - 4);
        t[i] = (struct packed){ pack_columns(s, v[i], c, k), v[i] };
    }
    sort_keys(t, t + PACKED, n);
    for (size_t i = 0; i < n; i++)
        v[i] = t[i].place;
    if (k == left)
        return;
    for (size_t i = 0, end; i < n; i = end) {
        /* The keys are gone once a run was sorted: those of the rest are made again. */
        const uint64_t key = pack_columns(s, v[i], c, k);

        for (end = i + 1; end < n && pack_columns(s, v[end], c, k) == key; end++)
            ;
        sort_packed(s, v + i, end - i, after_border(s, v[i], c + k), t);
    }
}

static void swap(uint32_t *a, uint32_t *b)
{
    const uint32_t x = *a;

    *a = *b;
    *b = x;
}

static int32_t median(int32_t a, int32_t b, int32_t c)
{
    if (a > b) {
        const int32_t x = a;

        a = b;
        b = x;
    }
    return c < a ? a : c > b ? b : c;
}

/* The places v[0 .. n) are equal in the columns before c. Deep recursion only into halves and columns. */
static void sort_places(const struct sort *s, uint32_t *v, size_t n, int c, struct packed *t)
{
    while (n > PACKED && c <= s->order) {
        const int32_t pivot = median(column(s, v[0], c), column(s, v[n / 2], c), column(s, v[n - 1], c));
        size_t less = 0, at = 0, more = n;

        while (at < more) {
            const int32_t x = column(s, v[at], c);

            if (x < pivot)
                swap(&v[less++], &v[at++]);
            else if (x > pivot)
                swap(&v[at], &v[--more]);
            else
                at++;
        }
        const size_t size[3] = { less, more - less, n - more };
        uint32_t *const begin[3] = { v, v + less, v + more };
        const int deeper = pivot == BORDER && c < s->order ? s->order : c + 1;
        const int largest = size[0] >= size[1] && size[0] >= size[2] ? 0 : size[1] >= size[2] ? 1 : 2;

        for (int i = 0; i < 3; i++)
            if (i != largest)
                sort_places(s, begin[i], size[i], i == 1 ? deeper : c, t);
        v = begin[largest];
        n = size[largest];
        c = largest == 1 ? deeper : c;
    }
    sort_packed(s, v, n, c, t);
}

struct sort_job {
    struct sort s;
    const uint32_t *start; /* [token_max + 3] */
};

static void sort_groups(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct sort_job *j = ctx;

    struct packed *scratch = j->s.scratch + (size_t)worker * 2 * PACKED;

    for (int64_t t = begin > 0 ? begin : 1; t < end; t++)
        sort_places(&j->s, j->s.place + j->start[t], j->start[t + 1] - j->start[t], 1, scratch);
}

/* Groups by the newest token, then each group by the rest. Group 0, behind a BORDER, has no contexts. */
static enum err_code sort_all(struct engram_builder *b, size_t *n_places, struct err *e)
{
    const size_t groups = (size_t)b->token_max + 2;
    uint32_t *start = calloc(groups + 2, sizeof *start);
    struct packed *scratch =
        malloc((size_t)(b->o.pool != NULL ? pool_size(b->o.pool) : 1) * 2 * PACKED * sizeof *scratch);
    struct sort_job j = { { b->token, b->place, b->o.order, 1, scratch }, start };

    if (start == NULL || scratch == NULL) {
        free(start);
        free(scratch);
        return err_nomem(e);
    }
    while (j.s.bits < 31 && (b->token_max + 1) >> j.s.bits != 0)
        j.s.bits++;
    for (size_t i = b->first; i < b->n; i++)
        if (b->token[i] != BORDER)
            start[b->token[i - 1] + 3]++;
    for (size_t t = 2; t < groups + 2; t++)
        start[t] += start[t - 1];
    for (size_t i = b->first; i < b->n; i++)
        if (b->token[i] != BORDER)
            b->place[start[b->token[i - 1] + 2]++] = (uint32_t)i;
    *n_places = start[groups];
    pool_for(b->o.pool, (int64_t)groups, 64, sort_groups, &j);
    free(start);
    free(scratch);
    return ERR_OK;
}

/* ---- runs of equal contexts ---- */

struct list {
    struct entry *v;
    size_t n, cap, joined; /* joined: length after the last join */
};
struct runs {
    struct emit *m;
    int order;
    struct list list[ENGRAM_ORDER_MAX];
    uint64_t hash[ENGRAM_ORDER_MAX + 1]; /* of the open contexts; hash[0]: of none */
    const int32_t *before;               /* the place before, with `open` contexts */
    int open;
};

static int by_token(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;

    return (x->token > y->token) - (x->token < y->token);
}

static void join_entries(struct list *l)
{
    size_t kept = 0;

    if (l->n > 1)
        engram_sort_entries(l->v, l->n, by_token);
    for (size_t i = 0; i < l->n; i++) {
        if (kept > 0 && l->v[kept - 1].token == l->v[i].token)
            l->v[kept - 1].count += l->v[i].count; /* whole numbers: exact in any order */
        else
            l->v[kept++] = l->v[i];
    }
    l->n = l->joined = kept;
}

static enum err_code push_entry(struct list *l, const struct entry *x, struct err *e)
{
    if (l->n > 0 && l->v[l->n - 1].token == x->token) {
        l->v[l->n - 1].count += x->count;
        return ERR_OK;
    }
    if (l->n == l->cap) {
        join_entries(l);
        if (l->n >= l->cap / 2 && memory_room(&l->v, &l->cap, l->cap + 1, sizeof *l->v, e))
            return e->code;
    }
    l->v[l->n++] = *x;
    return ERR_OK;
}

/* Ends the contexts longer than `keep` that are open at a place; those one shorter get what followed. */
static enum err_code end_runs(struct runs *r, const int32_t *token, int open, int keep, struct err *e)
{
    for (int l = open - 1; l >= keep; l--) {
        struct list *list = &r->list[l];

        join_entries(list);
        for (size_t i = 0; l > 0 && i < list->n; i++)
            if (push_entry(&r->list[l - 1], &list->v[i], e))
                return e->code;
        if (engram_emit(r->m, l, (uint32_t)token[-1 - l], r->hash[l + 1], list->v, list->n, e))
            return e->code;
        list->n = 0;
    }
    return ERR_OK;
}

/* The next place: *at came `count` times after the `length` tokens before it. */
static enum err_code take_place(struct runs *r, const int32_t *at, int length, double count, struct err *e)
{
    const struct entry x = { *at, 0, 0, count };
    int same = 0;

    while (same < length && same < r->open && at[-1 - same] == r->before[-1 - same])
        same++;
    if (end_runs(r, r->before, r->open, same, e))
        return e->code;
    for (int l = same; l < length; l++)
        r->hash[l + 1] = engram_hash(r->hash[l], (uint32_t)at[-1 - l]);
    r->before = at;
    r->open = length;
    return length > 0 ? push_entry(&r->list[length - 1], &x, e) : ERR_OK;
}

/* Ends what is open, also after an error. */
static enum err_code close_runs(struct runs *r, enum err_code code, struct err *e)
{
    if (code == ERR_OK)
        code = end_runs(r, r->before, r->open, 0, e);
    for (int l = 0; l < r->order; l++)
        free(r->list[l].v);
    return code;
}

static enum err_code emit_runs(const struct engram_builder *b, size_t n, struct emit *m, struct err *e)
{
    struct runs r = { .m = m, .order = b->o.order };
    enum err_code code = ERR_OK;

    for (size_t i = 0; code == ERR_OK && i < n; i++) {
        const int32_t *at = b->token + b->place[i];
        int length = 0;

        if (i + AHEAD < n)
            __builtin_prefetch(b->token + b->place[i + AHEAD] - 4);
        while (length < r.order && at[-1 - length] != BORDER)
            length++;
        code = take_place(&r, at, length, 1, e);
    }
    return close_runs(&r, code, e);
}

/* ---- parts ---- */

/* Of o: add and versions. */
static enum err_code write_file(const struct epoch *ep, unsigned char head[HEAD_BYTES], struct emit *m,
                                const struct engram_build_opts *o, const char *path, struct err *e)
{
    struct io_out *out;
    struct io_map old = { 0 };
    enum err_code code;

    if (o->add && io_map_open(&old, path, e))
        return e->code;
    if (o->add)
        memcpy(head, old.data, HEAD_BYTES);
    code = io_out_open(&out, path, e);
    if (code == ERR_OK) {
        io_out_versions(out, o->versions);
        code = (o->add ? io_out_write(out, old.data, old.size, e) : io_out_write(out, head, HEAD_BYTES, e)) ||
                       engram_emit_write(m, out, ep, e) || engram_end_file(out, head, e)
                   ? e->code
                   : ERR_OK;
        code = io_out_end(out, code, e);
    }
    io_map_close(&old);
    return code;
}

enum err_code engram_write_rows(const char *path, const struct engram_row_at *row, size_t n,
                                const struct engram_build_opts *o, uint64_t tokens, struct err *e)
{
    struct runs r = { .order = o->order };
    unsigned char head[HEAD_BYTES];
    enum err_code code;

    if (engram_emit_open(&r.m, path, o->order, e))
        return e->code;
    code = ERR_OK;
    for (size_t i = 0; code == ERR_OK && i < n; i++)
        code = take_place(&r, row[i].at, o->order, row[i].count, e);
    code = close_runs(&r, code, e);
    engram_put_head(head, o->tokenizer, 0);
    if (code == ERR_OK)
        code = write_file(&(struct epoch){ .day = o->day, .tokens = tokens, .documents = 1 }, head, r.m, o, path, e);
    engram_emit_close(r.m);
    return code;
}

/* What waits becomes contexts of m. */
static enum err_code sort_into(struct engram_builder *b, struct emit *m, struct err *e)
{
    size_t n;

    if (sort_all(b, &n, e))
        return e->code;
    return emit_runs(b, n, m, e);
}

/* "PATH.part-i", malloc'ed. */
static char *part_name(const struct engram_builder *b, int i, struct err *e)
{
    const size_t n = strlen(b->path) + 32;
    char *name = malloc(n);

    if (name == NULL)
        err_nomem(e);
    else
        (void)snprintf(name, n, "%s.part-%d", b->path, i);
    return name;
}

/* Only the last tokens are kept, as the context of those that follow. */
static void forget_tokens(struct engram_builder *b)
{
    const size_t keep = b->n < ENGRAM_ORDER_MAX + 1 ? b->n : ENGRAM_ORDER_MAX + 1;

    memmove(b->token, b->token + (b->n - keep), keep * sizeof *b->token);
    b->n = b->first = keep;
}

/* Room for one more of b->part. */
static enum err_code grow_parts(struct engram_builder *b, struct err *e)
{
    struct file *part = realloc(b->part, (size_t)(b->n_parts + 1) * sizeof *part);

    if (part == NULL)
        return err_nomem(e);
    b->part = part;
    return b->n_parts < ENGRAM_EPOCHS_MAX
               ? ERR_OK
               : err_set(e, ERR_LIMIT, "more than %d parts: more memory is needed", ENGRAM_EPOCHS_MAX);
}

/* In the head of the next part: what is built, and where the part begins. Parts with a gap between them are never
 * joined. */
static uint64_t part_number(const struct engram_builder *b)
{
    return b->o.resume != 0 ? io_hash(b->o.resume, &b->done, sizeof b->done) : 0;
}

/* What waits becomes a table beside the file; without a name, unless a later build may go on from it. */
static enum err_code spill(struct engram_builder *b, struct err *e)
{
    const struct epoch ep = { .day = b->o.day, .tokens = b->tokens, .documents = b->documents };
    unsigned char head[HEAD_BYTES];
    char *name = part_name(b, b->n_parts, e);
    struct emit *m = NULL;
    enum err_code code = name != NULL ? grow_parts(b, e) : e->code;

    if (code == ERR_OK)
        code = engram_emit_open(&m, b->path, b->o.order, e);
    if (code == ERR_OK)
        code = sort_into(b, m, e);
    engram_put_head(head, b->o.tokenizer, 0);
    engram_put_part(head, part_number(b), b->put);
    if (code == ERR_OK)
        code = write_file(&ep, head, m, &(struct engram_build_opts){ .add = false }, name, e);
    if (code == ERR_OK) {
        io_same_mode(name, b->path);
        code = engram_map(&b->part[b->n_parts], name, b->o.tokenizer, e);
        if (b->o.resume == 0 || code != ERR_OK)
            unlink(name);
        b->n_parts += code == ERR_OK;
        b->done = b->put;
    }
    engram_emit_close(m);
    free(name);
    forget_tokens(b);
    return code;
}

/* Takes part i of an earlier build of the same number; *there false: there is none, and what was there is removed. */
static enum err_code take_part(struct engram_builder *b, int i, bool *there, struct err *e)
{
    char *name = part_name(b, i, e);
    uint64_t resume = 0, done = 0;
    enum err_code code = name != NULL ? ERR_OK : e->code;

    *there = false;
    if (code == ERR_OK && access(name, F_OK) == 0) {
        if (!engram_get_part(name, &resume, &done))
            code = err_set(e, ERR_IO, "%s: is in the way: not a part of an unfinished table", name);
        if (code == ERR_OK && resume != 0 && resume == part_number(b) && i == b->n_parts && done > b->done &&
            grow_parts(b, e) == ERR_OK && engram_map(&b->part[i], name, b->o.tokenizer, NULL) == ERR_OK) {
            *there = true;
            b->n_parts++;
            b->done = done;
            b->o.day = b->part[i].epoch[0].day;
        } else if (code == ERR_OK)
            unlink(name);
    }
    free(name);
    return code;
}

/* The parts before one that is missing; the rest are removed, up to a gap. */
static enum err_code take_parts(struct engram_builder *b, struct err *e)
{
    bool there = true;

    for (int i = 0; i < ENGRAM_EPOCHS_MAX; i++) {
        char *name = part_name(b, i, e);
        const bool is = name != NULL && access(name, F_OK) == 0;

        free(name);
        if (name == NULL)
            return e->code;
        if (!is)
            break;
        if (take_part(b, i, &there, e))
            return e->code;
    }
    return ERR_OK;
}

/* ---- the builder ---- */

static enum err_code put_token(struct engram_builder *b, int32_t token, struct err *e)
{
    if (b->n == b->cap && b->put < b->done)
        forget_tokens(b);
    else if (b->n == b->cap && spill(b, e))
        return e->code;
    b->token[b->n++] = token;
    if (++b->put == b->done)
        forget_tokens(b);
    return ERR_OK;
}

enum err_code engram_build_open(struct engram_builder **out, const char *path, const struct engram_build_opts *o,
                                struct err *e)
{
    struct engram_builder *b;
    struct file old;

    if (o->order < 1 || o->order > ENGRAM_ORDER_MAX || o->memory_bytes < MEMORY_LEAST || o->day < 0 ||
        o->day > INT32_MAX)
        return err_set(e, ERR_ARG, "order 1 to %d, memory of at least 1 MiB", ENGRAM_ORDER_MAX);
    if (o->domain != NULL && !engram_domain_ok(str_of(o->domain)))
        return err_set(e, ERR_ARG, "%s: a domain has letters, digits, '.', '_' and '-', at most %d", o->domain,
                       ENGRAM_DOMAIN_BYTES - 1);
    if (o->add) { /* before the work, not after it */
        if (engram_map(&old, path, o->tokenizer, e))
            return e->code;
        const int n = old.n_epochs;

        engram_unmap(&old);
        if (n == ENGRAM_EPOCHS_MAX)
            return err_set(e, ERR_LIMIT, "%s: has %d epochs: merge them first", path, n);
    }
    b = calloc(1, sizeof *b);
    if (b == NULL)
        return err_nomem(e);
    b->o = *o;
    b->cap = (size_t)(o->memory_bytes / PLACE_BYTES < UINT32_MAX ? o->memory_bytes / PLACE_BYTES : UINT32_MAX - 1);
    b->path = strdup(path);
    b->token = malloc(b->cap * sizeof *b->token);
    b->place = malloc(b->cap * sizeof *b->place);
    if (b->path == NULL || b->token == NULL || b->place == NULL) {
        engram_build_abort(b);
        return err_set(e, ERR_NOMEM, "out of memory: %zu tokens", b->cap);
    }
    /* Contexts are read without a look at where memory begins. */
    for (int i = 0; i <= ENGRAM_ORDER_MAX; i++)
        b->token[b->n++] = BORDER;
    b->first = b->n;
    if (take_parts(b, e)) {
        (void)engram_build_leave(b);
        return e->code;
    }
    *out = b;
    return ERR_OK;
}

uint64_t engram_build_resumed(const struct engram_builder *b)
{
    return b->done;
}

enum err_code engram_build_tokens(struct engram_builder *b, const int32_t *token, int64_t n, struct err *e)
{
    for (int64_t i = 0; i < n; i++) {
        if (token[i] < 0 || token[i] > ENGRAM_TOKEN_MAX - 8)
            return err_set(e, ERR_ARG, "token %d", (int)token[i]);
        b->token_max = token[i] > b->token_max ? token[i] : b->token_max;
        if (put_token(b, token[i], e))
            return e->code;
    }
    b->tokens += (uint64_t)n;
    b->inside = b->inside || n > 0;
    return ERR_OK;
}

enum err_code engram_build_end(struct engram_builder *b, struct err *e)
{
    if (!b->inside)
        return ERR_OK;
    b->inside = false;
    b->documents++;
    return put_token(b, BORDER, e);
}

static enum err_code commit_epoch(struct engram_builder *b, const struct progress *p, struct err *e)
{
    const struct merge_rule rule = { NULL, b->o.day, -1, 0, 0, NULL };
    struct epoch ep = { .day = b->o.day, .n_known = b->o.n_known, .known = b->o.known };
    unsigned char head[HEAD_BYTES];
    struct emit *m = NULL;
    enum err_code code = engram_build_end(b, e);

    if (code == ERR_OK && b->put < b->done)
        code = err_set(e, ERR_FORMAT, "the texts are shorter than those that the parts beside it are of");
    if (code == ERR_OK && b->n_parts > 0 && b->n > b->first)
        code = spill(b, e);
    if (code == ERR_OK)
        code = engram_emit_open(&m, b->path, b->o.order, e);
    if (code == ERR_OK)
        code = b->n_parts > 0 ? engram_merge_into(m, b->part, b->n_parts, &rule, p, e) : sort_into(b, m, e);
    ep.tokens = b->tokens;
    ep.documents = b->documents;
    if (b->o.domain != NULL)
        (void)snprintf(ep.domain, sizeof ep.domain, "%s", b->o.domain);
    engram_put_head(head, b->o.tokenizer, 0);
    if (code == ERR_OK)
        code = write_file(&ep, head, m, &b->o, b->path, e);
    engram_emit_close(m);
    return code;
}

enum err_code engram_build_commit(struct engram_builder *b, const struct progress *p, struct err *e)
{
    enum err_code code = commit_epoch(b, p, e);

    if (code == ERR_CANCEL)
        (void)engram_build_leave(b);
    else
        engram_build_abort(b);
    return code;
}

int engram_build_leave(struct engram_builder *b)
{
    const int left = b->o.resume != 0 ? b->n_parts : 0;

    for (int i = 0; i < b->n_parts; i++)
        engram_unmap(&b->part[i]);
    free(b->part);
    free(b->place);
    free(b->token);
    free(b->path);
    free(b);
    return left;
}

void engram_build_abort(struct engram_builder *b)
{
    struct err e;

    if (b == NULL)
        return;
    for (int i = 0; b->o.resume != 0 && i < b->n_parts; i++) {
        char *name = part_name(b, i, &e);

        if (name != NULL)
            unlink(name);
        free(name);
    }
    (void)engram_build_leave(b);
}
