/* SPDX-License-Identifier: Apache-2.0 */
/* engram_test.c - tables of n-grams against a slow count of the same text; files that are not tables. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/io.h"
#include "base/pool.h"
#include "engram/internal.h"
#include "gen/hooks.h"

enum { TEXT_MAX = 300000, DAY = 20000 };
static char dir[] = "/tmp/engram_test.XXXXXX";
static struct pool *pool;

static const char *in(const char *name)
{
    static char path[4][128];
    static int turn;

    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", dir, name);
    return path[turn];
}

static void must(enum err_code code, const struct err *e)
{
    if (code != ERR_OK)
        fail_msg("%s", e->msg);
}

struct text {
    int32_t v[TEXT_MAX]; /* -1 ends a document */
    int64_t n;
};

/* Skewed tokens that depend on the one before, so that contexts repeat. */
static void make_text(struct text *t, int64_t n, uint32_t vocab, uint64_t seed)
{
    uint64_t s = seed;
    int32_t before = 0;

    for (t->n = 0; t->n < n; t->n++) {
        s = s * 6364136223846793005u + 1442695040888963407u;
        const uint32_t r = (uint32_t)(s >> 33);
        const bool end = r % 97 == 0;

        before = (int32_t)((r % 3 == 0 ? r / 3 : (uint32_t)before * 7 + 3) % vocab);
        t->v[t->n] = end ? -1 : before;
    }
}

static void build(const struct text *t, const char *path, struct engram_build_opts o)
{
    struct engram_builder *b;
    struct err e = { 0 };

    o.pool = o.pool != NULL ? o.pool : pool;
    must(engram_build_open(&b, path, &o, &e), &e);
    for (int64_t i = 0; i < t->n; i++)
        must(t->v[i] < 0 ? engram_build_end(b, &e) : engram_build_tokens(b, &t->v[i], 1, &e), &e);
    must(engram_build_commit(b, NULL, &e), &e);
}

static struct engram_build_opts plain(int order)
{
    return (struct engram_build_opts){ .tokenizer = 7, .day = DAY, .order = order, .memory_bytes = 64 << 20 };
}

static struct engram *open_one(const char *path, int64_t day)
{
    struct engram *g = NULL;
    struct err e = { 0 };

    must(engram_open(&g, &path, 1, &(struct engram_opts){ .tokenizer = 7, .day = day }, &e), &e);
    return g;
}

static void assert_same_files(const char *a, const char *b)
{
    char *x, *y;
    size_t nx, ny;
    struct err e = { 0 };

    must(io_read_all(&x, &nx, a, SIZE_MAX, NULL, &e), &e);
    must(io_read_all(&y, &ny, b, SIZE_MAX, NULL, &e), &e);
    assert_int_equal(nx, ny);
    assert_memory_equal(x, y, nx);
    free(x);
    free(y);
}

/* The specification: counts what follows the longest context of at most `order` tokens that occurs. */
static int count_slowly(const struct text *t, const int32_t *context, int n, int order, int64_t *count, int vocab)
{
    for (int l = n < order ? n : order; l > 0; l--) {
        bool any = false;

        memset(count, 0, (size_t)vocab * sizeof *count);
        for (int64_t i = l; i < t->n; i++) {
            bool same = t->v[i] >= 0;

            for (int k = 1; same && k <= l; k++)
                same = t->v[i - k] == context[n - k];
            if (same) {
                count[t->v[i]]++;
                any = true;
            }
        }
        if (any)
            return l;
    }
    return 0;
}

static void check_look(const struct text *t, const struct engram *g, int order, int vocab, int tries)
{
    int64_t count[64];
    uint64_t s = 5;

    for (int k = 0; k < tries; k++) {
        int32_t context[9];
        struct engram_next next;
        int64_t total = 0;

        s = s * 6364136223846793005u + 1442695040888963407u;
        const int64_t at = (int64_t)((s >> 20) % (uint64_t)(t->n - 9));

        for (int i = 0; i < 9; i++)
            context[i] = t->v[at + i] >= 0 ? t->v[at + i] : (int32_t)(s >> 40) % vocab;
        if (k % 3 == 0)
            context[k % 9] = (int32_t)(s >> 50) % vocab;
        const int want = count_slowly(t, context, 9, order, count, vocab);

        engram_look(g, context, 9, &next);
        assert_int_equal(next.order, want);
        for (int i = 0; i < vocab; i++)
            total += count[i];
        assert_true(want == 0 || next.count == (double)total);
        for (int i = 0; i < next.n; i++) {
            assert_true(next.q[i] == (float)((double)count[next.token[i]] / (double)total));
            assert_true(i == 0 || next.q[i] <= next.q[i - 1]);
            for (int j = 0; j < vocab; j++) /* what is left out is not commoner */
                assert_true(next.n < ENGRAM_NEXT_MAX || i + 1 < next.n || count[j] <= count[next.token[0]]);
        }
        int different = 0;

        for (int i = 0; want > 0 && i < vocab; i++)
            different += count[i] > 0;
        assert_int_equal(next.n, different < ENGRAM_NEXT_MAX ? different : ENGRAM_NEXT_MAX);
    }
}

static void test_look(void **state)
{
    static struct text t;
    const int orders[] = { 1, 2, 5, 8 }, vocabs[] = { 3, 50, 12, 30 };

    (void)state;
    for (int i = 0; i < 4; i++) {
        make_text(&t, 4000, (uint32_t)vocabs[i], (uint64_t)i);
        build(&t, in("t"), plain(orders[i]));
        struct engram *g = open_one(in("t"), DAY);

        check_look(&t, g, orders[i], vocabs[i], 400);
        engram_close(g);
    }
}

static void test_borders(void **state)
{
    static struct text t = { { 1, 2, -1, 3, 4, -1, 1, -1, -1 }, 9 };
    struct engram_next next;

    (void)state;
    build(&t, in("t"), plain(8));
    struct engram *g = open_one(in("t"), DAY);
    const struct engram_epoch_stat s = engram_epoch_stat(g, 0, 0);

    assert_int_equal(s.documents, 3);
    assert_int_equal(s.tokens, 5);
    engram_look(g, (int32_t[]){ 1, 2 }, 2, &next); /* 2 ends a document: nothing follows it */
    assert_int_equal(next.n, 0);
    engram_look(g, (int32_t[]){ 2, 3 }, 2, &next);
    assert_int_equal(next.order, 1);
    assert_int_equal(next.token[0], 4);
    engram_look(g, NULL, 0, &next);
    assert_int_equal(next.n, 0);
    engram_close(g);
}

/* The same file for any number of threads, and for any memory. */
static void test_same_bytes(void **state)
{
    static struct text t;
    struct engram_build_opts o = plain(5);
    struct err e = { 0 };

    (void)state;
    make_text(&t, TEXT_MAX, 800, 9);
    build(&t, in("one"), o);
    must(pool_open(&o.pool, 5, &e), &e);
    build(&t, in("five"), o);
    assert_same_files(in("one"), in("five"));
    pool_close(o.pool);
    o.pool = NULL;
    o.memory_bytes = 1 << 20;
    build(&t, in("parts"), o);
    assert_same_files(in("one"), in("parts"));
}

/* Halves of a text, added or merged, say what the whole text says. */
static void test_add_merge(void **state)
{
    static struct text t, half;
    struct engram_build_opts o = plain(6);
    struct engram *g;
    struct err e = { 0 };
    char *before, *after;
    size_t n, n_after;

    (void)state;
    make_text(&t, 3000, 20, 11);
    t.v[1499] = -1;
    half = t;
    half.n = 1500;
    build(&half, in("a"), o);
    must(io_read_all(&before, &n, in("a"), SIZE_MAX, NULL, &e), &e);
    memmove(half.v, t.v + 1500, 1500 * sizeof *half.v);
    build(&half, in("b"), o);
    o.add = true;
    build(&half, in("a"), o);
    must(io_read_all(&after, &n_after, in("a"), SIZE_MAX, NULL, &e), &e);
    assert_true(n_after > n);
    assert_memory_equal(before + HEAD_BYTES, after + HEAD_BYTES, n - HEAD_BYTES); /* the epoch stays as it was */
    assert_memory_equal(before, after, 32); /* of the head only its size and sum changed */
    assert_memory_equal(before + 40, after + 40, HEAD_BYTES - 48);
    free(before);
    free(after);
    g = open_one(in("a"), DAY);
    assert_int_equal(engram_n_epochs(g, 0), 2);
    check_look(&t, g, 6, 20, 300);
    must(engram_merge(g, in("m"), &(struct engram_merge_opts){ .day = DAY, .unused_days = -1 }, NULL, &e), &e);
    engram_close(g);
    o.add = false;
    build(&t, in("whole"), o);
    assert_same_files(in("m"), in("whole"));
    /* however large the weights are, what is written can be read, and the commonest rows are not lost */
    const struct engram_merge_opts large = { .scale = (const float[]){ 1e30F }, .day = DAY, .unused_days = -1 };

    for (int i = 0; i < 3; i++) {
        const char *from = i == 0 ? "m" : "w";

        g = open_one(in(from), DAY);
        const uint64_t rows = engram_epoch_stat(g, 0, 0).of[0].nexts;
        must(engram_merge(g, in("w"), &large, NULL, &e), &e);
        engram_close(g);
        g = open_one(in("w"), DAY);
        assert_int_equal(engram_epoch_stat(g, 0, 0).of[0].nexts, rows);
        engram_close(g);
    }
    o.add = true;
    o.tokenizer = 8;
    struct engram_builder *b;

    assert_int_equal(engram_build_open(&b, in("a"), &o, &e), ERR_FORMAT);
}

static void test_decay(void **state)
{
    static struct text t = { { 1, 2, -1, 1, 2, -1, 1, 3, -1 }, 9 };
    struct engram_build_opts o = plain(2);
    struct engram_next next;
    struct engram *g;
    struct err e = { 0 };

    (void)state;
    build(&t, in("t"), o); /* 2 twice, 3 once */
    t = (struct text){ { 1, 3, -1, 1, 4, -1 }, 6 };
    o.day = DAY + 60; /* what was before counts a quarter */
    o.add = true;
    build(&t, in("t"), o);
    g = open_one(in("t"), DAY + 60);
    engram_look(g, (int32_t[]){ 1 }, 1, &next);
    assert_int_equal(next.n, 3);
    assert_int_equal(next.token[0], 3);
    assert_true(fabs(next.count - 2.75) < 1e-9 && fabsf(next.q[0] - 1.25F / 2.75F) < 1e-6F);
    assert_true(fabsf(next.q[2] - 0.5F / 2.75F) < 1e-6F);
    /* 91 days after the first write what only that had goes. */
    must(engram_merge(g, in("d"), &(struct engram_merge_opts){ .day = DAY + 91, .unused_days = 90 }, NULL, &e), &e);
    engram_close(g);
    g = open_one(in("d"), DAY + 91);
    engram_look(g, (int32_t[]){ 1 }, 1, &next);
    assert_int_equal(next.n, 2);
    assert_true(next.token[0] == 3 && next.token[1] == 4);
    assert_true(fabs(next.count - 2.25 * exp2(-31.0 / 30)) < 1e-6);
    /* 31 + 59 days, and a day more: the age goes on in the merged table, and a table without rows is not written. */
    must(engram_merge(g, in("x"), &(struct engram_merge_opts){ .day = DAY + 150, .unused_days = 90 }, NULL, &e), &e);
    assert_int_equal(
        engram_merge(g, in("x"), &(struct engram_merge_opts){ .day = DAY + 151, .unused_days = 90 }, NULL, &e),
        ERR_ARG);
    engram_close(g);
    g = open_one(in("x"), DAY + 150);
    engram_look(g, (int32_t[]){ 1 }, 1, &next);
    assert_int_equal(next.n, 2);
    engram_close(g);
}

static void test_prune(void **state)
{
    static struct text t;
    struct engram *g, *small;
    struct err e = { 0 };

    (void)state;
    make_text(&t, 20000, 60, 3);
    build(&t, in("t"), plain(5));
    g = open_one(in("t"), DAY);
    for (uint64_t part = 2; part <= 16; part *= 2) {
        const uint64_t most = engram_file_bytes(g, 0) / part;

        must(engram_merge(g, in("p"), &(struct engram_merge_opts){ .day = DAY, .unused_days = -1, .bytes_max = most },
                          NULL, &e),
             &e);
        small = open_one(in("p"), DAY);
        assert_true(engram_file_bytes(small, 0) <= most);
        assert_true(part > 2 || engram_file_bytes(small, 0) > most / 4);
        engram_close(small);
    }
    assert_int_equal(engram_merge(g, in("p"),
                                  &(struct engram_merge_opts){ .day = DAY, .unused_days = -1, .bytes_max = 100 }, NULL,
                                  &e),
                     ERR_ARG);
    engram_close(g);
}

static void test_filter(void **state)
{
    enum { N = 200000 };
    const uint64_t blocks = engram_filter_blocks(N);
    uint32_t *filter = calloc(blocks, FILTER_WORDS * sizeof *filter);
    engram_filter_fn *has = engram_filter_has();
    int wrong = 0;

    (void)state;
    for (uint32_t i = 0; i < N; i++)
        engram_filter_add(filter, blocks, engram_hash(0, i));
    for (uint32_t i = 0; i < N; i++)
        assert_true(has(filter, blocks, engram_hash(0, i)));
    for (uint32_t i = N; i < 2 * N; i++)
        wrong += has(filter, blocks, engram_hash(0, i));
    assert_true(wrong < N / 50);
    free(filter);
}

static void put_file(const char *path, const char *data, size_t n)
{
    FILE *f = fopen(path, "wb");

    assert_true(f != NULL && fwrite(data, 1, n, f) == n && fclose(f) == 0);
}

/* A byte that changed and an end that is missing are found. */
static void test_damaged(void **state)
{
    static struct text t = { { 1, 2, 3, -1, 1, 2, 4, -1 }, 8 };
    const char *path = in("bad");
    char *data;
    size_t n;
    struct engram *g;
    struct err e = { 0 };

    (void)state;
    build(&t, in("t"), plain(3));
    must(io_read_all(&data, &n, in("t"), SIZE_MAX, NULL, &e), &e);
    for (size_t i = 0; i < n; i += 1 + (size_t)(i < HEAD_BYTES ? 7 : 0)) {
        data[i] ^= 0x10;
        put_file(path, data, n);
        assert_int_not_equal(engram_open(&g, &path, 1, &(struct engram_opts){ .tokenizer = 7, .day = DAY }, &e),
                             ERR_OK);
        assert_true(e.code == ERR_FORMAT || e.code == ERR_UNSUPPORTED);
        data[i] ^= 0x10;
    }
    for (size_t i = 0; i < n; i += 64) {
        put_file(path, data, i);
        assert_int_equal(engram_open(&g, &path, 1, &(struct engram_opts){ .tokenizer = 7, .day = DAY }, &e),
                         ERR_FORMAT);
    }
    put_file(path, data, n);
    assert_int_equal(engram_open(&g, &path, 1, &(struct engram_opts){ .tokenizer = 8, .day = DAY }, &e), ERR_FORMAT);
    free(data);
}

/* Epochs with a domain and a list of documents: chosen at open, and one of each domain after a merge. */
static void test_domains(void **state)
{
    static struct text t[3] = { { { 1, 2, 3, -1 }, 4 }, { { 1, 2, 4, -1 }, 4 }, { { 1, 2, 5, -1 }, 4 } };
    const char *const domain[3] = { "tools", "code", "tools" }, *all = in("d"), *merged = in("m"),
                      *chosen[1] = { "code,code" };
    const uint64_t known[3][2] = { { 7, 9 }, { 3, UINT64_MAX }, { 8, 9 } };
    const bool with[3] = { false, true, true };
    struct engram_opts eo = { 7, DAY, chosen };
    struct engram_build_opts o = plain(3);
    struct engram *g, *view;
    struct engram_next next;
    struct err e = { 0 };

    (void)state;
    for (int i = 0; i < 3; i++) {
        o.domain = domain[i];
        o.known = known[i];
        o.n_known = 2;
        build(&t[i], all, o);
        o.add = true;
    }
    o.domain = "no/name";
    assert_int_equal(engram_build_open(&(struct engram_builder *){ NULL }, all, &o, &e), ERR_ARG);
    must(engram_open(&g, &all, 1, &eo, &e), &e);
    engram_look(g, t[0].v, 2, &next);
    assert_true(next.n == 1 && next.token[0] == 4 && engram_n_epochs(g, 0) == 1);
    assert_true(engram_knows(g, UINT64_MAX) && !engram_knows(g, 7));
    engram_close(g);
    for (size_t i = 0; i < 4; i++) { /* a name that no epoch has is a mistake, also beside others */
        chosen[0] = (const char *const[]){ "tool", "code,x", "tools,", "" }[i];
        assert_int_equal(engram_open(&g, &all, 1, &eo, &e), ERR_ARG);
    }
    g = open_one(all, DAY);
    assert_true(engram_knows(g, 7) && engram_knows(g, 3) && !engram_knows(g, 4));
    must(engram_merge(g, merged, &(struct engram_merge_opts){ .day = DAY, .unused_days = -1 }, NULL, &e), &e);
    /* the second and third of it as they are, without the first, and as a file */
    must(engram_view(&view, NULL, g, with, &e), &e);
    engram_look(view, t[0].v, 2, &next);
    assert_true(next.n == 2 && next.token[0] == 4 && next.token[1] == 5);
    must(engram_write(view, in("v"), &e), &e);
    engram_close(view);
    engram_close(g);
    g = open_one(in("v"), DAY);
    assert_true(engram_n_epochs(g, 0) == 2 && strcmp(engram_epoch_stat(g, 0, 1).domain, "tools") == 0 &&
                !engram_knows(g, 7));
    engram_close(g);
    g = open_one(merged, DAY);
    assert_int_equal(engram_n_epochs(g, 0), 2);
    assert_string_equal(engram_epoch_stat(g, 0, 0).domain, "tools");
    assert_int_equal(engram_epoch_stat(g, 0, 0).documents, 2);
    assert_true(engram_knows(g, 8) && engram_knows(g, 9) && engram_knows(g, 3));
    engram_close(g);
}

/* Tokens before `end` of a build that is left then. */
static int begin(const struct text *t, const char *path, struct engram_build_opts o, int64_t end)
{
    struct engram_builder *b;
    struct err e = { 0 };

    must(engram_build_open(&b, path, &o, &e), &e);
    for (int64_t i = 0; i < end; i++)
        must(t->v[i] >= 0 ? engram_build_tokens(b, &t->v[i], 1, &e) : engram_build_end(b, &e), &e);
    return engram_build_leave(b);
}

/* A build goes on from the sorted parts of one that was left, and gives the same bytes. */
static void test_resume(void **state)
{
    static struct text t;
    struct engram_build_opts o = plain(3);
    struct engram_builder *b;
    struct err e = { 0 };

    (void)state;
    make_text(&t, 200000, 500, 5);
    build(&t, in("whole"), o);
    o.pool = pool;
    o.memory_bytes = 1 << 20; /* 87,381 tokens */
    o.resume = 77;
    assert_int_equal(begin(&t, in("r"), o, 100000), 1);
    o.day++; /* that of the part counts */
    assert_int_equal(begin(&t, in("r"), o, 190000), 2);
    must(engram_build_open(&b, in("r"), &o, &e), &e);
    assert_true(engram_build_resumed(b) > 150000 && access(in("r.part-1"), F_OK) == 0);
    assert_int_equal(engram_build_leave(b), 2);
    build(&t, in("r"), o);
    assert_same_files(in("r"), in("whole"));
    assert_int_not_equal(access(in("r.part-0"), F_OK), 0);
    /* parts of something else are removed, and a part that is damaged with those behind it */
    o.day--;
    assert_int_equal(begin(&t, in("r"), o, 190000), 2);
    assert_int_equal(truncate(in("r.part-1"), 50000), 0);
    must(engram_build_open(&b, in("r"), &o, &e), &e);
    assert_true(engram_build_resumed(b) < 90000 && access(in("r.part-1"), F_OK) != 0);
    assert_int_equal(engram_build_leave(b), 1);
    o.resume = 78;
    build(&t, in("r"), o);
    assert_same_files(in("r"), in("whole"));
    /* a part with a gap before it is none */
    assert_int_equal(begin(&t, in("r"), o, 190000), 2);
    assert_int_equal(rename(in("r.part-1"), in("r.part-0")), 0);
    build(&t, in("r"), o);
    assert_same_files(in("r"), in("whole"));
    /* fewer tokens than the parts have */
    assert_int_equal(begin(&t, in("r"), o, 100000), 1);
    must(engram_build_open(&b, in("r"), &o, &e), &e);
    assert_int_equal(engram_build_commit(b, NULL, &e), ERR_FORMAT);
    assert_same_files(in("r"), in("whole"));
    put_file(in("r.part-0"), "mine", 4);
    assert_int_equal(engram_build_open(&b, in("r"), &o, &e), ERR_IO);
    assert_int_equal(access(in("r.part-0"), F_OK), 0);
    unlink(in("r.part-0"));
}

static bool count_row(void *ctx, const struct engram_row *r)
{
    double *sum = ctx;

    sum[r->order - 1] += r->count;
    return true;
}

/* Every token that has a token before it is counted once in each order that its document allows. */
static void test_rows(void **state)
{
    static struct text t = { { 1, 2, 3, 1, 2, -1, 1, 2, -1 }, 9 };
    double sum[ENGRAM_ORDER_MAX] = { 0 };

    (void)state;
    build(&t, in("t"), plain(4));
    struct engram *g = open_one(in("t"), DAY);

    engram_rows(g, 0, 0, count_row, sum);
    assert_true(sum[0] == 5 && sum[1] == 3 && sum[2] == 2 && sum[3] == 1);
    engram_close(g);
}

/* A space that stands alone is part of the word behind it: token 9 is a space, 20 the word of 9 and 10, 21 that of 9,
 * 10 and 11, 22 that of 9 and 12. */
static void test_spaces(void **state)
{
    static struct text t = { { 1, 2, 21, 3, -1, 1, 2, 21, 4, -1, 1, 2, 20, 5, -1, 1, 2, 22, 6, -1 }, 20 };
    static int32_t parts[32][ENGRAM_PARTS];
    static const int32_t spaced[] = { 20, 21, 22 };
    struct engram_next next;

    (void)state;
    memset(parts, -1, sizeof parts);
    parts[20][0] = parts[21][0] = 10;
    parts[21][1] = 11;
    parts[22][0] = 12;
    build(&t, in("t"), plain(8));
    struct engram *g = open_one(in("t"), DAY);
    const struct engram_mix m = { .table = g,
                                  .n_vocab = 32,
                                  .space = 9,
                                  .n_spaced = 3,
                                  .spaced = spaced,
                                  .parts = (const int32_t(*)[ENGRAM_PARTS])parts };

    engram_mix_look(&m, (int32_t[]){ 1, 2, 9 }, 3, &next);
    assert_int_equal(next.order, 2);
    assert_int_equal(next.n, 2); /* 10 in three of four, 12 in one */
    for (int i = 0; i < 2; i++)
        assert_true(next.token[i] == 10 ? next.q[i] == 0.75F : next.token[i] == 12 && next.q[i] == 0.25F);
    engram_mix_look(&m, (int32_t[]){ 1, 2, 9, 10, 11 }, 5, &next);
    assert_int_equal(next.order, 3);
    assert_true(next.n == 2 && next.token[0] == 3 && next.q[0] == 0.5F);
    engram_mix_look(&m, (int32_t[]){ 1, 2, 9, 12 }, 4, &next);
    assert_true(next.n == 1 && next.token[0] == 6 && next.order == 3);
    engram_mix_look(&m, (int32_t[]){ 1, 2 }, 2, &next);
    assert_true(next.n == 3 && next.token[0] == 21 && next.whole);
    engram_close(g);
}

/* An answer as gen sees it: token 2 ends the reasoning. */
static struct gen_context context_of(const int32_t *token, int64_t n, int64_t n_prompt)
{
    int64_t from = n;

    while (from > n_prompt && token[from - 1] != 2)
        from--;
    return (struct gen_context){ token, n, from, false, from > n_prompt };
}

/* Token 1 is a newline, 2 ends the reasoning, 3 the turn. The prompt is 9 9, the text 5 6 7 6 8. */
static void test_recite(void **state)
{
    static const int32_t what[] = { 5, 6, 7, 6, 8 };
    static const struct {
        int32_t token[10];
        int64_t n;
        int32_t next; /* -1: nothing */
        int order;
    } rows[] = {
        { { 9, 9 }, 2, 5, 0 }, /* no reasoning */
        { { 9, 9, 1, 1 }, 4, 5, 0 },
        { { 9, 9, 4, 4, 2 }, 5, 5, 0 }, /* right behind it */
        { { 9, 9, 4, 4, 2, 1 }, 6, 5, 0 },
        { { 9, 9, 4, 2, 1, 5 }, 6, 6, 1 },
        { { 9, 9, 2, 1, 5, 6 }, 6, 7, 2 },
        { { 9, 9, 2, 5, 6, 7, 6 }, 7, 8, 4 }, /* not what follows the first 6 */
        { { 9, 9, 2, 5, 6, 7, 6, 8 }, 8, 3, 5 },
        { { 9, 9, 2, 4 }, 4, -1, 0 },   /* other words */
        { { 9, 9, 2, 4, 7 }, 5, 6, 1 }, /* and back */
        { { 9, 5 }, 2, 5, 0 },          /* what the prompt ends in does not count */
    };
    struct engram_mix m = { .recital = { what, 5, 3, { 1, -1 }, 0.5F } };
    const struct gen_context behind = context_of(rows[2].token, 5, 2), later = context_of(rows[3].token, 6, 2),
                             whole = context_of(rows[7].token, 8, 2);
    struct gen_context inside = later;
    struct engram_next next;
    int32_t token[SAMPLE_MIX_MAX];
    float q[SAMPLE_MIX_MAX];
    uint32_t evidence;
    struct err e = { 0 };
    void *place;
    int n;

    (void)state;
    must(engram_memory.begin(&place, &m, rows[0].token, 2, &e), &e);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct gen_context at = context_of(rows[i].token, rows[i].n, 2);
        const bool any = engram_recite(&m.recital, &at, &next);

        assert_int_equal(any, rows[i].next >= 0);
        assert_true(!any ||
                    (next.n == 1 && next.token[0] == rows[i].next && next.q[0] == 1 && next.order == rows[i].order));
        assert_true(!any || next.whole == (i == 2));
    }
    inside.reasoning = true;
    engram_memory.look(place, &inside, token, q, &n, &evidence);
    assert_int_equal(n, 0); /* in the reasoning */
    engram_memory.look(place, &later, token, q, &n, &evidence);
    assert_true(n == 1 && token[0] == 5 && q[0] == 1 && engram_memory.weight(place, evidence, 1, true) == 0.5F);
    engram_memory.look(place, &behind, token, q, &n, &evidence);
    assert_true(n == 1 && engram_memory.weight(place, evidence, 0.5F, false) == 0.5F);
    assert_true(engram_memory.weight(place, evidence, 0.99F, false) == 0);
    m.recital.end = -1;
    assert_false(engram_recite(&m.recital, &whole, &next));
    m.recital.n = 0;
    engram_memory.look(place, &later, token, q, &n, &evidence);
    assert_int_equal(n, 0); /* and there is no table */
    assert_int_equal(engram_memory.tell(place, NULL), 0);
    engram_memory.end(place);
}

/* What a look-up alone says of its weight. */
static void test_weights(void **state)
{
    const struct engram_next longest = { .n = 1, .q = { 1 }, .order = 8 },
                             whole = { .n = 1, .q = { 1 }, .order = 2, .whole = true },
                             low = { .n = 1, .q = { 1 }, .order = 3 }, vague = { .n = 1, .q = { 0.4F }, .order = 7 };
    struct engram_mix m = { .ceiling = { 1 }, .n_vocab = 9, .space = -1 };
    float w[ENGRAM_STRENGTHS], v[ENGRAM_STRENGTHS];

    (void)state;
    engram_weights(&m, engram_evidence(&longest), 0.3F, w);
    assert_true(w[0] == 0.7F && w[1] == 0.85F && w[2] == 0.95F);
    engram_weights(&m, engram_evidence(&whole), 0.3F, v);
    assert_memory_equal(v, w, sizeof w);
    engram_weights(&m, engram_evidence(&low), 0.3F, v); /* every text has such */
    assert_true(v[0] == 0 && v[1] > 0 && v[2] > v[1] && v[2] < w[2]);
    engram_weights(&m, engram_evidence(&vague), 0.95F, w);
    engram_weights(&m, engram_evidence(&vague), 0.2F, v);
    for (int i = 0; i < ENGRAM_STRENGTHS; i++)
        assert_true(w[i] < v[i]);
    m.ceiling[0] = 0.25F;
    engram_weights(&m, engram_evidence(&longest), 0.3F, w);
    assert_true(w[0] == 0.25F && w[1] == 0.25F && w[2] == 0.25F);
}

static void test_lock(void **state)
{
    struct io_lock *a, *b;
    struct err e = { 0 };

    (void)state;
    must(io_lock(&a, in("t"), &e), &e);
    assert_int_equal(io_lock(&b, in("t"), &e), ERR_IO);
    io_unlock(a);
    must(io_lock(&b, in("t"), &e), &e);
    io_unlock(b);
    assert_int_not_equal(access(in("t.lock"), F_OK), 0);
}

static int set_up(void **state)
{
    struct err e;

    (void)state;
    return mkdtemp(dir) == NULL || pool_open(&pool, 2, &e) != ERR_OK;
}

static int tear_down(void **state)
{
    static const char *const names[] = { "t", "one", "five", "parts", "a", "b", "m", "whole",
                                         "d", "x",   "p",    "bad",   "v", "r", "w" };

    (void)state;
    pool_close(pool);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unlink(in(names[i]));
    return rmdir(dir); /* fails when a temporary file was left */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_look),      cmocka_unit_test(test_borders), cmocka_unit_test(test_same_bytes),
        cmocka_unit_test(test_add_merge), cmocka_unit_test(test_decay),   cmocka_unit_test(test_prune),
        cmocka_unit_test(test_domains),   cmocka_unit_test(test_resume),  cmocka_unit_test(test_filter),
        cmocka_unit_test(test_damaged),   cmocka_unit_test(test_rows),    cmocka_unit_test(test_lock),
        cmocka_unit_test(test_spaces),    cmocka_unit_test(test_recite),  cmocka_unit_test(test_weights),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
