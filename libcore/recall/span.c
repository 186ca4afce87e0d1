/* SPDX-License-Identifier: Apache-2.0 */
/* span.c - spans of a paragraph that may answer a question, and their features.                  room: recall
 *
 * Nothing here decides: weights do, and they are learnt. What may stand at the ends of a span is fixed, so that there
 * are some hundred spans of a paragraph and not some thousand. */
#include "recall/span.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recall/reading.h"

enum { WORDS_MOST = 8, CLAUSE_WORDS_MOST = 40, LONG = 14, VERY_LONG = 28 /* words of a sentence */ };

struct word_is {
    bool number, year, date, capital, lead, name, ed, ing;
};
struct sentence {
    int from, to; /* words */
    double beside, names;
    bool noun, named; /* named: here or before, all names have come */
    bool best, behind_lead, denies;
};
struct maker {
    const struct span_search *x;
    const struct reading *r;
    const struct sentence *s;
    const struct word_is *is; /* [n] */
    struct ranked_span out;
};

static void put(struct maker *m, int feature)
{
    if (m->out.n < SPAN_FEATURES_EACH)
        m->out.feature[m->out.n++] = (unsigned char)feature;
}

static void put_if(struct maker *m, bool has, int feature)
{
    if (has)
        put(m, feature);
}

/* ---- words ---- */

static bool ends_in(const struct recall_at *w, const char *tail)
{
    const size_t n = strlen(tail);

    return w->n > n + 2 && memcmp(w->low + w->n - n, tail, n) == 0;
}

static bool is_digits(const struct recall_at *w)
{
    return w->digit && w->low[0] >= '0' && w->low[0] <= '9';
}

static bool is_date(const struct reading *r, int i) /* also "Mondays"; not "a hot spring" */
{
    const struct recall_at *w = &r->word[i];

    if (recall_at_is(w, "spring") && i > 0 && r->word[i - 1].role == RECALL_CONTENT)
        return false;
    return recall_at_is_of(w, RECALL_DATE) ||
           (w->n > 4 && w->low[w->n - 1] == 's' && recall_is_kind(RECALL_DATE, w->low, w->n - 1));
}

static void look_at_word(const struct reading *r, int i, struct word_is *is)
{
    const struct recall_at *w = &r->word[i];
    const bool content = w->role == RECALL_CONTENT;

    *is = (struct word_is){ .number = is_digits(w) || recall_at_is_of(w, RECALL_NUMBER) };
    is->year = w->n == 4 && (w->low[0] == '1' || w->low[0] == '2') && strspn(w->low, "0123456789") >= 4;
    is->date = is->year || (content && is_date(r, i));
    is->capital = w->capital && !is->date && (content || (w->role == RECALL_ADV && !recall_begins_sentence(r, i)));
    is->name = w->asked >= 0 && (r->is_name[w->asked] || recall_is_of_name(r, w->asked));
    is->lead = w->asked >= 0 && !is->name;
    is->ed = content && ends_in(w, "ed");
    is->ing = content && ends_in(w, "ing");
}

/* ---- features of a span [from, to) ---- */

static int bucket(int n)
{
    return n <= 3 ? n : n <= 5 ? 4 : 5;
}

static int share_bucket(double share)
{
    return share <= 0 ? 0 : share < 0.3 ? 1 : share < 0.55 ? 2 : share < 0.8 ? 3 : share < 0.99 ? 4 : 5;
}

static int paragraph_bucket(double share)
{
    return share < 0.5 ? 0 : share < 0.65 ? 1 : share < 0.8 ? 2 : share < 0.95 ? 3 : 4;
}

static int preposition(const struct recall_at *w)
{
    static const char *const of[] = { "in", "on", "at", "to", "by", "from", "of", "for", "with" };
    int i = 0;

    while (i < 9 && !recall_at_is(w, of[i]))
        i++;
    return i < 9 ? i : recall_at_is_of(w, RECALL_PLACE) ? 9 : 10;
}

static void look_before(struct maker *m, int from)
{
    const struct reading *r = m->r;
    const int prep = r->q->prep;

    if (prep >= 0) {
        const int at = from > m->s->from && r->word[from - 1].role == RECALL_DET ? from - 1 : from;
        const bool asked = at > m->s->from && r->word[at - 1].n == r->q->word[prep].n &&
                           memcmp(r->word[at - 1].low, r->q->word[prep].low, r->word[at - 1].n) == 0;

        put(m, asked ? BEFORE_PREP_ASKED : BEFORE_PREP_OTHER);
    }
    if (from == m->s->from) {
        put(m, BEFORE_START);
        return;
    }
    const struct recall_at *w = &r->word[from - 1];
    const struct word_is *is = &m->is[from - 1];

    put_if(m, r->stop[from], BEFORE_STOP);
    put_if(m, is->number, BEFORE_NUMBER);
    put_if(m, is->capital && !r->stop[from], BEFORE_CAPITAL);
    put_if(m, is->ed, BEFORE_ED);
    if (is->lead || is->name)
        put(m, is->lead ? BEFORE_LEAD : BEFORE_NAME);
    else
        put(m, w->role == RECALL_PREP ? BEFORE_PREP + preposition(w) : BEFORE_ROLE + (int)w->role);
}

static void look_behind(struct maker *m, int to)
{
    const struct reading *r = m->r;

    if (to == m->s->to) {
        put(m, AFTER_END);
        return;
    }
    const struct recall_at *w = &r->word[to];
    const struct word_is *is = &m->is[to];

    put_if(m, r->stop[to], AFTER_STOP);
    put_if(m, is->number, AFTER_NUMBER);
    put_if(m, is->capital && !r->stop[to], AFTER_CAPITAL);
    put_if(m, is->ed, AFTER_ED);
    if (is->lead || is->name)
        put(m, is->lead ? AFTER_LEAD : AFTER_NAME);
    else
        put(m, recall_at_is(w, "of") ? AFTER_OF : AFTER_ROLE + (int)w->role);
}

static void look_at_ends(struct maker *m, int from, int to)
{
    const struct recall_at *a = &m->r->word[from], *z = &m->r->word[to - 1];

    put(m, FIRST_ROLE + (int)a->role);
    put_if(m, a->role == RECALL_PREP && recall_at_is_of(a, RECALL_PLACE), FIRST_PLACE);
    put_if(m, recall_at_is(a, "to"), FIRST_TO);
    put_if(m, recall_at_is(a, "because") || recall_at_is(a, "since"), FIRST_BECAUSE);
    put_if(m, m->is[from].number, FIRST_NUMBER);
    put_if(m, m->is[from].capital, FIRST_CAPITAL);
    put_if(m, m->is[from].ed, FIRST_ED);
    put_if(m, m->is[from].ing, FIRST_ING);
    put(m, LAST_ROLE + (int)z->role);
    put_if(m, m->is[to - 1].number, LAST_NUMBER);
    put_if(m, m->is[to - 1].capital, LAST_CAPITAL);
    put_if(m, z->role == RECALL_CONTENT && ends_in(z, "s"), LAST_S);
    put_if(m, m->r->q->noun >= 0 && ends_in(z, "s") == ends_in(&m->r->q->word[m->r->q->noun], "s"), LAST_FITS);
    put_if(m, from == m->s->from, BEGINS_SENTENCE);
    put_if(m,
           (from > m->s->from && m->is[from].capital && m->is[from - 1].capital && !m->r->stop[from]) ||
               (to < m->s->to && m->is[to - 1].capital && m->is[to].capital && !m->r->stop[to]),
           CAPITAL_CUT);
}

/* The units that the question's noun is told in. */
static bool find_units(const struct recall_asked *q, const char **units)
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
        { " big large size area ",
          " hectare hectares acre acres square metre metres meter meters centimetre centimetres cm m km kilometre "
          "kilometres foot feet inch inches mile miles page pages " },
        { " fast speed ", " km kilometre kilometres kilometer kilometers mile miles knot knots metres meters " },
        { " temperature ", " degree degrees c f celsius fahrenheit " },
        { " day weekday ",
          " monday tuesday wednesday thursday friday saturday sunday mondays tuesdays wednesdays thursdays fridays "
          "saturdays sundays january february march april may june july august september october november december " },
        { " month ", " january february march april may june july august september october november december " },
        { " heavy weight ", " kg kilogram kilograms kilo kilos gram grams g ton tons tonne tonnes pound pounds " },
        { " much price cost fee rent wage salary ",
          " crown crowns euro euros dollar dollars pound pounds franc francs mark marks cent cents florin florins "
          "shilling shillings yen ducat ducats thaler thalers coin coins penny pence litre litres kilograms kg grams "
          "percent tons tonnes " },
    };
    char spaced[WORD_BYTES_MAX + 2];

    if (q->noun < 0)
        return false;
    (void)snprintf(spaced, sizeof spaced, " %.*s ", (int)q->word[q->noun].n, q->word[q->noun].low);
    for (size_t k = 0; k < sizeof of / sizeof *of; k++)
        if (strstr(of[k].words, spaced) != NULL) {
            *units = of[k].units;
            return true;
        }
    return false;
}

static bool has_unit(const struct reading *r, const char *units, int from, int to)
{
    char spaced[WORD_BYTES_MAX + 2];

    for (int i = from; i < to; i++) {
        (void)snprintf(spaced, sizeof spaced, " %.*s ", (int)r->word[i].n, r->word[i].low);
        if (strstr(units, spaced) != NULL)
            return true;
    }
    return false;
}

/* Height is told in metres, a day by its name. */
static void look_at_unit(struct maker *m, int from, int to)
{
    const struct reading *r = m->r;
    const char *units;
    const bool years = r->q->noun >= 0 && recall_at_is(&r->q->word[r->q->noun], "year");
    bool fits = false, only = true;

    if (years)
        for (int i = from; i < to; i++)
            fits = fits || m->is[i].year;
    else if (find_units(r->q, &units)) {
        fits = has_unit(r, units, from, to);
        only = fits && !has_unit(r, units, 0, from) && !has_unit(r, units, to, r->n);
    } else
        return;
    put(m, fits ? UNIT_FITS : UNIT_MISSES);
    put_if(m, fits && only, UNIT_ONLY);
}

/* What is counted: "81 crowns" are no pupils. */
static void look_at_counted(struct maker *m, int to)
{
    const struct reading *r = m->r;

    for (int i = to; i < m->s->to && i < to + 3 && !r->stop[i]; i++) {
        if (r->word[i].asked >= 0) {
            put(m, NUMBER_OF_ASKED);
            return;
        }
        if (r->word[i].role != RECALL_CONTENT) {
            put_if(m, i > to, NUMBER_OF_OTHER);
            return;
        }
    }
    put_if(m, to < m->s->to && !r->stop[to], NUMBER_OF_OTHER);
}

static bool is_by_sign(const struct reading *r, int from, int to)
{
    const char *p = r->paragraph.p, *a = r->word[from].s.p, *z = r->word[to - 1].s.p + r->word[to - 1].s.n;

    return (a > p && a[-1] == '$') || (z < p + r->paragraph.n && *z == '%');
}

static void look_inside(struct maker *m, int from, int to)
{
    const struct reading *r = m->r;
    bool roles[8] = { false }, of = false, stop = false, lead = false, name = false, date = false, times = false;
    int capitals = 0, numbers = 0, dates = 0, content = 0;

    for (int i = from; i < to; i++) {
        const struct recall_at *w = &r->word[i];
        const struct word_is *is = &m->is[i];

        if (i > from) {
            of = of || recall_at_is(w, "of");
            roles[w->role] = roles[w->role] || !recall_at_is(w, "of");
            stop = stop || r->stop[i];
        }
        lead = lead || is->lead;
        name = name || is->name;
        date = date || is->date;
        times = times || recall_at_is_of(w, RECALL_TIMES);
        capitals += is->capital && !(i == m->s->from && i + 1 < to && !m->is[i + 1].capital);
        numbers += is->number;
        dates += is->date || is->number;
        content += w->role == RECALL_CONTENT;
    }
    for (int k = 1; k < 8; k++)
        put_if(m, roles[k], HAS_ROLE + k);
    put_if(m, of, HAS_OF);
    put_if(m, stop, HAS_STOP);
    put_if(m, lead, HAS_LEAD);
    put_if(m, name, HAS_NAME);
    put_if(m, numbers > 0, HAS_NUMBER);
    put_if(m, capitals > 0, HAS_CAPITAL);
    put_if(m, date, HAS_DATE);
    put_if(m, times, HAS_TIMES);
    put_if(m, content > 0 && capitals == content, ALL_CAPITALS);
    put_if(m, numbers == to - from, ALL_NUMBER);
    put_if(m, date && dates == to - from, ALL_DATE);
    put_if(m, to == from + 1 && m->is[from].year, IS_YEAR);
    put_if(m,
           recall_at_is_of(&r->word[to - 1], RECALL_COLOUR) &&
               (to == from + 1 || (to == from + 2 && recall_at_is_of(&r->word[from], RECALL_SHADE))),
           IS_COLOUR);
    put_if(m, numbers > 0 && is_by_sign(r, from, to), IS_BY_SIGN);
    put(m, LENGTH + bucket(to - from - 1));
    if (m->is[to - 1].number && r->q->wanted == RECALL_MANY)
        look_at_counted(m, to);
    if ((numbers > 0 && r->q->wanted == RECALL_MEASURE) || (date && r->q->wanted == RECALL_WHEN))
        look_at_unit(m, from, to);
}

static int steps_bucket(int n)
{
    return n == 0 ? 0 : n <= 2 ? n : n <= 4 ? 3 : n <= 7 ? 4 : 5;
}

enum { GAP_PLAIN, GAP_CONTENT, GAP_STOP, GAP_CONJ, GAP_VERB, GAP_NOTHING };

/* What stands in [from, to). */
static void look_at_gap(struct maker *m, int from, int to, int feature)
{
    const struct reading *r = m->r;
    bool content = false, stop = to < m->s->to && to > from && r->stop[to], conj = false, verb = false;

    for (int i = from; i < to; i++) {
        const enum recall_role role = r->word[i].role;

        content = content || role == RECALL_CONTENT;
        stop = stop || r->stop[i];
        conj = conj || role == RECALL_CONJ;
        verb = verb || role == RECALL_AUX || role == RECALL_REL || role == RECALL_PRON;
    }
    put_if(m, !content && !stop && !conj && !verb, feature + GAP_PLAIN);
    put_if(m, content, feature + GAP_CONTENT);
    put_if(m, stop, feature + GAP_STOP);
    put_if(m, conj, feature + GAP_CONJ);
    put_if(m, verb, feature + GAP_VERB);
}

/* How much of what the question asks for stands in the same clause. */
static void look_at_clause(struct maker *m, int from, int to)
{
    const struct reading *r = m->r;
    bool seen[RECALL_ASKED_MAX] = { false };
    double beside = 0;
    int a = from, z = to;

    while (a > m->s->from && !r->stop[a] && r->word[a - 1].role != RECALL_CONJ && r->word[a - 1].role != RECALL_REL)
        a--;
    while (z < m->s->to && !r->stop[z] && r->word[z].role != RECALL_CONJ && r->word[z].role != RECALL_REL)
        z++;
    for (int i = a; i < z; i++) {
        const int k = r->word[i].asked;

        if (k < 0 || seen[k] || !recall_is_beside(r, k))
            continue;
        seen[k] = true;
        beside += r->q->weight[k];
    }
    put(m, CLAUSE_BESIDE + share_bucket(r->n_beside > 0 ? beside / r->all_beside : 1));
}

/* How far the question's words are. */
static void look_around(struct maker *m, int from, int to)
{
    const struct reading *r = m->r;
    int lead = 0, name = 0, n = 1, at = -1;

    for (int i = from - 1; i >= m->s->from; i--) {
        at = lead == 0 && m->is[i].lead ? i : at;
        lead = lead == 0 && m->is[i].lead ? n : lead;
        name = name == 0 && m->is[i].name ? n : name;
        n += r->word[i].role != RECALL_DET;
    }
    if (lead > 0)
        look_at_gap(m, at + 1, from, GAP_BEFORE);
    put(m, LEAD_BEFORE + steps_bucket(lead));
    put(m, NAME_BEFORE + (name == 0 ? 0 : name <= 3 ? 1 : 2));
    lead = name = 0;
    n = 1;
    for (int i = to; i < m->s->to; i++) {
        at = lead == 0 && m->is[i].lead ? i : at;
        lead = lead == 0 && m->is[i].lead ? n : lead;
        name = name == 0 && m->is[i].name ? n : name;
        n += r->word[i].role != RECALL_DET;
    }
    if (lead > 0)
        look_at_gap(m, to, at, GAP_BEHIND);
    put(m, LEAD_BEHIND + steps_bucket(lead));
    put(m, NAME_BEHIND + (name == 0 ? 0 : name <= 3 ? 1 : 2));
    if (r->q->noun < 0)
        return;
    put_if(m, from > m->s->from && r->word[from - 1].asked == r->q->noun, NOUN_BEFORE);
    put_if(m, to < m->s->to && r->word[to].asked == r->q->noun, NOUN_BEHIND);
}

/* Names, numbers and dates in [from, to) outside a span of these are another answer of its kind. */
static bool is_only(const struct maker *m, int from, int to, int a, int z, enum span_feature kind)
{
    for (int i = a; i < z; i++) {
        const struct word_is *is = &m->is[i];

        if (i >= from && i < to)
            continue;
        if (kind == ONLY_NAME   ? is->capital && !is->name && !is->lead && !recall_begins_sentence(m->r, i)
            : kind == ONLY_DATE ? is->date
                                : is->number && !is->date)
            return false;
    }
    return true;
}

static void look_for_others(struct maker *m, int from, int to)
{
    const int n = m->r->n;

    if (m->is[from].capital) {
        put_if(m, is_only(m, from, to, 0, n, ONLY_NAME), ONLY_NAME);
        put_if(m, is_only(m, from, to, m->s->from, m->s->to, ONLY_NAME), ONLY_NAME_IN_SENTENCE);
    }
    if (m->is[from].number && !m->is[from].date) {
        put_if(m, is_only(m, from, to, 0, n, ONLY_NUMBER), ONLY_NUMBER);
        put_if(m, is_only(m, from, to, m->s->from, m->s->to, ONLY_NUMBER), ONLY_NUMBER_IN_SENTENCE);
    }
    if (m->is[from].date)
        put_if(m, is_only(m, from, to, 0, n, ONLY_DATE), ONLY_DATE);
}

static void look_at_sentence(struct maker *m)
{
    const struct sentence *s = m->s;
    const struct span_search *x = m->x;

    put_if(m, s->noun, NOUN_IN_SENTENCE);
    put(m, SENTENCE_BESIDE + share_bucket(s->beside));
    put(m, SENTENCE_NAMES + (s->names <= 0 ? 0 : s->names < 1 ? 1 : 2));
    put_if(m, s->best, SENTENCE_BEST);
    put_if(m, s->from == 0, SENTENCE_FIRST);
    put_if(m, s->to - s->from > LONG, SENTENCE_LONG + (s->to - s->from > VERY_LONG));
    put_if(m, s->behind_lead, SENTENCE_BEHIND_LEAD);
    put_if(m, s->denies, SENTENCE_DENIES);
    put(m, PARAGRAPH_RANK + (x->rank < 2 ? x->rank : 2));
    put(m, PARAGRAPH_SHARE + paragraph_bucket(x->share));
}

/* ---- which spans there are ---- */

/* "gets a crown" */
static bool is_verb_of_object(const struct maker *m, int i)
{
    const struct recall_at *w = &m->r->word[i];

    return i + 1 < m->s->to && w[1].role == RECALL_DET && recall_at_is_of(w, RECALL_LIGHT);
}

/* With its article, but not the colour of "a red hull". */
static bool is_behind_article(const struct maker *m, int i)
{
    const struct recall_at *w = &m->r->word[i];

    return i > m->s->from && (recall_at_is(w - 1, "a") || recall_at_is(w - 1, "an")) &&
           !recall_at_is_of(w, RECALL_COLOUR) && !recall_at_is_of(w, RECALL_SHADE);
}

static bool may_begin(const struct maker *m, int i)
{
    const struct recall_at *w = &m->r->word[i];

    return !is_behind_article(m, i) && !is_verb_of_object(m, i) && !m->is[i].lead && !m->is[i].name &&
           !m->r->tight[i] && w->role != RECALL_CONJ && w->role != RECALL_AUX && w->role != RECALL_PRON &&
           !(w->role == RECALL_ADV && !m->is[i].capital) &&
           !(w->role == RECALL_PREP &&
             (recall_at_is_of(w, RECALL_BARE_PLACE) ? !recall_at_is(w, "to") : recall_at_is(w, "of")));
}

static bool may_end(const struct maker *m, int i) /* i: the last word */
{
    const struct recall_at *w = &m->r->word[i];

    return !m->is[i].lead && !m->is[i].name && !(i + 1 < m->s->to && m->r->tight[i + 1] && !recall_at_is(w + 1, "s")) &&
           (w->role == RECALL_CONTENT || (w->role == RECALL_ADV && (m->is[i].capital || m->r->ends[i])) ||
            m->is[i].number);
}

static struct str text_of(const struct reading *r, int from, int to)
{
    const char *a = r->word[from].s.p, *z = r->word[to - 1].s.p + r->word[to - 1].s.n;

    if (a > r->paragraph.p && a[-1] == '$')
        a--;
    if (z < r->paragraph.p + r->paragraph.n && *z == '%')
        z++;
    return (struct str){ a, (size_t)(z - a) };
}

static void show_spans(struct maker *m)
{
    const struct reading *r = m->r;

    look_at_sentence(m);
    const int of_sentence = m->out.n;

    for (int from = m->s->from; from < m->s->to; from++) {
        if (!may_begin(m, from))
            continue;
        look_before(m, from);
        const int of_begin = m->out.n;

        for (int to = from + 1; to <= m->s->to && to <= from + CLAUSE_WORDS_MOST; to++) {
            if (!may_end(m, to - 1) ||
                (to - from > WORDS_MOST && !(to == m->s->to || r->stop[to]))) /* only clauses are longer */
                continue;
            look_behind(m, to);
            look_at_ends(m, from, to);
            look_inside(m, from, to);
            look_around(m, from, to);
            look_at_clause(m, from, to);
            look_for_others(m, from, to);
            m->out.text = text_of(r, from, to);
            m->x->see(m->x->of, &m->out);
            m->out.n = of_begin;
        }
        m->out.n = of_sentence;
    }
    m->out.n = 0;
}

/* ---- sentences ---- */

static void share_of(const struct reading *r, struct sentence *s, bool seen_before[RECALL_ASKED_MAX])
{
    const struct recall_asked *q = r->q;
    bool seen[RECALL_ASKED_MAX] = { false };

    for (int i = s->from; i < s->to; i++)
        if (r->word[i].asked >= 0)
            seen[r->word[i].asked] = true;
    s->beside = s->names = 0;
    s->noun = false;
    s->named = true;
    for (int k = 0; k < q->n; k++) {
        s->names += seen[k] && r->is_name[k];
        s->beside += seen[k] && recall_is_beside(r, k) ? q->weight[k] : 0;
        s->noun = s->noun || (seen[k] && k == q->noun);
        seen_before[k] = seen_before[k] || seen[k];
        s->named = s->named && (seen_before[k] || !r->is_name[k]);
    }
    s->names = r->n_names > 0 ? s->names / r->n_names : 1;
    s->beside = r->n_beside > 0 ? s->beside / r->all_beside : 1;
}

static bool denies(const struct reading *r, const struct sentence *s)
{
    for (int i = s->from; i < s->to; i++)
        if (recall_at_is_of(&r->word[i], RECALL_DENIES))
            return true;
    return false;
}

/* Calls see(), if it is there, and finds the share of the best sentence otherwise. */
static double walk(struct maker *m, double best, bool show)
{
    const struct reading *r = m->r;
    bool seen[RECALL_ASKED_MAX] = { false }, lead = false;
    struct sentence s = { 0 };
    double most = -1;

    for (int i = 0; i < r->n; i++) {
        if (!r->ends[i] && i + 1 < r->n)
            continue;
        s.to = i + 1;
        s.behind_lead = lead;
        share_of(r, &s, seen);
        lead = r->n_beside > 0 && s.beside > 0;
        s.best = s.beside + s.names >= best;
        most = s.beside + s.names > most ? s.beside + s.names : most;
        m->s = &s;
        s.denies = denies(r, &s);
        if (show && s.named && (!r->q->denies || s.denies))
            show_spans(m);
        s.from = s.to;
    }
    m->s = NULL;
    return most;
}

enum err_code recall_spans(struct span_search *x, struct str paragraph, const struct recall_asked *q, struct err *e)
{
    struct reading r;
    enum err_code code = recall_read(&r, paragraph, q, e);
    const bool fits = code == ERR_OK && !r.lacks_name;
    struct word_is *is = fits ? calloc((size_t)r.n + 1, sizeof *is) : NULL;
    struct maker m = { .x = x, .r = &r, .is = is };

    if (fits && is == NULL)
        code = err_nomem(e);
    else if (fits) {
        for (int i = 0; i < r.n; i++)
            look_at_word(&r, i, &is[i]);
        const double best = walk(&m, 0, false);

        x->best_beside = best > x->best_beside ? best : x->best_beside;
        x->n_names = r.n_names;
        x->n_beside = r.n_beside;
        (void)walk(&m, best, true);
        x->best_share = x->share > x->best_share ? x->share : x->best_share;
        x->rank++;
    }
    free(is);
    recall_reading_free(&r);
    return code;
}

void recall_no_span(const struct span_search *x)
{
    struct maker m = { .x = x };

    put(&m, NONE);
    put(&m, NONE_SHARE + paragraph_bucket(x->best_share));
    put(&m, NONE_BESIDE + share_bucket(x->best_beside / 2));
    put(&m, NONE_NAMES + (x->n_names < 2 ? x->n_names : 2));
    put(&m, NONE_WORDS + (x->n_beside < 3 ? x->n_beside : 3));
    x->see(x->of, &m.out);
}

/* ---- what is asked for ---- */

/* The question asks what something is, and nothing about it. */
static bool asks_what_it_is(const struct recall_asked *q)
{
    int first = -1, last = -1, content = 0, names = 0;

    if (q->noun >= 0)
        return false;
    for (int i = 0; i < q->n; i++)
        if (q->weight[i] > 0 && !(recall_at_is(&q->word[i], "mean") || recall_at_is(&q->word[i], "meaning"))) {
            first = first < 0 ? i : first;
            last = i;
            content++;
            names += q->name[i];
        }
    if (content == 0 || names == content)
        return content > 0;
    return names == 0 && last + 1 == q->n && last - first + 1 == content && !q->subject &&
           (first == 0 || q->word[first - 1].role == RECALL_DET || recall_at_is_of(&q->word[first - 1], RECALL_LINKS) ||
            q->word[first - 1].role == RECALL_ADV);
}

enum span_class recall_span_class(const struct recall_asked *q)
{
    switch (q->wanted) {
    case RECALL_WHAT:
        return asks_what_it_is(q) ? SPAN_DESCRIPTION
               : q->noun >= 0     ? SPAN_WHAT_NOUN
               : q->subject       ? SPAN_WHAT_SUBJECT
                                  : SPAN_WHAT;
    case RECALL_WHO:
        return asks_what_it_is(q) ? SPAN_DESCRIPTION : q->subject ? SPAN_WHO_SUBJECT : SPAN_WHO;
    case RECALL_NAMES:
        return SPAN_WHO;
    case RECALL_NAMED:
        return SPAN_WHAT_NAMED;
    case RECALL_WHEN:
        return SPAN_WHEN;
    case RECALL_WHERE:
        return SPAN_WHERE;
    case RECALL_MANY:
        return SPAN_MANY;
    case RECALL_MEASURE:
        return SPAN_MEASURE;
    case RECALL_OFTEN:
        return SPAN_OFTEN;
    case RECALL_COLOURS:
        return SPAN_COLOUR;
    case RECALL_WHY:
        return SPAN_WHY;
    case RECALL_HOW:
        return SPAN_HOW;
    default:
        return SPAN_DESCRIPTION;
    }
}
