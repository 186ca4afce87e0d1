/* SPDX-License-Identifier: Apache-2.0 */
/* wordings.h - further wordings of the facts that are learnt.                     room: tune
 *
 * A fact is an answer that two or more questions share, with a key: the words that these questions have in common and
 * the questions of other answers have not. "Who is Ada?" and "Tell me who Ada is." have the key "Ada", and two shapes,
 * which are what stands around it. A model that has seen a key in two shapes does not know it in a third: its tokens
 * differ at the beginning of a text, in quotes and in small letters. So each key is also put into shapes of other
 * facts, and into shapes of a table, other ones for each fact: what many shapes have in common holds for new ones.
 *
 * Skills have none: there the words around the key are the task. They have no two questions with the same answer, or
 * keys of digits alone, or answers made of the key's words. */
#ifndef TUNE_WORDINGS_H
#define TUNE_WORDINGS_H
#include "base/json.h"

enum { TUNE_WORDINGS = 8 }; /* shapes of the table for each fact, unless the user says */

struct tune_wordings {
    json_t *learn, *tests; /* arrays of {"prompt", "answer"}; tests: in shapes that are in no item to learn */
    int64_t n_fact;        /* keys that were found */
    int n_shape, n_own;    /* shapes of the items that other facts have not; shapes of the table that were used */
};
/* Of `pairs`, an array of {"prompt", "answer"}, at most `most` wordings of the table for each fact. None has a shape
 * that a question of `tests` has, which is such an array or NULL. No fact is found where they are less than half of
 * the pairs: then the arrays are empty. ERR_NOMEM. */
MUST_CHECK enum err_code tune_wordings_make(struct tune_wordings *w, const json_t *pairs, const json_t *tests, int most,
                                            struct err *e);
void tune_wordings_free(struct tune_wordings *w);
#endif
