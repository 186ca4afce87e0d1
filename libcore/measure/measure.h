/* SPDX-License-Identifier: Apache-2.0 */
/* measure.h - how changed tensors change a model's answers.        room: measure
 *
 * A measurement keeps the logits of the unchanged model on some sequences of tokens. A probe is the same model with
 * other bytes for some tensors, opened and run on the same sequences. The divergence of its answers is the cost of
 * these bytes. This works for every model and device that a run works for.
 *
 * For the families of room grad, second moments give an estimate of that cost from one backward pass. With labels drawn
 * from the model's own output, the squares of gradients are the diagonal of its Fisher information. Half of that times
 * the squared changes is the divergence to second order (Amari 1998; factors for inputs and outputs: Martens & Grosse
 * 2015). One caller at a time.
 */
#ifndef MEASURE_MEASURE_H
#define MEASURE_MEASURE_H
#include "base/base.h"
#include "eval/eval.h"

struct gguf;
struct measure;
struct model_opts;

/* Sequences of the same length, one after the other; freed with free(v). The loss is counted from position `from` on,
 * because a model that has read only a little loses more than in the middle of a text. */
struct measure_text {
    int32_t *v; /* [n_seq][n_tokens] */
    int n_seq;
    int64_t n_tokens, from; /* n_tokens >= 2; from < n_tokens, set by the caller */
};

/* Text that the model writes by itself: n_seq sequences drawn at temperature 1, each beginning with the token `first`.
 * A sequence that repeats itself (its different tokens are fewer than an eighth of it) is drawn again, three times at
 * most. The result depends only on the model and the seed. The caller sets out->n_seq and n_tokens. */
MUST_CHECK enum err_code measure_write(struct measure_text *out, const struct gguf *g, const struct model_opts *o,
                                       int32_t first, uint64_t seed, const struct progress *progress, struct err *e);
/* Tokens drawn evenly from the vocabulary of n_vocab. */
MUST_CHECK enum err_code measure_random(struct measure_text *out, int32_t n_vocab, uint64_t seed, struct err *e);
/* n_seq pieces of a longer text, evenly spread. If the text is too short for that, there are fewer: out->n_seq is set.
 * ERR_ARG: it is shorter than one piece. */
MUST_CHECK enum err_code measure_cut(struct measure_text *out, const int32_t *tokens, int64_t n, struct err *e);

/* Runs the unchanged model. Copies the text; g and what o points to must outlive the measurement. Memory: 2 bytes for
 * each pair of a token that counts and an entry of the vocabulary. */
MUST_CHECK enum err_code measure_open(struct measure **out, const struct gguf *g, const struct model_opts *o,
                                      const struct measure_text *text, const struct progress *progress, struct err *e);
void measure_close(struct measure *m); /* NULL is allowed */
/* Mean KL, in nats per token, of `changed` (gguf_with() of the same model) from the unchanged model; the standard
 * error takes sequences as independent. */
MUST_CHECK enum err_code measure_kl(struct measure *m, const struct gguf *changed, struct eval_mean *out,
                                    const struct progress *progress, struct err *e);

/* The moments of a matrix, for each of its experts separately. */
struct measure_moment {
    char *name; /* of the tensor */
    int64_t n_in, n_out, n_expert;
    bool embedding; /* the token embedding, whose rows are looked up; it is the first of the list */
    int64_t *rows;  /* [n_expert] tokens that used it */
    /* Sums over these tokens of the squares of the inputs, and of the squares of the outputs' gradients. For the
     * embedding: sums of squares of the gradients of the rows that were looked up, and how often each row was. */
    float *in;  /* [n_expert][n_in] */
    float *out; /* [n_expert][n_out] */
};
struct measure_moments {
    struct measure_moment *v; /* a matrix that is both embedding and output is listed twice */
    int n;
    struct measure_text text; /* its shape */
};
/* The loss is -log p of a label for each token that counts, drawn from the model's output. The result depends only on
 * the model, the text and the seed, not on the number of threads (0: all processors). ERR_UNSUPPORTED: room grad does
 * not have this family. */
MUST_CHECK enum err_code measure_moments_open(struct measure_moments **out, const struct gguf *g, int n_threads,
                                              const struct measure_text *text, uint64_t seed,
                                              const struct progress *progress, struct err *e);
void measure_moments_close(struct measure_moments *m); /* NULL is allowed */
/* Writes the inputs' sums as an imatrix file in llama.cpp's GGUF form (ramp_importance_open()); `text` says what they
 * were measured on. Layers of the model that have no moments are in it too, as used by no token. */
MUST_CHECK enum err_code measure_imatrix_write(const struct measure_moments *m, const struct gguf *g, const char *path,
                                               const char *text, struct err *e);
#endif
