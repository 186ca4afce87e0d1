/* SPDX-License-Identifier: Apache-2.0 */
/* speed.c - how fast a model runs, and how near that is to what memory allows.   room: cmd
 *
 * Tokens are random: they spread over the experts as evenly as the router lets them. Measurements
 * that are compared with each other (rows in a step, sequences) take turns, so that a machine that
 * slows down slows all.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include "base/clock.h"
#include "base/rng.h"
#include "bench/bench.h"
#include "cli/expert_cache.h"
#include "gen/gen.h"
#include "gguf/gguf.h"
#include "model/launches.h"
#include "model/model.h"
#include "run/placement.h"
#include "run/run.h"

enum {
    OPS_MAX = 64,
    WARM_STEPS = 2,
    TURN_STEPS = 4,
    LONG_TURN =
        16, /* where steps of groups are under way at once: the first and the last one are on one device alone */
    LISTS_MAX = 32
};

struct speed {
    struct bench *b;
    struct run *run;
    struct eval_traffic traffic;
    struct bench_spread read; /* bytes per second of this machine */
    int64_t read_bytes;       /* of the buffer that was read; 0: given, not measured */
    int32_t n_vocab;
    uint64_t drawn;
    struct bench_list prompts, depths, rows, seqs;
    char drafts[24]; /* of a record's name */
    int turn;        /* steps of a turn */
};

static int32_t random_token(struct speed *s)
{
    return (int32_t)(rng_unit(17, 0, s->drawn++) * (double)s->n_vocab);
}

/* Feeds n random tokens to a sequence, with logits of the last one; milliseconds. */
static enum err_code feed_random(struct speed *s, int seq, int64_t n, double *ms, struct err *e)
{
    int32_t *v = calloc((size_t)n + 1, sizeof *v);
    double from;
    enum err_code code;

    if (v == NULL)
        return err_nomem(e);
    for (int64_t i = 0; i < n; i++)
        v[i] = random_token(s);
    from = clock_ms();
    code = n > 0 ? run_feed(s->run, seq, v, n, 1, NULL, NULL, NULL, e) : ERR_OK;
    if (ms != NULL)
        *ms = clock_ms() - from;
    free(v);
    if (code == ERR_OK && cli_interrupted())
        return err_set(e, ERR_CANCEL, "interrupted");
    return code;
}

/* Random rows, n_rows to each of the sequences first .. end - 1, with all logits (where they are not the host's, the
 * best of each row comes over). With room for drafts a sequence's rows after the first are drafts as far as that goes.
 */
static void fill_rows(struct speed *s, struct run_row *row, struct logits_want *want, int n_rows, int first, int end)
{
    const int drafts = n_rows - 1 < s->b->o->drafts ? n_rows - 1 : s->b->o->drafts;

    for (int j = 0; j < n_rows * (end - first); j++) {
        row[j] = (struct run_row){ random_token(s), first + j / n_rows, true, j % n_rows >= n_rows - drafts };
        want[j] = (struct logits_want){ .n_top = 1, .inv_temp = 1 };
    }
}

/* Half of the drafts are kept. */
static void settle_rows(struct speed *s, int n_rows, int first, int end)
{
    const int drafts = n_rows - 1 < s->b->o->drafts ? n_rows - 1 : s->b->o->drafts;

    for (int j = first; j < end; j++)
        run_settle(s->run, j, drafts / 2);
}

/* Steps of all sequences. */
static enum err_code whole_steps(struct speed *s, struct run_row *row, struct logits_want *want, int n_steps,
                                 int n_rows, int n_seq, double *total, struct err *e)
{
    for (int i = 0; i < n_steps; i++) {
        fill_rows(s, row, want, n_rows, 0, n_seq);
        const double from = clock_ms();

        if (run_step_want(s->run, row, want, n_rows * n_seq, NULL, NULL, e))
            return e->code;
        settle_rows(s, n_rows, 0, n_seq);
        *total += clock_ms() - from;
    }
    return ERR_OK;
}

/* The same in groups: a group's next step begins when its last one has ended, while those of the others are under way.
 */
static enum err_code group_steps(struct speed *s, struct run_row *row, struct logits_want *want, int n_steps,
                                 int n_rows, int n_seq, double *total, struct err *e)
{
    const int n = run_flights(s->run) < n_seq ? run_flights(s->run) : n_seq;
    const double from = clock_ms();
    enum err_code code = ERR_OK;
    struct err other;

    for (int i = 0; i < n * (n_steps + 1); i++) {
        const int k = i % n, first = k * n_seq / n, end = (k + 1) * n_seq / n;

        if (i >= n && run_step_end(s->run, k, code == ERR_OK ? e : &other) != ERR_OK && code == ERR_OK)
            code = e->code;
        if (i >= n)
            settle_rows(s, n_rows, first, end);
        if (code != ERR_OK || i >= n * n_steps)
            continue;
        fill_rows(s, row, want, n_rows, first, end);
        code = run_step_begin(s->run, k, row, want, n_rows * (end - first), NULL, NULL, e);
    }
    *total = clock_ms() - from;
    return code;
}

static bool in_groups(const struct speed *s, int n_rows, int n_seq)
{
    const int n = run_flights(s->run), most = n_rows * ((n_seq + n - 1) / n);

    return n > 1 && n_seq > 1 && most <= run_flight_rows(s->run) && most <= run_flight_logits(s->run);
}

/* n_steps steps of n_rows rows each to each of n_seq sequences, in groups on several devices; milliseconds until each
 * sequence has had a step. */
static enum err_code time_steps(struct speed *s, int n_steps, int n_rows, int n_seq, double *ms, struct err *e)
{
    struct run_row *row = calloc((size_t)n_rows * (size_t)n_seq, sizeof *row);
    struct logits_want *want = calloc((size_t)n_rows * (size_t)n_seq, sizeof *want);
    double total = 0;
    enum err_code code = row == NULL || want == NULL ? err_nomem(e)
                                                     : (in_groups(s, n_rows, n_seq) ? group_steps : whole_steps)(
                                                           s, row, want, n_steps, n_rows, n_seq, &total, e);

    free(want);
    free(row);
    *ms = total / n_steps;
    if (code == ERR_OK && cli_interrupted())
        return err_set(e, ERR_CANCEL, "interrupted");
    return code;
}

/* ---- what a record tells besides its figure ---- */

/* Where the time went while it was measured, for each of n steps. */
static void put_ops(const struct speed *s, json_t *r, int64_t n_steps)
{
    struct model_timing t[OPS_MAX];
    int n = model_timings(s->b->open.model, t, OPS_MAX);
    json_t *ops = json_object();
    double all = 0;

    for (int i = 0; i < n; i++)
        all += (double)t[i].ns;
    for (int i = 0; i < n && all > 0; i++) {
        double ms = (double)t[i].ns / 1e6 / (double)n_steps;

        if (t[i].ns == 0) /* done by the launches of another operation */
            continue;
        json_object_set_new(ops, t[i].op, json_pack("{s:f, s:f}", "step_ms", ms, "share", (double)t[i].ns / all));
        if (s->b->o->verbose && (double)t[i].ns > 0.005 * all)
            cli_bench_line(s->b, "    %-14s %9.3f ms  %5.1f %%", t[i].op, ms, 100 * (double)t[i].ns / all);
    }
    if (r != NULL)
        json_object_set_new(r, "by_op", ops);
    if (model_launches(s->b->open.model) > 0)
        cli_bench_real(r, "step_launches", (double)model_launches(s->b->open.model) / (double)n_steps);
}

/* What was read of experts in between, for each of n_tokens. */
static void put_reads(const struct speed *s, json_t *r, const struct io_cache_stats *from,
                      const struct io_cache_stats *now, double ms, double n_tokens)
{
    const double bytes = (double)(now->bytes - from->bytes), hits = (double)(now->hits - from->hits);
    const double missed = (double)(now->reads - from->reads - (now->ahead - from->ahead));

    if (now->slots == 0)
        return;
    if (r != NULL)
        json_object_set_new(r, "expert_cache", cli_cache_json(now, from));
    cli_bench_real(r, "token_read_bytes", bytes / n_tokens);
    cli_bench_real(r, "read_bytes_per_s", bytes / ms * 1e3);
    cli_bench_line(s->b, "    experts read %.2f MB a token, %.1f MB/s; %.1f %% of uses in memory; waited %.0f %%",
                   bytes / n_tokens / 1e6, bytes / ms / 1e3, 100 * hits / (hits + missed + (hits + missed == 0)),
                   (double)(now->wait_ns - from->wait_ns) / 1e4 / ms);
}

/* Bytes that a step of n_rows rows at a depth moves, for each kind; the sum. */
static double put_bytes(const struct speed *s, json_t *r, int n_rows, int n_seq, int64_t depth)
{
    json_t *kinds = json_object();
    const char *k, *v;

    run_kv(s->run, &k, &v);
    double kv = (double)s->traffic.kv_floats * cli_bench_kv_bytes(k, v) * (double)(depth + 1) * n_seq;
    double state = 2.0 * (double)s->traffic.state_bytes * n_seq, sum = kv + state;

    for (int c = 0; c < MODEL_N_CLASSES; c++) {
        double bytes = eval_step_bytes(&s->traffic, (enum model_class)c, n_rows * n_seq);

        if (bytes > 0)
            json_object_set_new(kinds, model_class_name((enum model_class)c), json_real(bytes));
        sum += bytes;
    }
    json_object_set_new(kinds, "kv", json_real(kv));
    json_object_set_new(kinds, "state", json_real(state));
    if (r != NULL)
        json_object_set_new(r, "step_bytes_by_kind", kinds);
    cli_bench_real(r, "step_bytes", sum);
    return sum;
}

/* Memory of this process so far, the mapped file included. */
static double put_peak(json_t *r)
{
    struct rusage u;

    if (getrusage(RUSAGE_SELF, &u) != 0)
        return 0;
    cli_bench_int(r, "peak_memory_bytes", (int64_t)u.ru_maxrss * 1024);
    return (double)u.ru_maxrss / 1e3;
}

static void put_fraction(const struct speed *s, json_t *r, double bytes, double ms)
{
    put_peak(r);
    cli_bench_real(r, "bandwidth_bytes_per_s", s->read.median);
    if (s->read_bytes > 0)
        cli_bench_int(r, "bandwidth_buffer_bytes", s->read_bytes);
    cli_bench_real(r, "bandwidth_fraction", bytes / (ms * 1e-3) / s->read.median);
}

/* ---- measurements ---- */

static enum err_code report_load(struct speed *s, struct err *e)
{
    json_t *r = cli_bench_record("speed", "load", "load_ms", "lower");

    cli_bench_real(r, "load_ms", s->b->open.load_ms);
    cli_bench_real(r, "noise", 0.5 * s->b->open.load_ms + 20);
    cli_bench_int(r, "run_state_bytes", run_state_bytes(s->run));
    cli_bench_line(s->b, "load %.1f ms; %.1f MB of weights, %.1f MB reserved for memory of sequences; peak %.1f MB",
                   s->b->open.load_ms, (double)model_info(s->b->open.model)->weight_bytes / 1e6,
                   (double)run_state_bytes(s->run) / 1e6, put_peak(r));
    return cli_bench_done(s->b, r, e);
}

static enum err_code measure_prompt(struct speed *s, int64_t n, struct err *e)
{
    int reps = s->b->o->reps;
    double *tps = calloc((size_t)reps, sizeof *tps), *ms = calloc((size_t)reps, sizeof *ms);
    char what[64];
    json_t *r;
    enum err_code code = tps && ms ? ERR_OK : err_nomem(e);
    struct bench_spread v;
    struct io_cache_stats reads = { 0 }, done = { 0 };
    double all_ms = 0;

    for (int i = -1; i < reps && code == ERR_OK; i++) { /* -1 warms up */
        double t = 0;

        if (i == 0)
            (void)model_cache_stats(s->b->open.model, &reads);

        cli_progress("prompt of %lld: %d of %d", (long long)n, i + 1, reps);
        run_clear(s->run, 0);
        code = feed_random(s, 0, n, &t, e);
        if (i >= 0) {
            ms[i] = t;
            all_ms += t;
            tps[i] = (double)n * 1e3 / t;
        }
    }
    (void)model_cache_stats(s->b->open.model, &done);
    if (code == ERR_OK) {
        run_clear(s->run, 0);
        model_time(s->b->open.model, true);
        code = feed_random(s, 0, n, NULL, e);
        model_time(s->b->open.model, false);
    }
    if (code == ERR_OK) {
        snprintf(what, sizeof what, "prompt tokens=%lld%s", (long long)n, s->drafts);
        r = cli_bench_record("speed", what, "prompt_tps", "higher");
        v = cli_bench_spread(tps, reps);
        cli_bench_put_spread(r, "prompt", "_tps", v);
        cli_bench_put_noise(r, v);
        cli_bench_real(r, "first_token_ms", cli_bench_spread(ms, reps).median);
        cli_bench_int(r, "prompt_tokens", n);
        put_peak(r);
        cli_bench_int(r, "reps", reps);
        cli_bench_line(s->b, "prompt %6lld tokens   %9.1f tokens/s [%.1f, %.1f]  first token %.1f ms", (long long)n,
                       v.median, v.min, v.max, ms[reps / 2]);
        put_reads(s, r, &reads, &done, all_ms, (double)n * reps);
        put_ops(s, r, (n + run_rows_max(s->run) - 1) / run_rows_max(s->run));
        code = cli_bench_done(s->b, r, e);
    }
    free(tps);
    free(ms);
    return code;
}

static enum err_code measure_decode(struct speed *s, int64_t depth, struct err *e)
{
    int reps = s->b->o->reps, n = s->b->o->decode_tokens;
    double *tps = calloc((size_t)reps, sizeof *tps), ms = 0, bytes, all_ms = 0;
    struct io_cache_stats reads = { 0 }, done = { 0 };
    char what[64];
    json_t *r;
    enum err_code code = tps ? ERR_OK : err_nomem(e);
    struct bench_spread v;

    if (run_pos(s->run, 0) > depth)
        run_clear(s->run, 0);
    if (code == ERR_OK) /* the records of shallower depths stay */
        code = feed_random(s, 0, depth - run_pos(s->run, 0), NULL, e);
    if (code == ERR_OK)
        code = time_steps(s, WARM_STEPS, 1, 1, &ms, e);
    (void)model_cache_stats(s->b->open.model, &reads);
    for (int i = 0; i < reps && code == ERR_OK; i++) {
        cli_progress("decode at %lld: %d of %d", (long long)depth, i + 1, reps);
        code = time_steps(s, n, 1, 1, &ms, e);
        tps[i] = 1e3 / ms;
        all_ms += ms * n;
    }
    (void)model_cache_stats(s->b->open.model, &done);
    if (code == ERR_OK) {
        model_time(s->b->open.model, true);
        code = time_steps(s, s->turn, 1, 1, &ms, e);
        model_time(s->b->open.model, false);
    }
    if (code == ERR_OK) {
        snprintf(what, sizeof what, "decode depth=%lld%s", (long long)depth, s->drafts);
        r = cli_bench_record("speed", what, "decode_tps", "higher");
        v = cli_bench_spread(tps, reps);
        cli_bench_put_spread(r, "decode", "_tps", v);
        cli_bench_put_noise(r, v);
        cli_bench_int(r, "depth_tokens", depth);
        cli_bench_int(r, "tokens", n);
        cli_bench_int(r, "reps", reps);
        bytes = put_bytes(s, r, 1, 1, depth + (int64_t)reps * n / 2);
        put_fraction(s, r, bytes, 1e3 / v.median);
        cli_bench_line(s->b,
                       "decode at %6lld       %9.2f tokens/s [%.2f, %.2f]  %.1f MB a token, %.0f %% of "
                       "%.1f GB/s",
                       (long long)depth, v.median, v.min, v.max, bytes / 1e6, 100 * bytes * v.median / s->read.median,
                       s->read.median / 1e9);
        put_reads(s, r, &reads, &done, all_ms, (double)n * reps);
        put_ops(s, r, s->turn);
        code = cli_bench_done(s->b, r, e);
    }
    free(tps);
    return code;
}

/* One line of a family of steps: rows to one sequence, or one row to each of several. */
static enum err_code report_family(struct speed *s, bool of_rows, int n, double *ms, double one_ms, struct err *e)
{
    struct bench_spread v = cli_bench_spread(ms, s->b->o->reps);
    char what[64], ratio[32] = "";
    json_t *r;
    double bytes;
    int64_t depth = s->depths.v[0];

    snprintf(what, sizeof what, "%s n=%d depth=%lld%s", of_rows ? "rows" : "sequences", n, (long long)depth, s->drafts);
    r = cli_bench_record("speed", what, "step_ms", "lower");
    cli_bench_put_spread(r, "step", "_ms", v);
    cli_bench_put_noise(r, v);
    cli_bench_int(r, of_rows ? "rows" : "sequences", n);
    cli_bench_real(r, "tps", n * 1e3 / v.median);
    if (one_ms > 0) {
        cli_bench_real(r, of_rows ? "cost_ratio" : "slowdown_ratio", v.median / one_ms);
        snprintf(ratio, sizeof ratio, "  r = %.2f", v.median / one_ms);
    }
    cli_bench_int(r, "reps", s->b->o->reps);
    bytes = put_bytes(s, r, of_rows ? n : 1, of_rows ? 1 : n, depth);
    put_fraction(s, r, bytes, v.median);
    cli_bench_line(s->b, "%-9s %2d at %6lld  %9.3f ms a step [%.3f, %.3f]  %8.1f tokens/s%s",
                   of_rows ? "rows" : "sequences", n, (long long)depth, v.median, v.min, v.max, n * 1e3 / v.median,
                   ratio);
    put_ops(s, r, s->turn);
    return cli_bench_done(s->b, r, e);
}

static enum err_code measure_family(struct speed *s, bool of_rows, struct err *e)
{
    const struct bench_list *l = of_rows ? &s->rows : &s->seqs;
    int reps = s->b->o->reps;
    double *ms = calloc((size_t)(l->n * reps) + 1, sizeof *ms), one = 0, skip;
    enum err_code code = ms ? ERR_OK : err_nomem(e);

    for (int q = 0; q < (of_rows ? 1 : (int)cli_bench_most(l)) && code == ERR_OK; q++) {
        run_clear(s->run, q);
        code = feed_random(s, q, s->depths.v[0], NULL, e);
    }
    for (int i = 0; i < reps && code == ERR_OK; i++)
        for (int k = 0; k < l->n && code == ERR_OK; k++) {
            int n = (int)l->v[k], n_rows = of_rows ? n : 1, n_seq = of_rows ? 1 : n;

            cli_progress("%s: %d of %d", of_rows ? "rows" : "sequences", i + 1, reps);
            /* others came between: a GPU may have to record this kind of step again */
            code = time_steps(s, WARM_STEPS, n_rows, n_seq, &skip, e);
            if (code == ERR_OK)
                code = time_steps(s, s->turn, n_rows, n_seq, &ms[k * reps + i], e);
        }
    for (int k = 0; k < l->n && code == ERR_OK; k++)
        if (l->v[k] == 1)
            one = cli_bench_spread(ms + (int64_t)k * reps, reps).median;
    for (int k = 0; k < l->n && code == ERR_OK; k++) {
        const int n = (int)l->v[k];

        model_time(s->b->open.model, true);
        code = time_steps(s, s->turn, of_rows ? n : 1, of_rows ? 1 : n, &skip, e);
        model_time(s->b->open.model, false);
        if (code == ERR_OK)
            code = report_family(s, of_rows, n, ms + (int64_t)k * reps, one, e);
    }
    free(ms);
    return code;
}

/* ---- through the engine ---- */

/* Steps of an engine until n_tokens more tokens are there, or, where that is 0, one step; milliseconds. */
static enum err_code gen_steps(struct gen *g, int n_tokens, double *ms, struct err *e)
{
    const double from = clock_ms();
    struct gen_event ev;
    int n = 0;

    do {
        if (gen_step(g, e))
            return e->code;
        while (gen_next(g, &ev)) {
            n += ev.kind == GEN_TOKEN;
            if (ev.kind == GEN_END && ev.end == GEN_FAILED)
                return err_copy(e, &ev.err);
        }
    } while (n < n_tokens && gen_busy(g));
    *ms = clock_ms() - from;
    return cli_interrupted() ? err_set(e, ERR_CANCEL, "interrupted") : ERR_OK;
}

/* A turn of n_seq greedy answers, after prompts of depth + 1 tokens. (Random weights repeat rows of the head: with the
 * logits that are equal then, a sampler would have to see whole rows.) */
static enum err_code gen_turn(struct speed *s, int n_seq, int64_t depth, double *ms, struct err *e)
{
    struct gen_request q = gen_defaults();
    int32_t *v = calloc((size_t)depth + 1, sizeof *v);
    struct gen *g = NULL;
    enum err_code code = v ? gen_open(&g,
                                      &(struct gen_opts){ .run = s->run,
                                                          .end_token = -1,
                                                          .adapters = s->b->open.adapters.list,
                                                          .n_adapters = s->b->open.adapters.n },
                                      e)
                           : err_nomem(e);
    int64_t id, steps_max = depth + 2 * n_seq;

    q.prompt = v;
    q.n_prompt = depth + 1;
    for (int i = 0; i < n_seq && code == ERR_OK; i++) {
        for (int64_t j = 0; j <= depth; j++)
            v[j] = random_token(s);
        code = gen_submit(g, &q, &id, e);
    }
    for (int64_t i = 0; i < steps_max && code == ERR_OK && gen_reading(g) > 0; i++)
        code = gen_steps(g, 0, ms, e);
    if (code == ERR_OK)
        code = gen_steps(g, WARM_STEPS * n_seq, ms, e) ? e->code : gen_steps(g, s->turn * n_seq, ms, e);
    *ms /= s->turn;
    gen_close(g);
    free(v);
    return code;
}

static enum err_code report_gen(struct speed *s, int n, double *plain, double *gen, struct err *e)
{
    const int reps = s->b->o->reps;
    const struct bench_spread p = cli_bench_spread(plain, reps), v = cli_bench_spread(gen, reps);
    char what[64];
    json_t *r;

    snprintf(what, sizeof what, "engine n=%d depth=%lld", n, (long long)s->depths.v[0]);
    r = cli_bench_record("speed", what, "step_ms", "lower");
    cli_bench_put_spread(r, "step", "_ms", v);
    cli_bench_put_noise(r, v);
    cli_bench_int(r, "sequences", n);
    cli_bench_real(r, "tps", n * 1e3 / v.median);
    cli_bench_real(r, "engine_ratio", p.median / v.median);
    cli_bench_int(r, "reps", reps);
    cli_bench_line(s->b,
                   "engine    %2d at %6lld  %9.3f ms a step [%.3f, %.3f]  %8.1f tokens/s  plain steps take %.2f of it",
                   n, (long long)s->depths.v[0], v.median, v.min, v.max, n * 1e3 / v.median, p.median / v.median);
    return cli_bench_done(s->b, r, e);
}

/* Compares the generation engine with plain steps of as many sequences; the two are measured in turns. */
static enum err_code measure_gen(struct speed *s, int n, struct err *e)
{
    const int reps = s->b->o->reps;
    double *ms = calloc(2 * (size_t)reps, sizeof *ms), skip;
    enum err_code code = ms ? ERR_OK : err_nomem(e);

    for (int i = 0; i < reps && code == ERR_OK; i++) {
        cli_progress("engine: %d of %d", i + 1, reps);
        for (int q = 0; q < n && code == ERR_OK; q++) {
            run_clear(s->run, q);
            code = feed_random(s, q, s->depths.v[0], NULL, e);
        }
        if (code == ERR_OK)
            code = time_steps(s, WARM_STEPS, 1, n, &skip, e) || time_steps(s, s->turn, 1, n, &ms[i], e)
                       ? e->code
                       : gen_turn(s, n, s->depths.v[0], &ms[reps + i], e);
    }
    if (code == ERR_OK)
        code = report_gen(s, n, ms, ms + reps, e);
    free(ms);
    return code;
}

/* ---- the whole ---- */

static int64_t sum_of(const struct bench_list *l)
{
    int64_t n = 0;

    for (int i = 0; i < l->n; i++)
        n += l->v[i];
    return n;
}

/* Context for the longest measurement. */
static int64_t context_needed(const struct speed *s)
{
    int64_t asked = s->b->o->model.ctx_tokens;
    int64_t reps = s->b->o->reps, depth = cli_bench_most(&s->depths);
    int64_t need[5] = { cli_bench_most(&s->prompts), depth + WARM_STEPS + reps * s->b->o->decode_tokens + s->turn,
                        s->depths.v[0] + ((WARM_STEPS + s->turn) * reps + s->turn) * sum_of(&s->rows),
                        s->depths.v[0] + ((WARM_STEPS + s->turn) * reps + s->turn) * s->seqs.n,
                        depth + 2 * (WARM_STEPS + s->turn) };
    int64_t most = asked > 1 ? asked : 1;

    for (int i = 0; i < 5; i++)
        most = need[i] > most ? need[i] : most;
    return most;
}

/* Reads a buffer as large as the weights: a model in the cache is held against the cache. */
static enum err_code measure_read(struct speed *s, struct err *e)
{
    struct model_opts o = { .device = cli_open_device(&s->b->o->model), .n_threads = s->b->o->model.n_threads };
    struct model_reads reads = { .reps = 5 };
    int64_t most = cli_bench_read_bytes(s->b);
    double bytes = 0;

    if (s->b->o->bandwidth > 0) {
        s->read.median = (double)s->b->o->bandwidth * 1e9;
        return ERR_OK;
    }
    for (int c = 0; c < MODEL_N_CLASSES; c++)
        bytes += (double)s->traffic.weight_bytes[c];
    s->read_bytes = bytes < 0x1p20 ? 1 << 20 : bytes > (double)most ? most : (int64_t)bytes;
    while (cli_bench_read_speed(&s->read, &reads, &o, s->read_bytes, e)) {
        if (e->code != ERR_NOMEM || s->read_bytes <= 1 << 24)
            return e->code;
        s->read_bytes /= 2; /* the device is full of the model */
    }
    return ERR_OK;
}

/* A device's memory after all that: what was planned, what is taken. */
static enum err_code report_memory(struct speed *s, struct err *e)
{
    const struct run_placement *f = s->b->open.placement;
    int64_t used = model_device_used(s->b->open.model);
    json_t *r;

    if (f == NULL || used < 0)
        return ERR_OK;
    r = cli_bench_record("speed", "device memory", "device_used_bytes", "lower");
    cli_bench_int(r, "device_used_bytes", used);
    cli_bench_int(r, "planned_bytes", f->total_bytes);
    cli_bench_int(r, "budget_bytes", f->budget_bytes);
    cli_bench_real(r, "noise", 0.01 * (double)used);
    cli_bench_line(s->b, "device memory: %.3f GB taken, %.3f GB planned (%+.2f %%)", (double)used / 1e9,
                   (double)f->total_bytes / 1e9, 100.0 * ((double)used / (double)f->total_bytes - 1));
    return cli_bench_done(s->b, r, e);
}

static enum err_code measure_all(struct speed *s, struct err *e)
{
    if (report_load(s, e))
        return e->code;
    for (int i = 0; i < s->prompts.n; i++)
        if (measure_prompt(s, s->prompts.v[i], e))
            return e->code;
    for (int i = 0; i < s->depths.n; i++)
        if (measure_decode(s, s->depths.v[i], e))
            return e->code;
    if (s->rows.n > 0 && measure_family(s, true, e))
        return e->code;
    if (s->seqs.n > 0 && measure_family(s, false, e))
        return e->code;
    for (int i = 0; i < s->seqs.n; i++)
        if (measure_gen(s, (int)s->seqs.v[i], e))
            return e->code;
    return report_memory(s, e);
}

enum err_code cli_bench_cmd_speed(struct bench *b, struct err *e)
{
    struct speed s = { .b = b };
    int n_seq, rows_max, most;
    enum err_code code;

    if (cli_bench_list(&s.prompts, b->o->prompts, "prompt", 1, 1 << 24, e) ||
        cli_bench_list(&s.depths, b->o->depths == NULL ? "0,1024" : b->o->depths, "depth", 0, 1 << 24, e) ||
        cli_bench_list(&s.rows, b->o->rows, "rows", 1, 1024, e) ||
        cli_bench_list(&s.seqs, b->o->seqs, "seqs", 1, 1024, e))
        return e->code;
    if (s.depths.n == 0)
        return err_set(e, ERR_ARG, "--depth: at least one");
    if (cli_bench_open(b, false, e) || eval_traffic(&s.traffic, b->open.gguf, e))
        return e->code;
    if (b->o->drafts > 0)
        snprintf(s.drafts, sizeof s.drafts, " drafts=%d", b->o->drafts);
    s.turn = strchr(model_info(b->open.model)->device, ',') != NULL ? LONG_TURN : TURN_STEPS;
    s.traffic.n_used = model_info(b->open.model)->n_used;
    s.n_vocab = model_info(b->open.model)->n_vocab;
    n_seq = s.seqs.n > 0 ? (int)cli_bench_most(&s.seqs) : 1;
    rows_max = b->o->model.chunk > 0 ? b->o->model.chunk : 512; /* the least that there will be */
    if (rows_max < cli_bench_most(&s.rows) || rows_max < n_seq)
        return err_set(e, ERR_ARG, "--chunk %d: fewer rows than --rows or --seqs ask for", rows_max);
    if (measure_read(&s, e)) /* first: later the device's memory is full */
        return e->code;
    most = s.rows.n > 0 ? (int)cli_bench_most(&s.rows) : 1;
    if (cli_bench_run(&s.run, b,
                      (struct run_opts){ .ctx_tokens = context_needed(&s),
                                         .n_seq = n_seq,
                                         .rows_max = b->o->model.chunk,
                                         .draft_max = b->o->drafts,
                                         .logits_max = most > n_seq ? most : n_seq },
                      e))
        return e->code;
    code = measure_all(&s, e);
    run_close(s.run);
    return code;
}
