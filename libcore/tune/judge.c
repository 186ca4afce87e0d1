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
#define TEST_SHARE     0.03 /* of the time, at most, for a first test; tune_limit_s() leaves a fifth for all */
#define NEW_SHARE      0.4  /* of the items of a test, at least, are new ones, as far as there are */

enum { LEAD_UNIT = 1000 }; /* of a nat */

struct test {
    const struct tune_items *s;
    int64_t first; /* item of sequence 0 */
    int *lead;     /* [sequences] of its weakest token before all others, in LEAD_UNIT; lowered by any thread */
};

/* At least 0 where the token is the likeliest. */
static void lower_lead(int *lead, double by, bool likeliest)
{
    const int to = likeliest ? (int)(fmin(by, 1) * LEAD_UNIT) : -1 - (int)(fmin(-by, 1) * LEAD_UNIT);
    int is = __atomic_load_n(lead, __ATOMIC_RELAXED);

    while (to < is && !__atomic_compare_exchange_n(lead, &is, to, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

static struct tune_score score_of(double loss, int lead)
{
    const int away = lead < 0 ? -lead : lead;

    return (struct tune_score){ .loss = loss,
                                .exact = lead >= 0,
                                .unsure = away < LEAD_UNIT ? 0.5F - 0.5F * (float)away / LEAD_UNIT : 0 };
}

static double judge_row(void *ctx, int seq, int row, float *logits, int32_t n)
{
    const struct test *t = ctx;
    const int32_t want = t->s->v[t->first + seq].target[row];
    int32_t best = 0, next = want == 0;
    double sum = 0.0;

    for (int32_t i = 1; i < n; i++)
        best = logits[i] > logits[best] ? i : best;
    for (int32_t i = 0; i < n; i++) {
        sum += exp((double)logits[i] - (double)logits[best]);
        if (i != want && logits[i] > logits[next])
            next = i;
    }
    lower_lead(&t->lead[seq], (double)logits[want] - (double)logits[n > 1 ? next : want], best == want);
    return log(sum) + (double)logits[best] - (double)logits[want];
}

/* A part of the items, from first to before end. */
struct part {
    const struct tune_items *s;
    int64_t first, end;
};

/* Scores of a part with an adapter; NULL: the bare model's. */
static enum err_code test_part(struct tune_job *j, struct part p, const struct tune_lora *l, struct tune_score *score,
                               struct err *e)
{
    enum { MANY = 64 };
    struct grad_seq seq[MANY];
    struct grad_adapter *a = l == NULL ? NULL : calloc((size_t)l->n, sizeof *a);
    int lead[MANY], n;
    double loss[MANY], sum;
    struct test t = { p.s, p.first, lead };

    if (l != NULL && a == NULL)
        return err_nomem(e);
    e->code = ERR_OK;
    for (; t.first < p.end && e->code == ERR_OK; t.first += n) {
        n = tune_fitting(j, p.s, t.first, seq, p.end - t.first < MANY ? (int)(p.end - t.first) : MANY);
        for (int i = 0; i < n; i++)
            lead[i] = LEAD_UNIT;
        if (l != NULL)
            tune_lora_at(l, l->theta, NULL, 0, n, a);
        if (tune_tick(j, TUNE_TESTING, t.first, p.end, e) == ERR_OK &&
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
                score[t.first + i] = score_of(loss[i] / p.s->v[t.first + i].n_answer, lead[i]);
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
    const struct tune_items *tests = &j->data.tests;
    const struct part some = { tests, 0, tests->n < SOME ? tests->n : SOME };
    struct tune_score score[SOME];
    const double from = tune_now_ms(j);

    if (test_part(j, some, j->begin.champion, score, e))
        return e->code;
    *each_s = (tune_now_ms(j) - from) / 1e3 / (double)some.end;
    return ERR_OK;
}

/* Scores of the tests and of what is tested first of what is kept, with an adapter; NULL: the bare model's. A set that
 * was once in doubt is tested whole from then on, so that luck with a few items is not tried again. */
static enum err_code test_first(struct tune_job *j, const struct tune_lora *l, struct tune_score *const score[2],
                                struct err *e)
{
    const struct tune_items *s = &j->data.kept;
    const struct tune_score *before = j->report.before[1];

    for (int64_t i = j->report.n_first; i < s->n; i++)
        score[1][i] = (struct tune_score){ .untested = true };
    for (int64_t i = j->report.n_first, end; i < s->n; i = end) {
        for (end = i + 1; end < s->n && before[end].untested == before[i].untested; end++)
            ;
        if (!before[i].untested && test_part(j, (struct part){ s, i, end }, l, score[1], e))
            return e->code;
    }
    return test_part(j, (struct part){ &j->data.tests, 0, j->data.tests.n }, l, score[0], e) ||
                   test_part(j, (struct part){ &j->data.kept, 0, j->report.n_first }, l, score[1], e)
               ? e->code
               : ERR_OK;
}

/* A test takes TEST_SHARE of the time at most; where that is too short for all items, there are fewer new ones, and of
 * what is kept some are tested first. */
static enum err_code fit_tests(struct tune_job *j, struct err *e)
{
    const int64_t all = j->data.tests.n + j->data.kept.n;
    double each_s = 0, most, part;
    int64_t n;

    j->report.n_first = j->data.kept.n;
    if (time_test(j, &each_s, e))
        return e->code;
    most = TEST_SHARE * j->o->time_s / each_s;
    if (most >= (double)all)
        return ERR_OK;
    part = (double)j->data.tests.n / (double)all;
    n = (int64_t)(most * (part > NEW_SHARE ? part : NEW_SHARE));
    tune_items_thin(&j->data.tests, n > TUNE_LEAST_TESTS ? n : TUNE_LEAST_TESTS, false);
    n = (int64_t)most - j->data.tests.n;
    n = n > TUNE_LEAST_TESTS ? n : TUNE_LEAST_TESTS;
    j->report.n_first = n < j->data.kept.n ? n : j->data.kept.n;
    tune_note(j, true,
              "the time is short: the test begins with %" PRId64 " of %" PRId64
              " items, and goes on where these leave a set in doubt",
              j->data.tests.n + j->report.n_first, all);
    return tune_items_front(&j->data.kept, n, e);
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

/* How much of an answer is right: an undecided one in part. */
static double right_of(const struct tune_score *s)
{
    return s->exact ? 1 - (double)s->unsure : (double)s->unsure;
}

static void count_answer(struct tune_outcome *r, const struct tune_item *item, const struct tune_score *before,
                         const struct tune_score *after)
{
    const bool was = before->exact, is = after->exact;
    const double less = right_of(before) - right_of(after);

    *(less > 0 ? &r->went : &r->came) += fabs(less);
    r->n++;
    r->known += was || is;
    r->exact[0] += was;
    r->exact[1] += is;
    r->lost += was && !is;
    r->won += is && !was;
    r->n_thinks += item->thinks;
    r->thoughts = r->thoughts || item->has_thought;
    r->exact_thinks[0] += item->thinks && was;
    r->exact_thinks[1] += item->thinks && is;
}

/* Where some items are tested first, a set can be looked at twice. */
static double quantile(const struct tune_job *j)
{
    return j->report.n_first < j->data.kept.n ? TRAIN_Z2 : TRAIN_Z;
}

/* Whether all sets together are judged, before the small ones are; texts are not among what these have. */
static bool counts_with_all(const struct tune_job *j, const struct tune_outcome *r)
{
    return j->data.kept.n_set > 1 && j->report.outcome[2 + j->data.kept.n_set].n > 0 && r->counts < TUNE_LEAST_ALONE &&
           r->counts <= r->exact[0];
}

/* How a set that is kept is judged. alone: no other sets can be judged together with it. With fewer known answers no
 * loss at all would not show that less than the margin is lost. */
static enum tune_ruling rule(const struct tune_job *j, const struct tune_outcome *r, bool alone)
{
    const double z = quantile(j);

    if (!j->o->forget_given && (double)r->known >= z * z * (1 - r->margin) / r->margin)
        return TUNE_BY_ANSWERS;
    if (!alone && !j->o->forget_given)
        return TUNE_POOLED;
    if (!j->o->forget_given && counts_with_all(j, r))
        return TUNE_WITH_ALL;
    return r->counts < TUNE_LEAST_TESTS ? TUNE_UNTESTED : TUNE_BY_LIKELIHOOD;
}

/* The items of a set. p: of their losses having fallen (more: not having risen by as much as that). */
static enum err_code outcome_of(const struct tune_job *j, int which, int set, bool alone, struct tune_outcome *r,
                                struct err *e)
{
    const struct tune_items *s = which == 0 ? &j->data.tests : &j->data.kept;
    const double more = which == 0 ? 0 : (double)j->o->forget;
    double *gain = calloc((size_t)s->n + 1, sizeof *gain);

    *r = (struct tune_outcome){ .set = r->set, .margin = r->margin };
    if (gain == NULL)
        return err_nomem(e);
    for (int64_t i = 0; i < s->n; i++) {
        const struct tune_score *was = &j->report.before[which][i], *is = &j->report.after[which][i];

        r->whole += is_of_set(j, which, i, set);
        if (!is_of_set(j, which, i, set) || was->untested || is->untested)
            continue;
        count_answer(r, &s->v[i], was, is);
        if (!loss_counts(j, which, i))
            continue;
        gain[r->counts++] = was->loss + more - is->loss;
        r->loss[0] += was->loss;
        r->loss[1] += is->loss;
    }
    for (int k = 0; k < 2; k++)
        r->loss[k] /= r->counts > 0 ? (double)r->counts : 1;
    r->ruling = which == 0 ? TUNE_BY_LIKELIHOOD : rule(j, r, alone);
    r->p = r->counts < TUNE_LEAST_TESTS || r->ruling != TUNE_BY_LIKELIHOOD
               ? NAN
               : train_gate(gain, r->counts, (uint64_t)j->o->seed);
    /* where undecided answers hide a loss it is as large as it is */
    r->bound = r->known > 0 ? fmax(train_loss_bound(r->went, r->came, r->known, quantile(j)),
                                   (double)(r->lost - r->won) / (double)r->known)
                            : NAN;
    free(gain);
    return ERR_OK;
}

bool tune_surely_lost(const struct tune_job *j, const struct tune_outcome *r)
{
    return r->known > 0 && -train_loss_bound(r->came, r->went, r->known, quantile(j)) > r->margin;
}

static enum err_code judge_kept(const struct tune_job *j, int set, bool alone, struct tune_outcome *r,
                                struct tune_verdict *v, struct err *e)
{
    r->margin = (double)(set == ALL ? j->o->margin : j->o->margin_set);
    if (outcome_of(j, 1, set, alone, r, e))
        return e->code;
    r->keeps = r->ruling == TUNE_BY_ANSWERS ? r->bound <= r->margin
               : r->ruling == TUNE_POOLED || r->ruling == TUNE_WITH_ALL
                   ? !tune_surely_lost(j, r)
                   : r->ruling == TUNE_UNTESTED || r->p < TUNE_P_MAX;
    if (r->ruling == TUNE_BY_ANSWERS)
        v->bound = fmax(v->bound, r->bound); /* of a number and NaN the number */
    if (r->ruling == TUNE_BY_LIKELIHOOD)
        v->p_kept = fmax(v->p_kept, r->p);
    v->keeps = v->keeps && r->keeps;
    return ERR_OK;
}

static void warn_untested(const struct tune_job *j)
{
    int64_t n = 0;

    for (int64_t i = 0; i < j->data.kept.n; i++)
        n += loss_counts(j, 1, i);
    if (n < TUNE_LEAST_TESTS && j->report.n_first < j->data.kept.n)
        tune_note(j, true,
                  "the time is too short to test what is forgotten: only %" PRId64 " of %" PRId64
                  " kept items are asked at first, and fewer than five are right: give more %s",
                  j->report.n_first, j->data.kept.n, j->o->cpu_time ? "--cpu-time" : "--time");
    else if (n < TUNE_LEAST_TESTS)
        tune_note(j, true, "what is forgotten is not tested, as %s: --keep names a file of what the model knows",
                  j->data.kept.n == 0 ? "there are no task sets" : "the model answers fewer than five items exactly");
}

enum err_code tune_test_before(struct tune_job *j, struct err *e)
{
    double from;

    if (fit_tests(j, e))
        return e->code;
    from = tune_now_ms(j);
    if (test_first(j, j->begin.champion, j->report.before, e))
        return e->code;
    j->report.test_s = (tune_now_ms(j) - from) / 1e3;
    j->report.item_s = j->report.test_s / (double)(j->data.tests.n + j->report.n_first);
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

/* All sets together, whose many items show a small loss; where they are too few to count, the small ones were judged by
 * their losses. */
static enum err_code judge_all(const struct tune_job *j, struct tune_outcome *r, struct tune_verdict *v, struct err *e)
{
    struct tune_outcome all = { .set = "all sets together" };
    struct tune_verdict verdict = *v;

    *r = (struct tune_outcome){ .set = all.set, .keeps = true };
    if (judge_kept(j, ALL, true, &all, &verdict, e))
        return e->code;
    if (all.ruling == TUNE_BY_ANSWERS) {
        *r = all;
        *v = verdict;
    }
    return ERR_OK;
}

/* The small sets of r [n_set], together in r[n_set]; a single one is judged alone. */
static enum err_code judge_small(const struct tune_job *j, struct tune_outcome *r, struct tune_verdict *v,
                                 struct err *e)
{
    const int n_set = j->data.kept.n_set;
    int n_small = 0, only = 0;

    for (int i = 0; i < n_set; i++)
        if (r[i].ruling == TUNE_POOLED) {
            n_small++;
            only = i;
        }
    r[n_set] = (struct tune_outcome){ .set = "the small sets together", .keeps = true };
    if (n_small != 1)
        return judge_kept(j, SMALL, true, &r[n_set], v, e);
    const bool kept = r[only].keeps;

    if (judge_kept(j, only, true, &r[only], v, e))
        return e->code;
    r[only].keeps = r[only].keeps && kept;
    return ERR_OK;
}

/* What is held out, then each set that is kept, or all of them where there is one, then the small ones, then all. */
static enum err_code judge_once(struct tune_job *j, struct tune_verdict *v, struct err *e)
{
    struct tune_outcome *r = j->report.outcome;
    const int n_set = j->data.kept.n_set;

    v->p_kept = v->bound = NAN;
    v->keeps = true;
    if (outcome_of(j, 0, ALL, true, &r[0], e))
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
    return judge_all(j, &r[2 + n_set], v, e) || judge_small(j, &r[1], v, e) ? e->code : ERR_OK;
}

/* Whether all of a set has to be tested: a part of it has not shown that it is kept, nor that it is not. One that is
 * judged together with others is in doubt if they are, or if a fifth of what may be lost, and more than a half of an
 * answer, seems to be. */
static bool in_doubt(const struct tune_job *j, const struct tune_outcome *r, bool together)
{
    return r->n < r->whole && !j->o->forget_given && r->bound > r->margin && !tune_surely_lost(j, r) &&
           (r->ruling == TUNE_BY_ANSWERS || together || (r->ruling == TUNE_BY_LIKELIHOOD && !r->keeps) ||
            r->went - r->came > fmax(r->margin / 5 * (double)r->known, 0.5));
}

static bool any_surely_lost(const struct tune_job *j)
{
    bool any = false;

    for (int i = 1; i < j->report.n_outcome; i++)
        any = any || tune_surely_lost(j, &j->report.outcome[i]);
    return any;
}

static bool alone_in_doubt(const struct tune_job *j, int set)
{
    const int n_set = j->data.kept.n_set;

    return in_doubt(j, &j->report.outcome[1 + set], n_set > 1 && !j->report.outcome[1 + n_set].keeps);
}

/* Where all sets together are in doubt, so is each that is not tested whole. */
static bool set_in_doubt(const struct tune_job *j, int set)
{
    const int n_set = j->data.kept.n_set;
    const struct tune_outcome *r = &j->report.outcome[1 + set];

    return alone_in_doubt(j, set) ||
           (n_set > 1 && r->n < r->whole && in_doubt(j, &j->report.outcome[2 + n_set], false));
}

static bool any_alone(const struct tune_job *j, int n_set)
{
    bool any = false;

    for (int i = 0; i < n_set; i++)
        any = any || alone_in_doubt(j, i);
    return any;
}

bool tune_left_open(const struct tune_outcome *r)
{
    return !r->keeps && r->n < r->whole && (double)(r->lost - r->won) <= r->margin * (double)r->known;
}

enum err_code tune_judge(struct tune_job *j, tune_more_fn *more, void *ctx, struct tune_verdict *v, struct err *e)
{
    const int n_set = j->data.kept.n_set > 1 ? j->data.kept.n_set : 1;
    bool again = true, time = true;

    while (again && time) {
        if (judge_once(j, v, e))
            return e->code;
        again = false;
        /* those that are in doubt by themselves come first: they may settle what all together are, too */
        const bool alone = any_alone(j, n_set);

        for (int i = 0; i < n_set && time && v->better && !any_surely_lost(j); i++) {
            if (alone ? !alone_in_doubt(j, i) : !set_in_doubt(j, i))
                continue;
            if (more(ctx, i, &time, e))
                return e->code;
            again = true;
        }
    }
    if (again && judge_once(j, v, e))
        return e->code;
    for (int i = 0; i < n_set && v->better && !time; i++)
        if (set_in_doubt(j, i)) /* there is no time for the rest of it */
            j->report.outcome[1 + i].keeps = v->keeps = false;
    return ERR_OK;
}

/* The adapter as it was written. */
struct written {
    struct tune_job *j;
    const struct tune_lora *l;
};

/* The items of a set that were not tested first are side by side. */
static struct part rest_of(const struct tune_job *j, int set)
{
    const struct tune_items *s = &j->data.kept;
    struct part p = { s, j->report.n_first, s->n };

    while (p.first < p.end && s->n_set > 1 && s->v[p.first].set != set)
        p.first++;
    while (p.first < p.end && s->n_set > 1 && s->v[p.end - 1].set != set)
        p.end--;
    return p;
}

static enum err_code test_rest(void *ctx, int set, bool *time, struct err *e)
{
    const struct written *w = ctx;
    struct tune_job *j = w->j;
    const struct part p = rest_of(j, set);

    *time = tune_spent_s(j) + 2 * j->report.item_s * (double)(p.end - p.first) <= j->o->time_s;
    if (!*time)
        return ERR_OK;
    if (j->report.before[1][p.first].untested && test_part(j, p, j->begin.champion, j->report.before[1], e))
        return e->code;
    return test_part(j, p, w->l, j->report.after[1], e);
}

/* Writes the new one, tests what was written, and judges it. */
static enum err_code test_fresh(struct tune_job *j, struct tune_verdict *v, struct err *e)
{
    struct adapter *a = NULL;
    struct tune_lora *l = NULL;
    const double from = tune_now_ms(j);
    enum err_code code = j->fresh != NULL ? ERR_OK : train_fresh(&j->fresh, j->o->out, e);

    if (code == ERR_OK)
        code = tune_lora_write(j->state.lora, j->fresh, "f16", e) || adapter_open(&a, j->fresh, e)
                   ? e->code
                   : tune_lora_of(&l, j->g, a, e);
    adapter_close(a);
    if (code == ERR_OK)
        code = test_first(j, l, j->report.after, e);
    if (code == ERR_OK)
        code = tune_judge(j, test_rest, &(struct written){ j, l }, v, e);
    tune_lora_close(l);
    j->report.test_s = fmax(j->report.test_s, (tune_now_ms(j) - from) / 1e3);
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

bool tune_tests_kept(const struct tune_report *r)
{
    bool any = false;

    for (int i = 1; i < r->n_outcome; i++)
        any = any || (r->outcome[i].n > 0 && r->outcome[i].ruling <= TUNE_BY_LIKELIHOOD);
    return any;
}

/* A part of what the training has added: to another adapter, which would be weaker otherwise, or to nothing. */
static void weaken(const struct weakening *w, float strength)
{
    struct tune_lora *l = w->j->state.lora;
    const float *from = w->j->begin.from;

    memcpy(l->theta, w->whole, (size_t)l->n_params * sizeof(float));
    if (from == NULL)
        tune_lora_weaken(l, strength);
    for (int64_t i = 0; from != NULL && strength < 1 && i < l->n_params; i++)
        l->theta[i] = from[i] + strength * (w->whole[i] - from[i]);
}

static enum err_code try_strength(void *ctx, struct tune_verdict *v, struct err *e)
{
    const struct weakening *w = ctx;
    const struct tune_items *kept = &w->j->data.kept;
    int64_t lost = 0, won = 0, n = 0;
    char at[TUNE_AT_BYTES];

    weaken(w, (float)v->strength);
    if (test_fresh(w->j, v, e))
        return e->code;
    for (int i = 0; i < kept->n_set || i == 0; i++) {
        lost += w->j->report.outcome[1 + i].lost;
        won += w->j->report.outcome[1 + i].won;
        n += w->j->report.outcome[1 + i].known;
    }
    tune_note(w->j, false,
              "%s: answers %" PRId64 " of %" PRId64 " new questions; of %" PRId64 " old ones %" PRId64
              " are lost and %" PRId64 " won: %s",
              tune_at_strength(at, v->strength), w->j->report.outcome[0].exact[1], w->j->report.outcome[0].n, n, lost,
              won,
              !v->keeps                        ? "is not shown to keep the rest"
              : tune_tests_kept(&w->j->report) ? "keeps the rest"
                                               : "what it forgets is not tested");
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
    int left;

    v->strength = 1;
    if (try(ctx, v, e))
        return e->code;
    for (left = v->better && !v->keeps ? TUNE_STRENGTHS - 2 : 0; left > 0 && time_left(ctx); left--) {
        v->strength = (low + high) / 2;
        if (try(ctx, v, e))
            return e->code;
        if (v->better && !v->keeps)
            high = v->strength;
        else
            low = v->strength;
        best = v->better && v->keeps ? v->strength : best;
    }
    v->cut_short = left > 0;
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
