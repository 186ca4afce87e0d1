/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_stmt.c - statements to trees.                                           room: chat
 *
 * Children of nodes:
 *   body: statements; output: expressions; if: test, body, test, body ..., and the body of "else";
 *   for: target, items, test or NULL, body, else or NULL; set: target, value; setblock: target,
 * filter or NULL, body; macro: body, then the default of each parameter or NULL; callblock: the
 * same, then the call; filterblock: filter, body; with: target, value, target, value ..., body;
 * block, generation: body; escape (autoescape): switch, body.
 */
#include <string.h>
#include "chat/jinja_tree.h"

static struct node *statements(struct parse *p, const char *const *ends);

static struct node *checked_node(struct parse *p, struct node *n)
{
    return n != NULL && chat_tree_measure(p, n) ? n : NULL;
}

/* The body of a statement up to one of `ends`, at whose name the parser then stands. */
static struct node *body(struct parse *p, const char *const *ends)
{
    char got[64];

    chat_tree_skip_op(p, ':');
    if (p->tok[p->at].kind != TOK_BLOCK_END)
        return chat_tree_fail(p, "expected token 'end of statement block', got '%s'",
                              chat_tree_describe(&p->tok[p->at], got));
    p->at++;
    return statements(p, ends);
}

/* The same for a body with a scope of its own, with its only end and what ends that. */
static struct node *closed_body(struct parse *p, const char *end)
{
    const char *ends[] = { end, NULL };
    bool soft = p->soft;
    struct node *n;

    p->soft = false;
    n = body(p, ends);
    p->soft = soft;
    if (n != NULL)
        p->at++;
    return n;
}

static struct node *one_body(struct parse *p, enum node_kind kind, uint32_t at, const char *end)
{
    struct node *n = chat_tree_node(p, kind, at, 1);

    return n != NULL && (n->kid[0] = closed_body(p, end)) != NULL ? checked_node(p, n) : NULL;
}

static struct node *parse_if(struct parse *p, uint32_t at)
{
    static const char *const ends[] = { "elif", "else", "endif", NULL }, *const last[] = { "endif", NULL };
    bool soft = p->soft;
    struct node *n = chat_tree_node(p, NODE_IF, at, 0);

    p->soft = true;
    do {
        if (n == NULL || !chat_tree_add(p, n, chat_tree_tuple(p, false, NULL, false)) ||
            !chat_tree_add(p, n, body(p, ends)))
            return NULL;
    } while (chat_tree_skip_name(p, "elif"));
    if (chat_tree_skip_name(p, "else") && !chat_tree_add(p, n, body(p, last)))
        return NULL;
    p->at++;
    p->soft = soft;
    return checked_node(p, n);
}

static struct node *parse_for(struct parse *p, uint32_t at)
{
    static const char *const ends[] = { "endfor", "else", NULL }, *const last[] = { "endfor", NULL };
    bool in_loop = p->in_loop, soft = p->soft;
    struct node *n = chat_tree_node(p, NODE_FOR, at, 5);

    if (n == NULL || (n->kid[0] = chat_tree_target(p, "in", false)) == NULL)
        return NULL;
    if (!chat_tree_skip_name(p, "in"))
        return chat_tree_fail(p, "expected token 'in'");
    if ((n->kid[1] = chat_tree_tuple(p, false, "recursive", false)) == NULL)
        return NULL;
    p->soft = false;
    if (chat_tree_skip_name(p, "if") && (n->kid[2] = chat_tree_expr(p, true)) == NULL)
        return NULL;
    n->recursive = chat_tree_skip_name(p, "recursive");
    p->in_loop = true;
    if ((n->kid[3] = body(p, ends)) == NULL)
        return NULL;
    p->in_loop = in_loop && !n->recursive;
    if (chat_tree_skip_name(p, "else") && (n->kid[4] = body(p, last)) == NULL)
        return NULL;
    p->in_loop = in_loop;
    p->soft = soft;
    p->at++;
    return checked_node(p, n);
}

static struct node *parse_set(struct parse *p, uint32_t at)
{
    struct node *target = chat_tree_target(p, NULL, true), *n;

    if (target == NULL)
        return NULL;
    if (chat_tree_skip_op(p, '=')) {
        if ((n = chat_tree_node(p, NODE_SET, at, 2)) == NULL ||
            (n->kid[1] = chat_tree_tuple(p, true, NULL, false)) == NULL)
            return NULL;
    } else {
        if ((n = chat_tree_node(p, NODE_SETBLOCK, at, 3)) == NULL)
            return NULL;
        if (chat_tree_is_op(p, '|') && (n->kid[1] = chat_tree_filter(p, NULL, false)) == NULL)
            return NULL;
        if ((n->kid[2] = closed_body(p, "endset")) == NULL)
            return NULL;
    }
    n->kid[0] = target;
    return checked_node(p, n);
}

/* "(a, b=1)" of a macro or call block: a node whose children after the body are the defaults. */
static bool signature(struct parse *p, struct node *n)
{
    enum { PARAMETERS_MAX = 255 };
    struct tok *t;

    n->name = chat_heap_take(&p->t->heap, PARAMETERS_MAX * sizeof n->name[0]);
    n->sym = chat_heap_take(&p->t->heap, PARAMETERS_MAX * sizeof n->sym[0]);
    n->kid = chat_heap_take(&p->t->heap, (PARAMETERS_MAX + 2) * sizeof n->kid[0]);
    if (n->name == NULL || n->sym == NULL || n->kid == NULL)
        return chat_tree_nomem(p) != NULL;
    memset(n->kid, 0, (PARAMETERS_MAX + 2) * sizeof n->kid[0]);
    n->n = 1;
    if (n->kind == NODE_CALLBLOCK && !chat_tree_is_op(p, '('))
        return true;
    if (!chat_tree_expect_op(p, '('))
        return false;
    for (bool defaults = false; !chat_tree_is_op(p, ')');) {
        if (n->n_pos > 0 && !chat_tree_expect_op(p, ','))
            return false;
        t = &p->tok[p->at];
        if (t->kind != TOK_NAME || n->n_pos == PARAMETERS_MAX)
            return chat_tree_fail(p, "expected the name of a parameter") != NULL;
        if ((n->sym[n->n_pos] = chat_tree_symbol(p, t->text)) < 0 || !chat_tree_name(p, t->text, &n->name[n->n_pos]))
            return false;
        for (int i = 0; i < n->n_pos; i++)
            if (n->sym[i] == n->sym[n->n_pos])
                return chat_tree_fail(p, "duplicate argument '%.*s'", STR_ARG(t->text)) != NULL;
        p->at++;
        n->n_pos++;
        n->n++;
        if (chat_tree_skip_op(p, '=')) {
            defaults = true;
            if ((n->kid[n->n - 1] = chat_tree_expr(p, true)) == NULL)
                return false;
        } else if (defaults) {
            return chat_tree_fail(p, "non-default argument follows default argument") != NULL;
        }
    }
    p->at++;
    return true;
}

/* The body of a macro, in which "loop control" and "soft" begin anew. */
static bool macro_body(struct parse *p, struct node *n, const char *end)
{
    bool in_loop = p->in_loop;

    if (p->n_macro == PARSE_DEPTH_MAX)
        return chat_tree_fail(p, "nested too deep") != NULL;
    p->in_loop = false;
    p->macro[p->n_macro++] = n;
    n->kid[0] = closed_body(p, end);
    p->n_macro--;
    p->in_loop = in_loop;
    return n->kid[0] != NULL;
}

static struct node *parse_macro(struct parse *p, uint32_t at)
{
    struct node *n = chat_tree_node(p, NODE_MACRO, at, 0);
    const struct tok *t = &p->tok[p->at];

    if (n == NULL)
        return NULL;
    if (t->kind != TOK_NAME)
        return chat_tree_fail(p, "expected the name of a macro");
    p->at++;
    if ((n->op = chat_tree_symbol(p, t->text)) < 0 || !chat_tree_name(p, t->text, &n->v) || !signature(p, n) ||
        !macro_body(p, n, "endmacro"))
        return NULL;
    return checked_node(p, n);
}

static struct node *parse_call(struct parse *p, uint32_t at)
{
    struct node *n = chat_tree_node(p, NODE_CALLBLOCK, at, 0), *call;

    if (n == NULL || !signature(p, n) || (call = chat_tree_expr(p, true)) == NULL)
        return NULL;
    if (call->kind != NODE_CALL)
        return chat_tree_fail(p, "expected call");
    if (!macro_body(p, n, "endcall"))
        return NULL;
    n->kid[n->n++] = call;
    return checked_node(p, n);
}

static struct node *parse_with(struct parse *p, uint32_t at)
{
    struct node *n = chat_tree_node(p, NODE_WITH, at, 0);

    while (n != NULL && p->tok[p->at].kind != TOK_BLOCK_END) {
        if (n->n > 0 && !chat_tree_expect_op(p, ','))
            return NULL;
        if (!chat_tree_add(p, n, chat_tree_target(p, NULL, false)) || !chat_tree_expect_op(p, '=') ||
            !chat_tree_add(p, n, chat_tree_expr(p, true)))
            return NULL;
    }
    return n != NULL && chat_tree_add(p, n, closed_body(p, "endwith")) ? checked_node(p, n) : NULL;
}

static bool blank(const struct node *b)
{
    for (int i = 0; i < b->n; i++) {
        const struct node *k = b->kid[i];
        if (k->kind != NODE_OUTPUT)
            return false;
        for (int m = 0; m < k->n; m++) {
            if (k->kid[m]->kind != NODE_CONST || k->kid[m]->v.kind != VAL_STR)
                return false;
            struct str s = chat_str(&k->kid[m]->v);
            for (size_t c = 0; c < s.n; c++)
                if (memchr(" \t\n\v\f", s.p[c], 5) == NULL)
                    return false;
        }
    }
    return true;
}

static struct node *parse_block(struct parse *p, uint32_t at)
{
    struct jinja *t = p->t;
    const struct tok *tok = &p->tok[p->at];
    struct node *n = chat_tree_node(p, NODE_BLOCK, at, 1);
    bool in_loop = p->in_loop, required;

    if (n == NULL)
        return NULL;
    if (tok->kind != TOK_NAME)
        return chat_tree_fail(p, "expected the name of a block");
    p->at++;
    if (!chat_tree_name(p, tok->text, &n->v))
        return NULL;
    for (int i = 0; i < t->n_block; i++)
        if (str_eq(chat_str(&t->block[i]->v), tok->text))
            return chat_tree_fail(p, "block '%.*s' defined twice", STR_ARG(tok->text));
    n->scoped = chat_tree_skip_name(p, "scoped");
    required = chat_tree_skip_name(p, "required");
    if (t->n_block == t->cap_block) {
        int cap = t->cap_block < 4 ? 8 : 2 * t->cap_block;
        struct node **v = chat_heap_take(&t->heap, (size_t)cap * sizeof *v);
        if (v == NULL)
            return chat_tree_nomem(p);
        if (t->n_block > 0)
            memcpy(v, t->block, (size_t)t->n_block * sizeof *v);
        t->block = v;
        t->cap_block = cap;
    }
    t->block[t->n_block++] = n;
    p->in_loop = false;
    if ((n->kid[0] = closed_body(p, "endblock")) == NULL)
        return NULL;
    p->in_loop = in_loop;
    if (required && !blank(n->kid[0]))
        return chat_tree_fail(p, "Required blocks can only contain comments or whitespace");
    if (p->tok[p->at].kind == TOK_NAME && str_eq(p->tok[p->at].text, tok->text))
        p->at++;
    return checked_node(p, n);
}

/* include, import, from, extends: there is nothing to load from, which is an error when they are
 * reached. */
static struct node *parse_noloader(struct parse *p, uint32_t at)
{
    while (p->tok[p->at].kind != TOK_BLOCK_END && p->tok[p->at].kind != TOK_EOF)
        p->at++;
    return chat_tree_node(p, NODE_NOLOADER, at, 0);
}

static struct node *parse_print(struct parse *p, uint32_t at)
{
    struct node *n = chat_tree_node(p, NODE_OUTPUT, at, 0);

    while (n != NULL && p->tok[p->at].kind != TOK_BLOCK_END) {
        if (n->n > 0 && !chat_tree_expect_op(p, ','))
            return NULL;
        if (!chat_tree_add(p, n, chat_tree_expr(p, true)))
            return NULL;
    }
    return checked_node(p, n);
}

static struct node *parse_filterblock(struct parse *p, uint32_t at)
{
    struct node *n = chat_tree_node(p, NODE_FILTERBLOCK, at, 2);

    if (n == NULL || (n->kid[0] = chat_tree_filter(p, NULL, true)) == NULL ||
        (n->kid[1] = closed_body(p, "endfilter")) == NULL)
        return NULL;
    return checked_node(p, n);
}

static struct node *parse_escape(struct parse *p, uint32_t at)
{
    struct node *n = chat_tree_node(p, NODE_ESCAPE, at, 2);

    if (n == NULL || (n->kid[0] = chat_tree_expr(p, true)) == NULL ||
        (n->kid[1] = closed_body(p, "endautoescape")) == NULL)
        return NULL;
    return checked_node(p, n);
}

static struct node *parse_control(struct parse *p, enum node_kind kind, uint32_t at)
{
    if (!p->in_loop)
        return chat_tree_fail(p, "'%s' outside loop", kind == NODE_BREAK ? "break" : "continue");
    return chat_tree_node(p, kind, at, 0);
}

static struct node *parse_generation(struct parse *p, uint32_t at)
{
    bool in_loop = p->in_loop;
    struct node *n;

    p->in_loop = false;
    n = one_body(p, NODE_GENERATION, at, "endgeneration");
    p->in_loop = in_loop;
    return n;
}

static struct node *statement(struct parse *p)
{
    const struct tok *t = &p->tok[p->at];

    if (t->kind != TOK_NAME)
        return chat_tree_fail(p, "tag name expected");
    p->at++;
    if (str_is(t->text, "if"))
        return parse_if(p, t->at);
    if (str_is(t->text, "for"))
        return parse_for(p, t->at);
    if (str_is(t->text, "set"))
        return parse_set(p, t->at);
    if (str_is(t->text, "macro"))
        return parse_macro(p, t->at);
    if (str_is(t->text, "call"))
        return parse_call(p, t->at);
    if (str_is(t->text, "filter"))
        return parse_filterblock(p, t->at);
    if (str_is(t->text, "with"))
        return parse_with(p, t->at);
    if (str_is(t->text, "block"))
        return parse_block(p, t->at);
    if (str_is(t->text, "print"))
        return parse_print(p, t->at);
    if (str_is(t->text, "autoescape"))
        return parse_escape(p, t->at);
    if (str_is(t->text, "break"))
        return parse_control(p, NODE_BREAK, t->at);
    if (str_is(t->text, "continue"))
        return parse_control(p, NODE_CONTINUE, t->at);
    if (str_is(t->text, "generation"))
        return parse_generation(p, t->at);
    if (str_is(t->text, "include") || str_is(t->text, "import") || str_is(t->text, "from") ||
        str_is(t->text, "extends"))
        return parse_noloader(p, t->at);
    p->at--;
    return chat_tree_fail(p, "Encountered unknown tag '%.*s'.", STR_ARG(t->text));
}

/* Adds an expression to the output that a body ends with, or to a new one. */
static bool add_output(struct parse *p, struct node *b, struct node *expr)
{
    struct node *out = b->n > 0 ? b->kid[b->n - 1] : NULL;

    if (expr == NULL)
        return false;
    if (out == NULL || out->kind != NODE_OUTPUT) {
        out = chat_tree_node(p, NODE_OUTPUT, expr->at, 0);
        if (out == NULL || !chat_tree_add(p, b, out))
            return false;
    }
    return chat_tree_add(p, out, expr) && chat_tree_measure(p, out);
}

static struct node *data(struct parse *p)
{
    const struct tok *t = &p->tok[p->at++];
    struct node *n = chat_tree_node(p, NODE_CONST, t->at, 0);

    return n != NULL && chat_tree_name(p, t->text, &n->v) ? n : NULL;
}

static bool is_end(const struct parse *p, const char *const *ends)
{
    for (; ends != NULL && *ends != NULL; ends++)
        if (chat_tree_is_name(p, *ends))
            return true;
    return false;
}

static struct node *statements(struct parse *p, const char *const *ends)
{
    struct node *b = chat_tree_node(p, NODE_BODY, p->tok[p->at].at, 0);
    char got[64];

    if (b == NULL || !chat_tree_enter(p))
        return NULL;
    for (;;) {
        const struct tok *t = &p->tok[p->at];
        bool ok = true;
        if (t->kind == TOK_EOF) {
            if (ends != NULL)
                return chat_tree_fail(p, "Unexpected end of template. Jinja was looking for '%s'.", ends[0]);
            break;
        }
        if (t->kind == TOK_DATA) {
            ok = add_output(p, b, data(p));
        } else if (t->kind == TOK_VAR_BEGIN) {
            p->at++;
            ok = add_output(p, b, chat_tree_tuple(p, true, NULL, false));
            if (ok && p->tok[p->at].kind != TOK_VAR_END)
                return chat_tree_fail(p, "expected token 'end of print statement', got '%s'",
                                      chat_tree_describe(&p->tok[p->at], got));
            p->at++;
        } else {
            p->at++;
            if (is_end(p, ends))
                break;
            ok = chat_tree_add(p, b, statement(p));
            if (ok && p->tok[p->at].kind != TOK_BLOCK_END)
                return chat_tree_fail(p, "expected token 'end of statement block', got '%s'",
                                      chat_tree_describe(&p->tok[p->at], got));
            p->at++;
        }
        if (!ok)
            return NULL;
    }
    p->depth--;
    return checked_node(p, b);
}

struct node *chat_tree_body(struct parse *p)
{
    return statements(p, NULL);
}
