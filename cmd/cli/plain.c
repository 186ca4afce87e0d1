/* SPDX-License-Identifier: Apache-2.0 */
/* plain.c - is it text? Bytes in pieces, against NULs and what is no UTF-8.  room: cmd */
#include <string.h>
#include "cli/cli.h"

enum { ODD_FREE = 4, ODD_SHARE = 256 }; /* bytes that may be none, and one of 256 beside them */

/* Bytes that may follow the first one of a character, the first of them between lo and hi (RFC 3629); -1: none begins
 * so. */
static int following_bytes(unsigned char c, unsigned char *lo, unsigned char *hi)
{
    *lo = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;
    *hi = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
    return c < 0x80 ? 0 : c < 0xc2 ? -1 : c < 0xe0 ? 1 : c < 0xf0 ? 2 : c < 0xf5 ? 3 : -1;
}

static enum err_code judge_text(const struct cli_plain *x, struct err *e)
{
    if (x->odd <= ODD_FREE + x->bytes / ODD_SHARE)
        return ERR_OK;
    return err_set(e, ERR_FORMAT, "%s: is no UTF-8 text: %llu of its first %llu bytes are none", x->name,
                   (unsigned long long)x->odd, (unsigned long long)x->bytes);
}

enum err_code cli_plain_add(struct cli_plain *x, struct str s, struct err *e)
{
    const char *nul = s.n > 0 ? memchr(s.p, '\0', s.n) : NULL;

    if (nul != NULL)
        return err_set(e, ERR_FORMAT, "%s: is no text: byte %llu is a NUL", x->name,
                       (unsigned long long)(x->bytes + (uint64_t)(nul - s.p)));
    for (size_t i = 0; i < s.n; i++) {
        uint64_t word;

        while (x->need == 0 && s.n - i >= 8 && (memcpy(&word, s.p + i, 8), (word & 0x8080808080808080U) == 0))
            i += 8;
        if (i == s.n)
            break;
        const unsigned char now = (unsigned char)s.p[i];

        if (x->need > 0 && now >= x->lo && now <= x->hi) {
            x->need--;
            x->lo = 0x80;
            x->hi = 0xbf;
            continue;
        }
        x->odd += x->need > 0;
        x->need = following_bytes(now, &x->lo, &x->hi);
        x->odd += x->need < 0;
        x->need = x->need > 0 ? x->need : 0;
    }
    x->bytes += s.n;
    return judge_text(x, e);
}

enum err_code cli_plain_end(struct cli_plain *x, struct err *e)
{
    x->odd += x->need > 0;
    x->need = 0;
    if (judge_text(x, e))
        return e->code;
    if (x->odd > 0)
        cli_warn("%s: %llu bytes are no UTF-8 and are taken as they are", x->name, (unsigned long long)x->odd);
    return ERR_OK;
}
