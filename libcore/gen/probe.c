/* SPDX-License-Identifier: Apache-2.0 */
/* probe.c - probes of governors: answers that might be, on copies of a request's sequence.     room: gen
 *
 * What a probe finds, and after which token the governor hears of it, depends on the request alone. So a probe is never
 * cut short: without memory for it a whole request gives its sequence up, and its probe begins anew with it. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "gen/internal.h"

static int64_t pages(int64_t n)
{
    return (n + RUN_KV_PAGE - 1) / RUN_KV_PAGE;
}

/* A copy has pages of its own from the one with the newest token on. */
bool gen_probe_fits(const struct gen *g, const struct request *q, const struct gen_order *o)
{
    const int64_t n = q->n + o->n_token + o->n_probe, all = run_kv_rows(g->o.run) / RUN_KV_PAGE;

    if (n > gen_ctx(g, &q->q))
        return false;
    if (all == 0) /* the model has no keys and values */
        return true;
    return o->act == GEN_PEEK ? pages(n) <= all : pages(q->n + o->lag) + pages(n) - (q->n - 1) / RUN_KV_PAGE <= all;
}

enum err_code gen_set_needs(const struct gen *g, struct request *q, struct err *e)
{
    const struct gen_governor *o = q->q.governor;
    struct gen_order least = { .act = GEN_PROBE };

    if (o == NULL || o->needs == NULL)
        return ERR_OK;
    q->needs = o->needs(q->governor);
    if (q->q.n_answer > 0 && (q->needs.peek_tokens > 0 || q->needs.probe_tokens > 0 || q->needs.looks))
        return err_set(e, ERR_UNSUPPORTED, "an answer that goes on has no numbers and probes for its governor");
    least.n_probe = q->needs.probe_tokens;
    if (least.n_probe > 0 && g->n_spare == 0)
        return err_set(e, ERR_UNSUPPORTED, "probes of an answer need a sequence to spare, and there is none");
    if (least.n_probe > 0 && q->n + least.n_probe <= gen_ctx(g, &q->q) && !gen_probe_fits(g, q, &least))
        return err_set(e, ERR_UNSUPPORTED,
                       "a probe of %d tokens behind %lld of the prompt does not fit in %lld KV rows", least.n_probe,
                       (long long)q->n, (long long)run_kv_rows(g->o.run));
    if (q->needs.peek_tokens > g->draft_max)
        return err_set(e, ERR_UNSUPPORTED, "a probe of %d tokens needs as many draft rows, and there are %d",
                       q->needs.peek_tokens, g->draft_max);
    if (q->needs.peek_tokens > 0 && (q->needs.peek_tokens >= g->group[0].rows_max || g->group[0].logits_max < 2))
        return err_set(e, ERR_UNSUPPORTED, "a probe of %d tokens does not fit in a step", q->needs.peek_tokens);
    return ERR_OK;
}

void gen_order_probe(struct gen *g, struct request *q)
{
    assert(g->n_spare > 0 && q->probe.at == 0 && q->order.n_probe > 0 && q->order.lag >= 0);
    q->probe = (struct probe){ .order = q->order, .at = q->n, .since = ++g->n_probes };
    q->order.act = GEN_GO_ON;
    q->stats.probes++;
    q->state = REQUEST_HELD;
}

void gen_drop_probe(struct gen *g, struct request *q)
{
    gen_lose_probe(g, q);
    free(q->probe.seen);
    q->probe = (struct probe){ .at = 0 };
}

void gen_lose_probe(struct gen *g, struct request *q)
{
    struct request *p = q->probe.runs;

    if (p == NULL)
        return;
    run_clear(g->o.run, p->seq);
    g->at[p->seq] = NULL;
    gen_request_free(p);
    q->probe.runs = NULL;
}

void gen_meet_probe(struct request *q, bool reads)
{
    struct probe p = q->probe;
    const bool due = q->n >= p.at + p.order.lag;

    if (p.at == 0 || q->ended)
        return;
    if (waits_to_probe(q)) {
        q->state = q->fed >= p.at - 1 || !reads ? REQUEST_HELD : REQUEST_ACTIVE;
        return;
    }
    q->state = due && p.seen == NULL && !reads ? REQUEST_HELD : REQUEST_ACTIVE;
    if (!due || p.seen == NULL)
        return;
    q->probe = (struct probe){ .at = 0 };
    q->order = q->q.governor->probed(q->governor, p.seen, p.n);
    free(p.seen);
}

/* A probe continues a copy of its request: the tokens that are pending, then those of the order. */
static enum err_code start_probe(struct gen *g, struct request *q, int seq, struct err *e)
{
    const struct gen_order *o = &q->probe.order;
    struct request *p = calloc(1, sizeof *p);
    const int64_t at = q->probe.at, n = at + o->n_token;

    if (p == NULL)
        return err_nomem(e);
    p->q = gen_defaults();
    p->q.n_prompt = n;
    p->q.predict_max = o->n_probe;
    p->q.governor = q->q.governor;
    p->probe_of = q;
    p->cap = n + o->n_probe + 1;
    p->token = calloc((size_t)p->cap, sizeof *p->token);
    p->seen = calloc((size_t)o->n_probe, sizeof *p->seen);
    if (p->token == NULL || p->seen == NULL || sample_open(&p->sampler, &p->q.sample, g->n_vocab, e) ||
        run_fork(g->o.run, seq, q->seq, e)) {
        const enum err_code code = p->token == NULL || p->seen == NULL ? err_nomem(e) : e->code;

        gen_request_free(p);
        return code;
    }
    memcpy(p->token, q->token, (size_t)at * sizeof *p->token);
    memcpy(p->token + at, o->token, (size_t)o->n_token * sizeof *p->token);
    p->n = p->n_read = n;
    p->fed = q->fed;
    p->seq = seq;
    p->state = REQUEST_ACTIVE;
    g->at[seq] = p;
    q->probe.runs = p;
    gen_meet_probe(q, reading(q));
    return ERR_OK;
}

/* The request that waits longest for a sequence to spare and has read what its probe needs; NULL: none. */
static struct request *next_to_probe(const struct gen *g)
{
    struct request *first = NULL;

    for (int i = 0; i < g->n_seq; i++) {
        struct request *q = g->at[i];

        if (q != NULL && q->state == REQUEST_HELD && waits_to_probe(q) &&
            (first == NULL || q->probe.since < first->probe.since))
            first = q;
    }
    return first;
}

bool gen_probe_due(const struct gen *g)
{
    for (int spare = g->n_seq; spare < g->n_seq + g->n_spare; spare++)
        if (g->at[spare] == NULL)
            return next_to_probe(g) != NULL;
    return false;
}

enum err_code gen_start_probes(struct gen *g, struct err *e)
{
    for (int spare = g->n_seq; spare < g->n_seq + g->n_spare; spare++) {
        struct request *q = g->at[spare] == NULL ? next_to_probe(g) : NULL;

        if (q == NULL || start_probe(g, q, spare, e) == ERR_OK)
            continue;
        if (e->code != ERR_NOMEM)
            return e->code;
        gen_fail(q, e);
        gen_finish(g, q);
    }
    return ERR_OK;
}

void gen_end_probe(struct gen *g, struct request *p)
{
    struct request *q = p->probe_of;

    run_clear(g->o.run, p->seq);
    q->probe.runs = NULL;
    if (p->end_by == GEN_FAILED) { /* without its tokens the answer would be another one */
        gen_fail(q, &p->why);
        q->state = REQUEST_ACTIVE;
        return;
    }
    q->stats.probe_tokens += p->stats.tokens;
    q->probe.seen = p->seen;
    q->probe.n = (int)p->stats.tokens;
    p->seen = NULL;
    if (q->state == REQUEST_HELD)
        gen_meet_probe(q, reading(q));
}
