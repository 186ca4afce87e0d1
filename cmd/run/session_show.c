/* SPDX-License-Identifier: Apache-2.0 */
/* session_show.c - what a session holds: shown, compared, made shorter.               room: cmd */
#include <stdlib.h>
#include "run/transcript.h"
#include "gguf/gguf.h"
#include "run/program.h"
#include "run/session.h"
#include "text/text.h"

/* Tokens of another vocabulary would be read as nonsense. */
static enum err_code check_tokenizer(const struct cli_run *s, struct err *e)
{
    const struct run_session_id id = run_session_of(s->kept.file);

    if (id.name == NULL || id.tokenizer == text_fingerprint(s->open.gguf))
        return ERR_OK;
    return err_set(e, ERR_FORMAT, "%s: a session of the model '%s', whose tokens are not those of %s", s->kept.path,
                   id.name, s->open.path);
}

static enum err_code show_json(const struct cli_run *s, json_t *messages, struct err *e)
{
    const struct run_session_id id = run_session_of(s->kept.file);
    const struct run_session_stat st = run_session_stat(s->kept.file);
    const char *k, *v;
    char kv[32] = "";
    json_t *top;

    run_session_kv(s->kept.file, &k, &v);
    if (k != NULL)
        snprintf(kv, sizeof kv, "%s,%s", k, v);
    top = json_pack("{s:s, s:o, s:o, s:I, s:I, s:i, s:s?}", "type", "session", "file", json_bytes(str_of(s->kept.path)),
                    "model", id.name != NULL ? json_bytes(str_of(id.name)) : json_null(), "n_tokens",
                    (json_int_t)s->kept.held.n, "file_bytes", (json_int_t)st.file_bytes, "n_snapshots", st.snapshots,
                    "kv", k != NULL ? kv : NULL);
    return cli_json_line(json_if(cli_json_set(top, s->kept.chat ? "messages" : "text", json_incref(messages)), top), e);
}

static enum err_code show_text(const struct cli_run *s, struct err *e)
{
    char *p;
    size_t n;
    json_t *text;
    enum err_code code = ERR_OK;

    if (text_decode(s->open.text, s->kept.held.v, s->kept.held.n, TEXT_SPECIAL, &p, &n, e))
        return e->code;
    text = json_bytes((struct str){ p, n });
    if (text == NULL)
        code = err_nomem(e);
    else if (s->o->json)
        code = show_json(s, text, e);
    else
        fwrite(p, 1, n, stdout);
    json_decref(text);
    free(p);
    return code;
}

enum err_code cli_run_show(struct cli_run *s, char *const *files, int *status, struct err *e)
{
    struct cli_transcript x = { 0 };
    enum err_code code;

    if (cli_open(&s->open, &s->o->model, e) || cli_open_text(&s->open, true, e))
        return e->code;
    if (*files != NULL && files[1] != NULL)
        return cli_session_list(s, files, status, e);
    if (cli_session_open(&s->kept, s->o->session, true, e) || check_tokenizer(s, e))
        return e->code;
    if (s->kept.begun && !s->kept.chat)
        return show_text(s, e) ? e->code : cli_flush_stdout(e);
    s->kept.chat = true; /* also of one that has not begun */
    if (cli_run_format(s, e) || cli_transcript_read(&x, s->format, s->open.text, &s->kept.held, e))
        return e->code;
    code = ERR_OK;
    if (s->o->json)
        code = show_json(s, x.messages, e);
    else
        cli_transcript_print(x.messages);
    cli_transcript_free(&x);
    return code ? code : cli_flush_stdout(e);
}

enum err_code cli_run_drop_oldest(struct cli_run *s, int64_t ctx_tokens, struct err *e)
{
    struct cli_transcript x = { 0 };
    int dropped = 0;
    enum err_code code = ERR_OK;

    if (prompt_of(s)->n <= ctx_tokens - ctx_tokens / 4)
        return ERR_OK;
    if (cli_transcript_read(&x, s->format, s->open.text, prompt_of(s), e))
        return e->code;
    /* The beginning of the answer is no message yet. */
    if (cli_transcript_last(&x, "assistant") > cli_transcript_last(&x, "user"))
        json_array_remove(x.messages, json_array_size(x.messages) - 1);
    json_t *notes = json_incref(s->asked->notes);

    s->ask.messages = x.messages; /* they come whole, with the notes that they got */
    s->ask.n_token = 0;
    s->ask.tools_are_told = true;
    s->ask.notes = NULL;
    do {
        if (!cli_transcript_drop(x.messages))
            break;
        dropped++;
        code = cli_run_ask(s, e);
    } while (code == ERR_OK && prompt_of(s)->n > ctx_tokens / 2); /* so that not every turn has to */
    s->ask.messages = s->messages;
    if (code == ERR_OK && s->asked->notes == NULL)
        s->asked->notes = json_incref(notes);
    json_decref(notes);
    cli_transcript_free(&x);
    if (dropped > 0 && code == ERR_OK)
        cli_warn("%s%sthe context is full: the oldest %s left out", s->o->session != NULL ? s->o->session : "",
                 s->o->session != NULL ? ": " : "", dropped == 1 ? "turn is" : "turns are");
    return code;
}
