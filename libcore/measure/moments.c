/* SPDX-License-Identifier: Apache-2.0 */
/* moments.c - second moments of what goes into matrices and of the gradients of what comes out.   room: measure */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "gguf/gguf.h"
#include "grad/grad.h"
#include "measure/internal.h"
#include "measure/measure.h"
#include "quant/quant.h"

enum { NAME_BYTES = 256 };

static const uint64_t labels = 0x6c6162656c73; /* their draws are not those that wrote the text */

struct pass {
    struct measure_moments *m;
    uint64_t                seed;
    int                     seq; /* of the text */
};

/* -log p of a label that is drawn from the row's own output, and its gradient: softmax less the label. */
static double own_label(void *ctx, int seq, int row, float *logits, int32_t n)
{
    const struct pass *p = ctx;
    int32_t            label = measure_draw(logits, n, rng_unit(p->seed ^ labels, (uint64_t)p->seq, (uint64_t)row));

    (void)seq;
    return grad_cross_entropy(logits, n, label, 1);
}

static void add_squares(float *sum, const float *v, int64_t n, int64_t rows)
{
    for (int64_t r = 0; r < rows; r++, v += n)
        for (int64_t i = 0; i < n; i++)
            sum[i] += v[i] * v[i];
}

static void take(void *ctx, int matrix, int expert, int64_t n, const float *x, const float *dy, const int32_t *row)
{
    struct pass           *p = ctx;
    struct measure_moment *at = &p->m->v[matrix];

    at->rows[expert] += n;
    if (!at->embedding) {
        add_squares(at->in + expert * at->n_in, x, at->n_in, n);
        add_squares(at->out + expert * at->n_out, dy, at->n_out, n);
        return;
    }
    add_squares(at->in, dy, at->n_in, n);
    for (int64_t i = 0; i < n; i++)
        at->out[p->m->text.v[p->seq * p->m->text.n_tokens + row[i]]] += 1.0f;
}

static enum err_code make_room(struct measure_moments *m, const struct grad *g, struct err *e)
{
    bool enough = true;

    m->v = calloc((size_t)grad_n_matrices(g), sizeof *m->v);
    m->n = m->v != NULL ? grad_n_matrices(g) : 0;
    for (int i = 0; i < m->n; i++) {
        const struct grad_matrix *a = grad_matrix_at(g, i);
        struct measure_moment    *to = &m->v[i];

        *to = (struct measure_moment){ .n_in = a->n_in, .n_out = a->n_out, .n_expert = a->n_expert, .embedding = i == 0 };
        to->name = strdup(a->name);
        to->rows = calloc((size_t)a->n_expert, sizeof *to->rows);
        to->in = calloc((size_t)(a->n_expert * a->n_in), sizeof *to->in);
        to->out = calloc((size_t)(a->n_expert * a->n_out), sizeof *to->out);
        enough &= to->name != NULL && to->rows != NULL && to->in != NULL && to->out != NULL;
    }
    return m->n > 0 && enough ? ERR_OK : err_set(e, ERR_NOMEM, "out of memory");
}

/* A sequence at a time: less memory, and signals wait for no more. */
static enum err_code run_all(struct measure_moments *m, struct grad *g, uint64_t seed, const struct progress *progress,
                             struct err *e)
{
    const struct measure_text *t = &m->text;
    struct pass                p = { .m = m, .seed = seed };
    double                     loss;

    for (p.seq = 0; p.seq < t->n_seq; p.seq++) {
        const int32_t    *token = t->v + p.seq * t->n_tokens;
        struct grad_seq   seq = { .token = token, .target = token, .n = (int)t->n_tokens, .weight = 1.0f };
        struct grad_batch b = { .seq = &seq, .n_seq = 1, .loss = own_label, .loss_ctx = &p, .trace = take, .trace_ctx = &p };

        if (grad_backward(g, &b, &loss, e))
            return e->code;
        if (!isfinite(loss))
            return err_set(e, ERR_FORMAT, "the loss of sequence %d is not a number", p.seq);
        if (!progress_tick(progress, (uint64_t)p.seq + 1, (uint64_t)t->n_seq))
            return err_set(e, ERR_CANCEL, "interrupted");
    }
    return ERR_OK;
}

enum err_code measure_moments_open(struct measure_moments **out, const struct gguf *g, int n_threads,
                                   const struct measure_text *text, uint64_t seed, const struct progress *progress,
                                   struct err *e)
{
    struct measure_moments *m = calloc(1, sizeof *m);
    struct grad            *grad = NULL;
    enum err_code           rc = m != NULL ? grad_open(&grad, g, n_threads, e) : err_set(e, ERR_NOMEM, "out of memory");

    if (rc == ERR_OK) {
        m->text = *text;
        rc = make_room(m, grad, e);
    }
    if (rc == ERR_OK)
        rc = run_all(m, grad, seed, progress, e);
    grad_close(grad);
    if (rc) {
        measure_moments_close(m);
        return rc;
    }
    m->text.v = NULL;
    *out = m;
    return ERR_OK;
}

void measure_moments_close(struct measure_moments *m)
{
    if (m == NULL)
        return;
    for (int i = 0; i < m->n; i++) {
        free(m->v[i].name);
        free(m->v[i].rows);
        free(m->v[i].in);
        free(m->v[i].out);
    }
    free(m->v);
    free(m);
}

/* ---- the inputs as a file ---- */

static enum err_code write_shapes(struct gguf_writer *w, const struct measure_moments *m, struct err *e)
{
    char name[NAME_BYTES];

    for (int i = 0; i < m->n; i++) {
        const struct measure_moment *at = &m->v[i];
        int n;

        if (at->embedding)
            continue;
        n = snprintf(name, sizeof name, "%s.in_sum2", at->name);
        if (gguf_write_tensor(w, (struct str){ name, (size_t)n }, QUANT_f32, 2, (const int64_t[]){ at->n_in, at->n_expert, 1, 1 },
                              e))
            return e->code;
        n = snprintf(name, sizeof name, "%s.counts", at->name);
        if (gguf_write_tensor(w, (struct str){ name, (size_t)n }, QUANT_f32, 2, (const int64_t[]){ 1, at->n_expert, 1, 1 }, e))
            return e->code;
    }
    return ERR_OK;
}

static enum err_code write_sums(struct gguf_writer *w, const struct measure_moments *m, struct err *e)
{
    for (int i = 0; i < m->n; i++) {
        const struct measure_moment *at = &m->v[i];

        if (at->embedding)
            continue;
        if (gguf_write_data(w, at->in, (size_t)(at->n_expert * at->n_in) * sizeof *at->in, e))
            return e->code;
        for (int64_t k = 0; k < at->n_expert; k++) {
            float n = (float)at->rows[k];

            if (gguf_write_data(w, &n, sizeof n, e))
                return e->code;
        }
    }
    return ERR_OK;
}

enum err_code measure_imatrix_write(const struct measure_moments *m, const char *path, const char *text, struct err *e)
{
    const struct str    from[1] = { str_of(text) };
    struct gguf_writer *w;

    if (gguf_write_open(&w, path, e))
        return e->code;
    if (gguf_write_str(w, "general.type", STR("imatrix"), e) || gguf_write_strs(w, "imatrix.datasets", from, 1, e) ||
        gguf_write_u32(w, "imatrix.chunk_count", (uint32_t)m->text.n_seq, e) ||
        gguf_write_u32(w, "imatrix.chunk_size", (uint32_t)m->text.n_tokens, e) || write_shapes(w, m, e) ||
        write_sums(w, m, e)) {
        gguf_write_abort(w);
        return e->code;
    }
    return gguf_write_commit(w, e);
}
