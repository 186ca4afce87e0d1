/* SPDX-License-Identifier: Apache-2.0 */
/* effect.c - an option of the command line that can have no effect is a mistake, and said so. Options of the environment
 * and of files are not looked at: they are there for all kinds of calls.       room: cmd (cli_) */
#include <string.h>
#include "run/program.h"

/* What a call does. */
enum {
    CHAT = 1 << 0,       /* an answer to messages */
    TALK = 1 << 1,       /* -i */
    RAW = 1 << 2,        /* a text is gone on with */
    IDS = 1 << 3,        /* --tokens */
    TOKENIZE = 1 << 4,
    DETOKENIZE = 1 << 5,
    SHOW_PROMPT = 1 << 6,
    PLAN = 1 << 7,
    OTHER = 1 << 8,      /* --inspect, --show, --check, --parse, --render */
    TEXTS = CHAT | TALK | RAW,
    ANSWERS = TEXTS | IDS,
    RUNS = ANSWERS | PLAN,
};

/* Where options have an effect; those without a row everywhere, or their own check says where. */
static const struct {
    const char *option;
    unsigned    where;
} rows[] = {
    { "think", CHAT | TALK | SHOW_PROMPT },
    { "reasoning-budget", CHAT | TALK | SHOW_PROMPT },
    { "reasoning", CHAT | TALK },
    { "parser", CHAT | TALK },
    { "plain", RAW | TOKENIZE | DETOKENIZE },
    { "raw", RAW | TOKENIZE | SHOW_PROMPT },
    { "predict", RUNS },
    { "stop", TEXTS },
    { "ignore-eos", ANSWERS },
    { "stream", ANSWERS },
    { "temp", ANSWERS },
    { "top-k", ANSWERS },
    { "top-p", ANSWERS },
    { "min-p", ANSWERS },
    { "typical", ANSWERS },
    { "repeat-penalty", ANSWERS },
    { "presence-penalty", ANSWERS },
    { "frequency-penalty", ANSWERS },
    { "penalty-last-n", ANSWERS },
    { "dry-multiplier", ANSWERS },
    { "dry-base", ANSWERS },
    { "dry-allowed-length", ANSWERS },
    { "dry-last-n", ANSWERS },
    { "dry-breaker", ANSWERS },
    { "logit-bias", ANSWERS },
    { "seed", ANSWERS },
    { "draft", RUNS },
    { "draft-max", RUNS },
    { "engram", ANSWERS },
    { "engram-thinking", ANSWERS },
    { "engram-drafts", ANSWERS },
    { "ctx", RUNS },
    { "device", RUNS },
    { "vram", RUNS },
    { "kv", RUNS },
    { "chunk", RUNS },
    { "acts", RUNS },
    { "no-mmap", RUNS },
    { "repack", RUNS },
    { "expert-profile", RUNS },
};

/* Options that change how others work. */
static const struct {
    const char *option, *others[3];
} needs[] = {
    { "dry-base", { "dry-multiplier" } },
    { "dry-allowed-length", { "dry-multiplier" } },
    { "dry-last-n", { "dry-multiplier" } },
    { "dry-breaker", { "dry-multiplier" } },
    { "penalty-last-n", { "repeat-penalty", "presence-penalty", "frequency-penalty" } },
    { "draft-max", { "draft", "engram-drafts" } },
    { "engram-thinking", { "engram" } },
    { "engram-drafts", { "engram" } },
};

static unsigned what_it_does(void)
{
    if (o.inspect || o.show || o.check || o.parse.format != NULL || o.render.template_path != NULL)
        return OTHER;
    return o.tokenize      ? TOKENIZE
           : o.detokenize  ? DETOKENIZE
           : o.show_prompt ? SHOW_PROMPT
           : o.model.plan  ? PLAN
           : o.interactive ? TALK
           : o.tokens      ? IDS
           : o.raw         ? RAW
                           : CHAT;
}

static const char *called(unsigned what)
{
    return what == TOKENIZE      ? "with --tokenize"
           : what == DETOKENIZE  ? "with --detokenize"
           : what == SHOW_PROMPT ? "with --show-prompt"
           : what == PLAN        ? "with --plan"
           : what == TALK        ? "with -i"
           : what == IDS         ? "with --tokens"
           : what == RAW         ? "with --raw"
           : what == CHAT        ? "in a chat"
           : o.inspect           ? "with --inspect"
           : o.show              ? "with --show"
                                 : "where no model answers";
}

void cli_run_check_effect(const struct cli *cli)
{
    const unsigned what = what_it_does();

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!(rows[i].where & what) && cli_typed(cli, rows[i].option))
            cli_usage("--%s has no effect %s", rows[i].option, called(what));
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++) {
        bool has = false;

        for (int k = 0; k < 3 && needs[i].others[k] != NULL; k++)
            has = has || cli_given(cli, needs[i].others[k]);
        if (!has && cli_typed(cli, needs[i].option))
            cli_usage("--%s has no effect without --%s", needs[i].option, needs[i].others[0]);
    }
    if (o.stream && (o.json || o.jsonl) && cli_typed(cli, "stream"))
        cli_usage("--stream has no effect with --json and --jsonl");
}

void cli_run_check_cuts(const struct cli *cli)
{
    static const char *const cuts[] = { "top-k", "top-p", "min-p", "typical" };

    if (o.sampling.o.temp > 0 || cli_given(cli, "temp"))
        return;
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++)
        if (cli_typed(cli, cuts[i]))
            cli_usage("--%s has no effect at temperature 0: it needs --temp", cuts[i]);
    if (cli_typed(cli, "seed") && o.sampling.seed >= 0)
        cli_warn("--seed has no effect at temperature 0: it needs --temp");
}
