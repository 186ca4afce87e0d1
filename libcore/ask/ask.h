/* SPDX-License-Identifier: Apache-2.0 */
/* ask.h - one question, as a value, becomes a request for the engine.        room: ask
 *
 * Every program that asks a model goes through here: chimere-run, the server, a task set, training. A struct ask says
 * what is asked, a struct ask_model what it is asked of. ask_open() makes of both the tokens of the prompt, the grammar
 * that the answer follows, the governor of its reasoning, what is mixed in, and the request; ask_reader() makes what
 * splits the answer into its parts.
 *
 *   struct ask a = ask_defaults(); a.messages = ...; ask_open(&r, &a, &model, &e); gen_submit(gen, &r->q, &id, &e);
 *
 * Errors have their place (e->where) in the body of a chat completion: "/messages/3",
 * "/tools/1/function/parameters/items",
 * "/tool_choice", "/response_format/json_schema/schema/...", "/grammar", "/regex", "/chat_template_kwargs",
 * "/reasoning_budget", "/reasoning_effort", "/reasoning_grace", "/reasoning_min", "/reasoning_budget_message",
 * "/think_stop", "/think_probe", "/think_suppress", "/enable_thinking" of a calibration; "" is the text or the tokens.
 * ERR_NOMEM has none.
 */
#ifndef ASK_ASK_H
#define ASK_ASK_H
#include "base/base.h"
#include "base/json.h"
#include "engram/mix.h"
#include "gen/gen.h"
#include "reason/calibration.h"
#include "reason/reason.h"
#include "sample/sample.h"
#include "text/text.h"

struct chat;
struct chat_reader;
struct grammar;
struct grammar_vocab;

/* What is asked. It outlives the request. */
struct ask_model {
    const struct text *text;      /* NULL: a model without a tokenizer, which can only be asked tokens */
    const struct chat *chat;      /* NULL: there is no chat template */
    struct text_memo *memo;       /* of earlier prompts; NULL: none */
    struct grammar_vocab **vocab; /* *vocab is opened when a grammar first needs it; the caller closes it */
    int32_t n_vocab;              /* tokens of the model; 0: not known yet */
    int64_t prompt_max;           /* tokens; a longer prompt is refused before its form costs anything; 0: any */
};

/* The form that an answer is held to: at most one of the three. {0}: any answer. A schema has no effect where a call of
 * a tool is required. */
struct ask_form {
    const json_t *schema; /* JSON Schema */
    struct str gbnf;
    struct str regex;
};

/* An index of texts beside the model. n: texts at most; -1: as many as the index itself says. Each text that is used is
 * added to `used`, an array, as an object: {"use": "examples" or "recite", "source", "id" or of a document "line",
 * "share", "weight", "text"}.
 * Errors are ERR_NOMEM, or what is wrong with the messages. */
struct ask_index {
    /* Puts texts in front of the last message. */
    enum err_code (*add_notes)(const void *of, json_t *messages, int n, json_t *used, struct err *e);
    /* Makes a recital of the text that the last message names, except for where the answer begins; its tokens go to
     * *tokens. out->n 0: it names none. */
    enum err_code (*recite)(const void *of, const json_t *messages, int n, struct text_tokens *tokens,
                            struct engram_recital *out, json_t *used, struct err *e);
    const void *of;
};

/* What is asked. Nothing that it points to is owned; it lives until the request was submitted, what stands beside the
 * model until the answer has ended. */
struct ask {
    /* The prompt: tokens, and after them the messages of a chat or a text. */
    const int32_t *token; /* [n_token] */
    int64_t n_token;
    json_t *messages;    /* OpenAI's; NULL: not a chat. Behind tokens they follow the answer that those end with */
    struct str text;     /* to go on with, if there are no messages; p NULL: none */
    bool plain;          /* text: control tokens that are spelled out are text */
    bool add_no_answer;  /* messages: no answer begins behind the last one */
    bool continues_last; /* the last message, the assistant's, goes on: the prompt ends with its text */
    /* A chat. */
    const json_t *tools;     /* NULL or empty: none */
    const char *tool_choice; /* "auto", "none", "required", or the name of a tool */
    bool one_call;           /* at most one call of a tool */
    bool tools_are_told;     /* the messages say already which tools there are */
    int think;               /* the template's enable_thinking: 1, 0; -1: as the template has it. With 0 reasoning is
                                closed where the template or the model opens it, as with a budget of 0 */
    /* A direct answer comes first, and reasoning only where this advises it; NULL: none does. Lives as long as the
     * request. `think` must not be 0, nor may kwargs have enable_thinking. */
    const struct reason_calibration *calibration;
    const json_t *kwargs;      /* more variables of the template, which override that; NULL: none */
    struct reason_opts reason; /* when reasoning ends; its text and marks are those of the model. A template that knows
                                * reasoning_effort sees the effort, unless kwargs has one */
    bool effort_is_hint;       /* an effort without effect is no error: clients send one, whatever the model is */
    bool rule_is_hint;         /* nor are a rule and a suppression: they are meant for any question */
    int64_t now_s;             /* today, as the template sees it: local time in seconds since 1970; 0: the clock's */
    bool
        reads_form; /* an answer that is held to a form is read as any other; else it is text, whatever it looks like */
    int n_borders;  /* of the places where messages end at most this many, the last ones, are marked in the prompt
                       (run_mark()) */
    const struct ask_index *context;        /* a document, of which only recite() is used; NULL: none */
    const struct ask_index *notes, *recite; /* NULL: none. What the document says is recited rather */
    bool retrieves; /* notes, recite and a document with its table are used only where an answer without them is in
                       doubt: it says that it does not know, or the mean of the logarithms of its tokens' probabilities
                       is below this. Not with a calibration */
    float retrieve_below;
#define ASK_RETRIEVE_BELOW (-0.05F) /* of the embedded model, see bench/retrieval.md */
    int n_notes, n_recite;          /* texts of each; -1: as many as the index says */
    /* The answer. */
    struct ask_form form;
    int64_t tokens_max; /* of the answer; -1: until the context is full; 0: only the prompt is read */
    bool max_is_text;   /* a chat: what is reasoned does not count */
    int64_t tokens_min; /* of the answer, before which it does not end */
    bool ignore_eos;
    const struct str *stops; /* [n_stops] the answer ends before them */
    size_t n_stops;
    const int32_t *stop_token; /* [n_stop_tokens] they end the answer, as the model's own end tokens do */
    size_t n_stop_tokens;
    bool in_parts; /* not a chat: the prompt's text may end within a character, and so may the answer's */
    bool embeds;   /* no answer, but the mean of the last hidden rows */
    struct sample_opts sample;
    const struct str *breakers; /* [n_breakers] texts that end a repetition for DRY, unless sample has their tokens */
    size_t n_breakers;          /* 0: the usual ends of a phrase */
    /* What stands beside the model. */
    const struct engram_mix *tables; /* NULL: none */
    const struct run_adapter *adapters;
    int n_adapters;   /* -1: those of the engine */
    bool uncertainty; /* the numbers of each token are wanted (struct gen_event) */
    int draft_max;    /* guesses in a step; -1: as many as fit */
    int priority;
};
struct ask ask_defaults(void); /* no prompt, no limit, greedy, all else off */

struct ask_request {
    struct gen_request q; /* complete but for `user`, `n_rows`, and the stream if there are several answers */
    struct text_tokens prompt;
    bool thinking;      /* the answer begins inside reasoning */
    bool reasons;       /* it may have reasoning, that the model opens itself if it does not begin there */
    const char *parser; /* reads the answer; NULL: not a chat */
    json_t *tools;      /* that the answer may call; NULL: none */
    int n_calls;        /* that its messages have */
    json_t *notes;      /* texts of indexes that it uses, as those give them; NULL: it looks at no index */
    bool closed;        /* tables stay unused */
    bool retrieves;     /* this is the answer without notes, or the one behind it */
    bool is_advised;    /* by a calibration */
    struct reason_advice advice;
    struct ask_request
        *second; /* with reasoning: the second one of q, if this is a direct answer; NULL: there is none */
    struct ask_request *first; /* of ask_turn(); NULL: none */
    json_t *loose; /* array of lines: what in calls of tools is not held to a schema; NULL: there is nothing */
    /* what q points to */
    struct grammar *grammar; /* NULL: any answer */
    bool shares_grammar;     /* it is another request's */
    struct reason_opts reason;
    struct engram_mix mix;
    struct text_tokens recital, breakers;
    json_t *messages; /* with notes; NULL: none were added */
    int64_t border[64];
};
/* like: a request of the same form whose grammar is used again if it fits, and which is closed after this one; NULL:
 * none. ERR_ARG, ERR_FORMAT, ERR_UNSUPPORTED, ERR_LIMIT: something of the
 * question, at e->where; ERR_LIMIT without a place: the prompt is too long. */
MUST_CHECK enum err_code ask_open(struct ask_request **out, const struct ask *a, const struct ask_model *m,
                                  const struct ask_request *like, struct err *e);
/* Takes from `a` all that is neither the prompt nor the form: limits, the sampler, tables, adapters. For a program that
 * opens the model when the prompt is there. */
MUST_CHECK enum err_code ask_update(struct ask_request *r, const struct ask *a, const struct ask_model *m,
                                    struct err *e);
void ask_close(struct ask_request *r); /* when its answers have ended; NULL is allowed */
/* What was mixed into an answer, as its GEN_END says: sets "tables" of o, an array of objects without tables whose
 * weight is 0, left out where it is empty; and "recited". false: memory is out. */
bool ask_set_mixed(json_t *o, const struct ask_request *r, const struct gen_mixed *mixed, int n);
/* The request whose answer may reason: r, or its second. */
static inline const struct ask_request *ask_thorough(const struct ask_request *r)
{
    return r->second != NULL ? r->second : r;
}
/* Tokens of its prompt, or of its second's if that has more. */
static inline int64_t ask_prompt_most(const struct ask_request *r)
{
    return r->second != NULL && r->second->prompt.n > r->prompt.n ? r->second->prompt.n : r->prompt.n;
}
/* At GEN_SECOND, where the request has one answer alone: *r becomes its second, which owns it. */
void ask_turn(struct ask_request **r);
/* The text of the last message of the user: malloc'ed, NUL-terminated, "" if there is none. */
MUST_CHECK enum err_code ask_user_text(char **out, size_t *n, const json_t *messages, struct err *e);
/* What is told of an answer's reasoning: {"end", "tokens", "budget" or null, "forced"}, and where it was asked how
 * certain the model is, "certainty" or null, "suppressed", "probes", "probe_rows", "probe_tokens", "held_steps";
 * of an answer with a calibration also "thought", and of the direct answer "class" or null, "least" and "calibrated",
 * or null where there was no answer to the end, "direct_tokens", which were dropped, and "read_again". NULL when memory
 * is out. */
json_t *ask_thinking_json(const struct ask_request *r, const struct gen_stats *t);
/* An answer that says of itself that it is none. */
bool ask_abstains(struct str text);
/* Of a request that retrieves, what its answer without notes led to: {"looked_up", "mean_logprob" or null,
 * "dropped_tokens", "read_again"}; NULL when memory is out. */
json_t *ask_retrieve_json(const struct gen_stats *t);
/* The reader of one answer of a chat; *out = NULL: it is not a chat. Errors are those of chat_reader_open(). */
MUST_CHECK enum err_code ask_reader(struct chat_reader **out, const struct ask_request *r, struct err *e);
/* What the model's own probabilities say of the tokens of an answer's text that were chosen: for a log. */
struct ask_figures {
    double sum, least; /* of natural logarithms */
    double entropy;    /* the sum; NaN: the answer has no such numbers */
    int64_t n;
};
void ask_count(struct ask_figures *f, const struct gen_event *ev); /* a GEN_TOKEN event */
/* The question, the notes and the figures, as members of a log line (chimere-quality(5)); what they are of may change
 * no more until the object is released. NULL when memory is out. */
json_t *ask_report(const struct ask *a, const struct ask_request *r, const struct ask_figures *f,
                   const struct gen_stats *t);
/* Appends the tokens of the prompt alone. *thinking: the answer begins inside reasoning; NULL: who asks need not know.
 */
MUST_CHECK enum err_code ask_prompt(struct text_tokens *out, const struct ask *a, const struct ask_model *m,
                                    bool *thinking, struct err *e);
/* The prompt of a chat as text: malloc'ed, NUL-terminated. */
MUST_CHECK enum err_code ask_prompt_text(char **out, size_t *n, const struct ask *a, const struct ask_model *m,
                                         struct err *e);

/* The grammar of a form that is not {0}. v may be NULL (grammar/grammar.h). */
MUST_CHECK enum err_code ask_form_open(struct grammar **out, const struct ask_form *f, const struct grammar_vocab *v,
                                       struct err *e);
bool ask_form_is_any(const struct ask_form *f);
/* Appends the tokens in which one of the texts appears; n 0: the usual ends of a phrase. */
MUST_CHECK enum err_code ask_breakers(struct text_tokens *out, const struct text *t, const struct str *breakers,
                                      size_t n, struct err *e);
/* Whether a tool_choice asks for a call. */
bool ask_call_is_due(const char *tool_choice);
/* How long the context of a request is where nobody has said it: room for its answer, which may reason, within
 * ctx_train, what the model was trained for (0: not known). */
int64_t ask_context(int64_t n_prompt, bool reasons, int64_t tokens_max, int64_t ctx_train);
/* The local time as seconds since 1970: what a template's date comes from. */
int64_t ask_local_s(void);
#endif
