/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_experts.cuh - a hand-over to the CPU, as kernels see it (cpu_experts.cu).   room: kernels */
#ifndef KERNELS_DEVICE_CPU_EXPERTS_CUH
#define KERNELS_DEVICE_CPU_EXPERTS_CUH
#include "kernels/device/cuda.h"

/* In pinned memory, each flag in its own cache line. */
struct hand_flags {
    uint32_t out, pad0[31]; /* the hand-over whose rows are written */
    uint32_t in, pad1[31];  /* the one whose results are written */
    uint32_t failed;
};

/* Counters of the device. `back` is polled, so it has its own cache line. */
struct hand_turns {
    uint32_t now;             /* current hand-over */
    uint32_t given;           /* the last one that had work for the CPU */
    unsigned long long taken; /* low 32 bits: blocks that have taken their rows out; high: those that had some */
    uint32_t pad0[28];
    uint32_t back; /* the last one whose results were seen */
    uint32_t pad1[31];
};

/* Pinned memory as the device sees it, and the turns. */
struct hand_over {
    volatile struct hand_flags *f;
    float *x;
    int *ids;
    const float *out;
    struct hand_turns *turn;
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

/* By all threads of a block: copies a row that needs experts of the host. Its turn begins with hand_give(). */
static __device__ __forceinline__ void hand_row(const hand_over &h, int64_t row, const float *x, int width)
{
    for (int i = threadIdx.x; i < width; i += blockDim.x)
        h.x[row * width + i] = x[i];
}

/* By all threads of a block, after hand_row() of all such rows: copies the experts of all rows and begins the turn. */
static __device__ __forceinline__ void hand_give(const hand_over &h, const int *expert, int n)
{
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        h.ids[i] = expert[i];
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0)
        h.f->out = h.turn->given = ++h.turn->now;
}

/* One thread: this turn has no work for the host and is not waited for. The host learns this from the next turn with
 * work, or from the end: a write across the bus would delay the end of the launch. */
static __device__ __forceinline__ void hand_pass(const hand_over &h)
{
    ++h.turn->now;
}

/* One thread of a block waits for the host's results of this turn. One block polls across the bus, the others poll the
 * value that it has seen. The host always answers; if it does not, the step fails. */
static __device__ __forceinline__ void hand_await(const hand_over &h, bool looks)
{
    const unsigned long long patience_ns = 30000000000ull;
    const uint32_t turn = h.turn->now;
    volatile uint32_t *back = &h.turn->back;
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
