/* SPDX-License-Identifier: Apache-2.0 */
/* marks.c - the marks of reasoning that parsers.def has, for the tokens of a vocabulary.    room: chat */
#include <stdlib.h>
#include <string.h>

#include "chat/internal.h"
#include "chat/parse.h"

static struct str mark_of(const char *s)
{
    return s != NULL ? str_of(s) : (struct str){ "", 0 };
}

static enum err_code copy_tokens(int32_t *to, int *n, const struct text_tokens *from, struct err *e)
{
    for (int64_t i = 0; i < from->n; i++) {
        if (*n == TEXT_MARK_TOKENS)
            return err_set(e, ERR_LIMIT, "the marks of reasoning have more than %d tokens", TEXT_MARK_TOKENS);
        to[(*n)++] = from->v[i];
    }
    return ERR_OK;
}

/* Notes the control tokens of a mark. *n_tokens: how many tokens it has. */
static enum err_code add_mark(struct text_marks *m, struct str mark, const struct text *t, int64_t *n_tokens,
                              struct err *e)
{
    struct text_tokens v = { 0 }, control = { 0 };
    enum err_code code = text_encode(t, mark, TEXT_SPECIAL, &v, e);

    for (int64_t i = 0; code == ERR_OK && i < v.n; i++)
        if (text_is_control(t, v.v[i]) && !text_marks_have(m, v.v[i]))
            code = text_tokens_push(&control, v.v[i], e);
    if (code == ERR_OK)
        code = copy_tokens(m->control, &m->n_control, &control, e);
    *n_tokens = v.n;
    text_tokens_free(&v);
    text_tokens_free(&control);
    return code;
}

/* Appends what is written where reasoning is to end. A token ends where the mark does, since a form of the answer
 * begins there. What follows the mark is left out if this tokenizer would spell it with a space before it. */
static enum err_code encode_over(struct text_tokens *v, struct str over, struct str mark, const struct text *t,
                                 struct err *e)
{
    const char *at = over.n > 0 && mark.n > 0 ? strstr(over.p, mark.p) : NULL;
    const size_t n = at != NULL ? (size_t)(at - over.p) + mark.n : over.n;
    const struct str rest = { over.p + n, over.n - n };
    enum err_code code = text_encode(t, (struct str){ over.p, n }, TEXT_SPECIAL, v, e);
    const int64_t n_mark = v->n;
    size_t spelled = 0;

    if (code == ERR_OK && rest.n > 0)
        code = text_encode(t, rest, TEXT_SPECIAL, v, e);
    for (int64_t i = n_mark; i < v->n; i++)
        spelled += text_piece(t, v->v[i]).n;
    if (spelled != rest.n)
        v->n = n_mark;
    return code;
}

enum err_code chat_marks_of(struct text_marks *out, const char *parser, const struct text *t, struct err *e)
{
    const struct chat_syntax *s = chat_parse_syntax(parser);
    struct text_marks m = { 0 };
    struct text_tokens over = { 0 };
    enum err_code code;
    int64_t n = 0;

    if (s == NULL)
        return chat_parse_no_syntax(parser, e);
    m.open = mark_of(s->think);
    m.again = s->think_again;
    code = add_mark(&m, m.open, t, &n, e);
    m.one_token = n == 1;
    for (int i = 0; i < TEXT_MARK_CLOSERS && code == ERR_OK; i++) {
        m.close[i] = mark_of(s->think_end[i]);
        code = add_mark(&m, m.close[i], t, &n, e);
    }
    for (int i = 0; i < TEXT_MARK_SKIPS && !s->drop_thought; i++)
        m.skip[i] = mark_of(s->drop[i]);
    if (code == ERR_OK)
        code = encode_over(&over, mark_of(s->think_over), m.close[0], t, e);
    if (code == ERR_OK)
        code = copy_tokens(m.over, &m.n_over, &over, e);
    text_tokens_free(&over);
    if (code == ERR_OK)
        *out = m;
    return code;
}

/* Texts that a family writes around its calls. */
static size_t list_texts(const struct chat_syntax *s, const char *v[24])
{
    const struct chat_written *w = s->written;
    const struct chat_named *c = s->call == chat_call_named ? s->conf : NULL;
    const char *all[] = {
        w->begin,
        w->start,
        w->head,
        w->mid,
        w->tail,
        w->between,
        w->after,
        w->resume,
        w->dress != NULL ? w->dress->key : NULL,
        w->dress != NULL ? w->dress->value : NULL,
        w->dress != NULL ? w->dress->text : NULL,
        w->dress != NULL ? w->dress->end : NULL,
        c != NULL ? c->id : NULL,
        s->close,
        s->open[0],
        s->open[1],
        s->open[2],
        s->inside[0],
        s->inside[1],
        s->inside[2],
    };
    size_t n = 0;

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i] != NULL)
            v[n++] = all[i];
    return n;
}

static enum err_code add_call_marks(struct text_marks *out, const struct chat_syntax *s, const struct text *t,
                                    struct err *e)
{
    const struct chat_named *c = s->call == chat_call_named ? s->conf : NULL;
    const char *end = s->close != NULL ? s->close : c != NULL ? c->end : NULL;
    enum err_code code = ERR_OK;
    const char *v[24];
    int64_t n;
    int k = 0;

    if (s->written == NULL)
        return ERR_OK;
    for (size_t i = 0, n_texts = list_texts(s, v); i < n_texts && code == ERR_OK; i++)
        code = add_mark(out, str_of(v[i]), t, &n, e);
    for (int i = 0; i < CHAT_MARKS; i++) {
        if (s->open[i] != NULL)
            out->call[k++] = str_of(s->open[i]);
        if (s->inside[i] != NULL)
            out->call[k++] = str_of(s->inside[i]);
    }
    if (k == 0) { /* harmony has no mark of its own for that */
        out->call[0] = STR(" to=functions.");
        end = "<|call|>";
    }
    out->call_end = mark_of(end);
    out->bare_call = s->bare;
    return code;
}

const char *chat_parser(const struct chat *c)
{
    return c->parser;
}

enum err_code chat_set_parser(struct chat *c, const char *parser, struct err *e)
{
    const struct chat_syntax *s = chat_parse_syntax(parser);

    enum err_code code = chat_marks_of(&c->marks, parser, c->text, e);

    if (code == ERR_OK)
        c->call_marks = c->marks;
    if (code == ERR_OK)
        code = add_call_marks(&c->call_marks, s, c->text, e);
    if (code == ERR_OK)
        c->parser = s->name;
    return code;
}

const struct text_marks *chat_marks(const struct chat *c)
{
    return c->marks.open.n > 0 ? &c->marks : NULL;
}

const struct text_marks *chat_marks_with_calls(const struct chat *c)
{
    return c->call_marks.call[0].n > 0 ? &c->call_marks : chat_marks(c);
}

bool chat_ends_inside(const struct chat *c, struct str prompt, const unsigned char *mark)
{
    const struct str open = c->marks.open;
    size_t n = prompt.n;

    while (n > 0 && chat_parse_is_space(prompt.p[n - 1]))
        n--;
    return open.n > 0 && n >= open.n && memcmp(prompt.p + n - open.n, open.p, open.n) == 0 &&
           memchr(mark + n - open.n, 0, open.n) == NULL;
}

enum err_code chat_close_text(const struct chat *c, struct chat_text *t, struct err *e)
{
    const char *over = chat_parse_syntax(c->parser)->think_over;
    const size_t n = over != NULL ? strlen(over) : 0;
    unsigned char *mark;
    char *p;

    if (!chat_ends_inside(c, (struct str){ t->p, t->n }, t->mark))
        return ERR_OK;
    if ((p = realloc(t->p, t->n + n + 1)) == NULL)
        return err_nomem(e);
    t->p = p;
    if ((mark = realloc(t->mark, t->n + n + 1)) == NULL)
        return err_nomem(e);
    t->mark = mark;
    memcpy(t->p + t->n, over, n + 1);
    memset(t->mark + t->n, 1, n);
    t->n += n;
    return ERR_OK;
}

enum err_code chat_close_reasoning(const struct chat *c, struct text_tokens *v, struct err *e)
{
    struct text_marks anywhere = c->marks;
    struct text_place at;
    int64_t from = 0;

    if (chat_marks(c) == NULL)
        return ERR_OK;
    anywhere.again = true; /* behind what the template writes before an answer */
    at = text_marks_begin(&anywhere, false);
    (void)chat_borders(c, v->v, v->n, &from, 1);
    for (int64_t i = from; i < v->n; i++) {
        struct str s = text_piece(c->text, v->v[i]);

        for (size_t n; s.n > 0; s.p += n, s.n -= n)
            n = text_marks_take(&anywhere, &at, s);
    }
    for (int i = 0; i < c->marks.n_over && at.part == TEXT_REASONING; i++)
        if (text_tokens_push(v, c->marks.over[i], e))
            return e->code;
    return ERR_OK;
}
