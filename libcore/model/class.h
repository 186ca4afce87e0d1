/* SPDX-License-Identifier: Apache-2.0 */
/* class.h - what a tensor is used for, by its name.                     room: model */
#ifndef MODEL_CLASS_H
#define MODEL_CLASS_H
#include "base/base.h"

enum model_class {
    MODEL_EMBEDDING,
    MODEL_ATTENTION,
    MODEL_RECURRENT,
    MODEL_DENSE,
    MODEL_SHARED,
    MODEL_ROUTER,
    MODEL_EXPERTS,
    MODEL_OUTPUT,
    MODEL_OTHER, /* norms and the like */
    MODEL_MTP,   /* multi-token-prediction blocks, which a plain step does not use */
    MODEL_N_CLASSES
};
const char *model_class_name(enum model_class c); /* "attention" */
/* Class of a tensor by its name; n_layer: layers of the main stack. */
enum model_class model_class_of(struct str tensor, int n_layer);
#endif
