/* SPDX-License-Identifier: Apache-2.0 */
/* quantize.c - a model written by a plan, tensor by tensor, in batches of rows.    room: ramp */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/pool.h"
#include "quant/quant.h"
#include "ramp/internal.h"

#define KEY_HASHES "chimere.quantize.hashes"
#define KEY_MERGED "chimere.quantize.merged"

struct work {
    const struct ramp_job *job;
    struct gguf_writer *w;
    unsigned char *out; /* a batch of rows */
    float *importance;  /* of one matrix */
    /* Of tensors that are written; of others the job's number, by which a file that was begun is known as this job's.
     * The last one keeps it until all are there. */
    uint64_t *hashes;
    uint64_t id;
    size_t had;           /* tensors that are written, of a process that was killed */
    uint64_t done, total; /* elements */
    struct ramp_encoding batch;
};

/* Rows of the tensor at hand in a batch. */
static int64_t batch_rows(const struct work *k)
{
    return ramp_batch_rows(&k->job->coder, k->batch.t->ne[0]);
}

static uint64_t hash_rows(uint64_t h, const unsigned char *p, size_t row_bytes, int64_t n)
{
    for (int64_t i = 0; i < n; i++, p += row_bytes)
        h = io_hash(h, p, row_bytes);
    return h;
}

static int64_t rows_of(const struct gguf_tensor *t)
{
    return t->ne[1] * t->ne[2] * t->ne[3];
}

static enum err_code tick_rows(struct work *k, uint64_t elems, struct err *e)
{
    k->done += elems;
    if (!progress_tick(&k->job->progress, k->done, k->total))
        return err_set(e, ERR_CANCEL, "interrupted");
    return ERR_OK;
}

/* ---- a job that was killed goes on ---- */

/* What a key takes: its name, kind, and of arrays kind and number of elements. */
static uint64_t key_bytes(size_t name, bool array)
{
    return 8 + name + 4 + (array ? 4 + 8 : 0);
}

static void hash_file(uint64_t *h, const char *path)
{
    struct stat st;

    if (stat(path, &st) == 0) {
        uint64_t v[4] = { (uint64_t)st.st_size, (uint64_t)st.st_mtim.tv_sec, (uint64_t)st.st_mtim.tv_nsec,
                          (uint64_t)st.st_ino };

        *h = io_hash(*h, v, sizeof v);
    }
}

/* The same job has the same inputs, by their sizes and times, the same rules and the same encoders. */
static uint64_t job_id(const struct ramp_job *job)
{
    int how[2] = { job->coder.effort, job->coder.unbiased };
    uint64_t h = io_hash(0, how, sizeof how);
    const char *path;

    h = io_hash(h, job->version, strlen(job->version));
    h = io_hash(h, job->recipe, strlen(job->recipe));
    for (size_t i = 0; (path = gguf_part_path(job->g, i)) != NULL; i++)
        hash_file(&h, path);
    for (size_t i = 0; i < job->plan->n; i++)
        h = io_hash(h, &job->plan->v[i].type, sizeof job->plan->v[i].type);
    if (job->importance != NULL)
        hash_file(&h, ramp_importance_path(job->importance));
    if (job->merge != NULL)
        ramp_merge_hash(job->merge, &h, hash_file);
    return h | 1; /* never 0 */
}

/* Reads the hashes at the place where the next ones are written. A tensor that is not there yet has the job's number.
 */
static void look_back(struct work *k, uint64_t skip)
{
    const size_t n = k->job->plan->n;
    size_t had = 0;

    if (n == 0 || !gguf_write_old(k->w, skip, k->hashes, n * sizeof *k->hashes))
        had = n; /* no */
    while (had < n && k->hashes[had] != k->id)
        had++;
    k->had = had < n ? had : 0;
    for (size_t i = had; i < n; i++)
        if (k->hashes[i] != k->id)
            k->had = 0;
    for (size_t i = k->had; i < n; i++)
        k->hashes[i] = k->id;
}

/* Whether the bytes of the tensor that comes next are there as their hash says, so that they can stay. */
static bool is_there(struct work *k, size_t at)
{
    size_t row_bytes = (size_t)quant_row_bytes(k->batch.type, k->batch.t->ne[0]);
    int64_t rows = rows_of(k->batch.t), most = batch_rows(k);
    uint64_t h = 0;

    if (at >= k->had)
        return false;
    for (int64_t i = 0; i < rows; i += most) {
        int64_t n = rows - i < most ? rows - i : most;

        if (!gguf_write_old(k->w, (uint64_t)i * row_bytes, k->out, (size_t)n * row_bytes))
            return false;
        h = hash_rows(h, k->out, row_bytes, n);
    }
    return h == k->hashes[at];
}

/* Rows [first, first + n) of the tensor, all of one matrix. */
static enum err_code write_batch(struct work *k, int64_t first, int64_t n, uint64_t *hash, struct err *e)
{
    size_t row_bytes = (size_t)quant_row_bytes(k->batch.type, k->batch.t->ne[0]);

    if (ramp_encode(&k->batch, k->out, first, 1, n, e))
        return err_wrap(e, "%s", gguf_path(k->job->g));
    *hash = hash_rows(*hash, k->out, row_bytes, n);
    if (gguf_write_data(k->w, k->out, (size_t)n * row_bytes, e))
        return e->code;
    return tick_rows(k, (uint64_t)(n * k->batch.t->ne[0]), e);
}

static enum err_code write_new(struct work *k, uint64_t *hash, struct err *e)
{
    const struct gguf_tensor *t = k->batch.t;
    int64_t most = batch_rows(k);
    enum err_code rc = ERR_OK;

    for (int64_t m = 0; m < t->ne[2] * t->ne[3] && rc == ERR_OK; m++) {
        rc = ramp_importance_of(k->job->importance, t, m, k->importance, &k->batch.weights, e);
        for (int64_t i = 0; i < t->ne[1] && rc == ERR_OK; i += most)
            rc = write_batch(k, m * t->ne[1] + i, t->ne[1] - i < most ? t->ne[1] - i : most, hash, e);
    }
    return rc;
}

static enum err_code write_same(struct work *k, uint64_t *hash, struct err *e)
{
    const struct gguf_tensor *t = k->batch.t;
    const unsigned char *p = t->data;
    size_t row_bytes = (size_t)quant_row_bytes(t->type, t->ne[0]);
    int64_t n = rows_of(t), most = batch_rows(k);
    enum err_code rc = ERR_OK;

    for (int64_t i = 0; i < n && rc == ERR_OK; i += most) {
        int64_t m = n - i < most ? n - i : most;

        *hash = hash_rows(*hash, p + (size_t)i * row_bytes, row_bytes, m);
        rc = gguf_write_data(k->w, p + (size_t)i * row_bytes, (size_t)m * row_bytes, e);
        if (rc == ERR_OK)
            rc = tick_rows(k, (uint64_t)(m * t->ne[0]), e);
    }
    return rc;
}

static bool begins_with(struct str s, const char *z)
{
    size_t n = strlen(z);

    return s.n >= n && memcmp(s.p, z, n) == 0;
}

/* Keys that say how the input lay or was made. */
static bool is_dropped(struct str key)
{
    return begins_with(key, "split.") || begins_with(key, "chimere.quantize.") || str_is(key, "general.file_type") ||
           str_is(key, "general.quantization_version");
}

static enum err_code write_merged(struct work *k, struct err *e)
{
    char *text = ramp_merge_text(k->job->merge);
    enum err_code rc = text == NULL ? err_nomem(e) : gguf_write_str(k->w, KEY_MERGED, str_of(text), e);

    free(text);
    return rc;
}

static enum err_code write_head(struct work *k, struct err *e)
{
    const struct ramp_job *job = k->job;
    enum err_code rc = ERR_OK;

    for (size_t i = 0; i < gguf_n_kv(job->g) && rc == ERR_OK; i++)
        if (!is_dropped(gguf_kv_at(job->g, i)->key))
            rc = gguf_write_kv(k->w, gguf_kv_at(job->g, i), e);
    if (rc == ERR_OK)
        rc = gguf_write_u32(k->w, "general.quantization_version", 2, e);
    if (rc == ERR_OK && job->plan->file_type >= 0)
        rc = gguf_write_u32(k->w, "general.file_type", (uint32_t)job->plan->file_type, e);
    if (rc == ERR_OK)
        rc = gguf_write_str(k->w, "chimere.quantize.version", str_of(job->version), e);
    if (rc == ERR_OK)
        rc = gguf_write_str(k->w, "chimere.quantize.recipe", str_of(job->recipe), e);
    if (rc == ERR_OK && job->merge != NULL)
        rc = write_merged(k, e);
    look_back(k, key_bytes(strlen(KEY_HASHES), true));
    if (rc == ERR_OK)
        rc = gguf_write_arr(k->w, KEY_HASHES, GGUF_U64, k->hashes, job->plan->n, e);
    for (size_t i = 0; i < job->plan->n && rc == ERR_OK; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(job->g, i);

        rc = gguf_write_tensor(k->w, t->name, job->plan->v[i].type, t->n_dims, t->ne, e);
    }
    return rc;
}

uint64_t ramp_file_bytes(const struct gguf *g, const int *type, const struct ramp_recipe *r, const struct ramp_merge *m,
                         const char *version)
{
    uint64_t n = 24, data = 0;
    uint32_t align = 32;
    char *merged = m != NULL ? ramp_merge_text(m) : NULL;

    if (m != NULL && merged == NULL)
        return 0;
    if (merged != NULL)
        n += key_bytes(strlen(KEY_MERGED), false) + 8 + strlen(merged);
    free(merged);

    (void)gguf_u32(g, "general.alignment", &align);
    for (size_t i = 0; i < gguf_n_kv(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);

        if (!is_dropped(kv->key))
            n += key_bytes(kv->key.n, kv->kind == GGUF_ARR) + kv->size_bytes;
    }
    n += key_bytes(strlen("general.quantization_version"), false) + 4;
    n += key_bytes(strlen("chimere.quantize.version"), false) + 8 + strlen(version);
    n += key_bytes(strlen("chimere.quantize.recipe"), false) + 8 + strlen(ramp_recipe_text(r));
    if (ramp_recipe_file_type(r) >= 0)
        n += key_bytes(strlen("general.file_type"), false) + 4;
    n += key_bytes(strlen(KEY_HASHES), true) + gguf_n_tensors(g) * 8;
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);

        n += 8 + t->name.n + 4 + 8 * (uint64_t)t->n_dims + 4 + 8;
        data = (data + align - 1) / align * align;
        data += (uint64_t)(quant_row_bytes(type[i], t->ne[0]) * rows_of(t));
    }
    return (n + align - 1) / align * align + (data + align - 1) / align * align;
}

static enum err_code make_room(struct work *k, struct err *e)
{
    int64_t longest = 0, elems = ramp_batch_rows(&k->job->coder, 1);

    for (size_t i = 0; i < k->job->plan->n; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(k->job->g, i);

        k->total += (uint64_t)(rows_of(t) * t->ne[0]);
        if (t->ne[0] > longest && !k->job->plan->v[i].kept)
            longest = t->ne[0];
    }
    if (ramp_encoding_open(&k->batch, longest, elems, &k->job->coder, e))
        return e->code;
    k->batch.merge = k->job->merge;
    k->out = malloc((size_t)(longest > elems ? longest : elems) * sizeof(float)); /* no type takes more */
    k->importance = calloc((size_t)longest + 1, sizeof *k->importance);
    k->hashes = calloc(k->job->plan->n + 1, sizeof *k->hashes);
    if (k->out == NULL || k->importance == NULL || k->hashes == NULL)
        return err_nomem(e);
    return ERR_OK;
}

/* One more tensor is there, for a process that goes on if this one is killed. */
static enum err_code note_hash(struct work *k, size_t at, uint64_t hash, struct err *e)
{
    k->hashes[at] = hash;
    if (at + 1 == k->job->plan->n)
        return ERR_OK; /* with it the file would be complete, and of no known job */
    return gguf_write_again(k->w, KEY_HASHES, k->hashes, k->job->plan->n * sizeof *k->hashes, e);
}

static enum err_code write_all(struct work *k, struct err *e)
{
    enum err_code rc = write_head(k, e);

    if (k->job->had != NULL)
        *k->job->had = 0;
    if (rc == ERR_OK && k->job->plan->n > 0)
        rc = gguf_write_data(k->w, NULL, 0, e); /* up to the first tensor */
    for (size_t i = 0; i < k->job->plan->n && rc == ERR_OK; i++) {
        uint64_t hash = 0;

        k->batch.t = gguf_tensor_at(k->job->g, i);
        k->batch.type = k->job->plan->v[i].type;
        if (is_there(k, i)) {
            rc = gguf_write_keep(k->w, e);
            if (rc == ERR_OK)
                rc = tick_rows(k, (uint64_t)(rows_of(k->batch.t) * k->batch.t->ne[0]), e);
            if (k->job->had != NULL)
                ++*k->job->had;
            continue;
        }
        rc = (k->job->plan->v[i].kept ? write_same : write_new)(k, &hash, e);
        if (rc == ERR_OK)
            rc = note_hash(k, i, hash, e);
        gguf_drop(k->job->g, k->batch.t);
    }
    if (rc == ERR_OK && k->job->plan->n > 0)
        rc = gguf_write_again(k->w, KEY_HASHES, k->hashes, k->job->plan->n * sizeof *k->hashes, e);
    return rc;
}

enum err_code ramp_quantize(const struct ramp_job *job, const char *path, struct err *e)
{
    struct work k = { .job = job, .id = job_id(job) };
    enum err_code rc = make_room(&k, e);

    if (rc == ERR_OK)
        rc = gguf_write_open_part(&k.w, path, e);
    if (rc == ERR_OK) {
        rc = write_all(&k, e);
        if (rc == ERR_OK)
            rc = gguf_write_commit(k.w, e);
        else
            gguf_write_abort(k.w);
    }
    ramp_encoding_close(&k.batch);
    free(k.out);
    free(k.importance);
    free(k.hashes);
    return rc;
}

enum err_code ramp_check(const struct gguf *g, const struct progress *p, size_t *bad, struct err *e)
{
    const struct gguf_kv *kv = gguf_kv_find(g, KEY_HASHES);
    size_t n = gguf_n_tensors(g);
    uint64_t done = 0;

    if (kv == NULL || kv->kind != GGUF_ARR || kv->elem_kind != GGUF_U64 || kv->n != n)
        return err_set(e, ERR_FORMAT, "%s: has no hashes of its tensors", gguf_path(g));
    *bad = n;
    for (size_t i = 0; i < n && *bad == n; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        uint64_t want;

        memcpy(&want, kv->data + i * sizeof want, sizeof want);
        if (hash_rows(0, t->data, (size_t)quant_row_bytes(t->type, t->ne[0]), rows_of(t)) != want)
            *bad = i;
        gguf_drop(g, t);
        done += t->size_bytes;
        if (!progress_tick(p, done, gguf_file_bytes(g)))
            return err_set(e, ERR_CANCEL, "interrupted");
    }
    return ERR_OK;
}
