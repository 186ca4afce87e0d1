/* SPDX-License-Identifier: Apache-2.0 */
/* fit_book_body.h - encoders of types with a code book: body of fit_body.h, after fit_levels_body.h.
 *
 * A unit is 8 elements with one entry of a book of octets, or two of a book of quads. With scale s, the
 * error of an entry g is that of zeros plus s s A - 2 s B, where A = sum w g g and B = sum w x g. A and B
 * do not depend on s, so they are computed once for each entry. The best entries for many scales make a
 * short list, and every later choice of a scale looks only at that list.
 * Entries of magnitudes have separate signs, so B is computed from |x|. If a unit needs an even number
 * of minus signs and has an odd one, one element gets the wrong sign; that costs 2 w |x| g, and the
 * element for which this is least is taken.
 */
enum { LIST_MAX = 16, SCANS = 4, BOOK_MAX = 2048 };

enum book_kind { BOOK_OCTETS, BOOK_QUADS, BOOK_TERNARY };

struct book {
    enum book_kind kind;
    int            n, dim;   /* entries, elements of one */
    bool           even;     /* an even number of minus signs in a unit */
    int            group;    /* units that share a scale */
    bool           one_shift; /* ternary: the same for all of a group */
    int            most;     /* scales are 2 k + 1 times the block's, k <= most */
    float          lo, hi;   /* scales tried: times max / largest value */
    float          top;      /* largest value */
    float          unit;     /* a block's f16 is for values that much smaller */
    float          value[8][BOOK_MAX];
};

struct unit {
    int      n;
    float    a[LIST_MAX], b[LIST_MAX];
    uint32_t code[LIST_MAX]; /* octets: entry; quads: first | second << 9; ternary: entry | minus << 11 */
};

struct costs {
    float a[2][BOOK_MAX], b[2][BOOK_MAX]; /* quads: first, second; ternary: shift up, down */
    float f[2][BOOK_MAX];                 /* b with one sign wrong */
};

struct pick {
    float    a, b, cost;
    uint32_t code;
};

struct book_fit {
    const struct book *book;
    struct unit        units[32];
    float              scale[16];
    float              d, error;
    int                k[16];
    uint32_t           code[32];
};

static const float book_iq2[3] = { 8, 25, 43 };
static const float book_iq3xxs[8] = { 4, 12, 20, 28, 36, 44, 52, 62 };
static const float book_iq3s[8] = { 1, 3, 5, 7, 9, 11, 13, 15 };

FIT void book_octets(struct book *k, const uint16_t *grid, int n)
{
    k->kind = BOOK_OCTETS;
    k->n = n;
    k->dim = 8;
    k->lo = 0.6f;
    k->hi = 1.5f;
    k->top = 43.0f;
    k->unit = 8.0f;
    for (int e = 0; e < n; e++)
        for (int i = 0; i < 8; i++)
            k->value[i][e] = book_iq2[grid[e] >> 2 * i & 3];
}

FIT void book_quads(struct book *k, const uint16_t *grid, int n, const float magnitude[8])
{
    k->kind = BOOK_QUADS;
    k->n = n;
    k->dim = 4;
    k->lo = 0.7f;
    k->hi = 1.35f;
    k->top = magnitude[7];
    k->unit = k->even ? 4.0f : 1.0f;
    for (int e = 0; e < n; e++)
        for (int i = 0; i < 4; i++)
            k->value[i][e] = magnitude[grid[e] >> 4 * i & 7];
}

FIT void book_ternary(struct book *k)
{
    k->kind = BOOK_TERNARY;
    k->n = 2048;
    k->dim = 8;
    k->lo = 0.25f;
    k->hi = 1.2f;
    k->top = 1.125f;
    k->unit = 1.0f;
    for (int e = 0; e < k->n; e++)
        for (int i = 0; i < 8; i++)
            k->value[i][e] = (float)((int)(quant_iq1s_grid[e] >> 2 * i & 3) - 1);
}

FIT void costs_magnitudes(float *restrict a, float *restrict b, float *restrict f, const struct book *k,
                          const float *x, const float *w)
{
    float wx[8];

    for (int i = 0; i < k->dim; i++)
        wx[i] = w[i] * fabsf(x[i]);
    for (int e = 0; e < k->n; e++)
        a[e] = b[e] = 0.0f;
    for (int i = 0; i < k->dim; i++) {
        const float *v = k->value[i];

        for (int e = 0; e < k->n; e++) {
            a[e] += w[i] * v[e] * v[e];
            b[e] += wx[i] * v[e];
        }
    }
    if (!k->even)
        return;
    for (int e = 0; e < k->n; e++)
        f[e] = wx[0] * k->value[0][e];
    for (int i = 1; i < k->dim; i++)
        for (int e = 0; e < k->n; e++) {
            float t = wx[i] * k->value[i][e];

            f[e] = t < f[e] ? t : f[e];
        }
    for (int e = 0; e < k->n; e++)
        f[e] = b[e] - 2.0f * f[e];
}

FIT void costs_ternary(struct costs *c, const struct book *k, const float *x, const float *w)
{
    float *restrict aa = c->f[0], *restrict a1 = c->f[1], *restrict b = c->b[0];
    float sum_w = 0.0f, sum_x = 0.0f;

    for (int e = 0; e < k->n; e++)
        aa[e] = a1[e] = b[e] = 0.0f;
    for (int i = 0; i < 8; i++) {
        const float *v = k->value[i];
        float        wx = w[i] * x[i];

        sum_w += w[i];
        sum_x += wx;
        for (int e = 0; e < k->n; e++) {
            float t = w[i] * v[e];

            a1[e] += t;
            aa[e] += t * v[e];
            b[e] += wx * v[e];
        }
    }
    for (int e = 0; e < k->n; e++) {
        c->a[0][e] = aa[e] + 0.25f * a1[e] + sum_w * 0.015625f;
        c->a[1][e] = aa[e] - 0.25f * a1[e] + sum_w * 0.015625f;
        c->b[1][e] = b[e] - 0.125f * sum_x;
        c->b[0][e] = b[e] + 0.125f * sum_x;
    }
}

/* The entry with the least s s a - 2 s b: the same for any width of vectors. */
FIT struct pick pick_entry(const float *a, const float *b, int n, float s)
{
    float       best[16], ss = s * s, two = 2.0f * s;
    int32_t     at[16];
    struct pick p;

    for (int j = 0; j < 16; j++) {
        best[j] = ss * a[j] - two * b[j];
        at[j] = j;
    }
    for (int e = 16; e < n; e += 16)
        for (int j = 0; j < 16; j++) {
            float v = ss * a[e + j] - two * b[e + j];

            at[j] = v < best[j] ? e + j : at[j];
            best[j] = v < best[j] ? v : best[j];
        }
    int least = 0;

    for (int j = 1; j < 16; j++)
        if (best[j] < best[least])
            least = j;
    p.cost = best[least];
    p.code = (uint32_t)at[least];
    p.a = a[p.code];
    p.b = b[p.code];
    return p;
}

FIT struct pick pick_two(struct pick p, struct pick q)
{
    return (struct pick){ p.a + q.a, p.b + q.b, p.cost + q.cost, p.code | q.code << 9 };
}

/* The best of a unit; odd: a sign has to be wrong. shift: ternary, -1 for any. */
FIT struct pick pick_unit(const struct costs *c, const struct book *k, bool odd, int shift, float s)
{
    struct pick p, q;

    if (k->kind == BOOK_OCTETS)
        return pick_entry(c->a[0], odd ? c->f[0] : c->b[0], k->n, s);
    if (k->kind == BOOK_TERNARY) {
        p = pick_entry(c->a[shift == 1], c->b[shift == 1], k->n, s);
        p.code |= shift == 1 ? 1u << 11 : 0;
        if (shift >= 0)
            return p;
        q = pick_entry(c->a[1], c->b[1], k->n, s);
        q.code |= 1u << 11;
        return q.cost < p.cost ? q : p;
    }
    if (!odd)
        return pick_two(pick_entry(c->a[0], c->b[0], k->n, s), pick_entry(c->a[1], c->b[1], k->n, s));
    p = pick_two(pick_entry(c->a[0], c->f[0], k->n, s), pick_entry(c->a[1], c->b[1], k->n, s));
    q = pick_two(pick_entry(c->a[0], c->b[0], k->n, s), pick_entry(c->a[1], c->f[1], k->n, s));
    q.code |= 1u << 18;
    return q.cost < p.cost ? q : p;
}

FIT bool odd_signs(const float *x)
{
    bool odd = false;

    for (int i = 0; i < 8; i++)
        odd ^= x[i] < 0.0f;
    return odd;
}

FIT void list_add(struct unit *u, struct pick p)
{
    int i = 0;

    while (i < u->n && u->code[i] != p.code)
        i++;
    if (i == LIST_MAX || i < u->n)
        return;
    u->code[i] = p.code;
    u->a[i] = p.a;
    u->b[i] = p.b;
    u->n++;
}

/* Sums of a group with scale s, each unit's best of its list. */
FIT struct pick pick_lists(const struct unit *u, int n, float s, uint32_t *code)
{
    struct pick sum = { 0, 0, 0, 0 };

    for (int i = 0; i < n; i++, u++) {
        float least = FLT_MAX;
        int   at = 0;

        for (int j = 0; j < u->n; j++) {
            float v = s * s * u->a[j] - 2.0f * s * u->b[j];

            if (v < least) {
                least = v;
                at = j;
            }
        }
        sum.a += u->a[at];
        sum.b += u->b[at];
        sum.cost += least;
        if (code != NULL)
            code[i] = u->code[at];
    }
    return sum;
}

/* The lists of a group for some scales over the whole range; returns its best scale, the gain in *gain. */
FIT float book_group(struct unit *u, const struct book *k, const float *x, const float *w, int shift, int scans, float *gain)
{
    struct costs c;
    float        max = fabsf(max_of(x, 8 * k->group)), best = 0.0f;

    *gain = 0.0f;
    for (int i = 0; i < k->group; i++, x += 8, w += 8) {
        bool odd = k->even && odd_signs(x);

        u[i].n = 0;
        if (k->kind == BOOK_TERNARY) {
            costs_ternary(&c, k, x, w);
        } else {
            costs_magnitudes(c.a[0], c.b[0], c.f[0], k, x, w);
            if (k->kind == BOOK_QUADS)
                costs_magnitudes(c.a[1], c.b[1], c.f[1], k, x + 4, w + 4);
        }
        for (int j = 0; j < scans; j++) {
            float at = k->lo + (k->hi - k->lo) * (float)j / (float)(scans - 1);

            list_add(&u[i], pick_unit(&c, k, odd, shift, at * max / k->top));
        }
    }
    for (int j = 0; j < 48 && max > 0.0f; j++) {
        float       at = k->lo + (k->hi - k->lo) * (float)j / 47;
        struct pick p = pick_lists(u, k->group, at * max / k->top, NULL);
        float       score = p.a > 0.0f && p.b > 0.0f ? p.b * (p.b / p.a) : 0.0f;

        if (score > *gain) {
            *gain = score;
            best = p.b / p.a;
        }
    }
    return best;
}

FIT void book_try(struct book_fit *f, float d)
{
    const struct book *k = f->book;
    struct book_fit   *s = f;
    uint32_t           code[32], t[4];
    int                at[16];
    float              error = 0.0f;

    d = to_f16(d * k->unit) / k->unit;
    for (int g = 0; g < 32 / k->group; g++) {
        float near = d > 0.0f ? (s->scale[g] / d - 1.0f) * 0.5f : 0.0f, least = FLT_MAX;
        int   mid = encode_round(near, 0.0f, (float)k->most);

        for (int i = mid - 1; i <= mid + 1; i++) {
            if (i < 0 || i > k->most)
                continue;
            struct pick p = pick_lists(s->units + g * k->group, k->group, d * (float)(2 * i + 1), t);

            if (p.cost < least) {
                least = p.cost;
                at[g] = i;
                memcpy(code + g * k->group, t, (size_t)k->group * sizeof *t);
            }
        }
        error += least;
    }
    if (error < s->error) {
        s->error = error;
        s->d = d;
        memcpy(s->k, at, sizeof at);
        memcpy(s->code, code, sizeof code);
    }
}

/* Least squares for the f16, scales and entries given. */
FIT void book_refit(struct book_fit *f)
{
    const struct book *k = f->book;
    float              a = 0.0f, b = 0.0f;

    for (int i = 0; i < 32; i++) {
        const struct unit *u = &f->units[i];
        float              m = (float)(2 * f->k[i / k->group] + 1);
        int                j = 0;

        while (u->code[j] != f->code[i])
            j++;
        a += m * m * u->a[j];
        b += m * u->b[j];
    }
    if (a > 0.0f && b > 0.0f)
        book_try(f, b / a);
}

FIT void book_fit(struct book_fit *f, const float *x, const float *w, int effort)
{
    int                tries = effort > 0 ? 32 : 8, scans = effort > 0 ? LIST_MAX : SCANS;
    const struct book *k = f->book;
    float              max = 0.0f, gain, other;

    f->error = FLT_MAX;
    for (int g = 0; g < 32 / k->group; g++) {
        struct unit *u = f->units + g * k->group, down[4];
        const float *xg = x + 8 * g * k->group, *wg = w + 8 * g * k->group;

        f->scale[g] = book_group(u, k, xg, wg, k->one_shift ? 0 : -1, scans, &gain);
        if (k->one_shift) {
            float scale = book_group(down, k, xg, wg, 1, scans, &other);

            if (other > gain) {
                f->scale[g] = scale;
                memcpy(u, down, sizeof down);
            }
        }
        max = f->scale[g] > max ? f->scale[g] : max;
    }
    for (int i = 0; i < tries; i++)
        book_try(f, max / ((float)(2 * k->most + 1) - 6.0f * (float)i / (float)tries));
    for (int i = 0; i < 3; i++)
        book_refit(f);
}

/* The signs of a unit; where they must be even, an element of the entry that pays gets the other. */
FIT unsigned unit_signs(const struct book *k, const float *x, const float *w, uint32_t code)
{
    unsigned signs = 0;

    for (int i = 0; i < 8; i++)
        signs |= (x[i] < 0.0f ? 1u : 0u) << i;
    if (!k->even || !odd_signs(x))
        return signs;
    int      begin = code >> 18 & 1 ? 4 : 0, at = begin;
    uint32_t e = k->kind == BOOK_OCTETS ? code : begin > 0 ? code >> 9 & 511 : code & 511;
    float    least = FLT_MAX;

    for (int i = 0; i < k->dim; i++) {
        float t = w[begin + i] * fabsf(x[begin + i]) * k->value[i][e];

        if (t < least) {
            least = t;
            at = begin + i;
        }
    }
    return signs ^ 1u << at;
}

FIT void put_u32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}

FIT void fit_iq2_xxs(void *row, const float *x, int64_t n, const float *importance, int effort)
{
    struct quant_iq2_xxs *b = row;
    struct book           k = { .even = true, .group = 4, .most = 15 };
    struct book_fit       f = { .book = &k };
    struct fit_block      t;

    book_octets(&k, quant_iq2xxs_grid, 256);
    for (int64_t i = 0; i < n / 256; i++, b++) {
        load_block(&t, x, importance, i, 256);
        book_fit(&f, t.x, t.w, effort);
        b->d = half_of_f32(k.unit * f.d);
        for (int g = 0; g < 8; g++) {
            uint32_t aux = (uint32_t)f.k[g] << 28;

            for (int l = 0; l < 4; l++) {
                int u = 4 * g + l;

                b->qs[8 * g + l] = (uint8_t)f.code[u];
                aux |= (unit_signs(&k, t.x + 8 * u, t.w + 8 * u, f.code[u]) & 127u) << 7 * l;
            }
            put_u32(b->qs + 8 * g + 4, aux);
        }
    }
}

FIT void fit_iq2_xs(void *row, const float *x, int64_t n, const float *importance, int effort)
{
    struct quant_iq2_xs *b = row;
    struct book          k = { .even = true, .group = 2, .most = 15 };
    struct book_fit      f = { .book = &k };
    struct fit_block     t;

    book_octets(&k, quant_iq2xs_grid, 512);
    for (int64_t i = 0; i < n / 256; i++, b++) {
        load_block(&t, x, importance, i, 256);
        book_fit(&f, t.x, t.w, effort);
        b->d = half_of_f32(k.unit * f.d);
        for (int u = 0; u < 32; u++)
            b->qs[u] = (uint16_t)(f.code[u] | (unit_signs(&k, t.x + 8 * u, t.w + 8 * u, f.code[u]) & 127u) << 9);
        for (int g = 0; g < 8; g++)
            b->sc[g] = (uint8_t)(f.k[2 * g] | f.k[2 * g + 1] << 4);
    }
}

FIT void fit_iq2_s(void *row, const float *x, int64_t n, const float *importance, int effort)
{
    struct quant_iq2_s *b = row;
    struct book         k = { .even = false, .group = 2, .most = 15 };
    struct book_fit     f = { .book = &k };
    struct fit_block    t;

    book_octets(&k, quant_iq2s_grid, 1024);
    for (int64_t i = 0; i < n / 256; i++, b++) {
        load_block(&t, x, importance, i, 256);
        book_fit(&f, t.x, t.w, effort);
        memset(b, 0, sizeof *b);
        b->d = half_of_f32(k.unit * f.d);
        for (int u = 0; u < 32; u++) {
            b->qs[u] = (uint8_t)f.code[u];
            b->qh[u / 4] = (uint8_t)(b->qh[u / 4] | (f.code[u] >> 8) << u % 4 * 2);
            b->signs[u] = (uint8_t)unit_signs(&k, t.x + 8 * u, t.w + 8 * u, f.code[u]);
        }
        for (int g = 0; g < 8; g++)
            b->sc[g] = (uint8_t)(f.k[2 * g] | f.k[2 * g + 1] << 4);
    }
}

FIT void fit_iq3_xxs(void *row, const float *x, int64_t n, const float *importance, int effort)
{
    struct quant_iq3_xxs *b = row;
    struct book           k = { .even = true, .group = 4, .most = 15 };
    struct book_fit       f = { .book = &k };
    struct fit_block      t;

    book_quads(&k, quant_iq3xxs_grid, 256, book_iq3xxs);
    for (int64_t i = 0; i < n / 256; i++, b++) {
        load_block(&t, x, importance, i, 256);
        book_fit(&f, t.x, t.w, effort);
        b->d = half_of_f32(k.unit * f.d);
        for (int g = 0; g < 8; g++) {
            uint32_t aux = (uint32_t)f.k[g] << 28;

            for (int l = 0; l < 4; l++) {
                int u = 4 * g + l;

                b->qs[2 * u] = (uint8_t)f.code[u];
                b->qs[2 * u + 1] = (uint8_t)(f.code[u] >> 9);
                aux |= (unit_signs(&k, t.x + 8 * u, t.w + 8 * u, f.code[u]) & 127u) << 7 * l;
            }
            put_u32(b->aux + 4 * g, aux);
        }
    }
}

FIT void fit_iq3_s(void *row, const float *x, int64_t n, const float *importance, int effort)
{
    struct quant_iq3_s *b = row;
    struct book         k = { .even = false, .group = 4, .most = 15 };
    struct book_fit     f = { .book = &k };
    struct fit_block    t;

    book_quads(&k, quant_iq3s_grid, 512, book_iq3s);
    for (int64_t i = 0; i < n / 256; i++, b++) {
        load_block(&t, x, importance, i, 256);
        book_fit(&f, t.x, t.w, effort);
        memset(b, 0, sizeof *b);
        b->d = half_of_f32(f.d);
        for (int u = 0; u < 32; u++) {
            uint32_t first = f.code[u] & 511u, second = f.code[u] >> 9 & 511u;

            b->qs[2 * u] = (uint8_t)first;
            b->qs[2 * u + 1] = (uint8_t)second;
            b->qh[u / 4] = (uint8_t)(b->qh[u / 4] | (first >> 8 | second >> 8 << 1) << u % 4 * 2);
            b->signs[u] = (uint8_t)unit_signs(&k, t.x + 8 * u, t.w + 8 * u, f.code[u]);
        }
        for (int g = 0; g < 4; g++)
            b->sc[g] = (uint8_t)(f.k[2 * g] | f.k[2 * g + 1] << 4);
    }
}

FIT void fit_iq1_s(void *row, const float *x, int64_t n, const float *importance, int effort)
{
    struct quant_iq1_s *b = row;
    struct book         k = { .one_shift = true, .group = 4, .most = 7 };
    struct book_fit     f = { .book = &k };
    struct fit_block    t;

    book_ternary(&k);
    for (int64_t i = 0; i < n / 256; i++, b++) {
        load_block(&t, x, importance, i, 256);
        book_fit(&f, t.x, t.w, effort);
        memset(b, 0, sizeof *b);
        b->d = half_of_f32(f.d);
        for (int u = 0; u < 32; u++) {
            b->qs[u] = (uint8_t)f.code[u];
            b->qh[u / 4] = (uint16_t)(b->qh[u / 4] | (f.code[u] >> 8 & 7u) << u % 4 * 3);
        }
        for (int g = 0; g < 8; g++)
            b->qh[g] = (uint16_t)(b->qh[g] | (unsigned)f.k[g] << 12 | (f.code[4 * g] >> 11 & 1u) << 15);
    }
}

FIT void fit_iq1_m(void *row, const float *x, int64_t n, const float *importance, int effort)
{
    struct quant_iq1_m *b = row;
    struct book         k = { .group = 2, .most = 7 };
    struct book_fit     f = { .book = &k };
    struct fit_block    t;

    book_ternary(&k);
    for (int64_t i = 0; i < n / 256; i++, b++) {
        load_block(&t, x, importance, i, 256);
        book_fit(&f, t.x, t.w, effort);
        memset(b, 0, sizeof *b);
        for (int u = 0; u < 32; u++) {
            b->qs[u] = (uint8_t)f.code[u];
            b->qh[u / 2] = (uint8_t)(b->qh[u / 2] | (f.code[u] >> 8 & 15u) << u % 2 * 4);
        }
        for (int g = 0; g < 16; g++)
            b->sc[g / 4] = (uint16_t)(b->sc[g / 4] | f.k[g] << g % 4 * 3);
        for (int j = 0; j < 4; j++)
            b->sc[j] = (uint16_t)(b->sc[j] | (half_of_f32(f.d) >> 4 * j & 15) << 12);
    }
}
