/* SPDX-License-Identifier: Apache-2.0 */
/* gen_programs.h - random programs for the generation engine: requests, and drafters that know the answers. */
#ifndef TESTS_UNIT_GEN_PROGRAMS_H
#define TESTS_UNIT_GEN_PROGRAMS_H
#include <math.h>

#include "gen_rig.h"
#include "part.h"

enum { SEQS = 3, REQUESTS = 7 };

static inline uint32_t draw(uint64_t *at, uint32_t n)
{
    uint32_t r[4];

    rng_block(r, 11, *at >> 32, *at);
    ++*at;
    return r[0] % n;
}

/* ---- drafters ---- */

enum honesty { RIGHT, WRONG, MIXED, N_HONESTY };
struct oracle {
    enum honesty honesty;
    struct answered known[REQUESTS];
    int n_known, n_vocab;
    uint64_t at;
    int64_t guesses, settled[SEQS], begun[SEQS];
};

static inline const struct answered *find(const struct oracle *o, const int32_t *token, int64_t n)
{
    for (int i = 0; i < o->n_known; i++)
        if (n < o->known[i].n && memcmp(o->known[i].token, token, (size_t)n * sizeof *token) == 0)
            return &o->known[i];
    return NULL;
}

static inline void oracle_begin(void *d, int seq, const int32_t *token, int64_t n)
{
    struct oracle *o = d;

    (void)token;
    o->begun[seq] = n;
    o->settled[seq] = 0;
}

static inline enum err_code oracle_guess(void *d, struct gen_guess *g, int n, const struct gen_cost *cost,
                                         struct err *e)
{
    struct oracle *o = d;

    (void)cost;
    (void)e;
    for (int i = 0; i < n; i++) {
        const struct answered *a = find(o, g[i].token, g[i].n_token);
        const int most = (int)draw(&o->at, (uint32_t)g[i].n_max + 1);

        assert_int_equal(g[i].n_token - 1, o->begun[g[i].seq] + o->settled[g[i].seq]);
        for (int j = 0; j < most; j++) {
            const int64_t at = g[i].n_token + j;
            const bool right = o->honesty == RIGHT || (o->honesty == MIXED && draw(&o->at, 2) == 0);
            int32_t guess = (int32_t)draw(&o->at, (uint32_t)o->n_vocab);

            if (right && a != NULL && at < a->n)
                guess = a->token[at];
            g[i].guess[g[i].n++] = guess;
            o->guesses++;
        }
    }
    return ERR_OK;
}

static inline void oracle_settle(void *d, int seq, const int32_t *token, int n, int n_guessed, int n_kept)
{
    struct oracle *o = d;

    (void)token;
    assert_true(n_kept <= n_guessed && n_kept <= n);
    o->settled[seq] += n;
}

static const struct gen_drafter oracle = { oracle_begin, oracle_guess, oracle_settle };

/* ---- random programs ---- */

static inline void random_request(struct ask_for *a, uint64_t *at, int32_t n_vocab, const struct walk_rules *rules)
{
    static const int shared[] = { 0, 5, 17, 40 };
    const int n_shared = shared[draw(at, 4)];

    memset(a, 0, sizeof *a);
    a->n_prompt = n_shared + 1 + (int)draw(at, 30);
    for (int i = 0; i < a->n_prompt; i++)
        a->prompt[i] = i < n_shared ? (int32_t)((i * 37 + 5) % n_vocab) : (int32_t)draw(at, (uint32_t)n_vocab);
    a->predict_max = (int)draw(at, ANSWER_MAX);
    a->sample = sample_defaults();
    if (draw(at, 2) == 0) {
        a->sample.temp = 0.9f;
        a->sample.top_k = draw(at, 2) == 0 ? 40 : 0;
        a->sample.seed = draw(at, 1000);
    }
    if (draw(at, 4) == 0) {
        a->sample.repeat_penalty = 1.2f;
        a->sample.penalty_last_n = 16;
    }
    if (draw(at, 4) == 0)
        a->sample.dry_multiplier = 0.8f;
    if (draw(at, 4) == 0) {
        a->constraint = &walk;
        a->rules = &rules[draw(at, 3)];
    }
    if (draw(at, 4) == 0) {
        a->memory = &next_memory;
        a->memory_of = &rules[0].n_vocab;
    }
    const int every = 1 << (3 + draw(at, 3)); /* of the tokens one ends the answer */

    for (int32_t t = (int32_t)draw(at, 8); t < n_vocab && a->n_stop < STOPS_MAX; t += every)
        a->stop[a->n_stop++] = t;
    if (draw(at, 2) == 0)
        a->n_stop = 0;
    if (draw(at, 2) == 0)
        a->min_tokens = (int)draw(at, ANSWER_MAX);
    a->uncertainty = draw(at, 4) == 0;
}

/* Of a family. */
static inline long programs(void)
{
    const char *env = getenv("CHIMERE_TEST_PROGRAMS");
    const long n = env != NULL ? strtol(env, NULL, 10) : 100;

    assert_true(n > 0);
    return n;
}
#endif
