/* SPDX-License-Identifier: Apache-2.0 */
/* words.c - words of a text, and texts by words.                              room: recall
 *
 * BM25 (Robertson and Zaragoza 2009) over lists of the texts that have a word. Its idf knows only the texts of the
 * index: in a list of definitions "what" is as rare as the word that is asked for. How many tokens a word has is a
 * second opinion, of all that the tokenizer was trained on. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "recall/internal.h"
#include "text/text.h"

enum {
    WORDS_MAX = 1000, /* of a query; what follows is left out */
    GROUP_MAX = 64,   /* words that stand for one of a query */
};

#define K1         1.2
#define B          0.75
/* What another form of a word counts, of 1. */
#define OTHER_FORM 0.5F

/* ---- words ---- */

static uint32_t decode_char(const char *p, size_t n)
{
    const unsigned char *u = (const unsigned char *)p;

    return n == 2   ? (u[0] & 31U) << 6 | (u[1] & 63U)
           : n == 3 ? (u[0] & 15U) << 12 | (u[1] & 63U) << 6 | (u[2] & 63U)
           : n == 4 ? (u[0] & 7U) << 18 | (u[1] & 63U) << 12 | (u[2] & 63U) << 6 | (u[3] & 63U)
                    : u[0];
}

static bool is_word(uint32_t c)
{
    if (c < 0x80)
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    return c >= 0xAA && c != 0xAB && c != 0xBB && c != 0xBF && c != 0xD7 && c != 0xF7 &&
           !(c >= 0x2000 && c <= 0x206F) && !(c >= 0x3000 && c <= 0x303F) && !(c >= 0xFF00 && c <= 0xFF0F);
}

/* Scripts that write no spaces between words: each character is taken for one. */
static bool is_alone(uint32_t c)
{
    return c >= 0x2E80 && !(c >= 0xAC00 && c <= 0xD7FF);
}

/* Latin-1, Greek and Cyrillic capitals, which keep their length in UTF-8 but for those of 0x400 and 0x420. */
static uint32_t lower_case(uint32_t c)
{
    if ((c >= 'A' && c <= 'Z') || (c >= 0xC0 && c <= 0xDE) || (c >= 0x391 && c <= 0x3A9) || (c >= 0x410 && c <= 0x42F))
        return c + 0x20;
    return c >= 0x400 && c <= 0x40F ? c + 0x50 : c;
}

size_t recall_word(struct str s, size_t *at, char word[WORD_BYTES_MAX])
{
    size_t n = 0, len;

    for (; *at < s.n; *at += len) {
        len = str_utf8((struct str){ s.p + *at, s.n - *at });
        const uint32_t c = len > 0 ? decode_char(s.p + *at, len) : ' ', l = lower_case(c);

        len = len > 0 ? len : 1;
        if (!is_word(c) || (is_alone(c) && n > 0)) {
            if (n > 0)
                return n;
            continue;
        }
        if (n + len <= WORD_BYTES_MAX) {
            if (len == 2) {
                word[n] = (char)(0xC0 | l >> 6);
                word[n + 1] = (char)(0x80 | (l & 63));
            } else
                memcpy(word + n, len == 1 ? (char[1]){ (char)l } : s.p + *at, len);
            n += len;
        }
        if (is_alone(c)) {
            *at += len;
            return n;
        }
    }
    return n;
}

enum err_code recall_each_word(struct str s, recall_word_fn *fn, void *ctx, uint32_t *length, struct err *e)
{
    char word[WORD_BYTES_MAX], both[2 * WORD_BYTES_MAX];
    size_t at = 0, n, before = 0, hyphen = SIZE_MAX; /* before: bytes of the word in `both`; hyphen: where it ends */

    while ((n = recall_word(s, &at, word)) > 0) {
        if (fn(ctx, word, n, e))
            return e->code;
        /* "OPL-3" is also found as OPL3. */
        memcpy(both + before, word, n);
        if (hyphen != SIZE_MAX && at - hyphen == n + 1 && s.p[hyphen] == '-' && before + n <= WORD_BYTES_MAX &&
            fn(ctx, both, before + n, e))
            return e->code;
        memcpy(both, word, n);
        before = n;
        hyphen = at;
        ++*length;
    }
    return ERR_OK;
}

/* ---- BM25 ---- */

/* The place of a word; n_words: it is in no text. */
static uint64_t find_word(const struct recall *r, const char *word, size_t n)
{
    uint64_t lo = 0, hi = r->s.n_words;

    while (lo < hi) {
        const uint64_t mid = lo + (hi - lo) / 2, from = mid > 0 ? r->word_end[mid - 1] : 0;
        const size_t have = (size_t)(r->word_end[mid] - from);
        int cmp = memcmp(r->word + from, word, have < n ? have : n);

        if (cmp == 0)
            cmp = (have > n) - (have < n);
        if (cmp == 0)
            return mid;
        *(cmp < 0 ? &lo : &hi) = cmp < 0 ? mid + 1 : mid;
    }
    return r->s.n_words;
}

/* squared: for questions of which a name is what counts */
static enum err_code weight(bool squared, uint64_t n_texts, const struct text *t, const char *word, size_t n,
                            uint64_t df, double *out, struct err *e)
{
    /* What no text has is taken to be as rare as what one has. */
    const double have = df > 0 ? (double)df : 1, idf = log1p(fmax((double)n_texts - have + 0.5, 0.5) / (have + 0.5));
    char spaced[WORD_BYTES_MAX + 1] = " ";
    struct text_tokens ids = { 0 };
    enum err_code code;

    memcpy(spaced + 1, word, n);
    code = text_encode(t, (struct str){ spaced, n + 1 }, 0, &ids, e);
    *out = squared ? idf * idf * (double)(ids.n * ids.n) : idf * (double)ids.n;
    text_tokens_free(&ids);
    return code;
}

struct sums {
    float *score, *share; /* [n_texts] */
    float *tf;            /* [n_texts] of one word of the query */
};

/* Of a word that a text of `length` words has tf times. */
static double score_of(double weight_of, double tf, double length, double length_mean)
{
    return weight_of * tf * (K1 + 1) / (tf + K1 * (1 - B + B * length / length_mean));
}

/* Words of the index that stand for one of a query. */
struct group {
    uint64_t word[GROUP_MAX];
    int n, n_own; /* n_own: 1 if the word itself is the first one, else 0 */
    uint64_t df;  /* of the word itself; where no text has it, of all, and a text may count twice */
};

static void add_to_group(const struct recall *r, struct group *g, uint64_t w)
{
    for (int i = 0; i < g->n; i++)
        if (g->word[i] == w)
            return;
    if (w >= r->s.n_words || g->n == GROUP_MAX)
        return;
    g->word[g->n++] = w;
    if (g->n_own == 0)
        g->df += r->posting_end[w] - (w > 0 ? r->posting_end[w - 1] : 0);
}

/* tf: [n_texts] zeros, which they are again at the end. */
static void add_postings(const struct recall *r, const struct group *g, double weight_of, const struct sums *s)
{
    for (int twice = 0; twice < 2; twice++)
        for (int k = 0; k < g->n; k++) {
            const uint64_t w = g->word[k];

            for (uint64_t i = w > 0 ? r->posting_end[w - 1] : 0; i < r->posting_end[w]; i++) {
                const struct posting *p = &r->posting[i];

                if (!twice)
                    s->tf[p->text] += (float)p->count * (k < g->n_own ? 1 : OTHER_FORM);
                else if (s->tf[p->text] > 0) {
                    s->score[p->text] += (float)score_of(weight_of, s->tf[p->text], r->length[p->text], r->length_mean);
                    s->share[p->text] += (float)weight_of;
                    s->tf[p->text] = 0;
                }
            }
        }
}

/* Whether the query has the word before `end`, too. */
static bool was_before(struct str query, size_t end, const char *word, size_t n)
{
    char other[WORD_BYTES_MAX];
    size_t at = 0, got;

    while (at < end && (got = recall_word((struct str){ query.p, end }, &at, other)) > 0)
        if (got == n && memcmp(other, word, n) == 0)
            return true;
    return false;
}

/* ---- the words of a query ---- */

struct asked {
    char word[WORD_BYTES_MAX];
    size_t n;
    bool again; /* it stood before */
};

/* Where the first part of a word as it is written ends: "Tn" of TnSeq, "OPL" of OPL3. */
static size_t first_part(struct str s)
{
    for (size_t i = 1; i < s.n; i++) {
        const unsigned char a = (unsigned char)s.p[i - 1], b = (unsigned char)s.p[i];
        const bool digit_a = a >= '0' && a <= '9', digit_b = b >= '0' && b <= '9';

        if (digit_a != digit_b || (a >= 'a' && a <= 'z' && b >= 'A' && b <= 'Z'))
            return i;
    }
    return s.n;
}

/* Adds the words of s; one that no text has in its parts, at most three. */
static int read_words(const struct recall *r, struct str s, bool exact, struct asked *v)
{
    size_t at = 0, part;
    int n = 0;

    while (n < WORDS_MAX - 2) {
        struct asked *w = &v[n];

        w->again = false;
        if ((w->n = recall_word(s, &at, w->word)) == 0)
            break;
        n++;
        if (exact || w->n == WORD_BYTES_MAX || find_word(r, w->word, w->n) < r->s.n_words)
            continue;
        struct str rest = { s.p + at - w->n, w->n };

        for (n--; rest.n > 0; rest = (struct str){ rest.p + part, rest.n - part }) {
            size_t from = 0;

            part = n - (int)(w - v) < 2 ? first_part(rest) : rest.n;
            v[n].again = false;
            v[n].n = recall_word((struct str){ rest.p, part }, &from, v[n].word);
            n += v[n].n > 0;
        }
    }
    return n;
}

static bool is_same(const struct asked *a, const struct asked *b, bool exact)
{
    char x[WORD_BYTES_MAX], y[WORD_BYTES_MAX];

    if (exact)
        return a->n == b->n && memcmp(a->word, b->word, a->n) == 0;
    const size_t n = recall_stem_english(a->word, a->n, x), m = recall_stem_english(b->word, b->n, y);

    return n == m && memcmp(x, y, n) == 0;
}

static void add_joined(const struct recall *r, struct group *g, const struct asked *a, const struct asked *b)
{
    char both[2 * WORD_BYTES_MAX];

    memcpy(both, a->word, a->n);
    memcpy(both + a->n, b->word, b->n);
    if (a->n + b->n <= WORD_BYTES_MAX)
        add_to_group(r, g, find_word(r, both, a->n + b->n));
}

/* How the stem of word w of the index compares with another. */
static int compare_stem(const struct recall *r, uint64_t w, const char *stem, size_t n)
{
    char mine[WORD_BYTES_MAX];
    const uint64_t from = w > 0 ? r->word_end[w - 1] : 0;
    const size_t m = recall_stem_english(r->word + from, (size_t)(r->word_end[w] - from), mine);
    const int cmp = memcmp(mine, stem, m < n ? m : n);

    return cmp != 0 ? cmp : (m > n) - (m < n);
}

static void add_stems(const struct recall *r, struct group *g, const struct asked *a)
{
    char stem[WORD_BYTES_MAX];
    const size_t n = recall_stem_english(a->word, a->n, stem);
    uint64_t lo = 0, hi = r->by_stem != NULL ? r->s.n_words : 0;

    while (lo < hi) {
        const uint64_t mid = lo + (hi - lo) / 2;

        *(compare_stem(r, r->by_stem[mid], stem, n) < 0 ? &lo : &hi) =
            compare_stem(r, r->by_stem[mid], stem, n) < 0 ? mid + 1 : mid;
    }
    for (; r->by_stem != NULL && lo < r->s.n_words && compare_stem(r, r->by_stem[lo], stem, n) == 0; lo++)
        add_to_group(r, g, r->by_stem[lo]);
}

static enum err_code score_words(const struct recall *r, const struct text *t, struct asked *v, int n, bool exact,
                                 const struct sums *s, double *all, struct err *e)
{
    for (int i = 0; i < n; i++) {
        struct group g = { .n = 0 };
        double weight_of;

        for (int k = 0; k < i && !v[i].again; k++)
            v[i].again = is_same(&v[k], &v[i], exact);
        if (v[i].again)
            continue;
        add_to_group(r, &g, find_word(r, v[i].word, v[i].n));
        g.n_own = g.n;
        if (!exact) {
            add_stems(r, &g, &v[i]);
            if (i > 0)
                add_joined(r, &g, &v[i - 1], &v[i]);
            if (i + 1 < n)
                add_joined(r, &g, &v[i], &v[i + 1]);
        }
        if (weight(exact, r->s.n_texts, t, v[i].word, v[i].n, g.df < r->s.n_texts ? g.df : r->s.n_texts, &weight_of, e))
            return e->code;
        *all += weight_of;
        add_postings(r, &g, weight_of, s);
    }
    return ERR_OK;
}

enum err_code recall_words(const struct recall *r, const struct text *t, struct str query, bool exact, int k,
                           struct recall_hit *hits, int *n, struct err *e)
{
    const size_t n_texts = (size_t)r->s.n_texts;
    struct sums s = { calloc(n_texts + 1, sizeof(float)), calloc(n_texts + 1, sizeof(float)),
                      calloc(n_texts + 1, sizeof(float)) };
    struct asked *v = malloc(WORDS_MAX * sizeof *v);
    enum err_code code;
    double all = 0;

    code = s.score != NULL && s.share != NULL && s.tf != NULL && v != NULL ? ERR_OK : err_nomem(e);
    if (code == ERR_OK)
        code = score_words(r, t, v, read_words(r, query, exact, v), exact, &s, &all, e);
    *n = 0;
    for (size_t i = 0; code == ERR_OK && i < n_texts; i++)
        if (s.score[i] > 0)
            recall_keep(hits, n, k, (struct recall_hit){ (int64_t)i, s.score[i], (float)((double)s.share[i] / all) });
    free(s.score);
    free(s.share);
    free(s.tf);
    free(v);
    return code;
}

/* ---- texts that are in no index ---- */

struct asked_word {
    char word[WORD_BYTES_MAX];
    size_t n;
    uint64_t df;
};
struct ranking {
    struct asked_word *word;    /* [n_words] of the query, each once, in its order */
    struct asked_word **sorted; /* the same, by their bytes */
    int n_words, n_texts;
    uint32_t *count;  /* [n_texts][n_words] */
    uint64_t *length; /* [n_texts] in words */
};

static int by_bytes(const void *a, const void *b)
{
    const struct asked_word *const *x = a, *const *y = b;
    const size_t n = (*x)->n < (*y)->n ? (*x)->n : (*y)->n;
    const int cmp = memcmp((*x)->word, (*y)->word, n);

    return cmp != 0 ? cmp : ((*x)->n > (*y)->n) - ((*x)->n < (*y)->n);
}

static void read_query(struct ranking *r, struct str query)
{
    size_t at = 0;

    for (int i = 0; i < WORDS_MAX; i++) {
        const size_t from = at;
        struct asked_word *w = &r->word[r->n_words];

        if ((w->n = recall_word(query, &at, w->word)) == 0)
            break;
        r->n_words += !was_before(query, from, w->word, w->n);
    }
    for (int i = 0; i < r->n_words; i++)
        r->sorted[i] = &r->word[i];
    qsort(r->sorted, (size_t)r->n_words, sizeof(struct asked_word *), by_bytes);
}

static void count_words(struct ranking *r, int text, struct str s)
{
    struct asked_word one, *key = &one, **found;
    uint32_t *count = r->count + (size_t)text * (size_t)r->n_words;
    size_t at = 0;

    while ((one.n = recall_word(s, &at, one.word)) > 0) {
        r->length[text]++;
        found = bsearch(&key, r->sorted, (size_t)r->n_words, sizeof(struct asked_word *), by_bytes);
        if (found != NULL && count[*found - r->word]++ == 0)
            (*found)->df++;
    }
}

/* The sums of a query's words, and the most that a text can have. */
static enum err_code add_words(const struct ranking *r, const struct text *t, double length_mean, float *score,
                               double *most, struct err *e)
{
    for (int w = 0; w < r->n_words; w++) {
        double weight_of;

        if (weight(true, (uint64_t)r->n_texts, t, r->word[w].word, r->word[w].n, r->word[w].df, &weight_of, e))
            return e->code;
        *most += weight_of * (K1 + 1);
        for (int i = 0; i < r->n_texts; i++) {
            const uint32_t tf = r->count[(size_t)i * (size_t)r->n_words + (size_t)w];

            if (tf > 0)
                score[i] += (float)score_of(weight_of, tf, (double)r->length[i], length_mean);
        }
    }
    return ERR_OK;
}

enum err_code recall_rank(const struct text *t, struct str query, const struct str *texts, int n, float *score,
                          double *most, struct err *e)
{
    struct ranking r = { .word = calloc(WORDS_MAX + 1, sizeof *r.word),
                         .sorted = calloc(WORDS_MAX + 1, sizeof(struct asked_word *)),
                         .length = calloc((size_t)n + 1, sizeof *r.length),
                         .n_texts = n };
    enum err_code code = r.word != NULL && r.sorted != NULL && r.length != NULL ? ERR_OK : err_nomem(e);
    double mean = 0;

    *most = 0;
    if (code == ERR_OK) {
        read_query(&r, query);
        r.count = calloc((size_t)n * (size_t)r.n_words + 1, sizeof *r.count);
        code = r.count != NULL ? ERR_OK : err_nomem(e);
    }
    for (int i = 0; code == ERR_OK && i < n; i++) {
        score[i] = 0;
        count_words(&r, i, texts[i]);
    }
    for (int i = 0; i < n && code == ERR_OK; i++)
        mean += (double)r.length[i] / (double)n;
    if (code == ERR_OK)
        code = add_words(&r, t, mean > 1 ? mean : 1, score, most, e);
    free(r.word);
    free(r.sorted);
    free(r.length);
    free(r.count);
    return code;
}
