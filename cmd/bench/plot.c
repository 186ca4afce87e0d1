/* SPDX-License-Identifier: Apache-2.0 */
/* plot.c - records as pictures, drawn by gnuplot.                           room: cmd */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include "base/io.h"
#include "bench/bench.h"

enum panel { PANEL_SPEED, PANEL_KL, PANEL_ACCURACY, N_PANELS };

struct plot {
    struct bench *b;
    json_t *files; /* array of arrays of records */
    json_t *sets;  /* object: name of a task set -> its place on the axis */
    int n_panels;
    bool has[N_PANELS];
    FILE *out;
};

static double number_in(const json_t *r, const char *key)
{
    return json_number_value(json_object_get(r, key));
}

static int panel_of(const json_t *r)
{
    if (strcmp(cli_bench_text_in(r, "type"), "speed") == 0 && json_object_get(r, "decode_tps") != NULL)
        return PANEL_SPEED;
    if (strcmp(cli_bench_text_in(r, "type"), "kl") == 0)
        return PANEL_KL;
    return strcmp(cli_bench_text_in(r, "type"), "eval") == 0 ? PANEL_ACCURACY : -1;
}

/* A string of gnuplot: in single quotes, which are doubled inside. */
static void put_text(FILE *f, const char *s)
{
    putc('\'', f);
    for (; *s; s++) {
        if (*s == '\'')
            putc('\'', f);
        putc((unsigned char)*s < ' ' ? ' ' : *s, f);
    }
    putc('\'', f);
}

/* The points of one file for a panel, as a here-document. */
static void put_data(struct plot *p, size_t file, enum panel panel)
{
    const json_t *records = json_array_get(p->files, file);

    fprintf(p->out, "$data%d_%zu << EOD\n", (int)panel, file);
    for (size_t i = 0; i < json_array_size(records); i++) {
        const json_t *r = json_array_get(records, i);

        if (panel_of(r) != (int)panel)
            continue;
        if (panel == PANEL_SPEED)
            fprintf(p->out, "%g %g %g %g\n", number_in(r, "depth_tokens"), number_in(r, "decode_tps"),
                    number_in(r, "decode_min_tps"), number_in(r, "decode_max_tps"));
        else if (panel == PANEL_KL)
            fprintf(p->out, "%g %g %g\n", number_in(json_object_get(r, "model"), "weight_bytes") / 1e6,
                    number_in(r, "kl_mean_nats"), number_in(r, "kl_mean_se_nats"));
        else
            fprintf(
                p->out, "%g %g %g %g\n",
                (double)json_integer_value(json_object_get(p->sets, cli_bench_text_in(r, "set"))) + 0.12 * (double)file,
                100 * number_in(r, "accuracy"), 100 * number_in(r, "accuracy_lo"), 100 * number_in(r, "accuracy_hi"));
    }
    fputs("EOD\n", p->out);
}

static bool file_has(const struct plot *p, size_t file, enum panel panel)
{
    const json_t *records = json_array_get(p->files, file);

    for (size_t i = 0; i < json_array_size(records); i++)
        if (panel_of(json_array_get(records, i)) == (int)panel)
            return true;
    return false;
}

/* Names of task sets along the axis. */
static void put_sets(struct plot *p)
{
    const char *name;
    json_t *place;

    fprintf(p->out, "set xrange [-0.5:%zu.5]\nset xtics (", json_object_size(p->sets) - 1);
    json_object_foreach (p->sets, name, place) {
        fputs(json_integer_value(place) > 0 ? ", " : "", p->out);
        put_text(p->out, name);
        fprintf(p->out, " %lld", (long long)json_integer_value(place));
    }
    fputs(")\n", p->out);
}

static void put_panel(struct plot *p, enum panel panel)
{
    static const char *const head[] = {
        "set title 'decode'\nset xlabel 'depth, tokens'\nset ylabel 'tokens/s'\nset yrange [0:*]\n",
        "set title 'divergence'\nset xlabel 'weights, MB'\nset ylabel 'KL, nats'\nset xrange [0:*]\nset yrange [0:*]\n",
        "set title 'accuracy'\nset xlabel ''\nset ylabel '%, 95 % interval'\nset yrange [0:100]\n",
    };
    static const char *const style[] = { "using 1:2:3:4 with yerrorlines", "using 1:2:3 with yerrorbars pt 7",
                                         "using 1:2:3:4 with yerrorbars pt 7" };
    bool first = true;

    fputs("set autoscale\n", p->out);
    fputs(head[panel], p->out);
    if (panel == PANEL_ACCURACY)
        put_sets(p);
    for (size_t i = 0; i < json_array_size(p->files); i++) {
        if (!file_has(p, i, panel))
            continue;
        fprintf(p->out, "%s $data%d_%zu %s title ", first ? "plot" : ",", (int)panel, i, style[panel]);
        put_text(p->out, p->b->operands[i]);
        first = false;
    }
    fputs("\n", p->out);
}

bool cli_bench_is_script(const char *path)
{
    const size_t n = strlen(path);

    return n > 3 && strcmp(path + n - 3, ".gp") == 0;
}

static void put_script(struct plot *p)
{
    fprintf(p->out, "set terminal svg size %d,420 noenhanced background rgb 'white'\n", 520 * p->n_panels);
    if (!cli_bench_is_script(p->b->o->out)) {
        fputs("set output ", p->out);
        put_text(p->out, p->b->o->out);
        putc('\n', p->out);
    }
    for (size_t i = 0; i < json_array_size(p->files); i++)
        for (int panel = 0; panel < N_PANELS; panel++)
            if (file_has(p, i, (enum panel)panel))
                put_data(p, i, (enum panel)panel);
    fprintf(p->out, "set key bottom left\nset grid\nset multiplot layout 1,%d\n", p->n_panels);
    for (int panel = 0; panel < N_PANELS; panel++)
        if (p->has[panel])
            put_panel(p, (enum panel)panel);
    fputs("unset multiplot\n", p->out);
}

static enum err_code write_script(struct plot *p, const char *path, struct err *e)
{
    char *text = NULL;
    size_t n = 0;
    enum err_code code;

    p->out = open_memstream(&text, &n);
    if (p->out != NULL)
        put_script(p);
    code = p->out != NULL && fclose(p->out) == 0 ? io_write_file(path, (struct str){ text, n }, e) : err_nomem(e);
    free(text);
    return code;
}

static enum err_code draw_plot(struct plot *p, struct err *e)
{
    const char *path = p->b->o->out;
    int status;

    if (cli_bench_is_script(path))
        return write_script(p, path, e);
    fflush(stdout);
    if (system("command -v gnuplot > /dev/null") != 0)
        return err_set(e, ERR_IO, "plot: gnuplot is not installed; -o FILE.gp writes its script");
    p->out = popen("gnuplot", "w");
    if (p->out == NULL)
        return err_errno(e, ERR_IO, errno, "gnuplot: cannot run");
    put_script(p);
    status = pclose(p->out);
    return status == 0 ? ERR_OK : err_set(e, ERR_IO, "gnuplot failed with status %d", WEXITSTATUS(status));
}

enum err_code cli_bench_cmd_plot(struct bench *b, struct err *e)
{
    struct plot p = { .b = b, .files = json_array(), .sets = json_object() };
    enum err_code code = p.files && p.sets ? ERR_OK : err_nomem(e);

    if (b->o->out == NULL || *b->operands == NULL)
        code = err_set(e, ERR_ARG, "plot: needs files of records and -o FILE.svg");
    for (char **f = b->operands; *f != NULL && code == ERR_OK; f++) {
        json_t *records;

        code = cli_bench_load(&records, *f, e);
        if (code == ERR_OK && json_array_append_new(p.files, records))
            code = err_nomem(e);
        for (size_t i = 0; code == ERR_OK && i < json_array_size(records); i++) {
            const json_t *r = json_array_get(records, i);
            int panel = panel_of(r);

            if (panel == PANEL_ACCURACY && json_object_get(p.sets, cli_bench_text_in(r, "set")) == NULL)
                json_object_set_new(p.sets, cli_bench_text_in(r, "set"),
                                    json_integer((json_int_t)json_object_size(p.sets)));
            if (panel >= 0 && !p.has[panel]) {
                p.has[panel] = true;
                p.n_panels++;
            }
        }
    }
    if (code == ERR_OK && p.n_panels == 0)
        code = err_set(e, ERR_FORMAT, "plot: no records of decode speed, divergence or accuracy in these files");
    if (code == ERR_OK)
        code = draw_plot(&p, e);
    json_decref(p.files);
    json_decref(p.sets);
    return code;
}
