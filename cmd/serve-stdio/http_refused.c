/* SPDX-License-Identifier: Apache-2.0 */
/* http_refused.c - what libmicrohttpd refuses by itself (http_state.h).      room: cmd */
#include "serve-stdio/http_state.h"

#ifdef CHIMERE_HTTP
#include <microhttpd.h>
#include <stdarg.h>
#include <string.h>

#include "serve-stdio/http_reply.h"

/* Whether this can be what the library refuses: of what it names a length, a chunk or only the status. */
static bool fits_refusal(const struct cli_http_request *r, unsigned status, const char *page)
{
    const char *length =
        r != NULL ? MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, "Content-Length") : NULL;

    if (r == NULL || r->over)
        return r == NULL && (status == 414 || status == 505 || status == 400);
    if (strstr(page, "chunk") != NULL)
        return r->stage == BODY;
    if (strstr(page, "Content-Length") != NULL)
        return r->stage == HEAD && length != NULL &&
               (*length == '\0' || strspn(length, "0123456789") != strlen(length) || strlen(length) > 18);
    return r->stage == HEAD && (status == 431 || status == 400);
}

/* The connection of which the library refuses what it has read since our last look. If several could be it, the one
 * with the most is where that is why; else NULL. */
static struct cli_connection *refused_by_library(const struct cli_http *h, unsigned status, const char *page)
{
    struct cli_connection *found = NULL;
    int64_t most = 0;

    for (struct cli_connection *l = h->connections.first; l != NULL; l = l->next) {
        const int64_t taken = cli_connection_taken(l), n = taken < 0 ? 1 : taken - l->taken;

        if (l->closing || n <= 0 || !fits_refusal(l->request, status, page))
            continue;
        if (found != NULL && status != 431 && status != 414)
            return NULL;
        if (n > most) {
            found = l;
            most = n;
        }
    }
    return found;
}

/* What the library says before it refuses a request by itself, with a page of its own, which version 0.9.75 may give
 * two heads: we write the error and end the connection before it does. It does not say which request. */
void cli_http_hear_library(void *cls, const char *format, va_list args)
{
    static const char refusal[] = "Error processing request (HTTP response code is %u ('%s'))";
    const struct cli_http *h = cls;
    struct cli_connection *l;
    struct cli_http_request *r;

    if (strncmp(format, refusal, sizeof refusal - 1) != 0)
        return;
    const unsigned status = va_arg(args, unsigned);
    const char *page = va_arg(args, const char *);

    l = refused_by_library(h, status, page);
    if (l == NULL)
        return;
    cli_http_send_error(cli_connection_socket(l->of), status,
                        status == 414                   ? "the request's target is too long"
                        : status == 431                 ? "the head of the request is too long"
                        : status == 413                 ? "the body is too large (--max-body)"
                        : status == 505                 ? "this version of HTTP is not spoken here"
                        : strstr(page, "chunk") != NULL ? "a chunk of the body is malformed"
                                                        : "the head of the request is malformed");
    r = l->request;
    if (r != NULL)
        r->over = true;
}
#endif
