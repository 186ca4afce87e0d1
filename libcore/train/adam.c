/* SPDX-License-Identifier: Apache-2.0 */
/* adam.c - AdamW. */
#include "train/adam.h"

#include <math.h>
#include <stdlib.h>

#include "base/pool.h"

const struct train_adam_opts train_adam_usual = { 0.9f, 0.95f, 1e-8f, 0.01f, 1.0f };

enum { FLOATS = 1 << 14 };

enum err_code train_adam_open(struct train_adam *a, int64_t n, struct err *e)
{
    *a = (struct train_adam){ n, 0, calloc((size_t)n, sizeof(float)), calloc((size_t)n, sizeof(float)) };
    if (a->m != NULL && a->v != NULL)
        return ERR_OK;
    train_adam_close(a);
    return err_set(e, ERR_NOMEM, "out of memory: moments of %lld weights", (long long)n);
}

void train_adam_close(struct train_adam *a)
{
    free(a->m);
    free(a->v);
    *a = (struct train_adam){ 0 };
}

struct update {
    struct train_adam *a;
    const struct train_adam_opts *o;
    float *w;
    const float *grad;
    const unsigned char *how;
    float rate, scale, unbias1, unbias2;
};

static void update(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct update *u = ctx;
    float *m = u->a->m, *v = u->a->v;

    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const int how = u->how == NULL ? DEV_ADAM_DECAYED : u->how[i];
        const float g = u->grad[i] * u->scale, decay = how == DEV_ADAM_DECAYED ? u->o->decay : 0.0f;

        if (how == DEV_ADAM_NOT)
            continue;

        m[i] = u->o->b1 * m[i] + (1 - u->o->b1) * g;
        v[i] = u->o->b2 * v[i] + (1 - u->o->b2) * g * g;
        u->w[i] -= u->rate * (m[i] * u->unbias1 / (sqrtf(v[i] * u->unbias2) + u->o->eps) + decay * u->w[i]);
    }
}

enum { SUMS = 64 };

struct squares {
    const float *grad;
    int64_t n;
    double sum[SUMS];
};

static void add_squares(void *ctx, int64_t begin, int64_t end, int worker)
{
    struct squares *s = ctx;

    (void)worker;
    for (int64_t k = begin; k < end; k++) {
        double lane[8] = { 0 };

        for (int64_t i = k * s->n / SUMS; i < (k + 1) * s->n / SUMS; i++)
            lane[i % 8] += (double)s->grad[i] * (double)s->grad[i];
        s->sum[k] = 0;
        for (int j = 0; j < 8; j++)
            s->sum[k] += lane[j];
    }
}

double train_adam_step(struct train_adam *a, struct pool *pool, const struct train_adam_opts *o, float rate, float *w,
                       const float *grad, const unsigned char *how)
{
    struct squares s = { .grad = grad, .n = a->n };
    double norm = 0;

    pool_for(pool, SUMS, 1, add_squares, &s);
    for (int k = 0; k < SUMS; k++)
        norm += s.sum[k];
    norm = sqrt(norm);
    if (!isfinite(norm))
        return norm;
    a->step++;
    struct update u = { a,
                        o,
                        w,
                        grad,
                        how,
                        rate,
                        norm > (double)o->clip ? (float)((double)o->clip / norm) : 1.0f,
                        (float)(1 / (1 - pow((double)o->b1, (double)a->step))),
                        (float)(1 / (1 - pow((double)o->b2, (double)a->step))) };

    pool_for(pool, a->n, FLOATS, update, &u);
    return norm;
}

double train_rate(double rate, int64_t step, int n_warm, double part)
{
    const double half = acos(-1.0) * (part < 0 ? 0 : part > 1 ? 1 : part);
    const double warm = step + 1 < n_warm ? (double)(step + 1) / n_warm : 1;

    return rate * warm * (0.5 + 0.5 * cos(half));
}
