/* SPDX-License-Identifier: Apache-2.0 */
/* place.h - which routed experts lie on a device that has no room for all.          room: model
 *
 * Everything else must be there. An expert that stays on the host costs its uses, but while a layer's device computes
 * the experts it has, the host computes some for nothing; the more of a layer's uses are on the host, the more of a use
 * is waited for. So every layer leaves some, and none leaves many. Experts leave the device in one order, the cheapest
 * for their bytes first, until what is left fits: an expert placed with little memory is placed with more, too. In numbers: with
 * the experts of a layer from the least used to the most, one of u uses for each token costs u (MODEL_FREE + the uses
 * of those before it), divided by its bytes. Among equals the last layer goes first, and the highest number in it.
 * Without measured uses all are alike, so they leave in turns, one of each layer. */
#ifndef MODEL_PLACE_H
#define MODEL_PLACE_H
#include "base/base.h"

/* In uses of an expert. What a layer's first use on the host costs, beside what each use before another adds to that
 * one's price: little, as long as it is done before the device's own. */
#define MODEL_FREE 0.25

struct model_place {
    int     n_layer, n_expert;
    int64_t device_bytes;  /* of the experts that are there */
    bool   *here;          /* [n_layer][n_expert] */
    int    *n_here;        /* [n_layer] */
    double *host_uses;     /* [n_layer] expected uses of the layer's other experts for each token */
};

/* Bytes of a layer on the device: those of the experts there, and `more` when there is one. */
struct model_place_layer {
    int64_t expert_bytes;  /* 0: the layer has no routed experts */
    int64_t more_bytes;
};
struct model_place_in {
    int     n_layer, n_expert, n_used;
    const struct model_place_layer *layer; /* [n_layer] */
    const uint64_t *uses;                  /* [n_layer][n_expert] measured; NULL: none */
    int64_t room_bytes;                    /* for experts; below 0: as 0 */
};
MUST_CHECK enum err_code model_place_make(struct model_place **out, const struct model_place_in *in, struct err *e);
/* As many of each layer as before, but those with the most uses, which are not NULL. */
MUST_CHECK enum err_code model_place_choose(struct model_place *p, int n_used, const uint64_t *uses, struct err *e);
void model_place_free(struct model_place *p); /* NULL is allowed */
#endif
