/* SPDX-License-Identifier: Apache-2.0 */
/* devices.c - the devices of a model, and which of them has which layers. */
#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "gguf/gguf.h"
#include "model/forward.h"
#include "model/internal.h"

_Static_assert((int)MODEL_DEVS_MAX == (int)DEV_LIST_MAX, "devices of a list");

static enum err_code open_dev(struct dev **out, const char *name, const struct model_opts *o, struct err *e)
{
    const struct dev_opts dev_opts = {
        .n_threads = o->n_threads, .acts = o->acts, .dry_run = o->placement.dry_run, .absent = o->placement.absent
    };

    return dev_open(out, name, &dev_opts, e);
}

enum err_code model_one_dev(struct dev **out, const struct model_opts *o, struct err *e)
{
    struct dev_list l;

    return dev_list_parse(&l, o->device == NULL ? "cpu" : o->device, e) ? e->code : open_dev(out, l.name[0], o, e);
}

/* A layer that reads the keys and values of another one is where that is. */
bool model_may_cut(const struct arch_plan *p, int layer)
{
    for (int i = layer; i < p->n_layer; i++)
        if (p->reach[i].kv_from > 0 && p->reach[i].kv_from - 1 < layer)
            return false;
    return true;
}

enum err_code model_cut(int *first, const struct arch_plan *p, int n_dev, const double *share, struct err *e)
{
    int may[ARCH_LAYERS_MAX], n = 0, at = -1;
    double all = 0, sum = 0;

    for (int i = 1; i < p->n_layer; i++)
        if (model_may_cut(p, i))
            may[n++] = i;
    if (n < n_dev - 1)
        return err_set(e, ERR_ARG, "%d devices: the model's %d layers can be cut in %d ranges at most", n_dev,
                       p->n_layer, n + 1);
    for (int d = 0; d < n_dev; d++)
        all += share != NULL ? share[d] : 1;
    first[0] = 0;
    first[n_dev] = p->n_layer;
    for (int d = 1; d < n_dev; d++) { /* the place nearest to the share that leaves one for each device to come */
        sum += share != NULL ? share[d - 1] : 1;
        const double want = sum / all * p->n_layer;
        int best = at + 1;

        for (int i = best; i <= n - (n_dev - d); i++)
            best = fabs(may[i] - want) < fabs(may[best] - want) ? i : best;
        at = best;
        first[d] = may[at];
    }
    return ERR_OK;
}

/* Ranges that a plan gave, or even ones. */
static enum err_code share_layers(struct model *m, const int *first, struct err *e)
{
    m->on = arena_array(&m->arena, (size_t)m->plan.n_layer, sizeof *m->on);
    if (m->on == NULL)
        return err_nomem(e);
    if (first == NULL) {
        if (model_cut(m->first, &m->plan, m->n_dev, NULL, e))
            return e->code;
    } else {
        memcpy(m->first, first, (size_t)m->n_dev * sizeof *first);
        m->first[m->n_dev] = m->plan.n_layer;
    }
    for (int d = 0; d < m->n_dev; d++) {
        if (m->first[d] < 0 || m->first[d + 1] <= m->first[d] || m->first[d + 1] > m->plan.n_layer ||
            (d > 0 && !model_may_cut(&m->plan, m->first[d])))
            return err_set(e, ERR_ARG, "device %d of %d cannot begin with layer %d of %d", d + 1, m->n_dev, m->first[d],
                           m->plan.n_layer);
        memset(m->on + m->first[d], d, (size_t)(m->first[d + 1] - m->first[d]));
    }
    return ERR_OK;
}

/* How many devices can share a layer's heads: those of keys, or of queries where there is one head of keys. A single
 * head they all compute. */
static int fewest_heads(const struct arch_plan *p, int layer)
{
    const struct {
        unsigned mixers;
        int heads;
    } of[] = {
        { MIX_ATTN | MIX_MLA, p->attn.n_head_kv > 1 ? p->attn.n_head_kv : p->attn.n_head },
        { MIX_GDN, p->gdn.n_k },
        { MIX_KDA, p->gdn.n_v },
        { MIX_SSM2, p->ssm.n_group > 1 ? p->ssm.n_group : p->ssm.n_head },
    };
    int n = INT_MAX;

    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (p->layer[layer].mixers & of[i].mixers && of[i].heads > 1 && of[i].heads < n)
            n = of[i].heads;
    return n;
}

/* One device of all that are named, with a part of every layer each. */
static enum err_code open_rows(struct model *m, const struct dev_list *l, const struct model_opts *o, struct err *e)
{
    const struct dev_opts dev_opts = {
        .n_threads = o->n_threads, .acts = o->acts, .dry_run = o->placement.dry_run, .absent = o->placement.absent
    };

    for (int i = 0; i < m->plan.n_layer; i++)
        if (fewest_heads(&m->plan, i) < l->n)
            return err_set(e, ERR_ARG, "--split rows: %d devices cannot share every layer: layer %d has %d heads", l->n,
                           i, fewest_heads(&m->plan, i));
    if (dev_open_rows(&m->part[0], l, &dev_opts, e))
        return e->code;
    m->n_dev = 1;
    return ERR_OK;
}

enum err_code model_open_devices(struct model *m, const struct model_opts *o, struct err *e)
{
    const struct model_placement *p = &o->placement;
    struct dev_list l;
    bool split = false;

    for (int i = 0; p->experts != NULL && i < p->experts->n_layer; i++)
        split |= m->plan.layer[i].ffn == FFN_MOE && p->experts->n_here[i] < p->experts->n_expert;
    if (dev_list_parse(&l, o->device == NULL ? "cpu" : o->device, e))
        return e->code;
    for (size_t at = 0, i = 0; i < (size_t)l.n && l.n > 1; i++)
        at += (size_t)snprintf(m->names + at, sizeof m->names - at, "%s%s", i > 0 ? "," : "", l.name[i]);
    if (p->rows && l.n > 1) {
        if (open_rows(m, &l, o, e))
            return e->code;
    } else {
        for (; m->n_dev < l.n; m->n_dev++)
            if (open_dev(&m->part[m->n_dev], l.name[m->n_dev], o, e))
                return e->code;
    }
    m->dev = m->part[m->n_dev - 1];
    if (share_layers(m, p->first, e) || (split && open_dev(&m->host, "cpu", o, e)))
        return e->code;
    for (int i = 0; p->weight_bytes != NULL && i < m->n_dev; i++)
        if (p->weight_bytes[i] > 0 && !dev_reserve_weights(m->part[i], (size_t)p->weight_bytes[i]))
            return err_set(e, ERR_NOMEM, "out of memory: %.2f GB of weights do not fit device %s",
                           (double)p->weight_bytes[i] / 1e9, l.name[i]);
    return ERR_OK;
}

void model_begin(const struct model *m, int lane)
{
    assert(lane == 0 || m->host == NULL);
    for (int i = 0; i < m->n_dev; i++)
        if (lane == 0)
            dev_begin(m->part[i]);
        else
            dev_begin_in(m->part[i], lane);
    if (m->host != NULL)
        dev_begin(m->host);
}

enum ending { END, LAUNCH, LAND };

/* All devices do it, also after one that failed. The last one is waited for first, as it has the answer, and only then
 * the others know what became of their part. */
static enum err_code each_ends(const struct model *m, enum ending how, int lane, struct err *e)
{
    enum err_code code = ERR_OK;

    for (int k = 0; k < m->n_dev; k++) {
        const int i = how == LAND ? m->n_dev - 1 - k : k;
        struct dev *d = m->part[i];
        struct err why = { 0 };
        const enum err_code mine = how == END      ? dev_end(d, &why)
                                   : how == LAUNCH ? dev_launch(d, &why)
                                                   : dev_land(d, lane, &why);

        if (mine == ERR_OK || (code != ERR_OK && how != LAND))
            continue;
        code = err_copy(e, &why);
        if (m->n_dev > 1)
            code = err_wrap(e, "device %d of %d", i + 1, m->n_dev);
    }
    return code;
}

enum err_code model_end(const struct model *m, struct err *e)
{
    enum err_code code = each_ends(m, END, 0, e);
    struct err other;

    if (m->host != NULL && dev_end(m->host, code == ERR_OK ? e : &other) != ERR_OK && code == ERR_OK)
        code = e->code; /* experts could not be read */
    return code;
}

enum err_code model_launch(const struct model *m, struct err *e)
{
    return each_ends(m, LAUNCH, 0, e);
}

enum err_code model_land(const struct model *m, int lane, struct err *e)
{
    return each_ends(m, LAND, lane, e);
}

struct dev *model_dev(const struct model *m)
{
    return m->dev;
}

int model_n_devs(const struct model *m)
{
    return m->n_dev;
}

struct dev *model_part(const struct model *m, int i)
{
    return m->part[i];
}

struct state_place model_place(const struct model *m)
{
    return (struct state_place){ m->part, m->n_dev, m->on };
}

const struct model_weights *model_part_weights(const struct model *m, int i)
{
    return &m->bytes_on[i];
}

void model_layer_bytes(const struct model *m, int64_t *bytes)
{
    memset(bytes, 0, (size_t)m->plan.n_layer * sizeof *bytes);
    for (size_t i = 0; i < gguf_n_tensors(m->gguf); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(m->gguf, i);
        int layer;
        char name[64];

        (void)snprintf(name, sizeof name, "%.*s", STR_ARG(t->name));
        if (sscanf(name, "blk.%d.", &layer) == 1 && layer >= 0 && layer < m->plan.n_layer)
            bytes[layer] += (int64_t)t->size_bytes;
    }
}

int64_t model_device_used(const struct model *m)
{
    int64_t used = 0;

    for (int i = 0; i < m->n_dev; i++) {
        const struct dev_memory mem = dev_memory(m->part[i]);

        if (mem.free_bytes < 0)
            return -1;
        used += mem.total_bytes - mem.free_bytes;
    }
    return used;
}

/* Bytes of the counts of a device's layers. */
static size_t uses_bytes(const struct model *m, int dev)
{
    return (size_t)(m->first[dev + 1] - m->first[dev]) * (size_t)m->plan.moe.n_expert * sizeof **m->uses;
}

enum err_code model_count_uses(struct model *m, struct err *e)
{
    for (int i = 0; i < m->n_dev && m->plan.moe.n_expert > 0; i++) {
        m->uses[i] = dev_alloc(m->part[i], uses_bytes(m, i));
        if (m->uses[i] == NULL)
            return err_nomem(e);
    }
    return ERR_OK;
}

void model_close_devices(struct model *m)
{
    for (int i = 0; i < m->n_dev; i++) {
        dev_free(m->part[i], m->uses[i], uses_bytes(m, i));
        dev_close(m->part[i]);
    }
    dev_close(m->host);
}

void model_uses(const struct model *m, uint64_t *out)
{
    for (int i = 0; i < m->n_dev && m->plan.moe.n_expert > 0; i++)
        dev_copy(m->part[i], out + (int64_t)m->first[i] * m->plan.moe.n_expert, m->uses[i], uses_bytes(m, i));
}

void model_forget_uses(struct model *m)
{
    for (int i = 0; i < m->n_dev && m->uses[i] != NULL; i++)
        dev_zero(m->part[i], m->uses[i], uses_bytes(m, i));
}

/* Those of the same operation on several devices are added up. */
int model_timings(const struct model *m, struct model_timing *out, int max)
{
    int n = 0;

    for (int k = 0; k < m->n_dev; k++) {
        struct dev_timing t[64];
        const int n_dev = dev_timings(m->part[k], t, 64);

        for (int i = 0; i < n_dev; i++) {
            int j = 0;

            while (j < n && strcmp(out[j].op, t[i].op) != 0)
                j++;
            if (j == max)
                continue;
            if (j == n)
                out[n++] = (struct model_timing){ t[i].op, 0, 0 };
            out[j].calls += t[i].calls;
            out[j].ns += t[i].ns;
        }
    }
    return n;
}

void model_time(struct model *m, bool on)
{
    for (int i = 0; i < m->n_dev; i++)
        dev_time(m->part[i], on);
}
