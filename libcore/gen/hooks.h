/* SPDX-License-Identifier: Apache-2.0 */
/* hooks.h - what plugs into the generation engine.                          room: gen (base sample)
 *
 * Four kinds of helpers: a drafter guesses tokens, a constraint says which tokens may come, a memory adds
 * probabilities, a governor watches the reasoning. They only answer calls: none holds a sequence or steps the model, so
 * only gen chooses tokens. Each is a table of functions and an object; a
 * NULL table does nothing. Called from gen_step(), on its thread.
 */
#ifndef GEN_HOOKS_H
#define GEN_HOOKS_H
#include "base/base.h"
#include "base/logits.h"
#include "gen/cost.h"
#include "sample/sample.h"

enum {
    GEN_DRAFT_MAX = 16, /* guesses for one sequence in a step */
    GEN_BACK_MAX = 64,  /* tokens that a constraint must be able to take back */
};

/* ---- drafter: one for a gen; may change the speed and nothing else ---- */

struct gen_guess {
    int            seq;                  /* in: the run's sequence */
    const int32_t *token;                /* in: [n_token] prompt and answer, the newest not yet evaluated */
    int64_t        n_token;
    int            n_max;                /* in: at most so few guesses, 1 .. GEN_DRAFT_MAX */
    int            n;                    /* out: guesses; 0: none */
    int32_t        guess[GEN_DRAFT_MAX]; /* out: tokens that may follow */
};
struct gen_drafter {
    /* The sequence holds these tokens, evaluated, and nothing else. May be NULL. */
    void (*begin)(void *d, int seq, const int32_t *token, int64_t n);
    /* Fills all rows at once. Called before every step, also with n 0, since the last step's hidden rows are lost after it.
     * cost: what steps cost by their rows (gen/cost.h). */
    enum err_code (*guess)(void *d, struct gen_guess *g, int n, const struct gen_cost *cost, struct err *e);
    /* n tokens were evaluated and are certain now: token[0 .. n); n_kept of them had been guessed. The run's last
     * step still has its hidden rows. May be NULL. */
    void (*settle)(void *d, int seq, const int32_t *token, int n, int n_guessed, int n_kept);
};

/* ---- constraint: one place for an answer; a grammar ---- */

struct gen_constraint {
    /* `rules` is the request's; the place belongs to one answer. */
    enum err_code (*begin)(void **place, const void *rules, struct err *e);
    void    (*end)(void *place);
    bool    (*take)(void *place, int32_t token); /* false: it may not come, and nothing has changed */
    void    (*back)(void *place, int n);         /* forgets the newest n <= GEN_BACK_MAX tokens */
    bool    (*free)(const void *place);          /* every token may come: no mask is needed */
    int32_t (*only)(void *place);                /* the one token that may come, or -1 */
    /* Bits of the tokens that may come, [(n_vocab + 31) / 32]: end tokens where the text may end. */
    void    (*mask)(void *place, uint32_t *mask);
};
extern const struct gen_constraint gen_grammar; /* rules: a struct grammar (grammar/grammar.h) */

/* ---- memory: probabilities that are mixed into the model's ---- */

struct gen_memory {
    /* What comes after token[0 .. n): fills token, q and n of the mix (buffers of SAMPLE_MIX_MAX are there), and a
     * number of its own for weight(). */
    void  (*look)(const void *m, const int32_t *token, int64_t n, bool reasoning, int32_t *next, float *q, int *n_next,
                  uint32_t *evidence);
    /* Weight of that in the mixture, 0 .. 1, when the model's own row is known: p_max is its largest probability. ends: that
     * is of a token that ends the turn of a chat. */
    float (*weight)(const void *m, uint32_t evidence, float p_max, bool ends);
};

/* ---- governor: one for an answer; thinking under control ---- */

enum gen_act {
    GEN_GO_ON,
    GEN_SAY,   /* append `token`: not chosen, reported as forced */
    GEN_PROBE, /* on a fork: append `token`, choose n_probe tokens greedily, report them, drop the fork */
    GEN_STOP,  /* end the answer */
};
struct gen_order {
    enum gen_act   act;
    const int32_t *token; /* [n_token]; lives as long as the governor */
    int            n_token, n_probe;
    const int32_t *shun;  /* [n_shun] tokens not to be chosen next; lives as long as the governor */
    int            n_shun;
};
struct gen_seen {
    int32_t token;
    bool    reasoning;          /* the token is part of the reasoning */
    float   p, p_max, entropy;  /* of the model's own distribution; entropy in nats */
};
struct gen_governor {
    /* `opts` is the request's. reasoning: the answer begins inside reasoning. */
    enum err_code (*begin)(void **g, const void *opts, bool reasoning, struct err *e);
    void (*end)(void *g);
    struct gen_order (*see)(void *g, const struct gen_seen *s);             /* each token of the answer */
    struct gen_order (*probed)(void *g, const struct gen_seen *s, int n);   /* the answer to a probe */
};
#endif
