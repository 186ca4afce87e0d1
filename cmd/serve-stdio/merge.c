/* SPDX-License-Identifier: Apache-2.0 */
/* merge.c - the answers of a batch's shards, put together (merge.h).         room: cmd */
#include "serve-stdio/merge.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/memory.h"
#include "serve-stdio/batch_lines.h"

enum { PATH_BYTES = 4096, PARTS_MAX = 1 << 15, DROP_BYTES = 16 << 20 /* read before pages are given back */ };

/* A request, and where its line is. An id is known by 128 bits of two hashes. */
struct entry {
    uint64_t id[2], asked;
    size_t at;  /* in the part */
    uint32_t n; /* bytes; 0: there is none yet */
    uint16_t part;
    bool error;
};
_Static_assert(sizeof(struct entry) == 40, "of a request");

struct part {
    char path[PATH_BYTES];
    int fd; /* with a lock that who adds to it does not get */
    struct io_map map;
};

struct merge {
    struct cli_merge_opts o;
    char errors[PATH_BYTES];
    struct entry *v; /* [n] in the order of the batch */
    size_t n, cap;
    uint32_t *slot; /* a hash table of entries, their number from 1 on */
    size_t n_slots;
    struct part *part; /* [n_parts] */
    int n_parts;
    json_t *made_with; /* of the first line; NULL: none yet */
    size_t n_missing, n_doubled, n_foreign, n_settings, n_refused;
};

/* ---- requests ---- */

static uint32_t *slot_of(const struct merge *m, const uint64_t id[2])
{
    size_t at = (size_t)id[0] & (m->n_slots - 1);

    while (m->slot[at] != 0 && memcmp(m->v[m->slot[at] - 1].id, id, sizeof m->v->id) != 0)
        at = (at + 1) & (m->n_slots - 1);
    return &m->slot[at];
}

static enum err_code grow_slots(struct merge *m, struct err *e)
{
    if (2 * (m->n + 1) <= m->n_slots)
        return ERR_OK;
    free(m->slot);
    m->n_slots = m->n_slots > 0 ? 2 * m->n_slots : 1024;
    m->slot = calloc(m->n_slots, sizeof *m->slot);
    if (m->slot == NULL)
        return err_nomem(e);
    for (size_t i = 0; i < m->n; i++)
        *slot_of(m, m->v[i].id) = (uint32_t)i + 1;
    return ERR_OK;
}

static void hash_id(uint64_t out[2], const char *id)
{
    for (uint64_t i = 0; i < 2; i++)
        out[i] = io_hash(i, id, strlen(id));
}

static enum err_code add_request(struct merge *m, const char *id, uint64_t asked, int64_t line, struct err *e)
{
    struct entry x = { .asked = asked };
    uint32_t *slot;

    hash_id(x.id, id);
    if (m->n == UINT32_MAX - 1)
        return err_set(e, ERR_LIMIT, "%s: more than 4 billion requests", m->o.in);
    if (memory_room(&m->v, &m->cap, m->n + 1, sizeof *m->v, e) || grow_slots(m, e))
        return e->code;
    slot = slot_of(m, x.id);
    if (*slot != 0)
        return err_set(e, ERR_FORMAT, "%s: line %" PRId64 ": custom_id \"%.100s\" comes a second time", m->o.in, line,
                       id);
    m->v[m->n++] = x;
    *slot = (uint32_t)m->n;
    return ERR_OK;
}

/* After a line: gives back the pages of what was read, from time to time. */
static enum err_code go_on(const struct io_map *map, size_t at, size_t *dropped, struct err *e)
{
    if (cli_interrupted())
        return err_set(e, ERR_CANCEL, "interrupted");
    if (at - *dropped < DROP_BYTES)
        return ERR_OK;
    io_map_drop(map, map->data + *dropped, at - *dropped);
    *dropped = at;
    return ERR_OK;
}

static enum err_code read_requests(struct merge *m, struct err *e)
{
    const struct cli_batch_kind kind = { m->o.in, NULL, m->o.lenient };
    struct io_map map;
    size_t at = 0, dropped = 0;
    int64_t line = 0;
    struct str text;
    enum err_code code = cli_batch_map(&map, m->o.in, m->o.out, e);

    if (code != ERR_OK)
        return code;
    const struct str all = { (const char *)map.data, map.size };

    while (code == ERR_OK && cli_batch_next_line(all, &at, &line, &text)) {
        enum serve_method method;
        struct err refused;
        uint64_t asked;
        char number[24];
        json_t *o;

        code = cli_batch_request(&kind, text, line, &o, &method, &refused, e);
        if (code == ERR_OK && (code = cli_batch_hash(&asked, method, json_object_get(o, "body"), e)) == ERR_OK)
            code = add_request(m, cli_batch_id(o, number), asked, line, e);
        json_decref(o);
        code = code != ERR_OK ? code : go_on(&map, at, &dropped, e);
        cli_progress_count("batch", (int64_t)at >> 10, (int64_t)all.n >> 10, " KiB");
    }
    io_map_close(&map);
    return code != ERR_OK || m->n > 0 ? code : err_set(e, ERR_FORMAT, "%s: no requests", m->o.in);
}

/* ---- parts ---- */

/* What is read, also without being named, such as the errors of a part, is no output. */
static enum err_code check_apart(const struct merge *m, const char *path, struct err *e)
{
    const char *const outs[] = { m->o.out, m->errors };
    struct stat st, out;

    for (int i = 0; i < 2; i++)
        if (stat(path, &st) == 0 && stat(outs[i], &out) == 0 && st.st_dev == out.st_dev && st.st_ino == out.st_ino)
            return err_set(e, ERR_ARG, "%s: is also a file that is read", outs[i]);
    return ERR_OK;
}

/* A line that is wrong, on stdout. line 0: it has none. */
static enum err_code tell_wrong(size_t *count, const char *type, const char *id, const char *path, int64_t line,
                                struct err *e)
{
    json_t *o = json_pack("{s:s}", "type", type);

    ++*count;
    if (o != NULL && ((id != NULL && !cli_json_set(o, "custom_id", json_bytes(str_of(id)))) ||
                      !cli_json_set(o, "file", json_bytes(str_of(path))) ||
                      !cli_json_set(o, "line", json_integer((json_int_t)line))))
        o = json_if(false, o);
    return o != NULL ? cli_json_line(o, e) : err_nomem(e);
}

/* The request that a line was made for; NULL: it is none of this batch, or was another one. */
static struct entry *entry_of(const struct merge *m, const json_t *o, const char *id)
{
    const char *asked = json_string_value(json_object_get(o, "asked"));
    uint64_t hash[2];
    uint32_t found;
    char now[24];

    if (*id == '\0' || asked == NULL || json_object_get(o, "response") == NULL)
        return NULL;
    hash_id(hash, id);
    found = *slot_of(m, hash);
    if (found == 0)
        return NULL;
    (void)snprintf(now, sizeof now, "%016" PRIx64, m->v[found - 1].asked);
    return strcmp(asked, now) == 0 ? &m->v[found - 1] : NULL;
}

static enum err_code take_line(struct merge *m, int part, struct str text, int64_t line, struct err *e)
{
    const struct part *p = &m->part[part];
    struct err why;
    char number[24];
    json_t *o = NULL;
    const bool whole = cli_batch_own_line(&o, text, p->path, line, &why) == ERR_OK;

    if (!whole && why.code != ERR_FORMAT)
        return err_copy(e, &why);
    const char *id = whole ? cli_batch_id(o, number) : "";
    struct entry *x = whole ? entry_of(m, o, id) : NULL;
    enum err_code code = ERR_OK;

    if (x != NULL && m->made_with == NULL)
        m->made_with = json_incref(json_object_get(o, "made_with"));
    if (x == NULL || text.n > UINT32_MAX)
        code = tell_wrong(&m->n_foreign, "foreign", *id != '\0' ? id : NULL, p->path, line, e);
    else if (x->n > 0)
        code = tell_wrong(&m->n_doubled, "doubled", id, p->path, line, e);
    else {
        const json_t *response = json_object_get(o, "response");

        x->part = (uint16_t)part;
        x->at = (size_t)(text.p - (const char *)p->map.data);
        x->n = (uint32_t)text.n;
        x->error = json_integer_value(json_object_get(response, "status_code")) != 200;
        m->n_refused += x->error;
        if (cli_batch_other(m->made_with, o) != NULL)
            code = tell_wrong(&m->n_settings, "settings", id, p->path, line, e);
    }
    json_decref(o);
    return code;
}

static enum err_code read_part(struct merge *m, int part, struct err *e)
{
    const struct part *p = &m->part[part];
    struct str all = { (const char *)p->map.data, p->map.size }, text;
    size_t at = 0, dropped = 0;
    int64_t line = 0;
    enum err_code code = ERR_OK;

    while (code == ERR_OK && cli_batch_next_line(all, &at, &line, &text)) {
        code = take_line(m, part, text, line, e) ? e->code : go_on(&p->map, at, &dropped, e);
        cli_progress_count("answers", (int64_t)at >> 10, (int64_t)all.n >> 10, " KiB");
    }
    io_map_drop(&p->map, p->map.data, p->map.size);
    return code;
}

/* Who answers a shard has its outputs alone, so that one that is written is found by its lock. */
static enum err_code open_part(struct merge *m, const char *path, const char *more, struct err *e)
{
    struct part *p = &m->part[m->n_parts];

    p->fd = -1;
    if (snprintf(p->path, sizeof p->path, "%s%s", path, more) >= (int)sizeof p->path)
        return err_set(e, ERR_ARG, "%.100s...: too long a name", path);
    if (*more != '\0' && access(p->path, F_OK) != 0)
        return ERR_OK;
    m->n_parts++;
    if (check_apart(m, p->path, e) || io_map_open(&p->map, p->path, e))
        return e->code;
    if (cli_batch_is_packed(&p->map))
        return err_set(e, ERR_FORMAT, "%s: is packed with zstd, which only the batch may be", p->path);
    p->fd = open(p->path, O_RDONLY | O_CLOEXEC);
    if (p->fd < 0)
        return err_errno(e, ERR_IO, errno, "%s: cannot open", p->path);
    return flock(p->fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK
               ? err_set(e, ERR_IO, "%s: another process writes it", p->path)
               : ERR_OK;
}

static enum err_code read_parts(struct merge *m, struct err *e)
{
    if (m->o.n_parts > PARTS_MAX)
        return err_set(e, ERR_ARG, "--merge: more than %d parts", PARTS_MAX);
    m->part = calloc(2 * (size_t)m->o.n_parts, sizeof *m->part);
    if (m->part == NULL)
        return err_nomem(e);
    for (int i = 0; i < m->o.n_parts; i++)
        if (open_part(m, m->o.parts[i], "", e) || open_part(m, m->o.parts[i], ".errors", e))
            return e->code;
    for (int i = 0; i < m->n_parts; i++)
        if (read_part(m, i, e))
            return e->code;
    return ERR_OK;
}

/* The ids are not in memory: the batch is read again. */
static enum err_code tell_missing(struct merge *m, struct err *e)
{
    const struct cli_batch_kind kind = { m->o.in, NULL, m->o.lenient };
    struct io_map map;
    size_t at = 0, i = 0;
    int64_t line = 0;
    struct str text;
    bool any = false;
    enum err_code code = ERR_OK;

    for (size_t k = 0; k < m->n && !any; k++)
        any = m->v[k].n == 0;
    if (!any || cli_batch_map(&map, m->o.in, m->o.out, e))
        return any ? e->code : ERR_OK;
    const struct str all = { (const char *)map.data, map.size };

    while (code == ERR_OK && i < m->n && cli_batch_next_line(all, &at, &line, &text)) {
        enum serve_method method;
        struct err refused;
        char number[24];
        json_t *o;

        if (m->v[i++].n > 0)
            continue;
        code = cli_batch_request(&kind, text, line, &o, &method, &refused, e);
        if (code == ERR_OK)
            code = tell_wrong(&m->n_missing, "missing", cli_batch_id(o, number), m->o.in, line, e);
        json_decref(o);
    }
    io_map_close(&map);
    return code;
}

/* ---- writing ---- */

static enum err_code write_kind(const struct merge *m, struct io_out *out, bool error, struct err *e)
{
    size_t read = 0;

    for (size_t i = 0; i < m->n; i++) {
        const struct entry *x = &m->v[i];

        if (cli_interrupted())
            return err_set(e, ERR_CANCEL, "interrupted");
        if (x->error != error)
            continue;
        if (io_out_write(out, m->part[x->part].map.data + x->at, x->n, e) || io_out_write(out, "\n", 1, e))
            return e->code;
        read += x->n;
        for (int p = 0; p < m->n_parts && read > DROP_BYTES; p++)
            io_map_drop(&m->part[p].map, m->part[p].map.data, m->part[p].map.size);
        read = read > DROP_BYTES ? 0 : read;
        cli_progress_count("merge", (int64_t)i, (int64_t)m->n, "");
    }
    return ERR_OK;
}

/* Both are whole before either has its name. */
static enum err_code write_all(const struct merge *m, struct err *e)
{
    struct io_out *answers = NULL, *errors = NULL;

    if (io_out_open(&answers, m->o.out, e) || write_kind(m, answers, false, e) || io_out_open(&errors, m->errors, e) ||
        write_kind(m, errors, true, e)) {
        io_out_abort(answers);
        io_out_abort(errors);
        return e->code;
    }
    if (io_out_commit(errors, e)) {
        io_out_abort(answers);
        return e->code;
    }
    return io_out_commit(answers, e);
}

static void close_merge(struct merge *m)
{
    for (int i = 0; i < m->n_parts; i++) {
        io_map_close(&m->part[i].map);
        if (m->part[i].fd >= 0)
            close(m->part[i].fd);
    }
    free(m->part);
    free(m->slot);
    free(m->v);
    json_decref(m->made_with);
}

/* Neither output replaces a file of another kind, also where nobody has named it. */
static void check_kinds(const struct merge *m)
{
    static const struct str begins = { "{\"id\":\"batch_req_", sizeof "{\"id\":\"batch_req_" - 1 };

    cli_check_kind("merge", m->o.out, begins, "file of answers");
    cli_check_kind(m->o.errors != NULL ? "errors" : "merge", m->errors, begins, "file of errors");
}

enum err_code cli_merge(const struct cli_merge_opts *o, size_t *n_wrong, size_t *n_refused, struct err *e)
{
    struct merge m = { .o = *o };
    enum err_code code = ERR_OK;

    cli_signals(o->in);
    if (snprintf(m.errors, sizeof m.errors, o->errors != NULL ? "%s" : "%s.errors",
                 o->errors != NULL ? o->errors : o->out) >= (int)sizeof m.errors)
        return err_set(e, ERR_ARG, "%.100s...: too long a name", o->out);
    if (check_apart(&m, o->in, e))
        return e->code;
    check_kinds(&m);
    if (read_requests(&m, e) || read_parts(&m, e) || tell_missing(&m, e))
        code = e->code;
    *n_wrong = m.n_missing + m.n_doubled + m.n_foreign + m.n_settings;
    *n_refused = m.n_refused;
    if (code == ERR_OK && *n_wrong == 0)
        code = write_all(&m, e);
    cli_progress_end();
    if (code == ERR_OK && *n_wrong > 0)
        cli_warn("%s: not written: of %zu requests %zu are missing; %zu lines are doubled, %zu foreign, %zu made with "
                 "other settings%s",
                 o->out, m.n, m.n_missing, m.n_doubled, m.n_foreign, m.n_settings,
                 m.n_doubled > 0 ? " (a part of another number of shards has to be removed)" : "");
    else if (code == ERR_OK && m.n_refused > 0)
        cli_warn("%zu of %zu requests were refused, see %s", m.n_refused, m.n, m.errors);
    else if (code == ERR_OK)
        cli_summary("%s: %zu requests, each once", o->out, m.n);
    close_merge(&m);
    return code;
}
