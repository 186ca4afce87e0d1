/* SPDX-License-Identifier: Apache-2.0 */
/* admit.c - which request gets which sequence, and what of its prompt is there already.      room: gen */
#include <stdlib.h>
#include <string.h>

#include "gen/internal.h"

enum {
    FORK_MIN = 16,  /* tokens that are worth a copy of another sequence's state */
    SHARE_MIN = 32, /* tokens of a prompt that are worth waiting for while another request reads them */
};

void gen_request_free(struct request *q)
{
    if (q == NULL)
        return;
    if (q->place != NULL)
        q->q.constraint->end(q->place);
    if (q->governor != NULL)
        q->q.governor->end(q->governor);
    if (q->memory != NULL)
        q->q.memory->end(q->memory);
    text_stream_close(q->stream);
    sample_close(q->sampler);
    for (size_t i = 0; q->q.stops != NULL && i < q->q.n_stops; i++)
        free((void *)(uintptr_t)q->q.stops[i].p);
    free((void *)(uintptr_t)q->q.stops);
    free((void *)(uintptr_t)q->q.marks);
    free((void *)(uintptr_t)q->q.stop_token);
    free((void *)(uintptr_t)q->q.step_end.p);
    free((void *)(uintptr_t)q->q.sample.bias);
    free((void *)(uintptr_t)q->q.sample.dry_breakers);
    free(q->seen);
    free(q->probe.seen);
    gen_events_free(&q->held);
    gen_request_free(q->second);
    free(q->pooled);
    free(q->token);
    free(q);
}

/* Prompt tokens that may come from elsewhere: the rows whose logits are wanted are evaluated. */
static int64_t reusable(const struct request *q)
{
    if (q->q.pool)
        return 0;

    const int64_t n = q->n_read - (q->q.n_rows > 1 && q->stats.tokens == 0 ? q->q.n_rows : 1);

    return waits_to_probe(q) && q->probe.at - 1 < n ? q->probe.at - 1 : n;
}

/* Where a prompt can begin. */
struct start {
    int from;     /* sequence that has the prefix; -1: none */
    int64_t kept; /* its tokens */
    int into;     /* sequence to use; -1: none is free */
};

/* What a sequence holds is what the request's own rows would be. */
static bool same_kind(const struct gen *g, const struct request *q, int seq)
{
    return g->owner[seq] == q->q.owner && run_has_adapters(g->o.run, seq, q->q.adapters, q->q.n_adapters);
}

static struct start find_start(const struct gen *g, const struct request *q)
{
    struct start s = { -1, 0, -1 };
    int other = -1; /* least recently used besides `from` */

    for (int i = 0; i < g->n_seq; i++) {
        const int64_t kept = same_kind(g, q, i) ? run_kept(g->o.run, i, q->token, reusable(q) + 1) : 0;
        const bool idle = g->at[i] == NULL;

        if (kept > s.kept && (idle || kept >= FORK_MIN)) {
            s.kept = kept;
            s.from = i;
        }
    }
    for (int i = 0; i < g->n_seq; i++)
        if (g->at[i] == NULL && i != s.from && (other < 0 || g->used[i] < g->used[other]))
            other = i;
    s.into = other;
    /* A conversation that goes on keeps its sequence. A new branch takes another sequence, if there is one, and leaves
     * the old branch as it is. */
    if (s.from >= 0 && g->at[s.from] == NULL && (other < 0 || s.kept < FORK_MIN || s.kept == run_pos(g->o.run, s.from)))
        s.into = s.from;
    return s;
}

/* Whether somebody is reading a prompt that begins as q's: then that one stops where they part, and q waits. */
static bool read_by_another(struct gen *g, const struct request *q, int64_t kept)
{
    bool wait = false;

    for (int i = 0; i < g->n_seq; i++) {
        struct request *r = g->at[i];
        int64_t most, common = 0;

        if (r == NULL || !reading(r) || !same_kind(g, q, i))
            continue;
        most = reusable(q) < r->n_read - 1 ? reusable(q) : r->n_read - 1;
        while (common < most && q->token[common] == r->token[common])
            common++;
        if (common < SHARE_MIN || common <= kept || common <= r->fed)
            continue;
        if (r->cut == 0 || common < r->cut)
            r->cut = common;
        wait = true;
    }
    return wait;
}

/* Memory that a request needs while it has a sequence. */
static enum err_code open_request(struct gen *g, struct request *q, struct err *e)
{
    int64_t room = gen_ctx(g, &q->q) + 1 - q->q.n_prompt;
    int32_t *token;

    if (q->sampler != NULL)
        return ERR_OK; /* it had a sequence before */
    if (q->q.predict_max >= 0 && q->q.predict_max < room)
        room = q->q.predict_max;
    token = realloc(q->token, (size_t)(q->q.n_prompt + room + 1) * sizeof *token);
    if (token == NULL)
        return err_nomem(e);
    q->token = token;
    q->q.prompt = token;
    q->cap = q->q.n_prompt + room + 1;
    if (sample_open(&q->sampler, &q->q.sample, g->n_vocab, e))
        return e->code;
    for (int64_t i = 0; i < q->q.n_prompt; i++)
        if (sample_accept(q->sampler, q->token[i], e))
            return e->code;
    if (q->q.constraint != NULL && q->q.constraint->begin(&q->place, q->q.rules, e))
        return e->code;
    if (q->q.pool && (q->pooled = calloc((size_t)g->n_embd, sizeof *q->pooled)) == NULL)
        return err_nomem(e);
    return gen_begin_text(g, q, e);
}

static enum err_code take_sequence(struct gen *g, struct request *q, struct start s, struct err *e)
{
    struct gen_event ev = { .kind = GEN_BEGIN, .id = q->id, .user = q->q.user, .seq = s.into };
    const struct event_what nothing = { NULL, 0 };
    struct run_match m;

    q->seq = s.into;
    q->state = REQUEST_ACTIVE;
    g->at[s.into] = q;
    if (s.from < 0)
        run_clear(g->o.run, s.into);
    else if (s.from != s.into && run_fork(g->o.run, s.into, s.from, e))
        return e->code;
    if (run_set_adapters(g->o.run, s.into, q->q.adapters, q->q.n_adapters, e))
        return e->code;
    if (run_match(g->o.run, s.into, q->token, reusable(q) + 1, &m, e))
        return e->code;
    g->owner[s.into] = q->q.owner;
    q->fed = m.kept;
    while (q->mark < q->q.n_marks && q->q.marks[q->mark] <= q->fed)
        q->mark++;
    if (g->o.drafter != NULL && g->o.drafter->begin != NULL)
        g->o.drafter->begin(g->o.drafter_of, q->seq, q->token, q->fed);
    gen_meet_probe(q, reading(q));
    if (q->begun)
        return ERR_OK;
    q->begun = true;
    if (q->is_second) {
        q->stats.doubt.read = q->q.n_prompt - q->fed;
        return ERR_OK;
    }
    ev.stats = q->stats = (struct gen_stats){ .prompt_tokens = q->q.n_prompt, .cached_tokens = q->fed };
    if (gen_tell(&g->out, &ev, &nothing, e))
        return e->code;
    if (q->q.n_answer > 0)
        gen_take_again(g, q);
    return ERR_OK;
}

enum err_code gen_follow(struct gen *g, struct request *q, int seq, struct err *e)
{
    const struct start s = { seq, 0, seq };

    g->at[seq] = NULL;
    return open_request(g, q, e) || take_sequence(g, q, s, e) ? e->code : ERR_OK;
}

void gen_set_drafter(struct gen *g, void *drafter_of)
{
    g->o.drafter_of = drafter_of;
    for (int i = 0; i < g->n_seq + g->n_spare; i++)
        if (g->at[i] != NULL && g->o.drafter != NULL && g->o.drafter->begin != NULL)
            g->o.drafter->begin(drafter_of, i, g->at[i]->token, g->at[i]->fed);
}

bool gen_precedes(const struct request *a, const struct request *b)
{
    if (a->q.yields != b->q.yields)
        return b->q.yields;
    return a->q.priority != b->q.priority ? a->q.priority > b->q.priority : a->id < b->id;
}

void gen_enqueue(struct gen *g, struct request *q)
{
    struct request **link = &g->queue;

    while (*link != NULL && gen_precedes(*link, q))
        link = &(*link)->next;
    q->next = *link;
    *link = q;
    g->n_waiting++;
    g->may_admit = true;
}

void gen_requeue(struct gen *g, struct request *q)
{
    const struct probe *p = &q->probe;
    const bool due = p->at > 0 && p->seen == NULL && q->n >= p->at + p->order.lag;

    gen_lose_probe(g, q);
    run_clear(g->o.run, q->seq);
    g->at[q->seq] = NULL;
    q->seq = -1;
    q->fed = 0;
    q->n_read = q->n - (due || q->order.act == GEN_PEEK); /* nothing is chosen behind the newest token before that */
    q->state = REQUEST_WAITING;
    gen_enqueue(g, q);
}

bool gen_drop_idle(struct gen *g, int but)
{
    int oldest = -1;

    for (int i = 0; i < g->n_seq; i++)
        if (g->at[i] == NULL && i != but && run_pos(g->o.run, i) > 0 && (oldest < 0 || g->used[i] < g->used[oldest]))
            oldest = i;
    if (oldest < 0)
        return false;
    run_clear(g->o.run, oldest);
    g->used[oldest] = 0;
    return true;
}

/* Whether there are KV rows for what a request has to read, beside what those in progress still read. Idle sequences
 * forget what they have for it, the oldest first, but the one that it begins from. */
static bool has_room(struct gen *g, const struct request *q, const struct start *s)
{
    int64_t need = q->n_read - s->kept + RUN_KV_PAGE;
    bool alone = true;

    for (int i = 0; i < g->n_seq + g->n_spare; i++)
        if (g->at[i] != NULL) {
            need += reading(g->at[i]) ? g->at[i]->n_read - g->at[i]->fed : 0;
            alone = false;
        }
    while (run_kv_left(g->o.run) < need)
        if (!gen_drop_idle(g, s->from))
            return alone;
    return true;
}

/* The last one that yields and writes its answer: what it has read it can read again. NULL: none. */
static struct request *find_yielding(const struct gen *g)
{
    struct request *last = NULL;

    for (int i = 0; i < g->n_seq; i++) {
        struct request *q = g->at[i];

        if (q != NULL && q->q.yields && q->state == REQUEST_ACTIVE && !q->q.pool && q->q.n_rows == 0 &&
            (last == NULL || gen_precedes(last, q)))
            last = q;
    }
    return last;
}

bool gen_yields(const struct gen *g)
{
    return find_yielding(g) != NULL;
}

/* Makes a place for a request that does not yield; false: there is none to make. */
static bool make_place(struct gen *g, const struct request *q)
{
    struct request *other = q->q.yields ? NULL : find_yielding(g);

    if (other != NULL)
        gen_requeue(g, other);
    return other != NULL;
}

enum err_code gen_admit(struct gen *g, struct err *e)
{
    for (int i = 0; i < g->n_seq; i++)
        if (g->at[i] != NULL)
            g->at[i]->cut = 0;
    for (struct request **link = &g->queue; *link != NULL;) {
        struct request *q = *link;
        const struct start s = find_start(g, q);

        if (s.into < 0) {
            if (make_place(g, q))
                continue;
            break;
        }
        if (read_by_another(g, q, s.kept)) {
            link = &q->next;
            continue;
        }
        if (!has_room(g, q, &s)) {
            if (make_place(g, q))
                continue;
            break;
        }
        *link = q->next;
        g->n_waiting--;
        if (open_request(g, q, e) == ERR_OK && take_sequence(g, q, s, e) == ERR_OK) {
            if (q->ended)
                gen_finish(g, q);
            continue;
        }
        if (q->seq >= 0 && e->code != ERR_NOMEM) /* the run has failed, and ends all */
            return e->code;
        gen_fail(q, e);
        gen_finish(g, q);
    }
    return gen_start_probes(g, e);
}
