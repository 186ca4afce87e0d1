/* SPDX-License-Identifier: Apache-2.0 */
/* placement.h - plans how much of a device's memory a run takes, and what goes where, before loading anything.
 * room: run
 *
 * The model and the run are opened as dry runs (dev_opts.dry_run): the code that would allocate counts bytes instead,
 * so the sums are exact. What the device takes for itself (a driver's context, code) is fixed_bytes. It is measured if
 * the device is present and other processes' use does not hide it; else RUN_PLACEMENT_FIXED is assumed. All weights
 * except routed experts must be on the device, with KV rows, state and scratch. Experts fill the memory that is left,
 * in the order of model/placement.h. */
#ifndef RUN_PLACEMENT_H
#define RUN_PLACEMENT_H
#include "base/reads.h"
#include "model/model.h"
#include "model/placement.h"
#include "run/run.h"

#define RUN_PLACEMENT_FIXED  ((int64_t)368 << 20) /* a CUDA context with this program's kernels: 353 MiB on an H200 */
#define RUN_PLACEMENT_MARGIN ((int64_t)256 << 20) /* left free for others, unless a budget is given */
#define RUN_PLACEMENT_ROWS \
    4096 /* rows of a step, if the whole model fits beside their scratch: each read \
          * of the experts serves twice as many rows as with run.h's default */

/* With a GPU, the experts on the CPU are copied to RAM even if nobody asked for it (model_placement.copy_weights),
 * because the GPU waits for them and copies are read faster. But only if this many bytes, and an eighth of what was
 * free, stay free. */
#define RUN_PLACEMENT_LEAVES ((int64_t)1 << 30)

struct adapter;
struct run_placement_opts {
    struct model_opts model; /* of its placement only rows, copy_weights, as_stored and cache_bytes count */
    struct run_opts run;
    int64_t budget_bytes;   /* of each device's memory, for everything; 0: what is free less RUN_PLACEMENT_MARGIN, or
                             * no limit if the device's memory is the host's */
    const int64_t *budgets; /* [devices] instead, of each; NULL: budget_bytes */
    const struct adapter *const *adapters; /* [n_adapters] that model_adapter_open() will take memory for */
    int n_adapters;
    const int64_t *beside_bytes; /* [devices] of another model, whose run is planned first; NULL: none */
    bool absent;                 /* also plan for devices that are not present; then their budgets are > 0 */
    const uint64_t *uses;        /* model_experts_in.uses */
    /* With several devices: shares of the layers; NULL: those that run/cut.h chooses, by these bandwidths (bytes a
     * second; NULL: all are alike). fewest: of the devices named only the first ones, as few as have room for all. */
    const double *share, *speed;
    bool fewest;
};

/* What lies on one device. */
struct run_placement_part {
    char device[32];
    bool present;         /* the device is present */
    int first, end;       /* its layers: first .. end - 1 */
    int64_t budget_bytes; /* 0: no limit */
    int64_t total_bytes;  /* the sum of the members below */
    int64_t fixed_bytes;
    struct model_weights weights;
    int64_t adapter_bytes, beside_bytes;
    int64_t kv_bytes, state_bytes, logits_bytes;
    int64_t scratch_bytes; /* of operations, and what rounding up takes */
};

/* With several devices bytes are sums over them, and they are present if all are. */
struct run_placement {
    char device[256];     /* their names, as model_opts.device takes them */
    bool present;         /* the device is present */
    bool is_host;         /* its memory is the host's */
    bool own_scratch;     /* false: this program was built without the device; scratch_bytes is an estimate */
    int64_t budget_bytes; /* 0: no limit */
    int64_t total_bytes;  /* on the device: the sum of the members below */
    int64_t fixed_bytes;
    struct model_weights weights;
    int64_t adapter_bytes, beside_bytes;
    int64_t kv_bytes, state_bytes, logits_bytes;
    int64_t scratch_bytes;         /* of operations, and what rounding up takes */
    int64_t host_scratch_bytes;    /* on the host, for experts there */
    int64_t ctx_tokens, kv_tokens; /* of a sequence; KV rows of all together */
    const char *kv_k, *kv_v;       /* types of keys and values, for run_opts */
    bool kv_fallback;              /* they are smaller than run.h's default, because there was no room for that */
    bool kv_blocks;                /* heads are whole blocks of the smaller types */
    int n_seq, rows_max;
    int step_rows; /* model_placement */
    int n_layer, n_expert, n_used;
    int64_t *expert_bytes;         /* [n_layer] of one routed expert; 0: the layer has none */
    struct model_experts *experts; /* NULL: all experts are on the device */
    /* With model_placement.cache_bytes, of experts that the CPU computes, and of a dry run: nothing is read. slots 0:
     * they are in memory or in the mapping. */
    struct io_cache_stats cache;
    double cache_share;      /* of their uses that is expected in memory: by uses, or all experts alike */
    double disk_bytes_per_s; /* for the caller to measure; 0: not known */
    bool measured;           /* the experts on the device were chosen by uses; else only their number is planned until
                              * run_placement_measure() chooses them */
    bool rows;               /* each of several devices has a part of all layers (model_placement.rows) */
    int n_dev, n_named;      /* devices that are used, and that were named: more with `fewest` */
    struct run_placement_part part[MODEL_DEVS_MAX];
    int64_t pass_bytes;                /* of a token, from each device to the next */
    int64_t exchanges, exchange_bytes; /* with rows, of a token: dev_exchanges() */
    /* model_placement */
    int first[MODEL_DEVS_MAX];
    int64_t weight_bytes[MODEL_DEVS_MAX];
};

/* ERR_LIMIT: the budget is too small for what must be on the device; the message says how much that is. If run_opts
 * names no types for keys and values and the device's memory is not the host's, f16 is tried first. If that does not
 * fit, q8_0 is tried, then q8_0 for keys with q4_0 for values. */
MUST_CHECK enum err_code run_placement_make(struct run_placement **out, const struct gguf *g,
                                            const struct run_placement_opts *o, struct err *e);
/* Chooses which experts are on the GPU, if a layer's experts are on both devices and nobody measured their uses; else
 * does nothing. Each layer keeps as many on the GPU as before, but those that RUN_PLACEMENT_TOKENS random tokens use
 * most, or nearly use (model_placement.count_sets). The CPU computes this, with activations rounded as by default. Its
 * results are the same bytes on every machine, so the choice depends only on the file and the plan. Reads the whole
 * model once. */
enum { RUN_PLACEMENT_TOKENS = 256, RUN_PLACEMENT_SETS = 3 };
MUST_CHECK enum err_code run_placement_measure(struct run_placement *f, const struct gguf *g, int n_threads,
                                               struct err *e);
void run_placement_free(struct run_placement *f); /* NULL is allowed */
/* Puts the plan into options for model_open(); f must live until that returns. */
void run_placement_apply(const struct run_placement *f, struct model_opts *o);
/* The same for run_open(): sets the types of keys and values if o has none. */
void run_placement_apply_run(const struct run_placement *f, struct run_opts *o);
#endif
