/* SPDX-License-Identifier: Apache-2.0 */
/* choose.c - after a step: which token each row gives, which guesses stay, who says what next.    room: gen */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "gen/internal.h"

/* ---- one row ---- */

/* The likeliest token of a row; -1: no logit is finite. */
static int32_t find_likeliest(const struct gen *g, const struct asked_row *a, const struct logits_digest *d,
                              const uint32_t *mask)
{
    const float *row = d == NULL || d->n_top == 0 ? run_logits(g->o.run, a->row) : NULL;
    int32_t best = row == NULL ? d->top[0].token : -1;
    float most = -INFINITY;

    for (int32_t i = 0; row != NULL && i < g->n_vocab; i++)
        if ((mask == NULL || mask[i / 32] >> i % 32 & 1) && row[i] > most) {
            best = i;
            most = row[i];
        }
    return best;
}

/* Whether the likeliest token of a row ends the turn of a chat. */
static bool would_end(const struct gen *g, const struct asked_row *a, const struct logits_digest *d,
                      const uint32_t *mask)
{
    const int32_t best = a->q->q.chat && g->o.text != NULL ? find_likeliest(g, a, d, mask) : -1;

    return best >= 0 && text_is_end(g->o.text, best);
}

static bool may_come(const struct gen_order *o, const uint32_t *mask, int32_t token)
{
    for (int i = 0; i < o->n_shun; i++)
        if (o->shun[i] == token)
            return false;
    return mask == NULL || (mask[token / 32] >> token % 32 & 1) != 0;
}

/* Tells the memory of the token that was chosen, unless it is one that needs no choice: those come without logits, too.
 * d: sums of the row. */
static void learn_choice(struct request *q, const struct asked_row *a, const struct logits_digest *d,
                         const uint32_t *mask, const struct sample_pick *pick, struct gen_came *came)
{
    if (q->q.constraint != NULL && q->q.constraint->only(q->place) >= 0)
        return;
    came->p = exp((double)pick->logprob + (double)d->raw_max - (double)d->max) * d->raw_total / d->total;
    for (int i = 0; i < a->mix.n; i++)
        if (may_come(&q->order, mask, a->mix_token[i])) {
            came->mass += (double)a->mix_q[i];
            came->q = a->mix_token[i] == pick->token ? (double)a->mix_q[i] : came->q;
        }
    q->q.memory->learn(q->memory, a->evidence, came);
}

void gen_set_numbers(struct gen_seen *seen, const struct logits_digest *d)
{
    const struct sample_numbers n = sample_numbers(d);

    seen->p_max = n.p_max;
    seen->entropy = n.entropy;
    seen->varentropy = n.varentropy;
    seen->margin = n.margin;
}

/* Chooses from a row. The digest does, or the row has to come. */
static enum err_code choose_row(struct gen *g, struct asked_row *a, struct sample_pick *pick, struct gen_seen *seen,
                                struct err *e)
{
    struct request *q = a->q;
    const struct gen_order *o = &q->order;
    const uint32_t *mask = a->mask >= 0 ? g->now->masks + (size_t)a->mask * g->mask_words : NULL;
    const struct sample_mix *mix = a->mix.n > 0 ? &a->mix : NULL;
    const bool look = mix != NULL || gen_looks(q);
    struct gen_came came = { 0 };
    struct logits_digest d;
    bool enough = false, digest = run_digest(g->o.run, a->row, &d);

    if (!digest && look)
        sample_sums(q->sampler, run_logits(g->o.run, a->row), mask, &d);
    if (look)
        gen_set_numbers(seen, &d);
    if (mix != NULL) {
        came.p_max = seen->p_max;
        came.ends = would_end(g, a, digest ? &d : NULL, mask);
        a->mix.weight = q->q.memory->weight(q->memory, a->evidence, came.p_max, came.ends);
    }
    if (o->n_shun > 0)
        seen->shunned = !may_come(o, NULL, find_likeliest(g, a, digest ? &d : NULL, mask));
    if (digest && sample_next_digest(q->sampler, &d, mix, o->shun, o->n_shun, pick, &enough, e))
        return e->code;
    q->stats.whole_rows += !enough && g->ids != NULL;
    if (!enough && sample_next_row(q->sampler, run_logits(g->o.run, a->row), mask, mix, o->shun, o->n_shun, pick, e))
        return e->code;
    if (mix != NULL)
        learn_choice(q, a, &d, mask, pick, &came);
    return ERR_OK;
}

/* ---- the governor ---- */

/* How much the constraint takes of what the governor wants to say; 0: too little. */
static int count_sayable(const struct request *q, const struct gen_order *o)
{
    int n = 0;

    assert(o->n_token <= GEN_BACK_MAX);
    if (q->place == NULL)
        return o->n_token;
    while (n < o->n_token && q->q.constraint->take(q->place, o->token[n]))
        n++;
    q->q.constraint->back(q->place, n);
    return n >= o->n_needed ? n : 0;
}

static bool may_take(const struct request *q, int32_t token)
{
    const bool may = q->q.constraint->take(q->place, token);

    q->q.constraint->back(q->place, may);
    return may;
}

/* Whether the answer may end here. */
static bool may_stop(const struct gen *g, const struct request *q)
{
    bool may = q->place == NULL || q->q.constraint->free(q->place);

    for (int64_t i = 0; i < g->ends.n && !may; i++)
        may = may_take(q, g->ends.v[i]);
    for (size_t i = 0; i < q->q.n_stop_tokens && !may; i++)
        may = may_take(q, q->q.stop_token[i]);
    return may && !q->q.ignore_eos && q->stats.tokens >= q->q.min_tokens;
}

/* A token that was not chosen, and the order that the governor gives after it. */
static void take_forced(struct gen *g, struct request *q, int32_t token, bool said)
{
    struct gen_seen seen = {
        .token = token, .forced = true, .said = said, .reasoning = in_reasoning(q), .p = 1, .p_max = 1
    };

    q->stats.thought.forced += said && seen.reasoning;
    gen_take(g, q, token, NULL, NULL);
    seen.opens = !seen.reasoning && in_reasoning(q);
    seen.closes = seen.reasoning && !in_reasoning(q);
    if (q->governor != NULL && !q->ended)
        q->order = q->q.governor->see(q->governor, &seen);
    if (q->order.act == GEN_GO_ON)
        gen_meet_probe(q, false);
}

/* Carries out the governor's orders until it lets the answer go on. */
static void obey(struct gen *g, struct request *q)
{
    while (q->order.act != GEN_GO_ON && !q->ended) {
        const struct gen_order o = q->order;

        if (o.act == GEN_PEEK || o.act == GEN_PROBE) {
            if (gen_probe_fits(g, q, &o) && o.act == GEN_PEEK)
                return; /* the next step has it */
            if (gen_probe_fits(g, q, &o))
                gen_order_probe(g, q);
            else
                q->order = q->q.governor->probed(q->governor, NULL, 0);
            continue;
        }
        q->order.act = GEN_GO_ON;
        gen_drop_probe(g, q);
        if (o.act == GEN_STOP && may_stop(g, q))
            gen_end(q, o.why == GEN_WHY_LOOP ? GEN_LOOP : GEN_STOPPED);
        const int n = o.act == GEN_SAY ? count_sayable(q, &o) : 0;

        q->why_said = o.why;
        for (int i = 0; i < n && !q->ended; i++)
            take_forced(g, q, o.token[i], true);
        q->why_said = GEN_WHY_MODEL;
    }
}

void gen_take_again(struct gen *g, struct request *q)
{
    const int64_t n = q->n;

    q->n = q->q.n_prompt;
    while (q->n < n && !q->ended) {
        const struct gen_order o = q->order;
        const int said = o.act == GEN_SAY ? count_sayable(q, &o) : 0;

        q->order.act = GEN_GO_ON;
        q->why_said = said > 0 ? o.why : GEN_WHY_MODEL;
        if (said == 0)
            take_forced(g, q, q->token[q->n], false);
        for (int i = 0; i < said && !q->ended; i++) {
            if (q->n < n && o.token[i] != q->token[q->n]) { /* the sequence begins with the latter */
                struct err why = { 0 };

                (void)err_set(&why, ERR_ARG, "token %lld of an answer is none that its governor says",
                              (long long)(q->n - q->q.n_prompt));
                gen_fail(q, &why);
                return;
            }
            take_forced(g, q, o.token[i], true);
        }
        q->why_said = GEN_WHY_MODEL;
    }
    obey(g, q);
}

/* ---- tokens that are not chosen ---- */

enum { FORCED_MAX = 16 }; /* of one answer before the model sees them */

/* The token that the constraint leaves, and that needs no choice; -1: there is none. */
static int32_t only_one(const struct request *q)
{
    const bool may = q->q.constraint != NULL && q->q.sample.n_top == 0 && q->n > q->q.n_prompt;

    return may ? q->q.constraint->only(q->place) : -1;
}

void gen_force(struct gen *g)
{
    for (int i = 0; i < g->n_seq; i++) {
        struct request *q = g->at[i];

        if (!writes(q) || q->under_way)
            continue;
        for (;;) {
            if (q->governor != NULL) /* what a probe led to */
                obey(g, q);
            const int32_t only = q->ended || q->state != REQUEST_ACTIVE || q->order.act != GEN_GO_ON ? -1 : only_one(q);

            if (only < 0 || q->n - q->fed >= FORCED_MAX)
                break;
            take_forced(g, q, only, false);
        }
        if (q->ended)
            gen_finish(g, q);
    }
}

/* ---- tokens that are chosen ---- */

/* Whether a first answer is in doubt where it would go on: its likeliest token is none that the model is sure of. */
static bool doubts(struct request *q, const struct gen_seen *seen)
{
    if (q->second == NULL)
        return false;
    q->least = seen->p_max < q->least ? seen->p_max : q->least;
    q->doubted = q->least < q->q.doubt_below;
    return q->doubted;
}

/* A chosen token; *stop: the other rows of this step are dropped. */
static void take_choice(struct gen *g, struct request *q, const struct sample_pick *pick, struct gen_seen *seen,
                        bool *stop)
{
    seen->token = pick->token;
    seen->reasoning = in_reasoning(q);
    seen->p = expf(pick->logprob);
    if (q->seen != NULL)
        q->seen[q->stats.tokens] = *seen;
    const int64_t n_before = q->stats.tokens;

    gen_take(g, q, pick->token, pick, seen);
    if (!seen->reasoning && q->stats.tokens > n_before) { /* else it is the end */
        q->sum += (double)pick->logprob;
        q->n_sum++;
    }
    seen->opens = !seen->reasoning && in_reasoning(q);
    seen->closes = seen->reasoning && !in_reasoning(q);
    if (q->governor != NULL && !q->ended) {
        q->order = q->q.governor->see(q->governor, seen);
        if (q->order.act == GEN_GO_ON)
            gen_meet_probe(q, false);
        *stop = q->order.act != GEN_GO_ON || q->state == REQUEST_HELD;
        obey(g, q);
    }
    *stop = *stop || q->ended;
}

/* ---- a sequence ---- */

/* n_kept guesses are accepted, with the rows before them: tells the run and the drafter. */
static void settle_guesses(struct gen *g, struct request *q, int n_kept)
{
    if (q->n_guess + q->n_peek > 0)
        run_settle(g->o.run, q->seq, n_kept);
    q->stats.probe_rows += q->n_peek;
    if (q->probe_of != NULL)
        q->probe_of->stats.probe_rows += q->n_new;
    q->stats.drafted += q->n_guess;
    q->stats.kept += n_kept;
    if (g->o.drafter != NULL && g->o.drafter->settle != NULL && q->probe_of == NULL)
        g->o.drafter->settle(g->o.drafter_of, q->seq, q->token + q->fed, q->n_new + n_kept, q->n_guess, n_kept);
    q->fed += q->n_new + n_kept;
}

/* Nothing is chosen from the rows of this step. */
static void end_rows(struct gen *g, struct request *q)
{
    settle_guesses(g, q, 0);
    gen_meet_probe(q, reading(q));
    if (q->ended)
        gen_finish(g, q);
}

/* Tells the governor what would follow the tokens of its GEN_PEEK. */
static void tell_peek(struct gen *g, struct request *q)
{
    const struct asked_row *a = &g->now->ask[q->first_row + 1];
    struct gen_seen seen = { .reasoning = in_reasoning(q) };
    struct logits_digest d;
    const bool digest = run_digest(g->o.run, a->row, &d);

    if (!digest)
        sample_sums(q->sampler, run_logits(g->o.run, a->row), NULL, &d);
    seen.token = find_likeliest(g, a, digest ? &d : NULL, NULL);
    if (seen.token < 0) {
        err_set(&q->why, ERR_DEVICE, "the model's output has no finite logit");
        gen_end(q, GEN_FAILED);
        return;
    }
    gen_set_numbers(&seen, &d);
    seen.p = seen.p_max;
    q->stats.probes++;
    q->order = q->q.governor->probed(q->governor, &seen, 1);
    assert(q->order.act != GEN_PEEK && q->order.act != GEN_PROBE);
}

/* Chooses from the rows of an answer while the guesses turn out right. The newest token is not evaluated, also
 * where it was guessed: so an answer leaves the same state with and without a drafter. */
static void choose_answer(struct gen *g, struct request *q, bool count)
{
    struct sample_pick pick;
    int n_right = 0;

    q->stats.steps += count;
    if (q->n_peek > 0) {
        tell_peek(g, q);
        if (q->ended || q->order.act != GEN_GO_ON) { /* the next token is not chosen */
            settle_guesses(g, q, 0);
            obey(g, q);
            if (q->ended)
                gen_finish(g, q);
            return;
        }
    }
    for (;; n_right++) {
        const int32_t only = only_one(q);
        struct gen_seen seen = { 0 };
        bool stop = false;

        if (only >= 0) { /* it is forced, whether its row is there or not */
            take_forced(g, q, only, false);
            stop = q->order.act != GEN_GO_ON || q->state == REQUEST_HELD;
            obey(g, q);
            if (stop || q->ended || n_right == q->n_guess || only != q->guess[n_right])
                break;
            continue;
        }
        if (choose_row(g, &g->now->ask[q->first_row + q->n_ask - 1 - q->n_guess - (q->n_peek > 0) + n_right], &pick,
                       &seen, &q->why)) {
            gen_end(q, GEN_FAILED);
            break;
        }
        if (doubts(q, &seen)) {
            gen_end(q, GEN_STOPPED);
            break;
        }
        take_choice(g, q, &pick, &seen, &stop);
        if (stop || n_right == q->n_guess || pick.token != q->guess[n_right])
            break;
    }
    settle_guesses(g, q, n_right);
    if (q->ended)
        gen_finish(g, q);
}

/* Reports what was read of a prompt: the rows that are wanted, then how far it is. */
static enum err_code tell_chunk(struct gen *g, const struct request *q, struct err *e)
{
    const struct event_what nothing = { NULL, 0 };
    struct gen_event ev = { .kind = GEN_ROW, .id = q->id, .user = q->q.user, .seq = q->seq };

    for (int i = 0; i < q->n_ask && q->q.n_rows > 0; i++) {
        const struct event_what w = { NULL, g->now->ask[q->first_row + i].row };

        ev.done = q->fed + w.row - q->first;
        if (gen_tell(&g->out, &ev, &w, e))
            return e->code;
    }
    ev.kind = GEN_PROMPT;
    ev.done = q->fed + q->n_new;
    return q->probe_of == NULL && !q->is_second ? gen_tell(&g->out, &ev, &nothing, e) : ERR_OK;
}

/* What was read of a prompt. */
static void end_chunk(struct gen *g, struct request *q)
{
    const int64_t to = q->fed + q->n_new;
    const bool first = q->stats.tokens == 0; /* not read again after a loss of the sequence */
    struct err why;

    for (int i = 0; q->pooled != NULL && i < q->n_new; i++)
        if (run_tap(g->o.run, 0, q->first + i, g->hidden))
            for (int j = 0; j < g->n_embd; j++)
                q->pooled[j] += (double)g->hidden[j];
    if (q->mark < q->q.n_marks && to == q->q.marks[q->mark]) {
        run_mark(g->o.run, q->seq);
        q->mark++;
    }
    if (first && tell_chunk(g, q, &why))
        gen_fail(q, &why);
    else if (to == q->n_read && q->q.predict_max == 0 && q->probe_of == NULL)
        gen_end(q, GEN_LENGTH);
    if (to < q->n || q->ended)
        end_rows(g, q);
    else
        choose_answer(g, q, false);
}

void gen_choose(struct gen *g)
{
    for (int i = 0; i < g->n_seq + g->n_spare; i++) {
        struct request *q = g->at[i];

        if (!is_in(g, q))
            continue;
        if (q->ended || (!reading(q) && q->first_row < 0))
            end_rows(g, q);
        else if (reading(q))
            end_chunk(g, q);
        else
            choose_answer(g, q, true);
    }
}
