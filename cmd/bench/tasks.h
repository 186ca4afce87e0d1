/* SPDX-License-Identifier: Apache-2.0 */
/* tasks.h - inside chimere-bench eval: tasks, what is asked with them, their answers.   room: cmd */
#ifndef BENCH_TASKS_H
#define BENCH_TASKS_H
#include "bench/bench.h"
#include "cli/beside.h"
#include "reason/trace.h"

struct grammar_vocab;

enum {
    BENCH_ROUNDS = 10000,     /* of the bootstrap */
    BENCH_TRACE_EVERY = 4,    /* tokens between the places of a trace that are no ends of lines */
    BENCH_TRACE_ANSWER = 256, /* of an answer there */
};

struct task {
    json_t *item;
    const char *set; /* name of the file, without directory and .jsonl */
    struct ask_request *asked;
    char hash[24], prompt_hash[24]; /* of the item as the file has it; of its prompt's tokens */
    int right, n, cut, n_thought;   /* of its samples */
    int64_t n_written, n_direct;    /* tokens of its answers; of direct ones that were dropped */
    int64_t n_looked_up;            /* answers with --retrieve auto that used notes */
    int64_t n_reasoning;            /* tokens of them */
    int64_t n_probes, n_probe_rows; /* of the engine, to find out how certain the model is */
    struct reason_trace *trace;     /* of its reasoning; NULL: none is kept */
};

struct tasks {
    struct bench *b;
    struct chat *format;
    struct grammar_vocab *vocab; /* for calls of tools */
    struct task *v;
    size_t n, cap;
    bool *done; /* [n * samples]: in the file of answers */
    int64_t left;
    char settings[320];
    struct cli_beside beside;
    char *system;     /* --system; NULL: none */
    json_t *before;   /* --messages-before; NULL: none */
    const char *path; /* of the file of answers; NULL: they are not kept */
    int out;          /* that file; -1 */
    bool made;        /* there was no file of answers */
    int64_t n_tokens; /* written */
    bool traces;      /* all items think, and what they think is kept */
};

/* An answer to sample at % samples of task at / samples. */
struct task_answer {
    size_t at;
    bool right, ended;
    int64_t n_tokens;
    struct str text;               /* all that the model wrote; p NULL: see `said` */
    const json_t *said;            /* a recorded answer without its reasoning; NULL: see `text` */
    const json_t *notes;           /* that it used; NULL: none were looked for */
    const struct gen_stats *stats; /* NULL: of a recorded answer */
};
/* It is graded: counts it, and writes it to the file of answers. */
MUST_CHECK enum err_code cli_bench_take(struct tasks *ts, const struct task_answer *a, struct err *e);
/* Opens the model, the sets that are the operands and the file of answers; asks what is not answered yet. To be closed
 * in any case: a new file without an answer goes if it failed. */
MUST_CHECK enum err_code cli_bench_tasks_open(struct tasks *ts, struct err *e);
MUST_CHECK enum err_code cli_bench_tasks_ask(struct tasks *ts, struct err *e);
void cli_bench_tasks_close(struct tasks *ts, bool failed);
/* traces.c: makes a trace of the task, which is to think whatever it says; reads it from a record; grades the answers
 * in it when all is thought. */
MUST_CHECK enum err_code cli_bench_trace_open(struct task *t, struct err *e);
MUST_CHECK enum err_code cli_bench_trace_take(const struct tasks *ts, struct task *t, const json_t *r, struct err *e);
MUST_CHECK enum err_code cli_bench_trace_grade(const struct tasks *ts, const struct task *t, bool right,
                                               const struct gen_stats *st, struct err *e);
/* judge.c: answers of the file of --judge-only, graded. */
MUST_CHECK enum err_code cli_bench_judge(struct tasks *ts, struct err *e);
/* compare.c: the paired difference of the two files that are the operands. */
MUST_CHECK enum err_code cli_bench_compare(struct bench *b, struct err *e);
bool cli_bench_is_answer(const json_t *r); /* a record of a file of answers */
const char *cli_bench_task_id(const struct task *t);
/* Adds to the settings in buf what was asked about the reasoning. */
void cli_bench_reason_settings(const struct tasks *ts, char *buf, size_t buf_bytes);
#endif
