/* SPDX-License-Identifier: Apache-2.0 */
/* verifier_command.c - a program that scores solutions, a line for each (verifier.h).     room: cmd */
#include <stdlib.h>
#include <string.h>

#include "cli/coprocess.h"
#include "cli/verifier.h"
#include "reason/vote.h"

/* {"problem", "steps", "answer"} and a newline; NULL: memory is out. */
static char *line_of(const struct ask_solution *s)
{
    json_t *steps = json_array(), *o;
    char *text, *line;
    size_t n;

    for (size_t i = 0; i < s->n_steps; i++)
        json_push(&steps, json_bytes(str_of(s->step[i])));
    o = json_pack("{s:o, s:o, s:o}", "problem", json_bytes(str_of(s->problem)), "steps", steps, "answer",
                  s->answer != NULL ? json_bytes(str_of(s->answer)) : json_null());
    text = o != NULL ? json_line(o) : NULL;
    json_decref(o);
    if (text == NULL)
        return NULL;
    n = strlen(text);
    line = realloc(text, n + 2);
    if (line == NULL) {
        free(text);
        return NULL;
    }
    memcpy(line + n, "\n", 2);
    return line;
}

static enum err_code take_score(void *ctx, int i, struct str line, struct err *e)
{
    struct ask_solution *s = ctx;

    (void)i;
    return reason_score_line(line, &s->score, s->scores, s->n_steps, e);
}

enum err_code cli_judge_open(struct cli_coprocess **out, const char *command, int32_t seconds, bool (*stop)(void),
                             struct err *e)
{
    const struct cli_coprocess_opts o = { .name = "cmd",
                                          .asked = "solution",
                                          .answer = "score",
                                          .option = "--verifier-time",
                                          .seconds = seconds,
                                          .stop = stop,
                                          .bad = ERR_FORMAT };

    return cli_coprocess_open(out, command, &o, e);
}

enum err_code cli_judge_score(struct cli_coprocess *c, struct ask_solution *s, struct err *e)
{
    char *text = line_of(s);
    enum err_code code = text != NULL ? cli_coprocess_ask(c, str_of(text), 1, take_score, s, e) : err_nomem(e);

    free(text);
    return code;
}
