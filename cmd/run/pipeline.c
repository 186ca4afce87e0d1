/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline.c - --pipeline: the steps of a file, one after the other or beside each other.    room: cmd */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/io.h"
#include "grammar/grammar.h"
#include "model/model.h"
#include "run/pipeline.h"
#include "run/run.h"
#include "text/text.h"

enum { CTX_TOKENS = 16384, FORKS_KEPT = 8 };

/* ---- what is read before anything runs ---- */

static enum err_code name_place(const struct cli_pipeline *x, struct err *e)
{
    return err_wrap(e, "%s: %s", x->s->o->pipeline, *e->where != '\0' ? e->where : "/");
}

/* A schema that the grammar refuses is a mistake in the file. */
static enum err_code check_schema(const json_t *schema, const char *where, struct err *e)
{
    struct grammar *g = NULL;

    if (ask_form_open(&g, &(struct ask_form){ .schema = schema }, NULL, e)) {
        char place[sizeof e->where];

        (void)snprintf(place, sizeof place, "%s", e->where);
        const char *within = strstr(place, "/schema/");

        (void)snprintf(e->where, sizeof e->where, "%.200s", within != NULL ? within + 7 : "");
        return err_at(e, "%s", where);
    }
    grammar_close(g);
    return ERR_OK;
}

static enum err_code check_schemas(const struct cli_pipeline *x, struct err *e)
{
    const struct pipeline_tool *t;
    char where[300];

    for (int i = 0; (t = pipeline_tool_at(x->p, i)) != NULL; i++) {
        const json_t *v = json_object_get(json_object_get(t->declared, "function"), "parameters");

        (void)snprintf(where, sizeof where, "/tools/%d/parameters", i);
        if (v != NULL && check_schema(v, where, e))
            return e->code;
    }
    for (int i = 0; i < pipeline_n_steps(x->p); i++) {
        const struct pipeline_step *s = pipeline_step_at(x->p, i);

        (void)snprintf(where, sizeof where, "%s/schema", s->where);
        if (s->schema != NULL && check_schema(s->schema, where, e))
            return e->code;
    }
    return ERR_OK;
}

static enum err_code read_file(struct cli_pipeline *x, struct err *e)
{
    const char *path = x->s->o->pipeline;
    const char *slash = strrchr(path, '/');
    json_t *v = NULL;
    enum err_code code;

    if (io_read_text(&x->file.p, &x->file.n, path, PIPELINE_FILE_MAX, cli_interrupted, e))
        return cli_as_data(e);
    x->directory_own = slash == NULL ? strdup(".") : strndup(path, slash > path ? (size_t)(slash - path) : 1);
    x->directory = x->directory_own;
    if (x->directory == NULL)
        return err_nomem(e);
    if (json_parse(&v, (struct str){ x->file.p, x->file.n }, path, e))
        return cli_as_data(e);
    code = pipeline_open(&x->p, v, e) ? e->code : check_schemas(x, e);
    json_decref(v);
    if (code == ERR_NOMEM || code == ERR_OK)
        return code;
    (void)cli_as_data(e);
    return name_place(x, e);
}

static enum err_code read_input(struct cli_pipeline *x, char *const *files, struct err *e)
{
    const struct cli_run_options *o = x->s->o;
    json_t *input;

    if (cli_read_prompt(&x->input, o->prompt, cli_run_inputs(x->s, files), e))
        return e->code;
    x->state = json_object();
    input = json_object();
    if (x->state == NULL || json_object_set_new(x->state, "input", input) != 0)
        return err_nomem(e);
    return pipeline_set_text(input, (struct str){ x->input.p != NULL ? x->input.p : "", x->input.n }, e);
}

/* ---- what it runs on ---- */

static struct run_opts sizes_of(const struct cli_pipeline *x)
{
    const struct cli_run *s = x->s;
    const int64_t train = model_info(s->open.model)->ctx_train;
    const int n_forked = pipeline_n_forked(x->p) + (pipeline_widest(x->p) > 1);
    const int n_kept = n_forked < FORKS_KEPT ? n_forked : FORKS_KEPT;
    const int n_seq = pipeline_widest(x->p) + (n_forked > 0);

    return (struct run_opts){ .n_seq = n_seq,
                              .ctx_tokens = s->o->model.ctx_tokens > 0        ? s->o->model.ctx_tokens
                                            : train > 0 && train < CTX_TOKENS ? train
                                                                              : CTX_TOKENS,
                              .rows_max = s->o->model.chunk,
                              .adapter_rank = cli_pipeline_rank(x),
                              /* A rung where each of these conversations ends; as many are on the grid. */
                              .checkpoint_bytes = 2 * n_kept * n_seq * run_snapshot_bytes(s->open.model),
                              .stop = cli_interrupted,
                              .stop_keeps = true };
}

static enum err_code open_model(struct cli_pipeline *x, struct err *e)
{
    struct cli_run *s = x->s;
    struct cli_run_options *o = s->o;

    if (cli_log_open(&s->journal, &o->log, e) || cli_open(&s->open, &o->model, e) ||
        cli_sampling_of_model(&o->sampling, s->open.gguf, s->cli, e))
        return e->code;
    cli_run_check_cuts(s->cli, o);
    if (cli_open_text(&s->open, true, e))
        return e->code;
    s->chat = true;
    if (cli_run_format(s, e) || cli_beside_texts(&s->beside, &o->beside, &s->open, e) || cli_pipeline_texts(x, e) ||
        cli_open_model(&s->open, e) || cli_beside_tables(&s->beside, &o->beside, &s->open, e) ||
        cli_pipeline_check_model(x, e))
        return e->code;
    const struct run_opts ro = sizes_of(x);

    if (cli_open_run(&s->run, &s->open, &ro, e) || cli_pipeline_tables(x, e) ||
        cli_sampling_make(&o->sampling, s->open.text, model_info(s->open.model)->n_vocab, e) ||
        cli_run_any_question(s, e))
        return e->code;
    const struct gen_opts go = { .run = s->run,
                                 .text = s->open.text,
                                 .end_token = -1,
                                 .adapters = s->open.adapters.list,
                                 .n_adapters = s->open.adapters.n };

    (void)setenv("CHIMERE_MODEL", s->open.path, 1); /* for commands that ask the same model */
    cli_run_note_machine(s);
    return gen_open(&s->gen, &go, e);
}

/* ---- steps ---- */

enum err_code cli_pipeline_fault(const struct cli_pipeline *x, const struct pipeline_step *s, struct err *e)
{
    return err_wrap(e, "%s: %s (%s)", x->s->o->pipeline, s->where, s->name);
}

bool cli_pipeline_streams(const struct cli_pipeline *x, const struct pipeline_step *s)
{
    int n;
    const struct pipeline_step *top = pipeline_steps(x->p, &n);

    return s->tools == NULL && !x->beside &&
           (s->show || (s == &top[n - 1] && s->rounds == 1 && pipeline_output(x->p) == NULL));
}

static enum err_code print_text(struct str text, struct err *e)
{
    (void)fwrite(text.p, 1, text.n, stdout);
    if (text.n == 0 || text.p[text.n - 1] != '\n')
        (void)putchar('\n');
    return cli_flush_stdout(e);
}

static struct str text_of(const struct cli_pipeline *x, const struct pipeline_step *s)
{
    return json_text(json_object_get(json_object_get(x->state, s->name), "text"));
}

static void note_step(const struct pipeline_step *s, const json_t *result, const json_t *told)
{
    const json_t *usage = json_object_get(told, "usage");

    if (s->kind == PIPELINE_COMMAND)
        cli_note("step     %s: status %d, %.1f ms", s->name, (int)json_integer_value(json_object_get(result, "status")),
                 json_number_value(json_object_get(told, "ms")));
    else
        cli_note("step     %s: %d of %d tokens evaluated, %d written, %.1f ms", s->name,
                 (int)json_integer_value(json_object_get(usage, "evaluated_tokens")),
                 (int)json_integer_value(json_object_get(usage, "prompt_tokens")),
                 (int)json_integer_value(json_object_get(usage, "completion_tokens")),
                 json_number_value(json_object_get(told, "ms")));
}

/* {"name", the result's members, what is told} */
static json_t *report_step(const struct pipeline_step *s, json_t *result, json_t *told)
{
    json_t *o = json_pack("{s:s}", "name", s->name);

    return json_if(o != NULL && json_object_update(o, result) == 0 && json_object_update(o, told) == 0, o);
}

static enum err_code tell_step(struct cli_pipeline *x, const struct pipeline_step *s, json_t *result, json_t *told,
                               struct err *e)
{
    json_t *o;

    note_step(s, result, told);
    if (!x->s->o->json && !x->s->o->jsonl) {
        if (cli_pipeline_streams(x, s) && s->kind == PIPELINE_PROMPT)
            x->shown = s;
        else if (s->show) {
            x->shown = s;
            return print_text(text_of(x, s), e);
        }
        return ERR_OK;
    }
    o = report_step(s, result, told);
    if (x->s->o->jsonl) {
        json_t *line = json_pack("{s:s}", "type", "pipeline_result");

        const bool ok = line != NULL && o != NULL && json_object_update(line, o) == 0;

        json_decref(o);
        return cli_json_line(json_if(ok, line), e);
    }
    return o != NULL && json_array_append_new(x->report, o) == 0 ? ERR_OK : err_nomem(e);
}

enum err_code cli_pipeline_done(struct cli_pipeline *x, const struct pipeline_step *s, json_t *result, json_t *told,
                                struct err *e)
{
    enum err_code code =
        json_object_set(x->state, s->name, result) == 0 ? cli_pipeline_keep(x, s, result, e) : err_nomem(e);

    x->newest = s;
    if (code == ERR_OK)
        code = tell_step(x, s, result, told, e);
    json_decref(result);
    json_decref(told);
    return code;
}

static enum err_code walk_command(struct cli_pipeline *x, const struct pipeline_step *s, struct err *e)
{
    const double from_ms = clock_ms();
    json_t *result, *told;
    char *text = NULL;
    size_t n = 0;
    enum err_code code = s->text != NULL ? pipeline_fill(&text, &n, s->text, x->state, e) : ERR_OK;

    cli_progress("step %s", s->name);
    if (code == ERR_OK)
        code = cli_pipeline_command(&result, x, &s->command, (struct str){ text != NULL ? text : "", n }, e);
    free(text);
    cli_progress_end();
    if (code)
        return cli_pipeline_fault(x, s, e);
    told = json_pack("{s:f}", "ms", clock_ms() - from_ms);
    if (told == NULL) {
        json_decref(result);
        return err_nomem(e);
    }
    return cli_pipeline_done(x, s, result, told, e);
}

/* Whether it is to run: its condition holds. Counts it. */
static bool begins(struct cli_pipeline *x, const struct pipeline_step *s)
{
    if (s->when != NULL && !pipeline_holds(s->when, x->state))
        return false;
    x->thread[s->at].run = x->n_runs++;
    return true;
}

static enum err_code check_runs(const struct cli_pipeline *x, const struct pipeline_step *s, struct err *e)
{
    if (cli_interrupted())
        return err_set(e, ERR_CANCEL, "interrupted");
    if (x->n_runs <= PIPELINE_RUNS_MAX)
        return ERR_OK;
    err_set(e, ERR_LIMIT, "more than %d steps ran", PIPELINE_RUNS_MAX);
    return cli_pipeline_fault(x, s, e);
}

static enum err_code walk_leaf(struct cli_pipeline *x, const struct pipeline_step *s, struct err *e)
{
    bool done = false;

    x->thread[s->at].run = x->n_runs++;
    if (check_runs(x, s, e) || cli_pipeline_replay(x, s, &done, e))
        return e->code;
    if (done) {
        x->newest = s;
        x->last = s->kind == PIPELINE_PROMPT ? &x->thread[s->at] : x->last;
        return ERR_OK;
    }
    return s->kind == PIPELINE_PROMPT ? cli_pipeline_ask(x, &s, 1, e) : walk_command(x, s, e);
}

/* Takes what the state has of the group, in whatever order its steps ended; the others stay in v. */
static enum err_code replay_some(struct cli_pipeline *x, const struct pipeline_step **v, int *n, struct err *e)
{
    bool done = true;

    while (done) {
        const char *next = cli_pipeline_next(x);

        done = false;
        for (int i = 0; i < *n && next != NULL && !done; i++) {
            if (strcmp(v[i]->name, next) != 0)
                continue;
            x->newest = v[i];
            if (cli_pipeline_replay(x, v[i], &done, e))
                return e->code;
            memmove(&v[i], &v[i + 1], (size_t)(--*n - i) * sizeof *v);
        }
    }
    return ERR_OK;
}

/* Commands first, one after the other; then the prompts in the same steps of the model. */
static enum err_code walk_group(struct cli_pipeline *x, const struct pipeline_step *group, struct err *e)
{
    const struct pipeline_step *v[PIPELINE_PARALLEL_MAX], *prompts[PIPELINE_PARALLEL_MAX];
    int n = 0, n_prompts = 0;
    enum err_code code = ERR_OK;

    for (int i = 0; i < group->n_step; i++)
        if (begins(x, &group->step[i]))
            v[n++] = &group->step[i];
    if (check_runs(x, &group->step[0], e) || replay_some(x, v, &n, e))
        return e->code;
    if (x->last != NULL && x->last->seq > 0) /* the group and what comes after it go on from here */
        run_mark(x->s->run, x->last->seq - 1);
    x->beside = true;
    for (int i = 0; i < n && code == ERR_OK; i++)
        if (v[i]->kind == PIPELINE_PROMPT)
            prompts[n_prompts++] = v[i];
        else
            code = walk_command(x, v[i], e);
    if (code == ERR_OK && n_prompts > 0)
        code = cli_pipeline_ask(x, prompts, n_prompts, e);
    x->beside = false;
    for (int i = 0; i < group->n_step && code == ERR_OK; i++)
        if (group->step[i].require != NULL && !pipeline_holds(group->step[i].require, x->state))
            x->refused = &group->step[i];
    return code;
}

static enum err_code walk_step(struct cli_pipeline *x, const struct pipeline_step *s, struct err *e);

static enum err_code walk_list(struct cli_pipeline *x, const struct pipeline_step *v, int n, struct err *e)
{
    for (int i = 0; i < n && x->refused == NULL; i++)
        if (walk_step(x, &v[i], e))
            return e->code;
    return ERR_OK;
}

static enum err_code walk_step(struct cli_pipeline *x, const struct pipeline_step *s, struct err *e)
{
    if (s->when != NULL && !pipeline_holds(s->when, x->state))
        return ERR_OK;
    for (int round = 0; round < s->rounds && x->refused == NULL; round++) {
        if (s->kind == PIPELINE_GROUP      ? walk_list(x, s->step, s->n_step, e)
            : s->kind == PIPELINE_PARALLEL ? walk_group(x, s, e)
                                           : walk_leaf(x, s, e))
            return e->code;
        if (s->until != NULL && pipeline_holds(s->until, x->state))
            break;
    }
    if (x->refused == NULL && s->require != NULL && !pipeline_holds(s->require, x->state))
        x->refused = s;
    return ERR_OK;
}

/* ---- the end ---- */

static json_t *json_usage(const struct cli_pipeline *x)
{
    return json_pack("{s:I, s:I}", "evaluated_tokens", (json_int_t)x->n_evaluated, "completion_tokens",
                     (json_int_t)x->n_written);
}

static enum err_code print_object(struct cli_pipeline *x, struct str text, struct err *e)
{
    json_t *o = json_pack("{s:s, s:o, s:o, s:o}", "type", "pipeline", "model", json_bytes(str_of(x->s->open.path)),
                          "text", json_bytes(text), "usage", json_usage(x));

    if (o != NULL &&
        ((x->s->o->json && json_object_set(o, "steps", x->report) != 0) ||
         json_object_set_new(o, "failed", x->refused != NULL ? json_string(x->refused->where) : json_null()) != 0 ||
         (x->last != NULL && json_object_set(o, "messages", x->last->messages) != 0))) {
        json_decref(o);
        o = NULL;
    }
    return cli_json_line(o, e);
}

static enum err_code print_end(struct cli_pipeline *x, struct err *e)
{
    char *made = NULL;
    struct str text = x->newest != NULL ? text_of(x, x->newest) : STR("");
    enum err_code code = ERR_OK;

    if (pipeline_output(x->p) != NULL) {
        if (pipeline_fill(&made, &text.n, pipeline_output(x->p), x->state, e))
            return e->code;
        text.p = made;
    }
    if (x->refused != NULL)
        fprintf(stderr, "%s: %s: %s: what it requires does not hold\n", cli_name(), x->s->o->pipeline,
                x->refused->where);
    if (x->s->o->json || x->s->o->jsonl)
        code = print_object(x, text, e);
    else if (x->refused == NULL && (made != NULL || (x->newest != NULL && x->shown != x->newest)))
        code = print_text(text, e);
    free(made);
    return code;
}

static enum err_code work(struct cli_pipeline *x, char *const *files, struct err *e)
{
    const struct pipeline_step *steps;
    int n;

    if (read_file(x, e) || read_input(x, files, e))
        return e->code;
    cli_catch_interrupts();
    x->thread = calloc((size_t)pipeline_n_steps(x->p), sizeof *x->thread);
    x->memory = calloc((size_t)pipeline_n_steps(x->p), sizeof *x->memory);
    x->report = json_array();
    if (x->thread == NULL || x->memory == NULL || x->report == NULL)
        return err_nomem(e);
    if (cli_pipeline_open_state(x, e) || open_model(x, e))
        return e->code;
    steps = pipeline_steps(x->p, &n);
    x->s->started = x->s->o->jsonl;
    if (x->s->o->jsonl && cli_json_line(json_pack("{s:s, s:o, s:i}", "type", "pipeline_start", "model",
                                                  json_bytes(str_of(x->s->open.path)), "steps", pipeline_n_steps(x->p)),
                                        e))
        return e->code;
    return walk_list(x, steps, n, e) || print_end(x, e) || cli_open_save_uses(&x->s->open, e) ? e->code : ERR_OK;
}

enum err_code cli_run_pipeline(struct cli_run *s, char *const *files, int *status, struct err *e)
{
    struct cli_pipeline x = { .s = s };
    const enum err_code code = work(&x, files, e);

    if (x.refused != NULL)
        *status = EXIT_NO;
    gen_close(s->gen); /* before what its requests point to */
    s->gen = NULL;
    run_close(s->run);
    s->run = NULL;
    for (int i = 0; x.thread != NULL && i < pipeline_n_steps(x.p); i++) {
        text_tokens_free(&x.thread[i].held);
        json_decref(x.thread[i].messages);
    }
    free(x.thread);
    cli_pipeline_forget(&x);
    pipeline_close(x.p);
    json_decref(x.state);
    json_decref(x.report);
    json_decref(x.entries);
    json_decref(x.id);
    io_unlock(x.lock);
    free(x.file.p);
    cli_buf_free(&x.input);
    free(x.directory_own);
    return code;
}
