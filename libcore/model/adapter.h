/* SPDX-License-Identifier: Apache-2.0 */
/* adapter.h - adapters (adapt/adapt.h) on a model's device, for the forward pass.      room: model
 *
 * Any number may be open at a time, also several of one model. run_set_adapters() in run/run.h says which rows of a step
 * use which of them. Activations that enter an adapter are float32 on every device, whatever its file's
 * type; products with the weights are rounded as they are without.
 */
#ifndef MODEL_ADAPTER_H
#define MODEL_ADAPTER_H
#include "base/base.h"

struct adapter;
struct model;
struct model_adapter;

/* Copies the adapter's floats to the device as they are now: `a` must outlive it. What is wrong with the adapter for
 * this model is one line: adapter_check()'s; a tensor that the model does not multiply with (a norm, a convolution);
 * ERR_UNSUPPORTED where the device computes no adapters; ERR_NOMEM. The matrices of a multi-token-prediction block may
 * be there, and are not used: they only make drafts. */
MUST_CHECK enum err_code model_adapter_open(struct model_adapter **out, const struct model *m, const struct adapter *a,
                                            struct err *e);
void model_adapter_close(struct model_adapter *b); /* NULL is allowed. Before the model; no sequence has it. */
/* The adapter's floats have changed: copies them again; not during a step. Sequences made with the old floats must be
 * cleared: a run refuses to continue them. */
void model_adapter_update(struct model_adapter *b);
const struct adapter *model_adapter_from(const struct model_adapter *b);
/* adapter_fingerprint() of what it was opened with, or last updated. */
uint64_t model_adapter_key(const struct model_adapter *b);
/* Bytes of the device that it takes. */
int64_t model_adapter_bytes(const struct model_adapter *b);
#endif
