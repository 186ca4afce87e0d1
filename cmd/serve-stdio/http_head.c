/* SPDX-License-Identifier: Apache-2.0 */
/* http_head.c - heads of requests (http_head.h).                             room: cmd */
#include "serve-stdio/http_head.h"

#ifdef CHIMERE_HTTP
#include <microhttpd.h>
#include <string.h>
#include <strings.h>

size_t cli_http_unescape(void *cls, struct MHD_Connection *connection, char *s)
{
    (void)cls;
    (void)connection;
    return strstr(s, "%00") != NULL ? strlen(s) : MHD_http_unescape(s);
}

bool cli_http_takes_verb(const char *verbs, const char *verb)
{
    const size_t n = strlen(verb);

    if (strcmp(verb, "HEAD") == 0)
        return cli_http_takes_verb(verbs, "GET");
    while (strncmp(verbs, verb, n) != 0 || (verbs[n] != '\0' && verbs[n] != ',')) {
        verbs += strcspn(verbs, " ");
        if (*verbs++ == '\0')
            return false;
    }
    return true;
}

const char *cli_http_path(struct MHD_Connection *connection, const char *target)
{
    static const char scheme[] = "http://";
    const char *host = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Host");
    size_t n;

    if (strncasecmp(target, scheme, sizeof scheme - 1) != 0)
        return target;
    target += sizeof scheme - 1;
    n = strcspn(target, "/");
    if (host == NULL || strlen(host) != n || strncasecmp(host, target, n) != 0)
        return NULL;
    return target[n] != '\0' ? target + n : "/";
}

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

static enum MHD_Result count_odd(void *cls, enum MHD_ValueKind kind, const char *name, const char *value)
{
    struct count *c = cls;

    (void)kind;
    (void)value;
    c->n += name[strcspn(name, " \t")] != '\0';
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
    if (content != NULL && strcasecmp(content, "identity") != 0)
        return 415;
    *why = "the name of a field ends with a space";
    struct count odd = { NULL, 0 };

    (void)MHD_get_connection_values(connection, MHD_HEADER_KIND, count_odd, &odd);
    return odd.n > 0 ? 400 : 0;
}

/* A page elsewhere may not use a visitor's browser to ask here: neither with its own name as origin, nor with a name
 * that it points to this machine. */
static bool local_name(const char *host)
{
    static const char *const names[] = { "localhost", "127.0.0.1", "[::1]" };
    size_t n = strcspn(host, ":");

    if (*host == '[')
        n = strcspn(host, "]") + 1;
    if (host[n] == ':' && host[n + 1 + strspn(host + n + 1, "0123456789")] != '\0')
        return false;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strlen(names[i]) == n && strncasecmp(host, names[i], n) == 0)
            return true;
    return strncmp(host, "127.", 4) == 0 && strspn(host, "0123456789.") == n;
}

bool cli_http_may_ask(struct MHD_Connection *connection, const char *cors, bool has_keys)
{
    const char *origin = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Origin");
    const char *host = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Host");

    if (!has_keys && host != NULL && !local_name(host))
        return false;
    if (origin == NULL || (cors != NULL && (strcmp(cors, "*") == 0 || strcmp(cors, origin) == 0)))
        return true;
    return host != NULL && strncmp(origin, "http://", 7) == 0 && strcasecmp(origin + 7, host) == 0;
}

bool cli_http_is_origin(const char *s)
{
    const char *host = strstr(s, "://");

    return strcmp(s, "*") == 0 ||
           (host != NULL && host > s && host[3] != '\0' && host[3 + strcspn(host + 3, "/?#@ \t")] == '\0');
}
#endif
