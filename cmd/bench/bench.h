/* SPDX-License-Identifier: Apache-2.0 */
/* bench.h - inside chimere-bench: options, what is open, records.          room: cmd
 *
 * Every result is a record: a JSON object with type, case (what exactly was measured) and metric (which key
 * holds the figure that comparisons use). Its better says higher or lower, its noise is that figure's, in the
 * same unit. Then come the figures and where they are from: model, hardware, build, command, time.
 */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H
#include "ask/ask.h"
#include "cli/beside.h"
#include "cli/cli.h"
#include "cli/open.h"
#include "cli/reason.h"
#include "cli/verifier.h"
#include "eval/eval.h"
#include "text/text.h"

struct chat;
struct model_opts;
struct model_reads;
struct shape;

struct bench_opts {
    struct cli_model_opts model;
    const char *shape, *mix, *write, *out, *against, *plot, *traces;
    const char *prompts, *depths, *rows, *seqs; /* depths NULL: not given */
    const char *reference, *save;
    const char *system, *before, *judge; /* --system, --messages-before, --judge-only */
    struct cli_beside_opts beside;
    const char *draft_max, *oracle;
    struct cli_list drafts_of; /* --draft */
    bool holes, json, table, verbose, quiet, compare, fixed, quote;
    int think;                          /* index of the choice: 0 on, 1 off, 2 auto */
    const char *calibration, *classify; /* files; NULL: not given */
    struct cli_reason reason;
    struct cli_verifier_opts verifier;
    int32_t drafts, reps, decode_tokens, samples, parallel;
    int64_t stride, windows, limit, predict_max, seed, size_bytes;
    float temp, top_p, bandwidth, may_lose, routing;
};

struct bench {
    const struct bench_opts *o;
    char *command;   /* the command line */
    char **operands; /* ended by NULL */
    json_t *against; /* records to compare with; NULL: none */
    bool regressed;
    char label[256];               /* what records call it */
    char device[16], kernels[288]; /* what computes; empty: nothing so far */
    int n_threads;                 /* of it */
    char kv[32];                   /* types of keys and values; empty: no run so far */
    struct cli_opened open;
    uint64_t fingerprint;
    struct reason_calibration *calibration; /* --think auto; NULL: none */
};

/* The commands. */
enum err_code cli_bench_cmd_speed(struct bench *b, struct err *e);
enum err_code cli_bench_cmd_bandwidth(struct bench *b, struct err *e);
enum err_code cli_bench_cmd_ppl(struct bench *b, struct err *e);
enum err_code cli_bench_cmd_kl(struct bench *b, struct err *e);
enum err_code cli_bench_cmd_eval(struct bench *b, struct err *e);
enum err_code cli_bench_cmd_synth(struct bench *b, struct err *e);
enum err_code cli_bench_cmd_plot(struct bench *b, struct err *e);
enum err_code cli_bench_cmd_state(struct bench *b, struct err *e);
enum err_code cli_bench_cmd_speculate(struct bench *b, struct err *e);
enum err_code cli_bench_cmd_kernels(struct bench *b, struct err *e);
enum err_code cli_bench_cmd_score(struct bench *b, struct err *e);
enum err_code cli_bench_cmd_classify(struct bench *b, struct err *e);
enum err_code cli_bench_cmd_reason(struct bench *b, struct err *e);
enum err_code cli_bench_cmd_calibrate(struct bench *b, struct err *e);

/* Draws an array of records of rules. */
MUST_CHECK enum err_code cli_bench_draw_rules(struct bench *b, const json_t *records, const char *path, struct err *e);

/* The shape of --shape, --mix and --routing; what names tell of the latter, or nothing. */
MUST_CHECK enum err_code cli_bench_shape(struct shape **out, char routing[32], const struct bench *b, struct err *e);
/* Opens b's model: --model, or --shape with random weights in memory. with_text: its tokenizer too. */
MUST_CHECK enum err_code cli_bench_open(struct bench *b, bool with_text, struct err *e);
void cli_bench_close(struct bench *b);
/* A run of the model: cli_open_run(), and the plan with -v. */
MUST_CHECK enum err_code cli_bench_run(struct run **out, struct bench *b, struct run_opts ro, struct err *e);
void cli_bench_show(void *bench, const char *line);      /* a cli_placement_line: a line of the table */
double cli_bench_kv_bytes(const char *k, const char *v); /* of one element, the mean of both types */

/* Records: r takes what is particular to one; done adds the rest, prints (as JSON, or `line` as text),
 * and compares. */
json_t *cli_bench_record(const char *type, const char *what, const char *metric, const char *better);
void cli_bench_real(json_t *r, const char *key, double v);
void cli_bench_int(json_t *r, const char *key, int64_t v);
void cli_bench_text(json_t *r, const char *key, const char *v);
const char *cli_bench_text_in(const json_t *r, const char *key); /* "": there is none */
bool cli_bench_as_json(const struct bench *b);
MUST_CHECK enum err_code cli_bench_done(struct bench *b, json_t *r, struct err *e);
/* A line of the table; nothing when records are printed as JSON. */
void cli_bench_line(const struct bench *b, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Records of a file of JSON lines, as an array. */
MUST_CHECK enum err_code cli_bench_load(json_t **out, const char *path, struct err *e);

/* "1,2k,8" to numbers within least .. most; at most 32. */
struct bench_list {
    int64_t v[32];
    int n;
};
MUST_CHECK enum err_code cli_bench_list(struct bench_list *out, const char *s, const char *option, int64_t least,
                                        int64_t most, struct err *e);
int64_t cli_bench_most(const struct bench_list *l);
/* Median, least and most of v[n], which is sorted. */
struct bench_spread {
    double median, min, max;
};
struct bench_spread cli_bench_spread(double *v, int n);
/* KEY, KEY_min and KEY_max, each with `unit` after it; the noise of a figure that has this spread. */
void cli_bench_put_spread(json_t *r, const char *key, const char *unit, struct bench_spread v);
void cli_bench_put_noise(json_t *r, struct bench_spread v);

/* Bytes in a second that a device reads from a buffer of `bytes` bytes (model_read_speed); r has reps. */
int64_t cli_bench_read_bytes(const struct bench *b); /* a buffer that caches hold little of */
MUST_CHECK enum err_code cli_bench_read_speed(struct bench_spread *out, struct model_reads *r,
                                              const struct model_opts *o, int64_t bytes, struct err *e);

/* The texts named by the operands ("-" is stdin), as tokens, with the model's tokenizer. A file named *.jsonl
 * has a document for each line, in its member "text". */
struct bench_texts {
    struct eval_tokens *v;
    size_t n;
    int64_t n_tokens;
    uint64_t hash;
};
MUST_CHECK enum err_code cli_bench_texts(struct bench_texts *out, const struct bench *b, struct err *e);
void cli_bench_texts_free(struct bench_texts *t);
/* A set of tasks is called as its file, without directory and .jsonl; in buf. What an item of it asks; the
 * item gets enable_thinking if it has none, and *kwargs is the caller's, who releases it after the question. */
const char *cli_bench_set_name(const char *path, char buf[128]);
MUST_CHECK enum err_code cli_bench_question(struct ask *a, json_t **kwargs, const struct bench *b, json_t *item,
                                            struct err *e);
struct eval_window_opts cli_bench_windows(const struct bench *b);
/* Progress: b's command name and n of m; stops on an interrupt. */
struct progress cli_bench_progress(const char *what);
extern const struct progress cli_bench_weights; /* of a shape's file, in GB */
#endif
