/* SPDX-License-Identifier: Apache-2.0 */
/* check.c - whether a text is one that a grammar allows, without a model.  room: cmd */
#include "run/check.h"
#include <stdlib.h>
#include <string.h>
#include "base/io.h"
#include "cli/cli.h"
#include "grammar/grammar.h"

enum { GRAMMAR_BYTES_MAX = 64 << 20, CHECK_BYTES_MAX = 1 << 30 };

static enum err_code open_gbnf(struct grammar **out, const struct grammar_vocab *v, const char *path, struct err *e)
{
    char *data;
    size_t n;
    enum err_code code;

    if (io_read_all(&data, &n, path, GRAMMAR_BYTES_MAX, cli_interrupted, e))
        return e->code;
    code = grammar_open_gbnf(out, v, (struct str){ data, n }, e);
    free(data);
    return code ? err_wrap(e, "%s", path) : code;
}

static enum err_code open_schema(struct grammar **out, const struct grammar_vocab *v, const char *path, struct err *e)
{
    json_t *schema;
    enum err_code code;

    if (cli_json_file(&schema, path, e))
        return e->code;
    code = grammar_open_schema(out, v, schema, e);
    json_decref(schema);
    return code ? err_wrap(e, "%s", path) : code;
}

enum err_code cli_open_grammar(struct grammar **out, const struct grammar_vocab *v, const struct cli_grammar *from,
                               struct err *e)
{
    const char *path = from->schema != NULL ? from->schema : from->grammar;
    enum err_code code;

    if ((from->schema != NULL) + (from->grammar != NULL) + (from->regex != NULL) != 1)
        return err_set(e, ERR_ARG, "one of --schema, --grammar and --regex is needed");
    if (path != NULL && strcmp(path, "-") == 0)
        return err_set(e, ERR_ARG, "a grammar is not read from standard input");
    if (from->schema != NULL)
        code = open_schema(out, v, path, e);
    else if (from->grammar != NULL)
        code = open_gbnf(out, v, path, e);
    else if ((code = grammar_open_regex(out, v, str_of(from->regex), e)) != ERR_OK)
        err_wrap(e, "--regex");
    return code ? cli_as_data(e) : ERR_OK;
}

static int check_text(struct grammar_place *p, struct str text)
{
    for (size_t i = 0; i < text.n; i++) {
        if (!grammar_take_text(p, (struct str){ text.p + i, 1 })) {
            cli_warn("the grammar does not allow byte %zu of the text", i + 1);
            return EXIT_NO;
        }
    }
    if (grammar_may_end(p))
        return EXIT_OK;
    cli_warn("the text ends too early");
    return EXIT_NO;
}

int cli_check(const struct cli_grammar *from)
{
    struct grammar *g = NULL;
    struct grammar_place *p = NULL;
    struct err e = { 0 };
    char *text = NULL;
    size_t n;
    int status;

    if (cli_open_grammar(&g, NULL, from, &e))
        return cli_fail(&e);
    if (io_read_all(&text, &n, "-", CHECK_BYTES_MAX, cli_interrupted, &e) || grammar_begin(&p, g, &e))
        status = cli_fail(&e);
    else
        status = check_text(p, (struct str){ text, n });
    free(text);
    grammar_end(p);
    grammar_close(g);
    return status;
}
