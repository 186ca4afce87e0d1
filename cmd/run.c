/* SPDX-License-Identifier: Apache-2.0 */
/* chimere-run - answer a prompt: answer on stdout, the rest on stderr. See chimere-run(1). */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/io.h"
#include "base/rng.h"
#include "cli/answer.h"
#include "cli/cli.h"
#include "cli/fit.h"
#include "cli/pick.h"
#include "cli/session.h"
#include "cli/table.h"
#include "gguf/gguf.h"
#include "model/model.h"
#include "run/run.h"
#include "sample/sample.h"
#include "text/text.h"

#define CTX_ROOM      8192 /* tokens for an answer without -n */
#define CHUNK_LEAST 512    /* rows in one step unless the prompt is shorter */

static struct {
    struct cli_model_opts model;
    const char *prompt, *system, *messages, *tools, *tokens, *session, *logits;
    bool        raw, plain, tokenize, detokenize, show_prompt, inspect, json, jsonl, ignore_eos;
    bool        verbose, quiet;
    int         think, reasoning; /* index of the choice; think 0: on; reasoning -1: by terminal */
    int64_t     predict_max, logits_last, seed; /* -1: not given */
    int32_t     logprobs;
    struct cli_list    stops, biases, breakers;
    struct sample_opts sample;
} o = { .reasoning = -1, .predict_max = -1, .logits_last = -1, .seed = -1,
        .logprobs = -1 };

static const struct opt opts[] = {
    SECTION("Prompt"),
    ROW_MODEL(o.model),
    STRING('p', "prompt", "text", "the prompt; files named come after it", &o.prompt),
    STRING('s', "system", "text", "system message", &o.system),
    PATH(0, "messages", "file", "JSON: chat messages to go on from", &o.messages),
    PATH(0, "tools", "file", "JSON: tools the model may call", &o.tools),
    CHOICE("think", "on|off", "reason before the answer (default on)", &o.think),
    FLAG('r', "raw", "no chat: continue the text as it is", &o.raw),
    FLAG(0, "plain", "raw: special tokens spelled out are text", &o.plain),
    PATH(0, "tokens", "file", "JSON: token ids as the prompt, as they are", &o.tokens),
    PATH(0, "session", "file", "keep the conversation in a file, go on from it", &o.session),
    SECTION("Answer"),
    INT64('n', "predict", "tokens", "at most so many; 0 only evaluates", &o.predict_max, 0),
    LIST("stop", "text", "end before this text; repeatable", &o.stops),
    FLAG(0, "ignore-eos", "go on after tokens that end a turn", &o.ignore_eos),
    CHOICE("reasoning", "stderr|stdout|none", "where reasoning goes (default: a terminal)",
           &o.reasoning),
    FLAG('j', "json", "one JSON object instead of text", &o.json),
    FLAG(0, "jsonl", "JSON lines: an event for each token", &o.jsonl),
    INT32("logprobs", "n", "JSON: log-probabilities, and of the n best", &o.logprobs, 0, 10000),
    SECTION("Sampling"),
    REAL('t', "temp", "t", "temperature (default 0: the most likely)", &o.sample.temp),
    INT32("top-k", "n", "keep the n most likely (0: off)", &o.sample.top_k, 0, INT32_MAX),
    REAL(0, "top-p", "p", "keep the most likely that sum to p (1: off)", &o.sample.top_p),
    REAL(0, "min-p", "p", "keep p times as likely as the best (0: off)", &o.sample.min_p),
    REAL(0, "typical", "p", "keep the most typical that sum to p (1: off)", &o.sample.typical_p),
    REAL(0, "repeat-penalty", "x", "divide logits of recent tokens (1: off)",
         &o.sample.repeat_penalty),
    REAL(0, "presence-penalty", "x", "subtract from recent tokens (0: off)",
         &o.sample.presence_penalty),
    REAL(0, "frequency-penalty", "x", "subtract for each time it came (0: off)",
         &o.sample.frequency_penalty),
    INT32("penalty-last-n", "n", "tokens that are recent (default 64; -1: all)",
          &o.sample.penalty_last_n, -1, INT32_MAX),
    REAL(0, "dry-multiplier", "x", "penalise going on with a repetition (0: off)",
         &o.sample.dry_multiplier),
    REAL(0, "dry-base", "x", "growth of that by token (default 1.75)", &o.sample.dry_base),
    INT32("dry-allowed-length", "n", "free length of repetitions (default 2)",
          &o.sample.dry_allowed_length, 1, INT32_MAX),
    INT32("dry-last-n", "n", "tokens looked back at (default -1: all)", &o.sample.dry_last_n, -1,
          INT32_MAX),
    LIST("dry-breaker", "text", "ends a repetition; repeatable", &o.breakers),
    LIST("logit-bias", "id=x", "add x to a token's logit; repeatable", &o.biases),
    INT64(0, "seed", "n", "of the random numbers (default: a new one)", &o.seed, 0),
    SECTION("Running"),
    ROW_CTX(o.model, "longest prompt and answer together"),
    ROWS_RUNNING(o.model),
    ROWS_PLAN(o.model),
    SECTION("Tools for scripts"),
    FLAG(0, "tokenize", "print the prompt's token ids, a JSON array", &o.tokenize),
    FLAG(0, "detokenize", "print the text of a JSON array of token ids", &o.detokenize),
    FLAG(0, "show-prompt", "print the prompt as the model would see it", &o.show_prompt),
    FLAG(0, "inspect", "print what is in the model file", &o.inspect),
    PATH(0, "logits", "file", "write the prompt's logits, float32", &o.logits),
    INT64(0, "logits-last", "n", "only of the last n positions", &o.logits_last, 1),
    SECTION("Messages"),
    FLAG('v', "verbose", "say what runs and where the time went", &o.verbose),
    FLAG('q', "quiet", "errors only", &o.quiet),
    END,
};

enum finish { FINISH_LENGTH, FINISH_STOP, FINISH_STOP_STRING, FINISH_CONTEXT, FINISH_INTERRUPTED };
static const char *const finish_names[] = { "length", "stop", "stop_string", "context",
                                            "interrupted" };

/* All that is open, in the order of opening. */
struct session {
    struct cli_opened  open; /* no text: --tokens and a file without a tokenizer */
    struct cli_session kept; /* --session */
    bool               chat, thinking;
    struct cli_buf     rendered; /* the prompt as text */
    struct text_tokens prompt;
    struct run        *run;
    struct sampler    *sampler;
    struct str        *stops;
    struct answer      answer;
    bool               started; /* --jsonl: events have begun */
    enum finish        finish;
    int64_t            n_evaluated; /* tokens of the prompt that the session did not have */
    int64_t            n_steps;     /* after the prompt's */
    int64_t            n_choices, n_whole; /* tokens chosen; from all logits of a row */
    double             prompt_ms, decode_ms;
};

static void check_usage(char *const *files)
{
    bool input = o.prompt != NULL || *files != NULL;
    int  actions = o.tokenize + o.detokenize + o.show_prompt + o.inspect + o.model.plan;

    if (actions > 1)
        cli_usage("only one of --tokenize, --detokenize, --show-prompt, --inspect and --plan");
    if ((o.inspect || o.model.plan) && input)
        cli_usage("--inspect and --plan take no prompt");
    cli_open_check(&o.model);
    if (o.json && o.jsonl)
        cli_usage("--json or --jsonl, not both");
    if (actions && (o.jsonl || o.logits || o.session || (o.json && !o.inspect && !o.model.plan)))
        cli_usage("--json, --jsonl, --logits and --session belong to a run of the model");
    if (o.tokens && (input || o.raw || o.system || o.messages || o.tools || actions))
        cli_usage("--tokens is the whole prompt: no text, messages or other action with it");
    if ((o.raw || o.tokenize || o.detokenize) && (o.system || o.messages || o.tools))
        cli_usage("--system, --messages and --tools make a chat, which --raw, --tokenize and "
                  "--detokenize do not");
    if (o.logits_last > 0 && !o.logits)
        cli_usage("--logits-last needs --logits");
    if (o.logprobs >= 0 && !o.json && !o.jsonl)
        cli_usage("--logprobs needs --json or --jsonl");
    for (size_t i = 0; i < o.stops.n; i++) {
        if (*o.stops.v[i] == '\0')
            cli_usage("--stop: the text is empty");
    }
    for (size_t i = 0; i < o.breakers.n; i++) {
        if (*o.breakers.v[i] == '\0')
            cli_usage("--dry-breaker: the text is empty");
    }
}

/* Whether the prompt ends inside a reasoning block. */
static bool opens_thinking(const struct session *s)
{
    const struct text_info *info = text_info(s->open.text);

    for (int64_t i = s->prompt.n - 1; i >= 0 && info->think_open >= 0; i--) {
        if (s->prompt.v[i] == info->think_open)
            return true;
        if (s->prompt.v[i] == info->think_close)
            return false;
    }
    return false;
}

static enum err_code encode_prompt(struct session *s, struct err *e)
{
    const struct text_info *info = text_info(s->open.text);
    struct str              text = { s->rendered.p, s->rendered.n };
    bool     begins = !s->chat && s->prompt.n == 0;
    unsigned flags = (o.plain && !s->chat ? 0 : TEXT_SPECIAL) | (begins ? TEXT_ADD : 0);

    if (text_encode(s->open.text, text, flags, &s->prompt, e))
        return e->code;
    /* A text to go on from does not end. */
    if (begins && info->add_eos && s->prompt.n > 0 && s->prompt.v[s->prompt.n - 1] == info->eos)
        s->prompt.n--;
    s->thinking = s->chat && opens_thinking(s);
    return ERR_OK;
}

static enum err_code read_tokens_file(struct session *s, struct err *e)
{
    struct cli_buf b = { 0 };
    enum err_code  code =
        cli_read_prompt(&b, NULL, (char *const[]){ (char *)(uintptr_t)o.tokens, NULL }, e);

    if (code == ERR_OK)
        code = cli_read_ids(&s->prompt, (struct str){ b.p, b.n }, o.tokens, e);
    cli_buf_free(&b);
    return code;
}

/* What the model will see, as text (s->rendered) unless it is given as tokens. */
static enum err_code read_prompt(struct session *s, char *const *files, struct err *e)
{
    if (o.tokens != NULL)
        return read_tokens_file(s, e);
    s->chat = !o.raw && !o.tokenize && !o.detokenize && text_has_chat(s->open.text);
    if (s->kept.begun && o.messages == NULL) {
        if (o.system || o.tools)
            return err_set(e, ERR_ARG, "%s: the session has begun: too late for --system and --tools",
                           o.session);
        if (cli_session_prefix(&s->kept, s->open.text, s->chat, &s->prompt, &s->rendered, e))
            return e->code;
    }
    if (s->chat)
        return cli_render_chat(&s->rendered, s->open.text,
                               &(struct cli_chat){ o.system, o.messages, o.tools, o.prompt, files,
                                                   o.think == 0 },
                               e);
    if (o.system || o.messages || o.tools)
        return err_set(e, ERR_UNSUPPORTED, "%s: has no chat template, so no messages or tools",
                       s->open.path);
    return cli_read_prompt(&s->rendered, o.prompt, files, e);
}

/* Positions of the prompt whose logits are wanted: the last ones. */
static int64_t wanted_logits(const struct session *s)
{
    if (o.logits == NULL)
        return 1;
    return o.logits_last > 0 && o.logits_last < s->prompt.n ? o.logits_last : s->prompt.n;
}

static enum err_code tokenize(struct session *s, struct err *e)
{
    struct str text = { s->rendered.p, s->rendered.n };
    unsigned   flags = (o.plain ? 0 : TEXT_SPECIAL) | (o.raw ? TEXT_ADD : 0);

    if (text_encode(s->open.text, text, flags, &s->prompt, e))
        return e->code;
    putchar('[');
    for (int64_t i = 0; i < s->prompt.n; i++)
        printf("%s%d", i ? "," : "", s->prompt.v[i]);
    puts("]");
    return cli_flush_stdout(e);
}

static enum err_code detokenize(struct session *s, struct err *e)
{
    char  *bytes;
    size_t n;

    if (cli_read_ids(&s->prompt, (struct str){ s->rendered.p, s->rendered.n }, "prompt", e) ||
        text_decode(s->open.text, s->prompt.v, s->prompt.n, o.plain ? 0 : TEXT_SPECIAL, &bytes, &n,
                    e))
        return e->code;
    fwrite(bytes, 1, n, stdout);
    free(bytes);
    return cli_flush_stdout(e);
}

/* Tokens in which one of the --dry-breaker texts appears, by default the usual ends of a phrase. */
static enum err_code find_breakers(const struct session *s, struct text_tokens *out, struct err *e)
{
    static const char *usual[] = { "\n", ":", "\"", "*" };
    const char       **v = o.breakers.n ? o.breakers.v : usual;
    size_t             n = o.breakers.n ? o.breakers.n : sizeof usual / sizeof *usual;
    int32_t            n_tokens = s->open.text ? text_info(s->open.text)->n_tokens : 0;

    for (int32_t id = 0; id < n_tokens; id++) {
        struct str piece = text_piece(s->open.text, id);
        bool       found = false;

        for (size_t i = 0; i < n && !found; i++) {
            size_t len = strlen(v[i]);

            for (size_t at = 0; at + len <= piece.n && !found; at++)
                found = memcmp(piece.p + at, v[i], len) == 0;
        }
        if (found && text_tokens_push(out, id, e))
            return e->code;
    }
    return ERR_OK;
}

/* "--logit-bias ID=X". */
static enum err_code parse_biases(struct sample_bias **out, int32_t n_vocab, struct err *e)
{
    struct sample_bias *v = calloc(o.biases.n + 1, sizeof *v);

    if (v == NULL)
        return err_set(e, ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < o.biases.n; i++) {
        const char *s = o.biases.v[i];
        char       *end, *end2;
        long        id = strtol(s, &end, 10);

        v[i].bias = *end == '=' ? strtof(end + 1, &end2) : 0;
        if (end == s || *end != '=' || end2 == end + 1 || *end2 != '\0' || isnan(v[i].bias) ||
            id < 0 || id >= n_vocab) {
            free(v);
            return err_set(e, ERR_ARG,
                           "--logit-bias %s: not ID=NUMBER with a token id below %" PRId32, s,
                           n_vocab);
        }
        v[i].token = (int32_t)id;
    }
    *out = v;
    return ERR_OK;
}

static uint64_t fresh_seed(void)
{
    uint32_t block[4];

    /* Time and process id, mixed: other numbers each time is all that is asked of it. */
    rng_block(block, (uint64_t)(cli_now_ms() * 1e6), (uint64_t)getpid(), 0);
    return block[0];
}

static enum err_code open_sampler(struct session *s, struct err *e)
{
    struct text_tokens  breakers = { 0 };
    struct sample_bias *bias = NULL;
    int32_t             n_vocab = model_info(s->open.model)->n_vocab;
    enum err_code       code = ERR_OK;

    if (o.seed < 0)
        o.seed = o.sample.temp > 0 ? (int64_t)fresh_seed() : 0;
    if (o.sample.dry_multiplier != 0)
        code = find_breakers(s, &breakers, e);
    if (code == ERR_OK)
        code = parse_biases(&bias, n_vocab, e);
    if (code == ERR_OK) {
        o.sample.seed = (uint64_t)o.seed;
        o.sample.dry_breakers = breakers.v;
        o.sample.n_dry_breakers = (size_t)breakers.n;
        o.sample.bias = bias;
        o.sample.n_bias = o.biases.n;
        o.sample.n_top = o.logprobs > 0 ? o.logprobs : 0;
        code = sample_open(&s->sampler, &o.sample, n_vocab, e);
    }
    for (int64_t i = 0; code == ERR_OK && i < s->prompt.n; i++)
        code = sample_accept(s->sampler, s->prompt.v[i], e);
    text_tokens_free(&breakers);
    free(bias);
    return code;
}

/* Context: as asked for, else room for this request, within what the model was trained for. */
static int64_t choose_ctx(const struct session *s)
{
    int64_t train = model_info(s->open.model)->ctx_train;
    int64_t more = o.predict_max >= 0 && o.predict_max < INT32_MAX ? o.predict_max : CTX_ROOM;
    int64_t ctx = s->prompt.n + more;

    if (o.model.ctx_tokens > 0)
        return o.model.ctx_tokens;
    return train > 0 && ctx > train ? train : ctx;
}

static enum err_code check_prompt(const struct session *s, int64_t ctx, struct err *e)
{
    int32_t     n_vocab = model_info(s->open.model)->n_vocab;
    const char *from = o.tokens ? o.tokens : "prompt";

    if (s->prompt.n == 0)
        return err_set(e, ERR_ARG, "the prompt is empty");
    if (s->prompt.n > ctx)
        return err_set(e, ERR_LIMIT,
                       "the prompt has %" PRId64 " tokens, the context %" PRId64
                       " (--ctx sets it; the model was trained for %" PRId64 ")",
                       s->prompt.n, ctx, model_info(s->open.model)->ctx_train);
    for (int64_t i = 0; i < s->prompt.n; i++) {
        if (s->prompt.v[i] >= n_vocab)
            return err_set(e, ERR_FORMAT,
                           "%s: token %" PRId64 " is %" PRId32 ", the model has %" PRId32, from, i,
                           s->prompt.v[i], n_vocab);
    }
    return ERR_OK;
}

static struct run_opts run_options(const struct session *s)
{
    struct run_opts ro = { .n_seq = 1, .ctx_tokens = choose_ctx(s), .rows_max = o.model.chunk };

    if (s->prompt.n > 0 && s->prompt.n < (o.model.chunk > 0 ? o.model.chunk : CHUNK_LEAST))
        ro.rows_max = (int)s->prompt.n;
    cli_session_kv(&s->kept, &ro.kv_k, &ro.kv_v);
    if (o.session != NULL)
        ro.checkpoint_bytes = run_snapshot_bytes(s->open.model); /* where the last message ends */
    return ro;
}

static enum err_code print_plan(struct session *s, struct err *e)
{
    struct run_opts ro;

    if (cli_open_model(&s->open, e))
        return e->code;
    ro = run_options(s);
    return cli_open_plan(&s->open, &ro, e) ? e->code : cli_fit_print(s->open.fit, o.json, e);
}

static enum err_code open_run(struct session *s, struct err *e)
{
    struct run_opts ro;
    double          from;

    if (cli_open_model(&s->open, e))
        return e->code;
    ro = run_options(s);
    if (check_prompt(s, ro.ctx_tokens, e) || cli_open_run(&s->run, &s->open, &ro, e))
        return e->code;
    from = cli_now_ms();
    if (o.session != NULL &&
        cli_session_load(&s->kept, s->run, text_fingerprint(s->open.gguf), s->open.path, &s->prompt,
                         wanted_logits(s), e))
        return e->code;
    s->open.load_ms += cli_now_ms() - from;
    return open_sampler(s, e);
}

struct logits_file {
    struct io_out *out;
    size_t         row_bytes;
};

static enum err_code write_row(void *ctx, int64_t pos, const float *logits, struct err *e)
{
    struct logits_file *f = ctx;

    (void)pos;
    return io_out_write(f->out, logits, f->row_bytes, e);
}

static bool prompt_tick(void *ctx, uint64_t done, uint64_t total)
{
    (void)ctx;
    if (cli_status_asked())
        fprintf(stderr, "%s: prompt: %" PRIu64 " of %" PRIu64 " tokens\n", cli_name(), done, total);
    cli_progress("prompt: %" PRIu64 " of %" PRIu64 " tokens", done, total);
    return !cli_interrupted();
}

/* What the session does not have of the prompt, with a mark where the last message ends. */
static enum err_code feed_rest(struct session *s, int64_t n_logits, struct logits_file *f, struct err *e)
{
    struct progress progress = { prompt_tick, NULL };
    int64_t         at = run_pos(s->run, 0), n = s->prompt.n;
    int64_t         border = o.session ? cli_session_border(s->open.text, &s->prompt) : 0;
    int64_t         early = n_logits > n - border ? n_logits - (n - border) : 0; /* of the logits */

    if (border > at) {
        if (run_feed(s->run, 0, s->prompt.v + at, border - at, early, early ? write_row : NULL, f,
                     &progress, e))
            return e->code;
        run_mark(s->run, 0);
        n_logits -= early;
        at = border;
    }
    return run_feed(s->run, 0, s->prompt.v + at, n - at, n_logits, f->out ? write_row : NULL, f,
                    &progress, e);
}

/* Feeds the prompt, and writes the logits that are asked for. */
static enum err_code feed_prompt(struct session *s, struct err *e)
{
    struct logits_file f = { NULL, (size_t)model_info(s->open.model)->n_vocab * sizeof(float) };
    double             from = cli_now_ms();
    enum err_code      code;

    s->n_evaluated = s->prompt.n - run_pos(s->run, 0);
    if (o.logits != NULL && io_out_open(&f.out, o.logits, e))
        return e->code;
    code = feed_rest(s, wanted_logits(s), &f, e);
    s->prompt_ms = cli_now_ms() - from;
    cli_progress_end();
    if (f.out == NULL)
        return code;
    if (code == ERR_OK)
        return io_out_commit(f.out, e);
    io_out_abort(f.out);
    return code;
}

static void show_status(const struct session *s, double from)
{
    double s_per = (cli_now_ms() - from) / 1e3;

    if (cli_status_asked())
        fprintf(stderr, "%s: %" PRId64 " tokens, %.1f tokens/s\n", cli_name(), s->answer.ids.n,
                s_per > 0 ? (double)s->n_steps / s_per : 0);
    if (!isatty(STDOUT_FILENO) && s->answer.o.reasoning != REASONING_STDERR)
        cli_progress("%" PRId64 " tokens", s->answer.ids.n);
}

static bool ends(const struct session *s, int32_t token)
{
    uint32_t eos = UINT32_MAX;

    if (o.ignore_eos)
        return false;
    if (s->open.text != NULL)
        return text_is_end(s->open.text, token);
    return gguf_u32(s->open.gguf, "tokenizer.ggml.eos_token_id", &eos) && eos == (uint32_t)token;
}

/* Chooses tokens until one of the reasons to end; the prompt has been fed. */
static enum err_code generate(struct session *s, struct err *e)
{
    double from = cli_now_ms();
    bool   stopped = false, whole;

    s->finish = FINISH_LENGTH;
    for (int64_t n = 0; o.predict_max < 0 || n < o.predict_max; n++) {
        struct sample_pick pick;

        if (cli_interrupted()) {
            s->finish = FINISH_INTERRUPTED;
            break;
        }
        if (n > 0 && run_pos(s->run, 0) >= run_ctx(s->run)) {
            s->finish = FINISH_CONTEXT;
            break;
        }
        if (n > 0) {
            struct run_row row = { s->answer.ids.v[n - 1], 0, true, false };
            struct logits_want want;
            int32_t ids[LOGITS_IDS_MAX];

            sample_wants(s->sampler, NULL, &want, ids);
            if (run_step_want(s->run, &row, &want, 1, e))
                return e->code;
            s->n_steps++;
        }
        show_status(s, from);
        if (cli_pick(s->sampler, s->run, n > 0 ? 0 : -1, &pick, &whole, e))
            return e->code;
        s->n_whole += whole;
        s->n_choices++;
        if (ends(s, pick.token)) {
            s->finish = FINISH_STOP;
            break;
        }
        if (cli_answer_take(&s->answer, &pick, &stopped, e) ||
            sample_accept(s->sampler, pick.token, e))
            return e->code;
        if (stopped) {
            s->finish = FINISH_STOP_STRING;
            break;
        }
    }
    s->decode_ms = cli_now_ms() - from;
    cli_progress_end();
    return cli_answer_end(&s->answer, stopped, e);
}

static double per_second(int64_t n, double ms)
{
    return ms > 0 ? (double)n * 1e3 / ms : 0;
}

static json_t *json_usage(const struct session *s)
{
    json_t *u = json_pack("{s:I, s:I, s:I}", "prompt_tokens", (json_int_t)s->prompt.n,
                          "completion_tokens", (json_int_t)s->answer.ids.n, "reasoning_tokens",
                          (json_int_t)s->answer.n_reasoning);

    if (u == NULL || !o.session ||
        (cli_json_set(u, "cached_tokens", json_integer(s->prompt.n - s->n_evaluated)) &&
         cli_json_set(u, "evaluated_tokens", json_integer(s->n_evaluated))))
        return u;
    json_decref(u);
    return NULL;
}

static json_t *json_timings(const struct session *s)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f}", "load_ms", s->open.load_ms, "prompt_ms", s->prompt_ms,
                     "prompt_tps", per_second(s->n_evaluated, s->prompt_ms), "decode_ms", s->decode_ms,
                     "decode_tps", per_second(s->n_steps, s->decode_ms));
}

static json_t *json_buf(const struct cli_buf *b)
{
    return json_bytes((struct str){ b->p ? b->p : "", b->n });
}

/* The object of --json, or the last event of --jsonl. */
static enum err_code print_end(const struct session *s, struct err *e)
{
    const struct answer *a = &s->answer;
    json_t              *top = json_object();
    bool ok = top != NULL && cli_json_set(top, "type", json_string(o.json ? "completion" : "end"));

    if (ok && o.json)
        ok = cli_json_set(top, "model", json_bytes(str_of(s->open.path))) &&
             cli_json_set(top, "text", json_buf(&a->text)) &&
             cli_json_set(top, "reasoning",
                          a->had_reasoning ? json_buf(&a->reasoning) : json_null()) &&
             cli_json_set(top, "token_ids", cli_answer_ids(a));
    ok = ok && cli_json_set(top, "finish_reason", json_string(finish_names[s->finish])) &&
         cli_json_set(top, "usage", json_usage(s)) &&
         cli_json_set(top, "timings", json_timings(s)) &&
         cli_json_set(top, "seed", json_integer(o.seed));
    if (ok && o.session)
        ok = cli_json_set(top, "cache", cli_session_json(&s->kept, s->open.text, &s->prompt));
    if (ok && o.json && o.logprobs >= 0)
        ok = cli_json_set(top, "logprobs", json_incref(a->logprobs));
    if (ok)
        return cli_json_line(top, e);
    json_decref(top);
    return err_set(e, ERR_NOMEM, "out of memory");
}

static enum err_code print_start(const struct session *s, struct err *e)
{
    return cli_json_line(json_pack("{s:s, s:o, s:s, s:I, s:I, s:I}", "type", "start", "model",
                                   json_bytes(str_of(s->open.path)), "arch", model_info(s->open.model)->arch,
                                   "prompt_tokens", (json_int_t)s->prompt.n, "ctx_tokens",
                                   (json_int_t)run_ctx(s->run), "seed", (json_int_t)o.seed),
                         e);
}

static void note_machine(const struct session *s)
{
    const struct model_info *i = model_info(s->open.model);
    const char              *k, *v;

    run_kv(s->run, &k, &v);
    cli_note("model    %s: %s, %d layers, %.1f M weights, %.1f MB", s->open.path, i->arch, i->n_layer,
             (double)i->n_params / 1e6, (double)i->weight_bytes / 1e6);
    if (model_weights(s->open.model)->copied > 0)
        cli_note("weights  %.1f MB copied from the file, %.1f MB of them laid out",
                 (double)model_weights(s->open.model)->copied / 1e6, (double)model_weights(s->open.model)->laid / 1e6);
    cli_note("device   %s, %s kernels, %d threads, activations %s on a CPU", i->device, i->simd, i->n_threads,
             quant_acts_name((enum quant_acts_type)o.model.acts));
    cli_note("memory   context of %" PRId64 " tokens, keys and values %s,%s, %.1f MB of state", run_ctx(s->run), k, v,
             (double)run_state_bytes(s->run) / 1e6);
    cli_fit_note(s->open.fit);
    cli_note("seed     %" PRId64, o.seed);
}

static int slower_first(const void *a, const void *b)
{
    const struct model_timing *x = a, *y = b;

    return x->ns < y->ns ? 1 : x->ns > y->ns ? -1 : 0;
}

static void note_times(const struct session *s)
{
    struct model_timing t[64];
    int                 n;
    double              all_ms = s->prompt_ms + s->decode_ms;

    if (cli_verbosity() < 1)
        return;
    cli_note("load     %.1f ms", s->open.load_ms);
    if (o.session)
        cli_session_note(&s->kept, s->open.text, &s->prompt);
    cli_note("prompt   %" PRId64 " tokens, %.1f ms, %.1f tokens/s", s->n_evaluated, s->prompt_ms,
             per_second(s->n_evaluated, s->prompt_ms));
    cli_note("answer   %" PRId64 " tokens, %.1f ms, %.1f tokens/s", s->answer.ids.n, s->decode_ms,
             per_second(s->n_steps, s->decode_ms));
    if (strcmp(model_info(s->open.model)->device, "cpu") != 0)
        cli_note("logits   %" PRId64 " whole rows for %" PRId64 " choices", s->n_whole, s->n_choices);
    n = model_timings(s->open.model, t, (int)(sizeof t / sizeof *t));
    qsort(t, (size_t)n, sizeof *t, slower_first);
    for (int i = 0; i < n; i++)
        cli_note("  %-16s %8" PRIu64 " calls %10.1f ms %5.1f %%", t[i].op, t[i].calls,
                 (double)t[i].ns / 1e6, all_ms > 0 ? (double)t[i].ns / 1e4 / all_ms : 0);
}

static enum err_code open_answer(struct session *s, struct err *e)
{
    struct answer_opts ao = { .text = s->open.text, .chat = s->chat, .thinking = s->thinking };

    s->stops = calloc(o.stops.n + 1, sizeof *s->stops);
    if (s->stops == NULL)
        return err_set(e, ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < o.stops.n; i++)
        s->stops[i] = str_of(o.stops.v[i]);
    ao.form = o.json ? ANSWER_JSON : o.jsonl ? ANSWER_JSONL : ANSWER_PLAIN;
    ao.reasoning = isatty(STDERR_FILENO) ? REASONING_STDERR : REASONING_NONE;
    if (o.reasoning >= 0)
        ao.reasoning = (enum answer_reasoning)o.reasoning;
    ao.stops = s->stops;
    ao.n_stops = o.stops.n;
    ao.logprobs = o.logprobs >= 0;
    return cli_answer_open(&s->answer, &ao, e);
}

/* Writes the session. A turn that was not read to its end is no part of a conversation; of a prompt that comes
 * whole the next time, what was read is worth keeping. */
static enum err_code keep(struct session *s, bool prompt_read, struct err *e)
{
    if (!prompt_read && o.messages == NULL && o.tokens == NULL)
        return ERR_OK;
    return cli_session_save(&s->kept, s->run, s->chat, &s->answer.ids, s->prompt.n, e);
}

/* The model is ready: prompt in, answer out. */
static enum err_code answer(struct session *s, struct err *e)
{
    enum err_code code;

    note_machine(s);
    if (open_answer(s, e) || (o.jsonl && print_start(s, e)))
        return e->code;
    s->started = o.jsonl;
    cli_catch_interrupts();
    if (cli_verbosity() > 0 && strcmp(model_info(s->open.model)->device, "cpu") == 0)
        model_time(s->open.model, true); /* on a GPU the answer would be slower for it */
    code = feed_prompt(s, e);
    if (code == ERR_CANCEL && cli_interrupted())
        s->finish = FINISH_INTERRUPTED;
    else if (code || generate(s, e))
        return e->code;
    if ((o.session && keep(s, code == ERR_OK, e)) || cli_open_save_uses(&s->open, e))
        return e->code;
    if ((o.json || o.jsonl) && print_end(s, e))
        return e->code;
    note_times(s);
    return ERR_OK;
}

static enum err_code session(struct session *s, char *const *files, struct err *e)
{
    if (cli_open(&s->open, &o.model, e))
        return e->code;
    if (o.inspect)
        return cli_inspect(s->open.gguf, o.json, e);
    if (o.model.plan)
        return print_plan(s, e);
    if (cli_open_text(&s->open, o.tokens == NULL, e))
        return e->code;
    if (o.session != NULL && cli_session_open(&s->kept, o.session, e))
        return e->code;
    if (read_prompt(s, files, e))
        return e->code;
    if (o.tokenize)
        return tokenize(s, e);
    if (o.detokenize)
        return detokenize(s, e);
    if (o.show_prompt) {
        fwrite(s->rendered.p, 1, s->rendered.n, stdout);
        return cli_flush_stdout(e);
    }
    if (o.tokens == NULL && encode_prompt(s, e))
        return e->code;
    if (open_run(s, e))
        return e->code;
    return answer(s, e);
}

static void close_session(struct session *s)
{
    cli_answer_close(&s->answer);
    free(s->stops);
    sample_close(s->sampler);
    cli_session_close(&s->kept);
    run_close(s->run);
    text_tokens_free(&s->prompt);
    cli_buf_free(&s->rendered);
    cli_opened_close(&s->open);
}

int main(int argc, char **argv)
{
    static const struct cli cli = { "chimere-run", "[options] [file ...]",
                                    "Answer a prompt: from -p, files, or stdin, to stdout.", opts };
    struct session s = { .finish = FINISH_LENGTH };
    struct err     e = { 0 };
    int            first, status = EXIT_OK;

    o.sample = sample_defaults();
    first = cli_parse(&cli, argc, argv);
    cli_set_verbosity(o.quiet ? -1 : o.verbose);
    check_usage(argv + first);
    if (session(&s, argv + first, &e)) {
        status = cli_fail(&e);
        if (s.started && cli_json_line(json_pack("{s:s, s:o, s:i}", "type", "error", "message",
                                                 json_bytes(str_of(e.msg)), "status", status),
                                       &e))
            cli_fail(&e);
    }
    close_session(&s);
    free(o.stops.v);
    free(o.biases.v);
    free(o.breakers.v);
    status = cli_close_stdout(status);
    cli_reraise();
    return status;
}
