/* SPDX-License-Identifier: Apache-2.0 */
/* moe_r1.cu - mixture of experts for one token, in two kernels: router, experts, shared expert and residual. */
#include "kernels/common/tma.cuh"
#include "kernels/moe/pick_experts_warp.cuh"
#include "kernels/device/fused.cuh"
#include "kernels/gemm/gemv_r1_mma.cuh"

enum { EXPERTS = 512, UP_WARPS = 8, COPIES = 4 /* of what a format looks up */ };
typedef copied_tables<COPIES> copied;

/* Formats of which a strip comes to shared memory as it lies, where what it looks up is as well: from the first-level
 * cache a lane would take many small pieces, and 32 lanes' numbers would be requests of their own. */
static __host__ __device__ constexpr bool is_brought(int type)
{
    return type == QUANT_iq3_s;
}

/* Its place in shared memory: copies begin and end at multiples of 16 bytes. */
static __host__ __device__ inline int strip_space(const expert_matrix &m)
{
    return m.w != NULL && is_brought(m.type) ? (int)m.row_bytes * STRIP + 32 : 0;
}

/* By one thread: n bytes on their way; they begin as far from a multiple of 16 as there. */
static __device__ __forceinline__ void copy_strip(uint8_t *to, const uint8_t *from, int n, uint64_t *bar)
{
    const int before = (int)((uintptr_t)from & 15);

    bulk_copy(to, from - before, (unsigned)(before + n + 15) & ~15u, bar);
}

/* The `many` experts with the best keys; a lane has EACH of the keys. */
template <int EACH>
static __device__ __forceinline__ void pick_experts(const uint32_t *keys, int n, int many, int *expert)
{
    const int lane = threadIdx.x & 31;
    uint32_t key[EACH];

#pragma unroll
    for (int j = 0; j < EACH; j++)
        key[j] = lane * EACH + j < n ? keys[lane * EACH + j] : 0;
    pick_best<EACH>(key, many, expert);
}

static __device__ __noinline__ void pick_of_many(const uint32_t *keys, int n, int many, int *expert)
{
    pick_experts<EXPERTS / 32>(keys, n, many, expert);
}

/* One warp: probabilities that are not divided yet, and what by. Few need it. */
static __device__ __noinline__ void soften(float *prob, int n, float *divisor)
{
    const int lane = threadIdx.x & 31;
    float top = -CUDART_INF_F, sum = 0.0f;

#pragma unroll 1
    for (int i = lane; i < n; i += 32)
        top = fmaxf(top, prob[i]);
    for (int half = 16; half > 0; half /= 2)
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, half));
#pragma unroll 1
    for (int i = lane; i < n; i += 32) {
        float p = expf(prob[i] - top);

        sum += p;
        prob[i] = p;
    }
    sum = warp_sum(sum);
    if (lane == 0)
        *divisor = sum;
}

/* One block; the choice and the order of operations of moe/router.cu: the `many` best experts. keeps: it also tells
 * what they are, which the next launch reads before it waits, and makes their weights, all of them; !real: of zeros,
 * which goes nowhere. */
static __device__ __forceinline__ void choose_experts(const fused_up &f, int *expert, int many, bool keeps, bool real)
{
    __shared__ float prob[EXPERTS], divisor;
    __shared__ uint32_t key[EXPERTS];
    const int n = f.r.n_expert, warp = threadIdx.x / 32, lane = threadIdx.x & 31;

#pragma unroll 1
    for (int i = threadIdx.x; i < n; i += UP_WARPS * 32) {
        float p = real ? f.logits[i] : 0.0f;

        p = f.r.sigmoid ? sigmoid(p) : p;
        prob[i] = p;
        key[i] = key_of(p + (f.r.bias == NULL ? 0.0f : f.r.bias[i]));
    }
    __syncthreads();
    if (warp == 0) {
        if (n <= EXPERTS / 2)
            pick_experts<EXPERTS / 64>(key, n, many, expert);
        else
            pick_of_many(key, n, many, expert);
        if (keeps && real) {
            if (lane < many)
                f.expert[lane] = expert[lane];
            __threadfence();
            __syncwarp();
            let_next_begin();
        }
    } else if (warp == 1 && keeps && !f.r.sigmoid) {
        soften(prob, n, &divisor);
    }
    __syncthreads();
    if (keeps && warp == 0) {
        float p = lane < many ? prob[expert[lane]] : 0.0f, sum = 0.0f;

        p = f.r.sigmoid ? p : __fdiv_rn(p, divisor);
#pragma unroll 1
        for (int k = 0; k < many; k++)
            sum += __shfl_sync(0xffffffffu, p, k);
        p = f.r.normalise ? __fdiv_rn(p, fmaxf(sum, 0x1p-14f)) : p;
        if (lane < many && real)
            f.weight[lane] = __fmul_rn(p, f.r.scale);
    }
    if (keeps)
        __syncthreads(); /* before the next pass writes what has been read */
}

/* By a whole block: the row to the host, or word that there is nothing for it. */
static __device__ __noinline__ void hand_over_row(const fused_up &f, const int *expert, const int *slots)
{
    if (hand_any(expert, f.r.n_used, slots)) {
        hand_row(f.hand, 0, f.floats, f.k);
        hand_give(f.hand, expert, f.r.n_used);
    } else if (threadIdx.x == 0) {
        hand_pass(f.hand);
    }
}

/* By a whole block, before the inputs are there, which say what of it is read: where experts are; NULL: all are
 * here. */
static __device__ __forceinline__ void load_slots(int *slots, const int *slot, int n)
{
    if (slot == NULL)
        return;
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        slots[i] = slot[i];
    __syncthreads();
}

/* Strips in shared memory, `space` apart, what hears of each, and what is looked up. */
struct near_strips {
    uint8_t *at;
    uint64_t *bar;
    int space;
    const copied *tab;
};

/* Waits for strip i, which is a copy of what lies at w. */
static __device__ __forceinline__ const uint8_t *brought(const near_strips &near, int i, const uint8_t *w)
{
    bar_wait(near.bar + i, 0);
    return near.at + i * near.space + ((uintptr_t)w & 15);
}

/* A strip, by a whole block, to shared memory, as number i, or nearer. */
template <bool BRING>
static __device__ __forceinline__ void fetch_strip(const expert_matrix &m, const uint8_t *w, int rows,
                                                   const near_strips &to, int i)
{
    if (!BRING || !is_brought(m.type))
        prefetch(w, rows * (int)m.row_bytes, threadIdx.x, UP_WARPS * 32);
    else if (threadIdx.x == 0 && rows > 0)
        copy_strip(to.at + i * to.space, w, rows * (int)m.row_bytes, to.bar + i);
}

/* Values of a strip of a matrix and, unless NULL, of another one of its format, whose values follow; first: the strip's
 * number if it is brought. */
template <int TYPE, bool EIGHT>
static __device__ __forceinline__ void up_times(const uint8_t *one, const uint8_t *other, uint32_t row_bytes, int rows,
                                                const fused_up &f, float *values, const near_strips &near, int first)
{
    const int segments = row_segments(f.k);

#pragma unroll 1
    for (int b = threadIdx.x / 32; b < 2 * segments; b += UP_WARPS) {
        const int units = f.k / 32 - b * 8;
        float *to = values + b / 2 * V_SEGMENT + b % 2 * 8;
        strip<TYPE> s;
        strip_x<TYPE> x;

        load_x<TYPE>(x, f.x + b * (4 * X_PAIR), units, EIGHT);
#pragma unroll 1
        for (int i = 0; i < 1 + (other != NULL); i++) {
            const uint8_t *w = i == 0 ? one : other;

            if (is_brought(TYPE) && units <= 0) {
                no_values(to + i * segments * V_SEGMENT);
            } else if constexpr (is_brought(TYPE)) {
                load_strip<TYPE, true>(s, brought(near, first + i, w), row_bytes, rows, b, units);
                strip_times<TYPE>(s, x, units, EIGHT, near.tab, to + i * segments * V_SEGMENT);
            } else {
                load_strip<TYPE>(s, w, row_bytes, rows, b, units);
                strip_times<TYPE>(s, x, units, EIGHT, f.tab, to + i * segments * V_SEGMENT);
            }
        }
    }
}

/* grid: strips of ff; the shared expert, after it a block that keeps the choice and, with a hand-over, gives the row to
 * the host, or says that it does not; then the chosen experts, the later the longer they take to be known. */
template <bool EIGHT, int... TYPES>
__global__ void __launch_bounds__(UP_WARPS * 32, 3) fused_up_rows(const __grid_constant__ fused_up f)
{
    extern __shared__ __align__(16) float values[]; /* of up, of gate; tables; strips of up, of gate */
    __shared__ int expert[FUSED_USED], slots[EXPERTS];
    __shared__ uint64_t bar[2];
    constexpr bool BRING = (is_brought(TYPES) || ...);
    const int segments = row_segments(f.k), bits = row_lane_bits(segments), r0 = (int)blockIdx.x * STRIP;
    const bool shared = f.sh.up.w != NULL && blockIdx.y == 0;
    const int use = (int)blockIdx.y - (f.sh.up.w != NULL) - 1;
    const bool keeps = use < 0 && !shared;
    const expert_up &m = shared ? f.sh : f.routed;
    const int rows = min(m.ff - r0, (int)STRIP);
    const bool gated = m.gate.w != NULL;
    float *gates = values + segments * V_SEGMENT;
    copied *tab = (copied *)(gates + segments * V_SEGMENT);
    const near_strips to = { (uint8_t *)(tab + 1), bar, f.space, tab };
    int matrix = 0;

    if (keeps && blockIdx.x > 0)
        return;
    if (BRING && f.space > 0) {
        if (threadIdx.x < 2)
            bar_init(bar + threadIdx.x, 1);
        bar_init_done();
        bring_tables<QUANT_iq3_s>(*tab, f.tab);
        __syncthreads();
    }
    if (shared) {
        fetch_strip<BRING>(m.up, m.up.w + r0 * m.up.row_bytes, rows, to, 0);
        if (gated)
            fetch_strip<BRING>(m.gate, m.gate.w + r0 * m.gate.row_bytes, rows, to, 1);
        wait_for_inputs();
    } else {
        load_slots(slots, f.slot, f.r.n_expert);
        if (!keeps)
            let_next_begin();
#pragma unroll 1
        for (int pass = 0; pass < 2; pass++) { /* the first only brings the instructions */
            if (pass == 1)
                only_wait_for_inputs();
            choose_experts(f, expert, keeps ? f.r.n_used : use + 1, keeps, pass == 1);
        }
        if (keeps && f.slot != NULL)
            hand_over_row(f, expert, slots);
        if (keeps)
            return;
        matrix = f.slot == NULL ? expert[use] : slots[expert[use]];
        if (matrix < 0)
            return;
    }
    if (rows <= 0)
        return;
    const uint8_t *up_w = m.up.w + matrix * m.up.expert_bytes + r0 * m.up.row_bytes;
    const uint8_t *gate_w = gated ? m.gate.w + matrix * m.gate.expert_bytes + r0 * m.gate.row_bytes : NULL;
    const bool alike = gated && m.gate.type == m.up.type;
    if (!BRING || !shared) {
        fetch_strip<BRING>(m.up, up_w, rows, to, 0);
        if (gated)
            fetch_strip<BRING>(m.gate, gate_w, rows, to, 1);
    }
#pragma unroll 1
    for (int i = 0; i < 1 + (gated && !alike); i++) {
        const expert_matrix &one = i == 0 ? m.up : m.gate;

        ((one.type == TYPES ? up_times<TYPES, EIGHT>(i == 0 ? up_w : gate_w, alike ? gate_w : NULL,
                                                     (uint32_t)one.row_bytes, rows, f, i == 0 ? values : gates, to, i)
                            : (void)0),
         ...);
    }
    __syncthreads();
    const int row = threadIdx.x >> bits, part = threadIdx.x & ((1 << bits) - 1);
    if ((int)(threadIdx.x & ~31u) >> bits >= STRIP) /* a warp's threads go together */
        return;
    const float *dx = x_scales(f.x, x_pairs(f.k));
    const int at = min(row, STRIP - 1) * V_PITCH;
    const bool up_groups = has_groups(m.up.type, EIGHT), gate_groups = has_groups(m.gate.type, EIGHT);
    float up = row_sum(values + at, dx, part, segments, up_groups);
    float in = gated ? row_sum(gates + at, dx, part, segments, gate_groups) : up;
    const int64_t out = (int64_t)(shared ? 0 : use) * m.ff + r0 + row;
    if (part > 0 || row >= rows)
        return;
    if (m.raw) {
        m.hid[out] = up;
        if (gated)
            m.gates[out] = in;
        return;
    }
    up = gated ? up : 1.0f;
    float pos = fmaxf(in, 0.0f);
    m.hid[out] = m.act == OP_SILU ? __fmul_rn(silu(in), up) : __fmul_rn(__fmul_rn(pos, pos), up);
}

/* ---- kernels for one format or two; the one for all has code that comes late (gemm/gemv_r1_fused.cu) ---- */

static constexpr int common[] = {
#define X(name) QUANT_##name,
    GEMM_COMMON(X)
#undef X
};
enum { COMMON = sizeof common / sizeof *common };

static unsigned type_bit(const struct expert_matrix &m)
{
    unsigned bit = 0;

    for (int i = 0; i < COMMON; i++)
        bit |= m.w != NULL && m.type == common[i] ? 1u << i : 0;
    return bit;
}

template <bool EIGHT, int... TYPES> struct up_kernel {
    static constexpr auto at = fused_up_rows<EIGHT, TYPES...>;
};

template <template <bool, int...> class KERNEL, bool EIGHT, int... TYPES> static constexpr auto all_of(void)
{
    return KERNEL<EIGHT, TYPES...>::at;
}

template <template <bool, int...> class KERNEL, bool EIGHT, int I = 0, int J = 0> static auto kernel_of(unsigned types)
{
#define X(name) , QUANT_##name
    if constexpr (I == COMMON)
        return all_of<KERNEL, EIGHT GEMM_COMMON(X)>();
#undef X
    else if constexpr (J == COMMON)
        return kernel_of<KERNEL, EIGHT, I + 1, I + 1>(types);
    else if (types != (1u << I | 1u << J))
        return kernel_of<KERNEL, EIGHT, I, J + 1>(types);
    else if constexpr (I == J)
        return KERNEL<EIGHT, common[I]>::at;
    else
        return KERNEL<EIGHT, common[I], common[J]>::at;
}

/* Experts of another format, and a shared one of that or of these; NULL: there is none. */
template <template <bool, int...> class KERNEL, bool EIGHT, int TYPE> static auto beside(int shared)
{
    const auto alone = KERNEL<EIGHT, TYPE>::at;

    switch (shared) {
#define X(name) \
    case QUANT_##name: \
        return KERNEL<EIGHT, TYPE, QUANT_##name>::at;
        GEMM_COMMON_K(X)
        X(q8_0)
#undef X
    default:
        return shared == TYPE ? alone : (decltype(alone))NULL;
    }
}

/* For matrices of routed experts and of the shared one, two of each or one twice. */
template <template <bool, int...> class KERNEL, bool EIGHT>
static auto kernel_for(const expert_matrix m[2], const expert_matrix sh[2])
{
    const auto other = KERNEL<EIGHT, common[0]>::at;
    unsigned types = 0;
    bool usual = true;

    for (int i = 0; i < 2; i++) {
        types |= type_bit(m[i]) | type_bit(sh[i]);
        usual =
            usual && (m[i].w == NULL || cuda_is_common(m[i].type)) && (sh[i].w == NULL || cuda_is_common(sh[i].type));
    }
    if (usual)
        return kernel_of<KERNEL, EIGHT>(types);
    if ((m[0].w != NULL && m[0].type != m[1].type) || (sh[0].w != NULL && sh[0].type != sh[1].type))
        return (decltype(other))NULL;
    const int shared = sh[1].w != NULL ? sh[1].type : m[1].type;
    switch (m[1].type) {
#define X(name) \
    case QUANT_##name: \
        return beside<KERNEL, EIGHT, QUANT_##name>(shared);
        GEMM_ONE_ROW(X)
#undef X
    default:
        return (decltype(other))NULL;
    }
}

static int larger_of(int a, int b)
{
    return a > b ? a : b;
}

static int up_strip(const struct expert_up &m)
{
    return larger_of(strip_space(m.up), strip_space(m.gate));
}

static size_t up_smem(const struct fused_up *f)
{
    const int space = larger_of(up_strip(f->routed), up_strip(f->sh));

    return 2 * (size_t)row_segments(f->k) * V_SEGMENT * sizeof(float) +
           (space > 0 ? sizeof(copied) + 2 * (size_t)space : 0);
}

static auto up_kernel_for(const struct fused_up *f)
{
    const expert_matrix m[2] = { f->routed.gate, f->routed.up }, sh[2] = { f->sh.gate, f->sh.up };

    return f->eight ? kernel_for<up_kernel, true>(m, sh) : kernel_for<up_kernel, false>(m, sh);
}

bool cuda_fused_up_fits(const struct fused_up *f)
{
    return up_kernel_for(f) != NULL && up_smem(f) <= FUSED_SMEM;
}

void cuda_fused_up(struct cuda *c, struct fused_up *f)
{
    const bool shared = f->sh.up.w != NULL;
    int most = shared && f->sh.ff > f->routed.ff ? f->sh.ff : f->routed.ff;
    dim3 grid((unsigned)ceil_div(most, STRIP), (unsigned)(f->r.n_used + 1 + shared));

    f->space = larger_of(up_strip(f->routed), up_strip(f->sh));
    launch_early(c, "fused_up", up_kernel_for(f), grid, UP_WARPS * 32, up_smem(f), *f);
}

/* Shared memory for a row of k: rounded, and values of a strip. */
static __host__ __device__ inline int row_space(int k)
{
    return (int)x_row_bytes(k) + row_segments(k) * V_SEGMENT * (int)sizeof(float);
}

/* A warp's blocks of an expert's row, which it rounds itself: from its first one on every second. Weights are asked for
 * before the inputs are there. */
template <int TYPE>
static __device__ __forceinline__ void down_times(const uint8_t *w, uint32_t row_bytes, int rows, const float *hid,
                                                  int k, int first, uint8_t *xq, bool eight, const struct tables *tab,
                                                  float *values, const near_strips &near, int strip_no)
{
    const int lane = threadIdx.x & 31;

#pragma unroll 1
    for (int b = first; b < 2 * row_segments(k); b += 2) {
        const int units = k / 32 - b * 8, i = b * 256 + lane * 8;
        float x[8] = {};
        strip<TYPE> s;
        strip_x<TYPE> sx;

        if (!is_brought(TYPE))
            load_strip<TYPE>(s, w, row_bytes, rows, b, units);
        if (b == first)
            wait_for_inputs();
        if (i < k) {
            const float4 *from = (const float4 *)(hid + i);

            *(float4 *)x = from[0];
            *(float4 *)(x + 4) = from[1];
        }
        quantise_values(xq, x_pairs(k), x, i / 64, lane % 8, ~0u, eight, i / 64 < x_pairs(k));
        __syncwarp();
        load_x<TYPE>(sx, xq + b * (4 * X_PAIR), units, eight);
        float *to = values + b / 2 * V_SEGMENT + b % 2 * 8;
        if (is_brought(TYPE) && units <= 0) {
            no_values(to);
        } else if constexpr (is_brought(TYPE)) {
            load_strip<TYPE, true>(s, brought(near, strip_no, w), row_bytes, rows, b, units);
            strip_times<TYPE>(s, sx, units, eight, near.tab, to);
        } else {
            strip_times<TYPE>(s, sx, units, eight, tab, to);
        }
    }
}

/* By a whole block. */
static __device__ __noinline__ void await_host(const fused_down &f)
{
    if (threadIdx.x == 0)
        hand_await(f.hand, blockIdx.x == 0);
    __syncthreads();
}

/* From the second-level cache, asked for here: the first may have an older one. */
static __device__ __forceinline__ int far_int(const int *p)
{
    int v;

    asm volatile("ld.global.cg.s32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}

/* 16 rows a block; two warps an expert, the last ones the shared expert. */
template <bool EIGHT, int... TYPES>
__global__ void __launch_bounds__(64 * (FUSED_USED + 1), 1) fused_down_rows(const __grid_constant__ fused_down f)
{
    extern __shared__ __align__(16)
        uint8_t shared[]; /* a row's space for each expert; at near_at what is looked up; strips */
    __shared__ float sums[FUSED_USED + 1][STRIP];
    __shared__ int slots[EXPERTS];
    __shared__ uint64_t bar[FUSED_USED + 1];
    __shared__ adapt_near near;
    constexpr bool BRING = (is_brought(TYPES) || ...);
    static_assert(NEAR_EXPERTS > FUSED_USED && NEAR_ROWS == STRIP, "what is brought of adapters");
    const int e = threadIdx.x / 64, r0 = (int)blockIdx.x * STRIP, rows = min(f.n - r0, (int)STRIP);
    const bool routed = e < f.n_used;
    const int k = routed ? f.ff : f.sh_ff, pitch = row_space(f.ff);
    const expert_matrix &m = routed ? f.routed : f.sh;
    uint8_t *xq = shared + e * pitch;
    copied *tab = (copied *)(shared + f.near_at);
    const near_strips to = { (uint8_t *)(tab + 1), bar, f.space, tab };
    const bool brings = BRING && is_brought(m.type) && threadIdx.x % 64 == 0;

    let_next_begin();
    /* told before the launch before this one let it begin: choose_experts() */
    const int expert = routed ? far_int(f.expert + e) : 0;
    if (!routed)
        prefetch(m.w + r0 * m.row_bytes, rows * (int)m.row_bytes, threadIdx.x & 63, 64);
    load_slots(slots, f.slot, f.n_expert);
    if (f.added.near)
        bring_near(near, f.added, f.expert, f.n_used, blockDim.x / 64, r0, rows);
    const int matrix = !routed ? 0 : f.slot == NULL ? expert : slots[expert];
    const bool away = matrix < 0;
    const uint8_t *w = m.w + matrix * m.expert_bytes + r0 * m.row_bytes;
    if (BRING && f.space > 0) {
        if (brings)
            bar_init(bar + e, 1);
        bar_init_done();
        __syncwarp();
        if (brings && !away)
            copy_strip(to.at + e * to.space, w, rows * (int)m.row_bytes, bar + e);
        bring_tables<QUANT_iq3_s>(*tab, f.tab);
        __syncthreads();
    }
    if (away) {
        wait_for_inputs();
    } else {
        const float *hid = routed ? f.hid + e * f.ff : f.sh_hid;

        ((m.type == TYPES ? down_times<TYPES>(w, (uint32_t)m.row_bytes, rows, hid, k, threadIdx.x / 32 % 2, xq, EIGHT,
                                              f.tab, (float *)(xq + x_row_bytes(k)), to, e)
                          : (void)0),
         ...);
    }
    const int sure = routed && threadIdx.x % 64 == 0 ? far_int(f.expert + e) : expert;
    float weight[FUSED_USED], open = 0.0f, res = 0.0f; /* read before they are needed */
    if ((int)threadIdx.x < rows) {
#pragma unroll
        for (int i = 0; i < FUSED_USED; i++)
            weight[i] = i < f.n_used ? f.weight[i] : 0.0f;
        open = f.sh_open != NULL ? *f.sh_open : 0.0f;
        res = f.res != NULL ? f.res[r0 + threadIdx.x] : 0.0f;
    }
    if (__syncthreads_or(away))
        await_host(f);
    if (threadIdx.x < blockDim.x / 64 * STRIP) {
        const int of = threadIdx.x / STRIP, row = threadIdx.x % STRIP, its = of < f.n_used ? f.ff : f.sh_ff;
        const bool far = f.slot != NULL && of < f.n_used && slots[f.expert[of]] < 0;
        const uint8_t *own = shared + of * pitch;
        const float *dx = x_scales(own, x_pairs(its)), *v = (const float *)(own + x_row_bytes(its)) + row * V_PITCH;
        const bool groups = has_groups(of < f.n_used ? f.routed.type : f.sh.type, EIGHT);
        float sum = 0.0f;

#pragma unroll 1
        for (int i = 0; !far && i < row_segments(its); i++)
            sum = __fadd_rn(sum, segment_sum(v + i * V_SEGMENT, dx + i * 16, groups));
        if (far && row < rows)
            sum = __ldcv(f.hand.out + (int64_t)of * f.n + r0 + row);
        if (f.added.list != NULL && !far && row < rows)
            sum = f.added.near
                      ? adapted_near(near, f.added, sum, of, row)
                      : adapted_down(f.added, sum, of, of < f.n_used, of < f.n_used ? f.expert[of] : 0, r0 + row);
        sums[of][row] = sum;
    }
    __syncthreads();
    if ((int)threadIdx.x < rows) {
        float sum = 0.0f;

#pragma unroll
        for (int i = 0; i < FUSED_USED; i++)
            if (i < f.n_used)
                sum = __fmaf_rn(weight[i], sums[i][threadIdx.x], sum);
        if (f.sh.w != NULL)
            sum = __fmaf_rn(f.sh_open != NULL ? sigmoid(open) : 1.0f, sums[f.n_used][threadIdx.x], sum);
        f.y[r0 + threadIdx.x] = sum;
        if (f.res != NULL)
            f.res[r0 + threadIdx.x] = __fmaf_rn(f.scale, sum, res);
    }
    if (sure != expert)
        __trap(); /* it was not: the step fails */
}

/* Of rows, in what a block of second products has of shared memory. */
static size_t row_spaces(const struct fused_down *f)
{
    return (size_t)f->n_used * row_space(f->ff) + (f->sh.w != NULL ? row_space(f->sh_ff) : 0);
}

static int down_strip(const struct fused_down *f)
{
    return larger_of(strip_space(f->routed), strip_space(f->sh));
}

static size_t down_smem(const struct fused_down *f)
{
    const int space = down_strip(f);

    return row_spaces(f) + (space > 0 ? sizeof(copied) + (size_t)(f->n_used + (f->sh.w != NULL)) * (size_t)space : 0);
}

template <bool EIGHT, int... TYPES> struct down_kernel {
    static constexpr auto at = fused_down_rows<EIGHT, TYPES...>;
};

static auto down_kernel_for(const struct fused_down *f)
{
    const expert_matrix m[2] = { f->routed, f->routed }, sh[2] = { f->sh, f->sh };

    return f->eight ? kernel_for<down_kernel, true>(m, sh) : kernel_for<down_kernel, false>(m, sh);
}

bool cuda_fused_down_fits(const struct fused_down *f)
{
    return down_kernel_for(f) != NULL && down_smem(f) <= FUSED_SMEM;
}

void cuda_fused_down(struct cuda *c, struct fused_down *f)
{
    f->near_at = (int)row_spaces(f);
    f->space = down_strip(f);
    launch_early(c, "fused_down", down_kernel_for(f), dim3((unsigned)ceil_div(f->n, STRIP)),
                 64u * (f->n_used + (f->sh.w != NULL)), down_smem(f), *f);
}
