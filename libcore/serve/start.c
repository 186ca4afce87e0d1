/* SPDX-License-Identifier: Apache-2.0 */
/* start.c - what a body asks for becomes requests of the engine.             room: serve */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/rng.h"
#include "run/run.h"
#include "serve/internal.h"

/* What is wrong with a question becomes a fault at its place, or at `pointer` if it names none in the body; memory and
 * devices are errors. */
static enum err_code blame(struct serve_fault *f, const char *pointer, const struct err *why, struct err *e)
{
    if (why->code == ERR_NOMEM || why->code == ERR_DEVICE || why->code == ERR_IO)
        return err_copy(e, why);
    serve_fault(f, 400, why->where[0] == '/' ? why->where : pointer, "%s", why->msg);
    return ERR_OK;
}

/* A fault of a form is told at the member that asked for it. */
static void place_form(const struct serve_question *w, struct serve_fault *f)
{
    static const char *const usual[] = { "/response_format/json_schema/schema", "/grammar", "/regex" };
    char pointer[POINTER_BYTES];

    for (size_t i = 0; i < sizeof usual / sizeof usual[0] && w->form_at != NULL; i++) {
        const size_t n = strlen(usual[i]);

        if (strncmp(f->pointer, usual[i], n) != 0 || (f->pointer[n] != '\0' && f->pointer[n] != '/'))
            continue;
        (void)snprintf(pointer, sizeof pointer, "%.60s%.440s", w->form_at, f->pointer + n);
        (void)snprintf(f->pointer, sizeof f->pointer, "%s", pointer);
        return;
    }
}

/* ---- prompts ---- */

enum err_code serve_read_ids(const struct serve *s, const json_t *ids, struct text_tokens *out, const char *pointer,
                             struct serve_fault *f, struct err *e)
{
    size_t i;
    json_t *id;

    json_array_foreach (ids, i, id) {
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= s->n_vocab) {
            char whole[POINTER_BYTES];

            (void)snprintf(whole, sizeof whole, "%.400s/%zu", pointer, i);
            serve_refuse_at(f, whole, "no token id of this model");
            return ERR_OK;
        }
        if (text_tokens_push(out, (int32_t)json_integer_value(id), e))
            return e->code;
    }
    return ERR_OK;
}

/* A text or an array of token ids becomes what is asked. */
static enum err_code read_prompt(struct serve *s, const json_t *v, struct ask *a, struct text_tokens *ids,
                                 const char *pointer, struct serve_fault *f, struct err *e)
{
    if (json_is_string(v)) {
        a->text = json_text(v);
        return ERR_OK;
    }
    if (!json_is_array(v)) {
        serve_fault(f, 400, pointer, "%s: neither a text nor an array of token ids", pointer + 1);
        return ERR_OK;
    }
    if (serve_read_ids(s, v, ids, pointer, f, e))
        return e->code;
    a->token = ids->v;
    a->n_token = ids->n;
    return ERR_OK;
}

/* "prompt" and "input" are one prompt or several. */
const json_t *serve_prompt_at(const json_t *v, int i)
{
    const json_t *first = json_array_get(v, 0);

    if (!json_is_array(v) || json_is_integer(first))
        return i == 0 ? v : NULL;
    return json_array_get(v, (size_t)i);
}

static int count_prompts(const json_t *v)
{
    const json_t *first = json_array_get(v, 0);

    return !json_is_array(v) || json_is_integer(first) ? 1 : (int)json_array_size(v);
}

int64_t serve_answers(enum serve_method m, const json_t *body)
{
    const json_t *prompts = json_object_get(body, m == SERVE_COMPLETION ? "prompt" : "input");
    const json_t *several = json_object_get(body, m == SERVE_COMPLETION ? "n" : "best_of");
    const json_int_t n = json_integer_value(several != NULL ? several : json_object_get(body, "n"));
    const int count = m == SERVE_COMPLETION || m == SERVE_EMBEDDING ? count_prompts(prompts) : 1;

    return (n > 1 && n <= CHOICES_MAX ? n : 1) * (count <= PROMPTS_MAX ? count : 1); /* more are refused */
}

static uint64_t fresh_seed(const struct serve_job *j)
{
    uint32_t block[4];
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    rng_block(block, (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec, (uint64_t)j->id, 0);
    return block[0];
}

/* The server's adapters with their scales, or those that a request gives them: what it does not name is without effect.
 */
static bool name_adapters(const struct serve_attachments *b, struct serve_question *w, struct serve_fault *f)
{
    bool named[RUN_ADAPTERS_MAX] = { false };
    char pointer[40];
    size_t i;
    json_t *one;

    for (int a = 0; a < b->n_adapters; a++)
        w->adapters[a] = (struct run_adapter){ b->adapters[a].adapter, w->lora != NULL ? 0 : b->adapters[a].scale };
    json_array_foreach (w->lora, i, one) {
        const json_int_t id = json_integer_value(json_object_get(one, "id"));

        (void)snprintf(pointer, sizeof pointer, "/lora/%zu/id", i);
        if (id < 0 || id >= b->n_adapters)
            return serve_fault(f, 400, pointer, "%s: there is no adapter %lld, the server has %d", pointer + 1,
                               (long long)id, b->n_adapters);
        if (named[id])
            return serve_fault(f, 400, pointer, "%s: adapter %lld is named twice", pointer + 1, (long long)id);
        named[id] = true;
        w->adapters[id].scale = (float)json_number_value(json_object_get(one, "scale"));
    }
    w->ask.adapters = w->adapters;
    w->ask.n_adapters = b->n_adapters;
    return true;
}

/* The member that has a text to make a table of. */
static const char *text_member(const struct serve_question *w)
{
    return w->has_context ? "/context" : "/context_table";
}

/* Whether what the request asks for stands beside the model. */
static bool is_there(const struct serve_job *j, struct serve_fault *f)
{
    const struct serve_attachments *b = j->attached;
    const bool tables = b->engram != NULL || j->w.context_table.p != NULL;

    if (j->w.context_table.p != NULL && b->table == NULL)
        return serve_fault(f, 400, text_member(&j->w), "%s: tables are not made here", text_member(&j->w) + 1);
    if (j->w.asks_engram && !tables)
        return serve_fault(f, 400, "/engram", "engram: the server has no tables (--engram)");
    if (j->w.asks_context && b->context == NULL)
        return serve_fault(f, 400, "/context", "context: the server has none (--context)");
    if (j->w.asks_examples && b->notes == NULL)
        return serve_fault(f, 400, "/examples", "examples: the server has no index (--examples)");
    if (j->w.asks_recite && b->recite == NULL)
        return serve_fault(f, 400, "/recite", "recite: the server has no index (--recite)");
    if (j->w.asks_retrieve && b->notes == NULL && b->recite == NULL && b->context == NULL && !j->w.has_context)
        return serve_fault(f, 400, "/retrieve", "retrieve: auto needs an index (--examples, --recite) or a context");
    if (j->w.ask.n_notes > b->notes_max && b->notes != NULL)
        return serve_fault(f, 400, "/examples", "examples: at most %d texts", b->notes_max);
    if (j->w.ask.n_recite > b->notes_max && b->recite != NULL)
        return serve_fault(f, 400, "/recite", "recite: at most %d texts", b->notes_max);
    return true;
}

/* The tables of the server that the request wants, and one of its own text. */
static enum err_code open_tables(struct serve_job *j, struct serve_fault *f, struct err *e)
{
    const struct serve_attachments *b = j->attached;
    const struct engram_mix *with = j->w.engram != 0 ? b->engram : NULL;
    struct err why = { 0 };

    if (j->w.context_table.p != NULL) {
        if (b->table(b->tables_of, j->w.context_table, with, &j->mix, &j->made, &why)) {
            err_wrap(&why, "%s", text_member(&j->w) + 1);
            return blame(f, text_member(&j->w), &why, e);
        }
        if (j->w.has_context)
            j->w.ask.context = b->document(j->made);
    } else if (with != NULL)
        j->mix = *with;
    else
        return ERR_OK;
    for (int i = 0; j->w.engram > 0 && i < ENGRAM_FILES_MAX; i++)
        j->mix.ceiling[i] = j->w.engram;
    if (with != NULL && b->context != NULL && j->w.no_context)
        j->mix.ceiling[engram_n_files(with->table) - 1] = 0;
    j->w.ask.tables = &j->mix;
    return ERR_OK;
}

/* What the request asks of all that stands beside the model. */
static enum err_code use_beside(struct serve_job *j, struct serve_fault *f, struct err *e)
{
    if (!is_there(j, f) || j->method == SERVE_EMBEDDING || j->method == SERVE_ASK)
        return ERR_OK;
    j->w.ask.notes = j->attached->notes;
    j->w.ask.recite = j->attached->recite;
    j->w.ask.context = j->w.no_context ? NULL : j->attached->context;
    return open_tables(j, f, e);
}

/* ---- requests ---- */

/* It needs room for probes. */
static bool asks_certainty(const struct ask_request *r)
{
    const struct reason_opts *o = &ask_thorough(r)->reason;

    return reason_peek_tokens(o) > 0 || reason_trial_tokens(o) > 0;
}

static enum err_code submit_choice(struct serve *s, struct serve_job *j, struct serve_choice *c, const char *prefix,
                                   struct serve_fault *f, struct err *e)
{
    struct gen_request q = c->request->q;
    struct err why = { 0 };

    if (ask_reader(&c->reader, c->request, &why))
        return blame(f, why.code == ERR_FORMAT ? "/tools" : "", &why, e);
    if (serve_record_open(s, c, e))
        return e->code;
    q.user = c;
    q.owner = j->owner;
    q.yields = j->later;
    q.sample.stream = (uint64_t)c->index;
    q.uncertainty |= c->record != NULL;
    if (j->w.echo && j->w.top >= 0) { /* the prompt's tokens have theirs, too */
        q.n_rows = q.n_prompt > 1 ? q.n_prompt : 0;
        c->logprobs = json_pack("[o]", serve_row_logprob(s, q.prompt[0], NULL, j->w.top));
        if (c->logprobs == NULL)
            return err_nomem(e);
    }
    if (s->o.keeper != NULL)
        s->o.keeper->before(s->o.keeper_of, &q);
    if (gen_submit(s->o.gen, &q, &c->id, &why))
        return blame(f, why.code == ERR_UNSUPPORTED && asks_certainty(c->request) ? "/think_stop" : prefix, &why, e);
    j->n_left++;
    j->n_queued++;
    return ERR_OK;
}

struct ask_model serve_model(const struct serve *s)
{
    return (struct ask_model){ .text = s->o.text,
                               .chat = s->o.chat,
                               .memo = s->memo,
                               .vocab = s->o.vocab,
                               .n_vocab = s->o.run != NULL ? run_n_vocab(s->o.run) : s->n_vocab,
                               .prompt_max = s->o.ctx_tokens };
}

bool serve_read_prompt(struct serve *s, const struct serve_question *w, struct text_tokens *out, struct serve_fault *f)
{
    const struct ask_model m = serve_model(s);
    struct err why = { 0 }, e = { 0 };

    return ask_prompt(out, &w->ask, &m, NULL, &why) == ERR_OK || (blame(f, "/messages", &why, &e) && serve_nomem(f));
}

bool serve_write_prompt(struct serve *s, const struct serve_question *w, char **out, size_t *n, struct serve_fault *f)
{
    const struct ask_model m = serve_model(s);
    struct err why = { 0 }, e = { 0 };

    return ask_prompt_text(out, n, &w->ask, &m, &why) == ERR_OK || (blame(f, "/messages", &why, &e) && serve_nomem(f));
}

/* Asks one prompt. */
static enum err_code open_prompt(struct serve *s, struct serve_job *j, int prompt, const char *pointer,
                                 struct serve_fault *f, struct err *e)
{
    const struct ask_model m = serve_model(s);
    const json_t *v = serve_prompt_at(j->method == SERVE_EMBEDDING ? j->w.input : j->w.prompt, prompt);
    struct ask a = j->w.ask;
    struct text_tokens ids = { 0 };
    struct err why = { 0 };
    enum err_code code = j->method != SERVE_CHAT ? read_prompt(s, v, &a, &ids, pointer, f, e) : ERR_OK;

    if (code == ERR_OK && f->status == 0 &&
        ask_open(&j->request[prompt], &a, &m, prompt > 0 ? j->request[0] : NULL, &why)) {
        code = blame(f, pointer, &why, e);
        if (why.code == ERR_LIMIT && why.where[0] == '\0')
            f->code = "context_length_exceeded";
    }
    text_tokens_free(&ids);
    if (code != ERR_OK || f->status != 0)
        return code;
    if (j->request[prompt]->prompt.n == 0)
        serve_fault(f, 400, pointer, "%s: empty", pointer + 1);
    return ERR_OK;
}

static const char *prompt_member(const struct serve_job *j)
{
    return j->method == SERVE_CHAT ? "messages" : j->method == SERVE_COMPLETION ? "prompt" : "input";
}

enum err_code serve_start_choice(struct serve *s, struct serve_job *j, struct serve_fault *f, struct err *e)
{
    struct serve_choice *c = &j->choice[j->n_asked++];
    char pointer[16];

    (void)snprintf(pointer, sizeof pointer, "/%s", prompt_member(j));
    c->request = j->request[c->index / j->w.n];
    if (j->method == SERVE_ASK)
        return serve_submit_asked(s, j, c, e);
    return submit_choice(s, j, c, pointer, f, e);
}

/* Room for the answers. */
static enum err_code make_choices(struct serve_job *j, struct err *e)
{
    j->request = calloc((size_t)j->n_prompts, sizeof(struct ask_request *));
    j->choice = calloc((size_t)(j->n_prompts * j->w.n), sizeof *j->choice);
    if (j->request == NULL || j->choice == NULL)
        return err_nomem(e);
    j->n_choices = j->n_prompts * j->w.n;
    for (int i = 0; i < j->n_choices; i++)
        j->choice[i] = (struct serve_choice){ .job = j, .index = i };
    return j->w.best_of > 0 ? serve_best_open(j, e) : ERR_OK;
}

enum err_code serve_start(struct serve *s, struct serve_job *j, struct serve_fault *f, struct err *e)
{
    j->attached = s->attached;
    j->n_prompts = j->method == SERVE_CHAT ? 1 : count_prompts(j->method == SERVE_EMBEDDING ? j->w.input : j->w.prompt);
    if (j->n_prompts > PROMPTS_MAX) {
        serve_fault(f, 400, j->method == SERVE_EMBEDDING ? "/input" : "/prompt", "more than %d prompts", PROMPTS_MAX);
        return ERR_OK;
    }
    if (j->method == SERVE_EMBEDDING && !s->o.embeddings) {
        serve_fault(f, 400, "", "embeddings are not offered here");
        return ERR_OK;
    }
    if (!name_adapters(j->attached, &j->w, f))
        return ERR_OK;
    if (use_beside(j, f, e) || f->status != 0)
        return e->code;
    if (make_choices(j, e))
        return e->code;
    if (j->method == SERVE_ASK)
        return serve_start_asked(s, j, e);
    if (!j->w.seeded)
        j->w.ask.sample.seed = fresh_seed(j);
    for (int i = 0; i < j->n_prompts && f->status == 0; i++) {
        char pointer[40];

        (void)snprintf(pointer, sizeof pointer, j->n_prompts > 1 ? "/%s/%d" : "/%s", prompt_member(j), i);
        if (open_prompt(s, j, i, pointer, f, e))
            return e->code;
    }
    if (f->status != 0)
        place_form(&j->w, f);
    return ERR_OK;
}
