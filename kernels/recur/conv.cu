/* SPDX-License-Identifier: Apache-2.0 */
/* conv.cu - causal convolution, the inputs of the recurrences in recur/scan.cu, and Mamba's scan. */
#include "kernels/recur/state.cuh"

/* ---- convolution ---- */

enum { TAPS = 16, CONV_TILE = 16, FOUR = 4 /* taps, and channels of a thread */, AHEAD = 8 };

/* Input of row t of the sequence: of the step, of the log, or stored. */
static __device__ __forceinline__ const float *conv_in(const conv_args &a, const op_seq &s, int t, int c)
{
    const op_rec &rec = a.a.rec;

    if (t >= 0)
        return a.x + (s.row + t) * a.xs + c;
    if (t >= -s.again)
        return log_row(rec.log, s, t) + c;
    return rec.data + s.slot * rec.floats + (int64_t)(a.back + t + s.again) * a.channels + c;
}

/* Where the output of row t goes. */
static __device__ __forceinline__ float *conv_out(const conv_args &a, const op_seq &s, int t, int c)
{
    const int64_t row = t >= 0 ? s.row + t : a.r.n + (int64_t)blockIdx.y * a.a.rec.log.most + s.again + t;

    return a.y + row * a.ys + c;
}

/* The memory after the last certain row, and the log. */
static __device__ __forceinline__ void conv_update(const conv_args &a, const op_seq &s, int c)
{
    float *past = a.a.rec.data + s.slot * a.a.rec.floats + c, keep[TAPS];
    const int old = a.back;

    for (int j = 0; j < old; j++)
        keep[j] = *conv_in(a, s, s.n - s.drafts - old + j, c);
    for (int j = 0; j < old; j++)
        past[(int64_t)j * a.channels] = keep[j];
    for (int t = s.n - s.logged; t < s.n; t++)
        log_row(a.a.rec.log, s, t)[c] = a.x[(s.row + t) * a.xs + c];
}

/* grid: channels, sequence, tile of rows; one tile: updates the memory too. The first tile begins with rows that are
 * computed again. */
template <bool ONE> __global__ void __launch_bounds__(128) conv(const __grid_constant__ conv_args a)
{
    int c = blockIdx.x * 128 + threadIdx.x, taps = a.a.taps, apart = max(a.a.apart, 1);
    const op_seq &s = a.r.seq[blockIdx.y];
    int t0 = blockIdx.z == 0 ? (a.again ? -s.again : 0) : (int)blockIdx.z * CONV_TILE;
    int t1 = ONE ? s.n : min((int)blockIdx.z * CONV_TILE + CONV_TILE, s.n);

    if (c >= a.channels)
        return;
    for (int t = t0; t < t1; t++) {
        float sum = a.a.bias == NULL ? 0.0f : a.a.bias[c];

        for (int j = 0; j < taps; j++)
            sum = __fmaf_rn(a.a.w[(int64_t)j * a.channels + c], *conv_in(a, s, t - (taps - 1 - j) * apart, c), sum);
        *conv_out(a, s, t, c) = a.a.silu ? silu(sum) : sum;
    }
    if (ONE)
        conv_update(a, s, c);
}

__global__ void __launch_bounds__(128) conv_memory(const __grid_constant__ conv_args a)
{
    int c = blockIdx.x * 128 + threadIdx.x;

    if (c < a.channels)
        conv_update(a, a.r.seq[blockIdx.y], c);
}

/* Four taps, four channels of a thread, CONV_TILE rows: each input is read once. grid as above. */
__global__ void __launch_bounds__(128) conv4(const __grid_constant__ conv_args a)
{
    const int c = (blockIdx.x * 128 + threadIdx.x) * FOUR, tile = (int)blockIdx.z * 2 * CONV_TILE;
    const op_seq &s = a.r.seq[blockIdx.y];
    const int t0 = tile == 0 && a.again ? -s.again : tile, t1 = min(tile + 2 * CONV_TILE, s.n);
    float4 w[FOUR], x[FOUR - 1 + AHEAD], bias = make_float4(0.0f, 0.0f, 0.0f, 0.0f);

    if (c >= a.channels || t0 >= s.n)
        return;
    auto in = [&](int t) { return *(const float4 *)conv_in(a, s, t, c); };
#pragma unroll
    for (int j = 0; j < FOUR; j++)
        w[j] = *(const float4 *)(a.a.w + (int64_t)j * a.channels + c);
    if (a.a.bias != NULL)
        bias = *(const float4 *)(a.a.bias + c);
#pragma unroll
    for (int j = 0; j < FOUR - 1; j++)
        x[j] = in(t0 - FOUR + 1 + j);
    for (int t = t0; t < t1; t += AHEAD) {
#pragma unroll
        for (int j = 0; j < AHEAD; j++)
            if (t + j < t1)
                x[FOUR - 1 + j] = in(t + j);
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            float4 y = bias;

            if (t + j >= t1)
                break;
#pragma unroll
            for (int k = 0; k < FOUR; k++) {
                y.x = __fmaf_rn(w[k].x, x[j + k].x, y.x);
                y.y = __fmaf_rn(w[k].y, x[j + k].y, y.y);
                y.z = __fmaf_rn(w[k].z, x[j + k].z, y.z);
                y.w = __fmaf_rn(w[k].w, x[j + k].w, y.w);
            }
            if (a.a.silu)
                y = make_float4(silu(y.x), silu(y.y), silu(y.z), silu(y.w));
            *(float4 *)conv_out(a, s, t + j, c) = y;
        }
#pragma unroll
        for (int j = 0; j < FOUR - 1; j++)
            x[j] = x[AHEAD + j];
    }
}

/* All rows of channels begin at a multiple of 16 bytes. */
static bool conv_fours(const conv_args &a)
{
    const uintptr_t at = (uintptr_t)a.y | (uintptr_t)a.x | (uintptr_t)a.a.w | (uintptr_t)a.a.bias |
                         (uintptr_t)a.a.rec.data | (uintptr_t)a.a.rec.log.data;

    return a.a.taps == FOUR && a.back == FOUR - 1 &&
           (at % 16 | a.ys % 4 | a.xs % 4 | a.a.rec.floats % 4 | a.channels % 4) == 0 &&
           (a.a.rec.log.floats % 4 | a.a.rec.log.width % 4) == 0;
}

static void convolve(struct cuda *c, const struct node *v)
{
    conv_args a = {
        (float *)v->t[0].data, (const float *)v->t[1].data, v->t[0].stride,        v->t[1].stride, v->conv, v->r,
        (int)v->t[1].ne[0],    v->t[0].ne[1] > v->r.n,      op_conv_back(&v->conv)
    };
    dim3 grid((unsigned)ceil_div(a.channels, 128), (unsigned)v->r.n_seq, 1);

    if (v->r.max_n <= CONV_TILE) {
        LAUNCH(c, conv<true>, grid, 128, 0, a);
        return;
    }
    if (conv_fours(a)) {
        LAUNCH(c, conv4,
               dim3((unsigned)ceil_div(a.channels, 128 * FOUR), (unsigned)v->r.n_seq,
                    (unsigned)ceil_div(v->r.max_n, 2 * CONV_TILE)),
               128, 0, a);
    } else {
        grid.z = (unsigned)ceil_div(v->r.max_n, CONV_TILE);
        LAUNCH(c, conv<false>, grid, 128, 0, a);
        grid.z = 1;
    }
    LAUNCH(c, conv_memory, grid, 128, 0, a);
}

/* ---- recurrences ---- */

/* Rows after the step's are those that are computed again. */
__global__ void __launch_bounds__(256) prep(const __grid_constant__ prep_args a)
{
    int64_t item = (int64_t)blockIdx.x * 8 + threadIdx.x / 32, r = item / a.n_v;
    int h = (int)(item % a.n_v), lane = threadIdx.x & 31;
    const float *alpha = a.alpha + r * a.as, *beta = a.beta + r * a.bs;

    if (item >= a.items)
        return;
    if (r >= a.r.n) {
        const op_seq &s = a.r.seq[(r - a.r.n) / a.rec.log.most];
        const int at = (int)((r - a.r.n) % a.rec.log.most) - s.again;

        if (at >= 0)
            return;
        alpha = log_row(a.rec.log, s, at);
        beta = alpha + (int64_t)a.n_v * (a.rule == KDA ? a.dim : 1);
    }
    if (a.rule != SSM2 && h < a.n_k) {
        const float *x = a.x + r * a.xs + (int64_t)h * a.dim;
        int64_t at = (r * a.n_k + h) * a.dim;

        l2_norm(a.q + at, x, a.dim, a.eps, __fdiv_rn(1.0f, __fsqrt_rn((float)a.dim)));
        l2_norm(a.k + at, x + (int64_t)a.n_k * a.dim, a.dim, a.eps, 1.0f);
    }
    if (a.rule == KDA) {
        for (int i = lane; i < a.dim; i += 32) {
            int64_t e = (int64_t)h * a.dim + i;

            const float in = __fadd_rn(alpha[e], a.dt_bias[e]);

            a.g[r * a.n_v * a.dim + e] = expf(a.bound == 0.0f ? __fmul_rn(a.a[h], softplus(in))
                                                              : __fmul_rn(a.bound, sigmoid(__fmul_rn(a.a[h], in))));
        }
    } else if (lane == 0) {
        float dt = softplus(__fadd_rn(alpha[h], a.dt_bias[h]));

        a.g[r * a.n_v + h] = expf(__fmul_rn(a.a[h], dt));
        if (a.rule == SSM2)
            a.b[r * a.n_v + h] = dt;
    }
    if (a.rule != SSM2 && lane == 0)
        a.b[r * a.n_v + h] = sigmoid(beta[h]);
}

static int64_t again_rows(const struct op_rec &rec, const struct rows &r)
{
    return rec.log.rows > 0 ? (int64_t)r.n_seq * rec.log.most : 0;
}

static size_t copy_floats(const struct op_rec &rec, const struct rows &r, int dim)
{
    return rec.log.rows > 0 && !scan_in_registers(dim) ? (size_t)(r.n_seq * rec.floats) : 0;
}

static void launch_delta(struct cuda *c, const struct node *v, bool kda)
{
    const struct tensor &y = v->t[0], &x = v->t[1], &alpha = v->t[2], &beta = v->t[3];
    int n_k = kda ? v->kda.n_head : v->gdn.n_k, n_v = kda ? v->kda.n_head : v->gdn.n_v;
    int dim = kda ? v->kda.dim : v->gdn.dim, dim_v = kda ? dim : v->gdn.dim_v;
    const struct op_rec &rec = kda ? v->kda.rec : v->gdn.rec;
    int64_t n = v->r.n + again_rows(rec, v->r);
    float *k = (float *)c->ws, *q = k + n * n_k * dim, *b = q + n * n_k * dim, *g = b + n * n_v;
    prep_args p = { (const float *)x.data,
                    (const float *)alpha.data,
                    (const float *)beta.data,
                    kda ? v->kda.a : v->gdn.a,
                    kda ? v->kda.dt_bias : v->gdn.dt_bias,
                    x.stride,
                    alpha.stride,
                    beta.stride,
                    k,
                    q,
                    g,
                    b,
                    n_k,
                    n_v,
                    dim,
                    kda ? KDA : GDN,
                    kda ? v->kda.eps : v->gdn.eps,
                    n * n_v,
                    rec,
                    v->r,
                    kda ? v->kda.bound : 0.0f };
    int64_t inner = (int64_t)n_k * dim;
    scan_args s = { k,
                    q,
                    (const float *)x.data + 2 * inner,
                    g,
                    b,
                    NULL,
                    inner,
                    inner,
                    x.stride,
                    (float *)y.data,
                    y.stride,
                    n_v,
                    dim,
                    dim_v,
                    n_k,
                    !kda && !v->gdn.k_grouped ? 0 : n_v / n_k,
                    rec,
                    g + n * n_v * (kda ? dim : 1),
                    p.alpha,
                    p.beta,
                    p.as,
                    p.bs,
                    v->r };

    LAUNCH(c, prep, (unsigned)ceil_div(p.items, 8), 256, 0, p);
    cuda_scan(c, s, kda ? KDA : GDN);
}

static void mamba2(struct cuda *c, const struct node *v)
{
    const struct op_ssm2 &a = v->ssm2;
    const struct tensor &y = v->t[0], &x = v->t[1], &dt = v->t[2];
    int64_t n = v->r.n + again_rows(a.rec, v->r), inner = (int64_t)a.n_head * a.dim;
    float *g = (float *)c->ws, *b = g + n * a.n_head;
    const float *xd = (const float *)x.data;
    prep_args p = { xd,        (const float *)dt.data,
                    NULL,      a.a,
                    a.dt_bias, x.stride,
                    dt.stride, 0,
                    NULL,      NULL,
                    g,         b,
                    0,         a.n_head,
                    0,         SSM2,
                    0.0f,      n * a.n_head,
                    a.rec,     v->r };
    scan_args s = { xd + inner, xd + inner + (int64_t)a.n_group * a.n_state,
                    xd,         g,
                    b,          a.d,
                    x.stride,   x.stride,
                    x.stride,   (float *)y.data,
                    y.stride,   a.n_head,
                    a.n_state,  a.dim,
                    a.n_group,  a.n_head / a.n_group,
                    a.rec,      b + n * a.n_head,
                    p.alpha,    NULL,
                    p.as,       0,
                    v->r };

    LAUNCH(c, prep, (unsigned)ceil_div(p.items, 8), 256, 0, p);
    cuda_scan(c, s, SSM2);
}

struct ssm1_args {
    float *y;
    const float *x, *dt, *b, *c;
    int64_t ys, xs, ds, bs, cs;
    struct op_ssm1 a;
    struct rows r;
    int channels;
    float *copy; /* of the states, where they are not in registers */
};

/* A thread a channel; states in registers up to 16, else in memory, of which draft rows have a copy. */
template <bool REGS> __global__ void __launch_bounds__(64) mamba1(const __grid_constant__ ssm1_args a)
{
    enum { N = 16 };
    int c = blockIdx.x * 64 + threadIdx.x, n = a.a.n_state;
    const op_seq &s = a.r.seq[blockIdx.y];
    const op_rec &rec = a.a.rec;
    float *mem = rec.data + s.slot * rec.floats + c, *S = mem, h[N], decay[N];

    if (c >= a.channels)
        return;
#pragma unroll
    for (int i = 0; i < N; i++) {
        h[i] = REGS && i < n ? mem[(int64_t)i * a.channels] : 0.0f;
        decay[i] = REGS && i < n ? a.a.a[(int64_t)i * a.channels + c] : 0.0f;
    }
    auto keep = [&] {
#pragma unroll
        for (int i = 0; i < N; i++)
            if (REGS && i < n)
                mem[(int64_t)i * a.channels] = h[i];
    };
    for (int t = -s.again; t < s.n; t++) {
        const int64_t row = s.row + t, at = t >= 0 ? row : a.r.n + (int64_t)blockIdx.y * rec.log.most + s.again + t;
        const float *logged = t < 0 ? log_row(rec.log, s, t) : NULL;
        const float *b = t < 0 ? logged + a.channels : a.b + row * a.bs, *cc = t < 0 ? b + n : a.c + row * a.cs;

        if (s.drafts > 0 && t == s.n - s.drafts) {
            keep();
            if (!REGS) {
                S = a.copy + (int64_t)blockIdx.y * n * a.channels + c;
                for (int i = 0; i < n; i++)
                    S[(int64_t)i * a.channels] = mem[(int64_t)i * a.channels];
            }
        }
        float x = a.x[at * a.xs + c];
        float dt = softplus(__fadd_rn(t < 0 ? logged[c] : a.dt[row * a.ds + c], a.a.dt_bias[c]));
        float y = __fmul_rn(a.a.d[c], x), in = __fmul_rn(dt, x);

        if (REGS) {
#pragma unroll
            for (int i = 0; i < N; i++)
                if (i < n) {
                    h[i] = __fmaf_rn(expf(__fmul_rn(dt, decay[i])), h[i], __fmul_rn(in, b[i]));
                    y = __fmaf_rn(h[i], cc[i], y);
                }
        } else {
            for (int i = 0; i < n; i++) {
                float *p = S + (int64_t)i * a.channels;
                float e = expf(__fmul_rn(dt, a.a.a[(int64_t)i * a.channels + c]));

                *p = __fmaf_rn(e, *p, __fmul_rn(in, b[i]));
                y = __fmaf_rn(*p, cc[i], y);
            }
        }
        if (t >= 0)
            a.y[row * a.ys + c] = y;
    }
    if (s.drafts == 0)
        keep();
    for (int t = s.n - s.logged; t < s.n; t++)
        log_row(rec.log, s, t)[c] = a.dt[(s.row + t) * a.ds + c];
}

/* All channels read b and c, which are logged when that is done. grid: a sequence a block */
__global__ void __launch_bounds__(128) mamba1_log(const __grid_constant__ ssm1_args a)
{
    const op_seq &s = a.r.seq[blockIdx.x];
    const int n = a.a.n_state;

    for (int i = threadIdx.x; i < 2 * n * s.logged; i += 128) {
        const int t = s.n - s.logged + i / (2 * n), e = i % (2 * n);
        const int64_t row = s.row + t;

        log_row(a.a.rec.log, s, t)[a.channels + e] = e < n ? a.b[row * a.bs + e] : a.c[row * a.cs + e - n];
    }
}

enum { SSM1_REGS = 16 };

static void selective(struct cuda *c, const struct node *v)
{
    const struct tensor *t = v->t;
    ssm1_args a = { (float *)t[0].data,
                    (const float *)t[1].data,
                    (const float *)t[2].data,
                    (const float *)t[3].data,
                    (const float *)t[4].data,
                    t[0].stride,
                    t[1].stride,
                    t[2].stride,
                    t[3].stride,
                    t[4].stride,
                    v->ssm1,
                    v->r,
                    (int)t[1].ne[0],
                    (float *)c->ws };
    dim3 grid((unsigned)ceil_div(a.channels, 64), (unsigned)v->r.n_seq);

    if (v->ssm1.n_state <= SSM1_REGS)
        LAUNCH(c, mamba1<true>, grid, 64, 0, a);
    else
        LAUNCH(c, mamba1<false>, grid, 64, 0, a);
    if (v->r.logs)
        LAUNCH(c, mamba1_log, (unsigned)v->r.n_seq, 128, 0, a);
}

/* Of all rows: keys and queries, decays, betas; a copy of the state. */
static size_t delta_ws(const struct op_rec &rec, const struct rows &r, int n_k, int n_v, int dim, int gates)
{
    return (size_t)(r.n + again_rows(rec, r)) * (size_t)(2 * n_k * dim + n_v * gates) + copy_floats(rec, r, dim);
}

size_t cuda_rec_ws(const struct node *v)
{
    const struct op_rec &s1 = v->ssm1.rec;

    switch (v->op) {
    case DEV_OP_gdn:
        return delta_ws(v->gdn.rec, v->r, v->gdn.n_k, v->gdn.n_v, v->gdn.dim, 2) * sizeof(float);
    case DEV_OP_kda:
        return delta_ws(v->kda.rec, v->r, v->kda.n_head, v->kda.n_head, v->kda.dim, v->kda.dim + 1) * sizeof(float);
    case DEV_OP_ssm2:
        return delta_ws(v->ssm2.rec, v->r, 0, v->ssm2.n_head, v->ssm2.n_state, 2) * sizeof(float);
    case DEV_OP_ssm1:
        return s1.log.rows > 0 && v->ssm1.n_state > SSM1_REGS ? (size_t)(v->r.n_seq * s1.floats) * sizeof(float) : 0;
    default:
        return 0;
    }
}

void cuda_rec(struct cuda *c, const struct node *v)
{
    switch (v->op) {
    case DEV_OP_conv:
        convolve(c, v);
        break;
    case DEV_OP_gdn:
        launch_delta(c, v, false);
        break;
    case DEV_OP_kda:
        launch_delta(c, v, true);
        break;
    case DEV_OP_ssm1:
        selective(c, v);
        break;
    default:
        mamba2(c, v);
        break;
    }
}
