/* SPDX-License-Identifier: Apache-2.0 */
/* context.h - a device for other code of the room that it is of.                   room: ops */
#ifndef OPS_CONTEXT_H
#define OPS_CONTEXT_H
#include "ops/ops.h"

/* What the device's functions get (ops/table.h). */
void *dev_context(const struct dev *d);
#endif
