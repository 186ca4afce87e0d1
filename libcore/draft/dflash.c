/* SPDX-License-Identifier: Apache-2.0 */
/* dflash.c - guesses of a DFlash drafter, a GGUF file. */
#include "draft/hidden.h"
#include "model/drafter.h"

static enum err_code open_dflash(void **out, const struct draft_source *s, struct err *e)
{
    struct model_drafter *net;

    return model_drafter_dflash(&net, s->opts->model, s->file, e) != ERR_OK ? e->code
                                                                            : draft_hidden_open(out, net, false, e);
}

const struct draft_type draft_type_dflash = {
    .name = "dflash",
    .file = true,
    .open = open_dflash,
    .close = draft_hidden_close,
    .taps = draft_hidden_taps,
    .fit = draft_hidden_fit,
    .attach = draft_hidden_attach,
    .cut = draft_hidden_cut,
    .fork = draft_hidden_fork,
    .settle = draft_hidden_settle,
    .guess = draft_hidden_guess,
};
