/* SPDX-License-Identifier: Apache-2.0 */
/* render.h - a chat template with variables, printed, without a model.               room: cmd
 * (cli_) */
#ifndef RUN_RENDER_H
#define RUN_RENDER_H
#include "base/base.h"

struct cli_render_opts {
    const char *template_path; /* "-" is stdin */
    const char *vars_path;     /* a JSON object: the variables, which the template sees unchanged */
    const char *now;           /* "2026-01-15T09:05:07", what strftime_now sees; NULL: the local time */
};
/* Prints the text, exactly. ERR_FORMAT: the template or the variables are wrong, or the template
 * raised: its message; ERR_ARG: `now` is no date, or both files are stdin. */
MUST_CHECK enum err_code cli_render(const struct cli_render_opts *o, struct err *e);
#endif
