/* SPDX-License-Identifier: Apache-2.0 */
/* governor.c - watches the tokens of an answer, and closes its reasoning.    room: reason */
#include <stdlib.h>
#include <string.h>

#include "reason/reason.h"
#include "text/marks.h"
#include "text/text.h"

enum {
    SAY_MAX = GEN_BACK_MAX, /* tokens of a closing text */
    GRACE_MAX = 64,         /* by default */
    RESERVE_MAX = 512,      /* of the context for the answer */
    CALL_MAX = 1024,        /* tokens for which a call of a tool is waited for */
    BAN_TOKENS = 4,         /* behind a closing text no closing mark may come for as many tokens */
    CHARACTER_BYTES_MAX = 4,
    /* Copies and tokens of a loop. Text may have a reason to repeat itself, such as a table of zeros. */
    THOUGHT_COPIES = 4,
    THOUGHT_LEAST = 32,
    TEXT_COPIES = 8,
    TEXT_LEAST = 256,
};

struct governor {
    struct reason_opts o;
    bool off;     /* reasoning is closed where it opens */
    bool bounded; /* there is a budget */
    struct reason_budget budget;
    struct reason_loop loop;
    bool closing;             /* the reasoning is to be closed, as soon as that may be */
    enum gen_why why;         /* and why */
    struct text_marks calls;  /* those of calls alone */
    struct text_place call;   /* follows the reasoning */
    int64_t call_tokens;      /* of the call under way */
    int lead, tail;           /* tokens of the closing text before and behind its mark, which are newlines */
    int32_t message[SAY_MAX]; /* [n_message] */
    int n_message;
    int32_t say[SAY_MAX];             /* the order under way */
    char newest[CHARACTER_BYTES_MAX]; /* bytes of the reasoning */
    int missing;                      /* bytes of the character that they end in */
    bool held, holds;                 /* the model's own end was held back; the mark may not come next */
    int ban;                          /* tokens for which no second mark may come */
    /* Tokens that end in a character with at least 3, 2, 1 bytes missing: the first n_partial[3], [2], [1] of them. */
    int32_t *partial;
    int n_partial[CHARACTER_BYTES_MAX];
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

/* The closing text, which begins on a line of its own. */
static struct gen_order close_reasoning(struct governor *g)
{
    const struct text_marks *m = g->o.marks;
    const int n_message = g->why == GEN_WHY_BUDGET ? g->n_message : 0;
    bool line = ends_line((struct str){ g->newest, sizeof g->newest });
    int n = 0;

    for (int i = 0; i < g->lead && n_message > 0 && !line; i++)
        g->say[n++] = m->over[i];
    for (int i = 0; i < n_message; i++)
        g->say[n++] = g->message[i];
    line = n_message > 0 ? ends_line(g->o.message) : line;
    for (int i = line ? g->lead : 0; i < m->n_over; i++)
        g->say[n++] = m->over[i];
    return (struct gen_order){ .act = GEN_SAY, .token = g->say, .n_token = n, .n_needed = n - g->tail, .why = g->why };
}

static struct gen_order ban_mark(const struct governor *g)
{
    return (struct gen_order){ .act = GEN_GO_ON, .shun = &g->o.marks->over[g->lead], .n_shun = 1 };
}

/* Reasoning goes on; which tokens may not come next. */
static struct gen_order go_on_reasoning(struct governor *g)
{
    const int64_t left = g->budget.budget - g->budget.n + g->budget.grace;

    g->holds = g->budget.n < g->o.least_tokens && !g->held;
    if (g->holds)
        return ban_mark(g);
    if (g->bounded && left > 0 && left < CHARACTER_BYTES_MAX)
        return (struct gen_order){ .act = GEN_GO_ON, .shun = g->partial, .n_shun = g->n_partial[left] };
    return (struct gen_order){ .act = GEN_GO_ON };
}

/* A token of the text. */
static struct gen_order see_text(struct governor *g, const struct gen_seen *s)
{
    if (g->o.loops && !s->closes && reason_loop_add(&g->loop, s->token, TEXT_COPIES, TEXT_LEAST) > 0)
        return (struct gen_order){ .act = GEN_STOP, .why = GEN_WHY_LOOP };
    g->ban -= g->ban > 0 && !s->said;
    return g->ban > 0 ? ban_mark(g) : (struct gen_order){ .act = GEN_GO_ON };
}

/* A token of the reasoning, or the one that opens it. */
static struct gen_order see_thought(struct governor *g, const struct gen_seen *s)
{
    const struct str piece = text_piece(g->o.text, s->token);
    const bool sentence = follow_text(g, piece);

    if (s->reasoning)
        follow_calls(g, piece);
    if (s->said)
        return (struct gen_order){ .act = GEN_GO_ON };
    if (s->reasoning) {
        g->held = g->held || (g->holds && s->shunned);
        if (reason_budget_add(&g->budget, sentence) && !g->closing) {
            g->closing = true;
            g->why = GEN_WHY_BUDGET;
        }
        if (g->o.loops && reason_loop_add(&g->loop, s->token, THOUGHT_COPIES, THOUGHT_LEAST) > 0 && !g->closing) {
            g->closing = true;
            g->why = GEN_WHY_LOOP;
        }
    }
    if (g->closing && g->missing == 0 && (!g->call.call || g->call_tokens > CALL_MAX))
        return close_reasoning(g);
    return go_on_reasoning(g);
}

/* Reasoning begins or ends; what begins again has nothing left of a budget that is spent. */
static void turn(struct governor *g, const struct gen_seen *s)
{
    const bool spent = g->off || (g->bounded && g->budget.n >= g->budget.budget);

    g->loop = (struct reason_loop){ .n = 0 };
    g->call = (struct text_place){ .part = TEXT_ANSWER };
    g->call_tokens = 0;
    g->closing = s->opens && spent;
    g->why = g->off ? GEN_WHY_OFF : GEN_WHY_BUDGET;
    g->ban = s->closes && s->said ? BAN_TOKENS : 0;
}

static struct gen_order see_token(void *of, const struct gen_seen *s)
{
    struct governor *g = of;

    if (s->opens || s->closes)
        turn(g, s);
    return s->opens || (s->reasoning && !s->closes) ? see_thought(g, s) : see_text(g, s);
}

static struct gen_order go_on_after_probe(void *g, const struct gen_seen *s, int n)
{
    (void)g;
    (void)s;
    (void)n;
    return (struct gen_order){ .act = GEN_GO_ON };
}

static void tell_budget(const void *of, struct gen_thought *t)
{
    const struct governor *g = of;

    t->budget = g->off ? 0 : g->bounded ? g->budget.budget : -1;
}

/* ---- the beginning ---- */

/* The tokens of the message, which has to fit into an order with the mark. */
static enum err_code encode_message(int32_t token[SAY_MAX], int *n, const struct reason_opts *o, struct err *e)
{
    const int room = o->marks != NULL ? SAY_MAX - 2 * o->marks->n_over : 0;
    struct text_tokens v = { 0 };
    enum err_code code;

    *n = 0;
    if (o->message.n == 0 || o->text == NULL || o->marks == NULL)
        return ERR_OK;
    code = text_encode(o->text, o->message, 0, &v, e);
    if (code == ERR_OK && v.n > room) {
        code = err_set(e, ERR_ARG, "a message of %lld tokens, at most %d", (long long)v.n, room);
        err_at(e, "/reasoning_budget_message");
    } else if (code == ERR_OK && v.n > 0) {
        *n = (int)v.n;
        memcpy(token, v.v, (size_t)v.n * sizeof *token);
    }
    text_tokens_free(&v);
    return code;
}

enum err_code reason_check(const struct reason_opts *o, struct err *e)
{
    const bool budget = o->budget_tokens >= 0, share = o->effort != REASON_EFFORT_ANY;
    const int64_t most = budget ? reason_share(o->effort, o->budget_tokens) : INT64_MAX;
    int32_t message[SAY_MAX];
    const char *at = NULL;
    int n;

    if (o->grace_tokens >= 0 && !budget && !share)
        at = "/reasoning_grace", err_set(e, ERR_ARG, "no budget that it would be added to");
    else if (o->grace_tokens > most)
        at = "/reasoning_grace", err_set(e, ERR_ARG, "above the budget of %lld tokens", (long long)most);
    else if (o->least_tokens > most)
        at = "/reasoning_min", err_set(e, ERR_ARG, "above the budget of %lld tokens", (long long)most);
    else if (o->message.n > 0 && (most == 0 || (!budget && !share)))
        at = "/reasoning_budget_message", err_set(e, ERR_ARG, "no budget at whose end it would be said");
    return at != NULL ? err_at(e, "%s", at) : encode_message(message, &n, o, e);
}

/* The budget of an answer that begins behind n_prompt tokens of the context. */
static void set_budget(struct governor *g, const struct gen_start *at)
{
    const struct reason_opts *o = &g->o;
    const bool share = o->effort != REASON_EFFORT_ANY;
    const int64_t room = at->ctx - at->n_prompt, quarter = room / 4;
    const int64_t most = o->budget_tokens >= 0 ? o->budget_tokens : at->ctx / 4;
    int64_t n = reason_share(o->effort, most), grace = o->grace_tokens, left;

    g->off = o->budget_tokens == 0 || o->effort == REASON_EFFORT_NONE;
    g->bounded = !g->off && o->marks != NULL && o->text != NULL && (o->budget_tokens >= 0 || share);
    g->budget.budget = INT64_MAX;
    if (!g->bounded)
        return;
    grace = grace >= 0 ? grace : n / 8 < GRACE_MAX ? n / 8 : GRACE_MAX;
    left = room - (quarter < RESERVE_MAX ? quarter : RESERVE_MAX) - grace - g->n_message - 2 * o->marks->n_over;
    n = n < left ? n : left > 0 ? left : 1;
    g->budget.budget = n;
    g->budget.grace = grace < n ? grace : n;
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
        code = g->bounded ? find_partial(g, e) : ERR_OK;
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

const struct gen_governor reason_governor = {
    .begin = begin_governor, .end = end_governor, .see = see_token, .probed = go_on_after_probe, .tell = tell_budget
};
