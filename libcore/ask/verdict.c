/* SPDX-License-Identifier: Apache-2.0 */
/* verdict.c - what a model is asked of a solution, and how its answer is read (verdict.h).   room: ask */
#include "ask/verdict.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "chat/chat.h"
#include "reason/vote.h"

enum {
    THINK_ROOM = 1024, /* tokens of the context for its reasoning */
    STEP_ROOM = 16,    /* of the answer, for a step */
    TOP = LOGITS_TOP_MAX,
};

/* ---- solutions ---- */

enum err_code ask_solution_add(struct ask_solution *s, struct str step, struct err *e)
{
    char **grown, *copy;
    double *scores;

    if (s->n_steps == ASK_STEPS_MAX)
        return err_set(e, ERR_LIMIT, "more than %d steps", ASK_STEPS_MAX);
    grown = realloc(s->step, (s->n_steps + 1) * sizeof *grown);
    s->step = grown != NULL ? grown : s->step;
    scores = realloc(s->scores, (s->n_steps + 1) * sizeof *scores);
    s->scores = scores != NULL ? scores : s->scores;
    copy = strndup(step.p, step.n);
    if (grown == NULL || scores == NULL || copy == NULL) {
        free(copy);
        return err_nomem(e);
    }
    s->scores[s->n_steps] = (double)NAN;
    s->step[s->n_steps++] = copy;
    return ERR_OK;
}

static size_t find_end(struct str text, size_t from, struct str end)
{
    while (from + end.n <= text.n && memcmp(text.p + from, end.p, end.n) != 0)
        from++;
    return from + end.n <= text.n ? from : text.n;
}

enum err_code ask_solution_split(struct ask_solution *s, struct str text, struct str end, struct err *e)
{
    for (size_t from = 0, to; from < text.n; from = to + end.n) {
        size_t first = from, last;

        to = find_end(text, from, end);
        while (first < to && strchr(" \t\r\n", text.p[first]) != NULL)
            first++;
        for (last = to; last > first && strchr(" \t\r\n", text.p[last - 1]) != NULL;)
            last--;
        if (last > first && ask_solution_add(s, (struct str){ text.p + first, last - first }, e))
            return e->code;
    }
    return ERR_OK;
}

void ask_solution_free(struct ask_solution *s)
{
    for (size_t i = 0; i < s->n_steps; i++)
        free(s->step[i]);
    free(s->step);
    free(s->scores);
    free(s->problem);
    free(s->answer);
    *s = (struct ask_solution){ 0 };
}

enum err_code ask_solution_make(struct ask_solution *out, const json_t *messages, struct str reasoning, struct str text,
                                bool whole, struct str step_end, struct err *e)
{
    const bool answers = whole || (reasoning.n > 0 && text.n > 0);
    size_t n;

    out->score = (double)NAN;
    out->answer = answers ? strndup(text.p, text.n) : NULL;
    if (answers && out->answer == NULL)
        return err_nomem(e);
    if (ask_user_text(&out->problem, &n, messages, e))
        return e->code;
    if (ask_solution_split(out, reasoning.n > 0 ? reasoning : text, step_end, e) == ERR_LIMIT) {
        ask_solution_free(out);
        out->score = (double)NAN;
    }
    return e->code;
}

/* ---- the question ---- */

struct buf {
    char *p;
    size_t n, cap;
};

static enum err_code add_text(char **p, size_t *n, size_t *cap, struct str s, struct err *e)
{
    if (memory_room(p, cap, *n + s.n + 1, 1, e))
        return e->code;
    if (s.n > 0)
        memcpy(*p + *n, s.p, s.n);
    *n += s.n;
    return ERR_OK;
}

static enum err_code add(struct buf *b, const char *z, struct err *e)
{
    return add_text(&b->p, &b->n, &b->cap, str_of(z), e);
}

/* What a model is asked: the words that the embedded one was trained with. */
static enum err_code write_question(struct buf *b, const struct ask_solution *s, struct err *e)
{
    char number[40];

    if (add(b, "Verify the solution step by step.\n\nProblem: ", e) || add(b, s->problem, e) || add(b, "\n", e))
        return e->code;
    for (size_t i = 0; i < s->n_steps; i++) {
        (void)snprintf(number, sizeof number, "\nStep %zu: ", i + 1);
        if (add(b, number, e) || add(b, s->step[i], e))
            return e->code;
    }
    return ERR_OK;
}

/* The form of its answer, as a regular expression. Behind reasoning models were trained to begin with an empty line. */
static enum err_code write_form(struct buf *b, const struct ask_solution *s, bool think, struct err *e)
{
    char line[64];

    if (think && add(b, "\n{0,2}", e))
        return e->code;
    for (size_t i = 0; i < s->n_steps; i++) {
        (void)snprintf(line, sizeof line, "Step %zu: (correct|incorrect)\n", i + 1);
        if (add(b, line, e))
            return e->code;
    }
    return add(b, "Is the solution correct\\? (Yes|No)", e);
}

static enum err_code ask_form(struct ask_verdict *v, struct ask *a, bool think, const struct ask_model *m,
                              struct err *e)
{
    struct buf question = { 0 }, form = { 0 };
    enum err_code code = write_question(&question, v->solution, e);

    if (code == ERR_OK)
        code = write_form(&form, v->solution, think, e);
    if (code == ERR_OK) {
        a->messages =
            json_pack("[{s:s, s:o}]", "role", "user", "content", json_bytes((struct str){ question.p, question.n }));
        a->form.regex = (struct str){ form.p, form.n };
        code = a->messages != NULL ? ask_open(&v->asked, a, m, NULL, e) : err_nomem(e);
    }
    json_decref(a->messages);
    free(question.p);
    free(form.p);
    return code;
}

enum err_code ask_verdict_open(struct ask_verdict *v, struct ask_solution *s, const struct ask_model *m, bool think,
                               struct err *e)
{
    struct ask a = ask_defaults();

    *v = (struct ask_verdict){ .solution = s, .text = m->text };
    s->score = (double)NAN;
    a.think = think;
    a.tokens_max = think ? -1 : (int64_t)(v->solution->n_steps + 2) * STEP_ROOM;
    a.sample.n_top = TOP;
    a.reason = reason_defaults();
    if (think && chat_marks(m->chat) != NULL)
        a.reason.budget_tokens = THINK_ROOM * 3 / 4;
    return ask_form(v, &a, think, m, e);
}

void ask_verdict_close(struct ask_verdict *v)
{
    ask_close(v->asked);
    free(v->said);
    *v = (struct ask_verdict){ 0 };
}

int64_t ask_verdict_room(const struct ask_verdict *v, bool think)
{
    return v->asked->prompt.n + (int64_t)(v->solution->n_steps + 2) * STEP_ROOM + (think ? THINK_ROOM : 0);
}

/* ---- its answer ---- */

static struct str said_of(const struct ask_verdict *v)
{
    return (struct str){ v->said != NULL ? v->said : "", v->n_said };
}

static bool ends_with(struct str s, const char *z)
{
    const size_t n = strlen(z);

    while (s.n > 0 && s.p[s.n - 1] == ' ')
        s.n--;
    return s.n >= n && memcmp(s.p + s.n - n, z, n) == 0;
}

/* The step whose label comes next; -1: none. */
static int64_t step_due(const struct ask_verdict *v)
{
    const struct str s = said_of(v);
    size_t from = s.n, n = 0;
    char line[40];

    while (from > 0 && s.p[from - 1] != '\n')
        from--;
    for (size_t i = 0; i < s.n; i++)
        n += s.p[i] == '\n';
    (void)snprintf(line, sizeof line, "Step %zu:", n + 1);
    return n < v->solution->n_steps && ends_with((struct str){ s.p + from, s.n - from }, line) ? (int64_t)n : -1;
}

/* The probability of one word, of that and the other. */
static double share_of(const struct ask_verdict *v, const struct sample_pick *pick, const char *yes, const char *no,
                       bool part)
{
    double p[2] = { 0, 0 };

    for (int32_t i = 0; i < pick->n_top; i++) {
        const int side = reason_word_side(text_piece(v->text, pick->top[i].token), yes, no, part);

        if (side != 0)
            p[side < 0] += exp((double)pick->top[i].logprob);
    }
    return reason_verdict(p[0], p[1]);
}

enum err_code ask_verdict_take(struct ask_verdict *v, const struct gen_event *ev, struct err *e)
{
    struct ask_solution *s = v->solution;
    const struct str piece = text_piece(v->text, ev->pick.token);
    int64_t step;

    v->n_tokens++;
    if (ev->reasoning || ev->closes)
        return ERR_OK;
    step = step_due(v);
    if (step >= 0 && isnan(s->scores[step]))
        s->scores[step] = share_of(v, &ev->pick, "correct", "incorrect", true);
    if (ends_with(said_of(v), "correct?") && isnan(s->score)) {
        s->score = share_of(v, &ev->pick, "yes", "no", false);
        if (isnan(s->score)) /* of a vocabulary that has no such words */
            s->score = share_of(v, &ev->pick, "yes", "no", true);
    }
    if (v->n_said == 0 && piece.n > 0 && *piece.p == '\n')
        return ERR_OK;
    return add_text(&v->said, &v->n_said, &v->said_cap, piece, e);
}
