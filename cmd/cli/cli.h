/* SPDX-License-Identifier: Apache-2.0 */
/* cli.h - what all programs do alike: options, messages, signals, progress, JSON.  room: cmd
 *
 * Exit statuses: 0 done; 1 failed (I/O, memory, device, a limit); 2 usage; 3 bad input data or an
 * unsupported model; 4 the program ran and the answer is no. A program that ends because of a
 * signal ends by that signal. Only these files print, exit, read the environment or hold globals.
 */
#ifndef CLI_CLI_H
#define CLI_CLI_H
#include <stdio.h>
#include "base/base.h"
#include "base/json.h"

struct chat;
struct gguf;
struct text;
struct text_tokens;
struct cli_notes;

enum { EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_DATA, EXIT_NO };

/* Options: one table makes the parser, -h, the shell completions and --help-json. */
enum cli_opt_kind {
    OPT_END,
    OPT_SECTION, /* help: a heading; nothing else is set */
    OPT_FLAG,    /* bool *: becomes true */
    OPT_STR,     /* const char ** */
    OPT_FILE,    /* const char **: completed with file names */
    OPT_OUT,     /* const char **: the same, of a file that is written */
    OPT_LIST,    /* struct cli_list *: may be given again */
    OPT_I64,     /* int64_t *, within [lo, hi]; k, M, G are powers of 1024 */
    OPT_I32,     /* int32_t *, the same */
    OPT_F32,     /* float *, finite */
    OPT_CHOICE,  /* int *: index of the word in arg, which is "one|two|three" */
    OPT_BUILTIN, /* opt.c's own */
};

struct cli_opt {
    enum cli_opt_kind kind;
    char letter;      /* 0: none */
    const char *name; /* long name, without the dashes */
    const char *arg;  /* what help and manual call the argument; NULL: takes none; "[x]": of OPT_STR, only after = */
    const char *help; /* one line, lower case, no full stop */
    void *to;
    int64_t lo, hi; /* OPT_I64, OPT_I32; lo of OPT_OUT 1: "-" is standard output */
};

struct cli_list {
    const char **v; /* into argv */
    size_t n, cap;
};

/* The values as strings: malloc'ed. */
MUST_CHECK enum err_code cli_list_strings(struct str **out, const struct cli_list *l, struct err *e);

/* A word that says what the program does; options may belong to some of them only. */
struct cli_command {
    const char *name, *synopsis, *help; /* help: one sentence */
    unsigned bit;
};
struct cli_of {
    const char *option;
    unsigned commands; /* bits of those that it belongs to; an option without a row belongs to all */
};
/* A rule between options, by their long names; "a|b" is several. */
struct cli_pair {
    const char *name; /* each of them; "" with CLI_NEEDS: the command itself */
    enum cli_rule {
        CLI_NEEDS,    /* at least one of the others */
        CLI_EXCLUDES, /* each of the others; NULL: each other */
        CLI_ALONE,    /* every option but the others */
    } rule;
    const char *others;
    const char *why;   /* for the message, after a colon; NULL: it needs no reason */
    unsigned commands; /* bits of those that it is for; 0: all */
};

struct cli {
    const char *name;                   /* "chimere-run" */
    const char *synopsis;               /* "[options] [file ...]" */
    const char *about;                  /* one sentence */
    const struct cli_opt *opts;         /* ended by OPT_END */
    const struct cli_command *commands; /* NULL: none; ended by a NULL name */
    const struct cli_of *of;            /* the same */
    const struct cli_pair *pairs;       /* the same */
    const char *env; /* NULL: none; a variable with options that come before those of the command line */
};

/* Sets what the options point to and returns the index of the first operand in argv, which is
 * reordered so that operands come last. A program that reads a variable calls these checks and cli_check_outputs() when
 * all its options are known; for others that is done here. Exits after -h, --version, --help-json and --completion, and
 * with EXIT_USAGE after a mistake. */
int cli_parse(const struct cli *cli, int argc, char **argv);
/* Options of the file MODEL.opts beside the model, if it exists, where the command line and the environment give none:
 * words as in the environment, and lines that begin with # are comments. model: as cli_model_path() takes it. Told with
 * -v. Mistakes exit with EXIT_USAGE. */
void cli_model_defaults(const struct cli *cli, const char *model);
/* An option of the environment or such a file has no effect here: it is as if it had not been given. */
void cli_leave_aside(const struct cli *cli, const char *name);
/* Two options exclude each other: where both are given, one that was typed stays, else the first. */
void cli_exclude(const struct cli *cli, const char *one, const char *other);
bool cli_given(const struct cli *cli, const char *name); /* whether an option was given, by its long name */
bool cli_typed(const struct cli *cli,
               const char *name); /* on the command line itself, not in the environment or a file */
/* For messages: where an option comes from that was not typed, the variable's name or the path of the file beside the
 * model; NULL: it was typed, or not given. */
const char *cli_origin(const struct cli *cli, const char *name);
/* The next option in the message, from byte *at on, that was not typed: one that it names, whose file it begins with,
 * or whose word it quotes. false: none. */
bool cli_mention_origin(const char *message, size_t *at, const char **name, const char **from);
/* For messages: how it was typed last, "-n" or "--pred"; "--NAME" if it was not. */
const char *cli_as_typed(const struct cli *cli, const char *name);
const struct cli_command *cli_command_of(const struct cli *cli, const char *word); /* NULL: no command */
/* The same for the first operand, NULL if there is none: exits with EXIT_USAGE where it is no command. */
const struct cli_command *cli_need_command(const struct cli *cli, const char *word);

/* pairs.c: an option that was typed and breaks a rule, or belongs to other commands: exits with EXIT_USAGE. One of the
 * environment or a file is ignored. In this order: what is ignored is no reason to need anything. command: its bit;
 * how: what the message says after the option. */
void cli_check_exclusions(const struct cli *cli, unsigned command);
void cli_check_of(const struct cli *cli, unsigned command, const char *how);
void cli_check_needs(const struct cli *cli, unsigned command);
enum { CLI_NAME_BYTES = 32 };
/* The next option of "a|b" to name; NULL past the last. */
const char *cli_pair_name(const char **list, char name[CLI_NAME_BYTES]);
bool cli_is_listed(const char *list, const char *option);

/* help.c: print. topic: the beginning of a section's title, or NULL; a command among the words makes the help its own.
 */
void cli_help(const struct cli *cli, const char *topic, char *const *argv);
void cli_help_json(const struct cli *cli);
void cli_version(const struct cli *cli);

/* foreign.c: names of llama.cpp's programs. For an unknown "--name" the option that it is an alias of; else exits, and
 * says what to use here, or which name is near. n: bytes of the word that count. */
const struct cli_opt *cli_foreign(const struct cli *cli, const char *from, const char *word, size_t n);
bool cli_is_foreign(const struct cli *cli, const char *name, size_t n); /* "name" is one that it has an answer for */
void cli_note_no_ops(void); /* with -v: which of them were given that change nothing here, each once */
/* The same for "-ngl" and its like; NULL for a word that is not one of them. */
const struct cli_opt *cli_foreign_short(const struct cli *cli, const char *from, const char *word);
/* Whether a word is an option of another program that reads the same variable, its name, and whether the next word (or
 * NULL) is its argument. */
bool cli_elsewhere(const struct cli *cli, const char *word, const char *next, char name[CLI_NAME_BYTES], bool *takes);
bool cli_of_one_call(const char *name); /* an option that says what one call does: no default */
/* fetch.c: the option that stands for llama.cpp's -hf and its like, by the word with one dash or the long name without;
 * NULL: it is none of them. And when all options are known: prints the command that fetches what they name, and exits.
 */
const struct cli_opt *cli_fetch_option(const char *name, size_t n);
void cli_fetch_tell(void);
/* Values that show that another program's option was meant: exits. */
void cli_foreign_value(const struct cli *cli, const struct cli_opt *o, const char *name, const char *arg);

/* opt.c to complete.c: every option in order, the built-in ones last. */
const struct cli_opt *cli_opt_at(const struct cli *cli, size_t i); /* NULL past the end */
bool cli_takes_word(const struct cli_opt *o);                      /* the next word is its argument */
/* Word i of "one|two|three" to buf; false past the last. */
bool cli_choice(const char *words, int i, char *buf, size_t buf_bytes);
/* Prints the completion script for "bash", "zsh" or "fish"; false for another shell. */
bool cli_completion(const struct cli *cli, const char *shell);

/* files.c: at the start, opens descriptors 0 to 2 where they are closed. */
void cli_open_standard(void);
/* streams.c: from now on stdout and stderr wait for their readers, also where the descriptor is non-blocking; after a
 * signal that set the mark a write fails with EINTR once nothing was read for a fifth of a second. stderr is written by
 * lines. */
void cli_open_streams(void);
int cli_stdout_errno(void); /* of the first write to stdout that failed */
FILE *cli_terminal(int fd); /* the streams of 1 and 2 that were there before, for a library that wants descriptors */
#define CLI_SCALE_MAX 1e6F  /* of an adapter, as in requests */
/* files.c: "FILE:NUMBER": the file's name to buf, the number, from least to most, to x. What follows the last colon is
 * a part of the name where it has other letters than a number; then x is as it was. */
enum err_code cli_file_number(const char *arg, char *buf, size_t buf_bytes, float least, float most, float *x,
                              struct err *e);
/* Exits with EXIT_USAGE when an OPT_OUT is also another file of the command line, the default model, or a standard
 * descriptor. */
void cli_check_outputs(const struct cli *cli, char *const *operands);
/* Exits with EXIT_USAGE when path, which an option names, is out.1, out.2 ..., out.train or out.lock: versions of out
 * and what lies beside it. path NULL is allowed. */
void cli_check_beside(const char *option, const char *path, const char *out);
/* An output replaces a file of its own kind, which begins with these bytes, an empty one, or none (path NULL: it is not
 * asked for). Exits with EXIT_USAGE where another file has its name. */
void cli_check_kind(const char *option, const char *path, struct str magic, const char *what);

/* Puts "?" in place of control characters and of bytes that are not UTF-8: for what is shown on a terminal. */
void cli_clean(char *s);
/* The first words of a text, in one line without control characters: of at most n - 1 bytes, with "..." if there are
 * more. */
void cli_first_words(char *buf, size_t n, const char *text);
int cli_columns(const char *s); /* characters of UTF-8 */
int cli_width(int fd);          /* columns of the terminal; 80 if it does not say */
/* Messages: "PROGRAM: text" and a newline on stderr. */
void cli_set_name(const char *name);
const char *cli_name(void);
void cli_set_verbosity(int v); /* -1: errors only, 0, 1: notes too */
int cli_verbosity(void);
void cli_warn(const char *fmt, ...) PRINTF_LIKE(1, 2); /* not with -q */
void cli_note(const char *fmt, ...) PRINTF_LIKE(1, 2); /* with -v; the text alone */
/* What a command did, in one line: the same where stderr is a terminal, without -v. */
void cli_summary(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* Prints the message and returns the exit status that belongs to the code. */
int cli_fail(const struct err *e);
int cli_status_of(enum err_code code); /* of one of several files: it is not what it should be, or cannot be read */
_Noreturn void cli_exit_nomem(void);   /* an allocation failed before there is anything to close */
/* Of an error about what a file says: one that is beyond our limits is of a kind that is not
 * supported, as ERR_UNSUPPORTED. Returns the code. */
enum err_code cli_as_data(struct err *e);
/* The message and where help is; exits with EXIT_USAGE. */
_Noreturn void cli_usage(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* Closes stdout: a write that failed makes a status of EXIT_OK into EXIT_FAILED. */
int cli_close_stdout(int status);
/* ERR_IO when a write to stdout failed, now or earlier; flushes first. */
MUST_CHECK enum err_code cli_flush_stdout(struct err *e);

/* Signals. */
/* From now on: SIGBUS names the mapped file that changed, or this one where that is not known, and exits with
 * EXIT_DATA; SIGUSR1 asks for a line of status. */
void cli_signals(const char *file);
/* From now on the first SIGINT, SIGTERM or SIGHUP only sets a mark; the next one, of whichever kind, kills. */
void cli_catch_interrupts(void);
/* From now on SIGHUP is no interrupt, whatever is called later: it sets a mark of its own. */
void cli_catch_hangups(void);
bool cli_hung_up(void); /* true once for each SIGHUP */
/* From now on cli_resized() is true once after each change of the terminal's size. */
void cli_catch_resizes(void);
bool cli_resized(void);
/* From now on a reader that goes away sets the mark, too, and the write fails. */
void cli_catch_broken_pipe(void);
/* The same signals as cli_catch_interrupts(), while somebody types: reading the terminal fails with EINTR. */
void cli_await_signals(void);
int cli_signal(void); /* the one that set the mark; 0: none did */
void cli_forget_signal(void);
bool cli_interrupted(void);
extern const struct progress cli_until_signal; /* goes on until a signal has come */
/* Ends by the signal that came, if one did; else returns. */
void cli_reraise(void);
bool cli_status_asked(void); /* true once for each SIGUSR1 */

/* Progress: one line on a foreground terminal, of its width, at most ten times a second; the first after a third of a
 * second, whether another call comes or not. */
void cli_progress(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* "WHAT: DONE of TOTAL UNIT", with the rate and the time left; unit begins with a space, or is empty. */
void cli_progress_count(const char *what, int64_t done, int64_t total, const char *unit);
/* A duration, "1:02" or "1:02:03", in buf, which is returned: every line of progress says times so. */
const char *cli_clock(double seconds, char buf[32]);
void cli_progress_end(void);  /* takes the line away */
bool cli_dumb_terminal(void); /* TERM names none that knows escape sequences */
bool cli_stderr_color(void);  /* a terminal that knows them, and NO_COLOR is not set */

/* JSON on stdout: one object to a line, numbers with 9 digits, flushed. Takes the reference. */
MUST_CHECK enum err_code cli_json_line(json_t *o, struct err *e);
/* A whole file as one value; "-" is stdin. */
MUST_CHECK enum err_code cli_json_file(json_t **out, const char *path, struct err *e);
/* The same by another function of these arguments, which may set *out beside an error. */
typedef enum err_code cli_parse_json(json_t **out, struct str text, const char *what, struct err *e);
MUST_CHECK enum err_code cli_json_file_by(json_t **out, const char *path, cli_parse_json *parse, struct err *e);
/* o[key] = v, taking the reference; false when memory is out (v may be NULL then). */
bool cli_json_set(json_t *o, const char *key, json_t *v);
json_t *cli_json_hash(uint64_t h); /* as 16 hexadecimal digits */
json_t *cli_json_real(double v);   /* null when not finite */

/* Checks in pieces that input is text: ERR_FORMAT for a NUL, and if more than 4 bytes and more than one in 256 are not
 * UTF-8; fewer give a warning at the end. Starts as {.name}. */
struct cli_plain {
    const char *name;
    uint64_t bytes, odd;  /* odd: those that are no UTF-8 */
    int need;             /* bytes that a character still wants */
    unsigned char lo, hi; /* of the next one */
};
MUST_CHECK enum err_code cli_plain_add(struct cli_plain *x, struct str s, struct err *e);
MUST_CHECK enum err_code cli_plain_end(struct cli_plain *x, struct err *e);

/* Which model: given, or $CHIMERE_MODEL, or the one that came with the program. A name without a slash that is no file
 * here is looked for in the directories of $CHIMERE_MODELS, as it is and with .gguf after it. Copies the path to buf.
 * ERR_ARG names the places that were tried. */
MUST_CHECK enum err_code cli_model_path(const char *given, char *buf, size_t buf_bytes, struct err *e);

/* The recipe that came with the program under this name, in any case of letters. False: there is none; buf is then the
 * last place looked at, or empty. */
bool cli_recipe_path(const char *name, char *buf, size_t buf_bytes);

/* user_cache.c: opens $XDG_CACHE_HOME/chimere, else ~/.cache/chimere, whose files nobody else can exchange, and copies
 * its path to dir. make: it is made where there is none. -1: there is none, and e->code is ERR_OK, or it cannot be. */
int cli_user_cache(char *dir, size_t dir_bytes, bool make, struct err *e);
/* A file there to buf: its length; 0: there is none, or it is not a plain one of this user's, or larger. */
size_t cli_cache_read(int dir, const char *name, char *buf, size_t max_bytes);
/* A file appears complete or not at all; of two writers the later one wins. It is not flushed to the disk. */
bool cli_cache_write(int dir, const char *name, const char *text);

/* The directory of the task sets that came with the program; false if there is none. */
bool cli_eval_path(char *buf, size_t buf_bytes);

/* Bytes that grow. {0} is empty. */
struct cli_buf {
    char *p; /* NUL-terminated once something was added */
    size_t n, cap;
};
MUST_CHECK enum err_code cli_buf_add(struct cli_buf *b, struct str s, struct err *e);
void cli_buf_free(struct cli_buf *b);

/* "512M", "15.5G": powers of 1024. ERR_ARG names the option. */
MUST_CHECK enum err_code cli_size(int64_t *out, const char *s, const char *option, struct err *e);

/* "-" is the standard input; and how messages name it. */
bool cli_is_stdin(const char *path); /* NULL is not */
const char *cli_file_name(const char *path);

/* Warns if a file lies on a network file system, or on one of another system, and reading its first 64 MiB is slow. */
void cli_tell_slow(const char *path);

/* Warns if the text is in another encoding: it makes a poor prompt, and nobody would know why. */
void cli_tell_encoding(const char *what, struct str s);

/* Where the prompt comes from: -p TEXT, then the files named ("-" is stdin), or stdin when there
 * is neither. */
MUST_CHECK enum err_code cli_read_prompt(struct cli_buf *out, const char *text, char *const *files, struct err *e);
/* The text of an option, or, of "@FILE", that of a file without line feeds at its end. malloc'ed; NULL
 * if arg is NULL. */
MUST_CHECK enum err_code cli_text_of(char **out, const char *arg, struct err *e);
/* messages.c: adds the messages of a file ("-" is stdin) to an array: a JSON array of them, or an object with one. Its
 * tools to *tools, the caller's, NULL where it has none; tools NULL: they are not used. Members that are not used give
 * a warning. */
MUST_CHECK enum err_code cli_read_messages(json_t *all, json_t **tools, const char *path, struct err *e);
/* The text of --template; an empty one is ERR_FORMAT, since it would stand for the model's. */
MUST_CHECK enum err_code cli_read_template(struct cli_buf *out, const char *path, struct err *e);
/* A JSON array of token ids. */
MUST_CHECK enum err_code cli_read_ids(struct text_tokens *out, struct str json, const char *what, struct err *e);
#endif
