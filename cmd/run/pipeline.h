/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline.h - inside chimere-run: a pipeline at work (chimere-pipeline(5)).   room: cmd
 *
 * pipeline.c walks over the steps, pipeline_ask.c asks the model, pipeline_beside.c opens what stands beside it,
 * pipeline_state.c keeps what was done in a file. */
#ifndef RUN_PIPELINE_H
#define RUN_PIPELINE_H
#include "pipeline/pipeline.h"
#include "run/program.h"

struct io_lock;

/* What a prompt and its answer have become: another step may go on with it. */
struct cli_thread {
    bool there;
    struct text_tokens held; /* prompts and answers */
    json_t *messages;
    const json_t *tools; /* that it was told of; NULL: none */
    char logged[64];     /* the id of its last answer in the log */
    int seq;             /* of the run, counted from 1, where it ended; 0: nowhere */
    int run;             /* which of all steps that ran it is */
};

/* What stands beside the model for one step. */
struct cli_step_memory {
    struct cli_beside beside;
    struct cli_beside_opts opts;
    struct cli_adapters adapters;
    char *path[3]; /* of table, index and recital, as far as they are the program's */
};

struct cli_pipeline {
    struct cli_run *s;
    struct pipeline *p;
    struct cli_buf file, input; /* as they were read */
    const char *directory;      /* of the file: relative names begin there */
    char *directory_own;
    json_t *state;                              /* results by name */
    struct cli_thread *thread;                  /* [pipeline_n_steps(p)] */
    struct cli_thread *last;                    /* of the prompt before; NULL: none */
    struct cli_step_memory *memory;             /* [pipeline_n_steps(p)] */
    const struct pipeline_step *newest, *shown; /* the step that ran last, and whose text was printed last */
    const struct pipeline_step *refused;        /* what it requires does not hold; NULL: all does */
    int n_runs;
    bool beside;                    /* in a parallel group */
    int64_t n_evaluated, n_written; /* tokens */
    /* --pipeline-state */
    struct io_lock *lock;
    json_t *id;      /* what the file belongs to */
    json_t *entries; /* a step that ran is one, in order */
    size_t n_found;  /* of them: from the file, */
    size_t n_played; /* that have been taken from there */
    json_t *report;  /* of each step that ran, for --json */
};

/* pipeline_beside.c: before the model is open, and when it is */
MUST_CHECK enum err_code cli_pipeline_texts(struct cli_pipeline *x, struct err *e);
MUST_CHECK enum err_code cli_pipeline_tables(struct cli_pipeline *x, struct err *e);
int cli_pipeline_rank(const struct cli_pipeline *x); /* of adapters, the most of a step */
void cli_pipeline_forget(struct cli_pipeline *x);
/* A name within the directory of the file; malloc'ed. */
MUST_CHECK enum err_code cli_pipeline_path(char **out, const struct cli_pipeline *x, const char *name, struct err *e);
/* A command with a text on its standard input: "text", "json", "status" and "end" into *result. */
MUST_CHECK enum err_code cli_pipeline_command(json_t **result, const struct cli_pipeline *x,
                                              const struct pipeline_command *c, struct str in, struct err *e);

/* pipeline_ask.c: prompts beside each other; each is reported when it has ended */
MUST_CHECK enum err_code cli_pipeline_ask(struct cli_pipeline *x, const struct pipeline_step *const *step, int n,
                                          struct err *e);

/* pipeline.c: a step has ended: its result (taken), and what is told of it besides */
MUST_CHECK enum err_code cli_pipeline_done(struct cli_pipeline *x, const struct pipeline_step *s, json_t *result,
                                           json_t *told, struct err *e);
/* Names the step in an error. */
enum err_code cli_pipeline_fault(const struct cli_pipeline *x, const struct pipeline_step *s, struct err *e);
bool cli_pipeline_streams(const struct cli_pipeline *x, const struct pipeline_step *s);

/* pipeline_state.c */
MUST_CHECK enum err_code cli_pipeline_open_state(struct cli_pipeline *x, struct err *e);
MUST_CHECK enum err_code cli_pipeline_check_model(struct cli_pipeline *x, struct err *e); /* the state's is this one */
/* The next entry, if the file had one, is of this step: it is as if it had run. */
const char *cli_pipeline_next(const struct cli_pipeline *x); /* whose it is; NULL: there is none */
MUST_CHECK enum err_code cli_pipeline_replay(struct cli_pipeline *x, const struct pipeline_step *s, bool *done,
                                             struct err *e);
MUST_CHECK enum err_code cli_pipeline_keep(struct cli_pipeline *x, const struct pipeline_step *s, json_t *result,
                                           struct err *e);
#endif
