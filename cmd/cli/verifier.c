/* SPDX-License-Identifier: Apache-2.0 */
/* verifier.c - what scores solutions (verifier.h).                           room: cmd */
#include "cli/verifier.h"

#include <stdlib.h>
#include <string.h>

#include "cli/coprocess.h"
#include "run/placement.h"
#include "run/run.h"

struct cli_verifier {
    struct cli_verifier_use use;
    struct cli_coprocess *judge; /* NULL: it is a model */
    struct cli_opened own;       /* of a file */
    struct cli_opened *model;
    int64_t n_tokens;
};

/* Adapters and counts of experts are of the model that answers. */
static struct cli_model_opts model_opts(const struct cli_verifier_use *use)
{
    struct cli_model_opts o = *use->model;

    o.file = use->o.what;
    o.profile = NULL;
    o.loras = (struct cli_list){ 0 };
    return o;
}

static enum err_code open_verifier(struct cli_verifier *v, struct err *e)
{
    const char *what = v->use.o.what;
    struct cli_model_opts o;

    if (strncmp(what, "cmd:", 4) == 0)
        return cli_judge_open(&v->judge, what + 4, v->use.o.seconds, v->use.stop, e);
    if (strcmp(what, "self") == 0) {
        v->model = v->use.self;
        return ERR_OK;
    }
    o = model_opts(&v->use);
    v->model = &v->own;
    return cli_open(&v->own, &o, e) || cli_open_text(&v->own, true, e) || cli_open_model(&v->own, e) ? e->code : ERR_OK;
}

enum err_code cli_verifier_open(struct cli_verifier **out, const struct cli_verifier_use *use, struct err *e)
{
    struct cli_verifier *v = calloc(1, sizeof *v);

    if (v == NULL)
        return err_nomem(e);
    v->use = *use;
    v->use.stop = use->stop != NULL ? use->stop : cli_interrupted;
    if (open_verifier(v, e)) {
        cli_verifier_close(v);
        return err_wrap(e, "--verifier");
    }
    *out = v;
    return ERR_OK;
}

enum err_code cli_verifier_bytes(int64_t bytes[MODEL_DEVS_MAX], const struct cli_verifier_use *use, int64_t tokens,
                                 struct err *e)
{
    const char *what = use->o.what;
    const struct run_opts ro = { .ctx_tokens =
                                     tokens < INT64_MAX - ASK_VERDICT_TOKENS ? tokens + ASK_VERDICT_TOKENS : tokens,
                                 .n_seq = use->parallel,
                                 .rows_max = use->parallel > 256 ? use->parallel : 256 };
    struct cli_model_opts o;
    struct cli_opened x = { 0 };
    enum err_code code;

    memset(bytes, 0, MODEL_DEVS_MAX * sizeof *bytes);
    if (what == NULL || strcmp(what, "self") == 0 || strncmp(what, "cmd:", 4) == 0)
        return ERR_OK;
    o = model_opts(use);
    o.plan = true;
    code = cli_open(&x, &o, e) || cli_open_model(&x, e) ? e->code : cli_open_plan(&x, &ro, e);
    if (code == ERR_OK && x.placement->is_host) /* its weights are pages of the file */
        bytes[0] = x.placement->kv_bytes + x.placement->state_bytes + x.placement->logits_bytes;
    else if (code == ERR_OK)
        for (int i = 0; i < x.placement->n_dev; i++)
            bytes[i] = x.placement->part[i].total_bytes - x.placement->part[i].fixed_bytes;
    cli_opened_close(&x);
    return code == ERR_OK ? ERR_OK : err_wrap(e, "--verifier");
}

void cli_verifier_close(struct cli_verifier *v)
{
    if (v == NULL)
        return;
    cli_coprocess_close(v->judge);
    cli_opened_close(&v->own);
    free(v);
}

enum err_code cli_verifier_score(struct cli_verifier *v, struct ask_solution *s, size_t n, struct err *e)
{
    for (size_t i = 0; i < n && v->judge != NULL; i++) {
        if (v->use.stop())
            return err_set(e, ERR_CANCEL, "interrupted");
        if (!v->use.quiet)
            cli_progress_count("scores", (int64_t)i, (int64_t)n, "");
        if (cli_judge_score(v->judge, &s[i], e))
            return err_wrap(e, "--verifier");
    }
    if (!v->use.quiet)
        cli_progress_end();
    if (v->judge != NULL || n == 0)
        return ERR_OK;
    if (cli_ask_verdicts(v->model, &v->use, s, n, &v->n_tokens, e))
        return e->code == ERR_CANCEL ? e->code : err_wrap(e, "--verifier");
    return ERR_OK;
}

int64_t cli_verifier_tokens(const struct cli_verifier *v)
{
    return v->n_tokens;
}
