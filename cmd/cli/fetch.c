/* SPDX-License-Identifier: Apache-2.0 */
/* fetch.c - llama.cpp's -hf: prints the command that fetches the file; the programs open no connections.    room: cmd
 *
 * The command asks the hub for the names and SHA-256 of the repository's files, keeps those that fit beside the files,
 * fetches them (all parts of a split model), goes on where an earlier call was cut off, and compares. */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

enum { NAME_MAX_BYTES = 200 };

static const char *repo, *file; /* as typed; NULL: not given */
static const char *typed = "";  /* the option's name, without the dashes of a long one */
static const struct {
    const char *name; /* with one dash or, as a long name, without any */
    const char *arg;
    const char **to;
} names[] = {
    { "-hf", "owner/repo[:type]", &repo },
    { "-hfr", "owner/repo[:type]", &repo },
    { "hf-repo", "owner/repo[:type]", &repo },
    { "-hff", "file", &file },
    { "hf-file", "file", &file },
};

const struct cli_opt *cli_fetch_option(const char *name, size_t n)
{
    static struct cli_opt as;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i].name) == n && strncmp(names[i].name, name, n) == 0) {
            as = (struct cli_opt){ .kind = OPT_STR, .name = "", .arg = names[i].arg, .to = (void *)names[i].to };
            typed = names[i].name;
            return &as;
        }
    return NULL;
}

/* Letters that neither the shell nor an expression takes for something else, but for dots. */
static bool is_plain(const char *s, size_t n, const char *more)
{
    for (size_t i = 0; i < n; i++)
        if (strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-", s[i]) == NULL &&
            strchr(more, s[i]) == NULL)
            return false;
    return n > 0 && n < NAME_MAX_BYTES && s[0] != '-' && s[0] != '.' && s[0] != '/';
}

void cli_fetch_tell(void)
{
    const size_t n = repo != NULL ? strcspn(repo, ":") : 0;
    const char *slash = repo != NULL ? strchr(repo, '/') : NULL,
               *type = repo != NULL && repo[n] == ':' ? repo + n + 1 : "Q4_K_M";
    char which[NAME_MAX_BYTES + 80];

    if (repo == NULL && file == NULL)
        return;
    if (repo == NULL)
        cli_usage("-hff: needs -hf OWNER/REPO");
    if (slash == NULL || !is_plain(repo, (size_t)(slash - repo), "") || slash >= repo + n ||
        !is_plain(slash + 1, n - (size_t)(slash + 1 - repo), "") || !is_plain(type, strlen(type), ""))
        cli_usage("%s%s: %s: not OWNER/REPO or OWNER/REPO:TYPE", typed[0] != '-' ? "--" : "", typed, repo);
    if (file != NULL && (!is_plain(file, strlen(file), "/") || strstr(file, "..") != NULL))
        cli_usage("-hff: %s: not the name of a file there", file);
    if (file != NULL)
        snprintf(which, sizeof which, ". == \"%s\"", file);
    else
        snprintf(which, sizeof which, "test(\"%s[^/]*[.]gguf$\"; \"i\") and (test(\"mmproj\") | not)", type);
    /* a complete file is refused by -C -, so that only the sums at the end decide */
    printf("curl -fsSL 'https://huggingface.co/api/models/%.*s?blobs=true' | jq -er '.siblings[] | "
           "select(.rfilename | %s) | \"\\(.lfs.sha256)  \\(.rfilename)\"' > %.*s.sha256 && cut -c67- %.*s.sha256 | "
           "while read -r f; do curl -fL -C - --create-dirs -o \"$f\" \"https://huggingface.co/%.*s/resolve/main/$f\"; "
           "done; sha256sum -c %.*s.sha256\n",
           (int)n, repo, which, (int)(repo + n - slash - 1), slash + 1, (int)(repo + n - slash - 1), slash + 1, (int)n,
           repo, (int)(repo + n - slash - 1), slash + 1);
    fprintf(stderr,
            "%s: -hf: models are not fetched here: that command does it, goes on where it was cut off, and compares "
            "SHA-256\n",
            cli_name());
    exit(cli_close_stdout(EXIT_FAILED));
}
