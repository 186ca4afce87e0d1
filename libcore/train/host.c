/* SPDX-License-Identifier: Apache-2.0 */
/* host.c - operations of training by the host's threads: its memory, products, AdamW. */
#include "train/host.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "train/adam.h"

static void close_host(struct dev_math *m)
{
    free(m);
}

static int64_t host_memory(const struct dev_math *m)
{
    (void)m;
    return memory_left("");
}

static void *take_memory(struct dev_math *m, int64_t bytes)
{
    (void)m;
    return malloc(bytes > 0 ? (size_t)bytes : 1);
}

static void give_memory(struct dev_math *m, void *p)
{
    (void)m;
    free(p);
}

static void copy_bytes(struct dev_math *m, void *to, const void *from, int64_t bytes)
{
    (void)m;
    if (bytes > 0 && to != from)
        memcpy(to, from, (size_t)bytes);
}

static void zero_bytes(struct dev_math *m, void *to, int64_t bytes)
{
    (void)m;
    if (bytes > 0)
        memset(to, 0, (size_t)bytes);
}

static enum err_code wait_nothing(struct dev_math *m, struct err *e)
{
    (void)m;
    (void)e;
    return ERR_OK;
}

static bool never_busy(struct dev_math *m)
{
    (void)m;
    return false;
}

static void host_product(struct dev_math *m, int64_t rows, int64_t n, int64_t k, struct dev_matrix a,
                         struct dev_matrix b, float beta, float *c, int64_t ld)
{
    train_gemm(&train_host_of(m)->gemms, rows, n, k, a, b, beta, c, ld);
}

static void products_of(struct dev_math *m, int64_t count, int64_t rows, int64_t n, int64_t k, const float *a,
                        bool turn_a, const float *b, bool turn_b, float *c)
{
    for (int64_t i = 0; i < count; i++)
        host_product(m, rows, n, k, (struct dev_matrix){ a + i * rows * k, turn_a ? rows : k, turn_a },
                     (struct dev_matrix){ b + i * k * n, turn_b ? k : n, turn_b }, 0, c + i * rows * n, n);
}

static void adam(struct dev_math *m, const struct dev_adam *a)
{
    struct train_adam now = { a->n, a->step - 1, a->m, a->v };
    const struct train_adam_opts o = { a->b1, a->b2, a->eps, a->decay, a->clip };

    train_host_of(m)->norm = train_adam_step(&now, train_host_pool(m), &o, a->rate, a->w, a->grad, a->how);
}

static double norm(struct dev_math *m)
{
    return train_host_of(m)->norm;
}

enum err_code train_host_open(struct dev_math **out, struct pool *pool, struct err *e)
{
    struct train_host *h = calloc(1, sizeof *h);

    if (h == NULL)
        return err_nomem(e);
    h->gemms = train_gemm_open(pool);
    h->m = (struct dev_math){ .products = h->gemms.name,
                              .host = true,
                              .close = close_host,
                              .left = host_memory,
                              .take = take_memory,
                              .give = give_memory,
                              .put = copy_bytes,
                              .get = copy_bytes,
                              .copy = copy_bytes,
                              .zero = zero_bytes,
                              .wait = wait_nothing,
                              .busy = never_busy,
                              .product = host_product,
                              .products_of = products_of,
                              .adam = adam,
                              .norm = norm };
    train_host_parts(&h->m);
    train_host_attend(&h->m);
    *out = &h->m;
    return ERR_OK;
}

enum err_code train_math_open(struct dev_math **out, const char *device, struct pool *pool, struct err *e)
{
    return strncmp(device, "cuda", 4) == 0 && dev_math_built() ? dev_math_open(out, device, e)
                                                               : train_host_open(out, pool, e);
}
