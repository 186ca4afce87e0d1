/* SPDX-License-Identifier: Apache-2.0 */
/* reason.c - what rules that end reasoning early are worth: replayed over what was thought once.      room: cmd
 *
 * Each item is thought to its end once, and at each end of a line and every few tokens the model is asked for its
 * answer (reason/trace.h). Rules, thresholds and budgets are tried on that. A rule's threshold is picked on the items
 * 0, 2, 4 of a set and reported on the others, against no rule and against a plain budget that takes as many tokens
 * there. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "bench/tasks.h"
#include "model/model.h"

#define Z_95 1.959964

enum { THRESHOLDS_MAX = 10, BUDGETS_SHOWN = 24 };

static const struct {
    enum reason_rule rule;
    int n;
    float threshold[THRESHOLDS_MAX]; /* the later, the later it stops */
} grid[] = {
    { REASON_RULE_EAT, 8, { 0.1F, 0.03F, 0.01F, 0.003F, 0.001F, 1e-4F, 1e-5F, 1e-6F } },
    { REASON_RULE_CGR, 10, { 0.5F, 0.7F, 0.8F, 0.9F, 0.95F, 0.97F, 0.99F, 0.995F, 0.999F, 0.9999F } },
    { REASON_RULE_DEER, 10, { 0.5F, 0.7F, 0.8F, 0.9F, 0.95F, 0.97F, 0.99F, 0.995F, 0.999F, 0.9999F } },
    { REASON_RULE_SAME, 5, { 2, 3, 4, 5, 6 } },
    { REASON_RULE_ABF, 7, { 0.8F, 0.9F, 0.95F, 0.98F, 0.99F, 0.995F, 0.999F } },
};

/* The tasks of one set. */
struct set {
    struct bench *b;
    const struct task *v; /* [n] */
    size_t n;
    int32_t n_vocab;
    int64_t longest; /* tokens of a thought */
    struct reason_opts how;
    struct reason_total *budget; /* [n_budget] */
    int64_t n_budget;
    json_t *records; /* of --plot; NULL: none are kept */
};

/* ---- trying ---- */

enum half { PICK, REPORT };

/* One setting on one item. o NULL: the oracle. */
static struct reason_stop try_item(const struct set *s, const struct reason_opts *o, size_t i)
{
    return o != NULL ? reason_replay(s->v[i].trace, s->b->open.text, o, s->n_vocab)
                     : reason_oracle(s->v[i].trace, &s->how);
}

static struct reason_total try_half(const struct set *s, const struct reason_opts *o, enum half half)
{
    struct reason_total t = { 0 };

    for (size_t i = half; i < s->n; i += 2) {
        const struct reason_stop stop = try_item(s, o, i);

        reason_total_add(&t, &stop);
    }
    return t;
}

/* A budget, and its default grace rounded down to the trace's step. */
static struct reason_opts budget_of(int64_t tokens)
{
    struct reason_opts o = reason_defaults();

    o.budget_tokens = tokens;
    o.grace_tokens = reason_grace_of(&o, tokens);
    o.grace_tokens -= o.grace_tokens % BENCH_TRACE_EVERY;
    return o;
}

/* All budgets of multiples of the step, on the reported half. */
static enum err_code try_budgets(struct set *s, struct err *e)
{
    s->n_budget = s->longest / BENCH_TRACE_EVERY + 1;
    s->budget = calloc((size_t)s->n_budget, sizeof *s->budget);
    if (s->budget == NULL)
        return err_nomem(e);
    for (int64_t i = 0; i < s->n_budget; i++) {
        const struct reason_opts o = budget_of((i + 1) * BENCH_TRACE_EVERY);

        s->budget[i] = try_half(s, &o, REPORT);
    }
    return ERR_OK;
}

/* The smallest budget that takes at least as many tokens; else the largest. */
static struct reason_opts equal_budget(const struct set *s, int64_t tokens, struct reason_total *t)
{
    int64_t i = 0;

    while (i + 1 < s->n_budget && s->budget[i].tokens < tokens)
        i++;
    *t = s->budget[i];
    return budget_of((i + 1) * BENCH_TRACE_EVERY);
}

/* In pairs on the reported half: both right, only the first, only the second. */
struct pairs {
    int64_t both, first, second;
};
static struct pairs compare(const struct set *s, const struct reason_opts *first, const struct reason_opts *second)
{
    struct pairs p = { 0 };

    for (size_t i = REPORT; i < s->n; i += 2) {
        const bool a = try_item(s, first, i).right, b = try_item(s, second, i).right;

        p.both += a && b;
        p.first += a && !b;
        p.second += b && !a;
    }
    return p;
}

/* ---- reporting ---- */

/* A setting and what it made of both halves. */
struct row {
    const char *rule;            /* "none", "oracle", "budget", or a rule */
    const struct reason_opts *o; /* NULL: the oracle */
    bool picked, keeps;          /* of a rule: where it was picked it lost no more than it may */
    struct reason_total pick, report;
    struct pairs none; /* against no rule */
    bool has_budget;
    struct reason_opts equal; /* the budget of as many tokens, and what it makes of the half */
    struct reason_total equal_total;
    struct pairs budget; /* against that */
};

static double mean(int64_t sum, int64_t n)
{
    return n > 0 ? (double)sum / (double)n : 0;
}

static void name_row(const struct row *r, char buf[64])
{
    if (strcmp(r->rule, "budget") == 0)
        snprintf(buf, 64, "budget %" PRId64 "+%" PRId64, r->o->budget_tokens, r->o->grace_tokens);
    else if (r->o != NULL && r->o->rule != REASON_RULE_NONE)
        snprintf(buf, 64, "%s:%g", r->rule, (double)r->o->threshold);
    else
        snprintf(buf, 64, "%s", r->rule);
}

static json_t *pairs_json(const struct pairs *p, int64_t n)
{
    const struct eval_interval ci = eval_paired(p->both, p->first, p->second, n, Z_95);

    return json_pack("{s:I, s:I, s:f, s:f, s:f, s:f}", "won", (json_int_t)p->first, "lost", (json_int_t)p->second,
                     "difference", mean(p->first - p->second, n), "difference_lo", ci.lo, "difference_hi", ci.hi,
                     "mcnemar_p", eval_mcnemar(p->first, p->second));
}

static json_t *record_of(const struct set *s, const struct row *r, const char *name)
{
    const struct eval_interval ci = eval_wilson(r->report.right, r->report.n, Z_95);
    const int64_t n = r->report.n;
    char what[200];
    json_t *j, *budget = NULL;

    snprintf(what, sizeof what, "%s %s items=%zu", s->v->set, name, s->n);
    j = cli_bench_record("reason", what, "accuracy", "higher");
    cli_bench_text(j, "set", s->v->set);
    cli_bench_text(j, "rule", r->rule);
    if (r->o != NULL && r->o->rule != REASON_RULE_NONE) {
        cli_bench_real(j, "threshold", strtod(strchr(name, ':') + 1, NULL));
        json_object_set_new(j, "picked", json_boolean(r->picked));
    }
    if (r->o != NULL && r->o->budget_tokens >= 0) {
        cli_bench_int(j, "budget_tokens", r->o->budget_tokens);
        cli_bench_int(j, "grace_tokens", r->o->grace_tokens);
    }
    cli_bench_real(j, "accuracy", mean(r->report.right, n));
    cli_bench_real(j, "accuracy_lo", ci.lo);
    cli_bench_real(j, "accuracy_hi", ci.hi);
    cli_bench_real(j, "noise", (ci.hi - ci.lo) / 2 / sqrt(2));
    cli_bench_int(j, "n_items", n);
    cli_bench_int(j, "n_right", r->report.right);
    cli_bench_real(j, "tokens", mean(r->report.tokens, n));
    cli_bench_real(j, "probe_rows", mean(r->report.rows, n));
    cli_bench_int(j, "n_picked_on", r->pick.n);
    cli_bench_int(j, "n_picked_right", r->pick.right);
    json_object_set_new(j, "against_none", pairs_json(&r->none, n));
    if (!r->has_budget)
        return j;
    budget = pairs_json(&r->budget, n);
    cli_bench_int(budget, "budget_tokens", r->equal.budget_tokens);
    cli_bench_int(budget, "grace_tokens", r->equal.grace_tokens);
    cli_bench_real(budget, "tokens", mean(r->equal_total.tokens, n));
    cli_bench_int(budget, "n_right", r->equal_total.right);
    json_object_set_new(j, "against_budget", budget);
    return j;
}

static void print_row(const struct set *s, const struct row *r, const char *name)
{
    const struct eval_interval ci = eval_wilson(r->report.right, r->report.n, Z_95),
                               d = eval_paired(r->none.both, r->none.first, r->none.second, r->report.n, Z_95);
    const int64_t n = r->report.n;
    char budget[100] = "";

    if (r->has_budget)
        snprintf(budget, sizeof budget, "  %5" PRId64 "+%-3" PRId64 " %5.1f  %+4" PRId64 " -%-4" PRId64 " %.3f",
                 r->equal.budget_tokens, r->equal.grace_tokens, 100 * mean(r->equal_total.right, n), r->budget.first,
                 r->budget.second, eval_mcnemar(r->budget.first, r->budget.second));
    cli_bench_line(s->b, "%c %-15s %5.1f [%5.1f, %5.1f] %6.1f %6.1f %6.1f  %+5.1f [%+5.1f, %+5.1f]%s",
                   r->picked ? r->keeps ? '*' : '!' : ' ', name, 100 * mean(r->report.right, n), 100 * ci.lo,
                   100 * ci.hi, mean(r->report.tokens, n), mean(r->report.rows, n),
                   mean(r->report.tokens + r->report.rows, n), 100 * mean(r->none.first - r->none.second, n),
                   100 * d.lo, 100 * d.hi, budget);
}

/* Compares the row with no rule, a rule's with a budget of as many tokens and rows, too. */
static enum err_code report(struct set *s, struct row *r, struct err *e)
{
    const struct reason_opts none = reason_defaults();
    char name[64];
    json_t *j;

    r->none = compare(s, r->o, &none);
    r->has_budget = r->o != NULL && r->o->rule != REASON_RULE_NONE;
    if (r->has_budget) {
        r->equal = equal_budget(s, r->report.tokens + r->report.rows, &r->equal_total);
        r->budget = compare(s, r->o, &r->equal);
    }
    name_row(r, name);
    if (r->picked || !r->has_budget || s->b->o->verbose)
        print_row(s, r, name);
    j = record_of(s, r, name);
    if (j == NULL || (s->records != NULL && json_array_append(s->records, j)))
        return err_nomem(e);
    return cli_bench_done(s->b, j, e);
}

/* ---- a set ---- */

static enum err_code report_plain(struct set *s, const char *rule, const struct reason_opts *o, struct err *e)
{
    struct row r = { .rule = rule, .o = o, .pick = try_half(s, o, PICK), .report = try_half(s, o, REPORT) };

    return report(s, &r, e);
}

/* Budgets up to the longest thought, evenly spread. */
static enum err_code report_budgets(struct set *s, struct err *e)
{
    const int64_t step = (s->longest / BUDGETS_SHOWN / BENCH_TRACE_EVERY + 1) * BENCH_TRACE_EVERY;

    for (int64_t b = step; b < s->longest + step; b += step) {
        const struct reason_opts o = budget_of(b);

        if (report_plain(s, "budget", &o, e))
            return e->code;
    }
    return ERR_OK;
}

/* All thresholds of a rule; the one that is picked on the other half is marked. */
static enum err_code report_rule(struct set *s, size_t of, int64_t least, struct err *e)
{
    struct reason_total pick[THRESHOLDS_MAX];
    struct reason_opts o[THRESHOLDS_MAX];
    const int n = grid[of].n;
    int best;
    bool keeps;

    for (int i = 0; i < n; i++) {
        o[i] = s->how;
        o[i].rule = grid[of].rule;
        o[i].threshold = grid[of].threshold[i];
        reason_drop_idle(&o[i]);
        pick[i] = try_half(s, &o[i], PICK);
    }
    best = reason_pick(pick, n, least);
    keeps = best >= 0;
    for (int i = 0; i < n && !keeps; i++) /* the most right answers */
        best = best < 0 || pick[i].right > pick[best].right ? i : best;
    for (int i = 0; i < n; i++) {
        struct row r = { .rule = reason_rule_name(grid[of].rule),
                         .o = &o[i],
                         .picked = i == best,
                         .keeps = keeps,
                         .pick = pick[i],
                         .report = try_half(s, &o[i], REPORT) };

        if (report(s, &r, e))
            return e->code;
    }
    return ERR_OK;
}

static enum err_code report_set(struct set *s, struct err *e)
{
    const struct reason_opts none = reason_defaults();
    const struct reason_total pick = try_half(s, &none, PICK);
    const int64_t least = pick.right - (int64_t)((double)s->b->o->may_lose * (double)pick.right);

    for (size_t i = 0; i < s->n; i++)
        s->longest = s->v[i].trace->n > s->longest ? s->v[i].trace->n : s->longest;
    cli_bench_line(s->b, "%s: thresholds are picked on %zu items and reported on %zu others", s->v->set, (s->n + 1) / 2,
                   s->n / 2);
    cli_bench_line(s->b, "  %-15s %5s %14s %6s %6s %6s  %5s %15s  %s", "rule", "right", "95 %", "tokens", "probes",
                   "all", "loss", "95 %", "equal budget: right, won, lost, p");
    if (try_budgets(s, e) || report_plain(s, "none", &none, e) || report_plain(s, "oracle", NULL, e) ||
        report_budgets(s, e))
        return e->code;
    for (size_t i = 0; i < sizeof grid / sizeof *grid; i++)
        if (report_rule(s, i, least, e))
            return e->code;
    return ERR_OK;
}

static enum err_code report_sets(const struct tasks *ts, const struct reason_opts *how, json_t *records, struct err *e)
{
    for (size_t from = 0, to; from < ts->n; from = to) {
        for (to = from; to < ts->n && ts->v[to].set == ts->v[from].set; to++)
            ;
        struct set s = { .b = ts->b,
                         .v = ts->v + from,
                         .n = to - from,
                         .n_vocab = model_info(ts->b->open.model)->n_vocab,
                         .how = *how,
                         .records = records };

        if (s.n < 2)
            return err_set(e, ERR_FORMAT, "%s: one half of the items picks thresholds, so two are needed", s.v->set);
        const enum err_code code = report_set(&s, e);

        free(s.budget);
        if (code != ERR_OK)
            return code;
    }
    return ERR_OK;
}

/* How rules ask, of --think-probe. */
static enum err_code read_how(struct reason_opts *how, const struct bench *b, struct err *e)
{
    const char *s = b->o->reason.probe;

    *how = reason_defaults();
    if (s != NULL && reason_read_probe(how, str_of(s), e))
        return err_wrap(e, "--think-probe");
    if (how->lag > 0 || how->stub.n > 0 || how->every_tokens % BENCH_TRACE_EVERY != 0)
        return err_set(e, ERR_ARG,
                       "--think-probe: no lag and no stub, and every a multiple of %d: that is what was asked",
                       BENCH_TRACE_EVERY);
    return ERR_OK;
}

enum err_code cli_bench_cmd_reason(struct bench *b, struct err *e)
{
    struct tasks ts = { .b = b, .path = b->o->traces, .out = -1, .traces = true };
    struct reason_opts how;
    json_t *records = b->o->plot != NULL ? json_array() : NULL;
    enum err_code code = read_how(&how, b, e);
    struct io_out *picture;

    if (code == ERR_OK && b->o->plot != NULL) { /* that it can be written is known before hours of answers */
        code = io_out_open(&picture, b->o->plot, e);
        if (code == ERR_OK)
            io_out_abort(picture);
    }
    if (code == ERR_OK)
        code = cli_bench_tasks_open(&ts, e);
    if (code == ERR_OK && ts.left > 0)
        code = cli_bench_tasks_ask(&ts, e);
    if (code == ERR_OK)
        code = report_sets(&ts, &how, records, e);
    if (code == ERR_OK && records != NULL)
        code = cli_bench_draw_rules(b, records, b->o->plot, e);
    json_decref(records);
    cli_bench_tasks_close(&ts, code != ERR_OK);
    return code;
}
