/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_test.c - the room gguf: what opens and what it says, what does not and why; the writer; and
 * ten thousand broken files.
 *
 * The reader is compiled into this test, with its allocations counted: how much it holds at most,
 * whether all comes back, and what happens when one fails. */
#include "base_dir.h"
#include "base/rng.h"
#include "fuzz/gguf_walk.h"
#include "quant/quant.h"

#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <sys/mman.h>

static size_t held_bytes, peak_bytes, n_allocs;
static size_t fail_at; /* the number of the allocation that fails; 0: none */

/* The size lies in front of each block. */
static void *counted_realloc(void *old, size_t n)
{
    size_t old_n = old != NULL ? *((size_t *)old - 2) : 0;
    size_t *p;

    if (++n_allocs == fail_at)
        return NULL;
    assert_true(n < ((size_t)1 << 40));
    p = realloc(old != NULL ? (size_t *)old - 2 : NULL, n + 2 * sizeof *p);
    assert_non_null(p);
    p[0] = n;
    held_bytes += n - old_n;
    peak_bytes = held_bytes > peak_bytes ? held_bytes : peak_bytes;
    return p + 2;
}

static void *counted_calloc(size_t n, size_t size)
{
    void *p;

    assert_true(n < SIZE_MAX / size);
    p = counted_realloc(NULL, n * size);
    return p != NULL ? memset(p, 0, n * size) : NULL;
}

static void counted_free(void *p)
{
    if (p == NULL)
        return;
    held_bytes -= *((size_t *)p - 2);
    free((size_t *)p - 2);
}

#define malloc(n)       counted_realloc(NULL, n)
#define calloc(n, size) counted_calloc(n, size)
#define realloc(old, n) counted_realloc(old, n)
#define free(p)         counted_free(p)
#include "gguf/in.c"
#include "gguf/kv.c"
#include "gguf/read.c"
#include "gguf/tensors.c"
#include "gguf/value.c"
#undef malloc
#undef calloc
#undef realloc
#undef free

#define CORPUS "tests/fuzz/corpus/gguf"

static struct gguf *open_ok(const char *path)
{
    struct gguf *g = NULL;
    struct err e = { 0 };

    if (gguf_open(&g, path, &e))
        fail_msg("%s", e.msg);
    return g;
}

/* ---- tensors that are given back ---- */

/* KiB in memory of the mapping that p is in; -1: not known. */
static long resident(const void *p)
{
    FILE *f = fopen("/proc/self/smaps", "r");
    uintptr_t from, to;
    bool in = false;
    char line[512];
    long kib = -1;

    while (f != NULL && kib < 0 && fgets(line, sizeof line, f) != NULL) {
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &from, &to) == 2)
            in = (uintptr_t)p >= from && (uintptr_t)p < to;
        else if (in)
            (void)sscanf(line, "Rss: %ld", &kib);
    }
    if (f != NULL)
        fclose(f);
    return kib;
}

/* Pages of the file leave memory, and come back as they were; memory that is somebody else's stays as it is. */
static void test_drop(void **state)
{
    static const char model[] = "share/models/chimere-nano-q5_k_m.gguf";
    struct gguf *file = open_ok(model), *parsed;
    const struct gguf_tensor *t = gguf_tensor_at(file, 0);
    struct err e = { 0 };
    size_t n;
    void *own;
    char *all;

    (void)state;
    for (size_t i = 0; i < gguf_n_tensors(file); i++)
        t = gguf_tensor_at(file, i)->size_bytes > t->size_bytes ? gguf_tensor_at(file, i) : t;
    assert_int_equal(io_read_all(&all, &n, model, 1 << 30, NULL, &e), ERR_OK);
    assert_int_equal(posix_memalign(&own, 1 << 16, n), 0); /* pages, as a mapping has */
    memcpy(own, all, n);
    assert_int_equal(gguf_parse(&parsed, "t", own, n, &e), ERR_OK);
    const struct gguf_tensor *twin = gguf_find(parsed, "token_embd.weight");
    assert_memory_equal(twin->data, gguf_find(file, "token_embd.weight")->data, twin->size_bytes);

    const uint64_t hash = io_hash(0, t->data, t->size_bytes);
    long before = resident(t->data);
    gguf_drop(file, t);
    long after = resident(t->data);
    if (before >= 0)
        assert_in_range(before - after, (long)(t->size_bytes >> 10) - 8, (long)(t->size_bytes >> 10) + 8);
    assert_true(io_hash(0, t->data, t->size_bytes) == hash);
    for (size_t i = 0; i < gguf_n_tensors(file); i++)
        gguf_drop(file, gguf_tensor_at(file, i));
    assert_memory_equal(all, file->parts[0].map.data, n);
    for (size_t i = 0; i < gguf_n_tensors(parsed); i++)
        gguf_drop(parsed, gguf_tensor_at(parsed, i));
    assert_memory_equal(all, own, n);
    gguf_close(parsed);
    gguf_close(file);
    free(own);
    free(all);
}

/* ---- what the corpus says ---- */

static void test_corpus(void **state)
{
    char *text, *line, *next;
    size_t n, n_bad = 0, n_ok = 0;
    struct err e;

    (void)state;
    assert_int_equal(io_read_all(&text, &n, CORPUS ".expect", 1 << 20, NULL, &e), ERR_OK);
    for (line = text; *line != '\0'; line = next + 1) {
        char *code = strchr(line, '\t'), *message = strchr(code + 1, '\t');
        struct gguf *g = NULL;

        next = strchr(message, '\n');
        *code = *message = *next = '\0';
        memset(&e, 0, sizeof e);
        assert_int_equal(gguf_open(&g, line, &e), atoi(code + 1));
        assert_string_equal(e.msg, message + 1);
        assert_true((g != NULL) == (code[1] == '0'));
        if (g != NULL) {
            gguf_walk(g);
            n_ok++;
        } else {
            assert_int_equal(gguf_open(&g, line, NULL), atoi(code + 1));
            n_bad++;
        }
        gguf_close(g);
        assert_int_equal(held_bytes, 0);
    }
    free(text);
    assert_true(n_bad > 100 && n_ok > 5);
}

static void test_cannot_read(void **state)
{
    struct gguf *g = NULL;
    struct err e;

    (void)state;
    assert_int_equal(gguf_open(&g, CORPUS "/none.gguf", &e), ERR_IO);
    assert_says(&e, "none.gguf: cannot open");
    assert_int_equal(gguf_open(&g, CORPUS, &e), ERR_IO);
    assert_null(g);
    gguf_close(NULL);
}

/* ---- values ---- */

static void test_kinds(void **state)
{
    static const struct {
        const char *key;
        double v;
    } cases[] = {
        { "0", 200 },  { "1", -100 },         { "2", 60000 }, { "3", -30000 }, { "4", 4e9 },
        { "5", -2e9 }, { "6", (double)0.1f }, { "7", 1 },     { "12", 0.1 },   { "11", -9223372036854775808.0 },
    };
    struct gguf *g = open_ok(CORPUS "/ok-kinds.gguf");
    struct gguf_strs it;
    struct str s;
    char key[32];
    double v;
    int64_t i;
    uint64_t u;

    (void)state;
    assert_int_equal(gguf_n_kv(g), 27);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        const struct gguf_kv *kv;

        snprintf(key, sizeof key, "array.%s", cases[c].key);
        kv = gguf_kv_find(g, key);
        assert_int_equal(kv->kind, GGUF_ARR);
        assert_int_equal(kv->elem_kind, atoi(cases[c].key));
        assert_int_equal(kv->n, 3);
        assert_true(gguf_kv_f64(kv, 2, &v) && v == cases[c].v);
        assert_false(gguf_kv_f64(kv, 3, &v));
        snprintf(key, sizeof key, "scalar.%s", cases[c].key);
        kv = gguf_kv_find(g, key);
        assert_true(kv->kind == kv->elem_kind && kv->n == 1);
        assert_true(gguf_kv_f64(kv, 0, &v) && v == cases[c].v);
        assert_true(gguf_kv_i64(kv, 0, &i) == (floor(v) == v));
        assert_true(floor(v) != v || (double)i == v);
        assert_false(gguf_kv_i64(kv, 1, &i));
    }
    /* 2^64 - 1 is neither an int64_t nor a double. */
    assert_true(gguf_u64(g, "scalar.10", &u) && u == UINT64_MAX);
    assert_false(gguf_kv_i64(gguf_kv_find(g, "array.10"), 0, &i));
    assert_false(gguf_kv_f64(gguf_kv_find(g, "array.10"), 0, &v));
    assert_true(gguf_str(g, "scalar.8", &s) && str_is(s, "text"));
    assert_true(gguf_str(g, "a.key \u00e4 \u4e16 \U0001f600", &s) && (unsigned char)s.p[0] == 0xff);
    it = gguf_strs(gguf_kv_find(g, "array.8"));
    assert_true(gguf_strs_next(&it, &s) && s.n == 0);
    assert_true(gguf_strs_next(&it, &s) && str_is(s, "a"));
    assert_true(gguf_strs_next(&it, &s) && str_is(s, "\u00e4\u00f6"));
    assert_false(gguf_strs_next(&it, &s));
    it = gguf_strs(gguf_kv_find(g, "scalar.0"));
    assert_false(gguf_strs_next(&it, &s));
    it = gguf_strs(NULL);
    assert_false(gguf_strs_next(&it, &s));
    assert_int_equal(gguf_kv_find(g, "array.empty")->n, 0);
    assert_int_equal(gguf_kv_find(g, "array.empty.text")->size_bytes, 0);
    assert_null(gguf_kv_find(g, "array.empty.tex"));
    assert_null(gguf_kv_find(g, ""));
    gguf_close(g);
}

/* Each accessor on each kind: the value where it converts without loss, else the default stays. */
static void test_conversions(void **state)
{
    static const struct {
        enum gguf_kind kind;
        uint64_t bits;
        int64_t u32, u64; /* -1: does not convert */
        double f32;       /* -1 likewise */
        int b;
    } cases[] = {
        { GGUF_U8, 255, 255, 255, 255, -1 },
        { GGUF_I8, 0x80, -1, -1, -128, -1 },
        { GGUF_I8, 1, 1, 1, 1, 1 },
        { GGUF_U16, 0xffff, 65535, 65535, 65535, -1 },
        { GGUF_I16, 0xffff, -1, -1, -1, -1 },
        { GGUF_U32, 0, 0, 0, 0, 0 },
        { GGUF_U32, 0xffffffff, 0xffffffff, 0xffffffff, -1, -1 }, /* more bits than a float has */
        { GGUF_I32, 0x7fffffff, 0x7fffffff, 0x7fffffff, -1, -1 },
        { GGUF_I32, 0x80000000, -1, -1, -2147483648.0, -1 },
        { GGUF_U64, 1ULL << 32, -1, 1LL << 32, 4294967296.0, -1 },
        { GGUF_I64, UINT64_MAX, -1, -1, -1, -1 },
        { GGUF_BOOL, 1, 1, 1, 1, 1 },
        { GGUF_F32, 0x40000000, 2, 2, 2, -1 },     /* 2.0 */
        { GGUF_F32, 0x3f800000, 1, 1, 1, 1 },      /* 1.0 */
        { GGUF_F32, 0x3fc00000, -1, -1, 1.5, -1 }, /* 1.5 */
        { GGUF_F32, 0x5f800000, -1, -1, 18446744073709551616.0, -1 },
        { GGUF_F32, 0x7f800000, -1, -1, (double)INFINITY, -1 },
        { GGUF_F64, 0x4000000000000000, 2, 2, 2, -1 },
        { GGUF_F64, 0x3fb999999999999a, -1, -1, -1, -1 }, /* 0.1: not a float */
        { GGUF_F64, 0x7fe0000000000000, -1, -1, -1, -1 }, /* above the largest float */
        { GGUF_F64, 0xfff0000000000000, -1, -1, -(double)INFINITY, -1 },
        { GGUF_STR, 0, -1, -1, -1, -1 },
    };

    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        unsigned char b[64] = "GGUF\3";
        struct gguf *g = NULL;
        uint32_t u4 = 77;
        uint64_t u8 = 77;
        float f = 77;
        bool t = true, has;
        struct err e;

        b[16] = 1;
        b[24] = 1;
        b[32] = 'k';
        b[33] = (unsigned char)cases[c].kind;
        for (int i = 0; i < 8; i++)
            b[37 + i] = (unsigned char)(cases[c].bits >> (8 * i));
        assert_int_equal(gguf_parse(&g, "t", b, sizeof b, &e), ERR_OK);
        assert_int_equal(gguf_u32(g, "k", &u4), cases[c].u32 >= 0);
        assert_int_equal(u4, cases[c].u32 >= 0 ? cases[c].u32 : 77);
        assert_int_equal(gguf_u64(g, "k", &u8), cases[c].u64 >= 0);
        assert_int_equal(u8, cases[c].u64 >= 0 ? cases[c].u64 : 77);
        has = gguf_f32(g, "k", &f);
        assert_true(cases[c].f32 == -1 ? (!has && f == 77) || f == -1 : (double)f == cases[c].f32);
        assert_int_equal(gguf_bool(g, "k", &t), cases[c].b >= 0);
        assert_int_equal(t, cases[c].b != 0);
        assert_false(gguf_u32(g, "none", &u4) || gguf_u64(g, "none", &u8) || gguf_f32(g, "none", &f) ||
                     gguf_bool(g, "none", &t));
        gguf_close(g);
    }
}

static void test_float_nan(void **state)
{
    unsigned char b[45] = "GGUF\3";
    struct gguf *g = NULL;
    float f = 0;
    uint32_t u = 5;

    (void)state;
    b[16] = b[24] = 1;
    b[32] = 'k';
    b[33] = GGUF_F64;
    b[43] = 0xf8;
    b[44] = 0x7f;
    assert_int_equal(gguf_parse(&g, "t", b, sizeof b, NULL), ERR_OK);
    assert_true(gguf_f32(g, "k", &f) && isnan(f));
    assert_false(gguf_u32(g, "k", &u));
    gguf_close(g);
}

/* An array has no scalar value, and a scalar's kind is asked by its own accessor. */
static void test_array_is_no_scalar(void **state)
{
    struct gguf *g = open_ok(CORPUS "/ok-kinds.gguf");
    uint32_t u = 5;
    struct str s = STR("kept");
    float f = 5;

    (void)state;
    assert_false(gguf_u32(g, "array.4", &u) || gguf_f32(g, "array.6", &f));
    assert_false(gguf_str(g, "array.8", &s) || gguf_str(g, "scalar.4", &s));
    assert_false(gguf_u32(g, "scalar.8", &u));
    assert_true(u == 5 && f == 5 && str_is(s, "kept"));
    gguf_close(g);
}

/* ---- tensors ---- */

static void check_tensor(const struct gguf *g, size_t i, const char *name, int type, int64_t ne0, size_t size_bytes,
                         size_t from_end)
{
    const struct gguf_tensor *t = gguf_tensor_at(g, i);
    const unsigned char *end = g->parts[0].map.data + g->parts[0].map.size;

    assert_true(str_is(t->name, name));
    assert_ptr_equal(gguf_find(g, name), t);
    assert_int_equal(t->type, type);
    assert_int_equal(t->ne[0], ne0);
    assert_int_equal(t->size_bytes, size_bytes);
    assert_int_equal(end - (const unsigned char *)t->data, from_end);
}

static void test_tensors(void **state)
{
    struct gguf *g = open_ok(CORPUS "/ok-order.gguf");
    char name[65];

    (void)state;
    memset(name, 'n', 64);
    name[64] = '\0';
    assert_int_equal(gguf_n_tensors(g), 3);
    check_tensor(g, 0, "t.last", QUANT_f32, 2, 24, 24);
    check_tensor(g, 1, name, QUANT_q4_0, 32, 18, 152);
    check_tensor(g, 2, "t.first", QUANT_f16, 5, 10, 88);
    assert_int_equal(gguf_tensor_at(g, 0)->n_dims, 4);
    assert_int_equal(gguf_tensor_at(g, 0)->ne[1], 3);
    assert_int_equal(gguf_tensor_at(g, 2)->ne[1], 1);
    assert_int_equal(gguf_tensor_at(g, 2)->ne[3], 1);
    assert_null(gguf_find(g, "t.firs"));
    assert_null(gguf_find(g, "t.first2"));
    assert_null(gguf_find(g, ""));
    gguf_close(g);
    g = open_ok(CORPUS "/ok-version-2.gguf");
    check_tensor(g, 0, "b", QUANT_f32, 4, 32, 32);
    check_tensor(g, 1, "a", QUANT_q8_0, 32, 34, 96);
    gguf_close(g);
}

static void test_set(void **state)
{
    static const char *const paths[] = { CORPUS "/ok-set-00001-of-00002.gguf", CORPUS "/ok-set-00002-of-00002.gguf" };
    size_t sum = 0;

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct io_map m;

        assert_int_equal(io_map_open(&m, paths[i], NULL), ERR_OK);
        sum += m.size;
        io_map_close(&m);
    }
    for (int i = 0; i < 2; i++) {
        struct gguf *g = open_ok(paths[i]);
        struct str s;
        uint32_t no = 9;

        assert_string_equal(gguf_path(g), paths[i]);
        assert_int_equal(gguf_file_bytes(g), sum);
        assert_int_equal(gguf_n_tensors(g), 3);
        for (size_t t = 0; t < 3; t++) {
            assert_int_equal(gguf_tensor_at(g, t)->name.p[0], 'a' + t);
            assert_int_equal(((const unsigned char *)gguf_tensor_at(g, t)->data)[1], t == 1 ? 231 : 7);
        }
        assert_ptr_equal(gguf_find(g, "c"), gguf_tensor_at(g, 2));
        assert_true(gguf_str(g, "general.name", &s) && str_is(s, "set"));
        assert_true(gguf_u32(g, "split.no", &no) && no == 0);
        gguf_close(g);
    }
    assert_int_equal(held_bytes, 0);
}

/* ---- bounds ---- */

/* A file in memory, growing. */
struct image {
    unsigned char *p;
    size_t n, room;
};

static void add(struct image *m, const void *p, size_t n)
{
    if (m->n + n > m->room) {
        m->room = 2 * (m->n + n);
        m->p = realloc(m->p, m->room);
        assert_non_null(m->p);
    }
    memcpy(m->p + m->n, p, n);
    m->n += n;
}

static void add_int(struct image *m, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        unsigned char b = (unsigned char)(v >> (8 * i));

        add(m, &b, 1);
    }
}

static void add_text(struct image *m, const char *z, size_t n)
{
    add_int(m, n, 8);
    add(m, z, n);
}

static struct image begin_image(uint64_t n_tensors, uint64_t n_kv)
{
    struct image m = { 0 };

    add_int(&m, 0x46554747, 4);
    add_int(&m, 3, 4);
    add_int(&m, n_tensors, 8);
    add_int(&m, n_kv, 8);
    return m;
}

static void test_key_length(void **state)
{
    char *key = calloc(1, 65537);
    struct err e;

    (void)state;
    assert_non_null(key);
    memset(key, 'k', 65536);
    for (size_t n = 65535; n <= 65536; n++) {
        struct image m = begin_image(0, 1);
        struct gguf *g = NULL;
        bool v = false;

        add_text(&m, key, n);
        add_int(&m, GGUF_BOOL, 4);
        add_int(&m, 1, 1);
        assert_int_equal(gguf_parse(&g, "f", m.p, m.n, &e), n == 65535 ? ERR_OK : ERR_FORMAT);
        if (g == NULL)
            assert_string_equal(e.msg, "f: offset 24: name-length: a key of 65536 bytes, allowed "
                                       "are 1 to 65535");
        key[n] = '\0';
        assert_true(g == NULL || gguf_bool(g, key, &v));
        key[n] = 'k';
        gguf_close(g);
        free(m.p);
    }
    free(key);
}

/* Many tiny entries: refused once their structs would take more than the file and 1 MiB. */
static void test_index_size(void **state)
{
    const size_t counts[] = { 20000, 60000 };

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct image m = begin_image(0, counts[i]);
        struct gguf *g = NULL;
        char key[24];
        struct err e;

        for (size_t k = 0; k < counts[i]; k++) {
            add_text(&m, key, (size_t)snprintf(key, sizeof key, "%zu", k * 7919 % counts[i]));
            add_int(&m, GGUF_U8, 4);
            add_int(&m, k & 255, 1);
        }
        peak_bytes = 0;
        assert_int_equal(gguf_parse(&g, "f", m.p, m.n, &e), i == 0 ? ERR_OK : ERR_FORMAT);
        assert_true(peak_bytes < m.n + (1 << 20) + 4096);
        if (i == 1)
            assert_says(&e, "f: offset 8: index-size: 0 tensors and 60000 keys in only");
        for (size_t k = 0; g != NULL && k < counts[i]; k++) {
            uint32_t v;

            snprintf(key, sizeof key, "%zu", k * 7919 % counts[i]);
            assert_true(gguf_u32(g, key, &v) && v == (k & 255));
        }
        gguf_close(g);
        free(m.p);
    }
}

/* The shape of a 35B model: half a million strings cost no memory, 733 tensors little. */
static void test_large_header(void **state)
{
    struct image m = begin_image(733, 2);
    struct gguf *g = NULL;
    struct gguf_strs it;
    struct str s;
    uint64_t n = 0;

    (void)state;
    for (int array = 0; array < 2; array++) {
        add_text(&m, array ? "merges" : "tokens", 6);
        add_int(&m, GGUF_ARR, 4);
        add_int(&m, GGUF_STR, 4);
        add_int(&m, 250000, 8);
        for (size_t i = 0; i < 250000; i++)
            add_text(&m, "some text", i % 10);
    }
    for (unsigned i = 0; i < 733; i++) {
        char name[64];

        add_text(&m, name, (size_t)snprintf(name, sizeof name, "blk.%u.weight", (i * 500) % 733));
        add_int(&m, 2, 4);
        add_int(&m, 8, 8);
        add_int(&m, 2, 8);
        add_int(&m, 0, 4);
        add_int(&m, (uint64_t)(732 - i) * 64, 8);
    }
    while (m.n % 32 != 0)
        add_int(&m, 0, 1);
    for (int i = 0; i < 733 * 64; i++)
        add_int(&m, 1, 1);
    peak_bytes = 0;
    assert_int_equal(gguf_parse(&g, "f", m.p, m.n, NULL), ERR_OK);
    assert_true(peak_bytes < 64 << 10);
    for (it = gguf_strs(gguf_kv_find(g, "merges")); gguf_strs_next(&it, &s); n++)
        assert_true(s.n == n % 10);
    assert_int_equal(n, 250000);
    assert_ptr_equal(gguf_find(g, "blk.500.weight"), gguf_tensor_at(g, 1));
    gguf_close(g);
    free(m.p);
}

static void test_out_of_memory(void **state)
{
    static const char *const paths[] = { CORPUS "/ok-kinds.gguf", CORPUS "/ok-order.gguf",
                                         CORPUS "/ok-set-00002-of-00002.gguf" };

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct gguf *g = NULL;
        size_t k = 0;
        enum err_code code;
        struct err e;

        do {
            n_allocs = 0;
            fail_at = ++k;
            code = gguf_open(&g, paths[i], &e);
            if (code) {
                assert_int_equal(code, ERR_NOMEM);
                assert_null(g);
                assert_int_equal(held_bytes, 0);
            }
        } while (code && k < 100);
        fail_at = 0;
        assert_true(k > 5 && k < 100);
        gguf_close(g);
    }
    assert_int_equal(held_bytes, 0);
}

/* ---- broken files ---- */

#define GUARDED_BYTES 4096 /* longest input of the tests below */

/* Memory that ends where the next page cannot be read: a step too far is a crash in any build. */
static unsigned char *guarded_end(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t room = (GUARDED_BYTES + page - 1) / page * page;
    unsigned char *p = mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_true(p != MAP_FAILED);
    assert_int_equal(mprotect(p + room, page, PROT_NONE), 0);
    return p + room;
}

static void free_guarded(unsigned char *end)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t room = (GUARDED_BYTES + page - 1) / page * page;

    munmap(end - room, room + page);
}

/* Opened or refused with one line; memory within the file's size and a constant. */
static bool survives(unsigned char *end, const unsigned char *p, size_t n)
{
    struct gguf *g = NULL;
    struct err e = { 0 };
    bool ok;

    memcpy(end - n, p, n);
    peak_bytes = 0;
    ok = gguf_parse(&g, "f", end - n, n, &e) == ERR_OK;
    assert_true(peak_bytes <= n + 3 * GUARDED_BYTES);
    if (ok)
        gguf_walk(g);
    else
        assert_true(g == NULL && strncmp(e.msg, "f: offset ", 10) == 0 && !strchr(e.msg, '\n'));
    gguf_close(g);
    assert_int_equal(held_bytes, 0);
    return ok;
}

struct seeds {
    unsigned char p[32][GUARDED_BYTES];
    size_t n[32], count;
};

static void read_seeds(struct seeds *s)
{
    static const char *const names[] = { "ok-kinds",        "ok-order", "ok-version-2", "ok-set-00001-of-00002",
                                         "ok-split-of-one", "ok-empty" };

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[128], *text;

        snprintf(path, sizeof path, CORPUS "/%s.gguf", names[i]);
        assert_int_equal(io_read_all(&text, &s->n[i], path, GUARDED_BYTES, NULL, NULL), ERR_OK);
        memcpy(s->p[i], text, s->n[i]);
        free(text);
        s->count++;
    }
}

/* Every beginning of a file is refused, but for the last tensor's missing padding. */
static void test_truncated(void **state)
{
    struct seeds *s = calloc(1, sizeof *s);
    unsigned char *end = guarded_end();

    (void)state;
    assert_non_null(s);
    read_seeds(s);
    for (size_t i = 0; i < s->count; i++) {
        assert_true(survives(end, s->p[i], s->n[i]));
        for (size_t n = 0; n < s->n[i]; n++)
            if (survives(end, s->p[i], n) && s->n[i] - n >= 32)
                fail_msg("seed %zu opens when cut to %zu bytes", i, n);
    }
    free_guarded(end);
    free(s);
}

static uint32_t draw(uint64_t run, uint64_t *step, uint32_t below)
{
    uint32_t r[4];

    rng_block(r, 20261121, run, (*step)++);
    return below > 0 ? r[0] % below : 0;
}

/* Puts `value` where a length, a count or an offset may stand. */
static void edit_length(unsigned char *b, size_t n, uint64_t run, uint64_t *step)
{
    static const uint64_t values[] = {
        0,
        1,
        2,
        8,
        9,
        31,
        32,
        64,
        255,
        65536,
        INT32_MAX,
        UINT32_MAX,
        1ULL << 32,
        1ULL << 61,
        1ULL << 62,
        INT64_MAX,
        1ULL << 63,
        UINT64_MAX - 31,
        UINT64_MAX - 7,
        UINT64_MAX,
    };
    size_t bytes = draw(run, step, 2) ? 8 : 4, at;
    uint64_t v = values[draw(run, step, sizeof values / sizeof values[0])];

    if (n < bytes)
        return;
    at = draw(run, step, (uint32_t)(n - bytes + 1));
    if (draw(run, step, 4) == 0) /* a little more or less than what is there */
        v = gguf_load_u32(b + at) + (uint64_t)draw(run, step, 5) - 2;
    for (size_t i = 0; i < bytes; i++)
        b[at + i] = (unsigned char)(v >> (8 * i));
}

/* Replaces a stretch of b by one of another seed, of another length. */
static size_t splice(unsigned char *b, size_t n, const struct seeds *s, uint64_t run, uint64_t *step)
{
    size_t from = draw(run, step, (uint32_t)s->count);
    size_t at = draw(run, step, (uint32_t)n + 1), cut = draw(run, step, (uint32_t)(n - at) + 1);
    size_t src = draw(run, step, (uint32_t)s->n[from]);
    size_t len = draw(run, step, (uint32_t)(s->n[from] - src) + 1);

    if (n - cut + len > GUARDED_BYTES)
        return n;
    memmove(b + at + len, b + at + cut, n - at - cut);
    memcpy(b + at, s->p[from] + src, len);
    return n - cut + len;
}

static void test_mutations(void **state)
{
    struct seeds *s = calloc(1, sizeof *s);
    unsigned char *end = guarded_end(), b[GUARDED_BYTES];
    size_t n_opened = 0;

    (void)state;
    assert_non_null(s);
    read_seeds(s);
    alarm(120); /* instead of hanging for ever */
    for (uint64_t run = 0; run < 10000; run++) {
        uint64_t step = 0;
        size_t i = draw(run, &step, (uint32_t)s->count), n = s->n[i];

        memcpy(b, s->p[i], n);
        for (uint32_t edits = 1 + draw(run, &step, 4); edits > 0; edits--) {
            switch (draw(run, &step, 4)) {
            case 0:
                if (n > 0)
                    b[draw(run, &step, (uint32_t)n)] ^= (unsigned char)(1U << draw(run, &step, 8));
                break;
            case 1:
                n = splice(b, n, s, run, &step);
                break;
            default:
                edit_length(b, n, run, &step);
            }
        }
        n_opened += survives(end, b, n);
    }
    alarm(0);
    free_guarded(end);
    free(s);
    /* Mutants that all fail, or all open, would test little. */
    assert_in_range(n_opened, 500, 8000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_corpus),        cmocka_unit_test(test_cannot_read),
        cmocka_unit_test(test_kinds),         cmocka_unit_test(test_conversions),
        cmocka_unit_test(test_float_nan),     cmocka_unit_test(test_array_is_no_scalar),
        cmocka_unit_test(test_tensors),       cmocka_unit_test(test_set),
        cmocka_unit_test(test_drop),          cmocka_unit_test(test_key_length),
        cmocka_unit_test(test_index_size),    cmocka_unit_test(test_large_header),
        cmocka_unit_test(test_out_of_memory), cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_mutations),
    };

    return cmocka_run_group_tests_name("gguf", tests, NULL, NULL);
}
