/* SPDX-License-Identifier: Apache-2.0 */
/* program.h - inside chimere-run: its options, all that is open.             room: cmd */
#ifndef RUN_PROGRAM_H
#define RUN_PROGRAM_H
#include "ask/ask.h"
#include "chat/chat.h"
#include "run/answer.h"
#include "run/check.h"
#include "cli/beside.h"
#include "cli/calibration.h"
#include "cli/cli.h"
#include "cli/log.h"
#include "cli/open.h"
#include "cli/reason.h"
#include "cli/sampling.h"
#include "cli/verifier.h"
#include "run/conversation.h"
#include "cli/guess.h"
#include "gen/gen.h"

struct cli_via;
struct io_out;

struct cli_parse_opts {
    const char *format; /* a name of chat_reader_name(): "qwen3.5" */
    bool reasoning;     /* the prompt has opened the reasoning already */
};
struct cli_render_opts {
    const char *template_path; /* "-" is stdin */
    const char *vars_path;     /* a JSON object: the variables, which the template sees unchanged */
    const char *now;           /* "2026-01-15T09:05:07", what strftime_now sees; NULL: the local time */
};

struct cli_run_options {
    struct cli_model_opts model;
    const char *prompt, *system, *messages, *tools, *tokens, *session, *logits, *parser;
    const char *template_file, *kwargs;
    const char *tool_choice; /* NULL: auto */
    bool raw, plain, tokenize, detokenize, show_prompt, inspect, json, jsonl, ignore_eos;
    bool verbose, quiet, stream, check, engram_drafts, uncertainty;
    bool no_stdin, show, session_ro, drop_oldest, interactive, go_on, one_call;
    int think, reasoning;             /* index of the choice; think 0: on, 1: off, 2: auto; reasoning -1: by terminal */
    const char *calibration;          /* a file; NULL: not given */
    int64_t predict_max, logits_last; /* -1: not given */
    int64_t min_tokens;
    int32_t draft_max;
    struct cli_list stops, stop_tokens, drafts;
    struct cli_beside_opts beside;
    struct cli_reason reason;
    struct cli_sampling sampling;
    struct cli_grammar grammar;
    struct cli_parse_opts parse;
    struct cli_render_opts render;
    struct cli_log_opts log;
    const char *rate, *better; /* an id, and a text; NULL: not given */
    int32_t best_of;           /* 0: not given */
    int vote;                  /* enum reason_vote; -1: by what is asked for */
    const char *dvts;          /* "N" or "NxM"; NULL: not given */
    const char *step_end;      /* NULL: the end of a line */
    struct cli_verifier_opts verifier;
    const char *verify; /* "": without a number; NULL: not given */
    bool strict;
    const char *via;      /* "unix:PATH" or "auto"; NULL: not given */
    const char *classify; /* a file of routes; NULL: not given */
    const char *pipeline, *pipeline_state;
    const char *shape, *mix; /* of --plan */
    float bandwidth;         /* of --plan, GB/s; 0: not given */
};
/* options.c: what the command line, the environment and the file beside the model say; files: the operands. Exits after
 * a mistake. */
struct cli_run_options *cli_run_options(const struct cli **of, int argc, char **argv, char *const **files);

/* What is told of the model and its run. */
struct cli_run_facts {
    const char *arch;
    int64_t ctx_tokens, ctx_train; /* ctx_train 0: not known */
    int32_t n_vocab;
    char kv[32];
    bool kv_fallback;          /* there was no room for better */
    const json_t *fingerprint; /* of a server's model; NULL: ours is open */
};

/* All that is open, in the order of opening. */
struct cli_run {
    const struct cli *cli;
    struct cli_run_options *o; /* a conversation changes some */
    struct cli_opened open;    /* no text: --tokens and a file without a tokenizer */
    struct cli_session kept;   /* --session */
    bool chat;
    struct chat *format;       /* how the model is talked to; NULL: no chat */
    struct text_tokens before; /* what the prompt begins with: the session, or all of --tokens */
    struct cli_buf rendered;   /* the prompt as text */
    /* What the question points to. */
    json_t *messages, *tools, *kwargs;
    char *system;                           /* --system */
    struct reason_calibration *calibration; /* NULL: none */
    struct cli_form form;
    struct str *stops;
    struct text_tokens stop_tokens;
    struct grammar_vocab *vocab;
    struct ask ask;
    struct ask_request *asked;  /* the question, ready for the engine; NULL: there is none yet */
    struct cli_via *via;        /* the server that answers; NULL: we do */
    struct cli_run_facts facts; /* once there is a run, or a server's */
    json_t *thinking;           /* what a server tells of it; NULL: nothing */
    struct draft *draft;
    struct cli_beside beside;
    int taps[DRAFT_TAPS_MAX];
    struct run *run;
    int n_spare; /* sequences of it for trial answers */
    struct gen *gen;
    int64_t request;       /* of it */
    struct io_out *logits; /* --logits */
    struct cli_answer answer;
    struct journal *journal; /* --log; NULL: none */
    uint64_t process;        /* journal_process() */
    int64_t n_logged;
    char logged[64]; /* the id of the last answer; "": none */
    bool started;    /* --jsonl: events have begun */
    bool read;       /* the prompt, to its end */
    struct err lost; /* why the answer could not be written, where the session is kept all the same */
    enum gen_end finish;
    struct gen_stats stats;
    struct gen_mixed mixed[GEN_MIXED_MAX]; /* [n_mixed] by tables */
    int n_mixed;
    double begun_ms;           /* the program, by the clock */
    double start_ms, first_ms; /* from then until the file is open, and until the first token; 0: not yet */
    double from_ms, prompt_ms, decode_ms;
    double from_cpu_ms, decode_cpu_ms; /* the same in processor time of all threads */
    struct cli_verifier *verifier;     /* NULL: none */
    json_t *search, *verified;         /* what is told of several answers, and of --verify; NULL: nothing */
    bool unproven;                     /* --strict: the answer scored too low */
};

/* The prompt, or what it begins with as long as nothing is asked. */
static inline const struct text_tokens *prompt_of(const struct cli_run *s)
{
    return s->asked != NULL ? &s->asked->prompt : &s->before;
}

/* The user's part of a chat: the messages of a file, a system message before them, and what cli_read_prompt() gives as
 * the user's turn behind them, which is left out if there is a file and neither text nor files. */
struct cli_said {
    const char *system, *messages, *prompt; /* NULL: none */
    char *const *files;
};

/* prompt.c: the question of the options becomes s->ask */
MUST_CHECK enum err_code cli_run_question(struct cli_run *s, char *const *files, struct err *e);
MUST_CHECK enum err_code cli_run_say(struct cli_run *s, const struct cli_said *said, struct err *e);
/* What the options say of any question becomes s->ask, without a prompt. */
MUST_CHECK enum err_code cli_run_any_question(struct cli_run *s, struct err *e);
char *const *cli_run_inputs(const struct cli_run *s, char *const *files); /* with what is piped in behind -p */
MUST_CHECK enum err_code cli_run_ask(struct cli_run *s, struct err *e);   /* s->asked, of s->ask */
MUST_CHECK enum err_code cli_run_blame(struct cli_run *s, struct err *e); /* says which option is at fault */
void cli_run_warn_loose(const struct cli_run *s); /* what of its calls is not held to a schema */
MUST_CHECK enum err_code cli_run_ask_tokens(struct cli_run *s, struct err *e); /* the same of s->before alone */
struct ask_model cli_run_model(struct cli_run *s);
/* The template is the model's, or that of --template. */
MUST_CHECK enum err_code cli_run_format(struct cli_run *s, struct err *e);

/* session_show.c: --drop-oldest: the prompt without its oldest turns, if it leaves less than a quarter of the context
 */
MUST_CHECK enum err_code cli_run_drop_oldest(struct cli_run *s, int64_t ctx_tokens, struct err *e);

/* via.c: asks the server of --via. s->via NULL: there is none that answers as we would, which is an error unless any
 * will do; else s->asked and s->facts are set. */
MUST_CHECK enum err_code cli_via_ask(struct cli_run *s, struct err *e);
MUST_CHECK enum err_code cli_via_generate(struct cli_run *s, struct err *e);
void cli_via_close(struct cli_via *v); /* NULL is allowed */

/* run.c: a run of the model, and in it an answer after the other; a session is kept after each */
MUST_CHECK enum err_code cli_run_open(struct cli_run *s, struct err *e);
MUST_CHECK enum err_code cli_run_check_prompt(const struct cli_run *s, struct err *e); /* by s->facts */
MUST_CHECK enum err_code cli_run_open_answer(struct cli_run *s, struct err *e);
MUST_CHECK enum err_code cli_run_open_gen(struct cli_run *s, struct err *e); /* and completes the request */
MUST_CHECK enum err_code cli_run_submit(struct cli_run *s, struct err *e);
MUST_CHECK enum err_code cli_run_generate(struct cli_run *s, struct err *e);
MUST_CHECK enum err_code cli_run_keep(struct cli_run *s, struct err *e);

/* session_list.c: sessions in a table, or as JSON lines; *status: what is wrong with the first that cannot be read */
MUST_CHECK enum err_code cli_session_list(struct cli_run *s, char *const *paths, int *status, struct err *e);
/* The same of NAME.session beside --session, or here; held: the tokens of the session that is open. */
MUST_CHECK enum err_code cli_session_list_here(struct cli_run *s, const struct text_tokens *held, struct err *e);
/* The NAME.session here that was written last. */
MUST_CHECK enum err_code cli_session_last(char *path, size_t path_bytes, struct err *e);

/* talk.c: -i */
MUST_CHECK enum err_code cli_run_talk(struct cli_run *s, char *const *files, struct err *e);

/* plan.c: what a run takes. plain: without a drafter */
int64_t cli_run_choose_ctx(const struct cli_run *s); /* as asked for, else room for this request */
int64_t cli_run_wanted_logits(const struct cli_run *s);
bool cli_run_comes_whole(const struct cli_run *s);
struct run_opts cli_run_sizes(const struct cli_run *s, bool plain, int *n_spare); /* sequences for trial answers */

/* generate.c: what an event brings */
MUST_CHECK enum err_code cli_run_show_event(struct cli_run *s, const struct gen_event *ev, struct err *e);
/* Whether the step at hand is to be given up */
bool cli_run_give_up(void);

/* tools.c: what is asked for instead of an answer, NULL: nothing; *status: the exit status, if it is not EXIT_OK. Each
 * opens what it needs. */
typedef enum err_code run_tool(struct cli_run *s, char *const *files, int *status, struct err *e);
run_tool *cli_run_tool(const struct cli *cli);
run_tool cli_run_plan, cli_run_show, cli_run_tokenize, cli_run_detokenize, cli_run_show_prompt, cli_run_parse,
    cli_run_render, cli_run_rate, cli_run_classify, cli_run_pipeline;

/* effect.c: options of the environment and of files that can have no effect are forgotten; those of the command line
 * are mistakes: exits; and, where the temperature is known, those that need one */
extern const struct cli_of cli_run_of[];
extern const struct cli_pair cli_run_pairs[];
void cli_run_check_options(const struct cli *cli, struct cli_run_options *o, char *const *files);
void cli_run_check_cuts(const struct cli *cli, const struct cli_run_options *o);
bool cli_run_has_form(const struct cli_run_options *o);    /* the answer is held to one by an option */
bool cli_run_call_is_due(const struct cli_run_options *o); /* of a tool */

/* log.c: the answer to the log, if there is one */
MUST_CHECK enum err_code cli_run_log(struct cli_run *s, struct err *e);

/* report.c: the report on an answer */
MUST_CHECK enum err_code cli_run_print_start(const struct cli_run *s, struct err *e); /* the first event of --jsonl */
MUST_CHECK enum err_code cli_run_print_end(const struct cli_run *s, struct err *e);   /* --json, or the last event */
const char *cli_run_finish(const struct cli_run *s);                                  /* as JSON names it */
json_t *cli_run_timings(const struct cli_run *s);
void cli_run_note_machine(const struct cli_run *s);
void cli_run_note_times(const struct cli_run *s);
#endif
