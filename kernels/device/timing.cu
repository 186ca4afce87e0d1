/* SPDX-License-Identifier: Apache-2.0 */
/* timing.cu - measures the device: memory bandwidth, and the time of launches by operation. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/device/cuda.h"

/* ---- reading ---- */

enum { READ_THREADS = 512, READ_AHEAD = 4, READ_BLOCKS = 8 /* on each processor */, LEAST_MS = 20 };

__global__ void fill_words(uint64_t *w, size_t n)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        w[i] = i * DEV_READ_WORD;
}

/* sum[thread] ^= the exclusive or of the words that a thread reads, `rounds` times over n vectors of 16 bytes. Past
 * L1, and READ_AHEAD vectors at a time. */
__global__ void __launch_bounds__(READ_THREADS) read_words(uint64_t *sum, const uint4 *v, size_t n, int rounds)
{
    size_t me = blockIdx.x * (size_t)READ_THREADS + threadIdx.x, step = (size_t)gridDim.x * READ_THREADS;
    uint32_t lo = 0, hi = 0;

    for (int r = 0; r < rounds; r++) {
        size_t i = me;

        for (; i + (READ_AHEAD - 1) * step < n; i += READ_AHEAD * step) {
            uint4 x[READ_AHEAD];

#pragma unroll
            for (int k = 0; k < READ_AHEAD; k++)
                asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                             : "=r"(x[k].x), "=r"(x[k].y), "=r"(x[k].z), "=r"(x[k].w)
                             : "l"(v + i + k * step));
#pragma unroll
            for (int k = 0; k < READ_AHEAD; k++) {
                lo ^= x[k].x ^ x[k].z;
                hi ^= x[k].y ^ x[k].w;
            }
        }
        for (; i < n; i += step) {
            uint4 x = __ldcg(v + i);

            lo ^= x.x ^ x.z;
            hi ^= x.y ^ x.w;
        }
    }
    sum[me] ^= (uint64_t)hi << 32 | lo;
}

static double now_s(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Seconds that one launch takes that reads the buffer an odd number of times. */
static double read_for(struct cuda *c, uint64_t *sum, const unsigned char *buf, size_t n, int rounds)
{
    double from = now_s();

    LAUNCH(c, read_words, c->sms * READ_BLOCKS, READ_THREADS, 0, sum, (const uint4 *)buf, n / 16, rounds);
    cuda_fail(c, cudaStreamSynchronize(c->stream), "read_words");
    return now_s() - from;
}

static enum err_code check_sum(struct cuda *c, const uint64_t *sum, size_t n_sum, uint64_t want, struct err *e)
{
    uint64_t *host = (uint64_t *)calloc(n_sum, sizeof *host), got = 0;

    if (host == NULL)
        return err_nomem(e);
    cuda_fail(c, cudaMemcpy(host, sum, n_sum * sizeof *host, cudaMemcpyDeviceToHost), "read_words");
    for (size_t i = 0; i < n_sum; i++)
        got ^= host[i];
    free(host);
    if (c->bad != cudaSuccess)
        return err_set(e, ERR_DEVICE, "cuda:%d: %s (%s)", c->id, cudaGetErrorString(c->bad), c->bad_at);
    return got == want ? ERR_OK : err_set(e, ERR_DEVICE, "cuda:%d: memory does not hold what was written to it", c->id);
}

enum err_code cuda_read_speed(struct cuda *c, size_t n, double *bytes_per_s, int reps, struct err *e)
{
    size_t n_sum = (size_t)c->sms * READ_BLOCKS * READ_THREADS;
    unsigned char *buf = NULL, *sum = NULL;
    int rounds = 1;

    (void)cudaSetDevice(c->id);
    if (cudaMalloc((void **)&buf, n) != cudaSuccess ||
        cudaMalloc((void **)&sum, n_sum * sizeof(uint64_t)) != cudaSuccess) {
        (void)cudaGetLastError();
        (void)cudaFree(buf);
        return err_set(e, ERR_NOMEM, "cuda:%d: no memory for a buffer of %zu MiB", c->id, n >> 20);
    }
    cuda_fail(c, cudaMemsetAsync(sum, 0, n_sum * sizeof(uint64_t), c->stream), "read_words");
    LAUNCH(c, fill_words, c->sms * READ_BLOCKS, READ_THREADS, 0, (uint64_t *)buf, n / sizeof(uint64_t));
    (void)read_for(c, (uint64_t *)sum, buf, n, 1);
    /* warms up, and finds how often to read for a launch to last */
    while (c->bad == cudaSuccess && rounds < 1 << 24 && read_for(c, (uint64_t *)sum, buf, n, rounds) < LEAST_MS * 1e-3)
        rounds = 2 * rounds + 1;
    cuda_fail(c, cudaMemsetAsync(sum, 0, n_sum * sizeof(uint64_t), c->stream), "read_words");
    for (int i = 0; i < reps; i++)
        bytes_per_s[i] = (double)rounds * (double)n / read_for(c, (uint64_t *)sum, buf, n, rounds);
    enum err_code code =
        check_sum(c, (uint64_t *)sum, n_sum, reps % 2 == 1 ? dev_read_sum(n / sizeof(uint64_t)) : 0, e);
    (void)cudaFree(buf);
    (void)cudaFree(sum);
    return code;
}

/* ---- the time of launches ---- */

/* One event after what was launched for a node, or for several together. A launch of several operations counts as
 * that of them which is likely to take longest. */
static int heaviest(const struct node *v, int n)
{
    static const int order[] = { DEV_OP_moe,  DEV_OP_gdn,  DEV_OP_kda,   DEV_OP_ssm1,
                                 DEV_OP_ssm2, DEV_OP_attn, DEV_OP_matmul };

    for (size_t k = 0; k < sizeof order / sizeof *order; k++)
        for (int i = 0; i < n; i++)
            if (v[i].op == order[k])
                return order[k];
    return v->op;
}

/* Events enough for n nodes, made before a capture begins; the first marks the start. */
void cuda_clock_begin(struct cuda *c, int n)
{
    struct launch_clock *k = &c->clock;

    if (n + 1 > k->cap) {
        cudaEvent_t *event = (cudaEvent_t *)realloc(k->event, (size_t)(n + 1) * sizeof *event);
        int *op = event != NULL ? (int *)realloc(k->op, (size_t)(n + 1) * sizeof *op) : NULL;

        k->event = event != NULL ? event : k->event;
        k->op = op != NULL ? op : k->op;
        if (op == NULL) {
            cuda_fail(c, cudaErrorMemoryAllocation, "events");
            return;
        }
        for (; k->cap < n + 1 && c->bad == cudaSuccess; k->cap++)
            cuda_fail(c, cudaEventCreate(&k->event[k->cap]), "events");
    }
    k->n = 0;
}

void cuda_clock_mark(struct cuda *c, const struct node *v, int n, bool captured)
{
    struct launch_clock *k = &c->clock;

    if (c->bad != cudaSuccess)
        return;
    k->op[k->n] = n > 0 ? heaviest(v, n) : DEV_OP_N;
    cuda_fail(c,
              cudaEventRecordWithFlags(k->event[k->n], c->stream,
                                       captured ? cudaEventRecordExternal : cudaEventRecordDefault),
              "events");
    k->n++;
}

/* Adds up; all work is done. */
void cuda_clock_end(struct cuda *c)
{
    struct launch_clock *k = &c->clock;

    for (int i = 1; i < k->n && c->bad == cudaSuccess; i++) {
        float ms = 0;

        cuda_fail(c, cudaEventElapsedTime(&ms, k->event[i - 1], k->event[i]), "events");
        if (k->op[i] < DEV_OP_N)
            k->ns[k->op[i]] += (uint64_t)((double)ms * 1e6);
    }
    k->n = 0;
}

void cuda_time(struct cuda *c, bool on)
{
    c->clock.on = on;
    if (!on)
        return;
    memset(c->clock.ns, 0, sizeof c->clock.ns);
    memset(c->clock.fused, 0, sizeof c->clock.fused);
    c->clock.n_files = 0;
}

uint64_t cuda_graphs(struct cuda *c)
{
    return c->captured;
}

void cuda_count_launch(struct cuda *c, const char *file)
{
    struct launch_clock *k = &c->clock;
    char name[LAUNCHED_NAME];
    int i = 0;

    if (!k->on)
        return;
    const char *dir = strstr(file, "kernels/"), *from = dir != NULL ? dir + strlen("kernels/") : file;
    (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(from, "."), from);
    while (i < k->n_files && strcmp(k->file[i].name, name) != 0)
        i++;
    if (i == LAUNCHED_FILES)
        return;
    if (i == k->n_files) {
        memcpy(k->file[k->n_files++].name, name, sizeof name);
        k->file[i].n = 0;
    }
    k->file[i].n++;
}

int cuda_launched(struct cuda *c, struct dev_launched *out, int max)
{
    const struct launch_clock *k = &c->clock;
    int n = 0;

    for (int i = 0; i < GEMM_N_FUSIONS && n < max; i++)
        if (k->fused[i] > 0)
            out[n++] = { gemm_fusion_name((enum gemm_fusion)i), true, k->fused[i] };
    for (int i = 0; i < k->n_files && n < max; i++)
        out[n++] = { k->file[i].name, false, k->file[i].n };
    return n;
}

uint64_t cuda_time_ns(struct cuda *c, enum dev_op op)
{
    return c->clock.ns[op];
}

void cuda_clock_free(struct cuda *c)
{
    for (int i = 0; i < c->clock.cap; i++)
        (void)cudaEventDestroy(c->clock.event[i]);
    free(c->clock.event);
    free(c->clock.op);
}
