/* SPDX-License-Identifier: Apache-2.0 */
/* check.c - whether a text is one that a grammar allows, without a model.  room: cmd */
#include "run/check.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/io.h"
#include "cli/cli.h"
#include "grammar/grammar.h"

enum { GRAMMAR_BYTES_MAX = 64 << 20, CHECK_BYTES_MAX = 1 << 30 };

enum err_code cli_form_read(struct cli_form *out, const struct cli_grammar *from, struct err *e)
{
    const char *path = from->schema != NULL ? from->schema : from->grammar;
    struct cli_form f = { .form = { .regex = { from->regex, from->regex != NULL ? strlen(from->regex) : 0 } } };
    size_t n;

    if (path != NULL && strcmp(path, "-") == 0)
        return err_set(e, ERR_ARG, "a grammar is not read from standard input");
    if (from->schema != NULL && cli_json_file(&f.schema, path, e))
        return cli_as_data(e);
    if (from->grammar != NULL) {
        if (strstr(path, "::=") != NULL && access(path, F_OK) != 0)
            return err_set(e, ERR_ARG, "--grammar takes the name of a file, not the grammar: write it to one");
        if (io_read_text(&f.text, &n, path, GRAMMAR_BYTES_MAX, cli_interrupted, e))
            return cli_as_data(e);
        f.form.gbnf = (struct str){ f.text, n };
    }
    f.form.schema = f.schema;
    *out = f;
    return ERR_OK;
}

void cli_form_free(struct cli_form *f)
{
    json_decref(f->schema);
    free(f->text);
    *f = (struct cli_form){ 0 };
}

void cli_form_fault(const struct cli_grammar *from, struct err *e)
{
    if (strncmp(e->where, "/response_format", 16) == 0)
        err_wrap(e, "%s", from->schema);
    else if (strcmp(e->where, "/grammar") == 0)
        err_wrap(e, "%s", from->grammar);
    else if (strcmp(e->where, "/regex") == 0)
        err_wrap(e, "--regex");
}

/* One newline at the end is the line's, not the text's, unless the grammar wants it. */
static int check_text(struct grammar_place *p, struct str text)
{
    for (size_t i = 0; i < text.n; i++) {
        const bool complete = i + 1 == text.n && text.p[i] == '\n' && grammar_may_end(p);

        if (grammar_take_text(p, (struct str){ text.p + i, 1 }) && (!complete || grammar_may_end(p)))
            continue;
        if (complete)
            return EXIT_OK;
        cli_warn("the grammar does not allow byte %zu of the text", i + 1);
        return EXIT_NO;
    }
    if (grammar_may_end(p))
        return EXIT_OK;
    cli_warn("the text ends too early");
    return EXIT_NO;
}

int cli_check(const struct cli_grammar *from)
{
    struct cli_form f = { 0 };
    struct grammar *g = NULL;
    struct grammar_place *p = NULL;
    struct err e = { 0 };
    char *text = NULL;
    size_t n;
    int status;

    if (cli_form_read(&f, from, &e))
        return cli_fail(&e);
    if (ask_form_open(&g, &f.form, NULL, &e)) {
        cli_form_fault(from, &e);
        (void)cli_as_data(&e);
        status = cli_fail(&e);
    } else if (io_read_all(&text, &n, "-", CHECK_BYTES_MAX, cli_interrupted, &e) || grammar_begin(&p, g, &e))
        status = cli_fail(&e);
    else
        status = check_text(p, (struct str){ text, n });
    free(text);
    grammar_end(p);
    grammar_close(g);
    cli_form_free(&f);
    return status;
}
