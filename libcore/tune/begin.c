/* SPDX-License-Identifier: Apache-2.0 */
/* begin.c - what the training of an adapter begins with: the one that is there, or a new one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "adapt/adapt.h"
#include "gguf/gguf.h"
#include "tune/job.h"
#include "tune/lora.h"

static bool same_shape(const struct adapter *a, const struct adapter *b)
{
    bool same = a->n == b->n && a->alpha >= b->alpha && a->alpha <= b->alpha;

    for (size_t i = 0; same && i < a->n; i++)
        same = strcmp(a->mat[i].name, b->mat[i].name) == 0 && a->mat[i].rank == b->mat[i].rank;
    return same;
}

/* Training goes on with an adapter that is there: what was asked of a new one has to be so already. */
static enum err_code check_shape(const struct tune_job *j, const struct tune_begin_opts *b,
                                 const struct tune_lora_opts *new, const struct adapter *old, struct err *e)
{
    struct tune_lora_opts to = *new;
    struct tune_lora *asked;
    bool same;

    if (!b->rank_given && !b->alpha_given && !b->targets_given)
        return ERR_OK;
    if (!b->rank_given)
        to.rank = adapter_rank(old);
    if (!b->alpha_given)
        to.alpha = old->alpha;
    if (tune_lora_new(&asked, j->g, &to, e))
        return e->code;
    same = b->targets_given ? same_shape(asked->file, old)
                            : asked->rank == adapter_rank(old) && asked->file->alpha >= old->alpha &&
                                  asked->file->alpha <= old->alpha;
    tune_lora_close(asked);
    return same ? ERR_OK
                : err_set(e, ERR_ARG,
                          "%s has rank %d, alpha %g and %zu matrices, and training goes on with it: another "
                          "--rank, --alpha or --targets needs --scratch",
                          old->path, adapter_rank(old), (double)old->alpha, old->n);
}

/* What learns begins with the numbers of an adapter. */
static enum err_code go_on(struct tune_job *j, const struct tune_begin_opts *b, const struct tune_lora_opts *to,
                           const struct adapter *from, struct err *e)
{
    if (adapter_is_scales(from) != b->scales)
        return err_set(e, ERR_ARG, "%s %s, and training goes on with it: another kind needs --scratch", from->path,
                       b->scales ? "is an adapter of low rank" : "has scales");
    return check_shape(j, b, to, from, e) ? e->code : tune_lora_of(&j->begin.lora, j->g, from, e);
}

/* The numbers of another file, which is not needed any longer then. */
static enum err_code start_with(struct tune_job *j, const struct tune_begin_opts *b, const struct tune_lora_opts *to,
                                const struct gguf *model, struct err *e)
{
    struct adapter *from = NULL;
    const enum err_code code = adapter_open(&from, b->start, e) || adapter_check(from, model, e)
                                   ? err_wrap(e, "--start")
                                   : go_on(j, b, to, from, e);

    adapter_close(from);
    return code;
}

static enum err_code open_lora(struct tune_job *j, const struct tune_begin_opts *o, const struct gguf *model,
                               struct err *e)
{
    struct tune_begin *b = &j->begin;
    char arch[64] = "";
    struct str s = { 0 };
    struct tune_lora_opts to = { .arch = arch,
                                 .rank = o->scales ? 0 : o->rank,
                                 .alpha = o->scales      ? 1.0f
                                          : o->alpha > 0 ? o->alpha
                                                         : 2.0f * (float)o->rank,
                                 .classes = o->classes,
                                 .seed = (uint64_t)j->o->seed };

    if (gguf_str(model, "general.architecture", &s))
        (void)snprintf(arch, sizeof arch, "%.*s", (int)(s.n < 63 ? s.n : 63), s.p);
    if (access(j->o->out, F_OK) == 0) {
        if (adapter_open(&b->old, j->o->out, e) || adapter_check(b->old, model, e) ||
            tune_lora_of(&b->champion, j->g, b->old, e))
            return err_wrap(e, "cannot replace the file of --out");
    }
    if (o->start != NULL)
        return start_with(j, o, &to, model, e);
    if (b->old != NULL && !o->scratch)
        return go_on(j, o, &to, b->old, e);
    b->fresh = true;
    to.classes |= o->more;
    if (tune_lora_new(&b->lora, j->g, &to, e))
        return e->code;
    if (o->more == 0 || b->lora->n_params * (int64_t)sizeof(uint16_t) <= o->bytes_most)
        return ERR_OK;
    tune_lora_close(b->lora);
    b->lora = NULL;
    to.classes = o->classes;
    return tune_lora_new(&b->lora, j->g, &to, e);
}

enum err_code tune_begin(struct tune_job *j, const struct tune_begin_opts *o, const struct gguf *model, struct err *e)
{
    const enum err_code code = open_lora(j, o, model, e);
    const struct tune_lora *l = j->state.lora = j->begin.lora;

    if (code != ERR_OK || j->begin.fresh || tune_lora_is_neutral(l))
        return code;
    j->begin.from = malloc((size_t)l->n_params * sizeof(float));
    if (j->begin.from == NULL)
        return err_nomem(e);
    memcpy(j->begin.from, l->theta, (size_t)l->n_params * sizeof(float));
    return ERR_OK;
}
