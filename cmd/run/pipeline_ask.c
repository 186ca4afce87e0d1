/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline_ask.c - prompts of a pipeline: beside each other in the same steps of the model, with calls of tools.
 * room: cmd
 *
 * A conversation is its tokens, as in talk.c: the next prompt is all of them and the new message, so that only that is
 * evaluated. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "run/pipeline.h"
#include "run/run.h"

struct turn {
    struct cli_pipeline *x;
    const struct pipeline_step *step;
    struct text_tokens before; /* of the conversation that goes on */
    json_t *messages, *said;   /* the conversation's, and those that the model has not seen */
    struct ask ask;
    struct ask_request *asked;
    struct cli_answer answer;
    const json_t *tools; /* that the conversation was told of; NULL: none */
    char parent[64];     /* the id of the answer before, in the log */
    json_t *calls;       /* that have run */
    int64_t id, evaluated, cached, written, reasoned;
    int rounds, seq;
    double from_ms;
    bool alone; /* no other prompt runs beside it */
};

static struct str text_of(const struct cli_answer *a)
{
    return (struct str){ a->text.p != NULL ? a->text.p : "", a->text.n };
}

/* ---- the question ---- */

static enum err_code say(struct turn *t, json_t *message, struct err *e)
{
    if (json_array_append(t->said, message) != 0 || json_array_append(t->messages, message) != 0)
        err_nomem(e);
    json_decref(message);
    return e->code;
}

/* The conversation that a step goes on with; NULL: it begins one. */
static const struct cli_thread *find_thread(const struct cli_pipeline *x, const struct pipeline_step *s, struct err *e)
{
    const struct cli_thread *from = s->fork != NULL ? &x->thread[s->fork->at] : x->last;

    if (s->fork != NULL && !from->there) {
        err_set(e, ERR_ARG, "goes on with step %s, which has not run", s->fork->name);
        return NULL;
    }
    if (s->begins || from == NULL || !from->there)
        return NULL;
    /* What the template says of tools stands at its beginning. */
    return s->tools == NULL || (from->tools != NULL && json_equal(s->tools, from->tools)) ? from : NULL;
}

static enum err_code begin_messages(struct turn *t, struct err *e)
{
    struct cli_pipeline *x = t->x;
    const struct cli_thread *from = find_thread(x, t->step, e);
    const char *system = t->step->system != NULL ? t->step->system : pipeline_system(x->p);
    char *text;
    size_t n;

    if (e->code != ERR_OK)
        return e->code;
    t->said = json_array();
    t->messages = from != NULL ? json_shallow(from->messages) : json_array();
    t->calls = json_array();
    if (t->said == NULL || t->messages == NULL || t->calls == NULL)
        return err_nomem(e);
    t->tools = from != NULL ? from->tools : t->step->tools;
    if (from != NULL) {
        memcpy(t->parent, from->logged, sizeof t->parent);
        if (text_tokens_add(&t->before, from->held.v, from->held.n, e) ||
            chat_close_reasoning(x->s->format, &t->before, e))
            return e->code;
    } else if (system != NULL &&
               say(t, json_pack("{s:s, s:o}", "role", "system", "content", json_bytes(str_of(system))), e))
        return e->code;
    if (pipeline_fill(&text, &n, t->step->text, x->state, e))
        return e->code;
    if (strspn(text, " \t\r\n") >= n) {
        free(text);
        return err_set(e, ERR_ARG, "the prompt is empty");
    }
    json_t *const user = json_pack("{s:s, s:o}", "role", "user", "content", json_bytes((struct str){ text, n }));

    free(text);
    return say(t, user, e);
}

static void set_memory(struct turn *t)
{
    struct cli_step_memory *m = &t->x->memory[t->step->at];

    if (!t->step->has_memory)
        return;
    cli_beside_ask(&t->ask, &m->beside);
    if (m->adapters.n > 0) {
        t->ask.adapters = m->adapters.list;
        t->ask.n_adapters = m->adapters.n;
    }
}

static void set_question(struct turn *t)
{
    const struct cli_run *s = t->x->s;
    const struct pipeline_step *p = t->step;
    struct ask *a = &t->ask;

    *a = s->ask; /* what the options say of any question */
    a->sample = s->o->sampling.o;
    a->token = t->before.v;
    a->n_token = t->before.n;
    a->messages = t->said;
    a->tools = p->tools;
    a->tools_are_told = t->before.n > 0;
    a->kwargs = s->kwargs;
    a->form.schema = p->schema;
    if (p->tokens > 0)
        a->tokens_max = p->tokens;
    if (p->think >= 0)
        a->think = p->think;
    if (p->budget > 0)
        a->reason.budget_tokens = p->budget;
    set_memory(t);
}

static enum err_code open_answer(struct turn *t, struct err *e)
{
    const struct cli_run *s = t->x->s;
    const bool shows = t->alone && (s->o->jsonl || (!s->o->json && cli_pipeline_streams(t->x, t->step)));
    const struct cli_answer_opts ao = { .form = !shows        ? ANSWER_JSON
                                                : s->o->jsonl ? ANSWER_JSONL
                                                              : ANSWER_PLAIN,
                                        .reasoning = REASONING_NONE,
                                        .text = s->open.text,
                                        .asked = t->asked,
                                        .keeps = true,
                                        .stream = true };

    return cli_answer_open(&t->answer, &ao, e);
}

static enum err_code submit(struct turn *t, struct err *e)
{
    struct cli_run *s = t->x->s;
    const struct ask_model m = cli_run_model(s);
    struct gen_request q;

    set_question(t);
    ask_close(t->asked);
    t->asked = NULL;
    cli_answer_close(&t->answer);
    if (ask_open(&t->asked, &t->ask, &m, NULL, e))
        return e->code;
    if (t->asked->prompt.n >= run_ctx(s->run))
        return err_set(e, ERR_LIMIT, "the conversation has %" PRId64 " tokens, the context %" PRId64 " (--ctx sets it)",
                       t->asked->prompt.n, run_ctx(s->run));
    if (open_answer(t, e))
        return e->code;
    q = t->asked->q;
    q.user = t;
    q.sample.stream = (uint64_t)t->x->thread[t->step->at].run;
    return gen_submit(s->gen, &q, &t->id, e);
}

/* ---- calls ---- */

static const struct pipeline_tool *find_tool(const struct turn *t, const char *name)
{
    const json_t *one;
    size_t i;

    json_array_foreach (t->step->tools, i, one) {
        const struct pipeline_tool *tool = pipeline_tool_of(t->x->p, name);

        if (tool != NULL && tool->declared == one)
            return tool;
    }
    return NULL;
}

/* What the model is told of a call. */
static json_t *tell_result(const json_t *result)
{
    const json_int_t status = json_integer_value(json_object_get(result, "status"));
    const struct str text = json_text(json_object_get(result, "text"));

    return status == 0 ? json_bytes(text) : json_sprintf("error: status %d\n%s", (int)status, text.p);
}

static enum err_code run_call(struct turn *t, const json_t *call, struct err *e)
{
    const json_t *function = json_object_get(call, "function");
    const char *name = json_string_value(json_object_get(function, "name"));
    const struct str arguments = json_text(json_object_get(function, "arguments"));
    const struct pipeline_tool *tool = name != NULL ? find_tool(t, name) : NULL;
    json_t *result = NULL;

    if (tool == NULL)
        result =
            json_pack("{s:s, s:n, s:i, s:s}", "text", "there is no such tool", "json", "status", 127, "end", "exit");
    else if (cli_pipeline_command(&result, t->x, &tool->command, arguments, e))
        return err_wrap(e, "tool %s", name);
    json_t *const message =
        json_pack("{s:s, s:O, s:s, s:o}", "role", "tool", "tool_call_id", json_object_get(call, "id"), "name",
                  name != NULL ? name : "", "content", tell_result(result));

    cli_note("call     %s %.*s", name != NULL ? name : "", STR_ARG(arguments));
    if (result == NULL ||
        json_array_append_new(t->calls, json_pack("{s:s, s:s, s:o}", "name", name != NULL ? name : "", "arguments",
                                                  arguments.p != NULL ? arguments.p : "", "result", result)) != 0) {
        json_decref(message);
        return err_nomem(e);
    }
    return message != NULL ? say(t, message, e) : err_nomem(e);
}

/* ---- the answer ---- */

static enum err_code log_answer(struct turn *t, const struct gen_event *ev, struct err *e)
{
    struct cli_run *s = t->x->s;

    if (s->journal == NULL)
        return ERR_OK;
    s->asked = t->asked;
    s->answer = t->answer;
    s->ask = t->ask;
    s->before = t->before;
    s->read = true;
    s->finish = ev->end;
    s->stats = ev->stats;
    memcpy(s->kept.answer, t->parent, sizeof s->kept.answer);
    s->kept.n_answer = t->before.n;
    const enum err_code code = cli_run_log(s, e);

    s->asked = NULL;
    s->answer = (struct cli_answer){ 0 };
    s->before = (struct text_tokens){ 0 };
    memcpy(t->parent, s->logged, sizeof t->parent);
    return code;
}

static enum err_code add_answer(struct turn *t, json_t *calls, struct err *e)
{
    json_t *m = json_pack("{s:s, s:o}", "role", "assistant", "content", json_bytes(text_of(&t->answer)));

    if (m == NULL || (json_array_size(calls) > 0 && json_object_set(m, "tool_calls", calls) != 0) ||
        (t->answer.reasoning.n > 0 &&
         json_object_set_new(m, "reasoning_content",
                             json_bytes((struct str){ t->answer.reasoning.p, t->answer.reasoning.n })) != 0) ||
        json_array_append(t->messages, m) != 0)
        err_nomem(e);
    json_decref(m);
    return e->code;
}

/* Prompt and answer become the beginning of the next prompt. */
static enum err_code hold_answer(struct turn *t, struct err *e)
{
    t->before.n = 0;
    return text_tokens_add(&t->before, t->asked->prompt.v, t->asked->prompt.n, e) ||
                   text_tokens_add(&t->before, t->answer.ids.v, t->answer.ids.n, e)
               ? e->code
               : ERR_OK;
}

/* The conversation is the step's, and the next one's. */
static void keep_thread(struct turn *t)
{
    struct cli_thread *to = &t->x->thread[t->step->at];

    text_tokens_free(&to->held);
    json_decref(to->messages);
    *to = (struct cli_thread){
        .there = true, .held = t->before, .messages = t->messages, .tools = t->tools, .seq = t->seq + 1, .run = to->run
    };
    memcpy(to->logged, t->parent, sizeof to->logged);
    t->before = (struct text_tokens){ 0 };
    t->messages = NULL;
    if (t->alone)
        t->x->last = to;
}

static enum err_code tell_end(struct turn *t, const struct gen_event *ev, struct err *e)
{
    struct cli_run *s = t->x->s;
    const struct cli_answer *a = &t->answer;
    json_t *result = json_object(), *told;
    enum err_code code;

    s->finish = ev->end;
    told = json_pack("{s:s, s:{s:I, s:I, s:I, s:I, s:I}, s:f}", "finish_reason", cli_run_finish(s), "usage",
                     "prompt_tokens", (json_int_t)t->asked->prompt.n, "cached_tokens", (json_int_t)t->cached,
                     "evaluated_tokens", (json_int_t)t->evaluated, "completion_tokens", (json_int_t)t->written,
                     "reasoning_tokens", (json_int_t)t->reasoned, "ms", clock_ms() - t->from_ms);
    code = result != NULL && told != NULL ? pipeline_set_text(result, text_of(a), e) : err_nomem(e);
    if (code == ERR_OK && a->reasoning.n > 0 &&
        json_object_set_new(result, "reasoning", json_bytes((struct str){ a->reasoning.p, a->reasoning.n })) != 0)
        code = err_nomem(e);
    if (code == ERR_OK && json_array_size(t->calls) > 0 && json_object_set(result, "calls", t->calls) != 0)
        code = err_nomem(e);
    if (code == ERR_OK && t->asked->notes != NULL && json_object_set(result, "notes", t->asked->notes) != 0)
        code = err_nomem(e);
    if (code != ERR_OK) {
        json_decref(result);
        json_decref(told);
        return code;
    }
    t->x->n_evaluated += t->evaluated;
    t->x->n_written += t->written;
    keep_thread(t);
    return cli_pipeline_done(t->x, t->step, result, told, e);
}

static enum err_code take_end(struct turn *t, const struct gen_event *ev, struct err *e)
{
    struct cli_run *s = t->x->s;
    json_t *calls;
    const json_t *one;
    size_t i;
    enum err_code code;

    if (ev->end == GEN_FAILED)
        return err_copy(e, &ev->err);
    if (ev->end == GEN_CANCELLED)
        return err_set(e, ERR_CANCEL, "interrupted");
    if (cli_answer_end(&t->answer, ev, e))
        return e->code;
    if (ev->end == GEN_CONTEXT)
        return err_set(e, ERR_LIMIT, "the context is full (--ctx sets it)");
    t->cached = t->rounds++ == 0 ? ev->stats.cached_tokens : t->cached;
    t->evaluated += t->asked->prompt.n - ev->stats.cached_tokens;
    t->written += t->answer.ids.n;
    t->reasoned += t->answer.n_reasoning;
    t->seq = ev->seq;
    if (t->step->is_forked)
        run_mark(s->run, ev->seq);
    if (log_answer(t, ev, e))
        return e->code;
    calls = cli_answer_calls(&t->answer);
    code = calls != NULL && json_array_clear(t->said) == 0 ? add_answer(t, calls, e) : err_nomem(e);
    if (code == ERR_OK)
        code = hold_answer(t, e);
    if (code == ERR_OK && json_array_size(calls) > 0 && t->rounds > pipeline_calls_max(t->x->p))
        code = err_set(e, ERR_LIMIT, "asks for tools after %d rounds", pipeline_calls_max(t->x->p));
    json_array_foreach (calls, i, one)
        if (code == ERR_OK)
            code = run_call(t, one, e);
    if (code == ERR_OK)
        code = json_array_size(calls) > 0 ? submit(t, e) : tell_end(t, ev, e);
    json_decref(calls);
    return code;
}

static enum err_code generate(struct cli_pipeline *x, struct turn *t, int n, struct err *e)
{
    struct cli_run *s = x->s;
    struct gen_event ev;

    while (gen_busy(s->gen)) {
        for (int i = 0; i < n && cli_interrupted(); i++)
            gen_cancel(s->gen, t[i].id);
        cli_progress("step %s: %" PRId64 " tokens", t->step->name, t->answer.ids.n);
        if (gen_step(s->gen, e))
            return e->code;
        while (gen_next(s->gen, &ev)) {
            struct turn *of = ev.user;

            if ((ev.kind == GEN_TOKEN && cli_answer_take(&of->answer, &ev, e)) ||
                (ev.kind == GEN_END && take_end(of, &ev, e)))
                return cli_pipeline_fault(x, of->step, e);
        }
    }
    cli_progress_end();
    return ERR_OK;
}

static void close_turn(struct turn *t)
{
    cli_answer_close(&t->answer);
    ask_close(t->asked);
    text_tokens_free(&t->before);
    json_decref(t->messages);
    json_decref(t->said);
    json_decref(t->calls);
}

enum err_code cli_pipeline_ask(struct cli_pipeline *x, const struct pipeline_step *const *step, int n, struct err *e)
{
    struct turn *t = calloc((size_t)n, sizeof *t);
    enum err_code code = t != NULL ? ERR_OK : err_nomem(e);

    for (int i = 0; i < n && code == ERR_OK; i++) {
        t[i].x = x;
        t[i].step = step[i];
        t[i].alone = !x->beside;
        t[i].from_ms = clock_ms();
        if (x->s->o->jsonl)
            code = cli_json_line(json_pack("{s:s, s:s}", "type", "pipeline_step", "name", step[i]->name), e);
        if (code == ERR_OK && (begin_messages(&t[i], e) || submit(&t[i], e)))
            code = cli_pipeline_fault(x, step[i], e);
    }
    if (code == ERR_OK)
        code = generate(x, t, n, e);
    cli_progress_end();
    if (code != ERR_OK) { /* the answers point to what is freed now */
        gen_close(x->s->gen);
        x->s->gen = NULL;
    }
    for (int i = 0; t != NULL && i < n; i++)
        close_turn(&t[i]);
    free(t);
    return code;
}
