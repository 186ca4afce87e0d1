/* SPDX-License-Identifier: Apache-2.0 */
/* wgmma.cuh - wgmma: the tensor cores of sm_90, used by four warps together.   room: kernels
 *
 * D [64][N] (+)= A [64][16] B [16][N]. A is in registers, laid out as for mma.m16n8k16 with 16 rows a warp, or in
 * shared memory, laid out as B.
 *
 * B is in shared memory, in one of two layouts. With the 128-byte swizzle the 64 halves of a column are contiguous,
 * but for the order of their 16-byte parts: part i of column n lies at place i ^ n % 8. Without swizzle it consists of
 * core matrices of 8 columns by 16 bytes, 128 contiguous bytes each (wgmma_plain()).
 *
 * D is in registers. Lane 4 g + c has, of each 8 columns, the columns 2 c and 2 c + 1: first of row g, then of row
 * g + 8. */
#ifndef KERNELS_COMMON_WGMMA_CUH
#define KERNELS_COMMON_WGMMA_CUH
#include "kernels/common/tma.cuh"

/* Columns from `at` on, a multiple of 1,024; 32 bytes further on the next 16 elements: + 2. */
static __device__ __forceinline__ uint64_t wgmma_columns(const void *at)
{
    return 1ull << 62 | 64ull << 32 | 1ull << 16 | (shared_at(at) & 0x3ffff) >> 4;
}

/* The same of two times 8 elements, 16 bytes of each column (A: row) side by side, the second ones `further` bytes on.
 */
static __device__ __forceinline__ uint64_t wgmma_plain(const void *at, int further)
{
    return 8ull << 32 | (uint64_t)(further >> 4) << 16 | (shared_at(at) & 0x3ffff) >> 4;
}

/* Before the first of some products; after the last; all are done. */
static __device__ __forceinline__ void wgmma_begin(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
static __device__ __forceinline__ void wgmma_end(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* The last LEFT groups may be under way. */
template <int LEFT> static __device__ __forceinline__ void wgmma_left(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}
template <int N, int LEFT = 0> static __device__ __forceinline__ void wgmma_wait(float *d)
{
    wgmma_left<LEFT>();
#pragma unroll
    for (int i = 0; i < N; i++) /* D is read after this */
        asm volatile("" : "+f"(d[i])::"memory");
}

/* Registers 8 i ... of D, in the text and as operands. */
#define T0 "%0,%1,%2,%3,%4,%5,%6,%7"
#define T1 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define T2 ",%16,%17,%18,%19,%20,%21,%22,%23"
#define T3 ",%24,%25,%26,%27,%28,%29,%30,%31"
#define T4 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define T5 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define T6 ",%48,%49,%50,%51,%52,%53,%54,%55"
#define T7 ",%56,%57,%58,%59,%60,%61,%62,%63"
#define R(i) \
    "+f"(d[8 * (i)]), "+f"(d[8 * (i) + 1]), "+f"(d[8 * (i) + 2]), "+f"(d[8 * (i) + 3]), "+f"(d[8 * (i) + 4]), \
        "+f"(d[8 * (i) + 5]), "+f"(d[8 * (i) + 6]), "+f"(d[8 * (i) + 7])
#define R2(i) R(i), R(i + 1)
#define R4(i) R2(i), R2(i + 2)
#define T4TO  T0 T1 T2 T3
/* x to w: A; b: B; k: whether D is kept */
#define WGMMA(n, text, x, y, z, w, b, k, ...) \
    if (N == n) \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " k ", 0;\n" \
                 "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.f16.f16 {" text "}, {" x "," y "," z "," w "}, " b \
                 ", p, 1, 1, 0;\n}" \
                 : __VA_ARGS__ \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(columns), "r"((int)keep))

/* d: N / 2 registers. */
template <int N>
static __device__ __forceinline__ void wgmma(float *d, const uint32_t a[4], uint64_t columns, bool keep)
{
    static_assert(N % 16 == 0 && N <= 128, "columns");
    WGMMA(16, T0, "%8", "%9", "%10", "%11", "%12", "%13", R(0));
    WGMMA(32, T0 T1, "%16", "%17", "%18", "%19", "%20", "%21", R2(0));
    WGMMA(48, T0 T1 T2, "%24", "%25", "%26", "%27", "%28", "%29", R2(0), R(2));
    WGMMA(64, T4TO, "%32", "%33", "%34", "%35", "%36", "%37", R4(0));
    WGMMA(80, T4TO T4, "%40", "%41", "%42", "%43", "%44", "%45", R4(0), R(4));
    WGMMA(96, T4TO T4 T5, "%48", "%49", "%50", "%51", "%52", "%53", R4(0), R2(4));
    WGMMA(112, T4TO T4 T5 T6, "%56", "%57", "%58", "%59", "%60", "%61", R4(0), R2(4), R(6));
    WGMMA(128, T4TO T4 T5 T6 T7, "%64", "%65", "%66", "%67", "%68", "%69", R4(0), R4(4));
}
#undef WGMMA
#define WGMMA(n, text, a, b, k, ...) \
    if (N == n) \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " k ", 0;\n" \
                 "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.f16.f16 {" text "}, " a ", " b ", p, 1, 1, 0, 0;\n}" \
                 : __VA_ARGS__ \
                 : "l"(rows), "l"(columns), "r"((int)keep))

/* Both from shared memory. */
template <int N> static __device__ __forceinline__ void wgmma_both(float *d, uint64_t rows, uint64_t columns, bool keep)
{
    static_assert(N == 64 || N == 128, "columns");
    WGMMA(64, T4TO, "%32", "%33", "%34", R4(0));
    WGMMA(128, T4TO T4 T5 T6 T7, "%64", "%65", "%66", R4(0), R4(4));
}
#undef WGMMA
#undef R
#undef R2
#undef R4
#undef T4TO
#undef T0
#undef T1
#undef T2
#undef T3
#undef T4
#undef T5
#undef T6
#undef T7
#endif
