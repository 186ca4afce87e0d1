/* SPDX-License-Identifier: Apache-2.0 */
/* recall_near.c - vectors in an index of texts: times to make it and to search, its size, and what it finds.
 *
 *   recall_near VECTORS N QUERIES DIMS INDEX [FACTORY SEARCH]    VECTORS: N + QUERIES rows of DIMS float32
 *
 * One thread, processor time. Prints a line of JSON for the graph and one for all vectors compared, or one for what
 * FAISS's FACTORY makes (index --faiss) and SEARCH sets; "ids" are the 10 nearest of each query. bench/recall_faiss.py
 * makes the vectors and runs this. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include "engram-build/faiss.h"
#include "recall/recall.h"

enum { K = 10 };

struct measured {
    const char *what, *index;
    int n_query, dims;
    const float *query;
    double made_s;
    struct recall *r;
    struct cli_faiss *faiss;
};

static double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int up(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static long long bytes_of(const struct measured *m)
{
    const struct recall_info i = recall_info(m->r);
    struct stat st;

    return stat(m->index, &st) == 0 ? (long long)st.st_size + (long long)i.outside_bytes : -1;
}

static enum err_code search_all(const struct measured *m, bool all, struct err *e)
{
    double *ms = calloc((size_t)m->n_query + 1, sizeof *ms);

    printf("{\"of\": \"%s\", \"made_s\": %.1f, \"bytes\": %lld, \"ids\": [", m->what, m->made_s, bytes_of(m));
    for (int q = 0; ms != NULL && q < m->n_query; q++) {
        const float *v = m->query + (size_t)q * (size_t)m->dims;
        const double from = now_ms();
        struct recall_hit hit[K];
        int n;

        if (m->faiss != NULL ? cli_faiss_near(m->faiss, v, K, hit, &n, e)
                             : recall_near(m->r, v, K, all, NULL, hit, &n, e))
            return e->code;
        ms[q] = now_ms() - from;
        printf("%s[", q > 0 ? ", " : "");
        for (int i = 0; i < n; i++)
            printf("%s%lld", i > 0 ? ", " : "", (long long)hit[i].text);
        printf("]");
    }
    qsort(ms, (size_t)m->n_query, sizeof *ms, up);
    printf("], \"p50_ms\": %.3f, \"p99_ms\": %.3f}\n", ms[m->n_query / 2], ms[m->n_query * 99 / 100]);
    free(ms);
    return ERR_OK;
}

static enum err_code measure(struct measured *m, const float *v, int n, const char *factory, const char *search,
                             struct err *e)
{
    struct cli_faiss_build with = { m->index, factory, 1, NULL };
    const struct recall_build_opts o = {
        .tokenizer = 1, .graph = true, .outside = factory != NULL ? cli_faiss_write : NULL, .ctx = &with
    };
    const struct recall_vectors vectors = { .maker = RECALL_ELSEWHERE, .model = 1, .dims = m->dims };
    const double from = now_ms();
    struct recall_builder *b;

    if (recall_build_open(&b, &o, e))
        return e->code;
    for (int i = 0; i < n; i++)
        if (recall_build_add(b, STR("x"), NULL, e))
            return e->code;
    if (recall_build_vectors(b, &vectors, e))
        return e->code;
    for (int i = 0; i < n; i++)
        recall_build_vector(b, i, v + (size_t)i * (size_t)m->dims);
    if (recall_build_commit(b, m->index, NULL, e) || recall_open(&m->r, m->index, e))
        return e->code;
    m->made_s = (now_ms() - from) / 1e3;
    m->query = v + (size_t)n * (size_t)m->dims;
    if (factory != NULL)
        return cli_faiss_open(&m->faiss, m->r, m->index, search, 1, e) ? e->code : search_all(m, false, e);
    m->what = "graph";
    if (search_all(m, false, e))
        return e->code;
    m->what = "flat";
    return search_all(m, true, e);
}

int main(int argc, char **argv)
{
    const bool ok = argc == 6 || argc == 8;
    const int n = ok ? atoi(argv[2]) : 0, n_query = ok ? atoi(argv[3]) : 0, dims = ok ? atoi(argv[4]) : 0;
    const size_t n_v = (size_t)(n + n_query) * (size_t)dims;
    float *v = calloc(n_v + 1, sizeof *v);
    FILE *f = ok ? fopen(argv[1], "rb") : NULL;
    struct measured m = { argc == 8 ? argv[6] : "", argv[ok ? 5 : 0], n_query, dims, v, 0, NULL, NULL };
    struct err e;

    if (f == NULL || v == NULL || fread(v, sizeof *v, n_v, f) != n_v)
        return fprintf(stderr, "usage: recall_near VECTORS N QUERIES DIMS INDEX [FACTORY SEARCH]\n"), 2;
    if (measure(&m, v, n, argc == 8 ? argv[6] : NULL, argc == 8 ? argv[7] : NULL, &e))
        return fprintf(stderr, "%s\n", e.msg), 1;
    cli_faiss_close(m.faiss);
    recall_close(m.r);
    return 0;
}
