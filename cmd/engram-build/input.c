/* SPDX-License-Identifier: Apache-2.0 */
/* input.c - texts, plain or JSON lines, packed by zstd or not, into tokens.  room: cmd */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>
#include "base/clock.h"
#include "base/io.h"
#include "base/pool.h"
#include "engram-build/program.h"
#include "text/text.h"

enum {
    READ_BYTES = 1 << 18,
    MARK_BYTES = 3,            /* of a byte order mark */
    PIECE_BYTES = 1 << 16,     /* of plain text that is made into tokens at once, and what follows up to a line's end */
    PIECE_BYTES_MAX = 1 << 24, /* text without a place to cut */
    LINE_BYTES_MAX = 1 << 26,
    BATCH = 256, /* pieces at once, or BATCH_BYTES of text */
    BATCH_BYTES = BATCH * PIECE_BYTES,
};

struct source {
    const char *name, *file; /* file: the same if it is a regular one, else NULL */
    int64_t time_ns;         /* of its last change */
    int fd;
    bool known, packed, ended, pending;
    struct cli_plain plain;
    ZSTD_DStream *z;
    ZSTD_inBuffer in;
    char raw[READ_BYTES];
};

struct piece {
    struct cli_buf s, members;
    struct text_tokens token;
    const char *file;
    int64_t number, time_ns;
    bool end; /* of the document */
    bool line;
    struct err err;
};

struct input {
    const struct build_options *o;
    const struct text *text;
    struct pool *pool;
    cli_engram_sink *sink;
    cli_engram_line *line; /* not NULL: lines are taken as they are */
    void *ctx;
    struct piece piece[BATCH];
    int n;
    size_t bytes;                           /* of the pieces */
    bool lines;                             /* of the source that is read */
    uint64_t read_bytes, all_bytes, tokens; /* all_bytes 0: not known */
    double part;                            /* of all_bytes, at the last flush */
    double from_ms;
};

/* ---- bytes ---- */

static enum err_code fill_input(struct source *s, struct input *in, struct err *e)
{
    size_t got;

    if (io_read_some(&got, s->fd, s->raw, sizeof s->raw, cli_interrupted, e))
        return err_wrap(e, "%s", s->name);
    s->in = (ZSTD_inBuffer){ s->raw, got, 0 };
    s->ended = got == 0;
    in->read_bytes += got;
    return ERR_OK;
}

static enum err_code unpack(struct source *s, struct cli_buf *out, struct err *e)
{
    static char buf[READ_BYTES];
    ZSTD_outBuffer o = { buf, sizeof buf, 0 };
    size_t left = ZSTD_decompressStream(s->z, &o, &s->in);

    if (ZSTD_isError(left))
        return err_set(e, ERR_FORMAT, "%s: cannot be unpacked by zstd: %s", s->name, ZSTD_getErrorName(left));
    s->pending = left != 0;
    if (cli_plain_add(&s->plain, (struct str){ buf, o.pos }, e))
        return e->code;
    return cli_buf_add(out, (struct str){ buf, o.pos }, e);
}

/* Appends some bytes to *out; *more false at the end. */
static enum err_code take_bytes(struct source *s, struct input *in, struct cli_buf *out, bool *more, struct err *e)
{
    static const unsigned char magic[4] = { 0x28, 0xb5, 0x2f, 0xfd }, skipped[3] = { 0x2a, 0x4d, 0x18 }; /* RFC 8878 */

    *more = true;
    if (s->in.pos == s->in.size && !s->ended && fill_input(s, in, e))
        return e->code;
    if (s->ended) {
        *more = false;
        return s->pending ? err_set(e, ERR_FORMAT, "%s: the zstd data is cut", s->name) : cli_plain_end(&s->plain, e);
    }
    if (!s->known) {
        s->known = true;
        s->packed = s->in.size >= 4 && (memcmp(s->raw, magic, 4) == 0 || memcmp(s->raw + 1, skipped, 3) == 0);
        if (s->packed && (s->z = ZSTD_createDStream()) == NULL)
            return err_nomem(e);
    }
    if (s->packed)
        return unpack(s, out, e);
    s->in.pos = s->in.size;
    if (cli_plain_add(&s->plain, (struct str){ s->raw, s->in.size }, e))
        return e->code;
    return cli_buf_add(out, (struct str){ s->raw, s->in.size }, e);
}

/* ---- tokens ---- */

static void encode_pieces(void *ctx, int64_t begin, int64_t end, int worker)
{
    struct input *in = ctx;

    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        struct piece *p = &in->piece[i];

        p->token.n = 0;
        if (text_encode(in->text, (struct str){ p->s.p, p->s.n }, 0, &p->token, &p->err) == ERR_OK)
            p->err.code = ERR_OK;
    }
}

static void show_speed(const struct input *in)
{
    const double s = (clock_ms() - in->from_ms) / 1e3,
                 part = in->all_bytes > 0 ? (double)in->read_bytes / (double)in->all_bytes : 0;
    const double rate = s > 0 ? (double)in->tokens / s / 1e6 : 0;
    char clock[32];

    if (cli_status_asked())
        fprintf(stderr, "%s: %.1f million tokens, %.2f million/s\n", cli_name(), (double)in->tokens / 1e6, rate);
    if (part > 0 && part <= 1)
        cli_progress("%.1f million tokens, %.2f million/s, %s left", (double)in->tokens / 1e6, rate,
                     cli_clock(s / part - s, clock));
    else
        cli_progress("%.1f million tokens, %.2f million/s", (double)in->tokens / 1e6, rate);
}

static enum err_code flush_pieces(struct input *in, struct err *e)
{
    const double now = in->all_bytes > 0 ? (double)in->read_bytes / (double)in->all_bytes : 0, before = in->part;
    const size_t bytes = in->bytes > 0 ? in->bytes : 1;
    const int n = in->n;
    size_t given = 0;

    in->n = 0;
    in->bytes = 0;
    in->part = now;
    if (in->text != NULL)
        pool_for(in->pool, n, 1, encode_pieces, in);
    for (int i = 0; i < n; i++) {
        struct piece *p = &in->piece[i];

        if (p->err.code != ERR_OK)
            return err_copy(e, &p->err);
        given += p->s.n;
        const struct cli_engram_piece out = { .text = { p->s.p, p->s.n },
                                              .token = p->token.v,
                                              .n = p->token.n,
                                              .end = p->end,
                                              .part = before + (now - before) * (double)given / (double)bytes,
                                              .line = p->line,
                                              .file = p->file,
                                              .number = p->number,
                                              .time_ns = p->time_ns,
                                              .members = { p->members.p, p->members.n } };

        if (in->sink(in->ctx, &out, e))
            return e->code;
        in->tokens += (uint64_t)p->token.n;
    }
    if (in->text != NULL)
        show_speed(in);
    return cli_interrupted() ? err_set(e, ERR_CANCEL, "interrupted") : ERR_OK;
}

enum err_code cli_engram_members(struct cli_buf *out, const json_t *o, struct err *e)
{
    json_t *others = json_shallow(o);
    char *line = NULL;
    enum err_code code;

    if (others != NULL && json_object_del(others, "text") == 0)
        line = json_line(others);
    code = line != NULL ? cli_buf_add(out, str_of(line), e) : err_nomem(e);
    free(line);
    json_decref(others);
    return code;
}

/* number: of the line that the text is, 0: it is a part of a file. o: the object that it is a member of, NULL: of none
 */
static enum err_code add_piece(struct input *in, const struct source *src, struct str s, bool end, int64_t number,
                               const json_t *o, struct err *e)
{
    struct piece *p = &in->piece[in->n];

    p->s.n = p->members.n = 0;
    p->end = end;
    p->line = in->lines;
    p->file = src->file;
    p->time_ns = src->time_ns;
    p->number = number;
    if (cli_buf_add(&p->s, s, e) || (json_object_size(o) > 1 && cli_engram_members(&p->members, o, e)))
        return e->code;
    in->n++;
    in->bytes += s.n;
    return in->n == BATCH || in->bytes >= BATCH_BYTES ? flush_pieces(in, e) : ERR_OK;
}

/* ---- documents ---- */

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Where text may be cut so that its parts have the tokens of the whole: no pre-tokenizer joins a single line feed
 * between two words with what follows. 0: not yet. */
static size_t cut_at(const char *p, size_t n)
{
    for (size_t i = PIECE_BYTES; i + 1 < n; i++)
        if (p[i] == '\n' && !is_space(p[i - 1]) && !is_space(p[i + 1]) && (unsigned char)p[i + 1] < 0x80)
            return i + 1;
    if (n < PIECE_BYTES_MAX)
        return 0;
    while (n > PIECE_BYTES_MAX - 4 && ((unsigned char)p[n - 1] & 0xc0) == 0x80)
        n--;
    return n - 1;
}

/* Takes whole lines, or pieces of text, from the beginning of *b. */
static enum err_code cut_text(struct input *in, const struct source *s, struct cli_buf *b, struct err *e)
{
    size_t at = 0, n;

    while (b->n - at > PIECE_BYTES && (n = cut_at(b->p + at, b->n - at)) > 0) {
        if (add_piece(in, s, (struct str){ b->p + at, n }, false, 0, NULL, e))
            return e->code;
        at += n;
    }
    memmove(b->p, b->p + at, b->n - at);
    b->n -= at;
    return ERR_OK;
}

static enum err_code add_line(struct input *in, const struct source *s, bool jsonl, struct str line, int64_t number,
                              struct err *e)
{
    struct str text;
    json_t *o;
    char what[300];
    enum err_code code;

    if (!jsonl)
        return add_piece(in, s, line, true, number, NULL, e);
    while (line.n > 0 && is_space(line.p[line.n - 1]))
        line.n--;
    if (line.n == 0)
        return ERR_OK;
    snprintf(what, sizeof what, "%.200s: line %lld", s->name, (long long)number);
    if (json_parse(&o, line, what, e))
        return e->code;
    code = json_get_str(o, "text", &text) ? add_piece(in, s, text, true, number, o, e)
                                          : err_set(e, ERR_FORMAT, "%s: has no text", what);
    json_decref(o);
    return code;
}

static enum err_code cut_lines(struct input *in, const struct source *s, bool jsonl, struct cli_buf *b, bool last,
                               int64_t *number, struct err *e)
{
    size_t at = 0;

    while (at < b->n) {
        const char *end = memchr(b->p + at, '\n', b->n - at);
        const size_t n = end != NULL ? (size_t)(end - b->p) + 1 - at : b->n - at;

        if (end == NULL && !last)
            break;
        const struct str line = { b->p + at, n };

        if (in->line != NULL ? in->line(in->ctx, line, e) : add_line(in, s, jsonl, line, ++*number, e))
            return e->code;
        at += n;
    }
    memmove(b->p, b->p + at, b->n - at);
    b->n -= at;
    return b->n <= LINE_BYTES_MAX ? ERR_OK
                                  : err_set(e, ERR_LIMIT, "%s: a line of more than %d bytes", s->name, LINE_BYTES_MAX);
}

static bool ends_in(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);

    return n > m && strcmp(name + (n - m), end) == 0;
}

static enum err_code read_source(struct input *in, struct source *s, struct err *e)
{
    const bool jsonl = in->o->jsonl || ends_in(s->name, ".jsonl") || ends_in(s->name, ".jsonl.zst");
    const bool lines = jsonl || in->o->lines || in->line != NULL;
    struct cli_buf b = { 0 };
    int64_t number = 0;
    bool more = true, begun = false;
    enum err_code code = ERR_OK;

    in->lines = lines;
    while (code == ERR_OK && more) {
        code = cli_interrupted() ? err_set(e, ERR_CANCEL, "interrupted") : take_bytes(s, in, &b, &more, e);
        if (!begun && (b.n >= MARK_BYTES || !more)) {
            io_unmark(b.p, &b.n);
            begun = true;
        }
        if (code == ERR_OK && begun && b.n > 0)
            code = lines ? cut_lines(in, s, jsonl, &b, !more, &number, e) : cut_text(in, s, &b, e);
    }
    if (code == ERR_OK && !lines)
        code = add_piece(in, s, (struct str){ b.p, b.n }, true, 0, NULL, e);
    cli_buf_free(&b);
    return code;
}

static enum err_code read_file(struct input *in, const char *path, struct err *e)
{
    const bool is_stdin = strcmp(path, "-") == 0;
    struct source *s = calloc(1, sizeof *s);
    struct stat st;
    enum err_code code;

    if (s == NULL)
        return err_nomem(e);
    s->name = cli_file_name(path);
    s->plain.name = s->name;
    s->fd = STDIN_FILENO;
    code = is_stdin ? ERR_OK : io_open_read(&s->fd, path, cli_interrupted, e);
    if (code == ERR_OK && !is_stdin && fstat(s->fd, &st) == 0 && S_ISREG(st.st_mode)) {
        s->file = path;
        s->time_ns = io_changed_ns(&st);
    }
    if (code == ERR_OK)
        code = read_source(in, s, e);
    if (s->fd != STDIN_FILENO)
        close(s->fd);
    ZSTD_freeDStream(s->z);
    free(s);
    return code;
}

static enum err_code read_files(struct input *in, const char *const *file, struct err *e)
{
    enum err_code code = ERR_OK;
    bool known = true;

    in->from_ms = clock_ms();
    for (int i = 0; file[i] != NULL; i++) {
        struct stat st;

        known = known && stat(file[i], &st) == 0 && S_ISREG(st.st_mode);
        in->all_bytes += known ? (uint64_t)st.st_size : 0;
    }
    in->all_bytes = known ? in->all_bytes : 0;
    for (int i = 0; code == ERR_OK && file[i] != NULL; i++)
        code = read_file(in, file[i], e);
    if (code == ERR_OK && in->line == NULL)
        code = flush_pieces(in, e);
    cli_progress_end();
    for (int i = 0; i < BATCH; i++) {
        cli_buf_free(&in->piece[i].s);
        cli_buf_free(&in->piece[i].members);
        text_tokens_free(&in->piece[i].token);
    }
    free(in);
    return code;
}

enum err_code cli_engram_read(const struct build_options *o, char *const *files, const struct text *text,
                              struct pool *pool, cli_engram_sink *sink, void *ctx, struct err *e)
{
    static const char *const standard[] = { "-", NULL };
    struct input *in = calloc(1, sizeof *in);

    if (in == NULL)
        return err_nomem(e);
    *in = (struct input){ .o = o, .text = text, .pool = pool, .sink = sink, .ctx = ctx };
    return read_files(in, *files != NULL ? (const char *const *)files : standard, e);
}

enum err_code cli_engram_lines(const struct build_options *o, const char *const *files, cli_engram_line *fn, void *ctx,
                               struct err *e)
{
    struct input *in = calloc(1, sizeof *in);

    if (in == NULL)
        return err_nomem(e);
    *in = (struct input){ .o = o, .line = fn, .ctx = ctx };
    return read_files(in, files, e);
}
