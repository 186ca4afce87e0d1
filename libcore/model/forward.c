/* SPDX-License-Identifier: Apache-2.0 */
/* forward.c - the walk over the plan. */
#include <stdlib.h>

#include "model/forward.h"
#include "model/internal.h"
#include "quant/quant.h"
#include "state/state.h"

static struct tensor rows_at(float *data, int64_t ne0, int64_t ne1)
{
    return (struct tensor){ .type = QUANT_f32, .ne = { ne0, ne1, 1 }, .stride = ne0, .data = data };
}

/* Copies the residual stream for tests. */
static float *note_hidden(const struct step *s, const struct model_step *st, float *hidden, struct tensor x)
{
    const int64_t n_embd = x.ne[0];

    if (st->hidden == NULL)
        return NULL;
    dev_copy(s->d, hidden + s->first * n_embd, x.data, (size_t)(n_embd * x.ne[1]) * sizeof *hidden);
    return hidden + st->rows->n * n_embd;
}

/* Where the rows after a layer are to stay; data NULL: nowhere. */
static struct tensor tap_of(const struct step *s, const struct model_step *st, int tap, int layer)
{
    const struct model_taps *t = st->taps;
    const int64_t n_embd = s->m->plan.n_embd;
    struct tensor none = { .type = QUANT_f32 };

    if (t == NULL || t->layer[tap] != layer)
        return none;
    return rows_at(t->rows + ((int64_t)tap * t->rows_max + s->first) * n_embd, n_embd, s->rows->n);
}

/* The drafter is on the last device. */
static void keep_taps(const struct step *s, const struct model_step *st, int layer, struct tensor x)
{
    for (int i = 0; st->taps != NULL && i < st->taps->n; i++) {
        struct tensor to = tap_of(s, st, i, layer);

        if (to.data == NULL)
            continue;
        if (s->d == s->m->dev)
            dev_copy(s->d, to.data, x.data, (size_t)(x.ne[0] * x.ne[1]) * sizeof(float));
        else
            dev_pass(s->d, s->m->dev, to, x);
    }
}

typedef void part_fn(const struct step *s, int layer, struct tensor y, struct tensor x);
static const struct {
    enum arch_mixer bit;
    part_fn *run;
} mixers[] = {
    { MIX_ATTN, model_mix_attn }, { MIX_MLA, model_mix_mla },   { MIX_GDN, model_mix_gdn },
    { MIX_KDA, model_mix_kda },   { MIX_SSM1, model_mix_ssm1 }, { MIX_SSM2, model_mix_ssm2 },
    { MIX_CONV, model_mix_conv },
};

/* Attention and feed-forward in front of a recurrent mixer, whose input is returned: x with what they give. */
static struct tensor front(const struct step *s, int i, struct tensor x)
{
    const struct model *m = s->m;
    const struct layer_weights *w = &m->layer[i];
    struct dev *d = s->d;
    int64_t n_embd = x.ne[0], n = x.ne[1];
    struct tensor sum = op_cols(s->beside, 0, n_embd);
    size_t mark = dev_mark(d);
    struct tensor in = dev_scratch(d, 2 * n_embd, n), y = dev_scratch(d, n_embd, n), z = dev_scratch(d, n_embd, n);

    op_heads_pick(d, sum, x, n_embd, n_embd, 0);
    op_rms_norm(d, in, s->beside, w->front_norm, 2 * n_embd, 0, m->plan.norm_eps);
    model_mix_attn(s, i, y, in);
    op_rms_norm(d, z, y, w->ffn_norm, n_embd, 0, m->plan.norm_eps);
    model_ffn_dense(s, i, y, z);
    model_mul(s, z, w->front_mix, y);
    op_add(d, sum, z, 1.0f);
    dev_release(d, mark);
    return sum;
}

/* y = one matrix times the mean of what attention and Mamba give, each normed; twice that. */
static void join(const struct step *s, int i, struct tensor y, struct tensor in)
{
    const struct model *m = s->m;
    const struct layer_weights *w = &m->layer[i];
    struct dev *d = s->d;
    const int64_t inner = m->plan.ssm.inner;
    size_t all = dev_mark(d), mark;
    struct tensor a = dev_scratch(d, inner, in.ne[1]), b = dev_scratch(d, inner, in.ne[1]);

    mark = dev_mark(d);
    model_mix_attn(s, i, a, in);
    dev_release(d, mark);
    model_mix_ssm1(s, i, b, in);
    dev_release(d, mark);
    op_rms_norm(d, a, a, w->join_norm[0], inner, 0, m->plan.norm_eps);
    op_rms_norm(d, b, b, w->join_norm[1], inner, 0, m->plan.norm_eps);
    op_add(d, a, b, 1.0f);
    model_mul(s, y, w->attn.o, a);
    dev_release(d, all);
}

/* Side by side: outputs add up. */
static void run_mixers(const struct step *s, int i, unsigned beside, struct tensor out, struct tensor in)
{
    struct dev *d = s->d;
    bool first = true;

    for (size_t j = 0; j < sizeof mixers / sizeof mixers[0]; j++) {
        size_t mark = dev_mark(d);

        if (!(beside & mixers[j].bit))
            continue;
        struct tensor y = first ? out : dev_scratch(d, out.ne[0], out.ne[1]);
        mixers[j].run(s, i, y, in);
        if (!first)
            op_add(d, out, y, 1.0f);
        first = false;
        dev_release(d, mark);
    }
}

/* The same between hyper-connections. */
static void streams_layer(const struct step *s, int i, struct tensor x)
{
    const struct arch_plan *p = &s->m->plan;
    const struct layer_weights *w = &s->m->layer[i];
    struct dev *d = s->d;
    struct tensor in = dev_scratch(d, p->n_embd, x.ne[1]), out = dev_scratch(d, p->n_embd, x.ne[1]);
    struct tensor a = dev_scratch(d, p->streams.n, x.ne[1]);

    if (arch_plan_has_table(p, i))
        model_add_table(s, x);
    model_streams_mix(s, &w->mix_streams, in, a, x);
    run_mixers(s, i, p->layer[i].mixers, out, in);
    op_streams_add(d, x, out, a);
    model_streams_mix(s, &w->ffn_streams, in, a, x);
    (p->layer[i].ffn == FFN_MOE ? model_ffn_moe : model_ffn_dense)(s, i, out, in);
    op_streams_add(d, x, out, a);
}

void model_layer(const struct step *s, int i, struct tensor x)
{
    const struct model *m = s->m;
    const struct arch_layer_plan *l = &m->plan.layer[i];
    struct dev *d = s->d;

    if (m->plan.streams.n > 1) {
        streams_layer(s, i, x);
        return;
    }
    struct tensor in = dev_scratch(d, x.ne[0], x.ne[1]), out = dev_scratch(d, x.ne[0], x.ne[1]);
    const bool fronted = m->plan.front && l->ffn != FFN_NONE;

    if (l->mixers != 0) {
        op_rms_norm(d, in, fronted ? front(s, i, x) : x, m->layer[i].mix_norm, x.ne[0], 0, m->plan.norm_eps);
        if (m->plan.joined)
            join(s, i, out, in);
        else
            run_mixers(s, i, fronted ? l->mixers & ~(unsigned)MIX_ATTN : l->mixers, out, in);
        op_add(d, x, out, m->plan.joined ? 0.5f : m->plan.residual_scale);
    }
    if (l->ffn == FFN_NONE || fronted)
        return;
    op_rms_norm(d, in, x, m->layer[i].ffn_norm, x.ne[0], 0, m->plan.norm_eps);
    (l->ffn == FFN_MOE ? model_ffn_moe : model_ffn_dense)(s, i, out, in);
    op_add(d, x, out, m->plan.residual_scale);
}

/* The rows that the head multiplies. */
static void final_rows(const struct step *s, struct tensor y, struct tensor x)
{
    const struct model *m = s->m;

    if (m->plan.streams.n > 1)
        model_streams_mix(s, &m->out_streams, y, (struct tensor){ .type = QUANT_f32 }, x);
    else
        op_rms_norm(s->d, y, x, m->out_norm, x.ne[0], 0, m->plan.norm_eps);
}

/* All rows, in their order. */
static bool picks_all(const struct model_step *st)
{
    int i = 0;

    while (st->pick != NULL && i < st->n_pick && st->pick[i] == i)
        i++;
    return i == st->rows->n;
}

/* What stands beside the residual stream goes with it; only the second half is read there. */
static void pass_beside(struct step *s, struct dev *to)
{
    const int64_t n_embd = s->m->plan.n_embd, n = s->beside.ne[1];
    const size_t mark = dev_mark(s->d);
    struct tensor from = dev_scratch(s->d, n_embd, n), beside = dev_scratch(to, 2 * n_embd, n);
    struct tensor there = dev_scratch(to, n_embd, n);

    op_heads_pick(s->d, from, op_cols(s->beside, n_embd, n_embd), n_embd, n_embd, 0);
    dev_pass(s->d, to, there, from);
    op_heads_pick(to, op_cols(beside, n_embd, n_embd), there, n_embd, n_embd, 0);
    s->beside = beside;
    dev_release(s->d, mark);
}

/* The step goes on where the layer is; x there. */
static struct tensor go_to(struct step *s, int layer, struct tensor x)
{
    struct dev *to = model_dev_of(s->m, layer);

    if (to == s->d)
        return x;
    struct tensor y = dev_scratch(to, x.ne[0], x.ne[1]);

    dev_pass(s->d, to, y, x);
    if (s->m->plan.front)
        pass_beside(s, to);
    s->d = to;
    return y;
}

/* Devices that record get a first part of their layers early. */
static bool is_early(const struct model *m, int layer)
{
    const int *first = m->first + m->on[layer];

    return layer == first[0] + (first[1] - first[0] - 1) / 10;
}

/* x: the rows after the last layer, there. False: the step was given up. */
static bool walk_layers(struct step *s, const struct model_step *st, struct tensor *out)
{
    const struct model *m = s->m;
    struct dev *d = s->d = m->part[0];
    const int64_t n = s->rows->n, n_embd = m->plan.n_embd, width = arch_plan_width(&m->plan);
    struct tensor x = dev_scratch(d, width, n);
    float *hidden = st->hidden;

    op_embed(d, op_cols(x, 0, n_embd), m->embd, s->rows->token, NULL, m->plan.embd_scale);
    if (s->adapt != NULL)
        model_adapt_embd(s, op_cols(x, 0, n_embd), s->rows->token);
    for (int j = 1; j < m->plan.streams.n; j++)
        op_heads_pick(d, op_cols(x, j * n_embd, n_embd), x, n_embd, n_embd, 0);
    if (m->plan.front) {
        s->beside = dev_scratch(d, 2 * n_embd, n);
        op_heads_pick(d, op_cols(s->beside, n_embd, n_embd), x, n_embd, n_embd, 0);
    }
    hidden = note_hidden(s, st, hidden, x);
    for (int i = 0; i < m->plan.n_layer; i++) {
        if (dev_stopped(d))
            return false;
        x = go_to(s, i, x);
        d = s->d;
        const size_t mark = dev_mark(d);

        model_layer(s, i, x);
        hidden = note_hidden(s, st, hidden, x);
        keep_taps(s, st, i, x);
        dev_release(d, mark);
        if (is_early(m, i))
            dev_submit(d);
    }
    const size_t mark = dev_mark(d);
    if (st->hidden != NULL) {
        struct tensor last = dev_scratch(d, n_embd, n);

        final_rows(s, last, x);
        (void)note_hidden(s, st, hidden, last);
    }
    for (int i = 0; st->taps != NULL && i < st->taps->n; i++) {
        struct tensor to = tap_of(s, st, i, m->plan.n_layer);

        if (to.data != NULL)
            final_rows(s, to, x);
    }
    dev_release(d, mark);
    *out = x;
    return !dev_stopped(d);
}

/* Logits of the rows x, and what is to be found in them. */
static void head(const struct step *s, const struct model_step *st, struct tensor x)
{
    const struct model *m = s->m;
    struct dev *d = s->d;
    struct step picked = *s; /* whose rows have other lists of adapters */
    struct model_adapt adapt = { 0 };
    struct tensor last = dev_scratch(d, m->plan.n_embd, x.ne[1]);

    if (s->adapt != NULL) {
        adapt = (struct model_adapt){ s->adapt->of, s->adapt->picked, s->adapt->picked };
        picked.adapt = &adapt;
    }
    final_rows(&picked, last, x);
    struct tensor logits = rows_at(st->logits, m->plan.n_vocab, st->n_pick);
    op_matmul(d, logits, m->head, last);
    if (s->adapt != NULL)
        model_adapt(s, &s->adapt->picked, &(struct op_product){ logits, m->head }, 1, last);
    if (m->plan.logit_scale != 1.0f)
        op_scale(d, logits, m->plan.logit_scale);
    if (st->top != NULL)
        op_top(d, st->digest, logits, st->top);
    if (st->answer != NULL)
        dev_fetch(d, st->answer, st->digest, (size_t)st->n_pick * op_top_bytes(st->top));
}

/* Where rows can be undone, all that recurrent layers are not to take into their base are logged, and they take the
 * rows of long sequences in two parts: see struct step. */
static void cut_parts(struct step *s, struct op_seq *seq)
{
    const struct op_rows *r = s->rows;
    int undo = state_undo_tokens(s->state);
    struct op_seq *rest = seq + r->n_seq;

    s->n_part = 1;
    s->part[0] = *r;
    for (int i = 0; undo > 0 && i < r->n_seq; i++) {
        int certain = r->seq[i].n - r->seq[i].drafts, first = certain > undo ? certain - undo : 0;

        seq[i] = rest[i] = r->seq[i];
        seq[i].n = first;
        seq[i].drafts = seq[i].logged = 0;
        rest[i].row += first;
        rest[i].pos += first;
        rest[i].n = rest[i].logged = r->seq[i].n - first;
        (first > 0 ? rest : seq)[i].again = 0;
        s->n_part = first > 0 ? 2 : s->n_part;
    }
    if (undo == 0)
        return;
    s->part[0].seq = s->n_part == 2 ? seq : rest;
    s->part[1] = *r;
    s->part[1].seq = rest;
}

static void may_stop(const struct model *m, bool (*stop)(void))
{
    for (int i = 0; i < m->n_dev; i++)
        dev_may_stop(m->part[i], stop);
}

/* ---- pieces ----
 *
 * With several devices a long step goes through them in pieces, so that one device has the next piece while another
 * one has this. Bytes do not depend on it: it is as if there were a step for each. */

/* Rows of a piece, of which a GPU needs many to be quick. */
static int piece_rows(const struct model *m, int n)
{
#ifdef CHIMERE_TEST
    const int least = 1;
#else
    const int least = dev_is_host(m->dev) ? 1 : 1024;
#endif
    const int n_piece = m->n_dev == 1 ? 1 : MODEL_DEV_PIECES * m->n_dev, each = (n + n_piece - 1) / n_piece;

    return each > least ? each : least;
}

/* Where a piece ends that begins at a row: a sequence's drafts stay together, with the row before them. */
static int piece_end(const struct op_rows *r, int from, int most)
{
    int end = r->n - from > most ? from + most : r->n;

    for (int i = 0; i < r->n_seq; i++) {
        const struct op_seq *q = &r->seq[i];
        const int all = q->row + q->n, certain = all - q->drafts;
        const int whole = certain > q->row ? certain - 1 : q->row; /* from here on */

        if (end > q->row && end >= certain && end < all)
            end = whole > from ? whole : all;
    }
    return end;
}

/* The step's rows from .. end - 1, of sequences in seq. */
static struct op_rows piece_of(const struct step *s, const struct op_rows *r, struct op_seq *seq, int from, int end)
{
    struct op_rows piece = { end - from, r->token, r->pos, 0, seq };

    if (r->token != NULL) {
        piece.token += from;
        piece.pos += from;
    }
    for (int i = 0; i < r->n_seq; i++) {
        const struct op_seq *q = &r->seq[i];
        const int a = q->row > from ? q->row : from, b = q->row + q->n < end ? q->row + q->n : end;

        if (a >= b)
            continue;
        struct op_seq some = *q;
        some.row = a - from;
        some.n = b - a;
        some.drafts = some.logged = b == q->row + q->n ? q->drafts : 0;
        if (r->token != NULL) {
            some.pos = state_row(s->state, q->slot);
            some.again = state_again(s->state, q->slot);
        }
        seq[piece.n_seq++] = some;
    }
    return piece;
}

/* Walks with the rows of a piece; x: after the last layer. */
static bool walk_piece(struct step *s, const struct model_step *st, const struct op_rows *rows, struct tensor *x)
{
    s->rows = rows;
    if (rows->token == NULL) {
        s->n_part = 2;
        s->part[0] = s->part[1] = *rows;
        return walk_layers(s, st, x);
    }
    model_fold(s);
    for (int i = 0; i < rows->n_seq; i++)
        state_prepare(s->state, rows->seq[i].slot, rows->seq[i].n);
    cut_parts(s, st->parts);
    if (!walk_layers(s, st, x))
        return false;
    for (int i = 0; s->m->plan.table.ngram > 0 && i < rows->n_seq; i++)
        state_note_tokens(s->state, rows->seq[i].slot, rows->token + rows->seq[i].row, rows->seq[i].n);
    for (int i = 0; i < rows->n_seq; i++)
        state_advance(s->state, rows->seq[i].slot, rows->seq[i].n, rows->seq[i].drafts);
    return true;
}

/* The lists of the rows from one on. */
static struct model_adapt adapt_from(const struct model_adapt *a, int row)
{
    struct model_adapt from = *a;

    if (from.rows.which != NULL) {
        from.rows.which += (int64_t)row * from.rows.max;
        from.rows.scale += (int64_t)row * from.rows.max;
    }
    return from;
}

/* In pieces of `most` rows; x: all rows whose logits are wanted. seq: room for the step's sequences. */
static bool walk_pieces(struct step *s, const struct model_step *st, struct op_seq *seq, int most, struct tensor *x)
{
    const struct model *m = s->m;
    const struct model_adapt *adapt = s->adapt;
    const int64_t width = arch_plan_width(&m->plan);
    const int n = st->rows->n;

    *x = dev_scratch(m->dev, width, st->n_pick);
    for (int from = 0, end, picked = 0, first; from < n; from = end) {
        size_t mark[DEV_LIST_MAX];
        struct model_adapt some;
        struct tensor y;

        end = piece_end(st->rows, from, most);
        const struct op_rows rows = piece_of(s, st->rows, seq, from, end);
        for (int i = 0; i < m->n_dev; i++)
            mark[i] = dev_mark(m->part[i]);
        if (adapt != NULL) {
            some = adapt_from(adapt, from);
            s->adapt = &some;
        }
        s->first = from;
        const bool whole = walk_piece(s, st, &rows, &y);
        s->adapt = adapt;
        if (!whole)
            return false;
        for (first = picked; picked < st->n_pick && (st->pick == NULL || st->pick[picked] < end); picked++)
            if (st->pick != NULL)
                st->pick_here[picked] = st->pick[picked] - from;
        if (picked > first)
            op_rows_pick(s->d, rows_at((float *)x->data + first * width, width, picked - first), y,
                         st->pick == NULL ? NULL : st->pick_here + first);
        for (int i = 0; i < m->n_dev; i++)
            dev_release(m->part[i], mark[i]);
        dev_submit(m->dev);
    }
    return true;
}

/* What a step does between the beginning and the end of all devices. False: it was given up. */
static bool walk(struct step *s, const struct model_step *st, struct op_seq *seq, int most)
{
    struct tensor x;

    if (st->rows->n > most) {
        if (!walk_pieces(s, st, seq, most, &x))
            return false;
    } else {
        if (!walk_piece(s, st, st->rows, &x))
            return false;
        if (st->n_pick > 0 && !picks_all(st)) {
            struct tensor some = dev_scratch(s->d, x.ne[0], st->n_pick);

            op_rows_pick(s->d, some, x, st->pick);
            x = some;
        }
    }
    if (st->n_pick > 0)
        head(s, st, x);
    return !dev_stopped(s->d);
}

enum err_code model_forward(const struct model *m, struct state *s, const struct model_step *st, struct err *e)
{
    struct step step = { .m = m,
                         .state = s,
                         .choice = st->parts + 2 * (int64_t)st->rows->n_seq,
                         .table_row = st->table_row,
                         .adapt = st->adapt };

    model_begin(m, st->lane);
    may_stop(m, st->stop);
    const bool whole = walk(&step, st, st->parts + 4 * (int64_t)st->rows->n_seq,
                            st->lane > 0 ? st->rows->n : piece_rows(m, st->rows->n));
    may_stop(m, NULL);
    if ((st->lane > 0 ? model_launch(m, e) : model_end(m, e)) != ERR_OK)
        return e->code;
    return whole ? ERR_OK : err_set(e, ERR_CANCEL, "interrupted");
}

/* The memory that a step of n rows of n_seq sequences takes in pieces of `most`; the first has all but one of the
 * others each, and ends where the context does. seq: room for twice as many. */
static void measure_step(struct step *step, struct op_seq *seq, int lane, int n_seq, int n, int most, int n_pick)
{
    int64_t ctx = state_ctx(step->state), first = n - n_seq + 1;
    const struct op_rows r = { n, NULL, NULL, n_seq, seq };
    const uint32_t *const mask[1] = { NULL };
    const struct op_top top = { .k = 1, .mask = mask };
    const struct model_step st = { .rows = &r, .n_pick = n_pick, .top = dev_is_host(step->m->dev) ? NULL : &top };

    for (int i = 0; i < n_seq; i++)
        seq[i] = (struct op_seq){ .row = i == 0 ? 0 : (int)first + i - 1, .n = 1 };
    seq[0].n = (int)first;
    seq[0].pos = ctx > first ? ctx - first : 0;
    model_begin(step->m, lane);
    (void)walk(step, &st, seq + n_seq, most);
}

/* Rows that are computed again take room by sequence. */
static void measure_both(struct step *step, struct op_seq *seq, int lane, int n, int most, int n_pick)
{
    int n_seq = state_slots(step->state);

    measure_step(step, seq, lane, 1, n, most, n_pick);
    if (n_seq > 1 && n > 1 && state_log_rows(step->state) > 0)
        measure_step(step, seq, lane, n_seq < n ? n_seq : n, n, most, n_pick);
}

static void measure_all(const struct model *m, bool on)
{
    for (int i = 0; i < m->n_dev; i++)
        dev_measure(m->part[i], on);
    if (m->host != NULL)
        dev_measure(m->host, on);
}

static enum err_code open_lanes(const struct model *m, int n, struct err *e)
{
    for (int i = 0; i < m->n_dev && n > 0; i++)
        if (dev_lanes(m->part[i], n, e))
            return e->code;
    return ERR_OK;
}

enum err_code model_reserve(const struct model *m, struct state *s, const struct model_sizes *most, struct err *e)
{
    /* Small steps may take more than large ones, as kernels share work otherwise; drafts make a piece longer. */
    enum { EACH = 64 };
    const int rows = most->rows, logits = most->logits, piece = piece_rows(m, rows);
    const struct op_terms terms = { .max = 1, .floats = most->adapt_rank };
    const struct model_adapt adapt = { NULL, terms, terms };
    struct step step = { .m = m, .state = s, .adapt = most->adapt_rank > 0 ? &adapt : NULL };
    struct op_seq *seq = calloc(2 * (size_t)state_slots(s), sizeof *seq);

    if (seq == NULL)
        return err_nomem(e);
    if (open_lanes(m, most->lanes, e)) {
        free(seq);
        return e->code;
    }
    measure_all(m, true);
    for (int n = 1; n < rows && (n < piece || n <= 2 * EACH); n += n < EACH ? 1 : n)
        measure_both(&step, seq, 0, n, n, n < logits ? n : logits);
    measure_both(&step, seq, 0, rows, piece, logits);
    for (int lane = 1; lane <= most->lanes; lane++)
        measure_both(&step, seq, lane, most->lane_rows, most->lane_rows, most->lane_logits);
    model_begin(m, 0);
    model_replay_measure(&step);
    free(seq);
    measure_all(m, false);
    if (m->host != NULL && dev_reserve(m->host, dev_scratch_peak(m->host), e))
        return e->code;
    for (int i = 0; i < m->n_dev; i++)
        if (dev_reserve(m->part[i], dev_scratch_peak(m->part[i]), e))
            return e->code;
    return ERR_OK;
}
