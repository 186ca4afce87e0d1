/* SPDX-License-Identifier: Apache-2.0 */
/* epochs.c - a table of some epochs of others, in memory and as a file.      room: engram */
#include <stdlib.h>
#include <string.h>

#include "engram/internal.h"

enum err_code engram_view(struct engram **out, const struct engram *first, const struct engram *more, const bool *with,
                          struct err *e)
{
    const struct file *old = first != NULL ? &first->file[0] : NULL, *new = &more->file[0];
    const int n_old = old != NULL ? old->n_epochs : 0;
    struct engram *g = calloc(1, sizeof *g);
    struct epoch *epoch = malloc((size_t)(n_old + new->n_epochs + 1) * sizeof *epoch);
    int n = n_old;

    if (g == NULL || epoch == NULL) {
        free(g);
        free(epoch);
        return err_nomem(e);
    }
    *g = (struct engram){ .n_files = 1, .day = more->day, .has = more->has, .borrowed = true };
    g->file[0] = old != NULL ? *old : *new;
    g->file[0].epoch = epoch;
    if (n_old > 0)
        memcpy(epoch, old->epoch, (size_t)n_old * sizeof *epoch);
    for (int i = 0; i < new->n_epochs; i++)
        if (with[i])
            epoch[n++] = new->epoch[i];
    g->file[0].n_epochs = n;
    g->own = epoch;
    if (n > ENGRAM_EPOCHS_MAX) {
        engram_close(g);
        return err_set(e, ERR_LIMIT, "more than %d epochs: merge them first", ENGRAM_EPOCHS_MAX);
    }
    *out = g;
    return ERR_OK;
}

enum err_code engram_write(const struct engram *g, const char *path, struct err *e)
{
    const struct file *f = &g->file[0];
    unsigned char head[HEAD_BYTES];
    struct io_out *out;
    enum err_code code = io_out_open(&out, path, e);

    if (code != ERR_OK)
        return code;
    engram_put_head(head, f->tokenizer, 0);
    code = io_out_write(out, head, sizeof head, e);
    for (int i = 0; code == ERR_OK && i < f->n_epochs; i++)
        code = io_out_write(out, f->epoch[i].at, (size_t)f->epoch[i].bytes, e);
    if (code == ERR_OK)
        code = engram_end_file(out, head, e);
    return io_out_end(out, code, e);
}
