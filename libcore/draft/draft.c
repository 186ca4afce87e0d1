/* SPDX-License-Identifier: Apache-2.0 */
/* draft.c - several drafters behind one: texts of the sequences, who is asked, what came of it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "draft/internal.h"
#include "gguf/gguf.h"
#include "model/drafter.h"
#include "model/forward.h"
#include "model/model.h"
#include "run/run.h"
#include "run/taps.h"
#include "text/text.h"

#define DRAFT(name) extern const struct draft_type draft_type_##name;
#include "draft/drafters.def"
#undef DRAFT

static const struct draft_type *const types[] = {
#define DRAFT(name) &draft_type_##name,
#include "draft/drafters.def"
#undef DRAFT
};

struct drafter {
    const struct draft_type *type;
    void *of;
    struct gguf *file;
    struct draft_stats stats;
    struct draft_ask *ask; /* [n_seq] of the step that is put together */
    int n_ask;
};

/* What a sequence's last guesses were. */
struct last {
    int who; /* drafter, -1: none */
    int n;   /* guesses that were given */
    int n_made;
    float p[GEN_DRAFT_MAX];
};

struct draft {
    struct draft_opts o;
    struct drafter drafter[DRAFT_OPEN_MAX];
    int n_drafter;
    struct run *run;
    int n_seq;
    int64_t cap;             /* tokens of a text */
    struct draft_text *text; /* [n_seq] */
    int32_t *tokens;
    struct last *last;           /* [n_seq] */
    struct draft_choice *choice; /* [n_seq] of the step that is put together */
    struct draft_width *width;
    struct draft_counts counts; /* of tokens of answers */
    int64_t *counted;           /* [n_seq] of each text; -1: it is new */
    struct err left_out;        /* of the drafter beside the model */
};

/* ---- opening ---- */

static bool is_open(const struct draft *d, const struct draft_type *t)
{
    for (int i = 0; i < d->n_drafter; i++)
        if (d->drafter[i].type == t)
            return true;
    return false;
}

/* Takes file, also when it fails. */
static enum err_code add_drafter(struct draft *d, const struct draft_type *t, struct gguf *file, struct err *e)
{
    const struct draft_source s = { &d->o, file };
    struct drafter *r = &d->drafter[d->n_drafter];
    enum err_code code;

    if (!t->file && is_open(d, t) && file == NULL)
        return ERR_OK;
    if (!t->file && is_open(d, t))
        code = err_set(e, ERR_ARG,
                       "%s: the model's block drafts already; only one adapter of it, named before mtp and auto",
                       gguf_path(file));
    else if (d->n_drafter == DRAFT_OPEN_MAX)
        code = err_set(e, ERR_ARG, "more than %d drafters", DRAFT_OPEN_MAX);
    else
        code = t->open(&r->of, &s, e);
    if (code != ERR_OK) {
        gguf_close(file);
        return code;
    }
    r->type = t;
    r->file = file;
    r->stats.name = file == NULL ? t->name : gguf_path(file);
    d->n_drafter++;
    return ERR_OK;
}

/* By another name, too: a second copy would only be asked in vain. */
static bool is_open_file(const struct draft *d, const char *path)
{
    struct stat mine, its;

    if (stat(path, &mine) != 0)
        return false;
    for (int i = 0; i < d->n_drafter; i++)
        if (d->drafter[i].file != NULL && stat(gguf_path(d->drafter[i].file), &its) == 0 && its.st_dev == mine.st_dev &&
            its.st_ino == mine.st_ino)
            return true;
    return false;
}

static enum err_code add_file(struct draft *d, const char *path, struct err *e)
{
    struct gguf *g;
    struct str arch = { 0 }, kind = { 0 };

    if (is_open_file(d, path))
        return ERR_OK;
    if (gguf_open(&g, path, e) != ERR_OK)
        return e->code;
    if (gguf_str(g, "general.type", &kind) && str_is(kind, "adapter"))
        return add_drafter(d, &draft_type_mtp, g, e);
    if (text_same_tokens(g, d->o.gguf, e) != ERR_OK) {
        gguf_close(g);
        return e->code;
    }
    (void)gguf_str(g, "general.architecture", &arch);
    return add_drafter(d, str_is(arch, "dflash") ? &draft_type_dflash : &draft_type_model, g, e);
}

/* A DFlash drafter in the model's directory: of a/some-model-q4_k.gguf it is a/some-model-dflash.gguf, or
 * a/some-dflash.gguf: what quantisations of a model have in common. */
static bool beside(char *path, size_t path_bytes, const char *model)
{
    const char *slash = strrchr(model, '/'), *name = slash != NULL ? slash + 1 : model;

    for (const char *end = name + strlen(name); end > name; end--) {
        if (*end != '-' && *end != '.')
            continue;
        const int n = snprintf(path, path_bytes, "%.*s-dflash.gguf", (int)(end - model), model);

        if (n > 0 && (size_t)n < path_bytes && access(path, R_OK) == 0)
            return true;
    }
    return false;
}

static enum err_code add_named(struct draft *d, const char *name, struct err *e)
{
    char path[4096];

    if (strcmp(name, "auto") == 0) {
        if (add_drafter(d, &draft_type_ngram, NULL, e) != ERR_OK)
            return e->code;
        /* First of those that take time, since it is tried first and brings most. A file with such a name may be
         * another model's, and nobody asked for it. */
        if (beside(path, sizeof path, gguf_path(d->o.gguf)) && add_file(d, path, &d->left_out) == ERR_NOMEM) {
            *e = d->left_out;
            return e->code;
        }
        return model_info(d->o.model)->n_nextn > 0 ? add_drafter(d, &draft_type_mtp, NULL, e) : ERR_OK;
    }
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(types[i]->name, name) == 0)
            return types[i]->file ? err_set(e, ERR_ARG, "drafter '%s' is a file: give its path", name)
                                  : add_drafter(d, types[i], NULL, e);
    if (strchr(name, '/') == NULL && access(name, F_OK) != 0)
        return err_set(e, ERR_ARG, "drafter '%s' is neither auto, ngram, mtp or engram nor a file here", name);
    return add_file(d, name, e);
}

/* Layers that drafters read, each once, ascending. */
static int all_taps(const struct draft *d, int layers[DRAFT_OPEN_MAX * MODEL_TAPS_MAX])
{
    int n = 0, mine[MODEL_TAPS_MAX];

    for (int i = 0; i < d->n_drafter; i++) {
        const struct drafter *r = &d->drafter[i];
        const int some = r->type->taps != NULL ? r->type->taps(r->of, mine) : 0;

        for (int j = 0; j < some; j++) {
            int at = n;

            while (at > 0 && layers[at - 1] >= mine[j])
                at--;
            if (at < n && layers[at] == mine[j])
                continue;
            memmove(layers + at + 1, layers + at, (size_t)(n - at) * sizeof *layers);
            layers[at] = mine[j];
            n++;
        }
    }
    return n;
}

const char *draft_left_out(const struct draft *d)
{
    return d->left_out.code != ERR_OK ? d->left_out.msg : NULL;
}

int draft_taps(const struct draft *d, int *layers)
{
    int all[DRAFT_OPEN_MAX * MODEL_TAPS_MAX];
    const int n = all_taps(d, all); /* at most DRAFT_TAPS_MAX: draft_open() */

    memcpy(layers, all, (size_t)n * sizeof *layers);
    return n;
}

enum err_code draft_open(struct draft **out, const struct draft_opts *o, struct err *e)
{
    int taps[DRAFT_OPEN_MAX * MODEL_TAPS_MAX];
    struct draft *d;

    if (o->n_max < 0 || o->n_max > GEN_DRAFT_MAX)
        return err_set(e, ERR_ARG, "%d guesses in a step is not in 1 .. %d", o->n_max, GEN_DRAFT_MAX);
    d = calloc(1, sizeof *d);
    if (d == NULL)
        return err_nomem(e);
    d->o = *o;
    d->o.n_max = o->n_max > 0 ? o->n_max : GEN_DRAFT_USUAL;
    for (int i = 0; i < o->n_names; i++)
        if (add_named(d, o->names[i], e) != ERR_OK) {
            draft_close(d);
            return e->code;
        }
    d->o.names = NULL;
    if (all_taps(d, taps) > DRAFT_TAPS_MAX) {
        draft_close(d);
        return err_set(e, ERR_UNSUPPORTED, "the drafters read more than %d layers", DRAFT_TAPS_MAX);
    }
    *out = d;
    return ERR_OK;
}

void draft_close(struct draft *d)
{
    if (d == NULL)
        return;
    for (int i = 0; i < d->n_drafter; i++) {
        d->drafter[i].type->close(d->drafter[i].of);
        gguf_close(d->drafter[i].file);
        free(d->drafter[i].ask);
    }
    draft_width_close(d->width);
    draft_counts_close(&d->counts);
    free(d->counted);
    free(d->text);
    free(d->tokens);
    free(d->last);
    free(d->choice);
    free(d);
}

static bool alloc_all(struct draft *d)
{
    const size_t n = (size_t)d->n_seq, cap = (size_t)d->cap;
    bool all = true;

    d->text = calloc(n, sizeof *d->text);
    d->tokens = calloc(n * cap, sizeof *d->tokens);
    d->last = calloc(n, sizeof *d->last);
    d->choice = calloc(n, sizeof *d->choice);
    d->counted = calloc(n, sizeof *d->counted);
    for (int i = 0; i < d->n_drafter; i++)
        all &= (d->drafter[i].ask = calloc(n, sizeof *d->drafter[i].ask)) != NULL;
    return all && d->text != NULL && d->tokens != NULL && d->last != NULL && d->choice != NULL && d->counted != NULL;
}

static enum err_code check_taps(const struct draft *d, const struct run *r, struct err *e)
{
    const struct model_taps *t = run_taps(r);
    int layers[DRAFT_TAPS_MAX];
    const int n = draft_taps(d, layers);

    for (int i = 0; i < n; i++) {
        int at = 0;

        while (at < t->n && t->layer[at] != layers[i])
            at++;
        if (at == t->n)
            return err_set(e, ERR_ARG, "a drafter reads layer %d, which the run does not keep", layers[i]);
    }
    return ERR_OK;
}

enum err_code draft_attach(struct draft *d, struct run *r, struct err *e)
{
    if (check_taps(d, r, e) != ERR_OK)
        return e->code;
    d->run = r;
    d->n_seq = run_n_seq(r);
    d->cap = run_ctx(r) + 1; /* the newest token is not in the context yet */
    if (!alloc_all(d))
        return err_set(e, ERR_NOMEM, "out of memory: texts of drafters");
    if (draft_width_open(&d->width, d->n_drafter, d->n_seq, e) != ERR_OK ||
        draft_counts_open(&d->counts, model_info(d->o.model)->n_vocab, e) != ERR_OK)
        return e->code;
    for (int s = 0; s < d->n_seq; s++) {
        d->text[s].token = d->tokens + (int64_t)s * d->cap;
        d->last[s].who = -1;
        d->counted[s] = -1;
    }
    const struct draft_env env = { r, d->text };
    for (int i = 0; i < d->n_drafter; i++)
        if (d->drafter[i].type->attach != NULL && d->drafter[i].type->attach(d->drafter[i].of, &env, e) != ERR_OK)
            return e->code;
    return ERR_OK;
}

/* ---- other processes ---- */

static void list_names(const struct draft *d, const char *names[DRAFT_OPEN_MAX])
{
    for (int i = 0; i < d->n_drafter; i++)
        names[i] = d->drafter[i].stats.name;
}

json_t *draft_tell(const struct draft *d)
{
    const char *names[DRAFT_OPEN_MAX];
    struct draft_learnt l;
    json_t *o;

    list_names(d, names);
    if (d->width == NULL || !draft_width_tell(d->width, &l))
        return NULL;
    o = draft_learnt_json(&l, names, d->n_drafter);
    return json_if(json_object_set_new(o, "tokens", draft_counts_json(&d->counts)) == 0, o);
}

/* Drafters read only the rows of the likeliest tokens. */
static enum err_code narrow_all(struct draft *d, struct err *e)
{
    int n;
    int32_t *token = draft_counts_best(&d->counts, &n);
    enum err_code code = ERR_OK;

    for (int i = 0; i < d->n_drafter && token != NULL && code == ERR_OK; i++)
        if (d->drafter[i].type->narrow != NULL)
            code = d->drafter[i].type->narrow(d->drafter[i].of, token, n, e);
    free(token);
    return code;
}

enum err_code draft_recall(struct draft *d, const json_t *told, struct err *e)
{
    const char *names[DRAFT_OPEN_MAX];
    struct draft_learnt l;

    list_names(d, names);
    if (draft_learnt_read(&l, told, names, d->n_drafter) &&
        draft_counts_read(&d->counts, json_object_get(told, "tokens")) && draft_width_recall(d->width, &l))
        return narrow_all(d, e);
    return err_set(e, ERR_FORMAT, "not what these drafters cost");
}

/* ---- texts ---- */

static int64_t common_tokens(const struct draft_text *t, const int32_t *token, int64_t n)
{
    int64_t i = 0;

    n = n < t->fed ? n : t->fed;
    while (i < n && t->token[i] == token[i])
        i++;
    return i;
}

/* Every text is a place to start from: a sequence that was forked is found again. */
static void begin_text(void *of, int seq, const int32_t *token, int64_t n)
{
    struct draft *d = of;
    struct draft_text *t = &d->text[seq];
    int64_t same = common_tokens(t, token, n);
    int from = seq;

    n = n < d->cap ? n : d->cap;
    for (int s = 0; s < d->n_seq; s++)
        if (s != seq && d->text[s].fed > same && common_tokens(&d->text[s], token, n) > same) {
            same = common_tokens(&d->text[s], token, n);
            from = s;
        }
    for (int i = 0; i < d->n_drafter; i++) {
        const struct drafter *r = &d->drafter[i];

        if (from != seq && r->type->fork != NULL)
            r->type->fork(r->of, seq, from);
        if (r->type->cut != NULL)
            r->type->cut(r->of, seq, same);
    }
    memcpy(t->token, token, (size_t)n * sizeof *token);
    t->n = t->fed = n;
    d->counted[seq] = -1;
    d->last[seq].who = -1;
    draft_width_begin(d->width, seq);
}

static void settle_guesses(void *of, int seq, const int32_t *token, int n, int n_guessed, int n_kept)
{
    struct draft *d = of;
    struct draft_text *t = &d->text[seq];
    struct last *last = &d->last[seq];

    if (n > d->cap - t->fed)
        n = (int)(d->cap - t->fed);
    memcpy(t->token + t->fed, token, (size_t)n * sizeof *token);
    for (int i = 0; i < d->n_drafter; i++)
        if (d->drafter[i].type->settle != NULL)
            d->drafter[i].type->settle(d->drafter[i].of, seq, t->fed, n);
    t->fed += n;
    t->n = t->n > t->fed ? t->n : t->fed;
    if (last->who >= 0 && n_guessed > 0) {
        n_guessed = n_guessed < last->n ? n_guessed : last->n;
        draft_width_learn(d->width, last->who, seq, last->p, last->n_made, n_guessed, n_kept);
        d->drafter[last->who].stats.drafted += n_guessed;
        d->drafter[last->who].stats.kept += n_kept;
    }
    last->who = -1;
}

/* ---- guesses ---- */

static int guesses_max(const struct draft *d, const struct gen_guess *g)
{
    return g->n_max < d->o.n_max ? g->n_max : d->o.n_max;
}

/* All that one drafter is asked about. host: it works there. */
static enum err_code ask_drafter(struct draft *d, int who, bool host, struct err *e)
{
    struct drafter *r = &d->drafter[who];
    const struct clock_work from = clock_work();
    bool late = false;
    int most = 0, made = 0;

    for (int i = 0; i < r->n_ask; i++)
        most = r->ask[i].n > most ? r->ask[i].n : most;
    if (r->type->guess(r->of, r->ask, r->n_ask, &late, e) != ERR_OK)
        return e->code;
    for (int i = 0; i < r->n_ask; i++)
        made += r->ask[i].n;
    r->stats.ms += clock_ms() - from.ms;
    r->stats.asked += r->n_ask;
    if (most > 0) /* where there were no rows to guess from, the time says nothing */
        draft_width_spent(d->width, who, most, clock_work_ms(&from, host), late || (made == 0 && !r->type->free));
    return ERR_OK;
}

static void put_ask(struct drafter *r, int seq, int n)
{
    r->ask[r->n_ask++] = (struct draft_ask){ .seq = seq, .n = n };
}

static const struct draft_ask *answer_of(const struct drafter *r, int seq)
{
    for (int i = 0; i < r->n_ask; i++)
        if (r->ask[i].seq == seq)
            return &r->ask[i];
    return NULL;
}

/* Drafters that cost nothing guess for all. */
static enum err_code ask_free(struct draft *d, const struct gen_guess *g, int n, bool host, struct err *e)
{
    for (int i = 0; i < d->n_drafter; i++) {
        struct drafter *r = &d->drafter[i];

        r->n_ask = 0;
        for (int j = 0; r->type->free && j < n; j++)
            put_ask(r, g[j].seq, guesses_max(d, &g[j]));
        if (r->type->free && ask_drafter(d, i, host, e) != ERR_OK)
            return e->code;
    }
    return ERR_OK;
}

/* The others are asked for what seems best, or, with `always`, the first one for all that no free
 * one has guesses for. */
static enum err_code ask_others(struct draft *d, const struct gen_guess *g, int n, bool host, struct err *e)
{
    for (int j = 0; j < n; j++) {
        struct draft_choice *best = &d->choice[j];
        bool done = false;

        *best = draft_width_none(d->width);
        for (int i = 0; i < d->n_drafter && !done; i++) {
            struct drafter *r = &d->drafter[i];

            if (d->o.always) {
                done = !r->type->free || answer_of(r, g[j].seq)->n > 0;
                *best = (struct draft_choice){ .type = done ? i : -1, .n = guesses_max(d, &g[j]) };
            } else if (r->type->free) {
                draft_width_made(d->width, i, answer_of(r, g[j].seq), best);
                draft_width_try(d->width, i, answer_of(r, g[j].seq), best);
            } else {
                draft_width_promise(d->width, i, r->type, r->of, g[j].seq, guesses_max(d, &g[j]), best);
            }
        }
        if (best->type >= 0 && !d->drafter[best->type].type->free)
            put_ask(&d->drafter[best->type], g[j].seq, best->n);
        if (!d->o.always)
            draft_width_take(d->width, best, g[j].seq, true);
    }
    for (int i = 0; i < d->n_drafter; i++)
        if (!d->drafter[i].type->free && ask_drafter(d, i, host, e) != ERR_OK)
            return e->code;
    return ERR_OK;
}

static void give_guesses(struct draft *d, struct gen_guess *g, const struct draft_ask *a, int who, int n)
{
    struct last *last = &d->last[g->seq];

    *last = (struct last){ .who = n > 0 ? who : -1, .n = n, .n_made = a->n };
    memcpy(last->p, a->p, sizeof last->p);
    memcpy(g->guess, a->guess, (size_t)n * sizeof *g->guess);
    g->n = n;
}

/* Of the guesses that are there, as many as pay. */
static void choose_guesses(struct draft *d, struct gen_guess *g, const struct draft_choice *asked)
{
    const struct draft_ask *a;
    struct draft_choice best = draft_width_none(d->width);

    for (int i = 0; i < d->n_drafter; i++) {
        a = answer_of(&d->drafter[i], g->seq);
        if (a != NULL && d->o.always && i == asked->type)
            best = (struct draft_choice){ .type = i, .n = a->n };
        else if (a != NULL && !d->o.always)
            draft_width_made(d->width, i, a, &best);
    }
    if (asked->trial && (best.type != asked->type || best.n < asked->n)) {
        a = answer_of(&d->drafter[asked->type], g->seq);
        best = (struct draft_choice){ .type = asked->type, .n = asked->n < a->n ? asked->n : a->n };
    }
    draft_width_take(d->width, &best, g->seq, false);
    d->last[g->seq].who = -1;
    if (best.type >= 0 && best.n > 0)
        give_guesses(d, g, answer_of(&d->drafter[best.type], g->seq), best.type, best.n);
    else if (!d->o.always && asked->type >= 0 && (a = answer_of(&d->drafter[asked->type], g->seq))->n > 0)
        draft_width_learn(d->width, asked->type, g->seq, a->p, a->n, 0, 0);
    else if (!d->o.always && asked->type >= 0)
        draft_width_nothing(d->width, asked->type);
}

/* Tokens of an answer that are new since the last step. The first one's step is that in which its guesses are asked. */
static void count_answer(struct draft *d, int seq)
{
    const struct draft_text *t = &d->text[seq];

    for (int64_t i = d->counted[seq] < 0 ? t->n - 1 : d->counted[seq]; i < t->n; i++)
        draft_counts_add(&d->counts, t->token[i]);
    d->counted[seq] = t->n;
}

static enum err_code guess_all(void *of, struct gen_guess *g, int n, const struct gen_cost *cost, struct err *e)
{
    struct draft *d = of;

    for (int j = 0; j < n; j++) {
        struct draft_text *t = &d->text[g[j].seq];
        const int64_t fed = t->fed < g[j].n_token ? t->fed : g[j].n_token;
        const int64_t end = g[j].n_token < d->cap ? g[j].n_token : d->cap;

        g[j].n = 0;
        if (end > fed)
            memcpy(t->token + fed, g[j].token + fed, (size_t)(end - fed) * sizeof *t->token);
        t->n = end;
        count_answer(d, g[j].seq);
    }
    draft_width_step(d->width, cost, n);
    if (ask_free(d, g, n, !cost->records, e) != ERR_OK || ask_others(d, g, n, !cost->records, e) != ERR_OK)
        return e->code;
    draft_width_again(d->width, n);
    for (int j = 0; j < n; j++)
        choose_guesses(d, &g[j], &d->choice[j]);
    return ERR_OK;
}

const struct gen_drafter draft_hook = { begin_text, guess_all, settle_guesses };

int draft_stats(const struct draft *d, struct draft_stats *out, int max)
{
    int n = 0;

    for (; n < d->n_drafter && n < max; n++)
        out[n] = d->drafter[n].stats;
    return n;
}
