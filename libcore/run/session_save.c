/* SPDX-License-Identifier: Apache-2.0 */
/* session_save.c - writing session files: appending to the old one, or a new file in its place. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "model/forward.h"
#include "ops/ops.h"
#include "run/session_file.h"
#include "state/state.h"

enum { LEVEL = 1, DEAD_MIN = 1 << 20 }; /* zstd; bytes that are not worth a new file */

/* What is being written, and where. */
struct writer {
    struct run_session *s;
    struct io_out *out; /* NULL: at the end of the file */
    uint64_t prev;      /* name of the record before */
    uint64_t n;         /* records since the last commit */
    uint64_t bytes;
};

/* What a save has to say. */
struct saving {
    struct run *r;
    int seq;
    int64_t from, to; /* positions that are not in the file */
    const void *blob;
    size_t n_blob;
};

static enum err_code put_bytes(struct writer *w, const void *data, size_t n, struct err *e)
{
    if (w->out != NULL) {
        if (io_out_write(w->out, data, n, e) != ERR_OK)
            return e->code;
    } else if (io_write_all(w->s->fd, data, n, e) != ERR_OK) {
        return err_wrap(e, "%s", w->s->path);
    }
    w->bytes += n;
    return ERR_OK;
}

static enum err_code put_record(struct writer *w, struct record *r, const void *stored, struct err *e)
{
    unsigned char head[RECORD_BYTES];

    r->prev = w->prev;
    run_session_record_put(head, r);
    if (put_bytes(w, head, sizeof head, e) || (r->stored > 0 && put_bytes(w, stored, (size_t)r->stored, e)))
        return e->code;
    w->prev = r->check;
    w->n++;
    return ERR_OK;
}

/* n bytes as they are, or compressed if that is shorter. */
static enum err_code put_data(struct writer *w, struct record *r, const void *data, size_t n, bool pack, struct err *e)
{
    struct run_session *s = w->s;
    size_t packed = pack ? ZSTD_compressCCtx(s->cctx, s->packed, s->packed_bytes, data, n, LEVEL) : n;

    r->packed = pack && !ZSTD_isError(packed) && packed < n;
    r->decoded = n;
    r->stored = r->packed ? packed : n;
    if (r->packed)
        data = s->packed;
    r->sum = io_hash(0, data, (size_t)r->stored);
    return put_record(w, r, data, e);
}

static enum err_code put_tokens(struct writer *w, const struct saving *v, struct err *e)
{
    struct record r = { .kind = RECORD_TOKENS, .at = (uint64_t)v->from, .n = (uint64_t)(v->to - v->from) };

    return put_data(w, &r, run_tokens(v->r, v->seq) + v->from, 4 * (size_t)r.n, false, e);
}

static enum err_code put_kv(struct writer *w, const struct saving *v, struct err *e)
{
    for (int64_t at = v->from, n; at < v->to && w->s->h.kv_bytes > 0; at += n) {
        n = OP_KV_PAGE - at % OP_KV_PAGE;
        n = n < v->to - at ? n : v->to - at;
        struct record r = { .kind = RECORD_KV, .at = (uint64_t)at, .n = (uint64_t)n };

        state_kv_read(v->r->state, v->seq, at, n, w->s->raw);
        if (put_data(w, &r, w->s->raw, (size_t)n * w->s->h.kv_bytes, true, e) != ERR_OK)
            return e->code;
    }
    return ERR_OK;
}

static enum err_code put_snapshot(struct writer *w, int64_t at, const void *data, struct err *e)
{
    struct record r = { .kind = RECORD_SNAPSHOT, .at = (uint64_t)at };

    return put_data(w, &r, data, w->s->h.rec_bytes, true, e);
}

/* At the newest mark beyond `after` that is not in the file, and now. */
static enum err_code put_snapshots(struct writer *w, const struct saving *v, int64_t after, struct err *e)
{
    int64_t at = 0;
    const void *mark;

    if (w->s->h.rec_bytes == 0 || v->to <= after)
        return ERR_OK;
    mark = w->s->ends ? NULL : run_cache_mark(v->r, v->seq, after < v->from ? v->from - 1 : after, v->to, &at);
    if (mark != NULL && put_snapshot(w, at, mark, e) != ERR_OK)
        return e->code;
    if (model_commit(v->r->m, v->r->state, v->seq, e) != ERR_OK)
        return e->code;
    state_rec_read(v->r->state, v->seq, w->s->raw);
    return put_snapshot(w, v->to, w->s->raw, e);
}

static enum err_code put_blob(struct writer *w, const struct saving *v, struct err *e)
{
    struct record r = { .kind = RECORD_BLOB, .n = v->n_blob };

    if (v->n_blob == 0 && (w->out != NULL || w->s->n_blob == 0))
        return ERR_OK;
    return put_data(w, &r, v->blob == NULL ? "" : v->blob, v->n_blob, false, e);
}

static enum err_code put_commit(struct writer *w, const struct saving *v, struct err *e)
{
    struct record r = { .kind = RECORD_COMMIT, .at = (uint64_t)v->to, .n = w->n, .sum = io_hash(0, "", 0) };

    return put_record(w, &r, "", e);
}

/* ---- a new file ---- */

/* Snapshots that are of use. */
static size_t snaps_kept(const struct run_session *s)
{
    return s->ends ? 2 : SNAPS_KEPT;
}

/* Snapshots of the old file that the new one keeps: of those not beyond `to`, every second one is left out
 * until there is room for those of this save. */
static bool keeps(const struct run_session *s, size_t i, size_t n)
{
    const size_t new = s->ends ? 1 : 2;
    size_t step = 1;

    while ((n + step - 1) / step > snaps_kept(s) - new)
        step *= 2;
    return (n - 1 - i) % step == 0;
}

static size_t snaps_to(const struct run_session *s, int64_t to)
{
    size_t n = 0;

    while (n < s->snap.n && s->snap.v[n].at <= (uint64_t)to)
        n++;
    return n;
}

static enum err_code copy_snapshots(struct writer *w, int64_t to, int64_t *last, struct err *e)
{
    const struct run_session *s = w->s;
    size_t n = snaps_to(s, to);

    *last = 0;
    for (size_t i = 0; i < n; i++) {
        struct record r = s->snap.v[i];

        if (!keeps(s, i, n))
            continue;
        if (run_session_read(s, r.offset, s->packed, (size_t)r.stored, e) != ERR_OK)
            return e->code;
        if (io_hash(0, s->packed, (size_t)r.stored) != r.sum)
            continue; /* spoilt: the new file does without it */
        *last = (int64_t)r.at;
        if (put_record(w, &r, s->packed, e) != ERR_OK)
            return e->code;
    }
    return ERR_OK;
}

static enum err_code put_file(struct writer *w, struct saving v, struct err *e)
{
    unsigned char head[HEADER_BYTES];
    int64_t common = v.from, last = 0;

    v.from = 0;
    run_session_header_put(head, &w->s->h);
    w->prev = io_hash(0, head, HEADER_BYTES - 8);
    if (put_bytes(w, head, sizeof head, e) || put_tokens(w, &v, e) || put_kv(w, &v, e) ||
        copy_snapshots(w, common, &last, e) || put_snapshots(w, &v, last, e) || put_blob(w, &v, e))
        return e->code;
    return put_commit(w, &v, e);
}

static enum err_code rewrite(struct run_session *s, struct io_out *out, const struct saving *v, bool replaces,
                             struct err *e)
{
    struct writer w = { .s = s, .out = out };

    if (put_file(&w, *v, e) != ERR_OK) {
        io_out_abort(out);
        return e->code;
    }
    if (replaces && run_session_path(s) != PATH_SAME) {
        io_out_abort(out);
        return err_set(e, ERR_IO, "%s: was replaced while it was in use; this turn is not saved", s->path);
    }
    if ((replaces ? io_out_commit(out, e) : io_out_commit_new(out, e)) != ERR_OK)
        return e->code;
    s->stat.written_bytes = (int64_t)w.bytes;
    s->stat.rewritten = true;
    return run_session_reopen(s, e);
}

/* ---- at the end ---- */

static enum err_code sync_file(const struct run_session *s, struct err *e)
{
    int rc;

    do
        rc = fsync(s->fd);
    while (rc != 0 && errno == EINTR);
    return rc == 0 ? ERR_OK : err_errno(e, ERR_IO, errno, "%s: cannot sync", s->path);
}

/* What is not committed is cut off. */
static enum err_code cut_tail(const struct run_session *s, struct err *e)
{
    if (ftruncate(s->fd, (off_t)s->end) != 0 || lseek(s->fd, (off_t)s->end, SEEK_SET) < 0)
        return err_errno(e, ERR_IO, errno, "%s: cannot cut", s->path);
    return ERR_OK;
}

/* The commit is written when what it stands for is safe on disk. */
static enum err_code put_group(struct writer *w, const struct saving *v, struct err *e)
{
    const struct run_session *s = w->s;
    size_t n = snaps_to(s, v->from);
    int64_t after = n == 0 ? 0 : (int64_t)s->snap.v[n - 1].at;

    if (cut_tail(s, e) || ((v->from < s->n || v->from < v->to) && put_tokens(w, v, e)) || put_kv(w, v, e) ||
        put_snapshots(w, v, after, e) || put_blob(w, v, e) || sync_file(s, e) || put_commit(w, v, e))
        return e->code;
    return sync_file(s, e);
}

static enum err_code append_groups(struct run_session *s, const struct saving *v, struct err *e)
{
    struct writer w = { .s = s, .prev = s->check };

    if (put_group(&w, v, e) != ERR_OK) {
        enum err_code code = e->code;

        (void)cut_tail(s, NULL); /* else the next one does it */
        return code;
    }
    s->stat.written_bytes = (int64_t)w.bytes;
    s->stat.rewritten = false;
    return run_session_scan(s, e);
}

/* Whether so much of the file would be of no more use that a new one is worth its writing. */
static bool worn(const struct run_session *s, const struct saving *v)
{
    uint64_t live = 0, rows = (uint64_t)(v->to - v->from);
    size_t n = snaps_to(s, v->from), kept = snaps_kept(s);

    for (size_t i = 0; i < s->kv.n && s->kv.v[i].at < (uint64_t)v->from; i++) {
        live += s->kv.v[i].stored / s->kv.v[i].n * run_session_live(s, i);
        rows += s->kv.v[i].n;
    }
    for (size_t i = n > kept ? n - kept : 0; i < n; i++)
        live += s->snap.v[i].stored;
    live += 4 * (uint64_t)v->from;
    return rows > run_session_rows_max(v->to) / 2 || (s->end > DEAD_MIN && s->end - live > s->end / 2);
}

void run_session_ends(struct run_session *s)
{
    s->ends = true;
}

enum err_code run_session_save(struct run_session *s, struct run *r, int seq, const void *blob, size_t n, struct err *e)
{
    struct saving v = { r, seq, 0, 0, blob, n };
    struct run_match m;
    enum session_path at_path;

    if (!s->attached || s->shared || seq < 0 || seq >= r->n_seq || n > RUN_SESSION_BLOB_MAX)
        return err_set(e, ERR_ARG, "%zu bytes of sequence %d for a session", n, seq);
    if (r->draft[seq] > 0)
        return err_set(e, ERR_ARG, "sequence %d has draft rows that are not settled", seq);
    if (run_adapt_hash(r, seq) != s->adapters)
        return err_set(e, ERR_ARG, "%s: sequence %d has other adapters", s->path, seq);
    v.to = run_pos(r, seq);
    m = run_cache_compare(s->token, s->n, run_tokens(r, seq), v.to);
    v.from = m.common;
    at_path = run_session_path(s);
    if (at_path == PATH_OTHER)
        return err_set(e, ERR_IO,
                       s->fd < 0 ? "%s: another program has made it meanwhile; this turn is not saved"
                                 : "%s: was replaced while it was in use; this turn is not saved",
                       s->path);
    s->stat.removed = s->fd >= 0 && at_path == PATH_NONE;
    if (s->fd < 0 || at_path == PATH_NONE || worn(s, &v)) {
        struct io_out *out;

        if (io_out_open(&out, s->path, e) == ERR_OK)
            return rewrite(s, out, &v, at_path == PATH_SAME, e);
        /* A directory that takes no new file may still hold one that grows. */
        if (s->fd < 0 || at_path == PATH_NONE)
            return e->code;
    }
    return append_groups(s, &v, e);
}
