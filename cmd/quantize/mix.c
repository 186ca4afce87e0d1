/* SPDX-License-Identifier: Apache-2.0 */
/* mix.c - budgets of the command line, and the mix that loses least under them.     room: cmd */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/recipe.h"
#include "model/class.h"
#include "model/model.h"
#include "quant/quant.h"
#include "quantize/program.h"
#include "ramp/search.h"
#include "run/placement.h"

enum { ROUNDS = 12 };

/* Mixes that came with the program: types of tensors that a loss cannot see are those of the nearest in size. */
static const char *const mixes[] = { "iq1_s",   "iq1_m",  "iq2_xxs", "iq2_xs", "iq2_s",  "iq2_m",  "q2_k",
                                     "iq3_xxs", "iq3_xs", "q3_k_s",  "iq3_m",  "q3_k_m", "q3_k_l", "iq4_xs",
                                     "q4_k_s",  "q4_k_m", "q5_k_s",  "q5_k_m", "q6_k",   "q8_0" };

enum kind { SIZE, TOKEN_BYTES, VRAM };

struct budget {
    enum kind kind;
    int64_t bytes, ctx_tokens;
    double *part;
};

struct mixer {
    const struct quantize_options *o;
    const struct gguf *g;
    const struct ramp_losses *l;
    struct budget wish[RAMP_BUDGETS_MAX];
    struct ramp_budget budget[RAMP_BUDGETS_MAX];
    int n;
    int n_layer, n_expert, n_used;
    bool tied;
    struct ramp_plan unseen;
    struct ramp_mix mix;
    char *text;
    uint64_t file_bytes;
};

/* ---- budgets ---- */

static enum err_code read_wish(struct budget *w, const char *text, struct err *e)
{
    char word[128], *comma;

    if (strlen(text) >= sizeof word)
        return err_set(e, ERR_ARG, "--budget: %.60s...: too long", text);
    snprintf(word, sizeof word, "%s", text);
    comma = strchr(word, ',');
    if (comma != NULL)
        *comma = '\0';
    *w = (struct budget){ 0 };
    if (strncmp(word, "size=", 5) == 0)
        w->kind = SIZE;
    else if (strncmp(word, "token-bytes=", 12) == 0)
        w->kind = TOKEN_BYTES;
    else if (strncmp(word, "vram=", 5) == 0)
        w->kind = VRAM;
    else
        return err_set(e, ERR_ARG, "--budget %s: not size=BYTES, token-bytes=BYTES or vram=BYTES,ctx=TOKENS", text);
    if (cli_size(&w->bytes, strchr(word, '=') + 1, "budget", e))
        return err_set(e, ERR_ARG, "--budget %s: not a size such as 512M or 16G", text);
    if (comma == NULL && w->kind == VRAM)
        return err_set(e, ERR_ARG, "--budget %s: say for what context: %s,ctx=65536", text, text);
    if (comma == NULL)
        return ERR_OK;
    if (w->kind != VRAM || strncmp(comma + 1, "ctx=", 4) != 0)
        return err_set(e, ERR_ARG, "--budget %s: only vram takes more after a comma, ctx=TOKENS", text);
    if (cli_size(&w->ctx_tokens, comma + 5, "budget", e) || w->ctx_tokens > 1 << 30)
        return err_set(e, ERR_ARG, "--budget %s: ctx is not a number of tokens", text);
    return ERR_OK;
}

static enum err_code read_wishes(struct mixer *x, struct err *e)
{
    for (size_t i = 0; i < x->o->budgets.n; i++) {
        if (x->n == RAMP_BUDGETS_MAX)
            return err_set(e, ERR_ARG, "--budget: more than %d", RAMP_BUDGETS_MAX);
        if (read_wish(&x->wish[x->n], x->o->budgets.v[i], e))
            return e->code;
        for (int k = 0; k < x->n; k++)
            if (x->wish[k].kind == x->wish[x->n].kind && x->wish[k].ctx_tokens == x->wish[x->n].ctx_tokens)
                return err_set(e, ERR_ARG, "--budget %s: there is one already: %s", x->o->budgets.v[i],
                               x->budget[k].name);
        x->budget[x->n++] = (struct ramp_budget){ .name = x->o->budgets.v[i] };
    }
    return ERR_OK;
}

/* ---- the model ---- */

static enum err_code read_model(struct mixer *x, struct err *e)
{
    struct model *dry;

    if (model_open(&dry, x->g, &(struct model_opts){ .device = "cpu", .placement.dry_run = true }, e))
        return e->code;
    x->n_layer = model_info(dry)->n_layer;
    x->n_expert = model_n_expert(dry);
    model_close(dry);
    x->tied = gguf_find(x->g, "output.weight") == NULL;
    if (x->n_expert > 0) {
        struct str arch;
        char key[128];
        uint32_t used = 0;

        if (gguf_str(x->g, "general.architecture", &arch)) {
            snprintf(key, sizeof key, "%.*s.expert_used_count", (int)(arch.n < 64 ? arch.n : 64), arch.p);
            (void)gguf_u32(x->g, key, &used);
        }
        x->n_used = (int)used;
    }
    return ERR_OK;
}

/* Of a tensor's bytes, how many count: for a token a row of the embedding, of routed experts those in use; on a GPU all
 * but an embedding of which rows are read alone. Blocks that a plain step leaves alone count for neither. */
static double part_of(const struct mixer *x, enum kind kind, const struct gguf_tensor *t)
{
    enum model_class c = model_class_of(t->name, x->n_layer);

    if (kind == SIZE)
        return 1;
    if (c == MODEL_MTP || (c == MODEL_EMBEDDING && !x->tied && kind == VRAM))
        return 0;
    if (kind == VRAM)
        return 1;
    if (c == MODEL_EMBEDDING && !x->tied)
        return 1 / (double)t->ne[1];
    return c == MODEL_EXPERTS && x->n_expert > 0 && x->n_used > 0 ? (double)x->n_used / x->n_expert : 1;
}

static enum err_code set_parts(struct mixer *x, struct err *e)
{
    uint32_t align = 32;

    (void)gguf_u32(x->g, "general.alignment", &align);
    for (int k = 0; k < x->n; k++) {
        struct budget *w = &x->wish[k];

        w->part = malloc((x->l->n + 1) * sizeof *w->part);
        if (w->part == NULL)
            return err_nomem(e);
        for (size_t i = 0; i < x->l->n; i++)
            w->part[i] = part_of(x, w->kind, gguf_tensor_at(x->g, i));
        x->budget[k].part = w->part;
        x->budget[k].limit = (double)w->bytes;
        x->budget[k].pad = w->kind == SIZE ? align : 0;
    }
    return ERR_OK;
}

/* ---- what a mix takes ---- */

static double linear(const struct mixer *x, int k)
{
    double sum = 0;

    for (size_t i = 0; i < x->l->n; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(x->g, i);
        int64_t bytes = quant_row_bytes(x->mix.type[i], t->ne[0]) * t->ne[1] * t->ne[2] * t->ne[3];
        int64_t pad = x->budget[k].pad > 0 ? x->budget[k].pad : 1, padded = (bytes + pad - 1) / pad * pad;

        sum += x->wish[k].part[i] * (double)padded;
    }
    return sum;
}

/* The runtime's plan for a GPU with room for all of the model. */
static enum err_code planned_bytes(double *out, const struct mixer *x, int64_t ctx_tokens, struct err *e)
{
    struct run_placement_opts fo = { .model = { .device = "cuda" },
                                     .run = { .ctx_tokens = ctx_tokens },
                                     .budget_bytes = (int64_t)1 << 50,
                                     .absent = true };
    struct gguf_tensor *t = malloc((x->l->n + 1) * sizeof *t);
    struct gguf *with = NULL;
    struct run_placement *placement = NULL;
    enum err_code rc;

    if (t == NULL)
        return err_nomem(e);
    for (size_t i = 0; i < x->l->n; i++) {
        t[i] = *gguf_tensor_at(x->g, i);
        t[i].type = x->mix.type[i];
        t[i].size_bytes = (size_t)(quant_row_bytes(t[i].type, t[i].ne[0]) * t[i].ne[1] * t[i].ne[2] * t[i].ne[3]);
    }
    rc = gguf_with(&with, x->g, t, e);
    if (rc == ERR_OK)
        rc = run_placement_make(&placement, with, &fo, e);
    if (rc == ERR_OK)
        *out = (double)placement->total_bytes;
    else
        err_wrap(e, "--budget vram=...,ctx=%lld", (long long)ctx_tokens);
    run_placement_free(placement);
    gguf_close(with);
    free(t);
    return rc;
}

/* Bytes of the file with the mix's rules in it. */
static enum err_code set_file_bytes(struct mixer *x, struct err *e)
{
    struct ramp_recipe *r;

    if (ramp_recipe_open(&r, e))
        return e->code;
    if (ramp_recipe_add(r, str_of(x->text), "the mix", e) == ERR_OK)
        x->file_bytes = ramp_file_bytes(x->g, x->mix.type, r, NULL, CHIMERE_VERSION);
    ramp_recipe_close(r);
    return e->code;
}

static enum err_code taken(double *out, struct mixer *x, int k, struct err *e)
{
    if (x->wish[k].kind == SIZE)
        *out = (double)x->file_bytes;
    else if (x->wish[k].kind == TOKEN_BYTES)
        *out = linear(x, k);
    else
        return planned_bytes(out, x, x->wish[k].ctx_tokens, e);
    return ERR_OK;
}

/* ---- what a loss cannot see ---- */

static bool any_unseen(const struct mixer *x)
{
    for (size_t i = 0; i < x->l->n; i++)
        if (!x->l->measured[i] && !ramp_is_kept(gguf_tensor_at(x->g, i)))
            return true;
    return false;
}

/* The plan of the mix whose tensors are nearest in size to `bytes`. */
static enum err_code nearest_mix(struct mixer *x, double bytes, struct err *e)
{
    double best = INFINITY;

    for (size_t i = 0; i < sizeof mixes / sizeof *mixes; i++) {
        struct ramp_recipe *r;
        struct ramp_plan p;
        char path[4096];
        enum err_code rc;

        if (!cli_recipe_path(mixes[i], path, sizeof path))
            continue;
        if (ramp_recipe_open(&r, e))
            return e->code;
        rc = cli_recipe_read(r, path, e);
        if (rc == ERR_OK)
            rc = ramp_plan_open(&p, r, x->g, x->o->imatrix != NULL, true, e);
        ramp_recipe_close(r);
        if (rc)
            return rc;
        if (fabs((double)p.bytes - bytes) < best) {
            best = fabs((double)p.bytes - bytes);
            ramp_plan_close(&x->unseen);
            x->unseen = p;
        } else {
            ramp_plan_close(&p);
        }
    }
    return x->unseen.v != NULL ? ERR_OK : err_set(e, ERR_IO, "the mixes that come with the program are not there");
}

/* ---- search ---- */

static bool show_progress(void *ctx, uint64_t done, uint64_t total)
{
    (void)ctx;
    cli_progress_count("search", (int64_t)done, (int64_t)total, " generations");
    return !cli_interrupted();
}

static enum err_code search(struct mixer *x, const struct ramp_recipe *rules, struct err *e)
{
    struct ramp_mix_ask ask = { .g = x->g,
                                .losses = x->l,
                                .rules = rules,
                                .budgets = x->budget,
                                .n_budgets = x->n,
                                .importance = x->o->imatrix != NULL,
                                .again = x->o->again,
                                .evolve = x->o->search == 1,
                                .seed = (uint64_t)x->o->losses.seed,
                                .progress = { show_progress, NULL },
                                .unseen = x->unseen.v != NULL ? &x->unseen : NULL };

    ramp_mix_close(&x->mix);
    free(x->text);
    x->text = NULL;
    if (cli_interrupted())
        return err_set(e, ERR_CANCEL, "interrupted");
    if (ramp_mix_open(&x->mix, &ask, e))
        return e->code;
    x->text = ramp_mix_text(&x->mix, &ask);
    if (x->text == NULL)
        return err_nomem(e);
    return set_file_bytes(x, e);
}

/* What counts beside tensors depends a little on the mix: the recipe is in the file, a device lays types out in its own
 * way. Searches until all budgets are kept with what the mix at hand takes. */
static enum err_code search_until_it_fits(struct mixer *x, const struct ramp_recipe *rules, struct err *e)
{
    bool unseen = any_unseen(x);

    for (int round = 0; round < ROUNDS; round++) {
        bool fits = true;

        if (unseen && round < 3) {
            double bytes = x->mix.type != NULL ? (double)x->file_bytes : INFINITY;

            for (int k = 0; k < x->n; k++)
                if (x->wish[k].kind == SIZE || bytes == INFINITY)
                    bytes = (double)x->wish[k].bytes;
            if (nearest_mix(x, bytes, e))
                return e->code;
        }
        if (search(x, rules, e))
            return e->code;
        for (int k = 0; k < x->n; k++) {
            double took, fixed;

            if (taken(&took, x, k, e))
                return e->code;
            fixed = took - linear(x, k);
            fits &= took <= x->budget[k].limit;
            /* At last only up: two mixes that take turns would not end. */
            if (round < ROUNDS / 2 || fixed > x->budget[k].fixed)
                x->budget[k].fixed = fixed;
        }
        if (fits && round > 2)
            return ERR_OK;
    }
    return err_set(e, ERR_LIMIT, "no mix was found that keeps all budgets");
}

/* ---- the recipe ---- */

static enum err_code describe_mix(char **out, struct mixer *x, struct err *e)
{
    struct cli_buf b = { 0 };
    char line[4096]; /* its parts are bounded: four budgets, and three lines */
    double se, kl = ramp_predict(x->l, x->mix.sum, &se);
    size_t at = 0;
    int64_t elems = 0;
    enum err_code rc;

    for (size_t i = 0; i < x->l->n; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(x->g, i);

        elems += t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
    }
    if (x->o->by_role)
        at += (size_t)snprintf(line, sizeof line,
                               "# predicted: KL %.4g if roles lose what they lose in another model\n", kl);
    else
        at += (size_t)snprintf(line, sizeof line, "# predicted: KL %.4g +- %.2g nats per token on %s text\n", kl, se,
                               x->l->head.text);
    at += (size_t)snprintf(line + at, sizeof line - at, "# file: %llu bytes, %.4f bits per weight\n",
                           (unsigned long long)x->file_bytes, 8 * (double)x->file_bytes / (double)elems);
    for (int k = 0; k < x->n; k++) {
        double took;

        if (taken(&took, x, k, e))
            return e->code;
        at += (size_t)snprintf(line + at, sizeof line - at, "# budget %.100s: %.0f bytes, %.2f %%\n", x->budget[k].name,
                               took, 100 * took / x->budget[k].limit);
    }
    if (x->mix.bound > 0)
        snprintf(line + at, sizeof line - at, "# sum of losses %.5g, at most %.3f %% above the least\n", x->mix.sum,
                 100 * (x->mix.sum / x->mix.bound - 1));
    else
        snprintf(line + at, sizeof line - at, "# sum of losses %.5g%s\n", x->mix.sum,
                 x->o->search == 1 ? ", by evolution" : "");
    rc = cli_buf_add(&b, str_of(line), e);
    if (rc == ERR_OK)
        rc = cli_buf_add(&b, str_of(x->text), e);
    if (rc) {
        cli_buf_free(&b);
        return rc;
    }
    *out = b.p;
    return ERR_OK;
}

static void close_mixer(struct mixer *x)
{
    for (int k = 0; k < RAMP_BUDGETS_MAX; k++)
        free(x->wish[k].part);
    ramp_plan_close(&x->unseen);
    ramp_mix_close(&x->mix);
    free(x->text);
}

enum err_code cli_quantize_mix(char **recipe, const struct quantize_options *o, const struct gguf *g,
                               const struct ramp_losses *l, const struct ramp_recipe *rules, struct err *e)
{
    struct mixer x = { .o = o, .g = g, .l = l };
    enum err_code rc = read_wishes(&x, e);

    if (rc == ERR_OK)
        rc = read_model(&x, e) || set_parts(&x, e) ? e->code : search_until_it_fits(&x, rules, e);
    cli_progress_end();
    if (rc == ERR_OK)
        rc = describe_mix(recipe, &x, e);
    close_mixer(&x);
    return rc;
}

enum err_code cli_quantize_best(struct quantize_best *out, const struct quantize_options *o, const struct gguf *g,
                                const struct ramp_losses *l, const struct ramp_recipe *rules, uint64_t file_bytes,
                                struct err *e)
{
    struct mixer x = { .o = o, .g = g, .l = l, .n = 1 };
    enum err_code rc;

    x.wish[0] = (struct budget){ .kind = SIZE, .bytes = (int64_t)file_bytes };
    x.budget[0] = (struct ramp_budget){ .name = "size" };
    rc = read_model(&x, e) || set_parts(&x, e) ? e->code : search_until_it_fits(&x, rules, e);
    if (rc == ERR_OK) {
        out->kl = ramp_predict(l, x.mix.sum, &out->se);
        out->file_bytes = x.file_bytes;
    }
    close_mixer(&x);
    return rc;
}
