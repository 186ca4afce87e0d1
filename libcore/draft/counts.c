/* SPDX-License-Identifier: Apache-2.0 */
/* counts.c - how often tokens are part of answers, so that a drafter's output matrix need not be read as a whole. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "draft/internal.h"

enum {
    SHARE = 8,      /* of the vocabulary one token in eight is a candidate */
    ENOUGH = 1000,  /* tokens that must have been counted */
    MOST = 1 << 20, /* tokens, after which all counts are halved */
    LISTED = 4096,  /* tokens whose counts are kept for another process */
};

enum err_code draft_counts_open(struct draft_counts *c, int32_t n_vocab, struct err *e)
{
    *c = (struct draft_counts){ .of = calloc((size_t)n_vocab, sizeof *c->of), .n_vocab = n_vocab };
    return c->of == NULL ? err_nomem(e) : ERR_OK;
}

void draft_counts_close(struct draft_counts *c)
{
    free(c->of);
    c->of = NULL;
}

void draft_counts_add(struct draft_counts *c, int32_t token)
{
    if (token < 0 || token >= c->n_vocab)
        return;
    c->of[token]++;
    if (++c->all < MOST)
        return;
    c->all = 0;
    for (int32_t i = 0; i < c->n_vocab; i++)
        c->all += c->of[i] /= 2;
}

struct counted {
    int32_t token;
    uint32_t n;
};

static int by_count(const void *a, const void *b)
{
    const struct counted *x = a, *y = b;

    return x->n != y->n ? (x->n < y->n) - (x->n > y->n) : (x->token > y->token) - (x->token < y->token);
}

static int by_token(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

    return (x > y) - (x < y);
}

/* The n likeliest tokens; those that were not counted come last, by their ids. NULL: memory is out. */
static struct counted *likeliest(const struct draft_counts *c, int n)
{
    struct counted *v = malloc(((size_t)c->n_vocab + 1) * sizeof *v);
    int counted = 0;

    if (v == NULL)
        return NULL;
    for (int32_t i = 0; i < c->n_vocab; i++)
        if (c->of[i] > 0)
            v[counted++] = (struct counted){ i, c->of[i] };
    qsort(v, (size_t)counted, sizeof *v, by_count);
    for (int32_t i = 0; i < c->n_vocab && counted < n; i++)
        if (c->of[i] == 0)
            v[counted++] = (struct counted){ i, 0 };
    return v;
}

int32_t *draft_counts_best(const struct draft_counts *c, int *n)
{
    const int most = c->n_vocab / SHARE;
    struct counted *v = c->all >= ENOUGH && most > 0 ? likeliest(c, most) : NULL;
    int32_t *token = v != NULL ? malloc((size_t)most * sizeof *token) : NULL;

    for (int i = 0; i < most && token != NULL; i++)
        token[i] = v[i].token;
    free(v);
    if (token != NULL)
        qsort(token, (size_t)most, sizeof *token, by_token);
    *n = most;
    return token;
}

json_t *draft_counts_json(const struct draft_counts *c)
{
    const int most = c->n_vocab < LISTED ? c->n_vocab : LISTED;
    struct counted *v = likeliest(c, most);
    json_t *list = v != NULL ? json_array() : NULL;

    for (int i = 0; i < most && v != NULL && v[i].n > 0; i++) {
        json_push(&list, json_integer(v[i].token));
        json_push(&list, json_integer(v[i].n));
    }
    free(v);
    return list;
}

static bool is_within(const json_t *o, json_int_t most)
{
    return json_is_integer(o) && json_integer_value(o) >= 0 && json_integer_value(o) <= most;
}

bool draft_counts_read(struct draft_counts *c, const json_t *list)
{
    const size_t n = json_array_size(list);
    bool good = json_is_array(list) && n % 2 == 0 && n <= 2 * LISTED;

    for (size_t i = 0; i < n && good; i += 2)
        good = is_within(json_array_get(list, i), c->n_vocab - 1) && is_within(json_array_get(list, i + 1), MOST);
    for (size_t i = 0; i < n && good; i += 2) {
        const uint32_t more = (uint32_t)json_integer_value(json_array_get(list, i + 1));

        c->of[json_integer_value(json_array_get(list, i))] += more;
        c->all += more;
    }
    return good;
}
