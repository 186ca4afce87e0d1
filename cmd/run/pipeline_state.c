/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline_state.c - --pipeline-state: what has run, in a file that is replaced after each step.       room: cmd
 *
 *     {"type": "pipeline-state", "pipeline": SHA-256 of the file, "input": of the input, "model": fingerprint,
 *      "ran": [{"step": name, "result": {...}, "messages": [...], "tokens": [...]}]}
 *
 * A run that goes on walks over the steps from the beginning and takes what an entry has instead of running the step:
 * conditions are functions of results. Of a step that ran several times only the last one has a conversation. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "model/model.h"
#include "run/pipeline.h"

static enum err_code refuse(const struct cli_pipeline *x, const char *why, struct err *e)
{
    return err_set(e, ERR_FORMAT, "%s: %s", x->s->o->pipeline_state, why);
}

static bool is_entry(const json_t *v)
{
    const json_t *messages = json_object_get(v, "messages"), *tokens = json_object_get(v, "tokens"), *id;
    size_t i;

    json_array_foreach (tokens, i, id)
        if (!json_is_integer(id))
            return false;
    return json_is_string(json_object_get(v, "step")) &&
           json_is_string(json_object_get(json_object_get(v, "result"), "text")) &&
           (messages == NULL) == (tokens == NULL) && (messages == NULL || json_is_array(messages)) &&
           (tokens == NULL || json_is_array(tokens));
}

/* What the file says, which may be anything. */
static enum err_code take_file(struct cli_pipeline *x, const json_t *file, struct err *e)
{
    static const char *const what[][2] = { { "pipeline", "belongs to another pipeline, and stays as it is" },
                                           { "input", "belongs to another input, and stays as it is" } };
    const json_t *type = json_object_get(file, "type"), *ran = json_object_get(file, "ran"), *one;
    size_t i;

    if (!json_is_string(type) || strcmp(json_string_value(type), "pipeline-state") != 0 || !json_is_array(ran) ||
        json_array_size(ran) > PIPELINE_RUNS_MAX)
        return refuse(x, "is no state of a pipeline, and stays as it is", e);
    for (int k = 0; k < 2; k++)
        if (!json_equal(json_object_get(file, what[k][0]), json_object_get(x->id, what[k][0])))
            return refuse(x, what[k][1], e);
    json_array_foreach (ran, i, one) {
        if (!is_entry(one))
            return refuse(x, "a step that ran is not whole", e);
        if (json_array_append(x->entries, (json_t *)(uintptr_t)one) != 0)
            return err_nomem(e);
    }
    x->n_found = json_array_size(ran);
    if (json_object_get(file, "model") != NULL)
        return json_object_set(x->id, "model", json_object_get(file, "model")) == 0 ? ERR_OK : err_nomem(e);
    return ERR_OK;
}

enum err_code cli_pipeline_open_state(struct cli_pipeline *x, struct err *e)
{
    const char *path = x->s->o->pipeline_state;
    char file[65], input[65];
    json_t *old = NULL;
    enum err_code code;
    struct stat st;

    io_sha256_hex(file, x->file.p, x->file.n);
    io_sha256_hex(input, x->input.p, x->input.n);
    x->entries = json_array();
    x->id = json_pack("{s:s, s:s, s:s}", "type", "pipeline-state", "pipeline", file, "input", input);
    if (x->entries == NULL || x->id == NULL)
        return err_nomem(e);
    if (path == NULL)
        return ERR_OK;
    if (io_lock(&x->lock, path, e))
        return e->code;
    if (stat(path, &st) != 0 || (S_ISREG(st.st_mode) && st.st_size == 0)) /* as of mktemp(1) */
        return ERR_OK;
    if (!S_ISREG(st.st_mode))
        return err_set(e, ERR_IO, "%s: is not a regular file", path);
    if (cli_json_file_by(&old, path, json_parse_own, e))
        return e->code;
    code = take_file(x, old, e);
    json_decref(old);
    return code;
}

enum err_code cli_pipeline_check_model(struct cli_pipeline *x, struct err *e)
{
    json_t *now = cli_json_hash(cli_open_fingerprint(&x->s->open));
    const json_t *had = json_object_get(x->id, "model");
    const bool same = had == NULL || json_equal(had, now);

    if (json_object_set_new(x->id, "model", now) != 0)
        return err_nomem(e);
    return same ? ERR_OK : refuse(x, "belongs to another model or adapter, and stays as it is", e);
}

static enum err_code take_thread(struct cli_pipeline *x, struct cli_thread *to, const json_t *entry, struct err *e)
{
    const json_t *tokens = json_object_get(entry, "tokens"), *id;
    const int32_t n_vocab = model_info(x->s->open.model)->n_vocab;
    size_t i;

    if (tokens == NULL)
        return ERR_OK;
    json_decref(to->messages);
    to->messages = json_incref(json_object_get(entry, "messages"));
    to->held.n = 0;
    to->there = true;
    json_array_foreach (tokens, i, id) {
        const json_int_t v = json_integer_value(id);

        if (v < 0 || v >= n_vocab)
            return refuse(x, "has a token that is none of the model's", e);
        if (text_tokens_push(&to->held, (int32_t)v, e))
            return e->code;
    }
    return ERR_OK;
}

const char *cli_pipeline_next(const struct cli_pipeline *x)
{
    return x->n_played < x->n_found
               ? json_string_value(json_object_get(json_array_get(x->entries, x->n_played), "step"))
               : NULL;
}

enum err_code cli_pipeline_replay(struct cli_pipeline *x, const struct pipeline_step *s, bool *done, struct err *e)
{
    const json_t *entry = x->n_played < x->n_found ? json_array_get(x->entries, x->n_played) : NULL;
    struct cli_thread *thread = &x->thread[s->at];

    *done = entry != NULL;
    if (entry == NULL)
        return ERR_OK;
    if (strcmp(json_string_value(json_object_get(entry, "step")), s->name) != 0)
        return refuse(x, "has steps in another order than the pipeline", e);
    x->n_played++;
    if (json_object_set(x->state, s->name, json_object_get(entry, "result")) != 0)
        return err_nomem(e);
    thread->tools = json_object_get(entry, "tools");
    cli_note("step     %s: from %s", s->name, x->s->o->pipeline_state);
    return s->kind == PIPELINE_PROMPT ? take_thread(x, thread, entry, e) : ERR_OK;
}

static json_t *json_tokens(const struct text_tokens *v)
{
    json_t *ids = json_array();

    for (int64_t i = 0; i < v->n; i++)
        json_push(&ids, json_integer(v->v[i]));
    return ids;
}

static enum err_code write_state(const struct cli_pipeline *x, struct err *e)
{
    json_t *all = json_shallow(x->id);
    char *text = NULL;
    enum err_code code;

    if (all != NULL && json_object_set(all, "ran", x->entries) == 0)
        text = json_line(all);
    json_decref(all);
    if (text == NULL)
        return err_nomem(e);
    code = io_write_file(x->s->o->pipeline_state, str_of(text), e);
    free(text);
    return code;
}

enum err_code cli_pipeline_keep(struct cli_pipeline *x, const struct pipeline_step *s, json_t *result, struct err *e)
{
    const struct cli_thread *thread = &x->thread[s->at];
    json_t *entry, *one;
    size_t i;

    if (x->s->o->pipeline_state == NULL)
        return ERR_OK;
    json_array_foreach (x->entries, i, one)
        if (strcmp(json_string_value(json_object_get(one, "step")), s->name) == 0) {
            (void)json_object_del(one, "messages");
            (void)json_object_del(one, "tokens");
        }
    entry = json_pack("{s:s, s:O}", "step", s->name, "result", result);
    if (entry != NULL && s->kind == PIPELINE_PROMPT &&
        (json_object_set(entry, "messages", thread->messages) != 0 ||
         (thread->tools != NULL && json_object_set(entry, "tools", (json_t *)(uintptr_t)thread->tools) != 0) ||
         json_object_set_new(entry, "tokens", json_tokens(&thread->held)) != 0)) {
        json_decref(entry);
        entry = NULL;
    }
    if (entry == NULL || json_array_append_new(x->entries, entry) != 0)
        return err_nomem(e);
    return write_state(x, e);
}
