/* SPDX-License-Identifier: Apache-2.0 */
/* calibrate.h - inside chimere-bench calibrate: questions that were answered directly and with reasoning.   room: cmd
 */
#ifndef BENCH_CALIBRATE_H
#define BENCH_CALIBRATE_H
#include "base/io.h"
#include "bench/bench.h"
#include "reason/calibration.h"
#include "reason/route.h"

struct chat_reader;

/* One of the two answers to a question. */
struct both_side {
    struct both *of;
    struct ask_request *asked;
    bool thinks, right;
    struct text_tokens answer;
    float *p; /* [n_p] p_max of its choices */
    size_t n_p, cap;
    uint64_t key; /* of all that the answer hangs on */
    bool done;
};
struct both {
    json_t *item;
    const char *set;
    struct both_side side[2]; /* direct; with reasoning */
    char *text;               /* of the user */
    size_t n_text;
    int class;  /* index in struct both_classes; 0: all */
    bool picks; /* thresholds are picked with it; else it is reported */
};
struct both_classes {
    const char *name[REASON_CLASSES_MAX + 2];
    int n;
    struct reason_threshold threshold[REASON_CLASSES_MAX + 2]; /* [0]: of all */
    struct reason_isotonic right[REASON_CLASSES_MAX + 2];
    int64_t n_picks[REASON_CLASSES_MAX + 2];
    bool own[REASON_CLASSES_MAX + 2]; /* enough questions for thresholds of its own */
};

struct calibration_job {
    struct bench *b;
    struct chat *format;
    struct grammar_vocab *vocab;  /* for calls of tools */
    struct reason_routes *routes; /* NULL: none */
    struct both *v;
    size_t n, cap;
    struct both_classes classes;
    struct reason_verifier_worth worth;
    bool verified;
    struct cli_beside beside; /* with indexes: answers without and with their texts */
    bool retrieves;
    uint64_t beside_hash;
    float retrieve_below; /* what was picked */
    int64_t n_retrieve;   /* answers that are right without texts, of the half that it was picked with */
    double thought_share; /* right answers with reasoning, of the other half */
    char *part;           /* the file of answers until all are there; NULL: not named yet */
    int out;              /* it; -1: not open */
    size_t n_done;        /* answers that it had */
};
enum err_code cli_bench_add_choice(struct both_side *s, float p, struct err *e);

/* calibrate_kept.c: takes the answers of a run that ended early; keeps one more; the end of it. */
MUST_CHECK enum err_code cli_bench_calibrate_resume(struct calibration_job *j, struct err *e);
MUST_CHECK enum err_code cli_bench_calibrate_keep(struct calibration_job *j, const struct both_side *s, struct err *e);
void cli_bench_calibrate_forget(struct calibration_job *j, bool whole);

/* calibrate_fit.c: thresholds from one half of the questions, figures from the other; the file. */
MUST_CHECK enum err_code cli_bench_calibrate_fit(struct calibration_job *j, struct err *e);
MUST_CHECK enum err_code cli_bench_calibrate_report(struct calibration_job *j, struct err *e);
MUST_CHECK enum err_code cli_bench_calibrate_write(const struct calibration_job *j, struct io_out *to, struct err *e);

/* calibrate_retrieve.c: below which mean log-probability an answer without texts is dropped for one with them. */
MUST_CHECK enum err_code cli_bench_calibrate_retrieve(struct calibration_job *j, struct err *e);
#endif
