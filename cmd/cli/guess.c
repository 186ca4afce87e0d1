/* SPDX-License-Identifier: Apache-2.0 */
/* guess.c - from --draft and --draft-max to drafters (guess.h).                                     room: cmd */
#include <stdlib.h>
#include <string.h>

#include "cli/guess.h"

/* The first name that counts: "off" takes back those before it, of CHIMERE_OPTS or of a file of defaults. */
static size_t first_name(const struct cli_guess *g)
{
    size_t first = g->names->n;

    while (first > 0 && strcmp(g->names->v[first - 1], "off") != 0)
        first--;
    return first;
}

bool cli_guess_off(const struct cli_guess *g)
{
    return g->max == 0 || (!g->tables_guess && first_name(g) == g->names->n);
}

bool cli_guess_has(const struct cli_guess *g, const char *name)
{
    for (size_t i = first_name(g); i < g->names->n; i++)
        if (strcmp(g->names->v[i], name) == 0)
            return true;
    return false;
}

bool cli_guess_block(const struct cli_guess *g)
{
    bool block = false;

    for (size_t i = first_name(g); i < g->names->n && g->max != 0; i++)
        block |= strcmp(g->names->v[i], "ngram") != 0 && strcmp(g->names->v[i], "engram") != 0;
    return block;
}

static enum err_code open_draft(struct draft **out, const struct cli_guess *g, const struct cli_opened *x,
                                struct err *e)
{
    const size_t first = first_name(g), n = g->names->n - first;
    const char **names = malloc((n + 1) * sizeof *names);
    struct draft_opts d = { .model = x->model,
                            .gguf = x->gguf,
                            .names = names,
                            .n_max = g->max > 0 ? g->max : 0,
                            .n_threads = x->o.n_threads,
                            .tables = g->tables,
                            .stop = cli_interrupted };
    enum err_code code;

    if (names == NULL)
        return err_nomem(e);
    for (size_t i = 0; i < n; i++)
        names[d.n_names++] = g->names->v[first + i];
    if (g->tables_guess)
        names[d.n_names++] = "engram";
    code = draft_open(out, &d, e);
    free(names);
    if (code == ERR_OK && draft_left_out(*out) != NULL)
        cli_note("drafter  left out: %s", draft_left_out(*out));
    return code;
}

/* Layers that the drafters read, behind those that the run keeps anyway. */
static enum err_code add_taps(struct run_opts *ro, int layers[RUN_TAPS_MAX], const struct draft *d, struct err *e)
{
    int mine[DRAFT_TAPS_MAX];
    const int n = draft_taps(d, mine);

    ro->taps_skip &= n == 0; /* a drafter reads those of each step */
    if (ro->n_taps > 0)
        memmove(layers, ro->tap_layers, (size_t)ro->n_taps * sizeof *layers);
    ro->tap_layers = layers;
    for (int i = 0; i < n; i++) {
        int at = 0;

        while (at < ro->n_taps && layers[at] != mine[i])
            at++;
        if (at == RUN_TAPS_MAX)
            return err_set(e, ERR_UNSUPPORTED, "drafters read more than %d layers", RUN_TAPS_MAX);
        layers[at] = mine[i];
        ro->n_taps = at == ro->n_taps ? at + 1 : ro->n_taps;
    }
    return ERR_OK;
}

enum err_code cli_guess_open(struct draft **out, const struct cli_guess *g, struct cli_opened *x, struct run_opts *ro,
                             int layers[RUN_TAPS_MAX], struct err *e)
{
    *out = NULL;
    if (cli_guess_off(g))
        return ERR_OK;
    if (open_draft(out, g, x, e))
        return e->code;
    const int draft_max = g->max > 0 ? g->max : GEN_DRAFT_USUAL;

    ro->draft_max = draft_max > ro->draft_max ? draft_max : ro->draft_max;
    if (add_taps(ro, layers, *out, e))
        return e->code;
    if (!x->dry_run)
        return ERR_OK;
    draft_close(*out);
    *out = NULL;
    return cli_open_load(x, ro, e) ? e->code : open_draft(out, g, x, e);
}

enum err_code cli_guess_again(struct draft **out, const struct cli_guess *g, const struct cli_opened *x, struct run *r,
                              struct err *e)
{
    if (open_draft(out, g, x, e))
        return e->code;
    if (draft_attach(*out, r, e) == ERR_OK)
        return ERR_OK;
    draft_close(*out);
    *out = NULL;
    return e->code;
}
