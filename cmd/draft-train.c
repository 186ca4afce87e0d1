/* SPDX-License-Identifier: Apache-2.0 */
/* chimere-draft-train - drafters for a model and adapters of it, trained. See chimere-draft-train(1). */
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "adapt/adapt.h"
#include "base/io.h"
#include "cli/chart.h"
#include "cli/openblas.h"
#include "cli/table.h"
#include "draft-train/program.h"
#include "gguf/gguf.h"
#include "train/file.h"
#include "train/files.h"
#include "tune/job.h"

static struct cli_train_options o = {
    .time = "30m",
    .block = 16,
    .n_tests = 20,
    .n_text = 8,
    .keep = 2,
    .n_seq = 16,
    .n_layer = 4,
    .memory_bytes = (int64_t)1 << 30,
    .n_predict = 320,
    .seed = 1,
    .rate = 2e-3f,
    .size = "200M",
    .rank = 8,
    .lora = { .samples = 4,
              .keep_batch = 48,
              .wordings = 8,
              .rehearse = 8000,
              .keep_weight = 20.0f,
              .forget = 0.05f,
              .margin = 0.04f,
              .shield = 0.03f },
};

static const struct cli_opt opts[] = {
    SECTION("Drafter"),
    ROW_MODEL(o.model),
    OUTPUT('o', "out", "file", "the drafter or adapter (GGUF)", &o.out),
    INT32("layers", "n", "of a new drafter (default 4)", &o.n_layer, 1, 64),
    INT32("ff", "n", "its feed-forward width (default: 3 model widths)", &o.n_ff, 1, 65536),
    INT32("block", "n", "tokens of a draft and their anchor (default 16)", &o.block, 4, 16),
    STRING(0, "taps", "list", "layers of the model that it reads: 1,3,5", &o.taps),
    FLAG(0, "scratch", "start with random weights", &o.scratch),
    SECTION("Adapter"),
    STRING(0, "start", "file", "begin with its weights; not what is kept", &o.start),
    INT32("rank", "n", "of a new adapter (default 8; lora 16)", &o.rank, 1, 256),
    REAL(0, "alpha", "x", "its alpha (default: 2 ranks; lora 8 ranks)", &o.alpha),
    STRING(0, "targets", "list", "kinds of matrices that it changes", &o.targets),
    STRING(0, "size", "bytes", "of a new one with experts, at most (200M)", &o.size),
    CHOICE("method", "first|zo", "with gradients, or by forward passes alone", &o.lora.method),
    FLAG(0, "scales", "zo: scales of quantised rows, not an adapter", &o.scales),
    INT32("epochs", "n", "passes over the items at most (12, or more)", &o.lora.epochs, 1, 1 << 20),
    INT32("samples", "n", "zo: directions in a step (default 4)", &o.lora.samples, 1, 64),
    REAL(0, "momentum", "x", "zo: of steps, below 1 (default 0)", &o.lora.momentum),
    INT32("wordings", "n", "made of each fact (default 8; 0: none)", &o.lora.wordings, 0, 40),
    INT32("rehearse", "n", "own answers; half are rehearsed (default 8000)", &o.lora.rehearse, 0, 1 << 20),
    LIST("keep", "file", "items that must not be forgotten; repeatable", &o.keep_files),
    LIST("keep-test", "file", "only tested for forgetting; repeatable", &o.keep_tests),
    INT32("keep-batch", "n", "rehearsed items in each step (default 48)", &o.lora.keep_batch, 0, 1024),
    REAL(0, "keep-weight", "x", "weight of rehearsal in the loss (default 20)", &o.lora.keep_weight),
    REAL(0, "shield", "x", "small: protect old knowledge (0.03; 0: off)", &o.lora.shield),
    REAL(0, "margin", "x", "old answers that may be lost (default 0.04)", &o.lora.margin),
    REAL(0, "margin-set", "x", "of one of several sets (default: twice that)", &o.lora.margin_set),
    REAL(0, "forget", "nats", "judge by nats a token that may be lost (0.05)", &o.lora.forget),
    FLAG(0, "neutral", "write a new adapter that changes nothing", &o.neutral),
    CHOICE("accept", "answers|likelihood", "what new items have to be", &o.lora.accept),
    SECTION("Prompts"),
    LIST("held-out", "file", "test prompts (default: a tenth); repeatable", &o.held_out),
    INT32("tests", "n", "test prompts from each file, at most (default 20)", &o.n_tests, 1, 1 << 20),
    FLAG(0, "lines", "each line of a text is a document, not each file", &o.lines),
    INT64('n', "predict", "tokens", "longest answer (default 320)", &o.n_predict, 8),
    SECTION("Training"),
    STRING(0, "time", "time", "total time: 90s, 30m (default), 2h", &o.time),
    STRING(0, "cpu-time", "time", "total processor time, instead of --time", &o.cpu_time),
    INT64(0, "steps", "n", "stop after n steps, or when the time is over", &o.steps, 1),
    INT64(0, "memory", "bytes", "for texts and passes (default 1G)", &o.memory_bytes, 1 << 20),
    INT32("batch", "n", "texts or items in a step (default 8; lora 24)", &o.n_text, 1, 1024),
    REAL(0, "rate", "x", "largest step size (default 0.002; lora 0.001)", &o.rate),
    INT64(0, "seed", "n", "of random numbers (default 1)", &o.seed, 0),
    SECTION("Versions"),
    INT32("keep-versions", "n", "old files to keep: FILE.1, FILE.2 (default 2)", &o.keep, 0, 100),
    FLAG(0, "rollback", "replace FILE with FILE.1; train nothing", &o.rollback),
    STRING(0, "inspect", "file", "what an adapter has learnt; train nothing", &o.inspect),
    SECTION("Running"),
    INT32("sequences", "n", "texts written in parallel (default 16)", &o.n_seq, 1, 256),
    ROW_CTX(o.model, "longest text (default 1024)"),
    ROWS_RUNNING(o.model),
    SECTION("Output"),
    OUTPUT_OR_STDOUT("jsonl", "file", "append events as JSON lines; - is stdout", &o.events),
    OUTPUT(0, "plot", "file", "a picture of the loss: .svg, .png or .pdf", &o.plot),
    FLAG('v', "verbose", "say what was done", &o.verbose),
    FLAG('q', "quiet", "errors only", &o.quiet),
    END,
};

enum { DFLASH = 1, LORA = 2, MTP = 4, DRAFTERS = DFLASH | MTP, ADAPTERS = LORA | MTP };
static const struct cli_command commands[] = {
    { "dflash", "dflash -o file [options] [prompts ...]", "A DFlash drafter, which guesses blocks of tokens.", DFLASH },
    { "mtp", "mtp -o file [options] [prompts ...]", "An adapter of the model's MTP block.", MTP },
    { "lora", "lora -o file [options] items ...", "An adapter (LoRA), which learns answers.", LORA },
    { NULL, NULL, NULL, 0 },
};
static const struct cli_of of[] = {
    { "layers", DFLASH },
    { "ff", DFLASH },
    { "block", DFLASH },
    { "taps", DFLASH },
    { "tests", DRAFTERS },
    { "lines", DRAFTERS },
    { "predict", DRAFTERS },
    { "kv", DRAFTERS },
    { "chunk", DRAFTERS },
    { "acts", DRAFTERS },
    { "no-mmap", DRAFTERS },
    { "expert-cache", DRAFTERS },
    { "repack", DRAFTERS },
    { "rank", ADAPTERS },
    { "alpha", ADAPTERS },
    { "targets", LORA },
    { "method", LORA },
    { "scales", LORA },
    { "epochs", LORA },
    { "samples", LORA },
    { "momentum", LORA },
    { "keep", LORA },
    { "keep-batch", LORA },
    { "keep-weight", LORA },
    { "rehearse", LORA },
    { "shield", LORA },
    { "forget", LORA },
    { "margin", LORA },
    { "margin-set", LORA },
    { "accept", LORA },
    { "size", LORA },
    { "keep-test", LORA },
    { "neutral", LORA },
    { "wordings", LORA },
    { "cpu-time", LORA },
    { "start", LORA },
    { NULL, 0 },
};
static const struct cli_pair pairs[] = {
    { "", CLI_NEEDS, "out|inspect", "the file that is trained", 0 },
    { "inspect", CLI_ALONE, "quiet|verbose", "it trains nothing", 0 },
    { "rollback", CLI_ALONE, "out|verbose|quiet", "it trains nothing", 0 },
    { "neutral", CLI_ALONE,
      "out|model|rank|alpha|targets|size|scales|shield|memory|seed|threads|device|vram|verbose|quiet",
      "it trains nothing", 0 },
    { "time", CLI_EXCLUDES, "cpu-time", "they are one limit by two clocks", LORA },
    { "start", CLI_EXCLUDES, "scratch", "it begins with weights that are there", LORA },
    { "scales", CLI_EXCLUDES, "rank|alpha", "only an adapter has them", LORA },
    { "targets", CLI_EXCLUDES, "size", "it says whether experts are among the targets", LORA },
    { "forget", CLI_EXCLUDES, "margin|margin-set", "what is kept is judged by one of them", LORA },
    { NULL, CLI_NEEDS, NULL, NULL, 0 },
};
static const struct cli cli = {
    .name = "chimere-draft-train",
    .synopsis = "command [options] [prompts ...]",
    .about = "Trains drafters and adapters of a model, and keeps what is better.",
    .opts = opts,
    .commands = commands,
    .of = of,
    .pairs = pairs,
};

static size_t n_stdin(const char *const *names, size_t n)
{
    size_t found = 0;

    for (size_t i = 0; i < n; i++)
        found += strcmp(names[i], "-") == 0;
    return found;
}

/* What the options of an adapter must be, and their defaults. */
static void check_lora(char *const *files, int n_files)
{
    static const char *const zo[] = { "samples", "momentum" }, *const keep[] = { "keep-batch", "keep-weight",
                                                                                 "sequences" };

    if (o.scales && cli_given(&cli, "method") && o.lora.method != TUNE_ZO)
        cli_usage("--scales is trained by --method zo");
    if (o.scales)
        o.lora.method = TUNE_ZO;
    for (size_t i = 0; i < 2; i++)
        if (o.lora.method != TUNE_ZO && cli_given(&cli, zo[i]))
            cli_usage("--%s is for --method zo", zo[i]);
    for (size_t i = 0; i < sizeof keep / sizeof *keep; i++)
        if (o.keep_files.n == 0 && o.lora.rehearse == 0 && cli_given(&cli, keep[i]))
            cli_usage("--%s: nothing is rehearsed with --rehearse 0 and without --keep", keep[i]);
    if (o.lora.keep_batch == 0 && cli_given(&cli, "keep-weight"))
        cli_usage("--keep-weight: nothing is rehearsed with --keep-batch 0");
    if (n_stdin((const char *const *)files, (size_t)n_files) + n_stdin(o.held_out.v, o.held_out.n) +
            n_stdin(o.keep_files.v, o.keep_files.n) + n_stdin(o.keep_tests.v, o.keep_tests.n) >
        1)
        cli_usage("-: the standard input can be read once only");
    if (!o.rollback && !o.neutral && n_files == 0)
        cli_usage("lora: no file with items is named");
    if (o.neutral && n_files > 0)
        cli_usage("--neutral trains nothing: it takes no items");
    if (!(o.lora.momentum >= 0 && o.lora.momentum < 1))
        cli_usage("--momentum: from 0 to below 1");
    if (cli_given(&cli, "shield") && (o.lora.method == TUNE_ZO || (o.keep_files.n == 0 && o.lora.rehearse == 0)))
        cli_usage("--shield is for --method first, and for what is rehearsed");
    if (!(o.lora.keep_weight > 0) || !(o.lora.forget >= 0) || !(o.lora.shield >= 0))
        cli_usage("--keep-weight: above 0; --forget, --shield: not below 0");
    if (!(o.lora.margin > 0 && o.lora.margin < 1))
        cli_usage("--margin: between 0 and 1");
    if (!cli_given(&cli, "margin-set"))
        o.lora.margin_set = fminf(2 * o.lora.margin, 1);
    else if (!(o.lora.margin_set > 0 && o.lora.margin_set < 1))
        cli_usage("--margin-set: between 0 and 1");
    if (!cli_given(&cli, "rate"))
        o.rate = 1e-3f;
    if (!cli_given(&cli, "batch"))
        o.n_text = 24;
    if (!cli_given(&cli, "rank"))
        o.rank = 16;
}

static void check_usage(unsigned bit, char *const *files, int n_files)
{
    if (o.rollback && n_files > 0)
        cli_usage("--rollback trains nothing: it takes no prompts");
    if (!(o.rate > 0))
        cli_usage("--rate: above 0");
    if (o.block != 4 && o.block != 8 && o.block != 16)
        cli_usage("--block: 4, 8 or 16");
    if (o.alpha < 0 || (cli_given(&cli, "alpha") && !(o.alpha > 0)))
        cli_usage("--alpha: above 0");
    if (bit == MTP && !cli_given(&cli, "rate"))
        o.rate = 1e-3f;
    if (bit == LORA)
        check_lora(files, n_files);
    cli_open_check(&cli, &o.model);
    cli_open_one_device(&o.model, "training");
    o.time_s = o.cpu_time != NULL ? cli_train_time("cpu-time", o.cpu_time) : cli_train_time("time", o.time);
    if (o.cpu_time != NULL && !cli_open_on_cpu(&o.model))
        cli_usage("--cpu-time: a GPU's time is not processor time");
    if (o.model.ctx_tokens == 0)
        o.model.ctx_tokens = 1024;
    if (bit != LORA && o.n_predict >= o.model.ctx_tokens)
        cli_usage("--predict is below --ctx");
}

/* The version before is what the command makes: what is damaged or of another kind would serve nobody. */
static enum err_code check_before(unsigned bit, struct err *e)
{
    char *before = train_beside(o.out, ".1");
    struct train_shape shape;
    struct adapter *a = NULL;
    struct gguf *g = NULL;
    enum err_code code = before != NULL ? ERR_OK : err_nomem(e);

    if (code == ERR_OK && access(before, F_OK) == 0 && bit == DFLASH)
        code = gguf_open(&g, before, e) || train_shape_read(&shape, g, e) ? err_wrap(e, "%s", before) : ERR_OK;
    else if (code == ERR_OK && access(before, F_OK) == 0)
        code = adapter_open(&a, before, e);
    adapter_close(a);
    gguf_close(g);
    free(before);
    return code;
}

static int rollback(unsigned bit)
{
    struct io_lock *lock = NULL;
    struct err e = { 0 };
    int status = EXIT_OK;

    if (io_lock(&lock, o.out, &e) || check_before(bit, &e) || io_rollback(o.out, &e))
        status = cli_fail(&e);
    io_unlock(lock);
    if (status == EXIT_OK)
        cli_warn("%s is now what %s.1 was before", o.out, o.out);
    return status;
}

/* Where --out is a link: the file it leads to, so that all that lies beside it is on one file system. malloc'ed; NULL:
 * it is none. */
static char *linked_file(void)
{
    struct stat st;

    return lstat(o.out, &st) == 0 && S_ISLNK(st.st_mode) ? realpath(o.out, NULL) : NULL;
}

static bool may_publish(void)
{
    struct err e = { 0 };
    const bool may = o.keep == 0 || access(o.out, F_OK) != 0 || io_versions_check(o.out, &e) == ERR_OK;

    if (!may)
        (void)cli_fail(&e);
    return may;
}

int main(int argc, char **argv)
{
    const struct cli_command *command;

    cli_prepare_openblas(argv);
    int first = cli_parse(&cli, argc, argv), status;
    char *file;

    if (o.inspect != NULL && argv[first] == NULL)
        return cli_close_stdout(cli_train_inspect(o.inspect));
    if (o.inspect != NULL)
        cli_usage("--inspect FILE stands alone: %s is one word too many", argv[first]);
    command = cli_need_command(&cli, argv[first]);
    check_usage(command->bit, argv + first + 1, argc - first - 1);
    cli_set_verbosity(o.quiet ? -1 : o.verbose);
    cli_catch_interrupts();
    cli_catch_broken_pipe(); /* what was learnt is not lost with a reader of events */
    file = linked_file();
    o.out = file != NULL ? file : o.out;
    cli_check_beside("plot", o.plot, o.out);
    cli_chart_check("plot", o.plot);
    cli_check_beside("jsonl", o.events, o.out);
    status = o.rollback             ? rollback(command->bit)
             : !may_publish()       ? EXIT_FAILED
             : command->bit == MTP  ? cli_train_mtp(&o, &cli, argv + first + 1)
             : command->bit == LORA ? cli_train_lora(&o, &cli, argv + first + 1)
                                    : cli_train_dflash(&o, &cli, argv + first + 1);
    free(file);
    free(o.held_out.v);
    free(o.keep_files.v);
    free(o.keep_tests.v);
    (void)fflush(stdout);
    if (cli_signal() != SIGPIPE)
        (void)cli_close_stdout(EXIT_OK); /* says so if the table was not written: the status is that of the training */
    cli_reraise();
    return status;
}
