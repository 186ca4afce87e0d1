/* SPDX-License-Identifier: Apache-2.0 */
/* plot.c - records as a picture: speed by depth, divergence by size, accuracy, rules.          room: cmd */
#include <stdlib.h>
#include <string.h>
#include "base/memory.h"
#include "bench/bench.h"
#include "cli/chart.h"

enum panel { PANEL_SPEED, PANEL_KL, PANEL_ACCURACY, PANEL_REASON, N_PANELS };

/* What records of rules are of: a rule through its thresholds and budgets are curves. */
static const char *const rules[] = { "none", "oracle", "budget", "eat", "cgr", "deer", "same", "abf" };
enum { POINTS = 2, RULES = sizeof rules / sizeof *rules };

enum { NAME_BYTES = 128, SETS_MAX = 40 };

/* A record that is drawn. What is joined by a line has one file, one name and follows in the file. */
struct mark {
    enum panel panel;
    int file;
    const json_t *record;
    struct cli_chart_point at;
    char name[NAME_BYTES]; /* the model, and how it was run where that differs */
};

struct plot {
    struct bench *b;
    json_t *files; /* array of arrays of records, which marks point into */
    struct mark *v;
    size_t n, cap;
    const char *sets[SETS_MAX]; /* names of task sets, in the order of the axis */
    int n_sets, n_files;
    bool one; /* of records of rules alone: the keys are these */
};

static double number_in(const json_t *r, const char *key)
{
    return json_number_value(json_object_get(r, key));
}

static int panel_of(const json_t *r)
{
    if (strcmp(cli_bench_text_in(r, "type"), "speed") == 0 && json_object_get(r, "decode_tps") != NULL)
        return PANEL_SPEED;
    if (strcmp(cli_bench_text_in(r, "type"), "kl") == 0)
        return PANEL_KL;
    if (strcmp(cli_bench_text_in(r, "type"), "reason") == 0)
        return PANEL_REASON;
    return strcmp(cli_bench_text_in(r, "type"), "eval") == 0 ? PANEL_ACCURACY : -1;
}

/* The place of a task set on the axis; -1: there are too many. */
static int place_of(struct plot *p, const char *set)
{
    for (int i = 0; i < p->n_sets; i++)
        if (strcmp(p->sets[i], set) == 0)
            return i;
    if (p->n_sets == SETS_MAX)
        return -1;
    p->sets[p->n_sets] = set;
    return p->n_sets++;
}

/* A model's name without directory and ".gguf". */
static void put_name(struct mark *m)
{
    const char *name = cli_bench_text_in(json_object_get(m->record, "model"), "name"), *slash = strrchr(name, '/');
    size_t n;

    snprintf(m->name, sizeof m->name, "%.60s", slash != NULL ? slash + 1 : name);
    n = strlen(m->name);
    if (n > 5 && strcmp(m->name + n - 5, ".gguf") == 0)
        m->name[n - 5] = '\0';
    cli_clean(m->name);
}

static int rule_of(const json_t *r)
{
    int k = 0;

    while (k + 1 < RULES && strcmp(cli_bench_text_in(r, "rule"), rules[k]) != 0)
        k++;
    return k;
}

static enum err_code add_mark(struct plot *p, int file, const json_t *r, struct err *e)
{
    const int panel = panel_of(r), place = panel == PANEL_ACCURACY ? place_of(p, cli_bench_text_in(r, "set")) : 0;
    struct mark *m;

    if (panel < 0)
        return ERR_OK;
    if (place < 0)
        return err_set(e, ERR_LIMIT, "plot: more than %d task sets", SETS_MAX);
    if (memory_room(&p->v, &p->cap, p->n + 1, sizeof *p->v, e))
        return e->code;
    m = &p->v[p->n++];
    *m = (struct mark){ .panel = (enum panel)panel, .file = file, .record = r };
    if (panel == PANEL_SPEED) {
        m->at = (struct cli_chart_point){ number_in(r, "depth_tokens"), number_in(r, "decode_tps"),
                                          number_in(r, "decode_min_tps"), number_in(r, "decode_max_tps"), NULL };
    } else if (panel == PANEL_KL) {
        const double kl = number_in(r, "kl_mean_nats"), se = number_in(r, "kl_mean_se_nats");

        m->at = (struct cli_chart_point){ number_in(json_object_get(r, "model"), "weight_bytes") / 1e6, kl, kl - se,
                                          kl + se, NULL };
    } else if (panel == PANEL_REASON) {
        const double y = 100 * number_in(r, "accuracy");

        m->at = (struct cli_chart_point){ number_in(r, "tokens") + number_in(r, "probe_rows"), y, y, y, NULL };
    } else {
        m->at = (struct cli_chart_point){ place + .8 / (p->n_files + 1) * (file - (p->n_files - 1) / 2.),
                                          100 * number_in(r, "accuracy"), 100 * number_in(r, "accuracy_lo"),
                                          100 * number_in(r, "accuracy_hi"), NULL };
    }
    if (panel == PANEL_REASON)
        snprintf(m->name, sizeof m->name, "%s", rules[rule_of(r)]);
    else
        put_name(m);
    return ERR_OK;
}

/* ---- what differs between records of one model ---- */

static const char *const ways[] = { "device", "cpu", "n_threads", "acts", "kv", "vram" };

static void put_way(const json_t *r, const char *way, char *buf, size_t buf_bytes)
{
    const json_t *v = json_object_get(json_object_get(r, "hardware"), way);

    if (json_is_integer(v))
        snprintf(buf, buf_bytes, "%lld threads", (long long)json_integer_value(v));
    else
        snprintf(buf, buf_bytes, "%.40s", json_is_string(v) ? json_string_value(v) : "");
}

/* Names of speeds also say how the model was run, as far as other records of it were run otherwise. */
static void tell_ways(struct plot *p)
{
    for (size_t k = 0; k < sizeof ways / sizeof *ways; k++)
        for (size_t i = 0; i < p->n; i++) {
            const char *model = cli_bench_text_in(json_object_get(p->v[i].record, "model"), "name");
            char mine[48], other[48];
            bool differs = false;

            put_way(p->v[i].record, ways[k], mine, sizeof mine);
            for (size_t j = 0; j < p->n && p->v[i].panel == PANEL_SPEED && *mine != '\0' && !differs; j++) {
                put_way(p->v[j].record, ways[k], other, sizeof other);
                differs = p->v[j].panel == PANEL_SPEED && p->v[j].file == p->v[i].file && *other != '\0' &&
                          strcmp(mine, other) != 0 &&
                          strcmp(model, cli_bench_text_in(json_object_get(p->v[j].record, "model"), "name")) == 0;
            }
            if (differs) {
                const size_t n = strlen(p->v[i].name);

                snprintf(p->v[i].name + n, sizeof p->v[i].name - n, ", %s", mine);
                cli_clean(p->v[i].name);
            }
        }
}

/* ---- the picture ---- */

static bool is_line(const struct mark *m)
{
    return m->panel == PANEL_SPEED || (m->panel == PANEL_REASON && rule_of(m->record) >= POINTS);
}

/* Marks of a panel in series, those of a file with one name that follow each other: speeds and rules are a line, with
 * the name at its end; accuracies have it at the first. */
static size_t cut_series(const struct plot *p, enum panel panel, struct cli_chart_series *s, struct cli_chart_point *at)
{
    size_t n = 0, used = 0;

    for (size_t i = 0; i < p->n; i++) {
        const struct mark *m = &p->v[i];
        const bool goes_on = i > 0 && panel != PANEL_KL && p->v[i - 1].panel == panel && p->v[i - 1].file == m->file &&
                             strcmp(p->v[i - 1].name, m->name) == 0 &&
                             (m->at.x > p->v[i - 1].at.x || panel == PANEL_REASON);

        if (m->panel != panel)
            continue;
        if (goes_on && is_line(m))
            at[used - 1].name = NULL;
        if (!goes_on)
            s[n++] = (struct cli_chart_series){
                .key = p->one ? rule_of(m->record) : m->file, .line = is_line(m), .v = &at[used], .n = 0
            };
        at[used] = m->at;
        at[used++].name = *m->name != '\0' && !(goes_on && panel == PANEL_ACCURACY) ? m->name : NULL;
        s[n - 1].n++;
    }
    return n;
}

static bool all_positive(const struct plot *p, enum panel panel)
{
    for (size_t i = 0; i < p->n; i++)
        if (p->v[i].panel == panel && !(p->v[i].at.y > 0))
            return false;
    return true;
}

static enum err_code draw(const struct plot *p, const char *path, struct err *e)
{
    const char *const *keys = p->one ? rules : (const char *const *)p->b->operands;
    struct cli_chart c[N_PANELS] = {
        { .title = "decode", .x = { "depth, tokens", .from_zero = true }, .y = { "tokens/s", .from_zero = true } },
        { .title = "divergence",
          .x = { .title = "weights, MB" },
          .y = { "KL, nats per token", .from_zero = !all_positive(p, PANEL_KL), .log = all_positive(p, PANEL_KL) } },
        { .title = "accuracy, 95 % interval",
          .x = { "task set", .words = p->sets, .n_words = p->n_sets },
          .y = { "%", .from_zero = true, .most = 100 } },
        { .title = "reasoning",
          .x = { "tokens of thinking, and rows of probes", .from_zero = true },
          .y = { "% right", .from_zero = true, .most = 100 } },
    };
    struct cli_chart_series *s = calloc(p->n, sizeof *s);
    struct cli_chart_point *at = calloc(p->n, sizeof *at);
    int n = 0;
    enum err_code code = s != NULL && at != NULL ? ERR_OK : err_nomem(e);

    for (size_t i = 0, used = 0, points = 0; i < N_PANELS && code == ERR_OK; i++) {
        const size_t more = cut_series(p, (enum panel)i, s + used, at + points);

        c[n] = c[i];
        c[n].v = s + used;
        c[n].n = more;
        for (size_t k = 0; k < more; k++)
            points += s[used + k].n;
        used += more;
        n += more > 0;
    }
    if (code == ERR_OK)
        code = cli_chart_write(path, c, n, keys, p->one ? RULES : p->n_files, e);
    free(s);
    free(at);
    return code;
}

static enum err_code add_marks(struct plot *p, int file, const json_t *records, struct err *e)
{
    for (size_t i = 0; i < json_array_size(records); i++)
        if (add_mark(p, file, json_array_get(records, i), e))
            return e->code;
    return ERR_OK;
}

enum err_code cli_bench_draw_rules(struct bench *b, const json_t *records, const char *path, struct err *e)
{
    struct plot p = { .b = b, .n_files = 1, .one = true };
    enum err_code code = add_marks(&p, 0, records, e);

    if (code == ERR_OK)
        code = draw(&p, path, e);
    free(p.v);
    return code;
}

enum err_code cli_bench_cmd_plot(struct bench *b, struct err *e)
{
    struct plot p = { .b = b, .files = json_array() };
    enum err_code code = p.files != NULL ? ERR_OK : err_nomem(e);

    if (b->o->out == NULL || *b->operands == NULL)
        code = err_set(e, ERR_ARG, "plot: needs files of records and -o FILE.svg");
    while (b->operands[p.n_files] != NULL)
        p.n_files++;
    for (int f = 0; code == ERR_OK && f < p.n_files; f++) {
        json_t *records;

        code = cli_bench_load(&records, b->operands[f], e);
        if (code == ERR_OK && json_array_append_new(p.files, records))
            code = err_nomem(e);
        if (code == ERR_OK)
            code = add_marks(&p, f, records, e);
    }
    if (code == ERR_OK && p.n == 0)
        code = err_set(e, ERR_FORMAT, "plot: no records of decode speed, divergence, accuracy or rules in these files");
    if (code == ERR_OK) {
        tell_ways(&p);
        code = draw(&p, b->o->out, e);
    }
    free(p.v);
    json_decref(p.files);
    return code;
}
