/* SPDX-License-Identifier: Apache-2.0 */
/* made_with.c - what answers are made with (made_with.h).                    room: cmd */
#include "serve-stdio/made_with.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "cli/beside.h"
#include "cli/open.h"
#include "quant/quant.h"
#include "reason/reason.h"
#include "sample/sample.h"

/* The rules for when thinking ends; without any the hash stays. */
static uint64_t hash_reason(uint64_t h, const struct reason_opts *r)
{
    char text[160];

    if (r->rule == REASON_RULE_NONE && !r->suppresses)
        return h;
    (void)snprintf(text, sizeof text, "%s %.9g every %" PRId64 " after %" PRId64 " tokens %d lag %d suppress %.9g",
                   reason_rule_name(r->rule), (double)r->threshold, r->every_tokens, r->after_tokens, r->trial_tokens,
                   r->lag, r->suppresses ? (double)r->suppress_above : -1);
    return io_hash(cli_hash_text(h, text), r->stub.p, r->stub.n);
}

static enum err_code hash_options(uint64_t *h, const struct cli_made_with_opts *o, struct err *e)
{
    const struct sample_opts *s = o->sample;
    const struct cli_model_opts *m = &o->open->o;
    char text[512];

    (void)snprintf(text, sizeof text,
                   "%g %d %g %g %g %g %g %g %d %g %g %d %d ctx %" PRId64 " n %" PRId64 " kv %.64s acts %s on %.64s",
                   (double)s->temp, s->top_k, (double)s->top_p, (double)s->min_p, (double)s->typical_p,
                   (double)s->repeat_penalty, (double)s->presence_penalty, (double)s->frequency_penalty,
                   s->penalty_last_n, (double)s->dry_multiplier, (double)s->dry_base, s->dry_allowed_length,
                   s->dry_last_n, o->ctx_tokens, o->predict_max, m->kv != NULL ? m->kv : "",
                   quant_acts_name((enum quant_acts_type)m->acts), cli_open_device_kind(m));
    *h = io_hash(cli_hash_text(0, text), s->dry_breakers, s->n_dry_breakers * sizeof *s->dry_breakers);
    *h = cli_hash_text(cli_hash_text(*h, o->parser) + 1, o->name);
    *h = hash_reason(*h + !o->reason->loops, o->reason);
    if (o->beside->retrieve == 1)
        *h = io_hash(*h, &o->beside->retrieve_below, sizeof o->beside->retrieve_below);
    if (o->verifier != NULL)
        *h = cli_hash_text(*h + 2, o->verifier);
    if (o->embed_layer >= 0)
        *h = io_hash(*h, &o->embed_layer, sizeof o->embed_layer);
    return cli_hash_file(h, o->calibration, e) || cli_hash_file(h, o->template_file, e) ? e->code : ERR_OK;
}

enum err_code cli_made_with(json_t **out, const struct cli_made_with_opts *o, struct err *e)
{
    uint64_t tables = 0, options = 0;

    if (cli_beside_hash(&tables, o->beside, e))
        return e->code;
    tables++;
    if (cli_hash_file(&tables, o->beside->context, e) || hash_options(&options, o, e))
        return e->code;
    *out = json_pack("{s:o, s:o, s:o, s:o}", "model", cli_json_hash(model_fingerprint(o->open->model)), "adapters",
                     cli_json_hash(o->open->adapters.hash), "tables", cli_json_hash(tables), "options",
                     cli_json_hash(options));
    return *out != NULL ? ERR_OK : err_nomem(e);
}

static void hash_age(uint64_t *h, const char *path)
{
    struct stat st;
    int64_t v[3] = { 0 };

    if (path != NULL && stat(path, &st) == 0) {
        v[0] = (int64_t)st.st_size;
        v[1] = (int64_t)st.st_mtim.tv_sec;
        v[2] = (int64_t)st.st_mtim.tv_nsec;
    }
    *h = io_hash(cli_hash_text(*h + 1, path), v, sizeof v);
}

enum err_code cli_fingerprint(uint64_t *out, const struct cli_made_with_opts *o, struct err *e)
{
    const char *files[] = { o->beside->context_table, o->beside->examples, o->beside->recite, o->beside->context },
               *domains;
    const uint64_t fixed[] = { model_fingerprint(o->open->model), o->open->adapters.hash, o->beside->engram_thinking };
    uint64_t h;
    float x = 0;
    char path[4096];

    if (hash_options(&h, o, e))
        return e->code;
    h = cli_hash_text(io_hash(h, fixed, sizeof fixed), CHIMERE_VERSION);
    for (size_t i = 0; i < o->beside->engrams.n; i++) {
        if (cli_engram_named(o->beside->engrams.v[i], path, sizeof path, &domains, &x, 1, e))
            return e->code;
        hash_age(&h, path);
        h = cli_hash_text(h, o->beside->engrams.v[i]);
    }
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        hash_age(&h, files[i]);
    *out = h;
    return ERR_OK;
}
