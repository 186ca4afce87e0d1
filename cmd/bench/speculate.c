/* SPDX-License-Identifier: Apache-2.0 */
/* speculate.c - what guesses of drafters are worth, on texts of several kinds.   room: cmd
 *
 * Each prompt is answered without guesses and then with each drafter, one right after the other, in an order that
 * turns from prompt to prompt: a machine that slows down slows all. Only the answer is timed, from its first token on.
 * An answer that is another with guesses is an error.
 *
 * Random weights cannot be foreseen. An oracle knows the answer that was written without guesses and proposes its
 * tokens, a given share of them wrong; and with --quote the answer is held to what the prompt says, which n-grams find.
 */
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/memory.h"
#include "base/rng.h"
#include "bench/bench.h"
#include "chat/chat.h"
#include "draft/draft.h"
#include "gen/gen.h"
#include "model/model.h"
#include "run/run.h"

enum { WAYS_MAX = 33, SETS_MAX = 64, ITEMS = 8 /* of a text, or of random tokens, unless --limit says */ };

/* A prompt, and its answer without guesses. */
struct item {
    const char *set;
    struct text_tokens prompt, answer;
};

/* A way to answer: without guesses, with drafters, with an oracle. */
struct way {
    struct speculate *s;
    char *name;
    int width;    /* guesses in a step at most; 0: plain */
    double right; /* of an oracle: the share; < 0: drafters guess */
    struct draft *draft;
    struct run *run;
    struct gen *gen;
    struct text_tokens said; /* the answer that is being written */
    double *ms, *all_ms;     /* [reps] of a set; of all sets */
    struct counts {
        int64_t steps, tokens, drafted, kept;
    } n, all; /* of a set; of all sets */
    int64_t tried_at[GEN_DRAFT_MAX], kept_at[GEN_DRAFT_MAX];
};

struct speculate {
    struct bench *b;
    struct chat *format; /* NULL: no task set was read so far */
    struct item *v;
    size_t n, cap;
    struct way way[WAYS_MAX];
    int n_ways;
    const struct item *now; /* the item that is being answered, for oracles */
    char *sets[SETS_MAX];
    int n_sets;
};

/* ---- guesses are watched, or made ---- */

static void watch_begin(void *of, int seq, const int32_t *token, int64_t n)
{
    struct way *w = of;

    if (w->draft != NULL)
        draft_hook.begin(w->draft, seq, token, n);
}

/* The next tokens of the answer that is known; which of them are wrong depends on the item and the place alone. */
static void foretell(const struct way *w, struct gen_guess *g)
{
    const struct item *it = w->s->now;
    const int64_t at = g->n_token - it->prompt.n;
    const int32_t n_vocab = model_info(w->s->b->open.model)->n_vocab;

    g->n = 0;
    for (int i = 0; i < w->width && i < g->n_max && at + i < it->answer.n; i++) {
        const double u = rng_unit((uint64_t)w->s->b->o->seed, (uint64_t)(it - w->s->v), (uint64_t)(at + i));

        g->guess[g->n++] = u < w->right ? it->answer.v[at + i] : (it->answer.v[at + i] + 1) % n_vocab;
    }
}

static enum err_code watch_guess(void *of, struct gen_guess *g, int n, const struct gen_cost *cost, struct err *e)
{
    struct way *w = of;

    if (w->draft != NULL)
        return draft_hook.guess(w->draft, g, n, cost, e);
    for (int i = 0; i < n; i++)
        foretell(w, &g[i]);
    return ERR_OK;
}

static void watch_settle(void *of, int seq, const int32_t *token, int n, int n_guessed, int n_kept)
{
    struct way *w = of;

    for (int i = 0; i < n_guessed && i <= n_kept; i++)
        w->tried_at[i]++;
    for (int i = 0; i < n_kept; i++)
        w->kept_at[i]++;
    if (w->draft != NULL)
        draft_hook.settle(w->draft, seq, token, n, n_guessed, n_kept);
}

static const struct gen_drafter watch = { watch_begin, watch_guess, watch_settle };

/* ---- --quote: an answer that says the second half of its prompt again ---- */

struct quoted {
    const int32_t *token;
    int64_t n;
    int32_t n_vocab;
};
struct quoting {
    const struct quoted *q;
    int64_t at;
};

static enum err_code quote_begin(void **place, const void *rules, struct err *e)
{
    struct quoting *p = calloc(1, sizeof *p);

    if (p == NULL)
        return err_nomem(e);
    p->q = rules;
    *place = p;
    return ERR_OK;
}

static bool quote_free(const void *place)
{
    const struct quoting *p = place;

    return p->at >= p->q->n;
}

static bool quote_take(void *place, int32_t token)
{
    struct quoting *p = place;

    if (!quote_free(p) && p->q->token[p->at] != token)
        return false;
    p->at++;
    return true;
}

static void quote_back(void *place, int n)
{
    ((struct quoting *)place)->at -= n;
}

/* No token is forced, as that would be no choice: a model that quotes chooses each. */
static int32_t quote_only(void *place)
{
    (void)place;
    return -1;
}

static void quote_mask(void *place, uint32_t *mask)
{
    const struct quoting *p = place;
    const size_t words = ((size_t)p->q->n_vocab + 31) / 32;

    memset(mask, quote_free(p) ? 0xff : 0, words * sizeof *mask);
    if (!quote_free(p))
        mask[p->q->token[p->at] / 32] = 1u << (p->q->token[p->at] % 32);
}

static const struct gen_constraint quote = { quote_begin, free,       quote_take, quote_back,
                                             quote_free,  quote_only, quote_mask };

/* ---- prompts ---- */

static enum err_code add_item(struct speculate *s, const char *set, struct item **out, struct err *e)
{
    if (memory_room(&s->v, &s->cap, s->n + 1, sizeof *s->v, e))
        return e->code;
    *out = &s->v[s->n++];
    **out = (struct item){ .set = set };
    return ERR_OK;
}

static enum err_code add_tokens(struct speculate *s, const char *set, const int32_t *token, int64_t n, struct err *e)
{
    struct item *it;

    if (add_item(s, set, &it, e))
        return e->code;
    return text_tokens_add(&it->prompt, token, n, e);
}

static enum err_code random_items(struct speculate *s, const struct bench_list *lengths, struct err *e)
{
    const int32_t n_vocab = model_info(s->b->open.model)->n_vocab;
    const int64_t n = s->b->o->limit > 0 ? s->b->o->limit : ITEMS;

    for (int l = 0; l < lengths->n; l++)
        for (int64_t i = 0; i < n; i++) {
            struct item *it;

            if (add_item(s, "random", &it, e))
                return e->code;
            for (int64_t j = 0; j < lengths->v[l]; j++)
                if (text_tokens_push(&it->prompt, (int32_t)(rng_unit(23, (uint64_t)i, (uint64_t)j) * n_vocab), e))
                    return e->code;
        }
    return ERR_OK;
}

/* The first tokens of each document, or pieces of one text at even distances. */
static enum err_code text_items(struct speculate *s, char *path, const char *set, int64_t length, struct err *e)
{
    struct bench one = *s->b;
    char *paths[2] = { path, NULL };
    struct bench_texts t;
    const int64_t limit = s->b->o->limit > 0 ? s->b->o->limit : ITEMS;
    enum err_code code;

    one.operands = paths;
    if (cli_bench_texts(&t, &one, e))
        return e->code;
    const int64_t pieces = t.n > 1 ? 1 : limit;
    code = t.n_tokens > 0 ? ERR_OK : err_set(e, ERR_FORMAT, "%s: no text", path);
    for (size_t d = 0; d < t.n && (int64_t)d < limit && code == ERR_OK; d++)
        for (int64_t i = 0; i < pieces && code == ERR_OK; i++) {
            const int64_t n = t.v[d].n < length ? t.v[d].n : length;

            if (n > 0)
                code = add_tokens(s, set, t.v[d].v + (t.v[d].n - n) * i / pieces, n, e);
        }
    cli_bench_texts_free(&t);
    return code;
}

static enum err_code task_items(struct speculate *s, const json_t *all, const char *path, const char *set,
                                struct err *e)
{
    size_t n = json_array_size(all);

    if (s->format == NULL && chat_open(&s->format, s->b->open.text, (struct str){ 0 }, e))
        return err_wrap(e, "%s", s->b->open.path);
    if (s->b->o->limit > 0 && (size_t)s->b->o->limit < n)
        n = (size_t)s->b->o->limit;
    for (size_t i = 0; i < n; i++) {
        const struct ask_model m = { .text = s->b->open.text, .chat = s->format };
        struct item *it;
        struct ask a;
        json_t *kwargs = NULL;

        if (add_item(s, set, &it, e))
            return e->code;
        if (!json_is_array(json_object_get(json_array_get(all, i), "messages")))
            return err_set(e, ERR_FORMAT, "%s: item %zu has no messages", path, i + 1);
        if (cli_bench_question(&a, &kwargs, s->b, json_array_get(all, i), e) ||
            ask_prompt(&it->prompt, &a, &m, NULL, e))
            err_wrap(e, "%s: item %zu", path, i + 1);
        json_decref(kwargs);
        if (e->code)
            return e->code;
    }
    return ERR_OK;
}

/* A set of tasks, or a text. */
static enum err_code read_file(struct speculate *s, char *path, int64_t length, struct err *e)
{
    const size_t n = strlen(path);
    char buf[128], *set;
    json_t *all = NULL;
    enum err_code code;

    if (s->n_sets == SETS_MAX)
        return err_set(e, ERR_ARG, "more than %d files", SETS_MAX);
    set = strdup(cli_bench_set_name(path, buf));
    if (set == NULL)
        return err_nomem(e);
    s->sets[s->n_sets++] = set;
    if (n > 6 && strcmp(path + n - 6, ".jsonl") == 0 && cli_bench_load(&all, path, e))
        return e->code;
    if (json_object_get(json_array_get(all, 0), "messages") != NULL)
        code = task_items(s, all, path, set, e);
    else
        code = text_items(s, path, set, length, e);
    json_decref(all);
    return code;
}

static enum err_code read_items(struct speculate *s, struct err *e)
{
    struct bench_list lengths;

    if (cli_bench_list(&lengths, s->b->o->prompts, "prompt", 2, 1 << 24, e))
        return e->code;
    if (lengths.n == 0)
        return err_set(e, ERR_ARG, "--prompt '': the list is empty");
    if (lengths.n > 1 && *s->b->operands != NULL)
        return err_set(e, ERR_ARG, "--prompt: takes one length when the texts come from files");
    if (*s->b->operands == NULL)
        return random_items(s, &lengths, e);
    for (char **f = s->b->operands; *f != NULL; f++)
        if (read_file(s, *f, lengths.v[0], e))
            return e->code;
    return ERR_OK;
}

/* ---- ways to answer ---- */

static enum err_code add_way(struct speculate *s, const char *name, int width, double right, struct err *e)
{
    struct way *w = &s->way[s->n_ways];

    if (s->n_ways == WAYS_MAX)
        return err_set(e, ERR_ARG, "more than %d drafters, widths and shares", WAYS_MAX - 1);
    s->n_ways++;
    *w = (struct way){ .s = s, .width = width, .right = right };
    w->name = strdup(name);
    w->ms = calloc((size_t)s->b->o->reps, sizeof *w->ms);
    w->all_ms = calloc((size_t)s->b->o->reps, sizeof *w->all_ms);
    return w->name && w->ms && w->all_ms ? ERR_OK : err_nomem(e);
}

/* "0.9,0.7": an oracle for each share and width. */
static enum err_code add_oracles(struct speculate *s, const struct bench_list *widths, struct err *e)
{
    const char *at = s->b->o->oracle;
    char name[64], *end;

    for (bool more = at != NULL; more; more = *at != '\0') {
        const double right = strtod(at, &end);

        if (end == at || !(right >= 0 && right <= 1) || (*end != '\0' && *end != ','))
            return err_set(e, ERR_ARG, "--oracle %s: shares from 0 to 1, such as 0.9,0.7", s->b->o->oracle);
        snprintf(name, sizeof name, "oracle:%g", right);
        for (int i = 0; i < widths->n; i++)
            if (add_way(s, name, (int)widths->v[i], right, e))
                return e->code;
        at = *end == ',' ? end + 1 : end;
    }
    return ERR_OK;
}

static enum err_code add_ways(struct speculate *s, struct err *e)
{
    const struct bench_opts *o = s->b->o;
    struct bench_list widths;

    if (cli_bench_list(&widths, o->draft_max, "draft-max", 1, GEN_DRAFT_MAX, e) || add_way(s, "off", 0, -1, e))
        return e->code;
    if (widths.n == 0)
        return err_set(e, ERR_ARG, "--draft-max '': the list is empty");
    for (size_t i = 0; i < o->drafts_of.n; i++)
        for (int j = 0; j < widths.n; j++)
            if (add_way(s, o->drafts_of.v[i], (int)widths.v[j], -1, e))
                return e->code;
    return add_oracles(s, &widths, e);
}

/* "ngram,mtp" are drafters that work together. all: a copy of such names, which is cut into pieces. */
static enum err_code open_named(struct way *w, char *all, struct err *e)
{
    const struct bench *b = w->s->b;
    const char *names[DRAFT_OPEN_MAX];
    int n = 0;
    char *rest;

    for (char *at = strtok_r(all, ",", &rest); at != NULL; at = strtok_r(NULL, ",", &rest)) {
        if (strcmp(at, "off") == 0)
            return err_set(e, ERR_ARG, "--draft %s: answers without drafts are always measured; leave 'off' out",
                           w->name);
        if (n == DRAFT_OPEN_MAX)
            return err_set(e, ERR_ARG, "--draft: more than %d drafters", DRAFT_OPEN_MAX);
        names[n++] = at;
    }
    if (n == 0)
        return err_set(e, ERR_ARG, "--draft '%s' names no drafter", w->name);
    return draft_open(&w->draft,
                      &(struct draft_opts){ .model = b->open.model,
                                            .gguf = b->open.gguf,
                                            .names = names,
                                            .n_names = n,
                                            .n_max = w->width,
                                            .always = b->o->fixed,
                                            .n_threads = b->o->model.n_threads },
                      e);
}

static enum err_code open_drafters(struct way *w, struct err *e)
{
    char *all = strdup(w->name);
    const enum err_code code = all != NULL ? open_named(w, all, e) : err_nomem(e);

    free(all);
    return code;
}

static enum err_code open_way(struct way *w, int64_t ctx, struct err *e)
{
    struct speculate *s = w->s;
    int taps[DRAFT_TAPS_MAX];
    struct run_opts ro = { .ctx_tokens = ctx, .n_seq = 1, .rows_max = s->b->o->model.chunk, .draft_max = w->width };
    struct gen_opts go = { .text = s->b->open.text, .end_token = -1 };

    if (w->width > 0 && w->right < 0) {
        if (open_drafters(w, e))
            return e->code;
        ro.n_taps = draft_taps(w->draft, taps);
        ro.tap_layers = taps;
    }
    if (s->b->open.dry_run && w->draft != NULL) { /* the plan knows now what it needs */
        draft_close(w->draft);
        w->draft = NULL;
        if (cli_open_load(&s->b->open, &ro, e) || open_drafters(w, e))
            return e->code;
    }
    if (cli_bench_run(&w->run, s->b, ro, e) || (w->draft != NULL && draft_attach(w->draft, w->run, e)))
        return e->code;
    go.run = w->run;
    go.drafter = w->width > 0 ? &watch : NULL;
    go.drafter_of = w;
    return gen_open(&w->gen, &go, e);
}

/* The one that takes most memory first: a GPU's plan is made for the first run. */
static enum err_code open_ways(struct speculate *s, struct err *e)
{
    int64_t ctx = s->b->o->model.ctx_tokens;

    for (size_t i = 0; i < s->n; i++) {
        const int64_t need = s->v[i].prompt.n + s->b->o->predict_max + GEN_DRAFT_MAX;

        ctx = need > ctx ? need : ctx;
    }
    for (int i = s->n_ways - 1; i >= 0; i--)
        if (open_way(&s->way[i], ctx, e))
            return e->code;
    return ERR_OK;
}

static void close_all(struct speculate *s)
{
    for (int i = 0; i < s->n_ways; i++) {
        struct way *w = &s->way[i];

        gen_close(w->gen);
        draft_close(w->draft);
        run_close(w->run);
        text_tokens_free(&w->said);
        free(w->name);
        free(w->ms);
        free(w->all_ms);
    }
    for (size_t i = 0; i < s->n; i++) {
        text_tokens_free(&s->v[i].prompt);
        text_tokens_free(&s->v[i].answer);
    }
    for (int i = 0; i < s->n_sets; i++)
        free(s->sets[i]);
    free(s->v);
    chat_close(s->format);
}

/* ---- answers ---- */

/* What a step left behind: *done when the answer is over, with the tokens that were chosen in *chosen. */
static enum err_code read_events(struct way *w, bool *done, struct gen_stats *stats, int64_t *chosen, struct err *e)
{
    struct gen_event ev;

    while (gen_next(w->gen, &ev)) {
        if (ev.kind == GEN_TOKEN && text_tokens_push(&w->said, ev.pick.token, e))
            return e->code;
        if (ev.kind != GEN_END)
            continue;
        if (ev.end == GEN_FAILED)
            return err_copy(e, &ev.err);
        *done = true;
        *stats = ev.stats;
        *chosen = ev.stats.tokens + (ev.end == GEN_EOS);
    }
    return ERR_OK;
}

/* Answers an item; *ms from its first token on. */
static enum err_code answer_item(struct way *w, const struct item *it, struct gen_stats *stats, int64_t *chosen,
                                 double *ms, struct err *e)
{
    const struct bench_opts *o = w->s->b->o;
    const int64_t half = it->prompt.n / 2;
    const struct quoted q_of = { it->prompt.v + half, it->prompt.n - half, model_info(w->s->b->open.model)->n_vocab };
    struct gen_request q = gen_defaults();
    double from = 0;
    bool done = false;
    int64_t id;

    q.prompt = it->prompt.v;
    q.n_prompt = it->prompt.n;
    q.predict_max = o->quote && o->predict_max > q_of.n ? q_of.n : o->predict_max;
    q.ignore_eos = w->s->b->open.text == NULL;
    q.sample.temp = o->temp;
    q.sample.top_p = o->top_p;
    q.sample.seed = (uint64_t)o->seed;
    q.sample.stream = (uint64_t)(it - w->s->v);
    if (o->quote) {
        q.constraint = &quote;
        q.rules = &q_of;
    }
    w->said.n = 0;
    w->s->now = it;
    if (gen_submit(w->gen, &q, &id, e))
        return e->code;
    while (!done) {
        if (gen_step(w->gen, e) || read_events(w, &done, stats, chosen, e))
            return e->code;
        if (from <= 0 && w->said.n > 0)
            from = clock_ms();
        if (cli_interrupted())
            return err_set(e, ERR_CANCEL, "interrupted");
    }
    *ms = from > 0 ? clock_ms() - from : 0;
    return ERR_OK;
}

/* Without guesses, to know the answer; the model is warm then. *timed: true if something comes after its first token.
 */
static enum err_code record(struct speculate *s, struct item *it, bool *timed, struct err *e)
{
    struct way *plain = &s->way[0];
    struct gen_stats st;
    int64_t chosen;
    double ms;

    if (answer_item(plain, it, &st, &chosen, &ms, e))
        return e->code;
    *timed |= chosen > 1;
    it->answer = plain->said;
    plain->said = (struct text_tokens){ 0 };
    return ERR_OK;
}

static enum err_code measure_way(struct way *w, const struct item *it, int rep, struct err *e)
{
    struct gen_stats st;
    int64_t chosen;
    double ms;

    if (answer_item(w, it, &st, &chosen, &ms, e))
        return e->code;
    if (w->said.n != it->answer.n || memcmp(w->said.v, it->answer.v, (size_t)w->said.n * sizeof *w->said.v) != 0)
        return err_set(e, ERR_UNSUPPORTED, "%s: another answer with %s than without guesses: please report this",
                       it->set, w->name);
    w->ms[rep] += ms;
    w->all_ms[rep] += ms;
    w->n.steps += st.steps;
    w->n.tokens += chosen > 0 ? chosen - 1 : 0; /* the first one is the prompt's */
    w->n.drafted += st.drafted;
    w->n.kept += st.kept;
    return ERR_OK;
}

static enum err_code measure_item(struct speculate *s, size_t at, int rep, struct err *e)
{
    for (int i = 0; i < s->n_ways; i++)
        if (measure_way(&s->way[(at + (size_t)rep + (size_t)i) % (size_t)s->n_ways], &s->v[at], rep, e))
            return e->code;
    return ERR_OK;
}

/* ---- reports ---- */

static void put_places(json_t *r, const struct way *w)
{
    json_t *all = json_array();

    for (int i = 0; i < w->width; i++)
        json_array_append_new(
            all, json_pack("{s:I, s:I}", "tried", (json_int_t)w->tried_at[i], "kept", (json_int_t)w->kept_at[i]));
    json_object_set_new(r, "by_place", all);
}

/* Times as much as without guesses, of each repetition. */
static enum err_code report_way(struct speculate *s, const struct way *w, const char *set, int64_t items, bool all,
                                struct err *e)
{
    const int reps = s->b->o->reps;
    const double *ms = all ? w->all_ms : w->ms, *plain = all ? s->way[0].all_ms : s->way[0].ms;
    const struct counts *n = all ? &w->all : &w->n;
    const double tokens = (double)n->tokens / reps, a_step = n->steps > 0 ? (double)n->tokens / (double)n->steps : 0;
    double *tps = calloc(2 * (size_t)reps, sizeof *tps);
    struct bench_spread v, x;
    char what[512];
    json_t *r;

    if (tps == NULL)
        return err_nomem(e);
    for (int i = 0; i < reps; i++) {
        tps[i] = ms[i] > 0 ? tokens * 1e3 / ms[i] : 0;
        tps[reps + i] = ms[i] > 0 ? plain[i] / ms[i] : 1;
    }
    v = cli_bench_spread(tps, reps);
    x = cli_bench_spread(tps + reps, reps);
    free(tps);
    snprintf(what, sizeof what, "%s draft=%s max=%d%s", set, w->name, w->width, s->b->o->fixed ? " fixed" : "");
    r = cli_bench_record("speculate", what, "speedup", "higher");
    cli_bench_text(r, "set", set);
    cli_bench_text(r, "draft", w->name);
    cli_bench_int(r, "draft_max", w->width);
    cli_bench_put_spread(r, "speedup", "", x);
    cli_bench_put_noise(r, x);
    cli_bench_put_spread(r, "tps", "", v);
    cli_bench_real(r, "tokens_per_step", a_step);
    cli_bench_int(r, "n_items", items);
    cli_bench_int(r, "tokens", (int64_t)(tokens + 0.5));
    cli_bench_int(r, "drafted", n->drafted);
    cli_bench_int(r, "kept", n->kept);
    if (!all)
        put_places(r, w);
    cli_bench_int(r, "reps", reps);
    cli_bench_line(s->b,
                   "%-16s %-24s %2d  %8.1f tokens/s  x %.3f [%.3f, %.3f]  %5.2f tokens a step, %3.0f %% of %lld kept",
                   set, w->name, w->width, v.median, x.median, x.min, x.max, a_step,
                   n->drafted > 0 ? 100.0 * (double)n->kept / (double)n->drafted : 0, (long long)n->drafted);
    return cli_bench_done(s->b, r, e);
}

/* Items from .. to - 1 are a set. */
static enum err_code measure_set(struct speculate *s, size_t from, size_t to, struct err *e)
{
    const struct progress progress = cli_bench_progress("answers");
    const int reps = s->b->o->reps;
    bool timed = false;

    for (int i = 0; i < s->n_ways; i++) {
        struct way *w = &s->way[i];

        memset(w->ms, 0, (size_t)reps * sizeof *w->ms);
        w->n = (struct counts){ 0 };
        memset(w->tried_at, 0, sizeof w->tried_at);
        memset(w->kept_at, 0, sizeof w->kept_at);
    }
    for (size_t at = from; at < to; at++)
        if (record(s, &s->v[at], &timed, e))
            return e->code;
    if (!timed)
        return err_set(e, ERR_FORMAT, "%s: no answer has a second token: there is nothing to time", s->v[from].set);
    for (int rep = 0; rep < reps; rep++)
        for (size_t at = from; at < to; at++) {
            if (!progress_tick(&progress, from * (size_t)reps + (size_t)rep * (to - from) + at - from,
                               s->n * (size_t)reps))
                return err_set(e, ERR_CANCEL, "interrupted");
            if (measure_item(s, at, rep, e))
                return e->code;
        }
    for (int i = 0; i < s->n_ways; i++) {
        struct way *w = &s->way[i];

        if (report_way(s, w, s->v[from].set, (int64_t)(to - from), false, e))
            return e->code;
        w->all.steps += w->n.steps;
        w->all.tokens += w->n.tokens;
        w->all.drafted += w->n.drafted;
        w->all.kept += w->n.kept;
    }
    return ERR_OK;
}

static enum err_code measure_all(struct speculate *s, struct err *e)
{
    enum err_code code = ERR_OK;
    int n_sets = 0;

    for (size_t from = 0, to; from < s->n && code == ERR_OK; from = to, n_sets++) {
        for (to = from; to < s->n && s->v[to].set == s->v[from].set; to++)
            ;
        code = measure_set(s, from, to, e);
    }
    for (int i = 0; n_sets > 1 && i < s->n_ways && code == ERR_OK; i++)
        code = report_way(s, &s->way[i], "all", (int64_t)s->n, true, e);
    cli_progress_end();
    return code;
}

enum err_code cli_bench_cmd_speculate(struct bench *b, struct err *e)
{
    struct speculate *s = calloc(1, sizeof *s);
    enum err_code code;

    if (s == NULL)
        return err_nomem(e);
    s->b = b;
    b->open.nextn = b->o->drafts_of.n > 0;
    code = add_ways(s, e) || cli_bench_open(b, *b->operands != NULL, e) ||
                   (b->o->shape == NULL && b->open.text == NULL && cli_open_text(&b->open, false, e)) ||
                   read_items(s, e) || open_ways(s, e)
               ? e->code
               : measure_all(s, e);
    close_all(s);
    free(s);
    return code;
}
