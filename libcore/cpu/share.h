/* SPDX-License-Identifier: Apache-2.0 */
/* share.h - rows of several matrices of one shape, shared among threads.              room: cpu
 *
 * Rows go in units of CPU_PANEL. A group has the same units of every matrix and a counter of its own: a worker begins
 * with its own group, where it is alone at first, then helps with the next ones. The result does not depend on which
 * worker has a row. */
#ifndef CPU_SHARE_H
#define CPU_SHARE_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cpu;

struct cpu_group {
    _Alignas(64) atomic_int taken; /* pieces */
};
struct cpu_share {
    int64_t rows;         /* of a matrix */
    int32_t n;            /* matrices */
    int32_t units, piece; /* of a matrix; in a piece at most */
    int groups, workers;
    struct cpu_group *group; /* [groups], and in one more how many have pieces left */
};
/* Counters in scratch: at most cpu_share_bytes(). Nobody takes meanwhile. */
size_t cpu_share_bytes(const struct cpu *c);
void cpu_share_out(const struct cpu *c, struct cpu_share *s, int64_t rows, int32_t n);

/* Rows row .. row + n - 1 of matrix `of`. */
struct cpu_piece {
    int step;  /* groups that are through; before the first piece 0 */
    int32_t i; /* number in its group */
    int32_t of;
    int64_t row, n;
};
/* The next piece for this worker; false: all are taken. */
bool cpu_take(const struct cpu_share *s, int worker, struct cpu_piece *p);
/* The one that it gets after p, unless others are faster; false: none of the same group. */
bool cpu_after(const struct cpu_share *s, int worker, const struct cpu_piece *p, struct cpu_piece *next);
#endif
