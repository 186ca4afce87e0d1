/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_tree.h - what the two halves of the parser share.                       room: chat */
#ifndef CHAT_JINJA_TREE_H
#define CHAT_JINJA_TREE_H
#include "chat/jinja.h"

enum { PARSE_DEPTH_MAX = 200 };

struct parse {
    struct jinja *t;
    struct tok *tok; /* ends with TOK_EOF */
    size_t at;
    int depth;
    bool soft;                           /* an unknown filter or test is an error only when it is used: inside "if" */
    bool in_loop;                        /* break and continue mean something */
    struct node *macro[PARSE_DEPTH_MAX]; /* macros that are open */
    int n_macro;
    struct err *e;
};

/* Functions that return a node or bool have failed at NULL or false: p->e says why. */
void *chat_tree_fail(struct parse *p, const char *fmt, ...) PRINTF_LIKE(2, 3);
void *chat_tree_nomem(struct parse *p);
struct node *chat_tree_node(struct parse *p, enum node_kind kind, uint32_t at, int n);
bool chat_tree_add(struct parse *p, struct node *n, struct node *kid);
bool chat_tree_measure(struct parse *p, struct node *n); /* its height, when it has its children */
bool chat_tree_name(struct parse *p, struct str s, struct val *out);
int chat_tree_symbol(struct parse *p, struct str s); /* -1: no memory */
const char *chat_tree_describe(const struct tok *t, char buf[64]);

bool chat_tree_is_op(const struct parse *p, int op);
bool chat_tree_is_name(const struct parse *p, const char *z);
bool chat_tree_skip_op(struct parse *p, int op);
bool chat_tree_skip_name(struct parse *p, const char *z);
bool chat_tree_expect_op(struct parse *p, int op);
bool chat_tree_enter(struct parse *p);

struct node *chat_tree_expr(struct parse *p, bool with_cond);
/* "a" or "a, b"; end_name: a name that ends it too, or NULL. */
struct node *chat_tree_tuple(struct parse *p, bool with_cond, const char *end_name, bool parens);
struct node *chat_tree_target(struct parse *p, const char *end_name, bool spaces); /* of an assignment */
struct node *chat_tree_filter(struct parse *p, struct node *of, bool begun);       /* "| name(args)", again and again */
struct node *chat_tree_body(struct parse *p);                                      /* the whole template */
#endif
