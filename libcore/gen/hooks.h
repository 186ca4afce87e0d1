/* SPDX-License-Identifier: Apache-2.0 */
/* hooks.h - what plugs into the generation engine.                          room: gen
 *
 * Four kinds of helpers: a drafter guesses tokens, a constraint says which tokens may come, a memory adds
 * probabilities, a governor watches the reasoning. They only answer calls: none holds a sequence or steps the model, so
 * only gen chooses tokens. Each is a table of functions and an object; a NULL table does nothing. They are called from
 * gen_step(), on its thread.
 */
#ifndef GEN_HOOKS_H
#define GEN_HOOKS_H
#include "base/base.h"
#include "base/logits.h"
#include "gen/cost.h"
#include "sample/sample.h"

enum {
    GEN_DRAFT_MAX = 16,   /* guesses for one sequence in a step */
    GEN_DRAFT_USUAL = 15, /* at most, unless more are asked for: with the newest token these are 16 rows */
    GEN_BACK_MAX = 64,    /* tokens that a constraint must be able to take back */
};

/* ---- drafter: one for a gen; may change the speed and nothing else ---- */

struct gen_guess {
    int seq;              /* in: the run's sequence */
    const int32_t *token; /* in: [n_token] prompt and answer, the newest not yet evaluated */
    int64_t n_token;
    int n_max;                    /* in: the most guesses wanted, 1 .. GEN_DRAFT_MAX */
    int n;                        /* out: guesses; 0: none */
    int32_t guess[GEN_DRAFT_MAX]; /* out: tokens that may follow */
};
struct gen_drafter {
    /* The sequence now holds exactly these tokens, all of them evaluated. May be NULL. */
    void (*begin)(void *d, int seq, const int32_t *token, int64_t n);
    /* Fills all rows at once: those of a group, where answers are written in groups. Called before every step, also
     * with n 0, since the last step's hidden rows are lost after it. cost: what steps cost by their rows (gen/cost.h).
     */
    enum err_code (*guess)(void *d, struct gen_guess *g, int n, const struct gen_cost *cost, struct err *e);
    /* token[0 .. n) were evaluated and are certain now. n_guessed: guesses that were checked; n_kept of them were
     * right. The hidden rows of the run's last step, if it keeps such rows, are still there. May be NULL. */
    void (*settle)(void *d, int seq, const int32_t *token, int n, int n_guessed, int n_kept);
};

/* ---- constraint: which tokens may come, for example by a grammar; `place` is its state for one answer ---- */

struct gen_constraint {
    /* Makes the place of one answer; `rules` is the request's. */
    enum err_code (*begin)(void **place, const void *rules, struct err *e);
    void (*end)(void *place);
    bool (*take)(void *place, int32_t token); /* false: the token may not come, and nothing has changed */
    void (*back)(void *place, int n);         /* takes back the newest n <= GEN_BACK_MAX tokens */
    bool (*free)(const void *place);          /* every token may come: no mask is needed */
    int32_t (*only)(void *place);             /* the one token that may come, or -1 */
    /* Sets the bits of the tokens that may come, [(n_vocab + 31) / 32]; end tokens are among them if the text may end
     * here. */
    void (*mask)(void *place, uint32_t *mask);
};
extern const struct gen_constraint gen_grammar; /* rules: a struct grammar (grammar/grammar.h) */

/* ---- memory: probabilities that are mixed into the model's ---- */

struct gen_context {
    const int32_t *token; /* [n] prompt and answer */
    int64_t n;
    int64_t text_from; /* where the answer's text begins: behind the prompt or the reasoning */
    bool reasoning;    /* the next token is part of the reasoning */
    bool reasoned;     /* the answer has reasoning, and text_from is behind it */
};
/* A token that was chosen where something was to be mixed in. */
struct gen_came {
    double p, q, mass; /* its probability: the model's among those allowed, that of the mix; the sum of the mix's */
    float p_max;       /* as for weight() */
    bool ends;
};
/* What a memory did to an answer, by its parts, for example tables and a text that is recited. */
struct gen_mixed {
    int64_t matched; /* tokens for which it had something to mix in */
    int64_t changed; /* of them, those that are not the model's likeliest ones, and that it made likelier */
    double weight;   /* how far it is believed at the end, 0 .. 1 */
};
enum { GEN_MIXED_MAX = 17 };
struct gen_memory {
    /* Makes the place of one answer: `m` is the request's object. The place depends on the tokens of the prompt and on
     * what learn() was told, so that a request gets the same answer wherever its prompt was read. */
    enum err_code (*begin)(void **place, const void *m, const int32_t *prompt, int64_t n, struct err *e);
    void (*end)(void *place);
    /* What comes next: fills the tokens, probabilities and number of the mix (the arrays have room for
     * SAMPLE_MIX_MAX), and *evidence, a number that only the other functions understand. Also called for tokens behind
     * guesses. */
    void (*look)(const void *place, const struct gen_context *at, int32_t *next, float *q, int *n_next,
                 uint32_t *evidence);
    /* The weight of this look-up in the mixture, 0 .. 1, once the model's own row is known. p_max: its largest
     * probability; ends: the token with that probability ends a turn of a chat. */
    float (*weight)(const void *place, uint32_t evidence, float p_max, bool ends);
    /* Called for each chosen token that had a look-up with tokens, in order. */
    void (*learn)(void *place, uint32_t evidence, const struct gen_came *came);
    int (*tell)(const void *place, struct gen_mixed *out); /* fills out[GEN_MIXED_MAX]; how many parts there are */
};

/* ---- governor: controls the reasoning of one answer ---- */

/* Why the reasoning of an answer ended. */
enum gen_why {
    GEN_WHY_OFF,   /* there was none, or none was to be */
    GEN_WHY_MODEL, /* the model ended it */
    GEN_WHY_BUDGET,
    GEN_WHY_CERTAINTY,
    GEN_WHY_LOOP, /* it repeated itself */
    GEN_WHY_STOP, /* the answer ended in it */
    GEN_WHYS,
};
const char *gen_why_name(enum gen_why w); /* "off", "model" ... */

/* What is told of the reasoning of an answer. */
struct gen_thought {
    enum gen_why end;
    int64_t budget;     /* tokens after which it was to end; -1: none */
    int64_t forced;     /* tokens that the governor said in it, the closing text among them */
    bool weighed;       /* it was asked how certain the model is */
    float certainty;    /* what was found last; NaN: nothing so far */
    int64_t suppressed; /* tokens that were the likeliest and might not come */
};

enum gen_act {
    GEN_GO_ON,
    /* Append `token`, at most GEN_BACK_MAX of them: not chosen, reported as forced. Those that the constraint refuses,
     * and all behind them, are left out; where it refuses one of the first n_needed, nothing is appended. */
    GEN_SAY,
    /* What would follow `token` here: one row, in the step that chooses the next token. probed() gets it before that
     * token is chosen, as one gen_seen whose token is the likeliest; it may say GEN_GO_ON, GEN_SAY or GEN_STOP. */
    GEN_PEEK,
    /* On a copy: append `token`, choose n_probe tokens greedily. probed() gets these when the answer has `lag` more
     * tokens, whenever they are ready; until then see() may say GEN_GO_ON, or GEN_SAY or GEN_STOP, which drops the
     * probe. */
    GEN_PROBE,
    GEN_STOP, /* end the answer, if an end token may come here */
};
struct gen_order {
    enum gen_act act;
    const int32_t *token; /* [n_token]; lives as long as the governor */
    int n_token, n_needed, n_probe, lag;
    const int32_t *shun; /* [n_shun] tokens not to be chosen next; lives as long as the governor */
    int n_shun;
    enum gen_why why; /* SAY, STOP: what is told of the reasoning that ends with it */
};
struct gen_seen {
    int32_t token;
    bool reasoning;     /* the token is part of the reasoning */
    bool opens, closes; /* reasoning begins behind it; it is part of it and ends it */
    bool forced;        /* it was not chosen: the numbers say nothing */
    bool said;          /* forced by the governor itself */
    bool shunned;       /* the likeliest token of this place was one of `shun` */
    float p;            /* its probability by the model */
    /* Of the model's distribution over the tokens that the constraint allows, before anything is mixed in and without
     * bias and temperature (struct sample_numbers). */
    float p_max, entropy, varentropy, margin;
};
/* Where an answer begins. */
struct gen_start {
    bool reasoning;   /* inside reasoning */
    int64_t n_prompt; /* tokens */
    int64_t ctx;      /* tokens of prompt and answer */
    int32_t n_vocab;
    uint64_t seed, stream; /* of the request's random numbers */
};
/* A request whose governor needs what the engine does not have is refused. */
struct gen_needs {
    int peek_tokens;  /* most tokens of a GEN_PEEK: draft rows of the run; 0: it has none */
    int probe_tokens; /* most of a GEN_PROBE, those that it chooses among them: a sequence to spare; 0: it has none */
    bool looks;       /* it reads the numbers of struct gen_seen, which are not made for one that does not */
};
struct gen_governor {
    /* `opts` is the request's. *first: the order before the first token, GEN_GO_ON with or without `shun`. */
    enum err_code (*begin)(void **g, const void *opts, const struct gen_start *at, struct gen_order *first,
                           struct err *e);
    void (*end)(void *g);
    struct gen_order (*see)(void *g, const struct gen_seen *s); /* called with each token of the answer */
    /* Called with what a probe found; n 0: it does not fit in the context behind this token, or in the memory for keys
     * and values of an engine with no other request. So it depends on the request and the engine alone. */
    struct gen_order (*probed)(void *g, const struct gen_seen *s, int n);
    struct gen_needs (*needs)(const void *g);           /* the same for all of the answer; NULL: nothing */
    void (*tell)(const void *g, struct gen_thought *t); /* fills it at the end of the answer; may be NULL */
};
#endif
