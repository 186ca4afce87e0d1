/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_write_test.c - the room gguf: what the writer writes the reader reads, and what the reader
 * would refuse the writer does not write. */
#include "base_dir.h"
#include "base/io.h"
#include "fuzz/gguf_walk.h"
#include "quant/quant.h"

#include <math.h>

static struct gguf_writer *open_writer(const char *path)
{
    struct gguf_writer *w = NULL;
    struct err e;

    if (gguf_write_open(&w, path, &e))
        fail_msg("%s", e.msg);
    return w;
}

static struct gguf *open_ok(const char *path)
{
    struct gguf *g = NULL;
    struct err e = { 0 };

    if (gguf_open(&g, path, &e))
        fail_msg("%s", e.msg);
    return g;
}

#define OK(call) assert_int_equal(call, ERR_OK)

static void test_round_trip(void **state)
{
    const int64_t shape_a[] = { 64, 3 }, shape_b[] = { 5, 1, 2, 2 }, shape_c[] = { 256 };
    const struct str words[] = { STR("one"), STR(""), STR("dr\u00ef") };
    const int16_t numbers[] = { -1, 0, 32767 };
    unsigned char data[102 + 80 + 144];
    char path[512];
    struct gguf_writer *w = open_writer(in_dir(path, "a.gguf"));
    struct gguf *g;
    struct gguf_strs it;
    struct str s;
    uint32_t u = 0;
    float f = 0;
    bool b = false;
    int64_t v = 0;
    size_t at = 0;

    (void)state;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)(i * 7 + 1);
    OK(gguf_write_u32(w, "u32", 4000000000U, NULL));
    OK(gguf_write_f32(w, "f32", -0.1f, NULL));
    OK(gguf_write_bool(w, "bool", true, NULL));
    OK(gguf_write_str(w, "str", STR("a\0b"), NULL));
    OK(gguf_write_strs(w, "strs", words, 3, NULL));
    OK(gguf_write_strs(w, "strs.none", NULL, 0, NULL));
    OK(gguf_write_arr(w, "arr", GGUF_I16, numbers, 3, NULL));
    OK(gguf_write_arr(w, "arr.none", GGUF_F64, NULL, 0, NULL));
    OK(gguf_write_tensor(w, STR("a"), QUANT_q8_0, 2, shape_a, NULL)); /* 2 x 34 bytes, 3 rows */
    OK(gguf_write_tensor(w, STR("b"), QUANT_f32, 4, shape_b, NULL));
    OK(gguf_write_tensor(w, STR("c"), QUANT_q4_k, 1, shape_c, NULL));
    /* Pieces of all sizes, some across the border of two tensors. */
    for (size_t n = 1; at < 204 + 80 + 144; n = n * 3 + 1) {
        unsigned char part[1000];
        size_t left = 204 + 80 + 144 - at;

        n = n < left ? n : left;
        for (size_t i = 0; i < n; i++)
            part[i] = data[(at + i) % sizeof data];
        OK(gguf_write_data(w, part, n, NULL));
        at += n;
    }
    OK(gguf_write_data(w, NULL, 0, NULL));
    OK(gguf_write_commit(w, NULL));

    g = open_ok(path);
    assert_int_equal(gguf_n_kv(g), 8);
    assert_true(gguf_u32(g, "u32", &u) && u == 4000000000U);
    assert_true(gguf_f32(g, "f32", &f) && f == -0.1f);
    assert_true(gguf_bool(g, "bool", &b) && b);
    assert_true(gguf_str(g, "str", &s) && str_eq(s, STR("a\0b")));
    it = gguf_strs(gguf_kv_find(g, "strs"));
    for (int i = 0; i < 3; i++)
        assert_true(gguf_strs_next(&it, &s) && str_eq(s, words[i]));
    assert_int_equal(gguf_kv_find(g, "strs.none")->n, 0);
    assert_true(gguf_kv_i64(gguf_kv_find(g, "arr"), 0, &v) && v == -1);
    assert_true(gguf_kv_i64(gguf_kv_find(g, "arr"), 2, &v) && v == 32767);
    assert_int_equal(gguf_kv_find(g, "arr.none")->elem_kind, GGUF_F64);
    assert_int_equal(gguf_n_tensors(g), 3);
    assert_memory_equal(gguf_tensor_at(g, 1)->ne, shape_b, sizeof shape_b);
    assert_int_equal(gguf_tensor_at(g, 1)->n_dims, 4);
    assert_int_equal(gguf_tensor_at(g, 2)->type, QUANT_q4_k);
    at = 0;
    for (size_t t = 0; t < 3; t++) {
        const struct gguf_tensor *x = gguf_tensor_at(g, t);

        assert_int_equal((uintptr_t)x->data % 32, 0);
        for (size_t i = 0; i < x->size_bytes; i++)
            assert_int_equal(((const unsigned char *)x->data)[i], data[at++ % sizeof data]);
    }
    assert_int_equal(gguf_file_bytes(g) % 32, 0); /* the last tensor is padded too */
    gguf_close(g);
    unlink(path);
}

/* A file of every kind, copied value by value, is the same file but for its place. */
static void test_copy(void **state)
{
    struct gguf *g = open_ok("tests/fuzz/corpus/gguf/ok-kinds.gguf"), *h;
    char path[512];
    struct gguf_writer *w = open_writer(in_dir(path, "copy.gguf"));

    (void)state;
    for (size_t i = 0; i < gguf_n_kv(g); i++)
        OK(gguf_write_kv(w, gguf_kv_at(g, i), NULL));
    OK(gguf_write_commit(w, NULL));
    h = open_ok(path);
    assert_int_equal(gguf_file_bytes(g), gguf_file_bytes(h));
    for (size_t i = 0; i < gguf_n_kv(g); i++) {
        const struct gguf_kv *a = gguf_kv_at(g, i), *b = gguf_kv_at(h, i);

        assert_true(str_eq(a->key, b->key) && a->kind == b->kind && a->elem_kind == b->elem_kind);
        assert_true(a->n == b->n && a->size_bytes == b->size_bytes);
        assert_memory_equal(a->data, b->data, a->size_bytes);
    }
    gguf_close(g);
    gguf_close(h);
    unlink(path);
}

static void test_alignment(void **state)
{
    const int64_t ne[] = { 3 };
    char path[512];
    struct gguf *g;
    struct gguf_writer *w = open_writer(in_dir(path, "aligned.gguf"));
    struct err e;

    (void)state;
    OK(gguf_write_u32(w, "general.alignment", 128, NULL));
    for (int i = 0; i < 3; i++)
        OK(gguf_write_tensor(w, (struct str){ &"abc"[i], 1 }, QUANT_f32, 1, ne, NULL));
    OK(gguf_write_data(w, "123456789.12123456789.12123456789.12", 36, NULL));
    OK(gguf_write_commit(w, NULL));
    g = open_ok(path);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal((uintptr_t)gguf_tensor_at(g, i)->data % 128, 0);
    assert_memory_equal(gguf_find(g, "c")->data, "123456789.12", 12);
    gguf_close(g);
    unlink(path);
    w = open_writer(path);
    assert_int_equal(gguf_write_u32(w, "general.alignment", 48, &e), ERR_ARG);
    assert_says(&e, "aligned.gguf: alignment: ");
    assert_int_equal(gguf_write_commit(w, &e), ERR_IO); /* nothing is left behind: see dir_remove */
    w = open_writer(path);
    assert_int_equal(gguf_write_str(w, "general.alignment", STR("32"), &e), ERR_ARG);
    gguf_write_abort(w);
}

static void test_empty(void **state)
{
    char path[512];
    struct gguf_writer *w = open_writer(in_dir(path, "empty.gguf"));
    struct gguf *g;

    (void)state;
    OK(gguf_write_commit(w, NULL));
    g = open_ok(path);
    assert_int_equal(gguf_file_bytes(g), 24);
    assert_int_equal(gguf_n_kv(g) + gguf_n_tensors(g), 0);
    gguf_close(g);
    unlink(path);
    gguf_write_abort(NULL);
    assert_int_equal(gguf_write_open(&w, "/nowhere/at/all.gguf", NULL), ERR_IO);
}

static void test_bad_names(void **state)
{
    static const struct {
        const char *key;
        size_t n;
        const char *says;
    } cases[] = { { "", 0, "name-length: a name of 0 bytes" },
                  { "a\nb", 3, "name-text: " },
                  { "\xc0\xaf", 2, "name-text: " },
                  { "0123456789012345678901234567890123456789012345678901234567890123x", 65,
                    "name-length: a name of 65 bytes, allowed are 1 to 64" } };
    const int64_t ne[] = { 1 };
    char path[512];
    struct err e;

    (void)state;
    in_dir(path, "names.gguf");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct gguf_writer *w = open_writer(path);
        struct str name = { cases[i].key, cases[i].n };

        assert_int_equal(gguf_write_tensor(w, name, QUANT_f32, 1, ne, &e), ERR_ARG);
        assert_says(&e, cases[i].says);
        gguf_write_abort(w);
        if (name.n < 65) {
            w = open_writer(path);
            assert_int_equal(gguf_write_bool(w, cases[i].key, true, &e), ERR_ARG);
            assert_says(&e, cases[i].says);
            assert_int_equal(gguf_write_commit(w, NULL), ERR_IO);
        }
    }
}

static void test_duplicates(void **state)
{
    const int64_t ne[] = { 1 };
    char path[512];
    struct gguf_writer *w = open_writer(in_dir(path, "twice.gguf"));
    struct err e;

    (void)state;
    OK(gguf_write_u32(w, "b", 1, NULL));
    OK(gguf_write_u32(w, "a", 2, NULL));
    OK(gguf_write_str(w, "b", STR("x"), NULL));
    assert_int_equal(gguf_write_commit(w, &e), ERR_ARG);
    assert_says(&e, "twice.gguf: duplicate-key: b");
    w = open_writer(path);
    OK(gguf_write_tensor(w, STR("t"), QUANT_f32, 1, ne, NULL));
    OK(gguf_write_tensor(w, STR("t"), QUANT_f32, 1, ne, NULL));
    assert_int_equal(gguf_write_data(w, "12345678", 8, &e), ERR_ARG);
    assert_says(&e, "twice.gguf: duplicate-tensor: t");
    assert_int_equal(gguf_write_commit(w, NULL), ERR_IO);
}

static void test_bad_shapes(void **state)
{
    static const struct {
        int type, n_dims;
        int64_t ne[4];
        const char *says;
    } cases[] = {
        { QUANT_f32, 0, { 1 }, "dimensions: tensor t" },
        { QUANT_f32, 5, { 1, 1, 1, 1 }, "dimensions: tensor t" },
        { QUANT_f32, 2, { 1, 0 }, "dimensions: tensor t" },
        { QUANT_f32, 2, { 1, -4 }, "dimensions: tensor t" },
        { QUANT_f32, 3, { 1LL << 31, 1LL << 31, 2 }, "dimensions: tensor t" },
        { QUANT_q4_0, 1, { 33 }, "block: tensor t: rows of 33 elements in q4_0" },
        { QUANT_f32, 2, { 1LL << 31, 1LL << 31 }, "overflow: tensor t" },
    };
    char path[512];
    struct err e;

    (void)state;
    in_dir(path, "shapes.gguf");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct gguf_writer *w = open_writer(path);

        assert_int_equal(gguf_write_tensor(w, STR("t"), cases[i].type, cases[i].n_dims, cases[i].ne, &e), ERR_ARG);
        assert_says(&e, cases[i].says);
        gguf_write_abort(w);
    }
}

/* Offsets of many huge tensors do not wrap. */
static void test_total_overflow(void **state)
{
    const int64_t ne[] = { 1LL << 30, 1LL << 30 };
    char path[512];
    struct gguf_writer *w = open_writer(in_dir(path, "total.gguf"));
    enum err_code code = ERR_OK;
    struct err e;
    int n = 0;

    (void)state;
    for (; code == ERR_OK && n < 10; n++)
        code = gguf_write_tensor(w, (struct str){ &"abcdefghij"[n], 1 }, QUANT_f32, 2, ne, &e);
    assert_int_equal(code, ERR_ARG);
    assert_int_equal(n, 2);
    assert_says(&e, "overflow: tensor b");
    gguf_write_abort(w);
}

static void test_wrong_data(void **state)
{
    const int64_t ne[] = { 2 };
    char path[512];
    struct gguf_writer *w = open_writer(in_dir(path, "data.gguf"));
    struct err e;

    (void)state;
    OK(gguf_write_tensor(w, STR("first"), QUANT_f32, 1, ne, NULL));
    OK(gguf_write_tensor(w, STR("second"), QUANT_f32, 1, ne, NULL));
    OK(gguf_write_data(w, "12345678abc", 11, NULL));
    assert_int_equal(gguf_write_commit(w, &e), ERR_ARG);
    assert_says(&e, "data.gguf: data: tensor second lacks 5 bytes");
    w = open_writer(path);
    OK(gguf_write_tensor(w, STR("first"), QUANT_f32, 1, ne, NULL));
    assert_int_equal(gguf_write_data(w, "12345678abc", 11, &e), ERR_ARG);
    assert_says(&e, "data.gguf: data: 3 bytes after the last tensor");
    assert_int_equal(gguf_write_commit(w, NULL), ERR_IO);
    w = open_writer(path);
    assert_int_equal(gguf_write_data(w, "x", 1, &e), ERR_ARG);
    gguf_write_abort(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_DIR(test_round_trip), WITH_DIR(test_copy),       WITH_DIR(test_alignment),
        WITH_DIR(test_empty),      WITH_DIR(test_bad_names),  WITH_DIR(test_duplicates),
        WITH_DIR(test_bad_shapes), WITH_DIR(test_wrong_data), WITH_DIR(test_total_overflow),
    };

    return cmocka_run_group_tests_name("gguf_write", tests, NULL, NULL);
}
