/* SPDX-License-Identifier: Apache-2.0 */
/* walk.h - inside chimere-engram-build: the files of directories.             room: cmd */
#ifndef ENGRAM_BUILD_WALK_H
#define ENGRAM_BUILD_WALK_H
#include "cli/cli.h"

struct cli_walk_opts {
    struct cli_list exclude; /* patterns as in a .gitignore */
    struct cli_list filter;  /* "EXTENSION=COMMAND": what makes text of such files */
    bool follow;             /* links, too */
};
struct cli_walked {
    const char *path; /* as it was named, and the names below it */
    const char *name; /* without the extension of its filter: says what form it has */
    struct str text;
    int64_t time_ns; /* of its last change */
};
typedef enum err_code cli_walk_fn(void *ctx, const struct cli_walked *file, struct err *e);

/* Calls fn for each text file of paths, and of the directories among them, in the order of their names. Left out are
 * hidden files, what .gitignore or `exclude` names, links, devices, and what is not text. What cannot be read gives a
 * warning. ERR_IO: a path itself is not there. */
MUST_CHECK enum err_code cli_walk(const struct cli_walk_opts *o, char *const *paths, cli_walk_fn *fn, void *ctx,
                                  struct err *e);
/* ERR_ARG: a filter is no "EXTENSION=COMMAND". */
MUST_CHECK enum err_code cli_walk_check(const struct cli_walk_opts *o, struct err *e);
/* Patterns of .gitignore: "*" and "?" are not "/", "**" is anything. */
bool cli_glob(const char *pattern, const char *path);
#endif
