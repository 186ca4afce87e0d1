/* SPDX-License-Identifier: Apache-2.0 */
/* http_head.c - heads of requests (http_head.h).                             room: cmd */
#include "serve-stdio/http_head.h"

#ifdef CHIMERE_HTTP
#include <microhttpd.h>
#include <string.h>
#include <strings.h>

struct count {
    const char *name;
    int n;
};

static enum MHD_Result count_field(void *cls, enum MHD_ValueKind kind, const char *name, const char *value)
{
    struct count *c = cls;

    (void)kind;
    (void)value;
    c->n += strcasecmp(name, c->name) == 0;
    return MHD_YES;
}

int cli_http_doubtful(struct MHD_Connection *connection, const char *version, const char **why)
{
    static const struct {
        const char *name, *twice;
    } once[] = {
        { "Host", "the request has two fields Host" },
        { "Content-Length", "the request has two fields Content-Length" },
        { "Transfer-Encoding", "the request has two fields Transfer-Encoding" },
        { "Authorization", "the request has two fields Authorization" },
        { "X-Api-Key", "the request has two fields X-Api-Key" },
        { "Origin", "the request has two fields Origin" },
    };
    const char *coding = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Transfer-Encoding");
    const char *content = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Content-Encoding");

    for (size_t i = 0; i < sizeof once / sizeof once[0]; i++) {
        struct count c = { once[i].name, 0 };

        (void)MHD_get_connection_values(connection, MHD_HEADER_KIND, count_field, &c);
        *why = once[i].twice;
        if (c.n > 1)
            return 400;
    }
    *why = "the request has no Host";
    if (strcmp(version, "HTTP/1.1") == 0 && MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Host") == NULL)
        return 400;
    *why = "the request has both Content-Length and Transfer-Encoding";
    if (coding != NULL && MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Content-Length") != NULL)
        return 400;
    *why = "a body comes as it is, or with Transfer-Encoding: chunked";
    if (coding != NULL && strcasecmp(coding, "chunked") != 0)
        return 501;
    *why = "a body with a Content-Encoding is not read";
    return content != NULL && strcasecmp(content, "identity") != 0 ? 415 : 0;
}
#endif
