/* SPDX-License-Identifier: Apache-2.0 */
/* compare.c - eval --compare: two files of answers, in pairs.                room: cmd */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bench/tasks.h"

struct score {
    const char *set, *id, *item;
    int64_t sample;
    size_t line;
    int right, n;
};
struct scores {
    struct score *v;
    size_t n;
};

static int by_item(const void *a, const void *b)
{
    const struct score *x = a, *y = b;
    int set = strcmp(x->set, y->set), id = strcmp(x->id, y->id);

    return set ? set : id ? id : strcmp(x->item, y->item);
}

static int by_line(const void *a, const void *b)
{
    const struct score *x = a, *y = b;
    int item = by_item(a, b);

    if (item != 0 || x->sample != y->sample)
        return item ? item : x->sample < y->sample ? -1 : 1;
    return x->line < y->line ? -1 : x->line > y->line;
}

/* Answers of one file, summed by item, sorted; of those that were asked again the last. Strings belong to `all`. */
static enum err_code sum_up(struct scores *out, const json_t *all, const char *path, struct err *e)
{
    struct scores s = { calloc(json_array_size(all) + 1, sizeof *s.v), 0 };
    size_t n = 0;

    if (s.v == NULL)
        return err_nomem(e);
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *r = json_array_get(all, i);

        if (!cli_bench_is_answer(r)) {
            free(s.v);
            return err_set(e, ERR_FORMAT, "%s: item %zu is no answer of a task", path, i + 1);
        }
        s.v[s.n++] = (struct score){ cli_bench_text_in(r, "set"),
                                     cli_bench_text_in(r, "id"),
                                     cli_bench_text_in(r, "item"),
                                     json_integer_value(json_object_get(r, "sample")),
                                     i,
                                     json_is_true(json_object_get(r, "right")),
                                     1 };
    }
    qsort(s.v, s.n, sizeof *s.v, by_line);
    for (size_t i = 0; i < s.n; i++) {
        if (i + 1 < s.n && by_item(&s.v[i], &s.v[i + 1]) == 0 && s.v[i].sample == s.v[i + 1].sample)
            continue;
        if (n > 0 && by_item(&s.v[n - 1], &s.v[i]) == 0) {
            s.v[n - 1].right += s.v[i].right;
            s.v[n - 1].n++;
        } else {
            s.v[n++] = s.v[i];
        }
    }
    s.n = n;
    *out = s;
    return ERR_OK;
}

static enum err_code report_pairs(struct bench *b, const char *set, const double *diff, int64_t n, int64_t only_a,
                                  int64_t only_b, bool single, struct err *e)
{
    struct eval_interval ci;
    double sum = 0;
    json_t *r;
    char what[200];

    for (int64_t i = 0; i < n; i++)
        sum += diff[i];
    if (eval_bootstrap(&ci, diff, n, BENCH_ROUNDS, 1, e))
        return e->code;
    snprintf(what, sizeof what, "%s %.60s to %.60s", set, b->operands[0], b->operands[1]);
    r = cli_bench_record("eval_difference", what, "difference", "higher");
    cli_bench_text(r, "set", set);
    cli_bench_real(r, "difference", sum / (double)n);
    cli_bench_real(r, "difference_lo", ci.lo);
    cli_bench_real(r, "difference_hi", ci.hi);
    cli_bench_real(r, "noise", (ci.hi - ci.lo) / 2);
    cli_bench_int(r, "n_items", n);
    if (single) {
        cli_bench_int(r, "only_first_right", only_a);
        cli_bench_int(r, "only_second_right", only_b);
        cli_bench_real(r, "mcnemar_p", eval_mcnemar(only_a, only_b));
    }
    cli_bench_line(b, "%-20s %5lld items  %+6.2f %%  [%+.2f, %+.2f]  only A %lld, only B %lld, McNemar p %.3f", set,
                   (long long)n, 100 * sum / (double)n, 100 * ci.lo, 100 * ci.hi, (long long)only_a, (long long)only_b,
                   eval_mcnemar(only_a, only_b));
    return cli_bench_done(b, r, e);
}

/* Pairs of the items that both have, set by set, then all together. */
static enum err_code pair_up(struct bench *b, const struct scores *x, const struct scores *y, struct err *e)
{
    double *diff = calloc(x->n + 1, sizeof *diff);
    int64_t n = 0, from = 0, a = 0, c = 0, all_a = 0, all_c = 0;
    bool single = true;
    int n_sets = 0;
    enum err_code code = diff ? ERR_OK : err_nomem(e);

    for (size_t i = 0, j = 0; code == ERR_OK && i < x->n; i++) {
        const struct score *p = &x->v[i], *q;

        while (j < y->n && by_item(&y->v[j], p) < 0)
            j++;
        q = j < y->n && by_item(&y->v[j], p) == 0 ? &y->v[j] : NULL;
        if (q != NULL) {
            diff[n++] = (double)q->right / q->n - (double)p->right / p->n;
            a += p->right * q->n > q->right * p->n;
            c += p->right * q->n < q->right * p->n;
            single = single && p->n == 1 && q->n == 1;
        }
        if ((i + 1 == x->n || strcmp(x->v[i + 1].set, p->set) != 0) && n > from) {
            code = report_pairs(b, p->set, diff + from, n - from, a, c, single, e);
            all_a += a;
            all_c += c;
            from = n;
            a = c = 0;
            n_sets++;
        }
    }
    if (code == ERR_OK && n == 0)
        code = err_set(e, ERR_FORMAT, "the two files have no item in common");
    if (code == ERR_OK && n_sets > 1)
        code = report_pairs(b, "all", diff, n, all_a, all_c, single, e);
    free(diff);
    return code;
}

enum err_code cli_bench_compare(struct bench *b, struct err *e)
{
    json_t *all[2] = { NULL, NULL };
    struct scores s[2] = { { NULL, 0 }, { NULL, 0 } };
    enum err_code code = ERR_OK;

    if (b->operands[0] == NULL || b->operands[1] == NULL || b->operands[2] != NULL)
        return err_set(e, ERR_ARG, "eval --compare: takes two files of answers");
    for (int i = 0; i < 2 && code == ERR_OK; i++) {
        code = cli_bench_load(&all[i], b->operands[i], e);
        if (code == ERR_OK)
            code = sum_up(&s[i], all[i], b->operands[i], e);
    }
    if (code == ERR_OK)
        code = pair_up(b, &s[0], &s[1], e);
    for (int i = 0; i < 2; i++) {
        free(s[i].v);
        json_decref(all[i]);
    }
    return code;
}
