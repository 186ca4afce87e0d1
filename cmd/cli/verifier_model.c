/* SPDX-License-Identifier: Apache-2.0 */
/* verifier_model.c - a model that says of each step and of the whole whether it is correct (verifier.h).   room: cmd */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ask/ask.h"
#include "chat/chat.h"
#include "cli/verifier.h"
#include "gen/gen.h"
#include "grammar/grammar.h"
#include "model/model.h"

enum {
    THINK_ROOM = 1024, /* tokens of the context for its reasoning */
    STEP_ROOM = 16,    /* of the answer, for a step */
    TOP = LOGITS_TOP_MAX,
};

/* A question, and what its answer has said so far. */
struct verdict {
    struct cli_solution *solution;
    const struct text *text;
    struct ask_request *asked;
    struct cli_buf said;
    int64_t n_tokens;
};

static enum err_code add(struct cli_buf *b, const char *z, struct err *e)
{
    return cli_buf_add(b, str_of(z), e);
}

/* What a model is asked: the words that the embedded one was trained with. */
static enum err_code write_question(struct cli_buf *b, const struct cli_solution *s, struct err *e)
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
static enum err_code write_form(struct cli_buf *b, const struct cli_solution *s, bool think, struct err *e)
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

static enum err_code ask_form(struct verdict *v, struct ask *a, bool think, const struct ask_model *m, struct err *e)
{
    struct cli_buf question = { 0 }, form = { 0 };
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
    cli_buf_free(&question);
    cli_buf_free(&form);
    return code;
}

static enum err_code ask_verdict(struct verdict *v, const struct ask_model *m, bool think, struct err *e)
{
    struct ask a = ask_defaults();

    a.think = think;
    a.tokens_max = think ? -1 : (int64_t)(v->solution->n_steps + 2) * STEP_ROOM;
    a.sample.n_top = TOP;
    a.reason = reason_defaults();
    if (think && chat_marks(m->chat) != NULL)
        a.reason.budget_tokens = THINK_ROOM * 3 / 4;
    return ask_form(v, &a, think, m, e);
}

/* ---- its answer ---- */

static bool ends_with(struct str s, const char *z)
{
    const size_t n = strlen(z);

    while (s.n > 0 && s.p[s.n - 1] == ' ')
        s.n--;
    return s.n >= n && memcmp(s.p + s.n - n, z, n) == 0;
}

/* The step whose label comes next; -1: none. */
static int64_t step_due(const struct verdict *v)
{
    const struct str s = { v->said.p != NULL ? v->said.p : "", v->said.n };
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
static double share_of(const struct verdict *v, const struct sample_pick *pick, const char *yes, const char *no,
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

static enum err_code take_token(struct verdict *v, const struct gen_event *ev, struct err *e)
{
    struct cli_solution *s = v->solution;
    const struct str piece = text_piece(v->text, ev->pick.token);
    int64_t step;

    v->n_tokens++;
    if (ev->reasoning || ev->closes)
        return ERR_OK;
    step = step_due(v);
    if (step >= 0 && isnan(s->scores[step]))
        s->scores[step] = share_of(v, &ev->pick, "correct", "incorrect", true);
    if (ends_with((struct str){ v->said.p != NULL ? v->said.p : "", v->said.n }, "correct?") && isnan(s->score)) {
        s->score = share_of(v, &ev->pick, "yes", "no", false);
        if (isnan(s->score)) /* of a vocabulary that has no such words */
            s->score = share_of(v, &ev->pick, "yes", "no", true);
    }
    if (v->said.n == 0 && piece.n > 0 && *piece.p == '\n')
        return ERR_OK;
    return cli_buf_add(&v->said, piece, e);
}

static enum err_code take_events(struct gen *g, int64_t *n_done, struct err *e)
{
    struct gen_event ev;

    while (gen_next(g, &ev)) {
        if (ev.kind == GEN_TOKEN && take_token(ev.user, &ev, e))
            return e->code;
        if (ev.kind == GEN_END && ev.end == GEN_FAILED)
            return err_copy(e, &ev.err);
        *n_done += ev.kind == GEN_END;
    }
    return ERR_OK;
}

static enum err_code answer_all(struct gen *g, struct verdict *v, size_t n, struct err *e)
{
    int64_t n_done = 0, id;

    for (size_t i = 0; i < n; i++) {
        struct gen_request q = v[i].asked->q;

        q.user = &v[i];
        if (gen_submit(g, &q, &id, e))
            return e->code;
    }
    while (gen_busy(g)) {
        if (cli_interrupted())
            return err_set(e, ERR_CANCEL, "interrupted");
        cli_progress_count("verdicts", n_done, (int64_t)n, "");
        if (gen_step(g, e) || take_events(g, &n_done, e))
            return e->code;
    }
    return ERR_OK;
}

static int64_t longest(const struct verdict *v, size_t n, bool think)
{
    int64_t most = 0;

    for (size_t i = 0; i < n; i++) {
        const int64_t room =
            v[i].asked->prompt.n + (int64_t)(v[i].solution->n_steps + 2) * STEP_ROOM + (think ? THINK_ROOM : 0);

        most = room > most ? room : most;
    }
    return most;
}

/* A run of its own, whose context fits the questions. */
static enum err_code run_all(struct cli_opened *x, bool think, int parallel, struct verdict *v, size_t n, struct err *e)
{
    const int n_seq = (size_t)parallel < n ? parallel : (int)n;
    const struct run_opts ro = { .ctx_tokens = longest(v, n, think),
                                 .n_seq = n_seq,
                                 .rows_max = n_seq > 256 ? n_seq : 256,
                                 .stop = cli_interrupted };
    struct run *run = NULL;
    struct gen *g = NULL;
    enum err_code code = cli_open_run(&run, x, &ro, e);

    if (code == ERR_OK)
        code = gen_open(&g,
                        &(struct gen_opts){ .run = run,
                                            .text = x->text,
                                            .prompt_rows = ro.rows_max,
                                            .adapters = x->adapters.list,
                                            .n_adapters = x->adapters.n },
                        e);
    if (code == ERR_OK)
        code = answer_all(g, v, n, e);
    gen_close(g);
    run_close(run);
    cli_progress_end();
    return code;
}

enum err_code cli_ask_verdicts(struct cli_opened *opened, bool think, int parallel, struct cli_solution *s, size_t n,
                               int64_t *n_tokens, struct err *e)
{
    struct verdict *v = calloc(n, sizeof *v);
    struct chat *chat = NULL;
    struct grammar_vocab *vocab = NULL;
    enum err_code code = v != NULL ? chat_open(&chat, opened->text, (struct str){ 0 }, e) : err_nomem(e);
    const struct ask_model m = {
        .text = opened->text, .chat = chat, .vocab = &vocab, .n_vocab = model_info(opened->model)->n_vocab
    };

    for (size_t i = 0; i < n && code == ERR_OK; i++) {
        v[i] = (struct verdict){ .solution = &s[i], .text = opened->text };
        s[i].score = (double)NAN;
        code = ask_verdict(&v[i], &m, think, e);
        if (code != ERR_OK)
            code = err_wrap(e, "solution %zu", i + 1);
    }
    if (code == ERR_OK)
        code = run_all(opened, think, parallel, v, n, e);
    for (size_t i = 0; v != NULL && i < n; i++) {
        *n_tokens += v[i].n_tokens;
        ask_close(v[i].asked);
        cli_buf_free(&v[i].said);
    }
    free(v);
    grammar_vocab_close(vocab);
    chat_close(chat);
    return code;
}
