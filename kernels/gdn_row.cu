/* SPDX-License-Identifier: Apache-2.0 */
/* gdn_row.cu - a few rows through a layer of gated delta rule: convolution, normalisation of keys and queries, delta
 * rule, gated norm of its output, rounding for the product that follows. Every sum has the order of the separate
 * launches (rec.cu, scan.cu, elem.cu, matvec.cuh).
 *
 * A block has 32 or 64 columns of a head's S, eight lanes a column, for the rows of some sequences, one after the other;
 * but what does not need S is done for all rows at once. Before, a thread has a channel of the convolution (the last
 * warps those columns' values v), then a warp the norm of a row's key or query; after, a warp has 32 of the block's
 * outputs of a row, which are one unit of the product's activations. The blocks of a head are a cluster: each gives its
 * outputs to all, for the sum of their squares. S goes through shared memory: its rows come and leave a block's columns
 * at a time. */
#include "kernels/bulk.cuh"
#include "kernels/few.cuh"
#include "kernels/fused.cuh"
#include "kernels/rec.cuh"

enum { TAPS = FUSED_TAPS, SEQS = 4 /* of a block, at most */ };

/* A block of COLS columns of a head of DIM: warps that have S, and one more for 32 columns' values. */
template <int DIM, int COLS> struct shape {
    enum { STATE_WARPS = COLS / 4, UNITS = COLS / 32, WARPS = STATE_WARPS + UNITS, RANKS = DIM / COLS };
};

struct row_args {
    const float  *in, *conv, *past; /* inputs of a channel: the newest, weights, those before */
    const float  *alpha, *beta, *a, *dt_bias;
    const float  *z, *w;            /* gate and weights of the norm; w NULL: none */
    float        *state;
    uint8_t      *rounded;
    float        *log[FEW_ROWS];       /* where the inputs of a row are kept; or NULL */
    const op_seq *seq;
    int64_t       past_floats, floats; /* of a sequence */
    int           in_stride, alpha_stride, beta_stride, z_stride, rounded_stride; /* from row to row */
    bool          logged;
    int           n_seq, each_seqs;    /* of a block */
    int           channels, n_k, each; /* key head of h: h / each, or h % n_k where each is 0 */
    int           w_pitch;             /* of w, from head to head */
    float         eps, norm_eps;
};

/* Of a sequence: S, rows of it, of whose quads of columns quad q is where q ^ row / 4 % 8 would be: eight lanes
 * read as many rows and meet in no bank. */
template <int DIM, int COLS> struct seq_space {
    float S[DIM][COLS];
    float past[TAPS - 1][shape<DIM, COLS>::WARPS * 32];
};

/* Of a row: channels of keys, of queries, of values; key and query are normalised. */
template <int DIM, int COLS> struct row_space {
    float in[2 * DIM], values[COLS];
    float gate[COLS], out[DIM];
    float decay, beta, pad[2], top[4]; /* of each unit */
};

/* Shared memory: this, sequences, rows. slot: of a sequence; its rows begin at `first` of the block's, which are rows
 * `row` of the step. */
struct block_space {
    int n_seq, slot[SEQS], first[SEQS + 1], row[FEW_ROWS];
};
enum { BLOCK_BYTES = (sizeof(block_space) + 15) / 16 * 16 };

/* Where *at is in block `rank` of the cluster. */
static __device__ __forceinline__ uint32_t cluster_at(const float *at, unsigned rank)
{
    uint32_t to;

    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"(shared_at(at)), "r"(rank));
    return to;
}

static __device__ __forceinline__ void cluster_store(uint32_t to, float v)
{
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(to), "f"(v) : "memory");
}

static __device__ __forceinline__ void cluster_wait(void)
{
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* What a thread has of its own; alpha and beta of its row come with the inputs. */
struct row_own {
    int   channel; /* -1: none */
    float taps[TAPS], dt_bias, decay, weight, alpha, beta;
};

template <int DIM, int COLS>
static __device__ __forceinline__ seq_space<DIM, COLS> *seqs_of(block_space *b)
{
    return (seq_space<DIM, COLS> *)((uint8_t *)b + BLOCK_BYTES);
}

/* Which rows of which sequences are the block's; false: none. */
static __device__ __forceinline__ bool find_rows(block_space *b, const row_args &a)
{
    const int t = threadIdx.x, from = blockIdx.z * a.each_seqs, many = min(a.each_seqs, a.n_seq - from);

    if (t < many) {
        const op_seq seq = a.seq[from + t];
        int first = 0;

#pragma unroll 1
        for (int i = 0; i < t; i++)
            first += a.seq[from + i].n;
        b->slot[t] = seq.slot;
        b->first[t] = first;
        b->first[t + 1] = first + seq.n;
        b->n_seq = many;
#pragma unroll 1
        for (int i = 0; i < seq.n; i++)
            b->row[first + i] = seq.row + i;
    }
    __syncthreads();
    return b->first[many] > 0;
}

/* Where piece i of 16 bytes of S lies in shared memory, and in memory from its first one on. */
template <int COLS>
static __device__ __forceinline__ int near_piece(int i)
{
    enum { QUADS = COLS / 4 };
    const int row = i / QUADS, quad = i % QUADS;

    return row * COLS + (quad ^ (row / 4 & 7)) * 4;
}

/* Between shared memory and memory, by the warps that have S: pieces of a thread are so many rows apart. */
template <int DIM, int COLS, bool STORE>
static __device__ __forceinline__ void copy_S(float *near, float *far)
{
    enum { QUADS = COLS / 4, APART = shape<DIM, COLS>::STATE_WARPS * 32 / QUADS };
    const int t = threadIdx.x;

    near += near_piece<COLS>(t);
    far += t / QUADS * DIM + t % QUADS * 4;
#pragma unroll 1
    for (int i = 0; i < DIM; i += APART, near += APART * COLS, far += APART * DIM)
        if (STORE)
            *(float4 *)far = *(const float4 *)near;
        else
            copy16(near, far);
}

template <int DIM, int COLS>
static __device__ __forceinline__ float *state_at(const row_args &a, int slot)
{
    return a.state + slot * a.floats + blockIdx.y * DIM * DIM + blockIdx.x * COLS;
}

template <int DIM, int COLS>
static __device__ __forceinline__ void load_own(row_own &own, const row_args &a, block_space *b)
{
    enum { STATE = shape<DIM, COLS>::STATE_WARPS * 32 };
    const int t = threadIdx.x;
    const int h = blockIdx.y, hk = a.each > 0 ? h / a.each : h % a.n_k, first = blockIdx.x * COLS;

    own.channel = t >= STATE    ? (2 * a.n_k + h) * DIM + first + t - STATE
                  : t < DIM     ? (a.n_k + hk) * DIM + t
                  : t < 2 * DIM ? hk * DIM + t - DIM
                                : -1;
#pragma unroll 1
    for (int q = 0; q < b->n_seq; q++) {
        float *from = state_at<DIM, COLS>(a, b->slot[q]);
        const float *past = a.past + b->slot[q] * a.past_floats + own.channel;
        seq_space<DIM, COLS> *to = seqs_of<DIM, COLS>(b) + q;

        if (t < STATE)
            copy_S<DIM, COLS, false>(&to->S[0][0], from);
#pragma unroll
        for (int j = 0; j + 1 < TAPS; j++)
            if (own.channel >= 0)
                copy4(&to->past[j][t], past + j * (int64_t)a.channels);
    }
    if (own.channel >= 0) {
        const float *w = a.conv + own.channel;
#pragma unroll
        for (int j = 0; j < TAPS; j++)
            own.taps[j] = w[j * (int64_t)a.channels];
    }
    own.dt_bias = a.dt_bias[h];
    own.decay = a.a[h];
    own.weight = a.w != NULL ? a.w[h * a.w_pitch + first + t % COLS] : 1.0f;
    own.alpha = own.beta = 0.0f;
}

/* Channels of n rows. */
template <int DIM, int COLS>
static __device__ __forceinline__ void convolve(row_space<DIM, COLS> *rows, row_own &own, const row_args &a,
                                                block_space *b, int n)
{
    enum { PITCH = sizeof(row_space<DIM, COLS>) / sizeof(float), STATE = shape<DIM, COLS>::STATE_WARPS * 32 };
    const int t = threadIdx.x, own_value = t - STATE, h = blockIdx.y;
    const bool values = own_value >= 0, first = blockIdx.x == 0;
    const bool keep = a.logged && (values || (first && (a.each > 0 ? h % a.each == 0 : h < a.n_k)));
    float *at = values ? rows->values + own_value : rows->in + t;

#pragma unroll 1
    for (int i = 0; i < n; i++) {
        const int row = b->row[i];

        if (own.channel >= 0)
            copy4(at + i * PITCH, a.in + row * a.in_stride + own.channel);
        if (values)
            copy4(rows[i].gate + own_value, a.z + row * a.z_stride + (h * DIM + blockIdx.x * COLS + own_value));
    }
    if (values && own_value < n) {
        const int row = b->row[own_value];

        own.alpha = a.alpha[row * a.alpha_stride + h];
        own.beta = a.beta[row * a.beta_stride + h];
        if (keep && first) {
            a.log[row][a.channels + h] = own.alpha;
            a.log[row][a.channels + gridDim.y + h] = own.beta;
        }
    }
    copy_end();
    copy_wait<0>(); /* S, too */
    if (own.channel < 0)
        return;
#pragma unroll 1
    for (int q = 0; q < b->n_seq; q++) {
        float x[TAPS];

#pragma unroll
        for (int j = 0; j + 1 < TAPS; j++)
            x[j] = seqs_of<DIM, COLS>(b)[q].past[j][t];
#pragma unroll 1
        for (int i = b->first[q]; i < b->first[q + 1]; i++, at += PITCH) {
            float sum = 0.0f;

            x[TAPS - 1] = *at;
            if (keep)
                a.log[b->row[i]][own.channel] = x[TAPS - 1];
#pragma unroll
            for (int j = 0; j < TAPS; j++)
                sum = __fmaf_rn(own.taps[j], x[j], sum);
#pragma unroll
            for (int j = 0; j + 1 < TAPS; j++)
                x[j] = x[j + 1];
            *at = silu(sum);
        }
    }
}

/* The sum of squares of a head's numbers, as any warp norm has it. */
template <int DIM>
static __device__ __forceinline__ float sum_squares(const float *x)
{
    float sum = 0.0f;

#pragma unroll
    for (int j = 0; j < DIM / 32; j++) {
        const float v = x[(threadIdx.x & 31) + 32 * j];

        sum = __fmaf_rn(v, v, sum);
    }
    return warp_sum(sum);
}

/* Keys and queries, and decay and beta of n rows. */
template <int DIM, int COLS>
static __device__ __forceinline__ void normalise(row_space<DIM, COLS> *rows, const row_own &own, int n, float eps)
{
    enum { STATE_WARPS = shape<DIM, COLS>::STATE_WARPS };
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, own_value = (int)threadIdx.x - STATE_WARPS * 32;

    if (own_value >= 0) {
        if (own_value < n) {
            rows[own_value].decay = expf(__fmul_rn(own.decay, softplus(__fadd_rn(own.alpha, own.dt_bias))));
            rows[own_value].beta = sigmoid(own.beta);
        }
        return;
    }
#pragma unroll 1
    for (int i = warp; i < 2 * n; i += STATE_WARPS) {
        float *x = rows[i / 2].in + i % 2 * DIM;
        const float scale = i % 2 == 0 ? 1.0f : __fdiv_rn(1.0f, __fsqrt_rn((float)DIM));
        const float f = __fdiv_rn(scale, __fsqrt_rn(__fadd_rn(sum_squares<DIM>(x), eps)));

#pragma unroll
        for (int j = 0; j < DIM / 32; j++)
            x[lane + 32 * j] = __fmul_rn(x[lane + 32 * j], f);
    }
}

/* S of a thread, to or from shared memory. The compiler is kept from keeping its places in registers. */
template <int DIM, int COLS, bool STORE>
static __device__ __forceinline__ void move_S(float S[DIM / 8], seq_space<DIM, COLS> *s)
{
    enum { NE = DIM / 8 };
    int p = threadIdx.x & 7, local = threadIdx.x / 8;

    asm volatile("" : "+r"(p), "+r"(local));
#pragma unroll
    for (int e = 0; e < NE; e += 4) {
        const int first = element_at<NE>(p, e);
        float *at = s->S[first] + (local / 4 ^ (first / 4 & 7)) * 4 + local % 4;

#pragma unroll
        for (int i = 0; i < 4; i++)
            if (STORE)
                at[i * COLS] = S[e + i];
            else
                S[e + i] = at[i * COLS];
    }
}

/* A column's rows: S, and their outputs to all blocks; a row's output is summed beside what the next one needs. The loop
 * is short for the instructions' sake: a longer one that prefetches is slower. */
template <int DIM, int COLS>
static __device__ __forceinline__ void delta_rule(block_space *b, row_space<DIM, COLS> *rows)
{
    enum { NE = DIM / 8, RANKS = DIM / COLS };
    const int p = threadIdx.x & 7, local = threadIdx.x / 8;
    uint32_t to = cluster_at(rows->out + blockIdx.x * COLS + local, p % RANKS);
    float S[NE], last = 0.0f;

#pragma unroll 1
    for (int q = 0; q < b->n_seq; q++) {
        move_S<DIM, COLS, false>(S, seqs_of<DIM, COLS>(b) + q);
#pragma unroll 1
        for (int i = b->first[q]; i < b->first[q + 1]; i++) {
            const row_space<DIM, COLS> &r = rows[i];
            float k[NE], query[NE], kv[2] = { 0.0f, 0.0f }, y[2] = { 0.0f, 0.0f };

            lane_elements<NE>(k, r.in, p);
            lane_elements<NE>(query, r.in + DIM, p);
#pragma unroll
            for (int e = 0; e < NE; e++)
                kv[e % 2] = __fmaf_rn(S[e], k[e], kv[e % 2]);
            const float sum = fold8(__fadd_rn(kv[0], kv[1])), out = fold8(last);
            const float d = __fmul_rn(r.beta, __fsub_rn(r.values[local], __fmul_rn(r.decay, sum)));
#pragma unroll
            for (int e = 0; e < NE; e++) {
                S[e] = __fmaf_rn(k[e], d, __fmul_rn(r.decay, S[e]));
                y[e % 2] = __fmaf_rn(S[e], query[e], y[e % 2]);
            }
            last = __fadd_rn(y[0], y[1]);
            if (i > 0) {
                if (p < RANKS)
                    cluster_store(to, out);
                to += sizeof r;
            }
        }
        move_S<DIM, COLS, true>(S, seqs_of<DIM, COLS>(b) + q);
    }
    last = fold8(last);
    if (p < RANKS)
        cluster_store(to, last);
}

/* S of all sequences, by the warps that have it, when they have all of it. */
template <int DIM, int COLS>
static __device__ __forceinline__ void keep_states(block_space *b, const row_args &a)
{
    asm volatile("barrier.sync.aligned 1, %0;" ::"n"(shape<DIM, COLS>::STATE_WARPS * 32) : "memory");
#pragma unroll 1
    for (int q = 0; q < b->n_seq; q++) {
        float *near = &seqs_of<DIM, COLS>(b)[q].S[0][0], *to = state_at<DIM, COLS>(a, b->slot[q]);

        copy_S<DIM, COLS, true>(near, to);
    }
}

/* Gated norm and rounding of n rows. Warps begin with the last ones, which had no S to store. */
template <int DIM, int COLS, bool EIGHT>
static __device__ __forceinline__ void round_rows(const row_space<DIM, COLS> *rows, block_space *b, const row_args &a,
                                                  float weight, int n)
{
    using of = shape<DIM, COLS>;
    enum { UNITS = DIM / 32 };
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, unit = warp % of::UNITS;
    const int at = unit * 32 + lane, of_head = blockIdx.x * of::UNITS + unit;
    const int first = of::WARPS / of::UNITS - 1 - warp / of::UNITS;
    auto value = [&](const row_space<DIM, COLS> &r) {
        float y = __fmul_rn(r.out[blockIdx.x * COLS + at], norm_factor(sum_squares<DIM>(r.out), DIM, a.norm_eps));

        if (a.w != NULL)
            y = __fmul_rn(y, weight);
        return __fmul_rn(r.gate[at], y);
    };

    if (EIGHT) { /* a head shares a scale */
#pragma unroll 1
        for (int i = first; i < n; i += of::WARPS / of::UNITS) {
            const uint32_t top = unit_top(value(rows[i]));

            if (lane < of::RANKS)
                cluster_store(cluster_at(rows[i].top + of_head, lane), __uint_as_float(top));
        }
        asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
        cluster_wait();
    }
#pragma unroll 1
    for (int i = first; i < n; i += of::WARPS / of::UNITS) {
        const float y = value(rows[i]);
        uint32_t top = unit_top(y);

        for (int j = 0; EIGHT && j < UNITS; j++)
            top = max(top, __float_as_uint(rows[i].top[j]));
        round_unit(a.rounded + b->row[i] * a.rounded_stride, gridDim.y * UNITS, y, blockIdx.y * UNITS + of_head, top,
                   EIGHT);
    }
}

/* grid: columns (a cluster), head, some sequences; DIM: of keys and of values; EIGHT: how outputs are rounded, heads of
 * 128 only. Blocks find room when those of the launch before have ended: a first pass that only brought the instructions
 * would be waited for. */
template <int DIM, int COLS, bool EIGHT>
__global__ void __cluster_dims__(DIM / COLS) __launch_bounds__(shape<DIM, COLS>::WARPS * 32, 64 / COLS)
    gdn_row(const __grid_constant__ row_args a)
{
    extern __shared__ __align__(16) uint8_t shared[];
    const int own_value = (int)threadIdx.x - shape<DIM, COLS>::STATE_WARPS * 32;
    block_space *b = (block_space *)shared;
    row_own own;

    if (!find_rows(b, a))
        return;
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
    let_next_begin();
    /* the memories are of earlier steps: they may be read before the launch before this one has ended */
    load_own<DIM, COLS>(own, a, b);
    const int n = b->first[b->n_seq];
    row_space<DIM, COLS> *rows = (row_space<DIM, COLS> *)(seqs_of<DIM, COLS>(b) + a.each_seqs);

    cluster_wait(); /* its blocks are there, and may be given outputs */
    wait_for_inputs();
    convolve<DIM, COLS>(rows, own, a, b, n);
    __syncthreads();
    normalise<DIM, COLS>(rows, own, n, a.eps);
    __syncthreads();
    if (own_value < 0) {
        delta_rule<DIM, COLS>(b, rows);
    } else {
#pragma unroll 1
        for (int i = 0; i < n; i++)
            rows[i].gate[own_value] = silu(rows[i].gate[own_value]);
    }
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    if (own_value < 0)
        keep_states<DIM, COLS>(b, a);
    cluster_wait();
    round_rows<DIM, COLS, EIGHT>(rows, b, a, own.weight, n);
}

/* So many sequences a block that all blocks are there at once, `parts` times the heads' clusters, if there is room for
 * their memories. */
template <int DIM, int COLS>
static void launch_cols(struct cuda *c, row_args *a, const struct rows &r, int heads, int parts)
{
    using of = shape<DIM, COLS>;
    const auto bytes_of = [&](int seqs) {
        const int rows = seqs * r.max_n < r.n ? seqs * r.max_n : r.n;

        return BLOCK_BYTES + (size_t)seqs * sizeof(seq_space<DIM, COLS>) + (size_t)rows * sizeof(row_space<DIM, COLS>);
    };
    int each = (int)ceil_div(r.n_seq, parts > 1 ? parts : 1);

    each = each < SEQS ? each : (int)SEQS;
    while (each > 1 && bytes_of(each) > (size_t)cuda_attn_smem(c))
        each--;
    a->n_seq = r.n_seq;
    a->each_seqs = each;
    const auto kernel = DIM == 128 && c->eight ? gdn_row<DIM, COLS, DIM == 128> : gdn_row<DIM, COLS, false>;

    launch_early(c, "gdn_row", kernel, dim3(of::RANKS, (unsigned)heads, (unsigned)ceil_div(r.n_seq, each)),
                 of::WARPS * 32, bytes_of(each), *a);
}

/* Clusters of four blocks, two a multiprocessor, do not fill a GPU whose parts have odd numbers of those: the last ones
 * would begin when others end. Clusters of two larger ones, one a multiprocessor, do. */
template <int DIM>
static void launch_row(struct cuda *c, row_args *a, const struct rows &r, int heads)
{
    enum { WIDE = DIM == 128 ? 64 : 32 };
    const int blocks = DIM / 32 * heads, wide = DIM / WIDE * heads;

    if (WIDE > 32 && r.n_seq > 1 && r.n_seq * blocks > c->sms && wide <= c->sms)
        launch_cols<DIM, WIDE>(c, a, r, heads, c->sms / wide);
    else
        launch_cols<DIM, 32>(c, a, r, heads, 2 * c->sms / blocks);
}

/* n nodes that keep all inputs of so many rows: channels, alpha, beta. */
static bool find_logs(row_args *a, const struct node *v, int n, int n_v, int rows)
{
    const int width = a->channels + 2 * n_v;

    a->logged = n > 0;
    for (; n > 0; n--, v++) {
        const struct tensor &to = v->t[0], &from = v->t[1];
        const int64_t at = (const float *)from.data - a->in, row = at / a->in_stride;

        if (at < 0 || at % a->in_stride != 0 || row + from.ne[1] > FEW_ROWS || from.ne[0] != width ||
            to.ne[0] != width || v->i[0] != width || from.stride != a->in_stride)
            return false;
        for (int64_t j = 0; j < from.ne[1]; j++)
            a->log[row + j] = (float *)to.data + j * to.stride;
    }
    for (int r = 0; a->logged && r < rows; r++)
        if (a->log[r] == NULL)
            return false;
    return !a->logged || (a->alpha == a->in + a->channels && a->beta == a->alpha + n_v &&
                          a->alpha_stride == a->in_stride && a->beta_stride == a->in_stride);
}

bool cuda_fused_gdn(struct cuda *c, const struct node *v, int n_log, uint8_t *rounded)
{
    const struct node *conv = v, *gdn = v + 1, *norm = v + 2 + n_log;
    const struct op_gdn &d = gdn->gdn;
    row_args a = {};

    if ((d.dim != 32 && d.dim != 64 && d.dim != 128) || d.dim_v != d.dim || norm->i[1] != d.dim_v ||
        conv->conv.taps != TAPS || conv->conv.bias != NULL || !conv->conv.silu || gdn->r.n > FEW_ROWS || !gdn->r.all ||
        (c->eight && d.dim != 128))
        return false;
    a.in = (const float *)conv->t[1].data;
    a.in_stride = (int)conv->t[1].stride;
    a.conv = conv->conv.w;
    a.past = conv->conv.rec.data;
    a.past_floats = conv->conv.rec.floats;
    a.channels = (int)conv->t[1].ne[0];
    a.alpha = (const float *)gdn->t[2].data;
    a.alpha_stride = (int)gdn->t[2].stride;
    a.beta = (const float *)gdn->t[3].data;
    a.beta_stride = (int)gdn->t[3].stride;
    a.a = d.a;
    a.dt_bias = d.dt_bias;
    a.eps = d.eps;
    a.n_k = d.n_k;
    a.each = d.k_grouped ? d.n_v / d.n_k : 0;
    a.state = d.rec.data;
    a.floats = d.rec.floats;
    a.seq = gdn->r.seq;
    a.z = (const float *)norm->t[2].data;
    a.z_stride = (int)norm->t[2].stride;
    a.w = (const float *)norm->p[0];
    a.w_pitch = norm->i[0] != norm->i[1] ? d.dim_v : 0;
    a.norm_eps = norm->f[0];
    a.rounded = rounded;
    a.rounded_stride = (int)x_row_bytes(norm->t[0].ne[0]);
    if ((uintptr_t)a.state % 16 != 0 || a.floats % 4 != 0)
        return false;
    if (!find_logs(&a, v + 2, n_log, d.n_v, gdn->r.n))
        return false;
    if (d.dim == 32)
        launch_row<32>(c, &a, gdn->r, d.n_v);
    else if (d.dim == 64)
        launch_row<64>(c, &a, gdn->r, d.n_v);
    else
        launch_row<128>(c, &a, gdn->r, d.n_v);
    return true;
}
