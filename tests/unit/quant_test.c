/* SPDX-License-Identifier: Apache-2.0 */
/* quant_test.c - the block formats against vectors of other implementations and against themselves.
 *
 * Formats with blocks have vectors in tests/golden/quants, plain ones a case below; a row of
 * quant_types[] with neither fails. With GOLDENS set to a directory with quants/ in it, the full
 * set is run as well. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cpu/format.h"
#include "quant/half.h"
#include "sets.h"

#define HERE "tests/golden/quants/"

enum { N_MAX = 8192 };

struct bytes {
    unsigned char *p;
    size_t n;
};

/* n is 0 and p NULL where there is no such file. */
static struct bytes slurp(const char *dir, const char *name)
{
    struct bytes b = { NULL, 0 };
    char path[4096];
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    f = fopen(path, "rb");
    if (f == NULL)
        return b;
    b.p = malloc(1 << 20);
    assert_non_null(b.p);
    b.n = fread(b.p, 1, 1 << 20, f);
    assert_true(b.n < 1 << 20);
    fclose(f);
    return b;
}

static struct bytes must_slurp(const char *name)
{
    struct bytes b = slurp(HERE, name);

    if (b.p == NULL)
        fail_msg("%s%s is missing: run from the root of the repository", HERE, name);
    return b;
}

static uint64_t rng_state = 1;

static uint64_t rng(void)
{
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return rng_state * 0x2545f4914f6cdd1dull;
}

static uint32_t bits_of(float f)
{
    uint32_t u;

    memcpy(&u, &f, sizeof(u));
    return u;
}

static bool same_value(float a, float b)
{
    return bits_of(a) == bits_of(b) || (isnan(a) && isnan(b));
}

/* A type's decoder of one instruction set, or NULL. */
static quant_decode_fn *decoder_of(int type, unsigned set)
{
    const struct cpu_format *f = cpu_format_of(type);

    return (set & SIMD_AVX512) != 0 ? f->decode_avx512
           : (set & SIMD_AVX2) != 0 ? f->decode_avx2
                                    : quant_types[type]->decode;
}

/* One line of vectors.tsv. */
struct vector {
    char name[32];
    unsigned id;
    int block_elems, block_bytes, head_bytes, row_elems, n;
    uint64_t hash;
};

static bool find_vector(struct vector *v, const char *name)
{
    struct bytes b = must_slurp("vectors.tsv");
    bool found = false;

    b.p[b.n] = '\0';
    for (const char *line = (const char *)b.p; !found && *line != '\0'; line = strchr(line, '\n') + 1) {
        unsigned long long hash;

        assert_int_equal(sscanf(line, "%31s %u %d %d %d %d %d %llx", v->name, &v->id, &v->block_elems, &v->block_bytes,
                                &v->head_bytes, &v->row_elems, &v->n, &hash),
                         8);
        v->hash = hash;
        found = strcmp(v->name, name) == 0;
    }
    free(b.p);
    return found;
}

static uint64_t fnv1a(const void *p, size_t n)
{
    uint64_t h = 0xcbf29ce484222325ull;

    for (size_t i = 0; i < n; i++)
        h = (h ^ ((const unsigned char *)p)[i]) * 0x100000001b3ull;
    return h;
}

/* Formats without blocks: bytes and what they mean. */
static const struct plain {
    const char *name;
    unsigned id;
    int bytes;
    unsigned char row[16];
    float value[2];
} plains[] = {
    { "f32", 0, 4, { 0, 0, 0xc0, 0x3f, 1, 0, 0, 0x80 }, { 1.5f, -0x1p-149f } },
    { "f16", 1, 2, { 0x00, 0x3e, 0x01, 0x80 }, { 1.5f, -0x1p-24f } },
    { "bf16", 30, 2, { 0xc0, 0x3f, 0x01, 0x80 }, { 1.5f, -0x1p-133f } },
    { "f64", 28, 8, { 0, 0, 0, 0, 0, 0, 0xf8, 0x3f, 0, 0, 0, 0x10, 0, 0, 0xf0, 0xbf }, { 1.5f, -1.0f } },
    { "i8", 24, 1, { 0x7f, 0x80 }, { 127.0f, -128.0f } },
    { "i16", 25, 2, { 0x02, 0x01, 0x00, 0x80 }, { 258.0f, -32768.0f } },
    { "i32", 26, 4, { 4, 3, 2, 1, 0xff, 0xff, 0xff, 0xff }, { 0x1.020304p+24f, -1.0f } },
    { "i64", 27, 8, { 0, 0, 0, 0, 0, 1, 0, 0, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff }, { 0x1p40f, -2.0f } },
};

static const struct plain *find_plain(const char *name)
{
    for (size_t i = 0; i < sizeof(plains) / sizeof(*plains); i++)
        if (strcmp(plains[i].name, name) == 0)
            return &plains[i];
    return NULL;
}

static void every_type_has_its_sizes(void **state)
{
    (void)state;
    for (int i = 0; i < QUANT_N; i++) {
        const struct quant_type *t = quant_types[i];
        const struct plain *p = find_plain(t->name);
        struct vector v = { .id = 0 };

        assert_non_null(t->decode);
        if (p != NULL) {
            assert_int_equal(t->id, p->id);
            assert_int_equal(t->block_elems, 1);
            assert_int_equal(t->block_bytes, p->bytes);
            assert_int_equal(t->head_bytes, 0);
            continue;
        }
        if (!find_vector(&v, t->name))
            fail_msg("%s has no vectors", t->name);
        assert_int_equal(t->id, v.id);
        assert_int_equal(t->block_elems, v.block_elems);
        assert_int_equal(t->block_bytes, v.block_bytes);
        assert_int_equal(t->head_bytes, v.head_bytes);
    }
}

static void lookups_find_each_type_and_nothing_else(void **state)
{
    (void)state;
    for (int i = 0; i < QUANT_N; i++) {
        const char *name = quant_types[i]->name;
        char upper[32] = { 0 };

        for (size_t k = 0; name[k] != '\0'; k++)
            upper[k] = (char)(name[k] >= 'a' && name[k] <= 'z' ? name[k] - 'a' + 'A' : name[k]);
        assert_int_equal(quant_find_id(quant_types[i]->id), i);
        assert_int_equal(quant_find_name(str_of(name)), i);
        assert_int_equal(quant_find_name(str_of(upper)), i);
        assert_int_not_equal(quant_find_name((struct str){ name, strlen(name) - 1 }), i);
    }
    assert_int_equal(quant_find_id(4), -1);
    assert_int_equal(quant_find_id(UINT32_MAX), -1);
    assert_int_equal(quant_find_name(STR("")), -1);
    assert_int_equal(quant_find_name(STR("q4_00")), -1);
    assert_int_equal(quant_find_name(STR("f32\0")), -1);
    assert_int_equal(quant_find_name(STR("f3[")), -1);
    assert_int_equal(quant_find_id(12), QUANT_q4_k);
}

static void row_bytes_counts_or_refuses(void **state)
{
    (void)state;
    for (int i = 0; i < QUANT_N; i++) {
        const struct quant_type *t = quant_types[i];

        assert_int_equal(quant_row_bytes(i, 0), t->head_bytes);
        assert_int_equal(quant_row_bytes(i, 3 * t->block_elems), t->head_bytes + 3 * t->block_bytes);
        assert_int_equal(quant_row_bytes(i, -t->block_elems), -1);
        if (t->block_elems > 1) {
            assert_int_equal(quant_row_bytes(i, 3 * t->block_elems - 1), -1);
            assert_int_equal(quant_row_bytes(i, 1), -1);
        }
    }
    assert_int_equal(quant_row_bytes(QUANT_q4_0, INT64_MAX - 31), (INT64_MAX - 31) / 32 * 18);
    assert_int_equal(quant_row_bytes(QUANT_f64, INT64_MAX / 8), INT64_MAX / 8 * 8);
    assert_int_equal(quant_row_bytes(QUANT_f64, INT64_MAX / 8 + 1), -1);
    assert_int_equal(quant_row_bytes(QUANT_q8_0, INT64_MAX - 31), -1);
    assert_int_equal(quant_row_bytes(QUANT_i8, INT64_MAX), INT64_MAX);
    assert_int_equal(quant_row_bytes(QUANT_i16, INT64_MAX), -1);
}

static void the_fastest_decoder_is_chosen(void **state)
{
    const struct cpu_format *f = cpu_format_of(QUANT_q4_k);

    (void)state;
    assert_ptr_equal(cpu_decoder(QUANT_q4_k, 0), quant_types[QUANT_q4_k]->decode);
    if (f->decode_avx2 != NULL) {
        assert_ptr_equal(cpu_decoder(QUANT_q4_k, SIMD_AVX2), f->decode_avx2);
        assert_ptr_equal(cpu_decoder(QUANT_q4_k, SIMD_AVX2 | SIMD_AVX512), f->decode_avx512);
    }
    assert_ptr_equal(cpu_decoder(QUANT_f64, SIMD_AVX2 | SIMD_AVX512), quant_types[QUANT_f64]->decode);
}

static void decodes_as_the_reference(void **state)
{
    static float y[N_MAX];
    const unsigned set = set_or_skip(state);

    for (int i = 0; i < QUANT_N; i++) {
        const struct quant_type *t = quant_types[i];
        const struct plain *p = find_plain(t->name);
        struct vector v = { .id = 0 };
        quant_decode_fn *f = decoder_of(i, set);
        char file[64];

        if (f == NULL)
            continue;
        if (p != NULL) {
            union {
                double align;
                unsigned char bytes[16];
            } row;

            memcpy(row.bytes, p->row, sizeof(row));
            f(y, row.bytes, 2);
            assert_memory_equal(y, p->value, sizeof(p->value));
            continue;
        }
        assert_true(find_vector(&v, t->name));
        snprintf(file, sizeof(file), "%s.q", t->name);
        struct bytes q = must_slurp(file);
        int64_t row_bytes = quant_row_bytes(i, v.row_elems);

        assert_in_range(v.n, 1, N_MAX);
        assert_int_equal(row_bytes * (v.n / v.row_elems), q.n);
        for (int r = 0; r < v.n / v.row_elems; r++)
            f(y + r * v.row_elems, q.p + r * row_bytes, v.row_elems);
        if (fnv1a(y, (size_t)v.n * sizeof(float)) != v.hash)
            fail_msg("%s: values differ", t->name);
        free(q.p);
    }
}

/* Compares one TYPE.variant of the full set; returns whether it exists. */
static bool run_golden(const char *dir, int type, unsigned set, const char *variant, int64_t row)
{
    static float y[N_MAX];
    const struct quant_type *t = quant_types[type];
    char upper[32] = { 0 }, file[80];
    quant_decode_fn *f = decoder_of(type, set);

    for (size_t k = 0; t->name[k] != '\0'; k++)
        upper[k] = (char)(t->name[k] >= 'a' && t->name[k] <= 'z' ? t->name[k] - 32 : t->name[k]);
    snprintf(file, sizeof(file), "quants/%s.%s.q", upper, variant);
    struct bytes q = slurp(dir, file);
    snprintf(file, sizeof(file), "quants/%s.%s.f32", upper, variant);
    struct bytes want = slurp(dir, file);

    if (q.p == NULL || want.p == NULL) {
        free(q.p);
        free(want.p);
        return false;
    }
    int64_t n = (int64_t)(want.n / sizeof(float)), row_bytes = quant_row_bytes(type, row);

    assert_true(n <= N_MAX && n % row == 0);
    assert_int_equal(n / row * row_bytes, q.n);
    for (int64_t r = 0; f != NULL && r < n / row; r++)
        f(y + r * row, q.p + r * row_bytes, row);
    for (int64_t j = 0; f != NULL && j < n; j++)
        if (memcmp(&y[j], want.p + (size_t)j * sizeof(float), sizeof(float)) != 0)
            fail_msg("%s %s: value %d is %a", upper, variant, (int)j, (double)y[j]);
    free(q.p);
    free(want.p);
    return true;
}

static void decodes_the_full_set(void **state)
{
    const unsigned set = set_or_skip(state);
    const char *dir = getenv("GOLDENS");

    if (dir == NULL || *dir == '\0')
        skip();
    for (int i = 0; i < QUANT_N; i++) {
        const char *name = quant_types[i]->name;
        bool random = run_golden(dir, i, set, "random", 256);
        bool plain = run_golden(dir, i, set, "plain", 512);

        if (!plain && find_plain(name) == NULL)
            fail_msg("no %s.plain in %s", name, dir);
        if (!random && find_plain(name) == NULL)
            fail_msg("no %s.random in %s", name, dir);
    }
}

/* A value of a half float from its definition. */
static float half_by_definition(unsigned h)
{
    int exp = (int)(h >> 10 & 31), man = (int)(h & 1023);
    double v = exp == 31  ? (man != 0 ? (double)NAN : (double)INFINITY)
               : exp == 0 ? ldexp(man, -24)
                          : ldexp(1024 + man, exp - 25);

    return (float)((h & 0x8000) != 0 ? -v : v);
}

static void half_floats_are_exact(void **state)
{
    struct bytes in = must_slurp("half_in.f32"), f16 = must_slurp("half_out.f16");
    struct bytes bf16 = must_slurp("half_out.bf16");
    int n = (int)(in.n / sizeof(float));

    (void)state;
    assert_int_equal(f16.n, in.n / 2);
    assert_int_equal(bf16.n, in.n / 2);
    for (int i = 0; i < n; i++) {
        float x;
        uint16_t want[2];

        memcpy(&x, in.p + 4 * i, 4);
        memcpy(&want[0], f16.p + 2 * i, 2);
        memcpy(&want[1], bf16.p + 2 * i, 2);
        assert_int_equal(quant_f32_to_f16(x), want[0]);
        assert_int_equal(half_bf16_of_f32(x), want[1]);
    }
    for (unsigned h = 0; h < 0x10000; h++) {
        float f = quant_f16_to_f32((uint16_t)h), b = half_bf16_to_f32((uint16_t)h);
        bool nan = (h & 0x7fff) > 0x7c00;

        assert_true(same_value(f, half_by_definition(h)));
        assert_int_equal(quant_f32_to_f16(f), nan ? h | 0x200 : h);
        assert_int_equal(bits_of(b), h << 16);
        assert_int_equal(half_bf16_of_f32(b), (h & 0x7fff) > 0x7f80 ? h | 0x40 : h);
    }
    free(in.p);
    free(f16.p);
    free(bf16.p);
}

/* Between two neighbouring halves, the middle goes to the even one and its neighbours to theirs. */
static void half_floats_round_to_nearest_even(void **state)
{
    (void)state;
    for (unsigned h = 0; h < 0x7c00; h++) {
        float a = quant_f16_to_f32((uint16_t)h);
        float b = h + 1 == 0x7c00 ? 65536.0f : quant_f16_to_f32((uint16_t)(h + 1));
        float mid = (a + b) / 2;
        unsigned even = h % 2 == 0 ? h : h + 1;

        assert_int_equal(quant_f32_to_f16(mid), even);
        assert_int_equal(quant_f32_to_f16(-mid), even | 0x8000);
        assert_int_equal(quant_f32_to_f16(nextafterf(mid, 0.0f)), h);
        assert_int_equal(quant_f32_to_f16(nextafterf(mid, INFINITY)), h + 1);
    }
    assert_int_equal(half_bf16_of_f32(0x1.01p0f), 0x3f80); /* half way: to even */
    assert_int_equal(half_bf16_of_f32(0x1.03p0f), 0x3f82);
    assert_int_equal(half_bf16_of_f32(3.4e38f), 0x7f80);
}

/* A row of random blocks whose values are finite and not enormous. */
static void fill_row(int type, unsigned char *row, int64_t n)
{
    const struct quant_type *t = quant_types[type];
    unsigned char *block = row + t->head_bytes;

    assert_true(t->head_bytes == 0 || t->head_bytes == sizeof(float));
    if (t->head_bytes != 0)
        memcpy(row, &(float){ 0.01f }, sizeof(float));
    for (int64_t i = 0; i < n; i += t->block_elems, block += t->block_bytes)
        for (bool good = false; !good;) {
            union {
                double align;
                unsigned char bytes[512];
            } one;
            float y[256];

            memcpy(one.bytes, row, (size_t)t->head_bytes);
            for (int k = 0; k < t->block_bytes; k++)
                one.bytes[t->head_bytes + k] = (unsigned char)(rng() >> 32);
            t->decode(y, one.bytes, t->block_elems);
            good = true;
            for (int k = 0; k < t->block_elems; k++)
                good = good && fabsf(y[k]) < 1e18f;
            memcpy(block, one.bytes + t->head_bytes, (size_t)t->block_bytes);
        }
}

/* Lengths whose last vector is not full, where the format allows them. */
static void fast_decoders_give_the_same_bytes(void **state)
{
    static float want[N_MAX + 2], got[N_MAX + 2];
    const unsigned set = set_or_skip(state);
    unsigned char *row = malloc(N_MAX * 8);

    assert_non_null(row);
    for (int i = 0; i < QUANT_N; i++) {
        const struct quant_type *t = quant_types[i];
        quant_decode_fn *f = decoder_of(i, set);

        for (int turn = 0; f != NULL && turn < 60; turn++) {
            int64_t n = turn < 40 ? turn * t->block_elems : (turn - 39) * 256;

            if (n > N_MAX)
                continue;
            fill_row(i, row, n);
            if (t->block_elems > 1 && t->head_bytes == 0 && n > 0) /* any bits in the last block */
                for (int k = 1; k <= t->block_bytes; k++)
                    row[quant_row_bytes(i, n) - k] = (unsigned char)(rng() >> 32);
            t->decode(want, row, n);
            got[0] = got[n + 1] = 12345.0f;
            f(got + 1, row, n);
            assert_true(got[0] == 12345.0f && got[n + 1] == 12345.0f);
            for (int64_t j = 0; j < n; j++)
                if (!same_value(got[1 + j], want[j]))
                    fail_msg("%s, %d elements: value %d", t->name, (int)n, (int)j);
        }
    }
    free(row);
}

/* All halves, signalling NaN too, through each decoder of f16 and bf16: the very same bits. */
static void fast_decoders_of_halves_agree_on_all_values(void **state)
{
    static uint16_t h[65536 + 3];
    static float want[65536 + 3], got[65536 + 3];
    const int types[2] = { QUANT_f16, QUANT_bf16 };
    const unsigned set = set_or_skip(state);

    for (int i = 0; i < 65536 + 3; i++)
        h[i] = (uint16_t)i;
    for (int i = 0; i < 2; i++) {
        quant_decode_fn *f = decoder_of(types[i], set);

        assert_non_null(f);
        quant_types[types[i]]->decode(want, h, 65536 + 3);
        f(got, h, 65536 + 3);
        assert_memory_equal(got, want, sizeof(want));
    }
}

/* Rows of 512 weights, within the error that ggml's encoder leaves (and one part in a thousand). */
static void encoders_reach_the_reference_error(void **state)
{
    struct bytes w = must_slurp("weights.f32"), table = must_slurp("encode.tsv");
    const char *line = (const char *)table.p;
    int n_types = 0;

    (void)state;
    table.p[table.n] = '\0';
    assert_int_equal(w.n, 8 * 512 * sizeof(float));
    for (; *line != '\0'; line = strchr(line, '\n') + 1, n_types++) {
        char name[32];
        double want[8];

        assert_int_equal(sscanf(line, "%31s %lf %lf %lf %lf %lf %lf %lf %lf", name, &want[0], &want[1], &want[2],
                                &want[3], &want[4], &want[5], &want[6], &want[7]),
                         9);
        int type = quant_find_name(str_of(name));

        assert_true(type >= 0);
        assert_non_null(quant_types[type]->encode);
        for (int r = 0; r < 8; r++) {
            float x[512], y[512];
            uint16_t row[1024];
            double sum = 0.0;

            memcpy(x, w.p + (size_t)r * sizeof(x), sizeof(x));
            quant_types[type]->encode(row, x, 512, NULL);
            quant_types[type]->decode(y, row, 512);
            for (int j = 0; j < 512; j++)
                sum += pow((double)y[j] - (double)x[j], 2.0);
            if (!(sqrt(sum / 512) <= 1.001 * want[r]))
                fail_msg("%s, row %d: error %g, reference %g", name, r, sqrt(sum / 512), want[r]);
        }
    }
    assert_int_equal(n_types, 4);
    free(w.p);
    free(table.p);
}

static void encoders_survive_every_input(void **state)
{
    const int types[2] = { QUANT_q8_0, QUANT_q4_0 };
    const float maxima[] = { 0.0f, 0x1p-149f, 1e-38f, 1e-12f, 1e-9f, 1e-7f, 1e-6f, 1e-5f, 1e-3f };

    (void)state;
    for (int i = 0; i < 2; i++) {
        const struct quant_type *t = quant_types[types[i]];
        float step = types[i] == QUANT_q8_0 ? 127.0f : 8.0f, x[32], y[32];
        uint16_t row[17];

        for (size_t k = 0; k < sizeof(maxima) / sizeof(*maxima); k++) {
            for (int j = 0; j < 32; j++)
                x[j] = maxima[k] * ((float)j / 15.5f - 1.0f);
            t->encode(row, x, 32, NULL);
            t->decode(y, row, 32);
            for (int j = 0; j < 32; j++)
                /* One step where the code range is uneven, plus what a scale in units of 2^-24
                 * cannot follow. */
                assert_true(fabsf(y[j] - x[j]) <= maxima[k] / step * 1.01f + step * 0x1p-25f);
        }
        for (int j = 0; j < 32; j++)
            x[j] = j == 3 ? -3.4e38f : 3.4e38f;
        t->encode(row, x, 32, NULL);
        t->decode(y, row, 32);
        assert_true(isfinite(y[3]) && y[3] < -4e5f && y[4] > 4e5f);
        x[7] = i == 0 ? NAN : -INFINITY;
        t->encode(row, x, 32, NULL);
        t->decode(y, row, 32);
        for (int j = 0; j < 32; j++)
            assert_true(isnan(y[j]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_has_its_sizes),
        cmocka_unit_test(lookups_find_each_type_and_nothing_else),
        cmocka_unit_test(row_bytes_counts_or_refuses),
        cmocka_unit_test(the_fastest_decoder_is_chosen),
        SET_TEST(decodes_as_the_reference, scalar),
        SET_TEST(decodes_as_the_reference, avx2),
        SET_TEST(decodes_as_the_reference, avx512),
        SET_TEST(decodes_the_full_set, scalar),
        SET_TEST(decodes_the_full_set, avx2),
        SET_TEST(decodes_the_full_set, avx512),
        cmocka_unit_test(half_floats_are_exact),
        cmocka_unit_test(half_floats_round_to_nearest_even),
        SET_TEST(fast_decoders_give_the_same_bytes, avx2),
        SET_TEST(fast_decoders_give_the_same_bytes, avx512),
        SET_TEST(fast_decoders_of_halves_agree_on_all_values, avx2),
        SET_TEST(fast_decoders_of_halves_agree_on_all_values, avx512),
        cmocka_unit_test(encoders_reach_the_reference_error),
        cmocka_unit_test(encoders_survive_every_input),
    };

    return cmocka_run_group_tests_name("quant", tests, NULL, NULL);
}
