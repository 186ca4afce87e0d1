/* SPDX-License-Identifier: Apache-2.0 */
/* cache.c - slots for experts, and reads into them (cache.h). */
#include "cpu/cache.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/reads.h"
#include "cpu/cpu.h"

/* Experts that are asked for before their layer is reached; reads that a matrix is cut into, since a token misses few
 * experts of a layer, and their least bytes. */
enum { AHEAD = 64, CUTS = 4, CUT_BYTES = 128 << 10 };

struct file {
    char *path;
    struct io_map map;
    int fd;
};

/* A matrix of each of a layer's experts. */
struct part {
    int file;
    int64_t first, apart; /* bytes in the file: where that of expert 0 is, and from one to the next */
    int64_t bytes;        /* 0: there is none */
};

struct layer {
    struct part part[CPU_PARTS];
    int32_t n_expert, key; /* key of expert 0 */
    const uint64_t *uses;
};

struct slot {
    int32_t key;          /* -1: nothing */
    int32_t newer, older; /* in the list by last use; of a slot that is kept neither */
    bool reading, kept;
    bool in_use; /* by the layer at hand */
    int error;   /* of a read: errno, or -1 where the file ended */
    int left;
    struct io_read read[CPU_PARTS][CUTS];
};

struct cpu_cache {
    struct file *file;
    int n_file;
    struct layer *layer;
    int n_layer;
    int32_t *slot_of; /* [keys] -1: not in memory */
    bool *keep;       /* [keys] */
    int32_t n_key;
    struct slot *slot;
    int32_t n_slot, n_fresh;           /* slots; those from here on were never taken */
    int32_t newest, oldest;            /* of the list */
    int64_t part_at[CPU_PARTS], bytes; /* in a slot, and of it */
    unsigned char *memory;
    size_t held;
    struct io_reads *reads;
    struct io_cache_stats stats;
};

static int64_t up_to_page(int64_t n)
{
    return (n + IO_READS_ALIGN - 1) / IO_READS_ALIGN * IO_READS_ALIGN;
}

/* ---- opening ---- */

static int file_of(struct cpu_cache *c, const char *path, const struct io_map *map)
{
    struct file *more;

    for (int i = 0; i < c->n_file; i++)
        if (c->file[i].map.data == map->data)
            return i;
    more = realloc(c->file, ((size_t)c->n_file + 1) * sizeof *more);
    if (more == NULL)
        return -1;
    c->file = more;
    c->file[c->n_file] = (struct file){ strdup(path), *map, -1 };
    return c->file[c->n_file].path == NULL ? -1 : c->n_file++;
}

int cpu_cache_layer(void *ctx, const struct dev_cached *l)
{
    struct cpu *d = ctx;
    const struct tensor of[CPU_PARTS] = { l->moe->gate, l->moe->up, l->moe->down };
    struct cpu_cache *c = d->cache != NULL ? d->cache : calloc(1, sizeof *c);
    struct layer *more = c == NULL ? NULL : realloc(c->layer, ((size_t)c->n_layer + 1) * sizeof *more);

    d->cache = c;
    if (more == NULL)
        return 0;
    c->layer = more;
    more += c->n_layer;
    *more = (struct layer){ .n_expert = (int32_t)of[1].ne[2], .key = c->n_key, .uses = l->uses };
    for (int i = 0; i < CPU_PARTS; i++) {
        const int64_t row = of[i].data != NULL ? quant_row_bytes(of[i].type, of[i].ne[0]) : 0;
        struct part *p = &more->part[i];

        if (of[i].data == NULL)
            continue;
        *p = (struct part){ file_of(c, l->path[i], l->map[i]), (const unsigned char *)of[i].data - l->map[i]->data,
                            of[i].pitch * row, of[i].ne[1] * row };
        if (p->file < 0)
            return 0;
        c->stats.expert_bytes += more->n_expert * p->bytes;
    }
    c->n_key += more->n_expert;
    return ++c->n_layer;
}

/* Where parts are in a slot: they begin anywhere in a page of the file, and whole pages are read. */
static void lay_slots(struct cpu_cache *c)
{
    for (int i = 0; i < CPU_PARTS; i++) {
        int64_t most = 0;

        for (int l = 0; l < c->n_layer; l++)
            most = c->layer[l].part[i].bytes > most ? c->layer[l].part[i].bytes : most;
        c->part_at[i] = c->bytes;
        c->bytes += most > 0 ? up_to_page(most + IO_READS_ALIGN - 1) : 0;
    }
}

struct kept {
    uint64_t uses;
    int32_t key;
};

static int by_uses(const void *a, const void *b)
{
    const struct kept *x = a, *y = b;

    return x->uses != y->uses ? (x->uses < y->uses ? 1 : -1) : x->key - y->key;
}

/* Marks the experts that were used most, as many as three quarters of the slots hold. */
static enum err_code choose_kept(struct cpu_cache *c, struct err *e)
{
    struct kept *v = calloc((size_t)c->n_key + 1, sizeof *v);
    int32_t n = 0;

    if (v == NULL)
        return err_nomem(e);
    for (int l = 0; l < c->n_layer; l++)
        for (int32_t i = 0; c->layer[l].uses != NULL && i < c->layer[l].n_expert; i++)
            if (c->layer[l].uses[i] > 0)
                v[n++] = (struct kept){ c->layer[l].uses[i], c->layer[l].key + i };
    qsort(v, (size_t)n, sizeof *v, by_uses);
    for (int32_t i = 0; i < n && i < c->n_slot / 4 * 3; i++, c->stats.kept++)
        c->keep[v[i].key] = true;
    free(v);
    return ERR_OK;
}

static enum err_code open_files(struct cpu_cache *c, struct err *e)
{
    bool direct;

    c->stats.direct = true;
    for (int i = 0; i < c->n_file; i++) {
        if (io_reads_file(&c->file[i].fd, &direct, c->file[i].path, &c->file[i].map.id, e))
            return e->code;
        c->stats.direct &= direct;
    }
    return io_reads_open(&c->reads, e);
}

enum err_code cpu_cache_open(void *ctx, size_t bytes, struct err *e)
{
    struct cpu *d = ctx;
    struct cpu_cache *c = d->cache;
    int64_t n;

    lay_slots(c);
    n = (int64_t)bytes / c->bytes;
    if (n < 1)
        return err_set(e, ERR_LIMIT, "--expert-cache: %zu bytes are less than one expert, %lld", bytes,
                       (long long)c->bytes);
    c->n_slot = n < c->n_key ? (int32_t)n : c->n_key;
    c->held = (size_t)c->n_slot * (size_t)c->bytes;
    c->stats.memory = (int64_t)c->held;
    c->stats.slots = c->n_slot;
    c->stats.experts = c->n_key;
    c->newest = c->oldest = -1;
    if (d->dry_run)
        return ERR_OK;
    c->slot_of = malloc((size_t)c->n_key * sizeof *c->slot_of);
    c->keep = calloc((size_t)c->n_key, sizeof *c->keep);
    c->slot = calloc((size_t)c->n_slot, sizeof *c->slot);
    c->memory = mmap(NULL, c->held, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (c->memory == MAP_FAILED)
        c->memory = NULL;
    if (c->slot_of == NULL || c->keep == NULL || c->slot == NULL || c->memory == NULL)
        return err_nomem(e);
#ifdef MADV_HUGEPAGE
    (void)madvise(c->memory, c->held, MADV_HUGEPAGE);
#endif
    for (int32_t i = 0; i < c->n_key; i++)
        c->slot_of[i] = -1;
    return choose_kept(c, e) ? e->code : open_files(c, e);
}

void cpu_cache_close(struct cpu_cache *c)
{
    if (c == NULL)
        return;
    io_reads_close(c->reads);
    for (int i = 0; i < c->n_file; i++) {
        if (c->file[i].fd >= 0)
            close(c->file[i].fd);
        free(c->file[i].path);
    }
    if (c->memory != NULL)
        munmap(c->memory, c->held);
    free(c->file);
    free(c->layer);
    free(c->slot_of);
    free(c->keep);
    free(c->slot);
    free(c);
}

bool cpu_cache_stats(void *ctx, struct io_cache_stats *out)
{
    const struct cpu_cache *c = ((const struct cpu *)ctx)->cache;

    if (c != NULL)
        *out = c->stats;
    return c != NULL;
}

/* ---- the list by last use ---- */

static void leave_list(struct cpu_cache *c, int32_t s)
{
    const struct slot *v = &c->slot[s];

    if (v->newer >= 0)
        c->slot[v->newer].older = v->older;
    else
        c->newest = v->older;
    if (v->older >= 0)
        c->slot[v->older].newer = v->newer;
    else
        c->oldest = v->newer;
}

static void join_list(struct cpu_cache *c, int32_t s, bool as_newest)
{
    struct slot *v = &c->slot[s];

    v->newer = as_newest ? -1 : c->oldest;
    v->older = as_newest ? c->newest : -1;
    if (v->newer >= 0)
        c->slot[v->newer].older = s;
    else
        c->newest = s;
    if (v->older >= 0)
        c->slot[v->older].newer = s;
    else
        c->oldest = s;
}

/* ---- slots ---- */

static void forget(struct cpu_cache *c, struct slot *v)
{
    if (v->key >= 0)
        c->slot_of[v->key] = -1;
    v->key = -1;
}

/* Whether its reads are done; what failed is forgotten. */
static bool settled(struct cpu_cache *c, struct slot *v)
{
    if (v->reading && io_reads_left(&v->left) > 0)
        return false;
    v->reading = false;
    if (v->error != 0) {
        forget(c, v);
        if (v->kept)
            join_list(c, (int32_t)(v - c->slot), false);
        v->kept = false;
    }
    return true;
}

/* A slot for something else: the one not used for the longest time; -1: all are in use. */
static int32_t take_slot(struct cpu_cache *c)
{
    if (c->n_fresh < c->n_slot) {
        c->slot[c->n_fresh].key = -1;
        return c->n_fresh++;
    }
    for (int32_t s = c->oldest; s >= 0; s = c->slot[s].newer)
        if (!c->slot[s].in_use && settled(c, &c->slot[s])) {
            leave_list(c, s);
            forget(c, &c->slot[s]);
            return s;
        }
    return -1;
}

static int cuts_of(const struct part *p)
{
    const int64_t n = (p->bytes + CUT_BYTES - 1) / CUT_BYTES;

    return n < CUTS ? (int)n : CUTS;
}

/* Asks for a matrix, in pieces of whole pages. */
static void ask_part(struct cpu_cache *c, struct slot *v, int which, const struct part *p, int32_t expert)
{
    const int64_t at = p->first + expert * p->apart, page = at / IO_READS_ALIGN * IO_READS_ALIGN;
    const int64_t all = at + p->bytes - page, slot = v - c->slot;
    const int n = cuts_of(p);
    const int64_t each = n > 0 ? up_to_page((all + n - 1) / n) : 0;

    for (int i = 0; i < n; i++) {
        const int64_t from = i * each, end = i == n - 1 ? all : from + each;

        v->read[which][i] = (struct io_read){ .fd = c->file[p->file].fd,
                                              .at = page + from,
                                              .to = c->memory + slot * c->bytes + c->part_at[which] + from,
                                              .n = (size_t)(up_to_page(end) - from),
                                              .least = (size_t)(end - from),
                                              .error = &v->error,
                                              .left = &v->left };
        io_reads_ask(c->reads, &v->read[which][i]);
    }
}

/* Asks for an expert; false: there is no slot. */
static bool ask(struct cpu_cache *c, const struct layer *l, int32_t expert, bool as_newest)
{
    const int32_t s = take_slot(c), key = l->key + expert;
    struct slot *v;
    int n = 0;

    if (s < 0)
        return false;
    v = &c->slot[s];
    v->key = key;
    v->kept = c->keep[key];
    v->reading = true;
    v->error = 0;
    c->slot_of[key] = s;
    if (!v->kept)
        join_list(c, s, as_newest);
    for (int i = 0; i < CPU_PARTS; i++)
        n += cuts_of(&l->part[i]);
    v->left = n;
    for (int i = 0; i < CPU_PARTS; i++) {
        ask_part(c, v, i, &l->part[i], expert);
        c->stats.bytes += (uint64_t)l->part[i].bytes;
    }
    c->stats.reads++;
    return true;
}

/* ---- a layer of a step ---- */

/* Someone who writes a model file over would give experts of two models. */
static enum err_code check_files(const struct cpu_cache *c, struct err *e)
{
    struct io_id now;

    for (int i = 0; i < c->n_file; i++)
        if (!io_identify(c->file[i].fd, &now) || memcmp(&now, &c->file[i].map.id, sizeof now) != 0)
            return err_set(e, ERR_FORMAT, "%s: file changed or was cut while it was in use", c->file[i].path);
    return ERR_OK;
}

/* Asks for more of those that are not in memory. */
static void ask_more(struct cpu_uses *u)
{
    struct cpu_cache *c = u->cache;
    const struct layer *l = &c->layer[u->layer - 1];

    for (; u->next < u->n; u->next++) {
        struct cpu_use *v = &u->use[u->next];

        if (v->state != CPU_USE_WANTED)
            continue;
        if (!ask(c, l, v->expert, u->stays))
            return;
        v->slot = c->slot_of[l->key + v->expert];
        v->state = CPU_USE_ASKED;
        c->slot[v->slot].in_use = true;
    }
}

enum err_code cpu_cache_use(struct cpu_uses *u, struct err *e)
{
    struct cpu_cache *c = u->cache;
    const struct layer *l = &c->layer[u->layer - 1];

    if (check_files(c, e))
        return e->code;
    u->next = 0;
    u->left = u->n;
    u->stays = (int64_t)u->n * c->n_layer <= c->n_slot;
    for (int32_t i = 0; i < u->n; i++) {
        struct cpu_use *v = &u->use[i];
        const int32_t s = c->slot_of[l->key + v->expert];

        v->state = CPU_USE_WANTED;
        if (s < 0 || (settled(c, &c->slot[s]) && c->slot[s].key < 0))
            continue;
        v->slot = s;
        v->state = CPU_USE_ASKED;
        c->slot[s].in_use = true;
        c->stats.hits++;
        if (!c->slot[s].kept) {
            leave_list(c, s);
            join_list(c, s, true);
        }
    }
    ask_more(u);
    return ERR_OK;
}

static void read_error(const struct cpu_uses *u, int32_t expert, int error, struct err *e)
{
    const struct layer *l = &u->cache->layer[u->layer - 1];
    const char *path = u->cache->file[l->part[CPU_PARTS - 1].file].path;

    if (error < 0)
        err_set(e, ERR_FORMAT, "%s: file changed or was cut while it was in use", path);
    else
        err_errno(e, ERR_IO, error, "%s: cannot read expert %d of layer %d", path, expert, u->layer - 1);
}

/* Those that were given before are computed. */
static void release_given(struct cpu_uses *u)
{
    for (int32_t i = 0; i < u->n; i++)
        if (u->use[i].state == CPU_USE_GIVEN) {
            u->cache->slot[u->use[i].slot].in_use = false;
            u->use[i].state = CPU_USE_DONE;
            u->left--;
        }
}

/* Those that are there now; -1: a read failed. */
static int32_t give_ready(struct cpu_uses *u, int32_t *ready, const void **at, struct err *e)
{
    struct cpu_cache *c = u->cache;
    const struct layer *l = &c->layer[u->layer - 1];
    int32_t n = 0;

    for (int32_t i = 0; i < u->n; i++) {
        struct cpu_use *v = &u->use[i];

        if (v->state != CPU_USE_ASKED || !settled(c, &c->slot[v->slot]))
            continue;
        if (c->slot[v->slot].error != 0) {
            read_error(u, v->expert, c->slot[v->slot].error, e);
            return -1;
        }
        for (int k = 0; k < CPU_PARTS; k++)
            at[CPU_PARTS * n + k] = c->memory + v->slot * c->bytes + c->part_at[k] +
                                    (l->part[k].first + v->expert * l->part[k].apart) % IO_READS_ALIGN;
        ready[n++] = i;
        v->state = CPU_USE_GIVEN;
    }
    return n;
}

int32_t cpu_cache_some(struct cpu_uses *u, int32_t *ready, const void **at, const struct cpu *d, struct err *e)
{
    struct cpu_cache *c = u->cache;
    uint64_t seen = io_reads_seen(c->reads);
    int64_t from = 0;
    int32_t n = 0;

    release_given(u);
    ask_more(u);
    while (u->left > 0 && (n = give_ready(u, ready, at, e)) == 0 && !cpu_stopped(d)) {
        from = from > 0 ? from : clock_ns();
        seen = io_reads_wait(c->reads, seen);
    }
    if (from > 0)
        c->stats.wait_ns += (uint64_t)(clock_ns() - from);
    return n < 0 ? 0 : n;
}

/* Where a layer uses nearly all of its experts, so does the next one. They are read while what lies between is
 * computed. */
static void read_ahead(struct cpu_cache *c, const struct cpu_uses *u)
{
    const struct layer *now = &c->layer[u->layer - 1], *l = &c->layer[u->layer % c->n_layer];
    int32_t n = c->n_slot / 4 < AHEAD ? c->n_slot / 4 : AHEAD;

    if ((int64_t)u->n * 10 < (int64_t)now->n_expert * 9)
        return;
    for (int32_t i = 0; i < l->n_expert && n > 0; i++) {
        if (c->slot_of[l->key + i] >= 0)
            continue;
        if (!ask(c, l, i, u->stays))
            return;
        c->stats.ahead++;
        n--;
    }
}

void cpu_cache_used(struct cpu_uses *u)
{
    for (int32_t i = 0; i < u->n; i++)
        if (u->use[i].state == CPU_USE_ASKED || u->use[i].state == CPU_USE_GIVEN)
            u->cache->slot[u->use[i].slot].in_use = false;
    if (u->left == 0)
        read_ahead(u->cache, u);
}
