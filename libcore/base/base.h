/* SPDX-License-Identifier: Apache-2.0 */
/* base.h - what every room shares: strings, errors as values, progress.        room: base
 *
 * Errors: a function that can fail returns enum err_code and takes `struct err *e` last.
 * On failure it fills *e with one line of text (no trailing newline) and leaves its
 * out-parameters untouched. Callers add context in front with err_wrap(). assert() is for bugs only,
 * never for what comes from a file or a user.
 */
#ifndef BASE_BASE_H
#define BASE_BASE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define MUST_CHECK             __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define MUST_CHECK
#define PRINTF_LIKE(fmt, args)
#endif

/* Bytes with a length: UTF-8 unless a header says otherwise, not NUL-terminated. */
struct str {
    const char *p;
    size_t n;
};
#define STR(literal) ((struct str){ (literal), sizeof(literal) - 1 })
#define STR_ARG(s)   (int)((s).n < 200 ? (s).n : 200), (s).p /* for "%.*s"; long text is cut */

struct str str_of(const char *z);        /* view of a NUL-terminated string */
bool str_eq(struct str a, struct str b); /* same bytes */
bool str_is(struct str a, const char *z);
size_t str_find(struct str s, size_t from, struct str part); /* where part next begins; SIZE_MAX: nowhere */
bool str_has(struct str s, const char *z);
struct str str_unmarked(struct str s); /* without the byte order mark of UTF-8 that a text may begin with */
/* Length (1..4) of the UTF-8 sequence at the start of s; 0 when there is no valid one, or s is empty. */
size_t str_utf8(struct str s);
/* The code point at p, where a valid sequence begins, and its length (at most n). */
uint32_t str_utf8_get(const char *p, size_t n, size_t *len);
size_t str_utf8_put(char out[4], uint32_t cp); /* bytes written */

enum err_code {
    ERR_OK,
    ERR_ARG,         /* the caller asked for something that makes no sense (usage) */
    ERR_IO,          /* the operating system refused a read, write, map, rename ... */
    ERR_FORMAT,      /* a file's or stream's contents break the rules of its format */
    ERR_UNSUPPORTED, /* well-formed, but this build cannot do it */
    ERR_NOMEM,       /* an allocation failed */
    ERR_LIMIT,       /* a stated limit was reached: context full, input too long */
    ERR_DEVICE,      /* a compute device failed, or is not there */
    ERR_CANCEL,      /* the caller's progress callback asked to stop */
};

struct err {
    enum err_code code;
    char msg[512]; /* one line of valid UTF-8 without control characters, NUL-terminated */
    /* The place in the input: a JSON pointer (RFC 6901, "" is the whole) if it is JSON, "LINE:COLUMN" if it is text.
     * Cut where it does not fit. Nobody reads a place out of msg (tests/style/errors.sh). */
    char where[256];
};

/* Sets *e (e may be NULL) and returns code, so: return err_set(e, ERR_IO, "..."). */
enum err_code err_set(struct err *e, enum err_code code, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* The error of an allocation that failed. */
enum err_code err_nomem(struct err *e);
/* Puts a part of a place before e->where: what a schema says of "/items" becomes "/tools/1/function/parameters/items".
 * A pointer takes the place of a line and column, which lie in a string that it points to. e may be NULL. Returns
 * e->code, or ERR_OK without e. err_set() and err_errno() forget the place, err_wrap() keeps it. */
enum err_code err_at(struct err *e, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* The error of a callee: code, message and place. e may be NULL; returns from->code. */
enum err_code err_copy(struct err *e, const struct err *from);
/* Puts "context: " before e's message; returns e->code. e must not be NULL here. */
enum err_code err_wrap(struct err *e, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* strerror(errnum), thread-safe: "FILE: cannot open: No such file or directory". */
enum err_code err_errno(struct err *e, enum err_code code, int errnum, const char *fmt, ...) PRINTF_LIKE(4, 5);

/* Called by long jobs; all members may be NULL. tick returns false to cancel (ERR_CANCEL). */
struct progress {
    bool (*tick)(void *ctx, uint64_t done, uint64_t total);
    void *ctx;
};
bool progress_tick(const struct progress *p, uint64_t done, uint64_t total); /* p may be NULL */
#endif
