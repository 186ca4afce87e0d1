/* SPDX-License-Identifier: Apache-2.0 */
/* prompt.c - what the model reads: messages by its template, a text, tokens.  room: ask */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ask/internal.h"
#include "chat/chat.h"
#include "text/buf.h"

int64_t ask_local_s(void)
{
    const time_t now = time(NULL);
    struct tm local;

    return localtime_r(&now, &local) != NULL ? (int64_t)timegm(&local) : (int64_t)now;
}

enum err_code ask_user_text(char **out, size_t *n, const json_t *messages, struct err *e)
{
    struct text_buf b = { 0 };
    const json_t *content = NULL, *part;
    size_t i;

    for (i = json_array_size(messages); i-- > 0 && content == NULL;) {
        struct str role;

        if (json_get_str(json_array_get(messages, i), "role", &role) && str_is(role, "user"))
            content = json_object_get(json_array_get(messages, i), "content");
    }
    text_buf_add(&b, json_is_string(content) ? json_text(content) : STR(""));
    json_array_foreach (content, i, part) {
        struct str s;

        if (json_get_str(part, "text", &s))
            text_buf_add(&b, s);
    }
    text_buf_add(&b, (struct str){ "", 1 });
    if (b.failed) {
        free(b.p);
        return err_nomem(e);
    }
    *out = b.p;
    *n = b.n - 1;
    return ERR_OK;
}

const json_t *ask_tools(const struct ask *a)
{
    const bool none = a->tools == NULL || (json_is_array(a->tools) && json_array_size(a->tools) == 0);

    return none || strcmp(a->tool_choice, "none") == 0 ? NULL : a->tools;
}

bool ask_is_not_to_reason(const struct ask *a)
{
    const json_t *asked = json_object_get(a->kwargs, "enable_thinking");

    return a->reason.budget_tokens == 0 || a->reason.effort == REASON_EFFORT_NONE ||
           (asked != NULL ? json_is_false(asked) : a->think == 0);
}

/* Variables of the template. *extra: the caller's reference; NULL: none. */
static enum err_code set_variables(json_t **extra, const struct ask *a, struct err *e)
{
    const int think = a->reason.budget_tokens == 0 || a->reason.effort == REASON_EFFORT_NONE ? 0 : a->think;
    const char *effort = reason_effort_name(a->reason.effort);
    json_t *all = json_object();

    if (all == NULL || (*effort != '\0' && json_object_set_new(all, "reasoning_effort", json_string(effort))) ||
        (think >= 0 && json_object_set_new(all, "enable_thinking", json_boolean(think))) ||
        (a->kwargs != NULL && json_object_update(all, (json_t *)(uintptr_t)a->kwargs))) {
        json_decref(all);
        return err_nomem(e);
    }
    *extra = all;
    return ERR_OK;
}

/* The template's input. *extra is released by the caller. */
static enum err_code open_chat_prompt(struct chat_prompt *p, json_t **extra, const struct ask_request *r,
                                      const struct ask *a, const struct ask_model *m, struct err *e)
{
    if (m->chat == NULL) {
        err_set(e, ERR_UNSUPPORTED, "the model has no chat template: ask for completions");
        return err_at(e, "/messages");
    }
    if (set_variables(extra, a, e))
        return e->code;
    *p = (struct chat_prompt){ .messages = r->messages != NULL ? r->messages : a->messages,
                               .tools = a->tools_are_told ? NULL : ask_tools(a),
                               .extra = *extra,
                               .memo = m->memo,
                               .generate = !a->add_no_answer && !a->continues_last,
                               .continues = a->continues_last,
                               .closes = ask_is_not_to_reason(a),
                               .follows = a->n_token > 0,
                               .now_s = a->now_s != 0 ? a->now_s : ask_local_s() };
    return ERR_OK;
}

/* The messages, of which the last one is a copy. */
static json_t *copy_messages(const json_t *messages)
{
    json_t *all = json_shallow(messages);
    const size_t n = json_array_size(all);

    return json_if(n == 0 || json_array_set_new(all, n - 1, json_deep_copy(json_array_get(all, n - 1))) == 0, all);
}

/* Texts of indexes: what is recited is looked for in the messages as they came, before notes are added. */
static enum err_code use_indexes(struct ask_request *r, const struct ask *a, struct err *e)
{
    const struct ask_index *recite[] = { a->context, a->recite };
    const bool recites = (a->context != NULL || a->recite != NULL) && a->n_recite != 0,
               notes = a->notes != NULL && a->n_notes != 0;

    if ((recites || notes) && (r->notes = json_array()) == NULL)
        return err_nomem(e);
    for (int i = 0; i < 2 && recites && r->mix.recital.n == 0; i++)
        if (recite[i] != NULL &&
            recite[i]->recite(recite[i]->of, a->messages, a->n_recite, &r->recital, &r->mix.recital, r->notes, e))
            return err_at(e, "/messages");
    if (notes && (r->messages = copy_messages(a->messages)) == NULL)
        return err_nomem(e);
    if (notes && a->notes->add_notes(a->notes->of, r->messages, a->n_notes, r->notes, e))
        return err_at(e, "/messages");
    return ERR_OK;
}

/* What a request has of it besides tokens. */
static void free_texts(struct ask_request *r)
{
    text_tokens_free(&r->recital);
    json_decref(r->notes);
    json_decref(r->messages);
}

static enum err_code render_messages(struct ask_request *r, const struct ask *a, const struct ask_model *m,
                                     struct err *e)
{
    struct chat_prompt p;
    json_t *extra = NULL;

    if (use_indexes(r, a, e) || open_chat_prompt(&p, &extra, r, a, m, e))
        return e->code;
    const enum err_code code = chat_render(m->chat, &p, &r->prompt, &r->thinking, e);

    json_decref(extra);
    return code;
}

enum err_code ask_prompt_text(char **out, size_t *n, const struct ask *a, const struct ask_model *m, struct err *e)
{
    struct ask_request r = { .q = { .n_prompt = 0 } };
    struct chat_prompt p;
    json_t *extra = NULL;
    enum err_code code = use_indexes(&r, a, e) ? e->code : open_chat_prompt(&p, &extra, &r, a, m, e);

    if (code == ERR_OK)
        code = chat_render_text(m->chat, &p, out, n, e);
    json_decref(extra);
    free_texts(&r);
    return code;
}

static enum err_code encode_text(struct ask_request *r, const struct ask *a, const struct ask_model *m, struct err *e)
{
    const struct text_info *info = text_info(m->text);
    const bool begins = r->prompt.n == 0;

    if (text_encode(m->text, a->text, (a->plain ? 0 : TEXT_SPECIAL) | (begins ? TEXT_ADD : 0), &r->prompt, e))
        return e->code;
    /* A text to go on from does not end. */
    if (begins && info->add_eos && r->prompt.n > 0 && r->prompt.v[r->prompt.n - 1] == info->eos)
        r->prompt.n--;
    return ERR_OK;
}

/* Of borders that are close to each other the last one is left: each ends a step, and what comes between is evaluated
 * again sooner than in a step of its own. */
static int thin_borders(int64_t *at, int n)
{
    enum { APART = 32 };
    int k = n;

    for (int i = n - 1; i >= 0; i--)
        if (i == n - 1 || at[k] - at[i] >= APART)
            at[--k] = at[i];
    memmove(at, at + k, (size_t)(n - k) * sizeof *at);
    return n - k;
}

/* Where messages end; of a prompt that has none, before its last token, which is evaluated again anyway. */
static void find_borders(struct ask_request *r, const struct ask *a, const struct ask_model *m)
{
    const int room = (int)(sizeof r->border / sizeof r->border[0]), most = a->n_borders < room ? a->n_borders : room;
    int n = most > 0 && m->chat != NULL ? chat_borders(m->chat, r->prompt.v, r->prompt.n, r->border, most) : 0;

    n = thin_borders(r->border, n);
    if (most == 1 && n == 0 && r->prompt.n > 1)
        r->border[n++] = r->prompt.n - 1;
    r->q.marks = r->border;
    r->q.n_marks = n;
}

/* Tokens, and what comes after them. */
static enum err_code add_prompt(struct ask_request *r, const struct ask *a, const struct ask_model *m, struct err *e)
{
    if (text_tokens_add(&r->prompt, a->token, a->n_token, e))
        return e->code;
    if (a->messages != NULL)
        return render_messages(r, a, m, e);
    return a->text.p != NULL ? encode_text(r, a, m, e) : ERR_OK;
}

enum err_code ask_prompt(struct text_tokens *out, const struct ask *a, const struct ask_model *m, bool *thinking,
                         struct err *e)
{
    struct ask_request r = { .q = { .n_prompt = 0 } };
    enum err_code code = add_prompt(&r, a, m, e);

    if (code == ERR_OK)
        code = text_tokens_add(out, r.prompt.v, r.prompt.n, e);
    if (thinking != NULL)
        *thinking = r.thinking;
    text_tokens_free(&r.prompt);
    free_texts(&r);
    return code;
}

enum err_code ask_make_prompt(struct ask_request *r, const struct ask *a, const struct ask_model *m, struct err *e)
{
    if (add_prompt(r, a, m, e))
        return e->code;
    find_borders(r, a, m);
    return ERR_OK;
}
