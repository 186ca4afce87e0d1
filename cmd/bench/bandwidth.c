/* SPDX-License-Identifier: Apache-2.0 */
/* bandwidth.c - how fast this machine reads memory: what every speed is held against. room: cmd
 * (cli_) */
#include <stdlib.h>
#include <string.h>
#include "base/pool.h"
#include "base/simd.h"
#include "bench/bench.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define SLICE_BYTES (1 << 20) /* a thread takes so much at a time */
#define LEAST_MS    20.0      /* a measurement lasts at least this long */

typedef uint64_t read_fn(const unsigned char *p, size_t n);

struct reader {
    const unsigned char *buf;
    size_t n;
    read_fn *read;
    uint64_t *sum; /* [slices] */
};

static uint64_t read_plain(const unsigned char *p, size_t n)
{
    uint64_t a = 0, b = 0, v[2];

    for (size_t i = 0; i + 16 <= n; i += 16) {
        memcpy(v, p + i, sizeof v);
        a ^= v[0];
        b ^= v[1];
    }
    return a ^ b;
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static uint64_t read_avx2(const unsigned char *p, size_t n)
{
    __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
    uint64_t v[4];

    for (size_t i = 0; i + 128 <= n; i += 128) {
        a = _mm256_xor_si256(a, _mm256_load_si256((const __m256i *)(const void *)(p + i)));
        b = _mm256_xor_si256(b, _mm256_load_si256((const __m256i *)(const void *)(p + i + 32)));
        c = _mm256_xor_si256(c, _mm256_load_si256((const __m256i *)(const void *)(p + i + 64)));
        d = _mm256_xor_si256(d, _mm256_load_si256((const __m256i *)(const void *)(p + i + 96)));
    }
    _mm256_storeu_si256((__m256i *)(void *)v,
                        _mm256_xor_si256(_mm256_xor_si256(a, b), _mm256_xor_si256(c, d)));
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

__attribute__((target("avx512f"))) static uint64_t read_avx512(const unsigned char *p, size_t n)
{
    __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;
    uint64_t v[8], x = 0;

    for (size_t i = 0; i + 256 <= n; i += 256) {
        a = _mm512_xor_si512(a, _mm512_load_si512(p + i));
        b = _mm512_xor_si512(b, _mm512_load_si512(p + i + 64));
        c = _mm512_xor_si512(c, _mm512_load_si512(p + i + 128));
        d = _mm512_xor_si512(d, _mm512_load_si512(p + i + 192));
    }
    _mm512_storeu_si512(v, _mm512_xor_si512(_mm512_xor_si512(a, b), _mm512_xor_si512(c, d)));
    for (int i = 0; i < 8; i++)
        x ^= v[i];
    return x;
}
#endif

static read_fn *choose(void)
{
#if defined(__x86_64__)
    unsigned simd = simd_features();

    if (simd & SIMD_AVX512)
        return read_avx512;
    if (simd & SIMD_AVX2)
        return read_avx2;
#endif
    return read_plain;
}

static void read_slices(void *ctx, int64_t begin, int64_t end, int worker)
{
    struct reader *r = ctx;

    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        size_t at = (size_t)i * SLICE_BYTES, n = r->n - at < SLICE_BYTES ? r->n - at : SLICE_BYTES;

        r->sum[i] ^= r->read(r->buf + at, n);
    }
}

/* Each thread writes first what it is likely to read: on machines with several memories it lies
 * near. */
static void fill_slices(void *ctx, int64_t begin, int64_t end, int worker)
{
    struct reader *r = ctx;
    size_t at = (size_t)begin * SLICE_BYTES, to = (size_t)end * SLICE_BYTES;

    memset((unsigned char *)(uintptr_t)r->buf + at, worker + 1, (to < r->n ? to : r->n) - at);
}

static double read_once(struct pool *p, struct reader *r, int64_t n_slices)
{
    int64_t grain = (n_slices + pool_size(p) - 1) / pool_size(p);
    double from = cli_now_ms(), ms;
    int64_t rounds = 0;

    do {
        pool_for(p, n_slices, grain, read_slices, r);
        rounds++;
        ms = cli_now_ms() - from;
    } while (ms < LEAST_MS);
    return (double)rounds * (double)r->n / (ms * 1e-3);
}

enum err_code cli_bench_read_speed(struct bench_spread *out, int n_threads, int64_t bytes, int reps,
                                   struct err *e)
{
    int64_t n_slices = (bytes + SLICE_BYTES - 1) / SLICE_BYTES;
    struct reader r = {NULL, (size_t)bytes & ~(size_t)255, choose(), NULL};
    struct pool *pool = NULL;
    double *v = calloc((size_t)reps, sizeof *v);
    void *buf = NULL;
    enum err_code code = ERR_OK;

    r.sum = calloc((size_t)n_slices, sizeof *r.sum);
    if (v == NULL || r.sum == NULL ||
        posix_memalign(&buf, 4096, (size_t)n_slices * SLICE_BYTES) != 0)
        code = err_set(e, ERR_NOMEM, "out of memory: a buffer of %lld MiB", (long long)bytes >> 20);
    if (code == ERR_OK)
        code = pool_open(&pool, n_threads > 0 ? n_threads : pool_cpus(), e);
    if (code == ERR_OK) {
        r.buf = buf;
        pool_for(pool, n_slices, (n_slices + pool_size(pool) - 1) / pool_size(pool), fill_slices,
                 &r);
        (void)read_once(pool, &r, n_slices);
        for (int i = 0; i < reps; i++)
            v[i] = read_once(pool, &r, n_slices);
        *out = cli_bench_spread(v, reps);
    }
    pool_close(pool);
    free(buf);
    free(r.sum);
    free(v);
    return code;
}

enum err_code cli_bench_cmd_bandwidth(struct bench *b, struct err *e)
{
    int most = b->o->n_threads > 0 ? b->o->n_threads : pool_cpus();
    int64_t bytes = b->o->size_bytes > 0 ? b->o->size_bytes : (int64_t)512 << 20;

    cli_bench_line(b, "%-8s %10s %10s %10s %10s", "threads", "buffer MB", "GB/s", "least", "most");
    for (int n = 1;; n = 2 * n < most ? 2 * n : most) {
        struct bench_spread s;
        char what[64];
        json_t *r;

        if (cli_interrupted())
            return err_set(e, ERR_CANCEL, "interrupted");
        if (cli_bench_read_speed(&s, n, bytes, b->o->reps, e))
            return e->code;
        snprintf(what, sizeof what, "read threads=%d buffer=%lldMiB", n, (long long)bytes >> 20);
        r = cli_bench_record("bandwidth", what, "read_bytes_per_s", "higher");
        cli_bench_real(r, "read_bytes_per_s", s.median);
        cli_bench_real(r, "read_min_bytes_per_s", s.min);
        cli_bench_real(r, "read_max_bytes_per_s", s.max);
        cli_bench_real(r, "noise", (s.max - s.min) / 2 + 0.01 * s.median);
        cli_bench_int(r, "n_threads", n);
        cli_bench_int(r, "buffer_bytes", bytes);
        cli_bench_int(r, "reps", b->o->reps);
        cli_bench_line(b, "%-8d %10.0f %10.2f %10.2f %10.2f", n, (double)bytes / 1e6,
                       s.median / 1e9, s.min / 1e9, s.max / 1e9);
        if (cli_bench_done(b, r, e))
            return e->code;
        if (n == most)
            return ERR_OK;
    }
}
