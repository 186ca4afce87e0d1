/* SPDX-License-Identifier: Apache-2.0 */
/* marks.h - where the reasoning of an answer begins and ends, and calls of tools.   room: text
 *
 * A family of models writes marks around its reasoning (chat/parsers.def has them). They are recognised by the bytes
 * that tokens spell, since a model may spell a mark with other tokens than our encoder does, and a token may have more
 * in it than the end of a mark. chat_marks() makes a struct text_marks. */
#ifndef TEXT_MARKS_H
#define TEXT_MARKS_H
#include "base/base.h"

enum {
    TEXT_MARK_BYTES = 32,  /* of the longest mark */
    TEXT_MARK_CLOSERS = 5, /* a syntax may end its reasoning in as many ways */
    TEXT_MARK_SKIPS = 2,
    TEXT_MARK_TOKENS = 64,
    TEXT_MARK_CALLS = 6,
};

struct text_marks {
    struct str open, close[TEXT_MARK_CLOSERS];  /* n 0: none; the strings are never freed */
    struct str skip[TEXT_MARK_SKIPS];           /* may stand before the opening mark, beside white space */
    struct str call[TEXT_MARK_CALLS], call_end; /* marks around calls of tools; call_end n 0: the answer's end */
    bool bare_call;                             /* an answer that begins with a "{" may be a call */
    bool again;                        /* reasoning may begin anywhere and again; else only where the answer begins */
    bool one_token;                    /* the vocabulary has the opening mark as a token */
    int32_t control[TEXT_MARK_TOKENS]; /* [n_control] control tokens that are part of the marks */
    int n_control;
    int32_t over[TEXT_MARK_TOKENS]; /* [n_over] what to write where reasoning is to end */
    int n_over;
};

/* A place in an answer; a copy of it can look ahead. */
enum text_part { TEXT_BEFORE, TEXT_REASONING, TEXT_ANSWER };
struct text_place {
    bool call;           /* in a call: no text that anybody wrote to be read */
    enum text_part part; /* BEFORE: only white space so far, and perhaps the beginning of an opening mark */
    char tail[TEXT_MARK_BYTES];
    size_t n; /* bytes in it: BEFORE, those that may become a mark; else the newest */
};
/* Where an answer begins. inside: the prompt has opened the reasoning. m may be NULL: no marks, all is text. */
struct text_place text_marks_begin(const struct text_marks *m, bool inside);
/* Takes bytes of s up to its end, or up to the end of a mark with which reasoning or a call begins or ends. Returns how
 * many. */
size_t text_marks_take(const struct text_marks *m, struct text_place *at, struct str s);
/* The last bytes that were taken and may still become the opening mark: nobody's text until that is known. None if the
 * mark is a token, since text is rarely taken for it then. */
struct str text_marks_held(const struct text_marks *m, const struct text_place *at);
/* The mark of a call that the bytes which were taken end with; n 0: there is none. */
struct str text_marks_call(const struct text_marks *m, const struct text_place *at);
/* Whether a control token is part of the marks. */
bool text_marks_have(const struct text_marks *m, int32_t token);
#endif
