/* SPDX-License-Identifier: Apache-2.0 */
/* lines.c - lines from a descriptor (lines.h).                               room: cmd */
#define _GNU_SOURCE /* POLLRDHUP */
#include "cli/lines.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"

enum { CHUNK = 1 << 16 };

enum err_code cli_lines_read(struct cli_lines *l, int wait_ms, struct err *e)
{
    struct pollfd p = { .fd = l->fd, .events = POLLIN };
    ssize_t n;

    if (l->eof)
        return ERR_OK;
    if (l->at > 0) { /* what was given out makes room */
        memmove(l->b.p, l->b.p + l->at, l->b.n - l->at);
        l->b.n -= l->at;
        l->at = 0;
    }
    l->no_room = memory_room(&l->b.p, &l->b.cap, l->b.n + CHUNK, 1, e) != ERR_OK;
    if (l->no_room) /* an empty one had room before */
        return l->b.n == 0 ? e->code : ERR_OK;
    if (poll(&p, 1, wait_ms) <= 0 || p.revents == 0)
        return ERR_OK;
    n = read(l->fd, l->b.p + l->b.n, CHUNK);
    if (n < 0)
        return errno == EINTR || errno == EAGAIN ? ERR_OK : err_errno(e, ERR_IO, errno, "standard input: cannot read");
    l->eof = n == 0;
    l->b.n += (size_t)n;
    return ERR_OK;
}

bool cli_lines_ended(const struct cli_lines *l)
{
    struct pollfd p = { .fd = l->fd, .events = POLLRDHUP };

    return l->eof || (poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLRDHUP | POLLERR)) != 0);
}

enum cli_line cli_lines_next(struct cli_lines *l, struct str *line)
{
    for (;;) {
        const char *from = l->b.n > 0 ? l->b.p + l->at : "";
        const size_t n = l->b.n - l->at;
        const char *end = n > l->seen ? memchr(from + l->seen, '\n', n - l->seen) : NULL;
        const bool whole = end != NULL || (l->eof && n > 0);
        const size_t length = end != NULL ? (size_t)(end - from) : n;

        if (!whole && n <= l->line_max && !l->skipping && !l->no_room) {
            l->seen = n;
            return CLI_LINE_NONE;
        }
        l->seen = 0;
        if (!whole) { /* too long: what came of it goes */
            const bool first = !l->skipping, fits = n <= l->line_max;

            l->at = l->b.n;
            l->skipping = true;
            if (first) {
                l->n++;
                return fits ? CLI_LINE_NO_MEMORY : CLI_LINE_TOO_LONG;
            }
            return CLI_LINE_NONE;
        }
        l->at += end != NULL ? length + 1 : length;
        if (l->skipping) { /* the end of that line */
            l->skipping = false;
            continue;
        }
        l->n++;
        if (length > l->line_max)
            return CLI_LINE_TOO_LONG;
        *line = (struct str){ from, length };
        return CLI_LINE;
    }
}

bool cli_lines_take(struct cli_lines *l, size_t n, struct str *bytes)
{
    if (l->b.n - l->at < n)
        return false;
    *bytes = (struct str){ n > 0 ? l->b.p + l->at : "", n };
    l->at += n;
    l->seen = 0;
    return true;
}

void cli_lines_free(struct cli_lines *l)
{
    cli_buf_free(&l->b);
}
