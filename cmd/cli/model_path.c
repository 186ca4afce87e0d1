/* SPDX-License-Identifier: Apache-2.0 */
/* model_path.c - files that came with the program: the model, recipes, task sets.     room: cmd */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cli/cli.h"

#define DEFAULT_MODEL "chimere-nano-q5_k_m.gguf"

/* The directory above the one the program lies in: "/usr/local" for /usr/local/bin/chimere-run. */
static bool program_root(char *buf, size_t buf_bytes)
{
    ssize_t n = readlink("/proc/self/exe", buf, buf_bytes - 1);

    if (n <= 0 || (size_t)n >= buf_bytes - 1)
        return false;
    buf[n] = '\0';
    for (int i = 0; i < 2; i++) {
        char *slash = strrchr(buf, '/');

        if (slash == NULL)
            return false;
        *slash = '\0';
    }
    return true;
}

/* A name in a directory of $CHIMERE_MODELS, which are between colons. */
static bool on_shelf(const char *name, char *buf, size_t buf_bytes)
{
    static const char *const ends[] = { "", ".gguf" };
    const char *dirs = getenv("CHIMERE_MODELS");

    for (size_t n; dirs != NULL && *dirs != '\0'; dirs += n, dirs += *dirs == ':') {
        n = strcspn(dirs, ":");
        for (size_t i = 0; n > 0 && i < 2; i++) {
            int used = snprintf(buf, buf_bytes, "%.*s/%s%s", (int)n, dirs, name, ends[i]);

            if (used > 0 && (size_t)used < buf_bytes && access(buf, F_OK) == 0)
                return true;
        }
    }
    return false;
}

enum err_code cli_model_path(const char *given, char *buf, size_t buf_bytes, struct err *e)
{
    static const char *const shares[] = {
        "share/chimere/models", /* installed: PREFIX/bin and PREFIX/share */
        "share/models",         /* the source tree: bin and share */
    };
    const char *env = getenv("CHIMERE_MODEL");
    char root[3072];
    int n;

    if (given == NULL && env != NULL && env[0] != '\0')
        given = env;
    if (given != NULL && strchr(given, '/') == NULL && access(given, F_OK) != 0) {
        if (on_shelf(given, buf, buf_bytes))
            return ERR_OK;
        if (strlen(given) < 256 && getenv("CHIMERE_MODELS") != NULL && getenv("CHIMERE_MODELS")[0] != '\0')
            return err_set(
                e, ERR_IO,
                "%s: cannot open: no such file here, nor in the directories of CHIMERE_MODELS, with .gguf or without",
                given);
        if (strlen(given) < 256)
            return err_set(
                e, ERR_IO,
                "%s: cannot open: No such file or directory (names are looked for where CHIMERE_MODELS says)", given);
    }
    if (given != NULL) {
        n = snprintf(buf, buf_bytes, "%s", given);
        if (n < 0 || (size_t)n >= buf_bytes)
            return err_set(e, ERR_ARG, "the model's path is too long");
        return ERR_OK;
    }
    if (!program_root(root, sizeof root))
        return err_set(e, ERR_ARG, "no model: use -m FILE or set CHIMERE_MODEL");
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        n = snprintf(buf, buf_bytes, "%s/%s/" DEFAULT_MODEL, root, shares[i]);
        if (n > 0 && (size_t)n < buf_bytes && access(buf, R_OK) == 0)
            return ERR_OK;
    }
    return err_set(e, ERR_ARG,
                   "no model: use -m FILE or set CHIMERE_MODEL (also tried "
                   "%.180s/{%s,%s}/" DEFAULT_MODEL ")",
                   root, shares[0], shares[1]);
}

bool cli_recipe_path(const char *name, char *buf, size_t buf_bytes)
{
    static const char *const shares[] = { "share/chimere/recipes", "share/recipes" };
    char root[3072], file[64];
    size_t at = 0;

    buf[0] = '\0';
    for (; name[at] != '\0' && at + 1 < sizeof file; at++) {
        char c = name[at];

        file[at] = (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
        if (!((file[at] >= 'a' && file[at] <= 'z') || (c >= '0' && c <= '9') || c == '_'))
            return false;
    }
    file[at] = '\0';
    if (name[at] != '\0' || at == 0 || !program_root(root, sizeof root))
        return false;
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        int n = snprintf(buf, buf_bytes, "%s/%s/%s.recipe", root, shares[i], file);

        if (n > 0 && (size_t)n < buf_bytes && access(buf, R_OK) == 0)
            return true;
    }
    return false;
}

bool cli_eval_path(char *buf, size_t buf_bytes)
{
    static const char *const shares[] = { "share/chimere/eval", "share/eval" };
    char root[3072];

    for (size_t i = 0; program_root(root, sizeof root) && i < sizeof shares / sizeof *shares; i++) {
        int n = snprintf(buf, buf_bytes, "%s/%s", root, shares[i]);

        if (n > 0 && (size_t)n < buf_bytes && access(buf, R_OK) == 0)
            return true;
    }
    return false;
}
