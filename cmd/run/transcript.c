/* SPDX-License-Identifier: Apache-2.0 */
/* transcript.c - the tokens of a conversation, back to messages (transcript.h).        room: cmd */
#include "run/transcript.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "chat/chat.h"
#include "chat/reader.h"
#include "cli/cli.h"
#include "text/marks.h"
#include "text/text.h"

enum { SYSTEM, USER, ASSISTANT, N_ROLES };
static const char *const role_names[N_ROLES] = { "system", "user", "assistant" };
/* What the messages of the small conversation say: it appears nowhere else. */
static const char *const says[] = { "Qzqsystem", "Qzqone", "Qzqtwo", "Qzqthree" };
static const int said_by[] = { SYSTEM, USER, ASSISTANT, USER };
enum { N_SAYS = 4 };

/* What stands around the text of a message. */
struct frame {
    char *open, *close; /* open NULL: not learned */
    int64_t close_tokens;
};

static void free_frames(struct frame f[N_ROLES])
{
    for (int i = 0; i < N_ROLES; i++) {
        free(f[i].open);
        free(f[i].close);
    }
}

static enum err_code decode_tokens(const struct text *t, const int32_t *v, int64_t n, char **out, struct err *e)
{
    size_t bytes;

    return text_decode(t, v, n, TEXT_SPECIAL, out, &bytes, e);
}

/* How many of the last tokens come after what the message says. */
static enum err_code tokens_after(int64_t *out, const struct text *t, const int32_t *v, int64_t n, const char *said,
                                  struct err *e)
{
    for (int64_t k = 1; k <= n; k++) {
        char *s;
        bool reaches;

        if (decode_tokens(t, v + n - k, k, &s, e))
            return e->code;
        reaches = strchr(s, said[strlen(said) - 1]) != NULL && strstr(s, said + strlen(said) - 1) != NULL;
        free(s);
        if (reaches) {
            *out = k - 1;
            return ERR_OK;
        }
    }
    *out = n;
    return ERR_OK;
}

/* One message of the small conversation. */
static enum err_code learn_frame(struct frame *f, const struct chat *format, const struct text *t, const int32_t *v,
                                 int64_t n, const char *said, struct err *e)
{
    const struct text_marks *marks = chat_marks(format);
    char *s, *at, *reasoning = NULL;
    enum err_code code = ERR_OK;

    if (decode_tokens(t, v, n, &s, e))
        return e->code;
    at = strstr(s, said);
    if (at != NULL && f->open == NULL) {
        f->close = strdup(at + strlen(said));
        *at = '\0';
        /* Reasoning belongs to the message, also where there is none. */
        if (marks != NULL && (reasoning = strstr(s, marks->open.p)) != NULL)
            *reasoning = '\0';
        f->open = strdup(s);
        if (f->open == NULL || f->close == NULL)
            code = err_nomem(e);
        else
            code = tokens_after(&f->close_tokens, t, v, n, said, e);
    }
    free(s);
    return code;
}

/* A conversation of the small one's messages from `first` on. */
static enum err_code probe_frames(struct frame f[N_ROLES], const struct chat *format, const struct text *t, int first,
                                  struct err *e)
{
    json_t *all = json_array();
    struct text_tokens v = { 0 };
    int64_t at[N_SAYS + 4];
    bool thinking, ok = all != NULL;
    enum err_code code;
    int n;

    for (int i = first; i < N_SAYS && ok; i++)
        ok = json_array_append_new(all, json_pack("{s:s, s:s}", "role", role_names[said_by[i]], "content", says[i])) ==
             0;
    code = ok ? chat_render(format, &(struct chat_prompt){ .messages = all }, &v, &thinking, e) : err_nomem(e);
    n = code == ERR_OK ? chat_borders(format, v.v, v.n, at + 1, N_SAYS + 2) : 0;
    at[0] = 0;
    at[n + 1] = v.n;
    for (int k = 0; code == ERR_OK && k <= n; k++)
        for (int i = first; code == ERR_OK && i < N_SAYS; i++)
            code = learn_frame(&f[said_by[i]], format, t, v.v + at[k], at[k + 1] - at[k], says[i], e);
    text_tokens_free(&v);
    json_decref(all);
    return code;
}

static enum err_code learn_frames(struct frame f[N_ROLES], const struct chat *format, const struct text *t,
                                  struct err *e)
{
    /* Without the system message first: some templates put that into the user's. One that refuses it has none. */
    if (probe_frames(f, format, t, 1, e) || (probe_frames(f, format, t, 0, e) && e->code == ERR_NOMEM))
        return e->code;
    if (f[USER].open == NULL || f[ASSISTANT].open == NULL || *f[USER].open == '\0' ||
        strcmp(f[USER].open, f[ASSISTANT].open) == 0)
        return err_set(e, ERR_UNSUPPORTED, "the chat template does not show where messages begin");
    return ERR_OK;
}

/* The role whose frame a text begins with, the longest one; -1: none. */
static int role_of(const struct frame f[N_ROLES], const char *s)
{
    int best = -1;
    size_t longest = 0;

    for (int i = 0; i < N_ROLES; i++) {
        size_t n = f[i].open != NULL ? strlen(f[i].open) : 0;

        if (n > longest && strncmp(s, f[i].open, n) == 0) {
            best = i;
            longest = n;
        }
    }
    return best;
}

/* Takes the end of a frame from a text, as far as it is there: the last message has none, or a part. */
static size_t without_close(const char *s, size_t n, const char *close)
{
    size_t m = strlen(close), least = m;

    while (least > 0 && strchr(" \r\n\t", close[least - 1]) != NULL)
        least--;
    for (; m >= least && m > 0; m--)
        if (n >= m && memcmp(s + n - m, close, m) == 0)
            return n - m;
    return n;
}

/* What an assistant wrote: reasoning and text, by the model's marks. */
static enum err_code read_answer(json_t **out, const struct chat *format, struct str s, struct err *e)
{
    const struct chat_reader_opts o = { .parser = chat_parser(format) };
    const struct chat_piece *v;
    struct chat_reader *r;
    json_t *read = NULL, *reasoning, *m;
    int n;
    enum err_code code;

    if (chat_reader_open(&r, &o, e))
        return e->code;
    code = chat_read(r, s, true, &v, &n, e) ? e->code : chat_reader_result(&read, r, e);
    chat_reader_close(r);
    if (code)
        return code;
    reasoning = json_object_get(read, "reasoning");
    m = json_pack("{s:s, s:O}", "role", "assistant", "content", json_object_get(read, "content"));
    if (json_string_length(reasoning) > 0)
        m = json_if(json_object_set(m, "reasoning_content", reasoning) == 0, m);
    json_decref(read);
    *out = m;
    return m != NULL ? ERR_OK : err_nomem(e);
}

/* The message of some tokens, NULL: none that was learned. */
static enum err_code read_message(json_t **out, int *role, const struct frame f[N_ROLES], const struct chat *format,
                                  const struct text *t, const int32_t *v, int64_t n, struct err *e)
{
    char *s, *at;
    size_t bytes;
    enum err_code code = ERR_OK;

    *out = NULL;
    if (text_decode(t, v, n, TEXT_SPECIAL, &s, &bytes, e))
        return e->code;
    *role = role_of(f, s);
    if (*role >= 0) {
        at = s + strlen(f[*role].open);
        bytes = without_close(at, bytes - (size_t)(at - s), f[*role].close);
        if (*role == ASSISTANT)
            code = read_answer(out, format, (struct str){ at, bytes }, e);
        else if ((*out = json_pack("{s:s, s:o}", "role", role_names[*role], "content",
                                   json_bytes((struct str){ at, bytes }))) == NULL)
            code = err_nomem(e);
    }
    free(s);
    return code;
}

static enum err_code read_all(struct cli_transcript *x, const struct frame f[N_ROLES], const struct chat *format,
                              const struct text *t, const struct text_tokens *v, int64_t *at, struct err *e)
{
    const int n = chat_borders(format, v->v, v->n, at + 1, (int)(v->n < INT32_MAX ? v->n : INT32_MAX - 2));
    int64_t close = 0; /* tokens that end the message before */

    at[0] = 0;
    at[n + 1] = v->n;
    for (int k = 0; k <= n; k++) {
        json_t *m;
        int role = -1;

        if (read_message(&m, &role, f, format, t, v->v + at[k], at[k + 1] - at[k], e))
            return e->code;
        if (m == NULL)
            continue;
        x->from[json_array_size(x->messages)] = at[k] > close ? at[k] - close : 0;
        if (json_array_append_new(x->messages, m))
            return err_nomem(e);
        close = f[role].close_tokens;
    }
    return ERR_OK;
}

enum err_code cli_transcript_read(struct cli_transcript *out, const struct chat *format, const struct text *t,
                                  const struct text_tokens *v, struct err *e)
{
    struct frame f[N_ROLES] = { 0 };
    struct cli_transcript x = { json_array(), calloc((size_t)v->n + 2, sizeof *x.from) };
    int64_t *at = calloc((size_t)v->n + 2, sizeof *at);
    enum err_code code =
        x.messages != NULL && x.from != NULL && at != NULL ? learn_frames(f, format, t, e) : err_nomem(e);

    if (code == ERR_OK)
        code = read_all(&x, f, format, t, v, at, e);
    free_frames(f);
    free(at);
    if (code == ERR_OK)
        *out = x;
    else
        cli_transcript_free(&x);
    return code;
}

void cli_transcript_free(struct cli_transcript *x)
{
    json_decref(x->messages);
    free(x->from);
    *x = (struct cli_transcript){ 0 };
}

static bool is_of(const json_t *messages, size_t i, const char *role)
{
    const char *s = json_string_value(json_object_get(json_array_get(messages, i), "role"));

    return s != NULL && strcmp(s, role) == 0;
}

int cli_transcript_last(const struct cli_transcript *x, const char *role)
{
    int i = (int)json_array_size(x->messages) - 1;

    while (i >= 0 && !is_of(x->messages, (size_t)i, role))
        i--;
    return i;
}

bool cli_transcript_drop(json_t *messages)
{
    size_t n = json_array_size(messages), from = 0, to;

    while (from < n && !is_of(messages, from, "user"))
        from++;
    for (to = from + 1; to < n && !is_of(messages, to, "user");)
        to++;
    if (to >= n)
        return false;
    for (; to > from; to--)
        json_array_remove(messages, from);
    return true;
}

static void print_part(const char *title, const json_t *text)
{
    const size_t n = json_string_length(text);

    if (n == 0)
        return;
    printf("[%s]\n", title);
    fwrite(json_string_value(text), 1, n, stdout);
    puts(json_string_value(text)[n - 1] == '\n' ? "" : "\n");
}

void cli_transcript_print(const json_t *messages)
{
    size_t i;
    json_t *m;

    json_array_foreach (messages, i, m) {
        print_part("reasoning", json_object_get(m, "reasoning_content"));
        print_part(json_string_value(json_object_get(m, "role")), json_object_get(m, "content"));
    }
}
