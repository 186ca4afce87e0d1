/* SPDX-License-Identifier: Apache-2.0 */
/* model_path.c - files that came with the program: the model, recipes, task sets.     room: cmd */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cli/cli.h"

#ifndef CHIMERE_PREFIX
#define CHIMERE_PREFIX "/usr/local"
#endif

#define DEFAULT_MODEL "chimere-nano-q5_k_m.gguf"

/* A file that came with the program: below the directory above its own ("/usr/local" for /usr/local/bin/chimere-run),
 * as installed or as in the source tree, else where this build was to be installed: without /proc nobody says where
 * the program lies, and a copy of it lies elsewhere. root: the first of them, for messages. */
static bool shared_file(const char *name, int mode, char *root, size_t root_bytes, char *buf, size_t buf_bytes)
{
    static const char *const shares[] = { "share/chimere", "share" };
    ssize_t n = readlink("/proc/self/exe", root, root_bytes - 1);
    bool known = n > 0 && (size_t)n < root_bytes - 1;

    root[known ? n : 0] = '\0';
    for (int i = 0; known && i < 2; i++) {
        char *slash = strrchr(root, '/');

        known = slash != NULL;
        if (known)
            *slash = '\0';
    }
    for (size_t i = known ? 0 : 2; i < 3; i++) {
        int used = i < 2 ? snprintf(buf, buf_bytes, "%s/%s/%s", root, shares[i], name)
                         : snprintf(buf, buf_bytes, CHIMERE_PREFIX "/share/chimere/%s", name);

        if (used > 0 && (size_t)used < buf_bytes && access(buf, mode) == 0)
            return true;
    }
    if (!known)
        snprintf(root, root_bytes, "%s", CHIMERE_PREFIX);
    return false;
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
    if (shared_file("models/" DEFAULT_MODEL, R_OK, root, sizeof root, buf, buf_bytes))
        return ERR_OK;
    return err_set(e, ERR_ARG,
                   "no model: use -m FILE or set CHIMERE_MODEL (also tried "
                   "%.180s/{share/chimere/models,share/models}/" DEFAULT_MODEL ")",
                   root);
}

bool cli_recipe_path(const char *name, char *buf, size_t buf_bytes)
{
    char root[3072], file[80];
    size_t at = 0;

    buf[0] = '\0';
    for (; name[at] != '\0' && at < 64; at++)
        if (!isalnum((unsigned char)name[at]) && name[at] != '_')
            return false;
    if (name[at] != '\0' || at == 0)
        return false;
    snprintf(file, sizeof file, "recipes/%s.recipe", name);
    for (char *c = file; *c != '\0'; c++)
        *c = (char)(*c >= 'A' && *c <= 'Z' ? *c - 'A' + 'a' : *c);
    return shared_file(file, R_OK, root, sizeof root, buf, buf_bytes);
}

bool cli_eval_path(char *buf, size_t buf_bytes)
{
    char root[3072];

    return shared_file("eval", R_OK, root, sizeof root, buf, buf_bytes);
}
