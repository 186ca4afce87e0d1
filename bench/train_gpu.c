/* SPDX-License-Identifier: Apache-2.0 */
/* train_gpu.c - what passes of a training take: forward, forward and backward, a step of zeroth order.
 *
 *   train_gpu MODEL DEVICE THREADS SEQUENCES ROWS [SAMPLES]
 *
 * SEQUENCES of ROWS tokens, with losses on the last third; an adapter of rank 16 for the mixers and shared experts.
 * Prints a line: median milliseconds of the forward pass without an adapter, of forward and backward with it, of a step
 * with SAMPLES (default 8) directions, and the ratio of that to the first. bench/train-gpu.md says how it is built. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/rng.h"
#include "gguf/gguf.h"
#include "grad/grad.h"
#include "model/class.h"
#include "tune/lora.h"
#include "tune/zo.h"

enum { TIMES = 9, RANK = 16 };

static double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void fail(const struct err *e)
{
    fprintf(stderr, "train_gpu: %s\n", e->msg);
    exit(1);
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

struct bench {
    struct grad *g;
    struct tune_lora *l;
    struct tune_zo *z;
    struct grad_seq *seq;
    struct grad_adapter *a;
    float *gradient;
    int n;
};

static void forward(struct bench *b)
{
    struct err e;
    double loss;

    if (grad_forward(b->g, &(struct grad_batch){ .seq = b->seq, .n_seq = b->n }, &loss, &e))
        fail(&e);
}

static void backward(struct bench *b)
{
    struct err e;
    double loss;

    tune_lora_at(b->l, b->l->theta, b->gradient, 0, b->n, b->a);
    if (grad_backward(
            b->g,
            &(struct grad_batch){ .seq = b->seq, .n_seq = b->n, .adapter = b->a, .n_adapter = b->l->n, .keep = true },
            &loss, &e))
        fail(&e);
}

static void step(struct bench *b)
{
    struct err e;
    double loss;

    if (tune_zo_step(b->z, b->seq, b->n, &loss, &e))
        fail(&e);
}

static double median(struct bench *b, void (*fn)(struct bench *))
{
    double ms[TIMES];

    fn(b);
    for (int i = 0; i < TIMES; i++) {
        const double from = now_ms();

        fn(b);
        ms[i] = now_ms() - from;
    }
    qsort(ms, TIMES, sizeof *ms, by_size);
    return ms[TIMES / 2];
}

static struct grad_seq *sequences(int n, int rows, int32_t n_vocab)
{
    struct grad_seq *seq = calloc((size_t)n, sizeof *seq);
    uint64_t at = 0;

    for (int s = 0; s < n; s++) {
        int32_t *ids = calloc(2 * (size_t)rows, sizeof *ids), *target = ids + rows;

        for (int i = 0; i < rows; i++)
            ids[i] = (int32_t)(n_vocab * rng_unit(1, 0, at++));
        for (int i = 0; i < rows; i++)
            target[i] = i + 1 < rows && i >= rows - rows / 3 - 1 ? ids[i + 1] : -1;
        seq[s] = (struct grad_seq){ ids, target, rows, 0.01f, NULL, NULL };
    }
    return seq;
}

int main(int argc, char **argv)
{
    const int rows = argc > 5 ? atoi(argv[5]) : 0, samples = argc > 6 ? atoi(argv[6]) : 8;
    const unsigned classes = 1u << MODEL_ATTENTION | 1u << MODEL_RECURRENT | 1u << MODEL_SHARED;
    struct gguf *gguf;
    struct bench b = { .n = argc > 4 ? atoi(argv[4]) : 0 };
    struct err e;
    double plain, both, zo;

    if (b.n < 1 || rows < 4) {
        fprintf(stderr, "usage: train_gpu MODEL DEVICE THREADS SEQUENCES ROWS [SAMPLES]\n");
        return 2;
    }
    if (gguf_open(&gguf, argv[1], &e) || grad_open_on(&b.g, gguf, argv[2], 0, atoi(argv[3]), &e) ||
        tune_lora_new(&b.l, b.g, &(struct tune_lora_opts){ "qwen35moe", RANK, 2 * RANK, classes, 1 }, &e) ||
        tune_zo_open(&b.z, b.l, &(struct tune_zo_opts){ 1, 0x1p-8, 1e-9, samples, 0, 0 }, &e))
        fail(&e);
    b.seq = sequences(b.n, rows, grad_n_vocab(b.g));
    b.a = calloc((size_t)b.l->n, sizeof *b.a);
    b.gradient = calloc((size_t)b.l->n_params, sizeof *b.gradient);
    plain = median(&b, forward);
    both = median(&b, backward);
    zo = median(&b, step);
    printf(
        "%s, %d x %d rows: forward %.2f ms, forward and backward %.2f ms, %d directions %.2f ms, %.2f forward passes\n",
        argv[2], b.n, rows, plain, both, samples, zo, zo / plain);
    return 0;
}
