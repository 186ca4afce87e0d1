/* SPDX-License-Identifier: Apache-2.0 */
/* recurrent.c - recurrent layers that can be undone.
 *
 * A sequence's live memory is its base plus the logged rows since. Undo copies the base and computes the
 * rows that stay again, from their inputs only (convolution and scan; no weights are read). A row's
 * bytes do not depend on how rows are cut into steps, so what is computed again is what was there.
 * A log holds 2 U rows: when it would overflow, its oldest rows are folded into the base until U are
 * left, so each row is folded once. A step of more than U rows moves the base on its way instead. */
#include "model/forward.h"
#include "model/internal.h"
#include "state/state.h"

static model_scan_fn *scan_of(unsigned mixers)
{
    return mixers & MIX_GDN ? model_scan_gdn
         : mixers & MIX_KDA ? model_scan_kda
         : mixers & MIX_SSM1 ? model_scan_ssm1
         : mixers & MIX_SSM2 ? model_scan_ssm2
         : mixers & MIX_CONV ? model_scan_conv
                             : NULL;
}

void model_part_done(const struct step *s, int layer, int part, bool conv, bool rec)
{
    for (int i = 0; part == 0 && s->n_part == 2 && s->rows->token != NULL && i < s->part[0].n_seq; i++)
        state_rebase(s->state, layer, s->part[0].seq[i].slot, conv, rec);
}

void model_log(const struct step *s, int layer, struct tensor in)
{
    int undo = state_undo_tokens(s->state);

    for (int i = 0; undo > 0 && i < s->rows->n_seq; i++) {
        const struct op_seq *q = &s->rows->seq[i];
        int n = q->n < undo ? q->n : undo;
        int at = q->n > undo ? 0 : state_logged(s->state, q->slot);

        op_heads_pick(s->d, state_log(s->state, layer, q->slot, at, n), op_slice(in, q->row + q->n - n, n),
                      in.ne[0], in.ne[0], 0);
    }
}

void model_scan(const struct step *s, int layer, model_scan_fn *scan, struct tensor o, struct tensor in)
{
    const struct state_rec live = state_live(s->state, layer);

    for (int part = 0; part < s->n_part; part++) {
        size_t mark = dev_mark(s->d);

        scan(s, layer, &s->part[part], &live, o, in);
        model_part_done(s, layer, part, true, true);
        dev_release(s->d, mark);
    }
    model_log(s, layer, in);
}

void model_replay(const struct step *s, int slot, int n, bool on_base)
{
    const struct op_seq seq = { .n = n, .slot = slot };
    const struct op_rows rows = { .n = n, .n_seq = 1, .seq = &seq };

    for (int i = 0; n > 0 && i < s->m->plan.n_layer; i++) {
        model_scan_fn *scan = scan_of(s->m->plan.layer[i].mixers);
        size_t mark = dev_mark(s->d);

        if (scan == NULL)
            continue;
        const struct state_rec mem = on_base ? state_base(s->state, i) : state_live(s->state, i);
        scan(s, i, &rows, &mem, dev_scratch(s->d, plan_scan_floats(&s->m->plan, i), n),
             state_log(s->state, i, slot, 0, n));
        dev_release(s->d, mark);
    }
}

void model_fold(const struct step *s)
{
    int undo = state_undo_tokens(s->state);

    for (int i = 0; undo > 0 && i < s->rows->n_seq; i++) {
        const struct op_seq *q = &s->rows->seq[i];
        int logged = state_logged(s->state, q->slot);

        if (q->n > undo || logged + q->n <= 2 * undo)
            continue;
        model_replay(s, q->slot, logged + q->n - undo, true);
        state_folded(s->state, q->slot, logged + q->n - undo);
    }
}

enum err_code model_undo(const struct model *m, struct state *s, int slot, int64_t n, struct err *e)
{
    const struct step step = { .m = m, .d = m->dev, .state = s };

    if (n == 0)
        return ERR_OK;
    dev_begin(m->dev);
    state_rewind(s, slot, n);
    if (state_undo_tokens(s) > 0)
        model_replay(&step, slot, state_logged(s, slot), false);
    return dev_end(m->dev, e);
}
