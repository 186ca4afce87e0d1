/* SPDX-License-Identifier: Apache-2.0 */
/* internal.h - a device as dev.c opens it and ops.c calls it.                     room: ops */
#ifndef OPS_INTERNAL_H
#define OPS_INTERNAL_H
#include "ops/ops.h"
#include "ops/table.h"

struct dev {
    struct dev_impl impl;
    char name[DEV_LIST_MAX * DEV_NAME_BYTES];
    int unit;
    unsigned char *scratch;
    size_t cap, used, peak;
    bool measuring, timing;
    struct dev_timing time[DEV_OP_N];
};

/* Scratch of a device that looks at addresses; while it is measured, nothing lies there. */
#define DEV_NOWHERE ((uintptr_t)1 << 56)
static inline unsigned char *dev_scratch_at(const struct dev *d, size_t at)
{
    return d->measuring ? (unsigned char *)(DEV_NOWHERE + at) : d->scratch + at;
}

/* What n bytes take of the scratch. */
enum { DEV_ALIGN = 64 };
static inline size_t dev_aligned(size_t n)
{
    return (n + DEV_ALIGN - 1) / DEV_ALIGN * DEV_ALIGN;
}
#endif
