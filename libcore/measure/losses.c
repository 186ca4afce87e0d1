/* SPDX-License-Identifier: Apache-2.0 */
/* losses.c - what types cost the tensors of a model, into a file that grows. */
#include "measure/losses.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/memory.h"
#include "base/pool.h"
#include "base/simd.h"
#include "grad/grad.h"
#include "measure/internal.h"
#include "measure/measure.h"
#include "model/model.h"
#include "quant/quant.h"
#include "text/text.h"

enum { SEQUENCES = 16, PROBES_MAX = 8 };

/* All tensors in one of these: how losses add up. */
static const int wholes[] = { QUANT_iq2_xxs, QUANT_q2_k, QUANT_iq3_xxs, QUANT_q3_k,
                              QUANT_q4_k,    QUANT_q5_k, QUANT_q6_k,    QUANT_q8_0 };
static const char *const methods[] = {
    [MEASURE_PROBES] = "probe", [MEASURE_FISHER] = "fisher", [MEASURE_NSDS] = "nsds"
};
#define COUNT(a) (sizeof(a) / sizeof *(a))

struct job {
    const struct measure_losses_opts *o;
    const struct measure_watch *watch;
    const struct gguf *g;
    struct ramp_losses l;
    struct model_opts mo;
    struct ramp_coder coder;
    struct measure *m;
    struct measure_text text;
    struct measure_moments *moments;
    double *score;            /* [tensors] ramp_nsds() times the logarithm of the size */
    struct gguf_tensor *with; /* [tensors] as they are, but for those that are probed */
    bool *wanted;             /* [tensors] to be measured */
    int *group;               /* [tensors] */
    double (*error)[QUANT_N]; /* [tensors] of a group at work */
    int probe[PROBES_MAX], also[QUANT_N];
    enum measure_method method;
    int n_probes, n_also, n_layer, fd;
    int32_t n_vocab;
    int64_t done, todo; /* runs of the model */
    char doing[80];
};

static bool tell_progress(void *ctx, uint64_t done, uint64_t total)
{
    const struct job *j = ctx;
    const struct measure_tick t = { j->doing, j->done, j->todo, total > 0 ? (double)done / (double)total : 0 };

    return j->watch->tick(j->watch->ctx, &t);
}

static struct progress progress_of(struct job *j, const char *doing, struct str name)
{
    snprintf(j->doing, sizeof j->doing, "%s%.*s", doing, (int)(name.n < 50 ? name.n : 50), name.p);
    return (struct progress){ tell_progress, j };
}

/* ---- the file ---- */

static enum err_code append_line(struct job *j, char *line, struct err *e)
{
    enum err_code rc;

    if (line == NULL)
        return err_nomem(e);
    size_t n = strlen(line);

    line[n] = '\n'; /* in the place of the NUL: one write for a whole line */
    rc = io_write_all(j->fd, line, n + 1, e);
    free(line);
    if (rc == ERR_OK && fdatasync(j->fd) != 0 && errno != EINVAL)
        rc = err_errno(e, ERR_IO, errno, "cannot sync");
    return rc ? err_wrap(e, "%s", j->o->path) : ERR_OK;
}

static enum err_code read_types(int *out, int *n_out, int most, const char *option, const char *list, struct err *e)
{
    while (*list != '\0') {
        size_t n = strcspn(list, ",");
        int type = quant_find_name((struct str){ list, n });

        if (type < 0 || quant_fitter(type, 0) == NULL || *n_out == most)
            return err_set(e, ERR_ARG, "%s %.60s: not a list of up to %d types that are written", option, list, most);
        out[(*n_out)++] = type;
        list += n + (list[n] == ',');
    }
    return *n_out > 0 ? ERR_OK : err_set(e, ERR_ARG, "%s: no type", option);
}

static bool has_type(const int *types, size_t n, int type)
{
    bool has = false;

    for (size_t i = 0; i < n; i++)
        has |= types[i] == type;
    return has;
}

/* The types that are to be measured for a tensor; returns how many. One that has a line may lack those of --also. */
static size_t types_for(int types[QUANT_N], const struct job *j, size_t i)
{
    const struct gguf_tensor *t = gguf_tensor_at(j->g, i);
    size_t n = 0;
    const int *usual = measure_types(t, &n);

    if (j->l.measured[i])
        n = 0;
    memcpy(types, usual, n * sizeof *types);
    for (int k = 0; k < j->n_also; k++) {
        const int type = j->also[k];

        if (quant_row_bytes(type, t->ne[0]) >= 0 && !has_type(types, n, type) &&
            (!j->l.measured[i] || (type != t->type && isnan(j->l.kl[i][type]))))
            types[n++] = type;
    }
    return n;
}

static bool is_missing(const struct job *j, size_t i)
{
    int types[QUANT_N];

    return j->wanted[i] && (!j->l.measured[i] || types_for(types, j, i) > 0);
}

/* What the file's tensors have beside the usual types was measured with --also, and the others need it, too. */
static enum err_code add_file_types(struct job *j, struct err *e)
{
    int probe[PROBES_MAX], n_probes = 0;

    if (j->l.head.probes[0] != '\0' && read_types(probe, &n_probes, PROBES_MAX, "probes", j->l.head.probes, e))
        return err_wrap(e, "%s", j->o->path);
    for (size_t i = 0; i < j->l.n; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(j->g, i);
        size_t n = 0;
        const int *usual = measure_types(t, &n);

        for (int k = 0; k < QUANT_N; k++) {
            bool also = !isnan(j->l.kl[i][k]) && !has_type(usual, n, k) && !has_type(j->also, (size_t)j->n_also, k);

            for (int p = 0; p < n_probes; p++)
                also = also && ramp_fitting(probe[p], t->ne[0]) != k;
            if (also && quant_fitter(k, 0) != NULL)
                j->also[j->n_also++] = k;
        }
    }
    return ERR_OK;
}

static enum err_code read_file(struct job *j, struct err *e)
{
    struct stat st;
    char *text = NULL;
    size_t n = 0;
    enum err_code rc = ERR_OK;

    if (stat(j->o->path, &st) == 0 && !S_ISREG(st.st_mode))
        return err_set(e, ERR_IO, "%s: is not a regular file", j->o->path); /* lines are added, and read again */
    if (access(j->o->path, F_OK) == 0)
        rc = io_read_all(&text, &n, j->o->path, RAMP_LOSSES_MAX, j->o->stop, e);
    if (rc == ERR_OK)
        rc = ramp_losses_open(&j->l, (struct str){ text, n }, j->o->path, j->g, e);
    if (rc == ERR_OK)
        rc = add_file_types(j, e);
    free(text);
    return rc;
}

/* Opens the file for more lines, after those that are whole. */
static enum err_code open_file(struct job *j, struct err *e)
{
    if (io_open_own(&j->fd, j->o->path, e))
        return e->code;
    /* What another process added between reading and locking would be lost: read again. */
    ramp_losses_close(&j->l);
    if (read_file(j, e))
        return e->code;
    if (ftruncate(j->fd, (off_t)j->l.good_bytes) != 0 || lseek(j->fd, 0, SEEK_END) < 0)
        return err_errno(e, ERR_IO, errno, "%s: cannot write", j->o->path);
    return ERR_OK;
}

/* ---- what is to be done ---- */

static enum err_code list_tensors(struct job *j, struct err *e)
{
    struct model *dry;
    struct model_opts mo = j->mo;

    mo.placement.dry_run = true;
    if (model_open(&dry, j->g, &mo, e))
        return e->code;
    j->n_layer = model_info(dry)->n_layer;
    j->n_vocab = model_info(dry)->n_vocab;
    model_close(dry);
    for (size_t i = 0; i < gguf_n_tensors(j->g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(j->g, i);

        j->with[i] = *t;
        j->wanted[i] = !ramp_is_kept(t) && model_class_of(t->name, j->n_layer) != MODEL_MTP;
        if (j->wanted[i] && ramp_once(t, QUANT_N, j->o->again, e))
            return e->code;
        j->group[i] = measure_group_of(j->g, i, j->n_layer, j->o->group, j->wanted, j->group);
    }
    return ERR_OK;
}

/* A matrix that has the types of all probes would seem to lose nothing in any. */
static enum err_code check_probes(const struct job *j, struct err *e)
{
    for (size_t i = 0; i < j->l.n; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(j->g, i);
        bool any = !j->wanted[i] || j->l.measured[i];

        for (int k = 0; k < j->n_probes; k++)
            any |= ramp_fitting(j->probe[k], t->ne[0]) != t->type;
        if (!any)
            return err_set(e, ERR_ARG,
                           "--probes %s: %.*s is %s already, so that nothing can be measured: add another type",
                           j->o->probes, STR_ARG(t->name), quant_types[t->type]->name);
    }
    return ERR_OK;
}

/* ---- text ---- */

static enum err_code own_text(struct job *j, struct err *e)
{
    struct text *text;
    struct progress p = progress_of(j, "text of the model's own", STR(""));
    int32_t first;

    if (text_open(&text, j->g, e)) {
        if (e->code == ERR_UNSUPPORTED)
            err_wrap(e, "no text to begin with (--random needs none)");
        return e->code;
    }
    first = text_find(text, "<|endoftext|>"); /* what stands between documents; else what begins or ends them */
    if (first < 0)
        first = text_info(text)->bos;
    if (first < 0)
        first = text_info(text)->eos;
    text_close(text);
    if (first < 0)
        return err_set(e, ERR_UNSUPPORTED, "the model has no token to begin a text with: use --data or --random");
    return measure_write(&j->text, j->g, &j->mo, first, (uint64_t)j->o->seed, &p, e);
}

static enum err_code text_of_file(struct job *j, struct err *e)
{
    struct text_tokens tokens = { 0 };
    struct text *text = NULL;
    char *data = NULL;
    size_t n = 0;
    enum err_code rc = text_open(&text, j->g, e);

    if (rc == ERR_OK)
        rc = io_read_all(&data, &n, j->o->data, (size_t)1 << 30, j->o->stop, e);
    if (rc == ERR_OK)
        rc = text_encode(text, (struct str){ data, n }, 0, &tokens, e);
    if (rc == ERR_OK && measure_cut(&j->text, tokens.v, tokens.n, e)) {
        rc = err_wrap(e, "%s", j->o->data);
        if (rc == ERR_ARG)
            rc = e->code = ERR_FORMAT;
    }
    free(data);
    text_tokens_free(&tokens);
    text_close(text);
    return rc;
}

/* The head of a file with these options; its text is made, too. */
static enum err_code head_of(struct job *j, struct ramp_losses_head *out, struct err *e)
{
    const char *kind = j->o->data != NULL ? "file" : j->o->random ? "random" : "own";
    struct ramp_losses_head h = { .model = ramp_fingerprint(j->g), .method = "" };

    snprintf(h.text, sizeof h.text, "%s", kind);
    snprintf(h.effort, sizeof h.effort, "%s", j->o->effort ? "highest" : "default");
    snprintf(h.method, sizeof h.method, "%s", methods[j->method]);
    snprintf(h.probes, sizeof h.probes, "%s", j->method == MEASURE_PROBES ? j->o->probes : "");
    free(j->text.v);
    j->text = (struct measure_text){ .n_seq = SEQUENCES, .n_tokens = j->o->tokens / SEQUENCES };
    j->text.from = j->text.n_tokens / 2;
    if (j->o->data != NULL ? text_of_file(j, e)
        : j->o->random     ? measure_random(&j->text, j->n_vocab, (uint64_t)j->o->seed, e)
                           : own_text(j, e))
        return e->code;
    h.n_seq = j->text.n_seq;
    h.n_tokens = j->text.n_tokens;
    h.from = j->text.from;
    h.text_hash = io_hash(0, j->text.v, (size_t)h.n_seq * (size_t)h.n_tokens * sizeof *j->text.v);
    *out = h;
    return ERR_OK;
}

static bool same_text(const struct ramp_losses_head *a, const struct ramp_losses_head *b)
{
    return strcmp(a->text, b->text) == 0 && a->text_hash == b->text_hash && a->from == b->from;
}

static enum err_code check_same(const struct job *j, bool same, struct err *e)
{
    return same ? ERR_OK
                : err_set(
                      e, ERR_FORMAT,
                      "%s: was begun with other options: method %s, %s text, %d x %lld tokens, probes %s, effort %s; "
                      "give the same, or name another file",
                      j->o->path, j->l.head.method, j->l.head.text, j->l.head.n_seq, (long long)j->l.head.n_tokens,
                      j->l.head.probes, j->l.head.effort);
}

/* The text, and a head for the file; or the file's head, of the same text. */
static enum err_code begin_file(struct job *j, struct err *e)
{
    struct ramp_losses_head h;

    if (head_of(j, &h, e))
        return e->code;
    if (j->l.good_bytes == 0) {
        j->l.head = h;
        return append_line(j, ramp_losses_head_line(&h), e);
    }
    return check_same(j,
                      same_text(&h, &j->l.head) && strcmp(h.method, j->l.head.method) == 0 &&
                          strcmp(h.effort, j->l.head.effort) == 0 && strcmp(h.probes, j->l.head.probes) == 0,
                      e);
}

/* What was said of a measurement must be so, even where nothing is left to be measured. */
static enum err_code check_complete(struct job *j, struct err *e)
{
    const struct ramp_losses_head *h = &j->l.head;
    bool same = (!j->o->said.method || strcmp(methods[j->method], h->method) == 0) &&
                (!j->o->said.probes || strcmp(j->o->probes, h->probes) == 0) &&
                (!j->o->said.effort || strcmp(j->o->effort ? "highest" : "default", h->effort) == 0);

    if (j->o->said.text && same) {
        struct ramp_losses_head now;

        if (head_of(j, &now, e))
            return e->code;
        same = same_text(&now, h);
    }
    return check_same(j, same, e);
}

/* ---- runs ---- */

static void put_back(struct job *j, size_t i)
{
    const struct gguf_tensor *t = gguf_tensor_at(j->g, i);

    if (j->with[i].data != t->data)
        free((void *)(uintptr_t)j->with[i].data);
    j->with[i] = *t;
}

/* The members of a group (-1: all wanted tensors) in a type, and what that does. */
static enum err_code run_with(struct job *j, int group, int type, struct eval_mean *out, struct err *e)
{
    enum err_code rc = ERR_OK;
    struct gguf *with = NULL;
    struct progress p = { tell_progress, j };

    for (size_t i = 0; i < j->l.n && rc == ERR_OK; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(j->g, i);
        int to = ramp_fitting(type, t->ne[0]);
        void *data;

        if (!j->wanted[i] || (group >= 0 && j->group[i] != group) || to == t->type)
            continue;
        rc = ramp_recode(&data, t, &j->coder, to, j->watch->stop, e);
        if (rc == ERR_OK) {
            j->with[i].data = data;
            j->with[i].type = to;
            j->with[i].size_bytes = (size_t)(quant_row_bytes(to, t->ne[0]) * t->ne[1] * t->ne[2] * t->ne[3]);
        }
    }
    if (rc == ERR_OK)
        rc = gguf_with(&with, j->g, j->with, e);
    if (rc == ERR_OK)
        rc = measure_kl(j->m, with, out, &p, e);
    gguf_close(with);
    for (size_t i = 0; i < j->l.n; i++)
        put_back(j, i);
    j->done++;
    return rc;
}

/* Relative errors of the types of a tensor, and of what is probed. */
static enum err_code errors_of(struct job *j, size_t i, struct err *e)
{
    const struct gguf_tensor *t = gguf_tensor_at(j->g, i);
    int type[QUANT_N];
    size_t n = types_for(type, j, i);

    for (int k = 0; k < QUANT_N; k++)
        j->error[i][k] = NAN;
    for (size_t k = 0; k < n + (size_t)j->n_probes; k++) {
        int to = k < n ? type[k] : ramp_fitting(j->probe[k - n], t->ne[0]);

        if (to == t->type || !isnan(j->error[i][to]))
            continue;
        if (ramp_error(&j->error[i][to], t, &j->coder, to, e))
            return e->code;
        if (!tell_progress(j, 0, 1))
            return err_set(e, ERR_CANCEL, "interrupted");
    }
    return ERR_OK;
}

/* A line of a tensor, of what was not known of it. */
static enum err_code keep_losses(struct job *j, size_t i, const double kl[QUANT_N], struct err *e)
{
    if (append_line(j, ramp_losses_tensor_line(gguf_tensor_at(j->g, i)->name, kl), e))
        return e->code;
    for (int k = 0; k < QUANT_N; k++)
        if (!isnan(kl[k]))
            j->l.kl[i][k] = kl[k];
    j->l.measured[i] = true;
    return ERR_OK;
}

static double elems(const struct gguf_tensor *t)
{
    return (double)(t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3]);
}

/* What a member of a group loses in each type: between the probes' losses, which are its share of the group's, or in
 * its line already. */
static enum err_code share_loss(struct job *j, size_t i, const double group_kl[], const double sum[], struct err *e)
{
    const struct gguf_tensor *t = gguf_tensor_at(j->g, i);
    double error[PROBES_MAX], share[PROBES_MAX], kl[QUANT_N];
    int n = 0;

    for (int k = 0; k < j->n_probes; k++) {
        const int to = ramp_fitting(j->probe[k], t->ne[0]);

        if (to == t->type)
            continue;
        error[n] = j->error[i][to];
        share[n] = j->l.measured[i] ? j->l.kl[i][to] : sum[k] > 0 ? group_kl[k] * error[n] * elems(t) / sum[k] : 0;
        if (isnan(share[n]))
            return err_set(e, ERR_FORMAT, "%s: %.*s: its line lacks %s, a type of the probes", j->o->path,
                           STR_ARG(t->name), quant_types[to]->name);
        n++;
    }
    for (int k = 0; k < QUANT_N; k++) {
        const bool known = isnan(j->error[i][k]) || (j->l.measured[i] && !isnan(j->l.kl[i][k]));

        kl[k] = known ? NAN : measure_between(error, share, n, j->error[i][k]);
    }
    return keep_losses(j, i, kl, e);
}

/* A group's loss is shared out by the members' errors and sizes. */
static enum err_code measure_group(struct job *j, int group, struct err *e)
{
    double kl[PROBES_MAX] = { 0 }, sum[PROBES_MAX] = { 0 };
    bool any = false; /* without a line */

    for (size_t i = 0; i < j->l.n; i++)
        if (j->wanted[i] && j->group[i] == group) {
            const struct gguf_tensor *t = gguf_tensor_at(j->g, i);

            any |= !j->l.measured[i];
            if (errors_of(j, i, e))
                return e->code;
            for (int k = 0; k < j->n_probes; k++) {
                int to = ramp_fitting(j->probe[k], t->ne[0]);

                sum[k] += to == t->type ? 0 : j->error[i][to] * elems(t);
            }
        }
    for (int k = 0; k < j->n_probes && any; k++) {
        struct eval_mean got;

        if (run_with(j, group, j->probe[k], &got, e))
            return e->code;
        kl[k] = got.mean;
    }
    for (size_t i = 0; i < j->l.n; i++)
        if (j->group[i] == group && is_missing(j, i) && share_loss(j, i, kl, sum, e))
            return e->code;
    return ERR_OK;
}

/* From second moments, one tensor at a time. */
static enum err_code weigh_tensor(struct job *j, size_t i, struct err *e)
{
    const struct gguf_tensor *t = gguf_tensor_at(j->g, i);
    int type[QUANT_N];
    size_t n = types_for(type, j, i);
    double kl[QUANT_N];

    for (int k = 0; k < QUANT_N; k++)
        kl[k] = NAN;
    if (measure_fisher(kl, j->moments, t, &j->coder, type, n, j->watch->stop, e) || keep_losses(j, i, kl, e))
        return e->code;
    (void)tell_progress(j, 0, 1);
    j->done++;
    return ERR_OK;
}

/* Scores of all tensors, which say nothing but how they compare. */
static enum err_code score_all(struct job *j, struct err *e)
{
    double *rank = malloc((j->l.n + 1) * sizeof *rank), mean = 0;
    size_t n = 0;
    enum err_code rc = ERR_OK;

    j->score = malloc((j->l.n + 1) * sizeof *j->score);
    if (rank == NULL || j->score == NULL)
        rc = err_nomem(e);
    for (size_t i = 0; i < j->l.n && rc == ERR_OK; i++)
        if (j->wanted[i]) {
            const struct gguf_tensor *t = gguf_tensor_at(j->g, i);

            progress_of(j, "", t->name);
            rc = tell_progress(j, 0, 1) ? ramp_spread(&j->score[n], &rank[n], t, j->coder.simd, e)
                                        : err_set(e, ERR_CANCEL, "interrupted");
            mean += elems(t);
            n++;
        }
    if (rc == ERR_OK)
        rc = ramp_nsds(j->score, rank, n, e);
    mean /= n > 0 ? (double)n : 1;
    for (size_t i = j->l.n; i-- > 0 && rc == ERR_OK;) /* from their order to the tensors' places */
        if (j->wanted[i])
            j->score[i] = j->score[--n] * log1p(elems(gguf_tensor_at(j->g, i)) / mean);
    free(rank);
    return rc;
}

/* From its score and the errors of types. */
static enum err_code score_tensor(struct job *j, size_t i, struct err *e)
{
    double kl[QUANT_N];

    if (errors_of(j, i, e))
        return e->code;
    for (int k = 0; k < QUANT_N; k++)
        kl[k] = j->score[i] * j->error[i][k]; /* NAN: not wanted */
    j->done++;
    return keep_losses(j, i, kl, e);
}

/* Whether all tensors in a type would be in memory at once. */
static bool has_room(const struct job *j, int type)
{
    double bytes = 0;
    int64_t left = memory_left("");

    for (size_t i = 0; i < j->l.n; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(j->g, i);

        if (j->wanted[i])
            bytes += elems(t) / (double)t->ne[0] * (double)quant_row_bytes(ramp_fitting(type, t->ne[0]), t->ne[0]);
    }
    return left < 0 || bytes < .8 * (double)left;
}

/* Whether a file is complete must not depend on the memory that is free when it is read: what was left out has a
 * line. */
static bool whole_missing(const struct job *j, int type)
{
    return isnan(j->l.whole[type]) && !j->l.left_out[type];
}

static enum err_code measure_whole(struct job *j, int type, struct err *e)
{
    struct eval_mean got;

    if (!has_room(j, type)) {
        j->l.left_out[type] = true;
        j->done++;
        return append_line(j, ramp_losses_whole_line(type, NAN, NAN), e);
    }
    if (run_with(j, -1, type, &got, e))
        return e->code;
    j->l.whole[type] = got.mean;
    j->l.whole_se[type] = got.se;
    return append_line(j, ramp_losses_whole_line(type, got.mean, got.se), e);
}

static int64_t count_runs(const struct job *j)
{
    int64_t n = 0;

    for (size_t i = 0; i < j->l.n; i++) {
        bool first = is_missing(j, i), runs = j->method == MEASURE_PROBES && !j->l.measured[i];

        for (size_t k = 0; first && runs && k < i; k++)
            first = !(j->wanted[k] && !j->l.measured[k] && j->group[k] == j->group[i]);
        n += !first ? 0 : runs ? j->n_probes : 1;
    }
    for (size_t k = 0; k < COUNT(wholes); k++)
        n += whole_missing(j, wholes[k]);
    return n;
}

static bool any_tensor_missing(const struct job *j)
{
    bool any = false;

    for (size_t i = 0; i < j->l.n; i++)
        any |= is_missing(j, i);
    return any;
}

static enum err_code open_moments(struct job *j, struct err *e)
{
    struct progress p = progress_of(j, "gradients", STR(""));

    return measure_moments_open(&j->moments, j->g, j->o->n_threads, &j->text, (uint64_t)j->o->seed, &p, e);
}

/* The method that was said, or else the file's, or else the gradient where there is one. Whether there will be one is
 * known before anything is run or written. */
static enum err_code choose_method(struct job *j, struct err *e)
{
    struct grad *grad;
    bool free_choice = !j->o->said.method && !j->o->said.probes;

    j->method = free_choice ? MEASURE_FISHER : j->o->method;
    for (int k = 0; free_choice && k < (int)COUNT(methods); k++)
        if (strcmp(j->l.head.method, methods[k]) == 0) {
            j->method = (enum measure_method)k;
            free_choice = false;
        }
    if (j->method != MEASURE_FISHER && j->o->imatrix == NULL)
        return ERR_OK;
    if (grad_open(&grad, j->g, 1, e) == ERR_OK) {
        grad_close(grad);
    } else if (e->code == ERR_UNSUPPORTED && free_choice && j->o->imatrix == NULL) {
        j->method = MEASURE_PROBES;
        *e = (struct err){ 0 };
    }
    return e->code;
}

/* The inputs of the text that was measured with. */
static enum err_code save_imatrix(struct job *j, struct err *e)
{
    struct ramp_losses_head h;

    if (j->text.v == NULL && head_of(j, &h, e) == ERR_OK)
        (void)check_same(j, same_text(&h, &j->l.head), e);
    if (e->code == ERR_OK && j->moments == NULL)
        (void)open_moments(j, e);
    return e->code ? e->code : measure_imatrix_write(j->moments, j->g, j->o->imatrix, j->l.head.text, e);
}

static enum err_code measure_all(struct job *j, struct err *e)
{
    struct progress p = progress_of(j, "the model as it is", STR(""));
    enum err_code rc;

    /* Runs in the order of the groups' first tensors, then all tensors in one type. */
    rc = measure_open(&j->m, j->g, &j->mo, &j->text, &p, e);
    if (rc == ERR_OK && j->method == MEASURE_FISHER && any_tensor_missing(j))
        rc = open_moments(j, e);
    j->todo = count_runs(j);
    for (size_t i = 0; i < j->l.n && rc == ERR_OK; i++)
        if (is_missing(j, i)) {
            progress_of(j, "", gguf_tensor_at(j->g, i)->name);
            rc = j->method == MEASURE_PROBES   ? measure_group(j, j->group[i], e)
                 : j->method == MEASURE_FISHER ? weigh_tensor(j, i, e)
                                               : score_tensor(j, i, e);
        }
    for (size_t k = 0; k < COUNT(wholes) && rc == ERR_OK; k++)
        if (whole_missing(j, wholes[k])) {
            progress_of(j, "all in ", str_of(quant_types[wholes[k]]->name));
            rc = measure_whole(j, wholes[k], e);
        }
    return rc;
}

static enum err_code measure_missing(struct job *j, struct err *e)
{
    enum err_code rc = open_file(j, e);

    if (rc == ERR_OK && count_runs(j) == 0)
        return ERR_OK;
    if (rc == ERR_OK)
        rc = pool_open(&j->coder.pool, j->o->n_threads > 0 ? j->o->n_threads : pool_cpus(), e);
    if (rc == ERR_OK)
        rc = begin_file(j, e);
    if (rc == ERR_OK)
        rc = measure_all(j, e);
    measure_close(j->m);
    pool_close(j->coder.pool);
    return rc;
}

static enum err_code run_job(struct job *j, bool *complete, struct err *e)
{
    if (read_types(j->probe, &j->n_probes, PROBES_MAX, "--probes", j->o->probes, e) ||
        (j->o->also != NULL && read_types(j->also, &j->n_also, QUANT_N, "--also", j->o->also, e)) ||
        list_tensors(j, e) || read_file(j, e) || choose_method(j, e))
        return e->code;
    *complete = count_runs(j) == 0;
    if (*complete) {
        if (check_complete(j, e))
            return e->code;
    } else if (j->o->dry_run)
        return err_set(e, ERR_ARG, "%s: is not complete, and --dry-run measures nothing", j->o->path);
    else if ((j->method == MEASURE_PROBES && check_probes(j, e)) || (j->method == MEASURE_NSDS && score_all(j, e)) ||
             measure_missing(j, e))
        return e->code;
    return j->o->imatrix != NULL ? save_imatrix(j, e) : ERR_OK;
}

static void close_job(struct job *j)
{
    measure_moments_close(j->moments);
    if (j->fd >= 0 && lseek(j->fd, 0, SEEK_END) == 0)
        unlink(j->o->path); /* nothing was measured; the lock is still held */
    if (j->fd >= 0)
        close(j->fd);
    free(j->text.v);
    free(j->score);
    free(j->with);
    free(j->wanted);
    free(j->group);
    free(j->error);
}

enum err_code measure_losses(struct ramp_losses *out, bool *complete, const struct measure_losses_opts *o,
                             const struct gguf *g, const struct measure_watch *watch, struct err *e)
{
    const size_t n = gguf_n_tensors(g) + 1;
    struct job j = { .o = o,
                     .watch = watch,
                     .g = g,
                     .fd = -1,
                     .coder = { .simd = simd_features(), .effort = o->effort, .unbiased = true },
                     .mo = { .device = o->device != NULL ? o->device : "cpu", .n_threads = o->n_threads },
                     .with = malloc(n * sizeof *j.with),
                     .wanted = calloc(n, sizeof *j.wanted),
                     .group = malloc(n * sizeof *j.group),
                     .error = malloc(n * sizeof *j.error) };
    const enum err_code code = j.with == NULL || j.wanted == NULL || j.group == NULL || j.error == NULL
                                   ? err_nomem(e)
                                   : run_job(&j, complete, e);

    close_job(&j);
    if (code)
        ramp_losses_close(&j.l);
    else
        *out = j.l;
    return code;
}
