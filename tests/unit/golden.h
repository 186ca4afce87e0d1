/* SPDX-License-Identifier: Apache-2.0 */
/* golden.h - opens models and reference vectors for tests. */
#ifndef TESTS_UNIT_GOLDEN_H
#define TESTS_UNIT_GOLDEN_H
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "acts.h"
#include "base/io.h"
#include "gguf/gguf.h"
#include "model/model.h"
#include "run/run.h"

/* The device under test: CHIMERE_TEST_DEVICE, else the CPU. */
static inline const char *test_device(void)
{
    const char *name = getenv("CHIMERE_TEST_DEVICE");

    return name == NULL || *name == '\0' ? "cpu" : name;
}

/* A model opened with its run. */
struct rig {
    struct gguf *g;
    struct model *m;
    struct run *r;
    int32_t n_vocab;
};

/* The device under test n times, "cpu,cpu": the layers of a model lie on all of them. */
struct test_devices {
    char names[128];
};
static inline struct test_devices test_devices(int n)
{
    struct test_devices d = { "" };

    for (int i = 0; i < n; i++)
        (void)snprintf(d.names + strlen(d.names), sizeof d.names - strlen(d.names), "%s%s", i > 0 ? "," : "",
                       test_device());
    return d;
}

/* The model on n devices, or on as many as it has layers for; or on -n that share every layer, or as many as it has
 * heads for. GPUs have layers in this case, too. */
static inline void test_model_open(struct model **out, const struct gguf *g, struct model_opts o, int n)
{
    struct err e = { 0 };

    o.placement.rows = n < 0 && strcmp(test_device(), "cpu") == 0;
    n = n < 0 ? -n : n;
    for (enum err_code code = ERR_ARG; code != ERR_OK; n--) {
        const struct test_devices d = test_devices(n);

        o.device = d.names;
        code = model_open(out, g, &o, &e);
        if (code != ERR_OK && (code != ERR_ARG || n == 1))
            fail_msg("%s", e.msg);
    }
}

static inline void rig_open_on(struct rig *rig, int devices, const char *path, int threads, const struct run_opts *o)
{
    struct err e = { 0 };

    memset(rig, 0, sizeof *rig);
    if (gguf_open(&rig->g, path, &e))
        fail_msg("%s", e.msg);
    test_model_open(&rig->m, rig->g, (struct model_opts){ .n_threads = threads, .acts = test_acts() }, devices);
    if (run_open(&rig->r, rig->m, o, &e))
        fail_msg("%s", e.msg);
    rig->n_vocab = model_info(rig->m)->n_vocab;
}

static inline void rig_open(struct rig *rig, const char *path, int threads, const struct run_opts *o)
{
    rig_open_on(rig, 1, path, threads, o);
}

static inline void rig_close(struct rig *rig)
{
    run_close(rig->r);
    model_close(rig->m);
    gguf_close(rig->g);
}

/* A whole file of 4-byte values; *n gets their number. NULL when it does not exist. */
static inline void *words_of(const char *path, int64_t *n)
{
    struct err e = { 0 };
    char *data = NULL;
    size_t bytes = 0;

    if (io_read_all(&data, &bytes, path, (size_t)1 << 30, NULL, &e) != ERR_OK)
        return NULL;
    *n = (int64_t)(bytes / 4);
    return data;
}

/* Collects the logits given to a sink. */
struct rows {
    float *v;
    int64_t n, width;
};
static inline enum err_code rows_sink(void *ctx, int64_t pos, const float *logits, struct err *e)
{
    struct rows *r = ctx;

    (void)pos;
    (void)e;
    memcpy(r->v + r->n++ * r->width, logits, (size_t)r->width * sizeof *logits);
    return ERR_OK;
}

/* Feeds ids to sequence 0 of an emptied run; logits of the last n_logits rows, malloc'ed. */
static inline float *logits_of(struct rig *rig, const int32_t *ids, int64_t n, int64_t n_logits)
{
    struct err e = { 0 };
    struct rows out = { malloc((size_t)(n_logits * rig->n_vocab) * sizeof(float)), 0, rig->n_vocab };

    assert_non_null(out.v);
    run_clear(rig->r, 0);
    if (run_feed(rig->r, 0, ids, n, n_logits, rows_sink, &out, NULL, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    assert_int_equal(out.n, n_logits);
    return out.v;
}

static inline bool same_file(const char *a, const char *b)
{
    char *x = NULL, *y = NULL;
    size_t n = 0, m = 0, most = (size_t)1 << 30;
    struct err e = { 0 };
    bool same = io_read_all(&x, &n, a, most, NULL, &e) == ERR_OK && io_read_all(&y, &m, b, most, NULL, &e) == ERR_OK &&
                n == m && memcmp(x, y, n) == 0;

    free(x);
    free(y);
    return same;
}

/* Calls fn for every NAME.gguf in dir (not NAME.TYPE.gguf) that is not the same in the directory `but`, which may be
 * NULL; fails the test when dir has none. */
static inline void each_model_but(const char *dir, const char *but, void (*fn)(const char *path))
{
    DIR *d = opendir(dir);
    int n = 0;

    if (d == NULL)
        fail_msg("%s cannot be read", dir);
    for (struct dirent *f = readdir(d); f != NULL; f = readdir(d)) {
        const char *dot = strchr(f->d_name, '.');
        char path[2048], other[2048];

        if (dot == NULL || strcmp(dot, ".gguf") != 0)
            continue;
        n++;
        (void)snprintf(path, sizeof path, "%s/%s", dir, f->d_name);
        (void)snprintf(other, sizeof other, "%s/%s", but == NULL ? "" : but, f->d_name);
        if (but == NULL || !same_file(path, other))
            fn(path);
    }
    closedir(d);
    assert_true(n > 0);
}

static inline void each_model(const char *dir, void (*fn)(const char *path))
{
    each_model_but(dir, NULL, fn);
}

/* The same in $GOLDENS/models, but for files that tests/golden/models has, too, and in $GOLDENS/models-2; skips the
 * test when there is no $GOLDENS. */
static inline void each_golden(void (*fn)(const char *path))
{
    const char *goldens = getenv("GOLDENS");
    char dir[1024];

    if (goldens == NULL || *goldens == '\0')
        skip();
    (void)snprintf(dir, sizeof dir, "%s/models", goldens);
    each_model_but(dir, "tests/golden/models", fn);
    (void)snprintf(dir, sizeof dir, "%s/models-2", goldens);
    each_model_but(dir, "tests/golden/models", fn);
}

static inline int32_t best_of(const float *logits, int32_t n)
{
    int32_t best = 0;

    for (int32_t i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}
#endif
