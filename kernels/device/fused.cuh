/* SPDX-License-Identifier: Apache-2.0 */
/* fused.cuh - arguments of the fused kernels, which replace several nodes in steps with few tokens.
 * room: kernels
 *
 * Each computes what the separate kernels compute, in the same order of operations, so fusing changes no byte.
 * device/launch.cu recognises the nodes. */
#ifndef KERNELS_DEVICE_FUSED_CUH
#define KERNELS_DEVICE_FUSED_CUH
#include "kernels/adapt/adapt.cuh"
#include "kernels/device/cpu_experts.cuh"
#include "kernels/common/math.cuh"
#include "kernels/gemm/pick.cuh"

/* Where a product's input comes from. IN_ROUNDED: it is rounded already. With more than one row (a.nx), and after an
 * RMS norm unless all products are of floats, a kernel of one block rounds it to `rounded`. It runs while the products'
 * blocks start and prefetch weights (programmatic dependent launch); their launch then has IN_READY. */
enum input { IN_PLAIN, IN_NORM, IN_GLU, IN_SIGMOID, IN_ROUNDED, IN_READY };

/* The memory of a convolution of FUSED_TAPS moves up by the certain rows of its sequences, and inputs are logged, of
 * all `wide` columns; channels 0: nothing to do. */
enum { FUSED_TAPS = 4 };
struct past_move {
    float *past;
    const float *newest;
    const op_seq *seq;
    int64_t past_floats, newest_stride;
    int channels, wide, n_seq;
    struct op_log log;
};

struct fused_args {
    struct mv_args a; /* a.x: IN_ROUNDED; jobs may be of type f32, but then not of rounded activations */
    enum input mode;
    const float *x, *z, *w;
    float eps;
    float *floats;    /* the activations, for later nodes; or NULL */
    uint8_t *rounded; /* the same rounded, of several rows and of norms */
    float *res;       /* += scale times the first job's output; or NULL */
    float scale;
    int64_t x_stride, z_stride, floats_stride, res_stride; /* of several rows */
    struct past_move past;
};
enum { FUSED_SMEM = 96 << 10 };
/* Nodes of adapters that add to results of one row, before the residual does, in the same launch. */
struct fused_added {
    const struct node *v[JOBS];
    int n;
};
/* The launch of a product of this type, with such inputs, can have what this node adds. */
bool cuda_adds_here(const struct cuda *c, const struct node *v, enum input mode, int type);
void cuda_added_begin(struct cuda *c); /* before nodes of one row with adapters */
void cuda_fused_matvec(struct cuda *c, struct fused_args *f, const struct fused_added *added = NULL); /* NULL: none */

/* The format of small matrices that share a launch with larger ones of another format, and how many rows they have at
 * most in all: files store the delta rule's gates in it, and a separate launch takes far longer than reading their
 * bytes. */
enum { BESIDE = QUANT_q8_0, MOST_BESIDE = 128 };
static inline bool beside_fits(const struct mv_args *a)
{
    int rows = 0;

    for (int i = 0; i < a->n; i++)
        rows += a->job[i].type == BESIDE ? a->job[i].n_rows : 0;
    return rows <= MOST_BESIDE;
}

/* f->rounded gets the rows, f->floats, unless NULL, what they are before. */
void cuda_fused_round(struct cuda *c, const struct fused_args *f);

/* Up to FEW_ROWS rows: v, convolution; delta rule; gated norm, here rounded; both: its output is floats, too. The
 * memory of the convolution is to be moved by a launch after it, which logs the inputs. false: not of these shapes,
 * nothing is launched. */
bool cuda_fused_gdn(struct cuda *c, const struct node *v, uint8_t *rounded, bool both);

/* Matrices of experts; w NULL: there is none. */
struct expert_matrix {
    const uint8_t *w;
    int64_t row_bytes, expert_bytes;
    int type;
};
static inline struct expert_matrix expert_matrix_of(struct tensor w)
{
    const int64_t bytes = w.data == NULL ? 0 : quant_row_bytes(w.type, w.ne[0]);

    return { (const uint8_t *)w.data, bytes, w.pitch * bytes, w.type };
}
/* Which of the matrices is an expert's; -1: it is not here. */
static __device__ __forceinline__ int matrix_of(const int *slot, int expert)
{
    return slot == NULL ? expert : slot[expert];
}

/* First products: act(gate x) up x, or act(up x) without a gate, [ff] for each expert; raw: up x, and gate x in
 * `gates`. */
struct expert_up {
    struct expert_matrix gate, up;
    int ff, act;
    float *hid;
    bool raw;
    float *gates;
};
enum { FUSED_USED = GEMM_CHOICE_USED };

/* Router and the first products of experts, chosen and shared (sh.up.w NULL: none). A block of its own keeps the
 * choice, and with a hand-over gives rows to the host. */
struct fused_up {
    const float *logits;
    struct op_route r;
    int *expert;
    float *weight;
    const uint8_t *x; /* rounded */
    int k;
    struct expert_up routed, sh;
    const int *slot;       /* op_moe.slot; NULL: all experts are here */
    struct hand_over hand; /* with slot: the others go to the host */
    const float *floats;   /* what they take, not rounded */
    bool eight;            /* how x is rounded */
    int space;             /* in shared memory, for strips that are brought there; set by the launch */
    const struct tables *tab;
};
bool cuda_fused_up_fits(const struct fused_up *f); /* whether there is a kernel for its formats, and room */
void cuda_fused_up(struct cuda *c, struct fused_up *f);

/* The experts' second products, their sum, the shared expert's, and the residual. The launch before it has to be
 * cuda_fused_up(), which tells it `expert` early, or cuda_adapt_between() after that. What the host has computed is
 * awaited after the device's own products. */
struct fused_down {
    const int *expert;
    const float *weight, *hid, *sh_hid;
    struct expert_matrix routed, sh; /* sh.w NULL: no shared expert */
    int n_used, ff, sh_ff, n;
    float *y, *res;
    float scale;
    const float *sh_open;
    const int *slot; /* as in fused_up, of n_expert */
    int n_expert;
    struct hand_over hand;
    bool eight;         /* how hidden rows are to be rounded */
    int near_at, space; /* as in fused_up; where what is brought begins */
    struct adapt_down added;
    const struct tables *tab;
};
bool cuda_fused_down_fits(const struct fused_down *f);
void cuda_fused_down(struct cuda *c, struct fused_down *f);

/* Attention of few rows: heads picked apart, normalised, turned, rotated, stored, read, gated, rounded. */
struct fused_heads {
    const float *qg, *k, *v;
    int qg_stride, k_stride, v_stride; /* from row to row */
    bool gated;                        /* qg: of each head queries, then gates; else queries */
    const float *q_norm, *k_norm;
    float eps;
    struct op_rope rope; /* n_rot 0: none */
    int hadamard;        /* columns of a block; 0: not rotated */
};
bool cuda_attn_row_fits(const struct cuda *c, const struct node *attn);
/* Returns where the rounded rows are; both: the node's output is floats, too. */
const uint8_t *cuda_attn_row(struct cuda *c, const struct fused_heads *f, const struct node *attn, bool both);

/* Prefetches n bytes. All `threads` threads call it; t is the calling one's number. */
static __device__ __forceinline__ void prefetch(const uint8_t *w, int n, int t, int threads)
{
#pragma unroll 1
    for (int i = t * 128; i < n; i += threads * 128)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(w + i));
}

static __device__ __forceinline__ void let_next_begin(void)
{
    asm volatile("griddepcontrol.launch_dependents;");
}

/* Launches may begin before the launch that they depend on has ended: everything up to here may only read weights, and
 * data that the launch before wrote before it let this one begin (experts of fused_down). */
static __device__ __forceinline__ void only_wait_for_inputs(void)
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

static __device__ __forceinline__ void wait_for_inputs(void)
{
    let_next_begin();
    only_wait_for_inputs();
}

/* Moves a convolution's kept inputs on. All `threads` threads call it; t is the calling one's number. The thread of a
 * channel reads all that it will overwrite. */
static __device__ __forceinline__ void move_past(const past_move &m, int t, int threads)
{
    enum { KEPT = FUSED_TAPS - 1, AT_ONCE = 4 };

    if (m.channels == 0)
        return;
#pragma unroll 1
    for (int i = 0, c = t;; c += threads) {
        for (; c >= m.wide && i < m.n_seq; c -= m.wide)
            i++;
        if (i >= m.n_seq)
            return;
        const op_seq &s = m.seq[i];
        if (c < m.channels) {
            float *past = m.past + s.slot * m.past_floats + c, keep[KEPT];
#pragma unroll
            for (int j = 0; j < KEPT; j++) {
                const int n = s.n - s.drafts - KEPT + j;

                keep[j] = *(n >= 0          ? m.newest + (s.row + n) * m.newest_stride + c
                            : n >= -s.again ? log_row(m.log, s, n) + c
                                            : past + (int64_t)(KEPT + n + s.again) * m.channels);
            }
#pragma unroll
            for (int j = 0; j < KEPT; j++)
                past[(int64_t)j * m.channels] = keep[j];
        }
        const float *newest = m.newest + (int64_t)s.row * m.newest_stride + c;
#pragma unroll 1
        for (int n = s.n - s.logged; n < s.n; n += AT_ONCE) {
            float v[AT_ONCE];
#pragma unroll
            for (int j = 0; j < AT_ONCE; j++)
                v[j] = n + j < s.n ? newest[(n + j) * m.newest_stride] : 0.0f;
#pragma unroll
            for (int j = 0; j < AT_ONCE; j++)
                if (n + j < s.n)
                    log_row(m.log, s, n + j)[c] = v[j];
        }
    }
}

enum { SMEM_UNASKED = 24 << 10 }; /* dynamic shared memory, beside what a kernel has of its own */

/* What a failed launch is called; the file of the call, to count it. */
struct launch_name {
    const char *name, *file;

    launch_name(const char *name, const char *file = __builtin_FILE()) : name(name), file(file)
    {
    }
};

/* The number of blocks, neighbours in the grid's x or y, in a cluster. */
template <class... P, class... A>
static void launch_clusters(struct cuda *c, launch_name of, void (*kernel)(P...), dim3 cluster, dim3 grid,
                            unsigned threads, size_t smem, A... args)
{
    cudaLaunchConfig_t l = {};
    cudaLaunchAttribute attr[2] = {};
    int n = 0;

    if (!c->sent) {
        attr[n].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attr[n++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (cluster.x * cluster.y > 1) {
        attr[n].id = cudaLaunchAttributeClusterDimension;
        attr[n].val.clusterDim.x = cluster.x;
        attr[n].val.clusterDim.y = cluster.y;
        attr[n++].val.clusterDim.z = 1;
    }
    if (smem > SMEM_UNASKED)
        cuda_fail(c, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)smem), of.name);
    l.gridDim = grid;
    l.blockDim = dim3(threads);
    l.dynamicSmemBytes = smem;
    l.stream = c->stream;
    l.attrs = attr;
    l.numAttrs = (unsigned)n;
    c->sent = false;
    cuda_count_launch(c, of.file);
    cuda_fail(c, cudaLaunchKernelEx(&l, kernel, P(args)...), of.name);
}

template <class... P, class... A>
static void launch_early(struct cuda *c, launch_name of, void (*kernel)(P...), dim3 grid, unsigned threads, size_t smem,
                         A... args)
{
    launch_clusters(c, of, kernel, dim3(1), grid, threads, smem, args...);
}
#endif
