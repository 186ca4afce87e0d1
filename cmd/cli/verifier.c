/* SPDX-License-Identifier: Apache-2.0 */
/* verifier.c - what scores solutions (verifier.h).                           room: cmd */
#include "cli/verifier.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/coprocess.h"

struct cli_verifier {
    struct cli_verifier_use use;
    struct cli_coprocess *judge; /* NULL: it is a model */
    struct cli_opened own;       /* of a file */
    struct cli_opened *model;
    int64_t n_tokens;
};

enum err_code cli_solution_add(struct cli_solution *s, struct str step, struct err *e)
{
    char **grown, *copy;
    double *scores;

    if (s->n_steps == CLI_STEPS_MAX)
        return err_set(e, ERR_LIMIT, "more than %d steps", CLI_STEPS_MAX);
    grown = realloc(s->step, (s->n_steps + 1) * sizeof *grown);
    s->step = grown != NULL ? grown : s->step;
    scores = realloc(s->scores, (s->n_steps + 1) * sizeof *scores);
    s->scores = scores != NULL ? scores : s->scores;
    copy = strndup(step.p, step.n);
    if (grown == NULL || scores == NULL || copy == NULL) {
        free(copy);
        return err_nomem(e);
    }
    s->scores[s->n_steps] = (double)NAN;
    s->step[s->n_steps++] = copy;
    return ERR_OK;
}

static size_t find_end(struct str text, size_t from, struct str end)
{
    while (from + end.n <= text.n && memcmp(text.p + from, end.p, end.n) != 0)
        from++;
    return from + end.n <= text.n ? from : text.n;
}

enum err_code cli_solution_split(struct cli_solution *s, struct str text, struct str end, struct err *e)
{
    for (size_t from = 0, to; from < text.n; from = to + end.n) {
        size_t first = from, last;

        to = find_end(text, from, end);
        while (first < to && strchr(" \t\r\n", text.p[first]) != NULL)
            first++;
        for (last = to; last > first && strchr(" \t\r\n", text.p[last - 1]) != NULL;)
            last--;
        if (last > first && cli_solution_add(s, (struct str){ text.p + first, last - first }, e))
            return e->code;
    }
    return ERR_OK;
}

void cli_solution_free(struct cli_solution *s)
{
    for (size_t i = 0; i < s->n_steps; i++)
        free(s->step[i]);
    free(s->step);
    free(s->scores);
    free(s->problem);
    free(s->answer);
    *s = (struct cli_solution){ 0 };
}

static enum err_code open_verifier(struct cli_verifier *v, struct err *e)
{
    const char *what = v->use.o.what;
    struct cli_model_opts o;

    if (strncmp(what, "cmd:", 4) == 0)
        return cli_judge_open(&v->judge, what + 4, v->use.o.seconds, e);
    if (strcmp(what, "self") == 0) {
        v->model = v->use.self;
        return ERR_OK;
    }
    o = *v->use.model; /* adapters and counts of experts are of the model that answers */
    o.file = what;
    o.profile = NULL;
    o.loras = (struct cli_list){ 0 };
    v->model = &v->own;
    return cli_open(&v->own, &o, e) || cli_open_text(&v->own, true, e) || cli_open_model(&v->own, e) ? e->code : ERR_OK;
}

enum err_code cli_verifier_open(struct cli_verifier **out, const struct cli_verifier_use *use, struct err *e)
{
    struct cli_verifier *v = calloc(1, sizeof *v);

    if (v == NULL)
        return err_nomem(e);
    v->use = *use;
    if (open_verifier(v, e)) {
        cli_verifier_close(v);
        return err_wrap(e, "--verifier");
    }
    *out = v;
    return ERR_OK;
}

void cli_verifier_close(struct cli_verifier *v)
{
    if (v == NULL)
        return;
    cli_coprocess_close(v->judge);
    cli_opened_close(&v->own);
    free(v);
}

enum err_code cli_verifier_score(struct cli_verifier *v, struct cli_solution *s, size_t n, struct err *e)
{
    for (size_t i = 0; i < n && v->judge != NULL; i++) {
        if (cli_interrupted())
            return err_set(e, ERR_CANCEL, "interrupted");
        cli_progress_count("scores", (int64_t)i, (int64_t)n, "");
        if (cli_judge_score(v->judge, &s[i], e))
            return err_wrap(e, "--verifier");
    }
    cli_progress_end();
    if (v->judge != NULL || n == 0)
        return ERR_OK;
    if (cli_ask_verdicts(v->model, v->use.think, v->use.parallel, s, n, &v->n_tokens, e))
        return e->code == ERR_CANCEL ? e->code : err_wrap(e, "--verifier");
    return ERR_OK;
}

int64_t cli_verifier_tokens(const struct cli_verifier *v)
{
    return v->n_tokens;
}
