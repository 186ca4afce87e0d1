/* SPDX-License-Identifier: Apache-2.0 */
/* memo.c - the last long texts and their tokens: a text that begins like one of them is encoded from there on.
 * room: text
 *
 * Special tokens part a text, and what lies between two of them is encoded by itself. So tokens up to the end of a
 * special token depend on the bytes before it, and on as many behind it as the longest special token has. */
#include <stdlib.h>
#include <string.h>
#include "text/vocab.h"

enum {
    KEPT = 32,
    TEXT_LEAST = 4096,
    CUT_LEAST = 64 /* bytes from one cut to the next */,
    TAIL = 256 /* bytes of a prompt behind its last message */
};
#define KEPT_BYTES_MAX ((size_t)64 << 20)

struct text_memo {
    struct kept {
        char *p; /* [n] the text, and [n] its marks behind it; NULL: empty */
        size_t n;
        int32_t *token; /* [n_tokens] */
        int64_t n_tokens;
        struct text_cut *cut; /* [n_cuts], ascending */
        size_t n_cuts;
        uint64_t used; /* when */
    } kept[KEPT];
    uint64_t now;
    size_t bytes;
};

enum err_code text_memo_open(struct text_memo **out, struct err *e)
{
    *out = calloc(1, sizeof **out);
    return *out != NULL ? ERR_OK : err_nomem(e);
}

static size_t bytes_of(const struct kept *k)
{
    return 2 * k->n + (size_t)k->n_tokens * sizeof *k->token + k->n_cuts * sizeof *k->cut;
}

static void drop_kept(struct text_memo *m, struct kept *k)
{
    m->bytes -= bytes_of(k);
    free(k->p);
    free(k->token);
    free(k->cut);
    *k = (struct kept){ 0 };
}

void text_memo_close(struct text_memo *m)
{
    for (int i = 0; m != NULL && i < KEPT; i++)
        drop_kept(m, &m->kept[i]);
    free(m);
}

/* Bytes that a and b begin with alike, of n. */
static size_t same_bytes(const char *a, const char *b, size_t n)
{
    size_t at = 0;

    for (size_t step = 4096; step > 0; step /= 8)
        while (at + step <= n && memcmp(a + at, b + at, step) == 0)
            at += step;
    return at;
}

struct text_cut text_memo_find(struct text_memo *m, struct str s, const unsigned char *mark, struct text_known *known)
{
    struct text_cut best = { 0 };

    *known = (struct text_known){ 0 };
    for (int i = 0; i < KEPT; i++) {
        struct kept *k = &m->kept[i];
        size_t n = k->n < s.n ? k->n : s.n, lo = 0, hi = k->n_cuts;

        if (k->p == NULL)
            continue;
        n = same_bytes(k->p, s.p, n);
        n = same_bytes(k->p + k->n, (const char *)mark, n);
        while (lo < hi) { /* the cuts that what is alike reaches over */
            const size_t mid = lo + (hi - lo) / 2;

            if (k->cut[mid].byte + SPECIAL_BYTES_MAX <= n)
                lo = mid + 1;
            else
                hi = mid;
        }
        if (lo == 0 || k->cut[lo - 1].byte <= best.byte)
            continue;
        best = k->cut[lo - 1];
        *known = (struct text_known){ i, n, lo, k->token, k->cut };
        k->used = ++m->now;
    }
    return best;
}

/* Where the text goes: the one that it goes on from, an empty place, or the one that was not used for longest. */
static struct kept *place_text(struct text_memo *m, const struct text_known *known, size_t n)
{
    struct kept *k = &m->kept[0];

    if (known->n_cuts > 0 && m->kept[known->at].n <= n && m->kept[known->at].n - known->same <= TAIL)
        return &m->kept[known->at];
    for (int i = 1; i < KEPT && k->p != NULL; i++)
        if (m->kept[i].p == NULL || m->kept[i].used < k->used)
            k = &m->kept[i];
    return k;
}

void text_memo_keep(struct text_memo *m, struct str s, const unsigned char *mark, const int32_t *token,
                    int64_t n_tokens, const struct text_cuts *cuts, const struct text_known *known)
{
    struct kept new = { .n = s.n, .n_tokens = n_tokens, .n_cuts = known->n_cuts, .used = ++m->now };

    if (s.n < TEXT_LEAST)
        return;
    new.cut = malloc((known->n_cuts + cuts->n + 1) * sizeof *new.cut);
    new.p = malloc(2 * s.n);
    new.token = malloc(((size_t)n_tokens + 1) * sizeof *new.token);
    if (new.cut == NULL || new.p == NULL || new.token == NULL) { /* then the next one is encoded whole */
        free(new.cut);
        free(new.p);
        free(new.token);
        return;
    }
    if (known->n_cuts > 0)
        memcpy(new.cut, known->cut, known->n_cuts * sizeof *new.cut);
    for (size_t i = 0; i < cuts->n; i++)
        if (new.n_cuts == 0 || cuts->v[i].byte >= new.cut[new.n_cuts - 1].byte + CUT_LEAST)
            new.cut[new.n_cuts++] = cuts->v[i];
    memcpy(new.p, s.p, s.n);
    memcpy(new.p + s.n, mark, s.n);
    memcpy(new.token, token, (size_t)n_tokens * sizeof *token);
    struct kept *k = place_text(m, known, s.n);

    drop_kept(m, k);
    while (m->bytes + bytes_of(&new) > KEPT_BYTES_MAX && m->bytes > 0) {
        struct kept *old = NULL;

        for (int i = 0; i < KEPT; i++)
            if (m->kept[i].p != NULL && (old == NULL || m->kept[i].used < old->used))
                old = &m->kept[i];
        drop_kept(m, old);
    }
    *k = new;
    m->bytes += bytes_of(k);
    if (m->bytes > KEPT_BYTES_MAX) /* alone */
        drop_kept(m, k);
}
