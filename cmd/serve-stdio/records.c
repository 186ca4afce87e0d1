/* SPDX-License-Identifier: Apache-2.0 */
/* records.c - JSON objects of clients, each in a file of a directory (records.h).   room: cmd */
#include "serve-stdio/records.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/memory.h"

enum { ID_BYTES = 12 /* of chance */, FILE_BYTES_MAX = 1 << 20, PATH_BYTES = 4096 };
static const char ends[] = ".json";

static void free_record(struct cli_record *x)
{
    json_decref(x->object);
    json_decref(x->own);
    free(x);
}

void cli_records_close(struct cli_records *r)
{
    for (size_t i = 0; i < r->n; i++)
        free_record(r->v[i]);
    free(r->v);
    *r = (struct cli_records){ 0 };
}

static void path_of(const struct cli_records *r, const char *id, char path[PATH_BYTES])
{
    (void)snprintf(path, PATH_BYTES, "%.4000s/%s%s", r->dir, id, ends);
}

enum err_code cli_record_id(char id[CLI_ID_BYTES], const char *begins, struct err *e)
{
    unsigned char chance[ID_BYTES];
    size_t n = (size_t)snprintf(id, CLI_ID_BYTES, "%s", begins);

    if (getentropy(chance, sizeof chance) != 0)
        return err_errno(e, ERR_IO, errno, "no random numbers for an id");
    for (size_t i = 0; i < sizeof chance; i++)
        n += (size_t)snprintf(id + n, CLI_ID_BYTES - n, "%02x", chance[i]);
    return ERR_OK;
}

enum err_code cli_record_add(struct cli_record **out, struct cli_records *r, const char *id, uint64_t owner,
                             json_t *object, json_t *own, struct err *e)
{
    struct cli_record *x = object != NULL && own != NULL ? calloc(1, sizeof *x) : NULL;

    if (x == NULL || r->n == CLI_RECORDS_MAX || memory_room(&r->v, &r->cap, r->n + 1, sizeof(struct cli_record *), e)) {
        json_decref(object);
        json_decref(own);
        free(x);
        return x != NULL && r->n == CLI_RECORDS_MAX
                   ? err_set(e, ERR_LIMIT, "there are %d of them, which is the most", CLI_RECORDS_MAX)
                   : err_nomem(e);
    }
    (void)snprintf(x->id, sizeof x->id, "%s", id);
    x->owner = owner;
    x->number = r->n > 0 ? r->v[r->n - 1]->number + 1 : 1;
    x->object = object;
    x->own = own;
    *out = r->v[r->n++] = x;
    return ERR_OK;
}

enum err_code cli_record_save(const struct cli_records *r, const struct cli_record *x, struct err *e)
{
    char path[PATH_BYTES], owner[24];
    json_t *all;
    char *text;
    enum err_code code;

    (void)snprintf(owner, sizeof owner, "%016" PRIx64, x->owner);
    all = json_pack("{s:s, s:I, s:O, s:O}", "owner", owner, "number", (json_int_t)x->number, "object", x->object, "own",
                    x->own);
    text = all != NULL ? json_line(all) : NULL;
    json_decref(all);
    if (text == NULL)
        return err_nomem(e);
    path_of(r, x->id, path);
    code = io_write_file(path, str_of(text), e);
    free(text);
    return code;
}

void cli_record_remove(struct cli_records *r, struct cli_record *x)
{
    char path[PATH_BYTES];
    size_t at = 0;

    path_of(r, x->id, path);
    (void)unlink(path);
    while (r->v[at] != x)
        at++;
    memmove(&r->v[at], &r->v[at + 1], (r->n - at - 1) * sizeof r->v[0]);
    r->n--;
    free_record(x);
}

struct cli_record *cli_record_find(const struct cli_records *r, struct str id, uint64_t owner)
{
    for (size_t i = 0; i < r->n; i++)
        if (r->v[i]->owner == owner && str_is(id, r->v[i]->id))
            return r->v[i];
    return NULL;
}

/* ---- reading ---- */

/* Whether a file's name is an id of the table and the end; its id. */
static bool is_record(const struct cli_records *r, const char *name, char id[CLI_ID_BYTES])
{
    const size_t n = strlen(r->begins);

    if (strncmp(name, r->begins, n) != 0 || strspn(name + n, "0123456789abcdef") != 2 * ID_BYTES ||
        strcmp(name + n + 2 * ID_BYTES, ends) != 0)
        return false;
    (void)snprintf(id, CLI_ID_BYTES, "%.*s", (int)n + 2 * ID_BYTES, name);
    return true;
}

static enum err_code read_record(struct cli_records *r, const char *id, struct err *e)
{
    char path[PATH_BYTES], *text;
    size_t n;
    json_t *all;
    struct cli_record *x;

    path_of(r, id, path);
    if (io_read_regular(&text, &n, path, FILE_BYTES_MAX, e))
        return e->code;
    const enum err_code code = json_parse_own(&all, (struct str){ text, n }, path, e);

    free(text);
    if (code)
        return code;
    json_t *object = json_object_get(all, "object"), *own = json_object_get(all, "own");
    const char *owner = json_string_value(json_object_get(all, "owner"));
    const json_int_t number = json_integer_value(json_object_get(all, "number"));

    if (!json_is_object(object) || !json_is_object(own) || owner == NULL || number <= 0)
        (void)err_set(e, ERR_FORMAT, "%s: is no record", path);
    else if (cli_record_add(&x, r, id, strtoull(owner, NULL, 16), json_incref(object), json_incref(own), e) == ERR_OK)
        x->number = number;
    json_decref(all);
    return e->code;
}

static int by_number(const void *a, const void *b)
{
    const struct cli_record *const *x = a, *const *y = b;

    return ((*x)->number > (*y)->number) - ((*x)->number < (*y)->number);
}

enum err_code cli_records_open(struct cli_records *r, const char *dir, const char *begins, struct err *e)
{
    DIR *d = opendir(dir);
    const struct dirent *f;

    *r = (struct cli_records){ .dir = dir, .begins = begins };
    if (d == NULL)
        return err_errno(e, ERR_IO, errno, "%s: cannot read", dir);
    io_remove_left(dirfd(d), begins);
    while ((f = readdir(d)) != NULL) {
        char id[CLI_ID_BYTES];
        struct err why = { 0 };

        if (is_record(r, f->d_name, id) && read_record(r, id, &why))
            cli_warn("%s", why.msg);
    }
    closedir(d);
    if (r->n > 0)
        qsort(r->v, r->n, sizeof r->v[0], by_number);
    return ERR_OK;
}

/* ---- lists ---- */

json_t *cli_records_list(const struct cli_records *r, uint64_t owner, const struct cli_records_page *page, bool *known)
{
    json_t *data = json_array(), *first, *last;
    bool more = false;

    *known = page->after == NULL;
    for (size_t i = 0; i < r->n && !more; i++) {
        const struct cli_record *x = r->v[page->oldest ? i : r->n - 1 - i];
        const char *value = page->is != NULL ? json_string_value(json_object_get(x->object, page->member)) : NULL;

        if (x->owner != owner || (page->is != NULL && (value == NULL || strcmp(value, page->is) != 0)))
            continue;
        more = *known && (int64_t)json_array_size(data) == page->limit;
        if (*known && !more)
            json_push(&data, json_incref(x->object));
        *known = *known || strcmp(x->id, page->after) == 0;
    }
    first = json_object_get(json_array_get(data, 0), "id");
    last = json_object_get(json_array_get(data, json_array_size(data) - 1), "id");
    return json_pack("{s:s, s:o, s:O?, s:O?, s:b}", "object", "list", "data", data, "first_id", first, "last_id", last,
                     "has_more", more);
}
