/* SPDX-License-Identifier: Apache-2.0 */
/* program.h - inside chimere-draft-train: its options, prompts that come in, what it reports.    room: cmd */
#ifndef DRAFT_TRAIN_PROGRAM_H
#define DRAFT_TRAIN_PROGRAM_H
#include "chat/chat.h"
#include "cli/cli.h"
#include "cli/open.h"
#include "text/text.h"
#include "tune/job.h"

struct dirent;

struct cli_train_options {
    struct cli_model_opts model;
    const char *out, *time, *events, *plot, *taps;
    struct cli_list held_out, keep_files, keep_tests;
    int32_t n_layer, n_ff, block, n_tests, n_text, keep, n_seq;
    int64_t memory_bytes, n_predict, seed, steps;
    float rate;
    /* lora */
    const char *targets, *size, *inspect, *cpu_time, *start; /* targets NULL: all that the size allows */
    int32_t rank;
    float alpha;
    struct tune_opts lora; /* those that lora alone has */
    bool scales, scratch, rollback, lines, neutral, quiet, verbose;
    double time_s; /* of `time` */
};

/* "90s", "30m", "2h", "1d" of an option in seconds; exits with EXIT_USAGE otherwise. */
double cli_train_time(const char *option, const char *text);

#define CLI_TRAIN_FILE_BYTES ((size_t)1 << 30) /* at most, of a file that is read whole */

/* ---- prompts.c ---- */

struct cli_train_prompt {
    struct text_tokens token;
    int of; /* class: place of its file's name */
    int64_t document;
    uint64_t hash;
};
struct cli_train_prompts {
    struct cli_train_prompt *v; /* [n] */
    size_t cap;
    int64_t n, n_document, n_long, n_same,
        n_twice; /* documents so far; left out: too long, held out as well, named twice */
    char **name; /* [n_name] of classes */
    int n_name;
};
struct cli_train_data {
    struct cli_train_prompts train, test; /* they share no document and no prompt */
};
/* Prompts of files, or of the task sets that came with the program; which are held out. ERR_FORMAT says what is wrong
 * with a file. */
MUST_CHECK enum err_code cli_train_read(struct cli_train_data *d, const struct cli_train_options *o, char *const *files,
                                        const struct text *text, int64_t tokens_max, struct err *e);
void cli_train_data_free(struct cli_train_data *d);

/* The files *list [n] of the task sets that came with the program, in dir; -1: there are none. */
int cli_train_list_sets(char *dir, size_t n, struct dirent ***list);
/* Tells how much of a file has been read. */
struct progress cli_train_reading(const char *path);

/* ---- report.c ---- */

/* Events as JSON lines (--jsonl) and points of a picture of the loss (--plot). */
enum cli_train_set { CLI_TRAIN_HELD_OUT, CLI_TRAIN_KEPT, CLI_TRAIN_SETS };
struct cli_train_report {
    const struct cli_train_options *o;
    FILE *events;
    double from_ms;
    double *point; /* [n][2]: seconds, loss */
    int64_t n;
    size_t cap; /* of numbers */
    struct {
        double before, after;
        bool known;
    } test[CLI_TRAIN_SETS];
    int failed; /* errno of an event that could not be written; 0: none */
};
MUST_CHECK enum err_code cli_train_report_open(struct cli_train_report *r, const struct cli_train_options *o,
                                               struct err *e);
/* Takes the reference of `fields`, which get "type" and "seconds". */
void cli_train_event(struct cli_train_report *r, const char *event, json_t *fields);
void cli_train_point(struct cli_train_report *r, double loss);
/* The loss of items that are not learnt, before the training and after it. */
void cli_train_tested(struct cli_train_report *r, enum cli_train_set set, double before, double after);
/* The end of a training, whether or not the report was opened: writes the picture, frees what r has, says what failed,
 * and returns the program's exit status: of the training (code, *e), which a picture that fails does not change. */
int cli_train_end(struct cli_train_report *r, enum err_code code, int status, struct err *e);

/* ---- the commands: the exit status, or cli_fail()'s ---- */

/* cli: whether a shape was asked for. */
int cli_train_dflash(const struct cli_train_options *o, const struct cli *cli, char *const *files);
int cli_train_mtp(const struct cli_train_options *o, const struct cli *cli, char *const *files);
int cli_train_lora(const struct cli_train_options *o, const struct cli *cli, char *const *files);
/* record.c: a line of the test of an adapter; what its file notes of its training, malloc'ed JSON, NULL when memory is
 * out; the same of a file on stdout, and the exit status. */
struct tune_outcome;
struct tune_job;
struct gguf;
enum { CLI_TRAIN_THOUGHT_BYTES = 160 };
void cli_train_print_outcome(FILE *f, const struct tune_outcome *r, const struct tune_job *j);
/* What the first count of a pair is of: "before". */
const char *cli_train_before(const struct tune_job *j);
/* ", 212 of 300 without thinking and 198 of 300 after an empty thought"; "" where all items are of a kind. Returns to.
 */
const char *cli_train_by_thought(char to[CLI_TRAIN_THOUGHT_BYTES], const struct tune_outcome *r);
char *cli_train_record(const struct tune_job *j, const struct gguf *model);
int cli_train_inspect(const char *path);
#endif
