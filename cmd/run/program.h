/* SPDX-License-Identifier: Apache-2.0 */
/* program.h - inside chimere-run: its options, all that is open.             room: cmd */
#ifndef RUN_PROGRAM_H
#define RUN_PROGRAM_H
#include "chat/chat.h"
#include "run/answer.h"
#include "run/check.h"
#include "cli/cli.h"
#include "cli/engram.h"
#include "cli/open.h"
#include "run/parse.h"
#include "cli/recall.h"
#include "run/render.h"
#include "cli/sampling.h"
#include "run/conversation.h"
#include "cli/guess.h"
#include "gen/gen.h"
#include "grammar/grammar.h"

struct io_out;

struct run_options {
    struct cli_model_opts model;
    const char *prompt, *system, *messages, *tools, *tokens, *session, *logits, *parser;
    const char *template_file, *kwargs, *examples, *recite, *context_table;
    const char *tool_choice; /* NULL: auto */
    bool raw, plain, tokenize, detokenize, show_prompt, inspect, json, jsonl, ignore_eos;
    bool verbose, quiet, stream, check, engram_thinking, engram_drafts;
    bool show, session_ro, drop_oldest, interactive;
    int think, reasoning;                     /* index of the choice; think 0: on; reasoning -1: by terminal */
    int64_t predict_max, logits_last, budget; /* -1: not given */
    int32_t draft_max;
    struct cli_list stops, drafts, engrams;
    struct cli_sampling sampling;
    struct cli_grammar grammar;
    struct cli_parse_opts parse;
    struct cli_render_opts render;
};
extern struct run_options o;

/* All that is open, in the order of opening. */
struct opened {
    const struct cli *cli;
    struct cli_opened open;  /* no text: --tokens and a file without a tokenizer */
    struct cli_session kept; /* --session */
    bool chat, thinking;
    struct chat *format;     /* how the model is talked to; NULL: no chat */
    json_t *tools;           /* that the model is offered; NULL: none */
    struct cli_buf rendered; /* the prompt as text */
    struct text_tokens prompt;
    struct grammar_vocab *vocab;
    struct grammar *grammar;
    struct draft *draft;
    struct cli_engram engram;
    struct cli_notes notes;     /* --examples */
    struct cli_notes named;     /* --recite */
    struct str recited;         /* what a text of it says of what the prompt names; n 0: none does */
    struct text_tokens recital; /* its tokens */
    int taps[DRAFT_TAPS_MAX];
    struct run *run;
    struct gen *gen;
    int64_t request; /* of it */
    struct str *stops;
    struct io_out *logits; /* --logits */
    struct answer answer;
    bool started;    /* --jsonl: events have begun */
    bool read;       /* the prompt, to its end */
    struct err lost; /* why the answer could not be written, where the session is kept all the same */
    enum gen_end finish;
    struct gen_stats stats;
    double from_ms, prompt_ms, decode_ms;
};

/* prompt.c: what the model will see */
MUST_CHECK enum err_code cli_run_prompt(struct opened *s, char *const *files, struct err *e);
MUST_CHECK enum err_code cli_run_encode(struct opened *s, struct err *e);
MUST_CHECK enum err_code cli_run_tokenize(struct opened *s, struct err *e);
MUST_CHECK enum err_code cli_run_detokenize(struct opened *s, struct err *e);

/* The template is the model's, or that of --template. */
MUST_CHECK enum err_code cli_run_format(struct opened *s, struct err *e);
MUST_CHECK enum err_code cli_run_notes(struct opened *s,
                                       struct err *e); /* opens what --examples and --recite name, once */

/* kept.c: what a session holds */
MUST_CHECK enum err_code cli_run_show(struct opened *s, struct err *e); /* --show */
/* --drop-oldest: the prompt without its oldest turns, where it leaves less than a quarter of the context. */
MUST_CHECK enum err_code cli_run_drop_oldest(struct opened *s, int64_t ctx_tokens, struct err *e);

/* run.c: a run of the model, and in it an answer after the other; a session is kept after each */
MUST_CHECK enum err_code cli_run_open(struct opened *s, struct err *e);
MUST_CHECK enum err_code cli_run_open_answer(struct opened *s, struct err *e);
MUST_CHECK enum err_code cli_run_generate(struct opened *s, struct err *e);
MUST_CHECK enum err_code cli_run_keep(struct opened *s, struct err *e);

/* talk.c: -i */
MUST_CHECK enum err_code cli_run_talk(struct opened *s, char *const *files, struct err *e);

/* effect.c: options of the environment and of files that can have no effect are forgotten; those of the command line are
 * mistakes: exits; and, where the temperature is known, those that need one */
void cli_run_leave_aside(const struct cli *cli);
void cli_run_check_effect(const struct cli *cli);
void cli_run_check_cuts(const struct cli *cli);

/* report.c: the report on an answer */
MUST_CHECK enum err_code cli_run_print_start(const struct opened *s, struct err *e); /* the first event of --jsonl */
MUST_CHECK enum err_code cli_run_print_end(const struct opened *s, struct err *e);   /* --json, or the last event */
void cli_run_note_machine(const struct opened *s);
void cli_run_note_times(const struct opened *s);
#endif
