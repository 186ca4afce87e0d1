/* SPDX-License-Identifier: Apache-2.0 */
/* borders.c - where messages begin in a prompt, learned from the template itself.       room: chat
 *
 * When a chat is opened, small conversations are rendered with and without their last message.
 * Where the longer prompt leaves the shorter one, that message begins: the tokens there are what to
 * look for in other prompts. Most templates begin each message with a control token, which is
 * enough; others are known by a few tokens of text. A template that refuses a conversation has no
 * border of that kind.
 */
#include <stdlib.h>
#include <string.h>
#include "chat/internal.h"

/* What messages of a probe say: it appears nowhere else. */
static const char question[] = "Qzqone", answer[] = "Qzqtwo", other[] = "Qzqthree", result[] = "Qzqfour";

/* A conversation of the first n messages of a list as tokens; *ok is false where the template
 * refuses it. ERR_LIMIT: it takes too long, as it will again. */
static enum err_code probe_prefix(const struct chat *c, const json_t *all, size_t n, bool generate,
                                  struct text_tokens *out, bool *ok, struct err *e)
{
    json_t *part = json_array();
    struct err own = { 0 };
    bool thinking;
    enum err_code rc = part == NULL ? ERR_NOMEM : ERR_OK;

    for (size_t i = 0; i < n && rc == ERR_OK; i++)
        if (json_array_append(part, json_array_get(all, i)))
            rc = ERR_NOMEM;
    if (rc == ERR_OK)
        rc = chat_render(c, &(struct chat_prompt){ .messages = part, .generate = generate }, out, &thinking, &own);
    json_decref(part);
    *ok = rc == ERR_OK;
    if (rc == ERR_NOMEM)
        return err_nomem(e);
    return rc == ERR_LIMIT ? ERR_LIMIT : ERR_OK;
}

static void add_opener(struct chat *c, const struct chat_opener *o)
{
    for (int i = 0; i < c->n_openers; i++)
        if (c->opener[i].after == o->after && c->opener[i].n == o->n &&
            memcmp(c->opener[i].v, o->v, (size_t)o->n * sizeof o->v[0]) == 0)
            return;
    if (c->n_openers < CHAT_OPENERS_MAX)
        c->opener[c->n_openers++] = *o;
}

/* Whether the text of v[from..to) reaches into what the message says: its first letter is a rare
 * one. */
static bool says(const struct chat *c, const int32_t *v, int64_t from, int64_t to, const char *what)
{
    char *p = NULL;
    size_t n;
    bool found = true;

    if (text_decode(c->text, v + from, to - from, TEXT_SPECIAL, &p, &n, NULL) == ERR_OK)
        found = strchr(p, what[0]) != NULL;
    free(p);
    return found;
}

/* What the longer prompt has where it leaves the shorter one. */
static void learn_opener(struct chat *c, const struct text_tokens *less, const struct text_tokens *more,
                         const char *what)
{
    struct chat_opener o = { 0 };
    int64_t at = 0;

    while (at < less->n && at < more->n && less->v[at] == more->v[at])
        at++;
    if (at == 0 || at >= more->n)
        return;
    if (text_is_control(c->text, more->v[at])) {
        o.v[0] = more->v[at];
        o.n = 1;
    } else {
        while (o.n < CHAT_OPENER_TOKENS && at + o.n < more->n && !says(c, more->v, at, at + o.n + 1, what)) {
            o.v[o.n] = more->v[at + o.n];
            o.n++;
        }
        if (o.n == 0) { /* the message has no mark of its own: it follows the end of the one before */
            o.after = true;
            o.v[0] = more->v[at - 1];
            o.n = text_is_control(c->text, o.v[0]);
        }
    }
    if (o.n > 0)
        add_opener(c, &o);
}

static enum err_code learn_from(struct chat *c, const json_t *all, struct err *e)
{
    static const struct {
        size_t less, more;
        bool generate;
        const char *says;
    } steps[] = { { 1, 2, false, answer }, { 2, 3, false, other }, { 1, 1, true, "\x01" }, { 4, 5, false, result } };

    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        struct text_tokens less = { 0 }, more = { 0 };
        bool ok = false, ok_more = false;
        enum err_code rc = probe_prefix(c, all, steps[i].less, false, &less, &ok, e);
        if (rc == ERR_OK && ok)
            rc = probe_prefix(c, all, steps[i].more, steps[i].generate, &more, &ok_more, e);
        if (rc == ERR_OK && ok && ok_more)
            learn_opener(c, &less, &more, steps[i].says);
        text_tokens_free(&less);
        text_tokens_free(&more);
        if (rc)
            return rc == ERR_LIMIT ? ERR_OK : rc;
    }
    return ERR_OK;
}

enum err_code chat_learn_borders(struct chat *c, struct err *e)
{
    json_t *all = json_pack("[{s:s,s:s},{s:s,s:s},{s:s,s:s},{s:s,s:s,s:[{s:s,s:s,s:{s:s,s:{}}}]},{s:s,s:s,s:s,s:s}]",
                            "role", "user", "content", question, "role", "assistant", "content", answer, "role", "user",
                            "content", other, "role", "assistant", "content", "", "tool_calls", "id", "call00000",
                            "type", "function", "function", "name", "f", "arguments", "role", "tool", "content", result,
                            "tool_call_id", "call00000", "name", "f");
    enum err_code rc = all != NULL ? learn_from(c, all, e) : err_nomem(e);

    json_decref(all);
    return rc;
}

int chat_borders(const struct chat *c, const int32_t *token, int64_t n, int64_t *at, int max)
{
    int k = 0;

    for (int64_t i = n - 1; i > 0 && k < max; i--) {
        bool begins = false;
        for (int o = 0; o < c->n_openers && !begins; o++) {
            const struct chat_opener *x = &c->opener[o];
            begins = x->after ? token[i - 1] == x->v[0]
                              : i + x->n <= n && memcmp(token + i, x->v, (size_t)x->n * sizeof *token) == 0;
        }
        if (begins)
            at[k++] = i;
    }
    for (int lo = 0, hi = k - 1; lo < hi; lo++, hi--) {
        int64_t t = at[lo];
        at[lo] = at[hi];
        at[hi] = t;
    }
    return k;
}
