/* SPDX-License-Identifier: Apache-2.0 */
/* engram_filter.c - filters in front of a table's contexts, side by side.
 *
 *   engram_filter KEYS [TRIES]
 *
 * The table's own (split block Bloom, 12 bits), cuckoo (Fan and others 2014: four tags of 12 bits in a bucket), binary
 * fuse (Graf and Lemire 2022: three places, tags of 8 bits), and tags of 8 bits in buckets of a line of 64 that a key
 * has one of. For each: bits for a key, absent keys that pass, nanoseconds for a key one after the other (the next key
 * depends on the answer) and 16 at a time with their lines fetched ahead. Then TRIES look-ups of present keys in the
 * table's own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "engram/internal.h"

static uint64_t n_keys, fuse_seed;

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 31) * 0x7fb5d329728ea185u;
    x = (x ^ x >> 27) * 0x81dadef4bc2dd44du;
    return x ^ x >> 33;
}

static uint64_t key(uint64_t i)
{
    return mix(i * 2 + 1);
}

static void *zeros(uint64_t n)
{
    void *p = aligned_alloc(64, (n + 63) / 64 * 64);

    if (p == NULL)
        exit(1);
    return memset(p, 0, (n + 63) / 64 * 64);
}

static uint64_t place(uint64_t hash, uint64_t n)
{
    return (uint64_t)((__uint128_t)hash * n >> 64);
}

/* ---- the four ---- */

static uint32_t *bloom;
static uint64_t n_blocks;

static uint64_t bloom_build(void)
{
    n_blocks = engram_filter_blocks(n_keys);
    bloom = zeros(n_blocks * FILTER_WORDS * 4);
    for (uint64_t i = 0; i < n_keys; i++)
        engram_filter_add(bloom, n_blocks, key(i));
    return n_blocks * FILTER_WORDS * 4;
}

static bool bloom_has(uint64_t k)
{
    static engram_filter_fn *has;

    has = has != NULL ? has : engram_filter_has();
    return has(bloom, n_blocks, k);
}

static void bloom_fetch(uint64_t k)
{
    __builtin_prefetch(bloom + ((k >> 32) * n_blocks >> 32) * FILTER_WORDS);
}

static uint16_t (*cuckoo)[4];
static uint64_t n_buckets; /* a power of two */

static uint16_t tag12(uint64_t k)
{
    return (uint16_t)(k >> 52 ? k >> 52 : 1);
}

static uint64_t other(uint64_t bucket, uint16_t tag)
{
    return (bucket ^ mix(tag)) & (n_buckets - 1);
}

static uint64_t cuckoo_build(void)
{
    for (n_buckets = 64; (double)n_buckets * 4 * 0.94 < (double)n_keys;)
        n_buckets *= 2;
    cuckoo = zeros(n_buckets * sizeof *cuckoo);
    for (uint64_t i = 0; i < n_keys; i++) {
        uint16_t tag = tag12(key(i));
        uint64_t b = key(i) & (n_buckets - 1), s = i;
        bool done = false;

        for (int kick = 0; !done; kick++) {
            for (int j = 0; j < 4 && !done; j++)
                if (cuckoo[b][j] == 0) {
                    cuckoo[b][j] = tag;
                    done = true;
                }
            if (!done && kick > 0) {
                const int j = (int)((s = mix(s)) & 3);
                const uint16_t out = cuckoo[b][j];

                cuckoo[b][j] = tag;
                tag = out;
            }
            b = other(b, tag);
            if (kick > 5000)
                return 0;
        }
    }
    return n_buckets * 4 * 12 / 8; /* as packed tags would take */
}

static bool in_bucket(uint64_t b, uint16_t tag)
{
    return cuckoo[b][0] == tag || cuckoo[b][1] == tag || cuckoo[b][2] == tag || cuckoo[b][3] == tag;
}

static bool cuckoo_has(uint64_t k)
{
    const uint64_t b = k & (n_buckets - 1);

    return in_bucket(b, tag12(k)) || in_bucket(other(b, tag12(k)), tag12(k));
}

static void cuckoo_fetch(uint64_t k)
{
    const uint64_t b = k & (n_buckets - 1);

    __builtin_prefetch(cuckoo + b);
    __builtin_prefetch(cuckoo + other(b, tag12(k)));
}

static uint8_t *fuse;
static uint64_t n_segments;
static const uint64_t SEGMENT = 1 << 16;

static void fuse_places(uint64_t h, uint64_t at[3])
{
    const uint64_t first = place(h, n_segments) * SEGMENT;

    at[0] = first + (h & (SEGMENT - 1));
    at[1] = first + SEGMENT + (h >> 16 & (SEGMENT - 1));
    at[2] = first + 2 * SEGMENT + ((h * 0x9e3779b97f4a7c15u) >> 40 & (SEGMENT - 1));
}

static uint64_t fuse_build(void)
{
    n_segments = (uint64_t)((double)n_keys * 1.14 / (double)SEGMENT) + 2;
    const uint64_t n = (n_segments + 2) * SEGMENT;
    uint32_t *count = zeros(n * 4);
    uint64_t *sum = zeros(n * 8), *stack = zeros(n_keys * 8), *where = zeros(n_keys * 8), *queue = zeros(n * 8);
    uint64_t at[3], n_stack, n_queue;

    fuse = zeros(n);
    do {
        memset(count, 0, n * 4);
        memset(sum, 0, n * 8);
        fuse_seed++;
        n_stack = n_queue = 0;
        for (uint64_t i = 0; i < n_keys; i++) {
            const uint64_t h = mix(key(i) + fuse_seed);

            fuse_places(h, at);
            for (int j = 0; j < 3; j++) {
                count[at[j]]++;
                sum[at[j]] ^= h;
            }
        }
        for (uint64_t i = 0; i < n; i++)
            if (count[i] == 1)
                queue[n_queue++] = i;
        while (n_queue > 0) {
            const uint64_t i = queue[--n_queue], h = sum[i];

            if (count[i] != 1)
                continue;
            stack[n_stack] = h;
            where[n_stack++] = i;
            fuse_places(h, at);
            for (int j = 0; j < 3; j++) {
                sum[at[j]] ^= h;
                if (--count[at[j]] == 1)
                    queue[n_queue++] = at[j];
            }
        }
    } while (n_stack < n_keys && fuse_seed < 20);
    while (n_stack > 0) {
        const uint64_t h = stack[--n_stack];
        uint8_t x = (uint8_t)(h >> 56 ^ h >> 32);

        fuse_places(h, at);
        for (int j = 0; j < 3; j++)
            x ^= at[j] == where[n_stack] ? 0 : fuse[at[j]];
        fuse[where[n_stack]] = x;
    }
    free(count), free(sum), free(stack), free(where), free(queue);
    return n;
}

static bool fuse_has(uint64_t k)
{
    const uint64_t h = mix(k + fuse_seed);
    uint64_t at[3];

    fuse_places(h, at);
    return (uint8_t)(h >> 56 ^ h >> 32) == (fuse[at[0]] ^ fuse[at[1]] ^ fuse[at[2]]);
}

static void fuse_fetch(uint64_t k)
{
    uint64_t at[3];

    fuse_places(mix(k + fuse_seed), at);
    for (int j = 0; j < 3; j++)
        __builtin_prefetch(fuse + at[j]);
}

static uint8_t (*line)[64];
static uint64_t n_lines;

static uint64_t lines_build(void)
{
    uint64_t full = 0;

    n_lines = n_keys / 40 + 1; /* so that few lines are full: those let all pass */
    line = zeros(n_lines * 64);
    for (uint64_t i = 0; i < n_keys; i++) {
        uint8_t *b = line[place(key(i), n_lines)], tag = (uint8_t)(key(i) & 255 ? key(i) & 255 : 1);
        int j = 0;

        while (j < 64 && b[j] != 0 && b[j] != tag)
            j++;
        if (j < 64)
            b[j] = tag;
        full += j == 64;
    }
    if (full > 0)
        printf("tags: %llu keys found their line full\n", (unsigned long long)full);
    return n_lines * 64;
}

static bool lines_has(uint64_t k)
{
    const uint8_t *b = line[place(k, n_lines)], tag = (uint8_t)(k & 255 ? k & 255 : 1);
    int any = 0;

    for (int j = 0; j < 64; j++)
        any |= b[j] == tag;
    return any != 0 || b[63] != 0;
}

static void lines_fetch(uint64_t k)
{
    __builtin_prefetch(line + place(k, n_lines));
}

static const struct {
    const char *name;
    uint64_t (*build)(void); /* bytes */
    bool (*has)(uint64_t k);
    void (*fetch)(uint64_t k);
} filters[] = {
    { "split block Bloom", bloom_build, bloom_has, bloom_fetch },
    { "cuckoo, 12 bits", cuckoo_build, cuckoo_has, cuckoo_fetch },
    { "binary fuse, 8 bits", fuse_build, fuse_has, fuse_fetch },
    { "tags in a line", lines_build, lines_has, lines_fetch },
};

static double now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

int main(int argc, char **argv)
{
    enum { N = 4000000, AHEAD = 16, TIMES = 5 };
    const uint64_t tries = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;

    n_keys = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
    if (n_keys == 0)
        return fprintf(stderr, "usage: engram_filter KEYS [TRIES]\n"), 2;
    for (size_t f = 0; f < sizeof filters / sizeof filters[0]; f++) {
        double from = now_ns(), build, one = 1e9, many = 1e9;
        const uint64_t bytes = filters[f].build();
        uint64_t passed = 0, missed = 0;

        build = now_ns() - from;
        for (uint64_t i = 0; i < n_keys; i++)
            missed += !filters[f].has(key(i));
        for (uint64_t i = 0; i < N; i++)
            passed += filters[f].has(mix(i * 2));
        for (int t = 0; t < TIMES; t++) {
            uint64_t k = (uint64_t)t;

            from = now_ns();
            for (int i = 0; i < N; i++)
                k = mix(k + filters[f].has(k)) & ~(uint64_t)1;
            one = now_ns() - from < one ? now_ns() - from : one;
            from = now_ns();
            for (int i = 0; i < N; i += AHEAD) {
                uint64_t v[AHEAD];

                for (int j = 0; j < AHEAD; j++)
                    filters[f].fetch(v[j] = mix(k + (uint64_t)(i + j)));
                for (int j = 0; j < AHEAD; j++)
                    k += filters[f].has(v[j]);
            }
            many = now_ns() - from < many ? now_ns() - from : many;
        }
        printf("%-20s %5.1f bits, %6.3f %% of absent keys pass, %llu present ones missed, built in %.0f ns a key, "
               "one after the other %.1f ns, 16 at a time %.1f ns\n",
               filters[f].name, 8.0 * (double)bytes / (double)n_keys, 100.0 * (double)passed / N,
               (unsigned long long)missed, build / (double)n_keys, one / N, many / N);
    }
    uint64_t missed = 0;

    for (uint64_t i = 0; i < tries; i++)
        missed += !bloom_has(key(i % n_keys));
    printf("%llu look-ups of present keys: %llu denied\n", (unsigned long long)tries, (unsigned long long)missed);
    return missed > 0;
}
