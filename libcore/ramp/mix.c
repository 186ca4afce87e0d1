/* SPDX-License-Identifier: Apache-2.0 */
/* mix.c - the types that lose least under budgets (losses.h).                      room: ramp */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ramp/internal.h"
#include "ramp/losses.h"
#include "ramp/search.h"

/* Tensors that have a choice are the problem's items, types its options. */
struct mixing {
    const struct ramp_mix_ask *a;
    struct ramp_ruled *by;
    int *type;    /* [tensors] of those without a choice; -1: an item */
    size_t *item; /* [items] tensors */
    int *choice;
    int option[QUANT_N];
    double *loss, *cost;
    double limit[RAMP_BUDGETS_MAX];
    struct ramp_problem p;
};

static double bytes_of(const struct gguf_tensor *t, int type, uint32_t pad)
{
    int64_t n = quant_row_bytes(type, t->ne[0]) * t->ne[1] * t->ne[2] * t->ne[3];

    return (double)(pad > 1 ? (n + pad - 1) / pad * pad : n);
}

static double part_of(const struct ramp_budget *b, size_t i)
{
    return b->part != NULL ? b->part[i] : 1;
}

/* A type with a known loss that the tensor can have, of no fewer bits than its floor. */
static double loss_of(const struct mixing *m, size_t i, int type)
{
    const struct gguf_tensor *t = gguf_tensor_at(m->a->g, i);
    int64_t bytes = quant_row_bytes(type, t->ne[0]);

    if (m->by[i].floor >= 0 && bytes < quant_row_bytes(ramp_fitting(m->by[i].floor, t->ne[0]), t->ne[0]))
        return INFINITY;
    if (type == t->type)
        return 0;
    if (bytes < 0 || quant_fitter(type, 0) == NULL || isnan(m->a->losses->kl[i][type]))
        return INFINITY;
    return m->a->losses->kl[i][type];
}

/* What has no choice: kept tensors, those that a rule names, those that nobody measured. */
static enum err_code settle_tensor(struct mixing *m, size_t i, struct err *e)
{
    const struct gguf_tensor *t = gguf_tensor_at(m->a->g, i);

    m->type[i] = -1;
    if (ramp_is_kept(t))
        m->type[i] = t->type;
    else if (m->by[i].type >= 0)
        m->type[i] = ramp_fitting(m->by[i].type, t->ne[0]);
    else if (!m->a->losses->measured[i] && m->a->unseen != NULL)
        m->type[i] = m->a->unseen->v[i].type;
    else if (!m->a->losses->measured[i])
        return err_set(e, ERR_FORMAT, "%.*s: was not measured", STR_ARG(t->name));
    if (m->type[i] >= 0 && m->by[i].floor >= 0) {
        int floor = ramp_fitting(m->by[i].floor, t->ne[0]);

        if (quant_row_bytes(floor, t->ne[0]) > quant_row_bytes(m->type[i], t->ne[0]))
            m->type[i] = floor;
    }
    return m->type[i] >= 0 ? ramp_once(t, m->type[i], m->a->again, e) : ERR_OK;
}

static enum err_code make_problem(struct mixing *m, struct err *e)
{
    const struct ramp_mix_ask *a = m->a;
    const size_t n = a->losses->n;

    for (size_t i = 0; i < n; i++) {
        if (settle_tensor(m, i, e))
            return e->code;
        if (m->type[i] < 0)
            m->item[m->p.n++] = i;
    }
    for (int t = 0; t < QUANT_N; t++) {
        bool any = false;

        for (size_t k = 0; k < m->p.n && !any; k++)
            any = loss_of(m, m->item[k], t) < INFINITY;
        if (any)
            m->option[m->p.options++] = t;
    }
    m->p.budgets = a->n_budgets;
    m->loss = malloc((m->p.n * (size_t)m->p.options + 1) * sizeof *m->loss);
    m->cost = calloc(m->p.n * (size_t)m->p.options * (size_t)m->p.budgets + 1, sizeof *m->cost);
    if (m->loss == NULL || m->cost == NULL)
        return err_nomem(e);
    for (size_t k = 0; k < m->p.n; k++) {
        const struct gguf_tensor *t = gguf_tensor_at(a->g, m->item[k]);
        bool any = false;

        for (int o = 0; o < m->p.options; o++) {
            size_t at = k * (size_t)m->p.options + (size_t)o;

            m->loss[at] = loss_of(m, m->item[k], m->option[o]);
            any |= m->loss[at] < INFINITY;
            for (int b = 0; b < a->n_budgets && m->loss[at] < INFINITY; b++)
                m->cost[at * (size_t)a->n_budgets + (size_t)b] =
                    part_of(&a->budgets[b], m->item[k]) * bytes_of(t, m->option[o], a->budgets[b].pad);
        }
        if (!any)
            return err_set(e, ERR_FORMAT, "%.*s: no measured type has the bits that its floor asks for",
                           STR_ARG(t->name));
    }
    for (int b = 0; b < a->n_budgets; b++) {
        double fixed = a->budgets[b].fixed;

        for (size_t i = 0; i < n; i++)
            if (m->type[i] >= 0)
                fixed += part_of(&a->budgets[b], i) * bytes_of(gguf_tensor_at(a->g, i), m->type[i], a->budgets[b].pad);
        m->limit[b] = a->budgets[b].limit - fixed;
        if (!(m->limit[b] > 0))
            return err_set(e, ERR_LIMIT, "%s: cannot be kept: what is fixed takes %.0f bytes", a->budgets[b].name,
                           fixed);
    }
    m->p.loss = m->loss;
    m->p.cost = m->cost;
    m->p.limit = m->limit;
    return ERR_OK;
}

static enum err_code solve(struct mixing *m, struct ramp_mix *out, struct err *e)
{
    const struct ramp_mix_ask *a = m->a;
    struct ramp_answer answer = { .choice = m->choice };
    int k = 0;
    double least = 0;
    enum err_code rc;

    rc = a->evolve ? ramp_search_evo(&answer, &m->p, a->seed, &a->progress, &k, &least, e)
                   : ramp_search(&answer, &m->p, &k, &least, e);
    if (rc == ERR_LIMIT && least > 0)
        return err_set(e, ERR_LIMIT, "%s: cannot be kept: %.0f bytes are the least", a->budgets[k].name,
                       least - m->limit[k] + a->budgets[k].limit);
    if (rc)
        return rc;
    for (size_t i = 0; i < out->n; i++)
        out->type[i] = m->type[i];
    for (size_t i = 0; i < m->p.n; i++)
        out->type[m->item[i]] = m->option[m->choice[i]];
    out->sum = answer.loss;
    out->bound = answer.bound;
    for (size_t i = 0; i < out->n; i++) /* of those without a choice */
        if (m->type[i] >= 0 && a->losses->measured[i] && a->losses->kl[i][m->type[i]] >= 0) {
            out->sum += a->losses->kl[i][m->type[i]];
            out->bound += answer.bound > 0 ? a->losses->kl[i][m->type[i]] : 0;
        }
    return ERR_OK;
}

enum err_code ramp_mix_open(struct ramp_mix *out, const struct ramp_mix_ask *a, struct err *e)
{
    struct mixing m = { .a = a };
    struct ramp_mix x = { .n = a->losses->n };
    enum err_code rc = ERR_OK;

    m.by = malloc((x.n + 1) * sizeof *m.by);
    m.type = malloc((x.n + 1) * sizeof *m.type);
    m.item = malloc((x.n + 1) * sizeof *m.item);
    m.choice = malloc((x.n + 1) * sizeof *m.choice);
    x.type = malloc((x.n + 1) * sizeof *x.type);
    if (m.by == NULL || m.type == NULL || m.item == NULL || m.choice == NULL || x.type == NULL)
        rc = err_nomem(e);
    if (rc == ERR_OK)
        rc = ramp_rules_apply(m.by, a->rules, a->g, a->importance, e);
    if (rc == ERR_OK)
        rc = make_problem(&m, e);
    if (rc == ERR_OK)
        rc = solve(&m, &x, e);
    free(m.by);
    free(m.type);
    free(m.item);
    free(m.choice);
    free(m.loss);
    free(m.cost);
    if (rc)
        ramp_mix_close(&x);
    else
        *out = x;
    return rc;
}

void ramp_mix_close(struct ramp_mix *m)
{
    free(m->type);
    m->type = NULL;
}

/* A name as an expression that matches it alone: at most 64 bytes, each of which may take four. */
static void quoted(char out[280], struct str name)
{
    size_t n = 0;

    out[n++] = '^';
    for (size_t i = 0; i < name.n && n < 270; i++) {
        if (memchr(" =#", name.p[i], 3) != NULL) { /* a line could not be told apart */
            n += (size_t)snprintf(out + n, 5, "\\x%02x", (unsigned)name.p[i]);
            continue;
        }
        if (memchr("\\^$.[]|()*+?{}", name.p[i], 14) != NULL)
            out[n++] = '\\';
        out[n++] = name.p[i];
    }
    out[n++] = '$';
    out[n] = '\0';
}

char *ramp_mix_text(const struct ramp_mix *m, const struct ramp_mix_ask *a)
{
    const struct gguf *g = a->g;
    const int64_t file_type = a->rules != NULL ? ramp_recipe_file_type(a->rules) : -1;
    size_t room = 64, at = 0;
    char *text;

    for (size_t i = 0; i < m->n; i++)
        room += ramp_is_kept(gguf_tensor_at(g, i)) ? 0 : 400;
    text = calloc(room, 1);
    if (text != NULL) /* as it was measured */
        at += (size_t)snprintf(text, room, "unbiased\n");
    if (text != NULL && file_type >= 0)
        at += (size_t)snprintf(text + at, room - at, "file-type %lld\n", (long long)file_type);
    for (size_t i = 0; text != NULL && i < m->n; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        char name[280], loss[32] = "not measured";
        double kl = m->type[i] == t->type ? 0 : a->losses->kl[i][m->type[i]];

        if (ramp_is_kept(t))
            continue;
        quoted(name, t->name);
        if (!isnan(kl))
            snprintf(loss, sizeof loss, "KL %.2e", kl);
        at += (size_t)snprintf(text + at, room - at, "%-44s = %-8s # %s, %.0f bytes\n", name,
                               quant_types[m->type[i]]->name, loss, bytes_of(t, m->type[i], 0));
    }
    return text;
}
