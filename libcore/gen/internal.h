/* SPDX-License-Identifier: Apache-2.0 */
/* internal.h - inside of the generation engine.                              room: gen */
#ifndef GEN_INTERNAL_H
#define GEN_INTERNAL_H
#include "base/clock.h"
#include "gen/gen.h"
#include "run/run.h"
#include "text/marks.h"
#include "text/text.h"

enum request_state {
    REQUEST_WAITING, /* no sequence yet */
    REQUEST_ACTIVE,  /* reads its prompt, then writes */
    REQUEST_HELD,    /* waits for its governor's probe: for a sequence to spare, or for the result */
};

/* What happened, in order, kept until it is told. */
struct event {
    struct gen_event ev;
    size_t text, top; /* where in the buffers */
    int row;          /* GEN_ROW: of the step */
};
struct events {
    struct event *v; /* [n] */
    size_t n, cap, told;
    size_t n_open; /* requests that have not ended; for the event of each end there is room */
    char *text;
    size_t n_text, text_cap;
    size_t n_told_text; /* bytes of it that belong to events; the others come with the next one */
    struct sample_top *top;
    size_t n_top, top_cap;
};

/* One answer. Its tokens are token[0 .. n): the prompt, then the answer; the run's sequence has evaluated
 * token[0 .. fed), the others are pending. */
struct request {
    struct gen_request q;                          /* what it points to is owned, except rules and memory_of */
    struct run_adapter adapters[RUN_ADAPTERS_MAX]; /* of q */
    int64_t id;
    struct request *next; /* in the queue */
    enum request_state state;
    int seq;    /* -1: none */
    bool begun; /* GEN_BEGIN was reported */
    bool cancelled;
    bool ended; /* for the reason in end_by; gone after gen_finish() */
    enum gen_end end_by;
    float end_p;    /* GEN_EOS: p_max of its place; NaN: not wanted */
    struct err why; /* GEN_FAILED */
    int32_t *token; /* [cap] */
    double *pooled; /* [n_embd] sum of hidden rows; NULL: not wanted */
    int64_t n, cap, fed;
    int64_t n_read; /* tokens to read before the next choice: the prompt, or, if the request lost its
                     * sequence, all tokens it had then */
    int mark;       /* how many of q.marks are passed */
    struct sampler *sampler;
    struct text_stream *stream; /* of the part under way; NULL: no text */
    struct text_place place_in_text;
    int64_t text_from; /* tokens before the answer's text: the prompt, or all up to the end of the reasoning */
    int64_t n_text;    /* tokens of the text, from its first visible one on */
    int64_t n_held;    /* tokens that may still become the mark that opens the reasoning */
    char step[GEN_STEP_END_MAX]; /* the newest bytes of the step */
    int64_t n_step, step_from;   /* its bytes; those before the first that is no blank, -1: all are blanks */
    void *place;                 /* of the constraint */
    void *memory;                /* its place; NULL: none */
    void *governor;
    struct gen_needs needs;   /* the governor's */
    struct gen_order order;   /* its last */
    enum gen_why why_said;    /* what it says now ends the reasoning for */
    struct request *probe_of; /* a probe: the request that asked; no events */
    struct gen_seen *seen;    /* a probe: [q.predict_max] */
    struct probe {
        struct gen_order order;
        int64_t at;            /* tokens of the request when it was ordered; 0: there is none */
        int64_t since;         /* the order of all probes */
        struct request *runs;  /* NULL: not begun, or begun anew */
        struct gen_seen *seen; /* [n] what it found; NULL: not ready */
        int n;
    } probe;
    struct request *second; /* while this is a first answer; NULL: it is none */
    struct events held;     /* its events, until it is known that it stands */
    float least;            /* of its choices' p_max so far */
    double sum;             /* of the logarithms of its chosen tokens, [n_sum] without reasoning */
    int64_t n_sum;
    bool doubted;
    bool is_second; /* its GEN_BEGIN and what it reads are not told */
    struct gen_stats stats;
    /* Its step: its rows are those of the group from `first` on, n_new + n_guess + n_peek of them. */
    struct group *in; /* the group that it is or was in last; NULL: none since the last step was put together */
    bool under_way;   /* its step is */
    int first, n_new, n_guess, n_peek;
    int first_row; /* index in its group's ask of the first row that has logits; -1: none */
    int n_ask;
    int32_t guess[GEN_DRAFT_MAX];
    int64_t cut; /* while reading: a waiting request shares the prompt up to here; 0: none */
};

/* A row whose logits were asked for. */
struct asked_row {
    struct request *q;
    int row;       /* of the step */
    int n_guessed; /* guesses of its sequence before it */
    bool peeks;    /* behind the tokens of a GEN_PEEK */
    int mask;      /* which of g->masks; -1: none */
    int32_t mix_token[SAMPLE_MIX_MAX];
    float mix_q[SAMPLE_MIX_MAX];
    struct sample_mix mix;
    uint32_t evidence; /* of the memory */
    int32_t *ids;      /* [LOGITS_IDS_MAX] */
};

/* The requests of a step, its rows, and what is asked of them. The first group is all requests; the others, one for
 * each step of the run that may be under way, have a part of its arrays each. */
struct group {
    int flight;               /* of the run; -1: a step of all */
    struct run_row *row;      /* [rows_max] */
    struct logits_want *want; /* [rows_max] */
    int rows_max, n_rows;
    struct asked_row *ask; /* [logits_max] */
    int logits_max, n_ask;
    uint32_t *masks; /* [logits_max][mask_words] */
    int n_masks;
    struct clock_work from; /* when its step began */
    float ms;               /* what that took on the host, where devices compute at once */
};

struct gen {
    struct gen_opts o;
    struct run_adapter adapters[RUN_ADAPTERS_MAX]; /* of o */
    int n_seq, n_spare;                            /* sequences for requests come first */
    int32_t n_vocab;
    int64_t ctx;
    int prompt_rows, draft_max;
    struct request **at; /* [n_seq + n_spare] the request that has the sequence; NULL: none */
    int64_t *used;       /* [n_seq] when it was last used; 0: never */
    uint64_t *owner;     /* [n_seq] of what it holds */
    int64_t tick, next_id, n_probes;
    struct request *queue; /* waiting, as gen_precedes() has it */
    int64_t n_waiting;
    bool failed;
    struct group group[1 + RUN_FLIGHTS_MAX];
    int n_groups;         /* that may be under way; 1: none but the first */
    int n_under_way, due; /* groups whose steps are; the one of them that began first */
    bool may_admit;       /* since requests were admitted last, one came or went */
    struct group *now;    /* the step in hand */
    int turn;
    int64_t kv_left; /* KV rows that the step can still take */
    int32_t *ids;    /* [logits_max][LOGITS_IDS_MAX]; NULL: the run gives whole rows */
    size_t mask_words;
    struct text_tokens ends; /* all end tokens, once a request has min_tokens, or a governor and a constraint */
    struct gen_guess *guess; /* [n_seq] */
    struct gen_cost cost;
    struct events out;       /* to report */
    float *hidden;           /* [n_embd] a row */
    float *pooled;           /* [n_seq][n_embd] of requests that ended in this step */
    struct gen_mixed *mixed; /* [n_seq][GEN_MIXED_MAX] of requests that ended in this step */
    int n_embd;
};

/* Tokens of prompt and answer at most. */
static inline int64_t gen_ctx(const struct gen *g, const struct gen_request *q)
{
    return q->ctx_max > 0 && q->ctx_max < g->ctx ? q->ctx_max : g->ctx;
}

static inline bool reading(const struct request *q)
{
    return q->fed < q->n_read;
}

static inline bool writes(const struct request *q)
{
    return q != NULL && q->state == REQUEST_ACTIVE && !reading(q);
}

/* Whether the step in hand has rows of it. */
static inline bool is_in(const struct gen *g, const struct request *q)
{
    return q != NULL && q->in == g->now && q->n_new > 0;
}

/* admit.c */
bool gen_precedes(const struct request *a, const struct request *b); /* whether a is to be answered before b */
void gen_requeue(struct gen *g, struct request *q); /* takes its sequence away; later it continues where it was */
void gen_enqueue(struct gen *g, struct request *q);
bool gen_drop_idle(struct gen *g, int but); /* clears an idle sequence, not `but`; false: all of them are empty */
MUST_CHECK enum err_code gen_admit(struct gen *g, struct err *e); /* gives sequences to waiting requests */
void gen_request_free(struct request *q);                         /* NULL is allowed */
/* The request takes over a sequence whose request is gone, as far as both begin alike. */
MUST_CHECK enum err_code gen_follow(struct gen *g, struct request *q, int seq, struct err *e);

/* compose.c */
/* Puts the next step of g->now together: of all requests, or of some that write and whose steps are not under way; then
 * there may be no rows. */
MUST_CHECK enum err_code gen_compose(struct gen *g, struct err *e);
/* Of g->now; runs while a GPU computes. of: the gen. */
void gen_fill_masks(void *of);

/* groups.c: steps of several groups under way */
void gen_groups_open(struct gen *g); /* g->group[0] has the arrays */
void gen_groups_close(struct gen *g);
/* Begins steps until there are as many as may be; then what became of the first of them is known. *none: no step could
 * begin, nor is one under way. */
MUST_CHECK enum err_code gen_step_groups(struct gen *g, bool *none, struct err *e);
/* Waits for the steps under way that have requests which were cancelled, or, with `all`, for all of them, and takes
 * what they give. */
MUST_CHECK enum err_code gen_land(struct gen *g, bool all, struct err *e);

/* gen.c: g->now's step is done (why NULL), or was not: tokens, events, ends. An error if the run cannot go on. */
MUST_CHECK enum err_code gen_take_step(struct gen *g, float ms, const struct err *why, struct err *e);

/* probe.c: what a governor wants to know of an answer that might be */
bool gen_probe_due(const struct gen *g); /* gen_start_probes() would start one */
MUST_CHECK enum err_code gen_set_needs(const struct gen *g, struct request *q, struct err *e);
bool gen_probe_fits(const struct gen *g, const struct request *q, const struct gen_order *o);
void gen_order_probe(struct gen *g, struct request *q);
/* After each token, and when what was lost is read again (reads): the request waits for its probe, or hears of it. */
void gen_meet_probe(struct request *q, bool reads);
MUST_CHECK enum err_code gen_start_probes(struct gen *g, struct err *e);
void gen_end_probe(struct gen *g, struct request *probe);
void gen_lose_probe(struct gen *g, struct request *q); /* it begins anew, unless it is over */
void gen_drop_probe(struct gen *g, struct request *q);
/* A probe that has not begun needs the state before the request's token `at`. */
static inline bool waits_to_probe(const struct request *q)
{
    return q->probe.at > 0 && q->probe.runs == NULL && q->probe.seen == NULL;
}

/* choose.c */
void gen_set_numbers(struct gen_seen *seen, const struct logits_digest *d);
void gen_choose(struct gen *g); /* after the step: tokens, events, ends */
/* Appends tokens that need no logits, because the constraint allows only one. */
void gen_force(struct gen *g);
/* Takes the tokens that an answer begins with, and what its governor says behind them. May end the request. */
void gen_take_again(struct gen *g, struct request *q);

/* answer.c: appends a token to an answer, ends an answer */
bool gen_is_end(const struct gen *g, const struct request *q, int32_t token); /* it ends the answer */
/* May end the request (q->ended), also because memory is out. pick NULL: the token was forced, not chosen, and has no
 * numbers. */
void gen_take(struct gen *g, struct request *q, int32_t token, const struct sample_pick *pick,
              const struct gen_seen *numbers);
MUST_CHECK enum err_code gen_begin_text(struct gen *g, struct request *q, struct err *e);
/* What the marks of the reasoning are looked for in. */
struct str gen_spelling(const struct gen *g, const struct request *q, int32_t token);
static inline bool in_reasoning(const struct request *q)
{
    return q->place_in_text.part == TEXT_REASONING;
}
/* Whether somebody looks at the numbers of its tokens. */
static inline bool gen_looks(const struct request *q)
{
    return q->q.uncertainty || q->needs.looks || q->seen != NULL || q->second != NULL;
}
static inline void gen_end(struct request *q, enum gen_end by)
{
    q->ended = true;
    q->end_by = by;
}
/* What a request lacks, such as memory, ends this request. */
static inline void gen_fail(struct request *q, const struct err *why)
{
    q->why = *why;
    gen_end(q, GEN_FAILED);
}
/* Reports that q has ended (gen_end()), releases its sequence and frees it. */
void gen_finish(struct gen *g, struct request *q);

/* events.c */
struct event_what {
    const struct sample_pick *pick; /* NULL: none */
    int row;
};
/* Where the events of an answer go. */
static inline struct events *gen_out(struct gen *g, struct request *q)
{
    return q->second != NULL ? &q->held : &g->out;
}
/* Adds text to the next event. */
MUST_CHECK enum err_code gen_tell_text(struct events *to, struct str text, struct err *e);
MUST_CHECK enum err_code gen_tell(struct events *to, const struct gen_event *ev, const struct event_what *w,
                                  struct err *e);
MUST_CHECK enum err_code gen_tell_held(struct events *to, const struct events *held, struct err *e);
/* The end of a request has room kept for it since its beginning. */
MUST_CHECK enum err_code gen_keep_room(struct events *to, struct err *e);
void gen_tell_end(struct events *to, const struct gen_event *ev);
void gen_events_clear(struct events *to);
void gen_events_free(struct events *to);
#endif
