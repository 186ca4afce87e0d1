/* SPDX-License-Identifier: Apache-2.0 */
/* adapt.c - adapters in memory, and whether they fit a model. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "adapt/internal.h"
#include "base/io.h"
#include "gguf/gguf.h"

int64_t adapter_a_floats(const struct adapter_mat *m)
{
    return m->rank * (m->rows ? m->n_out : m->n_in * m->n_mat);
}

int64_t adapter_b_floats(const struct adapter_mat *m)
{
    return (m->rank > 0 ? m->rank : 1) * (m->rows ? m->n_in : m->n_out * m->n_mat);
}

bool adapter_is_scales(const struct adapter *a)
{
    return a->mat[0].rank == 0;
}

int64_t adapter_floats(const struct adapter *a)
{
    int64_t n = 0;

    for (size_t i = 0; i < a->n; i++)
        n += adapter_a_floats(&a->mat[i]) + adapter_b_floats(&a->mat[i]);
    return n;
}

int adapter_rank(const struct adapter *a)
{
    int rank = 0;

    for (size_t i = 0; i < a->n; i++)
        rank = a->mat[i].rank > rank ? a->mat[i].rank : rank;
    return rank;
}

struct own_adapter *adapter_new(const char *path, struct str arch, float alpha, size_t n)
{
    struct own_adapter *o = calloc(1, sizeof *o);

    if (o == NULL)
        return NULL;
    o->a.path = arena_strdup(&o->arena, str_of(path));
    o->a.arch = arena_strdup(&o->arena, arch);
    o->a.alpha = alpha;
    o->a.n = n;
    o->a.mat = arena_array(&o->arena, n, sizeof *o->a.mat);
    if (o->a.path != NULL && o->a.arch != NULL && o->a.mat != NULL)
        return o;
    adapter_close(&o->a);
    return NULL;
}

bool adapter_room(struct own_adapter *o, size_t i, const struct adapter_mat *like)
{
    struct adapter_mat *m = &o->a.mat[i];

    *m = *like;
    m->name = arena_strdup(&o->arena, str_of(like->name));
    m->a = arena_array(&o->arena, (size_t)adapter_a_floats(m), sizeof *m->a);
    m->b = arena_array(&o->arena, (size_t)adapter_b_floats(m), sizeof *m->b);
    return m->name != NULL && m->a != NULL && m->b != NULL;
}

static bool has_sizes(const struct adapter_mat *m)
{
    const int64_t most = INT64_C(1) << 40;

    return m->rank >= 0 && m->rank <= ADAPTER_RANK_MAX && m->n_in >= (m->rank > 0) && m->n_in <= most &&
           m->n_out >= 1 && m->n_out <= most && m->n_mat >= 1 &&
           m->n_mat <= most / (m->n_in > m->n_out ? m->n_in : m->n_out) && (!m->rows || (m->n_mat == 1 && m->rank > 0));
}

enum err_code adapter_make(struct adapter **out, const char *arch, float alpha, const struct adapter_mat *mat, size_t n,
                           struct err *e)
{
    struct own_adapter *o;

    if (n == 0 || !isfinite(alpha) || alpha == 0.0f)
        return err_set(e, ERR_ARG, "an adapter of %zu matrices with alpha %g", n, (double)alpha);
    for (size_t i = 0; i < n; i++)
        if (!has_sizes(&mat[i]) || (mat[i].rank == 0) != (mat[0].rank == 0) ||
            mat[i].rows != str_is(str_of(mat[i].name), ADAPTER_EMBD))
            return err_set(e, ERR_ARG, "%s: no adapter has rank %d for it", mat[i].name, mat[i].rank);
    o = adapter_new("", str_of(arch), alpha, n);
    if (o == NULL)
        return err_nomem(e);
    for (size_t i = 0; i < n; i++)
        if (!adapter_room(o, i, &mat[i])) {
            adapter_close(&o->a);
            return err_set(e, ERR_NOMEM, "out of memory: an adapter of %zu matrices", n);
        }
    *out = &o->a;
    return ERR_OK;
}

void adapter_close(struct adapter *a)
{
    struct own_adapter *o = (struct own_adapter *)a; /* its first member */

    if (o == NULL)
        return;
    arena_free(&o->arena);
    free(o);
}

static enum err_code check_mat(const struct adapter *a, const struct adapter_mat *m, const struct gguf *model,
                               struct err *e)
{
    const struct gguf_tensor *t = gguf_find(model, m->name);

    if (t == NULL)
        return err_set(e, ERR_FORMAT, "%s: the model has no tensor %s", a->path, m->name);
    if ((t->ne[0] == m->n_in || m->rank == 0) && t->ne[1] == m->n_out && t->ne[2] == m->n_mat && t->ne[3] == 1)
        return ERR_OK;
    if (t->ne[2] != m->n_mat)
        return err_set(e, ERR_FORMAT, "%s: %s is for %lld matrices, the model has %lld", a->path, m->name,
                       (long long)m->n_mat, (long long)t->ne[2]);
    if (m->rank == 0)
        return err_set(e, ERR_FORMAT, "%s: %s is for a matrix of %lld outputs, the model's has %lld", a->path, m->name,
                       (long long)m->n_out, (long long)t->ne[1]);
    return err_set(e, ERR_FORMAT,
                   "%s: %s is for a matrix of %lld inputs and %lld outputs, the model's has %lld and %lld", a->path,
                   m->name, (long long)m->n_in, (long long)m->n_out, (long long)t->ne[0], (long long)t->ne[1]);
}

enum err_code adapter_check(const struct adapter *a, const struct gguf *model, struct err *e)
{
    struct str arch = str_of("");

    (void)gguf_str(model, "general.architecture", &arch);
    if (!str_is(arch, a->arch))
        return err_set(e, ERR_FORMAT, "%s: an adapter for models of architecture %s, not %.*s", a->path, a->arch,
                       STR_ARG(arch));
    for (size_t i = 0; i < a->n; i++)
        if (check_mat(a, &a->mat[i], model, e))
            return e->code;
    return ERR_OK;
}

const struct adapter_mat *adapter_find(const struct adapter *a, struct str name)
{
    for (size_t i = 0; i < a->n; i++)
        if (str_is(name, a->mat[i].name))
            return &a->mat[i];
    return NULL;
}

void adapter_merge_row(const struct adapter *a, const struct adapter_mat *m, int64_t r, float scale, float *w,
                       int64_t n)
{
    for (int64_t i = 0; m->rank == 0 && i < n; i++)
        w[i] *= 1.0f + scale * m->b[r];
    if (m->rank == 0)
        return;
    const float s = scale * (a->alpha / (float)m->rank);
    const float *in = m->a + r / m->n_out * m->rank * m->n_in; /* of r's matrix */

    for (int j = 0; j < m->rank; j++) {
        const float out = s * (m->rows ? m->a : m->b)[r * m->rank + j];

        for (int64_t i = 0; i < n; i++)
            w[i] += out * (m->rows ? m->b[i * m->rank + j] : in[j * m->n_in + i]);
    }
}

uint64_t adapter_fingerprint(const struct adapter *a)
{
    uint64_t h = io_hash(0, a->arch, strlen(a->arch));

    h = io_hash(h, &a->alpha, sizeof a->alpha);
    for (size_t i = 0; i < a->n; i++) {
        const struct adapter_mat *m = &a->mat[i];
        const int64_t sizes[4] = { m->n_in, m->n_out, m->n_mat, m->rank };

        h = io_hash(h, m->name, strlen(m->name));
        h = io_hash(h, sizes, sizeof sizes);
        h = io_hash(h, m->a, (size_t)adapter_a_floats(m) * sizeof *m->a);
        h = io_hash(h, m->b, (size_t)adapter_b_floats(m) * sizeof *m->b);
    }
    return h;
}
