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

static const struct {
    uint32_t id;
    const char *name;
} others[] = {
    { 36, "i2_s" },        { 133, "q6_0" },     { 134, "iq1_bn" },    { 135, "iq2_bn" },     { 145, "iq2_ks" },
    { 146, "iq4_kss" },    { 148, "q8_k32" },   { 151, "q8_kv" },     { 152, "iq5_ks" },     { 153, "iq2_kt" },
    { 154, "iq3_kt" },     { 155, "iq4_kt" },   { 156, "iq3_ks" },    { 157, "iq2_kl" },     { 158, "iq1_kt" },
    { 202, "q4_0_r8" },    { 206, "q5_0_r4" },  { 208, "q8_0_r8" },   { 210, "q2_k_r4" },    { 211, "q3_k_r4" },
    { 212, "q4_k_r4" },    { 213, "q5_k_r4" },  { 214, "q6_k_r4" },   { 216, "iq2_xxs_r4" }, { 217, "iq2_xs_r4" },
    { 218, "iq3_xxs_r4" }, { 219, "iq1_s_r4" }, { 220, "iq4_nl_r4" }, { 221, "iq3_s_r4" },   { 222, "iq2_s_r4" },
    { 223, "iq4_xs_r8" },  { 229, "iq1_m_r4" }, { 230, "bf16_r16" },  { 233, "q6_0_r4" },    { 335, "iq2_bn_r4" },
    { 337, "iq2_k_r4" },   { 338, "iq3_k_r4" }, { 339, "iq4_k_r4" },  { 340, "iq5_k_r4" },   { 344, "iq4_ks_r4" },
    { 352, "iq5_ks_r4" },  { 397, "q8_k_r16" }, { 398, "q8_kv_r8" },  { 399, "q8_k_r8" },
};

const char *quant_other_name(uint32_t id)
{
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (others[i].id == id)
            return others[i].name;
    return NULL;
}

bool quant_other_find(struct str name)
{
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (same_name(name, others[i].name))
            return true;
    return false;
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
