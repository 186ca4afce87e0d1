/* SPDX-License-Identifier: Apache-2.0 */
/* fused.cuh - launches that take the place of several nodes when a step has one row.   room: kernels (base quant ops)
 *
 * Each computes what the separate launches compute, in the same order of operations: which of them run is not to be
 * seen in the bytes. exec.cu recognises the nodes. */
#ifndef KERNELS_FUSED_CUH
#define KERNELS_FUSED_CUH
#include "kernels/hand.cuh"
#include "kernels/math.cuh"
#include "kernels/matvec.cuh"

/* What a product's activations are made from. */
enum input { IN_PLAIN, IN_NORM, IN_GLU, IN_SIGMOID, IN_ROUNDED };

struct fused_args {
    struct mv_args a;        /* a.x unused; jobs may be of type f32 */
    enum input     mode;
    const float   *x, *z, *w;
    float          eps;
    const uint8_t *x_rounded; /* IN_ROUNDED: instead of x; no job is of type f32 */
    float         *floats;   /* the activations, for later nodes; or NULL */
    uint8_t       *rounded;  /* the same rounded; or NULL */
    float         *res;      /* += scale times the first job's output; or NULL */
    float          scale;
    /* the memory of a convolution moves up by one row; channels 0: nothing to do */
    float         *past;
    const float   *newest;
    const op_seq  *seq;
    int64_t        past_floats, newest_stride;
    int            taps, channels;
};
enum { FUSED_K = 6144, WARP_NORM = 512, FUSED_SMEM = 40000 };
void cuda_fused_matvec(struct cuda *c, struct fused_args *f);

/* Convolution, normalisation, delta rule and gated norm of one row, rounded (the memory of the convolution is left to
 * fused_args); false: not of these shapes, nothing is launched. */
bool cuda_fused_gdn(struct cuda *c, const struct node *conv, const struct node *gdn, const struct node *norm,
                    uint8_t *rounded);

/* Router and the experts' first products. With a hand-over one block more gives rows to the host. */
struct fused_up {
    const float         *logits;
    struct op_route      r;
    int                 *expert;
    float               *weight;
    const uint8_t       *x;      /* rounded */
    const uint8_t       *gate, *up;
    int64_t              row_bytes, expert_bytes;
    int                  type, k, ff, act;
    float               *hid;    /* [n_used][ff] */
    const int           *slot;   /* op_moe.slot; NULL: all experts are here */
    struct hand_over     hand;   /* with slot: the others go to the host */
    const float         *floats; /* what they take, not rounded */
    const struct tables *tab;
};
void cuda_fused_up(struct cuda *c, const struct fused_up *f);

/* The experts' second products, their sum, the shared expert's, and the residual. What the host has computed is
 * awaited after the device's own products. */
struct fused_down {
    const int           *expert;
    const float         *weight, *hid;
    const uint8_t       *down;
    int64_t              row_bytes, expert_bytes;
    int                  type, n_used, ff, n;
    float               *y, *res;
    float                scale;
    const uint8_t       *sh;     /* NULL: no shared expert */
    int64_t              sh_bytes;
    int                  sh_type, sh_ff;
    const float         *sh_gate, *sh_up, *sh_open;
    const int           *slot;   /* as in fused_up */
    struct hand_over     hand;
    const struct tables *tab;
};
enum { FUSED_USED = 10 };
void cuda_fused_down(struct cuda *c, const struct fused_down *f);

/* Attention: heads picked apart, normalised, turned, stored. */
struct fused_heads {
    const float   *qg, *k, *v;
    float         *q, *gate;    /* gate NULL: qg is q */
    const float   *q_norm, *k_norm;
    float          eps;
    struct op_rope rope;        /* n_rot 0: none */
    struct op_kv   kv;
    struct rows    r;
    struct pages   pg;
    int            n_q;
    int            hadamard;    /* columns of a block; 0: not rotated */
};
void cuda_fused_heads(struct cuda *c, const struct fused_heads *f);

static __device__ __forceinline__ void prefetch_rows(const uint8_t *w, int64_t bytes)
{
    for (int64_t i = (int64_t)(threadIdx.x & 31) * 128; i < bytes; i += 32 * 128)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(w + i));
}

/* Launches may begin before what they depend on has ended: everything up to here may touch weights only. */
static __device__ __forceinline__ void wait_for_inputs(void)
{
    asm volatile("griddepcontrol.launch_dependents;");
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

template <class... P, class... A>
static void launch_early(struct cuda *c, const char *name, void (*kernel)(P...), dim3 grid, unsigned threads,
                         size_t smem, A... args)
{
    cudaLaunchConfig_t l = {};
    cudaLaunchAttribute early = {};

    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    l.gridDim = grid;
    l.blockDim = dim3(threads);
    l.dynamicSmemBytes = smem;
    l.stream = c->stream;
    l.attrs = &early;
    l.numAttrs = 1;
    c->launches++;
    cuda_fail(c, cudaLaunchKernelEx(&l, kernel, P(args)...), name);
}
#endif
