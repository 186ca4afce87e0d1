/* SPDX-License-Identifier: Apache-2.0 */
/* judge.c - eval --judge-only: answers that somebody recorded, graded without a model.   room: cmd
 *
 * A line is an object with the id of an item, and `answer`, what was said after all reasoning, or `text`, all that the
 * model wrote, as files of answers have it; perhaps `set`, `sample`, and `ended`, false: it was cut off. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bench/tasks.h"

static bool is_recorded(const json_t *r)
{
    const json_t *answer = json_object_get(r, "answer"), *text = json_object_get(r, "text");

    return json_is_string(json_object_get(r, "id")) &&
           (answer != NULL ? json_is_string(answer) || json_is_array(answer) : json_is_string(text));
}

static bool is_of(const struct task *t, const json_t *r)
{
    const char *set = json_string_value(json_object_get(r, "set"));

    return strcmp(cli_bench_task_id(t), cli_bench_text_in(r, "id")) == 0 && (set == NULL || strcmp(set, t->set) == 0);
}

/* line[at]: the recorded answer to a task's sample; of several the last one. */
static enum err_code match(const struct tasks *ts, const json_t *all, const json_t **line, struct err *e)
{
    const char *path = cli_file_name(ts->b->o->judge);
    const int64_t samples = ts->b->o->samples;
    size_t n_others = 0, i;
    const json_t *r;

    json_array_foreach (all, i, r) {
        const int64_t sample = json_integer_value(json_object_get(r, "sample"));
        bool taken = false;

        if (!is_recorded(r))
            return err_set(e, ERR_FORMAT, "%s: item %zu has no id, or neither an answer nor a text", path, i + 1);
        for (size_t k = 0; sample >= 0 && sample < samples && k < ts->n; k++)
            if (is_of(&ts->v[k], r)) {
                line[k * (size_t)samples + (size_t)sample] = r;
                taken = true;
            }
        n_others += !taken;
    }
    if (n_others > 0)
        cli_warn("%s: %zu of %zu answers are to nothing that is asked", path, n_others, json_array_size(all));
    return ERR_OK;
}

static enum err_code judge(struct tasks *ts, size_t at, const json_t *r, struct err *e)
{
    const json_t *item = ts->v[at / (size_t)ts->b->o->samples].item;
    struct task_answer a = { .at = at,
                             .ended = !json_is_false(json_object_get(r, "ended")),
                             .n_tokens = json_integer_value(json_object_get(r, "n_tokens")),
                             .text = json_text(json_object_get(r, "text")),
                             .said = json_object_get(r, "answer") };

    if (a.said != NULL ? eval_grade_answer(item, a.said, &a.right, e) : eval_grade(item, a.text, &a.right, e))
        return e->code;
    a.right = a.right && a.ended;
    return cli_bench_take(ts, &a, e);
}

enum err_code cli_bench_judge(struct tasks *ts, struct err *e)
{
    const size_t n = ts->n * (size_t)ts->b->o->samples;
    const json_t **line = calloc(n, sizeof(const json_t *));
    size_t n_missing = 0;
    json_t *all = NULL;
    enum err_code code = line != NULL ? cli_bench_load(&all, ts->b->o->judge, e) : err_nomem(e);

    if (code == ERR_OK)
        code = match(ts, all, line, e);
    for (size_t at = 0; at < n && code == ERR_OK; at++) {
        if (line[at] != NULL && !ts->done[at])
            code = judge(ts, at, line[at], e);
        n_missing += line[at] == NULL;
    }
    if (code == ERR_OK && n_missing > 0)
        cli_warn("%s: %zu of %zu answers are missing and count as wrong", cli_file_name(ts->b->o->judge), n_missing, n);
    json_decref(all);
    free((void *)line);
    return code;
}
