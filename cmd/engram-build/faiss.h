/* SPDX-License-Identifier: Apache-2.0 */
/* faiss.h - inside chimere-engram-build: vectors in a file of FAISS, beside an index.     room: cmd
 *
 * The file is named by the index and the hash of what is in it, so that an index always finds its own. */
#ifndef ENGRAM_BUILD_FAISS_H
#define ENGRAM_BUILD_FAISS_H
#include "recall/recall.h"

/* What becomes of the vectors of an index that is written. */
struct cli_faiss_build {
    const char *index;   /* the file of the index */
    const char *factory; /* what FAISS makes: "IVF1024,PQ32" */
    int threads;
    const struct recall *old; /* the index to whose file vectors are added; NULL: none */
};
/* struct recall_build_opts.how */
uint32_t cli_faiss_how(const char *factory);
/* ERR_UNSUPPORTED: this build has no FAISS. */
MUST_CHECK enum err_code cli_faiss_ready(struct err *e);
/* A recall_outside_fn; ctx is a struct cli_faiss_build. */
enum err_code cli_faiss_write(void *ctx, struct recall_outside *o, struct err *e);
/* Removes files of the index that neither it nor one of its old versions needs. */
void cli_faiss_sweep(const char *index);

struct cli_faiss;
/* ERR_FORMAT: the file is not that of the index; ERR_UNSUPPORTED: this build has no FAISS. search: settings, such as
 * "nprobe=32"; NULL: of an inverted file 16 lists are read. */
MUST_CHECK enum err_code cli_faiss_open(struct cli_faiss **out, const struct recall *r, const char *index,
                                        const char *search, int threads, struct err *e);
MUST_CHECK enum err_code cli_faiss_near(struct cli_faiss *f, const float *v, int k, struct recall_hit *hits, int *n,
                                        struct err *e);
void cli_faiss_close(struct cli_faiss *f); /* NULL is allowed */
/* Whether the file is there and whole, without FAISS. path: its name. */
MUST_CHECK enum err_code cli_faiss_check(const struct recall *r, const char *index, char *path, size_t path_bytes,
                                         struct err *e);
#endif
