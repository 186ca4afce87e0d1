/* SPDX-License-Identifier: Apache-2.0 */
/* writer.h - the model writes texts to train on, with the hidden states of each token.      room: train
 *
 * The hidden states are those that the model also has when it serves, with its stored weights and usual
 * rounding: rows of the residual stream that its run leaves (run/taps.h). A writer owns the engine of a
 * run while it is open; answers in progress wait between two calls of train_writer_run(). One thread. */
#ifndef TRAIN_WRITER_H
#define TRAIN_WRITER_H
#include "train/texts.h"

struct run;
struct run_adapter;
struct text;
struct train_writer;

struct train_ask {
    const int32_t *prompt; /* [n_prompt], copied */
    int64_t n_prompt;
    int of, source; /* train_text_entry */
    float temp;     /* 0: greedy */
    uint64_t seed, stream;
};
/* Gives the next text to write; false: none for now. Prompts must be shorter than the run's context. */
typedef bool train_next(void *ctx, struct train_ask *ask);

/* run taps `n_tap` layers. The model writes with the adapters [n_adapters], which are as of run_set_adapters() and have
 * to stay open until the writer is closed. n_predict: tokens of an answer at most; one that ends earlier has its end
 * token. ERR_NOMEM. */
MUST_CHECK enum err_code train_writer_open(struct train_writer **out, struct run *run, const struct text *text,
                                           const struct run_adapter *adapters, int n_adapters, int n_tap,
                                           int64_t n_predict, struct err *e);
void train_writer_close(struct train_writer *w); /* NULL is allowed */
/* Writes until go_on returns false (it is called before each step), or until next has none and every answer is
 * complete. Written texts are added to `to`, except those with fewer than two written tokens. */
MUST_CHECK enum err_code train_writer_run(struct train_writer *w, struct train_texts *to, train_next *next,
                                          bool (*go_on)(void *ctx), void *ctx, struct err *e);
/* Answers in progress are given up, and added nowhere. */
void train_writer_drop(struct train_writer *w);
int64_t train_writer_tokens(const struct train_writer *w);        /* written so far */
int64_t train_writer_bytes(const struct run *run, int64_t width); /* that one takes, for texts of the run's context */
#endif
