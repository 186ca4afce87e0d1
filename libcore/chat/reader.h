/* SPDX-License-Identifier: Apache-2.0 */
/* reader.h - splits the model's answer into reasoning, text and tool calls.   room: chat
 *
 * A reader takes an answer in pieces of any size and splits it by the syntax of the model's family
 * (parsers.def). Text that may still become a mark is held back until it is known not to be one. The pieces add up to
 * the same result however the answer was cut, and each is valid UTF-8: a byte that is not becomes U+FFFD. A call that
 * the end of the answer cuts off is reported but not given; a call that cannot be parsed is text.
 *
 * A call is given at its end (CHAT_CALL_END). It is reported before (CHAT_CALL_BEGIN, and its arguments as they
 * grow) from where its arguments begin, if its name is one of `tools` and stands before them; any other comes with all
 * of its pieces at its end. A call that is cut off or cannot be parsed after it was reported ends with
 * CHAT_CALL_FAILED: what was given of its arguments lacks the last bracket, so it never is JSON. Where a syntax names
 * its parameters, the first of those of the same name counts.
 *
 * White space between a mark and the text beside it is dropped, other white space is text. Memory
 * grows with the answer, which may have CHAT_ANSWER_BYTES_MAX; time is linear in its length.
 * A reader is one answer's and one thread's.
 */
#ifndef CHAT_READER_H
#define CHAT_READER_H
#include "base/base.h"
#include "base/json.h"

struct chat_reader;

enum { CHAT_ANSWER_BYTES_MAX = 64 << 20 };

/* The name of syntax i in the order of parsers.def; NULL past the last. */
const char *chat_reader_name(int i);
/* The syntax that a chat template speaks, by marks in its text. "plain" where none is found. */
const char *chat_reader_find(struct str template_text);

struct chat_reader_opts {
    const char *parser;  /* a name of chat_reader_name() */
    const json_t *tools; /* OpenAI's array; kept. NULL, null or empty: calls are text */
    bool reasoning;      /* the prompt has opened the reasoning already */
    int first_call;      /* number in the id of the first call that comes without one */
};
/* ERR_ARG: no such parser. ERR_FORMAT: tools is not an array of functions with names. */
MUST_CHECK enum err_code chat_reader_open(struct chat_reader **out, const struct chat_reader_opts *o, struct err *e);
void chat_reader_close(struct chat_reader *r); /* NULL is allowed */

enum chat_part { CHAT_REASONING, CHAT_TEXT, CHAT_TOOL };
enum chat_call_step {
    CHAT_CALL_BEGIN,  /* text is empty */
    CHAT_CALL_MORE,   /* text: what follows of the arguments. Those of a call add up to the text at its end */
    CHAT_CALL_END,    /* text: the whole arguments, a JSON object; chat_reader_calls() counts the call now */
    CHAT_CALL_FAILED, /* text is empty; nothing more of this call comes */
};
struct chat_piece {
    enum chat_part part;
    enum chat_call_step step; /* CHAT_TOOL: of the call */
    int call;                 /* which, from 0; those that fail count */
    struct str id, name;      /* as in chat_call */
    struct str text;
};
/* What `text` makes certain: *n pieces, which live until the next call. end: nothing follows.
 * ERR_LIMIT: the answer is too long. Nothing may be read after an error or the end. */
MUST_CHECK enum err_code chat_read(struct chat_reader *r, struct str text, bool end, const struct chat_piece **v,
                                   int *n, struct err *e);

/* Where the next byte belongs, as far as that is certain. */
enum chat_part chat_reader_where(const struct chat_reader *r);

/* A call that was given. raw: what the model wrote for it, with the marks and white space around it,
 * so that an answer can be put back into a conversation as it was. */
struct chat_call {
    struct str id, name, arguments, raw; /* id: the model's own, or "call00000" and so on by `call` of its pieces */
};
int chat_reader_calls(const struct chat_reader *r);
struct chat_call chat_reader_call(const struct chat_reader *r, int i); /* lives until chat_read() */

/* CHAT_CUT_NONE before the end. */
enum chat_cut { CHAT_CUT_NONE, CHAT_CUT_REASONING, CHAT_CUT_CALL };
enum chat_cut chat_reader_cut(const struct chat_reader *r);

/* {"reasoning", "content", "tool_calls"} of all that was given; calls in OpenAI's form, arguments
 * as a string of JSON. "cut_off": "reasoning" or "tool_call" where the answer ends inside one. */
MUST_CHECK enum err_code chat_reader_result(json_t **out, const struct chat_reader *r, struct err *e);
#endif
