/* SPDX-License-Identifier: Apache-2.0 */
/* complete.c - completion scripts for shells, from the table of options.   room: cmd */
#include <ctype.h>
#include <string.h>
#include "chat/reader.h"
#include "cli/cli.h"
#include "shape/shape.h"

static const char *parser_at(size_t i)
{
    return chat_reader_name((int)i);
}

/* What options take that are no choice among words: the words that there are, and other values beside. */
static const struct {
    const char *option, *words;  /* between '|' */
    const char *(*at)(size_t i); /* or this; NULL past the last */
} values[] = {
    { "device", "cpu|cuda|auto", NULL },
    { "split", "layers|rows|auto", NULL },
    { "kv", "f32|f16|q8_0|q8_0,q4_0|q4_0", NULL },
    { "tool-choice", "auto|none|required", NULL },
    { "draft", "auto|ngram|mtp|engram|off", NULL },
    { "parser", NULL, parser_at },
    { "parse", NULL, parser_at },
    { "shape", NULL, shape_name_at },
    { "mix", NULL, shape_mix_at },
    { "type",
      "q8_0|q6_k|q5_k_m|q5_k_s|q4_k_m|q4_k_s|iq4_xs|q3_k_l|q3_k_m|q3_k_s|iq3_m|iq3_xs|iq3_xxs|q2_k|iq2_m|iq2_s|"
      "iq2_xs|iq2_xxs|iq1_m|iq1_s|q4_0|q4_1|q5_0|q5_1|iq4_nl|mxfp4_moe|iq3_s|q2_k_s|tq1_0|tq2_0|list",
      NULL },
};

static bool word_at(const struct cli_opt *o, size_t i, char *buf, size_t buf_bytes)
{
    const char *word;

    if (o->arg == NULL || (o->kind != OPT_STR && o->kind != OPT_LIST))
        return (o->kind == OPT_CHOICE || o->kind == OPT_BUILTIN) && cli_choice(o->arg, (int)i, buf, buf_bytes);
    for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
        if (strcmp(values[v].option, o->name) != 0)
            continue;
        if (values[v].at == NULL)
            return cli_choice(values[v].words, (int)i, buf, buf_bytes);
        word = values[v].at(i);
        if (word != NULL)
            snprintf(buf, buf_bytes, "%s", word);
        return word != NULL;
    }
    return false;
}

static bool has_words(const struct cli_opt *o)
{
    char word[64];

    return word_at(o, 0, word, sizeof word);
}

/* Also "file[:x]", and a drafter. */
static bool is_file(const struct cli_opt *o)
{
    return o->kind == OPT_FILE || o->kind == OPT_OUT || (o->kind == OPT_LIST && strncmp(o->arg, "file", 4) == 0) ||
           (o->kind == OPT_LIST && strcmp(o->name, "draft") == 0);
}

static void print_commands(const struct cli *cli)
{
    for (const struct cli_command *c = cli->commands; c->name != NULL; c++)
        printf("%s%s", c == cli->commands ? "" : " ", c->name);
}

/* The program's name as part of a shell function's name. */
static void print_function(const char *name)
{
    for (; *name; name++)
        putchar(isalnum((unsigned char)*name) ? *name : '_');
}

/* For inside single quotes; zsh also needs its own marks kept out of the text. */
static void print_quoted(const char *s, const char *escape)
{
    for (; *s; s++) {
        if (*s == '\'')
            fputs("'\\''", stdout);
        else if (strchr(escape, *s))
            printf("\\%c", *s);
        else
            putchar(*s);
    }
}

static void print_words(const struct cli_opt *o)
{
    char word[64];

    for (size_t i = 0; word_at(o, i, word, sizeof word); i++)
        printf("%s%s", i ? " " : "", word);
}

/* "-m|--model": what a case of bash matches. */
static void print_pattern(const struct cli_opt *o)
{
    if (o->letter)
        printf("-%c|", o->letter);
    printf("--%s", o->name);
}

static void bash(const struct cli *cli)
{
    const struct cli_opt *o;

    printf("# bash completion for %s, made by %s --completion bash\n", cli->name, cli->name);
    fputs("_", stdout);
    print_function(cli->name);
    fputs("()\n{\n    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
          "    [[ $cur == = ]] && cur=\n"
          "    [[ $prev == = ]] && prev=${COMP_WORDS[COMP_CWORD-2]}\n"
          "    COMPREPLY=()\n    case $prev in\n",
          stdout);
    for (size_t i = 0; (o = cli_opt_at(cli, i)) != NULL; i++) {
        if (o->kind == OPT_SECTION || !cli_takes_word(o))
            continue;
        fputs("    ", stdout);
        print_pattern(o);
        if (has_words(o)) {
            printf(") mapfile -t COMPREPLY < <(compgen %s-W '", is_file(o) ? "-f " : "");
            print_words(o);
            fputs("' -- \"$cur\"); return;;\n", stdout);
        } else if (is_file(o)) {
            fputs(") mapfile -t COMPREPLY < <(compgen -f -- \"$cur\"); return;;\n", stdout);
        } else {
            fputs(") return;;\n", stdout);
        }
    }
    fputs("    esac\n    if [[ $cur == -* ]]; then\n"
          "        mapfile -t COMPREPLY < <(compgen -W '",
          stdout);
    for (size_t i = 0; (o = cli_opt_at(cli, i)) != NULL; i++) {
        if (o->kind == OPT_SECTION)
            continue;
        if (o->letter)
            printf("-%c ", o->letter);
        printf("--%s ", o->name);
    }
    fputs("' -- \"$cur\")\n", stdout);
    if (cli->commands != NULL) { /* the first word that is one ends the search */
        fputs("    elif [[ ! \" ${COMP_WORDS[*]:1:COMP_CWORD-1} \" =~ \\ (", stdout);
        for (const struct cli_command *c = cli->commands; c->name != NULL; c++)
            printf("%s%s", c == cli->commands ? "" : "|", c->name);
        fputs(")\\  ]]; then\n        mapfile -t COMPREPLY < <(compgen -W '", stdout);
        print_commands(cli);
        fputs("' -- \"$cur\")\n", stdout);
    }
    fputs("    else\n        mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n"
          "    fi\n}\ncomplete -o filenames -F _",
          stdout);
    print_function(cli->name);
    printf(" %s\n", cli->name);
}

static void zsh(const struct cli *cli)
{
    const struct cli_opt *o;

    printf("#compdef %s\n# zsh completion, made by %s --completion zsh\n_arguments -s -S \\\n", cli->name, cli->name);
    for (size_t i = 0; (o = cli_opt_at(cli, i)) != NULL; i++) {
        if (o->kind == OPT_SECTION)
            continue;
        fputs("  ", stdout);
        if (o->letter && o->kind != OPT_LIST)
            printf("'(-%c --%s)'{-%c%s,--%s%s}'[", o->letter, o->name, o->letter, o->arg ? "+" : "", o->name,
                   o->arg ? "=" : "");
        else
            printf("'%s--%s%s[", o->kind == OPT_LIST ? "*" : "", o->name, cli_takes_word(o) ? "=" : o->arg ? "=-" : "");
        print_quoted(o->help, "[]:\\");
        putchar(']');
        if (o->arg) {
            fputs(cli_takes_word(o) ? ":" : "::", stdout);
            print_quoted(o->arg, "[]:\\");
            putchar(':');
            if (has_words(o) && is_file(o))
                fputs("{_files; compadd ", stdout);
            else if (has_words(o))
                putchar('(');
            else if (is_file(o))
                fputs("_files", stdout);
            print_words(o);
            if (has_words(o))
                putchar(is_file(o) ? '}' : ')');
        }
        fputs("' \\\n", stdout);
    }
    if (cli->commands != NULL) {
        fputs("  '1:command:(", stdout);
        print_commands(cli);
        fputs(")' \\\n", stdout);
    }
    fputs("  '*:file:_files'\n", stdout);
}

static void fish(const struct cli *cli)
{
    const struct cli_opt *o;

    printf("# fish completion for %s, made by %s --completion fish\n", cli->name, cli->name);
    for (const struct cli_command *c = cli->commands; c != NULL && c->name != NULL; c++)
        printf("complete -c %s -n __fish_use_subcommand -a %s -d '%s'\n", cli->name, c->name, c->help);
    for (size_t i = 0; (o = cli_opt_at(cli, i)) != NULL; i++) {
        if (o->kind == OPT_SECTION)
            continue;
        printf("complete -c %s", cli->name);
        if (o->letter)
            printf(" -s %c", o->letter);
        printf(" -l %s", o->name);
        if (cli_takes_word(o))
            fputs(is_file(o) ? " -r -F" : " -x", stdout);
        if (has_words(o)) {
            fputs(" -a '", stdout);
            print_words(o);
            putchar('\'');
        }
        fputs(" -d '", stdout);
        for (const char *s = o->help; *s; s++) {
            if (*s == '\'' || *s == '\\')
                putchar('\\');
            putchar(*s);
        }
        fputs("'\n", stdout);
    }
}

bool cli_completion(const struct cli *cli, const char *shell)
{
    if (strcmp(shell, "bash") == 0)
        bash(cli);
    else if (strcmp(shell, "zsh") == 0)
        zsh(cli);
    else if (strcmp(shell, "fish") == 0)
        fish(cli);
    else
        return false;
    return true;
}
