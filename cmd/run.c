/* SPDX-License-Identifier: Apache-2.0 */
/* chimere-run - answer a prompt: answer on stdout, the rest on stderr. See chimere-run(1). */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/io.h"
#include "cli/answer.h"
#include "cli/cli.h"
#include "cli/fit.h"
#include "cli/sampling.h"
#include "cli/session.h"
#include "cli/table.h"
#include "gen/gen.h"
#include "gguf/gguf.h"
#include "model/model.h"
#include "reason/reason.h"
#include "run/fit.h"
#include "text/text.h"

#define CTX_ROOM      8192 /* tokens for an answer without -n */
#define CHUNK_LEAST 512    /* rows in one step unless the prompt is shorter */

static struct {
    struct cli_model_opts model;
    const char *prompt, *system, *messages, *tools, *tokens, *session, *logits;
    bool        raw, plain, tokenize, detokenize, show_prompt, inspect, json, jsonl, ignore_eos;
    bool        verbose, quiet, stream;
    int         think, reasoning; /* index of the choice; think 0: on; reasoning -1: by terminal */
    int64_t     predict_max, logits_last, budget; /* -1: not given */
    struct cli_list     stops;
    struct cli_sampling sampling;
} o = { .reasoning = -1, .predict_max = -1, .logits_last = -1, .budget = -1, .sampling = { .seed = -1, .logprobs = -1 } };

static const struct opt opts[] = {
    SECTION("Prompt"),
    ROW_MODEL(o.model),
    STRING('p', "prompt", "text", "the prompt; files named come after it", &o.prompt),
    STRING('s', "system", "text", "system message", &o.system),
    PATH(0, "messages", "file", "JSON: chat messages to go on from", &o.messages),
    PATH(0, "tools", "file", "JSON: tools the model may call", &o.tools),
    CHOICE("think", "on|off", "reason before the answer (default on)", &o.think),
    INT64(0, "reasoning-budget", "tokens", "then the reasoning is closed (-1: no limit)", &o.budget, -1),
    FLAG('r', "raw", "no chat: continue the text as it is", &o.raw),
    FLAG(0, "plain", "raw: special tokens spelled out are text", &o.plain),
    PATH(0, "tokens", "file", "JSON: token ids as the prompt, as they are", &o.tokens),
    PATH(0, "session", "file", "keep the conversation in a file, go on from it", &o.session),
    SECTION("Answer"),
    INT64('n', "predict", "tokens", "of the answer at most, without reasoning; 0: none", &o.predict_max, 0),
    LIST("stop", "text", "end before this text; repeatable", &o.stops),
    FLAG(0, "ignore-eos", "go on after tokens that end a turn", &o.ignore_eos),
    CHOICE("reasoning", "stderr|stdout|none", "where reasoning goes (default: a terminal)",
           &o.reasoning),
    FLAG(0, "stream", "write each piece at once, also to a pipe or file", &o.stream),
    FLAG('j', "json", "one JSON object instead of text", &o.json),
    FLAG(0, "jsonl", "JSON lines: an event for each token", &o.jsonl),
    INT32("logprobs", "n", "JSON: log-probabilities, and of the n best", &o.sampling.logprobs, 0, 10000),
    SECTION("Sampling"),
    ROWS_SAMPLING(o.sampling),
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

static const char *const finish_names[] = {
    [GEN_LENGTH] = "length",   [GEN_EOS] = "stop",        [GEN_STOP_STRING] = "stop_string",
    [GEN_CONTEXT] = "context", [GEN_STOPPED] = "stopped", [GEN_CANCELLED] = "interrupted",
};

/* All that is open, in the order of opening. */
struct opened {
    struct cli_opened  open; /* no text: --tokens and a file without a tokenizer */
    struct cli_session kept; /* --session */
    bool               chat, thinking;
    struct cli_buf     rendered; /* the prompt as text */
    struct text_tokens prompt;
    struct run        *run;
    struct gen        *gen;
    struct str        *stops;
    struct io_out     *logits;  /* --logits */
    struct answer      answer;
    bool               started; /* --jsonl: events have begun */
    bool               read;    /* the prompt, to its end */
    enum gen_end       finish;
    struct gen_stats   stats;
    double             from_ms, prompt_ms, decode_ms;
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
    if (o.sampling.logprobs >= 0 && !o.json && !o.jsonl)
        cli_usage("--logprobs needs --json or --jsonl");
    for (size_t i = 0; i < o.stops.n; i++) {
        if (*o.stops.v[i] == '\0')
            cli_usage("--stop: the text is empty");
    }
    cli_sampling_check(&o.sampling);
}

/* Whether the prompt ends inside a reasoning block. */
static bool opens_thinking(const struct opened *s)
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

static enum err_code encode_prompt(struct opened *s, struct err *e)
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

static enum err_code read_tokens_file(struct opened *s, struct err *e)
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
static enum err_code read_prompt(struct opened *s, char *const *files, struct err *e)
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
                                                   o.think == 0 && o.budget != 0 },
                               e);
    if (o.system || o.messages || o.tools)
        return err_set(e, ERR_UNSUPPORTED, "%s: has no chat template, so no messages or tools",
                       s->open.path);
    return cli_read_prompt(&s->rendered, o.prompt, files, e);
}

/* Positions of the prompt whose logits are wanted: the last ones. */
static int64_t wanted_logits(const struct opened *s)
{
    if (o.logits == NULL)
        return 1;
    return o.logits_last > 0 && o.logits_last < s->prompt.n ? o.logits_last : s->prompt.n;
}

static enum err_code tokenize(struct opened *s, struct err *e)
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

static enum err_code detokenize(struct opened *s, struct err *e)
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

/* Context: as asked for, else room for this request, within what the model was trained for. */
static int64_t choose_ctx(const struct opened *s)
{
    int64_t train = model_info(s->open.model)->ctx_train;
    int64_t more = o.predict_max >= 0 && o.predict_max < INT32_MAX ? o.predict_max : CTX_ROOM;
    int64_t ctx = s->prompt.n + more + (s->thinking && o.predict_max >= 0 ? CTX_ROOM : 0);

    if (o.model.ctx_tokens > 0)
        return o.model.ctx_tokens;
    return train > 0 && ctx > train ? train : ctx;
}

static enum err_code check_prompt(const struct opened *s, int64_t ctx, struct err *e)
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

static struct run_opts run_options(const struct opened *s)
{
    struct run_opts ro = { .n_seq = 1, .ctx_tokens = choose_ctx(s), .rows_max = o.model.chunk };

    if (s->prompt.n > 0 && s->prompt.n < (o.model.chunk > 0 ? o.model.chunk : CHUNK_LEAST))
        ro.rows_max = (int)s->prompt.n;
    cli_session_kv(&s->kept, &ro.kv_k, &ro.kv_v);
    if (o.session != NULL)
        ro.checkpoint_bytes = run_snapshot_bytes(s->open.model); /* where the last message ends */
    return ro;
}

static enum err_code print_plan(struct opened *s, struct err *e)
{
    struct run_opts ro;

    if (cli_open_model(&s->open, e))
        return e->code;
    ro = run_options(s);
    return cli_open_plan(&s->open, &ro, e) ? e->code : cli_fit_print(s->open.fit, o.json, e);
}

static enum err_code open_run(struct opened *s, struct err *e)
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
    return cli_sampling_make(&o.sampling, s->open.text, model_info(s->open.model)->n_vocab, e);
}

/* ---- the answer ---- */

static enum err_code submit(struct opened *s, struct err *e)
{
    struct gen_opts    go = { .run = s->run, .text = s->open.text, .end_token = -1 };
    struct gen_request q = gen_defaults();
    struct reason_opts budget = { s->open.text, o.budget };
    int64_t            border = o.session ? cli_session_border(s->open.text, &s->prompt) : 0, id;
    uint32_t           eos;

    if (s->open.text == NULL && gguf_u32(s->open.gguf, "tokenizer.ggml.eos_token_id", &eos) && eos <= INT32_MAX)
        go.end_token = (int32_t)eos;
    q.prompt = s->prompt.v;
    q.n_prompt = s->prompt.n;
    /* What a chat thinks comes on top. */
    *(s->chat && o.predict_max > 0 ? &q.text_max : &q.predict_max) = o.predict_max;
    q.ignore_eos = o.ignore_eos;
    q.chat = s->chat;
    q.thinking = s->thinking;
    if (s->chat && o.budget > 0) {
        q.governor = &reason_governor;
        q.governor_opts = &budget;
    }
    q.sample = o.sampling.o;
    q.stops = s->stops;
    q.n_stops = o.stops.n;
    q.marks = &border;
    q.n_marks = border > 0;
    q.n_rows = o.logits != NULL ? wanted_logits(s) : 0;
    return gen_open(&s->gen, &go, e) ? e->code : gen_submit(s->gen, &q, &id, e);
}

static void show_prompt_status(const struct opened *s, int64_t done)
{
    if (cli_status_asked())
        fprintf(stderr, "%s: prompt: %" PRId64 " of %" PRId64 " tokens\n", cli_name(), done, s->prompt.n);
    cli_progress("prompt: %" PRId64 " of %" PRId64 " tokens", done, s->prompt.n);
}

static void show_status(const struct opened *s)
{
    double s_per = (cli_now_ms() - s->from_ms) / 1e3, rate = s_per > 0 ? (double)s->answer.ids.n / s_per : 0;

    if (cli_status_asked())
        fprintf(stderr, "%s: %" PRId64 " tokens, %.1f tokens/s\n", cli_name(), s->answer.ids.n, rate);
    if (!isatty(STDOUT_FILENO) && !(s->answer.in_reasoning && s->answer.o.reasoning == REASONING_STDERR))
        cli_progress("%" PRId64 " tokens, %.1f/s", s->answer.ids.n, rate);
}

/* Part of the prompt was read. */
static void show_prompt(struct opened *s, int64_t done)
{
    show_prompt_status(s, done);
    if (done < s->prompt.n)
        return;
    s->read = true;
    s->prompt_ms = cli_now_ms() - s->from_ms;
    s->from_ms = cli_now_ms();
    cli_progress_end();
}

static enum err_code show_end(struct opened *s, const struct gen_event *ev, struct err *e)
{
    *(s->read ? &s->decode_ms : &s->prompt_ms) = cli_now_ms() - s->from_ms;
    cli_progress_end();
    s->finish = ev->end;
    s->stats = ev->stats;
    if (ev->end == GEN_FAILED) {
        *e = ev->err;
        return e->code;
    }
    if (!s->read)
        return ERR_OK;
    if (s->chat && ev->reasoning && ev->stats.tokens > 0 && ev->end != GEN_CANCELLED)
        cli_warn("the answer ended inside the reasoning, after %" PRId64 " tokens: a larger --ctx or --think off helps",
                 ev->stats.tokens);
    return cli_answer_end(&s->answer, ev, e);
}

static enum err_code show(struct opened *s, const struct gen_event *ev, struct err *e)
{
    switch (ev->kind) {
    case GEN_BEGIN:
        return ERR_OK;
    case GEN_ROW:
        return io_out_write(s->logits, ev->logits, (size_t)model_info(s->open.model)->n_vocab * sizeof(float), e);
    case GEN_PROMPT:
        show_prompt(s, ev->done);
        return ERR_OK;
    case GEN_TOKEN:
        if (cli_answer_take(&s->answer, ev, e))
            return e->code;
        show_status(s);
        return ERR_OK;
    case GEN_END:
        return show_end(s, ev, e);
    }
    return ERR_OK;
}

static enum err_code generate(struct opened *s, struct err *e)
{
    struct gen_event ev;

    if (submit(s, e) || (o.logits != NULL && io_out_open(&s->logits, o.logits, e)))
        return e->code;
    s->from_ms = cli_now_ms();
    show_prompt_status(s, run_pos(s->run, 0));
    while (gen_busy(s->gen)) {
        if (cli_interrupted())
            gen_cancel(s->gen, 1);
        if (gen_step(s->gen, e))
            return e->code;
        while (gen_next(s->gen, &ev)) {
            if (show(s, &ev, e))
                return e->code;
        }
    }
    if (s->logits == NULL)
        return ERR_OK;
    struct io_out *out = s->logits;

    s->logits = NULL;
    if (s->read)
        return io_out_commit(out, e);
    io_out_abort(out);
    return ERR_OK;
}

/* ---- what is told of it ---- */

static double per_second(int64_t n, double ms)
{
    return ms > 0 ? (double)n * 1e3 / ms : 0;
}

static int64_t evaluated(const struct opened *s)
{
    return s->prompt.n - s->stats.cached_tokens;
}

static json_t *json_usage(const struct opened *s)
{
    json_t *u = json_pack("{s:I, s:I, s:I}", "prompt_tokens", (json_int_t)s->prompt.n,
                          "completion_tokens", (json_int_t)s->answer.ids.n, "reasoning_tokens",
                          (json_int_t)s->answer.n_reasoning);

    if (u == NULL || !o.session ||
        (cli_json_set(u, "cached_tokens", json_integer(s->stats.cached_tokens)) &&
         cli_json_set(u, "evaluated_tokens", json_integer(evaluated(s)))))
        return u;
    json_decref(u);
    return NULL;
}

static json_t *json_timings(const struct opened *s)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f}", "load_ms", s->open.load_ms, "prompt_ms", s->prompt_ms,
                     "prompt_tps", per_second(evaluated(s), s->prompt_ms), "decode_ms", s->decode_ms,
                     "decode_tps", per_second(s->stats.steps, s->decode_ms));
}

static json_t *json_buf(const struct cli_buf *b)
{
    return json_bytes((struct str){ b->p ? b->p : "", b->n });
}

/* What keys and values are kept as, and whether there was no room for better. */
static bool set_kv(json_t *top, const struct opened *s)
{
    const char *k, *v;
    char        kv[32];

    run_kv(s->run, &k, &v);
    snprintf(kv, sizeof kv, "%s,%s", k, v);
    return cli_json_set(top, "kv", json_string(kv)) &&
           cli_json_set(top, "kv_fallback", json_boolean(s->open.fit != NULL && s->open.fit->kv_fallback));
}

/* The object of --json, or the last event of --jsonl. */
static enum err_code print_end(const struct opened *s, struct err *e)
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
         cli_json_set(top, "seed", json_integer(o.sampling.seed));
    if (ok && o.json)
        ok = set_kv(top, s);
    if (ok && o.session)
        ok = cli_json_set(top, "cache", cli_session_json(&s->kept, s->open.text, &s->prompt));
    if (ok && o.json && o.sampling.logprobs >= 0)
        ok = cli_json_set(top, "logprobs", json_incref(a->logprobs));
    if (ok)
        return cli_json_line(top, e);
    json_decref(top);
    return err_set(e, ERR_NOMEM, "out of memory");
}

static enum err_code print_start(const struct opened *s, struct err *e)
{
    json_t *top = json_pack("{s:s, s:o, s:s, s:I, s:I, s:I}", "type", "start", "model",
                            json_bytes(str_of(s->open.path)), "arch",
                            model_info(s->open.model)->arch, "prompt_tokens",
                            (json_int_t)s->prompt.n, "ctx_tokens", (json_int_t)run_ctx(s->run),
                            "seed", (json_int_t)o.sampling.seed);

    if (top != NULL && set_kv(top, s))
        return cli_json_line(top, e);
    json_decref(top);
    return err_set(e, ERR_NOMEM, "out of memory");
}

static void note_machine(const struct opened *s)
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
    cli_note("seed     %" PRId64, o.sampling.seed);
}

static int slower_first(const void *a, const void *b)
{
    const struct model_timing *x = a, *y = b;

    return x->ns < y->ns ? 1 : x->ns > y->ns ? -1 : 0;
}

static void note_times(const struct opened *s)
{
    struct model_timing t[64];
    int                 n;
    double              all_ms = s->prompt_ms + s->decode_ms;

    if (cli_verbosity() < 1)
        return;
    cli_note("load     %.1f ms", s->open.load_ms);
    if (o.session)
        cli_session_note(&s->kept, s->open.text, &s->prompt);
    cli_note("prompt   %" PRId64 " tokens, %.1f ms, %.1f tokens/s", evaluated(s), s->prompt_ms,
             per_second(evaluated(s), s->prompt_ms));
    cli_note("answer   %" PRId64 " tokens, %.1f ms, %.1f tokens/s", s->answer.ids.n, s->decode_ms,
             per_second(s->stats.steps, s->decode_ms));
    if (strcmp(model_info(s->open.model)->device, "cpu") != 0)
        cli_note("logits   %" PRId64 " whole rows for %" PRId64 " tokens", s->stats.whole_rows, s->stats.tokens);
    n = model_timings(s->open.model, t, (int)(sizeof t / sizeof *t));
    qsort(t, (size_t)n, sizeof *t, slower_first);
    for (int i = 0; i < n; i++)
        cli_note("  %-16s %8" PRIu64 " calls %10.1f ms %5.1f %%", t[i].op, t[i].calls,
                 (double)t[i].ns / 1e6, all_ms > 0 ? (double)t[i].ns / 1e4 / all_ms : 0);
}

static enum err_code open_answer(struct opened *s, struct err *e)
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
    ao.stream = o.stream || isatty(STDOUT_FILENO);
    ao.logprobs = o.sampling.logprobs >= 0;
    return cli_answer_open(&s->answer, &ao, e);
}

/* Writes the session. A turn that was not read to its end is no part of a conversation; of a prompt that comes
 * whole the next time, what was read is worth keeping. */
static enum err_code keep(struct opened *s, struct err *e)
{
    if (!s->read && o.messages == NULL && o.tokens == NULL)
        return ERR_OK;
    return cli_session_save(&s->kept, s->run, s->chat, &s->answer.ids, s->prompt.n, e);
}

/* The model is ready: prompt in, answer out. */
static enum err_code answer(struct opened *s, struct err *e)
{
    note_machine(s);
    if (open_answer(s, e) || (o.jsonl && print_start(s, e)))
        return e->code;
    s->started = o.jsonl;
    cli_catch_interrupts();
    if (cli_verbosity() > 0 && strcmp(model_info(s->open.model)->device, "cpu") == 0)
        model_time(s->open.model, true); /* on a GPU the answer would be slower for it */
    if (generate(s, e) || (o.session && keep(s, e)) || cli_open_save_uses(&s->open, e))
        return e->code;
    if ((o.json || o.jsonl) && print_end(s, e))
        return e->code;
    note_times(s);
    return ERR_OK;
}

static enum err_code run(struct opened *s, char *const *files, struct err *e)
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

static void close_all(struct opened *s)
{
    cli_answer_close(&s->answer);
    free(s->stops);
    io_out_abort(s->logits);
    gen_close(s->gen);
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
    struct opened s = { .finish = GEN_LENGTH };
    struct err     e = { 0 };
    int            first, status = EXIT_OK;

    o.sampling.o = sample_defaults();
    first = cli_parse(&cli, argc, argv);
    cli_set_verbosity(o.quiet ? -1 : o.verbose);
    check_usage(argv + first);
    if (run(&s, argv + first, &e)) {
        status = cli_fail(&e);
        if (s.started && cli_json_line(json_pack("{s:s, s:o, s:i}", "type", "error", "message",
                                                 json_bytes(str_of(e.msg)), "status", status),
                                       &e))
            cli_fail(&e);
    }
    close_all(&s);
    free(o.stops.v);
    cli_sampling_free(&o.sampling);
    status = cli_close_stdout(status);
    cli_reraise();
    return status;
}
