/* SPDX-License-Identifier: Apache-2.0 */
/* placement.h - what a run will take of a device's memory, and what goes where, before anything is loaded.  room: run
 *
 * The model and the run are opened as dry runs (dev_opts.dry_run): the code that would allocate counts instead, so
 * the sums are exact. What a device takes for itself (a driver's context, code) is fixed_bytes: measured where
 * the device is there and nobody else's use hides it, else RUN_PLACEMENT_FIXED is allowed for it.
 * All weights but routed experts must be on the device, with KV rows, state and scratch; experts fill what is
 * left, in the order of model/placement.h. */
#ifndef RUN_PLACEMENT_H
#define RUN_PLACEMENT_H
#include "model/model.h"
#include "model/placement.h"
#include "run/run.h"

#define RUN_PLACEMENT_FIXED  ((int64_t)368 << 20) /* a CUDA context with this program's kernels: 353 MiB on an H200 */
#define RUN_PLACEMENT_MARGIN ((int64_t)256 << 20) /* left free for others, unless a budget is given */
#define RUN_PLACEMENT_ROWS   4096                 /* of a step, where all of the model fits beside their scratch: experts
                                                   * are read for twice as many rows as by run.h's default */

/* Bytes that must stay free, and an eighth of what was free, for experts on the CPU beside a GPU to be copied to RAM without
 * being asked for (model_placement.copy_weights). The GPU waits for them, and copies are read faster. */
#define RUN_PLACEMENT_LEAVES ((int64_t)1 << 30)

struct run_placement_opts {
    struct model_opts model;  /* of its placement only copy_weights and as_stored count */
    struct run_opts   run;
    int64_t           budget_bytes; /* of the device's memory, all included; 0: what is free less RUN_PLACEMENT_MARGIN, and
                                     * no limit where the device's memory is the host's */
    int64_t           adapter_bytes; /* of the device, that model_adapter_open() will take */
    bool              absent; /* plan also for a device that is not there; then budget_bytes > 0 */
    const uint64_t   *uses;   /* model_experts_in.uses */
};

struct run_placement {
    char    device[32];     /* as it was named */
    bool    present;        /* the device is there */
    bool    is_host;        /* its memory is the host's */
    bool    own_scratch;    /* false: this program was built without the device; scratch_bytes is an estimate */
    int64_t budget_bytes;   /* 0: no limit */
    int64_t total_bytes;    /* the sum of those that follow, on the device */
    int64_t fixed_bytes;
    struct model_weights weights;
    int64_t adapter_bytes;
    int64_t kv_bytes, state_bytes, logits_bytes;
    int64_t scratch_bytes;  /* of operations, and what rounding up takes */
    int64_t host_scratch_bytes; /* on the host, for experts there */
    int64_t ctx_tokens, kv_tokens; /* of a sequence; KV rows of all together */
    const char *kv_k, *kv_v; /* types of keys and values, for run_opts */
    bool    kv_fallback;    /* they are smaller than run.h's default, for which there was no room */
    bool    kv_blocks;      /* heads are whole blocks of the smaller types */
    int     n_seq, rows_max;
    int     step_rows;      /* model_placement */
    int     n_layer, n_expert, n_used;
    int64_t *expert_bytes;  /* [n_layer] of one routed expert; 0: the layer has none */
    struct model_experts *experts; /* NULL: all experts are on the device */
    bool    measured;       /* which experts are there was decided by uses; else any are meant until run_placement_measure() */
};

/* ERR_LIMIT when the budget is too small for what must be on the device, with how much that is. Where run_opts does not
 * say what type keys and values have and the device's memory is not the host's, it is f16; where there is no plan with
 * that, q8_0 is tried, then q8_0 for keys and q4_0 for values. */
MUST_CHECK enum err_code run_placement_make(struct run_placement **out, const struct gguf *g,
                                            const struct run_placement_opts *o, struct err *e);
/* Where a layer's experts are on both devices and nobody measured their uses: keeps as many of each layer on the GPU as
 * before, but chooses those that RUN_PLACEMENT_TOKENS random tokens use most, or nearly use (model_placement.count_sets). The CPU
 * computes this with activations rounded as they are by default. Its bytes are the same on every machine, so the choice
 * follows from the file and the plan alone. Reads the whole model once. Else does nothing. */
enum { RUN_PLACEMENT_TOKENS = 256, RUN_PLACEMENT_SETS = 3 };
MUST_CHECK enum err_code run_placement_measure(struct run_placement *f, const struct gguf *g, int n_threads,
                                               struct err *e);
void run_placement_free(struct run_placement *f); /* NULL is allowed */
/* Sets what f says in options for model_open(); f must live until that returns. */
void run_placement_apply(const struct run_placement *f, struct model_opts *o);
/* And for run_open(): the types of keys and values, where o has none. */
void run_placement_apply_run(const struct run_placement *f, struct run_opts *o);
#endif
