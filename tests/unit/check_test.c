/* SPDX-License-Identifier: Apache-2.0 */
/* check_test.c - with the device "check:NAME" every operation but the products, on ragged, small and large shapes, of
 * the device under test (CHIMERE_TEST_DEVICE; the cpu's kernels by default) against the scalar CPU: outputs are
 * poisoned before, what lies beside them must not change. */
#include "cpu_rig.h"
#include "golden.h"
#include "model/forward.h"
#include "ops/table.h"
#include "part.h"

enum { GUARD = 64 };

/* ---- operations of the device under test ---- */

static struct dev *dut;

static void *put(const void *from, size_t n)
{
    void *p = dev_alloc(dut, n);

    assert_non_null(p);
    dev_copy(dut, p, from, n);
    return p;
}

static float *put_floats(int64_t n, float scale)
{
    float *v = floats(n, scale);
    float *p = put(v, (size_t)n * sizeof *v);

    free(v);
    return p;
}

/* Rows `pad` floats apart, and a guard after them. */
static struct tensor put_rows(int64_t ne0, int64_t ne1, int64_t pad, float scale)
{
    struct tensor t = { .type = QUANT_f32, .ne = { ne0, ne1, 1 }, .stride = ne0 + pad };

    t.data = put_floats(t.stride * ne1 + GUARD, scale);
    return t;
}

/* For results: all NaN. */
static struct tensor put_poison(int64_t ne0, int64_t ne1, int64_t pad)
{
    struct tensor t = put_rows(ne0, ne1, pad, 1.0f);
    size_t n = (size_t)(t.stride * ne1 + GUARD);
    float *v = need(n * sizeof *v);

    poison(v, (int64_t)n);
    dev_copy(dut, t.data, v, n * sizeof *v);
    free(v);
    return t;
}

static void drop(struct tensor t)
{
    dev_free(dut, t.data, (size_t)(t.stride * t.ne[1] + GUARD) * sizeof(float));
}

/* A result: nothing in it is NaN still, what follows it is. */
static void take(struct tensor y)
{
    size_t n = (size_t)(y.stride * y.ne[1] + GUARD);
    float *v = need(n * sizeof *v);

    dev_copy(dut, v, y.data, n * sizeof *v);
    for (int64_t r = 0; r < y.ne[1]; r++) {
        for (int64_t c = 0; c < y.ne[0]; c++)
            assert_true(!isnan(v[r * y.stride + c]));
        assert_poison(v + r * y.stride + y.ne[0], y.stride - y.ne[0]);
    }
    assert_poison(v + y.stride * y.ne[1], GUARD);
    free(v);
    drop(y);
}

static void begin(void)
{
    dev_begin(dut);
}

static void end(const char *what)
{
    struct err e = { 0 };

    if (dev_end(dut, &e) != ERR_OK)
        fail_msg("%s: %s", what, e.msg);
}

static const int64_t shapes[][2] = { { 1, 1 }, { 3, 2 }, { 37, 3 }, { 256, 1 }, { 100, 70 }, { 2048, 1 }, { 4099, 5 } };
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static void elementwise(void **state)
{
    (void)state;
    for (int i = 0; i < SHAPES; i++)
        for (int op = 0; op < 10; op++) {
            int64_t n = shapes[i][0], m = shapes[i][1];
            struct tensor y = put_rows(n, m, 5, 4), x = put_rows(n, m, 3, 4), z = put_rows(n, m, 0, 4);
            struct tensor g = put_rows(1, m, 2, 4), out = put_poison(n, m, 7);

            begin();
            switch (op) {
            case 0:
                op_add(dut, y, x, 0.7f);
                break;
            case 1:
                op_add_gated(dut, y, x, g);
                break;
            case 2:
                op_glu(dut, out, x, z);
                break;
            case 3:
                op_relu2(dut, y);
                break;
            case 4:
                op_sigmoid_mul(dut, y, x);
                break;
            case 5:
                op_mul(dut, y, x);
                break;
            case 6:
                op_scale(dut, y, 0.3f);
                break;
            case 7: /* heads of n / 4 columns, or one head */
                op_sigmoid_mul(dut, y, op_cols(x, 0, n % 4 == 0 ? 4 : 1));
                break;
            case 8:
                op_geglu(dut, y, y, z);
                break;
            default:
                op_glu(dut, y, y, x);
                break; /* in place */
            }
            end("elementwise");
            if (op == 2)
                take(out);
            else
                drop(out);
            drop(y);
            drop(x);
            drop(z);
            drop(g);
        }
}

static void norm_once(int64_t n, int64_t m, int64_t group, int64_t n_w, bool gated, bool in_place)
{
    struct tensor x = put_rows(n, m, 4, 3), z = put_rows(n, m, 1, 3), y = in_place ? x : put_poison(n, m, 6);
    float *w = n_w > 0 ? put_floats(n_w, 2) : NULL;

    begin();
    if (gated)
        op_rms_norm_gated(dut, y, x, z, w, n_w, group, 1e-5f);
    else
        op_rms_norm(dut, y, x, w, n_w, group, 1e-5f);
    end("norm");
    if (!in_place)
        take(y);
    drop(x);
    drop(z);
    dev_free(dut, w, (size_t)n_w * sizeof *w);
}

static void norms(void **state)
{
    (void)state;
    for (int gated = 0; gated < 2; gated++)
        for (int in_place = 0; in_place < 2; in_place++) {
            norm_once(1, 1, 0, 1, gated, in_place);
            norm_once(37, 3, 0, 37, gated, in_place);
            norm_once(2048, 1, 0, 2048, gated, in_place);
            norm_once(2048, 65, 0, 2048, gated, in_place);
            norm_once(5000, 2, 0, 0, gated, in_place);
            norm_once(96, 3, 32, 32, gated, in_place);
            norm_once(96, 3, 24, 96, gated, in_place);
            norm_once(4096, 17, 256, 256, gated, in_place);
            norm_once(4096, 3, 1024, 4096, gated, in_place);
        }
}

static void copies(void **state)
{
    static const int32_t row[5] = { 4, 0, 0, 2, 6 };
    static const int64_t dims[][3] = { { 1, 1, 1 }, { 32, 3, 70 }, { 128, 2, 256 }, { 7, 5, 15 } };

    (void)state;
    for (int64_t n = 1; n < 5000; n = 3 * n + 2) {
        struct tensor x = put_rows(n, 7, 2, 1), y = put_poison(n, 5, 3);

        begin();
        op_rows_pick(dut, y, x, row);
        end("rows_pick");
        take(y);
        drop(x);
    }
    for (int i = 0; i < 4; i++) {
        int64_t dim = dims[i][0], heads = dims[i][1], pitch = dims[i][2];
        struct tensor x = put_rows(heads * pitch, 9, 1, 1), y = put_poison(heads * dim, 9, 3);

        begin();
        op_heads_pick(dut, y, x, dim, pitch, pitch - dim);
        end("heads_pick");
        take(y);
        drop(x);
    }
    for (size_t n = 1; n < 100000; n = 5 * n + 3) { /* device to device, down within one array, zeros, in a step */
        unsigned char *a = put_rows((int64_t)n, 3, 0, 1).data, *b = put_rows((int64_t)n, 3, 0, 1).data;
        size_t bytes = 3 * n * sizeof(float), all = bytes + GUARD * sizeof(float);
        unsigned char *want = need(2 * all), *got = need(2 * all);

        dev_copy(dut, want, a, all);
        dev_copy(dut, want + all, b, all);
        begin();
        dev_copy(dut, a, b + 4, n);
        dev_copy(dut, b, b + n * sizeof(float), 2 * n * sizeof(float));
        dev_zero(dut, a + 2 * n, n);
        end("copies");
        memcpy(want, want + all + 4, n);
        memmove(want + all, want + all + n * sizeof(float), 2 * n * sizeof(float));
        memset(want + 2 * n, 0, n);
        dev_copy(dut, got, a, all);
        dev_copy(dut, got + all, b, all);
        assert_memory_equal(got, want, 2 * all);
        dev_free(dut, a, all);
        dev_free(dut, b, all);
        free(want);
        free(got);
    }
}

static void rotations(void **state)
{
    static const int dims[] = { 1, 2, 24, 32, 64, 96, 128, 256, 512, 576, 1024, 2048 };
    static const int32_t pos[4] = { 0, 1, 700, 100000 };
    static const struct op_seq seq = { .n = 4 };
    static const struct op_rows r = { 4, NULL, pos, 1, &seq };

    (void)state;
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++) {
        struct tensor x = put_rows(3 * dims[i], 11, 2, 3), y = put_poison(3 * dims[i], 11, 5);

        begin();
        op_hadamard(dut, y, x, dims[i]);
        op_hadamard(dut, x, x, dims[i]); /* in place */
        end("hadamard");
        take(y);
        drop(x);
    }
    for (int pairs = 0; pairs < 2; pairs++)
        for (int64_t dim = 20; dim < 300; dim += 118) {
            int64_t n_rot = dim / 4 * 2;
            const struct op_rope a = { dim, n_rot, put_floats(n_rot / 2, 1), pairs, pairs ? dim - n_rot : 0 };
            struct tensor x = put_rows(5 * dim, 4, 3, 1);

            begin();
            op_rope(dut, x, &a, &r);
            end("rope");
            drop(x);
            dev_free(dut, (void *)(uintptr_t)a.freq, (size_t)(n_rot / 2) * sizeof(float));
        }
}

static void *kept[QUANT_N]; /* weights stay where they are as long as the device */

static void embeddings(void **state)
{
    static const int32_t token[6] = { 0, 8, 3, 3, 7, 1 }, mixed[6] = { -1, 8, -3, -3, 7, -2 };
    static const int32_t there[5] = { 4, -1, 0, -1, 5 };
    int32_t *at = dev_alloc(dut, sizeof there);
    const struct op_ids ids = { at, 2 };

    (void)state;
    assert_non_null(at);
    dev_copy(dut, at, there, sizeof there);
    for (int type = 0; type < QUANT_N; type++) {
        int64_t k = 512;

        if (quant_row_bytes(type, k) < 0)
            continue;
        struct tensor w = weights_of(type, k, 9, 1), on = w, y = put_poison(k, 6, 4);
        kept[type] = w.data;
        on.data = (void *)(uintptr_t)dev_weights(dut, w.data, (size_t)(quant_row_bytes(type, k) * 9));
        begin();
        op_embed(dut, y, on, token, NULL, 0.5f);
        end(quant_types[type]->name);
        take(y);
        y = put_poison(k, 6, 4);
        begin();
        op_embed(dut, y, on, mixed, &ids, 0.5f);
        end(quant_types[type]->name);
        take(y);
    }
    dev_free(dut, at, sizeof there);
}

/* Two sequences that share the layer's pages, fed in chunks that cross pages; then many rows at once. */
static void attn_once(int type_k, int type_v, int dim_k, int dim_v, int n_kv, int n_q, int window)
{
    static const int32_t page0[3] = { 4, 0, 2 }, page1[3] = { 1, 3, 5 };
    static const int32_t *const page[2] = { page0, page1 };
    struct op_kv kv = { type_k, type_v, n_kv, dim_k, dim_v, NULL, 0, page, 0, 0, window, 5 };
    int at[2] = { 0, 0 };
    static const int chunk[][2] = { { 1, 1 },    { 3, 0 }, { 1, 1 }, { 250, 2 }, { 1, 1 },
                                    { 40, 300 }, { 1, 0 }, { 0, 1 }, { 300, 1 } };
    const size_t n_chunks = sizeof chunk / sizeof chunk[0] - (SANITIZED && type_k != type_v ? 3 : 0);

    kv.page_bytes =
        (size_t)n_kv * OP_KV_PAGE * (size_t)(quant_row_bytes(type_k, dim_k) + quant_row_bytes(type_v, dim_v));
    kv.pages = dev_alloc(dut, 6 * kv.page_bytes);
    assert_non_null(kv.pages);
    for (size_t i = 0; i < n_chunks; i++) {
        int n = chunk[i][0] + chunk[i][1], n_seq = 0, row = 0;
        struct op_seq seq[2];
        int32_t *pos = need((size_t)n * sizeof *pos);

        for (int s = 0; s < 2; s++) {
            if (chunk[i][s] == 0)
                continue;
            seq[n_seq++] = (struct op_seq){ .row = row, .n = chunk[i][s], .slot = s, .pos = at[s] };
            for (int j = 0; j < chunk[i][s]; j++)
                pos[row++] = at[s]++;
        }
        const struct op_rows r = { n, NULL, pos, n_seq, seq };
        struct tensor k = put_rows((int64_t)n_kv * dim_k, n, 3, 2), v = put_rows((int64_t)n_kv * dim_v, n, 1, 2);
        struct tensor q = put_rows((int64_t)n_q * dim_k, n, 2, 2), y = put_poison((int64_t)n_q * dim_v, n, 5);
        char what[64];

        begin();
        if (op_kv_rotated(&kv)) {
            op_hadamard(dut, q, q, dim_k);
            op_hadamard(dut, k, k, dim_k);
        }
        op_kv_store(dut, k, v, &kv, &r);
        op_attn(dut, y, q, &kv, 0.11f, &r);
        (void)snprintf(what, sizeof what, "attention, %s %s, %d and %d rows", quant_types[type_k]->name,
                       quant_types[type_v]->name, chunk[i][0], chunk[i][1]);
        end(what);
        take(y);
        drop(k);
        drop(v);
        drop(q);
        free(pos);
    }
    dev_free(dut, kv.pages, 6 * kv.page_bytes);
}

static void attention(void **state)
{
    static const int types[4] = { QUANT_f32, QUANT_f16, QUANT_q8_0, QUANT_q4_0 };
    const bool many =
        !SANITIZED && strcmp(test_device(), "cpu") != 0; /* of heads, which the CPU computes one like another */

    (void)state;
    for (int k = 0; k < 4; k++)
        for (int v = 0; v < 4; v++)
            if (!SANITIZED || v == k || v == 3 - k)
                attn_once(types[k], types[v], 64, 32, 2, many || (v == k && !SANITIZED) ? 6 : 2, 0);
    attn_once(QUANT_f32, QUANT_f32, 20, 12, 1, 1, 0);
    attn_once(QUANT_f16, QUANT_f16, 37, 41, 2, SANITIZED ? 6 : 18, 0);
    attn_once(QUANT_q8_0, QUANT_q4_0, 256, 256, SANITIZED ? 1 : 2, many ? 16 : SANITIZED ? 1 : 4, 0);
    attn_once(QUANT_f16, QUANT_f16, 32, 64, 2, 6, 20);
    attn_once(QUANT_f32, QUANT_q8_0, 16, 32, 1, 5, 290);
    attn_once(QUANT_q8_0, QUANT_q4_0, 576, 512, 1, many ? 8 : SANITIZED ? 1 : 2, 0);
}

/* ---- layers with memory ---- */

/* Steps that a layer with memory is to get through: rows of slots 0 to 2. With a log some of them are drafts, of which
 * the next step computes some again; the last step does nothing else. */
static const int steps[][3] = { { 1, 0, 0 },  { 1, 1, 1 }, { 0, 2, 0 }, { 5, 1, 17 }, { 0, 0, 1 },
                                { 70, 0, 3 }, { 4, 3, 2 }, { 2, 6, 1 }, { 0, 0, 0 } };
enum { STEPS = sizeof steps / sizeof steps[0], LOGGED = 4 };

static int steps_of(bool logs)
{
    return logs ? STEPS : STEPS - 1;
}

/* Of slots, between steps. */
struct slots {
    bool logs;
    int pos[3], again[3];
};

static struct op_rows rows_of_step(int i, struct op_seq seq[3], struct slots *at)
{
    struct op_rows r = { .seq = seq };

    for (int s = 0; s < 3; s++) {
        int n = steps[i][s], drafts = !at->logs ? 0 : n < LOGGED ? n : (n + s) % (LOGGED + 1);

        if (n == 0 && (i + 1 < STEPS || at->again[s] == 0))
            continue;
        seq[r.n_seq++] = (struct op_seq){ r.n, n, s, at->pos[s], at->again[s], drafts, drafts };
        at->again[s] = drafts - (i + s) % (drafts + 1);
        at->pos[s] += n - drafts + at->again[s];
        r.n += n;
    }
    return r;
}

static struct op_rec put_rec(int64_t n, int64_t inputs, bool logs)
{
    struct op_rec rec = { .data = put_floats(3 * n, 0.5f), .floats = n };

    if (logs)
        rec.log = (struct op_log){ put_floats(3 * LOGGED * inputs, 0.5f), LOGGED * inputs, inputs, LOGGED, LOGGED };
    return rec;
}

static void drop_floats(const float *p, int64_t n)
{
    dev_free(dut, (void *)(uintptr_t)p, (size_t)n * sizeof *p);
}

static void drop_rec(const struct op_rec *rec)
{
    drop_floats(rec->data, 3 * rec->floats);
    if (rec->log.rows > 0)
        drop_floats(rec->log.data, 3 * rec->log.floats);
}

static float *put_negative(int64_t n)
{
    float *v = floats(n, 1), *p;

    for (int64_t i = 0; i < n; i++)
        v[i] = -0.1f - fabsf(v[i]);
    p = put(v, (size_t)n * sizeof *v);
    free(v);
    return p;
}

static void conv_once(int taps, int apart, int64_t channels, bool bias, bool silu, bool logs)
{
    struct op_conv a = { taps,
                         put_floats(taps * channels, 1),
                         bias ? put_floats(channels, 1) : NULL,
                         silu,
                         put_rec((taps - 1) * apart * channels, channels, logs),
                         apart };
    struct slots at = { .logs = logs };

    for (int i = 0; i < steps_of(logs); i++) {
        struct op_seq seq[3];
        const struct op_rows r = rows_of_step(i, seq, &at);
        int64_t all = r.n + op_again_rows(&a.rec, &r);
        struct tensor x = put_rows(channels, r.n, 5, 1);
        struct tensor y = logs ? put_rows(channels, all, 2, 1) : put_poison(channels, all, 2);

        begin();
        op_conv(dut, y, x, &a, &r);
        end("conv");
        if (logs) /* not all of it is written */
            drop(y);
        else
            take(y);
        drop(x);
    }
    drop_floats(a.w, taps * channels);
    drop_floats(a.bias, channels);
    drop_rec(&a.rec);
}

static void gdn_once(int n_k, int n_v, int dim, int dim_v, bool grouped, bool logs)
{
    struct op_gdn a = { n_k,
                        n_v,
                        dim,
                        dim_v,
                        grouped,
                        1e-6f,
                        put_negative(n_v),
                        put_floats(n_v, 1),
                        put_rec((int64_t)n_v * dim * dim_v, (int64_t)2 * n_v, logs) };
    struct slots at = { .logs = logs };

    for (int i = 0; i < steps_of(logs); i++) {
        struct op_seq seq[3];
        const struct op_rows r = rows_of_step(i, seq, &at);
        int64_t all = r.n + op_again_rows(&a.rec, &r);
        struct tensor qkv = put_rows(2 * n_k * dim + n_v * dim_v, all, 1, 1), y = put_poison(n_v * dim_v, r.n, 4);
        struct tensor alpha = put_rows(n_v, r.n, 1, 1), beta = put_rows(n_v, r.n, 2, 1);

        begin();
        op_gdn(dut, y, qkv, alpha, beta, &a, &r);
        end("gdn");
        take(y);
        drop(qkv);
        drop(alpha);
        drop(beta);
    }
    drop_floats(a.a, n_v);
    drop_floats(a.dt_bias, n_v);
    drop_rec(&a.rec);
}

static void kda_once(int n_head, int dim, float bound, bool logs)
{
    int64_t inner = (int64_t)n_head * dim;
    struct op_kda a = {
        n_head, dim, 1e-6f, put_negative(n_head), put_floats(inner, 1), put_rec(inner * dim, inner + n_head, logs),
        bound
    };
    struct slots at = { .logs = logs };

    for (int i = 0; i < steps_of(logs); i++) {
        struct op_seq seq[3];
        const struct op_rows r = rows_of_step(i, seq, &at);
        struct tensor qkv = put_rows(3 * inner, r.n + op_again_rows(&a.rec, &r), 1, 1),
                      decay = put_rows(inner, r.n, 3, 1);
        struct tensor beta = put_rows(n_head, r.n, 0, 1), y = put_poison(inner, r.n, 1);

        begin();
        op_kda(dut, y, qkv, decay, beta, &a, &r);
        end("kda");
        take(y);
        drop(qkv);
        drop(decay);
        drop(beta);
    }
    drop_floats(a.a, n_head);
    drop_floats(a.dt_bias, inner);
    drop_rec(&a.rec);
}

static void ssm1_once(int n_state, int64_t channels, bool logs)
{
    struct op_ssm1 a = { n_state, put_negative(n_state * channels), put_floats(channels, 1), put_floats(channels, 1),
                         put_rec(n_state * channels, channels + (int64_t)2 * n_state, logs) };
    struct slots at = { .logs = logs };

    for (int i = 0; i < steps_of(logs); i++) {
        struct op_seq seq[3];
        const struct op_rows r = rows_of_step(i, seq, &at);
        struct tensor x = put_rows(channels, r.n + op_again_rows(&a.rec, &r), 1, 1), dt = put_rows(channels, r.n, 2, 1);
        struct tensor b = put_rows(n_state, r.n, 0, 1), c = put_rows(n_state, r.n, 7, 1);
        struct tensor y = put_poison(channels, r.n, 3);

        begin();
        op_ssm1(dut, y, x, dt, b, c, &a, &r);
        end("ssm1");
        take(y);
        drop(x);
        drop(dt);
        drop(b);
        drop(c);
    }
    drop_floats(a.a, n_state * channels);
    drop_floats(a.d, channels);
    drop_floats(a.dt_bias, channels);
    drop_rec(&a.rec);
}

static void ssm2_once(int n_head, int dim, int n_group, int n_state, bool logs)
{
    int64_t inner = (int64_t)n_head * dim;
    struct op_ssm2 a = { n_head,
                         dim,
                         n_group,
                         n_state,
                         put_negative(n_head),
                         put_floats(n_head, 1),
                         put_floats(n_head, 1),
                         put_rec(inner * n_state, n_head, logs) };
    struct slots at = { .logs = logs };

    for (int i = 0; i < steps_of(logs); i++) {
        struct op_seq seq[3];
        const struct op_rows r = rows_of_step(i, seq, &at);
        int64_t all = r.n + op_again_rows(&a.rec, &r);
        struct tensor xbc = put_rows(inner + 2 * n_group * n_state, all, 2, 1), dt = put_rows(n_head, r.n, 1, 1);
        struct tensor y = put_poison(inner, r.n, 6);

        begin();
        op_ssm2(dut, y, xbc, dt, &a, &r);
        end("ssm2");
        take(y);
        drop(xbc);
        drop(dt);
    }
    drop_floats(a.a, n_head);
    drop_floats(a.d, n_head);
    drop_floats(a.dt_bias, n_head);
    drop_rec(&a.rec);
}

static void scans_of(bool logs)
{
    conv_once(4, 1, 1, true, true, logs);
    conv_once(4, 1, 300, false, true, logs);
    conv_once(3, 1, 1027, true, false, logs);
    conv_once(2, 1, 64, false, false, logs);
    gdn_once(1, 1, 16, 16, false, logs);
    gdn_once(2, 4, 64, 64, false, logs);
    if (!SANITIZED || logs)
        gdn_once(2, 6, 128, 128, true, logs);
    if (!SANITIZED)
        gdn_once(4, 8, 128, 128, false, logs);
    gdn_once(1, 2, 32, 48, false, logs);
    kda_once(1, 16, 0.0f, logs);
    kda_once(3, 64, -5.0f, logs);
    if (!SANITIZED || logs)
        kda_once(2, 128, logs ? 0.0f : -5.0f, logs);
    ssm1_once(16, 1, logs);
    ssm1_once(16, 300, logs);
    ssm1_once(8, 130, logs);
    ssm1_once(20, 70, logs);
    ssm2_once(1, 16, 1, 16, logs);
    ssm2_once(8, 64, 2, 128, logs);
    ssm2_once(6, 32, 3, 64, logs);
}

static void scans(void **state)
{
    (void)state;
    scans_of(false);
    scans_of(true);
}

static void route_once(int n_expert, int n_used, bool sigmoid, bool bias, int n_group)
{
    struct op_route a = { n_expert, n_used,
                          true,     1.5f,
                          sigmoid,  bias ? put_floats(n_expert, 0.2f) : NULL,
                          n_group,  n_group > 1 ? n_group / 2 : 0 };

    for (int64_t n = 1; n < 100; n = 4 * n + 1) {
        struct tensor logits = put_rows(n_expert, n, 3, 4), weight = put_poison(n_used, n, 2);
        int32_t *expert = dev_alloc(dut, (size_t)(n * n_used) * sizeof *expert);

        assert_non_null(expert);
        begin();
        op_route(dut, expert, weight, logits, &a);
        end("route");
        take(weight);
        drop(logits);
        dev_free(dut, expert, (size_t)(n * n_used) * sizeof *expert);
    }
    if (bias)
        drop_floats(a.bias, n_expert);
}

static void routers(void **state)
{
    (void)state;
    route_once(1, 1, false, false, 0);
    route_once(7, 3, false, false, 0);
    route_once(64, 6, true, true, 8);
    route_once(128, 8, true, true, 0);
    route_once(256, 8, false, false, 0);
    route_once(256, 8, false, true, 0);
    route_once(512, 10, false, false, 0);
    route_once(6000, 22, true, false, 0);
}

#include "check_adapt.h" /* these use what stands above */
#include "check_streams.h"

/* The first 131 of each row again and again, as vocabularies have equal rows that were never trained. */
static void repeat(struct tensor x)
{
    float *v = need((size_t)(x.stride * x.ne[1]) * sizeof *v);

    dev_copy(dut, v, x.data, (size_t)(x.stride * x.ne[1]) * sizeof *v);
    for (int64_t r = 0; r < x.ne[1]; r++)
        for (int64_t c = 131; c < x.ne[0]; c++)
            v[r * x.stride + c] = v[r * x.stride + c % 131];
    dev_copy(dut, x.data, v, (size_t)(x.stride * x.ne[1]) * sizeof *v);
    free(v);
}

enum { TOP_ROWS = 5, TOP_MOST = 248320, TOP_WORDS = TOP_MOST / 32 };

/* Masks come after the call, as a device is told to wait for them: of five rows one has none, one allows nothing. */
static void fill_masks(void *ctx)
{
    uint32_t *bits = ctx;

    for (int r = 0; r < TOP_ROWS; r++)
        for (int i = 0; i < TOP_WORDS; i++)
            bits[r * TOP_WORDS + i] = r == 3 ? 0 : (uint32_t)(r * 77 + i + 1) * 0x9e3779b9u >> (r == 0 ? 7 : 0);
}

static void top_once(int32_t n, int k, int kind, bool masked)
{
    static const int32_t ids[TOP_ROWS * 16] = { 0, -1 };
    static const float heat[TOP_ROWS] = { 1, 0.7f, 3, 1e-3f, 1 };
    uint32_t *bits = calloc((size_t)TOP_ROWS * TOP_WORDS, sizeof *bits);
    const uint32_t *mask[TOP_ROWS];
    struct tensor x = put_rows(n, TOP_ROWS, 1, kind % 3 == 0 ? 12 : 0);
    const struct op_top a = {
        k, kind == 0 ? 16 : 0, ids, heat, masked ? mask : NULL, masked ? fill_masks : NULL, bits
    };
    size_t bytes = TOP_ROWS * op_top_bytes(&a);
    void *out = dev_alloc(dut, bytes);
    float odd[3] = { NAN, INFINITY, -INFINITY };

    assert_non_null(out);
    assert_non_null(bits);
    for (int r = 0; r < TOP_ROWS; r++)
        mask[r] = r == 2 ? NULL : bits + r * TOP_WORDS;
    if (kind == 2)
        dev_copy(dut, (float *)x.data + x.stride, odd, (size_t)(n < 3 ? n : 3) * sizeof *odd);
    if (kind == 3)
        repeat(x);
    begin();
    op_top(dut, out, x, &a);
    end("top");
    dev_free(dut, out, bytes);
    drop(x);
    free(bits);
}

static void best_logits(void **state)
{
    static const int32_t sizes[] = { 1, 5, 256, 300, 2048, 70001, TOP_MOST }, ks[] = { 1, 3, 20, 256 };

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (size_t j = 0; j < sizeof ks / sizeof ks[0]; j++)
            /* as models have them; all equal; nothing finite, some beyond; repeated; without masks and with */
            for (int kind = 0; kind < 8; kind += SANITIZED && sizes[i] > 70000 ? 3 : 1)
                if (test_mine())
                    top_once(sizes[i], ks[j], kind % 4, kind > 3);
}

static enum err_code open_dut(struct err *e)
{
    char name[64];

    (void)snprintf(name, sizeof name, "check:%s", test_device());
    return dev_open(&dut, name, &(struct dev_opts){ .n_threads = 2 }, e);
}

/* The scratch an operation says it needs is enough for it alone. */
static void first_of_all(void **state)
{
    struct dev *others = dut;
    struct err e = { 0 };

    (void)state;
    assert_int_equal(open_dut(&e), ERR_OK);
    route_once(1, 1, false, false, 0);
    dev_close(dut);
    dut = others;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elementwise),   cmocka_unit_test(norms),        cmocka_unit_test(copies),
        cmocka_unit_test(rotations),     cmocka_unit_test(embeddings),   cmocka_unit_test(attention),
        cmocka_unit_test(scans),         cmocka_unit_test(routers),      cmocka_unit_test(adapters),
        cmocka_unit_test(best_logits),   cmocka_unit_test(first_of_all), cmocka_unit_test(streams),
        cmocka_unit_test(chosen_blocks),
    };
    enum { N = sizeof tests / sizeof tests[0] };
    struct CMUnitTest mine[N];
    struct err e = { 0 };
    size_t n = 0;
    int failed;

    if (open_dut(&e) != ERR_OK) {
        fprintf(stderr, "%s\n", e.msg);
        return 1;
    }
    for (int i = 0; i < N; i++)
        if (tests[i].test_func == best_logits || test_mine()) /* its cases are many */
            mine[n++] = tests[i];
    test_filter();
    failed = _cmocka_run_group_tests("check", mine, n, NULL, NULL);
    dev_close(dut);
    for (int i = 0; i < QUANT_N; i++)
        free(kept[i]);
    return failed;
}
