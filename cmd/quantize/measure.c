/* SPDX-License-Identifier: Apache-2.0 */
/* measure.c - what --measure shows while it measures.                              room: cmd */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/io.h"
#include "quantize/program.h"

struct shown {
    double from_ms;       /* of the first run; 0: there was none yet */
    double phase_from_ms; /* of what comes before runs */
    char doing[80];       /* the phase */
};

/* A phase that is no run of the model: how far it is, and how long it will take. */
static void show_phase(struct shown *s, const struct measure_tick *t)
{
    char clock[32];

    if (strcmp(s->doing, t->doing) != 0) {
        snprintf(s->doing, sizeof s->doing, "%s", t->doing);
        s->phase_from_ms = clock_ms();
    }
    if (t->part > 0)
        cli_progress("%s: %.0f %%, %s left", t->doing, 100 * t->part,
                     cli_clock((clock_ms() - s->phase_from_ms) / 1e3 / t->part * (1 - t->part), clock));
    else
        cli_progress("%s", t->doing);
}

static bool show_tick(void *ctx, const struct measure_tick *t)
{
    struct shown *s = ctx;
    const double part = (double)t->run + t->part;
    char spent[32], left[32];

    if (t->runs > 0 && s->from_ms <= 0)
        s->from_ms = clock_ms();
    const double spent_s = (clock_ms() - s->from_ms) / 1e3;

    if (t->runs == 0)
        show_phase(s, t);
    else if (part > 0)
        cli_progress("%s: run %lld of %lld, %s, %s left", t->doing, (long long)t->run + 1, (long long)t->runs,
                     cli_clock(spent_s, spent), cli_clock(spent_s / part * ((double)t->runs - part), left));
    return !cli_interrupted();
}

/* What another model loses. */
static enum err_code read_by_role(struct ramp_losses *out, const char *path, const struct gguf *g, struct err *e)
{
    char *text;
    size_t n;
    enum err_code rc = io_read_all(&text, &n, path, RAMP_LOSSES_MAX, cli_interrupted, e);

    if (rc)
        return rc;
    rc = ramp_losses_by_role(out, (struct str){ text, n }, path, g, e);
    free(text);
    return rc;
}

enum err_code cli_quantize_measure(struct ramp_losses *out, const struct quantize_options *o, const struct gguf *g,
                                   struct err *e)
{
    struct shown shown = { 0 };
    const struct measure_watch watch = { show_tick, &cli_until_signal, &shown };
    struct measure_losses_opts how = o->losses;
    bool complete = false;
    enum err_code code;

    if (o->by_role)
        return read_by_role(out, how.path, g, e);
    how.effort = o->effort;
    how.n_threads = o->n_threads;
    how.again = o->again;
    how.dry_run = o->dry_run;
    how.stop = cli_interrupted;
    code = measure_losses(out, &complete, &how, g, &watch, e);
    cli_progress_end();
    if (code == ERR_OK && complete && o->budgets.n == 0 && !o->quiet)
        fprintf(stderr, "%s: is complete, nothing was measured\n", how.path);
    return code;
}
