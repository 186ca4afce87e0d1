/* SPDX-License-Identifier: Apache-2.0 */
/* mtp.c - the command mtp: an adapter of the model's multi-token-prediction block.            room: cmd */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "adapt/adapt.h"
#include "draft-train/drafter.h"
#include "gguf/gguf.h"
#include "grad/grad.h"
#include "model/class.h"
#include "tune/mtp.h"
#include "tune/lora.h"

enum { WARM = 20, EARLY = 40, BLOCK = 2 /* the newest token and a guess */ };

struct mtp {
    struct cli_train_drafter d;
    struct grad *g;
    struct adapter *old; /* what serves; NULL: the block as it is */
    struct tune_lora *champion, *lora;
    struct tune_mtp t;
    struct train_loss loss;    /* of the last step */
    struct tune_lora *written; /* of the file */
};

static enum err_code open_lora(struct mtp *j, struct err *e)
{
    const struct cli_train_options *o = j->d.o;
    struct tune_lora_opts to = { .arch = model_info(j->d.x.model)->arch,
                                 .rank = o->rank,
                                 .seed = (uint64_t)o->seed,
                                 .alpha = o->alpha > 0 ? o->alpha : 2.0f * (float)o->rank,
                                 .classes = 1u << MODEL_MTP };

    if (access(o->out, F_OK) != 0)
        return tune_lora_new(&j->lora, j->g, &to, e);
    if (adapter_open(&j->old, o->out, e) || adapter_check(j->old, j->d.x.gguf, e) ||
        tune_lora_of(&j->champion, j->g, j->old, e))
        return err_wrap(e, "cannot replace the file of --out");
    if (o->scratch)
        return tune_lora_new(&j->lora, j->g, &to, e);
    if ((cli_given(j->d.cli, "rank") && o->rank != adapter_rank(j->old)) ||
        (cli_given(j->d.cli, "alpha") && (o->alpha < j->old->alpha || o->alpha > j->old->alpha)))
        return err_set(e, ERR_ARG,
                       "%s has rank %d and alpha %g, and training goes on with it: another --rank or --alpha needs "
                       "--scratch",
                       o->out, adapter_rank(j->old), (double)j->old->alpha);
    return tune_lora_of(&j->lora, j->g, j->old, e);
}

static enum err_code choose_adapter(struct cli_train_drafter *d, struct err *e)
{
    struct mtp *j = (struct mtp *)d;

    if (grad_open_nextn(&j->g, d->x.gguf, d->o->model.n_threads, e) || open_lora(j, e))
        return e->code;
    d->old = j->old != NULL;
    d->had = true; /* the block as it is, or with the old adapter */
    d->n_tap = 1;
    d->tap[0] = model_info(d->x.model)->n_layer - 1;
    d->ctx_tokens = d->o->model.ctx_tokens;
    return ERR_OK;
}

/* Rows of a pass: the texts of a step, but no more than four of the longest. */
static int64_t rows_max(const struct cli_train_drafter *d)
{
    return (d->o->n_text < 4 ? d->o->n_text : 4) * d->ctx_tokens;
}

static int64_t memory_bytes(const struct cli_train_drafter *d, int64_t *host)
{
    const struct mtp *j = (const struct mtp *)d;

    *host = 0;
    return tune_mtp_bytes(j->g, j->lora, rows_max(d));
}

static enum err_code open_net(struct cli_train_drafter *d, struct err *e)
{
    struct mtp *j = (struct mtp *)d;
    const struct tune_mtp_opts to = { d->o->n_text, d->o->rate, WARM, (uint64_t)d->o->seed, rows_max(d) };

    d->step = &j->t.adam.step;
    d->n_params = j->lora->n_params;
    return tune_mtp_open(&j->t, j->g, j->lora, &to, e);
}

static void close_net(struct cli_train_drafter *d)
{
    struct mtp *j = (struct mtp *)d;

    tune_mtp_close(&j->t);
    tune_lora_close(j->written);
    tune_lora_close(j->lora);
    tune_lora_close(j->champion);
    adapter_close(j->old);
    grad_close(j->g);
}

/* What it begins with: random numbers of the seed and the rank, or an old file's. */
static void note_adapter(const struct cli_train_drafter *d, char *text, size_t n)
{
    const struct tune_lora *l = ((const struct mtp *)d)->lora;

    (void)snprintf(text, n, "rank %d alpha %g begin %016llx", l->rank, (double)l->file->alpha,
                   (unsigned long long)io_hash(0, l->theta, (size_t)l->n_params * sizeof(float)));
}

static enum err_code begin_mtp(struct cli_train_drafter *d, bool resumed, struct err *e)
{
    struct mtp *j = (struct mtp *)d;

    if (resumed && tune_mtp_load(&j->t, d->half, str_of(d->name), e))
        return e->code;
    d->before_s = j->t.spent_s;
    return ERR_OK;
}

static enum err_code step_mtp(struct cli_train_drafter *d, double part, struct err *e)
{
    struct mtp *j = (struct mtp *)d;

    return tune_mtp_step(&j->t, &d->texts, part, &j->loss, e);
}

static enum err_code loss_of(struct cli_train_drafter *d, struct train_loss *loss, struct err *e)
{
    (void)e;
    *loss = ((const struct mtp *)d)->loss;
    return ERR_OK;
}

static int size_at(const struct cli_train_drafter *d, int i)
{
    (void)d;
    return i == 0 ? BLOCK : 0;
}

static enum err_code walk_tests(struct cli_train_drafter *d, bool old, int size, int64_t *to,
                                const struct progress *progress, struct err *e)
{
    struct mtp *j = (struct mtp *)d;

    (void)size;
    return tune_mtp_walk(&j->t,
                         old                  ? j->champion
                         : j->written != NULL ? j->written
                                              : j->lora,
                         &d->tests, to, progress, e);
}

static enum err_code save_mtp(struct cli_train_drafter *d, struct err *e)
{
    struct mtp *j = (struct mtp *)d;

    j->t.spent_s = cli_train_spent_s(d);
    return tune_mtp_save(&j->t, d->half, str_of(d->name), e);
}

static enum err_code write_net(struct cli_train_drafter *d, struct err *e)
{
    struct mtp *j = (struct mtp *)d;
    struct adapter *a = NULL;
    enum err_code code = tune_lora_write(j->lora, d->fresh, "f16", e);

    if (code == ERR_ARG) { /* nor would more steps from there help */
        unlink(d->half);
        err_set(e, ERR_FORMAT, "a weight has become too large for a 16-bit float: a smaller --rate may help");
        return ERR_FORMAT;
    }
    if (code == ERR_OK)
        code = adapter_open(&a, d->fresh, e);
    if (code == ERR_OK)
        code = tune_lora_of(&j->written, j->g, a, e);
    adapter_close(a);
    return code;
}

static const struct cli_train_kind kind = { "mtp",          "our loops",  false,    WARM,      EARLY,
                                            choose_adapter, memory_bytes, open_net, close_net, note_adapter,
                                            begin_mtp,      step_mtp,     loss_of,  size_at,   walk_tests,
                                            save_mtp,       write_net };

int cli_train_mtp(const struct cli_train_options *o, const struct cli *cli, char *const *files)
{
    struct mtp j = { .d.kind = &kind };

    return cli_train_drafter(&j.d, o, cli, files);
}
