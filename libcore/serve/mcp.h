/* SPDX-License-Identifier: Apache-2.0 */
/* mcp.h - the Model Context Protocol: lines of JSON-RPC in, messages out.    room: serve
 *
 * A server with two tools, generate and score, for clients of two revisions (modelcontextprotocol.io/specification):
 * 2026-07-28, where each request says its version in params._meta and nothing is kept between requests, and
 * 2025-11-25, which begins with initialize. A request is of the former if its _meta has a version, else of the latter.
 * Batches are part of neither. It reads and writes nothing itself.
 *
 *   serve_mcp_open; serve_mcp_line ...; while (serve_busy(s)) { serve_step; while (serve_next(s, &r)) serve_mcp_reply }
 */
#ifndef SERVE_MCP_H
#define SERVE_MCP_H
#include "serve/serve.h"

struct serve_mcp;

/* Sends one message and takes its reference; message NULL: out of memory. If it fails, the function that called it
 * returns the same error. */
typedef enum err_code serve_mcp_say(void *ctx, json_t *message, struct err *e);

/* serve: not owned; nobody else may submit requests to it. */
MUST_CHECK enum err_code serve_mcp_open(struct serve_mcp **out, struct serve *serve, serve_mcp_say *say, void *ctx,
                                        struct err *e);
void serve_mcp_close(struct serve_mcp *m); /* NULL is allowed; what is in progress is cancelled */
/* A line of any bytes, without its newline; errors in it are reported to the client. */
MUST_CHECK enum err_code serve_mcp_line(struct serve_mcp *m, struct str line, struct err *e);
/* Reports a line that was not kept: it is too long, or memory is out. */
MUST_CHECK enum err_code serve_mcp_lost(struct serve_mcp *m, const char *why, struct err *e);
/* Call it with every reply of serve_next(); it takes the reply's body. */
MUST_CHECK enum err_code serve_mcp_reply(struct serve_mcp *m, struct serve_reply *r, struct err *e);
#endif
