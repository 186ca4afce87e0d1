/* SPDX-License-Identifier: Apache-2.0 */
/* report.c - events of a training as JSON lines, its loss as a picture.       room: cmd */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/io.h"
#include "base/memory.h"
#include "cli/chart.h"
#include "draft-train/program.h"

double cli_train_time(const char *option, const char *text)
{
    char *end;
    const double v = strtod(text, &end);
    const double unit = *end == 's' ? 1 : *end == 'm' ? 60 : *end == 'h' ? 3600 : *end == 'd' ? 86400 : 0;

    if (end == text || unit == 0 || end[1] != '\0' || !(v > 0) || v * unit > 365.0 * 86400)
        cli_usage("--%s %s: not a time such as 90s, 30m or 2h", option, text);
    return v * unit;
}

static bool show_reading(void *ctx, uint64_t done, uint64_t total)
{
    cli_progress("reading %.100s: %.0f %%", (const char *)ctx, 100 * (double)done / (double)total);
    return !cli_interrupted();
}

struct progress cli_train_reading(const char *path)
{
    return (struct progress){ show_reading, (void *)(uintptr_t)path };
}

enum err_code cli_train_report_open(struct cli_train_report *r, const struct cli_train_options *o, struct err *e)
{
    struct io_out *out;
    int fd;

    *r = (struct cli_train_report){ .o = o, .from_ms = clock_ms() };
    if (o->plot != NULL) { /* said now, and not after hours */
        if (io_out_open(&out, o->plot, e))
            return e->code;
        io_out_abort(out);
    }
    if (o->events == NULL)
        return ERR_OK;
    if (strcmp(o->events, "-") == 0) {
        r->events = stdout;
        return ERR_OK;
    }
    if (io_open_append(&fd, o->events, cli_interrupted, e))
        return e->code;
    r->events = fdopen(fd, "a");
    if (r->events != NULL)
        return ERR_OK;
    close(fd);
    return err_nomem(e);
}

/* The first reason stays. */
static void note_failure(struct cli_train_report *r, bool failed)
{
    if (failed && r->failed == 0)
        r->failed = errno != 0 ? errno : EIO;
}

void cli_train_event(struct cli_train_report *r, const char *event, json_t *fields)
{
    if (r->events != NULL && fields != NULL) {
        json_t *o = json_object();

        errno = 0;
        note_failure(r, !cli_json_set(o, "type", json_string(event)) ||
                            !cli_json_set(o, "seconds", json_real((clock_ms() - r->from_ms) / 1e3)) ||
                            json_object_update(o, fields) != 0 ||
                            json_dumpf(o, r->events, JSON_COMPACT | JSON_REAL_PRECISION(9)) != 0 ||
                            putc('\n', r->events) == EOF || fflush(r->events) != 0);
        json_decref(o);
    }
    json_decref(fields);
}

void cli_train_point(struct cli_train_report *r, double loss)
{
    if (r->o->plot == NULL || !isfinite(loss) ||
        memory_room(&r->point, &r->cap, 2 * ((size_t)r->n + 1), sizeof *r->point, NULL))
        return;
    r->point[2 * r->n] = (clock_ms() - r->from_ms) / 1e3;
    r->point[2 * r->n++ + 1] = loss;
}

void cli_train_tested(struct cli_train_report *r, enum cli_train_set set, double before, double after)
{
    r->test[set].before = before;
    r->test[set].after = after;
    r->test[set].known = isfinite(before) && isfinite(after);
}

/* ---- the picture ---- */

static enum err_code write_plot(const struct cli_train_report *r, struct err *e)
{
    static const char *const keys[] = { "the batch of a step", "held out, before and after", "kept, before and after" };
    struct cli_chart_point tests[CLI_TRAIN_SETS][2], *v = calloc((size_t)r->n, sizeof *v);
    struct cli_chart_series s[1 + CLI_TRAIN_SETS] = { { .line = true, .v = v, .n = (size_t)r->n } };
    struct cli_chart c = { .title = "loss by time, from the first step on",
                           .x = { "minutes and seconds", .clock = true },
                           .y = { "nats per token", .from_zero = true },
                           .v = s,
                           .n = 1 };
    enum err_code code;

    if (v == NULL)
        return err_nomem(e);
    for (int64_t i = 0; i < r->n; i++)
        v[i] = (struct cli_chart_point){ .x = r->point[2 * i], .y = r->point[2 * i + 1] };
    for (int i = 0; i < CLI_TRAIN_SETS; i++) {
        if (!r->test[i].known)
            continue;
        tests[i][0] = (struct cli_chart_point){ .x = v[0].x, .y = r->test[i].before };
        tests[i][1] = (struct cli_chart_point){ .x = v[r->n - 1].x, .y = r->test[i].after };
        s[c.n++] = (struct cli_chart_series){ .key = i + 1, .line = true, .v = tests[i], .n = 2 };
    }
    code = cli_chart_write(r->o->plot, &c, 1, keys, r->test[CLI_TRAIN_KEPT].known ? 3 : c.n > 1 ? 2 : 1, e);
    free(v);
    return code;
}

static enum err_code close_report(struct cli_train_report *r, struct err *e)
{
    enum err_code code = ERR_OK;

    if (r->o == NULL) /* never opened */
        return ERR_OK;
    if (r->o->plot != NULL && r->n > 0)
        code = write_plot(r, e);
    if (r->events != NULL && r->events != stdout)
        note_failure(r, fclose(r->events) != 0);
    if (r->failed != 0 && r->events != stdout) { /* cli_close_stdout() says it of that */
        if (code != ERR_OK)
            (void)cli_fail(e);
        code = err_errno(e, ERR_IO, r->failed, "%s: cannot write events", r->o->events);
    }
    free(r->point);
    *r = (struct cli_train_report){ 0 };
    return code;
}

int cli_train_end(struct cli_train_report *r, enum err_code code, int status, struct err *e)
{
    struct err late = { 0 };

    cli_progress_end();
    if (close_report(r, &late) != ERR_OK && code == ERR_OK)
        (void)cli_fail(&late);
    return code != ERR_OK ? cli_fail(e) : status;
}
