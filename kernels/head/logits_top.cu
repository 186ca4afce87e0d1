/* SPDX-License-Identifier: Apache-2.0 */
/* logits_top.cu - the largest logits of a row and its softmax sums: op_top(), bit for bit as base/softmax.h says.
 *
 * Three kernels: the largest logit of each block of 256 (one warp each); the blocks' sums relative to the largest
 * logit, and its first position; then one block for each row that folds the sums and picks. For the k largest, only
 * blocks whose largest is among the k largest can matter (of equal ones the first); in those, all that reach the k-th
 * block maximum are sorted. If rows have masks, a kernel before these waits for them and brings them
 * (logits_mask.cu). */
#include <float.h>
#include <math_constants.h>

#include "kernels/device/fused.cuh"

enum { BLOCK = 256, LIST = 2048, PICK_THREADS = 1024, SMALL_K = 4, SUMS = 4 /* as struct op_top_row has them */ };

struct top_args {
    const float *x;
    int64_t xs;
    int n, n_blocks, k, n_ids;
    const int *ids;
    const float *inv_temp;
    unsigned char *out;
    size_t out_bytes;
    double *sums;    /* [rows][SUMS][n_blocks] */
    float *best;     /* [rows][n_blocks]; keys of it after it was read */
    float *max;      /* [rows]: the largest, */
    unsigned *first; /* and the first element that is as large */
    bool near;       /* a row's sums and keys have room in shared memory */
    /* with masks: */
    uint32_t *mask;            /* [rows][n_blocks][8] of the rows that have one: */
    int *here;                 /* [rows] */
    double *raw_sums;          /* [rows][n_blocks] without masks */
    float *raw_best, *raw_max; /* [rows][n_blocks], [rows] */
    uint32_t *turn;            /* counts steps with masks */
};

/* NaN as -inf, +inf as the largest float. */
static __device__ __forceinline__ float clean(float v)
{
    return v >= -FLT_MAX ? fminf(v, FLT_MAX) : -CUDART_INF_F;
}

/* Elements lane, lane + 32 ... of block b, without the mask. */
static __device__ __forceinline__ void load_raw(const top_args &a, int64_t row, int b, float v[8])
{
#pragma unroll
    for (int j = 0; j < 8; j++) {
        int i = b * BLOCK + j * 32 + (threadIdx.x & 31);

        v[j] = i < a.n ? clean(a.x[row * a.xs + i]) : -CUDART_INF_F;
    }
}

/* Those that its mask does not allow are -inf. */
template <bool MASKS>
static __device__ __forceinline__ void mask_block(const top_args &a, int64_t row, int b, float v[8])
{
    if (!MASKS || a.here[row] == 0)
        return;
    const uint32_t *mask = a.mask + (row * a.n_blocks + b) * (BLOCK / 32);

#pragma unroll
    for (int j = 0; j < 8; j++)
        v[j] = mask[j] >> (threadIdx.x & 31) & 1 ? v[j] : -CUDART_INF_F;
}

template <bool MASKS>
static __device__ __forceinline__ void load_block(const top_args &a, int64_t row, int b, float v[8])
{
    load_raw(a, row, b, v);
    mask_block<MASKS>(a, row, b, v);
}

/* As softmax_body.h does, operation by operation. */
static __device__ __forceinline__ float weigh_logit(float x, float max, float inv_temp)
{
    float d = __fmul_rn(__fsub_rn(x, max), inv_temp);
    float c = d > -87.0f ? d : -87.0f;
    float t = __fadd_rn(__fmul_rn(c, 1.44269504f), 12582912.0f);
    float n = __fsub_rn(t, 12582912.0f);
    float r = __fadd_rn(__fsub_rn(c, __fmul_rn(n, 0.693359375f)), __fmul_rn(n, 2.12194440e-4f));
    float p = __fadd_rn(1.0f / 720, __fmul_rn(r, 1.0f / 5040));

    p = __fadd_rn(1.0f / 120, __fmul_rn(r, p));
    p = __fadd_rn(1.0f / 24, __fmul_rn(r, p));
    p = __fadd_rn(1.0f / 6, __fmul_rn(r, p));
    p = __fadd_rn(1.0f / 2, __fmul_rn(r, p));
    p = __fadd_rn(1.0f, __fmul_rn(r, __fadd_rn(1.0f, __fmul_rn(r, p))));
    int exponent = (int)n + 127;
    return __fmul_rn(p, exponent > 1 ? __int_as_float(exponent << 23) : 0.0f);
}

/* The sum of a block, by halving; for lane 0. */
template <class T> static __device__ __forceinline__ double block_sum_of(const T w[8])
{
    double s[4];

#pragma unroll
    for (int j = 0; j < 4; j++)
        s[j] = __dadd_rn((double)w[j], (double)w[j + 4]);
    s[0] = __dadd_rn(s[0], s[2]);
    s[1] = __dadd_rn(s[1], s[3]);
    s[0] = __dadd_rn(s[0], s[1]);
#pragma unroll
    for (int half = 16; half > 0; half /= 2)
        s[0] = __dadd_rn(s[0], __shfl_down_sync(0xffffffffu, s[0], half));
    return s[0];
}

static __device__ __forceinline__ float block_max(const float v[8])
{
    float best = v[0];

#pragma unroll
    for (int j = 1; j < 8; j++)
        best = fmaxf(best, v[j]);
    return warp_max(best);
}

/* grid: 8 blocks of a row each, row */
template <bool MASKS> __global__ void __launch_bounds__(256) top_scan(const __grid_constant__ top_args a)
{
    int b = (int)blockIdx.x * 8 + threadIdx.x / 32;
    const int64_t row = blockIdx.y;
    float v[8];

    wait_for_inputs();
    if (blockIdx.x == 0 && threadIdx.x == 0)
        a.first[row] = ~0u;
    if (MASKS && blockIdx.x == 0 && row == 0 && threadIdx.x == 0)
        ++*a.turn;
    if (b >= a.n_blocks)
        return;
    load_raw(a, row, b, v);
    if (MASKS) {
        const float raw = block_max(v);

        if ((threadIdx.x & 31) == 0)
            a.raw_best[row * a.n_blocks + b] = raw;
    }
    mask_block<MASKS>(a, row, b, v);
    const float best = block_max(v);
    if ((threadIdx.x & 31) == 0)
        a.best[row * a.n_blocks + b] = best;
}

static __device__ __forceinline__ float row_max(const top_args &a, const float *best, float *tmp)
{
    float v = -CUDART_INF_F;

    for (int i = threadIdx.x; i < a.n_blocks; i += blockDim.x)
        v = fmaxf(v, best[i]);
    v = warp_max(v);
    if ((threadIdx.x & 31) == 0)
        tmp[threadIdx.x / 32] = v;
    __syncthreads();
    v = warp_max((threadIdx.x & 31) < blockDim.x / 32 ? tmp[threadIdx.x & 31] : -CUDART_INF_F);
    __syncthreads();
    return v;
}

/* The first element of block b that is as large as any. */
static __device__ __forceinline__ void put_first(const top_args &a, int64_t row, int b, const float v[8], float max)
{
    unsigned first = ~0u;

#pragma unroll
    for (int j = 7; j >= 0; j--)
        first = v[j] == max ? b * BLOCK + j * 32 + (threadIdx.x & 31) : first;
    if (__any_sync(0xffffffffu, first != ~0u)) {
        first = __reduce_min_sync(0xffffffffu, first);
        if ((threadIdx.x & 31) == 0)
            atomicMin(a.first + row, first);
    }
}

template <bool MASKS> __global__ void __launch_bounds__(256) top_weigh(const __grid_constant__ top_args a)
{
    __shared__ float tmp[32];
    int b = (int)blockIdx.x * 8 + threadIdx.x / 32;
    int64_t row = blockIdx.y;
    float v[8], w[8];
    double sum[SUMS], moment[8];

    wait_for_inputs();
    if (b < a.n_blocks)
        load_raw(a, row, b, v);
    const float max = row_max(a, a.best + row * a.n_blocks, tmp), heat = a.inv_temp[row];
    if (MASKS) {
        const float raw = row_max(a, a.raw_best + row * a.n_blocks, tmp);

        if (b == 0 && (threadIdx.x & 31) == 0)
            a.raw_max[row] = raw;
#pragma unroll
        for (int j = 0; j < 8; j++)
            w[j] = b < a.n_blocks ? weigh_logit(v[j], raw, 1.0f) : 0.0f;
        sum[0] = block_sum_of(w);
        if (b < a.n_blocks && (threadIdx.x & 31) == 0)
            a.raw_sums[row * a.n_blocks + b] = sum[0];
    }
    if (b >= a.n_blocks)
        return;
    mask_block<MASKS>(a, row, b, v);
    if (b == 0 && (threadIdx.x & 31) == 0)
        a.max[row] = max;
    put_first(a, row, b, v, max);
#pragma unroll
    for (int j = 0; j < 8; j++)
        w[j] = weigh_logit(v[j], max, heat);
    sum[1] = block_sum_of(w);
#pragma unroll
    for (int j = 0; j < 8; j++)
        w[j] = weigh_logit(v[j], max, 1.0f);
    sum[0] = block_sum_of(w);
#pragma unroll
    for (int j = 0; j < 8; j++) {
        v[j] = __fsub_rn(v[j], max);
        v[j] = v[j] > -87.0f ? v[j] : -87.0f;
        moment[j] = __dmul_rn((double)w[j], (double)v[j]);
    }
    sum[2] = block_sum_of(moment);
#pragma unroll
    for (int j = 0; j < 8; j++)
        moment[j] = __dmul_rn(moment[j], (double)v[j]);
    sum[3] = block_sum_of(moment);
    if ((threadIdx.x & 31) == 0)
        for (int i = 0; i < SUMS; i++)
            a.sums[(row * SUMS + i) * a.n_blocks + b] = sum[i];
}

/* What the first round of softmax_fold() leaves of a sum. */
static __host__ __device__ __forceinline__ int first_half(int n)
{
    int half = 1;

    while (2 * half < n)
        half *= 2;
    return half;
}

/* softmax_fold() of N sums by all threads. The first round goes from `from` to `sum`, which may be the same; then the
 * sums are sum[0], sum[pitch] and so on. */
template <int N> static __device__ void fold_softmax(double *sum, int pitch, const double *from, int from_pitch, int n)
{
    int half = first_half(n);

    for (int i = threadIdx.x; i < half; i += PICK_THREADS)
#pragma unroll
        for (int j = 0; j < N; j++) {
            const double *own = from + j * from_pitch + i;

            sum[j * pitch + i] = i + half < n ? __dadd_rn(own[0], own[half]) : own[0];
        }
    __syncthreads();
    n = n < half ? n : half;
    for (half /= 2; half >= 32; half /= 2) {
        for (int i = threadIdx.x; i < half && i + half < n; i += PICK_THREADS)
#pragma unroll
            for (int j = 0; j < N; j++)
                sum[j * pitch + i] = __dadd_rn(sum[j * pitch + i], sum[j * pitch + i + half]);
        __syncthreads();
    }
    if (threadIdx.x < N * 32) { /* a warp each */
        const int lane = threadIdx.x & 31;
        double *own = sum + threadIdx.x / 32 * pitch, v = lane < n ? own[lane] : 0.0;

        for (; half > 0; half /= 2) {
            const double other = __shfl_down_sync(0xffffffffu, v, half);

            v = lane < half && lane + half < n ? __dadd_rn(v, other) : v;
        }
        if (lane == 0)
            *own = v;
    }
    __syncthreads();
}

/* Ascending keys for descending values; -0 and 0 tie. */
static __device__ __forceinline__ unsigned key_of(float v)
{
    unsigned bits = __float_as_uint(__fadd_rn(v, 0.0f));

    return bits >> 31 ? bits : ~bits & 0x7fffffffu;
}

/* The key of the smallest finite value; only -inf has a greater one. */
#define LEAST 0xff7fffffu

/* The k-th smallest key of the blocks' largest (the largest of all when there are fewer). */
static __device__ unsigned edge_of(const unsigned *keys, int n_blocks, int k)
{
    unsigned key = 0;

    if (k > n_blocks)
        return 0xffffffffu;
    for (unsigned bit = 1u << 31; bit > 0; bit /= 2) { /* fewer than k keys are below `key` */
        int below = 0;

        for (int i0 = 0; i0 < n_blocks; i0 += PICK_THREADS) {
            int i = i0 + (int)threadIdx.x;

            below += __syncthreads_count(i < n_blocks && keys[i] < (key | bit));
        }
        if (below < k)
            key |= bit;
    }
    return key;
}

/* Blocks that can have one of the k best: those below the edge, and of those at it the first, up to block `last`. */
struct wanted {
    unsigned edge;
    int last;

    __device__ __forceinline__ bool has(const unsigned *keys, int b) const
    {
        return keys[b] <= LEAST && (keys[b] < edge || (keys[b] == edge && b <= last));
    }
};

/* Those of a warp, one after the other: it looks at 32 at once. */
struct wanted_blocks {
    const wanted &w;
    const unsigned *keys;
    int n, from, at;
    unsigned hits;

    __device__ __forceinline__ wanted_blocks(const wanted &which, const unsigned *k, int n_blocks)
        : w(which), keys(k), n(n_blocks), from((int)(threadIdx.x & ~31u) - PICK_THREADS), at(0), hits(0)
    {
    }
    __device__ __forceinline__ bool next(void)
    {
        while (hits == 0) {
            from += PICK_THREADS;
            if (from >= n)
                return false;
            const int b = from + (int)(threadIdx.x & 31);

            hits = __ballot_sync(0xffffffffu, b < n && w.has(keys, b));
        }
        at = from + __ffs((int)hits) - 1;
        hits &= hits - 1;
        return true;
    }
};

/* The least of all threads', for all of them. */
static __device__ unsigned long long least_of(unsigned long long least)
{
    __shared__ unsigned long long low[PICK_THREADS / 32];

#pragma unroll
    for (int half = 16; half > 0; half /= 2) {
        unsigned long long other = __shfl_xor_sync(0xffffffffu, least, half);

        least = other < least ? other : least;
    }
    if ((threadIdx.x & 31) == 0)
        low[threadIdx.x / 32] = least;
    __syncthreads();
    for (int i = 0; i < PICK_THREADS / 32; i++)
        least = low[i] < least ? low[i] : least;
    __syncthreads();
    return least;
}

static __device__ wanted find_wanted(const unsigned *keys, int n_blocks, int k)
{
    wanted w = { edge_of(keys, n_blocks, k), 0 };
    int below = 0;

    for (int i0 = 0; i0 < n_blocks; i0 += PICK_THREADS) {
        int i = i0 + (int)threadIdx.x;

        below += __syncthreads_count(i < n_blocks && keys[i] < w.edge);
    }
    /* those below and those at it before `last` are fewer than k */
    for (int bit = 1 << (31 - __clz(n_blocks)); bit > 0; bit /= 2) {
        int before = below;

        for (int i0 = 0; i0 < n_blocks; i0 += PICK_THREADS) {
            int i = i0 + (int)threadIdx.x;

            before += __syncthreads_count(i < n_blocks && i < (w.last | bit) && keys[i] == w.edge);
        }
        if (before < k)
            w.last |= bit;
    }
    return w;
}

/* Puts what reaches the edge into the list; how many there are. */
template <bool MASKS>
static __device__ int gather_wanted(const top_args &a, const unsigned *keys, const wanted &w, unsigned long long *list,
                                    int *count)
{
    if (threadIdx.x == 0)
        *count = 0;
    __syncthreads();
    for (wanted_blocks b(w, keys, a.n_blocks); b.next();) {
        float v[8];

        load_block<MASKS>(a, blockIdx.x, b.at, v);
#pragma unroll
        for (int j = 0; j < 8; j++)
            if (v[j] >= -FLT_MAX && key_of(v[j]) <= w.edge) {
                int at = atomicAdd(count, 1);

                if (at < LIST)
                    list[at] =
                        (unsigned long long)key_of(v[j]) << 32 | (unsigned)(b.at * BLOCK + j * 32 + (threadIdx.x & 31));
            }
    }
    __syncthreads();
    return *count;
}

/* The first m of the list ascending. */
static __device__ void sort_list(unsigned long long *list, int m)
{
    int size = 2;

    while (size < m)
        size *= 2;
    for (int i = m + (int)threadIdx.x; i < size; i += PICK_THREADS)
        list[i] = ~0ull;
    __syncthreads();
    for (int run = 2; run <= size; run *= 2)
        for (int step = run / 2; step > 0; step /= 2) {
            for (int i = threadIdx.x; i < size / 2; i += PICK_THREADS) {
                int low = i / step * 2 * step + i % step, high = low + step;
                unsigned long long p = list[low], q = list[high];

                if ((p > q) == ((low & run) == 0)) {
                    list[low] = q;
                    list[high] = p;
                }
            }
            __syncthreads();
        }
}

/* The first k, at most FEW, of the list ascending: where many are equal, looking for them costs less than sorting. */
static __device__ void first_few(unsigned long long *list, int m, int k)
{
    unsigned long long few[SMALL_K];

#pragma unroll
    for (int n = 0; n < SMALL_K; n++) {
        unsigned long long least = ~0ull;

        if (n >= k)
            break;
        for (int i = threadIdx.x; i < m; i += PICK_THREADS)
            if ((n == 0 || list[i] > few[n > 0 ? n - 1 : 0]) && list[i] < least)
                least = list[i];
        few[n] = least_of(least);
    }
    if (threadIdx.x == 0)
#pragma unroll
        for (int n = 0; n < SMALL_K; n++)
            if (n < k && n < m)
                list[n] = few[n];
    __syncthreads();
}

/* Where the list does not hold all that reaches the edge (many equal logits): one after the other. */
template <bool MASKS>
static __device__ int next_best(const top_args &a, const unsigned *keys, const wanted &w, unsigned long long *list)
{
    int n = 0;

    for (; n < a.k; n++) {
        unsigned long long least = ~0ull, after = n > 0 ? list[n - 1] : 0;

        for (wanted_blocks b(w, keys, a.n_blocks); b.next();) {
            float v[8];

            load_block<MASKS>(a, blockIdx.x, b.at, v);
#pragma unroll
            for (int j = 0; j < 8; j++) {
                unsigned long long me =
                    (unsigned long long)key_of(v[j]) << 32 | (unsigned)(b.at * BLOCK + j * 32 + (threadIdx.x & 31));

                if (v[j] >= -FLT_MAX && (n == 0 || me > after) && me < least)
                    least = me;
            }
        }
        least = least_of(least);
        if (threadIdx.x == 0)
            list[n] = least;
        __syncthreads();
        if (least == ~0ull)
            break;
    }
    return n;
}

/* The k best of a row in the list; how many there are. */
template <bool MASKS> static __device__ int pick_best(const top_args &a, unsigned *keys, unsigned long long *list)
{
    __shared__ int count;
    const float *best = a.best + (int64_t)blockIdx.x * a.n_blocks, max = a.max[blockIdx.x];

    for (int i = threadIdx.x; i < a.n_blocks; i += PICK_THREADS)
        keys[i] = key_of(best[i]);
    __syncthreads();
    const wanted w = find_wanted(keys, a.n_blocks, a.k);
    int n = max >= -FLT_MAX ? gather_wanted<MASKS>(a, keys, w, list, &count) : 0;

    if (n <= LIST && a.k <= SMALL_K)
        first_few(list, n, a.k);
    else if (n <= LIST)
        sort_list(list, n);
    else
        n = next_best<MASKS>(a, keys, w, list);
    return n < a.k ? n : a.k;
}

/* grid: row. ONE: k is 1, and known; what more takes would come late, as code does that is run once. */
template <bool ONE, bool MASKS>
__global__ void __launch_bounds__(PICK_THREADS) top_pick(const __grid_constant__ top_args a)
{
    __shared__ unsigned long long list[ONE ? 1 : LIST];
    extern __shared__ double space[];
    int64_t row = blockIdx.x;
    const int pitch = a.near ? first_half(a.n_blocks) : a.n_blocks;
    double *given = a.sums + row * SUMS * a.n_blocks, *sums = a.near ? space : given;
    op_top_row *to = (op_top_row *)(a.out + row * a.out_bytes);
    logits_entry *entry = (logits_entry *)(to + 1);
    float *asked = (float *)(entry + a.k);
    const uint32_t *mask = MASKS ? a.mask + row * a.n_blocks * (BLOCK / 32) : NULL;
    int n;

    wait_for_inputs();
    const float max = a.max[row];
    const bool any = max >= -FLT_MAX;
    if constexpr (ONE) {
        n = any;
        if (threadIdx.x == 0)
            list[0] = a.first[row];
    } else {
        n = pick_best<MASKS>(a, a.near ? (unsigned *)(space + SUMS * pitch) : (unsigned *)(a.best + row * a.n_blocks),
                             list);
    }
    __syncthreads();
    fold_softmax<SUMS>(sums, pitch, given, a.n_blocks, a.n_blocks);
    for (int i = threadIdx.x; i < a.k; i += PICK_THREADS) {
        int id = i < n ? (int)(unsigned)list[i] : 0;

        entry[i].token = id;
        entry[i].logit = i < n ? clean(a.x[row * a.xs + id]) : 0.0f;
    }
    for (int i = threadIdx.x; i < a.n_ids; i += PICK_THREADS) {
        int id = a.ids[row * a.n_ids + i];

        if (MASKS && id >= 0 && a.here[row] != 0 && !(mask[id / 32] >> id % 32 & 1))
            id = -1;
        asked[i] = id >= 0 ? clean(a.x[row * a.xs + id]) : -CUDART_INF_F;
    }
    if (threadIdx.x == 0) {
        to->total = any ? sums[0] : 0;
        to->heated = any ? sums[pitch] : 0;
        to->weighted = any ? sums[2 * pitch] : 0;
        to->squared = any ? sums[3 * pitch] : 0;
        to->raw_total = to->total;
        to->max = to->raw_max = max;
        to->n = n;
        to->unused = 0;
    }
    if (!MASKS)
        return;
    given = a.raw_sums + row * a.n_blocks;
    sums = a.near ? space : given;
    __syncthreads();
    fold_softmax<1>(sums, pitch, given, a.n_blocks, a.n_blocks);
    if (threadIdx.x == 0) {
        to->raw_max = a.raw_max[row];
        to->raw_total = to->raw_max >= -FLT_MAX ? sums[0] : 0;
    }
}

size_t cuda_top_ws(const struct node *v)
{
    const size_t n_blocks = (size_t)ceil_div(v->t[1].ne[0], BLOCK);
    size_t row = n_blocks * (SUMS * sizeof(double) + sizeof(float)) + sizeof(float) + sizeof(unsigned);

    if (v->i[2] != 0)
        row += n_blocks * (sizeof(double) + BLOCK / 8 + sizeof(float)) + sizeof(float) + sizeof(int);
    return (size_t)v->t[1].ne[1] * row + 16;
}

template <bool MASKS> static void launch_top(struct cuda *c, top_args &a, unsigned rows)
{
    const unsigned pieces = (unsigned)ceil_div(a.n_blocks, 8);
    const size_t near = (size_t)first_half(a.n_blocks) * SUMS * sizeof(double) + (size_t)a.n_blocks * sizeof(unsigned);

    launch_early(c, "top_scan", top_scan<MASKS>, dim3(pieces, rows), 256, 0, a);
    launch_early(c, "top_weigh", top_weigh<MASKS>, dim3(pieces, rows), 256, 0, a);
    a.near = near <= (a.k == 1 ? 47 << 10 : 31 << 10); /* beside the list, of 48 KiB */
    launch_early(c, "top_pick", a.k == 1 ? top_pick<true, MASKS> : top_pick<false, MASKS>, dim3(rows), PICK_THREADS,
                 a.near ? near : 0, a);
}

void cuda_top(struct cuda *c, const struct node *v)
{
    const struct tensor &x = v->t[1];
    const size_t rows = (size_t)x.ne[1];
    unsigned char *ws = c->ws;
    top_args a = {};

    a.x = (const float *)x.data;
    a.xs = x.stride;
    a.n = (int)x.ne[0];
    a.n_blocks = (int)ceil_div(x.ne[0], BLOCK);
    a.k = v->i[0];
    a.n_ids = v->i[1];
    a.ids = (const int *)v->p[0];
    a.inv_temp = (const float *)v->p[1];
    a.out = (unsigned char *)v->out;
    a.out_bytes = v->n;
    const size_t all = rows * (size_t)a.n_blocks;
    if (v->i[2] != 0) {
        a.mask = (uint32_t *)ws;
        a.raw_sums = (double *)(a.mask + all * (BLOCK / 32));
        a.raw_best = (float *)(a.raw_sums + all);
        a.raw_max = a.raw_best + all;
        a.here = (int *)(a.raw_max + rows);
        a.turn = c->lane->masks.turn;
        ws = (unsigned char *)(a.here + rows);
        ws += (size_t) - (intptr_t)ws & 15;
    }
    a.sums = (double *)ws;
    a.best = (float *)(a.sums + SUMS * all);
    a.max = a.best + all;
    a.first = (unsigned *)(a.max + rows);
    if (v->i[2] == 0) {
        launch_top<false>(c, a, (unsigned)rows);
        return;
    }
    cuda_masks_take(c, (int)rows, x.ne[0], a.mask, a.here);
    launch_top<true>(c, a, (unsigned)rows);
}
