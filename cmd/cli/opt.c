/* SPDX-License-Identifier: Apache-2.0 */
/* opt.c - one table of options: parsing, -h, --version, --help-json.       room: cmd (cli_) */
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/simd.h"
#include "cli/cli.h"

#define OPTS_MAX   128
#define HELP_WIDTH 31 /* columns before an option's text */

enum { BUILTIN_HELP, BUILTIN_VERSION, BUILTIN_HELP_JSON, BUILTIN_COMPLETION };

static const struct opt builtins[] = {
    { OPT_SECTION, 0, NULL, NULL, "About the program", NULL, 0, 0 },
    { OPT_BUILTIN, 'h', "help", NULL, "this list", NULL, BUILTIN_HELP, 0 },
    { OPT_BUILTIN, 0, "help-json", NULL, "this list as one JSON object", NULL,
      BUILTIN_HELP_JSON, 0 },
    { OPT_BUILTIN, 0, "version", NULL, "version and what this machine can do", NULL,
      BUILTIN_VERSION, 0 },
    { OPT_BUILTIN, 0, "completion", "bash|zsh|fish", "print a completion script",
      NULL, BUILTIN_COMPLETION, 0 },
    { OPT_END, 0, NULL, NULL, NULL, NULL, 0, 0 },
};

const struct opt *cli_opt_at(const struct cli *cli, size_t i)
{
    size_t n = 0;

    while (cli->opts[n].kind != OPT_END)
        n++;
    if (i < n)
        return &cli->opts[i];
    return i - n < sizeof builtins / sizeof *builtins - 1 ? &builtins[i - n] : NULL;
}

bool cli_choice(const struct opt *o, int i, char *buf, size_t buf_bytes)
{
    const char *at = o->arg;

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

static void print_help(const struct cli *cli)
{
    const struct opt *o;

    printf("usage: %s %s\n%s\n", cli->name, cli->synopsis, cli->about);
    for (size_t i = 0; (o = cli_opt_at(cli, i)) != NULL; i++) {
        char left[80], letter[8] = "   ";

        if (o->kind == OPT_SECTION) {
            printf("\n%s:\n", o->help);
            continue;
        }
        if (o->letter)
            snprintf(letter, sizeof letter, "-%c,", o->letter);
        snprintf(left, sizeof left, "  %s --%s%s%s", letter, o->name, o->arg ? " " : "",
                 o->arg ? o->arg : "");
        if (strlen(left) > HELP_WIDTH - 2)
            printf("%s\n%*s%s\n", left, HELP_WIDTH, "", o->help);
        else
            printf("%-*s%s\n", HELP_WIDTH, left, o->help);
    }
    printf("\nNumbers take k, M and G (powers of 1024). The manual is %s(1).\n", cli->name);
}

static void print_help_json(const struct cli *cli)
{
    json_t           *all = json_array(), *top = json_object();
    const char       *section = "";
    const struct opt *o;
    struct err        e = { ERR_NOMEM, "out of memory" };
    bool              ok = all != NULL && top != NULL;

    for (size_t i = 0; ok && (o = cli_opt_at(cli, i)) != NULL; i++) {
        char    letter[2] = { o->letter, '\0' };
        json_t *item;

        if (o->kind == OPT_SECTION) {
            section = o->help;
            continue;
        }
        item = json_pack("{s:s, s:s?, s:s, s:s?, s:s, s:b}", "section", section, "letter",
                         o->letter ? letter : NULL, "name", o->name, "arg", o->arg, "help",
                         o->help, "repeatable", o->kind == OPT_LIST);
        ok = item != NULL && json_array_append_new(all, item) == 0;
    }
    if (!ok || !cli_json_set(top, "type", json_string("help")) ||
        !cli_json_set(top, "program", json_string(cli->name)) ||
        !cli_json_set(top, "synopsis", json_string(cli->synopsis)) ||
        !cli_json_set(top, "options", all) || cli_json_line(top, &e))
        exit(cli_fail(&e));
}

static void print_version(const struct cli *cli)
{
    char names[128];

    printf("%s %s\n", cli->name, CHIMERE_VERSION);
    printf("devices: cpu\nprocessor: %s\njansson: %s\n",
           simd_names(simd_features(), names, sizeof names), JANSSON_VERSION);
}

static void run_builtin(const struct cli *cli, const struct opt *o, const char *arg)
{
    switch (o->lo) {
    case BUILTIN_HELP:
        print_help(cli);
        break;
    case BUILTIN_HELP_JSON:
        print_help_json(cli);
        break;
    case BUILTIN_VERSION:
        print_version(cli);
        break;
    default:
        if (!cli_completion(cli, arg))
            cli_usage("--%s %s: not one of %s", o->name, arg, o->arg);
    }
    exit(cli_close_stdout(EXIT_OK));
}

/* "8k" is 8192. */
static bool parse_i64(const char *s, int64_t *out)
{
    char     *end;
    long long v;
    int       shift = 0;

    errno = 0;
    v = strtoll(s, &end, 10);
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
    if (*end != '\0' || v > INT64_MAX >> shift || v < INT64_MIN >> shift)
        return false;
    *out = (int64_t)v * ((int64_t)1 << shift);
    return true;
}

static void set_number(const struct opt *o, const char *arg)
{
    int64_t v;

    if (!parse_i64(arg, &v))
        cli_usage("--%s %s: not a number", o->name, arg);
    if (v < o->lo || v > o->hi) {
        if (v < o->lo && (o->hi == INT64_MAX || o->hi == INT32_MAX))
            cli_usage("--%s %s: must be at least %lld", o->name, arg, (long long)o->lo);
        cli_usage("--%s %s: must be from %lld to %lld", o->name, arg, (long long)o->lo,
                  (long long)o->hi);
    }
    if (o->kind == OPT_I64)
        *(int64_t *)o->to = v;
    else
        *(int32_t *)o->to = (int32_t)v;
}

static void set_float(const struct opt *o, const char *arg)
{
    char *end;
    float v = strtof(arg, &end);

    if (end == arg || *end != '\0' || !isfinite(v))
        cli_usage("--%s %s: not a number", o->name, arg);
    *(float *)o->to = v;
}

static void set_choice(const struct opt *o, const char *arg)
{
    char word[32];

    for (int i = 0; cli_choice(o, i, word, sizeof word); i++) {
        if (strcmp(word, arg) == 0) {
            *(int *)o->to = i;
            return;
        }
    }
    cli_usage("--%s %s: not one of %s", o->name, arg, o->arg);
}

static void add_to_list(struct cli_list *l, const char *arg)
{
    if (l->n == l->cap) {
        size_t       cap = l->cap ? 2 * l->cap : 8;
        const char **v = realloc(l->v, cap * sizeof *v);

        if (v == NULL)
            exit(cli_fail(&(struct err){ ERR_NOMEM, "out of memory" }));
        l->v = v;
        l->cap = cap;
    }
    l->v[l->n++] = arg;
}

static void apply(const struct cli *cli, const struct opt *o, const char *arg)
{
    switch (o->kind) {
    case OPT_FLAG:
        *(bool *)o->to = true;
        break;
    case OPT_STR:
    case OPT_FILE:
    case OPT_OUT:
        *(const char **)o->to = arg;
        break;
    case OPT_LIST:
        add_to_list(o->to, arg);
        break;
    case OPT_I64:
    case OPT_I32:
        set_number(o, arg);
        break;
    case OPT_F32:
        set_float(o, arg);
        break;
    case OPT_CHOICE:
        set_choice(o, arg);
        break;
    case OPT_BUILTIN:
        run_builtin(cli, o, arg);
        break;
    case OPT_SECTION:
    case OPT_END:
        break;
    }
}

int cli_parse(const struct cli *cli, int argc, char **argv)
{
    struct option     longs[OPTS_MAX] = { { NULL, 0, NULL, 0 } };
    char              shorts[2 * OPTS_MAX + 2] = ":";
    const struct opt *by_letter[128] = { NULL }, *o;
    size_t            n_longs = 0, n_shorts = 1;
    int               c, index = 0;

    cli_open_standard();
    cli_set_name(cli->name);
    for (size_t i = 0; (o = cli_opt_at(cli, i)) != NULL && i < OPTS_MAX - 1; i++) {
        /* A heading keeps its place in longs[], under a name that cannot be typed. */
        longs[n_longs++] = (struct option){ o->name ? o->name : "=",
                                            o->arg ? required_argument : no_argument, NULL, 1 };
        if (o->letter == 0)
            continue;
        by_letter[(unsigned char)o->letter & 127] = o;
        shorts[n_shorts++] = o->letter;
        if (o->arg)
            shorts[n_shorts++] = ':';
    }
    opterr = 0;
    while ((c = getopt_long(argc, argv, shorts, longs, &index)) != -1) {
        const char *bad = argv[optind - 1];

        if (c == 1)
            apply(cli, cli_opt_at(cli, (size_t)index), optarg);
        else if (c == ':')
            cli_usage("%s: needs an argument", bad);
        else if (c == '?' && optopt > 1)
            cli_usage("unknown option -%c", optopt);
        else if (c == '?')
            cli_usage("%s %s", optopt == 1 ? "takes no argument:" : "unknown option", bad);
        else
            apply(cli, by_letter[c & 127], optarg);
    }
    cli_check_outputs(cli, argv + optind);
    return optind;
}
