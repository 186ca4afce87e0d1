/* SPDX-License-Identifier: Apache-2.0 */
/* reason_search_test.c - tree search over a generator that is a hash, and against the vectors of $GOLDENS/reason. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/json.h"
#include "reason/search.h"

enum { PATH_MAX_STEPS = 64 };

/* ---- the generator of the vectors ---- */

struct path {
    unsigned char draw[PATH_MAX_STEPS];
    int n;
};
struct world {
    uint64_t salt;
    int depth;
};

static uint64_t hash(const struct world *w, const struct path *p, char letter)
{
    uint64_t h = 1469598103934665603ULL ^ w->salt;

    for (int i = 0; i < p->n; i++)
        h = (h ^ p->draw[i]) * 1099511628211ULL;
    return (h ^ (unsigned char)letter) * 1099511628211ULL;
}

static double score_of(const struct world *w, const struct path *p)
{
    return (double)(hash(w, p, 's') >> 40) / (1 << 24);
}

static bool has_ended(const struct world *w, const struct path *p)
{
    return p->n >= w->depth || (p->n >= 2 && hash(w, p, 'e') >> 61 == 0);
}

static const char *answer_of(const struct world *w, const struct path *p)
{
    static const char *const answers[] = { "0", "1", "2", "3", "4" };

    return answers[(hash(w, p, 'a') >> 33) % 5];
}

/* One subtree's children, and which of them it keeps. */
static int grow(struct reason_search *s, const struct world *w, struct path *path, int subtree, int width,
                struct reason_child *child)
{
    struct err e;
    int kept;

    for (int j = 0; j < width; j++) {
        struct path p = *path;

        p.draw[p.n++] = (unsigned char)(subtree * width + j);
        child[j] = (struct reason_child){ score_of(w, &p), has_ended(w, &p), str_of(answer_of(w, &p)) };
    }
    assert_int_equal(reason_search_add(s, subtree, child, &kept, &e), ERR_OK);
    path->draw[path->n++] = (unsigned char)(subtree * width + kept);
    return kept;
}

/* ---- the vectors ---- */

static int64_t number(const json_t *o, const char *name)
{
    return json_integer_value(json_object_get(o, name));
}

static double real(const json_t *v)
{
    return json_number_value(v);
}

static void check_winner(const struct reason_candidate *c, int n, const char *how, enum reason_vote vote,
                         const json_t *want)
{
    const struct reason_tally t = reason_vote(c, n, vote);
    const char *answer = json_string_value(json_object_get(want, how));

    if (answer == NULL)
        assert_int_equal(t.winner, -1);
    else
        assert_true(t.winner >= 0 && str_eq(c[t.winner].canon, str_of(answer)));
}

static void check_case(const json_t *one)
{
    static const char *const aggregates[] = { "last", "min", "prod", "mean" };
    const json_t *want = json_object_get(one, "want"), *log = json_object_get(want, "log"), *v;
    struct reason_search_opts o = { (int)number(one, "n"), (int)number(one, "width"), (int)number(one, "steps_max"),
                                    REASON_LAST, REASON_WEIGHTED };
    const struct world w = { (uint64_t)number(one, "salt"), (int)number(one, "depth") };
    const int n_subtrees = o.n / o.width;
    struct path *path = calloc((size_t)n_subtrees, sizeof *path);
    struct reason_search *s;
    struct reason_child child[REASON_SEARCH_MAX];
    const struct reason_candidate *c;
    struct err e;
    size_t told = 0, i, k;
    int made = 0;

    assert_non_null(path);
    while (strcmp(aggregates[o.aggregate], json_string_value(json_object_get(one, "aggregate"))) != 0)
        o.aggregate++;
    assert_int_equal(reason_search_open(&s, &o, &e), ERR_OK);
    for (int step = 0; reason_search_live(s) > 0; step++)
        for (int t = 0; t < n_subtrees; t++) {
            const json_t *line = json_array_get(log, told);

            if (!reason_search_lives(s, t))
                continue;
            assert_true(number(line, "step") == step && number(line, "subtree") == t);
            assert_int_equal(grow(s, &w, &path[t], t, o.width, child), number(line, "kept"));
            json_array_foreach (json_object_get(line, "scores"), k, v)
                assert_true(fabs(child[k].score - real(v)) <= 1e-9);
            assert_int_equal(reason_search_steps(s, t), step + 1);
            told++;
            made += o.width;
        }
    assert_int_equal(told, json_array_size(log));
    assert_int_equal(made, number(want, "steps_made"));
    c = reason_search_candidates(s);
    json_array_foreach (json_object_get(want, "candidates"), i, v) {
        const json_t *draws = json_object_get(v, "path");

        assert_true(str_eq(c[i].canon, str_of(json_string_value(json_object_get(v, "text")))));
        assert_true(fabs(c[i].score - real(json_object_get(v, "score"))) <= 1e-9);
        assert_int_equal(path[i].n, json_array_size(draws));
        for (k = 0; k < json_array_size(draws); k++)
            assert_int_equal(path[i].draw[k], json_integer_value(json_array_get(draws, k)));
    }
    assert_int_equal(i, n_subtrees);
    check_winner(c, n_subtrees, "weighted", REASON_WEIGHTED, want);
    check_winner(c, n_subtrees, "best", REASON_BEST, want);
    check_winner(c, n_subtrees, "majority", REASON_MAJORITY, want);
    assert_int_equal(reason_search_vote(s).winner, reason_vote(c, n_subtrees, REASON_WEIGHTED).winner);
    reason_search_close(s);
    free(path);
}

static void vectors(void **state)
{
    const char *goldens = getenv("GOLDENS");
    char name[4096];
    json_error_t why;
    json_t *file, *one;
    size_t i;

    (void)state;
    if (goldens == NULL || *goldens == '\0')
        skip();
    (void)snprintf(name, sizeof name, "%s/reason/dvts.json", goldens);
    file = json_load_file(name, 0, &why);
    if (file == NULL)
        fail_msg("%s: %s", name, why.text);
    json_array_foreach (json_object_get(file, "cases"), i, one)
        check_case(one);
    assert_true(i > 0);
    json_decref(file);
}

/* ---- the end ---- */

static struct reason_search *open_search(int n, int width, int steps_max, enum reason_vote vote)
{
    const struct reason_search_opts o = { n, width, steps_max, REASON_LAST, vote };
    struct reason_search *s;
    struct err e;

    assert_int_equal(reason_search_open(&s, &o, &e), ERR_OK);
    return s;
}

/* Children of which a third end, with few answers and scores, so that there are ties. */
static void draw_child(uint64_t *random, struct reason_child *c)
{
    static const char *const answers[] = { "a", "b", "b", "b", "" };

    *random = *random * 6364136223846793005ULL + 1442695040888963407ULL;
    c->score = (double)(*random >> 33 & 3) / 3;
    c->ended = (*random >> 40) % 3 == 0;
    c->canon = str_of(answers[(*random >> 50) % 5]);
}

/* A search that stops when it is decided keeps the answer that it would have in the end. */
static void stops_when_decided(void **state)
{
    uint64_t random = 1;
    int early = 0;

    (void)state;
    for (int i = 0; i < 3000; i++) {
        const int width = 1 << i % 3, n_subtrees = 1 + i % 9;
        struct reason_search *s = open_search(n_subtrees * width, width, 8, (enum reason_vote)(i % 3));
        struct reason_child child[4];
        char decided = '\0';
        struct err e;
        int kept;

        while (reason_search_live(s) > 0) {
            for (int t = 0; t < n_subtrees; t++) {
                if (!reason_search_lives(s, t))
                    continue;
                for (int j = 0; j < width; j++)
                    draw_child(&random, &child[j]);
                assert_int_equal(reason_search_add(s, t, child, &kept, &e), ERR_OK);
            }
            if (decided == '\0' && reason_search_live(s) > 0 && reason_search_decided(s)) {
                decided = *reason_search_candidates(s)[reason_search_vote(s).winner].canon.p;
                early++;
            }
        }
        assert_true(reason_search_decided(s));
        if (decided != '\0')
            assert_int_equal(*reason_search_candidates(s)[reason_search_vote(s).winner].canon.p, decided);
        reason_search_close(s);
    }
    assert_true(early > 100);
}

static void children(void **state)
{
    struct reason_search *s = open_search(4, 4, 3, REASON_BEST);
    const struct reason_child unknown[4] = { { NAN, false, { "", 0 } },
                                             { NAN, false, { "", 0 } },
                                             { 0, false, { "", 0 } },
                                             { 0, true, { "a", 1 } } },
                              none[4] = { { NAN, false, { "", 0 } },
                                          { NAN, true, { "a", 1 } },
                                          { NAN, false, { "", 0 } },
                                          { NAN, false, { "", 0 } } },
                              ends[4] = { { 0.5, false, { "", 0 } },
                                          { 1, true, { "b", 1 } },
                                          { 1, true, { "c", 1 } },
                                          { 0, false, { "", 0 } } };
    struct err e;
    int kept;

    (void)state;
    assert_int_equal(reason_search_vote(s).winner, -1);
    assert_int_equal(reason_search_add(s, 0, unknown, &kept, &e), ERR_OK);
    assert_int_equal(kept, 2); /* no score is below all others, and of equal ones the first is kept */
    assert_int_equal(reason_search_add(s, 0, none, &kept, &e), ERR_OK);
    assert_int_equal(kept, 0);
    assert_true(reason_search_lives(s, 0) && !reason_search_decided(s));
    assert_int_equal(reason_search_add(s, 0, ends, &kept, &e), ERR_OK);
    assert_int_equal(kept, 1);
    assert_int_equal(reason_search_live(s), 0);
    assert_true(str_eq(reason_search_candidates(s)[0].canon, STR("b")));
    reason_search_close(s);
    s = open_search(2, 1, 1, REASON_MAJORITY);
    assert_int_equal(reason_search_add(s, 1, unknown, &kept, &e), ERR_OK);
    assert_false(reason_search_lives(s, 1)); /* its steps are used up */
    assert_int_equal(reason_search_vote(s).winner, -1);
    reason_search_close(s);
}

static void sizes(void **state)
{
    static const char *const bad[] = { "",
                                       "0",
                                       "-4",
                                       "4x",
                                       "x4",
                                       "4x0",
                                       "4x3",
                                       "6",
                                       "1000000000",
                                       "4x8",
                                       "257",
                                       "4.0",
                                       " 4",
                                       "4 ",
                                       "4x2x1",
                                       "0x10",
                                       "512x4",
                                       "16x-4",
                                       "4X2",
                                       "nan",
                                       "1e2",
                                       "+4",
                                       "4x 2",
                                       "999999999999999999999",
                                       "4x1000000000" };
    static const struct {
        const char *s;
        int n, width;
    } good[] = { { "1", 1, 1 },   { "3", 3, 3 },     { "4", 4, 4 },
                 { "16", 16, 4 }, { "16x2", 16, 2 }, { "256x256", 256, 256 } };
    int n = -1, width = -1;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (reason_search_size(bad[i], &n, &width) || n != -1 || width != -1)
            fail_msg("'%s' is taken", bad[i]);
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_true(reason_search_size(good[i].s, &n, &width));
        assert_true(n == good[i].n && width == good[i].width);
    }
    for (int i = 0; i < 4; i++) {
        const struct reason_search_opts o[] = { { 0, 1, 1, REASON_LAST, REASON_BEST },
                                                { 257, 1, 1, REASON_LAST, REASON_BEST },
                                                { 4, 3, 1, REASON_LAST, REASON_BEST },
                                                { 4, 2, 0, REASON_LAST, REASON_BEST } };
        struct reason_search *s;
        struct err e;

        assert_int_equal(reason_search_open(&s, &o[i], &e), ERR_ARG);
    }
    reason_search_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vectors),
        cmocka_unit_test(stops_when_decided),
        cmocka_unit_test(children),
        cmocka_unit_test(sizes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
