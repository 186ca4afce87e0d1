/* SPDX-License-Identifier: Apache-2.0 */
/* log.c - the answer to the log, and what people say of it.                  room: cmd */
#include <string.h>
#include <time.h>

#include "run/program.h"
#include "run/transcript.h"

static json_t *json_buf(const struct cli_buf *b)
{
    return json_bytes((struct str){ b->p != NULL ? b->p : "", b->n });
}

/* The messages with those that the session or the conversation has already; NULL: they cannot be found again. */
static json_t *all_messages(const struct cli_run *s)
{
    struct cli_transcript x = { 0 };
    json_t *all = NULL;
    struct err e;

    if (s->ask.messages == NULL || s->before.n == 0 || cli_transcript_read(&x, s->format, s->open.text, &s->before, &e))
        return json_incref(s->ask.messages);
    all = json_incref(x.messages);
    cli_transcript_free(&x);
    return json_if(json_array_extend(all, s->ask.messages) == 0, all);
}

/* What was asked, without the notes that were put into it, and what came. */
static bool add_answer(json_t *o, const struct cli_run *s)
{
    const struct cli_answer *a = &s->answer;
    json_t *messages = all_messages(s), *calls = cli_answer_calls(a);
    struct ask question = s->ask;

    question.messages = messages;
    json_t *asked = ask_report(&question, s->asked, &a->figures, &s->stats);
    bool ok = asked != NULL && json_object_update(o, asked) == 0 && cli_json_set(o, "text", json_buf(&a->text));

    ok = ok && (a->reasoning.n == 0 || cli_json_set(o, "reasoning", json_buf(&a->reasoning)));
    ok = ok && calls != NULL && (json_array_size(calls) == 0 || json_object_set(o, "tool_calls", calls) == 0);
    json_decref(calls);
    json_decref(asked);
    json_decref(messages);
    return ok && cli_json_set(o, "finish_reason", json_string(cli_run_finish(s))) &&
           cli_json_set(o, "timings", cli_run_timings(s));
}

/* The answer before this one, if the prompt goes on behind it. */
static bool add_parent(json_t *line, const struct cli_run *s)
{
    return s->kept.answer[0] == '\0' || s->before.n == 0 || s->before.n < s->kept.n_answer ||
           cli_json_set(line, "parent", json_string(s->kept.answer));
}

enum err_code cli_run_log(struct cli_run *s, struct err *e)
{
    const struct cli_beside_opts *o = &s->o->beside;
    const struct cli_log_beside beside = {
        &s->open,    &s->open.adapters, &o->engrams,         o->context != NULL ? o->context : o->context_table,
        o->examples, o->recite,         s->facts.fingerprint
    };
    char number[JOURNAL_NUMBER_BYTES];
    json_t *line = NULL;

    if (s->journal == NULL || !s->read || s->o->predict_max == 0) {
        s->kept.answer[0] = '\0';
        return ERR_OK;
    }
    if (cli_log_facts(&line, &beside, e))
        return e->code;
    journal_number(number, (int64_t)time(NULL), s->process, ++s->n_logged);
    (void)snprintf(s->logged, sizeof s->logged, "run-%s", number);
    journal_answer(s->journal, s->logged, json_if(add_parent(line, s) && add_answer(line, s), line));
    memcpy(s->kept.answer, s->logged, sizeof s->kept.answer);
    s->kept.n_answer = prompt_of(s)->n + s->answer.ids.n;
    return ERR_OK;
}

enum err_code cli_run_rate(struct cli_run *s, char *const *files, int *status, struct err *e)
{
    struct cli_log_opts *o = &s->o->log;
    const bool good = *files != NULL && strcmp(*files, "good") == 0;

    (void)status;
    if (*files == NULL || files[1] != NULL || (!good && strcmp(*files, "bad") != 0))
        cli_usage("--rate %s: say good or bad behind it", s->o->rate);
    if (good && s->o->better != NULL)
        cli_usage("--answer corrects an answer that is bad");
    const struct journal_rating r = { .id = str_of(s->o->rate),
                                      .good = good,
                                      .better = s->o->better != NULL ? str_of(s->o->better) : (struct str){ 0 } };

    o->is_there = true;
    if (cli_log_open(&s->journal, o, e))
        return e->code;
    const enum err_code code = journal_rate(s->journal, &r, e);

    if (code != ERR_ARG || strcmp(e->where, "/id") != 0)
        return code;
    return err_set(e, ERR_ARG, "--rate: the log has no answer %.80s", s->o->rate);
}
