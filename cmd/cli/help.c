/* SPDX-License-Identifier: Apache-2.0 */
/* help.c - -h for all, one topic or one command, --help-json, --version, from the table of options.
 * room: cmd */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "base/simd.h"
#include "cli/cli.h"
#include "model/model.h"

#define HELP_WIDTH 31 /* columns before an option's text */

static void print_option(const struct cli_opt *o)
{
    char left[80], letter[8] = "   ";

    if (o->letter)
        snprintf(letter, sizeof letter, "-%c,", o->letter);
    snprintf(left, sizeof left, "  %s --%s%s%s", letter, o->name, o->arg ? " " : "", o->arg ? o->arg : "");
    if (strlen(left) > HELP_WIDTH - 2)
        printf("%s\n%*s%s\n", left, HELP_WIDTH, "", o->help);
    else
        printf("%-*s%s\n", HELP_WIDTH, left, o->help);
}

/* Whether a title begins with the word, whatever the case. */
static bool is_topic(const char *title, const char *word)
{
    for (; *word != '\0'; title++, word++)
        if (tolower((unsigned char)*title) != tolower((unsigned char)*word))
            return false;
    return true;
}

static bool belongs(const struct cli *cli, const struct cli_opt *o, const struct cli_command *c)
{
    for (const struct cli_of *of = cli->of; c != NULL && of != NULL && of->option != NULL; of++)
        if (strcmp(of->option, o->name) == 0)
            return (of->commands & c->bit) != 0;
    return true;
}

/* The options of a topic (NULL: all) and of a command (NULL: all), with the titles of sections that have any. */
static int print_options(const struct cli *cli, const char *topic, const struct cli_command *c)
{
    const struct cli_opt *o;
    const char *title = NULL;
    bool in = topic == NULL;
    int n = 0;

    for (size_t i = 0; (o = cli_opt_at(cli, i)) != NULL; i++) {
        if (o->kind == OPT_SECTION) {
            title = o->help;
            in = topic == NULL || is_topic(title, topic);
        } else if (in && belongs(cli, o, c)) {
            if (title != NULL)
                printf("\n%s:\n", title);
            title = NULL;
            print_option(o);
            n++;
        }
    }
    return n;
}

static void print_topics(const struct cli *cli)
{
    const struct cli_opt *o;
    int column = printf("\nOne part of this: --help=TOPIC:");
    bool first = true;

    for (size_t i = 0; (o = cli_opt_at(cli, i)) != NULL; i++) {
        if (o->kind != OPT_SECTION)
            continue;
        if (column + (int)strlen(o->help) + 2 > 78)
            column = printf(",\n    ") - 2;
        else
            column += printf("%s ", first ? "" : ",");
        first = false;
        column += printf("%s", o->help);
    }
    putchar('\n');
}

void cli_help(const struct cli *cli, const char *topic, char *const *argv)
{
    const struct cli_command *c = NULL;

    for (argv++; topic == NULL && c == NULL && *argv != NULL; argv++)
        c = cli_command_of(cli, *argv);
    if (c != NULL)
        printf("usage: %s %s\n%s\n", cli->name, c->synopsis, c->help);
    else if (topic == NULL)
        printf("usage: %s %s\n%s\n", cli->name, cli->synopsis, cli->about);
    if (c == NULL && topic == NULL && cli->commands != NULL) {
        printf("\nCommands (%s COMMAND -h tells more):\n", cli->name);
        for (const struct cli_command *k = cli->commands; k->name != NULL; k++)
            printf("  %-*s%s\n", HELP_WIDTH - 2, k->name, k->help);
    }
    if (print_options(cli, topic, c) == 0)
        cli_usage("--help=%s: no such topic", topic);
    if (topic == NULL && c == NULL)
        print_topics(cli);
    printf("\nNumbers take k, M and G (powers of 1024). The manual is %s(1).\n", cli->name);
}

static json_t *json_names(const char *list)
{
    json_t *names = json_array();
    char name[CLI_NAME_BYTES];

    while (names != NULL && cli_pair_name(&list, name) != NULL)
        json_push(&names, json_string(name));
    return names;
}

static json_t *json_commands(const struct cli *cli, unsigned bits)
{
    json_t *names = json_array();

    for (const struct cli_command *c = cli->commands; names != NULL && c != NULL && c->name != NULL; c++)
        if (c->bit & bits)
            json_push(&names, json_string(c->name));
    return names;
}

static json_t *json_rules(const struct cli *cli)
{
    static const char *const names[] = {
        [CLI_NEEDS] = "needs", [CLI_EXCLUDES] = "excludes", [CLI_ALONE] = "excludes_all_but"
    };
    json_t *all = json_array();

    for (const struct cli_pair *p = cli->pairs; all != NULL && p != NULL && p->name != NULL; p++)
        json_push(&all, json_pack("{s:o, s:s, s:o, s:o}", "options", json_names(p->name), "rule", names[p->rule],
                                  "others", json_names(p->others != NULL ? p->others : p->name), "commands",
                                  json_commands(cli, p->commands)));
    return all;
}

static json_t *json_options(const struct cli *cli)
{
    json_t *all = json_array();
    const char *section = "";
    const struct cli_opt *o;

    for (size_t i = 0; all != NULL && (o = cli_opt_at(cli, i)) != NULL; i++) {
        char letter[2] = { o->letter, '\0' };

        if (o->kind == OPT_SECTION) {
            section = o->help;
        } else {
            json_push(&all, json_pack("{s:s, s:s?, s:s, s:s?, s:s, s:b}", "section", section, "letter",
                                      o->letter ? letter : NULL, "name", o->name, "arg", o->arg, "help", o->help,
                                      "repeatable", o->kind == OPT_LIST));
        }
    }
    return all;
}

void cli_help_json(const struct cli *cli)
{
    json_t *top = json_pack("{s:s, s:s, s:s, s:o, s:o}", "type", "help", "program", cli->name, "synopsis",
                            cli->synopsis, "options", json_options(cli), "rules", json_rules(cli));
    struct err e = { 0 };

    if (top == NULL)
        (void)err_nomem(&e);
    if (top == NULL || cli_json_line(top, &e))
        exit(cli_fail(&e));
}

/* Libraries that a build does without. */
static const char *const libraries[] = {
#ifdef CHIMERE_HTTP
    "libmicrohttpd",
#endif
#ifdef CHIMERE_EDIT
    "libedit",
#endif
#ifdef CHIMERE_BLAS
    "OpenBLAS",
#endif
    NULL,
};

void cli_version(const struct cli *cli)
{
    char names[128], gpu[400];
    struct err e = { 0 };
    int n = 0;

    printf("%s %s\ndevices: cpu", cli->name, CHIMERE_VERSION);
    for (; model_gpu(n, gpu, sizeof gpu, &e) == ERR_OK; n++)
        printf(", cuda:%d (%s)", n, gpu);
    if (n == 0)
        printf("; %s", e.msg);
    printf("\nprocessor: %s\nlibraries: jansson %s", simd_names(simd_features(), names, sizeof names), JANSSON_VERSION);
    for (int i = 0; libraries[i] != NULL; i++)
        printf(", %s", libraries[i]);
    putchar('\n');
}
