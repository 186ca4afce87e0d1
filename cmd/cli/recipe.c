/* SPDX-License-Identifier: Apache-2.0 */
/* recipe.c - reading recipes, and shapes whose types they choose.                                room: cmd */
#include "cli/recipe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "cli/cli.h"
#include "quant/quant.h"

#define RECIPE_MAX_BYTES ((size_t)16 << 20)

enum err_code cli_recipe_read(struct ramp_recipe *r, const char *path, struct err *e)
{
    char *text;
    size_t n;
    enum err_code rc = io_read_text(&text, &n, path, RECIPE_MAX_BYTES, cli_interrupted, e);

    if (rc)
        return rc;
    rc = ramp_recipe_add(r, (struct str){ text, n }, path, e);
    free(text);
    return rc;
}

enum err_code cli_shape_holes(struct gguf **out, char *path, size_t path_bytes, const struct shape *shape,
                              struct err *e)
{
    char dir[] = "/tmp/chimere-XXXXXX";
    enum err_code rc;

    if (mkdtemp(dir) == NULL)
        return err_set(e, ERR_IO, "/tmp: cannot make a directory");
    snprintf(path, path_bytes, "%s/holes.gguf", dir);
    rc = shape_write_holes(shape, path, e) ? e->code : gguf_open(out, path, e);
    unlink(path);
    rmdir(dir);
    return rc;
}

/* The recipe that a mix means, unless shape_open() knows the name. */
static bool recipe_of(char *path, size_t path_bytes, const char *mix)
{
    const size_t n = strlen(mix);
    const char *known;

    for (size_t i = 0; (known = shape_mix_at(i)) != NULL; i++)
        if (strcmp(mix, known) == 0)
            return false;
    if (n > 7 && n < path_bytes && strcmp(mix + n - 7, ".recipe") == 0) {
        memcpy(path, mix, n + 1);
        return true;
    }
    return quant_find_name(str_of(mix)) < 0 && cli_recipe_path(mix, path, path_bytes);
}

static enum err_code set_types(struct shape *s, const struct ramp_recipe *r, struct err *e)
{
    struct gguf *g = NULL;
    struct ramp_plan p = { 0 };
    char path[64];

    enum err_code rc =
        cli_shape_holes(&g, path, sizeof path, s, e) || ramp_plan_open(&p, r, g, false, true, e) ? e->code : ERR_OK;

    for (size_t i = 0; i < p.n && rc == ERR_OK; i++)
        rc = shape_set_type(s, gguf_tensor_at(g, i)->name, p.v[i].type, e);
    ramp_plan_close(&p);
    gguf_close(g);
    return rc;
}

enum err_code cli_shape_open(struct shape **out, const char *spec, const char *mix, struct err *e)
{
    struct ramp_recipe *r;
    struct shape *s;
    char path[4096];

    if (!recipe_of(path, sizeof path, mix))
        return shape_open(out, spec, mix, e);
    if (ramp_recipe_open(&r, e))
        return e->code;
    if (cli_recipe_read(r, path, e) == ERR_OK && shape_open(&s, spec, "bf16", e) == ERR_OK) {
        if (set_types(s, r, e))
            shape_close(s);
        else
            *out = s;
    }
    ramp_recipe_close(r);
    return e->code;
}
