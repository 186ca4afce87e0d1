/* SPDX-License-Identifier: Apache-2.0 */
/* eval.h - the quality of a model and the cost of a token, with confidence intervals.
 * room: eval
 *
 * Perplexity and divergence over texts cut into windows, answers to tasks and their grading, bytes that a step moves,
 * and statistics for differences. Nothing here prints; nothing depends on the time. Logarithms are natural.
 */
#ifndef EVAL_EVAL_H
#define EVAL_EVAL_H
#include "base/base.h"
#include "base/json.h"
#include "model/class.h"

struct gguf;
struct run;

/* ---- statistics ---- */

struct eval_interval {
    double lo, hi;
};
struct eval_mean {
    double mean, se; /* standard error; 0 when it cannot be known */
};

/* Wilson's score interval for a proportion (1927): z is 1.96 for 95 %. n == 0 gives 0 .. 1. */
struct eval_interval eval_wilson(int64_t right, int64_t n, double z);
/* McNemar's exact two-sided test: b items only the one had right, c only the other. */
double eval_mcnemar(int64_t b, int64_t c);
/* The interval of the difference of two proportions over the same n items, the first minus the second: b items only the
 * one had right, c only the other, `both` both (Newcombe 1998, method 10; z as above). n == 0 gives -1 .. 1. */
struct eval_interval eval_paired(int64_t both, int64_t b, int64_t c, int64_t n, double z);
/* Mean of values in groups, given each group's sum and count. The standard error takes groups, not
 * values, as independent (ratio estimator). Fewer than two groups: se is 0. */
struct eval_mean eval_group_mean(const double *sum, const int64_t *n, int64_t n_groups);
/* 95 % percentile interval of the mean of v[n], by `rounds` resamples (Efron 1979). ERR_NOMEM. */
MUST_CHECK enum err_code eval_bootstrap(struct eval_interval *out, const double *v, int64_t n, int rounds,
                                        uint64_t seed, struct err *e);
/* The area under the ROC curve: how often something right has a higher score than something wrong, ties counted as
 * half; with its standard error (Hanley and McNeil 1982). NaN: all are right, or none is. ERR_NOMEM. */
MUST_CHECK enum err_code eval_auc(struct eval_mean *out, const double *score, const bool *right, int64_t n,
                                  struct err *e);
void eval_sort(double *v, int64_t n);                            /* ascending */
double eval_quantile(const double *sorted, int64_t n, double q); /* linear between ranks; n >= 1 */

/* ---- texts in windows ---- */

struct eval_tokens {
    const int32_t *v;
    int64_t n;
};

/* stride_tokens == 0: windows of ctx_tokens lie side by side, what remains at the end is left out,
 * and in each the tokens after position ctx_tokens / 2 are scored: the convention of llama.cpp's
 * perplexity tool. Otherwise windows begin stride_tokens apart, and every token of a text but its
 * first is scored once, with as much of the window before it as there is; windows as far apart as they
 * are long have nothing that predicts their first tokens, which are not scored. bos >= 0 stands in place
 * of a window's first token. */
struct eval_window_opts {
    int64_t ctx_tokens;
    int64_t stride_tokens;
    int64_t windows_first; /* those before it are left out */
    int64_t windows_max;   /* 0: all */
    int32_t bos;
};
/* logits predict `token`. `window` counts from 0 over all texts. */
typedef enum err_code eval_sink(void *ctx, int64_t window, int32_t token, const float *logits, struct err *e);

int64_t eval_window_count(const struct eval_tokens *texts, size_t n_texts, const struct eval_window_opts *o);
int64_t eval_scored_count(const struct eval_tokens *texts, size_t n_texts, const struct eval_window_opts *o);
/* Walks all windows of all texts through sequence 0 of r, whose context must hold ctx_tokens.
 * ERR_ARG when the options make no sense or there is no window. progress gets windows done. */
MUST_CHECK enum err_code eval_windows(struct run *r, const struct eval_tokens *texts, size_t n_texts,
                                      const struct eval_window_opts *o, eval_sink *sink, void *ctx,
                                      const struct progress *progress, struct err *e);

/* ln softmax(logits)[token]; token < n. */
double eval_logprob(const float *logits, int32_t n, int32_t token);

/* ---- perplexity ---- */

struct eval_ppl {
    int64_t n;        /* tokens scored */
    double sum, sum2; /* of -ln p, and its square */
    double *win_sum;  /* [windows], caller's, zeroed; or NULL */
    int64_t *win_n;
};
void eval_ppl_add(struct eval_ppl *p, int64_t window, double logprob);
struct eval_mean eval_ppl_tokens(const struct eval_ppl *p); /* perplexity; tokens taken as independent */

/* ---- divergence from a reference ---- */

struct eval_kl {
    float kl;                   /* sum over the vocabulary of p ln(p / q), p the reference; >= 0 */
    float logprob, ref_logprob; /* of the text's token */
    bool same_top;              /* the likeliest token is the same */
};
struct eval_kl eval_kl(const float *ref, const float *logits, int32_t n, int32_t token);

/* Logits in 16 bits, for files: distance below the largest in steps of 1/2048, at most 32. */
void eval_pack_logits(uint16_t *out, const float *logits, int32_t n);
void eval_unpack_logits(float *out, const uint16_t *packed, int32_t n);

/* ---- tasks ---- */

/* An item: {"id", "messages", "enable_thinking", "answer", "check", ...}. check is one of
 *   exact      the answer's text, trimmed, equals `answer`
 *   numeric    the last number in it equals `answer`, within "tolerance" (0 if absent)
 *   regex      the regular expression `answer` (PCRE2) is found in it
 *   verdict    its last word of yes, no, true, false, correct, incorrect says the same as `answer`
 *   tool_call  the calls in it have the names and arguments of `answer`, and there is nothing else
 * ERR_FORMAT says what is wrong with the item. */
MUST_CHECK enum err_code eval_task_check(const json_t *item, struct err *e);
/* text: all that the model wrote after the prompt, control tokens spelled out but for the one that
 * ended the turn. A prompt that opened a think block wants it closed: what is graded comes after.
 * item has passed eval_task_check(). */
MUST_CHECK enum err_code eval_grade(const json_t *item, struct str text, bool *right, struct err *e);
/* An answer that was kept without its reasoning: a text, of which only what follows a last </think> counts, or for
 * tool_call an array of calls, in the form of `answer`. */
MUST_CHECK enum err_code eval_grade_answer(const json_t *item, const json_t *answer, bool *right, struct err *e);

/* ---- what a step moves ---- */

struct eval_traffic {
    int64_t weight_bytes[MODEL_N_CLASSES]; /* in the file */
    int64_t row_bytes;                     /* of the embedding: one row */
    bool tied;                             /* the output is the embedding */
    int n_layer, n_expert, n_used;
    int64_t kv_floats;   /* one position, all layers, keys and values */
    int64_t state_bytes; /* recurrent memory of a sequence */
    int64_t n_params, ctx_train;
};
/* From metadata; tensors' bytes are added by the caller when g holds none (bytes NULL: g's own). */
MUST_CHECK enum err_code eval_traffic(struct eval_traffic *t, const struct gguf *g, struct err *e);
/* Weights read in one step of n_rows rows: dense ones once, the expected number of different
 * experts if routing is even. */
double eval_step_bytes(const struct eval_traffic *t, enum model_class c, int n_rows);
/* KV rows of n_pos positions and recurrent state, read and (state) written, for one token. */
double eval_memory_bytes(const struct eval_traffic *t, int64_t n_pos, double kv_elem_bytes);
#endif
