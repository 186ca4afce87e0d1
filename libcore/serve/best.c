/* SPDX-License-Identifier: Apache-2.0 */
/* best.c - several answers to a chat, of which votes and a verifier keep one.        room: serve
 *
 * The answers are written side by side, as those of "n" are, and kept; when all have ended they are scored. The model
 * itself scores them in the same engine, each verdict a request that belongs to the job; the verifier of the server
 * scores the answers of one job at a time, beside the engine. Then the votes are counted, and from there on the job
 * is one with a single answer, which is told. */
#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "run/run.h"
#include "serve/internal.h"

enum { WAIT_MS = 5 /* for the verifier, where the engine has nothing to do */ };

/* Beside the answer of the same index. */
struct candidate {
    char *canon; /* n_canon 0: it has no vote */
    size_t n_canon;
    struct ask_solution solution; /* n_steps 0: there is nothing to score */
    struct ask_verdict verdict;
    struct serve_choice judged; /* of the verdict; id 0: none is written */
};

struct serve_best {
    int n, n_verdicts;           /* n_verdicts: that have not ended */
    struct candidate *v;         /* [n] */
    struct ask_solution *scored; /* [n_scored] copies, for the verifier of the server; NULL: it has not begun */
    size_t n_scored;
    bool waits; /* for that verifier */
    int64_t verifier_tokens;
};

enum err_code serve_best_open(struct serve_job *j, struct err *e)
{
    struct serve_best *b = calloc(1, sizeof *b);

    if (b == NULL || (b->v = calloc((size_t)j->n_choices, sizeof *b->v)) == NULL) {
        free(b);
        return err_nomem(e);
    }
    b->n = j->n_choices;
    j->best = b;
    return ERR_OK;
}

void serve_best_close(struct serve_job *j)
{
    struct serve_best *b = j->best;

    for (int i = 0; b != NULL && i < b->n; i++) {
        ask_verdict_close(&b->v[i].verdict);
        ask_solution_free(&b->v[i].solution);
        free(b->v[i].canon);
    }
    if (b != NULL) {
        free(b->scored);
        free(b->v);
    }
    free(b);
    j->best = NULL;
}

enum err_code serve_best_hold(struct serve_choice *c, const struct chat_piece *p, struct err *e)
{
    const bool ok = p->part == CHAT_TOOL ? p->step != CHAT_CALL_END || serve_keep_call(&c->calls, p)
                                         : serve_add(p->part == CHAT_TEXT ? &c->text : &c->reasoning, p->text);

    return ok ? ERR_OK : err_nomem(e);
}

void serve_best_stop(struct serve *s, struct serve_job *j)
{
    for (int i = 0; j->best != NULL && i < j->best->n; i++)
        if (j->best->v[i].judged.id != 0)
            gen_cancel(s->o.gen, j->best->v[i].judged.id);
    if (s->judged == j)
        s->o.judge->stop(s->o.judge->of);
}

static struct str str_of_buf(const struct serve_buf *b)
{
    return (struct str){ b->p != NULL ? b->p : "", b->n };
}

/* ---- the votes ---- */

static json_t *score_json(double x)
{
    return isnan(x) ? json_null() : json_real(x);
}

/* As chimere-run tells it. */
static json_t *search_json(const struct serve_job *j, const struct reason_tally *t)
{
    static const char *const verifiers[] = { NULL, "self", "server" };
    const struct serve_best *b = j->best;
    json_t *all = json_array();
    int64_t tokens = 0, cached = 0;
    int scored = 0, yes = 0;

    for (int i = 0; i < b->n; i++) {
        const struct candidate *v = &b->v[i];
        const struct serve_choice *c = &j->choice[i];

        scored += !isnan(v->solution.score);
        yes += v->solution.score > 0.5;
        tokens += c->stats.tokens;
        cached += c->stats.cached_tokens;
        json_push(&all, json_pack("{s:o, s:o, s:I, s:o}", "answer",
                                  v->n_canon > 0 ? json_bytes((struct str){ v->canon, v->n_canon }) : json_null(),
                                  "score", score_json(v->solution.score), "tokens", (json_int_t)c->stats.tokens, "text",
                                  serve_text(&c->text)));
    }
    return json_pack("{s:i, s:s, s:s?, s:o, s:f, s:i, s:b, s:I, s:I, s:I, s:o}", "n", b->n, "vote",
                     reason_vote_name(j->w.vote), "verifier", verifiers[j->w.verifier], "yes_rate",
                     scored > 0 ? json_real((double)yes / scored) : json_null(), "agreement", t->agreement, "votes",
                     t->votes, "by_majority", (int)t->by_majority, "generated_tokens", (json_int_t)tokens,
                     "cached_tokens", (json_int_t)cached, "verifier_tokens", (json_int_t)b->verifier_tokens,
                     "candidates", all);
}

/* The job has one answer from now on. */
static void keep(struct serve_job *j, int winner)
{
    for (int i = 0; i < j->n_choices; i++)
        if (i != winner) {
            j->more_tokens += j->choice[i].stats.tokens;
            j->more_reasoning += j->choice[i].stats.reasoning_tokens;
            serve_choice_free(&j->choice[i]);
        }
    j->more_tokens += j->best->verifier_tokens;
    j->choice[0] = j->choice[winner];
    j->choice[0].index = 0;
    j->w.n = j->n_choices = j->n_asked = 1;
    j->n_answers = 1;
    serve_best_close(j);
}

/* As if it were written now. */
static enum err_code tell_calls(struct serve *s, struct serve_job *j, struct serve_choice *c, const json_t *calls,
                                struct err *e)
{
    json_t *call, *none = NULL;
    size_t i;

    json_array_foreach ((json_t *)(uintptr_t)calls, i, call) {
        const json_t *function = json_object_get(call, "function");
        struct chat_piece p = { .part = CHAT_TOOL,
                                .call = (int)i,
                                .id = json_text(json_object_get(call, "id")),
                                .name = json_text(json_object_get(function, "name")) };

        for (int step = CHAT_CALL_BEGIN; step <= CHAT_CALL_END; step++) {
            p.step = (enum chat_call_step)step;
            p.text = step == CHAT_CALL_BEGIN ? STR("") : json_text(json_object_get(function, "arguments"));
            if (serve_take_piece(s, j, c, &p, &none, e))
                return e->code;
        }
    }
    return ERR_OK;
}

static enum err_code tell(struct serve *s, struct serve_job *j, struct err *e)
{
    struct serve_choice *c = &j->choice[0];
    struct serve_buf text = c->text, reasoning = c->reasoning;
    json_t *calls = c->calls, *beside = NULL;
    enum err_code code = ERR_OK;

    c->text = c->reasoning = (struct serve_buf){ NULL, 0, 0 };
    c->calls = NULL;
    c->called = false;
    if (j->w.stream && j->asked == NULL && (c->logprobs != NULL || c->uncertainty != NULL)) {
        beside = json_pack("{s:o*, s:o*}", "logprobs", c->logprobs, "uncertainty", c->uncertainty);
        c->logprobs = c->uncertainty = NULL;
    }
    if (j->asked != NULL && j->row->dialect->begin != NULL)
        code = j->row->dialect->begin(s, j, c, e);
    for (int i = 0; i < 2 && code == ERR_OK; i++) {
        const struct serve_buf *b = i == 0 ? &reasoning : &text;

        if (b->n > 0)
            code = serve_take_piece(
                s, j, c, &(struct chat_piece){ .part = i == 0 ? CHAT_REASONING : CHAT_TEXT, .text = str_of_buf(b) },
                &beside, e);
    }
    if (code == ERR_OK)
        code = tell_calls(s, j, c, calls, e);
    json_decref(beside);
    json_decref(calls);
    free(text.p);
    free(reasoning.p);
    return code != ERR_OK ? code : serve_tell_end(s, j, c, e);
}

static enum err_code decide(struct serve *s, struct serve_job *j, struct err *e)
{
    struct serve_best *b = j->best;
    struct reason_candidate *c = calloc((size_t)b->n, sizeof *c);
    struct reason_tally t;

    if (c == NULL)
        return err_nomem(e);
    for (int i = 0; i < b->n; i++)
        c[i] = (struct reason_candidate){ { b->v[i].canon, b->v[i].n_canon }, b->v[i].solution.score };
    t = reason_vote(c, b->n, j->w.vote);
    free(c);
    s->m.votes++;
    s->m.candidates += (uint64_t)b->n;
    s->m.verifier_tokens += (uint64_t)b->verifier_tokens;
    j->search = search_json(j, &t);
    if (j->search == NULL)
        return err_nomem(e);
    keep(j, t.winner >= 0 ? t.winner : 0);
    return tell(s, j, e);
}

/* ---- verdicts of the model itself ---- */

static bool thinks(const struct serve_job *j)
{
    return j->w.ask.think != 0 && !json_is_false(json_object_get(j->w.kwargs, "enable_thinking"));
}

/* One that does not fit the context is not asked for, and the answer gets no score. */
static enum err_code ask_self(struct serve *s, struct serve_job *j, struct candidate *v, struct err *e)
{
    const struct ask_model m = serve_model(s);
    struct gen_request q;
    struct err why = { 0 };

    if (ask_verdict_open(&v->verdict, &v->solution, &m, thinks(j), &why))
        return why.code == ERR_LIMIT ? ERR_OK : err_copy(e, &why);
    if (ask_verdict_room(&v->verdict, thinks(j)) > s->o.ctx_tokens)
        return ERR_OK;
    v->judged = (struct serve_choice){ .job = j, .verdict = &v->verdict };
    q = v->verdict.asked->q;
    q.user = &v->judged;
    q.owner = j->owner;
    q.yields = j->later;
    q.adapters = j->w.ask.adapters;
    q.n_adapters = j->w.ask.n_adapters;
    if (gen_submit(s->o.gen, &q, &v->judged.id, e))
        return e->code;
    j->n_left++;
    j->best->n_verdicts++;
    return ERR_OK;
}

enum err_code serve_best_event(struct serve *s, struct serve_job *j, const struct gen_event *ev, struct err *e)
{
    struct serve_choice *c = ev->user;
    struct serve_best *b = j->best;
    struct serve_fault f = { 0 };

    if (ev->kind == GEN_TOKEN)
        return j->over || j->dropped ? ERR_OK : ask_verdict_take(c->verdict, ev, e);
    if (ev->kind != GEN_END)
        return ERR_OK;
    c->id = 0;
    j->n_left--;
    b->n_verdicts--;
    b->verifier_tokens += ev->stats.tokens;
    s->m.prompt_tokens += (uint64_t)ev->stats.prompt_tokens;
    s->m.cached_tokens += (uint64_t)ev->stats.cached_tokens;
    s->m.tokens += (uint64_t)ev->stats.tokens;
    if (j->over || j->dropped)
        return ERR_OK;
    if (ev->end == GEN_FAILED) {
        serve_fault(&f, 500, "/verifier", "verifier: %s", ev->err.msg);
        return serve_refuse_job(s, j, &f, e);
    }
    return b->n_verdicts == 0 ? decide(s, j, e) : ERR_OK;
}

/* ---- the verifier of the server ---- */

static enum err_code begin_judge(struct serve *s, struct serve_job *j, struct err *e)
{
    struct serve_best *b = j->best;

    b->scored = calloc((size_t)b->n, sizeof *b->scored);
    if (b->scored == NULL)
        return err_nomem(e);
    for (int i = 0; i < b->n; i++)
        if (b->v[i].solution.n_steps > 0)
            b->scored[b->n_scored++] = b->v[i].solution;
    if (s->o.judge->begin(s->o.judge->of, b->scored, b->n_scored, e))
        return e->code;
    b->waits = false;
    j->n_left++;
    s->judged = j;
    return ERR_OK;
}

static enum err_code end_judge(struct serve *s, struct serve_job *j, const struct err *why, struct err *e)
{
    struct serve_best *b = j->best;
    struct serve_fault f = { 0 };
    size_t k = 0;

    j->n_left--;
    for (int i = 0; i < b->n; i++)
        if (b->v[i].solution.n_steps > 0)
            b->v[i].solution.score = b->scored[k++].score;
    if (j->over || j->dropped)
        return ERR_OK;
    if (why->code == ERR_OK)
        return decide(s, j, e);
    serve_fault(&f, why->code == ERR_NOMEM ? 503 : 500, "/verifier", "%s", why->msg);
    return serve_refuse_job(s, j, &f, e);
}

enum err_code serve_best_turn(struct serve *s, struct serve_job **of, struct err *e)
{
    struct err why = { 0 };
    struct serve_job *j = s->judged;

    if (j != NULL &&
        s->o.judge->done(s->o.judge->of, gen_busy(s->o.gen) ? 0 : WAIT_MS, &j->best->verifier_tokens, &why)) {
        s->judged = NULL;
        *of = j;
        if (end_judge(s, j, &why, e))
            return e->code;
    }
    for (j = s->jobs; j != NULL && s->judged == NULL; j = j->next)
        if (j->best != NULL && j->best->waits && !j->over && !j->dropped) {
            *of = j;
            return begin_judge(s, j, e);
        }
    return ERR_OK;
}

/* ---- the answers have ended ---- */

/* The canonical answer, and what is scored. One that was cut off has no vote. */
static enum err_code read_candidate(struct serve_job *j, int i, struct err *e)
{
    const struct serve_choice *c = &j->choice[i];
    struct candidate *v = &j->best->v[i];
    const bool whole = c->end == GEN_EOS || c->end == GEN_STOP_STRING || c->end == GEN_STOPPED;

    v->solution.score = (double)NAN;
    if (reason_canon(whole ? str_of_buf(&c->text) : STR(""), &v->canon, &v->n_canon, e))
        return e->code;
    if (j->w.verifier == SERVE_NO_VERIFIER || v->n_canon == 0)
        return ERR_OK;
    if (ask_solution_make(&v->solution, j->w.ask.messages, str_of_buf(&c->reasoning), str_of_buf(&c->text), true,
                          STR("\n"), e) == ERR_LIMIT)
        *e = (struct err){ 0 };
    return e->code;
}

enum err_code serve_best_ended(struct serve *s, struct serve_job *j, struct err *e)
{
    struct serve_best *b = j->best;
    bool any = false;

    for (int i = 0; i < b->n; i++) {
        if (read_candidate(j, i, e))
            return e->code;
        any = any || b->v[i].solution.n_steps > 0;
    }
    b->waits = any && j->w.verifier == SERVE_JUDGE;
    if (b->waits)
        return ERR_OK;
    for (int i = 0; i < b->n && j->w.verifier == SERVE_SELF; i++)
        if (b->v[i].solution.n_steps > 0 && ask_self(s, j, &b->v[i], e))
            return e->code;
    return b->n_verdicts > 0 ? ERR_OK : decide(s, j, e);
}
