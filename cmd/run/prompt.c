/* SPDX-License-Identifier: Apache-2.0 */
/* prompt.c - what the model will see of options, files and the session.           room: cmd */
#include <stdlib.h>
#include <string.h>
#include "run/program.h"
#include "text/text.h"

enum err_code cli_run_encode(struct opened *s, struct err *e)
{
    const struct text_info *info = text_info(s->open.text);
    struct str text = { s->rendered.p, s->rendered.n };
    bool begins = s->prompt.n == 0;
    unsigned flags = (s->o->plain ? 0 : TEXT_SPECIAL) | (begins ? TEXT_ADD : 0);

    if (text_encode(s->open.text, text, flags, &s->prompt, e))
        return e->code;
    /* A text to go on from does not end. */
    if (begins && info->add_eos && s->prompt.n > 0 && s->prompt.v[s->prompt.n - 1] == info->eos)
        s->prompt.n--;
    return ERR_OK;
}

static enum err_code read_tokens_file(struct opened *s, struct err *e)
{
    struct cli_buf b = { 0 };
    enum err_code code = cli_read_prompt(&b, NULL, (char *const[]){ (char *)(uintptr_t)s->o->tokens, NULL }, e);

    if (code == ERR_OK)
        code = cli_read_ids(&s->prompt, (struct str){ b.p, b.n }, cli_file_name(s->o->tokens), e);
    cli_buf_free(&b);
    return code;
}

enum err_code cli_run_format(struct opened *s, struct err *e)
{
    struct cli_buf b = { 0 };
    enum err_code code = ERR_OK;

    if (s->format != NULL)
        return ERR_OK;
    if (s->o->template_file != NULL)
        code = cli_read_template(&b, s->o->template_file, e);
    if (code == ERR_OK)
        code = chat_open(&s->format, s->open.text, (struct str){ b.p, b.n }, e);
    cli_buf_free(&b);
    return code;
}

enum err_code cli_run_notes(struct opened *s, struct err *e)
{
    if (s->o->examples != NULL && s->notes.r == NULL &&
        cli_notes_open(&s->notes, s->o->examples, s->open.gguf, s->open.text, e))
        return e->code;
    if (s->o->recite != NULL && s->named.r == NULL &&
        cli_notes_open(&s->named, s->o->recite, s->open.gguf, s->open.text, e))
        return e->code;
    return ERR_OK;
}

/* What the model will see: tokens of a chat or a file, or else text (s->rendered). */
enum err_code cli_run_prompt(struct opened *s, char *const *files, struct err *e)
{
    if (s->o->tokens != NULL)
        return cli_session_same_kind(&s->kept, false, e) ? e->code : read_tokens_file(s, e);
    s->chat = !s->o->raw && !s->o->tokenize && !s->o->detokenize &&
              (s->o->template_file != NULL || text_info(s->open.text)->chat_template.n > 0);
    if (s->kept.begun && s->o->messages == NULL) {
        if (s->o->system != NULL && !cli_session_same_system(&s->kept, s->o->system))
            return err_set(
                e, ERR_ARG,
                "%s: the session has begun with another system message: leave --system out, or name another file",
                s->o->session);
        if (cli_session_prefix(&s->kept, s->open.text, s->chat, &s->prompt, e))
            return e->code;
    }
    if (s->o->messages != NULL && cli_session_same_kind(&s->kept, s->chat, e))
        return e->code;
    if (!s->kept.begun || s->o->messages != NULL)
        cli_session_set_system(&s->kept, s->o->system);
    if ((s->o->examples != NULL || s->o->recite != NULL) && !s->chat)
        return err_set(e, ERR_UNSUPPORTED, "%s: has no chat template, so no --examples and --recite", s->open.path);
    if (cli_run_notes(s, e))
        return e->code;
    if (s->chat) {
        const struct cli_chat c = { .system = s->prompt.n > 0 ? NULL : s->o->system,
                                    .messages = s->o->messages,
                                    .tools = s->o->tools,
                                    .prompt = s->o->prompt,
                                    .files = files,
                                    .kwargs = s->o->kwargs,
                                    .no_tools = s->o->tool_choice != NULL && strcmp(s->o->tool_choice, "none") == 0,
                                    .think = s->o->think == 0 && s->o->budget != 0,
                                    .follows = s->prompt.n > 0,
                                    .notes = s->notes.r != NULL ? &s->notes : NULL,
                                    .named = s->named.r != NULL ? &s->named : NULL,
                                    .what = &s->recited };

        if (cli_run_format(s, e))
            return e->code;
        return cli_render_chat(&s->prompt, s->o->show_prompt ? &s->rendered : NULL, &s->thinking, &s->tools, s->format,
                               &c, e);
    }
    if (s->o->system || s->o->messages || s->o->tools)
        return err_set(e, ERR_UNSUPPORTED, "%s: has no chat template, so no messages or tools", s->open.path);
    if (cli_read_prompt(&s->rendered, s->o->prompt, files, e))
        return e->code;
    /* A raw session may go on without new text, but not because a pipe was empty. */
    if (s->rendered.n == 0 && !s->o->tokenize && !s->o->detokenize && (s->o->prompt == NULL || s->prompt.n == 0))
        return err_set(e, ERR_ARG, "the prompt is empty");
    return ERR_OK;
}
