/* SPDX-License-Identifier: Apache-2.0 */
/* gen.h - requests in, events out: many answers of one model, generated in parallel.
 * room: gen
 *
 * A gen owns the sequences of a run. Each gen_step() is one step of the model for everything in progress: the
 * next token of each answer (and guesses after it), then prompt rows of those that still read. On several devices
 * (run_flights()) answers are written in groups, while there are at least two of them, nobody reads a prompt, no
 * request that came can begin, and no governor probes: then a gen_step() gives the tokens of one group, while the steps
 * of the others are under way. The tokens of a request depend only on the request, not on other requests, groups, the
 * drafter, the chunk size or the order of arrival.
 *
 *   gen_open; gen_submit ...; while (gen_busy(g)) { gen_step(g, &e); while (gen_next(g, &ev)) use ev; }
 *
 * A request begins at the longest prefix of its prompt that any sequence holds. If prompts begin alike, that part
 * is read once: the later request waits until the first has read it. A request that has ended leaves its sequence
 * as it is, so that a later one can continue from it. Contents made with other adapters, or of another owner, are never
 * used.
 *
 * One thread. gen_submit() copies the request; steps allocate only for an answer that grows, and for events. Without
 * memory for that the request ends with GEN_FAILED and ERR_NOMEM, and the others go on.
 */
#ifndef GEN_GEN_H
#define GEN_GEN_H
#include "base/base.h"
#include "gen/hooks.h"
#include "run/run.h"
#include "sample/sample.h"

struct gen;
struct text;
struct text_marks;

enum { GEN_STEP_END_MAX = 64 };

struct gen_opts {
    struct run *run;         /* not owned; nobody else may step it while the gen is open */
    const struct text *text; /* not owned; NULL: no stop strings, no text in events, only end_token ends an answer */
    int32_t end_token;       /* without a text: ends an answer; -1: none */
    const struct gen_drafter *drafter; /* NULL: no guesses */
    void *drafter_of;                  /* its object; not owned */
    int n_spare;                       /* sequences of the run kept for GEN_PROBE, not for requests */
    int prompt_rows;                   /* prompt rows in a step that also has answers; 0: a quarter of the run's rows */
    int64_t wait_max;                  /* requests that may wait; 0: any number */
    const struct run_adapter *adapters; /* [n_adapters] for requests that name none; copied */
    int n_adapters;
};

struct gen_request {
    const int32_t *prompt; /* [n_prompt], n_prompt >= 1 */
    int64_t n_prompt;
    int64_t predict_max; /* tokens of the answer; -1: until the context is full; 0: only read the prompt */
    int64_t text_max;    /* tokens of the answer after the reasoning, from the first visible one on; -1: any
                          * number; needs a text */
    int64_t min_tokens;  /* below this number of tokens of the answer no end token is chosen, unless the constraint
                          * allows  nothing else */
    bool ignore_eos;     /* end tokens do not end the answer */
    bool chat;           /* reasoning and text are separated; stop strings are looked for in the text, not in calls */
    bool thinking;       /* chat: the prompt ends inside reasoning */
    const struct text_marks *part_marks; /* chat: of reasoning and calls; they stay in the text, for a reader
                                          * (chat/reader.h). NULL: all is text. Outlives the request */
    bool in_parts; /* not with chat: the text continues the prompt's, and another request may continue it.
                    * A character that is split between two requests comes whole with the later one */
    bool pool;     /* GEN_END has the mean of the hidden rows of all prompt tokens, which are all evaluated, after
                    * the first layer that the run taps */
    int priority;  /* higher ones first; equal ones in the order they came */
    bool yields;   /* after all that do not, whatever its priority; it gives its sequence up to one of them that waits,
                    * and continues later where it was */
    struct sample_opts sample;
    const struct str *stops; /* [n_stops], not empty; needs a text */
    size_t n_stops;
    const int32_t
        *stop_token; /* [n_stop_tokens] end tokens of this request, beside the model's own; also with ignore_eos */
    size_t n_stop_tokens;
    const int64_t *marks; /* [n_marks] positions of the prompt, ascending, at which run_mark() is called */
    int n_marks;
    int64_t n_rows;                          /* logits of the last n_rows prompt tokens come as GEN_ROW; 0: none */
    bool uncertainty;                        /* the entropy, varentropy and margin of each token are wanted */
    int draft_max;                           /* guesses in a step; -1: as many as fit; 0: none */
    const struct gen_constraint *constraint; /* NULL: any text */
    const void *rules;                       /* of the constraint; outlives the request */
    const struct gen_memory *memory;         /* NULL: none */
    const void *memory_of;                   /* its object; outlives the request */
    const struct gen_governor *governor;     /* NULL: none */
    const void *governor_opts;               /* used by gen_submit() only */
    const struct run_adapter *adapters; /* [n_adapters] as of run_set_adapters(); they must stay open until g is closed,
                                         * since sequences keep them */
    int n_adapters;                     /* -1: those of gen_opts */
    /* [n_answer] The answer begins with these tokens, which another request like this one has chosen, with other random
     * numbers or up to the end of a step: it goes on as that one would. They count as tokens of the answer and come as
     * forced GEN_TOKENs. Not with a memory, pool or n_rows, nor with a governor that probes or reads numbers. */
    const int32_t *answer;
    int64_t n_answer;
    struct str step_end; /* the first token behind these that ends a step is the last one: GEN_STEP. A step is more than
                          * blanks and ends with this text, in the reasoning too, but not with the marks of the
                          * reasoning. At most GEN_STEP_END_MAX bytes; n 0: there are no steps; needs a text */
    int64_t ctx_max;     /* tokens of prompt and answer, where that is less than the context; 0: the context */
    uint64_t owner;      /* what sequences hold is used by requests of one owner; 0: of all that have none */
    /* A second request, which is asked in place of this one if its answer is in doubt; NULL: none. No event of an
     * answer is told until it has ended without doubt, or was cancelled: it ends with the first token that is chosen
     * where the likeliest one has a probability (p_max of struct gen_seen) below `doubt_below`, 0 .. 1, or when it
     * repeats itself. Then GEN_SECOND comes, and the tokens and the end of the second one, under the same id. Used by
     * gen_submit() only; its user, owner, priority, yields, uncertainty and random numbers are this one's. Both write
     * an answer, and have neither n_rows nor pool, nor, but for chats, in_parts, nor an answer that goes on, nor steps.
     */
    const struct gen_request *second;
    float doubt_below;
    bool doubts_mean; /* it is in doubt, too, if it ended and the mean of the logarithms of the probabilities of its
                       * chosen tokens, those of reasoning not counted, is below `doubt_mean` */
    float doubt_mean;
    const struct str *doubt_texts; /* [n_doubt_texts] or one of these is in its text. They outlive the request */
    size_t n_doubt_texts;
    void *user;
};
/* No limit, greedy, everything else off. */
struct gen_request gen_defaults(void);

enum gen_kind {
    GEN_BEGIN,  /* has a sequence; stats.cached_tokens is known */
    GEN_PROMPT, /* part of the prompt was read */
    GEN_ROW,    /* the logits of one prompt token */
    GEN_SECOND, /* the first answer is dropped, nothing of it was told; stats.doubt says why */
    GEN_TOKEN,
    GEN_END,
};
enum gen_end {
    GEN_LENGTH, /* predict_max or text_max */
    GEN_EOS,    /* an end token: the model ended the turn */
    GEN_STOP_STRING,
    GEN_CONTEXT, /* the context is full */
    GEN_STOPPED, /* by the governor */
    GEN_LOOP,    /* by the governor, since the answer repeats itself */
    GEN_STEP,    /* step_end: another request may go on */
    GEN_CANCELLED,
    GEN_FAILED,
};
/* What is told of a request with a second one. */
struct gen_doubt {
    bool asked;     /* it has one */
    bool doubted;   /* the answer is the second one's */
    bool whole;     /* not doubted, and it came to its end: not cut off, nor cancelled */
    float least;    /* p_max of the first answer's choices, as far as it came, the end among them */
    float mean;     /* what doubts_mean says, of those that were chosen; NaN: there were none */
    int64_t tokens; /* doubted: chosen for the first answer, which are not in `tokens` of the stats */
    int64_t read;   /* doubted: tokens of the second prompt that were evaluated */
};
struct gen_stats {
    int64_t prompt_tokens, cached_tokens; /* cached: not evaluated again */
    int64_t tokens;                       /* of the answer; the token that ended the turn is none */
    int64_t reasoning_tokens;             /* of them, up to the end of the reasoning */
    int64_t drafted, kept;                /* guesses that were checked, and that were right */
    int64_t forced;                       /* tokens of a constraint or governor that were not chosen */
    int64_t steps;                        /* of the model, after the prompt's last */
    int64_t whole_rows;                   /* choices that needed all logits of a row from a GPU */
    int64_t probes;                       /* of the governor */
    int64_t probe_rows, probe_tokens;     /* rows that the model computed for them; tokens that they chose */
    int64_t probe_held_steps;             /* of the model, while the answer waited for a probe */
    struct gen_thought thought;
    struct gen_doubt doubt;
};
struct gen_event {
    enum gen_kind kind;
    int64_t id;
    void *user;
    int seq;                 /* of the run */
    int64_t done;            /* GEN_PROMPT: tokens read; GEN_ROW: position of the token */
    const float *logits;     /* GEN_ROW: [n_vocab] */
    struct sample_pick pick; /* GEN_TOKEN; logprob is NaN if it was not computed for a forced token */
    /* GEN_TOKEN, as struct gen_seen has them, and of a GEN_END by GEN_EOS p_max of its place; NaN: not wanted, or
     * forced. */
    float p_max, entropy, varentropy, margin;
    bool forced;                   /* GEN_TOKEN: not chosen */
    bool reasoning;                /* GEN_TOKEN, GEN_END: the text is reasoning */
    bool closes;                   /* GEN_TOKEN: the reasoning ends with this token */
    struct str text;               /* GEN_TOKEN, GEN_END: whole characters that are certain now */
    enum gen_end end;              /* GEN_END */
    size_t stop;                   /* GEN_END by GEN_STOP_STRING: which of the request's stops */
    struct err err;                /* GEN_FAILED: the reason; the other requests continue */
    struct gen_stats stats;        /* GEN_BEGIN, GEN_SECOND, GEN_END */
    const float *pooled;           /* GEN_END, if asked for: [n_embd], not normalised */
    const struct gen_mixed *mixed; /* GEN_END of a request with a memory: [n_mixed] */
    int n_mixed;
};

/* ERR_ARG: no sequence is left for requests. */
MUST_CHECK enum err_code gen_open(struct gen **out, const struct gen_opts *o, struct err *e);
void gen_close(struct gen *g); /* NULL is allowed; requests end without events */
/* *id counts from 1. ERR_LIMIT: too many wait, or the prompt exceeds the context. ERR_ARG: an option out of range.
 * ERR_UNSUPPORTED: among other things, the governor needs probes that the run has no room for. */
MUST_CHECK enum err_code gen_submit(struct gen *g, const struct gen_request *q, int64_t *id, struct err *e);
/* Replaces the drafter's object by another one of the same kind, from the next step on. A gen without a drafter stays
 * without one. */
void gen_set_drafter(struct gen *g, void *drafter_of);
/* Cancels a request: the next step gives its GEN_END with GEN_CANCELLED. An unknown id does nothing. */
void gen_cancel(struct gen *g, int64_t id);
bool gen_busy(const struct gen *g);       /* a request has not ended, or an event has not been taken */
int64_t gen_waiting(const struct gen *g); /* requests without a sequence */
int64_t gen_reading(const struct gen *g); /* requests that have no answer yet: they wait, or read their prompts */
bool gen_yields(const struct gen *g);     /* a request would give its sequence up */
/* A sequence that no request uses, the least recently used one: a program may load a session into it. -1: none. */
int gen_idle(const struct gen *g);
/* Whose contents a sequence has. Who loads a session into one says so. */
uint64_t gen_owner(const struct gen *g, int seq);
void gen_set_owner(struct gen *g, int seq, uint64_t owner);
/* One step, or what one of the steps under way gives. If experts cannot be read the requests of the step end with
 * GEN_FAILED. An error means that the run failed: every request has ended with GEN_FAILED, and g can only be closed;
 * steps that were under way in other groups have still given what they computed. A
 * step that the run aborted (run_opts.stop) is not an error: nothing has happened, and requests that are not cancelled
 * continue with the next step. */
MUST_CHECK enum err_code gen_step(struct gen *g, struct err *e);
/* The next event, in the order they happened; false: none left. What an event points to is valid until the next
 * gen_step(), its logits only until the next gen_next(). */
bool gen_next(struct gen *g, struct gen_event *ev);
#endif
