/* SPDX-License-Identifier: Apache-2.0 */
/* chat.c - a conversation to a prompt: data for the template, tokens of what it writes. room: chat
 *
 * What a client may write is data. Two things in it are counted as the template's, because
 * templates build control tokens from them ("<|" + role + "|>"): the texts of bos and eos, which
 * come from the model file, and roles, when they are the usual ones or stand as a literal in the
 * template.
 */
#include <stdlib.h>
#include <string.h>
#include "chat/chat.h"
#include "chat/internal.h"
#include "chat/jinja.h"
#include "chat/reader.h"
#include "text/text.h"

enum { DATA_DEPTH_MAX = 128 };

/* ---- data ---- */
/* Bytes of text in v, and a few for each value. */
static size_t data_size(const json_t *v, int depth)
{
    size_t n = 16;

    if (depth > DATA_DEPTH_MAX)
        return n;
    if (json_is_string(v))
        return n + json_string_length(v);
    if (json_is_array(v))
        for (size_t i = 0; i < json_array_size(v); i++)
            n += data_size(json_array_get(v, i), depth + 1);
    if (json_is_object(v)) {
        json_t *o = (json_t *)(uintptr_t)v;
        for (void *it = json_object_iter(o); it != NULL; it = json_object_iter_next(o, it))
            n += strlen(json_object_iter_key(it)) + data_size(json_object_iter_value(it), depth + 1);
    }
    return n;
}

static bool fail_message(struct jin *j, enum err_code code, size_t i, const char *why)
{
    if (j->e->code == ERR_OK) {
        err_set(j->e, code, "message %zu: %s", i, why);
        err_at(j->e, "/messages/%zu", i);
    }
    return false;
}

static bool is_usual_role(struct str role)
{
    static const char *const usual[] = { "system", "user", "assistant", "tool", "developer", "function" };

    for (size_t i = 0; i < sizeof usual / sizeof usual[0]; i++)
        if (str_is(role, usual[i]))
            return true;
    return false;
}

static bool is_literal(struct str template, struct str s)
{
    char quoted[64];

    if (s.n == 0 || s.n > sizeof quoted - 2)
        return false;
    for (size_t i = 0; i < s.n; i++)
        if (!((s.p[i] | 32) >= 'a' && (s.p[i] | 32) <= 'z') && s.p[i] != '_' && s.p[i] != '-')
            return false;
    for (int k = 0; k < 2; k++) {
        memset(quoted, k == 0 ? '\'' : '"', s.n + 2);
        memcpy(quoted + 1, s.p, s.n);
        if (str_find(template, 0, (struct str){ quoted, s.n + 2 }) != SIZE_MAX)
            return true;
    }
    return false;
}

/* Parts of a content that no model here can read. */
static bool check_parts(struct jin *j, size_t i, const struct val *content)
{
    static const char *const other[] = { "image", "image_url", "video",       "video_url",
                                         "audio", "audio_url", "input_audio", "input_image" };
    const struct vlist *l = content->u.l;

    for (size_t k = 0; content->kind == VAL_LIST && k < l->n; k++) {
        const struct val *type = l->v[k].kind == VAL_DICT ? chat_dict_find(l->v[k].u.d, STR("type")) : NULL;
        for (size_t m = 0; m < sizeof other / sizeof other[0]; m++)
            if ((type != NULL && type->kind == VAL_STR && str_is(chat_str(type), other[m])) ||
                (l->v[k].kind == VAL_DICT && chat_dict_find(l->v[k].u.d, str_of(other[m])) != NULL))
                return fail_message(j, ERR_UNSUPPORTED, i, "images, videos and sound are not supported");
    }
    return true;
}

/* Arguments are an object, or as OpenAI's interface has them a string that holds one. */
static bool parse_arguments(struct jin *j, struct vdict *call)
{
    static const char what[] = "the arguments of a tool call";
    struct val *args = chat_dict_find(call, STR("arguments")), v;

    if (args == NULL || args->kind == VAL_DICT)
        return true;
    struct str text = args->kind == VAL_STR ? chat_str(args) : STR("x");
    while (args->kind == VAL_STR && text.n > 0 && memchr(" \t\r\n", text.p[text.n - 1], 4) != NULL)
        text.n--;
    if (args->kind == VAL_NONE || text.n == 0)
        return chat_dict_new(j, args);
    if (args->kind == VAL_STR && !chat_json_read(j, text, what, &v))
        return false;
    if (args->kind != VAL_STR || (v.kind != VAL_DICT && v.kind != VAL_NONE)) {
        err_set(j->e, ERR_FORMAT, "%s are not an object", what);
        return false;
    }
    if (v.kind == VAL_NONE)
        return chat_dict_new(j, args);
    *args = v;
    return true;
}

static bool fix_call(struct jin *j, struct val *call)
{
    struct val *function = call->kind == VAL_DICT ? chat_dict_find(call->u.d, STR("function")) : NULL;
    const bool wrapped = function != NULL && function->kind == VAL_DICT;

    if (call->kind != VAL_DICT) {
        err_set(j->e, ERR_FORMAT, "not an object");
        return false;
    }
    if (parse_arguments(j, wrapped ? function->u.d : call->u.d))
        return true;
    err_at(j->e, wrapped ? "/function/arguments" : "/arguments");
    return false;
}

static bool fix_message(const struct chat *c, struct jin *j, size_t i, struct vdict *m)
{
    struct val *role = chat_dict_find(m, STR("role")), *content = chat_dict_find(m, STR("content")),
               *calls = chat_dict_find(m, STR("tool_calls"));

    if (role != NULL && role->kind == VAL_STR && str_is(chat_str(role), "developer") &&
        !str_has(chat_template(c), "developer") &&
        !chat_str_new(j, STR("system"), true, role)) /* newer clients' name for it */
        return false;
    if (role != NULL && role->kind == VAL_STR &&
        (is_usual_role(chat_str(role)) || is_literal(chat_template(c), chat_str(role))) &&
        !chat_str_new(j, chat_str(role), true, role))
        return false;
    if (content != NULL && !check_parts(j, i, content))
        return false;
    if (calls != NULL && calls->kind != VAL_LIST && calls->kind != VAL_NONE)
        return fail_message(j, ERR_FORMAT, i, "tool_calls is not an array");
    for (size_t k = 0; calls != NULL && calls->kind == VAL_LIST && k < calls->u.l->n; k++) {
        if (fix_call(j, &calls->u.l->v[k]))
            continue;
        err_wrap(j->e, "message %zu: tool_calls/%zu", i, k);
        err_at(j->e, "/messages/%zu/tool_calls/%zu", i, k);
        return false;
    }
    return true;
}

/* An exchange before the messages that follow an answer; its words are in no other text. */
static const char before_question[] = "Qzq before?", before_answer[] = "Qzq before.";

static bool add_before(struct jin *j, const char *role, const char *content, struct vlist *l)
{
    struct val m, key, v;

    return chat_dict_new(j, &m) && chat_str_new(j, STR("role"), false, &key) &&
           chat_str_new(j, str_of(role), true, &v) && chat_dict_set(j, m.u.d, key, v) &&
           chat_str_new(j, STR("content"), false, &key) && chat_str_new(j, str_of(content), false, &v) &&
           chat_dict_set(j, m.u.d, key, v) && chat_list_add(j, l, m);
}

static bool set_messages(const struct chat *c, struct jin *j, const json_t *messages, bool follows)
{
    struct val v, all;

    if (json_array_size(messages) == 0) {
        err_set(j->e, ERR_FORMAT, "messages: not an array with at least one message");
        err_at(j->e, "/messages");
        return false;
    }
    if (!chat_json_value(j, messages, &v))
        return false;
    for (size_t i = 0; i < v.u.l->n; i++) {
        if (v.u.l->v[i].kind != VAL_DICT)
            return fail_message(j, ERR_FORMAT, i, "not an object");
        if (!fix_message(c, j, i, v.u.l->v[i].u.d))
            return false;
    }
    j->messages = v;
    if (!follows)
        return chat_jin_set(j, "messages", v);
    if (!chat_list_new(j, VAL_LIST, v.u.l->n + 2, &all) || !add_before(j, "user", before_question, all.u.l) ||
        !add_before(j, "assistant", before_answer, all.u.l))
        return false;
    for (size_t i = 0; i < v.u.l->n; i++)
        if (!chat_list_add(j, all.u.l, v.u.l->v[i]))
            return false;
    return chat_jin_set(j, "messages", all);
}

static bool set_list(struct jin *j, const char *name, const json_t *list)
{
    struct val v = chat_none();

    if (list != NULL && !json_is_null(list) && !json_is_array(list)) {
        err_set(j->e, ERR_FORMAT, "%s: not a list", name);
        err_at(j->e, "/%s", name);
        return false;
    }
    if (json_array_size(list) > 0 && !chat_json_value(j, list, &v))
        return false;
    return chat_jin_set(j, name, v);
}

static bool set_token(struct jin *j, const struct text *t, const char *name, int32_t id)
{
    struct val v;

    if (id < 0)
        return true;
    return chat_str_new(j, text_piece(t, id), true, &v) && chat_jin_set(j, name, v);
}

static bool set_variables(const struct chat *c, struct jin *j, const struct chat_prompt *p)
{
    const struct text_info *info = text_info(c->text);
    struct val v;

    if (!set_token(j, c->text, "bos_token", info->bos) || !set_token(j, c->text, "eos_token", info->eos) ||
        !set_token(j, c->text, "pad_token", info->pad))
        return false;
    if (p->extra != NULL && !json_is_object(p->extra) && !json_is_null(p->extra))
        err_set(j->e, ERR_FORMAT, "variables of the chat template: not an object");
    else if (json_object_get(p->extra, "messages") != NULL || json_object_get(p->extra, "tools") != NULL)
        err_set(j->e, ERR_ARG, "variables of the chat template: messages and tools are not given among them");
    if (j->e->code != ERR_OK) {
        err_at(j->e, "/chat_template_kwargs");
        return false;
    }
    if (!set_messages(c, j, p->messages, p->follows) || !set_list(j, "tools", p->tools) ||
        !set_list(j, "documents", p->documents) || !chat_jin_set(j, "add_generation_prompt", chat_bool(p->generate)))
        return false;
    json_t *extra = (json_t *)(uintptr_t)p->extra;
    for (void *it = json_object_iter(extra); it != NULL; it = json_object_iter_next(extra, it))
        if (!chat_json_value(j, json_object_iter_value(it), &v) || !chat_jin_set(j, json_object_iter_key(it), v))
            return false;
    return true;
}

/* ---- a prompt ---- */
/* Leaves what comes after the answer before the messages. */
static bool cut_before(struct sbuf *b, struct err *e)
{
    const struct str answer = str_of(before_answer);
    size_t at = str_find((struct str){ b->p, b->n }, 0, answer);

    if (at == SIZE_MAX) {
        err_set(e, ERR_UNSUPPORTED, "the chat template does not show an answer: a conversation cannot go on from one");
        return false;
    }
    at += answer.n;
    b->p += at;
    b->mark = b->mark != NULL ? b->mark + at : NULL;
    b->n -= at;
    return true;
}

/* The text that the last message ends with, without white space around it. *space: what is left out at its end. */
static bool last_text(const json_t *messages, struct str *text, struct str *space)
{
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1),
                 *content = json_object_get(last, "content");
    const char *role = json_string_value(json_object_get(last, "role"));
    size_t n;

    if (json_is_array(content))
        content = json_object_get(json_array_get(content, json_array_size(content) - 1), "text");
    if (role == NULL || strcmp(role, "assistant") != 0 || !json_is_string(content) ||
        json_array_size(json_object_get(last, "tool_calls")) > 0)
        return false;
    *text = json_text(content);
    for (n = text->n; n > 0 && memchr(" \t\r\n", text->p[n - 1], 4) != NULL;)
        n--;
    *space = (struct str){ text->p + n, text->n - n };
    text->n = n;
    for (; text->n > 0 && memchr(" \t\r\n", text->p[0], 4) != NULL; text->n--)
        text->p++;
    return text->n > 0;
}

/* Whether the text stands at `at`, and not as a part of the template. */
static bool is_said(const struct sbuf *b, size_t at, struct str text)
{
    return at + text.n <= b->n && memcmp(b->p + at, text.p, text.n) == 0 &&
           (b->mark != NULL ? memchr(b->mark + at, 1, text.n) == NULL : !b->ours);
}

/* Leaves what comes up to the end of the last message's text; templates may trim it. */
static bool cut_behind_last(struct sbuf *b, const json_t *messages, struct err *e)
{
    const size_t number = json_array_size(messages) - 1;
    struct str text, space;

    if (!last_text(messages, &text, &space)) {
        err_set(e, ERR_FORMAT, "message %zu: not a text of the assistant that can go on", number);
        err_at(e, "/messages/%zu", number);
        return false;
    }
    for (size_t at = b->n; at-- > 0;) {
        if (!is_said(b, at, text))
            continue;
        at += text.n;
        for (size_t i = 0; i < space.n && is_said(b, at, (struct str){ space.p + i, 1 }); i++)
            at++;
        b->n = at;
        return true;
    }
    err_set(e, ERR_UNSUPPORTED, "the chat template does not show the last message as it is: it cannot go on");
    err_at(e, "/messages/%zu", number);
    return false;
}

enum err_code chat_write(const struct chat *c, const struct chat_prompt *p, struct chat_text *out, struct err *e)
{
    size_t bytes =
        data_size(p->messages, 0) + data_size(p->tools, 0) + data_size(p->documents, 0) + data_size(p->extra, 0);
    struct jin j;
    struct sbuf b = { 0 };
    struct err own = { 0 };
    enum err_code rc = chat_jin_open(&j, c->template, bytes, &own);

    if (rc)
        return err_copy(e, &own);
    j.now_s = p->now_s;
    j.lists_change = true;
    if (set_variables(c, &j, p) && chat_jin_run(&j, &b) && (!p->follows || cut_before(&b, &own)) &&
        (!p->continues || cut_behind_last(&b, p->messages, &own))) {
        char *text = malloc(b.n + 1);
        unsigned char *mark = malloc(b.n + 1);
        if (text == NULL || mark == NULL) {
            free(text);
            free(mark);
            err_nomem(&own);
        } else {
            if (b.n > 0)
                memcpy(text, b.p, b.n);
            text[b.n] = '\0';
            if (b.mark != NULL)
                memcpy(mark, b.mark, b.n);
            else
                memset(mark, b.ours, b.n);
            *out = (struct chat_text){ text, mark, b.n };
        }
    }
    chat_jin_close(&j);
    if (own.code == ERR_OK && p->closes && chat_close_text(c, out, &own))
        chat_text_free(out);
    return own.code == ERR_OK ? ERR_OK : err_copy(e, &own);
}

void chat_text_free(struct chat_text *t)
{
    free(t->p);
    free(t->mark);
    *t = (struct chat_text){ 0 };
}

enum err_code chat_render(const struct chat *c, const struct chat_prompt *p, struct text_tokens *out, bool *thinking,
                          struct err *e)
{
    struct chat_text t = { 0 };
    enum err_code rc = chat_write(c, p, &t, e);

    if (rc == ERR_OK)
        rc = text_encode_marked(c->text, (struct str){ t.p, t.n }, t.mark, p->memo, out, e);
    if (rc == ERR_OK)
        *thinking = chat_ends_inside(c, (struct str){ t.p, t.n }, t.mark);
    chat_text_free(&t);
    return rc;
}

enum err_code chat_render_text(const struct chat *c, const struct chat_prompt *p, char **out, size_t *n, struct err *e)
{
    struct chat_text t = { 0 };
    enum err_code rc = chat_write(c, p, &t, e);

    if (rc)
        return rc;
    free(t.mark);
    *out = t.p;
    *n = t.n;
    return ERR_OK;
}

/* ---- opening ---- */
struct str chat_template(const struct chat *c)
{
    return (struct str){ c->source, c->source_bytes };
}

enum err_code chat_open(struct chat **out, const struct text *t, struct str template_text, struct err *e)
{
    struct chat *c;
    enum err_code rc;

    if (template_text.n == 0)
        template_text = text_info(t)->chat_template;
    if (template_text.n == 0)
        return err_set(e, ERR_UNSUPPORTED, "the model has no chat template");
    if ((c = calloc(1, sizeof *c)) == NULL || (c->source = malloc(template_text.n)) == NULL) {
        free(c);
        return err_nomem(e);
    }
    memcpy(c->source, template_text.p, template_text.n);
    c->source_bytes = template_text.n;
    c->text = t;
    rc = chat_jinja_open(&c->template, template_text, e);
    if (rc == ERR_OK)
        rc = chat_set_parser(c, chat_reader_find(template_text), e);
    if (rc == ERR_OK)
        rc = chat_learn_borders(c, e);
    if (rc) {
        chat_close(c);
        return rc;
    }
    *out = c;
    return ERR_OK;
}

void chat_close(struct chat *c)
{
    if (c == NULL)
        return;
    chat_jinja_close(c->template);
    free(c->source);
    free(c);
}
