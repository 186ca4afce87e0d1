/* SPDX-License-Identifier: Apache-2.0 */
/* muon.c - Muon: matrices of one shape at a time. */
#include "train/muon.h"

#include <math.h>

#define MOMENTUM 0.95f
#define DECAY    0.02f

/* Matrices of the shape of tensor i, of which it is the first. */
static int64_t same_shapes(const struct train_net *net, int i)
{
    const struct train_tensor *t = &net->tensor[i];
    int64_t n = 0;

    for (int j = 0; j < net->n_tensor; j++) {
        const struct train_tensor *u = &net->tensor[j];
        const bool same = t->n_out > 1 && u->n_out == t->n_out && u->n_in == t->n_in;

        if (same && j < i)
            return 0;
        n += same;
    }
    return n;
}

static int64_t smaller_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* x, y, and twice s of all matrices of a shape. */
int64_t train_muon_bytes(const struct train_net *net)
{
    int64_t most = 0;

    for (int i = 0; i < net->n_tensor; i++) {
        const struct train_tensor *t = &net->tensor[i];
        const int64_t s = smaller_of(t->n_in, t->n_out),
                      floats = same_shapes(net, i) * 2 * (t->n_in * t->n_out + s * s);

        most = floats > most ? floats : most;
    }
    return most * (int64_t)sizeof(float);
}

/* Of n matrices x; they end there. */
static void newton_schulz(struct dev_math *m, int64_t n, int64_t rows, int64_t columns, float *x, float *y, float *s,
                          float *t)
{
    const bool wide = rows <= columns;
    const int64_t small = smaller_of(rows, columns), each = rows * columns;

    m->unit(m, x, n, each, 1e-7f);
    for (int k = 0; k < 5; k++) {
        m->products_of(m, n, small, small, wide ? columns : rows, x, !wide, x, wide, s);
        m->products_of(m, n, small, small, small, s, false, s, false, t);
        m->blend(m, t, 2.0315f, -4.775f, s, n * small * small, false);
        if (wide)
            m->products_of(m, n, rows, columns, rows, t, false, x, false, y);
        else
            m->products_of(m, n, rows, columns, columns, x, false, t, false, y);
        m->blend(m, x, 3.4445f, 1, y, n * each, false);
    }
}

void train_muon_step(const struct train_net *net, float *momentum, float rate, float *scratch)
{
    struct dev_math *m = net->m;

    for (int i = 0; i < net->n_tensor; i++) {
        const struct train_tensor *t = &net->tensor[i];
        const int64_t n = same_shapes(net, i), each = t->n_in * t->n_out, s = smaller_of(t->n_in, t->n_out);
        const float size = t->n_out > t->n_in ? sqrtf((float)t->n_out / (float)t->n_in) : 1.0f;
        float *x = scratch, *y = x + n * each;
        int64_t k = 0;

        for (int j = i; n > 0 && k < n; j++) {
            const struct train_tensor *u = &net->tensor[j];

            if (u->n_in != t->n_in || u->n_out != t->n_out)
                continue;
            m->blend(m, momentum + u->at, MOMENTUM, 1, net->grad + u->at, each, true);
            m->copy(m, x + k * each, net->grad + u->at, each * (int64_t)sizeof *x);
            m->blend(m, x + k++ * each, 1, MOMENTUM, momentum + u->at, each, false);
        }
        if (n > 0)
            newton_schulz(m, n, t->n_out, t->n_in, x, y, y + n * each, y + n * (each + s * s));
        k = 0;
        for (int j = i; n > 0 && k < n; j++) {
            const struct train_tensor *u = &net->tensor[j];

            if (u->n_in == t->n_in && u->n_out == t->n_out)
                m->blend(m, net->at + u->at, 1 - rate * DECAY, -rate * size, x + k++ * each, each, true);
        }
    }
}
