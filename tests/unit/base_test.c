/* SPDX-License-Identifier: Apache-2.0 */
/* base_test.c - the room base: errors, arena, processor features, random numbers, JSON. */
#include <errno.h>
#include <float.h>
#include <math.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include "base_dir.h"
#include "base/arena.h"
#include "base/io.h"
#include "base/json.h"
#include "base/rng.h"
#include "base/simd.h"

/* ---- strings and errors ---- */

static void test_str(void **state)
{
    (void)state;
    assert_int_equal(str_of("abc").n, 3);
    assert_int_equal(STR("abc").n, 3);
    assert_true(str_eq(STR("abc"), str_of("abc")));
    assert_false(str_eq(STR("abc"), STR("abd")));
    assert_false(str_eq(STR("abc"), STR("ab")));
    assert_true(str_eq((struct str){ NULL, 0 }, STR("")));
    assert_true(str_is(STR("x"), "x"));
    assert_false(str_is(STR("x\0y"), "x"));
}

static void test_utf8(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t len;
    } cases[] = {
        { "", 0 },
        { "a", 1 },
        { "\x7f", 1 },
        { "\x80", 0 },
        { "\xc2\x80", 2 },
        { "\xc1\xbf", 0 },
        { "\xc3", 0 },
        { "\xc3(", 0 },
        { "\xe0\xa0\x80", 3 },
        { "\xe0\x9f\xbf", 0 },
        { "\xed\x9f\xbf", 3 },
        { "\xed\xa0\x80", 0 },
        { "\xef\xbf\xbf", 3 },
        { "\xe2\x82", 0 },
        { "\xe2\x82(", 0 },
        { "\xf0\x90\x80\x80", 4 },
        { "\xf0\x8f\xbf\xbf", 0 },
        { "\xf4\x8f\xbf\xbf", 4 },
        { "\xf4\x90\x80\x80", 0 },
        { "\xf5\x80\x80\x80", 0 },
        { "\xff", 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(str_utf8(str_of(cases[i].text)), cases[i].len);
    }
    assert_int_equal(str_utf8((struct str){ "", 1 }), 1); /* NUL is a character */
}

static void test_err(void **state)
{
    (void)state;
    struct err e;
    assert_int_equal(err_set(&e, ERR_ARG, "%d is %s", 7, "odd"), ERR_ARG);
    assert_int_equal(e.code, ERR_ARG);
    assert_string_equal(e.msg, "7 is odd");
    assert_int_equal(err_wrap(&e, "file %s", "f"), ERR_ARG);
    assert_string_equal(e.msg, "file f: 7 is odd");
    assert_int_equal(err_set(&e, ERR_IO, "again: %s", e.msg), ERR_IO);
    assert_string_equal(e.msg, "again: file f: 7 is odd");
    assert_int_equal(err_errno(&e, ERR_IO, ENOENT, "f: cannot open"), ERR_IO);
    assert_string_equal(e.msg, "f: cannot open: No such file or directory");
    assert_int_equal(err_set(NULL, ERR_LIMIT, "x"), ERR_LIMIT);
    assert_int_equal(err_errno(NULL, ERR_NOMEM, ENOENT, "x"), ERR_NOMEM);
}

/* A place is put together from the inside out, and belongs to one error. */
static void test_err_place(void **state)
{
    (void)state;
    struct err e = { 0 };
    assert_int_equal(err_set(&e, ERR_FORMAT, "not a number"), ERR_FORMAT);
    assert_string_equal(e.where, "");
    err_at(&e, "/%s/%d", "items", 3);
    assert_int_equal(err_at(&e, "/tools"), ERR_FORMAT);
    assert_string_equal(e.where, "/tools/items/3");
    assert_string_equal(e.msg, "not a number");
    err_wrap(&e, "schema");
    assert_string_equal(e.where, "/tools/items/3");
    for (int i = 0; i < 100; i++)
        err_at(&e, "/long");
    assert_int_equal(strlen(e.where), sizeof e.where - 1);
    assert_int_equal(err_nomem(&e), ERR_NOMEM);
    assert_string_equal(e.msg, "out of memory");
    assert_string_equal(e.where, "");
    assert_int_equal(err_at(NULL, "/x"), ERR_OK);
    err_set(&e, ERR_FORMAT, "line 2, column 5: no such escape");
    err_at(&e, "%d:%d", 2, 5);
    assert_string_equal(e.where, "2:5");
    struct err copy = { 0 };
    assert_int_equal(err_copy(&copy, &e), ERR_FORMAT);
    assert_string_equal(copy.where, "2:5");
    err_at(&copy, "/a/pattern"); /* the text is a string there */
    assert_string_equal(copy.where, "/a/pattern");
    assert_int_equal(err_copy(NULL, &e), ERR_FORMAT);
    assert_int_equal(err_nomem(NULL), ERR_NOMEM);
}

static void test_err_cleans(void **state)
{
    (void)state;
    struct err e;
    err_set(&e, ERR_FORMAT, "a\nb\x1b[1m\xff \xc2\x9b \xc3\xa9 \xe2\x82\xac");
    assert_string_equal(e.msg, "a?b?[1m? ? \xc3\xa9 \xe2\x82\xac");
    char text[2000];
    for (size_t i = 0; i + 2 < sizeof text; i += 2) {
        memcpy(text + i, "\xc3\xa9", 2);
    }
    text[sizeof text - 2] = '\0';
    err_set(&e, ERR_FORMAT, "%s", text);
    assert_int_equal(strlen(e.msg), 510); /* 511 would cut a character in two */
    err_wrap(&e, "context");
    assert_int_equal(strncmp(e.msg, "context: \xc3", 10), 0);
    assert_true(strlen(e.msg) < sizeof e.msg);
    err_wrap(&e, "%s", text);
    assert_int_equal(strlen(e.msg), 510);
}

static bool tick_stop(void *ctx, uint64_t done, uint64_t total)
{
    *(uint64_t *)ctx = total;
    return done < 5;
}

static void test_progress(void **state)
{
    (void)state;
    uint64_t seen = 0;
    struct progress none = { NULL, NULL };
    struct progress p = { tick_stop, &seen };
    assert_true(progress_tick(NULL, 1, 2));
    assert_true(progress_tick(&none, 1, 2));
    assert_true(progress_tick(&p, 4, 9));
    assert_int_equal(seen, 9);
    assert_false(progress_tick(&p, 5, 9));
}

/* ---- arena ---- */

static void test_arena(void **state)
{
    (void)state;
    enum { COUNT = 3000 };
    struct arena a = { 0 };
    unsigned char *p[COUNT];
    size_t total = 0;
    for (size_t i = 0; i < COUNT; i++) {
        size_t n = i % 500 == 499 ? 100000 : i % 97;
        p[i] = arena_alloc(&a, n);
        assert_non_null(p[i]);
        assert_int_equal((uintptr_t)p[i] % 64, 0);
        for (size_t k = 0; k < n; k++) {
            assert_int_equal(p[i][k], 0);
        }
        memset(p[i], (int)(i % 251), n);
        total += n;
        assert_int_equal(a.used_bytes, total);
    }
    for (size_t i = 0; i < COUNT; i++) { /* nothing overlaps, nothing moved */
        size_t n = i % 500 == 499 ? 100000 : i % 97;
        for (size_t k = 0; k < n; k++) {
            assert_int_equal(p[i][k], i % 251);
        }
    }
    arena_free(&a);
    assert_null(a.head);
    assert_int_equal(a.used_bytes, 0);
    assert_non_null(arena_alloc(&a, 1));
    arena_free(&a);
    arena_free(&a);
}

static void test_arena_edges(void **state)
{
    (void)state;
    struct arena a = { 0 };
    void *zero = arena_alloc(&a, 0);
    assert_non_null(zero);
    assert_ptr_not_equal(zero, arena_alloc(&a, 0));
    assert_null(arena_alloc(&a, SIZE_MAX));
    assert_null(arena_alloc(&a, SIZE_MAX - 64));
    assert_null(arena_array(&a, SIZE_MAX / 2, 3));
    assert_non_null(arena_array(&a, 0, 8));
    assert_non_null(arena_array(&a, 8, 0));
    assert_non_null(arena_array(&a, 10, 8));
    assert_int_equal(a.used_bytes, 80);
    char *z = arena_strdup(&a, (struct str){ "abcdef", 3 });
    assert_string_equal(z, "abc");
    assert_string_equal(arena_strdup(&a, (struct str){ NULL, 0 }), "");
    assert_null(arena_strdup(&a, (struct str){ "x", SIZE_MAX }));
    arena_free(&a);
}

/* ---- processor features ---- */

static void test_simd(void **state)
{
    (void)state;
    const char *set = getenv("CHIMERE_TEST_SIMD");
    char *before = set != NULL ? strdup(set) : NULL;
    assert_int_equal(setenv("CHIMERE_TEST_SIMD", "all", 1), 0);
    unsigned all = simd_features();
    if (all != 0) {
        assert_true(all & SIMD_AVX2);
    }
    if (all & (SIMD_AVX512_VNNI | SIMD_AVX512_BF16 | SIMD_AVX512_VBMI)) {
        assert_true(all & SIMD_AVX512);
    }
    setenv("CHIMERE_TEST_SIMD", "none", 1);
    assert_int_equal(simd_features(), 0);
    setenv("CHIMERE_TEST_SIMD", "avx2", 1);
    assert_int_equal(simd_features(), all & SIMD_AVX2);
    setenv("CHIMERE_TEST_SIMD", "avx512", 1);
    assert_int_equal(simd_features(), all & (SIMD_AVX2 | SIMD_AVX512));
    setenv("CHIMERE_TEST_SIMD", "vnni", 1);
    assert_int_equal(simd_features(), all & (SIMD_AVX2 | SIMD_AVX512 | SIMD_AVX512_VNNI | SIMD_AVX_VNNI));
    unsetenv("CHIMERE_TEST_SIMD");
    assert_int_equal(simd_features(), all);
    if (before != NULL) {
        setenv("CHIMERE_TEST_SIMD", before, 1);
        free(before);
    }
}

/* Whether the text of /proc/cpuinfo is about the processor that this program runs on. An emulator's CPUID names
 * another one. */
static bool of_this_processor(const char *cpuinfo)
{
#if defined(__x86_64__)
    union {
        unsigned regs[12];
        char text[49];
    } name = { 0 };
    const char *line = strstr(cpuinfo, "\nmodel name");

    for (unsigned i = 0; i < 3; i++) {
        unsigned *r = name.regs + 4 * i;

        if (!__get_cpuid(0x80000002u + i, r, r + 1, r + 2, r + 3))
            return false;
    }
    const char *first = name.text + strspn(name.text, " "), *colon = line != NULL ? strchr(line + 1, ':') : NULL;
    size_t len = strlen(first);

    while (len > 0 && first[len - 1] == ' ') {
        len--;
    }
    return colon != NULL && strncmp(colon + 2, first, len) == 0;
#else
    (void)cpuinfo;
    return false;
#endif
}

/* What we say must be what the kernel says, where it says it. Valgrind shows itself by its
 * preloaded library and emulates a lesser processor, of which the kernel knows nothing. */
static void test_simd_kernel(void **state)
{
    (void)state;
    static const struct {
        unsigned bit;
        const char *flag;
    } flags[] = {
        { SIMD_AVX2, " avx2 " },         { SIMD_AVX512, " avx512bw " },         { SIMD_AVX512_VNNI, " avx512_vnni " },
        { SIMD_AVX_VNNI, " avx_vnni " }, { SIMD_AVX512_BF16, " avx512_bf16 " }, { SIMD_AMX_INT8, " amx_int8 " },
        { SIMD_AMX_BF16, " amx_bf16 " }, { SIMD_AVX512_VBMI, " avx512vbmi " },
    };
    char *text = NULL;
    size_t n = 0;
    const char *preload = getenv("LD_PRELOAD");
    if (getenv("CHIMERE_TEST_SIMD") != NULL || (preload != NULL && strstr(preload, "valgrind") != NULL) ||
        io_read_all(&text, &n, "/proc/cpuinfo", 64 << 20, NULL, NULL) != ERR_OK) {
        skip();
    }
    char *line = of_this_processor(text) ? strstr(text, "\nflags") : NULL;
    char *end = line != NULL ? strchr(line + 1, '\n') : NULL;
    if (end == NULL) {
        free(text);
        skip();
    }
    *end = ' '; /* the last flag has a space behind it too */
    end[1] = '\0';
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        bool listed = strstr(line, flags[i].flag) != NULL;
        assert_int_equal((simd_features() & flags[i].bit) != 0, listed);
    }
    free(text);
}

static void test_simd_names(void **state)
{
    (void)state;
    char buf[64];
    assert_string_equal(simd_names(0, buf, sizeof buf), "");
    assert_string_equal(simd_names(SIMD_AVX2 | SIMD_AVX512_VNNI, buf, sizeof buf), "avx2 vnni");
    assert_string_equal(simd_names(~0u, buf, sizeof buf), "avx2 avx512 vnni avxvnni avx512bf16 amxint8 amxbf16 vbmi");
    assert_string_equal(simd_names(~0u, buf, 12), "avx2 avx512");
    assert_string_equal(simd_names(~0u, buf, 11), "avx2");
    assert_string_equal(simd_names(~0u, buf, 1), "");
}

/* ---- random numbers ---- */

/* Known answers published with the Random123 library (kat_vectors, philox4x32 10). */
static void test_rng_known(void **state)
{
    (void)state;
    uint32_t x[4];
    static const uint32_t zeros[4] = { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 };
    static const uint32_t ones[4] = { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd };
    static const uint32_t pi[4] = { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 };
    rng_block(x, 0, 0, 0);
    assert_memory_equal(x, zeros, sizeof x);
    rng_block(x, UINT64_MAX, UINT64_MAX, UINT64_MAX);
    assert_memory_equal(x, ones, sizeof x);
    rng_block(x, 0x299f31d0a4093822u, 0x0370734413198a2eu, 0x85a308d3243f6a88u);
    assert_memory_equal(x, pi, sizeof x);
    double want = (double)((((uint64_t)0xe169c58d << 32) | 0x6627e8d5) >> 11) / 9007199254740992.0;
    assert_true(rng_unit(0, 0, 0) == want);
}

static void test_rng_moments(void **state)
{
    (void)state;
    enum { N = 100000 };
    double sum_u = 0, sum_g = 0, sum_g2 = 0, sum_g4 = 0;
    for (uint64_t i = 0; i < N; i++) {
        double u = rng_unit(1, 2, i);
        double g = (double)rng_gauss(1, 3, i);
        assert_true(u >= 0 && u < 1);
        assert_true(isfinite(g));
        sum_u += u;
        sum_g += g;
        sum_g2 += g * g;
        sum_g4 += g * g * g * g;
    }
    /* Five standard errors: 0.2887, 1, sqrt(2) and sqrt(96) over sqrt(N). */
    assert_true(fabs(sum_u / N - 0.5) < 0.0046);
    assert_true(fabs(sum_g / N) < 0.0159);
    assert_true(fabs(sum_g2 / N - 1) < 0.0224);
    assert_true(fabs(sum_g4 / N - 3) < 0.155);
}

/* ---- JSON ---- */

static enum err_code parse(const char *text, struct err *e)
{
    json_t *v = NULL;
    enum err_code rc = json_parse(&v, str_of(text), "in.json", e);
    assert_true((v != NULL) == (rc == ERR_OK));
    json_decref(v);
    return rc;
}

static void test_json(void **state)
{
    (void)state;
    struct err e;
    json_t *v = NULL;
    struct str s = { NULL, 0 };
    assert_int_equal(json_parse(&v, STR("{\"a\":\"x\\u00e9\",\"b\":3}"), "t", &e), ERR_OK);
    assert_true(json_get_str(v, "a", &s));
    assert_true(str_is(s, "x\xc3\xa9"));
    assert_false(json_get_str(v, "b", &s));
    assert_false(json_get_str(v, "c", &s));
    assert_true(str_is(s, "x\xc3\xa9"));
    assert_false(json_get_str(json_object_get(v, "b"), "a", &s));
    assert_false(json_get_str(NULL, "a", &s));
    json_decref(v);
    static const char *const good[] = {
        "1", "\"s\"", "null", "\xef\xbb\xbf[]", " [1, 2.5e3]\n", "{}", "[\"]\\\"[[\"]",
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_int_equal(parse(good[i], &e), ERR_OK);
    }
    assert_int_equal(json_parse(&v, (struct str){ "[1]]", 3 }, "t", &e), ERR_OK); /* n bytes only */
    json_decref(v);
}

static void *no_memory(size_t n)
{
    (void)n;
    return NULL;
}

/* What has no memory is said, and is not a value with less in it. */
static void test_json_copies(void **state)
{
    json_t *v = json_pack("{s:[i, i], s:{s:s}}", "a", 1, 2, "b", "c", "d");
    json_t *list = json_object_get(v, "a"), *copy = json_shallow(v), *items = json_shallow(list);
    char *text = json_dump(v, JSON_COMPACT | JSON_SORT_KEYS);
    struct err e = { 0 };
    bool whole;
    (void)state;
    assert_true(json_equal(copy, v) && json_equal(items, list) && copy != v && items != list);
    assert_ptr_equal(json_object_get(copy, "a"), list);
    assert_string_equal(text, "{\"a\":[1,2],\"b\":{\"c\":\"d\"}}");
    free(text);
    json_decref(copy);
    json_decref(items);
    assert_false(json_ran_out());
    json_set_alloc_funcs(no_memory, free);
    assert_null(json_shallow(v));
    assert_null(json_shallow(list));
    json_decref(v);
    assert_int_equal(json_begins(&whole, STR("{\"a\": 1} {"), &e), ERR_OK);
    assert_true(whole);
    assert_int_equal(json_begins(&whole, STR("{\"a\": 1"), &e), ERR_OK);
    assert_false(whole);
}

static void test_json_bad(void **state)
{
    (void)state;
    struct err e;
    static const char *const bad[] = {
        "",
        " ",
        "{",
        "[1,]",
        "[1 2]",
        "{\"a\":1,\"a\":2}",
        "1 2",
        "{} x",
        "nul",
        "\"\xff\"",
        "\"\xed\xa0\x80\"",
        "\"a\nb\"",
        "'a'",
        "[1e999]",
        "99999999999999999999",
        "\"\\ud800\"",
        "]",
        "\"\\",
        "\"\\u0000\"",
        "// c\n1",
        "[]\xef\xbb\xbf",
        "{\"\xff\":1}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(parse(bad[i], &e), ERR_FORMAT);
        assert_says(&e, "in.json: line ");
    }
    assert_int_equal(parse("{\n \"a\": 1,\n \"b\": ?\n}", &e), ERR_FORMAT);
    assert_says(&e, "in.json: line 3, column 7: ");
    assert_int_equal(parse("{\"k\":1,\"k\":1}", NULL), ERR_FORMAT);
    struct str nul = { "[1]\0", 4 };
    json_t *v = NULL;
    assert_int_equal(json_parse(&v, nul, "t", &e), ERR_FORMAT);
    assert_int_equal(json_parse(&v, (struct str){ NULL, 0 }, "t", &e), ERR_FORMAT);
    assert_int_equal(json_parse(&v, str_of("[\"\\u0000\"]"), "t", &e), ERR_FORMAT);
    assert_int_equal(json_parse_request(&v, str_of("[\"\\u0000\"]"), "t", &e), ERR_OK);
    json_decref(v);
    assert_int_equal(json_parse_own(&v, str_of("[\"\\u0000\"]"), "t", &e), ERR_OK);
    assert_int_equal(json_string_length(json_array_get(v, 0)), 1);
    json_decref(v);
}

/* What no value can hold costs itself, not the rest. */
static void test_json_unheld(void **state)
{
    static const struct {
        const char *text, *pointer, *says;
    } bad[] = {
        { "{\"id\":7,\"body\":{\"seed\":9223372036854775808}}", "/body/seed", "t: body/seed: a whole number of more" },
        { "{\"id\":7,\"a\":[0,{\"b\":1},[1e400,-1e999]]}", "/a/2/0", "t: a/2/0: a number that no float" },
        { "{\"id\":7,\"a~\":{\"b\":\"x\\\\\\ud83d\\\"\\ud83d\\ude00\"}}", "/a~0/b", "half of a surrogate pair" },
        { "{\"id\":7,\"minimum\":18446744073709551615}", "/minimum", "64 bits" },
        { "{\"enum\":[-9223372036854775809],\"id\":7}", "/enum/0", "64 bits" },
    };
    struct err e = { 0 };
    json_t *v;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        v = NULL;
        assert_int_equal(json_parse_request(&v, str_of(bad[i].text), "t", &e), ERR_FORMAT);
        assert_string_equal(e.where, bad[i].pointer);
        assert_says(&e, bad[i].says);
        assert_int_equal(json_integer_value(json_object_get(v, "id")), 7);
        json_decref(v);
        assert_int_equal(parse(bad[i].text, &e), ERR_FORMAT);
        assert_says(&e, "in.json: line 1, column ");
    }
    v = json_array(); /* untouched if the text is wrong in other ways */
    json_t *same = v;
    assert_int_equal(json_parse_request(&v, str_of("[1e400"), "t", &e), ERR_FORMAT);
    assert_ptr_equal(v, same);
    assert_int_equal(json_parse(&v, str_of("[\n1e400]"), "t", &e), ERR_FORMAT);
    assert_string_equal(e.where, "2:1");
    assert_ptr_equal(v, same);
    json_decref(v);

    /* limits of a schema, never above what was said */
    assert_int_equal(json_parse(&v,
                                str_of("{\"maximum\":18446744073709551615,\"minimum\":-1e400,\"s\":\"\\u00e9\","
                                       "\"exclusiveMaximum\":10000000000000000000,\"maxLength\":9223372036854775808}"),
                                "t", &e),
                     ERR_OK);
    assert_true(json_real_value(json_object_get(v, "maximum")) == 18446744073709549568.0);
    assert_true(json_real_value(json_object_get(v, "minimum")) == -DBL_MAX);
    assert_true(json_real_value(json_object_get(v, "exclusiveMaximum")) == 1e19);
    assert_true(json_real_value(json_object_get(v, "maxLength")) == 9223372036854775808.0);
    assert_string_equal(json_string_value(json_object_get(v, "s")), "\u00e9");
    json_decref(v);
}

static void test_json_pointer(void **state)
{
    char p[16] = "/a";

    (void)state;
    assert_int_equal(json_point_to(p, sizeof p, 2, "b/~c"), 9);
    assert_string_equal(p, "/a/b~1~0c");
    assert_true(json_point_to(p, sizeof p, 9, "longer than it") < sizeof p);
    assert_string_equal(p, "/a/b~1~0c/lon");
}

static void test_json_limits(void **state)
{
    (void)state;
    enum { DEEP = 1000000 };
    struct err e;
    char *text = malloc(DEEP + 1);
    assert_non_null(text);
    memset(text, '[', 64);
    memset(text + 64, ']', 64);
    text[128] = '\0';
    assert_int_equal(parse(text, &e), ERR_OK);
    memset(text, '[', 65);
    memset(text + 65, ']', 65);
    text[130] = '\0';
    text[0] = '\n';
    assert_int_equal(parse(text, &e), ERR_FORMAT); /* 64 deep, one bracket too many at the end */
    text[0] = '[';
    assert_int_equal(parse(text, &e), ERR_FORMAT);
    assert_string_equal(e.msg, "in.json: line 1, column 65: nested deeper than 64");
    memset(text, '[', DEEP);
    text[DEEP] = '\0';
    assert_int_equal(parse(text, &e), ERR_FORMAT);
    memcpy(text, "[\"\\\"\\\\\\\"",
           8); /* in a string, after escaped quotes, brackets are text; behind it they are not */
    memcpy(text + 200, "\"]", 3);
    assert_int_equal(parse(text, &e), ERR_OK);
    memset(text + 200, '[', 100);
    memcpy(text + 100, "\\\\\"", 3);
    text[300] = '\0';
    assert_int_equal(parse(text, &e), ERR_FORMAT);
    assert_string_equal(e.msg, "in.json: line 1, column 167: nested deeper than 64");
    free(text);
    json_t *v = NULL;
    struct str huge = { "", (64u << 20) + 1 }; /* refused by its size, before it is looked at */
    assert_int_equal(json_parse(&v, huge, "t", &e), ERR_LIMIT);
    assert_says(&e, "64 MiB");
}

static void test_json_bytes(void **state)
{
    (void)state;
    json_t *v = json_bytes((struct str){ "a\xff\xc3\xa9\xe2\x82\0z", 8 });
    assert_non_null(v);
    static const char want[] = "a\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd\0z";
    assert_int_equal(json_string_length(v), sizeof want - 1);
    assert_memory_equal(json_string_value(v), want, sizeof want - 1);
    char *text = json_dumps(v, JSON_ENCODE_ANY);
    assert_non_null(text); /* so it can be written, and read again */
    free(text);
    json_decref(v);
    v = json_bytes((struct str){ NULL, 0 });
    assert_int_equal(json_string_length(v), 0);
    json_decref(v);
    assert_null(json_bytes((struct str){ "", SIZE_MAX }));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_str),         cmocka_unit_test(test_utf8),        cmocka_unit_test(test_err),
        cmocka_unit_test(test_err_place),   cmocka_unit_test(test_err_cleans),  cmocka_unit_test(test_progress),
        cmocka_unit_test(test_arena),       cmocka_unit_test(test_arena_edges), cmocka_unit_test(test_simd),
        cmocka_unit_test(test_simd_kernel), cmocka_unit_test(test_simd_names),  cmocka_unit_test(test_rng_known),
        cmocka_unit_test(test_rng_moments), cmocka_unit_test(test_json),        cmocka_unit_test(test_json_copies),
        cmocka_unit_test(test_json_bad),    cmocka_unit_test(test_json_unheld), cmocka_unit_test(test_json_pointer),
        cmocka_unit_test(test_json_limits), cmocka_unit_test(test_json_bytes),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
