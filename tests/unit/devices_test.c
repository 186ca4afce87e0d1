/* SPDX-License-Identifier: Apache-2.0 */
/* devices_test.c - several devices for a model: names, which device gets which layers, plans whose budgets are short,
 * parts of every layer, one that fails in the middle of a step. */
#include <unistd.h>

#include "base/rng.h"
#include "gen/gen.h"
#include "golden.h"
#include "model/forward.h"
#include "part.h"
#include "ops/ops.h"
#include "ops/table.h"
#include "run/cut.h"
#include "run/internal.h"
#include "run/placement.h"
#include "run/session.h"

static const char *const nano = "share/models/chimere-nano-q5_k_m.gguf";
static const char *const model_a = "tests/golden/models/qwen35moe-a.gguf";

static void ok(enum err_code code, const struct err *e)
{
    if (code != ERR_OK)
        fail_msg("%s", e->msg);
}

static void lists_of_names(void **state)
{
    static const struct {
        const char *names;
        int n; /* 0: refused */
    } list[] = { { "cpu", 1 },
                 { "cpu,cpu", 2 },
                 { "cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu", DEV_LIST_MAX },
                 { "cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu", 0 },
                 { "check:cpu,check:cpu", 2 },
                 { "cuda:0,cuda:3", 2 },
                 { "cuda,cuda:1", 2 },
                 { "check:cpu,cpu", 0 },
                 { "cpu,cuda", 0 },
                 { "cuda:0,cpu", 0 },
                 { "cpu,", 0 },
                 { ",cpu", 0 },
                 { "cpu,,cpu", 0 },
                 { ",", 0 },
                 { "auto,auto", 0 },
                 { "cuda:0,cuda:all", 0 },
                 { "cuda:x,cuda:1", 0 },
                 { "a-name-that-is-longer-than-any-device-has-it,cpu", 0 } };
    struct dev_list l;
    struct dev *d;
    struct err e = { 0 };

    (void)state;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        const enum err_code code = dev_list_parse(&l, list[i].names, &e);

        assert_int_equal(dev_check_name(list[i].names, &e), code);
        assert_int_equal(code, list[i].n > 0 ? ERR_OK : ERR_ARG);
        if (code == ERR_OK)
            assert_int_equal(l.n, list[i].n);
        else
            assert_null(strchr(e.msg, '\n'));
    }
    assert_int_equal(dev_open(&d, "cpu,cpu", &(struct dev_opts){ .n_threads = 1 }, &e), ERR_ARG);
}

/* ---- which layers ---- */

enum { LAYERS = 7, DEVS = 3 };

struct cut {
    struct run_cut c;
    bool may[LAYERS];
    int64_t bytes[LAYERS], reads[LAYERS], room[DEVS], beside[DEVS];
    double speed[DEVS];
    uint64_t seed, at;
};

static uint32_t some(struct cut *x, uint32_t n)
{
    uint32_t r[4];

    rng_block(r, x->seed, 7, x->at++);
    return r[0] % n;
}

/* The cost of ranges: false: there is no room, or no such cut. */
static bool cost_of(const struct cut *x, const int *first, int64_t *all, int64_t *most)
{
    *all = *most = 0;
    for (int d = 0; d < x->c.n_dev; d++) {
        const int end = d + 1 < x->c.n_dev ? first[d + 1] : x->c.n_layer;
        int64_t time = (int64_t)((double)x->beside[d] * 1e12 / x->speed[d]), bytes = 0;

        if (end <= first[d] || (d > 0 && !x->may[first[d]]))
            return false;
        for (int i = first[d]; i < end; i++) {
            time += (int64_t)((double)x->reads[i] * 1e12 / x->speed[d]) + 20000000;
            bytes += x->bytes[i];
        }
        if (bytes > x->room[d])
            return false;
        *all += time;
        *most = time > *most ? time : *most;
    }
    return true;
}

/* Against all ranges there are. */
static void ranges_of_layers(void **state)
{
    int found = 0, none = 0;

    (void)state;
    for (uint64_t seed = 0; seed < 400; seed++) {
        struct cut x = { .seed = seed };
        int64_t all = INT64_MAX, most = INT64_MAX, a, m;
        int first[DEVS], n = 0;
        struct err e = { 0 };
        bool fits;

        x.c = (struct run_cut){
            1 + (int)some(&x, LAYERS), 1 + (int)some(&x, DEVS), x.may, x.bytes, x.reads, x.room, x.speed, x.beside
        };
        for (int i = 0; i < LAYERS; i++) {
            x.may[i] = some(&x, 5) > 0;
            x.bytes[i] = 1 + some(&x, 100);
            x.reads[i] = some(&x, 1000000000);
        }
        for (int d = 0; d < DEVS; d++) {
            x.room[d] = some(&x, 4) == 0 ? INT64_MAX : some(&x, 400);
            x.speed[d] = 1e11 * (1 + some(&x, seed % 2 ? 1 : 8));
            x.beside[d] = d == x.c.n_dev - 1 ? some(&x, 1000000000) : 0;
        }
        for (int p = 0; p < LAYERS * LAYERS; p++) {
            const int v[DEVS] = { 0, p / LAYERS, p % LAYERS };

            if ((x.c.n_dev < 3 && p % LAYERS > 0) || (x.c.n_dev < 2 && p > 0) || !cost_of(&x, v, &a, &m))
                continue;
            n++;
            if (a < all || (a == all && m < most)) {
                all = a;
                most = m;
            }
        }
        if (run_cut_choose(first, &fits, &x.c, &e) != ERR_OK) {
            assert_int_equal(e.code, ERR_ARG);
            assert_int_equal(n, 0);
            continue;
        }
        assert_int_equal(fits, n > 0);
        found += n > 0;
        none += n == 0;
        if (n == 0)
            continue;
        assert_true(cost_of(&x, first, &a, &m));
        assert_int_equal(a, all);
        assert_int_equal(m, most);
    }
    assert_true(found > 100 && none > 20);
}

/* ---- plans ---- */

static float *logits_by(const struct gguf *g, const struct model_opts *mo, const struct run_opts *ro,
                        const struct run_placement *f)
{
    enum { N = 9 };
    int32_t ids[N];
    struct rig rig = { 0 };
    struct err e = { 0 };

    for (int i = 0; i < N; i++)
        ids[i] = 40 + i * 7;
    ok(model_open(&rig.m, g, mo, &e), &e);
    ok(run_open(&rig.r, rig.m, ro, &e), &e);
    rig.n_vocab = model_info(rig.m)->n_vocab;
    float *v = logits_of(&rig, ids, N, N);
    for (int k = 0; f != NULL && k < f->n_dev; k++) {
        const struct run_placement_part *p = &f->part[k];

        assert_int_equal((int64_t)dev_held(model_part(rig.m, k)), p->total_bytes - p->fixed_bytes);
        assert_true(p->budget_bytes == 0 || p->total_bytes <= p->budget_bytes);
        assert_true(model_place(rig.m).on[p->first] == k && model_place(rig.m).on[p->end - 1] == k);
    }
    run_close(rig.r);
    model_close(rig.m);
    return v;
}

/* Budgets that get smaller by 1 MiB in turns: what is planned is what is taken, and gives the bytes of one device;
 * where there is no plan, there is none with less either. */
static void short_budgets(void **state)
{
    const struct test_devices d = test_devices(2);
    const struct run_opts ro = { .ctx_tokens = 256, .rows_max = 16 };
    struct run_placement_opts o = { .model = { .device = d.names, .n_threads = 1, .acts = test_acts() }, .run = ro };
    const struct model_opts one = { .device = test_device(), .n_threads = 1, .acts = test_acts() };
    struct run_placement *whole, *f;
    int64_t budget[2];
    struct gguf *g;
    struct err e = { 0 };
    int planned = 0, shared = 0, refused = 0;

    (void)state;
    ok(gguf_open(&g, nano, &e), &e);
    ok(run_placement_make(&whole, g, &o, &e), &e);
    assert_int_equal(whole->n_dev, 2);
    assert_int_equal(whole->total_bytes, whole->part[0].total_bytes + whole->part[1].total_bytes);
    float *want = logits_by(g, &one, &ro, NULL);
    for (int k = 0; k < 2; k++)
        budget[k] = whole->part[k].total_bytes;
    o.budgets = budget;
    for (int i = 0; refused < 2; budget[i++ % 2] -= 1 << 20) {
        struct model_opts mo = o.model;

        if (run_placement_make(&f, g, &o, &e) != ERR_OK) {
            assert_int_equal(e.code, ERR_LIMIT);
            refused++;
            continue;
        }
        assert_int_equal(refused, 0);
        planned++;
        shared += f->experts != NULL;
        run_placement_apply(f, &mo);
        if (i % 5 == 0) {
            float *got = logits_by(g, &mo, &ro, f);

            if (strcmp(test_device(), "cpu") == 0 || f->experts == NULL)
                assert_memory_equal(got, want, 9 * 512 * sizeof *got);
            free(got);
        }
        run_placement_free(f);
    }
    print_message("%d plans, %d of them with experts on the host\n", planned, shared);
    assert_true(planned > 8 && shared > 4);
    run_placement_free(whole);
    free(want);
    gguf_close(g);
}

/* Cards that are not there: unlike ones, shares that were asked for, as few as there is room on. */
static void cards_elsewhere(void **state)
{
    static const double share[2] = { 3, 1 };
    int64_t budget[2] = { (int64_t)1 << 30, (int64_t)1 << 30 };
    struct run_placement_opts o = {
        .model = { .device = "cuda:0,cuda:1" }, .run = { .ctx_tokens = 256 }, .budgets = budget, .absent = true
    };
    struct run_placement *f;
    struct gguf *g;
    struct err e = { 0 };

    (void)state;
    ok(gguf_open(&g, model_a, &e), &e);
    ok(run_placement_make(&f, g, &o, &e), &e);
    assert_string_equal(f->device, "cuda:0,cuda:1");
    assert_true(f->part[0].end == f->part[1].first && f->part[1].end == f->n_layer && f->part[0].first == 0);
    assert_true(f->part[1].logits_bytes > 0 && f->part[0].logits_bytes == 0);
    run_placement_free(f);
    o.share = share;
    ok(run_placement_make(&f, g, &o, &e), &e);
    assert_int_equal(f->part[0].end, 3 * f->n_layer / 4);
    run_placement_free(f);
    o.share = NULL;
    o.fewest = true;
    ok(run_placement_make(&f, g, &o, &e), &e);
    assert_int_equal(f->n_dev, 1);
    assert_int_equal(f->n_named, 2);
    assert_string_equal(f->device, "cuda:0");
    run_placement_free(f);
    gguf_close(g);
}

/* ---- parts of every layer ---- */

enum { SHARED_IDS = 13, SHARED_LOGITS = 5 };

/* Hidden rows after every layer, and the last logits, of a prompt in two steps; then logits alone, of the same tokens
 * once more: nothing asks for the rows between layers. */
static float *rows_of(struct rig *rig, int64_t *n)
{
    const struct model_info *f = model_info(rig->m);
    const int64_t each = (int64_t)(f->n_layer + 2) * f->n_embd * f->n_streams, hidden = SHARED_IDS * each;
    int32_t ids[SHARED_IDS];
    struct err e = { 0 };

    *n = hidden + (int64_t)2 * SHARED_LOGITS * rig->n_vocab;
    float *v = calloc((size_t)*n, sizeof *v);
    struct rows out = { v + hidden, 0, rig->n_vocab };

    assert_non_null(v);
    for (int i = 0; i < SHARED_IDS; i++)
        ids[i] = 3 + i * 29;
    rig->r->hidden = v;
    ok(run_feed(rig->r, 0, ids, 7, 0, NULL, NULL, NULL, &e), &e);
    rig->r->hidden = v + 7 * each;
    ok(run_feed(rig->r, 0, ids + 7, SHARED_IDS - 7, SHARED_LOGITS, rows_sink, &out, NULL, &e), &e);
    rig->r->hidden = NULL;
    ok(run_feed(rig->r, 0, ids, SHARED_IDS, SHARED_LOGITS, rows_sink, &out, NULL, &e), &e);
    return v;
}

static const char *shared_kv = "f32"; /* types of keys and values */

/* On two, three and four devices, or as many as it has heads for: the bytes of one. */
static void share_every_layer(const char *path)
{
    const struct run_opts o = { .ctx_tokens = 300, .rows_max = 16, .kv_k = shared_kv, .kv_v = shared_kv };
    struct rig rig;
    int64_t n, n_one;

    rig_open(&rig, path, 1, &o);
    float *one = rows_of(&rig, &n_one);
    rig_close(&rig);
    for (int devices = 2; devices <= 4; devices++) {
        rig_open_on(&rig, -devices, path, 1, &o);
        float *v = rows_of(&rig, &n);
        const int members = dev_members(model_dev(rig.m));

        assert_int_equal(n, n_one);
        for (int64_t i = 0; i < n; i++)
            if (memcmp(&v[i], &one[i], sizeof *v) != 0)
                fail_msg("%s, %d devices: value %lld is %.9g, was %.9g", path, members, (long long)i, (double)v[i],
                         (double)one[i]);
        if (devices == 4)
            print_message("%s: %d devices\n", path, members);
        free(v);
        rig_close(&rig);
    }
    free(one);
}

static void parts_of_layers(void **state)
{
    (void)state;
    each_model("tests/golden/models", share_every_layer);
    shared_kv = "q8_0";
    share_every_layer("tests/golden/models/qwen35moe-k.iq3_s.gguf");
    shared_kv = "q4_0";
    share_every_layer(nano);
    shared_kv = "f32";
}

static void parts_of_layers_all(void **state)
{
    (void)state;
    each_golden(share_every_layer);
}

/* ---- columns that cross late ---- */

enum { WIDE = 96, HALF = WIDE / 2, DEEP = 4, TENSORS = 5, PAST = 2 };

static uint32_t draw(uint64_t seed, uint64_t *at, uint32_t n)
{
    uint32_t r[4];

    rng_block(r, seed, 8, (*at)++);
    return r[0] % n;
}

/* Some operation, on some of the tensors. */
static void any_operation(struct dev *d, const struct tensor *t, const struct tensor *w, const struct op_conv *conv,
                          uint64_t seed, uint64_t *at, bool measured)
{
    static const int32_t rows[2] = { 3, 1 };
    const uint32_t kind = draw(seed, at, 12), a = draw(seed, at, TENSORS), other = draw(seed, at, TENSORS - 1);
    const struct tensor y = t[a], x = t[(a + 1 + other) % TENSORS];
    const size_t mark = dev_mark(d);

    if (kind == 0) {
        op_matmul(d, y, w[0], x);
    } else if (kind == 1) {
        op_glu(d, y, y, x);
    } else if (kind == 2) {
        op_rms_norm(d, y, x, NULL, 0, WIDE >> draw(seed, at, 4), 1e-6f);
    } else if (kind == 3) {
        op_add(d, y, x, 0.5f);
    } else if (kind == 4) {
        op_heads_pick(d, op_cols(y, 0, HALF), x, 8, 16, 8);
    } else if (kind == 5) {
        op_rows_pick(d, op_slice(y, draw(seed, at, 2), 2), x, rows);
    } else if (kind == 6) {
        op_mul(d, op_cols(y, 8, HALF), op_cols(x, 8, HALF));
    } else if (kind == 7) { /* memory that is used again, for other columns */
        const struct tensor low = dev_scratch(d, WIDE, DEEP), high = dev_scratch(d, WIDE, DEEP);

        op_matmul(d, low, w[0], y);
        op_matmul(d, high, w[0], x);
        op_add(d, y, high, 1.0f);
    } else if (kind == 8) { /* borders elsewhere */
        op_matmul(d, op_cols(y, 0, HALF), w[1], x);
    } else if (kind == 9) { /* two with other borders */
        const struct tensor all = dev_scratch(d, WIDE, DEEP);
        const struct tensor gate = dev_scratch(d, HALF, DEEP), up = dev_scratch(d, HALF, DEEP);

        op_matmul(d, all, w[0], x);
        op_heads_pick(d, gate, all, 8, 16, 8);
        op_matmul(d, up, w[1], x);
        op_glu(d, up, gate, up);
        op_mul(d, op_cols(y, 0, HALF), up);
    } else if (kind == 10) { /* channels of heads */
        op_matmul(d, x, w[0], y);
        op_conv(d, y, x, conv, &(struct op_rows){ .n = DEEP, .n_seq = 1, .seq = &(struct op_seq){ .n = DEEP } });
    } else if (!measured) {
        dev_copy(d, (float *)y.data + y.stride + 4, (const float *)x.data + 2 * x.stride, 20 * sizeof(float));
    }
    dev_release(d, mark);
}

static void any_order_on(struct dev *d, const float *weights, uint64_t seed, float *out, bool measured)
{
    const struct dev_section by = { 16, 3, 2 };
    const struct dev_area area = { PAST * WIDE * sizeof(float), 1, { { 64, 3, 2 } } };
    const struct op_conv conv = { .taps = PAST + 1,
                                  .w = weights + (WIDE + HALF) * WIDE,
                                  .rec = { dev_alloc_areas(d, &area, 1), PAST * WIDE } };
    struct tensor w[2];
    uint64_t at = 0;

    for (int i = 0; i < 2; i++) {
        const int64_t n = i == 0 ? WIDE : HALF;
        const size_t bytes = (size_t)n * WIDE * sizeof *weights;
        const float *v = weights + (ptrdiff_t)i * WIDE * WIDE;
        const struct dev_pieces p = { v, bytes, 1, NULL, QUANT_f32, WIDE, n, &by, i == 0 && seed % 4 < 2 };

        w[i] = (struct tensor){
            .type = QUANT_f32, .ne = { WIDE, n, 1 }, .pitch = n, .data = (void *)(uintptr_t)dev_weights_pieces(d, &p)
        };
    }
    dev_begin(d);
    const struct tensor both = dev_scratch(d, 2 * WIDE, DEEP);
    struct tensor t[TENSORS] = { op_cols(both, 0, WIDE), op_cols(both, WIDE, WIDE) };

    for (int i = 2; i < TENSORS; i++)
        t[i] = dev_scratch(d, WIDE, DEEP);
    for (int i = 0; i < TENSORS * DEEP && !measured; i++)
        dev_copy(d, op_slice(t[i / DEEP], i % DEEP, 1).data, weights + (ptrdiff_t)i * WIDE, WIDE * sizeof(float));
    for (int i = 0; i < 12; i++)
        any_operation(d, t, w, &conv, seed, &at, measured);
    for (int i = 0; i < TENSORS * DEEP && !measured; i++)
        dev_copy(d, out + (ptrdiff_t)i * WIDE, op_slice(t[i / DEEP], i % DEEP, 1).data, WIDE * sizeof(float));
    dev_free(d, conv.rec.data, area.bytes);
}

/* Operations in any order, on tensors side by side, on some of their rows or columns, in scratch that is used again. */
static void any_order(void **state)
{
    const char *const names[] = { "cpu,cpu", "cpu,cpu,cpu" };
    float weights[(WIDE + HALF + PAST + 1) * WIDE], want[TENSORS * DEEP * WIDE], got[TENSORS * DEEP * WIDE];
    struct err e = { 0 };

    (void)state;
    for (int i = 0; i < (WIDE + HALF + PAST + 1) * WIDE; i++)
        weights[i] = (float)rng_unit(3, 0, (uint64_t)i) - 0.5f;
    for (int i = 0; i < 400; i++) {
        struct dev *d[2];
        struct dev_list l;

        ok(dev_open(&d[0], "cpu", &(struct dev_opts){ .n_threads = 1 }, &e), &e);
        ok(dev_list_parse(&l, names[i % 2], &e), &e);
        ok(dev_open_rows(&d[1], &l, &(struct dev_opts){ .n_threads = 1 }, &e), &e);
        for (int k = 0; k < 2; k++) {
            dev_measure(d[k], true);
            any_order_on(d[k], weights, (uint64_t)i, NULL, true);
            dev_measure(d[k], false);
            ok(dev_reserve(d[k], dev_scratch_peak(d[k]), &e), &e);
            any_order_on(d[k], weights, (uint64_t)i, k == 0 ? want : got, false);
            ok(dev_end(d[k], &e), &e);
            dev_close(d[k]);
        }
        for (int j = 0; j < TENSORS * DEEP * WIDE; j++)
            if (memcmp(&got[j], &want[j], sizeof *got) != 0)
                fail_msg("order %d: value %d is %.9g, not %.9g", i, j, (double)got[j], (double)want[j]);
    }
}

/* A token takes few exchanges, and a plan says how many. */
static void few_exchanges(void **state)
{
    struct run_placement_opts o = {
        .model = { .device = "cpu,cpu", .n_threads = 1, .acts = test_acts(), .placement = { .rows = true } },
        .run = { .ctx_tokens = 64, .rows_max = 16 }
    };
    struct run_placement *f;
    int32_t ids[3] = { 40, 47, 54 };
    int64_t before, bytes;
    struct err e = { 0 };
    struct gguf *g;
    struct rig rig;

    (void)state;
    ok(gguf_open(&g, nano, &e), &e);
    ok(run_placement_make(&f, g, &o, &e), &e);
    gguf_close(g);
    rig_open_on(&rig, -2, nano, 1, &o.run);
    ok(run_feed(rig.r, 0, ids, 2, 0, NULL, NULL, NULL, &e), &e);
    const int64_t n = dev_exchanges(model_dev(rig.m), &before);

    ok(run_feed(rig.r, 0, ids + 2, 1, 1, NULL, NULL, NULL, &e), &e);
    assert_int_equal(dev_exchanges(model_dev(rig.m), &bytes) - n, f->exchanges);
    assert_int_equal(bytes - before, f->exchange_bytes);
    assert_int_equal(f->exchanges, 33);
    rig_close(&rig);
    run_placement_free(f);
}

/* More devices than a layer has heads; weights in RAM, in whatever layout; counted as they lie. */
static void odd_shares(void **state)
{
    struct model_opts mo = {
        .device = "cpu,cpu,cpu", .n_threads = 1, .acts = test_acts(), .placement = { .rows = true }
    };
    const struct run_opts ro = { .ctx_tokens = 64, .rows_max = 16 };
    const struct model_opts single = { .device = "cpu", .n_threads = 1, .acts = test_acts() };
    struct model *m;
    struct gguf *g;
    struct err e = { 0 };

    (void)state;
    ok(gguf_open(&g, nano, &e), &e);
    assert_int_equal(model_open(&m, g, &mo, &e), ERR_ARG);
    assert_string_equal(e.msg, "--split rows: 3 devices cannot share every layer: layer 3 has 2 heads");
    mo.device = "cuda:0,cuda:1";
    mo.placement.dry_run = mo.placement.absent = true;
    assert_int_equal(model_open(&m, g, &mo, &e), ERR_UNSUPPORTED);
    mo.placement.dry_run = mo.placement.absent = false;
    float *want = logits_by(g, &single, &ro, NULL);
    for (int i = 0; i < 3; i++) {
        mo.device = i < 2 ? "cpu,cpu" : "check:cpu,check:cpu";
        mo.placement.copy_weights = i > 0;
        float *got = logits_by(g, &mo, &ro, NULL);

        assert_memory_equal(got, want, 9 * 512 * sizeof *got);
        free(got);
    }
    free(want);
    gguf_close(g);
}

/* Areas are for the caller as if they were whole, and each device has its part alone. */
static void areas(void **state)
{
    /* 3 and 2 heads twice: the second device has one more of the three, both have what is alone */
    static const struct dev_area area[2] = {
        { 4 * 60 + 16, 3, { { 8, 3, 1 }, { 4, 2, 2 }, { 20, 1, 1 } } },
        { 128, 1, { { 64, 1, 1 } } },
    };
    unsigned char want[4 * 60], got[4 * 60];
    struct dev_list l;
    struct dev *d;
    struct err e = { 0 };

    (void)state;
    ok(dev_list_parse(&l, "cpu,cpu", &e), &e);
    ok(dev_open_rows(&d, &l, &(struct dev_opts){ .n_threads = 1 }, &e), &e);
    unsigned char *p = dev_alloc_areas(d, area, 2);

    assert_non_null(p);
    for (size_t i = 0; i < sizeof want; i++)
        want[i] = (unsigned char)(1 + i);
    dev_copy(d, p, want, sizeof want);
    dev_copy(d, got, p, sizeof got);
    assert_memory_equal(got, want, sizeof want);
    dev_copy(d, got, p + 60 + 21, 10); /* across the border of two pieces and of two sections */
    assert_memory_equal(got, want + 60 + 21, 10);
    dev_copy(d, p + 120, p, 120); /* periods, on the devices */
    memcpy(want + 120, want, 120);
    dev_zero(d, p + 60, 60);
    memset(want + 60, 0, 60);
    dev_copy(d, p + 120 + 44, want + 1, 3); /* what both have */
    memcpy(want + 120 + 44, want + 1, 3);
    dev_copy(d, got, p, sizeof got);
    assert_memory_equal(got, want, sizeof want);
    assert_int_equal(dev_members(d), 2);
    assert_int_equal(dev_area_bytes(d, p, 0), 4 * (8 + 2 * 4 + 20));
    assert_int_equal(dev_area_bytes(d, p, 1), 4 * (16 + 2 * 4 + 20));
    assert_int_equal(dev_area_bytes(d, p + 4 * 60 + 16, 1), 128);
    assert_int_equal(dev_areas_bytes(d, p, 0), 192 + 128);
    assert_int_equal(dev_held(dev_member(d, 1)), 192 + 128);
    dev_free(d, p, 4 * 60 + 16 + 128);
    assert_int_equal(dev_held(d), 0);
    dev_close(d);
}

/* ---- one that fails ---- */

static struct {
    struct dev_table table; /* one for both: rows pass between devices of one kind */
    const struct dev_table *own;
    void *ctx[2];
    int failing; /* the device */
    long left;   /* its products until then; < 0: it has failed */
} fault;

/* "Later calls do nothing." */
static void failing_matmul(void *ctx, struct tensor y, struct tensor w, struct tensor x)
{
    if (ctx == fault.ctx[fault.failing] && fault.left >= 0)
        fault.left--;
    if (ctx != fault.ctx[fault.failing] || fault.left >= 0)
        fault.own->matmul(ctx, y, w, x);
}

static void each_failing(void *ctx, const struct op_product *p, int n, struct tensor x)
{
    for (int i = 0; i < n; i++)
        failing_matmul(ctx, p[i].y, p[i].w, x);
}

static enum err_code failing_end(void *ctx, struct err *e)
{
    return ctx == fault.ctx[fault.failing] && fault.left < 0 ? err_set(e, ERR_DEVICE, "fallen off the bus") : ERR_OK;
}

/* One of two devices, which have layers each or share all of them. */
static struct dev *one_of_two(const struct rig *rig, int i)
{
    return model_n_devs(rig->m) == 2 ? model_part(rig->m, i) : dev_member(model_part(rig->m, 0), i);
}

/* Device k of two fails at a product. */
static void break_at(struct rig *rig, int k, long product)
{
    fault.failing = k;
    fault.left = product;
    for (int i = 0; i < 2; i++) {
        struct dev_impl *impl = dev_test_impl(one_of_two(rig, i));

        fault.own = i == 0 ? impl->table : fault.own;
        fault.ctx[i] = impl->ctx;
    }
    fault.table = *fault.own;
    fault.table.matmul = failing_matmul;
    fault.table.matmuls = each_failing;
    fault.table.end = failing_end;
    for (int i = 0; i < 2; i++)
        dev_test_impl(one_of_two(rig, i))->table = &fault.table;
}

static void says(const struct err *e, const char *part)
{
    if (strstr(e->msg, part) == NULL || strchr(e->msg, '\n') != NULL)
        fail_msg("\"%s\" does not say \"%s\"", e->msg, part);
}

/* At every product of a step, on either of two devices: the step's error names the device, and so do those of later
 * steps. devices: as of rig_open_on(). */
static long fails_everywhere(int devices)
{
    const struct run_row rows[3] = { { 5, 0, true, false }, { 6, 1, false, false }, { 7, 0, true, false } };
    long steps = 0;

    for (int k = 0; k < 2; k++)
        for (long at = 0, done = 0; !done; at++) {
            struct err e = { 0 };
            struct rig rig;

            rig_open_on(&rig, devices, model_a, 1, &(struct run_opts){ .ctx_tokens = 64, .n_seq = 2 });
            break_at(&rig, k, at);
            done = run_step(rig.r, rows, 3, &e) == ERR_OK; /* the step has fewer products */
            for (int again = 0; again < 2 && !done; again++) {
                assert_int_equal(e.code, ERR_DEVICE);
                says(&e, k == 0 ? "device 1 of 2: fallen" : "device 2 of 2: fallen");
                e = (struct err){ 0 };
                assert_int_equal(run_step(rig.r, rows + 1, 1, &e), ERR_DEVICE);
            }
            steps += !done;
            rig_close(&rig);
        }
    return steps;
}

static void one_fails(void **state)
{
    (void)state;
    if (strcmp(test_device(), "cpu") != 0)
        skip();
    const long layers = fails_everywhere(2), rows = fails_everywhere(-2);

    print_message("%ld and %ld failures\n", layers, rows);
    assert_true(layers > 20 && rows > layers / 2);
}

/* All requests of the step end with the error; what was saved before is whole, and goes on elsewhere. */
static void requests_end(void **state)
{
    const int32_t prompt[6] = { 5, 9, 13, 17, 21, 25 }, next = 8;
    const struct run_session_id id = { 7, "two", 0 };
    char path[] = "/tmp/chimere-devices-XXXXXX";
    const int fd = mkstemp(path);
    struct run_session *file;
    struct gen_event ev;
    struct err e = { 0 };
    struct rig rig, other;
    struct gen *g;
    int failed = 0;
    int64_t n;

    (void)state;
    assert_true(fd >= 0);
    (void)close(fd);
    (void)unlink(path);
    if (strcmp(test_device(), "cpu") != 0)
        skip();
    rig_open_on(&rig, 2, model_a, 1, &(struct run_opts){ .ctx_tokens = 64, .n_seq = 3, .rows_max = 16 });
    ok(run_feed(rig.r, 2, prompt, 6, 0, NULL, NULL, NULL, &e), &e);
    ok(run_session_open(&file, path, &e), &e);
    ok(run_session_attach(file, rig.r, &id, &e), &e);
    ok(run_session_save(file, rig.r, 2, NULL, 0, &e), &e);
    run_session_close(file);
    ok(gen_open(&g, &(struct gen_opts){ .run = rig.r, .end_token = -1 }, &e), &e);
    for (int i = 0; i < 2; i++)
        ok(gen_submit(g,
                      &(struct gen_request){ .prompt = prompt,
                                             .n_prompt = 3 + i,
                                             .predict_max = 20,
                                             .text_max = -1,
                                             .sample = sample_defaults() },
                      &n, &e),
           &e);
    break_at(&rig, 1, 60);
    for (enum err_code code = ERR_OK; code == ERR_OK;) {
        assert_true(gen_busy(g));
        code = gen_step(g, &e);
        while (code == ERR_OK && gen_next(g, &ev))
            if (ev.kind == GEN_END)
                fail_msg("an answer has ended: %s", ev.err.msg);
    }
    says(&e, "device 2 of 2: fallen");
    while (gen_next(g, &ev)) {
        if (ev.kind != GEN_END)
            continue;
        assert_int_equal(ev.end, GEN_FAILED);
        says(&ev.err, "device 2 of 2: fallen");
        failed++;
    }
    assert_int_equal(failed, 2);
    gen_close(g);
    rig_close(&rig);

    rig_open(&rig, model_a, 1, &(struct run_opts){ .ctx_tokens = 64 });
    rig_open(&other, model_a, 1, &(struct run_opts){ .ctx_tokens = 64 });
    ok(run_session_open(&file, path, &e), &e);
    ok(run_session_attach(file, rig.r, &id, &e), &e);
    ok(run_session_load(file, rig.r, 0, INT64_MAX, &e), &e);
    run_session_close(file);
    ok(run_feed(rig.r, 0, &next, 1, 1, NULL, NULL, NULL, &e), &e);
    ok(run_feed(other.r, 0, prompt, 6, 0, NULL, NULL, NULL, &e), &e);
    ok(run_feed(other.r, 0, &next, 1, 1, NULL, NULL, NULL, &e), &e);
    assert_memory_equal(run_logits_last(rig.r), run_logits_last(other.r), (size_t)rig.n_vocab * sizeof(float));
    rig_close(&rig);
    rig_close(&other);
    (void)unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_of_names),      cmocka_unit_test(ranges_of_layers),
        cmocka_unit_test(short_budgets),       cmocka_unit_test(cards_elsewhere),
        cmocka_unit_test(parts_of_layers),     cmocka_unit_test(odd_shares),
        cmocka_unit_test(parts_of_layers_all), cmocka_unit_test(areas),
        cmocka_unit_test(one_fails),           cmocka_unit_test(requests_end),
        cmocka_unit_test(any_order),           cmocka_unit_test(few_exchanges),
    };

    test_filter();
    return cmocka_run_group_tests_name("devices", tests, NULL, NULL);
}
