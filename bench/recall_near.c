/* SPDX-License-Identifier: Apache-2.0 */
/* recall_near.c - vectors in an index of texts: makes it, or searches it.
 *
 *   recall_near make VECTORS FROM N DIMS INDEX [FACTORY]       FACTORY: of FAISS (index --faiss)
 *   recall_near search VECTORS DIMS INDEX graph|flat|SEARCH    SEARCH: settings of FAISS's
 *
 * VECTORS: rows of DIMS float32. make prints processor seconds and the bytes that were written; search reads numbers of
 * rows, a line each, and prints for each the 10 nearest and milliseconds of the processor and of the clock, as JSON.
 * One thread. bench/recall_faiss.py makes the vectors and runs this. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include "engram-build/faiss.h"
#include "recall/recall.h"

enum { K = 10 };

static double ms_of(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static enum err_code make(FILE *f, int n, int dims, const char *index, const char *factory, struct err *e)
{
    struct cli_faiss_build with = { index, factory, 1, NULL };
    const struct recall_build_opts o = {
        .tokenizer = 1, .graph = true, .outside = factory != NULL ? cli_faiss_write : NULL, .ctx = &with
    };
    const struct recall_vectors vectors = { .maker = RECALL_ELSEWHERE, .model = 1, .dims = dims };
    const double from = ms_of(CLOCK_PROCESS_CPUTIME_ID);
    float *v = malloc((size_t)dims * sizeof *v);
    struct recall_builder *b;
    struct recall *r;
    struct stat st;

    if (v == NULL || recall_build_open(&b, &o, e))
        return err_nomem(e);
    for (int i = 0; i < n; i++)
        if (recall_build_add(b, STR("x"), NULL, e))
            return e->code;
    if (recall_build_vectors(b, &vectors, e))
        return e->code;
    for (int i = 0; i < n; i++) {
        if (fread(v, sizeof *v, (size_t)dims, f) != (size_t)dims)
            return err_set(e, ERR_IO, "the file has fewer than %d vectors", n);
        recall_build_vector(b, i, v);
    }
    free(v);
    if (recall_build_commit(b, index, NULL, e) || recall_open(&r, index, e))
        return e->code;
    printf("{\"made_s\": %.1f, \"bytes\": %lld}\n", (ms_of(CLOCK_PROCESS_CPUTIME_ID) - from) / 1e3,
           (stat(index, &st) == 0 ? (long long)st.st_size : 0) + (long long)recall_info(r).outside_bytes);
    recall_close(r);
    return ERR_OK;
}

static enum err_code search(FILE *f, int dims, const char *index, const char *how, struct err *e)
{
    float *v = malloc((size_t)dims * sizeof *v);
    struct cli_faiss *faiss = NULL;
    struct recall *r;
    char line[32];

    if (v == NULL || recall_open(&r, index, e))
        return v == NULL ? err_nomem(e) : e->code;
    if (recall_info(r).outside_bytes > 0 && cli_faiss_open(&faiss, r, index, *how != '\0' ? how : NULL, 1, e))
        return e->code;
    while (fgets(line, sizeof line, stdin) != NULL) {
        struct recall_hit hit[K];
        int n;

        if (fseek(f, atol(line) * dims * (long)sizeof *v, SEEK_SET) ||
            fread(v, sizeof *v, (size_t)dims, f) != (size_t)dims)
            return err_set(e, ERR_IO, "no vector %s", line);
        const double cpu = ms_of(CLOCK_PROCESS_CPUTIME_ID), wall = ms_of(CLOCK_MONOTONIC);

        if (faiss != NULL ? cli_faiss_near(faiss, v, K, hit, &n, e)
                          : recall_near(r, v, K, strcmp(how, "flat") == 0, NULL, hit, &n, e))
            return e->code;
        printf("{\"cpu\": %.4f, \"wall\": %.4f, \"ids\": [", ms_of(CLOCK_PROCESS_CPUTIME_ID) - cpu,
               ms_of(CLOCK_MONOTONIC) - wall);
        for (int i = 0; i < n; i++)
            printf("%s%lld", i > 0 ? ", " : "", (long long)hit[i].text);
        printf("]}\n");
        fflush(stdout);
    }
    free(v);
    cli_faiss_close(faiss);
    recall_close(r);
    return ERR_OK;
}

int main(int argc, char **argv)
{
    const bool makes = (argc == 7 || argc == 8) && strcmp(argv[1], "make") == 0;
    FILE *f = makes || (argc == 6 && strcmp(argv[1], "search") == 0) ? fopen(argv[2], "rb") : NULL;
    const int dims = f != NULL ? atoi(argv[makes ? 5 : 3]) : 0;
    struct err e;

    if (f == NULL || (makes && fseek(f, atol(argv[3]) * dims * (long)sizeof(float), SEEK_SET)))
        return fprintf(stderr, "usage: recall_near make VECTORS FROM N DIMS INDEX [FACTORY], or "
                               "search VECTORS DIMS INDEX graph|flat|SEARCH\n"),
               2;
    if (makes ? make(f, atoi(argv[4]), dims, argv[6], argv[7], &e) : search(f, dims, argv[4], argv[5], &e))
        return fprintf(stderr, "%s\n", e.msg), 1;
    fclose(f);
    return 0;
}
