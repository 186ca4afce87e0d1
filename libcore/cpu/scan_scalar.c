/* SPDX-License-Identifier: Apache-2.0 */
/* scan_scalar.c - the specification of the recurrent inner loops, in plain C. */
#define TARGET
#include "cpu/scan_body.h"

SCAN_SET(scalar);
