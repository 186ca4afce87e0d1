/* SPDX-License-Identifier: Apache-2.0 */
/* recall_near.c - the graph of an index of texts: how long it takes to make and to search, and what it finds.
 *
 *   recall_near VECTORS N QUERIES DIMS INDEX    VECTORS: N + QUERIES rows of DIMS float32
 *
 * One thread. bench/recall_faiss.py makes the vectors, runs this, and FAISS on the same. Prints a line of JSON. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "recall/recall.h"

enum { K = 10 };

static double now_ms(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int up(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    const int n = argc == 6 ? atoi(argv[2]) : 0, n_query = argc == 6 ? atoi(argv[3]) : 0,
              dims = argc == 6 ? atoi(argv[4]) : 0;
    float *v = calloc((size_t)(n + n_query) * (size_t)dims + 1, sizeof *v);
    double *ms[2] = { calloc((size_t)n_query + 1, sizeof(double)), calloc((size_t)n_query + 1, sizeof(double)) };
    FILE *f = argc == 6 ? fopen(argv[1], "rb") : NULL;
    const struct recall_build_opts o = { .tokenizer = 1, .graph = true };
    const struct recall_vectors vectors = { .model = 1, .dims = dims };
    struct recall_builder *b;
    struct recall *r;
    struct err e;
    int64_t found = 0;

    if (f == NULL || v == NULL || fread(v, sizeof *v * (size_t)dims, (size_t)(n + n_query), f) != (size_t)(n + n_query))
        return fprintf(stderr, "usage: recall_near VECTORS N QUERIES DIMS INDEX\n"), 2;
    double made = now_ms(CLOCK_PROCESS_CPUTIME_ID);

    if (recall_build_open(&b, &o, &e))
        return fprintf(stderr, "%s\n", e.msg), 1;
    for (int i = 0; i < n; i++)
        if (recall_build_add(b, STR("x"), NULL, &e))
            return fprintf(stderr, "%s\n", e.msg), 1;
    if (recall_build_vectors(b, &vectors, &e))
        return fprintf(stderr, "%s\n", e.msg), 1;
    for (int i = 0; i < n; i++)
        recall_build_vector(b, i, v + (size_t)i * (size_t)dims);
    if (recall_build_commit(b, argv[5], NULL, &e) || recall_open(&r, argv[5], &e))
        return fprintf(stderr, "%s\n", e.msg), 1;
    made = now_ms(CLOCK_PROCESS_CPUTIME_ID) - made;
    for (int q = 0; q < n_query; q++) {
        struct recall_hit hit[2][K];
        int n_hit[2];

        for (int all = 0; all < 2; all++) {
            const double from = now_ms(CLOCK_PROCESS_CPUTIME_ID);

            if (recall_near(r, v + (size_t)(n + q) * (size_t)dims, K, all == 1, NULL, hit[all], &n_hit[all], &e))
                return fprintf(stderr, "%s\n", e.msg), 1;
            ms[all][q] = now_ms(CLOCK_PROCESS_CPUTIME_ID) - from;
        }
        for (int i = 0; i < n_hit[0]; i++)
            for (int k = 0; k < n_hit[1]; k++)
                found += hit[0][i].text == hit[1][k].text;
    }
    for (int all = 0; all < 2; all++)
        qsort(ms[all], (size_t)n_query, sizeof(double), up);
    printf(
        "{\"of\": \"chimere\", \"dims\": %d, \"made_s\": %.1f, \"recall\": %.4f, \"p50_ms\": %.3f, \"p99_ms\": %.3f, "
        "\"flat_p50_ms\": %.2f, \"flat_p99_ms\": %.2f}\n",
        dims, made / 1e3, (double)found / K / n_query, ms[0][n_query / 2], ms[0][n_query * 99 / 100],
        ms[1][n_query / 2], ms[1][n_query * 99 / 100]);
    recall_close(r);
    return 0;
}
