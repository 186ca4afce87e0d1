/* SPDX-License-Identifier: Apache-2.0 */
/* kv_test.c - KV rows that all sequences share: pages are taken as they are used, a step without room
 * changes nothing, and what was computed has the bytes that it has with memory for everything. */
#include "ops/ops.h"
#include "run/placement.h"
#include "session_rig.h"

enum { PAGE = OP_KV_PAGE };

static int64_t left(const struct rig *rig)
{
    return run_kv_left(rig->r) / PAGE;
}

static void feed_seq(struct rig *rig, int seq, const int32_t *tokens, int64_t n)
{
    struct err e = { 0 };

    ok(run_feed(rig->r, seq, tokens, n, 1, NULL, NULL, NULL, &e), &e);
}

/* One more token after n of them gives the logits of a plain run. */
static void goes_on_as(struct rig *rig, int seq, struct rig *plain, const int32_t *tokens, int64_t n)
{
    float *want = logits_of(plain, tokens, n + 1, 1);

    assert_int_equal(run_pos(rig->r, seq), n);
    feed_seq(rig, seq, tokens + n, 1);
    assert_memory_equal(want, run_logits_last(rig->r), (size_t)rig->n_vocab * sizeof *want);
    free(want);
}

/* 32 conversations of 64K where there are 40 pages: each has what it uses. */
static void many_long_sequences(void **state)
{
    enum { N = 32, PAGES = 40, LONG = PAGES - N, FIRST = 10, MORE = PAGE + 10 };
    int32_t tokens[MORE + 1];
    struct rig rig, all, plain;

    (void)state;
    fill(tokens, MORE + 1, 31);
    rig_open(&rig, MODEL, 1, &(struct run_opts){ .ctx_tokens = 65536, .n_seq = N, .kv_tokens = PAGES * PAGE });
    rig_open(&all, MODEL, 1, &(struct run_opts){ .ctx_tokens = 65536, .n_seq = N });
    rig_open(&plain, MODEL, 1, &(struct run_opts){ .ctx_tokens = MORE + 1 });
    assert_int_equal(run_ctx(rig.r), 65536);
    assert_int_equal(left(&rig), PAGES);
    assert_int_equal(left(&all), 65536 / PAGE * N);
    assert_true(run_state_bytes(rig.r) * 50 < run_state_bytes(all.r));
    for (int q = 0; q < N; q++) {
        assert_int_equal(run_kv_need(rig.r, q, FIRST + q), PAGE);
        feed_seq(&rig, q, tokens, FIRST + q);
    }
    for (int q = 0; q < LONG; q++) {
        assert_int_equal(run_kv_need(rig.r, q, MORE - FIRST - q), PAGE);
        feed_seq(&rig, q, tokens + FIRST + q, MORE - FIRST - q);
    }
    assert_int_equal(left(&rig), 0);
    for (int q = 0; q < N; q++)
        goes_on_as(&rig, q, &plain, tokens, q < LONG ? MORE : FIRST + q);
    rig_close(&rig);
    rig_close(&all);
    rig_close(&plain);
}

/* What has no room changes nothing, says so, and has room again once another sequence is cleared. */
static void exhausted(void **state)
{
    enum { N = 2 * PAGE };
    int32_t tokens[N + 1];
    struct run_row rows[3] = { { .token = 1, .seq = 0 }, { .token = 2, .seq = 1 }, { .token = 3, .seq = 2 } };
    struct err e = { 0 };
    struct rig rig, plain;

    (void)state;
    fill(tokens, N + 1, 17);
    rig_open(&rig, MODEL, 1, &(struct run_opts){ .ctx_tokens = N + 1, .n_seq = 3, .kv_tokens = 2 * PAGE + 1 });
    rig_open(&plain, MODEL, 1, &(struct run_opts){ .ctx_tokens = N + 1 });
    assert_int_equal(left(&rig), 3);
    feed_seq(&rig, 0, tokens, PAGE);
    feed_seq(&rig, 1, tokens, PAGE - 1);
    assert_int_equal(run_feed(rig.r, 2, tokens, PAGE + 1, 1, NULL, NULL, NULL, &e), ERR_LIMIT);
    says(&e, "512 KV rows are needed, 256 of 768 for all sequences are left");
    assert_int_equal(run_pos(rig.r, 2), 0);
    assert_int_equal(run_step(rig.r, rows, 3, &e), ERR_LIMIT); /* sequences 0 and 2 need a page each */
    assert_int_equal(left(&rig), 1);
    for (int q = 0; q < 3; q++)
        assert_int_equal(run_pos(rig.r, q), q < 2 ? PAGE - q : 0);
    goes_on_as(&rig, 0, &plain, tokens, PAGE);
    goes_on_as(&rig, 1, &plain, tokens, PAGE - 1);
    assert_int_equal(run_feed(rig.r, 1, tokens, 1, 1, NULL, NULL, NULL, &e), ERR_LIMIT);
    run_clear(rig.r, 0);
    assert_int_equal(left(&rig), 2);
    goes_on_as(&rig, 1, &plain, tokens, PAGE);
    feed_seq(&rig, 2, tokens, PAGE);
    assert_int_equal(left(&rig), 0);
    goes_on_as(&rig, 1, &plain, tokens, PAGE + 1);
    rig_close(&rig);
    rig_close(&plain);
}

/* Sharing costs nothing until a sequence writes; the last of those that share a page writes to it. */
static void forks(void **state)
{
    enum { N = PAGE + 40 };
    int32_t tokens[N + 2];
    struct run_row rows[3] = { { .seq = 0 }, { .seq = 1 }, { .seq = 2 } };
    struct err e = { 0 };
    struct rig rig, plain;

    (void)state;
    fill(tokens, N + 2, 7);
    rig_open(&rig, MODEL, 1, &(struct run_opts){ .ctx_tokens = 2 * PAGE, .n_seq = 3, .kv_tokens = 3 * PAGE });
    rig_open(&plain, MODEL, 1, &(struct run_opts){ .ctx_tokens = 2 * PAGE });
    feed_seq(&rig, 0, tokens, N);
    ok(run_fork(rig.r, 1, 0, &e), &e);
    ok(run_fork(rig.r, 2, 0, &e), &e);
    assert_int_equal(left(&rig), 1);
    for (int q = 0; q < 3; q++)
        rows[q].token = tokens[N];
    assert_int_equal(run_step(rig.r, rows, 3, &e), ERR_LIMIT); /* two copies */
    assert_int_equal(run_step(rig.r, rows, 2, &e), ERR_LIMIT); /* two: sequence 2 keeps the page */
    assert_int_equal(run_kv_need(rig.r, 1, 1), PAGE);
    run_clear(rig.r, 2);
    ok(run_step(rig.r, rows, 2, &e), &e); /* one */
    assert_int_equal(left(&rig), 0);
    for (int q = 0; q < 2; q++)
        goes_on_as(&rig, q, &plain, tokens, N + 1);
    rig_close(&rig);
    rig_close(&plain);
}

/* ---- random programs ---- */

enum { POOL = 4, SEQ_PAGES = 3, SEQ_MAX = 600, N_SEQ = 4, OPS = 24 };

/* Who holds which page, as a step takes them one after the other. */
struct book {
    int page[N_SEQ][SEQ_PAGES]; /* -1: none */
    int holders[POOL];
    int len[N_SEQ];
};

static int left_in(const struct book *b)
{
    int n = 0;

    for (int i = 0; i < POOL; i++)
        n += b->holders[i] == 0;
    return n;
}

/* False when the pages do not suffice; then b is of no more use. */
static bool grow(struct book *b, int q, int n)
{
    for (int i = b->len[q] / PAGE; i * PAGE < b->len[q] + n; i++) {
        int old = b->page[q][i], at = 0;

        if (old >= 0 && b->holders[old] == 1)
            continue;
        while (at < POOL && b->holders[at] > 0)
            at++;
        if (at == POOL)
            return false;
        b->holders[at] = 1;
        b->page[q][i] = at;
        if (old >= 0)
            b->holders[old]--;
    }
    b->len[q] += n;
    return true;
}

static void shorten(struct book *b, int q, int len)
{
    b->len[q] = len;
    for (int i = (len + PAGE - 1) / PAGE; i < SEQ_PAGES; i++) {
        if (b->page[q][i] >= 0)
            b->holders[b->page[q][i]]--;
        b->page[q][i] = -1;
    }
}

struct pool_program {
    struct rig *rig;
    struct book book;
    int32_t token[N_SEQ][SEQ_MAX];
    uint64_t seed, at;
    int refused;
};

static uint32_t some(struct pool_program *p, uint32_t n)
{
    uint32_t r[4];

    rng_block(r, p->seed, 5, p->at++);
    return r[0] % n;
}

static void expect(struct pool_program *p, const struct book *after, bool fits, enum err_code code, const struct err *e)
{
    if (code != (fits ? ERR_OK : ERR_LIMIT))
        fail_msg("program %llu: %s", (unsigned long long)p->seed, code ? e->msg : "there was no room");
    if (fits)
        p->book = *after;
    p->refused += !fits;
    assert_int_equal(left(p->rig), left_in(&p->book));
    for (int q = 0; q < N_SEQ; q++)
        assert_int_equal(run_pos(p->rig->r, q), p->book.len[q]);
}

static void feed_some(struct pool_program *p)
{
    int q = (int)some(p, N_SEQ), n = 1 + (int)some(p, 220), len = p->book.len[q];
    struct book b = p->book;
    struct err e = { 0 };

    n = n < SEQ_MAX - len ? n : SEQ_MAX - len;
    if (n == 0)
        return;
    for (int i = 0; i < n; i++)
        p->token[q][len + i] = (int32_t)some(p, (uint32_t)p->rig->n_vocab);
    bool fits = grow(&b, q, n);

    expect(p, &b, fits, run_feed(p->rig->r, q, p->token[q] + len, n, 0, NULL, NULL, NULL, &e), &e);
}

static void step_all(struct pool_program *p)
{
    struct run_row rows[2 * N_SEQ];
    struct book b = p->book;
    struct err e = { 0 };
    bool fits = true;
    int n = 0;

    for (int q = 0; q < N_SEQ; q++) {
        int more = (int)some(p, 3), len = p->book.len[q];

        more = more < SEQ_MAX - len ? more : SEQ_MAX - len;
        for (int i = 0; i < more; i++) {
            p->token[q][len + i] = (int32_t)some(p, (uint32_t)p->rig->n_vocab);
            rows[n++] = (struct run_row){ .token = p->token[q][len + i], .seq = q };
        }
        fits = fits && (more == 0 || grow(&b, q, more));
    }
    if (n > 0)
        expect(p, &b, fits, run_step(p->rig->r, rows, n, &e), &e);
}

static void fork_some(struct pool_program *p)
{
    int dst = (int)some(p, N_SEQ), src = (int)some(p, N_SEQ);
    struct err e = { 0 };

    ok(run_fork(p->rig->r, dst, src, &e), &e);
    if (dst == src)
        return;
    shorten(&p->book, dst, 0);
    p->book.len[dst] = p->book.len[src];
    memcpy(p->token[dst], p->token[src], sizeof p->token[dst]);
    for (int i = 0; i < SEQ_PAGES; i++) {
        p->book.page[dst][i] = p->book.page[src][i];
        if (p->book.page[src][i] >= 0)
            p->book.holders[p->book.page[src][i]]++;
    }
}

static void shorten_some(struct pool_program *p)
{
    int q = (int)some(p, N_SEQ), n = (int)run_undoable(p->rig->r, q);
    struct err e = { 0 };

    if (n == 0 || some(p, 2) == 0) {
        run_clear(p->rig->r, q);
        shorten(&p->book, q, 0);
        return;
    }
    n = (int)some(p, (uint32_t)(n < 40 ? n : 40)) + 1;
    ok(run_undo(p->rig->r, q, n, &e), &e);
    shorten(&p->book, q, p->book.len[q] - n);
}

static void compare_all(struct pool_program *p, struct rig *plain)
{
    for (int q = 0; q < N_SEQ; q++) {
        struct book b = p->book;
        int n = p->book.len[q];

        if (n == 0 || n == SEQ_MAX || !grow(&b, q, 1))
            continue;
        p->token[q][n] = 3;
        goes_on_as(p->rig, q, plain, p->token[q], n);
        p->book = b;
    }
}

static void pool_family(const char *model)
{
    long programs = (program_count() + 39) / 40;
    struct pool_program p;
    struct rig rig, plain;
    int refused = 0;

    rig_open(&rig, model, 1,
             &(struct run_opts){ .ctx_tokens = SEQ_MAX, .n_seq = N_SEQ, .undo_tokens = 4, .kv_tokens = POOL * PAGE });
    rig_open(&plain, model, 1, &(struct run_opts){ .ctx_tokens = SEQ_MAX });
    for (long i = 0; i < programs && left(&rig) == POOL; i++) { /* not of a model without KV rows */
        p = (struct pool_program){ .rig = &rig, .seed = (uint64_t)i };
        memset(p.book.page, -1, sizeof p.book.page);
        for (int j = 0; j < OPS; j++)
            switch (some(&p, 8)) {
            case 0:
                shorten_some(&p);
                break;
            case 1:
            case 2:
                fork_some(&p);
                break;
            case 3:
            case 4:
                step_all(&p);
                break;
            default:
                feed_some(&p);
            }
        refused += p.refused;
        compare_all(&p, &plain);
        for (int q = 0; q < N_SEQ; q++)
            run_clear(rig.r, q);
        assert_int_equal(left(&rig), POOL);
    }
    print_message("%s: %ld programs, %d steps refused\n", model, programs, refused);
    assert_true(programs < 10 || refused > 0 || left(&rig) > POOL);
    rig_close(&rig);
    rig_close(&plain);
}

static void programs(void **state)
{
    (void)state;
    each_model("tests/golden/models", pool_family);
}

/* ---- sessions and plans ---- */

/* A session goes where there is room for the tokens that are asked of it, not for all that it holds. */
static void session_in_part(void **state)
{
    enum { N = 3 * PAGE, MARK = 100 };
    int32_t tokens[N + 1];
    struct run_session *s;
    struct err e = { 0 };
    struct rig rig, small, plain;

    (void)state;
    fill(tokens, N + 1, 13);
    rig_open(&rig, MODEL, 1, &(struct run_opts){ .ctx_tokens = N + 1, .checkpoint_bytes = 1 << 24 });
    feed_to(&rig, tokens, 0, MARK);
    run_mark(rig.r, 0);
    feed_to(&rig, tokens, MARK, N);
    save(&rig, NULL, 0);
    rig_close(&rig);
    rig_open(&small, MODEL, 1, &(struct run_opts){ .ctx_tokens = 2 * MARK });
    rig_open(&plain, MODEL, 1, &(struct run_opts){ .ctx_tokens = 2 * MARK });
    s = open_with(small.r);
    ok(run_session_load(s, small.r, 0, MARK + 50, &e), &e);
    goes_on_as(&small, 0, &plain, tokens, MARK);
    run_session_close(s);
    rig_close(&small);

    rig_open(&small, MODEL, 1, &(struct run_opts){ .ctx_tokens = N + 1, .n_seq = 2, .kv_tokens = 2 * PAGE });
    s = open_with(small.r);
    assert_int_equal(run_session_load(s, small.r, 0, N, &e), ERR_LIMIT);
    says(&e, "the session has 768 tokens, 512 KV rows are left");
    assert_int_equal(run_pos(small.r, 0), 0);
    assert_int_equal(left(&small), 2);
    ok(run_session_load(s, small.r, 1, MARK, &e), &e);
    assert_int_equal(left(&small), 1);
    goes_on_as(&small, 1, &plain, tokens, MARK);
    run_session_close(s);
    rig_close(&small);
    rig_close(&plain);
}

/* A plan counts the rows there will be. */
static void planned(void **state)
{
    struct run_placement_opts o = { .run = { .ctx_tokens = 65536, .n_seq = 32 } };
    struct run_placement *all, *pool;
    struct gguf *g;
    struct err e = { 0 };

    (void)state;
    ok(gguf_open(&g, MODEL, &e), &e);
    ok(run_placement_make(&all, g, &o, &e), &e);
    o.run.kv_tokens = 65536;
    ok(run_placement_make(&pool, g, &o, &e), &e);
    assert_int_equal(all->kv_tokens, 32 * 65536);
    assert_int_equal(pool->kv_tokens, 65536);
    assert_int_equal(all->kv_bytes, 32 * pool->kv_bytes);
    assert_int_equal(all->total_bytes - pool->total_bytes, all->kv_bytes - pool->kv_bytes);
    run_placement_free(all);
    run_placement_free(pool);
    gguf_close(g);
}

static void out_of_range(void **state)
{
    struct err e = { 0 };
    struct run *r = NULL;
    struct rig rig;

    (void)state;
    rig_open(&rig, MODEL, 1, &(struct run_opts){ .ctx_tokens = 1000, .n_seq = 2, .kv_tokens = INT64_MAX });
    assert_int_equal(left(&rig), 8); /* no more than two sequences can hold */
    assert_int_equal(run_open(&r, rig.m, &(struct run_opts){ .ctx_tokens = 1000, .kv_tokens = -1 }, &e), ERR_ARG);
    assert_null(r);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_long_sequences),
        cmocka_unit_test(exhausted),
        cmocka_unit_test(forks),
        cmocka_unit_test(programs),
        IN_DIR(session_in_part),
        cmocka_unit_test(planned),
        cmocka_unit_test(out_of_range),
    };

    return cmocka_run_group_tests_name("kv", tests, NULL, NULL);
}
