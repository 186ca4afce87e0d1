/* SPDX-License-Identifier: Apache-2.0 */
/* self_written.h - what a model rehearses while it learns, written by itself.                 room: tune
 *
 * Texts from nothing, and answers to questions. Three in four questions are those that it is going to learn, about something
 * else: words that few of them share are replaced by words of its own texts, numbers by others. What is most in danger of being
 * forgotten is what is asked in the same way. The others are made in the same way from the task sets, so that each of them is
 * another one than what is tested. */
#ifndef TUNE_SELF_WRITTEN_H
#define TUNE_SELF_WRITTEN_H
#include "tune/job.h"

enum {
    TUNE_OWN_TEXT = 128,
    TUNE_OWN_ANSWER = 128,
    TUNE_OWN_ASKED = 384
}; /* tokens at most; the last: of a given question */

/* An eighth of o->rehearse texts and so many answers, at most, join j->data.own; answers to the questions of data.keep that have
 * none join data.keep. What the model says there is not noted yet. A function of model, adapter, seed and questions where there
 * was time for all: time_s for texts, and again for answers. ERR_CANCEL. */
MUST_CHECK enum err_code tune_write_own(struct tune_job *j, double time_s, struct err *e);
#endif
