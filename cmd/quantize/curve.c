/* SPDX-License-Identifier: Apache-2.0 */
/* curve.c - --budget list: sizes and predicted losses of mixes, in lines and as a picture.       room: cmd */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/chart.h"
#include "cli/recipe.h"
#include "quant/quant.h"
#include "quantize/program.h"

struct row {
    char name[64];
    uint64_t bytes;
    double kl;                 /* NAN: one of its types was not measured */
    struct quantize_best best; /* kl NAN: no mix is so small */
};

/* The loss of a plan's types, NAN where a tensor has one that was not measured. */
static double predict_plan(const struct ramp_losses *l, const struct ramp_plan *p)
{
    double sum = 0, se;

    for (size_t i = 0; i < p->n; i++)
        if (l->measured[i] && p->v[i].type != gguf_tensor_at(l->g, i)->type)
            sum += l->kl[i][p->v[i].type];
    return isnan(sum) ? NAN : ramp_predict(l, sum, &se);
}

static enum err_code read_mix(struct row *row, const char *path, const struct quantize_options *o,
                              const struct ramp_losses *l, struct err *e)
{
    struct ramp_recipe *r = NULL;
    struct ramp_plan p = { 0 };
    int *type = NULL;
    enum err_code rc =
        ramp_recipe_open(&r, e) || cli_recipe_read(r, path, e) || ramp_plan_open(&p, r, l->g, false, o->again, e)
            ? e->code
            : ERR_OK;

    if (rc == ERR_OK && (type = calloc(p.n + 1, sizeof *type)) == NULL)
        rc = err_nomem(e);
    for (size_t i = 0; i < p.n && rc == ERR_OK; i++)
        type[i] = p.v[i].type;
    if (rc == ERR_OK) {
        cli_quantize_mix_name(path, row->name, sizeof row->name);
        row->bytes = ramp_file_bytes(l->g, type, r, NULL, CHIMERE_VERSION);
        row->kl = predict_plan(l, &p);
        row->best.kl = NAN;
    }
    free(type);
    ramp_plan_close(&p);
    ramp_recipe_close(r);
    return rc;
}

static int by_size(const void *a, const void *b)
{
    const struct row *x = a, *y = b;

    return x->bytes != y->bytes ? (x->bytes > y->bytes) - (x->bytes < y->bytes) : strcmp(x->name, y->name);
}

/* The best mix of each size; of equal sizes once. */
static enum err_code find_best(struct row *v, size_t n, const struct quantize_options *o, const struct ramp_losses *l,
                               const struct ramp_recipe *rules, struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        cli_progress_count("mixes", (int64_t)i, (int64_t)n, "");
        if (i > 0 && v[i].bytes == v[i - 1].bytes)
            v[i].best = v[i - 1].best;
        else if (cli_quantize_best(&v[i].best, o, l->g, l, rules, v[i].bytes, e) && e->code != ERR_LIMIT)
            return e->code;
    }
    *e = (struct err){ 0 };
    return ERR_OK;
}

/* ---- what is shown ---- */

static void print_number(double v, const char *fmt)
{
    char text[32] = "-";

    if (!isnan(v))
        snprintf(text, sizeof text, "%.4g", v);
    printf(fmt, text);
}

static void print_rows(const struct row *v, size_t n, const struct ramp_losses *l)
{
    double elems = 0;

    for (size_t i = 0; i < l->n; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(l->g, i);

        elems += (double)(t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3]);
    }
    printf("# KL in nats per token, predicted, on %s text\n", l->head.text);
    printf("#  bytes of file   bits  mix                 KL    best of that size        +-   of the mix's\n");
    for (size_t i = 0; i < n; i++) {
        printf("%16" PRIu64 " %6.3f  %-10s", v[i].bytes, 8 * (double)v[i].bytes / elems, v[i].name);
        print_number(v[i].kl, " %11s");
        print_number(v[i].best.kl, "          %11s");
        print_number(isnan(v[i].best.kl) ? NAN : v[i].best.se, " %9s");
        if (v[i].kl > 0 && !isnan(v[i].best.kl))
            printf(" %10.0f %%", 100 * v[i].best.kl / v[i].kl);
        putchar('\n');
    }
}

/* A loss of 0 has no logarithm and is left out. */
static enum err_code plot_rows(const char *path, const struct row *v, size_t n, struct err *e)
{
    static const char *const keys[] = { "best mix of each size (--budget size=BYTES)",
                                        "mixes that came with the program" };
    struct cli_chart_point *at = calloc(2 * n + 1, sizeof *at);
    struct cli_chart_series s[2] = { { .key = 0, .line = true, .v = at }, { .key = 1, .v = at + n } };
    const struct cli_chart c = { .title = "predicted loss by size",
                                 .x = { .title = "file, MB" },
                                 .y = { "KL, nats per token", .log = true },
                                 .v = s,
                                 .n = 2 };
    enum err_code rc;

    if (at == NULL)
        return err_nomem(e);
    for (size_t i = 0; i < n; i++) {
        if (v[i].best.kl > 0)
            at[s[0].n++] = (struct cli_chart_point){ .x = (double)v[i].best.file_bytes / 1e6, .y = v[i].best.kl };
        if (v[i].kl > 0)
            at[n + s[1].n++] =
                (struct cli_chart_point){ .x = (double)v[i].bytes / 1e6, .y = v[i].kl, .name = v[i].name };
    }
    rc = s[0].n + s[1].n > 0 ? cli_chart_write(path, &c, 1, keys, 2, e)
                             : err_set(e, ERR_FORMAT, "%s: no mix loses anything", path);
    free(at);
    return rc;
}

enum err_code cli_quantize_curve(const struct quantize_options *o, const struct ramp_losses *l,
                                 const struct ramp_recipe *rules, struct err *e)
{
    glob_t found;
    struct row *v;
    enum err_code rc = cli_quantize_mixes(&found, e);
    size_t n = 0;

    if (rc)
        return rc;
    v = calloc(found.gl_pathc + 1, sizeof *v);
    if (v == NULL)
        rc = err_nomem(e);
    for (; n < found.gl_pathc && rc == ERR_OK; n++)
        rc = read_mix(&v[n], found.gl_pathv[n], o, l, e);
    globfree(&found);
    if (rc == ERR_OK) {
        qsort(v, n, sizeof *v, by_size);
        rc = find_best(v, n, o, l, rules, e);
    }
    cli_progress_end();
    if (rc == ERR_OK) {
        print_rows(v, n, l);
        rc = cli_flush_stdout(e);
    }
    if (rc == ERR_OK && o->plot != NULL)
        rc = plot_rows(o->plot, v, n, e);
    free(v);
    return rc;
}
