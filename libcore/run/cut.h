/* SPDX-License-Identifier: Apache-2.0 */
/* cut.h - which device has which layers, for a plan.                                    room: run */
#ifndef RUN_CUT_H
#define RUN_CUT_H
#include "base/base.h"

/* Costs of layers and of devices. */
struct run_cut {
    int n_layer, n_dev;
    const bool *may;       /* [n_layer] another device may begin with the layer */
    const int64_t *bytes;  /* [n_layer] of memory */
    const int64_t *reads;  /* [n_layer] bytes that a token reads */
    const int64_t *room;   /* [n_dev] memory for layers; INT64_MAX: no limit */
    const double *speed;   /* [n_dev] bytes a second, > 0 */
    const int64_t *beside; /* [n_dev] bytes that a token reads there, whatever the layers */
};
/* first[0 .. n_dev - 1]: contiguous ranges for which there is room; of these the ones with the least time for a token;
 * of these the ones whose slowest device takes least, as it bounds what several tokens side by side take. If there is
 * not room for all, *fits is false and the fullest device is as empty as it can be. ERR_ARG: there are fewer ranges
 * than devices; ERR_NOMEM. */
MUST_CHECK enum err_code run_cut_choose(int *first, bool *fits, const struct run_cut *c, struct err *e);
#endif
