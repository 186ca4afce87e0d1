/* SPDX-License-Identifier: Apache-2.0 */
/* chimere-run - answer a prompt: answer on stdout, the rest on stderr. See chimere-run(1). */
#include <inttypes.h>
#include <signal.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/io.h"
#include "chat/reader.h"
#include "chat/tool_grammar.h"
#include "cli/placement.h"
#include "run/model_list.h"
#include "cli/table.h"
#include "gguf/gguf.h"
#include "model/model.h"
#include "reason/reason.h"
#include "run/placement.h"
#include "run/program.h"
#include "run/run.h"
#include "run/session.h"
#include "text/marks.h"
#include "text/text.h"

#define CTX_ROOM    8192  /* tokens for an answer without -n */
#define TALK_ROOM   16384 /* tokens for a conversation */
#define TALK_RUNGS  4     /* snapshots of its past */
#define CHUNK_LEAST 512   /* rows in one step unless the prompt is shorter */

struct run_options o = { .reasoning = -1,
                         .predict_max = -1,
                         .logits_last = -1,
                         .budget = -1,
                         .draft_max = -1,
                         .sampling = { .seed = -1, .logprobs = -1 } };

static const struct opt opts[] = {
    SECTION("Prompt"),
    ROW_MODEL(o.model),
    STRING('p', "prompt", "text", "the prompt; files named come after it", &o.prompt),
    STRING('s', "system", "text", "system message", &o.system),
    PATH(0, "messages", "file", "JSON: chat messages to continue", &o.messages),
    PATH(0, "tools", "file", "JSON: tools the model may call", &o.tools),
    STRING(0, "tool-choice", "choice", "auto, none, required, or a tool (default auto)", &o.tool_choice),
    ROW_LORA(o.model),
    PATH(0, "template", "file", "chat template (Jinja) instead of the model's", &o.template_file),
    STRING(0, "chat-kwargs", "json", "an object: more variables of the template", &o.kwargs),
    CHOICE("think", "on|off", "reason before the answer (default on)", &o.think),
    INT64(0, "reasoning-budget", "tokens", "close the reasoning then (-1: no limit)", &o.budget, -1),
    STRING(0, "parser", "name", "how the answer is read (default: by the template)", &o.parser),
    FLAG('i', "interactive", "a conversation on this terminal", &o.interactive),
    ROW_EXAMPLES(&o.examples),
    ROW_RECITE(&o.recite),
    FLAG('r', "raw", "no chat: continue the text as it is", &o.raw),
    FLAG(0, "plain", "raw: special tokens spelled out are text", &o.plain),
    PATH(0, "tokens", "file", "JSON: token ids as the prompt, unchanged", &o.tokens),
    OUTPUT(0, "session", "file", "keep the conversation in a file, continue it", &o.session),
    FLAG(0, "session-ro", "only read the session, do not save this turn", &o.session_ro),
    FLAG(0, "drop-oldest", "drop the oldest turns if the context is full", &o.drop_oldest),
    SECTION("Answer"),
    INT64('n', "predict", "tokens", "longest answer; -1: no limit, 0: none", &o.predict_max, -1),
    PATH(0, "schema", "file", "the answer is JSON that this schema allows", &o.grammar.schema),
    PATH(0, "grammar", "file", "the answer follows this grammar (GBNF)", &o.grammar.grammar),
    STRING(0, "regex", "expr", "the answer matches this regular expression", &o.grammar.regex),
    LIST("stop", "text", "end before this text; repeatable", &o.stops),
    FLAG(0, "ignore-eos", "continue after tokens that end a turn", &o.ignore_eos),
    CHOICE("reasoning", "stderr|stdout|none", "where reasoning goes (default: a terminal)", &o.reasoning),
    FLAG(0, "stream", "write each piece at once, also to a pipe or file", &o.stream),
    FLAG('j', "json", "one JSON object instead of text", &o.json),
    FLAG(0, "jsonl", "JSON lines: an event for each token", &o.jsonl),
    INT32("logprobs", "n", "JSON: log-probabilities, and of the n best", &o.sampling.logprobs, 0, 10000),
    SECTION("Sampling"),
    ROWS_SAMPLING(o.sampling),
    SECTION("Running"),
    ROWS_DRAFT(&o.drafts, &o.draft_max),
    ROWS_ENGRAM(&o.engrams, &o.engram_thinking),
    ROW_CONTEXT_TABLE(&o.context_table),
    FLAG(0, "engram-drafts", "use tables as drafters", &o.engram_drafts),
    ROW_CTX(o.model, "longest prompt and answer together"),
    ROWS_RUNNING(o.model),
    ROWS_PLAN(o.model),
    SECTION("Tools for scripts"),
    FLAG(0, "tokenize", "print the prompt's token ids, a JSON array", &o.tokenize),
    FLAG(0, "detokenize", "print the text of a JSON array of token ids", &o.detokenize),
    FLAG(0, "show-prompt", "print the prompt as the model would see it", &o.show_prompt),
    PATH(0, "render", "file", "render a chat template with --vars; no model", &o.render.template_path),
    PATH(0, "vars", "file", "with --render: a JSON object, the variables", &o.render.vars_path),
    STRING(0, "now", "time", "with --render: 2026-01-15T09:05:07 (default: now)", &o.render.now),
    FLAG(0, "show", "print the conversation that --session holds", &o.show),
    FLAG(0, "inspect", "print what is in the model file", &o.inspect),
    FLAG(0, "check", "is stdin what --schema, --grammar, --regex allow?", &o.check),
    STRING(0, "parse", "format", "read an answer on stdin, print it as JSON", &o.parse.format),
    FLAG(0, "reasoning-open", "with --parse: the prompt opened the reasoning", &o.parse.reasoning),
    OUTPUT(0, "logits", "file", "write the prompt's logits, float32", &o.logits),
    INT64(0, "logits-last", "n", "only of the last n positions", &o.logits_last, 1),
    SECTION("Messages"),
    FLAG('v', "verbose", "say what runs and where the time went", &o.verbose),
    FLAG('q', "quiet", "errors only", &o.quiet),
    END,
};

static bool is_stdin(const char *path)
{
    return path != NULL && strcmp(path, "-") == 0;
}

/* The standard input can be one thing. */
static void check_stdin(char *const *files)
{
    bool alone = o.prompt == NULL && *files == NULL && o.messages == NULL && o.tokens == NULL;
    int operand = alone && !o.inspect && !o.show && !o.model.plan && o.render.template_path == NULL;

    for (; *files != NULL; files++)
        operand += is_stdin(*files);
    if (operand + is_stdin(o.messages) + is_stdin(o.tools) + is_stdin(o.template_file) + is_stdin(o.tokens) > 1)
        cli_usage("only one of the prompt, --messages, --tools, --template and --tokens can be standard input");
}

/* The answer is held to a form by an option. */
static bool has_form(void)
{
    return o.grammar.schema != NULL || o.grammar.grammar != NULL || o.grammar.regex != NULL;
}

/* A call must come. */
static bool call_is_due(void)
{
    return o.tool_choice != NULL && strcmp(o.tool_choice, "auto") != 0 && strcmp(o.tool_choice, "none") != 0;
}

static void check_talk(int actions)
{
    if (o.drop_oldest && !o.session && !o.interactive)
        cli_usage("--drop-oldest needs --session or -i");
    if (!o.interactive)
        return;
    if (actions || o.raw || o.tokens || o.tools || o.json || o.jsonl || o.logits || has_form())
        cli_usage("-i is a chat of messages and text: no other prompt, tools, form or output with it");
    if (is_stdin(o.messages) || is_stdin(o.template_file))
        cli_usage("-i reads lines of the standard input: --messages and --template need files");
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
        cli_usage("-i needs a terminal as standard input and output");
}

static void check_usage(const struct cli *cli, char *const *files)
{
    bool input = o.prompt != NULL || *files != NULL;
    int actions = o.tokenize + o.detokenize + o.show_prompt + o.show + o.inspect + o.model.plan + o.check +
                  (o.parse.format != NULL) + (o.render.template_path != NULL);
    int grammars = (o.grammar.schema != NULL) + (o.grammar.grammar != NULL) + (o.grammar.regex != NULL);

    if (actions > 1)
        cli_usage("only one of --tokenize, --detokenize, --show-prompt, --show, --inspect, --plan, --check, "
                  "--parse and --render");
    if ((o.inspect || o.model.plan) && o.prompt)
        cli_usage("--inspect and --plan take no prompt");
    if ((o.inspect || o.model.plan) && *files && (o.model.file || (o.model.plan && files[1])))
        cli_usage(o.model.file ? "the model is named twice: by -m, and without an option" : "--plan takes one model");
    if ((o.inspect || o.model.plan) && *files)
        o.model.file = *files;
    if (o.show && (input || o.raw || o.system || o.messages || o.tools || o.tokens))
        cli_usage("--show takes no prompt");
    if ((o.show || o.session_ro) && !o.session)
        cli_usage("--show and --session-ro need --session");
    check_talk(actions);
    if (o.drop_oldest && (o.raw || o.messages || o.tokens || o.show || o.session_ro))
        cli_usage("--drop-oldest belongs to a chat that goes on");
    if ((o.check || o.parse.format || o.render.template_path) && input)
        cli_usage("--check, --parse and --render take no prompt");
    if ((o.render.vars_path || o.render.now) && !o.render.template_path)
        cli_usage("--vars and --now need --render");
    if (o.render.template_path && !o.render.vars_path)
        cli_usage("--render needs --vars");
    if (o.raw && (o.template_file || o.kwargs || o.tool_choice || o.examples || o.recite))
        cli_usage("--template, --chat-kwargs, --tool-choice, --examples and --recite belong to a chat: not with --raw");
    if (grammars > 1)
        cli_usage("only one of --schema, --grammar and --regex");
    if (grammars > 0 && call_is_due())
        cli_usage("--tool-choice asks for a call: no --schema, --grammar or --regex with it");
    if (o.check && grammars == 0)
        cli_usage("--check needs --schema, --grammar or --regex");
    if (grammars > 0 && actions > 0 && !o.check)
        cli_usage("--schema, --grammar and --regex limit an answer, and there is none here");
    if (o.parse.reasoning && !o.parse.format)
        cli_usage("--reasoning-open needs --parse");
    cli_open_check(cli, &o.model);
    if (o.json && o.jsonl)
        cli_usage("--json or --jsonl, not both");
    if (o.model.loras.n > 0 && actions > o.model.plan)
        cli_usage("--lora changes what the model computes: not with options that do not run it");
    if (actions &&
        (o.jsonl || o.logits || (o.session && !o.show) || (o.json && !o.inspect && !o.model.plan && !o.show)))
        cli_usage("--json, --jsonl, --logits and --session belong to a run of the model");
    if (o.tokens && (input || o.raw || o.system || o.messages || o.tools || o.examples || o.recite || actions))
        cli_usage("--tokens is the whole prompt: no text, messages or other action with it");
    if (o.raw && o.parser)
        cli_usage("--parser reads the answer of a chat: not with --raw");
    if ((o.raw || o.tokenize || o.detokenize) && (o.system || o.messages || o.tools || o.examples || o.recite))
        cli_usage("--system, --messages, --tools, --examples and --recite make a chat, which --raw, --tokenize and "
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
    check_stdin(files);
}

/* Letters of llama.cpp that take an argument there. */
static void check_operands(const struct cli *cli, char *const *files)
{
    for (; *files != NULL; files++) {
        if (is_stdin(*files) || access(*files, F_OK) == 0)
            continue;
        if (o.raw && strcmp(cli_as_typed(cli, "raw"), "-r") == 0)
            cli_usage("%s: no such file; -r is --raw here, and --stop TEXT ends the answer before a text", *files);
        if (o.json && strcmp(cli_as_typed(cli, "json"), "-j") == 0 && strchr("{[", **files) != NULL)
            cli_usage("%s: no such file; -j is --json here, and --schema FILE has what a JSON answer must be", *files);
    }
}

/* Positions of the prompt whose logits are wanted: the last ones. */
static int64_t wanted_logits(const struct opened *s)
{
    if (o.logits == NULL)
        return 1;
    return o.logits_last > 0 && o.logits_last < s->prompt.n ? o.logits_last : s->prompt.n;
}

/* Context: as asked for, else room for this request, within what the model was trained for. */
static int64_t choose_ctx(const struct opened *s)
{
    int64_t train = model_info(s->open.model)->ctx_train;
    int64_t more = o.interactive                                     ? TALK_ROOM
                   : o.predict_max >= 0 && o.predict_max < INT32_MAX ? o.predict_max
                                                                     : CTX_ROOM;
    int64_t ctx = s->prompt.n + more + (s->thinking && o.predict_max >= 0 ? CTX_ROOM : 0);

    if (o.model.ctx_tokens > 0)
        return o.model.ctx_tokens;
    return train > 0 && ctx > train ? train : ctx;
}

static enum err_code check_prompt(const struct opened *s, int64_t ctx, struct err *e)
{
    int32_t n_vocab = model_info(s->open.model)->n_vocab;
    const char *from = o.tokens ? cli_file_name(o.tokens) : "prompt";

    if (s->prompt.n == 0)
        return err_set(e, ERR_ARG, "the prompt is empty");
    if (s->prompt.n > ctx)
        return err_set(e, ERR_LIMIT,
                       "the prompt has %" PRId64 " tokens, the context %" PRId64
                       " (--ctx sets it; the model was trained for %" PRId64 "%s)",
                       s->prompt.n, ctx, model_info(s->open.model)->ctx_train,
                       s->chat && s->kept.begun && !o.drop_oldest ? "; --drop-oldest goes on without the oldest turns"
                                                                  : "");
    for (int64_t i = 0; i < s->prompt.n; i++) {
        if (s->prompt.v[i] >= n_vocab)
            return err_set(e, ERR_FORMAT, "%s: token %" PRId64 " is %" PRId32 ", the model has %" PRId32, from, i,
                           s->prompt.v[i], n_vocab);
    }
    return ERR_OK;
}

/* The session's next prompt has all of the conversation again, and may leave out what the model reasoned: it goes on from
 * where the last message ends, or from the end of the answer. Else turns are added, always at the end. */
static bool comes_whole(void)
{
    return o.session != NULL && !o.interactive && (o.messages != NULL || o.tokens != NULL);
}

static bool may_give_up; /* the step at hand */

static bool give_up(void)
{
    return may_give_up && cli_interrupted();
}

static struct run_opts run_options(struct opened *s, bool plain)
{
    struct run_opts ro = {
        .n_seq = 1, .ctx_tokens = choose_ctx(s), .rows_max = o.model.chunk, .stop = give_up, .stop_keeps = true
    };

    if (plain && !o.interactive && s->prompt.n > 0 && s->prompt.n < (o.model.chunk > 0 ? o.model.chunk : CHUNK_LEAST))
        ro.rows_max = (int)s->prompt.n;
    cli_session_kv(&s->kept, &ro.kv_k, &ro.kv_v);
    if (comes_whole())
        ro.checkpoint_bytes = run_snapshot_bytes(s->open.model); /* where the last message ends */
    if (o.interactive)
        ro.checkpoint_bytes = TALK_RUNGS * run_snapshot_bytes(s->open.model); /* for what is taken back */
    return ro;
}

static enum err_code print_plan(struct opened *s, struct err *e)
{
    struct run_opts ro;

    if (cli_open_model(&s->open, e))
        return e->code;
    ro = run_options(s, true);
    return cli_open_plan(&s->open, &ro, e) ? e->code : cli_placement_print(s->open.placement, o.json, e);
}

static bool has_tables(void)
{
    return o.engrams.n > 0 || o.context_table != NULL;
}

static bool tables_guess(void)
{
    return o.engram_drafts && has_tables();
}

static struct cli_guess guess(const struct opened *s)
{
    return (struct cli_guess){ &o.drafts, o.draft_max, tables_guess(), has_tables() ? &s->engram.mix : NULL };
}

/* Calls of tools, wherever the model begins one, or as --tool-choice asks. */
static enum err_code open_tool_grammar(struct opened *s, struct err *e)
{
    struct chat_tool_opts t = { .tools = s->tools,
                                .choice = o.tool_choice != NULL ? o.tool_choice : "auto",
                                .reasoning = s->thinking };

    if (s->tools == NULL || s->open.text == NULL || s->format == NULL)
        return call_is_due() ? err_set(e, ERR_ARG, "--tool-choice %s: there are no tools", o.tool_choice) : ERR_OK;
    t.parser = chat_parser(s->format);
    if (grammar_vocab_open(&s->vocab, s->open.text, e))
        return e->code;
    t.vocab = s->vocab;
    if (chat_tool_grammar(&s->grammar, &t, e) == ERR_OK)
        return ERR_OK;
    if (call_is_due() || e->code == ERR_NOMEM)
        return e->code;
    cli_note("tools    calls are not held to a form: %s", e->msg); /* a help, not what was asked for */
    return ERR_OK;
}

/* What the answer has to be; after the reasoning, where there is some. */
static enum err_code open_grammar(struct opened *s, struct err *e)
{
    struct grammar *after;

    if (!has_form())
        return open_tool_grammar(s, e);
    if (s->open.text == NULL)
        return err_set(e, ERR_UNSUPPORTED, "%s: has no tokenizer, so no grammar", s->open.path);
    if (grammar_vocab_open(&s->vocab, s->open.text, e) || cli_open_grammar(&s->grammar, s->vocab, &o.grammar, e))
        return e->code;
    if (!s->thinking)
        return ERR_OK;
    if (grammar_open_tagged(&after, s->grammar, chat_marks(s->format)->close[0], STR(""), e))
        return e->code;
    grammar_close(s->grammar);
    s->grammar = after;
    return ERR_OK;
}

static enum err_code open_engram(struct opened *s, struct err *e)
{
    if (!has_tables())
        return ERR_OK;
    if (s->open.text == NULL)
        return err_set(e, ERR_UNSUPPORTED, "%s: has no tokenizer, so no tables", s->open.path);
    return cli_engram_open_all(&s->engram, &o.engrams, o.context_table, false, o.engram_thinking, &s->open, e);
}

enum err_code cli_run_open(struct opened *s, struct err *e)
{
    const struct cli_guess g = guess(s);
    struct run_opts ro;
    double from;

    s->open.nextn = cli_guess_block(&g);
    if (open_grammar(s, e) || cli_open_model(&s->open, e) || open_engram(s, e))
        return e->code;
    if (o.drop_oldest && !o.interactive && cli_run_drop_oldest(s, choose_ctx(s), e))
        return e->code;
    ro = run_options(s, cli_guess_off(&g));
    if (cli_guess_open(&s->draft, &g, &s->open, &ro, s->taps, e))
        return e->code;
    if (check_prompt(s, ro.ctx_tokens, e) || cli_open_run(&s->run, &s->open, &ro, e))
        return e->code;
    from = cli_now_ms();
    if (o.session != NULL && cli_session_load(&s->kept, s->run, text_fingerprint(s->open.gguf), s->open.path,
                                              &s->open.adapters, &s->prompt, wanted_logits(s), e)) {
        const struct err why = *e;

        return o.model.loras.n == 0 || why.code != ERR_FORMAT ? why.code
                                                              : err_set(e, ERR_FORMAT, "%s (with --lora)", why.msg);
    }
    if (s->draft != NULL && draft_attach(s->draft, s->run, e))
        return e->code;
    s->open.load_ms += cli_now_ms() - from;
    return cli_sampling_make(&o.sampling, s->open.text, model_info(s->open.model)->n_vocab, e);
}

/* ---- the answer ---- */

/* The text that the prompt names becomes a part of what is mixed in. */
static enum err_code open_recital(struct opened *s, struct err *e)
{
    return cli_notes_recital(s->recited, s->open.text, model_info(s->open.model)->n_vocab, &s->recital,
                             &s->engram.mix.recital, e);
}

/* An answer that is held to a form is text, whatever it looks like. */
static bool is_text_as_it_is(const struct opened *s)
{
    return has_form() && o.parser == NULL && !s->thinking;
}

static enum err_code submit(struct opened *s, struct err *e)
{
    struct gen_opts go = { .run = s->run,
                           .text = s->open.text,
                           .end_token = -1,
                           .adapters = s->open.adapters.list,
                           .n_adapters = s->open.adapters.n };
    struct gen_request q = gen_defaults();
    struct reason_opts budget = { s->chat ? chat_marks(s->format) : NULL, o.budget };
    int64_t border = comes_whole() || o.interactive ? cli_session_border(s->format, &s->prompt) : 0;
    uint32_t eos;

    if (s->draft != NULL) {
        go.drafter = &draft_hook;
        go.drafter_of = s->draft;
    }
    if (s->open.text == NULL && gguf_u32(s->open.gguf, "tokenizer.ggml.eos_token_id", &eos) && eos <= INT32_MAX)
        go.end_token = (int32_t)eos;
    q.prompt = s->prompt.v;
    q.n_prompt = s->prompt.n;
    /* What a chat thinks comes on top. */
    *(s->chat && o.predict_max > 0 ? &q.text_max : &q.predict_max) = o.predict_max;
    q.ignore_eos = o.ignore_eos;
    q.chat = s->chat;
    q.in_parts = o.session != NULL;
    q.thinking = s->thinking;
    q.reasoning_marks = is_text_as_it_is(s) ? NULL : budget.marks;
    q.constraint = s->grammar != NULL ? &gen_grammar : NULL;
    q.rules = s->grammar;
    s->engram.mix.recital.n = 0;
    if (s->recited.n > 0 && open_recital(s, e))
        return e->code;
    if (has_tables() || s->recited.n > 0) {
        q.memory = &engram_memory;
        q.memory_of = &s->engram.mix;
    }
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
    if (s->gen == NULL && gen_open(&s->gen, &go, e))
        return e->code;
    return gen_submit(s->gen, &q, &s->request, e);
}

static void show_prompt_status(const struct opened *s, int64_t done)
{
    if (cli_status_asked())
        fprintf(stderr, "%s: prompt: %" PRId64 " of %" PRId64 " tokens\n", cli_name(), done, s->prompt.n);
    cli_progress_count("prompt", done, s->prompt.n, " tokens");
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
        if (strcmp(ev->err.where, "/bias") == 0)
            return err_set(e, ev->err.code, "--logit-bias: forbids every token that the model allows");
        return err_copy(e, &ev->err);
    }
    if (!s->read)
        return ERR_OK;
    if (s->chat && ev->reasoning && ev->stats.tokens > 0 && ev->end != GEN_CANCELLED)
        cli_warn("the answer ended inside the reasoning, after %" PRId64 " tokens: a larger --ctx or --think off helps",
                 ev->stats.tokens);
    if (cli_answer_end(&s->answer, ev, e))
        return e->code;
    if (s->answer.reader != NULL && chat_reader_cut(s->answer.reader) == CHAT_CUT_CALL && ev->end != GEN_CANCELLED)
        cli_warn("the answer ended inside a call of a tool, which is left out");
    return ERR_OK;
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

/* The reader went away, or the disk is full: the answer ends there, and a session still gets what was written of it. */
static enum err_code show_or_lose(struct opened *s, const struct gen_event *ev, struct err *e)
{
    if (s->lost.code == ERR_OK) {
        if (show(s, ev, e) == ERR_OK || e->code != ERR_IO || o.session == NULL)
            return e->code;
        s->lost = *e;
        *e = (struct err){ 0 };
        return ERR_OK;
    }
    if (ev->kind == GEN_TOKEN)
        return text_tokens_push(&s->answer.ids, ev->pick.token, e);
    if (ev->kind == GEN_END && ev->end == GEN_FAILED)
        *e = ev->err;
    return e->code;
}

/* Logits have no mark that tells them from another file, but whole rows. */
static enum err_code open_logits(struct opened *s, struct err *e)
{
    const int64_t row = model_info(s->open.model)->n_vocab * (int64_t)sizeof(float);
    struct stat st;

    if (o.logits == NULL)
        return ERR_OK;
    if (stat(o.logits, &st) == 0 && S_ISREG(st.st_mode) && st.st_size % row != 0)
        return err_set(e, ERR_ARG, "--logits %s: exists, is no file of logits of this model, and stays as it is",
                       o.logits);
    return io_out_open(&s->logits, o.logits, e);
}

enum err_code cli_run_generate(struct opened *s, struct err *e)
{
    struct gen_event ev;

    if (submit(s, e) || open_logits(s, e))
        return e->code;
    s->from_ms = cli_now_ms();
    show_prompt_status(s, run_pos(s->run, 0));
    while (gen_busy(s->gen)) {
        if (cli_interrupted() || s->lost.code != ERR_OK)
            gen_cancel(s->gen, s->request);
        /* Of an answer that goes on later the token at hand is worth its end. */
        may_give_up = !s->read || (o.session == NULL && !o.interactive);
        if (gen_step(s->gen, e))
            return e->code;
        while (gen_next(s->gen, &ev)) {
            if (show_or_lose(s, &ev, e))
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

enum err_code cli_run_open_answer(struct opened *s, struct err *e)
{
    struct answer_opts ao = { .text = s->open.text, .chat = s->chat, .thinking = s->thinking };

    if (s->stops == NULL)
        s->stops = calloc(o.stops.n + 1, sizeof *s->stops);
    if (s->stops == NULL)
        return err_nomem(e);
    for (size_t i = 0; i < o.stops.n; i++)
        s->stops[i] = str_of(o.stops.v[i]);
    ao.form = o.json ? ANSWER_JSON : o.jsonl ? ANSWER_JSONL : ANSWER_PLAIN;
    ao.reasoning = isatty(STDERR_FILENO) ? REASONING_STDERR : REASONING_NONE;
    if (o.reasoning >= 0)
        ao.reasoning = (enum answer_reasoning)o.reasoning;
    ao.parser = s->format == NULL ? NULL : is_text_as_it_is(s) ? "plain" : chat_parser(s->format);
    ao.tools = has_form() && o.parser == NULL ? NULL : s->tools;
    ao.stream = o.stream || isatty(STDOUT_FILENO);
    ao.logprobs = o.sampling.logprobs >= 0;
    return cli_answer_open(&s->answer, &ao, e);
}

/* Writes the session. A turn that was not read to its end is no part of a conversation; of a prompt that comes
 * whole the next time, what was read is worth keeping. */
enum err_code cli_run_keep(struct opened *s, struct err *e)
{
    if (!s->read && o.messages == NULL && o.tokens == NULL)
        return ERR_OK;
    return cli_session_save(&s->kept, s->run, s->chat, &s->answer.ids, s->prompt.n, e);
}

/* Something waits on the standard input, which -p leaves alone. Asked when the answer is there: what a pipe brings may
 * take its time. */
static void tell_unread(char *const *files)
{
    struct pollfd in = { .fd = STDIN_FILENO, .events = POLLIN };
    struct stat st;
    int n = 0;

    if (o.prompt == NULL || *files != NULL || is_stdin(o.messages) || is_stdin(o.tools) || is_stdin(o.template_file) ||
        fstat(STDIN_FILENO, &st) != 0)
        return;
    if (S_ISREG(st.st_mode))
        n = st.st_size > lseek(STDIN_FILENO, 0, SEEK_CUR);
    else if (S_ISFIFO(st.st_mode) && poll(&in, 1, 0) == 1 && ioctl(STDIN_FILENO, FIONREAD, &n) != 0)
        n = 0;
    if (n > 0)
        cli_warn("the standard input is not read with -p: add '-' to append it");
}

/* The model is ready: prompt in, answer out. */
static enum err_code answer(struct opened *s, struct err *e)
{
    cli_run_note_machine(s);
    if (cli_run_open_answer(s, e) || (o.jsonl && cli_run_print_start(s, e)))
        return e->code;
    s->started = o.jsonl;
    cli_catch_interrupts();
    if (o.session != NULL)
        cli_catch_broken_pipe();
    if (cli_verbosity() > 0 && strcmp(model_info(s->open.model)->device, "cpu") == 0)
        model_time(s->open.model, true); /* on a GPU the answer would be slower for it */
    if (cli_run_generate(s, e) || (o.session && cli_run_keep(s, e)) || cli_open_save_uses(&s->open, e))
        return e->code;
    if (s->lost.code != ERR_OK) {
        *e = s->lost;
        return e->code;
    }
    if ((o.json || o.jsonl) && cli_run_print_end(s, e))
        return e->code;
    cli_run_note_times(s);
    return ERR_OK;
}

/* What a session began with stays, whatever defaults say by now. */
static void keep_own(struct opened *s)
{
    if (!s->kept.begun)
        return;
    cli_leave_aside(s->cli, "kv");
    s->open.o.kv = o.model.kv;
    if (s->kept.chat)
        cli_leave_aside(s->cli, "raw");
    if (o.messages != NULL || o.system == NULL || cli_origin(s->cli, "system") == NULL ||
        cli_session_same_system(&s->kept, o.system))
        return;
    if (s->kept.chat)
        cli_warn("%s: goes on with the system message that it began with; --system of %s is for new sessions",
                 o.session, cli_origin(s->cli, "system"));
    cli_leave_aside(s->cli, "system");
}

static enum err_code run(struct opened *s, char *const *files, struct err *e)
{
    if (cli_open(&s->open, &o.model, e))
        return e->code;
    if (o.inspect)
        return cli_inspect(s->open.gguf, o.json, e);
    if (cli_sampling_of_model(&o.sampling, s->open.gguf, s->cli, e))
        return e->code;
    cli_run_check_cuts(s->cli);
    if (o.model.plan)
        return print_plan(s, e);
    if (cli_open_text(&s->open, o.tokens == NULL, e))
        return e->code;
    if (o.session != NULL && cli_session_open(&s->kept, o.session, o.session_ro || o.show, e))
        return e->code;
    if (o.show)
        return cli_run_show(s, e);
    keep_own(s);
    if (o.session != NULL && !comes_whole())
        run_session_ends(s->kept.file);
    if (o.interactive)
        return cli_run_talk(s, files, e);
    if (cli_run_prompt(s, files, e))
        return e->code;
    if (o.tokenize || o.detokenize || o.show_prompt) {
        if (o.show_prompt)
            fwrite(s->rendered.p, 1, s->rendered.n, stdout);
        else if (o.tokenize ? cli_run_tokenize(s, e) : cli_run_detokenize(s, e))
            return e->code;
        tell_unread(files);
        return cli_flush_stdout(e);
    }
    if (o.tokens == NULL && !s->chat && cli_run_encode(s, e))
        return e->code;
    if (cli_run_open(s, e))
        return e->code;
    if (answer(s, e))
        return e->code;
    tell_unread(files);
    return ERR_OK;
}

static void close_all(struct opened *s)
{
    cli_answer_close(&s->answer);
    free(s->stops);
    io_out_abort(s->logits);
    gen_close(s->gen);
    draft_close(s->draft);
    cli_engram_close(&s->engram);
    cli_notes_close(&s->notes);
    cli_notes_close(&s->named);
    text_tokens_free(&s->recital);
    grammar_close(s->grammar);
    grammar_vocab_close(s->vocab);
    json_decref(s->tools);
    cli_session_close(&s->kept);
    run_close(s->run);
    text_tokens_free(&s->prompt);
    cli_buf_free(&s->rendered);
    chat_close(s->format);
    cli_opened_close(&s->open);
}

/* Options of the file beside the model, where it is used to answer. */
static void read_defaults(const struct cli *cli, char *const *files)
{
    if (!o.inspect && !o.check && o.parse.format == NULL && o.render.template_path == NULL)
        cli_model_defaults(cli, o.model.plan && *files != NULL ? *files : o.model.file);
    cli_set_verbosity(o.quiet ? -1 : o.verbose);
}

int main(int argc, char **argv)
{
    static const struct cli cli = { .name = "chimere-run",
                                    .synopsis = "[options] [file ...]",
                                    .about = "Answer a prompt: from -p, files, or stdin, to stdout.",
                                    .opts = opts,
                                    .env = "CHIMERE_OPTS" };
    struct opened s = { .cli = &cli, .finish = GEN_LENGTH };
    char *const *files;
    struct err e = { 0 };
    int first, status = EXIT_OK;

    o.sampling.o = sample_defaults();
    first = cli_parse(&cli, argc, argv);
    cli_set_verbosity(o.quiet ? -1 : o.verbose);
    read_defaults(&cli, argv + first);
    cli_run_leave_aside(&cli);
    cli_set_verbosity(o.quiet ? -1 : o.verbose);
    cli_check_outputs(&cli, argv + first);
    check_usage(&cli, argv + first);
    cli_run_check_effect(&cli);
    files = argv + first;
    check_operands(&cli, files);
    if (o.inspect && *files != NULL && files[1] != NULL)
        return cli_close_stdout(cli_shelf(files, o.json, &status, &e) ? cli_fail(&e) : status);
    if (o.check)
        return cli_close_stdout(cli_check(&o.grammar));
    if (o.render.template_path != NULL)
        return cli_close_stdout(cli_render(&o.render, &e) ? cli_fail(&e) : EXIT_OK);
    if (o.parse.format != NULL) {
        o.parse.tools = o.tools;
        status = cli_parse_answer(&o.parse, &e) ? cli_fail(&e) : EXIT_OK;
        return cli_close_stdout(status);
    }
    if (run(&s, files, &e)) {
        status = cli_signal() == SIGPIPE ? EXIT_FAILED : cli_fail(&e);
        if (s.started && cli_signal() != SIGPIPE && !ferror(stdout) &&
            cli_json_line(
                json_pack("{s:s, s:o, s:i}", "type", "error", "message", json_bytes(str_of(e.msg)), "status", status),
                &e))
            cli_fail(&e);
    }
    close_all(&s);
    free(o.stops.v);
    free(o.engrams.v);
    free(o.model.loras.v);
    cli_sampling_free(&o.sampling);
    status = cli_close_stdout(status);
    cli_reraise();
    return status;
}
