/* SPDX-License-Identifier: Apache-2.0 */
/* recall_test.c - indexes of texts against slow searches of the same texts; files that are no indexes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/pool.h"
#include "gguf/gguf.h"
#include "recall/internal.h"
#include "text/text.h"

enum { N = 2500, DIMS = 37, K = 10, ASKED = 100 };
static char dir[] = "/tmp/recall_test.XXXXXX";
static float vectors[N][DIMS];
static struct text *tokens;

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

static uint32_t next(uint64_t *s)
{
    *s = *s * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*s >> 33);
}

/* Around some centres, far from zero, so that the mean counts. */
static void make_vectors(void)
{
    uint64_t s = 7;
    float centre[50][DIMS];

    for (int c = 0; c < 50; c++)
        for (int d = 0; d < DIMS; d++)
            centre[c][d] = 3 + (float)(next(&s) % 1000) / 500;
    for (int i = 0; i < N; i++)
        for (int d = 0; d < DIMS; d++)
            vectors[i][d] = centre[i % 50][d] + (float)(next(&s) % 1000) / 2000;
}

static void text_of(int i, char *buf, size_t size)
{
    snprintf(buf, size, "Text %d says: common word%d, ODD%d; common \xc3\x84rger %s", i, i % 7, i % 311,
             i % 13 == 0 ? "thirteen thirteen" : "");
}

static const struct recall_vectors made = { .model = 6, .dims = DIMS, .layer = 2 };

static void build(const char *path, int n, bool graph)
{
    const struct recall_build_opts o = { .tokenizer = 5, .graph = graph };
    struct recall_builder *b;
    struct err e = { 0 };
    char buf[200];

    must(recall_build_open(&b, &o, &e), &e);
    for (int i = 0; i < n; i++) {
        text_of(i, buf, sizeof buf);
        must(recall_build_add(b, str_of(buf), NULL, &e), &e);
    }
    must(recall_build_vectors(b, &made, &e), &e);
    for (int i = 0; i < n; i++)
        recall_build_vector(b, i, vectors[i]);
    must(recall_build_commit(b, path, NULL, &e), &e);
}

static struct recall *open_index(const char *path)
{
    struct recall *r = NULL;
    struct err e = { 0 };

    must(recall_open(&r, path, &e), &e);
    return r;
}

static void what_is_kept(void **state)
{
    struct recall *r;
    struct recall_info i;
    char buf[200];

    (void)state;
    build(in("a"), N, false);
    r = open_index(in("a"));
    i = recall_info(r);
    assert_int_equal(i.n_texts, N);
    assert_int_equal(i.tokenizer, 5);
    assert_int_equal(i.model, 6);
    assert_int_equal(i.dims, DIMS);
    assert_int_equal(i.layer, 2);
    assert_false(i.graph);
    for (int k = 0; k < N; k += 97) {
        text_of(k, buf, sizeof buf);
        assert_true(str_is(recall_text(r, k), buf));
    }
    recall_close(r);
}

static void origins_are_kept(void **state)
{
    const struct recall_build_opts o = { 0 };
    const struct recall_origin from[] = {
        { .file = STR("a\nb"), .line = 7, .time_ns = -5, .heading = STR("WORDS"), .members = STR("{\"id\":1}") },
        { .file = STR("a\nb"), .line = 9, .time_ns = -5 },
        { .heading = STR("alone") },
    };
    struct recall_builder *b;
    struct recall_hit hits[3];
    struct recall *r;
    struct err e = { 0 };
    int n;

    (void)state;
    must(recall_build_open(&b, &o, &e), &e);
    for (int i = 0; i < 3; i++)
        must(recall_build_add(b, STR("the text"), &from[i], &e), &e);
    must(recall_build_commit(b, in("o"), NULL, &e), &e);
    r = open_index(in("o"));
    for (int i = 0; i < 3; i++) {
        const struct recall_origin got = recall_origin_of(r, i);

        assert_true(str_eq(got.file, from[i].file) && str_eq(got.heading, from[i].heading) &&
                    str_eq(got.members, from[i].members));
        assert_true(got.line == from[i].line && got.time_ns == from[i].time_ns && got.hash != 0);
    }
    must(recall_words(r, tokens, STR("words"), true, 3, hits, &n, &e), &e);
    assert_true(n == 1 && hits[0].text == 0); /* a heading belongs to its text */
    recall_close(r);
    /* what an earlier version wrote */
    r = open_index("tests/fuzz/corpus/recall/index");
    assert_true(recall_info(r).n_texts > 0 && recall_origin_of(r, 0).file.n == 0);
    recall_close(r);
}

/* An index of texts [from, to), with the vectors of old for those that it has. */
static int64_t build_again(const char *path, const struct recall *old, int from, int to)
{
    const struct recall_build_opts o = { .tokenizer = 5, .graph = recall_info(old).graph };
    struct recall_builder *b;
    struct err e = { 0 };
    char buf[200];
    int64_t n = 0, have = 0;

    must(recall_build_open(&b, &o, &e), &e);
    for (int i = from; i < to; i++) {
        text_of(i, buf, sizeof buf);
        must(recall_build_add(b, str_of(buf), NULL, &e), &e);
    }
    must(recall_build_vectors(b, &made, &e), &e);
    must(recall_build_reuse(b, old, &n, &e), &e);
    for (int i = from; i < to; i++)
        if (recall_build_has_vector(b, i - from))
            have++;
        else
            recall_build_vector(b, i - from, vectors[i]);
    assert_int_equal(have, n);
    must(recall_build_commit(b, path, NULL, &e), &e);
    return n;
}

static void vectors_are_taken_from_an_old_index(void **state)
{
    struct recall *old, *r;
    struct recall_hit hits[K], was[K];
    struct err e = { 0 };
    int n, n_was;

    (void)state;
    build(in("a"), 200, false);
    old = open_index(in("a"));
    assert_true(recall_same_vectors(old, &made));
    assert_false(recall_same_vectors(old, &(struct recall_vectors){ RECALL_ELSEWHERE, 6, DIMS, 2, NULL }));
    assert_int_equal(build_again(in("o"), old, 10, 220), 190); /* ten are gone, twenty are new */
    r = open_index(in("o"));
    for (int i = 10; i < 200; i++)
        assert_memory_equal(r->vector + (uint64_t)(i - 10) * r->stride, old->vector + (uint64_t)i * old->stride,
                            r->stride * sizeof(float));
    assert_memory_equal(r->mean, old->mean, r->stride * sizeof(float));
    must(recall_near(r, vectors[205], K, true, NULL, hits, &n, &e), &e);
    assert_true(hits[0].text == 195 && hits[0].score > 0.999F);
    must(recall_near(r, vectors[50], K, true, NULL, hits, &n, &e), &e);
    must(recall_near(old, vectors[50], K, true, NULL, was, &n_was, &e), &e);
    assert_true(hits[0].text == 40 && was[0].text == 50 && hits[0].score == was[0].score);
    recall_close(r);
    assert_int_equal(build_again(in("o"), old, 0, 200), 200);
    r = open_index(in("o"));
    recall_close(old);
    assert_int_equal(build_again(in("a"), r, 150, 300), 0); /* most are new: the mean is, too */
    recall_close(r);
    build(in("g"), 200, true); /* where nothing is new the graph stays as well */
    old = open_index(in("g"));
    assert_int_equal(build_again(in("o"), old, 0, 200), 200);
    r = open_index(in("o"));
    assert_true(recall_info(r).graph && recall_info(r).bytes == recall_info(old).bytes);
    assert_memory_equal(r->map.data, old->map.data, r->map.size);
    recall_close(r);
    recall_close(old);
    old = open_index("tests/fuzz/corpus/recall/index"); /* version 1 */
    assert_int_equal(build_again(in("a"), old, 0, 5), 0);
    recall_close(old);
}

/* What a search of the graph finds of the K nearest, of all that are asked. */
static int found_by_graph(const struct recall *r, int from)
{
    struct recall_hit all[K], hits[K];
    struct err e = { 0 };
    int n_all, n, found = 0;

    for (int q = 0; q < ASKED; q++) {
        must(recall_near(r, vectors[from + 17 * q], K, true, NULL, all, &n_all, &e), &e);
        must(recall_near(r, vectors[from + 17 * q], K, false, NULL, hits, &n, &e), &e);
        for (int i = 0; i < n; i++)
            for (int k = 0; k < n_all; k++)
                found += hits[i].text == all[k].text;
    }
    return found;
}

static void a_graph_goes_on_from_the_old_one(void **state)
{
    enum { TEXTS = 1700, STEP = 100, ROUNDS = 8 };
    struct recall *r;

    (void)state;
    build(in("g0"), TEXTS, true);
    /* Each time a part of the texts is gone, and as many are new: at the end half are others. */
    for (int k = 1; k <= ROUNDS; k++) {
        char from[] = "g0", to[] = "g0";
        from[1] = (char)('0' + k - 1);
        to[1] = (char)('0' + k);
        r = open_index(in(from));
        assert_int_equal(build_again(in(to), r, k * STEP, k * STEP + TEXTS), TEXTS - STEP);
        recall_close(r);
        r = open_index(in(to));
        assert_true(recall_info(r).graph);
        assert_true(found_by_graph(r, k * STEP) >= 985 * ASKED * K / 1000);
        recall_close(r);
    }
    /* Most are gone: it is made anew, as are the links of texts that lost all of theirs. */
    r = open_index(in("g8"));
    assert_int_equal(build_again(in("g9"), r, ROUNDS * STEP, ROUNDS * STEP + 20), 20);
    recall_close(r);
    r = open_index(in("g9"));
    assert_int_equal(recall_info(r).n_texts, 20);
    recall_close(r);
}

static enum err_code keep_outside(void *ctx, struct recall_outside *o, struct err *e)
{
    *(float *)ctx = o->v[(o->n - 1) * o->dims];
    o->bytes = o->dims == DIMS ? 9 : 0;
    o->sum = 8;
    return o->n == 3 && !o->adds ? ERR_OK : err_set(e, ERR_IO, "not written");
}

/* What was added to a file, by its numbers. */
struct added {
    float first[40]; /* of each vector */
    int n, calls;
};

static enum err_code add_outside(void *ctx, struct recall_outside *o, struct err *e)
{
    struct added *a = ctx;

    (void)e;
    a->n = o->adds ? a->n : 0;
    for (int64_t i = 0; i < o->n; i++)
        a->first[a->n++] = o->v[i * o->dims];
    o->bytes = (uint64_t)a->n;
    o->sum = (uint64_t)++a->calls;
    return ERR_OK;
}

/* An index of texts from .. to - 1, two of them the same, and how many vectors were there. */
static int64_t index_outside(struct added *a, const struct recall *old, int from, int to, uint32_t how)
{
    const struct recall_build_opts o = { .outside = add_outside, .ctx = a, .how = how };
    struct recall_builder *b;
    struct err e = { 0 };
    int64_t n = 0;

    must(recall_build_open(&b, &o, &e), &e);
    for (int i = to; i-- > from;) {
        char text[20];

        snprintf(text, sizeof text, "text %d", i / 2 == 8 ? 16 : i);
        must(recall_build_add(b, str_of(text), NULL, &e), &e);
    }
    must(recall_build_vectors(b, &made, &e), &e);
    if (old != NULL)
        must(recall_build_reuse(b, old, &n, &e), &e);
    for (int i = 0; i < to - from; i++) {
        float v[DIMS] = { (float)(to - 1 - i) / 100 };

        v[1] = 1;
        if (!recall_build_has_vector(b, i))
            recall_build_vector(b, i, v);
    }
    must(recall_build_commit(b, in("p1"), NULL, &e), &e);
    assert_int_equal(rename(in("p1"), in("p")), 0);
    return n;
}

static void vectors_outside_stay_there(void **state)
{
    static const struct {
        int from, to, n; /* n: vectors that the file has */
        uint32_t how;
        int64_t reused;
    } rounds[] = { { 0, 20, 20, 7, 0 },  { 0, 22, 22, 7, 20 }, { 2, 24, 24, 7, 20 }, { 4, 24, 24, 7, 20 },
                   { 10, 24, 14, 7, 0 }, { 10, 24, 14, 9, 0 }, { 10, 24, 14, 9, 14 } };
    struct added a = { .n = 0 };
    struct recall *old = NULL;

    (void)state;
    for (size_t k = 0; k < sizeof rounds / sizeof *rounds; k++) {
        const int calls = a.calls;
        struct recall *r;
        bool used[40] = { false };

        assert_int_equal(index_outside(&a, old, rounds[k].from, rounds[k].to, rounds[k].how), rounds[k].reused);
        recall_close(old);
        r = open_index(in("p"));
        assert_int_equal(recall_info(r).n_labels, rounds[k].n);
        assert_int_equal(a.calls - calls, rounds[k].reused < rounds[k].to - rounds[k].from);
        assert_int_equal(recall_info(r).outside_sum, a.calls);
        for (int64_t i = 0; i < recall_info(r).n_texts; i++) {
            const int64_t label = recall_label(r, i), is = rounds[k].to - 1 - i;
            float v[DIMS] = { (float)is / 100 }, aimed[DIMS];

            assert_true(!used[label]);
            used[label] = true;
            v[1] = 1;
            recall_aim(r, v, aimed);
            if (is / 2 != 8) /* of the two that are the same either has the vector */
                assert_true(fabsf(a.first[label] - aimed[0]) < 1e-6F);
        }
        old = r;
    }
    recall_close(old);
}

static void vectors_may_be_outside(void **state)
{
    float last = 0, aimed[DIMS];
    const struct recall_build_opts o = { .outside = keep_outside, .ctx = &last };
    struct recall_builder *b;
    struct recall_hit hits[K];
    struct recall *r;
    struct err e = { 0 };
    int n;

    (void)state;
    for (int texts = 4; texts >= 3; texts--) {
        must(recall_build_open(&b, &o, &e), &e);
        for (int i = 0; i < texts; i++)
            must(recall_build_add(b, STR("text"), NULL, &e), &e);
        must(recall_build_vectors(b, &made, &e), &e);
        for (int i = 0; i < texts; i++)
            recall_build_vector(b, i, vectors[i]);
        assert_int_equal(recall_build_commit(b, in("o"), NULL, &e), texts == 3 ? ERR_OK : ERR_IO);
    }
    r = open_index(in("o"));
    assert_true(recall_info(r).outside_bytes == 9 && recall_info(r).outside_sum == 8 && recall_info(r).dims == DIMS);
    recall_aim(r, vectors[2], aimed);
    assert_true(fabsf(aimed[0] - last) < 1e-6F && last != 0);
    assert_int_equal(recall_near(r, vectors[0], K, true, NULL, hits, &n, &e), ERR_UNSUPPORTED);
    must(recall_words(r, tokens, STR("text"), true, K, hits, &n, &e), &e);
    assert_int_equal(n, 3);
    recall_close(r);
}

static void all_vectors_are_compared(void **state)
{
    struct recall *r;
    struct pool *pool;
    struct err e = { 0 };
    double mean[DIMS] = { 0 };

    (void)state;
    build(in("a"), N, false);
    r = open_index(in("a"));
    must(pool_open(&pool, 2, &e), &e);
    for (int i = 0; i < N; i++)
        for (int d = 0; d < DIMS; d++)
            mean[d] += (double)vectors[i][d] / N;
    for (int q = 0; q < ASKED; q++) {
        const float *v = vectors[(q * 31) % N];
        struct recall_hit one[K], two[K];
        int n_one, n_two;

        must(recall_near(r, v, K, true, NULL, one, &n_one, &e), &e);
        must(recall_near(r, v, K, true, pool, two, &n_two, &e), &e);
        assert_int_equal(n_one, K);
        assert_int_equal(n_two, K);
        assert_memory_equal(one, two, sizeof one);
        assert_int_equal(one[0].text, (q * 31) % N);
        for (int k = 0; k < K; k++) {
            double dot = 0, a = 0, b = 0;

            for (int d = 0; d < DIMS; d++) {
                const double x = (double)v[d] - mean[d], y = (double)vectors[one[k].text][d] - mean[d];

                dot += x * y;
                a += x * x;
                b += y * y;
            }
            assert_true(fabs((double)one[k].score - dot / sqrt(a * b)) < 1e-4);
            assert_true(k == 0 || one[k].score <= one[k - 1].score);
        }
    }
    pool_close(pool);
    recall_close(r);
}

static void a_graph_finds_the_same(void **state)
{
    struct recall *r;
    struct err e = { 0 };
    int same = 0;

    (void)state;
    build(in("g"), N, true);
    build(in("h"), N, true);
    r = open_index(in("g"));
    assert_true(recall_info(r).graph);
    for (int q = 0; q < ASKED; q++) {
        struct recall_hit near[K], all[K];
        float v[DIMS];
        int n_near, n_all;

        for (int d = 0; d < DIMS; d++)
            v[d] = vectors[q][d] + vectors[(q + 50) % N][d] / 2; /* none of the file */
        must(recall_near(r, v, K, false, NULL, near, &n_near, &e), &e);
        must(recall_near(r, v, K, true, NULL, all, &n_all, &e), &e);
        for (int i = 0; i < n_near; i++)
            for (int k = 0; k < n_all; k++)
                same += near[i].text == all[k].text && near[i].score == all[k].score;
    }
    assert_in_range(same, ASKED * K * 95 / 100, ASKED * K);
    recall_close(r);
    char *a, *b;
    size_t n_a, n_b;

    must(io_read_all(&a, &n_a, in("g"), 1 << 30, NULL, &e), &e);
    must(io_read_all(&b, &n_b, in("h"), 1 << 30, NULL, &e), &e);
    assert_int_equal(n_a, n_b);
    assert_memory_equal(a, b, n_a);
    free(a);
    free(b);
}

/* Texts that are in no index have the scores that they have in one. */
static void texts_are_ranked_by_words(void **state)
{
    enum { MANY = 300 };
    static char buf[MANY][200];
    static struct str texts[MANY];
    static float score[MANY];
    const char *const queries[] = { "which says odd17, please? Which common?", "\xc3\xa4RGER thirteen", "nothing", "" };
    struct recall_hit hits[RECALL_HITS_MAX];
    struct recall *r;
    struct err e = { 0 };
    double most;
    int n, found;

    (void)state;
    build(in("r"), MANY, false);
    r = open_index(in("r"));
    for (int i = 0; i < MANY; i++) {
        text_of(i, buf[i], sizeof buf[i]);
        texts[i] = str_of(buf[i]);
    }
    for (int q = 0; q < 4; q++) {
        must(recall_words(r, tokens, str_of(queries[q]), true, RECALL_HITS_MAX, hits, &n, &e), &e);
        must(recall_rank(tokens, str_of(queries[q]), texts, MANY, score, &most, &e), &e);
        found = 0;
        for (int i = 0; i < MANY; i++)
            found += score[i] > 0;
        assert_int_equal(found, n);
        assert_true(q < 2 ? n > 0 : n == 0);
        for (int i = 0; i < n; i++)
            assert_true(score[hits[i].text] == hits[i].score && (double)hits[i].score < most);
    }
    recall_close(r);
}

static void texts_are_found_by_words(void **state)
{
    struct recall *r;
    struct err e = { 0 };
    struct recall_hit hits[RECALL_HITS_MAX];
    int n;

    (void)state;
    build(in("a"), N, false);
    r = open_index(in("a"));
    must(recall_words(r, tokens, STR("which says odd17, please?"), true, 20, hits, &n, &e), &e);
    assert_int_equal(n, 20);
    for (int i = 0; i < 8; i++)
        assert_int_equal(hits[i].text % 311, 17); /* 17, 328 ... 2194 are all that have it */
    assert_true(hits[7].share > hits[8].share && hits[0].share <= 1);
    must(recall_words(r, tokens, STR("\xc3\xa4RGER"), true, 5, hits, &n, &e), &e);
    assert_int_equal(n, 5); /* the case of letters does not count, beyond ASCII too */
    must(recall_words(r, tokens, STR("thirteen"), true, RECALL_HITS_MAX, hits, &n, &e), &e);
    assert_int_equal(n, (N + 12) / 13);
    const float once = hits[0].score;

    must(recall_words(r, tokens, STR("thirteen thirteen"), true, 5, hits, &n, &e), &e);
    assert_true(hits[0].score == once); /* a word counts once in a question */
    must(recall_words(r, tokens, STR("nothing of that"), true, 5, hits, &n, &e), &e);
    assert_int_equal(n, 0);
    must(recall_words(r, tokens, STR(""), true, 5, hits, &n, &e), &e);
    assert_int_equal(n, 0);
    recall_close(r);
}

static void words_of_scripts(void **state)
{
    static const char text[] = "A-b c_1 \xd0\x96\xd0\xb8 \xe6\x97\xa5\xe6\x9c\xac \xff"
                               "end";
    static const char *const want[] = { "a", "b", "c_1", "\xd0\xb6\xd0\xb8", "\xe6\x97\xa5", "\xe6\x9c\xac", "end" };
    char word[WORD_BYTES_MAX], longer[200];
    size_t at = 0, n;

    (void)state;
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        n = recall_word(STR(text), &at, word);
        assert_int_equal(n, strlen(want[i]));
        assert_memory_equal(word, want[i], n);
    }
    assert_int_equal(recall_word(STR(text), &at, word), 0);
    memset(longer, 'x', sizeof longer);
    at = 0;
    assert_int_equal(recall_word((struct str){ longer, sizeof longer }, &at, word), WORD_BYTES_MAX);
    assert_int_equal(recall_word((struct str){ longer, sizeof longer }, &at, word), 0);
}

/* Examples of the paper. */
static void words_have_stems(void **state)
{
    static const char *const v[] = {
        "caresses",    "caress", "ponies",     "poni",    "cats",        "cat",    "feed",         "feed",
        "agreed",      "agre",   "plastered",  "plaster", "bled",        "bled",   "motoring",     "motor",
        "sing",        "sing",   "conflated",  "conflat", "troubled",    "troubl", "sized",        "size",
        "hopping",     "hop",    "tanned",     "tan",     "falling",     "fall",   "hissing",      "hiss",
        "fizzed",      "fizz",   "failing",    "fail",    "filing",      "file",   "happy",        "happi",
        "sky",         "sky",    "relational", "relat",   "conditional", "condit", "rational",     "ration",
        "digitizer",   "digit",  "operator",   "oper",    "feudalism",   "feudal", "decisiveness", "decis",
        "hopefulness", "hope",   "triplicate", "triplic", "formative",   "form",   "electrical",   "electr",
        "goodness",    "good",   "revival",    "reviv",   "allowance",   "allow",  "inference",    "infer",
        "airliner",    "airlin", "adjustable", "adjust",  "defensible",  "defens", "irritant",     "irrit",
        "replacement", "replac", "adjustment", "adjust",  "dependent",   "depend", "adoption",     "adopt",
        "communism",   "commun", "activate",   "activ",   "effective",   "effect", "bowdlerize",   "bowdler",
        "probate",     "probat", "rate",       "rate",    "cease",       "ceas",   "controlling",  "control",
        "roll",        "roll",   "by",         "by",
    };
    char stem[WORD_BYTES_MAX];

    (void)state;
    for (size_t i = 0; i < sizeof v / sizeof *v; i += 2) {
        const size_t n = recall_stem_english(v[i], strlen(v[i]), stem);

        if (n != strlen(v[i + 1]) || memcmp(stem, v[i + 1], n) != 0)
            fail_msg("%s: %.*s", v[i], (int)n, stem);
    }
}

static void other_forms_of_words(void **state)
{
    static const char *const texts[] = { "the OPL3 chip",   "an OPL-3 card",     "TnSeq of bacteria",
                                         "reads by Tn Seq", "it counts parrots", "counting a parrot",
                                         "nothing" };
    static const struct {
        const char *query;
        int n, n_exact;
    } asked[] = { { "OPL3", 2, 2 },    { "OPL-3", 2, 1 }, { "opl 3", 2, 1 },   { "tnseq", 1, 1 }, { "Tn-Seq", 2, 1 },
                  { "ReadsBy", 1, 0 }, { "count", 2, 0 }, { "parrots", 2, 1 }, { "zzz", 0, 0 } };
    const struct recall_build_opts o = { 0 };
    struct recall_builder *b;
    struct recall_hit hits[9];
    struct recall *r;
    struct err e = { 0 };
    int n;

    (void)state;
    must(recall_build_open(&b, &o, &e), &e);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        must(recall_build_add(b, str_of(texts[i]), NULL, &e), &e);
    must(recall_build_commit(b, in("o"), NULL, &e), &e);
    r = open_index(in("o"));
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++)
        for (int exact = 0; exact < 2; exact++) {
            must(recall_words(r, tokens, str_of(asked[i].query), exact != 0, 9, hits, &n, &e), &e);
            if (n != (exact ? asked[i].n_exact : asked[i].n))
                fail_msg("%s, exact %d: %d", asked[i].query, exact, n);
            assert_true(n == 0 || (hits[0].share > 0.99F && hits[0].share < 1.01F));
        }
    must(recall_words(r, tokens, STR("count counts counting"), false, 9, hits, &n, &e), &e);
    assert_true(n == 2 && hits[0].share > 0.99F && hits[0].share < 1.01F); /* one word */
    recall_close(r);
}

/* Two lists, whose weights depend on what made the vectors. */
static void hits_of_words_and_vectors_are_joined(void **state)
{
    const struct recall_hit a[] = { { 4, 9, 0.5F }, { 1, 4.5F, 0.25F } }, b[] = { { 2, 0.9F, 0 }, { 3, 0.1F, 0 } };
    struct recall_hit hits[5], near[2];
    struct recall *r;
    struct err e = { 0 };
    int n;

    (void)state;
    build(in("o"), 5, false);
    r = open_index(in("o"));
    must(recall_near(r, vectors[4], 2, true, NULL, near, &n, &e), &e); /* 4 itself, and another */
    must(recall_fuse(r, vectors[4], a, 2, near, 2, 5, hits, &n, &e), &e);
    assert_int_equal(hits[0].text, 4);
    assert_true(n >= 2 && n <= 4 && fabs((double)hits[0].score - 2.5) < 1e-5 && hits[0].share == 0.5F);
    r->s.maker = RECALL_EMBEDDER; /* 1, 2 and 3 */
    must(recall_fuse(r, vectors[4], a, 2, near, 2, 5, hits, &n, &e), &e);
    assert_true(hits[0].text == 4 && fabs((double)hits[0].score - 5) < 1e-5);
    r->s.outside_bytes = 1; /* of text 1 the cosine is not known: 0.1 at most */
    must(recall_fuse(r, vectors[4], a, 2, b, 2, 5, hits, &n, &e), &e);
    assert_true(n == 4 && hits[0].text == 2 && fabs((double)hits[0].score - 2.7) < 1e-5);
    assert_true(hits[1].text == 4 && fabs((double)hits[1].score - 2.3) < 1e-5);
    assert_true(hits[2].text == 1 && fabs((double)hits[2].score - 1.3) < 1e-5 && hits[3].text == 3);
    must(recall_fuse(r, vectors[4], a, 2, NULL, 0, 1, hits, &n, &e), &e);
    assert_true(n == 1 && hits[0].text == 4 && hits[0].score == 2);
    must(recall_fuse(r, vectors[4], NULL, 0, NULL, 0, 1, hits, &n, &e), &e);
    assert_int_equal(n, 0);
    recall_close(r);
}

/* Every byte that is changed, and every length that is cut, is seen. */
static void damage_is_seen(void **state)
{
    struct recall *r = NULL;
    struct err e = { 0 };
    char *data;
    size_t n;

    (void)state;
    build(in("a"), 40, true);
    must(io_read_all(&data, &n, in("a"), 1 << 30, NULL, &e), &e);
    for (size_t i = 0; i < n; i += i < 700 ? 1 : 61) {
        FILE *f = fopen(in("bad"), "wb");

        data[i] ^= 4;
        assert_int_equal(fwrite(data, 1, n, f), n);
        fclose(f);
        data[i] ^= 4;
        assert_int_not_equal(recall_open(&r, in("bad"), &e), ERR_OK);
        f = fopen(in("bad"), "wb");
        assert_int_equal(fwrite(data, 1, i, f), i);
        fclose(f);
        assert_int_not_equal(recall_open(&r, in("bad"), &e), ERR_OK);
    }
    assert_null(r);
    free(data);
}

static void few_texts(void **state)
{
    struct recall_hit hits[K];
    struct err e = { 0 };

    (void)state;
    for (int n = 0; n < 4; n++) {
        struct recall *r;
        int got;

        build(in("few"), n, true);
        r = open_index(in("few"));
        must(recall_near(r, vectors[0], K, false, NULL, hits, &got, &e), &e);
        assert_int_equal(got, n);
        must(recall_words(r, tokens, STR("common"), true, K, hits, &got, &e), &e);
        assert_int_equal(got, n);
        recall_close(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_kept),
        cmocka_unit_test(origins_are_kept),
        cmocka_unit_test(vectors_are_taken_from_an_old_index),
        cmocka_unit_test(vectors_may_be_outside),
        cmocka_unit_test(vectors_outside_stay_there),
        cmocka_unit_test(a_graph_goes_on_from_the_old_one),
        cmocka_unit_test(all_vectors_are_compared),
        cmocka_unit_test(a_graph_finds_the_same),
        cmocka_unit_test(texts_are_found_by_words),
        cmocka_unit_test(texts_are_ranked_by_words),
        cmocka_unit_test(words_of_scripts),
        cmocka_unit_test(words_have_stems),
        cmocka_unit_test(other_forms_of_words),
        cmocka_unit_test(hits_of_words_and_vectors_are_joined),
        cmocka_unit_test(damage_is_seen),
        cmocka_unit_test(few_texts),
    };
    struct gguf *g = NULL;
    struct err e = { 0 };

    if (mkdtemp(dir) == NULL || gguf_open(&g, "tests/golden/models/qwen35moe-k.iq3_s.gguf", &e) ||
        text_open(&tokens, g, &e)) {
        fprintf(stderr, "recall_test: %s\n", e.msg);
        return 1;
    }
    gguf_close(g);
    make_vectors();
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);

    text_close(tokens);
    for (const char *const *name = (const char *const[]){ "a", "g", "h", "o", "bad", "few", NULL }; *name != NULL;
         name++)
        unlink(in(*name));
    rmdir(dir);
    return failed;
}
