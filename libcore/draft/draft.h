/* SPDX-License-Identifier: Apache-2.0 */
/* draft.h - guesses the next tokens of sequences, for the model to check.
 * room: draft
 *
 * A drafter may be wrong or slow, but it cannot change a byte of an answer. Several may be open. For
 * each sequence and step, the drafter that promises the most tokens per time is asked. This is
 * estimated from three measurements: how many of its guesses were right so far, how long it takes to
 * make them, and how long a step takes by its number of rows. If guesses do not pay, no drafter is asked.
 *
 *   draft_open; draft_taps into run_opts.tap_layers; run_open; draft_attach;
 *   gen_open with drafter = &draft_hook and drafter_of = the draft;
 *   ... gen_close; draft_close; run_close
 *
 * One thread, that of the steps. Nothing is allocated after draft_attach().
 */
#ifndef DRAFT_DRAFT_H
#define DRAFT_DRAFT_H
#include "base/base.h"
#include "gen/hooks.h"

struct draft;
struct engram_mix;
struct json_t;
struct gguf;
struct model;
struct run;

enum { DRAFT_OPEN_MAX = 8 /* drafters at once */, DRAFT_TAPS_MAX = 16 };

struct draft_opts {
    struct model *model;     /* whose tokens are guessed; not owned; "mtp": model_opts.nextn */
    const struct gguf *gguf; /* its file */
    /* Each name is one of these. A row of drafters.def that needs no file: "ngram", "mtp", "engram". A GGUF file: a
     * DFlash drafter for this model, an adapter of its multi-token-prediction block, or a small model with the
     * same tokens. "auto": ngram, the DFlash drafter beside the model's file, if there is one (for NAME-q4_k.gguf that
     * is NAME-dflash.gguf), and mtp if the model has it. */
    const char *const *names; /* [n_names] */
    int n_names;
    const struct engram_mix *tables; /* for "engram", which guesses from them; not owned. NULL: there are none */
    int n_max;                       /* guesses for a sequence in a step; 0: GEN_DRAFT_USUAL */
    bool always;        /* without measuring: in every step all guesses of the first drafter that has some */
    const char *device; /* of a small model; NULL: "cpu" */
    int n_threads;      /* of the small model */
    bool (*stop)(void); /* of the small model (run_opts.stop); NULL: none. True: it guesses nothing */
};

/* ERR_ARG: an unknown name; ERR_UNSUPPORTED, ERR_FORMAT: the drafter does not fit the model: the
 * message has the reason. */
MUST_CHECK enum err_code draft_open(struct draft **out, const struct draft_opts *o, struct err *e);
void draft_close(struct draft *d); /* NULL is allowed */
/* What is wrong with the file beside the model that "auto" left out; NULL: it left out none. */
const char *draft_left_out(const struct draft *d);
/* Layers of the model whose output rows the drafters read, ascending; returns how many, at most
 * DRAFT_TAPS_MAX. */
int draft_taps(const struct draft *d, int *layers);
/* Takes memory for the sequences of a run, which must keep the rows of draft_taps() (else ERR_ARG).
 * Close the run after d. */
MUST_CHECK enum err_code draft_attach(struct draft *d, struct run *r, struct err *e);

/* What was learnt of costs and guesses, as an object for draft_recall() of another process; the caller's. NULL: too
 * little was measured, or memory is out. */
struct json_t *draft_tell(const struct draft *d);
/* Goes on with what another process told that had the same model, drafters, device and threads; after draft_attach(),
 * before the first step. Only the time that answers take depends on it. ERR_FORMAT: it is not such an object, or one of
 * other drafters: no drafter has changed. */
MUST_CHECK enum err_code draft_recall(struct draft *d, const struct json_t *told, struct err *e);

/* The object of these functions is a struct draft. */
extern const struct gen_drafter draft_hook;

struct draft_stats {
    const char *name; /* of the drafter: "ngram", or its file */
    int64_t asked;    /* sequences that it was asked about */
    int64_t drafted;  /* guesses that were checked */
    int64_t kept;     /* of them, those that were right */
    double ms;        /* spent guessing */
};
/* Entries written, one a drafter. */
int draft_stats(const struct draft *d, struct draft_stats *out, int max);
#endif
