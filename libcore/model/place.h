/* SPDX-License-Identifier: Apache-2.0 */
/* place.h - which routed experts lie on a device that has no room for all.          room: model
 *
 * Everything else must be there. An expert that stays on the host costs its uses; a layer with such experts costs
 * a hand-over in every step besides, as much as MODEL_HAND_OVER uses. Experts leave the device in one order, the
 * cheapest for their bytes first, until what is left fits: what is there with little memory is there with more.
 * In numbers: with the experts of a layer from the least used to the most, leaving k of them costs c(k) =
 * MODEL_HAND_OVER + their uses for each token; the first k* that make c(k) / k least leave at that price each, the
 * others at the price of their own uses, both divided by the bytes of one. Among equals the last layer goes first,
 * and the highest number in it. Without measured uses all are alike, so layers leave whole, and one in part. */
#ifndef MODEL_PLACE_H
#define MODEL_PLACE_H
#include "base/base.h"

/* In uses of an expert. Beside an H200 sixteen cores take 20 us for a use (2048 x 512, q4_k), and a layer with
 * hand-over about as much more than its uses. */
#define MODEL_HAND_OVER 1.0

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
void model_place_free(struct model_place *p); /* NULL is allowed */
#endif
