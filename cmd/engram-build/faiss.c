/* SPDX-License-Identifier: Apache-2.0 */
/* faiss.c - vectors in a file of FAISS, by its C interface.                   room: cmd */
#include "engram-build/faiss.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/pool.h"
#include "cli/cli.h"

enum { PATH_BYTES = 4096, SUM_DIGITS = 16 };
#define SUFFIX ".faiss"
#define PART   ".part" /* and the number of the process, of a file that is being written */

static enum err_code name_of(char *path, size_t n, const char *index, uint64_t sum, struct err *e)
{
    if (snprintf(path, n, "%s.%016" PRIx64 SUFFIX, index, sum) >= (int)n)
        return err_set(e, ERR_ARG, "%.40s...: the name is too long", index);
    return ERR_OK;
}

enum err_code cli_faiss_check(const struct recall *r, const char *index, char *path, size_t path_bytes, struct err *e)
{
    const struct recall_info i = recall_info(r);
    struct io_map m;
    char base[PATH_BYTES];
    size_t n = strlen(index);
    bool same;

    if (name_of(path, path_bytes, index, i.outside_sum, e))
        return e->code;
    while (n > 0 && index[n - 1] >= '0' && index[n - 1] <= '9')
        n--;
    if (access(path, F_OK) != 0 && n > 1 && n < sizeof base && index[n] != '\0' && index[n - 1] == '.') {
        snprintf(base, sizeof base, "%.*s", (int)n - 1, index); /* an old version, INDEX.1, has INDEX's */
        if (name_of(path, path_bytes, base, i.outside_sum, e))
            return e->code;
    }
    if (io_map_open(&m, path, e))
        return err_wrap(e, "%s: the file of its vectors (--bm25 does without)", index);
    same = m.size == i.outside_bytes && io_hash(0, m.data, m.size) == i.outside_sum;
    io_map_close(&m);
    return same ? ERR_OK
                : err_set(e, ERR_FORMAT, "%s: wrong checksum: it is not what %s was written with (--bm25 does without)",
                          path, index);
}

uint32_t cli_faiss_how(const char *factory)
{
    const uint32_t how = (uint32_t)io_hash(0, factory, strlen(factory));

    return how > 0 ? how : 1;
}

/* ---- files that nothing needs ---- */

static bool has_sum(const char *index, uint64_t sum)
{
    struct recall *r;
    struct err ignored;
    bool has;

    if (recall_open(&r, index, &ignored))
        return false;
    has = recall_info(r).outside_bytes > 0 && recall_info(r).outside_sum == sum;
    recall_close(r);
    return has;
}

static bool is_needed(const char *index, uint64_t sum)
{
    char old[PATH_BYTES];
    bool needed = has_sum(index, sum);

    for (int k = 1; !needed && k <= 100; k++) {
        snprintf(old, sizeof old, "%s.%d", index, k);
        if (access(old, F_OK) != 0)
            break;
        needed = has_sum(old, sum);
    }
    return needed;
}

void cli_faiss_sweep(const char *index)
{
    char dir[PATH_BYTES], path[PATH_BYTES];
    const char *slash = strrchr(index, '/'), *name = slash != NULL ? slash + 1 : index;
    const size_t n = strlen(name), n_dir = (size_t)(name - index);
    struct dirent *d;
    DIR *all;

    if (n_dir + 2 > sizeof dir)
        return;
    memcpy(dir, index, n_dir);
    memcpy(dir + n_dir, ".", 2);
    all = opendir(dir);
    while (all != NULL && (d = readdir(all)) != NULL) {
        const char *behind = d->d_name + n;
        bool has = strncmp(d->d_name, name, n) == 0, part = has && strncmp(behind, PART, sizeof PART - 1) == 0;

        if (part) {
            behind += sizeof PART - 1;
            behind += strspn(behind, "0123456789");
        } else if (has && *behind == '.' && strspn(behind + 1, "0123456789abcdef") == SUM_DIGITS)
            behind += 1 + SUM_DIGITS;
        has = has && behind > d->d_name + n && strcmp(behind, SUFFIX) == 0;
        if (has && (part || !is_needed(index, strtoull(d->d_name + n + 1, NULL, 16))) &&
            snprintf(path, sizeof path, "%.*s%s", (int)n_dir, index, d->d_name) < (int)sizeof path)
            (void)unlink(path);
    }
    if (all != NULL)
        closedir(all);
}

#ifdef CHIMERE_FAISS
#include <faiss/c_api/AutoTune_c.h>
#include <faiss/c_api/Index_c.h>
#include <faiss/c_api/error_c.h>
#include <faiss/c_api/index_factory_c.h>
#include <faiss/c_api/index_io_c.h>

extern void omp_set_num_threads(int n);                            /* of OpenMP, which FAISS runs with */
extern void openblas_set_num_threads(int n) __attribute__((weak)); /* where its products are OpenBLAS's */

struct cli_faiss {
    FaissIndex *index;
    const struct recall *r;
    float *v;       /* [dims] */
    uint32_t *text; /* [n_labels]; NONE: the vector of none */
    int64_t n_gone; /* vectors of none */
};
#define NONE UINT32_MAX

/* FAISS writes errors on standard error itself, and warns there of what it was told: not while this is open. */
static int mute(void)
{
    const int kept = dup(STDERR_FILENO), null = open("/dev/null", O_WRONLY | O_CLOEXEC);

    if (kept >= 0 && null >= 0)
        (void)dup2(null, STDERR_FILENO);
    if (null >= 0)
        close(null);
    return kept;
}

static void unmute(int kept)
{
    if (kept < 0)
        return;
    (void)dup2(kept, STDERR_FILENO);
    close(kept);
}

/* What FAISS says, without the name of its function. */
static enum err_code say(enum err_code code, const char *what, struct err *e)
{
    const char *why = faiss_get_last_error(), *place, *end;

    why = why != NULL ? why : "failed";
    place = strstr(why, ".cpp:");
    end = place != NULL ? strstr(place + 5, ": ") : NULL;
    why = end != NULL ? end + 2 : why;
    return err_set(e, code, "%s: FAISS: %.*s", what, (int)strcspn(why, "\n"), why);
}

/* Its loops share the processors; the products in them do not. */
static void set_threads(int n)
{
    omp_set_num_threads(n > 0 ? n : pool_cpus());
    if (openblas_set_num_threads != NULL)
        openblas_set_num_threads(1);
}

enum err_code cli_faiss_ready(struct err *e)
{
    (void)e;
    return ERR_OK;
}

/* FAISS's temporary file gets the name of its sum. */
static enum err_code keep_file(const struct cli_faiss_build *b, const char *part, uint64_t *bytes, uint64_t *sum,
                               struct err *e)
{
    char path[PATH_BYTES];
    struct io_map m;
    int fd = open(part, O_RDONLY | O_CLOEXEC);
    const bool safe = fd >= 0 && fsync(fd) == 0;

    if (fd >= 0)
        close(fd);
    if (!safe)
        return err_errno(e, ERR_IO, errno, "%s: cannot write", part);
    if (io_map_open(&m, part, e))
        return e->code;
    *bytes = m.size;
    *sum = io_hash(0, m.data, m.size);
    io_map_close(&m);
    if (name_of(path, sizeof path, b->index, *sum, e))
        return e->code;
    return rename(part, path) == 0 ? ERR_OK : err_errno(e, ERR_IO, errno, "%s: cannot rename", part);
}

enum err_code cli_faiss_write(void *ctx, struct recall_outside *o, struct err *e)
{
    const struct cli_faiss_build *b = ctx;
    FaissIndex *index = NULL;
    char part[PATH_BYTES], old[PATH_BYTES];
    enum err_code code = ERR_OK;

    if (o->adds && cli_faiss_check(b->old, b->index, old, sizeof old, e))
        return e->code;
    if (snprintf(part, sizeof part, "%s" PART "%ld" SUFFIX, b->index, (long)getpid()) >= (int)sizeof part)
        return err_set(e, ERR_ARG, "%.40s...: the name is too long", b->index);
    set_threads(b->threads);
    const int kept = mute();

    if (o->adds ? faiss_read_index_fname(old, 0, &index) != 0
                : faiss_index_factory(&index, o->dims, b->factory, METRIC_INNER_PRODUCT) != 0 ||
                      faiss_Index_train(index, o->n, o->v) != 0)
        code = say(ERR_ARG, "--faiss", e);
    else if (faiss_Index_add(index, o->n, o->v) != 0)
        code = say(ERR_ARG, "--faiss", e);
    if (code == ERR_OK && faiss_write_index_fname(index, part) != 0)
        code = say(ERR_IO, part, e);
    unmute(kept);
    if (code == ERR_OK)
        code = cli_interrupted() ? err_set(e, ERR_CANCEL, "interrupted") : keep_file(b, part, &o->bytes, &o->sum, e);
    if (code != ERR_OK)
        (void)unlink(part);
    faiss_Index_free(index);
    return code;
}

static enum err_code open_file(struct cli_faiss *f, const char *path, const char *search, struct err *e)
{
    const struct recall_info i = recall_info(f->r);
    FaissParameterSpace *space = NULL;
    int failed, kept = mute();

    failed = faiss_read_index_fname(path, 0, &f->index);
    unmute(kept);
    if (failed != 0)
        return say(ERR_FORMAT, path, e);
    if (faiss_Index_ntotal(f->index) != i.n_labels || faiss_Index_d(f->index) != i.dims ||
        faiss_Index_metric_type(f->index) != METRIC_INNER_PRODUCT)
        return err_set(e, ERR_FORMAT, "%s: has not the vectors of the index", path);
    f->v = malloc((size_t)i.dims * sizeof *f->v);
    f->text = malloc(((size_t)i.n_labels + 1) * sizeof *f->text);
    if (f->v == NULL || f->text == NULL || faiss_ParameterSpace_new(&space) != 0)
        return err_nomem(e);
    for (int64_t k = 0; k < i.n_labels; k++)
        f->text[k] = NONE;
    for (int64_t k = 0; k < i.n_texts; k++)
        f->text[recall_label(f->r, k)] = (uint32_t)k;
    f->n_gone = i.n_labels - i.n_texts;
    kept = mute();
    failed = faiss_ParameterSpace_set_index_parameters(space, f->index, search != NULL ? search : "nprobe=16");
    unmute(kept);
    faiss_ParameterSpace_free(space);
    return failed && search != NULL ? say(ERR_ARG, "--faiss", e) : ERR_OK; /* only an inverted file has nprobe */
}

enum err_code cli_faiss_open(struct cli_faiss **out, const struct recall *r, const char *index, const char *search,
                             int threads, struct err *e)
{
    struct cli_faiss *f;
    char path[PATH_BYTES];

    if (cli_faiss_check(r, index, path, sizeof path, e))
        return e->code;
    set_threads(threads);
    f = calloc(1, sizeof *f);
    if (f == NULL)
        return err_nomem(e);
    f->r = r;
    if (open_file(f, path, search, e)) {
        cli_faiss_close(f);
        return e->code;
    }
    *out = f;
    return ERR_OK;
}

enum err_code cli_faiss_near(struct cli_faiss *f, const float *v, int k, struct recall_hit *hits, int *n, struct err *e)
{
    const int64_t n_labels = recall_info(f->r).n_labels, most = k + f->n_gone < n_labels ? k + f->n_gone : n_labels;
    int64_t asked = k < most ? k : most;

    recall_aim(f->r, v, f->v);
    for (;; asked = 2 * asked < most ? 2 * asked : most) { /* until there are enough of texts that are not gone */
        float *score = malloc((size_t)asked * sizeof *score);
        idx_t *label = malloc((size_t)asked * sizeof *label);
        enum err_code code = score != NULL && label != NULL ? ERR_OK : err_nomem(e);

        if (code == ERR_OK && faiss_Index_search(f->index, 1, f->v, asked, score, label) != 0)
            code = say(ERR_IO, "--faiss", e);
        *n = 0;
        for (int64_t i = 0; code == ERR_OK && i < asked && *n < k; i++)
            if (label[i] >= 0 && label[i] < n_labels && f->text[label[i]] != NONE)
                hits[(*n)++] = (struct recall_hit){ f->text[label[i]], score[i], 0 };
        free(score);
        free(label);
        if (code != ERR_OK || *n == k || asked == most)
            return code;
    }
}

void cli_faiss_close(struct cli_faiss *f)
{
    if (f == NULL)
        return;
    faiss_Index_free(f->index);
    free(f->v);
    free(f->text);
    free(f);
}

#else

enum err_code cli_faiss_ready(struct err *e)
{
    return err_set(e, ERR_UNSUPPORTED, "--faiss: this build has no FAISS");
}

enum err_code cli_faiss_write(void *ctx, struct recall_outside *o, struct err *e)
{
    (void)ctx, (void)o;
    return cli_faiss_ready(e);
}

enum err_code cli_faiss_open(struct cli_faiss **out, const struct recall *r, const char *index, const char *search,
                             int threads, struct err *e)
{
    (void)out, (void)r, (void)search, (void)threads;
    return err_set(e, ERR_UNSUPPORTED,
                   "%s: its vectors are in a file of FAISS, which this build has not (--bm25 does without)", index);
}

enum err_code cli_faiss_near(struct cli_faiss *f, const float *v, int k, struct recall_hit *hits, int *n, struct err *e)
{
    (void)f, (void)v, (void)k, (void)hits, (void)n;
    return cli_faiss_ready(e);
}

void cli_faiss_close(struct cli_faiss *f)
{
    (void)f;
}
#endif
