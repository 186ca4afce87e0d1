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
    uint64_t seed;
    int seq; /* of the text */
};

/* -log p of a label that is drawn from the row's own output, and its gradient: softmax less the label. Rows that do not
 * count have none. */
static double own_label(void *ctx, int seq, int row, float *logits, int32_t n)
{
    const struct pass *p = ctx;

    (void)seq;
    if (row < p->m->text.from) {
        memset(logits, 0, (size_t)n * sizeof *logits);
        return 0;
    }
    return grad_cross_entropy(logits, n,
                              measure_draw(logits, n, rng_unit(p->seed ^ labels, (uint64_t)p->seq, (uint64_t)row)), 1);
}

static void add_squares(float *sum, const float *v, int64_t n, int64_t rows)
{
    for (int64_t r = 0; r < rows; r++, v += n)
        for (int64_t i = 0; i < n; i++)
            sum[i] += v[i] * v[i];
}

static void take_rows(void *ctx, int matrix, int expert, int64_t n, const float *x, const float *dy, const int32_t *row)
{
    struct pass *p = ctx;
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
        struct measure_moment *to = &m->v[i];

        *to =
            (struct measure_moment){ .n_in = a->n_in, .n_out = a->n_out, .n_expert = a->n_expert, .embedding = i == 0 };
        to->name = strdup(a->name);
        to->rows = calloc((size_t)a->n_expert, sizeof *to->rows);
        to->in = calloc((size_t)(a->n_expert * a->n_in), sizeof *to->in);
        to->out = calloc((size_t)(a->n_expert * a->n_out), sizeof *to->out);
        enough &= to->name != NULL && to->rows != NULL && to->in != NULL && to->out != NULL;
    }
    return m->n > 0 && enough ? ERR_OK : err_nomem(e);
}

/* Layers of all sequences. */
struct place {
    const struct progress *progress;
    int seq, n_seq;
};

static bool tick_sequence(void *ctx, uint64_t done, uint64_t total)
{
    const struct place *at = ctx;

    return progress_tick(at->progress, (uint64_t)at->seq * total + done, (uint64_t)at->n_seq * total);
}

/* A sequence at a time takes less memory. */
static enum err_code run_all(struct measure_moments *m, struct grad *g, uint64_t seed, const struct progress *progress,
                             struct err *e)
{
    const struct measure_text *t = &m->text;
    struct pass p = { .m = m, .seed = seed };
    struct place at = { progress, 0, t->n_seq };
    const struct progress layers = { tick_sequence, &at };
    double loss;

    for (p.seq = 0; p.seq < t->n_seq; p.seq++) {
        const int32_t *token = t->v + p.seq * t->n_tokens;
        struct grad_seq seq = { .token = token, .target = token, .n = (int)t->n_tokens, .weight = 1.0f };
        struct grad_batch b = { .seq = &seq,
                                .n_seq = 1,
                                .loss = own_label,
                                .loss_ctx = &p,
                                .trace = take_rows,
                                .trace_ctx = &p,
                                .progress = &layers };

        at.seq = p.seq;
        if (grad_backward(g, &b, &loss, e))
            return e->code;
        if (!isfinite(loss))
            return err_set(e, ERR_FORMAT, "the loss of sequence %d is not a number", p.seq);
    }
    return ERR_OK;
}

enum err_code measure_moments_open(struct measure_moments **out, const struct gguf *g, int n_threads,
                                   const struct measure_text *text, uint64_t seed, const struct progress *progress,
                                   struct err *e)
{
    struct measure_moments *m = calloc(1, sizeof *m);
    struct grad *grad = NULL;
    enum err_code rc = m != NULL ? grad_open(&grad, g, n_threads, e) : err_nomem(e);

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

/* Matrices of layers that no token went through here, such as a block of guesses: as used by none, which makes all
 * their columns count alike. Without that the smallest types could not be written for them. */
static bool unseen(const struct measure_moments *m, const struct gguf_tensor *t)
{
    bool seen = t->name.n < 4 || memcmp(t->name.p, "blk.", 4) != 0 || t->n_dims < 2;

    for (int i = 0; i < m->n; i++)
        seen |= str_is(t->name, m->v[i].name);
    return !seen;
}

static enum err_code write_shape(struct gguf_writer *w, struct str of, int64_t n_in, int64_t n_expert, struct err *e)
{
    char name[NAME_BYTES];
    int n = snprintf(name, sizeof name, "%.*s.in_sum2", STR_ARG(of));

    if (gguf_write_tensor(w, (struct str){ name, (size_t)n }, QUANT_f32, 2, (const int64_t[]){ n_in, n_expert, 1, 1 },
                          e))
        return e->code;
    n = snprintf(name, sizeof name, "%.*s.counts", STR_ARG(of));
    return gguf_write_tensor(w, (struct str){ name, (size_t)n }, QUANT_f32, 2, (const int64_t[]){ 1, n_expert, 1, 1 },
                             e);
}

static enum err_code write_shapes(struct gguf_writer *w, const struct measure_moments *m, const struct gguf *g,
                                  struct err *e)
{
    for (int i = 0; i < m->n; i++)
        if (!m->v[i].embedding && write_shape(w, str_of(m->v[i].name), m->v[i].n_in, m->v[i].n_expert, e))
            return e->code;
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);

        if (unseen(m, t) && write_shape(w, t->name, t->ne[0], t->ne[2] * t->ne[3], e))
            return e->code;
    }
    return ERR_OK;
}

static enum err_code write_zeros(struct gguf_writer *w, int64_t n, struct err *e)
{
    static const float zero;

    for (int64_t i = 0; i < n; i++)
        if (gguf_write_data(w, &zero, sizeof zero, e))
            return e->code;
    return ERR_OK;
}

static enum err_code write_sums(struct gguf_writer *w, const struct measure_moments *m, const struct gguf *g,
                                struct err *e)
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
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        int64_t n_expert = t->ne[2] * t->ne[3];

        if (unseen(m, t) && (write_zeros(w, t->ne[0] * n_expert, e) || write_zeros(w, n_expert, e)))
            return e->code;
    }
    return ERR_OK;
}

enum err_code measure_imatrix_write(const struct measure_moments *m, const struct gguf *g, const char *path,
                                    const char *text, struct err *e)
{
    const struct str from[1] = { str_of(text) };
    struct gguf_writer *w;

    if (gguf_write_open(&w, path, e))
        return e->code;
    if (gguf_write_str(w, "general.type", STR("imatrix"), e) || gguf_write_strs(w, "imatrix.datasets", from, 1, e) ||
        gguf_write_u32(w, "imatrix.chunk_count", (uint32_t)m->text.n_seq, e) ||
        gguf_write_u32(w, "imatrix.chunk_size", (uint32_t)m->text.n_tokens, e) || write_shapes(w, m, g, e) ||
        write_sums(w, m, g, e)) {
        gguf_write_abort(w);
        return e->code;
    }
    return gguf_write_commit(w, e);
}
