/* SPDX-License-Identifier: Apache-2.0 */
/* state_test.c - random programs of feed, undo, fork and clear against plain evaluation: not a byte differs.
 *
 * For each family under tests/golden/models (and $GOLDENS/models): CHIMERE_TEST_PROGRAMS programs, 1,000 unless
 * set. After each program every sequence is evaluated again from its first token, in another run without undo, and
 * the logits of all its positions must be the bytes that the program saw. The program's layers lie on two devices. */
#include "program.h"

enum { OPS = 9 };

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
        case 3:
            if (draw(&p, 2) == 0)
                clear_one(&p);
            break;
        default:
            step(&p);
        }
    step(&p); /* so that what the last operation left is looked at */
    compare(&p, plain);
}

static void check_family(const char *path)
{
    long programs = program_count();
    struct rig rig, plain;

    rig_open_on(&rig, -2, path, 1,
                &(struct run_opts){ .ctx_tokens = LEN_MAX, .n_seq = SEQS, .rows_max = STEP_MAX, .undo_tokens = UNDO });
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
