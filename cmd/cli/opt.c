/* SPDX-License-Identifier: Apache-2.0 */
/* opt.c - one table of options: parsing. Long options may be shortened as long as only one begins so; operands may
 * stand between options unless POSIXLY_CORRECT is set.                         room: cmd */
#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/io.h"
#include "base/memory.h"
#include "cli/cli.h"

#define OPTS_MAX     256       /* rows of a table, its end included */
#define DEFAULTS_MAX (1 << 16) /* bytes of a file of them */

enum { BUILTIN_HELP, BUILTIN_VERSION, BUILTIN_HELP_JSON, BUILTIN_COMPLETION };

static const struct cli_opt builtins[] = {
    { OPT_SECTION, 0, NULL, NULL, "About the program", NULL, 0, 0 },
    { OPT_BUILTIN, 'h', "help", NULL, "this list", NULL, BUILTIN_HELP, 0 },
    { OPT_BUILTIN, 0, "help-json", NULL, "this list as one JSON object", NULL, BUILTIN_HELP_JSON, 0 },
    { OPT_BUILTIN, 'V', "version", NULL, "version and what this machine can do", NULL, BUILTIN_VERSION, 0 },
    { OPT_BUILTIN, 0, "completion", "bash|zsh|fish", "print a completion script", NULL, BUILTIN_COMPLETION, 0 },
    { OPT_END, 0, NULL, NULL, NULL, NULL, 0, 0 },
};

const struct cli_opt *cli_opt_at(const struct cli *cli, size_t i)
{
    size_t n = 0;

    while (cli->opts[n].kind != OPT_END)
        n++;
    if (i < n)
        return &cli->opts[i];
    return i - n < sizeof builtins / sizeof *builtins - 1 ? &builtins[i - n] : NULL;
}

bool cli_choice(const char *words, int i, char *buf, size_t buf_bytes)
{
    const char *at = words;

    for (; i > 0 && at != NULL; i--) {
        at = strchr(at, '|');
        if (at != NULL)
            at++;
    }
    if (at == NULL)
        return false;
    snprintf(buf, buf_bytes, "%.*s", (int)strcspn(at, "|"), at);
    return true;
}

/* What is being parsed. */
struct parsing {
    const struct cli *cli;
    const char *from; /* "" or "CHIMERE_OPTS: ", for messages */
    char **argv;
    int argc, at; /* the word at hand */
    bool ahead;   /* only -h and the like count */
};

static const struct cli *parsed;     /* by cli_parse() */
static char defaults_path[4096 + 8]; /* of the file of options */

/* By place in the table. Defaults of a file do not count against an option of the command line. */
static enum given { NOT_GIVEN, AS_DEFAULT, IN_ENVIRONMENT, TYPED } given[OPTS_MAX];
static enum given now = TYPED;    /* what is parsed */
static bool taken_back[OPTS_MAX]; /* a flag, by =off: a file's does not count either */
static char as_typed[OPTS_MAX][32];

/* What options point to before any is taken, by place in the table. */
static union value {
    bool flag;
    const char *text;
    int64_t i64;
    int32_t i32;
    float real;
    int choice;
    struct cli_list list;
} initial[OPTS_MAX];

static size_t value_bytes(const struct cli_opt *o)
{
    switch (o->kind) {
    case OPT_FLAG:
        return sizeof(bool);
    case OPT_STR:
    case OPT_FILE:
    case OPT_OUT:
        return sizeof(const char *);
    case OPT_LIST:
        return sizeof(struct cli_list);
    case OPT_I64:
        return sizeof(int64_t);
    case OPT_I32:
        return sizeof(int32_t);
    case OPT_F32:
        return sizeof(float);
    case OPT_CHOICE:
        return sizeof(int);
    case OPT_BUILTIN:
    case OPT_SECTION:
    case OPT_END:
        break;
    }
    return 0;
}

/* Its place in the table, or that of the end, where nothing is given. */
static size_t place_of(const struct cli *cli, const char *name)
{
    size_t i = 0;

    while (cli->opts[i].kind != OPT_END && (cli->opts[i].kind == OPT_SECTION || strcmp(cli->opts[i].name, name) != 0))
        i++;
    return i;
}

static void note_initial(const struct cli *cli)
{
    for (size_t i = 0; cli->opts[i].kind != OPT_END; i++) {
        assert(i + 1 < OPTS_MAX);
        if (value_bytes(&cli->opts[i]) > 0)
            memcpy(&initial[i], cli->opts[i].to, value_bytes(&cli->opts[i]));
    }
}

static const char *origin(const struct cli *cli, size_t at)
{
    return given[at] == IN_ENVIRONMENT ? cli->env : given[at] == AS_DEFAULT ? defaults_path : NULL;
}

const char *cli_origin(const struct cli *cli, const char *name)
{
    return origin(cli, place_of(cli, name));
}

static bool begins_with_file(const char *message, const char *value)
{
    const size_t n = value != NULL ? strlen(value) : 0;

    return n > 0 && strncmp(message, value, n) == 0 && message[n] == ':';
}

static bool quotes(const char *message, const char *value)
{
    char quoted[64];
    int n = snprintf(quoted, sizeof quoted, "'%s'", value != NULL ? value : "");

    return n > 2 && (size_t)n < sizeof quoted && strstr(message, quoted) != NULL;
}

/* Whether a message is about what the option says: it begins with the name of a file, or quotes a word. */
static bool is_about(const struct cli_opt *o, const char *message)
{
    const struct cli_list *l = o->to;
    bool about = false;

    if (o->kind == OPT_STR)
        return quotes(message, *(const char *const *)o->to);
    if (o->kind == OPT_FILE || o->kind == OPT_OUT)
        return begins_with_file(message, *(const char *const *)o->to);
    for (size_t i = 0; o->kind == OPT_LIST && i < l->n; i++)
        about = about || begins_with_file(message, l->v[i]) || quotes(message, l->v[i]);
    return about;
}

bool cli_mention_origin(const char *message, size_t *at, const char **name, const char **from)
{
    for (size_t i = 0; *at == 0 && now == TYPED && parsed != NULL && parsed->opts[i].kind != OPT_END; i++) {
        if (origin(parsed, i) == NULL || !is_about(&parsed->opts[i], message))
            continue;
        *at = 1;
        *name = parsed->opts[i].name;
        *from = origin(parsed, i);
        return true;
    }
    for (const char *p = message + *at; now == TYPED && parsed != NULL && (p = strstr(p, "--")) != NULL;) {
        const size_t n = strspn(p + 2, "abcdefghijklmnopqrstuvwxyz-");

        for (size_t i = 0; parsed->opts[i].kind != OPT_END; i++) {
            const struct cli_opt *o = &parsed->opts[i];

            if (o->kind == OPT_SECTION || strlen(o->name) != n || strncmp(o->name, p + 2, n) != 0 ||
                origin(parsed, i) == NULL)
                continue;
            *at = (size_t)(p - message) + 2 + n;
            *name = o->name;
            *from = origin(parsed, i);
            return true;
        }
        p += 2 + n;
    }
    return false;
}

void cli_exclude(const struct cli *cli, const char *one, const char *other)
{
    if (cli_given(cli, one) && cli_given(cli, other))
        cli_leave_aside(cli, cli_typed(cli, other) ? one : other);
}

void cli_leave_aside(const struct cli *cli, const char *name)
{
    const size_t i = place_of(cli, name);
    const struct cli_opt *o = &cli->opts[i];

    if (given[i] == NOT_GIVEN || given[i] == TYPED)
        return;
    cli_note("options  --%s of %s is ignored: it has no effect here", name, origin(cli, i));
    if (o->kind == OPT_LIST)
        ((struct cli_list *)o->to)->n = 0; /* what it holds is freed with the program's options */
    else
        memcpy(o->to, &initial[i], value_bytes(o));
    given[i] = NOT_GIVEN;
}

/* A value in a message. */
static const char *shown(const char *arg)
{
    return *arg != '\0' ? arg : "''";
}

static void run_builtin(const struct parsing *p, const struct cli_opt *o, const char *arg)
{
    const struct cli *cli = p->cli;

    switch (o->lo) {
    case BUILTIN_HELP:
        cli_help(cli, arg, p->argv);
        break;
    case BUILTIN_HELP_JSON:
        cli_help_json(cli);
        break;
    case BUILTIN_VERSION:
        cli_version(cli);
        break;
    default:
        if (!cli_completion(cli, arg))
            cli_usage("--%s %s: not one of %s", o->name, shown(arg), o->arg);
    }
    exit(cli_close_stdout(EXIT_OK));
}

/* "8k" is 8192. False: not a number, or with *large one that is too large. */
static bool parse_i64(const char *s, int64_t *out, bool *large)
{
    char *end;
    long long v;
    int shift = 0;

    errno = 0;
    v = strtoll(s, &end, 10);
    *large = errno == ERANGE;
    if (end == s || errno != 0)
        return false;
    if (*end == 'k' || *end == 'K')
        shift = 10;
    else if (*end == 'M')
        shift = 20;
    else if (*end == 'G')
        shift = 30;
    if (shift)
        end++;
    *large = *end == '\0' && (v > INT64_MAX >> shift || v < INT64_MIN >> shift);
    if (*end != '\0' || *large)
        return false;
    *out = (int64_t)v * ((int64_t)1 << shift);
    return true;
}

/* What the help says in brackets of the default and of special values, " (default 4)"; else how to get the default. */
static struct str default_of(const struct cli_opt *o)
{
    const char *bracket = strchr(o->help, '(');

    if (bracket == NULL)
        return STR("; leave it out for the default");
    return (struct str){ bracket - 1, strcspn(bracket, ")") + 2 };
}

/* In what follows, name is the option as it was typed: "-n", "--pred". */
static void set_number(const struct cli_opt *o, const char *name, const char *arg)
{
    const struct str or = default_of(o);
    int64_t v;
    bool large;

    if (!parse_i64(arg, &v, &large))
        cli_usage("%s %s: %s", name, shown(arg), large ? "too large" : "not a number");
    if (v < o->lo && (o->hi == INT64_MAX || o->hi == INT32_MAX))
        cli_usage("%s %s: must be at least %lld%.*s", name, arg, (long long)o->lo, (int) or.n, or.p);
    if (v < o->lo || v > o->hi)
        cli_usage("%s %s: must be from %lld to %lld%.*s", name, arg, (long long)o->lo, (long long)o->hi, (int) or.n,
                  or.p);
    if (o->kind == OPT_I64)
        *(int64_t *)o->to = v;
    else
        *(int32_t *)o->to = (int32_t)v;
}

static void set_float(const struct cli_opt *o, const char *name, const char *arg)
{
    char *end;
    float v = strtof(arg, &end);

    if (end == arg || *end != '\0' || !isfinite(v))
        cli_usage("%s %s: not a number", name, shown(arg));
    *(float *)o->to = v;
}

static int choice_of(const struct cli_opt *o, const char *arg)
{
    char word[32];

    for (int i = 0; cli_choice(o->arg, i, word, sizeof word); i++)
        if (strcmp(word, arg) == 0)
            return i;
    return -1;
}

static void set_choice(const struct cli_opt *o, const char *name, const char *arg)
{
    int i = choice_of(o, arg);

    if (i < 0)
        cli_usage("%s %s: not one of %s", name, shown(arg), o->arg);
    *(int *)o->to = i;
}

static void add_to_list(struct cli_list *l, const char *arg)
{
    if (memory_room(&l->v, &l->cap, l->n + 1, sizeof *l->v, NULL))
        cli_exit_nomem();
    l->v[l->n++] = arg;
}

/* What is for one call cannot be a default: a prompt, what else would leave the standard input unread, an action. */
static void check_default(const char *from, const char *name)
{
    if (now != TYPED)
        cli_usage("%s--%s does not belong in %s: type it where it is meant", from, name,
                  now == AS_DEFAULT ? "a file of defaults" : "a variable of defaults");
}

/* Whether defaults may set the option now. What a file beside a model says must not write files, or name another model.
 */
static bool may_default(const struct parsing *p, const struct cli_opt *o, size_t at)
{
    if (cli_of_one_call(o->name) || o->kind == OPT_BUILTIN ||
        (now == AS_DEFAULT && (o->kind == OPT_OUT || strcmp(o->name, "model") == 0)))
        check_default(p->from, o->name);
    return now != AS_DEFAULT || (given[at] <= AS_DEFAULT && !taken_back[at]);
}

static void apply_option(const struct parsing *p, const struct cli_opt *o, const char *name, const char *arg)
{
    size_t at = 0;

    while (p->cli->opts[at].kind != OPT_END && &p->cli->opts[at] != o)
        at++;
    if ((p->ahead && o->kind != OPT_BUILTIN) || (!p->ahead && !may_default(p, o, at)))
        return;
    given[at] = now;
    if (now == TYPED && o->kind != OPT_BUILTIN)
        snprintf(as_typed[at], sizeof as_typed[at], "%s", name);
    if (arg != NULL)
        cli_foreign_value(p->cli, o, name, arg);
    switch (o->kind) {
    case OPT_FLAG:
        *(bool *)o->to = arg == NULL || strcmp(arg, "on") == 0;
        taken_back[at] = !*(bool *)o->to;
        if (taken_back[at])
            given[at] = NOT_GIVEN;
        break;
    case OPT_FILE:
    case OPT_OUT:
        if (*arg == '\0')
            cli_usage("%s '': the name is empty", name);
        *(const char **)o->to = arg;
        break;
    case OPT_STR:
        *(const char **)o->to = arg;
        break;
    case OPT_LIST:
        add_to_list(o->to, arg);
        break;
    case OPT_I64:
    case OPT_I32:
        set_number(o, name, arg);
        break;
    case OPT_F32:
        set_float(o, name, arg);
        break;
    case OPT_CHOICE:
        set_choice(o, name, arg);
        break;
    case OPT_BUILTIN:
        run_builtin(p, o, arg);
        break;
    case OPT_SECTION:
    case OPT_END:
        break;
    }
}

/* ---- words ---- */

bool cli_given(const struct cli *cli, const char *name)
{
    return given[place_of(cli, name)] != NOT_GIVEN;
}

bool cli_typed(const struct cli *cli, const char *name)
{
    return given[place_of(cli, name)] == TYPED;
}

const char *cli_as_typed(const struct cli *cli, const char *name)
{
    char *const typed = as_typed[place_of(cli, name)];

    if (typed[0] == '\0')
        snprintf(typed, sizeof as_typed[0], "--%s", name);
    return typed;
}

static const struct cli_opt *by_letter(const struct cli *cli, char letter)
{
    const struct cli_opt *o;

    for (size_t i = 0; (o = cli_opt_at(cli, i)) != NULL; i++)
        if (o->letter == letter && letter != 0)
            return o;
    return NULL;
}

/* The option of which this is the name, or the only one that begins so. */
static const struct cli_opt *by_name(const struct parsing *p, const char *word, size_t n)
{
    const struct cli_opt *o, *found = NULL;
    char names[160] = "";
    int n_found = 0;

    for (size_t i = 0; (o = cli_opt_at(p->cli, i)) != NULL; i++) {
        size_t used = strlen(names);

        if (o->kind == OPT_SECTION || strncmp(o->name, word, n) != 0)
            continue;
        if (o->name[n] == '\0')
            return o;
        found = o;
        n_found++;
        snprintf(names + used, sizeof names - used, "%s --%s", n_found > 1 ? "," : "", o->name);
    }
    if (cli_is_foreign(p->cli, word, n)) /* no abbreviation: it has a meaning of its own */
        return NULL;
    if (n_found > 1 && n > 0)
        cli_usage("%s--%.*s: ambiguous:%s", p->from, (int)n, word, names);
    return n_found == 1 && n > 0 ? found : NULL;
}

bool cli_takes_word(const struct cli_opt *o)
{
    return o->arg != NULL && *o->arg != '[';
}

static const char *argument(struct parsing *p, const struct cli_opt *o, const char *name)
{
    const char *next = p->at + 1 < p->argc ? p->argv[p->at + 1] : NULL;

    /* "--think" alone is "--think on" */
    if (o->kind == OPT_CHOICE && strncmp(o->arg, "on|", 3) == 0 && (next == NULL || choice_of(o, next) < 0) &&
        (next == NULL || next[0] == '-' || strchr(next, ' ') != NULL))
        return "on";
    if (next == NULL)
        cli_usage("%s: needs an argument: %s", name, o->arg);
    p->at++;
    return next;
}

/* An option of another program of ours, in options that are for all: it and its argument are left out. */
static bool is_elsewhere(struct parsing *p, const char *word)
{
    const char *next = p->at + 1 < p->argc ? p->argv[p->at + 1] : NULL;
    char name[CLI_NAME_BYTES];
    bool takes;

    if (now == TYPED || !cli_elsewhere(p->cli, word, next, name, &takes))
        return false;
    if (cli_of_one_call(name))
        check_default(p->from, name);
    cli_note("options  %s%s is ignored: it belongs to another program", p->from, word);
    p->at += takes;
    return true;
}

/* "--name", "--name=value". */
static void take_long(struct parsing *p, const char *word)
{
    size_t n = strcspn(word + 2, "=");
    const char *value = word[2 + n] == '=' ? word + 3 + n : NULL;
    const struct cli_opt *o;
    char name[4400 + 64];

    if (is_elsewhere(p, word)) /* before it could be the beginning of a name here */
        return;
    o = by_name(p, word + 2, n);
    if (o == NULL)
        o = cli_foreign(p->cli, p->from, word, n + 2);
    snprintf(name, sizeof name, "%s%.*s", p->from, (int)(n + 2), word);
    if (o->kind == OPT_FLAG && value != NULL && strcmp(value, "on") != 0 && strcmp(value, "off") != 0)
        cli_usage("%s: takes no argument but =off, which takes it back: %s", name, word);
    if (o->kind == OPT_BUILTIN && o->arg == NULL && value != NULL && strcmp(o->name, "help") != 0)
        cli_usage("%s: takes no argument: %s", name, word);
    if (value == NULL && o->arg != NULL)
        value = cli_takes_word(o) ? argument(p, o, name) : "";
    apply_option(p, o, name, value);
}

/* "-r", "-rp TEXT", "-n5". */
static void take_short(struct parsing *p, const char *word)
{
    const struct cli_opt *o;
    char name[4400 + 64];

    if (is_elsewhere(p, word))
        return;
    o = cli_foreign_short(p->cli, p->from, word);
    if (o != NULL) { /* llama.cpp's words of several letters */
        snprintf(name, sizeof name, "%s%s", p->from, word);
        apply_option(p, o, name, o->arg != NULL ? argument(p, o, name) : NULL);
        return;
    }
    for (const char *c = word + 1; *c != '\0'; c++) {
        o = by_letter(p->cli, *c);
        snprintf(name, sizeof name, "%s-%c", p->from, *c);
        if (o == NULL)
            cli_usage("unknown option %s%s%s", name, word[2] != '\0' ? " in " : "", word[2] != '\0' ? word : "");
        if (o->arg != NULL) {
            if (c[1] != '\0' && o->kind != OPT_STR && o->kind != OPT_FILE && o->kind != OPT_OUT &&
                !strchr("+-.0123456789", c[1]))
                cli_usage("%s%s: -%c takes a number ('%s')", p->from, word, *c, c + 1);
            apply_option(p, o, name, c[1] != '\0' ? c + 1 : argument(p, o, name));
            return;
        }
        apply_option(p, o, name, NULL);
    }
}

/* Takes the options among the words and moves operands to the end; returns the first one's place. */
static int take_words(struct parsing *p, int first)
{
    char **operands = calloc((size_t)p->argc + 1, sizeof *operands);
    int n = 0, used = first;
    bool stop = getenv("POSIXLY_CORRECT") != NULL;

    if (operands == NULL)
        cli_exit_nomem();
    for (p->at = first; p->at < p->argc; p->at++) {
        int from = p->at;
        const char *word = p->argv[p->at];

        if (strcmp(word, "--") == 0 || (stop && (word[0] != '-' || word[1] == '\0'))) {
            from += word[0] == '-' && word[1] == '-';
            while (from < p->argc)
                operands[n++] = p->argv[from++];
            break;
        }
        if (word[0] != '-' || word[1] == '\0') {
            operands[n++] = p->argv[p->at];
            continue;
        }
        if (word[1] == '-')
            take_long(p, word);
        else
            take_short(p, word);
        while (from <= p->at)
            p->argv[used++] = p->argv[from++];
    }
    used = p->argc - n;
    memcpy(p->argv + used, operands, (size_t)n * sizeof *operands);
    free(operands);
    return used;
}

/* Options as text: words between blanks; quotes and backslashes keep blanks. The copy stays, options point into it.
 * from: where it is from, for messages. */
static void take_text(const struct cli *cli, const char *text, const char *from)
{
    static char *copies[2]; /* of the environment and of a file: what options point into */
    char *to = malloc(strlen(text) + 1), **words = calloc(strlen(text) / 2 + 2, sizeof *words), quote = 0;
    struct parsing p = { cli, from, words, 0, 0, false };
    bool in_word = false;

    if (to == NULL || words == NULL)
        cli_exit_nomem();
    copies[copies[0] != NULL] = to;
    for (; *text != '\0'; text++) {
        bool blank = quote == 0 && strchr(" \t\r\n", *text) != NULL;

        if (blank && in_word)
            *to++ = '\0';
        if (!blank && !in_word)
            words[p.argc++] = to;
        in_word = !blank;
        if (*text == quote || (quote == 0 && (*text == '"' || *text == '\'')))
            quote = quote ? 0 : *text;
        else if (*text == '\\' && quote != '\'' && text[1] != '\0')
            *to++ = *++text;
        else if (!blank)
            *to++ = *text;
    }
    *to = '\0';
    if (quote != 0)
        cli_usage("%sa quote is not closed", from);
    if (take_words(&p, 0) < p.argc)
        cli_usage("%s%s: only options", from, p.argv[p.argc - 1]);
    free(words);
}

static void take_environment(const struct cli *cli)
{
    const char *env = cli->env ? getenv(cli->env) : NULL;
    char from[64];

    if (env == NULL)
        return;
    snprintf(from, sizeof from, "%s: ", cli->env);
    now = IN_ENVIRONMENT;
    take_text(cli, env, from);
    now = TYPED;
}

/* A small text file as a string; NULL: there is none. Anything else of that name is a mistake, and is not waited for.
 */
static char *read_defaults(const char *path)
{
    char *text = NULL;
    size_t n = 0;
    struct stat st;
    struct err e = { 0 };

    if (stat(path, &st) != 0 && (errno == ENOENT || errno == ENOTDIR || errno == ENAMETOOLONG))
        return NULL;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        (void)err_set(&e, ERR_IO, "%s: is not a regular file", path);
    else if (io_read_text(&text, &n, path, DEFAULTS_MAX, cli_interrupted, &e) == ERR_OK && strlen(text) != n)
        (void)err_set(&e, ERR_FORMAT, "%s: not a text", path);
    if (e.code != ERR_OK)
        exit(cli_fail(&e));
    return text;
}

void cli_model_defaults(const struct cli *cli, const char *model)
{
    char *const path = defaults_path, *text, from[4400];
    struct err e;

    if (cli_model_path(model, path, sizeof defaults_path - 8, &e))
        return; /* said when the model is opened */
    strcat(path, ".opts");
    text = read_defaults(path);
    if (text == NULL)
        return;
    for (char *line = text; *line != '\0'; line += strcspn(line, "\n"), line += *line == '\n')
        if (*line == '#')
            memset(line, ' ', strcspn(line, "\n"));
    snprintf(from, sizeof from, "%s: ", path);
    now = AS_DEFAULT;
    take_text(cli, text, from);
    now = TYPED;
    for (size_t i = 0; cli->opts[i].kind != OPT_END; i++)
        if (given[i] == AS_DEFAULT)
            cli_note("options  --%s is from %s", cli->opts[i].name, path);
    free(text);
}

/* The rules between options, and that they belong to the command. */
static void check_rules(const struct cli *cli, const char *word)
{
    const struct cli_command *c = cli_command_of(cli, word);
    const unsigned bit = c != NULL ? c->bit : 0;
    char how[64];

    if (c == NULL && cli->commands != NULL)
        return; /* which is the mistake */
    snprintf(how, sizeof how, "does not belong to %s", c != NULL ? c->name : cli->name);
    cli_check_exclusions(cli, bit);
    cli_check_of(cli, bit, how);
    cli_check_needs(cli, bit);
}

/* Commands of Ollama and llama.cpp, where files are meant here. */
static const struct {
    const char *word, *use;
} commands[] = {
    { "run", "chimere-run -m FILE -p TEXT" },
    { "chat", "chimere-run -m FILE -i" },
    { "pull", "chimere-run -hf OWNER/REPO, which prints the command that fetches it" },
    { "serve", "chimere-serve-stdio --listen 127.0.0.1:8080" },
    { "list", "chimere-run --inspect DIRECTORY" },
    { "show", "chimere-run --inspect FILE" },
};

/* Words that other programs take as commands. */
static void check_operand(const struct cli *cli, const char *word)
{
    if (word != NULL && (strcmp(word, "help") == 0 || strcmp(word, "version") == 0) && access(word, F_OK) != 0 &&
        cli_command_of(cli, word) == NULL)
        cli_usage("%s: did you mean --%s?", word, word);
    for (size_t i = 0; word != NULL && cli->commands == NULL && i < sizeof commands / sizeof *commands; i++)
        if (strcmp(word, commands[i].word) == 0 && access(word, F_OK) != 0)
            cli_usage("%s: no such file, and no command: use %s", word, commands[i].use);
}

const struct cli_command *cli_command_of(const struct cli *cli, const char *word)
{
    for (const struct cli_command *c = cli->commands; c != NULL && c->name != NULL; c++)
        if (word != NULL && strcmp(c->name, word) == 0)
            return c;
    return NULL;
}

const struct cli_command *cli_need_command(const struct cli *cli, const char *word)
{
    const struct cli_command *c = cli_command_of(cli, word);
    char names[512] = "";
    size_t n = 0;

    for (const struct cli_command *k = cli->commands; c == NULL && k->name != NULL && n < sizeof names; k++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", n > 0 ? ", " : "", k->name);
    if (c == NULL && word == NULL)
        cli_usage("no command: one of %s", names);
    for (size_t i = 0; c == NULL && cli->of != NULL && cli->of[i].option != NULL; i++)
        for (const struct cli_command *k = cli->commands; k->name != NULL; k++)
            if (strcmp(cli->of[i].option, word) == 0 && cli->of[i].commands == k->bit)
                cli_usage("%s: not a command; did you mean %s --%s?", word, k->name, word);
    if (c == NULL)
        cli_usage("%s: not one of %s", word, names);
    return c;
}

/* -h and the like are answered whatever is in the environment. */
static void answer_ahead(const struct cli *cli, int argc, char **argv)
{
    char **copy = calloc((size_t)argc + 1, sizeof *copy);
    struct parsing p = { cli, "", copy, argc, 0, true };

    if (copy == NULL)
        cli_exit_nomem();
    memcpy(copy, argv, (size_t)argc * sizeof *copy);
    take_words(&p, 1);
    free(copy);
}

int cli_parse(const struct cli *cli, int argc, char **argv)
{
    struct parsing p = { cli, "", argv, argc, 0, false };
    int first;

    cli_open_standard();
    cli_set_name(cli->name);
    cli_open_streams();
    parsed = cli;
    note_initial(cli);
    answer_ahead(cli, argc, argv);
    take_environment(cli);
    first = take_words(&p, 1);
    cli_fetch_tell();
    check_operand(cli, argv[first]);
    if (cli->env == NULL) { /* else more options may come, and some may go */
        check_rules(cli, argv[first]);
        cli_check_outputs(cli, argv + first);
    }
    return first;
}
