/* SPDX-License-Identifier: Apache-2.0 */
/* chimere-draft-train - drafters for a model, trained on what it writes. See chimere-draft-train(1). */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/io.h"
#include "base/simd.h"
#include "cli/table.h"
#include "draft-train/program.h"
#include "train/gate.h"
#include "train/gemm.h"

static struct train_options o = {
    .time = "30m", .block = 16, .n_tests = 20, .n_text = 8, .keep = 2, .n_seq = 16, .n_layer = 4,
    .memory_bytes = (int64_t)1 << 30, .n_predict = 320, .seed = 1, .rate = 2e-3f,
};

static const struct opt opts[] = {
    SECTION("Drafter"),
    ROW_MODEL(o.model),
    OUTPUT('o', "out", "file", "the drafter (GGUF)", &o.out),
    INT32("layers", "n", "of a new drafter (default 4)", &o.n_layer, 1, 64),
    INT32("ff", "n", "its feed-forward width (default: 3 model widths)", &o.n_ff, 1, 65536),
    INT32("block", "n", "tokens it drafts at once, with their anchor (16)", &o.block, 4, 16),
    STRING(0, "taps", "list", "layers of the model that it reads: 1,3,5", &o.taps),
    FLAG(0, "scratch", "do not begin with the weights of the old drafter", &o.scratch),
    SECTION("Prompts"),
    LIST("held-out", "file", "to test on (default: a tenth of all); repeatable", &o.held_out),
    INT32("tests", "n", "at most so many of each file (default 20)", &o.n_tests, 1, 1 << 20),
    FLAG(0, "lines", "each line of a text is a document, not each file", &o.lines),
    INT64('n', "predict", "tokens", "of an answer at most (default 320)", &o.n_predict, 8),
    SECTION("Training"),
    STRING(0, "time", "time", "for all of it: 90s, 30m (default), 2h", &o.time),
    INT64(0, "steps", "n", "end after so many steps, if the time is not over", &o.steps, 1),
    INT64(0, "memory", "bytes", "for texts with their rows of layers (default 1G)", &o.memory_bytes, 1 << 20),
    INT32("batch", "n", "texts in a step, with 16 blocks each (default 8)", &o.n_text, 1, 1024),
    REAL(0, "rate", "x", "largest step size (default 0.002)", &o.rate),
    INT64(0, "seed", "n", "of random numbers (default 1)", &o.seed, 0),
    SECTION("Versions"),
    INT32("keep-versions", "n", "old ones that stay: FILE.1, FILE.2 (default 2)", &o.keep, 0, 100),
    FLAG(0, "rollback", "put FILE.1 in the place of FILE; train nothing", &o.rollback),
    SECTION("Running"),
    INT32("sequences", "n", "texts written side by side (default 16)", &o.n_seq, 1, 256),
    ROW_CTX(o.model, "longest text (default 1024)"),
    ROWS_RUNNING(o.model),
    SECTION("Output"),
    STRING(0, "jsonl", "file", "append events as JSON lines; - is stdout", &o.events),
    OUTPUT(0, "plot", "file", "a picture of the loss (SVG)", &o.plot),
    FLAG('v', "verbose", "say what was done", &o.verbose),
    FLAG('q', "quiet", "errors only", &o.quiet),
    END,
};

enum { DFLASH = 1 };
static const struct cli_command commands[] = {
    { "dflash", "dflash -o file [options] [prompts ...]", "A DFlash drafter, which guesses blocks of tokens.",
      DFLASH },
    { NULL, NULL, NULL, 0 },
};
static const struct cli_of of[] = { { NULL, 0 } };
static const struct cli cli = {
    .name = "chimere-draft-train", .synopsis = "command [options] [prompts ...]",
    .about = "Trains drafters on what their model writes, and keeps what is better.", .opts = opts,
    .commands = commands, .of = of,
};

static void check_usage(int n_files)
{
    static const char *const alone[] = { "model", "layers", "ff", "block", "taps", "scratch", "held-out", "tests", "lines", "steps",
                                         "predict", "time", "memory", "batch", "rate", "seed", "keep-versions", "sequences",
                                         "ctx", "threads", "device", "vram", "kv", "chunk", "acts", "no-mmap", "repack",
                                         "jsonl", "plot" };

    if (o.out == NULL)
        cli_usage("--out names the file that is trained");
    for (size_t i = 0; o.rollback && i < sizeof alone / sizeof *alone; i++)
        if (cli_given(&cli, alone[i]))
            cli_usage("--rollback trains nothing: not with --%s", alone[i]);
    if (o.rollback && n_files > 0)
        cli_usage("--rollback trains nothing: no prompts, please");
    if (!(o.rate > 0))
        cli_usage("--rate: above 0");
    if (o.block != 4 && o.block != 8 && o.block != 16)
        cli_usage("--block: 4, 8 or 16");
    cli_open_check(&o.model);
    o.time_s = cli_train_time(o.time);
    if (o.model.ctx_tokens == 0)
        o.model.ctx_tokens = 1024;
    if (o.n_predict >= o.model.ctx_tokens)
        cli_usage("--predict is below --ctx");
}

static int rollback(void)
{
    struct io_lock *lock = NULL;
    struct err e = { 0 };
    int status = EXIT_OK;

    if (io_lock(&lock, o.out, &e) || train_rollback(o.out, &e))
        status = cli_fail(&e);
    io_unlock(lock);
    if (status == EXIT_OK)
        cli_warn("%s is what %s.1 was", o.out, o.out);
    return status;
}

static void run_again(char **argv)
{
    char path[4096];
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);

    if (n <= 0)
        return;
    path[n] = '\0';
    execv(path, argv);
}

/* OpenBLAS chooses its kernels as it is loaded: told which, where it does not know the processor, by a new start. */
static void choose_kernels(char **argv)
{
    const char *core = train_gemm_core(simd_features());

    if (core != NULL && getenv("OPENBLAS_CORETYPE") == NULL && setenv("OPENBLAS_CORETYPE", core, 1) == 0)
        run_again(argv);
}

int main(int argc, char **argv)
{
    const struct cli_command *command;

    choose_kernels(argv);
    int first = cli_parse(&cli, argc, argv), status;

    if (first == argc)
        cli_usage("no command: dflash");
    command = cli_command_of(&cli, argv[first]);
    if (command == NULL)
        cli_usage("%s: not one of dflash", argv[first]);
    check_usage(argc - first - 1);
    cli_set_verbosity(o.quiet ? -1 : o.verbose);
    cli_catch_interrupts();
    status = o.rollback ? rollback() : cli_train_dflash(&o, &cli, argv + first + 1);
    free(o.held_out.v);
    status = cli_close_stdout(status);
    cli_reraise();
    return status;
}
