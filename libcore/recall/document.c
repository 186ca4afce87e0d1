/* SPDX-License-Identifier: Apache-2.0 */
/* document.c - what a document says on a question: the line or the paragraph that it is in.      room: recall
 *
 * The document is read from its beginning for each question: a MiB takes 0.15 s, and nothing has to be built
 * or kept. */
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "recall/span.h"
#include "text/text.h"

enum {
    BEST = 8 /* paragraphs that are looked at closely */,
    NAME_WORDS = 8,
    NAME_BYTES = 100,
    PARAGRAPHS = 3 /* whose spans are ranked */
};

/* A line or a paragraph has half of what the question asks for, or it is about something else; a paragraph with a name
 * of the question may have less. */
#define SHARE_LEAST       0.5
#define SHARE_LEAST_NAMED 0.25

/* ---- words ---- */

static int find_asked(const struct recall_asked *q, uint64_t key)
{
    if ((q->filter[key >> 6 & 7] >> (key & 63) & 1) == 0)
        return -1;
    for (int i = 0; i < q->n_keys; i++)
        if (q->key[i] == key)
            return q->key_of[i];
    return -1;
}

/* Names have no other forms than that with an s. */
static bool is_same_name(const struct recall_at *a, const struct recall_at *b)
{
    const struct recall_at *longer = a->n > b->n ? a : b;
    const size_t n = a->n < b->n ? a->n : b->n;

    return memcmp(a->low, b->low, n) == 0 && (longer->n == n || (longer->n == n + 1 && longer->low[n] == 's'));
}

/* All of a word but its role. */
static bool next_word(struct str s, size_t *at, const struct recall_asked *q, struct recall_at *out)
{
    out->n = recall_word(s, at, out->low);
    if (out->n == 0)
        return false;
    size_t from = *at - out->n;

    while (from > 0 && ((unsigned char)s.p[from] & 0xC0) == 0x80)
        from--;
    const unsigned char c = (unsigned char)s.p[from];

    out->s = (struct str){ s.p + from, *at - from };
    out->key = recall_stem_key(out->low, out->n);
    out->asked = q != NULL ? find_asked(q, out->key) : -1;
    if (out->asked >= 0 && q->name[out->asked] && !is_same_name(out, &q->word[out->asked]))
        out->asked = -1;
    out->capital = c != (unsigned char)out->low[0] || (c >= 0xC3 && memcmp(s.p + from, out->low, out->n) != 0);
    out->digit = false;
    for (size_t i = 0; i < out->n; i++)
        out->digit = out->digit || (out->low[i] >= '0' && out->low[i] <= '9');
    return true;
}

bool recall_next_at(struct str s, size_t *at, const struct recall_asked *q, struct recall_at *out)
{
    if (!next_word(s, at, q, out))
        return false;
    const size_t from = (size_t)(out->s.p - s.p);
    const bool apostrophe = from > 0 && (s.p[from - 1] == '\'' || (unsigned char)s.p[from - 1] == 0x99);

    /* the s of "Anna's" is a part of the word before it */
    out->role = apostrophe && out->n == 1 ? RECALL_DET : recall_role_of(out->low, out->n);
    if (out->role == RECALL_AUX && out->capital && recall_is_kind(RECALL_DATE, out->low, out->n)) /* May */
        out->role = RECALL_CONTENT;
    return true;
}

/* ---- lines with a name ---- */

static struct str trimmed(struct str s)
{
    while (s.n > 0 && strchr(" \t\r\n*", s.p[0]) != NULL)
        s = (struct str){ s.p + 1, s.n - 1 };
    while (s.n > 0 && strchr(" \t\r\n*", s.p[s.n - 1]) != NULL)
        s.n--;
    return s;
}

/* "NAME: TEXT", "NAME - TEXT" and the like. */
static bool split_line(struct str line, struct str *name, struct str *text)
{
    static const char *const seps[] = { ": ", " - ", " = ", "\t", " \xe2\x80\x93 ", " \xe2\x80\x94 ", ":\t" };
    struct str s = trimmed(line);

    if (s.n > 2 && (s.p[0] == '-' || s.p[0] == '+') && s.p[1] == ' ')
        s = trimmed((struct str){ s.p + 2, s.n - 2 });
    for (size_t i = 1; i < s.n && i < NAME_BYTES; i++)
        for (size_t k = 0; k < sizeof seps / sizeof *seps; k++) {
            const size_t n = strlen(seps[k]);

            if (i + n >= s.n || memcmp(s.p + i, seps[k], n) != 0)
                continue;
            *name = trimmed((struct str){ s.p, i });
            *text = trimmed((struct str){ s.p + i + n, s.n - i - n });
            return name->n > 0 && text->n > 0 && str_find(*name, 0, STR(". ")) == SIZE_MAX;
        }
    return false;
}

/* The words of the question that together are the name without its blanks and hyphens: "xj200" is "XJ-200". */
static uint64_t joined_words(const struct recall_asked *q, struct str name)
{
    char want[NAME_BYTES + WORD_BYTES_MAX], have[NAME_BYTES + WORD_BYTES_MAX];
    struct recall_at w;
    size_t at = 0, n = 0;

    while (n + WORD_BYTES_MAX <= sizeof want && recall_next_at(name, &at, NULL, &w)) {
        memcpy(want + n, w.low, w.n);
        n += w.n;
    }
    for (int i = 0; i < q->n && n > 2; i++) {
        uint64_t bits = 0;
        size_t k = 0;

        for (int j = i; j < q->n && k < n && k + WORD_BYTES_MAX <= sizeof have; j++) {
            memcpy(have + k, q->word[j].low, q->word[j].n);
            k += q->word[j].n;
            bits |= UINT64_C(1) << j;
        }
        if (k == n && memcmp(have, want, n) == 0)
            return bits;
    }
    return 0;
}

/* The question's words that the name has; 0: the question does not name it. */
static uint64_t named_words(const struct recall_asked *q, struct str name)
{
    struct recall_at w;
    size_t at = 0;
    uint64_t bits = 0;
    int words = 0, missing = 0;

    while (recall_next_at(name, &at, q, &w)) {
        /* of "lilypond-doc-it" also the last word */
        const bool tight =
            (w.s.p > name.p && w.s.p[-1] == '-') || (w.s.p + w.s.n < name.p + name.n && w.s.p[w.s.n] == '-');
        const bool counts = tight || w.role == RECALL_CONTENT || w.role == RECALL_ADV;
        int asked = w.asked;

        for (int i = 0; i < q->n && asked < 0 && counts; i++)
            asked = q->word[i].key == w.key ? i : -1;
        words += counts;
        missing += counts && asked < 0;
        bits |= asked >= 0 ? UINT64_C(1) << asked : 0;
    }
    if (words == 0 || words > NAME_WORDS)
        return 0;
    return missing == 0 ? bits : joined_words(q, name);
}

/* ---- the document ---- */

struct block {
    struct str s;
    double score;
};
struct search {
    struct recall_asked q;
    struct str document, question;
    double all;              /* weight of the question */
    struct block best[BEST]; /* [n_best], the best one first */
    int n_best;
    struct str text; /* of the best line with a name */
    double line_score, line_has;
};

/* The paragraph at *at: up to an empty line. */
static struct str next_block(struct str document, size_t *at)
{
    const char *p = document.p;
    size_t from = *at, i;

    while (from < document.n && (p[from] == '\n' || p[from] == '\r' || p[from] == ' ' || p[from] == '\t'))
        from++;
    for (i = from; i < document.n; i++) {
        size_t k = i + 1;

        if (p[i] != '\n')
            continue;
        while (k < document.n && (p[k] == ' ' || p[k] == '\t' || p[k] == '\r'))
            k++;
        if (k == document.n || p[k] == '\n')
            break;
    }
    *at = i;
    return (struct str){ p + from, i - from };
}

static struct str next_line(struct str block, size_t *at)
{
    const char *nl = memchr(block.p + *at, '\n', block.n - *at);
    const size_t from = *at, end = nl != NULL ? (size_t)(nl - block.p) : block.n;

    *at = nl != NULL ? end + 1 : end;
    return (struct str){ block.p + from, end - from };
}

/* Which words of the question a text has, as bits. */
static uint64_t words_in(const struct recall_asked *q, struct str s)
{
    struct recall_at w;
    size_t at = 0;
    uint64_t bits = 0;

    while (next_word(s, &at, q, &w))
        if (w.asked >= 0)
            bits |= UINT64_C(1) << w.asked;
    return bits;
}

static double weight_of(const struct recall_asked *q, uint64_t bits)
{
    double sum = 0;

    for (int i = 0; i < q->n; i++)
        sum += (bits >> i & 1) != 0 ? q->weight[i] : 0;
    return sum;
}

/* A word's weight: that of recall_words(), in an index of the document's lines. */
static enum err_code weigh_words(struct search *x, const struct text *t, struct err *e)
{
    double df[RECALL_ASKED_MAX] = { 0 }, n = 0;
    struct text_tokens ids = { 0 };
    enum err_code code = ERR_OK;

    for (size_t at = 0; at < x->document.n;) {
        const uint64_t bits = words_in(&x->q, next_line(x->document, &at));

        n++;
        for (int i = 0; bits != 0 && i < x->q.n; i++)
            df[i] += (double)(bits >> i & 1);
    }
    for (int i = 0; code == ERR_OK && i < x->q.n; i++) {
        char spaced[WORD_BYTES_MAX + 1] = " ";
        const double have = df[i] > 0 ? df[i] : 1, idf = log1p((n + 10 - have + 0.5) / (have + 0.5));

        if (!(x->q.weight[i] > 0))
            continue;
        memcpy(spaced + 1, x->q.word[i].low, x->q.word[i].n);
        ids.n = 0;
        code = text_encode(t, (struct str){ spaced, x->q.word[i].n + 1 }, 0, &ids, e);
        x->q.weight[i] = idf * idf * (double)(ids.n * ids.n);
        if (recall_is_kind(RECALL_LIGHT, x->q.word[i].low, x->q.word[i].n))
            x->q.weight[i] *= 0.1;
        x->all += x->q.weight[i];
    }
    text_tokens_free(&ids);
    return code;
}

/* Two words of the question, the one that it has, or a name; numbers and verbs that say little do not count. */
static bool has_enough(const struct search *x, uint64_t bits)
{
    const struct recall_asked *q = &x->q;
    const double has = weight_of(q, bits);
    int asked = 0, found = 0, named = 0;

    for (int i = 0; i < q->n; i++)
        if (q->weight[i] > 0 && strchr("0123456789", q->word[i].low[0]) == NULL &&
            !recall_is_kind(RECALL_LIGHT, q->word[i].low, q->word[i].n)) {
            asked++;
            found += (int)(bits >> i & 1);
            named += q->name[i] && (bits >> i & 1) != 0;
        }
    if (named > 0 && has >= SHARE_LEAST_NAMED * x->all)
        return true;
    return has >= SHARE_LEAST * x->all && (found >= 2 || (found == 1 && asked == 1));
}

static void keep_block(struct search *x, struct str s, double score)
{
    int at = x->n_best < BEST ? x->n_best++ : BEST - 1;

    if (at == BEST - 1 && x->n_best == BEST && x->best[at].s.p != NULL && x->best[at].score >= score)
        return;
    for (; at > 0 && x->best[at - 1].score < score; at--)
        x->best[at] = x->best[at - 1];
    x->best[at] = (struct block){ s, score };
}

/* A line counts with what the paragraph says around it: a heading names what its lines are of. False: most of them have
 * a name, so that the paragraph is a list and no prose. */
static bool look_at_lines(struct search *x, struct str block, double around)
{
    int lines = 0, named_lines = 0;

    for (size_t at = 0; at < block.n;) {
        const struct str line = next_line(block, &at);
        struct str name, text;
        uint64_t named;

        lines++;
        if (!split_line(line, &name, &text))
            continue;
        named_lines++;
        if ((named = named_words(&x->q, name)) == 0)
            continue;
        const double has = weight_of(&x->q, named | words_in(&x->q, line));
        const double score = weight_of(&x->q, named) + 0.5 * has + 0.25 * around,
                     more = around > has ? around - has : 0;

        if (has + 0.5 * more < SHARE_LEAST * x->all || score <= x->line_score ||
            str_find(x->question, 0, text) != SIZE_MAX)
            continue;
        x->line_has = has;
        x->text = text;
        x->line_score = score;
    }
    return named_lines < 2 || 2 * named_lines < lines;
}

static void read_blocks(struct search *x)
{
    for (size_t at = 0; at < x->document.n;) {
        const struct str block = next_block(x->document, &at);
        const uint64_t bits = words_in(&x->q, block);

        const double has = weight_of(&x->q, bits);

        if (look_at_lines(x, block, has) && has_enough(x, bits))
            keep_block(x, block, has);
    }
}

/* All that is written like a name in the question is in the paragraph. */
static bool has_names(const struct recall_asked *q, struct str block)
{
    const uint64_t bits = words_in(q, block);

    for (int i = 0; i < q->n; i++)
        if (q->name[i] && (bits >> i & 1) == 0)
            return false;
    return true;
}

/* Shows the spans of the best paragraphs, and saying nothing. */
static enum err_code point(const struct search *x, span_see *see, void *of, enum span_class *class, struct err *e)
{
    struct span_search s = { .see = see, .of = of };

    *class = recall_span_class(&x->q);
    for (int i = 0; i < x->n_best && s.rank < PARAGRAPHS; i++) {
        if (!has_names(&x->q, x->best[i].s))
            continue;
        s.share = x->best[i].score / x->all;
        if (recall_spans(&s, x->best[i].s, &x->q, e))
            return e->code;
    }
    if (s.rank > 0)
        recall_no_span(&s);
    return ERR_OK;
}

struct choice {
    struct str question, best;
    enum span_class class;
    int score; /* of best */
};

static void choose(void *of, const struct ranked_span *s)
{
    struct choice *x = of;
    int score = 0;

    for (int i = 0; i < s->n; i++)
        score += recall_span_weight[x->class][s->feature[i]];
    if (score <= x->score || (s->text.n > 0 && str_find(x->question, 0, s->text) != SIZE_MAX))
        return;
    x->score = score;
    x->best = s->text;
}

static enum err_code open_search(struct search **out, struct str document, const struct text *t, struct str question,
                                 struct err *e)
{
    struct search *x = *out = calloc(1, sizeof *x);

    if (x == NULL)
        return err_nomem(e);
    x->document = document;
    x->question = question;
    recall_read_question(&x->q, question);
    if (x->q.asks && weigh_words(x, t, e))
        return e->code;
    if (x->all > 0)
        read_blocks(x);
    return ERR_OK;
}

enum err_code recall_point(struct str document, const struct text *t, struct str question, span_see *see, void *of,
                           enum span_class *class, struct err *e)
{
    struct search *x;
    enum err_code code = open_search(&x, document, t, question, e);

    if (code == ERR_OK && x->text.n == 0)
        code = point(x, see, of, class, e);
    free(x);
    return code;
}

enum err_code recall_answer(struct recall_said *out, struct str document, const struct text *t, struct str question,
                            struct err *e)
{
    struct search *x;
    enum err_code code = open_search(&x, document, t, question, e);

    *out = (struct recall_said){ 0 };
    if (code == ERR_OK && x->text.n > 0) {
        out->text = x->text;
        out->share = (float)(x->line_has / x->all);
    } else if (code == ERR_OK) {
        struct choice c = { .question = question, .score = INT_MIN };

        code = point(x, choose, &c, &c.class, e);
        out->text = c.best;
        for (int i = 0; i < x->n_best && c.best.n > 0; i++)
            if (c.best.p >= x->best[i].s.p && c.best.p < x->best[i].s.p + x->best[i].s.n)
                out->share = (float)(x->best[i].score / x->all);
    }
    for (const char *p = document.p; out->text.n > 0 && p < out->text.p; p++)
        out->line += *p == '\n';
    out->line += out->text.n > 0;
    free(x);
    return code;
}
