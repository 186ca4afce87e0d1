/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_seq_test.c - operations of ops.h over sequences, on the CPU device: attention and
 * recurrences, right against plain double arithmetic written here, the same bytes at any chunking
 * and thread count. */
#include "cpu_rig.h"

static double softplus(double x)
{
    return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

/* Two sequences in slots 1 and 0, n[0] and n[1] rows, the second's after the first's: in one step
 * (chunk 0), or each alone in steps of `chunk` rows. */
typedef void stepper(struct dev *d, int row, const struct op_rows *r, void *ctx);

static void drive(struct dev *d, const int n[2], int chunk, stepper *step, void *ctx)
{
    if (chunk == 0) {
        const struct op_seq seq[2] = { { .n = n[0], .slot = 1 }, { .row = n[0], .n = n[1] } };

        step(d, 0, &(struct op_rows){ n[0] + n[1], NULL, NULL, 2, seq }, ctx);
        return;
    }
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < n[s]; i += chunk) {
            const struct op_seq seq = { .n = n[s] - i < chunk ? n[s] - i : chunk, .slot = 1 - s, .pos = i };

            step(d, s * n[0] + i, &(struct op_rows){ seq.n, NULL, NULL, 1, &seq }, ctx);
        }
}

enum { KV_HEADS = 2, GROUP = 3, DIM_K = 64, DIM_V = 32, N_PAGES = 2 };

struct attn_case {
    struct tensor q, k, v, y;
    struct op_kv kv;
    const int32_t *slot[2]; /* page numbers of a sequence, in no order */
};

static void attn_step(struct dev *d, int row, const struct op_rows *r, void *ctx)
{
    const struct attn_case *c = ctx;

    op_kv_store(d, slice(c->k, row, r->n), slice(c->v, row, r->n), &c->kv, r);
    op_attn(d, slice(c->y, row, r->n), slice(c->q, row, r->n), &c->kv, 0.2f, r);
}

/* A row as the cache gives it back. */
static void through(int type, float *y, const float *x, int64_t n)
{
    unsigned char row[4 * DIM_K];

    quant_types[type]->encode(row, x, n, NULL);
    quant_types[type]->decode(y, row, n);
}

/* Query head h of row `row`, the i-th of a sequence that begins at row `first`. */
static void attn_ref(const struct attn_case *c, double *y, int first, int row, int h)
{
    const float *q = (float *)c->q.data + row * c->q.stride + h * DIM_K;
    double sum = 0, score[512];
    float k[DIM_K], v[DIM_V];
    int n = row - first + 1;

    memset(y, 0, DIM_V * sizeof *y);
    for (int j = 0; j < n; j++) {
        through(c->kv.type_k, k, (float *)c->k.data + (first + j) * c->k.stride + h / GROUP * DIM_K, DIM_K);
        score[j] = 0;
        for (int i = 0; i < DIM_K; i++)
            score[j] += (double)q[i] * (double)k[i];
        score[j] = c->kv.window > 0 && j >= c->kv.always && n - 1 - j > c->kv.window ? 0 : exp(score[j] * (double)0.2f);
        sum += score[j];
    }
    for (int j = 0; j < n; j++) {
        through(c->kv.type_v, v, (float *)c->v.data + (first + j) * c->v.stride + h / GROUP * DIM_V, DIM_V);
        for (int i = 0; i < DIM_V; i++)
            y[i] += score[j] / sum * (double)v[i];
    }
}

/* Rows that are compared with the reference: the first, some, and those around the page border. */
static bool checked(int row)
{
    return row % 16 == 5 || row < 20 || (row > 250 && row < 320);
}

static double *attn_refs(const struct attn_case *c, const int n[2])
{
    int64_t rows = n[0] + n[1], width = KV_HEADS * GROUP * DIM_V;
    double *ref = need((size_t)(rows * width) * sizeof *ref);

    for (int r = 0; r < rows; r++)
        for (int h = 0; h < KV_HEADS * GROUP; h++)
            if (checked(r))
                attn_ref(c, ref + r * width + h * DIM_V, r < n[0] ? 0 : n[0], r, h);
            else
                for (int i = 0; i < DIM_V; i++)
                    ref[r * width + h * DIM_V + i] = (double)at(c->y, r, h * DIM_V + i);
    return ref;
}

static void attn_types(int type_k, int type_v, int window)
{
    static const int n[2] = { 300, 260 }, chunks[] = { 0, 1, 7, 100 };
    static const int32_t pages[2][N_PAGES] = { { 3, 0 }, { 1, 2 } }; /* in no order */
    int rows = n[0] + n[1];
    int64_t page = KV_HEADS * OP_KV_PAGE * (quant_row_bytes(type_k, DIM_K) + quant_row_bytes(type_v, DIM_V));
    struct attn_case c = { .q = random_rows(KV_HEADS * GROUP * DIM_K, rows, 1.0f),
                           .k = random_rows(KV_HEADS * DIM_K, rows, 2.0f),
                           .v = random_rows(KV_HEADS * DIM_V, rows, 1.0f),
                           .slot = { pages[0], pages[1] } };
    struct tensor first = { .data = NULL };

    c.kv = (struct op_kv){ type_k,       type_v, KV_HEADS, DIM_K, DIM_V,  need((size_t)(2 * N_PAGES * page)),
                           (size_t)page, c.slot, 0,        0,     window, 3 };
    for (int i = 0; i < N_DEVS; i++)
        for (size_t j = 0; j < sizeof chunks / sizeof chunks[0]; j++) {
            c.y = empty_rows(KV_HEADS * GROUP * DIM_V, rows);
            memset(c.kv.pages, 0xff, (size_t)(2 * N_PAGES * page)); /* NaN until it is stored */
            drive(devs[i], n, chunks[j], attn_step, &c);
            if (first.data == NULL) {
                double *ref = attn_refs(&c, n);

                first = c.y;
                near_rows("attention", first, ref, 2e-6);
                free(ref);
                continue;
            }
            same_rows("attention in other chunks, on other threads", c.y, first);
            free(c.y.data);
        }
    free(c.kv.pages);
    free(c.q.data);
    free(c.k.data);
    free(c.v.data);
    free(first.data);
}

static void test_attn(void **state)
{
    (void)state;
    attn_types(QUANT_f32, QUANT_f32, 0);
    attn_types(QUANT_f16, QUANT_f16, 0);
    attn_types(QUANT_q8_0, QUANT_q4_0, 0);
    attn_types(QUANT_q4_0, QUANT_f32, 0);
    attn_types(QUANT_f32, QUANT_f16, 9);
    attn_types(QUANT_q8_0, QUANT_q4_0, 270);
}

/* Operations with a recurrent state. N_V heads of DIM by DIM_R (kda: N_V heads, square). */
enum rec_op { CONV, CONV_SILU, GDN, GDN_GROUPED, KDA, KDA_BOUND, SSM1, SSM2, N_REC };
enum { TAPS = 4, N_K = 2, N_V = 6, DIM = 36, DIM_R = 40, CH = 300, N_STATE = 8, N_GROUP = 2, MANY = 4096 };

struct rec_case {
    enum rec_op op;
    struct tensor x[4], y;
    int64_t floats; /* of state */
    float *data;    /* [2][floats] */
    float *neg, *w; /* parameters: negative ones, and any */
};

static bool is_kda(enum rec_op op)
{
    return op == KDA || op == KDA_BOUND;
}

static void rec_step(struct dev *d, int row, const struct op_rows *r, void *ctx)
{
    const struct rec_case *c = ctx;
    const struct op_rec rec = { .data = c->data, .floats = c->floats };
    struct tensor x[4], y = slice(c->y, row, r->n);
    bool silu = c->op == CONV_SILU;
    const struct op_conv conv = { TAPS, c->w, silu ? c->w + TAPS * CH : NULL, silu, rec, 1 };
    const struct op_gdn gdn = { N_K, N_V, DIM, DIM_R, c->op == GDN_GROUPED, 1e-6f, c->neg, c->w, rec };
    const bool bound = c->op == KDA_BOUND;
    const struct op_kda kda = { N_V, DIM, 1e-6f, bound ? c->w + N_V * DIM : c->neg, c->w, rec, bound ? -5.0f : 0.0f };
    const struct op_ssm1 ssm1 = { N_STATE, c->neg, c->w, c->w + CH, rec };
    const struct op_ssm2 ssm2 = { N_V, DIM, N_GROUP, N_STATE, c->neg, c->w, c->w + N_V, rec };

    for (int i = 0; i < 4; i++)
        x[i] = slice(c->x[i], row, r->n);
    if (c->op <= CONV_SILU)
        op_conv(d, y, x[0], &conv, r);
    else if (c->op <= GDN_GROUPED)
        op_gdn(d, y, x[0], x[1], x[2], &gdn, r);
    else if (is_kda(c->op))
        op_kda(d, y, x[0], x[1], x[2], &kda, r);
    else if (c->op == SSM1)
        op_ssm1(d, y, x[0], x[1], x[2], x[3], &ssm1, r);
    else
        op_ssm2(d, y, x[0], x[1], &ssm2, r);
}

/* Widths of the inputs and of the result, and floats of state. */
static void rec_shape(enum rec_op op, int64_t in[4], int64_t *out, int64_t *floats_of)
{
    static const struct {
        int64_t in[4], out, floats;
    } shape[N_REC] = {
        [CONV] = { { CH, 1, 1, 1 }, CH, (TAPS - 1) * CH },
        [CONV_SILU] = { { CH, 1, 1, 1 }, CH, (TAPS - 1) * CH },
        [GDN] = { { 2 * N_K * DIM + N_V * DIM_R, N_V, N_V, 1 }, N_V * DIM_R, N_V * DIM * DIM_R },
        [GDN_GROUPED] = { { 2 * N_K * DIM + N_V * DIM_R, N_V, N_V, 1 }, N_V * DIM_R, N_V * DIM * DIM_R },
        [KDA] = { { 3 * N_V * DIM, N_V * DIM, N_V, 1 }, N_V * DIM, N_V * DIM * DIM },
        [KDA_BOUND] = { { 3 * N_V * DIM, N_V * DIM, N_V, 1 }, N_V * DIM, N_V * DIM * DIM },
        [SSM1] = { { CH, CH, N_STATE, N_STATE }, CH, N_STATE * CH },
        [SSM2] = { { N_V * DIM + 2 * N_GROUP * N_STATE, N_V, 1, 1 }, N_V * DIM, N_V * N_STATE * DIM },
    };

    memcpy(in, shape[op].in, sizeof shape[op].in);
    *out = shape[op].out;
    *floats_of = shape[op].floats;
}

static double norm_of(const float *x, int n)
{
    double sum = 1e-6;

    for (int i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

/* One token of one head of a delta rule with decays g [dim]: S [dim][dim_v]. */
static void delta_ref(double *S, double *y, const float *q, const float *k, const float *v, const double *g, double b,
                      int dim_v)
{
    double qn = norm_of(q, DIM) * sqrt(DIM), kn = norm_of(k, DIM);

    for (int j = 0; j < dim_v; j++) {
        double kv = 0, d;

        for (int i = 0; i < DIM; i++)
            kv += S[i * dim_v + j] * g[i] * (double)k[i] / kn;
        d = b * ((double)v[j] - kv);
        y[j] = 0;
        for (int i = 0; i < DIM; i++) {
            S[i * dim_v + j] = g[i] * S[i * dim_v + j] + (double)k[i] / kn * d;
            y[j] += S[i * dim_v + j] * (double)q[i] / qn;
        }
    }
}

/* A row of an operation, in double; x: its inputs. */
static void delta_row(const struct rec_case *c, double *S, double *y, const float *const *x)
{
    int n_k = is_kda(c->op) ? N_V : N_K, dim_v = is_kda(c->op) ? DIM : DIM_R;

    for (int h = 0; h < N_V; h++) {
        int hk = is_kda(c->op) ? h : c->op == GDN_GROUPED ? h / (N_V / N_K) : h % N_K;
        double g[DIM];

        for (int i = 0; i < DIM; i++) {
            int at_g = is_kda(c->op) ? h * DIM + i : h;
            double in = (double)x[1][at_g] + (double)c->w[at_g];

            g[i] = exp(c->op == KDA_BOUND ? -5.0 * sigmoid((double)c->w[N_V * DIM + h] * in)
                                          : (double)c->neg[h] * softplus(in));
        }
        delta_ref(S + h * DIM * dim_v, y + h * dim_v, x[0] + hk * DIM, x[0] + (n_k + hk) * DIM,
                  x[0] + 2 * n_k * DIM + h * dim_v, g, sigmoid((double)x[2][h]), dim_v);
    }
}

static void conv_row(const struct rec_case *c, double *past, double *y, const float *x)
{
    for (int i = 0; i < CH; i++) {
        double sum = c->op == CONV_SILU ? (double)c->w[TAPS * CH + i] : 0.0;

        for (int j = 0; j < TAPS; j++)
            sum += (double)c->w[j * CH + i] * (j < TAPS - 1 ? past[j * CH + i] : (double)x[i]);
        for (int j = 0; j < TAPS - 1; j++)
            past[j * CH + i] = j < TAPS - 2 ? past[(j + 1) * CH + i] : (double)x[i];
        y[i] = c->op == CONV_SILU ? sum * sigmoid(sum) : sum;
    }
}

static void ssm_row(const struct rec_case *c, double *h, double *y, const float *const *x)
{
    bool one = c->op == SSM1;
    int n = one ? CH : N_V * DIM;

    for (int i = 0; i < n; i++) {
        int head = one ? i : i / DIM;
        const float *b = one ? x[2] : x[0] + n + head / (N_V / N_GROUP) * N_STATE;
        const float *cc = one ? x[3] : b + N_GROUP * N_STATE;
        double dt = softplus((double)x[1][head] + (double)c->w[(one ? CH : N_V) + head]), xi = (double)x[0][i];

        y[i] = (double)c->w[head] * xi;
        for (int s = 0; s < N_STATE; s++) {
            double *hs = h + s * n + i;

            *hs = exp(dt * (double)c->neg[one ? s * CH + i : head]) * *hs + dt * xi * (double)b[s];
            y[i] += *hs * (double)cc[s];
        }
    }
}

static void rec_ref(const struct rec_case *c, double *y, const int n[2])
{
    double *state = need((size_t)c->floats * sizeof *state);

    for (int r = 0; r < n[0] + n[1]; r++, y += c->y.ne[0]) {
        const float *x[4];

        for (int i = 0; i < 4; i++)
            x[i] = (float *)c->x[i].data + r * c->x[i].stride;
        for (int64_t i = 0; i < c->floats && (r == 0 || r == n[0]); i++)
            state[i] = 0;
        if (c->op <= CONV_SILU)
            conv_row(c, state, y, x[0]);
        else if (c->op <= KDA_BOUND)
            delta_row(c, state, y, x);
        else
            ssm_row(c, state, y, x);
    }
    free(state);
}

static void rec_once(enum rec_op op)
{
    static const int n[2] = { 23, 11 }, chunks[] = { 0, 1, 2, 5 };
    struct rec_case c = { .op = op, .neg = floats(MANY, 1.0f), .w = floats(MANY, 1.0f) };
    int64_t in[4], out;

    rec_shape(op, in, &out, &c.floats);
    for (int i = 0; i < MANY; i++)
        c.neg[i] = -fabsf(c.neg[i]) - 0.01f;
    for (int i = 0; i < 4; i++)
        c.x[i] = random_rows(in[i], n[0] + n[1], 2.0f);
    c.data = need((size_t)(2 * c.floats) * sizeof *c.data);
    struct tensor first = { .data = NULL };
    double *ref = need((size_t)(out * (n[0] + n[1])) * sizeof *ref);
    for (int i = 0; i < N_DEVS; i++)
        for (size_t j = 0; j < sizeof chunks / sizeof chunks[0]; j++) {
            memset(c.data, 0, (size_t)(2 * c.floats) * sizeof *c.data);
            c.y = empty_rows(out, n[0] + n[1]);
            drive(devs[i], n, chunks[j], rec_step, &c);
            if (first.data == NULL) {
                first = c.y;
                rec_ref(&c, ref, n);
                near_rows("recurrence", first, ref, 1e-5);
                continue;
            }
            same_rows("recurrence in other chunks, on other threads", c.y, first);
            free(c.y.data);
        }
    for (int i = 0; i < 4; i++)
        free(c.x[i].data);
    free(c.neg);
    free(c.w);
    free(c.data);
    free(first.data);
    free(ref);
}

static void test_rec(void **state)
{
    (void)state;
    for (int op = 0; op < N_REC; op++)
        rec_once((enum rec_op)op);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attn),
        cmocka_unit_test(test_rec),
    };

    return cmocka_run_group_tests_name("cpu sequences", tests, open_devs, close_devs);
}
