/* SPDX-License-Identifier: Apache-2.0 */
/* stdin_requests.c - requests as lines on stdin (stdin_requests.h).                             room: cmd */
#include "serve-stdio/stdin_requests.h"

#include <unistd.h>

#include "base/clock.h"
#include "cli/lines.h"

enum { LINE_BYTES_MAX = 16 << 20 /* as the message says */, WAIT_MS = 500 /* at most without a look at signals */ };

enum err_code cli_stdin_requests(const struct cli_stdin_requests *t, struct serve *s, struct cli_reload *beside,
                                 int32_t max_queue, int32_t drain_s, struct err *e)
{
    struct cli_lines in = { .fd = STDIN_FILENO, .line_max = LINE_BYTES_MAX };
    struct serve_reply r;
    enum err_code code = ERR_OK;
    double until_ms = 0;

    while (code == ERR_OK) {
        const bool full = serve_waiting(s) >= max_queue, stop = cli_interrupted();
        enum cli_line got;
        struct str line;

        if (stop && until_ms == 0)
            until_ms = clock_ms() + (double)drain_s * 1e3;
        if (!full && !stop)
            code = cli_lines_read(&in, serve_busy(s) ? 0 : WAIT_MS, e);
        (void)cli_reload_turn(beside, s);
        while (code == ERR_OK && !stop && serve_waiting(s) < max_queue &&
               (got = cli_lines_next(&in, &line)) != CLI_LINE_NONE)
            code = got == CLI_LINE             ? t->take(t->of, line, in.n, e)
                   : got == CLI_LINE_NO_MEMORY ? t->lost(t->of, 503, "out of memory", e)
                                               : t->lost(t->of, 413, "the line is longer than 16 MiB", e);
        if (code == ERR_OK && serve_busy(s))
            code = serve_step(s, e);
        while (code == ERR_OK && serve_next(s, &r))
            code = t->tell(t->of, &r, e);
        if ((stop || (in.eof && in.at == in.b.n)) && (t->leaves || !serve_busy(s)))
            break;
        if (stop && clock_ms() >= until_ms)
            break;
        if (full && t->leaves && cli_lines_ended(&in)) /* its last lines are not waited for */
            break;
    }
    cli_lines_free(&in);
    return code;
}
