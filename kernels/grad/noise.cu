/* SPDX-License-Identifier: Apache-2.0 */
/* noise.cu - gradients: parameters that stay on the GPU, and noise for them, as libcore/grad/noise.c and normals.c have
 * it, to the bit. room: kernels */
#include <stdlib.h>

#include "kernels/grad/grad.cuh"
#define INLINE static __device__ __forceinline__
#include "grad/normal.h"

enum { THREADS = 256, MOST = 512 /* samples of a step */ };

struct noise {
    uint64_t seed;
    uint32_t step, sample;
    int samples, n_tensor;
    const int64_t *tensor;
    float *moved, *theta, *u;
    const float *from, *part;
    float size, beta;
};

/* Philox4x32-10, then Box and Muller: a block of a tensor. */
static __device__ void four(float z[4], const noise &n, int tensor, uint32_t block, int sample)
{
    uint32_t x0 = block, x1 = (uint32_t)tensor, x2 = n.step, x3 = n.sample + (uint32_t)sample;
    uint32_t k0 = (uint32_t)n.seed, k1 = (uint32_t)(n.seed >> 32);

#pragma unroll
    for (int round = 0; round < 10; round++) {
        normal_round(&x0, &x1, &x2, &x3, k0, k1);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    normal_turn(&z[0], &z[1], sqrt(-2.0 * normal_log(normal_unit(x0))), x1);
    normal_turn(&z[2], &z[3], sqrt(-2.0 * normal_log(normal_unit(x2))), x3);
}

struct place {
    int tensor, n;
    int64_t block, at;
};

/* Block b of those that are counted through the tensors; n 0: it is empty. */
static __device__ place place_of(const noise &n, int64_t b)
{
    int lo = 0, hi = n.n_tensor - 1;

    while (lo < hi) { /* the last that begins at or before it */
        const int mid = (lo + hi + 1) / 2;

        if (n.tensor[mid] / 4 + mid <= b)
            lo = mid;
        else
            hi = mid - 1;
    }
    const int64_t block = b - (n.tensor[lo] / 4 + lo), at = n.tensor[lo] + 4 * block, left = n.tensor[lo + 1] - at;
    return { lo, (int)(left < 0 ? 0 : left < 4 ? left : 4), block, at };
}

/* grid: blocks, samples */
static __global__ void __launch_bounds__(THREADS) pairs(const __grid_constant__ noise n)
{
    const place p = place_of(n, (int64_t)blockIdx.x * THREADS + threadIdx.x);
    const int64_t all = n.tensor[n.n_tensor];
    float z[4], *plus = n.moved + 2 * blockIdx.y * all + p.at, *minus = plus + all;

    if (p.n <= 0)
        return;
    four(z, n, p.tensor, (uint32_t)p.block, blockIdx.y);
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (i < p.n) {
            const float d = n.size * z[i];

            plus[i] = n.from[p.at + i] + d;
            minus[i] = n.from[p.at + i] - d;
        }
}

static __global__ void __launch_bounds__(THREADS) add(const __grid_constant__ noise n)
{
    const place p = place_of(n, (int64_t)blockIdx.x * THREADS + threadIdx.x);
    float z[4], to[4];

    if (p.n <= 0)
        return;
#pragma unroll
    for (int i = 0; i < 4; i++)
        to[i] = i >= p.n ? 0.0f : n.u != NULL ? n.u[p.at + i] * n.beta : n.theta[p.at + i];
    for (int k = 0; k < n.samples; k++) {
        const float part = n.u != NULL ? n.part[k] : -n.part[k];

        four(z, n, p.tensor, (uint32_t)p.block, k);
#pragma unroll
        for (int i = 0; i < 4; i++)
            to[i] += part * z[i];
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (i < p.n && n.u != NULL) {
            n.u[p.at + i] = to[i];
            n.theta[p.at + i] -= to[i];
        } else if (i < p.n) {
            n.theta[p.at + i] = to[i];
        }
}

/* Where tensors begin, and the samples' parts, go before. */
static bool send_noise(struct cgrad *g, const struct grad_noise *from, const float *part, noise *n)
{
    const size_t bytes = (size_t)(from->n_tensor + 1) * sizeof *from->tensor;
    const int64_t need = (int64_t)(round_up(bytes, 256) + MOST * sizeof(float));

    n->seed = from->seed;
    n->step = from->step;
    n->sample = from->sample;
    n->samples = from->samples;
    n->n_tensor = from->n_tensor;
    if (!cuda_grad_grow(g, &g->noise, &g->noise_cap, need) || from->samples > MOST) {
        cuda_fail(g->c, cudaErrorMemoryAllocation, "noise");
        return false;
    }
    n->tensor = (const int64_t *)g->noise;
    n->part = (const float *)(g->noise + round_up(bytes, 256));
    TRY(g->c, cudaMemcpyAsync(g->noise, from->tensor, bytes, cudaMemcpyHostToDevice, g->c->stream));
    if (part != NULL)
        TRY(g->c, cudaMemcpyAsync((void *)(uintptr_t)n->part, part, (size_t)from->samples * sizeof *part,
                                  cudaMemcpyHostToDevice, g->c->stream));
    return g->c->bad == cudaSuccess;
}

static dim3 blocks_of(const struct grad_noise *n, int samples)
{
    return dim3((unsigned)ceil_div(n->tensor[n->n_tensor] / 4 + n->n_tensor, THREADS), (unsigned)samples);
}

void cuda_grad_noise_pairs(struct grad *gr, const struct grad_noise *from, float *moved, const float *theta, float size)
{
    struct cgrad *g = (struct cgrad *)gr->device;
    noise n = {};

    n.moved = moved;
    n.from = theta;
    n.size = size;
    if (send_noise(g, from, NULL, &n))
        LAUNCH(g->c, pairs, blocks_of(from, from->samples), THREADS, 0, n);
}

void cuda_grad_noise_add(struct grad *gr, const struct grad_noise *from, float *theta, float *u, float beta,
                         const float *part)
{
    struct cgrad *g = (struct cgrad *)gr->device;
    noise n = {};

    n.theta = theta;
    n.u = u;
    n.beta = beta;
    if (send_noise(g, from, part, &n))
        LAUNCH(g->c, add, blocks_of(from, 1), THREADS, 0, n);
}

/* ---- memory ---- */

float *cuda_grad_params_take(struct grad *gr, int64_t n)
{
    struct cgrad *g = (struct cgrad *)gr->device;
    struct params *p = (struct params *)malloc(sizeof *p);

    (void)cudaSetDevice(g->c->id);
    if (p == NULL)
        return NULL;
    *p = { (float *)cuda_grad_take(g, (n + 1) * (int64_t)sizeof(float)), n, g->params };
    if (p->v == NULL) {
        free(p);
        return NULL;
    }
    TRY(g->c, cudaMemsetAsync(p->v, 0, (size_t)n * sizeof *p->v, g->c->stream));
    g->params = p;
    return p->v;
}

void cuda_grad_params_give(struct grad *gr, float *v)
{
    struct cgrad *g = (struct cgrad *)gr->device;

    (void)cudaStreamSynchronize(g->c->stream);
    for (struct params **at = &g->params; *at != NULL; at = &(*at)->next)
        if ((*at)->v == v) {
            struct params *p = *at;

            *at = p->next;
            g->held -= (p->n + 1) * (int64_t)sizeof(float);
            (void)cudaFree(p->v);
            free(p);
            return;
        }
}

void cuda_grad_params_copy(struct grad *gr, float *to, const float *from, int64_t n)
{
    struct cgrad *g = (struct cgrad *)gr->device;

    if (from == NULL)
        TRY(g->c, cudaMemsetAsync(to, 0, (size_t)n * sizeof *to, g->c->stream));
    else
        TRY(g->c, cudaMemcpyAsync(to, from, (size_t)n * sizeof *to, cudaMemcpyDefault, g->c->stream));
    TRY(g->c, cudaStreamSynchronize(g->c->stream));
}

bool cuda_grad_is_param(const struct cgrad *g, const float *v)
{
    for (const struct params *p = g->params; p != NULL; p = p->next)
        if (v >= p->v && v < p->v + p->n)
            return true;
    return false;
}
