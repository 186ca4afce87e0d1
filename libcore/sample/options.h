/* SPDX-License-Identifier: Apache-2.0 */
/* options.h - the options of a sampler that are one number, as a table.      room: sample
 *
 * A row is X(KIND, member, default, least, most, option, argument, help, names, USE, needs, to): KIND is REAL or WHOLE;
 * `option`, `argument` and `help` are of command lines; `names` are those of the member of a request, separated by
 * blanks; USE is ALONE, CUT (no effect without a temperature) or WITH (none without one of the options `needs`,
 * separated by |). From the rows come the members and defaults of struct sample_opts, the checks of sample_open(), the
 * options of programs with their checks, and the members of requests.
 */
#ifndef SAMPLE_OPTIONS_H
#define SAMPLE_OPTIONS_H
#include <float.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SAMPLE_DRY_MAX = 1024 /* a repetition counts up to this length, in tokens */ };

/* `to` is passed on. */
#define SAMPLE_OPTIONS(X, to) \
    X(REAL, temp, 0, 0, FLT_MAX, "temp", "t", "temperature (default 0: the most likely)", "temperature", ALONE, "", \
      to) \
    SAMPLE_CHAIN(X, to)
/* What comes between the temperature and a choice. */
#define SAMPLE_CHAIN(X, to) \
    X(WHOLE, top_k, 0, -1, INT32_MAX, "top-k", "n", "keep the n most likely (0, -1: off)", "top_k", CUT, "", to) \
    X(REAL, top_p, 1, 0, 1, "top-p", "p", "keep the most likely that sum to p (1: off)", "top_p", CUT, "", to) \
    X(REAL, min_p, 0, 0, 1, "min-p", "p", "keep p times as likely as the best (0: off)", "min_p", CUT, "", to) \
    X(REAL, typical_p, 1, 0, 1, "typical", "p", "keep the most typical that sum to p (1: off)", "typical_p", CUT, "", \
      to) \
    X(REAL, repeat_penalty, 1, 1e-6, 1e6, "repeat-penalty", "x", "divide logits of recent tokens (1: off)", \
      "repeat_penalty repetition_penalty", ALONE, "", to) \
    X(REAL, presence_penalty, 0, -1e6, 1e6, "presence-penalty", "x", "subtract from recent tokens (0: off)", \
      "presence_penalty", ALONE, "", to) \
    X(REAL, frequency_penalty, 0, -1e6, 1e6, "frequency-penalty", "x", "subtract for each occurrence (0: off)", \
      "frequency_penalty", ALONE, "", to) \
    X(WHOLE, penalty_last_n, 64, -1, INT32_MAX, "penalty-last-n", "n", \
      "number of recent tokens (default 64; -1: all)", "penalty_last_n repeat_last_n", WITH, \
      "repeat-penalty|presence-penalty|frequency-penalty", to) \
    X(REAL, dry_multiplier, 0, 0, 1e6, "dry-multiplier", "x", "penalise continuing a repetition (0: off)", \
      "dry_multiplier", ALONE, "", to) \
    X(REAL, dry_base, 1.75, 1, 1e6, "dry-base", "x", "growth of that per token (default 1.75)", "dry_base", WITH, \
      "dry-multiplier", to) \
    X(WHOLE, dry_allowed_length, 2, 1, SAMPLE_DRY_MAX, "dry-allowed-length", "n", \
      "free length of repetitions (default 2)", "dry_allowed_length", WITH, "dry-multiplier", to) \
    X(WHOLE, dry_last_n, -1, -1, INT32_MAX, "dry-last-n", "n", "tokens looked back at (default -1: all)", \
      "dry_penalty_last_n dry_last_n", WITH, "dry-multiplier", to)

/* A row. The member of a struct sample_opts is a float, or an int32_t if it is whole. */
struct sample_option {
    const char *member, *option, *names;
    const char *needs; /* options, separated by |, of which one has to be on; "": none */
    bool whole;
    double least, most;
    size_t at; /* offset of the member */
};
const struct sample_option *sample_option(int i); /* NULL past the last */
struct sample_opts;
/* Whether it has an effect beside the values of the options that it needs. */
bool sample_option_acts(const struct sample_opts *o, const struct sample_option *row);
double sample_option_value(const struct sample_opts *o, const struct sample_option *row);
void sample_option_set(struct sample_opts *o, const struct sample_option *row, double value);
#endif
