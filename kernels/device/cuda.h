/* SPDX-License-Identifier: Apache-2.0 */
/* cuda.h - inside the CUDA device.   room: kernels
 *
 * Operations of a step are recorded as nodes. They are launched when the step ends, or earlier if the host needs a
 * result. A step with the same nodes as an earlier one is replayed as one CUDA graph. What changes from step to step
 * (tokens, positions, page numbers) is data in device memory, uploaded once a step, never a launch parameter.
 *
 * Steps may be under way while others are recorded (dev_launch()): all run in the device's one stream, in the order in
 * which they were launched. What differs between them, data from the host and answers to it, is in a lane for each.
 *
 * A row's bytes never depend on the rows beside it: every kernel computes each output in one fixed order, whatever the
 * number of rows. Compiled with -fmad=false; fused multiply-adds are written out. */
#ifndef KERNELS_DEVICE_CUDA_H
#define KERNELS_DEVICE_CUDA_H
#include <cudaTypedefs.h>
#include <cuda_runtime.h>
#include <stddef.h>
#include <stdint.h>
extern "C" {
#include "base/base.h"
#include "gemm/launch.h"
#include "ops/ops.h"
#include "ops/table.h"
#include "quant/quant.h"
}

/* Rows of a step on the device. */
struct rows {
    int n, n_seq;
    int max_n;         /* most rows of a sequence, a power of two at least */
    bool all;          /* every row is of one of the sequences */
    bool logs;         /* some rows are logged */
    const int *pos;    /* [n] */
    const int *of;     /* [n] sequence of each row */
    const op_seq *seq; /* [n_seq] */
};

/* Page table of a step: page[seq * stride + i]; blocks: most pages of a sequence, rounded up to a power of two. */
struct pages {
    const int *page;
    int stride;
};

struct node {
    int op; /* enum dev_op, or one of NODE_* */
    int i[4];
    size_t n;
    float f[2];
    struct tensor t[5];
    const void *p[4];
    void *out;
    struct rows r;
    struct pages pg;
    union {
        struct op_kv kv;
        struct op_conv conv;
        struct op_gdn gdn;
        struct op_kda kda;
        struct op_ssm1 ssm1;
        struct op_ssm2 ssm2;
        struct op_route route;
        struct op_moe moe;
        struct op_rope rope;
    };
};
/* NODE_SEND: the step's data, from pinned memory: n bytes at p[0] to out, i[0] at p[2] to p[1]; i[1]: the lane, so that
 * lanes have graphs of their own. First of what is launched. NODE_DONE: signals the host that everything before it is
 * done. */
enum { NODE_COPY = DEV_OP_N, NODE_ZERO, NODE_SEND, NODE_DONE };

/* Code books as bytes, for the formats that have them. */
struct tables {
    uint32_t iq3s[512], iq3xxs[256];
    uint2 iq2xxs[256], iq2xs[512], iq2s[1024], iq1s[2048];
};

struct chunk {
    unsigned char *host, *dev;
    size_t cap, used, sent;
};
/* Staged data is found again by the next node that needs the same. The place of a step's data does not depend on its
 * contents. */
enum staged_as {
    AS_TOKENS,
    AS_PICKS,
    AS_IDS,
    AS_TEMPS,
    AS_SEQS,
    AS_POSITIONS,
    AS_SEQ_OF_ROW,
    AS_PAGES,
    AS_LISTS,
    AS_PAIRS
};
struct staged {
    uint64_t hash;
    enum staged_as as;
    size_t n;
    int chunk;
    size_t at;
};
enum { CHUNKS = 16, STAGED = 512, GRAPHS = 64 };

struct graph {
    struct node *node;
    int n, seen;
    cudaGraphExec_t exec;
};

/* Data that the host asks for during a step: it goes to pinned memory, and from there to its destination when the step
 * has ended. */
enum { FETCHES = 16, FETCH_BYTES = 1 << 20 };
struct fetch {
    unsigned char *pinned; /* FETCH_BYTES */
    size_t used;
    int n;
    struct {
        void *to;
        size_t at, n;
    } part[FETCHES];
};

/* Hand-overs to the host (device/cpu_experts.cu); need: what measured steps ask for. */
enum { DUE = 4 };
/* A hand-over with adapters, which the caller has only while it is recorded. */
struct hand_adapted {
    struct op_hand hand;
    struct op_moe_adapt adapt;
    struct op_pair pair[3][OP_ADAPTERS_MAX];
};
struct hand {
    struct dev *helper;    /* who computes experts of the recorded step on the host; NULL: nobody */
    unsigned char *pinned; /* flags, then: */
    float *x, *out;
    int *ids;
    size_t x_need, ids_need, out_need, cap;
    struct {
        const struct node *node;
        int n;
    } due[DUE]; /* graphs that are under way */
    int n_due;
    struct hand_turns *turn; /* on the device */
    uint32_t turns;
    struct hand_adapted **adapted; /* [cap_adapted], of which the step has used n_adapted: a node finds its own again */
    int n_adapted, cap_adapted;
};

/* Masks of op_top(), which the host fills while the device computes (head/logits_mask.cu); need: bytes that measured
 * steps ask for. */
struct masks {
    const uint32_t *const *of; /* [rows] of the recorded node, in the caller's memory */
    int rows;
    size_t words;   /* of a mask */
    op_masks *fill; /* NULL: they are filled */
    void *ctx;
    bool due;      /* the host's part is not done */
    bool launched; /* and the device may wait for it */
    unsigned char *pinned;
    size_t need, cap;
    uint32_t *turn; /* on the device: how often it had masks */
    uint32_t turns; /* how often it was given some */
};

/* Matrices on the host of which steps take rows (device/memory.cu), */
enum { LOOKUPS = 2 }; /* the token embedding, a table of n-grams */
struct matrix {
    const unsigned char *from;
    size_t n;
};
/* and the rows of a step, gathered in pinned memory, and their copy. measured: of the step that is measured; need: the
 * most that such a step takes. */
struct lookup {
    size_t measured, need, cap, used, sent;
    unsigned char *host, *dev;
};

/* How often the device said that all it was given is done: NODE_DONE. */
struct done {
    volatile uint32_t *said; /* in pinned memory, behind what the first lane fetches */
    uint32_t *turn;          /* on the device, the same */
    uint32_t turns;          /* how often it was asked to */
};

/* What a step has until it is done. */
struct lane {
    struct chunk chunk[CHUNKS];
    struct staged staged[STAGED];
    int n_staged;
    struct fetch fetch;
    struct masks masks;
    struct lookup lookup;
    bool waits;    /* launched, and not landed: */
    uint32_t turn; /* the NODE_DONE after which it is done */
};

/* Rows on their way to another device, in pinned memory (cuda_pass()), which has places that are used in turn; need:
 * bytes of the largest that a measured step passes on. */
enum { PASSES = 4 };
struct passing {
    struct cuda *before; /* the device that passes rows to this one; NULL: none has */
    size_t need, cap;    /* of a place */
    unsigned char *pinned;
    unsigned turn, turn_taken;
    cudaEvent_t full[PASSES];  /* the rows of a place are there */
    cudaEvent_t taken[PASSES]; /* in turn: this device has what it was passed */
    cudaEvent_t empty[PASSES]; /* that of the device which had the place's last rows; NULL: nobody had any */
};

struct weight_block {
    unsigned char *p;
    struct weight_block *next;
};

/* Time by operation, while it is measured: event i follows what was launched for op[i]. And what was launched
 * meanwhile: fusions, kernels by file. */
enum { LAUNCHED_FILES = 64, LAUNCHED_NAME = 32 };
struct launch_clock {
    bool on;
    int n, cap;
    cudaEvent_t *event;
    int *op;
    uint64_t ns[DEV_OP_N];
    uint64_t fused[GEMM_N_FUSIONS];
    struct {
        char name[LAUNCHED_NAME]; /* in kernels/, without .cu */
        uint64_t n;
    } file[LAUNCHED_FILES];
    int n_files;
};

struct cuda {
    struct dev *dev;
    int id, sms;
    char about[288];
    cudaStream_t stream;
    cudaError_t bad; /* sticky */
    const char *bad_at;
    bool in_step;
    bool under_way;    /* something was launched and not waited for */
    bool sent;         /* the next launch begins when the step's data is there: see cuda_send() */
    bool dry_run;      /* nothing is taken, nothing runs */
    bool measuring;    /* nodes are looked at, not kept */
    struct node probe; /* the one looked at */
    struct hand hand;
    struct lane first, *more; /* the usual lane, and [n_more] lanes 1 .. n_more */
    int n_more;
    struct lane *lane; /* of the step that is recorded, and of what is asked for between steps */
    struct matrix matrix[LOOKUPS];
    struct done done;
    struct passing passing;
    struct dev_memory mem; /* when it was opened */
    size_t held;
    bool fuse;     /* nodes of steps with one row go together */
    bool sm_90;    /* sm_90: many rows are multiplied by gemm/gemm_r64_a16_wgmma.cuh, blocks of few rows share columns
                 (gemm/gemm_r2_16.cu) */
    int sm;        /* compute capability: 90, 120 */
    int only;      /* dev_opts.kernel */
    uint64_t used; /* dev_kernels() */
    bool eight;    /* activations are rounded to 8 bits (gemm/sums.cuh) */
    struct node *node;
    int n_node, cap_node;
    unsigned char *ws; /* working memory of an operation, from its start to its end */
    size_t ws_cap, ws_need;
    struct tables *tab;
    int *handed;  /* on the device: strips that are handed out (gemm/gemv_r1_fused.cu) */
    float *added; /* on the device: a x of adapters, of one launch after the other (gemm/gemv_r1_added.cu) */
    int n_added;  /* how many are taken */
    PFN_cuTensorMapEncodeTiled_v12000 encode; /* of the driver, which is not linked */
    struct graph graph[GRAPHS];               /* the last used first */
    struct launch_clock clock;
    uint64_t captured;        /* graphs */
    unsigned char *bounce[2]; /* pinned, for uploads */
    cudaEvent_t bounce_done[2];
    int bounce_next;
    struct pool *loaders; /* copy weights to `bounce`; NULL: nobody has yet, or no longer */
    struct weight_block *weights;
    unsigned char *slab; /* small weights share an allocation */
    size_t slab_left;
};

/* device/open.cu */
void cuda_fail(struct cuda *c, cudaError_t e, const char *where);
#define TRY(c, call) cuda_fail((c), call, #call)
enum err_code cuda_failed(const struct cuda *c, struct err *e); /* what has; ERR_OK: nothing */

/* device/memory.cu: rows of the table, and: */
enum { BOUNCE = 8 << 20 };
void *cuda_take(struct cuda *c, size_t n); /* NULL: there is no room */
void cuda_loaded(struct cuda *c);          /* threads that load weights end; new ones come with new weights */
void cuda_count(struct cuda *c, size_t n, bool more); /* n bytes were taken, or given back */
void *cuda_alloc(struct cuda *c, size_t n);
void cuda_release(struct cuda *c, void *p, size_t n);
const void *cuda_weights(struct cuda *c, const void *host, size_t n);
const void *cuda_weights_some(struct cuda *c, const void *host, size_t piece_bytes, int64_t n, const bool *keep);
const void *cuda_weights_rows(struct cuda *c, const void *host, size_t n);
bool cuda_is_lookup(const struct cuda *c, const void *w);
void cuda_lookup_reserve(struct cuda *c);
void cuda_lookup_close(struct lookup *l);
/* Where the step finds row token[i] of w as row i; NULL when it is only measured, or failed. */
void *cuda_look_up(struct cuda *c, const void *w, size_t row_bytes, const int32_t *token, int64_t n);
bool cuda_reserve_weights(struct cuda *c, size_t n);
size_t cuda_held(struct cuda *c);
void cuda_look(struct cuda *c);
struct dev_memory cuda_memory(struct cuda *c);

/* device/step.cu */
void *cuda_stage(struct cuda *c, enum staged_as as, const void *data,
                 size_t n); /* where the step finds these n bytes */
struct rows cuda_stage_rows(struct cuda *c, const struct op_rows *r);
struct pages cuda_stage_pages(struct cuda *c, const struct op_kv *kv, const struct op_rows *r);
struct node *cuda_record(struct cuda *c, int op);
void cuda_recorded(struct cuda *c); /* the node is complete */
void cuda_flush(struct cuda *c);    /* runs what is recorded, and waits */
void cuda_submit(struct cuda *c);
bool cuda_lanes(struct cuda *c, int n);
void cuda_begin_in(struct cuda *c, int lane);
void cuda_launch(struct cuda *c);         /* all of the step in hand is under way */
void cuda_land(struct cuda *c, int lane); /* it is done, or c->bad says why not */
void cuda_lane_close(struct lane *l);
bool cuda_fetch(struct cuda *c, void *to, const void *from, size_t n); /* false: no room */
void cuda_drop_graphs(struct cuda *c);
void cuda_pass(struct cuda *a, void *to, struct tensor y, struct tensor x); /* dev_pass() */
void cuda_pass_close(struct cuda *c);
bool cuda_reserve(struct cuda *c); /* what measured nodes need */

/* device/cpu_experts.cu */
void cuda_hand_need(struct cuda *c, int64_t n, int n_used, int64_t width, int64_t out_width);
void cuda_hand_reserve(struct cuda *c);
const struct op_hand *cuda_hand_keep(struct cuda *c, const struct op_hand *h); /* a copy, with adapters; NULL: failed */
const struct op_hand *cuda_hand_kept(const struct cuda *c);                    /* the last one */
void cuda_hand_close(struct cuda *c);
void cuda_hand_out(struct cuda *c, const struct node *v);
void cuda_hand_in(struct cuda *c, const struct node *v);
/* The host's part, when the device has come so far; ended: it has done all that was launched. Returns whether it
 * has. */
bool cuda_hand_work(struct cuda *c, const struct node *v, bool ended);
void cuda_tally(struct cuda *c, const struct node *v);

/* head/logits_mask.cu: before the node is recorded; at measuring, what it needs. */
void cuda_masks_record(struct cuda *c, const struct op_top *a, int64_t rows, int64_t width);
void cuda_masks_reserve(struct cuda *c);
void cuda_masks_close(struct masks *m);
void cuda_masks_give(struct cuda *c); /* the host's part, if it is due */
void cuda_masks_end(struct cuda *c);  /* the device has done all */
/* The words of a row's mask: whole blocks of logits. */
static inline int64_t mask_pitch(int64_t width)
{
    return (width + 255) / 256 * 8;
}
/* Launches the wait for masks, and their copy to the device: rows of mask_pitch() words; here[row]: whether it has
 * one. */
void cuda_masks_take(struct cuda *c, int rows, int64_t width, uint32_t *mask, int *here);

/* device/launch.cu: launches nodes in order; captured: for a graph. */
void cuda_exec(struct cuda *c, const struct node *node, int n, bool captured);
size_t cuda_ws(const struct node *v); /* working memory that a node needs */
void cuda_added_open(struct cuda *c); /* gemm/gemv_r1_fused.cu: memory of what adapters add in launches of products */

/* device/timing.cu */
enum err_code cuda_read_speed(struct cuda *c, size_t n, double *bytes_per_s, int reps, struct err *e);
void cuda_time(struct cuda *c, bool on);
uint64_t cuda_time_ns(struct cuda *c, enum dev_op op);
int cuda_launched(struct cuda *c, struct dev_launched *out, int max);
void cuda_count_launch(struct cuda *c, const char *file); /* __FILE__ of the launch */
uint64_t cuda_graphs(struct cuda *c);
void cuda_clock_begin(struct cuda *c, int n);                                     /* before n nodes are launched */
void cuda_clock_mark(struct cuda *c, const struct node *v, int n, bool captured); /* n = 0: the start */
void cuda_clock_end(struct cuda *c);                                              /* after they are done */
void cuda_clock_free(struct cuda *c);

#define LAUNCH(c, kernel, grid, block, smem, ...) \
    do { \
        kernel<<<(grid), (block), (smem), (c)->stream>>>(__VA_ARGS__); \
        cuda_count_launch((c), __FILE__); \
        cuda_fail((c), cudaGetLastError(), #kernel); \
    } while (0)

static inline int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}
static inline size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}
static inline int power_of_two(int64_t n)
{
    int p = 1;

    while (p < n)
        p *= 2;
    return p;
}

/* Launchers, by file. */
int cuda_copy(struct cuda *c, const struct node *v,
              int n); /* device/transfer.cu: NODE_COPY and _DONE; how many nodes */
void cuda_send(struct cuda *c, const struct node *v);
bool cuda_await(struct cuda *c, uint32_t turn);        /* until that NODE_DONE; false: it failed */
enum { SMALL_MOVE = 16 << 10 };                        /* bytes that a launch moves */
void cuda_elem(struct cuda *c, const struct node *v);  /* elem/elem.cu: norms, elementwise, picks, rope */
void cuda_embed(struct cuda *c, const struct node *v); /* head/embed.cu */
void cuda_route(struct cuda *c, const struct node *v); /* moe/moe_r17.cu */
void cuda_moe(struct cuda *c, const struct node *v);   /* also moe_pairs */
void cuda_moe_sum(struct cuda *c, const struct node *v);
void cuda_streams(struct cuda *c, const struct node *v); /* elem/streams.cu */
void cuda_index(struct cuda *c, const struct node *v);   /* attn/attn_picked.cu, also attention over what is chosen */
size_t cuda_index_ws(const struct node *v);
void cuda_kv_store(struct cuda *c, const struct node *v); /* attn/attn_r2_16.cu */
void cuda_attn(struct cuda *c, const struct node *v);
void cuda_rec(struct cuda *c, const struct node *v); /* recur/conv.cu */
void cuda_top(struct cuda *c, const struct node *v); /* head/logits_top.cu */
size_t cuda_top_ws(const struct node *v);
size_t cuda_moe_ws(const struct node *v);
size_t cuda_attn_ws(const struct node *v);
size_t cuda_rec_ws(const struct node *v);

/* y_i = w_i x for n matrices and one x (gemm/pick.cu). */
enum { JOBS = 8, MOST_ADDED = 1024 };
struct job {
    struct tensor w, y;
};
void cuda_matmul(struct cuda *c, const struct job *job, int n, struct tensor x);
size_t cuda_matmul_ws(int64_t k, int64_t n_rows);
#endif
