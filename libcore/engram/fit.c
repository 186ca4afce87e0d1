/* SPDX-License-Identifier: Apache-2.0 */
/* fit.c - the weight of each kind of evidence, from held-out text.            room: engram
 *
 * For each kind the sum of ln((1 - w mass) p + w q) over its tokens is concave in w; its best w is found by halving
 * where the slope changes its sign. Two tokens that the table did not know are added to each kind, so that a few
 * lucky ones do not make a weight. Text like the table's says nothing of other text, where short contexts match as
 * often and help less: so a fit lowers the guesses of mix.c and raises none. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "engram/internal.h"

enum { MISSES = 2, ROUNDS = 40 };
#define WEIGHT_MOST 0.99

struct seen {
    float p, q, mass;
    short kind;
    signed char half;
};
struct engram_fit {
    struct seen *v;
    size_t n, cap;
};

enum err_code engram_fit_open(struct engram_fit **out, struct err *e)
{
    struct engram_fit *f = calloc(1, sizeof *f);

    if (f == NULL)
        return err_nomem(e);
    *out = f;
    return ERR_OK;
}

void engram_fit_close(struct engram_fit *f)
{
    if (f == NULL)
        return;
    free(f->v);
    free(f);
}

enum err_code engram_fit_add(struct engram_fit *f, uint32_t evidence, float p_max, float p, float q, float mass,
                             int half, struct err *e)
{
    if (memory_room(&f->v, &f->cap, f->n + 1, sizeof *f->v, e))
        return e->code;
    /* A probability that rounds to 0 would make any weight infinitely good. */
    f->v[f->n++] =
        (struct seen){ p > 1e-9F ? p : 1e-9F, q, mass, (short)engram_kind(evidence, p_max), (signed char)half };
    return ERR_OK;
}

static int by_kind(const void *a, const void *b)
{
    const struct seen *x = a, *y = b;

    return (x->kind > y->kind) - (x->kind < y->kind);
}

/* half: -1 both. */
static double best_weight(const struct seen *v, size_t n, int half)
{
    double lo = 0, hi = WEIGHT_MOST;

    for (int round = 0; round < ROUNDS; round++) {
        const double w = round == 0 ? 0 : lo + (hi - lo) / 2;
        double slope = -MISSES / (1 - w);

        for (size_t i = 0; i < n; i++)
            if (half < 0 || v[i].half == half) {
                const double p = (double)v[i].p, more = (double)v[i].q - (double)v[i].mass * p;

                slope += more / (p + w * more);
            }
        if (round == 0 && slope <= 0)
            return 0;
        *(slope > 0 ? &lo : &hi) = w;
    }
    return lo;
}

static double gain(const struct seen *v, size_t n, int half, double w)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        if (v[i].half == half) {
            const double p = (double)v[i].p;

            sum += log1p(w * ((double)v[i].q - (double)v[i].mass * p) / p);
        }
    return sum;
}

static double weight_of(const struct seen *v, size_t n)
{
    if (gain(v, n, 1, best_weight(v, n, 0)) + gain(v, n, 0, best_weight(v, n, 1)) <= 0)
        return 0;
    return best_weight(v, n, -1);
}

enum err_code engram_fit_write(const struct engram_fit *f, const char *path, int *used, struct err *e)
{
    unsigned char head[HEAD_BYTES];
    float weight[KINDS] = { 0 };
    struct io_out *out;
    struct file file;
    enum err_code code;
    int n_used = 0;

    if (engram_map(&file, path, 0, e))
        return e->code;
    if (f->n > 1)
        qsort(f->v, f->n, sizeof *f->v, by_kind);
    for (size_t i = 0, end; i < f->n; i = end) {
        for (end = i; end < f->n && f->v[end].kind == f->v[i].kind;)
            end++;
        const float w = (float)weight_of(f->v + i, end - i), most = engram_guess(f->v[i].kind);

        weight[f->v[i].kind] = w < most ? w : most;
        n_used += weight[f->v[i].kind] > 0;
    }
    engram_put_head(head, file.tokenizer, weight, file.map.size);
    code = io_out_open(&out, path, e);
    if (code == ERR_OK) {
        code = io_out_write(out, head, sizeof head, e);
        if (code == ERR_OK)
            code = io_out_write(out, file.map.data + HEAD_BYTES, file.map.size - HEAD_BYTES, e);
        code = io_out_end(out, code, e);
    }
    engram_unmap(&file);
    if (code == ERR_OK)
        *used = n_used;
    return code;
}
