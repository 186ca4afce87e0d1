/* SPDX-License-Identifier: Apache-2.0 */
/* absent.c - dry runs of a GPU for programs that were built without one.    room: ops
 *
 * Plans are made for cards that are elsewhere, also by programs without CUDA. Weights, KV rows,
 * state, logits and the tensors of a step are counted as kernels/device/memory.cu counts them. Only the
 * working memory of the operations themselves is an estimate, from the shapes that take most:
 * activations as the kernels for many rows store them, and what experts write; others take less.
 * placement_test.c holds it against the dry run of a GPU where there is one. */
#include <stdlib.h>
#include <sys/mman.h>

#include "ops/table.h"
#include "quant/quant.h"

enum {
    PIECE = 2 << 20,
    PAD = 512,         /* the driver gives memory out in pieces */
    OWN = 3 * PIECE,   /* that the device takes without being asked */
    SPREAD = 48 << 20, /* keys and values that attention of many rows unpacks at a time */
    MANY = 16,
    MANY_QUERIES = 32, /* rows above which products and attention work in tiles */
    COLUMNS = 64,      /* rows of such a tile */
};

struct absent {
    size_t held;
    size_t work, reserved; /* the most that an operation needs; counted of it and of rows */
    size_t rows_bytes;     /* of the first matrix of which rows are read from the host; 0: none */
    int tables;            /* more such matrices, whose rows of a step are taken to be as large */
    int64_t rows, outputs; /* the most of a step; the most of a product's matrix: the vocabulary */
};

static size_t pieces(size_t n)
{
    return (n + PAD + PIECE - 1) / PIECE * PIECE;
}

static size_t placed_bytes(size_t n)
{
    return (n + 64 + 255) / 256 * 256;
}

/* ---- working memory ---- */

/* Notes it here: it is the device's, not scratch. */
static size_t note_work(struct absent *a, double bytes)
{
    if (bytes > (double)a->work && bytes < 0x1p50)
        a->work = (size_t)bytes;
    return 0;
}

/* Rounded activations: n rows of k. */
static double rounded(int64_t k, int64_t n)
{
    int64_t tiled = (n + COLUMNS - 1) / COLUMNS * COLUMNS, pairs = (k + 63) / 64 * 64;

    return (double)pairs * (n > MANY ? 4.25 * (double)tiled : 2.5 * (double)n);
}

static size_t matmul_need(void *ctx, struct tensor y, struct tensor w, struct tensor x)
{
    struct absent *a = ctx;
    double plain = 2.5 * (double)w.ne[0] * (double)x.ne[1];

    (void)y;
    a->rows = x.ne[1] > a->rows ? x.ne[1] : a->rows;
    a->outputs = w.ne[1] > a->outputs ? w.ne[1] : a->outputs;
    return note_work(a, plain + rounded(w.ne[0], x.ne[1]));
}

/* Unpacked keys and values of one head's page: 16-bit planes, two for what one does not hold. */
static double page_bytes(const struct op_kv *kv)
{
    int blocks = (kv->dim_v + 31) / 32;
    int planes = kv->type_k == QUANT_f32 ? 2 : 1;
    int64_t keys = (int64_t)(kv->dim_k + 31) / 32 * 2 * (512 + 8192 * planes);
    int64_t values = (int64_t)(blocks + 7) / 8 * 16 * (blocks > 4 ? 2 : 1) * 4096;

    return (double)(keys + values * (kv->type_v == QUANT_f16 ? 1 : 2));
}

static size_t attn_need(void *ctx, struct tensor y, struct tensor q, const struct op_kv *kv, const struct op_rows *r)
{
    double heads = (double)q.ne[0] / kv->dim_k, bytes;
    int64_t pages = 1, most = 1;

    (void)y;
    for (int i = 0; i < r->n_seq; i++) {
        int64_t n = (r->seq[i].pos + r->seq[i].n + OP_KV_PAGE - 1) / OP_KV_PAGE;

        most = n > most ? n : most;
    }
    while (pages < most)
        pages *= 2;
    if (r->n <= MANY_QUERIES)
        return note_work(ctx, (double)r->n * heads * (double)pages * (kv->dim_v + 4) * 4 +
                                  rounded((int64_t)heads * kv->dim_v, r->n));
    bytes = page_bytes(kv) * kv->n_head * r->n_seq * (double)pages;
    return note_work(ctx, bytes > SPREAD ? SPREAD + (double)r->n * heads * 8 : bytes);
}

static size_t moe_need(void *ctx, struct tensor y, struct tensor x, const struct op_moe *a)
{
    int64_t n = x.ne[1], pairs = n * a->n_used, ff = a->up.ne[1];
    int64_t places = n > MANY ? pairs + COLUMNS * a->up.ne[2] : pairs; /* whole tiles of experts */
    double floats = (double)pairs * (double)(2 * ff + a->down.ne[1]);

    (void)y;
    return note_work(ctx, rounded(a->up.ne[0], n) + rounded(ff, places) + 4 * floats);
}

/* ---- memory ---- */

static bool reserve(void *ctx)
{
    struct absent *a = ctx;
    size_t row = a->outputs > 0 ? a->rows_bytes / (size_t)a->outputs : 0;
    size_t all = pieces(a->work) + (row > 0 ? pieces(row * (size_t)a->rows * (size_t)(1 + a->tables)) : 0);

    if (all > a->reserved) {
        a->held += all - a->reserved;
        a->reserved = all;
    }
    return true;
}

static const void *weights_some(void *ctx, const void *host, size_t piece_bytes, int64_t n, const bool *keep)
{
    struct absent *a = ctx;
    size_t bytes = 0;

    for (int64_t i = 0; i < n; i++)
        bytes += keep == NULL || keep[i] ? piece_bytes : 0;
    a->held += placed_bytes(bytes);
    return host;
}

static const void *count_weights(void *ctx, const void *host, size_t n)
{
    return weights_some(ctx, host, n, 1, NULL);
}

static const void *weights_rows(void *ctx, const void *host, size_t n)
{
    struct absent *a = ctx;

    if (a->tables > 0)
        return count_weights(ctx, host, n);
    a->tables = a->rows_bytes > 0;
    a->rows_bytes = a->rows_bytes > 0 ? a->rows_bytes : n;
    return host;
}

static size_t held_bytes(void *ctx)
{
    return OWN + ((struct absent *)ctx)->held;
}

static struct dev_memory get_memory(void *ctx)
{
    (void)ctx;
    return (struct dev_memory){ false, -1, -1, -1, true };
}

/* An address that stands for it. */
static void *alloc(void *ctx, size_t n)
{
    void *p = mmap(NULL, n + 1, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (p == MAP_FAILED)
        return NULL;
    ((struct absent *)ctx)->held += pieces(n);
    return p;
}

static void free_memory(void *ctx, void *p, size_t n)
{
    ((struct absent *)ctx)->held -= pieces(n);
    (void)munmap(p, n + 1);
}

/* ---- what a dry run does not do ---- */

static void zero_bytes(void *ctx, void *p, size_t n)
{
    (void)ctx;
    (void)p;
    (void)n;
}

static void copy_bytes(void *ctx, void *to, const void *from, size_t n)
{
    (void)from;
    zero_bytes(ctx, to, n);
}

static void adapt(void *ctx, const struct op_adapt *a, int n, struct tensor x, const int32_t *token,
                  const struct op_terms *t)
{
    (void)ctx;
    (void)a;
    (void)n;
    (void)x;
    (void)token;
    (void)t;
}

static const char *device_name(void *ctx)
{
    (void)ctx;
    return "absent";
}

static int one_thread(void *ctx)
{
    (void)ctx;
    return 1;
}

static enum err_code read_speed(void *ctx, size_t n, double *bytes_per_s, int reps, struct err *e)
{
    (void)ctx;
    (void)n;
    (void)bytes_per_s;
    (void)reps;
    return err_set(e, ERR_DEVICE, "the device is not here");
}

enum err_code dev_absent_open(struct dev_impl *out, struct err *e)
{
    static const struct dev_table table = {
        .reserve = reserve,
        .matmul_need = matmul_need,
        .attn_need = attn_need,
        .moe_need = moe_need,
        .adapt = adapt,
        .weights = count_weights,
        .weights_rows = weights_rows,
        .weights_some = weights_some,
        .held = held_bytes,
        .memory = get_memory,
        .alloc = alloc,
        .free = free_memory,
        .zero = zero_bytes,
        .copy = copy_bytes,
        .close = free,
        .simd = device_name,
        .threads = one_thread,
        .read_speed = read_speed,
    };
    struct absent *a = calloc(1, sizeof *a);

    if (a == NULL)
        return err_nomem(e);
    *out = (struct dev_impl){ &table, a };
    return ERR_OK;
}
