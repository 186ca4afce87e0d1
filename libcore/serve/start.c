/* SPDX-License-Identifier: Apache-2.0 */
/* start.c - a wish becomes requests of the engine.                           room: serve */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/rng.h"
#include "chat/tool_grammar.h"
#include "serve/internal.h"
#include "text/marks.h"

/* What the engine, the template or a grammar says of a request becomes a fault at its place, or at `pointer` if it names none
 * in the body; memory and devices are errors. */
static enum err_code blame(struct fault *f, const char *pointer, const struct err *why, struct err *e)
{
    if (why->code == ERR_NOMEM || why->code == ERR_DEVICE || why->code == ERR_IO)
        return err_set(e, why->code, "%s", why->msg);
    serve_fault(f, 400, why->where[0] == '/' ? why->where : pointer, "%s", why->msg);
    return ERR_OK;
}

/* ---- prompts ---- */

/* The local time as seconds since 1970: the date that a template sees. */
static int64_t local_s(void)
{
    const time_t now = time(NULL);
    struct tm local;

    return localtime_r(&now, &local) != NULL ? (int64_t)timegm(&local) : (int64_t)now;
}

static enum err_code render(struct serve *s, struct job *j, struct text_tokens *out, bool *thinking, struct fault *f,
                            struct err *e)
{
    const bool tools = j->w.tools != NULL && strcmp(j->w.tool_choice, "none") != 0;
    const struct chat_prompt p = { .messages = j->w.messages,
                                   .tools = tools ? j->w.tools : NULL,
                                   .extra = j->w.kwargs,
                                   .memo = s->memo,
                                   .generate = true,
                                   .now_s = local_s() };
    struct err why = { 0 };

    if (s->o.chat == NULL) {
        serve_fault(f, 400, "/messages", "the model has no chat template: ask for completions");
        return ERR_OK;
    }
    return chat_render(s->o.chat, &p, out, thinking, &why) ? blame(f, "/messages", &why, e) : ERR_OK;
}

static enum err_code take_ids(struct serve *s, const json_t *ids, struct text_tokens *out, const char *pointer,
                              struct fault *f, struct err *e)
{
    size_t i;
    json_t *id;

    json_array_foreach (ids, i, id) {
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= s->n_vocab) {
            char whole[POINTER_BYTES];

            (void)snprintf(whole, sizeof whole, "%.400s/%zu", pointer, i);
            serve_fault(f, 400, whole, "%s: no token id of this model", whole + 1);
            return ERR_OK;
        }
        if (text_tokens_push(out, (int32_t)json_integer_value(id), e))
            return e->code;
    }
    return ERR_OK;
}

/* A text or an array of token ids. */
static enum err_code take_prompt(struct serve *s, const json_t *v, struct text_tokens *out, const char *pointer,
                                 struct fault *f, struct err *e)
{
    const struct text_info *info = text_info(s->o.text);
    struct err why = { 0 };

    if (json_is_array(v))
        return take_ids(s, v, out, pointer, f, e);
    if (!json_is_string(v)) {
        serve_fault(f, 400, pointer, "%s: neither a text nor an array of token ids", pointer + 1);
        return ERR_OK;
    }
    if (text_encode(s->o.text, (struct str){ json_string_value(v), json_string_length(v) }, TEXT_SPECIAL | TEXT_ADD,
                    out, &why))
        return blame(f, pointer, &why, e);
    /* A text to go on from does not end. */
    if (info->add_eos && out->n > 0 && out->v[out->n - 1] == info->eos)
        out->n--;
    return ERR_OK;
}

/* "prompt" and "input" are one prompt or several. */
static const json_t *prompt_at(const json_t *v, int i)
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

/* ---- grammars ---- */

/* A call must come. */
static bool call_is_due(const struct wish *w)
{
    return strcmp(w->tool_choice, "auto") != 0 && strcmp(w->tool_choice, "none") != 0;
}

/* Calls of tools, wherever the model begins one, or as tool_choice asks. */
static enum err_code make_tool_grammar(struct serve *s, struct job *j, bool thinking, struct fault *f, struct err *e)
{
    const struct chat_tool_opts t = { .parser = chat_parser(s->o.chat),
                                      .vocab = s->o.vocab,
                                      .tools = j->w.tools,
                                      .choice = j->w.tool_choice,
                                      .reasoning = thinking,
                                      .one = !j->w.parallel_calls };
    struct grammar *g;
    struct err why = { 0 };

    if (chat_tool_grammar(&g, &t, &why) == ERR_OK)
        j->grammar = g;
    else if (why.code == ERR_NOMEM || call_is_due(&j->w)) /* with auto a grammar is a help, not what was asked for */
        return blame(f, "/tools", &why, e);
    return ERR_OK;
}

/* What the answer has to be: the schema, after the reasoning if there is any. */
static enum err_code make_grammar(struct serve *s, struct job *j, bool thinking, struct fault *f, struct err *e)
{
    struct err why = { 0 };
    struct grammar *g, *after;

    if (j->w.schema != NULL && call_is_due(&j->w)) {
        serve_fault(f, 400, "/tool_choice", "tool_choice asks for a call: no response_format with it");
        return ERR_OK;
    }
    if (j->w.schema == NULL && j->method == SERVE_CHAT && j->w.tools != NULL && strcmp(j->w.tool_choice, "none") != 0)
        return make_tool_grammar(s, j, thinking, f, e);
    if (j->w.schema == NULL)
        return ERR_OK;
    if (grammar_open_schema(&g, s->o.vocab, j->w.schema, &why)) {
        err_at(&why, "/response_format/json_schema/schema");
        return blame(f, "/response_format", &why, e);
    }
    j->grammar = g;
    if (!thinking)
        return ERR_OK;
    if (grammar_open_tagged(&after, g, chat_marks(s->o.chat)->close[0], STR(""), &why))
        return blame(f, "/response_format", &why, e);
    grammar_close(g);
    j->grammar = after;
    return ERR_OK;
}

/* ---- requests ---- */

/* An answer that is held to a form is text, whatever it looks like. */
static bool is_text_as_it_is(const struct job *j, bool thinking)
{
    return j->w.schema != NULL && !thinking;
}

static enum err_code open_reader(struct serve *s, struct job *j, struct choice *c, bool thinking, struct fault *f,
                                 struct err *e)
{
    const bool held = j->w.schema != NULL;
    const bool tools = j->w.tools != NULL && strcmp(j->w.tool_choice, "none") != 0 && !held;
    const struct chat_reader_opts ro = {
        .parser = is_text_as_it_is(j, thinking) ? "plain" : chat_parser(s->o.chat),
        .tools = tools ? j->w.tools : NULL,
        .reasoning = thinking,
    };
    struct err why = { 0 };

    if (chat_reader_open(&c->reader, &ro, &why))
        return blame(f, why.code == ERR_FORMAT ? "/tools" : "", &why, e);
    return ERR_OK;
}

static uint64_t fresh_seed(const struct serve *s, const struct job *j)
{
    uint32_t block[4];
    struct timespec t;

    (void)s;
    clock_gettime(CLOCK_REALTIME, &t);
    rng_block(block, (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec, (uint64_t)j->id, 0);
    return block[0];
}

/* The server's adapters with their scales, or those that a request gives them: what it does not name is without effect. */
static bool name_adapters(const struct serve_beside *b, struct wish *w, struct fault *f)
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
    w->q.adapters = w->adapters;
    w->q.n_adapters = b->n_adapters;
    return true;
}

/* Whether what the request asks for stands beside the model. */
static bool is_there(const struct job *j, struct fault *f)
{
    const struct serve_beside *b = j->beside;
    const bool tables = b->engram != NULL || j->w.context_table.p != NULL;

    if (j->w.context_table.p != NULL && b->table == NULL)
        return serve_fault(f, 400, "/context_table", "context_table: tables are not made here");
    if (j->w.asks_engram && !tables)
        return serve_fault(f, 400, "/engram", "engram: the server has no tables (--engram)");
    if (j->w.asks_examples && b->notes == NULL)
        return serve_fault(f, 400, "/examples", "examples: the server has no index (--examples)");
    if (j->w.asks_recite && b->recite == NULL)
        return serve_fault(f, 400, "/recite", "recite: the server has no index (--recite)");
    if (j->w.examples > b->notes_max && b->notes != NULL)
        return serve_fault(f, 400, "/examples", "examples: at most %d texts", b->notes_max);
    if (j->w.recite > b->notes_max && b->recite != NULL)
        return serve_fault(f, 400, "/recite", "recite: at most %d texts", b->notes_max);
    return true;
}

/* The tables of the server that the request wants, and one of its own text. */
static enum err_code take_tables(struct job *j, struct fault *f, struct err *e)
{
    const struct serve_beside *b = j->beside;
    const struct engram_mix *with = j->w.engram != 0 ? b->engram : NULL;
    struct err why = { 0 };

    if (j->w.context_table.p != NULL) {
        if (b->table(b->tables_of, j->w.context_table, with, &j->mix, &j->made, &why))
            return blame(f, "/context_table", &why, e);
    } else if (with != NULL)
        j->mix = *with;
    else
        return ERR_OK;
    for (int i = 0; j->w.engram > 0 && i < ENGRAM_FILES_MAX; i++)
        j->mix.ceiling[i] = j->w.engram;
    j->w.q.memory = &engram_memory;
    return ERR_OK;
}

/* What the request asks of the rest that stands beside the model. */
static enum err_code take_beside(struct job *j, struct fault *f, struct err *e)
{
    const struct serve_beside *b = j->beside;
    struct err why = { 0 };

    if (!is_there(j, f) || j->method == SERVE_EMBEDDING)
        return ERR_OK;
    if (take_tables(j, f, e) || f->status != 0)
        return e->code;
    j->w.q.memory_of = &j->mix;
    if (j->method != SERVE_CHAT)
        return ERR_OK;
    if (b->recite != NULL && j->w.recite != 0) {
        if (b->recite(b->recite_of, j->w.messages, j->w.recite, &j->recital, &j->mix.recital, &why))
            return blame(f, "/messages", &why, e);
        if (j->mix.recital.n > 0)
            j->w.q.memory = &engram_memory;
    }
    if (b->notes != NULL && b->notes(b->notes_of, j->w.messages, j->w.examples, &why))
        return blame(f, "/messages", &why, e);
    return ERR_OK;
}

/* Of marks that are close to each other the last one is left: each ends a step, and what comes between is evaluated again
 * sooner than in a step of its own. */
static int thin_marks(int64_t *at, int n)
{
    enum { APART = 32 };
    int k = n;

    for (int i = n - 1; i >= 0; i--)
        if (i == n - 1 || at[k] - at[i] >= APART)
            at[--k] = at[i];
    memmove(at, at + k, (size_t)(n - k) * sizeof *at);
    return n - k;
}

static enum err_code submit(struct serve *s, struct job *j, struct choice *c, bool thinking, struct fault *f,
                            struct err *e)
{
    struct gen_request q = j->w.q;
    int64_t border[64];
    struct err why = { 0 };

    q.prompt = c->prompt.v;
    q.n_prompt = c->prompt.n;
    q.user = c;
    q.sample.stream = (uint64_t)c->index;
    q.predict_max = q.predict_max < 0 ? s->o.predict_max : q.predict_max;
    if (j->method == SERVE_CHAT) {
        q.chat = true;
        q.reasoning_marks = is_text_as_it_is(j, thinking) ? NULL : chat_marks(s->o.chat);
        q.thinking = thinking;
        q.marks = border;
        q.n_marks = chat_borders(s->o.chat, c->prompt.v, c->prompt.n, border, (int)(sizeof border / sizeof border[0]));
        q.n_marks = thin_marks(border, q.n_marks);
        c->border = q.n_marks > 0 ? border[q.n_marks - 1] : 0;
        j->reason = (struct reason_opts){ chat_marks(s->o.chat), j->w.budget };
        if (j->w.budget > 0) {
            q.governor = &reason_governor;
            q.governor_opts = &j->reason;
        }
    }
    if (j->grammar != NULL) {
        q.constraint = &gen_grammar;
        q.rules = j->grammar;
    }
    if (j->method == SERVE_EMBEDDING) {
        q.pool = true;
        q.predict_max = 0;
    }
    if (j->w.echo && j->w.top >= 0) { /* the prompt's tokens have theirs, too */
        q.n_rows = c->prompt.n > 1 ? c->prompt.n : 0;
        c->logprobs = json_pack("[o]", serve_row_logprob(s, c->prompt.v[0], NULL, j->w.top));
        if (c->logprobs == NULL)
            return err_nomem(e);
    }
    if (s->o.keeper != NULL)
        s->o.keeper->before(s->o.keeper_of, &q);
    if (gen_submit(s->o.gen, &q, &c->id, &why))
        return blame(f,
                     q.governor != NULL && j->reason.marks == NULL ? "/reasoning_budget"
                     : j->method == SERVE_CHAT                     ? "/messages"
                     : j->method == SERVE_COMPLETION               ? "/prompt"
                                                                   : "/input",
                     &why, e);
    j->n_left++;
    return ERR_OK;
}

/* The choices of one prompt. */
static enum err_code start_prompt(struct serve *s, struct job *j, int prompt, bool *thinking, struct fault *f,
                                  struct err *e)
{
    struct choice *c = &j->choice[prompt * j->w.n];
    const json_t *v = prompt_at(j->method == SERVE_EMBEDDING ? j->w.input : j->w.prompt, prompt);
    char pointer[40];

    (void)snprintf(pointer, sizeof pointer, j->n_prompts > 1 ? "/%s/%d" : "/%s",
                   j->method == SERVE_EMBEDDING ? "input" : "prompt", prompt);
    if (j->method == SERVE_CHAT ? render(s, j, &c->prompt, thinking, f, e)
                                : take_prompt(s, v, &c->prompt, pointer, f, e))
        return e->code;
    if (f->status == 0 && c->prompt.n == 0)
        serve_fault(f, 400, pointer, "%s: empty", pointer + 1);
    if (f->status == 0 && prompt == 0 && make_grammar(s, j, *thinking, f, e))
        return e->code;
    for (int i = 1; f->status == 0 && i < j->w.n; i++)
        for (int64_t t = 0; t < c->prompt.n; t++)
            if (text_tokens_push(&c[i].prompt, c->prompt.v[t], e))
                return e->code;
    for (int i = 0; f->status == 0 && i < j->w.n; i++)
        if ((j->method == SERVE_CHAT && open_reader(s, j, &c[i], *thinking, f, e)) ||
            (f->status == 0 && submit(s, j, &c[i], *thinking, f, e)))
            return e->code;
    return ERR_OK;
}

enum err_code serve_start(struct serve *s, struct job *j, struct fault *f, struct err *e)
{
    bool thinking = false;

    j->beside = s->beside;
    j->n_prompts = j->method == SERVE_CHAT ? 1 : count_prompts(j->method == SERVE_EMBEDDING ? j->w.input : j->w.prompt);
    if (j->n_prompts > PROMPTS_MAX) {
        serve_fault(f, 400, j->method == SERVE_EMBEDDING ? "/input" : "/prompt", "more than %d prompts", PROMPTS_MAX);
        return ERR_OK;
    }
    if (j->method == SERVE_EMBEDDING && !s->o.embeddings) {
        serve_fault(f, 400, "", "embeddings are not offered here");
        return ERR_OK;
    }
    if (!name_adapters(j->beside, &j->w, f))
        return ERR_OK;
    if (take_beside(j, f, e) || f->status != 0)
        return e->code;
    j->n_choices = j->n_prompts * j->w.n;
    j->choice = calloc((size_t)j->n_choices, sizeof *j->choice);
    if (j->choice == NULL)
        return err_nomem(e);
    for (int i = 0; i < j->n_choices; i++)
        j->choice[i] = (struct choice){ .job = j, .index = i };
    if (!j->w.seeded)
        j->w.q.sample.seed = fresh_seed(s, j);
    for (int i = 0; i < j->n_prompts && f->status == 0; i++)
        if (start_prompt(s, j, i, &thinking, f, e))
            return e->code;
    return ERR_OK;
}
