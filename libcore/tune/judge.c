/* SPDX-License-Identifier: Apache-2.0 */
/* judge.c - what an adapter knows before and after: the tests, and the gate that decides. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "adapt/adapt.h"
#include "train/files.h"
#include "train/gate.h"
#include "tune/job.h"
#include "tune/lora.h"

#define STRENGTH_LEAST 0.7
#define TEST_SHARE     0.05 /* of the time, at most, for a test; with what tune_limit_s() leaves a fifth for all */
#define NEW_SHARE      0.4  /* of the items of a test, at least, are new ones, as far as there are */

struct test {
    const struct tune_items *s;
    struct tune_score *score;
    int64_t first;        /* item of sequence 0 */
    unsigned char *wrong; /* [rows' items] set by any thread */
};

static double judge_row(void *ctx, int seq, int row, float *logits, int32_t n)
{
    const struct test *t = ctx;
    const int32_t want = t->s->v[t->first + seq].target[row];
    int32_t best = 0;
    double sum = 0.0;

    for (int32_t i = 1; i < n; i++)
        best = logits[i] > logits[best] ? i : best;
    for (int32_t i = 0; i < n; i++)
        sum += exp((double)logits[i] - (double)logits[best]);
    if (best != want)
        __atomic_store_n(&t->wrong[seq], 1, __ATOMIC_RELAXED);
    return log(sum) + (double)logits[best] - (double)logits[want];
}

/* Scores of a set with an adapter; NULL: the bare model's. */
static enum err_code test_set(struct tune_job *j, const struct tune_items *s, const struct tune_lora *l,
                              struct tune_score *score, struct err *e)
{
    enum { MANY = 64 };
    struct grad_seq seq[MANY];
    struct grad_adapter *a = l == NULL ? NULL : calloc((size_t)l->n, sizeof *a);
    unsigned char wrong[MANY];
    double loss[MANY], sum;
    struct test t = { s, score, 0, wrong };
    int n;

    if (l != NULL && a == NULL)
        return err_nomem(e);
    e->code = ERR_OK;
    for (; t.first < s->n && e->code == ERR_OK; t.first += n) {
        n = tune_fitting(j, s, t.first, seq, MANY);
        memset(wrong, 0, sizeof wrong);
        if (l != NULL)
            tune_lora_at(l, l->theta, NULL, 0, n, a);
        if (tune_tick(j, TUNE_TESTING, t.first, s->n, e) == ERR_OK &&
            grad_forward(j->g,
                         &(struct grad_batch){ .seq = seq,
                                               .n_seq = n,
                                               .adapter = a,
                                               .n_adapter = l == NULL ? 0 : l->n,
                                               .loss = judge_row,
                                               .loss_ctx = &t,
                                               .seq_loss = loss },
                         &sum, e) == ERR_OK)
            for (int i = 0; i < n; i++) {
                score[t.first + i] = (struct tune_score){ loss[i] / s->v[t.first + i].n_answer, !wrong[i] };
                if (!isfinite(loss[i]))
                    err_set(e, ERR_FORMAT, "test: the loss is not a number%s",
                            l == NULL ? "" : ": a smaller --rate or --alpha may help");
            }
    }
    free(a);
    return e->code;
}

/* Seconds for an item, by the first few. */
static enum err_code time_test(struct tune_job *j, double *each_s, struct err *e)
{
    enum { SOME = 8 };
    struct tune_items some = j->data.tests;
    struct tune_score score[SOME];
    const double from = tune_now_ms(j);

    some.n = some.n < SOME ? some.n : SOME;
    if (test_set(j, &some, j->begin.champion, score, e))
        return e->code;
    *each_s = (tune_now_ms(j) - from) / 1e3 / (double)some.n;
    return ERR_OK;
}

/* Scores of the tests and of what is kept, with an adapter; NULL: the bare model's. */
static enum err_code test_all(struct tune_job *j, const struct tune_lora *l, struct tune_score *const score[2],
                              struct err *e)
{
    return test_set(j, &j->data.tests, l, score[0], e) || test_set(j, &j->data.kept, l, score[1], e) ? e->code : ERR_OK;
}

/* A test takes TEST_SHARE of the time at most; fewer items are tested on where that is too short. */
static enum err_code fit_tests(struct tune_job *j, struct err *e)
{
    const int64_t all = j->data.tests.n + j->data.kept.n;
    double each_s = 0, most, part;
    int64_t n;

    if (time_test(j, &each_s, e))
        return e->code;
    most = TEST_SHARE * j->o->time_s / each_s;
    if (most >= (double)all)
        return ERR_OK;
    part = (double)j->data.tests.n / (double)all;
    n = (int64_t)(most * (part > NEW_SHARE ? part : NEW_SHARE));
    tune_items_thin(&j->data.tests, n > TUNE_LEAST_TESTS ? n : TUNE_LEAST_TESTS, false);
    n = (int64_t)most - j->data.tests.n;
    tune_items_thin(&j->data.kept, n > TUNE_LEAST_TESTS ? n : TUNE_LEAST_TESTS, false);
    tune_note(j, true, "%" PRId64 " of %" PRId64 " items are tested on: the time is too short for more",
              j->data.tests.n + j->data.kept.n, all);
    return ERR_OK;
}

/* ---- the gate ---- */

enum { ALL = -1, SMALL = -2 }; /* sets of what is kept: every one; those that are judged together */

static bool is_of_set(const struct tune_job *j, int which, int64_t i, int set)
{
    const int of = which == 0 ? 0 : j->data.kept.v[i].set;

    return which == 0 || set == ALL || (set == SMALL ? j->report.outcome[1 + of].ruling == TUNE_POOLED : of == set);
}

/* Whose loss counts: what is to be learnt; of what is to be kept, what --keep names; of sets texts and what was known,
 * as the rest may be what is learnt. */
static bool loss_counts(const struct tune_job *j, int which, int64_t i)
{
    return which == 0 || (j->o->keep_named && !j->o->keep_tests_named) || j->report.before[1][i].exact ||
           (j->o->keep_tests_named && j->data.kept.v[i].is_text);
}

static void count_answer(struct tune_outcome *r, const struct tune_item *item, bool was, bool is)
{
    r->n++;
    r->exact[0] += was;
    r->exact[1] += is;
    r->lost += was && !is;
    r->won += is && !was;
    r->n_thinks += item->thinks;
    r->exact_thinks[0] += item->thinks && was;
    r->exact_thinks[1] += item->thinks && is;
}

/* The items of a set. p: of their losses having fallen (more: not having risen by as much as that). */
static enum err_code outcome_of(const struct tune_job *j, int which, int set, double more, struct tune_outcome *r,
                                struct err *e)
{
    const struct tune_items *s = which == 0 ? &j->data.tests : &j->data.kept;
    double *gain = calloc((size_t)s->n + 1, sizeof *gain);

    *r = (struct tune_outcome){ .set = r->set };
    if (gain == NULL)
        return err_nomem(e);
    for (int64_t i = 0; i < s->n; i++) {
        const struct tune_score *was = &j->report.before[which][i], *is = &j->report.after[which][i];

        if (!is_of_set(j, which, i, set))
            continue;
        count_answer(r, &s->v[i], was->exact, is->exact);
        if (!loss_counts(j, which, i))
            continue;
        gain[r->counts++] = was->loss + more - is->loss;
        r->loss[0] += was->loss;
        r->loss[1] += is->loss;
    }
    for (int k = 0; k < 2; k++)
        r->loss[k] /= r->counts > 0 ? (double)r->counts : 1;
    r->p = r->counts < TUNE_LEAST_TESTS ? NAN : train_gate(gain, r->counts, (uint64_t)j->o->seed);
    r->bound = r->n > 0 ? train_loss_bound(r->lost, r->won, r->n) : NAN;
    free(gain);
    return ERR_OK;
}

/* alone: no other sets can be judged together with it. */
static enum tune_ruling rule(const struct tune_job *j, const struct tune_outcome *r, bool alone)
{
    if (!j->o->forget_given && r->n >= TUNE_LEAST_COUNTED && r->exact[0] >= TUNE_LEAST_KNOWN)
        return TUNE_BY_ANSWERS;
    if (!alone && !j->o->forget_given)
        return TUNE_POOLED;
    return isnan(r->p) ? TUNE_UNTESTED : TUNE_BY_LIKELIHOOD;
}

static enum err_code judge_kept(const struct tune_job *j, int set, bool alone, struct tune_outcome *r,
                                struct tune_verdict *v, struct err *e)
{
    if (outcome_of(j, 1, set, (double)j->o->forget, r, e))
        return e->code;
    r->ruling = rule(j, r, alone);
    r->keeps = r->ruling == TUNE_BY_ANSWERS ? r->bound <= (double)j->o->margin
                                            : r->ruling != TUNE_BY_LIKELIHOOD || r->p < TUNE_P_MAX;
    if (r->ruling == TUNE_BY_ANSWERS)
        v->bound = fmax(v->bound, r->bound); /* of a number and NaN the number */
    if (r->ruling == TUNE_BY_LIKELIHOOD)
        v->p_kept = fmax(v->p_kept, r->p);
    v->keeps = v->keeps && r->keeps;
    return ERR_OK;
}

static void warn_untested(const struct tune_job *j)
{
    const int n_set = j->data.kept.n_set > 1 ? j->data.kept.n_set : 1;
    int64_t most = 0;

    for (int set = 0; set < n_set; set++) {
        int64_t n = 0;

        for (int64_t i = 0; i < j->data.kept.n; i++)
            n += is_of_set(j, 1, i, n_set > 1 ? set : -1) && loss_counts(j, 1, i);
        most = n > most ? n : most;
    }
    if (most < TUNE_LEAST_TESTS)
        tune_note(j, true, "what is forgotten is not tested, as %s: --keep names a file of what the model knows",
                  j->data.kept.n == 0 ? "there are no task sets"
                                      : "the model answers fewer than five items of each set exactly");
}

enum err_code tune_test_before(struct tune_job *j, struct err *e)
{
    double from;

    if (fit_tests(j, e))
        return e->code;
    from = tune_now_ms(j);
    if (test_all(j, j->begin.champion, j->report.before, e))
        return e->code;
    j->report.test_s = (tune_now_ms(j) - from) / 1e3;
    warn_untested(j);
    return ERR_OK;
}

/* More exact answers that an adapter has to give to what is held out: a share of those that were not exact. Texts have
 * no answers. */
static int64_t answers_wanted(const struct tune_job *j)
{
    int64_t questions = 0, open = 0, n;

    for (int64_t i = 0; i < j->data.tests.n; i++) {
        questions += !j->data.tests.v[i].is_text;
        open += !j->data.tests.v[i].is_text && !j->report.before[0][i].exact;
    }
    n = (int64_t)ceil(TUNE_GAIN * (double)open);
    return j->o->accept == TUNE_LIKELIHOOD || questions == 0 ? 0 : n > 1 ? n : 1;
}

/* What is held out, then each set that is kept, or all of them where there is one, then the small ones. */
enum err_code tune_judge(struct tune_job *j, struct tune_verdict *v, struct err *e)
{
    struct tune_outcome *r = j->report.outcome;
    const int n_set = j->data.kept.n_set;

    v->p_kept = v->bound = NAN;
    v->keeps = true;
    if (outcome_of(j, 0, ALL, 0, &r[0], e))
        return e->code;
    v->p = r->p;
    v->wanted = answers_wanted(j);
    v->better = v->p < TUNE_P_MAX && r->exact[1] - r->exact[0] >= v->wanted;
    if (n_set < 2) {
        r[1].set = "";
        return judge_kept(j, ALL, true, &r[1], v, e);
    }
    for (int i = 0; i < n_set; i++) {
        r[1 + i].set = j->data.kept.set_name[i];
        if (judge_kept(j, i, false, &r[1 + i], v, e))
            return e->code;
    }
    r[1 + n_set].set = "the small sets together";
    return judge_kept(j, SMALL, true, &r[1 + n_set], v, e);
}

/* Writes the new one and tests what was written. */
static enum err_code test_fresh(struct tune_job *j, struct err *e)
{
    struct adapter *a = NULL;
    struct tune_lora *l = NULL;
    enum err_code code = j->fresh != NULL ? ERR_OK : train_fresh(&j->fresh, j->o->out, e);

    if (code == ERR_OK)
        code = tune_lora_write(j->state.lora, j->fresh, "f16", e) || adapter_open(&a, j->fresh, e)
                   ? e->code
                   : tune_lora_of(&l, j->g, a, e);
    adapter_close(a);
    if (code == ERR_OK)
        code = test_all(j, l, j->report.after, e);
    tune_lora_close(l);
    return code;
}

/* An adapter whose strength is being looked for. */
struct weakening {
    struct tune_job *j;
    float *whole; /* [n_params] at its full strength */
};

const char *tune_at_strength(char to[TUNE_AT_BYTES], double strength)
{
    if (strength >= 1)
        (void)snprintf(to, TUNE_AT_BYTES, "at full strength");
    else
        (void)snprintf(to, TUNE_AT_BYTES, "at %.3g of its strength", strength);
    return to;
}

static enum err_code try_strength(void *ctx, struct tune_verdict *v, struct err *e)
{
    const struct weakening *w = ctx;
    struct tune_lora *l = w->j->state.lora;
    char at[TUNE_AT_BYTES];

    memcpy(l->theta, w->whole, (size_t)l->n_params * sizeof(float));
    tune_lora_weaken(l, (float)v->strength);
    if (test_fresh(w->j, e) || tune_judge(w->j, v, e))
        return e->code;
    tune_note(w->j, false, "%s: answers %" PRId64 " of %" PRId64 " new questions, %s",
              tune_at_strength(at, v->strength), w->j->report.outcome[0].exact[1], w->j->report.outcome[0].n,
              v->keeps ? "keeps the rest" : "forgets");
    return ERR_OK;
}

static bool time_for_two(void *ctx)
{
    const struct weakening *w = ctx;

    return tune_spent_s(w->j) + 2 * w->j->report.test_s <= w->j->o->time_s;
}

enum err_code tune_try_strengths(struct tune_verdict *v, tune_try_fn *try, bool (*time_left)(void *ctx), void *ctx,
                                 struct err *e)
{
    double low = STRENGTH_LEAST, high = 1, best = 0;

    v->strength = 1;
    if (try(ctx, v, e))
        return e->code;
    for (int left = v->better && !v->keeps ? TUNE_STRENGTHS - 2 : 0; left > 0 && time_left(ctx); left--) {
        v->strength = (low + high) / 2;
        if (try(ctx, v, e))
            return e->code;
        if (v->better && !v->keeps)
            high = v->strength;
        else
            low = v->strength;
        best = v->better && v->keeps ? v->strength : best;
    }
    if (best <= 0 || (v->strength >= best && v->strength <= best))
        return ERR_OK;
    v->strength = best;
    return try(ctx, v, e);
}

enum err_code tune_decide(struct tune_job *j, struct err *e)
{
    const size_t bytes = (size_t)j->state.lora->n_params * sizeof(float);
    struct weakening w = { j, malloc(bytes + 1) };
    enum err_code code = w.whole == NULL ? err_nomem(e) : ERR_OK;

    tune_end_steps(j);
    if (code == ERR_OK)
        memcpy(w.whole, j->state.lora->theta, bytes);
    if (code == ERR_OK)
        code = tune_try_strengths(&j->report.verdict, try_strength, time_for_two, &w, e);
    free(w.whole);
    if (code == ERR_FORMAT) /* the same steps would not help */
        unlink(j->half);
    return code;
}

enum err_code tune_publish(struct tune_job *j, const char *record, struct err *e)
{
    struct tune_lora *l = j->state.lora;
    enum err_code code;

    if (j->report.verdict.better && j->report.verdict.keeps) {
        l->file->record = record; /* the same numbers again, and what is known of them now */
        code = tune_lora_write(l, j->fresh, "f16", e);
        l->file->record = NULL;
        return code == ERR_OK ? train_publish(j->o->out, j->fresh, j->o->keep_versions, j->half, e) : code;
    }
    train_drop(&j->fresh);
    unlink(j->half);
    return ERR_OK;
}
