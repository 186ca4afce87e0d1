/* SPDX-License-Identifier: Apache-2.0 */
/* parse.c - an answer on stdin, split as a family of models writes it .  room: cmd
 *
 * For scripts that have a model's text from elsewhere, and for those who look into why a call was
 * not read: no model is opened.
 */
#include <stdlib.h>
#include "base/io.h"
#include "chat/reader.h"
#include "run/program.h"

static enum err_code read_answer(json_t **out, struct chat_reader *r, struct err *e)
{
    const struct chat_piece *pieces;
    char *data;
    size_t n;
    int n_pieces;
    enum err_code code;

    if (io_read_all(&data, &n, "-", CHAT_ANSWER_BYTES_MAX, cli_interrupted, e))
        return e->code;
    code = chat_read(r, (struct str){ data, n }, true, &pieces, &n_pieces, e);
    free(data);
    return code ? code : chat_reader_result(out, r, e);
}

enum err_code cli_run_parse(struct cli_run *s, char *const *files, int *status, struct err *e)
{
    const struct cli_parse_opts *o = &s->o->parse;
    struct chat_reader *r = NULL;
    json_t *tools = NULL, *result = NULL;
    enum err_code code = ERR_OK;

    (void)files, (void)status;
    if (s->o->tools != NULL)
        code = cli_json_file(&tools, s->o->tools, e);
    if (code == ERR_OK)
        code = chat_reader_open(
            &r, &(struct chat_reader_opts){ .parser = o->format, .tools = tools, .reasoning = o->reasoning }, e);
    json_decref(tools);
    if (code == ERR_OK)
        code = read_answer(&result, r, e);
    chat_reader_close(r);
    return code ? code : cli_json_line(result, e);
}
