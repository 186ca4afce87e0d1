/* SPDX-License-Identifier: Apache-2.0 */
/* tree.c - an answer by tree search, --dvts.                                  room: cmd
 *
 * All subtrees take a step together, so that its children share steps of the model, and the decision to end the search
 * does not depend on which of them was faster. A child goes on in the sequence of the path that was kept, or in a copy
 * of it: the first children of all subtrees come first, and find their paths where these ended. So n sequences are
 * enough. Its random numbers depend on the seed, the step and its number. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "reason/search.h"
#include "run/best.h"
#include "run/run.h"

/* An answer, or its beginning. */
struct child {
    struct cli_answer answer;
    struct ask_solution solution;
    char *canon;
    size_t n_canon; /* 0: it has no vote */
    enum gen_end end;
    struct gen_stats stats;
    int64_t id;
};

struct tree {
    struct cli_run *s;
    int n, width, n_subtrees;
    struct reason_search *search;
    struct child *child; /* [n] of the step under way; those of subtree i from i * width on */
    struct child *kept;  /* [n_subtrees] the paths */
    int step;
    json_t *steps;                     /* what is told of them */
    int64_t generated, cached, scored; /* tokens; children with a score */
    int64_t yes;                       /* of them, above a half */
    struct reason_tally tally;
    int winner; /* a subtree */
};

static void free_child(struct child *c)
{
    cli_answer_close(&c->answer);
    ask_solution_free(&c->solution);
    free(c->canon);
    *c = (struct child){ .end = GEN_CANCELLED };
}

static struct str str_of_buf(const struct cli_buf *b)
{
    return (struct str){ b->p != NULL ? b->p : "", b->n };
}

static struct str step_end(const struct tree *t)
{
    return t->s->o->step_end != NULL ? str_of(t->s->o->step_end) : STR("\n");
}

/* ---- a step: children, their scores, which of them are kept ---- */

static enum err_code submit(struct tree *t, int subtree, int j, struct err *e)
{
    const struct text_tokens *path = &t->kept[subtree].answer.ids;
    const int at = subtree * t->width + j;
    struct child *c = &t->child[at];
    const struct cli_answer_opts ao = {
        .form = ANSWER_JSON, .reasoning = REASONING_NONE, .text = t->s->open.text, .asked = t->s->asked
    };
    struct gen_request q = t->s->asked->q;

    q.sample.stream = (uint64_t)t->step << 32 | (uint64_t)at;
    q.user = c;
    q.answer = path->v;
    q.n_answer = path->n;
    q.step_end = step_end(t);
    if (cli_answer_open(&c->answer, &ao, e))
        return e->code;
    return gen_submit(t->s->gen, &q, &c->id, e);
}

static enum err_code take_event(struct tree *t, const struct gen_event *ev, int *n_ended, struct err *e)
{
    struct child *c = ev->user;

    if (ev->kind == GEN_TOKEN && !t->s->read) {
        t->s->read = true;
        t->s->prompt_ms = clock_ms() - t->s->from_ms;
    }
    if (ev->kind == GEN_TOKEN)
        return cli_answer_take(&c->answer, ev, e);
    if (ev->kind != GEN_END)
        return ERR_OK;
    ++*n_ended;
    c->end = ev->end;
    c->stats = ev->stats;
    return ev->end == GEN_FAILED ? err_copy(e, &ev->err) : cli_answer_end(&c->answer, ev, e);
}

static enum err_code generate(struct tree *t, struct err *e)
{
    const int n_live = reason_search_live(t->search) * t->width;
    struct gen_event ev;
    int n_ended = 0;

    for (int j = 0; j < t->width; j++)
        for (int i = 0; i < t->n_subtrees; i++)
            if (reason_search_lives(t->search, i) && submit(t, i, j, e))
                return e->code;
    while (gen_busy(t->s->gen)) {
        for (int i = 0; i < t->n && cli_interrupted(); i++)
            gen_cancel(t->s->gen, t->child[i].id);
        cli_progress("step %d: %d of %d branches, %" PRId64 " tokens", t->step + 1, n_ended, n_live, t->generated);
        if (gen_step(t->s->gen, e))
            return e->code;
        while (gen_next(t->s->gen, &ev))
            if (take_event(t, &ev, &n_ended, e))
                return e->code;
    }
    cli_progress_end();
    return cli_interrupted() ? err_set(e, ERR_CANCEL, "interrupted") : ERR_OK;
}

static bool is_whole(const struct child *c)
{
    return c->end == GEN_EOS || c->end == GEN_STOP_STRING || c->end == GEN_STOPPED;
}

/* The canonical answer, and the text for the verifier. An answer that was cut off, or is empty, has neither. */
static enum err_code read_child(const struct tree *t, struct child *c, struct err *e)
{
    const bool whole = is_whole(c);

    c->solution.score = (double)NAN;
    if (reason_canon(whole ? str_of_buf(&c->answer.text) : STR(""), &c->canon, &c->n_canon, e))
        return e->code;
    if (c->end != GEN_STEP && c->n_canon == 0)
        return ERR_OK;
    return cli_run_solution(&c->solution, t->s, &c->answer, whole, step_end(t), e);
}

static enum err_code score(struct tree *t, struct err *e)
{
    struct ask_solution *v = calloc((size_t)t->n, sizeof *v);
    size_t n = 0;
    enum err_code code = v != NULL ? ERR_OK : err_nomem(e);

    for (int i = 0; i < t->n && code == ERR_OK; i++) {
        if (!reason_search_lives(t->search, i / t->width))
            continue;
        code = read_child(t, &t->child[i], e);
        if (t->child[i].solution.n_steps > 0)
            v[n++] = t->child[i].solution;
    }
    if (code == ERR_OK && n > 0)
        code = cli_verifier_score(t->s->verifier, v, n, e);
    for (int i = t->n; i-- > 0 && code == ERR_OK;)
        if (reason_search_lives(t->search, i / t->width) && t->child[i].solution.n_steps > 0) {
            t->child[i].solution.score = v[--n].score;
            t->scored += !isnan(v[n].score);
            t->yes += v[n].score > 0.5;
        }
    free(v);
    return code;
}

/* What of a text is behind n bytes. A newline that ended a path may be no text any more: it belongs to a mark. */
static struct str behind(const struct cli_buf *b, size_t n)
{
    return n < b->n ? (struct str){ b->p + n, b->n - n } : STR("");
}

/* What a step has added to a path. */
static json_t *added_text(const struct child *c, const struct child *path)
{
    struct cli_buf b = { 0 };
    struct err e;
    json_t *text = NULL;

    if (cli_buf_add(&b, behind(&c->answer.reasoning, path->answer.reasoning.n), &e) == ERR_OK &&
        cli_buf_add(&b, behind(&c->answer.text, path->answer.text.n), &e) == ERR_OK)
        text = json_bytes(str_of_buf(&b));
    cli_buf_free(&b);
    return text;
}

static enum err_code tell_step(struct tree *t, int subtree, int kept, struct err *e)
{
    const struct child *c = &t->child[subtree * t->width];
    json_t *scores = json_array(), *tokens = json_array(), *told;

    for (int j = 0; j < t->width; j++) {
        json_push(&scores, cli_json_real(c[j].solution.score));
        json_push(&tokens, json_integer(c[j].answer.ids.n - t->kept[subtree].answer.ids.n));
    }
    told = json_pack("{s:i, s:i, s:o, s:o, s:i, s:o}", "step", t->step, "subtree", subtree, "scores", scores, "tokens",
                     tokens, "kept", kept, "text", added_text(&c[kept], &t->kept[subtree]));
    if (told == NULL)
        return err_nomem(e);
    if (t->s->o->jsonl) {
        json_t *event = json_pack("{s:s}", "type", "step");

        if (cli_json_line(json_if(event != NULL && json_object_update(event, told) == 0, event), e)) {
            json_decref(told);
            return e->code;
        }
    }
    json_push(&t->steps, told);
    return t->steps != NULL ? ERR_OK : err_nomem(e);
}

static enum err_code keep_best(struct tree *t, int subtree, struct err *e)
{
    struct reason_child told[REASON_SEARCH_MAX];
    struct child *c = &t->child[subtree * t->width], *path = &t->kept[subtree];
    int kept;

    for (int j = 0; j < t->width; j++) {
        told[j] = (struct reason_child){ c[j].solution.score, c[j].end != GEN_STEP, { c[j].canon, c[j].n_canon } };
        t->generated += c[j].answer.ids.n - path->answer.ids.n;
        t->cached += c[j].stats.cached_tokens;
    }
    if (reason_search_add(t->search, subtree, told, &kept, e) || tell_step(t, subtree, kept, e))
        return e->code;
    free_child(path);
    *path = c[kept];
    c[kept] = (struct child){ .end = GEN_CANCELLED };
    for (int j = 0; j < t->width; j++)
        free_child(&c[j]);
    return ERR_OK;
}

static enum err_code search(struct tree *t, struct err *e)
{
    while (reason_search_live(t->search) > 0 && !reason_search_decided(t->search)) {
        bool live[REASON_SEARCH_MAX];

        if (generate(t, e) || score(t, e))
            return e->code;
        for (int i = 0; i < t->n_subtrees; i++)
            live[i] = reason_search_lives(t->search, i);
        for (int i = 0; i < t->n_subtrees; i++)
            if (live[i] && keep_best(t, i, e))
                return e->code;
        t->step++;
    }
    return ERR_OK;
}

/* ---- the report ---- */

/* The vote's winner, or the path that scores best so far. */
static void find_winner(struct tree *t)
{
    const struct reason_candidate *c = reason_search_candidates(t->search);

    t->tally = reason_search_vote(t->search);
    t->winner = t->tally.winner >= 0 ? t->tally.winner : 0;
    for (int i = 1; i < t->n_subtrees && t->tally.winner < 0; i++)
        if (c[i].score > c[t->winner].score || (isnan(c[t->winner].score) && !isnan(c[i].score)))
            t->winner = i;
    if (t->tally.winner < 0 && !cli_interrupted())
        cli_warn("no branch came to its end: the best one is shown");
    if (t->tally.by_majority)
        cli_warn("the verifier gives every answer 0: the majority decides");
}

static json_t *json_candidates(const struct tree *t)
{
    const struct reason_candidate *c = reason_search_candidates(t->search);
    json_t *all = json_array();

    for (int i = 0; i < t->n_subtrees; i++)
        json_push(&all,
                  json_pack("{s:o, s:o, s:I, s:i, s:o}", "answer",
                            c[i].canon.n > 0 ? json_bytes(c[i].canon) : json_null(), "score", cli_json_real(c[i].score),
                            "tokens", (json_int_t)t->kept[i].answer.ids.n, "steps", reason_search_steps(t->search, i),
                            "text", json_bytes(str_of_buf(&t->kept[i].answer.text))));
    return all;
}

static bool report(struct tree *t)
{
    struct cli_run *s = t->s;

    s->search = json_pack(
        "{s:i, s:i, s:s, s:o, s:o, s:f, s:i, s:b, s:b, s:I, s:I, s:I, s:o, s:o}", "n", t->n, "width", t->width, "vote",
        cli_run_vote_name(s->o), "verifier", json_bytes(str_of(s->o->verifier.what)), "yes_rate",
        t->scored > 0 ? json_real((double)t->yes / (double)t->scored) : json_null(), "agreement", t->tally.agreement,
        "votes", t->tally.votes, "by_majority", t->tally.by_majority, "decided",
        reason_search_live(t->search) > 0 && reason_search_decided(t->search), "generated_tokens",
        (json_int_t)t->generated, "cached_tokens", (json_int_t)t->cached, "verifier_tokens",
        (json_int_t)cli_verifier_tokens(s->verifier), "candidates", json_candidates(t), "steps", json_incref(t->steps));
    return s->search != NULL;
}

/* What --jsonl has instead of an event for each token. */
static enum err_code print_part(const char *type, const struct cli_buf *b, struct err *e)
{
    if (b->n == 0)
        return ERR_OK;
    return cli_json_line(json_pack("{s:s, s:n, s:o}", "type", type, "token_id", "text", json_bytes(str_of_buf(b))), e);
}

static enum err_code print_json(struct tree *t, struct err *e)
{
    struct cli_run *s = t->s;
    struct child *c = &t->kept[t->winner];

    if (!report(t))
        return err_nomem(e);
    if (s->o->jsonl && (print_part("reasoning", &c->answer.reasoning, e) || print_part("token", &c->answer.text, e)))
        return e->code;
    s->answer = c->answer;
    c->answer = (struct cli_answer){ 0 };
    s->finish = c->end == GEN_STEP ? cli_interrupted() ? GEN_CANCELLED : GEN_LENGTH : c->end;
    s->stats = c->stats;
    s->stats.steps = t->generated; /* of all branches, as the times are */
    s->stats.drafted = s->stats.kept = s->stats.cached_tokens = 0;
    s->decode_ms = clock_ms() - s->from_ms - s->prompt_ms;
    return cli_run_print_end(s, e);
}

/* An answer; after an interrupt what was thought, if there is none. */
static enum err_code print_winner(struct tree *t, struct err *e)
{
    const struct cli_answer *a = &t->kept[t->winner].answer;
    const struct str text = str_of_buf(a->text.n > 0 || !cli_interrupted() ? &a->text : &a->reasoning);

    for (int i = 0; i < t->n_subtrees; i++)
        cli_note("branch   %d: %d steps, score %.3f, %" PRId64 " tokens%s", i + 1, reason_search_steps(t->search, i),
                 reason_search_candidates(t->search)[i].score, t->kept[i].answer.ids.n, i == t->winner ? ", kept" : "");
    cli_note("search   %d steps, %" PRId64 " tokens", t->step, t->generated);
    if (t->s->o->json || t->s->o->jsonl)
        return print_json(t, e);
    if (t->step == 0)
        return ERR_OK;
    (void)fwrite(text.p, 1, text.n, stdout);
    if (text.n == 0 || text.p[text.n - 1] != '\n')
        (void)putchar('\n');
    return cli_flush_stdout(e);
}

static enum err_code open_tree(struct tree *t, struct err *e)
{
    struct cli_run *s = t->s;
    const struct reason_search_opts o = { t->n, t->width, ASK_STEPS_MAX, REASON_LAST, cli_run_vote(s->o) };

    t->child = calloc((size_t)t->n, sizeof *t->child);
    t->kept = calloc((size_t)t->n_subtrees, sizeof *t->kept);
    t->steps = json_array();
    if (t->child == NULL || t->kept == NULL || t->steps == NULL)
        return err_nomem(e);
    for (int i = 0; i < t->n_subtrees; i++)
        t->kept[i].end = GEN_CANCELLED; /* of a path that has not begun */
    if (reason_search_open(&t->search, &o, e) || cli_run_open_gen(s, e))
        return e->code;
    s->started = s->o->jsonl;
    s->from_ms = clock_ms();
    return s->o->jsonl ? cli_run_print_start(s, e) : ERR_OK;
}

/* Searches, and prints what was found: also after an interrupt, and before the error of a verifier that ended. */
static enum err_code find_answer(struct tree *t, struct err *e)
{
    struct err why = { 0 };

    if (search(t, &why) != ERR_OK && why.code != ERR_CANCEL && reason_search_vote(t->search).winner < 0)
        return err_copy(e, &why);
    cli_progress_end();
    find_winner(t);
    if (print_winner(t, e))
        return e->code;
    return why.code != ERR_OK && why.code != ERR_CANCEL ? err_copy(e, &why) : ERR_OK;
}

enum err_code cli_run_tree(struct cli_run *s, struct err *e)
{
    struct tree t = { .s = s };
    enum err_code code;

    (void)reason_search_size(s->o->dvts, &t.n, &t.width);
    t.n_subtrees = t.n / t.width;
    code = open_tree(&t, e);
    if (code == ERR_OK)
        code = find_answer(&t, e);
    for (int i = 0; t.child != NULL && i < t.n; i++)
        free_child(&t.child[i]);
    for (int i = 0; t.kept != NULL && i < t.n_subtrees; i++)
        free_child(&t.kept[i]);
    free(t.child);
    free(t.kept);
    json_decref(t.steps);
    reason_search_close(t.search);
    return code;
}
