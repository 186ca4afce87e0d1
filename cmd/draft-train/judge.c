/* SPDX-License-Identifier: Apache-2.0 */
/* judge.c - what an adapter knows before and after: the tests, and the gate that decides.     room: cmd */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "adapt/adapt.h"
#include "base/io.h"
#include "draft-train/job.h"
#include "eval/eval.h"
#include "train/gate.h"
#include "tune/lora.h"

#define P_MAX          0.05
#define STRENGTH_LEAST 0.7

struct test {
    const struct train_items *s;
    struct train_score *score;
    int64_t first;        /* item of sequence 0 */
    unsigned char *wrong; /* [rows' items] set by any thread */
};

static double judge(void *ctx, int seq, int row, float *logits, int32_t n)
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

struct grad_seq cli_train_seq(const struct train_item *item, double weight)
{
    return (struct grad_seq){ item->token.v, item->target, (int)item->token.n, (float)weight, NULL, item->said };
}

/* Items first .. that fit a pass. */
int cli_train_fitting(const struct train_lora *j, const struct train_items *s, int64_t first, struct grad_seq *seq,
                      int most)
{
    int64_t rows = 0;
    int n = 0;

    while (n < most && first + n < s->n && (n == 0 || rows + s->v[first + n].token.n <= j->rows_max)) {
        seq[n] = cli_train_seq(&s->v[first + n], 1.0);
        rows += s->v[first + n++].token.n;
    }
    return n;
}

/* Scores of a set with an adapter; NULL: the bare model's. */
static enum err_code test(struct train_lora *j, const struct train_items *s, const struct tune_lora *l,
                          struct train_score *score, struct err *e)
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
        n = cli_train_fitting(j, s, t.first, seq, MANY);
        memset(wrong, 0, sizeof wrong);
        if (l != NULL)
            tune_lora_at(l, l->theta, NULL, 0, n, a);
        cli_progress("test: %" PRId64 " of %" PRId64, t.first, s->n);
        if (cli_interrupted())
            err_set(e, ERR_CANCEL, "interrupted");
        else if (grad_forward(j->g,
                              &(struct grad_batch){ .seq = seq,
                                                    .n_seq = n,
                                                    .adapter = a,
                                                    .n_adapter = l == NULL ? 0 : l->n,
                                                    .loss = judge,
                                                    .loss_ctx = &t,
                                                    .seq_loss = loss },
                              &sum, e) == ERR_OK)
            for (int i = 0; i < n; i++) {
                score[t.first + i] = (struct train_score){ loss[i] / s->v[t.first + i].n_answer, !wrong[i] };
                if (!isfinite(loss[i]))
                    err_set(e, ERR_FORMAT, "test: the loss is not a number%s",
                            l == NULL ? "" : ": a smaller --rate or --alpha may help");
            }
    }
    free(a);
    return e->code;
}

enum err_code cli_train_test_some(struct train_lora *j, double *each_s, struct err *e)
{
    enum { SOME = 8 };
    struct train_items some = j->tests;
    struct train_score score[SOME];
    const double from = cli_now_ms();

    some.n = some.n < SOME ? some.n : SOME;
    if (test(j, &some, j->begin.champion, score, e))
        return e->code;
    *each_s = (cli_now_ms() - from) / 1e3 / (double)some.n;
    return ERR_OK;
}

enum err_code cli_train_test(struct train_lora *j, const struct tune_lora *l, struct train_score *const score[2],
                             struct err *e)
{
    return test(j, &j->tests, l, score[0], e) || test(j, &j->kept, l, score[1], e) ? e->code : ERR_OK;
}

/* ---- the gate ---- */

/* What became of the items of a set, before and after: how many are exact, and the mean loss of those that count. */
struct outcome {
    int64_t n, counts, exact[2];
    double loss[2], p; /* p NaN: too few to test */
};

static json_t *number(double p)
{
    return isnan(p) ? json_null() : json_real(p);
}

static void print(struct train_lora *j, const char *name, const struct outcome *r)
{
    char p[40] = "too few to test";

    if (r->n == 0)
        return;
    if (!isnan(r->p))
        (void)snprintf(p, sizeof p, "p %.2g", r->p);
    if (!j->o->quiet)
        fprintf(j->report.events == stdout ? stderr : stdout,
                "%-18s %6" PRId64 " items, exact answers %" PRId64 " -> %" PRId64 ", nats a token of %" PRId64
                " items %.4f -> %.4f, %s\n",
                name, r->n, r->exact[0], r->exact[1], r->counts, r->loss[0], r->loss[1], p);
    cli_train_event(&j->report, "test",
                    json_pack("{s:s, s:I, s:I, s:f, s:f, s:I, s:I, s:o}", "set", name, "items", (json_int_t)r->n,
                              "counts", (json_int_t)r->counts, "loss_before", r->loss[0], "loss", r->loss[1],
                              "exact_before", (json_int_t)r->exact[0], "exact", (json_int_t)r->exact[1], "p",
                              number(r->p)));
}

static bool is_of(const struct train_lora *j, int which, int64_t i, int set)
{
    return which == 0 || set < 0 || j->kept.v[i].set == set;
}

/* Whose loss counts: what is to be learnt; of what is to be kept, what the user named, and of the task sets what was known, as
 * the rest may be what is learnt. */
static bool counts(const struct train_lora *j, int which, int64_t i)
{
    return which == 0 || j->o->keep_files.n > 0 || j->before[1][i].exact;
}

/* The items of a set (-1: of all). p: of their losses having fallen (more: not having risen by as much as that). */
static enum err_code outcome_of(const struct train_lora *j, int which, int set, double more, struct outcome *r,
                                struct err *e)
{
    const int64_t n = which == 0 ? j->tests.n : j->kept.n;
    double *gain = calloc((size_t)n + 1, sizeof *gain);

    *r = (struct outcome){ 0 };
    if (gain == NULL)
        return err_nomem(e);
    for (int64_t i = 0; i < n; i++) {
        const struct train_score *was = &j->before[which][i], *is = &j->after[which][i];

        if (!is_of(j, which, i, set))
            continue;
        r->n++;
        r->exact[0] += was->exact;
        r->exact[1] += is->exact;
        if (!counts(j, which, i))
            continue;
        gain[r->counts++] = was->loss + more - is->loss;
        r->loss[0] += was->loss;
        r->loss[1] += is->loss;
    }
    for (int k = 0; k < 2; k++)
        r->loss[k] /= r->counts > 0 ? (double)r->counts : 1;
    r->p = r->counts < TRAIN_LEAST_TESTS ? NAN : train_gate(gain, r->counts, (uint64_t)j->o->seed);
    free(gain);
    return ERR_OK;
}

/* Fewer exact answers than the interval of those before allows; counts as p = 1, unless --forget says what may be lost. */
static bool lost(const struct train_lora *j, const struct outcome *r)
{
    return !isnan(r->p) && !cli_given(j->cli, "forget") &&
           (double)r->exact[1] < (double)r->n * eval_wilson(r->exact[0], r->n, 1.96).lo;
}

void cli_train_warn_untested(const struct train_lora *j)
{
    const int n_set = j->kept.n_set > 1 ? j->kept.n_set : 1;
    int64_t most = 0;

    for (int set = 0; set < n_set; set++) {
        int64_t n = 0;

        for (int64_t i = 0; i < j->kept.n; i++)
            n += is_of(j, 1, i, n_set > 1 ? set : -1) && counts(j, 1, i);
        most = n > most ? n : most;
    }
    if (most < TRAIN_LEAST_TESTS)
        cli_warn("what is forgotten is not tested, as %s: --keep names a file of what the model knows",
                 j->kept.n == 0 ? "there are no task sets"
                                : "the model answers fewer than five items of each task set exactly");
}

/* Of each set that is kept, or of all where there is one; the largest p, NaN if none can be tested. */
static enum err_code judge_kept(struct train_lora *j, bool say, double *p, struct err *e)
{
    const bool sets = j->kept.n_set > 1;

    *p = NAN;
    for (int set = sets ? 0 : -1; set < (sets ? j->kept.n_set : 0); set++) {
        char name[100] = "kept";
        struct outcome r;

        if (set >= 0)
            (void)snprintf(name, sizeof name, "kept %.80s", j->kept.set_name[set]);
        if (outcome_of(j, 1, set, (double)j->o->forget, &r, e))
            return e->code;
        r.p = lost(j, &r) ? 1 : r.p;
        *p = fmax(*p, r.p); /* of a number and NaN the number */
        if (say)
            print(j, name, &r);
    }
    return ERR_OK;
}

/* Writes the new one and tests what was written. */
static enum err_code test_fresh(struct train_lora *j, struct err *e)
{
    struct adapter *a = NULL;
    struct tune_lora *l = NULL;
    enum err_code code = j->fresh != NULL ? ERR_OK : cli_train_fresh(&j->fresh, j->o->out, e);

    if (code == ERR_OK)
        code = tune_lora_write(j->lora, j->fresh, "f16", e);
    if (code == ERR_OK)
        code = adapter_open(&a, j->fresh, e);
    if (code == ERR_OK)
        code = tune_lora_of(&l, j->g, a, e);
    adapter_close(a);
    if (code == ERR_OK)
        code = cli_train_test(j, l, j->after, e);
    tune_lora_close(l);
    return code;
}

/* What the gate has found. */
struct verdict {
    double strength, p, p_kept;
    bool better, keeps;
};

static enum err_code hear(struct train_lora *j, struct verdict *v, bool say, struct err *e)
{
    struct outcome learnt;

    if (outcome_of(j, 0, -1, 0, &learnt, e))
        return e->code;
    if (say)
        print(j, "held out", &learnt);
    if (judge_kept(j, say, &v->p_kept, e))
        return e->code;
    v->p = learnt.p;
    v->better = v->p < P_MAX;
    v->keeps = isnan(v->p_kept) || v->p_kept < P_MAX;
    return ERR_OK;
}

/* Tests the adapter at v->strength. */
static enum err_code try_strength(struct train_lora *j, const float *whole, struct verdict *v, struct err *e)
{
    memcpy(j->lora->theta, whole, (size_t)j->lora->n_params * sizeof(float));
    tune_lora_weaken(j->lora, (float)v->strength);
    if (test_fresh(j, e) || hear(j, v, false, e))
        return e->code;
    cli_note("at %.3g of its strength: p %.2g, p of what is kept %.2g", v->strength, v->p, v->p_kept);
    return ERR_OK;
}

/* The adapter at its full strength or, if it forgets, at the largest that bisection finds: what is lost falls faster than what is
 * learnt. It ends with a test of what is going to be published. */
static enum err_code try_strengths(struct train_lora *j, struct verdict *v, struct err *e)
{
    const size_t bytes = (size_t)j->lora->n_params * sizeof(float);
    float *whole = malloc(bytes + 1);
    double low = STRENGTH_LEAST, high = 1, best = 0;
    enum err_code code = whole == NULL ? err_nomem(e) : ERR_OK;

    if (code == ERR_OK)
        memcpy(whole, j->lora->theta, bytes);
    v->strength = 1;
    if (code == ERR_OK)
        code = try_strength(j, whole, v, e);
    for (int left = v->better && !v->keeps ? TRAIN_STRENGTHS - 2 : 0; left > 0 && code == ERR_OK; left--) {
        if (cli_train_lora_s(j) + 2 * j->test_s > j->o->time_s)
            break;
        v->strength = (low + high) / 2;
        code = try_strength(j, whole, v, e);
        if (v->better && !v->keeps)
            high = v->strength;
        else
            low = v->strength;
        best = v->better && v->keeps ? v->strength : best;
    }
    if (code == ERR_OK && best > 0 && v->strength != best) {
        v->strength = best;
        code = try_strength(j, whole, v, e);
    }
    free(whole);
    return code;
}

enum err_code cli_train_decide(struct train_lora *j, int *status, struct err *e)
{
    struct verdict v = { 0 };

    cli_train_end_steps(j);
    if (try_strengths(j, &v, e)) {
        if (e->code == ERR_FORMAT) /* the same steps would not help */
            unlink(j->half);
        return e->code;
    }
    cli_progress_end();
    if (hear(j, &v, true, e))
        return e->code;
    *status = v.better && v.keeps ? EXIT_OK : EXIT_NO;
    cli_train_event(&j->report, "end",
                    json_pack("{s:b, s:f, s:o, s:f, s:I}", "published", *status == EXIT_OK, "p", v.p, "p_kept",
                              number(v.p_kept), "strength", v.strength, "steps", (json_int_t)j->step));
    if (*status == EXIT_OK && cli_train_publish(j->o->out, j->fresh, j->o->keep, j->half, e))
        return e->code;
    if (*status == EXIT_OK)
        cli_warn("%s is written at %.3g of its strength: it knows more than %s (p = %.2g)", j->o->out, v.strength,
                 j->begin.old != NULL ? "the one before" : "the model alone", v.p);
    else {
        cli_train_drop(&j->fresh);
        unlink(j->half);
        cli_warn("%s: %s (p = %.2g, %g is the limit)%s", j->o->out,
                 !v.better ? "not better on what is held out" : "it forgets what is kept", v.better ? v.p_kept : v.p,
                 P_MAX, j->begin.old != NULL ? ": the old one stays" : ": nothing is written");
    }
    return ERR_OK;
}
