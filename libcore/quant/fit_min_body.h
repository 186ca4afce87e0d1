/* SPDX-License-Identifier: Apache-2.0 */
/* fit_min_body.h - encoders of types with a scale and a minimum: body of fit_body.h, after fit_levels_body.h.
 *
 * As there, but least squares has two unknowns. An element is scale * level - min, with levels from 0
 * to top. If scales and minima are whole numbers times two f16, min is at least 0.
 */
struct lines {
    float scale[LANES], min[LANES];
};

FIT_INLINE void round_line(float l[LANES], const float x[LANES], const struct lines *t, const float inverse[LANES], float top)
{
    EACH_LANE {
        float q = (x[k] + t->min[k]) * inverse[k];

        q = q < 0.0f ? 0.0f : q;
        q = q > top ? top : q;
        l[k] = (q + 12582912.0f) - 12582912.0f;
    }
}

/* Of what is left when lines are taken away, r: sums of w r r, w r, w r l, and of w, w l, w l l. */
struct line_sums {
    float rr[LANES], r[LANES], rl[LANES], w[LANES], l[LANES], ll[LANES];
};

FIT void add_lines(struct line_sums *to, const struct strip *s, const struct lines *t, float top)
{
    float inverse[LANES], rr[LANES] = { 0 }, sr[LANES] = { 0 }, rl[LANES] = { 0 }, sw[LANES] = { 0 }, sl[LANES] = { 0 };
    float ll[LANES] = { 0 };

    inverse_lanes(inverse, t->scale);
    for (int i = 0; i < s->n; i++) {
        float l[LANES];

        round_line(l, s->x[i], t, inverse, top);
        EACH_LANE {
            float r = s->x[i][k] - (t->scale[k] * l[k] - t->min[k]), w = s->w[i][k], wr = w * r, wl = w * l[k];

            rr[k] += wr * r;
            sr[k] += wr;
            rl[k] += wr * l[k];
            sw[k] += w;
            sl[k] += wl;
            ll[k] += wl * l[k];
        }
    }
    memcpy(to->rr, rr, sizeof rr);
    memcpy(to->r, sr, sizeof sr);
    memcpy(to->rl, rl, sizeof rl);
    memcpy(to->w, sw, sizeof sw);
    memcpy(to->l, sl, sizeof sl);
    memcpy(to->ll, ll, sizeof ll);
}

/* The best lines for the levels that these have, and their errors. */
FIT void better_lines(struct lines *to, float error[LANES], const struct line_sums *u, const struct lines *t, bool free_min)
{
    EACH_LANE {
        float det = u->w[k] * u->ll[k] - u->l[k] * u->l[k], by = det > 0.0f ? 1.0f / det : 0.0f;
        float up = (u->w[k] * u->rl[k] - u->l[k] * u->r[k]) * by, down = (u->l[k] * u->rl[k] - u->ll[k] * u->r[k]) * by;
        float e = u->rr[k] - up * u->rl[k] + down * u->r[k];
        /* without a minimum */
        float m = t->min[k], lx = u->rl[k] + t->scale[k] * u->ll[k] - m * u->l[k], scale = u->ll[k] > 0.0f ? lx / u->ll[k] : 0.0f;
        float d = t->scale[k] - scale;
        float e0 = u->rr[k] + 2.0f * (d * u->rl[k] - m * u->r[k]) + d * d * u->ll[k] - 2.0f * d * m * u->l[k] + m * m * u->w[k];
        bool  none = det <= 0.0f || (!free_min && m + down < 0.0f);

        to->scale[k] = none ? scale : t->scale[k] + up;
        to->min[k] = none ? 0.0f : m + down;
        e = none ? e0 : e;
        error[k] = e > 0.0f ? e : 0.0f;
    }
}

FIT void search_lines(struct lines *best, const struct strip *s, float top, bool free_min, int effort)
{
    float lo[LANES], hi[LANES], least[LANES], error[LANES];
    int   tries = effort > 0 ? 200 : 32;

    EACH_LANE {
        lo[k] = hi[k] = s->x[0][k];
        least[k] = FLT_MAX;
    }
    for (int i = 1; i < s->n; i++)
        EACH_LANE {
            lo[k] = s->x[i][k] < lo[k] ? s->x[i][k] : lo[k];
            hi[k] = s->x[i][k] > hi[k] ? s->x[i][k] : hi[k];
        }
    EACH_LANE {
        lo[k] = !free_min && lo[k] > 0.0f ? 0.0f : lo[k];
        best->scale[k] = 0.0f; /* stays where all elements are alike */
        best->min[k] = hi[k] <= lo[k] ? -lo[k] : 0.0f;
    }
    for (int i = 0; i < tries + 4; i++) {
        float            t = top + -1.05f + 2.4f * (float)i / (float)tries;
        struct lines     v = *best, then;
        struct line_sums sums;

        if (i < tries)
            EACH_LANE {
                v.scale[k] = (hi[k] - lo[k]) / t;
                v.min[k] = -lo[k];
            }
        add_lines(&sums, s, &v, top);
        better_lines(&then, error, &sums, &v, free_min);
        EACH_LANE {
            bool better = error[k] < least[k] && then.scale[k] > 0.0f && hi[k] > lo[k];

            best->scale[k] = better ? then.scale[k] : best->scale[k];
            best->min[k] = better ? then.min[k] : best->min[k];
            least[k] = better ? error[k] : least[k];
        }
    }
}

/* Blocks of 256 elements in groups, a lane each, with scales a d and minima b dmin, a and b from 0 to most. */
struct asym {
    int          in_block; /* lanes */
    int          most, effort;
    float        top;
    struct lines best; /* of each lane alone */
    float        d[LANES], dmin[LANES], error[LANES]; /* the same for the lanes of a block */
    float        a[LANES], b[LANES];
    float        l[32][LANES];
};

FIT void round_codes(float to[LANES], const float v[LANES], const float unit[LANES], float most)
{
    EACH_LANE {
        float q = unit[k] > 0.0f ? v[k] / unit[k] : 0.0f;

        q = q < 0.0f ? 0.0f : q;
        q = q > most ? most : q;
        to[k] = (q + 12582912.0f) - 12582912.0f;
    }
}

/* What is tried with two f16, and the best of it. */
struct asym_tried {
    float d[LANES], dmin[LANES], least[LANES], a[LANES], b[LANES];
};

/* Scales a and minima b, and minima that suit the levels then. */
FIT void asym_minima(struct asym_tried *t, const struct asym *y, const struct strip *s, const float a[LANES],
                     const float from[LANES])
{
    struct lines     v;
    struct line_sums u;
    float            b[LANES], min[LANES], most = (float)y->most;

    memcpy(b, from, sizeof b);
    EACH_LANE
        v.scale[k] = t->d[k] * a[k];
    for (int i = 0; i < 3; i++) {
        EACH_LANE
            v.min[k] = t->dmin[k] * b[k];
        add_lines(&u, s, &v, y->top);
        EACH_LANE {
            bool better = u.rr[k] < t->least[k] && a[k] >= 0.0f && a[k] <= most && from[k] >= 0.0f && from[k] <= most;

            t->a[k] = better ? a[k] : t->a[k];
            t->b[k] = better ? b[k] : t->b[k];
            t->least[k] = better ? u.rr[k] : t->least[k];
            min[k] = u.w[k] > 0.0f ? v.min[k] - u.r[k] / u.w[k] : v.min[k];
        }
        round_codes(b, min, t->dmin, most);
    }
}

FIT void asym_try(struct asym *y, const struct strip *s, const float d[LANES], const float dmin[LANES])
{
    struct asym_tried t = { .a = { 0 } };
    float             mid[LANES], min[LANES], a[LANES], b[LANES];
    int               around = y->effort > 0 ? 4 : 1, near = y->effort > 0 ? 3 : 0;

    f16_lanes(t.d, d, y->in_block);
    f16_lanes(t.dmin, dmin, y->in_block);
    round_codes(mid, y->best.scale, t.d, (float)y->most);
    round_codes(min, y->best.min, t.dmin, (float)y->most);
    EACH_LANE
        t.least[k] = FLT_MAX;
    for (int i = -around; i <= around; i++)
        for (int j = -near; j <= near; j++) {
            EACH_LANE {
                a[k] = mid[k] + (float)i;
                b[k] = min[k] + (float)j;
            }
            asym_minima(&t, y, s, a, b);
        }
    block_sums(t.least, y->in_block);
    EACH_LANE {
        bool better = t.least[k] < y->error[k];

        y->error[k] = better ? t.least[k] : y->error[k];
        y->d[k] = better ? t.d[k] : y->d[k];
        y->dmin[k] = better ? t.dmin[k] : y->dmin[k];
        y->a[k] = better ? t.a[k] : y->a[k];
        y->b[k] = better ? t.b[k] : y->b[k];
    }
}

/* The lines at hand. */
FIT void asym_lines(struct lines *v, const struct asym *y)
{
    EACH_LANE {
        v->scale[k] = y->d[k] * y->a[k];
        v->min[k] = y->dmin[k] * y->b[k];
    }
}

/* Least squares for both f16, the whole numbers given: what is left is w (up a l - down b)^2, summed up. */
FIT void asym_refit(struct asym *y, const struct strip *s)
{
    struct lines     v;
    struct line_sums u;
    float            d[LANES], dmin[LANES];
    bool             any = false;

    asym_lines(&v, y);
    add_lines(&u, s, &v, y->top);
    for (int b = 0; b < LANES; b += y->in_block) {
        double pp = 0, pm = 0, mm = 0, pr = 0, mr = 0;

        for (int k = b; k < b + y->in_block; k++) {
            double a = (double)y->a[k], m = (double)y->b[k];

            pp += a * a * (double)u.ll[k];
            pm += a * m * (double)u.l[k];
            mm += m * m * (double)u.w[k];
            pr += a * (double)u.rl[k];
            mr += m * (double)u.r[k];
        }
        double det = pp * mm - pm * pm, to = (double)y->d[b], to_min = (double)y->dmin[b];

        if (det > 1e-9 * pp * mm && det > 0) {
            to += (pr * mm - mr * pm) / det;
            to_min += (pr * pm - mr * pp) / det;
        } else if (pp > 0 && mm == 0) {
            to += pr / pp;
        }
        bool good = to > 0 && to_min >= 0;

        for (int k = b; k < b + y->in_block; k++) {
            d[k] = good ? (float)to : y->d[k];
            dmin[k] = good ? (float)to_min : y->dmin[k];
        }
        any |= good;
    }
    if (any)
        asym_try(y, s, d, dmin);
}

FIT void asym_fit(struct asym *y, const struct strip *s, int tries)
{
    float scale[LANES], min[LANES], d[LANES], dmin[LANES];

    y->in_block = 256 / s->n;
    search_lines(&y->best, s, y->top, false, y->effort);
    for (int b = 0; b < LANES; b += y->in_block) {
        float most = 0.0f, most_min = 0.0f;

        for (int k = b; k < b + y->in_block; k++) {
            most = y->best.scale[k] > most ? y->best.scale[k] : most;
            most_min = y->best.min[k] > most_min ? y->best.min[k] : most_min;
        }
        for (int k = b; k < b + y->in_block; k++) {
            scale[k] = most;
            min[k] = most_min;
        }
    }
    EACH_LANE {
        y->error[k] = FLT_MAX;
        y->d[k] = y->dmin[k] = y->a[k] = y->b[k] = 0.0f;
    }
    tries += y->effort > 0 ? 3 : 0;
    for (int i = 0; i < tries; i++)
        for (int j = 0; j < tries; j++) {
            EACH_LANE {
                d[k] = scale[k] / (float)(y->most - i);
                dmin[k] = min[k] / (float)(y->most - j);
            }
            asym_try(y, s, d, dmin);
        }
    for (int i = 0; i < (y->effort > 0 ? 6 : 3); i++)
        asym_refit(y, s);
    for (int i = 0; i < 8 && y->effort > 0; i++) { /* around the best: both, and apart */
        float up = 1.0f + 0.006f * (float)(i / 4 + 1);

        EACH_LANE {
            d[k] = y->d[k] * (i & 1 ? up : 1.0f / up);
            dmin[k] = y->dmin[k] * (i & 2 ? up : 1.0f / up);
        }
        asym_try(y, s, d, dmin);
        asym_refit(y, s);
    }

    struct lines v;
    float        inverse[LANES];

    asym_lines(&v, y);
    inverse_lanes(inverse, v.scale);
    for (int i = 0; i < s->n; i++)
        round_line(y->l[i], s->x[i], &v, inverse, y->top);
}

/* Scales and minima to the 12 bytes of k_scales.h. */
FIT void pack_scales_45(uint8_t sc[12], const float a[8], const float b[8])
{
    for (int g = 0; g < 4; g++) {
        sc[g] = (uint8_t)((int)a[g] | ((int)a[g + 4] >> 4) << 6);
        sc[g + 4] = (uint8_t)((int)b[g] | ((int)b[g + 4] >> 4) << 6);
        sc[g + 8] = (uint8_t)(((int)a[g + 4] & 15) | ((int)b[g + 4] & 15) << 4);
    }
}

FIT void fit_q4_k(void *row, const float *x, int64_t n, const float *importance, int effort)
{
    struct quant_q4_k *b = row;
    struct strip       s;
    struct asym        y = { .most = 63, .effort = effort, .top = 15 };
    uint8_t            code[256];

    for (int64_t at = 0, of = n / 256; at < of; at += 2) {
        load_strip(&s, x, importance, at, of, 256, 32);
        asym_fit(&y, &s, 2);
        for (int h = 0; h < LANES && at + h / 8 < of; h += 8, b++) {
            memset(b, 0, sizeof *b);
            b->d = half_of_f32(y.d[h]);
            b->dmin = half_of_f32(y.dmin[h]);
            pack_scales_45(b->sc, y.a + h, y.b + h);
            codes_of(code, y.l, h, 8, 32, 0);
            for (int j = 0; j < 8; j++)
                for (int i = 0; i < 32; i++)
                    b->qs[j / 2 * 32 + i] = (uint8_t)(b->qs[j / 2 * 32 + i] | code[32 * j + i] << j % 2 * 4);
        }
    }
}

FIT void fit_q5_k(void *row, const float *x, int64_t n, const float *importance, int effort)
{
    struct quant_q5_k *b = row;
    struct strip       s;
    struct asym        y = { .most = 63, .effort = effort, .top = 31 };
    uint8_t            code[256];

    for (int64_t at = 0, of = n / 256; at < of; at += 2) {
        load_strip(&s, x, importance, at, of, 256, 32);
        asym_fit(&y, &s, 2);
        for (int h = 0; h < LANES && at + h / 8 < of; h += 8, b++) {
            memset(b, 0, sizeof *b);
            b->d = half_of_f32(y.d[h]);
            b->dmin = half_of_f32(y.dmin[h]);
            pack_scales_45(b->sc, y.a + h, y.b + h);
            codes_of(code, y.l, h, 8, 32, 0);
            for (int j = 0; j < 8; j++)
                for (int i = 0; i < 32; i++) {
                    uint8_t l = code[32 * j + i], *q = &b->qs[j / 2 * 32 + i];

                    *q = (uint8_t)(*q | (l & 15) << j % 2 * 4);
                    b->qh[i] = (uint8_t)(b->qh[i] | (l >> 4) << j);
                }
        }
    }
}

FIT void fit_q2_k(void *row, const float *x, int64_t n, const float *importance, int effort)
{
    struct quant_q2_k *b = row;
    struct strip       s;
    struct asym        y = { .most = 15, .effort = effort, .top = 3 };
    uint8_t            code[256];

    for (int64_t at = 0; at < n / 256; at++, b++) {
        load_strip(&s, x, importance, at, at + 1, 256, 16);
        asym_fit(&y, &s, 2);
        memset(b, 0, sizeof *b);
        b->d = half_of_f32(y.d[0]);
        b->dmin = half_of_f32(y.dmin[0]);
        for (int g = 0; g < 16; g++)
            b->sc[g] = (uint8_t)((int)y.a[g] | (int)y.b[g] << 4);
        codes_of(code, y.l, 0, 16, 16, 0);
        for (int j = 0; j < 8; j++)
            for (int i = 0; i < 32; i++)
                b->qs[j / 4 * 32 + i] = (uint8_t)(b->qs[j / 4 * 32 + i] | code[32 * j + i] << j % 4 * 2);
    }
}

/* Both as f16, the minimum of any sign. */
FIT void fit_lines(struct lines *best, float l[][LANES], const struct strip *s, float top, int effort)
{
    struct lines     t, then;
    struct line_sums u;
    float            least[LANES], error[LANES], inverse[LANES];

    search_lines(&t, s, top, true, effort);
    EACH_LANE {
        least[k] = FLT_MAX;
        best->scale[k] = best->min[k] = 0.0f;
    }
    for (int i = 0; i < 3; i++) {
        EACH_LANE {
            t.scale[k] = to_f16(t.scale[k]);
            t.min[k] = to_f16(t.min[k]);
        }
        add_lines(&u, s, &t, top);
        EACH_LANE {
            bool better = u.rr[k] < least[k];

            best->scale[k] = better ? t.scale[k] : best->scale[k];
            best->min[k] = better ? t.min[k] : best->min[k];
            least[k] = better ? u.rr[k] : least[k];
        }
        better_lines(&then, error, &u, &t, true);
        t = then;
    }
    inverse_lanes(inverse, best->scale);
    for (int i = 0; i < s->n; i++)
        round_line(l[i], s->x[i], best, inverse, top);
}

FIT void fit_q4_1(void *row, const float *x, int64_t n, const float *importance, int effort)
{
    struct quant_q4_1 *b = row;
    struct strip       s;
    struct lines       v;
    float              l[32][LANES];

    for (int64_t at = 0, of = n / 32; at < of; at += LANES) {
        load_strip(&s, x, importance, at, of, 32, 32);
        fit_lines(&v, l, &s, 15, effort);
        for (int k = 0; k < LANES && at + k < of; k++, b++) {
            b->d = half_of_f32(v.scale[k]);
            b->m = half_of_f32(-v.min[k]);
            for (int j = 0; j < 16; j++)
                b->qs[j] = (uint8_t)((int)l[j][k] | (int)l[j + 16][k] << 4);
        }
    }
}

FIT void fit_q5_1(void *row, const float *x, int64_t n, const float *importance, int effort)
{
    struct quant_q5_1 *b = row;
    struct strip       s;
    struct lines       v;
    float              l[32][LANES];

    for (int64_t at = 0, of = n / 32; at < of; at += LANES) {
        load_strip(&s, x, importance, at, of, 32, 32);
        fit_lines(&v, l, &s, 31, effort);
        for (int k = 0; k < LANES && at + k < of; k++, b++) {
            b->d = half_of_f32(v.scale[k]);
            b->m = half_of_f32(-v.min[k]);
            memset(b->qh, 0, sizeof b->qh);
            for (int j = 0; j < 32; j++) {
                int q = (int)l[j][k];

                b->qs[j % 16] = (uint8_t)(j < 16 ? q & 15 : b->qs[j % 16] | (q & 15) << 4);
                b->qh[j / 8] = (uint8_t)(b->qh[j / 8] | (q >> 4) << j % 8);
            }
        }
    }
}
