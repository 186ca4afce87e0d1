/* SPDX-License-Identifier: Apache-2.0 */
/* batch.c - a file of requests, answered into another one (batch.h).         room: cmd */
#include "serve-stdio/batch.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "serve-stdio/batch_lines.h"
#include "serve/serve.h"

enum { AHEAD = 64 /* requests that wait in the engine's front */ };

struct item {
    char *id;       /* custom_id */
    bool number;    /* it is a whole number, not a text */
    uint64_t asked; /* a hash of the request */
    bool done;      /* answered before, or now */
};

/* A request that the engine has. */
struct pending {
    struct pending *next, **link;
    struct item *item;
    int64_t id;
};

struct cli_batch {
    struct cli_batch_opts o;
    struct cli_batch_kind kind;
    struct io_map in;
    size_t at; /* of the next line; first to check all, then to ask */
    int64_t line, index;
    struct pending *asked;
    int64_t n_asked;
    struct item **slot; /* hash table of items by id */
    size_t n_slots, n_items, n_done, n_mine;
    struct serve_shard shard;
    int fd[2];      /* output, errors */
    bool made[2];   /* there was none of them before */
    off_t bytes[2]; /* of whole lines */
    char errors_path[4096];
    double from_ms;
    size_t n_now;     /* answered by this run */
    size_t n_refused; /* of n_done */
    size_t n_changed; /* answered before, when they were other requests */
};

/* ---- the table ---- */

static struct item **place_of(const struct cli_batch *b, const char *id)
{
    const size_t n = strlen(id);
    size_t at = (size_t)io_hash(0, id, n) & (b->n_slots - 1);

    while (b->slot[at] != NULL && strcmp(b->slot[at]->id, id) != 0)
        at = (at + 1) & (b->n_slots - 1);
    return &b->slot[at];
}

static bool grow_slots(struct cli_batch *b)
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

static enum err_code add_item(struct cli_batch *b, const json_t *request, uint64_t asked, struct err *e)
{
    char number[24];
    const char *id = cli_batch_id(request, number);
    struct item **place, *item;

    if (!grow_slots(b))
        return err_nomem(e);
    place = place_of(b, id);
    if (*place != NULL)
        return err_set(e, ERR_FORMAT, "%s: line %" PRId64 ": custom_id \"%.100s\" comes a second time", b->kind.name,
                       b->line, id);
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

static void free_pending(struct cli_batch *b, struct pending *p)
{
    *p->link = p->next;
    if (p->next != NULL)
        p->next->link = p->link;
    b->n_asked--;
    free(p);
}

void cli_batch_close(struct cli_batch *b)
{
    if (b == NULL)
        return;
    for (size_t i = 0; i < b->n_slots; i++)
        if (b->slot[i] != NULL) {
            free(b->slot[i]->id);
            free(b->slot[i]);
        }
    free(b->slot);
    while (b->asked != NULL)
        free_pending(b, b->asked);
    io_map_close(&b->in);
    for (int i = 0; i < 2; i++)
        if (b->fd[i] >= 0)
            close(b->fd[i]);
    free(b);
}

/* ---- lines ---- */

enum err_code cli_batch_read(struct cli_batch *b, bool *more, struct err *e)
{
    const struct str all = { (const char *)b->in.data, b->in.size };
    struct str text;
    enum serve_method m;
    struct err refused;
    uint64_t asked;
    json_t *o;
    enum err_code code;

    *more = cli_batch_next_line(all, &b->at, &b->line, &text);
    if (!*more)
        return b->n_items > 0 ? ERR_OK : err_set(e, ERR_FORMAT, "%s: no requests", b->kind.name);
    code = cli_batch_request(&b->kind, text, b->line, &o, &m, &refused, e);
    if (code == ERR_OK && (code = cli_batch_hash(&asked, m, json_object_get(o, "body"), e)) == ERR_OK)
        code = add_item(b, o, asked, e);
    json_decref(o);
    if (code == ERR_OK)
        b->n_mine += b->index++ % b->shard.n == b->shard.first;
    return code;
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

/* Whether a stored line answers a request that has not changed since. An answer made with another model or other
 * options is refused. An error is no answer: its request is asked again, also when --lenient is new. */
static enum err_code judge_line(struct cli_batch *b, const struct earlier *x, const json_t *line, struct item **item,
                                bool *counts, struct err *e)
{
    char number[24];
    const char *id = cli_batch_id(line, number), *other = cli_batch_other(b->o.made_with, line);
    const char *asked = json_string_value(json_object_get(line, "asked"));
    struct item **place = *id != '\0' ? place_of(b, id) : NULL;
    char now[24];

    if (place == NULL || *place == NULL || json_object_get(line, "response") == NULL)
        return err_set(e, ERR_FORMAT, "%s: line %" PRId64 ": not an answer to a request of %s", x->path, x->line,
                       b->kind.name);
    (void)snprintf(now, sizeof now, "%016" PRIx64, (*place)->asked);
    *item = *place;
    *counts = asked != NULL && strcmp(asked, now) == 0;
    if (other != NULL && x->answers && !b->o.again)
        return err_set(e, ERR_FORMAT, "%s: line %" PRId64 ": was made with %s: name another file", x->path, x->line,
                       other);
    *counts =
        *counts && other == NULL && (x->answers || !b->o.lenient || json_is_true(json_object_get(line, "lenient")));
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

static enum err_code read_earlier(struct cli_batch *b, struct earlier *x, struct err *e)
{
    struct str text;
    size_t at = 0;

    while (cli_batch_next_line(x->all, &at, &x->line, &text)) {
        struct item *item = NULL;
        bool counts = false;
        json_t *o = NULL;
        enum err_code code = cli_batch_own_line(&o, text, x->path, x->line, e);

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
static enum err_code take_output(struct cli_batch *b, struct earlier *x, int64_t *keep_bytes, bool *unended,
                                 struct err *e)
{
    static const char begins[] = "{\"id\":\"batch_req_";
    struct io_map m = { 0 };
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
    code = rest > 0 ? json_begins(unended, (struct str){ x->all.p + x->all.n, rest }, e) : ERR_OK;
    if (*unended) { /* a kill did not cut it */
        x->all.n = m.size;
        rest = 0;
    }
    if (code == ERR_OK)
        code = read_earlier(b, x, e);
    if (code == ERR_OK && rest > 0 &&
        memcmp(m.data + x->all.n, begins, rest < sizeof begins - 1 ? rest : sizeof begins - 1) != 0)
        code = err_set(e, ERR_FORMAT, "%s: its last line is not an answer", x->path);
    *keep_bytes = (int64_t)x->all.n;
    io_map_close(&m);
    return code;
}

/* Puts the file without the lines that do not count in the place of the old one, and opens it. */
static enum err_code exchange_output(struct cli_batch *b, int which, struct earlier *x, struct err *e)
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
static enum err_code open_output(struct cli_batch *b, int which, const char *path, bool write, struct err *e)
{
    struct earlier x = { .path = path, .answers = which == 0, .write = write };
    struct stat in, out;
    int64_t keep_bytes;
    bool unended;

    b->made[which] = write && lstat(path, &out) != 0;
    if (stat(path, &out) == 0 && stat(b->o.in, &in) == 0 && in.st_dev == out.st_dev && in.st_ino == out.st_ino)
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

static const char *environment(const char *name)
{
    return getenv(name);
}

/* What clients send is as it is: who packs may make much of little. */
static enum err_code map_input(struct cli_batch *b, struct err *e)
{
    return b->o.name != NULL ? io_map_open(&b->in, b->o.in, e) : cli_batch_map(&b->in, b->o.in, b->o.out, e);
}

enum err_code cli_batch_open(struct cli_batch **out, const struct cli_batch_opts *o, struct err *e)
{
    struct cli_batch *b = calloc(1, sizeof *b);

    if (b == NULL)
        return err_nomem(e);
    b->o = *o;
    b->kind = (struct cli_batch_kind){ o->name != NULL ? o->name : o->in, o->url, o->lenient };
    b->fd[0] = b->fd[1] = -1;
    (void)snprintf(b->errors_path, sizeof b->errors_path, o->errors != NULL ? "%s" : "%s.errors",
                   o->errors != NULL ? o->errors : o->out);
    if (serve_shard(&b->shard, o->shard, environment, e) || map_input(b, e)) {
        cli_batch_close(b);
        return e->code;
    }
    *out = b;
    return ERR_OK;
}

/* A run that failed leaves no file in which nothing is. */
static void remove_empty(struct cli_batch *b)
{
    const char *const path[] = { b->o.out, b->errors_path };
    struct stat mine, there;

    for (int i = 0; i < 2; i++)
        if (b->made[i] && b->fd[i] >= 0 && fstat(b->fd[i], &mine) == 0 && mine.st_size == 0 &&
            stat(path[i], &there) == 0 && there.st_dev == mine.st_dev && there.st_ino == mine.st_ino)
            (void)unlink(path[i]);
}

static enum err_code take_outputs(struct cli_batch *b, bool write, struct err *e)
{
    struct stat st;

    if (open_output(b, 0, b->o.out, write, e) || open_output(b, 1, b->errors_path, write, e))
        return e->code;
    for (int i = 0; i < 2 && write; i++) {
        if (fstat(b->fd[i], &st) != 0)
            return err_errno(e, ERR_IO, errno, "%s: cannot read", i == 0 ? b->o.out : b->errors_path);
        b->bytes[i] = st.st_size;
    }
    b->at = 0;
    b->line = b->index = 0;
    return ERR_OK;
}

enum err_code cli_batch_begin(struct cli_batch *b, struct err *e)
{
    return take_outputs(b, true, e);
}

static enum err_code open_whole(struct cli_batch **b, const struct cli_batch_opts *o, bool write, struct err *e)
{
    bool more = true;

    if (cli_batch_open(b, o, e))
        return e->code;
    while (more)
        if (cli_batch_read(*b, &more, e))
            return e->code;
    return take_outputs(*b, write, e);
}

enum err_code cli_batch_check(const struct cli_batch_opts *o, struct err *e)
{
    struct cli_batch *b = NULL;
    const enum err_code code = open_whole(&b, o, false, e);

    cli_batch_close(b);
    return code;
}

struct cli_batch_counts cli_batch_counts(const struct cli_batch *b)
{
    return (
        struct cli_batch_counts){ b->n_mine, b->n_done, b->n_refused, b->line, b->n_asked, b->bytes[0] + b->bytes[1] };
}

/* ---- asking ---- */

/* How messages name an output: who has no business with paths has named the input. */
static const char *output_name(const struct cli_batch *b, int which)
{
    return b->o.name != NULL ? (which == 0 ? "the answers" : "the errors") : which == 0 ? b->o.out : b->errors_path;
}

/* In one write, so that a line is there or not; what a full disk has taken of it goes again. Takes the line. */
static enum err_code write_line(struct cli_batch *b, int which, json_t *line, struct err *e)
{
    char *text = line != NULL ? json_line(line) : NULL;
    enum err_code code = ERR_OK;
    size_t n;

    json_decref(line);
    if (text == NULL)
        return err_nomem(e);
    n = strlen(text);
    text[n++] = '\n'; /* in place of the end */
    if (b->o.room != NULL && (int64_t)n > *b->o.room)
        code = err_set(e, ERR_LIMIT, "no room for more answers");
    else if (io_write_all(b->fd[which], text, n, e)) {
        code = err_wrap(e, "%s", output_name(b, which));
        if (ftruncate(b->fd[which], b->bytes[which]) != 0)
            cli_warn("%s: ends in the middle of a line", output_name(b, which));
    }
    free(text);
    if (code)
        return code;
    b->bytes[which] += (off_t)n;
    if (b->o.room != NULL)
        *b->o.room -= (int64_t)n;
    return ERR_OK;
}

bool cli_batch_owns(const struct cli_batch *b, const void *user)
{
    const struct pending *p = b->asked;

    while (p != NULL && p != user)
        p = p->next;
    return p != NULL;
}

static json_t *id_value(const struct item *item)
{
    return item->number ? json_integer(atoll(item->id)) : json_string(item->id);
}

/* Writes the entry of a request and notes it. Takes response and error, of which one is null. number: of ids. */
static enum err_code write_entry(struct cli_batch *b, struct item *item, int64_t number, bool refused, json_t *response,
                                 json_t *error, struct err *e)
{
    char id[40], asked[24];
    json_t *line;

    (void)snprintf(id, sizeof id, "batch_req_%08" PRIx64, (uint64_t)number);
    (void)snprintf(asked, sizeof asked, "%016" PRIx64, item->asked);
    line = json_pack("{s:s, s:o, s:o, s:o, s:s, s:O}", "id", id, "custom_id", id_value(item), "response", response,
                     "error", error, "asked", asked, "made_with", b->o.made_with);
    if (refused && b->o.lenient)
        line = json_if(cli_json_set(line, "lenient", json_true()), line);
    if (write_line(b, refused, line, e))
        return e->code;
    item->done = true;
    b->n_done++;
    b->n_now++;
    b->n_refused += refused;
    return ERR_OK;
}

/* Takes the body. */
static enum err_code write_reply(struct cli_batch *b, struct item *item, int64_t number, int status, json_t *body,
                                 struct err *e)
{
    char id[40];

    (void)snprintf(id, sizeof id, "req_%08" PRIx64, (uint64_t)number);
    return write_entry(b, item, number, status != 200,
                       json_pack("{s:i, s:s, s:o}", "status_code", status, "request_id", id, "body", body), json_null(),
                       e);
}

enum err_code cli_batch_take(struct cli_batch *b, struct serve_reply *r, struct err *e)
{
    struct pending *p = r->user;
    struct item *item = p->item;
    const int64_t id = p->id;

    free_pending(b, p);
    return write_reply(b, item, id, r->status, r->body, e);
}

enum err_code cli_batch_give_up(struct cli_batch *b, const char *code, const char *message, struct err *e)
{
    for (size_t i = 0; i < b->n_slots; i++)
        if (b->slot[i] != NULL && !b->slot[i]->done &&
            write_entry(b, b->slot[i], (int64_t)i, true, json_null(),
                        json_pack("{s:s, s:s}", "code", code, "message", message), e))
            return e->code;
    return ERR_OK;
}

static void show_progress(const struct cli_batch *b)
{
    const double s = (clock_ms() - b->from_ms) / 1e3, rate = s > 0 ? (double)b->n_now / s : 0;
    const size_t left = b->n_mine > b->n_done ? b->n_mine - b->n_done : 0;
    char clock[32];

    if (cli_status_asked())
        fprintf(stderr, "%s: batch: %zu of %zu, %.2f/s\n", cli_name(), b->n_done, b->n_mine, rate);
    if (rate > 0)
        cli_progress("batch: %zu of %zu, %.2f/s, %s left", b->n_done, b->n_mine, rate,
                     cli_clock((double)left / rate, clock));
    else
        cli_progress("batch: %zu of %zu", b->n_done, b->n_mine);
}

/* Gives a request to the engine, or writes at once why it is refused. */
static enum err_code ask_one(struct cli_batch *b, struct serve *s, struct item *item, enum serve_method m, json_t *body,
                             const struct err *refused, struct err *e)
{
    struct pending *p;
    uint64_t asked;
    enum err_code code = cli_batch_hash(&asked, m, body, e);

    if (code == ERR_OK && asked != item->asked)
        code = err_set(e, ERR_FORMAT, "%s: changed while it was read", b->kind.name);
    if (code == ERR_OK && refused->code != ERR_OK)
        return write_reply(b, item, b->line, 400,
                           serve_error(serve_row(m), 400, serve_place_in_body(refused), refused->msg), e);
    p = code == ERR_OK ? calloc(1, sizeof *p) : NULL;
    if (p == NULL)
        return code != ERR_OK ? code : err_nomem(e);
    p->item = item;
    p->next = b->asked;
    p->link = &b->asked;
    if (p->next != NULL)
        p->next->link = &p->next;
    b->asked = p;
    b->n_asked++;
    code = serve_ask(s, m, body, &b->o.client, p, &p->id, e);
    if (code)
        free_pending(b, p);
    return code;
}

enum err_code cli_batch_ask(struct cli_batch *b, struct serve *s, bool *more, struct err *e)
{
    const struct str all = { (const char *)b->in.data, b->in.size };
    struct str text;

    *more = false;
    while (cli_batch_next_line(all, &b->at, &b->line, &text)) {
        const bool mine = b->index++ % b->shard.n == b->shard.first;
        enum serve_method m;
        struct err refused;
        char number[24];
        json_t *o;
        enum err_code code;

        if (!mine)
            continue;
        code = cli_batch_request(&b->kind, text, b->line, &o, &m, &refused, e);
        struct item *item = code == ERR_OK ? *place_of(b, cli_batch_id(o, number)) : NULL;
        if (code == ERR_OK && item == NULL)
            code = err_set(e, ERR_FORMAT, "%s: changed while it was read", b->kind.name);
        const bool asks = code == ERR_OK && !item->done;

        if (asks)
            code = ask_one(b, s, item, m, json_object_get(o, "body"), &refused, e);
        json_decref(o);
        *more = asks && code == ERR_OK;
        if (asks || code != ERR_OK)
            return code;
    }
    return ERR_OK;
}

void cli_batch_cancel(struct cli_batch *b, struct serve *s)
{
    while (b->asked != NULL) {
        serve_cancel(s, b->asked->id);
        free_pending(b, b->asked);
    }
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

enum err_code cli_batch_end(const struct cli_batch *b, struct err *e)
{
    return end_output(b->fd[0], b->o.out, e) || end_output(b->fd[1], b->errors_path, e) ? e->code : ERR_OK;
}

enum err_code cli_batch_run(const struct cli_batch_opts *o, struct serve *s, struct cli_batch_counts *counts,
                            struct err *e)
{
    struct cli_batch *b = NULL;
    struct serve_reply r;
    size_t before;
    bool more = true;
    enum err_code code = open_whole(&b, o, true, e);

    if (b == NULL)
        return code;
    before = b->n_done;
    if (code == ERR_OK && b->n_changed > 0)
        cli_warn("%s: %zu of its requests were others when they were answered, and are asked again", o->in,
                 b->n_changed);
    b->from_ms = clock_ms();
    while (code == ERR_OK && !cli_interrupted() && (more || serve_busy(s))) {
        while (code == ERR_OK && more && serve_waiting(s) < AHEAD)
            code = cli_batch_ask(b, s, &more, e);
        if (code == ERR_OK)
            code = serve_step(s, e);
        while (code == ERR_OK && serve_next(s, &r))
            code = cli_batch_take(b, &r, e);
        show_progress(b);
    }
    cli_progress_end();
    if (code == ERR_CANCEL && cli_interrupted()) /* in a step */
        code = ERR_OK;
    if (code == ERR_OK)
        code = cli_batch_end(b, e);
    if (code != ERR_OK)
        remove_empty(b);
    if (code == ERR_OK)
        cli_note("%zu answered, %zu were there", b->n_now, before);
    if (code == ERR_OK && cli_interrupted() && b->n_done < b->n_mine)
        cli_warn("%zu of %zu requests are answered; the same command goes on", b->n_done, b->n_mine);
    if (code == ERR_OK && b->n_refused > 0)
        cli_warn("%zu of %zu requests were refused, see %s", b->n_refused, b->n_mine, b->errors_path);
    *counts = cli_batch_counts(b);
    cli_batch_close(b);
    return code;
}
