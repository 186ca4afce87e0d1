/* SPDX-License-Identifier: Apache-2.0 */
/* engram_look.c - how long a look-up in a table takes, with its back-off.
 *
 *   engram_look TABLE IDS.json    IDS.json: the tokens of a text, as `chimere-run --raw --tokenize` prints them
 *
 * Contexts of 8 tokens of the text, and the same with one token changed; then again with 64 MB written between two. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "engram/look.h"

enum { CONTEXT = 8, COLD = 3000, WIPE = 64 << 20 };

static double now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int up(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void measure(const struct engram *g, const int32_t *id, int64_t n, bool change, char *wipe)
{
    const int64_t step = wipe != NULL ? n / COLD + 1 : 1;
    double *ns = malloc((size_t)n * sizeof *ns);
    struct engram_next next;
    int64_t m = 0;
    double order = 0;

    for (int round = 0; round < 2; round++) { /* the second counts */
        m = 0;
        order = 0;
        for (int64_t i = CONTEXT; i < n; i += step) {
            int32_t context[CONTEXT];

            memcpy(context, id + i - CONTEXT, sizeof context);
            if (change)
                context[i % CONTEXT] ^= 1;
            if (wipe != NULL)
                memset(wipe, (int)i, WIPE);
            const double from = now_ns();

            engram_look(g, context, CONTEXT, &next);
            ns[m++] = now_ns() - from;
            order += next.order;
        }
        if (wipe != NULL)
            break;
    }
    qsort(ns, (size_t)m, sizeof *ns, up);
    printf("%-8s %-18s n %6lld, mean order %.2f: p50 %6.0f ns, p99 %6.0f ns\n", wipe != NULL ? "cold" : "warm",
           change ? "one token changed" : "as in the text", (long long)m, order / (double)m, ns[m / 2],
           ns[m * 99 / 100]);
    free(ns);
}

int main(int argc, char **argv)
{
    const char *path[1] = { argc > 1 ? argv[1] : NULL };
    int32_t *id = malloc(sizeof *id * 1000000);
    FILE *f = argc > 2 ? fopen(argv[2], "r") : NULL;
    struct engram *g;
    struct err e;
    int64_t n = 0;

    if (f == NULL || id == NULL)
        return fprintf(stderr, "usage: engram_look TABLE IDS.json\n"), 2;
    if (engram_open(&g, path, 1, &(struct engram_opts){ .tokenizer = 0, .day = 1 << 15 }, &e))
        return fprintf(stderr, "%s\n", e.msg), 1;
    for (int c; n < 1000000 && (c = fgetc(f)) != EOF;)
        if (c >= '0' && c <= '9') {
            (void)ungetc(c, f);
            n += fscanf(f, "%d", &id[n]) == 1;
        }
    for (int cold = 0; cold < 2; cold++)
        for (int change = 0; change < 2; change++)
            measure(g, id, n, change, cold ? malloc(WIPE) : NULL);
    engram_close(g);
    return 0;
}
