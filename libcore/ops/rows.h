/* SPDX-License-Identifier: Apache-2.0 */
/* rows.h - inside the device of several devices that share every layer: who has which part, and where it lies.  room:
 * ops
 *
 * All of them get the activations that they need. Of a matrix each computes some rows of the result, of attention and
 * of scans some heads, of a mixture some experts. */
#ifndef OPS_ROWS_H
#define OPS_ROWS_H
#include "ops/table.h"

/* An area of memory as each device has it. */
struct rows_area {
    struct dev_area area;
    size_t at, period;
    size_t to[DEV_LIST_MAX], period_of[DEV_LIST_MAX]; /* the same on each device, where its pieces lie side by side */
};

/* Memory that all devices have, n bytes at `at` for the caller. Without areas it is the same on each. */
struct rows_range {
    const unsigned char *at;
    size_t n;
    unsigned char *to[DEV_LIST_MAX];
    size_t bytes[DEV_LIST_MAX];
    struct rows_area *area;
    int n_area;
};

/* Weights, n bytes at `at`, cut in units of `unit` bytes (rows or heads of a matrix, or matrices; the last one may be
 * longer): each device has its part of them, or with units 0 all bytes. `to` is where the first byte is on each, or
 * would be. A matrix may be several of these. */
struct rows_weights {
    const unsigned char *at;
    size_t n, unit;
    int64_t units;
    const unsigned char *to[DEV_LIST_MAX];
};

/* op_moe.slot of each device, for models with n experts. */
struct rows_slots {
    struct rows_slots *next;
    int n;
    int32_t *slot[DEV_LIST_MAX];
};

/* Columns in scratch that only one device has so far. */
struct rows_late {
    int member;
    struct tensor y;
    bool read, wanted; /* someone has read them; others need them, too */
};

enum { ROWS_LATE_MAX = 1024 };

struct rows {
    struct dev *self;
    int n;
    struct dev *dev[DEV_LIST_MAX];
    bool measuring, no_memory;
    struct rows_range *range;
    int n_range, last;
    size_t cap_range;
    struct rows_weights *weights; /* by address */
    int n_weights;
    size_t cap_weights;
    struct rows_slots *slots;
    struct rows_late late[ROWS_LATE_MAX];
    int n_late;
    int64_t exchanges, bytes;
};

/* first .. end - 1 of n things are device k's; where there are fewer than devices, all are everybody's. */
struct rows_part {
    int64_t first, end;
    bool cut;
};
struct rows_part dev_rows_part_of(const struct rows *c, int k, int64_t n);

/* rows_memory.c: the address on device k that stands for the caller's address p. In a piece that device k lacks, it is
 * the start of the next piece that the device has. Host memory is shared by all devices: p itself. */
void *dev_rows_there(struct rows *c, int k, const void *p);
/* The bytes of a period around p on device k; `otherwise` where p is in no area. */
size_t dev_rows_period(struct rows *c, int k, const void *p, size_t otherwise);
/* Notes weights, of which *w says everything; false: out of memory. */
bool dev_rows_note_weights(struct rows *c, const struct rows_weights *w);
/* How many rows from w's first on are shared out together; which of such a w device k has. */
int64_t dev_rows_together(const struct rows *c, struct tensor w);
struct rows_part dev_rows_of(const struct rows *c, int k, struct tensor w);
/* The area that p is in, or NULL. */
const struct rows_area *dev_rows_area(struct rows *c, const void *p);
/* What dev_areas_bytes() and dev_area_bytes() say. */
size_t dev_rows_areas_bytes(struct rows *c, int k, const void *p);
size_t dev_rows_area_bytes(struct rows *c, int k, const void *p);
void *dev_rows_alloc(void *ctx, size_t n);
void *dev_rows_alloc_areas(void *ctx, const struct dev_area *a, int n);
void dev_rows_free(void *ctx, void *p, size_t n);
void dev_rows_zero(void *ctx, void *p, size_t n);
void dev_rows_copy(void *ctx, void *to, const void *from, size_t n);

static inline struct tensor dev_rows_tensor(struct rows *c, int k, struct tensor t)
{
    t.data = dev_rows_there(c, k, t.data);
    return t;
}

/* The same on all devices: d is each of them, T and P say where a tensor and a pointer are there. */
#define EACH(...) \
    do { \
        struct rows *c = ctx; \
        for (int k = 0; k < c->n; k++) { \
            struct dev *d = c->dev[k]; \
            __VA_ARGS__; \
        } \
    } while (0)
#define T(t) dev_rows_tensor(c, k, t)
#define P(p) dev_rows_there(c, k, p)
/* All devices have to have these. */
#define WHOLE(...) \
    dev_rows_whole(ctx, (const struct tensor[]){ __VA_ARGS__ }, \
                   (int)(sizeof(struct tensor[]){ __VA_ARGS__ } / sizeof(struct tensor)))
/* An operation by columns (struct rows_cut) with these inputs: C says where the part of a tensor is. */
#define COLUMNS(units, y, call, ...) \
    do { \
        struct rows *c = ctx; \
        struct rows_cut s; \
        const struct tensor in_[] = { __VA_ARGS__ }; \
        dev_rows_cut(c, &s, units, y, in_, (int)(sizeof in_ / sizeof *in_)); \
        for (int i = 0; i < s.n; i++) { \
            const int k = s.part[i].member; \
            struct dev *d = c->dev[k]; \
            call; \
        } \
        dev_rows_note_cut(c, &s, y); \
    } while (0)
#define C(t) T(dev_rows_columns(&s, i, t))

/* rows_parts.c: columns that devices do not have from each other yet. Before an operation: what device k reads, then
 * what they together write, or settle. After it: columns y that device k alone has computed, then settle. */
void dev_rows_reads(struct rows *c, int k, struct tensor x);
void dev_rows_writes(struct rows *c, struct tensor y);
void dev_rows_note(struct rows *c, int k, struct tensor y);
/* Exchanges what was asked for, if anything was; `now`: something crosses anyway. */
void dev_rows_settle(struct rows *c, bool now);
/* All devices read all of x[0 .. n - 1]. */
void dev_rows_whole(struct rows *c, const struct tensor *x, int n);
/* As struct dev_table says. */
void dev_rows_released(void *ctx, size_t used);

/* An operation that computes each unit of columns of y from that unit of x[0 .. n - 1] alone, y perhaps being one of
 * them. The parts it is computed in: as x is cut, or else each device computes all, once it has all. */
enum { ROWS_CUT_MAX = 128 };
struct rows_cut {
    bool cut;
    int64_t units;
    int n;
    struct rows_stretch {
        int member;
        int64_t first, n;
    } part[ROWS_CUT_MAX];
};
void dev_rows_cut(struct rows *c, struct rows_cut *s, int64_t units, struct tensor y, const struct tensor *x, int n);
/* The columns of t in part i. */
struct tensor dev_rows_columns(const struct rows_cut *s, int i, struct tensor t);
/* After the operation. */
void dev_rows_note_cut(struct rows *c, const struct rows_cut *s, struct tensor y);

/* rows_scans.c: operations of recurrent layers, as in struct dev_table. */
void dev_rows_conv(void *ctx, struct tensor y, struct tensor x, const struct op_conv *a, const struct op_rows *r);
void dev_rows_gdn(void *ctx, struct tensor y, struct tensor qkv, struct tensor alpha, struct tensor beta,
                  const struct op_gdn *a, const struct op_rows *r);
void dev_rows_kda(void *ctx, struct tensor y, struct tensor qkv, struct tensor decay, struct tensor beta,
                  const struct op_kda *a, const struct op_rows *r);
void dev_rows_ssm1(void *ctx, struct tensor y, struct tensor x, struct tensor dt, struct tensor b, struct tensor cc,
                   const struct op_ssm1 *a, const struct op_rows *r);
void dev_rows_ssm2(void *ctx, struct tensor y, struct tensor xbc, struct tensor dt, const struct op_ssm2 *a,
                   const struct op_rows *r);
#endif
