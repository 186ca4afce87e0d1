/* SPDX-License-Identifier: Apache-2.0 */
/* text.c - sequences to measure with: the model's own, random ones, pieces of a text. room: measure */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "measure/internal.h"
#include "measure/measure.h"
#include "model/model.h"
#include "run/run.h"

enum { DRAWS_MAX = 4 };

static enum err_code make_room(struct measure_text *t, struct err *e)
{
    t->v = malloc((size_t)t->n_seq * (size_t)t->n_tokens * sizeof *t->v);
    return t->v != NULL ? ERR_OK : err_nomem(e);
}

int32_t measure_draw(const float *logits, int32_t n, double u)
{
    double sum = 0, at = 0;
    float max = logits[0];

    for (int32_t i = 1; i < n; i++)
        max = logits[i] > max ? logits[i] : max;
    for (int32_t i = 0; i < n; i++)
        sum += exp((double)(logits[i] - max));
    for (int32_t i = 0; i < n; i++) {
        at += exp((double)(logits[i] - max));
        if (at >= u * sum)
            return i;
    }
    return n - 1;
}

static int by_token(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

    return (x > y) - (x < y);
}

/* sorted: room for n tokens. */
static bool repeats(const int32_t *v, int64_t n, int32_t *sorted)
{
    int64_t different = 1;

    memcpy(sorted, v, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, by_token);
    for (int64_t i = 1; i < n; i++)
        different += sorted[i] != sorted[i - 1];
    return different * 8 < n;
}

/* All sequences that are wanted, side by side. */
static enum err_code write_wanted(struct measure_text *t, struct run *r, const bool *wanted, uint64_t seed,
                                  const struct progress *progress, struct err *e)
{
    struct run_row *rows = malloc((size_t)t->n_seq * sizeof *rows);

    if (rows == NULL)
        return err_nomem(e);
    for (int s = 0; s < t->n_seq; s++)
        run_clear(r, s);
    for (int64_t i = 0; i + 1 < t->n_tokens; i++) {
        int n = 0;

        for (int s = 0; s < t->n_seq; s++)
            if (wanted[s])
                rows[n++] = (struct run_row){ .token = t->v[s * t->n_tokens + i], .seq = s, .logits = true };
        if (run_step(r, rows, n, e) || !progress_tick(progress, (uint64_t)i + 1, (uint64_t)t->n_tokens)) {
            free(rows);
            return e->code ? e->code : err_set(e, ERR_CANCEL, "interrupted");
        }
        for (int k = 0; k < n; k++) {
            int s = rows[k].seq;
            const float *logits = run_logits(r, k);

            t->v[s * t->n_tokens + i + 1] =
                measure_draw(logits, run_n_vocab(r), rng_unit(seed, (uint64_t)s, (uint64_t)i));
        }
    }
    free(rows);
    return ERR_OK;
}

enum err_code measure_write(struct measure_text *out, const struct gguf *g, const struct model_opts *o, int32_t first,
                            uint64_t seed, const struct progress *progress, struct err *e)
{
    struct model *m = NULL;
    struct run *r = NULL;
    bool *wanted = malloc((size_t)out->n_seq * sizeof *wanted);
    int32_t *sorted = malloc((size_t)out->n_tokens * sizeof *sorted);
    bool any = true;
    enum err_code rc = wanted != NULL && sorted != NULL ? make_room(out, e) : err_nomem(e);

    e->code = rc;
    for (int s = 0; rc == ERR_OK && s < out->n_seq; s++) {
        wanted[s] = true;
        out->v[s * out->n_tokens] = first;
    }
    if (rc == ERR_OK)
        rc = model_open(&m, g, o, e);
    if (rc == ERR_OK)
        rc = run_open(
            &r, m,
            &(struct run_opts){
                .ctx_tokens = out->n_tokens, .n_seq = out->n_seq, .rows_max = out->n_seq, .logits_max = out->n_seq },
            e);
    for (int tries = 0; rc == ERR_OK && any && tries < DRAWS_MAX; tries++) {
        rc = write_wanted(out, r, wanted, seed + (uint64_t)tries, progress, e);
        any = false;
        for (int s = 0; rc == ERR_OK && s < out->n_seq; s++) {
            wanted[s] = repeats(out->v + s * out->n_tokens, out->n_tokens, sorted);
            any |= wanted[s];
        }
    }
    run_close(r);
    model_close(m);
    free(wanted);
    free(sorted);
    if (rc) {
        free(out->v);
        out->v = NULL;
    }
    return rc;
}

enum err_code measure_random(struct measure_text *out, int32_t n_vocab, uint64_t seed, struct err *e)
{
    if (make_room(out, e))
        return e->code;
    for (int s = 0; s < out->n_seq; s++)
        for (int64_t i = 0; i < out->n_tokens; i++)
            out->v[s * out->n_tokens + i] = (int32_t)(rng_unit(seed, (uint64_t)s, (uint64_t)i) * n_vocab);
    return ERR_OK;
}

enum err_code measure_cut(struct measure_text *out, const int32_t *tokens, int64_t n, struct err *e)
{
    if (n < out->n_tokens)
        return err_set(e, ERR_ARG, "a text of %lld tokens is too short to measure with: %lld are needed", (long long)n,
                       (long long)out->n_tokens);
    if (n / out->n_tokens < out->n_seq)
        out->n_seq = (int)(n / out->n_tokens);
    if (make_room(out, e))
        return e->code;
    for (int s = 0; s < out->n_seq; s++) {
        int64_t at = (n - out->n_tokens) * s / (out->n_seq > 1 ? out->n_seq - 1 : 1);

        memcpy(out->v + s * out->n_tokens, tokens + at, (size_t)out->n_tokens * sizeof *tokens);
    }
    return ERR_OK;
}
