/* SPDX-License-Identifier: Apache-2.0 */
/* http_probe.c - health and metrics, also while the engine's thread is elsewhere (http_state.h).   room: cmd */
#include "serve-stdio/http_state.h"

#ifdef CHIMERE_HTTP
#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "serve-stdio/http_reply.h"

/* Why no requests should come; NULL: they may. */
static json_t *say_unfit(const struct cli_http *h)
{
    const double away_s = h->away ? (clock_ms() - h->away_ms) / 1e3 : 0;
    char reason[80];

    if (h->serve == NULL)
        return json_pack("{s:s, s:f}", "status", "loading", "progress", (double)h->loaded / 1e3);
    if (h->draining || cli_interrupted())
        return json_pack("{s:s, s:I}", "status", "ending", "waiting", (json_int_t)h->status.answers_waiting);
    if (h->o.stuck_s == 0 || away_s < (double)h->o.stuck_s)
        return NULL;
    (void)snprintf(reason, sizeof reason, "a step of the engine has not ended for %.0f s", away_s);
    return json_pack("{s:s, s:s, s:I}", "status", "stuck", "reason", reason, "waiting",
                     (json_int_t)h->status.answers_waiting);
}

static struct MHD_Response *answer_health(struct cli_http *h, int *status)
{
    json_t *body = say_unfit(h);
    struct MHD_Response *m;

    *status = body != NULL ? 503 : 200;
    if (body == NULL)
        body = json_pack("{s:s, s:I}", "status", "ok", "waiting", (json_int_t)h->status.answers_waiting);
    m = cli_http_json(body);
    json_decref(body);
    return m;
}

static struct MHD_Response *answer_metrics(struct cli_http *h)
{
    struct serve_status now = h->status;
    struct MHD_Response *m;
    char *text;

    now.m.requests[SERVE_HEALTH] += h->n_probes[0];
    now.m.requests[SERVE_METRICS] += h->n_probes[1];
    text = serve_metrics(&now);
    m = text != NULL ? MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE) : NULL;
    if (m == NULL)
        free(text);
    return m;
}

struct MHD_Response *cli_http_probe(struct cli_http *h, enum serve_method m, int *status, const char **type)
{
    if (!h->away && h->serve != NULL)
        serve_look(h->serve, &h->status);
    h->n_probes[m == SERVE_METRICS]++;
    *type = "application/json";
    if (m == SERVE_HEALTH)
        return answer_health(h, status);
    *status = h->serve == NULL ? 503 : 200;
    if (h->serve == NULL)
        return cli_http_error(serve_row(m), 503, "", "the model is loading");
    *type = serve_row(m)->text_type;
    return answer_metrics(h);
}
#endif
