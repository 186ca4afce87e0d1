/* SPDX-License-Identifier: Apache-2.0 */
/* measure.c - what --measure shows while it measures.                              room: cmd */
#include "base/clock.h"
#include "quantize/program.h"

struct shown {
    double from_ms; /* of the first run; 0: there was none yet */
};

static bool show_tick(void *ctx, const struct measure_tick *t)
{
    struct shown *s = ctx;
    const double part = (double)t->run + t->part;

    if (t->runs > 0 && s->from_ms <= 0)
        s->from_ms = clock_ms();
    const double spent_s = (clock_ms() - s->from_ms) / 1e3;

    if (t->runs == 0)
        cli_progress("%s", t->doing);
    else if (part > 0)
        cli_progress("%s: run %lld of %lld, %.0f s, %.0f s left", t->doing, (long long)t->run + 1, (long long)t->runs,
                     spent_s, spent_s / part * ((double)t->runs - part));
    return !cli_interrupted();
}

enum err_code cli_quantize_measure(struct ramp_losses *out, const struct quantize_options *o, const struct gguf *g,
                                   struct err *e)
{
    struct shown shown = { 0 };
    const struct measure_watch watch = { show_tick, &cli_until_signal, &shown };
    struct measure_losses_opts how = o->losses;
    bool complete = false;
    enum err_code code;

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
