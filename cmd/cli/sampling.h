/* SPDX-License-Identifier: Apache-2.0 */
/* sampling.h - the options that choose a token: their rows, and what a sampler gets.      room: cmd */
#ifndef CLI_SAMPLING_H
#define CLI_SAMPLING_H
#include "cli/cli.h"
#include "sample/sample.h"

struct cli_sampling {
    struct sample_opts o; /* sample_defaults() before the options are read */
    struct cli_list biases, breakers;
    int64_t seed;     /* -1: not given */
    int32_t logprobs; /* -1: none wanted */
};

/* Mistakes in the options: exits with EXIT_USAGE. */
void cli_sampling_check(const struct cli_sampling *s);
/* Completes s->o: the seed, tokens of --logit-bias and --dry-breaker. t may be NULL: a model without a tokenizer. */
MUST_CHECK enum err_code cli_sampling_make(struct cli_sampling *s, const struct text *t, int32_t n_vocab,
                                           struct err *e);
/* What the model's file recommends (general.sampling.*), for options that were not given. ERR_FORMAT: out of range. */
MUST_CHECK enum err_code cli_sampling_of_model(struct cli_sampling *s, const struct gguf *g, const struct cli *cli,
                                               struct err *e);
void cli_sampling_free(struct cli_sampling *s);

/* Rows of the option table; s is a struct cli_sampling (table.h has the short names). */
#define ROWS_SAMPLING(s) \
    REAL(0, "temp", "t", "temperature (default 0: the most likely)", &(s).o.temp), ROWS_CHAIN(s), \
        LIST("logit-bias", "id=x", "add x to a token's logit; repeatable", &(s).biases), \
        INT64(0, "seed", "n", "of the random numbers (-1, default: a new one)", &(s).seed, -1)
/* What comes between the temperature and a choice. */
#define ROWS_CHAIN(s) \
    INT32("top-k", "n", "keep the n most likely (0, -1: off)", &(s).o.top_k, -1, INT32_MAX), \
        REAL(0, "top-p", "p", "keep the most likely that sum to p (1: off)", &(s).o.top_p), \
        REAL(0, "min-p", "p", "keep p times as likely as the best (0: off)", &(s).o.min_p), \
        REAL(0, "typical", "p", "keep the most typical that sum to p (1: off)", &(s).o.typical_p), \
        REAL(0, "repeat-penalty", "x", "divide logits of recent tokens (1: off)", &(s).o.repeat_penalty), \
        REAL(0, "presence-penalty", "x", "subtract from recent tokens (0: off)", &(s).o.presence_penalty), \
        REAL(0, "frequency-penalty", "x", "subtract for each occurrence (0: off)", &(s).o.frequency_penalty), \
        INT32("penalty-last-n", "n", "number of recent tokens (default 64; -1: all)", &(s).o.penalty_last_n, -1, \
              INT32_MAX), \
        REAL(0, "dry-multiplier", "x", "penalise continuing a repetition (0: off)", &(s).o.dry_multiplier), \
        REAL(0, "dry-base", "x", "growth of that per token (default 1.75)", &(s).o.dry_base), \
        INT32("dry-allowed-length", "n", "free length of repetitions (default 2)", &(s).o.dry_allowed_length, 1, \
              INT32_MAX), \
        INT32("dry-last-n", "n", "tokens looked back at (default -1: all)", &(s).o.dry_last_n, -1, INT32_MAX), \
        LIST("dry-breaker", "text", "ends a repetition; repeatable", &(s).breakers)
#endif
