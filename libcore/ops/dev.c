/* SPDX-License-Identifier: Apache-2.0 */
/* dev.c - devices: opening by name, memory, scratch, steps, timings.               room: ops */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/context.h"
#include "ops/internal.h"

static const char *const op_names[DEV_OP_N] = {
#define X(name) #name,
    DEV_OPS(X)
#undef X
};

static const struct {
    const char *name;
    dev_opener *open;
} devs[] = {
#define DEV(name) { #name, name##_dev_open },
#include "ops/devs.def"
#undef DEV
};

static enum err_code keep_if_open(struct dev **out, struct dev *d, enum err_code code)
{
    if (code == ERR_OK)
        *out = d;
    else
        free(d);
    return code;
}

static enum err_code open_one(struct dev **out, size_t i, int unit, const struct dev_opts *o, struct err *e)
{
    struct dev *d = calloc(1, sizeof *d);

    if (d == NULL)
        return err_nomem(e);
    (void)snprintf(d->name, sizeof d->name, "%s", devs[i].name);
    d->unit = unit;
    return keep_if_open(out, d, devs[i].open(&d->impl, d, o, e));
}

/* The first device that opens, the last of the list first: the CPU is the first row and always opens. */
static enum err_code open_any(struct dev **out, const struct dev_opts *o, struct err *e)
{
    enum err_code code = ERR_ARG;

    for (size_t i = sizeof devs / sizeof devs[0]; code != ERR_OK && i-- > 0;)
        code = open_one(out, i, 0, o, e);
    return code;
}

/* Says which names there are. */
static enum err_code no_such_device(const char *name, struct err *e)
{
    char names[128] = "";

    for (size_t i = 0, n = 0; i < sizeof devs / sizeof devs[0] && n < sizeof names; i++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s, ", devs[i].name);
#ifdef CHIMERE_CUDA
    return err_set(e, ERR_ARG, "no device named '%s'; there are %sauto (a GPU where there is one)", name, names);
#else
    return err_set(e, ERR_ARG, "no device named '%s'; there are %sauto; this program was built without CUDA", name,
                   names);
#endif
}

/* N of ":N", 0 of nothing, -1 of anything else. */
static int unit_of(const char *s)
{
    int n = 0;

    if (*s == '\0')
        return 0;
    if (*s++ != ':' || *s == '\0')
        return -1;
    for (; *s >= '0' && *s <= '9' && n < 1000; s++)
        n = 10 * n + (*s - '0');
    return *s == '\0' ? n : -1;
}

static enum err_code open_check(struct dev **out, const char *name, const struct dev_opts *o, struct err *e)
{
    struct dev *d = calloc(1, sizeof *d);

    if (d == NULL)
        return err_nomem(e);
    (void)snprintf(d->name, sizeof d->name, "check:%.16s", name);
    enum err_code code = strncmp(name, "check:", 6) == 0 ? err_set(e, ERR_ARG, "no device named '%s'", name)
                                                         : dev_check_open(&d->impl, name, o, e);
    return keep_if_open(out, d, code);
}

/* Dry runs of a GPU that this program has no code for. */
static enum err_code open_absent(struct dev **out, const char *name, struct err *e)
{
    struct dev *d = calloc(1, sizeof *d);

    if (d == NULL)
        return err_nomem(e);
    (void)snprintf(d->name, sizeof d->name, "%s", name);
    return keep_if_open(out, d, dev_absent_open(&d->impl, e));
}

static enum err_code check_one_name(const char *name, struct err *e)
{
    const char *const of = strncmp(name, "check:", 6) == 0 ? name + 6 : name;

    if (strcmp(of, "auto") == 0 || strcmp(of, "absent") == 0 || (strncmp(of, "cuda", 4) == 0 && unit_of(of + 4) >= 0))
        return ERR_OK;
    for (size_t i = 0; i < sizeof devs / sizeof devs[0]; i++) {
        const size_t n = strlen(devs[i].name);

        if (strncmp(of, devs[i].name, n) != 0 || unit_of(of + n) < 0)
            continue;
        return i > 0 || of[n] == '\0' ? ERR_OK : err_set(e, ERR_ARG, "%s: there is one device cpu", name);
    }
    return no_such_device(of, e);
}

/* Letters of a name before ":N": those of one kind have the same. */
static size_t kind_letters(const char *name)
{
    return strncmp(name, "check:", 6) == 0 ? 6 + strcspn(name + 6, ":") : strcspn(name, ":");
}

static bool same_kind(const char *a, const char *b)
{
    return kind_letters(a) == kind_letters(b) && strncmp(a, b, kind_letters(a)) == 0;
}

/* Cuts "A,B" into names, which are not checked. */
static enum err_code cut_names(struct dev_list *out, const char *names, struct err *e)
{
    for (const char *at = names;; at++) {
        const size_t n = strcspn(at, ",");

        if (out->n == DEV_LIST_MAX)
            return err_set(e, ERR_ARG, "%s: more than %d devices", names, DEV_LIST_MAX);
        if (n == 0 && (at != names || at[n] == ','))
            return err_set(e, ERR_ARG, "%s: a name is missing beside a comma", names);
        if (n >= DEV_NAME_BYTES)
            return no_such_device(at, e);
        memcpy(out->name[out->n], at, n);
        out->name[out->n++][n] = '\0';
        at += n;
        if (*at == '\0')
            return ERR_OK;
    }
}

enum err_code dev_check_name(const char *names, struct err *e)
{
    struct dev_list l = { 0 };

    if (strcmp(names, "cuda:all") == 0)
        return ERR_OK;
    if (cut_names(&l, names, e))
        return e->code;
    for (int i = 0; i < l.n; i++) {
        if (l.n > 1 && (strcmp(l.name[i], "auto") == 0 || strcmp(l.name[i], "cuda:all") == 0))
            return err_set(e, ERR_ARG, "%s: %s stands alone", names, l.name[i]);
        if (check_one_name(l.name[i], e))
            return e->code;
        if (!same_kind(l.name[0], l.name[i]))
            return err_set(e, ERR_ARG, "%s: the devices of a model are of one kind, and %s is another", names,
                           l.name[i]);
    }
    return ERR_OK;
}

static enum err_code list_gpus(struct dev_list *out, struct err *e)
{
    struct dev *d;

    out->n = 0;
    for (int i = 0; i < DEV_LIST_MAX; i++) {
        (void)snprintf(out->name[i], sizeof out->name[i], "cuda:%d", i);
        if (dev_open(&d, out->name[i], &(struct dev_opts){ .dry_run = true }, e) != ERR_OK)
            return i > 0 && e->code == ERR_ARG ? ERR_OK : e->code;
        dev_close(d);
        out->n++;
    }
    return ERR_OK;
}

enum err_code dev_list_parse(struct dev_list *out, const char *names, struct err *e)
{
    struct dev_list l = { 0 };
    const bool all = strcmp(names, "cuda:all") == 0;

    if (dev_check_name(names, e) || (all ? list_gpus(&l, e) : cut_names(&l, names, e)))
        return e->code;
    *out = l;
    return ERR_OK;
}

enum err_code dev_open(struct dev **out, const char *name, const struct dev_opts *o, struct err *e)
{
    if (strchr(name, ',') != NULL)
        return err_set(e, ERR_ARG, "%s: one device is used here, not several", name);
    if (strncmp(name, "check:", 6) == 0)
        return open_check(out, name + 6, o, e);
    if (strcmp(name, "auto") == 0)
        return open_any(out, o, e);
    for (size_t i = 0; i < sizeof devs / sizeof devs[0]; i++) {
        size_t n = strlen(devs[i].name);

        if (strncmp(devs[i].name, name, n) != 0)
            continue;
        int unit = unit_of(name + n);
        if (unit >= 0)
            return open_one(out, i, unit, o, e);
    }
    if (strcmp(name, "absent") == 0 && o->dry_run && o->absent)
        return open_absent(out, name, e);
#ifndef CHIMERE_CUDA
    if (strncmp(name, "cuda", 4) == 0 && unit_of(name + 4) >= 0)
        return o->dry_run && o->absent
                   ? open_absent(out, "cuda", e)
                   : err_set(e, ERR_DEVICE, "device '%s': this program was built without CUDA", name);
#endif
    return no_such_device(name, e);
}

void dev_close(struct dev *d)
{
    if (d == NULL)
        return;
    dev_free(d, d->scratch, d->cap);
    d->impl.table->close(d->impl.ctx);
    free(d);
}

const char *dev_name(const struct dev *d)
{
    return d->name;
}

int dev_unit(const struct dev *d)
{
    return d->unit;
}

void *dev_context(const struct dev *d)
{
    return d->impl.ctx;
}

int dev_threads(const struct dev *d)
{
    return d->impl.table->threads(d->impl.ctx);
}

const char *dev_simd(const struct dev *d)
{
    return d->impl.table->simd(d->impl.ctx);
}

const void *dev_weights(struct dev *d, const void *host, size_t n)
{
    return d->impl.table->weights(d->impl.ctx, host, n);
}

const void *dev_weights_rows(struct dev *d, const void *host, size_t n)
{
    const struct dev_table *t = d->impl.table;

    return (t->weights_rows != NULL ? t->weights_rows : t->weights)(d->impl.ctx, host, n);
}

const void *dev_weights_some(struct dev *d, const void *host, size_t piece_bytes, int64_t n, const bool *keep)
{
    return d->impl.table->weights_some(d->impl.ctx, host, piece_bytes, n, keep);
}

const void *dev_weights_pieces(struct dev *d, const struct dev_pieces *v)
{
    const struct dev_table *t = d->impl.table;

    if (t->weights_pieces != NULL)
        return t->weights_pieces(d->impl.ctx, v);
    return v->keep == NULL ? dev_weights(d, v->host, v->bytes * (size_t)v->n)
                           : dev_weights_some(d, v->host, v->bytes, v->n, v->keep);
}

const void *dev_weights_copy(struct dev *d, const struct dev_pieces *v, bool *laid)
{
    const struct dev_table *t = d->impl.table;

    *laid = false;
    if (t->weights_copy != NULL)
        return t->weights_copy(d->impl.ctx, v, laid);
    return dev_weights_pieces(d, v);
}

bool dev_reserve_weights(struct dev *d, size_t n)
{
    return d->impl.table->reserve_weights == NULL || d->impl.table->reserve_weights(d->impl.ctx, n);
}

int dev_cache_layer(struct dev *d, const struct dev_cached *l)
{
    return d->impl.table->cache_layer != NULL ? d->impl.table->cache_layer(d->impl.ctx, l) : 0;
}

enum err_code dev_cache_open(struct dev *d, size_t bytes, struct err *e)
{
    return d->impl.table->cache_open(d->impl.ctx, bytes, e);
}

bool dev_cache_stats(const struct dev *d, struct io_cache_stats *out)
{
    return d->impl.table->cache_stats != NULL && d->impl.table->cache_stats(d->impl.ctx, out);
}

size_t dev_held(const struct dev *d)
{
    return d->impl.table->held(d->impl.ctx);
}

struct dev_memory dev_memory(const struct dev *d)
{
    return d->impl.table->memory(d->impl.ctx);
}

bool dev_is_host(const struct dev *d)
{
    return d->impl.table->is_host;
}

bool dev_adapts(const struct dev *d)
{
    return d->impl.table->adapt != NULL;
}

void *dev_alloc(struct dev *d, size_t n)
{
    return d->impl.table->alloc(d->impl.ctx, n);
}

void *dev_alloc_areas(struct dev *d, const struct dev_area *a, int n)
{
    size_t all = 0;

    if (d->impl.table->alloc_areas != NULL)
        return d->impl.table->alloc_areas(d->impl.ctx, a, n);
    for (int i = 0; i < n; i++)
        all += a[i].bytes;
    return dev_alloc(d, all);
}

void dev_free(struct dev *d, void *p, size_t n)
{
    if (p != NULL)
        d->impl.table->free(d->impl.ctx, p, n);
}

void dev_zero(struct dev *d, void *p, size_t n)
{
    d->impl.table->zero(d->impl.ctx, p, n);
}

void dev_copy(struct dev *d, void *to, const void *from, size_t n)
{
    d->impl.table->copy(d->impl.ctx, to, from, n);
}

void dev_pass(struct dev *from, struct dev *to, struct tensor y, struct tensor x)
{
    assert(from->impl.table == to->impl.table && x.stride == x.ne[0] && y.stride == y.ne[0] && x.ne[0] == y.ne[0] &&
           x.ne[1] == y.ne[1]);
    if (from->impl.table->pass != NULL)
        from->impl.table->pass(from->impl.ctx, to->impl.ctx, y, x);
    else if (!from->measuring)
        dev_copy(to, y.data, x.data, (size_t)(x.ne[0] * x.ne[1]) * sizeof(float));
}

void dev_fetch(struct dev *d, void *to, const void *from, size_t n)
{
    const struct dev_table *t = d->impl.table;

    if (!d->measuring)
        (t->fetch != NULL ? t->fetch : t->copy)(d->impl.ctx, to, from, n);
}

enum err_code dev_reserve(struct dev *d, size_t scratch_bytes, struct err *e)
{
    void *p;

    if (d->impl.table->reserve != NULL && !d->impl.table->reserve(d->impl.ctx))
        return err_set(e, ERR_NOMEM, "out of memory: working memory of device %s", d->name);
    if (scratch_bytes <= d->cap)
        return ERR_OK;
    p = dev_alloc(d, scratch_bytes);
    if (p == NULL)
        return err_set(e, ERR_NOMEM, "out of memory: %zu bytes of scratch", scratch_bytes);
    dev_free(d, d->scratch, d->cap);
    d->scratch = p;
    d->cap = scratch_bytes;
    return ERR_OK;
}

static void set_used(struct dev *d, size_t n)
{
    d->used = n;
    if (d->impl.table->released != NULL)
        d->impl.table->released(d->impl.ctx, n);
}

void dev_measure(struct dev *d, bool on)
{
    d->measuring = on;
    set_used(d, 0);
    if (d->impl.table->measure != NULL)
        d->impl.table->measure(d->impl.ctx, on);
}

size_t dev_scratch_peak(const struct dev *d)
{
    return d->peak;
}

void dev_begin(struct dev *d)
{
    set_used(d, 0);
    if (!d->measuring && d->impl.table->begin != NULL)
        d->impl.table->begin(d->impl.ctx);
}

bool dev_records(const struct dev *d)
{
    return d->impl.table->submit != NULL;
}

void dev_submit(struct dev *d)
{
    if (!d->measuring && d->impl.table->submit != NULL)
        d->impl.table->submit(d->impl.ctx);
}

enum err_code dev_end(struct dev *d, struct err *e)
{
    return d->impl.table->end != NULL ? d->impl.table->end(d->impl.ctx, e) : ERR_OK;
}

enum err_code dev_leave(struct dev *d, struct err *e)
{
    if (d->impl.table->leave == NULL)
        return dev_end(d, e);
    d->impl.table->leave(d->impl.ctx);
    return ERR_OK;
}

enum err_code dev_lanes(struct dev *d, int n, struct err *e)
{
    if (d->impl.table->lanes == NULL || d->impl.table->lanes(d->impl.ctx, n))
        return ERR_OK;
    return err_set(e, ERR_NOMEM, "out of memory: %d steps under way on device %s", n, d->name);
}

void dev_begin_in(struct dev *d, int lane)
{
    if (d->impl.table->begin_in == NULL) {
        dev_begin(d);
        return;
    }
    set_used(d, 0);
    d->impl.table->begin_in(d->impl.ctx, lane);
}

enum err_code dev_launch(struct dev *d, struct err *e)
{
    return d->impl.table->launch != NULL ? d->impl.table->launch(d->impl.ctx, e) : dev_end(d, e);
}

enum err_code dev_land(struct dev *d, int lane, struct err *e)
{
    return d->impl.table->land != NULL ? d->impl.table->land(d->impl.ctx, lane, e) : ERR_OK;
}

void *dev_scratch_bytes(struct dev *d, size_t n)
{
    size_t at = d->used;

    d->used += dev_aligned(n);
    if (d->peak < d->used)
        d->peak = d->used;
    if (d->measuring && d->impl.table->released == NULL)
        return NULL;
    assert(d->measuring || d->used <= d->cap);
    return dev_scratch_at(d, at);
}

struct tensor dev_scratch(struct dev *d, int64_t ne0, int64_t ne1)
{
    return (struct tensor){
        .type = QUANT_f32,
        .ne = { ne0, ne1, 1 },
        .stride = ne0,
        .data = dev_scratch_bytes(d, (size_t)ne0 * (size_t)ne1 * sizeof(float)),
    };
}

size_t dev_mark(const struct dev *d)
{
    return d->used;
}

void dev_release(struct dev *d, size_t mark)
{
    assert(mark <= d->used);
    set_used(d, mark);
}

void dev_may_stop(struct dev *d, bool (*stop)(void))
{
    if (d->impl.table->may_stop != NULL)
        d->impl.table->may_stop(d->impl.ctx, stop);
}

bool dev_stopped(struct dev *d)
{
    return d->impl.table->stopped != NULL && d->impl.table->stopped(d->impl.ctx);
}

void dev_awake(struct dev *d, bool on)
{
    if (d->impl.table->awake != NULL)
        d->impl.table->awake(d->impl.ctx, on);
}

void dev_time(struct dev *d, bool on)
{
    for (int i = 0; i < DEV_OP_N && on; i++)
        d->time[i] = (struct dev_timing){ .op = op_names[i] };
    d->timing = on;
    if (d->impl.table->time != NULL)
        d->impl.table->time(d->impl.ctx, on);
}

int dev_timings(const struct dev *d, struct dev_timing *out, int max)
{
    int n = 0;

    for (int i = 0; i < DEV_OP_N && n < max; i++) {
        if (d->time[i].calls == 0)
            continue;
        out[n] = d->time[i];
        if (d->impl.table->time_ns != NULL)
            out[n].ns = d->impl.table->time_ns(d->impl.ctx, (enum dev_op)i);
        n++;
    }
    return n;
}

uint64_t dev_graphs(const struct dev *d)
{
    return d->impl.table->graphs != NULL ? d->impl.table->graphs(d->impl.ctx) : 0;
}

uint64_t dev_kernels(const struct dev *d)
{
    return d->impl.table->kernels != NULL ? d->impl.table->kernels(d->impl.ctx) : 0;
}

int dev_launched(const struct dev *d, struct dev_launched *out, int max)
{
    return d->impl.table->launched != NULL ? d->impl.table->launched(d->impl.ctx, out, max) : 0;
}

enum err_code dev_read_speed(struct dev *d, size_t n, double *bytes_per_s, int reps, struct err *e)
{
    assert(n > 0 && n % DEV_READ_UNIT == 0);
    return d->impl.table->read_speed(d->impl.ctx, n, bytes_per_s, reps, e);
}

uint64_t dev_read_sum(uint64_t n)
{
    uint64_t sum = 0;

    for (uint64_t i = 0; i < n; i++)
        sum ^= i * DEV_READ_WORD;
    return sum;
}

#ifdef CHIMERE_TEST
struct dev_impl *dev_test_impl(struct dev *d)
{
    return &d->impl;
}
#endif
