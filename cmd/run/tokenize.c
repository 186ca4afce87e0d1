/* SPDX-License-Identifier: Apache-2.0 */
/* tokenize.c - a prompt as token ids or as the model would see it, and token ids as text.          room: cmd */
#include <inttypes.h>
#include <stdlib.h>
#include "run/program.h"
#include "text/text.h"

/* The prompt as text, or the messages of a chat. */
static enum err_code read_prompt(struct cli_run *s, char *const *files, struct err *e)
{
    return cli_open(&s->open, &s->o->model, e) || cli_open_text(&s->open, true, e) || cli_run_question(s, files, e)
               ? e->code
               : ERR_OK;
}

enum err_code cli_run_show_prompt(struct cli_run *s, char *const *files, int *status, struct err *e)
{
    char *text = NULL;
    size_t n = 0;

    (void)status;
    if (read_prompt(s, files, e))
        return e->code;
    const struct ask_model m = cli_run_model(s);

    if (s->chat && ask_prompt_text(&text, &n, &s->ask, &m, e))
        return cli_as_data(e);
    fwrite(s->chat ? text : s->rendered.p, 1, s->chat ? n : s->rendered.n, stdout);
    free(text);
    return cli_flush_stdout(e);
}

enum err_code cli_run_tokenize(struct cli_run *s, char *const *files, int *status, struct err *e)
{
    const unsigned flags = (s->o->plain ? 0 : TEXT_SPECIAL) | (s->o->raw ? TEXT_ADD : 0);

    (void)status;
    if (read_prompt(s, files, e) ||
        text_encode(s->open.text, (struct str){ s->rendered.p, s->rendered.n }, flags, &s->before, e))
        return e->code;
    putchar('[');
    for (int64_t i = 0; i < s->before.n; i++)
        printf("%s%d", i ? "," : "", s->before.v[i]);
    puts("]");
    return cli_flush_stdout(e);
}

enum err_code cli_run_detokenize(struct cli_run *s, char *const *files, int *status, struct err *e)
{
    char *bytes;
    size_t n;

    (void)status;
    if (read_prompt(s, files, e) || cli_read_ids(&s->before, (struct str){ s->rendered.p, s->rendered.n }, "prompt", e))
        return e->code;
    for (int64_t i = 0, n_vocab = text_info(s->open.text)->n_tokens; i < s->before.n; i++)
        if (s->before.v[i] >= n_vocab)
            return err_set(e, ERR_FORMAT, "prompt: token %" PRId64 " is %" PRId32 ", the model has %" PRId64, i,
                           s->before.v[i], n_vocab);
    if (text_decode(s->open.text, s->before.v, s->before.n, s->o->plain ? 0 : TEXT_SPECIAL, &bytes, &n, e))
        return e->code;
    fwrite(bytes, 1, n, stdout);
    free(bytes);
    return cli_flush_stdout(e);
}
