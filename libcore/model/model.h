/* SPDX-License-Identifier: Apache-2.0 */
/* model.h - a model ready to run: plan, checked tensors, device.    room: model
 *
 * model_open() reads the plan of the file's architecture, finds every tensor it needs and checks its shape
 * and type (ERR_FORMAT names the tensor), and opens the device. Some or all weights stay in the gguf's
 * mapping, even if others are copied to a device, so the gguf must outlive the model. A model
 * never changes after open; the forward pass (model_forward, for the room `run`) uses the device,
 * so one thread at a time steps it.
 */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H
#include "base/base.h"
#include "model/class.h"
#include "model/placement.h"
#include "quant/quant.h"

struct gguf;
struct model;
struct dev;
struct arch_plan;
struct state;
struct op_rows;

struct model_opts {
    const char *device;        /* "cpu" (NULL: the same); or several, dev_list_parse() in ops/ops.h: each then has a
                                * contiguous range of the layers, the first one also the token embedding, the last one
                                * the output; or, with placement.rows, a part of every layer */
    int n_threads;             /* 0: as many as there are processors */
    enum quant_acts_type acts; /* dev_opts */
    int n_used;                /* routed experts for each token; 0: as trained. The weights are normalised over these,
                                * where the family does that. ERR_ARG: more than trained; ERR_UNSUPPORTED: the model
                                * has none */
    bool nextn; /* also opens the multi-token-prediction block, if there is one (model/drafter.h); the device then
                 * has the token embedding, too, for ids that do not come to the host */
    const struct progress *progress;  /* tick gets layers that are loaded, of all; NULL: nobody is told */
    struct model_placement placement; /* all zero: everything on the device; the CPU uses weights in the mapping */
};

MUST_CHECK enum err_code model_open(struct model **out, const struct gguf *g, const struct model_opts *o,
                                    struct err *e);
void model_close(struct model *m); /* NULL is allowed */
/* The errors of model_open() on the CPU, but no weights are read. Of a drafter's file only the architecture is looked
 * at. */
MUST_CHECK enum err_code model_check(const struct gguf *g, struct err *e);

/* What a program may want to know. Strings live as long as the model. */
struct model_info {
    const char *arch; /* "qwen35moe" */
    int n_layer;      /* of the main stack */
    int n_nextn;      /* multi-token-prediction blocks that a drafter can use; a step does not use them */
    int32_t n_vocab;  /* logits per row */
    int32_t n_embd;
    int n_streams;      /* rows of n_embd of the residual stream; 1 but with hyper-connections */
    int64_t ctx_train;  /* context length the file states, tokens */
    int n_used;         /* routed experts for each token; 0: the model has none */
    int n_used_trained; /* likewise, as the file says */
    int64_t n_params;   /* elements of all tensors */
    int64_t weight_bytes;
    int n_threads;
    const char *device;           /* "cpu", "cuda"; of several the names: "cuda:0,cuda:1" */
    const char *simd;             /* kernels in use: "avx512", "avx2", "scalar" */
    double device_ms, weights_ms; /* what opening took */
};
const struct model_info *model_info(const struct model *m);
/* Bytes of the weights: in the device's memory, in its own layout, and in the host's memory. */
struct model_weights {
    int64_t device[MODEL_N_CLASSES], host[MODEL_N_CLASSES];
    int64_t copied; /* of both, the bytes copied to RAM (copy_weights), not in the mapped file */
    int64_t laid;   /* of `copied`, the bytes whose rows were laid out for faster reading */
};
const struct model_weights *model_weights(const struct model *m);
/* What the cache of experts has done since the model was opened (base/reads.h); false: there is none. */
struct io_cache_stats;
bool model_cache_stats(const struct model *m, struct io_cache_stats *out);
/* Memory of the device that is in use now, by all processes; -1: not known. */
int64_t model_device_used(const struct model *m);

/* How often each routed expert was used since open, [n_layer][n_expert]; placement.count_sets must have been set. */
int model_n_expert(const struct model *m); /* 0: none are routed */
void model_uses(const struct model *m, uint64_t *out);
void model_forget_uses(struct model *m); /* they count from now on */
/* Two models with one fingerprint compute the same: a hash of the architecture's metadata, of every tensor's
 * name, type and shape, of samples of its bytes, and of the number of routed experts for each token if it is not the
 * trained one. Reads some 100 KB of the file. */
uint64_t model_fingerprint(const struct model *m);

/* Time by operation, for "where the time went", from when it is turned on; off at first. On a device other than
 * the host steps are slower meanwhile, and what is launched together counts as the heaviest operation in it. */
struct model_timing {
    const char *op; /* "matmul", "moe", "attn" ... */
    uint64_t calls;
    uint64_t ns;
};
void model_time(struct model *m, bool on);
int model_timings(const struct model *m, struct model_timing *out, int max); /* entries written */

/* How fast the device of o reads memory: bytes per second of `reps` measurements with a buffer of `bytes` bytes,
 * rounded down to whole units of 256 (at least one). Opens the device for as long as that takes. */
struct model_reads {
    double *bytes_per_s; /* [reps], of the caller */
    int reps;
    bool (*stop)(void); /* NULL, or as dev_may_stop() has it: once it was true, ERR_CANCEL */
    int n_threads;      /* the rest is filled in */
    char device[16], kernels[288];
};
MUST_CHECK enum err_code model_read_speed(struct model_reads *r, const struct model_opts *o, int64_t bytes,
                                          struct err *e);
/* ERR_ARG: no device has this name (dev_check_name()). Nothing is opened. */
MUST_CHECK enum err_code model_device_name(const char *name, struct err *e);
/* GPU number i of this machine to buf, "NAME, sm_90, 85.0 GB". ERR_ARG past the last; ERR_DEVICE: none can be used, and
 * why. */
MUST_CHECK enum err_code model_gpu(int i, char *buf, size_t buf_bytes, struct err *e);

/* Times a GPU product with random weights: `rows` rows of k elements with n rows of weights, by row kernel - 1 of
 * gemm_kernels[] (gemm/gemm.h) if that kernel takes it. Opens the device for that time. */
struct model_product {
    int type; /* of the weights, a row of quant_types[] */
    int64_t k, n, rows;
    int kernel; /* 0: the first that takes it */
    double *us; /* [reps] microseconds of one product, with the rounding of activations; of the caller */
    int reps;
    bool launched; /* the rest is filled in: whether that kernel took it */
    char device[16], kernels[288];
};
MUST_CHECK enum err_code model_product_time(struct model_product *p, const struct model_opts *o, struct err *e);
#endif
