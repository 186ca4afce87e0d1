/* SPDX-License-Identifier: Apache-2.0 */
/* list.c - --type list: the mixes that came with the program, and the types that can be written.       room: cmd */
#include <stdio.h>
#include <string.h>
#include "cli/cli.h"
#include "quant/quant.h"
#include "quantize/program.h"

/* What the second line of a recipe says of it, "# NAME.recipe - TEXT". */
static void describe(const char *path, char *buf, size_t buf_bytes)
{
    char line[256] = "";
    FILE *f = fopen(path, "r");
    const char *at = NULL;

    buf[0] = '\0';
    for (int i = 0; f != NULL && i < 2 && fgets(line, sizeof line, f) != NULL; i++)
        at = i == 1 ? strstr(line, " - ") : NULL;
    if (at != NULL)
        snprintf(buf, buf_bytes, "%.*s", (int)strcspn(at + 3, "\n"), at + 3);
    if (f != NULL)
        (void)fclose(f);
    cli_clean(buf);
}

enum err_code cli_quantize_mixes(glob_t *found, struct err *e)
{
    char path[4096];

    if (!cli_recipe_path("q4_k_m", path, sizeof path))
        return err_set(e, ERR_IO, "the mixes that come with the program are not there (%s)", path);
    strcpy(strrchr(path, '/') + 1, "*.recipe");
    return glob(path, 0, NULL, found) == 0 ? ERR_OK : err_set(e, ERR_IO, "%s: cannot read", path);
}

void cli_quantize_mix_name(const char *path, char *buf, size_t buf_bytes)
{
    const char *name = strrchr(path, '/') + 1;

    snprintf(buf, buf_bytes, "%.*s", (int)strcspn(name, "."), name);
}

static enum err_code list_mixes(struct err *e)
{
    char name[64], text[256];
    glob_t found;

    if (cli_quantize_mixes(&found, e))
        return e->code;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        cli_quantize_mix_name(found.gl_pathv[i], name, sizeof name);
        describe(found.gl_pathv[i], text, sizeof text);
        printf("%-12s mix   %s\n", name, text);
    }
    globfree(&found);
    return ERR_OK;
}

enum err_code cli_quantize_list(struct err *e)
{
    if (list_mixes(e))
        return e->code;
    for (int i = 0; i < QUANT_N; i++)
        if (quant_fitter(i, 0) != NULL)
            printf("%-12s type  %.4g bits per weight\n", quant_types[i]->name,
                   8.0 * quant_types[i]->block_bytes / quant_types[i]->block_elems);
    return cli_flush_stdout(e);
}
