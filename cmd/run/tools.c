/* SPDX-License-Identifier: Apache-2.0 */
/* tools.c - what scripts ask for instead of an answer: an option, and what it does.              room: cmd */
#include "run/check.h"
#include "run/model_list.h"
#include "run/program.h"

static enum err_code use_check(struct cli_run *s, char *const *files, int *status, struct err *e)
{
    (void)files, (void)e;
    *status = cli_check(&s->o->grammar);
    return ERR_OK;
}

static enum err_code use_inspect(struct cli_run *s, char *const *files, int *status, struct err *e)
{
    if (*files != NULL && files[1] != NULL)
        return cli_model_list(files, s->o->json, status, e);
    return cli_open(&s->open, &s->o->model, e) ? e->code : cli_inspect(s->open.gguf, s->o->json, e);
}

run_tool *cli_run_tool(const struct cli *cli)
{
    static const struct {
        const char *option;
        run_tool *use;
    } tools[] = {
        { "inspect", use_inspect },
        { "plan", cli_run_plan },
        { "show", cli_run_show },
        { "tokenize", cli_run_tokenize },
        { "detokenize", cli_run_detokenize },
        { "show-prompt", cli_run_show_prompt },
        { "check", use_check },
        { "parse", cli_run_parse },
        { "render", cli_run_render },
        { "rate", cli_run_rate },
        { "classify", cli_run_classify },
        { "pipeline", cli_run_pipeline },
    };

    for (size_t i = 0; i < sizeof tools / sizeof *tools; i++)
        if (cli_given(cli, tools[i].option))
            return tools[i].use;
    return NULL;
}
