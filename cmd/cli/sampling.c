/* SPDX-License-Identifier: Apache-2.0 */
/* sampling.c - the options that choose a token (sampling.h).                 room: cmd */
#include "cli/sampling.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ask/ask.h"
#include "base/clock.h"
#include "base/rng.h"
#include "gguf/gguf.h"
#include "text/text.h"

/* What the sampler refuses, by the options' names: "/top_p" is "--top-p". */
static void check_ranges(const struct sample_opts *o)
{
    const struct sample_option *row;
    struct sampler *s = NULL;
    struct err e = { 0 };

    if (sample_open(&s, o, 1, &e) == ERR_ARG) {
        for (int i = 0; (row = sample_option(i)) != NULL; i++)
            if (strcmp(row->member, e.where + 1) == 0)
                cli_usage("--%s: %s", row->option, e.msg);
    }
    sample_close(s);
}

enum err_code cli_sampling_of_model(struct cli_sampling *s, const struct gguf *g, const struct cli *cli, struct err *e)
{
    struct sample_opts *const o = &s->o;
    const struct {
        const char *key, *option;
        float *real;
        int32_t *whole;
    } rows[] = {
        { "general.sampling.temp", "temp", &o->temp, NULL },
        { "general.sampling.top_k", "top-k", NULL, &o->top_k },
        { "general.sampling.top_p", "top-p", &o->top_p, NULL },
        { "general.sampling.min_p", "min-p", &o->min_p, NULL },
        { "general.sampling.penalty_repeat", "repeat-penalty", &o->repeat_penalty, NULL },
        { "general.sampling.penalty_last_n", "penalty-last-n", NULL, &o->penalty_last_n },
    };
    struct sampler *try;
    double x;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct gguf_kv *kv = gguf_kv_find(g, rows[i].key);

        if (kv == NULL || cli_given(cli, rows[i].option))
            continue;
        if (kv->kind == GGUF_ARR || kv->kind == GGUF_STR || !gguf_kv_f64(kv, 0, &x) || !(x >= -1 && x <= INT32_MAX))
            return err_set(e, ERR_FORMAT, "%s: %s is no number in range", gguf_path(g), rows[i].key);
        if (rows[i].real != NULL)
            *rows[i].real = (float)x;
        else
            *rows[i].whole = (int32_t)x;
        cli_note("options  --%s %g is from the model's file", rows[i].option, x);
    }
    switch (sample_open(&try, o, 1, e)) {
    case ERR_OK:
        sample_close(try);
        return ERR_OK;
    case ERR_ARG:
        e->code = ERR_FORMAT;
        return err_wrap(e, "%s: general.sampling: %s", gguf_path(g), e->where + 1);
    default:
        return e->code;
    }
}

void cli_sampling_check(const struct cli_sampling *s)
{
    for (size_t i = 0; i < s->breakers.n; i++) {
        if (*s->breakers.v[i] == '\0')
            cli_usage("--dry-breaker: the text is empty");
    }
    check_ranges(&s->o);
}

/* Tokens of the --dry-breaker texts. */
static enum err_code find_breakers(struct cli_sampling *s, const struct text *t, struct err *e)
{
    struct text_tokens found = { 0 };
    struct str *texts;

    if (cli_list_strings(&texts, &s->breakers, e))
        return e->code;
    const enum err_code code = ask_breakers(&found, t, texts, s->breakers.n, e);

    free(texts);
    s->o.dry_breakers = found.v;
    s->o.n_dry_breakers = (size_t)found.n;
    return code;
}

/* "ID=X", and as llama.cpp has it "ID+X" and "ID-X". */
static bool parse_bias(struct sample_bias *b, const char *word, int32_t n_vocab)
{
    char *end, *end2 = NULL;
    long id = strtol(word, &end, 10);

    if (*word < '0' || *word > '9' || id >= n_vocab || *end == '\0' || strchr("=+-", *end) == NULL)
        return false;
    const char *number = *end == '=' ? end + 1 : end;

    if (*end != '=' && strchr("+-", end[1]) != NULL) /* strtof() would take neither "+-1" nor the end of "5+" */
        return false;
    b->token = (int32_t)id;
    b->bias = strtof(number, &end2);
    return end2 != number && *end2 == '\0' && !isnan(b->bias) && b->bias < INFINITY;
}

static enum err_code parse_biases(struct cli_sampling *s, int32_t n_vocab, struct err *e)
{
    struct sample_bias *v = calloc(s->biases.n + 1, sizeof *v);

    if (v == NULL)
        return err_nomem(e);
    for (size_t i = 0; i < s->biases.n; i++) {
        if (!parse_bias(&v[i], s->biases.v[i], n_vocab)) {
            free(v);
            return err_set(e, ERR_ARG,
                           "--logit-bias %s: not ID=NUMBER, ID+NUMBER or ID-NUMBER with a token id below %" PRId32
                           " and a finite number or -inf",
                           *s->biases.v[i] != '\0' ? s->biases.v[i] : "''", n_vocab);
        }
    }
    s->o.bias = v;
    s->o.n_bias = s->biases.n;
    return ERR_OK;
}

static uint64_t fresh_seed(void)
{
    uint32_t block[4];

    /* Time and process id, mixed: other numbers each time is all that is asked of it. */
    rng_block(block, (uint64_t)(clock_ms() * 1e6), (uint64_t)getpid(), 0);
    return block[0];
}

enum err_code cli_sampling_make(struct cli_sampling *s, const struct text *t, int32_t n_vocab, struct err *e)
{
    if (s->seed < 0)
        s->seed = s->o.temp > 0 ? (int64_t)fresh_seed() : 0;
    s->o.seed = (uint64_t)s->seed;
    if (s->logprobs > n_vocab)
        return err_set(e, ERR_ARG, "--logprobs %" PRId32 ": the model has %" PRId32 " tokens", s->logprobs, n_vocab);
    s->o.n_top = s->logprobs > 0 ? s->logprobs : 0;
    if ((s->o.dry_multiplier != 0 || s->breakers.n > 0) && find_breakers(s, t, e))
        return e->code;
    return parse_biases(s, n_vocab, e);
}

void cli_sampling_free(struct cli_sampling *s)
{
    free((void *)(uintptr_t)s->o.bias);
    free((void *)(uintptr_t)s->o.dry_breakers);
    free(s->biases.v);
    free(s->breakers.v);
}
