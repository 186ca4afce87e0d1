/* SPDX-License-Identifier: Apache-2.0 */
/* conversation.c - a conversation in a file (session.h).                          room: cmd */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/io.h"
#include "chat/chat.h"
#include "run/conversation.h"
#include "run/session.h"

enum { AROUND = 6 }; /* tokens shown on each side of a difference */

/* An id is letters, digits and '-': what stands in a file may be anything. */
static void read_answer(struct cli_session *s, const json_t *o)
{
    const json_int_t n = json_integer_value(json_object_get(o, "answer_tokens"));
    struct str id;

    if (!json_get_str(o, "answer", &id) || id.n >= sizeof s->answer || n < 0)
        return;
    for (size_t i = 0; i < id.n; i++)
        if (id.p[i] != '-' && (id.p[i] < '0' || id.p[i] > '9') && ((id.p[i] | 32) < 'a' || (id.p[i] | 32) > 'z'))
            return;
    memcpy(s->answer, id.p, id.n);
    s->n_answer = n;
}

/* The program's part of the file: {"chat": bool, "waiting": [ids], "system": "hexadecimal hash", "answer": "its id",
 * "answer_tokens": n}. */
static enum err_code read_blob(struct cli_session *s, struct err *e)
{
    size_t n;
    const char *p = run_session_blob(s->file, &n);
    json_t *o = NULL, *ids, *id;
    size_t i;
    enum err_code code = n > 0 ? json_parse_own(&o, (struct str){ p, n }, s->path, e) : ERR_OK;

    if (code == ERR_NOMEM)
        return code;
    code = ERR_OK; /* another's words are none */
    ids = json_object_get(o, "waiting");
    s->chat = json_is_true(json_object_get(o, "chat"));
    if (json_is_string(json_object_get(o, "system")))
        s->system = strtoull(json_string_value(json_object_get(o, "system")), NULL, 16);
    read_answer(s, o);
    json_array_foreach (ids, i, id) {
        json_int_t v = json_is_integer(id) ? json_integer_value(id) : -1;

        if (code == ERR_OK && (v < 0 || v > INT32_MAX))
            code = err_set(e, ERR_FORMAT, "%s: a token that waits is not a token id", s->path);
        if (code == ERR_OK)
            code = text_tokens_push(&s->held, (int32_t)v, e);
    }
    json_decref(o);
    return code;
}

enum err_code cli_session_open(struct cli_session *s, const char *path, bool shared, struct err *e)
{
    const int32_t *v;
    int64_t n;

    *s = (struct cli_session){ .path = path, .shared = shared };
    if (shared ? run_session_open_shared(&s->file, path, e) : run_session_open(&s->file, path, e))
        return e->code;
    v = run_session_tokens(s->file, &n);
    if (text_tokens_add(&s->held, v, n, e) || read_blob(s, e))
        return e->code;
    s->begun = s->held.n > 0;
    if (run_session_stat(s->file).torn_bytes > 0)
        cli_warn("%s: its last turn is not whole and is left out (%" PRId64
                 " bytes): the file was cut, or a program was killed "
                 "while it saved",
                 path, run_session_stat(s->file).torn_bytes);
    return ERR_OK;
}

void cli_session_close(struct cli_session *s)
{
    run_session_close(s->file);
    text_tokens_free(&s->held);
    *s = (struct cli_session){ 0 };
}

static uint64_t hash_of(const char *text)
{
    return io_hash(0, text, strlen(text)) | 1;
}

void cli_session_set_system(struct cli_session *s, const char *text)
{
    s->system = text != NULL ? hash_of(text) : 0;
}

bool cli_session_same_system(const struct cli_session *s, const char *text)
{
    return s->system == hash_of(text);
}

enum err_code cli_session_same_kind(const struct cli_session *s, bool chat, struct err *e)
{
    if (!s->begun || chat == s->chat)
        return ERR_OK;
    return err_set(e, ERR_ARG,
                   s->chat ? "%s: the session is a chat: without --raw and --tokens"
                           : "%s: the session is no chat: go on with --raw or --tokens",
                   s->path);
}

enum err_code cli_session_prefix(const struct cli_session *s, bool chat, const struct chat *format,
                                 struct text_tokens *prompt, struct err *e)
{
    if (!s->begun)
        return ERR_OK;
    if (cli_session_same_kind(s, chat, e) || text_tokens_add(prompt, s->held.v, s->held.n, e))
        return e->code;
    return chat ? chat_close_reasoning(format, prompt, e) : ERR_OK;
}

void cli_session_kv(const struct cli_session *s, const char **k, const char **v)
{
    const char *had_k = NULL, *had_v = NULL;

    if (s->file != NULL)
        run_session_kv(s->file, &had_k, &had_v);
    if (had_k != NULL) {
        *k = had_k;
        *v = had_v;
    }
}

enum err_code cli_session_load(struct cli_session *s, struct run *r, uint64_t tokenizer, const char *model,
                               const struct cli_adapters *adapters, const struct text_tokens *prompt, int64_t n_logits,
                               struct err *e)
{
    const char *slash = strrchr(model, '/');
    char name[256];
    struct run_session_id id = { tokenizer, name, run_adapters_hash(adapters->list, adapters->n) };
    int64_t n = prompt->n - n_logits + 1; /* a match leaves the last one */

    (void)snprintf(name, sizeof name, "%.127s%s", slash ? slash + 1 : model, adapters->name);
    if (run_session_attach(s->file, r, &id, e)) {
        const struct err why = *e;

        return why.code != ERR_ARG ? why.code
                                   : err_set(e, ERR_ARG, "%s; without --kv it goes on with its own", why.msg);
    }
    if (run_session_match(s->file, r, 0, prompt->v, n, &s->match, e))
        return e->code;
    /* The difference is reported for the whole prompt. */
    for (int64_t *i = &s->match.common; *i < s->match.held && *i < prompt->n; ++*i) {
        s->match.given = prompt->v[*i];
        s->match.had = s->held.v[*i];
        if (s->match.given != s->match.had)
            break;
    }
    if (s->match.common == s->match.held)
        s->match.had = -1;
    s->match.given = s->match.common < prompt->n ? prompt->v[s->match.common] : -1;
    s->loaded = true;
    return ERR_OK;
}

enum err_code cli_session_save(struct cli_session *s, struct run *r, bool chat, const struct text_tokens *chosen,
                               int64_t prompt_tokens, struct err *e)
{
    json_t *ids = json_array(), *o;
    char *blob, system[24];
    enum err_code code;

    if (s->shared) {
        json_decref(ids);
        return ERR_OK;
    }
    for (int64_t i = run_pos(r, 0) - prompt_tokens; i >= 0 && i < chosen->n; i++)
        json_push(&ids, json_integer(chosen->v[i]));
    snprintf(system, sizeof system, "%016" PRIx64, s->system);
    o = json_pack("{s:b, s:o, s:s*}", "chat", (int)chat, "waiting", ids, "system", s->system != 0 ? system : NULL);
    if (s->answer[0] != '\0') /* without it the session is whole, too */
        (void)(json_object_set_new(o, "answer_tokens", json_integer(s->n_answer)) ||
               json_object_set_new(o, "answer", json_string(s->answer)));
    blob = o != NULL ? json_dump(o, JSON_COMPACT) : NULL;
    json_decref(o);
    if (blob == NULL)
        return err_nomem(e);
    code = run_session_save(s->file, r, 0, blob, strlen(blob), e);
    free(blob);
    if (code == ERR_OK && run_session_stat(s->file).removed)
        cli_warn("%s: had been removed while it was in use, and was written anew", s->path);
    return code;
}

/* ---- what the session gave ---- */

/* The text of tokens from .. to - 1, within v. */
static json_t *text_of(const struct text *t, const struct text_tokens *v, int64_t from, int64_t to)
{
    char *p;
    size_t n;
    json_t *o;

    from = from < 0 ? 0 : from;
    to = to > v->n ? v->n : to;
    if (t == NULL || from >= to || text_decode(t, v->v + from, to - from, TEXT_SPECIAL, &p, &n, NULL))
        return json_string("");
    o = json_bytes((struct str){ p, n });
    free(p);
    return o;
}

static json_t *side(const struct cli_session *s, const struct text *t, const struct text_tokens *v, int32_t id)
{
    int64_t at = s->match.common;

    if (id < 0)
        return json_null();
    return json_pack("{s:i, s:o, s:o}", "token_id", (int)id, "text", text_of(t, v, at, at + 1), "after",
                     text_of(t, v, at + 1, at + 1 + AROUND));
}

json_t *cli_session_json(const struct cli_session *s, const struct text *t, const struct text_tokens *prompt)
{
    const struct run_match *m = &s->match;
    struct run_session_stat st = run_session_stat(s->file);

    return json_pack("{s:I, s:I, s:I, s:o, s:o, s:o, s:I, s:I}", "held_tokens", (json_int_t)m->held, "common_tokens",
                     (json_int_t)m->common, "kept_tokens", (json_int_t)m->kept, "before",
                     text_of(t, prompt, m->common - AROUND, m->common), "had", side(s, t, &s->held, m->had), "given",
                     side(s, t, prompt, m->given), "file_bytes", (json_int_t)st.file_bytes, "written_bytes",
                     (json_int_t)st.written_bytes);
}

void cli_session_note(const struct cli_session *s, const struct text *t, const struct text_tokens *prompt)
{
    const struct run_match *m = &s->match;
    struct run_session_stat st = run_session_stat(s->file);
    json_t *before, *had, *given;

    if (cli_verbosity() < 1)
        return;
    cli_note("session  %s: had %" PRId64 " tokens, %" PRId64 " of them begin the prompt, %" PRId64 " were kept",
             s->path, m->held, m->common, m->kept);
    cli_note("         %.1f MB, of which %.1f MB were written now", (double)st.file_bytes / 1e6,
             (double)st.written_bytes / 1e6);
    if (m->had < 0)
        return;
    before = text_of(t, prompt, m->common - AROUND, m->common);
    had = text_of(t, &s->held, m->common, m->common + AROUND);
    given = text_of(t, prompt, m->common, m->common + AROUND);
    cli_note("         token %" PRId64 " differs: it had %d, the prompt has %d", m->common, (int)m->had, (int)m->given);
    for (int i = 0; i < 3; i++) {
        static const char *const name[] = { "before", "had", "prompt" };
        json_t *v = i == 0 ? before : i == 1 ? had : given;
        char *quoted = json_dump(v, JSON_ENCODE_ANY);

        cli_note("           %-7s %s", name[i], quoted ? quoted : "");
        free(quoted);
    }
    json_decref(before);
    json_decref(had);
    json_decref(given);
}
