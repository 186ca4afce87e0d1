/* SPDX-License-Identifier: Apache-2.0 */
/* batches.c - batches of clients, answered beside other requests (batches.h).   room: cmd */
#include "serve-stdio/batches.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "serve-stdio/batch.h"

enum {
    AHEAD = 16,           /* requests of a batch that the engine has */
    REQUESTS_MAX = 50000, /* of a batch */
    FAULTS_MAX = 50,      /* lines that are no requests, of which a batch tells */
    WINDOW_MAX_H = 168,   /* hours that a batch may take */
    METADATA_MAX = 16,    /* members */
    KEY_MAX = 64,         /* bytes of their names */
    VALUE_MAX = 512,      /* and values */
};
#define READ_MS 2.0 /* that lines are checked in a turn */

/* A batch that is not over. */
struct work {
    struct work *next;
    struct cli_record *record;
    struct cli_batch *batch; /* NULL: its turn has not come */
    json_t *faults;          /* of its lines; NULL: none */
    bool begun, more;        /* its lines are checked; there are some to ask */
    char in[CLI_PATH_BYTES], out[CLI_PATH_BYTES], errors[CLI_PATH_BYTES], client[24];
};
struct cli_batches {
    struct cli_batches_opts o;
    struct cli_files files;
    struct cli_records table;
    struct work *works; /* the oldest first */
    struct serve *serve;
    json_t *made_with;
};

struct cli_files *cli_batches_files(struct cli_batches *b)
{
    return &b->files;
}

/* ---- a batch's object ---- */

static const char *text_in(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));

    return s != NULL ? s : "";
}

static int64_t number_in(const json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

static bool is_over(const json_t *object)
{
    static const char *const unfinished[] = { "validating", "in_progress", "finalizing", "cancelling" };
    const char *status = text_in(object, "status");

    for (size_t i = 0; i < sizeof unfinished / sizeof unfinished[0]; i++)
        if (strcmp(status, unfinished[i]) == 0)
            return false;
    return true;
}

/* Says since when, too: "failed" and "failed_at". Memory that is out leaves an older status, which is kept on. */
static void set_status(const struct work *w, const char *status)
{
    char at[40];

    (void)snprintf(at, sizeof at, "%s_at", status);
    (void)cli_json_set(w->record->object, "status", json_string(status));
    (void)cli_json_set(w->record->object, at, json_integer(time(NULL)));
}

static void set_counts(const struct work *w)
{
    const struct cli_batch_counts n = cli_batch_counts(w->batch);

    (void)cli_json_set(w->record->object, "request_counts",
                       json_pack("{s:I, s:I, s:I}", "total", (json_int_t)n.n, "completed",
                                 (json_int_t)(n.done - n.refused), "failed", (json_int_t)n.refused));
}

/* A batch whose record cannot be written is what it was when the server comes back, and goes on. */
static void save(const struct cli_batches *b, const struct work *w)
{
    struct err e;

    if (cli_record_save(&b->table, w->record, &e))
        cli_warn("--files: %s", e.msg);
}

/* ---- opening ---- */

static enum err_code add_work(struct cli_batches *b, struct cli_record *x, struct err *e)
{
    struct work *w = calloc(1, sizeof *w), **link = &b->works;

    if (w == NULL)
        return err_nomem(e);
    w->record = x;
    cli_file_path(&b->files, text_in(x->object, "input_file_id"), w->in);
    cli_file_path(&b->files, text_in(x->own, "output"), w->out);
    cli_file_path(&b->files, text_in(x->own, "errors"), w->errors);
    (void)snprintf(w->client, sizeof w->client, "batch %016" PRIx64, x->owner);
    while (*link != NULL)
        link = &(*link)->next;
    *link = w;
    return ERR_OK;
}

static void close_work(struct cli_batches *b, struct work *w)
{
    if (w->batch != NULL && b->serve != NULL)
        cli_batch_cancel(w->batch, b->serve);
    cli_batch_close(w->batch);
    json_decref(w->faults);
    w->batch = NULL;
    w->faults = NULL;
    w->begun = w->more = false;
}

static void drop_work(struct cli_batches *b, struct work *w)
{
    struct work **link = &b->works;

    close_work(b, w);
    while (*link != w)
        link = &(*link)->next;
    *link = w->next;
    free(w);
}

static bool is_output(void *of, const char *id)
{
    for (const struct work *w = ((struct cli_batches *)of)->works; w != NULL; w = w->next)
        if (strcmp(text_in(w->record->own, "output"), id) == 0 || strcmp(text_in(w->record->own, "errors"), id) == 0)
            return true;
    return false;
}

enum err_code cli_batches_open(struct cli_batches **out, const struct cli_batches_opts *o, struct err *e)
{
    struct cli_batches *b = calloc(1, sizeof *b);

    if (b == NULL)
        return err_nomem(e);
    b->o = *o;
    enum err_code code = cli_files_open(&b->files, o->dir, o->bytes_max, e);

    if (code == ERR_OK)
        code = cli_records_open(&b->table, b->files.dir, "batch_", e);
    for (size_t i = 0; i < b->table.n && code == ERR_OK; i++)
        if (!is_over(b->table.v[i]->object))
            code = add_work(b, b->table.v[i], e);
    if (code == ERR_OK)
        code = cli_files_tidy(&b->files, is_output, b, e);
    if (code)
        cli_batches_close(b);
    else
        *out = b;
    return code;
}

void cli_batches_close(struct cli_batches *b)
{
    if (b == NULL)
        return;
    b->serve = NULL; /* it is closed itself */
    while (b->works != NULL)
        drop_work(b, b->works);
    cli_records_close(&b->table);
    cli_files_close(&b->files);
    json_decref(b->made_with);
    free(b);
}

/* ---- ends ---- */

/* A file that is there already, because the server ended before its batch did. */
static enum err_code update_file(struct cli_batches *b, struct cli_record *x, int64_t bytes, struct err *e)
{
    b->files.room += number_in(x->object, "bytes");
    return cli_json_set(x->object, "bytes", json_integer(bytes)) ? cli_record_save(&b->files.table, x, e)
                                                                 : err_nomem(e);
}

/* What was written becomes a file of the batch's owner; with nothing in it, it goes. */
static void publish(struct cli_batches *b, struct work *w, const char *own, const char *member, const char *name)
{
    const char *id = text_in(w->record->own, own);
    char path[CLI_PATH_BYTES], filename[80];
    struct cli_record *x = cli_record_find(&b->files.table, str_of(id), w->record->owner);
    struct stat st;
    struct err e;

    cli_file_path(&b->files, id, path);
    (void)snprintf(filename, sizeof filename, "%s_%s.jsonl", w->record->id, name);
    if (stat(path, &st) != 0)
        return;
    b->files.room -= w->begun ? 0 : st.st_size; /* else it is counted */
    if (st.st_size == 0)
        (void)unlink(path);
    else if (x != NULL ? update_file(b, x, st.st_size, &e)
                       : cli_file_add(&b->files, id, w->record->owner, st.st_size, filename, "batch_output", &x, &e))
        cli_warn("--files: %s", e.msg);
    else
        (void)cli_json_set(w->record->object, member, json_string(x->id));
}

static void finish(struct cli_batches *b, struct work *w, const char *status)
{
    publish(b, w, "output", "output_file_id", "output");
    publish(b, w, "errors", "error_file_id", "error");
    set_status(w, status);
    save(b, w);
    drop_work(b, w);
}

/* line 0: none. */
static void add_fault(struct work *w, const char *code, const char *message, int64_t line)
{
    if (w->faults == NULL)
        w->faults = json_array();
    json_push(&w->faults, json_pack("{s:s, s:o, s:n, s:o}", "code", code, "message", json_bytes(str_of(message)),
                                    "param", "line", line > 0 ? json_integer(line) : json_null()));
}

/* Ends a batch by its faults. What has been answered so far stays. */
static void fail(struct cli_batches *b, struct work *w)
{
    (void)cli_json_set(w->record->object, "errors", json_pack("{s:s, s:O}", "object", "list", "data", w->faults));
    if (w->batch != NULL && w->begun)
        set_counts(w);
    finish(b, w, "failed");
}

/* The end by an error of batch.h. */
static void fail_by(struct cli_batches *b, struct work *w, const struct err *e)
{
    add_fault(w,
              e->code == ERR_LIMIT   ? "storage_limit_exceeded"
              : e->code == ERR_IO    ? "storage_failed"
              : e->code == ERR_NOMEM ? "out_of_memory"
                                     : "invalid_file",
              e->msg, 0);
    fail(b, w);
}

/* ---- turns ---- */

static enum err_code open_work(struct cli_batches *b, struct work *w, struct err *e)
{
    const json_t *o = w->record->object;
    const struct cli_batch_opts bo = { .in = w->in,
                                       .out = w->out,
                                       .errors = w->errors,
                                       .name = text_in(o, "input_file_id"),
                                       .url = text_in(o, "endpoint"),
                                       .lenient = b->o.lenient,
                                       .again = true,
                                       .made_with = b->made_with,
                                       .room = &b->files.room,
                                       .client = { .name = str_of(w->client),
                                                   .key = w->record->owner != 0 ? str_of(w->client) : STR(""),
                                                   .later = true } };

    if (cli_record_find(&b->files.table, str_of(bo.name), w->record->owner) == NULL)
        return err_set(e, ERR_FORMAT, "%s: the file is gone", bo.name);
    return cli_batch_open(&w->batch, &bo, e);
}

/* All lines are requests: what was answered before is read, and the others are asked. */
static enum err_code begin_work(struct cli_batches *b, struct work *w, struct err *e)
{
    if (cli_batch_begin(w->batch, e))
        return e->code;
    b->files.room -= cli_batch_counts(w->batch).bytes;
    w->begun = w->more = true;
    set_counts(w);
    if (strcmp(text_in(w->record->object, "status"), "validating") == 0) {
        set_status(w, "in_progress");
        save(b, w);
    }
    return ERR_OK;
}

/* Checks lines for a moment. Those that are no requests are collected, as far as somebody will read them. */
static enum err_code check_lines(struct cli_batches *b, struct work *w, struct err *e)
{
    const double from = clock_ms();
    bool more = true;

    while (more && clock_ms() - from < READ_MS && json_array_size(w->faults) < FAULTS_MAX) {
        const enum err_code code = cli_batch_read(w->batch, &more, e);
        const struct cli_batch_counts n = cli_batch_counts(w->batch);

        if (code == ERR_OK && n.n > REQUESTS_MAX)
            return err_set(e, ERR_FORMAT, "there are more than %d requests", REQUESTS_MAX);
        if (code != ERR_OK && code != ERR_FORMAT)
            return code;
        if (code != ERR_OK)
            add_fault(w, "invalid_request", e->msg, n.line);
    }
    if (more && json_array_size(w->faults) < FAULTS_MAX)
        return ERR_OK;
    if (w->faults == NULL)
        return begin_work(b, w, e);
    fail(b, w);
    return ERR_OK;
}

static enum err_code expire(struct cli_batches *b, struct work *w, struct err *e)
{
    cli_batch_cancel(w->batch, b->serve);
    if (cli_batch_give_up(w->batch, "batch_expired",
                          "This request was not answered before the end of the completion window.", e) ||
        cli_batch_end(w->batch, e))
        return e->code;
    set_counts(w);
    finish(b, w, "expired");
    return ERR_OK;
}

static enum err_code ask_some(struct cli_batches *b, struct work *w, struct err *e)
{
    while (w->more && cli_batch_counts(w->batch).asked < AHEAD)
        if (cli_batch_ask(w->batch, b->serve, &w->more, e))
            return e->code;
    if (w->more || cli_batch_counts(w->batch).asked > 0)
        return ERR_OK;
    if (cli_batch_end(w->batch, e))
        return e->code;
    set_counts(w); /* also of lines that were refused without being asked */
    set_status(w, "finalizing");
    finish(b, w, "completed");
    return ERR_OK;
}

static bool is_late(const struct work *w)
{
    return number_in(w->record->object, "expires_at") <= (int64_t)time(NULL);
}

/* w may be gone afterwards. */
static enum err_code step(struct cli_batches *b, struct work *w, struct err *e)
{
    if (w->batch == NULL)
        return open_work(b, w, e);
    if (!w->begun)
        return check_lines(b, w, e);
    return is_late(w) ? expire(b, w, e) : ask_some(b, w, e);
}

/* Whether an older batch of the same owner is not over. */
static bool has_turn(const struct cli_batches *b, const struct work *w)
{
    for (const struct work *v = b->works; v != w; v = v->next)
        if (v->record->owner == w->record->owner)
            return false;
    return true;
}

void cli_batches_turn(struct cli_batches *b)
{
    for (struct work *w = b->works, *next; w != NULL; w = next) {
        struct err e = { 0 };

        next = w->next;
        if (strcmp(text_in(w->record->object, "status"), "cancelling") == 0) {
            if (w->begun && cli_batch_end(w->batch, &e))
                fail_by(b, w, &e);
            else
                finish(b, w, "cancelled");
        } else if ((has_turn(b, w) || is_late(w)) && step(b, w, &e)) {
            fail_by(b, w, &e);
        }
    }
}

bool cli_batches_busy(const struct cli_batches *b)
{
    return b->works != NULL;
}

bool cli_batches_take(struct cli_batches *b, struct serve_reply *r)
{
    struct work *w = b->works;
    struct err e = { 0 };

    while (w != NULL && (w->batch == NULL || !cli_batch_owns(w->batch, r->user)))
        w = w->next;
    if (w == NULL)
        return false;
    if (cli_batch_take(w->batch, r, &e))
        fail_by(b, w, &e);
    else
        set_counts(w);
    return true;
}

void cli_batches_set(struct cli_batches *b, struct serve *s, json_t *made_with)
{
    b->serve = s;
    if (json_equal(b->made_with, made_with)) {
        json_decref(made_with);
        return;
    }
    for (struct work *w = b->works; w != NULL; w = w->next) {
        if (w->begun)
            b->files.room += cli_batch_counts(w->batch).bytes;
        close_work(b, w);
    }
    json_decref(b->made_with);
    b->made_with = made_with;
}

/* ---- what clients ask ---- */

struct cli_told cli_told_error(int status, const char *pointer, const char *fmt, ...)
{
    char message[600];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    return (struct cli_told){ status, serve_error(NULL, status, pointer, message) };
}

static struct cli_told no_batch(struct str id)
{
    return cli_told_error(404, NULL, "there is no batch %.*s", STR_ARG(id));
}

bool cli_batches_reads(const struct cli_batches *b, const char *file_id)
{
    for (const struct work *w = b->works; w != NULL; w = w->next)
        if (strcmp(text_in(w->record->object, "input_file_id"), file_id) == 0)
            return true;
    return false;
}

static bool is_metadata(const json_t *v)
{
    const char *key;
    json_t *value;

    if (!json_is_object(v) || json_object_size(v) > METADATA_MAX)
        return false;
    json_object_foreach ((json_t *)(uintptr_t)v, key, value)
        if (strlen(key) > KEY_MAX || !json_is_string(value) || json_string_length(value) > VALUE_MAX)
            return false;
    return true;
}

/* Hours of "24h"; 0: it is none. */
static int window_of(const char *s)
{
    char *end;
    const long n = *s >= '1' && *s <= '9' ? strtol(s, &end, 10) : 0;

    return n > 0 && n <= WINDOW_MAX_H && strcmp(end, "h") == 0 ? (int)n : 0;
}

/* What is wrong with the body of a new batch; status 0: nothing is. */
static struct cli_told check_body(const struct cli_batches *b, uint64_t owner, const json_t *body)
{
    static const char *const known[] = { "input_file_id", "endpoint", "completion_window", "metadata" };
    const json_t *metadata = json_object_get(body, "metadata");
    const char *input = text_in(body, "input_file_id"), *key;
    const struct cli_record *file = cli_record_find(&b->files.table, str_of(input), owner);
    char names[256], pointer[SERVE_POINTER_BYTES];
    enum serve_method m;
    json_t *value;

    if (!json_is_object(body))
        return cli_told_error(400, NULL, "the body is not an object");
    json_object_foreach ((json_t *)(uintptr_t)body, key, value) {
        size_t i = 0;

        while (i < sizeof known / sizeof known[0] && strcmp(known[i], key) != 0)
            i++;
        (void)serve_point_to(pointer, 0, key);
        if (i == sizeof known / sizeof known[0] && !b->o.lenient && !json_is_null(value))
            return cli_told_error(400, pointer, "%s: not a member of a batch (--lenient ignores such)", pointer + 1);
    }
    if (file == NULL)
        return cli_told_error(400, "/input_file_id", "input_file_id: missing, or there is no such file");
    if (strcmp(text_in(file->object, "purpose"), "batch") != 0)
        return cli_told_error(400, "/input_file_id", "input_file_id: the purpose of the file is not batch");
    if (strncmp(text_in(body, "endpoint"), "/v1/", 4) != 0 || !serve_method(&m, str_of(text_in(body, "endpoint"))) ||
        serve_row(m)->answer != NULL || serve_row(m)->streams) {
        serve_name_methods(names, sizeof names, true, "/v1/");
        return cli_told_error(400, "/endpoint", "endpoint: not one of %s", names);
    }
    if (window_of(text_in(body, "completion_window")) == 0)
        return cli_told_error(400, "/completion_window",
                              "completion_window: not 24h, or another number of hours up to %d", WINDOW_MAX_H);
    if (metadata != NULL && !json_is_null(metadata) && !is_metadata(metadata))
        return cli_told_error(400, "/metadata",
                              "metadata: not an object of at most %d texts, names of up to %d bytes and texts of %d",
                              METADATA_MAX, KEY_MAX, VALUE_MAX);
    return (struct cli_told){ 0 };
}

/* The oldest one that is over goes for a new one. */
static void make_room(struct cli_batches *b)
{
    for (size_t i = 0; i < b->table.n && b->table.n == CLI_RECORDS_MAX; i++)
        if (is_over(b->table.v[i]->object)) {
            cli_record_remove(&b->table, b->table.v[i]);
            return;
        }
}

static enum err_code add_batch(struct cli_batches *b, uint64_t owner, const json_t *body, struct cli_record **x,
                               struct err *e)
{
    char id[CLI_ID_BYTES], output[CLI_ID_BYTES], errors[CLI_ID_BYTES];
    const char *window = text_in(body, "completion_window");
    const json_int_t now = time(NULL);
    json_t *metadata = json_object_get(body, "metadata");

    if (cli_record_id(id, b->table.begins, e) || cli_record_id(output, CLI_FILES_BEGIN, e) ||
        cli_record_id(errors, CLI_FILES_BEGIN, e))
        return e->code;
    make_room(b);
    json_t *object =
        json_pack("{s:s, s:s, s:s, s:n, s:s, s:s, s:s, s:n, s:n, s:I, s:n, s:I, s:n, s:n, s:n, s:n, s:n, s:n, s:{s:i, "
                  "s:i, s:i}, s:O?}",
                  "id", id, "object", "batch", "endpoint", text_in(body, "endpoint"), "errors", "input_file_id",
                  text_in(body, "input_file_id"), "completion_window", window, "status", "validating", "output_file_id",
                  "error_file_id", "created_at", now, "in_progress_at", "expires_at", now + window_of(window) * 3600,
                  "finalizing_at", "completed_at", "failed_at", "expired_at", "cancelling_at", "cancelled_at",
                  "request_counts", "total", 0, "completed", 0, "failed", 0, "metadata", metadata);

    if (cli_record_add(x, &b->table, id, owner, object, json_pack("{s:s, s:s}", "output", output, "errors", errors), e))
        return e->code;
    if (cli_record_save(&b->table, *x, e) || add_work(b, *x, e)) {
        cli_record_remove(&b->table, *x);
        return e->code;
    }
    return ERR_OK;
}

static struct cli_told tell(const struct cli_record *x)
{
    return (struct cli_told){ 200, json_deep_copy(x->object) };
}

struct cli_told cli_batches_create(struct cli_batches *b, uint64_t owner, const json_t *body)
{
    struct cli_told told = check_body(b, owner, body);
    struct cli_record *x;
    struct err e = { 0 };

    if (told.status != 0)
        return told;
    if (add_batch(b, owner, body, &x, &e))
        return cli_told_error(e.code == ERR_NOMEM ? 503 : 507, NULL, "the batch cannot be kept: %s", e.msg);
    return tell(x);
}

struct cli_told cli_batches_list(const struct cli_batches *b, uint64_t owner, const struct cli_records_page *page)
{
    bool known;
    json_t *list = cli_records_list(&b->table, owner, page, &known);

    if (known)
        return (struct cli_told){ 200, list };
    json_decref(list);
    return no_batch(str_of(page->after));
}

struct cli_told cli_batches_show(const struct cli_batches *b, uint64_t owner, struct str id)
{
    const struct cli_record *x = cli_record_find(&b->table, id, owner);

    return x != NULL ? tell(x) : no_batch(id);
}

struct cli_told cli_batches_cancel(struct cli_batches *b, uint64_t owner, struct str id)
{
    struct cli_record *x = cli_record_find(&b->table, id, owner);
    struct work *w = b->works;

    if (x == NULL)
        return no_batch(id);
    if (is_over(x->object))
        return cli_told_error(409, NULL, "the batch is over: its status is %s", text_in(x->object, "status"));
    while (w->record != x)
        w = w->next;
    if (w->batch != NULL)
        cli_batch_cancel(w->batch, b->serve);
    set_status(w, "cancelling");
    save(b, w);
    return tell(x);
}
