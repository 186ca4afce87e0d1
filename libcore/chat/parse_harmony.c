/* SPDX-License-Identifier: Apache-2.0 */
/* parse_harmony.c - the messages of gpt-oss, each for a channel or a recipient.       room: chat
 *
 * <|start|>assistant<|channel|>commentary to=functions.x <|constrain|>json<|message|>{}<|call|>
 *
 * The prompt ends behind "<|start|>assistant". Channel "analysis" is reasoning: parsers.def has its marks, those that
 * end it in the order of `marks` here. Other channels are text, unless there is a recipient, behind the role or the
 * channel: then the message is a call.
 */
#include <string.h>
#include "chat/parse.h"

enum { HEADER, ARGUMENTS, AFTER };
enum { HEADER_BYTES_MAX = 256, N_ENDS = 3, N_HEADS = 5 };

static const char *const marks[N_ENDS + N_HEADS] = {
    "<|end|>",   "<|return|>",  "<|call|>", /* ends, then what a header may begin with */
    "<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "to=",
};

/* The word behind a mark in a header. */
static struct str word_behind(struct str h, const char *mark)
{
    const size_t n = strlen(mark);
    size_t i = 0, k;

    while (i + n <= h.n && memcmp(h.p + i, mark, n) != 0)
        i++;
    if (i + n > h.n)
        return (struct str){ "", 0 };
    for (k = i += n; k < h.n && !chat_parse_is_space(h.p[k]) && h.p[k] != '<'; k++)
        ;
    return (struct str){ h.p + i, k - i };
}

static void begin_header(struct chat_reader *r)
{
    chat_parse_mark(r);
    r->reasoning = false;
    r->in_call = true;
    r->begun = false;
    r->n_block = 0;
    r->head = r->scan;
    chat_parse_phase(r, HEADER);
}

/* A message that is no call begins at `at`. */
static void begin_text(struct chat_reader *r, size_t at, bool reasoning)
{
    chat_parse_mark(r);
    r->head = at;
    r->in_call = r->begun = false;
    r->reasoning = reasoning;
    r->thought = true; /* the first header is behind us */
    r->part[reasoning ? CHAT_REASONING : CHAT_TEXT].join = true;
}

static void end_header(struct chat_reader *r, struct str header)
{
    const struct str prefix = STR("functions.");
    struct str to = word_behind(header, "to=");

    if (to.n == 0 || r->tools == NULL) {
        const struct str open = str_of(r->syntax->think);

        begin_text(r, r->scan, r->scan >= open.n && memcmp(r->all.p + r->scan - open.n, open.p, open.n) == 0);
        return;
    }
    if (to.n > prefix.n && memcmp(to.p, prefix.p, prefix.n) == 0)
        to = (struct str){ to.p + prefix.n, to.n - prefix.n };
    r->name.from = (size_t)(to.p - r->all.p);
    r->name.to = r->name.from + to.n;
    r->begun = true;
    chat_parse_phase(r, ARGUMENTS);
    r->look = r->scan;
}

static enum chat_step read_header(struct chat_reader *r)
{
    struct chat_span span;
    enum chat_step step;
    size_t head;
    int which;

    chat_parse_space(r);
    head = r->scan;
    if (head == r->all.n)
        return CHAT_MORE;
    step = chat_parse_take_one(r, marks, N_ENDS + N_HEADS, &which);
    if (step == CHAT_MORE && !r->end)
        return step;
    if (step == CHAT_ON && which < N_ENDS) { /* the end of nothing */
        begin_header(r);
        return CHAT_ON;
    }
    r->scan = head;
    if (r->probe < head)
        r->probe = head;
    if (step != CHAT_ON) { /* text without a header */
        begin_text(r, head, false);
        return CHAT_ON;
    }
    step = chat_parse_until(r, "<|message|>", HEADER_BYTES_MAX, "\n{", &span);
    if (step == CHAT_ON)
        end_header(r, chat_parse_slice(r, span));
    if (step != CHAT_BAD)
        return step;
    begin_text(r, head, false); /* a mark without a header: the mark is text */
    r->head += strlen(marks[which]);
    chat_parse_say(r, CHAT_TEXT, chat_parse_slice(r, (struct chat_span){ head, r->head }));
    return CHAT_ON;
}

/* The object of a call; nothing at all is an empty one. */
static enum chat_step read_arguments(struct chat_reader *r)
{
    const struct str name = chat_parse_slice(r, r->name);
    enum chat_step step;
    int which;

    if (r->probe == r->scan) {
        chat_parse_space(r);
        r->probe = r->scan;
        if (r->scan == r->all.n)
            return CHAT_MORE;
        if (r->all.p[r->scan] == '{')
            chat_parse_begin(r, STR(""), name, r->scan);
    }
    const size_t scan = r->scan;
    if (r->all.p[scan] == '{') {
        step = chat_parse_take_args(r);
    } else {
        step = chat_parse_take_one(r, marks, N_ENDS, &which);
        r->scan = scan;
        r->args.n = 0;
        text_buf_addz(&r->args, "{}");
    }
    if (step == CHAT_MORE)
        return step;
    if (step == CHAT_ON && chat_parse_give(r, STR(""), name)) {
        chat_parse_phase(r, AFTER);
        return CHAT_ON;
    }
    chat_parse_fail_call(r);
    begin_text(r, r->look, false);
    return CHAT_ON;
}

/* Behind a call: the mark that ends it, or another header. */
static enum chat_step read_after(struct chat_reader *r)
{
    enum chat_step step;
    int which;

    chat_parse_space(r);
    const size_t scan = r->scan;
    step = chat_parse_take_one(r, marks, N_ENDS + 2, &which);
    if (step == CHAT_MORE)
        return step;
    if (step == CHAT_ON && which >= N_ENDS)
        r->scan = scan;
    chat_parse_call_over(r);
    if (step == CHAT_ON)
        begin_header(r);
    return CHAT_ON;
}

enum chat_step chat_call_harmony(struct chat_reader *r)
{
    if (r->phase == HEADER)
        return read_header(r);
    return r->phase == ARGUMENTS ? read_arguments(r) : read_after(r);
}

enum chat_step chat_text_harmony(struct chat_reader *r)
{
    size_t at;
    int which;

    if (!r->thought) {
        r->thought = true;
        r->scan = r->head;
        begin_header(r);
        return CHAT_ON;
    }
    const bool found = chat_parse_search(r, r->head, r->syntax->think_end, TEXT_MARK_CLOSERS, &at, &which);
    chat_parse_say(r, r->reasoning ? CHAT_REASONING : CHAT_TEXT,
                   chat_parse_slice(r, (struct chat_span){ r->head, at }));
    r->head = at;
    if (!found)
        return CHAT_MORE;
    r->scan = at + (which < N_ENDS ? strlen(r->syntax->think_end[which]) : 0);
    begin_header(r);
    return CHAT_ON;
}
