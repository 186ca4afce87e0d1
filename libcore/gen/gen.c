/* SPDX-License-Identifier: Apache-2.0 */
/* gen.c - a gen opens and closes; requests come in; one step.                room: gen */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "gen/internal.h"

/* ---- opening ---- */

static enum err_code alloc_all(struct gen *g, struct err *e)
{
    struct group *p = &g->group[0];
    const size_t n_all = (size_t)(g->n_seq + g->n_spare), asks = (size_t)p->logits_max;
    const bool digests = run_digests(g->o.run);

    g->at = calloc(n_all, sizeof(struct request *));
    g->used = calloc(n_all, sizeof *g->used);
    g->owner = calloc(n_all, sizeof *g->owner);
    p->row = calloc((size_t)p->rows_max, sizeof *p->row);
    p->want = calloc((size_t)p->rows_max, sizeof *p->want);
    g->guess = calloc(n_all, sizeof *g->guess);
    p->ask = calloc(asks, sizeof *p->ask);
    g->ids = digests ? calloc(asks, LOGITS_IDS_MAX * sizeof *g->ids) : NULL;
    g->mask_words = ((size_t)g->n_vocab + 31) / 32;
    p->masks = calloc(asks * g->mask_words, sizeof *p->masks);
    g->n_embd = run_n_embd(g->o.run);
    g->hidden = calloc((size_t)g->n_embd, sizeof *g->hidden);
    g->pooled = calloc((size_t)g->n_seq * (size_t)g->n_embd, sizeof *g->pooled);
    g->mixed = calloc((size_t)g->n_seq * GEN_MIXED_MAX, sizeof *g->mixed);
    if (g->mixed == NULL || g->hidden == NULL || g->pooled == NULL || g->at == NULL || g->used == NULL ||
        g->owner == NULL || p->row == NULL || p->want == NULL || g->guess == NULL || p->ask == NULL ||
        (digests && g->ids == NULL) || p->masks == NULL)
        return err_nomem(e);
    for (size_t i = 0; digests && i < asks; i++)
        p->ask[i].ids = g->ids + i * LOGITS_IDS_MAX;
    return ERR_OK;
}

/* A list that was checked becomes our own. */
static void keep_adapters(struct run_adapter room[RUN_ADAPTERS_MAX], const struct run_adapter **list, int n)
{
    if (n > 0)
        memcpy(room, *list, (size_t)n * sizeof *room);
    *list = room;
}

enum err_code gen_open(struct gen **out, const struct gen_opts *o, struct err *e)
{
    const int n_seq = run_n_seq(o->run);
    struct gen *g;

    if (o->n_spare < 0 || o->n_spare >= n_seq)
        return err_set(e, ERR_ARG, "%d of %d sequences are kept for probes: none is left for requests", o->n_spare,
                       n_seq);
    if (o->prompt_rows < 0 || o->wait_max < 0)
        return err_set(e, ERR_ARG, "prompt_rows and wait_max are not below 0");
    if (run_check_adapters(o->run, o->adapters, o->n_adapters, e))
        return e->code;
    g = calloc(1, sizeof *g);
    if (g == NULL)
        return err_nomem(e);
    g->o = *o;
    keep_adapters(g->adapters, &g->o.adapters, g->o.n_adapters);
    g->n_seq = n_seq - o->n_spare;
    g->n_spare = o->n_spare;
    g->n_vocab = run_n_vocab(o->run);
    g->ctx = run_ctx(o->run);
    g->group[0].rows_max = run_rows_max(o->run);
    g->group[0].logits_max = run_logits_max(o->run);
    g->draft_max = run_draft_max(o->run);
    g->cost.records = run_records(o->run);
    g->prompt_rows = o->prompt_rows > 0 ? o->prompt_rows : run_rows_max(o->run) > 4 ? run_rows_max(o->run) / 4 : 1;
    if (alloc_all(g, e)) {
        gen_close(g);
        return e->code;
    }
    gen_groups_open(g);
    for (int i = 0; i < g->n_spare; i++)
        g->owner[g->n_seq + i] = UINT64_MAX; /* no request continues from what a probe left */
    *out = g;
    return ERR_OK;
}

void gen_close(struct gen *g)
{
    if (g == NULL)
        return;
    gen_groups_close(g);
    for (int i = 0; g->at != NULL && i < g->n_seq + g->n_spare; i++)
        gen_request_free(g->at[i]);
    while (g->queue != NULL) {
        struct request *q = g->queue;

        g->queue = q->next;
        gen_request_free(q);
    }
    gen_events_free(&g->out);
    free(g->at);
    free(g->used);
    free(g->owner);
    free(g->group[0].row);
    free(g->group[0].want);
    free(g->guess);
    free(g->group[0].ask);
    free(g->ids);
    free(g->group[0].masks);
    text_tokens_free(&g->ends);
    free(g->hidden);
    free(g->pooled);
    free(g->mixed);
    free(g);
}

/* ---- requests ---- */

uint64_t gen_owner(const struct gen *g, int seq)
{
    return g->owner[seq];
}

void gen_set_owner(struct gen *g, int seq, uint64_t owner)
{
    g->owner[seq] = owner;
}

struct gen_request gen_defaults(void)
{
    return (struct gen_request){
        .predict_max = -1, .text_max = -1, .draft_max = -1, .n_adapters = -1, .sample = sample_defaults()
    };
}

static enum err_code check_request(const struct gen *g, const struct gen_request *q, struct err *e)
{
    if (q->n_prompt < 1)
        return err_set(e, ERR_ARG, "the prompt is empty");
    if (q->n_prompt > gen_ctx(g, q))
        return err_set(e, ERR_LIMIT, "the prompt has %lld tokens, the context %lld", (long long)q->n_prompt,
                       (long long)gen_ctx(g, q));
    for (int64_t i = 0; i < q->n_prompt; i++)
        if (q->prompt[i] < 0 || q->prompt[i] >= g->n_vocab)
            return err_set(e, ERR_FORMAT, "token %lld is %d, the model has %d", (long long)i, (int)q->prompt[i],
                           (int)g->n_vocab);
    if (q->predict_max < -1 || q->text_max < -1 || q->draft_max < -1 || q->min_tokens < 0 || q->n_rows < 0 ||
        q->n_rows > q->n_prompt)
        return err_set(e, ERR_ARG, "a limit of the request is out of range");
    for (size_t i = 0; i < q->n_stop_tokens; i++)
        if (q->stop_token[i] < 0 || q->stop_token[i] >= g->n_vocab)
            return err_set(e, ERR_ARG, "stop token %d: the model has %d tokens", (int)q->stop_token[i],
                           (int)g->n_vocab);
    if ((q->n_stops > 0 || q->chat) && g->o.text == NULL)
        return err_set(e, ERR_UNSUPPORTED, "stop texts and chats need a tokenizer");
    if (q->pool && run_n_taps(g->o.run) == 0)
        return err_set(e, ERR_UNSUPPORTED, "hidden rows are not kept here");
    if (q->n_adapters >= 0 && run_check_adapters(g->o.run, q->adapters, q->n_adapters, e))
        return e->code;
    if (g->o.wait_max > 0 && g->n_waiting >= g->o.wait_max)
        return err_set(e, ERR_LIMIT, "%lld requests wait already", (long long)g->n_waiting);
    return ERR_OK;
}

/* Where an answer begins, and its steps. */
static enum err_code check_answer(const struct gen *g, const struct gen_request *q, struct err *e)
{
    if (q->n_answer < 0 || (q->predict_max >= 0 && q->n_answer > 0 && q->n_answer >= q->predict_max))
        return err_set(e, ERR_ARG, "an answer that begins with %lld tokens", (long long)q->n_answer);
    if (q->n_answer > gen_ctx(g, q) - q->n_prompt)
        return err_set(e, ERR_LIMIT, "prompt and answer have %lld tokens, the context %lld",
                       (long long)(q->n_prompt + q->n_answer), (long long)gen_ctx(g, q));
    for (int64_t i = 0; i < q->n_answer; i++)
        if (q->answer[i] < 0 || q->answer[i] >= g->n_vocab)
            return err_set(e, ERR_ARG, "token %d: the model has %d tokens", (int)q->answer[i], (int)g->n_vocab);
    if (q->n_answer > 0 && (q->memory != NULL || q->pool || q->n_rows > 0))
        return err_set(e, ERR_UNSUPPORTED, "an answer that goes on has no memory, rows or mean of rows");
    if (q->step_end.n > GEN_STEP_END_MAX)
        return err_set(e, ERR_ARG, "the end of a step has at most %d bytes", GEN_STEP_END_MAX);
    if (q->step_end.n > 0 && g->o.text == NULL)
        return err_set(e, ERR_UNSUPPORTED, "steps need a tokenizer");
    return ERR_OK;
}

/* malloc'ed; n == 0 gives NULL. */
static bool copy_array(const void **p, size_t n, size_t size)
{
    void *v;

    if (n == 0) {
        *p = NULL;
        return true;
    }
    v = malloc(n * size);
    if (v != NULL)
        memcpy(v, *p, n * size);
    *p = v;
    return v != NULL;
}

/* The tokens of the prompt, and those that the answer begins with; NULL: memory is out. */
static int32_t *join_tokens(const struct gen_request *q)
{
    int32_t *token = malloc((size_t)(q->n_prompt + q->n_answer) * sizeof *token);

    if (token == NULL)
        return NULL;
    memcpy(token, q->prompt, (size_t)q->n_prompt * sizeof *token);
    if (q->n_answer > 0)
        memcpy(token + q->n_prompt, q->answer, (size_t)q->n_answer * sizeof *token);
    return token;
}

/* Everything that the request points to becomes ours; what could not be copied is NULL. */
static bool copy_all(struct request *r)
{
    struct gen_request *q = &r->q;
    struct str *stops = q->n_stops > 0 ? calloc(q->n_stops, sizeof *stops) : NULL;
    const void *marks = q->marks, *bias = q->sample.bias, *breakers = q->sample.dry_breakers, *ends = q->stop_token,
               *step_end = q->step_end.p;
    bool ok = q->n_stops == 0 || stops != NULL;

    for (size_t i = 0; ok && i < q->n_stops; i++) {
        const void *p = q->stops[i].p;

        stops[i].n = q->stops[i].n;
        ok = copy_array(&p, q->stops[i].n, 1);
        stops[i].p = p;
    }
    q->stops = stops;
    q->n_stops = stops != NULL ? q->n_stops : 0;
    r->token = join_tokens(q);
    ok &= r->token != NULL;
    ok &= copy_array(&step_end, q->step_end.n, 1);
    ok &= copy_array(&marks, (size_t)q->n_marks, sizeof(int64_t));
    ok &= copy_array(&ends, q->n_stop_tokens, sizeof(int32_t));
    ok &= copy_array(&bias, q->sample.n_bias, sizeof(struct sample_bias));
    ok &= copy_array(&breakers, q->sample.n_dry_breakers, sizeof(int32_t));
    r->n = r->n_read = r->cap = q->n_prompt + q->n_answer;
    r->step_from = -1;
    q->prompt = r->token;
    q->answer = NULL;
    q->step_end.p = step_end;
    q->marks = marks;
    q->stop_token = ends;
    q->sample.bias = bias;
    q->sample.dry_breakers = breakers;
    return ok;
}

/* What only opening it can tell: the options of the sampler. */
static enum err_code check_sampler(const struct gen *g, const struct gen_request *q, struct err *e)
{
    struct sampler *s;

    struct err why = { 0 };

    if (sample_open(&s, &q->sample, g->n_vocab, &why) == ERR_ARG && why.where[0] == '/')
        return err_set(e, ERR_ARG, "%s: %s", why.where + 1, why.msg);
    if (why.code != ERR_OK)
        return err_copy(e, &why);
    sample_close(s);
    return ERR_OK;
}

/* The tokens that end an answer, found when they are first needed. */
static enum err_code find_ends(struct gen *g, struct err *e)
{
    const bool known = g->ends.n > 0;

    for (int32_t i = 0; !known && g->o.text != NULL && i < g->n_vocab; i++)
        if (text_is_end(g->o.text, i) && text_tokens_push(&g->ends, i, e)) {
            g->ends.n = 0;
            return e->code;
        }
    if (!known && g->o.text == NULL && g->o.end_token >= 0)
        return text_tokens_push(&g->ends, g->o.end_token, e);
    return ERR_OK;
}

/* A request without an id. */
static enum err_code make_request(struct gen *g, const struct gen_request *q, struct request **out, struct err *e)
{
    const struct gen_start at = { .reasoning = q->thinking,
                                  .n_prompt = q->n_prompt,
                                  .ctx = gen_ctx(g, q),
                                  .n_vocab = g->n_vocab,
                                  .seed = q->sample.seed,
                                  .stream = q->sample.stream };
    const bool ends = q->min_tokens > 0 || (q->governor != NULL && q->constraint != NULL);
    struct request *r;

    if (check_request(g, q, e) || check_answer(g, q, e) || check_sampler(g, q, e) || (ends && find_ends(g, e)))
        return e->code;
    r = calloc(1, sizeof *r);
    if (r == NULL)
        return err_nomem(e);
    r->q = *q;
    r->q.second = NULL;
    r->seq = -1;
    r->least = 1;
    r->stats.thought.budget = -1;
    r->stats.thought.certainty = NAN;
    r->why_said = GEN_WHY_MODEL;
    if (q->n_adapters < 0) {
        r->q.adapters = g->o.adapters;
        r->q.n_adapters = g->o.n_adapters;
    }
    keep_adapters(r->adapters, &r->q.adapters, r->q.n_adapters);
    if (!copy_all(r))
        err_nomem(e);
    else if ((q->governor == NULL || q->governor->begin(&r->governor, q->governor_opts, &at, &r->order, e) == ERR_OK) &&
             gen_set_needs(g, r, e) == ERR_OK &&
             (q->memory == NULL || q->memory->begin(&r->memory, q->memory_of, q->prompt, q->n_prompt, e) == ERR_OK)) {
        *out = r;
        return ERR_OK;
    }
    gen_request_free(r);
    return e->code;
}

static enum err_code make_second(struct gen *g, const struct gen_request *q, struct request *r, struct err *e)
{
    struct gen_request second = *q->second;

    if (!(q->doubt_below >= 0 && q->doubt_below <= 1) || (q->doubts_mean && isnan(q->doubt_mean)) ||
        q->predict_max == 0 || q->n_rows > 0 || q->pool || (q->in_parts && !q->chat) || q->n_answer > 0 ||
        q->step_end.n > 0 || second.predict_max == 0 || second.n_rows > 0 || second.pool ||
        (second.in_parts && !second.chat) || second.n_answer > 0 || second.step_end.n > 0)
        return err_set(e, ERR_ARG, "a request like this has no second one");
    second.user = q->user;
    second.owner = q->owner;
    second.priority = q->priority;
    second.ctx_max = q->ctx_max;
    second.yields = q->yields;
    second.sample.stream = q->sample.stream;
    second.uncertainty = q->uncertainty;
    if (make_request(g, &second, &r->second, e))
        return e->code;
    r->second->is_second = true;
    return ERR_OK;
}

enum err_code gen_submit(struct gen *g, const struct gen_request *q, int64_t *id, struct err *e)
{
    struct request *r;

    if (gen_keep_room(&g->out, e) || make_request(g, q, &r, e))
        return e->code;
    if (q->second != NULL && make_second(g, q, r, e)) {
        gen_request_free(r);
        return e->code;
    }
    r->id = ++g->next_id;
    g->out.n_open++;
    gen_enqueue(g, r);
    *id = r->id;
    return ERR_OK;
}

void gen_cancel(struct gen *g, int64_t id)
{
    for (struct request *q = g->queue; q != NULL; q = q->next)
        q->cancelled |= q->id == id;
    for (int i = 0; i < g->n_seq; i++)
        if (g->at[i] != NULL)
            g->at[i]->cancelled |= g->at[i]->id == id;
}

static bool any_active(const struct gen *g)
{
    for (int i = 0; i < g->n_seq; i++)
        if (g->at[i] != NULL)
            return true;
    return false;
}

bool gen_busy(const struct gen *g)
{
    return g->queue != NULL || g->out.told < g->out.n || any_active(g);
}

int64_t gen_waiting(const struct gen *g)
{
    return g->n_waiting;
}

int64_t gen_reading(const struct gen *g)
{
    int64_t n = g->n_waiting;

    for (int i = 0; i < g->n_seq; i++)
        n += g->at[i] != NULL && reading(g->at[i]);
    return n;
}

int gen_idle(const struct gen *g)
{
    int best = -1;

    for (int i = 0; i < g->n_seq; i++)
        if (g->at[i] == NULL && (best < 0 || g->used[i] < g->used[best]))
            best = i;
    return best;
}

/* ---- a step ---- */

static void end_one(struct gen *g, struct request *q, const struct err *why)
{
    if (why != NULL)
        gen_fail(q, why);
    else
        gen_end(q, GEN_CANCELLED);
    gen_finish(g, q);
}

/* Ends requests: those that were cancelled, or all of them with an error. */
static void end_some(struct gen *g, const struct err *all)
{
    for (struct request **link = &g->queue; *link != NULL;) {
        struct request *q = *link;

        if (!q->cancelled && all == NULL) {
            link = &q->next;
            continue;
        }
        *link = q->next;
        g->n_waiting--;
        end_one(g, q, all);
    }
    for (int i = 0; i < g->n_seq; i++) {
        struct request *q = g->at[i];

        if (q == NULL || (!q->cancelled && all == NULL))
            continue;
        end_one(g, q, all);
    }
}

/* The run was told to stop within a step, which is as if it had not been: who lost its sequence by it begins it again.
 */
static void given_up(struct gen *g)
{
    for (int i = 0; i < g->n_seq + g->n_spare; i++) {
        struct request *q = g->at[i];

        if (!is_in(g, q) || run_pos(g->o.run, i) == q->fed)
            continue;
        gen_requeue(g, q->probe_of != NULL ? q->probe_of : q); /* who loses a probe begins it again, too */
    }
}

/* The step could not be computed, for example as what it needed of the model's file could not be read: its requests
 * end. */
static void step_failed(struct gen *g, const struct err *why)
{
    for (int i = 0; i < g->n_seq + g->n_spare; i++) {
        struct request *q = g->at[i];

        if (is_in(g, q))
            end_one(g, q->probe_of != NULL ? q->probe_of : q, why);
    }
}

enum err_code gen_take_step(struct gen *g, float ms, const struct err *why, struct err *e)
{
    if (why == NULL) {
        for (int i = 0; i < g->n_seq; i++)
            if (g->at[i] != NULL && g->at[i]->state == REQUEST_HELD)
                g->at[i]->stats.probe_held_steps++;
        gen_cost_note(&g->cost, g->now->n_rows, ms);
        gen_choose(g);
        return ERR_OK;
    }
    if (why->code == ERR_CANCEL) {
        given_up(g);
        return ERR_OK;
    }
    const bool goes_on = why->code == ERR_IO || why->code == ERR_FORMAT;

    if (goes_on || g->now->flight >= 0)
        step_failed(g, why);
    return goes_on ? ERR_OK : err_copy(e, why);
}

/* One step for all. */
static enum err_code step_all(struct gen *g, struct err *e)
{
    struct group *p = g->now = &g->group[0];
    struct err why = { 0 };

    if (gen_compose(g, e))
        return e->code;
    if (p->n_rows == 0)
        return ERR_OK;
    p->from = clock_work();
    const bool done = run_step_want(g->o.run, p->row, p->want, p->n_rows, gen_fill_masks, g, &why) == ERR_OK;

    return gen_take_step(g, (float)clock_work_ms(&p->from, !g->cost.records), done ? NULL : &why, e);
}

/* What one step does, up to the events. */
static enum err_code take_step(struct gen *g, struct err *e)
{
    bool none = false;

    if (gen_land(g, false, e))
        return e->code;
    end_some(g, NULL);
    if (g->n_under_way == 0) {
        if (gen_admit(g, e))
            return e->code;
        g->may_admit = false;
    }
    gen_force(g);
    const enum err_code code = gen_step_groups(g, &none, e);

    return code != ERR_OK || !none ? code : step_all(g, e);
}

enum err_code gen_step(struct gen *g, struct err *e)
{
    struct err why = { 0 }, other;

    gen_events_clear(&g->out);
    if (g->failed)
        return err_set(e, ERR_ARG, "the engine has failed before");
    if (take_step(g, &why) == ERR_OK)
        return ERR_OK;
    g->failed = true;
    while (gen_land(g, true, &other) != ERR_OK) /* each on its own merits */
        ;
    end_some(g, &why);
    *e = why;
    return why.code;
}
