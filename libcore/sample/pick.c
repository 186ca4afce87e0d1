/* SPDX-License-Identifier: Apache-2.0 */
/* pick.c - the choice (largest logit, or a draw by weight) and the best tokens. room: sample */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "sample/chain.h"

/* The lowest id whose logit is s->max. */
static int32_t argmax(const struct sampler *s)
{
    int32_t b = 0;
    while (b < s->n_blocks - 1 && s->block_max[b] < s->max) {
        b++;
    }
    int32_t i = b * SAMPLE_BLOCK;
    while (i < s->n_vocab - 1 && s->x[i] < s->max) {
        i++;
    }
    return i;
}

enum err_code sample_stage_peak(struct sampler *s, struct err *e)
{
    float same[SAMPLE_BLOCK];
    s->max = -INFINITY;
    for (int32_t b = 0; b < s->n_blocks; b++) {
        if (s->dirty[b]) {
            s->block_max[b] = s->kernels->scan(s->x + (size_t)b * SAMPLE_BLOCK, same);
            s->dirty[b] = 0;
        }
        s->max = s->block_max[b] > s->max ? s->block_max[b] : s->max;
    }
    sample_needs(s, s->max);
    if (!(s->max >= -FLT_MAX) && !s->lacking) {
        const char *by = s->n_shun > 0 ? "shun" : "bias";
        err_set(e, ERR_ARG, "%s: forbids every token that the model allows", by);
        err_at(e, "/%s", by);
        return ERR_ARG;
    }
    return ERR_OK;
}

enum err_code sample_stage_greedy(struct sampler *s, struct err *e)
{
    (void)e;
    s->token = argmax(s);
    return ERR_OK;
}

/* Draws from the weights in ascending id: the block where their running sum passes u * total, then
 * the token. Rounding can let the sum inside a block end early; its last token then is the one. */
enum err_code sample_stage_draw(struct sampler *s, struct err *e)
{
    (void)e;
    sample_weigh(s);
    if (s->sparse && s->dense) {
        s->lacking = true;
        return ERR_OK;
    }
    double mark = rng_unit(s->opts.seed, s->opts.stream, s->position) * s->total, sum = 0;
    int32_t n_blocks = (s->n + SAMPLE_BLOCK - 1) / SAMPLE_BLOCK, block = 0;
    for (int32_t b = 0; b < n_blocks; b++) {
        if (s->block_sum[b] > 0) {
            block = b;
            if (sum + s->block_sum[b] > mark) {
                break;
            }
        }
        sum += s->block_sum[b];
    }
    int32_t end = (block + 1) * SAMPLE_BLOCK < s->n ? (block + 1) * SAMPLE_BLOCK : s->n, at = 0;
    for (int32_t i = block * SAMPLE_BLOCK; i < end; i++) {
        if (s->w[i] > 0) {
            at = i;
            sum += (double)s->w[i];
            if (sum > mark) {
                break;
            }
        }
    }
    s->token = s->dense ? at : s->id[at];
    return ERR_OK;
}

static bool worse(const struct sample_top *a, const struct sample_top *b)
{
    return a->logprob < b->logprob || (a->logprob <= b->logprob && a->token > b->token);
}

/* Moves v down from the root of heap[n], the worst entry on top. */
static void sift(struct sample_top *heap, int32_t n, struct sample_top v)
{
    int32_t i = 0;
    for (;;) {
        int32_t child = 2 * i + 1; /* n <= 2^28 */
        if (child < n - 1 && worse(&heap[child + 1], &heap[child])) {
            child++;
        }
        if (child >= n || !worse(&heap[child], &v)) {
            break;
        }
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = v;
}

static void rise(struct sample_top *heap, int32_t i, struct sample_top v)
{
    while (i > 0 && worse(&v, &heap[(i - 1) / 2])) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap[i] = v;
}

/* A heap of the n_top best so far; ids ascend, so an equal logit never displaces an entry and a
 * block that is not above the heap's worst is skipped. Taking the worst off again and again then
 * leaves the array best first. */
int32_t sample_best(struct sampler *s)
{
    int32_t want = s->opts.n_top, n = 0;
    for (int32_t b = 0; b < s->n_blocks; b++) {
        if (!(s->block_max[b] >= -FLT_MAX) || (n == want && s->block_max[b] <= s->top->logprob)) {
            continue;
        }
        int32_t end = b < s->n_blocks - 1 ? (b + 1) * SAMPLE_BLOCK : s->n_vocab;
        for (int32_t i = b * SAMPLE_BLOCK; i < end; i++) {
            struct sample_top v = { i, s->x[i] };
            if (n < want && v.logprob >= -FLT_MAX) {
                rise(s->top, n++, v);
            } else if (n == want && v.logprob > s->top->logprob) {
                sift(s->top, n, v);
            }
        }
    }
    for (int32_t left = n - 1; left > 0; left--) {
        struct sample_top v = s->top[left];
        s->top[left] = s->top[0];
        sift(s->top, left, v);
    }
    return n;
}
