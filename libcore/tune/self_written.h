/* SPDX-License-Identifier: Apache-2.0 */
/* self_written.h - what a model rehearses while it learns, written by itself: texts from nothing, and answers to
 * questions (tune/questions.h).                                                                    room: tune */
#ifndef TUNE_SELF_WRITTEN_H
#define TUNE_SELF_WRITTEN_H
#include "tune/job.h"

enum {
    TUNE_OWN_TEXT = 128,
    TUNE_OWN_ANSWER = 128,
    TUNE_OWN_ASKED = 384
}; /* tokens at most; the last: of a given question */

/* At most o->rehearse answers and an eighth as many texts join j->data.own; answers to the questions of data.keep that
 * have none join data.keep. What the model says there is not noted yet. A function of model, adapter, seed and
 * questions where there was time for all: time_s for texts, and again for answers. ERR_CANCEL. */
MUST_CHECK enum err_code tune_write_own(struct tune_job *j, double time_s, struct err *e);
#endif
