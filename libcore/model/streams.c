/* SPDX-License-Identifier: Apache-2.0 */
/* streams.c - hyper-connections with gates of low rank, and a table of n-grams that adds to the streams.
 *
 * A part of a layer takes the mean of the normalised streams, each column through a gate; its output goes to each
 * stream with a weight of its own. Both depend on the streams.
 *
 * The table's rows are found by hashes of the last tokens and read one by one, from the file or from the host's memory:
 * all of it may be larger than any memory. */
#include <stdio.h>

#include "model/internal.h"
#include "state/state.h"

void model_bind_streams(struct streams_weights *w, const struct arch_plan *p, const char *name, struct binder *b)
{
    const int64_t width = arch_plan_width(p);
    char full[64];

#define NAMED(part) ((void)snprintf(full, sizeof full, "%s_%s.weight", name, part), full)
    w->norm = bind_vec(b, NAMED("norm"), width);
    w->down = bind_mat(b, NAMED("down"), width, p->streams.rank, 1);
    w->up = bind_mat(b, NAMED("up"), p->streams.rank, width, 1);
    if (b->layer >= 0)
        w->inject = bind_mat(b, NAMED("inject"), width, p->streams.n, 1);
#undef NAMED
}

void model_streams_mix(const struct step *s, const struct streams_weights *w, struct tensor y, struct tensor a,
                       struct tensor x)
{
    const struct arch_plan *p = &s->m->plan;
    struct dev *d = s->d;
    size_t mark = dev_mark(d);
    struct tensor in = dev_scratch(d, x.ne[0], x.ne[1]), gate = dev_scratch(d, x.ne[0], x.ne[1]);
    struct tensor low = dev_scratch(d, p->streams.rank, x.ne[1]);

    op_rms_norm(d, in, x, w->norm, x.ne[0], p->n_embd, p->norm_eps);
    model_muls(s, (const struct op_product[]){ { low, w->down }, { a, w->inject } }, w->inject.data != NULL ? 2 : 1,
               in);
    op_silu(d, low, 1.0f / (float)p->streams.n);
    model_mul(s, gate, w->up, low);
    op_streams_mix(d, y, in, gate);
    dev_release(d, mark);
}

void model_bind_table(struct table_weights *w, const struct arch_plan *p, struct binder *b)
{
    const int64_t width = arch_plan_width(p);
    const int layer = b->layer;

    b->layer = -1;
    w->rows = bind_table(b, "per_layer_token_embd.weight", p->table.dim, p->table.rows);
    b->layer = layer;
    w->key = bind_mat(b, "ple_key.weight", p->n_embd, width, 1);
    w->value = bind_mat(b, "ple_value.weight", p->n_embd, p->n_embd, 1);
    w->key_norm = bind_vec(b, "ple_norm_key.weight", width);
    w->query_norm = bind_vec(b, "ple_norm_query.weight", width);
    w->conv_norm = bind_vec(b, "ple_norm_conv.weight", width);
    w->conv = bind_transposed(b, (const char *[]){ "ple_conv1d.weight" }, 1, p->table.taps, width);
}

/* The rows of one token: recent[k] is the token k before it. */
static void find_rows(const struct arch_table_plan *t, const int32_t *recent, int32_t *row)
{
    uint64_t mixed = (uint64_t)recent[0] * t->multiplier[0];
    bool cut = false; /* an end token stands in front */

    for (int n = 1, h = 0; n < t->ngram; n++) {
        cut |= recent[n] == t->end_token;
        mixed ^= (uint64_t)(cut ? t->end_token : recent[n]) * t->multiplier[n];
        for (int i = 0; i < t->heads; i++, h++)
            row[h] = (int32_t)(mixed % (uint64_t)t->size[h] + (uint64_t)t->first[h]);
    }
}

/* The rows of all tokens of the step. */
static void find_all(const struct step *s)
{
    const struct arch_table_plan *t = &s->m->plan.table;
    const struct op_rows *r = s->rows;

    for (int i = 0; i < r->n_seq; i++)
        for (int j = 0; j < r->seq[i].n; j++) {
            const struct op_seq *q = &r->seq[i];
            int32_t recent[ARCH_NGRAM_MAX];

            for (int k = 0; k < t->ngram; k++)
                recent[k] = k <= j           ? r->token[q->row + j - k]
                            : q->pos + j < k ? t->end_token
                                             : state_token(s->state, q->slot, q->pos + j - k);
            find_rows(t, recent, s->table_row + (int64_t)(q->row + j) * (t->ngram - 1) * t->heads);
        }
}

void model_scan_table(const struct step *s, int layer, const struct op_rows *part, const struct state_rec *mem,
                      struct tensor o, struct tensor in)
{
    const struct arch_plan *p = &s->m->plan;
    const int64_t width = arch_plan_width(p);
    const struct op_conv conv = {
        .taps = p->table.taps, .w = s->m->table.conv, .silu = true, .rec = mem->table, .apart = p->table.ngram
    };

    (void)layer;
    op_conv(s->d, o, op_cols(in, in.ne[0] - width, width), &conv, part);
}

void model_add_table(const struct step *s, struct tensor x)
{
    const struct arch_plan *p = &s->m->plan;
    const struct arch_table_plan *t = &p->table;
    const struct table_weights *w = &s->m->table;
    const struct state_rec live = state_live(s->state, t->layer);
    const int64_t n = x.ne[1], width = x.ne[0], heads = (int64_t)(t->ngram - 1) * t->heads;
    struct dev *d = s->d;
    size_t mark = dev_mark(d);
    struct tensor z = dev_scratch(d, p->n_embd, n), value = dev_scratch(d, p->n_embd, n);
    struct tensor key = dev_scratch(d, width, n), query = dev_scratch(d, width, n), in = dev_scratch(d, width, n);
    struct tensor rows = z; /* row by row: each of the heads' side by side */

    rows.ne[0] = rows.stride = t->dim;
    rows.ne[1] = n * heads;
    if (s->rows->token != NULL)
        find_all(s);
    op_embed(d, rows, w->rows, s->table_row, NULL, 1.0f);
    model_muls(s, (const struct op_product[]){ { key, w->key }, { value, w->value } }, 2, z);
    op_rms_norm(d, key, key, w->key_norm, width, p->n_embd, p->norm_eps);
    op_rms_norm(d, query, x, w->query_norm, width, p->n_embd, p->norm_eps);
    op_streams_gate(d, in, key, query, value);
    op_add(d, x, in, 1.0f);
    op_rms_norm(d, in, in, w->conv_norm, width, p->n_embd, p->norm_eps);
    for (int i = 0; i < s->n_part; i++) {
        model_scan_table(s, t->layer, &s->part[i], &live, key, in);
        for (int j = 0; i == 0 && s->n_part == 2 && s->rows->token != NULL && j < s->part[0].n_seq; j++)
            if (s->part[0].seq[j].n > 0)
                state_rebase_table(s->state, t->layer, s->part[0].seq[j].slot);
    }
    op_add(d, x, key, 1.0f);
    dev_release(d, mark);
}
