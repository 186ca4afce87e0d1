/* SPDX-License-Identifier: Apache-2.0 */
/* adapter.h - adapters (adapt/adapt.h) on a model's device, for the forward pass.      room: model
 *
 * Any number may be open at a time, also several of one model. run_set_adapters() in run/run.h says which rows of a
 * step use which of them. Activations that enter an adapter are float32 on every device, whatever the type of the
 * model's weights; the products with those weights are rounded in the same way as without adapters.
 */
#ifndef MODEL_ADAPTER_H
#define MODEL_ADAPTER_H
#include "base/base.h"

struct adapter;
struct model;
struct model_adapter;

/* Copies the adapter's current floats to the device; `a` must outlive the model_adapter. Errors: those of
 * adapter_check(); the adapter changes a tensor that is not a matrix of products (a norm, a convolution);
 * ERR_UNSUPPORTED: the device does not compute adapters; ERR_NOMEM. Matrices of a multi-token-prediction block are
 * allowed in the adapter but not used here, since they only make drafts. */
MUST_CHECK enum err_code model_adapter_open(struct model_adapter **out, const struct model *m, const struct adapter *a,
                                            struct err *e);
/* Bytes that it takes on device number dev of the model, also of a dry run. */
int64_t model_adapter_bytes(const struct model *m, const struct adapter *a, int dev);
void model_adapter_close(struct model_adapter *b); /* NULL is allowed. Before the model is; no sequence may have it. */
/* The adapter's floats have changed: copies them again; not during a step. Sequences made with the old floats must be
 * cleared: a run refuses to continue them. */
void model_adapter_update(struct model_adapter *b);
const struct adapter *model_adapter_from(const struct model_adapter *b);
/* adapter_fingerprint() of the floats that it was opened with or last updated to. */
uint64_t model_adapter_key(const struct model_adapter *b);
#endif
