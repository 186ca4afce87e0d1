/* SPDX-License-Identifier: Apache-2.0 */
/* answer.c - events of an answer, to what the user sees.                   room: cmd */
#include "run/answer.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void begin_part(struct cli_answer *a, bool reasoning)
{
    a->in_reasoning = reasoning;
    a->begun = false;
}

enum err_code cli_answer_open(struct cli_answer *a, const struct cli_answer_opts *o, struct err *e)
{
    *a = (struct cli_answer){ .o = *o };
    if ((o->logprobs && o->form == ANSWER_JSON && (a->logprobs = json_array()) == NULL) ||
        (o->uncertainty && o->form == ANSWER_JSON && (a->uncertainty = json_array()) == NULL))
        return err_nomem(e);
    a->had_reasoning = o->asked->thinking;
    begin_part(a, a->had_reasoning);
    return ask_reader(&a->reader, o->asked, e);
}

void cli_answer_close(struct cli_answer *a)
{
    chat_reader_close(a->reader);
    text_tokens_free(&a->ids);
    cli_buf_free(&a->text);
    cli_buf_free(&a->reasoning);
    cli_buf_free(&a->out);
    cli_buf_free(&a->chunk);
    json_decref(a->logprobs);
    json_decref(a->uncertainty);
    *a = (struct cli_answer){ 0 };
}

static json_t *json_pick(const struct cli_answer *a, int32_t id, float logprob)
{
    json_t *text = a->o.text ? json_bytes(text_piece(a->o.text, id)) : json_string("");

    return json_pack("{s:i, s:o, s:o}", "token_id", (int)id, "text", text, "logprob", cli_json_real((double)logprob));
}

static json_t *json_logprob(const struct cli_answer *a, const struct sample_pick *pick)
{
    json_t *o = json_pick(a, pick->token, pick->logprob), *top = json_array();

    for (int32_t i = 0; i < pick->n_top; i++)
        json_push(&top, json_pick(a, pick->top[i].token, pick->top[i].logprob));
    return json_if(cli_json_set(o, "top", top), o);
}

/* The numbers of a token; ev NULL: there is none. */
static bool add_numbers(const struct cli_answer *a, json_t *o, const struct gen_event *ev)
{
    const double none = NAN;

    return !a->o.uncertainty ||
           (cli_json_set(o, "entropy", cli_json_real(ev != NULL ? (double)ev->entropy : none)) &&
            cli_json_set(o, "varentropy", cli_json_real(ev != NULL ? (double)ev->varentropy : none)) &&
            cli_json_set(o, "margin", cli_json_real(ev != NULL ? (double)ev->margin : none)));
}

static json_t *json_numbers(const struct cli_answer *a, const struct gen_event *ev)
{
    json_t *text = a->o.text ? json_bytes(text_piece(a->o.text, ev->pick.token)) : json_string("");
    json_t *o = json_pack("{s:i, s:o}", "token_id", (int)ev->pick.token, "text", text);

    return json_if(o != NULL && add_numbers(a, o, ev), o);
}

static enum err_code show_event(struct cli_answer *a, const struct gen_event *ev, struct err *e)
{
    struct str s = { a->chunk.p ? a->chunk.p : "", a->chunk.n };
    json_t *o = json_object();
    bool ok = o != NULL && cli_json_set(o, "type", json_string(a->in_reasoning ? "reasoning" : "token")) &&
              cli_json_set(o, "token_id", ev ? json_integer(ev->pick.token) : json_null()) &&
              cli_json_set(o, "text", json_bytes(s));

    if (ok && ev != NULL && a->o.logprobs) {
        json_t *full = json_logprob(a, &ev->pick);

        ok = full != NULL && cli_json_set(o, "logprob", json_incref(json_object_get(full, "logprob"))) &&
             cli_json_set(o, "top", json_incref(json_object_get(full, "top")));
        json_decref(full);
    }
    return cli_json_line(json_if(ok && add_numbers(a, o, ev), o), e);
}

/* Writes what may go out: all of it, or whole lines. Programs that write into one pipe side by side do not
 * break one another's lines so, and an answer of at most PIPE_BUF bytes stays in one piece. */
static enum err_code write_out(struct cli_answer *a, bool all, struct err *e)
{
    size_t n = a->out.n;

    if (!all && n < PIPE_BUF)
        return ERR_OK;
    while (!all && n > 0 && a->out.p[n - 1] != '\n')
        n--;
    if (n > 0) {
        fwrite(a->out.p, 1, n, stdout);
        memmove(a->out.p, a->out.p + n, a->out.n - n);
        a->out.n -= n;
    }
    return cli_flush_stdout(e);
}

static enum err_code put_text(struct cli_answer *a, struct str s, struct err *e)
{
    if (s.n > 0)
        a->last = s.p[s.n - 1];
    return cli_buf_add(&a->out, s, e) ? e->code : write_out(a, a->o.stream, e);
}

static enum err_code show_plain(struct cli_answer *a, struct err *e)
{
    if (a->chunk.n == 0 || (a->in_reasoning && a->o.reasoning == REASONING_NONE))
        return ERR_OK;
    if ((a->in_reasoning && a->o.reasoning == REASONING_STDERR) || (a->o.stream && isatty(STDOUT_FILENO)))
        cli_progress_end();
    if (!a->in_reasoning || a->o.reasoning == REASONING_STDOUT)
        return put_text(a, (struct str){ a->chunk.p, a->chunk.n }, e);
    fwrite(a->chunk.p, 1, a->chunk.n, stderr);
    fflush(stderr);
    return ERR_OK;
}

/* Shows a->chunk, which the token of ev (NULL: the end) made ready. */
static enum err_code show_chunk(struct cli_answer *a, const struct gen_event *ev, struct err *e)
{
    struct str s = { a->chunk.p, a->chunk.n };

    if ((a->o.keeps || a->o.form == ANSWER_JSON) && cli_buf_add(a->in_reasoning ? &a->reasoning : &a->text, s, e))
        return e->code;
    if (a->o.form == ANSWER_JSONL)
        return ev != NULL || s.n > 0 ? show_event(a, ev, e) : ERR_OK;
    return a->o.form == ANSWER_PLAIN ? show_plain(a, e) : ERR_OK;
}

/* What surrounds the reasoning when it is shown as text. */
static enum err_code show_mark(struct cli_answer *a, const char *on_stdout, const char *on_color, struct err *e)
{
    if (a->o.form != ANSWER_PLAIN)
        return ERR_OK;
    if (a->o.reasoning == REASONING_STDOUT)
        return put_text(a, str_of(on_stdout), e);
    if (a->o.reasoning == REASONING_STDERR && cli_stderr_color())
        fputs(on_color, stderr);
    fflush(stderr);
    return ERR_OK;
}

static enum err_code begin_reasoning(struct cli_answer *a, struct err *e)
{
    a->had_reasoning = true;
    begin_part(a, true);
    return show_mark(a, "<think>\n", "\033[2m", e);
}

static enum err_code end_reasoning(struct cli_answer *a, struct err *e)
{
    if (a->o.form == ANSWER_PLAIN && a->o.reasoning == REASONING_STDERR && a->begun)
        fputs(isatty(STDERR_FILENO) && !cli_stderr_color() ? "\n\n" : "\n", stderr);
    return show_mark(a, a->begun ? "\n</think>\n\n" : "</think>\n\n", "\033[0m", e);
}

/* A model without a tokenizer: the ids are the answer. */
static enum err_code take_id(struct cli_answer *a, const struct gen_event *ev, struct err *e)
{
    char id[16];
    int n = snprintf(id, sizeof id, "%s%d", a->ids.n > 1 ? " " : "", ev->pick.token);

    a->chunk.n = 0;
    if (a->o.form == ANSWER_PLAIN && cli_buf_add(&a->chunk, (struct str){ id, (size_t)n }, e))
        return e->code;
    return show_chunk(a, ev, e);
}

static json_t *json_call(const struct chat_call *c)
{
    return json_pack("{s:o, s:s, s:{s:o, s:o}}", "id", json_bytes(c->id), "type", "function", "function", "name",
                     json_bytes(c->name), "arguments", json_bytes(c->arguments));
}

/* A call is a line of its own, in the form of OpenAI's interface. */
static enum err_code show_call(struct cli_answer *a, const struct chat_piece *p, const struct gen_event *ev,
                               struct err *e)
{
    json_t *call, *o;
    char *line;
    enum err_code code;

    if (a->o.form == ANSWER_JSON)
        return ERR_OK; /* the end has them all */
    call = json_call(&(struct chat_call){ .id = p->id, .name = p->name, .arguments = p->text });
    if (a->o.form == ANSWER_JSONL) {
        o = json_pack("{s:s, s:o, s:o}", "type", "tool_call", "token_id",
                      ev ? json_integer(ev->pick.token) : json_null(), "tool_call", call);
        return cli_json_line(json_if(o != NULL && add_numbers(a, o, ev), o), e);
    }
    line = call != NULL ? json_dump(call, JSON_COMPACT) : NULL;
    json_decref(call);
    if (line == NULL)
        return err_nomem(e);
    code = a->last != '\0' && a->last != '\n' ? put_text(a, STR("\n"), e) : ERR_OK;
    if (code == ERR_OK)
        code = put_text(a, str_of(line), e) ? e->code : put_text(a, STR("\n"), e);
    free(line);
    return code;
}

/* What grows of a call is a line of its own where each token is one. */
static enum err_code show_part(const struct chat_piece *p, struct err *e)
{
    json_t *o = p->step == CHAT_CALL_BEGIN ? json_pack("{s:s, s:i, s:o, s:o}", "type", "tool_call_part", "call",
                                                       p->call, "id", json_bytes(p->id), "name", json_bytes(p->name))
                                           : json_pack("{s:s, s:i, s:o}", "type", "tool_call_part", "call", p->call,
                                                       "arguments", json_bytes(p->text));

    return o != NULL ? cli_json_line(o, e) : err_nomem(e);
}

/* Whether a piece shows the token that it came with. */
static bool shows_token(const struct chat_piece *p)
{
    return p->part != CHAT_TOOL || p->step == CHAT_CALL_END;
}

/* Reasoning begins or ends. */
static enum err_code turn_to(struct cli_answer *a, bool reasoning, struct err *e)
{
    if (reasoning == a->in_reasoning)
        return ERR_OK;
    if (reasoning)
        return begin_reasoning(a, e);
    if (end_reasoning(a, e))
        return e->code;
    begin_part(a, false);
    return ERR_OK;
}

static enum err_code show_piece(struct cli_answer *a, const struct chat_piece *p, const struct gen_event *ev,
                                struct err *e)
{
    if (turn_to(a, p->part == CHAT_REASONING, e))
        return e->code;
    if (p->part == CHAT_TOOL && p->step == CHAT_CALL_END)
        return show_call(a, p, ev, e);
    if (p->part == CHAT_TOOL)
        return a->o.form == ANSWER_JSONL && p->step != CHAT_CALL_FAILED ? show_part(p, e) : ERR_OK;
    a->begun = a->begun || p->text.n > 0;
    a->chunk.n = 0;
    return cli_buf_add(&a->chunk, p->text, e) ? e->code : show_chunk(a, ev, e);
}

/* Text of a chat, with the model's marks in it; ev NULL: the end. */
static enum err_code read_chat(struct cli_answer *a, struct str text, const struct gen_event *ev, struct err *e)
{
    const struct chat_piece *v;
    bool shown = false;
    int n;

    if (chat_read(a->reader, text, ev == NULL, &v, &n, e))
        return e->code;
    for (int i = 0; i < n; i++) {
        if (show_piece(a, &v[i], shown ? NULL : ev, e))
            return e->code;
        shown = shown || shows_token(&v[i]);
    }
    if (!shown && ev != NULL) {
        a->chunk.n = 0;
        if (show_chunk(a, ev, e))
            return e->code;
    }
    if (ev == NULL || !a->in_reasoning)
        return ERR_OK;
    return turn_to(a, chat_reader_where(a->reader) == CHAT_REASONING, e);
}

enum err_code cli_answer_take(struct cli_answer *a, const struct gen_event *ev, struct err *e)
{
    if (text_tokens_push(&a->ids, ev->pick.token, e))
        return e->code;
    ask_count(&a->figures, ev);
    if ((a->logprobs && json_array_append_new(a->logprobs, json_logprob(a, &ev->pick))) ||
        (a->uncertainty && json_array_append_new(a->uncertainty, json_numbers(a, ev))))
        return err_nomem(e);
    if (a->o.only_ids)
        return take_id(a, ev, e);
    if (a->ids.n == 1 && a->in_reasoning && show_mark(a, "<think>\n", "\033[2m", e))
        return e->code;
    a->n_reasoning += ev->reasoning;
    if (a->reader != NULL)
        return read_chat(a, ev->text, ev, e);
    a->chunk.n = 0;
    return cli_buf_add(&a->chunk, ev->text, e) ? e->code : show_chunk(a, ev, e);
}

enum err_code cli_answer_end(struct cli_answer *a, const struct gen_event *ev, struct err *e)
{
    a->chunk.n = 0;
    if (a->reader != NULL ? read_chat(a, ev->text, NULL, e)
                          : cli_buf_add(&a->chunk, ev->text, e) || show_chunk(a, NULL, e))
        return e->code;
    if (a->in_reasoning && a->ids.n > 0 && end_reasoning(a, e))
        return e->code;
    if (a->o.form == ANSWER_PLAIN && a->ids.n > 0 && (a->reader != NULL || a->o.only_ids) && a->last != '\n' &&
        !a->in_reasoning && put_text(a, STR("\n"), e))
        return e->code;
    return write_out(a, true, e);
}

json_t *cli_answer_calls(const struct cli_answer *a)
{
    json_t *calls = json_array();
    const int n = a->reader != NULL ? chat_reader_calls(a->reader) : 0;

    for (int i = 0; i < n; i++) {
        const struct chat_call call = chat_reader_call(a->reader, i);
        json_push(&calls, json_call(&call));
    }
    return calls;
}

json_t *cli_answer_ids(const struct cli_answer *a)
{
    json_t *ids = json_array();

    for (int64_t i = 0; i < a->ids.n; i++)
        json_push(&ids, json_integer(a->ids.v[i]));
    return ids;
}
