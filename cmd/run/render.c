/* SPDX-License-Identifier: Apache-2.0 */
/* render.c - a chat template with variables, printed, without a model.               room: cmd */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "ask/ask.h"
#include "base/io.h"
#include "chat/chat.h"
#include "run/program.h"

enum { TEMPLATE_BYTES_MAX = 8 << 20, VARS_BYTES_MAX = 64 << 20 };

/* A date, with a time after "T" or a space or without, as seconds since 1970. */
static enum err_code read_now(const char *text, int64_t *now_s, struct err *e)
{
    struct tm t = { 0 };
    int end = 0, n;
    char sep = 'T';

    n = sscanf(text, "%4d-%2d-%2d%n%c%2d:%2d:%2d%n", &t.tm_year, &t.tm_mon, &t.tm_mday, &end, &sep, &t.tm_hour,
               &t.tm_min, &t.tm_sec, &end);
    if ((n != 3 && n != 7) || text[end] != '\0' || (sep != 'T' && sep != ' ') || t.tm_mon < 1 || t.tm_mon > 12 ||
        t.tm_mday < 1 || t.tm_mday > 31 || t.tm_hour < 0 || t.tm_hour > 23 || t.tm_min < 0 || t.tm_min > 59 ||
        t.tm_sec < 0 || t.tm_sec > 59)
        return err_set(e, ERR_ARG, "--now: %s is no date such as 2026-01-15T09:05:07", text);
    const int day = t.tm_mday;

    t.tm_year -= 1900;
    t.tm_mon--;
    *now_s = (int64_t)timegm(&t);
    if (t.tm_mday != day)
        return err_set(e, ERR_ARG, "--now: %s: the month has no such day", text);
    return ERR_OK;
}

enum err_code cli_run_render(struct cli_run *s, char *const *files, int *status, struct err *e)
{
    const struct cli_render_opts *o = &s->o->render;
    char *template = NULL, *vars = NULL, *out = NULL;
    size_t template_bytes = 0, vars_bytes = 0, n = 0;
    int64_t now_s = ask_local_s();

    (void)files, (void)status;
    if (strcmp(o->template_path, "-") == 0 && strcmp(o->vars_path, "-") == 0)
        return err_set(e, ERR_ARG, "--render and --vars: only one of them can be standard input");
    if (o->now != NULL && read_now(o->now, &now_s, e))
        return e->code;
    enum err_code code =
        io_read_text(&template, &template_bytes, o->template_path, TEMPLATE_BYTES_MAX, cli_interrupted, e);

    if (code == ERR_OK)
        code = io_read_all(&vars, &vars_bytes, o->vars_path, VARS_BYTES_MAX, cli_interrupted, e);
    if (code == ERR_OK)
        code = chat_template_render((struct str){ template, template_bytes }, (struct str){ vars, vars_bytes }, now_s,
                                    &out, &n, e);
    if (code)
        cli_as_data(e);
    else {
        fwrite(out, 1, n, stdout);
        code = cli_flush_stdout(e);
    }
    free(out);
    free(vars);
    free(template);
    return code ? e->code : ERR_OK;
}
