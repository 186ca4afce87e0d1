/* SPDX-License-Identifier: Apache-2.0 */
/* merge.c - adapters become a part of the weights.                                       room: ramp */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adapt/adapt.h"
#include "base/io.h"
#include "ramp/internal.h"

bool ramp_merges(const struct ramp_merge *m, struct str name)
{
    for (int i = 0; m != NULL && i < m->n; i++)
        if (m->scale[i] != 0.0f && adapter_find(m->adapter[i], name) != NULL)
            return true;
    return false;
}

void ramp_merge_row(const struct ramp_merge *m, const struct gguf_tensor *t, int64_t r, float *w)
{
    for (int i = 0; m != NULL && i < m->n; i++) {
        const struct adapter_mat *mat = adapter_find(m->adapter[i], t->name);

        if (mat != NULL && m->scale[i] != 0.0f)
            adapter_merge_row(m->adapter[i], mat, r, m->scale[i], w, t->ne[0]);
    }
}

char *ramp_merge_text(const struct ramp_merge *m)
{
    enum { EACH = 300 };
    char *text = calloc((size_t)m->n + 1, EACH);
    size_t n = 0;

    for (int i = 0; text != NULL && i < m->n; i++) {
        const char *slash = strrchr(m->adapter[i]->path, '/');

        n += (size_t)snprintf(text + n, EACH, "%s%.255s:%g", i > 0 ? " " : "",
                              slash != NULL ? slash + 1 : m->adapter[i]->path, (double)m->scale[i]);
    }
    return text;
}

void ramp_merge_hash(const struct ramp_merge *m, uint64_t *h, void (*file)(uint64_t *h, const char *path))
{
    for (int i = 0; i < m->n; i++) {
        file(h, m->adapter[i]->path);
        *h = io_hash(*h, &m->scale[i], sizeof m->scale[i]);
    }
}
