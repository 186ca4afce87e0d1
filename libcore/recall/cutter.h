/* SPDX-License-Identifier: Apache-2.0 */
/* cutter.h - inside recall: paragraphs and headings into texts.               room: recall
 *
 * A reader of a form calls these for what it meets, in order. An error stays in the cutter, and what follows it has no
 * effect. */
#ifndef RECALL_CUTTER_H
#define RECALL_CUTTER_H
#include "recall/cut.h"

enum { RECALL_LEVELS = 8, RECALL_HEADING_BYTES = 200 };

struct recall_bytes {
    char *p;
    size_t n, cap;
};
struct recall_mark {
    size_t at;
    int64_t line;
};
struct recall_cutter {
    struct recall_cut_opts o;
    recall_chunk_fn *fn;
    void *ctx;
    struct recall_bytes text, para; /* what waits for its end; para: the paragraph that is open */
    struct recall_mark *mark;       /* [n_marks] lines of text, then of the open paragraph */
    size_t n_marks, marks_cap, n_text_marks;
    size_t fresh;                                    /* bytes at the start of text that the text before had, too */
    char title[RECALL_LEVELS][RECALL_HEADING_BYTES]; /* of each level; "" where there is none */
    struct err *e;
    enum err_code code;
};
/* Adds to the open paragraph, after `before` if it has anything; '\0': nothing. line: where s stands. */
void recall_cutter_add(struct recall_cutter *c, char before, struct str s, int64_t line);
/* The paragraph ends. */
void recall_cutter_break(struct recall_cutter *c);
/* level: 0 .. RECALL_LEVELS - 1 */
void recall_cutter_heading(struct recall_cutter *c, int level, struct str s);

bool recall_bytes_add(struct recall_bytes *b, struct str s, struct err *e);
/* The next line of s at or after *at, without its line feed; *line: its number, which starts at 0. */
bool recall_next_line(struct str s, size_t *at, int64_t *line, struct str *out);
void recall_cut_html(struct recall_cutter *c, struct str s);
void recall_cut_man(struct recall_cutter *c, struct str s);
#endif
