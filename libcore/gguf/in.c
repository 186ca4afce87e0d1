/* SPDX-License-Identifier: Apache-2.0 */
/* in.c - a reading position, its messages, and the sort that finds duplicates.
 *
 * A check compares with what is left instead of adding to a position, so that nothing can wrap.
 */
#include "gguf/parse.h"

#include <inttypes.h>
#include <string.h>

enum err_code gguf_bad(const struct gguf_in *in, size_t at)
{
    return err_wrap(in->e, "%s: offset %zu", in->file, at);
}

struct str gguf_shown(struct str s)
{
    if (s.n > 80) {
        s.n = 80;
        while (s.n > 0 && ((unsigned char)s.p[s.n] & 0xc0) == 0x80)
            s.n--;
    }
    return s;
}

bool gguf_text_ok(struct str s)
{
    for (size_t i = 0, n; i < s.n; i += n) {
        n = str_utf8((struct str){ s.p + i, s.n - i });
        if (n == 0 || (unsigned char)s.p[i] < 0x20 || s.p[i] == 0x7f)
            return false;
    }
    return s.n > 0;
}

enum err_code gguf_need(struct gguf_in *in, uint64_t n, const char *what)
{
    if (n <= gguf_left(in))
        return ERR_OK;
    err_set(in->e, ERR_FORMAT, "truncated: %s takes %" PRIu64 " bytes, the file has %zu left", what, n, gguf_left(in));
    return gguf_bad(in, in->at);
}

enum err_code gguf_take_u32(struct gguf_in *in, uint32_t *v, const char *what)
{
    if (gguf_need(in, 4, what))
        return in->e->code;
    *v = gguf_load_u32(in->base + in->at);
    in->at += 4;
    return ERR_OK;
}

enum err_code gguf_take_u64(struct gguf_in *in, uint64_t *v, const char *what)
{
    if (gguf_need(in, 8, what))
        return in->e->code;
    *v = gguf_load_u64(in->base + in->at);
    in->at += 8;
    return ERR_OK;
}

enum err_code gguf_take_name(struct gguf_in *in, struct str *s, size_t max, const char *what)
{
    size_t at = in->at;
    uint64_t n;

    if (gguf_take_u64(in, &n, what))
        return in->e->code;
    if (n > gguf_left(in)) {
        err_set(in->e, ERR_FORMAT, "string-length: %s of %" PRIu64 " bytes, the file has %zu left", what, n,
                gguf_left(in));
        return gguf_bad(in, at);
    }
    if (n == 0 || n > max) {
        err_set(in->e, ERR_FORMAT, "name-length: %s of %" PRIu64 " bytes, allowed are 1 to %zu", what, n, max);
        return gguf_bad(in, at);
    }
    *s = (struct str){ (const char *)in->base + in->at, (size_t)n };
    if (!gguf_text_ok(*s)) {
        err_set(in->e, ERR_FORMAT, "name-text: %s is not UTF-8 or has a control character", what);
        return gguf_bad(in, in->at);
    }
    in->at += (size_t)n;
    return ERR_OK;
}

int gguf_str_cmp(struct str a, struct str b)
{
    int c = memcmp(a.p, b.p, a.n < b.n ? a.n : b.n);

    return c != 0 ? c : (a.n > b.n) - (a.n < b.n);
}

/* Heapsort: in place and never quadratic, whatever the file says. */
void gguf_sort(uint32_t *order, size_t n, gguf_cmp_fn *cmp, const void *v)
{
    size_t root = n / 2, end = n;

    for (size_t i = 0; i < n; i++)
        order[i] = (uint32_t)i;
    while (end > 1) {
        uint32_t x;
        size_t i, kid;

        if (root > 0) {
            x = order[--root];
        } else {
            x = order[--end];
            order[end] = order[0];
        }
        for (i = root; (kid = 2 * i + 1) < end; i = kid) {
            if (kid + 1 < end && cmp(v, order[kid], order[kid + 1]) < 0)
                kid++;
            if (cmp(v, x, order[kid]) >= 0)
                break;
            order[i] = order[kid];
        }
        order[i] = x;
    }
}
