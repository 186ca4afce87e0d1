/* SPDX-License-Identifier: Apache-2.0 */
/* effect.c - an option of the command line that can have no effect is a mistake, and said so. Those of the environment
 * and of files are there for all kinds of calls: where they have no effect they are ignored.      room: cmd */
#include <string.h>
#include "run/program.h"

/* What a call does. */
enum {
    CHAT = 1 << 0, /* an answer to messages */
    TALK = 1 << 1, /* -i */
    RAW = 1 << 2,  /* a text is continued */
    IDS = 1 << 3,  /* --tokens */
    TOKENIZE = 1 << 4,
    DETOKENIZE = 1 << 5,
    SHOW_PROMPT = 1 << 6,
    PLAN = 1 << 7,
    INSPECT = 1 << 8,
    SHOW = 1 << 9,
    CHECK = 1 << 10,
    PARSE = 1 << 11,
    RENDER = 1 << 12,
    ONE = CHAT | RAW | IDS, /* one answer, written or as JSON */
    TEXTS = CHAT | TALK | RAW,
    MESSAGES = CHAT | TALK | SHOW_PROMPT,
    ANSWERS = TEXTS | IDS,
    RUNS = ANSWERS | PLAN,
};

/* Where options have an effect; those without a row are what the call does, or messages of the program. */
static const struct {
    const char *option;
    unsigned where;
} rows[] = {
    { "model", ~(unsigned)(CHECK | PARSE | RENDER) },
    { "prompt", TEXTS | TOKENIZE | DETOKENIZE | SHOW_PROMPT },
    { "system", MESSAGES },
    { "messages", MESSAGES },
    { "tools", CHAT | SHOW_PROMPT | PARSE },
    { "tool-choice", CHAT | SHOW_PROMPT },
    { "lora", RUNS },
    { "template", MESSAGES | SHOW },
    { "chat-kwargs", MESSAGES },
    { "think", MESSAGES },
    { "reasoning-budget", MESSAGES },
    { "parser", CHAT | TALK },
    { "examples", MESSAGES },
    { "raw", RAW | TOKENIZE | SHOW_PROMPT },
    { "plain", RAW | TOKENIZE | DETOKENIZE },
    { "session", ANSWERS | SHOW },
    { "session-ro", ONE },
    { "drop-oldest", CHAT | TALK },
    { "predict", RUNS },
    { "schema", ONE | CHECK },
    { "grammar", ONE | CHECK },
    { "regex", ONE | CHECK },
    { "stop", TEXTS },
    { "ignore-eos", ANSWERS },
    { "reasoning", CHAT | TALK },
    { "stream", ONE },
    { "json", ONE | PLAN | INSPECT | SHOW },
    { "jsonl", ONE },
    { "logprobs", ONE },
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
    { "context-table", ANSWERS },
    { "engram-thinking", CHAT | TALK },
    { "recite", CHAT | TALK },
    { "engram-drafts", ANSWERS },
    { "ctx", RUNS },
    { "threads", RUNS },
    { "device", RUNS },
    { "vram", RUNS },
    { "kv", RUNS },
    { "chunk", RUNS },
    { "acts", RUNS },
    { "no-mmap", RUNS },
    { "repack", RUNS },
    { "expert-profile", RUNS },
    { "vars", RENDER },
    { "now", RENDER },
    { "reasoning-open", PARSE },
    { "logits", ONE },
    { "logits-last", ONE },
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
    { "engram-thinking", { "engram", "context-table" } },
    { "engram-drafts", { "engram", "context-table" } },
    { "tool-choice", { "tools", "messages" } },
    { "session-ro", { "session" } },
    { "drop-oldest", { "session", "interactive" } },
    { "logprobs", { "json", "jsonl" } },
    { "logits-last", { "logits" } },
};

/* Options that exclude each other: what was typed counts, else the first. */
static const struct {
    const char *one, *other;
} pairs[] = {
    { "raw", "system" },
    { "raw", "messages" },
    { "raw", "tools" },
    { "raw", "examples" },
    { "raw", "template" },
    { "raw", "chat-kwargs" },
    { "raw", "tool-choice" },
    { "raw", "interactive" },
    { "raw", "drop-oldest" },
    { "json", "jsonl" },
    { "schema", "grammar" },
    { "schema", "regex" },
    { "grammar", "regex" },
    { "json", "stream" },
    { "jsonl", "stream" },
    { "messages", "drop-oldest" },
    { "session-ro", "drop-oldest" },
    { "quiet", "verbose" },
};

static unsigned what_it_does(void)
{
    return o.inspect                        ? INSPECT
           : o.show                         ? SHOW
           : o.check                        ? CHECK
           : o.parse.format != NULL         ? PARSE
           : o.render.template_path != NULL ? RENDER
           : o.tokenize                     ? TOKENIZE
           : o.detokenize                   ? DETOKENIZE
           : o.show_prompt                  ? SHOW_PROMPT
           : o.model.plan                   ? PLAN
           : o.interactive                  ? TALK
           : o.tokens                       ? IDS
           : o.raw                          ? RAW
                                            : CHAT;
}

static const char *called(unsigned what)
{
    switch (what) {
    case INSPECT:
        return "with --inspect";
    case SHOW:
        return "with --show";
    case CHECK:
        return "with --check";
    case PARSE:
        return "with --parse";
    case RENDER:
        return "with --render";
    case TOKENIZE:
        return "with --tokenize";
    case DETOKENIZE:
        return "with --detokenize";
    case SHOW_PROMPT:
        return "with --show-prompt";
    case PLAN:
        return "with --plan";
    case TALK:
        return "with -i";
    case IDS:
        return "with --tokens";
    case RAW:
        return "with --raw";
    default:
        return "in a chat";
    }
}

static bool has_one(const struct cli *cli, const char *const others[3])
{
    for (int k = 0; k < 3 && others[k] != NULL; k++)
        if (cli_given(cli, others[k]))
            return true;
    return false;
}

/* An option was typed that has an effect in a chat, and none if a text is continued. */
static bool asks_for_chat(const struct cli *cli)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if ((rows[i].where & CHAT) && !(rows[i].where & RAW) && cli_typed(cli, rows[i].option))
            return true;
    return false;
}

void cli_run_leave_aside(const struct cli *cli)
{
    static const char *const forms[] = { "schema", "grammar", "regex" };

    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        cli_exclude(cli, pairs[i].one, pairs[i].other);
    if (asks_for_chat(cli))
        cli_leave_aside(cli, "raw");
    if (o.tool_choice != NULL && strcmp(o.tool_choice, "auto") != 0 && strcmp(o.tool_choice, "none") != 0)
        for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) /* a call must come, and what has a form is no call */
            if (cli_given(cli, forms[i]))
                cli_leave_aside(cli, cli_typed(cli, "tool-choice") ? forms[i] : "tool-choice");
    if (cli_typed(cli, "reasoning-budget") && o.think != 0)
        cli_leave_aside(cli, "think");
    if (cli_typed(cli, "draft") && o.draft_max == 0)
        cli_leave_aside(cli, "draft-max");
    if (cli_typed(cli, "think") && o.think == 0 && o.budget == 0)
        cli_leave_aside(cli, "reasoning-budget");
    const unsigned what = what_it_does();

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!(rows[i].where & what))
            cli_leave_aside(cli, rows[i].option);
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
        if (!has_one(cli, needs[i].others))
            cli_leave_aside(cli, needs[i].option);
}

void cli_run_check_effect(const struct cli *cli)
{
    const unsigned what = what_it_does();

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!(rows[i].where & what) && cli_typed(cli, rows[i].option))
            cli_usage("%s has no effect %s", cli_as_typed(cli, rows[i].option), called(what));
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
        if (!has_one(cli, needs[i].others) && cli_typed(cli, needs[i].option))
            cli_usage("%s has no effect without --%s", cli_as_typed(cli, needs[i].option), needs[i].others[0]);
    if (o.stream && (o.json || o.jsonl) && cli_typed(cli, "stream"))
        cli_usage("--stream has no effect with --json and --jsonl");
    if (o.think != 0 && o.budget != 0 && cli_typed(cli, "think") && cli_typed(cli, "reasoning-budget"))
        cli_usage("--reasoning-budget has no effect with --think off");
}

void cli_run_check_cuts(const struct cli *cli)
{
    static const char *const cuts[] = { "top-k", "top-p", "min-p", "typical" };

    if (o.sampling.o.temp > 0 || cli_typed(cli, "temp"))
        return;
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++)
        if (cli_typed(cli, cuts[i]))
            cli_usage("--%s has no effect at temperature 0: it needs --temp", cuts[i]);
    if (cli_typed(cli, "seed") && o.sampling.seed >= 0)
        cli_warn("--seed has no effect at temperature 0: it needs --temp");
}
