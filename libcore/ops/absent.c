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
    LOOKUPS = 2,       /* matrices of which rows are read from the host */
};

struct absent {
    size_t held;
    size_t work, reserved; /* the most that an operation needs; counted of it and of rows */
    struct {
        const void *from; /* NULL: there is none */
        size_t n;
    } lookup[LOOKUPS];      /* rows are read from them; the first is read first in a step */
    size_t step_rows, rows; /* bytes that the step so far has read of them; the most of a step */
    int lanes;              /* of dev_lanes() */
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

/* Rows that are read from the host lie in a buffer until the step ends. */
static size_t embed_need(void *ctx, struct tensor y, struct tensor w)
{
    struct absent *a = ctx;

    for (int i = 0; i < LOOKUPS; i++)
        if (a->lookup[i].from != NULL && (uintptr_t)w.data - (uintptr_t)a->lookup[i].from < a->lookup[i].n) {
            a->step_rows = i == 0 ? 0 : a->step_rows;
            a->step_rows += ((size_t)y.ne[1] * (size_t)quant_row_bytes(w.type, w.ne[0]) + 255) / 256 * 256;
            a->rows = a->step_rows > a->rows ? a->step_rows : a->rows;
        }
    return 0;
}

static size_t matmul_need(void *ctx, struct tensor y, struct tensor w, struct tensor x)
{
    double plain = 2.5 * (double)w.ne[0] * (double)x.ne[1];

    (void)y;
    return note_work(ctx, plain + rounded(w.ne[0], x.ne[1]));
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

/* Places for pages in the list of a sequence: of the longest one, as a power of two. */
static int64_t page_places(const struct op_rows *r)
{
    int64_t places = 1;

    for (int i = 0; i < r->n_seq; i++)
        while (places * OP_KV_PAGE < r->seq[i].pos + r->seq[i].n)
            places *= 2;
    return places;
}

static size_t attn_need(void *ctx, struct tensor y, struct tensor q, const struct op_kv *kv, const struct op_rows *r)
{
    double heads = (double)q.ne[0] / kv->dim_k, bytes;
    int64_t pages = page_places(r);

    (void)y;
    if (r->n <= MANY_QUERIES)
        return note_work(ctx, (double)r->n * heads * (double)pages * (kv->dim_v + 4) * 4 +
                                  rounded((int64_t)heads * kv->dim_v, r->n));
    bytes = page_bytes(kv) * kv->n_head * r->n_seq * (double)pages;
    return note_work(ctx, bytes > SPREAD ? SPREAD + (double)r->n * heads * 8 : bytes);
}

/* A score for each block of each row. */
static size_t index_need(void *ctx, const struct op_kv *kv, const struct op_index *a, const struct op_rows *r)
{
    int64_t blocks = page_places(r) * OP_KV_PAGE / a->ratio;

    (void)kv;
    return note_work(ctx, 4.0 * (double)r->n * (double)blocks);
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

/* What a step has until it is done: its data, and, as reserve() counts it, rows that are read from the host. */
static bool add_lanes(void *ctx, int n)
{
    struct absent *a = ctx;

    for (; a->lanes < n; a->lanes++)
        a->held += pieces(1 << 20);
    return true;
}

static bool reserve(void *ctx)
{
    struct absent *a = ctx;
    size_t all = pieces(a->work) + (a->rows > 0 ? pieces(a->rows) + (size_t)a->lanes * PIECE : 0);

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

    for (int i = 0; i < LOOKUPS; i++)
        if (a->lookup[i].from == NULL) {
            a->lookup[i].from = host;
            a->lookup[i].n = n;
            return host;
        }
    return count_weights(ctx, host, n);
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
        .lanes = add_lanes,
        .embed_need = embed_need,
        .matmul_need = matmul_need,
        .attn_need = attn_need,
        .index_need = index_need,
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
