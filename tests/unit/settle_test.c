/* SPDX-License-Identifier: Apache-2.0 */
/* settle_test.c - random programs of steps with draft rows, settle, undo, fork, match, mark, clear,
 * save and restore against plain evaluation: not a byte differs.
 *
 * For one family of each kind of recurrent layer (and all in $GOLDENS/models) CHIMERE_TEST_PROGRAMS
 * programs, 1,000 unless set. Drafts are all right, all wrong, or right up to some place; they are
 * settled at once, or after steps of other sequences. The logits of every row that a sequence kept
 * must be those of a run without drafts. */
#include <unistd.h>

#include "ops/ops.h"
#include "program.h"
#include "run/internal.h"
#include "run/session.h"

enum { OPS = 8, DRAFTS = 5, ROWS = 2 * STEP_MAX };

/* What a run has: so many draft rows, tokens to undo, rungs for each sequence. */
static const struct kind {
    int drafts, undo, rungs;
} kinds[] = { { DRAFTS, 0, 0 }, { 3, UNDO, 0 }, { 1, 0, 4 }, { DRAFTS, 1, 2 } };
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static char dir[256], path[300];

/* A program, and the drafts of its sequences that are not settled. */
struct drafting {
    struct program p;
    int drafts, pending[SEQS];
};

static void settle(struct drafting *d, int q)
{
    struct program *p = &d->p;
    int n = d->pending[q], keep = 0;

    switch (draw(p, 3)) {
    case 0:
        keep = n + (int)draw(p, 2);
        break;
    case 1:
        keep = n == 0 ? 0 : (int)draw(p, (uint32_t)n);
        break;
    default:
        break;
    }
    assert_int_equal(p->rig->r->draft[q], n);
    run_settle(p->rig->r, q, keep);
    assert_int_equal(p->rig->r->draft[q], 0);
    cut(&p->seq[q], keep < n ? p->seq[q].n - n + keep : p->seq[q].n);
    assert_int_equal(run_pos(p->rig->r, q), p->seq[q].n);
    d->pending[q] = 0;
}

static void settle_all(struct drafting *d)
{
    for (int q = 0; q < SEQS; q++)
        settle(d, q);
}

/* Appends to rows what sequence q is to read: certain rows, then drafts. */
static int add_rows(struct drafting *d, struct run_row *rows, int n, int q)
{
    struct program *p = &d->p;
    struct seq *s = &p->seq[q];
    int certain = draw(p, 4) == 0 ? (int)draw(p, 6) : (int)draw(p, 2);
    int drafts = (int)draw(p, (uint32_t)d->drafts + 1);

    for (int i = 0; i < certain + drafts && s->n < LEN_MAX && n < ROWS; i++) {
        s->token[s->n] = (int32_t)draw(p, (uint32_t)p->n_vocab);
        rows[n++] = (struct run_row){ s->token[s->n], q, draw(p, 2) == 0, i >= certain };
        s->logits[s->n++] = NULL;
        d->pending[q] += i >= certain;
    }
    return n;
}

/* Rows of several sequences take turns, the order of each kept. */
static void shuffle(struct program *p, struct run_row *rows, int n)
{
    for (int i = 0; i < 2 * n && n > 1; i++) {
        int at = (int)draw(p, (uint32_t)n - 1);
        struct run_row row = rows[at];

        if (row.seq == rows[at + 1].seq)
            continue;
        rows[at] = rows[at + 1];
        rows[at + 1] = row;
    }
}

static void draft_step(struct drafting *d)
{
    struct program *p = &d->p;
    struct run_row rows[ROWS];
    int index[ROWS], n = 0, at[SEQS];
    struct err e = { 0 };

    for (int q = 0; q < SEQS; q++) {
        at[q] = p->seq[q].n;
        if (d->pending[q] == 0 && draw(p, 3) > 0)
            n = add_rows(d, rows, n, q);
    }
    if (n == 0)
        return;
    shuffle(p, rows, n);
    for (int i = 0; i < n; i++)
        index[i] = at[rows[i].seq]++;
    program_ok(p, "step", run_step(p->rig->r, rows, n, &e), &e);
    for (int i = 0; i < n; i++)
        if (rows[i].logits)
            keep_logits(p, &p->seq[rows[i].seq], index[i], run_logits(p->rig->r, i));
    for (int q = 0; q < SEQS; q++)
        if (draw(p, 3) > 0)
            settle(d, q);
}

static void match(struct drafting *d)
{
    struct program *p = &d->p;
    int q = (int)draw(p, SEQS), n;
    int32_t tokens[LEN_MAX];
    struct run_match m;
    struct err e = { 0 };

    n = vary(p, draw(p, 3) == 0 ? (int)draw(p, SEQS) : q, tokens);
    program_ok(p, "match", run_match(p->rig->r, q, tokens, n, &m, &e), &e);
    feed_rest(p, q, tokens, n, m.kept);
}

/* Sequence `from` is saved, and restored, or the first part of it, as `to`. */
static void save_and_load(struct program *p)
{
    static const struct run_session_id id = { 78, "settle", 0 };
    int from = (int)draw(p, SEQS), to = (int)draw(p, SEQS);
    uint32_t most = (uint32_t)p->seq[from].n;
    int64_t n = draw(p, 2) == 0 ? most : draw(p, most + 1);
    struct run_session *s;
    struct err e = { 0 };

    program_ok(p, "session", run_session_open(&s, path, &e), &e);
    program_ok(p, "session", run_session_attach(s, p->rig->r, &id, &e), &e);
    program_ok(p, "save", run_session_save(s, p->rig->r, from, NULL, 0, &e), &e);
    program_ok(p, "load", run_session_load(s, p->rig->r, to, n, &e), &e);
    run_session_close(s);
    (void)unlink(path);
    copy_seq(&p->seq[to], &p->seq[from]);
    assert_true(run_pos(p->rig->r, to) <= n);
    cut(&p->seq[to], (int)run_pos(p->rig->r, to));
}

/* Operations that want settled sequences. */
static void other(struct drafting *d)
{
    struct program *p = &d->p;
    uint32_t what = draw(p, 24);

    settle_all(d);
    if (what < 6)
        undo(p);
    else if (what < 11)
        fork_one(p);
    else if (what < 15)
        match(d);
    else if (what < 17)
        run_mark(p->rig->r, (int)draw(p, SEQS));
    else if (what < 19)
        clear_one(p);
    else if (what < 23)
        feed(p, (int)draw(p, SEQS), 1 + (int)draw(p, 30));
    else
        save_and_load(p);
}

static void run_program(struct rig *rig, struct rig *plain, const struct kind *kind, uint64_t seed)
{
    struct drafting d = { .p = { .rig = rig, .seed = seed, .n_vocab = rig->n_vocab }, .drafts = kind->drafts };

    for (int q = 0; q < SEQS; q++)
        run_clear(rig->r, q);
    for (int i = 0; i < OPS; i++)
        if (draw(&d.p, 3) == 0)
            other(&d);
        else
            draft_step(&d);
    settle_all(&d);
    step(&d.p); /* so that what the last operation left is looked at */
    compare(&d.p, plain);
}

static void check_family(const char *model)
{
    long programs = program_count();
    struct rig rig, plain;

    rig_open(&plain, model, 1, &(struct run_opts){ .ctx_tokens = LEN_MAX });
    for (int k = 0; k < KINDS; k++) {
        static const int devices[KINDS] = { 1, 2, -2, -3 };
        const struct kind *kind = &kinds[k];

        rig_open_on(&rig, devices[k], model, 1 + k % 2,
                    &(struct run_opts){ .ctx_tokens = LEN_MAX,
                                        .n_seq = SEQS,
                                        .rows_max = ROWS,
                                        .undo_tokens = kind->undo,
                                        .draft_max = kind->drafts,
                                        .checkpoint_bytes = kind->rungs * SEQS * run_snapshot_bytes(plain.m) });
        for (long i = k; i < programs; i += KINDS)
            run_program(&rig, &plain, kind, (uint64_t)i);
        rig_close(&rig);
    }
    print_message("%s: %ld programs\n", model, programs);
    rig_close(&plain);
}

/* One model for each kind of recurrent layer. */
static void own_families(void **state)
{
    static const char *const models[] = { "qwen35moe-a", "kimilinear-a", "falconmamba-a", "bamba-a",
                                          "lfm2moe-a",   "zamba2-c",     "hymba-c" };

    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        char model[256];

        (void)snprintf(model, sizeof model, "tests/golden/models/%s.gguf", models[i]);
        check_family(model);
    }
}

static void all_families(void **state)
{
    (void)state;
    each_golden(check_family);
}

static void refused(struct run *r, const struct run_row *rows, int n, const char *says)
{
    struct err e = { 0 };

    assert_int_equal(run_step(r, rows, n, &e), ERR_ARG);
    if (strstr(e.msg, says) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", e.msg, says);
}

/* Until it is settled a sequence takes no row, and is not copied or saved; it can be cleared. */
static void contract(void **state)
{
    const struct run_row good[] = {
        { 1, 0, true, false }, { 2, 0, true, true }, { 4, 1, true, true }, { 3, 0, true, true }
    };
    const struct run_row order[] = { { 1, 0, true, true }, { 2, 0, true, false } };
    const struct run_row many[] = { { 1, 0, true, true }, { 2, 0, true, true }, { 2, 0, true, true } };
    const int32_t token = 1;
    struct run_match m;
    struct err e = { 0 };
    struct rig rig;

    (void)state;
    rig_open(&rig, "tests/golden/models/qwen35moe-a.gguf", 1,
             &(struct run_opts){ .ctx_tokens = 64, .n_seq = 2, .undo_tokens = 4, .draft_max = 2 });
    refused(rig.r, order, 2, "follows a draft row");
    refused(rig.r, many, 3, "3 draft rows of sequence 0 in a step: at most 2");
    assert_int_equal(run_pos(rig.r, 0), 0);
    assert_int_equal(run_step(rig.r, good, 4, &e), ERR_OK);
    assert_int_equal(rig.r->draft[0], 2);
    assert_int_equal(rig.r->draft[1], 1);
    assert_int_equal(run_pos(rig.r, 0), 3);
    refused(rig.r, good, 1, "sequence 0 has draft rows that are not settled");
    assert_int_equal(run_undoable(rig.r, 0), 0);
    assert_int_equal(run_undo(rig.r, 0, 1, &e), ERR_ARG);
    assert_int_equal(run_fork(rig.r, 1, 0, &e), ERR_ARG);
    assert_int_equal(run_match(rig.r, 0, &token, 1, &m, &e), ERR_ARG);
    run_settle(rig.r, 0, 1);
    assert_int_equal(run_pos(rig.r, 0), 2);
    assert_true(run_undoable(rig.r, 0) >= 2);
    assert_int_equal(run_fork(rig.r, 1, 0, &e), ERR_OK); /* what waited there is forgotten */
    assert_int_equal(rig.r->draft[1], 0);
    assert_int_equal(run_step(rig.r, good, 4, &e), ERR_OK);
    run_clear(rig.r, 0);
    run_settle(rig.r, 0, 1);
    assert_int_equal(run_pos(rig.r, 0), 0);
    rig_close(&rig);
}

/* A row's inputs for each draft row and recurrent layer is all the memory that drafts take. */
static void memory(void **state)
{
    int64_t bytes[3];

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct rig rig;

        rig_open(&rig, "tests/golden/models/qwen35moe-a.gguf", 1,
                 &(struct run_opts){ .ctx_tokens = 64, .draft_max = 8 * i });
        bytes[i] = run_state_bytes(rig.r);
        rig_close(&rig);
    }
    assert_true(bytes[1] > bytes[0]);
    assert_true(bytes[2] - bytes[1] <= bytes[1] - bytes[0]);
}

/* 1,000 steps of one to three sequences, each with its newest token and 0, 1 or 3 drafts (alike, or
 * each its own number), of which some are kept: a GPU records a step for each shape, not for what
 * was kept or where a log stands. */
static void graphs(const struct run_opts *o, bool alike, uint64_t most)
{
    struct rig rig;

    rig_open(&rig, "tests/golden/models/qwen35moe-a.gguf", 1, o);
    struct program p = { .rig = &rig, .seed = 1, .n_vocab = rig.n_vocab };
    for (int i = 0; i < 1000; i++) {
        static const int widths[] = { 0, 1, 3 };
        int n_seq = 1 + (int)draw(&p, SEQS), width = widths[draw(&p, 3)], n = 0;
        int drafts[SEQS];
        struct run_row rows[ROWS];
        struct err e = { 0 };

        for (int q = 0; q < n_seq; q++)
            drafts[q] = alike ? width : widths[draw(&p, 3)];
        for (int q = 0; q < n_seq; q++)
            for (int j = 0; j <= drafts[q]; j++)
                rows[n++] = (struct run_row){ (int32_t)draw(&p, 500), q, true, j > 0 };
        for (int q = 0; q < n_seq; q++)
            if (run_pos(rig.r, q) + 4 > 240) /* pages are another matter */
                run_clear(rig.r, q);
        program_ok(&p, "step", run_step(rig.r, rows, n, &e), &e);
        for (int q = 0; q < n_seq; q++)
            run_settle(rig.r, q, (int)draw(&p, (uint32_t)drafts[q] + 1));
    }
    print_message("%d tokens to undo, drafts %s: %d graphs\n", o->undo_tokens, alike ? "alike" : "of any number",
                  (int)dev_graphs(model_dev(rig.m)));
    assert_true(dev_graphs(model_dev(rig.m)) < most);
    rig_close(&rig);
}

/* A step is two graphs. Where rows can be undone, those that fold rows of some sequences into their
 * bases have nodes of their own, and are other shapes. */
static void graphs_of_mixed_steps(void **state)
{
    struct run_opts o = { .ctx_tokens = 256, .n_seq = SEQS, .draft_max = 3 };

    (void)state;
    graphs(&o, true, 40);
    graphs(&o, false, 40);
    o.undo_tokens = 8;
    graphs(&o, true, 60);
}

static int make_dir(void **state)
{
    const char *tmp = getenv("TMPDIR");

    (void)state;
    (void)snprintf(dir, sizeof dir, "%s/settle_test.XXXXXX", tmp != NULL ? tmp : "/tmp");
    if (mkdtemp(dir) == NULL)
        return -1;
    (void)snprintf(path, sizeof path, "%s/s", dir);
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contract),     cmocka_unit_test(memory),       cmocka_unit_test(graphs_of_mixed_steps),
        cmocka_unit_test(own_families), cmocka_unit_test(all_families),
    };

    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
