/* SPDX-License-Identifier: Apache-2.0 */
/* list.c - --type list: the mixes that came with the program, and the types that can be written.       room: cmd */
#include <glob.h>
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

static enum err_code list_mixes(struct err *e)
{
    static const char end[] = ".recipe";
    char path[4096], text[256];
    glob_t found;

    if (!cli_recipe_path("q4_k_m", path, sizeof path))
        return err_set(e, ERR_IO, "the mixes that come with the program are not there (%s)", path);
    strcpy(strrchr(path, '/') + 1, "*.recipe");
    if (glob(path, 0, NULL, &found) != 0)
        return err_set(e, ERR_IO, "%s: cannot read", path);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        const char *name = strrchr(found.gl_pathv[i], '/') + 1;

        describe(found.gl_pathv[i], text, sizeof text);
        printf("%-12.*s mix   %s\n", (int)(strlen(name) - (sizeof end - 1)), name, text);
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
