/* SPDX-License-Identifier: Apache-2.0 */
/* answer.c - a token joins an answer; an answer ends.                        room: gen */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gen/internal.h"

/* A stream of text for the part that begins; stop strings count in the text only. */
static enum err_code begin_part(struct gen *g, struct request *q, bool reasoning, struct err *e)
{
    const bool stops = !reasoning && !q->place_in_text.call && q->q.n_stops > 0;

    text_stream_close(q->stream);
    q->stream = NULL;
    return text_stream_open(&q->stream, g->o.text, stops ? q->q.stops : NULL, stops ? q->q.n_stops : 0, e);
}

enum err_code gen_begin_text(struct gen *g, struct request *q, struct err *e)
{
    q->text_from = q->q.n_prompt;
    if (g->o.text == NULL || q->probe_of != NULL)
        return ERR_OK;
    q->place_in_text = text_marks_begin(q->q.part_marks, q->q.thinking);
    if (begin_part(g, q, in_reasoning(q), e))
        return e->code;
    if (q->q.in_parts && !q->q.chat)
        text_stream_follows(q->stream, q->q.prompt, q->q.n_prompt);
    return ERR_OK;
}

bool gen_is_end(const struct gen *g, const struct request *q, int32_t token)
{
    for (size_t i = 0; i < q->q.n_stop_tokens; i++)
        if (q->q.stop_token[i] == token)
            return true;
    if (q->q.ignore_eos)
        return false;
    return g->o.text != NULL ? text_is_end(g->o.text, token) : token >= 0 && token == g->o.end_token;
}

static bool only_newlines(struct str s)
{
    while (s.n > 0 && s.p[s.n - 1] == '\n')
        s.n--;
    return s.n == 0;
}

struct str gen_spelling(const struct gen *g, const struct request *q, int32_t token)
{
    /* Other control tokens are no text. */
    if (text_is_control(g->o.text, token) && !text_marks_have(q->q.part_marks, token))
        return STR("");
    return text_piece(g->o.text, token);
}

static enum err_code push_text(struct gen *g, struct request *q, struct str s, bool *stopped, struct err *e)
{
    struct str ready;

    return text_stream_add(q->stream, s, &ready, stopped, e) ? e->code : gen_tell_text(gen_out(g, q), ready, e);
}

/* Ends the part under way; the marks between the parts are given out as they are. */
static enum err_code turn_to(struct gen *g, struct request *q, bool reasoning, struct str held, struct str rest,
                             struct err *e)
{
    if (gen_tell_text(gen_out(g, q), text_stream_flush(q->stream), e) || gen_tell_text(gen_out(g, q), held, e) ||
        gen_tell_text(gen_out(g, q), rest, e))
        return e->code;
    q->n_text = 0;
    q->text_from = reasoning ? q->text_from : q->n;
    return begin_part(g, q, reasoning, e);
}

/* A call has begun or ended with the last of these bytes: those of its mark that are here belong to it. */
static enum err_code turn_call(struct gen *g, struct request *q, struct str held, struct str now, bool *stopped,
                               struct err *e)
{
    const struct str mark = q->place_in_text.call ? text_marks_call(q->q.part_marks, &q->place_in_text) : STR("");
    const size_t n = mark.n < now.n ? now.n - mark.n : 0;

    if (push_text(g, q, held, stopped, e) ||
        (!*stopped && push_text(g, q, (struct str){ now.p, mark.n > 0 ? n : now.n }, stopped, e)))
        return e->code;
    if (*stopped)
        return ERR_OK;
    if (gen_tell_text(gen_out(g, q), text_stream_flush(q->stream), e) || begin_part(g, q, false, e))
        return e->code;
    return mark.n > 0 ? push_text(g, q, (struct str){ now.p + n, now.n - n }, stopped, e) : ERR_OK;
}

/* Bytes of a token, up to their end or to where reasoning begins or ends; moves *s on. */
static enum err_code add_stretch(struct gen *g, struct request *q, struct str *s, bool *stopped, struct err *e)
{
    const struct text_place before = q->place_in_text;
    const struct str held = text_marks_held(q->q.part_marks, &before);
    const size_t n = text_marks_take(q->q.part_marks, &q->place_in_text, *s);
    const size_t holds = text_marks_held(q->q.part_marks, &q->place_in_text).n;
    struct str now = { s->p, n };

    *s = (struct str){ s->p + n, s->n - n };
    if (before.part != TEXT_REASONING && in_reasoning(q))
        return turn_to(g, q, true, held, now, e);
    if (before.call != q->place_in_text.call)
        return turn_call(g, q, held, now, stopped, e);
    if (holds > n) /* all of it may still become a mark */
        return ERR_OK;
    now.n -= holds;
    if (push_text(g, q, held, stopped, e) || (!*stopped && push_text(g, q, now, stopped, e)))
        return e->code;
    return before.part == TEXT_REASONING && !in_reasoning(q) ? turn_to(g, q, false, STR(""), STR(""), e) : ERR_OK;
}

/* Counts the token as one of the text, of which `rest` is text for certain. */
static void count_text(struct request *q, struct str rest)
{
    if (in_reasoning(q)) {
        q->n_held = 0;
    } else if (text_marks_held(q->q.part_marks, &q->place_in_text).n > 0) {
        q->n_held++;
    } else {
        /* Newlines between the reasoning and the text are the format's, not the answer's. */
        q->n_text += q->n_held + (!q->q.chat || q->n_text > 0 || !only_newlines(rest));
        q->n_held = 0;
    }
}

/* The text that the token makes certain. */
static enum err_code add_text(struct gen *g, struct request *q, int32_t token, struct gen_event *ev, bool *stopped,
                              struct err *e)
{
    const bool reasoned = in_reasoning(q);
    struct str s = gen_spelling(g, q, token), rest = text_piece(g->o.text, token);

    while (s.n > 0 && !*stopped) {
        const bool inside = in_reasoning(q);

        if (add_stretch(g, q, &s, stopped, e))
            return e->code;
        rest = inside && !in_reasoning(q) ? s : rest;
    }
    count_text(q, rest);
    ev->reasoning = reasoned || in_reasoning(q);
    ev->closes = reasoned && !in_reasoning(q);
    if (ev->closes)
        q->stats.thought.end = q->why_said;
    q->stats.reasoning_tokens += ev->reasoning;
    return ERR_OK;
}

/* Adds the text of a token to its step. Whether that ends with it. */
static bool ends_step(struct request *q, struct str s)
{
    const struct str end = q->q.step_end;
    bool ends = false;

    for (size_t i = 0; i < s.n; i++) {
        memmove(q->step, q->step + 1, sizeof q->step - 1);
        q->step[sizeof q->step - 1] = s.p[i];
        if (q->step_from < 0 && strchr(" \t\r\n", s.p[i]) == NULL)
            q->step_from = q->n_step;
        q->n_step++;
        ends = ends || (q->step_from >= 0 && q->step_from < q->n_step - (int64_t)end.n &&
                        memcmp(q->step + sizeof q->step - end.n, end.p, end.n) == 0);
    }
    return ends;
}

/* Whether the step of the answer ends with a token. The marks of the reasoning are in no step. */
static bool is_whole_step(const struct gen *g, struct request *q, int32_t token, bool turns)
{
    bool ends;

    if (q->q.step_end.n == 0 || q->stats.tokens <= q->q.n_answer)
        return false;
    ends = !turns && ends_step(q, gen_spelling(g, q, token));
    if (turns) {
        q->n_step = 0;
        q->step_from = -1;
    }
    return ends;
}

/* Whether the answer has what it may have; *end says why. */
static bool is_full(const struct gen *g, const struct request *q, enum gen_end *end)
{
    *end = GEN_LENGTH;
    if (q->q.predict_max >= 0 && q->stats.tokens >= q->q.predict_max)
        return true;
    if (q->q.text_max >= 0 && !in_reasoning(q) && q->n_held == 0 && q->n_text >= q->q.text_max)
        return true;
    *end = GEN_CONTEXT; /* the newest token has no position */
    return q->n - 1 >= gen_ctx(g, &q->q);
}

void gen_take(struct gen *g, struct request *q, int32_t token, const struct sample_pick *pick,
              const struct gen_seen *numbers)
{
    const struct sample_pick forced = { .token = token, .logprob = NAN };
    const bool tells = q->q.uncertainty && pick != NULL, reasoned = in_reasoning(q);
    struct gen_event ev = { .kind = GEN_TOKEN,
                            .id = q->id,
                            .user = q->q.user,
                            .seq = q->seq,
                            .p_max = tells ? numbers->p_max : NAN,
                            .entropy = tells ? numbers->entropy : NAN,
                            .varentropy = tells ? numbers->varentropy : NAN,
                            .margin = tells ? numbers->margin : NAN,
                            .forced = pick == NULL };
    const struct event_what w = { pick != NULL ? pick : &forced, 0 };
    enum gen_end full;
    bool stopped = false;
    struct err why;

    if (gen_is_end(g, q, token) && q->probe_of == NULL) {
        gen_end(q, GEN_EOS);
        q->end_p = ev.p_max;
        return;
    }
    assert(q->n < q->cap && !q->ended);
    q->token[q->n++] = token;
    q->stats.tokens++;
    q->stats.forced += pick == NULL;
    if (sample_accept(q->sampler, token, &why)) {
        gen_fail(q, &why);
        return;
    }
    if (q->place != NULL)
        (void)q->q.constraint->take(q->place, token); /* what a governor says need not fit */
    if (q->probe_of != NULL) {
        if (gen_is_end(g, q, token) || is_full(g, q, &full))
            gen_end(q, GEN_LENGTH);
        return;
    }
    if ((g->o.text != NULL && add_text(g, q, token, &ev, &stopped, &why)) || gen_tell(gen_out(g, q), &ev, &w, &why))
        gen_fail(q, &why);
    else if (stopped)
        gen_end(q, GEN_STOP_STRING);
    else if (is_full(g, q, &full))
        gen_end(q, full);
    else if (is_whole_step(g, q, token, reasoned != in_reasoning(q)))
        gen_end(q, GEN_STEP);
}

/* What was held back. */
static enum err_code flush_text(struct gen *g, struct request *q, struct err *e)
{
    bool stopped = false;

    if (push_text(g, q, text_marks_held(q->q.part_marks, &q->place_in_text), &stopped, e))
        return e->code;
    return stopped ? ERR_OK : gen_tell_text(gen_out(g, q), text_stream_flush(q->stream), e);
}

static const float *mean(struct gen *g, const struct request *q)
{
    float *out = g->pooled + (size_t)q->seq * (size_t)g->n_embd;

    for (int i = 0; i < g->n_embd; i++)
        out[i] = (float)(q->pooled[i] / (double)q->q.n_prompt);
    return out;
}

static float mean_of_choices(const struct request *q)
{
    return q->n_sum > 0 ? (float)(q->sum / (double)q->n_sum) : NAN;
}

/* A first answer that came to its end is in doubt as a whole. */
static bool doubts_answer(const struct request *q)
{
    const struct str text = { q->held.text, q->held.n_text };

    if (q->end_by == GEN_FAILED || q->end_by == GEN_CANCELLED)
        return false;
    if (q->q.doubts_mean && !(mean_of_choices(q) >= q->q.doubt_mean))
        return true;
    for (size_t i = 0; i < q->q.n_doubt_texts; i++)
        if (str_find(text, 0, q->q.doubt_texts[i]) != SIZE_MAX)
            return true;
    return false;
}

/* The first answer is dropped: the second is asked in its place, on the same sequence. */
static void begin_second(struct gen *g, struct request *q)
{
    struct request *r = q->second;
    const struct event_what nothing = { NULL, 0 };
    struct gen_event ev = { .kind = GEN_SECOND, .id = q->id, .user = q->q.user, .seq = q->seq };
    struct err why;

    r->stats = q->stats;
    r->stats.doubt = (struct gen_doubt){
        .asked = true,
        .doubted = true,
        .least = q->least,
        .mean = mean_of_choices(q),
        .tokens = q->stats.tokens + (q->doubted && q->end_by != GEN_LOOP) /* where it stopped, one more was chosen */
    };
    r->stats.tokens = r->stats.reasoning_tokens = r->stats.forced = 0;
    r->stats.thought = (struct gen_thought){ .budget = -1, .certainty = NAN };
    r->id = q->id;
    r->cancelled = q->cancelled;
    ev.stats = r->stats;
    gen_drop_probe(g, q);
    q->second = NULL;
    gen_request_free(q);
    if (gen_follow(g, r, ev.seq, &why) || gen_tell(&g->out, &ev, &nothing, &why)) {
        gen_fail(r, &why);
        gen_finish(g, r);
    }
}

/* The first answer is over, and stands, or was cancelled: what was held back is told. */
static void let_out(struct gen *g, struct request *q)
{
    struct err why;

    gen_request_free(q->second);
    q->second = NULL;
    q->stats.doubt = (struct gen_doubt){
        .asked = true,
        .whole = q->end_by == GEN_EOS || q->end_by == GEN_STOP_STRING || q->end_by == GEN_STOPPED,
        .least = q->least,
        .mean = mean_of_choices(q),
    };
    if (q->end_by != GEN_FAILED && gen_tell_held(&g->out, &q->held, &why))
        gen_fail(q, &why);
}

void gen_finish(struct gen *g, struct request *q)
{
    struct gen_event ev = { .kind = GEN_END,
                            .id = q->id,
                            .user = q->q.user,
                            .seq = q->seq,
                            .stop = q->end_by == GEN_STOP_STRING ? text_stream_stop(q->stream) : 0,
                            .p_max = q->end_by == GEN_EOS ? q->end_p : NAN,
                            .reasoning = in_reasoning(q) };
    struct err why;

    if (q->second != NULL && (q->doubted || q->end_by == GEN_LOOP || doubts_answer(q))) {
        begin_second(g, q);
        return;
    }
    if (q->second != NULL)
        let_out(g, q);
    if (in_reasoning(q))
        q->stats.thought.end = GEN_WHY_STOP;
    if (q->governor != NULL && q->probe_of == NULL && q->q.governor->tell != NULL)
        q->q.governor->tell(q->governor, &q->stats.thought);
    ev.stats = q->stats;

    if (q->probe_of != NULL) {
        gen_end_probe(g, q);
    } else {
        gen_drop_probe(g, q);
        if (q->stream != NULL && q->q.in_parts && !q->q.chat)
            text_stream_leave(q->stream);
        if (q->stream != NULL && q->end_by != GEN_STOP_STRING && q->end_by != GEN_FAILED && flush_text(g, q, &why))
            gen_fail(q, &why);
        if (q->pooled != NULL && q->seq >= 0 && q->end_by == GEN_LENGTH)
            ev.pooled = mean(g, q);
        if (q->memory != NULL && q->seq >= 0) {
            struct gen_mixed *mixed = g->mixed + (size_t)q->seq * GEN_MIXED_MAX;

            ev.n_mixed = q->q.memory->tell(q->memory, mixed);
            ev.mixed = mixed;
        }
        ev.end = q->end_by;
        ev.err = q->why;
        gen_tell_end(&g->out, &ev);
    }
    g->may_admit = true;
    if (q->seq >= 0) {
        g->at[q->seq] = NULL;
        if (q->seq < g->n_seq)
            g->used[q->seq] = ++g->tick;
    }
    gen_request_free(q);
}
