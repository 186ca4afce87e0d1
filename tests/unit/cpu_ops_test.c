/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_ops_test.c - operations of ops.h that take each row alone, on the CPU device: right against
 * plain double arithmetic written here, the same bytes with one thread and three, alone and in
 * company. */
#include "base/simd.h"
#include "cpu_rig.h"
#include "dots.h"

/* ---- elementwise operations and norms ---- */

/* What an elementwise case computes from y (before), x, z and the row's first element of g. */
enum elem { ADD, ADD_GATED, GLU, GEGLU, RELU2, SIGMOID_MUL, SIGMOID_HEADS, MUL, SCALE, N_ELEM };

/* Columns that share a gate. */
static int64_t gated_together(int64_t n)
{
    return n % 4 == 0 ? n / 4 : n;
}

static void run_elem(struct dev *d, enum elem op, struct tensor y, struct tensor x, struct tensor z, struct tensor g)
{
    switch (op) {
    case ADD:
        op_add(d, y, x, 0.7f);
        break;
    case ADD_GATED:
        op_add_gated(d, y, x, g);
        break;
    case GLU:
        op_glu(d, y, x, z);
        break;
    case GEGLU:
        op_geglu(d, y, x, z);
        break;
    case RELU2:
        op_relu2(d, y);
        break;
    case SIGMOID_MUL:
        op_sigmoid_mul(d, y, x);
        break;
    case SIGMOID_HEADS:
        op_sigmoid_mul(d, y, op_cols(x, 0, y.ne[0] / gated_together(y.ne[0])));
        break;
    case MUL:
        op_mul(d, y, x);
        break;
    default:
        op_scale(d, y, 0.7f);
    }
}

static double elem_of(enum elem op, double y, double x, double z, double g)
{
    switch (op) {
    case ADD:
        return y + (double)0.7f * x;
    case ADD_GATED:
        return y + sigmoid(g) * x;
    case GLU:
        return x * sigmoid(x) * z;
    case GEGLU:
        return x * erfc(-x * 0.70710678118654752440) / 2 * z;
    case RELU2:
        return y > 0 ? y * y : 0;
    case SIGMOID_MUL:
    case SIGMOID_HEADS:
        return y * sigmoid(x);
    case MUL:
        return y * x;
    default:
        return y * (double)0.7f;
    }
}

static void test_elem(void **state)
{
    static const int64_t shapes[][2] = { { 1, 1 }, { 37, 3 }, { 256, 1 }, { 100, 200 } };

    (void)state;
    for (int op = 0; op < N_ELEM; op++)
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
            int64_t n = shapes[i][0], m = shapes[i][1];
            struct tensor y = random_rows(n, m, 4.0f), x = random_rows(n, m, 4.0f);
            struct tensor z = random_rows(n, m, 4.0f), g = random_rows(1, m, 4.0f), y2 = copy_rows(y);
            double *ref = need((size_t)(n * m) * sizeof *ref);

            for (int64_t r = 0; r < m; r++)
                for (int64_t c = 0; c < n; c++)
                    ref[r * n + c] = elem_of((enum elem)op, (double)at(y, r, c),
                                             (double)at(x, r, op == SIGMOID_HEADS ? c / gated_together(n) : c),
                                             (double)at(z, r, c), (double)at(g, r, 0));
            run_elem(devs[0], (enum elem)op, y, x, z, g);
            run_elem(devs[1], (enum elem)op, y2, x, z, g);
            near_rows("elementwise", y, ref, 1e-6);
            same_rows("elementwise, 1 and 3 threads", y, y2);
            free(y.data);
            free(x.data);
            free(z.data);
            free(g.data);
            free(y2.data);
            free(ref);
        }
}

static void norm_once(int64_t n, int64_t m, int64_t group, int64_t n_w, bool gated)
{
    struct tensor x = random_rows(n, m, 3.0f), z = random_rows(n, m, 3.0f);
    struct tensor y[N_DEVS] = { empty_rows(n, m), copy_rows(x) }; /* the second in place */
    float *w = floats(n, 2.0f), eps = 1e-5f;
    double *ref = need((size_t)(n * m) * sizeof *ref);
    int64_t g = group == 0 ? n : group;

    for (int64_t r = 0; r < m; r++)
        for (int64_t c = 0; c < n; c++) {
            double sum = 0, zc = (double)at(z, r, c);

            for (int64_t i = c / g * g; i < c / g * g + g; i++)
                sum += (double)at(x, r, i) * (double)at(x, r, i);
            ref[r * n + c] = (double)at(x, r, c) / sqrt(sum / (double)g + (double)eps) *
                             (n_w == 0 ? 1.0 : (double)w[n_w == g ? c % g : c]) * (gated ? zc * sigmoid(zc) : 1.0);
        }
    for (int i = 0; i < N_DEVS; i++)
        if (gated)
            op_rms_norm_gated(devs[i], y[i], i == 0 ? x : y[i], z, n_w == 0 ? NULL : w, n_w, group, eps);
        else
            op_rms_norm(devs[i], y[i], i == 0 ? x : y[i], n_w == 0 ? NULL : w, n_w, group, eps);
    near_rows("norm", y[0], ref, 2e-6);
    same_rows("norm, 1 and 3 threads, in place", y[0], y[1]);
    free(x.data);
    free(z.data);
    free(y[0].data);
    free(y[1].data);
    free(w);
    free(ref);
}

static void test_norm(void **state)
{
    (void)state;
    for (int gated = 0; gated < 2; gated++) {
        norm_once(1, 1, 0, 1, gated);
        norm_once(37, 5, 0, 37, gated);
        norm_once(256, 100, 0, 0, gated);
        norm_once(96, 7, 32, 32, gated);
        norm_once(96, 7, 24, 96, gated);
    }
}

static void test_copies(void **state)
{
    static const int32_t pick[] = { 4, 0, 4, 2 };
    struct tensor x = random_rows(40, 5, 1.0f), y = empty_rows(40, 4), h = empty_rows(24, 5);

    (void)state;
    for (int i = 0; i < N_DEVS; i++) {
        op_rows_pick(devs[i], y, x, pick);
        op_heads_pick(devs[i], h, x, 6, 10, 3);
        for (int64_t r = 0; r < 4; r++)
            assert_memory_equal((float *)y.data + r * y.stride, (float *)x.data + pick[r] * x.stride,
                                40 * sizeof(float));
        for (int64_t r = 0; r < 5; r++)
            for (int64_t c = 0; c < 24; c++)
                assert_true(at(h, r, c) == at(x, r, c / 6 * 10 + 3 + c % 6));
    }
    free(x.data);
    free(y.data);
    free(h.data);
}

static void test_rope(void **state)
{
    enum { DIM = 20, HEADS = 3, ROT = 12, N = 4 };
    static const float freq[ROT / 2] = { 1.0f, 0.3f, 0.1f, 0.03f, 0.01f, 0.003f };
    static const int32_t pos[N] = { 0, 1, 700, 100000 };
    const struct op_seq seq = { .n = N };
    const struct op_rows rows = { N, NULL, pos, 1, &seq };

    (void)state;
    for (int pairs = 0; pairs < 2; pairs++) {
        const int from = pairs ? DIM - ROT : 0;
        const struct op_rope a = { DIM, ROT, freq, pairs, from };
        struct tensor x = random_rows(DIM * HEADS, N, 1.0f), x2 = copy_rows(x);
        double ref[N * DIM * HEADS];

        for (int i = 0; i < N * DIM * HEADS; i++) {
            int c = i % DIM - from, half = ROT / 2, r = i / (DIM * HEADS), col = i % (DIM * HEADS);
            int p = c < 0 ? 0 : pairs ? c / 2 : c % half; /* which pair */
            bool second = pairs ? c % 2 == 1 : c >= half;
            int mate = pairs ? (second ? col - 1 : col + 1) : (second ? col - half : col + half);
            double angle = (double)((float)pos[r] * freq[p < half ? p : 0]), u = (double)at(x, r, col);

            ref[i] = u;
            if (c >= 0 && c < ROT)
                ref[i] = u * cos(angle) + (second ? 1 : -1) * (double)at(x, r, mate) * sin(angle);
        }
        op_rope(devs[0], x, &a, &rows);
        op_rope(devs[1], x2, &a, &rows);
        near_rows("rope", x, ref, 1e-6);
        same_rows("rope, 1 and 3 threads", x, x2);
        free(x.data);
        free(x2.data);
    }
}

/* Against the matrix itself: entry (i, j) is -1 to the number of bits that i and j share. */
static void hadamard_once(int dim, int heads, int64_t n)
{
    int64_t width = (int64_t)dim * heads;
    int size = op_hadamard_block(dim);
    struct tensor x = random_rows(width, n, 3.0f), y = empty_rows(width, n), y2 = copy_rows(x);
    double *ref = need((size_t)(width * n) * sizeof *ref);

    assert_true(dim % size == 0 && (size == 1024 || dim / size % 2 == 1));
    for (int64_t i = 0; i < width * n; i++) {
        int64_t r = i / width, c = i % width, first = c - c % size;
        double sum = 0;

        for (int64_t j = 0; j < size; j++) {
            bool minus = false;

            for (int64_t bits = (c % size) & j; bits > 0; bits &= bits - 1)
                minus = !minus;
            sum += (minus ? -1 : 1) * (double)at(x, r, first + j);
        }
        ref[i] = sum / sqrt(size);
    }
    op_hadamard(devs[0], y, x, dim);
    op_hadamard(devs[1], y2, y2, dim); /* in place */
    near_rows("hadamard", y, ref, 1e-6);
    same_rows("hadamard, 1 and 3 threads, in place", y, y2);
    assert_poison((float *)y.data + width, 3);
    op_hadamard(devs[0], y2, y2, dim); /* it is its own inverse */
    for (int64_t i = 0; i < width * n; i++)
        ref[i] = (double)at(x, i / width, i % width);
    near_rows("hadamard twice", y2, ref, 2e-6);
    free(x.data);
    free(y.data);
    free(y2.data);
    free(ref);
}

static void test_hadamard(void **state)
{
    static const int dims[] = { 1, 2, 24, 32, 64, 96, 128, 256, 512, 576, 1024, 2048 };

    (void)state;
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++)
        hadamard_once(dims[i], 3, 4);
    hadamard_once(256, 18, 50);
}

/* ---- products ---- */

/* Whether a device lays out rows of such weights, if there are enough. */
static bool lays_out(int type)
{
    return cpu_layer(type, test_acts(), simd_features()) != NULL;
}

/* Weights copied to a device, laid out or not. */
static struct tensor copied(struct dev *d, struct tensor w)
{
    const struct dev_pieces v = { .host = w.data,
                                  .bytes = (size_t)(w.pitch * w.ne[2] * quant_row_bytes(w.type, w.ne[0])),
                                  .n = 1,
                                  .type = w.type,
                                  .ne0 = w.ne[0],
                                  .ne1 = w.ne[1] };
    const bool lays = lays_out(w.type) && w.ne[0] % 256 == 0 && w.ne[1] % (2 * CPU_LAID) == 0;

    w.data = (void *)(uintptr_t)dev_weights_copy(d, &v, &w.laid);
    assert_non_null(w.data);
    assert_int_equal(w.laid, lays);
    return w;
}

static void matmul_once(int type, int64_t k, int64_t n_out, int64_t n)
{
    struct tensor w = weights_of(type, k, n_out, 1), x = random_rows(k, n, 1.0f);
    struct tensor y = empty_rows(n_out, n), y2 = empty_rows(n_out, n);

    op_matmul(devs[0], y, w, x);
    op_matmul(devs[1], y2, w, x);
    for (int64_t r = 0; r < n; r++)
        for (int64_t o = 0; o < n_out; o++) {
            const float *xr = (float *)x.data + r * x.stride;
            bool ints = rounded() && cpu_format_of(type)->ints != NULL && cpu_int_row(k);
            float dot = ints ? dot_ints(type, test_acts(), row_at(w, o), xr, k) : dot_floats(type, row_at(w, o), xr, k);
            float got = at(y, r, o);
            double size, want = dot_ref(w, o, xr, &size);

            if (memcmp(&dot, &got, sizeof dot) != 0)
                fail_msg("matmul %s: %a, the stated sum is %a", quant_types[type]->name, (double)got, (double)dot);
            if (!(fabs((double)got - want) <= size * (double)(k / 16 + 5) * 0x1p-24 + dot_slack(w, o, xr)))
                fail_msg("matmul %s: %.9g, not %.9g", quant_types[type]->name, (double)got, want);
        }
    same_rows("matmul, 1 and 3 threads", y, y2);
    for (int d = 0; d < N_DEVS; d++) {
        poison(y2.data, (y2.ne[0] + 3) * n);
        op_matmul(devs[d], y2, copied(devs[d], w), x);
        same_rows("matmul, weights copied", y, y2);
    }
    free(w.data);
    free(x.data);
    free(y.data);
    free(y2.data);
}

static void test_matmul(void **state)
{
    (void)state;
    for (int t = 0; t < QUANT_N; t++) {
        int64_t block = quant_types[t]->block_elems;

        matmul_once(t, block, 1, 1);
        matmul_once(t, block * (block < 256 ? 9 : 2), 37, 1);
        matmul_once(t, block * (block < 256 ? 5 : 1), 19, 7);
        if (cpu_format_of(t)->ints != NULL)
            matmul_once(t, 5 * block, 21, 15); /* every kind of tile */
    }
    for (int t = 0; t < QUANT_N; t++) /* rows that are laid out */
        for (int n = 1; cpu_format_of(t)->lay != NULL && n <= 33; n += !lays_out(t) ? 16 : n < 20 ? 3 : 11) {
            matmul_once(t, 256, 32, n);
            matmul_once(t, 768, 96, n);
        }
    matmul_once(QUANT_q4_k, 256, 80, 5); /* and that are not: 16 more than a multiple of 32 */
    struct tensor two = weights_of(QUANT_q8_0, 256, 48, 2);

    assert_false(copied(devs[0], two).laid);
    free(two.data);
    matmul_once(QUANT_f32, 301, 67, 5);
    matmul_once(QUANT_f16, 1000, 300, 13);
    matmul_once(QUANT_q8_0, 4096, 40, 3);
    for (int n = 1; n <= 19; n += n < 3 ? 1 : 8) { /* rows that end within a block */
        matmul_once(QUANT_q5_0, 1856, 67, n);
        matmul_once(QUANT_q8_0, 2688, 53, n);
    }
    matmul_once(QUANT_q8_0, 1024, 40, 70); /* several blocks of rows */
    matmul_once(QUANT_q5_k, 512, 300, 19);
}

/* Matrices of several types and sizes at once: each as alone. */
static void test_matmuls(void **state)
{
    static const struct {
        int type;
        int64_t n_out;
    } made[] = { { QUANT_q4_k, 37 }, { QUANT_q6_k, 1 }, { QUANT_f16, 50 }, { QUANT_q8_0, 16 }, { QUANT_iq4_xs, 19 } };
    enum { N = sizeof made / sizeof made[0], K = 512 };

    (void)state;
    for (int64_t n = 1; n <= 9; n += 4) {
        struct tensor x = random_rows(K, n, 1.0f), alone[N];
        struct op_product p[N];

        for (int i = 0; i < N; i++) {
            struct tensor w = weights_of(made[i].type, K, made[i].n_out, 1);

            alone[i] = empty_rows(made[i].n_out, n);
            op_matmul(devs[0], alone[i], w, x);
            p[i] = (struct op_product){ empty_rows(made[i].n_out, n), w };
        }
        for (int d = 0; d < N_DEVS; d++) {
            op_matmuls(devs[d], p, N, x);
            for (int i = 0; i < N; i++)
                same_rows("matmuls", alone[i], p[i].y);
        }
        for (int i = 0; i < N; i++) {
            free(alone[i].data);
            free(p[i].y.data);
            free(p[i].w.data);
        }
        free(x.data);
    }
}

static void test_embed(void **state)
{
    static const int32_t token[] = { 3, 0, 6, 3 }, mixed[] = { -3, 0, -1, -2 }, ids[] = { 6, -9, -9, 3, -9, -9, 3 };
    const struct op_ids far = { ids, 3 }; /* ids 0, 1, 2: 6, 3, 3 */

    (void)state;
    for (int t = 0; t < QUANT_N; t++) {
        int64_t k = 2 * quant_types[t]->block_elems;
        struct tensor w = weights_of(t, k, 7, 1), y = empty_rows(k, 4);
        float *row = need((size_t)k * sizeof *row);

        for (int i = 0; i < N_DEVS; i++) {
            op_embed(devs[i], y, w, i == 0 ? token : mixed, i == 0 ? NULL : &far, i == 0 ? 1.0f : 0.5f);
            for (int r = 0; r < 4; r++) {
                quant_types[t]->decode(row, row_at(w, token[r]), k);
                for (int64_t c = 0; c < k; c++)
                    assert_true(at(y, r, c) == row[c] * (i == 0 ? 1.0f : 0.5f));
            }
        }
        free(w.data);
        free(y.data);
        free(row);
    }
}

/* ---- mixture of experts ---- */

/* The router's definition, with the scores in double. */
static void route_ref(const struct op_route *a, const float *logits, int32_t *expert, double *weight)
{
    double score[256], prob[256], all = 0, sum = 0;
    int per = a->n_group > 1 ? a->n_expert / a->n_group : a->n_expert;

    for (int i = 0; i < a->n_expert; i++)
        all += exp((double)logits[i]);
    for (int i = 0; i < a->n_expert; i++) {
        prob[i] = a->sigmoid ? sigmoid((double)logits[i]) : exp((double)logits[i]) / all;
        score[i] = (a->sigmoid ? prob[i] : (double)logits[i]) + (a->bias == NULL ? 0.0 : (double)a->bias[i]);
    }
    for (int g = 0; a->n_group > 1 && g < a->n_group; g++) { /* how many groups are better? */
        double total[16];
        int better = 0;

        for (int h = 0; h < a->n_group; h++) {
            double one = -1e9, two = -1e9;

            for (int i = h * per; i < (h + 1) * per; i++) {
                two = prob[i] < 0 ? two : fmax(two, fmin(one, score[i]));
                one = fmax(one, score[i]);
            }
            total[h] = one + two;
        }
        for (int h = 0; h < a->n_group; h++)
            better += total[h] > total[g] || (total[h] >= total[g] && h < g);
        for (int i = g * per; better >= a->n_group_used && i < (g + 1) * per; i++)
            prob[i] = -1; /* out, but its scores still count for its group */
    }
    for (int k = 0; k < a->n_used; k++) {
        int best = -1;

        for (int i = 0; i < a->n_expert; i++) {
            bool taken = prob[i] < 0;

            for (int j = 0; j < k; j++)
                taken = taken || expert[j] == i;
            if (!taken && (best < 0 || score[i] > score[best]))
                best = i;
        }
        expert[k] = best;
        weight[k] = prob[best];
        sum += prob[best];
    }
    for (int k = 0; k < a->n_used; k++)
        weight[k] *= (double)a->scale / (a->normalise ? sum : 1.0);
}

static void route_once(const struct op_route *a, struct tensor logits)
{
    int64_t n = logits.ne[1];
    struct tensor w[N_DEVS] = { empty_rows(a->n_used, n), empty_rows(a->n_used, n) };
    int32_t *e[N_DEVS], want[16];
    double *ref = need((size_t)(n * a->n_used) * sizeof *ref);

    for (int i = 0; i < N_DEVS; i++) {
        e[i] = need((size_t)(n * a->n_used) * sizeof *e[i]);
        op_route(devs[i], e[i], w[i], logits, a);
    }
    for (int64_t r = 0; r < n; r++) {
        route_ref(a, (float *)logits.data + r * logits.stride, want, ref + r * a->n_used);
        assert_memory_equal(e[0] + r * a->n_used, want, (size_t)a->n_used * sizeof *want);
    }
    assert_memory_equal(e[0], e[1], (size_t)(n * a->n_used) * sizeof *want);
    near_rows("router", w[0], ref, 2e-6);
    same_rows("router, 1 and 3 threads", w[0], w[1]);
    for (int i = 0; i < N_DEVS; i++) {
        free(e[i]);
        free(w[i].data);
    }
    free(ref);
}

static void test_route(void **state)
{
    float *bias = floats(64, 0.3f);
    struct tensor big = random_rows(256, 9, 3.0f), small = random_rows(16, 40, 3.0f), mid = random_rows(64, 30, 3.0f);
    struct tensor ties = random_rows(16, 6, 1.0f);

    (void)state;
    for (int64_t i = 0; i < 16; i++)
        for (int64_t r = 0; r < 6; r++) /* all alike; two values; three */
            ((float *)ties.data)[r * ties.stride + i] = (float)(i * 5 % (r / 2 + 1));
    route_once(&(struct op_route){ .n_expert = 256, .n_used = 8, .normalise = true, .scale = 1.0f }, big);
    route_once(&(struct op_route){ .n_expert = 16, .n_used = 4, .scale = 2.5f }, small);
    route_once(&(struct op_route){ .n_expert = 16, .n_used = 16, .normalise = true, .scale = 1.0f }, small);
    route_once(&(struct op_route){ .n_expert = 16, .n_used = 1, .scale = 1.0f }, small);
    route_once(&(struct op_route){ .n_expert = 16, .n_used = 5, .normalise = true, .scale = 1.0f }, ties);
    route_once(
        &(struct op_route){
            .n_expert = 64, .n_used = 6, .normalise = true, .scale = 1.5f, .sigmoid = true, .bias = bias },
        mid);
    route_once(&(struct op_route){ .n_expert = 64,
                                   .n_used = 4,
                                   .normalise = true,
                                   .scale = 1.0f,
                                   .sigmoid = true,
                                   .bias = bias,
                                   .n_group = 8,
                                   .n_group_used = 3 },
               mid);
    free(bias);
    free(big.data);
    free(small.data);
    free(mid.data);
    free(ties.data);
}

enum { EMBD = 256, FF = 512, EXPERTS = 6 };

/* One expert's answer to a row, times its weight, added to y. */
static void expert_ref(const struct op_moe *a, int e, const float *x, double weight, double *y)
{
    float hid[FF];

    for (int i = 0; i < FF; i++) {
        double up = dot_ref(a->up, (int64_t)e * FF + i, x, NULL), v = up > 0 ? up * up : 0;

        if (a->gate.data != NULL) {
            double gate = dot_ref(a->gate, (int64_t)e * FF + i, x, NULL);

            v = gate * sigmoid(gate) * up;
        }
        hid[i] = (float)v;
    }
    for (int o = 0; o < EMBD; o++)
        y[o] += weight * dot_ref(a->down, (int64_t)e * EMBD + o, hid, NULL);
}

/* Experts of two places, then their sum: the bytes of op_moe(), y; pairs of the other place stay as they are. Uses are
 * counted. */
static void moe_split(const struct op_moe *a, struct tensor x, struct tensor y)
{
    int64_t pairs = x.ne[1] * a->n_used;
    struct tensor out = empty_rows(EMBD, pairs), sum = empty_rows(EMBD, x.ne[1]);
    int32_t slot[2][EXPERTS];
    uint64_t uses[EXPERTS] = { 0 };
    struct op_moe part = *a;

    for (int i = 0; i < EXPERTS; i++) {
        slot[0][i] = i % 3 == 1 ? i : -1;
        slot[1][i] = i % 3 == 1 ? -1 : i;
    }
    for (int i = 0; i < 2; i++) {
        part.slot = slot[i];
        op_moe_pairs(devs[i], out, x, &part);
        for (int64_t p = 0; i == 0 && p < pairs; p++)
            assert_true(isnan(((float *)out.data)[p * out.stride]) == (slot[0][a->expert[p]] < 0));
    }
    op_moe_sum(devs[1], sum, out, a->weight);
    same_rows("experts, of two places", sum, y);
    op_tally(devs[0], uses, EXPERTS, a->expert, pairs);
    for (int i = 0; i < EXPERTS; i++) {
        uint64_t n = 0;

        for (int64_t p = 0; p < pairs; p++)
            n += a->expert[p] == i;
        assert_int_equal(uses[i], n);
    }
    free(out.data);
    free(sum.data);
}

static void moe_once(struct op_moe *a, int64_t n, double tol)
{
    struct tensor x = random_rows(EMBD, n, 1.0f), y[N_DEVS] = { empty_rows(EMBD, n), empty_rows(EMBD, n) };
    double *ref = need((size_t)(EMBD * n) * sizeof *ref);

    a->weight = random_rows(a->n_used, n, 1.0f);
    for (int64_t r = 0; r < n; r++) {
        memset(ref + r * EMBD, 0, EMBD * sizeof *ref);
        for (int k = 0; k < a->n_used; k++)
            expert_ref(a, a->expert[r * a->n_used + k], (float *)x.data + r * x.stride, (double)at(a->weight, r, k),
                       ref + r * EMBD);
    }
    for (int i = 0; i < N_DEVS; i++)
        op_moe(devs[i], y[i], x, a);
    near_rows("experts", y[0], ref, tol);
    same_rows("experts, 1 and 3 threads", y[0], y[1]);
    for (int64_t r = 0; r < n; r++) { /* a row alone gives the same bytes */
        struct op_moe one = *a;

        one.expert += r * a->n_used;
        one.weight = slice(a->weight, r, 1);
        op_moe(devs[0], slice(y[1], r, 1), slice(x, r, 1), &one);
    }
    same_rows("experts, rows alone", y[0], y[1]);
    moe_split(a, x, y[0]);
    free(a->weight.data);
    free(x.data);
    free(y[0].data);
    free(y[1].data);
    free(ref);
}

/* Experts that are laid out give the bytes of those that are not. */
static void test_moe_laid(void **state)
{
    enum { LAID_EMBD = 512, ROWS = 37, USED = 3 };
    static const int types[][3] = { { QUANT_q4_k, QUANT_q4_k, QUANT_q6_k },
                                    { QUANT_iq3_s, QUANT_q5_k, QUANT_q8_0 },
                                    { QUANT_q8_0, QUANT_iq4_xs, QUANT_iq4_xs } };
    int32_t expert[ROWS * USED];

    (void)state;
    for (int i = 0; i < ROWS * USED; i++)
        expert[i] = i % USED == 0 ? 1 : (i * 7 + 2) % EXPERTS; /* one that all rows use */
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        const int64_t ff = t == 1 ? 768 : 256;
        const struct op_moe w = { .gate = weights_of(types[t][0], LAID_EMBD, ff, EXPERTS),
                                  .up = weights_of(types[t][1], LAID_EMBD, ff, EXPERTS),
                                  .down = weights_of(types[t][2], ff, LAID_EMBD, EXPERTS) };

        for (int n = 1; n <= ROWS; n += lays_out(types[t][0]) ? 9 : ROWS - 1) {
            struct tensor x = random_rows(LAID_EMBD, n, 1.0f), weight = random_rows(USED, n, 1.0f);
            struct tensor y = empty_rows(LAID_EMBD, n), y2 = empty_rows(LAID_EMBD, n);
            const struct op_moe a = { USED,           expert,           .gate = w.gate, .up = w.up,
                                      .down = w.down, .weight = weight, .act = OP_SILU };

            op_moe(devs[0], y, x, &a);
            for (int d = 0; d < N_DEVS; d++) {
                struct op_moe b = a;

                b.gate = copied(devs[d], a.gate);
                b.up = copied(devs[d], a.up);
                b.down = copied(devs[d], a.down);
                op_moe(devs[d], y2, x, &b);
                same_rows("experts, weights copied", y, y2);
            }
            free(x.data);
            free(weight.data);
            free(y.data);
            free(y2.data);
        }
        free(w.gate.data);
        free(w.up.data);
        free(w.down.data);
    }
}

static void test_moe(void **state)
{
    enum { ROWS = 21 };
    const double tol =
        test_acts() == QUANT_ACTS_I8 ? 0.1 : 1e-3; /* 256 times as coarse, with room to spare at 16 bits */
    int32_t every[ROWS * 3], one[ROWS];
    struct tensor gate = weights_of(QUANT_q5_1, EMBD, FF, EXPERTS),
                  up = weights_of(QUANT_q4_1, EMBD, FF, EXPERTS); /* of floats */
    struct tensor down = weights_of(QUANT_q5_1, FF, EMBD, EXPERTS);

    (void)state;
    for (int r = 0; r < ROWS; r++) {
        one[r] = 4;
        for (int k = 0; k < 3; k++)
            every[r * 3 + k] = (r * 5 + 2 * k) % EXPERTS;
    }
    struct op_moe three = { 3, every, .gate = gate, .up = up, .down = down, .act = OP_SILU };

    moe_once(&three, ROWS, 1e-5);
    moe_once(&three, 1, 1e-5);
    moe_once(&(struct op_moe){ 3, every, .up = up, .down = down, .act = OP_RELU2 }, ROWS, 1e-5);
    moe_once(&(struct op_moe){ 1, one, .gate = gate, .up = up, .down = down, .act = OP_SILU }, ROWS, 1e-5);
    free(gate.data);
    free(up.data);
    free(down.data);
    gate = weights_of(QUANT_q4_k, EMBD, FF, EXPERTS); /* products of whole numbers, and of both kinds */
    up = weights_of(QUANT_q6_k, EMBD, FF, EXPERTS);
    down = weights_of(QUANT_iq3_s, FF, EMBD, EXPERTS);
    three = (struct op_moe){ 3, every, .gate = gate, .up = up, .down = down, .act = OP_SILU };
    moe_once(&three, ROWS, tol);
    moe_once(&three, 1, tol);
    three.gate = weights_of(QUANT_q5_1, EMBD, FF, EXPERTS);
    moe_once(&three, ROWS, tol);
    three.up = three.gate;
    three.gate = gate;
    moe_once(&three, ROWS, tol);
    free(three.up.data);
    three.up = weights_of(QUANT_q8_0, EMBD, FF, EXPERTS);
    three.down = weights_of(QUANT_iq4_nl, FF, EMBD, EXPERTS);
    moe_once(&three, ROWS, tol);
    free(three.up.data);
    free(three.down.data);
    free(gate.data);
    free(up.data);
    free(down.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_elem),     cmocka_unit_test(test_norm),     cmocka_unit_test(test_copies),
        cmocka_unit_test(test_rope),     cmocka_unit_test(test_matmul),   cmocka_unit_test(test_embed),
        cmocka_unit_test(test_matmuls),  cmocka_unit_test(test_route),    cmocka_unit_test(test_moe),
        cmocka_unit_test(test_moe_laid), cmocka_unit_test(test_hadamard),
    };

    return cmocka_run_group_tests_name("cpu operations", tests, open_devs, close_devs);
}
