/* SPDX-License-Identifier: Apache-2.0 */
/* snippet.c - the part of a text that a query is about.                       room: recall */
#include <string.h>

#include "recall/document.h"

enum { FOUND_MAX = 512 };

struct found {
    size_t from, end;
    int word; /* of the query */
};

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static int read_words(struct str query, uint64_t key[RECALL_ASKED_MAX])
{
    char word[WORD_BYTES_MAX];
    size_t at = 0, len;
    int n = 0;

    while (n < RECALL_ASKED_MAX && (len = recall_word(query, &at, word)) > 0)
        if (recall_role_of(word, len) == RECALL_CONTENT)
            key[n++] = recall_stem_key(word, len);
    return n;
}

static int find_words(struct str text, const uint64_t *key, int n_keys, struct found *found)
{
    char word[WORD_BYTES_MAX];
    size_t at = 0, len;
    int n = 0;

    while (n < FOUND_MAX && (len = recall_word(text, &at, word)) > 0) {
        const uint64_t mine = recall_stem_key(word, len);

        for (int k = 0; k < n_keys; k++)
            if (key[k] == mine) {
                found[n++] = (struct found){ at > len ? at - len : 0, at, k };
                break;
            }
    }
    return n;
}

/* Whether a character of UTF-8 goes on at this byte. */
static bool goes_on(char c)
{
    return ((unsigned char)c & 0xC0) == 0x80;
}

/* Where a word begins from `at` to `found`; where there is no blank, as in Chinese, where a character begins. */
static size_t whole_from(struct str text, size_t at, size_t found)
{
    for (size_t i = at; i < found; i++)
        if (i == 0 || is_blank(text.p[i - 1]))
            return i;
    while (at < found && goes_on(text.p[at]))
        at++;
    return at;
}

/* The same for an end. */
static size_t whole_end(struct str text, size_t at, size_t found)
{
    for (size_t i = at; i > found; i--)
        if (i == text.n || is_blank(text.p[i]) || is_blank(text.p[i - 1]))
            return i;
    while (at > found && at < text.n && goes_on(text.p[at]))
        at--;
    return at;
}

struct str recall_snippet(struct str text, struct str query, size_t n)
{
    uint64_t key[RECALL_ASKED_MAX];
    struct found found[FOUND_MAX];
    const int n_keys = read_words(query, key), n_found = find_words(text, key, n_keys, found);
    size_t from = 0, end = 0;
    int most = 0;

    if (text.n <= n)
        return text;
    for (int i = 0; i < n_found; i++) {
        uint64_t have = 0;
        int count = 0, k = i;

        for (; k < n_found && found[k].end <= found[i].from + n; k++) {
            count += !(have >> found[k].word & 1);
            have |= UINT64_C(1) << found[k].word;
        }
        if (count > most) {
            most = count;
            from = found[i].from;
            end = found[k - 1].end;
        }
    }
    /* As much before as behind. */
    const size_t first = from, last = end, room = n > end - from ? (n - (end - from)) / 2 : 0;

    from = from > room ? from - room : 0;
    from = from + n > text.n ? text.n - n : from;
    end = whole_end(text, from + n, last);
    from = whole_from(text, from, first);
    while (end > from && is_blank(text.p[end - 1]))
        end--;
    return (struct str){ text.p + from, end - from };
}
