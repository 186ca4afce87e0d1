/* SPDX-License-Identifier: Apache-2.0 */
/* attn_r17.cu - prefill attention, for 17 and more tokens of a sequence.
 *
 * A first kernel unpacks keys and values once, into the layout of mma operands, in working memory. Each block then
 * takes 16 to 64 queries (the query heads of one KV head times neighbouring tokens) and walks over all KV pages. TMA
 * copies operands into a ring of slots: for keys 32 elements of 128 positions, for values 128 dimensions of 16
 * positions. On sm_90 attn_r17_wgmma.cuh takes the place of that (compiled for sm_90a). If working memory cannot hold
 * all pages, several launches continue from each other's partial sums. The arithmetic is that of attn/sums.cuh. */
#include "kernels/attn/attn_r17_wgmma.cuh"

enum { SPREAD_BYTES = 48 << 20, FOUR = 4 };

/* Shared memory: barriers, queries, weights, slots, then floats: largest scores [8][Q], sums [SUMS][Q], factors [Q]. */
static int rows_smem(int queries, int n_kb)
{
    return QUERIES_AT + queries / QUERY_TILE * n_kb * 1024 + queries * 1024 + queries * (8 + SUMS + 1) * 4;
}

template <int TYPE>
static __device__ __forceinline__ void spread_keys(const attn_args &a, const spread &w, uint8_t *to,
                                                   const uint8_t *keys, int n, int b)
{
    const int lane = threadIdx.x & 31, g = lane / 4, c = lane % 4;

    for (int tile = threadIdx.x / 32; tile * 8 < (n + HALF_PAGE - 1) / HALF_PAGE * HALF_PAGE; tile += 8) {
        const uint8_t *row = keys + min(tile * 8 + g, n - 1) * a.k_bytes;
        uint8_t *step = to + (b * 2 + tile / 16) * w.k_step;
        uint32_t *at = (uint32_t *)(step + SCALES + tile % 16 * CORE) + lane;
        uint32_t hi[4], lo[4];
        float d = key_scale<TYPE>(row, b);

        key_part<TYPE>(hi, lo, &d, row, b, c, a.kv.dim_k);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            at[i * CORES / 4] = hi[i];
            if (TYPE == QUANT_f32)
                at[(4 + i) * CORES / 4] = lo[i];
        }
        if (c == 0)
            ((float *)step)[tile % 16 * 8 + g] = d;
    }
}

template <int TYPE>
static __device__ __forceinline__ void spread_values(const attn_args &a, const spread &w, uint8_t *to,
                                                     const uint8_t *values, int n, int j)
{
    const int lane = threadIdx.x & 31;

    for (int vb = threadIdx.x / 32; vb * DIM_BLOCK < a.kv.dim_v; vb += 8) {
        uint8_t *step = to + w.values_at + (int64_t)((vb / 8 * 16 + j) * w.v_halves + vb / FOUR % 2) * w.v_step;
        uint32_t *at = (uint32_t *)(step + vb % FOUR * 4 * CORE) + lane;

#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t hi[2][2], lo[2][2];

            value_part<TYPE>(hi, lo, values + j * 16 * a.v_bytes, (int)a.v_bytes, n - j * 16, vb, half, lane / 4,
                             lane % 4, a.kv.dim_v);
#pragma unroll
            for (int i = 0; i < 4; i++) { /* tile, 8 of 16 values */
                uint32_t *to = at + (i % 2 * CORES + (half * 2 + i / 2) * CORE) / 4;

                *to = hi[i / 2][i % 2];
                if (TYPE != QUANT_f16)
                    to[2 * CORES / 4] = lo[i / 2][i % 2];
            }
        }
    }
}

/* grid: page * (blocks of keys, then 16 values each), KV head, sequence */
__global__ void __launch_bounds__(256)
    spread_pages(const __grid_constant__ attn_args a, const __grid_constant__ spread w)
{
    const struct op_kv &kv = a.kv;
    const op_seq &s = a.r.seq[blockIdx.z];
    const int each = a.n_kb + 16, part = blockIdx.x % each, b = w.first + blockIdx.x / each, h = blockIdx.y;
    const int n = s.n == 0 ? 0 : min(a.r.pos[s.row + s.n - 1] + 1 - b * OP_KV_PAGE, (int)OP_KV_PAGE);

    if (n <= 0)
        return;
    const uint8_t *page = kv.pages + (size_t)a.pg.page[(int64_t)blockIdx.z * a.pg.stride + b] * kv.page_bytes;
    uint8_t *to = w.to + blockIdx.z * w.seq_bytes + ((int64_t)(b - w.first) * kv.n_head + h) * w.head_bytes;
    if (part < a.n_kb) {
        const uint8_t *keys = page + (int64_t)h * OP_KV_PAGE * a.k_bytes;

        switch (kv.type_k) {
        case QUANT_f32:
            spread_keys<QUANT_f32>(a, w, to, keys, n, part);
            break;
        case QUANT_f16:
            spread_keys<QUANT_f16>(a, w, to, keys, n, part);
            break;
        case QUANT_q8_0:
            spread_keys<QUANT_q8_0>(a, w, to, keys, n, part);
            break;
        default:
            spread_keys<QUANT_q4_0>(a, w, to, keys, n, part);
            break;
        }
    } else { /* zeros after them: they are multiplied with weights of 0 */
        const uint8_t *values = page + a.v_at + (int64_t)h * OP_KV_PAGE * a.v_bytes;

        switch (kv.type_v) {
        case QUANT_f32:
            spread_values<QUANT_f32>(a, w, to, values, n, part - a.n_kb);
            break;
        case QUANT_f16:
            spread_values<QUANT_f16>(a, w, to, values, n, part - a.n_kb);
            break;
        case QUANT_q8_0:
            spread_values<QUANT_q8_0>(a, w, to, values, n, part - a.n_kb);
            break;
        default:
            spread_values<QUANT_q4_0>(a, w, to, values, n, part - a.n_kb);
            break;
        }
    }
}

/* The block's slots: one thread fills them in the order in which all warps use them, two uses behind. */
struct ring {
    uint64_t *full, *empty;
    uint8_t *slot;
    const uint8_t *page, *next; /* to be filled from */
    int64_t page_bytes, values_at;
    int slots, slot_bytes, n_kb, k_step, v_step, v_halves;
    int k_left, v_left, seen; /* parts of the page; positions from it on */
    int used;
    turn in, out;

    __device__ __forceinline__ void open(void)
    {
        const int most = min(seen, (int)OP_KV_PAGE);

        next = page;
        k_left = seen > 0 ? n_kb * (most > HALF_PAGE ? 2 : 1) : 0;
        v_left = seen > 0 ? (most + 15) / 16 * v_halves : 0;
    }

    __device__ __forceinline__ void fill(bool first)
    {
        if (v_left == 0)
            return;
        uint8_t *to = slot + in.at * slot_bytes;

        if (!first)
            bar_wait(&empty[in.at], in.phase ^ 1);
        if (k_left > 0) {
            bulk_copy(to, next, (unsigned)k_step, &full[in.at]);
            next += seen > HALF_PAGE ? k_step : 2 * k_step;
            if (--k_left == 0)
                next = page + values_at;
        } else {
            bulk_copy(to, next, (unsigned)v_step, &full[in.at]);
            next += v_step;
            if (--v_left == 0) {
                page += page_bytes;
                seen -= OP_KV_PAGE;
                open();
            }
        }
        in.next(slots);
    }

    /* Both by all lanes of a warp. */
    __device__ __forceinline__ const uint8_t *take(void)
    {
        bar_wait(&full[out.at], out.phase);
        return slot + out.at * slot_bytes;
    }

    __device__ __forceinline__ void give(void)
    {
        warp_done(&empty[out.at]);
        if (threadIdx.x == 0 && used >= 2)
            fill(false);
        used++;
        out.next(slots);
    }
};

/* A warp has TILES tiles of 8 queries; of keys every tile of 8 or two of every eight; of values VB blocks of 32. */
template <int MQ> struct share {
    enum {
        ACROSS = MQ == 64 ? 2 : 1,
        WK = 8 / ACROSS,
        TILES = MQ / QUERY_TILE / ACROSS,
        NT = 32 / WK,
        VB = 8 / WK,
        PAIRS = TILES / 2,
    };
};

/* A lane's part of four cores, each at an address that 8 lanes give. */
static __device__ __forceinline__ void four_cores(uint32_t to[4], uint32_t at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at)
                 : "memory");
}

/* Adds a block of the keys of half a page. */
template <int MQ, bool LOW, int HALF>
static __device__ __forceinline__ void row_block(float s[share<MQ>::TILES][share<MQ>::NT][2], ring &in,
                                                 const uint4 two[share<MQ>::TILES][2], int wk)
{
    typedef share<MQ> S;
    const uint8_t *step = in.take();
    const int lane = threadIdx.x & 31;
    const uint32_t keys = shared_at(step) + SCALES + lane / 8 * CORES + lane % 8 * 16;

#pragma unroll
    for (int i = HALF * S::NT / 2; i < (HALF + 1) * S::NT / 2; i++) {
        const int tile = (S::WK == 4 ? i / 2 * 8 + 2 * wk + i % 2 : i * 8 + wk) % 16;
        const float2 d = *(const float2 *)(step + (tile * 8 + 2 * (lane % 4)) * 4);
        uint32_t hi[4], lo[4];

        four_cores(hi, keys + tile * CORE);
        if (LOW)
            four_cores(lo, keys + 4 * CORES + tile * CORE);
#pragma unroll
        for (int t = 0; t < S::TILES; t++)
            add_block(s[t][i], two[t], hi, LOW ? lo : NULL, d);
    }
    in.give();
}

/* Scores of a page. */
template <int MQ, bool LOW>
static __device__ __forceinline__ void row_scores(float s[share<MQ>::TILES][share<MQ>::NT][2], ring &in,
                                                  const attn_args &a, const uint8_t *q, int wk, int most)
{
    typedef share<MQ> S;
    const int lane = threadIdx.x & 31;

#pragma unroll
    for (int e = 0; e < S::TILES * S::NT * 2; e++)
        s[e / (S::NT * 2)][e / 2 % S::NT][e % 2] = 0.0f;
#pragma unroll 1
    for (int b = 0; b < a.n_kb; b++) {
        uint4 two[S::TILES][2];

#pragma unroll
        for (int t = 0; t < S::TILES; t++)
#pragma unroll
            for (int e = 0; e < 2; e++)
                two[t][e] = *((const uint4 *)(q + (t * a.n_kb + b) * 1024 + e * 512) + lane);
        row_block<MQ, LOW, 0>(s, in, two, wk);
        if (most > HALF_PAGE)
            row_block<MQ, LOW, 1>(s, in, two, wk);
    }
}

/* Their weights as operands; m: largest scores so far known to the block, sums of weights to `sums`. */
template <int MQ>
static __device__ __forceinline__ void row_weights(float s[share<MQ>::TILES][share<MQ>::NT][2], const int n[],
                                                   const float factor[], float m[], uint8_t *p, float *tops,
                                                   float *sums, int wk, int first, int most, const struct op_kv &kv,
                                                   int page)
{
    typedef share<MQ> S;
    const int lane = threadIdx.x & 31, g = lane / 4, c = lane % 4;

    if (kv.window > 0) /* keys outside of it */
#pragma unroll
        for (int t = 0; t < S::TILES; t++)
#pragma unroll
            for (int i = 0; i < S::NT; i++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    const int key = (S::WK == 4 ? i / 2 * 8 + 2 * wk + i % 2 : i * 8 + wk) * 8 + 2 * c + e;

                    if (page + key >= kv.always && key < n[t] - 1 - kv.window)
                        s[t][i][e] = -CUDART_INF_F;
                }

#pragma unroll
    for (int t = 0; t < S::TILES; t++) {
        float top = -CUDART_INF_F;

#pragma unroll
        for (int i = 0; i < S::NT; i++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const int tile = S::WK == 4 ? i / 2 * 8 + 2 * wk + i % 2 : i * 8 + wk;

                if (tile * 8 + 2 * c + e < n[t])
                    top = fmaxf(top, __fmul_rn(s[t][i][e], factor[t]));
            }
        top = quad_max(top);
        if (c == 0)
            tops[wk * MQ + first + t * QUERY_TILE + g] = top;
    }
    __syncthreads();
#pragma unroll
    for (int t = 0; t < S::TILES; t++) {
        float sum[4] = { 0.0f, 0.0f, 0.0f, 0.0f };

        m[t] = tops[first + t * QUERY_TILE + g];
#pragma unroll
        for (int i = 1; i < S::WK; i++)
            m[t] = fmaxf(m[t], tops[i * MQ + first + t * QUERY_TILE + g]);
        m[t] = fmaxf(m[t], LEAST_SCORE);
#pragma unroll
        for (int i = 0; i < S::NT; i++) {
            const int tile = S::WK == 4 ? i / 2 * 8 + 2 * wk + i % 2 : i * 8 + wk, of = i % (SUMS / S::WK);
            uint32_t hi, lo,
                *to = (uint32_t *)(p + ((t / 2 * 16 + tile / 2) * 2) * 512 + lane * 16) + tile % 2 * 2 + t % 2;

            if (tile / 2 * 16 >= most)
                continue;
            weigh_scores(s[t][i], factor[t], m[t], tile * 8 + 2 * c, n[t], &hi, &lo);
            sum[of] = __fadd_rn(__fadd_rn(sum[of], s[t][i][0]), s[t][i][1]);
            to[0] = hi;
            to[128] = lo;
        }
#pragma unroll
        for (int of = 0; of < SUMS / S::WK; of++) {
            float all = quad_sum(sum[of]);

            if (c == 0)
                sums[(S::WK == 4 ? of / 2 * 8 + 2 * wk + of % 2 : of * 8 + wk) * MQ + first + t * QUERY_TILE + g] = all;
        }
    }
    __syncthreads();
}

/* Adds 16 values of half a slab. */
template <int MQ, bool LOW, int HALF>
static __device__ __forceinline__ void row_slab(float o[share<MQ>::PAIRS][share<MQ>::VB][4][4], ring &in,
                                                const uint4 w[share<MQ>::PAIRS][2], int wk)
{
    typedef share<MQ> S;
    const int lane = threadIdx.x & 31;
    const uint32_t at =
        shared_at(in.take()) + lane / 8 % 2 * CORES + (wk % FOUR * 4 + lane / 16) * CORE + lane % 8 * 16;

    if (S::VB == 2 || wk / FOUR == HALF) {
        uint32_t b[2][2][4];

#pragma unroll
        for (int e = 0; e < (LOW ? 4 : 2); e++)
            four_cores(b[e / 2][e % 2], at + e / 2 * 2 * CORES + e % 2 * 2 * CORE);
#pragma unroll
        for (int pass = 0; pass < (LOW ? 3 : 2); pass++)
#pragma unroll
            for (int x = 0; x < 4; x++)
#pragma unroll
                for (int t = 0; t < S::PAIRS; t++) {
                    const uint32_t *f = b[pass / 2][x / 2] + x % 2 * 2;

                    mma(o[t][S::VB == 2 ? HALF : 0][x], w[t][pass == 1], f[0], f[1]);
                }
    }
    in.give();
}

/* The page's weighted sum of values. */
template <int MQ, bool LOW>
static __device__ __forceinline__ void row_values(float o[share<MQ>::PAIRS][share<MQ>::VB][4][4], ring &in,
                                                  const uint8_t *p, int wk, int most)
{
    typedef share<MQ> S;
    const int lane = threadIdx.x & 31;

#pragma unroll
    for (int e = 0; e < S::PAIRS * S::VB * 16; e++)
        o[e / (S::VB * 16)][e / 16 % S::VB][e / 4 % 4][e % 4] = 0.0f;
#pragma unroll 1
    for (int j = 0; j * 16 < most; j++) {
        uint4 w[S::PAIRS][2];

#pragma unroll
        for (int t = 0; t < S::PAIRS; t++)
#pragma unroll
            for (int e = 0; e < 2; e++)
                w[t][e] = *((const uint4 *)(p + ((t * 16 + j) * 2 + e) * 512) + lane);
        row_slab<MQ, LOW, 0>(o, in, w, wk);
        if (in.v_halves == 2)
            row_slab<MQ, LOW, 1>(o, in, w, wk);
    }
}

/* grid: tile of rows, KV head * part * slab, sequence */
template <int MQ, bool LOW_K, bool LOW_V>
__global__ void __launch_bounds__(256, 1) attend_rows(const __grid_constant__ rows_args t)
{
    typedef share<MQ> S;
    extern __shared__ __align__(128) uint8_t shared[];
    const attn_args &a = t.a;
    const spread &w = t.w;
    const struct op_kv &kv = a.kv;
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, g = lane / 4, c = lane % 4;
    const int wk = warp % S::WK, mine = warp / S::WK * S::TILES * QUERY_TILE, rows = MQ / a.heads;
    const op_seq &s = a.r.seq[blockIdx.z];
    const int first = (int)(gridDim.x - 1 - blockIdx.x) * rows, here = min(rows, s.n - first);
    const int slab = blockIdx.y % a.slabs, h = blockIdx.y / a.slabs / a.parts,
              g0 = blockIdx.y / a.slabs % a.parts * HEADS;
    const int heads = min(a.group - g0, a.heads), *pos = a.r.pos + s.row + first;

    if (here <= 0 || pos[here - 1] < w.first * OP_KV_PAGE)
        return;
    const int64_t head = (int64_t)h * a.group + g0, row0 = s.row + first;
    const int last = pos[here - 1] / OP_KV_PAGE, end = min(last + 1, w.first + w.pages);
    uint8_t *q = shared + QUERIES_AT, *p = q + MQ / QUERY_TILE * a.n_kb * 1024;
    ring in;

    in.full = (uint64_t *)shared;
    in.empty = in.full + RING;
    in.slot = p + MQ * 1024;
    in.slots = t.slots;
    in.slot_bytes = t.slot_bytes;
    in.page = w.to + blockIdx.z * w.seq_bytes + h * w.head_bytes;
    in.page_bytes = kv.n_head * w.head_bytes;
    in.values_at = w.values_at + (int64_t)slab * 16 * w.v_halves * w.v_step;
    in.n_kb = a.n_kb;
    in.k_step = w.k_step;
    in.v_step = w.v_step;
    in.v_halves = w.v_halves;
    in.seen = min(pos[here - 1] + 1, end * OP_KV_PAGE) - w.first * OP_KV_PAGE;
    in.used = 0;
    in.in = in.out = turn{ 0, 0 };
    in.open();
    float *tops = (float *)(in.slot + t.slots * t.slot_bytes), *sums = tops + 8 * MQ, *factors = sums + SUMS * MQ;

    if (threadIdx.x == 0) {
        for (int i = 0; i < t.slots; i++) {
            bar_init(&in.full[i], 1);
            bar_init(&in.empty[i], 8 * WARP_DONE);
        }
        bar_init_done();
        for (int i = 0; i < t.slots; i++)
            in.fill(true);
    }
    for (int i = warp; i < MQ; i += 8) {
        int r = i / a.heads, e = i % a.heads;
        const float *from = r < here && e < heads ? a.q + (row0 + r) * a.qs + (head + e) * kv.dim_k : NULL;
        float f = put_query(q + i / QUERY_TILE * a.n_kb * 1024, from, i % QUERY_TILE, kv.dim_k, a.n_kb, kv.type_k,
                            a.scale, false);

        if (lane == 0)
            factors[i] = f;
    }
    __syncthreads();

    float total[S::PAIRS][S::VB][4][4], tm[S::TILES], tl[S::TILES], factor[S::TILES];
    int seen[S::TILES];
#pragma unroll
    for (int e = 0; e < S::TILES; e++) {
        const int at = mine + e * QUERY_TILE + g, r = min(at / a.heads, here - 1), k = min(at % a.heads, heads - 1);
        const float *from = w.sums + ((row0 + r) * kv.n_head * a.group + head + k) * 2;

        seen[e] = pos[r] + 1;
        factor[e] = factors[at];
        tm[e] = w.first > 0 ? from[0] : -CUDART_INF_F;
        tl[e] = w.first > 0 ? from[1] : 0.0f;
#pragma unroll
        for (int i = 0; i < S::VB * 8; i++) {
            const int d =
                slab * SLAB + (wk + i / 8 * S::WK) * DIM_BLOCK + value_dim(kv.type_v, i / 2 % 4, 2 * c + i % 2);

            total[e / 2][i / 8][i / 2 % 4][e % 2 * 2 + i % 2] =
                w.first > 0 && d < kv.dim_v ? a.y[(row0 + r) * a.ys + (head + k) * kv.dim_v + d] : 0.0f;
        }
    }
    for (int b = w.first; b < end; b++) {
        const int most = min(pos[here - 1] + 1 - b * OP_KV_PAGE, (int)OP_KV_PAGE);
        float m[S::TILES], o[S::PAIRS][S::VB][4][4];
        int n[S::TILES];

#pragma unroll
        for (int e = 0; e < S::TILES; e++)
            n[e] = seen[e] - b * OP_KV_PAGE;
        {
            float score[S::TILES][S::NT][2];

            row_scores<MQ, LOW_K>(score, in, a, q + mine / QUERY_TILE * a.n_kb * 1024, wk, most);
            row_weights<MQ>(score, n, factor, m, p + mine * 1024, tops, sums, wk, mine, most, kv, b * OP_KV_PAGE);
        }
        row_values<MQ, LOW_V>(o, in, p + mine * 1024, wk, most);
#pragma unroll
        for (int e = 0; e < S::TILES; e++) {
            float keep, take;

            if (n[e] <= 0)
                continue;
            merge(tm[e], m[e], &keep, &take);
            tl[e] = __fmaf_rn(tl[e], keep, __fmul_rn(fold_sums(sums + mine + e * QUERY_TILE + g, MQ), take));
            tm[e] = fmaxf(tm[e], m[e]);
#pragma unroll
            for (int i = 0; i < S::VB * 8; i++) {
                float *to = &total[e / 2][i / 8][i / 2 % 4][e % 2 * 2 + i % 2];

                *to = __fmaf_rn(*to, keep, __fmul_rn(o[e / 2][i / 8][i / 2 % 4][e % 2 * 2 + i % 2], take));
            }
        }
    }
    const bool whole = last < w.first + w.pages;
#pragma unroll
    for (int e = 0; e < S::TILES; e++) {
        const int at = mine + e * QUERY_TILE + g, r = at / a.heads, k = at % a.heads;

        if (r >= here || k >= heads)
            continue;
        float *y = a.y + (row0 + r) * a.ys + (head + k) * kv.dim_v;
        float *to = w.sums + ((row0 + r) * kv.n_head * a.group + head + k) * 2;
        const float all = __fmul_rn(tl[e], __fmul_rn(1024.0f, value_scale(kv.type_v)));

        if (!whole && wk == 0 && c == 0 && slab == 0) {
            to[0] = tm[e];
            to[1] = tl[e];
        }
#pragma unroll
        for (int i = 0; i < S::VB * 8; i++) {
            const int d =
                slab * SLAB + (wk + i / 8 * S::WK) * DIM_BLOCK + value_dim(kv.type_v, i / 2 % 4, 2 * c + i % 2);
            const float v = total[e / 2][i / 8][i / 2 % 4][e % 2 * 2 + i % 2];

            if (d < kv.dim_v)
                y[d] = whole ? __fdiv_rn(v, all) : v;
        }
    }
}

/* Sizes of what is spread, and how many pages of it at a time. */
static spread plan_spread(const struct op_kv *kv, int n_seq, int pages)
{
    const int n_kb = (int)ceil_div(kv->dim_k, DIM_BLOCK), blocks = (int)ceil_div(kv->dim_v, DIM_BLOCK);
    spread w = {};

    w.k_planes = key_planes(kv->type_k);
    w.v_planes = value_planes(kv->type_v);
    w.k_step = SCALES + 4 * CORES * w.k_planes;
    w.v_halves = blocks > FOUR ? 2 : 1;
    w.v_step = 2 * CORES * w.v_planes;
    w.values_at = (int64_t)n_kb * 2 * w.k_step;
    w.head_bytes = w.values_at + ceil_div(blocks, 8) * 16 * w.v_halves * w.v_step;
    w.pages = (int)(SPREAD_BYTES / (w.head_bytes * kv->n_head * n_seq));
    w.pages = w.pages < 1 ? 1 : w.pages < pages ? w.pages : pages;
    w.seq_bytes = w.head_bytes * kv->n_head * w.pages;
    return w;
}

size_t cuda_attn_rows_ws(const struct node *v)
{
    spread w = plan_spread(&v->kv, v->r.n_seq, v->pg.stride);
    int64_t heads = v->t[1].ne[0] / v->kv.dim_k;

    return (size_t)(v->r.n_seq * w.seq_bytes) +
           (w.pages < v->pg.stride ? (size_t)(v->r.n * heads * 2) * sizeof(float) : 0);
}

/* The number of slots that have room; as many as make a ring, or 0. */
static int plan_ring(rows_args *t, int room)
{
    t->slot_bytes = t->w.k_step > t->w.v_step ? t->w.k_step : t->w.v_step;
    t->slots = room / t->slot_bytes < RING ? room / t->slot_bytes : (int)RING;
    return t->slots >= 3;
}

template <int MQ, bool LOW_K, bool LOW_V> static void launch_rows(struct cuda *c, const rows_args &t)
{
    const attn_args &a = t.a;
    size_t smem = (size_t)(rows_smem(MQ, a.n_kb) + t.slots * t.slot_bytes);
    dim3 grid((unsigned)ceil_div(a.r.max_n, MQ / a.heads), (unsigned)(a.kv.n_head * a.parts * a.slabs),
              (unsigned)a.r.n_seq);

    cuda_fail(
        c, cudaFuncSetAttribute(attend_rows<MQ, LOW_K, LOW_V>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)smem),
        "attend_rows");
    LAUNCH(c, (attend_rows<MQ, LOW_K, LOW_V>), grid, 256, smem, t);
}

template <int MQ> static void launch_planes(struct cuda *c, const rows_args &t)
{
    if (t.w.k_planes == 1 && t.w.v_planes == 1)
        launch_rows<MQ, false, false>(c, t);
    else if (t.w.k_planes == 1)
        launch_rows<MQ, false, true>(c, t);
    else if (t.w.v_planes == 1)
        launch_rows<MQ, true, false>(c, t);
    else
        launch_rows<MQ, true, true>(c, t);
}

template <int NV, bool SCALED, bool LOW_V> static void launch_wide(struct cuda *c, const rows_args &t)
{
    const attn_args &a = t.a;
    const unsigned tiles = (unsigned)ceil_div(a.r.max_n, WIDE / a.heads), pair = tiles > 1 ? 2 : 1;

    launch_clusters(c, "attend_wide", attend_wide<NV, SCALED, LOW_V>, dim3(pair),
                    dim3(tiles + tiles % pair, (unsigned)(a.kv.n_head * a.parts * a.slabs), (unsigned)a.r.n_seq),
                    WIDE_THREADS, (size_t)(wide_smem(a.n_kb) + t.slots * t.slot_bytes), t, pair > 1);
}

template <int NV> static void launch_dims(struct cuda *c, const rows_args &t)
{
    if (t.a.kv.type_k == QUANT_f16 && t.w.v_planes == 1)
        launch_wide<NV, false, false>(c, t);
    else if (t.a.kv.type_k == QUANT_f16)
        launch_wide<NV, false, true>(c, t);
    else if (t.w.v_planes == 1)
        launch_wide<NV, true, false>(c, t);
    else
        launch_wide<NV, true, true>(c, t);
}

/* On sm_90; false: no kernel takes these types, or there is no room in shared memory. */
static bool attend_by_wgmma(struct cuda *c, rows_args t, int room)
{
    enum { FEWEST = 5 };
    const int k = t.w.k_step * (t.w.v_planes == 1 ? 1 : 2), v = t.w.v_halves * t.w.v_step;

    if (!c->sm_90 || t.w.k_planes > 1)
        return false;
    t.slot_bytes = k > v ? k : v;
    t.slots = (room - wide_smem(t.a.n_kb)) / t.slot_bytes;
    if (t.slots < FEWEST)
        return false;
    t.slots = t.slots < RING ? t.slots : (int)RING;
    if (t.w.v_halves == 2)
        launch_dims<128>(c, t);
    else
        launch_dims<64>(c, t);
    return true;
}

void cuda_attn_rows(struct cuda *c, const attn_args *a)
{
    rows_args t = { *a, plan_spread(&a->kv, a->r.n_seq, a->pages), 0, 0 };
    const int smem = cuda_attn_smem(c);
    int queries = 64;

    while (queries > 16 && !plan_ring(&t, smem - rows_smem(queries, a->n_kb)))
        queries /= 2;
    if (queries == 16)
        (void)plan_ring(&t, smem - rows_smem(queries, a->n_kb));
    t.w.to = c->ws;
    t.w.sums = (float *)(c->ws + a->r.n_seq * t.w.seq_bytes);
    for (t.w.first = 0; t.w.first < a->pages; t.w.first += t.w.pages) {
        LAUNCH(c, spread_pages,
               dim3((unsigned)(t.w.pages * (a->n_kb + 16)), (unsigned)a->kv.n_head, (unsigned)a->r.n_seq), 256, 0, *a,
               t.w);
        if (attend_by_wgmma(c, t, smem))
            continue;
        switch (queries) {
        case 64:
            launch_planes<64>(c, t);
            break;
        case 32:
            launch_planes<32>(c, t);
            break;
        default:
            launch_planes<16>(c, t);
            break;
        }
    }
}
