/* SPDX-License-Identifier: Apache-2.0 */
/* answer.h - tokens as they are chosen, to what the user sees.             room: cmd (cli_)
 *
 * An answer has two parts: reasoning, which a chat model writes between its marks <think> and
 * </think>, and the text after it. Shown as plain text, as events (JSON lines), or gathered for one
 * JSON object; see chimere-jsonl(5). One thread.
 */
#ifndef CLI_ANSWER_H
#define CLI_ANSWER_H
#include "cli/cli.h"
#include "sample/sample.h"
#include "text/text.h"

enum answer_form { ANSWER_PLAIN, ANSWER_JSON, ANSWER_JSONL };
enum answer_reasoning { REASONING_STDERR, REASONING_STDOUT, REASONING_NONE };

struct answer_opts {
    enum answer_form      form;
    enum answer_reasoning reasoning; /* ANSWER_PLAIN: where it goes */
    const struct text    *text;      /* NULL: a model without a tokenizer; ids are all there is */
    const struct str     *stops;
    size_t                n_stops;
    bool                  chat;      /* reasoning is split off, newlines before the text dropped */
    bool                  thinking;  /* the prompt has opened the reasoning already */
    bool                  logprobs;
};

struct answer {
    struct answer_opts  o;
    struct text_tokens  ids;         /* chosen so far */
    int64_t             n_reasoning; /* of them: up to the mark that ends the reasoning */
    struct cli_buf      text, reasoning; /* ANSWER_JSON: all of it */
    json_t             *logprobs;        /* ANSWER_JSON: one entry per token */
    struct text_stream *stream;
    struct cli_buf      chunk;           /* what the newest token made ready */
    size_t              newlines;        /* held back: the reasoning ends without them */
    bool                in_reasoning;
    bool                begun;           /* this part has shown something */
    bool                had_reasoning;
    char                last;            /* last byte of the text */
};

MUST_CHECK enum err_code cli_answer_open(struct answer *a, const struct answer_opts *o,
                                         struct err *e);
void cli_answer_close(struct answer *a);
/* Takes a chosen token. *stopped is set when a stop string is complete. */
MUST_CHECK enum err_code cli_answer_take(struct answer *a, const struct sample_pick *pick,
                                         bool *stopped, struct err *e);
/* No more tokens come: gives out what was held back, unless a stop string ended it. */
MUST_CHECK enum err_code cli_answer_end(struct answer *a, bool stopped, struct err *e);
/* Array of the ids; NULL when memory is out. */
json_t *cli_answer_ids(const struct answer *a);
#endif
