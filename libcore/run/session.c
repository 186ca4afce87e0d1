/* SPDX-License-Identifier: Apache-2.0 */
/* session.c - reading session files: every length, kind, order and checksum is looked at once, here. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arch/arch.h"
#include "base/io.h"
#include "base/memory.h"
#include "model/forward.h"
#include "model/model.h"
#include "ops/ops.h"
#include "quant/quant.h"
#include "run/session_file.h"
#include "state/state.h"

static const char magic[8] = { 'C', 'H', 'I', 'M', 'S', 'T', 'A', 'T' };
/* In version 1 keys of types of blocks are not rotated (op_kv_rotated()); the rest is the same. */
enum { VERSION = 2, PLAIN_KEYS = 1, LOCK_TRIES = 10, SEARCH_BYTES = 1 << 20 };

/* ---- numbers: little-endian ---- */

static void put_int(unsigned char *p, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        p[i] = (unsigned char)(v >> 8 * i);
}

static uint64_t get_int(const unsigned char *p, int bytes)
{
    uint64_t v = 0;

    for (int i = 0; i < bytes; i++)
        v |= (uint64_t)p[i] << 8 * i;
    return v;
}

void run_session_header_put(unsigned char out[HEADER_BYTES], const struct session_header *h)
{
    memset(out, 0, HEADER_BYTES);
    memcpy(out, magic, sizeof magic);
    put_int(out + 8, VERSION, 4);
    put_int(out + 12, HEADER_BYTES, 4);
    put_int(out + 16, h->model, 8);
    put_int(out + 24, h->tokenizer, 8);
    put_int(out + 32, h->type_k, 4);
    put_int(out + 36, h->type_v, 4);
    put_int(out + 40, OP_KV_PAGE, 4);
    put_int(out + 44, h->n_layer, 4);
    put_int(out + 48, h->kv_bytes, 8);
    put_int(out + 56, h->rec_bytes, 8);
    put_int(out + 64, h->shapes, 8);
    memcpy(out + 72, h->arch, ARCH_BYTES);
    memcpy(out + 72 + ARCH_BYTES, h->name, NAME_BYTES);
    put_int(out + 72 + ARCH_BYTES + NAME_BYTES, h->n_meta, 4);
    put_int(out + HEADER_BYTES - 8, io_hash(0, out, HEADER_BYTES - 8), 8);
}

void run_session_record_put(unsigned char out[RECORD_BYTES], struct record *r)
{
    put_int(out, r->kind, 4);
    put_int(out + 4, r->packed, 4);
    put_int(out + 8, r->at, 8);
    put_int(out + 16, r->n, 8);
    put_int(out + 24, r->decoded, 8);
    put_int(out + 32, r->stored, 8);
    put_int(out + 40, r->sum, 8);
    put_int(out + 48, r->prev, 8);
    r->check = io_hash(0, out, RECORD_BYTES - 8);
    put_int(out + RECORD_BYTES - 8, r->check, 8);
}

/* False: these are not the bytes of a record. */
static bool record_get(struct record *r, const unsigned char in[RECORD_BYTES], uint64_t offset)
{
    *r = (struct record){ (uint32_t)get_int(in, 4), in[4] != 0,           get_int(in + 8, 8),  get_int(in + 16, 8),
                          get_int(in + 24, 8),      get_int(in + 32, 8),  get_int(in + 40, 8), get_int(in + 48, 8),
                          get_int(in + 56, 8),      offset + RECORD_BYTES };
    return r->check == io_hash(0, in, RECORD_BYTES - 8) && get_int(in + 4, 4) <= 1;
}

/* ---- the file ---- */

enum err_code run_session_read(const struct run_session *s, uint64_t at, void *to, size_t n, struct err *e)
{
    unsigned char *p = to;

    while (n > 0) {
        ssize_t got = pread(s->fd, p, n < 1 << 30 ? n : 1 << 30, (off_t)at);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_errno(e, ERR_IO, errno, "%s: cannot read", s->path);
        if (got == 0)
            return err_set(e, ERR_FORMAT, "%s: was cut while it was in use", s->path);
        p += got;
        at += (uint64_t)got;
        n -= (size_t)got;
    }
    return ERR_OK;
}

static enum err_code file_size(const struct run_session *s, uint64_t *size, struct err *e)
{
    struct stat st;

    if (fstat(s->fd, &st) != 0)
        return err_errno(e, ERR_IO, errno, "%s: cannot stat", s->path);
    if (!S_ISREG(st.st_mode))
        return err_set(e, ERR_IO, "%s: is not a regular file", s->path);
    *size = (uint64_t)st.st_size;
    return ERR_OK;
}

static enum err_code bad_offset(const struct run_session *s, uint64_t at, const char *what, struct err *e)
{
    return err_set(e, ERR_FORMAT, "%s: offset %llu: %s", s->path, (unsigned long long)at, what);
}

static enum err_code read_header(struct run_session *s, uint64_t size, struct err *e)
{
    unsigned char in[HEADER_BYTES];
    struct session_header *h = &s->h;

    if (size < sizeof magic)
        return err_set(e, ERR_FORMAT, "%s: is not a session file", s->path);
    if (run_session_read(s, 0, in, size < HEADER_BYTES ? sizeof magic : HEADER_BYTES, e) != ERR_OK)
        return e->code;
    if (memcmp(in, magic, sizeof magic) != 0)
        return err_set(e, ERR_FORMAT, "%s: is not a session file", s->path);
    if (size < HEADER_BYTES)
        return bad_offset(s, 0, "the header is cut", e);
    if (get_int(in + 8, 4) != VERSION && get_int(in + 8, 4) != PLAIN_KEYS)
        return err_set(e, ERR_UNSUPPORTED, "%s: a session of version %lu, this program knows %d", s->path,
                       (unsigned long)get_int(in + 8, 4), VERSION);
    if (get_int(in + HEADER_BYTES - 8, 8) != io_hash(0, in, HEADER_BYTES - 8) || get_int(in + 12, 4) != HEADER_BYTES)
        return bad_offset(s, 0, "the header's checksum is wrong", e);
    if (get_int(in + 40, 4) != OP_KV_PAGE)
        return bad_offset(s, 40, "another number of positions in a page", e);
    *h = (struct session_header){ get_int(in + 16, 8),
                                  get_int(in + 24, 8),
                                  (uint32_t)get_int(in + 32, 4),
                                  (uint32_t)get_int(in + 36, 4),
                                  (uint32_t)get_int(in + 44, 4),
                                  get_int(in + 48, 8),
                                  get_int(in + 56, 8),
                                  get_int(in + 64, 8),
                                  (uint32_t)get_int(in + 72 + ARCH_BYTES + NAME_BYTES, 4),
                                  "",
                                  "" };
    memcpy(h->arch, in + 72, ARCH_BYTES - 1);
    memcpy(h->name, in + 72 + ARCH_BYTES, NAME_BYTES - 1);
    int row = quant_find_id(h->type_k);
    if (get_int(in + 8, 4) == PLAIN_KEYS && h->kv_bytes > 0 && row >= 0 &&
        op_kv_rotated(&(struct op_kv){ .type_k = row }))
        return err_set(e, ERR_UNSUPPORTED, "%s: a session of version %d, which stores keys of type %s in another way",
                       s->path, PLAIN_KEYS, quant_types[row]->name);
    if (h->kv_bytes > UINT64_MAX / 2 / OP_KV_PAGE)
        return bad_offset(s, 48, "impossible bytes of a position", e);
    s->check = get_int(in + HEADER_BYTES - 8, 8);
    return ERR_OK;
}

/* ---- records ---- */

static enum err_code add_record(struct records *a, const struct record *r, struct err *e)
{
    if (memory_room(&a->v, &a->cap, a->n + 1, sizeof *a->v, e))
        return e->code;
    a->v[a->n++] = *r;
    return ERR_OK;
}

/* Records since the last commit. */
struct group {
    struct records kv, snap;
    struct record tokens, blob;
    bool has_tokens, has_blob;
    uint64_t n;        /* records */
    uint64_t from, to; /* tokens from `from` on are replaced; then there are `to` */
    uint64_t kv_to;    /* KV rows so far */
};

static void begin_group(const struct run_session *s, struct group *g)
{
    g->kv.n = g->snap.n = 0;
    g->has_tokens = g->has_blob = false;
    g->n = 0;
    g->from = g->to = g->kv_to = (uint64_t)s->n;
}

static enum err_code take_tokens(const struct run_session *s, struct group *g, const struct record *r, struct err *e)
{
    if (g->n > 0 || r->at > (uint64_t)s->n || r->n > ARCH_CTX_MAX - r->at || r->packed || r->stored != 4 * r->n)
        return bad_offset(s, r->offset, "tokens that do not go on from those before", e);
    g->tokens = *r;
    g->has_tokens = true;
    g->from = g->kv_to = r->at;
    g->to = r->at + r->n;
    return ERR_OK;
}

static enum err_code take_kv(const struct run_session *s, struct group *g, const struct record *r, struct err *e)
{
    if (s->h.kv_bytes == 0 || r->at != g->kv_to || r->n < 1 || r->n > OP_KV_PAGE - r->at % OP_KV_PAGE ||
        r->n > g->to - r->at || r->decoded != r->n * s->h.kv_bytes)
        return bad_offset(s, r->offset, "KV rows that do not go on from those before", e);
    g->kv_to += r->n;
    return add_record(&g->kv, r, e);
}

static enum err_code take_snapshot(const struct run_session *s, struct group *g, const struct record *r, struct err *e)
{
    if (s->h.rec_bytes == 0 || r->at < g->from || r->at > g->to || r->at == 0 || r->decoded != s->h.rec_bytes ||
        (g->snap.n > 0 && r->at <= g->snap.v[g->snap.n - 1].at))
        return bad_offset(s, r->offset, "a snapshot of no position in place", e);
    return add_record(&g->snap, r, e);
}

/* A snapshot at the last position: in the group, or in the file before it. */
static bool closed(const struct run_session *s, const struct group *g)
{
    if (s->h.rec_bytes == 0 || g->to == 0)
        return true;
    if (g->snap.n > 0)
        return g->snap.v[g->snap.n - 1].at == g->to;
    for (size_t i = s->snap.n; i > 0 && s->snap.v[i - 1].at >= g->to; i--)
        if (s->snap.v[i - 1].at == g->to)
            return true;
    return false;
}

static enum err_code read_checked(const struct run_session *s, const struct record *r, void *to, struct err *e)
{
    if (run_session_read(s, r->offset, to, (size_t)r->stored, e) != ERR_OK)
        return e->code;
    if (io_hash(0, to, (size_t)r->stored) != r->sum)
        return bad_offset(s, r->offset, "the checksum is wrong", e);
    return ERR_OK;
}

static enum err_code apply_tokens(struct run_session *s, const struct group *g, struct err *e)
{
    while (s->kv.n > 0 && s->kv.v[s->kv.n - 1].at >= g->from)
        s->kv.n--;
    while (s->snap.n > 0 && s->snap.v[s->snap.n - 1].at > g->from)
        s->snap.n--;
    if (memory_room(&s->token, &s->cap, (size_t)g->to, sizeof *s->token, e))
        return e->code;
    s->n = (int64_t)g->to;
    return g->tokens.n == 0 ? ERR_OK : read_checked(s, &g->tokens, s->token + g->from, e);
}

static enum err_code take_commit(struct run_session *s, struct group *g, const struct record *r, struct err *e)
{
    if (r->at != g->to || r->n != g->n || r->stored != 0 || (s->h.kv_bytes > 0 && g->kv_to != g->to) || !closed(s, g))
        return bad_offset(s, r->offset, "an end of something that is not complete", e);
    if (g->has_tokens && apply_tokens(s, g, e) != ERR_OK)
        return e->code;
    for (size_t i = 0; i < g->kv.n; i++)
        if (add_record(&s->kv, &g->kv.v[i], e) != ERR_OK)
            return e->code;
    if (g->snap.n > 0 && s->snap.n > 0 && s->snap.v[s->snap.n - 1].at >= g->snap.v[0].at)
        s->snap.n--;
    for (size_t i = 0; i < g->snap.n; i++)
        if (add_record(&s->snap, &g->snap.v[i], e) != ERR_OK)
            return e->code;
    if (g->has_blob) {
        s->n_blob = (size_t)g->blob.n;
        if (read_checked(s, &g->blob, s->blob, e) != ERR_OK)
            return e->code;
    }
    s->end = r->offset;
    s->check = r->check;
    return ERR_OK;
}

static enum err_code take_record(struct run_session *s, struct group *g, const struct record *r, struct err *e)
{
    enum err_code code = ERR_OK;

    if (r->packed ? r->stored > r->decoded : r->stored != r->decoded)
        return bad_offset(s, r->offset, "impossible lengths", e);
    switch (r->kind) {
    case RECORD_TOKENS:
        code = take_tokens(s, g, r, e);
        break;
    case RECORD_KV:
        code = take_kv(s, g, r, e);
        break;
    case RECORD_SNAPSHOT:
        code = take_snapshot(s, g, r, e);
        break;
    case RECORD_BLOB:
        if (g->has_blob || r->packed || r->n != r->stored || r->n > RUN_SESSION_BLOB_MAX)
            return bad_offset(s, r->offset, "impossible lengths", e);
        g->has_blob = true;
        g->blob = *r;
        break;
    case RECORD_COMMIT:
        code = take_commit(s, g, r, e);
        begin_group(s, g);
        return code;
    default:
        return bad_offset(s, r->offset, "a record of an unknown kind", e);
    }
    g->n++;
    return code;
}

/* A commit that is intact and lies beyond the break at `at`: everything before it was on disk when it was written. */
static enum err_code find_commit(const struct run_session *s, uint64_t at, uint64_t size, bool *found, struct err *e)
{
    static const unsigned char kind[8] = { RECORD_COMMIT };
    unsigned char *buf = malloc(SEARCH_BYTES + RECORD_BYTES);
    enum err_code code = buf != NULL ? ERR_OK : err_nomem(e);

    *found = false;
    for (; code == ERR_OK && !*found && size - at >= RECORD_BYTES; at += SEARCH_BYTES) {
        size_t n = size - at < SEARCH_BYTES + RECORD_BYTES ? (size_t)(size - at) : SEARCH_BYTES + RECORD_BYTES;
        struct record r;

        code = run_session_read(s, at, buf, n, e);
        for (size_t i = 0; code == ERR_OK && !*found && i + RECORD_BYTES <= n; i++)
            *found = memcmp(buf + i, kind, sizeof kind) == 0 && record_get(&r, buf + i, at + i) && r.stored == 0;
        if (size - at <= SEARCH_BYTES)
            break;
    }
    free(buf);
    return code;
}

/* Whether these bytes, the last of the file, are the commit of the group but for a few. Of what a killed writer or
 * lost power leaves, the end is missing or zeros. */
static bool spoilt_commit(const struct group *g, const unsigned char in[RECORD_BYTES], uint64_t prev)
{
    struct record r = { .kind = RECORD_COMMIT, .at = g->to, .n = g->n, .sum = io_hash(0, "", 0), .prev = prev };
    unsigned char want[RECORD_BYTES];
    int wrong = 0;

    run_session_record_put(want, &r);
    for (int i = 0; i < RECORD_BYTES; i++)
        wrong += in[i] != want[i];
    return wrong <= 8 && get_int(in + RECORD_BYTES - 8, 8) != 0;
}

/* The chain breaks at `at`: the end of a save that was not completed, which does not count, or damage. */
static enum err_code check_break(const struct run_session *s, const struct group *g,
                                 const unsigned char in[RECORD_BYTES], uint64_t at, uint64_t size, uint64_t prev,
                                 struct err *e)
{
    bool damaged = size - at == RECORD_BYTES && spoilt_commit(g, in, prev);

    if (!damaged && find_commit(s, at, size, &damaged, e))
        return e->code;
    if (damaged)
        return bad_offset(s, at, "damaged: what was saved after it is intact, the file stays as it is", e);
    return s->end > 0 ? ERR_OK : bad_offset(s, at, "the session breaks off", e);
}

static enum err_code scan_records(struct run_session *s, uint64_t size, struct group *g, struct err *e)
{
    uint64_t at = HEADER_BYTES, prev = s->check;

    begin_group(s, g);
    /* What does not continue the chain was not written to its end, or is damaged. */
    while (size - at >= RECORD_BYTES) {
        unsigned char in[RECORD_BYTES];
        struct record r;

        if (run_session_read(s, at, in, sizeof in, e) != ERR_OK)
            return e->code;
        if (!record_get(&r, in, at))
            return check_break(s, g, in, at, size, prev, e);
        if (r.prev != prev || r.stored > size - r.offset) /* of another file, or cut */
            break;
        if (take_record(s, g, &r, e) != ERR_OK)
            return e->code;
        at = r.offset + r.stored;
        prev = r.check;
    }
    return s->end > 0 ? ERR_OK : bad_offset(s, at, "the session breaks off", e);
}

static void forget_file(struct run_session *s)
{
    s->n = 0;
    s->kv.n = s->snap.n = s->n_blob = 0;
    s->end = 0;
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
}

static enum err_code scan(struct run_session *s, struct err *e)
{
    const struct session_header was = s->h;
    struct group g = { .n = 0 };
    uint64_t size = 0, rows = 0;
    enum err_code code;

    s->n = 0;
    s->kv.n = s->snap.n = s->n_blob = 0;
    s->end = 0;
    if (file_size(s, &size, e) || read_header(s, size, e))
        return e->code;
    if (s->attached && (s->h.kv_bytes != was.kv_bytes || s->h.rec_bytes != was.rec_bytes))
        return err_set(e, ERR_FORMAT, "%s: was replaced while it was in use", s->path);
    code = scan_records(s, size, &g, e);
    free(g.kv.v);
    free(g.snap.v);
    for (size_t i = 0; i < s->kv.n; i++)
        rows += s->kv.v[i].n;
    if (code == ERR_OK && rows > run_session_rows_max(s->n))
        return bad_offset(s, s->end, "more KV rows than the tokens need", e);
    s->stat.file_bytes = (int64_t)s->end;
    s->stat.torn_bytes = (int64_t)(size - s->end);
    s->stat.snapshots = (int)s->snap.n;
    return code;
}

enum err_code run_session_scan(struct run_session *s, struct err *e)
{
    const struct session_header was = s->h;
    enum err_code code = scan(s, e);

    if (s->attached)
        s->h = was; /* what the buffers were made for */
    if (code != ERR_OK)
        forget_file(s);
    return code;
}

uint64_t run_session_live(const struct run_session *s, size_t kv)
{
    const struct record *r = &s->kv.v[kv];
    uint64_t end = kv + 1 < s->kv.n ? s->kv.v[kv + 1].at : (uint64_t)s->n;

    return (end < r->at + r->n ? end : r->at + r->n) - r->at;
}

uint64_t run_session_rows_max(int64_t n)
{
    return 4 * ((uint64_t)n + OP_KV_PAGE);
}

/* ---- open ---- */

static enum err_code try_lock(struct run_session *s, bool *same, struct err *e)
{
    struct stat st, at_path;

    s->fd = open(s->path, (s->shared ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NONBLOCK);
    if (s->fd < 0)
        return err_errno(e, ERR_IO, errno, "%s: cannot open", s->path);
    /* Where there are no locks, sessions work without. */
    if (flock(s->fd, (s->shared ? LOCK_SH : LOCK_EX) | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return err_set(e, ERR_IO, "%s: another process has this session open", s->path);
    *same = fstat(s->fd, &st) != 0 || stat(s->path, &at_path) != 0 ||
            (st.st_ino == at_path.st_ino && st.st_dev == at_path.st_dev);
    return ERR_OK;
}

enum session_path run_session_path(const struct run_session *s)
{
    struct stat st, at_path;

    if (stat(s->path, &at_path) != 0)
        return errno == ENOENT ? PATH_NONE : PATH_OTHER;
    if (s->fd < 0)
        return S_ISREG(at_path.st_mode) && at_path.st_size == 0 ? PATH_SAME : PATH_OTHER;
    return fstat(s->fd, &st) == 0 && st.st_ino == at_path.st_ino && st.st_dev == at_path.st_dev ? PATH_SAME
                                                                                                : PATH_OTHER;
}

enum err_code run_session_reopen(struct run_session *s, struct err *e)
{
    enum err_code code = ERR_OK;
    bool same = false;

    /* Between open and lock another process may have put a new file in place. */
    for (int i = 0; i < LOCK_TRIES && !same && code == ERR_OK; i++) {
        forget_file(s);
        code = try_lock(s, &same, e);
    }
    if (code != ERR_OK) {
        forget_file(s);
        return code;
    }
    return run_session_scan(s, e);
}

/* A file that is not there: can it be made? */
static enum err_code try_create(const char *path, struct err *e)
{
    struct io_out *o;

    if (io_out_open(&o, path, e) != ERR_OK)
        return e->code;
    io_out_abort(o);
    return ERR_OK;
}

static enum err_code open_session(struct run_session **out, const char *path, bool shared, struct err *e)
{
    struct run_session *s = calloc(1, sizeof *s);
    struct stat st;
    enum err_code code;

    if (s == NULL)
        return err_nomem(e);
    s->fd = -1;
    s->shared = shared;
    s->path = strdup(path);
    if (s->path == NULL)
        code = err_nomem(e);
    else if (stat(path, &st) != 0)
        code = errno == ENOENT && !shared ? try_create(path, e) : err_errno(e, ERR_IO, errno, "%s: cannot open", path);
    else if (!S_ISREG(st.st_mode))
        code = err_set(e, ERR_IO, S_ISDIR(st.st_mode) ? "%s: is a directory" : "%s: is not a regular file", path);
    else if (st.st_size > 0)
        code = run_session_reopen(s, e);
    else if (shared)
        code = ERR_OK;
    else /* an empty file is a session that has not begun */
        code = try_create(path, e);
    if (code != ERR_OK) {
        run_session_close(s);
        return code;
    }
    *out = s;
    return ERR_OK;
}

enum err_code run_session_open(struct run_session **out, const char *path, struct err *e)
{
    return open_session(out, path, false, e);
}

enum err_code run_session_open_shared(struct run_session **out, const char *path, struct err *e)
{
    return open_session(out, path, true, e);
}

void run_session_close(struct run_session *s)
{
    if (s == NULL)
        return;
    if (s->fd >= 0)
        close(s->fd);
    ZSTD_freeCCtx(s->cctx);
    ZSTD_freeDCtx(s->dctx);
    free(s->raw);
    free(s->packed);
    free(s->kv.v);
    free(s->snap.v);
    free(s->token);
    free(s->path);
    free(s);
}

const int32_t *run_session_tokens(const struct run_session *s, int64_t *n)
{
    *n = s->n;
    return s->token;
}

const void *run_session_blob(const struct run_session *s, size_t *n)
{
    *n = s->n_blob;
    return s->blob;
}

struct run_session_id run_session_of(const struct run_session *s)
{
    return (struct run_session_id){ .tokenizer = s->h.tokenizer, .name = s->fd >= 0 ? s->h.name : NULL };
}

static const char *type_name(uint32_t id)
{
    int row = quant_find_id(id);

    return row < 0 ? "another type" : quant_types[row]->name;
}

void run_session_kv(const struct run_session *s, const char **k, const char **v)
{
    bool kept = s->fd >= 0 && s->h.kv_bytes > 0;

    *k = kept ? type_name(s->h.type_k) : NULL;
    *v = kept ? type_name(s->h.type_v) : NULL;
}

struct run_session_stat run_session_stat(const struct run_session *s)
{
    return s->stat;
}

/* ---- attach ---- */

static uint64_t shapes_of(const struct run *r)
{
    const struct arch_plan *p = model_plan(r->m);
    uint64_t h = 0;

    for (int i = 0; i < p->n_layer; i++) {
        unsigned char v[16];

        put_int(v, state_kv(r->state, i)->page_bytes / OP_KV_PAGE, 8);
        put_int(v + 8,
                (uint64_t)(arch_plan_conv_floats(p, i) + arch_plan_rec_floats(p, i) + arch_plan_table_floats(p, i)) *
                    sizeof(float),
                8);
        h = io_hash(h, v, sizeof v);
    }
    return h;
}

static void copy_text(char *to, size_t room, const char *from)
{
    size_t n = strlen(from);

    n = n < room - 1 ? n : room - 1;
    memcpy(to, from, n);
    memset(to + n, 0, room - n);
}

static enum err_code check_same(const struct run_session *s, const struct session_header *h, struct err *e)
{
    const struct session_header *f = &s->h;

    if (f->model != h->model)
        return err_set(e, ERR_FORMAT,
                       "%s: a session of the model '%s' (%s, fingerprint %016llx), not of '%s' (%s, %016llx)", s->path,
                       f->name, f->arch, (unsigned long long)f->model, h->name, h->arch, (unsigned long long)h->model);
    if (f->tokenizer != h->tokenizer)
        return err_set(e, ERR_FORMAT, "%s: a session of the model '%s' with another tokenizer than '%s' has", s->path,
                       f->name, h->name);
    if (f->kv_bytes > 0 && (f->type_k != h->type_k || f->type_v != h->type_v))
        return err_set(e, ERR_ARG, "%s: a session with keys and values of types %s,%s, not %s,%s", s->path,
                       type_name(f->type_k), type_name(f->type_v), type_name(h->type_k), type_name(h->type_v));
    if (f->kv_bytes != h->kv_bytes || f->rec_bytes != h->rec_bytes || f->n_layer != h->n_layer ||
        f->shapes != h->shapes || f->n_meta != h->n_meta)
        return err_set(e, ERR_FORMAT, "%s: the shapes of the layers are not those of the model", s->path);
    return ERR_OK;
}

enum err_code run_session_attach(struct run_session *s, struct run *r, const struct run_session_id *id, struct err *e)
{
    const struct model_info *i = model_info(r->m);
    struct session_header h = {
        .model = model_fingerprint(r->m),
        .tokenizer = id->tokenizer,
        .type_k = quant_types[r->type_k]->id,
        .type_v = quant_types[r->type_v]->id,
        .n_layer = (uint32_t)i->n_layer,
        .kv_bytes = state_kv_bytes(r->state),
        .rec_bytes = state_rec_bytes(r->state),
        .shapes = shapes_of(r),
        .n_meta = (uint32_t)model_plan(r->m)->n_meta,
    };

    if (id->adapters != 0) /* what is computed is another model */
        h.model = io_hash(h.model, &id->adapters, sizeof id->adapters);
    copy_text(h.arch, sizeof h.arch, i->arch);
    copy_text(h.name, sizeof h.name, id->name == NULL ? "" : id->name);
    if (i->n_used != i->n_used_trained) { /* likewise, and its name says so */
        const size_t n = strlen(h.name);

        (void)snprintf(h.name + n, sizeof h.name - n, ", %d expert%s for each token", i->n_used,
                       i->n_used == 1 ? "" : "s");
    }
    if (s->fd >= 0 && check_same(s, &h, e) != ERR_OK)
        return e->code;
    s->h = h;
    s->adapters = id->adapters;
    s->raw_bytes = (size_t)(h.kv_bytes * OP_KV_PAGE > h.rec_bytes ? h.kv_bytes * OP_KV_PAGE : h.rec_bytes);
    s->packed_bytes = ZSTD_compressBound(s->raw_bytes);
    s->raw = malloc(s->raw_bytes + 1);
    s->packed = malloc(s->packed_bytes + 1);
    s->cctx = ZSTD_createCCtx();
    s->dctx = ZSTD_createDCtx();
    if (s->raw == NULL || s->packed == NULL || s->cctx == NULL || s->dctx == NULL)
        return err_set(e, ERR_NOMEM, "out of memory: %zu MiB to read and write sessions",
                       (s->raw_bytes + s->packed_bytes) >> 20);
    s->attached = true;
    return ERR_OK;
}

/* ---- load ---- */

/* A record's bytes into s->raw. */
static enum err_code decode_record(struct run_session *s, const struct record *r, struct err *e)
{
    size_t n;

    if (!r->packed)
        return read_checked(s, r, s->raw, e);
    if (read_checked(s, r, s->packed, e) != ERR_OK)
        return e->code;
    n = ZSTD_decompressDCtx(s->dctx, s->raw, (size_t)r->decoded, s->packed, (size_t)r->stored);
    if (ZSTD_isError(n) || n != r->decoded)
        return bad_offset(s, r->offset, "cannot be decompressed", e);
    return ERR_OK;
}

/* The place up to n from which a run can continue. */
static int64_t reachable(const struct run_session *s, int64_t n, const struct record **snap)
{
    n = n < s->n ? n : s->n;
    *snap = NULL;
    if (s->h.rec_bytes == 0)
        return n;
    for (size_t i = s->snap.n; i > 0; i--)
        if (s->snap.v[i - 1].at <= (uint64_t)n) {
            *snap = &s->snap.v[i - 1];
            return (int64_t)(*snap)->at;
        }
    return 0;
}

static enum err_code load_state(struct run_session *s, struct run *r, int seq, int64_t n, struct err *e)
{
    const struct record *snap;
    int64_t pos = reachable(s, n, &snap);

    if (pos > r->ctx)
        return err_set(e, ERR_LIMIT, "%s: the session has %lld tokens, the context %lld", s->path, (long long)pos,
                       (long long)r->ctx);
    for (int64_t i = 0; i < pos; i++)
        if (s->token[i] < 0 || s->token[i] >= r->n_vocab)
            return err_set(e, ERR_FORMAT, "%s: token %lld is %ld, the model has %ld", s->path, (long long)i,
                           (long)s->token[i], (long)r->n_vocab);
    if (run_kv_need(r, seq, pos) > run_kv_left(r))
        return err_set(e, ERR_LIMIT, "%s: the session has %lld tokens, %lld KV rows are left", s->path, (long long)pos,
                       (long long)run_kv_left(r));
    for (size_t i = 0; i < s->kv.n && s->kv.v[i].at < (uint64_t)pos; i++) {
        if (decode_record(s, &s->kv.v[i], e) != ERR_OK)
            return e->code;
        state_kv_write(r->state, seq, (int64_t)s->kv.v[i].at, (int64_t)s->kv.v[i].n, s->raw);
    }
    if (snap != NULL && decode_record(s, snap, e) != ERR_OK)
        return e->code;
    if (pos == 0)
        return ERR_OK;
    state_rec_write(r->state, seq, pos, s->raw);
    run_cache_loaded(r, seq, s->token);
    return ERR_OK;
}

enum err_code run_session_load(struct run_session *s, struct run *r, int seq, int64_t n, struct err *e)
{
    if (!s->attached || seq < 0 || seq >= r->n_seq || n < 0)
        return err_set(e, ERR_ARG, "%lld tokens of a session for sequence %d", (long long)n, seq);
    if (run_adapt_hash(r, seq) != s->adapters)
        return err_set(e, ERR_ARG, "%s: sequence %d has other adapters", s->path, seq);
    run_clear(r, seq);
    e->code = ERR_OK;
    if (run_meta_rows(r, seq, e) != ERR_OK || load_state(s, r, seq, n, e) != ERR_OK) {
        state_clear(r->state, seq);
        return e->code;
    }
    return ERR_OK;
}

enum err_code run_session_match(struct run_session *s, struct run *r, int seq, const int32_t *tokens, int64_t n,
                                struct run_match *out, struct err *e)
{
    struct run_match m;

    if (n < 1)
        return err_set(e, ERR_ARG, "a match of %lld tokens", (long long)n);
    m = run_cache_compare(s->token, s->n, tokens, n);
    if (run_session_load(s, r, seq, m.common < n ? m.common : n - 1, e) != ERR_OK)
        return e->code;
    m.kept = run_pos(r, seq);
    *out = m;
    return ERR_OK;
}
