/* SPDX-License-Identifier: Apache-2.0 */
/* adapt_test.c - adapters: files, what is refused, and the forward pass against merged weights, for every matrix of
 * every model of tests/golden/models; rows with different adapters side by side. $GOLDENS/lora has the reference. */
#include <math.h>
#include <unistd.h>

#include "adapters.h"
#include "arch/arch.h"
#include "gen_rig.h"
#include "part.h"
#include "run/session.h"

enum { PATH_BYTES = 1024, N_IDS = 12, RANK = 4, ODD_RANK = 3 };

static char made[PATH_BYTES]; /* a temporary file's path */

static const char *temporary(const char *name)
{
    const char *tmp = getenv("TMPDIR");

    (void)snprintf(made, sizeof made, "%s/adapt_test.%d.%s", tmp != NULL ? tmp : "/tmp", (int)getpid(), name);
    return made;
}

/* ---- files ---- */

static struct adapter *small(void)
{
    const struct adapter_mat mats[] = { { "blk.0.attn_q.weight", 64, 48, 1, 32, false, NULL, NULL },
                                        { "blk.1.ffn_up_exps.weight", 32, 16, 3, 5, false, NULL, NULL },
                                        { "token_embd.weight", 64, 100, 1, 32, true, NULL, NULL } };
    struct adapter *a;
    struct err e;

    MUST(adapter_make(&a, "qwen35moe", 7.5f, mats, 3, &e));
    adapter_fill(a, 1, 1);
    return a;
}

static void same_numbers(const float *x, const float *y, int64_t n, double off)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)x[i] - (double)y[i]) <= off))
            fail_msg("number %lld is %g, written as %g", (long long)i, (double)y[i], (double)x[i]);
}

static void written_and_read(void **state)
{
    static const struct {
        const char *type;
        double off;
    } as[] = { { "f32", 0 }, { "f16", 0 }, { "q8_0", 1.0 / 127 } };
    struct adapter *a = small(), *b;
    struct err e;

    (void)state;
    for (size_t t = 0; t < sizeof as / sizeof as[0]; t++) {
        MUST(adapter_write(a, temporary("gguf"), as[t].type, &e));
        MUST(adapter_open(&b, made, &e));
        assert_string_equal(b->arch, "qwen35moe");
        assert_true(b->alpha == 7.5f && b->n == 3);
        for (size_t i = 0; i < 3; i++) {
            const struct adapter_mat *m = &a->mat[i], *r = &b->mat[i];

            assert_string_equal(m->name, r->name);
            assert_true(m->n_in == r->n_in && m->n_out == r->n_out && m->n_mat == r->n_mat && m->rank == r->rank &&
                        m->rows == r->rows);
            same_numbers(r->a, m->a, adapter_a_floats(m), as[t].off);
            same_numbers(r->b, m->b, adapter_b_floats(m), as[t].off);
        }
        assert_int_equal(adapter_fingerprint(a) == adapter_fingerprint(b), as[t].off == 0);
        adapter_close(b);
        assert_int_equal(unlink(made), 0);
    }
    a->mat[1].b[3] = 70000.0f;
    assert_int_equal(adapter_write(a, temporary("gguf"), "f16", &e), ERR_ARG);
    assert_non_null(strstr(e.msg, "not finite"));
    assert_int_equal(access(made, F_OK), -1);
    assert_int_equal(adapter_write(a, made, "q4_0", &e), ERR_ARG);
    adapter_close(a);
}

static void no_adapter_is_made_of_nonsense(void **state)
{
    const struct adapter_mat good = { "x.weight", 4, 4, 1, 2, false, NULL, NULL };
    struct adapter_mat bad[5] = { good, good, good, good, good };
    struct adapter *a;
    struct err e;

    (void)state;
    bad[0].rank = -1;
    bad[1].rank = ADAPTER_RANK_MAX + 1;
    bad[2].rows = true; /* only the embedding is read by rows */
    bad[3].n_in = 0;
    bad[4].n_mat = INT64_MAX;
    for (int i = 0; i < 5; i++)
        assert_int_equal(adapter_make(&a, "x", 1, &bad[i], 1, &e), ERR_ARG);
    assert_int_equal(adapter_make(&a, "x", 0, &good, 1, &e), ERR_ARG);
    assert_int_equal(adapter_make(&a, "x", NAN, &good, 1, &e), ERR_ARG);
    assert_int_equal(adapter_make(&a, "x", 1, &good, 0, &e), ERR_ARG);
    bad[1] = bad[0] = good;
    bad[1].rank = 0; /* scales are not mixed with others */
    assert_int_equal(adapter_make(&a, "x", 1, bad, 2, &e), ERR_ARG);
}

/* Of two experts: written, read, a row of the second one merged. */
static void scales(void **state)
{
    const struct adapter_mat mat = { "x.weight", 5, 3, 2, 0, false, NULL, NULL };
    struct adapter *a, *b;
    float w[5] = { 1, 2, 3, 4, 5 };
    uint64_t with;
    struct err e;

    (void)state;
    MUST(adapter_make(&a, "x", 1, &mat, 1, &e));
    assert_true(adapter_is_scales(a) && adapter_floats(a) == 6);
    for (int i = 0; i < 6; i++)
        a->mat[0].b[i] = (float)i / 8;
    a->record = "{\"steps\":7}"; /* is read again, and changes nothing of what it does */
    MUST(adapter_write(a, temporary("gguf"), "f16", &e));
    MUST(adapter_open(&b, temporary("gguf"), &e));
    assert_true(adapter_is_scales(b) && b->n == 1 && b->mat[0].n_out == 3 && b->mat[0].n_mat == 2);
    assert_string_equal(b->mat[0].name, "x.weight");
    assert_string_equal(b->record, "{\"steps\":7}");
    with = adapter_fingerprint(b);
    b->record = NULL;
    assert_true(with == adapter_fingerprint(b));
    assert_memory_equal(b->mat[0].b, a->mat[0].b, 6 * sizeof *w);
    adapter_merge_row(b, &b->mat[0], 4, 0.5f, w, 5);
    for (int i = 0; i < 5; i++)
        assert_true(w[i] == (float)(i + 1) * 1.25f);
    adapter_close(a);
    adapter_close(b);
}

/* What does not fit is told in the sizes that its file has: scales have no inputs. */
static void fits_no_other_model(void **state)
{
    const struct adapter_mat scale = { "blk.0.ssm_out.weight", 0, 77, 1, 0, false, NULL, NULL };
    const struct adapter_mat low = { "blk.0.ssm_out.weight", 33, 77, 1, 2, false, NULL, NULL };
    const struct gguf_tensor *t;
    struct gguf *g;
    struct adapter *a;
    struct err e;
    char want[200];

    (void)state;
    MUST(gguf_open(&g, "tests/golden/models/qwen35moe-a.gguf", &e));
    t = gguf_find(g, scale.name);
    assert_non_null(t);
    for (int i = 0; i < 2; i++) {
        MUST(adapter_make(&a, "qwen35moe", 1, i == 0 ? &scale : &low, 1, &e));
        assert_int_equal(adapter_check(a, g, &e), ERR_FORMAT);
        if (i == 0)
            (void)snprintf(want, sizeof want, "matrix of 77 outputs, the model's has %lld", (long long)t->ne[1]);
        else
            (void)snprintf(want, sizeof want, "matrix of 33 inputs and 77 outputs, the model's has %lld and %lld",
                           (long long)t->ne[0], (long long)t->ne[1]);
        assert_non_null(strstr(e.msg, want));
        adapter_close(a);
    }
    gguf_close(g);
}

/* A file with these keys and tensors, of zeros; a value NULL: without the key. */
static void put_file(const char *type, const char *kind, const char *arch, float alpha, const char *name_a,
                     const char *name_b, int64_t rank_a)
{
    const int64_t ne_a[2] = { 8, rank_a }, ne_b[2] = { 4, 8 };
    struct gguf_writer *w;
    struct err e;

    MUST(gguf_write_open(&w, temporary("gguf"), &e));
    if (type != NULL)
        MUST(gguf_write_str(w, "general.type", str_of(type), &e));
    if (kind != NULL)
        MUST(gguf_write_str(w, "adapter.type", str_of(kind), &e));
    if (arch != NULL)
        MUST(gguf_write_str(w, "general.architecture", str_of(arch), &e));
    if (alpha != 99)
        MUST(gguf_write_f32(w, "adapter.lora.alpha", alpha, &e));
    if (name_a != NULL)
        MUST(gguf_write_tensor(w, str_of(name_a), QUANT_f32, 2, ne_a, &e));
    if (name_b != NULL)
        MUST(gguf_write_tensor(w, str_of(name_b), QUANT_f32, 2, ne_b, &e));
    if (name_a != NULL)
        MUST(gguf_write_data(w, NULL, (size_t)(8 * rank_a) * sizeof(float), &e));
    if (name_b != NULL)
        MUST(gguf_write_data(w, NULL, 32 * sizeof(float), &e));
    MUST(gguf_write_commit(w, &e));
}

static void refused(const char *says)
{
    struct adapter *a;
    struct err e = { 0 };

    if (adapter_open(&a, made, &e) == ERR_OK)
        fail_msg("taken, not refused: %s", says);
    if (strstr(e.msg, says) == NULL || strstr(e.msg, made) == NULL || strchr(e.msg, '\n') != NULL)
        fail_msg("\"%s\" does not say \"%s\" of %s in a line", e.msg, says, made);
    assert_int_equal(unlink(made), 0);
}

static void bad_files_are_refused(void **state)
{
    (void)state;
    put_file("model", "lora", "x", 1, "m.lora_a", "m.lora_b", 4);
    refused("not an adapter");
    put_file(NULL, "lora", "x", 1, "m.lora_a", "m.lora_b", 4);
    refused("not an adapter");
    put_file("adapter", "loha", "x", 1, "m.lora_a", "m.lora_b", 4);
    refused("'loha'");
    put_file("adapter", "lora", NULL, 1, "m.lora_a", "m.lora_b", 4);
    refused("architecture");
    put_file("adapter", "lora", "x", 99, "m.lora_a", "m.lora_b", 4);
    refused("alpha is missing");
    put_file("adapter", "lora", "x", 0, "m.lora_a", "m.lora_b", 4);
    refused("alpha is 0");
    put_file("adapter", "lora", "x", NAN, "m.lora_a", "m.lora_b", 4);
    refused("alpha is");
    put_file("adapter", "lora", "x", 1, NULL, NULL, 4);
    refused("no tensors");
    put_file("adapter", "lora", "x", 1, "m.lora_a", NULL, 4);
    refused("no lora_b");
    put_file("adapter", "lora", "x", 1, NULL, "m.lora_b", 4);
    refused("no lora_a");
    put_file("adapter", "lora", "x", 1, "m.lora_a", "m.lora_c", 4);
    refused("has no lora_b");
    put_file("adapter", "lora", "x", 1, "m.norm", "m.lora_b", 4);
    refused("neither");
    put_file("adapter", "lora", "x", 1, "m.lora_a", "m.lora_b", 5);
    refused("rank 5 in lora_a, 4");
}

/* ---- the forward pass ---- */

static float *run_ids(struct run *r, int seq, const int32_t *ids, int n)
{
    struct err e;
    const int32_t n_vocab = run_n_vocab(r);
    struct rows out = { malloc((size_t)n * (size_t)n_vocab * sizeof(float)), 0, n_vocab };

    run_clear(r, seq);
    MUST(run_feed(r, seq, ids, n, n, rows_sink, &out, NULL, &e));
    return out.v;
}

static double furthest(const float *x, const float *y, int64_t n)
{
    double worst = 0;

    for (int64_t i = 0; i < n; i++)
        worst = fmax(worst, fabs((double)x[i] - (double)y[i]));
    return worst;
}

static void some_ids(int32_t *ids, int n, int32_t n_vocab, uint64_t seed)
{
    for (int i = 0; i < n; i++)
        ids[i] = (int32_t)(rng_unit(seed, 0, (uint64_t)i) * n_vocab);
}

/* Row r of a tensor of the model, and what the adapter does to it: float32, sums in double. */
static void merged_row(float *row, const struct gguf_tensor *t, int64_t r, const struct adapter *a, double scale)
{
    quant_types[t->type]->decode(row, (const unsigned char *)t->data + r * quant_row_bytes(t->type, t->ne[0]),
                                 t->ne[0]);
    for (size_t k = 0; k < a->n; k++) {
        const struct adapter_mat *m = &a->mat[k];
        const int64_t e = r / t->ne[1], o = r % t->ne[1];

        if (!str_is(t->name, m->name))
            continue;
        for (int64_t i = 0; i < m->n_in; i++) {
            double sum = 0;

            for (int j = 0; j < m->rank; j++)
                sum += m->rows ? (double)m->a[o * m->rank + j] * (double)m->b[i * m->rank + j]
                               : (double)m->a[(e * m->rank + j) * m->n_in + i] *
                                     (double)m->b[(e * m->n_out + o) * m->rank + j];
            row[i] += (float)(sum * scale * (double)a->alpha / m->rank);
        }
    }
}

static void write_merged(const char *path, const struct gguf *g, const struct adapter *a, double scale)
{
    struct gguf_writer *w;
    struct err e;

    MUST(gguf_write_open(&w, path, &e));
    for (size_t i = 0; i < gguf_n_kv(g); i++)
        MUST(gguf_write_kv(w, gguf_kv_at(g, i), &e));
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);

        MUST(gguf_write_tensor(w, t->name, QUANT_f32, t->n_dims, t->ne, &e));
    }
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        float *row = malloc((size_t)t->ne[0] * sizeof *row);

        assert_non_null(row);
        for (int64_t r = 0; r < t->ne[1] * t->ne[2] * t->ne[3]; r++) {
            merged_row(row, t, r, a, scale);
            MUST(gguf_write_data(w, row, (size_t)t->ne[0] * sizeof *row, &e));
        }
        free(row);
    }
    MUST(gguf_write_commit(w, &e));
}

static const char *checked; /* the device instead of the one under test */

static void open_model_on(struct rig *rig, int devices, const char *path, const struct run_opts *o)
{
    const struct model_opts mo = { .device = checked, .n_threads = 2, .acts = QUANT_ACTS_F32 };
    struct err e;

    MUST(gguf_open(&rig->g, path, &e));
    if (checked != NULL)
        MUST(model_open(&rig->m, rig->g, &mo, &e));
    else
        test_model_open(&rig->m, rig->g, mo, devices);
    MUST(run_open(&rig->r, rig->m, o, &e));
    rig->n_vocab = model_info(rig->m)->n_vocab;
}

static void open_model(struct rig *rig, const char *path, const struct run_opts *o)
{
    open_model_on(rig, 1, path, o);
}

static void check_against_merged(const char *path)
{
    const struct run_opts o = { .ctx_tokens = 64, .n_seq = 2, .adapter_rank = 2 * ODD_RANK };
    struct rig base, merged;
    struct model_adapter *b;
    int32_t ids[N_IDS];
    struct err e;

    open_model(&base, path, &o);
    struct adapter *a = adapter_for_all(base.m, base.g, ODD_RANK, 3);
    const int64_t n = (int64_t)N_IDS * base.n_vocab;
    some_ids(ids, N_IDS, base.n_vocab, 5);
    MUST(model_adapter_open(&b, base.m, a, &e));
    write_merged(temporary("merged.gguf"), base.g, a, 0.75);
    open_model(&merged, made, &o);
    const struct run_adapter list[2] = { { b, 0.5f }, { b, 0.25f } };
    float *plain = run_ids(base.r, 0, ids, N_IDS), *want = run_ids(merged.r, 0, ids, N_IDS);
    MUST(run_set_adapters(base.r, 0, list, 2, &e));
    float *got = run_ids(base.r, 0, ids, N_IDS);
    print_message("%-44s %3zu matrices, moved by %.3f, off by %.2e\n", path, a->n, furthest(plain, want, n),
                  furthest(got, want, n));
    assert_true(furthest(plain, want, n) > 0.1);
    assert_true(furthest(got, want, n) <= (strcmp(test_device(), "cpu") == 0 ? 2e-3 : 2e-2));
    free(plain);
    free(want);
    free(got);
    rig_close(&merged);
    assert_int_equal(unlink(made), 0);
    run_close(base.r);
    base.r = NULL;
    model_adapter_close(b);
    adapter_close(a);
    rig_close(&base);
}

static void every_matrix_of_every_model(void **state)
{
    (void)state;
    each_model("tests/golden/models", check_against_merged);
}

/* Four sequences: without, with one, with another scale, with two in turn. Together, on two devices that have layers
 * each, and alone, on two that share every layer. */
enum { SEQS = 4 };

static int list_of(int seq, struct model_adapter *const *b, struct run_adapter out[2])
{
    out[0] = (struct run_adapter){ b[seq == 3], seq == 2 ? -0.5f : 1.0f };
    out[1] = (struct run_adapter){ b[0], 0.25f };
    return seq == 0 ? 0 : seq == 3 ? 2 : 1;
}

static void check_side_by_side(const char *path)
{
    const struct run_opts o = { .ctx_tokens = 64, .n_seq = SEQS, .rows_max = 64, .adapter_rank = 2 * RANK };
    const struct run_opts none = { .ctx_tokens = 64 };
    struct rig rig, plain;
    struct run *bare;
    struct adapter *a[2];
    struct model_adapter *b[2], *c[2];
    struct run_adapter list[2];
    struct run_row rows[SEQS * N_IDS];
    int32_t ids[N_IDS];
    float *alone[SEQS];
    struct err e;

    open_model_on(&rig, 2, path, &o);
    open_model_on(&plain, -2, path, &o);
    MUST(run_open(&bare, plain.m, &none, &e));
    for (int i = 0; i < 2; i++) {
        a[i] = adapter_for_all(rig.m, rig.g, RANK, (uint64_t)(10 + i));
        MUST(model_adapter_open(&b[i], rig.m, a[i], &e));
        MUST(model_adapter_open(&c[i], plain.m, a[i], &e));
    }
    const size_t width = (size_t)rig.n_vocab * sizeof(float);
    some_ids(ids, N_IDS, rig.n_vocab, 6);
    for (int q = 0; q < SEQS; q++) {
        MUST(run_set_adapters(rig.r, q, list, list_of(q, b, list), &e));
        MUST(run_set_adapters(plain.r, q, list, list_of(q, c, list), &e));
        alone[q] = run_ids(q == 0 ? bare : plain.r, q, ids, N_IDS);
        for (int i = 0; i < q && i < SEQS; i++)
            assert_true(furthest(alone[q], alone[i], (int64_t)N_IDS * rig.n_vocab) > 0.01);
    }
    for (int at = 0, many = 7; at < N_IDS; at += many, many = 1) {
        int n = 0;

        for (int i = 0; i < many; i++)
            for (int q = 0; q < SEQS; q++)
                rows[n++] = (struct run_row){ ids[at + i], q, true, false };
        MUST(run_step(rig.r, rows, n, &e));
        for (int i = 0; i < n; i++)
            if (memcmp(run_logits(rig.r, i), alone[i % SEQS] + (int64_t)(at + i / SEQS) * rig.n_vocab, width) != 0)
                fail_msg("%s: sequence %d, row %d: other bytes than alone", path, i % SEQS, at + i / SEQS);
    }
    for (int q = 0; q < SEQS; q++)
        free(alone[q]);
    run_close(bare);
    run_close(rig.r);
    run_close(plain.r);
    rig.r = plain.r = NULL;
    for (int i = 0; i < 2; i++) {
        model_adapter_close(b[i]);
        model_adapter_close(c[i]);
        adapter_close(a[i]);
    }
    rig_close(&rig);
    rig_close(&plain);
}

static void rows_side_by_side(void **state)
{
    (void)state;
    each_model("tests/golden/models", check_side_by_side);
    check_side_by_side("tests/golden/models/qwen35moe-k.iq3_s.gguf");
}

/* Every kernel against the scalar code. */
static void as_the_scalar_code(void **state)
{
    (void)state;
    checked = "check:cpu";
    check_side_by_side("tests/golden/models/qwen35moe-a.gguf");
    checked = NULL;
}

/* Numbers that half precision has are kept so on the CPU. One that it has not makes floats of all; where it changes no
 * product, the bytes are the same. */
static void halves_are_floats(void **state)
{
    const struct run_opts o = { .ctx_tokens = 64, .adapter_rank = RANK };
    struct rig rig;
    struct adapter *a;
    struct model_adapter *b;
    int32_t ids[N_IDS];
    struct err e;

    (void)state;
    open_model(&rig, "tests/golden/models/qwen35moe-a.gguf", &o);
    a = adapter_for_all(rig.m, rig.g, RANK, 21);
    some_ids(ids, N_IDS, rig.n_vocab, 9);
    size_t i = 0;
    while (a->mat[i].rows)
        i++;
    for (int64_t k = 0; k < adapter_b_floats(&a->mat[i]); k += RANK)
        a->mat[i].b[k] = 0.0f;
    MUST(model_adapter_open(&b, rig.m, a, &e));
    const struct run_adapter one = { b, 1.0f };
    MUST(run_set_adapters(rig.r, 0, &one, 1, &e));
    float *halves = run_ids(rig.r, 0, ids, N_IDS);
    a->mat[i].a[0] = 0.1f;
    model_adapter_update(b);
    run_clear(rig.r, 0);
    MUST(run_set_adapters(rig.r, 0, &one, 1, &e));
    float *floats = run_ids(rig.r, 0, ids, N_IDS);
    assert_memory_equal(halves, floats, (size_t)(N_IDS * rig.n_vocab) * sizeof *floats);
    free(halves);
    free(floats);
    run_close(rig.r);
    rig.r = NULL;
    model_adapter_close(b);
    adapter_close(a);
    rig_close(&rig);
}

/* What a sequence holds is never gone on with by another list, or by floats that have changed. */
static void sequences_keep_to_their_adapters(void **state)
{
    const struct run_opts o = { .ctx_tokens = 64, .n_seq = 3, .adapter_rank = RANK };
    struct rig rig;
    struct adapter *a;
    struct model_adapter *b;
    int32_t ids[N_IDS];
    struct err e;

    (void)state;
    open_model(&rig, "tests/golden/models/qwen35moe-a.gguf", &o);
    a = adapter_for_all(rig.m, rig.g, RANK, 20);
    MUST(model_adapter_open(&b, rig.m, a, &e));
    some_ids(ids, N_IDS, rig.n_vocab, 8);
    const int64_t n = (int64_t)N_IDS * rig.n_vocab;
    const struct run_adapter one[2] = { { b, 1.0f }, { b, 1.0f } }, nothing = { b, 0.0f };
    float *plain = run_ids(rig.r, 0, ids, N_IDS);
    MUST(run_set_adapters(rig.r, 0, &nothing, 1, &e)); /* scale 0: none */
    assert_int_equal(run_pos(rig.r, 0), N_IDS);
    MUST(run_set_adapters(rig.r, 0, one, 1, &e));
    assert_int_equal(run_pos(rig.r, 0), 0);
    float *with = run_ids(rig.r, 0, ids, N_IDS);
    MUST(run_set_adapters(rig.r, 0, one, 1, &e));
    assert_int_equal(run_pos(rig.r, 0), N_IDS);
    assert_true(run_has_adapters(rig.r, 0, one, 1) && !run_has_adapters(rig.r, 0, one, 0));
    MUST(run_fork(rig.r, 1, 0, &e));
    assert_true(run_has_adapters(rig.r, 1, one, 1));
    assert_int_equal(run_set_adapters(rig.r, 2, one, 2, &e), ERR_ARG); /* more ranks than there is room for */
    assert_int_equal(run_set_adapters(rig.r, 2, &(struct run_adapter){ b, NAN }, 1, &e), ERR_ARG);
    assert_int_equal(run_set_adapters(rig.r, 3, one, 1, &e), ERR_ARG);
    a->mat[0].b[0] += 4.0f;
    model_adapter_update(b);
    assert_false(run_has_adapters(rig.r, 0, one, 1));
    assert_int_equal(run_step(rig.r, &(struct run_row){ ids[0], 0, true, false }, 1, &e), ERR_ARG);
    assert_non_null(strstr(e.msg, "changed"));
    float *changed = run_ids(rig.r, 0, ids, N_IDS);
    assert_true(furthest(plain, with, n) > 0.1 && furthest(changed, with, n) > 1e-3);
    a->mat[0].b[0] -= 4.0f;
    model_adapter_update(b);
    MUST(run_set_adapters(rig.r, 0, one, 1, &e));
    float *again = run_ids(rig.r, 0, ids, N_IDS);
    assert_memory_equal(with, again, (size_t)n * sizeof *with);
    MUST(run_set_adapters(rig.r, 0, NULL, 0, &e));
    float *without = run_ids(rig.r, 0, ids, N_IDS);
    assert_memory_equal(plain, without, (size_t)n * sizeof *plain);
    free(plain);
    free(with);
    free(changed);
    free(again);
    free(without);
    run_close(rig.r);
    rig.r = NULL;
    model_adapter_close(b);
    adapter_close(a);
    rig_close(&rig);
}

/* A session goes on with its adapters alone. */
static void sessions_keep_to_their_adapters(void **state)
{
    const struct run_opts o = { .ctx_tokens = 64, .n_seq = 2, .adapter_rank = RANK };
    struct run_session *s;
    struct adapter *a;
    struct model_adapter *b;
    int32_t ids[N_IDS];
    struct rig rig;
    struct err e;

    (void)state;
    open_model(&rig, "tests/golden/models/qwen35moe-a.gguf", &o);
    a = adapter_for_all(rig.m, rig.g, RANK, 20);
    MUST(model_adapter_open(&b, rig.m, a, &e));
    some_ids(ids, N_IDS, rig.n_vocab, 8);
    const struct run_adapter list = { b, 0.5f }, other = { b, 0.75f };
    const struct run_session_id with = { 1, "tiny + some", run_adapters_hash(&list, 1) }, without = { 1, "tiny", 0 },
                                more = { 1, "tiny + more", run_adapters_hash(&other, 1) };
    MUST(run_set_adapters(rig.r, 0, &list, 1, &e));
    free(run_ids(rig.r, 0, ids, N_IDS));
    MUST(run_session_open(&s, temporary("session"), &e));
    MUST(run_session_attach(s, rig.r, &with, &e));
    MUST(run_session_save(s, rig.r, 0, NULL, 0, &e));
    assert_int_equal(run_session_save(s, rig.r, 1, NULL, 0, &e), ERR_ARG);
    assert_int_equal(run_session_load(s, rig.r, 1, N_IDS, &e), ERR_ARG);
    MUST(run_set_adapters(rig.r, 1, &list, 1, &e));
    MUST(run_session_load(s, rig.r, 1, N_IDS, &e));
    for (int q = 0; q < 2; q++)
        MUST(run_step(rig.r, &(struct run_row){ ids[0], q, true, false }, 1, &e));
    run_session_close(s);
    MUST(run_session_open(&s, made, &e));
    assert_int_equal(run_session_attach(s, rig.r, &without, &e), ERR_FORMAT);
    assert_non_null(strstr(e.msg, "'tiny + some'"));
    run_session_close(s);
    MUST(run_session_open(&s, made, &e));
    assert_int_equal(run_session_attach(s, rig.r, &more, &e), ERR_FORMAT);
    run_session_close(s);
    assert_int_equal(unlink(made), 0);
    run_close(rig.r);
    rig.r = NULL;
    model_adapter_close(b);
    adapter_close(a);
    rig_close(&rig);
}

/* Requests through the engine: prompts that begin alike, in a few sequences, with different adapters. Each has the
 * answer that it has alone, and what it did not read again was made with its own adapters. */
enum { REQUESTS = 24, SHARED = 40 };

static void requests_with_their_adapters(void **state)
{
    const struct run_opts o = {
        .ctx_tokens = CTX, .n_seq = 6, .rows_max = 48, .adapter_rank = 2 * RANK, .checkpoint_bytes = 8 << 20
    };
    const struct run_opts one = { .ctx_tokens = CTX, .adapter_rank = 2 * RANK };
    struct rig rig, alone;
    struct adapter *a[2];
    struct model_adapter *b[2];
    struct run_adapter list[2];
    struct ask_for *asks = calloc(REQUESTS, sizeof *asks);
    struct answered want;
    int64_t id, cached = 0;
    struct gen_event ev;
    struct gen *g;
    struct err e;
    int n_answer[REQUESTS] = { 0 }, ended = 0;
    int32_t answer[REQUESTS][ANSWER_MAX];

    (void)state;
    assert_non_null(asks);
    open_model(&rig, "tests/golden/models/qwen35moe-a.gguf", &o);
    alone = rig;
    MUST(run_open(&alone.r, rig.m, &one, &e));
    for (int i = 0; i < 2; i++) {
        a[i] = adapter_for_all(rig.m, rig.g, RANK, (uint64_t)(10 + i));
        MUST(model_adapter_open(&b[i], rig.m, a[i], &e));
    }
    const int n_default = list_of(1, b, list);
    MUST(gen_open(&g, &(struct gen_opts){ .run = rig.r, .end_token = -1, .adapters = list, .n_adapters = n_default },
                  &e));
    for (int i = 0; i < REQUESTS; i++) {
        struct ask_for *k = &asks[i];
        struct gen_request q;

        k->n_prompt = SHARED + (i < 8 ? 0 : i % 5);
        k->predict_max = 4 + i % 4;
        k->sample = sample_defaults();
        k->sample.temp = 1;
        k->sample.seed = (uint64_t)i;
        some_ids(k->prompt, SHARED, rig.n_vocab, 30);
        some_ids(k->prompt + SHARED, k->n_prompt - SHARED, rig.n_vocab, (uint64_t)(31 + i));
        q = request_of(k);
        q.user = k;
        q.n_adapters = list_of(i % 4, b, list);
        q.adapters = list;
        if (i % 8 == 1) /* those of gen_opts */
            q.n_adapters = -1;
        MUST(gen_submit(g, &q, &id, &e));
    }
    struct gen_request bad = request_of(&asks[0]);
    bad.n_adapters = RUN_ADAPTERS_MAX + 1;
    bad.adapters = (struct run_adapter[RUN_ADAPTERS_MAX + 1]){ { b[0], 1 } };
    assert_int_equal(gen_submit(g, &bad, &id, &e), ERR_ARG);
    while (gen_busy(g)) {
        MUST(gen_step(g, &e));
        while (gen_next(g, &ev)) {
            const int i = (int)((struct ask_for *)ev.user - asks);

            if (ev.kind == GEN_TOKEN)
                answer[i][n_answer[i]++] = ev.pick.token;
            if (ev.kind == GEN_BEGIN)
                cached += ev.stats.cached_tokens;
            ended += ev.kind == GEN_END && ev.end == GEN_LENGTH;
        }
    }
    assert_int_equal(ended, REQUESTS);
    print_message("%lld tokens were there\n", (long long)cached);
    assert_true(cached > 8 * SHARED / 2);
    for (int i = 0; i < REQUESTS; i++) {
        MUST(run_set_adapters(alone.r, 0, list, list_of(i % 4, b, list), &e));
        answer_alone(&alone, &asks[i], &want);
        assert_int_equal(n_answer[i], want.n - asks[i].n_prompt);
        assert_memory_equal(answer[i], want.token + asks[i].n_prompt, (size_t)n_answer[i] * sizeof(int32_t));
    }
    gen_close(g);
    run_close(alone.r);
    run_close(rig.r);
    rig.r = NULL;
    for (int i = 0; i < 2; i++) {
        model_adapter_close(b[i]);
        adapter_close(a[i]);
    }
    free(asks);
    rig_close(&rig);
}

/* ---- the reference ---- */

struct set {
    const char *file, *name[2];
    float scale[2];
};

static void check_reference(const char *lora, const char *dir, const char *model, const struct set *s)
{
    const struct run_opts o = { .ctx_tokens = 64, .adapter_rank = 16 };
    struct adapter *a[2] = { NULL, NULL };
    struct run_adapter list[2];
    char path[2 * PATH_BYTES];
    int64_t n_ids = 0, n_ref = 0;
    int n = 0;
    struct rig rig;
    struct err e;

    (void)snprintf(path, sizeof path, "%s/%s", lora, model);
    open_model(&rig, path, &o);
    for (; n < 2 && s->name[n] != NULL; n++) {
        struct model_adapter *b;

        (void)snprintf(path, sizeof path, "%s/%s/%s.gguf", lora, dir, s->name[n]);
        MUST(adapter_open(&a[n], path, &e));
        MUST(model_adapter_open(&b, rig.m, a[n], &e));
        list[n] = (struct run_adapter){ b, s->scale[n] };
    }
    (void)snprintf(path, sizeof path, "%s/%s/ids.i32", lora, dir);
    int32_t *ids = words_of(path, &n_ids);
    (void)snprintf(path, sizeof path, "%s/%s/%s.logits.f32", lora, dir, s->file);
    float *ref = words_of(path, &n_ref);
    assert_non_null(ids);
    assert_non_null(ref);
    MUST(run_set_adapters(rig.r, 0, list, n, &e));
    float *got = logits_of(&rig, ids, n_ids, n_ref / rig.n_vocab);
    const double off = furthest(got, ref, n_ref);
    print_message("%-50s %.2e\n", path + strlen(lora), off);
    assert_true(off <= (strcmp(test_device(), "cpu") == 0 ? 5e-4 : 2e-2));
    free(ids);
    free(ref);
    free(got);
    run_close(rig.r);
    rig.r = NULL;
    for (int i = 0; i < n; i++) {
        model_adapter_close((struct model_adapter *)(uintptr_t)list[i].adapter);
        adapter_close(a[i]);
    }
    rig_close(&rig);
}

static const char *lora_dir(void)
{
    static char path[PATH_BYTES];
    const char *goldens = getenv("GOLDENS");

    if (goldens == NULL || *goldens == '\0')
        skip();
    (void)snprintf(path, sizeof path, "%s/lora", goldens);
    return path;
}

static void reference_logits(void **state)
{
    static const struct set sets[] = {
        { "r4.s1", { "r4", NULL }, { 1, 0 } },        { "r4.s05", { "r4", NULL }, { 0.5f, 0 } },
        { "r8.s1", { "r8", NULL }, { 1, 0 } },        { "r8.s05", { "r8", NULL }, { 0.5f, 0 } },
        { "both", { "r4", "r8" }, { 1, 0.5f } },      { "embd.s1", { "embd", NULL }, { 1, 0 } },
        { "q5_k_m.r4.s1", { "r4", NULL }, { 1, 0 } }, { "q5_k_m.both", { "r4", "r8" }, { 1, 0.5f } },
    };
    const char *lora = lora_dir();

    (void)state;
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        const bool quantized = strncmp(sets[i].file, "q5", 2) == 0, embd = strncmp(sets[i].file, "embd", 4) == 0;

        if (!quantized) {
            check_reference(lora, "qwen35moe-a", "../models/qwen35moe-a.gguf", &sets[i]);
            check_reference(lora, "nemotronhmoe-a", "../models/nemotronhmoe-a.gguf", &sets[i]);
        }
        if (!embd)
            check_reference(lora, "nano",
                            quantized ? "../../models/chimere-nano-q5_k_m.gguf" : "../../models/chimere-nano-bf16.gguf",
                            &sets[i]);
    }
}

static void invalid_ones_are_refused(void **state)
{
    const char *lora = lora_dir();
    char path[2 * PATH_BYTES];
    struct rig rig;
    int n = 0, taken = 0;

    (void)state;
    (void)snprintf(path, sizeof path, "%s/../models/qwen35moe-a.gguf", lora);
    open_model(&rig, path, &(struct run_opts){ .ctx_tokens = 64 });
    (void)snprintf(path, sizeof path, "%s/invalid", lora);
    DIR *d = opendir(path);
    assert_non_null(d);
    for (struct dirent *f = readdir(d); f != NULL; f = readdir(d)) {
        struct adapter *a = NULL;
        struct model_adapter *b = NULL;
        struct err e = { 0 };

        if (strstr(f->d_name, ".gguf") == NULL)
            continue;
        (void)snprintf(path, sizeof path, "%s/invalid/%s", lora, f->d_name);
        n++;
        if (adapter_open(&a, path, &e) == ERR_OK && model_adapter_open(&b, rig.m, a, &e) == ERR_OK) {
            assert_string_equal(f->d_name, "ok.gguf");
            taken++;
        } else {
            print_message("%s\n", e.msg + strlen(lora) + 1);
        }
        model_adapter_close(b);
        adapter_close(a);
    }
    closedir(d);
    assert_true(n > 15 && taken == 1);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_and_read),
        cmocka_unit_test(no_adapter_is_made_of_nonsense),
        cmocka_unit_test(scales),
        cmocka_unit_test(fits_no_other_model),
        cmocka_unit_test(bad_files_are_refused),
        cmocka_unit_test(every_matrix_of_every_model),
        cmocka_unit_test(rows_side_by_side),
        cmocka_unit_test(as_the_scalar_code),
        cmocka_unit_test(halves_are_floats),
        cmocka_unit_test(sequences_keep_to_their_adapters),
        cmocka_unit_test(sessions_keep_to_their_adapters),
        cmocka_unit_test(requests_with_their_adapters),
        cmocka_unit_test(reference_logits),
        cmocka_unit_test(invalid_ones_are_refused),
    };

    test_filter();
    return cmocka_run_group_tests_name("adapt", tests, NULL, NULL);
}
