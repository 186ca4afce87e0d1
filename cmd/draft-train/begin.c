/* SPDX-License-Identifier: Apache-2.0 */
/* begin.c - what the training of an adapter begins with: the one that is there, or a new one.     room: cmd */
#include <string.h>
#include <unistd.h>
#include "adapt/adapt.h"
#include "draft-train/lora.h"
#include "gguf/gguf.h"
#include "grad/grad.h"
#include "model/class.h"
#include "tune/lora.h"

static enum err_code read_classes(const char *text, unsigned *classes, struct err *e)
{
    *classes = 0;
    for (const char *at = text; at != NULL;) {
        const char *end = strchr(at, ',');
        const struct str word = { at, end != NULL ? (size_t)(end - at) : strlen(at) };
        unsigned found = 0;

        for (int c = 0; c < MODEL_N_CLASSES; c++)
            if (str_is(word, model_class_name((enum model_class)c)) && c != MODEL_EMBEDDING && c != MODEL_ROUTER &&
                c != MODEL_OTHER && c != MODEL_MTP)
                found = 1u << c;
        *classes |= found;
        if (found == 0)
            return err_set(e, ERR_ARG,
                           "--targets %.*s: of attention, recurrent, feed_forward, shared_expert, experts, output",
                           STR_ARG(word));
        at = end != NULL ? end + 1 : NULL;
    }
    return ERR_OK;
}

static bool same_shape(const struct adapter *a, const struct adapter *b)
{
    bool same = a->n == b->n && a->alpha >= b->alpha && a->alpha <= b->alpha;

    for (size_t i = 0; same && i < a->n; i++)
        same = strcmp(a->mat[i].name, b->mat[i].name) == 0 && a->mat[i].rank == b->mat[i].rank;
    return same;
}

/* Training goes on with the adapter that is there: what was asked of a new one has to be so already. */
static enum err_code check_shape(const struct train_begin *b, const struct train_options *o, const struct cli *cli,
                                 struct grad *g, const struct tune_lora_opts *new, struct err *e)
{
    struct tune_lora_opts to = *new;
    struct tune_lora *asked;
    bool same;

    if (!cli_given(cli, "rank") && !cli_given(cli, "alpha") && !cli_given(cli, "targets"))
        return ERR_OK;
    if (!cli_given(cli, "rank"))
        to.rank = adapter_rank(b->old);
    if (!cli_given(cli, "alpha"))
        to.alpha = b->old->alpha;
    if (tune_lora_new(&asked, g, &to, e))
        return e->code;
    same = !cli_given(cli, "targets") ? asked->rank == adapter_rank(b->old) && asked->file->alpha >= b->old->alpha &&
                                            asked->file->alpha <= b->old->alpha
                                      : same_shape(asked->file, b->old);
    tune_lora_close(asked);
    return same ? ERR_OK
                : err_set(e, ERR_ARG,
                          "%s has rank %d, alpha %g and %zu matrices, and training goes on with it: another "
                          "--rank, --alpha or --targets needs --scratch",
                          o->out, adapter_rank(b->old), (double)b->old->alpha, b->old->n);
}

enum err_code cli_train_begin(struct train_begin *b, const struct train_options *o, const struct cli *cli,
                              const struct gguf *model, struct grad *g, struct err *e)
{
    struct tune_lora_opts to = { .rank = o->scales ? 0 : o->rank,
                                 .alpha = o->scales      ? 1.0f
                                          : o->alpha > 0 ? o->alpha
                                                         : 2.0f * (float)o->rank,
                                 .seed = (uint64_t)o->seed };
    char arch[64] = "";
    struct str s = { 0 };

    if (gguf_str(model, "general.architecture", &s))
        (void)snprintf(arch, sizeof arch, "%.*s", (int)(s.n < 63 ? s.n : 63), s.p);
    to.arch = arch;
    if (read_classes(o->targets, &to.classes, e))
        return e->code;
    if (access(o->out, F_OK) == 0) {
        if (adapter_open(&b->old, o->out, e) || adapter_check(b->old, model, e) ||
            tune_lora_of(&b->champion, g, b->old, e))
            return err_wrap(e, "cannot replace the file of --out");
        if (!o->scratch && adapter_is_scales(b->old) != o->scales)
            return err_set(e, ERR_ARG, "%s %s, and training goes on with it: another kind needs --scratch", o->out,
                           o->scales ? "is an adapter of low rank" : "has scales");
        if (!o->scratch)
            return check_shape(b, o, cli, g, &to, e) ? e->code : tune_lora_of(&b->lora, g, b->old, e);
    }
    b->fresh = true;
    return tune_lora_new(&b->lora, g, &to, e);
}

void cli_train_begin_close(struct train_begin *b)
{
    tune_lora_close(b->lora);
    tune_lora_close(b->champion);
    adapter_close(b->old);
}
