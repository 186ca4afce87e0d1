/* SPDX-License-Identifier: Apache-2.0 */
/* chart.h - measurements as a picture: points with names, lines, error bars.            room: cmd */
#ifndef CLI_CHART_H
#define CLI_CHART_H
#include "cli/cli.h"

struct cli_chart_point {
    double x, y;
    double lo, hi;    /* of an error bar; equal: none */
    const char *name; /* written beside it; NULL: none */
};
struct cli_chart_series {
    int key;   /* which of the keys it belongs to; gives its colour */
    bool line; /* points are joined in their order, and drawn small */
    const struct cli_chart_point *v;
    size_t n;
};
struct cli_chart_axis {
    const char *title;
    bool log;                 /* all values are above 0 */
    bool from_zero;           /* else from the least value on; not with log */
    double most;              /* the end of the axis; 0: the largest value */
    const char *const *words; /* names of 0, 1 ... n_words - 1, in place of numbers; NULL: numbers */
    int n_words;
    bool clock; /* seconds, written as 1:05 */
};
struct cli_chart {
    const char *title;
    struct cli_chart_axis x, y;
    const struct cli_chart_series *v;
    size_t n;
};

/* Exits with EXIT_USAGE: the path's ending is not .svg, .png or .pdf, or another kind of file is there. NULL: nothing
 * is checked. */
void cli_chart_check(const char *option, const char *path);
/* Draws charts beside each other and the keys, a line each, below them, as the path's ending says; .png and .pdf are
 * made by rsvg-convert, ERR_IO: it is not installed. Names and keys may hold any text. Values are finite. */
MUST_CHECK enum err_code cli_chart_write(const char *path, const struct cli_chart *v, int n, const char *const *keys,
                                         int n_keys, struct err *e);
#endif
