/* SPDX-License-Identifier: Apache-2.0 */
/* porter.c - stems of English words.                                          room: recall
 *
 * M. F. Porter, An algorithm for suffix stripping, Program 14 (3), 1980: steps 1a to 5b, with the two changes of his
 * own program ("logi" in step 2, "bli" in place of "abli"). */
#include <string.h>

#include "recall/internal.h"

struct suffix {
    const char *old, *new;
};

static bool is_consonant(const char *w, size_t i)
{
    if (strchr("aeiou", w[i]) != NULL)
        return false;
    return w[i] != 'y' || i == 0 || !is_consonant(w, i - 1);
}

/* m: how often consonants follow vowels in the first n letters. */
static int measure(const char *w, size_t n)
{
    int m = 0;

    for (size_t i = 1; i < n; i++)
        m += is_consonant(w, i) && !is_consonant(w, i - 1);
    return m;
}

static bool has_vowel(const char *w, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!is_consonant(w, i))
            return true;
    return false;
}

static bool ends_in(const char *w, size_t n, const char *tail)
{
    const size_t k = strlen(tail);

    return n > k && memcmp(w + n - k, tail, k) == 0;
}

static bool is_double(const char *w, size_t n)
{
    return n > 1 && w[n - 1] == w[n - 2] && is_consonant(w, n - 1);
}

/* Consonant, vowel, consonant other than w, x, y: "hop", not "hoop". */
static bool is_short(const char *w, size_t n)
{
    return n > 2 && is_consonant(w, n - 1) && !is_consonant(w, n - 2) && is_consonant(w, n - 3) &&
           strchr("wxy", w[n - 1]) == NULL;
}

/* The first suffix of a list that w has is exchanged if what is before it has a measure of at least m. */
static size_t exchange(char *w, size_t n, const struct suffix *list, int m)
{
    for (; list->old != NULL; list++) {
        const size_t k = strlen(list->old), len = strlen(list->new);

        if (!ends_in(w, n, list->old))
            continue;
        if (measure(w, n - k) < m)
            return n;
        memcpy(w + n - k, list->new, len);
        return n - k + len;
    }
    return n;
}

static size_t step_1(char *w, size_t n)
{
    size_t k;

    if (ends_in(w, n, "sses") || ends_in(w, n, "ies"))
        n -= 2;
    else if (w[n - 1] == 's' && !ends_in(w, n, "ss"))
        n--;
    if (ends_in(w, n, "eed")) {
        n -= measure(w, n - 3) > 0;
    } else if ((k = ends_in(w, n, "ed") ? 2 : ends_in(w, n, "ing") ? 3 : 0) > 0 && has_vowel(w, n - k)) {
        n -= k;
        if (ends_in(w, n, "at") || ends_in(w, n, "bl") || ends_in(w, n, "iz") || (measure(w, n) == 1 && is_short(w, n)))
            w[n++] = 'e'; /* there was a longer ending here */
        else if (is_double(w, n) && strchr("lsz", w[n - 1]) == NULL)
            n--;
    }
    if (w[n - 1] == 'y' && has_vowel(w, n - 1))
        w[n - 1] = 'i';
    return n;
}

static size_t step_4(const char *w, size_t n)
{
    static const char *const list[] = { "al",  "ance", "ence", "er",  "ic",  "able", "ible", "ant", "ement", "ment",
                                        "ent", "ion",  "ou",   "ism", "ate", "iti",  "ous",  "ive", "ize" };

    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        const size_t k = strlen(list[i]);

        if (!ends_in(w, n, list[i]))
            continue;
        if (strcmp(list[i], "ion") == 0 && strchr("st", w[n - k - 1]) == NULL)
            return n;
        return measure(w, n - k) > 1 ? n - k : n;
    }
    return n;
}

size_t recall_stem_english(const char *word, size_t n, char out[WORD_BYTES_MAX])
{
    static const struct suffix second[] = {
        { "ational", "ate" }, { "tional", "tion" }, { "enci", "ence" }, { "anci", "ance" }, { "izer", "ize" },
        { "bli", "ble" },     { "alli", "al" },     { "entli", "ent" }, { "eli", "e" },     { "ousli", "ous" },
        { "ization", "ize" }, { "ation", "ate" },   { "ator", "ate" },  { "alism", "al" },  { "iveness", "ive" },
        { "fulness", "ful" }, { "ousness", "ous" }, { "aliti", "al" },  { "iviti", "ive" }, { "biliti", "ble" },
        { "logi", "log" },    { NULL, NULL },
    };
    static const struct suffix third[] = { { "icate", "ic" }, { "ative", "" }, { "alize", "al" }, { "iciti", "ic" },
                                           { "ical", "ic" },  { "ful", "" },   { "ness", "" },    { NULL, NULL } };

    memcpy(out, word, n);
    for (size_t i = 0; i < n; i++)
        if (word[i] < 'a' || word[i] > 'z')
            return n;
    if (n < 3)
        return n;
    n = step_1(out, n);
    n = exchange(out, n, second, 1);
    n = exchange(out, n, third, 1);
    n = step_4(out, n);
    if (out[n - 1] == 'e' && (measure(out, n - 1) > 1 || (measure(out, n - 1) == 1 && !is_short(out, n - 1))))
        n--;
    if (measure(out, n) > 1 && is_double(out, n) && out[n - 1] == 'l')
        n--;
    return n;
}
