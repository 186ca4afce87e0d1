/* SPDX-License-Identifier: Apache-2.0 */
/* open.c - from options to an open model and its run.                       room: cmd */
#include "base/clock.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/reads.h"
#include "cli/devices.h"
#include "cli/estimate.h"
#include "cli/open.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/expert_cache.h"
#include "cli/expert_uses.h"
#include "gguf/gguf.h"
#include "run/placement.h"
#include "cli/recipe.h"
#include "text/text.h"

struct model_opts cli_open_model_opts(const struct cli_model_opts *o)
{
    return (struct model_opts){ .device = cli_open_device(o),
                                .n_threads = o->n_threads,
                                .acts = (enum quant_acts_type)o->acts,
                                .n_used = o->experts,
                                .placement.rows = cli_devices_rows(o),
                                .placement.copy_weights = o->no_mmap,
                                .placement.cache_bytes = o->cache_bytes,
                                .placement.as_stored = o->repack == CLI_REPACK_OFF };
}

void cli_open_kv(const struct cli_model_opts *o, struct run_opts *ro, char buf[CLI_KV_BYTES])
{
    char *comma;

    if (o->kv == NULL)
        return;
    snprintf(buf, CLI_KV_BYTES, "%s", o->kv);
    comma = strchr(buf, ',');
    ro->kv_k = buf;
    ro->kv_v = comma ? comma + 1 : buf;
    if (comma)
        *comma = '\0';
}

static enum err_code check_kv(const struct cli_model_opts *o, struct err *e)
{
    char buf[CLI_KV_BYTES];
    struct run_opts ro = { 0 };

    cli_open_kv(o, &ro, buf);
    if (ro.kv_k != NULL && (run_kv_known(ro.kv_k, e) || run_kv_known(ro.kv_v, e)))
        return err_wrap(e, "--kv %s", o->kv);
    return ERR_OK;
}

enum err_code cli_open(struct cli_opened *x, const struct cli_model_opts *o, struct err *e)
{
    double from = clock_ms();

    x->o = *o;
    if (check_kv(o, e) || cli_model_path(o->file, x->path, sizeof x->path, e))
        return e->code;
    cli_signals(x->path);
    if (gguf_open(&x->gguf, x->path, e) || cli_adapters_open(&x->adapters, &o->loras, x->gguf, e))
        return e->code;
    cli_tell_slow(x->path);
    x->load_ms += clock_ms() - from;
    return ERR_OK;
}

enum err_code cli_open_shape(struct cli_opened *x, const struct cli_model_opts *o, const struct shape *shape,
                             struct err *e)
{
    x->o = *o;
    return check_kv(o, e) ? e->code : cli_shape_holes(&x->gguf, x->path, sizeof x->path, shape, e);
}

static enum err_code check_kind(const struct cli_opened *x, struct err *e)
{
    const char *what = cli_adapter_what(x->gguf);
    struct str arch;

    if (what == NULL && gguf_str(x->gguf, "general.architecture", &arch) && str_is(arch, "dflash"))
        what = "a drafter, for --draft";
    return what != NULL ? err_set(e, ERR_FORMAT, "%s: not a model but %s", x->path, what) : ERR_OK;
}

enum err_code cli_open_text(struct cli_opened *x, bool need, struct err *e)
{
    double from = clock_ms();

    if (check_kind(x, e))
        return e->code;

    if (text_open(&x->text, x->gguf, e)) {
        if (need || e->code != ERR_UNSUPPORTED)
            return e->code;
        cli_note("text     none: %s", e->msg);
    }
    x->load_ms += clock_ms() - from;
    return ERR_OK;
}

/* Opens the model, which may be a dry run. */
static enum err_code open_timed(struct cli_opened *x, const struct model_opts *o, struct err *e)
{
    if (model_open(&x->model, x->gguf, o, e))
        return e->code;
    x->device_ms += model_info(x->model)->device_ms;
    x->weights_ms += model_info(x->model)->weights_ms;
    return ERR_OK;
}

static bool wants_plan(const struct cli_model_opts *o)
{
    return o->plan || o->profile != NULL || !cli_open_on_cpu(o) || cli_devices_shares(o, NULL) > 0;
}

enum err_code cli_open_model(struct cli_opened *x, struct err *e)
{
    double from = clock_ms();

    if (check_kind(x, e))
        return e->code;
    x->mo = cli_open_model_opts(&x->o);
    x->mo.nextn = x->nextn;
    x->mo.progress = x->progress;
    x->dry_run = wants_plan(&x->o);
    const struct model_opts dry = { .device = "cpu",
                                    .n_threads = x->o.n_threads,
                                    .n_used = x->o.experts,
                                    .nextn = x->nextn,
                                    .placement.dry_run = true };
    if (open_timed(x, x->dry_run ? &dry : &x->mo, e))
        return e->code;
    x->load_ms += clock_ms() - from;
    return ERR_OK;
}

/* ---- the plan ---- */

/* Reads the profile, which must be of this model. */
static enum err_code read_profile(struct cli_opened *x, struct err *e)
{
    int n_expert = model_n_expert(x->model);

    if (x->o.profile == NULL)
        return ERR_OK;
    if (n_expert == 0)
        return err_set(e, ERR_UNSUPPORTED, "--expert-profile: the model has no routed experts");
    return cli_uses_read(&x->uses, x->o.profile, model_fingerprint(x->model), model_info(x->model)->n_layer, n_expert,
                         e);
}

static enum err_code plan_for(struct cli_opened *x, const char *device, const struct run_opts *ro, struct err *e)
{
    struct run_placement_opts fo = { .model = x->mo, .run = *ro, .uses = x->uses };
    int64_t sizes[MODEL_DEVS_MAX];
    double shares[MODEL_DEVS_MAX], speeds[MODEL_DEVS_MAX];
    int n = 0;

    fo.model.device = device;
    fo.run.adapter_rank = fo.run.adapter_rank > x->adapters.rank ? fo.run.adapter_rank : x->adapters.rank;
    fo.adapters = x->adapters.file;
    fo.n_adapters = x->adapters.n;
    fo.beside_bytes = x->beside_bytes;
    fo.absent = x->o.plan && x->o.vram != NULL;
    fo.fewest = strcmp(device, "cuda:all") == 0;
    fo.share = cli_devices_shares(&x->o, shares) > 0 ? shares : NULL;
    if (x->o.vram != NULL && strncmp(device, "cpu", 3) != 0 && cli_devices_sizes(&n, sizes, x->o.vram, e))
        return e->code;
    if (n == 1)
        fo.budget_bytes = sizes[0];
    if (n > 1)
        fo.budgets = sizes;
    for (int i = 0; i < n && fo.absent; i++)
        speeds[i] = cli_estimate_card(sizes[i]);
    fo.speed = n > 1 && fo.absent ? speeds : NULL;
    return run_placement_make(&x->placement, x->gguf, &fo, e);
}

/* How fast the file that experts are read from gives matrices of their size. */
static enum err_code measure_disk(struct cli_opened *x, struct err *e)
{
    struct run_placement *p = x->placement;
    const int64_t one = p->cache.experts > 0 ? p->cache.expert_bytes / p->cache.experts / 3 : 0;
    struct stat st;

    if (p->cache.slots == 0 || stat(x->path, &st) != 0 || st.st_size < 64 * one)
        return ERR_OK; /* a shape, or too little to say anything */
    return io_reads_speed(&p->disk_bytes_per_s, x->path, (size_t)one, e);
}

enum err_code cli_open_plan(struct cli_opened *x, const struct run_opts *opts, struct err *e)
{
    const char *device = x->mo.device;
    bool any = strcmp(device, "auto") == 0;
    double from = clock_ms();
    struct run_opts ro = *opts;
    char kv[CLI_KV_BYTES];
    enum err_code code;

    if (!wants_plan(&x->o) || x->placement != NULL)
        return ERR_OK;
    cli_open_kv(&x->o, &ro, kv);
    if (read_profile(x, e))
        return e->code;
    device = any ? "cuda" : device;
    code = plan_for(x, device, &ro, e);
    if ((code == ERR_DEVICE || code == ERR_UNSUPPORTED) && any) {
        cli_note("device   cpu, for: %s", e->msg);
        device = "cpu";
        code = plan_for(x, device, &ro, e);
    }
    if (code != ERR_OK)
        return code;
    if (x->o.plan && measure_disk(x, e))
        return e->code;
    if (!x->o.plan && run_placement_measure(x->placement, x->gguf, x->o.n_threads, e))
        return e->code;
    if (x->placement->kv_fallback)
        cli_warn("keys and values are kept as %s,%s: there is no room for f16, which is more exact", x->placement->kv_k,
                 x->placement->kv_v);
    if (x->placement->n_dev < x->placement->n_named)
        cli_note("device   %s: as few of %d as have room for the model", x->placement->device, x->placement->n_named);
    x->mo.placement.count_sets = x->o.profile != NULL;
    x->mo.placement.uses = x->uses;
    run_placement_apply(x->placement, &x->mo);
    x->load_ms += clock_ms() - from;
    return ERR_OK;
}

enum err_code cli_open_fits(struct cli_opened *x, const struct run_opts *opts, struct err *e)
{
    struct run_opts ro = *opts;
    char kv[CLI_KV_BYTES];
    int64_t bytes, left;

    if (wants_plan(&x->o) || x->placement != NULL)
        return ERR_OK;
    cli_open_kv(&x->o, &ro, kv);
    if (plan_for(x, "cpu", &ro, e))
        return e->code;
    bytes = x->placement->kv_bytes + x->placement->state_bytes + x->placement->logits_bytes + x->beside_bytes[0];
    run_placement_free(x->placement);
    x->placement = NULL;
    left = memory_left("");
    if (left < 0 || bytes <= left)
        return ERR_OK;
    return err_set(e, ERR_LIMIT,
                   "%d sequences of %" PRId64
                   " tokens take %.1f GB%s, and %.1f GB of memory are free: --ctx and -n make "
                   "them shorter",
                   ro.n_seq, ro.ctx_tokens, (double)bytes / 1e9,
                   x->beside_bytes[0] > 0 ? " with those of the verifier" : "", (double)left / 1e9);
}

enum err_code cli_open_load(struct cli_opened *x, const struct run_opts *ro, struct err *e)
{
    double from;

    if (cli_open_plan(x, ro, e))
        return e->code;
    if (!x->dry_run)
        return ERR_OK;
    from = clock_ms();
    model_close(x->model);
    x->model = NULL;
    x->dry_run = false;
    if (open_timed(x, &x->mo, e))
        return e->code;
    x->load_ms += clock_ms() - from;
    return ERR_OK;
}

enum err_code cli_open_run(struct run **out, struct cli_opened *x, const struct run_opts *opts, struct err *e)
{
    struct run_opts ro = *opts;
    struct run *run;
    char kv[CLI_KV_BYTES];
    double from, warm;

    if (cli_open_load(x, opts, e))
        return e->code;
    from = clock_ms();
    cli_open_kv(&x->o, &ro, kv);
    if (x->placement != NULL)
        run_placement_apply_run(x->placement, &ro);
    ro.adapter_rank = ro.adapter_rank > x->adapters.rank ? ro.adapter_rank : x->adapters.rank;
    if (run_open(&run, x->model, &ro, e))
        return e->code;
    warm = clock_ms();
    if (cli_adapters_set(&x->adapters, x->model, run, e) || run_warm_up(run, e)) {
        run_close(run);
        return e->code;
    }
    *out = run;
    x->warm_up_ms += clock_ms() - warm;
    cli_cache_warn(x->model, x->o.cache_bytes);
    x->load_ms += clock_ms() - from;
    return ERR_OK;
}

uint64_t cli_open_fingerprint(const struct cli_opened *x)
{
    const uint64_t h = model_fingerprint(x->model);

    return x->adapters.n > 0 ? io_hash(h, &x->adapters.hash, sizeof x->adapters.hash) : h;
}

enum err_code cli_open_save_uses(const struct cli_opened *x, struct err *e)
{
    if (x->o.profile == NULL)
        return ERR_OK;
    return cli_uses_write(x->o.profile, model_fingerprint(x->model), x->uses, x->model, e);
}

void cli_opened_close(struct cli_opened *x)
{
    text_close(x->text);
    cli_adapters_close(&x->adapters);
    model_close(x->model);
    run_placement_free(x->placement);
    free(x->uses);
    gguf_close(x->gguf);
    *x = (struct cli_opened){ 0 };
}
