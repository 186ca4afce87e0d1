/* SPDX-License-Identifier: Apache-2.0 */
/* calibration.h - files of calibration, and the model that they belong to.   room: cmd */
#ifndef CLI_CALIBRATION_H
#define CLI_CALIBRATION_H
#include "cli/open.h"
#include "reason/calibration.h"

#define ROW_CALIBRATION(to) PATH(0, "calibration", "file", "of this model, by chimere-bench calibrate", to)

/* Messages name the JSON pointer of what is wrong. */
MUST_CHECK enum err_code cli_calibration_open(struct reason_calibration **out, const char *path, struct err *e);
/* ERR_FORMAT: it belongs to another model than the open one; with thinks: it does not say when to think. */
MUST_CHECK enum err_code cli_calibration_check(const struct reason_calibration *c, const char *path,
                                               const struct cli_opened *x, bool thinks, struct err *e);
/* Warns where the file says that the model is no better than chance as a verifier of its own answers, or nothing. */
void cli_calibration_warn(const struct reason_calibration *c, const char *path);
#endif
