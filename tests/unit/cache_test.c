/* SPDX-License-Identifier: Apache-2.0 */
/* cache_test.c - the ladder of snapshots: where rungs stand, what a match keeps, and that nothing of it changes a
 * byte: CHIMERE_TEST_PROGRAMS random programs (1,000 unless set) for each family. */
#include "program.h"
#include "run/internal.h"

#define MODEL "tests/golden/models/qwen35moe-a.gguf"

static void ok(enum err_code code, const struct err *e)
{
    if (code != ERR_OK)
        fail_msg("%s", e->msg);
}

static int64_t snapshot_bytes(const char *path)
{
    struct rig rig;
    int64_t n;

    rig_open(&rig, path, 1, &(struct run_opts){ .ctx_tokens = 8 });
    n = run_snapshot_bytes(rig.m);
    assert_true(n > 0);
    rig_close(&rig);
    return n;
}

static void match(struct program *p)
{
    int q = (int)draw(p, SEQS), n;
    int32_t tokens[LEN_MAX];
    struct run_match m;
    struct err e = { 0 };
    int64_t held = run_pos(p->rig->r, q), undoable = run_undoable(p->rig->r, q), want;

    n = vary(p, draw(p, 3) == 0 ? (int)draw(p, SEQS) : q, tokens);
    program_ok(p, "match", run_match(p->rig->r, q, tokens, n, &m, &e), &e);
    assert_int_equal(m.held, held);
    assert_true(m.common <= held && m.common <= n && m.kept <= m.common && m.kept < n);
    assert_memory_equal(tokens, p->seq[q].token, (size_t)m.common * sizeof *tokens);
    assert_int_equal(m.had, m.common < held ? p->seq[q].token[m.common] : -1);
    assert_int_equal(m.given, m.common < n ? tokens[m.common] : -1);
    want = m.common < n ? m.common : n - 1;
    if (held - want <= undoable)
        assert_int_equal(m.kept, want);
    else if (p->rig->r->cache.spacing > 0) /* a step may have jumped over the place of a rung */
        assert_true(want - m.kept < p->rig->r->cache.spacing + STEP_MAX);
    feed_rest(p, q, tokens, n, m.kept);
}

static void run_program(struct rig *rig, struct rig *plain, uint64_t seed)
{
    struct program p = { .rig = rig, .seed = seed, .n_vocab = rig->n_vocab };

    for (int q = 0; q < SEQS; q++)
        run_clear(rig->r, q);
    for (int i = 0; i < 10; i++)
        switch (draw(&p, 10)) {
        case 0:
            undo(&p);
            break;
        case 1:
            fork_one(&p);
            break;
        case 2:
            if (draw(&p, 3) == 0)
                clear_one(&p);
            break;
        case 3:
        case 4:
            run_mark(rig->r, (int)draw(&p, SEQS));
            break;
        case 5:
        case 6:
        case 7:
            match(&p);
            break;
        case 8:
            feed(&p, (int)draw(&p, SEQS), 1 + (int)draw(&p, 40));
            break;
        default:
            step(&p);
        }
    step(&p);
    compare(&p, plain);
}

/* Rungs from none to more than anyone needs, undo or none. */
static void check_family(const char *path)
{
    long programs = program_count();
    int64_t bytes = snapshot_bytes(path);
    struct rig rig, plain;

    rig_open(&plain, path, 1, &(struct run_opts){ .ctx_tokens = LEN_MAX });
    for (int kind = 0; kind < 5; kind++) {
        static const int rungs[5] = { 0, 1, 2, 5, 50 }, devices[5] = { 1, 2, -2, 3, -3 };

        rig_open_on(&rig, devices[kind], path, 1,
                    &(struct run_opts){ .ctx_tokens = LEN_MAX,
                                        .n_seq = SEQS,
                                        .rows_max = STEP_MAX,
                                        .undo_tokens = kind % 2 ? UNDO : 0,
                                        .checkpoint_bytes = rungs[kind] * bytes * SEQS });
        for (long i = kind; i < programs; i += 5)
            run_program(&rig, &plain, (uint64_t)i);
        rig_close(&rig);
    }
    rig_close(&plain);
    print_message("%s: %ld programs, %lld bytes a snapshot\n", path, programs, (long long)bytes);
}

static void own_families(void **state)
{
    (void)state;
    each_model("tests/golden/models", check_family);
}

static void all_families(void **state)
{
    (void)state;
    each_golden(check_family);
}

/* A byte less than a snapshot is none. */
static void budget(void **state)
{
    const int32_t one = 1;
    int64_t bytes = snapshot_bytes(MODEL);

    (void)state;
    for (int less = 0; less < 2; less++) {
        struct err e = { 0 };
        struct rig rig;

        rig_open(&rig, MODEL, 1, &(struct run_opts){ .ctx_tokens = 8, .checkpoint_bytes = bytes - less });
        ok(run_feed(rig.r, 0, &one, 1, 0, NULL, NULL, NULL, &e), &e);
        run_mark(rig.r, 0);
        assert_int_equal(rig.r->cache.track[0].n, 1 - less);
        rig_close(&rig);
    }
}

/* The numbers of run.h: N rungs, G = N / 2 on a grid, S tokens apart. */
static void spacing(void **state)
{
    static const struct {
        int rungs, seqs, ctx, want;
    } cases[] = {
        { 0, 1, 4096, 0 },    { 1, 1, 4096, 0 },     { 2, 1, 4096, 2048 }, { 8, 1, 4096, 820 },
        { 16, 2, 4096, 820 }, { 1000, 1, 4096, 32 }, { 7, 2, 4096, 2048 },
    };
    int64_t bytes = snapshot_bytes(MODEL);

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct rig rig;

        rig_open(&rig, MODEL, 1,
                 &(struct run_opts){
                     .ctx_tokens = cases[i].ctx, .n_seq = cases[i].seqs, .checkpoint_bytes = cases[i].rungs * bytes });
        assert_int_equal(rig.r->cache.spacing, cases[i].want);
        rig_close(&rig);
    }
}

/* A prompt that shares a prefix is evaluated again from less than one spacing before the end of it, whatever the
 * prefix; the grid stays when marks are many. */
static void never_more_than_a_rung(void **state)
{
    enum { N = 400 };
    int32_t tokens[N];
    struct err e = { 0 };
    struct run_match m;
    struct rig rig;

    (void)state;
    rig_open(&rig, MODEL, 1,
             &(struct run_opts){ .ctx_tokens = N, .rows_max = 100, .checkpoint_bytes = 12 * snapshot_bytes(MODEL) });
    int64_t s = rig.r->cache.spacing;
    assert_int_equal(s, 58); /* 400 / 7 */
    for (int i = 0; i < N; i++)
        tokens[i] = i * 37 % 512;
    for (int shared = N - 1; shared > 0; shared -= 13) {
        int32_t other = tokens[shared];

        /* Marks everywhere take no room from the grid. */
        for (int64_t at = run_pos(rig.r, 0), n; at < N; at += n) {
            n = N - at < 7 ? N - at : 7;
            ok(run_feed(rig.r, 0, tokens + at, n, 0, NULL, NULL, NULL, &e), &e);
            run_mark(rig.r, 0);
            assert_true(rig.r->cache.track[0].n <= 12);
        }
        tokens[shared] = (other + 1) % 512;
        ok(run_match(rig.r, 0, tokens, N, &m, &e), &e);
        assert_int_equal(m.common, shared);
        assert_true(m.kept > shared - s && m.kept <= shared);
        assert_int_equal(m.had, other);
        assert_int_equal(m.given, tokens[shared]);
    }
    rig_close(&rig);
}

/* A mark is where a match can go back to exactly; without a budget it is the beginning. */
static void marks(void **state)
{
    int32_t tokens[40];
    struct err e = { 0 };
    struct run_match m;
    struct rig plain;

    (void)state;
    for (int i = 0; i < 40; i++)
        tokens[i] = i;
    rig_open(&plain, MODEL, 1, &(struct run_opts){ .ctx_tokens = 64 });
    for (int rungs = 0; rungs < 2; rungs++) {
        struct rig rig;

        rig_open(
            &rig, MODEL, 1,
            &(struct run_opts){ .ctx_tokens = 64, .n_seq = 2, .checkpoint_bytes = 2 * rungs * snapshot_bytes(MODEL) });
        ok(run_feed(rig.r, 0, tokens, 17, 0, NULL, NULL, NULL, &e), &e);
        run_mark(rig.r, 0);
        run_mark(rig.r, 0);
        assert_int_equal(rig.r->cache.track[0].n, rungs);
        ok(run_feed(rig.r, 0, tokens + 17, 20, 0, NULL, NULL, NULL, &e), &e);
        ok(run_fork(rig.r, 1, 0, &e), &e);
        tokens[20] = 500;
        ok(run_match(rig.r, 1, tokens, 40, &m, &e), &e);
        assert_int_equal(m.common, 20);
        assert_int_equal(m.kept, rungs == 0 ? 0 : 17);
        /* The first sequence still has the snapshot that its fork went back to and left. */
        run_clear(rig.r, 1);
        ok(run_feed(rig.r, 1, tokens + 20, 20, 0, NULL, NULL, NULL, &e), &e);
        run_mark(rig.r, 1);
        ok(run_match(rig.r, 0, tokens, 18, &m, &e), &e);
        assert_int_equal(m.common, 18);
        assert_int_equal(m.kept, rungs == 0 ? 0 : 17);
        ok(run_feed(rig.r, 0, tokens + m.kept, 18 - m.kept, 1, NULL, NULL, NULL, &e), &e);
        float *want = logits_of(&plain, tokens, 18, 1);
        assert_memory_equal(want, run_logits_last(rig.r), (size_t)rig.n_vocab * sizeof *want);
        free(want);
        tokens[20] = 20;
        assert_int_equal(run_match(rig.r, 0, tokens, 0, &m, &e), ERR_ARG);
        assert_int_equal(run_match(rig.r, 2, tokens, 1, &m, &e), ERR_ARG);
        rig_close(&rig);
    }
    rig_close(&plain);
}

/* What is held already is held, but for the last token: it gives the logits. */
static void all_held(void **state)
{
    int32_t tokens[20];
    struct err e = { 0 };
    struct run_match m;
    struct rig rig;

    (void)state;
    for (int i = 0; i < 20; i++)
        tokens[i] = 3 * i;
    rig_open(&rig, MODEL, 1, &(struct run_opts){ .ctx_tokens = 64, .undo_tokens = 2 });
    ok(run_feed(rig.r, 0, tokens, 20, 0, NULL, NULL, NULL, &e), &e);
    ok(run_match(rig.r, 0, tokens, 20, &m, &e), &e);
    assert_int_equal(m.common, 20);
    assert_int_equal(m.kept, 19);
    assert_true(m.had == -1 && m.given == -1);
    ok(run_match(rig.r, 0, tokens, 20, &m, &e), &e);
    assert_int_equal(m.held, 19);
    assert_int_equal(m.kept, 19);
    assert_true(m.had == -1 && m.given == tokens[19]);
    rig_close(&rig);
}

static void bad_budget(void **state)
{
    struct err e = { 0 };
    struct rig rig;
    struct run *r;

    (void)state;
    rig_open(&rig, MODEL, 1, &(struct run_opts){ .ctx_tokens = 8 });
    assert_int_equal(run_open(&r, rig.m, &(struct run_opts){ .ctx_tokens = 8, .checkpoint_bytes = -1 }, &e), ERR_ARG);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(budget),       cmocka_unit_test(spacing),      cmocka_unit_test(never_more_than_a_rung),
        cmocka_unit_test(marks),        cmocka_unit_test(all_held),     cmocka_unit_test(bad_budget),
        cmocka_unit_test(own_families), cmocka_unit_test(all_families),
    };

    return cmocka_run_group_tests_name("cache", tests, NULL, NULL);
}
