/* SPDX-License-Identifier: Apache-2.0 */
/* check.h - inside the device "check:NAME": its mirror of memory, and the comparison of results.  room: ops */
#ifndef OPS_CHECK_H
#define OPS_CHECK_H
#include "ops/table.h"

struct checked_range {
    const unsigned char *at; /* on the tested device */
    unsigned char *mirror;
    size_t n;
    bool own; /* the mirror goes when the device does */
};

struct check {
    struct dev *tested, *spec;
    bool exact; /* the tested device computes the specification's bytes */
    struct checked_range *range;
    int n_range, last;
    size_t cap_range;
    uint64_t call, of_op[DEV_OP_N]; /* in this step */
    unsigned char *fetched;
    size_t cap_fetched;
    char found[400]; /* what ended it; "": nothing yet */
    bool no_memory;
};

/* A call in hand. */
struct call {
    enum dev_op op;
    char shapes[96];
    struct tensor w, x; /* of a product, on the host */
};

/* check.c: what p is to the specification. Memory that is not the device's own is the host's (vectors of a model on
 * the cpu) and only read. */
void *dev_check_mirror(struct check *c, const void *p);
/* n bytes as the tested device has them, until the next call; NULL: out of memory, which is noted. */
const unsigned char *dev_check_fetch(struct check *c, const void *p, size_t n);

/* check_same.c. False: something differed before, nothing is to be done. y, x: for the message. */
bool dev_check_begin(struct check *c, struct call *k, enum dev_op op, struct tensor y, struct tensor x);
/* The call is the one that differs: ends all. */
void dev_check_report(struct check *c, const struct call *k, const char *what, const char *where, double got,
                      double want);
/* Compare an output, as both left it, and make the mirror what the tested device has: rows, with what lies between
 * them; the memory of the sequences' slots, and `inputs` floats of their logged rows; the keys and values of the step.
 */
void dev_check_rows(struct check *c, const struct call *k, struct tensor y);
void dev_check_rec(struct check *c, const struct call *k, const struct op_rec *rec, int64_t inputs,
                   const struct op_rows *r);
/* The convolution's: without what lies in rows for what is computed again and was not needed. */
void dev_check_mixed(struct check *c, const struct call *k, struct tensor y, const struct op_rec *rec,
                     const struct op_rows *r);
/* Keys of an indexer. */
void dev_check_index(struct check *c, const struct call *k, const struct op_kv *kv, int ratio, const struct op_rows *r);
void dev_check_kv(struct check *c, const struct call *k, const struct op_kv *kv, const struct op_rows *r);
#endif
