/* SPDX-License-Identifier: Apache-2.0 */
/* scored.c - scored answers become epochs of a table where that does not hurt (engram/scored.h): the files, what is
 * printed, and the model that reads the text to test on. The new table takes the old one's place at once, and the old
 * one stays beside it. room: cmd */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/io.h"
#include "base/pool.h"
#include "cli/engram.h"
#include "engram-build/program.h"
#include "engram/build.h"
#include "engram/scored.h"
#include "gguf/gguf.h"
#include "text/text.h"

enum { HELD_BYTES = 64 << 10 /* of the documents that came with the program */ };

struct scoring {
    const struct build_options *o;
    const char *path;
    char *beside; /* the table that is made */
    struct cli_opened x;
    struct pool *pool;
    struct engram *old; /* NULL: there is no table yet */
    struct engram_scored *scored;
    struct engram_heard heard;
    struct cli_engram spaces; /* a mix without a table */
};

static enum err_code read_line(void *ctx, struct str line, struct err *e)
{
    struct scoring *s = ctx;

    return cli_interrupted() ? err_set(e, ERR_CANCEL, "interrupted") : engram_scored_line(s->scored, line, e);
}

static bool show_answers(void *ctx, uint64_t done, uint64_t total)
{
    (void)ctx;
    cli_progress_count("new answers", (int64_t)done, (int64_t)total, "");
    return !cli_interrupted();
}

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

/* The last of the documents that came with the program. */
static enum err_code hear_own(struct scoring *s, struct err *e)
{
    char dir[3072], path[4096];
    char *data = NULL;
    size_t n = 0;

    if (!cli_eval_path(dir, sizeof dir))
        return err_set(e, ERR_ARG, "--held-out is needed: the test text that comes with the program is not there");
    (void)snprintf(path, sizeof path, "%s/heldout-docs.txt", dir);
    if (io_read_text(&data, &n, path, 1 << 26, cli_interrupted, e))
        return e->code;
    const size_t most = n < HELD_BYTES ? n : HELD_BYTES;
    const char *line = memchr(data + (n - most), '\n', most), *begin = line != NULL ? line + 1 : data;
    const struct str text = { begin, (size_t)(data + n - begin) };
    enum err_code code = cli_engram_hear(&s->heard, s->o, NULL, &text, &s->x, e);

    free(data);
    return code;
}

static enum err_code hear_text(struct scoring *s, struct err *e)
{
    const char **files;
    enum err_code code;

    if (s->o->held_out.n == 0)
        return hear_own(s, e);
    files = names_of(&s->o->held_out, e);
    code = files == NULL ? e->code : cli_engram_hear(&s->heard, s->o, (char *const *)(uintptr_t)files, NULL, &s->x, e);
    free(files);
    return code;
}

static enum err_code print_trial(void *ctx, const struct engram_scored_group *g, const struct engram_trial *t,
                                 struct err *e)
{
    const struct scoring *s = ctx;

    if (s->o->json)
        return cli_json_line(json_pack("{s:s, s:s, s:I, s:I, s:o, s:o, s:o, s:b}", "type", "engram-night", "domain",
                                       g->domain, "texts", (json_int_t)g->n, "tokens", (json_int_t)g->tokens, "ppl",
                                       cli_json_real(t->alone), "ppl_before", cli_json_real(t->before), "ppl_after",
                                       cli_json_real(t->after), "added", (int)t->added),
                             e);
    if (s->o->quiet)
        return ERR_OK;
    printf("%s%s%lld texts, %lld tokens: perplexity %.4f to %.4f, %.4f without a table: %s\n", g->domain,
           *g->domain != '\0' ? ": " : "", (long long)g->n, (long long)g->tokens, t->before, t->after, t->alone,
           t->added ? "added" : "left out");
    return cli_flush_stdout(e);
}

static enum err_code check_free(const char *path, struct err *e)
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

static enum err_code open_scored(struct scoring *s, struct err *e)
{
    const struct build_options *o = s->o;
    const uint64_t tokenizer = text_fingerprint(s->x.gguf);
    const struct engram_opts eo = { .tokenizer = tokenizer, .day = o->day };
    char *file = realpath(s->path, NULL); /* beside what a link leads to: on the same file system */
    const char *name = file != NULL ? file : s->path;
    const size_t n = strlen(name) + 8;

    s->beside = malloc(n);
    if (s->beside != NULL)
        (void)snprintf(s->beside, n, "%s.night", name);
    free(file);
    if (s->beside == NULL)
        return err_nomem(e);
    if (check_free(s->beside, e))
        return e->code;
    if (access(s->path, F_OK) == 0 && engram_open(&s->old, &s->path, 1, &eo, e))
        return e->code;
    if (pool_open(&s->pool, o->model.n_threads > 0 ? o->model.n_threads : pool_cpus(), e) ||
        cli_engram_open(&s->spaces, NULL, 0, true, s->x.gguf, s->x.text, model_info(s->x.model)->n_vocab, e))
        return e->code;
    return engram_scored_open(&s->scored,
                              &(struct engram_scored_opts){ .old = s->old,
                                                            .text = s->x.text,
                                                            .tokenizer = tokenizer,
                                                            .score_min = o->score_min,
                                                            .domain = o->domain,
                                                            .day = o->day,
                                                            .order = o->order,
                                                            .memory_bytes = (uint64_t)o->memory_bytes,
                                                            .pool = s->pool },
                              e);
}

static enum err_code read_answers(struct scoring *s, struct err *e)
{
    const char **from = names_of(&s->o->from, e);
    const enum err_code code = from == NULL || open_scored(s, e) || cli_engram_lines(s->o, from, read_line, s, e)
                                   ? e->code
                                   : engram_scored_group(s->scored, e);

    free(from);
    return code;
}

static enum err_code check_answers(const struct scoring *s, struct err *e)
{
    const struct engram_scored_counts n = engram_scored_counts(s->scored);

    if (n.n_other > 0 && n.n_low + n.n_known == 0 && n.n == 0)
        return err_set(e, ERR_FORMAT, "%s: no line is an object with a \"text\" and a \"score\"", s->o->from.v[0]);
    if (n.n_other > 0)
        cli_warn("%lld lines are no objects with a \"text\" and a \"score\": left out", (long long)n.n_other);
    cli_note("%lld answers are new, %lld known, %lld score too low", (long long)n.n, (long long)n.n_known,
             (long long)n.n_low);
    return ERR_OK;
}

static enum err_code add_scored(struct scoring *s, int *status, struct err *e)
{
    const struct progress progress = { show_answers, NULL };
    struct engram_scored_counts n;

    if (read_answers(s, e) || check_answers(s, e))
        return e->code;
    if (engram_scored_counts(s->scored).n == 0)
        return ERR_OK;
    if (engram_scored_build(s->scored, s->beside, &progress, e))
        return e->code;
    cli_progress_end();
    s->spaces.mix.ceiling[0] = CLI_ENGRAM_WEIGHT;
    if (hear_text(s, e) || engram_scored_test(s->scored, &s->heard, &s->spaces.mix, print_trial, s, e))
        return e->code;
    n = engram_scored_counts(s->scored);
    *status = n.n_added == n.n_groups ? EXIT_OK : EXIT_NO;
    if (n.n_added == 0)
        return ERR_OK;
    if (cli_interrupted())
        return err_set(e, ERR_CANCEL, "interrupted");
    return engram_scored_write(s->scored, s->beside, e) || io_publish(s->path, s->beside, s->o->keep, e) ? e->code
                                                                                                         : ERR_OK;
}

enum err_code cli_engram_scored(const struct build_options *o, const char *path, int *status, struct err *e)
{
    struct scoring s = { .o = o, .path = path };
    struct io_lock *lock = NULL;
    const enum err_code code = cli_open(&s.x, &o->model, e) || cli_open_text(&s.x, true, e) ||
                                       cli_open_model(&s.x, e) || io_lock(&lock, path, e)
                                   ? e->code
                                   : add_scored(&s, status, e);

    cli_progress_end();
    engram_scored_close(s.scored);
    engram_close(s.old);
    engram_heard_close(&s.heard);
    cli_engram_close(&s.spaces);
    free(s.beside);
    io_unlock(lock);
    pool_close(s.pool);
    cli_opened_close(&s.x);
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
        cli_summary("%s is now what %s.1 was before", path, path);
    return code;
}
