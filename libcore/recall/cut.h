/* SPDX-License-Identifier: Apache-2.0 */
/* cut.h - documents into texts of an index: cut at headings and paragraphs.  room: recall */
#ifndef RECALL_CUT_H
#define RECALL_CUT_H
#include "base/base.h"

enum recall_form {
    RECALL_PLAIN,
    RECALL_MARKDOWN,
    RECALL_HTML,
    RECALL_MAN, /* roff with the macros of man(7) or mdoc(7) */
};
/* By the file's name, and for manuals also by how the document begins. */
enum recall_form recall_form_of(struct str name, struct str document);

struct recall_chunk {
    struct str text;    /* never empty */
    struct str heading; /* "TITLE > SECTION > SUBSECTION"; n 0: it stands under none */
    int64_t line;       /* of the document, where the text begins, from 1 */
};
typedef enum err_code recall_chunk_fn(void *ctx, const struct recall_chunk *c, struct err *e);

struct recall_cut_opts {
    enum recall_form form;
    size_t chunk, overlap; /* bytes; chunk > 0, overlap at most half of it */
};
/* Calls fn for each text of the document, in order, until it fails. A text has whole paragraphs under one heading, as
 * many as have room in o->chunk bytes; a longer paragraph is cut at the end of a line, sentence or word. A text that
 * goes on with what is under the same heading begins with up to o->overlap bytes of the one before. Any bytes may be
 * given: what is no valid markup is taken for text. */
MUST_CHECK enum err_code recall_cut(struct str document, const struct recall_cut_opts *o, recall_chunk_fn *fn,
                                    void *ctx, struct err *e);
#endif
