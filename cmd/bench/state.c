/* SPDX-License-Identifier: Apache-2.0 */
/* state.c - what it costs to undo, fork, save and restore a sequence, and to go on from a saved one.
 *                                                                          room: cmd
 * Each figure is the median of some repetitions, at several lengths of history, of random tokens. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/rng.h"
#include "bench/bench.h"
#include "model/model.h"
#include "run/run.h"
#include "run/session.h"

enum { UNDO_TOKENS = 16, UNDONE = 8, TURN_TOKENS = 64 };

struct costs {
    struct bench *b;
    struct run *run;
    struct run_session *session;
    char path[4096];
    int64_t depth;
    int32_t *token; /* depth + TURN_TOKENS */
    double *ms;     /* [reps] */
};

static enum err_code report_cost(struct costs *c, const char *what, int n, int64_t bytes, const char *of, struct err *e)
{
    struct bench_spread v = cli_bench_spread(c->ms, n);
    char name[96];

    snprintf(name, sizeof name, "%s history=%lld", what, (long long)c->depth);
    json_t *r = cli_bench_record("state", name, "cost_ms", "lower");
    cli_bench_put_spread(r, "cost", "_ms", v);
    cli_bench_real(r, "noise", (v.max - v.min) / 2 + 0.02 * v.median);
    cli_bench_int(r, "history_tokens", c->depth);
    cli_bench_int(r, "reps", n);
    if (bytes >= 0)
        cli_bench_int(r, of, bytes);
    if (bytes >= 0)
        cli_bench_line(c->b, "%6lld  %-28s %10.3f ms [%.3f, %.3f]  %.2f MB", (long long)c->depth, what, v.median, v.min,
                       v.max, (double)bytes / 1e6);
    else
        cli_bench_line(c->b, "%6lld  %-28s %10.3f ms [%.3f, %.3f]", (long long)c->depth, what, v.median, v.min, v.max);
    return cli_bench_done(c->b, r, e);
}

static enum err_code feed_tokens(struct costs *c, const int32_t *v, int64_t n, struct err *e)
{
    if (run_feed(c->run, 0, v, n, 1, NULL, NULL, NULL, e) != ERR_OK)
        return e->code;
    return cli_interrupted() ? err_set(e, ERR_CANCEL, "interrupted") : ERR_OK;
}

static enum err_code measure_undo(struct costs *c, struct err *e)
{
    for (int i = 0; i < c->b->o->reps; i++) {
        if (feed_tokens(c, c->token, UNDONE, e) != ERR_OK)
            return e->code;
        double from = clock_ms();
        if (run_undo(c->run, 0, UNDONE, e) != ERR_OK)
            return e->code;
        c->ms[i] = clock_ms() - from;
    }
    return report_cost(c, "undo 8 tokens", c->b->o->reps, -1, NULL, e);
}

static enum err_code measure_fork(struct costs *c, struct err *e)
{
    for (int i = 0; i < c->b->o->reps; i++) {
        double from;

        run_clear(c->run, 1);
        from = clock_ms();
        if (run_fork(c->run, 1, 0, e) != ERR_OK)
            return e->code;
        c->ms[i] = clock_ms() - from;
    }
    run_clear(c->run, 1);
    return report_cost(c, "fork", c->b->o->reps, run_snapshot_bytes(c->b->open.model), "snapshot_bytes", e);
}

static enum err_code save_session(struct costs *c, const char *what, struct err *e)
{
    double from = clock_ms();

    if (run_session_save(c->session, c->run, 0, NULL, 0, e) != ERR_OK)
        return e->code;
    c->ms[0] = clock_ms() - from;
    return report_cost(c, what, 1, run_session_stat(c->session).written_bytes, "written_bytes", e);
}

static enum err_code open_session(struct costs *c, struct err *e)
{
    const struct run_session_id id = { 0, c->b->label,
                                       run_adapters_hash(c->b->open.adapters.list, c->b->open.adapters.n) };

    run_session_close(c->session);
    c->session = NULL;
    if (run_session_open(&c->session, c->path, e) != ERR_OK)
        return e->code;
    return run_session_attach(c->session, c->run, &id, e);
}

/* A turn of TURN_TOKENS on a session that was just loaded; the last figure is what it saves. */
static enum err_code measure_turn(struct costs *c, struct err *e)
{
    int64_t n = c->depth;
    double from;

    if (open_session(c, e) != ERR_OK)
        return e->code;
    run_clear(c->run, 0);
    from = clock_ms();
    if (run_session_load(c->session, c->run, 0, n, e) != ERR_OK)
        return e->code;
    c->ms[0] = clock_ms() - from;
    if (report_cost(c, "restore", 1, run_session_stat(c->session).file_bytes, "file_bytes", e) != ERR_OK)
        return e->code;
    from = clock_ms();
    if (feed_tokens(c, c->token + n, TURN_TOKENS, e) != ERR_OK)
        return e->code;
    c->ms[0] = clock_ms() - from;
    return report_cost(c, "next turn, 64 tokens", 1, -1, NULL, e);
}

static enum err_code measure_history(struct costs *c, struct err *e)
{
    double from = clock_ms();

    run_clear(c->run, 0);
    (void)unlink(c->path);
    cli_progress("history of %lld tokens", (long long)c->depth);
    if (feed_tokens(c, c->token, c->depth, e) != ERR_OK)
        return e->code;
    c->ms[0] = clock_ms() - from;
    cli_progress_end();
    if (report_cost(c, "evaluate the history", 1, -1, NULL, e) || measure_fork(c, e) || open_session(c, e) ||
        save_session(c, "save, first time", e) || measure_turn(c, e) || save_session(c, "save, a turn later", e))
        return e->code;
    return measure_undo(c, e);
}

static enum err_code open_all(struct costs *c, int64_t most, struct err *e)
{
    int64_t n = most + TURN_TOKENS + 4 * UNDO_TOKENS;
    const struct model_info *f = model_info(c->b->open.model);

    c->token = calloc((size_t)n, sizeof *c->token);
    c->ms = calloc((size_t)c->b->o->reps, sizeof *c->ms);
    if (c->token == NULL || c->ms == NULL)
        return err_nomem(e);
    for (int64_t i = 0; i < n; i++)
        c->token[i] = (int32_t)(rng_unit(17, 0, (uint64_t)i) * (double)f->n_vocab);
    return cli_bench_run(
        &c->run, c->b,
        (struct run_opts){ .ctx_tokens = n, .n_seq = 2, .rows_max = c->b->o->model.chunk, .undo_tokens = UNDO_TOKENS },
        e);
}

enum err_code cli_bench_cmd_state(struct bench *b, struct err *e)
{
    struct costs c = { .b = b };
    struct bench_list depths;
    char dir[] = "/tmp/chimere-state-XXXXXX";
    enum err_code code;

    if (cli_bench_list(&depths, b->o->depths == NULL ? "1024" : b->o->depths, "depth", 1, 1 << 20, e))
        return e->code;
    if (depths.n == 0)
        return err_set(e, ERR_ARG, "--depth: at least one");
    if (cli_bench_open(b, false, e))
        return e->code;
    if (mkdtemp(dir) == NULL)
        return err_set(e, ERR_IO, "no directory for the session file in /tmp");
    snprintf(c.path, sizeof c.path, "%s/session", dir);
    code = open_all(&c, cli_bench_most(&depths), e);
    for (int i = 0; i < depths.n && code == ERR_OK; i++) {
        c.depth = depths.v[i];
        code = measure_history(&c, e);
    }
    run_session_close(c.session);
    run_close(c.run);
    (void)unlink(c.path);
    (void)rmdir(dir);
    free(c.token);
    free(c.ms);
    return code;
}
