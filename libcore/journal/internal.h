/* SPDX-License-Identifier: Apache-2.0 */
/* internal.h - inside of journal.                                            room: journal */
#ifndef JOURNAL_INTERNAL_H
#define JOURNAL_INTERNAL_H
#include "journal/journal.h"

enum { DAY_BYTES = 11 /* "2026-11-28" and a NUL */, NAME_BYTES = 40, KINDS = 3 };
enum file_kind { ANSWERS, RATINGS, SCORED };

/* files.c: the directory, and what is in it. */
struct files {
    int dir;
    char path[4096];
    int64_t bytes_max, unseen; /* bytes that were written since the directory was measured; -1: it was not yet */
    bool full;                 /* too much is in it */
    int fd[KINDS];             /* of the day; -1: not open */
    char day[DAY_BYTES];
};
MUST_CHECK enum err_code journal_files_open(struct files *f, const struct journal_opts *o, struct err *e);
void journal_files_close(struct files *f);
/* Adds a line, which ends with a line feed, to the file of today. *notice: a text for the user, "": none. */
enum { NOTICE_BYTES = 512 };
MUST_CHECK enum err_code journal_files_add(struct files *f, enum file_kind kind, struct str line,
                                           char notice[NOTICE_BYTES], struct err *e);
/* Reads the answers of the days from `day` on, line by line, until use() returns true: *found. */
MUST_CHECK enum err_code journal_files_read(const struct files *f, const char day[DAY_BYTES],
                                            bool (*use)(void *of, struct str line), void *of, bool *found,
                                            struct err *e);
void journal_day(char out[DAY_BYTES], int64_t seconds); /* by local time */
#endif
