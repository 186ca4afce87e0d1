/* SPDX-License-Identifier: Apache-2.0 */
/* cache.h - experts that are read from their file when a step uses them.            room: cpu
 *
 * A slot of the cache has the matrices of one expert of one layer. A layer of a step asks for all experts that it uses,
 * computes those that are there, then those that have come, until all are done. The order of reads changes nothing:
 * each pair has a row of its own, and rows are added by rank.
 *
 * Slots are in a list by last use. Where the uses of all layers do not fit, the oldest would be those that are needed
 * next; then what is read goes to the end of the list that is taken first, and the rest stays. One thread, that which
 * calls the device's operations. */
#ifndef CPU_CACHE_H
#define CPU_CACHE_H
#include "base/reads.h"
#include "ops/ops.h"

struct cpu;
struct cpu_cache;

int cpu_cache_layer(void *ctx, const struct dev_cached *l);
enum err_code cpu_cache_open(void *ctx, size_t bytes, struct err *e);
bool cpu_cache_stats(void *ctx, struct io_cache_stats *out);
void cpu_cache_close(struct cpu_cache *c); /* NULL is allowed */

/* A layer's experts that a step uses. */
struct cpu_use {
    int32_t expert, slot;
    enum { CPU_USE_WANTED, CPU_USE_ASKED, CPU_USE_GIVEN, CPU_USE_DONE } state;
};
struct cpu_uses {
    struct cpu_cache *cache;
    int layer; /* op_moe.cached */
    int32_t n;
    struct cpu_use *use; /* [n] of the caller, who sets the experts, ascending */
    int32_t next, left;  /* where to go on asking; how many are not done */
    bool stays;          /* what is read goes to the end of the list that is taken last */
};
/* Begins: finds those in memory, asks for the others as far as there is room. ERR_FORMAT: a file has changed. */
MUST_CHECK enum err_code cpu_cache_use(struct cpu_uses *u, struct err *e);
/* Waits until some of them can be computed: their indices to ready[], the matrices of the j-th to at[CPU_PARTS * j ..];
 * how many, 0: all are done, cpu_stopped() is true, or a read failed, and *e says so. They stay where they are until
 * the next call. */
enum { CPU_PARTS = 3 }; /* gate, up, down */
int32_t cpu_cache_some(struct cpu_uses *u, int32_t *ready, const void **at, const struct cpu *c, struct err *e);
/* Ends it, before all are done, too. */
void cpu_cache_used(struct cpu_uses *u);
#endif
