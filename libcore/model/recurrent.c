/* SPDX-License-Identifier: Apache-2.0 */
/* recurrent.c - recurrent layers that can be undone.
 *
 * The live blocks of a sequence do not take in draft rows, whose inputs are logged; the next step's scans first
 * compute again those that were kept (struct op_log), so nothing is done when it is settled. With undo_tokens = U all
 * rows are logged, and a base some rows behind is kept: undo copies it and computes the rows that stay again, from
 * their inputs only (convolution and scan; no weights are read). A row's bytes do not depend on how rows are cut into
 * steps, so what is computed again is what was there.
 * When the log would overflow, its oldest rows are folded into the base until U are left, so each row is folded
 * once. A step of more than U rows moves the base on its way instead. */
#include "model/forward.h"
#include "model/internal.h"
#include "state/state.h"

static model_scan_fn *scan_of(unsigned mixers)
{
    return mixers & MIX_GDN    ? model_scan_gdn
           : mixers & MIX_KDA  ? model_scan_kda
           : mixers & MIX_SSM1 ? model_scan_ssm1
           : mixers & MIX_SSM2 ? model_scan_ssm2
           : mixers & MIX_CONV ? model_scan_conv
                               : NULL;
}

void model_part_done(const struct step *s, int layer, int part, bool conv, bool rec)
{
    for (int i = 0; part == 0 && s->n_part == 2 && s->rows->token != NULL && i < s->part[0].n_seq; i++)
        if (s->part[0].seq[i].n > 0)
            state_rebase(s->state, layer, s->part[0].seq[i].slot, conv, rec);
}

struct tensor model_mixed(const struct step *s, const struct op_rec *conv, const struct op_rows *part, int64_t channels)
{
    return dev_scratch(s->d, channels, part->n + op_again_rows(conv, part));
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
}

/* The n rows before position pos of a slot, on its live blocks or on its base. */
static void replay_rows(const struct step *s, int slot, int64_t pos, int n, bool on_base)
{
    const struct op_seq seq = { .slot = slot, .pos = pos, .again = n };
    const struct op_rows rows = { .n_seq = 1, .seq = &seq };
    struct step step = *s;

    s = &step;
    for (int i = 0; n > 0 && i < s->m->plan.n_layer; i++) {
        model_scan_fn *scan = scan_of(s->m->plan.layer[i].mixers);

        if (scan == NULL)
            continue;
        step.d = model_dev_of(s->m, i);
        const size_t mark = dev_mark(s->d);
        struct state_rec mem = on_base ? state_base(s->state, i) : state_live(s->state, i);
        mem.conv.log.most = mem.rec.log.most = mem.table.log.most = state_log_rows(s->state);
        struct tensor in = dev_scratch(s->d, arch_plan_input_floats(&s->m->plan, i), 0);

        if (arch_plan_has_table(&s->m->plan, i))
            model_scan_table(s, i, &rows, &mem, dev_scratch(s->d, arch_plan_width(&s->m->plan), 0), in);
        scan(s, i, &rows, &mem, dev_scratch(s->d, arch_plan_scan_floats(&s->m->plan, i), 0), in);
        dev_release(s->d, mark);
    }
}

void model_replay_measure(const struct step *s)
{
    replay_rows(s, 0, state_log_rows(s->state), state_log_rows(s->state), false);
}

void model_fold(const struct step *s)
{
    int undo = state_undo_tokens(s->state);

    for (int i = 0; undo > 0 && i < s->rows->n_seq; i++) {
        const struct op_seq *q = &s->rows->seq[i];
        int logged = state_logged(s->state, q->slot), n = logged + q->n - q->drafts - undo;

        if (q->n - q->drafts > undo || logged + q->n <= state_log_rows(s->state))
            continue;
        replay_rows(s, q->slot, q->pos - logged + n, n, true);
        state_folded(s->state, q->slot, n);
    }
}

static void commit_rows(const struct step *s, int slot)
{
    replay_rows(s, slot, state_row(s->state, slot), state_again(s->state, slot), false);
    state_committed(s->state, slot);
}

enum err_code model_commit(const struct model *m, struct state *s, int slot, struct err *e)
{
    const struct step step = { .m = m, .state = s };

    if (state_again(s, slot) == 0)
        return ERR_OK;
    model_begin(m, 0);
    commit_rows(&step, slot);
    return model_end(m, e);
}

enum err_code model_undo(const struct model *m, struct state *s, int slot, int64_t n, struct err *e)
{
    const struct step step = { .m = m, .state = s };

    if (n <= state_again(s, slot) || !state_recurrent(s)) {
        state_settle(s, slot, n);
        return ERR_OK;
    }
    model_begin(m, 0);
    state_rewind(s, slot, n);
    commit_rows(&step, slot);
    return model_end(m, e);
}
