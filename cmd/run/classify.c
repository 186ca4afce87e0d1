/* SPDX-License-Identifier: Apache-2.0 */
/* classify.c - --classify: the class of the prompt.                          room: cmd */
#include "cli/route.h"
#include "model/model.h"
#include "run/program.h"

static enum err_code print_route(const struct cli_run *s, const struct reason_routes *r, const struct cli_request *q,
                                 struct err *e)
{
    json_t *all;

    if (!s->o->json) {
        printf("%s %s %.3f\n", q->class, cli_stage_name(q->stage), q->certainty);
        return cli_flush_stdout(e);
    }
    all = json_object();
    for (int i = 0; i < reason_routes_n(r); i++)
        if (!cli_json_set(all, reason_route_name(r, i), cli_json_real(q->p[i]))) {
            json_decref(all);
            return err_nomem(e);
        }
    return cli_json_line(json_pack("{s:s, s:s, s:s, s:f, s:o}", "type", "route", "class", q->class, "stage",
                                   cli_stage_name(q->stage), "certainty", q->certainty, "certainties", all),
                         e);
}

/* The model is opened only if it is needed. */
static enum err_code find_class(struct cli_run *s, const struct reason_routes *r, struct cli_request *q, struct err *e)
{
    size_t left;

    if (cli_route_patterns(r, q, 1, &left, e))
        return e->code;
    if (left > 0 && (cli_open(&s->open, &s->o->model, e) || cli_open_text(&s->open, true, e) ||
                     cli_open_model(&s->open, e) || cli_route_model(r, &s->open, REASON_CLASSES_MAX, q, 1, e)))
        return e->code;
    return print_route(s, r, q, e);
}

enum err_code cli_run_classify(struct cli_run *s, char *const *files, int *status, struct err *e)
{
    struct cli_buf text = { 0 }, names = { 0 };
    struct reason_routes *r = NULL;
    struct cli_request q = { .certainty = 0 };
    enum err_code code = cli_routes_open(&r, s->o->classify, e);

    (void)status;
    if (code == ERR_OK)
        code = cli_read_prompt(&text, s->o->prompt, files, e);
    for (; *files != NULL && code == ERR_OK; files++)
        code = cli_buf_add(&names, str_of(*files), e) ? e->code : cli_buf_add(&names, STR("\n"), e);
    if (code == ERR_OK && text.n == 0)
        code = err_set(e, ERR_ARG, "the prompt is empty");
    if (code == ERR_OK) {
        cli_catch_interrupts();
        q.text = (struct str){ text.p, text.n };
        q.files = (struct str){ names.p != NULL ? names.p : "", names.n };
        code = find_class(s, r, &q, e);
    }
    reason_routes_close(r);
    cli_buf_free(&text);
    cli_buf_free(&names);
    return code;
}
