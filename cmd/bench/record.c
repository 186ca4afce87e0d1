/* SPDX-License-Identifier: Apache-2.0 */
/* record.c - results: what they carry, how they are shown, how they compare.   room: cmd */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>
#include "base/io.h"
#include "base/pool.h"
#include "base/simd.h"
#include "bench/bench.h"
#include "gguf/gguf.h"
#include "model/model.h"

#ifndef CHIMERE_COMMIT
#define CHIMERE_COMMIT "unknown"
#endif

#define RECORDS_MAX (64U << 20) /* bytes of a file of records */

json_t *cli_bench_record(const char *type, const char *what, const char *metric, const char *better)
{
    return json_pack("{s:s, s:s, s:s, s:s}", "type", type, "case", what, "metric", metric, "better", better);
}

void cli_bench_real(json_t *r, const char *key, double v)
{
    if (r != NULL)
        json_object_set_new(r, key, cli_json_real(v));
}

void cli_bench_int(json_t *r, const char *key, int64_t v)
{
    if (r != NULL)
        json_object_set_new(r, key, json_integer(v));
}

void cli_bench_text(json_t *r, const char *key, const char *v)
{
    if (r != NULL)
        json_object_set_new(r, key, json_bytes(str_of(v)));
}

void cli_bench_put_spread(json_t *r, const char *key, const char *unit, struct bench_spread v)
{
    char name[64];

    snprintf(name, sizeof name, "%s%s", key, unit);
    cli_bench_real(r, name, v.median);
    snprintf(name, sizeof name, "%s_min%s", key, unit);
    cli_bench_real(r, name, v.min);
    snprintf(name, sizeof name, "%s_max%s", key, unit);
    cli_bench_real(r, name, v.max);
}

void cli_bench_put_noise(json_t *r, struct bench_spread v)
{
    cli_bench_real(r, "noise", (v.max - v.min) / 2 + 0.01 * v.median);
}

bool cli_bench_as_json(const struct bench *b)
{
    return b->o->json || (!b->o->table && !isatty(STDOUT_FILENO));
}

void cli_bench_line(const struct bench *b, const char *fmt, ...)
{
    char line[4096], *text = line;
    va_list ap;

    if (cli_bench_as_json(b))
        return;
    cli_progress_end();
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    if (*text == '\n') /* before a part of a table */
        putchar(*text++);
    cli_clean(text);
    puts(text);
}

/* The value after "key : " in a file like /proc/cpuinfo; empty if there is none. */
static void proc_value(const char *path, const char *key, char *buf, size_t buf_bytes)
{
    FILE *f = fopen(path, "r");
    char line[512];

    buf[0] = '\0';
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        char *colon = strchr(line, ':');

        if (colon == NULL || strncmp(line, key, strlen(key)) != 0)
            continue;
        colon++;
        colon += strspn(colon, " \t");
        colon[strcspn(colon, "\n")] = '\0';
        snprintf(buf, buf_bytes, "%s", colon);
        break;
    }
    if (f != NULL)
        fclose(f);
}

static json_t *hardware(const struct bench *b)
{
    char cpu[256], simd[128];
    struct utsname u;
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    json_t *h = json_object();
    double average[1] = { 0 };

    proc_value("/proc/cpuinfo", "model name", cpu, sizeof cpu);
    if (uname(&u) != 0)
        u.release[0] = u.machine[0] = '\0';
    cli_bench_text(h, "cpu", cpu[0] ? cpu : u.machine);
    cli_bench_int(h, "cpus", pool_cpus());
    cli_bench_text(h, "features", simd_names(simd_features(), simd, sizeof simd));
    cli_bench_int(h, "memory_bytes", (int64_t)pages * page);
    cli_bench_text(h, "system", u.release);
    if (getloadavg(average, 1) == 1)
        cli_bench_real(h, "load_average", average[0]);
    if (b->device[0] != '\0') {
        cli_bench_text(h, "device", b->device);
        cli_bench_text(h, "kernels", b->kernels);
        cli_bench_int(h, "n_threads", b->n_threads);
        enum quant_acts_type acts = (enum quant_acts_type)b->o->model.acts;
        if (acts == QUANT_ACTS_F32 && strncmp(b->device, "cuda", 4) == 0)
            acts = QUANT_ACTS_I16;
        cli_bench_text(h, "acts", quant_acts_name(acts));
        if (b->kv[0] != '\0')
            cli_bench_text(h, "kv", b->kv);
    }
    return h;
}

static json_t *build_facts(void)
{
    json_t *o = json_object();

    cli_bench_text(o, "version", CHIMERE_VERSION);
    cli_bench_text(o, "commit", CHIMERE_COMMIT);
#ifdef __VERSION__
    cli_bench_text(o, "compiler", __VERSION__);
#endif
    return o;
}

static json_t *model(const struct bench *b)
{
    json_t *o = json_object();
    char print[24];

    snprintf(print, sizeof print, "%016" PRIx64, b->fingerprint);
    cli_bench_text(o, "name", b->label);
    cli_bench_text(o, "fingerprint", print);
    cli_bench_int(o, "file_bytes", (int64_t)gguf_file_bytes(b->open.gguf));
    if (b->open.model != NULL) {
        cli_bench_text(o, "arch", model_info(b->open.model)->arch);
        cli_bench_int(o, "n_params", model_info(b->open.model)->n_params);
        cli_bench_int(o, "weight_bytes", model_info(b->open.model)->weight_bytes);
        cli_bench_int(o, "copied_weight_bytes", model_weights(b->open.model)->copied);
        cli_bench_int(o, "laid_weight_bytes", model_weights(b->open.model)->laid);
        if (model_info(b->open.model)->n_used > 0)
            cli_bench_int(o, "experts_used", model_info(b->open.model)->n_used);
    }
    return o;
}

/* ---- comparison ---- */

const char *cli_bench_text_in(const json_t *r, const char *key)
{
    const char *s = json_string_value(json_object_get(r, key));

    return s ? s : "";
}

/* Of two "hardware": the same processor and device. Kernels of a CPU may change with the program. */
static bool same_machine(const json_t *a, const json_t *b)
{
    const char *device = cli_bench_text_in(a, "device");

    return strcmp(cli_bench_text_in(a, "cpu"), cli_bench_text_in(b, "cpu")) == 0 &&
           strcmp(device, cli_bench_text_in(b, "device")) == 0 &&
           json_integer_value(json_object_get(a, "n_threads")) == json_integer_value(json_object_get(b, "n_threads")) &&
           (strcmp(device, "cpu") == 0 ||
            strcmp(cli_bench_text_in(a, "kernels"), cli_bench_text_in(b, "kernels")) == 0);
}

/* Speeds compare on like machines only; what a model says does not depend on the machine. */
static bool comparable(const json_t *old, const json_t *r)
{
    const char *type = cli_bench_text_in(r, "type");
    bool timed = strcmp(type, "speed") == 0 || strcmp(type, "bandwidth") == 0 || strcmp(type, "state") == 0;

    if (strcmp(cli_bench_text_in(old, "type"), type) != 0 ||
        strcmp(cli_bench_text_in(old, "case"), cli_bench_text_in(r, "case")) != 0 ||
        strcmp(cli_bench_text_in(old, "metric"), cli_bench_text_in(r, "metric")) != 0)
        return false;
    if (timed && !same_machine(json_object_get(old, "hardware"), json_object_get(r, "hardware")))
        return false;
    return !timed || strcmp(cli_bench_text_in(json_object_get(old, "model"), "fingerprint"),
                            cli_bench_text_in(json_object_get(r, "model"), "fingerprint")) == 0;
}

static enum err_code compare_record(struct bench *b, const json_t *r, struct err *e)
{
    const char *metric = cli_bench_text_in(r, "metric");
    const json_t *old = NULL;
    double now = json_number_value(json_object_get(r, metric)), was, noise, loss;
    bool worse;

    for (size_t i = 0; i < json_array_size(b->against); i++)
        if (comparable(json_array_get(b->against, i), r))
            old = json_array_get(b->against, i);
    if (old == NULL) {
        cli_warn("%s %s: nothing to compare with in %s", cli_bench_text_in(r, "type"), cli_bench_text_in(r, "case"),
                 b->o->against);
        return ERR_OK;
    }
    was = json_number_value(json_object_get(old, metric));
    noise = json_number_value(json_object_get(old, "noise")) + json_number_value(json_object_get(r, "noise"));
    loss = strcmp(cli_bench_text_in(r, "better"), "higher") == 0 ? was - now : now - was;
    worse = loss > noise;
    b->regressed = b->regressed || worse;
    cli_bench_line(b, "  %s: was %.6g, is %.6g (%+.2f %%), noise %.3g", worse ? "REGRESSION" : "as before", was, now,
                   was != 0 ? 100 * (now - was) / fabs(was) : 0, noise);
    if (worse)
        cli_warn("regression: %s %s: %s was %.6g, is %.6g, noise %.3g", cli_bench_text_in(r, "type"),
                 cli_bench_text_in(r, "case"), metric, was, now, noise);
    if (!cli_bench_as_json(b))
        return ERR_OK;
    return cli_json_line(json_pack("{s:s, s:s, s:s, s:f, s:f, s:f, s:b}", "type", "comparison", "case",
                                   cli_bench_text_in(r, "case"), "metric", metric, "before", was, "now", now, "noise",
                                   noise, "regression", worse),
                         e);
}

enum err_code cli_bench_done(struct bench *b, json_t *r, struct err *e)
{
    char when[32];
    time_t now = time(NULL);
    struct tm tm;
    enum err_code code = ERR_OK;

    if (r == NULL)
        return err_nomem(e);
    if (b->open.gguf != NULL)
        json_object_set_new(r, "model", model(b));
    json_object_set_new(r, "hardware", hardware(b));
    json_object_set_new(r, "build", build_facts());
    cli_bench_text(r, "command", b->command);
    gmtime_r(&now, &tm);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &tm);
    cli_bench_text(r, "time_utc", when);
    cli_progress_end();
    if (cli_bench_as_json(b))
        code = cli_json_line(json_incref(r), e);
    if (code == ERR_OK && b->against != NULL)
        code = compare_record(b, r, e);
    if (code == ERR_OK && !cli_bench_as_json(b))
        code = cli_flush_stdout(e);
    json_decref(r);
    return code;
}

enum err_code cli_bench_load(json_t **out, const char *path, struct err *e)
{
    json_t *all = json_array(), *item;
    char *data, *at, *end;
    size_t n;
    int line = 0;

    if (all == NULL)
        return err_nomem(e);
    if (io_read_all(&data, &n, path, RECORDS_MAX, cli_interrupted, e)) {
        json_decref(all);
        return e->code;
    }
    for (at = data; at < data + n; at = end + 1) {
        char what[300];

        end = memchr(at, '\n', (size_t)(data + n - at));
        end = end ? end : data + n;
        line++;
        if (strspn(at, " \t\r") >= (size_t)(end - at))
            continue;
        snprintf(what, sizeof what, "%.200s: line %d", path, line);
        if (json_parse(&item, (struct str){ at, (size_t)(end - at) }, what, e) || json_array_append_new(all, item)) {
            free(data);
            json_decref(all);
            return e->code ? e->code : err_nomem(e);
        }
    }
    free(data);
    *out = all;
    return ERR_OK;
}

/* ---- numbers ---- */

struct bench_spread cli_bench_spread(double *v, int n)
{
    eval_sort(v, n);
    return (struct bench_spread){ eval_quantile(v, n, 0.5), v[0], v[n - 1] };
}

enum err_code cli_bench_list(struct bench_list *out, const char *s, const char *option, int64_t least, int64_t most,
                             struct err *e)
{
    const char *all = s;

    out->n = 0;
    while (*s != '\0') {
        char *end;
        long long v = strtoll(s, &end, 10);

        if (*end == 'k' || *end == 'K') {
            v = v < INT64_MAX >> 10 ? v * 1024 : INT64_MAX;
            end++;
        }
        if (end == s || (*end != ',' && *end != '\0') || v < least || v > most || out->n == 32)
            return err_set(e, ERR_ARG, "--%s %.60s: not a list of at most 32 numbers from %lld to %lld", option, all,
                           (long long)least, (long long)most);
        out->v[out->n++] = v;
        s = *end == ',' ? end + 1 : end;
    }
    return ERR_OK;
}

int64_t cli_bench_most(const struct bench_list *l)
{
    int64_t most = 0;

    for (int i = 0; i < l->n; i++)
        most = l->v[i] > most ? l->v[i] : most;
    return most;
}
