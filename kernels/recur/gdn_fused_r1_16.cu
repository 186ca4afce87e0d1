/* SPDX-License-Identifier: Apache-2.0 */
/* gdn_fused_r1_16.cu - the middle of a gated delta net layer for 1 to 16 tokens, in one kernel: convolution, norms of
 * keys and queries, delta rule, gated output norm, and quantisation for the next product. Each sum has the order of the
 * separate kernels (recur/conv.cu, recur/scan.cu, elem/elem.cu, gemm/pick.cuh). Draft rows that were kept are computed
 * again from the log, which needs only their keys, values, decays and betas. Logging and the convolution's state are
 * left to the next kernel.
 *
 * A block has 32 or 64 columns of a head's state S, eight lanes for one or two columns, and walks over the rows of some
 * sequences. What does not need S is done for all rows first: a thread has one channel of the convolution (the last
 * warps those of the values), then a warp the norm of one row's key or query. Afterwards a warp has 32 outputs of a
 * row, one unit of quantised activations. The blocks of a head form a cluster and exchange outputs for the sum of
 * squares. S is loaded by TMA boxes, one sequence's while another's is computed: threads that copied it would stall on
 * outstanding loads. It is stored the same way if a block may have several sequences; with a single one, waiting for
 * the box at the end would cost more. */
#include "kernels/common/tma.cuh"
#include "kernels/gemm/gemm_r2_16.cuh"
#include "kernels/device/fused.cuh"
#include "kernels/recur/state.cuh"

enum {
    TAPS = FUSED_TAPS,
    BLOCKS = 2 /* a multiprocessor */,
    SEQS = 4 /* of a block, at most */,
    BOX = 32 /* columns */
};
enum { BOX_AT = 1024 /* a multiple of it */ };

/* A block of COLS columns of a head of DIM: warps that have S, a thread a column of each box, and one more for 32
 * columns' values: what a thread reads of keys and queries serves all its columns, for shared memory is what the rule
 * waits for. */
template <int DIM, int COLS> struct shape {
    enum {
        STATE_WARPS = BOX / 4,
        UNITS = COLS / BOX,
        WARPS = STATE_WARPS + UNITS,
        RANKS = DIM / COLS,
        BOXED = COLS > BOX
    };
};

struct row_args {
    CUtensorMap box;               /* of S: column, row / 4, row % 4, head, slot */
    const float *in, *conv, *past; /* inputs of a channel: the newest, weights, those before */
    const float *alpha, *beta, *a, *dt_bias;
    const float *z, *w; /* gate and weights of the norm; w NULL: none */
    float *state;
    uint8_t *rounded;
    float *y;   /* the same, not rounded; or NULL */
    op_log log; /* of the inputs: channels, alphas, betas */
    const op_seq *seq;
    int64_t past_floats, floats;                                                  /* of a sequence */
    int in_stride, alpha_stride, beta_stride, z_stride, rounded_stride, y_stride; /* from row to row */
    int n_seq, each_seqs;                                                         /* of a block */
    int most;                /* rows of a sequence that are computed again, at most */
    int channels, n_k, each; /* key head of h: h / each, or h % n_k where each is 0 */
    int w_pitch;             /* of w, from head to head */
    float eps, norm_eps;
};

/* Of a sequence: S, in boxes, and the convolution's memory. Of a box row r is [r % 4][r / 4], and of its quads of
 * columns quad q is where q ^ r / 4 % 8 would be, which a box can do by itself (128 bytes' swizzle): eight lanes read
 * as many rows and meet in no bank. */
template <int DIM, int COLS> struct seq_state {
    float box[COLS / BOX][4][DIM / 4][BOX];
};
template <int DIM, int COLS> struct seq_past {
    float past[TAPS - 1][shape<DIM, COLS>::WARPS * 32];
};

/* Of a row that is computed again: channels of its key, normalised, and of its values. */
template <int DIM, int COLS> struct again_space {
    float key[DIM], values[COLS];
    float decay, beta, pad[2];
};

/* Of a row of the step also its query, normalised, which follows that. */
template <int DIM, int COLS> struct row_space {
    again_space<DIM, COLS> a;
    float query[DIM];
    float gate[DIM], out[DIM]; /* gates of the block's own columns; of all where these share a scale */
};

/* For each sequence of the block: barriers for its S, loaded (full) and ready to be stored (done); its slot; its first
 * row, its first draft row and its first row that is computed again, as places among the block's rows. row: the numbers
 * of these rows in the step. */
struct block_space {
    uint64_t full[SEQS], done[SEQS];
    int n_seq, slot[SEQS], first[SEQS + 1], draft[SEQS], again[SEQS + 1], row[FEW_ROWS];
};

/* The parts of shared memory, in this order: each sequence's S and kept inputs of its convolution, what the block
 * knows, rows that are computed again, rows of this step. */
template <int DIM, int COLS> struct spaces {
    seq_state<DIM, COLS> *states;
    seq_past<DIM, COLS> *pasts;
    block_space *block;
    again_space<DIM, COLS> *again;
    row_space<DIM, COLS> *rows;
};
template <int DIM, int COLS>
static __host__ __device__ __forceinline__ spaces<DIM, COLS> cut_spaces(uint8_t *at, int seqs, int most)
{
    spaces<DIM, COLS> s;

    s.states = (seq_state<DIM, COLS> *)at;
    s.pasts = (seq_past<DIM, COLS> *)(s.states + seqs);
    s.block = (block_space *)(s.pasts + seqs);
    s.again = (again_space<DIM, COLS> *)((uint8_t *)s.block + (sizeof(block_space) + 15) / 16 * 16);
    s.rows = (row_space<DIM, COLS> *)(s.again + seqs * most);
    return s;
}

/* What a thread has of its own. */
struct row_own {
    int channel; /* -1: none */
    float taps[TAPS], dt_bias, decay;
};

/* Which rows of which sequences are the block's; false: none. */
template <int DIM, int COLS> static __device__ __forceinline__ bool find_rows(block_space *b, const row_args &a)
{
    const int t = threadIdx.x, from = blockIdx.z * a.each_seqs, many = min(a.each_seqs, a.n_seq - from);

    if (t < many) {
        const op_seq seq = a.seq[from + t];
        int first = 0, again = 0;

        bar_init(b->full + t, 1);
        bar_init(b->done + t, shape<DIM, COLS>::STATE_WARPS);
        bar_init_done();
#pragma unroll 1
        for (int i = 0; i < t; i++) {
            first += a.seq[from + i].n;
            again += a.seq[from + i].again;
        }
        b->slot[t] = seq.slot;
        b->first[t] = first;
        b->first[t + 1] = first + seq.n;
        b->draft[t] = first + seq.n - seq.drafts;
        b->again[t] = again;
        b->again[t + 1] = again + seq.again;
        b->n_seq = many;
#pragma unroll 1
        for (int i = 0; i < seq.n; i++)
            b->row[first + i] = seq.row + i;
    }
    __syncthreads();
    return b->first[many] > 0;
}

/* By a thread: S of a sequence of the block, to shared memory or back. */
template <int DIM, int COLS, bool STORE>
static __device__ __forceinline__ void move_boxes(seq_state<DIM, COLS> *s, const row_args &a, int slot, uint64_t *full)
{
    if (!STORE)
        bar_expect(full, sizeof *s);
#pragma unroll
    for (int i = 0; i < COLS / BOX; i++) {
        const int at[5] = { (int)blockIdx.x * COLS + i * BOX, 0, 0, (int)blockIdx.y, slot };

        if (STORE)
            box_store(&a.box, at, s->box[i]);
        else
            box_go(s->box[i], &a.box, at, full);
    }
}

/* What is needed of a sequence's rows that are computed again: of keys and values all, of queries' channels the
 * convolution's memory after them. */
template <int DIM, int COLS>
static __device__ __forceinline__ void load_again(const row_own &own, const row_args &a, const spaces<DIM, COLS> &s,
                                                  int q)
{
    enum { STATE = shape<DIM, COLS>::STATE_WARPS * 32, KEPT = TAPS - 1 };
    const int t = threadIdx.x, n = s.block->again[q + 1] - s.block->again[q];
    const bool query = t >= DIM && t < STATE, value = t >= STATE;
    const op_seq &seq = a.seq[blockIdx.z * a.each_seqs + q];
    again_space<DIM, COLS> *to = s.again + s.block->again[q];

#pragma unroll 1
    for (int i = query && n > KEPT ? n - KEPT : 0; i < n; i++) {
        const float *logged = log_row(a.log, seq, i - n);

        copy4(query   ? &s.pasts[q].past[KEPT - n + i][t]
              : value ? &to[i].values[t - STATE]
                      : &to[i].key[t],
              logged + own.channel);
        if (value && t - STATE < 2)
            copy4(t == STATE ? &to[i].decay : &to[i].beta, logged + a.channels + (t - STATE) * gridDim.y + blockIdx.y);
    }
}

template <int DIM, int COLS>
static __device__ __forceinline__ void load_own(row_own &own, const row_args &a, const spaces<DIM, COLS> &s)
{
    enum { STATE = shape<DIM, COLS>::STATE_WARPS * 32, KEPT = TAPS - 1 };
    const int t = threadIdx.x;
    const int h = blockIdx.y, hk = a.each > 0 ? h / a.each : h % a.n_k, first = blockIdx.x * COLS;

    own.channel = t >= STATE    ? (2 * a.n_k + h) * DIM + first + t - STATE
                  : t < DIM     ? (a.n_k + hk) * DIM + t
                  : t < 2 * DIM ? hk * DIM + t - DIM
                                : -1;
#pragma unroll 1
    for (int q = 0; q < s.block->n_seq; q++) {
        const float *past = a.past + s.block->slot[q] * a.past_floats + own.channel;
        const int again = s.block->again[q + 1] - s.block->again[q], gone = t >= DIM && t < STATE ? again : 0;

#pragma unroll
        for (int j = 0; j < KEPT; j++)
            if (own.channel >= 0 && j + gone < KEPT)
                copy4(&s.pasts[q].past[j][t], past + (j + gone) * (int64_t)a.channels);
        if (again > 0 && own.channel >= 0)
            load_again<DIM, COLS>(own, a, s, q);
    }
    if (t < 32 && one_of_warp())
#pragma unroll 1
        for (int q = 0; q < s.block->n_seq; q++)
            move_boxes<DIM, COLS, false>(s.states + q, a, s.block->slot[q], s.block->full + q);
    __syncwarp();
    if (own.channel >= 0) {
        const float *w = a.conv + own.channel;
#pragma unroll
        for (int j = 0; j < TAPS; j++)
            own.taps[j] = w[j * (int64_t)a.channels];
    }
    own.dt_bias = a.dt_bias[h];
    own.decay = a.a[h];
}

/* Channels of n rows and of those that are computed again, and gates. */
template <int DIM, int COLS, bool EIGHT>
static __device__ __forceinline__ void convolve(const spaces<DIM, COLS> &s, const row_own &own, const row_args &a,
                                                int n)
{
    enum { PITCH = sizeof(row_space<DIM, COLS>) / sizeof(float), STATE = shape<DIM, COLS>::STATE_WARPS * 32 };
    enum { AGAIN_PITCH = sizeof(again_space<DIM, COLS>) / sizeof(float) };
    const int t = threadIdx.x, own_value = t - STATE, h = blockIdx.y;
    const bool values = own_value >= 0, query = !values && t >= DIM;
    row_space<DIM, COLS> *rows = s.rows;
    const block_space *b = s.block;
    float *at = query ? rows->query + t - DIM : values ? rows->a.values + own_value : rows->a.key + t;
    float *again = values ? s.again->values + own_value : s.again->key + t;

#pragma unroll 1
    for (int i = 0; i < n; i++) {
        const int row = b->row[i];

        if (own.channel >= 0)
            copy4(at + i * PITCH, a.in + row * a.in_stride + own.channel);
        if (EIGHT ? t < DIM : values) {
            const int column = EIGHT ? t : (int)blockIdx.x * COLS + own_value;

            copy4(rows[i].gate + column, a.z + row * a.z_stride + h * DIM + column);
        }
    }
#pragma unroll 1
    for (int i = values ? own_value : n; i < n; i += COLS) {
        copy4(&rows[i].a.decay, a.alpha + b->row[i] * a.alpha_stride + h);
        copy4(&rows[i].a.beta, a.beta + b->row[i] * a.beta_stride + h);
    }
    copy_end();
    copy_wait<0>();
    if (own.channel < 0)
        return;
#pragma unroll 1
    for (int q = 0; q < b->n_seq; q++) {
        float x[TAPS];

#pragma unroll
        for (int j = 0; j + 1 < TAPS; j++)
            x[j] = s.pasts[q].past[j][t];
#pragma unroll 1
        for (int i = query ? 0 : b->again[q] - b->again[q + 1], n_q = b->first[q + 1] - b->first[q]; i < n_q; i++) {
            float *now = i < 0 ? again : at, sum = 0.0f;

            x[TAPS - 1] = *now;
#pragma unroll
            for (int j = 0; j < TAPS; j++)
                sum = __fmaf_rn(own.taps[j], x[j], sum);
#pragma unroll
            for (int j = 0; j + 1 < TAPS; j++)
                x[j] = x[j + 1];
            *now = silu(sum);
            again += i < 0 ? (int)AGAIN_PITCH : 0;
            at += i < 0 ? 0 : (int)PITCH;
        }
    }
}

/* The sum of squares of a head's numbers, as any warp norm has it. */
template <int DIM> static __device__ __forceinline__ float sum_squares(const float *x)
{
    float sum = 0.0f;

#pragma unroll
    for (int j = 0; j < DIM / 32; j++) {
        const float v = x[(threadIdx.x & 31) + 32 * j];

        sum = __fmaf_rn(v, v, sum);
    }
    return warp_sum(sum);
}

/* Keys and queries, decays and betas of n rows, and of those that are computed again, without queries. */
template <int DIM, int COLS>
static __device__ __forceinline__ void normalise(const spaces<DIM, COLS> &s, const row_own &own, int n, float eps)
{
    enum { STATE_WARPS = shape<DIM, COLS>::STATE_WARPS };
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, own_value = (int)threadIdx.x - STATE_WARPS * 32;
    const int again = s.block->again[s.block->n_seq];

    if (own_value >= 0) {
#pragma unroll 1
        for (int i = own_value; i < n + again; i += COLS) {
            again_space<DIM, COLS> *r = i < n ? &s.rows[i].a : s.again + i - n;

            r->decay = expf(__fmul_rn(own.decay, softplus(__fadd_rn(r->decay, own.dt_bias))));
            r->beta = sigmoid(r->beta);
        }
        return;
    }
#pragma unroll 1
    for (int i = warp; i < 2 * n + again; i += STATE_WARPS) {
        float *x = i >= 2 * n ? s.again[i - 2 * n].key : i % 2 == 0 ? s.rows[i / 2].a.key : s.rows[i / 2].query;
        const float scale = i >= 2 * n || i % 2 == 0 ? 1.0f : __fdiv_rn(1.0f, __fsqrt_rn((float)DIM));
        const float f = __fdiv_rn(scale, __fsqrt_rn(__fadd_rn(sum_squares<DIM>(x), eps)));

#pragma unroll
        for (int j = 0; j < DIM / 32; j++)
            x[lane + 32 * j] = __fmul_rn(x[lane + 32 * j], f);
    }
}

/* S of a thread, to or from shared memory. The compiler is kept from keeping its places in registers. */
template <int DIM, int COLS, bool STORE>
static __device__ __forceinline__ void move_S(float S[COLS / BOX][DIM / 8], seq_state<DIM, COLS> *s)
{
    enum { NE = DIM / 8 };
    int p = threadIdx.x & 7, local = threadIdx.x / 8;

    asm volatile("" : "+r"(p), "+r"(local));
#pragma unroll
    for (int e = 0; e < NE; e += 4) {
        const int quad = element_at<NE>(p, e) / 4;
        float *at = s->box[0][0][quad] + (local / 4 ^ (quad & 7)) * 4 + local % 4;

#pragma unroll
        for (int i = 0; i < COLS / BOX * 4; i++)
            if (STORE)
                at[i * (DIM / 4 * BOX)] = S[i / 4][e + i % 4];
            else
                S[i / 4][e + i % 4] = at[i * (DIM / 4 * BOX)];
    }
}

/* Columns' rows: S, and their outputs to all blocks; a row's output is summed beside what the next one needs. The loop
 * is short for the instructions' sake: a longer one that prefetches is slower. Rows that are computed again go through
 * it, too: what follows them instead of a query makes outputs that nobody gets. S leaves when draft rows begin. */
template <int DIM, int COLS> static __device__ __forceinline__ void delta_rule(const spaces<DIM, COLS> &s)
{
    enum { NE = DIM / 8, RANKS = DIM / COLS, EACH = COLS / BOX };
    const int p = threadIdx.x & 7, local = threadIdx.x / 8;
    block_space *b = s.block;
    uint32_t to = cluster_at(s.rows->out + blockIdx.x * COLS + local, p % RANKS);
    float S[EACH][NE], last[EACH] = {};
    bool left = false; /* an output to give */

#pragma unroll 1
    for (int q = 0; q < b->n_seq; q++) {
        const again_space<DIM, COLS> *r = s.again + b->again[q];
        const int first = b->first[q], draft = b->draft[q], end = b->first[q + 1];
        int i = first - (b->again[q + 1] - b->again[q]);

        bar_wait(b->full + q, 0);
        move_S<DIM, COLS, false>(S, s.states + q);
#pragma unroll 1
        for (;; i++) {
            float k[NE], query[NE], out[EACH];

            if (i == draft) {
                move_S<DIM, COLS, true>(S, s.states + q);
                if (shape<DIM, COLS>::BOXED) {
                    proxy_fence();
                    __syncwarp();
                    if (threadIdx.x % 32 == 0)
                        bar_arrive(b->done + q);
                }
            }
            if (i == end)
                break;
            if (i == first)
                r = &s.rows[i].a;
            lane_elements<NE>(k, r->key, p);
            lane_elements<NE>(query, (const float *)(r + 1), p);
#pragma unroll
            for (int c = 0; c < EACH; c++) {
                float kv[2] = { 0.0f, 0.0f }, y[2] = { 0.0f, 0.0f };

#pragma unroll
                for (int e = 0; e < NE; e++)
                    kv[e % 2] = __fmaf_rn(S[c][e], k[e], kv[e % 2]);
                const float sum = fold8(__fadd_rn(kv[0], kv[1]));
                out[c] = fold8(last[c]);
                const float d = __fmul_rn(r->beta, __fsub_rn(r->values[c * BOX + local], __fmul_rn(r->decay, sum)));
#pragma unroll
                for (int e = 0; e < NE; e++) {
                    S[c][e] = __fmaf_rn(k[e], d, __fmul_rn(r->decay, S[c][e]));
                    y[e % 2] = __fmaf_rn(S[c][e], query[e], y[e % 2]);
                }
                last[c] = __fadd_rn(y[0], y[1]);
            }
            if (left) {
                if (p < RANKS)
#pragma unroll
                    for (int c = 0; c < EACH; c++)
                        cluster_store(to + c * BOX * (int)sizeof(float), out[c]);
                to += sizeof(row_space<DIM, COLS>);
            }
            left = i >= first;
            r = left ? (const again_space<DIM, COLS> *)((const row_space<DIM, COLS> *)r + 1) : r + 1;
        }
    }
#pragma unroll
    for (int c = 0; c < EACH; c++) {
        last[c] = fold8(last[c]);
        if (p < RANKS)
            cluster_store(to + c * BOX * (int)sizeof(float), last[c]);
    }
}

/* By a thread of another warp: S of all sequences, each when its warps have all of it. */
template <int DIM, int COLS>
static __device__ __forceinline__ void keep_boxes(const spaces<DIM, COLS> &s, const row_args &a)
{
#pragma unroll 1
    for (int q = 0; q < s.block->n_seq; q++) {
        bar_wait(s.block->done + q, 0);
        move_boxes<DIM, COLS, true>(s.states + q, a, s.block->slot[q], NULL);
    }
}

/* The same by the warps that have it: 16 bytes a thread of rows that lie alike in a box. */
template <int DIM, int COLS>
static __device__ __forceinline__ void keep_states(const spaces<DIM, COLS> &s, const row_args &a)
{
    enum { QUADS = COLS / 4, IN_BOX = BOX / 4, APART = shape<DIM, COLS>::STATE_WARPS * 32 / QUADS };
    const int row = threadIdx.x / QUADS, quad = threadIdx.x % QUADS;

    static_assert(APART % 32 == 0, "a multiple of 4 rows times 8");
    asm volatile("barrier.sync.aligned 1, %0;" ::"n"(shape<DIM, COLS>::STATE_WARPS * 32) : "memory");
#pragma unroll 1
    for (int q = 0; q < s.block->n_seq; q++) {
        const float *near = s.states[q].box[quad / IN_BOX][row % 4][row / 4] + (quad % IN_BOX ^ (row / 4 & 7)) * 4;
        float *far =
            a.state + s.block->slot[q] * a.floats + (blockIdx.y * DIM + row) * DIM + blockIdx.x * COLS + quad * 4;

#pragma unroll 1
        for (int i = row; i < DIM; i += APART, near += APART / 4 * BOX, far += APART * DIM)
            *(float4 *)far = *(const float4 *)near;
    }
}

/* The norm's weights of a lane: of its warp's unit, or where a head shares a scale of all its units. */
template <int DIM, bool EIGHT> struct norm_weights {
    enum { UNITS = EIGHT ? DIM / 32 : 1 };
    float of[UNITS];
};

template <int DIM, int COLS, bool EIGHT>
static __device__ __forceinline__ void load_weights(norm_weights<DIM, EIGHT> &w, const row_args &a)
{
    const int first = EIGHT ? threadIdx.x % 32 : blockIdx.x * COLS + threadIdx.x % COLS;

#pragma unroll
    for (int j = 0; j < norm_weights<DIM, EIGHT>::UNITS; j++)
        w.of[j] = a.w != NULL ? a.w[blockIdx.y * a.w_pitch + first + j * 32] : 1.0f;
}

/* Gated norm and rounding of n rows; warps that had no S to store take the first ones. With 8 bits all units of a head
 * share a scale. So whoever rounds a unit computes the head's largest magnitude, which is faster than asking the other
 * blocks. */
template <int DIM, int COLS, bool EIGHT>
static __device__ __forceinline__ void round_rows(const row_space<DIM, COLS> *rows, const block_space *b,
                                                  const row_args &a, const norm_weights<DIM, EIGHT> &w, int n)
{
    using of = shape<DIM, COLS>;
    enum { UNITS = DIM / 32, SHARED_UNITS = norm_weights<DIM, EIGHT>::UNITS };
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, of_head = blockIdx.x * of::UNITS + warp % of::UNITS;
    const int first = of::BOXED ? warp / of::UNITS : of::WARPS / of::UNITS - 1 - warp / of::UNITS;

#pragma unroll 1
    for (int i = first; i < n; i += of::WARPS / of::UNITS) {
        const row_space<DIM, COLS> &r = rows[i];
        const float factor = norm_factor(sum_squares<DIM>(r.out), DIM, a.norm_eps);
        float own = 0.0f;
        uint32_t top = 0;

#pragma unroll
        for (int j = 0; j < SHARED_UNITS; j++) {
            const int unit = EIGHT ? j : of_head, at = unit * 32 + lane;
            float y = __fmul_rn(r.out[at], factor);

            if (a.w != NULL)
                y = __fmul_rn(y, w.of[j]);
            y = __fmul_rn(r.gate[at], y);
            own = unit == of_head ? y : own;
            top = max(top, size_of(y));
        }
        round_unit(a.rounded + b->row[i] * a.rounded_stride, gridDim.y * UNITS, own, blockIdx.y * UNITS + of_head,
                   __reduce_max_sync(0xffffffffu, top), EIGHT);
        if (a.y != NULL)
            a.y[(int64_t)b->row[i] * a.y_stride + (blockIdx.y * UNITS + of_head) * 32 + lane] = own;
    }
}

/* grid: columns (a cluster), head, some sequences; DIM: of keys and of values; EIGHT: how outputs are rounded, heads of
 * 128 only. Blocks find room when those of the launch before have ended: a first pass that only brought the
 * instructions would be waited for. */
template <int DIM, int COLS, bool EIGHT>
__global__ void __cluster_dims__(DIM / COLS) __launch_bounds__(shape<DIM, COLS>::WARPS * 32, BLOCKS)
    gdn_row(const __grid_constant__ row_args a)
{
    extern __shared__ __align__(BOX_AT) uint8_t shared[];
    const int own_value = (int)threadIdx.x - shape<DIM, COLS>::STATE_WARPS * 32;
    const spaces<DIM, COLS> s = cut_spaces<DIM, COLS>(shared, a.each_seqs, a.most);
    row_own own;
    norm_weights<DIM, EIGHT> weights;

    if (threadIdx.x == 0)
        map_near(&a.box);
    if (!find_rows<DIM, COLS>(s.block, a))
        return;
    cluster_here();
    let_next_begin();
    /* the memories are of earlier steps: they may be read before the launch before this one has ended */
    load_own<DIM, COLS>(own, a, s);
    load_weights<DIM, COLS, EIGHT>(weights, a);
    const int n = s.block->first[s.block->n_seq];

    cluster_wait(); /* its blocks are there, and may be given outputs */
    wait_for_inputs();
    convolve<DIM, COLS, EIGHT>(s, own, a, n);
    __syncthreads();
    normalise<DIM, COLS>(s, own, n, a.eps);
    __syncthreads();
    if (own_value < 0) {
        delta_rule<DIM, COLS>(s);
    } else {
#pragma unroll 1
        for (int i = 0; i < n; i++)
#pragma unroll
            for (int j = 0; j < (EIGHT ? DIM : COLS); j += COLS) {
                float *gate = s.rows[i].gate + (EIGHT ? j : blockIdx.x * COLS) + own_value;

                *gate = silu(*gate);
            }
    }
    cluster_given();
    if constexpr (shape<DIM, COLS>::BOXED) {
        if (own_value == 0)
            keep_boxes<DIM, COLS>(s, a);
    } else if (own_value < 0) {
        keep_states<DIM, COLS>(s, a);
    }
    __syncwarp();
    cluster_wait();
    round_rows<DIM, COLS, EIGHT>(s.rows, s.block, a, weights, n);
    if (shape<DIM, COLS>::BOXED && own_value == 0)
        boxes_left();
}

/* A tensor map of S of all sequences (CUDA driver API, cuTensorMapEncodeTiled). */
template <int DIM> static void map_S(struct cuda *c, row_args *a, int heads)
{
    enum { ROW = DIM * sizeof(float) };
    const uint64_t dim[5] = { DIM, DIM / 4, 4, (uint64_t)heads, 1u << 16 /* or fewer */ };
    const uint64_t pitch[4] = { 4 * ROW, ROW, DIM * ROW, (uint64_t)a->floats * sizeof(float) };
    const uint32_t size[5] = { BOX, DIM / 4, 4, 1, 1 }, step[5] = { 1, 1, 1, 1, 1 };

    if (c->encode(&a->box, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 5, a->state, dim, pitch, size, step,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
        cuda_fail(c, cudaErrorInvalidValue, "cuTensorMapEncodeTiled");
}

/* The number of sequences a block that keeps all blocks resident at once, `parts` times the heads' clusters, if there
 * is room for their memories. */
template <int DIM, int COLS>
static bool launch_cols(struct cuda *c, row_args *a, const struct rows &r, int heads, int parts)
{
    using of = shape<DIM, COLS>;
    const auto bytes_of = [&](int seqs) {
        const int rows = seqs * r.max_n < r.n ? seqs * r.max_n : r.n;

        return (size_t)(uintptr_t)(cut_spaces<DIM, COLS>(NULL, seqs, a->most).rows + rows);
    };
    int each = (int)ceil_div(r.n_seq, parts > 1 ? parts : 1);

    each = each < SEQS ? each : (int)SEQS;
    while (each > 1 && bytes_of(each) > (size_t)cuda_attn_smem(c))
        each--;
    if (bytes_of(each) > (size_t)cuda_attn_smem(c))
        return false;
    a->n_seq = r.n_seq;
    a->each_seqs = each;
    const auto kernel = DIM == 128 && c->eight ? gdn_row<DIM, COLS, DIM == 128> : gdn_row<DIM, COLS, false>;

    launch_early(c, "gdn_row", kernel, dim3(of::RANKS, (unsigned)heads, (unsigned)ceil_div(r.n_seq, each)),
                 of::WARPS * 32, bytes_of(each), *a);
    return true;
}

/* Clusters of four blocks, two a multiprocessor, do not fill a GPU whose parts have odd numbers of those: the last ones
 * would begin when others end. Clusters of two larger ones do. */
template <int DIM> static bool launch_row(struct cuda *c, row_args *a, const struct rows &r, int heads)
{
    enum { WIDE = DIM == 128 ? 64 : 32 };
    const int turn = BLOCKS * c->sms, blocks = DIM / 32 * heads, wide = DIM / WIDE * heads;

    map_S<DIM>(c, a, heads);
    if (WIDE > 32 && r.n_seq > 1 && r.n_seq * blocks > c->sms && wide <= c->sms)
        return launch_cols<DIM, WIDE>(c, a, r, heads, turn / wide);
    return launch_cols<DIM, 32>(c, a, r, heads, turn / blocks);
}

/* Whether inputs lie side by side as they are logged. */
static bool in_a_row(const row_args *a, int n_v)
{
    return a->alpha == a->in + a->channels && a->beta == a->alpha + n_v && a->alpha_stride == a->in_stride &&
           a->beta_stride == a->in_stride && a->log.width == a->channels + 2 * n_v;
}

bool cuda_fused_gdn(struct cuda *c, const struct node *v, uint8_t *rounded, bool both)
{
    const struct node *conv = v, *gdn = v + 1, *norm = v + 2;
    const struct op_gdn &d = gdn->gdn;
    const struct gemm_delta asked = {
        d.dim, d.dim_v, norm->i[1], conv->conv.taps, conv->conv.bias == NULL && conv->conv.silu, c->eight
    };
    row_args a = {};

    if (!gemm_fuses_delta(&asked) || gdn->r.n > FEW_ROWS || !gdn->r.all)
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
    a.y = both ? (float *)norm->t[0].data : NULL;
    a.y_stride = (int)norm->t[0].stride;
    if ((uintptr_t)a.state % 16 != 0 || a.floats % 4 != 0)
        return false;
    a.log = conv->conv.rec.log;
    a.most = a.log.rows > 0 ? a.log.most : 0;
    if (a.log.rows > 0 && !in_a_row(&a, d.n_v))
        return false;
    return d.dim == 32   ? launch_row<32>(c, &a, gdn->r, d.n_v)
           : d.dim == 64 ? launch_row<64>(c, &a, gdn->r, d.n_v)
                         : launch_row<128>(c, &a, gdn->r, d.n_v);
}
