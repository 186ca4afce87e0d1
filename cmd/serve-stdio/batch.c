/* SPDX-License-Identifier: Apache-2.0 */
/* batch.c - a file of requests, answered into another one (batch.h).         room: cmd */
#include "serve-stdio/batch.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "serve/serve.h"

enum { AHEAD = 64 /* requests that wait in the engine's front */, LINE_BYTES_MAX = 16 << 20 };

struct item {
    char *id;       /* custom_id */
    bool number;    /* it is a whole number, not a text */
    uint64_t asked; /* a hash of the request */
    bool done;      /* answered before, or now */
};

struct batch {
    const struct cli_batch_opts *o;
    struct io_map in;
    struct item **slot; /* hash table of items by id */
    size_t n_slots, n_items, n_done, n_mine;
    int shard, n_shards;
    int fd[2]; /* output, errors */
    char errors_path[4096];
    double from_ms;
    size_t n_now;     /* answered by this run */
    size_t n_refused; /* of n_done */
    size_t n_changed; /* answered before, when they were other requests */
};

/* ---- the table ---- */

static struct item **place_of(const struct batch *b, const char *id)
{
    const size_t n = strlen(id);
    size_t at = (size_t)io_hash(0, id, n) & (b->n_slots - 1);

    while (b->slot[at] != NULL && strcmp(b->slot[at]->id, id) != 0)
        at = (at + 1) & (b->n_slots - 1);
    return &b->slot[at];
}

static bool grow_slots(struct batch *b)
{
    struct item **old = b->slot;
    const size_t n_old = b->n_slots;

    if (2 * (b->n_items + 1) <= b->n_slots)
        return true;
    b->n_slots = n_old > 0 ? 2 * n_old : 1024;
    b->slot = calloc(b->n_slots, sizeof(struct item *));
    if (b->slot == NULL) {
        b->slot = old;
        b->n_slots = n_old;
        return false;
    }
    for (size_t i = 0; i < n_old; i++)
        if (old[i] != NULL)
            *place_of(b, old[i]->id) = old[i];
    free(old);
    return true;
}

/* The custom_id of a line as text; "": there is none. */
static const char *id_of(const json_t *line, char number[24])
{
    const json_t *id = json_object_get(line, "custom_id");

    (void)snprintf(number, 24, "%" JSON_INTEGER_FORMAT, json_integer_value(id));
    return json_is_integer(id) ? number : json_is_string(id) ? json_string_value(id) : "";
}

static enum err_code add_item(struct batch *b, const json_t *request, uint64_t asked, int64_t line, struct err *e)
{
    char number[24];
    const char *id = id_of(request, number);
    struct item **place, *item;

    if (!grow_slots(b))
        return err_nomem(e);
    place = place_of(b, id);
    if (*place != NULL)
        return err_set(e, ERR_FORMAT, "%s: line %" PRId64 ": custom_id \"%.100s\" comes a second time", b->o->in, line,
                       id);
    item = calloc(1, sizeof *item);
    if (item == NULL || (item->id = strdup(id)) == NULL) {
        free(item);
        return err_nomem(e);
    }
    item->asked = asked;
    item->number = json_is_integer(json_object_get(request, "custom_id"));
    *place = item;
    b->n_items++;
    return ERR_OK;
}

static void free_items(struct batch *b)
{
    for (size_t i = 0; i < b->n_slots; i++)
        if (b->slot[i] != NULL) {
            free(b->slot[i]->id);
            free(b->slot[i]);
        }
    free(b->slot);
    io_map_close(&b->in);
    for (int i = 0; i < 2; i++)
        if (b->fd[i] >= 0)
            close(b->fd[i]);
}

/* ---- lines ---- */

/* The next line of a file in memory that is not empty; *at and *line move on. */
static bool next_line(struct str all, size_t *at, int64_t *line, struct str *out)
{
    while (*at < all.n) {
        const char *p = all.p + *at, *end = memchr(p, '\n', all.n - *at);
        size_t n = end != NULL ? (size_t)(end - p) : all.n - *at;

        *at += end != NULL ? n + 1 : n;
        ++*line;
        while (n > 0 && (p[n - 1] == '\r' || p[n - 1] == ' ' || p[n - 1] == '\t'))
            n--;
        if (n > 0) {
            *out = (struct str){ p, n };
            return true;
        }
    }
    return false;
}

/* A line of an output, which may have whatever an answer has. */
static enum err_code parse_own_line(json_t **out, struct str line, const char *path, int64_t number, struct err *e)
{
    char what[4200];

    (void)snprintf(what, sizeof what, "%s: line %" PRId64, path, number);
    return json_parse_own(out, line, what, e);
}

/* A line of the batch. refused: a value in it is wrong, so that this request is refused, and no other. */
static enum err_code parse_line(json_t **out, struct str line, const char *path, int64_t number, struct err *refused,
                                struct err *e)
{
    char what[4200];

    *refused = (struct err){ 0 };
    (void)snprintf(what, sizeof what, "%s: line %" PRId64, path, number);
    if (line.n > LINE_BYTES_MAX)
        return err_set(e, ERR_FORMAT, "%s: longer than 16 MiB", what);
    if (serve_parse(out, line, what, refused) != ERR_OK && *out == NULL)
        return err_copy(e, refused);
    return ERR_OK;
}

/* What a line of the batch asks for. */
static enum err_code read_request(json_t *o, const struct cli_batch_opts *opts, int64_t line, enum serve_method *m,
                                  struct err *e)
{
    char number[24];
    const char *path = opts->in, *key;
    json_t *value;
    const char *method = json_string_value(json_object_get(o, "method"));
    const char *url = json_string_value(json_object_get(o, "url"));

    if (*id_of(o, number) == '\0')
        return err_set(e, ERR_FORMAT, "%s: line %" PRId64 ": no custom_id", path, line);
    if (method != NULL && strcmp(method, "POST") != 0)
        return err_set(e, ERR_FORMAT, "%s: line %" PRId64 ": method is not POST", path, line);
    if (url == NULL || !serve_method(m, str_of(url)) || serve_row(*m)->answer != NULL) {
        char known[256];

        serve_name_methods(known, sizeof known, true, "/v1/");
        return err_set(e, ERR_FORMAT, "%s: line %" PRId64 ": url is not one of %s", path, line, known);
    }
    if (!json_is_object(json_object_get(o, "body")))
        return err_set(e, ERR_FORMAT, "%s: line %" PRId64 ": no body", path, line);
    json_object_foreach (o, key, value)
        if (!opts->lenient && strcmp(key, "custom_id") != 0 && strcmp(key, "method") != 0 && strcmp(key, "url") != 0 &&
            strcmp(key, "body") != 0)
            return err_set(e, ERR_FORMAT,
                           "%s: line %" PRId64 ": \"%.100s\" is not a member of a request (--lenient ignores such)",
                           path, line, key);
    return ERR_OK;
}

/* What a request asks for, as a hash: the same with its members in another order. */
static enum err_code hash_request(uint64_t *out, enum serve_method m, json_t *body, struct err *e)
{
    const char *name = serve_row(m)->name;
    char *text;

    json_object_del(body, "stream"); /* an answer is one line here */
    json_object_del(body, "stream_options");
    text = json_dumps(body, JSON_COMPACT | JSON_SORT_KEYS);
    if (text == NULL)
        return err_nomem(e);
    *out = io_hash(io_hash(0, name, strlen(name)), text, strlen(text));
    free(text);
    return ERR_OK;
}

static enum err_code read_all(struct batch *b, struct err *e)
{
    const struct str all = { (const char *)b->in.data, b->in.size };
    size_t at = 0;
    int64_t line = 0, index = 0;
    struct str text;

    while (next_line(all, &at, &line, &text)) {
        enum serve_method m;
        struct err refused;
        uint64_t asked;
        json_t *o;
        enum err_code code;

        if (parse_line(&o, text, b->o->in, line, &refused, e))
            return e->code;
        code = read_request(o, b->o, line, &m, e);
        if (code == ERR_OK && (code = hash_request(&asked, m, json_object_get(o, "body"), e)) == ERR_OK)
            code = add_item(b, o, asked, line, e);
        json_decref(o);
        if (code)
            return code;
        b->n_mine += index++ % b->n_shards == b->shard;
    }
    return b->n_items > 0 ? ERR_OK : err_set(e, ERR_FORMAT, "%s: no requests", b->o->in);
}

/* ---- what was answered before ---- */

/* An output of earlier runs while it is read. */
struct earlier {
    const char *path;
    bool answers;           /* or errors */
    bool write;             /* lines that do not count any more go */
    struct str all;         /* its complete lines */
    int64_t line;           /* the number of the one that is read */
    struct io_out *shorter; /* the file without those lines; NULL: there was none yet */
};

/* What a line was made with that is not what answers are made with now; NULL: it is the same. */
static const char *other_settings(const struct batch *b, const json_t *line)
{
    static const char *const what[][2] = { { "model", "another model" },
                                           { "adapters", "other adapters" },
                                           { "tables", "other tables" },
                                           { "options", "other options" } };
    const json_t *had = json_object_get(line, "made_with");

    if (b->o->made_with == NULL) /* not known yet */
        return NULL;
    if (!json_is_object(had))
        return "settings that it does not name";
    for (size_t i = 0; i < sizeof what / sizeof what[0]; i++)
        if (!json_equal(json_object_get(had, what[i][0]), json_object_get(b->o->made_with, what[i][0])))
            return what[i][1];
    return NULL;
}

/* Whether a stored line answers a request that has not changed since. An answer made with another model or other
 * options is refused. An error is no answer: its request is asked again. */
static enum err_code judge_line(struct batch *b, const struct earlier *x, const json_t *line, struct item **item,
                                bool *counts, struct err *e)
{
    char number[24];
    const char *id = id_of(line, number), *other = other_settings(b, line);
    const char *asked = json_string_value(json_object_get(line, "asked"));
    struct item **place = *id != '\0' ? place_of(b, id) : NULL;
    char now[24];

    if (place == NULL || *place == NULL || json_object_get(line, "response") == NULL)
        return err_set(e, ERR_FORMAT, "%s: line %" PRId64 ": not an answer to a request of %s", x->path, x->line,
                       b->o->in);
    (void)snprintf(now, sizeof now, "%016" PRIx64, (*place)->asked);
    *item = *place;
    *counts = asked != NULL && strcmp(asked, now) == 0;
    if (other != NULL && x->answers)
        return err_set(e, ERR_FORMAT, "%s: line %" PRId64 ": was made with %s: name another file", x->path, x->line,
                       other);
    *counts = *counts && other == NULL;
    return ERR_OK;
}

/* A line goes: what is before it, and those after it that stay, are written anew. */
static enum err_code begin_shorter(struct earlier *x, const char *line, struct err *e)
{
    if (x->shorter != NULL || !x->write)
        return ERR_OK;
    return io_out_open(&x->shorter, x->path, e) || io_out_write(x->shorter, x->all.p, (size_t)(line - x->all.p), e)
               ? e->code
               : ERR_OK;
}

static enum err_code read_earlier(struct batch *b, struct earlier *x, struct err *e)
{
    struct str text;
    size_t at = 0;

    while (next_line(x->all, &at, &x->line, &text)) {
        struct item *item = NULL;
        bool counts = false;
        json_t *o = NULL;
        enum err_code code = parse_own_line(&o, text, x->path, x->line, e);

        if (code == ERR_OK)
            code = judge_line(b, x, o, &item, &counts, e);
        json_decref(o);
        if (code == ERR_OK && !counts) {
            b->n_changed += x->answers;
            code = begin_shorter(x, text.p, e);
        } else if (code == ERR_OK && x->shorter != NULL) {
            code =
                io_out_write(x->shorter, text.p, text.n, e) || io_out_write(x->shorter, "\n", 1, e) ? e->code : ERR_OK;
        }
        if (code)
            return code;
        if (counts && !item->done) {
            item->done = true;
            b->n_done++;
            b->n_refused += !x->answers;
        }
    }
    return ERR_OK;
}

/* Takes the complete lines of an output file, all of which have to be ours. A last line that was cut off by a kill goes
 * when all is known to be right; *unended: the last one that stays lacks its line feed alone. */
static enum err_code take_output(struct batch *b, struct earlier *x, int64_t *keep_bytes, bool *unended, struct err *e)
{
    static const char begins[] = "{\"id\":\"batch_req_";
    struct io_map m = { NULL, 0 };
    enum err_code code;
    size_t rest;

    *keep_bytes = 0;
    *unended = false;
    if (access(x->path, F_OK) != 0)
        return ERR_OK;
    if (io_map_open(&m, x->path, e))
        return e->code;
    x->all = (struct str){ (const char *)m.data, m.size };
    while (x->all.n > 0 && x->all.p[x->all.n - 1] != '\n')
        x->all.n--;
    rest = m.size - x->all.n;
    if (rest > 0 && cli_json_whole((struct str){ x->all.p + x->all.n, rest })) {
        x->all.n = m.size;
        rest = 0;
        *unended = true;
    }
    code = read_earlier(b, x, e);
    if (code == ERR_OK && rest > 0 &&
        memcmp(m.data + x->all.n, begins, rest < sizeof begins - 1 ? rest : sizeof begins - 1) != 0)
        code = err_set(e, ERR_FORMAT, "%s: its last line is not an answer", x->path);
    *keep_bytes = (int64_t)x->all.n;
    io_map_close(&m);
    return code;
}

/* Puts the file without the lines that do not count in the place of the old one, and opens it. */
static enum err_code exchange_output(struct batch *b, int which, struct earlier *x, struct err *e)
{
    struct io_out *shorter = x->shorter;

    x->shorter = NULL;
    if (io_out_commit(shorter, e))
        return e->code;
    close(b->fd[which]);
    b->fd[which] = -1;
    return io_open_own(&b->fd[which], x->path, e);
}

/* Takes what earlier runs wrote to an output, and opens it for more when `write` is true: another process cannot add to
 * it between the two. */
static enum err_code open_output(struct batch *b, int which, const char *path, bool write, struct err *e)
{
    struct earlier x = { .path = path, .answers = which == 0, .write = write };
    struct stat in, out;
    int64_t keep_bytes;
    bool unended;

    if (stat(path, &out) == 0 && stat(b->o->in, &in) == 0 && in.st_dev == out.st_dev && in.st_ino == out.st_ino)
        return err_set(e, ERR_ARG, "%s: is the batch itself", path);
    if ((write && io_open_own(&b->fd[which], path, e)) || take_output(b, &x, &keep_bytes, &unended, e)) {
        io_out_abort(x.shorter);
        return e->code;
    }
    if (!write)
        return ERR_OK;
    if (x.shorter != NULL)
        return exchange_output(b, which, &x, e);
    if (fstat(b->fd[which], &out) != 0 || (out.st_size > keep_bytes && ftruncate(b->fd[which], (off_t)keep_bytes) != 0))
        return err_errno(e, ERR_IO, errno, "%s: cannot shorten", path);
    if (out.st_size > keep_bytes)
        cli_warn("%s: its last line was cut off, and is asked again", path);
    return unended && io_write_all(b->fd[which], "\n", 1, e) ? err_wrap(e, "%s", path) : ERR_OK;
}

static enum err_code parse_shard(struct batch *b, struct err *e)
{
    char *end;
    long i, n;

    b->n_shards = 1;
    if (b->o->shard == NULL)
        return ERR_OK;
    i = isdigit((unsigned char)*b->o->shard) ? strtol(b->o->shard, &end, 10) : 0;
    n = i > 0 && *end == '/' && isdigit((unsigned char)end[1]) ? strtol(end + 1, &end, 10) : 0;
    if (n < 1 || *end != '\0' || n > 1 << 20 || i < 1 || i > n)
        return err_set(e, ERR_ARG, "--shard %s: not I/N with I from 1 to N", b->o->shard);
    b->shard = (int)i - 1;
    b->n_shards = (int)n;
    return ERR_OK;
}

static enum err_code open_batch(struct batch *b, const struct cli_batch_opts *o, bool write, struct err *e)
{
    *b = (struct batch){ .o = o, .fd = { -1, -1 } };
    (void)snprintf(b->errors_path, sizeof b->errors_path, o->errors != NULL ? "%s" : "%s.errors",
                   o->errors != NULL ? o->errors : o->out);
    if (parse_shard(b, e) || io_map_open(&b->in, o->in, e) || read_all(b, e) || open_output(b, 0, o->out, write, e) ||
        open_output(b, 1, b->errors_path, write, e))
        return e->code;
    return ERR_OK;
}

enum err_code cli_batch_check(const struct cli_batch_opts *o, struct err *e)
{
    struct batch b;
    const enum err_code code = open_batch(&b, o, false, e);

    free_items(&b);
    return code;
}

/* ---- asking ---- */

struct pending {
    struct item *item;
    int64_t id;
};

static enum err_code write_reply(struct batch *b, struct pending *p, const struct serve_reply *r, struct err *e)
{
    const int which = r->status == 200 ? 0 : 1;
    char request[40], batch[40], asked[24], *text;
    json_t *line;
    enum err_code code;
    size_t n;

    (void)snprintf(request, sizeof request, "req_%08" PRIx64, (uint64_t)p->id);
    (void)snprintf(batch, sizeof batch, "batch_req_%08" PRIx64, (uint64_t)p->id);
    (void)snprintf(asked, sizeof asked, "%016" PRIx64, p->item->asked);
    line = json_pack("{s:s, s:o, s:{s:i, s:s, s:O}, s:n, s:s, s:O}", "id", batch, "custom_id",
                     p->item->number ? json_integer(atoll(p->item->id)) : json_string(p->item->id), "response",
                     "status_code", r->status, "request_id", request, "body", r->body, "error", "asked", asked,
                     "made_with", b->o->made_with);
    text = line != NULL ? json_line(line) : NULL;
    json_decref(line);
    if (text == NULL)
        return err_nomem(e);
    n = strlen(text);
    text[n] = '\n'; /* in place of the end: one write, so that a line is there or not */
    code = io_write_all(b->fd[which], text, n + 1, e);
    free(text);
    if (code)
        return err_wrap(e, "%s", which == 0 ? b->o->out : b->errors_path);
    p->item->done = true;
    b->n_done++;
    b->n_now++;
    b->n_refused += which == 1;
    return ERR_OK;
}

static void show_progress(const struct batch *b)
{
    const double s = (clock_ms() - b->from_ms) / 1e3, rate = s > 0 ? (double)b->n_now / s : 0;
    const size_t left = b->n_mine > b->n_done ? b->n_mine - b->n_done : 0;
    const double eta = rate > 0 ? (double)left / rate : 0;

    if (cli_status_asked())
        fprintf(stderr, "%s: batch: %zu of %zu, %.2f/s\n", cli_name(), b->n_done, b->n_mine, rate);
    if (rate > 0)
        cli_progress("batch: %zu of %zu, %.2f/s, %.0f s left", b->n_done, b->n_mine, rate, eta);
    else
        cli_progress("batch: %zu of %zu", b->n_done, b->n_mine);
}

/* Gives a request to the server, or writes at once why it is refused. */
static enum err_code ask_one(struct batch *b, struct serve *s, struct item *item, enum serve_method m, json_t *body,
                             const struct err *refused, int64_t line, struct err *e)
{
    struct pending *p = calloc(1, sizeof *p);
    uint64_t asked;
    enum err_code code;

    if (p == NULL)
        return err_nomem(e);
    p->item = item;
    code = hash_request(&asked, m, body, e);
    if (code == ERR_OK && asked != item->asked)
        code = err_set(e, ERR_FORMAT, "%s: changed while it was read", b->o->in);
    if (code == ERR_OK && refused->code == ERR_OK) {
        code = serve_ask(s, m, body, &(struct serve_client){ STR(""), STR("") }, p, &p->id, e);
        if (code == ERR_OK)
            return ERR_OK;
    } else if (code == ERR_OK) {
        const struct serve_reply r = { .status = 400,
                                       .body =
                                           serve_error(serve_row(m), 400, serve_place_in_body(refused), refused->msg) };

        p->id = line;
        code = r.body != NULL ? write_reply(b, p, &r, e) : err_nomem(e);
        json_decref(r.body);
    }
    free(p);
    return code;
}

/* The next request of this shard that has no answer. */
static enum err_code ask_next(struct batch *b, struct serve *s, size_t *at, int64_t *line, int64_t *index, bool *more,
                              struct err *e)
{
    const struct str all = { (const char *)b->in.data, b->in.size };
    struct str text;

    *more = false;
    while (next_line(all, at, line, &text)) {
        const bool mine = (*index)++ % b->n_shards == b->shard;
        enum serve_method m;
        struct err refused;
        char number[24];
        json_t *o;
        enum err_code code;

        if (!mine)
            continue;
        if (parse_line(&o, text, b->o->in, *line, &refused, e))
            return e->code;
        code = read_request(o, b->o, *line, &m, e);
        struct item *item = code == ERR_OK ? *place_of(b, id_of(o, number)) : NULL;
        if (code == ERR_OK && (item == NULL || item->done)) {
            json_decref(o);
            if (item == NULL)
                return err_set(e, ERR_FORMAT, "%s: changed while it was read", b->o->in);
            continue;
        }
        if (code == ERR_OK)
            code = ask_one(b, s, item, m, json_object_get(o, "body"), &refused, *line, e);
        json_decref(o);
        *more = code == ERR_OK;
        return code;
    }
    return ERR_OK;
}

/* Who removed or moved an output while it was written has to hear that it is not there. */
static enum err_code end_output(int fd, const char *path, struct err *e)
{
    struct stat mine, there;

    if ((fsync(fd) != 0 && errno != EINVAL) || fstat(fd, &mine) != 0)
        return err_errno(e, ERR_IO, errno, "%s: cannot write", path);
    if (stat(path, &there) != 0 || mine.st_dev != there.st_dev || mine.st_ino != there.st_ino)
        return err_set(e, ERR_IO, "%s: was moved or removed while it was written", path);
    return ERR_OK;
}

enum err_code cli_batch_run(const struct cli_batch_opts *o, struct serve *s, size_t *n_refused, struct err *e)
{
    struct batch b;
    struct serve_reply r;
    size_t at = 0, before;
    int64_t line = 0, index = 0;
    bool more = true;
    enum err_code code = open_batch(&b, o, true, e);

    before = b.n_done;
    if (code == ERR_OK && b.n_changed > 0)
        cli_warn("%s: %zu of its requests were others when they were answered, and are asked again", o->in,
                 b.n_changed);
    b.from_ms = clock_ms();
    while (code == ERR_OK && !cli_interrupted() && (more || serve_busy(s))) {
        while (code == ERR_OK && more && serve_waiting(s) < AHEAD)
            code = ask_next(&b, s, &at, &line, &index, &more, e);
        if (code == ERR_OK)
            code = serve_step(s, e);
        while (code == ERR_OK && serve_next(s, &r)) {
            code = write_reply(&b, r.user, &r, e);
            json_decref(r.body);
            free(r.user);
        }
        show_progress(&b);
    }
    cli_progress_end();
    for (int i = 0; i < 2 && code == ERR_OK; i++)
        code = end_output(b.fd[i], i == 0 ? o->out : b.errors_path, e);
    if (code == ERR_OK)
        cli_note("%zu answered, %zu were there", b.n_now, before);
    if (code == ERR_OK && b.n_refused > 0)
        cli_warn("%zu of %zu requests were refused, see %s", b.n_refused, b.n_mine, b.errors_path);
    *n_refused = b.n_refused;
    free_items(&b);
    return code;
}
