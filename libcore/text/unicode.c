/* SPDX-License-Identifier: Apache-2.0 */
/* unicode.c - UTF-8, and GPT-2's alphabet of bytes.                             room: text
 *
 * Byte-level BPE vocabularies are spelled in printable characters: a byte that is a printable
 * Latin-1 character is that character, the other 68 bytes are U+0100 and following, in order.
 */
#include <stdlib.h>
#include <string.h>
#include "text/vocab.h"

static bool is_tail(const char *p, size_t i)
{
    return ((unsigned char)p[i] & 0xC0) == 0x80;
}

uint32_t text_utf8_lax(const char *p, size_t n, size_t *len)
{
    unsigned char c = (unsigned char)p[0];
    size_t need = c < 0x80 ? 1 : c < 0xC0 ? 0 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : c < 0xF8 ? 4 : 0;
    uint32_t cp = need < 2 ? c : c & (0xFFU >> (need + 1));

    *len = 1;
    if (need == 0 || need > n)
        return TEXT_BAD;
    for (size_t i = 1; i < need; i++) {
        if (!is_tail(p, i))
            return TEXT_BAD;
        cp = cp << 6 | ((unsigned char)p[i] & 0x3FU);
    }
    if (cp > 0x10FFFF)
        return TEXT_BAD;
    *len = need;
    return cp;
}

uint32_t text_utf8_get(const char *p, size_t n, size_t *len)
{
    if (str_utf8((struct str){ p, n }) == 0) {
        *len = 1;
        return TEXT_BAD;
    }
    return text_utf8_lax(p, n, len);
}

size_t text_utf8_tail(struct str s)
{
    for (size_t back = 1; back <= 3 && back <= s.n; back++) {
        unsigned char c = (unsigned char)s.p[s.n - back];
        size_t need = c < 0xC2 ? 0 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : c < 0xF5 ? 4 : 0;
        if ((c & 0xC0) == 0x80)
            continue;
        if (need <= back)
            return 0;
        if (back > 1) { /* long forms, surrogates and what is past U+10FFFF show in the second byte */
            unsigned char d = (unsigned char)s.p[s.n - back + 1];
            if ((c == 0xE0 && d < 0xA0) || (c == 0xED && d > 0x9F) || (c == 0xF0 && d < 0x90) ||
                (c == 0xF4 && d > 0x8F))
                return 0;
        }
        return back;
    }
    return 0;
}

/* Length of the longest prefix that text_utf8_clean leaves as it is. */
static size_t clean_prefix(struct str s)
{
    static const uint32_t least[5] = { 0, 0, 0x80, 0x800, 0x10000 };
    size_t i = 0;

    while (i < s.n) {
        uint64_t w;
        size_t len;
        if (i + 8 <= s.n && (memcpy(&w, s.p + i, 8), (w & 0x8080808080808080U) == 0)) {
            i += 8;
            continue;
        }
        uint32_t cp = text_utf8_lax(s.p + i, s.n - i, &len);
        if ((cp == TEXT_BAD && len == 1) || cp < least[len])
            return i;
        i += len;
    }
    return i;
}

enum err_code text_utf8_clean(struct str s, struct str *out, char **copy, struct err *e)
{
    size_t ok = clean_prefix(s), n = ok, len;
    char buf[4];

    *copy = NULL;
    *out = s;
    if (ok == s.n)
        return ERR_OK;
    for (size_t i = ok; i < s.n; i += len)
        n += str_utf8_put(buf, text_utf8_lax(s.p + i, s.n - i, &len));
    char *p = malloc(n);
    if (p == NULL)
        return err_nomem(e);
    memcpy(p, s.p, ok);
    n = ok;
    for (size_t i = ok; i < s.n; i += len) {
        size_t k = str_utf8_put(buf, text_utf8_lax(s.p + i, s.n - i, &len));
        memcpy(p + n, buf, k);
        n += k;
    }
    *copy = p;
    *out = (struct str){ p, n };
    return ERR_OK;
}

/* Bytes that are not printable Latin-1, so that they are spelled by their rank among these. */
static bool is_hidden(unsigned b)
{
    return b <= 0x20 || (b >= 0x7F && b <= 0xA0) || b == 0xAD;
}

size_t text_byte_spell(char out[2], unsigned char b)
{
    char buf[4];
    uint32_t cp = b;

    if (is_hidden(b))
        cp = b <= 0x20 ? 0x100U + b : b <= 0xA0 ? 0x121U + (b - 0x7FU) : 0x143U;
    size_t n = str_utf8_put(buf, cp);
    memcpy(out, buf, n);
    return n;
}

bool text_unspell(struct str s, char *out, size_t *n)
{
    size_t k = 0, len;

    for (size_t i = 0; i < s.n; i += len) {
        uint32_t cp = (unsigned char)s.p[i];
        len = 1;
        if (cp >= 0x80)
            cp = text_utf8_get(s.p + i, s.n - i, &len);
        if (cp >= 0x100 && cp <= 0x120)
            cp -= 0x100;
        else if (cp > 0x120 && cp <= 0x142)
            cp = cp - 0x121 + 0x7F;
        else if (cp == 0x143)
            cp = 0xAD;
        else if (cp > 0xFF || is_hidden(cp))
            return false;
        out[k++] = (char)cp;
    }
    *n = k;
    return true;
}
