/* SPDX-License-Identifier: Apache-2.0 */
/* answer.h - events of an answer, to what the user sees.                   room: cmd
 *
 * An answer has two parts: reasoning, which a chat model writes between its marks <think> and
 * </think>, and the text after it. Shown as plain text, as events (JSON lines), or gathered for one
 * JSON object; see chimere-jsonl(5). One thread.
 */
#ifndef RUN_ANSWER_H
#define RUN_ANSWER_H
#include "cli/cli.h"
#include "ask/ask.h"
#include "chat/reader.h"
#include "gen/gen.h"
#include "text/text.h"

enum cli_answer_form { ANSWER_PLAIN, ANSWER_JSON, ANSWER_JSONL };
enum cli_answer_reasoning { REASONING_STDERR, REASONING_STDOUT, REASONING_NONE };

struct cli_answer_opts {
    enum cli_answer_form form;
    enum cli_answer_reasoning reasoning; /* ANSWER_PLAIN: where it goes */
    const struct text *text;             /* NULL: nobody asks for the texts of tokens, or there are none */
    bool only_ids;                       /* a model without a tokenizer: there is nothing else to show */
    const struct ask_request *asked;     /* in a chat the model's marks separate reasoning, text and calls */
    bool logprobs, uncertainty;
    bool keeps;  /* text and reasoning are gathered in any form */
    bool stream; /* ANSWER_PLAIN: each piece at once; else lines stay whole */
};

struct cli_answer {
    struct cli_answer_opts o;
    struct text_tokens ids;         /* chosen so far */
    int64_t n_reasoning;            /* of them: up to the mark that ends the reasoning */
    struct cli_buf text, reasoning; /* all of it: ANSWER_JSON, o.keeps */
    json_t *logprobs, *uncertainty; /* ANSWER_JSON, if they are wanted: one entry per token */
    struct ask_figures figures;
    struct chat_reader *reader; /* of a chat */
    struct cli_buf out;         /* ANSWER_PLAIN: text that is not written yet */
    struct cli_buf chunk;       /* what the newest token made ready */
    bool in_reasoning;
    bool begun; /* this part has shown something */
    bool had_reasoning;
    char last; /* last byte of the text */
};

MUST_CHECK enum err_code cli_answer_open(struct cli_answer *a, const struct cli_answer_opts *o, struct err *e);
void cli_answer_close(struct cli_answer *a);
/* A GEN_TOKEN event. */
MUST_CHECK enum err_code cli_answer_take(struct cli_answer *a, const struct gen_event *ev, struct err *e);
/* The GEN_END event. */
MUST_CHECK enum err_code cli_answer_end(struct cli_answer *a, const struct gen_event *ev, struct err *e);
/* Tool calls in the form of OpenAI's interface, an array; NULL when memory is out. */
json_t *cli_answer_calls(const struct cli_answer *a);
/* Array of the ids; NULL when memory is out. */
json_t *cli_answer_ids(const struct cli_answer *a);
#endif
