/* SPDX-License-Identifier: Apache-2.0 */
/* gen_rig.h - for tests of the generation engine: answers of a plain loop to compare with, scripted hooks. */
#ifndef TESTS_UNIT_GEN_RIG_H
#define TESTS_UNIT_GEN_RIG_H
#include <math.h>

#include "base/rng.h"
#include "gen/gen.h"
#include "golden.h"

enum { CTX = 96, ANSWER_MAX = 32, TOKENS_MAX = 640, STOPS_MAX = 128 };

/* What a request says, in a form that two loops can read. */
struct ask_for {
    int32_t prompt[TOKENS_MAX];
    int n_prompt, predict_max;
    struct sample_opts sample;
    const struct gen_constraint *constraint;
    const struct gen_memory *memory;
    const void *rules, *memory_of;
    int32_t stop[STOPS_MAX];
    int n_stop, min_tokens;
    bool uncertainty;
};
struct answered {
    int32_t token[TOKENS_MAX + 1];
    int n;
    enum gen_end end;
    struct sample_numbers number[TOKENS_MAX + 1]; /* of the rows that gave them */
};

static inline void must(enum err_code code, const struct err *e)
{
    if (code != ERR_OK)
        fail_msg("%s", e->msg);
}

/* ---- a constraint: token classes that follow one another ---- */

struct walk_rules {
    int n_states; /* in state s only tokens with token % n_states == s come, then state s + 1 */
    int32_t only; /* in the last state nothing but this token; -1: as in the others */
    int32_t n_vocab;
};
struct walk {
    const struct walk_rules *rules;
    int at, taken[TOKENS_MAX], n;
};

static inline bool walk_may(const struct walk *w, int32_t token)
{
    const struct walk_rules *r = w->rules;

    if (w->at == r->n_states - 1 && r->only >= 0)
        return token == r->only;
    return token % r->n_states == w->at;
}

static inline enum err_code walk_begin(void **place, const void *rules, struct err *e)
{
    struct walk *w = calloc(1, sizeof *w);

    if (w == NULL)
        return err_nomem(e);
    w->rules = rules;
    *place = w;
    return ERR_OK;
}

static inline void walk_end(void *place)
{
    free(place);
}

static inline bool walk_take(void *place, int32_t token)
{
    struct walk *w = place;

    if (!walk_may(w, token))
        return false;
    assert_true(w->n < (int)(sizeof w->taken / sizeof w->taken[0]));
    w->taken[w->n++] = w->at;
    w->at = (w->at + 1) % w->rules->n_states;
    return true;
}

static inline void walk_back(void *place, int n)
{
    struct walk *w = place;

    assert_true(n <= w->n);
    if (n > 0)
        w->at = w->taken[w->n -= n];
}

static inline bool walk_free(const void *place)
{
    return ((const struct walk *)place)->rules->n_states == 1;
}

static inline int32_t walk_only(void *place)
{
    const struct walk *w = place;

    return w->at == w->rules->n_states - 1 ? w->rules->only : -1;
}

static inline void walk_mask(void *place, uint32_t *mask)
{
    const struct walk *w = place;

    memset(mask, 0, ((size_t)w->rules->n_vocab + 31) / 32 * sizeof *mask);
    for (int32_t t = 0; t < w->rules->n_vocab; t++)
        if (walk_may(w, t))
            mask[t / 32] |= 1u << (t % 32);
}

static const struct gen_constraint walk = {
    walk_begin, walk_end, walk_take, walk_back, walk_free, walk_only, walk_mask
};

/* ---- a memory: what follows is the newest token plus a few; its weight hangs on all that it has learnt ---- */

struct next_place {
    int32_t n_vocab;
    int64_t n_learnt;
    double learnt;
};

static inline enum err_code next_begin(void **place, const void *m, const int32_t *prompt, int64_t n, struct err *e)
{
    struct next_place *p = calloc(1, sizeof *p);

    if (p == NULL)
        return err_nomem(e);
    p->n_vocab = *(const int32_t *)m;
    p->learnt = (double)(prompt[n - 1] % 10) / 10;
    *place = p;
    return ERR_OK;
}

static inline void next_look(const void *place, const struct gen_context *at, int32_t *next, float *q, int *n_next,
                             uint32_t *evidence)
{
    const struct next_place *p = place;
    const int32_t newest = at->token[at->n - 1];

    *evidence = (uint32_t)newest;
    *n_next = newest % 3 == 0 ? 0 : 4; /* sometimes it knows nothing */
    for (int i = 0; i < *n_next; i++) {
        next[i] = (newest + 7 * i + 1) % p->n_vocab;
        q[i] = 0.4f / (float)(i + 1);
    }
}

static inline float next_weight(const void *place, uint32_t evidence, float p_max, bool ends)
{
    const struct next_place *p = place;

    (void)ends;
    return (0.3f + (float)(evidence % 4) / 20 + 0.4f * (float)p->learnt) * (1 - p_max);
}

static inline void next_learn(void *place, uint32_t evidence, const struct gen_came *c)
{
    struct next_place *p = place;

    assert_true(evidence % 3 != 0 && c->p >= 0 && c->p <= (double)c->p_max * 1.0001 && c->q <= c->mass);
    p->learnt = (p->learnt + c->p + 10 * c->q) / 12;
    p->n_learnt++;
}

static inline int next_tell(const void *place, struct gen_mixed *out)
{
    const struct next_place *p = place;

    *out = (struct gen_mixed){ p->n_learnt, 0, p->learnt };
    return 1;
}

static const struct gen_memory next_memory = { next_begin, free, next_look, next_weight, next_learn, next_tell };

/* ---- the plain loop ---- */

/* p of a token among those that the mask allows; -1: of the likeliest one. */
static inline double p_of(const float *x, const uint32_t *mask, int32_t n, int32_t token)
{
    double max = -INFINITY, sum = 0;

    for (int32_t i = 0; i < n; i++)
        if ((mask == NULL || (mask[i / 32] >> (i % 32) & 1)) && (double)x[i] > max)
            max = (double)x[i];
    for (int32_t i = 0; i < n; i++)
        if (mask == NULL || (mask[i / 32] >> (i % 32) & 1))
            sum += exp((double)x[i] - max);
    return token < 0 ? 1 / sum : exp((double)x[token] - max) / sum;
}

static inline float p_max_of(const float *x, const uint32_t *mask, int32_t n)
{
    return (float)p_of(x, mask, n, -1);
}

static inline struct sample_numbers numbers_of(const float *x, const uint32_t *mask, int32_t n)
{
    double max = -INFINITY, second = -INFINITY, sum = 0, entropy = 0, var = 0;

    for (int32_t t = 0; t < n; t++) {
        const double v = mask[t / 32] >> t % 32 & 1 ? (double)x[t] : -INFINITY;

        second = v > max ? max : v > second ? v : second;
        max = v > max ? v : max;
    }
    for (int round = 0; round < 3; round++)
        for (int32_t t = 0; t < n; t++) {
            const double d = mask[t / 32] >> t % 32 & 1 ? (double)x[t] - max : -1000, p = exp(d) / sum;

            sum += round == 0 ? exp(d) : 0;
            entropy += round == 1 ? p * (log(sum) - d) : 0;
            var += round == 2 ? p * (log(sum) - d - entropy) * (log(sum) - d - entropy) : 0;
        }
    return (struct sample_numbers){ (float)(1 / sum), (float)entropy, (float)var,
                                    (float)((1 - exp(second - max)) / sum) };
}

static inline bool is_close(float a, float b)
{
    return fabsf(a - b) <= 1e-5f * fmaxf(1, fabsf(b));
}

static inline bool stops(const struct ask_for *a, int32_t token)
{
    for (int i = 0; i < a->n_stop; i++)
        if (a->stop[i] == token)
            return true;
    return false;
}

/* What may come: by the constraint, and no end of an answer that is too short, unless nothing else may come. */
static inline void allow(const struct ask_for *a, void *place, int n_vocab, int n, uint32_t *mask)
{
    bool any = false;

    memset(mask, 0xff, ((size_t)n_vocab + 31) / 32 * sizeof *mask);
    if (place != NULL)
        a->constraint->mask(place, mask);
    for (int32_t t = 0; t < n_vocab; t++)
        any |= (mask[t / 32] >> t % 32 & 1) && !stops(a, t);
    for (int32_t t = 0; t < n_vocab && any && n < a->min_tokens; t++)
        if (stops(a, t))
            mask[t / 32] &= ~(1u << t % 32);
}

/* The answer of one sequence, token by token, with nothing clever. */
static inline void answer_alone(struct rig *rig, const struct ask_for *a, struct answered *out)
{
    struct sampler *s;
    struct err e = { 0 };
    void *place = NULL, *memory = NULL;
    uint32_t mask[64];
    int32_t next[SAMPLE_MIX_MAX];
    float q[SAMPLE_MIX_MAX];
    int n = a->n_prompt;

    assert_true(rig->n_vocab <= (int32_t)sizeof mask * 8);
    memcpy(out->token, a->prompt, (size_t)n * sizeof *a->prompt);
    must(sample_open(&s, &a->sample, rig->n_vocab, &e), &e);
    for (int i = 0; i < n; i++)
        must(sample_accept(s, a->prompt[i], &e), &e);
    if (a->constraint != NULL)
        must(a->constraint->begin(&place, a->rules, &e), &e);
    if (a->memory != NULL)
        must(a->memory->begin(&memory, a->memory_of, a->prompt, n, &e), &e);
    run_clear(rig->r, 0);
    must(run_feed(rig->r, 0, a->prompt, n, 1, NULL, NULL, NULL, &e), &e);
    out->end = GEN_LENGTH;
    while (n - a->n_prompt < a->predict_max) {
        const float *x = run_logits_last(rig->r);
        struct sample_mix mix = { next, q, 0, 0 };
        struct sample_pick pick;
        struct gen_came came = { 0 };
        uint32_t evidence = 0;

        allow(a, place, rig->n_vocab, n - a->n_prompt, mask);
        if (a->memory != NULL) {
            int n_next;

            a->memory->look(memory, &(struct gen_context){ out->token, n, a->n_prompt, false, false }, next, q, &n_next,
                            &evidence);
            mix.n = n_next;
            came.p_max = p_max_of(x, mask, rig->n_vocab);
            mix.weight = a->memory->weight(memory, evidence, came.p_max, false);
        }
        must(sample_next_row(s, x, mask, mix.n > 0 ? &mix : NULL, NULL, 0, &pick, &e), &e);
        for (int i = 0; i < mix.n; i++)
            if (mask[next[i] / 32] >> next[i] % 32 & 1) {
                came.mass += (double)q[i];
                came.q = next[i] == pick.token ? (double)q[i] : came.q;
            }
        came.p = p_of(x, mask, rig->n_vocab, pick.token);
        if (mix.n > 0 && (place == NULL || a->constraint->only(place) < 0))
            a->memory->learn(memory, evidence, &came);
        if (stops(a, pick.token)) {
            out->end = GEN_EOS;
            break;
        }
        out->number[n] = a->uncertainty ? numbers_of(x, mask, rig->n_vocab) : (struct sample_numbers){ 0, 0, 0, 0 };
        out->token[n++] = pick.token;
        must(sample_accept(s, pick.token, &e), &e);
        if (place != NULL)
            assert_true(a->constraint->take(place, pick.token));
        if (n - a->n_prompt == a->predict_max)
            break;
        if (n - 1 >= run_ctx(rig->r)) {
            out->end = GEN_CONTEXT;
            break;
        }
        must(run_step(rig->r, &(struct run_row){ pick.token, 0, true, false }, 1, &e), &e);
    }
    out->n = n;
    if (place != NULL)
        a->constraint->end(place);
    if (memory != NULL)
        a->memory->end(memory);
    sample_close(s);
}

static inline struct gen_request request_of(const struct ask_for *a)
{
    struct gen_request q = gen_defaults();

    q.prompt = a->prompt;
    q.n_prompt = a->n_prompt;
    q.predict_max = a->predict_max;
    q.sample = a->sample;
    q.constraint = a->constraint;
    q.rules = a->rules;
    q.memory = a->memory;
    q.memory_of = a->memory_of;
    q.stop_token = a->stop;
    q.n_stop_tokens = (size_t)a->n_stop;
    q.min_tokens = a->min_tokens;
    q.uncertainty = a->uncertainty;
    return q;
}
/* ---- what a request says ---- */

struct seen_of {
    int32_t token[TOKENS_MAX + 1];
    struct sample_numbers number[TOKENS_MAX + 1]; /* p_max: 0 if the token was forced, else 1 */
    int n;
    bool begun, ended;
    enum gen_end end;
    struct gen_stats stats;
};

static inline void take_events(struct gen *g, struct seen_of *seen, const int64_t *id)
{
    struct gen_event ev;

    while (gen_next(g, &ev)) {
        struct seen_of *s = ev.user;

        assert_int_equal(ev.id, id[s - seen]);
        assert_false(s->ended);
        s->begun |= ev.kind == GEN_BEGIN;
        if (ev.kind == GEN_TOKEN) {
            s->number[s->n] = (struct sample_numbers){ !ev.forced, ev.entropy, ev.varentropy, ev.margin };
            s->token[s->n++] = ev.pick.token;
        }
        s->ended = ev.kind == GEN_END;
        s->end = ev.end;
        s->stats = ev.stats;
        if (ev.kind == GEN_END && ev.end == GEN_FAILED)
            fail_msg("a request failed: %s", ev.err.msg);
    }
}

static inline void compare_seen(const struct ask_for *a, const struct answered *want, const struct seen_of *got,
                                bool cancelled, uint64_t seed)
{
    const int n = want->n - a->n_prompt;

    assert_true(got->ended);
    if (got->end == GEN_CANCELLED && cancelled) {
        assert_true(got->n <= n);
    } else {
        assert_int_equal(got->end, want->end);
        assert_int_equal(got->n, n);
        assert_int_equal(got->stats.tokens, n);
    }
    if (memcmp(got->token, want->token + a->n_prompt, (size_t)got->n * sizeof *got->token) != 0)
        fail_msg("program %llu: an answer differs from the one alone", (unsigned long long)seed);
    for (int i = 0; i < got->n; i++) {
        const struct sample_numbers *has = &got->number[i], *is = &want->number[a->n_prompt + i];

        if (a->uncertainty && has->p_max > 0)
            assert_true(is_close(has->entropy, is->entropy) && is_close(has->varentropy, is->varentropy) &&
                        is_close(has->margin, is->margin));
        else
            assert_true(isnan(has->entropy) && isnan(has->varentropy) && isnan(has->margin));
    }
    assert_true(got->stats.kept <= got->stats.drafted);
}
#endif
