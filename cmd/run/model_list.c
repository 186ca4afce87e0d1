/* SPDX-License-Identifier: Apache-2.0 */
/* model_list.c - several model files in a table: what each is, and whether it runs here. Only headers are read.
 * room: cmd */
#include "run/model_list.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "base/memory.h"
#include "chat/reader.h"
#include "cli/adapters.h"
#include "cli/cli.h"
#include "gguf/gguf.h"
#include "model/model.h"
#include "quant/quant.h"
#include "run/placement.h"
#include "text/text.h"

enum { N_COLUMNS = 9, CELL_BYTES = 64, FORMATS_SHOWN = 2, CTX_TOKENS = 8192 };
static const char *const titles[N_COLUMNS] = { "FILE",    "ARCH", "RUNS",    "FORMATS", "SIZE",
                                               "CONTEXT", "CHAT", "DRAFTER", "FITS" };

/* What is known of a file. */
struct item {
    const char *path;
    struct err bad; /* it could not be read as a model file */
    char arch[32];
    bool runs, drafts;              /* drafts: it is a drafter of other models */
    struct err why;                 /* it does not run */
    int format[QUANT_N], n_formats; /* by bytes, most first */
    uint64_t bytes, by_format[QUANT_N];
    int64_t ctx_tokens, need_bytes;
    const char *chat; /* NULL: no template */
    bool mtp, on_cpu, on_gpu;
};

static void find_formats(struct item *it, const struct gguf *g)
{
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);

        if (t->n_dims > 1) /* vectors are always floats */
            it->by_format[t->type] += t->size_bytes;
    }
    for (int f = 0; f < QUANT_N; f++) {
        int at = it->n_formats;

        if (it->by_format[f] == 0)
            continue;
        for (; at > 0 && it->by_format[it->format[at - 1]] < it->by_format[f]; at--)
            it->format[at] = it->format[at - 1];
        it->format[at] = f;
        it->n_formats++;
    }
}

/* Whether a run of it fits the memory of a device now. */
static bool run_fits(struct item *it, const struct gguf *g, const char *device)
{
    const int64_t ctx = it->ctx_tokens > 0 && it->ctx_tokens < CTX_TOKENS ? it->ctx_tokens : CTX_TOKENS;
    struct run_placement_opts fo = { .model = { .device = device }, .run = { .n_seq = 1, .ctx_tokens = ctx } };
    struct run_placement *f;
    struct err e;
    bool ok;

    if (run_placement_make(&f, g, &fo, &e))
        return false;
    ok = true;
    if (f->is_host) {
        it->need_bytes = f->total_bytes;
        ok = f->total_bytes <= memory_left("");
    }
    run_placement_free(f);
    return ok;
}

static void look_at_model(struct item *it, const struct gguf *g)
{
    struct model *m;
    struct text *t;

    if (model_open(&m, g, &(struct model_opts){ .placement.dry_run = true }, &it->why))
        return;
    it->runs = true;
    it->ctx_tokens = model_info(m)->ctx_train;
    it->mtp = model_info(m)->n_nextn > 0;
    model_close(m);
    it->on_cpu = run_fits(it, g, "cpu");
    it->on_gpu = run_fits(it, g, "cuda");
    if (text_open(&t, g, &it->why))
        it->runs = false; /* but from token ids */
    else
        text_close(t);
}

static void look_at(struct item *it)
{
    struct gguf *g;
    struct str s;
    const char *adapter;
    char path[4096];

    if (cli_model_path(it->path, path, sizeof path, &it->bad) || gguf_open(&g, path, &it->bad))
        return;
    it->bytes = gguf_file_bytes(g);
    if (gguf_str(g, "general.architecture", &s))
        snprintf(it->arch, sizeof it->arch, "%.*s", (int)(s.n < 31 ? s.n : 31), s.p);
    it->drafts = strcmp(it->arch, "dflash") == 0;
    find_formats(it, g);
    adapter = cli_adapter_what(g);
    if (adapter != NULL) {
        (void)err_set(&it->why, ERR_UNSUPPORTED, "%s", adapter);
        gguf_close(g);
        return;
    }
    if (gguf_str(g, "tokenizer.chat_template", &s) && s.n > 0)
        it->chat = chat_reader_find(s);
    look_at_model(it, g);
    gguf_close(g);
}

/* ---- as a table ---- */

/* What files say goes to a terminal without control characters. */
static void cell(char out[CELL_BYTES], const char *s)
{
    snprintf(out, CELL_BYTES, "%s", s);
    cli_clean(out);
}

static void fill_row(char row[N_COLUMNS][CELL_BYTES], const struct item *it)
{
    const char *slash = strrchr(it->path, '/');
    size_t used = 0;

    for (int c = 1; c < N_COLUMNS; c++)
        strcpy(row[c], "-");
    cell(row[0], slash != NULL ? slash + 1 : it->path);
    if (it->bad.code != ERR_OK)
        return;
    cell(row[1], it->arch[0] != '\0' ? it->arch : "-");
    strcpy(row[2], it->runs ? "yes" : it->drafts ? "draft" : "no");
    for (int i = 0; i < it->n_formats && i < FORMATS_SHOWN; i++)
        used +=
            (size_t)snprintf(row[3] + used, CELL_BYTES - used, "%s%s", i ? "," : "", quant_types[it->format[i]]->name);
    snprintf(row[4], CELL_BYTES, it->bytes < 1000000000 ? "%.1f MB" : "%.1f GB",
             (double)it->bytes / (it->bytes < 1000000000 ? 1e6 : 1e9));
    if (it->ctx_tokens > 0)
        snprintf(row[5], CELL_BYTES, "%" PRId64, it->ctx_tokens);
    if (it->chat != NULL)
        cell(row[6], it->chat);
    if (it->mtp)
        strcpy(row[7], "mtp");
    if (it->need_bytes > 0)
        snprintf(row[8], CELL_BYTES, "%s%s", it->on_cpu ? "yes" : "no", it->on_gpu ? ", GPU too" : "");
}

static void print_row(char row[N_COLUMNS][CELL_BYTES], const int width[N_COLUMNS])
{
    for (int c = 0; c + 1 < N_COLUMNS; c++)
        printf("%s%*s  ", row[c], width[c] - cli_columns(row[c]), "");
    puts(row[N_COLUMNS - 1]);
}

static void print_table(const struct item *v, size_t n)
{
    char row[N_COLUMNS][CELL_BYTES], why[sizeof v->why.msg];
    int width[N_COLUMNS];

    for (int c = 0; c < N_COLUMNS; c++)
        width[c] = (int)strlen(titles[c]);
    for (size_t i = 0; i < n; i++) {
        fill_row(row, &v[i]);
        for (int c = 0; c < N_COLUMNS; c++)
            width[c] = cli_columns(row[c]) > width[c] ? cli_columns(row[c]) : width[c];
    }
    for (int c = 0; c < N_COLUMNS; c++)
        strcpy(row[c], titles[c]);
    print_row(row, width);
    for (size_t i = 0; i < n; i++) {
        const struct err *e = v[i].bad.code != ERR_OK ? &v[i].bad : &v[i].why;

        fill_row(row, &v[i]);
        print_row(row, width);
        snprintf(why, sizeof why, "%s", e->msg);
        cli_clean(why);
        if (e->code != ERR_OK && !v[i].runs && !v[i].drafts)
            printf("    %s\n", why);
    }
}

/* ---- as JSON ---- */

static json_t *json_formats(const struct item *it)
{
    json_t *o = json_object();

    for (int i = 0; i < it->n_formats && o != NULL; i++)
        o = json_if(
            cli_json_set(o, quant_types[it->format[i]]->name, json_integer((json_int_t)it->by_format[it->format[i]])),
            o);
    return o;
}

static enum err_code print_json(const struct item *it, struct err *e)
{
    const struct err *why = it->bad.code != ERR_OK ? &it->bad : &it->why;
    json_t *top = json_object();
    bool ok = top != NULL && cli_json_set(top, "type", json_string("model")) &&
              cli_json_set(top, "file", json_bytes(str_of(it->path)));

    if (ok && it->bad.code == ERR_OK)
        ok = cli_json_set(top, "file_bytes", json_integer((json_int_t)it->bytes)) &&
             cli_json_set(top, "arch", it->arch[0] != '\0' ? json_bytes(str_of(it->arch)) : json_null()) &&
             cli_json_set(top, "runs", json_boolean(it->runs)) && cli_json_set(top, "quant_bytes", json_formats(it)) &&
             cli_json_set(top, "ctx_tokens", it->ctx_tokens > 0 ? json_integer(it->ctx_tokens) : json_null()) &&
             cli_json_set(top, "chat", it->chat != NULL ? json_string(it->chat) : json_null()) &&
             cli_json_set(top, "drafter",
                          it->drafts ? json_string(it->arch)
                          : it->mtp  ? json_string("mtp")
                                     : json_null()) &&
             cli_json_set(top, "need_bytes", it->need_bytes > 0 ? json_integer(it->need_bytes) : json_null()) &&
             cli_json_set(top, "fits", json_boolean(it->on_cpu)) &&
             cli_json_set(top, "fits_gpu", json_boolean(it->on_gpu));
    if (ok)
        ok = cli_json_set(top, "error", why->code != ERR_OK ? json_bytes(str_of(why->msg)) : json_null());
    return cli_json_line(json_if(ok, top), e);
}

/* ---- all of them ---- */

/* Whether a file is a later part of a split file whose first part is named, too. */
static bool is_later_part(const char *path, char *const *paths)
{
    static const char of[] = "-of-";
    const char *at = NULL;
    size_t before;

    for (const char *p = path; (p = strstr(p, of)) != NULL; p++)
        at = p;
    if (at == NULL || at - path < 6 || at[-6] != '-' || strspn(at - 5, "0123456789") != 5 ||
        strncmp(at - 5, "00001", 5) == 0)
        return false;
    before = (size_t)(at - path) - 5;
    for (; *paths != NULL; paths++)
        if (strlen(*paths) == strlen(path) && strncmp(*paths, path, before) == 0 &&
            strncmp(*paths + before, "00001", 5) == 0 && strcmp(*paths + before + 5, at) == 0)
            return true;
    return false;
}

enum err_code cli_model_list(char *const *paths, bool json, int *status, struct err *e)
{
    size_t n = 0, all = 0;
    struct item *v;
    enum err_code code = ERR_OK;

    while (paths[all] != NULL)
        all++;
    v = calloc(all, sizeof *v);
    if (v == NULL)
        return err_nomem(e);
    *status = EXIT_OK;
    for (size_t i = 0; i < all && code == ERR_OK; i++) {
        if (is_later_part(paths[i], paths))
            continue;
        v[n].path = paths[i];
        look_at(&v[n]);
        if (*status == EXIT_OK)
            *status = cli_status_of(v[n].bad.code);
        if (json)
            code = print_json(&v[n], e);
        n++;
    }
    if (code == ERR_OK && !json)
        print_table(v, n);
    free(v);
    return code ? code : cli_flush_stdout(e);
}
