/* SPDX-License-Identifier: Apache-2.0 */
/* effect.c - which options work together, and where they have an effect. An option of the command line that can have
 * none is a mistake, and said so. Those of the environment and of files are there for all kinds of calls: where they
 * have no effect they are ignored.                                                                    room: cmd */
#include <string.h>
#include <unistd.h>
#include "reason/search.h"
#include "run/best.h"
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
    RATE = 1 << 13,
    CLASSIFY = 1 << 14,
    PIPELINE = 1 << 15,
    ONE = CHAT | RAW | IDS, /* one answer, written or as JSON */
    TEXTS = CHAT | TALK | RAW,
    MESSAGES = CHAT | TALK | SHOW_PROMPT,
    ANSWERS = TEXTS | IDS,
    RUNS = ANSWERS | PLAN,
    COMPUTES = RUNS | CLASSIFY | PIPELINE,
};

/* The options that say so, the first that was given; without any it is a chat. */
static const struct {
    const char *option;
    unsigned bit;
} modes[] = {
    { "inspect", INSPECT },
    { "show", SHOW },
    { "check", CHECK },
    { "parse", PARSE },
    { "render", RENDER },
    { "tokenize", TOKENIZE },
    { "detokenize", DETOKENIZE },
    { "plan", PLAN },
    { "show-prompt", SHOW_PROMPT },
    { "rate", RATE },
    { "classify", CLASSIFY },
    { "pipeline", PIPELINE },
    { "interactive", TALK },
    { "tokens", IDS },
    { "raw", RAW },
};

/* Options without a row are what the call does, need another one that has a row, or are messages of the program. */
const struct cli_of cli_run_of[] = {
    { "model", ~(unsigned)(CHECK | PARSE | RENDER | RATE) },
    { "prompt", TEXTS | CLASSIFY | PIPELINE | TOKENIZE | DETOKENIZE | SHOW_PROMPT },
    { "no-stdin", (TEXTS | PIPELINE | TOKENIZE | DETOKENIZE | SHOW_PROMPT) & ~(unsigned)TALK },
    { "system", MESSAGES },
    { "messages", MESSAGES },
    { "continue", CHAT | SHOW_PROMPT },
    { "tools", CHAT | SHOW_PROMPT | PARSE },
    { "tool-choice", CHAT | SHOW_PROMPT },
    { "one-call", CHAT },
    { "lora", COMPUTES },
    { "template", MESSAGES | SHOW | PIPELINE },
    { "chat-kwargs", MESSAGES | PIPELINE },
    { "think", MESSAGES | PIPELINE },
    { "calibration", CHAT | TALK },
    { "reasoning-budget", MESSAGES | PIPELINE },
    { "reasoning-effort", MESSAGES },
    { "reasoning-grace", CHAT | TALK },
    { "reasoning-min", CHAT | TALK },
    { "reasoning-budget-message", CHAT | TALK },
    { "think-stop", CHAT | TALK | PLAN },
    { "think-probe", CHAT | TALK | PLAN },
    { "think-suppress", CHAT | TALK | PLAN },
    { "think-loops", ANSWERS | PIPELINE },
    { "parser", CHAT | TALK | PIPELINE },
    { "examples", MESSAGES | PIPELINE },
    { "retrieve", CHAT },
    { "raw", RAW | TOKENIZE | SHOW_PROMPT },
    { "plain", RAW | TOKENIZE | DETOKENIZE },
    { "session", ANSWERS | SHOW },
    { "session-ro", ONE },
    { "drop-oldest", CHAT | TALK },
    { "predict", RUNS | PIPELINE },
    { "schema", ONE | CHECK },
    { "grammar", ONE | CHECK },
    { "regex", ONE | CHECK },
    { "stop", TEXTS },
    { "stop-token", ANSWERS },
    { "min-tokens", ANSWERS },
    { "ignore-eos", ANSWERS },
    { "reasoning", CHAT | TALK },
    { "stream", ONE },
    { "json", ONE | PIPELINE | PLAN | INSPECT | SHOW | CLASSIFY },
    { "jsonl", ONE | PIPELINE },
    { "best-of", CHAT | PLAN },
    { "dvts", CHAT | PLAN },
    { "step-end", CHAT },
    { "vote", CHAT },
    { "verifier", CHAT | PLAN },
    { "verifier-time", CHAT },
    { "verify", CHAT },
    { "strict", CHAT },
    { "logprobs", ONE },
    { "uncertainty", ONE },
#define OF_OPTION(kind, member, start, least, most, option, ...) { option, ANSWERS | PIPELINE },
    SAMPLE_OPTIONS(OF_OPTION, 0){ "dry-breaker", ANSWERS | PIPELINE },
    { "logit-bias", ANSWERS | PIPELINE },
    { "seed", ANSWERS | PIPELINE },
    { "draft", RUNS },
    { "draft-max", RUNS },
    { "engram", ANSWERS | PIPELINE },
    { "context", ANSWERS },
    { "context-table", ANSWERS },
    { "engram-thinking", CHAT | TALK | PIPELINE },
    { "recite", CHAT | TALK | PIPELINE },
    { "engram-drafts", ANSWERS },
    { "ctx", RUNS | PIPELINE },
    { "threads", COMPUTES },
    { "device", COMPUTES },
    { "vram", COMPUTES },
    { "split", COMPUTES },
    { "kv", COMPUTES },
    { "chunk", COMPUTES },
    { "acts", COMPUTES },
    { "experts", COMPUTES },
    { "no-mmap", COMPUTES },
    { "expert-cache", COMPUTES },
    { "repack", COMPUTES },
    { "expert-profile", RUNS | PIPELINE },
    { "via", ONE },
    { "logits", ONE },
    { "log", ANSWERS | PIPELINE | RATE },
    { "redact", ANSWERS | PIPELINE | RATE },
    { "log-size", ANSWERS | PIPELINE | RATE },
    { NULL, 0 },
};

const struct cli_pair cli_run_pairs[] = {
    { "tokenize|detokenize|show-prompt|show|inspect|plan|check|parse|render|rate|classify|pipeline|tokens|"
      "interactive",
      CLI_EXCLUDES, NULL, NULL, 0 },
    { "schema|grammar|regex", CLI_EXCLUDES, NULL, NULL, 0 },
    { "context|context-table", CLI_EXCLUDES, NULL, NULL, 0 },
    { "json|jsonl|stream", CLI_EXCLUDES, NULL, NULL, 0 },
    { "raw", CLI_EXCLUDES, "interactive", NULL, 0 },
    { "messages|session-ro", CLI_EXCLUDES, "drop-oldest", "it belongs to a chat that goes on", 0 },
#define PAIR_ALONE(option, needs)
#define PAIR_CUT(option, needs)
#define PAIR_WITH(option, needs) { option, CLI_NEEDS, needs, NULL, 0 },
#define PAIR_OF_OPTION(kind, member, start, least, most, option, arg, help, names, use, needs, to) \
    PAIR_##use(option, needs)
    SAMPLE_OPTIONS(PAIR_OF_OPTION, 0){ "dry-breaker", CLI_NEEDS, "dry-multiplier", NULL, 0 },
    { "engram-thinking|engram-drafts", CLI_NEEDS, "engram|context|context-table", NULL, 0 },
    { "draft-max", CLI_NEEDS, "draft|engram-drafts", NULL, 0 },
    { "reasoning-grace", CLI_NEEDS, "reasoning-budget|reasoning-effort|think-stop", NULL, 0 },
    { "reasoning-budget-message", CLI_NEEDS, "reasoning-budget|reasoning-effort", NULL, 0 },
    { "think-probe", CLI_NEEDS, "think-stop|think-suppress", NULL, 0 },
    { "calibration", CLI_NEEDS, "think|verify|verifier|retrieve", NULL, 0 },
    { "calibration", CLI_EXCLUDES, "logits|continue", NULL, 0 },
    { "retrieve", CLI_NEEDS, "examples|recite|context", NULL, 0 },
    { "retrieve", CLI_EXCLUDES, "logits|best-of|dvts|verify", NULL, 0 },
    { "retrieve-below", CLI_NEEDS, "retrieve", NULL, 0 },
    { "no-stdin", CLI_NEEDS, "prompt", NULL, 0 },
    { "best-of|verify", CLI_EXCLUDES, "session|jsonl|stream|reasoning|logits|log|interactive|continue", NULL, 0 },
    { "dvts", CLI_EXCLUDES, "best-of|verify|session|stream|reasoning|logits|log|interactive|continue", NULL, 0 },
    { "dvts", CLI_EXCLUDES, "think-stop|think-suppress|reasoning-min|logprobs|uncertainty",
      "a branch goes on without the numbers of its tokens", 0 },
    { "dvts", CLI_EXCLUDES, "engram|context|context-table|recite", "a branch goes on without what tables have learnt",
      0 },
    { "dvts", CLI_NEEDS, "verifier|plan", NULL, 0 },
    { "step-end", CLI_NEEDS, "dvts", NULL, 0 },
    { "vote", CLI_NEEDS, "best-of|dvts", NULL, 0 },
    { "verifier", CLI_NEEDS, "best-of|verify|dvts", NULL, 0 },
    { "verifier-time", CLI_NEEDS, "verifier", NULL, 0 },
    { "strict", CLI_NEEDS, "verify", NULL, 0 },
    { "continue", CLI_NEEDS, "messages", NULL, 0 },
    { "continue", CLI_EXCLUDES, "prompt", NULL, 0 },
    { "tool-choice|one-call", CLI_NEEDS, "tools|messages", NULL, 0 },
    { "session-ro", CLI_NEEDS, "session", NULL, 0 },
    { "drop-oldest", CLI_NEEDS, "session|interactive", NULL, 0 },
    { "check", CLI_NEEDS, "schema|grammar|regex", NULL, 0 },
    { "render", CLI_NEEDS, "vars", NULL, 0 },
    { "vars|now", CLI_NEEDS, "render", NULL, 0 },
    { "reasoning-open", CLI_NEEDS, "parse", NULL, 0 },
    { "logprobs|uncertainty", CLI_NEEDS, "json|jsonl", NULL, 0 },
    { "logits-last", CLI_NEEDS, "logits", NULL, 0 },
    { "rate|redact|log-size", CLI_NEEDS, "log", NULL, 0 },
    { "answer", CLI_NEEDS, "rate", NULL, 0 },
    { "pipeline-state", CLI_NEEDS, "pipeline", NULL, 0 },
    { "shape|bandwidth", CLI_NEEDS, "plan", NULL, 0 },
    { "shape", CLI_EXCLUDES, "model|lora|session", "it is no model in a file", 0 },
    { "mix", CLI_NEEDS, "shape", NULL, 0 },
    { NULL, CLI_NEEDS, NULL, NULL, 0 },
};

/* What the call does; how: for messages. */
static unsigned find_mode(const struct cli *cli, char *how, size_t how_bytes)
{
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (cli_given(cli, modes[i].option)) {
            snprintf(how, how_bytes, "has no effect with %s", cli_as_typed(cli, modes[i].option));
            return modes[i].bit;
        }
    snprintf(how, how_bytes, "has no effect in a chat");
    return CHAT;
}

/* An option was typed that has an effect in a chat, and none if a text is continued. */
static bool asks_for_chat(const struct cli *cli)
{
    for (const struct cli_of *of = cli_run_of; of->option != NULL; of++)
        if ((of->commands & CHAT) && !(of->commands & RAW) && cli_typed(cli, of->option))
            return true;
    return false;
}

bool cli_run_has_form(const struct cli_run_options *o)
{
    return o->grammar.schema != NULL || o->grammar.grammar != NULL || o->grammar.regex != NULL;
}

bool cli_run_call_is_due(const struct cli_run_options *o)
{
    return o->tool_choice != NULL && ask_call_is_due(o->tool_choice);
}

/* A call must come, and what has a form is no call. */
static void check_call(const struct cli *cli, const struct cli_run_options *o)
{
    static const char *const forms[] = { "schema", "grammar", "regex" };

    for (size_t i = 0; i < sizeof forms / sizeof *forms && cli_run_call_is_due(o); i++)
        if (cli_given(cli, forms[i]))
            cli_leave_aside(cli, cli_typed(cli, "tool-choice") ? forms[i] : "tool-choice");
    if (cli_run_has_form(o) && cli_run_call_is_due(o))
        cli_usage("--tool-choice asks for a call: no --schema, --grammar or --regex with it");
}

/* --think off is a budget of 0, and an effort of none. */
/* --think auto decides by a file, for one answer, and what it decides may not be said already. */
static void check_auto(const struct cli_run_options *o)
{
    if (o->think != 2) {
        if (o->calibration != NULL && o->verify == NULL && o->beside.retrieve != 1 &&
            (o->verifier.what == NULL || strcmp(o->verifier.what, "self") != 0))
            cli_usage("--calibration has no effect without --think auto, --retrieve auto or --verifier self");
        return;
    }
    if (o->beside.retrieve == 1)
        cli_usage("--think auto and --retrieve auto do not go together: each drops an answer");
    if (o->calibration == NULL)
        cli_usage("--think auto needs a --calibration, which says when to think");
    if (o->reason.budget == 0 || o->reason.effort == 0)
        cli_usage("--think auto has no effect with %s",
                  o->reason.budget == 0 ? "--reasoning-budget 0" : "--reasoning-effort none");
    if (cli_run_wants_best(o))
        cli_usage("--think auto answers once: not with several answers");
}

static void check_reasoning(const struct cli *cli, const struct cli_run_options *o)
{
    const struct {
        const char *name;
        bool off;
    } limits[] = { { "reasoning-budget", o->reason.budget == 0 },
                   { "reasoning-effort", o->reason.effort == 0 },
                   { "reasoning-grace", false },
                   { "reasoning-min", false },
                   { "reasoning-budget-message", false },
                   { "think-stop", false },
                   { "think-suppress", false },
                   { "think-probe", false } };

    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        const char *name = limits[i].name;

        if (cli_typed(cli, name) && o->think == 1)
            cli_leave_aside(cli, "think");
        if (cli_typed(cli, "think") && o->think == 1 && !cli_typed(cli, name))
            cli_leave_aside(cli, name);
        if (cli_typed(cli, "think") && o->think != 1 && limits[i].off)
            cli_leave_aside(cli, name);
        if (o->think == 1 && !limits[i].off && cli_typed(cli, "think") && cli_typed(cli, name))
            cli_usage("--%s has no effect with --think off", name);
    }
}

static void check_votes(const struct cli_run_options *o)
{
    double x;
    int n, width;

    if (o->vote > REASON_MAJORITY && o->verifier.what == NULL)
        cli_usage("--vote %s needs a --verifier, which gives the scores", cli_run_vote_name(o));
    if (o->dvts != NULL && !reason_search_size(o->dvts, &n, &width))
        cli_usage("--dvts %s: N or NxM, N of 1 .. %d, and M, 4 by default, divides it", o->dvts, REASON_SEARCH_MAX);
    if (o->step_end != NULL && (*o->step_end == '\0' || strlen(o->step_end) > GEN_STEP_END_MAX))
        cli_usage("--step-end: a text of 1 .. %d bytes", GEN_STEP_END_MAX);
    if (o->verify != NULL && !cli_run_threshold(o->verify, &x))
        cli_usage("--verify=%s: not a number of 0 .. 1", o->verify);
}

/* Drafts of no tokens are none. */
static void check_values(const struct cli *cli, const struct cli_run_options *o)
{
    check_reasoning(cli, o);
    check_auto(o);
    cli_reason_check(&o->reason);
    check_votes(o);
    if (o->via != NULL && strcmp(o->via, "auto") != 0 && (strncmp(o->via, "unix:", 5) != 0 || o->via[5] == '\0'))
        cli_usage("--via %s: neither auto nor unix:PATH", o->via);
    if (cli_typed(cli, "draft") && o->draft_max == 0)
        cli_leave_aside(cli, "draft-max");
    if (cli_is_stdin(o->pipeline))
        cli_usage("--pipeline -: needs the name of a file");
    if (cli_given(cli, "bandwidth") && !(o->bandwidth > 0))
        cli_usage("--bandwidth %g: must be above 0", (double)o->bandwidth);
    for (size_t i = 0; i < o->stops.n; i++)
        if (*o->stops.v[i] == '\0')
            cli_usage("--stop: the text is empty");
}

/* The standard input can be one thing. */
static void check_stdin(const struct cli_run_options *o, unsigned mode, char *const *files)
{
    const bool alone = o->prompt == NULL && *files == NULL && o->messages == NULL && o->tokens == NULL;
    int operand = alone && !(mode & (INSPECT | SHOW | PLAN | RENDER | RATE));

    if (mode & TALK && (cli_is_stdin(o->messages) || cli_is_stdin(o->template_file) ||
                        cli_is_stdin(o->beside.context) || cli_is_stdin(o->calibration)))
        cli_usage(
            "-i reads lines of the standard input: --messages, --template, --context and --calibration need files");
    if (mode & TALK && (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)))
        cli_usage("-i needs a terminal as standard input and output");
    for (; *files != NULL && !(mode & RATE); files++)
        operand += cli_is_stdin(*files);
    if (operand + cli_is_stdin(o->messages) + cli_is_stdin(o->tools) + cli_is_stdin(o->template_file) +
            cli_is_stdin(o->tokens) + cli_is_stdin(o->beside.context) + cli_is_stdin(o->calibration) >
        1)
        cli_usage("only one of the prompt, --messages, --tools, --template, --tokens, --context and --calibration can "
                  "be standard "
                  "input");
}

/* Files are the prompt, or a model that is looked at. Letters of llama.cpp take an argument there. */
static void check_operands(const struct cli *cli, struct cli_run_options *o, unsigned mode, const char *how,
                           char *const *files)
{
    if (mode & (INSPECT | PLAN) && *files != NULL && o->model.file != NULL)
        cli_usage("the model is named twice: by -m, and without an option");
    if (mode & PLAN && *files != NULL && (o->shape != NULL || files[1] != NULL))
        cli_usage("--plan takes one %s", o->shape != NULL ? "shape, or a file" : "model");
    if (mode & (INSPECT | PLAN) && *files != NULL)
        o->model.file = *files;
    if (mode & SHOW && *files == NULL && o->session == NULL)
        cli_usage("--show needs --session, or the names of sessions");
    if (mode & SHOW && *files != NULL && o->session != NULL)
        cli_usage("the session is named twice: by --session, and without an option");
    if (mode & SHOW && *files != NULL)
        o->session = *files;
    if (mode & (CHECK | PARSE | RENDER | IDS) && *files != NULL)
        cli_usage("%s: a prompt %s", *files, how);
    for (; *files != NULL && !(mode & (INSPECT | PLAN | RATE | SHOW)); files++) {
        if (cli_is_stdin(*files) || access(*files, F_OK) == 0)
            continue;
        if (o->raw && strcmp(cli_as_typed(cli, "raw"), "-r") == 0)
            cli_usage("%s: no such file; -r is --raw here, and --stop TEXT ends the answer before a text", *files);
        if (o->json && strcmp(cli_as_typed(cli, "json"), "-j") == 0 && strchr("{[", **files) != NULL)
            cli_usage("%s: no such file; -j is --json here, and --schema FILE has what a JSON answer must be", *files);
    }
}

/* A server has no part in some options that change an answer. Those of the environment or a file stay, unlike in other
 * rules: the answer is to be the same, and auto gives it without a server. What only changes its speed is for then. */
static void check_via(const struct cli *cli, struct cli_run_options *o)
{
    static const char speed[] = "draft|draft-max|engram-drafts|expert-profile";
    const char *list = "session|best-of|dvts|verify|verifier|calibration|logits|engram|context|context-table|examples|"
                       "recite|draft|draft-max|engram-drafts|expert-profile";
    const bool is_auto = o->via != NULL && strcmp(o->via, "auto") == 0;
    char name[CLI_NAME_BYTES];

    while (o->via != NULL && cli_pair_name(&list, name) != NULL) {
        if (!cli_given(cli, name) || (!cli_typed(cli, name) && cli_is_listed(speed, name)))
            continue;
        if (cli_typed(cli, "via") && (cli_typed(cli, name) || !is_auto))
            cli_usage("%s and --via do not go together: a server answers one question, with its own model and drafts",
                      cli_as_typed(cli, name));
        cli_note("server   none: --%s is not for one", name);
        o->via = NULL;
    }
}

void cli_run_check_options(const struct cli *cli, struct cli_run_options *o, char *const *files)
{
    char how[64];
    unsigned mode;

    check_via(cli, o);
    cli_check_exclusions(cli, 0);
    if (asks_for_chat(cli))
        cli_leave_aside(cli, "raw");
    check_call(cli, o);
    mode = find_mode(cli, how, sizeof how);
    cli_check_of(cli, mode, how);
    cli_check_needs(cli, 0);
    check_values(cli, o);
    cli_check_outputs(cli, files);
    check_operands(cli, o, mode, how, files);
    check_stdin(o, mode, files);
    cli_open_check(cli, &o->model);
    cli_sampling_check(&o->sampling);
}

void cli_run_check_cuts(const struct cli *cli, const struct cli_run_options *o)
{
#define NAME_ALONE(option)
#define NAME_WITH(option)
#define NAME_CUT(option)                                                                        option,
#define NAME_OF_CUT(kind, member, start, least, most, option, arg, help, names, use, needs, to) NAME_##use(option)
    static const char *const cuts[] = { SAMPLE_OPTIONS(NAME_OF_CUT, 0) };

    if (o->sampling.o.temp > 0 || cli_typed(cli, "temp"))
        return;
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++)
        if (cli_typed(cli, cuts[i]))
            cli_usage("--%s has no effect at temperature 0: it needs --temp", cuts[i]);
    if (o->dvts != NULL && cli_run_n_answers(o) > 1)
        cli_usage("--dvts %s has no effect at temperature 0: it needs --temp", o->dvts);
    if (o->best_of > 1)
        cli_usage("--best-of %d has no effect at temperature 0: it needs --temp", (int)o->best_of);
    if (cli_typed(cli, "seed") && o->sampling.seed >= 0)
        cli_warn("--seed has no effect at temperature 0: it needs --temp");
}
