/* SPDX-License-Identifier: Apache-2.0 */
/* types.c - the table of block formats and its lookups. */
#include "quant/quant.h"

#include "quant/half.h"

#include <assert.h>

#define QUANT(name) extern const struct quant_type quant_type_##name;
#include "quant/types.def"
#undef QUANT

const struct quant_type *const quant_types[QUANT_N] = {
#define QUANT(name) &quant_type_##name,
#include "quant/types.def"
#undef QUANT
};

int quant_find_id(uint32_t id)
{
    for (int i = 0; i < QUANT_N; i++)
        if (quant_types[i]->id == id)
            return i;
    return -1;
}

static char lower_case(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool same_name(struct str s, const char *name)
{
    size_t i = 0;

    for (; i < s.n && name[i] != '\0'; i++)
        if (lower_case(s.p[i]) != name[i])
            return false;
    return i == s.n && name[i] == '\0';
}

int quant_find_name(struct str name)
{
    for (int i = 0; i < QUANT_N; i++)
        if (same_name(name, quant_types[i]->name))
            return i;
    return -1;
}

int64_t quant_row_bytes(int type, int64_t ne0)
{
    assert(type >= 0 && type < QUANT_N);
    const struct quant_type *t = quant_types[type];

    if (ne0 < 0 || ne0 % t->block_elems != 0)
        return -1;
    if (ne0 / t->block_elems > (INT64_MAX - t->head_bytes) / t->block_bytes)
        return -1;
    return t->head_bytes + ne0 / t->block_elems * t->block_bytes;
}

const char *quant_acts_name(enum quant_acts_type acts)
{
    static const char *const names[] = { "i16", "i8", "f32" };

    return names[acts];
}

float quant_f16_to_f32(uint16_t h)
{
    return half_to_f32(h);
}

uint16_t quant_f32_to_f16(float f)
{
    return half_of_f32(f);
}
