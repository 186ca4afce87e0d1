/* SPDX-License-Identifier: Apache-2.0 */
/* file.h - block networks in GGUF files, and what they take from their target's.        room: train
 *
 * Files of architecture "dflash", as model/drafter.h reads them and llama.cpp's conversion names
 * them: matrices in BF16, norms in F32, the target's tokenizer.
 */
#ifndef TRAIN_FILE_H
#define TRAIN_FILE_H
#include "train/net.h"

struct gguf;

/* The target's embedding and head, which lies in m's memory: t->ctx and t->head are owned by it. model and m outlive
 * it. ERR_FORMAT: the file has no such tensors of n_embd columns; ERR_NOMEM: no memory for the head in float32. */
struct train_frozen {
    struct train_target t;
    struct train_embed *embed;
    struct dev_math *m;
    float *head;
};
MUST_CHECK enum err_code train_frozen_open(struct train_frozen *f, const struct gguf *model, int n_embd,
                                           struct dev_math *m, struct err *e);
void train_frozen_close(struct train_frozen *f);

/* Reads the shape of the network in a file. ERR_FORMAT, ERR_UNSUPPORTED: it is not a network of this kind, or one that
 * cannot be trained. ctx_tokens is not changed. */
MUST_CHECK enum err_code train_shape_read(struct train_shape *s, const struct gguf *g, struct err *e);
/* Reads the file's weights into a network of that shape. ERR_FORMAT: a tensor is missing, has another shape, or a value
 * is not finite. */
MUST_CHECK enum err_code train_net_read(struct train_net *net, const struct gguf *g, struct err *e);
/* Writes the network to a file, complete or not at all (base/io.h). */
MUST_CHECK enum err_code train_net_write(struct train_net *net, const struct gguf *model, const char *path,
                                         struct err *e);
/* Rounds the weights as a file does: matrices to BF16. */
void train_net_round(struct train_net *net);
bool train_net_finite(const struct train_net *net); /* all of net.w */
#endif
