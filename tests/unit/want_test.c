/* SPDX-License-Identifier: Apache-2.0 */
/* want_test.c - what a step is asked about its rows of logits: digests, masks that come late, whole
 * rows beside them; the choice from each is that from the row itself. On a GPU, which
 * CHIMERE_TEST_DEVICE names, digests are what is chosen from. Hidden rows that a step leaves there. */
#include <math.h>

#include "base/rng.h"
#include "golden.h"
#include "run/internal.h"
#include "sample/sample.h"

static const char *const model_a = "tests/golden/models/qwen35moe-a.gguf";

enum { SEQS = 4, MOST = 300, WORDS = 64 };

static uint64_t drawn;

static int below(int n)
{
    return (int)(rng_unit(7, 0, drawn++) * n);
}

/* A step: its rows, what each wants, its mask (all of them filled by fill_masks()), its options. */
struct step {
    int n, calls;
    int32_t n_vocab;
    struct run_row row[MOST];
    struct logits_want want[MOST];
    int32_t ids[MOST][LOGITS_IDS_MAX];
    uint32_t mask[MOST][WORDS];
    uint64_t key[MOST]; /* of the mask's bits; 0: no mask */
    struct sampler *s[MOST];
};

static void fill_masks(void *ctx)
{
    struct step *st = ctx;

    st->calls++;
    for (int i = 0; i < st->n; i++)
        for (int j = 0; st->key[i] != 0 && j < (st->n_vocab + 31) / 32; j++)
            st->mask[i][j] = (uint32_t)(rng_unit(st->key[i], 1, (uint64_t)j) * 4294967296.0) |
                             (uint32_t)(rng_unit(st->key[i], 2, (uint64_t)j) * 4294967296.0);
}

/* n rows over the sequences in turn; options of all kinds, some of which need the row. */
static void make_step(struct step *st, int n, int32_t n_vocab, bool masked)
{
    struct err e = { 0 };

    st->n = n;
    st->n_vocab = n_vocab;
    assert_true(n <= MOST && (n_vocab + 31) / 32 <= WORDS);
    for (int i = 0; i < n; i++) {
        struct sample_opts o = sample_defaults();
        int kind = below(5);

        o.temp = kind == 0 ? 0 : 0.8f;
        o.top_k = kind == 1 ? 20 : 0;
        o.top_p = kind == 2 ? 0.9f : 1; /* kinds 3 and 4 want all of the row */
        o.repeat_penalty = kind < 2 && below(2) ? 1.2f : 1;
        o.n_top = 2;
        o.seed = drawn;
        st->row[i] = (struct run_row){ below(n_vocab), i % SEQS, i < 2 || below(6) > 0, false };
        if (sample_open(&st->s[i], &o, n_vocab, &e) != ERR_OK)
            fail_msg("%s", e.msg);
        for (int j = 0; j < 10; j++)
            assert_int_equal(sample_accept(st->s[i], below(n_vocab), &e), ERR_OK);
        sample_wants(st->s[i], NULL, &st->want[i], st->ids[i]);
        st->key[i] = masked && below(3) > 0 ? drawn + 1 : 0;
        st->want[i].mask = st->key[i] != 0 ? st->mask[i] : NULL;
    }
}

/* The choice of row i, from its digest if that is enough. */
static struct sample_pick chosen(struct run *r, struct step *st, int i, int *digests)
{
    const uint32_t *mask = st->want[i].mask;
    struct sample_pick p = { 0 };
    struct logits_digest d;
    struct err e = { 0 };
    bool enough = false, is = run_digest(r, i, &d);

    if (strncmp(test_device(), "cuda", 4) == 0)
        assert_int_equal(is, st->want[i].n_top > 0);
    *digests += is;
    if (is && sample_next_digest(st->s[i], &d, NULL, NULL, 0, &p, &enough, &e))
        fail_msg("%s", e.msg);
    if (!enough && sample_next_row(st->s[i], run_logits(r, i), mask, NULL, NULL, 0, &p, &e))
        fail_msg("%s", e.msg);
    return p;
}

/* The same step asked and not asked: the same logits, the same choices. */
static void both_ways(struct rig *rig, struct step *st, int *digests)
{
    static float all[MOST][512];
    struct err e = { 0 };

    assert_true(rig->n_vocab <= 512);
    for (int q = 0; q < SEQS; q++)
        run_clear(rig->r, q);
    if (run_step(rig->r, st->row, st->n, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    for (int i = 0; i < st->n; i++)
        if (st->row[i].logits)
            memcpy(all[i], run_logits(rig->r, i), (size_t)rig->n_vocab * sizeof(float));
    for (int q = 0; q < SEQS; q++)
        run_clear(rig->r, q);
    memset(st->mask, 0, sizeof st->mask); /* nothing may be chosen before they are filled */
    st->calls = 0;
    if (run_step_want(rig->r, st->row, st->want, st->n, fill_masks, st, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    assert_int_equal(st->calls, 1);
    for (int i = st->n - 1; i >= 0; i--) {
        struct sample_pick a, b = { 0 };
        struct logits_digest d;

        if (!st->row[i].logits) {
            assert_false(run_digest(rig->r, i, &d));
            continue;
        }
        a = chosen(rig->r, st, i, digests);
        struct sample_top top[2] = { { 0, 0 }, { 0, 0 } };
        for (int j = 0; j < a.n_top; j++)
            top[j] = a.top[j];
        if (sample_next_row(st->s[i], all[i], st->want[i].mask, NULL, NULL, 0, &b, &e))
            fail_msg("%s", e.msg);
        if (a.token != b.token || memcmp(&a.logprob, &b.logprob, sizeof a.logprob) != 0)
            fail_msg("row %d of %d: token %d (%.9g), not %d (%.9g)", i, st->n, (int)a.token, (double)a.logprob,
                     (int)b.token, (double)b.logprob);
        assert_int_equal(a.n_top, b.n_top);
        assert_memory_equal(top, b.top, (size_t)b.n_top * sizeof *top);
        if (i % 5 == 0)
            assert_memory_equal(run_logits(rig->r, i), all[i], (size_t)rig->n_vocab * sizeof(float));
    }
}

static void end_step(struct step *st)
{
    for (int i = 0; i < st->n; i++)
        sample_close(st->s[i]);
}

static void choices_of_steps(void **state)
{
    static const int sizes[] = { 1, 2, 5, 16, 65, 130, MOST };
    static struct step st;
    struct rig rig;
    int digests = 0;

    (void)state;
    const struct run_opts o = {
        .ctx_tokens = 512,
        .n_seq = SEQS,
        .rows_max = MOST,
        .logits_max = MOST,
    };
    rig_open(&rig, model_a, 2, &o);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int masked = 0; masked < 2; masked++)
            for (int again = 0; again < 4; again++) { /* a GPU replays steps that it knows */
                make_step(&st, sizes[i], rig.n_vocab, masked);
                both_ways(&rig, &st, &digests);
                end_step(&st);
            }
    print_message("%d digests\n", digests);
    rig_close(&rig);
}

static void count(void *ctx)
{
    ++*(int *)ctx;
}

static void refusals(void **state)
{
    static int32_t ids[LOGITS_IDS_MAX + 1];
    const struct run_row row = { 1, 0, true, false };
    struct logits_want want = { .n_top = 1, .inv_temp = 1, .ids = ids };
    struct logits_digest d;
    struct err e = { 0 };
    struct rig rig;
    int calls = 0;

    (void)state;
    rig_open(&rig, model_a, 1, &(struct run_opts){ .ctx_tokens = 8 });
    assert_false(run_digest(rig.r, 0, &d));
    want.n_top = LOGITS_TOP_MAX + 1;
    assert_int_equal(run_step_want(rig.r, &row, &want, 1, count, &calls, &e), ERR_ARG);
    want.n_top = -1;
    assert_int_equal(run_step_want(rig.r, &row, &want, 1, count, &calls, &e), ERR_ARG);
    want.n_top = LOGITS_TOP_MAX;
    want.n_ids = LOGITS_IDS_MAX + 1;
    assert_int_equal(run_step_want(rig.r, &row, &want, 1, count, &calls, &e), ERR_ARG);
    want.n_ids = 2;
    ids[1] = rig.n_vocab;
    assert_int_equal(run_step_want(rig.r, &row, &want, 1, count, &calls, &e), ERR_ARG);
    assert_non_null(strstr(e.msg, "token 512"));
    ids[1] = -1;
    assert_int_equal(run_pos(rig.r, 0), 0);
    assert_int_equal(calls, 0);
    assert_int_equal(run_step_want(rig.r, &row, &want, 1, count, &calls, &e), ERR_OK);
    assert_int_equal(calls, 1); /* no row has a mask: called all the same */
    assert_int_equal(run_pos(rig.r, 0), 1);
    rig_close(&rig);
}

/* Rows that stay on the device are those that are traced, in the caller's order, also where a
 * GPU replays the step because nobody looks on; logits are what they are without them. */
static void taps_of(const char *path)
{
    enum { N = 23 };
    struct run_row row[N];
    struct err e = { 0 };
    struct rig rig;
    int place[N], at = 0;

    struct run_opts o = { .ctx_tokens = 256, .n_seq = SEQS, .rows_max = 64 };
    rig_open_on(&rig, -3, path, 2, &o);
    const struct model_info *f = model_info(rig.m);
    const int layers[3] = { f->n_layer - 1, 0, f->n_layer };
    const size_t width = (size_t)f->n_embd;
    float *hidden = calloc((size_t)(f->n_layer + 2) * N * width, sizeof *hidden);
    float *out = calloc(width, sizeof *out), *logits = calloc((size_t)f->n_vocab, sizeof *logits);
    struct run *r = NULL;

    o.tap_layers = layers;
    o.n_taps = 3;
    if (f->n_streams > 1) { /* the rows after a layer are not what a drafter takes */
        assert_int_equal(run_open(&r, rig.m, &o, &e), ERR_UNSUPPORTED);
        free(hidden);
        free(out);
        free(logits);
        rig_close(&rig);
        return;
    }
    assert_true(hidden != NULL && out != NULL && logits != NULL);
    for (int i = 0; i < N; i++)
        row[i] = (struct run_row){ below(f->n_vocab), i * 5 % SEQS, i == 7, false };
    for (int q = 0; q < SEQS; q++)
        for (int i = 0; i < N; i++)
            if (row[i].seq == q)
                place[i] = at++;
    if (run_step(rig.r, row, N, &e) || run_open(&r, rig.m, &o, &e))
        fail_msg("%s", e.msg);
    memcpy(logits, run_logits(rig.r, 7), (size_t)f->n_vocab * sizeof *logits);
    assert_false(run_tap(rig.r, 0, 0, out));
    for (int again = 0; again < 4; again++) {
        for (int q = 0; q < SEQS; q++)
            run_clear(r, q);
        r->hidden = again == 0 ? hidden : NULL;
        if (run_step(r, row, N, &e))
            fail_msg("%s", e.msg);
        for (int t = 0; t < 3; t++)
            for (int i = 0; i < N; i++) {
                const size_t at_row = (size_t)(layers[t] + 1) * N + (size_t)place[i];

                assert_true(run_tap(r, t, i, out));
                assert_memory_equal(out, hidden + at_row * width, width * sizeof *out);
            }
        assert_memory_equal(run_logits(r, 7), logits, (size_t)f->n_vocab * sizeof *logits);
    }
    assert_false(run_tap(r, 3, 0, out));
    assert_false(run_tap(r, 0, N, out));
    assert_false(run_tap(r, -1, 0, out));
    assert_false(run_tap(r, 0, -1, out));
    run_close(r);
    rig_close(&rig);
    free(hidden);
    free(logits);
    free(out);
}

static void taps(void **state)
{
    (void)state;
    each_model("tests/golden/models", taps_of);
}

static void taps_refused(void **state)
{
    static const int ones[RUN_TAPS_MAX + 1] = { 0 };
    struct err e = { 0 };
    struct rig rig;
    struct run *r = NULL;

    (void)state;
    rig_open(&rig, model_a, 1, &(struct run_opts){ .ctx_tokens = 8 });
    const int beyond[1] = { model_info(rig.m)->n_layer + 1 }, before[1] = { -1 };
    const struct run_opts bad[] = {
        { .tap_layers = beyond, .n_taps = 1 },
        { .tap_layers = before, .n_taps = 1 },
        { .tap_layers = ones, .n_taps = -1 },
        { .tap_layers = ones, .n_taps = RUN_TAPS_MAX + 1 },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(run_open(&r, rig.m, &bad[i], &e), ERR_ARG);
    assert_null(r);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choices_of_steps),
        cmocka_unit_test(taps),
        cmocka_unit_test(taps_refused),
        cmocka_unit_test(refusals),
    };

    return cmocka_run_group_tests_name("wants", tests, NULL, NULL);
}
