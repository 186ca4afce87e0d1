/* SPDX-License-Identifier: Apache-2.0 */
/* run.h - tokens in, logits out; several sequences in one step.          room: run (base model state)
 *
 * A run is a model plus the memory of up to n_seq sequences. A step takes rows; each row appends one
 * token to one sequence. Rows of one sequence are taken in the order given; rows of different sequences
 * may alternate. The logits of a row are the same bytes whatever else is in the step, however the
 * prompt is cut into steps, and at any thread count. One thread at a time per run.
 */
#ifndef RUN_RUN_H
#define RUN_RUN_H
#include "base/base.h"
#include "base/logits.h"

struct model;
struct run;

struct run_opts {
    int64_t     ctx_tokens; /* longest sequence; 0: what the model was trained for */
    int64_t     kv_tokens;  /* KV rows for all sequences, in whole pages; 0: ctx_tokens for each */
    int         n_seq;      /* sequences, >= 1 (0 means 1) */
    int         rows_max;   /* rows in one step; 0: 512, on a GPU up to 2048, or run/placement.h's; 1024 if experts are shared */
    int         logits_max; /* of them with logits; 0: as many as 64 MB hold, but n_seq at least */
    const char *kv_k;       /* "f32", "f16", "q8_0", "q4_0"; NULL: f32 where the device's memory is the host's, else f16 */
    const char *kv_v;
    int         undo_tokens; /* how many tokens run_undo() can always forget; 0: none on recurrent models */
    int         draft_max;   /* draft rows of a sequence in one step, at most; see run_settle() */
    int64_t     checkpoint_bytes; /* for snapshots of the recurrent layers, of all sequences; 0: none */
    const int  *tap_layers;  /* [n_taps] a step's rows of the residual stream after these layers, 0 .. n_layer - 1, stay on */
    int         n_taps;      /* the device for a drafter; n_layer: after the final norm. At most RUN_TAPS_MAX. */
    bool      (*stop)(void); /* NULL, or asked within a step by any thread (dev_may_stop()). True: it ends with ERR_CANCEL, and
                              * the sequences that had rows in it are empty; */
    bool        stop_keeps;  /* those that had more than one, besides guesses, are as they were instead, but nothing can be
                              * undone. Costs a snapshot for each sequence, and a copy of it before such steps. */
    int         adapter_rank; /* ranks of all adapters that a sequence may have at a time, summed; 0: it has none */
};

enum { RUN_TAPS_MAX = 16 };

struct run_row {
    int32_t token;
    int     seq;       /* 0 .. n_seq - 1 */
    bool    logits;    /* wanted for this row */
    bool    draft;     /* a guess: see run_settle() */
};

/* ERR_ARG: keys and values have no type of that name. */
MUST_CHECK enum err_code run_kv_known(const char *type, struct err *e);

/* Reserves everything the run will use: steps do not allocate. ERR_ARG for options out of range,
 * ERR_NOMEM when the memory cannot be reserved (the message says how much was asked). */
MUST_CHECK enum err_code run_open(struct run **out, struct model *m, const struct run_opts *o, struct err *e);
void run_close(struct run *r); /* NULL is allowed */
/* Right after run_open(): a GPU loads code as it is first used, and repeats a step of a shape sooner once it has seen
 * some. This takes some steps of one row of sequence 0 and forgets them, so that the first tokens are decoded as fast
 * as later ones. Does nothing on the CPU. Uses of experts count from 0 after it. */
MUST_CHECK enum err_code run_warm_up(struct run *r, struct err *e);

/* n <= rows_max, at most logits_max of them with logits. ERR_ARG: a token outside the vocabulary, a bad
 * sequence number. ERR_LIMIT: a sequence would exceed ctx_tokens, or the step needs more than run_kv_left(). In
 * these cases nothing has changed. */
MUST_CHECK enum err_code run_step(struct run *r, const struct run_row *rows, int n, struct err *e);
/* n_vocab floats of row i of the last step, which asked for them; NULL if it did not. Valid
 * until the next step. Where the device's memory is not the host's, the row is copied now, and with it those beside it
 * that are wanted whole, too. */
const float *run_logits(struct run *r, int i);

/* Draft rows are tokens that may be taken back at once. Those of a sequence are its last rows of the step, at most
 * draft_max. Until it is settled the sequence takes no other row, and can only be cleared, loaded, or be the target
 * of a fork. It keeps the first `keep` of its draft rows, and what follows has the bytes it would have had without
 * the others. Launches nothing and copies nothing, unless a checkpoint is due: KV rows beyond are overwritten, and
 * recurrent layers compute the kept rows again when the next step begins. Does nothing when there are no draft rows.
 * Memory: for each sequence and draft row its inputs of every recurrent layer (arch_plan_input_floats()). */
void run_settle(struct run *r, int seq, int keep);
int  run_drafts(const struct run *r, int seq); /* draft rows that wait for it; run_pos() counts them */

/* As run_step(), with want[i] about row i if that has logits. A row that wants all of them (n_top 0) changes nothing
 * for the others. masks: called once, with ctx, where the step is not refused; it fills the masks that wants point to,
 * and may not use the run. On a GPU it is called while the device computes, which waits for its return only where it
 * needs the first mask; elsewhere before anything is computed. NULL: the masks are filled. ids are read before this
 * returns, masks too. ERR_ARG too: a want out of range. */
typedef void run_masks(void *ctx);
MUST_CHECK enum err_code run_step_want(struct run *r, const struct run_row *rows, const struct logits_want *want, int n,
                                       run_masks *masks, void *ctx, struct err *e);
/* Of row i of the last step, valid until the next one. False: run_logits() has to do (and its want's mask, where the
 * choice is made), for the row wanted all of its logits, or the device's memory is the host's, where they are at hand. */
bool run_digest(struct run *r, int i, struct logits_digest *out);

/* Whether steps of this run can give digests: its logits are not in the host's memory. */
bool run_digests(const struct run *r);

/* Called for each row whose logits were asked for, in order. Returns an error to stop. */
typedef enum err_code run_sink(void *ctx, int64_t pos, const float *logits, struct err *e);

/* Feeds n tokens to one sequence in steps of at most rows_max. Logits are computed for the last
 * n_logits tokens and given to sink (may be NULL: then n_logits must be <= 1 and run_logits_last()
 * has them). progress may be NULL; tick gets tokens done of n. ERR_LIMIT before the first step when not all of them
 * have room. */
MUST_CHECK enum err_code run_feed(struct run *r, int seq, const int32_t *tokens, int64_t n,
                                  int64_t n_logits, run_sink *sink, void *ctx,
                                  const struct progress *progress, struct err *e);
/* Logits of the newest row of the last step; NULL if not asked for. */
const float *run_logits_last(struct run *r);

int64_t run_pos(const struct run *r, int seq);   /* tokens in the sequence */
int64_t run_ctx(const struct run *r);            /* ctx_tokens in force */
/* KV rows are taken in pages of 256 positions, as sequences need them. Forked sequences share pages; one that
 * writes to a shared page takes another first. run_clear(), run_undo() and run_match() give back what they can. */
enum { RUN_KV_PAGE = 256 };
int64_t run_kv_rows(const struct run *r);        /* rows of all pages */
int64_t run_kv_left(const struct run *r);        /* rows in pages that are free */
int64_t run_kv_need(const struct run *r, int seq, int64_t n); /* rows of them that n more tokens of a sequence take */
int     run_rows_max(const struct run *r);       /* rows in a step */
int     run_logits_max(const struct run *r);     /* of them with logits */
int     run_draft_max(const struct run *r);      /* draft rows of a sequence in a step */
int     run_n_seq(const struct run *r);
int32_t run_n_vocab(const struct run *r);
int     run_n_embd(const struct run *r);
void    run_kv(const struct run *r, const char **k, const char **v); /* types in force */
void    run_clear(struct run *r, int seq);       /* forget the sequence */
/* Forgets the newest n tokens: n <= run_undoable(), which is at least undo_tokens (or all there are), and
 * everything on a model without recurrent layers. What follows has the bytes it would have had. */
MUST_CHECK enum err_code run_undo(struct run *r, int seq, int64_t n, struct err *e);
int64_t run_undoable(const struct run *r, int seq);
/* Sequence dst becomes a copy of src at its position; KV rows are shared until one of them writes. */
MUST_CHECK enum err_code run_fork(struct run *r, int dst, int src, struct err *e);
int64_t run_state_bytes(const struct run *r);    /* reserved for all sequences */
/* The tokens of a sequence, run_pos() of them; valid until the sequence changes. */
const int32_t *run_tokens(const struct run *r, int seq);

/* ---- adapters (model/adapter.h) ----
 *
 * Each sequence has a list of adapters, empty at first, which its rows take; rows of one step may have any lists, and
 * have the bytes they have alone. The weights are read once for all. A scale of 0 is as if the adapter were not there. */
struct model_adapter;
struct run_adapter {
    const struct model_adapter *adapter;
    float                       scale;
};
enum { RUN_ADAPTERS_MAX = 8 }; /* of a sequence */
enum { RUN_ADAPTERS_STEP = 64 }; /* different ones in a step: more are ERR_ARG */
/* The sequence takes these from now on (n 0: none), in this order; they stay open as long. Where it had others it is
 * cleared: what it holds was made with those. The same list, made by the same floats, changes nothing. run_clear() and
 * run_match() leave it, run_fork() copies it. ERR_ARG: too many, their ranks sum up to more than adapter_rank, a scale
 * that is not finite. */
MUST_CHECK enum err_code run_set_adapters(struct run *r, int seq, const struct run_adapter *a, int n, struct err *e);
/* What that would say of the list, whatever the sequence. */
MUST_CHECK enum err_code run_check_adapters(const struct run *r, const struct run_adapter *a, int n, struct err *e);
/* Whether the sequence has this list, and its floats are as they were. */
bool run_has_adapters(const struct run *r, int seq, const struct run_adapter *a, int n);
/* The adapter is about to be closed: sequences that have it are cleared, and have none. */
void run_forget_adapter(struct run *r, const struct model_adapter *a);
/* Lists with one hash do the same. 0: none of them has an effect. */
uint64_t run_adapters_hash(const struct run_adapter *a, int n);

/* ---- checkpoints ----
 *
 * A ladder of snapshots of the recurrent layers makes the past of a sequence reachable beyond run_undo(). With R
 * bytes in a snapshot and B checkpoint_bytes each of n sequences has N = B / (n R) rungs. G = N / 2 of them stand
 * on a grid: the context is cut into G + 1 equal stretches, S = ceil(ctx / (G + 1)) tokens but at least 32. A rung
 * is taken as soon as the last one of the grid lies S tokens back. run_feed() cuts its steps there; a run_step() of
 * several rows of one sequence takes it after the step. The other rungs stand at marks; when there is no room for
 * another one, every second mark is dropped. Forks share snapshots. */

/* Takes a rung where the sequence is now: at the border of a message. Does nothing when there are no rungs, or
 * one is there. */
void    run_mark(struct run *r, int seq);
int64_t run_spacing(const struct run *r);        /* S; 0: no grid */
int64_t run_snapshot_bytes(const struct model *m); /* R; 0: no recurrent layers, no need of checkpoints */
int     run_rungs(const struct run *r, int seq); /* of a sequence now */

/* What run_match() found. */
struct run_match {
    int64_t held;       /* tokens the sequence had */
    int64_t common;     /* leading tokens that are equal */
    int64_t kept;       /* tokens the sequence has now: what remains is to be fed from tokens[kept] on */
    int32_t had, given; /* the first tokens that differ, at position common; -1: that side has no more */
};
/* Makes the sequence hold the longest prefix of tokens[0 .. n) that can be had without evaluating anything, at
 * most n - 1 tokens, so that the last one gives logits: what is equal is kept; what is not is undone when that is
 * in reach, else the highest rung at or below is restored. At least common - S tokens are kept when there is a
 * grid and tokens came through run_feed(). n >= 1. */
MUST_CHECK enum err_code run_match(struct run *r, int seq, const int32_t *tokens, int64_t n,
                                   struct run_match *out, struct err *e);

/* How many tokens run_match() would keep. Changes nothing. */
int64_t run_kept(const struct run *r, int seq, const int32_t *tokens, int64_t n);
/* Tokens until the next rung of the grid is due, INT64_MAX: never. A step that ends there puts it in its place. */
int64_t run_due(const struct run *r, int seq);

/* Row i of the last step after tap_layers[tap], n_embd floats, copied from the device. False: there is none. (For tests:
 * a drafter reads them where they lie.) */
bool run_tap(struct run *r, int tap, int i, float *out);
bool run_taps_last(const struct run *r); /* tap 0 is after the final norm */

/* For tests and tools: the residual stream. `hidden` gets [n_layer + 2][n][n_embd]: the input of layer
 * 0, the output of every layer, the output of the final norm, for the rows of the next run_step. NULL
 * switches it off. */
void run_trace_hidden(struct run *r, float *hidden);
#endif
