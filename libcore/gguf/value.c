/* SPDX-License-Identifier: Apache-2.0 */
/* value.c - values of metadata: kinds, conversions without loss, walks over strings. */
#include "gguf/parse.h"

#include <string.h>

unsigned gguf_kind_bytes(enum gguf_kind kind)
{
    static const unsigned char bytes[] = { 1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8 };

    return (unsigned)kind < sizeof bytes ? bytes[kind] : 0;
}

/* An element read once: exactly one of the three forms holds its value. */
struct num {
    enum { NUM_NONE, NUM_U64, NUM_NEG, NUM_F64 } form;
    uint64_t u; /* NUM_U64 */
    int64_t i;  /* NUM_NEG: below 0 */
    double f;   /* NUM_F64 */
};

static struct num of_u64(uint64_t u)
{
    return (struct num){ .form = NUM_U64, .u = u };
}

static struct num of_i64(int64_t i)
{
    return i < 0 ? (struct num){ .form = NUM_NEG, .i = i } : of_u64((uint64_t)i);
}

static struct num of_f64(double f)
{
    return (struct num){ .form = NUM_F64, .f = f };
}

static struct num load_number(const struct gguf_kv *kv, uint64_t at)
{
    const unsigned char *p;
    uint32_t u4;
    uint64_t u8;
    float f4;
    double f8;

    if (at >= kv->n || gguf_kind_bytes(kv->elem_kind) == 0)
        return (struct num){ .form = NUM_NONE };
    p = kv->data + (size_t)at * gguf_kind_bytes(kv->elem_kind);
    switch (kv->elem_kind) {
    case GGUF_U8:
    case GGUF_BOOL:
        return of_u64(p[0]);
    case GGUF_I8:
        return of_i64(p[0] < 0x80 ? p[0] : p[0] - 0x100);
    case GGUF_U16:
    case GGUF_I16:
        u4 = p[0] | (uint32_t)p[1] << 8;
        return of_i64(kv->elem_kind == GGUF_I16 && u4 >= 0x8000 ? (int64_t)u4 - 0x10000 : (int64_t)u4);
    case GGUF_U32:
        return of_u64(gguf_load_u32(p));
    case GGUF_I32:
        u4 = gguf_load_u32(p);
        return of_i64(u4 >= 0x80000000U ? (int64_t)u4 - 0x100000000 : (int64_t)u4);
    case GGUF_F32:
        u4 = gguf_load_u32(p);
        memcpy(&f4, &u4, sizeof f4);
        return of_f64((double)f4);
    case GGUF_U64:
        return of_u64(gguf_load_u64(p));
    case GGUF_I64:
        u8 = gguf_load_u64(p);
        return u8 <= INT64_MAX ? of_u64(u8) : of_i64(-1 - (int64_t)~u8);
    case GGUF_F64:
        u8 = gguf_load_u64(p);
        memcpy(&f8, &u8, sizeof f8);
        return of_f64(f8);
    case GGUF_STR:
    case GGUF_ARR:
        break;
    }
    return (struct num){ .form = NUM_NONE };
}

/* A float that is a whole number takes the form of one. 2^64 and 2^63 are exact as doubles. */
static struct num whole_number(struct num x)
{
    if (x.form != NUM_F64)
        return x;
    if (x.f >= 0 && x.f < 18446744073709551616.0 && (double)(uint64_t)x.f == x.f)
        return of_u64((uint64_t)x.f);
    if (x.f < 0 && x.f >= -9223372036854775808.0 && (double)(int64_t)x.f == x.f)
        return of_i64((int64_t)x.f);
    return (struct num){ .form = NUM_NONE };
}

static const struct gguf_kv *scalar(const struct gguf *g, const char *key)
{
    const struct gguf_kv *kv = gguf_kv_find(g, key);

    return kv != NULL && kv->kind != GGUF_ARR ? kv : NULL;
}

bool gguf_u64(const struct gguf *g, const char *key, uint64_t *out)
{
    const struct gguf_kv *kv = scalar(g, key);

    return kv != NULL && gguf_kv_u64(kv, 0, out);
}

bool gguf_u32(const struct gguf *g, const char *key, uint32_t *out)
{
    uint64_t v;

    if (!gguf_u64(g, key, &v) || v > UINT32_MAX)
        return false;
    *out = (uint32_t)v;
    return true;
}

bool gguf_bool(const struct gguf *g, const char *key, bool *out)
{
    uint64_t v;

    if (!gguf_u64(g, key, &v) || v > 1)
        return false;
    *out = v != 0;
    return true;
}

bool gguf_f32(const struct gguf *g, const char *key, float *out)
{
    const struct gguf_kv *kv = scalar(g, key);
    double v;

    if (kv == NULL || !gguf_kv_f64(kv, 0, &v))
        return false;
    if (v > 3.4028234663852886e38 || v < -3.4028234663852886e38) {
        if (v - v == 0) /* finite, and above the largest float */
            return false;
    } else if (v == v && (double)(float)v != v) {
        return false;
    }
    *out = (float)v;
    return true;
}

bool gguf_str(const struct gguf *g, const char *key, struct str *out)
{
    const struct gguf_kv *kv = scalar(g, key);
    struct gguf_strs it = gguf_strs(kv);

    return gguf_strs_next(&it, out);
}

bool gguf_kv_u64(const struct gguf_kv *kv, uint64_t i, uint64_t *out)
{
    struct num x = whole_number(load_number(kv, i));

    if (x.form != NUM_U64)
        return false;
    *out = x.u;
    return true;
}

bool gguf_kv_i64(const struct gguf_kv *kv, uint64_t i, int64_t *out)
{
    struct num x = whole_number(load_number(kv, i));

    if (x.form == NUM_NONE || (x.form == NUM_U64 && x.u > INT64_MAX))
        return false;
    *out = x.form == NUM_U64 ? (int64_t)x.u : x.i;
    return true;
}

bool gguf_kv_f64(const struct gguf_kv *kv, uint64_t i, double *out)
{
    struct num x = load_number(kv, i), back;

    if (x.form == NUM_NONE)
        return false;
    if (x.form != NUM_F64) {
        double f = x.form == NUM_U64 ? (double)x.u : (double)x.i;

        back = whole_number(of_f64(f));
        if (back.form != x.form || back.u != x.u || back.i != x.i)
            return false;
        x = of_f64(f);
    }
    *out = x.f;
    return true;
}

struct gguf_strs gguf_strs(const struct gguf_kv *kv)
{
    if (kv == NULL || kv->elem_kind != GGUF_STR)
        return (struct gguf_strs){ NULL, 0 };
    return (struct gguf_strs){ kv->data, kv->n };
}

bool gguf_strs_next(struct gguf_strs *it, struct str *out)
{
    if (it->left == 0)
        return false;
    out->n = (size_t)gguf_load_u64(it->at);
    out->p = (const char *)it->at + 8;
    it->at += 8 + out->n;
    it->left--;
    return true;
}
