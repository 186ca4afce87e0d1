/* SPDX-License-Identifier: Apache-2.0 */
/* program.h - inside chimere-draft-train: its options, prompts that come in, what it reports.    room: cmd */
#ifndef DRAFT_TRAIN_PROGRAM_H
#define DRAFT_TRAIN_PROGRAM_H
#include "chat/chat.h"
#include "cli/cli.h"
#include "cli/open.h"
#include "text/text.h"

enum { TRAIN_LEAST_TESTS = 5 }; /* with fewer texts no difference can be shown: 1/2^4 > 0.05 */
enum { TRAIN_FIRST, TRAIN_ZO }; /* struct train_options.method */

struct train_options {
    struct cli_model_opts model;
    const char *out, *time, *events, *plot, *taps;
    struct cli_list held_out, keep_files;
    int32_t n_layer, n_ff, block, n_tests, n_text, keep, n_seq;
    int64_t memory_bytes, n_predict, seed, steps;
    float rate;
    /* lora */
    const char *targets;
    int method;
    int32_t rank, epochs, samples, keep_batch, rehearse;
    float alpha, keep_weight, forget, momentum, shield;
    bool scales, scratch, rollback, lines, quiet, verbose;
    double time_s; /* of `time` */
};

/* "90s", "30m", "2h", "1d" in seconds; exits with EXIT_USAGE otherwise. */
double cli_train_time(const char *text);

/* ---- files.c ---- */

#define CLI_TRAIN_FILE_BYTES ((size_t)1 << 30) /* at most, of a file that is read whole */
/* Each line that is not blank; an error gets the file's name and the line's number. */
typedef enum err_code cli_train_line_fn(void *ctx, struct str line, struct err *e);
MUST_CHECK enum err_code cli_train_lines(const char *path, struct str all, cli_train_line_fn *fn, void *ctx,
                                         struct err *e);
/* The name with more at its end, malloc'ed; NULL: out of memory. */
char *cli_train_beside(const char *path, const char *end);
/* An empty file beside `out` that nobody else has, with a temporary file's name (base/io.h): what is new is written to it until
 * it is published. Removes those that killed trainings of `out` left. */
MUST_CHECK enum err_code cli_train_fresh(char **fresh, const char *out, struct err *e);
void cli_train_drop(char **fresh); /* removes the file and forgets its name; NULL is allowed */
/* io_publish(), then removes the state of the training at `half`. If a kill comes between them, the state is left, and
 * cli_train_drop_done() knows it. */
MUST_CHECK enum err_code cli_train_publish(const char *out, const char *fresh, int keep, const char *half,
                                           struct err *e);
/* Removes a state whose training has published what is at `out`: nothing can go on from it. */
void cli_train_drop_done(const char *out, const char *half);

/* ---- prompts.c ---- */

struct train_prompt {
    struct text_tokens token;
    int of; /* class: place of its file's name */
    int64_t document;
    uint64_t hash;
};
struct train_prompts {
    struct train_prompt *v; /* [n] */
    int64_t n, cap, n_document, n_long, n_same,
        n_twice; /* documents so far; left out: too long, held out as well, named twice */
    char **name; /* [n_name] of classes */
    int n_name;
};
struct train_data {
    struct train_prompts train, test; /* they share no document and no prompt */
};
/* Prompts of files, or of the task sets that came with the program; which are held out. ERR_FORMAT says what is wrong with
 * a file. */
MUST_CHECK enum err_code cli_train_read(struct train_data *d, const struct train_options *o, char *const *files,
                                        const struct text *text, int64_t tokens_max, struct err *e);
void cli_train_data_free(struct train_data *d);

/* ---- sample.c ---- */

/* Whether the i-th of n is among `most` of them that are spread evenly, beginning with the first. */
bool cli_train_spread(int64_t i, int64_t n, int64_t most);
/* For each of n hashes whether it is the first of its kind; malloc'ed. NULL: memory is short. */
bool *cli_train_firsts(const uint64_t *hash, int64_t n);

/* ---- report.c ---- */

/* Events as JSON lines (--jsonl) and points of a picture of the loss (--plot). */
struct train_report {
    const struct train_options *o;
    FILE *events;
    double from_ms;
    double *point; /* [n][2]: seconds, loss */
    int64_t n, cap;
    int failed; /* errno of an event that could not be written; 0: none */
};
MUST_CHECK enum err_code cli_train_report_open(struct train_report *r, const struct train_options *o, struct err *e);
/* Takes the reference of `fields`, which get "type" and "seconds". */
void cli_train_event(struct train_report *r, const char *event, json_t *fields);
void cli_train_point(struct train_report *r, double loss);
/* The end of a training, whether or not the report was opened: writes the picture, frees what r has, says what failed, and
 * returns the program's exit status: of the training (code, *e), which a picture that fails does not change. */
int cli_train_end(struct train_report *r, enum err_code code, int status, struct err *e);

extern const struct progress cli_train_until_signal; /* goes on until a signal has come */
/* "1:02:03" in buf. */
const char *cli_train_clock(double seconds, char buf[32]);

/* ---- the commands: the exit status, or cli_fail()'s ---- */

/* cli: whether a shape was asked for. */
int cli_train_dflash(const struct train_options *o, const struct cli *cli, char *const *files);
int cli_train_mtp(const struct train_options *o, const struct cli *cli, char *const *files);
int cli_train_lora(const struct train_options *o, const struct cli *cli, char *const *files);
#endif
