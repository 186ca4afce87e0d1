/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.c - the table of GPU kernels for products (gemm/gemm.h): printed, what runs when, and timed.   room: cmd */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "bench/bench.h"
#include "gemm/launch.h"
#include "model/launches.h"
#include "model/model.h"

enum { SCANNED = 1024, USED = 8, EXPERTS = 128 }; /* rows that are looked at; of experts: a usual layer */
#define K    2048                                 /* elements and rows of the weights */
#define ROWS 4096

static const int gpus[] = { 90, 120 };
enum { GPUS = sizeof gpus / sizeof *gpus };

/* ---- the table ---- */

static const char *of_name(enum gemm_of of)
{
    return of == GEMM_OF_EXPERTS ? "experts" : "matrices";
}

static void range_text(char buf[48], int64_t from, int64_t to)
{
    if (to == INT64_MAX)
        snprintf(buf, 48, "%" PRId64 " on", from);
    else if (from == to)
        snprintf(buf, 48, "%" PRId64, from);
    else
        snprintf(buf, 48, "%" PRId64 " to %" PRId64, from, to);
}

/* "up to n", or empty. */
static void most_text(char buf[48], int64_t n)
{
    buf[0] = '\0';
    if (n != INT64_MAX)
        snprintf(buf, 48, "%" PRId64, n);
}

static json_t *limit_json(int64_t n)
{
    return n == INT64_MAX ? json_null() : json_integer(n);
}

static enum err_code row_json(const struct gemm_kernel *k, struct err *e)
{
    return cli_json_line(
        json_pack("{s:s, s:s, s:s, s:s, s:s?, s:I, s:o, s:o, s:o, s:I, s:o, s:b, s:b, s:i, s:b, s:s?}", "type",
                  "kernel", "kernel", k->name, "of", of_name(k->of), "formats", gemm_formats_name(k->formats),
                  "all_formats", k->all < 0 ? NULL : gemm_formats_name((enum gemm_formats)k->all), "rows_min",
                  (json_int_t)k->rows_min, "rows_max", limit_json(k->rows_max), "elements_max", limit_json(k->k_max),
                  "outputs_max", limit_json(k->n_max), "uses_min", (json_int_t)k->each_min, "uses_below",
                  limit_json(k->each_end), "i16", (k->acts & GEMM_ACTS_16) != 0, "i8", (k->acts & GEMM_ACTS_8) != 0,
                  "sm", k->sm, "refuses", k->refuses, "note", k->note),
        e);
}

static void row_text(const struct bench *b, const struct gemm_kernel *k)
{
    char rows[48], elements[48], outputs[48], gpu[16] = "", formats[64];

    range_text(rows, k->rows_min, k->rows_max);
    most_text(elements, k->k_max);
    most_text(outputs, k->n_max);
    if (k->sm != 0)
        snprintf(gpu, sizeof gpu, "sm_%d", k->sm);
    snprintf(formats, sizeof formats, "%s%s%s", gemm_formats_name(k->formats), k->all < 0 ? "" : ", all ",
             k->all < 0 ? "" : gemm_formats_name((enum gemm_formats)k->all));
    cli_bench_line(b, "%-20s %-9s %-19s %-12s %-8s %-7s %-5s %-6s%s%s", k->name, of_name(k->of), formats, rows,
                   elements, outputs, k->acts == GEMM_ACTS_8 ? "8" : "16, 8", gpu,
                   k->refuses        ? " if: "
                   : k->note != NULL ? " "
                                     : "",
                   k->note != NULL ? k->note : "");
}

static enum err_code print_table(const struct bench *b, struct err *e)
{
    cli_bench_line(b, "%-20s %-9s %-19s %-12s %-8s %-7s %-5s %s", "kernel", "of", "formats", "rows", "elements",
                   "outputs", "bits", "GPU");
    for (int i = 0; i < GEMM_N_KERNELS; i++) {
        row_text(b, &gemm_kernels[i]);
        if (cli_bench_as_json(b) && row_json(&gemm_kernels[i], e))
            return e->code;
    }
    return ERR_OK;
}

/* ---- what runs ---- */

/* The kernels that a product of `rows` rows is offered to, in order, the last one takes it: bits of the table. */
static uint32_t offered(enum gemm_of of, int type, int64_t rows, bool eight, int sm)
{
    const struct gemm_product p = { .of = of,
                                    .type = type,
                                    .types = &type,
                                    .n_types = 1,
                                    .rows = rows,
                                    .k = K,
                                    .n = ROWS,
                                    .pairs = rows * USED,
                                    .n_expert = EXPERTS,
                                    .eight = eight,
                                    .sm = sm };
    uint32_t bits = 0;

    for (int i = gemm_pick(&p, 0); i >= 0; i = gemm_kernels[i].refuses ? gemm_pick(&p, i + 1) : -1)
        bits |= (uint32_t)1 << i;
    return bits;
}

static bool same_offers(enum gemm_of of, int a, int b, bool eight, int sm)
{
    for (int64_t rows = 1; rows <= SCANNED; rows++)
        if (offered(of, a, rows, eight, sm) != offered(of, b, rows, eight, sm))
            return false;
    return true;
}

struct choice {
    enum gemm_of of;
    int sm, type; /* the first format of those that are treated alike */
    bool eight;
};

static enum err_code one_range(const struct bench *b, const struct choice *c, json_t *formats, int64_t from, int64_t to,
                               struct err *e)
{
    const uint32_t bits = offered(c->of, c->type, from, c->eight, c->sm);
    char rows[48], names[256] = "";
    json_t *list = json_array();
    size_t at = 0;

    range_text(rows, from, to);
    for (int i = 0; i < GEMM_N_KERNELS; i++)
        if ((bits >> i & 1u) != 0) {
            json_array_append_new(list, json_string(gemm_kernels[i].name));
            at +=
                (size_t)snprintf(names + at, sizeof names - at, "%s%s", at > 0 ? ", else " : "", gemm_kernels[i].name);
        }
    cli_bench_line(b, "  %-12s %s", rows, names);
    if (!cli_bench_as_json(b)) {
        json_decref(list);
        return ERR_OK;
    }
    return cli_json_line(json_pack("{s:s, s:s, s:i, s:s, s:O, s:I, s:o, s:o}", "type", "kernel_choice", "of",
                                   of_name(c->of), "sm", c->sm, "acts", c->eight ? "i8" : "i16", "formats", formats,
                                   "rows_min", (json_int_t)from, "rows_max", limit_json(to), "kernels", list),
                         e);
}

static enum err_code print_ranges(const struct bench *b, const struct choice *c, json_t *formats, struct err *e)
{
    int64_t from = 1;

    for (int64_t rows = 2; rows <= SCANNED + 1; rows++) {
        if (rows <= SCANNED &&
            offered(c->of, c->type, rows, c->eight, c->sm) == offered(c->of, c->type, from, c->eight, c->sm))
            continue;
        if (one_range(b, c, formats, from, rows > SCANNED ? INT64_MAX : rows - 1, e))
            return e->code;
        from = rows;
    }
    return ERR_OK;
}

/* For one GPU and rounding: formats that run on the same kernels, and these. */
static enum err_code print_choices(const struct bench *b, struct choice c, struct err *e)
{
    bool done[QUANT_N] = { false };

    cli_bench_line(b, "\nsm_%d, activations of %d bits, %s", c.sm, c.eight ? 8 : 16, of_name(c.of));
    for (c.type = 0; c.type < QUANT_N; c.type++) {
        json_t *formats = json_array();
        char names[512] = "";
        size_t at = 0;

        for (int t = c.type; t < QUANT_N && !done[c.type]; t++)
            if (!done[t] && same_offers(c.of, c.type, t, c.eight, c.sm)) {
                json_array_append_new(formats, json_string(quant_types[t]->name));
                at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", at > 0 ? " " : "", quant_types[t]->name);
                done[t] = t > c.type;
            }
        if (!done[c.type]) {
            cli_bench_line(b, "%s", names);
            if (print_ranges(b, &c, formats, e)) {
                json_decref(formats);
                return e->code;
            }
        }
        json_decref(formats);
    }
    return ERR_OK;
}

/* ---- what a step becomes ---- */

static enum err_code launch_row(const struct bench *b, const struct gemm_launch *l, struct err *e)
{
    static const char *const uses[] = { [GEMM_USES_ANY] = NULL, [GEMM_USES_FEW] = "few", [GEMM_USES_MANY] = "many" };
    const char *bits = l->acts == GEMM_ACTS_8 ? "8" : l->acts == GEMM_ACTS_16 ? "16" : "16, 8";
    char rows[48], launches[32], gpu[16] = "";

    range_text(rows, l->rows_min, l->rows_max);
    snprintf(launches, sizeof launches, l->more > 0 ? "%d to %d" : "%d", l->n, l->n + l->more);
    if (l->sm != 0)
        snprintf(gpu, sizeof gpu, "sm_%d", l->sm);
    cli_bench_line(b, "%-9s %-13s %-6s %-5s %-23s %-7s %s%s%s", gemm_fusion_name(l->fusion), rows, bits, gpu, l->kernel,
                   launches, l->ops != NULL ? l->ops : "", l->ops != NULL && l->note != NULL ? ": " : "",
                   l->note != NULL ? l->note : "");
    if (!cli_bench_as_json(b))
        return ERR_OK;
    return cli_json_line(json_pack("{s:s, s:s, s:s?, s:I, s:o, s:b, s:b, s:i, s:s, s:i, s:i, s:s?, s:s?}", "type",
                                   "launch", "together", gemm_fusion_name(l->fusion), "operations", l->ops, "rows_min",
                                   (json_int_t)l->rows_min, "rows_max", limit_json(l->rows_max), "i16",
                                   (l->acts & GEMM_ACTS_16) != 0, "i8", (l->acts & GEMM_ACTS_8) != 0, "sm", l->sm,
                                   "kernel", l->kernel, "launches", l->n, "launches_max", l->n + l->more, "uses",
                                   uses[l->uses], "note", l->note),
                         e);
}

static enum err_code print_launches(const struct bench *b, struct err *e)
{
    const struct gemm_launch *l;
    struct model_span s;

    cli_bench_line(b, "\n%-9s %-10s %-28s %s", "part", "together", "of layers that are", "operations");
    for (int i = 0; model_span_at(i, &s); i++) {
        cli_bench_line(b, "%-9s %-10s %-28s %s", s.part, s.together, s.when, s.ops);
        if (cli_bench_as_json(b) &&
            cli_json_line(json_pack("{s:s, s:s, s:s, s:s, s:s}", "type", "step_part", "part", s.part, "together",
                                    s.together, "when", s.when, "operations", s.ops),
                          e))
            return e->code;
    }
    cli_bench_line(b, "\n%-9s %-13s %-6s %-5s %-23s %s", "together", "rows", "bits", "GPU", "kernel", "launches");
    for (int i = 0; (l = gemm_launch_at(i)) != NULL; i++)
        if (launch_row(b, l, e))
            return e->code;
    return ERR_OK;
}

/* ---- how long they take ---- */

/* A product that kernel i takes; false: there is none that is worth the time. */
static bool example(struct model_product *p, const struct gemm_kernel *k)
{
    static const int formats[GEMM_N_FORMATS] = { QUANT_bf16, QUANT_q2_k, QUANT_q4_k, QUANT_q4_k,
                                                 QUANT_q4_0, QUANT_q4_0, QUANT_q4_k, QUANT_q2_k };

    if (k->of != GEMM_OF_MATRICES)
        return false;
    p->type = formats[k->formats];
    p->k = K;
    p->n = k->n_max == 1 ? 1 : k == &gemm_kernels[GEMM_R2_16_LARGE] ? 40 * ROWS : ROWS;
    p->rows = k->rows_max < 64 ? k->rows_max : k->rows_min < 64 ? 63 : 512;
    return true;
}

static enum err_code time_kernel(struct bench *b, int i, const struct model_opts *o, struct err *e)
{
    const struct gemm_kernel *k = &gemm_kernels[i];
    struct model_product p = { .kernel = 1 + i, .reps = b->o->reps };
    struct bench_spread s;
    char what[128];
    json_t *r;

    if (!example(&p, k) || (k->acts & (o->acts == QUANT_ACTS_I8 ? GEMM_ACTS_8 : GEMM_ACTS_16)) == 0)
        return ERR_OK;
    p.us = calloc((size_t)p.reps, sizeof *p.us);
    if (p.us == NULL)
        return err_nomem(e);
    if (model_product_time(&p, o, e)) {
        free(p.us);
        return e->code;
    }
    s = cli_bench_spread(p.us, p.reps);
    free(p.us);
    if (!p.launched) { /* not on this GPU */
        cli_bench_line(b, "%-20s %-8s %6" PRId64 "         -", k->name, quant_types[p.type]->name, p.rows);
        return ERR_OK;
    }
    snprintf(b->device, sizeof b->device, "%s", p.device);
    snprintf(b->kernels, sizeof b->kernels, "%s", p.kernels);
    snprintf(what, sizeof what, "%s %s rows=%" PRId64 " elements=%" PRId64 " outputs=%" PRId64 " %s", k->name,
             quant_types[p.type]->name, p.rows, p.k, p.n, quant_acts_name(o->acts));
    r = cli_bench_record("kernel_time", what, "us", "lower");
    cli_bench_text(r, "kernel", k->name);
    cli_bench_text(r, "format", quant_types[p.type]->name);
    cli_bench_int(r, "rows", p.rows);
    cli_bench_put_spread(r, "us", "", s);
    cli_bench_put_noise(r, s);
    cli_bench_line(b, "%-20s %-8s %6" PRId64 " %9.1f %9.1f %9.1f %9.2f", k->name, quant_types[p.type]->name, p.rows,
                   s.median, s.min, s.max, 2e-6 * (double)p.rows * (double)p.k * (double)p.n / s.median);
    return cli_bench_done(b, r, e);
}

enum err_code cli_bench_cmd_kernels(struct bench *b, struct err *e)
{
    const struct model_opts o = { .device = b->o->model.device, .acts = (enum quant_acts_type)b->o->model.acts };

    if (o.device != NULL) {
        cli_bench_line(b, "%-20s %-8s %6s %9s %9s %9s %9s", "kernel", "format", "rows", "us", "least", "most",
                       "TFLOP/s");
        for (int i = 0; i < GEMM_N_KERNELS; i++) {
            if (cli_interrupted())
                return err_set(e, ERR_CANCEL, "interrupted");
            if (time_kernel(b, i, &o, e))
                return e->code;
        }
        return ERR_OK;
    }
    if (print_table(b, e))
        return e->code;
    for (int i = 0; i < GPUS * 2 * 2; i++)
        if (print_choices(b,
                          (struct choice){ .of = i / 4 % 2 == 0 ? GEMM_OF_MATRICES : GEMM_OF_EXPERTS,
                                           .sm = gpus[i % 2],
                                           .eight = i / 2 % 2 != 0 },
                          e))
            return e->code;
    return print_launches(b, e);
}
