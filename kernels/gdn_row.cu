/* SPDX-License-Identifier: Apache-2.0 */
/* gdn_row.cu - one row through a layer of gated delta rule: convolution, normalisation of keys and queries, delta rule,
 * gated norm of its output, rounding for the product that follows. Every sum has the order of the separate launches
 * (rec.cu, scan.cu, elem.cu, matvec.cuh).
 *
 * A block has 32 columns of a head's S, eight lanes a column; its last warp has those columns' values v before, and
 * their outputs, which are one unit of the product's activations, after. The blocks of a head are a cluster: each sends
 * its outputs to all, for the sum of their squares. */
#include "kernels/bulk.cuh"
#include "kernels/fused.cuh"
#include "kernels/rec.cuh"

enum { COLS = 32, STATE_WARPS = COLS / 4, THREADS = (STATE_WARPS + 1) * 32, TAPS = 4 };

struct row_args {
    const float  *in, *conv, *past; /* inputs of a channel: the newest, weights, those before */
    const float  *alpha, *beta, *a, *dt_bias;
    const float  *z, *w;            /* gate and weights of the norm; w NULL: none */
    float        *y, *state;        /* y: the delta rule's output */
    uint8_t      *rounded;
    const op_seq *seq;
    int64_t       past_floats, floats; /* of a sequence */
    int           channels, n_k, each; /* key head of h: h / each, or h % n_k where each is 0 */
    int           w_pitch;             /* of w, from head to head */
    float         eps, norm_eps;
};

/* *at = v in block `rank` of the cluster, whose *bar counts the bytes that have come. */
static __device__ __forceinline__ void send(float *at, uint64_t *bar, unsigned rank, float v)
{
    uint32_t to, counter;

    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"(shared_at(at)), "r"(rank));
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(counter) : "r"(shared_at(bar)), "r"(rank));
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to),
                 "r"(__float_as_uint(v)), "r"(counter)
                 : "memory");
}

/* The sum of squares of a head's DIM numbers, as any warp norm has it. */
template <int DIM>
static __device__ __forceinline__ float sum_squares(const float *x)
{
    float sum = 0.0f;

#pragma unroll
    for (int j = 0; j < DIM / 32; j++) {
        float v = x[(threadIdx.x & 31) + 32 * j];

        sum = __fmaf_rn(v, v, sum);
    }
    return warp_sum(sum);
}

/* One row of one column: S and the lane's part of y. */
template <int NE>
static __device__ __forceinline__ float delta_rule(float S[NE], const float *key, const float *query, int p, float v,
                                                   float g, float b)
{
    float k[NE], q[NE], kv[2] = { 0.0f, 0.0f }, y[2] = { 0.0f, 0.0f };

    lane_elements<NE>(k, key, p);
    lane_elements<NE>(q, query, p);
#pragma unroll
    for (int e = 0; e < NE; e++)
        kv[e % 2] = __fmaf_rn(S[e], k[e], kv[e % 2]);
    float d = __fmul_rn(b, __fsub_rn(v, __fmul_rn(g, fold8(__fadd_rn(kv[0], kv[1])))));
#pragma unroll
    for (int e = 0; e < NE; e++) {
        S[e] = __fmaf_rn(k[e], d, __fmul_rn(g, S[e]));
        y[e % 2] = __fmaf_rn(S[e], q[e], y[e % 2]);
    }
    return fold8(__fadd_rn(y[0], y[1]));
}

template <int DIM> struct row_space {
    float    raw[2 * DIM], keys[2 * DIM]; /* keys, then queries, before and after normalisation */
    float    values[COLS], out[DIM], gates[2];
    uint64_t sent;
    uint8_t  nowhere[256];
};

/* What a thread has before the newest inputs are there. Warp STATE_WARPS has no S. */
template <int DIM> struct row_own {
    float *at[DIM / 32], S[DIM / 8];   /* four rows each; a column's eighth */
    int    channel;                    /* -1: none */
    float  early, last, dt_bias, decay, weight;
};

template <int DIM>
static __device__ __forceinline__ void load_own(row_own<DIM> &own, const row_args &a)
{
    enum { NE = DIM / 8 };
    const int t = threadIdx.x, lane = t & 31, warp = t / 32, p = lane & 7;
    const int h = blockIdx.y, hk = a.each > 0 ? h / a.each : h % a.n_k, first = blockIdx.x * COLS;
    const bool state = warp < STATE_WARPS;
    const int64_t slot = a.seq->slot;

    own.channel = !state        ? (2 * a.n_k + h) * DIM + first + lane
                  : t < DIM     ? (a.n_k + hk) * DIM + t
                  : t < 2 * DIM ? hk * DIM + t - DIM
                                : -1;
    own.early = own.last = 0.0f;
    if (own.channel >= 0) {
        const float *w = a.conv + own.channel, *past = a.past + slot * a.past_floats + own.channel;
#pragma unroll
        for (int j = 0; j + 1 < TAPS; j++)
            own.early = __fmaf_rn(w[j * (int64_t)a.channels], past[j * (int64_t)a.channels], own.early);
        own.last = w[(TAPS - 1) * (int64_t)a.channels];
    }
    own.dt_bias = a.dt_bias[h];
    own.decay = a.a[h];
    own.weight = !state && a.w != NULL ? a.w[h * a.w_pitch + first + lane] : 1.0f;
#pragma unroll
    for (int e = 0; e < NE; e += 4)
        own.at[e / 4] = a.state + slot * a.floats +
                        ((h * DIM + element_at<NE>(p, e)) * DIM + first + warp * 4 + lane / 8);
#pragma unroll
    for (int e = 0; e < NE; e++)
        own.S[e] = state ? own.at[e / 4][e % 4 * DIM] : 0.0f;
}

/* All that comes after the inputs; !real: on zeros, and nothing is kept. */
template <int DIM>
static __device__ __forceinline__ void row_pass(row_space<DIM> &s, const row_own<DIM> &own, const row_args &a,
                                                bool real)
{
    enum { NE = DIM / 8 };
    const int t = threadIdx.x, lane = t & 31, warp = t / 32, p = lane & 7, local = warp * 4 + lane / 8;
    const int h = blockIdx.y, first = blockIdx.x * COLS, units = gridDim.y * (DIM / COLS);
    const bool in = own.channel >= 0;
    const float x = real && in ? a.in[own.channel] : 0.0f;
    float v, gate = 0.0f, S[NE];

    if (warp == STATE_WARPS) {
        const float alpha = real ? a.alpha[h] : 0.0f, beta = real ? a.beta[h] : 0.0f;
        const float z = real ? a.z[h * DIM + first + lane] : 0.0f;

        gate = silu(z);
        s.gates[0] = expf(__fmul_rn(own.decay, softplus(__fadd_rn(alpha, own.dt_bias))));
        s.gates[1] = sigmoid(beta);
    }
    v = silu(__fmaf_rn(own.last, x, own.early));
    if (in)
        (warp == STATE_WARPS ? s.values + lane : s.raw + t)[0] = v;
    __syncthreads();
    if (t < 2 * DIM) {
        const float scale = t < DIM ? 1.0f : __fdiv_rn(1.0f, __fsqrt_rn((float)DIM));
        const float sum = sum_squares<DIM>(s.raw + t / DIM * DIM);

        s.keys[t] = __fmul_rn(v, __fdiv_rn(scale, __fsqrt_rn(__fadd_rn(sum, a.eps))));
    }
    __syncthreads();
    if (warp < STATE_WARPS) {
#pragma unroll
        for (int e = 0; e < NE; e++)
            S[e] = own.S[e];
        const float y = delta_rule<NE>(S, s.keys, s.keys + DIM, p, s.values[local], s.gates[0], s.gates[1]);

        if (!real)
            return;
        if (p < DIM / COLS)
            send(&s.out[first + local], &s.sent, p, y);
        else if (p == 7)
            a.y[h * DIM + first + local] = y;
#pragma unroll
        for (int e = 0; e < NE; e++)
            own.at[e / 4][e % 4 * DIM] = S[e];
        return;
    }
    if (real)
        bar_wait(&s.sent, 0);
    float y = __fmul_rn(s.out[first + lane], norm_factor(sum_squares<DIM>(s.out), DIM, a.norm_eps));
    if (a.w != NULL)
        y = __fmul_rn(y, own.weight);
    round_unit(real ? a.rounded : s.nowhere, real ? units : 2, __fmul_rn(gate, y),
               real ? h * (DIM / COLS) + (int)blockIdx.x : 0);
}

/* grid: columns (a cluster), head; DIM: of keys and of values. A first pass only brings the instructions: fetched when
 * the inputs are there they cost 1 us of each launch. */
template <int DIM>
__global__ void __cluster_dims__(DIM / COLS) __launch_bounds__(THREADS) gdn_row(const __grid_constant__ row_args a)
{
    __shared__ __align__(16) row_space<DIM> s;
    row_own<DIM> own;

    if (threadIdx.x == 0) {
        bar_init(&s.sent, 1);
        bar_init_done();
        bar_expect(&s.sent, DIM * sizeof(float));
    }
    asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
    let_next_begin();
    /* the memories are of earlier steps: they may be read before the launch before this one has ended */
    load_own(own, a);
#pragma unroll 1
    for (int pass = 0; pass < 2; pass++) {
        if (pass == 1) {
            asm volatile("barrier.cluster.wait;" ::: "memory"); /* its blocks are there, and ready to be sent to */
            __syncthreads();
            wait_for_inputs();
        }
        row_pass<DIM>(s, own, a, pass == 1);
    }
}

template <int DIM>
static void launch_row(struct cuda *c, const row_args &a, int heads)
{
    launch_early(c, "gdn_row", gdn_row<DIM>, dim3(DIM / COLS, (unsigned)heads), THREADS, 0, a);
}

bool cuda_fused_gdn(struct cuda *c, const struct node *conv, const struct node *gdn, const struct node *norm,
                    uint8_t *rounded)
{
    const struct op_gdn &d = gdn->gdn;
    row_args a = {};

    if ((d.dim != 32 && d.dim != 64 && d.dim != 128) || d.dim_v != d.dim || norm->i[1] != d.dim_v ||
        conv->conv.taps != TAPS || conv->conv.bias != NULL || !conv->conv.silu)
        return false;
    a.in = (const float *)conv->t[1].data;
    a.conv = conv->conv.w;
    a.past = conv->conv.rec.data;
    a.past_floats = conv->conv.rec.floats;
    a.channels = (int)conv->t[1].ne[0];
    a.alpha = (const float *)gdn->t[2].data;
    a.beta = (const float *)gdn->t[3].data;
    a.a = d.a;
    a.dt_bias = d.dt_bias;
    a.eps = d.eps;
    a.n_k = d.n_k;
    a.each = d.k_grouped ? d.n_v / d.n_k : 0;
    a.y = (float *)gdn->t[0].data;
    a.state = d.rec.data;
    a.floats = d.rec.floats;
    a.seq = gdn->r.seq;
    a.z = (const float *)norm->t[2].data;
    a.w = (const float *)norm->p[0];
    a.w_pitch = norm->i[0] != norm->i[1] ? d.dim_v : 0;
    a.norm_eps = norm->f[0];
    a.rounded = rounded;
    if (d.dim == 32)
        launch_row<32>(c, a, d.n_v);
    else if (d.dim == 64)
        launch_row<64>(c, a, d.n_v);
    else
        launch_row<128>(c, a, d.n_v);
    return true;
}
