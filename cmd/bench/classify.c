/* SPDX-License-Identifier: Apache-2.0 */
/* classify.c - a file of routes on labelled prompts: accuracy, stages, which class was taken for which.    room: cmd
 *
 * A line of a set is an object with `text` and `class`, perhaps `files`, names of files, a line each. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "cli/route.h"

enum { AT_ONCE = 256 }; /* prompts that the model is asked about: each has a copy for every class */

struct labels {
    const char *name[REASON_CLASSES_MAX + 1]; /* the default is the last, unless it is a class */
    int n;
    int64_t *count; /* [n][n] of the wanted, of the found */
};

static int label_of(const struct labels *l, const char *name)
{
    for (int i = 0; i < l->n; i++)
        if (strcmp(l->name[i], name) == 0)
            return i;
    return -1;
}

static enum err_code make_labels(struct labels *l, const struct reason_routes *r, struct err *e)
{
    for (; l->n < reason_routes_n(r); l->n++)
        l->name[l->n] = reason_route_name(r, l->n);
    if (label_of(l, reason_routes_default(r)) < 0)
        l->name[l->n++] = reason_routes_default(r);
    l->count = calloc((size_t)(l->n * l->n), sizeof *l->count);
    return l->count != NULL ? ERR_OK : err_nomem(e);
}

static enum err_code read_items(struct cli_request *v, const json_t *items, const struct labels *l, const char *path,
                                struct err *e)
{
    const json_t *one;
    size_t i;

    json_array_foreach (items, i, one) {
        if (!json_get_str(one, "text", &v[i].text) || v[i].text.n == 0)
            return err_set(e, ERR_FORMAT, "%s: item %zu has no \"text\"", path, i + 1);
        if (label_of(l, cli_bench_text_in(one, "class")) < 0)
            return err_set(e, ERR_FORMAT, "%s: item %zu: the routes have no class \"%.40s\"", path, i + 1,
                           cli_bench_text_in(one, "class"));
        v[i].files = STR("");
        (void)json_get_str(one, "files", &v[i].files);
    }
    return ERR_OK;
}

static void print_confusion(const struct bench *b, const struct labels *l)
{
    char line[1024];
    int n = snprintf(line, sizeof line, "%-12s", "is / found");

    for (int k = 0; k < l->n && n > 0 && n < 900; k++)
        n += snprintf(line + n, sizeof line - (size_t)n, " %9.9s", l->name[k]);
    cli_bench_line(b, "%s", line);
    for (int i = 0; i < l->n; i++) {
        n = snprintf(line, sizeof line, "%-12.12s", l->name[i]);
        for (int k = 0; k < l->n && n > 0 && n < 900; k++)
            n += snprintf(line + n, sizeof line - (size_t)n, " %9" PRId64, l->count[i * l->n + k]);
        cli_bench_line(b, "%s", line);
    }
}

static json_t *json_confusion(const struct labels *l)
{
    json_t *all = json_object();

    for (int i = 0; i < l->n; i++) {
        json_t *row = json_object();

        for (int k = 0; k < l->n; k++)
            if (l->count[i * l->n + k] > 0)
                cli_bench_int(row, l->name[k], l->count[i * l->n + k]);
        if (all != NULL)
            json_object_set_new(all, l->name[i], row);
    }
    return all;
}

static enum err_code report(struct bench *b, struct labels *l, const struct cli_request *v, const json_t *items,
                            const char *path, struct err *e)
{
    int64_t right[4] = { 0 }, n[4] = { 0 }, all = 0;
    const size_t total = json_array_size(items);
    struct eval_interval ci;
    char buf[128];
    json_t *r, *stages = json_object();

    for (size_t i = 0; i < total; i++) {
        const int want = label_of(l, cli_bench_text_in(json_array_get(items, i), "class"));
        const int got = label_of(l, v[i].class);

        l->count[want * l->n + got]++;
        n[v[i].stage]++;
        right[v[i].stage] += want == got;
        all += want == got;
    }
    ci = eval_wilson(all, (int64_t)total, 1.959964);
    r = cli_bench_record("classify", cli_bench_set_name(path, buf), "accuracy", "higher");
    cli_bench_real(r, "accuracy", (double)all / (double)total);
    cli_bench_real(r, "accuracy_lo", ci.lo);
    cli_bench_real(r, "accuracy_hi", ci.hi);
    cli_bench_real(r, "noise", (ci.hi - ci.lo) / 2 / sqrt(2));
    cli_bench_int(r, "n_items", (int64_t)total);
    cli_bench_line(b, "%-12s %5" PRId64 " of %5zu  %5.1f %%  [%.1f, %.1f]", buf, all, total,
                   100 * (double)all / (double)total, 100 * ci.lo, 100 * ci.hi);
    for (int s = 0; s < 4; s++) {
        const char *stage = cli_stage_name((enum cli_stage)s);

        cli_bench_line(b, "  %-10s %5" PRId64 " of %5" PRId64, stage, right[s], n[s]);
        if (stages != NULL)
            json_object_set_new(stages, stage,
                                json_pack("{s:I, s:I}", "n", (json_int_t)n[s], "right", (json_int_t)right[s]));
    }
    print_confusion(b, l);
    if (r != NULL &&
        (json_object_set_new(r, "stages", stages) || json_object_set_new(r, "confusion", json_confusion(l)))) {
        json_decref(r);
        return err_nomem(e);
    }
    return cli_bench_done(b, r, e);
}

static enum err_code classify(struct bench *b, const struct reason_routes *r, json_t *items, const char *path,
                              struct err *e)
{
    const size_t n = json_array_size(items);
    struct cli_request *v = calloc(n + 1, sizeof *v);
    struct labels l = { .n = 0 };
    size_t left = 0;
    enum err_code code = v != NULL ? make_labels(&l, r, e) : err_nomem(e);

    if (code == ERR_OK)
        code = read_items(v, items, &l, path, e);
    if (code == ERR_OK)
        code = cli_route_patterns(r, v, n, &left, e);
    if (code == ERR_OK)
        code = cli_bench_open(b, true, e);
    for (size_t i = 0; i < n && left > 0 && code == ERR_OK; i += AT_ONCE)
        code = cli_route_model(r, &b->open, b->o->parallel, v + i, n - i < AT_ONCE ? n - i : AT_ONCE, e);
    if (code == ERR_OK)
        code = report(b, &l, v, items, path, e);
    free(l.count);
    free(v);
    return code;
}

enum err_code cli_bench_cmd_classify(struct bench *b, struct err *e)
{
    struct reason_routes *r = NULL;
    json_t *items = NULL;
    enum err_code code;

    if (b->operands[0] == NULL || b->operands[1] == NULL || b->operands[2] != NULL)
        return err_set(e, ERR_ARG, "classify takes a file of routes and a set of prompts");
    if (cli_routes_open(&r, b->operands[0], e))
        return e->code;
    code = cli_bench_load(&items, b->operands[1], e);
    if (code == ERR_OK)
        code = json_array_size(items) > 0 ? classify(b, r, items, b->operands[1], e)
                                          : err_set(e, ERR_FORMAT, "%s: no items", b->operands[1]);
    json_decref(items);
    reason_routes_close(r);
    return code == ERR_OK ? code : cli_as_data(e);
}
