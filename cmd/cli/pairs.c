/* SPDX-License-Identifier: Apache-2.0 */
/* pairs.c - what options need and exclude, from a program's table of rules. To break a rule is a mistake if the
 * option was typed; one of the environment or of a file is there for all kinds of calls, and is ignored. room: cmd */
#include <string.h>
#include "cli/cli.h"

enum { NAMES_BYTES = 512 };

const char *cli_pair_name(const char **list, char name[CLI_NAME_BYTES])
{
    const size_t n = *list != NULL ? strcspn(*list, "|") : 0;

    if (n == 0)
        return NULL;
    snprintf(name, CLI_NAME_BYTES, "%.*s", (int)n, *list);
    *list += n + ((*list)[n] == '|');
    return name;
}

bool cli_is_listed(const char *list, const char *option)
{
    char name[CLI_NAME_BYTES];

    while (cli_pair_name(&list, name) != NULL)
        if (strcmp(name, option) == 0)
            return true;
    return false;
}

/* "--json, --jsonl or --plot". */
static void write_names(const char *list, char buf[NAMES_BYTES])
{
    char name[CLI_NAME_BYTES];
    size_t n = 0;

    for (bool first = true; cli_pair_name(&list, name) != NULL && n + sizeof name < NAMES_BYTES; first = false)
        n += (size_t)snprintf(buf + n, NAMES_BYTES - n, "%s--%s", first ? "" : *list != '\0' ? ", " : " or ", name);
}

static bool is_one_given(const struct cli *cli, const char *list)
{
    char name[CLI_NAME_BYTES];

    while (cli_pair_name(&list, name) != NULL)
        if (cli_given(cli, name))
            return true;
    return false;
}

static void check_need(const struct cli *cli, const struct cli_pair *p, const struct cli_command *c)
{
    const char *list = p->name, *colon = p->why != NULL ? ": " : "", *why = p->why != NULL ? p->why : "";
    char name[CLI_NAME_BYTES], others[NAMES_BYTES];

    if (is_one_given(cli, p->others))
        return;
    write_names(p->others, others);
    if (*p->name == '\0') /* the command itself */
        cli_usage("%s needs %s%s%s", c != NULL ? c->name : cli->name, others, colon, why);
    while (cli_pair_name(&list, name) != NULL) {
        if (cli_typed(cli, name))
            cli_usage("%s needs %s%s%s", cli_as_typed(cli, name), others, colon, why);
        cli_leave_aside(cli, name);
    }
}

static void exclude_option(const struct cli *cli, const char *one, const char *other, const char *why)
{
    if (strcmp(one, other) == 0)
        return;
    cli_exclude(cli, one, other);
    if (cli_given(cli, one) && cli_given(cli, other))
        cli_usage("%s and %s do not go together%s%s", cli_as_typed(cli, one), cli_as_typed(cli, other),
                  why != NULL ? ": " : "", why != NULL ? why : "");
}

static void check_exclusion(const struct cli *cli, const struct cli_pair *p)
{
    char name[CLI_NAME_BYTES], other[CLI_NAME_BYTES];

    for (const char *list = p->name; cli_pair_name(&list, name) != NULL;)
        for (const char *others = p->others != NULL ? p->others : list; cli_pair_name(&others, other) != NULL;)
            exclude_option(cli, name, other, p->why);
}

static void check_alone(const struct cli *cli, const struct cli_pair *p)
{
    for (const struct cli_opt *o = cli->opts; o->kind != OPT_END; o++)
        if (o->kind != OPT_SECTION && !cli_is_listed(p->others, o->name))
            exclude_option(cli, p->name, o->name, p->why);
}

static bool is_for(const struct cli_pair *p, unsigned command)
{
    return p->commands == 0 || (p->commands & command) != 0;
}

void cli_check_exclusions(const struct cli *cli, unsigned command)
{
    for (const struct cli_pair *p = cli->pairs; p != NULL && p->name != NULL; p++) {
        if (p->rule == CLI_EXCLUDES && is_for(p, command))
            check_exclusion(cli, p);
        if (p->rule == CLI_ALONE && is_for(p, command))
            check_alone(cli, p);
    }
}

/* ": it is for eval, score" in text: the commands that have the option; empty: there are none, or too many to name. */
static const char *commands_of(const struct cli *cli, const struct cli_of *of, char text[80])
{
    size_t n = 0;

    text[0] = '\0';
    for (const struct cli_command *c = cli->commands; c != NULL && c->name != NULL; c++)
        if (of->commands & c->bit) {
            n += (size_t)snprintf(text + n, 80 - n, "%s%s", n > 0 ? ", " : ": it is for ", c->name);
            if (n >= 80)
                return "";
        }
    return text;
}

void cli_check_of(const struct cli *cli, unsigned bit, const char *how)
{
    for (const struct cli_of *of = cli->of; of != NULL && of->option != NULL; of++) {
        if (!(of->commands & bit) && cli_typed(cli, of->option)) {
            char of_which[80];

            cli_usage("%s %s%s", cli_as_typed(cli, of->option), how, commands_of(cli, of, of_which));
        }
        if (!(of->commands & bit))
            cli_leave_aside(cli, of->option);
    }
}

void cli_check_needs(const struct cli *cli, unsigned command)
{
    const struct cli_command *c = cli->commands;

    while (c != NULL && c->name != NULL && c->bit != command)
        c++;
    for (const struct cli_pair *p = cli->pairs; p != NULL && p->name != NULL; p++)
        if (p->rule == CLI_NEEDS && is_for(p, command))
            check_need(cli, p, c);
}
