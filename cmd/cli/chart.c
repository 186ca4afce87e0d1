/* SPDX-License-Identifier: Apache-2.0 */
/* chart.c - measurements as a picture, SVG (chart.h).                                   room: cmd */
#include "cli/chart.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/memory.h"
#include "cli/child.h"

enum { WIDTH = 560, HEIGHT = 368, LEFT = 64, RIGHT = 24, TOP = 34, BOTTOM = 56, KEY = 20, TICKS = 40 };
enum { FONT = 12, NAME_FONT = 11, PICTURE_MAX = 64 << 20, PICTURE_SECONDS = 60 };

static const char *const colours[] = { "#0b62a4", "#d1495b", "#3a7d44", "#8e5ea2",
                                       "#c98a00", "#008b8b", "#a0522d", "#555555" };

struct box {
    double x0, y0, x1, y1;
};

struct panel {
    const struct cli_chart *c;
    double left;           /* of its plot area, in pixels */
    double x0, x1, y0, y1; /* the axes' ends: values, or their logarithms */
    struct box *taken;     /* where points, lines and names are */
    size_t n, cap;
};

static double name_width(const char *s, int font)
{
    return cli_columns(s) * font * .58;
}

static const char *colour(int key)
{
    return colours[(size_t)key % (sizeof colours / sizeof *colours)];
}

static void put_text(FILE *f, const char *s)
{
    for (; *s; s++)
        switch (*s) {
        case '&':
            fputs("&amp;", f);
            break;
        case '<':
            fputs("&lt;", f);
            break;
        default:
            putc((unsigned char)*s < ' ' ? ' ' : *s, f);
        }
}

/* ---- axes ---- */

static double on_axis(const struct cli_chart_axis *a, double v)
{
    return a->log ? log10(v) : v;
}

static void widen(double *lo, double *hi, const struct cli_chart_axis *a, double v)
{
    const double at = on_axis(a, v);

    *lo = at < *lo ? at : *lo;
    *hi = at > *hi ? at : *hi;
}

/* The ends of an axis whose values lie in lo .. hi. */
static void set_ends(double *lo, double *hi, const struct cli_chart_axis *a)
{
    const double room = *hi > *lo ? (*hi - *lo) * (a->clock ? .02 : .06) : a->log ? .3 : fabs(*hi) * .1 + 1e-9;

    if (a->words != NULL) {
        *lo = -.5;
        *hi = a->n_words - .5;
        return;
    }
    *lo = a->from_zero ? 0 : *lo - room;
    *hi = a->most > 0 ? on_axis(a, a->most) : *hi + room;
}

static void measure_panel(struct panel *p)
{
    p->x0 = p->y0 = INFINITY;
    p->x1 = p->y1 = -INFINITY;
    for (size_t i = 0; i < p->c->n; i++)
        for (size_t j = 0; j < p->c->v[i].n; j++) {
            const struct cli_chart_point *q = &p->c->v[i].v[j];

            widen(&p->x0, &p->x1, &p->c->x, q->x);
            widen(&p->y0, &p->y1, &p->c->y, q->y);
            /* an error bar may end at 0 or below, where a logarithm has no place */
            if (q->lo < q->hi && (!p->c->y.log || q->lo > 0))
                widen(&p->y0, &p->y1, &p->c->y, q->lo);
            if (q->lo < q->hi)
                widen(&p->y0, &p->y1, &p->c->y, q->hi);
        }
    set_ends(&p->x0, &p->x1, &p->c->x);
    set_ends(&p->y0, &p->y1, &p->c->y);
}

static double x_of(const struct panel *p, double v)
{
    return p->left + (WIDTH - LEFT - RIGHT) * (on_axis(&p->c->x, v) - p->x0) / (p->x1 - p->x0);
}

static double y_of(const struct panel *p, double v)
{
    const double least = p->c->y.log ? pow(10, p->y0) : p->y0;

    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - (on_axis(&p->c->y, v > least ? v : least) - p->y0) / (p->y1 - p->y0));
}

/* Seconds, minutes and hours that are read easily, at least `raw` of them. */
static double clock_step(double raw)
{
    static const int steps[] = { 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 43200 };

    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (raw <= steps[i])
            return steps[i];
    return 86400 * ceil(raw / 86400);
}

/* Round values within lo .. hi, about six. */
static int linear_ticks(double v[TICKS], double lo, double hi, bool clock)
{
    const double raw = (hi - lo) / 6, unit = pow(10, floor(log10(raw)));
    const double step = clock             ? clock_step(raw)
                        : raw / unit <= 1 ? unit
                        : raw / unit <= 2 ? 2 * unit
                        : raw / unit <= 5 ? 5 * unit
                                          : 10 * unit;
    int n = 0;

    for (double k = ceil(lo / step - 1e-9); k * step <= hi + step * 1e-9 && n < TICKS; k++)
        v[n++] = k * step + 0.0; /* no -0 */
    return n;
}

/* 1, 2 and 5 times powers of ten, or the powers alone where they are many. */
static int log_ticks(double v[TICKS], double lo, double hi)
{
    static const int digits[] = { 1, 2, 5 };
    int n = 0;

    for (double k = floor(lo); k <= hi; k++)
        for (size_t i = 0; i < (hi - lo < 4 ? 3 : 1) && n < TICKS; i++) {
            const double at = k + log10(digits[i]);

            if (at >= lo && at <= hi)
                v[n++] = digits[i] * pow(10, k);
        }
    return n;
}

static int find_ticks(double v[TICKS], const struct cli_chart_axis *a, double lo, double hi)
{
    int n = 0;

    for (; a->words != NULL && n < a->n_words && n < TICKS; n++)
        v[n] = n;
    return n > 0 ? n : a->log ? log_ticks(v, lo, hi) : linear_ticks(v, lo, hi, a->clock);
}

static void put_tick(FILE *f, const struct cli_chart_axis *a, double v)
{
    const long long s = (long long)v;

    if (a->words != NULL)
        put_text(f, a->words[(int)v]);
    else if (a->clock && s >= 3600)
        fprintf(f, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
    else if (a->clock)
        fprintf(f, "%lld:%02lld", s / 60, s % 60);
    else
        fprintf(f, fabs(v) >= 1e6 ? "%.3g" : "%.7g", v);
}

/* Whether the axis' words are too long to stand beside each other. */
static bool in_two_rows(const struct cli_chart_axis *a)
{
    for (int i = 0; i < a->n_words; i++)
        if (name_width(a->words[i], FONT) + 6 > (double)(WIDTH - LEFT - RIGHT) / a->n_words)
            return true;
    return false;
}

static void put_axes(const struct panel *p, FILE *f)
{
    const double right = p->left + WIDTH - LEFT - RIGHT, low = HEIGHT - BOTTOM;
    double v[TICKS];
    int n = find_ticks(v, &p->c->y, p->y0, p->y1);

    for (int i = 0; i < n; i++) {
        const double y = y_of(p, v[i]);

        fprintf(f, "<path d=\"M%.1f %.1fH%.1f\" stroke=\"#ddd\"/><text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">",
                p->left, y, right, p->left - 6, y + 4);
        put_tick(f, &p->c->y, v[i]);
        fputs("</text>\n", f);
    }
    n = find_ticks(v, &p->c->x, p->x0, p->x1);
    for (int i = 0; i < n; i++) {
        const double x = x_of(p, v[i]), drop = i % 2 == 1 && in_two_rows(&p->c->x) ? 13 : 0;

        fprintf(f, "<path d=\"M%.1f %.1fv4\" stroke=\"#888\"/><text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">", x,
                low, x, low + 17 + drop);
        put_tick(f, &p->c->x, v[i]);
        fputs("</text>\n", f);
    }
    fprintf(f, "<path d=\"M%.1f %dV%.1fH%.1f\" fill=\"none\" stroke=\"#888\"/>\n", p->left, TOP, low, right);
    fprintf(f, "<text x=\"%.1f\" y=\"%d\" font-size=\"14\">", p->left, TOP - 14);
    put_text(f, p->c->title);
    fprintf(f, "</text>\n<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">", (p->left + right) / 2, low + 44);
    put_text(f, p->c->x.title);
    fprintf(f, "</text>\n<text transform=\"translate(%.1f %d) rotate(-90)\" text-anchor=\"middle\">",
            p->left - LEFT + 14, (TOP + HEIGHT - BOTTOM) / 2);
    put_text(f, p->c->y.title);
    fputs("</text>\n", f);
}

/* ---- points, and names where nothing else is ---- */

static enum err_code take(struct panel *p, struct box b, struct err *e)
{
    if (memory_room(&p->taken, &p->cap, p->n + 1, sizeof *p->taken, e))
        return e->code;
    p->taken[p->n++] = b;
    return ERR_OK;
}

/* The part of a box that others have, or that lies outside the frame. */
static double covered(const struct panel *p, const struct box *b)
{
    double sum = 0;

    if (b->x0 < p->left || b->x1 > p->left + WIDTH - LEFT || b->y0 < TOP - 4 || b->y1 > HEIGHT - BOTTOM)
        sum += 1e6;
    for (size_t i = 0; i < p->n; i++) {
        const struct box *t = &p->taken[i];
        const double w = fmin(b->x1, t->x1) - fmax(b->x0, t->x0), h = fmin(b->y1, t->y1) - fmax(b->y0, t->y0);

        if (w > 0 && h > 0)
            sum += w * h;
    }
    return sum;
}

/* A line's boxes: a few pixels every few pixels. */
static enum err_code take_line(struct panel *p, double x0, double y0, double x1, double y1, struct err *e)
{
    const int n = (int)(hypot(x1 - x0, y1 - y0) / 6) + 1;

    for (int i = 0; i <= n; i++) {
        const double x = x0 + (x1 - x0) * i / n, y = y0 + (y1 - y0) * i / n;

        if (take(p, (struct box){ x - 2, y - 2, x + 2, y + 2 }, e))
            return e->code;
    }
    return ERR_OK;
}

static enum err_code put_series(struct panel *p, FILE *f, const struct cli_chart_series *s, struct err *e)
{
    if (s->line && s->n > 1) {
        fprintf(f, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\" points=\"", colour(s->key));
        for (size_t i = 0; i < s->n; i++)
            fprintf(f, "%s%.1f,%.1f", i > 0 ? " " : "", x_of(p, s->v[i].x), y_of(p, s->v[i].y));
        fputs("\"/>\n", f);
    }
    for (size_t i = 0; i < s->n; i++) {
        const struct cli_chart_point *q = &s->v[i];
        const double x = x_of(p, q->x), y = y_of(p, q->y);

        if (q->lo < q->hi)
            fprintf(f, "<path d=\"M%.1f %.1fV%.1fm-3 0h6M%.1f %.1fh6\" fill=\"none\" stroke=\"%s\"/>\n", x,
                    y_of(p, q->lo), y_of(p, q->hi), x - 3, y_of(p, q->lo), colour(s->key));
        if (!s->line || s->n < 100)
            fprintf(f, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%s\" fill=\"%s\"/>\n", x, y, s->line ? "2.5" : "4",
                    colour(s->key));
        if (take(p, (struct box){ x - 4, y - 4, x + 4, y + 4 }, e) ||
            (q->lo < q->hi && take_line(p, x, y_of(p, q->lo), x, y_of(p, q->hi), e)) ||
            (s->line && i > 0 && take_line(p, x_of(p, s->v[i - 1].x), y_of(p, s->v[i - 1].y), x, y, e)))
            return e->code;
    }
    return ERR_OK;
}

/* The name goes where it covers least: right, left, above, below; further away it has a line to its point. */
static enum err_code put_name(struct panel *p, FILE *f, const struct cli_chart_point *q, int key, struct err *e)
{
    static const double turn[][2] = { { 1, 0 },  { -1, 0 }, { 0, -1 },  { 0, 1 },
                                      { 1, -1 }, { 1, 1 },  { -1, -1 }, { -1, 1 } };
    const double x = x_of(p, q->x), y = y_of(p, q->y), w = name_width(q->name, NAME_FONT), h = NAME_FONT;
    struct box best = { 0, 0, 0, 0 };
    double least = INFINITY;

    for (int far = 0; far < 12 && least > 0; far++)
        for (size_t i = 0; i < sizeof turn / sizeof *turn && least > 0; i++) {
            const double dx = turn[i][0] * (7 + far * 6), dy = turn[i][1] * (7 + far * 9);
            const double x0 = turn[i][0] > 0 ? x + dx : turn[i][0] < 0 ? x + dx - w : x - w / 2;
            const double y0 = turn[i][1] > 0 ? y + dy - 2 : turn[i][1] < 0 ? y + dy - h : y - h / 2;
            const struct box b = { x0, y0, x0 + w, y0 + h };
            const double sum = covered(p, &b);

            if (sum < least) {
                least = sum;
                best = b;
            }
        }
    if (fmax(fmax(best.x0 - x, x - best.x1), fmax(best.y0 - y, y - best.y1)) > 12)
        fprintf(f, "<path d=\"M%.1f %.1fL%.1f %.1f\" stroke=\"%s\" stroke-width=\".5\"/>\n", x, y,
                fmin(fmax(x, best.x0), best.x1), fmin(fmax(y, best.y0), best.y1), colour(key));
    fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" font-size=\"%d\" fill=\"%s\">", best.x0, best.y1 - 2, NAME_FONT,
            colour(key));
    put_text(f, q->name);
    fputs("</text>\n", f);
    return take(p, best, e);
}

static enum err_code put_panel(const struct cli_chart *c, FILE *f, int place, struct err *e)
{
    struct panel p = { .c = c, .left = (double)WIDTH * place + LEFT };
    enum err_code code = ERR_OK;

    measure_panel(&p);
    put_axes(&p, f);
    for (size_t i = 0; i < c->n && code == ERR_OK; i++)
        code = put_series(&p, f, &c->v[i], e);
    for (size_t i = 0; i < c->n && code == ERR_OK; i++)
        for (size_t j = 0; j < c->v[i].n && code == ERR_OK; j++)
            if (c->v[i].v[j].name != NULL)
                code = put_name(&p, f, &c->v[i].v[j], c->v[i].key, e);
    free(p.taken);
    return code;
}

static enum err_code put_picture(FILE *f, const struct cli_chart *v, int n, const char *const *keys, int n_keys,
                                 struct err *e)
{
    fprintf(f,
            "<?xml version=\"1.0\"?>\n"
            "<svg xmlns=\"%s%s\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" font-size=\"%d\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
            "http:", "//www.w3.org/2000/svg", WIDTH * n, HEIGHT + KEY * n_keys + 6, FONT);
    for (int i = 0; i < n; i++)
        if (put_panel(&v[i], f, i, e))
            return e->code;
    for (int i = 0; i < n_keys; i++) {
        fprintf(f, "<circle cx=\"%d\" cy=\"%d\" r=\"4\" fill=\"%s\"/><text x=\"%d\" y=\"%d\">", LEFT,
                HEIGHT + KEY * i + 4, colour(i), LEFT + 12, HEIGHT + KEY * i + 8);
        put_text(f, keys[i]);
        fputs("</text>\n", f);
    }
    fputs("</svg>\n", f);
    return ERR_OK;
}

/* ---- files ---- */

static const struct kind {
    const char *ending, *magic, *convert;
} kinds[] = {
    { ".svg", "<", NULL },
    { ".png", "\211PNG", "rsvg-convert -f png" },
    { ".pdf", "%PDF", "rsvg-convert -f pdf" },
};

static const struct kind *kind_of(const char *path)
{
    const size_t n = strlen(path);

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (n > 4 && strcmp(path + n - 4, kinds[i].ending) == 0)
            return &kinds[i];
    return NULL;
}

void cli_chart_check(const char *option, const char *path)
{
    const struct kind *k = path != NULL ? kind_of(path) : NULL;

    if (path == NULL)
        return;
    if (k == NULL)
        cli_usage("--%s %s: the name of a picture ends in .svg, .png or .pdf", option, path);
    cli_check_kind(option, path, str_of(k->magic), "picture of that kind");
}

enum err_code cli_chart_write(const char *path, const struct cli_chart *v, int n, const char *const *keys, int n_keys,
                              struct err *e)
{
    const struct kind *k = kind_of(path);
    struct cli_buf other = { 0 };
    char *text = NULL;
    size_t n_text = 0;
    FILE *f = open_memstream(&text, &n_text);
    enum err_code code = f != NULL ? put_picture(f, v, n, keys, n_keys, e) : err_nomem(e);

    if (f != NULL && fclose(f) != 0 && code == ERR_OK)
        code = err_nomem(e);
    if (code == ERR_OK && k != NULL && k->convert != NULL &&
        cli_child_run(k->convert, -1, (struct str){ text, n_text }, &other, PICTURE_MAX, PICTURE_SECONDS, e)) {
        if (e->code == ERR_FORMAT)
            e->code = ERR_IO;
        code = err_wrap(e, "%s: is made by rsvg-convert (a name in .svg needs nothing)", path);
    }
    if (code == ERR_OK)
        code =
            io_write_file(path, other.p != NULL ? (struct str){ other.p, other.n } : (struct str){ text, n_text }, e);
    cli_buf_free(&other);
    free(text);
    return code;
}
