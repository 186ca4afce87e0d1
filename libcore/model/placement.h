/* SPDX-License-Identifier: Apache-2.0 */
/* placement.h - which weights are on the GPU and which on the CPU; experts by use if not all fit.      room: model
 *
 * Everything but routed experts must be on the GPU. An expert on the host costs time for each use, but while the GPU
 * computes a layer's other experts, the host computes some for free. The more of a layer's uses are on the host, the
 * longer the GPU waits. So every layer leaves some experts on the host, and none leaves many. Experts leave the device
 * in one order, those with the lowest cost per byte first, until the rest fits. So an expert that is on the GPU with
 * little memory is also there with more memory. In numbers: sort the experts of a layer by use, least used first. An
 * expert with u uses for each token costs u (MODEL_FREE + the uses of the experts before it), divided by its bytes.
 * Among equals the last layer goes first, and in it the highest number. Without measured uses all are equal, so each
 * layer gives one expert in turn. */
#ifndef MODEL_PLACEMENT_H
#define MODEL_PLACEMENT_H
#include "base/base.h"

/* In uses of an expert. The cost of a layer's first use on the host, compared with the cost that each earlier use adds:
 * small, because it is done before the device's own experts. */
#define MODEL_FREE 0.25

/* How a model is opened. run/placement.h makes one that fits a device. */
enum { MODEL_DEVS_MAX = 16 }; /* devices of a model */
struct model_experts;
struct model_placement {
    /* The routed experts on the device. The others stay in the mapped file, and the CPU computes them. NULL: all are on
     * the device. */
    const struct model_experts *experts;
    bool rows;        /* several devices: each has a part of every layer (dev_open_rows()), and `first` says nothing */
    const int *first; /* [devices] the first layer of each; NULL: they have as many layers each, or nearly */
    const int64_t *weight_bytes; /* [devices] of memory on each, from a dry run; NULL: not known */
    int step_rows;               /* rows in one step on a GPU, if run_opts gives no number; 0: run.h's default */
    /* Copies the weights that the CPU computes with from the mapped file to RAM when the model is opened; they may be
     * faster to read there. The memory must be free (ERR_NOMEM), and other processes do not share it. A matrix of which
     * only rows are read stays in the mapping. */
    bool copy_weights;
    bool as_stored; /* the copy has the file's layout; else rows are laid out anew where that is faster */
    /* Experts that the CPU computes are read from the file into this much memory as they are used (dev_cache_layer()),
     * and are not copied; 0: they are in the mapping. uses: [n_layer][n_expert] of a profile, NULL: not known; it must
     * live until the model is open. */
    int64_t cache_bytes;
    const uint64_t *uses;
    bool dry_run, absent; /* dev_opts: to learn what the model takes, not to run */
    /* What model_uses() counts for each row. 0: nothing; 1: its top k experts; n: the top k, the top 2k and so on up to
     * the top n k, so that a small sample also separates rarely used experts. */
    int count_sets;
};

struct model_experts {
    int n_layer, n_expert;
    int64_t device_bytes; /* of the experts on the device */
    bool *here;           /* [n_layer][n_expert] on the device */
    int *n_here;          /* [n_layer] */
    double *host_uses;    /* [n_layer] expected uses of the layer's other experts for each token */
};

/* Bytes of a layer on the device: expert_bytes for each expert there, and more_bytes if there is at least one. */
struct model_experts_layer {
    int64_t expert_bytes; /* 0: the layer has no routed experts */
    int64_t more_bytes;
};
struct model_experts_in {
    int n_layer, n_expert, n_used;
    const struct model_experts_layer *layer; /* [n_layer] */
    const uint64_t *uses;                    /* [n_layer][n_expert] measured; NULL: none */
    int64_t room_bytes;                      /* memory for experts; less than 0 counts as 0 */
    /* With several devices, the room of each, and past the last layer of each; else 0, NULL, NULL. */
    int n_dev;
    const int64_t *room;
    const int *end;
};
MUST_CHECK enum err_code model_experts_place(struct model_experts **out, const struct model_experts_in *in,
                                             struct err *e);
/* Chooses again: as many experts of each layer as before, but those with the most uses. uses: not NULL. */
MUST_CHECK enum err_code model_experts_choose(struct model_experts *p, int n_used, const uint64_t *uses, struct err *e);
void model_experts_free(struct model_experts *p); /* NULL is allowed */
#endif
