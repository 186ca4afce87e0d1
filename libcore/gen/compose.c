/* SPDX-License-Identifier: Apache-2.0 */
/* compose.c - the rows of the next step, and what is asked of their logits.  room: gen */
#include <assert.h>
#include <string.h>

#include "gen/internal.h"

enum { PENDING_MAX = 16 }; /* forced tokens of an answer in one step */

/* A row with logits: what is asked is filled in later. */
static void add_ask(struct gen *g, struct request *q, int n_guessed, bool peeks)
{
    struct group *p = g->now;
    struct asked_row *a = &p->ask[p->n_ask];
    int32_t *ids = a->ids;

    if (q->first_row < 0)
        q->first_row = p->n_ask;
    *a = (struct asked_row){ .q = q, .row = p->n_rows, .n_guessed = n_guessed, .peeks = peeks, .mask = -1, .ids = ids };
    p->n_ask++;
    q->n_ask++;
}

/* Whether the KV rows are there for n more rows of a sequence; idle ones forget what they have for it. */
static bool take_kv(struct gen *g, const struct request *q, int64_t n)
{
    const int64_t need = run_kv_need(g->o.run, q->seq, n);

    while (need > g->kv_left) {
        const int64_t before = run_kv_left(g->o.run);

        if (!gen_drop_idle(g, -1))
            return false;
        g->kv_left += run_kv_left(g->o.run) - before;
    }
    g->kv_left -= need;
    return true;
}

static void add_row(struct gen *g, const struct request *q, int32_t token, bool logits, bool draft)
{
    g->now->row[g->now->n_rows++] = (struct run_row){ .token = token, .seq = q->seq, .logits = logits, .draft = draft };
}

/* ---- answers ---- */

/* How many guesses a request may have: room in the step, the context, what it may still write. */
static int guess_room(const struct gen *g, const struct request *q, int room)
{
    int64_t n = q->q.draft_max < 0 || q->q.draft_max > GEN_DRAFT_MAX ? GEN_DRAFT_MAX : q->q.draft_max;

    n = n < room ? n : room;
    n = n < g->draft_max ? n : g->draft_max;
    n = n < gen_ctx(g, &q->q) - q->n ? n : gen_ctx(g, &q->q) - q->n;
    if (q->q.predict_max >= 0 && n > q->q.predict_max - q->stats.tokens - 1)
        n = q->q.predict_max - q->stats.tokens - 1;
    return n > 0 ? (int)n : 0;
}

/* Guesses of all answers at once. A constraint cuts them before they cost a row. */
static enum err_code ask_drafter(struct gen *g, int n_writing, struct err *e)
{
    const int most = g->now->rows_max < g->now->logits_max ? g->now->rows_max : g->now->logits_max;
    int n = 0;

    if (g->o.drafter == NULL)
        return ERR_OK;
    for (int i = 0; i < g->n_seq; i++) {
        struct request *q = g->at[i];
        int room;

        if (!writes(q) || q->in != g->now || q->n - q->fed > 1 || q->n_peek > 0)
            continue;
        room = guess_room(g, q, most / n_writing - 1);
        if (room > 0)
            g->guess[n++] = (struct gen_guess){ .seq = q->seq, .token = q->token, .n_token = q->n, .n_max = room };
    }
    if (g->o.drafter->guess(g->o.drafter_of, g->guess, n, &g->cost, e))
        return e->code;
    for (int i = 0; i < n; i++) {
        struct request *q = g->at[g->guess[i].seq];
        const struct gen_constraint *c = q->q.constraint;
        int good = 0;

        while (good < g->guess[i].n && good < g->guess[i].n_max && g->guess[i].guess[good] >= 0 &&
               g->guess[i].guess[good] < g->n_vocab && (c == NULL || c->take(q->place, g->guess[i].guess[good])))
            good++;
        if (c != NULL)
            c->back(q->place, good);
        q->n_guess = good;
        memcpy(q->guess, g->guess[i].guess, (size_t)good * sizeof q->guess[0]);
    }
    return ERR_OK;
}

/* The pending tokens of an answer and its guesses. False: no room for them in this step. */
static bool add_answer(struct gen *g, struct request *q)
{
    struct group *p = g->now;
    const int64_t pending = q->n - q->fed;
    const int most = PENDING_MAX < p->rows_max ? PENDING_MAX : p->rows_max;
    int n = (int)(pending < most ? pending : most);

    if (n > 1 && n == pending && n + q->n_peek > p->rows_max)
        n--;
    const bool whole = n == pending; /* the newest token is among them */
    if (!whole)
        q->n_peek = 0;
    if (p->n_rows + n + q->n_peek > p->rows_max || (whole && p->n_ask + (q->n_peek > 0) >= p->logits_max))
        return false;
    if (p->n_rows + n + q->n_guess > p->rows_max)
        q->n_guess = p->rows_max - p->n_rows - n;
    if (!whole)
        q->n_guess = 0;
    else if (p->n_ask + 1 + q->n_guess > p->logits_max)
        q->n_guess = p->logits_max - p->n_ask - 1;
    if (!take_kv(g, q, n + q->n_guess + q->n_peek))
        return true; /* the others may find some */
    q->first = p->n_rows;
    q->n_new = n;
    for (int i = 0; i < n; i++) {
        const bool newest = whole && i == n - 1;

        if (newest)
            add_ask(g, q, 0, false);
        add_row(g, q, q->token[q->fed + i], newest, false);
    }
    for (int i = 0; i < q->n_guess; i++) {
        add_ask(g, q, i + 1, false);
        add_row(g, q, q->guess[i], true, true);
    }
    for (int i = 0; i < q->n_peek; i++) {
        const bool last = i == q->n_peek - 1;

        if (last)
            add_ask(g, q, 0, true);
        add_row(g, q, q->order.token[i], last, true);
    }
    return true;
}

/* ---- prompts ---- */

static int64_t smaller_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Rows of the prompt in this step: up to the next mark, rung of the ladder, or place where a waiting request parts. */
static int64_t chunk(const struct gen *g, const struct request *q, int64_t room)
{
    const int64_t left = q->n_read - q->fed;
    int64_t n = smaller_of(smaller_of(left, room), run_due(g->o.run, q->seq));

    if (n == room && n < left && n > 64)
        n -= n % 64; /* few different sizes of steps */
    if (q->mark < q->q.n_marks)
        n = smaller_of(n, q->q.marks[q->mark] - q->fed);
    if (q->cut > q->fed)
        n = smaller_of(n, q->cut - q->fed);
    if (waits_to_probe(q))
        n = smaller_of(n, q->probe.at - 1 - q->fed);
    return n;
}

static void add_prompt(struct gen *g, struct request *q, int64_t room)
{
    /* Tokens whose logits are wanted for their own sake; read again after a loss of the sequence, none are. */
    const int64_t rows_from = q->stats.tokens == 0 ? q->q.n_prompt - q->q.n_rows : q->n;
    const int64_t n = chunk(g, q, room);

    if (!take_kv(g, q, n))
        return;
    q->first = g->now->n_rows;
    for (int64_t i = q->fed; i < q->fed + n; i++) {
        const bool last = i + 1 == q->n && (q->q.predict_max != 0 || q->probe_of != NULL);
        const bool logits = last || i >= rows_from;

        if (logits && g->now->n_ask == g->now->logits_max)
            break;
        if (logits)
            add_ask(g, q, 0, false);
        add_row(g, q, q->token[i], logits, false);
        q->n_new++;
    }
}

static void add_prompts(struct gen *g, bool somebody_writes)
{
    int64_t room = g->now->rows_max - g->now->n_rows;

    if (somebody_writes && room > g->prompt_rows)
        room = g->prompt_rows;
    while (room > 0) {
        struct request *oldest = NULL;

        for (int i = 0; i < g->n_seq + g->n_spare; i++) {
            struct request *q = g->at[i];

            if (q != NULL && q->state == REQUEST_ACTIVE && reading(q) && q->n_new == 0 &&
                (oldest == NULL || q->id < oldest->id))
                oldest = q;
        }
        if (oldest == NULL)
            return;
        add_prompt(g, oldest, room);
        if (oldest->n_new == 0)
            return; /* no room for its logits or its KV rows */
        room -= oldest->n_new;
    }
}

/* ---- what is asked ---- */

/* Where the answer is after the first n guesses, if they are right. */
static struct gen_context context_with_guesses(const struct gen *g, struct request *q, int n)
{
    const struct text_marks *marks = q->q.part_marks;
    struct gen_context c = { q->token, q->n + n, q->text_from, in_reasoning(q), q->text_from > q->q.n_prompt };
    struct text_place at = q->place_in_text;

    /* token[] has room for guesses: they end before predict_max and the context do. */
    memcpy(q->token + q->n, q->guess, (size_t)n * sizeof *q->token);
    for (int i = 0; i < n && marks != NULL; i++) {
        struct str s = gen_spelling(g, q, q->guess[i]);

        for (size_t taken; s.n > 0; s.p += taken, s.n -= taken)
            taken = text_marks_take(marks, &at, s);
        if (c.reasoning && at.part != TEXT_REASONING) {
            c.text_from = q->n + i + 1;
            c.reasoned = true;
        }
        c.reasoning = at.part == TEXT_REASONING;
    }
    return c;
}

/* What the sampler of this row wants to know, as if the guesses before it were right. */
static void fill_want(struct gen *g, struct asked_row *a)
{
    struct request *q = a->q;
    struct logits_want *w = &g->now->want[a->row];

    if (q->memory != NULL && !a->peeks) {
        const struct gen_context at = context_with_guesses(g, q, a->n_guessed);

        a->mix = (struct sample_mix){ a->mix_token, a->mix_q, 0, 0 };
        q->q.memory->look(q->memory, &at, a->mix_token, a->mix_q, &a->mix.n, &a->evidence);
    }
    *w = (struct logits_want){ .n_top = a->peeks && g->ids != NULL ? 2 : 0, .inv_temp = 1 };
    if (a->peeks || g->ids == NULL || (reading(q) && q->q.n_rows > 0 && q->stats.tokens == 0))
        return; /* the row itself is at hand, or wanted */
    for (int i = 0; i < a->n_guessed; i++) {
        struct err why;

        if (sample_accept(q->sampler, q->guess[i], &why)) { /* the row is computed, and nothing chosen from it */
            gen_fail(q, &why);
            return;
        }
    }
    sample_wants(q->sampler, a->mix.n > 0 ? &a->mix : NULL, w, a->ids);
    if (gen_looks(q) && w->n_top == 1)
        w->n_top = 2; /* for the margin */
    sample_back(q->sampler, (uint64_t)a->n_guessed);
}

/* Whether the answer may not end after its first n guesses, if they are right. */
static bool is_too_short(const struct request *q, int n)
{
    return q->probe_of == NULL && q->stats.tokens + n < q->q.min_tokens;
}

static void fill_wants(struct gen *g)
{
    struct group *p = g->now;

    for (int i = 0; i < p->n_ask; i++) {
        struct asked_row *a = &p->ask[i];
        const struct request *q = a->q;

        fill_want(g, a);
        if (!a->peeks && ((q->q.constraint != NULL && (a->n_guessed > 0 || !q->q.constraint->free(q->place))) ||
                          is_too_short(q, a->n_guessed)))
            a->mask = p->n_masks++;
        if (a->mask >= 0)
            p->want[a->row].mask = p->masks + (size_t)a->mask * g->mask_words;
    }
}

/* What the constraint allows; all tokens if there is none. */
static void fill_mask(const struct gen *g, const struct request *q, uint32_t *mask)
{
    if (q->q.constraint != NULL) {
        q->q.constraint->mask(q->place, mask);
        return;
    }
    for (int32_t i = 0; i < g->n_vocab; i += 32)
        mask[i / 32] = g->n_vocab - i < 32 ? (1u << (g->n_vocab - i)) - 1 : UINT32_MAX;
}

/* Forbids the tokens that would end the answer, unless nothing else is allowed. */
static void forbid_ends(const struct gen *g, const struct request *q, uint32_t *mask)
{
    uint32_t left = 0;

    for (int64_t i = 0; i < g->ends.n && !q->q.ignore_eos; i++)
        mask[g->ends.v[i] / 32] &= ~(1u << g->ends.v[i] % 32);
    for (size_t i = 0; i < q->q.n_stop_tokens; i++)
        mask[q->q.stop_token[i] / 32] &= ~(1u << q->q.stop_token[i] % 32);
    for (size_t i = 0; i < g->mask_words; i++)
        left |= mask[i];
    if (left == 0)
        fill_mask(g, q, mask);
}

void gen_fill_masks(void *of)
{
    const struct gen *g = of;

    for (int i = 0; i < g->now->n_ask; i++) {
        const struct asked_row *a = &g->now->ask[i];
        const struct gen_constraint *c = a->q->q.constraint;
        uint32_t *mask;

        if (a->mask < 0)
            continue;
        mask = g->now->masks + (size_t)a->mask * g->mask_words;
        for (int j = 0; c != NULL && j < a->n_guessed; j++)
            (void)c->take(a->q->place, a->q->guess[j]);
        fill_mask(g, a->q, mask);
        if (is_too_short(a->q, a->n_guessed))
            forbid_ends(g, a->q, mask);
        if (c != NULL)
            c->back(a->q->place, a->n_guessed);
    }
}

static int share_of(int n, int groups)
{
    return (n + groups - 1) / groups;
}

/* How many of those that write the group in hand may have: an even share of all, and one of those whose steps are not
 * under way. */
static int members_most(const struct gen *g)
{
    int n_writing = 0, n_free = 0;

    for (int i = 0; i < g->n_seq + g->n_spare; i++) {
        n_writing += writes(g->at[i]);
        n_free += writes(g->at[i]) && !g->at[i]->under_way;
    }
    const int of_all = share_of(n_writing, g->n_groups), of_free = share_of(n_free, g->n_groups - g->n_under_way);

    return of_all < of_free ? of_all : of_free;
}

/* Who may have rows in this step: all, or a group of those that write, each in turn. */
static void choose_members(struct gen *g)
{
    const int n_all = g->n_seq + g->n_spare, from = g->turn;
    int left = g->now->flight < 0 ? n_all : members_most(g);

    for (int i = 0; i < n_all; i++) {
        const int at = (from + i) % n_all;
        struct request *q = g->at[at];

        if (q == NULL || q->under_way)
            continue;
        q->in = left > 0 ? g->now : NULL;
        if (g->now->flight < 0 || !writes(q) || left == 0)
            continue;
        g->turn = (at + 1) % n_all;
        left--;
    }
}

static enum err_code compose(struct gen *g, struct err *e)
{
    const int n_all = g->n_seq + g->n_spare;
    struct group *p = g->now;
    int n_writing = 0;

    p->n_rows = p->n_ask = p->n_masks = 0;
    g->kv_left = run_kv_left(g->o.run);
    if (p->flight < 0)
        g->turn = (g->turn + 1) % n_all; /* where not all find room, each comes first in turn */
    const int first = g->turn;
    choose_members(g);
    for (int i = 0; i < n_all; i++) {
        struct request *q = g->at[i];

        if (q == NULL || q->under_way)
            continue;
        q->n_new = q->n_guess = q->n_ask = 0;
        q->first = 0;
        q->first_row = -1;
        q->n_peek = writes(q) && q->order.act == GEN_PEEK ? q->order.n_token : 0;
        n_writing += writes(q) && q->in == p;
    }
    if (ask_drafter(g, n_writing, e))
        return e->code;
    for (int i = 0; i < n_all; i++) {
        struct request *q = g->at[(first + i) % n_all];

        if (writes(q) && q->in == p && !add_answer(g, q))
            break;
    }
    if (p->flight < 0)
        add_prompts(g, n_writing > 0);
    return ERR_OK;
}

/* Nobody found KV rows: the newest request gives its sequence up, and that of its probe, and begins again when there is
 * room; one that is alone has had all there is. */
static void give_up(struct gen *g)
{
    struct request *newest = NULL;
    int n_active = 0;

    for (int i = 0; i < g->n_seq + g->n_spare; i++) {
        struct request *q = g->at[i];

        if (q == NULL || q->probe_of != NULL)
            continue;
        n_active++;
        if (newest == NULL || gen_precedes(newest, q))
            newest = q;
    }
    assert(newest != NULL);
    if (n_active > 1) {
        gen_requeue(g, newest);
        return;
    }
    gen_end(newest, GEN_CONTEXT);
    gen_finish(g, newest);
}

static bool any_active(const struct gen *g)
{
    for (int i = 0; i < g->n_seq + g->n_spare; i++)
        if (g->at[i] != NULL && g->at[i]->state == REQUEST_ACTIVE)
            return true;
    return false;
}

enum err_code gen_compose(struct gen *g, struct err *e)
{
    if (compose(g, e))
        return e->code;
    while (g->now->flight < 0 && g->now->n_rows == 0 && any_active(g)) {
        give_up(g);
        if (compose(g, e))
            return e->code;
    }
    fill_wants(g);
    return ERR_OK;
}
