/* SPDX-License-Identifier: Apache-2.0 */
/* acts.h - what tests round activations to: CHIMERE_TEST_ACTS, i16 unless set. */
#ifndef TESTS_UNIT_ACTS_H
#define TESTS_UNIT_ACTS_H
#include <stdlib.h>
#include <string.h>

#include "quant/quant.h"

static inline enum quant_acts_type test_acts(void)
{
    const char *acts = getenv("CHIMERE_TEST_ACTS");

    if (acts != NULL && strcmp(acts, "f32") == 0)
        return QUANT_ACTS_F32;
    return acts != NULL && strcmp(acts, "i8") == 0 ? QUANT_ACTS_I8 : QUANT_ACTS_I16;
}
#endif
