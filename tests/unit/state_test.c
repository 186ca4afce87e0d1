/* SPDX-License-Identifier: Apache-2.0 */
/* state_test.c - random programs of feed, undo, fork and clear against plain evaluation: not a byte differs.
 *
 * For each family under tests/golden/models (and $GOLDENS/models): CHIMERE_TEST_PROGRAMS programs, 1,000 unless
 * set. After each program every sequence is evaluated again from its first token, in another run without undo, and
 * the logits of all its positions must be the bytes that the program saw. */
#include "base/rng.h"
#include "golden.h"

enum { SEQS = 3, LEN_MAX = 48, OPS = 9, UNDO = 4, STEP_MAX = 11 };

struct seq {
    int32_t token[LEN_MAX];
    float  *logits[LEN_MAX]; /* of each position, where they were asked for; else NULL */
    int     n;
};

struct program {
    struct rig *rig;
    struct seq  seq[SEQS];
    uint64_t    seed, at; /* random stream */
    int         n_vocab;
};

static uint32_t draw(struct program *p, uint32_t n)
{
    uint32_t r[4];

    rng_block(r, p->seed, 0, p->at++);
    return r[0] % n;
}

static void cut(struct seq *s, int n)
{
    while (s->n > n) {
        free(s->logits[--s->n]);
        s->logits[s->n] = NULL;
    }
}

/* One step: up to STEP_MAX rows, of one sequence or of all, in random order. */
static void feed(struct program *p)
{
    struct run_row rows[STEP_MAX];
    int seq_of[STEP_MAX], index[STEP_MAX], n = 0, want = 1 + (int)draw(p, STEP_MAX);
    bool one = draw(p, 2) == 0;
    int only = (int)draw(p, SEQS);
    struct err e = { 0 };

    for (int i = 0; i < want; i++) {
        int q = one ? only : (int)draw(p, SEQS);
        struct seq *s = &p->seq[q];

        if (s->n == LEN_MAX)
            continue;
        s->token[s->n] = (int32_t)draw(p, (uint32_t)p->n_vocab);
        rows[n] = (struct run_row){ s->token[s->n], q, draw(p, 3) == 0 };
        seq_of[n] = q;
        index[n++] = s->n;
        s->logits[s->n++] = NULL;
    }
    if (n == 0)
        return;
    if (run_step(p->rig->r, rows, n, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    for (int i = 0; i < n; i++)
        if (rows[i].logits) {
            float *v = malloc((size_t)p->n_vocab * sizeof *v);

            assert_non_null(v);
            memcpy(v, run_logits(p->rig->r, i), (size_t)p->n_vocab * sizeof *v);
            p->seq[seq_of[i]].logits[index[i]] = v;
        }
}

static void undo(struct program *p)
{
    int q = (int)draw(p, SEQS);
    int64_t most = run_undoable(p->rig->r, q);
    int64_t n = most == 0 ? 0 : 1 + (int64_t)draw(p, (uint32_t)most);
    struct err e = { 0 };

    if (run_undo(p->rig->r, q, n, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    cut(&p->seq[q], p->seq[q].n - (int)n);
}

static void fork_one(struct program *p)
{
    int src = (int)draw(p, SEQS), dst = (int)draw(p, SEQS);
    struct err e = { 0 };

    if (run_fork(p->rig->r, dst, src, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    if (dst == src)
        return;
    cut(&p->seq[dst], 0);
    for (int i = 0; i < p->seq[src].n; i++) {
        p->seq[dst].token[i] = p->seq[src].token[i];
        p->seq[dst].logits[i] = NULL;
    }
    p->seq[dst].n = p->seq[src].n;
}

static void compare(struct program *p, struct rig *plain)
{
    for (int q = 0; q < SEQS; q++) {
        struct seq *s = &p->seq[q];

        assert_int_equal(run_pos(p->rig->r, q), s->n);
        if (s->n == 0)
            continue;
        float *all = logits_of(plain, s->token, s->n, s->n);
        for (int i = 0; i < s->n; i++)
            if (s->logits[i] != NULL &&
                memcmp(s->logits[i], all + (int64_t)i * p->n_vocab, (size_t)p->n_vocab * sizeof(float)) != 0)
                fail_msg("program %llu: sequence %d differs at position %d of %d",
                         (unsigned long long)p->seed, q, i, s->n);
        free(all);
    }
}

static void run_program(struct rig *rig, struct rig *plain, uint64_t seed)
{
    struct program p = { .rig = rig, .seed = seed, .n_vocab = rig->n_vocab };

    for (int q = 0; q < SEQS; q++)
        run_clear(rig->r, q);
    for (int i = 0; i < OPS; i++)
        switch (draw(&p, 8)) {
        case 0:
        case 1:
            undo(&p);
            break;
        case 2:
            fork_one(&p);
            break;
        case 3: {
            int q = (int)draw(&p, 2 * SEQS);

            if (q < SEQS) {
                run_clear(rig->r, q);
                cut(&p.seq[q], 0);
            }
            break;
        }
        default:
            feed(&p);
        }
    feed(&p); /* so that what the last operation left is looked at */
    compare(&p, plain);
    for (int q = 0; q < SEQS; q++)
        cut(&p.seq[q], 0);
}

static void check_family(const char *path)
{
    const char *env = getenv("CHIMERE_TEST_PROGRAMS");
    long programs = env != NULL ? strtol(env, NULL, 10) : 1000;
    struct rig rig, plain;

    assert_true(programs > 0);
    rig_open(&rig, path, 1, &(struct run_opts){ .ctx_tokens = LEN_MAX, .n_seq = SEQS, .rows_max = STEP_MAX,
                                                .undo_tokens = UNDO });
    rig_open(&plain, path, 1, &(struct run_opts){ .ctx_tokens = LEN_MAX });
    for (long i = 0; i < programs; i++)
        run_program(&rig, &plain, (uint64_t)i);
    print_message("%s: %ld programs\n", path, programs);
    rig_close(&rig);
    rig_close(&plain);
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

/* A fork is a page table and one block, and writes of either side stay its own, across page borders. */
static void forks_across_pages(void **state)
{
    enum { N = 300 };
    int32_t tokens[N];
    struct err e = { 0 };
    struct rig rig, plain;
    const char *path = "tests/golden/models/qwen35moe-a.gguf";

    (void)state;
    for (int i = 0; i < N; i++)
        tokens[i] = i * 37 % 512;
    rig_open(&rig, path, 1, &(struct run_opts){ .ctx_tokens = 600, .n_seq = 3 });
    rig_open(&plain, path, 1, &(struct run_opts){ .ctx_tokens = 600 });
    for (int at = 250; at < 260; at += 3) {
        run_clear(rig.r, 0);
        if (run_feed(rig.r, 0, tokens, at, 0, NULL, NULL, NULL, &e) || run_fork(rig.r, 1, 0, &e) ||
            run_fork(rig.r, 2, 1, &e) || run_feed(rig.r, 1, tokens + 1, 20, 0, NULL, NULL, NULL, &e) ||
            run_feed(rig.r, 0, tokens + at, 20, 0, NULL, NULL, NULL, &e))
            fail_msg("%s", e.msg);
        for (int q = 0; q < 3; q++) {
            int32_t same[N];
            const int32_t last = 5;
            int n = q == 2 ? at : at + 20;

            memcpy(same, tokens, sizeof same);
            if (q == 1)
                memcpy(same + at, tokens + 1, 20 * sizeof *same);
            same[n] = last;
            if (run_feed(rig.r, q, &last, 1, 1, NULL, NULL, NULL, &e) != ERR_OK)
                fail_msg("%s", e.msg);
            float *ref = logits_of(&plain, same, n + 1, 1);
            assert_memory_equal(ref, run_logits_last(rig.r), (size_t)rig.n_vocab * sizeof *ref);
            free(ref);
        }
    }
    rig_close(&rig);
    rig_close(&plain);
}

static void undo_out_of_reach(void **state)
{
    const int32_t tokens[10] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 };
    struct err e = { 0 };
    struct rig rig;

    (void)state;
    rig_open(&rig, "tests/golden/models/qwen35moe-a.gguf", 1, &(struct run_opts){ .ctx_tokens = 64 });
    assert_int_equal(run_feed(rig.r, 0, tokens, 10, 0, NULL, NULL, NULL, &e), ERR_OK);
    assert_int_equal(run_undoable(rig.r, 0), 0);
    assert_int_equal(run_undo(rig.r, 0, 1, &e), ERR_ARG);
    assert_non_null(strstr(e.msg, "cannot be undone"));
    assert_int_equal(run_undo(rig.r, 0, 0, &e), ERR_OK);
    assert_int_equal(run_fork(rig.r, 0, 1, &e), ERR_ARG);
    assert_int_equal(run_pos(rig.r, 0), 10);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_families),
        cmocka_unit_test(all_families),
        cmocka_unit_test(forks_across_pages),
        cmocka_unit_test(undo_out_of_reach),
    };

    return cmocka_run_group_tests_name("state", tests, NULL, NULL);
}
