/* SPDX-License-Identifier: Apache-2.0 */
/* spread.c - which of many are tested on: each once, and spread over all. */
#include "tune/spread.h"

#include <stdlib.h>

bool tune_spread(int64_t i, int64_t n, int64_t most)
{
    return most > 0 && (most >= n || i == 0 || i * most / n > (i - 1) * most / n);
}

struct entry {
    uint64_t hash;
    int64_t at;
};

static int by_hash(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;

    return x->hash != y->hash ? (x->hash > y->hash) - (x->hash < y->hash) : (x->at > y->at) - (x->at < y->at);
}

bool *tune_firsts(const uint64_t *hash, int64_t n)
{
    struct entry *v = calloc((size_t)n + 1, sizeof *v);
    bool *first = calloc((size_t)n + 1, sizeof *first);

    if (v == NULL || first == NULL) {
        free(v);
        free(first);
        return NULL;
    }
    for (int64_t i = 0; i < n; i++)
        v[i] = (struct entry){ hash[i], i };
    qsort(v, (size_t)n, sizeof *v, by_hash);
    for (int64_t i = 0; i < n; i++)
        first[v[i].at] = i == 0 || v[i].hash != v[i - 1].hash;
    free(v);
    return first;
}
