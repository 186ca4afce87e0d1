/* SPDX-License-Identifier: Apache-2.0 */
/* noise.c - parameters where a pass is computed, and noise for them: on the host; other devices do the same. */
#include <stdlib.h>
#include <string.h>

#include "base/pool.h"
#include "grad/internal.h"

enum { PIECE = 1024 }; /* numbers that are made at a time */

struct job {
    const struct grad_noise *n;
    float *moved, *theta, *u;
    const float *from, *part;
    float size, beta;
};

/* n numbers of a tensor from `from` on, which is a multiple of 4; in the parameters they begin at `at`. */
static void pair(const struct job *j, int tensor, int64_t from, int64_t at, int64_t n)
{
    const int64_t all = j->n->tensor[j->n->n_tensor];

    for (int k = 0; k < j->n->samples; k++) {
        float z[PIECE], *plus = j->moved + 2 * k * all + at, *minus = plus + all;

        grad_normals_from(z, n, j->n, tensor, k, from);
        for (int64_t i = 0; i < n; i++) {
            const float d = j->size * z[i];

            plus[i] = j->from[at + i] + d;
            minus[i] = j->from[at + i] - d;
        }
    }
}

static void add_noise(const struct job *j, int tensor, int64_t from, int64_t at, int64_t n)
{
    float *to = j->u != NULL ? j->u + at : j->theta + at, z[PIECE];

    for (int64_t i = 0; i < n && j->u != NULL; i++)
        to[i] *= j->beta;
    for (int k = 0; k < j->n->samples; k++) {
        const float part = j->u != NULL ? j->part[k] : -j->part[k];

        grad_normals_from(z, n, j->n, tensor, k, from);
        for (int64_t i = 0; i < n; i++)
            to[i] += part * z[i];
    }
    for (int64_t i = 0; i < n && j->u != NULL; i++)
        j->theta[at + i] -= to[i];
}

/* Pieces are counted through the tensors: those of tensor t begin at tensor[t] / PIECE + t, and some are empty. */
static void noise_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct job *j = ctx;
    const int64_t *tensor = j->n->tensor;
    int t = 0;

    (void)worker;
    for (int64_t b = begin; b < end; b++) {
        while (t + 1 < j->n->n_tensor && b >= tensor[t + 1] / PIECE + t + 1)
            t++;
        const int64_t from = (b - (tensor[t] / PIECE + t)) * PIECE, at = tensor[t] + from, left = tensor[t + 1] - at;

        if (left > 0)
            (j->moved != NULL ? pair : add_noise)(j, t, from, at, left < PIECE ? left : PIECE);
    }
}

static void run_pieces(struct grad *g, const struct job *j)
{
    pool_for(g->pool, j->n->tensor[j->n->n_tensor] / PIECE + j->n->n_tensor, 1, noise_piece, (void *)(uintptr_t)j);
}

void grad_host_noise_pairs(struct grad *g, const struct grad_noise *n, float *moved, const float *from, float size)
{
    run_pieces(g, &(struct job){ .n = n, .moved = moved, .from = from, .size = size });
}

void grad_host_noise_add(struct grad *g, const struct grad_noise *n, float *theta, float *u, float beta,
                         const float *part)
{
    run_pieces(g, &(struct job){ .n = n, .theta = theta, .u = u, .beta = beta, .part = part });
}

/* ---- on the grad's device ---- */

enum err_code grad_params_open(float **out, struct grad *g, int64_t n, struct err *e)
{
    float *p = g->ops->params_take == NULL ? calloc((size_t)n + 1, sizeof *p) : g->ops->params_take(g, n);

    if (p == NULL)
        return err_set(e, ERR_NOMEM, "out of memory for %lld parameters", (long long)n);
    *out = p;
    return ERR_OK;
}

void grad_params_close(struct grad *g, float *p)
{
    if (p == NULL)
        return;
    if (g->ops->params_give == NULL)
        free(p);
    else
        g->ops->params_give(g, p);
}

void grad_params_copy(struct grad *g, float *to, const float *from, int64_t n)
{
    if (g->ops->params_copy != NULL)
        g->ops->params_copy(g, to, from, n);
    else if (from != NULL)
        memcpy(to, from, (size_t)n * sizeof *to);
    else
        memset(to, 0, (size_t)n * sizeof *to);
}

void grad_noise_pairs(struct grad *g, const struct grad_noise *n, float *moved, const float *from, float size)
{
    g->ops->noise_pairs(g, n, moved, from, size);
}

void grad_noise_add(struct grad *g, const struct grad_noise *n, float *theta, float *u, float beta, const float *part)
{
    g->ops->noise_add(g, n, theta, u, beta, part);
}
