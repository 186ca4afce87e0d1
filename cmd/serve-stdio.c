/* SPDX-License-Identifier: Apache-2.0 */
/* chimere-serve-stdio - many requests through one model: JSON lines in, JSON lines out, or HTTP. See
 * chimere-serve-stdio(1). */
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "chat/chat.h"
#include "chat/reader.h"
#include "serve-stdio/batch.h"
#include "serve-stdio/batches.h"
#include "serve-stdio/reload.h"
#include "serve-stdio/cache.h"
#include "cli/calibration.h"
#include "cli/cli.h"
#include "cli/guess.h"
#include "cli/log.h"
#include "serve-stdio/http.h"
#include "serve-stdio/judge.h"
#include "serve-stdio/made_with.h"
#include "cli/reason.h"
#include "cli/resident.h"
#include "cli/sampling.h"
#include "cli/table.h"
#include "serve-stdio/line_requests.h"
#include "serve-stdio/merge.h"
#include "gen/gen.h"
#include "grammar/grammar.h"
#include "model/model.h"
#include "run/run.h"
#include "serve/mcp.h"
#include "serve/serve.h"
#include "text/text.h"

enum { EXIT_AGAIN = 75 /* as EX_TEMPFAIL */, LINE_MAX_BYTES = 16 << 20, PARALLEL = 4, CTX_DEFAULT = 8192 };

static struct {
    struct cli_model_opts model;
    struct cli_sampling sampling;
    const char *parser, *template_file, *name, *batch, *out, *errors, *shard, *merge, *cache_dir, *calibration;
    struct cli_beside_opts beside;
    struct cli_list drafts;
    bool lenient, strict, mcp, verbose, quiet;
    struct cli_reason reason;
    struct cli_verifier_opts verifier;
    int32_t parallel, max_queue, draft_max, embed_layer;
    int metrics_names;
    int64_t predict_max, kv_tokens, checkpoint_bytes, cache_bytes, table_bytes;
    struct cli_http_opts http;
    struct cli_batches_opts files;
    struct cli_log_opts log;
} o = { .parallel = PARALLEL,
        .draft_max = -1,
        .embed_layer = -1,
        .beside = { CLI_BESIDE_DEFAULTS },
        .reason = { CLI_REASON_DEFAULTS },
        .verifier = { CLI_VERIFIER_DEFAULTS },
        .max_queue = 1024,
        .predict_max = -1,
        .sampling = { .seed = -1, .logprobs = -1 },
        .checkpoint_bytes = -1,
        .cache_bytes = 1 << 30,
        .table_bytes = 512 << 20,
        .log = CLI_LOG_DEFAULTS,
        .http = { .body_bytes_max = LINE_MAX_BYTES, .timeout_s = 60, .drain_s = 30, .connections_max = 64 },
        .files = { .bytes_max = 1 << 30 } };

static const struct cli_opt opts[] = {
    SECTION("Model"),
    ROW_MODEL(o.model),
    ROW_LORA(o.model),
    ROWS_ENGRAM(&o.beside.engrams, &o.beside.engram_thinking),
    ROW_CONTEXT(&o.beside.context),
    ROW_CONTEXT_TABLE(&o.beside.context_table),
    ROW_EXAMPLES(&o.beside.examples),
    ROW_RECITE(&o.beside.recite),
    ROWS_RETRIEVE(o.beside),
    STRING(0, "alias", "name", "model name in replies (default: its file)", &o.name),
    PATH(0, "template", "file", "chat template instead of the model's (Jinja)", &o.template_file),
    STRING(0, "parser", "name", "how answers are read (default: by the template)", &o.parser),
    SECTION("Requests"),
    INT32("parallel", "n", "answers in parallel (default 4)", &o.parallel, 1, 1024),
    INT64('n', "predict", "tokens", "longest answer if the request sets no limit", &o.predict_max, -1),
    INT32("embed-layer", "n", "layer of embeddings, from 0 (default: last norm)", &o.embed_layer, 0, 65535),
    ROW_CALIBRATION(&o.calibration),
    ROWS_CERTAINTY(o.reason),
    ROW_LOOPS(&o.reason.loops),
    ROWS_VERIFIER(o.verifier),
    INT32("max-queue", "n", "requests that may wait (default 1024)", &o.max_queue, 1, 1 << 20),
    FLAG(0, "mcp", "speak the Model Context Protocol instead", &o.mcp),
    FLAG(0, "lenient", "ignore unknown members of requests", &o.lenient),
    SECTION("Sampling"),
    REAL(0, "temp", "t", "temperature if a request names none (default 1)", &o.sampling.o.temp),
    ROWS_CHAIN(o.sampling),
    SECTION("Batch"),
    PATH(0, "batch", "file", "answer the requests of a batch file, then end", &o.batch),
    OUTPUT('o', "output", "file", "answers of a batch; an existing file is continued", &o.out),
    OUTPUT(0, "errors", "file", "errors of a batch (default: output.errors)", &o.errors),
    STRING(0, "shard", "i/n", "every n-th request from i on; auto: by the job", &o.shard),
    OUTPUT(0, "merge", "file", "the outputs of all shards to one: batch part ...", &o.merge),
    FLAG(0, "strict", "status 4 if a request of a batch was refused", &o.strict),
    SECTION("Sockets"),
    STRING(0, "listen", "address", "serve HTTP: address:port, unix:path or fd:n", &o.http.listen),
    PATH(0, "api-key-file", "file", "keys, one a line, that requests must send", &o.http.api_key_file),
    STRING(0, "cors", "origin", "allow requests from this origin (*: any)", &o.http.cors),
    INT64(0, "max-body", "bytes", "longest body of a request (default 16M)", &o.http.body_bytes_max, 1),
    INT32("connections", "n", "most connections at a time (default 64)", &o.http.connections_max, 1, 65536),
    INT32("timeout", "seconds", "for a request to arrive (default 60)", &o.http.timeout_s, 1, 86400),
    PATH(0, "files", "directory", "keep files and batches of clients there", &o.files.dir),
    INT64(0, "files-size", "bytes", "size of these files (default 1G)", &o.files.bytes_max, 0),
    INT32("exit-idle", "seconds", "end when nothing was asked for that long", &o.http.exit_idle_s, 1, 1 << 30),
    INT32("drain", "seconds", "to finish answers after SIGTERM (default 30)", &o.http.drain_s, 0, 86400),
    INT32("notice", "seconds", "before that, /health alone says it (default 0)", &o.http.notice_s, 0, 86400),
    INT32("stuck", "seconds", "of a step, after which /health says so (0: never)", &o.http.stuck_s, 0, 86400),
    CHOICE("metrics-names", "chimere|vllm", "vllm: metrics by vLLM's names, too", &o.metrics_names),
    SECTION("Running"),
    ROW_CTX(o.model, "longest prompt and answer (default 8192)"),
    INT64(0, "kv-tokens", "tokens", "KV cache for all requests (0: --ctx for each)", &o.kv_tokens, 0),
    INT64(0, "checkpoints", "bytes", "memory for states to resume from (default 64M)", &o.checkpoint_bytes, 0),
    PATH(0, "cache-dir", "directory", "keep conversations there, reuse them", &o.cache_dir),
    INT64(0, "cache-size", "bytes", "size of that cache (default 1G)", &o.cache_bytes, 0),
    INT64(0, "table-memory", "bytes", "memory for context_table (default 512M)", &o.table_bytes, 0),
    ROWS_RUNNING(o.model),
    ROW_EXPERTS(o.model),
    ROWS_DRAFT(&o.drafts, &o.draft_max),
    SECTION("Log"),
    ROWS_LOG(o.log),
    SECTION("Messages"),
    FLAG('v', "verbose", "say what runs", &o.verbose),
    FLAG('q', "quiet", "errors only", &o.quiet),
    END,
};

static const struct cli_pair pairs[] = {
    { "context|context-table", CLI_EXCLUDES, NULL, NULL, 0 },
    { "batch|mcp|listen", CLI_EXCLUDES, NULL, NULL, 0 },
    { "mcp", CLI_EXCLUDES, "lenient", NULL, 0 },
    { "drain", CLI_EXCLUDES, "batch|mcp", "these end at once", 0 },
    { "output|shard", CLI_NEEDS, "batch", NULL, 0 },
    { "errors|strict", CLI_NEEDS, "batch|merge", NULL, 0 },
    { "merge", CLI_ALONE, "errors|lenient|strict|verbose|quiet", "no model is asked", 0 },
    { "batch", CLI_NEEDS, "output", NULL, 0 },
    { "api-key-file|cors|max-body|connections|timeout|exit-idle|notice|stuck|files", CLI_NEEDS, "listen", NULL, 0 },
    { "files-size", CLI_NEEDS, "files", NULL, 0 },
    { "cache-size", CLI_NEEDS, "cache-dir", NULL, 0 },
    { "redact|log-size", CLI_NEEDS, "log", NULL, 0 },
    { "draft-max", CLI_NEEDS, "draft", NULL, 0 },
    { "verifier-time", CLI_NEEDS, "verifier", NULL, 0 },
    { NULL, CLI_NEEDS, NULL, NULL, 0 },
};

struct server {
    const struct cli *cli;
    struct cli_opened open;
    struct chat *chat;
    struct reason_opts reason;              /* of requests that say nothing else */
    struct reason_calibration *calibration; /* NULL: none */
    struct grammar_vocab *vocab;
    struct run *run;
    struct cli_guess guess;
    struct draft *draft; /* NULL: none */
    int taps[RUN_TAPS_MAX];
    struct gen *gen;
    struct cli_cache *cache;
    struct cli_reload *attached;
    struct journal *journal;   /* NULL: none */
    struct cli_judges *judges; /* NULL: none */
    json_t *facts;             /* what chimere-run --via compares */
    struct serve *serve;
    struct cli_batches *batches; /* of clients; NULL: none are kept */
    struct cli_http *http;
    struct serve_mcp *mcp;
    struct cli_line_requests lines;
    size_t n_refused; /* of a batch */
    bool unfinished;  /* it is, as a signal has come */
};

/* ---- opening ---- */

/* A parser that there is. */
static enum err_code check_parser(struct err *e)
{
    struct chat_reader *r = NULL;

    const enum err_code code =
        o.parser == NULL ? ERR_OK : chat_reader_open(&r, &(struct chat_reader_opts){ .parser = o.parser }, e);

    chat_reader_close(r);
    if (code != ERR_OK)
        err_wrap(e, "--parser");
    return code;
}

/* A template that shows what a user says: tried with two messages. */
static enum err_code check_template(const struct chat *chat, struct err *e)
{
    struct text_tokens said[2] = { { 0 } };
    enum err_code code = ERR_OK;
    bool thinking;

    for (int i = 0; i < 2 && code == ERR_OK; i++) {
        json_t *messages =
            json_pack("[{s:s, s:s}]", "role", "user", "content", i == 0 ? "Good day." : "And good night!");

        code = messages == NULL ? err_nomem(e)
                                : chat_render(chat, &(struct chat_prompt){ .messages = messages, .generate = true },
                                              &said[i], &thinking, e);
        json_decref(messages);
    }
    if (code == ERR_OK && said[0].n == said[1].n &&
        memcmp(said[0].v, said[1].v, (size_t)said[0].n * sizeof *said[0].v) == 0)
        code = err_set(e, ERR_FORMAT, "does not show what a user says");
    text_tokens_free(&said[0]);
    text_tokens_free(&said[1]);
    if (code != ERR_OK)
        err_wrap(e, "--template %s", o.template_file);
    return code;
}

static enum err_code open_chat(struct server *s, struct err *e)
{
    struct cli_buf b = { 0 };
    enum err_code code = ERR_OK;

    if (o.template_file != NULL)
        code = cli_read_template(&b, o.template_file, e);
    if (code == ERR_OK && o.template_file != NULL && b.n == 0)
        code = err_set(e, ERR_FORMAT, "--template %s: is empty", o.template_file);
    if (code == ERR_OK && (o.template_file != NULL || text_info(s->open.text)->chat_template.n > 0))
        code = chat_open(&s->chat, s->open.text, (struct str){ b.p, b.n }, e);
    if (code == ERR_OK && s->chat != NULL && o.parser != NULL)
        code = chat_set_parser(s->chat, o.parser, e);
    if (code == ERR_OK && o.template_file != NULL)
        code = check_template(s->chat, e);
    if (code == ERR_OK && (o.beside.examples != NULL || o.beside.recite != NULL) && s->chat == NULL)
        code = err_set(e, ERR_UNSUPPORTED, "%s: has no chat template, so no --examples and --recite", s->open.path);
    cli_buf_free(&b);
    return code;
}

static struct cli_made_with_opts made_with_opts(const struct server *s)
{
    return (struct cli_made_with_opts){ .open = &s->open,
                                        .beside = &o.beside,
                                        .template_file = o.template_file,
                                        .parser = o.parser,
                                        .name = o.name,
                                        .sample = &o.sampling.o,
                                        .ctx_tokens = run_ctx(s->run),
                                        .predict_max = o.predict_max,
                                        .embed_layer = o.embed_layer,
                                        .calibration = o.calibration,
                                        .verifier = o.verifier.what,
                                        .reason = &s->reason };
}

static void note_idle(const char *member)
{
    cli_note("requests have a member without effect: %s", member);
}

/* With --think-probe requests may have any rule, else the one of the server. Returns the sequences to spare. */
static int make_room(const struct server *s, struct run_opts *ro)
{
    struct reason_opts any = s->reason;
    int n;

    any.text = s->open.text;
    any.marks = s->chat != NULL ? chat_marks(s->chat) : NULL;
    n = cli_reason_room(ro, &any);
    if (o.reason.probe == NULL || any.marks == NULL)
        return n;
    any.marks = NULL; /* stubs of requests are not known */
    any.rule = REASON_RULE_EAT;
    (void)cli_reason_room(ro, &any);
    any.rule = REASON_RULE_CGR;
    return n > 0 ? n : cli_reason_room(ro, &any);
}

/* Last: a signal while the server is loading ends it at once, and nothing would end a command. */
static enum err_code open_verifier(struct server *s, struct err *e)
{
    const struct cli_verifier_use use = {
        .o = o.verifier, .model = &o.model, .self = &s->open, .think = true, .parallel = o.parallel
    };

    return o.verifier.what == NULL ? ERR_OK : cli_judges_open(&s->judges, &use, e);
}

static enum err_code open_all(struct server *s, struct err *e)
{
    struct run_opts ro = { .n_seq = o.parallel, .rows_max = o.model.chunk, .kv_tokens = o.kv_tokens };
    int n_spare;
    struct cli_reload_opts bo = { .beside = &o.beside,
                                  .table_bytes = o.table_bytes,
                                  .guess = &s->guess,
                                  .draft = &s->draft,
                                  .logs = s->journal != NULL };
    struct stat st;
    const char *slash;
    int last;

    s->guess = (struct cli_guess){ &o.drafts, o.draft_max, false, NULL };
    if (cli_guess_has(&s->guess, "engram")) /* tables come and go with requests and signals */
        return err_set(e, ERR_ARG, "--draft engram: only chimere-run drafts from tables");
    s->open.nextn = cli_guess_block(&s->guess);
    if (cli_open(&s->open, &o.model, e) || cli_open_text(&s->open, true, e) || open_chat(s, e) ||
        grammar_vocab_open(&s->vocab, s->open.text, e) || cli_open_model(&s->open, e) ||
        cli_sampling_of_model(&o.sampling, s->open.gguf, s->cli, e) ||
        cli_sampling_make(&o.sampling, s->open.text, text_info(s->open.text)->n_tokens, e))
        return e->code;
    if (o.calibration != NULL && (cli_calibration_open(&s->calibration, o.calibration, e) ||
                                  cli_calibration_check(s->calibration, o.calibration, &s->open, false, e)))
        return e->code;
    const struct model_info *info = model_info(s->open.model);

    last = o.embed_layer >= 0 ? o.embed_layer : info->n_layer;
    if (last > info->n_layer || o.embed_layer == info->n_layer)
        return err_set(e, ERR_ARG, "--embed-layer %d: the model has layers 0 to %d", o.embed_layer, info->n_layer - 1);
    ro.ctx_tokens = o.model.ctx_tokens > 0                                 ? o.model.ctx_tokens
                    : info->ctx_train > 0 && info->ctx_train < CTX_DEFAULT ? info->ctx_train
                                                                           : CTX_DEFAULT;
    ro.checkpoint_bytes = o.checkpoint_bytes >= 0 ? o.checkpoint_bytes : 64 << 20;
    ro.tap_layers = &last;
    ro.n_taps = 1;
    ro.taps_skip = true;                                         /* embeddings are of prompts */
    ro.stop = o.batch != NULL || o.mcp ? cli_interrupted : NULL; /* the others answer what was asked */
    n_spare = make_room(s, &ro);
    if (cli_guess_open(&s->draft, &s->guess, &s->open, &ro, s->taps, e) || cli_open_run(&s->run, &s->open, &ro, e) ||
        (s->draft != NULL && draft_attach(s->draft, s->run, e)) ||
        gen_open(&s->gen,
                 &(struct gen_opts){ .run = s->run,
                                     .text = s->open.text,
                                     .n_spare = n_spare,
                                     .drafter = s->draft != NULL ? &draft_hook : NULL,
                                     .drafter_of = s->draft },
                 e))
        return e->code;
    cli_guess_recall(s->draft, &s->guess, &s->open);
    bo.gen = s->gen;
    if (cli_reload_open(&s->attached, &bo, &s->open, s->run, e))
        return e->code;
    if (o.cache_dir != NULL && cli_cache_open(&s->cache, o.cache_dir, o.cache_bytes, &s->open, s->run, s->gen, e))
        return e->code;
    slash = strrchr(s->open.path, '/');
    const struct cli_made_with_opts with = made_with_opts(s);
    struct ask retrieve = { .retrieves = false };
    uint64_t fingerprint;

    if (cli_beside_retrieve(&retrieve, &o.beside, s->calibration, e) || cli_fingerprint(&fingerprint, &with, e) ||
        cli_resident_facts(&s->facts, &s->open, o.template_file, o.parser, e) ||
        cli_resident_add(s->facts, &s->open, s->run, e) || open_verifier(s, e))
        return e->code;
    const struct serve_opts so = {
        .gen = s->gen,
        .run = s->run,
        .text = s->open.text,
        .chat = s->chat,
        .vocab = &s->vocab,
        .model = o.name != NULL  ? o.name
                 : slash != NULL ? slash + 1
                                 : s->open.path,
        .created_s = stat(s->open.path, &st) == 0 ? (int64_t)st.st_mtime : 0,
        .ctx_tokens = run_ctx(s->run),
        .ctx_train = info->ctx_train,
        .facts = s->facts,
        .n_embd = model_info(s->open.model)->n_embd,
        .embeddings = true,
        .attached = cli_reload_now(s->attached),
        .lenient = o.lenient,
        .reason = &s->reason,
        .calibration = s->calibration,
        .retrieves = retrieve.retrieves,
        .retrieve_below = retrieve.retrieve_below,
        .judge = cli_judges_of(s->judges),
        .keeper = s->cache != NULL ? &cli_cache_keeper : NULL,
        .keeper_of = s->cache,
        .vllm_names = o.metrics_names == 1,
        .journal = s->journal,
        .predict_max = o.predict_max,
        .fingerprint = fingerprint,
        .note_idle = note_idle,
        .sample = &o.sampling.o,
    };
    return serve_open(&s->serve, &so, e);
}

/* ---- the Model Context Protocol ---- */

static enum err_code say_message(void *of, json_t *message, struct err *e)
{
    (void)of;
    return cli_json_line(message, e);
}

static enum err_code take_message(void *of, struct str line, int64_t number, struct err *e)
{
    (void)number;
    return serve_mcp_line(of, line, e);
}

static enum err_code lose_message(void *of, int status, const char *why, struct err *e)
{
    (void)status;
    return serve_mcp_lost(of, why, e);
}

static enum err_code tell_message(void *of, struct serve_reply *r, struct err *e)
{
    return serve_mcp_reply(of, r, e);
}

static enum err_code serve_mcp(struct server *s, struct err *e)
{
    if (serve_mcp_open(&s->mcp, s->serve, say_message, NULL, e))
        return e->code;
    const struct cli_stdin_requests talk = { s->mcp, take_message, lose_message, tell_message, .leaves = true };

    return cli_stdin_requests(&talk, s->serve, s->attached, o.max_queue, o.http.drain_s, e);
}

/* ---- the program ---- */

static void close_all(struct server *s)
{
    cli_line_requests_end(&s->lines);
    cli_http_close(s->http);
    cli_batches_close(s->batches);
    serve_mcp_close(s->mcp);
    cli_judges_close(s->judges);
    serve_close(s->serve);
    json_decref(s->facts);
    journal_close(s->journal);
    cli_cache_close(s->cache);
    gen_close(s->gen);
    cli_guess_keep(s->draft, &s->guess, &s->open);
    draft_close(s->draft);
    run_close(s->run);
    cli_reload_close(s->attached);
    grammar_vocab_close(s->vocab);
    chat_close(s->chat);
    reason_calibration_close(s->calibration);
    cli_opened_close(&s->open);
}

static enum err_code made_with(json_t **out, const struct server *s, struct err *e)
{
    const struct cli_made_with_opts with = made_with_opts(s);

    return cli_made_with(out, &with, e);
}

static enum err_code answer_batch(struct server *s, const struct cli_batch_opts *checked, struct err *e)
{
    struct cli_batch_opts bo = *checked;
    json_t *made = NULL;
    enum err_code code = made_with(&made, s, e);

    bo.made_with = made;
    struct cli_batch_counts counts = { 0 };

    if (code == ERR_OK)
        code = cli_batch_run(&bo, s->serve, &counts, e);
    json_decref(made);
    s->n_refused = counts.refused;
    s->unfinished = counts.done < counts.n;
    return code;
}

/* What batches of clients are answered with has changed, perhaps. */
static void tell_batches(void *of)
{
    struct server *s = of;
    struct err why = { 0 };
    json_t *made;

    if (s->batches == NULL)
        return;
    if (made_with(&made, s, &why))
        cli_warn("--files: %s", why.msg);
    else
        cli_batches_set(s->batches, s->serve, made);
}

static enum err_code serve_http(struct server *s, struct err *e)
{
    json_t *made;

    if (s->batches != NULL) {
        if (made_with(&made, s, e))
            return e->code;
        cli_batches_set(s->batches, s->serve, made);
    }
    return cli_http_run(s->http, s->serve, s->attached, e);
}

static enum err_code run_server(struct server *s, struct err *e)
{
    const struct cli_batch_opts bo = {
        .in = o.batch, .out = o.out, .errors = o.errors, .shard = o.shard, .lenient = o.lenient
    };
    const struct cli_stdin_requests talk = cli_line_talk(&s->lines);

    if (check_parser(e) || (o.batch != NULL && cli_batch_check(&bo, e)) || cli_log_open(&s->journal, &o.log, e))
        return e->code;
    o.files.lenient = o.lenient;
    if (o.files.dir != NULL && cli_batches_open(&s->batches, &o.files, e))
        return e->code;
    o.http.max_queue = o.max_queue;
    o.http.batches = s->batches;
    o.http.reloaded = tell_batches;
    o.http.of = s;
    if (o.batch == NULL)
        cli_catch_hangups();
    if (o.http.listen != NULL || o.batch != NULL)
        cli_catch_interrupts(); /* while the model is loading, too */
    if (o.http.listen != NULL && cli_http_open(&s->http, &o.http, e))
        return e->code;
    const struct progress loading = { cli_http_loaded, s->http };

    s->open.progress = s->http != NULL ? &loading : o.batch != NULL ? &cli_until_signal : NULL;
    s->unfinished = o.batch != NULL;
    if (open_all(s, e))
        return s->open.progress != NULL && e->code == ERR_CANCEL && cli_interrupted() ? ERR_OK : e->code;
    s->unfinished = false;
    s->open.progress = NULL;
    cli_note("serving %s, %d answers side by side, context of %" PRId64 " tokens", s->open.path, o.parallel,
             run_ctx(s->run));
    s->lines = (struct cli_line_requests){ .serve = s->serve, .lenient = o.lenient };
    cli_catch_interrupts();
    return o.batch != NULL   ? answer_batch(s, &bo, e)
           : s->http != NULL ? serve_http(s, e)
           : o.mcp           ? serve_mcp(s, e)
                             : cli_stdin_requests(&talk, s->serve, s->attached, o.max_queue, o.http.drain_s, e);
}

static int merge_batch(char *const *operands)
{
    struct cli_merge_opts mo = {
        .out = o.merge, .errors = o.errors, .in = operands[0], .parts = operands + 1, .lenient = o.lenient
    };
    size_t n_wrong = 0, n_refused = 0;
    struct err e = { 0 };

    if (operands[0] == NULL || operands[1] == NULL)
        cli_usage("--merge: needs the batch and the outputs of its shards");
    while (mo.parts[mo.n_parts] != NULL)
        mo.n_parts++;
    cli_catch_interrupts();
    if (cli_merge(&mo, &n_wrong, &n_refused, &e))
        return cli_fail(&e);
    return n_wrong > 0 || (o.strict && n_refused > 0) ? EXIT_NO : EXIT_OK;
}

/* --think-probe may serve rules of requests. */
static void check_reason(struct reason_opts *to)
{
    struct cli_reason r = o.reason;
    struct err e = { 0 };

    if (r.stop == NULL && r.suppress == NULL)
        r.stop = "cgr";
    cli_reason_check(&r);
    if (cli_reason_set(to, &o.reason, &e)) /* it was checked */
        cli_usage("%s", e.msg);
}

int main(int argc, char **argv)
{
    static const struct cli cli = { .name = "chimere-serve-stdio",
                                    .synopsis = "[options]",
                                    .about = "Answer requests as JSON lines, from stdin to stdout, side by side.",
                                    .opts = opts,
                                    .pairs = pairs,
                                    .env = "CHIMERE_OPTS" };
    struct server s = { .cli = &cli };
    struct err e = { 0 };
    int first, status = EXIT_OK;

    o.sampling.o = sample_defaults();
    o.sampling.o.temp = 1; /* as the interface says */
    first = cli_parse(&cli, argc, argv);
    cli_set_verbosity(o.quiet ? -1 : o.verbose);
    cli_model_defaults(&cli, o.model.file);
    cli_exclude(&cli, "quiet", "verbose");
    cli_set_verbosity(o.quiet ? -1 : o.verbose);
    if (o.name != NULL && *o.name == '\0')
        cli_usage("--alias: the name is empty");
    if (argv[first] != NULL && o.merge == NULL)
        cli_usage("%s: takes no operands", argv[first]);
    cli_check_exclusions(&cli, 0);
    cli_check_needs(&cli, 0);
    if ((cli_is_stdin(o.beside.context) || cli_is_stdin(o.beside.context_table) || cli_is_stdin(o.calibration)) &&
        o.batch == NULL && o.http.listen == NULL)
        cli_usage("the standard input has the requests: --context and --context-table need files");
    if (o.verifier.what != NULL && strcmp(o.verifier.what, "self") == 0)
        cli_usage("--verifier self: a request has \"verifier\": \"self\" for that");
    cli_open_check(&cli, &o.model);
    cli_sampling_check(&o.sampling);
    check_reason(&s.reason);
    cli_check_outputs(&cli, argv + first);
    if (o.merge != NULL)
        status = merge_batch(argv + first);
    else if (run_server(&s, &e))
        status = cli_fail(&e);
    else if (s.unfinished && cli_signal() == SIGTERM)
        status = EXIT_AGAIN;
    else if (o.strict && s.n_refused > 0)
        status = EXIT_NO;
    close_all(&s);
    free(o.model.loras.v);
    free(o.beside.engrams.v);
    free(o.drafts.v);
    free(o.log.redact.v);
    cli_sampling_free(&o.sampling);
    status = cli_close_stdout(status);
    if (o.merge != NULL || (o.batch != NULL && cli_signal() != SIGTERM))
        cli_reraise(); /* a server that was asked to end has ended well */
    return status;
}
