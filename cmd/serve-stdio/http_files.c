/* SPDX-License-Identifier: Apache-2.0 */
/* http_files.c - files and batches of clients over HTTP (http_files.h).      room: cmd */
#include "serve-stdio/http_files.h"

#ifdef CHIMERE_HTTP
#include <errno.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "serve/serve.h"

enum { FORM_BUFFER = 64 << 10, NAME_BYTES = 256, PURPOSE_BYTES = 32 };
enum { FILES_MOST = 10000, BATCHES_MOST = 100, BATCHES_USUAL = 20 /* in a page of a list */ };

/* ---- paths ---- */

enum place { FILES, FILE_ONE, FILE_CONTENT, BATCHES, BATCH_ONE, BATCH_CANCEL, NOWHERE };

static const struct {
    const char *begins, *ends; /* around an id; ends NULL: there is none */
    struct serve_row row;
} places[] = {
    [FILES] = { "/files", NULL, { .verb = "GET, POST" } },
    [FILE_ONE] = { "/files/", "", { .verb = "GET, DELETE" } },
    [FILE_CONTENT] = { "/files/", "/content", { .verb = "GET" } },
    [BATCHES] = { "/batches", NULL, { .verb = "GET, POST" } },
    [BATCH_ONE] = { "/batches/", "", { .verb = "GET" } },
    [BATCH_CANCEL] = { "/batches/", "/cancel", { .verb = "POST" } },
};

static enum place find_place(const char *path, struct str *id)
{
    if (strncmp(path, "/v1/", 4) == 0)
        path += 3;
    for (int i = 0; i < NOWHERE; i++) {
        const size_t n = strlen(places[i].begins);

        if (places[i].ends == NULL ? strcmp(path, places[i].begins) != 0 : strncmp(path, places[i].begins, n) != 0)
            continue;
        *id = (struct str){ path + n, strcspn(path + n, "/") };
        if (places[i].ends == NULL || (id->n > 0 && strcmp(id->p + id->n, places[i].ends) == 0))
            return (enum place)i;
    }
    return NOWHERE;
}

const struct serve_row *cli_files_row(const char *path)
{
    struct str id;
    const enum place at = find_place(path, &id);

    return at == NOWHERE ? NULL : &places[at].row;
}

bool cli_files_uploads(const char *path, const char *verb)
{
    struct str id;

    return strcmp(verb, "POST") == 0 && find_place(path, &id) == FILES;
}

/* ---- forms ---- */

struct cli_form {
    struct cli_files *files;
    struct MHD_PostProcessor *reader;
    struct cli_upload upload;
    char name[NAME_BYTES], purpose[PURPOSE_BYTES];
    size_t n_purpose;
    struct cli_told fault; /* status 0: none */
};

static enum MHD_Result refuse_field(struct cli_form *form, struct cli_told fault)
{
    form->fault = fault;
    return MHD_NO;
}

static enum MHD_Result take_file(struct cli_form *form, const char *name, struct str part, uint64_t at)
{
    struct err e = { 0 };

    if (name == NULL)
        return refuse_field(form, cli_told_error(400, "/file", "file: has no filename"));
    if (at == 0 && form->upload.bytes > 0)
        return refuse_field(form, cli_told_error(400, "/file", "file: comes a second time"));
    (void)snprintf(form->name, sizeof form->name, "%s", name);
    if ((form->upload.files == NULL && cli_upload_begin(&form->upload, form->files, &e)) ||
        cli_upload_add(&form->upload, part, &e))
        return refuse_field(form, e.code == ERR_LIMIT   ? cli_told_error(413, "/file", "file: %s", e.msg)
                                  : e.code == ERR_NOMEM ? cli_told_error(503, "/file", "out of memory")
                                                        : cli_told_error(507, "/file", "file: cannot be written"));
    return MHD_YES;
}

static enum MHD_Result take_field(void *cls, enum MHD_ValueKind kind, const char *key, const char *name,
                                  const char *type, const char *encoding, const char *data, uint64_t at, size_t n)
{
    struct cli_form *form = cls;

    (void)kind;
    (void)type;
    (void)encoding;
    if (form->fault.status != 0)
        return MHD_NO;
    if (key == NULL)
        return refuse_field(form, cli_told_error(400, NULL, "a part of the form has no name"));
    if (strcmp(key, "file") == 0)
        return take_file(form, name, (struct str){ data, n }, at);
    if (strcmp(key, "purpose") != 0)
        return refuse_field(form, cli_told_error(400, NULL, "%.100s: is no part of a file that is kept here", key));
    if (at == 0 && form->n_purpose > 0)
        return refuse_field(form, cli_told_error(400, "/purpose", "purpose: comes a second time"));
    if (n >= sizeof form->purpose - form->n_purpose)
        n = sizeof form->purpose - form->n_purpose - 1;
    memcpy(form->purpose + form->n_purpose, data, n);
    form->n_purpose += n;
    return MHD_YES;
}

struct cli_form *cli_form_open(struct cli_files *f, struct MHD_Connection *of)
{
    const char *type = MHD_lookup_connection_value(of, MHD_HEADER_KIND, "Content-Type");
    struct cli_form *form;

    errno = 0;
    if (type == NULL || strncasecmp(type, "multipart/form-data", 19) != 0 || (form = calloc(1, sizeof *form)) == NULL)
        return NULL;
    form->files = f;
    form->reader = MHD_create_post_processor(of, FORM_BUFFER, take_field, form);
    if (form->reader == NULL) {
        free(form);
        return NULL;
    }
    return form;
}

void cli_form_add(struct cli_form *form, struct str part)
{
    errno = 0;
    if (form->fault.status == 0 && MHD_post_process(form->reader, part.p, part.n) != MHD_YES && form->fault.status == 0)
        form->fault = errno == ENOMEM ? cli_told_error(503, NULL, "out of memory")
                                      : cli_told_error(400, NULL, "the body is no multipart/form-data");
}

void cli_form_close(struct cli_form *form)
{
    if (form == NULL)
        return;
    if (form->reader != NULL)
        (void)MHD_destroy_post_processor(form->reader);
    cli_upload_drop(&form->upload);
    json_decref(form->fault.body);
    free(form);
}

/* ---- files ---- */

static struct cli_told no_file(struct str id)
{
    return cli_told_error(404, NULL, "there is no file %.*s", STR_ARG(id));
}

static struct cli_told keep_file(struct cli_form *form, uint64_t owner)
{
    struct cli_record *x;
    struct cli_told fault;
    struct err e = { 0 };
    const bool whole = MHD_destroy_post_processor(form->reader) == MHD_YES;

    form->reader = NULL;
    fault = form->fault;
    form->fault = (struct cli_told){ 0 };
    if (fault.status != 0)
        return fault;
    if (!whole)
        return cli_told_error(400, NULL, "the body is no multipart/form-data, or is cut off");
    if (form->upload.bytes == 0)
        return cli_told_error(400, "/file", "file: missing or empty");
    if (strcmp(form->purpose, "batch") != 0)
        return cli_told_error(400, "/purpose", "purpose: only files with the purpose batch are kept here");
    if (cli_upload_end(&form->upload, owner, form->name, form->purpose, &x, &e))
        return cli_told_error(e.code == ERR_NOMEM ? 503 : 507, NULL, "the file cannot be kept: %s",
                              e.code == ERR_LIMIT ? e.msg : "there is no room");
    return (struct cli_told){ 200, json_deep_copy(x->object) };
}

static struct cli_told remove_file(struct cli_batches *b, struct cli_record *x)
{
    json_t *body = json_pack("{s:s, s:s, s:b}", "id", x->id, "object", "file", "deleted", true);

    if (cli_batches_reads(b, x->id)) {
        json_decref(body);
        return cli_told_error(409, NULL, "a batch that is not over reads the file: cancel it first");
    }
    cli_file_remove(cli_batches_files(b), x);
    return (struct cli_told){ 200, body };
}

/* NULL as well where somebody else has cut the file or put another kind of file in its place. */
static struct MHD_Response *open_content(const struct cli_files *f, const struct cli_record *x)
{
    const int64_t bytes = json_integer_value(json_object_get(x->object, "bytes"));
    char path[CLI_PATH_BYTES];
    struct MHD_Response *m = NULL;
    struct stat st;
    int fd;

    cli_file_path(f, x->id, path);
    fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size >= bytes)
        m = MHD_create_response_from_fd64((uint64_t)bytes, fd);
    if (m == NULL && fd >= 0)
        close(fd);
    return m;
}

/* ---- requests ---- */

/* What the query of an address says of a list's part; status 0: it is in order. */
static struct cli_told read_page(const struct cli_files_request *q, int64_t most, int64_t usual,
                                 struct cli_records_page *page)
{
    const char *limit = MHD_lookup_connection_value(q->of, MHD_GET_ARGUMENT_KIND, "limit");
    const char *order = MHD_lookup_connection_value(q->of, MHD_GET_ARGUMENT_KIND, "order");

    *page = (struct cli_records_page){
        .limit = usual,
        .after = MHD_lookup_connection_value(q->of, MHD_GET_ARGUMENT_KIND, "after"),
        .member = "purpose",
        .is = MHD_lookup_connection_value(q->of, MHD_GET_ARGUMENT_KIND, "purpose"),
        .oldest = order != NULL && strcmp(order, "asc") == 0,
    };
    if (limit != NULL) {
        page->limit = strspn(limit, "0123456789") == strlen(limit) && strlen(limit) < 10 ? atol(limit) : 0;
        if (page->limit < 1 || page->limit > most)
            return cli_told_error(400, "/limit", "limit: not a whole number from 1 to %d", (int)most);
    }
    if (order != NULL && strcmp(order, "asc") != 0 && strcmp(order, "desc") != 0)
        return cli_told_error(400, "/order", "order: not asc or desc");
    return (struct cli_told){ 0 };
}

static struct cli_told list(struct cli_batches *b, const struct cli_files_request *q, bool batches)
{
    struct cli_records_page page;
    const struct cli_told fault =
        read_page(q, batches ? BATCHES_MOST : FILES_MOST, batches ? BATCHES_USUAL : FILES_MOST, &page);
    bool known;
    json_t *found;

    if (fault.status != 0)
        return fault;
    if (batches) {
        page.is = NULL;
        return cli_batches_list(b, q->owner, &page);
    }
    found = cli_records_list(&cli_batches_files(b)->table, q->owner, &page, &known);
    if (known)
        return (struct cli_told){ 200, found };
    json_decref(found);
    return no_file(str_of(page.after));
}

static struct cli_told create_batch(struct cli_batches *b, const struct cli_files_request *q)
{
    struct err why = { 0 };
    json_t *body = NULL;
    struct cli_told told;

    if (serve_parse(&body, q->body, "the body", &why))
        told = cli_told_error(why.code == ERR_NOMEM ? 503 : 400, why.where[0] == '/' ? why.where : NULL, "%s", why.msg);
    else
        told = cli_batches_create(b, q->owner, body);
    json_decref(body);
    return told;
}

static struct cli_told answer_files(struct cli_batches *b, const struct cli_files_request *q, enum place at,
                                    struct str id, struct MHD_Response **content)
{
    struct cli_files *f = cli_batches_files(b);
    struct cli_record *file = at == FILE_ONE || at == FILE_CONTENT ? cli_record_find(&f->table, id, q->owner) : NULL;

    switch (at) {
    case FILES:
        return q->form != NULL ? keep_file(q->form, q->owner) : list(b, q, false);
    case FILE_ONE:
        if (file == NULL)
            return no_file(id);
        if (strcmp(q->verb, "DELETE") == 0)
            return remove_file(b, file);
        return (struct cli_told){ 200, json_deep_copy(file->object) };
    case FILE_CONTENT:
        if (file == NULL)
            return no_file(id);
        *content = open_content(f, file);
        return *content != NULL ? (struct cli_told){ 200, NULL } : cli_told_error(503, NULL, "the file cannot be read");
    case BATCHES:
        return strcmp(q->verb, "POST") == 0 ? create_batch(b, q) : list(b, q, true);
    case BATCH_ONE:
        return cli_batches_show(b, q->owner, id);
    case BATCH_CANCEL:
        return cli_batches_cancel(b, q->owner, id);
    case NOWHERE:
        break;
    }
    return cli_told_error(404, NULL, "nothing is served here");
}

struct MHD_Response *cli_files_answer(struct cli_batches *b, const struct cli_files_request *q, int *status,
                                      const char **type)
{
    struct MHD_Response *m = NULL;
    struct str id;
    const enum place at = find_place(q->path, &id);
    const struct cli_told told = answer_files(b, q, at, id, &m);
    char *text = told.body != NULL ? json_line(told.body) : NULL;

    *status = told.status;
    *type = m != NULL ? "application/octet-stream" : "application/json";
    if (m == NULL && text != NULL)
        m = MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_COPY);
    free(text);
    json_decref(told.body);
    return m;
}
#endif
