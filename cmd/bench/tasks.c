/* SPDX-License-Identifier: Apache-2.0 */
/* tasks.c - answers to task sets, graded; comparison of two sets of answers.   room: cmd */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/io.h"
#include "base/memory.h"
#include "bench/bench.h"
#include "chat/chat.h"
#include "gen/gen.h"
#include "grammar/grammar.h"
#include "model/model.h"
#include "run/run.h"

#define Z_95   1.959964 /* normal quantile of a 95 % interval */
#define ROUNDS 10000    /* of the bootstrap */

struct task {
    json_t *item;
    const char *set; /* name of the file, without directory and .jsonl */
    struct ask_request *asked;
    char hash[24], prompt_hash[24]; /* of the item as the file has it; of its prompt's tokens */
    int right, n, cut;              /* of its samples */
};

struct tasks {
    struct bench *b;
    struct chat *format;
    struct grammar_vocab *vocab; /* for calls of tools */
    struct task *v;
    size_t n, cap;
    bool *done; /* [n * samples]: in the file of answers */
    int64_t left;
    char settings[160];
    int out;          /* -1: answers are not kept */
    bool made;        /* there was no file of answers */
    int64_t n_tokens; /* written */
};

/* ---- reading ---- */

const char *cli_bench_set_name(const char *path, char buf[128])
{
    const char *slash = strrchr(path, '/');
    size_t n;

    snprintf(buf, 128, "%s", slash ? slash + 1 : path);
    n = strlen(buf);
    if (n > 6 && strcmp(buf + n - 6, ".jsonl") == 0)
        buf[n - 6] = '\0';
    return buf;
}

/* What templates take for today, 2026-01-01: answers of another day are to be compared. */
#define EVAL_DATE_S 1767225600

enum err_code cli_bench_question(struct ask *a, json_t **kwargs, const struct bench *b, json_t *item, struct err *e)
{
    const json_t *think = json_object_get(item, "enable_thinking");
    json_t *extra;

    if (think == NULL && json_object_set_new(item, "enable_thinking", json_boolean(b->o->think == 0)))
        return err_nomem(e);
    extra = json_pack("{s:O}", "enable_thinking", json_object_get(item, "enable_thinking"));
    if (extra == NULL)
        return err_nomem(e);
    *a = ask_defaults();
    a->messages = json_object_get(item, "messages");
    a->tools = json_object_get(item, "tools");
    a->kwargs = *kwargs = extra;
    a->now_s = EVAL_DATE_S;
    a->tokens_max = b->o->predict_max;
    a->sample.temp = b->o->temp;
    a->sample.top_p = b->o->top_p;
    a->sample.seed = (uint64_t)b->o->seed;
    return ERR_OK;
}

/* What the task asks, ready for the engine. */
static enum err_code ask_task(struct tasks *ts, struct task *t, struct err *e)
{
    const struct ask_model m = { .text = ts->b->open.text, .chat = ts->format, .vocab = &ts->vocab };
    struct ask a;
    json_t *kwargs = NULL;
    enum err_code code = cli_bench_question(&a, &kwargs, ts->b, t->item, e);

    if (code == ERR_OK)
        code = ask_open(&t->asked, &a, &m, NULL, e);
    json_decref(kwargs);
    return code;
}

static enum err_code add_task(struct tasks *ts, json_t *item, const char *set, struct err *e)
{
    if (memory_room(&ts->v, &ts->cap, ts->n + 1, sizeof *ts->v, e))
        return e->code;
    struct task *t = &ts->v[ts->n++];
    char *text = json_dump(item, JSON_COMPACT | JSON_SORT_KEYS);

    *t = (struct task){ .item = json_incref(item), .set = set };
    if (text == NULL)
        return err_nomem(e);
    snprintf(t->hash, sizeof t->hash, "%016" PRIx64, io_hash(0, text, strlen(text)));
    free(text);
    if (ask_task(ts, t, e))
        return e->code;
    snprintf(t->prompt_hash, sizeof t->prompt_hash, "%016" PRIx64,
             io_hash(0, t->asked->prompt.v, (size_t)t->asked->prompt.n * sizeof(int32_t)));
    return ERR_OK;
}

/* Whether the last task is one that its set had before, by whatever id: a second answer to it would tell nothing new,
 * and make the interval narrower. */
static bool is_copy(const struct tasks *ts)
{
    const struct task *t = &ts->v[ts->n - 1];

    for (size_t i = ts->n - 1; i-- > 0 && ts->v[i].set == t->set;)
        if (strcmp(ts->v[i].prompt_hash, t->prompt_hash) == 0 &&
            json_equal(json_object_get(ts->v[i].item, "answer"), json_object_get(t->item, "answer")) &&
            json_equal(json_object_get(ts->v[i].item, "check"), json_object_get(t->item, "check")))
            return true;
    return false;
}

static void free_task(struct task *t)
{
    json_decref(t->item);
    ask_close(t->asked);
}

static enum err_code read_set(struct tasks *ts, const char *path, struct err *e)
{
    json_t *all;
    char buf[128], *set = strdup(cli_bench_set_name(path, buf)); /* free_tasks() frees it */
    enum err_code code = set ? cli_bench_load(&all, path, e) : err_nomem(e);
    size_t n, n_copies = 0;

    if (code) {
        free(set);
        return code;
    }
    n = json_array_size(all);
    if (ts->b->o->limit > 0 && (size_t)ts->b->o->limit < n)
        n = (size_t)ts->b->o->limit;
    if (n == 0)
        code = err_set(e, ERR_FORMAT, "%s: no items", path);
    for (size_t i = 0; i < n && code == ERR_OK; i++) {
        json_t *item = json_array_get(all, i);

        code = eval_task_check(item, e);
        if (code == ERR_OK)
            code = add_task(ts, item, set, e);
        if (code)
            code = err_wrap(e, "%s: item %zu", path, i + 1);
        else if (is_copy(ts)) {
            free_task(&ts->v[--ts->n]);
            n_copies++;
        }
    }
    if (n_copies > 0)
        cli_warn("%s: %zu of %zu items are copies of earlier ones and are left out", path, n_copies, n);
    json_decref(all);
    if (ts->n == 0 || ts->v[ts->n - 1].set != set) /* no task names it */
        free(set);
    return code;
}

static const char *id_of(const struct task *t)
{
    return json_string_value(json_object_get(t->item, "id"));
}

/* ---- the file of answers: what is in it is not asked again ---- */

/* Whether an answer of t would come out as this record has it: of the same item and prompt, and whole within -n
 * tokens, or cut after just as many. */
static bool stands(const struct tasks *ts, const struct task *t, const json_t *r)
{
    int64_t n = json_integer_value(json_object_get(r, "n_tokens")), most = ts->b->o->predict_max;

    return strcmp(id_of(t), cli_bench_text_in(r, "id")) == 0 && strcmp(t->set, cli_bench_text_in(r, "set")) == 0 &&
           strcmp(t->hash, cli_bench_text_in(r, "item")) == 0 &&
           strcmp(t->prompt_hash, cli_bench_text_in(r, "asked")) == 0 &&
           (json_is_true(json_object_get(r, "ended")) ? n <= most : n == most);
}

static void take_answer(struct tasks *ts, const json_t *r)
{
    int64_t sample = json_integer_value(json_object_get(r, "sample"));

    if (sample < 0 || sample >= ts->b->o->samples)
        return;
    for (size_t i = 0; i < ts->n; i++) {
        size_t at = i * (size_t)ts->b->o->samples + (size_t)sample;

        if (ts->done[at] || !stands(ts, &ts->v[i], r))
            continue;
        ts->done[at] = true;
        ts->left--;
        ts->v[i].n++;
        ts->v[i].right += json_is_true(json_object_get(r, "right"));
        ts->v[i].cut += !json_is_true(json_object_get(r, "ended"));
    }
}

/* What all answers of a file have in common, but for the model. */
static void settings_of(const struct bench *b, char *buf, size_t buf_bytes)
{
    const struct bench_opts *o = b->o;
    int n = o->temp > 0
                ? snprintf(buf, buf_bytes, "temp=%g top_p=%g seed=%" PRId64, (double)o->temp, (double)o->top_p, o->seed)
                : snprintf(buf, buf_bytes, "greedy");

    snprintf(buf + n, buf_bytes - (size_t)n, " kv=%.40s acts=%s device=%.20s", o->model.kv ? o->model.kv : "default",
             quant_acts_name((enum quant_acts_type)o->model.acts), cli_open_device(&o->model));
}

static bool is_answer(const json_t *r)
{
    return strcmp(cli_bench_text_in(r, "type"), "answer") == 0 && json_is_string(json_object_get(r, "set")) &&
           json_is_string(json_object_get(r, "id")) && json_is_integer(json_object_get(r, "sample")) &&
           json_is_boolean(json_object_get(r, "right"));
}

static enum err_code take_line(struct tasks *ts, struct str line, size_t number, struct err *e)
{
    const char *path = ts->b->o->out;
    char print[24];
    json_t *r = NULL;
    struct err why = { 0 };
    enum err_code code = json_parse_own(&r, line, path, &why);

    if (code == ERR_NOMEM)
        return err_copy(e, &why);
    snprintf(print, sizeof print, "%016" PRIx64, ts->b->fingerprint);
    if (code != ERR_OK || !is_answer(r))
        code = err_set(e, ERR_FORMAT, "%s: line %zu is no answer of a task: the file stays as it is", path, number);
    else if (strcmp(cli_bench_text_in(r, "fingerprint"), print) != 0)
        code = err_set(e, ERR_FORMAT, "%s: line %zu is by another model (%.40s, not %s)", path, number,
                       cli_bench_text_in(r, "fingerprint"), print);
    else if (strcmp(cli_bench_text_in(r, "settings"), ts->settings) != 0)
        code = err_set(e, ERR_FORMAT, "%s: line %zu was asked with '%.120s', not '%s': name another file", path, number,
                       cli_bench_text_in(r, "settings"), ts->settings);
    else
        take_answer(ts, r);
    json_decref(r);
    return code;
}

/* What a record begins with: of a line that was cut off, as much as there is. */
static bool begins_record(struct str line, bool after_others)
{
    static const char head[] = "{\"type\":\"answer\",";
    size_t n = sizeof head - 1;

    if (line.n < n && !after_others)
        return false;
    return memcmp(line.p, head, line.n < n ? line.n : n) == 0;
}

/* A last line without its end: what a crash cut off is taken away; one that is whole stays, and gets its end. */
static enum err_code mend(struct tasks *ts, struct str line, size_t from, size_t number, struct err *e)
{
    const char *path = ts->b->o->out;
    bool whole;
    enum err_code code = json_begins(&whole, line, e);

    if (code != ERR_OK)
        return code;
    if (whole) { /* or more than one value */
        code = take_line(ts, line, number, e);
        if (code == ERR_OK && io_write_all(ts->out, "\n", 1, e))
            code = err_wrap(e, "%s", path);
    } else if (!begins_record(line, number > 1)) {
        code = err_set(e, ERR_FORMAT, "%s: line %zu is no answer of a task: the file stays as it is", path, number);
    } else if (ftruncate(ts->out, (off_t)from) != 0) {
        code = err_errno(e, ERR_IO, errno, "%s: cannot shorten", path);
    } else {
        cli_warn("%s: line %zu was cut off, and is asked again", path, number);
    }
    return code;
}

/* Opens the file of answers and reads those of earlier runs. It is mended when all of it is ours. */
static enum err_code resume(struct tasks *ts, struct err *e)
{
    const char *path = ts->b->o->out;
    char *data;
    size_t n, from = 0, number = 0;
    enum err_code code = ERR_OK;

    ts->made = access(path, F_OK) != 0;
    if (io_open_own(&ts->out, path, e) || io_read_all(&data, &n, path, (size_t)1 << 30, cli_interrupted, e))
        return e->code;
    for (const char *end; code == ERR_OK && (end = memchr(data + from, '\n', n - from)) != NULL;
         from = (size_t)(end - data) + 1)
        code = take_line(ts, (struct str){ data + from, (size_t)(end - data) - from }, ++number, e);
    if (code == ERR_OK && from < n)
        code = mend(ts, (struct str){ data + from, n - from }, from, number + 1, e);
    free(data);
    return code;
}

/* ---- asking ---- */

/* Requests wait in the engine; each answer in progress gathers its tokens here. */
struct asked {
    struct tasks *ts;
    size_t at; /* task and sample */
    struct text_tokens answer;
};

static enum err_code submit_task(struct tasks *ts, struct gen *g, struct asked *a, struct err *e)
{
    const struct bench_opts *o = ts->b->o;
    const struct task *t = &ts->v[a->at / (size_t)o->samples];
    struct gen_request q = t->asked->q;
    int64_t id;

    /* whichever sets and items are asked with it */
    q.sample.stream = io_hash(a->at % (size_t)o->samples, t->hash, strlen(t->hash));
    q.user = a;
    return gen_submit(g, &q, &id, e) ? err_wrap(e, "%s: %s", t->set, id_of(t)) : ERR_OK;
}

static enum err_code write_answer(struct tasks *ts, const struct task *t, int sample, bool right, bool ended,
                                  int64_t n_tokens, struct str text, struct err *e)
{
    char print[24], *line;
    struct cli_buf b = { 0 };
    json_t *r;
    enum err_code code;

    if (ts->out < 0)
        return ERR_OK;
    snprintf(print, sizeof print, "%016" PRIx64, ts->b->fingerprint);
    r = json_pack("{s:s, s:s, s:s, s:i, s:b, s:b, s:I, s:o, s:s, s:s, s:s, s:s}", "type", "answer", "set", t->set, "id",
                  id_of(t), "sample", sample, "right", right, "ended", ended, "n_tokens", (json_int_t)n_tokens, "text",
                  json_bytes(text), "fingerprint", print, "settings", ts->settings, "item", t->hash, "asked",
                  t->prompt_hash);
    line = r ? json_dump(r, JSON_COMPACT) : NULL;
    json_decref(r);
    if (line == NULL)
        return err_nomem(e);
    /* in one piece: what a kill cuts off is the end of the file */
    code = cli_buf_add(&b, str_of(line), e);
    if (code == ERR_OK)
        code = cli_buf_add(&b, STR("\n"), e);
    if (code == ERR_OK && io_write_all(ts->out, b.p, b.n, e))
        code = err_wrap(e, "%s", ts->b->o->out);
    cli_buf_free(&b);
    free(line);
    return code;
}

static enum err_code grade(struct asked *a, enum gen_end end, struct err *e)
{
    struct tasks *ts = a->ts;
    size_t samples = (size_t)ts->b->o->samples;
    struct task *t = &ts->v[a->at / samples];
    bool ended = end == GEN_EOS, right = false;
    char *text;
    size_t n_text;
    enum err_code code;

    if (text_decode(ts->b->open.text, a->answer.v, a->answer.n, TEXT_SPECIAL, &text, &n_text, e))
        return e->code;
    code = eval_grade(t->item, (struct str){ text, n_text }, &right, e);
    right = right && ended;
    t->n++;
    t->right += right;
    ts->done[a->at] = true;
    ts->n_tokens += a->answer.n;
    t->cut += !ended;
    if (code == ERR_OK)
        code = write_answer(ts, t, (int)(a->at % samples), right, ended, a->answer.n, (struct str){ text, n_text }, e);
    free(text);
    text_tokens_free(&a->answer);
    return code;
}

static enum err_code take_event(const struct gen_event *ev, int64_t *n_done, struct err *e)
{
    struct asked *a = ev->user;

    if (ev->kind == GEN_TOKEN)
        return text_tokens_push(&a->answer, ev->pick.token, e);
    if (ev->kind != GEN_END)
        return ERR_OK;
    if (ev->end == GEN_FAILED)
        return err_copy(e, &ev->err);
    ++*n_done;
    return grade(a, ev->end, e);
}

static enum err_code answer_all(struct tasks *ts, struct gen *g, struct asked *asked, struct err *e)
{
    const struct progress progress = cli_bench_progress("answers");
    int64_t n_done = 0;
    struct gen_event ev;

    for (size_t at = 0; at < ts->n * (size_t)ts->b->o->samples; at++) {
        asked[at] = (struct asked){ .ts = ts, .at = at };
        if (!ts->done[at] && submit_task(ts, g, &asked[at], e))
            return e->code;
    }
    while (gen_busy(g)) {
        if (!progress_tick(&progress, (uint64_t)n_done, (uint64_t)ts->left))
            return err_set(e, ERR_CANCEL, "interrupted");
        if (gen_step(g, e))
            return e->code;
        while (gen_next(g, &ev))
            if (take_event(&ev, &n_done, e))
                return e->code;
    }
    return ERR_OK;
}

/* ---- reporting ---- */

/* Accuracy over tasks from .. to - 1: each task counts by the share of its samples that are right.
 */
static enum err_code report_set(struct tasks *ts, const char *name, size_t from, size_t to, struct err *e)
{
    double *share = calloc(to - from, sizeof *share), sum = 0, n = (double)(to - from);
    struct eval_interval ci = { 0, 1 };
    int64_t right = 0, any = 0, cut = 0;
    char what[200];
    json_t *r;
    enum err_code code = share ? ERR_OK : err_nomem(e);

    for (size_t i = from; code == ERR_OK && i < to; i++) {
        share[i - from] = ts->v[i].n > 0 ? (double)ts->v[i].right / ts->v[i].n : 0;
        sum += share[i - from];
        right += ts->v[i].right;
        any += ts->v[i].right > 0;
        cut += ts->v[i].cut;
    }
    if (code == ERR_OK && ts->b->o->samples > 1)
        code = eval_bootstrap(&ci, share, (int64_t)(to - from), ROUNDS, 1, e);
    else if (code == ERR_OK)
        ci = eval_wilson(right, (int64_t)(to - from), Z_95);
    free(share);
    if (code)
        return code;
    snprintf(what, sizeof what, "%s items=%zu samples=%d temp=%g", name, to - from, ts->b->o->samples,
             (double)ts->b->o->temp);
    r = cli_bench_record("eval", what, "accuracy", "higher");
    cli_bench_text(r, "set", name);
    cli_bench_real(r, "accuracy", sum / n);
    cli_bench_real(r, "accuracy_lo", ci.lo);
    cli_bench_real(r, "accuracy_hi", ci.hi);
    cli_bench_real(r, "noise", (ci.hi - ci.lo) / 2 / sqrt(2)); /* two of them make a difference's interval */
    cli_bench_int(r, "n_items", (int64_t)(to - from));
    cli_bench_int(r, "n_right", right);
    cli_bench_int(r, "n_samples", ts->b->o->samples);
    cli_bench_int(r, "n_cut", cut);
    if (cut > 0)
        cli_warn("%s: %" PRId64 " of %" PRId64 " answers were cut and count as wrong: -n %" PRId64
                 " is short, or --ctx",
                 name, cut, (int64_t)(to - from) * ts->b->o->samples, ts->b->o->predict_max);
    if (ts->b->o->samples > 1)
        cli_bench_real(r, "any_right_fraction", (double)any / n);
    cli_bench_line(ts->b, "%-20s %5lld of %5lld  %6.1f %%  [%.1f, %.1f]", name, (long long)right,
                   (long long)(to - from) * ts->b->o->samples, 100 * sum / n, 100 * ci.lo, 100 * ci.hi);
    return cli_bench_done(ts->b, r, e);
}

static enum err_code report_all(struct tasks *ts, double ms, struct err *e)
{
    for (size_t from = 0, to; from < ts->n; from = to) {
        for (to = from; to < ts->n && ts->v[to].set == ts->v[from].set; to++)
            ;
        if (report_set(ts, ts->v[from].set, from, to, e))
            return e->code;
    }
    cli_note("%" PRId64 " tokens written in %.1f s, %.0f tokens/s", ts->n_tokens, ms / 1e3,
             ms > 0 ? (double)ts->n_tokens * 1e3 / ms : 0);
    return ERR_OK;
}

/* Whether every prompt leaves room for an answer, before the first is asked. */
static enum err_code check_ctx(const struct tasks *ts, struct err *e)
{
    int64_t ctx = ts->b->o->model.ctx_tokens, train = model_info(ts->b->open.model)->ctx_train, beyond = 0;

    for (size_t i = 0; i < ts->n; i++) {
        const struct task *t = &ts->v[i];

        if (ctx > 0 && t->asked->prompt.n >= ctx)
            return err_set(e, ERR_LIMIT,
                           "%s: %s: the prompt has %" PRId64 " tokens, the context %" PRId64 " (--ctx sets it)", t->set,
                           id_of(t), t->asked->prompt.n, ctx);
        beyond += train > 0 && t->asked->prompt.n > train;
    }
    if (beyond > 0)
        cli_warn("%" PRId64 " prompts are longer than the %" PRId64 " tokens that the model was trained for", beyond,
                 train);
    return ERR_OK;
}

static enum err_code ask_tasks(struct tasks *ts, struct err *e)
{
    const struct bench_opts *o = ts->b->o;
    int64_t ctx = o->model.ctx_tokens, total = (int64_t)ts->n * o->samples;
    int parallel = o->parallel;
    size_t n_asked = (size_t)total;
    struct asked *asked = calloc(n_asked + 1, sizeof *asked);
    struct run *run = NULL;
    struct gen *g = NULL;
    enum err_code code = asked ? ERR_OK : err_nomem(e);

    for (size_t i = 0; o->model.ctx_tokens == 0 && i < ts->n; i++)
        if (ts->v[i].asked->prompt.n + o->predict_max > ctx)
            ctx = ts->v[i].asked->prompt.n + o->predict_max;
    if (parallel > total)
        parallel = (int)total;
    const struct run_opts ro = { .ctx_tokens = ctx,
                                 .n_seq = parallel,
                                 .rows_max = o->model.chunk > parallel ? o->model.chunk
                                             : parallel > 256          ? parallel
                                                                       : 256 };
    if (code == ERR_OK)
        code = cli_bench_run(&run, ts->b, ro, e);
    if (code == ERR_OK)
        code = gen_open(&g,
                        &(struct gen_opts){ .run = run,
                                            .text = ts->b->open.text,
                                            .prompt_rows = ro.rows_max,
                                            .adapters = ts->b->open.adapters.list,
                                            .n_adapters = ts->b->open.adapters.n },
                        e);
    if (code == ERR_OK)
        code = answer_all(ts, g, asked, e);
    gen_close(g);
    run_close(run);
    for (size_t i = 0; asked != NULL && i < n_asked; i++)
        text_tokens_free(&asked[i].answer);
    free(asked);
    cli_progress_end();
    return code;
}

static enum err_code prepare_tasks(struct tasks *ts, struct err *e)
{
    size_t total;

    if (*ts->b->operands == NULL)
        return err_set(e, ERR_ARG, "eval: no task set named");
    if (ts->b->o->samples > 1 && ts->b->o->temp <= 0)
        return err_set(e, ERR_ARG, "eval: --samples needs a --temp above 0: greedy answers are all the same");
    if (cli_bench_open(ts->b, true, e))
        return e->code;
    if (chat_open(&ts->format, ts->b->open.text, (struct str){ 0 }, e))
        return err_wrap(e, "%s", ts->b->open.path);
    for (char **f = ts->b->operands; *f != NULL; f++)
        if (read_set(ts, *f, e))
            return e->code;
    total = ts->n * (size_t)ts->b->o->samples;
    ts->done = calloc(total, sizeof *ts->done);
    ts->left = (int64_t)total;
    if (ts->done == NULL)
        return err_nomem(e);
    if (check_ctx(ts, e))
        return e->code;
    if (ts->b->o->out == NULL)
        return ERR_OK;
    settings_of(ts->b, ts->settings, sizeof ts->settings);
    return resume(ts, e);
}

/* A run that failed before its first answer leaves no new file. */
static void drop_empty(const struct tasks *ts)
{
    const char *path = ts->b->o->out;
    struct stat its, there;

    if (ts->made && fstat(ts->out, &its) == 0 && its.st_size == 0 && lstat(path, &there) == 0 &&
        there.st_dev == its.st_dev && there.st_ino == its.st_ino)
        unlink(path);
}

static void free_tasks(struct tasks *ts, bool failed)
{
    for (size_t i = 0; i < ts->n; i++) {
        if (i + 1 == ts->n || ts->v[i + 1].set != ts->v[i].set)
            free((void *)(uintptr_t)ts->v[i].set);
        free_task(&ts->v[i]);
    }
    if (ts->out >= 0 && failed)
        drop_empty(ts);
    if (ts->out >= 0)
        close(ts->out);
    free(ts->done);
    free(ts->v);
    grammar_vocab_close(ts->vocab);
    chat_close(ts->format);
}

/* ---- comparison of two files of answers ---- */

struct score {
    const char *set, *id, *item;
    int64_t sample;
    size_t line;
    int right, n;
};
struct scores {
    struct score *v;
    size_t n;
};

static int by_item(const void *a, const void *b)
{
    const struct score *x = a, *y = b;
    int set = strcmp(x->set, y->set), id = strcmp(x->id, y->id);

    return set ? set : id ? id : strcmp(x->item, y->item);
}

static int by_line(const void *a, const void *b)
{
    const struct score *x = a, *y = b;
    int item = by_item(a, b);

    if (item != 0 || x->sample != y->sample)
        return item ? item : x->sample < y->sample ? -1 : 1;
    return x->line < y->line ? -1 : x->line > y->line;
}

/* Answers of one file, summed by item, sorted; of those that were asked again the last. Strings belong to `all`. */
static enum err_code sum_up(struct scores *out, const json_t *all, const char *path, struct err *e)
{
    struct scores s = { calloc(json_array_size(all) + 1, sizeof *s.v), 0 };
    size_t n = 0;

    if (s.v == NULL)
        return err_nomem(e);
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *r = json_array_get(all, i);

        if (!is_answer(r)) {
            free(s.v);
            return err_set(e, ERR_FORMAT, "%s: item %zu is no answer of a task", path, i + 1);
        }
        s.v[s.n++] = (struct score){ cli_bench_text_in(r, "set"),
                                     cli_bench_text_in(r, "id"),
                                     cli_bench_text_in(r, "item"),
                                     json_integer_value(json_object_get(r, "sample")),
                                     i,
                                     json_is_true(json_object_get(r, "right")),
                                     1 };
    }
    qsort(s.v, s.n, sizeof *s.v, by_line);
    for (size_t i = 0; i < s.n; i++) {
        if (i + 1 < s.n && by_item(&s.v[i], &s.v[i + 1]) == 0 && s.v[i].sample == s.v[i + 1].sample)
            continue;
        if (n > 0 && by_item(&s.v[n - 1], &s.v[i]) == 0) {
            s.v[n - 1].right += s.v[i].right;
            s.v[n - 1].n++;
        } else {
            s.v[n++] = s.v[i];
        }
    }
    s.n = n;
    *out = s;
    return ERR_OK;
}

static enum err_code report_pairs(struct bench *b, const char *set, const double *diff, int64_t n, int64_t only_a,
                                  int64_t only_b, bool single, struct err *e)
{
    struct eval_interval ci;
    double sum = 0;
    json_t *r;
    char what[200];

    for (int64_t i = 0; i < n; i++)
        sum += diff[i];
    if (eval_bootstrap(&ci, diff, n, ROUNDS, 1, e))
        return e->code;
    snprintf(what, sizeof what, "%s %.60s to %.60s", set, b->operands[0], b->operands[1]);
    r = cli_bench_record("eval_difference", what, "difference", "higher");
    cli_bench_text(r, "set", set);
    cli_bench_real(r, "difference", sum / (double)n);
    cli_bench_real(r, "difference_lo", ci.lo);
    cli_bench_real(r, "difference_hi", ci.hi);
    cli_bench_real(r, "noise", (ci.hi - ci.lo) / 2);
    cli_bench_int(r, "n_items", n);
    if (single) {
        cli_bench_int(r, "only_first_right", only_a);
        cli_bench_int(r, "only_second_right", only_b);
        cli_bench_real(r, "mcnemar_p", eval_mcnemar(only_a, only_b));
    }
    cli_bench_line(b, "%-20s %5lld items  %+6.2f %%  [%+.2f, %+.2f]  only A %lld, only B %lld, McNemar p %.3f", set,
                   (long long)n, 100 * sum / (double)n, 100 * ci.lo, 100 * ci.hi, (long long)only_a, (long long)only_b,
                   eval_mcnemar(only_a, only_b));
    return cli_bench_done(b, r, e);
}

/* Pairs of the items that both have, set by set, then all together. */
static enum err_code pair_up(struct bench *b, const struct scores *x, const struct scores *y, struct err *e)
{
    double *diff = calloc(x->n + 1, sizeof *diff);
    int64_t n = 0, from = 0, a = 0, c = 0, all_a = 0, all_c = 0;
    bool single = true;
    int n_sets = 0;
    enum err_code code = diff ? ERR_OK : err_nomem(e);

    for (size_t i = 0, j = 0; code == ERR_OK && i < x->n; i++) {
        const struct score *p = &x->v[i], *q;

        while (j < y->n && by_item(&y->v[j], p) < 0)
            j++;
        q = j < y->n && by_item(&y->v[j], p) == 0 ? &y->v[j] : NULL;
        if (q != NULL) {
            diff[n++] = (double)q->right / q->n - (double)p->right / p->n;
            a += p->right * q->n > q->right * p->n;
            c += p->right * q->n < q->right * p->n;
            single = single && p->n == 1 && q->n == 1;
        }
        if ((i + 1 == x->n || strcmp(x->v[i + 1].set, p->set) != 0) && n > from) {
            code = report_pairs(b, p->set, diff + from, n - from, a, c, single, e);
            all_a += a;
            all_c += c;
            from = n;
            a = c = 0;
            n_sets++;
        }
    }
    if (code == ERR_OK && n == 0)
        code = err_set(e, ERR_FORMAT, "the two files have no item in common");
    if (code == ERR_OK && n_sets > 1)
        code = report_pairs(b, "all", diff, n, all_a, all_c, single, e);
    free(diff);
    return code;
}

static enum err_code compare_sets(struct bench *b, struct err *e)
{
    json_t *all[2] = { NULL, NULL };
    struct scores s[2] = { { NULL, 0 }, { NULL, 0 } };
    enum err_code code = ERR_OK;

    if (b->operands[0] == NULL || b->operands[1] == NULL || b->operands[2] != NULL)
        return err_set(e, ERR_ARG, "eval --compare: takes two files of answers");
    for (int i = 0; i < 2 && code == ERR_OK; i++) {
        code = cli_bench_load(&all[i], b->operands[i], e);
        if (code == ERR_OK)
            code = sum_up(&s[i], all[i], b->operands[i], e);
    }
    if (code == ERR_OK)
        code = pair_up(b, &s[0], &s[1], e);
    for (int i = 0; i < 2; i++) {
        free(s[i].v);
        json_decref(all[i]);
    }
    return code;
}

enum err_code cli_bench_cmd_eval(struct bench *b, struct err *e)
{
    struct tasks ts = { .b = b, .out = -1 };
    double from;
    enum err_code code;

    if (b->o->compare)
        return compare_sets(b, e);
    code = prepare_tasks(&ts, e);
    from = clock_ms();
    if (code == ERR_OK && ts.left > 0)
        code = ask_tasks(&ts, e);
    if (code == ERR_OK)
        code = report_all(&ts, clock_ms() - from, e);
    free_tasks(&ts, code != ERR_OK);
    return code;
}
