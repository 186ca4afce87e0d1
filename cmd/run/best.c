/* SPDX-License-Identifier: Apache-2.0 */
/* best.c - several answers to a question, of which votes and a verifier keep one; --verify.       room: cmd */
#include "run/best.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "reason/search.h"
#include "run/run.h"

/* One of the answers. */
struct candidate {
    struct cli_answer answer;
    const struct ask_request *asked;
    struct ask_solution solution; /* for the verifier; n_steps 0: there is nothing to score */
    char *canon;                  /* n_canon 0: it has no vote */
    size_t n_canon;
    int64_t id;
    enum gen_end end;
    struct gen_stats stats;
};

struct best {
    struct cli_run *s;
    struct candidate *v; /* [n] those of the question, behind them a second attempt */
    int n, n_asked, n_ended;
    struct ask_request *again; /* of the second attempt; NULL: there is none */
    json_t *messages;          /* its messages */
    struct reason_tally tally;
    struct err why; /* of the verifier: the best so far is printed before it */
    int winner;
};

bool cli_run_wants_best(const struct cli_run_options *o)
{
    return o->best_of > 0 || o->verify != NULL || o->dvts != NULL;
}

int cli_run_n_answers(const struct cli_run_options *o)
{
    int n = 1, width;

    if (o->dvts != NULL)
        return reason_search_size(o->dvts, &n, &width) ? n : 1;
    return o->best_of > 1 ? o->best_of : 1;
}

enum reason_vote cli_run_vote(const struct cli_run_options *o)
{
    if (o->vote < 0)
        return o->dvts != NULL ? REASON_WEIGHTED : REASON_MAJORITY;
    return (enum reason_vote)o->vote;
}

const char *cli_run_vote_name(const struct cli_run_options *o)
{
    return reason_vote_name(cli_run_vote(o));
}

bool cli_run_threshold(const char *verify, double *x)
{
    char *end;

    *x = 0.5;
    if (*verify == '\0')
        return true;
    *x = strtod(verify, &end);
    return *end == '\0' && *x >= 0 && *x <= 1;
}

static struct cli_verifier_use verifier_use(struct cli_run *s)
{
    const struct cli_run_options *o = s->o;
    struct cli_verifier_use use = {
        .o = o->verifier, .model = &o->model, .self = &s->open, .think = o->think == 0, .parallel = cli_run_n_answers(o)
    };

    if (use.o.what == NULL && o->verify != NULL)
        use.o.what = "self";
    return use;
}

enum err_code cli_run_open_verifier(struct cli_run *s, struct err *e)
{
    const struct cli_verifier_use use = verifier_use(s);

    return use.o.what == NULL ? ERR_OK : cli_verifier_open(&s->verifier, &use, e);
}

enum err_code cli_run_count_verifier(struct cli_run *s, int64_t ctx_tokens, struct err *e)
{
    const struct cli_verifier_use use = verifier_use(s);

    return cli_verifier_bytes(s->open.beside_bytes, &use, ctx_tokens, e);
}

/* ---- the answers ---- */

static enum err_code submit(struct best *b, struct candidate *c, int stream, struct err *e)
{
    struct cli_run *s = b->s;
    const struct cli_answer_opts ao = { .form = ANSWER_JSON,
                                        .reasoning = REASONING_NONE,
                                        .text = s->open.text,
                                        .asked = c->asked,
                                        .logprobs = s->o->sampling.logprobs >= 0,
                                        .uncertainty = s->o->uncertainty };
    struct gen_request q = c->asked->q;

    q.sample.stream = (uint64_t)stream;
    q.user = c;
    if (cli_answer_open(&c->answer, &ao, e))
        return e->code;
    return gen_submit(s->gen, &q, &c->id, e);
}

static enum err_code take_event(struct best *b, const struct gen_event *ev, struct err *e)
{
    struct candidate *c = ev->user;

    if (ev->kind == GEN_TOKEN && !b->s->read) {
        b->s->read = true;
        b->s->prompt_ms = clock_ms() - b->s->from_ms;
    }
    if (ev->kind == GEN_TOKEN)
        return cli_answer_take(&c->answer, ev, e);
    if (ev->kind != GEN_END)
        return ERR_OK;
    c->end = ev->end;
    c->stats = ev->stats;
    b->n_ended += ev->end != GEN_CANCELLED;
    return ev->end == GEN_FAILED ? err_copy(e, &ev->err) : cli_answer_end(&c->answer, ev, e);
}

/* Steps of the model until what was submitted has ended. */
static enum err_code generate(struct best *b, struct err *e)
{
    struct cli_run *s = b->s;
    struct gen_event ev;

    while (gen_busy(s->gen)) {
        for (int i = 0; i < b->n && cli_interrupted(); i++)
            gen_cancel(s->gen, b->v[i].id);
        cli_progress_count("answers", b->n_ended, b->n, "");
        if (gen_step(s->gen, e))
            return e->code;
        while (gen_next(s->gen, &ev))
            if (take_event(b, &ev, e))
                return e->code;
    }
    cli_progress_end();
    return ERR_OK;
}

static struct str text_of(const struct candidate *c)
{
    return (struct str){ c->answer.text.p != NULL ? c->answer.text.p : "", c->answer.text.n };
}

enum err_code cli_run_solution(struct ask_solution *out, const struct cli_run *s, const struct cli_answer *a,
                               bool whole, struct str step_end, struct err *e)
{
    const struct str reasoning = { a->reasoning.p, a->reasoning.n },
                     text = { a->text.p != NULL ? a->text.p : "", a->text.n };

    if (ask_solution_make(out, s->messages, reasoning, text, whole, step_end, e) == ERR_LIMIT) {
        cli_warn("an answer has more than %d steps and gets no score", ASK_STEPS_MAX);
        *e = (struct err){ 0 };
    }
    return e->code;
}

/* The canonical answer, and what is scored. An answer that was cut off has no vote. */
static enum err_code read_candidate(struct best *b, struct candidate *c, struct err *e)
{
    const bool whole = c->end == GEN_EOS || c->end == GEN_STOP_STRING || c->end == GEN_STOPPED;

    if (reason_canon(whole ? text_of(c) : STR(""), &c->canon, &c->n_canon, e))
        return e->code;
    if (b->s->verifier == NULL || c->n_canon == 0)
        return ERR_OK;
    return cli_run_solution(&c->solution, b->s, &c->answer, true, STR("\n"), e);
}

/* Scores those of `from` .. n - 1 that have something to score. */
static enum err_code score(struct best *b, int from, struct err *e)
{
    struct ask_solution *v = calloc((size_t)b->n, sizeof *v);
    size_t n = 0, k = 0;
    enum err_code code = v != NULL ? ERR_OK : err_nomem(e);

    for (int i = from; i < b->n && code == ERR_OK; i++) {
        b->v[i].solution.score = (double)NAN;
        code = read_candidate(b, &b->v[i], e);
        if (b->v[i].solution.n_steps > 0)
            v[n++] = b->v[i].solution;
    }
    if (code == ERR_OK && n > 0 && !cli_interrupted() && cli_verifier_score(b->s->verifier, v, n, &b->why))
        code = b->why.code == ERR_NOMEM ? err_copy(e, &b->why) : ERR_OK;
    for (int i = from; i < b->n && k < n; i++) /* those that it has said before it failed */
        if (b->v[i].solution.n_steps > 0)
            b->v[i].solution.score = v[k++].score;
    free(v);
    return code;
}

static enum err_code vote(struct best *b, struct err *e)
{
    struct reason_candidate *c = calloc((size_t)b->n, sizeof *c);

    if (c == NULL)
        return err_nomem(e);
    for (int i = 0; i < b->n; i++)
        c[i] = (struct reason_candidate){ { b->v[i].canon, b->v[i].n_canon }, b->v[i].solution.score };
    b->tally = reason_vote(c, b->n, cli_run_vote(b->s->o));
    b->winner = b->tally.winner >= 0 ? b->tally.winner : 0;
    free(c);
    if (b->tally.winner < 0 && !cli_interrupted())
        cli_warn("no answer came to its end: the first is shown");
    if (b->tally.by_majority && b->why.code == ERR_OK)
        cli_warn("the verifier gives every answer 0: the majority decides");
    return ERR_OK;
}

/* ---- --verify ---- */

static bool is_below(const struct best *b, int i)
{
    double least;

    (void)cli_run_threshold(b->s->o->verify, &least);
    return !(b->v[i].solution.score >= least);
}

/* What the model is told of an answer that scored too low. */
static void write_criticism(const struct ask_solution *s, char *buf, size_t buf_bytes)
{
    size_t worst = 0;

    for (size_t i = 1; i < s->n_steps; i++)
        if (!(s->scores[i] >= s->scores[worst]))
            worst = i;
    if (s->n_steps > 0 && s->scores[worst] < 0.5)
        (void)snprintf(buf, buf_bytes, "Your solution is wrong. Check step %zu: %.200s\nSolve the problem again.",
                       worst + 1, s->step[worst]);
    else
        (void)snprintf(buf, buf_bytes, "Your solution is wrong. Solve the problem again.");
}

static enum err_code ask_again(struct best *b, struct err *e)
{
    struct cli_run *s = b->s;
    const struct candidate *c = &b->v[b->winner];
    const struct ask_model m = cli_run_model(s);
    struct ask a = s->ask;
    char criticism[300];

    write_criticism(&c->solution, criticism, sizeof criticism);
    b->messages = json_shallow(s->ask.messages);
    json_push(&b->messages, json_pack("{s:s, s:o}", "role", "assistant", "content", json_bytes(text_of(c))));
    json_push(&b->messages, json_pack("{s:s, s:o}", "role", "user", "content", json_bytes(str_of(criticism))));
    if (b->messages == NULL)
        return err_nomem(e);
    a.messages = b->messages;
    a.continues_last = false;
    return ask_open(&b->again, &a, &m, s->asked, e);
}

/* One more attempt, kept if it scores better. */
static enum err_code try_again(struct best *b, struct err *e)
{
    struct candidate *c = &b->v[b->n];

    if (ask_again(b, e))
        return e->code;
    if (b->again->prompt.n >= run_ctx(b->s->run)) {
        cli_warn("there is no room in the context for a second attempt: --ctx sets it");
        return ERR_OK;
    }
    c->asked = b->again;
    b->n++;
    if (submit(b, c, b->n_asked, e) || generate(b, e) || score(b, b->n - 1, e))
        return e->code;
    if (c->solution.score > b->v[b->winner].solution.score || isnan(b->v[b->winner].solution.score))
        b->winner = c->n_canon > 0 ? b->n - 1 : b->winner;
    return ERR_OK;
}

/* ---- the report ---- */

static json_t *json_candidates(const struct best *b)
{
    json_t *all = json_array();

    for (int i = 0; i < b->n; i++) {
        const struct candidate *c = &b->v[i];

        json_push(&all, json_pack("{s:o, s:o, s:I, s:o}", "answer",
                                  c->n_canon > 0 ? json_bytes((struct str){ c->canon, c->n_canon }) : json_null(),
                                  "score", cli_json_real(c->solution.score), "tokens", (json_int_t)c->answer.ids.n,
                                  "text", json_bytes(text_of(c))));
    }
    return all;
}

/* How many of the scores are above a half: a verifier that says yes to everything decides nothing. */
static json_t *json_yes_rate(const struct best *b)
{
    int scored = 0, yes = 0;

    for (int i = 0; i < b->n; i++) {
        scored += !isnan(b->v[i].solution.score);
        yes += b->v[i].solution.score > 0.5;
    }
    return scored > 0 ? json_real((double)yes / scored) : json_null();
}

static bool report(struct best *b)
{
    struct cli_run *s = b->s;
    int64_t written = 0, cached = 0;
    const char *what = s->o->verifier.what != NULL ? s->o->verifier.what : s->verifier != NULL ? "self" : NULL;

    for (int i = 0; i < b->n; i++) {
        written += b->v[i].answer.ids.n;
        cached += b->v[i].stats.cached_tokens;
    }
    s->search =
        json_pack("{s:i, s:s, s:o, s:o, s:f, s:i, s:b, s:I, s:I, s:I, s:o}", "n", b->n_asked, "vote",
                  cli_run_vote_name(s->o), "verifier", what != NULL ? json_bytes(str_of(what)) : json_null(),
                  "yes_rate", json_yes_rate(b), "agreement", b->tally.agreement, "votes", b->tally.votes, "by_majority",
                  b->tally.by_majority, "generated_tokens", (json_int_t)written, "cached_tokens", (json_int_t)cached,
                  "verifier_tokens", s->verifier != NULL ? (json_int_t)cli_verifier_tokens(s->verifier) : (json_int_t)0,
                  "candidates", json_candidates(b));
    if (s->o->verify != NULL)
        s->verified = json_pack("{s:o, s:i, s:b}", "score", cli_json_real(b->v[b->winner].solution.score), "attempts",
                                b->n > b->n_asked ? 2 : 1, "passed", !is_below(b, b->winner));
    return s->search != NULL && (s->o->verify == NULL || s->verified != NULL);
}

/* The program goes on with the answer that is kept, as if it were the only one. */
static void keep_winner(struct best *b)
{
    struct cli_run *s = b->s;
    struct candidate *c = &b->v[b->winner];

    if (b->again != NULL && c->asked == b->again) {
        struct ask_request *first = s->asked;

        s->asked = b->again;
        b->again = first;
    }
    s->answer = c->answer;
    c->answer = (struct cli_answer){ 0 };
    s->finish = c->end;
    s->stats = c->stats;
    s->decode_ms = clock_ms() - s->from_ms - s->prompt_ms;
}

static enum err_code print_winner(struct best *b, struct err *e)
{
    struct cli_run *s = b->s;
    const struct candidate *c = &b->v[b->winner];
    const struct str text = text_of(c);

    for (int i = 0; i < b->n; i++)
        cli_note("answer   %d: %.*s, score %.3f, %" PRId64 " tokens%s", i + 1,
                 (int)(b->v[i].n_canon < 60 ? b->v[i].n_canon : 60), b->v[i].canon, b->v[i].solution.score,
                 b->v[i].answer.ids.n, i == b->winner ? ", kept" : "");
    if (s->o->json) {
        if (!report(b))
            return err_nomem(e);
        keep_winner(b);
        return cli_run_print_end(s, e);
    }
    if (b->n_ended == 0)
        return ERR_OK;
    (void)fwrite(text.p, 1, text.n, stdout);
    if (text.n == 0 || text.p[text.n - 1] != '\n')
        (void)putchar('\n');
    return cli_flush_stdout(e);
}

static enum err_code find_best(struct best *b, struct err *e)
{
    struct cli_run *s = b->s;

    if (cli_run_open_gen(s, e))
        return e->code;
    s->from_ms = clock_ms();
    for (; b->n < b->n_asked; b->n++) {
        b->v[b->n].asked = s->asked;
        if (submit(b, &b->v[b->n], b->n, e))
            return e->code;
    }
    if (generate(b, e) || score(b, 0, e) || vote(b, e))
        return e->code;
    if (s->o->verify != NULL && is_below(b, b->winner) && !cli_interrupted() && b->why.code == ERR_OK &&
        try_again(b, e))
        return e->code;
    s->unproven = s->o->strict && is_below(b, b->winner);
    return ERR_OK;
}

enum err_code cli_run_best(struct cli_run *s, struct err *e)
{
    struct best b = { .s = s, .n_asked = cli_run_n_answers(s->o) };
    enum err_code code;

    b.v = calloc((size_t)b.n_asked + 1, sizeof *b.v);
    code = b.v != NULL ? find_best(&b, e) : err_nomem(e);
    if (code == ERR_OK)
        code = print_winner(&b, e);
    if (code == ERR_OK && b.why.code != ERR_OK && b.why.code != ERR_CANCEL)
        code = err_copy(e, &b.why);
    for (int i = 0; b.v != NULL && i <= b.n_asked; i++) {
        cli_answer_close(&b.v[i].answer);
        ask_solution_free(&b.v[i].solution);
        free(b.v[i].canon);
    }
    free(b.v);
    ask_close(b.again);
    json_decref(b.messages);
    return code;
}
