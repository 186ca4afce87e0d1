/* SPDX-License-Identifier: Apache-2.0 */
/* fit_levels_body.h - encoders of types whose element is a scale times a level: body of fit_body.h.
 *
 * All groups of a strip (fit_body.h) are searched at once, in lanes.
 * To find a scale, the largest magnitude is mapped to many points near the end of the levels. For
 * each of them the elements are rounded and least squares gives a scale; the one with the least error
 * is used. If the scales of groups are whole numbers times one f16, several f16 are tried. For each,
 * a group tries the three whole numbers nearest to its own best scale, and least squares adjusts the f16.
 * If a group can choose between two tables of levels, all this is done with both.
 */

/* Levels: whole numbers from lo to hi, or the n ascending values of a table. */
struct levels {
    float lo, hi;
    float from, to, step; /* where the search maps the largest magnitude */
    int   n;
    float value[64];
};

FIT_INLINE void round_lanes(float l[LANES], const float x[LANES], const float inverse[LANES], const struct levels *v)
{
    float q[LANES];

    EACH_LANE
        q[k] = x[k] * inverse[k];
    if (v->n == 0) {
        EACH_LANE {
            float t = q[k] < v->lo ? v->lo : q[k];

            t = t > v->hi ? v->hi : t;
            l[k] = (t + 12582912.0f) - 12582912.0f; /* to whole numbers, ties to even */
        }
        return;
    }
    EACH_LANE
        l[k] = v->value[0];
    for (int i = 1; i < v->n; i++) {
        float mid = 0.5f * (v->value[i - 1] + v->value[i]), value = v->value[i];

        EACH_LANE
            l[k] = q[k] > mid ? value : l[k];
    }
}

FIT void inverse_lanes(float inverse[LANES], const float scale[LANES])
{
    EACH_LANE
        inverse[k] = scale[k] != 0.0f ? 1.0f / scale[k] : 0.0f;
}

/* The levels of all elements. */
FIT void levels_of(float l[][LANES], const struct strip *s, const float scale[LANES], const struct levels *v)
{
    float inverse[LANES];

    inverse_lanes(inverse, scale);
    for (int i = 0; i < s->n; i++)
        round_lanes(l[i], s->x[i], inverse, v);
}

FIT void errors_of(float error[LANES], const struct strip *s, const float scale[LANES], const struct levels *v)
{
    float inverse[LANES], sum[LANES] = { 0 };

    inverse_lanes(inverse, scale);
    for (int i = 0; i < s->n; i++) {
        float l[LANES];

        round_lanes(l, s->x[i], inverse, v);
        EACH_LANE {
            float e = s->x[i][k] - scale[k] * l[k];

            sum[k] += s->w[i][k] * e * e;
        }
    }
    memcpy(error, sum, sizeof sum);
}

/* Rounds by scales. Errors with them, the scales that least squares gives for the levels (the same where there is none),
 * and the errors with those. */
FIT void try_scales(float error[LANES], float better[LANES], float then[LANES], const struct strip *s,
                    const float scale[LANES], const struct levels *v)
{
    float inverse[LANES], rr[LANES] = { 0 }, lr[LANES] = { 0 }, ll[LANES] = { 0 };

    inverse_lanes(inverse, scale);
    for (int i = 0; i < s->n; i++) {
        float l[LANES];

        round_lanes(l, s->x[i], inverse, v);
        EACH_LANE {
            float r = s->x[i][k] - scale[k] * l[k], wr = s->w[i][k] * r;

            rr[k] += wr * r;
            lr[k] += wr * l[k];
            ll[k] += s->w[i][k] * l[k] * l[k];
        }
    }
    EACH_LANE {
        float more = ll[k] > 0.0f ? lr[k] / ll[k] : 0.0f, e = rr[k] - more * lr[k];

        error[k] = rr[k];
        better[k] = scale[k] + more;
        then[k] = e > 0.0f ? e : 0.0f;
    }
}

/* The best scale of each lane, and its error. */
FIT void search_scales(float best[LANES], float least[LANES], const struct strip *s, const struct levels *v, int effort)
{
    float max[LANES] = { 0 }, scale[LANES], error[LANES], better[LANES], then[LANES];
    float from = v->from, to = v->to, step = v->step;
    bool  even = v->n == 0 && v->lo == -v->hi; /* a scale and its opposite do the same */

    for (int i = 0; i < s->n; i++)
        EACH_LANE
            max[k] = fabsf(s->x[i][k]) > fabsf(max[k]) ? s->x[i][k] : max[k];
    if (effort > 0) {
        from *= 0.9f;
        to *= 1.3f; /* large elements may count little */
        step *= 0.25f;
    }
    int tries = (int)((to - from) / step + 0.5f) + 1, all = even ? tries : 2 * tries;

    EACH_LANE {
        best[k] = 0.0f;
        least[k] = FLT_MAX;
    }
    for (int i = 0; i < all + (effort > 0 ? 2 : 0); i++) {
        float t = (i < tries ? 1.0f : -1.0f) * (from + step * (float)(i % tries));

        EACH_LANE
            scale[k] = i < all ? max[k] / t : best[k];
        try_scales(error, better, then, s, scale, v);
        EACH_LANE {
            best[k] = then[k] < least[k] ? better[k] : best[k];
            least[k] = then[k] < least[k] ? then[k] : least[k];
        }
    }
}

FIT float to_f16(float v)
{
    uint16_t h = half_of_f32(v);

    if ((h & 0x7fffu) > ENCODE_MAX_F16)
        h = (uint16_t)((h & 0x8000u) | ENCODE_MAX_F16);
    return half_to_f32(h);
}

/* Each lane's elements with one f16 scale: the scales, and the levels. */
FIT void fit_ones(float d[LANES], float l[][LANES], const struct strip *s, const struct levels *v, int effort)
{
    float least[LANES], scale[LANES], error[LANES], better[LANES], then[LANES];

    search_scales(better, least, s, v, effort);
    EACH_LANE
        least[k] = FLT_MAX;
    for (int i = 0; i < (effort > 0 ? 3 : 2); i++) {
        EACH_LANE
            scale[k] = to_f16(better[k]);
        try_scales(error, better, then, s, scale, v);
        EACH_LANE {
            d[k] = error[k] < least[k] ? scale[k] : d[k];
            least[k] = error[k] < least[k] ? error[k] : least[k];
        }
    }
    levels_of(l, s, d, v);
}

/* Blocks of 256 elements in groups, a lane each, whose scales are k * d, lo <= k <= hi, with levels of a table. */
struct sym {
    int                  in_block; /* lanes */
    int                  lo, hi, effort;
    bool                 odd;  /* the k are odd, and so are lo and hi */
    int                  more; /* tables behind the first: 0, or 1 */
    const struct levels *v;    /* [1 + more] */
    float                scale[2][LANES]; /* with each table, the best of each lane alone */
    float                d[LANES], error[LANES]; /* the same for the lanes of a block */
    float                k[LANES];
    int                  table[LANES];
    float                l[32][LANES];
};

/* Sums over the lanes of each block, to all of them. */
FIT void block_sums(float sum[LANES], int in_block)
{
    for (int b = 0; b < LANES; b += in_block) {
        float t = 0.0f;

        for (int k = b; k < b + in_block; k++)
            t += sum[k];
        for (int k = b; k < b + in_block; k++)
            sum[k] = t;
    }
}

FIT void f16_lanes(float d[LANES], const float wanted[LANES], int in_block)
{
    for (int b = 0; b < LANES; b += in_block) {
        float t = to_f16(wanted[b]);

        for (int k = b; k < b + in_block; k++)
            d[k] = t;
    }
}

/* Of each lane alone: the best scale with each table, and the better of the two with its table. */
FIT void sym_search(struct sym *y, const struct strip *s, float best[LANES])
{
    float least[LANES], error[LANES];

    search_scales(y->scale[0], least, s, y->v, y->effort);
    EACH_LANE {
        best[k] = y->scale[0][k];
        y->table[k] = 0;
    }
    if (y->more == 0)
        return;
    search_scales(y->scale[1], error, s, y->v + 1, y->effort);
    EACH_LANE {
        bool better = error[k] < least[k];

        best[k] = better ? y->scale[1][k] : best[k];
        y->table[k] = better ? 1 : 0;
    }
}

/* What is tried with one d. */
struct sym_tried {
    float k[LANES], least[LANES];
    int   table[LANES];
};

/* The whole numbers and tables with the least errors, d given. */
FIT void sym_choose(struct sym_tried *to, const struct sym *y, const struct strip *s, const float d[LANES])
{
    int   around = y->effort > 0 ? 2 : 1;
    float lo = (float)y->lo, hi = (float)y->hi, step = y->odd ? 2.0f : 1.0f, first = y->odd ? 1.0f : 0.0f;

    EACH_LANE {
        to->k[k] = 0.0f;
        to->table[k] = 0;
        to->least[k] = FLT_MAX;
    }
    for (int t = 0; t <= y->more; t++) {
        float mid[LANES];

        EACH_LANE {
            float near = d[k] != 0.0f ? y->scale[t][k] / d[k] : 0.0f;

            near = near < lo ? lo : near;
            near = near > hi ? hi : near;
            mid[k] = (((near - first) / step + 12582912.0f) - 12582912.0f) * step + first;
        }
        for (int a = -around; a <= around; a++) {
            float scale[LANES], error[LANES], by = step * (float)a;

            EACH_LANE
                scale[k] = d[k] * (mid[k] + by);
            errors_of(error, s, scale, y->v + t);
            EACH_LANE {
                float v = mid[k] + by;
                bool  better;

                error[k] = v < lo || v > hi ? FLT_MAX : error[k];
                better = error[k] < to->least[k];
                to->k[k] = better ? v : to->k[k];
                to->table[k] = better ? t : to->table[k];
                to->least[k] = better ? error[k] : to->least[k];
            }
        }
    }
}

FIT void sym_try(struct sym *y, const struct strip *s, const float wanted[LANES])
{
    float            d[LANES];
    struct sym_tried t;

    f16_lanes(d, wanted, y->in_block);
    sym_choose(&t, y, s, d);
    block_sums(t.least, y->in_block);
    EACH_LANE {
        bool better = t.least[k] < y->error[k] && (d[k] != 0.0f || y->error[k] >= FLT_MAX);

        y->d[k] = better ? d[k] : y->d[k];
        y->k[k] = better ? t.k[k] : y->k[k];
        y->table[k] = better ? t.table[k] : y->table[k];
        y->error[k] = better ? t.least[k] : y->error[k];
    }
}

/* Sums for least squares of d, the levels and whole numbers given: of w (k l) x and w (k l)^2. */
FIT void sym_sums(float lx[LANES], float ll[LANES], const struct sym *y, const struct strip *s)
{
    float scale[LANES], inverse[LANES], sx[LANES] = { 0 }, sl[LANES] = { 0 };

    EACH_LANE
        scale[k] = y->d[k] * y->k[k];
    inverse_lanes(inverse, scale);
    for (int i = 0; i < s->n; i++) {
        float l[LANES], other[LANES];

        round_lanes(l, s->x[i], inverse, y->v);
        if (y->more > 0) {
            round_lanes(other, s->x[i], inverse, y->v + 1);
            EACH_LANE
                l[k] = y->table[k] != 0 ? other[k] : l[k];
        }
        EACH_LANE {
            sx[k] += s->w[i][k] * l[k] * s->x[i][k];
            sl[k] += s->w[i][k] * l[k] * l[k];
        }
    }
    EACH_LANE {
        lx[k] = sx[k] * y->k[k];
        ll[k] = sl[k] * (y->k[k] * y->k[k]);
    }
}

/* The d that least squares gives for the levels and whole numbers at hand. */
FIT void sym_refit(struct sym *y, const struct strip *s)
{
    float lx[LANES], ll[LANES], wanted[LANES];

    sym_sums(lx, ll, y, s);
    block_sums(lx, y->in_block);
    block_sums(ll, y->in_block);
    EACH_LANE
        wanted[k] = ll[k] > 0.0f ? lx[k] / ll[k] : 0.0f;
    sym_try(y, s, wanted);
}

/* The levels of all elements. */
FIT void sym_levels(struct sym *y, const struct strip *s)
{
    float scale[LANES], other[32][LANES];

    EACH_LANE
        scale[k] = y->d[k] * y->k[k];
    levels_of(y->l, s, scale, y->v);
    if (y->more == 0)
        return;
    levels_of(other, s, scale, y->v + 1);
    for (int i = 0; i < s->n; i++)
        EACH_LANE
            y->l[i][k] = y->table[k] != 0 ? other[i][k] : y->l[i][k];
}

FIT void sym_fit(struct sym *y, const struct strip *s, int tries)
{
    float max[LANES], wanted[LANES];
    int   step = y->odd ? 2 : 1;

    y->in_block = 256 / s->n;
    sym_search(y, s, wanted);
    EACH_LANE {
        y->error[k] = FLT_MAX;
        y->d[k] = y->k[k] = 0.0f;
    }
    for (int b = 0; b < LANES; b += y->in_block) {
        float t = 0.0f;

        for (int k = b; k < b + y->in_block; k++)
            t = fabsf(wanted[k]) > fabsf(t) ? wanted[k] : t;
        for (int k = b; k < b + y->in_block; k++)
            max[k] = t;
    }
    for (int i = 0; i < (y->effort > 0 ? 12 : 1) * tries; i++) {
        EACH_LANE
            wanted[k] = max[k] / (float)(y->lo + step * i);
        sym_try(y, s, wanted);
        EACH_LANE
            wanted[k] = max[k] / (float)(y->hi - step * i);
        sym_try(y, s, wanted);
    }
    for (int i = 0; i < 8 && y->effort > 0; i++) { /* between those, around the best */
        float by = 1.0f + (i % 2 == 0 ? 0.004f : -0.004f) * (float)(i / 2 + 1);

        if (i % 2 == 0)
            sym_refit(y, s);
        EACH_LANE
            wanted[k] = y->d[k] * by;
        sym_try(y, s, wanted);
    }
    for (int i = 0; i < (y->effort > 0 ? 2 : 1); i++)
        sym_refit(y, s);
    sym_levels(y, s);
}

/* Of a block's lanes, from the first one: levels plus `add`, in the order of elements. */
FIT void codes_of(uint8_t *code, float (*l)[LANES], int first, int in_block, int group, int add)
{
    for (int g = 0; g < in_block; g++)
        for (int i = 0; i < group; i++)
            code[g * group + i] = (uint8_t)((int)l[i][first + g] + add);
}

/* ---- the types ---- */
static const struct levels levels_q4_0 = { -8, 7, 6.5f, 9.5f, 0.375f, 0, { 0 } };
static const struct levels levels_q5_0 = { -16, 15, 14.0f, 17.5f, 0.5f, 0, { 0 } };
static const struct levels levels_q8_0 = { -127, 127, 127.0f, 127.0f, 0.25f, 0, { 0 } };
static const struct levels levels_q3_k = { -4, 3, 3.0f, 5.0f, 0.5f, 0, { 0 } };
static const struct levels levels_q6_k = { -32, 31, 30.0f, 33.0f, 0.5f, 0, { 0 } };
static const struct levels levels_tern = { -1, 1, 0.75f, 16.0f, 0.25f, 0, { 0 } };
static const struct levels levels_nl = { 0, 0, 88.0f, 152.0f, 4.0f, 16,
    { -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113 } };
static const struct levels levels_fp4 = { 0, 0, 0, 0, 1, 15,
    { -12, -8, -6, -4, -3, -2, -1, 0, 1, 2, 3, 4, 6, 8, 12 } };

FIT void fit_q4_0(void *row, const float *x, int64_t n, const float *importance, int effort)
{
    struct quant_q4_0 *b = row;
    struct strip       s;
    float              d[LANES], l[32][LANES];

    for (int64_t at = 0, of = n / 32; at < of; at += LANES) {
        load_strip(&s, x, importance, at, of, 32, 32);
        fit_ones(d, l, &s, &levels_q4_0, effort);
        for (int k = 0; k < LANES && at + k < of; k++, b++) {
            b->d = half_of_f32(d[k]);
            for (int j = 0; j < 16; j++)
                b->qs[j] = (uint8_t)(((int)l[j][k] + 8) | ((int)l[j + 16][k] + 8) << 4);
        }
    }
}

FIT void fit_q5_0(void *row, const float *x, int64_t n, const float *importance, int effort)
{
    struct quant_q5_0 *b = row;
    struct strip       s;
    float              d[LANES], l[32][LANES];

    for (int64_t at = 0, of = n / 32; at < of; at += LANES) {
        load_strip(&s, x, importance, at, of, 32, 32);
        fit_ones(d, l, &s, &levels_q5_0, effort);
        for (int k = 0; k < LANES && at + k < of; k++, b++) {
            b->d = half_of_f32(d[k]);
            memset(b->qh, 0, sizeof b->qh);
            for (int j = 0; j < 32; j++) {
                int q = (int)l[j][k] + 16;

                b->qs[j % 16] = (uint8_t)(j < 16 ? q & 15 : b->qs[j % 16] | (q & 15) << 4);
                b->qh[j / 8] = (uint8_t)(b->qh[j / 8] | (q >> 4) << j % 8);
            }
        }
    }
}

FIT void fit_q8_0(void *row, const float *x, int64_t n, const float *importance, int effort)
{
    struct quant_q8_0 *b = row;
    struct strip       s;
    float              d[LANES], l[32][LANES];

    for (int64_t at = 0, of = n / 32; at < of; at += LANES) {
        load_strip(&s, x, importance, at, of, 32, 32);
        fit_ones(d, l, &s, &levels_q8_0, effort);
        for (int k = 0; k < LANES && at + k < of; k++, b++) {
            b->d = half_of_f32(d[k]);
            for (int j = 0; j < 32; j++)
                b->qs[j] = (int8_t)l[j][k];
        }
    }
}

/* A level's place in its table. */
FIT unsigned code_of(const struct levels *v, float level)
{
    unsigned c = 0;

    while (v->value[c] != level)
        c++;
    return c;
}

FIT void fit_iq4_nl(void *row, const float *x, int64_t n, const float *importance, int effort)
{
    struct quant_iq4_nl *b = row;
    struct strip         s;
    float                d[LANES], l[32][LANES];

    for (int64_t at = 0, of = n / 32; at < of; at += LANES) {
        load_strip(&s, x, importance, at, of, 32, 32);
        fit_ones(d, l, &s, &levels_nl, effort);
        for (int k = 0; k < LANES && at + k < of; k++, b++) {
            b->d = half_of_f32(d[k]);
            for (int j = 0; j < 16; j++)
                b->qs[j] = (uint8_t)(code_of(&levels_nl, l[j][k]) | code_of(&levels_nl, l[j + 16][k]) << 4);
        }
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
    struct strip        s;
    float               l[32][LANES];

    (void)effort; /* all scales that come into question are tried */
    for (int64_t at = 0, of = n / 32; at < of; at += LANES) {
        float max[LANES] = { 0 }, scale[LANES], error[LANES], least[LANES], best[LANES] = { 0 };
        int   up[LANES];

        load_strip(&s, x, importance, at, of, 32, 32);
        for (int i = 0; i < 32; i++)
            EACH_LANE
                max[k] = fabsf(s.x[i][k]) > max[k] ? fabsf(s.x[i][k]) : max[k];
        EACH_LANE {
            max[k] = frexpf(max[k], &up[k]);
            least[k] = FLT_MAX;
            for (int i = 0; i < 32; i++) /* exact: no square below is too small or too large */
                s.x[i][k] = max[k] != 0.0f ? ldexpf(s.x[i][k], -up[k]) : 0.0f;
        }
        for (int exp = -5; exp <= -1; exp++) {
            EACH_LANE
                scale[k] = ldexpf(1.0f, exp);
            errors_of(error, &s, scale, &levels_fp4);
            EACH_LANE {
                bool better = error[k] < least[k] && max[k] != 0.0f && exp + up[k] + 128 >= 0 && exp + up[k] + 128 <= 254;

                best[k] = better ? scale[k] : best[k];
                least[k] = better ? error[k] : least[k];
            }
        }
        levels_of(l, &s, best, &levels_fp4);
        for (int k = 0; k < LANES && at + k < of; k++, b++) {
            b->e = (uint8_t)(best[k] > 0.0f ? ilogbf(best[k]) + up[k] + 128 : 0);
            for (int j = 0; j < 16; j++)
                b->qs[j] = (uint8_t)(code_fp4(l[j][k]) | code_fp4(l[j + 16][k]) << 4);
        }
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
    struct strip        s;
    float               l[16][LANES];

    (void)effort; /* all scales that come into question are tried */
    for (int64_t at = 0, of = n / 64; at < of; at += LANES / 4) {
        float scale[LANES], error[LANES], least[LANES], best[LANES] = { 0 };
        int   mid[LANES], code[LANES] = { 0 };

        load_strip(&s, x, importance, at, of, 64, 16);
        EACH_LANE {
            float max = 0.0f;

            for (int i = 0; i < 16; i++)
                max = fabsf(s.x[i][k]) > max ? fabsf(s.x[i][k]) : max;
            least[k] = max > 0.0f ? FLT_MAX : 0.0f;
            mid[k] = 1;
            while (mid[k] < 126 && half_e4m3(mid[k]) * 12.0f < max)
                mid[k]++;
        }
        for (int a = -10; a <= 5; a++) {
            EACH_LANE
                scale[k] = mid[k] + a >= 1 && mid[k] + a <= 126 ? half_e4m3(mid[k] + a) : 0.0f;
            errors_of(error, &s, scale, &levels_fp4);
            EACH_LANE {
                bool better = scale[k] > 0.0f && error[k] < least[k];

                code[k] = better ? mid[k] + a : code[k];
                best[k] = better ? scale[k] : best[k];
                least[k] = better ? error[k] : least[k];
            }
        }
        levels_of(l, &s, best, &levels_fp4);
        for (int k = 0; k < LANES && at + k / 4 < of; k++) {
            b[k / 4].d[k % 4] = (uint8_t)code[k];
            for (int j = 0; j < 8; j++)
                b[k / 4].qs[8 * (k % 4) + j] = (uint8_t)(code_fp4(l[j][k]) | code_fp4(l[j + 8][k]) << 4);
        }
        b += LANES / 4;
    }
}

FIT void fit_tq2_0(void *row, const float *x, int64_t n, const float *importance, int effort)
{
    struct quant_tq2_0 *b = row;
    struct strip        s;
    float               d[LANES], l[256][LANES];
    uint8_t             code[256];

    for (int64_t at = 0, of = n / 256; at < of; at += LANES) {
        load_strip(&s, x, importance, at, of, 256, 256);
        fit_ones(d, l, &s, &levels_tern, effort);
        for (int k = 0; k < LANES && at + k < of; k++, b++) {
            b->d = half_of_f32(d[k]);
            memset(b->qs, 0, sizeof b->qs);
            codes_of(code, l, k, 1, 256, 1);
            for (int j = 0; j < 8; j++)
                for (int i = 0; i < 32; i++)
                    b->qs[j / 4 * 32 + i] = (uint8_t)(b->qs[j / 4 * 32 + i] | code[32 * j + i] << j % 4 * 2);
        }
    }
}

/* n digits, m apart, as a fraction in base 3 of 5 digits, scaled to 256 and rounded up. */
FIT uint8_t ternary_byte(const float (*l)[LANES], int lane, int m, int n)
{
    int v = 0;

    for (int i = 0; i < 5; i++)
        v = 3 * v + (i < n ? (int)l[i * m][lane] + 1 : 0);
    return (uint8_t)((v * 256 + 242) / 243);
}

FIT void fit_tq1_0(void *row, const float *x, int64_t n, const float *importance, int effort)
{
    struct quant_tq1_0 *b = row;
    struct strip        s;
    float               d[LANES], l[256][LANES];

    for (int64_t at = 0, of = n / 256; at < of; at += LANES) {
        load_strip(&s, x, importance, at, of, 256, 256);
        fit_ones(d, l, &s, &levels_tern, effort);
        for (int k = 0; k < LANES && at + k < of; k++, b++) {
            const float (*t)[LANES] = (const float (*)[LANES])l;

            b->d = half_of_f32(d[k]);
            for (int j = 0; j < 32; j++)
                b->qs[j] = ternary_byte(t + j, k, 32, 5);
            for (int j = 0; j < 16; j++)
                b->qs[32 + j] = ternary_byte(t + 160 + j, k, 16, 5);
            for (int j = 0; j < 4; j++)
                b->qh[j] = ternary_byte(t + 240 + j, k, 4, 4);
        }
    }
}

FIT void fit_q3_k(void *row, const float *x, int64_t n, const float *importance, int effort)
{
    struct quant_q3_k *b = row;
    struct strip       s;
    struct sym         y = { .lo = -32, .hi = 31, .effort = effort, .v = &levels_q3_k };
    uint8_t            code[256];

    for (int64_t at = 0; at < n / 256; at++, b++) {
        load_strip(&s, x, importance, at, at + 1, 256, 16);
        sym_fit(&y, &s, 1);
        memset(b, 0, sizeof *b);
        b->d = half_of_f32(y.d[0]);
        for (int g = 0; g < 16; g++) {
            int k = (int)y.k[g] + 32;

            b->sc[g % 8] = (uint8_t)(b->sc[g % 8] | (k & 15) << g / 8 * 4);
            b->sc[8 + g % 4] = (uint8_t)(b->sc[8 + g % 4] | (k >> 4) << g / 4 * 2);
        }
        codes_of(code, y.l, 0, 16, 16, 4);
        for (int j = 0; j < 8; j++)
            for (int i = 0; i < 32; i++) {
                uint8_t q = code[32 * j + i], *low = &b->qs[j / 4 * 32 + i];

                *low = (uint8_t)(*low | (q & 3) << j % 4 * 2);
                b->hmask[i] = (uint8_t)(b->hmask[i] | (q >> 2) << j);
            }
    }
}

FIT void fit_q6_k(void *row, const float *x, int64_t n, const float *importance, int effort)
{
    struct quant_q6_k *b = row;
    struct strip       s;
    struct sym         y = { .lo = -128, .hi = 127, .effort = effort, .v = &levels_q6_k };
    uint8_t            code[256];

    for (int64_t at = 0; at < n / 256; at++, b++) {
        load_strip(&s, x, importance, at, at + 1, 256, 16);
        sym_fit(&y, &s, 2);
        memset(b, 0, sizeof *b);
        b->d = half_of_f32(y.d[0]);
        for (int g = 0; g < 16; g++)
            b->sc[g] = (int8_t)y.k[g];
        codes_of(code, y.l, 0, 16, 16, 32);
        for (int j = 0; j < 8; j++)
            for (int i = 0; i < 32; i++) {
                uint8_t q = code[32 * j + i], *low = &b->ql[j / 4 * 64 + j % 2 * 32 + i], *high = &b->qh[j / 4 * 32 + i];

                *low = (uint8_t)(*low | (q & 15) << j % 4 / 2 * 4);
                *high = (uint8_t)(*high | (q >> 4) << j % 4 * 2);
            }
    }
}

FIT void fit_iq4_xs(void *row, const float *x, int64_t n, const float *importance, int effort)
{
    struct quant_iq4_xs *b = row;
    struct strip         s;
    struct sym           y = { .lo = -32, .hi = 31, .effort = effort, .v = &levels_nl };

    for (int64_t at = 0, of = n / 256; at < of; at += 2) {
        load_strip(&s, x, importance, at, of, 256, 32);
        sym_fit(&y, &s, 5);
        for (int h = 0; h < LANES && at + h / 8 < of; h += 8, b++) {
            memset(b, 0, sizeof *b);
            b->d = half_of_f32(y.d[h]);
            for (int g = 0; g < 8; g++) {
                int k = (int)y.k[h + g] + 32;

                b->sl[g / 2] = (uint8_t)(b->sl[g / 2] | (k & 15) << g % 2 * 4);
                b->sh = (uint16_t)(b->sh | (k >> 4) << 2 * g);
                for (int j = 0; j < 16; j++)
                    b->qs[16 * g + j] =
                        (uint8_t)(code_of(y.v, y.l[j][h + g]) | code_of(y.v, y.l[j + 16][h + g]) << 4);
            }
        }
    }
}
