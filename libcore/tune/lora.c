/* SPDX-License-Identifier: Apache-2.0 */
/* lora.c - adapters in training. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "adapt/adapt.h"
#include "base/rng.h"
#include "grad/grad.h"
#include "model/class.h"
#include "tune/lora.h"

static bool of_block(const struct grad *g, const char *name)
{
    return model_class_of(str_of(name), grad_n_layer(g)) == MODEL_MTP;
}

/* Why a grad has no such matrix. */
static const char *absent(const struct grad *g, const char *name)
{
    bool block = false; /* the grad is of one */

    for (int i = 0; i < grad_n_matrices(g) && !block; i++)
        block = of_block(g, grad_matrix_at(g, i)->name);
    return block == of_block(g, name) ? "cannot be trained"
           : block                    ? "is of the model, not of its multi-token-prediction block"
                                      : "is of the multi-token-prediction block, not of the model";
}

/* Takes the adapter; finds its matrices and makes room for the numbers. */
static enum err_code wrap(struct tune_lora **out, struct grad *g, struct adapter *file, struct err *e)
{
    struct tune_lora *l = calloc(1, sizeof *l);

    if (l == NULL) {
        adapter_close(file);
        return err_nomem(e);
    }
    l->g = g;
    l->file = file;
    l->n = (int)file->n;
    l->rank = adapter_rank(file);
    l->n_params = adapter_floats(file);
    l->matrix = calloc((size_t)l->n + 1, sizeof *l->matrix);
    l->theta = calloc((size_t)l->n_params + 1, sizeof *l->theta);
    if (l->matrix == NULL || l->theta == NULL) {
        tune_lora_close(l);
        return err_nomem(e);
    }
    for (int i = 0; i < l->n; i++) {
        l->matrix[i] = file->mat[i].rows ? -1 : grad_matrix_find(g, str_of(file->mat[i].name));
        if (l->matrix[i] < 0) {
            err_set(e, ERR_UNSUPPORTED, "an adapter of %s, which %s", file->mat[i].name, absent(g, file->mat[i].name));
            tune_lora_close(l);
            return e->code;
        }
    }
    *out = l;
    return ERR_OK;
}

static bool chosen(const struct grad *g, const struct grad_matrix *m, const struct tune_lora_opts *o)
{
    return m->n_in >= 2 * o->rank && m->n_out >= 2 * o->rank && strcmp(m->name, "token_embd.weight") != 0 &&
           o->classes >> model_class_of(str_of(m->name), grad_n_layer(g)) & 1;
}

static void draw_weights(struct tune_lora *l, uint64_t seed)
{
    float *at = l->theta;

    for (int i = 0; i < l->n; i++) {
        const struct adapter_mat *m = &l->file->mat[i];
        double size = 1.0 / sqrt((double)m->n_in);

        for (int64_t k = 0; k < adapter_a_floats(m); k++)
            at[k] = (float)(size * (2.0 * rng_unit(seed, (uint64_t)i, (uint64_t)k) - 1.0));
        at += adapter_a_floats(m) + adapter_b_floats(m);
    }
}

enum err_code tune_lora_new(struct tune_lora **out, struct grad *g, const struct tune_lora_opts *o, struct err *e)
{
    struct adapter_mat *mat = calloc((size_t)grad_n_matrices(g), sizeof *mat);
    struct adapter *file;
    size_t n = 0;
    enum err_code code;

    if (mat == NULL)
        return err_nomem(e);
    for (int i = 0; i < grad_n_matrices(g); i++) {
        const struct grad_matrix *m = grad_matrix_at(g, i);

        if (chosen(g, m, o))
            mat[n++] = (struct adapter_mat){
                .name = m->name, .n_in = m->n_in, .n_out = m->n_out, .n_mat = m->n_expert, .rank = o->rank
            };
    }
    code = n > 0 ? adapter_make(&file, o->arch, o->alpha, mat, n, e)
                 : err_set(e, ERR_ARG, "no matrix of the model is of these kinds and at least twice the rank wide");
    free(mat);
    if (code != ERR_OK || wrap(out, g, file, e))
        return e->code;
    draw_weights(*out, o->seed);
    return ERR_OK;
}

/* Copies numbers between theta and the floats of an adapter. */
static void copy_adapter(struct tune_lora *l, const struct adapter *a, bool to_theta)
{
    float *at = l->theta;

    for (int i = 0; i < l->n; i++) {
        const struct adapter_mat *m = &a->mat[i];
        size_t n_a = (size_t)adapter_a_floats(m), n_b = (size_t)adapter_b_floats(m);

        memcpy(to_theta ? at : m->a, to_theta ? m->a : at, n_a * sizeof *at);
        memcpy(to_theta ? at + n_a : m->b, to_theta ? m->b : at + n_a, n_b * sizeof *at);
        at += n_a + n_b;
    }
}

enum err_code tune_lora_of(struct tune_lora **out, struct grad *g, const struct adapter *a, struct err *e)
{
    struct adapter *file;

    if (adapter_make(&file, a->arch, a->alpha, a->mat, a->n, e) || wrap(out, g, file, e))
        return err_wrap(e, "%s", a->path);
    copy_adapter(*out, a, true);
    return ERR_OK;
}

void tune_lora_close(struct tune_lora *l)
{
    if (l == NULL)
        return;
    adapter_close(l->file);
    free(l->matrix);
    free(l->theta);
    free(l);
}

void tune_lora_weaken(struct tune_lora *l, float x)
{
    float *at = l->theta;

    for (int i = 0; i < l->n; i++) {
        at += adapter_a_floats(&l->file->mat[i]);
        for (int64_t n = adapter_b_floats(&l->file->mat[i]); n > 0; n--)
            *at++ *= x;
    }
}

bool tune_lora_is_neutral(const struct tune_lora *l)
{
    const float *at = l->theta;

    for (int i = 0; i < l->n; i++) {
        at += adapter_a_floats(&l->file->mat[i]);
        for (int64_t n = adapter_b_floats(&l->file->mat[i]); n > 0; n--)
            if (fabsf(*at++) > 0)
                return false;
    }
    return true;
}

enum err_code tune_lora_write(struct tune_lora *l, const char *path, const char *type, struct err *e)
{
    copy_adapter(l, l->file, false);
    return adapter_write(l->file, path, type, e);
}

void tune_lora_at(const struct tune_lora *l, const float *theta, float *gradient, int from, int to,
                  struct grad_adapter *out)
{
    int64_t at = 0;

    for (int i = 0; i < l->n; i++) {
        const struct adapter_mat *m = &l->file->mat[i];
        int64_t b = at + adapter_a_floats(m);

        out[i] = (struct grad_adapter){ l->matrix[i],
                                        m->rank,
                                        m->rank > 0 ? l->file->alpha / (float)m->rank : 1.0f,
                                        theta + at,
                                        theta + b,
                                        gradient == NULL ? NULL : gradient + at,
                                        gradient == NULL ? NULL : gradient + b,
                                        from,
                                        to };
        at = b + adapter_b_floats(m);
    }
}
