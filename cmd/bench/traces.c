/* SPDX-License-Identifier: Apache-2.0 */
/* traces.c - what is kept of the reasoning of tasks, and which of the answers in it are right.     room: cmd */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "bench/tasks.h"
#include "gen/gen.h"
#include "model/model.h"
#include "text/marks.h"

/* ---- what was asked about the reasoning ---- */

__attribute__((format(printf, 3, 4))) static void add(char *buf, size_t buf_bytes, const char *form, ...)
{
    const size_t n = strlen(buf);
    va_list args;

    va_start(args, form);
    vsnprintf(buf + n, buf_bytes - n, form, args);
    va_end(args);
}

/* The limits of reasoning, as a part of the settings. */
static void reason_settings(const struct cli_reason *r, char *buf, size_t size)
{
    if (r->budget >= 0 || r->effort >= 0 || r->least > 0 || r->grace >= 0)
        add(buf, size, " reasoning=%" PRId64 "+%" PRId64 " min=%" PRId64 " effort=%d", r->budget, r->grace, r->least,
            r->effort);
    if (r->message != NULL)
        add(buf, size, " message=%016" PRIx64, io_hash(0, r->message, strlen(r->message)));
    if (r->stop != NULL)
        add(buf, size, " stop=%.50s", r->stop);
    if (r->suppress != NULL)
        add(buf, size, " suppress=%.40s", r->suppress);
    if (r->probe != NULL)
        add(buf, size, " probe=%016" PRIx64, io_hash(0, r->probe, strlen(r->probe)));
    if (r->loops != 0)
        add(buf, size, " loops=off");
}

void cli_bench_reason_settings(const struct tasks *ts, char *buf, size_t buf_bytes)
{
    struct cli_reason loops = { CLI_REASON_DEFAULTS, .loops = ts->b->o->reason.loops };

    reason_settings(ts->traces ? &loops : &ts->b->o->reason, buf, buf_bytes);
    if (ts->traces)
        add(buf, buf_bytes, " traces=%d+%d", BENCH_TRACE_EVERY, BENCH_TRACE_ANSWER);
}

enum err_code cli_bench_trace_open(struct task *t, struct err *e)
{
    t->trace = calloc(1, sizeof *t->trace);
    if (t->trace == NULL || json_object_set_new(t->item, "enable_thinking", json_true()))
        return err_nomem(e);
    *t->trace = (struct reason_trace){ .answer_tokens = BENCH_TRACE_ANSWER, .every_tokens = BENCH_TRACE_EVERY };
    return ERR_OK;
}

enum err_code cli_bench_trace_take(const struct tasks *ts, struct task *t, const json_t *r, struct err *e)
{
    if (t->trace == NULL)
        return ERR_OK;
    if (reason_trace_read(t->trace, r, model_info(ts->b->open.model)->n_vocab, e))
        return e->code;
    t->trace->n_own = json_integer_value(json_object_get(r, "n_reasoning"));
    t->trace->right = json_is_true(json_object_get(r, "right"));
    return ERR_OK;
}

/* Grades the answer that the model would give at a place of its reasoning. */
static enum err_code grade_place(const struct tasks *ts, const struct task *t, struct reason_place *p, struct err *e)
{
    const struct text *text = ts->b->open.text;
    const struct text_marks *m = t->asked->reason.marks;
    const bool ended = p->n_trial > 0 && text_is_end(text, p->trial[p->n_trial - 1].token);
    struct text_tokens all = { 0 };
    char *said = NULL;
    size_t n;
    enum err_code code = text_tokens_add(&all, m->over, m->n_over, e);

    for (int i = 0; code == ERR_OK && i < p->n_trial - ended; i++)
        code = text_tokens_push(&all, p->trial[i].token, e);
    if (code == ERR_OK)
        code = text_decode(text, all.v, all.n, TEXT_SPECIAL, &said, &n, e);
    if (code == ERR_OK)
        code = eval_grade(t->item, (struct str){ said, n }, &p->right, e);
    p->right = p->right && ended;
    free(said);
    text_tokens_free(&all);
    return code;
}

enum err_code cli_bench_trace_grade(const struct tasks *ts, const struct task *t, bool right,
                                    const struct gen_stats *st, struct err *e)
{
    struct reason_trace *trace = t->trace;

    if (trace == NULL)
        return ERR_OK;
    trace->right = right;
    trace->n_own = st->reasoning_tokens;
    if (trace->failed)
        return err_nomem(e);
    for (int64_t i = 0; i < trace->n_place; i++)
        if (grade_place(ts, t, &trace->place[i], e))
            return e->code;
    return ERR_OK;
}
