/* SPDX-License-Identifier: Apache-2.0 */
/* placement_test.c - experts that stay on the host: the order in which they leave; models that are split compute what
 * whole ones do; what a plan says is what is taken. The device under test is given a budget, also the CPU: then a
 * second CPU device has the other experts, and not a byte may differ. */
#include <math.h>

#include "base/rng.h"
#include "golden.h"
#include "model/forward.h"
#include "model/placement.h"
#include "ops/ops.h"
#include "program.h"
#include "run/placement.h"

static const char *const nano = "share/models/chimere-nano-q5_k_m.gguf";

static void ok(enum err_code code, const struct err *e)
{
    if (code != ERR_OK)
        fail_msg("%s", e->msg);
}

/* ---- placement ---- */

enum { LAYERS = 7, EXPERTS = 12, USED = 3 };

struct places {
    struct model_experts_layer layer[LAYERS];
    uint64_t uses[LAYERS * EXPERTS];
    uint64_t seed, at;
};

static uint32_t some(struct places *p, uint32_t n)
{
    uint32_t r[4];

    rng_block(r, p->seed, 1, p->at++);
    return r[0] % n;
}

static struct model_experts *place_in(const struct places *p, bool uses, int64_t room)
{
    struct model_experts *out;
    struct err e = { 0 };

    ok(model_experts_place(
           &out,
           &(struct model_experts_in){ LAYERS, EXPERTS, USED, p->layer, uses ? p->uses : NULL, room, 0, NULL, NULL },
           &e),
       &e);
    return out;
}

static int64_t bytes_of(const struct places *p, const struct model_experts *m)
{
    int64_t bytes = 0;

    for (int l = 0; l < LAYERS; l++) {
        int n = 0;

        for (int i = 0; i < EXPERTS; i++)
            n += m->here[l * EXPERTS + i];
        assert_int_equal(n, m->n_here[l]);
        bytes += n > 0 ? p->layer[l].more_bytes + n * p->layer[l].expert_bytes : 0;
    }
    return bytes;
}

/* Never above the room, exact sums; with more room nothing leaves, and in each layer what left is used least. */
static void check_rooms(struct places *p, bool uses)
{
    struct model_experts *all = place_in(p, uses, INT64_MAX), *last = place_in(p, uses, -5);
    int64_t total = bytes_of(p, all);

    for (int l = 0; l < LAYERS; l++) {
        assert_int_equal(all->n_here[l], p->layer[l].expert_bytes > 0 ? EXPERTS : 0);
        assert_int_equal(last->n_here[l], 0);
        assert_true(all->host_uses[l] == 0);
        assert_float_equal(last->host_uses[l], p->layer[l].expert_bytes > 0 ? USED : 0, 1e-9);
    }
    assert_int_equal(last->device_bytes, 0);
    for (int64_t room = 0; room <= total + 40; room += 1 + total / 97) {
        struct model_experts *m = place_in(p, uses, room);

        assert_int_equal(m->device_bytes, bytes_of(p, m));
        assert_true(m->device_bytes <= room);
        for (int i = 0; i < LAYERS * EXPERTS; i++)
            assert_true(m->here[i] || !last->here[i]);
        for (int l = 0; l < LAYERS; l++)
            for (int i = 0; i < EXPERTS * EXPERTS && uses; i++) {
                int in = l * EXPERTS + i / EXPERTS, out = l * EXPERTS + i % EXPERTS;

                if (m->here[in] && !m->here[out] && p->layer[l].expert_bytes > 0)
                    assert_true(p->uses[in] >= p->uses[out]);
            }
        model_experts_free(last);
        last = m;
    }
    model_experts_free(last);
    last = place_in(p, uses, total);
    assert_int_equal(last->device_bytes, total);
    model_experts_free(last);
    model_experts_free(all);
}

static void placement(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        struct places p = { .seed = seed };

        for (int l = 0; l < LAYERS; l++)
            p.layer[l] = (struct model_experts_layer){ some(&p, 4) == 0 ? 0 : 1 + some(&p, 1000), some(&p, 50) };
        p.layer[0].expert_bytes = 100;
        for (int i = 0; i < LAYERS * EXPERTS; i++)
            p.uses[i] = some(&p, 3) == 0 ? 0 : some(&p, 1u << (1 + some(&p, 20)));
        check_rooms(&p, false);
        check_rooms(&p, true);
    }
}

/* Alike experts leave in turns, one of each layer, the last layer first, the highest number first. */
static void alike_experts(void **state)
{
    struct places p = { .seed = 1 };

    (void)state;
    for (int l = 0; l < LAYERS; l++)
        p.layer[l] = (struct model_experts_layer){ 10, 1 };
    for (int64_t room = LAYERS; room <= LAYERS * (1 + 10 * EXPERTS); room++) {
        struct model_experts *m = place_in(&p, false, room);
        int64_t n = (room - LAYERS) / 10; /* experts that fit, as long as each layer has one */

        for (int l = 0; l < LAYERS && n >= LAYERS; l++) {
            assert_int_equal(m->n_here[l], n / LAYERS + (l < n % LAYERS));
            for (int i = 0; i < EXPERTS; i++)
                assert_int_equal(m->here[l * EXPERTS + i], i < m->n_here[l]);
        }
        model_experts_free(m);
    }
}

/* One expert in each layer is all that is used: the others leave first, everywhere. */
static void hot_experts(void **state)
{
    struct places p = { .seed = 1 };
    struct model_experts *m;

    (void)state;
    for (int l = 0; l < LAYERS; l++) {
        p.layer[l] = (struct model_experts_layer){ 10, 0 };
        p.uses[l * EXPERTS + (3 * l + 1) % EXPERTS] = 1000;
    }
    m = place_in(&p, true, 10 * LAYERS);
    for (int l = 0; l < LAYERS; l++) {
        assert_int_equal(m->n_here[l], 1);
        assert_true(m->here[l * EXPERTS + (3 * l + 1) % EXPERTS]);
        assert_true(m->host_uses[l] == 0);
    }
    model_experts_free(m);
}

/* What the host would wait for weighs: a layer with hotter experts left behind keeps its next one rather than a layer
 * with none. */
static void shared_waits(void **state)
{
    struct places p = { .seed = 1 };
    struct model_experts *m;

    (void)state;
    for (int l = 0; l < 2; l++)
        p.layer[l] = (struct model_experts_layer){ 10, 0 };
    for (int i = 0; i < EXPERTS; i++) {
        p.uses[i] = i < 4 ? 80 : 110; /* layer 0: four that are used less than any of layer 1, but together */
        p.uses[EXPERTS + i] = 100;
    }
    m = place_in(&p, true, 10 * (2 * EXPERTS - 6));
    assert_in_range(m->n_here[0], EXPERTS - 4, EXPERTS - 3);
    assert_in_range(m->n_here[1], EXPERTS - 3, EXPERTS - 2);
    model_experts_free(m);
}

/* ---- split models ---- */

static struct test_devices split_on; /* the devices that the layers are on */

static struct model_opts split_opts(void)
{
    return (struct model_opts){ .device = split_on.names, .n_threads = 1, .acts = test_acts() };
}

/* A rig whose experts are where a plan says. */
static void open_planned(struct rig *rig, const char *path, const struct run_opts *ro, bool count,
                         const struct run_placement *placement)
{
    struct model_opts mo = split_opts();
    struct err e = { 0 };

    memset(rig, 0, sizeof *rig);
    run_placement_apply(placement, &mo);
    mo.placement.count_sets = count;
    ok(gguf_open(&rig->g, path, &e), &e);
    ok(model_open(&rig->m, rig->g, &mo, &e), &e);
    ok(run_open(&rig->r, rig->m, ro, &e), &e);
    rig->n_vocab = model_info(rig->m)->n_vocab;
}

/* A rig whose experts have room for a share (in 64ths) of their bytes. */
static bool open_split(struct rig *rig, const char *path, const struct run_opts *ro, int share, const uint64_t *uses,
                       struct run_placement **placement)
{
    struct run_placement_opts o = { .model = split_opts(), .run = *ro, .uses = uses };
    struct run_placement *whole;
    struct err e = { 0 };
    struct gguf *g;
    int64_t experts, budget[MODEL_DEVS_MAX];

    ok(gguf_open(&g, path, &e), &e);
    ok(run_placement_make(&whole, g, &o, &e), &e);
    experts = whole->weights.device[MODEL_EXPERTS];
    /* room for what sharing takes besides: found by asking for less and less */
    for (int k = 0; k < whole->n_dev; k++)
        budget[k] = whole->part[k].total_bytes - 1 - whole->part[k].weights.device[MODEL_EXPERTS] * (63 - share) / 64;
    o.budgets = budget;
    *placement = NULL;
    for (int i = 0; experts > 0 && i < 64 && *placement == NULL; i++) {
        if (run_placement_make(placement, g, &o, &e) != ERR_OK)
            assert_int_equal(e.code, ERR_LIMIT);
        for (int k = 0; k < whole->n_dev; k++)
            budget[k] += experts / 32 / whole->n_dev;
    }
    run_placement_free(whole);
    gguf_close(g);
    if (experts == 0)
        return false;
    assert_non_null(*placement);
    open_planned(rig, path, ro, uses != NULL, *placement);
    return true;
}

static int on_host(const struct run_placement *f)
{
    int n = 0;

    for (int l = 0; f->experts != NULL && l < f->n_layer; l++)
        n += f->expert_bytes[l] > 0 ? f->n_expert - f->experts->n_here[l] : 0;
    return n;
}

static void run_program(struct rig *rig, struct rig *plain, uint64_t seed)
{
    struct program p = { .rig = rig, .seed = seed, .n_vocab = rig->n_vocab };

    for (int q = 0; q < SEQS; q++)
        run_clear(rig->r, q);
    for (int i = 0; i < 9; i++)
        switch (draw(&p, 6)) {
        case 0:
            undo(&p);
            break;
        case 1:
            fork_one(&p);
            break;
        case 2:
            feed(&p, (int)draw(&p, SEQS), 1 + (int)draw(&p, 30));
            break;
        default:
            step(&p);
        }
    step(&p);
    compare(&p, plain);
}

/* Uses that make some experts of every layer hot. */
static uint64_t *some_uses(const struct run_placement *f)
{
    struct places p = { .seed = 99 };
    uint64_t *v = calloc((size_t)f->n_layer * (size_t)f->n_expert + 1, sizeof *v);

    assert_non_null(v);
    for (int i = 0; i < f->n_layer * f->n_expert; i++)
        v[i] = some(&p, 2) == 0 ? some(&p, 10) : 100 + some(&p, 1000);
    return v;
}

/* Random steps, undo and forks; then each sequence from its first token, all rows at once: bytes of the whole
 * model on the host, of one split the same way elsewhere. */
static void check_split(const char *path)
{
    static const int shares[] = { 0, 20, 45, 63 };
    const struct run_opts ro = { .ctx_tokens = LEN_MAX, .n_seq = SEQS, .rows_max = STEP_MAX, .undo_tokens = UNDO };
    long programs = (program_count() + 99) / 100;
    uint64_t *uses = NULL;

    for (size_t i = 0; i < 2 * sizeof shares / sizeof shares[0]; i++) {
        struct run_placement *placement;
        struct rig rig, plain;
        bool host = strcmp(test_device(), "cpu") == 0;

        split_on = test_devices(1 + (int)i % 2);
        if (!open_split(&rig, path, &ro, shares[i / 2], i % 2 == 0 ? NULL : uses, &placement))
            break;
        if (uses == NULL)
            uses = some_uses(placement);
        if (host)
            rig_open(&plain, path, 1, &(struct run_opts){ .ctx_tokens = LEN_MAX });
        else
            open_planned(&plain, path, &ro, false, placement);
        assert_true(on_host(placement) > 0 || placement->n_dev > 1); /* other ranges may have room for all */
        for (long k = 0; k < programs; k++)
            run_program(&rig, &plain, (uint64_t)k);
        print_message("%s: %d experts on the host, %ld programs\n", path, on_host(placement), programs);
        rig_close(&rig);
        rig_close(&plain);
        run_placement_free(placement);
    }
    split_on = test_devices(1);
    free(uses);
}

static void split_models(void **state)
{
    (void)state;
    each_model("tests/golden/models", check_split);
    check_split(nano);
}

static void split_goldens(void **state)
{
    (void)state;
    each_golden(check_split);
}

/* The same tokens in steps of any size, one row included, whole and split. */
static void steps_alike(struct rig *rig)
{
    enum { N = 40 };
    int32_t tokens[N];
    size_t bytes = (size_t)rig->n_vocab * sizeof(float);
    float *all;

    for (int i = 0; i < N; i++)
        tokens[i] = 300 + 7 * i;
    all = logits_of(rig, tokens, N, N);
    for (int most = 1; most <= STEP_MAX; most++) {
        run_clear(rig->r, 0);
        for (int i = 0, n; i < N; i += n) {
            struct run_row rows[STEP_MAX];
            struct err e = { 0 };

            n = N - i < most ? N - i : most;
            for (int j = 0; j < n; j++)
                rows[j] = (struct run_row){ tokens[i + j], 0, true, false };
            ok(run_step(rig->r, rows, n, &e), &e);
            for (int j = 0; j < n; j++)
                if (memcmp(run_logits(rig->r, j), all + (int64_t)(i + j) * rig->n_vocab, bytes) != 0)
                    fail_msg("position %d differs in steps of %d", i + j, most);
        }
    }
    free(all);
}

static void steps_of_any_size(void **state)
{
    const struct run_opts ro = { .ctx_tokens = 64, .rows_max = STEP_MAX };
    struct run_placement *placement;
    struct rig rig;

    (void)state;
    rig_open(&rig, nano, 1, &ro);
    steps_alike(&rig);
    rig_close(&rig);
    assert_true(open_split(&rig, nano, &ro, 30, NULL, &placement));
    steps_alike(&rig);
    rig_close(&rig);
    run_placement_free(placement);
}

/* Logits of a split model are near those of the whole one, wherever the experts are. */
static void near_the_whole(void **state)
{
    enum { N = 40 };
    const struct run_opts ro = { .ctx_tokens = 256 };
    int32_t tokens[N];
    struct run_placement *placement;
    struct rig split, whole;
    double off = 0, size = 0;
    float *a, *b;

    (void)state;
    for (int i = 0; i < N; i++)
        tokens[i] = 300 + 7 * i;
    assert_true(open_split(&split, nano, &ro, 30, NULL, &placement));
    rig_open(&whole, nano, 1, &ro);
    a = logits_of(&split, tokens, N, N);
    b = logits_of(&whole, tokens, N, N);
    for (int64_t i = 0; i < (int64_t)N * whole.n_vocab; i++) {
        off += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        size += (double)b[i] * (double)b[i];
    }
    print_message("difference %.1e of the size\n", sqrt(off / size));
    const double most = test_acts() == QUANT_ACTS_I8 ? 0.1 : 0.02; /* measured on an H200: 0.029, 0.0052 */
    assert_true(off <= most * most * size);
    free(a);
    free(b);
    rig_close(&split);
    rig_close(&whole);
    run_placement_free(placement);
}

/* Every use of an expert is counted once, on the device or not. */
static void counted_uses(void **state)
{
    enum { N = 50 };
    const struct run_opts ro = { .ctx_tokens = 256, .rows_max = 7 };
    struct err e = { 0 };
    struct run_placement *placement, *again;
    struct rig rig;
    int32_t tokens[N];
    uint64_t *uses, *zero;

    (void)state;
    for (int i = 0; i < N; i++)
        tokens[i] = 300 + 7 * i;
    assert_true(open_split(&rig, nano, &ro, 30, NULL, &placement));
    zero = calloc((size_t)placement->n_layer * (size_t)placement->n_expert, sizeof *zero);
    rig_close(&rig);
    assert_true(open_split(&rig, nano, &ro, 30, zero, &again)); /* without any use: as without counts */
    assert_memory_equal(placement->experts->here, again->experts->here,
                        (size_t)placement->n_layer * (size_t)placement->n_expert);
    run_placement_free(again);
    uses = calloc((size_t)placement->n_layer * (size_t)placement->n_expert, sizeof *uses);
    assert_non_null(uses);
    assert_int_equal(model_n_expert(rig.m), placement->n_expert);
    ok(run_feed(rig.r, 0, tokens, N, 0, NULL, NULL, NULL, &e), &e);
    model_uses(rig.m, uses);
    for (int l = 0; l < placement->n_layer; l++) {
        uint64_t all = 0;

        for (int i = 0; i < placement->n_expert; i++)
            all += uses[l * placement->n_expert + i];
        assert_int_equal(all, placement->expert_bytes[l] > 0 ? N * placement->n_used : 0);
    }
    rig_close(&rig);
    /* what was used most is there */
    assert_true(open_split(&rig, nano, &ro, 30, uses, &again));
    double host = 0, blind = 0;
    for (int l = 0; l < placement->n_layer; l++)
        for (int i = 0; i < placement->n_expert; i++) {
            host += again->experts->here[l * placement->n_expert + i] ? 0 : (double)uses[l * placement->n_expert + i];
            blind +=
                placement->experts->here[l * placement->n_expert + i] ? 0 : (double)uses[l * placement->n_expert + i];
        }
    assert_true(host < blind);
    rig_close(&rig);
    run_placement_free(placement);
    run_placement_free(again);
    free(uses);
    free(zero);
}

/* Uses of each expert by some random tokens of a stream, computed on the CPU; of so many sets. */
static uint64_t *uses_of(uint64_t stream, int sets)
{
    const struct run_opts ro = { .ctx_tokens = RUN_PLACEMENT_TOKENS };
    const struct model_opts mo = { .device = "cpu", .n_threads = 1, .placement.count_sets = sets };
    int32_t tokens[RUN_PLACEMENT_TOKENS];
    struct err e = { 0 };
    struct model *m;
    struct gguf *g;
    struct run *r;
    uint64_t *uses;

    ok(gguf_open(&g, nano, &e), &e);
    ok(model_open(&m, g, &mo, &e), &e);
    ok(run_open(&r, m, &ro, &e), &e);
    for (int i = 0; i < RUN_PLACEMENT_TOKENS; i++)
        tokens[i] = (int32_t)(rng_unit(stream, 0, (uint64_t)i) * model_info(m)->n_vocab);
    ok(run_feed(r, 0, tokens, RUN_PLACEMENT_TOKENS, 0, NULL, NULL, NULL, &e), &e);
    uses = calloc((size_t)model_info(m)->n_layer * (size_t)model_n_expert(m), sizeof *uses);
    assert_non_null(uses);
    model_uses(m, uses);
    run_close(r);
    model_close(m);
    gguf_close(g);
    return uses;
}

/* Of 16 experts a row uses 4. Those are counted once in the first set, once in the second, with the next 4; a third
 * would be too large. */
static void sets(void **state)
{
    uint64_t *one = uses_of(1, 1), *two = uses_of(1, 2), *three = uses_of(1, 3), all[2] = { 0 };

    (void)state;
    for (int i = 0; i < 8 * 16; i++) {
        assert_in_range(two[i], 2 * one[i], one[i] + RUN_PLACEMENT_TOKENS);
        assert_int_equal(two[i], three[i]);
        all[0] += one[i];
        all[1] += two[i];
    }
    assert_int_equal(all[0], 8 * 4 * RUN_PLACEMENT_TOKENS);
    assert_int_equal(all[1], 8 * (4 + 8) * RUN_PLACEMENT_TOKENS);
    free(one);
    free(two);
    free(three);
}

/* Without counted uses as many experts of each layer are there as planned, but those that are used most; that follows
 * from the model alone, and holds for other tokens, too. */
static void measured_uses(void **state)
{
    const struct run_opts ro = { .ctx_tokens = 256, .rows_max = 7 };
    struct run_placement *placement[2];
    uint64_t *uses = uses_of(1, RUN_PLACEMENT_SETS), *others = uses_of(2, 1), blind = 0, host = 0;
    struct err e = { 0 };
    struct rig rig;

    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_true(open_split(&rig, nano, &ro, 30, NULL, &placement[i]));
        assert_false(placement[i]->measured);
        for (int l = 0; l < placement[0]->n_layer * placement[0]->n_expert && i == 1; l++)
            blind += placement[1]->experts->here[l] ? 0 : others[l];
        ok(run_placement_measure(placement[i], rig.g, 1 + 2 * i, &e), &e);
        assert_true(placement[i]->measured);
        rig_close(&rig);
    }
    for (int l = 0; l < placement[0]->n_layer; l++) {
        const bool *here = placement[0]->experts->here + l * placement[0]->n_expert;
        uint64_t least = UINT64_MAX, most = 0, away = 0, all = 0;
        int n = 0;

        for (int i = 0; i < placement[0]->n_expert; i++) {
            uint64_t u = uses[l * placement[0]->n_expert + i];

            assert_int_equal(here[i], placement[1]->experts->here[l * placement[0]->n_expert + i]);
            n += here[i];
            least = here[i] && u < least ? u : least;
            most = !here[i] && u > most ? u : most;
            away += here[i] ? 0 : u;
            all += u;
            host += here[i] ? 0 : others[l * placement[0]->n_expert + i];
        }
        assert_int_equal(n, placement[0]->experts->n_here[l]);
        assert_true(least >= most);
        assert_true(fabs(placement[0]->experts->host_uses[l] - (double)away / (double)all * placement[0]->n_used) <
                    1e-9);
    }
    assert_true(host < blind);
    print_message("other tokens: %.2f uses each on the host instead of %.2f\n", (double)host / RUN_PLACEMENT_TOKENS,
                  (double)blind / RUN_PLACEMENT_TOKENS);
    for (int i = 0; i < 2; i++)
        run_placement_free(placement[i]);
    free(uses);
    free(others);
}

/* ---- plans ---- */

static int64_t parts(const struct run_placement *f)
{
    int64_t n = f->fixed_bytes + f->kv_bytes + f->state_bytes + f->logits_bytes + f->scratch_bytes;

    for (int c = 0; c < MODEL_N_CLASSES; c++)
        n += f->weights.device[c];
    return n;
}

static int64_t all_weights(const struct run_placement *f, const bool device)
{
    int64_t n = 0;

    for (int c = 0; c < MODEL_N_CLASSES; c++)
        n += device ? f->weights.device[c] : f->weights.host[c];
    return n;
}

/* What is taken when the plan is followed is what it says. */
static void check_taken(const struct gguf *g, const struct run_placement_opts *o, const struct run_placement *f)
{
    struct model_opts mo = o->model;
    struct model *m = NULL;
    struct run *r = NULL;
    struct err e = { 0 };
    struct run_opts ro = o->run;
    const int32_t token = 5;

    run_placement_apply(f, &mo);
    run_placement_apply_run(f, &ro);
    ok(model_open(&m, g, &mo, &e), &e);
    ok(run_open(&r, m, &ro, &e), &e);
    assert_int_equal((int64_t)dev_held(model_dev(m)), f->total_bytes - f->fixed_bytes);
    ok(run_feed(r, 0, &token, 1, 1, NULL, NULL, NULL, &e), &e);
    assert_int_equal((int64_t)dev_held(model_dev(m)), f->total_bytes - f->fixed_bytes);
    assert_int_equal(model_host(m) == NULL ? 0 : (int64_t)dev_held(model_host(m)),
                     f->host_scratch_bytes + f->weights.copied);
    run_close(r);
    model_close(m);
}

static void check_plans(const char *path)
{
    struct run_placement_opts o = { .model = { .device = test_device(), .n_threads = 2 },
                                    .run = { .ctx_tokens = 700, .n_seq = 2, .rows_max = 100, .undo_tokens = 3 } };
    struct run_placement *f, *whole;
    struct gguf *g;
    struct err e = { 0 };
    int64_t least, last = 0;

    ok(gguf_open(&g, path, &e), &e);
    ok(run_placement_make(&whole, g, &o, &e), &e);
    assert_null(whole->experts);
    assert_int_equal(parts(whole), whole->total_bytes);
    assert_int_equal(all_weights(whole, false), whole->weights.host[MODEL_EMBEDDING]);
    check_taken(g, &o, whole);

    o.budget_bytes = whole->total_bytes; /* exactly enough */
    ok(run_placement_make(&f, g, &o, &e), &e);
    assert_null(f->experts);
    assert_int_equal(f->total_bytes, whole->total_bytes);
    run_placement_free(f);

    o.budget_bytes = 1;
    assert_int_equal(run_placement_make(&f, g, &o, &e), ERR_LIMIT);
    assert_non_null(strstr(e.msg, "too little"));
    if (whole->weights.device[MODEL_EXPERTS] == 0) {
        o.budget_bytes = whole->total_bytes - 1;
        assert_int_equal(run_placement_make(&f, g, &o, &e), ERR_LIMIT);
        run_placement_free(whole);
        gguf_close(g);
        return;
    }
    /* the least: found by bisection, then every budget up to all */
    int64_t lo = 1, hi = 2 * whole->total_bytes;
    while (hi - lo > 1) {
        o.budget_bytes = lo + (hi - lo) / 2;
        if (run_placement_make(&f, g, &o, &e) == ERR_OK) {
            hi = o.budget_bytes;
            run_placement_free(f);
        } else
            lo = o.budget_bytes;
    }
    least = hi;
    for (int i = 0; i <= 16; i++) {
        o.budget_bytes = least + (whole->total_bytes + 1000 - least) * i / 16;
        ok(run_placement_make(&f, g, &o, &e), &e);
        assert_int_equal(parts(f), f->total_bytes);
        assert_true(f->total_bytes <= o.budget_bytes);
        assert_true(f->kv_fallback || f->weights.device[MODEL_EXPERTS] >= last);
        /* nothing is forgotten: less only by what a device adds to each tensor */
        assert_true(all_weights(f, true) + all_weights(f, false) + (int64_t)f->n_layer * 3 * 320 >=
                    all_weights(whole, true));
        last = f->kv_fallback ? 0 : f->weights.device[MODEL_EXPERTS];
        check_taken(g, &o, f);
        run_placement_free(f);
    }
    run_placement_free(whole);
    gguf_close(g);
}

static void plans(void **state)
{
    (void)state;
    each_model("tests/golden/models", check_plans);
    check_plans(nano);
}

/* Where all fits but for large steps, steps are smaller; experts stay. Where they do not, steps are smaller still. */
static void smaller_steps(void **state)
{
    struct run_placement_opts o = {
        .model = { .device = "cuda" }, .run = { .ctx_tokens = 8192 }, .budget_bytes = (int64_t)8 << 30, .absent = true
    };
    struct model_opts mo = { 0 };
    struct run_placement *f;
    struct gguf *g;
    struct err e = { 0 };

    (void)state;
    ok(gguf_open(&g, nano, &e), &e);
    ok(run_placement_make(&f, g, &o, &e), &e);
    assert_int_equal(f->rows_max, RUN_PLACEMENT_ROWS);
    o.budget_bytes = f->total_bytes - 1;
    run_placement_free(f);
    ok(run_placement_make(&f, g, &o, &e), &e);
    assert_int_equal(f->rows_max, 2048);
    assert_null(f->experts);
    run_placement_apply(f, &mo);
    assert_int_equal(mo.placement.step_rows, 0);
    o.budget_bytes = f->total_bytes - 1;
    run_placement_free(f);
    ok(run_placement_make(&f, g, &o, &e), &e);
    assert_int_equal(f->rows_max, 1024);
    assert_true(on_host(f) > 0 && f->total_bytes <= o.budget_bytes);
    run_placement_free(f);
    gguf_close(g);
}

/* Keys and values are f16 on a GPU while there is a plan with that; then q8_0, then q8_0 and q4_0. Types that
 * are asked for stay. */
static void kv_types(void **state)
{
    struct run_placement_opts o = { .model = { .device = "cuda" },
                                    .run = { .ctx_tokens = 65536, .rows_max = 64 },
                                    .budget_bytes = (int64_t)8 << 30,
                                    .absent = true };
    static const char *const types[][2] = { { "f16", "f16" }, { "q8_0", "q8_0" }, { "q8_0", "q4_0" } };
    struct run_opts ro = { .ctx_tokens = 1 };
    struct run_placement *f;
    struct gguf *g;
    struct err e = { 0 };
    int64_t least[3], kv[3];

    (void)state;
    ok(gguf_open(&g, nano, &e), &e);
    for (int i = 0; i < 3; i++) { /* the smallest budget for each */
        int64_t lo = 0, hi = o.budget_bytes;

        o.run.kv_k = types[i][0];
        o.run.kv_v = types[i][1];
        while (hi - lo > 4096) {
            o.budget_bytes = lo + (hi - lo) / 2;
            if (run_placement_make(&f, g, &o, &e) == ERR_OK) {
                hi = o.budget_bytes;
                kv[i] = f->kv_bytes;
                assert_false(f->kv_fallback);
                run_placement_free(f);
            } else
                lo = o.budget_bytes;
        }
        least[i] = hi;
        o.budget_bytes = (int64_t)8 << 30;
    }
    assert_true(least[0] > least[1] && least[1] > least[2] && kv[0] > kv[1] && kv[1] > kv[2]);
    o.run.kv_k = o.run.kv_v = NULL;
    for (int i = 0; i < 6; i++) {
        int want = i / 2;

        o.budget_bytes = i % 2 == 1 ? least[want] : want == 0 ? (int64_t)8 << 30 : least[want - 1] - 4096;
        ok(run_placement_make(&f, g, &o, &e), &e);
        assert_string_equal(f->kv_k, types[want][0]);
        assert_string_equal(f->kv_v, types[want][1]);
        assert_int_equal(f->kv_bytes, kv[want]);
        assert_int_equal(f->kv_fallback, want > 0);
        ro.kv_k = ro.kv_v = NULL;
        run_placement_apply_run(f, &ro);
        assert_ptr_equal(ro.kv_v, f->kv_v);
        run_placement_free(f);
    }
    o.budget_bytes = least[2] - 4096;
    assert_int_equal(run_placement_make(&f, g, &o, &e), ERR_LIMIT);
    o.budget_bytes = least[0] - 4096;
    o.run.kv_k = o.run.kv_v = "f16";
    assert_int_equal(run_placement_make(&f, g, &o, &e), ERR_LIMIT);
    o = (struct run_placement_opts){ .run = { .ctx_tokens = 64 } };
    ok(run_placement_make(&f, g, &o, &e), &e);
    assert_string_equal(f->kv_k, "f32");
    run_placement_free(f);
    gguf_close(g);
}

/* What a program without CUDA plans for a GPU is what one with CUDA plans, within a hundredth. */
static void same_without_cuda(const char *path)
{
    struct run_placement_opts o = { .model = { .device = "cuda" }, .budget_bytes = (int64_t)8 << 30, .absent = true };
    struct run_placement *real, *estimate;
    struct gguf *g;
    struct err e = { 0 };

    ok(gguf_open(&g, path, &e), &e);
    for (int rows = 16; rows <= 4096; rows *= 16)
        for (int64_t ctx = 512; ctx <= 32768; ctx *= 8) {
            o.run = (struct run_opts){ .ctx_tokens = ctx, .rows_max = rows, .adapter_rank = rows > 16 ? 16 : 0 };
            const bool two = ctx == 4096 && rows > 16;

            o.model.device = two ? "cuda:0,cuda:1" : "cuda";
            ok(run_placement_make(&real, g, &o, &e), &e);
            o.model.device = two ? "absent,absent" : "absent";
            ok(run_placement_make(&estimate, g, &o, &e), &e);
            assert_false(estimate->own_scratch || estimate->present || estimate->is_host);
            assert_int_equal(estimate->n_dev, real->n_dev);
            assert_int_equal(estimate->first[1], real->first[1]);
            assert_int_equal(estimate->kv_bytes, real->kv_bytes);
            assert_int_equal(estimate->state_bytes, real->state_bytes);
            assert_int_equal(all_weights(estimate, true), all_weights(real, true));
            assert_int_equal(all_weights(estimate, false), all_weights(real, false));
            if (llabs(estimate->total_bytes - real->total_bytes) > real->total_bytes / 100 + (4 << 20))
                fail_msg("%s: %d rows, context %lld: %lld bytes of scratch, really %lld", path, rows, (long long)ctx,
                         (long long)estimate->scratch_bytes, (long long)real->scratch_bytes);
            run_placement_free(real);
            run_placement_free(estimate);
        }
    gguf_close(g);
}

static void without_cuda(void **state)
{
    (void)state;
    each_model("tests/golden/models", same_without_cuda);
    same_without_cuda(nano);
}

/* A device that is not there is planned for only when asked to, and given a size. */
static void absent(void **state)
{
    struct run_placement_opts o = {
        .model = { .device = "cuda" }, .run = { .ctx_tokens = 64 }, .budget_bytes = (int64_t)8 << 30, .absent = true
    };
    struct run_placement *f;
    struct gguf *g;
    struct err e = { 0 };

    (void)state;
    ok(gguf_open(&g, nano, &e), &e);
    ok(run_placement_make(&f, g, &o, &e), &e);
    assert_null(f->experts);
    assert_true(f->fixed_bytes > 0 && f->total_bytes < o.budget_bytes);
    assert_int_equal(parts(f), f->total_bytes);
    assert_true(f->weights.host[MODEL_EMBEDDING] > 0 && f->weights.device[MODEL_EMBEDDING] == 0);
    run_placement_free(f);
    o.model.nextn = true; /* the block looks up tokens that are on the device */
    ok(run_placement_make(&f, g, &o, &e), &e);
    assert_true(f->weights.host[MODEL_EMBEDDING] == 0 && f->weights.device[MODEL_EMBEDDING] > 0);
    o.model.nextn = false;
    o.budget_bytes = f->total_bytes - f->weights.device[MODEL_EXPERTS] / 2;
    run_placement_free(f);
    ok(run_placement_make(&f, g, &o, &e), &e);
    assert_true(on_host(f) > 0 && f->total_bytes <= o.budget_bytes);
    run_placement_free(f);
    o.budget_bytes = RUN_PLACEMENT_FIXED / 4;
    assert_int_equal(run_placement_make(&f, g, &o, &e), ERR_LIMIT);
    gguf_close(g);
}

int main(void)
{
    split_on = test_devices(1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(placement),
        cmocka_unit_test(alike_experts),
        cmocka_unit_test(hot_experts),
        cmocka_unit_test(shared_waits),
        cmocka_unit_test(split_models),
        cmocka_unit_test(split_goldens),
        cmocka_unit_test(steps_of_any_size),
        cmocka_unit_test(near_the_whole),
        cmocka_unit_test(counted_uses),
        cmocka_unit_test(sets),
        cmocka_unit_test(measured_uses),
        cmocka_unit_test(plans),
        cmocka_unit_test(absent),
        cmocka_unit_test(smaller_steps),
        cmocka_unit_test(kv_types),
        cmocka_unit_test(without_cuda),
    };

    return cmocka_run_group_tests_name("placement", tests, NULL, NULL);
}
