/* SPDX-License-Identifier: Apache-2.0 */
/* record.c - answers for the log, and what people say of them.               room: serve */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/io.h"
#include "journal/journal.h"
#include "serve/internal.h"

/* What the log keeps of an answer, also where it went out in parts. */
struct serve_record {
    struct serve_buf text, reasoning;
    json_t *calls; /* an array */
    struct ask_figures figures;
    double first_ms; /* when its first token was there; 0: not yet */
};

/* Whose key it is the log does not know, but which one it is; a key is no name. */
bool serve_note_asker(const struct serve *s, struct serve_job *j, const struct serve_client *client)
{
    char sum[65];

    if (s->o.journal == NULL)
        return true;
    j->asker = json_object();
    if (client->key.n == 0)
        return client->name.n == 0 || json_object_set_new(j->asker, "client", json_bytes(client->name)) == 0;
    io_sha256_hex(sum, client->key.p, client->key.n);
    return json_object_set_new(j->asker, "key", json_string(sum)) == 0;
}

enum err_code serve_record_open(const struct serve *s, struct serve_choice *c, struct err *e)
{
    const struct serve_job *j = c->job;

    if (s->o.journal == NULL || j->w.unstored || j->method == SERVE_EMBEDDING || j->w.ask.tokens_max == 0)
        return ERR_OK;
    c->record = calloc(1, sizeof *c->record);
    if (c->record == NULL)
        return err_nomem(e);
    return ERR_OK;
}

void serve_record_close(struct serve_record *r)
{
    if (r == NULL)
        return;
    free(r->text.p);
    free(r->reasoning.p);
    json_decref(r->calls);
    free(r);
}

void serve_record_token(struct serve_choice *c, const struct gen_event *ev)
{
    if (c->record == NULL)
        return;
    if (c->record->first_ms <= 0)
        c->record->first_ms = clock_ms();
    ask_count(&c->record->figures, ev);
}

enum err_code serve_record_text(struct serve_choice *c, struct str text, struct err *e)
{
    return c->record == NULL || serve_add(&c->record->text, text) ? ERR_OK : err_nomem(e);
}

enum err_code serve_record_piece(struct serve_choice *c, const struct chat_piece *p, struct err *e)
{
    struct serve_record *r = c->record;

    if (r == NULL)
        return ERR_OK;
    if (p->part != CHAT_TOOL)
        return serve_add(p->part == CHAT_TEXT ? &r->text : &r->reasoning, p->text) ? ERR_OK : err_nomem(e);
    if (p->step != CHAT_CALL_END)
        return ERR_OK;
    return serve_keep_call(&r->calls, p) ? ERR_OK : err_nomem(e);
}

/* What stood beside the model: adapters with the scales of the request, tables if it took them. */
static bool set_facts(json_t *o, const struct serve_job *j)
{
    const json_t *facts = j->attached->facts;
    json_t *adapters = json_array(), *one;
    bool ok = facts == NULL || json_object_update(o, (json_t *)(uintptr_t)facts) == 0;
    size_t i;

    json_array_foreach (json_object_get(facts, "adapters"), i, one) {
        json_t *with = json_shallow(one);

        if (j->w.adapters[i].scale == 0) {
            json_decref(with);
            continue;
        }
        json_push(&adapters,
                  json_if(json_object_set_new(with, "scale", json_real((double)j->w.adapters[i].scale)) == 0, with));
    }
    ok = json_object_set_new(o, "adapters", adapters) == 0 && ok;
    if (j->w.engram == 0)
        ok = json_object_set_new(o, "tables", json_array()) == 0 && ok;
    else if (j->w.engram > 0)
        ok = json_object_set_new(o, "engram", json_real((double)j->w.engram)) == 0 && ok;
    if (j->w.no_context && j->attached->context != NULL)
        ok = json_object_set_new(o, "context", json_false()) == 0 && ok;
    return ok && (j->w.context_table.p == NULL || json_object_set_new(o, j->w.has_context ? "context" : "context_table",
                                                                      json_bytes(j->w.context_table)) == 0);
}

static bool set_times(json_t *o, const struct serve_choice *c)
{
    const double now = clock_ms(), first = c->record->first_ms > 0 ? c->record->first_ms : now;

    return json_object_set_new(
               o, "timings",
               json_pack("{s:f, s:f}", "first_token_ms", first - c->job->from_ms, "decode_ms", now - first)) == 0;
}

/* ---- what an answer goes on from ---- */

enum { TURNS = 1024 /* that are remembered */, SUM_DIGITS = 32 };

/* Conversations that ended with an answer of the log, by sums of their messages; the oldest one gives way. */
struct serve_turns {
    struct {
        char sum[SUM_DIGITS + 1], id[SERVE_ID_BYTES];
    } v[TURNS];
    size_t n;
};

static bool add_part(struct serve_buf *b, struct str part)
{
    char size[24];

    (void)snprintf(size, sizeof size, "%zu:", part.n);
    return serve_add(b, str_of(size)) && serve_add(b, part);
}

/* Clients take blanks from the ends. */
static struct str trim(struct str t)
{
    while (t.n > 0 && strchr(" \t\r\n", t.p[t.n - 1]) != NULL)
        t.n--;
    while (t.n > 0 && strchr(" \t\r\n", *t.p) != NULL)
        t.p++, t.n--;
    return t;
}

/* Of a message what a client sends back as it came: who, the text, and the ids of calls. */
static bool add_message(struct serve_buf *b, struct str role, const json_t *content, const json_t *calls)
{
    struct serve_buf text = { 0 };
    json_t *part;
    size_t i;
    bool ok = true;

    if (json_is_string(content))
        ok = serve_add(&text, json_text(content));
    json_array_foreach (content, i, part)
        ok = ok && serve_add(&text, json_text(json_object_get(part, "text")));
    ok = ok && add_part(b, role) && add_part(b, trim((struct str){ text.p, text.n }));
    json_array_foreach (calls, i, part)
        ok = ok && add_part(b, json_text(json_object_get(part, "id")));
    free(text.p);
    return ok && serve_add(b, STR(";"));
}

/* The sum of who asks and the first n messages, with an answer behind them if c is not NULL; false: memory was out. */
static bool sum_turns(char sum[SUM_DIGITS + 1], const struct serve_job *j, size_t n, const struct serve_choice *c)
{
    struct serve_buf b = { 0 };
    char *who = json_line(j->asker), whole[65];
    bool ok = who != NULL && add_part(&b, str_of(who));

    for (size_t i = 0; ok && i < n; i++) {
        const json_t *m = json_array_get(j->w.ask.messages, i);

        ok = add_message(&b, json_text(json_object_get(m, "role")), json_object_get(m, "content"),
                         json_object_get(m, "tool_calls"));
    }
    if (ok && c != NULL) {
        json_t *text = serve_text(&c->record->text);

        ok = text != NULL && add_message(&b, STR("assistant"), text, c->record->calls);
        json_decref(text);
    }
    if (ok) {
        io_sha256_hex(whole, b.p, b.n);
        memcpy(sum, whole, SUM_DIGITS);
        sum[SUM_DIGITS] = '\0';
    }
    free(who);
    free(b.p);
    return ok;
}

/* The answer that the request's messages have last before others, if it is in the log. */
static const char *parent_of(const struct serve *s, const struct serve_job *j)
{
    size_t n = json_array_size(j->w.ask.messages);
    char sum[SUM_DIGITS + 1];

    for (n = n > 0 ? n - 1 : 0; n > 0; n--)
        if (str_is(json_text(json_object_get(json_array_get(j->w.ask.messages, n - 1), "role")), "assistant"))
            break;
    if (n == 0 || s->turns == NULL || !sum_turns(sum, j, n, NULL))
        return NULL;
    for (size_t i = s->turns->n, left = i < TURNS ? i : TURNS; left > 0; left--)
        if (strcmp(s->turns->v[--i % TURNS].sum, sum) == 0)
            return s->turns->v[i % TURNS].id;
    return NULL;
}

static void remember_turn(struct serve *s, const struct serve_choice *c, const char *id)
{
    char sum[SUM_DIGITS + 1];

    if (c->job->w.ask.messages == NULL || (s->turns == NULL && (s->turns = calloc(1, sizeof *s->turns)) == NULL) ||
        !sum_turns(sum, c->job, json_array_size(c->job->w.ask.messages), c))
        return;
    memcpy(s->turns->v[s->turns->n % TURNS].sum, sum, sizeof sum);
    (void)snprintf(s->turns->v[s->turns->n++ % TURNS].id, SERVE_ID_BYTES, "%s", id);
}

void serve_record_end(struct serve *s, struct serve_choice *c)
{
    const struct serve_job *j = c->job;
    const struct serve_record *r = c->record;
    const json_t *prompt = j->method == SERVE_CHAT ? NULL : serve_prompt_at(j->w.prompt, c->index / j->w.n);
    const char *finish = serve_finish(j, c), *parent;
    char id[SERVE_ID_BYTES];
    struct ask a = j->w.ask;
    json_t *o, *whole = NULL;
    bool ok;

    if (r == NULL || !c->begun)
        return;
    if (json_is_string(prompt)) {
        a.text = json_text(prompt);
    } else if (prompt != NULL) {
        a.token = c->request->prompt.v;
        a.n_token = c->request->prompt.n;
    }
    if (r->calls != NULL && strcmp(finish, "stop") == 0) /* also where they are items of a response */
        finish = "tool_calls";
    serve_reply_id(s, j, id);
    o = json_pack("{s:i}", "index", c->index);
    whole = ask_report(&a, c->request, &r->figures, &c->stats);
    ok = o != NULL && whole != NULL && json_object_update(o, j->asker) == 0 && set_facts(o, j) &&
         json_object_update(o, whole) == 0 && json_object_set_new(o, "text", serve_text(&r->text)) == 0 &&
         (r->reasoning.n == 0 || json_object_set_new(o, "reasoning", serve_text(&r->reasoning)) == 0) &&
         (r->calls == NULL || json_object_set(o, "tool_calls", r->calls) == 0) &&
         json_object_set_new(o, "finish_reason", json_string(finish)) == 0 && set_times(o, c);
    json_decref(whole);
    parent = parent_of(s, j);
    ok = ok && (parent == NULL || json_object_set_new(o, "parent", json_string(parent)) == 0);
    remember_turn(s, c, id);
    journal_answer(s->o.journal, id, json_if(ok, o));
}

/* ---- ratings ---- */

json_t *serve_rate(struct serve *s, const json_t *body, const struct serve_client *who, struct serve_fault *f)
{
    const json_t *id = json_object_get(body, "id"), *answer = json_object_get(body, "answer");
    char key[65] = "";
    struct err e = { 0 };

    if (s->o.journal == NULL) {
        serve_fault(f, 404, "", "the server keeps no answers to rate (--log)");
        return NULL;
    }
    if (who->key.n > 0)
        io_sha256_hex(key, who->key.p, who->key.n);
    const struct journal_rating r = {
        .id = json_text(id),
        .index = json_integer_value(json_object_get(body, "index")),
        .good = strcmp(json_string_value(json_object_get(body, "rating")), "good") == 0,
        .better = json_text(answer),
        .client = who->key.n == 0 ? who->name : STR(""),
        .key = key,
    };

    if (journal_rate(s->o.journal, &r, &e) == ERR_OK)
        return json_pack("{s:O, s:O, s:s}", "id", id, "rating", json_object_get(body, "rating"), "object", "feedback");
    serve_fault(f,
                e.code == ERR_ARG           ? 404
                : e.code == ERR_UNSUPPORTED ? 403
                : e.code == ERR_LIMIT       ? 400
                                            : 507,
                e.where, "%s", e.msg);
    return NULL;
}
