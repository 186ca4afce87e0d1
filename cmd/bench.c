/* SPDX-License-Identifier: Apache-2.0 */
/* chimere-bench - measure models and machines: speed, quality, answers. See chimere-bench(1). */
#include <stdlib.h>
#include <string.h>
#include "bench/bench.h"
#include "cli/calibration.h"
#include "cli/chart.h"
#include "cli/table.h"

static struct bench_opts o = {
    .beside = { CLI_BESIDE_DEFAULTS },
    .mix = "q4_k_m",
    .prompts = "512",
    .rows = "1,2,4,8,16",
    .seqs = "1,2,4,8",
    .reps = 5,
    .decode_tokens = 32,
    .samples = 1,
    .parallel = 16,
    .predict_max = 600,
    .top_p = 1,
    .may_lose = 0.01F,
    .reason = { CLI_REASON_DEFAULTS },
    .verifier = { CLI_VERIFIER_DEFAULTS },
    .draft_max = "15",
};

static const struct cli_opt opts[] = {
    SECTION("Model"),
    ROW_MODEL(o.model),
    STRING(0, "shape", "spec", "random weights: NAME[,layers=N,experts=N...]", &o.shape),
    STRING(0, "mix", "name", "their types: q4_k_m (default), ramp, q8_0 ...", &o.mix),
    REAL(0, "routing", "skew", "some experts are chosen more often, by Zipf's law", &o.routing),
    ROW_LORA(o.model),
    ROWS_RUNNING(o.model),
    ROW_EXPERTS(o.model),
    ROW_CTX(o.model, "window (default 512); speed, synth: at least"),
    SECTION("Speed"),
    STRING(0, "prompt", "list", "lengths of prompts (default 512)", &o.prompts),
    STRING(0, "depth", "list", "tokens before it (default 0,1024; state: 1024)", &o.depths),
    STRING(0, "rows", "list", "rows in a step (default 1,2,4,8,16)", &o.rows),
    STRING(0, "seqs", "list", "sequences in a step (default 1,2,4,8)", &o.seqs),
    INT32("drafts", "n", "room for this many draft rows (see --rows)", &o.drafts, 1, 64),
    INT32("tokens", "n", "decoded for one measurement (default 32)", &o.decode_tokens, 1, 1 << 20),
    INT32("reps", "n", "measurements of each kind (default 5)", &o.reps, 1, 1000),
    REAL(0, "bandwidth", "gb/s", "memory bandwidth, instead of measuring it", &o.bandwidth),
    INT64(0, "size", "bytes", "bandwidth: its buffer (default 512M; GPU: 4G)", &o.size_bytes, 1 << 16),
    SECTION("Texts"),
    INT64(0, "stride", "tokens", "distance of sliding windows", &o.stride, 1),
    INT64(0, "windows", "n", "only the first n", &o.windows, 1),
    PATH(0, "reference", "file", "kl: model or saved logits to compare with", &o.reference),
    OUTPUT(0, "save", "file", "kl: only write the model's logits", &o.save),
    SECTION("Tasks"),
    STRING('s', "system", "text", "system message of every item; @FILE: of a file", &o.system),
    PATH(0, "messages-before", "file", "JSON: messages before those of every item", &o.before),
    ROW_CONTEXT(&o.beside.context),
    ROW_EXAMPLES(&o.beside.examples),
    ROW_RECITE(&o.beside.recite),
    ROWS_RETRIEVE(o.beside),
    ROWS_ENGRAM(&o.beside.engrams, &o.beside.engram_thinking),
    PATH(0, "judge-only", "file", "grade these answers, JSON lines; no model", &o.judge),
    INT64(0, "limit", "n", "only the first n items of each set", &o.limit, 1),
    INT64('n', "predict", "tokens", "longest answer (default 600)", &o.predict_max, 1),
    INT32("samples", "n", "answers to each item (default 1)", &o.samples, 1, 1000),
    INT32("parallel", "n", "answers in parallel (default 16)", &o.parallel, 1, 1024),
    REAL(0, "temp", "t", "temperature (default 0: the most likely)", &o.temp),
    REAL(0, "top-p", "p", "keep the most likely that sum to p (1: off)", &o.top_p),
    INT64(0, "seed", "n", "of sampling and of random weights (default 0)", &o.seed, 0),
    CHOICE("think", "on|off|auto", "for items that do not say (default on)", &o.think),
    ROWS_REASON(o.reason),
    ROWS_VERIFIER(o.verifier),
    ROW_CALIBRATION(&o.calibration),
    PATH(0, "classify", "file", "calibrate: classes of questions, JSON routes", &o.classify),
    FLAG(0, "compare", "two files of answers: the paired difference", &o.compare),
    OUTPUT(0, "traces", "file", "reason: what was thought, added to", &o.traces),
    REAL(0, "may-lose", "share", "of right answers, at most (default 0.01)", &o.may_lose),
    OUTPUT(0, "plot", "file", "reason: a picture: .svg, .png or .pdf", &o.plot),
    SECTION("Guesses"),
    LIST("draft", "name", "as in chimere-run; a,b: together; repeatable", &o.drafts_of),
    STRING(0, "draft-max", "list", "most draft tokens in a step (default 15)", &o.draft_max),
    STRING(0, "oracle", "shares", "draft from known answers, this share right", &o.oracle),
    FLAG(0, "fixed", "always draft as much as possible", &o.fixed),
    FLAG(0, "quote", "answer with the prompt's second half", &o.quote),
    SECTION("Shapes"),
    OUTPUT(0, "write", "file", "synth: write the model", &o.write),
    FLAG(0, "holes", "with holes for weights, which take no room", &o.holes),
    SECTION("Output"),
    OUTPUT('o', "out", "file", "answers, added to; calibration; plot: picture", &o.out),
    FLAG('j', "json", "JSON lines, also on a terminal", &o.json),
    FLAG(0, "table", "a table, also into a file", &o.table),
    PATH(0, "against", "file", "compare with earlier records; 4 if worse", &o.against),
    FLAG('v', "verbose", "more: operations, speed of answers", &o.verbose),
    FLAG('q', "quiet", "errors only", &o.quiet),
    END,
};

/* Bits of the commands. */
enum {
    SPEED = 1,
    BANDWIDTH = 2,
    PPL = 4,
    KL = 8,
    EVAL = 16,
    SYNTH = 32,
    PLOT = 64,
    STATE = 128,
    SPECULATE = 256,
    KERNELS = 512,
    SCORE = 1024,
    CLASSIFY = 2048,
    REASON = 4096,
    CALIBRATE = 8192,
    TEXTS = PPL | KL,
    RUNS = SPEED | PPL | KL | EVAL | STATE | SPECULATE | SCORE | CLASSIFY | REASON | CALIBRATE,
    PLANS = RUNS | SYNTH,
    COMPUTES = RUNS | BANDWIDTH,
    SHAPED = SPEED | STATE | SPECULATE,
    ASKS = EVAL | SPECULATE,
    SETS = EVAL | REASON,
};
static const struct cli_command commands[] = {
    { "speed", "speed [options]", "Tokens per second: prompts, decoding, rows.", SPEED },
    { "bandwidth", "bandwidth [options]", "What the machine reads from memory in a second.", BANDWIDTH },
    { "ppl", "ppl [options] [file ...]", "Perplexity of texts.", PPL },
    { "kl", "kl [options] [file ...]", "Divergence from a model or saved logits.", KL },
    { "eval", "eval [options] tasks ...", "Answers to task sets, graded.", EVAL },
    { "synth", "synth [options]", "What a model of a known shape weighs.", SYNTH },
    { "plot", "plot -o picture.svg records ...", "A picture of records.", PLOT },
    { "state", "state [options]", "What a conversation in a file costs.", STATE },
    { "speculate", "speculate [options] [file ...]", "What guesses of drafters are worth.", SPECULATE },
    { "kernels", "kernels [options]", "Which GPU kernel multiplies what; their times.", KERNELS },
    { "score", "score --verifier what [options] [file]", "Scores of solutions by a verifier.", SCORE },
    { "classify", "classify [options] routes.json set.jsonl", "Classes of labelled prompts, by routes.", CLASSIFY },
    { "reason", "reason [options] tasks ...", "What rules that end reasoning are worth.", REASON },
    { "calibrate", "calibrate -o file [options] tasks ...", "When to think: thresholds of direct answers.", CALIBRATE },
    { NULL, NULL, NULL, 0 },
};
typedef enum err_code command_fn(struct bench *b, struct err *e);
static command_fn *const runs[] = {
    cli_bench_cmd_speed, cli_bench_cmd_bandwidth, cli_bench_cmd_ppl,    cli_bench_cmd_kl,        cli_bench_cmd_eval,
    cli_bench_cmd_synth, cli_bench_cmd_plot,      cli_bench_cmd_state,  cli_bench_cmd_speculate, cli_bench_cmd_kernels,
    cli_bench_cmd_score, cli_bench_cmd_classify,  cli_bench_cmd_reason, cli_bench_cmd_calibrate,
};

/* An option that a command would ignore is a mistake. */
static const struct cli_of of[] = {
    { "model", RUNS },
    { "lora", RUNS },
    { "shape", SHAPED | SYNTH },
    { "mix", SHAPED | SYNTH },
    { "routing", SHAPED | SYNTH },
    { "threads", COMPUTES },
    { "device", COMPUTES | SYNTH | KERNELS },
    { "vram", PLANS },
    { "split", PLANS },
    { "kv", PLANS },
    { "chunk", PLANS },
    { "acts", RUNS | KERNELS },
    { "experts", RUNS },
    { "no-mmap", PLANS },
    { "expert-cache", PLANS },
    { "repack", RUNS },
    { "ctx", SPEED | PPL | KL | ASKS | SYNTH },
    { "prompt", SPEED | SPECULATE },
    { "depth", SPEED | STATE },
    { "rows", SPEED },
    { "seqs", SPEED },
    { "tokens", SPEED },
    { "drafts", SPEED },
    { "reps", SHAPED | BANDWIDTH | KERNELS },
    { "bandwidth", SPEED | SYNTH },
    { "size", BANDWIDTH },
    { "stride", TEXTS },
    { "windows", TEXTS },
    { "reference", KL },
    { "save", KL },
    { "limit", ASKS | SCORE | REASON | CALIBRATE },
    { "predict", ASKS | REASON | CALIBRATE },
    { "samples", EVAL },
    { "parallel", SETS | SCORE | CLASSIFY | CALIBRATE },
    { "temp", ASKS },
    { "top-p", ASKS },
    { "seed", EVAL | SHAPED | SYNTH },
    { "think", ASKS | SCORE },
    { "reasoning-budget", EVAL },
    { "reasoning-effort", EVAL },
    { "reasoning-grace", EVAL },
    { "reasoning-min", EVAL },
    { "reasoning-budget-message", EVAL },
    { "think-stop", EVAL },
    { "think-probe", SETS },
    { "think-suppress", EVAL },
    { "think-loops", SETS },
    { "calibration", EVAL },
    { "classify", CALIBRATE },
    { "verifier", SCORE | CALIBRATE },
    { "verifier-time", SCORE },
    { "compare", EVAL },
    { "traces", REASON },
    { "may-lose", REASON | CALIBRATE },
    { "plot", REASON },
    { "system", SETS },
    { "messages-before", SETS },
    { "context", EVAL },
    { "examples", EVAL | CALIBRATE },
    { "recite", EVAL | CALIBRATE },
    { "retrieve", EVAL },
    { "retrieve-below", EVAL },
    { "engram", EVAL },
    { "engram-thinking", EVAL },
    { "judge-only", EVAL },
    { "draft", SPECULATE },
    { "draft-max", SPECULATE },
    { "oracle", SPECULATE },
    { "fixed", SPECULATE },
    { "quote", SPECULATE },
    { "write", SYNTH },
    { "holes", SYNTH },
    { "out", EVAL | PLOT | CALIBRATE },
    { "against", ~(unsigned)(PLOT | SCORE) },
    { "json", ~(unsigned)SCORE },
    { "table", ~(unsigned)SCORE },
    { NULL, 0 },
};

static const struct cli_pair pairs[] = {
    { "holes", CLI_NEEDS, "write", NULL, SYNTH },
    { "shape", CLI_EXCLUDES, "model", NULL, 0 },
    { "shape", CLI_EXCLUDES, "lora", "an adapter is for a model in a file", 0 },
    { "mix|routing", CLI_NEEDS, "shape", "it is for random weights", SHAPED },
    { "seed", CLI_NEEDS, "shape", "it is for random weights", SPEED | STATE },
    { "write|vram|routing", CLI_NEEDS, "shape", NULL, SYNTH },
    { "no-mmap|expert-cache", CLI_NEEDS, "vram", NULL, SYNTH },
    { "fixed", CLI_NEEDS, "draft", "an oracle always drafts as much as possible", SPECULATE },
    { "", CLI_NEEDS, "draft|oracle", NULL, SPECULATE },
    { "reasoning-grace", CLI_NEEDS, "reasoning-budget|reasoning-effort|think-stop", NULL, EVAL },
    { "reasoning-budget-message", CLI_NEEDS, "reasoning-budget|reasoning-effort", NULL, EVAL },
    { "think-probe", CLI_NEEDS, "think-stop|think-suppress", NULL, EVAL },
    { "calibration", CLI_NEEDS, "think|retrieve", NULL, EVAL },
    { "retrieve", CLI_NEEDS, "examples|recite|context", NULL, EVAL },
    { "retrieve-below", CLI_NEEDS, "retrieve", NULL, EVAL },
    { "may-lose", CLI_NEEDS, "examples|recite", NULL, CALIBRATE },
    { "examples|recite", CLI_EXCLUDES, "classify|verifier", "what answers without texts are worth is fitted alone",
      CALIBRATE },
    { "compare", CLI_ALONE, "against|json|table|verbose|quiet", "two files of answers are read", EVAL },
    { "judge-only", CLI_ALONE, "limit|samples|think|out|against|json|table|verbose|quiet", "no model is asked", EVAL },
    { "acts|reps|against", CLI_NEEDS, "device", NULL, KERNELS },
    { "", CLI_NEEDS, "verifier", NULL, SCORE },
    { "", CLI_NEEDS, "out", NULL, CALIBRATE },
    { "json|table", CLI_EXCLUDES, NULL, NULL, 0 },
    { NULL, CLI_NEEDS, NULL, NULL, 0 },
};

static const struct cli cli = {
    .name = "chimere-bench",
    .synopsis = "command [options] [file ...]",
    .about = "Measure models and machines: speed, quality, answers.",
    .opts = opts,
    .commands = commands,
    .of = of,
    .pairs = pairs,
};

/* What the table of rules cannot say: values. */
static void check_usage(const struct cli_command *c)
{
    struct cli_reason reason = o.reason;
    const bool seeded = c->bit & EVAL || (c->bit & SPECULATE && o.shape == NULL && o.oracle == NULL);

    if (c->bit & SPECULATE && o.predict_max < 2)
        cli_usage("speculate: -n 1: times begin with the first token, so answers need a second one");
    cli_check_kind("write", o.write, STR("GGUF"), "GGUF file");
    if (c->bit & PLOT)
        cli_chart_check("out", o.out);
    if (c->bit & CALIBRATE)
        cli_check_kind("out", o.out, STR("{\"type\":\"calibration\""), "file of calibration");
    cli_check_kind("save", o.save, STR("CHIMLOG1"), "file of saved logits");
    if (o.temp <= 0 && ((c->bit & ASKS && cli_given(&cli, "top-p")) || (seeded && cli_given(&cli, "seed"))))
        cli_usage("%s: --top-p and --seed need a --temp above 0", c->name);
    cli_chart_check("plot", o.plot);
    if (!(o.may_lose >= 0 && o.may_lose <= 1))
        cli_usage("--may-lose %g: not from 0 to 1", (double)o.may_lose);
    if (!(o.routing >= 0 && o.routing <= 4))
        cli_usage("--routing %g: not from 0 to 4", (double)o.routing);
    if (c->bit & KERNELS && o.model.device != NULL && strncmp(o.model.device, "cuda", 4) != 0)
        cli_usage("kernels: --device %s: only GPUs have these kernels", o.model.device);
    if (c->bit & KERNELS && o.model.acts == QUANT_ACTS_F32)
        cli_usage("kernels: --acts f32: a GPU rounds activations to 16 bits or 8");
    if (cli_given(&cli, "bandwidth") && !(o.bandwidth > 0))
        cli_usage("--bandwidth %g: must be above 0; leave it out to measure it", (double)o.bandwidth);
    if (c->bit & REASON) /* how its rules ask: it reads that itself */
        reason.probe = NULL;
    cli_reason_check(&reason);
    if (o.think == 2 && (!(c->bit & EVAL) || o.judge != NULL || o.calibration == NULL))
        cli_usage("%s: --think auto is for answers of eval with a --calibration", c->name);
    if (o.think != 2 && o.beside.retrieve != 1 && o.calibration != NULL)
        cli_usage("eval: --calibration has no effect without --think auto or --retrieve auto");
    if (o.think == 2 && o.beside.retrieve == 1)
        cli_usage("eval: --think auto and --retrieve auto do not go together: each drops an answer");
    if (o.think == 2 && (o.reason.budget == 0 || o.reason.effort == 0))
        cli_usage("eval: --think auto leaves no reasoning with that budget or effort");
    if (o.think == 1 && (o.reason.budget > 0 || o.reason.effort > 0 || o.reason.least > 0 || o.reason.stop != NULL ||
                         o.reason.suppress != NULL))
        cli_usage("eval: --think off leaves no reasoning to limit");
    cli_open_check(&cli, &o.model);
}

/* The command line in one string, for records. */
static char *join_words(int argc, char **argv)
{
    size_t n = 1;
    char *s, *at;

    for (int i = 0; i < argc; i++)
        n += strlen(argv[i]) + 1;
    s = at = malloc(n);
    for (int i = 0; s != NULL && i < argc; i++) {
        size_t len = strlen(argv[i]);

        memcpy(at, argv[i], len);
        at += len;
        *at++ = i + 1 < argc ? ' ' : '\0';
    }
    return s;
}

static enum err_code run_command(struct bench *b, const struct cli_command *c, struct err *e)
{
    if (b->command == NULL)
        return err_nomem(e);
    if (o.against != NULL && cli_bench_load(&b->against, o.against, e))
        return e->code;
    cli_catch_interrupts();
    return runs[c - commands](b, e);
}

int main(int argc, char **argv)
{
    struct bench b = { .o = &o, .command = join_words(argc, argv) };
    struct err e = { 0 };
    int first = cli_parse(&cli, argc, argv), status = EXIT_OK;
    const struct cli_command *c = cli_need_command(&cli, argv[first]);

    check_usage(c);
    cli_set_verbosity(o.quiet ? -1 : o.verbose);
    b.operands = argv + first + 1;
    if (c->bit & (SPEED | BANDWIDTH | SYNTH | STATE | KERNELS) && *b.operands != NULL)
        cli_usage("%s takes no file", c->name);
    if (c->bit & SPECULATE && o.shape != NULL && *b.operands != NULL)
        cli_usage("speculate: a --shape has no tokenizer: its prompts are random tokens, not files");
    if (run_command(&b, c, &e))
        status = cli_fail(&e);
    else if (b.regressed)
        status = EXIT_NO;
    cli_bench_close(&b);
    json_decref(b.against);
    free(b.command);
    free(o.model.loras.v);
    free(o.beside.engrams.v);
    status = cli_close_stdout(status);
    cli_reraise();
    return status;
}
