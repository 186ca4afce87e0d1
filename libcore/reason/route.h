/* SPDX-License-Identifier: Apache-2.0 */
/* route.h - which class a request belongs to, by expressions and file types.      room: reason
 *
 * A file of routes is JSON, see chimere-reason(7):
 *   {"default": "other", "threshold": 0.6, "classes": [{"name": "code", "about": "programs", "words": ["rust"],
 *    "patterns": ["\\bfn \\w+\\("], "files": ["rs"]}]}
 */
#ifndef REASON_ROUTE_H
#define REASON_ROUTE_H
#include "base/base.h"
#include "base/json.h"

enum { REASON_CLASSES_MAX = 64 };

struct reason_routes;
/* ERR_FORMAT with e->where, the JSON pointer of what is wrong; ERR_NOMEM. Keeps a reference to v. */
MUST_CHECK enum err_code reason_routes_open(struct reason_routes **out, json_t *v, struct err *e);
void reason_routes_close(struct reason_routes *r);         /* NULL is allowed */
json_t *reason_routes_file(const struct reason_routes *r); /* as it was opened */
int reason_routes_n(const struct reason_routes *r);        /* classes, 1 .. REASON_CLASSES_MAX */
const char *reason_route_name(const struct reason_routes *r, int i);
const char *reason_route_about(const struct reason_routes *r, int i); /* "": none */
const char *reason_routes_default(const struct reason_routes *r);
double reason_routes_threshold(const struct reason_routes *r); /* 0 .. 1 */

/* Bit i: class i has a word or pattern in the text. A word stands between characters that belong to no word, in any
 * case of letters; an expression that takes too many steps is not found. ERR_NOMEM. */
MUST_CHECK enum err_code reason_route_text(const struct reason_routes *r, struct str text, uint64_t *classes,
                                           struct err *e);
/* The same of file types that the text mentions, as in "main.rs". */
MUST_CHECK enum err_code reason_route_files(const struct reason_routes *r, struct str text, uint64_t *classes,
                                            struct err *e);
/* Both together: words and patterns, and file types where these leave several. files: names, a line each. */
struct reason_route_found {
    int class;     /* -1: none is left, or several */
    uint64_t open; /* classes that it may still be, a bit each */
    bool by_file;  /* a file type decided, or nothing did */
};
MUST_CHECK enum err_code reason_route_find(const struct reason_routes *r, struct str text, struct str files,
                                           struct reason_route_found *out, struct err *e);
#endif
