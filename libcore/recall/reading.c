/* SPDX-License-Identifier: Apache-2.0 */
/* reading.c - the words of a paragraph, and which of them the question has.   room: recall */
#include <stdlib.h>
#include <string.h>

#include "recall/reading.h"

enum { WORDS_READ = 1024 /* of a paragraph */ };

/* ---- reading ---- */

static bool is_short_form(const struct recall_at *w)
{
    static const char *const forms[] = { "dr", "mr", "mrs", "ms", "st", "no", "e", "g", "i" };

    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (recall_at_is(w, forms[i]))
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
    if (last)
        return;
    r->stop[i + 1] = stop || ends;
    r->tight[i + 1] = gap.n > 0 && strchr("-'./,:&", gap.p[0]) != NULL && !ends && gap.n == 1;
    r->tight[i + 1] = r->tight[i + 1] || (gap.n == 3 && memcmp(gap.p, "\xe2\x80\x99", 3) == 0);
}

static enum err_code read_words(struct reading *r, struct err *e)
{
    size_t at = 0, end = 0;

    r->word = calloc(WORDS_READ, sizeof *r->word);
    r->stop = calloc(WORDS_READ, sizeof *r->stop);
    r->ends = calloc(WORDS_READ, sizeof *r->ends);
    r->tight = calloc(WORDS_READ, sizeof *r->tight);
    if (r->word == NULL || r->stop == NULL || r->ends == NULL || r->tight == NULL)
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

bool recall_begins_sentence(const struct reading *r, int i)
{
    return i == 0 || r->ends[i - 1];
}

static bool is_written_as_name(const struct recall_asked *q, int k)
{
    return k >= 0 && k < q->n && q->weight[k] > 0 && q->word[k].capital;
}

/* A word that is written like a name, and is not the one that the question has there. */
static bool is_other_name(const struct recall_at *w, int k)
{
    return w->capital && w->asked != k && (w->role == RECALL_CONTENT || w->asked >= 0);
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
        const bool alone = !(i > 0 && is_other_name(&r->word[i - 1], k - 1) && !r->stop[i]) &&
                           !(i + 1 < r->n && is_other_name(&r->word[i + 1], k + 1) && !r->stop[i + 1]);

        if ((before || after) && !fits && !alone)
            r->word[i].asked = -1;
    }
}

/* "the INN Vazo" */
bool recall_is_of_name(const struct reading *r, int k)
{
    const struct recall_asked *q = r->q;

    return k > 0 && k + 1 < q->n && r->is_name[k + 1] && q->word[k + 1].capital && q->word[k - 1].role != RECALL_REL;
}

/* Content that is neither a name nor a part of one ("the inn Vazo") nor the noun. */
bool recall_is_beside(const struct reading *r, int k)
{
    const struct recall_asked *q = r->q;

    return q->weight[k] > 0 && !r->is_name[k] && k != q->noun && !recall_is_of_name(r, k) &&
           !(q->wanted == RECALL_WHERE && recall_at_is_of(&q->word[k], RECALL_STANDS));
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

        if (k >= 0 && (r->word[i].digit || (r->word[i].capital && !recall_begins_sentence(r, i))))
            r->is_name[k] = true;
    }
    for (int i = 0; i + 1 < r->n; i++) /* "Anna Kell lives" begins with a name */
        if (recall_begins_sentence(r, i) && r->word[i].asked >= 0 && r->word[i].capital && r->word[i + 1].asked >= 0 &&
            r->is_name[r->word[i + 1].asked])
            r->is_name[r->word[i].asked] = true;
    name_the_rarest(r);
    for (int k = 0; k < q->n; k++) {
        r->n_names += r->is_name[k];
        r->n_beside += recall_is_beside(r, k);
        r->all_beside += recall_is_beside(r, k) ? q->weight[k] : 0;
    }
}

/* The word of a name, and beside it the next one of the name. */
static bool has_name(const struct reading *r, int k)
{
    const struct recall_asked *q = r->q;
    const bool pair = k + 1 < q->n && q->name[k] && q->name[k + 1] && q->word[k].capital && q->word[k + 1].capital;
    bool seen = !q->name[k];

    for (int i = 0; i < r->n && !seen; i++)
        seen = r->word[i].asked == k && (!pair || (i + 1 < r->n && r->word[i + 1].asked == k + 1));
    return seen;
}

enum err_code recall_read(struct reading *r, struct str paragraph, const struct recall_asked *q, struct err *e)
{
    *r = (struct reading){ .q = q, .paragraph = paragraph };
    if (read_words(r, e))
        return e->code;
    drop_other_names(r);
    find_names(r);
    for (int k = 0; k < q->n; k++)
        r->lacks_name = r->lacks_name || !has_name(r, k);
    return ERR_OK;
}

void recall_reading_free(struct reading *r)
{
    free(r->word);
    free(r->stop);
    free(r->ends);
    free(r->tight);
}
