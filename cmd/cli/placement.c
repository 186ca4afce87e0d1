/* SPDX-License-Identifier: Apache-2.0 */
/* placement.c - a plan for a device's memory, as text and JSON.                   room: cmd */
#include "cli/placement.h"

#include <inttypes.h>
#include <math.h>
#include <unistd.h>

#include "cli/estimate.h"
#include "run/placement.h"

/* ---- as text ---- */

/* "1.234 GB" */
struct amount {
    char text[24];
};

static struct amount amount(int64_t n)
{
    struct amount a;

    snprintf(a.text, sizeof a.text, n < 1000000000 ? "%8.3f MB" : "%8.3f GB", (double)n / (n < 1000000000 ? 1e6 : 1e9));
    return a;
}

static int64_t sum(const int64_t v[MODEL_N_CLASSES])
{
    int64_t all = 0;

    for (int c = 0; c < MODEL_N_CLASSES; c++)
        all += v[c];
    return all;
}

struct writer {
    cli_placement_line *line;
    void *ctx;
};

static void write_text(const struct writer *w, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void write_text(const struct writer *w, const char *fmt, ...)
{
    char text[256];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    w->line(w->ctx, text);
}

static int64_t host_memory(void)
{
    return (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
}

static bool fits_host(const struct run_placement *f)
{
    const int64_t experts = f->cache.slots > 0 ? f->cache.memory : f->weights.host[MODEL_EXPERTS];

    return experts + f->host_scratch_bytes < host_memory();
}

static int experts_here(const struct run_placement *f, int layer)
{
    return f->expert_bytes[layer] == 0 ? 0 : f->experts == NULL ? f->n_expert : f->experts->n_here[layer];
}

static bool same_layers(const struct run_placement *f, int a, int b)
{
    return (f->expert_bytes[a] == 0) == (f->expert_bytes[b] == 0) && experts_here(f, a) == experts_here(f, b);
}

/* Layers with experts, those that are alike and follow each other in one line. */
static void put_experts(const struct run_placement *f, const struct writer *w)
{
    double uses = 0, all = 0;

    for (int i = 0, j; i < f->n_layer; i = j) {
        char range[40];

        for (j = i + 1; j < f->n_layer && same_layers(f, i, j);)
            j++;
        if (f->expert_bytes[i] == 0)
            continue;
        snprintf(range, sizeof range, j - i > 1 ? "layers %d to %d" : "layer %d", i, j - 1);
        write_text(w, "  experts of %s: %d of %d on the device", range, experts_here(f, i), f->n_expert);
        all += (double)(j - i) * f->n_used;
        for (int k = i; k < j && f->experts != NULL; k++)
            uses += f->experts->host_uses[k];
    }
    if (f->experts == NULL)
        return;
    write_text(w, "  of %g uses of experts for each token %.3g are expected on the host%s", all, uses,
               f->measured ? "" : ", fewer once the most used are kept");
    if (!f->measured)
        write_text(w, "  which experts: those used most by %d tokens, measured before they are loaded",
                   RUN_PLACEMENT_TOKENS);
}

static void put_weights(const struct run_placement *f, const struct writer *w)
{
    for (int i = 0; i < MODEL_N_CLASSES; i++) {
        const char *name = model_class_name((enum model_class)i);

        if (f->weights.host[i] > 0 && f->weights.device[i] == 0)
            write_text(w, "  %-14s %s on the host", name, amount(f->weights.host[i]).text);
        else if (f->weights.host[i] > 0)
            write_text(w, "  %-14s %s, and %s on the host", name, amount(f->weights.device[i]).text,
                       amount(f->weights.host[i]).text);
        else if (f->weights.device[i] > 0)
            write_text(w, "  %-14s %s", name, amount(f->weights.device[i]).text);
    }
}

static void put_copied(const struct run_placement *f, const struct writer *w)
{
    if (f->weights.copied > 0)
        write_text(w, "  copied         %s of weights, to memory of the CPU's own", amount(f->weights.copied).text);
}

static void put_cache(const struct run_placement *f, const struct writer *w)
{
    if (f->cache.slots > 0)
        write_text(w,
                   "  from the disk  experts of the CPU, as they are used: %.3f GB of memory hold %" PRId64
                   " of %" PRId64 " (%.3f GB), about %.0f %% of the uses",
                   (double)f->cache.memory / 1e9, f->cache.slots, f->cache.experts, (double)f->cache.expert_bytes / 1e9,
                   100 * f->cache_share);
}

/* To two digits. */
static double rounded(double v)
{
    const double unit = v > 0 ? pow(10, floor(log10(v)) - 1) : 1;

    return unit * round(v / unit);
}

/* Of the bandwidth, to compare: what one large product reaches on an H200, and two that are beyond it. */
static const double shares[] = { .56, .75, .85 };
enum { N_SHARES = sizeof shares / sizeof *shares };

static void put_parts_of_token(const struct run_placement *f, const struct cli_estimate *x, const struct writer *w)
{
    char text[200] = "";
    size_t n = 0;

    for (int p = 0; p < CLI_N_PARTS; p++)
        if (x->part_bytes[p] > 0)
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%s %.3g GB", n > 0 ? ", " : "",
                                  cli_part_name((enum cli_part)p), x->part_bytes[p] / 1e9);
    write_text(w, "  bytes a token  %s; kv %.3g GB more at %" PRId64 " tokens", text, x->context_bytes / 1e9,
               f->ctx_tokens);
    for (int i = 0; i < N_SHARES; i++)
        write_text(w, "  at %.0f %%        of the bandwidth alone %.0f to %.0f tokens/s", 100 * shares[i],
                   cli_estimate_at(x, shares[i], true), cli_estimate_at(x, shares[i], false));
}

static void put_estimate(const struct run_placement *f, double device_bytes_per_s, const struct writer *w)
{
    const struct cli_estimate x = cli_estimate(f, device_bytes_per_s);
    const char *how[] = { "assumed", "measured" };
    char host[100] = "", disk[100] = "";

    if (!f->is_host && x.host_bytes > 0)
        snprintf(host, sizeof host, " and %.3g GB from the host at %.0f GB/s (%s)", x.host_bytes / 1e9,
                 x.host_bytes_per_s / 1e9, how[x.host_measured]);
    if (x.disk_bytes > 0)
        snprintf(disk, sizeof disk, ", and %.3g GB from the disk at %.2f GB/s (%s)", x.disk_bytes / 1e9,
                 x.disk_bytes_per_s / 1e9, how[f->disk_bytes_per_s > 0]);
    write_text(w, "  speed          about %.6g to %.6g tokens/s: a token reads %.3g GB%s at %.0f GB/s (%s)%s%s",
               rounded(x.least_tps), rounded(x.most_tps), x.device_bytes / 1e9, f->is_host ? "" : " from the card",
               x.device_bytes_per_s / 1e9, device_bytes_per_s > 0 ? "given" : how[x.device_measured], host, disk);
    put_parts_of_token(f, &x, w);
}

/* The layers of each device, where there are several. */
static void put_parts(const struct run_placement *f, const struct writer *w)
{
    for (int k = 0; k < f->n_dev && f->n_dev > 1; k++) {
        const struct run_placement_part *p = &f->part[k];
        char of[40] = "", what[40];

        if (p->budget_bytes > 0)
            snprintf(of, sizeof of, " of %.3f GB", (double)p->budget_bytes / 1e9);
        snprintf(what, sizeof what, f->rows ? "a part of every layer" : "layers %3d to %3d", p->first, p->end - 1);
        write_text(w,
                   "  %s on %s: weights %.3f GB, kv %.3f GB, state %.3f GB, logits %.3f GB, scratch %.3f GB; all %.3f "
                   "GB%s",
                   what, p->device, (double)f->weight_bytes[k] / 1e9, (double)p->kv_bytes / 1e9,
                   (double)p->state_bytes / 1e9, (double)p->logits_bytes / 1e9, (double)p->scratch_bytes / 1e9,
                   (double)p->total_bytes / 1e9, of);
    }
    if (f->n_dev > 1 && f->rows)
        write_text(w, "  %" PRId64 " exchanges of each token, %.4g KB in all", f->exchanges,
                   (double)f->exchange_bytes / 1e3);
    if (f->n_dev > 1 && !f->rows)
        write_text(w, "  %.4g KB of each token go from a device to the next", (double)f->pass_bytes / 1e3);
    if (f->n_dev < f->n_named)
        write_text(w, "  %d of %d devices: as few as have room for the model", f->n_dev, f->n_named);
}

void cli_placement_text(const struct run_placement *f, double device_bytes_per_s, cli_placement_line *line, void *ctx)
{
    const struct writer w = { line, ctx };

    if (f->budget_bytes > 0)
        write_text(&w, "plan for %s, %.4g GiB (%.3f GB) of its memory%s", f->device,
                   (double)f->budget_bytes / (1 << 30), (double)f->budget_bytes / 1e9,
                   f->present ? "" : ": a card of that size, which is not here");
    else
        write_text(&w, "plan for %s", f->device);
    put_parts(f, &w);
    if (!f->own_scratch)
        write_text(&w, "  scratch is an estimate: this program was built without CUDA");
    put_weights(f, &w);
    if (f->adapter_bytes > 0)
        write_text(&w, "  %-14s %s", "adapters", amount(f->adapter_bytes).text);
    if (f->beside_bytes > 0)
        write_text(&w, "  %-14s %s", "verifier", amount(f->beside_bytes).text);
    write_text(&w, "  %-14s %s, %s,%s: %" PRId64 " tokens of %d sequence%s", "kv", amount(f->kv_bytes).text, f->kv_k,
               f->kv_v, f->ctx_tokens, f->n_seq, f->n_seq > 1 ? "s" : "");
    if (f->kv_fallback)
        write_text(&w, "                 there is no room for f16, which is more exact");
    if (f->kv_tokens < f->ctx_tokens * f->n_seq)
        write_text(&w, "                 %" PRId64 " tokens of all together", f->kv_tokens);
    write_text(&w, "  %-14s %s", "state", amount(f->state_bytes).text);
    write_text(&w, "  %-14s %s", "logits", amount(f->logits_bytes).text);
    write_text(&w, "  %-14s %s, steps of %d rows", "scratch", amount(f->scratch_bytes).text, f->rows_max);
    if (f->fixed_bytes > 0)
        write_text(&w, "  %-14s %s, context and code%s", "the device", amount(f->fixed_bytes).text,
                   f->present ? "" : ": an allowance");
    write_text(&w, "  %-14s %s", "all", amount(f->total_bytes).text);
    if (f->experts != NULL)
        write_text(&w, "  the host       %s of experts, %s scratch%s", amount(f->weights.host[MODEL_EXPERTS]).text,
                   amount(f->host_scratch_bytes).text, fits_host(f) ? "" : ": MORE than the memory of this machine");
    put_copied(f, &w);
    put_cache(f, &w);
    put_experts(f, &w);
    put_estimate(f, device_bytes_per_s, &w);
}

/* ---- as JSON ---- */

static json_t *by_class(const int64_t v[MODEL_N_CLASSES])
{
    json_t *o = json_object();

    for (int i = 0; i < MODEL_N_CLASSES && o != NULL; i++)
        if (v[i] > 0)
            o = json_if(cli_json_set(o, model_class_name((enum model_class)i), json_integer(v[i])), o);
    return o;
}

static json_t *ids_json(const struct run_placement *f, int layer)
{
    json_t *list = json_array();

    for (int i = 0; i < f->n_expert; i++)
        if (f->experts->here[(int64_t)layer * f->n_expert + i])
            json_push(&list, json_integer(i));
    return list;
}

static json_t *layer_json(const struct run_placement *f, int i)
{
    json_t *o =
        json_pack("{s:i, s:I, s:i, s:f}", "layer", i, "expert_bytes", (json_int_t)f->expert_bytes[i], "device_experts",
                  experts_here(f, i), "host_uses", f->experts == NULL ? 0.0 : f->experts->host_uses[i]);

    if (o != NULL && f->experts != NULL && f->measured && experts_here(f, i) > 0 && experts_here(f, i) < f->n_expert)
        return json_if(cli_json_set(o, "device_expert_ids", ids_json(f, i)), o);
    return o;
}

static json_t *layers_json(const struct run_placement *f)
{
    json_t *list = json_array();

    for (int i = 0; i < f->n_layer; i++)
        if (f->expert_bytes[i] > 0)
            json_push(&list, layer_json(f, i));
    return list;
}

static json_t *parts_json(const struct run_placement *f)
{
    json_t *list = json_array();

    for (int k = 0; k < f->n_dev; k++) {
        const struct run_placement_part *p = &f->part[k];

        json_push(&list, json_pack("{s:s, s:b, s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "device", p->device,
                                   "present", p->present, "first_layer", p->first, "last_layer", p->end - 1,
                                   "budget_bytes", (json_int_t)p->budget_bytes, "total_bytes",
                                   (json_int_t)p->total_bytes, "fixed_bytes", (json_int_t)p->fixed_bytes,
                                   "device_weight_bytes", (json_int_t)f->weight_bytes[k], "kv_bytes",
                                   (json_int_t)p->kv_bytes, "state_bytes", (json_int_t)p->state_bytes, "logits_bytes",
                                   (json_int_t)p->logits_bytes, "scratch_bytes", (json_int_t)p->scratch_bytes));
    }
    return list;
}

static json_t *parts_of_token_json(const struct cli_estimate *x)
{
    json_t *o = json_pack("{s:f}", "kv", x->context_bytes);

    for (int p = 0; p < CLI_N_PARTS && o != NULL; p++)
        o = json_if(cli_json_set(o, cli_part_name((enum cli_part)p), json_real(x->part_bytes[p])), o);
    return o;
}

static json_t *shares_json(const struct cli_estimate *x)
{
    json_t *list = json_array();

    for (int i = 0; i < N_SHARES; i++)
        json_push(&list,
                  json_pack("{s:f, s:f, s:f}", "share", shares[i], "least_tps", cli_estimate_at(x, shares[i], true),
                            "most_tps", cli_estimate_at(x, shares[i], false)));
    return list;
}

static json_t *estimate_json(const struct run_placement *f, double device_bytes_per_s)
{
    const struct cli_estimate x = cli_estimate(f, device_bytes_per_s);

    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:b, s:b, s:f, s:f, s:b, s:o, s:o}", "least_tps", x.least_tps,
                     "most_tps", x.most_tps, "device_step_bytes", x.device_bytes, "host_step_bytes", x.host_bytes,
                     "context_step_bytes", x.context_bytes, "device_bytes_per_s", x.device_bytes_per_s,
                     "host_bytes_per_s", x.host_bytes_per_s, "device_measured", x.device_measured, "host_measured",
                     x.host_measured, "disk_step_bytes", x.disk_bytes, "disk_bytes_per_s", x.disk_bytes_per_s,
                     "disk_measured", f->disk_bytes_per_s > 0, "step_bytes_by_part", parts_of_token_json(&x), "shares",
                     shares_json(&x));
}

json_t *cli_placement_json(const struct run_placement *f, double device_bytes_per_s)
{
    const struct {
        const char *key;
        int64_t v;
    } ints[] = {
        { "budget_bytes", f->budget_bytes },
        { "total_bytes", f->total_bytes },
        { "fixed_bytes", f->fixed_bytes },
        { "device_weight_bytes", sum(f->weights.device) },
        { "host_weight_bytes", sum(f->weights.host) },
        { "copied_weight_bytes", f->weights.copied },
        { "kv_bytes", f->kv_bytes },
        { "state_bytes", f->state_bytes },
        { "logits_bytes", f->logits_bytes },
        { "scratch_bytes", f->scratch_bytes },
        { "host_scratch_bytes", f->host_scratch_bytes },
        { "host_memory_bytes", host_memory() },
        { "ctx_tokens", f->ctx_tokens },
        { "sequences", f->n_seq },
        { "kv_tokens", f->kv_tokens },
        { "chunk", f->rows_max },
        { "experts", f->n_expert },
        { "experts_used", f->n_used },
    };
    json_t *o = json_pack("{s:s, s:s, s:b, s:b}", "type", "plan", "device", f->device, "present", f->present,
                          "own_scratch", f->own_scratch);
    bool good = o != NULL;
    char kv[32];

    for (size_t i = 0; i < sizeof ints / sizeof *ints && good; i++)
        good = cli_json_set(o, ints[i].key, json_integer(ints[i].v));
    if (f->beside_bytes > 0)
        good = good && cli_json_set(o, "verifier_bytes", json_integer(f->beside_bytes));
    if (f->n_dev > 1)
        good = good && cli_json_set(o, "devices", parts_json(f)) &&
               cli_json_set(o, "split", json_string(f->rows ? "rows" : "layers"));
    if (f->n_dev > 1 && !f->rows)
        good = good && cli_json_set(o, "pass_bytes", json_integer(f->pass_bytes));
    if (f->n_dev > 1 && f->rows)
        good = good && cli_json_set(o, "exchanges", json_integer(f->exchanges)) &&
               cli_json_set(o, "exchange_bytes", json_integer(f->exchange_bytes));
    if (f->cache.slots > 0)
        good = good && cli_json_set(o, "expert_cache",
                                    json_pack("{s:I, s:I, s:I, s:I, s:f}", "memory_bytes", (json_int_t)f->cache.memory,
                                              "expert_bytes", (json_int_t)f->cache.expert_bytes, "slots",
                                              (json_int_t)f->cache.slots, "experts", (json_int_t)f->cache.experts,
                                              "share", f->cache_share));
    snprintf(kv, sizeof kv, "%s,%s", f->kv_k, f->kv_v);
    good = good && cli_json_set(o, "kv", json_string(kv)) &&
           cli_json_set(o, "kv_fallback", json_boolean(f->kv_fallback)) &&
           cli_json_set(o, "device_weight_bytes_by_kind", by_class(f->weights.device)) &&
           cli_json_set(o, "host_weight_bytes_by_kind", by_class(f->weights.host)) &&
           cli_json_set(o, "layers", layers_json(f)) && cli_json_set(o, "speed", estimate_json(f, device_bytes_per_s));
    return json_if(good, o);
}

static void to_stdout(void *ctx, const char *line)
{
    (void)ctx;
    puts(line);
}

static void to_note(void *ctx, const char *line)
{
    (void)ctx;
    cli_note("%s", line);
}

enum err_code cli_placement_print(const struct run_placement *f, double device_bytes_per_s, bool json, struct err *e)
{
    if (json)
        return cli_json_line(cli_placement_json(f, device_bytes_per_s), e);
    cli_placement_text(f, device_bytes_per_s, to_stdout, NULL);
    return cli_flush_stdout(e);
}

void cli_placement_note(const struct run_placement *f)
{
    if (f != NULL)
        cli_placement_text(f, 0, to_note, NULL);
}
