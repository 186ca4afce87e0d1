/* SPDX-License-Identifier: Apache-2.0 */
/* state.h - what sequences remember between tokens.               room: state
 *
 * There are two kinds of memory. Attention layers keep one KV row per position, in pages that forked
 * sequences share until one of them writes. Recurrent layers keep one block of fixed size: the last inputs of
 * the convolution and the recurrent state. Removing the newest KV rows is free, but a row cannot be taken out
 * of a block again. So draft rows are not applied to the block: only their inputs, which are small, are logged. When
 * the next step begins, the drafts that were kept are computed again from the log (struct op_log). With undo_tokens = U
 * > 0 each layer also keeps a second, older block, the base, and logs all rows since then: undo copies the base and
 * computes the remaining rows again (model/recurrent.c). Memory: draft_max + 2 U input rows for each sequence, and if U
 * > 0 one more block.
 *
 * A state holds n_seq sequences, each in a slot. One thread at a time.
 */
#ifndef STATE_STATE_H
#define STATE_STATE_H
#include "base/base.h"
#include "ops/ops.h"

struct arch_plan;
struct state;

struct state_opts {
    int64_t ctx_tokens; /* positions of each sequence, >= 1; rounded up to whole pages */
    int n_seq;          /* >= 1 */
    int type_k, type_v; /* rows of quant_types[] */
    int undo_tokens;    /* how many rows can always be undone; 0: none */
    int draft_max;      /* draft rows of a step */
    int64_t kv_tokens;  /* KV rows for all sequences, rounded up to whole pages; 0: for all that
                         * they can hold */
};

/* The device of each layer's memory. What the serial form below has does not depend on it. */
struct state_place {
    struct dev *const *dev; /* [n_dev] */
    int n_dev;
    const uint8_t *on; /* [layers] layer i on dev[on[i]]; NULL: all on dev[0] */
};

/* Channels of a layer's convolution, of `each` bytes, by heads of its scan; how many sections. */
int state_channels(struct dev_section *out, const struct arch_plan *p, int layer, size_t each);

/* Reserves all memory this state will ever use; the system provides it when it is first touched. */
MUST_CHECK enum err_code state_open(struct state **out, const struct state_place *place, const struct arch_plan *p,
                                    const struct state_opts *o, struct err *e);
void state_close(struct state *s);                        /* NULL is allowed */
int64_t state_bytes(const struct state *s);               /* reserved, on all devices */
int64_t state_part_bytes(const struct state *s, int dev); /* on device number dev, or on that member of the only one */
/* Of the layer's memory for all sequences: of keys and values, and of the rest, without what rounding up takes. */
int64_t state_layer_kv_bytes(const struct state *s, int layer);
int64_t state_member_kv_bytes(const struct state *s, int member); /* keys and values of all layers on such a member */
int64_t state_layer_rec_bytes(const struct state *s, int layer);
int64_t state_ctx(const struct state *s); /* positions of each sequence: whole pages */

int64_t state_pos(const struct state *s, int slot); /* tokens remembered */
/* Models may have rows that are no tokens in front of every sequence (arch_plan.n_meta): positions of rows count them,
 * nothing else here does, and they cannot be undone. The caller computes them once, in slot n_seq; state_begin() makes
 * that the beginning of every sequence, and state_clear() goes back to it. */
int64_t state_row(const struct state *s, int slot); /* position of the next row */
void state_begin(struct state *s);
void state_empty(struct state *s, int slot);             /* as nothing was: those rows have to be computed again */
int64_t state_undoable(const struct state *s, int slot); /* how many of them can be undone */
/* Removes the newest n rows of a slot. Its recurrent blocks must not have applied them yet. */
void state_settle(struct state *s, int slot, int64_t n);
void state_clear(struct state *s, int slot);
/* dst is cleared and becomes a copy of src. This copies one recurrent block (two with undo), the logged rows that are
 * needed, and a page table; KV pages are shared. */
void state_fork(struct state *s, int dst, int src);

/* ---- serial form, for checkpoints and files ---- */

/* Bytes of KV rows of one position, all layers. */
size_t state_kv_bytes(const struct state *s);
/* KV rows for all sequences together, in whole pages: how many there are, and how many of them are free. */
int64_t state_kv_rows(const struct state *s);
int64_t state_kv_left(const struct state *s);
/* How many free rows a step needs that appends n[slot] rows to each slot, copies of shared pages included. */
int64_t state_kv_need(const struct state *s, const int64_t *n);
/* Reads positions pos .. pos + n - 1: for each layer with KV and each KV head, n keys; then n values; then n keys of an
 * indexer, where there is one. */
void state_kv_read(const struct state *s, int slot, int64_t pos, int64_t n, void *out);
/* Writes n positions from pos on, behind those the slot has, without advancing it. There must be free pages for them:
 * state_kv_need(). */
void state_kv_write(struct state *s, int slot, int64_t pos, int64_t n, const void *in);
/* The live recurrent block of a sequence, for all layers, and the last tokens for an n-gram table. All rows must have
 * been applied to it (model_commit()). */
size_t state_rec_bytes(const struct state *s);
void state_rec_read(const struct state *s, int slot, void *out);
/* Puts the sequence at position pos with this recurrent block; KV rows from pos on are dropped. After this nothing
 * earlier can be undone. */
void state_rec_write(struct state *s, int slot, int64_t pos, const void *in);

/* ---- for the forward pass ---- */

/* Call it before a step that appends n rows to a slot: takes pages for them that no other sequence shares. There must
 * be free ones: state_kv_need(). */
void state_prepare(struct state *s, int slot, int64_t n);
/* Call it after the step; the last `drafts` of the n rows are drafts. */
void state_advance(struct state *s, int slot, int64_t n, int drafts);
/* All zero for a layer without KV rows. */
const struct op_kv *state_kv(const struct state *s, int layer);

/* Fixed memory of a recurrent layer; all zero for other layers. */
struct state_rec {
    struct op_rec conv, rec;
    struct op_rec table; /* of the convolution over rows of an n-gram table, in one layer */
};
struct state_rec state_live(const struct state *s, int layer);
struct state_rec state_base(const struct state *s, int layer);
int state_undo_tokens(const struct state *s);
int state_slots(const struct state *s);
bool state_recurrent(const struct state *s); /* some layer is */
/* Rows that have not been applied to the live blocks yet. */
int state_again(const struct state *s, int slot);
/* Those rows have been applied now. */
void state_committed(struct state *s, int slot);
/* Rows of a slot since the base, and how many rows the log can hold; 0: there is no log. */
int state_logged(const struct state *s, int slot);
int state_log_rows(const struct state *s);
/* base = live in one layer; the second one: of the table */
void state_rebase(struct state *s, int layer, int slot, bool conv, bool rec);
void state_rebase_table(struct state *s, int layer, int slot);
/* For an n-gram table: the tokens of n positions from the slot's end on, before they are advanced over; and that of one
 * of the last positions. */
void state_note_tokens(struct state *s, int slot, const int32_t *token, int64_t n);
int32_t state_token(const struct state *s, int slot, int64_t pos);
/* live = base in every layer; the sequence becomes n rows shorter. The caller then computes the remaining rows since
 * the base again. */
void state_rewind(struct state *s, int slot, int64_t n);
/* n more rows have been applied to the base. */
void state_folded(struct state *s, int slot, int n);
#endif
