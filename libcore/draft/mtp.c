/* SPDX-License-Identifier: Apache-2.0 */
/* mtp.c - guesses of the multi-token-prediction block in the model's own file, which an adapter may change. */
#include "draft/hidden.h"
#include "gguf/gguf.h"
#include "model/drafter.h"

static enum err_code open_mtp(void **out, const struct draft_source *s, struct err *e)
{
    struct model_drafter *net;

    return model_drafter_mtp(&net, s->opts->model, s->file != NULL ? gguf_path(s->file) : NULL, e) != ERR_OK
               ? e->code
               : draft_hidden_open(out, net, true, e);
}

const struct draft_type draft_type_mtp = {
    .name = "mtp",
    .open = open_mtp,
    .close = draft_hidden_close,
    .taps = draft_hidden_taps,
    .fit = draft_hidden_fit,
    .attach = draft_hidden_attach,
    .cut = draft_hidden_cut,
    .fork = draft_hidden_fork,
    .settle = draft_hidden_settle,
    .guess = draft_hidden_guess,
};
