/* SPDX-License-Identifier: Apache-2.0 */
/* fit_min_body.h - encoders of types with a scale and a minimum: body of fit_body.h, after fit_levels_body.h.
 *
 * As there, but least squares is for two unknowns. An element is scale * level - min, levels from 0
 * to top; with scales and minima that are whole numbers times two f16, min is at least 0.
 */
struct line {
    float scale, min;
};

/* sums of w, w l, w l l, w x, w l x */
struct line_sums {
    float w, l, ll, x, lx;
};

FIT void add_line(struct line_sums *s, const float *l, const float *x, const float *w, int n)
{
    float sw[8] = { 0 }, sl[8] = { 0 }, sll[8] = { 0 }, sx[8] = { 0 }, slx[8] = { 0 };

    for (int i = 0; i < n; i += 8)
        for (int j = 0; j < 8; j++) {
            float wl = w[i + j] * l[i + j];

            sw[j] += w[i + j];
            sl[j] += wl;
            sll[j] += wl * l[i + j];
            sx[j] += w[i + j] * x[i + j];
            slx[j] += wl * x[i + j];
        }
    *s = (struct line_sums){ fold_8(sw), fold_8(sl), fold_8(sll), fold_8(sx), fold_8(slx) };
}

/* The best line through given levels. */
FIT struct line line_of(const float *l, const float *x, const float *w, int n, bool free_min)
{
    struct line_sums s;
    struct line      t = { 0, 0 };

    add_line(&s, l, x, w, n);
    float det = s.w * s.ll - s.l * s.l;

    if (det > 0.0f) {
        t.scale = (s.w * s.lx - s.l * s.x) / det;
        t.min = (s.l * s.lx - s.ll * s.x) / det;
    }
    if (det <= 0.0f || (!free_min && t.min < 0.0f)) {
        t.scale = s.ll > 0.0f ? s.lx / s.ll : 0.0f;
        t.min = 0.0f;
    }
    return t;
}

FIT void round_line(float *l, const float *x, struct line t, int n, float top)
{
    float inverse = inverse_of(t.scale);

    for (int i = 0; i < n; i++) {
        float q = (x[i] + t.min) * inverse;

        q = q < 0.0f ? 0.0f : q;
        q = q > top ? top : q;
        l[i] = (q + 12582912.0f) - 12582912.0f;
    }
}

FIT float line_error(const float *l, const float *x, const float *w, struct line t, int n)
{
    float s[8] = { 0 };

    for (int i = 0; i < n; i += 8)
        for (int j = 0; j < 8; j++) {
            float e = x[i + j] - (t.scale * l[i + j] - t.min);

            s[j] += w[i + j] * e * e;
        }
    return fold_8(s);
}

FIT struct line search_line(const float *x, const float *w, int n, float top, bool free_min, int effort)
{
    float       lo = x[0], hi = x[0], l[32], least = FLT_MAX;
    struct line best = { 0, 0 };

    for (int i = 1; i < n; i++) {
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
    }
    if (!free_min && lo > 0.0f)
        lo = 0.0f;
    if (hi <= lo) /* all alike */
        return (struct line){ 0, -lo };
    int tries = effort > 0 ? 200 : 40;

    for (int i = 0; i < tries + 4; i++) {
        float       t = -1.05f + 2.4f * (float)i / (float)tries;
        struct line v = { (hi - lo) / (top + t), -lo };

        if (i >= tries)
            v = best;
        round_line(l, x, v, n, top);
        v = line_of(l, x, w, n, free_min);
        float e = line_error(l, x, w, v, n);

        if (e < least && v.scale > 0.0f) {
            least = e;
            best = v;
        } else if (i >= tries) {
            break;
        }
    }
    return best;
}

/* 256 elements in groups with scales a d and minima b dmin, a and b from 0 to most. */
struct asym {
    int          group, most, effort;
    float        top;
    const float *x, *w;
    struct line  best[16]; /* of each group alone */
    float        d, dmin, error;
    int          a[16], b[16];
    float        l[256];
};

FIT int whole(float v, float unit, int most)
{
    return unit > 0.0f ? encode_round(v / unit, 0.0f, (float)most) : 0;
}

/* The group with scale a: minimum b, and those that suit the levels then. */
FIT void asym_group(struct asym *t, const struct asym *s, int g, int a, int b, float *least)
{
    const float *x = s->x + g * s->group, *w = s->w + g * s->group;
    float        l[32];

    for (int i = 0; i < 3; i++) {
        struct line      v = { t->d * (float)a, t->dmin * (float)b };
        struct line_sums sums;

        round_line(l, x, v, s->group, s->top);
        float e = line_error(l, x, w, v, s->group);

        if (e < *least) {
            *least = e;
            t->a[g] = a;
            t->b[g] = b;
            memcpy(t->l + g * s->group, l, (size_t)s->group * sizeof *l);
        }
        add_line(&sums, l, x, w, s->group);
        int next = sums.w > 0.0f ? whole((v.scale * sums.l - sums.x) / sums.w, t->dmin, s->most) : b;

        if (next == b)
            break;
        b = next;
    }
}

FIT void asym_try(struct asym *s, float d, float dmin)
{
    struct asym t = { .d = to_f16(d), .dmin = to_f16(dmin) };

    int         around = s->effort > 0 ? 4 : 1, near = s->effort > 0 ? 3 : 0;

    for (int g = 0; g < 256 / s->group; g++) {
        int   mid = whole(s->best[g].scale, t.d, s->most), min = whole(s->best[g].min, t.dmin, s->most);
        float least = FLT_MAX;

        for (int a = mid - around; a <= mid + around; a++)
            for (int b = min - near; b <= min + near; b++)
                if (a >= 0 && a <= s->most && b >= 0 && b <= s->most)
                    asym_group(&t, s, g, a, b, &least);
        t.error += least;
    }
    if (t.error < s->error) {
        s->error = t.error;
        s->d = t.d;
        s->dmin = t.dmin;
        memcpy(s->a, t.a, sizeof s->a);
        memcpy(s->b, t.b, sizeof s->b);
        memcpy(s->l, t.l, sizeof s->l);
    }
}

/* Least squares for both f16, the whole numbers given. */
FIT void asym_refit(struct asym *s)
{
    double pp = 0, pm = 0, mm = 0, px = 0, mx = 0;

    for (int i = 0; i < 256; i++) {
        double p = (double)s->l[i] * s->a[i / s->group], m = s->b[i / s->group], w = s->w[i];

        pp += w * p * p;
        pm += w * p * m;
        mm += w * m * m;
        px += w * p * (double)s->x[i];
        mx += w * m * (double)s->x[i];
    }
    double det = pp * mm - pm * pm;

    if (det > 1e-9 * pp * mm && det > 0) {
        double d = (px * mm - mx * pm) / det, dmin = (px * pm - mx * pp) / det;

        if (d > 0 && dmin >= 0)
            asym_try(s, (float)d, (float)dmin);
    } else if (pp > 0 && mm == 0 && px > 0) {
        asym_try(s, (float)(px / pp), 0.0f);
    }
}

FIT void asym_fit(struct asym *s, int tries)
{
    float scale = 0.0f, min = 0.0f;

    s->error = FLT_MAX;
    for (int g = 0; g < 256 / s->group; g++) {
        s->best[g] = search_line(s->x + g * s->group, s->w + g * s->group, s->group, s->top, false,
                                 s->effort);
        scale = s->best[g].scale > scale ? s->best[g].scale : scale;
        min = s->best[g].min > min ? s->best[g].min : min;
    }
    tries += s->effort > 0 ? 3 : 0;
    for (int i = 0; i < tries; i++)
        for (int j = 0; j < tries; j++)
            asym_try(s, scale / (float)(s->most - i), min / (float)(s->most - j));
    for (int i = 0; i < (s->effort > 0 ? 6 : 3); i++)
        asym_refit(s);
    for (int i = 0; i < 8 && s->effort > 0; i++) { /* around the best: both, and apart */
        float up = 1.0f + 0.006f * (float)(i / 4 + 1), d = s->d * (i & 1 ? up : 1.0f / up);

        asym_try(s, d, s->dmin * (i & 2 ? up : 1.0f / up));
        asym_refit(s);
    }
}

/* Scales and minima to the 12 bytes of k_scales.h. */
FIT void pack_scales_45(uint8_t sc[12], const int a[8], const int b[8])
{
    for (int g = 0; g < 4; g++) {
        sc[g] = (uint8_t)(a[g] | (a[g + 4] >> 4) << 6);
        sc[g + 4] = (uint8_t)(b[g] | (b[g + 4] >> 4) << 6);
        sc[g + 8] = (uint8_t)((a[g + 4] & 15) | (b[g + 4] & 15) << 4);
    }
}

FIT void fit_q4_k(void *row, const float *x, int64_t n, const float *importance, int effort)
{
    struct quant_q4_k *b = row;
    struct fit_block   t;
    struct asym        s = { .group = 32, .most = 63, .effort = effort, .top = 15, .x = t.x, .w = t.w };

    for (int64_t i = 0; i < n / 256; i++, b++) {
        load_block(&t, x, importance, i, 256);
        asym_fit(&s, 2);
        memset(b, 0, sizeof *b);
        b->d = half_of_f32(s.d);
        b->dmin = half_of_f32(s.dmin);
        pack_scales_45(b->sc, s.a, s.b);
        for (int j = 0; j < 256; j++) {
            uint8_t *q = &b->qs[j / 64 * 32 + j % 32];

            *q = (uint8_t)(*q | (int)s.l[j] << j / 32 % 2 * 4);
        }
    }
}

FIT void fit_q5_k(void *row, const float *x, int64_t n, const float *importance, int effort)
{
    struct quant_q5_k *b = row;
    struct fit_block   t;
    struct asym        s = { .group = 32, .most = 63, .effort = effort, .top = 31, .x = t.x, .w = t.w };

    for (int64_t i = 0; i < n / 256; i++, b++) {
        load_block(&t, x, importance, i, 256);
        asym_fit(&s, 2);
        memset(b, 0, sizeof *b);
        b->d = half_of_f32(s.d);
        b->dmin = half_of_f32(s.dmin);
        pack_scales_45(b->sc, s.a, s.b);
        for (int j = 0; j < 256; j++) {
            int      l = (int)s.l[j];
            uint8_t *q = &b->qs[j / 64 * 32 + j % 32];

            *q = (uint8_t)(*q | (l & 15) << j / 32 % 2 * 4);
            b->qh[j % 32] = (uint8_t)(b->qh[j % 32] | (l >> 4) << j / 32);
        }
    }
}

FIT void fit_q2_k(void *row, const float *x, int64_t n, const float *importance, int effort)
{
    struct quant_q2_k *b = row;
    struct fit_block   t;
    struct asym        s = { .group = 16, .most = 15, .effort = effort, .top = 3, .x = t.x, .w = t.w };

    for (int64_t i = 0; i < n / 256; i++, b++) {
        load_block(&t, x, importance, i, 256);
        asym_fit(&s, 4);
        memset(b, 0, sizeof *b);
        b->d = half_of_f32(s.d);
        b->dmin = half_of_f32(s.dmin);
        for (int g = 0; g < 16; g++)
            b->sc[g] = (uint8_t)(s.a[g] | s.b[g] << 4);
        for (int j = 0; j < 256; j++) {
            uint8_t *q = &b->qs[j / 128 * 32 + j % 32];

            *q = (uint8_t)(*q | (int)s.l[j] << j / 32 % 4 * 2);
        }
    }
}

/* Both as f16, the minimum of any sign. */
FIT struct line fit_line(float l[32], const float *x, const float *w, float top, int effort)
{
    struct line t = search_line(x, w, 32, top, true, effort), best = { 0, 0 };
    float       least = FLT_MAX, q[32];

    for (int i = 0; i < 3; i++) {
        t.scale = to_f16(t.scale);
        t.min = to_f16(t.min);
        round_line(q, x, t, 32, top);
        float e = line_error(q, x, w, t, 32);

        if (e < least) {
            least = e;
            best = t;
            memcpy(l, q, sizeof q);
        }
        t = line_of(q, x, w, 32, true);
    }
    return best;
}

FIT void fit_q4_1(void *row, const float *x, int64_t n, const float *importance, int effort)
{
    struct quant_q4_1 *b = row;
    struct fit_block   t;
    float              l[32];

    for (int64_t i = 0; i < n / 32; i++, b++) {
        load_block(&t, x, importance, i, 32);
        struct line v = fit_line(l, t.x, t.w, 15, effort);

        b->d = half_of_f32(v.scale);
        b->m = half_of_f32(-v.min);
        for (int j = 0; j < 16; j++)
            b->qs[j] = (uint8_t)((int)l[j] | (int)l[j + 16] << 4);
    }
}

FIT void fit_q5_1(void *row, const float *x, int64_t n, const float *importance, int effort)
{
    struct quant_q5_1 *b = row;
    struct fit_block   t;
    float              l[32];

    for (int64_t i = 0; i < n / 32; i++, b++) {
        load_block(&t, x, importance, i, 32);
        struct line v = fit_line(l, t.x, t.w, 31, effort);

        b->d = half_of_f32(v.scale);
        b->m = half_of_f32(-v.min);
        memset(b->qh, 0, sizeof b->qh);
        for (int j = 0; j < 32; j++) {
            int q = (int)l[j];

            b->qs[j % 16] = (uint8_t)(j < 16 ? q & 15 : b->qs[j % 16] | (q & 15) << 4);
            b->qh[j / 8] = (uint8_t)(b->qh[j / 8] | (q >> 4) << j % 8);
        }
    }
}
