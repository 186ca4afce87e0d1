/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline.h - files of pipelines: steps, templates of their texts, expressions over results.      room: pipeline
 *
 * A file is data, checked as a whole before anything runs: names, order and limits; chimere-pipeline(5) has the format.
 * Templates and expressions see one JSON object, `state`: of "input" and of each step that has run an object with
 * "text", "json" and more. They read it, and nothing else: no code, no loops, no text that becomes a template.
 */
#ifndef PIPELINE_PIPELINE_H
#define PIPELINE_PIPELINE_H
#include "base/base.h"
#include "base/json.h"

enum {
    PIPELINE_FILE_MAX = 4 << 20,   /* bytes */
    PIPELINE_TEXT_MAX = 256 << 10, /* of a template */
    PIPELINE_MADE_MAX = 16 << 20,  /* of what one becomes */
    PIPELINE_STEPS_MAX = 256,
    PIPELINE_DEPTH_MAX = 4, /* of groups in groups */
    PIPELINE_PARALLEL_MAX = 16,
    PIPELINE_ROUNDS_MAX = 100, /* of a repeat */
    PIPELINE_RUNS_MAX = 1000,  /* steps that run, all rounds counted */
    PIPELINE_TOOLS_MAX = 64,
    PIPELINE_WORDS_MAX = 100,      /* of a command */
    PIPELINE_SECONDS_MAX = 3600,   /* of a command */
    PIPELINE_BYTES_MAX = 16 << 20, /* that it may print */
    PIPELINE_CALLS_MAX = 64,       /* rounds of calls in a step */
};

enum pipeline_kind { PIPELINE_PROMPT, PIPELINE_COMMAND, PIPELINE_GROUP, PIPELINE_PARALLEL };

struct pipeline;
struct pipeline_text; /* a template */
struct pipeline_expr; /* an expression */

struct pipeline_command {
    const char **argv; /* [n] and NULL; not templates */
    int n, seconds;
    size_t bytes;
};
struct pipeline_tool {
    const char *name;
    const json_t *declared; /* as a request declares it */
    struct pipeline_command command;
};
struct pipeline_memory {
    const json_t *tables; /* array of texts, NULL: none */
    const char *index, *recite, *generation;
};
struct pipeline_step {
    enum pipeline_kind kind;
    int at;                                             /* its number in the file, groups counted, from 0 */
    const char *name;                                   /* NULL: a group */
    const char *where;                                  /* its JSON pointer */
    const struct pipeline_expr *when, *until, *require; /* NULL: none */
    int rounds;                                         /* at most; 1 without a repeat */
    bool show;
    /* PIPELINE_PROMPT; its prompt, or the standard input of a command; NULL: none */
    const struct pipeline_text *text;
    const char *system; /* NULL: the file's */
    const json_t *schema;
    json_t *tools;                    /* array of declarations, owned by the pipeline; NULL: none */
    const struct pipeline_step *fork; /* the step whose conversation it goes on with; NULL: see begins */
    bool begins;                      /* a conversation of its own; else that of the prompt before it goes on */
    bool is_forked;                   /* another step names it in `fork` */
    int think;                        /* 1, 0; -1: as the program has it */
    int64_t budget, tokens;           /* of reasoning, of the answer; -1: not given */
    struct pipeline_memory memory;
    bool has_memory;
    struct pipeline_command command; /* PIPELINE_COMMAND */
    struct pipeline_step *step;      /* [n_step] of groups */
    int n_step;
};

/* v: the file; its texts stay in use, and it gets one more owner. ERR_FORMAT: e->where is the JSON pointer of what is
 * wrong. */
MUST_CHECK enum err_code pipeline_open(struct pipeline **out, json_t *v, struct err *e);
void pipeline_close(struct pipeline *p);                                        /* NULL is allowed */
const struct pipeline_step *pipeline_steps(const struct pipeline *p, int *n);   /* those of the file itself */
int pipeline_n_steps(const struct pipeline *p);                                 /* all, groups counted */
const struct pipeline_step *pipeline_step_at(const struct pipeline *p, int at); /* of them */
int pipeline_widest(const struct pipeline *p);                                  /* steps of a parallel group, at most */
int pipeline_n_forked(const struct pipeline *p);                       /* steps whose conversations others go on with */
const char *pipeline_system(const struct pipeline *p);                 /* NULL: none */
const struct pipeline_text *pipeline_output(const struct pipeline *p); /* NULL: the text of the last step that ran */
int pipeline_calls_max(const struct pipeline *p);                      /* rounds of calls in a step */
const struct pipeline_tool *pipeline_tool_at(const struct pipeline *p, int i); /* NULL past the last */
/* The tool of a name; NULL: none. */
const struct pipeline_tool *pipeline_tool_of(const struct pipeline *p, const char *name);

/* A template with its references filled in: malloc'ed, NUL-terminated. What is not there is empty. ERR_LIMIT: more than
 * PIPELINE_MADE_MAX bytes. */
MUST_CHECK enum err_code pipeline_fill(char **out, size_t *n, const struct pipeline_text *t, const json_t *state,
                                       struct err *e);
bool pipeline_holds(const struct pipeline_expr *x, const json_t *state);
/* The value of "text" and "json" for a step's result: the text without line feeds at its end, and what it is as JSON,
 * null if it is none. */
MUST_CHECK enum err_code pipeline_set_text(json_t *result, struct str text, struct err *e);
#endif
