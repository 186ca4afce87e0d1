/* SPDX-License-Identifier: Apache-2.0 */
/* tma.cuh - TMA copies (cp.async.bulk) to shared memory, and the mbarriers that wait for them.
 * room: kernels */
#ifndef KERNELS_COMMON_TMA_CUH
#define KERNELS_COMMON_TMA_CUH
#include <cuda.h>
#include <stdint.h>

/* Compiled with -DRACECHECK kernels do the same in ways that NVIDIA's racecheck can follow. */
#ifdef RACECHECK
enum { RACECHECKED = 1 };
#else
enum { RACECHECKED = 0 };
#endif

static __device__ __forceinline__ uint32_t shared_at(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* The same, found once: the compiler is kept from finding it again each time. */
static __device__ __forceinline__ uint32_t found_at(const void *p)
{
    uint32_t at = shared_at(p);

    asm volatile("" : "+r"(at));
    return at;
}

static __device__ __forceinline__ void bar_init(uint64_t *bar, int n)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_at(bar)), "r"(n) : "memory");
}

static __device__ __forceinline__ void bar_init_done(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

static __device__ __forceinline__ void bar_arrive(uint64_t *bar)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_at(bar)) : "memory");
}

/* A warp has read what others may write over now; the barrier counts WARP_DONE for it. Its reads are done when one lane
 * arrives: they go through one pipe in order. But the compiler puts a converged warp's __syncwarp() before them, so to
 * racecheck those of other lanes have no end. */
enum { WARP_DONE = RACECHECKED ? 32 : 1 };
static __device__ __forceinline__ void warp_done(uint64_t *bar)
{
    __syncwarp();
    if (RACECHECKED || threadIdx.x % 32 == 0)
        bar_arrive(bar);
}

/* bar: its place in shared memory. */
static __device__ __forceinline__ void bar_wait(uint32_t bar, int phase)
{
    asm volatile("{\n.reg .pred p;\nagain:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
                 "@!p bra again;\n}" ::"r"(bar),
                 "r"(phase)
                 : "memory");
}

static __device__ __forceinline__ void bar_wait(uint64_t *bar, int phase)
{
    bar_wait(shared_at(bar), phase);
}

/* An arrival; the phase does not end before n bytes have come. */
static __device__ __forceinline__ void bar_expect(uint32_t bar, unsigned n)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(n) : "memory");
}

static __device__ __forceinline__ void bar_expect(uint64_t *bar, unsigned n)
{
    bar_expect(shared_at(bar), n);
}

/* n, a multiple of 16, bytes, which the barrier has been told to expect. */
static __device__ __forceinline__ void bulk_go(uint32_t to, const void *from, unsigned n, uint32_t bar)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(n), "r"(bar)
                 : "memory");
}

static __device__ __forceinline__ void bulk_go(void *to, const void *from, unsigned n, uint64_t *bar)
{
    bulk_go(shared_at(to), from, n, shared_at(bar));
}

/* The same by TMA multicast: the copy lands at one offset in the shared memory of both blocks of a cluster, and
 * completes both blocks' mbarriers at one offset. Only on sm_90a: multicast may be slow on other GPUs. */
static __device__ __forceinline__ void bulk_go_both(void *to, const void *from, unsigned n, uint64_t *bar)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, "
                 "[%3], %4;" ::"r"(shared_at(to)),
                 "l"(from), "r"(n), "r"(shared_at(bar)), "h"((uint16_t)3)
                 : "memory");
#else
    bulk_go(to, from, n, bar);
#endif
}

/* The same; the barrier's phase ends when they are there. */
static __device__ __forceinline__ void bulk_copy(void *to, const void *from, unsigned n, uint64_t *bar)
{
    bar_expect(bar, n);
    bulk_go(to, from, n, bar);
}

/* True in one lane of the warp, which must be complete. The compiler knows that it is a single lane, so that it needs
 * no loop over the lanes' addresses. */
static __device__ __forceinline__ bool one_of_warp(void)
{
    uint32_t is;

    asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\n"
                 "selp.u32 %0, 1, 0, p;\n}"
                 : "=r"(is));
    return is != 0;
}

/* A tensor map, which the first box would wait for. */
static __device__ __forceinline__ void map_near(const CUtensorMap *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/* A box of a tensor map, n bytes, to a multiple of 128; what is outside of the tensor is zero. As bulk_copy(). x times
 * the size of an element is a multiple of 16: on an H200 another one was an illegal instruction. */
static __device__ __forceinline__ void box_copy(uint32_t to, const CUtensorMap *map, int x, int y, int z, unsigned n,
                                                uint32_t bar)
{
    bar_expect(bar, n);
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to),
                 "l"(map), "r"(x), "r"(y), "r"(z), "r"(bar)
                 : "memory");
}

/* As box_copy(), of five dimensions; the barrier has been told to expect it. */
static __device__ __forceinline__ void box_go(void *to, const CUtensorMap *map, const int at[5], uint64_t *bar)
{
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4, %5, %6}], [%7];" ::"r"(shared_at(to)),
                 "l"(map), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4]), "r"(shared_at(bar))
                 : "memory");
}

/* The other way, by a thread that waits for all of them with boxes_left() before its block ends. */
static __device__ __forceinline__ void box_store(const CUtensorMap *map, const int at[5], const void *from)
{
    asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%1, %2, %3, %4, %5}], [%6];" ::"l"(map),
                 "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4]), "r"(shared_at(from))
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* Waits until shared memory has been read; they are written when the launch has ended. */
static __device__ __forceinline__ void boxes_left(void)
{
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

/* What a thread wrote to shared memory, and whoever meets it at a barrier after this, comes before bulk copies to
 * there; and what was waited for, before wgmma reads it. */
static __device__ __forceinline__ void proxy_fence(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

static __device__ __forceinline__ void copy16(void *to, const void *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_at(to)), "l"(from));
}

static __device__ __forceinline__ void copy8(void *to, const void *from)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(shared_at(to)), "l"(from));
}

static __device__ __forceinline__ void copy4(void *to, const void *from)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_at(to)), "l"(from));
}

static __device__ __forceinline__ void copy_end(void)
{
    asm volatile("cp.async.commit_group;");
}

/* The barrier, which counts on it, hears of the thread's copies so far when they are done. */
static __device__ __forceinline__ void copy_arrive(uint64_t *bar)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_at(bar)) : "memory");
}

template <int LEFT> static __device__ __forceinline__ void copy_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

/* ---- clusters: blocks that give each other what they have ---- */

/* Where *at is in block `rank` of the cluster. */
static __device__ __forceinline__ uint32_t cluster_at(const void *at, unsigned rank)
{
    uint32_t to;

    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"(shared_at(at)), "r"(rank));
    return to;
}

/* Arrives at a barrier there. */
static __device__ __forceinline__ void cluster_arrive(uint32_t bar)
{
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(bar) : "memory");
}

static __device__ __forceinline__ void cluster_store(uint32_t to, float v)
{
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(to), "f"(v) : "memory");
}

static __device__ __forceinline__ void cluster_store(uint32_t to, float2 v)
{
    asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(v.x), "f"(v.y) : "memory");
}

/* This block is there: others may give to it when they have waited. */
static __device__ __forceinline__ void cluster_here(void)
{
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

/* What it gives to others has been given. */
static __device__ __forceinline__ void cluster_given(void)
{
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

static __device__ __forceinline__ void cluster_wait(void)
{
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
#endif
