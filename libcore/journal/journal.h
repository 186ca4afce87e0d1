/* SPDX-License-Identifier: Apache-2.0 */
/* journal.h - answers, and what people say of them, as lines in the files of a directory (chimere-quality(5)).
 * room: journal
 *
 * A day, by local time, has a file of answers and one of ratings, which only their owner can read. A line is added by
 * one write, so several processes may have one directory; what a killed one left of a line does not harm the next.
 * Patterns take out what must not be kept, before anything is written. One thread.
 */
#ifndef JOURNAL_JOURNAL_H
#define JOURNAL_JOURNAL_H
#include "base/base.h"
#include "base/json.h"

struct journal;

enum { JOURNAL_TEXT_BYTES_MAX = 64 << 10 /* of a text in a line; a longer one is cut */ };

struct journal_opts {
    const char *dir;           /* made if there is none, for this user alone */
    bool is_there;             /* it is not made: ERR_IO */
    const char *const *redact; /* [n_redact] PCRE2: what they match becomes JOURNAL_REDACTED */
    size_t n_redact;
    int64_t bytes_max;                                /* of all files; 0: any number */
    void (*warn)(void *warn_of, const char *message); /* a line was lost, or days were removed; NULL: nobody hears */
    void *warn_of;
};
#define JOURNAL_REDACTED "[redacted]"
/* ERR_ARG: a pattern that is none, or one that matches nothing at all, as "x*" does; the place is "/redact/2". ERR_IO:
 * the directory is a link, or another user's, or one that others can write. */
MUST_CHECK enum err_code journal_open(struct journal **out, const struct journal_opts *o, struct err *e);
void journal_close(struct journal *j); /* NULL is allowed */

/* Adds an answer: its id, and the members of an object, which is taken (NULL: memory was out). Never fails: a line that
 * cannot be written, or from which a pattern cannot take out what it should within its bounds, is lost with a warning,
 * one for each reason. */
void journal_answer(struct journal *j, const char *id, json_t *members);

struct journal_rating {
    struct str id; /* of the answer */
    int64_t index; /* of the choice */
    bool good;
    struct str better; /* what it should have been; p NULL: nobody says */
    struct str client; /* who says it; n 0: not known */
    const char *key;   /* io_sha256_hex() of the key that the rating came with; "": it came without one; NULL: it comes
                        * from the owner of the directory, who may rate all */
};
/* Adds a rating. ERR_ARG: there is no such answer, at "/id" or "/index"; ERR_UNSUPPORTED: it was given to another key;
 * ERR_LIMIT: a pattern, as above; ERR_IO: it cannot be written. */
MUST_CHECK enum err_code journal_rate(struct journal *j, const struct journal_rating *r, struct err *e);

/* The number of an answer that this process gives, for its id: unlike those of other processes. "%s" has 24 digits, of
 * which the first 8 are the seconds since 1970. */
enum { JOURNAL_NUMBER_BYTES = 25 };
void journal_number(char out[JOURNAL_NUMBER_BYTES], int64_t seconds, uint64_t process, int64_t count);
uint64_t journal_process(void); /* a number of this process, other ones elsewhere and later */

/* redact.c: a text with patterns. cut: the text was longer, so what may go on behind its end is taken out, too. */
struct journal_redactor;
MUST_CHECK enum err_code journal_redactor_open(struct journal_redactor **out, const char *const *patterns, size_t n,
                                               struct err *e);
void journal_redactor_close(struct journal_redactor *r); /* NULL is allowed */
/* Begins a line: what its texts may cost in all begins anew. */
void journal_redactor_begin(struct journal_redactor *r);
/* The text to *out, malloc'ed; its length to *n. ERR_LIMIT: a pattern came to its bounds, and nothing may be kept. */
MUST_CHECK enum err_code journal_redact(struct journal_redactor *r, struct str text, bool cut, char **out, size_t *n,
                                        struct err *e);
#endif
