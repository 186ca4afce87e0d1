/* SPDX-License-Identifier: Apache-2.0 */
/* program.h - random programs over the sequences of a run, for tests: what every position's logits were is kept
 * and compared in the end with a plain evaluation. */
#ifndef TESTS_UNIT_PROGRAM_H
#define TESTS_UNIT_PROGRAM_H
#include "base/rng.h"
#include "golden.h"

enum { SEQS = 3, LEN_MAX = 96, UNDO = 4, STEP_MAX = 11 };

struct seq {
    int32_t token[LEN_MAX];
    float *logits[LEN_MAX]; /* of each position, where they were asked for; else NULL */
    int n;
};

struct program {
    struct rig *rig;
    struct seq seq[SEQS];
    uint64_t seed, at; /* random stream */
    int n_vocab;
};

static inline uint32_t draw(struct program *p, uint32_t n)
{
    uint32_t r[4];

    rng_block(r, p->seed, 0, p->at++);
    return r[0] % n;
}

static inline long program_count(void)
{
    const char *env = getenv("CHIMERE_TEST_PROGRAMS");
    long n = env != NULL ? strtol(env, NULL, 10) : 1000;

    assert_true(n > 0);
    return n;
}

static inline void program_ok(struct program *p, const char *what, enum err_code code, const struct err *e)
{
    if (code != ERR_OK)
        fail_msg("program %llu: %s: %s", (unsigned long long)p->seed, what, e->msg);
}

static inline void cut(struct seq *s, int n)
{
    while (s->n > n) {
        free(s->logits[--s->n]);
        s->logits[s->n] = NULL;
    }
}

static inline void copy_seq(struct seq *dst, const struct seq *src)
{
    if (dst == src)
        return;
    cut(dst, 0);
    for (int i = 0; i < src->n; i++) {
        dst->token[i] = src->token[i];
        dst->logits[i] = NULL;
    }
    dst->n = src->n;
}

static inline void keep_logits(struct program *p, struct seq *s, int i, const float *logits)
{
    float *v = malloc((size_t)p->n_vocab * sizeof *v);

    assert_non_null(v);
    memcpy(v, logits, (size_t)p->n_vocab * sizeof *v);
    free(s->logits[i]);
    s->logits[i] = v;
}

/* One step: up to STEP_MAX rows, of one sequence or of all, in random order. */
static inline void step(struct program *p)
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
        rows[n] = (struct run_row){ s->token[s->n], q, draw(p, 3) == 0, false };
        seq_of[n] = q;
        index[n++] = s->n;
        s->logits[s->n++] = NULL;
    }
    if (n == 0)
        return;
    program_ok(p, "step", run_step(p->rig->r, rows, n, &e), &e);
    for (int i = 0; i < n; i++)
        if (rows[i].logits)
            keep_logits(p, &p->seq[seq_of[i]], index[i], run_logits(p->rig->r, i));
}

/* Appends n random tokens to a sequence through run_feed(). */
static inline void feed(struct program *p, int q, int n)
{
    struct seq *s = &p->seq[q];
    struct err e = { 0 };

    n = n < LEN_MAX - s->n ? n : LEN_MAX - s->n;
    if (n == 0)
        return;
    for (int i = 0; i < n; i++) {
        s->token[s->n + i] = (int32_t)draw(p, (uint32_t)p->n_vocab);
        s->logits[s->n + i] = NULL;
    }
    program_ok(p, "feed", run_feed(p->rig->r, q, s->token + s->n, n, 1, NULL, NULL, NULL, &e), &e);
    s->n += n;
    keep_logits(p, s, s->n - 1, run_logits_last(p->rig->r));
}

static inline void undo(struct program *p)
{
    int q = (int)draw(p, SEQS);
    int64_t most = run_undoable(p->rig->r, q);
    int64_t n = most == 0 ? 0 : 1 + (int64_t)draw(p, (uint32_t)most);
    struct err e = { 0 };

    program_ok(p, "undo", run_undo(p->rig->r, q, n, &e), &e);
    cut(&p->seq[q], p->seq[q].n - (int)n);
}

static inline void fork_one(struct program *p)
{
    int src = (int)draw(p, SEQS), dst = (int)draw(p, SEQS);
    struct err e = { 0 };

    program_ok(p, "fork", run_fork(p->rig->r, dst, src, &e), &e);
    copy_seq(&p->seq[dst], &p->seq[src]);
}

static inline void clear_one(struct program *p)
{
    int q = (int)draw(p, SEQS);

    run_clear(p->rig->r, q);
    cut(&p->seq[q], 0);
}

/* A list of tokens that begins as sequence q, up to some place, and goes on differently. */
static inline int vary(struct program *p, int q, int32_t tokens[LEN_MAX])
{
    int common = (int)draw(p, (uint32_t)p->seq[q].n + 1);
    int n = common + (int)draw(p, 6);

    n = n < 1 ? 1 : n > LEN_MAX ? LEN_MAX : n;
    memcpy(tokens, p->seq[q].token, (size_t)common * sizeof *tokens);
    for (int i = common; i < n; i++)
        tokens[i] = (int32_t)draw(p, (uint32_t)p->n_vocab);
    return n;
}

/* After a match kept some of tokens: feeds the rest, and notes what the sequence is now. */
static inline void feed_rest(struct program *p, int q, const int32_t *tokens, int n, int64_t kept)
{
    struct seq *s = &p->seq[q];
    struct err e = { 0 };

    assert_true(kept >= 0 && kept < n);
    assert_int_equal(run_pos(p->rig->r, q), kept);
    program_ok(p, "feed", run_feed(p->rig->r, q, tokens + kept, n - kept, 1, NULL, NULL, NULL, &e), &e);
    cut(s, (int)kept);
    for (; s->n < n; s->n++) {
        s->token[s->n] = tokens[s->n];
        s->logits[s->n] = NULL;
    }
    keep_logits(p, s, n - 1, run_logits_last(p->rig->r));
}

/* Every sequence again from its first token, in another run. */
static inline void compare(struct program *p, struct rig *plain)
{
    for (int q = 0; q < SEQS; q++) {
        struct seq *s = &p->seq[q];

        assert_int_equal(run_pos(p->rig->r, q), s->n);
        if (s->n == 0)
            continue;
        assert_memory_equal(run_tokens(p->rig->r, q), s->token, (size_t)s->n * sizeof *s->token);
        float *all = logits_of(plain, s->token, s->n, s->n);
        for (int i = 0; i < s->n; i++)
            if (s->logits[i] != NULL &&
                memcmp(s->logits[i], all + (int64_t)i * p->n_vocab, (size_t)p->n_vocab * sizeof(float)) != 0)
                fail_msg("program %llu: sequence %d differs at position %d of %d", (unsigned long long)p->seed, q, i,
                         s->n);
        free(all);
        cut(s, 0);
    }
}
#endif
