/* SPDX-License-Identifier: Apache-2.0 */
/* message_reply.c - an answer in the form of Anthropic's Messages interface: blocks, and events of a stream.
 * room: serve */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "serve/internal.h"

/* An event of a stream; o is taken. Nothing without a stream. */
static enum err_code push_event(struct serve *s, struct serve_job *j, json_t *o, struct err *e)
{
    if (j->w.stream)
        return serve_push(s, j, SERVE_CHUNK, o, 200, false, e);
    json_decref(o);
    return ERR_OK;
}

/* An event of the block that is under way. */
static enum err_code push_of_block(struct serve *s, struct serve_job *j, const struct serve_choice *c, const char *type,
                                   const char *key, json_t *value, struct err *e)
{
    return push_event(
        s, j, json_pack("{s:s, s:I, s:o}", "type", type, "index", (json_int_t)json_array_size(c->items), key, value),
        e);
}

static enum err_code push_stop(struct serve *s, struct serve_job *j, const struct serve_choice *c, struct err *e)
{
    return push_event(
        s, j, json_pack("{s:s, s:I}", "type", "content_block_stop", "index", (json_int_t)json_array_size(c->items)), e);
}

/* What is taken from earlier requests is not counted as input again. */
static json_t *usage_of(const struct serve_choice *c)
{
    const struct gen_stats *t = &c->stats;

    return json_pack("{s:I, s:i, s:I, s:I, s:{s:I}}", "input_tokens", (json_int_t)(t->prompt_tokens - t->cached_tokens),
                     "cache_creation_input_tokens", 0, "cache_read_input_tokens", (json_int_t)t->cached_tokens,
                     "output_tokens", (json_int_t)(t->tokens + c->job->more_tokens), "output_tokens_details",
                     "thinking_tokens", (json_int_t)(t->reasoning_tokens + c->job->more_reasoning));
}

/* The message with these blocks, which are taken. */
static json_t *message(const struct serve *s, const struct serve_job *j, const struct serve_choice *c, json_t *content,
                       const char *reason, json_t *sequence)
{
    char id[SERVE_ID_BYTES];

    serve_reply_id(s, j, id);
    return json_pack("{s:s, s:s, s:s, s:O, s:o, s:s?, s:o, s:o}", "id", id, "type", "message", "role", "assistant",
                     "model", s->model, "content", content, "stop_reason", reason, "stop_sequence", sequence, "usage",
                     usage_of(c));
}

enum err_code serve_message_begin(struct serve *s, struct serve_job *j, struct serve_choice *c, struct err *e)
{
    if ((c->items = json_array()) == NULL)
        return err_nomem(e);
    if (!j->w.stream)
        return ERR_OK;
    return push_event(s, j,
                      json_pack("{s:s, s:o}", "type", "message_start", "message",
                                message(s, j, c, json_array(), NULL, json_null())),
                      e) ||
                   push_event(s, j, json_pack("{s:s}", "type", "ping"), e)
               ? e->code
               : ERR_OK;
}

/* Clients ask for a signature. It is a hash of what was thought: the same bytes for the same thoughts. */
static void sign(char out[24], const struct serve_buf *thought)
{
    (void)snprintf(out, 24, "%016" PRIx64, io_hash(0, thought->p != NULL ? thought->p : "", thought->n));
}

/* Whether the request wants thoughts without their text. */
static bool hides_thoughts(const struct serve_job *j)
{
    const char *s = json_string_value(json_object_get(json_object_get(j->asked, "thinking"), "display"));

    return s != NULL && strcmp(s, "omitted") == 0;
}

/* Ends the block that is open. */
static enum err_code close_block(struct serve *s, struct serve_job *j, struct serve_choice *c, struct err *e)
{
    const bool thought = c->open == ITEM_REASONING;
    struct str text = { c->text.p != NULL ? c->text.p : "", c->text.n };
    char signature[24];
    json_t *block;

    if (c->open == ITEM_NONE)
        return ERR_OK;
    sign(signature, &c->text);
    if (thought && hides_thoughts(j))
        text = STR("");
    if ((thought && push_of_block(s, j, c, "content_block_delta", "delta",
                                  json_pack("{s:s, s:s}", "type", "signature_delta", "signature", signature), e)) ||
        push_stop(s, j, c, e))
        return e->code;
    block = thought
                ? json_pack("{s:s, s:o, s:s}", "type", "thinking", "thinking", json_bytes(text), "signature", signature)
                : json_pack("{s:s, s:o}", "type", "text", "text", json_bytes(text));
    c->open = ITEM_NONE;
    c->text.n = 0;
    return json_array_append_new(c->items, block) ? err_nomem(e) : ERR_OK;
}

static enum err_code open_block(struct serve *s, struct serve_job *j, struct serve_choice *c, enum serve_item_kind kind,
                                struct err *e)
{
    if (c->open == kind)
        return ERR_OK;
    if (close_block(s, j, c, e))
        return e->code;
    c->open = kind;
    return push_of_block(s, j, c, "content_block_start", "content_block",
                         kind == ITEM_REASONING
                             ? json_pack("{s:s, s:s, s:s}", "type", "thinking", "thinking", "", "signature", "")
                             : json_pack("{s:s, s:s}", "type", "text", "text", ""),
                         e);
}

/* What a tool is called with. A number that our JSON does not hold leaves the text. */
static json_t *input_of(struct str arguments)
{
    json_t *v;
    struct err why;

    if (json_parse_own(&v, arguments, "the input", &why) == ERR_OK)
        return v;
    return json_pack("{s:o}", "arguments", json_bytes(arguments));
}

static json_t *call_block(const struct chat_piece *p, json_t *input)
{
    return json_pack("{s:s, s:o, s:o, s:o}", "type", "tool_use", "id", json_bytes(p->id), "name", json_bytes(p->name),
                     "input", input);
}

/* What a call asks for grows in a stream. One that fails is over, and not in the whole answer. */
static enum err_code take_call(struct serve *s, struct serve_job *j, struct serve_choice *c, const struct chat_piece *p,
                               struct err *e)
{
    json_t *block;

    if (!j->w.stream && p->step != CHAT_CALL_END)
        return ERR_OK;
    if (close_block(s, j, c, e))
        return e->code;
    if (p->step == CHAT_CALL_BEGIN)
        return push_of_block(s, j, c, "content_block_start", "content_block", call_block(p, json_object()), e);
    if (p->step == CHAT_CALL_MORE)
        return push_of_block(s, j, c, "content_block_delta", "delta",
                             json_pack("{s:s, s:o}", "type", "input_json_delta", "partial_json", json_bytes(p->text)),
                             e);
    if (push_stop(s, j, c, e))
        return e->code;
    block = p->step == CHAT_CALL_END ? call_block(p, input_of(p->text)) : json_null();
    return json_array_append_new(c->items, block) ? err_nomem(e) : ERR_OK;
}

enum err_code serve_message_piece(struct serve *s, struct serve_job *j, struct serve_choice *c,
                                  const struct chat_piece *p, struct err *e)
{
    const bool thought = p->part == CHAT_REASONING;

    if (p->part == CHAT_TOOL)
        return take_call(s, j, c, p, e);
    if (p->text.n == 0)
        return ERR_OK;
    if (open_block(s, j, c, thought ? ITEM_REASONING : ITEM_MESSAGE, e))
        return e->code;
    if (!serve_add(&c->text, p->text))
        return err_nomem(e);
    if (thought && hides_thoughts(j))
        return ERR_OK;
    return push_of_block(s, j, c, "content_block_delta", "delta",
                         json_pack("{s:s, s:o}", "type", thought ? "thinking_delta" : "text_delta",
                                   thought ? "thinking" : "text", json_bytes(p->text)),
                         e);
}

static bool has_calls(const struct serve_choice *c)
{
    const json_t *block;
    size_t i;

    json_array_foreach (c->items, i, block)
        if (serve_is_type(block, "tool_use"))
            return true;
    return false;
}

static const char *stop_reason(const struct serve_choice *c)
{
    switch (c->end) {
    case GEN_LENGTH:
    case GEN_LOOP:
        return "max_tokens";
    case GEN_CONTEXT:
        return "model_context_window_exceeded";
    case GEN_STOP_STRING:
        return "stop_sequence";
    case GEN_EOS:
    case GEN_STOPPED:
    case GEN_STEP:
    case GEN_CANCELLED:
    case GEN_FAILED:
        break;
    }
    return has_calls(c) ? "tool_use" : "end_turn";
}

enum err_code serve_message_end(struct serve *s, struct serve_job *j, struct serve_choice *c, struct err *e)
{
    json_t *sequence, *last;

    if (close_block(s, j, c, e))
        return e->code;
    sequence = c->end == GEN_STOP_STRING ? json_bytes(j->w.stops[c->stop]) : json_null();
    last = !j->w.stream ? message(s, j, c, json_incref(c->items), stop_reason(c), sequence)
                        : json_pack("{s:s, s:{s:s, s:o}, s:o}", "type", "message_delta", "delta", "stop_reason",
                                    stop_reason(c), "stop_sequence", sequence, "usage", usage_of(c));
    last = json_if(last != NULL && serve_add_beside(last, j, c), last);
    if (!j->w.stream)
        return serve_push(s, j, SERVE_BODY, last, 200, true, e);
    return push_event(s, j, last, e) || push_event(s, j, json_pack("{s:s}", "type", "message_stop"), e) ||
                   serve_push(s, j, SERVE_END, NULL, 200, true, e)
               ? e->code
               : ERR_OK;
}
