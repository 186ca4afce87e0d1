/* SPDX-License-Identifier: Apache-2.0 */
/* web_page.h - the page to chat with, which is part of the program.              room: cmd */
#ifndef SERVE_STDIO_WEB_PAGE_H
#define SERVE_STDIO_WEB_PAGE_H
#include "cli/cli.h"

struct cli_page {
    const char *path, *type, *text;
};
extern const struct cli_page cli_pages[]; /* the files of page/ (embed.sh); the last one has no path */
/* What the page may do: it loads nothing from elsewhere, runs its own scripts alone, and stands in no frame. */
#define CLI_PAGE_POLICY \
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; " \
    "form-action 'none'; frame-ancestors 'none'"
const struct cli_page *cli_page(const char *path); /* NULL: none is there */
#endif
