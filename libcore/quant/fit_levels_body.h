/* SPDX-License-Identifier: Apache-2.0 */
/* fit_levels_body.h - encoders of types whose element is a scale times a level: body of fit_body.h.
 *
 * A scale is searched by mapping the largest magnitude to many points near the end of the levels;
 * each time the elements are rounded, least squares gives the scale, and the least error stays.
 * Where scales of groups are whole numbers times one f16, several f16 are tried, for each group the
 * three whole numbers nearest to its own best scale, and least squares moves the f16.
 */

/* Levels: whole numbers from lo to hi, or the n ascending values of a table. */
struct levels {
    float lo, hi;
    float from, to, step; /* where the search maps the largest magnitude */
    int   n;
    float value[16];
};

FIT void round_levels(float *l, const float *x, float inverse, int n, const struct levels *v)
{
    if (v->n == 0) {
        for (int i = 0; i < n; i++) {
            float q = x[i] * inverse;

            q = q < v->lo ? v->lo : q;
            q = q > v->hi ? v->hi : q;
            l[i] = (q + 12582912.0f) - 12582912.0f; /* to whole numbers, ties to even */
        }
        return;
    }
    for (int i = 0; i < n; i++)
        l[i] = v->value[0];
    for (int k = 1; k < v->n; k++) {
        float mid = 0.5f * (v->value[k - 1] + v->value[k]), value = v->value[k];

        for (int i = 0; i < n; i++)
            l[i] = x[i] * inverse > mid ? value : l[i];
    }
}

FIT float fold_8(const float *s)
{
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

FIT float error_of(const float *l, const float *x, const float *w, float scale, int n)
{
    float s[8] = { 0 };

    for (int i = 0; i < n; i += 8)
        for (int j = 0; j < 8; j++) {
            float e = x[i + j] - scale * l[i + j];

            s[j] += w[i + j] * e * e;
        }
    return fold_8(s);
}

/* The best scale for levels that are given, by least squares; 0 if there is none. */
FIT float scale_of(const float *l, const float *x, const float *w, int n)
{
    float lx[8] = { 0 }, ll[8] = { 0 };

    for (int i = 0; i < n; i += 8)
        for (int j = 0; j < 8; j++) {
            float t = w[i + j] * l[i + j];

            lx[j] += t * x[i + j];
            ll[j] += t * l[i + j];
        }
    float sum = fold_8(ll);

    return sum > 0.0f ? fold_8(lx) / sum : 0.0f;
}

FIT float inverse_of(float scale)
{
    return scale != 0.0f ? 1.0f / scale : 0.0f;
}

/* Rounds by this scale, refits it, and keeps it where the error is less. */
FIT void try_scale(float *best, float *best_error, const float *x, const float *w, float scale, int n,
                   const struct levels *v)
{
    float l[256];

    round_levels(l, x, inverse_of(scale), n, v);
    scale = scale_of(l, x, w, n);
    float e = error_of(l, x, w, scale, n);

    if (e < *best_error) {
        *best_error = e;
        *best = scale;
    }
}

FIT float max_of(const float *x, int n)
{
    float max = 0.0f;

    for (int i = 0; i < n; i++)
        max = fabsf(x[i]) > fabsf(max) ? x[i] : max;
    return max;
}

FIT float search_scale(const float *x, const float *w, int n, const struct levels *v, int effort)
{
    float max = max_of(x, n), best = 0.0f, error = FLT_MAX, from = v->from, to = v->to, step = v->step;

    if (max == 0.0f)
        return 0.0f;
    if (effort > 0) {
        from *= 0.9f;
        to *= 1.3f; /* large elements may count little */
        step *= 0.25f;
    }
    int tries = (int)((to - from) / step + 0.5f);

    for (int i = 0; i <= tries; i++) {
        float t = from + step * (float)i;

        try_scale(&best, &error, x, w, -max / t, n, v);
        try_scale(&best, &error, x, w, max / t, n, v);
    }
    for (int i = 0; i < 2; i++)
        try_scale(&best, &error, x, w, best, n, v);
    return best;
}

FIT float to_f16(float v)
{
    uint16_t h = half_of_f32(v);

    if ((h & 0x7fffu) > ENCODE_MAX_F16)
        h = (uint16_t)((h & 0x8000u) | ENCODE_MAX_F16);
    return half_to_f32(h);
}

/* One f16 scale for n elements: returns it, and the levels. */
FIT float fit_one(float *l, const float *x, const float *w, int n, const struct levels *v, int effort)
{
    float d = to_f16(search_scale(x, w, n, v, effort)), best = 0.0f, error = FLT_MAX, t[256];

    for (int i = 0; i < 3; i++) {
        round_levels(t, x, inverse_of(d), n, v);
        float e = error_of(t, x, w, d, n);

        if (e < error) {
            error = e;
            best = d;
            memcpy(l, t, (size_t)n * sizeof *l);
        }
        d = to_f16(scale_of(t, x, w, n));
    }
    return best;
}

/* 256 elements in groups whose scales are k[group] * d, lo <= k <= hi. */
struct sym {
    int                  group, lo, hi, effort;
    const struct levels *v;
    const float         *x, *w;
    float                scale[16]; /* the best of each group alone */
    float                d, error;
    int                  k[16];
    float                l[256];
};

FIT void sym_try(struct sym *s, float d)
{
    struct sym t = { .d = to_f16(d) };
    int        around = s->effort > 0 ? 2 : 1;

    if (t.d == 0.0f && s->error < FLT_MAX)
        return;
    for (int g = 0; g < 256 / s->group; g++) {
        const float *x = s->x + g * s->group, *w = s->w + g * s->group;
        float        near = t.d != 0.0f ? s->scale[g] / t.d : 0.0f, least = FLT_MAX, l[256];
        int          mid = encode_round(near, (float)s->lo, (float)s->hi);

        for (int k = mid - around; k <= mid + around; k++) {
            if (k < s->lo || k > s->hi)
                continue;
            float scale = t.d * (float)k;

            round_levels(l, x, inverse_of(scale), s->group, s->v);
            float e = error_of(l, x, w, scale, s->group);

            if (e < least) {
                least = e;
                t.k[g] = k;
                memcpy(t.l + g * s->group, l, (size_t)s->group * sizeof *l);
            }
        }
        t.error += least;
    }
    if (t.error < s->error) {
        s->error = t.error;
        s->d = t.d;
        memcpy(s->k, t.k, sizeof s->k);
        memcpy(s->l, t.l, sizeof s->l);
    }
}

FIT void sym_refit(struct sym *s)
{
    float t[256];

    for (int i = 0; i < 256; i++)
        t[i] = s->l[i] * (float)s->k[i / s->group];
    sym_try(s, scale_of(t, s->x, s->w, 256));
}

FIT void sym_fit(struct sym *s, int tries)
{
    float max = 0.0f;

    s->error = FLT_MAX;
    s->d = 0.0f;
    for (int g = 0; g < 256 / s->group; g++) {
        s->scale[g] = search_scale(s->x + g * s->group, s->w + g * s->group, s->group, s->v,
                                   s->effort);
        max = fabsf(s->scale[g]) > fabsf(max) ? s->scale[g] : max;
    }
    for (int i = 0; i < (s->effort > 0 ? 12 : 1) * tries; i++) {
        sym_try(s, max / (float)(s->lo + i));
        sym_try(s, max / (float)(s->hi - i));
    }
    for (int i = 0; i < 4 && s->effort > 0; i++) { /* between those, around the best */
        sym_refit(s);
        sym_try(s, s->d * (1.0f + 0.004f * (float)(i + 1)));
        sym_try(s, s->d * (1.0f - 0.004f * (float)(i + 1)));
    }
    sym_refit(s);
    sym_refit(s);
}

/* ---- the types ---- */
static const struct levels levels_q4_0 = { -8, 7, 6.0f, 10.0f, 0.2f, 0, { 0 } };
static const struct levels levels_q5_0 = { -16, 15, 13.5f, 18.0f, 0.25f, 0, { 0 } };
static const struct levels levels_q8_0 = { -127, 127, 125.5f, 128.5f, 0.25f, 0, { 0 } };
static const struct levels levels_q3_k = { -4, 3, 2.4f, 6.0f, 0.2f, 0, { 0 } };
static const struct levels levels_q6_k = { -32, 31, 29.0f, 34.0f, 0.25f, 0, { 0 } };
static const struct levels levels_tern = { -1, 1, 0.75f, 16.0f, 0.25f, 0, { 0 } };
static const struct levels levels_nl = { 0, 0, 88.0f, 152.0f, 4.0f, 16,
    { -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113 } };
static const struct levels levels_fp4 = { 0, 0, 0, 0, 1, 15,
    { -12, -8, -6, -4, -3, -2, -1, 0, 1, 2, 3, 4, 6, 8, 12 } };

FIT void fit_q4_0(void *row, const float *x, int64_t n, const float *importance, int effort)
{
    struct quant_q4_0 *b = row;
    struct fit_block   t;
    float              l[32];

    for (int64_t i = 0; i < n / 32; i++, b++) {
        load_block(&t, x, importance, i, 32);
        b->d = half_of_f32(fit_one(l, t.x, t.w, 32, &levels_q4_0, effort));
        for (int j = 0; j < 16; j++)
            b->qs[j] = (uint8_t)(((int)l[j] + 8) | ((int)l[j + 16] + 8) << 4);
    }
}

FIT void fit_q5_0(void *row, const float *x, int64_t n, const float *importance, int effort)
{
    struct quant_q5_0 *b = row;
    struct fit_block   t;
    float              l[32];

    for (int64_t i = 0; i < n / 32; i++, b++) {
        load_block(&t, x, importance, i, 32);
        b->d = half_of_f32(fit_one(l, t.x, t.w, 32, &levels_q5_0, effort));
        memset(b->qh, 0, sizeof b->qh);
        for (int j = 0; j < 32; j++) {
            int q = (int)l[j] + 16;

            b->qs[j % 16] = (uint8_t)(j < 16 ? q & 15 : b->qs[j % 16] | (q & 15) << 4);
            b->qh[j / 8] = (uint8_t)(b->qh[j / 8] | (q >> 4) << j % 8);
        }
    }
}

FIT void fit_q8_0(void *row, const float *x, int64_t n, const float *importance, int effort)
{
    struct quant_q8_0 *b = row;
    struct fit_block   t;
    float              l[32];

    for (int64_t i = 0; i < n / 32; i++, b++) {
        load_block(&t, x, importance, i, 32);
        b->d = half_of_f32(fit_one(l, t.x, t.w, 32, &levels_q8_0, effort));
        for (int j = 0; j < 32; j++)
            b->qs[j] = (int8_t)l[j];
    }
}

FIT unsigned code_nl(float level)
{
    unsigned c = 0;

    while ((float)quant_iq4nl_values[c] != level)
        c++;
    return c;
}

FIT void fit_iq4_nl(void *row, const float *x, int64_t n, const float *importance, int effort)
{
    struct quant_iq4_nl *b = row;
    struct fit_block     t;
    float                l[32];

    for (int64_t i = 0; i < n / 32; i++, b++) {
        load_block(&t, x, importance, i, 32);
        b->d = half_of_f32(fit_one(l, t.x, t.w, 32, &levels_nl, effort));
        for (int j = 0; j < 16; j++)
            b->qs[j] = (uint8_t)(code_nl(l[j]) | code_nl(l[j + 16]) << 4);
    }
}

FIT unsigned code_fp4(float level)
{
    unsigned c = 0;

    while ((float)quant_fp4_values[c] != level)
        c++;
    return c;
}

FIT void fit_mxfp4(void *row, const float *x, int64_t n, const float *importance, int effort)
{
    struct quant_mxfp4 *b = row;
    struct fit_block    t;

    (void)effort; /* all scales that come into question are tried */
    for (int64_t i = 0; i < n / 32; i++, b++) {
        float l[32] = { 0 }, best[32] = { 0 }, least = FLT_MAX, max;
        int   exp, up;

        load_block(&t, x, importance, i, 32);
        max = frexpf(max_of(t.x, 32), &up);
        for (int j = 0; j < 32; j++) /* exact: no square below is too small or too large */
            t.x[j] = max != 0.0f ? ldexpf(t.x[j], -up) : 0.0f;
        b->e = 0;
        for (exp = -5; exp <= -1 && max != 0.0f; exp++) {
            int e = exp + up + 128;

            if (e < 0 || e > 254)
                continue;
            round_levels(l, t.x, ldexpf(1.0f, -exp), 32, &levels_fp4);
            float err = error_of(l, t.x, t.w, ldexpf(1.0f, exp), 32);

            if (err < least) {
                least = err;
                b->e = (uint8_t)e;
                memcpy(best, l, sizeof best);
            }
        }
        for (int j = 0; j < 16; j++)
            b->qs[j] = (uint8_t)(code_fp4(best[j]) | code_fp4(best[j + 16]) << 4);
    }
}

/* Half of an E4M3 scale, as nvfp4.c decodes it. */
FIT float half_e4m3(int v)
{
    return v >> 3 == 0 ? (float)(v & 7) * 0x1p-10f : ldexpf((float)(8 + (v & 7)), (v >> 3) - 11);
}

FIT void fit_nvfp4(void *row, const float *x, int64_t n, const float *importance, int effort)
{
    struct quant_nvfp4 *b = row;
    struct fit_block    t;

    (void)effort; /* all scales that come into question are tried */
    for (int64_t i = 0; i < n / 64; i++, b++) {
        load_block(&t, x, importance, i, 64);
        for (int g = 0; g < 4; g++) {
            float l[16], best[16] = { 0 }, least = FLT_MAX, max = fabsf(max_of(t.x + 16 * g, 16));
            int   mid = 1;

            while (mid < 126 && half_e4m3(mid) * 12.0f < max)
                mid++;
            b->d[g] = 0;
            for (int v = mid > 11 ? mid - 10 : 1; v <= mid + 5 && v <= 126 && max > 0.0f; v++) {
                float d = half_e4m3(v);

                round_levels(l, t.x + 16 * g, 1.0f / d, 16, &levels_fp4);
                float err = error_of(l, t.x + 16 * g, t.w + 16 * g, d, 16);

                if (err < least) {
                    least = err;
                    b->d[g] = (uint8_t)v;
                    memcpy(best, l, sizeof best);
                }
            }
            for (int j = 0; j < 8; j++)
                b->qs[8 * g + j] = (uint8_t)(code_fp4(best[j]) | code_fp4(best[j + 8]) << 4);
        }
    }
}

FIT void fit_tq2_0(void *row, const float *x, int64_t n, const float *importance, int effort)
{
    struct quant_tq2_0 *b = row;
    struct fit_block    t;
    float               l[256];

    for (int64_t i = 0; i < n / 256; i++, b++) {
        load_block(&t, x, importance, i, 256);
        b->d = half_of_f32(fit_one(l, t.x, t.w, 256, &levels_tern, effort));
        memset(b->qs, 0, sizeof b->qs);
        for (int j = 0; j < 256; j++) {
            uint8_t *q = &b->qs[j / 128 * 32 + j % 32];

            *q = (uint8_t)(*q | ((int)l[j] + 1) << j / 32 % 4 * 2);
        }
    }
}

/* n digits, m apart, as a fraction in base 3 of 5 digits, scaled to 256 and rounded up. */
FIT uint8_t ternary_byte(const float *l, int m, int n)
{
    int v = 0;

    for (int k = 0; k < 5; k++)
        v = 3 * v + (k < n ? (int)l[k * m] + 1 : 0);
    return (uint8_t)((v * 256 + 242) / 243);
}

FIT void fit_tq1_0(void *row, const float *x, int64_t n, const float *importance, int effort)
{
    struct quant_tq1_0 *b = row;
    struct fit_block    t;
    float               l[256];

    for (int64_t i = 0; i < n / 256; i++, b++) {
        load_block(&t, x, importance, i, 256);
        b->d = half_of_f32(fit_one(l, t.x, t.w, 256, &levels_tern, effort));
        for (int j = 0; j < 32; j++)
            b->qs[j] = ternary_byte(l + j, 32, 5);
        for (int j = 0; j < 16; j++)
            b->qs[32 + j] = ternary_byte(l + 160 + j, 16, 5);
        for (int j = 0; j < 4; j++)
            b->qh[j] = ternary_byte(l + 240 + j, 4, 4);
    }
}

FIT void fit_q3_k(void *row, const float *x, int64_t n, const float *importance, int effort)
{
    struct quant_q3_k *b = row;
    struct fit_block   t;
    struct sym         s = { .group = 16, .lo = -32, .hi = 31, .effort = effort, .v = &levels_q3_k, .x = t.x, .w = t.w };

    for (int64_t i = 0; i < n / 256; i++, b++) {
        load_block(&t, x, importance, i, 256);
        sym_fit(&s, 5);
        memset(b, 0, sizeof *b);
        b->d = half_of_f32(s.d);
        for (int g = 0; g < 16; g++) {
            int k = s.k[g] + 32;

            b->sc[g % 8] = (uint8_t)(b->sc[g % 8] | (k & 15) << g / 8 * 4);
            b->sc[8 + g % 4] = (uint8_t)(b->sc[8 + g % 4] | (k >> 4) << g / 4 * 2);
        }
        for (int j = 0; j < 256; j++) {
            int      q = (int)s.l[j] + 4;
            uint8_t *low = &b->qs[j / 128 * 32 + j % 32];

            *low = (uint8_t)(*low | (q & 3) << j / 32 % 4 * 2);
            b->hmask[j % 32] = (uint8_t)(b->hmask[j % 32] | (q >> 2) << j / 32);
        }
    }
}

FIT void fit_q6_k(void *row, const float *x, int64_t n, const float *importance, int effort)
{
    struct quant_q6_k *b = row;
    struct fit_block   t;
    struct sym         s = { .group = 16, .lo = -128, .hi = 127, .effort = effort, .v = &levels_q6_k, .x = t.x, .w = t.w };

    for (int64_t i = 0; i < n / 256; i++, b++) {
        load_block(&t, x, importance, i, 256);
        sym_fit(&s, 2);
        memset(b, 0, sizeof *b);
        b->d = half_of_f32(s.d);
        for (int g = 0; g < 16; g++)
            b->sc[g] = (int8_t)s.k[g];
        for (int j = 0; j < 256; j++) {
            int      q = (int)s.l[j] + 32;
            uint8_t *low = &b->ql[j / 128 * 64 + j % 64], *high = &b->qh[j / 128 * 32 + j % 32];

            *low = (uint8_t)(*low | (q & 15) << j / 64 % 2 * 4);
            *high = (uint8_t)(*high | (q >> 4) << j / 32 % 4 * 2);
        }
    }
}

FIT void fit_iq4_xs(void *row, const float *x, int64_t n, const float *importance, int effort)
{
    struct quant_iq4_xs *b = row;
    struct fit_block     t;
    struct sym           s = { .group = 32, .lo = -32, .hi = 31, .effort = effort, .v = &levels_nl, .x = t.x, .w = t.w };

    for (int64_t i = 0; i < n / 256; i++, b++) {
        load_block(&t, x, importance, i, 256);
        sym_fit(&s, 5);
        memset(b, 0, sizeof *b);
        b->d = half_of_f32(s.d);
        for (int g = 0; g < 8; g++) {
            int k = s.k[g] + 32;

            b->sl[g / 2] = (uint8_t)(b->sl[g / 2] | (k & 15) << g % 2 * 4);
            b->sh = (uint16_t)(b->sh | (k >> 4) << 2 * g);
            for (int j = 0; j < 16; j++)
                b->qs[16 * g + j] = (uint8_t)(code_nl(s.l[32 * g + j]) | code_nl(s.l[32 * g + j + 16]) << 4);
        }
    }
}
