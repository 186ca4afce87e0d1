/* SPDX-License-Identifier: Apache-2.0 */
/* reading.h - inside recall: the words of a paragraph, and which of them the question has.     room: recall */
#ifndef RECALL_READING_H
#define RECALL_READING_H
#include "recall/document.h"

struct reading {
    const struct recall_asked *q;
    struct str paragraph;
    int n;                          /* words */
    struct recall_at *word;         /* [n] */
    bool *stop;                     /* [n] a comma or the like stands before the word */
    bool *ends;                     /* [n] a sentence ends behind the word */
    bool *tight;                    /* [n] it is written together with the word before: "14-year", "Anna's" */
    bool is_name[RECALL_ASKED_MAX]; /* of the question's words */
    bool lacks_name;                /* that the question has */
    int n_names, n_beside;          /* recall_is_beside() */
    double all_beside;              /* their weight */
};

/* Ended by recall_reading_free(), even after an error. */
MUST_CHECK enum err_code recall_read(struct reading *r, struct str paragraph, const struct recall_asked *q,
                                     struct err *e);
void recall_reading_free(struct reading *r);
bool recall_begins_sentence(const struct reading *r, int i);
bool recall_is_of_name(const struct reading *r, int k); /* "the INN Vazo" */
/* Content that is neither a name nor a part of one nor the noun that says what is wanted. */
bool recall_is_beside(const struct reading *r, int k);
#endif
