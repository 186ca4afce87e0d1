/* SPDX-License-Identifier: Apache-2.0 */
/* adapters.c - the adapters of --lora.                                       room: cmd (cli_) */
#include "cli/adapters.h"

#include <string.h>

#include "adapt/adapt.h"
#include "base/io.h"
#include "model/class.h"
#include "model/model.h"

static enum err_code read_one(struct cli_adapters *x, const char *arg, const struct gguf *g, struct err *e)
{
    const int i = x->n;
    float     scale = 1;
    char      path[4096];
    const char *slash;
    size_t    n = strlen(x->name);

    if (cli_file_number(arg, path, sizeof path, -CLI_SCALE_MAX, CLI_SCALE_MAX, &scale, e))
        return e->code;
    if (adapter_open(&x->file[i], path, e))
        return e->code;
    x->n++;
    x->list[i].scale = scale;
    x->rank += adapter_rank(x->file[i]);
    x->bytes += adapter_floats(x->file[i]) * (int64_t)sizeof(float);
    slash = strrchr(path, '/');
    (void)snprintf(x->name + n, sizeof x->name - n, " + %.60s:%g", slash != NULL ? slash + 1 : path, (double)scale);
    x->hash = io_hash(x->hash ^ adapter_fingerprint(x->file[i]), &scale, sizeof scale);
    if (adapter_check(x->file[i], g, e))
        return e->code;
    cli_note("adapter  %s: rank %d, %zu matrices, scale %g", path, adapter_rank(x->file[i]), x->file[i]->n, (double)scale);
    return ERR_OK;
}

enum err_code cli_adapters_open(struct cli_adapters *x, const struct cli_list *names, const struct gguf *g, struct err *e)
{
    if (names->n > RUN_ADAPTERS_MAX)
        return err_set(e, ERR_ARG, "--lora %zu times: at most %d", names->n, RUN_ADAPTERS_MAX);
    for (size_t i = 0; i < names->n; i++)
        if (read_one(x, names->v[i], g, e))
            return e->code;
    return ERR_OK;
}

/* All that it changes is the multi-token-prediction block, which answers do not come from. */
static bool only_drafts(const struct adapter *a, const struct model *m)
{
    size_t n = 0;

    while (n < a->n && model_class_of(str_of(a->mat[n].name), model_info(m)->n_layer) == MODEL_MTP)
        n++;
    return n == a->n;
}

enum err_code cli_adapters_load(struct cli_adapters *x, const struct model *m, struct err *e)
{
    for (int i = 0; i < x->n; i++) {
        if (only_drafts(x->file[i], m))
            return err_set(e, ERR_UNSUPPORTED, "%s: an adapter of the multi-token-prediction block, which --lora does not change: "
                           "--draft drafts with it", x->file[i]->path);
        if (x->on[i] == NULL && model_adapter_open(&x->on[i], m, x->file[i], e))
            return e->code;
        x->list[i].adapter = x->on[i];
    }
    return ERR_OK;
}

enum err_code cli_adapters_set(struct cli_adapters *x, const struct model *m, struct run *r, struct err *e)
{
    if (cli_adapters_load(x, m, e))
        return e->code;
    for (int q = 0; x->n > 0 && q < run_n_seq(r); q++)
        if (run_set_adapters(r, q, x->list, x->n, e))
            return e->code;
    return ERR_OK;
}

void cli_adapters_close(struct cli_adapters *x)
{
    for (int i = 0; i < x->n; i++) {
        model_adapter_close(x->on[i]);
        adapter_close(x->file[i]);
    }
    *x = (struct cli_adapters){ 0 };
}
