/* SPDX-License-Identifier: Apache-2.0 */
/* elem.cu - norms, elementwise operations, gathers, RoPE. */
#include "kernels/common/hadamard.cuh"
#include "kernels/common/math.cuh"

struct norm_args {
    float *y;
    const float *x, *z, *w;
    int64_t ys, xs, zs;
    int group, groups;
    bool whole; /* w has a full row */
    float eps;
    int64_t items;
};

static __device__ __forceinline__ float norm_one(float x, const float *z, const float *w, int i, float f)
{
    float v = __fmul_rn(x, f);

    if (w != NULL)
        v = __fmul_rn(v, w[i]);
    return z != NULL ? __fmul_rn(silu(z[i]), v) : v;
}

__global__ void __launch_bounds__(256) norm_block(norm_args a)
{
    enum { AT_ONCE = 8 };
    __shared__ float tmp[8];
    int64_t r = blockIdx.x / a.groups, g = (int64_t)(blockIdx.x % a.groups) * a.group;
    const float *x = a.x + r * a.xs + g, *z = a.z != NULL ? a.z + r * a.zs + g : NULL;
    const float *w = a.w != NULL ? a.w + (a.whole ? g : 0) : NULL;
    float sum = 0.0f;

    /* 8 in turn, as gemm/gemv_r1_fused.cu rounds them */
    for (int i0 = (int)threadIdx.x * 8; i0 < a.group; i0 += 256 * 8)
#pragma unroll
        for (int i = i0; i < i0 + 8; i++)
            if (i < a.group)
                sum = __fmaf_rn(x[i], x[i], sum);
    float f = norm_factor(block_sum(sum, tmp), a.group, a.eps);
    for (int i0 = threadIdx.x; i0 < a.group; i0 += 256 * AT_ONCE) {
        float v[AT_ONCE]; /* all are read before the first is written: y may be x */

#pragma unroll
        for (int j = 0; j < AT_ONCE; j++)
            v[j] = i0 + 256 * j < a.group ? norm_one(x[i0 + 256 * j], z, w, i0 + 256 * j, f) : 0.0f;
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++)
            if (i0 + 256 * j < a.group)
                a.y[r * a.ys + g + i0 + 256 * j] = v[j];
    }
}

/* Of at most 32 EACH elements. */
template <int EACH> __global__ void __launch_bounds__(256) norm_warp(norm_args a)
{
    const int64_t item = (int64_t)blockIdx.x * 8 + threadIdx.x / 32;
    const int lane = threadIdx.x & 31;

    if (item >= a.items)
        return;
    int64_t r = item / a.groups, g = item % a.groups * a.group;
    const float *x = a.x + r * a.xs + g, *z = a.z != NULL ? a.z + r * a.zs + g : NULL;
    const float *w = a.w != NULL ? a.w + (a.whole ? g : 0) : NULL;
    float v[EACH], sum = 0.0f;

#pragma unroll
    for (int j = 0; j < EACH; j++)
        v[j] = lane + 32 * j < a.group ? x[lane + 32 * j] : 0.0f;
#pragma unroll
    for (int j = 0; j < EACH; j++)
        sum = __fmaf_rn(v[j], v[j], sum);
    float f = norm_factor(warp_sum(sum), a.group, a.eps);
#pragma unroll
    for (int j = 0; j < EACH; j++) /* all are read before the first is written: y may be x */
        v[j] = lane + 32 * j < a.group ? norm_one(v[j], z, w, lane + 32 * j, f) : 0.0f;
#pragma unroll
    for (int j = 0; j < EACH; j++)
        if (lane + 32 * j < a.group)
            a.y[r * a.ys + g + lane + 32 * j] = v[j];
}

static void norm(struct cuda *c, const struct node *v, bool gated)
{
    const struct tensor &y = v->t[0], &x = v->t[1];
    norm_args a = { (float *)y.data,
                    (const float *)x.data,
                    gated ? (const float *)v->t[2].data : NULL,
                    (const float *)v->p[0],
                    y.stride,
                    x.stride,
                    gated ? v->t[2].stride : 0,
                    (int)v->i[1],
                    (int)(x.ne[0] / v->i[1]),
                    v->i[0] != v->i[1],
                    v->f[0],
                    0 };

    a.items = x.ne[1] * a.groups;
    if (a.group > NORM_WARP)
        LAUNCH(c, norm_block, (unsigned)a.items, 256, 0, a);
    else if (a.group > 128)
        LAUNCH(c, norm_warp<NORM_WARP / 32>, (unsigned)ceil_div(a.items, 8), 256, 0, a);
    else
        LAUNCH(c, norm_warp<4>, (unsigned)ceil_div(a.items, 8), 256, 0, a);
}

struct elem_args {
    float *y;
    const float *x, *z;
    int64_t ys, xs, zs, n, total;
    float s;
    const int *row;
    int dim, pitch, first;
};

/* What an operation takes of an element: y as it is, x, z (add_gated: the row's; shared: a column for `dim`). */
template <int OP> struct takes {
    enum {
        Y = OP != DEV_OP_glu && OP != DEV_OP_geglu,
        X = OP != DEV_OP_relu2 && OP != DEV_OP_scale && OP != DEV_OP_silu,
        Z = OP == DEV_OP_glu || OP == DEV_OP_geglu,
        ROW = OP == DEV_OP_add_gated,
    };
};
template <int OP> static __device__ __forceinline__ float elem_value(float s, float y, float x, float z)
{
    switch (OP) {
    case DEV_OP_add:
        return __fmaf_rn(s, x, y);
    case DEV_OP_add_gated:
        return __fmaf_rn(sigmoid(z), x, y);
    case DEV_OP_glu:
        return __fmul_rn(silu(x), z);
    case DEV_OP_geglu:
        return __fmul_rn(__fmul_rn(x, normcdff(x)), z);
    case DEV_OP_relu2:
        return __fmul_rn(fmaxf(y, 0.0f), fmaxf(y, 0.0f));
    case DEV_OP_sigmoid_mul:
        return __fmul_rn(y, sigmoid(x));
    case DEV_OP_mul:
        return __fmul_rn(y, x);
    case DEV_OP_silu:
        return silu(__fmul_rn(y, s));
    default:
        return __fmul_rn(y, s); /* scale */
    }
}

template <int OP> __global__ void __launch_bounds__(256) elem(elem_args a)
{
    typedef takes<OP> T;
    int64_t at = (int64_t)blockIdx.x * 256 + threadIdx.x;

    if (at >= a.total)
        return;
    int64_t r = at / a.n, i = at % a.n;
    float *y = a.y + r * a.ys + i;

    if (OP == DEV_OP_sigmoid_mul && a.dim > 1) {
        *y = elem_value<OP>(a.s, *y, a.x[r * a.xs + i / a.dim], 0.0f);
        return;
    }
    *y = elem_value<OP>(a.s, T::Y ? *y : 0.0f, T::X ? a.x[r * a.xs + i] : 0.0f,
                        T::ROW ? a.z[r * a.zs]
                        : T::Z ? a.z[r * a.zs + i]
                               : 0.0f);
}

/* The same, four elements of a row a thread. */
template <int OP> __global__ void __launch_bounds__(256) elem_fours(elem_args a)
{
    typedef takes<OP> T;
    const unsigned at = blockIdx.x * 256 + threadIdx.x, n = (unsigned)a.n / 4;

    if (at >= (unsigned)(a.total / 4))
        return;
    const unsigned r = at / n, i = at % n * 4;
    const float4 none = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    float4 *to = (float4 *)(a.y + r * a.ys + i), y = T::Y ? *to : none;
    const float4 x = T::X ? *(const float4 *)(a.x + r * a.xs + i) : none;
    const float4 z = T::Z ? *(const float4 *)(a.z + r * a.zs + i) : none;
    const float row = T::ROW ? a.z[r * a.zs] : 0.0f;

    y.x = elem_value<OP>(a.s, y.x, x.x, T::ROW ? row : z.x);
    y.y = elem_value<OP>(a.s, y.y, x.y, T::ROW ? row : z.y);
    y.z = elem_value<OP>(a.s, y.z, x.z, T::ROW ? row : z.z);
    y.w = elem_value<OP>(a.s, y.w, x.w, T::ROW ? row : z.w);
    *to = y;
}

template <int OP> static void elements(struct cuda *c, const elem_args &a)
{
    typedef takes<OP> T;
    const uintptr_t at = (uintptr_t)a.y | (T::X ? (uintptr_t)a.x : 0) | (T::Z ? (uintptr_t)a.z : 0);
    const int64_t apart = a.n | a.ys | (T::X ? a.xs : 0) | (T::Z ? a.zs : 0);

    if (at % 16 == 0 && apart % 4 == 0 && a.total <= INT32_MAX && a.dim <= 1)
        LAUNCH(c, elem_fours<OP>, (unsigned)ceil_div(a.total / 4, 256), 256, 0, a);
    else
        LAUNCH(c, elem<OP>, (unsigned)ceil_div(a.total, 256), 256, 0, a);
}

/* Rows, or parts of them, elsewhere; T: one element, or four. */
template <int OP, class T> __global__ void __launch_bounds__(256) pick_rows(elem_args a)
{
    const int64_t at = ((int64_t)blockIdx.x * 256 + threadIdx.x) * (int64_t)(sizeof(T) / sizeof(float));

    if (at >= a.total)
        return;
    int64_t r = at / a.n;
    int i = (int)(at % a.n);

    *(T *)(a.y + r * a.ys + i) =
        *(const T *)(OP == DEV_OP_rows_pick ? a.x + (int64_t)a.row[r] * a.xs + i
                                            : a.x + r * a.xs + (int64_t)(i / a.dim) * a.pitch + a.first + i % a.dim);
}

template <int OP> static void picked(struct cuda *c, const elem_args &a)
{
    const int64_t apart = a.n | a.ys | a.xs | (OP == DEV_OP_heads_pick ? a.dim | a.pitch | a.first : 0);

    if (((uintptr_t)a.y | (uintptr_t)a.x) % 16 == 0 && apart % 4 == 0)
        LAUNCH(c, (pick_rows<OP, float4>), (unsigned)ceil_div(a.total / 4, 256), 256, 0, a);
    else
        LAUNCH(c, (pick_rows<OP, float>), (unsigned)ceil_div(a.total, 256), 256, 0, a);
}

struct rope_args {
    float *x;
    int64_t xs;
    const float *freq;
    const int *pos;
    int dim, half, heads, first;
    bool pairs;
    int64_t total;
};

__global__ void __launch_bounds__(256) rope(rope_args a)
{
    int64_t at = (int64_t)blockIdx.x * 256 + threadIdx.x;

    if (at >= a.total)
        return;
    int i = (int)(at % a.half), h = (int)(at / a.half % a.heads);
    int64_t r = at / a.half / a.heads;
    float angle = __fmul_rn((float)a.pos[r], a.freq[i]), sn, cs;
    float *p = a.x + r * a.xs + (int64_t)h * a.dim + a.first + (a.pairs ? 2 * i : i), *q = p + (a.pairs ? 1 : a.half);
    float u = *p, v = *q;

    sincosf(angle, &sn, &cs);
    *p = __fsub_rn(__fmul_rn(u, cs), __fmul_rn(v, sn));
    *q = __fadd_rn(__fmul_rn(u, sn), __fmul_rn(v, cs));
}

static void launch_rope(struct cuda *c, const struct node *v)
{
    rope_args a = { (float *)v->t[0].data,
                    v->t[0].stride,
                    v->rope.freq,
                    v->r.pos,
                    (int)v->rope.dim,
                    (int)(v->rope.n_rot / 2),
                    (int)(v->t[0].ne[0] / v->rope.dim),
                    (int)v->rope.first,
                    v->rope.pairs,
                    0 };

    a.total = v->t[0].ne[1] * a.half * a.heads;
    if (a.total > 0)
        LAUNCH(c, rope, (unsigned)ceil_div(a.total, 256), 256, 0, a);
}

struct hadamard_args {
    float *y;
    const float *x;
    int64_t ys, xs, blocks, total; /* blocks of a row; of all */
    int n;
};

/* A warp a block. */
__global__ void __launch_bounds__(256) hadamard(hadamard_args a)
{
    int64_t at = (int64_t)blockIdx.x * 8 + threadIdx.x / 32;

    if (at < a.total)
        hadamard_warp(a.y + at / a.blocks * a.ys + at % a.blocks * a.n,
                      a.x + at / a.blocks * a.xs + at % a.blocks * a.n, a.n);
}

/* Blocks narrower than a warp: a thread a block. */
__global__ void __launch_bounds__(256) hadamard_narrow(hadamard_args a)
{
    int64_t at = (int64_t)blockIdx.x * 256 + threadIdx.x;
    float v[16], s = __fdiv_rn(1.0f, __fsqrt_rn((float)a.n));

    if (at >= a.total)
        return;
    const float *x = a.x + at / a.blocks * a.xs + at % a.blocks * a.n;
    for (int i = 0; i < a.n; i++)
        v[i] = x[i];
    for (int half = 1; half < a.n; half *= 2)
        for (int i = 0; i < a.n; i++)
            if ((i & half) == 0) {
                float p = v[i], q = v[i + half];

                v[i] = __fadd_rn(p, q);
                v[i + half] = __fsub_rn(p, q);
            }
    for (int i = 0; i < a.n; i++)
        a.y[at / a.blocks * a.ys + at % a.blocks * a.n + i] = __fmul_rn(v[i], s);
}

static void rotate(struct cuda *c, const struct node *v)
{
    hadamard_args a = { (float *)v->t[0].data,     (const float *)v->t[1].data, v->t[0].stride, v->t[1].stride, 0, 0,
                        op_hadamard_block(v->i[0]) };

    a.blocks = v->t[1].ne[0] / a.n;
    a.total = a.blocks * v->t[1].ne[1];
    if (a.n >= 32)
        LAUNCH(c, hadamard, (unsigned)ceil_div(a.total, 8), 256, 0, a);
    else
        LAUNCH(c, hadamard_narrow, (unsigned)ceil_div(a.total, 256), 256, 0, a);
}

void cuda_elem(struct cuda *c, const struct node *v)
{
    const struct tensor &y = v->t[0], &x = v->t[1], &z = v->t[2];
    elem_args a = { (float *)y.data,
                    (const float *)x.data,
                    (const float *)z.data,
                    y.stride,
                    x.stride,
                    z.stride,
                    y.ne[0],
                    y.ne[0] * y.ne[1],
                    v->f[0],
                    (const int *)v->p[0],
                    (int)v->i[0],
                    (int)v->i[1],
                    (int)v->i[2] };

    if (v->op == DEV_OP_sigmoid_mul) /* columns that share one of x */
        a.dim = (int)(y.ne[0] / x.ne[0]);
    switch (v->op) {
    case DEV_OP_rms_norm:
        norm(c, v, false);
        break;
    case DEV_OP_rms_norm_gated:
        norm(c, v, true);
        break;
    case DEV_OP_rope:
        launch_rope(c, v);
        break;
    case DEV_OP_hadamard:
        rotate(c, v);
        break;
/* clang-format off */
#define E(op) case DEV_OP_##op: elements<DEV_OP_##op>(c, a); break;
    E(add) E(add_gated) E(glu) E(geglu) E(relu2) E(sigmoid_mul) E(mul) E(scale) E(silu)
#undef E
            /* clang-format on */
            case DEV_OP_rows_pick : picked<DEV_OP_rows_pick>(c, a);
        break;
    case DEV_OP_heads_pick:
        picked<DEV_OP_heads_pick>(c, a);
        break;
    default:
        break;
    }
}
