/* SPDX-License-Identifier: Apache-2.0 */
/* golden_test.c - parity with reference logits: every model of tests/golden/models, and of $GOLDENS/models and
 * $GOLDENS/models-2.
 *
 * NAME.gguf goes with NAME/ (short, a, b, long, greedy, hidden states); NAME.TYPE.gguf, the same model
 * quantised, with NAME/TYPE.a.logits.f32. Limits: tests/golden/README.md. */
#include <math.h>

#include "golden.h"
#include "part.h"
#include "run/internal.h"

enum { PATH_BYTES = 1024 };

static const char *dir; /* models/ under test */

static double kl(const float *ref, const float *got, int32_t n)
{
    double zr = 0, zg = 0, d = 0;
    float mr = ref[best_of(ref, n)], mg = got[best_of(got, n)];

    for (int32_t i = 0; i < n; i++) {
        zr += exp((double)ref[i] - (double)mr);
        zg += exp((double)got[i] - (double)mg);
    }
    for (int32_t i = 0; i < n; i++) {
        double lr = (double)ref[i] - (double)mr - log(zr), lg = (double)got[i] - (double)mg - log(zg);

        d += exp(lr) * (lr - lg);
    }
    return d;
}

/* A step of activations, in steps of 16 bits. On a GPU 128 elements share one of 8 bits, not 32: the largest of so many
 * is 1.25 times as large, where they are distributed normally. */
static double coarseness(void)
{
    return test_acts() != QUANT_ACTS_I8 ? 1.0 : 32767.0 / 127.0 * (strcmp(test_device(), "cpu") == 0 ? 1.0 : 1.25);
}

/* coarse: see above */
static void check_logits(const char *what, const float *ref, const float *got, int64_t rows, int32_t n_vocab,
                         double coarse)
{
    /* with coarse steps router choices flip, which a half more is for */
    const double limit = 2e-3 * coarse, limit_kl = (coarse > 1.0 ? 1.5e-7 : 1e-7) * coarse * coarse;
    double worst = 0, worst_kl = 0;

    for (int64_t r = 0; r < rows; r++) {
        for (int32_t i = 0; i < n_vocab; i++) {
            double d = fabs((double)ref[r * n_vocab + i] - (double)got[r * n_vocab + i]);

            if (!(d <= limit))
                fail_msg("%s: row %lld, token %d: %.6f, reference %.6f", what, (long long)r, (int)i,
                         (double)got[r * n_vocab + i], (double)ref[r * n_vocab + i]);
            worst = d > worst ? d : worst;
        }
        double k = kl(ref + r * n_vocab, got + r * n_vocab, n_vocab);
        worst_kl = k > worst_kl ? k : worst_kl;
    }
    if (!(worst_kl <= limit_kl))
        fail_msg("%s: KL %.3g exceeds %.0e", what, worst_kl, limit_kl);
    print_message("%-40s max difference %.2e, KL %.1e\n", what, worst, worst_kl);
}

/* The prompt's last rows against NAME/FILE; false when there is no such file. */
static bool check_prompt(struct rig *rig, const char *name, const char *prompt, const char *file, double coarse)
{
    char path[PATH_BYTES];
    int64_t n = 0, n_ref = 0;

    (void)snprintf(path, sizeof path, "%s/%s.i32", dir, prompt);
    int32_t *ids = words_of(path, &n);
    (void)snprintf(path, sizeof path, "%s/%s/%s.logits.f32", dir, name, file);
    float *ref = words_of(path, &n_ref);
    if (ids != NULL && ref != NULL) {
        float *got = logits_of(rig, ids, n, n_ref / rig->n_vocab);

        check_logits(path, ref, got, n_ref / rig->n_vocab, rig->n_vocab, coarse);
        free(got);
    }
    bool there = ids != NULL && ref != NULL;
    free(ids);
    free(ref);
    return there;
}

static void check_greedy(struct rig *rig, const char *name)
{
    char path[PATH_BYTES];
    int64_t n = 0, n_ref = 0;
    struct err e = { 0 };

    (void)snprintf(path, sizeof path, "%s/a.i32", dir);
    int32_t *ids = words_of(path, &n);
    (void)snprintf(path, sizeof path, "%s/%s/greedy.i32", dir, name);
    int32_t *ref = words_of(path, &n_ref);
    assert_non_null(ids);
    assert_non_null(ref);
    free(logits_of(rig, ids, n, 1));
    for (int64_t i = 0; i < n_ref; i++) {
        int32_t token = best_of(run_logits_last(rig->r), rig->n_vocab);

        if (token != ref[i])
            fail_msg("%s: greedy token %lld is %d, reference %d", name, (long long)i, (int)token, (int)ref[i]);
        if (run_feed(rig->r, 0, &token, 1, 1, NULL, NULL, NULL, &e) != ERR_OK)
            fail_msg("%s", e.msg);
    }
    free(ids);
    free(ref);
}

/* What the head multiplies, where the hidden states are several streams: NAME/short.final.f32. */
static void check_final(const char *name, const float *got, int64_t n)
{
    char path[PATH_BYTES];
    int64_t n_ref = 0;
    double top = 0, worst = 0;

    (void)snprintf(path, sizeof path, "%s/%s/short.final.f32", dir, name);
    float *ref = words_of(path, &n_ref);
    assert_non_null(ref);
    assert_int_equal(n_ref, n);
    for (int64_t i = 0; i < n; i++) {
        top = fmax(top, fabs((double)ref[i]));
        worst = fmax(worst, fabs((double)ref[i] - (double)got[i]));
    }
    if (!(worst <= 1e-4 * top))
        fail_msg("%s: the final rows differ by %.3g of %.3g", name, worst, top);
    free(ref);
}

/* Says which layer differs first. */
static void check_hidden(struct rig *rig, const char *name)
{
    char path[PATH_BYTES];
    int64_t n = 0, n_ref = 0;
    const struct model_info *f = model_info(rig->m);

    (void)snprintf(path, sizeof path, "%s/short.i32", dir);
    int32_t *ids = words_of(path, &n);
    (void)snprintf(path, sizeof path, "%s/%s/short.hidden.f32", dir, name);
    float *ref = words_of(path, &n_ref), *got = calloc((size_t)(n_ref + n * f->n_embd), sizeof *got);
    assert_non_null(ids);
    assert_non_null(ref);
    assert_non_null(got);
    const bool streams = f->n_streams > 1;
    const int layers = f->n_layer + (streams ? 1 : 2);
    int64_t layer = n * f->n_embd * f->n_streams;
    assert_int_equal(n_ref, layer * layers);
    rig->r->hidden = got;
    free(logits_of(rig, ids, n, 1));
    rig->r->hidden = NULL;
    if (streams)
        check_final(name, got + n_ref, n * f->n_embd);
    for (int l = 0; l < layers; l++) {
        double top = 0, worst = 0;

        for (int64_t i = l * layer; i < (l + 1) * layer; i++) {
            top = fmax(top, fabs((double)ref[i]));
            worst = fmax(worst, fabs((double)ref[i] - (double)got[i]));
        }
        if (!(worst <= 1e-4 * top))
            fail_msg("%s: hidden states first differ at %s %d: %.3g of %.3g", name,
                     l == 0            ? "the input of layer"
                     : l <= f->n_layer ? "the output of layer"
                                       : "the final norm",
                     l == 0 ? 0 : l - 1, worst, top);
    }
    free(ids);
    free(ref);
    free(got);
}

static void check_model(const char *file)
{
    char path[PATH_BYTES], name[256], type[PATH_BYTES];
    struct rig rig;
    const char *dot = strchr(file, '.');

    (void)snprintf(path, sizeof path, "%s/%s", dir, file);
    (void)snprintf(name, sizeof name, "%.*s", (int)(dot - file), file);
    rig_open(&rig, path, 2, &(struct run_opts){ .ctx_tokens = 512, .kv_k = "f32", .kv_v = "f32" });
    if (strcmp(dot, ".gguf") == 0) {
        check_hidden(&rig, name);
        assert_true(check_prompt(&rig, name, "short", "short", 1));
        assert_true(check_prompt(&rig, name, "a", "a", 1));
        assert_true(check_prompt(&rig, name, "b", "b", 1));
        assert_true(check_prompt(&rig, name, "long", "long", 1));
        check_greedy(&rig, name);
    } else { /* NAME.TYPE.gguf */
        (void)snprintf(type, sizeof type, "%.*s.a", (int)(strlen(dot) - strlen(".gguf") - 1), dot + 1);
        assert_true(check_prompt(&rig, name, "a", type, coarseness()));
    }
    rig_close(&rig);
}

static void check_dir(const char *models)
{
    DIR *d = opendir(models);
    int n = 0;

    if (d == NULL)
        fail_msg("%s cannot be read", models);
    dir = models;
    for (struct dirent *f = readdir(d); f != NULL; f = readdir(d)) {
        size_t len = strlen(f->d_name);

        if (len < 5 || strcmp(f->d_name + len - 5, ".gguf") != 0)
            continue;
        n++;
        if (test_mine())
            check_model(f->d_name);
    }
    closedir(d);
    assert_true(n >= 3);
}

static void own_goldens(void **state)
{
    (void)state;
    check_dir("tests/golden/models");
}

static void check_goldens(const char *name)
{
    const char *goldens = getenv("GOLDENS");
    char models[PATH_BYTES];

    if (goldens == NULL || *goldens == '\0')
        skip();
    (void)snprintf(models, sizeof models, "%s/%s", goldens, name);
    check_dir(models);
}

static void all_goldens(void **state)
{
    (void)state;
    check_goldens("models");
}

static void all_goldens_2(void **state)
{
    (void)state;
    check_goldens("models-2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_goldens),
        cmocka_unit_test(all_goldens),
        cmocka_unit_test(all_goldens_2),
    };

    test_filter();
    return cmocka_run_group_tests_name("golden", tests, NULL, NULL);
}
