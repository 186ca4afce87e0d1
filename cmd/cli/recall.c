/* SPDX-License-Identifier: Apache-2.0 */
/* recall.c - texts of an index, as notes in front of what a user says.       room: cmd */
#include "cli/recall.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/engram.h"
#include "engram/mix.h"
#include "text/text.h"

/* A text is a note when it has half of what the question asks for (recall_hit.share): others would mislead. */
#define SHARE_LEAST    0.5F
#define RECITAL_WEIGHT 0.9F /* of a text that the prompt names */

enum err_code cli_notes_check(const struct recall *r, const char *path, const struct gguf *g, struct err *e)
{
    if (recall_info(r).tokenizer != text_fingerprint(g))
        return err_set(e, ERR_FORMAT, "%s: was made with another tokenizer than the model's", path);
    return ERR_OK;
}

struct str cli_notes_head(struct str s)
{
    enum { MOST = 2048 };
    size_t n = s.n < MOST ? s.n : MOST;

    while (n > 0 && n < s.n && ((unsigned char)s.p[n] & 0xC0) == 0x80)
        n--;
    return (struct str){ s.p, n };
}

bool cli_origin_json(json_t *o, const struct recall *r, int64_t text)
{
    const struct recall_origin from = recall_origin_of(r, text);

    if (from.file.n == 0)
        return true;
    return cli_json_set(o, "file", json_bytes(from.file)) && cli_json_set(o, "line", json_integer(from.line)) &&
           (from.heading.n == 0 || cli_json_set(o, "heading", json_bytes(from.heading)));
}

/* Says that a text is used. weight: of a recital; below 0: none */
static enum err_code note_use(const struct cli_notes *x, const struct recall_hit *hit, const char *use, double weight,
                              json_t *used, struct err *e)
{
    json_t *o = json_pack("{s:s, s:o, s:I, s:o}", "use", use, "source", json_bytes(str_of(x->path)), "id",
                          (json_int_t)hit->text, "share", cli_json_real((double)hit->share));
    bool ok = cli_origin_json(o, x->r, hit->text) && (weight < 0 || cli_json_set(o, "weight", cli_json_real(weight)));

    ok = ok && cli_json_set(o, "text", json_bytes(cli_notes_head(recall_text(x->r, hit->text))));
    return json_array_append_new(used, json_if(ok, o)) ? err_nomem(e) : ERR_OK;
}

/* The last message, or of its parts the last one, if that is the user's text; NULL: it is not. *key: the member that
 * has the text. */
static json_t *last_question(const json_t *messages, const char **key, struct str *question)
{
    json_t *last = json_array_get(messages, json_array_size(messages) - 1), *parts = json_object_get(last, "content"),
           *part = json_array_get(parts, json_array_size(parts) - 1);
    struct str role;

    *key = part != NULL ? "text" : "content";
    if (!json_get_str(last, "role", &role) || !str_is(role, "user"))
        return NULL;
    last = part != NULL ? part : last;
    return json_get_str(last, *key, question) ? last : NULL;
}

static enum err_code add_notes(const void *of, json_t *messages, int most, json_t *used, struct err *e)
{
    const struct cli_notes *x = of;
    struct recall_hit hits[CLI_NOTES_MAX];
    struct cli_buf b = { 0 };
    struct str question;
    const char *key;
    json_t *last = last_question(messages, &key, &question), *content;
    enum err_code code = ERR_OK;
    int n;

    if (last == NULL || most == 0)
        return ERR_OK;
    if (recall_words(x->r, x->text, question, true, most > 0 ? most : x->n, hits, &n, e))
        return e->code;
    for (int i = 0; code == ERR_OK && i < n; i++) {
        if (hits[i].share < SHARE_LEAST || str_find(question, 0, recall_text(x->r, hits[i].text)) != SIZE_MAX)
            continue;
        code = cli_buf_add(&b, b.n == 0 ? STR("Use these notes.\n") : STR(""), e);
        if (code == ERR_OK)
            code = cli_buf_add(&b, cli_notes_head(recall_text(x->r, hits[i].text)), e);
        if (code == ERR_OK)
            code = cli_buf_add(&b, STR("\n"), e);
        if (code == ERR_OK)
            code = note_use(x, &hits[i], "examples", -1, used, e);
    }
    if (code == ERR_OK && b.n > 0) {
        code = cli_buf_add(&b, STR("\n"), e) || cli_buf_add(&b, question, e) ? e->code : ERR_OK;
        content = code == ERR_OK ? json_bytes((struct str){ b.p, b.n }) : NULL;
        if (code == ERR_OK && (content == NULL || json_object_set_new(last, key, content) != 0))
            code = err_nomem(e);
    }
    cli_buf_free(&b);
    return code;
}

/* The length of the name that a text begins with, 0: none. *what: where the rest of its first paragraph begins. */
static size_t name_of(struct str s, size_t *what)
{
    for (size_t i = 1; i + 1 < s.n && s.p[i] != '\n'; i++) {
        const size_t sep = s.p[i] == ':' && s.p[i + 1] == ' '              ? 2
                           : i + 2 < s.n && memcmp(s.p + i, " - ", 3) == 0 ? 3
                                                                           : 0;

        if (sep > 0) {
            *what = i + sep;
            return i;
        }
    }
    return 0;
}

static bool in_word(unsigned char c)
{
    return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '_' || c == '-' || c >= 0x80;
}

/* Whole words of s, upper and lower case told apart. */
static bool has_words(struct str s, struct str part)
{
    for (size_t i = 0; i + part.n <= s.n; i++)
        if (memcmp(s.p + i, part.p, part.n) == 0 && (i == 0 || !in_word((unsigned char)s.p[i - 1])) &&
            (i + part.n == s.n || !in_word((unsigned char)s.p[i + part.n])))
            return true;
    return false;
}

/* With "asks": "what" a text says what something is, and is no answer to where, when, why and how. */
static bool answers(const struct cli_notes *x, int64_t text, struct str question)
{
    static const char *const others[] = { "where", "Where", "when", "When", "why", "Why", "how", "How" };
    struct err e = { 0 };
    struct str asks;
    json_t *members = NULL;
    bool what;

    what = json_parse(&members, recall_origin_of(x->r, text).members, "", &e) == ERR_OK &&
           json_get_str(members, "asks", &asks) && str_is(asks, "what");
    json_decref(members);
    for (size_t i = 0; what && i < sizeof others / sizeof *others; i++)
        if (has_words(question, str_of(others[i])))
            return false;
    return true;
}

/* What follows the name in a text that the last message names, and which one it is; {0}: there is none. Lives as long
 * as x. */
static enum err_code find_named(const struct cli_notes *x, const json_t *messages, int most, struct str *out,
                                struct recall_hit *hit, struct err *e)
{
    struct recall_hit hits[CLI_NOTES_MAX];
    struct str question;
    const char *key;
    int n;

    *out = (struct str){ 0 };
    if (last_question(messages, &key, &question) == NULL)
        return ERR_OK;
    if (recall_words(x->r, x->text, question, true, most, hits, &n, e))
        return e->code;
    for (int i = 0; i < n; i++) {
        const struct str text = cli_notes_head(recall_text(x->r, hits[i].text));
        size_t what = 0;
        const size_t name = name_of(text, &what);

        if (name == 0 || hits[i].share < SHARE_LEAST || !has_words(question, (struct str){ text.p, name }) ||
            !answers(x, hits[i].text, question))
            continue;
        struct str rest = { text.p + what, text.n - what };

        while (rest.n > 0 && rest.p[rest.n - 1] == '\n')
            rest.n--;
        *out = str_find(question, 0, rest) != SIZE_MAX ? (struct str){ 0 }
                                                       : rest; /* what the prompt says the model knows */
        *hit = hits[i];
        return ERR_OK;
    }
    return ERR_OK;
}

/* A recital of `what`, whose tokens go to *tokens. */
static enum err_code begin_recital(const struct text *text, struct str what, struct text_tokens *tokens,
                                   struct engram_recital *out, struct err *e)
{
    tokens->n = 0;
    if (text_encode(text, what, 0, tokens, e))
        return e->code;
    *out = (struct engram_recital){ .token = tokens->v,
                                    .n = tokens->n,
                                    .end = text_info(text)->eos,
                                    .newline = { text_find(text, "\n"), text_find(text, "\n\n") },
                                    .weight = RECITAL_WEIGHT };
    return ERR_OK;
}

static enum err_code recite_named(const void *of, const json_t *messages, int n, struct text_tokens *tokens,
                                  struct engram_recital *out, json_t *used, struct err *e)
{
    const struct cli_notes *x = of;
    struct recall_hit hit = { 0 };
    struct str what;

    if (n == 0)
        return ERR_OK;
    if (find_named(x, messages, n > 0 ? n : x->n, &what, &hit, e))
        return e->code;
    if (what.n == 0)
        return ERR_OK;
    if (begin_recital(x->text, what, tokens, out, e))
        return e->code;
    return note_use(x, &hit, "recite", (double)RECITAL_WEIGHT, used, e);
}

enum err_code cli_notes_open(struct cli_notes *x, const char *arg, const struct gguf *g, const struct text *text,
                             struct err *e)
{
    const char *colon = access(arg, F_OK) != 0 ? strrchr(arg, ':') : NULL; /* a file of the whole name wins */
    int n = CLI_NOTES;

    if (colon != NULL && colon[1] != '\0' && strspn(colon + 1, "0123456789") == strlen(colon + 1)) {
        const long v = strtol(colon + 1, NULL, 10);

        if (v < 1 || v > CLI_NOTES_MAX)
            return err_set(e, ERR_ARG, "%s: 1 to %d texts", arg, CLI_NOTES_MAX);
        n = (int)v;
    } else
        colon = arg + strlen(arg);
    if ((size_t)(colon - arg) >= sizeof x->path)
        return err_set(e, ERR_ARG, "%.40s...: the name is too long", arg);
    memcpy(x->path, arg, (size_t)(colon - arg));
    x->path[colon - arg] = '\0';
    x->n = n;
    x->text = text;
    x->index = (struct ask_index){ add_notes, recite_named, x };
    return recall_open(&x->r, x->path, e) || cli_notes_check(x->r, x->path, g, e) ? e->code : ERR_OK;
}

void cli_notes_close(struct cli_notes *x)
{
    recall_close(x->r);
    *x = (struct cli_notes){ 0 };
}

/* ---- a document ---- */

static enum err_code recite_document(const void *of, const json_t *messages, int n, struct text_tokens *tokens,
                                     struct engram_recital *out, json_t *used, struct err *e)
{
    const struct cli_document *x = of;
    struct recall_said said;
    struct str question;
    const char *key;

    if (n == 0 || last_question(messages, &key, &question) == NULL)
        return ERR_OK;
    if (recall_answer(&said, x->said, x->text, question, e))
        return e->code;
    said.text = cli_notes_head(said.text);
    if (said.text.n == 0)
        return ERR_OK;
    if (begin_recital(x->text, said.text, tokens, out, e))
        return e->code;
    json_t *o = json_pack("{s:s, s:o, s:I, s:o, s:o, s:o}", "use", "recite", "source", json_bytes(str_of(x->source)),
                          "line", (json_int_t)said.line, "share", cli_json_real((double)said.share), "weight",
                          cli_json_real((double)RECITAL_WEIGHT), "text", json_bytes(said.text));

    return json_array_append_new(used, o) ? err_nomem(e) : ERR_OK;
}

void cli_document_use(struct cli_document *x, struct str said, const char *source, const struct text *text)
{
    *x = (struct cli_document){ .said = said, .source = source, .text = text };
    x->index = (struct ask_index){ NULL, recite_document, x };
}

enum err_code cli_document_open(struct cli_document *x, const char *file, bool again, const struct text *text,
                                struct err *e)
{
    char *own;
    size_t n;

    if (cli_context_read(&own, &n, file, again, e))
        return e->code;
    cli_document_use(x, (struct str){ own, n }, cli_file_name(file), text);
    x->own = own;
    return ERR_OK;
}

void cli_document_close(struct cli_document *x)
{
    free(x->own);
    *x = (struct cli_document){ 0 };
}
