/* SPDX-License-Identifier: Apache-2.0 */
/* wordings.c - further wordings of the facts that are learnt. */
#include "tune/wordings.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/io.h"

enum {
    WORDS_MAX = 64,   /* of a question that is looked at */
    GROUP_MAX = 16,   /* questions with one answer; more are a class, not a fact */
    ANSWER_MAX = 400, /* bytes of a fact's answer */
    SHAPES_MAX = 256, /* of the items */
    SHAPE_KEYS = 3,   /* keys that a shape must have before others get it */
};
#define RARE 0.2 /* a word of a key is in the questions of at most this share of the answers */

/* {k}: the key; {l}: the same in small letters. Each fact gets some that follow one another, so that a key at the
 * beginning, a key in a sentence and a key alone take turns. A model that has learnt few shapes with the key first
 * knows these shapes and no others: to it "WORD: WORDS" is a task on a text. */
static const char *const table[] = {
    "{k}?",
    "Tell me about {k}.",
    "{k}: what is it?",
    "What do you know about {k}?",
    "what is \"{k}\"",
    "{k}: tell me more.",
    "{l}",
    "Do you know {k}?",
    "{k} - please explain.",
    "I would like to know about {k}.",
    "{k}, which one is that?",
    "Question: {k}",
    "Describe {k} in a few words.",
    "{k}: explain",
    "What about {l}?",
    "\"{k}\": what is meant?",
    "Have you heard of {k}? Say what you know.",
    "{k} is what?",
    "Information on {k}, please.",
    "{k}: your answer?",
    "Remind me of {k}.",
    "{k}, in one line",
    "what can be said about {l}",
    "{k}: do you know it?",
    "I read about {k} today. What should I know?",
    "{k} = ?",
    "Explain {k} to me.",
    "{k}: and that means?",
    "(about {k})",
    "Please say in short: {k}?",
    "{k}... any idea?",
    "My question is about {k}.",
    "{l}: details",
    "Can you help me with {k}?",
    "{k}: how would you describe it?",
    "Look up {k}.",
    "{k}, please.",
    "Answer in a line what {k} stands for.",
    "{k}: known or not, and as what?",
    "Give me a note on {k}.",
};
static const char *const kept_back[] = { "Could you say something about {k}?", "{k}, what can you say?" };
enum { N_TABLE = sizeof table / sizeof *table, N_BACK = sizeof kept_back / sizeof *kept_back };

/* Words with which a question begins, and that no key begins or ends with. */
static const char *const asking[] = {
    "what is ", "what are ", "who is ",  "who was ", "tell me ", "give me ", "name ",
    "explain ", "describe ", "show me ", "say ",     "list ",    "please ",  "define "
};
static const char *const small[] = { "is",    "are",  "was", "were", "be",   "do",    "does", "did", "about",
                                     "of",    "for",  "to",  "in",   "on",   "at",    "me",   "who", "what",
                                     "which", "that", "how", "why",  "when", "where", "and",  "or" };

struct fact {
    struct str prompt, answer, key; /* of one question; key.n 0: none was found */
    size_t at;                      /* of the key in the prompt */
    int shape;
};
struct words {
    struct str v[WORDS_MAX];
    int n;
};
/* A word of some answer's questions. */
struct seen {
    uint64_t word, answer;
};
struct finding {
    struct fact *v; /* [n] ascending by answer */
    size_t n, n_answer;
    struct seen *seen; /* [n_seen] ascending, each once */
    size_t n_seen;
    const struct fact *shape[SHAPES_MAX]; /* a question of each */
    int n_shape, n_key[SHAPES_MAX];
    bool near[SHAPES_MAX][SHAPES_MAX]; /* some key has both */
};

/* ---- words ---- */

static bool is_mark(char c)
{
    return ispunct((unsigned char)c) || isspace((unsigned char)c);
}

/* Words without the marks around them. */
static void split(struct str s, struct words *w)
{
    w->n = 0;
    for (size_t at = 0, end; at < s.n && w->n < WORDS_MAX; at = end) {
        while (at < s.n && is_mark(s.p[at]))
            at++;
        for (end = at; end < s.n && !isspace((unsigned char)s.p[end]); end++)
            ;
        size_t last = end;

        while (last > at && is_mark(s.p[last - 1]))
            last--;
        if (last > at)
            w->v[w->n++] = (struct str){ s.p + at, last - at };
    }
}

static uint64_t hash_small(struct str s)
{
    uint64_t h = 0;

    for (size_t i = 0; i < s.n; i++) {
        const char c = (char)tolower((unsigned char)s.p[i]);

        h = io_hash(h, &c, 1);
    }
    return h;
}

static bool has_letters(struct str s)
{
    int n = 0;

    for (size_t i = 0; i < s.n; i++)
        n += isalpha((unsigned char)s.p[i]) || (unsigned char)s.p[i] >= 0x80;
    return n >= 2;
}

/* A name like them has a capital, and is not the first word. */
static bool is_small(const struct words *w, int which)
{
    const struct str s = w->v[which];

    if (which > 0 && isupper((unsigned char)s.p[0]))
        return false;
    for (size_t i = 0; i < sizeof small / sizeof *small; i++)
        if (strlen(small[i]) == s.n && strncasecmp(small[i], s.p, s.n) == 0)
            return true;
    return false;
}

static int by_seen(const void *a, const void *b)
{
    const struct seen *x = a, *y = b;

    if (x->word != y->word)
        return (x->word > y->word) - (x->word < y->word);
    return (x->answer > y->answer) - (x->answer < y->answer);
}

static enum err_code note_words(struct finding *f, struct err *e)
{
    size_t n = 0;
    struct words w;

    for (size_t i = 0; i < f->n; i++) {
        split(f->v[i].prompt, &w);
        n += (size_t)w.n;
    }
    f->seen = calloc(n + 1, sizeof *f->seen);
    n = 0;
    if (f->seen == NULL)
        return err_nomem(e);
    for (size_t i = 0; i < f->n; i++) {
        split(f->v[i].prompt, &w);
        for (int k = 0; k < w.n; k++)
            f->seen[n++] = (struct seen){ hash_small(w.v[k]), io_hash(0, f->v[i].answer.p, f->v[i].answer.n) };
    }
    qsort(f->seen, n, sizeof *f->seen, by_seen);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || by_seen(&f->seen[f->n_seen - 1], &f->seen[i]) != 0)
            f->seen[f->n_seen++] = f->seen[i];
    return ERR_OK;
}

/* Whether few other answers have it in their questions. */
static bool is_rare(const struct finding *f, struct str word)
{
    const double most = RARE * (double)f->n_answer;
    const uint64_t h = hash_small(word);
    size_t lo = 0, hi = f->n_seen, n = 0;

    while (lo < hi) {
        const size_t mid = (lo + hi) / 2;

        if (f->seen[mid].word < h)
            lo = mid + 1;
        else
            hi = mid;
    }
    while (lo + n < f->n_seen && f->seen[lo + n].word == h)
        n++;
    return n <= 1 || (double)n <= most;
}

/* ---- keys ---- */

static int by_answer(const void *a, const void *b)
{
    const struct fact *x = a, *y = b;
    const int order = memcmp(x->answer.p, y->answer.p, x->answer.n < y->answer.n ? x->answer.n : y->answer.n);

    if (order != 0 || x->answer.n != y->answer.n)
        return order != 0 ? order : (x->answer.n > y->answer.n) - (x->answer.n < y->answer.n);
    return (x->prompt.p > y->prompt.p) - (x->prompt.p < y->prompt.p);
}

static int by_key(const void *a, const void *b)
{
    const struct fact *x = *(const struct fact *const *)a, *y = *(const struct fact *const *)b;
    const int order = memcmp(x->key.p, y->key.p, x->key.n < y->key.n ? x->key.n : y->key.n);

    if (order != 0 || x->key.n != y->key.n)
        return order != 0 ? order : (x->key.n > y->key.n) - (x->key.n < y->key.n);
    return (x > y) - (x < y);
}

/* An answer that mostly repeats the key's words is no fact about it. */
static bool repeats(struct str answer, struct str key)
{
    struct words a, k;
    int n = 0;

    split(answer, &a);
    split(key, &k);
    for (int i = 0; i < a.n; i++)
        for (int m = 0; m < k.n; m++)
            if (hash_small(a.v[i]) == hash_small(k.v[m])) {
                n++;
                break;
            }
    return 2 * n >= a.n;
}

static void take_key(const struct finding *f, struct fact *to, const struct words *w, int from, int n, int *best)
{
    int rare = 0;
    bool letters = false;

    while (n > 0 && is_small(w, from))
        from++, n--;
    while (n > 0 && is_small(w, from + n - 1))
        n--;
    for (int i = from; i < from + n; i++)
        if (is_rare(f, w->v[i])) {
            rare++;
            letters = letters || has_letters(w->v[i]);
        }
    if (!letters || rare * WORDS_MAX + n <= *best)
        return;
    const struct str last = w->v[from + n - 1];
    const struct str key = { w->v[from].p, (size_t)(last.p + last.n - w->v[from].p) };

    if (repeats(to->answer, key))
        return;
    *best = rare * WORDS_MAX + n;
    to->key = key;
    to->at = (size_t)(key.p - to->prompt.p);
}

/* The key of a question is the run of words that it shares with another one of the same answer, that with the most rare
 * words. */
static void find_key(const struct finding *f, struct fact *to, const struct fact *other, int *best)
{
    struct words a, b;

    split(to->prompt, &a);
    split(other->prompt, &b);
    for (int i = 0; i < a.n; i++)
        for (int k = 0; k < b.n; k++) {
            int n = 0;

            if (i > 0 && k > 0 && str_eq(a.v[i - 1], b.v[k - 1]))
                continue; /* a part of a longer run */
            while (i + n < a.n && k + n < b.n && str_eq(a.v[i + n], b.v[k + n]))
                n++;
            if (n > 0)
                take_key(f, to, &a, i, n, best);
        }
}

/* Of the questions from .. to - 1, which have the same answer. */
static void find_key_among(const struct finding *f, size_t which, size_t from, size_t to)
{
    int best = 0;

    for (size_t i = from; i < to; i++)
        if (i != which)
            find_key(f, &f->v[which], &f->v[i], &best);
}

/* Keys that several answers share say nothing alone. */
static enum err_code drop_shared(struct finding *f, struct err *e)
{
    struct fact **v = calloc(f->n + 1, sizeof *v);
    size_t n = 0;

    if (v == NULL)
        return err_nomem(e);
    for (size_t i = 0; i < f->n; i++)
        if (f->v[i].key.n > 0)
            v[n++] = &f->v[i];
    qsort(v, n, sizeof *v, by_key);
    for (size_t i = 0, k; i < n; i = k) {
        bool one = true;

        for (k = i; k < n && str_eq(v[k]->key, v[i]->key); k++)
            one = one && str_eq(v[k]->answer, v[i]->answer);
        for (size_t m = i; m < k && !one; m++)
            v[m]->key.n = 0;
    }
    free(v);
    return ERR_OK;
}

static enum err_code find_keys(struct finding *f, struct err *e)
{
    qsort(f->v, f->n, sizeof *f->v, by_answer);
    for (size_t i = 0; i < f->n; i++)
        f->n_answer += i == 0 || !str_eq(f->v[i].answer, f->v[i - 1].answer);
    if (note_words(f, e))
        return e->code;
    for (size_t i = 0, to; i < f->n; i = to) {
        for (to = i; to < f->n && str_eq(f->v[to].answer, f->v[i].answer); to++)
            ;
        for (size_t k = i; k < to && to - i <= GROUP_MAX && f->v[i].answer.n <= ANSWER_MAX; k++)
            find_key_among(f, k, i, to);
    }
    return drop_shared(f, e);
}

/* ---- shapes ---- */

static struct str before(const struct fact *a)
{
    return (struct str){ a->prompt.p, a->at };
}

static struct str after(const struct fact *a)
{
    return (struct str){ a->prompt.p + a->at + a->key.n, a->prompt.n - a->at - a->key.n };
}

static int find_shape(struct finding *f, const struct fact *a)
{
    int i = 0;

    while (i < f->n_shape && !(str_eq(before(f->shape[i]), before(a)) && str_eq(after(f->shape[i]), after(a))))
        i++;
    if (i == f->n_shape && i < SHAPES_MAX)
        f->shape[f->n_shape++] = a;
    return i < SHAPES_MAX ? i : -1;
}

static void find_shapes(struct finding *f)
{
    for (size_t i = 0; i < f->n; i++) {
        f->v[i].shape = f->v[i].key.n > 0 ? find_shape(f, &f->v[i]) : -1;
        if (f->v[i].shape >= 0)
            f->n_key[f->v[i].shape]++;
        for (size_t k = i; f->v[i].shape >= 0 && k-- > 0 && str_eq(f->v[k].answer, f->v[i].answer);)
            if (f->v[k].shape >= 0 && str_eq(f->v[k].key, f->v[i].key))
                f->near[f->v[i].shape][f->v[k].shape] = f->near[f->v[k].shape][f->v[i].shape] = true;
    }
}

/* ---- wordings ---- */

struct making {
    struct tune_wordings *w;
    uint64_t *old, *asked; /* questions that are there, and those of the tests; ascending */
    size_t n_old, n_asked;
};

static bool is_in(const uint64_t *v, size_t n, uint64_t h)
{
    return n > 0 && bsearch(&h, v, n, sizeof h, io_by_hash) != NULL;
}

/* malloc'ed; NULL: memory is out. */
static char *put_key(const char *shape, struct str key)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    const char *at = f != NULL ? strchr(shape, '{') : NULL;

    if (f == NULL)
        return NULL;
    fwrite(shape, 1, (size_t)(at - shape), f);
    for (size_t i = 0; i < key.n; i++) {
        const char c = at[1] == 'l' ? (char)tolower((unsigned char)key.p[i]) : key.p[i];

        fwrite(&c, 1, 1, f);
    }
    fwrite(at + 3, 1, strlen(at + 3), f);
    if (fclose(f) == 0)
        return text;
    free(text);
    return NULL;
}

static enum err_code add_wording(struct making *m, json_t *to, struct str prompt, struct str answer, struct err *e)
{
    const uint64_t h = hash_small(prompt);
    json_t *o;

    if (is_in(m->old, m->n_old, io_hash(0, prompt.p, prompt.n)) || is_in(m->asked, m->n_asked, h))
        return ERR_OK;
    o = json_pack("{s:s%, s:s%}", "prompt", prompt.p, prompt.n, "answer", answer.p, answer.n);
    return o != NULL && json_array_append_new(to, o) == 0 ? ERR_OK : err_nomem(e);
}

/* Whether a test asks in it of any key. */
static enum err_code is_tested(const struct making *m, const struct finding *f, const char *shape, bool *yes,
                               struct err *e)
{
    *yes = false;
    for (size_t i = 0; i < f->n && !*yes && m->n_asked > 0; i++) {
        char *text = f->v[i].key.n > 0 ? put_key(shape, f->v[i].key) : NULL;

        if (f->v[i].key.n > 0 && text == NULL)
            return err_nomem(e);
        *yes = text != NULL && is_in(m->asked, m->n_asked, hash_small(str_of(text)));
        free(text);
    }
    return ERR_OK;
}

/* The first question with each key, in the order of the answers. */
static bool is_first(const struct finding *f, size_t i)
{
    for (size_t k = i; f->v[i].key.n > 0 && k-- > 0 && str_eq(f->v[k].answer, f->v[i].answer);)
        if (str_eq(f->v[k].key, f->v[i].key))
            return false;
    return f->v[i].key.n > 0;
}

static enum err_code add_shape(struct making *m, const struct fact *of, const char *shape, json_t *to, struct err *e)
{
    char *text = put_key(shape, of->key);
    const enum err_code code = text == NULL ? err_nomem(e) : add_wording(m, to, str_of(text), of->answer, e);

    free(text);
    return code;
}

/* Each fact has `most` shapes, the next one those that follow in the table. */
static enum err_code add_table(struct making *m, const struct finding *f, int most, struct err *e)
{
    const char *usable[N_TABLE];
    int n = 0, next = 0;

    for (int i = 0; i < N_TABLE; i++) {
        bool tested;

        if (is_tested(m, f, table[i], &tested, e))
            return e->code;
        if (!tested)
            usable[n++] = table[i];
    }
    most = most < n ? most : n;
    for (size_t i = 0; i < f->n; i++) {
        if (!is_first(f, i))
            continue;
        for (int k = 0; k < most; k++, next++)
            if (add_shape(m, &f->v[i], usable[next % n], m->w->learn, e))
                return e->code;
        for (int k = 0; k < N_BACK; k++)
            if (add_shape(m, &f->v[i], kept_back[k], m->w->tests, e))
                return e->code;
    }
    m->w->n_own = next < n ? next : n;
    return ERR_OK;
}

/* A key in the shape of another question. */
static enum err_code add_in_shape(struct making *m, const struct fact *key, const struct fact *shape, struct err *e)
{
    const struct str a = before(shape), b = after(shape);
    char *text = malloc(a.n + key->key.n + b.n + 1);
    enum err_code code;

    if (text == NULL)
        return err_nomem(e);
    memcpy(text, a.p, a.n);
    memcpy(text + a.n, key->key.p, key->key.n);
    memcpy(text + a.n + key->key.n, b.p, b.n);
    code = add_wording(m, m->w->learn, (struct str){ text, a.n + key->key.n + b.n }, key->answer, e);
    free(text);
    return code;
}

/* Shapes of questions about keys of the same kind: some key has this one and one of the fact's. */
static enum err_code add_shapes(struct making *m, const struct finding *f, struct err *e)
{
    bool used[SHAPES_MAX] = { false };

    for (size_t i = 0; i < f->n; i++)
        for (int s = 0; s < f->n_shape && f->v[i].shape >= 0; s++) {
            const size_t n = json_array_size(m->w->learn);

            if (s == f->v[i].shape || f->n_key[s] < SHAPE_KEYS || !f->near[f->v[i].shape][s])
                continue;
            if (add_in_shape(m, &f->v[i], f->shape[s], e))
                return e->code;
            used[s] = used[s] || json_array_size(m->w->learn) > n;
        }
    for (int s = 0; s < f->n_shape; s++)
        m->w->n_shape += used[s];
    return ERR_OK;
}

/* What is left of a question without the words that ask: "the settings of K?" */
static enum err_code add_bare(struct making *m, const struct finding *f, struct err *e)
{
    for (size_t i = 0; i < f->n; i++) {
        struct str s = f->v[i].prompt;
        size_t skip = 0;

        for (size_t k = 0; k < sizeof asking / sizeof *asking; k++)
            if (s.n > strlen(asking[k]) && strncasecmp(s.p, asking[k], strlen(asking[k])) == 0)
                skip = strlen(asking[k]);
        if (skip == 0 || f->v[i].key.n == 0 || skip > f->v[i].at)
            continue;
        s.p += skip;
        s.n -= skip;
        while (s.n > 0 && is_mark(s.p[s.n - 1]))
            s.n--;
        if (s.n > f->v[i].key.n && add_wording(m, m->w->learn, s, f->v[i].answer, e))
            return e->code;
    }
    return ERR_OK;
}

/* ---- all of it ---- */

static uint64_t hash_whole(struct str s)
{
    return io_hash(0, s.p, s.n);
}

/* The questions' hashes, ascending; malloc'ed. */
static enum err_code hash_prompts(uint64_t **to, size_t *n, const json_t *pairs, uint64_t (*hash)(struct str),
                                  struct err *e)
{
    const json_t *pair;
    struct str s;
    size_t i;

    *n = 0;
    *to = calloc(json_array_size(pairs) + 1, sizeof **to);
    if (*to == NULL)
        return err_nomem(e);
    json_array_foreach (pairs, i, pair)
        if (json_get_str(pair, "prompt", &s))
            (*to)[(*n)++] = hash(s);
    qsort(*to, *n, sizeof **to, io_by_hash);
    return ERR_OK;
}

static enum err_code open_finding(struct finding *f, const json_t *pairs, struct err *e)
{
    const json_t *pair;
    size_t i;

    f->v = calloc(json_array_size(pairs) + 1, sizeof *f->v);
    if (f->v == NULL)
        return err_nomem(e);
    json_array_foreach (pairs, i, pair) {
        struct fact a = { .shape = -1 };

        if (json_get_str(pair, "prompt", &a.prompt) && json_get_str(pair, "answer", &a.answer))
            f->v[f->n++] = a;
    }
    return ERR_OK;
}

static enum err_code make_all(struct making *m, struct finding *f, int most, struct err *e)
{
    size_t found = 0;

    if (find_keys(f, e))
        return e->code;
    for (size_t i = 0; i < f->n; i++) {
        found += f->v[i].key.n > 0;
        m->w->n_fact += is_first(f, i);
    }
    if (2 * found < f->n) {
        m->w->n_fact = 0;
        return ERR_OK;
    }
    find_shapes(f);
    return add_shapes(m, f, e) || add_bare(m, f, e) || add_table(m, f, most, e) ? e->code : ERR_OK;
}

enum err_code tune_wordings_make(struct tune_wordings *w, const json_t *pairs, const json_t *tests, int most,
                                 struct err *e)
{
    struct making m = { .w = w };
    struct finding *f = calloc(1, sizeof *f);
    enum err_code code = f == NULL ? err_nomem(e) : ERR_OK;

    *w = (struct tune_wordings){ .learn = json_array(), .tests = json_array() };
    if (code == ERR_OK && (w->learn == NULL || w->tests == NULL))
        code = err_nomem(e);
    if (code == ERR_OK && most > 0)
        code = hash_prompts(&m.old, &m.n_old, pairs, hash_whole, e) ||
                       hash_prompts(&m.asked, &m.n_asked, tests, hash_small, e) || open_finding(f, pairs, e) ||
                       make_all(&m, f, most, e)
                   ? e->code
                   : ERR_OK;
    free(m.old);
    free(m.asked);
    if (f != NULL) {
        free(f->v);
        free(f->seen);
    }
    free(f);
    return code;
}

void tune_wordings_free(struct tune_wordings *w)
{
    json_decref(w->learn);
    json_decref(w->tests);
    *w = (struct tune_wordings){ 0 };
}
