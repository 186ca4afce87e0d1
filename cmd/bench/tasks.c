/* SPDX-License-Identifier: Apache-2.0 */
/* tasks.c - answers to task sets, graded.                                    room: cmd */
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
#include "bench/tasks.h"
#include "chat/chat.h"
#include "cli/calibration.h"
#include "gen/gen.h"
#include "grammar/grammar.h"
#include "model/model.h"
#include "run/run.h"

#define Z_95 1.959964 /* normal quantile of a 95 % interval */

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

static enum err_code set_think(json_t *item, const struct bench *b, struct err *e)
{
    if (json_object_get(item, "enable_thinking") == NULL &&
        json_object_set_new(item, "enable_thinking", json_boolean(b->o->think != 1)))
        return err_nomem(e);
    return ERR_OK;
}

enum err_code cli_bench_question(struct ask *a, json_t **kwargs, const struct bench *b, json_t *item, struct err *e)
{
    json_t *extra;

    if (set_think(item, b, e))
        return e->code;
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
    if ((b->o->think == 2 || json_is_true(json_object_get(item, "enable_thinking"))) &&
        cli_reason_set(&a->reason, &b->o->reason, e))
        return e->code;
    a->reason.loops = b->o->reason.loops == 0;
    if (b->o->think == 2) { /* whatever the item says */
        a->kwargs = NULL;
        a->calibration = b->calibration;
    }
    return ERR_OK;
}

/* The first message, if it is the system's; NULL: there is none. */
static json_t *system_of(const json_t *messages)
{
    json_t *first = json_array_get(messages, 0);

    return strcmp(cli_bench_text_in(first, "role"), "system") == 0 ? first : NULL;
}

/* The item's messages behind those of --messages-before. One system message stands in front: that of
 * --system, else theirs, else the item's. NULL: memory is out. */
static json_t *messages_of(const struct tasks *ts, json_t *own)
{
    json_t *all = json_array(), *from[] = { ts->before, own }, *one;
    json_t *system = system_of(from[0]) != NULL ? system_of(from[0]) : system_of(own);
    size_t k;

    if (ts->system != NULL)
        json_push(&all, json_pack("{s:s, s:o}", "role", "system", "content", json_bytes(str_of(ts->system))));
    else if (system != NULL)
        json_push(&all, json_incref(system));
    for (int i = 0; i < 2; i++)
        json_array_foreach (from[i], k, one)
            if (one != system_of(from[i]))
                json_push(&all, json_incref(one));
    return all;
}

/* What the task asks, ready for the engine. */
static enum err_code ask_task(struct tasks *ts, struct task *t, struct err *e)
{
    const struct ask_model m = { .text = ts->b->open.text,
                                 .chat = ts->format,
                                 .vocab = &ts->vocab,
                                 .n_vocab = model_info(ts->b->open.model)->n_vocab };
    struct ask a;
    json_t *kwargs = NULL, *messages = messages_of(ts, json_object_get(t->item, "messages"));
    enum err_code code = messages != NULL ? cli_bench_question(&a, &kwargs, ts->b, t->item, e) : err_nomem(e);

    if (code == ERR_OK) {
        a.messages = messages;
        if (t->trace != NULL) { /* rules are tried afterwards, on what was thought */
            a.reason = reason_defaults();
            a.reason.loops = ts->b->o->reason.loops == 0;
            a.reason.trace = t->trace;
        }
        cli_beside_ask(&a, &ts->beside);
        code = cli_beside_retrieve(&a, &ts->b->o->beside, ts->b->calibration, e) ? e->code
                                                                                 : ask_open(&t->asked, &a, &m, NULL, e);
    }
    json_decref(kwargs);
    json_decref(messages);
    return code;
}

static void hash_json(char out[24], const json_t *v, struct err *e)
{
    char *text = json_dump(v, JSON_COMPACT | JSON_SORT_KEYS);

    if (text == NULL)
        err_nomem(e);
    else
        snprintf(out, 24, "%016" PRIx64, io_hash(0, text, strlen(text)));
    free(text);
}

/* Of the prompt's tokens; where no model is asked, of what they would be made of. */
static enum err_code hash_prompt(struct tasks *ts, struct task *t, struct err *e)
{
    json_t *question;

    if (ts->b->o->judge == NULL) {
        uint64_t h = 0;

        if (ask_task(ts, t, e))
            return e->code;
        for (const struct ask_request *r = t->asked; r != NULL; r = t->asked->retrieves ? r->second : NULL)
            h = io_hash(h, r->prompt.v, (size_t)r->prompt.n * sizeof(int32_t));
        snprintf(t->prompt_hash, sizeof t->prompt_hash, "%016" PRIx64, h);
        return ERR_OK;
    }
    if (set_think(t->item, ts->b, e))
        return e->code;
    question =
        json_pack("{s:O, s:O*, s:O}", "messages", json_object_get(t->item, "messages"), "tools",
                  json_object_get(t->item, "tools"), "enable_thinking", json_object_get(t->item, "enable_thinking"));
    hash_json(t->prompt_hash, question, e);
    json_decref(question);
    return e->code;
}

static enum err_code add_task(struct tasks *ts, json_t *item, const char *set, struct err *e)
{
    if (memory_room(&ts->v, &ts->cap, ts->n + 1, sizeof *ts->v, e))
        return e->code;
    struct task *t = &ts->v[ts->n++];

    *e = (struct err){ 0 };
    *t = (struct task){ .item = json_incref(item), .set = set };
    if (ts->traces && cli_bench_trace_open(t, e))
        return e->code;
    hash_json(t->hash, item, e);
    return e->code ? e->code : hash_prompt(ts, t, e);
}

/* Whether the last task is one that its set had before, by whatever id: a second answer would tell
 * nothing new, and make the interval narrower. */
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
    if (t->trace != NULL)
        reason_trace_free(t->trace);
    free(t->trace);
}

static enum err_code read_set(struct tasks *ts, const char *path, struct err *e)
{
    json_t *all;
    char buf[128], *set = strdup(cli_bench_set_name(path, buf)); /* cli_bench_tasks_close() frees it */
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

const char *cli_bench_task_id(const struct task *t)
{
    return json_string_value(json_object_get(t->item, "id"));
}

/* ---- the file of answers: what is in it is not asked again ---- */

/* Whether an answer of t would come out as this record has it: of the same item and prompt, and whole
 * within -n tokens, or cut after just as many. */
static bool stands(const struct tasks *ts, const struct task *t, const json_t *r)
{
    int64_t n = json_integer_value(json_object_get(r, "n_tokens")), most = ts->b->o->predict_max;

    return strcmp(cli_bench_task_id(t), cli_bench_text_in(r, "id")) == 0 &&
           strcmp(t->set, cli_bench_text_in(r, "set")) == 0 && strcmp(t->hash, cli_bench_text_in(r, "item")) == 0 &&
           strcmp(t->prompt_hash, cli_bench_text_in(r, "asked")) == 0 &&
           (ts->b->o->judge != NULL || (json_is_true(json_object_get(r, "ended")) ? n <= most : n == most));
}

static enum err_code take_answer(struct tasks *ts, const json_t *r, struct err *e)
{
    int64_t sample = json_integer_value(json_object_get(r, "sample"));

    if (sample < 0 || sample >= ts->b->o->samples)
        return ERR_OK;
    for (size_t i = 0; i < ts->n; i++) {
        const json_t *retrieve = json_object_get(r, "retrieve");
        size_t at = i * (size_t)ts->b->o->samples + (size_t)sample;

        if (ts->done[at] || !stands(ts, &ts->v[i], r))
            continue;
        if (cli_bench_trace_take(ts, &ts->v[i], r, e))
            return e->code;
        ts->done[at] = true;
        ts->left--;
        ts->v[i].n++;
        ts->v[i].right += json_is_true(json_object_get(r, "right"));
        ts->v[i].cut += !json_is_true(json_object_get(r, "ended"));
        ts->v[i].n_thought += json_is_true(json_object_get(r, "reasoned"));
        ts->v[i].n_written += json_integer_value(json_object_get(r, "n_tokens"));
        ts->v[i].n_direct += json_integer_value(json_object_get(r, "direct_tokens")) +
                             json_integer_value(json_object_get(retrieve, "dropped_tokens"));
        ts->v[i].n_looked_up += json_is_true(json_object_get(retrieve, "looked_up"));
        ts->v[i].n_reasoning += json_integer_value(json_object_get(r, "n_reasoning"));
        ts->v[i].n_probes += json_integer_value(json_object_get(r, "n_probes"));
        ts->v[i].n_probe_rows += json_integer_value(json_object_get(r, "n_probe_rows"));
    }
    return ERR_OK;
}

/* What stands beside the model and is not in prompts alone, as a part of the settings, or "". */
static enum err_code beside_settings(const struct tasks *ts, char *buf, size_t buf_bytes, struct err *e)
{
    const struct cli_beside_opts *o = &ts->b->o->beside;
    const struct str said = ts->beside.context.said;
    uint64_t h = 0;

    *buf = '\0';
    if (!cli_beside_has_tables(o) && o->examples == NULL && o->recite == NULL)
        return ERR_OK;
    if (cli_beside_hash(&h, o, e))
        return e->code;
    h = said.n > 0 ? io_hash(h + 1, said.p, said.n) : h;
    snprintf(buf, buf_bytes, " beside=%016" PRIx64, h);
    return ERR_OK;
}

/* What all answers of a file have in common, but for the model. */
static enum err_code make_settings(struct tasks *ts, struct err *e)
{
    const struct bench_opts *o = ts->b->o;
    char *buf = ts->settings;
    size_t room = sizeof ts->settings, n;
    uint64_t h = 0;

    if (o->judge != NULL) {
        if (cli_hash_file(&h, o->judge, e))
            return e->code;
        snprintf(buf, room, "judged %016" PRIx64, h);
        return ERR_OK;
    }
    if (o->temp > 0)
        snprintf(buf, room, "temp=%g top_p=%g seed=%" PRId64, (double)o->temp, (double)o->top_p, o->seed);
    else
        snprintf(buf, room, "greedy");
    n = strlen(buf);
    snprintf(buf + n, room - n, " kv=%.40s acts=%s device=%.20s", o->model.kv ? o->model.kv : "default",
             quant_acts_name((enum quant_acts_type)o->model.acts), cli_open_device_kind(&o->model));
    cli_bench_reason_settings(ts, buf, room);
    if (ts->b->calibration != NULL) {
        if (cli_hash_file(&h, o->calibration, e))
            return e->code;
        n = strlen(buf);
        snprintf(buf + n, room - n, " calibration=%016" PRIx64, h);
    }
    n = strlen(buf);
    if (o->beside.retrieve == 1)
        snprintf(buf + n, room - n, " retrieve=%.6g", (double)o->beside.retrieve_below);
    n = strlen(buf);
    return beside_settings(ts, buf + n, room - n, e);
}

bool cli_bench_is_answer(const json_t *r)
{
    return strcmp(cli_bench_text_in(r, "type"), "answer") == 0 && json_is_string(json_object_get(r, "set")) &&
           json_is_string(json_object_get(r, "id")) && json_is_integer(json_object_get(r, "sample")) &&
           json_is_boolean(json_object_get(r, "right"));
}

static enum err_code take_line(struct tasks *ts, struct str line, size_t number, struct err *e)
{
    const char *path = ts->path;
    char print[24];
    json_t *r = NULL;
    struct err why = { 0 };
    enum err_code code = json_parse_own(&r, line, path, &why);

    if (code == ERR_NOMEM)
        return err_copy(e, &why);
    snprintf(print, sizeof print, "%016" PRIx64, ts->b->fingerprint);
    if (code != ERR_OK || !cli_bench_is_answer(r))
        code = err_set(e, ERR_FORMAT, "%s: line %zu is no answer of a task: the file stays as it is", path, number);
    else if (strcmp(cli_bench_text_in(r, "fingerprint"), print) != 0)
        code = err_set(e, ERR_FORMAT, "%s: line %zu is by another model (%.40s, not %s)", path, number,
                       cli_bench_text_in(r, "fingerprint"), print);
    else if (strcmp(cli_bench_text_in(r, "settings"), ts->settings) != 0)
        code = err_set(e, ERR_FORMAT, "%s: line %zu was asked with '%.120s', not '%s': name another file", path, number,
                       cli_bench_text_in(r, "settings"), ts->settings);
    else if (take_answer(ts, r, e))
        code = err_wrap(e, "%s: line %zu", path, number);
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

/* A last line without its end: if a crash cut it off it goes; a whole one stays, and gets its end. */
static enum err_code mend(struct tasks *ts, struct str line, size_t from, size_t number, struct err *e)
{
    const char *path = ts->path;
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

/* Opens the file of answers, reads those of earlier runs, and mends it when all of it is ours. */
static enum err_code resume(struct tasks *ts, struct err *e)
{
    const char *path = ts->path;
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
    return gen_submit(g, &q, &id, e) ? err_wrap(e, "%s: %s", t->set, cli_bench_task_id(t)) : ERR_OK;
}

/* With --think auto. */
static bool has_thought(const struct task *t, const struct gen_stats *st)
{
    return st->doubt.asked ? st->doubt.doubted : t->asked->advice.threshold.thinks == REASON_THINKS_ALWAYS;
}

static enum err_code write_answer(struct tasks *ts, const struct task_answer *a, struct err *e)
{
    const struct task *t = &ts->v[a->at / (size_t)ts->b->o->samples];
    char print[24], *line;
    struct cli_buf b = { 0 };
    json_t *r, *text;
    enum err_code code;

    if (ts->out < 0)
        return ERR_OK;
    snprintf(print, sizeof print, "%016" PRIx64, ts->b->fingerprint);
    text = a->said == NULL ? json_bytes(a->text) : NULL;
    if (text == NULL && a->said == NULL)
        return err_nomem(e);
    r = json_pack("{s:s, s:s, s:s, s:i, s:b, s:b, s:I, s:o*, s:O*, s:s, s:s, s:s, s:s, s:O*}", "type", "answer", "set",
                  t->set, "id", cli_bench_task_id(t), "sample", (int)(a->at % (size_t)ts->b->o->samples), "right",
                  (int)a->right, "ended", (int)a->ended, "n_tokens", (json_int_t)a->n_tokens, "text", text, "answer",
                  a->said, "fingerprint", print, "settings", ts->settings, "item", t->hash, "asked", t->prompt_hash,
                  "notes", a->notes);
    if (r != NULL && a->stats != NULL &&
        (json_object_set_new(r, "n_reasoning", json_integer(a->stats->reasoning_tokens)) ||
         json_object_set_new(r, "think_end", json_string(gen_why_name(a->stats->thought.end))) ||
         (a->stats->thought.weighed && (json_object_set_new(r, "n_probes", json_integer(a->stats->probes)) ||
                                        json_object_set_new(r, "n_probe_rows", json_integer(a->stats->probe_rows)))) ||
         (t->asked->is_advised &&
          (json_object_set_new(r, "reasoned", json_boolean(has_thought(t, a->stats))) ||
           json_object_set_new(r, "least",
                               a->stats->doubt.asked ? json_real((double)a->stats->doubt.least) : json_null()) ||
           json_object_set_new(r, "direct_tokens", json_integer(a->stats->doubt.tokens)))) ||
         (t->asked->retrieves && json_object_set_new(r, "retrieve", ask_retrieve_json(a->stats))))) {
        json_decref(r);
        r = NULL;
    }
    if (r != NULL && t->trace != NULL && !reason_trace_set(r, t->trace)) {
        json_decref(r);
        r = NULL;
    }
    line = r ? json_line(r) : NULL;
    json_decref(r);
    if (line == NULL)
        return err_nomem(e);
    /* in one piece: what a kill cuts off is the end of the file */
    code = cli_buf_add(&b, str_of(line), e);
    if (code == ERR_OK)
        code = cli_buf_add(&b, STR("\n"), e);
    if (code == ERR_OK && io_write_all(ts->out, b.p, b.n, e))
        code = err_wrap(e, "%s", ts->path);
    cli_buf_free(&b);
    free(line);
    return code;
}

enum err_code cli_bench_take(struct tasks *ts, const struct task_answer *a, struct err *e)
{
    struct task *t = &ts->v[a->at / (size_t)ts->b->o->samples];

    t->n++;
    t->right += a->right;
    t->cut += !a->ended;
    t->n_written += a->n_tokens;
    if (a->stats != NULL) {
        t->n_thought += t->asked->is_advised && has_thought(t, a->stats);
        t->n_looked_up += t->asked->retrieves && a->stats->doubt.doubted;
        t->n_direct += a->stats->doubt.tokens;
        t->n_reasoning += a->stats->reasoning_tokens;
        t->n_probes += a->stats->probes;
        t->n_probe_rows += a->stats->probe_rows;
    }
    ts->done[a->at] = true;
    ts->n_tokens += a->n_tokens;
    return write_answer(ts, a, e);
}

static enum err_code grade(struct asked *a, enum gen_end end, const struct gen_stats *st, struct err *e)
{
    struct tasks *ts = a->ts;
    const struct task *t = &ts->v[a->at / (size_t)ts->b->o->samples];
    struct task_answer answer = {
        .at = a->at, .ended = end == GEN_EOS, .n_tokens = a->answer.n, .notes = t->asked->notes, .stats = st
    };

    if (t->asked->retrieves && st->doubt.doubted && t->asked->second != NULL)
        answer.notes = t->asked->second->notes;
    char *text;
    size_t n_text;
    enum err_code code;

    if (t->asked->is_advised &&
        json_object_set_new(t->item, "enable_thinking", json_boolean(has_thought(t, st)))) /* for eval_grade() */
        return err_nomem(e);
    if (text_decode(ts->b->open.text, a->answer.v, a->answer.n, TEXT_SPECIAL, &text, &n_text, e))
        return e->code;
    answer.text = (struct str){ text, n_text };
    code = eval_grade(t->item, answer.text, &answer.right, e);
    answer.right = answer.right && answer.ended;
    if (code == ERR_OK)
        code = cli_bench_trace_grade(ts, t, answer.right, st, e);
    if (code == ERR_OK)
        code = cli_bench_take(ts, &answer, e);
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
    return grade(a, ev->end, &ev->stats, e);
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
    int64_t right = 0, any = 0, cut = 0, reasoning = 0, probes = 0, probe_rows = 0, thought = 0, tokens = 0,
            looked_up = 0;
    char what[200];
    json_t *r;
    enum err_code code = share ? ERR_OK : err_nomem(e);

    for (size_t i = from; code == ERR_OK && i < to; i++) {
        share[i - from] = ts->v[i].n > 0 ? (double)ts->v[i].right / ts->v[i].n : 0;
        sum += share[i - from];
        right += ts->v[i].right;
        any += ts->v[i].right > 0;
        cut += ts->v[i].cut;
        thought += ts->v[i].n_thought;
        looked_up += ts->v[i].n_looked_up;
        tokens += ts->v[i].n_written + ts->v[i].n_direct;
        reasoning += ts->v[i].n_reasoning;
        probes += ts->v[i].n_probes;
        probe_rows += ts->v[i].n_probe_rows;
    }
    if (code == ERR_OK && ts->b->o->samples > 1)
        code = eval_bootstrap(&ci, share, (int64_t)(to - from), BENCH_ROUNDS, 1, e);
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
    cli_bench_real(r, "reasoning_tokens", (double)reasoning / n / ts->b->o->samples);
    if (ts->b->o->think == 2)
        cli_bench_real(r, "thought_fraction", (double)thought / n / ts->b->o->samples);
    if (ts->b->o->beside.retrieve == 1)
        cli_bench_real(r, "looked_up_fraction", (double)looked_up / n / ts->b->o->samples);
    if (ts->b->o->think == 2 || ts->b->o->beside.retrieve == 1)
        cli_bench_real(r, "tokens", (double)tokens / n / ts->b->o->samples); /* dropped ones, too */
    if (ts->b->o->reason.stop != NULL || ts->b->o->reason.suppress != NULL) {
        cli_bench_real(r, "probes", (double)probes / n / ts->b->o->samples);
        cli_bench_real(r, "probe_rows", (double)probe_rows / n / ts->b->o->samples);
    }
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
    if (ts->b->o->judge == NULL)
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
        const int64_t n = ask_prompt_most(t->asked);

        if (ctx > 0 && n >= ctx)
            return err_set(e, ERR_LIMIT,
                           "%s: %s: the prompt has %" PRId64 " tokens, the context %" PRId64 " (--ctx sets it)", t->set,
                           cli_bench_task_id(t), n, ctx);
        beyond += train > 0 && n > train;
    }
    if (beyond > 0)
        cli_warn("%" PRId64 " prompts are longer than the %" PRId64 " tokens that the model was trained for", beyond,
                 train);
    return ERR_OK;
}

enum err_code cli_bench_tasks_ask(struct tasks *ts, struct err *e)
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
        if (ask_prompt_most(ts->v[i].asked) + o->predict_max > ctx)
            ctx = ask_prompt_most(ts->v[i].asked) + o->predict_max;
    if (ts->traces)
        ctx += GEN_BACK_MAX + BENCH_TRACE_ANSWER;
    if (parallel > total)
        parallel = (int)total;
    struct run_opts ro = { .ctx_tokens = ctx,
                           .n_seq = parallel,
                           .rows_max = o->model.chunk > parallel ? o->model.chunk
                                       : parallel > 256          ? parallel
                                                                 : 256 };
    int n_spare = 0;

    if (o->think == 2 || o->beside.retrieve == 1) /* where the prompts of both answers part */
        ro.checkpoint_bytes = parallel * run_snapshot_bytes(ts->b->open.model);
    for (size_t i = 0; i < ts->n && n_spare == 0; i++) /* all that think have the same options */
        n_spare = cli_reason_room(&ro, &ask_thorough(ts->v[i].asked)->reason);
    if (code == ERR_OK)
        code = cli_bench_run(&run, ts->b, ro, e);
    if (code == ERR_OK)
        code = gen_open(&g,
                        &(struct gen_opts){ .run = run,
                                            .text = ts->b->open.text,
                                            .n_spare = n_spare,
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

/* The model, and what is asked with every item. */
static enum err_code open_all(struct tasks *ts, struct err *e)
{
    const struct bench_opts *o = ts->b->o;

    if (o->before != NULL && (ts->before = json_array()) == NULL)
        return err_nomem(e);
    if (cli_text_of(&ts->system, o->system, e) ||
        (o->before != NULL && cli_read_messages(ts->before, NULL, o->before, e)) || cli_bench_open(ts->b, true, e))
        return e->code;
    if (o->calibration != NULL &&
        (cli_calibration_open(&ts->b->calibration, o->calibration, e) ||
         cli_calibration_check(ts->b->calibration, o->calibration, &ts->b->open, o->think == 2, e)))
        return e->code;
    if (chat_open(&ts->format, ts->b->open.text, (struct str){ 0 }, e))
        return err_wrap(e, "%s", ts->b->open.path);
    return cli_beside_texts(&ts->beside, &o->beside, &ts->b->open, e) ||
                   cli_beside_tables(&ts->beside, &o->beside, &ts->b->open, e)
               ? e->code
               : ERR_OK;
}

enum err_code cli_bench_tasks_open(struct tasks *ts, struct err *e)
{
    const bool judges = ts->b->o->judge != NULL;
    size_t total;

    if (*ts->b->operands == NULL)
        return err_set(e, ERR_ARG, "%s: no task set named", ts->traces ? "reason" : "eval");
    if (ts->b->o->samples > 1 && ts->b->o->temp <= 0 && !judges)
        return err_set(e, ERR_ARG, "eval: --samples needs a --temp above 0: greedy answers are all the same");
    if (!judges && open_all(ts, e))
        return e->code;
    for (char **f = ts->b->operands; *f != NULL; f++)
        if (read_set(ts, *f, e))
            return e->code;
    total = ts->n * (size_t)ts->b->o->samples;
    ts->done = calloc(total, sizeof *ts->done);
    ts->left = (int64_t)total;
    if (ts->done == NULL)
        return err_nomem(e);
    if (!judges && check_ctx(ts, e))
        return e->code;
    if (ts->path == NULL)
        return ERR_OK;
    return make_settings(ts, e) ? e->code : resume(ts, e);
}

/* A run that failed before its first answer leaves no new file. */
static void drop_empty(const struct tasks *ts)
{
    const char *path = ts->path;
    struct stat its, there;

    if (ts->made && fstat(ts->out, &its) == 0 && its.st_size == 0 && lstat(path, &there) == 0 &&
        there.st_dev == its.st_dev && there.st_ino == its.st_ino)
        unlink(path);
}

void cli_bench_tasks_close(struct tasks *ts, bool failed)
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
    free(ts->system);
    json_decref(ts->before);
    cli_beside_close(&ts->beside);
    grammar_vocab_close(ts->vocab);
    chat_close(ts->format);
    reason_calibration_close(ts->b->calibration);
}

enum err_code cli_bench_cmd_eval(struct bench *b, struct err *e)
{
    struct tasks ts = { .b = b, .path = b->o->out, .out = -1 };
    double from;
    enum err_code code;

    if (b->o->compare)
        return cli_bench_compare(b, e);
    code = cli_bench_tasks_open(&ts, e);
    from = clock_ms();
    if (code == ERR_OK && b->o->judge != NULL)
        code = cli_bench_judge(&ts, e);
    else if (code == ERR_OK && ts.left > 0)
        code = cli_bench_tasks_ask(&ts, e);
    if (code == ERR_OK)
        code = report_all(&ts, clock_ms() - from, e);
    cli_bench_tasks_close(&ts, code != ERR_OK);
    return code;
}
