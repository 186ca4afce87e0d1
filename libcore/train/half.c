/* SPDX-License-Identifier: Apache-2.0 */
/* half.c - a training that is not finished, as a GGUF file. */
#include "train/half.h"

#include <string.h>

#include "gguf/gguf.h"
#include "quant/quant.h"

static const char *const names[] = { "weights", "moment1", "moment2" };

static enum err_code write_tensors(struct gguf_writer *w, const struct train_half *h, struct err *e)
{
    const float *const v[] = { h->w, h->m, h->v };

    for (int i = 0; i < 3; i++)
        if (gguf_write_tensor(w, str_of(names[i]), QUANT_f32, 1, &h->n, e))
            return e->code;
    for (int i = 0; i < 3; i++)
        if (gguf_write_data(w, v[i], (size_t)h->n * sizeof(float), e))
            return e->code;
    return ERR_OK;
}

enum err_code train_half_write(const struct train_half *h, const char *path, struct str job, struct err *e)
{
    struct gguf_writer *w;

    if (gguf_write_open(&w, path, e))
        return e->code;
    if (gguf_write_str(w, "general.architecture", STR("training"), e) || gguf_write_str(w, "train.job", job, e) ||
        gguf_write_u32(w, "train.step", h->step, e) || gguf_write_f32(w, "train.seconds", (float)h->spent_s, e) ||
        write_tensors(w, h, e)) {
        gguf_write_abort(w);
        return e->code;
    }
    return gguf_write_commit(w, e);
}

static bool read_floats(const struct gguf *g, const char *name, float *to, int64_t n)
{
    const struct gguf_tensor *t = gguf_find(g, name);

    if (t == NULL || t->type != QUANT_f32 || t->ne[0] != n || t->size_bytes != (size_t)n * sizeof *to)
        return false;
    memcpy(to, t->data, t->size_bytes);
    return true;
}

enum err_code train_half_read(struct train_half *h, const char *path, struct str job, struct err *e)
{
    float *const v[] = { h->w, h->m, h->v };
    struct str of = { 0 };
    float spent = 0;
    struct gguf *g;
    bool whole = true;

    if (gguf_open(&g, path, e))
        return e->code;
    if (!gguf_str(g, "train.job", &of) || !str_eq(of, job)) {
        gguf_close(g);
        return err_set(e, ERR_ARG,
                       "%s: an interrupted training of another model or with other prompts or settings: go on "
                       "with those, or remove the file",
                       path);
    }
    for (int i = 0; i < 3 && whole; i++)
        whole = read_floats(g, names[i], v[i], h->n);
    whole = whole && gguf_u32(g, "train.step", &h->step) && gguf_f32(g, "train.seconds", &spent) && spent >= 0;
    h->spent_s = (double)spent;
    gguf_close(g);
    return whole ? ERR_OK : err_set(e, ERR_FORMAT, "%s: not a whole training: remove the file", path);
}
