/* SPDX-License-Identifier: Apache-2.0 */
/* http_reply.c - replies over HTTP (http_reply.h).                           room: cmd */
#include "serve-stdio/http_reply.h"

#ifdef CHIMERE_HTTP
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

bool cli_http_header(struct MHD_Response *m, const char *name, const char *value)
{
    return MHD_add_response_header(m, name, value) == MHD_YES;
}

bool cli_http_add_headers(struct MHD_Response *m, int status, const char *type, const char *cors, bool closes)
{
    bool ok = m != NULL && cli_http_header(m, "Content-Type", type) &&
              cli_http_header(m, "Cache-Control", "no-store") &&
              cli_http_header(m, "X-Content-Type-Options", "nosniff");

    if (ok && cors != NULL)
        ok = cli_http_header(m, "Access-Control-Allow-Origin", cors) && cli_http_header(m, "Vary", "Origin");
    if (ok && (closes || status == 413))
        ok = cli_http_header(m, "Connection", "close");
    if (ok && (status == 429 || status == 503))
        ok = cli_http_header(m, "Retry-After", "1");
    if (ok && status == 401)
        ok = cli_http_header(m, "WWW-Authenticate", "Bearer");
    return ok;
}

struct MHD_Response *cli_http_whole(struct MHD_Response *m, bool ok)
{
    if (m != NULL && !ok) {
        MHD_destroy_response(m);
        m = NULL;
    }
    return m;
}

struct MHD_Response *cli_http_json(const json_t *body)
{
    char *text = body != NULL ? json_line(body) : NULL;
    struct MHD_Response *m =
        text != NULL ? MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE) : NULL;

    if (m == NULL)
        free(text);
    return m;
}

struct MHD_Response *cli_http_error(const struct serve_row *row, int status, const char *pointer, const char *message)
{
    json_t *body = serve_error(row, status, pointer, message);
    struct MHD_Response *m = cli_http_json(body);

    json_decref(body);
    return m;
}

void cli_http_send_error(int fd, unsigned status, const char *message)
{
    json_t *body = serve_error(NULL, (int)status, NULL, message);
    char *text = body != NULL ? json_line(body) : NULL, head[256];

    json_decref(body);
    if (text != NULL) {
        const int n = snprintf(head, sizeof head,
                               "HTTP/1.1 %u %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
                               "Connection: close\r\n\r\n",
                               status, MHD_get_reason_phrase_for(status), strlen(text));

        (void)send(fd, head, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE);
        (void)send(fd, text, strlen(text), MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    shutdown(fd, SHUT_WR);
    free(text);
}
#endif
