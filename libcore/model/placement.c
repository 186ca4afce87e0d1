/* SPDX-License-Identifier: Apache-2.0 */
/* placement.c - the order in which experts leave the device. */
#include "model/placement.h"

#include <stdlib.h>

struct leaving {
    double key;              /* price of a byte */
    double uses;             /* for each token */
    int layer, expert, rank; /* rank: in its layer */
};

static int by_uses(const void *a, const void *b)
{
    const struct leaving *x = a, *y = b;

    if (x->uses != y->uses)
        return x->uses < y->uses ? -1 : 1;
    return y->expert - x->expert;
}

static int by_key(const void *a, const void *b)
{
    const struct leaving *x = a, *y = b;

    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->rank != y->rank ? x->rank - y->rank : y->layer - x->layer;
}

/* The n experts of a layer by their uses for each token, the least first. uses: [n_layer][n], or NULL. */
static void sort_layer(struct leaving *v, int n, int n_used, const uint64_t *uses, int layer)
{
    double all = 0;

    uses = uses == NULL ? NULL : uses + (int64_t)layer * n;
    for (int i = 0; uses != NULL && i < n; i++)
        all += (double)uses[i];
    for (int i = 0; i < n; i++) {
        double share = all > 0 ? (double)uses[i] / all : 1.0 / n;

        v[i] = (struct leaving){ .uses = share * n_used, .layer = layer, .expert = i };
    }
    qsort(v, (size_t)n, sizeof *v, by_uses);
}

/* Uses of every expert of a layer for each token, and their prices. */
static void price_layer(struct leaving *v, const struct model_experts_in *in, int layer)
{
    double before = 0;

    sort_layer(v, in->n_expert, in->n_used, in->uses, layer);
    for (int i = 0; i < in->n_expert; i++) {
        v[i].rank = i;
        v[i].key = v[i].uses * (MODEL_FREE + before) / (double)in->layer[layer].expert_bytes;
        before += v[i].uses;
    }
}

static int64_t layer_bytes(const struct model_experts_layer *l, int n_here)
{
    return n_here == 0 ? 0 : l->more_bytes + n_here * l->expert_bytes;
}

static void take_out(struct model_experts *p, const struct model_experts_in *in, const struct leaving *v)
{
    const struct model_experts_layer *l = &in->layer[v->layer];
    int *n = &p->n_here[v->layer];

    p->device_bytes -= layer_bytes(l, *n) - layer_bytes(l, *n - 1);
    (*n)--;
    p->here[(int64_t)v->layer * p->n_expert + v->expert] = false;
    p->host_uses[v->layer] += v->uses;
}

/* Experts of the layers first .. end - 1 leave, in the order of v, until the others fit. */
static void make_room(struct model_experts *p, const struct model_experts_in *in, const struct leaving *v, size_t n,
                      int first, int end, int64_t room)
{
    int64_t bytes = 0;

    for (int i = first; i < end; i++)
        bytes += layer_bytes(&in->layer[i], p->n_here[i]);
    for (size_t i = 0; i < n && bytes > 0 && bytes > room; i++) {
        const int64_t before = p->device_bytes;

        if (v[i].layer < first || v[i].layer >= end)
            continue;
        take_out(p, in, &v[i]);
        bytes -= before - p->device_bytes;
    }
}

enum err_code model_experts_place(struct model_experts **out, const struct model_experts_in *in, struct err *e)
{
    size_t n = (size_t)in->n_layer * (size_t)in->n_expert, n_left = 0;
    struct model_experts *p = calloc(1, sizeof *p);
    struct leaving *v = calloc(n + 1, sizeof *v);

    if (p != NULL) {
        *p = (struct model_experts){ in->n_layer,
                                     in->n_expert,
                                     0,
                                     calloc(n + 1, sizeof *p->here),
                                     calloc((size_t)in->n_layer + 1, sizeof *p->n_here),
                                     calloc((size_t)in->n_layer + 1, sizeof *p->host_uses) };
    }
    if (p == NULL || v == NULL || p->here == NULL || p->n_here == NULL || p->host_uses == NULL) {
        free(v);
        model_experts_free(p);
        return err_nomem(e);
    }
    for (int i = 0; i < in->n_layer; i++) {
        if (in->layer[i].expert_bytes == 0)
            continue;
        price_layer(v + n_left, in, i);
        n_left += (size_t)in->n_expert;
        p->n_here[i] = in->n_expert;
        p->device_bytes += layer_bytes(&in->layer[i], in->n_expert);
        for (int j = 0; j < in->n_expert; j++)
            p->here[(int64_t)i * in->n_expert + j] = true;
    }
    qsort(v, n_left, sizeof *v, by_key);
    if (in->n_dev == 0)
        make_room(p, in, v, n_left, 0, in->n_layer, in->room_bytes);
    for (int k = 0; k < in->n_dev; k++)
        make_room(p, in, v, n_left, k > 0 ? in->end[k - 1] : 0, in->end[k], in->room[k]);
    free(v);
    *out = p;
    return ERR_OK;
}

enum err_code model_experts_choose(struct model_experts *p, int n_used, const uint64_t *uses, struct err *e)
{
    struct leaving *v = calloc((size_t)p->n_expert + 1, sizeof *v);

    if (v == NULL)
        return err_nomem(e);
    for (int l = 0; l < p->n_layer; l++) {
        bool *here = p->here + (int64_t)l * p->n_expert;

        if (p->n_here[l] == 0 || p->n_here[l] == p->n_expert)
            continue;
        sort_layer(v, p->n_expert, n_used, uses, l);
        p->host_uses[l] = 0;
        for (int i = 0; i < p->n_expert; i++) {
            here[v[i].expert] = i >= p->n_expert - p->n_here[l];
            p->host_uses[l] += here[v[i].expert] ? 0 : v[i].uses;
        }
    }
    free(v);
    return ERR_OK;
}

void model_experts_free(struct model_experts *p)
{
    if (p == NULL)
        return;
    free(p->here);
    free(p->n_here);
    free(p->host_uses);
    free(p);
}
