/* SPDX-License-Identifier: Apache-2.0 */
/* serve.c - jobs wait, become requests of the engine, and their events become replies.       room: serve */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ask/wire.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/memory.h"
#include "journal/journal.h"
#include "serve/internal.h"

/* ---- opening ---- */

static const struct serve_attachments nothing;

/* What is attached later is another system. */
static void name_system(struct serve *s)
{
    (void)snprintf(s->fingerprint, sizeof s->fingerprint, "fp_%016llx",
                   (unsigned long long)(s->n_exchanges == 0
                                            ? s->o.fingerprint
                                            : io_hash(s->o.fingerprint, &s->n_exchanges, sizeof s->n_exchanges)));
}

enum err_code serve_open(struct serve **out, const struct serve_opts *o, struct err *e)
{
    struct serve *s = calloc(1, sizeof *s);

    if (s == NULL)
        return err_nomem(e);
    s->o = *o;
    s->attached = o->attached != NULL ? o->attached : &nothing;
    s->n_vocab = text_info(o->text)->n_tokens;
    s->process = journal_process();
    s->model = json_bytes(str_of(o->model));
    s->idle = json_object();
    name_system(s);
    for (int i = 0; i < 2; i++)
        s->no_memory[i] = serve_error(serve_row(i == 0 ? SERVE_CHAT : SERVE_MESSAGE), 503, NULL, "out of memory");
    if (s->model == NULL || s->idle == NULL || s->no_memory[0] == NULL || s->no_memory[1] == NULL ||
        text_memo_open(&s->memo, e)) {
        serve_close(s);
        return err_nomem(e);
    }
    *out = s;
    return ERR_OK;
}

void serve_choice_free(struct serve_choice *c)
{
    chat_reader_close(c->reader);
    free(c->text.p);
    free(c->reasoning.p);
    json_decref(c->calls);
    json_decref(c->logprobs);
    json_decref(c->uncertainty);
    json_decref(c->embedding);
    json_decref(c->items);
    serve_record_close(c->record);
}

static void free_job(struct serve_job *j)
{
    if (j->made != NULL)
        j->attached->drop_table(j->attached->tables_of, j->made);
    serve_best_close(j);
    for (int i = 0; j->choice != NULL && i < j->n_choices; i++)
        serve_choice_free(&j->choice[i]);
    free(j->choice);
    for (int i = j->n_prompts; i-- > 0 && j->request != NULL;)
        ask_close(j->request[i]);
    free(j->request);
    ask_sent_close(j->w.sent);
    serve_question_free(&j->w);
    json_decref(j->body);
    json_decref(j->asked);
    json_decref(j->asker);
    json_decref(j->search);
    free(j);
}

void serve_close(struct serve *s)
{
    if (s == NULL)
        return;
    while (s->jobs != NULL) {
        struct serve_job *j = s->jobs;

        s->jobs = j->next;
        free_job(j);
    }
    for (size_t i = s->told; i < s->n_replies; i++)
        json_decref(s->reply[i].body);
    free(s->reply);
    json_decref(s->model);
    json_decref(s->idle);
    for (int i = 0; i < 2; i++)
        json_decref(s->no_memory[i]);
    text_memo_close(s->memo);
    free(s->turns);
    free(s);
}

void serve_exchange(struct serve *s, const struct serve_attachments *b)
{
    s->attached = b;
    s->n_exchanges++;
    name_system(s);
}

bool serve_uses(const struct serve *s, const struct serve_attachments *b)
{
    bool uses = s->attached == b;

    for (const struct serve_job *j = s->jobs; j != NULL && !uses; j = j->next)
        uses = j->attached == b;
    return uses;
}

/* ---- replies ---- */

/* Makes room for n replies beside the last ones of all jobs. */
static enum err_code make_room(struct serve *s, size_t n, struct err *e)
{
    if (s->told == s->n_replies)
        s->told = s->n_replies = 0;
    n += s->n_replies + (size_t)s->n_open;
    return memory_room(&s->reply, &s->replies_cap, n, sizeof *s->reply, e);
}

enum err_code serve_push(struct serve *s, struct serve_job *j, enum serve_kind kind, json_t *body, int status,
                         bool last, struct err *e)
{
    /* Memory that was out for any part of this reply, or for what was kept for it, is out for the reply. */
    if (kind != SERVE_ERROR && (json_ran_out() || (body == NULL && kind != SERVE_END && kind != SERVE_BEGIN))) {
        json_decref(body);
        return err_nomem(e);
    }
    if (j->dropped || j->over) {
        json_decref(body);
        return ERR_OK;
    }
    if (!last && make_room(s, 1, e)) {
        json_decref(body);
        return e->code;
    }
    s->reply[s->n_replies++] = (struct serve_reply){ kind, j->user, j->id, body, status, last };
    j->over = last;
    s->n_open -= last;
    return ERR_OK;
}

bool serve_next(struct serve *s, struct serve_reply *r)
{
    if (s->told == s->n_replies)
        return false;
    *r = s->reply[s->told++];
    return true;
}

static void stop_choices(struct serve *s, struct serve_job *j)
{
    for (int i = 0; i < j->n_choices; i++) /* one that was not asked has none */
        if (j->choice[i].id != 0)
            gen_cancel(s->o.gen, j->choice[i].id);
    serve_best_stop(s, j);
}

enum err_code serve_refuse_job(struct serve *s, struct serve_job *j, struct serve_fault *f, struct err *e)
{
    if (j->asked != NULL && j->body != NULL) /* the chat that was made of it is at fault */
        serve_move_fault(j->row->dialect, j->asked, f);
    serve_move_functions_fault(&j->w, f);
    s->m.errors++;
    stop_choices(s, j);
    json_t *body = serve_fault_body(j->row, f);

    return body != NULL ? serve_push(s, j, SERVE_ERROR, body, f->status, true, e)
                        : serve_push(s, j, SERVE_ERROR, json_incref(s->no_memory[j->row->anthropic]), 503, true, e);
}

static int status_of(enum err_code code)
{
    return code == ERR_NOMEM ? 503 : code == ERR_IO ? 507 : code == ERR_ARG ? 400 : 500;
}

/* What went wrong with one request ends that one: memory or a disk is full, perhaps because it asked for much. */
static enum err_code give_up(struct serve *s, struct serve_job *j, struct err *e)
{
    const struct err why = *e;
    struct serve_fault f = { 0 };

    if (why.code != ERR_NOMEM && why.code != ERR_IO)
        return why.code;
    serve_fault(&f, status_of(why.code), "", "%s", why.msg);
    return serve_refuse_job(s, j, &f, e);
}

/* ---- asking ---- */

/* Requests use what the same key and the same prompt_cache_key have left, so that nobody sees what others ask. */
static uint64_t owner_of(struct str key, const json_t *body)
{
    static const char *const names[] = { "prompt_cache_key", "cache_salt" };
    uint64_t h = io_hash(1, key.p, key.n);
    bool any = key.n > 0;

    for (size_t i = 0; i < 2; i++) {
        const json_t *own = json_object_get(body, names[i]);

        if (json_is_string(own))
            h = io_hash(h + i, json_string_value(own), json_string_length(own));
        any = any || json_is_string(own);
    }
    return any ? h : 0;
}

/* Tells the names of members without effect that were not told yet. */
static void tell_idle(struct serve *s, const struct serve_fault *f)
{
    for (int i = 0; i < IDLE_MAX && f->idle[i][0] != '\0' && s->o.note_idle != NULL; i++) {
        if (json_object_get(s->idle, f->idle[i]) != NULL)
            continue;
        (void)json_object_set_new(s->idle, f->idle[i], json_true());
        s->o.note_idle(f->idle[i]);
    }
}

enum err_code serve_ask(struct serve *s, enum serve_method method, json_t *body, const struct serve_client *client,
                        void *user, int64_t *id, struct err *e)
{
    struct serve_job *j = calloc(1, sizeof *j), **link = &s->jobs;
    struct serve_fault f = { 0 };

    (void)json_ran_out(); /* what others lost is not this one's */
    if (j == NULL || make_room(s, 1, e)) {
        free(j);
        return err_nomem(e);
    }
    s->n_open++;
    j->method = method;
    j->row = serve_row(method);
    j->user = user;
    j->id = ++s->next_id;
    j->created_s = (int64_t)time(NULL);
    j->client = io_hash(0, client->name.p, client->name.n);
    j->later = client->later;
    j->owner = owner_of(client->key, body);
    j->from_ms = clock_ms();
    j->body = json_incref(body);
    while (*link != NULL)
        link = &(*link)->next;
    *link = j;
    *id = j->id;
    s->m.requests[method]++;
    if (j->row->answer != NULL) {
        json_t *reply =
            serve_check_members(j->body, method, s->o.lenient, &f) ? j->row->answer(s, j->body, client, &f) : NULL;

        j->started = true;
        if (f.status != 0)
            return serve_refuse_job(s, j, &f, e);
        return serve_push(s, j, SERVE_BODY, reply, 200, true, e) ? give_up(s, j, e) : ERR_OK;
    }
    j->n_answers = serve_answers(method, body);
    if (!serve_note_asker(s, j, client))
        serve_nomem(&f);
    if (f.status == 0 && j->row->dialect != NULL) {
        j->asked = j->body;
        j->body = serve_make_chat(method, j->asked, true, s->o.lenient, &f);
        j->method = SERVE_CHAT;
    }
    const bool read = f.status == 0 &&
                      (method == SERVE_ASK ? serve_read_asked : serve_read_body)(&j->w, s, method, j->body, &f) &&
                      (!json_ran_out() || serve_nomem(&f));

    tell_idle(s, &f);
    if (!read) {
        j->started = true;
        return serve_refuse_job(s, j, &f, e);
    }
    return ERR_OK;
}

/* Those that nobody has taken. */
static void forget_replies(struct serve *s, int64_t id)
{
    size_t n = s->told;

    for (size_t i = s->told; i < s->n_replies; i++) {
        if (s->reply[i].id == id)
            json_decref(s->reply[i].body);
        else
            s->reply[n++] = s->reply[i];
    }
    s->n_replies = n;
}

void serve_cancel(struct serve *s, int64_t id)
{
    for (struct serve_job *j = s->jobs; j != NULL; j = j->next)
        if (j->id == id && !j->dropped) {
            j->dropped = true;
            s->n_open -= !j->over;
            s->m.cancelled++;
            stop_choices(s, j);
            forget_replies(s, id);
        }
}

int64_t serve_waiting(const struct serve *s)
{
    int64_t n = 0;

    for (const struct serve_job *j = s->jobs; j != NULL; j = j->next)
        if (serve_row(j->method)->answer == NULL && !j->over && !j->dropped && !j->later)
            n += j->n_answers - j->n_asked + j->n_queued;
    return n;
}

bool serve_busy(const struct serve *s)
{
    return s->told < s->n_replies || s->jobs != NULL || gen_busy(s->o.gen);
}

/* ---- turns ---- */

enum { N_SERVED = sizeof((struct serve *)0)->served / sizeof((struct serve *)0)->served[0] };

static int64_t last_turn(const struct serve *s, uint64_t client)
{
    for (int i = 0; i < N_SERVED; i++)
        if (s->served[i].turn > 0 && s->served[i].client == client)
            return s->served[i].turn;
    return 0;
}

static void note_turn(struct serve *s, uint64_t client)
{
    int at = 0;

    for (int i = 0; i < N_SERVED; i++) {
        if (s->served[i].turn > 0 && s->served[i].client == client) {
            at = i;
            break;
        }
        if (s->served[i].turn < s->served[at].turn)
            at = i;
    }
    s->served[at].client = client;
    s->served[at].turn = ++s->turn;
}

/* Whether its table has to wait until those of others are given back. Who comes later does not overtake it. */
static bool waits_for_memory(const struct serve *s, const struct serve_job *j, bool *full)
{
    const struct serve_attachments *b = s->attached;

    if (j->w.context_table.p != NULL && b->table_room != NULL)
        *full = *full || !b->table_room(b->tables_of, j->w.context_table);
    return j->w.context_table.p != NULL && *full;
}

enum { QUEUED_MAX = 4 /* choices that wait in the engine */ };

/* Clients with choices that wait in the engine, if there is no idle sequence for these: a client has one such choice at
 * most, so that others need not wait for more. */
static int find_queued(const struct serve *s, uint64_t client[QUEUED_MAX])
{
    int n = 0;

    for (const struct serve_job *j = s->jobs; j != NULL && n < QUEUED_MAX && gen_idle(s->o.gen) < 0; j = j->next)
        if (j->n_queued > 0)
            client[n++] = j->client;
    return n;
}

/* Whether it has a choice that can be given to the engine. */
static bool has_choice(const struct serve *s, const struct serve_job *j, const uint64_t *queued, int n_queued,
                       bool *full)
{
    for (int i = 0; i < n_queued; i++)
        if (queued[i] == j->client)
            return false;
    return !j->dropped && !j->over && (j->started ? j->n_asked < j->n_choices : !waits_for_memory(s, j, full));
}

/* Whether a is before b: what need not wait, a higher priority, a client that was served longer ago. */
static bool comes_first(const struct serve *s, const struct serve_job *a, const struct serve_job *b)
{
    if (a->later != b->later)
        return b->later;
    if (a->w.ask.priority != b->w.ask.priority)
        return a->w.ask.priority > b->w.ask.priority;
    return last_turn(s, a->client) < last_turn(s, b->client);
}

/* Of one client, the first. */
static struct serve_job *next_job(struct serve *s)
{
    struct serve_job *best = NULL;
    uint64_t queued[QUEUED_MAX];
    const int n_queued = find_queued(s, queued);
    bool full = false;

    for (struct serve_job *j = s->jobs; j != NULL; j = j->next)
        if (has_choice(s, j, queued, n_queued, &full) && (best == NULL || comes_first(s, j, best)))
            best = j;
    return best;
}

/* The engine has a few waiting requests to choose from, no more: so clients take turns. Those that have given up their
 * place do not count for others. A keeper prepares the place that is taken next, so with one there is a place and
 * nobody else waits for it. */
static bool takes_more(const struct serve *s, const struct serve_job *next)
{
    int64_t n = next->later ? gen_waiting(s->o.gen) : 0;

    for (const struct serve_job *j = s->jobs; j != NULL && !next->later; j = j->next)
        n += j->later ? 0 : j->n_queued;
    if (s->o.keeper == NULL)
        return n < QUEUED_MAX;
    return n == 0 && (gen_idle(s->o.gen) >= 0 || (!next->later && gen_yields(s->o.gen)));
}

static enum err_code start_jobs(struct serve *s, struct err *e)
{
    struct serve_job *j;

    while ((j = next_job(s)) != NULL && takes_more(s, j)) {
        const bool first = !j->started;
        struct serve_fault f = { 0 };
        enum err_code code = ERR_OK;

        (void)json_ran_out();
        j->started = true;
        note_turn(s, j->client);
        if (first)
            code = serve_start(s, j, &f, e);
        if (code == ERR_OK && f.status == 0 && !j->over)
            code = serve_start_choice(s, j, &f, e);
        if (code == ERR_OK && f.status == 0 && first && j->w.stream)
            code = serve_push(s, j, SERVE_BEGIN, NULL, 200, false, e);
        if (code == ERR_OK && f.status == 0 && json_ran_out())
            code = err_nomem(e);
        if (code != ERR_OK ? give_up(s, j, e) : f.status != 0 ? serve_refuse_job(s, j, &f, e) : ERR_OK)
            return e->code;
    }
    return ERR_OK;
}

static void drop_finished(struct serve *s)
{
    for (struct serve_job **link = &s->jobs; *link != NULL;) {
        struct serve_job *j = *link;

        if (j->n_left > 0 || !(j->over || j->dropped)) {
            link = &j->next;
            continue;
        }
        *link = j->next;
        free_job(j);
    }
}

/* ---- events ---- */

void serve_counted(struct serve_count *c, double ms)
{
    int i = 0;

    while (i < SERVE_BUCKETS && ms > (double)(1 << i))
        i++;
    c->bucket[i]++;
    c->n++;
    c->sum += ms;
}

static enum err_code push_delta(struct serve *s, struct serve_job *j, struct serve_choice *c, json_t *delta,
                                json_t *beside, struct err *e)
{
    if (delta == NULL) {
        json_decref(beside);
        return err_nomem(e);
    }
    if (j->method == SERVE_CHAT && !c->said_role) {
        c->said_role = true;
        if (serve_push(s, j, SERVE_CHUNK,
                       serve_chunk(s, j, c, json_pack("{s:s, s:s}", "role", "assistant", "content", ""), NULL, NULL),
                       200, false, e)) {
            json_decref(delta);
            json_decref(beside);
            return e->code;
        }
    }
    return serve_push(s, j, SERVE_CHUNK, serve_chunk(s, j, c, delta, beside, NULL), 200, false, e);
}

/* What is sent of a call: its head, then its arguments as they grow. In the old form there is the function alone. */
static json_t *delta_of_call(const struct serve_job *j, const struct chat_piece *p)
{
    const bool head = p->step == CHAT_CALL_BEGIN;
    json_t *function = head ? json_pack("{s:o, s:s}", "name", json_bytes(p->name), "arguments", "")
                            : json_pack("{s:o}", "arguments", json_bytes(p->text));

    if (j->w.functions)
        return json_pack("{s:o}", "function_call", function);
    return head ? json_pack("{s:[{s:i, s:o, s:s, s:o}]}", "tool_calls", "index", p->call, "id", json_bytes(p->id),
                            "type", "function", "function", function)
                : json_pack("{s:[{s:i, s:o}]}", "tool_calls", "index", p->call, "function", function);
}

/* Whether the piece is of a call beyond the one that was asked for. */
static bool is_beyond(const struct serve_job *j, struct serve_choice *c, const struct chat_piece *p)
{
    if (!j->w.ask.one_call || p->part != CHAT_TOOL)
        return false;
    if (!c->called && p->step == CHAT_CALL_END) {
        c->called = true;
        c->the_call = p->call;
    }
    return c->called && p->call != c->the_call;
}

/* A piece of the answer: kept for the whole, or sent. */
enum err_code serve_take_piece(struct serve *s, struct serve_job *j, struct serve_choice *c, const struct chat_piece *p,
                               json_t **beside, struct err *e)
{
    const bool call = p->part == CHAT_TOOL;
    json_t *with;

    if (is_beyond(j, c, p))
        return ERR_OK;
    if (j->best != NULL)
        return serve_best_hold(c, p, e);
    if (serve_record_piece(c, p, e))
        return e->code;
    if (j->asked != NULL)
        return j->row->dialect->piece(s, j, c, p, e);
    if (call && p->step == CHAT_CALL_END && !serve_keep_call(&c->calls, p))
        return err_nomem(e);
    if (!j->w.stream)
        return call || serve_add(p->part == CHAT_TEXT ? &c->text : &c->reasoning, p->text) ? ERR_OK : err_nomem(e);
    if (call ? p->step == CHAT_CALL_END || p->step == CHAT_CALL_FAILED : p->text.n == 0)
        return ERR_OK;
    with = *beside;
    *beside = NULL;
    return push_delta(
        s, j, c,
        call ? delta_of_call(j, p)
             : json_pack("{s:o}", p->part == CHAT_TEXT ? "content" : "reasoning_content", json_bytes(p->text)),
        with, e);
}

/* Text of a chat goes through the reader of the model's marks. */
static enum err_code read_chat(struct serve *s, struct serve_job *j, struct serve_choice *c, struct str text, bool end,
                               json_t **beside, struct err *e)
{
    const struct chat_piece *v;
    int n;

    if (chat_read(c->reader, text, end, &v, &n, e))
        return e->code;
    for (int i = 0; i < n; i++)
        if (serve_take_piece(s, j, c, &v[i], beside, e))
            return e->code;
    if (*beside != NULL && j->w.stream) {
        json_t *with = *beside;

        *beside = NULL;
        return push_delta(s, j, c, json_object(), with, e);
    }
    return ERR_OK;
}

static enum err_code take_text(struct serve *s, struct serve_job *j, struct serve_choice *c, struct str text, bool end,
                               json_t *beside, struct err *e)
{
    enum err_code code = ERR_OK;

    if (j->method != SERVE_CHAT && serve_record_text(c, text, e))
        code = e->code;
    else if (j->method == SERVE_CHAT)
        code = read_chat(s, j, c, text, end, &beside, e);
    else if (!j->w.stream)
        code = serve_add(&c->text, text) ? ERR_OK : err_nomem(e);
    else if (text.n > 0 || beside != NULL) {
        json_t *with = beside;

        beside = NULL;
        code = push_delta(s, j, c, json_bytes(text), with, e);
    }
    json_decref(beside);
    return code;
}

/* Adds what is told beside a token, which is taken (NULL: memory is out): sent with it, or kept for the whole answer,
 * as it is where the parts of a stream have no place for it. */
static enum err_code add_beside(const struct serve_job *j, json_t **kept, json_t **sent, const char *name, json_t *one,
                                struct err *e)
{
    bool ok = one != NULL;

    if (j->w.stream && j->asked == NULL && j->best == NULL) {
        *sent = *sent != NULL ? *sent : json_object();
        return json_object_set_new(*sent, name, json_pack("[o]", one)) ? err_nomem(e) : ERR_OK;
    }
    *kept = *kept != NULL ? *kept : json_array();
    ok = json_array_append_new(*kept, one) == 0 && ok;
    return ok ? ERR_OK : err_nomem(e);
}

static enum err_code take_token(struct serve *s, struct serve_job *j, struct serve_choice *c,
                                const struct gen_event *ev, struct err *e)
{
    json_t *beside = NULL;
    const double now = clock_ms();

    if (j->last_ms > 0)
        serve_counted(&s->m.between, now - j->last_ms);
    else
        serve_counted(&s->m.first_token, now - j->from_ms);
    j->last_ms = c->now_ms = now;
    c->first_ms = c->first_ms > 0 ? c->first_ms : now;
    c->n_tokens++;
    if (j->method == SERVE_ASK)
        return serve_tell_event(s, j, c, ev, e);
    serve_record_token(c, ev);
    if ((j->w.top >= 0 && !ev->reasoning &&
         add_beside(j, &c->logprobs, &beside, "logprobs", serve_logprob(s, &ev->pick, j->w.top), e)) ||
        (j->w.ask.uncertainty && add_beside(j, &c->uncertainty, &beside, "uncertainty", serve_numbers(s, ev), e))) {
        json_decref(beside);
        return e->code;
    }
    return take_text(s, j, c, ev->text, false, beside, e);
}

/* What the row of one token of an echoed prompt says of the next one. */
static enum err_code take_row(struct serve *s, struct serve_job *j, struct serve_choice *c, const struct gen_event *ev,
                              struct err *e)
{
    json_t *one;

    if (ev->done + 1 >= c->request->prompt.n)
        return ERR_OK;
    one = serve_row_logprob(s, c->request->prompt.v[ev->done + 1], ev->logits, j->w.top);
    return one == NULL || json_array_append_new(c->logprobs, one) ? err_nomem(e) : ERR_OK;
}

bool serve_all_ended(const struct serve_job *j)
{
    return j->n_left == 0 && j->n_asked == j->n_choices;
}

static enum err_code end_job(struct serve *s, struct serve_job *j, struct err *e)
{
    if (!j->w.stream)
        return serve_push(s, j, SERVE_BODY, serve_whole(s, j), 200, true, e);
    if (j->w.usage && serve_push(s, j, SERVE_CHUNK, serve_usage_chunk(s, j), 200, false, e))
        return e->code;
    return serve_push(s, j, SERVE_END, NULL, 200, true, e);
}

static enum err_code end_choice(struct serve *s, struct serve_job *j, struct serve_choice *c,
                                const struct gen_event *ev, struct err *e)
{
    c->id = 0;
    c->end = ev->end;
    c->stop = ev->stop;
    c->stats = ev->stats;
    c->n_mixed = ev->n_mixed;
    if (ev->n_mixed > 0)
        memcpy(c->mixed, ev->mixed, (size_t)ev->n_mixed * sizeof *c->mixed);
    j->n_left--;
    j->n_queued -= !c->begun;
    if (s->o.keeper != NULL && ev->seq >= 0 && j->method != SERVE_EMBEDDING && ev->end != GEN_FAILED) {
        struct gen_request q = c->request->q;

        q.owner = j->owner;
        s->o.keeper->after(s->o.keeper_of, ev->seq, &q);
    }
    s->m.thought[ev->stats.thought.end] += c->request->reason.marks != NULL;
    s->m.prompt_tokens += (uint64_t)ev->stats.prompt_tokens;
    s->m.cached_tokens += (uint64_t)ev->stats.cached_tokens;
    s->m.tokens += (uint64_t)ev->stats.tokens;
    s->m.drafted += (uint64_t)ev->stats.drafted;
    s->m.kept += (uint64_t)ev->stats.kept;
    if (j->dropped && !j->over && ev->end != GEN_FAILED && j->best == NULL)
        serve_record_end(s, c);
    if (j->over || j->dropped)
        return ERR_OK;
    if (j->method == SERVE_ASK)
        return serve_tell_event(s, j, c, ev, e);
    if (ev->end == GEN_FAILED) {
        struct serve_fault f = { 0 };

        serve_fault(&f, status_of(ev->err.code), "", "%s", ev->err.msg);
        return serve_refuse_job(s, j, &f, e);
    }
    if (j->method == SERVE_EMBEDDING && ev->pooled != NULL &&
        (c->embedding = serve_embedding(s, j, ev->pooled)) == NULL)
        return err_nomem(e);
    if (j->method != SERVE_EMBEDDING && take_text(s, j, c, ev->text, true, NULL, e))
        return e->code;
    if (j->best != NULL)
        return serve_all_ended(j) ? serve_best_ended(s, j, e) : ERR_OK;
    return serve_tell_end(s, j, c, e);
}

enum err_code serve_tell_end(struct serve *s, struct serve_job *j, struct serve_choice *c, struct err *e)
{
    serve_record_end(s, c); /* before anybody can rate it */
    if (j->asked != NULL)
        return j->row->dialect->end(s, j, c, e);
    if (j->w.stream && serve_push(s, j, SERVE_CHUNK,
                                  serve_chunk(s, j, c, j->method == SERVE_CHAT ? json_object() : json_string(""), NULL,
                                              serve_finish(j, c)),
                                  200, false, e))
        return e->code;
    return serve_all_ended(j) ? end_job(s, j, e) : ERR_OK;
}

/* How much of the prompt was read, as llama.cpp has it. */
static enum err_code tell_progress(struct serve *s, struct serve_job *j, struct serve_choice *c,
                                   const struct gen_event *ev, struct err *e)
{
    json_t *part = serve_chunk(s, j, c, j->method == SERVE_CHAT ? json_object() : json_string(""), NULL, NULL);
    const bool ok =
        part != NULL &&
        json_object_set_new(part, "prompt_progress",
                            json_pack("{s:I, s:I, s:I, s:I}", "total", (json_int_t)c->stats.prompt_tokens, "cache",
                                      (json_int_t)c->stats.cached_tokens, "processed", (json_int_t)ev->done, "time_ms",
                                      (json_int_t)(clock_ms() - c->begin_ms))) == 0;

    return serve_push(s, j, SERVE_CHUNK, json_if(ok, part), 200, false, e);
}

/* Its direct answer was dropped, before anything of it was told. */
static enum err_code turn_to_second(struct serve_job *j, struct serve_choice *c, struct err *e)
{
    chat_reader_close(c->reader);
    c->reader = NULL;
    c->request = c->request->second;
    return j->over || j->dropped ? ERR_OK : ask_reader(&c->reader, c->request, e);
}

static enum err_code hear_event(struct serve *s, const struct gen_event *ev, struct err *e)
{
    struct serve_choice *c = ev->user;
    struct serve_job *j = c->job;

    (void)json_ran_out();
    if (c->verdict != NULL)
        return serve_best_event(s, j, ev, e);
    switch (ev->kind) {
    case GEN_BEGIN:
        if (!j->begun)
            serve_counted(&s->m.queue, clock_ms() - j->from_ms);
        j->n_queued--;
        c->begun = j->begun = true;
        c->stats = ev->stats;
        c->begin_ms = c->now_ms = s->step_ms;
        if (j->method == SERVE_ASK)
            return serve_tell_event(s, j, c, ev, e);
        return j->asked != NULL && j->row->dialect->begin != NULL && !j->over && !j->dropped && j->best == NULL
                   ? j->row->dialect->begin(s, j, c, e)
                   : ERR_OK;
    case GEN_SECOND:
        return turn_to_second(j, c, e);
    case GEN_ROW:
        return j->over || j->dropped ? ERR_OK : take_row(s, j, c, ev, e);
    case GEN_TOKEN:
        return j->over || j->dropped ? ERR_OK : take_token(s, j, c, ev, e);
    case GEN_END:
        return end_choice(s, j, c, ev, e);
    case GEN_PROMPT:
        if (j->method == SERVE_ASK)
            return serve_tell_event(s, j, c, ev, e);
        return j->over || j->dropped || !j->w.progress || j->asked != NULL || (j->best != NULL && c->index > 0)
                   ? ERR_OK
                   : tell_progress(s, j, c, ev, e);
    }
    return ERR_OK;
}

enum err_code serve_step(struct serve *s, struct err *e)
{
    struct gen_event ev;
    struct serve_job *j = NULL;
    enum err_code code;
    struct err why = { 0 };

    drop_finished(s);
    if (s->o.keeper != NULL && !gen_busy(s->o.gen))
        s->o.keeper->idle(s->o.keeper_of);
    if (start_jobs(s, e))
        return e->code;
    s->step_ms = clock_ms();
    if (serve_best_turn(s, &j, e) && give_up(s, j, e))
        return e->code;
    s->m.steps += gen_busy(s->o.gen);
    code = gen_busy(s->o.gen) ? gen_step(s->o.gen, &why) : ERR_OK;
    while (gen_next(s->o.gen, &ev)) {
        j = ((struct serve_choice *)ev.user)->job;
        if ((hear_event(s, &ev, e) || (json_ran_out() && err_nomem(e))) && give_up(s, j, e))
            return e->code;
    }
    if (code)
        *e = why;
    return code;
}
