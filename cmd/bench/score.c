/* SPDX-License-Identifier: Apache-2.0 */
/* score.c - solutions, scored by a verifier.                                 room: cmd
 *
 * A line is an object with `problem` and `steps`, an array of texts, or `text`, whose lines are the steps; perhaps
 * `answer`. It comes out as it was, with `score` and `step_scores`. Where lines say whether they are `right`, the
 * verifier's area under the ROC curve is told. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "cli/verifier.h"

static enum err_code add_steps(struct ask_solution *s, const json_t *steps, struct err *e)
{
    const json_t *one;
    size_t i;

    json_array_foreach (steps, i, one) {
        if (!json_is_string(one))
            return err_set(e, ERR_FORMAT, "step %zu is no text", i + 1);
        if (ask_solution_add(s, json_text(one), e))
            return cli_as_data(e);
    }
    return ERR_OK;
}

static enum err_code read_solution(struct ask_solution *s, const json_t *item, struct err *e)
{
    const json_t *steps = json_object_get(item, "steps");
    struct str problem, text, answer = { 0 };

    if (!json_get_str(item, "problem", &problem))
        return err_set(e, ERR_FORMAT, "there is no \"problem\"");
    s->problem = strndup(problem.p, problem.n);
    if (json_get_str(item, "answer", &answer))
        s->answer = strndup(answer.p, answer.n);
    if (s->problem == NULL || (answer.p != NULL && s->answer == NULL))
        return err_nomem(e);
    if (json_is_array(steps) ? add_steps(s, steps, e)
        : json_get_str(item, "text", &text)
            ? ask_solution_split(s, text, STR("\n"), e) && cli_as_data(e)
            : err_set(e, ERR_FORMAT, "there are neither \"steps\", an array, nor a \"text\""))
        return e->code;
    return s->n_steps > 0 ? ERR_OK : err_set(e, ERR_FORMAT, "it has no step");
}

static enum err_code read_all(struct ask_solution *s, const json_t *items, const char *path, struct err *e)
{
    const json_t *one;
    size_t i;

    json_array_foreach (items, i, one)
        if (read_solution(&s[i], one, e))
            return err_wrap(e, "%s: item %zu", cli_file_name(path), i + 1);
    return ERR_OK;
}

static enum err_code write_all(const struct ask_solution *s, json_t *items, struct err *e)
{
    json_t *one;
    size_t i;

    json_array_foreach (items, i, one) {
        json_t *steps = json_array();

        for (size_t k = 0; k < s[i].n_steps; k++)
            json_push(&steps, cli_json_real(s[i].scores[k]));
        if (!cli_json_set(one, "score", cli_json_real(s[i].score)) || !cli_json_set(one, "step_scores", steps))
            return err_nomem(e);
        if (cli_json_line(json_incref(one), e))
            return e->code;
    }
    return ERR_OK;
}

/* What the scores are worth: said of items that are known to be right or not. */
static enum err_code tell_area(const struct ask_solution *s, const json_t *items, struct err *e)
{
    const size_t n = json_array_size(items);
    double *score = calloc(n + 1, sizeof *score);
    bool *right = calloc(n + 1, sizeof *right);
    int64_t known = 0, yes = 0;
    struct eval_mean area;
    enum err_code code = score != NULL && right != NULL ? ERR_OK : err_nomem(e);

    for (size_t i = 0; i < n && code == ERR_OK; i++) {
        const json_t *label = json_object_get(json_array_get(items, i), "right");

        if (!json_is_boolean(label) || isnan(s[i].score))
            continue;
        score[known] = s[i].score;
        right[known++] = json_is_true(label);
        yes += s[i].score > 0.5;
    }
    if (code == ERR_OK && known > 0) {
        code = eval_auc(&area, score, right, known, e);
        if (code == ERR_OK)
            cli_warn("area under ROC %.3f +- %.3f, %.1f %% scored above 0.5, n = %" PRId64, area.mean, 1.96 * area.se,
                     100.0 * (double)yes / (double)known, known);
    }
    free(score);
    free(right);
    return code;
}

static enum err_code score_items(struct bench *b, json_t *items, const char *path, struct err *e)
{
    const size_t n = json_array_size(items);
    struct ask_solution *s = calloc(n + 1, sizeof *s);
    const bool self = strcmp(b->o->verifier.what, "self") == 0;
    const struct cli_verifier_use use = { .o = b->o->verifier,
                                          .model = &b->o->model,
                                          .self = &b->open,
                                          .think = b->o->think == 0,
                                          .parallel = b->o->parallel };
    struct cli_verifier *v = NULL;
    enum err_code code = s != NULL ? read_all(s, items, path, e) : err_nomem(e);

    if (code == ERR_OK && self)
        code = cli_bench_open(b, true, e);
    if (code == ERR_OK)
        code = cli_verifier_open(&v, &use, e);
    if (code == ERR_OK)
        code = cli_verifier_score(v, s, n, e);
    if (code == ERR_OK)
        cli_note("%" PRId64 " tokens of verdicts", cli_verifier_tokens(v));
    cli_verifier_close(v);
    if (code == ERR_OK)
        code = write_all(s, items, e);
    if (code == ERR_OK)
        code = tell_area(s, items, e);
    for (size_t i = 0; s != NULL && i < n; i++)
        ask_solution_free(&s[i]);
    free(s);
    return code;
}

enum err_code cli_bench_cmd_score(struct bench *b, struct err *e)
{
    const char *path = *b->operands != NULL ? *b->operands : "-";
    json_t *items = NULL;
    enum err_code code;

    if (*b->operands != NULL && b->operands[1] != NULL)
        return err_set(e, ERR_ARG, "score takes one file");
    if (cli_bench_load(&items, path, e))
        return cli_as_data(e);
    if (b->o->limit > 0)
        while (json_array_size(items) > (size_t)b->o->limit)
            (void)json_array_remove(items, json_array_size(items) - 1);
    code = json_array_size(items) > 0 ? score_items(b, items, path, e)
                                      : err_set(e, ERR_FORMAT, "%s: no items", cli_file_name(path));
    json_decref(items);
    return code;
}
