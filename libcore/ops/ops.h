/* SPDX-License-Identifier: Apache-2.0 */
/* ops.h - the operations a forward pass is made of.                      room: ops
 *
 * A forward pass is straight-line C that calls these functions; there is no graph object. Shapes are
 * checked here, once (a wrong shape is a bug: assert), then the call goes through the device's
 * table. The scalar code of the device "cpu" defines the right answer.
 *
 * Activations are float rows: tensor.ne[0] wide, ne[1] of them, `stride` floats apart. Weights are
 * stored rows of any quant type. Each row of a result depends only on the same row of the inputs (and,
 * for sequence operations, on earlier rows of its sequence), never on what else is in the step: its
 * bytes are the same alone and in any batch.
 *
 * A device failure is sticky, like ferror(3): later calls do nothing and dev_wait() reports it.
 * One thread at a time per device.
 */
#ifndef OPS_OPS_H
#define OPS_OPS_H
#include "base/base.h"
#include "base/logits.h"
#include "quant/quant.h"

struct dev;

struct tensor {
    int type;       /* row of quant_types[] */
    int64_t ne[3];  /* elements, fastest dimension first; 1 past the last */
    int64_t stride; /* activations: elements from one row to the next */
    int64_t pitch;  /* weights: rows from one matrix to the next, ne[1] unless a view */
    void *data;     /* on the device; weights are never written */
    bool laid;      /* weights: laid out by the device (dev_weights_copy()) */
    int of;         /* weights: 1 + the number of the model's tensor that has these rows; 0: not said */
    int64_t from;   /* and the first of them there, where all matrices' rows follow each other */
};

/* Rows of a step, grouped by sequence: seq[i] covers rows row .. row + n - 1, which append n tokens
 * at positions pos .. pos + n - 1 to the memory in slot `slot`. The last three matter to recurrent layers:
 * see struct op_log. */
struct op_seq {
    int row, n;
    int slot;
    int64_t pos;
    int again;  /* rows before pos that the memory has not seen: they are computed again */
    int drafts; /* of the n rows the last ones, which leave no memory */
    int logged; /* of the n rows the last ones whose inputs are logged */
};
struct op_rows {
    int n;                /* rows in the step */
    const int32_t *token; /* [n] */
    const int32_t *pos;   /* [n] position of each row in its sequence */
    int n_seq;
    const struct op_seq *seq; /* [n_seq] */
};

/* Inputs of a recurrent layer, in a ring of `rows` rows for each slot: that of position p is row p % rows. An
 * operation finds its own inputs there side by side, in the order of its arguments (of a scan without those that
 * come from the convolution).
 *
 * With a log an operation first takes seq.again rows from it, which change the memory as they would have done in
 * their own step; then the step's rows, whose results are the same bytes as if all had come one by one. The memory
 * is left as it is before the draft rows, and the inputs of the last rows are logged. Nothing of this is in the
 * tensors' shapes but the room for rows that are computed again: the convolution puts them after the step's rows,
 * where the scan finds them; those of sequence i begin at row n + i * most. A step may have no rows but those. */
struct op_log {
    float *data;    /* on the device */
    int64_t floats; /* of a slot */
    int64_t width;  /* floats from a row to the next */
    int rows;       /* 0: there is no log */
    int most;       /* rows that a sequence may have computed again */
};

/* Fixed memory of a recurrent layer: `floats` floats for each slot. */
struct op_rec {
    float *data;
    int64_t floats;
    struct op_log log;
};
/* Rows after the step's: op_rows.n_seq * log.most. */
int64_t op_again_rows(const struct op_rec *rec, const struct op_rows *r);

/* Keys and values of one layer, in pages of OP_KV_PAGE positions: for each KV head OP_KV_PAGE rows of keys, then
 * the same of values, then those of an indexer (struct op_index). Page number page[slot][i] holds a sequence's
 * positions i * OP_KV_PAGE ...; the numbers are the same for every layer. */
enum { OP_KV_PAGE = 256 };
struct op_kv {
    int type_k, type_v; /* rows of quant_types[] */
    int n_head, dim_k, dim_v;
    unsigned char *pages; /* on the device */
    size_t page_bytes;
    const int32_t *const *page; /* [slot][ctx / OP_KV_PAGE], on the host; -1: none yet */
    int type_x, dim_x;          /* of an indexer's keys: f32 or f16; 0 elements: there is none */
    /* A query sees `window` positions before its own, and the first `always`, at least 1; window 0: all. */
    int window, always;
};

enum op_act { OP_SILU, OP_RELU2 };

/* ---- devices ---- */

struct dev_opts {
    int n_threads; /* cpu: 0 for as many as there are processors */
    enum quant_acts_type
        acts;     /* what activations are rounded to (quant.h); the GPU has 8 bits, and 16 for the others */
    bool dry_run; /* only to learn what things take (dev_held): nothing is taken from the device; steps can be
                   * measured, not computed */
    bool absent;  /* a dry run of a device that is not there will do, of "cuda" also in programs built without it */
    int kernel;   /* a GPU, for tests and measurements: 1 + the row of gemm_kernels[] (gemm/gemm.h) that products run on
                   * where it takes them; 0: the first that does */
    bool scalar;  /* cpu: the plain code that defines the right answer, whatever the processor can do */
};
/* name: a row of devs.def, "NAME" or "NAME:N" ("cpu", "cuda:1"), or "auto": the GPU where there is a usable
 * one, else the CPU. ERR_ARG for another; ERR_DEVICE when the machine has no such device, or the program was built
 * without it. "absent" is what programs without CUDA have for dry runs of a GPU, for any program to compare with.
 *
 * "check:" before such a name: a device that computes everything on that one and on the scalar CPU, each operation
 * from the same inputs. It stops at the first result that is further off than the operation allows (check.c; the
 * cpu's bytes have to be the same), and dev_end() says which: ERR_DEVICE. Takes the memory of both. */
MUST_CHECK enum err_code dev_open(struct dev **out, const char *name, const struct dev_opts *o, struct err *e);
/* Several devices for the layers of a model: "cuda:0,cuda:1"; all are of one kind, and a name may come twice.
 * "cuda:all": every GPU of the machine, in their order. */
enum { DEV_LIST_MAX = 16, DEV_NAME_BYTES = 32 };
struct dev_list {
    int n;
    char name[DEV_LIST_MAX][DEV_NAME_BYTES];
};
/* ERR_ARG: a name as dev_open() says it, more than DEV_LIST_MAX, two kinds; ERR_DEVICE: "cuda:all" without GPUs. */
MUST_CHECK enum err_code dev_list_parse(struct dev_list *out, const char *names, struct err *e);
/* Whether names are of devices that a program may have, before anything is opened: ERR_ARG as dev_list_parse(). */
MUST_CHECK enum err_code dev_check_name(const char *names, struct err *e);
void dev_close(struct dev *d); /* NULL is allowed */
/* One device made of several of one kind, whose memory has to be the host's, that share every layer: each computes some
 * rows of every matrix, some heads, some experts, and they all get what the others have. No sum is cut, so the bytes
 * are those of one of them. ERR_UNSUPPORTED: another kind. */
MUST_CHECK enum err_code dev_open_rows(struct dev **out, const struct dev_list *l, const struct dev_opts *o,
                                       struct err *e);
const char *dev_name(const struct dev *d);
int dev_unit(const struct dev *d); /* N of "NAME:N" */
int dev_threads(const struct dev *d);
const char *dev_simd(const struct dev *d); /* kernels in use: "avx512" "avx2" "scalar" */

/* Where operations find n bytes of weights that stay at `host` for the device's life: host itself on the cpu, a
 * copy elsewhere; NULL when there is no room. */
const void *dev_weights(struct dev *d, const void *host, size_t n);
/* The same for a matrix that only op_embed() reads: host itself also where the device takes single rows from there. */
const void *dev_weights_rows(struct dev *d, const void *host, size_t n);
/* The same for some of n pieces of piece_bytes at `host`: those with keep[i], one after the other where the device has
 * a copy; where its memory is the host's all of them, each in its place. */
const void *dev_weights_some(struct dev *d, const void *host, size_t piece_bytes, int64_t n, const bool *keep);
/* `times` times n pieces, which are heads of the model. */
enum { DEV_SECTIONS_MAX = 5 };
struct dev_section {
    size_t piece; /* bytes, or rows */
    int n, times;
};
/* Copies the weights to memory that the device owns. On the CPU: huge pages if all pieces are kept, else normal pages,
 * committed on first write. The caller must check that memory suffices (base/memory.h). A dry run only counts. *laid
 * becomes true if rows may be laid out and products are then faster; set laid in their struct tensor. */
struct dev_pieces {
    const void *host;
    size_t bytes; /* of one */
    int64_t n;
    const bool *keep; /* [n]; NULL: all */
    int type;         /* matrices of ne1 rows of ne0 elements, several in a piece or one, which only products take: */
    int64_t ne0, ne1; /* rows may be laid out; ne0 0: they may not */
    const struct dev_section *section; /* of one matrix, whose rows are of heads; in rows */
    int n_section;
};
const void *dev_weights_copy(struct dev *d, const struct dev_pieces *v, bool *laid);
/* dev_weights() or, with v->keep, dev_weights_some(), of which a device of several cuts matrices. */
const void *dev_weights_pieces(struct dev *d, const struct dev_pieces *v);
/* Routed experts that stay in their file. Instead of taking them from the mapping, page by page, the device reads the
 * experts that a step needs, all of a layer at once and past the page cache, into a cache of its own. Those that were
 * not used for the longest time make room. Only where memory is the host's.
 * First every layer: its number for op_moe.cached, or 0 (no memory, a device that cannot). Then dev_cache_open(), which
 * takes at most `bytes` of memory: ERR_LIMIT if that is less than one expert. Results are the same bytes as without.
 * If a read fails, dev_stopped() is true and dev_end() says why: ERR_IO, or ERR_FORMAT if the file was cut or written.
 * What the step has computed is then undefined, and the next one tries again. */
struct io_map;
struct op_moe;
struct dev_cached {
    const struct op_moe *moe;    /* gate, up and down in the mapping */
    const struct io_map *map[3]; /* of these */
    const char *path[3];
    const uint64_t *uses; /* [experts] counted; those used most of all layers stay once read; NULL: unknown */
};
int dev_cache_layer(struct dev *d, const struct dev_cached *l);
MUST_CHECK enum err_code dev_cache_open(struct dev *d, size_t bytes, struct err *e);
struct io_cache_stats;                                                 /* base/reads.h */
bool dev_cache_stats(const struct dev *d, struct io_cache_stats *out); /* false: there is no cache */
/* n bytes at once for all weights to come, as dev_held() of a dry run counted them; false when there is no room. */
bool dev_reserve_weights(struct dev *d, size_t n);
/* Bytes of its memory that the device has given out: weights as it lays them out (the host's own memory counts,
 * where it is used in place), and the rest as dev_alloc() takes it. */
size_t dev_held(const struct dev *d);
/* Of the whole device, now. Where its memory is the host's, only fixed_bytes is known. */
struct dev_memory {
    bool present;                    /* false: a dry run of a device that is not there */
    int64_t total_bytes, free_bytes; /* -1: not known */
    int64_t fixed_bytes;             /* what it takes before anything is asked of it; -1: not known */
    bool estimate;                   /* the program was built without the device: operations' own memory is estimated */
};
struct dev_memory dev_memory(const struct dev *d);
/* The device's memory is the host's: pointers into it may be read directly. */
bool dev_is_host(const struct dev *d);
/* It has op_adapt(). */
bool dev_adapts(const struct dev *d);

/* Memory of the device, zeroed, 64-byte aligned, taken from the system as it is touched; NULL when it
 * cannot be had. */
void *dev_alloc(struct dev *d, size_t n);
/* The same for n areas that follow each other, which say what a device of several (dev_open_rows()) may share out. An
 * area is periods (a page of keys and values, a sequence's state), and perhaps some bytes that round it up. A period is
 * sections: each device has the same heads in every section, or all if they are fewer than devices. For the caller
 * everything is where it is without. Only whole periods may be copied between areas, or zeroed. */
struct dev_area {
    size_t bytes;
    int n_section;
    struct dev_section section[DEV_SECTIONS_MAX];
};
void *dev_alloc_areas(struct dev *d, const struct dev_area *a, int n);
/* Of a device of several: how many they are, 1 of others; each of them, or d itself; what the areas that begin at p, or
 * the one area alone, take there. */
int dev_members(const struct dev *d);
struct dev *dev_member(struct dev *d, int i);
size_t dev_areas_bytes(struct dev *d, const void *p, int member);
size_t dev_area_bytes(struct dev *d, const void *p, int member);
/* How often they have exchanged what each had computed, and in *bytes how much they got; 0 of other devices. */
int64_t dev_exchanges(const struct dev *d, int64_t *bytes);
void dev_free(struct dev *d, void *p, size_t n); /* NULL is allowed */
void dev_zero(struct dev *d, void *p, size_t n);
/* n bytes, each side on the device or the host; moving down within one array is allowed (to < from). */
void dev_copy(struct dev *d, void *to, const void *from, size_t n);
/* During a step of both, rows x of one device to y on another of the same kind; neither has gaps. What `to` is given
 * later comes after them. If one of them fails, its dev_end() says so. */
void dev_pass(struct dev *from, struct dev *to, struct tensor y, struct tensor x);
/* During a step, n bytes of the device to the host, which has them when the step has ended. */
void dev_fetch(struct dev *d, void *to, const void *from, size_t n);

/* Scratch: reserved once, handed out like a stack within a step. */
MUST_CHECK enum err_code dev_reserve(struct dev *d, size_t scratch_bytes, struct err *e);
/* While measuring, operations compute nothing and scratch hands out no memory (data is NULL): the forward
 * pass itself tells, by dev_scratch_peak(), how much a step of its shape needs. */
void dev_measure(struct dev *d, bool on);
size_t dev_scratch_peak(const struct dev *d); /* most bytes in use since open */
void dev_begin(struct dev *d);                /* a step begins: scratch is empty */
bool dev_records(const struct dev *d); /* it launches what was recorded of a step, code of its own, which it loads as
                                        * it is first used */
void dev_submit(struct dev *d);        /* what was asked for so far may run: the host goes on meanwhile */
MUST_CHECK enum err_code dev_end(struct dev *d, struct err *e); /* all work done, or why not */
/* Instead of dev_end() where nothing comes to the host: a device that records need not be done yet, and the next
 * dev_end() says what failed. What is asked for later comes after it. */
MUST_CHECK enum err_code dev_leave(struct dev *d, struct err *e);
/* Steps under way: a device that records may have several at once, which it computes one after the other, each in a
 * lane of its own, where its data and what was fetched stay until it has landed. Lane 0 is that of dev_begin(). A step
 * in lane 1 .. n is begun by dev_begin_in() and ended by dev_launch(): it is under way, and nothing of it waits for the
 * host any more. dev_land() waits for it; dev_fetch()ed bytes are there then. Between the two the device takes other
 * steps, of other lanes, and anything else: that comes after it. A device that computes at once has done all in
 * dev_launch(), which then says what failed. */
/* Lanes 1 .. n, to be measured like lane 0. ERR_NOMEM. */
MUST_CHECK enum err_code dev_lanes(struct dev *d, int n, struct err *e);
void dev_begin_in(struct dev *d, int lane);
MUST_CHECK enum err_code dev_launch(struct dev *d, struct err *e);
MUST_CHECK enum err_code dev_land(struct dev *d, int lane, struct err *e);
struct tensor dev_scratch(struct dev *d, int64_t ne0, int64_t ne1); /* float rows, until release */
void *dev_scratch_bytes(struct dev *d, size_t n);                   /* 64-byte aligned */
size_t dev_mark(const struct dev *d);
void dev_release(struct dev *d, size_t mark);

/* From now on operations can be aborted on devices that compute at once (the CPU): its threads call stop() now and
 * then; once it has returned true, results are undefined and operations end soon, until the next step begins. NULL:
 * never (the default). */
void dev_may_stop(struct dev *d, bool (*stop)(void));
bool dev_stopped(struct dev *d); /* asks, too */

/* On: work will come soon; sleeping threads of the device are woken and spin until this is turned off. */
void dev_awake(struct dev *d, bool on);

/* Time by operation while it is on, from 0 when it is turned on: the host's clock around each call or, on a device
 * with launches of its own, that device's clock around each launch, which makes steps slower. A launch that does
 * several operations counts as the heaviest of them. */
struct dev_timing {
    const char *op;
    uint64_t calls, ns;
};
void dev_time(struct dev *d, bool on);
int dev_timings(const struct dev *d, struct dev_timing *out, int max);
/* What was launched in that time; entries written, 0 on a device without launches. */
struct dev_launched {
    const char *what; /* a fusion (gemm_fusion_name()), or kernels by the name of their file */
    bool fusion;
    uint64_t n;
};
enum { DEV_LAUNCHED_MAX = 80 };
int dev_launched(const struct dev *d, struct dev_launched *out, int max);
/* Steps that were recorded as graphs since the device was opened. */
uint64_t dev_graphs(const struct dev *d);
/* Bits of the rows of gemm_kernels[] that were launched since it was opened; 0 on the CPU. */
uint64_t dev_kernels(const struct dev *d);

/* How fast the device reads its memory: known contents of n bytes (a multiple of DEV_READ_UNIT) are read over and
 * over, for 20 ms at least; bytes per second of each of `reps` measurements, after one to warm up. ERR_DEVICE when
 * what was read is not what was written, ERR_NOMEM without room for n bytes, ERR_CANCEL when dev_may_stop() says so.
 * Threads: the device's own. */
enum { DEV_READ_UNIT = 256 };
MUST_CHECK enum err_code dev_read_speed(struct dev *d, size_t n, double *bytes_per_s, int reps, struct err *e);

/* Columns c .. c + n - 1 of x, as a view. */
struct tensor op_cols(struct tensor x, int64_t c, int64_t n);
/* Rows r .. r + n - 1 of x, as a view. */
struct tensor op_slice(struct tensor x, int64_t r, int64_t n);
/* Matrix i of weights w. */
struct tensor op_matrix(struct tensor w, int64_t i);

/* ---- operations; y never overlaps an input unless the comment says so ---- */

/* Token ids in the device's memory, id j at at[j * stride]: answers of op_top() can be read where they lie. */
struct op_ids {
    const int32_t *at;
    int64_t stride;
};
/* y[r] = row t of w, decoded, times scale; t is token[r] or, where that is -1 - j, id j of ids, which are in 0 ..
 * w.ne[1] - 1 (or NULL, where there are no such rows; so always for w of dev_weights_rows()). */
void op_embed(struct dev *d, struct tensor y, struct tensor w, const int32_t *token, const struct op_ids *ids,
              float scale);
/* y[r][o] = <w[o], x[r]> with the order of sums of cpu/format.h; where weights are not finite, y is infinite or NaN */
void op_matmul(struct dev *d, struct tensor y, struct tensor w, struct tensor x);
/* op_matmul() of n matrices with the same x, which some devices compute at once; outputs do not overlap. */
struct op_product {
    struct tensor y, w;
};
enum { OP_PRODUCTS_MAX = 8 };
void op_matmuls(struct dev *d, const struct op_product *p, int n, struct tensor x);
/* y = x / sqrt(mean(x^2) + eps) * w over groups of `group` columns (0: the whole row). w has
 * `group` elements, or a full row's, or NULL data for none. y may be x. (Zhang & Sennrich 2019) */
void op_rms_norm(struct dev *d, struct tensor y, struct tensor x, const float *w, int64_t n_w, int64_t group,
                 float eps);
/* As op_rms_norm by groups, then times silu(z). y may be x. */
void op_rms_norm_gated(struct dev *d, struct tensor y, struct tensor x, struct tensor z, const float *w, int64_t n_w,
                       int64_t group, float eps);
/* y[r] = y[r] + s * x[r] */
void op_add(struct dev *d, struct tensor y, struct tensor x, float s);
/* y[r] += sigmoid(g[r][0]) * x[r] */
void op_add_gated(struct dev *d, struct tensor y, struct tensor x, struct tensor g);
/* y = silu(gate) * up; y may be either */
void op_glu(struct dev *d, struct tensor y, struct tensor gate, struct tensor up);
/* y = gelu(gate) * up, gelu(x) = x (1 + erf(x / sqrt(2))) / 2, not its approximation by tanh; y may be either */
void op_geglu(struct dev *d, struct tensor y, struct tensor gate, struct tensor up);
/* y = max(y, 0)^2 (So et al. 2021, Primer) */
void op_relu2(struct dev *d, struct tensor y);
/* y *= sigmoid(g); g has a column for each of y, or for each group of y.ne[0] / g.ne[0] neighbours (a head) */
void op_sigmoid_mul(struct dev *d, struct tensor y, struct tensor g);
/* y *= x elementwise */
void op_mul(struct dev *d, struct tensor y, struct tensor x);
/* y *= s */
void op_scale(struct dev *d, struct tensor y, float s);
/* y = silu(s * y) */
void op_silu(struct dev *d, struct tensor y, float s);

/* Hyper-connections (Zhu et al. 2024): rows of n streams side by side, w = y.ne[0] columns each, j ascending. */
/* y[r][i] = (1 / n) * sum_j sigmoid(g[r][j * w + i]) * x[r][j * w + i] */
void op_streams_mix(struct dev *d, struct tensor y, struct tensor x, struct tensor g);
/* x[r][j * w + i] += 2 sigmoid(a[r][j] / n) * y[r][i]; a: [rows][n] */
void op_streams_add(struct dev *d, struct tensor x, struct tensor y, struct tensor a);
/* y[r][j * w + i] = sigmoid(v) * value[r][i], v = sign(u) sqrt(max(|u|, 1e-6)), u = <key, query> of stream j / sqrt(w);
 * value: [rows][w] */
void op_streams_gate(struct dev *d, struct tensor y, struct tensor key, struct tensor query, struct tensor value);

/* y[i] = x[row[i]] */
void op_rows_pick(struct dev *d, struct tensor y, struct tensor x, const int32_t *row);

/* What a sampler needs of rows of logits without the rows themselves. NaN counts as -inf, +inf as the largest float,
 * and what a row's mask does not allow as -inf, too. For each row, from out + r * op_top_bytes(a) on: struct
 * op_top_row; then k struct logits_entry, the first n of them the row's largest logits that are not -inf, best first,
 * lowest id on ties; then the logits of the ids asked for (n_ids floats). Weights and sums are those of base/softmax.h,
 * relative to max; where no logit is finite, n is 0 and the sums say nothing. */
typedef void op_masks(void *ctx);
struct op_top {
    int k; /* 1 .. LOGITS_TOP_MAX */
    int n_ids;
    const int32_t *ids;          /* [rows][n_ids], on the host; -1: none, gives -inf */
    const float *inv_temp;       /* [rows], on the host */
    const uint32_t *const *mask; /* [rows], on the host (base/logits.h); NULL: none in any row, or in that one */
    op_masks *masks; /* called with ctx, once, before the masks are read: on a device that records, while it */
    void *ctx;       /* computes what was asked for before. It may not use the device. NULL: masks are there. */
};
struct op_top_row {
    double total;     /* sum of w = exp(x - max): log-sum-exp is max + ln(total) */
    double heated;    /* sum of exp((x - max) * inv_temp) */
    double weighted;  /* sum of w (x - max): base/logits.h says what for */
    double squared;   /* sum of w (x - max)^2 */
    double raw_total; /* sum of exp(x - raw_max) of the row without its mask */
    float max, raw_max;
    int32_t n, unused; /* unused: 0 */
};
size_t op_top_bytes(const struct op_top *a);
/* The best token of every row of such an answer, for op_embed(); 0 where no logit is finite. */
struct op_ids op_top_ids(const struct op_top *a, const void *out);
void op_top(struct dev *d, void *out, struct tensor logits, const struct op_top *a);
/* Row r of such an answer, which is on the host now; the n_top <= k best of it. */
struct logits_digest op_top_digest(const struct op_top *a, const void *out, int64_t r, int32_t n_top);

/* Splits heads that are `pitch` columns apart: y[r][h * dim + i] = x[r][h * pitch + first + i]. */
void op_heads_pick(struct dev *d, struct tensor y, struct tensor x, int64_t dim, int64_t pitch, int64_t first);

/* Rotary embedding (Su et al. 2021): in each head of dim columns, columns i and i + n_rot/2 (i < n_rot/2;
 * with pairs: columns 2i and 2i + 1), counted from column `first`, turn by pos * freq[i]. In place. */
struct op_rope {
    int64_t dim, n_rot;
    const float *freq; /* [n_rot / 2] radians per position */
    bool pairs;
    int64_t first; /* columns of a head in front of those that turn */
};
void op_rope(struct dev *d, struct tensor x, const struct op_rope *a, const struct op_rows *r);

/* In each head of dim columns, every block of n = op_hadamard_block(dim) columns is multiplied by the Walsh-Hadamard
 * matrix / sqrt(n), which spreads what one column has over all of them (as QuaRot: Ashkboos et al. 2024). For
 * half = 1, 2, 4 .. n / 2: columns i and i + half (i / half even) become their sum and their difference; at the end
 * each is multiplied by 1 / sqrt(n), rounded to float. y may be x. */
void op_hadamard(struct dev *d, struct tensor y, struct tensor x, int64_t dim);
/* The largest power of two that divides dim, at most 1024. */
int op_hadamard_block(int64_t dim);
/* Keys of this type are stored rotated by op_hadamard(), and read by queries rotated likewise: products of both are
 * the same but for rounding, and the error of storing in blocks is smaller. True for types of blocks. */
bool op_kv_rotated(const struct op_kv *kv);

/* Stores each row's keys and values at its position. k: [n][n_head * dim_k], v: [n][n_head * dim_v]. */
void op_kv_store(struct dev *d, struct tensor k, struct tensor v, const struct op_kv *kv, const struct op_rows *r);
/* Causal attention over the sequence's positions 0 .. pos, or those in kv's window. q: [n][n_q * dim_k], y: [n][n_q *
 * dim_v]; query head h reads KV head h / (n_q / n_head). Softmax over blocks of OP_KV_PAGE keys, merged in ascending
 * order (Milakov & Gimelshein 2018), so bytes do not depend on how the work is split. */
void op_attn(struct dev *d, struct tensor y, struct tensor q, const struct op_kv *kv, float scale,
             const struct op_rows *r);

/* Attention over chosen blocks of `ratio` positions (position 0 begins the first). An indexer has a key for each
 * position, whose row is kept beside K and V; the row of a block's last position has the block's key instead: the mean
 * of its positions' keys, RMS norm, RoPE at its first position. What was removed can thus be written again: the rows
 * of an unfinished block are always those of its positions.
 * A query at position p may take the (p + 1) / ratio whole blocks up to p; if these are more than `most`, it takes the
 * `most` blocks of the largest scores, sum_h max(0, <q_h, key>), the lowest ones on ties; and the unfinished block up
 * to itself. */
struct op_index {
    int ratio, most;
    int n_head;
    const float *norm; /* [dim_x] */
    float eps;
    struct op_rope rope; /* dim: dim_x */
};
/* k: [n][dim_x], keys of the rows. */
void op_index_store(struct dev *d, struct tensor k, const struct op_kv *kv, const struct op_index *a,
                    const struct op_rows *r);
/* pick[row * most + i]: the blocks of a row, ascending. q: [n][n_head * dim_x]. Every row of a sequence of r must have
 * more blocks than `most`; other rows of the step stay as they are. */
void op_index_pick(struct dev *d, int32_t *pick, struct tensor q, const struct op_kv *kv, const struct op_index *a,
                   const struct op_rows *r);
/* op_attn() over these blocks and the unfinished one, for the same rows. */
void op_attn_picked(struct dev *d, struct tensor y, struct tensor q, const int32_t *pick, const struct op_kv *kv,
                    float scale, const struct op_index *a, const struct op_rows *r);

/* Causal depthwise convolution over the rows of each sequence, then SiLU if asked for:
 * y[t][c] = silu(bias[c] + sum_j w[j][c] * x[t - (taps - 1 - j) * apart][c]), j ascending (oldest first).
 * rec: the last (taps - 1) * apart inputs, [..][channels], oldest first; read and updated. Its log has x. y has
 * op_again_rows() more rows than x; or as many, then rows that are computed again give no result. */
struct op_conv {
    int taps;
    const float *w;    /* [taps][channels] */
    const float *bias; /* [channels] or NULL */
    bool silu;
    struct op_rec rec;
    int apart; /* rows from a tap to the next; 0 counts as 1 */
};
/* Inputs that its memory has. */
int op_conv_back(const struct op_conv *a);
void op_conv(struct dev *d, struct tensor y, struct tensor x, const struct op_conv *a, const struct op_rows *r);

/* Gated delta rule (Yang et al. 2024, "Gated Delta Networks"), token by token. For value head h with
 * key head h % n_k (k_grouped: h / (n_v / n_k)), q and k L2-normalised (eps inside the root), q scaled by
 * 1/sqrt(dim):  g = exp(a[h] * softplus(alpha + dt_bias[h])), b = sigmoid(beta),
 *   kv_j = sum_i S[i][j] k[i];  d_j = b (v_j - g kv_j);  S[i][j] = g S[i][j] + k[i] d_j;
 *   y_j = sum_i S[i][j] q[i]    (sums over i ascending, fused multiply-add)
 * qkv: [n][2 * n_k * dim + n_v * dim_v] (q heads, k heads, v heads); alpha, beta: [n][n_v];
 * y: [n][n_v * dim_v]; rec: S of every head, [n_v][dim][dim_v]; its log has alpha and beta, and qkv op_again_rows()
 * more rows. */
struct op_gdn {
    int n_k, n_v, dim, dim_v;
    bool k_grouped;
    float eps;
    const float *a, *dt_bias; /* [n_v]; a is negative: -exp(A_log) */
    struct op_rec rec;
};
void op_gdn(struct dev *d, struct tensor y, struct tensor qkv, struct tensor alpha, struct tensor beta,
            const struct op_gdn *a, const struct op_rows *r);

/* Delta rule with a decay for each key element (Kimi Linear, 2025), as op_gdn with n_k = n_v heads and
 * g_i = exp(a[h] * softplus(decay[h * dim + i] + dt_bias[h * dim + i])), or with a bound (Ling 3.0, 2026)
 * g_i = exp(bound * sigmoid(a[h] * (decay[h * dim + i] + dt_bias[h * dim + i]))):
 *   kv_j = sum_i S[i][j] g_i k[i];  d_j = b (v_j - kv_j);  S[i][j] = g_i S[i][j] + k[i] d_j;
 *   y_j = sum_i S[i][j] q[i]
 * qkv: [n][3 * n_head * dim]; decay: [n][n_head * dim]; beta: [n][n_head]; y: [n][n_head * dim].
 * The log has decay and beta, and qkv op_again_rows() more rows. */
struct op_kda {
    int n_head, dim;
    float eps;
    const float *a;       /* [n_head], negative; with a bound positive */
    const float *dt_bias; /* [n_head * dim] */
    struct op_rec rec;    /* [n_head][dim][dim] */
    float bound;          /* below 0; 0: there is none */
};
void op_kda(struct dev *d, struct tensor y, struct tensor qkv, struct tensor decay, struct tensor beta,
            const struct op_kda *a, const struct op_rows *r);

/* Selective scan of Mamba-1 (Gu & Dao 2023), for each channel c, D = softplus(dt + dt_bias):
 * h[s] = exp(D a[s][c]) h[s] + D x b[s];  y = d[c] x + sum_s h[s] c[s], s ascending.
 * x, dt, y: [n][channels]; b, c: [n][n_state]. The log has dt, b and c, and x op_again_rows() more rows. */
struct op_ssm1 {
    int n_state;
    const float *a;           /* [n_state][channels], negative */
    const float *d, *dt_bias; /* [channels] */
    struct op_rec rec;        /* [n_state][channels] */
};
void op_ssm1(struct dev *dev, struct tensor y, struct tensor x, struct tensor dt, struct tensor b, struct tensor c,
             const struct op_ssm1 *a, const struct op_rows *r);

/* Scan of Mamba-2 (Dao & Gu 2024), for each head, D = softplus(dt + dt_bias), group of head h =
 * h / (n_head / n_group): h[s][j] = exp(D a) h[s][j] + b[s] D x_j;  y_j = d x_j + sum_s h[s][j] c[s].
 * xbc: [n][n_head * dim + 2 * n_group * n_state] (x, b, c); dt: [n][n_head]; y: [n][n_head * dim].
 * The log has dt, and xbc op_again_rows() more rows. */
struct op_ssm2 {
    int n_head, dim, n_group, n_state;
    const float *a, *d, *dt_bias; /* [n_head]; a negative */
    struct op_rec rec;            /* [n_head][n_state][dim] */
};
void op_ssm2(struct dev *dev, struct tensor y, struct tensor xbc, struct tensor dt, const struct op_ssm2 *a,
             const struct op_rows *r);

/* Router: probabilities from logits (softmax, or each its own sigmoid), the n_used best in descending
 * order (lowest index on ties), their weights. With a bias, experts are chosen by probability + bias (by
 * logit + bias for a softmax) but weighted without; with groups, only experts of the n_group_used groups
 * with the highest sum of their two best scores may be chosen (DeepSeek-V3, 2024).
 * expert: [n][n_used] ids; weight: float rows [n][n_used]. */
enum { OP_GROUPS_MAX = 64 };
struct op_route {
    int n_expert, n_used;
    bool normalise; /* divide the chosen weights by max(their sum, 2^-14) */
    float scale;    /* times this at the end */
    bool sigmoid;
    const float *bias;         /* [n_expert] or NULL */
    int n_group, n_group_used; /* n_group <= 1: no groups */
};
void op_route(struct dev *d, int32_t *expert, struct tensor weight, struct tensor logits, const struct op_route *a);
/* Adapters (Hu et al. 2021, "LoRA"): each row of a step has its own list of them, which add low-rank products to those
 * with the weights. All are float32. */
enum { OP_ADAPTERS_MAX = 64, OP_TERMS_MAX = 8 }; /* of a step; of a row */
/* What an adapter has for the matrices of one tensor. */
struct op_pair {
    const float *a; /* on the device: [matrices][rank][n_in]; NULL: it leaves them alone */
    const float *b; /* likewise: [matrices][rank][n_out] */
    int rank;
    float scale;
    bool half; /* a and b are IEEE half-precision numbers instead (uint16_t), made floats as they are read; only on the
                  CPU, and not with `token` */
};
/* The rows' lists: of row r which[r * max + i], i ascending until one is -1, numbers of the step's adapters, and the
 * scale of each. On the host. */
struct op_terms {
    int n;   /* adapters of the step */
    int max; /* <= OP_TERMS_MAX */
    const int32_t *which;
    const float *scale;
    int floats; /* at least the sum of the ranks of any row's list */
};
/* y[r][o] += sum over the terms of row r, in order, of scale * pair.scale * <b column, a x[r]>. In detail
 *   h[j] = <a[mat][j], x[r]> in the order of sums of op_matmul(), times (scale * pair.scale);
 *   y[r][o] = fmaf(h[j], b[mat][j][first + o], y[r][o]) for j = 0 .. rank - 1 in turn.
 * With `token` there is no x: h[j] begins as a[token[r] * rank + j]. n products with the same x. */
struct op_adapt {
    struct tensor y;
    const struct op_pair *pair; /* [terms.n], on the host */
    int64_t n_out;              /* of a matrix */
    int64_t mat, first;
};
void op_adapt(struct dev *d, const struct op_adapt *a, int n, struct tensor x, const int32_t *token,
              const struct op_terms *t);
/* The same inside of op_moe(), where an expert's number is the matrix: gate and up from x[r], before they are
 * activated; down from what they became. y and mat are unused; pair NULL: none has any. */
struct op_moe_adapt {
    struct op_adapt gate, up, down;
    const struct op_terms *terms; /* of x's rows */
};

/* y[r] = sum_k weight[r][k] * down[e](act(gate[e] x[r]) * (up[e] x[r])), e = expert[r][k], k ascending. */
struct op_moe {
    int n_used;
    const int32_t *expert;        /* [n][n_used] */
    struct tensor weight;         /* [n][n_used] */
    struct tensor gate, up, down; /* ne[2] = experts; gate.data NULL: none (act(up)) */
    enum op_act act;
    const int32_t *slot;              /* op_moe_pairs: [experts], the matrix of each, -1: not here; NULL: its number */
    const struct op_moe_adapt *adapt; /* NULL: none */
    int cached;                       /* dev_cache_layer(); 0: not */
};
void op_moe(struct dev *d, struct tensor y, struct tensor x, const struct op_moe *a);

/* The same in two parts, for experts that lie in several places. A pair is one use of an expert by a row:
 * pair = row * n_used + k. out[pair] = down[e](...) for the experts that are here; other rows of out stay as they
 * are. out: [n * n_used][width of y]. Then y[r] = sum_k weight[r][k] * out[r * n_used + k], k ascending: what
 * op_moe() gives, wherever a pair was computed. */
void op_moe_pairs(struct dev *d, struct tensor out, struct tensor x, const struct op_moe *a);
void op_moe_sum(struct dev *d, struct tensor y, struct tensor out, struct tensor weight);

/* Experts that another device has, whose memory is the host's. hand_out: it may begin on x and these ids;
 * hand_in: its pairs are in out. What d is given in between goes on beside it. x and expert are those of the
 * hand_out before; h stays where it is as long as d is open. */
struct op_hand {
    struct dev *dev;
    struct op_moe moe;   /* expert and weight unused */
    const int32_t *here; /* on the device that hands over: the op_moe.slot of its own experts */
};
void op_hand_out(struct dev *d, struct tensor x, const int32_t *expert, const struct op_hand *h);
void op_hand_in(struct dev *d, struct tensor out, struct tensor x, const int32_t *expert, const struct op_hand *h);

/* count[expert[i]]++, i < n; count: [n_expert] on the device */
void op_tally(struct dev *d, uint64_t *count, int n_expert, const int32_t *expert, int64_t n);
#endif
