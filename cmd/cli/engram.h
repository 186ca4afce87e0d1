/* SPDX-License-Identifier: Apache-2.0 */
/* engram.h - tables of n-grams beside a model, as options name them.        room: cmd */
#ifndef CLI_ENGRAM_H
#define CLI_ENGRAM_H
#include "cli/cli.h"
#include "engram/mix.h"

#define CLI_ENGRAM_WEIGHT 0.95F /* default limit of a table's weight */

struct cli_opened;

struct cli_engram {
    struct engram *table;
    struct engram_mix mix;
    int32_t (*parts)[ENGRAM_PARTS], *spaced; /* of the mix */
};
/* names: "FILE@domains:weight", as cli_engram_named() takes them; the weight, 0 to 1, is the upper limit for that file;
 * no names: x->table is NULL. ERR_FORMAT: not a table, or one of another tokenizer than g's. */
MUST_CHECK enum err_code cli_engram_open(struct cli_engram *x, const char *const *names, size_t n, bool thinking,
                                         const struct gguf *g, const struct text *text, int32_t n_vocab, struct err *e);
void cli_engram_close(struct cli_engram *x); /* {0} is allowed */
int64_t cli_engram_today(void);              /* days since 1970 */

/* A text to make a table of; the caller frees it. "-" is stdin. again: the program must not wait, so that it is read
 * from a regular file only. ERR_FORMAT: it is empty, or no text; ERR_LIMIT: it has more than 256 MiB. */
MUST_CHECK enum err_code cli_context_read(char **said, size_t *n, const char *file, bool again, struct err *e);
/* Those of --engram and one of the text in a file, NULL: none, or of a text that was read, p NULL: none. again: as
 * above. */
MUST_CHECK enum err_code cli_engram_open_all(struct cli_engram *x, const struct cli_list *engrams,
                                             const char *context_table, struct str context, bool again, bool thinking,
                                             const struct cli_opened *model, struct err *e);

/* A table of a text, in a directory of its own: unmake removes both, also while the table is open. make leaves nothing
 * after an error, and removes what processes that were killed left. */
struct cli_engram_made {
    char path[4096]; /* "": there is none */
    int lock;        /* on the directory, while there is a path */
};
MUST_CHECK enum err_code cli_engram_make(struct cli_engram_made *made, struct str said, const struct gguf *g,
                                         const struct text *text, int n_threads, struct err *e);
void cli_engram_unmake(struct cli_engram_made *made);

/* "FILE", "FILE:weight", "FILE@domain,domain" or "FILE@domain,domain:weight": the path to buf, and the domains, NULL:
 * all, behind it. An @ is a part of the name where a file has that name. ERR_ARG: the weight is no number from 0 to
 * most. */
MUST_CHECK enum err_code cli_engram_named(const char *arg, char *buf, size_t buf_bytes, const char **domains,
                                          float *weight, float most, struct err *e);
#endif
