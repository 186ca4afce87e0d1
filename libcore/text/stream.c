/* SPDX-License-Identifier: Apache-2.0 */
/* stream.c - tokens in, whole characters out, with stop strings.                room: text
 *
 * What comes out does not depend on how the text is cut into tokens: a stop string counts at the
 * character that completes it; of several that end there the longest wins.
 */
#include <stdlib.h>
#include <string.h>
#include "text/buf.h"
#include "text/vocab.h"

struct text_stream {
    const struct text *t;
    struct str *stops;
    size_t n_stops, given; /* bytes of text that the caller has */
    struct text_buf text;  /* whole characters */
    char tail[8];          /* the beginning of a character */
    size_t n_tail;
    bool stopped;
    size_t stop; /* which stop string, if stopped */
    struct arena mem;
};

enum err_code text_stream_open(struct text_stream **out, const struct text *t, const struct str *stops, size_t n_stops,
                               struct err *e)
{
    struct text_stream *s = calloc(1, sizeof *s);
    size_t len;

    if (s == NULL)
        return err_nomem(e);
    s->t = t;
    s->n_stops = n_stops;
    s->stops = arena_array(&s->mem, n_stops, sizeof *s->stops);
    for (size_t i = 0; i < n_stops && s->stops != NULL; i++) {
        bool valid = stops[i].n > 0;
        for (size_t k = 0; k < stops[i].n && valid; k += len)
            valid = text_utf8_get(stops[i].p + k, stops[i].n - k, &len) != TEXT_BAD || len > 1;
        if (!valid) {
            text_stream_close(s);
            return err_set(e, ERR_ARG, "stop string %zu is empty or not UTF-8", i + 1);
        }
        s->stops[i] = (struct str){ arena_strdup(&s->mem, stops[i]), stops[i].n };
        if (s->stops[i].p == NULL)
            s->stops = NULL;
    }
    if (s->stops == NULL) {
        text_stream_close(s);
        return err_nomem(e);
    }
    *out = s;
    return ERR_OK;
}

void text_stream_close(struct text_stream *s)
{
    if (s == NULL)
        return;
    free(s->text.p);
    arena_free(&s->mem);
    free(s);
}

/* Looks at the stop strings that end the text; the length of the longest, or 0. */
static size_t stop_at_end(struct text_stream *s)
{
    size_t best = 0;

    for (size_t i = 0; i < s->n_stops; i++) {
        struct str stop = s->stops[i];
        if (stop.n <= s->text.n && stop.n > best && memcmp(s->text.p + s->text.n - stop.n, stop.p, stop.n) == 0) {
            best = stop.n;
            s->stop = i;
        }
    }
    return best;
}

/* Bytes at the end of the text that a stop string may begin with. */
static size_t held_back(const struct text_stream *s)
{
    size_t best = 0;

    for (size_t i = 0; i < s->n_stops; i++) {
        struct str stop = s->stops[i];
        for (size_t n = stop.n - 1; n > best; n--)
            if (n <= s->text.n && memcmp(s->text.p + s->text.n - n, stop.p, n) == 0)
                best = n;
    }
    return best;
}

/* Adds one character, or U+FFFD for a byte that is none. True when a stop string is complete: the
 * text then ends before it. */
static bool add_char(struct text_stream *s, const char *p, size_t n)
{
    text_buf_add(&s->text, (struct str){ p, n });
    size_t stop = s->text.failed ? 0 : stop_at_end(s);
    s->text.n -= stop;
    return stop > 0;
}

/* Adds the characters of a piece; what is left of the last one waits in tail. */
static bool add_piece(struct text_stream *s, struct str piece)
{
    bool stopped = false;

    for (size_t i = 0; i < piece.n && !stopped; i++) {
        s->tail[s->n_tail++] = piece.p[i];
        while (s->n_tail > 0 && !stopped) {
            size_t len;
            struct str tail = { s->tail, s->n_tail };
            if (text_utf8_tail(tail) == s->n_tail)
                break;
            uint32_t cp = text_utf8_get(s->tail, s->n_tail, &len);
            bool bad = cp == TEXT_BAD && len == 1;
            stopped = add_char(s, bad ? "\xEF\xBF\xBD" : s->tail, bad ? 3 : len);
            s->n_tail -= len;
            memmove(s->tail, s->tail + len, s->n_tail);
        }
    }
    return stopped;
}

enum err_code text_stream_push(struct text_stream *s, int32_t id, struct str *ready, bool *stopped, struct err *e)
{
    return text_stream_add(s, text_is_control(s->t, id) ? STR("") : text_piece(s->t, id), ready, stopped, e);
}

enum err_code text_stream_add(struct text_stream *s, struct str bytes, struct str *ready, bool *stopped, struct err *e)
{
    struct str none = { "", 0 };

    if (s->given > 0) {
        s->text.n -= s->given;
        memmove(s->text.p, s->text.p + s->given, s->text.n);
        s->given = 0;
    }
    if (!s->stopped)
        s->stopped = add_piece(s, bytes);
    if (s->text.failed)
        return err_nomem(e);
    s->given = s->stopped ? s->text.n : s->text.n - held_back(s);
    *ready = s->given > 0 ? (struct str){ s->text.p, s->given } : none;
    *stopped = s->stopped;
    return ERR_OK;
}

size_t text_stream_stop(const struct text_stream *s)
{
    return s->stop;
}

struct str text_stream_flush(struct text_stream *s)
{
    struct str none = { "", 0 };

    if (s->given > 0) {
        s->text.n -= s->given;
        memmove(s->text.p, s->text.p + s->given, s->text.n);
    }
    for (size_t i = 0; i < s->n_tail && !s->stopped; i++)
        s->stopped = add_char(s, "\xEF\xBF\xBD", 3);
    s->n_tail = 0;
    s->given = s->text.n;
    return s->given > 0 ? (struct str){ s->text.p, s->given } : none;
}

void text_stream_follows(struct text_stream *s, const int32_t *v, int64_t n)
{
    char last[4]; /* the last bytes before */
    size_t at = sizeof last;

    for (; n > 0 && at > 0 && !text_is_control(s->t, v[n - 1]); n--) {
        struct str piece = text_piece(s->t, v[n - 1]);
        while (piece.n > 0 && at > 0)
            last[--at] = piece.p[--piece.n];
    }
    s->n_tail = text_utf8_tail((struct str){ last + at, sizeof last - at });
    memcpy(s->tail, last + sizeof last - s->n_tail, s->n_tail);
}

void text_stream_leave(struct text_stream *s)
{
    s->n_tail = 0;
}
