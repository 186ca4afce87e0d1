/* SPDX-License-Identifier: Apache-2.0 */
/* prompt.c - what the model will see of options, files and the session; tokens and back.     room: cmd (cli_) */
#include <stdlib.h>
#include <string.h>
#include "run/program.h"
#include "text/text.h"

/* Whether the prompt ends inside a reasoning block. */
static bool opens_thinking(const struct opened *s)
{
    const struct text_info *info = text_info(s->open.text);

    for (int64_t i = s->prompt.n - 1; i >= 0 && info->think_open >= 0; i--) {
        if (s->prompt.v[i] == info->think_open)
            return true;
        if (s->prompt.v[i] == info->think_close)
            return false;
    }
    return false;
}

enum err_code cli_run_encode(struct opened *s, struct err *e)
{
    const struct text_info *info = text_info(s->open.text);
    struct str              text = { s->rendered.p, s->rendered.n };
    bool     begins = !s->chat && s->prompt.n == 0;
    unsigned flags = (o.plain && !s->chat ? 0 : TEXT_SPECIAL) | (begins ? TEXT_ADD : 0);

    if (text_encode(s->open.text, text, flags, &s->prompt, e))
        return e->code;
    /* A text to go on from does not end. */
    if (begins && info->add_eos && s->prompt.n > 0 && s->prompt.v[s->prompt.n - 1] == info->eos)
        s->prompt.n--;
    s->thinking = s->chat && opens_thinking(s);
    return ERR_OK;
}

static enum err_code read_tokens_file(struct opened *s, struct err *e)
{
    struct cli_buf b = { 0 };
    enum err_code  code =
        cli_read_prompt(&b, NULL, (char *const[]){ (char *)(uintptr_t)o.tokens, NULL }, e);

    if (code == ERR_OK)
        code = cli_read_ids(&s->prompt, (struct str){ b.p, b.n }, o.tokens, e);
    cli_buf_free(&b);
    return code;
}

/* What the model will see, as text (s->rendered) unless it is given as tokens. */
enum err_code cli_run_prompt(struct opened *s, char *const *files, struct err *e)
{
    if (o.tokens != NULL)
        return read_tokens_file(s, e);
    s->chat = !o.raw && !o.tokenize && !o.detokenize && text_has_chat(s->open.text);
    if (s->kept.begun && o.messages == NULL) {
        if (o.system || o.tools)
            return err_set(e, ERR_ARG, "%s: the session has begun: too late for --system and --tools",
                           o.session);
        if (cli_session_prefix(&s->kept, s->open.text, s->chat, &s->prompt, &s->rendered, e))
            return e->code;
    }
    if (s->chat)
        return cli_render_chat(&s->rendered, s->open.text,
                               &(struct cli_chat){ o.system, o.messages, o.tools, o.prompt, files,
                                                   o.think == 0 && o.budget != 0 },
                               e);
    if (o.system || o.messages || o.tools)
        return err_set(e, ERR_UNSUPPORTED, "%s: has no chat template, so no messages or tools",
                       s->open.path);
    return cli_read_prompt(&s->rendered, o.prompt, files, e);
}

enum err_code cli_run_tokenize(struct opened *s, struct err *e)
{
    struct str text = { s->rendered.p, s->rendered.n };
    unsigned   flags = (o.plain ? 0 : TEXT_SPECIAL) | (o.raw ? TEXT_ADD : 0);

    if (text_encode(s->open.text, text, flags, &s->prompt, e))
        return e->code;
    putchar('[');
    for (int64_t i = 0; i < s->prompt.n; i++)
        printf("%s%d", i ? "," : "", s->prompt.v[i]);
    puts("]");
    return cli_flush_stdout(e);
}

enum err_code cli_run_detokenize(struct opened *s, struct err *e)
{
    char  *bytes;
    size_t n;

    if (cli_read_ids(&s->prompt, (struct str){ s->rendered.p, s->rendered.n }, "prompt", e) ||
        text_decode(s->open.text, s->prompt.v, s->prompt.n, o.plain ? 0 : TEXT_SPECIAL, &bytes, &n,
                    e))
        return e->code;
    fwrite(bytes, 1, n, stdout);
    free(bytes);
    return cli_flush_stdout(e);
}
