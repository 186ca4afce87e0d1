/* SPDX-License-Identifier: Apache-2.0 */
/* importance.c - imatrix files.                                                    room: ramp */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quant/quant.h"
#include "ramp/internal.h"

struct ramp_importance {
    struct gguf *g;
};

enum err_code ramp_importance_open(struct ramp_importance **out, const char *path, struct err *e)
{
    struct ramp_importance *im = calloc(1, sizeof *im);
    struct str type;
    bool any = false;

    if (im == NULL)
        return err_nomem(e);
    if (gguf_open(&im->g, path, e)) {
        free(im);
        return e->code;
    }
    for (size_t i = 0; i < gguf_n_tensors(im->g); i++) {
        struct str name = gguf_tensor_at(im->g, i)->name;

        any |= name.n > 8 && memcmp(name.p + name.n - 8, ".in_sum2", 8) == 0;
    }
    if (!any || (gguf_str(im->g, "general.type", &type) && !str_is(type, "imatrix"))) {
        ramp_importance_close(im);
        return err_set(e, ERR_FORMAT, "%s: not an imatrix file", path);
    }
    *out = im;
    return ERR_OK;
}

void ramp_importance_close(struct ramp_importance *im)
{
    if (im == NULL)
        return;
    gguf_close(im->g);
    free(im);
}

const char *ramp_importance_path(const struct ramp_importance *im)
{
    return gguf_path(im->g);
}

static const struct gguf_tensor *find_entry(const struct ramp_importance *im, const struct gguf_tensor *t,
                                            const char *what)
{
    char name[128];

    snprintf(name, sizeof name, "%.*s.%s", (int)t->name.n, t->name.p, what);
    return gguf_find(im->g, name);
}

enum err_code ramp_importance_of(const struct ramp_importance *im, const struct gguf_tensor *t, int64_t at, float *buf,
                                 const float **out, struct err *e)
{
    const struct gguf_tensor *sum = im != NULL ? find_entry(im, t, "in_sum2") : NULL;
    const struct gguf_tensor *count = sum != NULL ? find_entry(im, t, "counts") : NULL;
    float n = 1.0f;

    *out = NULL;
    if (sum == NULL)
        return ERR_OK;
    int64_t n_mat = sum->ne[1] * sum->ne[2] * sum->ne[3];

    if (sum->type != QUANT_f32 || sum->ne[0] != t->ne[0] || (n_mat != 1 && n_mat != t->ne[2] * t->ne[3]) ||
        (count != NULL &&
         (count->type != QUANT_f32 || count->ne[0] * count->ne[1] * count->ne[2] * count->ne[3] != n_mat)))
        return err_set(e, ERR_FORMAT, "%s: the importance of %.*s has another shape", gguf_path(im->g),
                       STR_ARG(t->name));
    if (n_mat == 1)
        at = 0;
    if (count != NULL)
        memcpy(&n, (const char *)count->data + (size_t)at * sizeof n, sizeof n);
    memcpy(buf, (const char *)sum->data + (size_t)(at * t->ne[0]) * sizeof *buf, (size_t)t->ne[0] * sizeof *buf);
    if (n == 0.0f) /* an expert that was never used */
        return ERR_OK;
    for (int64_t i = 0; i < t->ne[0]; i++) {
        buf[i] /= n;
        if (!isfinite(buf[i]) || buf[i] < 0.0f)
            return err_set(e, ERR_FORMAT, "%s: the importance of %.*s is not a number of at least 0, column %lld",
                           gguf_path(im->g), STR_ARG(t->name), (long long)i);
    }
    *out = buf;
    return ERR_OK;
}

/* One matrix of the model. *some: a number is above 0. */
static enum err_code check_one(const struct ramp_importance *im, const struct gguf_tensor *t,
                               const struct gguf_tensor *sum, bool *some, struct err *e)
{
    float *buf = malloc((size_t)(t->ne[0] + 1) * sizeof *buf);
    const float *weights;
    enum err_code rc = buf != NULL ? ERR_OK : err_nomem(e);

    for (int64_t at = 0; at < sum->ne[1] * sum->ne[2] * sum->ne[3] && rc == ERR_OK; at++) {
        rc = ramp_importance_of(im, t, at, buf, &weights, e);
        for (int64_t i = 0; rc == ERR_OK && weights != NULL && i < t->ne[0] && !*some; i++)
            *some = weights[i] > 0.0f;
    }
    free(buf);
    return rc;
}

/* The matrices of the file, and how many of them the model has. */
static void count_entries(const struct ramp_importance *im, const struct gguf *g, size_t *all, size_t *known,
                          struct str *first)
{
    *all = *known = 0;
    for (size_t i = 0; i < gguf_n_tensors(im->g); i++) {
        struct str name = gguf_tensor_at(im->g, i)->name;
        char of[128];

        if (name.n <= 8 || name.n >= sizeof of || memcmp(name.p + name.n - 8, ".in_sum2", 8) != 0)
            continue;
        snprintf(of, sizeof of, "%.*s", (int)name.n - 8, name.p);
        ++*all;
        if (gguf_find(g, of) != NULL)
            ++*known;
        else if (*all == *known + 1)
            *first = (struct str){ name.p, name.n - 8 };
    }
}

enum err_code ramp_importance_check(const struct ramp_importance *im, const struct gguf *g, bool *has, struct err *e)
{
    bool any = false, some = false;
    size_t all, known;
    struct str first = STR("");

    count_entries(im, g, &all, &known, &first);
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i), *sum = find_entry(im, t, "in_sum2");

        has[i] = !ramp_is_kept(t) && sum != NULL;
        any |= has[i];
    }
    if (!any)
        return err_set(e, ERR_FORMAT, "%s: has no matrix of this model", gguf_path(im->g));
    if (2 * known < all)
        return err_set(e, ERR_FORMAT,
                       "%s: is of another model: %zu of its %zu matrices are not in this one, such as %.*s",
                       gguf_path(im->g), all - known, all, STR_ARG(first));
    for (size_t i = 0; i < gguf_n_tensors(g); i++)
        if (has[i] && check_one(im, gguf_tensor_at(g, i), find_entry(im, gguf_tensor_at(g, i), "in_sum2"), &some, e))
            return e->code;
    return some ? ERR_OK : err_set(e, ERR_FORMAT, "%s: all its numbers are 0", gguf_path(im->g));
}
