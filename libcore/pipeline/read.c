/* SPDX-License-Identifier: Apache-2.0 */
/* read.c - a file of steps is checked and read (pipeline.h).                       room: pipeline
 *
 * Steps are read in two passes: members and names, then templates and expressions, which may name steps. Each step
 * has a number in the order of the file, groups counted, and the number of the group that it is in. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/internal.h"

enum { SECONDS = 60, BYTES = 1 << 16, CALLS = 8, CONTEXT_MAX = 1 << 30 };

struct pipeline {
    json_t *file;
    struct arena arena;
    struct pipeline_step *step; /* [n_step] of the file itself */
    int n_step;
    struct pipeline_step *all[PIPELINE_STEPS_MAX]; /* [n] in order */
    const json_t *json[PIPELINE_STEPS_MAX];
    int parent[PIPELINE_STEPS_MAX]; /* -1: the file */
    int n, widest, n_forked;
    struct pipeline_tool tool[PIPELINE_TOOLS_MAX];
    int n_tool;
    int seconds, calls;
    size_t bytes;
    const char *system;
    const struct pipeline_text *output;
};

/* ---- members ---- */

static enum err_code fault(struct err *e, const char *why)
{
    return err_set(e, ERR_FORMAT, "%s", why);
}

/* A whole number from least to most; not given: *out stays. */
static enum err_code read_number(int64_t *out, const json_t *o, const char *key, int64_t least, int64_t most,
                                 struct err *e)
{
    const json_t *v = json_object_get(o, key);

    if (v == NULL)
        return ERR_OK;
    if (!json_is_integer(v) || json_integer_value(v) < least || json_integer_value(v) > most) {
        err_set(e, ERR_FORMAT, "is no whole number of %lld to %lld", (long long)least, (long long)most);
        return err_at(e, "/%s", key);
    }
    *out = json_integer_value(v);
    return ERR_OK;
}

static enum err_code read_flag(bool *out, const json_t *o, const char *key, struct err *e)
{
    const json_t *v = json_object_get(o, key);

    if (v != NULL && !json_is_boolean(v))
        return json_member_fault(e, key, "is not true or false");
    *out = json_is_true(v);
    return ERR_OK;
}

/* A text that is not empty; not given: *out stays. */
static enum err_code read_text(const char **out, const json_t *o, const char *key, struct err *e)
{
    const json_t *v = json_object_get(o, key);

    if (v == NULL)
        return ERR_OK;
    if (!json_is_string(v) || json_string_length(v) == 0 || json_string_length(v) > PIPELINE_TEXT_MAX)
        return json_member_fault(e, key, "is no text of 1 to 262144 bytes");
    *out = json_string_value(v);
    return ERR_OK;
}

static enum err_code read_words(struct pipeline *p, struct pipeline_command *c, const json_t *v, struct err *e)
{
    const json_t *word;
    size_t i;

    if (!json_is_array(v) || json_array_size(v) == 0 || json_array_size(v) > PIPELINE_WORDS_MAX)
        return fault(e, "is no array of 1 to 100 words");
    c->argv = arena_array(&p->arena, json_array_size(v) + 1, sizeof *c->argv);
    if (c->argv == NULL)
        return err_nomem(e);
    json_array_foreach (v, i, word) {
        if (!json_is_string(word) || (i == 0 && json_string_length(word) == 0))
            fault(e, "is no word");
        else if (str_has(json_text(word), "{{"))
            fault(e, "a word of a command is no template: what a step says goes to the command's standard input");
        else {
            c->argv[c->n++] = json_string_value(word);
            continue;
        }
        return err_at(e, "/%zu", i);
    }
    return ERR_OK;
}

static enum err_code read_command(struct pipeline *p, struct pipeline_command *c, const json_t *o, struct err *e)
{
    int64_t seconds = p->seconds, bytes = (int64_t)p->bytes;

    if (read_words(p, c, json_object_get(o, "command"), e))
        return err_at(e, "/command");
    if (read_number(&seconds, o, "seconds", 1, PIPELINE_SECONDS_MAX, e) ||
        read_number(&bytes, o, "bytes", 1, PIPELINE_BYTES_MAX, e))
        return e->code;
    c->seconds = (int)seconds;
    c->bytes = (size_t)bytes;
    return ERR_OK;
}

static enum err_code read_limits(struct pipeline *p, const json_t *o, struct err *e)
{
    int64_t seconds = SECONDS, bytes = BYTES, calls = CALLS;

    if ((o != NULL && json_check_members(o, " seconds bytes calls ", e)) ||
        read_number(&seconds, o, "seconds", 1, PIPELINE_SECONDS_MAX, e) ||
        read_number(&bytes, o, "bytes", 1, PIPELINE_BYTES_MAX, e) ||
        read_number(&calls, o, "calls", 1, PIPELINE_CALLS_MAX, e))
        return err_at(e, "/limits");
    p->seconds = (int)seconds;
    p->bytes = (size_t)bytes;
    p->calls = (int)calls;
    return ERR_OK;
}

/* ---- tools ---- */

static enum err_code read_tool(struct pipeline *p, const json_t *o, struct err *e)
{
    struct pipeline_tool *t = &p->tool[p->n_tool];
    const json_t *about = json_object_get(o, "description"), *parameters = json_object_get(o, "parameters");
    struct str name = { 0 };

    if (json_check_members(o, " name description parameters command seconds bytes ", e))
        return e->code;
    if (!json_get_str(o, "name", &name) || !json_is_name(name))
        return json_member_fault(e, "name", "is no name of letters, digits, - and _");
    if (pipeline_tool_of(p, name.p) != NULL)
        return json_member_fault(e, "name", "another tool has it");
    if (about != NULL && !json_is_string(about))
        return json_member_fault(e, "description", "is no text");
    if (parameters != NULL && !json_is_object(parameters))
        return json_member_fault(e, "parameters", "is no schema, an object");
    if (read_command(p, &t->command, o, e))
        return e->code;
    t->name = name.p;
    t->declared = json_pack("{s:s, s:{s:s, s:O*, s:O*}}", "type", "function", "function", "name", name.p, "description",
                            about, "parameters", parameters);
    if (t->declared == NULL)
        return err_nomem(e);
    p->n_tool++;
    return ERR_OK;
}

static enum err_code read_tools(struct pipeline *p, struct err *e)
{
    const json_t *v = json_object_get(p->file, "tools"), *one;
    size_t i;

    if (v == NULL)
        return ERR_OK;
    if (!json_is_array(v) || json_array_size(v) > PIPELINE_TOOLS_MAX)
        return json_member_fault(e, "tools", "is no array of at most 64 tools");
    json_array_foreach (v, i, one)
        if (read_tool(p, one, e))
            return err_at(e, "/tools/%zu", i);
    return ERR_OK;
}

/* The declarations of the tools that a step names. */
static enum err_code choose_tools(struct pipeline *p, struct pipeline_step *s, const json_t *v, struct err *e)
{
    const json_t *one;
    size_t i;

    if (v == NULL)
        return ERR_OK;
    if (!json_is_array(v) || json_array_size(v) == 0)
        return fault(e, "is no array of names of tools");
    if ((s->tools = json_array()) == NULL)
        return err_nomem(e);
    json_array_foreach (v, i, one) {
        const struct pipeline_tool *t = json_is_string(one) ? pipeline_tool_of(p, json_string_value(one)) : NULL;

        if (t == NULL) {
            fault(e, "there is no such tool in the file's \"tools\"");
            return err_at(e, "/%zu", i);
        }
        if (json_array_append(s->tools, (json_t *)(uintptr_t)t->declared) != 0)
            return err_nomem(e);
    }
    return ERR_OK;
}

/* ---- steps: members and names ---- */

static enum err_code read_think(struct pipeline_step *s, const json_t *v, struct err *e)
{
    s->think = -1;
    s->budget = -1;
    if (v == NULL)
        return ERR_OK;
    if (json_is_integer(v) && json_integer_value(v) >= 0 && json_integer_value(v) <= CONTEXT_MAX)
        s->budget = json_integer_value(v);
    else if (!json_is_boolean(v))
        return json_member_fault(e, "think", "is not true, false or the most tokens of reasoning");
    s->think = json_is_true(v) || s->budget > 0;
    s->budget = s->budget > 0 ? s->budget : -1;
    return ERR_OK;
}

static enum err_code read_memory(struct pipeline_step *s, const json_t *o, struct err *e)
{
    const json_t *tables = json_object_get(o, "tables"), *one;
    size_t i;

    s->has_memory = o != NULL;
    if (o == NULL)
        return ERR_OK;
    if (json_check_members(o, " tables index recite generation ", e) || read_text(&s->memory.index, o, "index", e) ||
        read_text(&s->memory.recite, o, "recite", e) || read_text(&s->memory.generation, o, "generation", e))
        return e->code;
    if (tables != NULL && !json_is_array(tables))
        return json_member_fault(e, "tables", "is no array of files");
    json_array_foreach (tables, i, one)
        if (!json_is_string(one) || json_string_length(one) == 0) {
            fault(e, "is no file's name");
            return err_at(e, "/tables/%zu", i);
        }
    s->memory.tables = tables;
    return ERR_OK;
}

static enum err_code read_prompt(struct pipeline *p, struct pipeline_step *s, const json_t *o, struct err *e)
{
    if (json_check_members(o, " name prompt system schema tools think tokens memory fork when repeat require show ", e))
        return e->code;
    s->schema = json_object_get(o, "schema");
    s->tokens = -1;
    if (s->schema != NULL && !json_is_object(s->schema))
        return json_member_fault(e, "schema", "is no object");
    if (read_text(&s->system, o, "system", e) || read_think(s, json_object_get(o, "think"), e) ||
        read_number(&s->tokens, o, "tokens", 1, CONTEXT_MAX, e))
        return e->code;
    if (choose_tools(p, s, json_object_get(o, "tools"), e))
        return err_at(e, "/tools");
    if (s->tools != NULL && s->schema != NULL)
        return json_member_fault(e, "schema", "a step with tools has none");
    return read_memory(s, json_object_get(o, "memory"), e) ? err_at(e, "/memory") : ERR_OK;
}

static enum err_code read_name(struct pipeline *p, struct pipeline_step *s, const json_t *o, struct err *e)
{
    static const char *const taken[] = { "input", "and", "or", "not", "contains", "true", "false", "null" };
    struct str name = { 0 };
    bool is_free;

    if (!json_get_str(o, "name", &name) || !json_is_name(name) || (name.p[0] >= '0' && name.p[0] <= '9') ||
        name.p[0] == '-')
        return json_member_fault(e, "name", "is no name: a letter, and letters, digits, - and _");
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        if (str_is(name, taken[i]))
            return json_member_fault(e, "name", "is a word of expressions");
    is_free = true;
    for (int i = 0; i < p->n; i++)
        is_free = is_free && (p->all[i] == s || p->all[i]->name == NULL || strcmp(p->all[i]->name, name.p) != 0);
    if (!is_free)
        return json_member_fault(e, "name", "another step has it");
    s->name = name.p;
    return ERR_OK;
}

static enum err_code read_repeat(struct pipeline_step *s, const json_t *o, struct err *e)
{
    int64_t most = 0;

    s->rounds = 1;
    if (o == NULL)
        return ERR_OK;
    if (json_check_members(o, " until max ", e) || read_number(&most, o, "max", 1, PIPELINE_ROUNDS_MAX, e))
        return e->code;
    if (most == 0)
        return json_member_fault(e, "max", "is missing: the most rounds");
    if (json_object_get(o, "until") == NULL)
        return json_member_fault(e, "until", "is missing: an expression");
    s->rounds = (int)most;
    return ERR_OK;
}

static enum err_code read_list(struct pipeline *p, struct pipeline_step **out, int *n, const json_t *v, int parent,
                               int depth, struct err *e);

static enum err_code read_group(struct pipeline *p, struct pipeline_step *s, const json_t *o, int depth, struct err *e)
{
    const bool parallel = s->kind == PIPELINE_PARALLEL;
    const char *key = parallel ? "parallel" : "steps";

    if (json_check_members(o, parallel ? " parallel when repeat require " : " steps when repeat require ", e))
        return e->code;
    if (read_list(p, &s->step, &s->n_step, json_object_get(o, key), s->at, depth + 1, e))
        return err_at(e, "/%s", key);
    if (!parallel)
        return ERR_OK;
    p->widest = s->n_step > p->widest ? s->n_step : p->widest;
    if (s->n_step > PIPELINE_PARALLEL_MAX)
        return json_member_fault(e, key, "more than 16 steps beside each other");
    for (int i = 0; i < s->n_step; i++)
        if (s->step[i].kind > PIPELINE_COMMAND || s->step[i].rounds > 1) {
            fault(e, "a step of a parallel group is a prompt or a command, and runs once");
            return err_at(e, "/%s/%d", key, i);
        }
    return ERR_OK;
}

static enum err_code read_step(struct pipeline *p, struct pipeline_step *s, const json_t *o, int parent, int depth,
                               struct err *e)
{
    static const char *const keys[] = { "prompt", "command", "steps", "parallel" };
    int n = 0;

    if (!json_is_object(o))
        return fault(e, "is not an object");
    if (p->n == PIPELINE_STEPS_MAX)
        return fault(e, "the file has more than 256 steps");
    for (int i = 0; i < 4; i++)
        if (json_object_get(o, keys[i]) != NULL) {
            s->kind = (enum pipeline_kind)i;
            n++;
        }
    if (n != 1)
        return fault(e, "has not one of prompt, command, steps and parallel");
    s->at = p->n;
    p->parent[p->n] = parent;
    p->json[p->n] = o;
    p->all[p->n++] = s;
    if (read_repeat(s, json_object_get(o, "repeat"), e))
        return err_at(e, "/repeat");
    if (s->kind >= PIPELINE_GROUP)
        return read_group(p, s, o, depth, e);
    if (read_name(p, s, o, e) || read_flag(&s->show, o, "show", e))
        return e->code;
    if (s->kind == PIPELINE_PROMPT)
        return read_prompt(p, s, o, e);
    return json_check_members(o, " name command stdin seconds bytes when repeat require show ", e)
               ? e->code
               : read_command(p, &s->command, o, e);
}

static enum err_code read_list(struct pipeline *p, struct pipeline_step **out, int *n, const json_t *v, int parent,
                               int depth, struct err *e)
{
    const json_t *one;
    struct pipeline_step *step;
    size_t i;

    if (!json_is_array(v) || json_array_size(v) == 0)
        return fault(e, "is no array of steps");
    if (depth > PIPELINE_DEPTH_MAX)
        return fault(e, "groups in more than 4 levels");
    if (json_array_size(v) > PIPELINE_STEPS_MAX)
        return fault(e, "the file has more than 256 steps");
    *out = step = arena_array(&p->arena, json_array_size(v), sizeof *step);
    if (step == NULL)
        return err_nomem(e);
    json_array_foreach (v, i, one) {
        if (read_step(p, &step[i], one, parent, depth, e))
            return err_at(e, "/%zu", i);
        ++*n;
    }
    return ERR_OK;
}

/* ---- steps: what they say ---- */

/* From where a name is looked up: step `at`, whose results from `seen` on are not there yet. */
struct place {
    const struct pipeline *p;
    int at, seen;
};

static struct pipeline_step *find_step(const struct pipeline *p, struct str name)
{
    for (int i = 0; i < p->n; i++)
        if (p->all[i]->name != NULL && str_is(name, p->all[i]->name))
            return p->all[i];
    return NULL;
}

static bool is_within(const struct pipeline *p, int at, int group)
{
    while (at >= 0 && at != group)
        at = p->parent[at];
    return at == group;
}

/* Both are in a group that may run again: what comes later is there from the round before. */
static bool comes_round(const struct pipeline *p, int at, int other)
{
    for (int g = at; g >= 0; g = p->parent[g])
        if (p->all[g]->rounds > 1 && is_within(p, other, g))
            return true;
    return false;
}

static enum err_code check_name(const void *of, struct str name, struct err *e)
{
    const struct place *x = of;
    const struct pipeline *p = x->p;
    const struct pipeline_step *s = find_step(p, name);
    int group;

    if (s == NULL)
        return err_set(e, ERR_FORMAT, "there is no step %.*s", STR_ARG(name));
    group = p->parent[s->at];
    if (s->at < x->seen) {
        if (x->at == s->at || x->at < 0 || group < 0 || p->all[group]->kind != PIPELINE_PARALLEL ||
            p->parent[x->at] != group)
            return ERR_OK;
        return err_set(e, ERR_FORMAT, "step %.*s runs at the same time", STR_ARG(name));
    }
    if (comes_round(p, x->at, s->at))
        return ERR_OK;
    return err_set(e, ERR_FORMAT, "step %.*s %s", STR_ARG(name), s->at == x->at ? "is this one" : "comes later");
}

/* A member that is there is a text. */
static enum err_code text_member(const json_t *v, const char *key, const char *fault, struct err *e)
{
    e->code = ERR_OK;
    return v != NULL && !json_is_string(v) ? json_member_fault(e, key, fault) : ERR_OK;
}

static enum err_code compile_text(struct pipeline *p, const struct pipeline_text **out, const json_t *o,
                                  const char *key, const struct place *x, struct err *e)
{
    const struct pipeline_scope scope = { check_name, x };
    const json_t *v = json_object_get(o, key);

    if (text_member(v, key, "is no text", e) || v == NULL)
        return e->code;
    return pipeline_text_make(out, &p->arena, json_text(v), &scope, e) ? err_at(e, "/%s", key) : ERR_OK;
}

static enum err_code compile_expr(struct pipeline *p, const struct pipeline_expr **out, const json_t *o,
                                  const char *key, const struct place *x, struct err *e)
{
    const struct pipeline_scope scope = { check_name, x };
    const json_t *v = json_object_get(o, key);

    if (text_member(v, key, "is no expression, a text", e) || v == NULL)
        return e->code;
    return pipeline_expr_make(out, &p->arena, json_text(v), &scope, e) ? err_at(e, "/%s", key) : ERR_OK;
}

static enum err_code find_fork(struct pipeline *p, struct pipeline_step *s, const json_t *v, struct err *e)
{
    const struct place x = { p, s->at, s->at };
    struct pipeline_step *from;

    s->begins = json_is_false(v) || s->system != NULL;
    if (v == NULL || json_is_false(v))
        return ERR_OK;
    if (!json_is_string(v))
        return fault(e, "is neither the name of a step nor false");
    if (check_name(&x, json_text(v), e))
        return e->code;
    from = find_step(p, json_text(v));
    if (from->kind != PIPELINE_PROMPT)
        return err_set(e, ERR_FORMAT, "step %s is no prompt: it has no conversation", from->name);
    if (s->system != NULL)
        return fault(e, "a step with a system message begins a conversation");
    if (s->tools != NULL && !json_equal(s->tools, from->tools))
        return err_set(e, ERR_FORMAT, "step %s has not the same tools", from->name);
    s->fork = from;
    p->n_forked += !from->is_forked;
    from->is_forked = true;
    return ERR_OK;
}

/* The number of the last step within a group, or of a step itself. */
static int end_of(const struct pipeline *p, int at)
{
    int last = at;

    while (last + 1 < p->n && is_within(p, last + 1, at))
        last++;
    return last;
}

static enum err_code compile_step(struct pipeline *p, struct pipeline_step *s, const char *where, struct err *e)
{
    const json_t *o = p->json[s->at];
    const struct place before = { p, s->at, s->at }, after = { p, s->at, end_of(p, s->at) + 1 };

    s->where = arena_strdup(&p->arena, str_of(where));
    if (s->where == NULL)
        return err_nomem(e);
    if (compile_expr(p, &s->when, o, "when", &before, e) || compile_expr(p, &s->require, o, "require", &after, e) ||
        compile_text(p, &s->text, o, s->kind == PIPELINE_COMMAND ? "stdin" : "prompt", &before, e))
        return e->code;
    if (compile_expr(p, &s->until, json_object_get(o, "repeat"), "until", &after, e))
        return err_at(e, "/repeat");
    return s->kind == PIPELINE_PROMPT && find_fork(p, s, json_object_get(o, "fork"), e) ? err_at(e, "/fork") : ERR_OK;
}

static enum err_code compile_list(struct pipeline *p, struct pipeline_step *step, int n, const char *where,
                                  struct err *e)
{
    char at[200];

    for (int i = 0; i < n; i++) {
        struct pipeline_step *s = &step[i];

        (void)snprintf(at, sizeof at, "%s/%d", where, i);
        if (compile_step(p, s, at, e))
            return err_at(e, "%s", at);
        (void)snprintf(at, sizeof at, "%s/%d/%s", where, i, s->kind == PIPELINE_PARALLEL ? "parallel" : "steps");
        if (s->kind >= PIPELINE_GROUP && compile_list(p, s->step, s->n_step, at, e))
            return e->code;
    }
    return ERR_OK;
}

static enum err_code read_file(struct pipeline *p, struct err *e)
{
    const struct place end = { p, -1, PIPELINE_STEPS_MAX };
    const json_t *about = json_object_get(p->file, "about");

    if (json_check_members(p->file, " about system limits tools steps output ", e))
        return e->code;
    if (about != NULL && !json_is_string(about))
        return json_member_fault(e, "about", "is no text");
    if (read_text(&p->system, p->file, "system", e) || read_limits(p, json_object_get(p->file, "limits"), e) ||
        read_tools(p, e))
        return e->code;
    if (read_list(p, &p->step, &p->n_step, json_object_get(p->file, "steps"), -1, 1, e))
        return err_at(e, "/steps");
    return compile_list(p, p->step, p->n_step, "/steps", e) || compile_text(p, &p->output, p->file, "output", &end, e)
               ? e->code
               : ERR_OK;
}

/* ---- the whole ---- */

enum err_code pipeline_open(struct pipeline **out, json_t *v, struct err *e)
{
    struct pipeline *p = calloc(1, sizeof *p);

    if (p == NULL)
        return err_nomem(e);
    p->file = json_incref(v);
    p->widest = 1;
    if (read_file(p, e)) {
        pipeline_close(p);
        return e->code;
    }
    *out = p;
    return ERR_OK;
}

void pipeline_close(struct pipeline *p)
{
    if (p == NULL)
        return;
    for (int i = 0; i < p->n; i++)
        json_decref(p->all[i]->tools);
    for (int i = 0; i < p->n_tool; i++)
        json_decref((json_t *)(uintptr_t)p->tool[i].declared);
    arena_free(&p->arena);
    json_decref(p->file);
    free(p);
}

const struct pipeline_step *pipeline_steps(const struct pipeline *p, int *n)
{
    *n = p->n_step;
    return p->step;
}

int pipeline_n_steps(const struct pipeline *p)
{
    return p->n;
}

const struct pipeline_step *pipeline_step_at(const struct pipeline *p, int at)
{
    return p->all[at];
}

int pipeline_widest(const struct pipeline *p)
{
    return p->widest;
}

int pipeline_n_forked(const struct pipeline *p)
{
    return p->n_forked;
}

const char *pipeline_system(const struct pipeline *p)
{
    return p->system;
}

const struct pipeline_text *pipeline_output(const struct pipeline *p)
{
    return p->output;
}

int pipeline_calls_max(const struct pipeline *p)
{
    return p->calls;
}

const struct pipeline_tool *pipeline_tool_at(const struct pipeline *p, int i)
{
    return i < p->n_tool ? &p->tool[i] : NULL;
}

const struct pipeline_tool *pipeline_tool_of(const struct pipeline *p, const char *name)
{
    for (int i = 0; i < p->n_tool; i++)
        if (strcmp(p->tool[i].name, name) == 0)
            return &p->tool[i];
    return NULL;
}
