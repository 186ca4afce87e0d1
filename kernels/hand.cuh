/* SPDX-License-Identifier: Apache-2.0 */
/* hand.cuh - a hand-over to the host as kernels see it (hand.cu).    room: kernels (base quant ops) */
#ifndef KERNELS_HAND_CUH
#define KERNELS_HAND_CUH
#include "kernels/cuda.h"

/* In pinned memory, each in a line of its own. */
struct hand_flags {
    uint32_t out, past;     /* turn whose rows are there; the last one that had none */
    uint32_t pad0[30];
    uint32_t in, pad1[31];  /* turn whose results are there */
    uint32_t failed;
};

/* Pinned memory as the device sees it, and the turns in its own: [0] handed out, [TURN_BACK] seen to be back. */
enum { TURN_BACK = 32, TURNS = 64 };
struct hand_over {
    volatile struct hand_flags *f;
    float                      *x;
    int                        *ids;
    const float                *out;
    uint32_t                   *turn;
};
struct hand_over cuda_hand_over(struct cuda *c);

/* One whole block: some of these experts are not here. */
static __device__ __forceinline__ bool hand_any(const int *expert, int n, const int *slot)
{
    bool away = false;

    for (int i = threadIdx.x; i < n; i += blockDim.x)
        away |= slot[expert[i]] < 0;
    return __syncthreads_or(away);
}

/* One block of n_threads: rows and their experts, then the turn. */
static __device__ __forceinline__ void hand_give(const hand_over &h, const float *x, int64_t stride, int width, int n,
                                                 const int *expert, int n_ids, int n_threads)
{
    for (int i = threadIdx.x; i < n_ids; i += n_threads)
        h.ids[i] = expert[i];
    for (int r = 0; r < n; r++)
        for (int i = threadIdx.x; i < width; i += n_threads)
            h.x[(int64_t)r * width + i] = x[r * stride + i];
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0)
        h.f->out = ++*h.turn;
}

/* One thread: this turn has nothing for the host, and is not awaited. */
static __device__ __forceinline__ void hand_pass(const hand_over &h)
{
    h.f->past = ++*h.turn;
}

/* One thread of a block, until the host's results of this turn are there. One block looks across the bus, the others
 * at what that has seen. The host is certain to answer; should it not, the step fails. */
static __device__ __forceinline__ void hand_await(const hand_over &h, bool looks)
{
    const unsigned long long patience_ns = 30000000000ull;
    const uint32_t turn = *h.turn;
    volatile uint32_t *back = h.turn + TURN_BACK;
    unsigned long long now, start = 0;

    while (looks ? h.f->in != turn : *back != turn) {
        if (!looks) {
            __nanosleep(100);
            continue;
        }
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
        start = start == 0 ? now : start;
        if (now - start > patience_ns) {
            h.f->failed = 1;
            break;
        }
    }
    __threadfence_system();
    if (looks)
        *back = turn;
}
#endif
