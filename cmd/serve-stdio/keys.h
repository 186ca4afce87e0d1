/* SPDX-License-Identifier: Apache-2.0 */
/* keys.h - the keys of a server, a file with one on each line.               room: cmd */
#ifndef SERVE_STDIO_KEYS_H
#define SERVE_STDIO_KEYS_H
#include "cli/cli.h"

struct cli_keys;

/* The keys of the file, in the place of those there were: *keys, NULL: none. again: while requests go on, which wait
 * meanwhile. ERR_FORMAT: no key, or something that is none. */
MUST_CHECK enum err_code cli_keys_read(struct cli_keys **keys, const char *path, bool again, struct err *e);
void cli_keys_free(struct cli_keys *k); /* NULL is allowed */
/* Takes the same time for each wrong key of a length. */
bool cli_keys_have(const struct cli_keys *k, const char *key);
#endif
