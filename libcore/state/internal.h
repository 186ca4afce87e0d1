/* SPDX-License-Identifier: Apache-2.0 */
/* internal.h - inside the room state. */
#ifndef STATE_INTERNAL_H
#define STATE_INTERNAL_H
#include "arch/arch.h"
#include "state/state.h"

struct layer_memory {
    struct dev *dev;
    struct op_kv kv;
    bool borrows;                /* it is that of another layer */
    struct state_rec live, base; /* with one log, [n_seq][log_rows][arch_plan_input_floats()] */
};

/* A sequence. The live blocks are at position `stored`, the base blocks (if there are any) at position `base`. The log
 * has the inputs of all rows from the smaller of these two positions on. Without recurrent layers both stay 0. */
struct slot {
    int64_t pos, stored, base;
    int32_t *page; /* [pages of a sequence] number of the page, -1: none */
};

struct state {
    const struct arch_plan *plan;
    int n_seq, undo, drafts;
    int n_slots;       /* n_seq, and one for what stands in front of every sequence, if anything does */
    bool begun;        /* state_begin() */
    int log_rows;      /* drafts + 2 undo */
    int n_last;        /* tokens that an n-gram table has to know of those before a step; 0: there is none */
    int n_recent;      /* tokens that are kept: n_last + log_rows, enough after any undo */
    int32_t *recent;   /* [n_seq][n_recent] that of position p at p % n_recent */
    int64_t seq_pages; /* of each sequence */
    int32_t n_pages;   /* of all together, at most n_seq * seq_pages */
    int32_t *shared;   /* [n_pages] sequences that hold the page */
    int32_t *spare;    /* stack of pages nobody holds */
    int32_t n_spare;
    struct slot *slot;          /* [n_slots] */
    int32_t *slot_pages;        /* [n_slots][seq_pages] */
    struct layer_memory *layer; /* [n_layer] */
    const int32_t **page;       /* [n_slots] -> slot[].page: op_kv.page */
    int n_dev;
    struct {
        struct dev *dev;
        unsigned char *data;
        size_t bytes;
    } part[DEV_LIST_MAX]; /* of the layers of each device */
};

/* kv.c */
void state_kv_drop(struct state *s, int slot, int64_t pos); /* releases the pages that lie wholly at or after pos */
void state_kv_share(struct state *s, int dst, int src);
#endif
