/* SPDX-License-Identifier: Apache-2.0 */
/* lora.c - the command lora: an adapter learns answers, and stays when it knows more and has forgotten nothing.
 * room: cmd */
#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "ask/ask.h"
#include "base/clock.h"
#include "base/io.h"
#include "draft-train/program.h"
#include "model/class.h"
#include "tune/job.h"
#include "tune/lora.h"

#define REPORT_MS 1000.0

struct lora {
    const struct cli_train_options *o;
    const struct cli *cli;
    struct cli_opened x;
    struct cli_opened writing; /* the model while it writes texts */
    struct cli_train_report report;
    struct io_lock *lock;
    struct grad *g;
    struct tune_opts opts;
    struct tune_calls calls;
    struct tune_job job;
    double last_ms; /* of a step that was reported */
};

/* ---- what the training asks for, and tells ---- */

static double now_ms(void *ctx)
{
    const struct lora *l = ctx;

    return l->opts.cpu_time ? clock_cpu_ms() : clock_ms();
}

static bool show_tick(void *ctx, const struct tune_tick *t)
{
    static const char *const doing[] = { [TUNE_ASKING] = "asking the model",
                                         [TUNE_LOOKING] = "looking at what the model says",
                                         [TUNE_TESTING] = "test",
                                         [TUNE_MEASURING] = "measuring" };

    (void)ctx;
    if (t->phase == TUNE_WRITING)
        cli_progress("the model writes what it knows: %" PRId64 " of at most %" PRId64 " texts, %.0f s at most",
                     t->done, t->total, t->left_s);
    else
        cli_progress("%s: %" PRId64 " of %" PRId64 "%s", doing[t->phase], t->done, t->total,
                     t->phase == TUNE_LOOKING ? " tokens" : "");
    return !cli_interrupted();
}

static void report_step(void *ctx, const struct tune_step *s)
{
    struct lora *l = ctx;
    char clock[32];

    cli_train_point(&l->report, s->loss);
    cli_progress("step %" PRId64 " of %" PRId64 ", loss %.3f, %s%s left", s->step, s->steps, s->loss,
                 cli_clock(s->left_s, clock), l->opts.cpu_time ? " of processor time" : "");
    if (clock_ms() - l->last_ms < REPORT_MS)
        return;
    l->last_ms = clock_ms();
    cli_train_event(&l->report, "step",
                    json_pack("{s:I, s:I, s:f, s:f}", "step", (json_int_t)s->step, "steps", (json_int_t)s->steps,
                              "loss", s->loss, "eta_seconds", s->left_s));
}

static void show_note(void *ctx, bool warning, const char *line)
{
    (void)ctx;
    if (warning)
        cli_warn("%s", line);
    else
        cli_note("%s", line);
}

/* A run of as many sequences side by side as memory has room for. */
static enum err_code open_widest_run(struct lora *l, int64_t ctx_tokens, int64_t room_bytes, struct run **run,
                                     struct err *e)
{
    struct cli_opened *x = &l->writing;

    for (int n_seq = l->o->n_seq;; n_seq /= 2) {
        const struct run_opts ro = { .ctx_tokens = ctx_tokens, .n_seq = n_seq };
        const enum err_code code = cli_open_run(run, x, &ro, e);
        const int64_t bytes = code == ERR_OK ? run_state_bytes(*run) : 0;

        if (code != ERR_OK && (code != ERR_NOMEM || n_seq == 1 || x->model == NULL))
            return code;
        if (code == ERR_OK && (bytes <= room_bytes || (n_seq == 1 && strcmp(x->mo.device, "cpu") != 0))) {
            cli_note("the model writes %d texts at a time: %" PRId64 " MiB", n_seq, bytes >> 20);
            return ERR_OK;
        }
        run_close(*run);
        *run = NULL;
        if (n_seq == 1)
            return err_set(e, ERR_ARG,
                           "--memory is too small: a text that the model writes takes %" PRId64 " MiB, and %" PRId64
                           " MiB of it are left",
                           (bytes + (1 << 20) - 1) >> 20, room_bytes >> 20);
        *e = (struct err){ 0 };
    }
}

static enum err_code open_run(void *ctx, const struct adapter *a, int64_t ctx_tokens, int64_t room_bytes,
                              struct tune_run *out, struct err *e)
{
    struct lora *l = ctx;
    struct cli_opened *x = &l->writing;
    struct cli_model_opts mo = l->o->model;

    mo.repack = CLI_REPACK_OFF; /* the weights stay where they are: no memory beside --memory */
    if (cli_open(x, &mo, e) || (a != NULL && cli_adapters_add(&x->adapters, a, x->gguf, e)) || cli_open_model(x, e) ||
        open_widest_run(l, ctx_tokens, room_bytes, &out->run, e))
        return e->code;
    out->adapters = x->adapters.list;
    out->n_adapters = x->adapters.n;
    return ERR_OK;
}

static void close_run(void *ctx, struct run *run)
{
    struct lora *l = ctx;

    run_close(run);
    cli_opened_close(&l->writing);
    l->writing = (struct cli_opened){ 0 };
}

/* ---- files of items ---- */

/* set NULL: items; else a task set of this name. */
static enum err_code read_file(const struct lora *l, struct tune_items *to, const char *path, const char *set,
                               struct err *e)
{
    const struct tune_data *d = &l->job.data;
    const struct progress progress = cli_train_reading(path);
    const struct tune_reading how = { .text = l->x.text,
                                      .tokens_max = l->opts.tokens_max,
                                      .now_s = l->opts.now_s,
                                      .open = to == &d->keep,
                                      .twins = to == &d->learn || to == &d->tests,
                                      .progress = &progress };
    struct str all;
    char *data;
    enum err_code code;

    if (io_read_text(&data, &all.n, path, CLI_TRAIN_FILE_BYTES, cli_interrupted, e))
        return e->code;
    all.p = data;
    code = set == NULL ? tune_items_read(to, &how, path, all, e) : tune_items_read_set(to, &how, set, path, all, e);
    free(data);
    return code;
}

static enum err_code read_files(const struct lora *l, struct tune_items *to, const char *const *files, size_t n,
                                struct err *e)
{
    for (size_t i = 0; i < n; i++)
        if (read_file(l, to, files[i], NULL, e))
            return e->code;
    return ERR_OK;
}

/* Each file of --keep-test is a set with its name. */
static enum err_code read_keep_tests(struct lora *l, struct err *e)
{
    for (size_t i = 0; i < l->o->keep_tests.n; i++) {
        const char *path = l->o->keep_tests.v[i], *slash = strrchr(path, '/'), *base = slash != NULL ? slash + 1 : path;
        const char *end = strrchr(base, '.');
        char name[256];

        (void)snprintf(name, sizeof name, "%.*s", (int)(end != NULL && end > base ? end - base : 255), base);
        if (read_file(l, &l->job.data.keep_tests, path, name, e))
            return e->code;
    }
    return ERR_OK;
}

/* The task sets that came with the program; none where they are not there or the model has no chat template. */
static enum err_code read_sets(const struct lora *l, struct tune_items *to, struct err *e)
{
    struct dirent **list;
    char dir[4096];
    const int n = cli_train_list_sets(dir, sizeof dir, &list);
    enum err_code code = ERR_OK;

    for (int i = 0; i < n; i++) {
        char path[4400], name[256];

        (void)snprintf(path, sizeof path, "%s/%.255s", dir, list[i]->d_name);
        (void)snprintf(name, sizeof name, "%.*s", (int)(strlen(list[i]->d_name) - 6), list[i]->d_name);
        if (code == ERR_OK)
            code = read_file(l, to, path, name, e);
        free(list[i]);
    }
    free(list);
    return code == ERR_UNSUPPORTED ? ERR_OK : code; /* without a chat template the model knows none of them */
}

static enum err_code read_items(struct lora *l, char *const *files, struct err *e)
{
    struct tune_data *d = &l->job.data;
    size_t n = 0;

    while (files[n] != NULL)
        n++;
    return read_files(l, &d->learn, (const char *const *)files, n, e) ||
                   read_files(l, &d->tests, l->o->held_out.v, l->o->held_out.n, e) ||
                   read_files(l, &d->keep, l->o->keep_files.v, l->o->keep_files.n, e) || read_keep_tests(l, e) ||
                   read_sets(l, &d->kept, e)
               ? e->code
               : ERR_OK;
}

/* ---- opening ---- */

static enum err_code read_classes(const char *text, unsigned *classes, struct err *e)
{
    *classes = 0;
    for (const char *at = text; at != NULL;) {
        const char *end = strchr(at, ',');
        const struct str word = { at, end != NULL ? (size_t)(end - at) : strlen(at) };
        unsigned found = 0;

        for (int c = 0; c < MODEL_N_CLASSES; c++)
            if (str_is(word, model_class_name((enum model_class)c)) && c != MODEL_EMBEDDING && c != MODEL_ROUTER &&
                c != MODEL_OTHER && c != MODEL_MTP)
                found = 1u << c;
        *classes |= found;
        if (found == 0)
            return err_set(e, ERR_ARG,
                           "--targets %.*s: of attention, recurrent, feed_forward, shared_expert, experts, output",
                           STR_ARG(word));
        at = end != NULL ? end + 1 : NULL;
    }
    return ERR_OK;
}

static enum err_code begin_lora(struct lora *l, struct err *e)
{
    struct tune_begin_opts b = { .rank = l->o->rank,
                                 .alpha = l->o->alpha,
                                 .scales = l->o->scales,
                                 .scratch = l->o->scratch,
                                 .start = l->o->start,
                                 .rank_given = cli_given(l->cli, "rank"),
                                 .alpha_given = cli_given(l->cli, "alpha"),
                                 .targets_given = cli_given(l->cli, "targets") };

    if (b.targets_given && read_classes(l->o->targets, &b.classes, e))
        return e->code;
    if (!b.targets_given) {
        b.classes = 1u << MODEL_ATTENTION | 1u << MODEL_RECURRENT | 1u << MODEL_SHARED;
        b.more = l->opts.method == TUNE_FIRST ? 1u << MODEL_EXPERTS | 1u << MODEL_DENSE : 0;
    }
    return cli_size(&b.bytes_most, l->o->size, "size", e) ? e->code : tune_begin(&l->job, &b, l->x.gguf, e);
}

static enum err_code open_grad(struct lora *l, struct err *e)
{
    const struct cli_model_opts *o = &l->o->model;
    int64_t most = 0;

    if (o->vram != NULL && cli_size(&most, o->vram, "vram", e))
        return e->code;
    if (grad_open_on(&l->g, l->x.gguf, cli_open_device(o), most, o->n_threads, e))
        return e->code;
    grad_set_progress(l->g, &cli_until_signal);
    return ERR_OK;
}

/* The options of a job that other commands have, too, and what was given. */
static struct tune_opts opts_of(const struct cli_train_options *o, const struct cli *cli)
{
    struct tune_opts t = o->lora;

    t.out = o->out;
    t.time = o->cpu_time != NULL ? o->cpu_time : o->time;
    t.cpu_time = o->cpu_time != NULL;
    t.time_s = o->time_s;
    t.n_text = o->n_text;
    t.steps = o->steps;
    t.rate = o->rate;
    t.rank = o->rank;
    t.keep_versions = o->keep;
    t.tokens_max = o->model.ctx_tokens;
    t.memory_bytes = o->memory_bytes;
    t.seed = o->seed;
    t.rate_given = cli_given(cli, "rate");
    t.shield_given = cli_given(cli, "shield");
    t.forget_given = cli_given(cli, "forget");
    t.tests_named = o->held_out.n > 0;
    t.keep_named = o->keep_files.n > 0;
    t.keep_tests_named = o->keep_tests.n > 0;
    t.alpha_free = o->alpha <= 0 && !o->scales;
    t.now_s = ask_local_s();
    return t;
}

static enum err_code open_all(struct lora *l, char *const *files, struct err *e)
{
    const struct cli_train_options *o = l->o;

    if (io_lock(&l->lock, o->out, e) || cli_train_report_open(&l->report, o, e) || cli_open(&l->x, &o->model, e) ||
        cli_open_text(&l->x, true, e) || open_grad(l, e))
        return e->code;
    l->job.g = l->g;
    l->job.text = l->x.text;
    if (o->neutral && access(o->out, F_OK) == 0)
        return err_set(e, ERR_ARG, "%s is there already: --neutral writes a new file", o->out);
    if (begin_lora(l, e) || o->neutral)
        return e->code;
    return read_items(l, files, e) || tune_job_open(&l->job, e) ? e->code : ERR_OK;
}

static void close_all(struct lora *l)
{
    tune_job_close(&l->job);
    grad_close(l->g);
    cli_opened_close(&l->writing);
    cli_opened_close(&l->x);
    io_unlock(l->lock);
}

/* ---- what is reported ---- */

static void report_begin(struct lora *l)
{
    const struct tune_data *d = &l->job.data;
    const int64_t n_params = l->job.state.lora->n_params;

    cli_train_event(&l->report, "begin",
                    json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "command", "lora", "method",
                              l->opts.method == TUNE_FIRST ? "first" : "zo", "items", (json_int_t)d->n_given,
                              "wordings", (json_int_t)d->n_wordings, "tests", (json_int_t)d->tests.n, "keep",
                              (json_int_t)d->keep.n, "kept", (json_int_t)d->kept.n, "own", (json_int_t)d->own.n,
                              "parameters", (json_int_t)n_params));
    cli_note("to learn: %" PRId64 " items, %" PRId64 " more after an empty thought, %" PRId64
             " further wordings; to test: %" PRId64 " new items, %" PRId64 " of what is kept; to rehearse: %" PRId64
             " of %" PRId64 " texts that the model wrote, %" PRId64 " items to keep; %" PRId64 " parameters",
             d->n_asked, d->n_given - d->n_asked, d->n_wordings, d->tests.n, d->kept.n, d->own.n, d->n_written,
             d->keep.n, n_params);
}

static json_t *number_or_null(double p)
{
    return isnan(p) ? json_null() : json_real(p);
}

static void report_outcome(struct lora *l, const struct tune_outcome *r)
{
    static const char *const ruling[] = { "answers", "likelihood", "pooled", "all", "untested" };
    FILE *f = l->report.events == stdout ? stderr : stdout;
    char name[100] = "held out";

    if (r->n == 0)
        return;
    if (r->set != NULL)
        (void)snprintf(name, sizeof name, "kept%s%.80s", *r->set != '\0' ? " " : "", r->set);
    if (!l->o->quiet)
        cli_train_print_outcome(f, r, &l->job);
    cli_train_event(&l->report, "test",
                    json_pack("{s:s, s:I, s:I, s:f, s:f, s:I, s:I, s:I, s:I, s:o, s:o, s:s*}", "set", name, "items",
                              (json_int_t)r->n, "counts", (json_int_t)r->counts, "loss_before", r->loss[0], "loss",
                              r->loss[1], "exact_before", (json_int_t)r->exact[0], "exact", (json_int_t)r->exact[1],
                              "lost", (json_int_t)r->lost, "won", (json_int_t)r->won, "p", number_or_null(r->p),
                              "loss_bound", number_or_null(r->bound), "judged_by",
                              r->set == NULL ? NULL : ruling[r->ruling]));
}

static void report_end(struct lora *l, bool published)
{
    const struct tune_verdict *v = &l->job.report.verdict;

    cli_progress_end();
    for (int i = 0; i < l->job.report.n_outcome; i++) {
        const struct tune_outcome *r = &l->job.report.outcome[i];

        report_outcome(l, r);
        if (i < CLI_TRAIN_SETS && r->n > 0)
            cli_train_tested(&l->report, r->set == NULL ? CLI_TRAIN_HELD_OUT : CLI_TRAIN_KEPT, r->loss[0], r->loss[1]);
    }
    cli_train_event(&l->report, "end",
                    json_pack("{s:b, s:o, s:o, s:o, s:f, s:I}", "published", published, "p", number_or_null(v->p),
                              "p_kept", number_or_null(v->p_kept), "loss_bound", number_or_null(v->bound), "strength",
                              v->strength, "steps", (json_int_t)l->job.state.step));
}

/* "it answers 410 of 600 new questions (0 before), 212 of 300 without thinking and 198 of 300 after an empty thought;
 * it loses 3 of 199 old answers". */
static void describe(char *to, size_t n, const struct tune_job *j)
{
    const struct tune_report *r = &j->report;
    const struct tune_outcome *new = &r->outcome[0];
    int64_t old = 0, lost = 0;
    char thought[CLI_TRAIN_THOUGHT_BYTES];

    for (int i = 1; i < r->n_outcome; i++)
        if (i == 1 || i < r->n_outcome - 2) { /* the last two of many have sets again */
            old += r->outcome[i].exact[0];
            lost += r->outcome[i].lost;
        }
    (void)snprintf(to, n,
                   "it answers %" PRId64 " of %" PRId64 " new questions (%" PRId64 " %s)%s; it loses %" PRId64
                   " of %" PRId64 " old answers",
                   new->exact[1], new->n, new->exact[0], cli_train_before(j), cli_train_by_thought(thought, new), lost,
                   old);
}

/* Why a set does not count as kept. */
static void say_lost(char *to, size_t n, const struct tune_outcome *r, const struct tune_job *j)
{
    const char *set = *r->set != '\0' ? r->set : "what is kept";
    const bool seen =
        r->ruling == TUNE_BY_LIKELIHOOD ? r->loss[1] - r->loss[0] >= (double)j->o->forget : tune_surely_lost(j, r);

    if (tune_left_open(r))
        (void)snprintf(to, n, "%.100s could not be tested far enough in the time (%" PRId64 " of %" PRId64 " items)",
                       set, r->n, r->whole);
    else if (r->ruling == TUNE_BY_LIKELIHOOD)
        (void)snprintf(to, n,
                       "it %s %.100s (%.3f nats a token more on %" PRId64
                       " items, where less than %.2g may be: p = %.2g, %g is the limit)",
                       seen ? "forgets" : "may forget", set, r->loss[1] - r->loss[0], r->counts, (double)j->o->forget,
                       r->p, TUNE_P_MAX);
    else
        (void)snprintf(to, n,
                       "it %s %.100s (%" PRId64 " of %" PRId64 " answers lost, %" PRId64
                       " won, so that up to %.1f %% are lost and %.1f %% may be)",
                       seen ? "forgets" : "may forget", set, r->lost, r->exact[0], r->won, 100 * r->bound,
                       100 * r->margin);
}

/* What refuses it: sets that it forgets or, where there are none, those that there was no time for. */
static const struct tune_outcome *say_forgotten(char *to, size_t n, const struct tune_job *j)
{
    const struct tune_report *r = &j->report;
    const struct tune_outcome *first = NULL;

    *to = '\0';
    for (int open = 0; open < 2 && first == NULL; open++)
        for (int i = 1; i < r->n_outcome; i++) {
            const struct tune_outcome *set = &r->outcome[i];
            const size_t at = strlen(to);

            if (set->keeps || tune_left_open(set) != open || at + 300 > n)
                continue;
            first = first == NULL ? set : first;
            (void)snprintf(to + at, n - at, "%s", at > 0 ? ", " : "");
            say_lost(to + strlen(to), n - strlen(to), set, j);
        }
    return first;
}

/* What the user can do; set: what decided. */
static const char *say_next(char *to, size_t n, const struct lora *l, const struct tune_outcome *set)
{
    const char *time = l->opts.cpu_time ? "--cpu-time" : "--time";
    const bool sets = l->job.data.kept.n_set > 1 && set != &l->job.report.outcome[l->job.report.n_outcome - 1];

    if (tune_left_open(set))
        (void)snprintf(to, n, "give more %s", time);
    else
        (void)snprintf(to, n, "%s%s%s--keep-test names what has to be kept, and with a larger %s more may be lost",
                       l->job.report.verdict.cut_short ? "give more " : "", l->job.report.verdict.cut_short ? time : "",
                       l->job.report.verdict.cut_short ? ", as none was left to try less of its strength; " : "",
                       set->ruling == TUNE_BY_LIKELIHOOD ? "--forget"
                       : sets                            ? "--margin-set"
                                                         : "--margin");
    return to;
}

/* What the user can do where too little was learnt. */
static const char *say_more(char *to, size_t n, const struct lora *l)
{
    const struct tune_job *j = &l->job;
    const bool likelier = j->report.verdict.p < TUNE_P_MAX;

    if (j->state.step < j->steps)
        (void)snprintf(to, n, "give more %s, as this had time for %" PRId64 " of %" PRId64 " steps%s",
                       l->opts.cpu_time ? "--cpu-time" : "--time", j->state.step, j->steps,
                       likelier ? ", or --accept likelihood" : "");
    else
        (void)snprintf(to, n, "give more --epochs%s", likelier ? ", or --accept likelihood" : "");
    return to;
}

/* Why it is not published, or what it can do. */
static void say_verdict(const struct lora *l)
{
    const struct tune_report *r = &l->job.report;
    const struct tune_verdict *v = &r->verdict;
    const char *old = l->job.begin.old != NULL ? "the old one stays" : "nothing is written";
    const int64_t missing = v->wanted - (r->outcome[0].exact[1] - r->outcome[0].exact[0]);
    char sets[1000], does[400], next[300], at[TUNE_AT_BYTES];
    const struct tune_outcome *set = say_forgotten(sets, sizeof sets, &l->job);

    describe(does, sizeof does, &l->job);
    if (v->better && v->keeps)
        cli_warn("%s is written %s: %s%s%s", l->o->out, tune_at_strength(at, v->strength), does,
                 v->wanted == 0 ? ", and what is held out is likelier" : "",
                 tune_tests_kept(r) ? "" : "; what it forgets is not tested");
    else if (v->better)
        cli_warn("%s: %s: %s; %s; %s", l->o->out, old, sets, does, say_next(next, sizeof next, l, set));
    else if (v->p < TUNE_P_MAX)
        cli_warn("%s: %s: %s, and %" PRId64 " more new %s to be right%s%s; new answers are likelier than before: %s",
                 l->o->out, old, does, missing, missing == 1 ? "one has" : "ones have", v->keeps ? "" : ", and ", sets,
                 say_more(next, sizeof next, l));
    else
        cli_warn("%s: %s: it is not better on what is held out (p = %.2g, %g is the limit); %s: %s", l->o->out, old,
                 v->p, TUNE_P_MAX, does, say_more(next, sizeof next, l));
}

/* ---- all of it ---- */

static enum err_code publish(struct lora *l, struct err *e)
{
    char *record = cli_train_record(&l->job, l->x.gguf);
    const enum err_code code = record != NULL ? tune_publish(&l->job, record, e) : err_nomem(e);

    free(record);
    return code;
}

static enum err_code train_and_judge(struct lora *l, int *status, struct err *e)
{
    struct tune_job *j = &l->job;

    if (tune_rehearse(j, e) || tune_resume(j, e) || tune_test_before(j, e))
        return e->code;
    report_begin(l);
    if (tune_learn(j, e) || tune_decide(j, e))
        return e->code;
    *status = j->report.verdict.better && j->report.verdict.keeps ? EXIT_OK : EXIT_NO;
    report_end(l, *status == EXIT_OK);
    if (publish(l, e))
        return e->code;
    say_verdict(l);
    return ERR_OK;
}

static enum err_code train_lora(struct lora *l, int *status, struct err *e)
{
    if (l->o->neutral)
        return tune_write_neutral(&l->job, e);
    if (tune_resume_check(&l->job, e))
        return e->code;
    if (train_and_judge(l, status, e) && access(l->job.half, F_OK) == 0)
        cli_warn("%s keeps what was learnt: the same command goes on from there", l->job.half);
    return e->code;
}

int cli_train_lora(const struct cli_train_options *o, const struct cli *cli, char *const *files)
{
    struct lora l = { .o = o, .cli = cli, .opts = opts_of(o, cli) };
    struct err e = { 0 };
    int status = EXIT_OK;
    enum err_code code;

    l.calls =
        (struct tune_calls){ now_ms, show_tick, report_step, show_note, open_run, close_run, &cli_until_signal, &l };
    l.job.o = &l.opts;
    l.job.calls = &l.calls;
    l.job.report.from_ms = now_ms(&l);
    code = open_all(&l, files, &e);
    if (code == ERR_OK)
        code = train_lora(&l, &status, &e);
    status = cli_train_end(&l.report, code, status, &e);
    close_all(&l);
    return status;
}
