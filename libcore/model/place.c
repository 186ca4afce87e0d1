/* SPDX-License-Identifier: Apache-2.0 */
/* place.c - the order in which experts leave the device. */
#include "model/place.h"

#include <stdlib.h>

struct leaving {
    double key;   /* price of a byte */
    double uses;  /* for each token */
    int    layer, expert, rank; /* rank: in its layer */
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
    return x->layer != y->layer ? y->layer - x->layer : x->rank - y->rank;
}

/* Uses of every expert of a layer for each token, and their prices. */
static void price_layer(struct leaving *v, const struct model_place_in *in, int layer)
{
    const uint64_t *uses = in->uses == NULL ? NULL : in->uses + (int64_t)layer * in->n_expert;
    double all = 0, sum = 0, best = 0;
    int n = in->n_expert, first = 0;

    for (int i = 0; uses != NULL && i < n; i++)
        all += (double)uses[i];
    for (int i = 0; i < n; i++) {
        double share = all > 0 ? (double)uses[i] / all : 1.0 / n;

        v[i] = (struct leaving){ .uses = share * in->n_used, .layer = layer, .expert = i };
    }
    qsort(v, (size_t)n, sizeof *v, by_uses);
    for (int k = 1; k <= n; k++) {
        double price;

        sum += v[k - 1].uses;
        price = (MODEL_HAND_OVER + sum) / k;
        if (k == 1 || price <= best) {
            best = price;
            first = k;
        }
    }
    for (int i = 0; i < n; i++) {
        v[i].rank = i;
        v[i].key = (i < first ? best : v[i].uses) / (double)in->layer[layer].expert_bytes;
    }
}

static int64_t layer_bytes(const struct model_place_layer *l, int n_here)
{
    return n_here == 0 ? 0 : l->more_bytes + n_here * l->expert_bytes;
}

static void take_out(struct model_place *p, const struct model_place_in *in, const struct leaving *v)
{
    const struct model_place_layer *l = &in->layer[v->layer];
    int *n = &p->n_here[v->layer];

    p->device_bytes -= layer_bytes(l, *n) - layer_bytes(l, *n - 1);
    (*n)--;
    p->here[(int64_t)v->layer * p->n_expert + v->expert] = false;
    p->host_uses[v->layer] += v->uses;
}

enum err_code model_place_make(struct model_place **out, const struct model_place_in *in, struct err *e)
{
    size_t n = (size_t)in->n_layer * (size_t)in->n_expert, n_left = 0;
    struct model_place *p = calloc(1, sizeof *p);
    struct leaving *v = calloc(n + 1, sizeof *v);

    if (p != NULL) {
        *p = (struct model_place){ in->n_layer, in->n_expert, 0, calloc(n + 1, sizeof *p->here),
                                   calloc((size_t)in->n_layer + 1, sizeof *p->n_here),
                                   calloc((size_t)in->n_layer + 1, sizeof *p->host_uses) };
    }
    if (p == NULL || v == NULL || p->here == NULL || p->n_here == NULL || p->host_uses == NULL) {
        free(v);
        model_place_free(p);
        return err_set(e, ERR_NOMEM, "out of memory");
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
    for (size_t i = 0; i < n_left && p->device_bytes > 0 && p->device_bytes > in->room_bytes; i++)
        take_out(p, in, &v[i]);
    free(v);
    *out = p;
    return ERR_OK;
}

void model_place_free(struct model_place *p)
{
    if (p == NULL)
        return;
    free(p->here);
    free(p->n_here);
    free(p->host_uses);
    free(p);
}
