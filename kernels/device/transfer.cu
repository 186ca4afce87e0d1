/* SPDX-License-Identifier: Apache-2.0 */
/* transfer.cu - copies a step's data and answer between host and device by kernels, which start sooner than the copy
 * engine. */
#include "kernels/device/fused.cuh"

enum { THREADS = 256 };
struct send_args {
    uint4 *to[2];
    const uint4 *from[2];
    int n[2];
};

__global__ void __launch_bounds__(THREADS) send_data(const __grid_constant__ send_args a)
{
    /* one after the other they would cross the bus twice */
    for (int i = threadIdx.x; i < a.n[0] + a.n[1]; i += THREADS) {
        const int k = i >= a.n[0], j = k > 0 ? i - a.n[0] : i;

        a.to[k][j] = __ldcv(a.from[k] + j);
    }
}

/* Sizes and places are multiples of 16. Positions, pages and rows may be read by launches before they wait, and those
 * begin when the ones before have begun: so the first after this one begins when it has ended, and all others after
 * that. */
void cuda_send(struct cuda *c, const struct node *v)
{
    const send_args a = { { (uint4 *)v->out, (uint4 *)v->p[1] },
                          { (const uint4 *)v->p[0], (const uint4 *)v->p[2] },
                          { (int)(v->n / sizeof(uint4)), v->i[0] / (int)sizeof(uint4) } };

    if (a.n[0] + a.n[1] == 0)
        return;
    LAUNCH(c, send_data, 1, THREADS, 0, a);
    c->sent = true;
}

struct copy_args {
    unsigned char *to;
    const unsigned char *from;
    int n;
    bool words;            /* all are multiples of 4 */
    uint32_t *turn, *done; /* NULL: no signal */
};

__global__ void __launch_bounds__(THREADS) copy_some(const __grid_constant__ copy_args a)
{
    wait_for_inputs();
    if (a.words)
        for (int i = threadIdx.x; i < a.n / 4; i += THREADS)
            ((uint32_t *)a.to)[i] = ((const uint32_t *)a.from)[i];
    else
        for (int i = threadIdx.x; i < a.n; i += THREADS)
            a.to[i] = a.from[i];
    if (a.done == NULL)
        return;
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0)
        *(volatile uint32_t *)a.done = ++*a.turn;
}

int cuda_copy(struct cuda *c, const struct node *v, int n)
{
    const bool copy = v->op == NODE_COPY, done = !copy || (n > 1 && v[1].op == NODE_DONE);
    const char *from = (const char *)v->p[0];
    char *to = (char *)v->out;
    copy_args a = { (unsigned char *)to, (const unsigned char *)from, copy ? (int)v->n : 0, false, NULL, NULL };

    /* Moving down within one array is allowed: a round trip through working memory is not worth having for it, so
     * overlapping copies go in pieces that do not overlap. */
    if (copy && (v->n > SMALL_MOVE || (to < from + v->n && from < to + v->n))) {
        const size_t step = to < from && (size_t)(from - to) < v->n ? (size_t)(from - to) : v->n;

        for (size_t at = 0; at < v->n; at += step) {
            size_t m = v->n - at < step ? v->n - at : step;

            cuda_fail(c, cudaMemcpyAsync(to + at, from + at, m, cudaMemcpyDefault, c->stream), "copy");
        }
        return 1;
    }
    a.words = ((uintptr_t)to | (uintptr_t)from | v->n) % 4 == 0;
    if (done) {
        a.turn = c->done.turn;
        a.done = (uint32_t *)c->done.said;
    }
    launch_early(c, "copy", copy_some, dim3(1), THREADS, 0, a);
    return copy + done;
}

static bool is_done(const struct cuda *c, uint32_t turn)
{
    return (int32_t)(*c->done.said - turn) >= 0;
}

/* A device waits for the rows of the one before it, which may have failed. */
static bool others_failed(struct cuda *c)
{
    for (struct cuda *a = c->passing.before; a != NULL; a = a->passing.before) {
        const cudaError_t e = cudaStreamQuery(a->stream);

        if (e == cudaSuccess || e == cudaErrorNotReady)
            continue;
        cuda_fail(a, e, "step");
        cuda_fail(c, e, "rows of another device");
        return true;
    }
    return false;
}

bool cuda_await(struct cuda *c, uint32_t turn)
{
    enum { LOOKS = 1024 };

    for (unsigned spin = 1; !is_done(c, turn); spin++) {
        __builtin_ia32_pause();
        if (spin % LOOKS != 0)
            continue;
        cudaError_t e = cudaStreamQuery(c->stream);
        if (e == cudaErrorNotReady) {
            if (others_failed(c))
                return false;
            continue;
        }
        cuda_fail(c, e, "step");
        if (!is_done(c, turn))
            cuda_fail(c, cudaErrorUnknown, "step");
        return c->bad == cudaSuccess;
    }
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return true;
}
