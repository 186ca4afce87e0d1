/* SPDX-License-Identifier: Apache-2.0 */
/* adapters.c - the adapters of --lora.                                       room: cmd */
#include "cli/adapters.h"

#include <string.h>

#include "adapt/adapt.h"
#include "base/io.h"
#include "gguf/gguf.h"
#include "model/class.h"
#include "model/model.h"

const char *cli_adapter_what(const struct gguf *g)
{
    struct str type = STR("");

    if (!gguf_str(g, "general.type", &type) || !str_is(type, "adapter"))
        return NULL;
    if (!gguf_str(g, "adapter.type", &type))
        type = STR("");
    return str_is(type, "lora")     ? "a LoRA adapter, for --lora"
           : str_is(type, "scales") ? "scales of matrices, for chimere-quantize --merge-lora"
                                    : "an adapter of an unknown kind";
}

static enum err_code add_adapter(struct cli_adapters *x, const struct adapter *a, struct adapter *own, float scale,
                                 const struct gguf *g, struct err *e)
{
    const char *slash = strrchr(a->path, '/');
    size_t n = strlen(x->name);

    x->file[x->n] = a;
    x->own[x->n] = own;
    x->list[x->n++].scale = scale;
    x->rank += adapter_rank(a);
    x->bytes += adapter_floats(a) * (int64_t)sizeof(float);
    (void)snprintf(x->name + n, sizeof x->name - n, " + %.60s:%g", slash != NULL ? slash + 1 : a->path, (double)scale);
    x->hash = io_hash(x->hash ^ adapter_fingerprint(a), &scale, sizeof scale);
    if (adapter_check(a, g, e))
        return e->code;
    cli_note("adapter  %s: rank %d, %zu matrices, scale %g", a->path, adapter_rank(a), a->n, (double)scale);
    return ERR_OK;
}

static enum err_code read_one(struct cli_adapters *x, const char *arg, const struct gguf *g, struct err *e)
{
    float scale = 1;
    char path[4096];
    struct adapter *a;

    if (cli_file_number(arg, path, sizeof path, -CLI_SCALE_MAX, CLI_SCALE_MAX, &scale, e) || adapter_open(&a, path, e))
        return e->code;
    return add_adapter(x, a, a, scale, g, e);
}

enum err_code cli_adapters_add(struct cli_adapters *x, const struct adapter *a, const struct gguf *g, struct err *e)
{
    return x->n < RUN_ADAPTERS_MAX ? add_adapter(x, a, NULL, 1, g, e)
                                   : err_set(e, ERR_ARG, "more than %d adapters", RUN_ADAPTERS_MAX);
}

enum err_code cli_adapters_open(struct cli_adapters *x, const struct cli_list *names, const struct gguf *g,
                                struct err *e)
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
            return err_set(e, ERR_UNSUPPORTED,
                           "%s: an adapter of the multi-token-prediction block, which --lora does not change: "
                           "--draft drafts with it",
                           x->file[i]->path);
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
        adapter_close(x->own[i]);
    }
    *x = (struct cli_adapters){ 0 };
}
