/* SPDX-License-Identifier: Apache-2.0 */
/* run.h - tokens in, logits out; several sequences in one step.          room: run
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
    int64_t ctx_tokens; /* longest sequence; 0: what the model was trained for */
    int64_t kv_tokens;  /* KV rows for all sequences, in whole pages; 0: ctx_tokens for each */
    int n_seq;          /* sequences, >= 1 (0 means 1) */
    int rows_max; /* rows in one step; 0: 512, on a GPU up to 2048, or run/placement.h's; 1024 if experts are shared */
    int logits_max;   /* rows with logits in one step; 0: as many as fit into 64 MB, but at least n_seq */
    const char *kv_k; /* "f32", "f16", "q8_0", "q4_0"; NULL: f32 where the device's memory is the host's, else f16 */
    const char *kv_v;
    int undo_tokens;          /* how many tokens run_undo() can always remove; 0: none on recurrent models */
    int draft_max;            /* draft rows of a sequence in one step, at most; see run_settle() */
    int64_t checkpoint_bytes; /* for snapshots of the recurrent layers, of all sequences together; 0: none */
    /* [n_taps] The residual stream after these layers (0 .. n_layer - 1; n_layer: after the final norm) stays on the
     * device for a drafter, for all rows of the last step. At most RUN_TAPS_MAX. */
    const int *tap_layers;
    int n_taps;
    bool taps_skip; /* steps under way with others (run_step_begin()) keep no such rows; else there are no such steps */
    /* NULL, or called by any thread during a step (dev_may_stop()). If it returns true, the step ends with ERR_CANCEL,
     * and the sequences that had rows in it are empty. */
    bool (*stop)(void);
    /* After such a step, sequences that had more than one row in it, not counting guesses, are as they were before the
     * step instead of empty, but nothing can be undone. Costs a snapshot for each sequence, and a copy of it before
     * such steps. */
    bool stop_keeps;
    int adapter_rank; /* the most that the ranks of a sequence's adapters may add up to; 0: no adapters */
};

enum { RUN_TAPS_MAX = 16 };

struct run_row {
    int32_t token;
    int seq;     /* 0 .. n_seq - 1 */
    bool logits; /* wanted for this row */
    bool draft;  /* a guess: see run_settle() */
};

/* ERR_ARG: keys and values have no type of that name. */
MUST_CHECK enum err_code run_kv_known(const char *type, struct err *e);

/* Reserves everything the run will use: steps do not allocate. ERR_ARG for options out of range,
 * ERR_NOMEM when the memory cannot be reserved (the message says how much was asked). */
MUST_CHECK enum err_code run_open(struct run **out, struct model *m, const struct run_opts *o, struct err *e);
void run_close(struct run *r); /* NULL is allowed */
/* Call it right after run_open(). A GPU loads code when it is first used, and is faster with a step whose shape it has
 * seen a few times. This makes some steps of one row with sequence 0 and clears it, so that the first tokens are
 * decoded as fast as later ones. Does nothing on the CPU. The counts of uses of experts start from 0 after it. */
MUST_CHECK enum err_code run_warm_up(struct run *r, struct err *e);
/* The device is such a GPU: the first two steps of each shape take longer. */
bool run_records(const struct run *r);

/* One step with n <= rows_max rows, at most logits_max of them with logits. ERR_ARG: a token outside the vocabulary, a
 * bad sequence number. ERR_LIMIT: a sequence would exceed ctx_tokens, or the step needs more than run_kv_left(). In
 * these cases nothing has changed. ERR_IO, ERR_FORMAT: experts could not be read (model_placement.cache_bytes); the
 * sequences that had rows in the step are as after a step that was stopped. */
MUST_CHECK enum err_code run_step(struct run *r, const struct run_row *rows, int n, struct err *e);
/* The n_vocab logits of row i of the last step; NULL if they were not asked for. Valid until the next step. If the
 * device's memory is not the host's, this copies the row, and with it the neighbouring rows that are wanted whole. */
const float *run_logits(struct run *r, int i);

/* Draft rows are guessed tokens that can be removed right after the step. They are the last rows of their sequence in
 * the step, at most draft_max. This call keeps the first `keep` of them; what follows has the same bytes as if the
 * others had never been there. Until then the sequence takes no other row, and can only be cleared, loaded, or be the
 * target of a fork. Nothing is launched or copied, unless a checkpoint is due: the KV rows of removed drafts are
 * overwritten later, and recurrent layers compute the kept rows again when the next step begins. Does nothing if there
 * are no draft rows. Memory: for each sequence and draft row, the inputs of every recurrent layer
 * (arch_plan_input_floats()). */
void run_settle(struct run *r, int seq, int keep);

/* As run_step(); want[i] says what is wanted of row i, if that has logits. Rows that want all logits (n_top 0) may be
 * mixed with others. masks: called once, with ctx, unless the step is refused. It fills the masks that the wants point
 * to, and must not use the run. On a GPU it is called while the device computes; the device waits for it only when it
 * needs the first mask. On other devices it is called before anything is computed. NULL: the masks are filled already.
 * ids and masks are read before this returns. ERR_ARG also for a want out of range. */
typedef void run_masks(void *ctx);
MUST_CHECK enum err_code run_step_want(struct run *r, const struct run_row *rows, const struct logits_want *want, int n,
                                       run_masks *masks, void *ctx, struct err *e);
/* ---- steps under way ----
 *
 * With several devices a step is on one of them at a time. So that the others have work, up to run_flights() steps of
 * different sequences may be under way at once: a device has one while the device before it has the next.
 * run_step_begin() does what run_step_want() does, but does not wait; run_step_end() does. The step that was begun
 * first is done first. The rows have the bytes that they have in a step of all. Until its step has ended, a sequence
 * can be in no other and nothing may be done with it; with others everything may be done but run_step_want(). Devices
 * that compute at once (the CPU) have done a step when it has begun. */
enum { RUN_FLIGHTS_MAX = 16 };
/* 1: run_step_begin() is not there: one device or one sequence, hidden rows of each step (a drafter's steps would have
 * to wait for all others), experts on the host (which are read once for all rows of a step). */
int run_flights(const struct run *r);
int run_flight_rows(const struct run *r);   /* rows in such a step, and */
int run_flight_logits(const struct run *r); /* those of them with logits */
/* number: 0 .. run_flights() - 1, none of a step that has not ended. Errors are those of run_step_want(); then no step
 * is under way. */
MUST_CHECK enum err_code run_step_begin(struct run *r, int number, const struct run_row *rows,
                                        const struct logits_want *want, int n, run_masks *masks, void *ctx,
                                        struct err *e);
/* After it run_logits() and run_digest() are of this step, until another one ends or this number begins again. Errors
 * are those of devices; the step's sequences are empty then, if the device goes on. */
MUST_CHECK enum err_code run_step_end(struct run *r, int number, struct err *e);

/* The digest of row i of the last step, valid until the next step. False: there is none, because the row wanted all of
 * its logits, or because the device's memory is the host's. Then use run_logits(), and apply the want's mask when
 * choosing. */
bool run_digest(struct run *r, int i, struct logits_digest *out);

/* Whether steps of this run can give digests: its logits are not in the host's memory. */
bool run_digests(const struct run *r);

/* Called for each row whose logits were asked for, in order. Returns an error to stop. */
typedef enum err_code run_sink(void *ctx, int64_t pos, const float *logits, struct err *e);

/* Feeds n tokens to one sequence in steps of at most rows_max. Logits are computed for the last
 * n_logits tokens and given to sink. If sink is NULL, n_logits must be <= 1, and run_logits_last() has them.
 * progress may be NULL; tick gets tokens done of n. ERR_LIMIT before the first step if there is no room for all tokens.
 */
MUST_CHECK enum err_code run_feed(struct run *r, int seq, const int32_t *tokens, int64_t n, int64_t n_logits,
                                  run_sink *sink, void *ctx, const struct progress *progress, struct err *e);
/* Logits of the newest row of the last step; NULL if not asked for. */
const float *run_logits_last(struct run *r);

int64_t run_pos(const struct run *r, int seq); /* tokens in the sequence */
int64_t run_ctx(const struct run *r);          /* ctx_tokens in force */
/* KV rows are taken in pages of 256 positions, as sequences need them. Forked sequences share pages; a sequence that
 * writes to a shared page copies it first. run_clear(), run_undo() and run_match() free the pages that nobody needs. */
enum { RUN_KV_PAGE = 256 };
int64_t run_kv_rows(const struct run *r);                     /* rows of all pages */
int64_t run_kv_left(const struct run *r);                     /* rows in pages that are free */
int64_t run_kv_need(const struct run *r, int seq, int64_t n); /* free rows that n more tokens of a sequence take */
int run_rows_max(const struct run *r);                        /* rows in a step */
int run_logits_max(const struct run *r);                      /* rows with logits in a step */
int run_draft_max(const struct run *r);                       /* draft rows of a sequence in a step */
int run_n_seq(const struct run *r);
int32_t run_n_vocab(const struct run *r);
int run_n_embd(const struct run *r);
void run_kv(const struct run *r, const char **k, const char **v); /* types in force */
void run_clear(struct run *r, int seq);                           /* forget the sequence */
/* model_cache_stats() of its model. */
struct io_cache_stats;
bool run_expert_reads(const struct run *r, struct io_cache_stats *out);
/* Removes the newest n tokens: n <= run_undoable(). That is at least undo_tokens (or all tokens, if there are fewer);
 * on a model without recurrent layers it is all tokens. What follows has the same bytes as if they had never been
 * there. */
MUST_CHECK enum err_code run_undo(struct run *r, int seq, int64_t n, struct err *e);
int64_t run_undoable(const struct run *r, int seq);
/* Sequence dst becomes a copy of src; KV rows are shared until one of them writes. */
MUST_CHECK enum err_code run_fork(struct run *r, int dst, int src, struct err *e);
int64_t run_state_bytes(const struct run *r); /* reserved for all sequences */
/* The tokens of a sequence, run_pos() of them; valid until the sequence changes. */
const int32_t *run_tokens(const struct run *r, int seq);

/* ---- adapters (model/adapter.h) ----
 *
 * Each sequence has a list of adapters, empty at first, that apply to its rows. Rows with different lists may be in one
 * step, and give the same bytes as alone; the model's weights are read once for all of them. An adapter with scale 0
 * has no effect, as if it were not in the list. */
struct model_adapter;
struct run_adapter {
    const struct model_adapter *adapter;
    float scale;
};
enum { RUN_ADAPTERS_MAX = 8 };   /* of a sequence */
enum { RUN_ADAPTERS_STEP = 64 }; /* different ones in a step: more are ERR_ARG */
/* Gives the sequence these adapters in this order (n 0: none); they must stay open as long as it has them. If it had
 * other ones, it is cleared, since its contents were made with those. The same list with the same floats changes
 * nothing. run_clear() and run_match() keep the list, run_fork() copies it. ERR_ARG: too many adapters, ranks that add
 * up to more than adapter_rank, a scale that is not finite. */
MUST_CHECK enum err_code run_set_adapters(struct run *r, int seq, const struct run_adapter *a, int n, struct err *e);
/* The error that run_set_adapters() would give for this list; it does not depend on the sequence. */
MUST_CHECK enum err_code run_check_adapters(const struct run *r, const struct run_adapter *a, int n, struct err *e);
/* Whether the sequence has this list, and the adapters' floats have not changed since. */
bool run_has_adapters(const struct run *r, int seq, const struct run_adapter *a, int n);
/* Call it before the adapter is closed: sequences that have it are cleared and get an empty list. */
void run_forget_adapter(struct run *r, const struct model_adapter *a);
/* A hash of a list: lists with the same hash have the same effect. 0: no adapter in it has any effect. */
uint64_t run_adapters_hash(const struct run_adapter *a, int n);

/* ---- checkpoints ----
 *
 * Snapshots of the recurrent layers, called rungs, let a sequence go back further than run_undo() can. With R
 * bytes in a snapshot and B checkpoint_bytes each of n sequences has N = B / (n R) rungs. G = N / 2 of them are
 * on a grid: the context is cut into G + 1 equal stretches, S = ceil(ctx / (G + 1)) tokens but at least 32. A rung
 * is taken as soon as the last one of the grid lies S tokens back. run_feed() cuts its steps there; if a run_step() has
 * several rows of one sequence, the rung is taken after the step. The other rungs are at marks; when there is no room
 * for another one, every second mark is dropped. Forks share snapshots. */

/* Takes a rung at the sequence's current position: call it at the end of a message. Does nothing if the run has no
 * rungs, or if there is one at this position. */
void run_mark(struct run *r, int seq);
int64_t run_snapshot_bytes(const struct model *m); /* R; 0: no recurrent layers, no need of checkpoints */

/* What run_match() found. */
struct run_match {
    int64_t held;       /* tokens the sequence had */
    int64_t common;     /* leading tokens that are equal */
    int64_t kept;       /* tokens the sequence has now: the caller feeds it from tokens[kept] on */
    int32_t had, given; /* the first tokens that differ, at position common; -1: that side has no more */
};
/* Makes the sequence hold the longest prefix of tokens[0 .. n) that is possible without evaluating anything, but at
 * most n - 1 tokens, so that the last one still gives logits. Equal tokens are kept. The others are undone if
 * run_undo() can do that; if not, the highest rung at or below the first difference is restored. If there is a grid and
 * the tokens came through run_feed(), at least common - S tokens are kept. n >= 1. */
MUST_CHECK enum err_code run_match(struct run *r, int seq, const int32_t *tokens, int64_t n, struct run_match *out,
                                   struct err *e);

/* How many tokens run_match() would keep. Changes nothing. */
int64_t run_kept(const struct run *r, int seq, const int32_t *tokens, int64_t n);
/* Tokens until the next rung of the grid is due; INT64_MAX: never. A step that ends there takes it at its exact place.
 */
int64_t run_due(const struct run *r, int seq);

/* Row i of the last step after tap_layers[tap], n_embd floats, copied from the device. False: there is none. For tests;
 * a drafter reads the rows on the device (run/taps.h). */
bool run_tap(struct run *r, int tap, int i, float *out);
int run_n_taps(const struct run *r);
#endif
