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

/* Rows of the option table; s is a struct cli_sampling (table.h has the short names, sample/options.h the options). */
#define ROWS_SAMPLING(s) \
    SAMPLE_OPTIONS(ROW_OF_OPTION, s) \
    ROW_BREAKERS(s), LIST("logit-bias", "id=x", "add x to a token's logit; repeatable", &(s).biases), \
        INT64(0, "seed", "n", "of the random numbers (-1, default: a new one)", &(s).seed, -1)
/* What comes between the temperature and a choice. */
#define ROWS_CHAIN(s) SAMPLE_CHAIN(ROW_OF_OPTION, s) ROW_BREAKERS(s)

#define ROW_BREAKERS(s) LIST("dry-breaker", "text", "ends a repetition; repeatable", &(s).breakers)

#define ROW_OF_REAL(option, arg, help, to, least)  REAL(0, option, arg, help, to)
#define ROW_OF_WHOLE(option, arg, help, to, least) INT32(option, arg, help, to, least, INT32_MAX)
#define ROW_OF_OPTION(kind, member, start, least, most, option, arg, help, names, use, needs, s) \
    ROW_OF_##kind(option, arg, help, &(s).o.member, least),
#endif
