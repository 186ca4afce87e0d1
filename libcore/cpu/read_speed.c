/* SPDX-License-Identifier: Apache-2.0 */
/* read_speed.c - how fast the threads of the pool read memory. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/simd.h"
#include "cpu/cpu.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { SLICE_BYTES = 1 << 20, LEAST_MS = 20, HUGE_BYTES = 2 << 20 }; /* a thread takes a slice at a time */

typedef uint64_t read_fn(const unsigned char *p, size_t n);

struct reader {
    const struct cpu *c;
    unsigned char *buf;
    size_t n;
    read_fn *read;
    uint64_t *sum; /* [slices] exclusive or of all that was read */
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

/* Four streams side by side, which some processors read faster than one: more of their memory is at work. n is a
 * multiple of 256. */
#if defined(__x86_64__)
__attribute__((target("avx2"))) static uint64_t read_avx2(const unsigned char *p, size_t n)
{
    __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
    const unsigned char *q = p + n / 4, *r = q + n / 4, *s = r + n / 4;
    uint64_t v[4];

#define READ(sum, from, at) \
    sum = _mm256_xor_si256(sum, _mm256_load_si256((const __m256i *)(const void *)((from) + (at))))
    for (size_t i = 0; i < n / 4; i += 64) {
        READ(a, p, i);
        READ(b, q, i);
        READ(c, r, i);
        READ(d, s, i);
        READ(a, p, i + 32);
        READ(b, q, i + 32);
        READ(c, r, i + 32);
        READ(d, s, i + 32);
    }
#undef READ
    _mm256_storeu_si256((__m256i *)(void *)v, _mm256_xor_si256(_mm256_xor_si256(a, b), _mm256_xor_si256(c, d)));
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

__attribute__((target("avx512f"))) static uint64_t read_avx512(const unsigned char *p, size_t n)
{
    __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;
    const unsigned char *q = p + n / 4, *r = q + n / 4, *s = r + n / 4;
    uint64_t v[8], x = 0;

    for (size_t i = 0; i < n / 4; i += 64) {
        a = _mm512_xor_si512(a, _mm512_load_si512(p + i));
        b = _mm512_xor_si512(b, _mm512_load_si512(q + i));
        c = _mm512_xor_si512(c, _mm512_load_si512(r + i));
        d = _mm512_xor_si512(d, _mm512_load_si512(s + i));
    }
    _mm512_storeu_si512(v, _mm512_xor_si512(_mm512_xor_si512(a, b), _mm512_xor_si512(c, d)));
    for (int i = 0; i < 8; i++)
        x ^= v[i];
    return x;
}

/* Intel's servers, which AMX tells, read one stream that is fetched ahead a tenth faster than four. */
__attribute__((target("avx512f"))) static uint64_t read_ahead(const unsigned char *p, size_t n)
{
    enum { AHEAD = 2048 };
    __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;
    uint64_t v[8], x = 0;

#define READ(sum, at) sum = _mm512_xor_si512(sum, _mm512_load_si512(p + (at)));
    for (size_t i = 0; i < n; i += 256) {
        for (size_t k = 0; k < 256; k += 64)
            _mm_prefetch((const char *)p + i + k + AHEAD, _MM_HINT_T1);
        READ(a, i)
        READ(b, i + 64)
        READ(c, i + 128)
        READ(d, i + 192)
    }
#undef READ
    _mm512_storeu_si512(v, _mm512_xor_si512(_mm512_xor_si512(a, b), _mm512_xor_si512(c, d)));
    for (int i = 0; i < 8; i++)
        x ^= v[i];
    return x;
}
#endif

static read_fn *choose_reader(void)
{
#if defined(__x86_64__)
    unsigned simd = simd_features();

    if (simd & SIMD_AVX512)
        return simd & SIMD_AMX_INT8 ? read_ahead : read_avx512;
    if (simd & SIMD_AVX2)
        return read_avx2;
#endif
    return read_plain;
}

static size_t slice(const struct reader *r, int64_t i)
{
    size_t at = (size_t)i * SLICE_BYTES;

    return r->n - at < SLICE_BYTES ? r->n - at : SLICE_BYTES;
}

static void read_slices(void *ctx, int64_t begin, int64_t end, int worker)
{
    struct reader *r = ctx;

    (void)worker;
    for (int64_t i = begin; i < end && !cpu_stopped(r->c); i++)
        r->sum[i] ^= r->read(r->buf + i * SLICE_BYTES, slice(r, i));
}

/* Each thread writes first what it is likely to read: on machines with several memories it lies near. */
static void fill_slices(void *ctx, int64_t begin, int64_t end, int worker)
{
    struct reader *r = ctx;

    (void)worker;
    for (int64_t i = begin; i < end && !cpu_stopped(r->c); i++) {
        uint64_t *w = (uint64_t *)(void *)(r->buf + i * SLICE_BYTES), first = (uint64_t)i * (SLICE_BYTES / 8);

        for (size_t j = 0; j < slice(r, i) / 8; j++)
            w[j] = (first + j) * DEV_READ_WORD;
    }
}

/* Bytes per second. An odd number of rounds, so that their sums are those of one. */
static double read_once(struct reader *r, int64_t n_slices, int64_t grain)
{
    double from = clock_ms(), s;
    int64_t rounds = 0;

    do {
        pool_for(r->c->pool, n_slices, grain, read_slices, r);
        rounds++;
        s = (clock_ms() - from) * 1e-3;
    } while ((s < LEAST_MS * 1e-3 || rounds % 2 == 0) && !cpu_stopped(r->c));
    return (double)rounds * (double)r->n / s;
}

enum err_code cpu_read_speed(void *ctx, size_t n, double *bytes_per_s, int reps, struct err *e)
{
    const struct cpu *c = ctx;
    int64_t n_slices = (int64_t)((n + SLICE_BYTES - 1) / SLICE_BYTES);
    int64_t grain = (n_slices + pool_size(c->pool) - 1) / pool_size(c->pool);
    struct reader r = { c, NULL, n, choose_reader(), NULL };
    uint64_t sum = 0;
    void *buf = NULL;

    r.sum = calloc((size_t)n_slices, sizeof *r.sum);
    if (r.sum == NULL || posix_memalign(&buf, HUGE_BYTES, n) != 0) {
        free(r.sum);
        return err_set(e, ERR_NOMEM, "out of memory: a buffer of %zu MiB", n >> 20);
    }
#if defined(MADV_HUGEPAGE)
    (void)madvise(buf, n, MADV_HUGEPAGE); /* as weights that are copied */
#endif
    r.buf = buf;
    pool_for(c->pool, n_slices, grain, fill_slices, &r);
    (void)read_once(&r, n_slices, grain);
    for (int i = 0; i < reps && !cpu_stopped(c); i++)
        bytes_per_s[i] = read_once(&r, n_slices, grain);
    for (int64_t i = 0; i < n_slices; i++)
        sum ^= r.sum[i];
    free(buf);
    free(r.sum);
    if (cpu_stopped(c))
        return err_set(e, ERR_CANCEL, "interrupted");
    if (sum != (reps % 2 == 0 ? dev_read_sum(n / 8) : 0))
        return err_set(e, ERR_DEVICE, "memory does not hold what was written to it");
    return ERR_OK;
}
