/* SPDX-License-Identifier: Apache-2.0 */
/* prompts.c - prompts without answers: as text, as tokens, their number.                     room: serve */
#include <stdlib.h>
#include <string.h>

#include "serve/internal.h"

json_t *serve_apply_template(struct serve *s, const json_t *body, const struct serve_client *who, struct serve_fault *f)
{
    struct serve_question w;
    json_t *reply = NULL;
    char *text = NULL;
    size_t n = 0;

    (void)who;
    if (serve_read_body(&w, s, SERVE_CHAT, body, f) && serve_write_prompt(s, &w, &text, &n, f))
        reply = json_pack("{s:o}", "prompt", json_bytes((struct str){ text, n }));
    serve_move_functions_fault(&w, f);
    free(text);
    serve_question_free(&w);
    return reply;
}

/* Counts the tokens of the prompt of a chat, or of what becomes one. */
static bool count_prompt(struct serve *s, enum serve_method method, const json_t *body, json_int_t *n,
                         struct serve_fault *f)
{
    const struct serve_dialect *d = serve_row(method)->dialect;
    json_t *chat =
        d != NULL ? serve_make_chat(method, body, false, s->o.lenient, f) : json_incref((json_t *)(uintptr_t)body);
    struct serve_question w = { .n = 0 };
    struct text_tokens t = { 0 };

    if (chat != NULL && !(serve_read_body(&w, s, method, chat, f) && serve_read_prompt(s, &w, &t, f)) && d != NULL)
        serve_move_fault(d, body, f);
    serve_move_functions_fault(&w, f);
    *n = t.n;
    text_tokens_free(&t);
    serve_question_free(&w);
    json_decref(chat);
    return f->status == 0;
}

static json_t *count_for_openai(struct serve *s, enum serve_method method, const json_t *body, struct serve_fault *f)
{
    json_int_t n;

    return count_prompt(s, method, body, &n, f)
               ? json_pack("{s:s, s:I}", "object", "response.input_tokens", "input_tokens", n)
               : NULL;
}

json_t *serve_count_chat(struct serve *s, const json_t *body, const struct serve_client *who, struct serve_fault *f)
{
    (void)who;
    return count_for_openai(s, SERVE_CHAT, body, f);
}

json_t *serve_count_response(struct serve *s, const json_t *body, const struct serve_client *who, struct serve_fault *f)
{
    (void)who;
    return count_for_openai(s, SERVE_RESPONSE, body, f);
}

json_t *serve_count_message(struct serve *s, const json_t *body, const struct serve_client *who, struct serve_fault *f)
{
    json_int_t n;

    (void)who;
    return count_prompt(s, SERVE_MESSAGE, body, &n, f) ? json_pack("{s:I}", "input_tokens", n) : NULL;
}

/* ---- tokens ---- */

/* A member that is true unless it says otherwise. */
static bool is_usual(const json_t *body, const char *member)
{
    const json_t *v = serve_member(body, member);

    return v == NULL || json_is_true(v);
}

/* A token's text; its bytes, if it is a part of a character. */
static json_t *piece_of(const struct serve *s, int32_t token)
{
    const struct str piece = text_piece(s->o.text, token);
    json_t *text = json_stringn(piece.p, piece.n);

    if (text != NULL)
        return text;
    text = json_array();
    for (size_t i = 0; i < piece.n; i++)
        json_push(&text, json_integer((unsigned char)piece.p[i]));
    return text;
}

/* The prompt of messages, with the members of a chat. */
static bool encode_chat(struct serve *s, const json_t *body, struct text_tokens *t, struct serve_fault *f)
{
    static const char *const own[] = { "special", "add_special_tokens", "return_token_strs", "with_pieces" };
    json_t *chat = json_shallow(body);
    struct serve_question w = { .n = 0 };
    bool ok = chat != NULL || serve_nomem(f);

    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        (void)json_object_del(chat, own[i]);
    ok = ok && serve_read_body(&w, s, SERVE_CHAT, chat, f) && serve_read_prompt(s, &w, t, f);
    serve_move_functions_fault(&w, f);
    serve_question_free(&w);
    json_decref(chat);
    return ok;
}

/* The text by the name of llama.cpp (content), vLLM (prompt) or ours (text). What it begins with by itself is added if
 * asked for, or with vLLM's name by default. */
static bool encode_text(struct serve *s, const json_t *body, struct text_tokens *t, struct serve_fault *f)
{
    static const char members[] =
        "text:S content:S prompt:S special:B parse_special:B add_special:B add_special_tokens:B "
        "with_pieces:B return_token_strs:B model:S";
    const char *name = json_object_get(body, "content") != NULL  ? "content"
                       : json_object_get(body, "prompt") != NULL ? "prompt"
                                                                 : "text";
    const json_t *text = json_object_get(body, name);
    const bool vllm = *name == 'p', add = json_is_true(json_object_get(body, "add_special")) ||
                                          (vllm && is_usual(body, "add_special_tokens"));
    const bool special = is_usual(body, "special") && is_usual(body, "parse_special");
    struct err e = { 0 };
    char pointer[POINTER_BYTES];

    if (!serve_check_object(body, members, s->o.lenient, f))
        return false;
    (void)serve_point_to(pointer, 0, name);
    if (!json_is_string(text))
        return serve_fault(f, 400, pointer, "%s: missing", name);
    return text_encode(s->o.text, json_text(text), (special ? TEXT_SPECIAL : 0) | (add ? TEXT_ADD : 0), t, &e) ==
               ERR_OK ||
           serve_fault(f, e.code == ERR_NOMEM ? 503 : 400, pointer, "%s", e.msg);
}

json_t *serve_tokenize(struct serve *s, const json_t *body, const struct serve_client *who, struct serve_fault *f)
{
    const bool chat = json_object_get(body, "messages") != NULL, vllm = chat || json_object_get(body, "prompt") != NULL;
    const bool pieces = json_is_true(json_object_get(body, "with_pieces"));
    struct text_tokens t = { 0 };
    json_t *ids = NULL, *texts = NULL, *reply;

    (void)who;
    if (!(chat ? encode_chat(s, body, &t, f) : encode_text(s, body, &t, f))) {
        text_tokens_free(&t);
        return NULL;
    }
    ids = json_array();
    texts = json_is_true(json_object_get(body, "return_token_strs")) ? json_array() : NULL;
    for (int64_t i = 0; i < t.n; i++) {
        json_push(&ids,
                  pieces ? json_pack("{s:i, s:o}", "id", t.v[i], "piece", piece_of(s, t.v[i])) : json_integer(t.v[i]));
        if (texts != NULL)
            json_push(&texts, json_bytes(text_piece(s->o.text, t.v[i])));
    }
    reply = json_pack("{s:o, s:o*}", "tokens", ids, "token_strs", texts);
    if (reply != NULL && vllm)
        reply = json_if(json_object_set_new(reply, "count", json_integer(t.n)) == 0 &&
                            json_object_set_new(reply, "max_model_len", json_integer(s->o.ctx_tokens)) == 0,
                        reply);
    text_tokens_free(&t);
    return reply;
}

json_t *serve_detokenize(struct serve *s, const json_t *body, const struct serve_client *who, struct serve_fault *f)
{
    struct text_tokens t = { 0 };
    struct err e = { 0 };
    json_t *text = NULL;
    char *p = NULL;
    size_t n = 0;

    (void)who;
    if (serve_read_ids(s, json_object_get(body, "tokens"), &t, "/tokens", f, &e) ||
        (f->status == 0 && text_decode(s->o.text, t.v, t.n, is_usual(body, "special") ? TEXT_SPECIAL : 0, &p, &n, &e)))
        serve_nomem(f);
    if (f->status == 0)
        text = json_bytes((struct str){ p, n });
    free(p);
    text_tokens_free(&t);
    /* content is the name in llama.cpp's interface, prompt in vLLM's */
    return f->status != 0 ? NULL : json_pack("{s:O, s:O, s:o}", "text", text, "content", text, "prompt", text);
}
