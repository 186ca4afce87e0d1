/* SPDX-License-Identifier: Apache-2.0 */
/* prompt.c - where the text of a prompt comes from: options, files, stdin.  room: cmd */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/io.h"
#include "cli/cli.h"

#define PROMPT_MAX (1U << 30) /* bytes */

bool cli_is_stdin(const char *path)
{
    return path != NULL && strcmp(path, "-") == 0;
}

const char *cli_file_name(const char *path)
{
    return cli_is_stdin(path) ? "standard input" : path;
}

static enum err_code add_file(struct cli_buf *out, const char *path, struct err *e)
{
    char *data;
    size_t n;
    enum err_code code;

    if (strcmp(path, "-") == 0 && isatty(STDIN_FILENO) && cli_verbosity() >= 0)
        fprintf(stderr, "%s: type the prompt; ^D on a line of its own ends it\n", cli_name());
    if (io_read_text(&data, &n, path, PROMPT_MAX, cli_interrupted, e)) {
        const bool absent = access(path, F_OK) != 0;

        if (absent && strpbrk(path, " ?\n") != NULL)
            return err_set(e, ERR_ARG, "'%.100s': no such file; a prompt is given by -p 'TEXT'", path);
        return e->code;
    }
    code = cli_buf_add(out, (struct str){ data, n }, e);
    free(data);
    return code;
}

static enum err_code add_prompt(struct cli_buf *b, const char *text, char *const *files, struct err *e)
{
    if (cli_buf_add(b, str_of(text ? text : ""), e))
        return e->code;
    if (text == NULL && *files == NULL)
        return add_file(b, "-", e);
    if (text != NULL && *files != NULL && cli_buf_add(b, STR("\n"), e))
        return e->code;
    for (const bool alone = text == NULL && files[1] == NULL; *files != NULL; files++) {
        const size_t before = b->n;

        if (add_file(b, *files, e))
            return e->code;
        if (b->n == before && !alone) /* what should write it may have failed; alone it is an error */
            cli_warn("%s: is empty", cli_file_name(*files));
    }
    return ERR_OK;
}

void cli_tell_encoding(const char *what, struct str s)
{
    size_t at = 0, n = 1;

    for (; at < s.n && n > 0; at += n)
        n = str_utf8((struct str){ s.p + at, s.n - at });
    if (n == 0)
        cli_warn("%s is not UTF-8, at byte %zu; iconv(1) converts other encodings", what, at);
}

enum err_code cli_read_prompt(struct cli_buf *out, const char *text, char *const *files, struct err *e)
{
    struct cli_buf b = { 0 };
    enum err_code code = add_prompt(&b, text, files, e);

    if (code) {
        cli_buf_free(&b);
        return code;
    }
    cli_tell_encoding("the text", (struct str){ b.p, b.n });
    *out = b;
    return ERR_OK;
}

enum err_code cli_read_template(struct cli_buf *out, const char *path, struct err *e)
{
    if (cli_read_prompt(out, NULL, (char *const[]){ (char *)(uintptr_t)path, NULL }, e))
        return e->code;
    if (out->n > 0)
        return ERR_OK;
    cli_buf_free(out);
    return err_set(e, ERR_FORMAT, "%s: is empty", cli_file_name(path));
}

enum err_code cli_text_of(char **out, const char *arg, struct err *e)
{
    char *text;
    size_t n;

    if (arg == NULL || arg[0] != '@') {
        *out = arg != NULL ? strdup(arg) : NULL;
        return arg == NULL || *out != NULL ? ERR_OK : err_nomem(e);
    }
    if (io_read_text(&text, &n, arg + 1, PROMPT_MAX, cli_interrupted, e))
        return e->code;
    while (n > 0 && text[n - 1] == '\n') /* the end of a file is not part of it */
        n--;
    if (memchr(text, '\0', n) != NULL) {
        free(text);
        return err_set(e, ERR_FORMAT, "%s: is no text", cli_file_name(arg + 1));
    }
    text[n] = '\0';
    cli_tell_encoding(cli_file_name(arg + 1), (struct str){ text, n });
    *out = text;
    return ERR_OK;
}
