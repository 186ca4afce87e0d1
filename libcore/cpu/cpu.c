/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.c - the CPU device: choice of kernels, table of operations. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/simd.h"
#include "cpu/cache.h"
#include "cpu/cpu.h"

static void close_cpu(void *ctx)
{
    struct cpu *c = ctx;

    pool_close(c->pool);
    cpu_cache_close(c->cache);
    cpu_free_copies(c);
    free(c);
}

static const void *use_weights(void *ctx, const void *host, size_t n)
{
    ((struct cpu *)ctx)->held += n;
    return host;
}

static const void *weights_some(void *ctx, const void *host, size_t piece_bytes, int64_t n, const bool *keep)
{
    struct cpu *c = ctx;

    for (int64_t i = 0; i < n; i++)
        c->held += keep[i] ? piece_bytes : 0;
    return host;
}

static size_t held_bytes(void *ctx)
{
    return ((struct cpu *)ctx)->held;
}

static struct dev_memory get_memory(void *ctx)
{
    (void)ctx;
    return (struct dev_memory){ true, -1, -1, 0, false };
}

static void begin_step(void *ctx)
{
    struct cpu *c = ctx;

    c->stopped = false;
    c->failed.code = ERR_OK;
}

static enum err_code end_step(void *ctx, struct err *e)
{
    const struct cpu *c = ctx;

    return c->failed.code != ERR_OK ? err_copy(e, &c->failed) : ERR_OK;
}

static void may_stop(void *ctx, bool (*stop)(void))
{
    ((struct cpu *)ctx)->stop = stop;
}

bool cpu_stopped(const struct cpu *c)
{
    if (c->stop == NULL)
        return c->stopped;
    if (!c->stopped && c->stop())
        ((struct cpu *)(uintptr_t)c)->stopped = true;
    return c->stopped;
}

static bool stopped(void *ctx)
{
    return cpu_stopped(ctx);
}

static void awake(void *ctx, bool on)
{
    pool_awake(((struct cpu *)ctx)->pool, on);
}

/* Untouched pages cost nothing, so a long context may be reserved and only partly used. */
static void *alloc(void *ctx, size_t n)
{
    void *p = mmap(NULL, n > 0 ? n : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (p == MAP_FAILED)
        return NULL;
    ((struct cpu *)ctx)->held += n;
    return p;
}

static void free_memory(void *ctx, void *p, size_t n)
{
    ((struct cpu *)ctx)->held -= n;
    munmap(p, n > 0 ? n : 1);
}

static void zero_bytes(void *ctx, void *p, size_t n)
{
    (void)ctx;
    memset(p, 0, n);
}

static void copy_bytes(void *ctx, void *to, const void *from, size_t n)
{
    (void)ctx;
    memmove(to, from, n);
}

static const char *kernels_name(void *ctx)
{
    return ((struct cpu *)ctx)->kern->name;
}

static int pool_threads(void *ctx)
{
    return pool_size(((struct cpu *)ctx)->pool);
}

static const struct dev_table table = {
#define X(name) .name = cpu_##name,
    DEV_OPS(X)
#undef X
        .matmuls = cpu_matmuls,
    .matmuls_need = cpu_matmuls_need,
    .matmul_need = cpu_matmul_need,
    .attn_need = cpu_attn_need,
    .index_need = cpu_index_need,
    .moe_need = cpu_moe_need,
    .route_need = cpu_route_need,
    .scan_need = cpu_scan_need,
    .adapt_need = cpu_adapt_need,
    .top_need = cpu_top_need,
    .weights = use_weights,
    .weights_some = weights_some,
    .weights_copy = cpu_weights_copy,
    .held = held_bytes,
    .memory = get_memory,
    .is_host = true,
    .cache_layer = cpu_cache_layer,
    .cache_open = cpu_cache_open,
    .cache_stats = cpu_cache_stats,
    .begin = begin_step,
    .end = end_step,
    .awake = awake,
    .may_stop = may_stop,
    .stopped = stopped,
    .alloc = alloc,
    .free = free_memory,
    .zero = zero_bytes,
    .copy = copy_bytes,
    .close = close_cpu,
    .simd = kernels_name,
    .threads = pool_threads,
    .read_speed = cpu_read_speed,
};

enum err_code cpu_dev_open(struct dev_impl *out, struct dev *dev, const struct dev_opts *o, struct err *e)
{
    unsigned features = o->scalar ? 0 : simd_features();
    struct cpu *c = calloc(1, sizeof *c);

    if (c == NULL)
        return err_nomem(e);
    c->dev = dev;
    c->kern = features & SIMD_AVX512 ? &cpu_kernels_avx512
              : features & SIMD_AVX2 ? &cpu_kernels_avx2
                                     : &cpu_kernels_scalar;
    c->scan = features & SIMD_AVX512 ? &cpu_scans_avx512 : features & SIMD_AVX2 ? &cpu_scans_avx2 : &cpu_scans_scalar;
    c->ints = features & SIMD_AVX512_VNNI ? &cpu_ints_vnni
              : features & SIMD_AVX512    ? &cpu_ints_avx512
              : features & SIMD_AVX2      ? &cpu_ints_avx2
                                          : &cpu_ints_scalar;
    bool vbmi = features & SIMD_AVX512_VNNI && features & SIMD_AVX512_VBMI;

    c->bytes = vbmi && features & SIMD_AMX_INT8 && cpu_bytes_amx_allowed() ? &cpu_bytes_amx
               : vbmi                                                      ? &cpu_bytes_vnni
               : features & SIMD_AVX512_VNNI                               ? &cpu_bytes_vnni_ymm
               : features & SIMD_AVX_VNNI                                  ? &cpu_bytes_avxvnni
               : features & SIMD_AVX2                                      ? &cpu_bytes_avx2
                                                                           : &cpu_bytes_scalar;
    c->acts = o->acts;
    c->dry_run = o->dry_run;
    c->round = cpu_rounder(features);
    c->soft = softmax_kernels_for(features);
    for (int i = 0; i < QUANT_N; i++) {
        c->decode[i] = cpu_decoder(i, features);
        c->int_decode[i] = o->acts == QUANT_ACTS_F32 ? NULL : cpu_int_decoder(i, features);
        c->int_dots[i] = cpu_int_dotter(i, o->acts, features);
        c->int_two[i] = cpu_int_twos(i, o->acts, features);
        c->int_tile[i] = cpu_int_tiler(i, o->acts, features);
        c->lay[i] = cpu_layer(i, o->acts, features);
    }
    enum err_code code = pool_open(&c->pool, o->n_threads > 0 ? o->n_threads : pool_cpus(), e);
    if (code != ERR_OK) {
        free(c);
        return code;
    }
    *out = (struct dev_impl){ &table, c };
    return ERR_OK;
}

int64_t cpu_grain(const struct cpu *c, int64_t items, int64_t item_cost, int64_t unit)
{
    /* Floating point operations that pay for handing out a piece, and those of a thread that pay for several,
     * which even out what delays it. */
    enum { WORTH = 16384, SEVERAL = 16 * WORTH };
    int64_t n = pool_size(c->pool), cost = item_cost > 0 ? item_cost : 1;
    int64_t pieces = items > n * SEVERAL / cost ? 4 * n : n;
    int64_t grain = (items + pieces - 1) / pieces;
    int64_t least = WORTH / cost + 1;

    grain = grain < least ? least : grain;
    return (grain + unit - 1) / unit * unit;
}
