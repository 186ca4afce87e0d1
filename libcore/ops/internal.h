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

/* What n bytes take of the scratch. */
enum { DEV_ALIGN = 64 };
static inline size_t dev_aligned(size_t n)
{
    return (n + DEV_ALIGN - 1) / DEV_ALIGN * DEV_ALIGN;
}
#endif
