/* SPDX-License-Identifier: Apache-2.0 */
/* fit_tables_body.h - encoders of types whose groups choose between two tables of levels, of which the second is the first
 * plus a constant: body of fit_body.h, after fit_levels_body.h. And those of q1_0 and q2_0, whose few levels are uneven.
 *
 * The scale of a group can have either sign, and the tables are not symmetric, so a group has four forms to choose from.
 */
static const struct levels levels_iq2[2] = { { 0, 0, 9.0f, 54.0f, 2.5f, 4, { -31, -13, 1, 17 } },
                                             { 0, 0, 9.0f, 54.0f, 2.5f, 4, { -26, -8, 6, 22 } } };
static const struct levels levels_iq3[2] = { { 0, 0, 32.0f, 96.0f, 4.0f, 8, { -63, -40, -23, -10, 1, 13, 28, 47 } },
                                             { 0, 0, 32.0f, 96.0f, 4.0f, 8, { -59, -36, -19, -6, 5, 17, 32, 51 } } };
static const struct levels levels_iq4[2] = {
    { 0, 0, 76.0f, 172.0f, 6.0f, 16, { -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113 } },
    { 0, 0, 76.0f, 172.0f, 6.0f, 16, { -123, -100, -79, -61, -45, -31, -18, -6, 5, 17, 29, 42, 57, 73, 93, 117 } }
};
static const struct levels levels_q1_0 = { 0, 0, 1, 1, 1, 2, { -1, 1 } };
static const struct levels levels_q2_0 = { -1, 2, 1.0f, 16.0f, 0.25f, 0, { 0 } };

/* The two tables of a type of which the levels are not whole numbers, or many: value[i], and those plus `more`. */
FIT void two_tables(struct levels v[2], float from, float to, float step, int n, const float *value, float more)
{
    for (int t = 0; t < 2; t++) {
        v[t] = (struct levels){ .from = from, .to = to, .step = step, .n = n };
        for (int i = 0; i < n; i++)
            v[t].value[i] = value[i] + (t > 0 ? more : 0.0f);
    }
}

/* Of a block's lanes, from the first one: codes, in the order of elements. */
FIT void table_codes(uint8_t *code, const struct sym *y, int first, int group)
{
    for (int g = 0; g < y->in_block; g++)
        for (int i = 0; i < group; i++)
            code[g * group + i] = (uint8_t)code_of(y->v + y->table[first + g], y->l[i][first + g]);
}

/* Bit g: group g, of 16, has the second table. */
FIT uint16_t table_bits(const struct sym *y)
{
    unsigned bits = 0;

    for (int g = 0; g < 16; g++)
        bits |= (unsigned)y->table[g] << g;
    return (uint16_t)bits;
}

/* 16 scales of 6 bits, plus 32: nibbles, and pairs of high bits. */
FIT void pack_scales_6(uint8_t sl[8], uint8_t sh[4], const float k[16])
{
    memset(sl, 0, 8);
    memset(sh, 0, 4);
    for (int g = 0; g < 16; g++) {
        int s = (int)k[g] + 32;

        sl[g / 2] = (uint8_t)(sl[g / 2] | (s & 15) << g % 2 * 4);
        sh[g / 4] = (uint8_t)(sh[g / 4] | (s >> 4) << g % 4 * 2);
    }
}

FIT void fit_iq2_k(void *row, const float *x, int64_t n, const float *importance, int effort)
{
    struct quant_iq2_k *b = row;
    struct strip        s;
    struct sym          y = { .lo = -8, .hi = 7, .effort = effort, .v = levels_iq2, .more = 1 };
    uint8_t             code[256];

    for (int64_t at = 0; at < n / 256; at++, b++) {
        load_strip(&s, x, importance, at, at + 1, 256, 16);
        sym_fit(&y, &s, 3);
        memset(b, 0, sizeof *b);
        b->d = half_of_f32(y.d[0]);
        b->extra = table_bits(&y);
        for (int g = 0; g < 16; g++)
            b->sc[g / 2] = (uint8_t)(b->sc[g / 2] | ((int)y.k[g] + 8) << g % 2 * 4);
        table_codes(code, &y, 0, 16);
        for (int j = 0; j < 8; j++)
            for (int i = 0; i < 32; i++)
                b->qs[j / 4 * 32 + i] = (uint8_t)(b->qs[j / 4 * 32 + i] | code[32 * j + i] << j % 4 * 2);
    }
}

FIT void fit_iq3_k(void *row, const float *x, int64_t n, const float *importance, int effort)
{
    struct quant_iq3_k *b = row;
    struct strip        s;
    struct sym          y = { .lo = -31, .hi = 31, .odd = true, .effort = effort, .v = levels_iq3, .more = 1 };
    uint8_t             code[256];

    for (int64_t at = 0; at < n / 256; at++, b++) {
        load_strip(&s, x, importance, at, at + 1, 256, 16);
        sym_fit(&y, &s, 3);
        memset(b, 0, sizeof *b);
        b->d = half_of_f32(y.d[0]);
        b->extra = table_bits(&y);
        for (int g = 0; g < 16; g++) {
            int k = (int)y.k[g];

            b->sl[g / 2] = (uint8_t)(b->sl[g / 2] | ((k < 0 ? -k : k) - 1) / 2 << g % 2 * 4);
            b->sh = (uint16_t)(b->sh | (k < 0 ? 1u : 0u) << g);
        }
        table_codes(code, &y, 0, 16);
        for (int j = 0; j < 8; j++)
            for (int i = 0; i < 32; i++) {
                uint8_t q = code[32 * j + i], *low = &b->qs[j / 4 * 32 + i];

                *low = (uint8_t)(*low | (q & 3) << j % 4 * 2);
                b->qh[i] = (uint8_t)(b->qh[i] | (q >> 2) << j);
            }
    }
}

FIT void fit_iq4_k(void *row, const float *x, int64_t n, const float *importance, int effort)
{
    struct quant_iq4_k *b = row;
    struct strip        s;
    struct sym          y = { .lo = -32, .hi = 31, .effort = effort, .v = levels_iq4, .more = 1 };
    uint8_t             code[256];

    for (int64_t at = 0; at < n / 256; at++, b++) {
        load_strip(&s, x, importance, at, at + 1, 256, 16);
        sym_fit(&y, &s, 3);
        b->d = half_of_f32(y.d[0]);
        b->extra = table_bits(&y);
        pack_scales_6(b->sl, b->sh, y.k);
        table_codes(code, &y, 0, 16);
        for (int g = 0; g < 8; g++)
            for (int j = 0; j < 16; j++)
                b->qs[16 * g + j] = (uint8_t)(code[32 * g + j] | code[32 * g + j + 16] << 4);
    }
}

FIT void fit_iq5_k(void *row, const float *x, int64_t n, const float *importance, int effort)
{
    struct quant_iq5_k *b = row;
    struct strip        s;
    struct levels       v[2];
    struct sym          y = { .lo = -32, .hi = 31, .effort = effort, .v = v, .more = 1 };
    float               value[32];
    uint8_t             code[256];

    for (int i = 0; i < 32; i++)
        value[i] = quant_iq5nl_values[i];
    two_tables(v, 100.0f, 150.0f, 4.0f, 32, value, 2.0f);
    for (int64_t at = 0; at < n / 256; at++, b++) {
        load_strip(&s, x, importance, at, at + 1, 256, 16);
        sym_fit(&y, &s, 2);
        memset(b, 0, sizeof *b);
        b->d = half_of_f32(y.d[0]);
        b->extra = table_bits(&y);
        pack_scales_6(b->sl, b->sh, y.k);
        table_codes(code, &y, 0, 16);
        for (int j = 0; j < 8; j++)
            for (int i = 0; i < 32; i++) {
                uint8_t q = code[32 * j + i], *low = &b->qs[j / 2 * 32 + i];

                *low = (uint8_t)(*low | (q & 15) << j % 2 * 4);
                b->qh[i] = (uint8_t)(b->qh[i] | (q >> 4) << j);
            }
    }
}

FIT void fit_iq6_k(void *row, const float *x, int64_t n, const float *importance, int effort)
{
    struct quant_iq6_k *b = row;
    struct strip        s;
    struct levels       v[2];
    struct sym          y = { .lo = -128, .hi = 127, .effort = effort, .v = v, .more = 1 };
    float               value[64];
    uint8_t             code[256];

    for (int i = 0; i < 64; i++)
        value[i] = quant_iq6k_value(i);
    two_tables(v, 110.0f, 150.0f, 2.5f, 64, value, 1.0f);
    for (int64_t at = 0; at < n / 256; at++, b++) {
        load_strip(&s, x, importance, at, at + 1, 256, 16);
        sym_fit(&y, &s, 2);
        memset(b, 0, sizeof *b);
        b->d = half_of_f32(y.d[0]);
        b->extra = table_bits(&y);
        for (int g = 0; g < 16; g++)
            b->sc[g] = (int8_t)y.k[g];
        table_codes(code, &y, 0, 16);
        for (int j = 0; j < 8; j++)
            for (int i = 0; i < 32; i++) {
                uint8_t q = code[32 * j + i], *low = &b->qs[j / 2 * 32 + i], *high = &b->qh[j / 4 * 32 + i];

                *low = (uint8_t)(*low | (q & 15) << j % 2 * 4);
                *high = (uint8_t)(*high | (q >> 4) << j % 4 * 2);
            }
    }
}

/* ---- iq4_ks: the scale of the scales is the row's ---- */

/* The scales that suit each group alone, with either table, wait in the space of the block's codes. */
FIT void keep_scales(struct quant_iq4_ks *b, const struct sym *y, int first)
{
    for (int g = 0; g < 8; g++)
        for (int t = 0; t < 2; t++)
            memcpy(b->qs + 4 * (2 * g + t), &y->scale[t][first + g], 4);
}

FIT void kept_scales(struct sym *y, const struct quant_iq4_ks *b, int first)
{
    for (int g = 0; g < 8; g++)
        for (int t = 0; t < 2; t++)
            memcpy(&y->scale[t][first + g], b->qs + 4 * (2 * g + t), 4);
}

/* By how much the weights of a block were divided when it was loaded. */
FIT double weight_of(const float *importance, int64_t block)
{
    float most = 0.0f;

    for (int j = 0; importance != NULL && j < 256; j++)
        most = importance[block * 256 + j] > most ? importance[block * 256 + j] : most;
    return most > 0.0f ? (double)most : importance != NULL ? 1e-30 : 1;
}

/* A row as it is fitted: d, and its error. */
struct row_fit {
    const float         *x, *importance;
    struct quant_iq4_ks *block;
    int64_t              blocks;
    struct sym           y;
    float                d;
    double               error;
};

/* The two blocks from `at` on, with the best whole numbers for d. */
FIT void row_strip(struct row_fit *f, struct strip *s, int64_t at, float d, struct sym_tried *t)
{
    float all[LANES];

    load_strip(s, f->x, f->importance, at, f->blocks, 256, 32);
    memset(f->y.scale, 0, sizeof f->y.scale);
    for (int h = 0; h < LANES && at + h / 8 < f->blocks; h += 8)
        kept_scales(&f->y, f->block + at + h / 8, h);
    EACH_LANE
        all[k] = d;
    sym_choose(t, &f->y, s, all);
    memcpy(f->y.d, all, sizeof all);
    memcpy(f->y.k, t->k, sizeof t->k);
    memcpy(f->y.table, t->table, sizeof t->table);
}

/* Keeps d if it is better; returns what least squares gives then. */
FIT float row_try(struct row_fit *f, float d)
{
    struct strip     s;
    struct sym_tried t;
    double           error = 0, xx = 0, ll = 0;

    for (int64_t at = 0; at < f->blocks; at += 2) {
        float sx[LANES], sl[LANES];

        row_strip(f, &s, at, d, &t);
        sym_sums(sx, sl, &f->y, &s);
        for (int h = 0; h < LANES && at + h / 8 < f->blocks; h += 8) {
            double w = weight_of(f->importance, at + h / 8);

            for (int k = h; k < h + 8; k++) {
                error += w * (double)t.least[k];
                xx += w * (double)sx[k];
                ll += w * (double)sl[k];
            }
        }
    }
    if (error < f->error) {
        f->error = error;
        f->d = d;
    }
    return ll > 0 ? (float)(xx / ll) : d;
}

FIT void fit_iq4_ks(void *row, const float *x, int64_t n, const float *importance, int effort)
{
    struct row_fit f = { .x = x,
                         .importance = importance,
                         .block = (void *)((unsigned char *)row + sizeof(float)),
                         .blocks = n / 256,
                         .y = { .lo = -127, .hi = 127, .odd = true, .effort = effort, .v = levels_iq4, .more = 1, .in_block = 8 },
                         .error = DBL_MAX };
    struct strip     s;
    struct sym_tried t;
    float            best[LANES], max = 0.0f;
    uint8_t          code[256];

    for (int64_t at = 0; at < f.blocks; at += 2) {
        load_strip(&s, x, importance, at, f.blocks, 256, 32);
        sym_search(&f.y, &s, best);
        for (int h = 0; h < LANES && at + h / 8 < f.blocks; h += 8) {
            keep_scales(f.block + at + h / 8, &f.y, h);
            for (int k = h; k < h + 8; k++)
                max = fabsf(best[k]) > max ? fabsf(best[k]) : max;
        }
    }
    for (int i = 0; i < (effort > 0 ? 16 : 3); i++) {
        float d = max / (float)(127 - 2 * i);

        for (int j = 0; j < 2; j++)
            d = row_try(&f, d);
    }
    memcpy(row, &f.d, sizeof f.d);
    for (int64_t at = 0; at < f.blocks; at += 2) {
        row_strip(&f, &s, at, f.d, &t);
        sym_levels(&f.y, &s);
        for (int h = 0; h < LANES && at + h / 8 < f.blocks; h += 8) {
            struct quant_iq4_ks *b = f.block + at + h / 8;

            table_codes(code, &f.y, h, 32);
            for (int g = 0; g < 8; g++) {
                b->sc[g] = (uint8_t)(((int)f.y.k[h + g] + 127) | f.y.table[h + g]);
                for (int j = 0; j < 16; j++)
                    b->qs[16 * g + j] = (uint8_t)(code[32 * g + j] | code[32 * g + j + 16] << 4);
            }
        }
    }
}

/* ---- q1_0, q2_0: one scale, few levels ---- */

FIT void fit_q1_0(void *row, const float *x, int64_t n, const float *importance, int effort)
{
    struct quant_q1_0 *b = row;
    struct strip       s;
    float              d[LANES], l[128][LANES];

    for (int64_t at = 0, of = n / 128; at < of; at += LANES) {
        load_strip(&s, x, importance, at, of, 128, 128);
        fit_ones(d, l, &s, &levels_q1_0, effort);
        for (int k = 0; k < LANES && at + k < of; k++, b++) {
            b->d = half_of_f32(d[k]);
            memset(b->qs, 0, sizeof b->qs);
            for (int j = 0; j < 128; j++)
                b->qs[j / 8] = (uint8_t)(b->qs[j / 8] | (l[j][k] > 0.0f ? 1 : 0) << j % 8);
        }
    }
}

FIT void fit_q2_0(void *row, const float *x, int64_t n, const float *importance, int effort)
{
    struct quant_q2_0 *b = row;
    struct strip       s;
    float              d[LANES], l[64][LANES];

    for (int64_t at = 0, of = n / 64; at < of; at += LANES) {
        load_strip(&s, x, importance, at, of, 64, 64);
        fit_ones(d, l, &s, &levels_q2_0, effort);
        for (int k = 0; k < LANES && at + k < of; k++, b++) {
            b->d = half_of_f32(d[k]);
            memset(b->qs, 0, sizeof b->qs);
            for (int j = 0; j < 64; j++)
                b->qs[j / 4] = (uint8_t)(b->qs[j / 4] | ((int)l[j][k] + 1) << j % 4 * 2);
        }
    }
}
