/* SPDX-License-Identifier: Apache-2.0 */
/* chimere-engram-build - n-gram tables from text and their worth to a model, text indexes. See
 * chimere-engram-build_epoch(1).
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/io.h"
#include "base/pool.h"
#include "cli/table.h"
#include "engram-build/program.h"
#include "engram/build.h"
#include "engram/import.h"
#include "gguf/gguf.h"
#include "text/text.h"

static struct build_options o = { .order = ENGRAM_ORDER_MAX,
                                  .memory_bytes = (int64_t)1 << 30,
                                  .layer = -1,
                                  .nearest = 5,
                                  .score_min = 4,
                                  .keep = 7,
                                  .embed_seconds = 60,
                                  .chunk = 1000 };

static const struct cli_opt opts[] = {
    SECTION("Table"),
    OUTPUT('o', "out", "file", "output: a table or index", &o.out),
    INT32("order", "n", "longest context in tokens (default 8)", &o.order, 1, ENGRAM_ORDER_MAX),
    STRING(0, "day", "date", "date of the epoch, 2026-01-15 (default: today)", &o.date),
    INT64(0, "size", "bytes", "prune: largest size of the table", &o.size_bytes, 1),
    REAL(0, "min-count", "n", "merge, decay, prune: remove rarer rows", &o.count_min),
    STRING(0, "domain", "name", "label of the epoch, or of answers without one", &o.domain),
    FLAG('f', "force", "replace a file, kept as FILE.1; query: --rerank", &o.force),
    INT32("keep-versions", "n", "old files to keep: FILE.1, ... (default 7)", &o.keep, 0, 100),
    LIST("engram", "file[:w]", "score: the table, at most this weight; repeatable", &o.tables),
    SECTION("Scored answers"),
    LIST("from", "file", "add: answers; repeatable. embedder: .safetensors", &o.from),
    REAL(0, "min-score", "x", "lowest score of an answer (default 4)", &o.score_min),
    LIST("held-out", "text", "text that must not get less likely; repeatable", &o.held_out),
    SECTION("Index of texts"),
    STRING('p', "prompt", "text", "query: the question, as an operand, too", &o.prompt),
    { OPT_I32, 'k', "nearest", "n", "query: number of texts (default 5)", &o.nearest, 1, 1000 },
    FLAG(0, "bm25", "query: by words; the model does not run", &o.bm25),
    FLAG(0, "hybrid", "query: by words and by vectors, the default", &o.hybrid),
    FLAG(0, "rerank", "query: let the model judge the best texts", &o.rerank),
    FLAG(0, "flat", "query: compare every vector, use no graph", &o.flat),
    FLAG(0, "exact", "query: words as they are written, no stems", &o.exact),
    FLAG(0, "snippet", "query: the best 200 bytes of a text", &o.snippet),
    STRING(0, "vectors", "how", "index: none, or a file of them; query: only", &o.vectors),
    STRING(0, "embed-command", "cmd", "what makes vectors of texts, by lines", &o.embed_command),
    INT32("embed-time", "s", "its time for a text (default 60)", &o.embed_seconds, 1, 86400),
    PATH(0, "embedder", "file", "vectors from this file of vectors of tokens", &o.embedder),
    STRING(0, "faiss", "how", "index: factory of FAISS; query: its settings", &o.faiss),
    PATH(0, "tokenizer", "file", "embedder: tokenizer.json (default: the model's)", &o.tokenizer),
    { OPT_I32, 0, "overlap", "n", "index: bytes that a text repeats of the last", &o.overlap, 0, 1 << 15 },
    LIST("exclude", "pattern", "index: files to leave out; repeatable", &o.walk.exclude),
    LIST("filter", "ext=cmd", "index: what makes text of .ext; repeatable", &o.walk.filter),
    FLAG(0, "follow", "index: follow links below a directory", &o.walk.follow),
    INT32("layer", "n", "index: layer whose rows make the vectors", &o.layer, 0, 9999),
    SECTION("Text"),
    ROW_MODEL(o.model),
    FLAG(0, "lines", "each line is a document (default: each file)", &o.lines),
    FLAG(0, "jsonl", "JSON lines with a member \"text\" (by name: .jsonl)", &o.jsonl),
    SECTION("Running"),
    INT64(0, "memory", "bytes", "for sorting (default 1G)", &o.memory_bytes, 1 << 20),
    ROW_CTX(o.model, "of the model that reads (default 512)"),
    ROWS_RUNNING_CHUNK(o.model, "prompt tokens a step; index: bytes of a text"),
    SECTION("Output"),
    FLAG('j', "json", "stats, score, add --from, query: JSON lines", &o.json),
    FLAG('v', "verbose", "say what was done", &o.verbose),
    FLAG('q', "quiet", "errors only", &o.quiet),
    END,
};

/* Bits of the commands. */
enum {
    BUILD = 1,
    ADD = 2,
    MERGE = 4,
    DECAY = 8,
    PRUNE = 16,
    DUMP = 32,
    STATS = 64,
    CHECK = 128,
    SCORE = 512,
    INDEX = 1024,
    QUERY = 2048,
    IMPORT = 4096,
    ROLLBACK = 8192,
    EMBEDDER = 16384,
    COUNTS = BUILD | ADD,
    MODEL = SCORE | INDEX | QUERY | ADD,
    TEXTS = COUNTS | SCORE | INDEX | IMPORT,
    MERGES = MERGE | DECAY | PRUNE,
    WRITES = COUNTS | MERGES | INDEX | IMPORT | EMBEDDER,
    FROM_TEXTS = BUILD | INDEX | IMPORT, /* what they replace cannot be made again from what they read */
};
static const struct cli_command commands[] = {
    { "build", "build -o table [options] [text ...]", "A table of texts.", BUILD },
    { "add", "add -o table [options] [text ...], add --from file table", "Appends epochs to a table.", ADD },
    { "rollback", "rollback table", "Puts TABLE.1 in the place of TABLE.", ROLLBACK },
    { "score", "score --engram table [options] [text ...]", "Perplexity without and with tables.", SCORE },
    { "merge", "merge -o table [options] table[:weight] ...", "One epoch of all tables.", MERGE },
    { "decay", "decay -o table [options] table", "Old counts are halved or left out.", DECAY },
    { "prune", "prune -o table [options] table", "The rarest rows are left out.", PRUNE },
    { "dump", "dump [options] table", "Its rows, or an index's texts, as JSON lines.", DUMP },
    { "stats", "stats [options] file ...", "What is in tables and indexes.", STATS },
    { "import", "import -o table [options] old.engr [text ...]", "A table of an old .engr table.", IMPORT },
    { "index", "index -o index [options] [text | directory ...]", "Texts that can be found again.", INDEX },
    { "query", "query [options] index [question]", "The nearest texts.", QUERY },
    { "embedder", "embedder -o file.gguf --from file.safetensors [options]", "Vectors of tokens, to index with.",
      EMBEDDER },
    { "check", "check [options] file ...", "Are tables and indexes whole?", CHECK },
    { NULL, NULL, NULL, 0 },
};
/* An option that a command would ignore is a mistake. */
static const struct cli_of of[] = {
    { "out", WRITES },
    { "order", COUNTS },
    { "day", COUNTS | DECAY | IMPORT },
    { "size", PRUNE },
    { "min-count", MERGES },
    { "engram", SCORE },
    { "force", FROM_TEXTS | EMBEDDER | QUERY },
    { "model", TEXTS | DUMP | QUERY | EMBEDDER },
    { "lines", TEXTS },
    { "jsonl", TEXTS },
    { "memory", COUNTS },
    { "prompt", QUERY },
    { "nearest", QUERY },
    { "bm25", QUERY },
    { "hybrid", QUERY },
    { "rerank", QUERY },
    { "flat", QUERY },
    { "snippet", QUERY },
    { "exact", QUERY },
    { "vectors", INDEX | QUERY },
    { "embed-command", INDEX | QUERY },
    { "embed-time", INDEX | QUERY },
    { "embedder", INDEX | QUERY },
    { "faiss", INDEX | QUERY },
    { "tokenizer", EMBEDDER },
    { "overlap", INDEX },
    { "exclude", INDEX },
    { "filter", INDEX },
    { "follow", INDEX },
    { "layer", INDEX },
    { "ctx", SCORE | ADD },
    { "threads", TEXTS | QUERY },
    { "device", MODEL },
    { "vram", MODEL },
    { "split", MODEL },
    { "kv", MODEL },
    { "chunk", MODEL },
    { "acts", MODEL },
    { "no-mmap", MODEL },
    { "expert-cache", MODEL },
    { "repack", MODEL },
    { "json", STATS | SCORE | ADD | QUERY },
    { "domain", COUNTS },
    { "from", ADD | EMBEDDER },
    { "min-score", ADD },
    { "held-out", ADD },
    { "keep-versions", FROM_TEXTS | ADD },
    { NULL, 0 },
};
static const struct cli_pair pairs[] = {
    /* add has two forms: texts, and answers that a model is to test. */
    { "min-score|held-out|ctx|device|vram|split|kv|chunk|acts|no-mmap|expert-cache|repack|json", CLI_NEEDS, "from",
      NULL, ADD },
    { "from", CLI_EXCLUDES, "out|lines|jsonl", "add --from FILE TABLE", ADD },
    { "keep-versions", CLI_NEEDS, "force", NULL, BUILD | IMPORT },
    { "embed-time", CLI_NEEDS, "embed-command", NULL, INDEX | QUERY },
    { "force", CLI_NEEDS, "rerank", NULL, QUERY },
    { "", CLI_NEEDS, "out|from", "what is written", ADD },
    { "", CLI_NEEDS, "out", "what is written", WRITES & ~(unsigned)(ADD | EMBEDDER) },
    { "", CLI_NEEDS, "from", "the table", EMBEDDER },
    { "from", CLI_NEEDS, "out", "what is written", EMBEDDER },
    { "tokenizer", CLI_EXCLUDES, "model", "the tokenizer is one of them", EMBEDDER },
    { "", CLI_NEEDS, "engram", "the table", SCORE },
    { "bm25", CLI_EXCLUDES, "hybrid|flat|embed-command|embedder|faiss", "it uses no vectors", 0 },
    { "embed-command", CLI_EXCLUDES, "embedder", "vectors are of one kind", INDEX | QUERY },
    { "lines|jsonl", CLI_EXCLUDES, NULL, NULL, 0 },
    { "vectors", CLI_EXCLUDES, "bm25|hybrid|exact", "it compares no words", QUERY },
    { "vectors|embed-command|embedder", CLI_EXCLUDES, "layer", "the model makes no vectors", INDEX },
    { "vectors", CLI_EXCLUDES, "embed-command|embedder", "vectors are of one kind", INDEX },
    { "lines|jsonl", CLI_EXCLUDES, "chunk|overlap|exclude|filter|follow", "these are for files that are cut", INDEX },
    { NULL, CLI_NEEDS, NULL, NULL, 0 },
};
static const struct cli cli = {
    .name = "chimere-engram-build",
    .synopsis = "command [options] [file ...]",
    .about = "Memory from text: tables of n-grams, indexes of texts.",
    .opts = opts,
    .commands = commands,
    .of = of,
    .pairs = pairs,
};

/* Directories, and options for them, say that files are cut. */
static void check_index(char *const *files)
{
    struct err e = { 0 };
    struct stat st;

    for (int i = 0; files[i] != NULL; i++)
        o.documents = o.documents || (stat(files[i], &st) == 0 && S_ISDIR(st.st_mode));
    if (o.documents && (o.lines || o.jsonl))
        cli_usage("--%s: is not for directories", o.lines ? "lines" : "jsonl");
    o.documents = o.documents || cli_given(&cli, "chunk") || cli_given(&cli, "overlap") || o.walk.exclude.n > 0 ||
                  o.walk.filter.n > 0 || o.walk.follow;
    for (int i = 0; o.documents && files[i] != NULL; i++)
        if (cli_is_stdin(files[i]))
            cli_usage("index: standard input cannot be read beside directories, or cut");
    if (o.documents && files[0] == NULL)
        cli_usage("index: no file or directory is named");
    if (cli_given(&cli, "chunk")) {
        if (o.model.chunk < 100)
            cli_usage("index: --chunk %d: must be from 100 to 65536", (int)o.model.chunk);
        o.chunk = o.model.chunk;
        o.model.chunk = 0; /* steps of the model are as long as they are by default */
    }
    if (o.faiss != NULL && o.vectors != NULL && strcmp(o.vectors, "none") == 0)
        cli_usage("--vectors none and --faiss do not go together: there are no vectors");
    if (o.overlap > o.chunk / 2)
        cli_usage("--overlap %d: at most half of --chunk, %d", (int)o.overlap, (int)o.chunk / 2);
    if (cli_walk_check(&o.walk, &e))
        cli_usage("%s", e.msg);
}

/* An empty file, as mktemp(1) makes it, holds nothing; what is no file is refused later. */
static bool is_free(const char *path)
{
    struct stat st;

    return stat(path, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size == 0;
}

/* What follows the index is the question. */
static void take_question(char *const *words)
{
    if (words[0] == NULL)
        return;
    if (o.prompt != NULL)
        cli_usage("query takes one index; the question is --prompt");
    if (words[1] != NULL)
        cli_usage("query takes an index and one question: put the words in quotes");
    if (access(words[0], F_OK) == 0)
        cli_usage("query takes one index: %s is a file (--prompt takes any question)", words[0]);
    o.prompt = words[0];
}

static void check_usage(unsigned bit, const char *command, char *const *files)
{
    for (int i = 0; files[i] != NULL && (i == 0 || !(bit & QUERY)); i++)
        if (*files[i] == '\0')
            cli_usage("%s: the name of a file is empty", command);
    if (bit & ADD && o.from.n > 0 && (files[0] == NULL || files[1] != NULL))
        cli_usage("add --from takes one table");
    if (bit & EMBEDDER && (o.from.n != 1 || files[0] != NULL))
        cli_usage("embedder takes one --from, and no file beside it");
    if (bit & WRITES && !(bit & ADD))
        cli_check_kind("out", o.out,
                       bit & INDEX      ? STR("CHIMRECL")
                       : bit & EMBEDDER ? STR("GGUF")
                                        : STR("CHIMENGR"),
                       bit & INDEX      ? "index"
                       : bit & EMBEDDER ? "GGUF file"
                                        : "table");
    if ((bit & IMPORT || !(bit & (TEXTS | EMBEDDER))) && *files == NULL)
        cli_usage("%s: no %s is named", command, bit & QUERY ? "index" : "table");
    if (o.domain != NULL && !engram_domain_ok(str_of(o.domain)))
        cli_usage("--domain %s: a name of letters, digits, '.', '_' and '-', at most %d", o.domain,
                  ENGRAM_DOMAIN_BYTES - 1);
    if (bit & (DECAY | PRUNE | DUMP | ROLLBACK) && files[1] != NULL)
        cli_usage("%s takes one table", command);
    if (bit & QUERY)
        take_question(files + 1);
    if (bit & PRUNE && o.size_bytes == 0 && o.count_min <= 0)
        cli_usage("prune needs --size, or --min-count above 0");
    if (o.prompt != NULL && strspn(o.prompt, " \t\r\n") == strlen(o.prompt))
        cli_usage("query: the question is blank");
    if (bit & QUERY && o.vectors != NULL && strcmp(o.vectors, "only") != 0)
        cli_usage("--vectors %s: for query it is only", o.vectors);
    if (o.count_min < 0)
        cli_usage("--min-count: not below 0");
    if (bit & INDEX)
        check_index(files);
    cli_open_check(&cli, &o.model);
    if (bit & EMBEDDER && !o.force && !is_free(o.out))
        cli_usage("%s: exists (-f replaces it)", o.out);
    o.replaces = bit & (FROM_TEXTS | ADD) && o.out != NULL && !is_free(o.out);
    if (bit & FROM_TEXTS && o.replaces && !o.force && !o.documents) /* an index of documents goes on from the old one */
        cli_usage("%s: exists (-f replaces it, and keeps it as %s.1)", o.out, o.out);
}

/* Days from 1970-01-01 (proleptic Gregorian), for "YYYY-MM-DD". */
static bool parse_day(const char *s, int64_t *day)
{
    int y, m, d, used = 0;

    if (sscanf(s, "%4d-%2d-%2d%n", &y, &m, &d, &used) != 3 || s[used] != '\0' || y < 1970)
        return false;
    struct tm tm = { .tm_year = y - 1900, .tm_mon = m - 1, .tm_mday = d };

    *day = (int64_t)timegm(&tm) / 86400;
    return tm.tm_mon == m - 1 && tm.tm_mday == d; /* else there is no such day: it was counted on */
}

struct taken {
    struct engram_builder *b;
    int64_t n; /* tokens */
};

static enum err_code take_piece(void *ctx, const struct cli_engram_piece *p, struct err *e)
{
    struct taken *t = ctx;

    t->n += p->n;
    if (engram_build_tokens(t->b, p->token, p->n, e))
        return e->code;
    return p->end ? engram_build_end(t->b, e) : ERR_OK;
}

/* A number of what is built from files, whatever the day: size and time of each tell whether it is the same. 0: a text
 * is not a file. */
static uint64_t number_of(char *const *files, bool add, uint64_t tokenizer)
{
    const int64_t own[] = { add, o.order, o.lines, o.jsonl, o.date != NULL ? o.day : -1, (int64_t)tokenizer };
    uint64_t h = io_hash(io_hash(1, own, sizeof own), o.domain, o.domain != NULL ? strlen(o.domain) : 0);

    for (int i = 0; files[i] != NULL; i++) {
        struct stat st;

        if (stat(files[i], &st) != 0 || !S_ISREG(st.st_mode))
            return 0;
        const int64_t file[] = { (int64_t)st.st_dev, (int64_t)st.st_ino, st.st_size, st.st_mtim.tv_sec,
                                 st.st_mtim.tv_nsec };

        h = io_hash(io_hash(h, file, sizeof file), files[i], strlen(files[i]));
    }
    return files[0] != NULL ? h : 0;
}

static enum err_code build_epoch(char *const *files, bool add, struct err *e)
{
    const struct progress progress = cli_engram_progress();
    struct engram_build_opts bo = { .day = o.day,
                                    .order = o.order,
                                    .add = add,
                                    .domain = o.domain,
                                    .memory_bytes = (uint64_t)o.memory_bytes,
                                    .versions = o.keep };
    struct taken t = { 0 };
    struct io_lock *lock = NULL;
    struct cli_opened x = { 0 };
    const double from = clock_ms();
    enum err_code code;
    int left = 0;

    code = cli_open(&x, &o.model, e) || cli_open_text(&x, true, e) ||
                   pool_open(&bo.pool, o.model.n_threads > 0 ? o.model.n_threads : pool_cpus(), e)
               ? e->code
               : io_lock(&lock, o.out, e);
    if (code == ERR_OK) {
        bo.tokenizer = text_fingerprint(x.gguf);
        bo.resume = number_of(files, add, bo.tokenizer);
        code = engram_build_open(&t.b, o.out, &bo, e);
    }
    if (code == ERR_OK && engram_build_resumed(t.b) > 0)
        cli_warn("%s: goes on from sorted parts of %.1f million tokens", o.out,
                 (double)engram_build_resumed(t.b) / 1e6);
    if (code == ERR_OK)
        code = cli_engram_read(&o, files, x.text, bo.pool, take_piece, &t, e);
    if (code == ERR_OK && t.n == 0) /* a pipe whose first program failed must not take the place of a table */
        code = err_set(e, ERR_ARG, "no text: %s is not written", o.out);
    if (code == ERR_OK)
        code = engram_build_commit(t.b, &progress, e);
    else if (code == ERR_CANCEL && t.b != NULL)
        left = engram_build_leave(t.b);
    else
        engram_build_abort(t.b);
    if (left > 0)
        cli_warn("%s: %d sorted parts stay beside it: the same command goes on from there", o.out, left);
    cli_progress_end();
    io_unlock(lock);
    pool_close(bo.pool);
    cli_opened_close(&x);
    if (code == ERR_OK)
        cli_engram_tell(&o, from, "an epoch of %lld tokens", (long long)t.n);
    return code;
}

static enum err_code take_import(void *ctx, const struct cli_engram_piece *p, struct err *e)
{
    return engram_import_text(ctx, p->token, p->n, e);
}

static enum err_code import(char *const *files, struct err *e)
{
    struct engram_import *old = NULL;
    struct io_lock *lock = NULL;
    struct cli_opened x = { 0 };
    struct pool *pool = NULL;
    uint64_t found = 0, all = 0;
    const double from = clock_ms();
    enum err_code code;

    code = engram_import_open(&old, files[0], e) || cli_open(&x, &o.model, e) || cli_open_text(&x, true, e) ||
                   pool_open(&pool, o.model.n_threads > 0 ? o.model.n_threads : pool_cpus(), e) ||
                   io_lock(&lock, o.out, e) || cli_engram_read(&o, files + 1, x.text, pool, take_import, old, e)
               ? e->code
               : ERR_OK;
    if (code == ERR_OK) {
        engram_import_stat(old, &found, &all);
        const struct engram_build_opts bo = { .tokenizer = text_fingerprint(x.gguf), .day = o.day, .versions = o.keep };

        code = found > 0 ? engram_import_write(old, o.out, &bo, e)
                         : err_set(e, ERR_FORMAT, "%s: the texts have none of its contexts", files[0]);
    }
    if (code == ERR_OK && found < all)
        cli_warn("%s: %llu of its %llu contexts were found; more texts that it was made of would give more", files[0],
                 (unsigned long long)found, (unsigned long long)all);
    io_unlock(lock);
    pool_close(pool);
    engram_import_close(old);
    cli_opened_close(&x);
    if (code == ERR_OK)
        cli_engram_tell(&o, from, "%llu contexts", (unsigned long long)found);
    return code;
}

static enum err_code run_command(unsigned bit, char *const *files, int *status, struct err *e)
{
    if (o.replaces && o.keep > 0 && io_versions_check(o.out, e))
        return e->code;
    switch (bit) {
    case BUILD:
    case ADD:
        return o.from.n > 0 ? cli_engram_scored(&o, files[0], status, e) : build_epoch(files, bit == ADD, e);
    case ROLLBACK:
        return cli_engram_rollback(files[0], e);
    case SCORE:
        return cli_engram_score(&o, files, e);
    case DUMP:
        return cli_engram_dump(&o, files, e);
    case STATS:
        return cli_engram_stats(&o, files, e);
    case IMPORT:
        return import(files, e);
    case INDEX:
        return cli_engram_index(&o, files, e);
    case QUERY:
        return cli_engram_query(&o, files[0], e);
    case EMBEDDER:
        return cli_engram_embedder(&o, e);
    case CHECK:
        return cli_engram_check(&o, files, e);
    default:
        return cli_engram_merge(&o, files, bit == DECAY, bit == PRUNE, e);
    }
}

int main(int argc, char **argv)
{
    const struct cli_command *command;
    struct err e = { 0 };
    int first = cli_parse(&cli, argc, argv), status = EXIT_OK;

    command = cli_need_command(&cli, argv[first]);
    check_usage(command->bit, command->name, argv + first + 1);
    cli_set_verbosity(o.quiet ? -1 : o.verbose);
    o.day = (int64_t)time(NULL) / 86400;
    if (o.date != NULL && !parse_day(o.date, &o.day))
        cli_usage("--day %s: not a date like 2026-01-15", o.date);
    cli_catch_interrupts();
    if (run_command(command->bit, argv + first + 1, &status, &e))
        status = cli_fail(&e);
    free(o.tables.v);
    free(o.from.v);
    free(o.held_out.v);
    free(o.walk.exclude.v);
    free(o.walk.filter.v);
    status = cli_close_stdout(status);
    cli_reraise();
    return status;
}
