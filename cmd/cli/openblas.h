/* SPDX-License-Identifier: Apache-2.0 */
/* openblas.h - what OpenBLAS has to know before it is loaded.                 room: cmd
 *
 * A header alone: as a file of its own it would make every program load OpenBLAS. */
#ifndef CLI_OPENBLAS_H
#define CLI_OPENBLAS_H
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>
#include "base/simd.h"
#include "train/gemm.h"

/* True: it was not set, and is now. */
static inline bool cli_openblas_sets(const char *name, const char *value)
{
    return value != NULL && getenv(name) == NULL && setenv(name, value, 1) == 0;
}

/* To be called first of all. OpenBLAS chooses its kernels as it is loaded: told which, where it does not know the
 * processor, by a new start. It also starts threads, which are not used and, where ulimit -v leaves them no memory,
 * wait for it for ever. */
static inline void cli_prepare_openblas(char **argv)
{
    struct rlimit space;
    const bool limited = getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY;
    const bool core = cli_openblas_sets("OPENBLAS_CORETYPE", train_gemm_core(simd_features()));
    char path[4096];
    ssize_t n = 0;

    if (cli_openblas_sets("OPENBLAS_NUM_THREADS", limited ? "1" : NULL) || core)
        n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n <= 0)
        return;
    path[n] = '\0';
    execv(path, argv);
}
#endif
