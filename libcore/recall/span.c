/* SPDX-License-Identifier: Apache-2.0 */
/* span.c - the words of a paragraph that answer a question.                  room: recall
 *
 * A sentence is cut where the question's own words, prepositions, verbs without meaning and commas stand. Of the parts
 * that are left one is the answer: the one of the kind that is asked for, or the one beside the words that the question
 * shares with the sentence. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recall/document.h"

enum { WORDS_READ = 1024 /* of a paragraph */, LONG = 14 /* words of a sentence, or more */ };

/* What is asked of a long sentence is answered by a part that is better than all others by this much. */
#define MARGIN 0.3

struct sentence {
    int from, to; /* words */
};
struct piece {
    int from, to; /* words */
    int prep;     /* the preposition before it, -1: none */
};
struct reading {
    const struct recall_asked *q;
    struct recall_at *word; /* [n] */
    bool *stop;             /* [n] a comma or the like stands before the word */
    bool *ends;             /* [n] a sentence ends behind the word */
    int n;
    struct str paragraph;
    bool is_name[RECALL_ASKED_MAX]; /* of the question's words */
    bool named[RECALL_ASKED_MAX];   /* names in the sentences up to the one at hand */
    int n_names, n_beside;          /* is_beside() */
    double all_beside;              /* their weight */
    struct str best;                /* part, with its score and that of the best one that says something else */
    double score, next;
    bool in_long; /* sentence */
};

static bool is(const struct recall_at *w, const char *word)
{
    return w->n == strlen(word) && memcmp(w->low, word, w->n) == 0;
}

static bool is_of(const struct recall_at *w, enum recall_kind kind)
{
    return recall_is_kind(kind, w->low, w->n);
}

/* ---- reading ---- */

static bool is_short_form(const struct recall_at *w)
{
    static const char *const forms[] = { "dr", "mr", "mrs", "ms", "st", "no", "e", "g", "i" };

    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (is(w, forms[i]))
            return true;
    return w->n == 1 && w->capital;
}

/* What stands between two words. */
static void read_gap(struct reading *r, int i, struct str gap, bool last)
{
    const struct recall_at *w = &r->word[i];
    bool ends = last, stop = false;

    for (size_t k = 0; k < gap.n; k++) {
        const char c = gap.p[k];
        const bool tight = k == 0 && gap.n == 1 && w->digit;

        if ((c == '.' && !tight && !is_short_form(w)) || c == '?' || c == '!')
            ends = true;
        else if ((c == ',' && !tight) || strchr(";()\"", c) != NULL || (c == ':' && !tight) ||
                 (c == '-' && k > 0 && gap.p[k - 1] == ' ') || (unsigned char)c == 0x9C || (unsigned char)c == 0x9D ||
                 (unsigned char)c == 0x93 || (unsigned char)c == 0x94)
            stop = true;
    }
    r->ends[i] = ends;
    if (!last)
        r->stop[i + 1] = stop || ends;
}

static enum err_code read_words(struct reading *r, struct err *e)
{
    size_t at = 0, end = 0;

    r->word = calloc(WORDS_READ, sizeof *r->word);
    r->stop = calloc(WORDS_READ, sizeof *r->stop);
    r->ends = calloc(WORDS_READ, sizeof *r->ends);
    if (r->word == NULL || r->stop == NULL || r->ends == NULL)
        return err_nomem(e);
    while (r->n < WORDS_READ && recall_next_at(r->paragraph, &at, r->q, &r->word[r->n])) {
        const size_t from = (size_t)(r->word[r->n].s.p - r->paragraph.p);

        if (r->n > 0)
            read_gap(r, r->n - 1, (struct str){ r->paragraph.p + end, from - end }, false);
        end = at;
        r->n++;
    }
    if (r->n > 0)
        read_gap(r, r->n - 1, (struct str){ r->paragraph.p + end, r->paragraph.n - end }, true);
    return ERR_OK;
}

static bool begins_sentence(const struct reading *r, int i)
{
    return i == 0 || r->ends[i - 1];
}

static bool is_written_as_name(const struct recall_asked *q, int k)
{
    return k >= 0 && k < q->n && q->weight[k] > 0 && q->word[k].capital;
}

/* Who asks for Anna Kell does not mean Anna Bell: of a name of several words all have to be there. */
static void drop_other_names(struct reading *r)
{
    for (int i = 0; i < r->n; i++) {
        const int k = r->word[i].asked;

        if (k < 0 || !r->word[i].capital || !r->q->word[k].capital)
            continue;
        const bool before = is_written_as_name(r->q, k - 1), after = is_written_as_name(r->q, k + 1);
        const bool fits = (before && i > 0 && r->word[i - 1].asked == k - 1) ||
                          (after && i + 1 < r->n && r->word[i + 1].asked == k + 1);
        const bool alone = !(i > 0 && r->word[i - 1].capital && r->word[i - 1].asked < 0 && !r->stop[i]) &&
                           !(i + 1 < r->n && r->word[i + 1].capital && r->word[i + 1].asked < 0 && !r->stop[i + 1]);

        if ((before || after) && !fits && !alone)
            r->word[i].asked = -1;
    }
}

/* "the INN Vazo" */
static bool is_of_name(const struct reading *r, int k)
{
    const struct recall_asked *q = r->q;

    return k > 0 && k + 1 < q->n && r->is_name[k + 1] && q->word[k + 1].capital && q->word[k - 1].role != RECALL_REL;
}

/* Content that is neither a name nor a part of one ("the inn Vazo") nor the noun. */
static bool is_beside(const struct reading *r, int k)
{
    const struct recall_asked *q = r->q;

    return q->weight[k] > 0 && !r->is_name[k] && k != q->noun && !is_of_name(r, k) &&
           !(q->wanted == RECALL_WHERE && is_of(&q->word[k], RECALL_STANDS));
}

/* Where nothing is written like a name, the rarest word stands for one: "what do vumpfs eat". */
static void name_the_rarest(struct reading *r)
{
    const struct recall_asked *q = r->q;
    int best = -1, n = 0;
    double next = 0;

    for (int k = 0; k < q->n; k++) {
        if (r->is_name[k])
            return;
        n += q->weight[k] > 0;
        if (k == q->noun)
            continue;
        if (best < 0 || q->weight[k] > q->weight[best]) {
            next = best >= 0 ? q->weight[best] : 0;
            best = k;
        } else if (q->weight[k] > next)
            next = q->weight[k];
    }
    if (n > 1 && best >= 0 && q->weight[best] > 1.5 * next)
        r->is_name[best] = true;
}

/* A word that is written like a name, in the question or within a sentence, is one. */
static void find_names(struct reading *r)
{
    const struct recall_asked *q = r->q;

    for (int k = 0; k < q->n; k++)
        r->is_name[k] = q->name[k];
    for (int i = 0; i < r->n; i++) {
        const int k = r->word[i].asked;

        if (k >= 0 && (r->word[i].digit || (r->word[i].capital && !begins_sentence(r, i))))
            r->is_name[k] = true;
    }
    for (int i = 0; i + 1 < r->n; i++) /* "Anna Kell lives" begins with a name */
        if (begins_sentence(r, i) && r->word[i].asked >= 0 && r->word[i].capital && r->word[i + 1].asked >= 0 &&
            r->is_name[r->word[i + 1].asked])
            r->is_name[r->word[i].asked] = true;
    name_the_rarest(r);
    for (int k = 0; k < q->n; k++) {
        r->n_names += r->is_name[k];
        r->n_beside += is_beside(r, k);
        r->all_beside += is_beside(r, k) ? q->weight[k] : 0;
    }
}

/* ---- parts of a sentence ---- */

/* "and" between two nouns keeps them together. */
static bool joins(const struct reading *r, int i, int to)
{
    const struct recall_at *next = &r->word[i + 1];

    return i + 1 < to && is(&r->word[i], "and") && next->asked < 0 &&
           (next->role == RECALL_CONTENT || next->role == RECALL_DET) && !is_of(next, RECALL_LINKS) &&
           !(i + 2 < to && (r->word[i + 2].role == RECALL_DET || r->word[i + 2].role == RECALL_PRON) &&
             next->role == RECALL_CONTENT) &&
           !(next->n > 4 && memcmp(next->low + next->n - 2, "ed", 2) == 0);
}

static bool cuts(const struct reading *r, int i, int from, int to)
{
    const struct recall_at *w = &r->word[i];

    if (w->asked >= 0 && !(w->digit && r->q->weight[w->asked] <= 0))
        return true;
    if (w->role == RECALL_PREP)
        return !(is(w, "of") && i > from && i + 1 < to && r->word[i - 1].asked < 0 && r->word[i + 1].asked < 0);
    if (w->role == RECALL_CONJ)
        return !joins(r, i, to);
    return w->role == RECALL_AUX || w->role == RECALL_REL || w->role == RECALL_PRON;
}

/* The next part at or after *at in a sentence. */
static bool next_part(const struct reading *r, const struct sentence *s, int *at, struct piece *out)
{
    int i = *at;

    while (i < s->to && (cuts(r, i, s->from, s->to) || r->word[i].role == RECALL_CONJ))
        i++;
    if (i == s->to)
        return false;
    out->from = i;
    out->prep = i > s->from && r->word[i - 1].role == RECALL_PREP && !r->stop[i] ? i - 1 : -1;
    do
        i++;
    while (i < s->to && !cuts(r, i, s->from, s->to) && !r->stop[i]);
    *at = i;
    out->to = i;
    return true;
}

/* ---- kinds ---- */

static bool is_number(const struct recall_at *w)
{
    return (w->digit && w->low[0] >= '0' && w->low[0] <= '9') || is_of(w, RECALL_NUMBER);
}

static bool is_year(const struct recall_at *w)
{
    return w->n == 4 && w->low[0] >= '1' && w->low[0] <= '2' && strspn(w->low, "0123456789") >= 4;
}

static bool is_name_at(const struct reading *r, int i)
{
    const struct recall_at *w = &r->word[i];

    return w->capital && w->asked < 0 && !is_of(w, RECALL_DATE) &&
           (w->role == RECALL_CONTENT || (w->role == RECALL_ADV && !begins_sentence(r, i)));
}

/* Cuts a part down to the run of names in it. */
static bool take_names(const struct reading *r, struct piece *p)
{
    int from = p->from, to;

    while (from < p->to && !is_name_at(r, from))
        from++;
    /* the first word of a sentence has a capital anyway */
    if (from < p->to && begins_sentence(r, from) && !(from + 1 < p->to && is_name_at(r, from + 1)) &&
        from + 1 < p->to && r->word[from + 1].role == RECALL_CONTENT && !r->word[from + 1].digit)
        for (from++; from < p->to && !is_name_at(r, from);)
            from++;
    if (from >= p->to)
        return false;
    for (to = from + 1; to < p->to && (is_name_at(r, to) || r->word[to].digit ||
                                       (to + 1 < p->to && is_name_at(r, to + 1) && r->word[to].n <= 3));)
        to++;
    p->from = from;
    p->to = to;
    return true;
}

static bool take_date(const struct reading *r, struct piece *p)
{
    bool any = false;
    int from = p->from;

    for (int i = p->from; i < p->to; i++)
        any = any || is_year(&r->word[i]) || is_of(&r->word[i], RECALL_DATE);
    /* "7:30", "8 o'clock" */
    any = any || (p->prep >= 0 && is(&r->word[p->prep], "at") && is_number(&r->word[p->from]));
    if (!any)
        return false;
    while (from + 1 < p->to && r->word[from].role == RECALL_ADV)
        from++;
    for (int i = from + 1; i < p->to; i++) /* not "every year" behind it */
        if (is_of(&r->word[i], RECALL_TIMES))
            p->to = i;
    p->from = from;
    if (p->prep >= 0 && (is(&r->word[p->prep], "before") || is(&r->word[p->prep], "after") ||
                         is(&r->word[p->prep], "until") || is(&r->word[p->prep], "during")))
        p->from = p->prep;
    return true;
}

/* behind: a word of the question stands before it, so that "to" leads to a place: "moved its office to". */
static bool take_place(const struct reading *r, struct piece *p, bool behind)
{
    struct piece other = *p;

    if (p->prep < 0 || !is_of(&r->word[p->prep], RECALL_PLACE) ||
        (is(&r->word[p->prep], "to") && !behind && !(p->prep > 0 && is(&r->word[p->prep - 1], "next"))) ||
        take_date(r, &other) || is_number(&r->word[p->from]))
        return false;
    if (p->prep > 0 && is(&r->word[p->prep], "to") && is(&r->word[p->prep - 1], "next"))
        p->from = p->prep - 1;
    else if (!is_of(&r->word[p->prep], RECALL_BARE_PLACE))
        p->from = p->prep;
    return true;
}

static bool take_times(const struct reading *r, struct piece *p)
{
    for (int i = p->from; i < p->to; i++)
        if (is_of(&r->word[i], RECALL_TIMES)) {
            p->from = p->prep >= 0 && !is_of(&r->word[p->prep], RECALL_BARE_PLACE) ? p->prep : i;
            return true;
        }
    return false;
}

static bool take_number(const struct reading *r, struct piece *p, bool alone)
{
    int from = p->from, to;

    while (from < p->to && !is_number(&r->word[from]))
        from++;
    if (from == p->to)
        return false;
    for (to = from + 1; to < p->to && (alone ? is_number(&r->word[to]) : r->word[to].role != RECALL_DET);)
        to++;
    p->from = from;
    p->to = to;
    return true;
}

static bool take_colour(const struct reading *r, struct piece *p)
{
    for (int i = p->from; i < p->to; i++)
        if (is_of(&r->word[i], RECALL_COLOUR)) {
            p->from = i > p->from && is_of(&r->word[i - 1], RECALL_SHADE) ? i - 1 : i;
            p->to = i + 1;
            return true;
        }
    return false;
}

/* Which units an adjective of measure is told in. */
static bool has_unit(const struct reading *r, const struct piece *p)
{
    static const struct {
        const char *words, *units;
    } of[] = {
        { " old age ", " year years month months week weeks day days century centuries " },
        { " long length ",
          " metre metres meter meters m cm km kilometre kilometres kilometer kilometers foot feet inch inches mile "
          "miles "
          "yards second seconds minute minutes hour hours day days week weeks month months year years " },
        { " tall high wide deep far thick height width depth distance ",
          " metre metres meter meters m cm km kilometre kilometres kilometer kilometers centimetre centimetres "
          "centimeters mm foot feet inch inches mile miles fathom fathoms yard yards storey storeys pace paces step "
          "steps " },
        { " heavy weight ", " kg kilogram kilograms kilo kilos gram grams g ton tons tonne tonnes pound pounds " },
        { " much price cost fee rent wage salary ",
          " crown crowns euro euros dollar dollars pound pounds franc francs mark marks cent cents florin florins "
          "shilling shillings yen ducat ducats thaler thalers coin coins penny pence litre litres kilograms kg grams "
          "percent tons tonnes " },
    };
    const int noun = r->q->noun;
    char spaced[WORD_BYTES_MAX + 2];

    for (size_t k = 0; noun >= 0 && k < sizeof of / sizeof *of; k++) {
        const struct recall_at *w = &r->q->word[noun];
        int i = p->from;

        (void)snprintf(spaced, sizeof spaced, " %.*s ", (int)(w->n < 60 ? w->n : 60), w->low);
        if (strstr(of[k].words, spaced) == NULL)
            continue;
        for (; i < p->to; i++) {
            const struct recall_at *u = &r->word[i];

            (void)snprintf(spaced, sizeof spaced, " %.*s ", (int)(u->n < 60 ? u->n : 60), u->low);
            if (strstr(of[k].units, spaced) != NULL)
                return true;
        }
        return false;
    }
    return true;
}

/* ---- which part ---- */

/* A word of the question that an answer stands near to: no name, and no part of one. */
static bool leads(const struct reading *r, int k)
{
    return !r->is_name[k] && !is_of_name(r, k);
}

/* Content words between a part and the next word of the question that is no name; negative: that stands behind it. 0:
 * there is none. */
static int steps_from(const struct reading *r, const struct sentence *s, const struct piece *p)
{
    int before = 0, after = 0, n = 1;

    for (int i = p->from - 1; i >= s->from && before == 0; i--) {
        const struct recall_at *w = &r->word[i];

        if (w->asked >= 0 && leads(r, w->asked))
            before = n;
        n += w->role == RECALL_CONTENT || w->role == RECALL_PREP;
    }
    n = 1;
    for (int i = p->to; i < s->to && after == 0; i++) {
        const struct recall_at *w = &r->word[i];

        if (w->asked >= 0 && leads(r, w->asked))
            after = n;
        n += w->role == RECALL_CONTENT || w->role == RECALL_PREP;
    }
    if (before == 0)
        return -after;
    return after == 0 || before <= after ? before : -after;
}

/* A verb that the question does not have stands before what it is about: "she HOLDS old maps". */
static void drop_verb(const struct reading *r, const struct sentence *s, struct piece *p)
{
    const struct recall_at *w = &r->word[p->from], *before = p->from > s->from ? w - 1 : NULL;

    if (p->to - p->from < 2 || w->role != RECALL_CONTENT || w->capital || w->digit || before == NULL || p->prep >= 0 ||
        before->role == RECALL_AUX || before->role == RECALL_DET)
        return;
    if (before->role == RECALL_PRON
            ? !is(before, "his") && !is(before, "her") && !is(before, "its") && !is(before, "their")
            : before->asked >= 0 && (r->is_name[before->asked] || w[1].role == RECALL_DET))
        p->from += w->low[w->n - 1] == 's' || (w->n > 2 && memcmp(w->low + w->n - 2, "ed", 2) == 0);
}

/* A number that is a time: "in 1902". */
static bool is_when(const struct reading *r, const struct piece *p)
{
    return is_year(&r->word[p->from]) && p->to == p->from + 1 && p->prep >= 0 && !is(&r->word[p->prep], "of") &&
           !is(&r->word[p->prep], "for");
}

/* What is counted is not something else: "81 crowns". */
static bool counts_asked(const struct reading *r, const struct sentence *s, const struct piece *p)
{
    for (int i = p->to; i < s->to && i < p->to + 3 && !r->stop[i]; i++) {
        if (r->word[i].asked >= 0)
            return true;
        if (r->word[i].role != RECALL_CONTENT)
            return i == p->to;
    }
    return p->to == s->to || r->stop[p->to];
}

/* It stands beside the word that says what is wanted: "the river ULM". */
static bool is_beside_noun(const struct reading *r, const struct sentence *s, const struct piece *p)
{
    return r->q->noun >= 0 && ((p->from > s->from && r->word[p->from - 1].asked == r->q->noun) ||
                               (p->to < s->to && r->word[p->to].asked == r->q->noun));
}

static bool has_content(const struct reading *r, const struct piece *p)
{
    for (int i = p->from; i < p->to; i++)
        if (r->word[i].role == RECALL_CONTENT || (r->word[i].capital && r->word[i].role == RECALL_ADV))
            return true;
    return false;
}

/* None of the question's words follows it. */
static bool is_last(const struct reading *r, const struct sentence *s, const struct piece *p)
{
    for (int i = p->to; i < s->to; i++)
        if (r->word[i].asked >= 0)
            return false;
    return true;
}

/* A date, a number or a place: not an answer to "who". */
static bool is_of_time_or_place(const struct reading *r, const struct piece *p)
{
    struct piece other = *p;

    return take_date(r, &other) || is_number(&r->word[p->from]) || take_place(r, &other, false);
}

/* The end is not its own: "the MAIN product", "to CUT RIBBONS". */
static bool is_of_more(const struct reading *r, const struct sentence *s, const struct piece *p)
{
    const struct recall_at *first = &r->word[p->from];

    if (p->to < s->to && r->word[p->to].asked >= 0 && !r->stop[p->to] && !r->word[p->to - 1].capital &&
        (!r->q->subject || r->word[p->to].asked == r->q->noun))
        return true;
    return p->prep >= 0 && is(&r->word[p->prep], "to") && p->to > p->from + 1 && first->role == RECALL_CONTENT &&
           !first->capital && !first->digit;
}

static double score_part(const struct reading *r, const struct sentence *s, struct piece *p)
{
    while (p->to > p->from + 1 && (r->word[p->to - 1].role == RECALL_DET || r->word[p->to - 1].role == RECALL_PREP))
        p->to--;
    if (!has_content(r, p))
        return 0;
    const struct piece whole = *p;
    const int steps = steps_from(r, s, &whole);
    const double close = steps > 0 ? 1.0 / steps : steps < 0 ? -0.6 / steps : 0;

    switch (r->q->wanted) {
    case RECALL_WHEN:
        return take_date(r, p) ? 1 + close : 0;
    case RECALL_OFTEN:
        return take_times(r, p) ? 1 + close : 0;
    case RECALL_WHERE:
        if (take_place(r, p, steps > 0))
            return 1 + close + (is_name_at(r, p->to - 1) ? 0.2 : 0);
        /* "which towns does it connect" */
        return r->q->noun >= 0 && p->prep < 0 && steps != 0 && take_names(r, p) ? 0.8 + close : 0;
    case RECALL_MANY:
        return take_number(r, p, true) && !is_when(r, p) && counts_asked(r, s, p) ? 1 + close : 0;
    case RECALL_MEASURE:
        return take_number(r, p, false) && !is_when(r, p) && has_unit(r, p) ? 1 + close : 0;
    case RECALL_COLOURS:
        return take_colour(r, p) ? 1 + close : 0;
    case RECALL_WHO:
    case RECALL_NAMES:
        if (take_names(r, p))
            return 1 + close + 0.3 * (p->prep >= 0 && is(&r->word[p->prep], "by")) -
                   0.3 * (p->prep >= 0 && is_of(&r->word[p->prep], RECALL_BARE_PLACE));
        if (r->q->wanted == RECALL_NAMES || is_of_time_or_place(r, p))
            return 0;
        break;
    default:
        break;
    }
    drop_verb(r, s, p);
    if (steps == 0 || !has_content(r, p) || s->to - s->from > LONG || is_of_more(r, s, p))
        return 0;
    return 0.5 * (r->q->subject ? (steps < 0 ? -1.0 / steps : 0.3 / steps) : (steps > 0 ? 1.0 / steps : -0.5 / steps)) +
           0.1 * (p->to > p->from + 1) + 0.1 * is_last(r, s, p) + 0.5 * is_beside_noun(r, s, p);
}

/* ---- which sentence ---- */

/* What follows "NAME is", or stands behind a comma there. */
static bool describe(const struct reading *r, const struct sentence *s, struct piece *out)
{
    int i = s->from, last = -1;

    for (; i < s->to && (r->word[i].asked >= 0 || r->word[i].role == RECALL_DET); i++)
        last = r->word[i].asked >= 0 ? i : last;
    if (last < 0 || i == s->to)
        return false;
    out->prep = -1;
    out->to = s->to;
    if (is_of(&r->word[i], RECALL_LINKS) && i + 1 < s->to) {
        out->from = i + 1;
        return true;
    }
    if (r->stop[i]) {
        for (out->from = i++; i < s->to && !r->stop[i];)
            i++;
        out->to = i;
        return out->to > out->from;
    }
    out->from = i; /* what it does */
    return true;
}

/* The question asks what something is, and nothing about it. */
static bool asks_what_it_is(const struct reading *r)
{
    const struct recall_asked *q = r->q;
    int first = -1, last = -1, content = 0;

    if (q->wanted != RECALL_WHAT && q->wanted != RECALL_WHO)
        return false;
    for (int i = 0; i < q->n; i++)
        if (q->weight[i] > 0 && !(is(&q->word[i], "mean") || is(&q->word[i], "meaning"))) {
            first = first < 0 ? i : first;
            last = i;
            content++;
        }
    if (r->n_beside == 0 && r->n_names > 0 && q->noun < 0)
        return true;
    return content > 0 && (r->n_names == 0 || r->n_beside == 0) && last + 1 == q->n && last - first + 1 == content &&
           !q->subject && q->noun < 0 &&
           (first == 0 || q->word[first - 1].role == RECALL_DET || is_of(&q->word[first - 1], RECALL_LINKS) ||
            q->word[first - 1].role == RECALL_ADV);
}

struct shares {
    double names, beside;
    bool noun;
    bool named; /* here or before all names have come */
};

static struct shares shares_of(struct reading *r, const struct sentence *s)
{
    const struct recall_asked *q = r->q;
    bool seen[RECALL_ASKED_MAX] = { false };
    struct shares out = { 0, 0, false, true };

    for (int i = s->from; i < s->to; i++)
        if (r->word[i].asked >= 0)
            seen[r->word[i].asked] = true;
    for (int k = 0; k < q->n; k++) {
        out.names += seen[k] && r->is_name[k];
        out.beside += seen[k] && is_beside(r, k) ? q->weight[k] : 0;
        r->named[k] = r->named[k] || seen[k];
        out.named = out.named && (r->named[k] || !r->is_name[k]);
        out.noun = out.noun || (seen[k] && k == q->noun);
    }
    out.names = r->n_names > 0 ? out.names / r->n_names : 1;
    out.beside = r->n_beside > 0 ? out.beside / r->all_beside : 1;
    return out;
}

static struct str text_of(const struct reading *r, const struct piece *p)
{
    const char *from = r->word[p->from].s.p, *to = r->word[p->to - 1].s.p + r->word[p->to - 1].s.n;

    return (struct str){ from, (size_t)(to - from) };
}

/* The clause behind "because". */
static bool take_reason(const struct reading *r, const struct sentence *s, struct piece *p)
{
    for (int i = s->from; i + 1 < s->to; i++)
        if (is(&r->word[i], "because") || is(&r->word[i], "since")) {
            *p = (struct piece){ i, s->to, -1 };
            return true;
        }
    return false;
}

/* Whether it is the best so far, which leads over what says something else. */
static void keep_part(struct reading *r, const struct sentence *s, const struct piece *p, double score)
{
    const struct str text = text_of(r, p);
    const bool same = text.n == r->best.n && memcmp(text.p, r->best.p, text.n) == 0;

    if (score > r->score) {
        r->next = same ? r->next : r->score;
        r->score = score;
        r->best = text;
        r->in_long = s->to - s->from > LONG;
    } else if (score > r->next && !same)
        r->next = score;
}

static bool denies(const struct reading *r, const struct sentence *s)
{
    for (int i = s->from; i < s->to; i++)
        if (is_of(&r->word[i], RECALL_DENIES))
            return true;
    return false;
}

static void try_sentence(struct reading *r, const struct sentence *s)
{
    const struct shares has = shares_of(r, s);
    const double base = 2 * has.beside + has.names + 0.5 * has.noun;
    struct piece p;
    int at = s->from;

    if (!has.named || (r->q->denies && !denies(r, s)))
        return;
    if (asks_what_it_is(r)) {
        if (has.beside > 0 && has.names > 0 && describe(r, s, &p))
            keep_part(r, s, &p, base + 0.5);
        return;
    }
    if (has.beside < (s->to - s->from > LONG ? 0.75 : 0.5) ||
        (r->n_beside == 0 && !has.noun && r->q->wanted != RECALL_WHERE && r->q->wanted != RECALL_MEASURE &&
         r->q->wanted != RECALL_COLOURS))
        return;
    if (r->q->wanted == RECALL_WHY) {
        if (take_reason(r, s, &p))
            keep_part(r, s, &p, base + 1);
        return;
    }
    while (next_part(r, s, &at, &p)) {
        const double score = score_part(r, s, &p);

        if (score > 0)
            keep_part(r, s, &p, base + score);
    }
}

enum err_code recall_span(struct str paragraph, const struct recall_asked *q, struct str *out, double *score,
                          struct err *e)
{
    struct reading r = { .q = q, .paragraph = paragraph };
    struct sentence s = { 0, 0 };
    enum err_code code = read_words(&r, e);

    *out = (struct str){ 0 };
    *score = 0;
    drop_other_names(&r);
    find_names(&r);
    for (int i = 0; code == ERR_OK && i < r.n; i++)
        if (r.ends[i] || i + 1 == r.n) {
            s.to = i + 1;
            try_sentence(&r, &s);
            s.from = s.to;
        }
    if (!r.in_long || r.score - r.next >= MARGIN) {
        *out = r.best;
        *score = r.score;
    }
    free(r.word);
    free(r.stop);
    free(r.ends);
    return code;
}
