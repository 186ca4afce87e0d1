/* SPDX-License-Identifier: Apache-2.0 */
/* governor.c - watches the tokens of an answer, and closes its reasoning.    room: reason */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "reason/trace.h"
#include "text/marks.h"
#include "text/text.h"

enum {
    SAY_MAX = GEN_BACK_MAX, /* tokens of a closing text */
    RESERVE_MAX = 512,      /* of the context for the answer */
    CALL_MAX = 1024,        /* tokens for which a call of a tool is waited for */
    BAN_TOKENS = 4,         /* behind a closing text no closing mark may come for as many tokens */
    CHARACTER_BYTES_MAX = 4,
    TAIL_BYTES = 32, /* longer than the words that are suppressed */
    TRIAL_TOKENS = 6,
    RNG_STREAM_BIT = 62, /* its random numbers are not those of the sampler */
    /* Copies and tokens of a loop. Text may have a reason to repeat itself, such as a table of zeros. */
    THOUGHT_COPIES = 4,
    THOUGHT_LEAST = 32,
    TEXT_COPIES = 8,
    TEXT_LEAST = 256,
};

static const struct str reflections[] = { { "wait", 4 }, { "but", 3 }, { "hmm", 3 }, { "alternatively", 13 } };

struct governor {
    struct reason_opts o;
    bool off;     /* reasoning is closed where it opens */
    bool bounded; /* there is a budget */
    struct reason_budget budget;
    int64_t budget_tokens; /* before the model was certain */
    bool certain;          /* the budget is what had been thought then */
    struct reason_loop loop;
    bool closing;             /* the reasoning is to be closed, as soon as that may be */
    enum gen_why why;         /* and why */
    struct text_marks calls;  /* those of calls alone */
    struct text_place call;   /* follows the reasoning */
    int64_t call_tokens;      /* of the call under way */
    int lead, tail;           /* tokens of the closing text before and behind its mark, which are newlines */
    int32_t message[SAY_MAX]; /* [n_message] */
    int n_message;
    int32_t say[SAY_MAX];    /* the order under way */
    char newest[TAIL_BYTES]; /* bytes of the reasoning */
    int missing;             /* bytes of the character that they end in */
    bool sentence;           /* a line or sentence ends with them */
    bool held, holds;        /* the model's own end was held back; the mark may not come next */
    int ban;                 /* tokens for which no second mark may come */
    /* Tokens that end in a character with at least 3, 2, 1 bytes missing: the first n_partial[3], [2], [1] of them. */
    int32_t *partial;
    int n_partial[CHARACTER_BYTES_MAX];
    /* How certain the model is. */
    struct reason_judge judge;
    uint64_t seed, stream;
    bool inside;                         /* in the reasoning */
    bool probing, stale;                 /* a probe is under way; what it asks is over */
    int32_t stub[SAY_MAX], ask[SAY_MAX]; /* [n_stub]; the order of that probe */
    int n_stub;
    struct reason_words *words; /* NULL: none are suppressed */
    bool suppresses;            /* they may not come next */
    int64_t n_suppressed;
};

struct reason_opts reason_defaults(void)
{
    return (struct reason_opts){ .budget_tokens = -1, .grace_tokens = -1, .loops = true };
}

static void end_governor(void *of)
{
    struct governor *g = of;

    if (g == NULL)
        return;
    reason_words_close(g->words);
    free(g->partial);
    free(g);
}

/* ---- characters ---- */

/* Bytes of a character that come after its first one. */
static int more_bytes(char first)
{
    const unsigned char c = (unsigned char)first;

    return c >= 0xf0 && c < 0xf8 ? 3 : c >= 0xe0 ? (c < 0xf0 ? 2 : 0) : c >= 0xc0 ? 1 : 0;
}

/* How many bytes its last character lacks; 0 if it begins none. */
static int missing_bytes(struct str piece)
{
    for (size_t i = piece.n, n = 0; i-- > 0 && n < CHARACTER_BYTES_MAX; n++)
        if (((unsigned char)piece.p[i] & 0xc0) != 0x80) {
            const int more = more_bytes(piece.p[i]);

            return more > (int)n ? more - (int)n : 0;
        }
    return 0;
}

/* The tokens that end within a character: none of them may be the last of a budget. */
static enum err_code find_partial(struct governor *g, struct err *e)
{
    const int32_t n = text_info(g->o.text)->n_tokens;
    int at = 0;

    for (int32_t i = 0; i < n; i++)
        at += missing_bytes(text_piece(g->o.text, i)) > 0;
    g->partial = malloc(((size_t)at + 1) * sizeof *g->partial);
    if (g->partial == NULL)
        return err_nomem(e);
    at = 0;
    for (int lack = CHARACTER_BYTES_MAX - 1; lack > 0; lack--) {
        for (int32_t i = 0; i < n; i++)
            if (missing_bytes(text_piece(g->o.text, i)) == lack)
                g->partial[at++] = i;
        g->n_partial[lack] = at;
    }
    return ERR_OK;
}

/* Adds the text of a token of the reasoning. Whether a line or sentence ends with it. */
static bool follow_text(struct governor *g, struct str piece)
{
    const bool inside = piece.n > 0 && ((unsigned char)piece.p[0] & 0xc0) == 0x80; /* a character goes on */
    struct str tail;

    for (size_t i = 0; i < piece.n; i++) {
        memmove(g->newest, g->newest + 1, sizeof g->newest - 1);
        g->newest[sizeof g->newest - 1] = piece.p[i];
    }
    tail = (struct str){ g->newest, sizeof g->newest };
    g->missing = missing_bytes(tail);
    return reason_ends_sentence(inside ? tail : piece);
}

/* Follows calls of tools in the reasoning. */
static void follow_calls(struct governor *g, struct str piece)
{
    while (piece.n > 0) {
        const size_t n = text_marks_take(&g->calls, &g->call, piece);

        piece = (struct str){ piece.p + n, piece.n - n };
    }
    g->call_tokens = g->call.call ? g->call_tokens + 1 : 0;
}

static bool is_newlines(struct str s)
{
    while (s.n > 0 && s.p[s.n - 1] == '\n')
        s.n--;
    return s.n == 0;
}

/* ---- orders ---- */

static bool ends_line(struct str s)
{
    return s.n > 0 && s.p[s.n - 1] == '\n';
}

/* The closing text, which begins on a line of its own, with n_message tokens of the message. Returns its length. */
static int write_closing(const struct governor *g, int32_t to[SAY_MAX], int n_message)
{
    const struct text_marks *m = g->o.marks;
    bool line = ends_line((struct str){ g->newest, sizeof g->newest });
    int n = 0;

    for (int i = 0; i < g->lead && n_message > 0 && !line; i++)
        to[n++] = m->over[i];
    for (int i = 0; i < n_message; i++)
        to[n++] = g->message[i];
    line = n_message > 0 ? ends_line(g->o.message) : line;
    for (int i = line ? g->lead : 0; i < m->n_over; i++)
        to[n++] = m->over[i];
    return n;
}

static struct gen_order close_reasoning(struct governor *g)
{
    const int n = write_closing(g, g->say, g->why == GEN_WHY_BUDGET ? g->n_message : 0);

    g->probing = false;
    return (struct gen_order){ .act = GEN_SAY, .token = g->say, .n_token = n, .n_needed = n - g->tail, .why = g->why };
}

static struct gen_order ban_mark(const struct governor *g)
{
    return (struct gen_order){ .act = GEN_GO_ON, .shun = &g->o.marks->over[g->lead], .n_shun = 1 };
}

/* Whether words are suppressed behind the tokens so far. */
static bool draw_suppression(const struct governor *g)
{
    const float chance = reason_suppress_chance(g->judge.trial_certainty, g->o.suppress_above);

    return chance > 0 &&
           rng_unit(g->seed, g->stream | (uint64_t)1 << RNG_STREAM_BIT, (uint64_t)g->budget.n) < (double)chance;
}

/* Reasoning goes on; which tokens may not come next. */
static struct gen_order go_on_reasoning(struct governor *g)
{
    const int64_t left = g->budget.budget - g->budget.n + g->budget.grace;
    struct gen_order o = { .act = GEN_GO_ON };

    g->suppresses = false;
    g->holds = g->budget.n < g->o.least_tokens && !g->held;
    if (g->holds)
        return ban_mark(g);
    if ((g->bounded || g->certain) && left > 0 && left < CHARACTER_BYTES_MAX) {
        o.shun = g->partial;
        o.n_shun = g->n_partial[left];
    } else if (g->words != NULL && draw_suppression(g)) {
        o.n_shun = reason_words_next(g->words, (struct str){ g->newest, sizeof g->newest }, &o.shun);
        g->suppresses = true;
    }
    return o;
}

/* ---- certainty ---- */

int reason_trial_tokens(const struct reason_opts *o)
{
    const bool rule = o->rule == REASON_RULE_CGR || o->rule == REASON_RULE_DEER || o->rule == REASON_RULE_SAME;

    if (o->trace != NULL)
        return o->trace->answer_tokens;
    if (!rule && (!o->suppresses || o->rule == REASON_RULE_EAT))
        return 0;
    return o->trial_tokens > 0 ? o->trial_tokens : TRIAL_TOKENS;
}

static bool asks(const struct reason_opts *o)
{
    return o->rule == REASON_RULE_EAT || reason_trial_tokens(o) > 0;
}

/* Whether the model is asked behind the newest token. */
static bool is_due(const struct governor *g)
{
    const struct reason_opts *o = &g->o;
    const int64_t n = g->budget.n;
    const int64_t every = o->trace != NULL ? o->trace->every_tokens : o->every_tokens;
    const bool here = g->sentence || (every > 0 && n % every == 0);

    return here && asks(o) && !g->off && !g->closing && !g->probing && n >= o->after_tokens && n >= o->least_tokens &&
           n < g->budget.budget && g->missing == 0 && !g->call.call;
}

/* What the model would answer now. */
static struct gen_order ask_now(struct governor *g)
{
    struct gen_order o = go_on_reasoning(g);

    o.token = g->ask;
    o.n_token = write_closing(g, g->ask, 0);
    for (int i = 0; i < g->n_stub; i++)
        g->ask[o.n_token++] = g->stub[i];
    if (g->o.trace != NULL)
        reason_trace_ask(g->o.trace, g->sentence, o.n_token, o.n_token - g->tail);
    o.n_probe = reason_trial_tokens(&g->o);
    o.lag = g->o.lag;
    o.act = o.n_probe > 0 ? GEN_PROBE : GEN_PEEK;
    g->probing = true;
    g->stale = false;
    return o;
}

/* What has been thought is the budget from now on. */
static void be_certain(struct governor *g)
{
    if (g->closing || g->budget.n >= g->budget.budget)
        return;
    g->certain = true;
    g->budget.budget = g->budget.n;
    g->budget.grace = reason_grace_of(&g->o, g->budget.n);
    g->closing = g->sentence || g->budget.grace == 0;
    g->why = GEN_WHY_CERTAINTY;
}

/* What a probe found. Whether the rule is content with it. */
static bool weigh_probe(struct governor *g, const struct gen_seen *s, int n)
{
    if (reason_trial_tokens(&g->o) == 0)
        return reason_judge_peek(&g->judge, s->entropy);
    if (g->o.trace != NULL)
        reason_trace_place(g->o.trace, s, n);
    return reason_judge_trial(&g->judge, g->o.text, s, n);
}

/* A token of the reasoning: its part in the confidence over the last ones. */
static bool weigh_token(struct governor *g, const struct gen_seen *s)
{
    return !s->forced && reason_judge_token(&g->judge, s->p_max, s->entropy) && g->budget.n >= g->o.after_tokens &&
           g->budget.n >= g->o.least_tokens;
}

static bool may_close(const struct governor *g)
{
    return g->closing && g->missing == 0 && (!g->call.call || g->call_tokens > CALL_MAX);
}

static struct gen_order go_on_text(const struct governor *g)
{
    return g->ban > 0 ? ban_mark(g) : (struct gen_order){ .act = GEN_GO_ON };
}

static struct gen_order take_probe(void *of, const struct gen_seen *s, int n)
{
    struct governor *g = of;
    const bool counts = g->probing && !g->stale && n > 0;

    g->probing = false;
    if (counts && weigh_probe(g, s, n))
        be_certain(g);
    if (!g->inside)
        return go_on_text(g);
    return may_close(g) ? close_reasoning(g) : go_on_reasoning(g);
}

/* ---- tokens ---- */

/* A token of the text. */
static struct gen_order see_text(struct governor *g, const struct gen_seen *s)
{
    if (g->o.loops && !s->closes && reason_loop_add(&g->loop, s->token, TEXT_COPIES, TEXT_LEAST) > 0)
        return (struct gen_order){ .act = GEN_STOP, .why = GEN_WHY_LOOP };
    g->ban -= g->ban > 0 && !s->said;
    return go_on_text(g);
}

/* Counts a token of the reasoning, and decides whether that is to end. */
static void count_thought(struct governor *g, const struct gen_seen *s)
{
    g->held = g->held || (g->holds && s->shunned);
    g->n_suppressed += g->suppresses && s->shunned;
    if (g->o.trace != NULL)
        reason_trace_token(g->o.trace, s, g->sentence);
    if (reason_budget_add(&g->budget, g->sentence) && !g->closing) {
        g->closing = true;
        g->why = g->certain ? GEN_WHY_CERTAINTY : GEN_WHY_BUDGET;
    }
    if (g->o.loops && reason_loop_add(&g->loop, s->token, THOUGHT_COPIES, THOUGHT_LEAST) > 0 && !g->closing) {
        g->closing = true;
        g->why = GEN_WHY_LOOP;
    }
    if (weigh_token(g, s))
        be_certain(g);
}

/* A token of the reasoning, or the one that opens it. */
static struct gen_order see_thought(struct governor *g, const struct gen_seen *s)
{
    const struct str piece = text_piece(g->o.text, s->token);

    g->sentence = follow_text(g, piece);
    if (s->reasoning)
        follow_calls(g, piece);
    if (s->said)
        return (struct gen_order){ .act = GEN_GO_ON };
    if (s->reasoning)
        count_thought(g, s);
    if (may_close(g))
        return close_reasoning(g);
    return s->reasoning && is_due(g) ? ask_now(g) : go_on_reasoning(g);
}

/* Reasoning begins or ends; what begins again has nothing left of a budget that is spent. */
static void turn(struct governor *g, const struct gen_seen *s)
{
    const bool spent = g->off || g->budget.n >= g->budget.budget;

    g->loop = (struct reason_loop){ .n = 0 };
    g->call = (struct text_place){ .part = TEXT_ANSWER };
    g->call_tokens = 0;
    g->closing = s->opens && spent;
    g->why = g->off ? GEN_WHY_OFF : g->certain ? GEN_WHY_CERTAINTY : GEN_WHY_BUDGET;
    g->stale = g->probing;
    g->inside = s->opens;
    g->suppresses = false;
    g->ban = s->closes && s->said ? BAN_TOKENS : 0;
}

static struct gen_order see_token(void *of, const struct gen_seen *s)
{
    struct governor *g = of;

    if (s->opens || s->closes)
        turn(g, s);
    return s->opens || (s->reasoning && !s->closes) ? see_thought(g, s) : see_text(g, s);
}

static void tell_thought(const void *of, struct gen_thought *t)
{
    const struct governor *g = of;

    t->budget = g->off ? 0 : g->bounded ? g->budget_tokens : -1;
    t->weighed = !g->off && (g->o.rule != REASON_RULE_NONE || g->o.suppresses);
    t->certainty = g->judge.certainty;
    t->suppressed = g->n_suppressed;
}

static struct gen_needs needs_of(const void *of)
{
    const struct governor *g = of;
    const int ask = g->o.marks != NULL ? g->o.marks->n_over + g->n_stub : 0, trial = reason_trial_tokens(&g->o);
    const bool any = !g->off && ask > 0 && asks(&g->o);

    return (struct gen_needs){ .peek_tokens = any && trial == 0 ? ask : 0,
                               .probe_tokens = any && trial > 0 ? ask + trial : 0,
                               .looks = g->o.rule == REASON_RULE_ABF || g->o.trace != NULL };
}

/* ---- the beginning ---- */

/* The tokens of a text, which has to fit into an order with the mark. */
static enum err_code encode_part(int32_t token[SAY_MAX], int *n, struct str s, const char *what, const char *place,
                                 const struct reason_opts *o, struct err *e)
{
    const int room = o->marks != NULL ? SAY_MAX - 2 * o->marks->n_over : 0;
    struct text_tokens v = { 0 };
    enum err_code code;

    *n = 0;
    if (s.n == 0 || o->text == NULL || o->marks == NULL)
        return ERR_OK;
    code = text_encode(o->text, s, 0, &v, e);
    if (code == ERR_OK && v.n > room) {
        code = err_set(e, ERR_ARG, "a %s of %lld tokens, at most %d", what, (long long)v.n, room);
        err_at(e, "%s", place);
    } else if (code == ERR_OK && v.n > 0) {
        *n = (int)v.n;
        memcpy(token, v.v, (size_t)v.n * sizeof *token);
    }
    text_tokens_free(&v);
    return code;
}

static enum err_code encode_message(int32_t token[SAY_MAX], int *n, const struct reason_opts *o, struct err *e)
{
    return encode_part(token, n, o->message, "message", "/reasoning_budget_message", o, e);
}

static enum err_code encode_stub(int32_t token[SAY_MAX], int *n, const struct reason_opts *o, struct err *e)
{
    return encode_part(token, n, o->stub, "stub", "/think_probe", o, e);
}

int reason_peek_tokens(const struct reason_opts *o)
{
    int32_t stub[SAY_MAX];
    struct err why;
    int n;

    if (o->rule != REASON_RULE_EAT)
        return 0;
    if (o->text == NULL || o->marks == NULL || encode_stub(stub, &n, o, &why))
        return GEN_DRAFT_MAX;
    return o->marks->n_over + n;
}

void reason_drop_idle(struct reason_opts *o)
{
    if (reason_trial_tokens(o) == 0)
        o->trial_tokens = o->lag = 0;
    if (!asks(o)) {
        o->every_tokens = 0;
        o->stub.n = 0;
    }
    if (o->rule == REASON_RULE_NONE && !o->suppresses)
        o->after_tokens = 0;
}

static enum err_code check_probe(const struct reason_opts *o, struct err *e)
{
    struct reason_opts acts = *o;
    int32_t stub[SAY_MAX];
    int n;

    reason_drop_idle(&acts);
    if (acts.trial_tokens == o->trial_tokens && acts.lag == o->lag && acts.every_tokens == o->every_tokens &&
        acts.stub.n == o->stub.n && acts.after_tokens == o->after_tokens)
        return encode_stub(stub, &n, o, e);
    if (o->rule == REASON_RULE_NONE)
        err_set(e, ERR_ARG, "no rule that it would serve");
    else if (o->rule == REASON_RULE_EAT)
        err_set(e, ERR_ARG, "eat looks at one token: tokens and lag have no effect");
    else
        err_set(e, ERR_ARG, "abf looks at what is thought: only after has an effect");
    return err_at(e, "/think_probe");
}

enum err_code reason_check(const struct reason_opts *o, struct err *e)
{
    const bool budget = o->budget_tokens >= 0, share = o->effort != REASON_EFFORT_ANY;
    const int64_t most = budget ? reason_share(o->effort, o->budget_tokens) : INT64_MAX;
    int32_t message[SAY_MAX];
    const char *at = NULL;
    int n;

    if (o->grace_tokens >= 0 && !budget && !share && o->rule == REASON_RULE_NONE)
        at = "/reasoning_grace", err_set(e, ERR_ARG, "no budget that it would be added to");
    else if (o->grace_tokens > most)
        at = "/reasoning_grace", err_set(e, ERR_ARG, "above the budget of %lld tokens", (long long)most);
    else if (o->least_tokens > most)
        at = "/reasoning_min", err_set(e, ERR_ARG, "above the budget of %lld tokens", (long long)most);
    else if (o->message.n > 0 && (most == 0 || (!budget && !share)))
        at = "/reasoning_budget_message", err_set(e, ERR_ARG, "no budget at whose end it would be said");
    if (at != NULL)
        return err_at(e, "%s", at);
    return encode_message(message, &n, o, e) ? e->code : check_probe(o, e);
}

/* The budget of an answer that begins behind n_prompt tokens of the context. */
static void set_budget(struct governor *g, const struct gen_start *at)
{
    const struct reason_opts *o = &g->o;
    const bool share = o->effort != REASON_EFFORT_ANY;
    const int64_t room = at->ctx - at->n_prompt, quarter = room / 4;
    const int64_t most = o->budget_tokens >= 0 ? o->budget_tokens : at->ctx / 4;
    int64_t n = reason_share(o->effort, most), grace, left;

    g->off = o->budget_tokens == 0 || o->effort == REASON_EFFORT_NONE;
    g->bounded = !g->off && o->marks != NULL && o->text != NULL && (o->budget_tokens >= 0 || share);
    g->budget.budget = INT64_MAX;
    if (!g->bounded)
        return;
    grace = reason_grace_of(o, n);
    left = room - (quarter < RESERVE_MAX ? quarter : RESERVE_MAX) - grace - g->n_message - 2 * o->marks->n_over;
    n = n < left ? n : left > 0 ? left : 1;
    g->budget.budget = g->budget_tokens = n;
    g->budget.grace = grace < n ? grace : n;
}

/* What is needed to ask how certain the model is. */
static enum err_code set_certainty(struct governor *g, const struct gen_start *at, struct err *e)
{
    const struct reason_opts *o = &g->o;

    g->inside = at->reasoning;
    g->judge = reason_judge_of(o, at->n_vocab);
    g->seed = at->seed;
    g->stream = at->stream;
    if (o->marks == NULL || o->text == NULL || g->off)
        return ERR_OK;
    if (encode_stub(g->stub, &g->n_stub, o, e) ||
        (o->suppresses &&
         reason_words_open(&g->words, o->text, reflections, (int)(sizeof reflections / sizeof *reflections), e)))
        return e->code;
    return g->bounded || o->rule != REASON_RULE_NONE ? find_partial(g, e) : ERR_OK;
}

/* Marks of calls alone: in a text that has no reasoning, they are followed to their end. */
static struct text_marks marks_of_calls(const struct text_marks *m)
{
    struct text_marks calls = { 0 };

    for (int i = 0; m->call_end.n > 0 && i < TEXT_MARK_CALLS; i++)
        calls.call[i] = m->call[i];
    calls.call_end = m->call_end;
    return calls;
}

static enum err_code begin_governor(void **out, const void *opts, const struct gen_start *at, struct gen_order *first,
                                    struct err *e)
{
    const struct reason_opts *o = opts;
    struct governor *g = calloc(1, sizeof *g);

    if (g == NULL)
        return err_nomem(e);
    g->o = *o;
    if (o->marks != NULL && o->text != NULL) {
        while (g->lead < o->marks->n_over - 1 && is_newlines(text_piece(o->text, o->marks->over[g->lead])))
            g->lead++;
        while (g->lead + g->tail < o->marks->n_over - 1 &&
               is_newlines(text_piece(o->text, o->marks->over[o->marks->n_over - 1 - g->tail])))
            g->tail++;
        g->calls = marks_of_calls(o->marks);
    }
    g->call = (struct text_place){ .part = TEXT_ANSWER };
    enum err_code code = encode_message(g->message, &g->n_message, o, e);

    if (code == ERR_OK) {
        set_budget(g, at);
        code = set_certainty(g, at, e);
    }
    if (code != ERR_OK) {
        end_governor(g);
        return code;
    }
    if (at->reasoning)
        *first = go_on_reasoning(g);
    *out = g;
    return ERR_OK;
}

const struct gen_governor reason_governor = { .begin = begin_governor,
                                              .end = end_governor,
                                              .see = see_token,
                                              .probed = take_probe,
                                              .needs = needs_of,
                                              .tell = tell_thought };
