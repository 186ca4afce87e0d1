/* SPDX-License-Identifier: Apache-2.0 */
/* prompts.c - prompts to train and to test on, from files.                   room: cmd */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include "ask/ask.h"
#include "base/io.h"
#include "base/memory.h"
#include "draft-train/program.h"
#include "train/files.h"
#include "tune/job.h"
#include "tune/spread.h"

/* In plain text a prompt begins every WINDOW tokens; this is its length. */
enum { OPENING = 64, WINDOW = 256 };

struct reading {
    const struct cli_train_options *o;
    const struct text *text;
    struct chat *format; /* opened when a chat comes */
    int64_t tokens_max;
    struct cli_train_prompts *to;
    int of;
    bool plain, piped; /* a text came; the standard input was read */
};

/* Takes the tokens. */
static enum err_code add_prompt(struct reading *r, struct text_tokens token, struct err *e)
{
    struct cli_train_prompts *p = r->to;

    if (token.n < 1 || token.n > r->tokens_max) {
        p->n_long += token.n > r->tokens_max;
        text_tokens_free(&token);
        return ERR_OK;
    }
    if (memory_room(&p->v, &p->cap, (size_t)p->n + 1, sizeof *p->v, e)) {
        text_tokens_free(&token);
        return e->code;
    }
    p->v[p->n++] = (struct cli_train_prompt){ token, r->of, p->n_document,
                                              io_hash(0, token.v, (size_t)token.n * sizeof *token.v) };
    return ERR_OK;
}

static enum err_code add_text(struct reading *r, struct str s, struct err *e)
{
    struct text_tokens all = { 0 };
    enum err_code code = text_encode(r->text, s, TEXT_ADD, &all, e);

    for (int64_t i = 0; code == ERR_OK && i < all.n; i += WINDOW) {
        struct text_tokens part = { 0 };

        for (int64_t j = i; code == ERR_OK && j < all.n && j < i + OPENING; j++)
            code = text_tokens_push(&part, all.v[j], e);
        if (code == ERR_OK)
            code = add_prompt(r, part, e);
        else
            text_tokens_free(&part);
    }
    text_tokens_free(&all);
    r->to->n_document += code == ERR_OK;
    return code;
}

static enum err_code add_chat(struct reading *r, const json_t *o, struct err *e)
{
    json_t *kwargs = json_pack("{s:O*}", "enable_thinking", json_object_get(o, "enable_thinking"));
    struct ask a = ask_defaults();
    struct text_tokens token = { 0 };
    enum err_code code = kwargs != NULL ? ERR_OK : err_nomem(e);

    a.messages = json_object_get(o, "messages");
    a.tools = json_object_get(o, "tools");
    a.kwargs = kwargs;
    if (code == ERR_OK && r->format == NULL)
        code = chat_open(&r->format, r->text, (struct str){ 0 }, e);
    if (code == ERR_UNSUPPORTED)
        err_set(e, code, "the model has no chat template: it can go on with a \"prompt\" or a \"text\" alone");
    if (code == ERR_OK)
        code = ask_prompt(&token, &a, &(struct ask_model){ .text = r->text, .chat = r->format }, NULL, e);
    json_decref(kwargs);
    if (code == ERR_OK)
        code = add_prompt(r, token, e);
    else
        text_tokens_free(&token);
    r->to->n_document += code == ERR_OK;
    return code;
}

/* {"messages"} is a chat, {"text"} a document, {"prompt"} a text to go on with. */
static enum err_code add_object(void *ctx, struct str line, struct err *e)
{
    struct reading *r = ctx;
    struct text_tokens token = { 0 };
    struct str s;
    json_t *o;
    enum err_code code;

    if (json_parse(&o, line, "", e))
        return e->code;
    if (json_is_array(json_object_get(o, "messages")))
        code = add_chat(r, o, e);
    else if (json_get_str(o, "text", &s))
        code = add_text(r, s, e);
    else if (json_get_str(o, "prompt", &s)) {
        code = text_encode(r->text, s, TEXT_ADD, &token, e);
        if (code == ERR_OK)
            code = add_prompt(r, token, e);
        r->to->n_document += code == ERR_OK;
    } else
        code = err_set(e, ERR_FORMAT, "neither messages nor text nor a prompt");
    json_decref(o);
    return code;
}

static enum err_code add_document(void *ctx, struct str line, struct err *e)
{
    return add_text(ctx, line, e);
}

static bool ends_in(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);

    return n > m && strcmp(name + (n - m), end) == 0;
}

/* Its name without directory and .jsonl is its class. */
static enum err_code name_class(struct reading *r, const char *path, struct err *e)
{
    const char *slash = strrchr(path, '/'), *base = slash != NULL ? slash + 1 : path;
    struct cli_train_prompts *p = r->to;
    char *name = strndup(base, strlen(base) - (ends_in(base, ".jsonl") ? 6 : 0)), **v;

    if (name == NULL)
        return err_nomem(e);
    cli_clean(name);
    for (r->of = 0; r->of < p->n_name; r->of++)
        if (strcmp(p->name[r->of], name) == 0) {
            free(name);
            return ERR_OK;
        }
    v = realloc(p->name, (size_t)(p->n_name + 1) * sizeof *v);
    if (v == NULL) {
        free(name);
        return err_nomem(e);
    }
    p->name = v;
    v[p->n_name++] = name;
    return ERR_OK;
}

static enum err_code read_file(struct reading *r, const char *path, struct err *e)
{
    const bool jsonl = ends_in(path, ".jsonl");
    const struct progress progress = cli_train_reading(path);
    char *data;
    size_t n;
    enum err_code code;
    const bool piped = strcmp(path, "-") == 0;

    if (piped && r->piped)
        return err_set(e, ERR_ARG, "-: the standard input can be read once only");
    r->piped |= piped;
    if (name_class(r, piped ? "stdin" : path, e) ||
        io_read_text(&data, &n, path, CLI_TRAIN_FILE_BYTES, cli_interrupted, e))
        return e->code;
    r->plain |= !jsonl;
    if (!jsonl)
        cli_tell_encoding(cli_file_name(path), (struct str){ data, n });
    if (jsonl || r->o->lines)
        code = train_lines(path, (struct str){ data, n }, &progress, jsonl ? add_object : add_document, r, e);
    else
        code = add_text(r, (struct str){ data, n }, e);
    free(data);
    return code;
}

/* ---- which are held out ---- */

static void free_prompts(struct cli_train_prompts *p)
{
    for (int64_t i = 0; i < p->n; i++)
        text_tokens_free(&p->v[i].token);
    for (int i = 0; i < p->n_name; i++)
        free(p->name[i]);
    free(p->v);
    free(p->name);
    *p = (struct cli_train_prompts){ 0 };
}

void cli_train_data_free(struct cli_train_data *d)
{
    free_prompts(&d->train);
    free_prompts(&d->test);
}

/* Of prompts that are the same one stays. */
static enum err_code drop_copies(struct cli_train_prompts *p, struct err *e)
{
    uint64_t *hash = calloc((size_t)p->n + 1, sizeof *hash);
    bool *first = NULL;
    int64_t n = 0;

    for (int64_t i = 0; hash != NULL && i < p->n; i++)
        hash[i] = p->v[i].hash;
    if (hash != NULL)
        first = tune_firsts(hash, p->n);
    for (int64_t i = 0; first != NULL && i < p->n; i++)
        if (first[i])
            p->v[n++] = p->v[i];
        else
            text_tokens_free(&p->v[i].token);
    free(hash);
    if (first == NULL)
        return err_nomem(e);
    free(first);
    p->n_twice = p->n - n;
    p->n = n;
    return ERR_OK;
}

/* At most n_tests prompts of each class stay, spread over it. */
static enum err_code thin(struct cli_train_prompts *p, int64_t n_tests, struct err *e)
{
    int64_t *all = calloc(2 * (size_t)p->n_name + 1, sizeof *all), *seen = all + p->n_name;
    int64_t n = 0;

    if (all == NULL)
        return err_nomem(e);
    for (int64_t j = 0; j < p->n; j++)
        all[p->v[j].of]++;
    for (int64_t j = 0; j < p->n; j++) {
        const int of = p->v[j].of;

        if (tune_spread(seen[of]++, all[of], n_tests))
            p->v[n++] = p->v[j];
        else
            text_tokens_free(&p->v[j].token);
    }
    p->n = n;
    free(all);
    return ERR_OK;
}

/* Of each class one document of ten is held out, at most n_tests, spread over it. */
static bool is_held_out(int64_t i, int64_t all, int64_t n_tests)
{
    const int64_t most = all / 10 < 1 ? 1 : all / 10;

    return all > 1 && tune_spread(i, all, most < n_tests ? most : n_tests);
}

static enum err_code split_tests(struct cli_train_data *d, int64_t n_tests, struct err *e)
{
    struct cli_train_prompts *p = &d->train, *t = &d->test;
    int64_t n = 0;

    t->v = calloc((size_t)p->n + 1, sizeof *t->v);
    t->name = calloc((size_t)p->n_name + 1, sizeof *t->name);
    if (t->v == NULL || t->name == NULL)
        return err_nomem(e);
    for (; t->n_name < p->n_name; t->n_name++)
        if ((t->name[t->n_name] = strdup(p->name[t->n_name])) == NULL)
            return err_nomem(e);
    for (int64_t i = 0, k; i < p->n; i += k) { /* a class: its documents follow each other */
        const int64_t first = p->v[i].document;

        for (k = 0; i + k < p->n && p->v[i + k].of == p->v[i].of; k++)
            ;
        const int64_t all = p->v[i + k - 1].document - first + 1;

        for (int64_t j = i; j < i + k; j++)
            if (is_held_out(p->v[j].document - first, all, n_tests))
                t->v[t->n++] = p->v[j];
            else
                p->v[n++] = p->v[j];
    }
    p->n = n;
    return ERR_OK;
}

/* What is tested on is not trained on, whatever file it came from. */
static enum err_code drop_tests(struct cli_train_data *d, struct err *e)
{
    uint64_t *hash = calloc((size_t)d->test.n + 1, sizeof *hash);
    int64_t n = 0;

    if (hash == NULL)
        return err_nomem(e);
    for (int64_t i = 0; i < d->test.n; i++)
        hash[i] = d->test.v[i].hash;
    qsort(hash, (size_t)d->test.n, sizeof *hash, io_by_hash);
    for (int64_t i = 0; i < d->train.n; i++) {
        struct cli_train_prompt *p = &d->train.v[i];

        if (bsearch(&p->hash, hash, (size_t)d->test.n, sizeof *hash, io_by_hash) == NULL)
            d->train.v[n++] = *p;
        else
            text_tokens_free(&p->token);
    }
    d->train.n_same = d->train.n - n;
    d->train.n = n;
    free(hash);
    return ERR_OK;
}

static int by_document(const void *a, const void *b)
{
    const struct cli_train_prompt *x = a, *y = b;
    const int64_t by[] = { x->document - y->document, x->of - y->of };

    return by[0] != 0 ? (by[0] > 0) - (by[0] < 0) : (by[1] > 0) - (by[1] < 0);
}

/* Takes turns between the classes: where there is no time for all, each has its part. */
static enum err_code mix_classes(struct cli_train_prompts *p, struct err *e)
{
    int64_t *n = calloc((size_t)p->n_name + 1, sizeof *n);

    if (n == NULL)
        return err_nomem(e);
    for (int64_t i = 0; i < p->n; i++)
        p->v[i].document = n[p->v[i].of]++;
    qsort(p->v, (size_t)p->n, sizeof *p->v, by_document);
    free(n);
    return ERR_OK;
}

/* ---- all files ---- */

static int is_set(const struct dirent *d)
{
    return ends_in(d->d_name, ".jsonl");
}

int cli_train_list_sets(char *dir, size_t n, struct dirent ***list)
{
    *list = NULL;
    return cli_eval_path(dir, n) ? scandir(dir, list, is_set, alphasort) : -1;
}

static enum err_code read_sets(struct reading *r, struct err *e)
{
    struct dirent **list;
    char dir[4096], path[4400];
    enum err_code code = ERR_OK;
    const int n = cli_train_list_sets(dir, sizeof dir, &list);

    if (n <= 0)
        code = err_set(e, ERR_ARG, "no prompts: name files; the task sets that come with the program are not there");
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%.255s", dir, list[i]->d_name);
        if (code == ERR_OK)
            code = read_file(r, path, e);
        free(list[i]);
    }
    free(list);
    return code;
}

static enum err_code read_all(struct reading *r, struct cli_train_data *d, char *const *files, struct err *e)
{
    r->to = &d->test;
    for (size_t i = 0; i < r->o->held_out.n; i++)
        if (read_file(r, r->o->held_out.v[i], e))
            return e->code;
    if (drop_copies(&d->test, e) || thin(&d->test, r->o->n_tests, e))
        return e->code;
    r->to = &d->train;
    if (*files == NULL && read_sets(r, e))
        return e->code;
    for (; *files != NULL; files++)
        if (read_file(r, *files, e))
            return e->code;
    if (r->o->lines && !r->plain)
        return err_set(e, ERR_ARG, "--lines: all files are JSON lines, and there is no plain text");
    if (r->o->held_out.n == 0 && (split_tests(d, r->o->n_tests, e) || drop_copies(&d->test, e)))
        return e->code;
    return mix_classes(&d->test, e) || drop_tests(d, e) ? e->code : ERR_OK;
}

/* Whether there is enough of both; says what was left out. */
static enum err_code check_enough(const struct cli_train_data *d, int64_t tokens_max, struct err *e)
{
    const long long n_long = d->train.n_long + d->test.n_long, n_same = d->train.n_same;
    char more[120] = "", same[60] = "";

    if (n_same > 0)
        (void)snprintf(same, sizeof same, "; %lld are tested on", n_same);
    if (n_long > 0)
        (void)snprintf(more, sizeof more, "%lld prompts of more than %lld tokens are left out (-c: a longer context)",
                       n_long, (long long)tokens_max);
    if (d->test.n < TUNE_LEAST_TESTS)
        return err_set(e, ERR_FORMAT,
                       "%lld prompts to test on are too few: at least %d, of more documents or files of "
                       "--held-out%s%s",
                       (long long)d->test.n, TUNE_LEAST_TESTS, n_long > 0 ? "; " : "", more);
    if (d->train.n == 0)
        return err_set(e, ERR_FORMAT, "no prompts to train on%s%s%s", same, n_long > 0 ? "; " : "", more);
    if (n_long > 0)
        cli_warn("%s", more);
    if (d->test.n_twice > 0)
        cli_warn("%lld prompts to test on are named more than once, and count once", (long long)d->test.n_twice);
    if (n_same > 0)
        cli_note("%lld prompts are left out of the training: they are tested on", n_same);
    return ERR_OK;
}

enum err_code cli_train_read(struct cli_train_data *d, const struct cli_train_options *o, char *const *files,
                             const struct text *text, int64_t tokens_max, struct err *e)
{
    struct reading r = { .o = o, .text = text, .tokens_max = tokens_max };
    enum err_code code = read_all(&r, d, files, e);

    chat_close(r.format);
    return code == ERR_OK ? check_enough(d, tokens_max, e) : code;
}
