/* SPDX-License-Identifier: Apache-2.0 */
/* options.c - the options, from the command line, the environment and the file beside the model.   room: cmd */
#include <string.h>
#include <unistd.h>
#include "cli/table.h"
#include "run/program.h"

static struct cli_run_options o = { .reasoning = -1,
                                    .predict_max = -1,
                                    .logits_last = -1,
                                    .beside = { CLI_BESIDE_DEFAULTS },
                                    .reason = { CLI_REASON_DEFAULTS },
                                    .draft_max = -1,
                                    .vote = -1,
                                    .verifier = { CLI_VERIFIER_DEFAULTS },
                                    .log = CLI_LOG_DEFAULTS,
                                    .sampling = { .seed = -1, .logprobs = -1 } };

static const struct cli_opt opts[] = {
    SECTION("Prompt"),
    ROW_MODEL(o.model),
    STRING('p', "prompt", "text", "the prompt; files named come after it", &o.prompt),
    FLAG(0, "no-stdin", "-p alone: do not append what is piped in", &o.no_stdin),
    STRING('s', "system", "text", "system message; @FILE: of a file", &o.system),
    PATH(0, "messages", "file", "JSON: chat messages to continue", &o.messages),
    FLAG(0, "continue", "continue the last of the messages, the model's", &o.go_on),
    PATH(0, "tools", "file", "JSON: tools the model may call", &o.tools),
    STRING(0, "tool-choice", "choice", "auto, none, required, or a tool (default auto)", &o.tool_choice),
    FLAG(0, "one-call", "at most one call of a tool", &o.one_call),
    ROW_LORA(o.model),
    PATH(0, "template", "file", "chat template (Jinja) instead of the model's", &o.template_file),
    STRING(0, "chat-kwargs", "json", "an object: more variables of the template", &o.kwargs),
    CHOICE("think", "on|off|auto", "reason before the answer (default on)", &o.think),
    ROW_CALIBRATION(&o.calibration),
    ROWS_REASON(o.reason),
    STRING(0, "parser", "name", "how the answer is read (default: by the template)", &o.parser),
    FLAG('i', "interactive", "a conversation on this terminal", &o.interactive),
    ROW_CONTEXT(&o.beside.context),
    ROW_EXAMPLES(&o.beside.examples),
    ROW_RECITE(&o.beside.recite),
    ROWS_RETRIEVE(o.beside),
    FLAG('r', "raw", "no chat: continue the text as it is", &o.raw),
    FLAG(0, "plain", "raw: special tokens spelled out are text", &o.plain),
    PATH(0, "tokens", "file", "JSON: token ids as the prompt, unchanged", &o.tokens),
    OUTPUT(0, "session", "file", "keep the conversation in a file; last: the newest", &o.session),
    FLAG(0, "session-ro", "only read the session, do not save this turn", &o.session_ro),
    FLAG(0, "drop-oldest", "drop the oldest turns if the context is full", &o.drop_oldest),
    SECTION("Answer"),
    INT64('n', "predict", "tokens", "longest answer; -1: no limit, 0: none", &o.predict_max, -1),
    PATH(0, "schema", "file", "the answer is JSON that this schema allows", &o.grammar.schema),
    PATH(0, "grammar", "file", "the answer follows this grammar (GBNF)", &o.grammar.grammar),
    STRING(0, "regex", "expr", "the answer matches this regular expression", &o.grammar.regex),
    LIST("stop", "text", "end before this text; repeatable", &o.stops),
    LIST("stop-token", "id", "end at this token; repeatable", &o.stop_tokens),
    INT64(0, "min-tokens", "n", "the answer does not end before n tokens", &o.min_tokens, 0),
    FLAG(0, "ignore-eos", "continue after tokens that end a turn", &o.ignore_eos),
    CHOICE("reasoning", "stderr|stdout|none", "where reasoning goes (default: a terminal)", &o.reasoning),
    FLAG(0, "stream", "write each piece at once, also to a pipe or file", &o.stream),
    FLAG('j', "json", "one JSON object instead of text", &o.json),
    FLAG(0, "jsonl", "JSON lines: an event for each token", &o.jsonl),
    INT32("logprobs", "n", "JSON: log-probabilities, and of the n best", &o.sampling.logprobs, 0, 10000),
    FLAG(0, "uncertainty", "JSON: entropy, varentropy, margin of each token", &o.uncertainty),
    SECTION("Several answers"),
    INT32("best-of", "n", "answer n times, keep one", &o.best_of, 1, 256),
    STRING(0, "dvts", "N[xM]", "search N/M trees, keep the best of M at each step", &o.dvts),
    STRING(0, "step-end", "text", "with --dvts: ends a step (default: a line's end)", &o.step_end),
    CHOICE("vote", "majority|weighted|best", "which: of equal answers, by scores", &o.vote),
    ROWS_VERIFIER(o.verifier),
    STRING(0, "verify", "[x]", "score the answer; below x (0.5) once more", &o.verify),
    FLAG(0, "strict", "with --verify: status 4 if it is still below", &o.strict),
    SECTION("Pipelines"),
    PATH(0, "pipeline", "file", "run the steps of a file (JSON) on the prompt", &o.pipeline),
    OUTPUT(0, "pipeline-state", "file", "keep what has run, and go on from there", &o.pipeline_state),
    SECTION("Sampling"),
    ROWS_SAMPLING(o.sampling),
    SECTION("Running"),
    ROWS_DRAFT(&o.drafts, &o.draft_max),
    ROWS_ENGRAM(&o.beside.engrams, &o.beside.engram_thinking),
    ROW_CONTEXT_TABLE(&o.beside.context_table),
    FLAG(0, "engram-drafts", "use tables as drafters", &o.engram_drafts),
    ROW_CTX(o.model, "longest prompt and answer together"),
    ROWS_RUNNING(o.model),
    ROW_EXPERTS(o.model),
    STRING(0, "via", "server", "unix:path or auto: a running server answers", &o.via),
    ROWS_PLAN(o.model),
    REAL(0, "bandwidth", "gb/s", "with --plan: of the card, or of the CPU's memory", &o.bandwidth),
    STRING(0, "shape", "spec", "with --plan: no file, a known shape", &o.shape),
    STRING(0, "mix", "name", "its types: q4_k_m (default), ramp, q8_0 ...", &o.mix),
    SECTION("Tools for scripts"),
    FLAG(0, "tokenize", "print the prompt's token ids, a JSON array", &o.tokenize),
    FLAG(0, "detokenize", "print the text of a JSON array of token ids", &o.detokenize),
    FLAG(0, "show-prompt", "print the prompt as the model would see it", &o.show_prompt),
    PATH(0, "render", "file", "render a chat template with --vars; no model", &o.render.template_path),
    PATH(0, "vars", "file", "with --render: a JSON object, the variables", &o.render.vars_path),
    STRING(0, "now", "time", "with --render: 2026-01-15T09:05:07 (default: now)", &o.render.now),
    FLAG(0, "show", "print a session, or a table of several", &o.show),
    FLAG(0, "inspect", "print what is in the model file", &o.inspect),
    FLAG(0, "check", "is stdin what --schema, --grammar, --regex allow?", &o.check),
    STRING(0, "parse", "format", "read an answer on stdin, print it as JSON", &o.parse.format),
    FLAG(0, "reasoning-open", "with --parse: the prompt opened the reasoning", &o.parse.reasoning),
    PATH(0, "classify", "file", "print the prompt's class, by JSON routes", &o.classify),
    OUTPUT(0, "logits", "file", "write the prompt's logits, float32", &o.logits),
    INT64(0, "logits-last", "n", "only of the last n positions", &o.logits_last, 1),
    SECTION("Log"),
    ROWS_LOG(o.log),
    STRING(0, "rate", "id", "say of an answer in the log: good or bad", &o.rate),
    STRING(0, "answer", "text", "with --rate: what it should have been", &o.better),
    SECTION("Messages"),
    FLAG('v', "verbose", "say what runs and where the time went", &o.verbose),
    FLAG('q', "quiet", "errors only", &o.quiet),
    END,
};

static const struct cli cli = { .name = "chimere-run",
                                .synopsis = "[options] [file ...]",
                                .about = "Answer a prompt: from -p, files, or stdin, to stdout.",
                                .opts = opts,
                                .of = cli_run_of,
                                .pairs = cli_run_pairs,
                                .env = "CHIMERE_OPTS" };

static void set_verbosity(void)
{
    cli_set_verbosity(o.quiet ? -1 : o.verbose);
}

/* "last" is the newest session here, unless a file has that name. */
static void find_last_session(void)
{
    static char path[4096];
    struct err e = { 0 };

    if (o.session == NULL || strcmp(o.session, "last") != 0 || access("last", F_OK) == 0)
        return;
    if (cli_session_last(path, sizeof path, &e))
        cli_usage("--session last: %s", e.msg);
    o.session = path;
}

struct cli_run_options *cli_run_options(const struct cli **of, int argc, char **argv, char *const **files)
{
    o.sampling.o = sample_defaults();
    *of = &cli;
    *files = argv + cli_parse(&cli, argc, argv);
    set_verbosity();
    /* Where the model is used to answer. */
    if (!o.inspect && o.shape == NULL && !o.check && o.parse.format == NULL && o.render.template_path == NULL &&
        o.rate == NULL)
        cli_model_defaults(&cli, o.model.plan && **files != NULL ? **files : o.model.file);
    cli_exclude(&cli, "quiet", "verbose");
    set_verbosity();
    find_last_session();
    cli_run_check_options(&cli, &o, *files);
    return &o;
}
