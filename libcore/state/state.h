/* SPDX-License-Identifier: Apache-2.0 */
/* state.h - what sequences remember between tokens.               room: state (base quant ops arch)
 *
 * There are two kinds of memory, and only two. Attention layers keep one KV row per position.
 * Recurrent layers keep one fixed block: the last inputs of the convolution and the recurrent
 * state. A state holds n_seq sequences, each in a slot. One thread at a time.
 */
#ifndef STATE_STATE_H
#define STATE_STATE_H
#include "base/base.h"
#include "ops/ops.h"

struct plan;
struct state;

struct state_opts {
    int64_t ctx_tokens;     /* positions of each sequence, >= 1; rounded up to whole pages */
    int     n_seq;          /* >= 1 */
    int     type_k, type_v; /* rows of quant_types[] */
};

/* Reserves on d everything this state will ever use; memory is taken as it is touched. */
MUST_CHECK enum err_code state_open(struct state **out, struct dev *d, const struct plan *p,
                                    const struct state_opts *o, struct err *e);
void    state_close(struct state *s); /* NULL is allowed */
int64_t state_bytes(const struct state *s); /* reserved */

int64_t state_pos(const struct state *s, int slot); /* tokens remembered */
void    state_advance(struct state *s, int slot, int64_t n); /* n rows have been computed */
void    state_clear(struct state *s, int slot);

/* For the forward pass: the memory of a layer. Of a layer without such memory: all zero. */
const struct op_kv *state_kv(const struct state *s, int layer);
struct op_rec       state_conv(const struct state *s, int layer);
struct op_rec       state_rec(const struct state *s, int layer);
#endif
