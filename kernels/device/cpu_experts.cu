/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_experts.cu - experts that the CPU computes in the middle of a step.
 *
 * Token rows and expert ids cross in pinned memory that both sides see; results come back the same way. A step with
 * hand-overs is still one CUDA graph. The CPU launches it, then serves the hand-overs in order: it waits for each one's
 * flag and computes its experts while the GPU computes those it has. Hand-overs are numbered from 1 on both sides. The
 * GPU keeps its counter in device memory, so that a replayed graph goes on counting.
 *
 * The GPU waits in a kernel. The CPU always answers, since its part cannot fail. If it does not answer within 30
 * seconds (a debugger that delays launches), the kernel gives up and the step fails.
 *
 * With one token the hand-over needs no kernel of its own: the expert kernels send and wait (moe/moe_r1.cu). With 2 to
 * 16 tokens the last expert kernel waits (moe/moe_r2_16.cu). If no token uses an expert of the CPU, only the counter
 * advances: the GPU goes on at once, and the CPU learns it from a later hand-over or from the end of the step. */
#include <stdlib.h>
#include <string.h>

#include "kernels/device/fused.cuh"

/* A block for each row; the last one says that they are there. */
__global__ void __launch_bounds__(256) take_out(const hand_over h, const float *x, int64_t stride, int width,
                                                const int *expert, int n_used, const int *slot)
{
    __shared__ unsigned long long taken;
    const int64_t row = blockIdx.x;

    wait_for_inputs();
    const bool away = hand_any(expert + row * n_used, n_used, slot);
    if (away)
        hand_row(h, row, x + row * stride, width);
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0) {
        const unsigned long long mine = away ? 1ull << 32 | 1 : 1;

        taken = atomicAdd(&h.turn->taken, mine) + mine;
    }
    __syncthreads();
    if ((uint32_t)taken != gridDim.x)
        return;
    if (taken >> 32 > 0)
        hand_give(h, expert, (int)gridDim.x * n_used);
    else if (threadIdx.x == 0)
        hand_pass(h);
    if (threadIdx.x == 0)
        h.turn->taken = 0;
}

/* A block for each pair. The first waits for any of them: the next hand-over does not begin before this has ended. */
__global__ void __launch_bounds__(256)
    bring_in(const hand_over h, float *out, int64_t stride, int width, const int *expert, const int *slot)
{
    int64_t pair = blockIdx.x;
    bool here = slot[expert[pair]] >= 0;

    if (pair == 0 ? h.turn->given != h.turn->now : here)
        return;
    if (threadIdx.x == 0)
        hand_await(h, pair == 0);
    __syncthreads();
    for (int i = threadIdx.x; !here && i < width; i += 256)
        out[pair * stride + i] = __ldcv(h.out + pair * width + i);
}

__global__ void add_uses(unsigned long long *count, const int *expert, int64_t n)
{
    int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;

    if (i < n)
        atomicAdd(count + expert[i], 1ull);
}

void cuda_tally(struct cuda *c, const struct node *v)
{
    LAUNCH(c, add_uses, (unsigned)ceil_div((int64_t)v->n, 256), 256, 0, (unsigned long long *)v->out,
           (const int *)v->p[0], (int64_t)v->n);
}

void cuda_hand_need(struct cuda *c, int64_t n, int n_used, int64_t width, int64_t out_width)
{
    struct hand *h = &c->hand;
    size_t f = sizeof(float), x = (size_t)(n * width) * f, ids = (size_t)(n * n_used) * sizeof(int);
    size_t out = (size_t)(n * n_used * out_width) * f;

    h->x_need = x > h->x_need ? x : h->x_need;
    h->ids_need = ids > h->ids_need ? ids : h->ids_need;
    h->out_need = out > h->out_need ? out : h->out_need;
}

const struct op_hand *cuda_hand_keep(struct cuda *c, const struct op_hand *h)
{
    struct hand *to = &c->hand;
    const struct op_moe_adapt *a = h->moe.adapt;

    if (to->n_adapted == to->cap_adapted) {
        const int cap = to->cap_adapted + 64;
        struct hand_adapted **more = (struct hand_adapted **)realloc(to->adapted, (size_t)cap * sizeof *more);

        if (more == NULL) {
            cuda_fail(c, cudaErrorMemoryAllocation, "hand-over");
            return NULL;
        }
        memset(more + to->cap_adapted, 0, 64 * sizeof *more);
        to->adapted = more;
        to->cap_adapted = cap;
    }
    struct hand_adapted *&k = to->adapted[to->n_adapted];
    k = k != NULL ? k : (struct hand_adapted *)malloc(sizeof *k);
    if (k == NULL) {
        cuda_fail(c, cudaErrorMemoryAllocation, "hand-over");
        return NULL;
    }
    to->n_adapted++;
    k->hand = *h;
    k->adapt = *a;
    k->hand.moe.adapt = &k->adapt;
    struct op_adapt *const part[3] = { &k->adapt.gate, &k->adapt.up, &k->adapt.down };
    for (int i = 0; i < 3; i++) {
        if (part[i]->pair == NULL)
            continue;
        memcpy(k->pair[i], part[i]->pair, (size_t)a->terms->n * sizeof *k->pair[i]);
        part[i]->pair = k->pair[i];
    }
    return &k->hand;
}

const struct op_hand *cuda_hand_kept(const struct cuda *c)
{
    return c->hand.n_adapted > 0 ? &c->hand.adapted[c->hand.n_adapted - 1]->hand : NULL;
}

void cuda_hand_close(struct cuda *c)
{
    struct hand *h = &c->hand;

    (void)cudaFreeHost(h->pinned);
    (void)cudaFree(h->turn);
    h->pinned = NULL;
    h->turn = NULL;
    h->cap = 0;
}

void cuda_hand_reserve(struct cuda *c)
{
    struct hand *h = &c->hand;
    size_t x = round_up(h->x_need, 4096), ids = round_up(h->ids_need, 4096), out = round_up(h->out_need, 4096);
    size_t all = 4096 + x + ids + out;

    if (h->out_need == 0 || all <= h->cap || c->dry_run)
        return;
    TRY(c, cudaStreamSynchronize(c->stream));
    cuda_drop_graphs(c);
    cuda_hand_close(c);
    TRY(c, cudaHostAlloc((void **)&h->pinned, all, cudaHostAllocMapped));
    TRY(c, cudaMalloc((void **)&h->turn, sizeof *h->turn));
    if (c->bad != cudaSuccess)
        return;
    memset(h->pinned, 0, all);
    TRY(c, cudaMemsetAsync(h->turn, 0, sizeof *h->turn, c->stream));
    h->turns = 0;
    h->cap = all;
    h->x = (float *)(h->pinned + 4096);
    h->ids = (int *)(h->pinned + 4096 + x);
    h->out = (float *)(h->pinned + 4096 + x + ids);
}

struct hand_over cuda_hand_over(struct cuda *c)
{
    struct hand *h = &c->hand;

    return (struct hand_over){ (volatile struct hand_flags *)h->pinned, h->x, h->ids, h->out, h->turn };
}

void cuda_hand_out(struct cuda *c, const struct node *v)
{
    const struct op_hand *o = (const struct op_hand *)v->p[1];
    const struct tensor &x = v->t[1];

    launch_early(c, "take_out", take_out, dim3((unsigned)x.ne[1]), 256, 0, cuda_hand_over(c), (const float *)x.data,
                 x.stride, (int)x.ne[0], (const int *)v->p[0], o->moe.n_used, o->here);
}

void cuda_hand_in(struct cuda *c, const struct node *v)
{
    const struct op_hand *o = (const struct op_hand *)v->p[1];
    const struct tensor &out = v->t[0];

    LAUNCH(c, bring_in, (unsigned)out.ne[1], 256, 0, cuda_hand_over(c), (float *)out.data, out.stride, (int)out.ne[0],
           (const int *)v->p[0], o->here);
}

/* Until the device has rows of this turn; false: it passed, as a later one is there, or *ended as all is done. */
static bool reached(struct cuda *c, volatile struct hand_flags *f, uint32_t turn, bool *ended)
{
    enum { LOOKS = 128 };

    for (unsigned spin = 1;; spin++) {
        uint32_t out = __atomic_load_n(&f->out, __ATOMIC_ACQUIRE);

        if ((int32_t)(out - turn) >= 0)
            return out == turn;
        if (*ended)
            return false;
        __builtin_ia32_pause();
        if (spin % LOOKS != 0)
            continue;
        cudaError_t e = cudaStreamQuery(c->stream);
        if (e == cudaErrorNotReady)
            continue;
        cuda_fail(c, e, "hand-over");
        *ended = true;
    }
}

bool cuda_hand_work(struct cuda *c, const struct node *v, bool ended)
{
    struct hand *h = &c->hand;
    volatile struct hand_flags *f = (volatile struct hand_flags *)h->pinned;
    const struct op_hand *o = (const struct op_hand *)v->p[1];
    int64_t n = v->t[1].ne[1], width = v->t[1].ne[0], out_width = v->t[0].ne[0];
    struct op_moe a = o->moe;
    struct tensor x = { QUANT_f32, { width, n, 1 }, width, 0, h->x, false };
    struct tensor out = { QUANT_f32, { out_width, n * a.n_used, 1 }, out_width, 0, h->out, false };

    if (c->bad != cudaSuccess)
        return ended;
    if (reached(c, f, ++h->turns, &ended)) {
        a.expert = h->ids;
        op_moe_pairs(o->dev, out, x, &a);
        __atomic_store_n(&f->in, h->turns, __ATOMIC_RELEASE);
    }
    if (f->failed != 0)
        cuda_fail(c, cudaErrorLaunchTimeout, "hand-over");
    return ended;
}
