/* SPDX-License-Identifier: Apache-2.0 */
/* scored.c - scored answers become epochs of a table where that does not hurt. */
#include "engram/scored.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/json.h"
#include "base/memory.h"
#include "text/text.h"

#define RISE_MAX 1.001 /* of the perplexity, in all new epochs and beside the model alone */

struct answer {
    uint64_t known; /* its number */
    char domain[ENGRAM_DOMAIN_BYTES];
    char *text;
    size_t n, at; /* at: its place in the files */
};
struct group { /* of answers with one domain: [begin, end) */
    size_t begin, end;
    uint64_t tokens;
};
struct engram_scored {
    struct engram_scored_opts o;
    struct engram *fresh, *view; /* the new epochs; the old ones with those that are weighed */
    struct answer *answer;       /* [n] */
    size_t n, cap, bytes;
    struct group group[ENGRAM_EPOCHS_MAX];
    bool with[ENGRAM_EPOCHS_MAX]; /* groups that are taken */
    struct engram_scored_counts counts;
};

enum err_code engram_scored_open(struct engram_scored **out, const struct engram_scored_opts *o, struct err *e)
{
    struct engram_scored *s = calloc(1, sizeof *s);

    if (s == NULL)
        return err_nomem(e);
    s->o = *o;
    *out = s;
    return ERR_OK;
}

void engram_scored_close(struct engram_scored *s)
{
    if (s == NULL)
        return;
    engram_close(s->view);
    engram_close(s->fresh);
    for (size_t i = 0; i < s->n; i++)
        free(s->answer[i].text);
    free(s->answer);
    free(s);
}

struct engram_scored_counts engram_scored_counts(const struct engram_scored *s)
{
    return s->counts;
}

/* ---- answers ---- */

/* Other letters of a domain become '_'. */
static void copy_domain(char domain[ENGRAM_DOMAIN_BYTES], struct str name)
{
    const size_t n = name.n < ENGRAM_DOMAIN_BYTES - 1 ? name.n : ENGRAM_DOMAIN_BYTES - 1;

    memset(domain, 0, ENGRAM_DOMAIN_BYTES);
    for (size_t i = 0; i < n; i++)
        domain[i] = engram_domain_ok((struct str){ name.p + i, 1 }) ? name.p[i] : '_';
}

/* A text ends as a line does, so that its end is learnt, too. */
static enum err_code add_answer(struct engram_scored *s, struct str text, struct str domain, struct err *e)
{
    const bool ends = text.p[text.n - 1] == '\n';
    struct answer *a;

    if (memory_room(&s->answer, &s->cap, s->n + 1, sizeof *a, e))
        return e->code;
    s->bytes += text.n + sizeof *a;
    if (s->bytes > s->o.memory_bytes)
        return err_set(e, ERR_LIMIT, "the new answers have more than %lld bytes: --memory allows more",
                       (long long)s->o.memory_bytes);
    a = &s->answer[s->n];
    *a = (struct answer){
        .known = io_hash(0, text.p, text.n), .text = malloc(text.n + 1), .n = text.n + !ends, .at = s->n
    };
    if (a->text == NULL)
        return err_nomem(e);
    memcpy(a->text, text.p, text.n);
    a->text[a->n - 1] = '\n';
    copy_domain(a->domain, domain);
    s->n++;
    return ERR_OK;
}

enum err_code engram_scored_line(struct engram_scored *s, struct str line, struct err *e)
{
    struct str text = { 0 }, domain = str_of(s->o.domain != NULL ? s->o.domain : "");
    enum err_code code = ERR_OK;
    json_t *o = NULL;
    struct err bad;

    while (line.n > 0 && strchr(" \t\r\n", line.p[line.n - 1]) != NULL)
        line.n--;
    if (line.n == 0)
        return ERR_OK;
    if (json_parse(&o, line, "line", &bad) != ERR_OK)
        o = NULL;
    const json_t *score = json_object_get(o, "score");

    if (!json_get_str(o, "text", &text) || text.n == 0 || !json_is_number(score))
        s->counts.n_other++;
    else if ((float)json_number_value(score) < s->o.score_min)
        s->counts.n_low++;
    else if (s->o.old != NULL && engram_knows(s->o.old, io_hash(0, text.p, text.n)))
        s->counts.n_known++;
    else {
        (void)json_get_str(o, "domain", &domain);
        code = add_answer(s, text, domain, e);
    }
    json_decref(o);
    return code;
}

static int by_known(const void *a, const void *b)
{
    const struct answer *x = a, *y = b;

    return x->known != y->known ? (x->known > y->known) - (x->known < y->known) : (x->at > y->at) - (x->at < y->at);
}

static int by_domain(const void *a, const void *b)
{
    const struct answer *x = a, *y = b;
    const int c = strcmp(x->domain, y->domain);

    return c != 0 ? c : (x->at > y->at) - (x->at < y->at);
}

enum err_code engram_scored_group(struct engram_scored *s, struct err *e)
{
    size_t n = 0;

    if (s->n > 1)
        qsort(s->answer, s->n, sizeof *s->answer, by_known);
    for (size_t i = 0; i < s->n; i++) {
        if (n == 0 || s->answer[n - 1].known != s->answer[i].known) {
            s->answer[n++] = s->answer[i];
            continue;
        }
        s->counts.n_known++;
        free(s->answer[i].text);
    }
    s->n = n;
    s->counts.n = (int64_t)n;
    if (n > 1)
        qsort(s->answer, n, sizeof *s->answer, by_domain);
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || strcmp(s->answer[i].domain, s->answer[i - 1].domain) != 0) {
            if (s->counts.n_groups == ENGRAM_EPOCHS_MAX)
                return err_set(e, ERR_LIMIT, "more than %d domains", ENGRAM_EPOCHS_MAX);
            s->group[s->counts.n_groups++].begin = i;
        }
        s->group[s->counts.n_groups - 1].end = i + 1;
    }
    return ERR_OK;
}

/* ---- the new epochs ---- */

static enum err_code add_tokens(struct engram_scored *s, struct group *group, struct engram_builder *b,
                                const struct progress *progress, struct err *e)
{
    struct text_tokens ids = { 0 };
    enum err_code code = ERR_OK;

    for (size_t i = group->begin; code == ERR_OK && i < group->end; i++) {
        const struct answer *a = &s->answer[i];

        ids.n = 0;
        code = !progress_tick(progress, (uint64_t)i, (uint64_t)s->n)
                   ? err_set(e, ERR_CANCEL, "interrupted")
                   : text_encode(s->o.text, (struct str){ a->text, a->n }, 0, &ids, e);
        if (code == ERR_OK)
            code = engram_build_tokens(b, ids.v, ids.n, e) || engram_build_end(b, e) ? e->code : ERR_OK;
        group->tokens += (uint64_t)ids.n;
    }
    text_tokens_free(&ids);
    return code;
}

static enum err_code build_group(struct engram_scored *s, const char *path, int i, const struct progress *progress,
                                 struct err *e)
{
    struct group *group = &s->group[i];
    const size_t n = group->end - group->begin;
    const char *domain = s->answer[group->begin].domain;
    uint64_t *known = malloc(n * sizeof *known);
    struct engram_builder *b = NULL;
    enum err_code code = known != NULL ? ERR_OK : err_nomem(e);
    const struct engram_build_opts bo = {
        .tokenizer = s->o.tokenizer,
        .day = s->o.day,
        .order = s->o.order,
        .pool = s->o.pool,
        .add = i > 0,
        .memory_bytes = s->o.memory_bytes,
        .domain = *domain != '\0' ? domain : NULL,
        .known = known,
        .n_known = n,
    };

    for (size_t k = 0; code == ERR_OK && k < n; k++)
        known[k] = s->answer[group->begin + k].known;
    if (code == ERR_OK) {
        qsort(known, n, sizeof *known, io_by_hash);
        code = engram_build_open(&b, path, &bo, e);
    }
    if (code == ERR_OK && (code = add_tokens(s, group, b, progress, e)) != ERR_OK) {
        engram_build_abort(b);
        b = NULL;
    }
    if (code == ERR_OK)
        code = engram_build_commit(b, NULL, e);
    free(known);
    return code;
}

enum err_code engram_scored_build(struct engram_scored *s, const char *path, const struct progress *progress,
                                  struct err *e)
{
    enum err_code code = ERR_OK;

    for (int i = 0; code == ERR_OK && i < s->counts.n_groups; i++)
        code = build_group(s, path, i, progress, e);
    if (code == ERR_OK)
        code = engram_open(&s->fresh, &path, 1, &(struct engram_opts){ .day = s->o.day }, e);
    unlink(path); /* it stays mapped */
    return code;
}

/* ---- the test ---- */

/* A test of the new epochs. */
struct testing {
    struct engram_scored *s;
    const struct engram_heard *heard;
    const struct engram_mix *mix;
    engram_tried_fn *tried;
    void *ctx;
};

static enum err_code weigh_view(void *ctx, const bool *with, bool alone, double *perplexity, struct err *e)
{
    const struct testing *t = ctx;
    struct engram_mix mix = *t->mix;

    engram_close(t->s->view);
    t->s->view = NULL;
    if (engram_view(&t->s->view, t->s->o.old, t->s->fresh, with, e))
        return e->code;
    mix.table = t->s->view;
    if (alone)
        mix.ceiling[0] = 0;
    *perplexity = engram_heard_perplexity(t->heard, &mix);
    return ERR_OK;
}

static enum err_code tell_trial(void *ctx, int i, const struct engram_trial *trial, struct err *e)
{
    const struct testing *t = ctx;
    const struct group *g = &t->s->group[i];
    const struct engram_scored_group group = { t->s->answer[g->begin].domain, (int64_t)(g->end - g->begin), g->tokens };

    return t->tried(t->ctx, &group, trial, e);
}

enum err_code engram_choose(bool *with, int n, engram_weigh_fn *weigh,
                            enum err_code (*tried)(void *ctx, int i, const struct engram_trial *t, struct err *e),
                            void *ctx, struct err *e)
{
    double alone, old, now;

    if (weigh(ctx, with, true, &alone, e) || weigh(ctx, with, false, &old, e))
        return e->code;
    now = old;
    for (int i = 0; i < n; i++) {
        struct engram_trial t = { alone, now, 0, false };

        with[i] = true;
        if (weigh(ctx, with, false, &t.after, e))
            return e->code;
        with[i] = t.added = t.after <= old * RISE_MAX && (t.after <= old || t.after <= alone * RISE_MAX);
        if (tried(ctx, i, &t, e))
            return e->code;
        now = t.added ? t.after : now;
    }
    return ERR_OK;
}

enum err_code engram_scored_test(struct engram_scored *s, const struct engram_heard *heard,
                                 const struct engram_mix *mix, engram_tried_fn *tried, void *ctx, struct err *e)
{
    struct testing t = { s, heard, mix, tried, ctx };
    double perplexity;

    if (engram_choose(s->with, s->counts.n_groups, weigh_view, tell_trial, &t, e) ||
        weigh_view(&t, s->with, false, &perplexity, e)) /* the last one may have been left out */
        return e->code;
    for (int i = 0; i < s->counts.n_groups; i++)
        s->counts.n_added += s->with[i];
    return ERR_OK;
}

enum err_code engram_scored_write(const struct engram_scored *s, const char *path, struct err *e)
{
    return engram_write(s->view, path, e);
}
