/* SPDX-License-Identifier: Apache-2.0 */
/* calibrate_fit.c - thresholds from one half of the questions, figures from the other; the file.        room: cmd */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/calibrate.h"

enum { OWN_LEAST = 20 /* questions for thresholds of a class */, ROUNDS = 10000 /* of the bootstrap */ };

static struct reason_trial_item trial_of(const struct both *q)
{
    const struct both_side *direct = &q->side[0], *thinks = &q->side[1];

    return (struct reason_trial_item){ direct->p,     direct->n_p,      direct->right,
                                       thinks->right, direct->answer.n, thinks->answer.n };
}

/* Questions of one half; class 0: of all classes. */
struct half {
    struct reason_trial_item *v; /* [n] */
    const struct both **of;
    double *score;
    bool *right; /* the direct answers */
    size_t n;
};

static void free_half(struct half *h)
{
    free(h->v);
    free((void *)h->of);
    free(h->score);
    free(h->right);
}

static enum err_code take_half(struct half *h, const struct calibration_job *j, int class, bool picks, struct err *e)
{
    *h = (struct half){ calloc(j->n + 1, sizeof *h->v), calloc(j->n + 1, sizeof(struct both *)),
                        calloc(j->n + 1, sizeof *h->score), calloc(j->n + 1, sizeof *h->right), 0 };
    if (h->v == NULL || h->of == NULL || h->score == NULL || h->right == NULL) {
        free_half(h);
        return err_nomem(e);
    }
    for (size_t i = 0; i < j->n; i++) {
        const struct both *q = &j->v[i];

        if (q->picks != picks || (class != 0 && q->class != class))
            continue;
        h->of[h->n] = q;
        h->v[h->n] = trial_of(q);
        h->score[h->n] = reason_score(&h->v[h->n]);
        h->right[h->n] = q->side[0].right;
        h->n++;
    }
    return ERR_OK;
}

enum err_code cli_bench_calibrate_fit(struct calibration_job *j, struct err *e)
{
    struct both_classes *c = &j->classes;

    for (int i = 0; i < c->n; i++) {
        struct half h;

        if (take_half(&h, j, i, true, e))
            return e->code;
        c->n_picks[i] = (int64_t)h.n;
        c->own[i] = i == 0 || h.n >= OWN_LEAST;
        const enum err_code code = reason_isotonic_fit(&c->right[i], h.score, h.right, NULL, h.n, e)
                                       ? e->code
                                       : reason_threshold_pick(&c->threshold[i], h.v, h.n, e);

        free_half(&h);
        if (code)
            return code;
    }
    return ERR_OK;
}

/* ---- the report ---- */

static double share(int64_t part, size_t n)
{
    return n > 0 ? (double)part / (double)n : (double)NAN;
}

static void say_threshold(struct reason_threshold t, char out[40])
{
    if (t.thinks == REASON_THINKS_BELOW)
        (void)snprintf(out, 40, "below %.4f", (double)t.below);
    else
        (void)snprintf(out, 40, "%s", reason_thinks_name(t.thinks));
}

/* The area, and the calibration error before and after, of a class. */
static enum err_code report_class(struct calibration_job *j, int class, struct err *e)
{
    struct both_classes *c = &j->classes;
    const int by = c->own[class] ? class : 0;
    struct half h;
    struct eval_mean area;
    double before, after, brier[2];
    int64_t direct = 0, thought = 0;
    char threshold[40], what[100], by_score[40] = "not known";
    json_t *r;
    enum err_code code;

    if (take_half(&h, j, class, false, e))
        return e->code;
    if (h.n == 0) {
        free_half(&h);
        return ERR_OK;
    }
    code = eval_auc(&area, h.score, h.right, (int64_t)h.n, e);
    before = reason_calibration_error(h.score, h.right, h.n);
    brier[0] = reason_brier(h.score, h.right, h.n);
    for (size_t i = 0; i < h.n; i++) {
        const double p = reason_isotonic_at(&c->right[by], h.score[i]);

        direct += h.v[i].direct_right;
        thought += h.v[i].thought_right;
        h.score[i] = isnan(p) ? h.score[i] : p;
    }
    after = reason_calibration_error(h.score, h.right, h.n);
    brier[1] = reason_brier(h.score, h.right, h.n);
    say_threshold(c->threshold[by], threshold);
    if (!isnan(area.mean))
        (void)snprintf(by_score, sizeof by_score, "%.3f +- %.3f", area.mean, 1.96 * area.se);
    cli_bench_line(j->b, "%-12.12s %5" PRId64 " %5zu  %5.1f %% %5.1f %%  %-15s  %.3f to %.3f  %s%s", c->name[class],
                   c->n_picks[class], h.n, 100 * share(direct, h.n), 100 * share(thought, h.n), by_score, before, after,
                   threshold, c->own[class] ? "" : " (of all)");
    (void)snprintf(what, sizeof what, "class %.64s", c->name[class]);
    r = cli_bench_record("calibrate", what, "area", "higher");
    cli_bench_int(r, "n_picked", c->n_picks[class]);
    cli_bench_int(r, "n_items", (int64_t)h.n);
    cli_bench_real(r, "direct_accuracy", share(direct, h.n));
    cli_bench_real(r, "thought_accuracy", share(thought, h.n));
    cli_bench_real(r, "area", area.mean);
    cli_bench_real(r, "area_se", area.se);
    cli_bench_real(r, "noise", 1.96 * area.se);
    cli_bench_real(r, "calibration_error", before);
    cli_bench_real(r, "calibration_error_after", after);
    cli_bench_real(r, "brier", brier[0]);
    cli_bench_real(r, "brier_after", brier[1]);
    cli_bench_text(r, "think", reason_thinks_name(c->threshold[by].thinks));
    cli_bench_real(r, "below", c->threshold[by].thinks == REASON_THINKS_BELOW ? (double)c->threshold[by].below : NAN);
    free_half(&h);
    if (code == ERR_OK)
        return cli_bench_done(j->b, r, e);
    json_decref(r);
    return code;
}

/* What a way to decide makes of the other half. by_class: the picked thresholds; else t for all. */
struct way {
    const char *name;
    bool by_class;
    struct reason_threshold t;
};

static enum err_code report_way(struct calibration_job *j, const struct half *h, const struct way *w, struct err *e)
{
    const struct both_classes *c = &j->classes;
    double *lost = calloc(h->n + 1, sizeof *lost), tokens = 0;
    int64_t right = 0;
    struct eval_interval ci, less = { 0, 0 };
    char line[200];
    json_t *r;
    enum err_code code = lost != NULL ? ERR_OK : err_nomem(e);

    for (size_t i = 0; i < h->n && code == ERR_OK; i++) {
        const int class = h->of[i]->class;
        const struct reason_threshold t = w->by_class ? c->threshold[c->own[class] ? class : 0] : w->t;
        const bool is_right = reason_threshold_right(t, &h->v[i]);

        right += is_right;
        tokens += (double)reason_threshold_tokens(t, &h->v[i]);
        lost[i] = (double)is_right - (double)h->v[i].thought_right;
    }
    if (code == ERR_OK)
        code = eval_bootstrap(&less, lost, (int64_t)h->n, ROUNDS, 1, e);
    free(lost);
    if (code)
        return code;
    ci = eval_wilson(right, (int64_t)h->n, 1.959964);
    (void)snprintf(line, sizeof line, "%-24s %5.1f %% [%.1f, %.1f]  %+5.1f points [%+.1f, %+.1f]  %6.1f tokens",
                   w->name, 100 * share(right, h->n), 100 * ci.lo, 100 * ci.hi,
                   100 * (share(right, h->n) - j->thought_share), 100 * less.lo, 100 * less.hi, tokens / (double)h->n);
    cli_bench_line(j->b, "%s", line);
    r = cli_bench_record("calibrate", w->name, "tokens", "lower");
    cli_bench_real(r, "tokens", tokens / (double)h->n);
    cli_bench_real(r, "accuracy", share(right, h->n));
    cli_bench_real(r, "accuracy_lo", ci.lo);
    cli_bench_real(r, "accuracy_hi", ci.hi);
    cli_bench_real(r, "difference", share(right, h->n) - j->thought_share);
    cli_bench_real(r, "difference_lo", less.lo);
    cli_bench_real(r, "difference_hi", less.hi);
    cli_bench_int(r, "n_items", (int64_t)h->n);
    return cli_bench_done(j->b, r, e);
}

static enum err_code report_ways(struct calibration_job *j, const struct half *h, struct err *e)
{
    static const float steps[] = { 0.5f, 0.7f, 0.9f, 0.97f, 0.99f, 0.999f };
    const struct way first[] = { { "always think", false, { .thinks = REASON_THINKS_ALWAYS } },
                                 { "never think", false, { .thinks = REASON_THINKS_NEVER } },
                                 { "auto, by class", true, { .below = 0 } },
                                 { "auto, one threshold", false, j->classes.threshold[0] } };
    int64_t thought = 0;

    for (size_t i = 0; i < h->n; i++)
        thought += h->v[i].thought_right;
    j->thought_share = share(thought, h->n);
    cli_bench_line(j->b, "%-24s %s", "the other half", "right, difference to always think, tokens of an answer");
    for (size_t i = 0; i < sizeof first / sizeof *first; i++)
        if ((!first[i].by_class || j->routes != NULL) && report_way(j, h, &first[i], e))
            return e->code;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        char name[40];
        const struct way w = { name, false, { REASON_THINKS_BELOW, steps[i] } };

        (void)snprintf(name, sizeof name, "think below %.3f", (double)steps[i]);
        if (report_way(j, h, &w, e))
            return e->code;
    }
    return ERR_OK;
}

static enum err_code report_verifier(struct calibration_job *j, struct err *e)
{
    json_t *r;

    if (!j->verified)
        return ERR_OK;
    cli_bench_line(j->b, "%-12s %5" PRId64 " answers  area %.3f [%.3f, %.3f], %.1f %% scored above 0.5", "verifier",
                   j->worth.n, j->worth.area, j->worth.lo, j->worth.hi, 100 * j->worth.yes_rate);
    r = cli_bench_record("calibrate", "verifier self", "area", "higher");
    cli_bench_real(r, "area", j->worth.area);
    cli_bench_real(r, "area_lo", j->worth.lo);
    cli_bench_real(r, "area_hi", j->worth.hi);
    cli_bench_real(r, "noise", (j->worth.hi - j->worth.lo) / 2);
    cli_bench_real(r, "yes_rate", j->worth.yes_rate);
    cli_bench_int(r, "n_items", j->worth.n);
    return cli_bench_done(j->b, r, e);
}

enum err_code cli_bench_calibrate_report(struct calibration_job *j, struct err *e)
{
    struct half h;
    enum err_code code = ERR_OK;

    cli_bench_line(j->b, "%-12s %5s %5s  %7s %7s  %-15s  %-14s  %s", "class", "fit", "other", "direct", "thinks",
                   "area", "error", "thinks");
    for (int i = 0; i < j->classes.n && code == ERR_OK; i++)
        code = report_class(j, i, e);
    if (code != ERR_OK || take_half(&h, j, 0, false, e))
        return e->code;
    if (h.n > 0)
        code = report_ways(j, &h, e);
    free_half(&h);
    return code == ERR_OK ? report_verifier(j, e) : code;
}

/* ---- the file ---- */

static json_t *json_rule(const struct both_classes *c, int i)
{
    json_t *knots = json_array(), *o;

    for (size_t k = 0; k < c->right[i].n; k++)
        json_push(&knots, json_pack("[f, f]", c->right[i].x[k], c->right[i].y[k]));
    o = json_pack("{s:I, s:s, s:o}", "n", (json_int_t)c->n_picks[i], "think",
                  reason_thinks_name(c->threshold[i].thinks), "knots", knots);
    if (c->threshold[i].thinks == REASON_THINKS_BELOW)
        o = json_if(cli_json_set(o, "below", json_real((double)c->threshold[i].below)), o);
    return i == 0 ? o : json_if(cli_json_set(o, "name", json_string(c->name[i])), o);
}

/* What the file says of the same model that this run has not fitted. */
static bool keep_others(json_t *o, const char *path)
{
    static const char *const members[] = { "all", "routes", "classes", "verifier", "retrieve" };
    struct reason_calibration *c = NULL;
    struct err ignored;
    json_t *old = NULL;
    bool ok = true;

    if (cli_json_file(&old, path, &ignored) || reason_calibration_open(&c, old, &ignored) ||
        strcmp(cli_bench_text_in(old, "fingerprint"), cli_bench_text_in(o, "fingerprint")) != 0) {
        json_decref(old);
        reason_calibration_close(c);
        return true; /* there is none that could be kept */
    }
    const bool thinks = json_object_get(o, "all") != NULL;

    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        json_t *v = json_object_get(old, members[i]);
        const bool own = (strcmp(members[i], "retrieve") == 0) != thinks;

        ok = ok && (own || v == NULL || json_object_set(o, members[i], v) == 0);
    }
    reason_calibration_close(c);
    json_decref(old);
    return ok;
}

static json_t *json_calibration(const struct calibration_job *j)
{
    const struct both_classes *c = &j->classes;
    json_t *classes = json_array(), *o;
    char print[24];
    bool ok;

    (void)snprintf(print, sizeof print, "%016" PRIx64, j->b->fingerprint);
    for (int i = 1; i < c->n; i++)
        if (c->own[i])
            json_push(&classes, json_rule(c, i));
    o = json_pack("{s:s, s:o, s:s, s:o}", "type", "calibration", "model", json_bytes(str_of(j->b->label)),
                  "fingerprint", print, j->retrieves ? "retrieve" : "all",
                  j->retrieves
                      ? json_pack("{s:I, s:f}", "n", (json_int_t)j->n_retrieve, "below", (double)j->retrieve_below)
                      : json_rule(c, 0));
    ok = o != NULL && classes != NULL && keep_others(o, j->b->o->out);
    if (ok && j->routes != NULL)
        ok = cli_json_set(o, "routes", json_incref(reason_routes_file(j->routes))) &&
             json_object_set(o, "classes", classes) == 0;
    if (ok && j->verified)
        ok = cli_json_set(o, "verifier",
                          json_pack("{s:I, s:f, s:f, s:f, s:f}", "n", (json_int_t)j->worth.n, "area", j->worth.area,
                                    "lo", j->worth.lo, "hi", j->worth.hi, "yes_rate", j->worth.yes_rate));
    json_decref(classes);
    return json_if(ok, o);
}

enum err_code cli_bench_calibrate_write(const struct calibration_job *j, struct io_out *to, struct err *e)
{
    json_t *o = json_calibration(j);
    char *text = o != NULL ? json_dump(o, JSON_COMPACT) : NULL;
    enum err_code code = text != NULL ? ERR_OK : err_nomem(e);

    if (code == ERR_OK)
        code = io_out_write(to, text, strlen(text), e) || io_out_write(to, "\n", 1, e) ? e->code : ERR_OK;
    free(text);
    json_decref(o);
    return code;
}
