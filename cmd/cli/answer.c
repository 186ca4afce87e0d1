/* SPDX-License-Identifier: Apache-2.0 */
/* answer.c - tokens as they are chosen, to what the user sees.             room: cmd (cli_) */
#include "cli/answer.h"

static enum err_code no_memory(struct err *e)
{
    return err_set(e, ERR_NOMEM, "out of memory");
}

/* A stream for the part that begins; stop strings are looked for in the text only. */
static enum err_code open_part(struct answer *a, bool reasoning, struct err *e)
{
    text_stream_close(a->stream);
    a->stream = NULL;
    a->in_reasoning = reasoning;
    a->begun = false;
    a->newlines = 0;
    return text_stream_open(&a->stream, a->o.text, reasoning ? NULL : a->o.stops,
                            reasoning ? 0 : a->o.n_stops, e);
}

enum err_code cli_answer_open(struct answer *a, const struct answer_opts *o, struct err *e)
{
    *a = (struct answer){ .o = *o };
    if (o->logprobs && o->form == ANSWER_JSON && (a->logprobs = json_array()) == NULL)
        return no_memory(e);
    a->had_reasoning = o->text != NULL && o->thinking;
    return o->text == NULL ? ERR_OK : open_part(a, o->thinking, e);
}

void cli_answer_close(struct answer *a)
{
    text_stream_close(a->stream);
    text_tokens_free(&a->ids);
    cli_buf_free(&a->text);
    cli_buf_free(&a->reasoning);
    cli_buf_free(&a->chunk);
    json_decref(a->logprobs);
    *a = (struct answer){ 0 };
}

/* Newlines around the reasoning and before a chat's text belong to the format, not to what is said:
 * puts the rest of s into a->chunk. */
static enum err_code trim(struct answer *a, struct str s, struct err *e)
{
    size_t tail = 0;

    a->chunk.n = 0;
    if (!a->o.chat)
        return cli_buf_add(&a->chunk, s, e);
    while (!a->begun && s.n > 0 && *s.p == '\n') {
        s.p++;
        s.n--;
    }
    if (s.n == 0)
        return ERR_OK;
    a->begun = true;
    while (a->in_reasoning && tail < s.n && s.p[s.n - 1 - tail] == '\n')
        tail++;
    for (; a->newlines > 0 && tail < s.n; a->newlines--) {
        if (cli_buf_add(&a->chunk, STR("\n"), e))
            return e->code;
    }
    a->newlines += tail;
    return cli_buf_add(&a->chunk, (struct str){ s.p, s.n - tail }, e);
}

static json_t *json_pick(const struct answer *a, int32_t id, float logprob)
{
    json_t *text = a->o.text ? json_bytes(text_piece(a->o.text, id)) : json_string("");

    return json_pack("{s:i, s:o, s:o}", "token_id", (int)id, "text", text, "logprob",
                     cli_json_real((double)logprob));
}

static json_t *json_logprob(const struct answer *a, const struct sample_pick *pick)
{
    json_t *o = json_pick(a, pick->token, pick->logprob), *top = json_array();
    bool    ok = o != NULL && top != NULL;

    for (int32_t i = 0; ok && i < pick->n_top; i++) {
        json_t *item = json_pick(a, pick->top[i].token, pick->top[i].logprob);

        ok = item != NULL && json_array_append_new(top, item) == 0;
    }
    if (ok && cli_json_set(o, "top", json_incref(top))) {
        json_decref(top);
        return o;
    }
    json_decref(top);
    json_decref(o);
    return NULL;
}

static enum err_code show_event(struct answer *a, const struct sample_pick *pick, struct err *e)
{
    struct str s = { a->chunk.p ? a->chunk.p : "", a->chunk.n };
    json_t    *o = json_object();
    bool       ok = o != NULL &&
              cli_json_set(o, "type", json_string(a->in_reasoning ? "reasoning" : "token")) &&
              cli_json_set(o, "token_id", pick ? json_integer(pick->token) : json_null()) &&
              cli_json_set(o, "text", json_bytes(s));

    if (ok && pick != NULL && a->o.logprobs) {
        json_t *full = json_logprob(a, pick);

        ok = full != NULL &&
             cli_json_set(o, "logprob", json_incref(json_object_get(full, "logprob"))) &&
             cli_json_set(o, "top", json_incref(json_object_get(full, "top")));
        json_decref(full);
    }
    if (ok)
        return cli_json_line(o, e);
    json_decref(o);
    return no_memory(e);
}

static enum err_code show_plain(struct answer *a, struct err *e)
{
    FILE *f = stdout;

    if (a->in_reasoning && a->o.reasoning == REASONING_NONE)
        return ERR_OK;
    if (a->in_reasoning && a->o.reasoning == REASONING_STDERR)
        f = stderr;
    if (a->chunk.n > 0) {
        cli_progress_end();
        fwrite(a->chunk.p, 1, a->chunk.n, f);
        a->last = a->chunk.p[a->chunk.n - 1];
    }
    if (f == stderr) {
        fflush(stderr);
        return ERR_OK;
    }
    return cli_flush_stdout(e);
}

/* Shows a->chunk, which pick (NULL: the end) made ready. */
static enum err_code show(struct answer *a, const struct sample_pick *pick, struct err *e)
{
    struct str s = { a->chunk.p, a->chunk.n };

    if (a->o.form == ANSWER_JSONL)
        return pick != NULL || s.n > 0 ? show_event(a, pick, e) : ERR_OK;
    if (a->o.form == ANSWER_PLAIN)
        return show_plain(a, e);
    return cli_buf_add(a->in_reasoning ? &a->reasoning : &a->text, s, e);
}

/* What surrounds the reasoning when it is shown as text. */
static void show_mark(const struct answer *a, const char *on_stdout, const char *on_color)
{
    if (a->o.form != ANSWER_PLAIN)
        return;
    if (a->o.reasoning == REASONING_STDOUT)
        fputs(on_stdout, stdout);
    else if (a->o.reasoning == REASONING_STDERR && cli_stderr_color())
        fputs(on_color, stderr);
}

static enum err_code begin_reasoning(struct answer *a, struct err *e)
{
    a->had_reasoning = true;
    show_mark(a, "<think>\n", "\033[2m");
    return open_part(a, true, e);
}

static void end_reasoning(struct answer *a)
{
    if (a->o.form == ANSWER_PLAIN && a->o.reasoning == REASONING_STDERR && a->begun)
        fputc('\n', stderr);
    show_mark(a, a->begun ? "\n</think>\n\n" : "</think>\n\n", "\033[0m");
}

/* A model without a tokenizer: the ids are the answer. */
static enum err_code take_id(struct answer *a, const struct sample_pick *pick, struct err *e)
{
    char id[16];
    int  n = snprintf(id, sizeof id, "%s%d", a->ids.n > 1 ? " " : "", pick->token);

    a->chunk.n = 0;
    if (a->o.form == ANSWER_PLAIN && cli_buf_add(&a->chunk, (struct str){ id, (size_t)n }, e))
        return e->code;
    return show(a, pick, e);
}

enum err_code cli_answer_take(struct answer *a, const struct sample_pick *pick, bool *stopped,
                              struct err *e)
{
    const struct text_info *info;
    struct str              ready = { "", 0 };

    *stopped = false;
    if (text_tokens_push(&a->ids, pick->token, e))
        return e->code;
    if (a->logprobs && json_array_append_new(a->logprobs, json_logprob(a, pick)))
        return no_memory(e);
    if (a->o.text == NULL)
        return take_id(a, pick, e);
    info = text_info(a->o.text);
    if (a->o.chat && a->ids.n == 1 && !a->in_reasoning && pick->token == info->think_open &&
        begin_reasoning(a, e))
        return e->code;
    if (a->ids.n == 1 && a->o.thinking)
        show_mark(a, "<think>\n", "\033[2m");
    if (a->in_reasoning)
        a->n_reasoning++;
    if (a->in_reasoning && pick->token == info->think_close)
        ready = text_stream_flush(a->stream);
    else if (!(a->in_reasoning && pick->token == info->think_open) &&
             !text_is_control(a->o.text, pick->token) &&
             text_stream_push(a->stream, pick->token, &ready, stopped, e))
        return e->code;
    if (trim(a, ready, e) || show(a, pick, e))
        return e->code;
    if (a->in_reasoning && pick->token == info->think_close) {
        end_reasoning(a);
        return open_part(a, false, e);
    }
    return ERR_OK;
}

enum err_code cli_answer_end(struct answer *a, bool stopped, struct err *e)
{
    if (a->stream != NULL) {
        struct str rest = stopped ? STR("") : text_stream_flush(a->stream);

        if (trim(a, rest, e) || show(a, NULL, e))
            return e->code;
        if (a->in_reasoning && a->ids.n > 0)
            end_reasoning(a);
    }
    if (a->o.form == ANSWER_PLAIN && a->ids.n > 0 && (a->o.chat || a->o.text == NULL) &&
        a->last != '\n' && !a->in_reasoning)
        putchar('\n');
    return cli_flush_stdout(e);
}

json_t *cli_answer_ids(const struct answer *a)
{
    json_t *ids = json_array();

    for (int64_t i = 0; ids != NULL && i < a->ids.n; i++) {
        if (json_array_append_new(ids, json_integer(a->ids.v[i]))) {
            json_decref(ids);
            ids = NULL;
        }
    }
    return ids;
}
