/* SPDX-License-Identifier: Apache-2.0 */
/* scored.c - scored answers become epochs of a table where that does not hurt.  room: cmd
 *
 * The new epochs, one for each domain, are a table of their own first. The model reads held-out text once; then the old
 * table is weighed with what it said, and with one new epoch after the other: an epoch that makes the text less likely
 * is left out. What is left becomes the table at once, and the old one stays beside it.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/io.h"
#include "base/pool.h"
#include "cli/engram.h"
#include "engram-build/program.h"
#include "gguf/gguf.h"
#include "text/text.h"

#define RISE_MAX 1.001 /* of the perplexity, in a night and beside the model alone */

enum { HELD_BYTES = 64 << 10 /* of the documents that came with the program */ };

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
struct night {
    const struct build_options *o;
    const char *path;
    char *beside; /* the table that is made */
    struct cli_opened x;
    struct pool *pool;
    struct engram *old, *fresh, *view; /* old NULL: there is no table yet */
    struct cli_engram_heard *heard;
    struct cli_engram spaces; /* a mix without a table */
    struct answer *answer;    /* [n] */
    size_t n, cap, bytes;
    struct group group[ENGRAM_EPOCHS_MAX];
    bool with[ENGRAM_EPOCHS_MAX]; /* groups that are published */
    int n_groups;
    int64_t n_other, n_low, n_known; /* lines that are no answers, answers that score too low, that are known */
};

/* ---- answers ---- */

/* Other letters of a domain become '_'. */
static void take_domain(char domain[ENGRAM_DOMAIN_BYTES], struct str s)
{
    const size_t n = s.n < ENGRAM_DOMAIN_BYTES - 1 ? s.n : ENGRAM_DOMAIN_BYTES - 1;

    memset(domain, 0, ENGRAM_DOMAIN_BYTES);
    for (size_t i = 0; i < n; i++)
        domain[i] = engram_domain_ok((struct str){ s.p + i, 1 }) ? s.p[i] : '_';
}

static enum err_code add_answer(struct night *g, struct str text, struct str domain, struct err *e)
{
    struct answer *a;

    if (g->n == g->cap) {
        const size_t cap = g->cap > 0 ? 2 * g->cap : 256;

        if ((a = realloc(g->answer, cap * sizeof *a)) == NULL)
            return err_nomem(e);
        g->answer = a;
        g->cap = cap;
    }
    g->bytes += text.n + sizeof *a;
    if (g->bytes > (uint64_t)g->o->memory_bytes)
        return err_set(e, ERR_LIMIT, "the new answers have more than %lld bytes: --memory allows more",
                       (long long)g->o->memory_bytes);
    a = &g->answer[g->n];
    *a = (struct answer){ .known = io_hash(0, text.p, text.n), .text = malloc(text.n), .n = text.n, .at = g->n };
    if (a->text == NULL)
        return err_nomem(e);
    memcpy(a->text, text.p, text.n);
    take_domain(a->domain, domain);
    g->n++;
    return ERR_OK;
}

static enum err_code take_line(void *ctx, struct str line, struct err *e)
{
    struct night *g = ctx;
    struct str text = { 0 }, domain = str_of(g->o->domain != NULL ? g->o->domain : "");
    enum err_code code = ERR_OK;
    json_t *o = NULL;
    struct err bad;

    if (cli_interrupted())
        return err_set(e, ERR_CANCEL, "interrupted");
    while (line.n > 0 && strchr(" \t\r\n", line.p[line.n - 1]) != NULL)
        line.n--;
    if (line.n == 0)
        return ERR_OK;
    if (json_parse(&o, line, "line", &bad) != ERR_OK)
        o = NULL;
    const json_t *score = json_object_get(o, "score");

    if (!json_get_str(o, "text", &text) || text.n == 0 || !json_is_number(score))
        g->n_other++;
    else if ((float)json_number_value(score) < g->o->score_min)
        g->n_low++;
    else if (g->old != NULL && engram_knows(g->old, io_hash(0, text.p, text.n)))
        g->n_known++;
    else {
        (void)json_get_str(o, "domain", &domain);
        code = add_answer(g, text, domain, e);
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

/* The same answer counts once. */
static enum err_code sort_answers(struct night *g, struct err *e)
{
    size_t n = 0;

    if (g->n > 1)
        qsort(g->answer, g->n, sizeof *g->answer, by_known);
    for (size_t i = 0; i < g->n; i++) {
        if (n == 0 || g->answer[n - 1].known != g->answer[i].known) {
            g->answer[n++] = g->answer[i];
            continue;
        }
        g->n_known++;
        free(g->answer[i].text);
    }
    g->n = n;
    if (n > 1)
        qsort(g->answer, n, sizeof *g->answer, by_domain);
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || strcmp(g->answer[i].domain, g->answer[i - 1].domain) != 0) {
            if (g->n_groups == ENGRAM_EPOCHS_MAX)
                return err_set(e, ERR_LIMIT, "more than %d domains", ENGRAM_EPOCHS_MAX);
            g->group[g->n_groups++].begin = i;
        }
        g->group[g->n_groups - 1].end = i + 1;
    }
    return ERR_OK;
}

/* ---- the new epochs ---- */

static int up(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static enum err_code add_tokens(struct night *g, struct group *group, struct engram_builder *b, struct err *e)
{
    struct text_tokens ids = { 0 };
    enum err_code code = ERR_OK;

    for (size_t i = group->begin; code == ERR_OK && i < group->end; i++) {
        const struct answer *a = &g->answer[i];

        ids.n = 0;
        code = cli_interrupted() ? err_set(e, ERR_CANCEL, "interrupted")
                                 : text_encode(g->x.text, (struct str){ a->text, a->n }, 0, &ids, e);
        if (code == ERR_OK)
            code = engram_build_tokens(b, ids.v, ids.n, e) || engram_build_end(b, e) ? e->code : ERR_OK;
        group->tokens += (uint64_t)ids.n;
        cli_progress_count("new answers", (int64_t)i, (int64_t)g->n, "");
    }
    text_tokens_free(&ids);
    return code;
}

static enum err_code build_group(struct night *g, int i, struct err *e)
{
    struct group *group = &g->group[i];
    const size_t n = group->end - group->begin;
    const char *domain = g->answer[group->begin].domain;
    uint64_t *known = malloc(n * sizeof *known);
    struct engram_builder *b = NULL;
    enum err_code code = known != NULL ? ERR_OK : err_nomem(e);
    const struct engram_build_opts bo = {
        .tokenizer = text_fingerprint(g->x.gguf),
        .day = g->o->day,
        .order = g->o->order,
        .pool = g->pool,
        .add = i > 0,
        .memory_bytes = (uint64_t)g->o->memory_bytes,
        .domain = *domain != '\0' ? domain : NULL,
        .known = known,
        .n_known = n,
    };

    for (size_t k = 0; code == ERR_OK && k < n; k++)
        known[k] = g->answer[group->begin + k].known;
    if (code == ERR_OK) {
        qsort(known, n, sizeof *known, up);
        code = engram_build_open(&b, g->beside, &bo, e);
    }
    if (code == ERR_OK && (code = add_tokens(g, group, b, e)) != ERR_OK) {
        engram_build_abort(b);
        b = NULL;
    }
    if (code == ERR_OK)
        code = engram_build_commit(b, NULL, e);
    free(known);
    return code;
}

static enum err_code build_all(struct night *g, struct err *e)
{
    enum err_code code = pool_open(&g->pool, g->o->model.n_threads > 0 ? g->o->model.n_threads : pool_cpus(), e);

    for (int i = 0; code == ERR_OK && i < g->n_groups; i++)
        code = build_group(g, i, e);
    cli_progress_end();
    if (code == ERR_OK)
        code = engram_open(&g->fresh, (const char *const *)&g->beside, 1, &(struct engram_opts){ .day = g->o->day }, e);
    unlink(g->beside); /* it stays mapped */
    return code;
}

/* ---- the test ---- */

/* Ends with NULL. */
static const char **names_of(const struct cli_list *l, struct err *e)
{
    const char **v = calloc(l->n + 1, sizeof *v);

    if (v == NULL)
        err_nomem(e);
    else if (l->n > 0)
        memcpy(v, l->v, l->n * sizeof *v);
    return v;
}

static enum err_code hear_files(struct night *g, struct err *e)
{
    const char **files = names_of(&g->o->held_out, e);
    enum err_code code =
        files == NULL ? e->code : cli_engram_hear(&g->heard, g->o, (char *const *)(uintptr_t)files, NULL, &g->x, e);

    free(files);
    return code;
}

/* The last of the documents that came with the program. */
static enum err_code hear_own(struct night *g, struct err *e)
{
    char dir[3072], path[4096];
    char *data = NULL;
    size_t n = 0;

    if (!cli_eval_path(dir, sizeof dir))
        return err_set(e, ERR_ARG, "--held-out is needed: the test text that comes with the program is not there");
    (void)snprintf(path, sizeof path, "%s/heldout-docs.txt", dir);
    if (io_read_all(&data, &n, path, 1 << 26, cli_interrupted, e))
        return e->code;
    const size_t most = n < HELD_BYTES ? n : HELD_BYTES;
    const char *line = memchr(data + (n - most), '\n', most), *begin = line != NULL ? line + 1 : data;
    const struct str text = { begin, (size_t)(data + n - begin) };
    enum err_code code = cli_engram_hear(&g->heard, g->o, NULL, &text, &g->x, e);

    free(data);
    return code;
}

/* With those of the new epochs that are marked; *perplexity. */
static enum err_code weigh(struct night *g, float ceiling, double *perplexity, struct err *e)
{
    struct engram_mix mix = g->spaces.mix;

    engram_close(g->view);
    g->view = NULL;
    if (engram_view(&g->view, g->old, g->fresh, g->with, e))
        return e->code;
    mix.table = g->view;
    mix.ceiling[0] = ceiling;
    *perplexity = cli_engram_perplexity(g->heard, &mix);
    return ERR_OK;
}

static enum err_code tell(const struct night *g, int i, double alone, double before, double after, struct err *e)
{
    const struct group *group = &g->group[i];
    const char *domain = g->answer[group->begin].domain;
    const long long n = (long long)(group->end - group->begin), tokens = (long long)group->tokens;

    if (g->o->json)
        return cli_json_line(json_pack("{s:s, s:s, s:I, s:I, s:o, s:o, s:o, s:b}", "type", "engram-night", "domain",
                                       domain, "texts", (json_int_t)n, "tokens", (json_int_t)tokens, "ppl",
                                       cli_json_real(alone), "ppl_before", cli_json_real(before), "ppl_after",
                                       cli_json_real(after), "added", (int)g->with[i]),
                             e);
    if (g->o->quiet)
        return ERR_OK;
    printf("%s%s%lld texts, %lld tokens: perplexity %.4f to %.4f, %.4f without a table: %s\n", domain,
           *domain != '\0' ? ": " : "", n, tokens, before, after, alone, g->with[i] ? "added" : "left out");
    return cli_flush_stdout(e);
}

/* One epoch after the other, beside those that were taken. */
static enum err_code test(struct night *g, bool *all, struct err *e)
{
    double alone, old, now, after;

    *all = true;
    if (weigh(g, 0, &alone, e) || weigh(g, CLI_ENGRAM_WEIGHT, &old, e))
        return e->code;
    now = old;
    for (int i = 0; i < g->n_groups; i++) {
        g->with[i] = true;
        if (weigh(g, CLI_ENGRAM_WEIGHT, &after, e))
            return e->code;
        g->with[i] = after <= old * RISE_MAX && (after <= old || after <= alone * RISE_MAX);
        *all = *all && g->with[i];
        if (tell(g, i, alone, now, after, e))
            return e->code;
        now = g->with[i] ? after : now;
    }
    return weigh(g, CLI_ENGRAM_WEIGHT, &after, e);
}

/* ---- the night ---- */

static enum err_code is_free(const char *path, struct err *e)
{
    uint64_t magic = 0;
    struct stat st;
    FILE *f;

    if (lstat(path, &st) != 0)
        return ERR_OK;
    f = S_ISREG(st.st_mode) ? fopen(path, "rb") : NULL;
    const bool ours = f != NULL && (st.st_size == 0 ||
                                    (fread(&magic, sizeof magic, 1, f) == 1 && memcmp(&magic, "CHIMENGR", 8) == 0));

    if (f != NULL)
        (void)fclose(f);
    return ours ? ERR_OK : err_set(e, ERR_IO, "%s: is in the way: not a table", path);
}

static enum err_code open_night(struct night *g, struct err *e)
{
    const struct engram_opts eo = { .tokenizer = text_fingerprint(g->x.gguf), .day = g->o->day };
    char *file = realpath(g->path, NULL); /* beside what a link leads to: on the same file system */
    const char *name = file != NULL ? file : g->path;
    const size_t n = strlen(name) + 8;

    g->beside = malloc(n);
    if (g->beside != NULL)
        (void)snprintf(g->beside, n, "%s.night", name);
    free(file);
    if (g->beside == NULL)
        return err_nomem(e);
    if (is_free(g->beside, e))
        return e->code;
    if (access(g->path, F_OK) == 0 && engram_open(&g->old, &g->path, 1, &eo, e))
        return e->code;
    return cli_engram_open(&g->spaces, NULL, 0, true, g->x.gguf, g->x.text, model_info(g->x.model)->n_vocab, e);
}

static enum err_code run_night(struct night *g, int *status, struct err *e)
{
    const char **from = names_of(&g->o->from, e);
    bool all = true, some = false;

    if (from != NULL && open_night(g, e) == ERR_OK && cli_engram_lines(g->o, from, take_line, g, e) == ERR_OK)
        (void)sort_answers(g, e);
    free(from);
    if (e->code != ERR_OK)
        return e->code;
    if (g->n_other > 0 && g->n_low + g->n_known == 0 && g->n == 0)
        return err_set(e, ERR_FORMAT, "%s: no line is an object with a \"text\" and a \"score\"", g->o->from.v[0]);
    if (g->n_other > 0)
        cli_warn("%lld lines are no objects with a \"text\" and a \"score\": left out", (long long)g->n_other);
    cli_note("%lld answers are new, %lld known, %lld score too low", (long long)g->n, (long long)g->n_known,
             (long long)g->n_low);
    if (g->n == 0)
        return ERR_OK;
    if (build_all(g, e) || (g->o->held_out.n > 0 ? hear_files : hear_own)(g, e) || test(g, &all, e))
        return e->code;
    for (int i = 0; i < g->n_groups; i++)
        some = some || g->with[i];
    *status = all ? EXIT_OK : EXIT_NO;
    if (!some)
        return ERR_OK;
    if (cli_interrupted())
        return err_set(e, ERR_CANCEL, "interrupted");
    return engram_write(g->view, g->beside, e) || io_publish(g->path, g->beside, g->o->keep, e) ? e->code : ERR_OK;
}

enum err_code cli_engram_night(const struct build_options *o, const char *path, int *status, struct err *e)
{
    struct night *g = calloc(1, sizeof *g);
    struct io_lock *lock = NULL;
    enum err_code code;

    if (g == NULL)
        return err_nomem(e);
    g->o = o;
    g->path = path;
    code = cli_open(&g->x, &o->model, e) || cli_open_text(&g->x, true, e) || cli_open_model(&g->x, e) ||
                   io_lock(&lock, path, e)
               ? e->code
               : run_night(g, status, e);
    cli_progress_end();
    engram_close(g->view);
    engram_close(g->fresh);
    engram_close(g->old);
    cli_engram_heard_close(g->heard);
    cli_engram_close(&g->spaces);
    for (size_t i = 0; i < g->n; i++)
        free(g->answer[i].text);
    free(g->answer);
    free(g->beside);
    io_unlock(lock);
    pool_close(g->pool);
    cli_opened_close(&g->x);
    free(g);
    return code;
}

enum err_code cli_engram_rollback(const char *path, struct err *e)
{
    const size_t n = strlen(path) + 4;
    char *before = malloc(n);
    struct io_lock *lock = NULL;
    struct engram *g = NULL;
    enum err_code code = before != NULL ? io_lock(&lock, path, e) : err_nomem(e);

    if (code == ERR_OK) {
        (void)snprintf(before, n, "%s.1", path);
        if (access(before, F_OK) == 0) /* what is damaged serves nobody */
            code = engram_open(&g, (const char *const *)&before, 1, &(struct engram_opts){ .day = 0 }, e);
    }
    engram_close(g);
    if (code == ERR_OK)
        code = io_rollback(path, e);
    io_unlock(lock);
    free(before);
    if (code == ERR_OK)
        cli_note("%s is now what %s.1 was before", path, path);
    return code;
}
