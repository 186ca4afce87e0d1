/* SPDX-License-Identifier: Apache-2.0 */
/* page.cuh - one KV page for 8 T queries, by a block of 16 warps.   room: kernels
 *
 * Keys, then values, are copied by TMA in chunks of positions into a ring in shared memory. For scores a warp
 * multiplies 16 keys (the A operand) with all queries. Scores go through shared memory; each warp turns every 16th
 * group of 8 positions into softmax weights. For the output a warp takes 16 dimensions of all values (again the A
 * operand). So each key and value is unpacked exactly once. The arithmetic is that of attn/sums.cuh. */
#ifndef KERNELS_ATTN_PAGE_CUH
#define KERNELS_ATTN_PAGE_CUH
#include "kernels/attn/sums.cuh"

/* Warps that have nothing to do yet run once through the code that follows, to fetch its instructions. racecheck
 * reports their reads and writes, though the results are not used. */
enum { GO_AHEAD = !RACECHECKED };

enum { PAGE_WARPS = 16, ASK_WARP = PAGE_WARPS - 1 /* asks for chunks */, UNIT_KEYS = 16 };
enum { SLOTS = 16, SLOTS_AT = 128 /* after their barriers */ };
enum { SHARE_SMEM = 112 << 10 /* two blocks fit an SM */ };
enum { SCORE_PITCH = OP_KV_PAGE + 4, SCORE_BYTES = QUERY_TILE * SCORE_PITCH * 4 /* of 8 queries; then weights */ };

/* Positions of a chunk; chunks of a page; slots and bytes of each. `whole`: all keys of a page find room. */
struct page_chunks {
    int keys, values, key_chunks, value_chunks, slots, slot_bytes;
    bool whole;
};
bool cuda_plan_chunks(page_chunks *t, const attn_args *a, int room); /* of bytes; false: not one chunk fits */

/* ---- how they come ---- */

/* Of the pages in `table` those from `page` on, `step` apart, up to `end`; `there`: positions that may be read. */
struct page_ring {
    const page_chunks &t;
    const attn_args &a;
    const int *table;
    uint64_t *full;
    uint8_t *slots;
    int h, page, step, end, there;
    int chunk, to; /* asked for next, by one thread */
    int at, phase; /* used next */

    __device__ __forceinline__ void open(void)
    {
#pragma unroll 1
        for (int i = 0; i < t.slots; i++)
            bar_init(&full[i], 1);
        bar_init_done();
    }

    __device__ __forceinline__ void ask_chunk(int i, int slot) const
    {
        const bool values = i >= t.key_chunks;
        const int bytes = (int)(values ? a.v_bytes : a.k_bytes), each = values ? t.values : t.keys;
        const int first = (values ? i - t.key_chunks : i) * each, n = min(there - page * OP_KV_PAGE - first, each);
        const uint8_t *from = a.kv.pages + (size_t)table[page] * a.kv.page_bytes + (values ? a.v_at : 0);

        if (n > 0)
            bulk_copy(slots + slot * t.slot_bytes, from + (h * OP_KV_PAGE + first) * bytes,
                      (unsigned)(n * bytes + 15) / 16 * 16, &full[slot]);
        else
            bar_arrive(&full[slot]);
    }

    /* The page's first n chunks have been asked for, into the first slots. */
    __device__ __forceinline__ void asked(int n)
    {
        to = n == t.slots ? 0 : n;
        chunk = n;
        if (chunk == t.key_chunks + t.value_chunks) {
            chunk = 0;
            page += step;
        }
    }

    /* The next n chunks, into the slots that follow. */
    __device__ __forceinline__ void ask(int n)
    {
#pragma unroll 1
        for (; n > 0 && page < end; n--) {
            ask_chunk(chunk, to);
            to = to + 1 == t.slots ? 0 : to + 1;
            if (++chunk == t.key_chunks + t.value_chunks) {
                chunk = 0;
                page += step;
            }
        }
    }

    __device__ __forceinline__ uint8_t *come(void) const
    {
        bar_wait(&full[at], phase);
        return slots + at * t.slot_bytes;
    }

    __device__ __forceinline__ void next(void)
    {
        if (++at == t.slots) {
            at = 0;
            phase ^= 1;
        }
    }

    /* n chunks have been read by all: their room is for others. */
    __device__ __forceinline__ void give(int n)
    {
        __syncthreads();
        if (threadIdx.x == ASK_WARP * 32)
            ask(n);
    }
};

/* n bytes, a multiple of 2, by the block. */
static __device__ __forceinline__ void put_fresh(uint8_t *to, const uint8_t *from, int n)
{
#pragma unroll 1
    for (int i = threadIdx.x; i < n / 2; i += PAGE_WARPS * 32)
        ((uint16_t *)to)[i] = ((const uint16_t *)from)[i];
}

/* The last n of a page's rows, in a chunk: the newest comes from `fresh` (or is there: NULL), rows that are not, of
 * values, are zeros up to the next multiple of 16. */
static __device__ __forceinline__ void end_rows(uint8_t *rows, int n, int bytes, const uint8_t *fresh, bool values)
{
    if (fresh != NULL)
        put_fresh(rows + (n - 1) * bytes, fresh, bytes);
    if (values) {
        uint16_t *rest = (uint16_t *)(rows + n * bytes);

#pragma unroll 1
        for (int i = threadIdx.x; i < (-n & 15) * bytes / 2; i += PAGE_WARPS * 32)
            rest[i] = 0;
    }
    __syncthreads();
}

/* ---- scores ---- */

/* s[2 e + i] += of queries 2 c + i with keys g + 8 e: block b of both, [key][multiplication * 2 + register]. */
template <bool LOW, int T>
static __device__ __forceinline__ void add_keys(float s[T][4], const uint8_t *q, int n_kb, const uint32_t hi[2][4],
                                                const uint32_t lo[2][4], const float d[2])
{
#pragma unroll
    for (int t = 0; t < T; t++) {
        const uint4 *from = (const uint4 *)(q + t * n_kb * 1024), two[2] = { from[0], from[32] };
        float high[4] = { 0.0f, 0.0f, 0.0f, 0.0f }, low[4] = { 0.0f, 0.0f, 0.0f, 0.0f }; /* of queries */

#pragma unroll
        for (int i = 0; i < (LOW ? 4 : 2); i++) {
            const uint32_t(*k)[4] = i < 2 ? hi : lo;
            const int j = i % 2 * 2;
            const uint4 key = make_uint4(k[0][j], k[1][j], k[0][j + 1], k[1][j + 1]);

            mma(high, key, two[i % 2].x, two[i % 2].y);
            mma(low, key, two[i % 2].z, two[i % 2].w);
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
            s[t][i] = __fmaf_rn(d[i / 2], __fadd_rn(high[i], low[i]), s[t][i]);
    }
}

/* keys: the 16. */
template <int TYPE, int T>
static __device__ __forceinline__ void unit_scores(float s[T][4], const attn_args &a, const uint8_t *q,
                                                   const uint8_t *keys)
{
    const int lane = threadIdx.x & 31, g = lane / 4, c = lane % 4, k_bytes = (int)a.k_bytes;

    keys += g * k_bytes;
    q += lane * 16;
#pragma unroll 1
    for (int b = 0; b < a.n_kb; b++, q += 1024) {
        uint32_t hi[2][4], lo[2][4];
        float d[2];

#pragma unroll
        for (int e = 0; e < 2; e++) {
            d[e] = key_scale<TYPE>(keys + e * 8 * k_bytes, b);
            key_part<TYPE>(hi[e], lo[e], &d[e], keys + e * 8 * k_bytes, b, c, a.kv.dim_k);
        }
        add_keys<TYPE == QUANT_f32, T>(s, q, a.n_kb, hi, lo, d);
    }
}

/* Four numbers of a q8_0 key as halves, two of the bytes of low, then two of those of high. */
static __device__ __forceinline__ void four_of(uint32_t to[2], uint32_t low, uint32_t high, bool odd)
{
    const __half2 zero = half2_of(0x64806480u);

    to[0] = bits_of(__hsub2(half2_of(__byte_perm(low ^ 0x80808080u, 0x64646464u, odd ? 0x4342 : 0x4140)), zero));
    to[1] = bits_of(__hsub2(half2_of(__byte_perm(high ^ 0x80808080u, 0x64646464u, odd ? 0x4140 : 0x4342)), zero));
}

/* The same where rows are whole words of q8_0: two blocks are 17 of them, and the first block's numbers lie across. */
template <int T>
static __device__ __forceinline__ void word_scores(float s[T][4], const attn_args &a, const uint8_t *q,
                                                   const uint8_t *keys)
{
    const int lane = threadIdx.x & 31, words = (int)a.k_bytes / 4;
    const uint32_t *row[2] = { (const uint32_t *)keys + lane / 4 * words, NULL };

    row[1] = row[0] + 8 * words;
    q += lane * 16;
#pragma unroll 1
    for (int b = 0; b < a.n_kb; b += 2, q += 2048) {
        uint32_t hi[2][2][4];
        float d[2][2];

#pragma unroll
        for (int e = 0; e < 2; e++) {
            const uint32_t *w = row[e] + lane % 4;

            four_of(hi[0][e], w[0], w[1], true);
            four_of(hi[0][e] + 2, w[4], w[5], true);
            four_of(hi[1][e], w[9], w[9], false);
            four_of(hi[1][e] + 2, w[13], w[13], false);
            d[0][e] = half_of(row[e][0] & 0xffffu);
            d[1][e] = half_of(row[e][8] >> 16);
            row[e] += 17;
        }
        add_keys<false, T>(s, q, a.n_kb, hi[0], hi[0], d[0]);
        add_keys<false, T>(s, q + 1024, a.n_kb, hi[1], hi[1], d[1]);
    }
}

/* A type that a kernel was made for, or any. */
enum { ANY_TYPE = -1 };
template <int TYPE> static __device__ __forceinline__ int known_type(int type)
{
    return TYPE == ANY_TYPE ? type : TYPE;
}

/* A warp's 16 keys, from `first` on, with all queries, to `scores`. */
template <int T, int K>
static __device__ __forceinline__ void put_scores(float *scores, const attn_args &a, const uint8_t *q,
                                                  const uint8_t *keys, int first)
{
    const int lane = threadIdx.x & 31, g = lane / 4, c = lane % 4, type = known_type<K>(a.kv.type_k);
    float s[T][4];

#pragma unroll
    for (int e = 0; e < T * 4; e++)
        s[e / 4][e % 4] = 0.0f;
    if (type == QUANT_q8_0 && a.n_kb % 2 == 0)
        word_scores<T>(s, a, q, keys);
    else if (type == QUANT_q8_0)
        unit_scores<QUANT_q8_0, T>(s, a, q, keys);
    else if (type == QUANT_q4_0)
        unit_scores<QUANT_q4_0, T>(s, a, q, keys);
    else if (type == QUANT_f16)
        unit_scores<QUANT_f16, T>(s, a, q, keys);
    else
        unit_scores<QUANT_f32, T>(s, a, q, keys);
#pragma unroll
    for (int t = 0; t < T; t++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            scores[(t * QUERY_TILE + 2 * c + i % 2) * SCORE_PITCH + first + g + i / 2 * 8] = s[t][i];
}

/* Of the first `most` positions of a page. fresh: the newest one's key, or NULL. Ends with the block together, and
 * the room of keys given to others. !real: a warp alone, of whatever is in the first slot. */
template <int T, int K = ANY_TYPE>
static __device__ __forceinline__ void find_scores(uint8_t *scores, page_ring &in, const uint8_t *q, int most,
                                                   const uint8_t *fresh, bool real)
{
    const page_chunks &t = in.t;
    const int warp = threadIdx.x / 32, bytes = (int)in.a.k_bytes;

#pragma unroll 1
    for (int i = 0, first = 0; i < (real ? t.key_chunks : 1); i++, first += t.keys) {
        if (first < most) {
            uint8_t *rows = real ? in.come() : in.slots;
            const int local = real ? warp * UNIT_KEYS - first : 0;

            if (fresh != NULL && most - first <= t.keys)
                end_rows(rows, most - first, bytes, fresh, false);
            if (local >= 0 && local < t.keys && first + local < most)
                put_scores<T, K>((float *)scores, in.a, q, rows + local * bytes, first + local);
        }
        if (real)
            in.next();
        if (real && !t.whole)
            in.give(1);
    }
    if (real)
        in.give(t.whole ? t.key_chunks : 0);
}

/* ---- weights ---- */

/* Shared memory of a page: largest scores and sums [16][8 T], factors [8 T]. */
struct page_sums {
    float *top, *sum, *factor;
};

/* Scores at `p` become weights there, of queries 8 t + g the first n[t] positions; m: the largest score of each. real:
 * with the block together, which it is in the end; else only the instructions are wanted. */
template <int T>
static __device__ __forceinline__ void find_weights(float m[T], uint8_t *p, const page_sums &to, const int n[T],
                                                    bool real)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, g = lane / 4, c = lane % 4;
    float s[T][2][2];

#pragma unroll
    for (int t = 0; t < T; t++) {
        const float factor = to.factor[t * QUERY_TILE + g];
        float top = -CUDART_INF_F;

#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int key = i * 128 + warp * 8 + 2 * c;
            const float2 two = *(const float2 *)((const float *)p + (t * QUERY_TILE + g) * SCORE_PITCH + key);

            s[t][i][0] = two.x;
            s[t][i][1] = two.y;
#pragma unroll
            for (int e = 0; e < 2; e++)
                if (key + e < n[t])
                    top = fmaxf(top, __fmul_rn(s[t][i][e], factor));
        }
        top = quad_max(top);
        if (c == 0)
            to.top[warp * T * QUERY_TILE + t * QUERY_TILE + g] = top;
    }
    if (real)
        __syncthreads();
#pragma unroll
    for (int t = 0; t < T; t++) {
        const int at = t * QUERY_TILE + g;
        float sum = 0.0f;

        m[t] = to.top[at];
#pragma unroll
        for (int i = 1; i < PAGE_WARPS; i++)
            m[t] = fmaxf(m[t], to.top[i * T * QUERY_TILE + at]);
        m[t] = fmaxf(m[t], LEAST_SCORE);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            /* of 16 positions, 16 bytes a lane: high of positions 2 c, of 2 c + 8, low of them */
            uint32_t hi, lo, *w = (uint32_t *)(p + (t * 16 + i * 8 + warp / 2) * 512 + lane * 16) + warp % 2;

            weigh_scores(s[t][i], to.factor[at], m[t], i * 128 + warp * 8 + 2 * c, n[t], &hi, &lo);
            sum = __fadd_rn(__fadd_rn(sum, s[t][i][0]), s[t][i][1]);
            w[0] = hi;
            w[2] = lo;
        }
        sum = quad_sum(sum);
        if (c == 0)
            to.sum[warp * T * QUERY_TILE + at] = sum;
    }
    if (real)
        __syncthreads();
}

/* ---- values ---- */

/* o[2 e + i] += of queries 2 c + i, columns g of tiles 2 half + e of block vb; the first n of a chunk's values. */
template <int TYPE, int T>
static __device__ __forceinline__ void unit_values(float o[T][4], const attn_args &a, const uint8_t *p,
                                                   const uint8_t *values, int n, int vb, int half)
{
    const int lane = threadIdx.x & 31, bytes = (int)a.v_bytes;

    p += lane * 16;
#pragma unroll(T == 1 && (TYPE == QUANT_q8_0 || TYPE == QUANT_q4_0) ? 2 : 1)
    for (int j = 0; j < n; j += 16, p += 512, values += 16 * bytes) {
        uint32_t hi[2][2], lo[2][2];

        value_part<TYPE>(hi, lo, values, bytes, 16, vb, half, lane / 4, lane % 4, a.kv.dim_v);
        const uint4 h = make_uint4(hi[0][0], hi[1][0], hi[0][1], hi[1][1]);
        const uint4 l = make_uint4(lo[0][0], lo[1][0], lo[0][1], lo[1][1]);
#pragma unroll
        for (int t = 0; t < T; t++) {
            const uint4 w = *(const uint4 *)(p + t * 8192);

            mma(o[t], h, w.x, w.y);
            mma(o[t], h, w.z, w.w);
            if (TYPE != QUANT_f16)
                mma(o[t], l, w.x, w.y);
        }
    }
}

template <int T, int V>
static __device__ __forceinline__ void add_values(float o[T][4], const attn_args &a, const uint8_t *p,
                                                  const uint8_t *values, int n, int vb, int half)
{
    if (vb * DIM_BLOCK >= a.kv.dim_v)
        return;
    switch (known_type<V>(a.kv.type_v)) {
    case QUANT_f32:
        unit_values<QUANT_f32, T>(o, a, p, values, n, vb, half);
        break;
    case QUANT_f16:
        unit_values<QUANT_f16, T>(o, a, p, values, n, vb, half);
        break;
    case QUANT_q8_0:
        unit_values<QUANT_q8_0, T>(o, a, p, values, n, vb, half);
        break;
    default:
        unit_values<QUANT_q4_0, T>(o, a, p, values, n, vb, half);
        break;
    }
}

/* Of the first `most` positions of a page, with weights p. fresh: the newest one's value, or NULL. !real: a warp
 * alone, of whatever is in the first slot. */
template <int T, int V = ANY_TYPE>
static __device__ __forceinline__ void sum_values(float o[T][4], page_ring &in, uint8_t *p, int most, int vb, int half,
                                                  const uint8_t *fresh, bool real)
{
    const page_chunks &t = in.t;

#pragma unroll
    for (int e = 0; e < T * 4; e++)
        o[e / 4][e % 4] = 0.0f;
#pragma unroll 1
    for (int i = 0, first = 0; i < (real ? t.value_chunks : 1); i++, first += t.values) {
        if (first < most) {
            uint8_t *rows = real ? in.come() : in.slots;
            const int n = min(most - first, t.values);

            if (real && (most < OP_KV_PAGE || fresh != NULL) && most - first <= t.values)
                end_rows(rows, n, (int)in.a.v_bytes, fresh, true);
            add_values<T, V>(o, in.a, p + first * 32, rows, n, vb, half);
        }
        if (real)
            in.next();
        if (real && !t.whole)
            in.give(1);
    }
}
#endif
