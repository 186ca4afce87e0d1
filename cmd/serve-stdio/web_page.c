/* SPDX-License-Identifier: Apache-2.0 */
/* web_page.c - the page to chat with, which is part of the program (web_page.h).  room: cmd */
#include "serve-stdio/web_page.h"

#include <string.h>

const struct cli_page *cli_page(const char *path)
{
    for (const struct cli_page *page = cli_pages; page->path != NULL; page++)
        if (strcmp(page->path, path) == 0)
            return page;
    return NULL;
}
