/* SPDX-License-Identifier: Apache-2.0 */
/* logits_mask.cu - masks of logits, which the host makes while the device computes the step.
 *
 * They cross in pinned memory. The step is launched first. The host then fills the masks, copies them there and sets
 * the flag to its number, for which a kernel before op_top()'s own waits. Masks are numbered from 1 on both sides; the
 * device keeps its counter in its memory, so that a replayed graph goes on counting. The host always answers. If it
 * does not within 30 seconds (a debugger that delays launches), the kernel gives up and the step fails. */
#include <string.h>

#include "kernels/device/fused.cuh"

enum { THREADS = 256, PARTS = 4, FLAGS = 256 };

/* In pinned memory: flags, for each row whether it has a mask, the masks. */
struct mask_flags {
    uint32_t in, pad[31]; /* the turn whose masks are there */
    uint32_t failed;
};

struct mask_args {
    volatile mask_flags *f;
    const int *on;
    const uint4 *from;
    uint4 *to;
    int *here;
    const uint32_t *turn;
    int rows, quads; /* quads: of a row */
};

static size_t rows_at(int64_t rows)
{
    return FLAGS + round_up((size_t)rows * sizeof(int), 256);
}

static size_t bytes_of(int64_t rows, int64_t width)
{
    return rows_at(rows) + (size_t)(rows * mask_pitch(width)) * sizeof(uint32_t);
}

/* One block: until the host's masks are there; then which rows have one. The launch that brings the
 * masks reads nothing else across the bus: each block's read of a flag there takes a microsecond of
 * its own. */
__global__ void __launch_bounds__(THREADS) wait_masks(const __grid_constant__ mask_args a)
{
    const unsigned long long patience_ns = 30000000000ull;
    unsigned long long now, start = 0;

    wait_for_inputs();
    const uint32_t turn = *a.turn + 1; /* top_scan() counts */

    while (threadIdx.x == 0 && a.f->in != turn) {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
        start = start == 0 ? now : start;
        if (now - start > patience_ns) {
            a.f->failed = 1;
            break;
        }
        __nanosleep(200);
    }
    __threadfence_system();
    __syncthreads();
    for (int i = threadIdx.x; i < a.rows; i += THREADS)
        a.here[i] = __ldcv(a.on + i);
}

/* grid: parts of a row, row */
__global__ void __launch_bounds__(THREADS) take_masks(const __grid_constant__ mask_args a)
{
    const int64_t row = blockIdx.y;

    wait_for_inputs();
    if (a.here[row] == 0)
        return;
    for (int i = (int)(blockIdx.x * THREADS + threadIdx.x); i < a.quads; i += PARTS * THREADS)
        a.to[row * a.quads + i] = __ldcv(a.from + row * a.quads + i);
}

void cuda_masks_take(struct cuda *c, int rows, int64_t width, uint32_t *mask, int *here)
{
    struct masks *m = &c->lane->masks;
    mask_args a = {};

    a.f = (volatile mask_flags *)m->pinned;
    a.on = (const int *)(m->pinned + FLAGS);
    a.from = (const uint4 *)(m->pinned + rows_at(rows));
    a.to = (uint4 *)mask;
    a.here = here;
    a.turn = m->turn;
    a.rows = rows;
    a.quads = (int)(mask_pitch(width) / 4);
    launch_early(c, "wait_masks", wait_masks, dim3(1), THREADS, 0, a);
    launch_early(c, "take_masks", take_masks, dim3(PARTS, (unsigned)rows), THREADS, 0, a);
}

void cuda_masks_close(struct masks *m)
{
    (void)cudaFreeHost(m->pinned);
    (void)cudaFree(m->turn);
    m->pinned = NULL;
    m->turn = NULL;
    m->cap = 0;
}

void cuda_masks_reserve(struct cuda *c)
{
    struct masks *m = &c->lane->masks;

    if (m->need <= m->cap || c->dry_run)
        return;
    TRY(c, cudaStreamSynchronize(c->stream));
    cuda_drop_graphs(c);
    cuda_masks_close(m);
    TRY(c, cudaHostAlloc((void **)&m->pinned, m->need, cudaHostAllocMapped));
    TRY(c, cudaMalloc((void **)&m->turn, sizeof *m->turn));
    if (c->bad != cudaSuccess)
        return;
    memset(m->pinned, 0, m->need);
    TRY(c, cudaMemsetAsync(m->turn, 0, sizeof *m->turn, c->stream));
    m->turns = 0;
    m->cap = m->need;
}

void cuda_masks_record(struct cuda *c, const struct op_top *a, int64_t rows, int64_t width)
{
    struct masks *m = &c->lane->masks;
    const size_t need = bytes_of(rows, width);

    m->need = need > m->need ? need : m->need;
    if (c->measuring)
        return;
    if (m->due || m->need > m->cap) { /* what is recorded has the others */
        cuda_flush(c);
        cuda_masks_reserve(c);
    }
    m->of = a->mask;
    m->rows = (int)rows;
    m->words = (size_t)(width + 31) / 32;
    m->fill = a->masks;
    m->ctx = a->ctx;
    m->due = true;
    m->launched = false;
}

void cuda_masks_give(struct cuda *c)
{
    struct masks *m = &c->lane->masks;

    if (!m->due || c->bad != cudaSuccess)
        return;
    if (m->fill != NULL)
        m->fill(m->ctx);
    int *on = (int *)(m->pinned + FLAGS);
    unsigned char *to = m->pinned + rows_at(m->rows);
    const size_t pitch = (m->words + 7) / 8 * 8 * sizeof(uint32_t);

    for (int r = 0; r < m->rows; r++) {
        on[r] = m->of[r] != NULL;
        if (on[r])
            memcpy(to + (size_t)r * pitch, m->of[r], m->words * sizeof(uint32_t));
    }
    __atomic_store_n(&((struct mask_flags *)m->pinned)->in, ++m->turns, __ATOMIC_RELEASE);
    m->due = m->launched = false;
}

void cuda_masks_end(struct cuda *c)
{
    struct masks *m = &c->lane->masks;
    const struct mask_flags *f = (const struct mask_flags *)m->pinned;

    if (f != NULL && f->failed != 0)
        cuda_fail(c, cudaErrorLaunchTimeout, "masks");
    m->due = m->launched = false;
}
