/* SPDX-License-Identifier: Apache-2.0 */
/* batch_lines.c - lines of batches and of their answers (batch_lines.h).     room: cmd */
#include "serve-stdio/batch_lines.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include "base/io.h"

enum { LINE_BYTES_MAX = 16 << 20 };

/* The custom_id of a line as text; "": there is none. */
const char *cli_batch_id(const json_t *line, char number[24])
{
    const json_t *id = json_object_get(line, "custom_id");

    (void)snprintf(number, 24, "%" JSON_INTEGER_FORMAT, json_integer_value(id));
    return json_is_integer(id) ? number : json_is_string(id) ? json_string_value(id) : "";
}

/* The next line of a file in memory that is not empty; *at and *line move on. */
bool cli_batch_next_line(struct str all, size_t *at, int64_t *line, struct str *out)
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
enum err_code cli_batch_own_line(json_t **out, struct str line, const char *path, int64_t number, struct err *e)
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

/* Whether the id is as it was written. U+FFFD stands for halves of surrogate pairs, which are among what is refused. */
static bool is_exact(const json_t *id, const struct err *refused)
{
    const char *text = json_is_string(id) ? json_string_value(id) : "";

    return strlen(text) == (json_is_string(id) ? json_string_length(id) : 0) &&
           (refused->code == ERR_OK || strstr(text, "\xef\xbf\xbd") == NULL);
}

/* What a line of the batch asks for. */
static enum err_code read_members(const struct cli_batch_kind *b, json_t *o, enum serve_method *m,
                                  const struct err *refused, struct err *e)
{
    char number[24];
    const char *key;
    const json_t *id = json_object_get(o, "custom_id");
    json_t *value;
    const char *method = json_string_value(json_object_get(o, "method"));
    const char *url = json_string_value(json_object_get(o, "url"));

    if (!is_exact(id, refused))
        return err_set(e, ERR_FORMAT, "custom_id has \\u0000 or half of a surrogate pair");
    if (*cli_batch_id(o, number) == '\0')
        return err_set(e, ERR_FORMAT, "%s",
                       id == NULL || json_is_string(id) ? "no custom_id"
                                                        : "custom_id is neither a text nor a whole number");
    if (method != NULL && strcmp(method, "POST") != 0)
        return err_set(e, ERR_FORMAT, "method is not POST");
    if (url == NULL || !serve_method(m, str_of(url)) || serve_row(*m)->answer != NULL || serve_row(*m)->streams) {
        char known[256];

        serve_name_methods(known, sizeof known, true, "/v1/");
        return err_set(e, ERR_FORMAT, "url is not one of %s", known);
    }
    if (b->url != NULL && strcmp(url, b->url) != 0)
        return err_set(e, ERR_FORMAT, "url is not %s, for which the batch was made", b->url);
    if (!json_is_object(json_object_get(o, "body")))
        return err_set(e, ERR_FORMAT, "no body");
    json_object_foreach (o, key, value)
        if (!b->lenient && strcmp(key, "custom_id") != 0 && strcmp(key, "method") != 0 && strcmp(key, "url") != 0 &&
            strcmp(key, "body") != 0)
            return err_set(e, ERR_FORMAT, "\"%.100s\" is not a member of a request (--lenient ignores such)", key);
    return ERR_OK;
}

/* The next line of the batch as a request; *o is set where it is JSON. refused: see parse_line(). */
enum err_code cli_batch_request(const struct cli_batch_kind *b, struct str line, int64_t number, json_t **o,
                                enum serve_method *m, struct err *refused, struct err *e)
{
    *o = NULL;
    if (parse_line(o, line, b->name, number, refused, e))
        return e->code;
    return read_members(b, *o, m, refused, e) ? err_wrap(e, "%s: line %" PRId64, b->name, number) : ERR_OK;
}

/* What a request asks for, as a hash: the same with its members in another order. */
enum err_code cli_batch_hash(uint64_t *out, enum serve_method m, json_t *body, struct err *e)
{
    const char *name = serve_row(m)->name;
    char *text;

    json_object_del(body, "stream"); /* an answer is one line here */
    json_object_del(body, "stream_options");
    text = json_dump(body, JSON_COMPACT | JSON_SORT_KEYS);
    if (text == NULL)
        return err_nomem(e);
    *out = io_hash(io_hash(0, name, strlen(name)), text, strlen(text));
    free(text);
    return ERR_OK;
}

/* What a line was made with that is not what answers are made with now; NULL: it is the same. */
const char *cli_batch_other(const json_t *made_with, const json_t *line)
{
    static const char *const what[][2] = { { "model", "another model" },
                                           { "adapters", "other adapters" },
                                           { "tables", "other tables" },
                                           { "options", "other options" } };
    const json_t *had = json_object_get(line, "made_with");

    if (made_with == NULL) /* not known yet */
        return NULL;
    if (!json_is_object(had))
        return "settings that it does not name";
    for (size_t i = 0; i < sizeof what / sizeof what[0]; i++)
        if (!json_equal(json_object_get(had, what[i][0]), json_object_get(made_with, what[i][0])))
            return what[i][1];
    return NULL;
}

/* ---- packed batches ---- */

/* A file that is gone when it is closed. */
static enum err_code open_nameless(int *out, const char *beside, struct err *e)
{
    const char *slash = strrchr(beside, '/');
    char path[4200];

    (void)snprintf(path, sizeof path, "%.*s.chimere-batch.XXXXXX", slash != NULL ? (int)(slash + 1 - beside) : 0,
                   beside);
    *out = mkstemp(path);
    if (*out < 0)
        return err_errno(e, ERR_IO, errno, "%s: cannot make a file", path);
    (void)unlink(path);
    (void)fcntl(*out, F_SETFD, FD_CLOEXEC);
    return ERR_OK;
}

static enum err_code unpack(int fd, const struct io_map *packed, const char *path, struct err *e)
{
    static char buf[1 << 17];
    ZSTD_DStream *z = ZSTD_createDStream();
    ZSTD_inBuffer in = { packed->data, packed->size, 0 };
    size_t left = 1;
    enum err_code code = z != NULL ? ERR_OK : err_nomem(e);

    while (code == ERR_OK && (in.pos < in.size || left != 0)) {
        ZSTD_outBuffer o = { buf, sizeof buf, 0 };
        const size_t before = in.pos;

        left = ZSTD_decompressStream(z, &o, &in);
        if (ZSTD_isError(left))
            code = err_set(e, ERR_FORMAT, "%s: cannot be unpacked by zstd: %s", path, ZSTD_getErrorName(left));
        else if (in.pos == before && o.pos == 0)
            code = err_set(e, ERR_FORMAT, "%s: the zstd data is cut", path);
        else if (cli_interrupted())
            code = err_set(e, ERR_CANCEL, "interrupted");
        else if (io_write_all(fd, buf, o.pos, e))
            code = err_wrap(e, "%s, unpacked", path);
    }
    ZSTD_freeDStream(z);
    return code;
}

bool cli_batch_is_packed(const struct io_map *m)
{
    static const unsigned char magic[4] = { 0x28, 0xb5, 0x2f, 0xfd }; /* RFC 8878 */

    return m->size >= sizeof magic && memcmp(m->data, magic, sizeof magic) == 0;
}

enum err_code cli_batch_map(struct io_map *out, const char *path, const char *beside, struct err *e)
{
    struct io_map packed;
    struct stat st;
    void *p = NULL;
    int fd = -1;
    enum err_code code;

    if (cli_is_stdin(path) || (stat(path, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode))))
        return err_set(e, ERR_ARG, "%s: a batch is read more than once, so it has to be a regular file", path);
    code = io_map_open(&packed, path, e);
    if (code != ERR_OK || !cli_batch_is_packed(&packed)) {
        if (code == ERR_OK)
            *out = packed;
        return code;
    }
    code = open_nameless(&fd, beside, e);
    if (code == ERR_OK)
        code = unpack(fd, &packed, path, e);
    if (code == ERR_OK && fstat(fd, &st) != 0)
        code = err_errno(e, ERR_IO, errno, "%s: cannot unpack", path);
    if (code == ERR_OK && st.st_size > 0)
        p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (code == ERR_OK && p == MAP_FAILED)
        code = err_errno(e, ERR_IO, errno, "%s: cannot map", path);
    if (fd >= 0)
        close(fd);
    io_map_close(&packed);
    if (code == ERR_OK)
        *out = (struct io_map){ .data = p, .size = p != NULL ? (size_t)st.st_size : 0 };
    return code;
}
