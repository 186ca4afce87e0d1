/* SPDX-License-Identifier: Apache-2.0 */
/* question.c - what a question asks for, by its words and their order.       room: recall */
#include <string.h>

#include "recall/document.h"

bool recall_at_is(const struct recall_at *w, const char *word)
{
    return w->n == strlen(word) && memcmp(w->low, word, w->n) == 0;
}

bool recall_at_is_of(const struct recall_at *w, enum recall_kind kind)
{
    return recall_is_kind(kind, w->low, w->n);
}

/* A question word, and what it asks for; RECALL_DESCRIPTION: it is none. */
static enum recall_wanted asked_by(const struct recall_at *w)
{
    return recall_at_is(w, "who") || recall_at_is(w, "whom") || recall_at_is(w, "whose")   ? RECALL_WHO
           : recall_at_is(w, "when")                                                       ? RECALL_WHEN
           : recall_at_is(w, "where")                                                      ? RECALL_WHERE
           : recall_at_is(w, "why")                                                        ? RECALL_WHY
           : recall_at_is(w, "what") || recall_at_is(w, "which") || recall_at_is(w, "how") ? RECALL_WHAT
                                                                                           : RECALL_DESCRIPTION;
}

/* "how tall", "how many" */
static enum recall_wanted wanted_how(const struct recall_at *next)
{
    static const char *const of_size[] = { "much", "tall", "high",  "long", "old",   "deep",  "wide",
                                           "far",  "big",  "heavy", "fast", "large", "thick", "small" };

    if (recall_at_is(next, "many"))
        return RECALL_MANY;
    if (recall_at_is(next, "often"))
        return RECALL_OFTEN;
    for (size_t i = 0; i < sizeof of_size / sizeof *of_size; i++)
        if (recall_at_is(next, of_size[i]))
            return RECALL_MEASURE;
    return RECALL_HOW;
}

/* "which year", "the colour of": not "each day", "in a year", "take place". */
static int find_noun(const struct recall_asked *q)
{
    for (int i = 0; i < q->n; i++) {
        const struct recall_at *w = &q->word[i], *before = i > 0 ? w - 1 : NULL;

        const enum recall_wanted wanted = recall_wanted_by(w->low, w->n);

        if (wanted == RECALL_WHAT || (before != NULL && recall_at_is_of(before, RECALL_LIGHT)))
            continue;
        /* "which river", not "what the theatre shows" */
        if (wanted == RECALL_NAMED && (before == NULL || before->role != RECALL_REL))
            continue;
        if (before == NULL ||
            (before->role != RECALL_PREP && before->role != RECALL_AUX && !recall_at_is(before, "a") &&
             !recall_at_is(before, "an") && !recall_at_is(before, "each") && !recall_at_is(before, "every") &&
             !recall_at_is(before, "of")))
            return i;
    }
    return -1;
}

/* "for what", "what is it known for" */
static int find_preposition(const struct recall_asked *q)
{
    for (int i = 0; i < q->n; i++)
        if (q->word[i].role == RECALL_PREP && (i + 1 == q->n || asked_by(&q->word[i + 1]) != RECALL_DESCRIPTION))
            return i;
    return -1;
}

static void read_wanted(struct recall_asked *q)
{
    int wh = -1;

    q->prep = find_preposition(q);

    q->wanted = RECALL_WHAT;
    q->noun = -1;
    for (int i = 0; i < q->n && wh < 0; i++)
        if (asked_by(&q->word[i]) != RECALL_DESCRIPTION)
            wh = i;
    if (wh >= 0)
        q->wanted = asked_by(&q->word[wh]);
    const struct recall_at *next = wh >= 0 && wh + 1 < q->n ? &q->word[wh + 1] : NULL;

    if (next != NULL && recall_at_is(&q->word[wh], "how")) {
        q->wanted = wanted_how(next);
        q->noun = q->wanted != RECALL_HOW ? wh + 1 : -1;
        return;
    }
    if (q->wanted == RECALL_WHO || q->wanted == RECALL_WHAT)
        q->subject = next != NULL && next->role == RECALL_CONTENT;
    q->noun = find_noun(q);
    if (wh < 0 && q->noun < 0)
        for (int i = 0; i < q->n && q->wanted == RECALL_WHAT; i++)
            q->wanted = recall_at_is_of(&q->word[i], RECALL_PERSON) ? RECALL_NAMES : RECALL_WHAT;
    if (q->wanted != RECALL_WHAT) { /* "the year when" */
        if (q->noun >= 0 && recall_wanted_by(q->word[q->noun].low, q->word[q->noun].n) != q->wanted)
            q->noun = -1;
        return;
    }
    if (q->noun >= 0) {
        q->wanted = recall_wanted_by(q->word[q->noun].low, q->word[q->noun].n);
        q->subject = false;
    } else if (q->subject) { /* "what lives in", "which tool does" */
        for (int i = wh + 2; i < q->n && i < wh + 4 && q->noun < 0; i++)
            if (q->word[i].role == RECALL_AUX)
                q->noun = i - 1;
        if (q->noun < 0 && wh + 2 < q->n && q->word[wh + 2].capital) /* "what job Anna Kell has" */
            q->noun = wh + 1;
        if (recall_at_is(&q->word[wh], "which") && q->noun < 0)
            q->noun = wh + 1;
        else if (q->noun >= 0)
            q->subject = false;
    }
}

/* A word of before it, or one that means the same, is the same. */
static bool is_repeated(const struct recall_asked *q, int i)
{
    for (int k = 0; k < q->n_keys; k++)
        if (q->key[k] == q->word[i].key)
            return true;
    return false;
}

static void add_keys(struct recall_asked *q, int i)
{
    uint64_t *key = q->key + q->n_keys;
    const int n = recall_stem_keys(q->word[i].low, q->word[i].n, key);

    for (int k = 0; k < n; k++) {
        q->key_of[q->n_keys + k] = i;
        q->filter[key[k] >> 6 & 7] |= UINT64_C(1) << (key[k] & 63);
    }
    q->n_keys += n;
}

/* Asks for something that is not yes or no. */
static bool does_ask(const struct recall_asked *q, struct str question)
{
    int content = 0;

    for (int i = 0; i < q->n; i++) {
        if (recall_at_is_of(&q->word[i], RECALL_ASKS) && q->word[i].role != RECALL_CONTENT)
            return true;
        content += q->weight[i] > 0;
    }
    if (q->n > 0 && q->word[0].role == RECALL_AUX)
        return false;
    return memchr(question.p, '?', question.n) != NULL || content <= 3;
}

void recall_read_question(struct recall_asked *q, struct str question)
{
    size_t at = 0, end = 0;

    memset(q, 0, sizeof *q);
    for (; q->n < RECALL_ASKED_MAX && recall_next_at(question, &at, NULL, &q->word[q->n]); q->n++, end = at) {
        const struct recall_at *w = &q->word[q->n];
        const char next = at < question.n ? question.p[at] : '\0';
        bool begins = q->n == 0;

        for (size_t i = end; i < (size_t)(w->s.p - question.p); i++)
            begins = begins || strchr(".!?:\n", question.p[i]) != NULL;
        q->denies = q->denies || recall_at_is_of(w, RECALL_DENIES);
        q->weight[q->n] = w->role == RECALL_CONTENT && !is_repeated(q, q->n);
        if (q->weight[q->n] > 0)
            add_keys(q, q->n);
        q->name[q->n] = q->weight[q->n] > 0 && (w->digit || next == '-' ||
                                                (end > 0 && w->s.p == question.p + end + 1 && question.p[end] == '-') ||
                                                (w->capital && (!begins || strchr(":,'", next) != NULL)));
    }
    read_wanted(q);
    q->asks = does_ask(q, question);
}
