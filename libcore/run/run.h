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

struct model;
struct run;

struct run_opts {
    int64_t     ctx_tokens; /* longest sequence; 0: what the model was trained for */
    int         n_seq;      /* sequences, >= 1 (0 means 1) */
    int         rows_max;   /* rows in one step; 0: 512 */
    const char *kv_k;       /* "f32", "f16", "q8_0", "q4_0"; NULL: f32 */
    const char *kv_v;
    int         undo_tokens; /* how many tokens run_undo() can always forget; 0: none on recurrent models */
};

struct run_row {
    int32_t token;
    int     seq;       /* 0 .. n_seq - 1 */
    bool    logits;    /* wanted for this row */
};

/* Reserves everything the run will use: steps do not allocate. ERR_ARG for options out of range,
 * ERR_NOMEM when the memory cannot be reserved (the message says how much was asked). */
MUST_CHECK enum err_code run_open(struct run **out, struct model *m, const struct run_opts *o, struct err *e);
void run_close(struct run *r); /* NULL is allowed */

/* n <= rows_max. ERR_ARG: a token outside the vocabulary, a bad sequence number. ERR_LIMIT: a
 * sequence would exceed ctx_tokens. In both cases nothing has changed. */
MUST_CHECK enum err_code run_step(struct run *r, const struct run_row *rows, int n, struct err *e);
/* n_vocab floats of row i of the last step, which asked for them; NULL if it did not. Valid
 * until the next step. */
const float *run_logits(const struct run *r, int i);

/* Called for each row whose logits were asked for, in order. Returns an error to stop. */
typedef enum err_code run_sink(void *ctx, int64_t pos, const float *logits, struct err *e);

/* Feeds n tokens to one sequence in steps of at most rows_max. Logits are computed for the last
 * n_logits tokens and given to sink (may be NULL: then n_logits must be <= 1 and run_logits_last()
 * has them). progress may be NULL; tick gets tokens done of n. */
MUST_CHECK enum err_code run_feed(struct run *r, int seq, const int32_t *tokens, int64_t n,
                                  int64_t n_logits, run_sink *sink, void *ctx,
                                  const struct progress *progress, struct err *e);
/* Logits of the newest row of the last step; NULL if not asked for. */
const float *run_logits_last(const struct run *r);

int64_t run_pos(const struct run *r, int seq);   /* tokens in the sequence */
int64_t run_ctx(const struct run *r);            /* ctx_tokens in force */
int     run_rows_max(const struct run *r);
void    run_clear(struct run *r, int seq);       /* forget the sequence */
/* Forgets the newest n tokens: n <= run_undoable(), which is at least undo_tokens (or all there are), and
 * everything on a model without recurrent layers. What follows has the bytes it would have had. */
MUST_CHECK enum err_code run_undo(struct run *r, int seq, int64_t n, struct err *e);
int64_t run_undoable(const struct run *r, int seq);
/* Sequence dst becomes a copy of src at its position; KV rows are shared until one of them writes. */
MUST_CHECK enum err_code run_fork(struct run *r, int dst, int src, struct err *e);
int64_t run_state_bytes(const struct run *r);    /* reserved for all sequences */

/* For tests and tools: the residual stream. `hidden` gets [n_layer + 2][n][n_embd]: the input of layer
 * 0, the output of every layer, the output of the final norm, for the rows of the next run_step. NULL
 * switches it off. */
void run_trace_hidden(struct run *r, float *hidden);
#endif
