/* SPDX-License-Identifier: Apache-2.0 */
/* dflash.h - a DFlash drafter learns from texts of its model.                       room: train
 *
 * A block begins at a token that the model wrote, its anchor; the tokens after it have to be guessed.
 * Loss: cross entropy at places k = 1 .. B - 1 with weight exp(-(k - 1) / gamma), gamma 7 for blocks
 * of more than 8 tokens and 4 for others. The weight falls because a guess is only used if all guesses
 * before it are right. (arXiv 2602.06036) 60, 22 and 18 % of the blocks have B, B / 2 and B / 4 tokens,
 * so that each of these sizes can be used. Texts are drawn in proportion to (tokens written)^0.75.
 */
#ifndef TRAIN_DFLASH_H
#define TRAIN_DFLASH_H
#include "train/adam.h"
#include "train/file.h"
#include "train/texts.h"

struct gguf;

struct train_dflash_opts {
    int n_text, n_anchor; /* texts in a step, and blocks of each */
    float rate;           /* the largest step size; Muon's is ten times it */
    int n_warm;           /* steps before it */
    uint64_t seed;
};
struct train_dflash {
    struct train_dflash_opts o;
    struct train_net net;
    struct train_adam adam; /* on the host: after train_dflash_save() and _load() */
    float *m, *v;           /* its moments in the network's memory; those of adam where that is the host's. m of
                                         matrices is Muon's momentum on a GPU */
    struct train_frozen frozen;
    unsigned char *how;      /* [n_params] in the network's memory: DEV_ADAM_* */
    float *scratch;          /* there, too, of Muon */
    double spent_s;          /* time that went into it so far */
    int64_t bad;             /* steps in a row whose gradient was not finite */
    struct train_draw *draw; /* memory for a batch */
};
/* New weights. ERR_FORMAT, ERR_NOMEM. */
MUST_CHECK enum err_code train_dflash_open(struct train_dflash *d, const struct train_shape *s,
                                           const struct gguf *model, struct dev_math *m,
                                           const struct train_dflash_opts *o, struct err *e);
void train_dflash_close(struct train_dflash *d);
/* Bytes that it takes at most for texts of up to ctx_tokens, without the frozen matrices of the target: in the memory
 * of m, and of the host if that is another. old: a network that walks over texts while this one makes no pass; NULL:
 * none does. */
int64_t train_dflash_bytes(const struct train_shape *s, const struct train_shape *old,
                           const struct train_dflash_opts *o, const struct dev_math *m, int64_t n_vocab);
int64_t train_dflash_host_bytes(const struct train_shape *s, const struct dev_math *m);

/* One step, of AdamW, on a GPU of Muon for matrices; part: how much of the whole job is done, 0 .. 1. There must be a
 * text. The step may still be under way when this returns; train_dflash_loss(), to be called before the next one, waits
 * for it. A gradient that is not finite changes nothing; ERR_FORMAT after 20 of them in a row. */
MUST_CHECK enum err_code train_dflash_step(struct train_dflash *d, struct train_texts *t, double part, struct err *e);
MUST_CHECK enum err_code train_dflash_loss(struct train_dflash *d, struct train_loss *loss, struct err *e);

/* Writes weights, moments and time spent to a file, complete or not at all; `job` names the job. */
MUST_CHECK enum err_code train_dflash_save(struct train_dflash *d, const char *path, struct str job, struct err *e);
/* ERR_ARG: the file is of another job. ERR_FORMAT: it is damaged. */
MUST_CHECK enum err_code train_dflash_load(struct train_dflash *d, const char *path, struct str job, struct err *e);

/* Simulates drafting of each text: a block of B tokens with its anchor, then the next one where its accepted guesses
 * end. steps[i]: steps of the target for text i, without its pass over the prompt and the token from that. A step gives
 * the accepted guesses and one token of the target's own, but nothing after the text's end. group: texts at once, as
 * many as a step has; tick: after each of them. */
MUST_CHECK enum err_code train_walk(struct train_net *net, const struct train_target *target,
                                    const struct train_texts *t, int block, int group, int64_t *steps,
                                    const struct progress *progress, struct err *e);
/* How many tokens of a text these steps produce. */
int64_t train_walk_tokens(const struct train_text_entry *text);
#endif
