/* SPDX-License-Identifier: Apache-2.0 */
/* build.c - texts and vectors into an index.                                  room: recall */
#include <stdlib.h>
#include <string.h>

#include "recall/internal.h"

enum {
    PART = 5, /* of its texts an index that goes on with an old one may lack, or have more than it */
    SLOTS = 1 << 12,
};
#define NO_WORD UINT32_MAX

/* A word of the index. */
struct known {
    uint64_t at;   /* of its bytes, in words */
    uint64_t last; /* its latest use, which is in the text last_text */
    uint32_t hash, last_text, n_texts;
    uint8_t n;
};
/* A word in one text. */
struct use {
    uint32_t word; /* by order of appearance */
    struct posting in;
};
/* Bytes that grow. */
struct heap {
    void *p;
    size_t n, cap;
};
struct recall_builder {
    struct recall_build_opts o;
    struct recall_vectors v; /* dims 0: there are none; path is not used */
    char path[RECALL_PATH_BYTES];
    uint64_t stride, n;
    struct heap vector, text_end, text, length, use, known, words; /* words: bytes of those that are known */
    uint32_t *slot;           /* [n_slots] a power of two, less than half of them taken: a word's number, or NO_WORD */
    uint64_t n_slots;         /* 0: there is none yet */
    const struct recall *old; /* whose mean is used, and whose vectors; NULL: none */
    uint32_t *taken;          /* [n] with old: the text of old that has the vector, NO_LINK: none */
    struct heap origin, file_time, file_end, file, heading_end, heading, members_end, members;
};

static enum err_code grow_heap(struct heap *h, size_t more, struct err *e)
{
    if (h->cap - h->n < more) {
        const size_t cap = h->cap + h->cap / 2 + more + 4096;
        void *p = realloc(h->p, cap);

        if (p == NULL)
            return err_set(e, ERR_NOMEM, "out of memory: %zu bytes", cap);
        h->p = p;
        h->cap = cap;
    }
    return ERR_OK;
}

static enum err_code push_bytes(struct heap *h, const void *p, size_t n, struct err *e)
{
    if (grow_heap(h, n, e))
        return e->code;
    if (n > 0)
        memcpy((char *)h->p + h->n, p, n);
    h->n += n;
    return ERR_OK;
}

enum err_code recall_build_open(struct recall_builder **out, const struct recall_build_opts *o, struct err *e)
{
    struct recall_builder *b = calloc(1, sizeof *b);

    if (b == NULL)
        return err_nomem(e);
    b->o = *o;
    *out = b;
    return ERR_OK;
}

enum err_code recall_build_vectors(struct recall_builder *b, const struct recall_vectors *v, struct err *e)
{
    const uint64_t stride = recall_stride((uint64_t)v->dims);
    void *p;

    if (v->dims < 1 || v->dims > RECALL_DIMS_MAX || v->layer < 0)
        return err_set(e, ERR_ARG, "vectors of %d numbers, of layer %d", v->dims, v->layer);
    p = calloc((size_t)b->n + 1, (size_t)stride * sizeof(float));
    if (p == NULL)
        return err_set(e, ERR_NOMEM, "out of memory: %llu vectors of %d numbers", (unsigned long long)b->n, v->dims);
    free(b->vector.p);
    b->vector.p = p;
    b->vector.n = (size_t)(b->n * stride) * sizeof(float);
    b->stride = stride;
    b->v = *v;
    b->path[0] = '\0';
    if (v->path != NULL && strlen(v->path) < sizeof b->path)
        memcpy(b->path, v->path, strlen(v->path) + 1);
    return ERR_OK;
}

void recall_build_abort(struct recall_builder *b)
{
    if (b == NULL)
        return;
    free(b->vector.p);
    free(b->text_end.p);
    free(b->text.p);
    free(b->length.p);
    free(b->use.p);
    free(b->known.p);
    free(b->slot);
    free(b->words.p);
    free(b->taken);
    free(b->origin.p);
    free(b->file_time.p);
    free(b->file_end.p);
    free(b->file.p);
    free(b->heading_end.p);
    free(b->heading.p);
    free(b->members_end.p);
    free(b->members.p);
    free(b);
}

/* Where the word is, or where it would be. */
static uint32_t *find_slot(const struct recall_builder *b, const char *word, size_t n, uint32_t hash)
{
    for (uint64_t i = hash;; i++) {
        uint32_t *slot = &b->slot[i & (b->n_slots - 1)];

        if (*slot == NO_WORD)
            return slot;
        const struct known *k = (struct known *)b->known.p + *slot;

        if (k->hash == hash && k->n == n && memcmp((char *)b->words.p + k->at, word, n) == 0)
            return slot;
    }
}

static enum err_code grow_slots(struct recall_builder *b, struct err *e)
{
    const uint64_t n = b->n_slots > 0 ? 2 * b->n_slots : SLOTS, n_known = b->known.n / sizeof(struct known);
    uint32_t *slot = malloc((size_t)n * sizeof *slot);

    if (slot == NULL)
        return err_set(e, ERR_NOMEM, "out of memory: %llu words", (unsigned long long)n_known);
    memset(slot, 0xFF, (size_t)n * sizeof *slot);
    for (uint64_t i = 0; i < n_known; i++) {
        uint64_t at = ((struct known *)b->known.p)[i].hash & (n - 1);

        while (slot[at] != NO_WORD)
            at = (at + 1) & (n - 1);
        slot[at] = (uint32_t)i;
    }
    free(b->slot);
    b->slot = slot;
    b->n_slots = n;
    return ERR_OK;
}

static enum err_code add_use(void *ctx, const char *word, size_t n, struct err *e)
{
    struct recall_builder *b = ctx;
    /* Nobody can choose words that have the same place. */
    const uint32_t hash = (uint32_t)io_hash((uintptr_t)b, word, n);
    const uint64_t n_known = b->known.n / sizeof(struct known);
    const uint64_t last = b->use.n / sizeof(struct use);

    if (2 * (n_known + 1) > b->n_slots && grow_slots(b, e))
        return e->code;
    uint32_t *slot = find_slot(b, word, n, hash);

    if (*slot == NO_WORD) {
        const struct known fresh = { b->words.n, 0, hash, 0, 0, (uint8_t)n };

        if (n_known == NO_WORD)
            return err_set(e, ERR_LIMIT, "more than %u words", NO_WORD);
        if (push_bytes(&b->words, word, n, e) || push_bytes(&b->known, &fresh, sizeof fresh, e))
            return e->code;
        *slot = (uint32_t)n_known;
    }
    struct known *k = (struct known *)b->known.p + *slot;

    if (k->n_texts > 0 && k->last_text == b->n) {
        ((struct use *)b->use.p)[k->last].in.count++;
        return ERR_OK;
    }
    k->last = last;
    k->last_text = (uint32_t)b->n;
    k->n_texts++;
    return push_bytes(&b->use, &(struct use){ *slot, { (uint32_t)b->n, 1 } }, sizeof(struct use), e);
}

/* The texts of a file come one after the other. */
static enum err_code add_file(struct recall_builder *b, const struct recall_origin *o, uint32_t *file, struct err *e)
{
    const uint64_t n = b->file_end.n / sizeof(uint64_t), *ends = b->file_end.p;
    const uint64_t from = n > 1 ? ends[n - 2] : 0, end = b->file.n + o->file.n;

    if (n > 0 && str_eq((struct str){ (char *)b->file.p + from, (size_t)(b->file.n - from) }, o->file) &&
        ((int64_t *)b->file_time.p)[n - 1] == o->time_ns) {
        *file = (uint32_t)(n - 1);
        return ERR_OK;
    }
    *file = (uint32_t)n;
    return push_bytes(&b->file, o->file.p, o->file.n, e) || push_bytes(&b->file_end, &end, sizeof end, e)
               ? e->code
               : push_bytes(&b->file_time, &o->time_ns, sizeof o->time_ns, e);
}

static enum err_code add_origin(struct recall_builder *b, const struct recall_origin *o, uint64_t hash, struct err *e)
{
    struct origin at = { (uint64_t)o->line, hash, NO_FILE, 0 };
    const uint64_t heading_end = b->heading.n + o->heading.n, members_end = b->members.n + o->members.n;

    if (o->file.n > 0 && add_file(b, o, &at.file, e))
        return e->code;
    return push_bytes(&b->origin, &at, sizeof at, e) || push_bytes(&b->heading, o->heading.p, o->heading.n, e) ||
                   push_bytes(&b->heading_end, &heading_end, sizeof heading_end, e) ||
                   push_bytes(&b->members, o->members.p, o->members.n, e)
               ? e->code
               : push_bytes(&b->members_end, &members_end, sizeof members_end, e);
}

enum err_code recall_build_add(struct recall_builder *b, struct str text, const struct recall_origin *origin,
                               struct err *e)
{
    const struct recall_origin none = { 0 }, *o = origin != NULL ? origin : &none;
    const uint64_t end = b->text.n + text.n, hash = io_hash(io_hash(0, o->heading.p, o->heading.n), text.p, text.n);
    uint32_t length = 0;

    if (text.n > RECALL_TEXT_BYTES_MAX || b->n == RECALL_TEXTS_MAX)
        return err_set(e, ERR_LIMIT, "text %llu: more than %d bytes, or more than %d texts", (unsigned long long)b->n,
                       RECALL_TEXT_BYTES_MAX, RECALL_TEXTS_MAX);
    if (recall_each_word(o->heading, add_use, b, &length, e) || recall_each_word(text, add_use, b, &length, e) ||
        add_origin(b, o, hash, e))
        return e->code;
    if (push_bytes(&b->text, text.p, text.n, e) || push_bytes(&b->text_end, &end, sizeof end, e) ||
        push_bytes(&b->length, &length, sizeof length, e))
        return e->code;
    b->n++;
    return ERR_OK;
}

int64_t recall_build_count(const struct recall_builder *b)
{
    return (int64_t)b->n;
}

static struct str part_of(const struct heap *h, const struct heap *ends, int64_t i)
{
    const uint64_t *end = ends->p, from = i > 0 ? end[i - 1] : 0;

    return (struct str){ (char *)h->p + from, (size_t)(end[i] - from) };
}

struct str recall_build_text(const struct recall_builder *b, int64_t i, struct str *heading)
{
    *heading = part_of(&b->heading, &b->heading_end, i);
    return part_of(&b->text, &b->text_end, i);
}

struct named_hash {
    uint64_t hash;
    uint32_t text;
};

static int by_hash(const void *a, const void *b)
{
    const struct named_hash *x = a, *y = b;

    return x->hash != y->hash ? (x->hash < y->hash ? -1 : 1) : (x->text > y->text) - (x->text < y->text);
}

/* The text of old that is text i; NO_LINK: none is. used: those that were found; NULL: one may be found twice. */
static uint32_t find_same(const struct recall_builder *b, int64_t i, const struct recall *old,
                          const struct named_hash *v, size_t n, bool *used)
{
    const uint64_t hash = ((const struct origin *)b->origin.p)[i].hash;
    struct str heading, text = recall_build_text(b, i, &heading);
    size_t lo = 0, hi = n;

    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;

        if (v[mid].hash < hash)
            lo = mid + 1;
        else
            hi = mid;
    }
    for (; lo < n && v[lo].hash == hash; lo++)
        if ((used == NULL || !used[v[lo].text]) && str_eq(text, recall_text(old, v[lo].text)) &&
            str_eq(heading, recall_origin_of(old, v[lo].text).heading)) {
            if (used != NULL)
                used[v[lo].text] = true;
            return v[lo].text;
        }
    return NO_LINK;
}

enum err_code recall_build_reuse(struct recall_builder *b, const struct recall *old, int64_t *n, struct err *e)
{
    const bool outside = old->s.outside_bytes > 0;
    const bool fits = !outside || (b->o.outside != NULL && b->o.how > 0 && old->s.labels >> 32 == b->o.how);
    const size_t n_old = fits && old->origin != NULL ? (size_t)old->s.n_texts : 0;
    struct named_hash *v = malloc((n_old + 1) * sizeof *v);
    uint32_t *taken = malloc(((size_t)b->n + 1) * sizeof *taken);
    bool *used = outside ? calloc(n_old + 1, sizeof *used) : NULL;
    uint64_t same = 0;

    *n = 0;
    if (v == NULL || taken == NULL || (outside && used == NULL)) {
        free(v);
        free(taken);
        free(used);
        return err_nomem(e);
    }
    for (size_t i = 0; i < n_old; i++)
        v[i] = (struct named_hash){ old->origin[i].hash, (uint32_t)i };
    qsort(v, n_old, sizeof *v, by_hash);
    for (uint64_t i = 0; i < b->n; i++) {
        taken[i] = find_same(b, (int64_t)i, old, v, n_old, used);
        same += taken[i] != NO_LINK;
    }
    free(v);
    free(used);
    if (same == 0 || 2 * same < b->n || (outside && recall_n_labels(&old->s) - same > b->n / PART)) {
        free(taken);
        return ERR_OK;
    }
    for (uint64_t i = 0; i < b->n && !outside; i++)
        if (taken[i] != NO_LINK)
            memcpy((float *)b->vector.p + i * b->stride, old->vector + taken[i] * b->stride,
                   (size_t)b->stride * sizeof(float));
    b->old = old;
    b->taken = taken;
    *n = (int64_t)same;
    return ERR_OK;
}

bool recall_build_has_vector(const struct recall_builder *b, int64_t i)
{
    return b->taken != NULL && b->taken[i] != NO_LINK;
}

void recall_build_vector(struct recall_builder *b, int64_t i, const float *v)
{
    memcpy((float *)b->vector.p + (uint64_t)i * b->stride, v, (size_t)b->v.dims * sizeof *v);
}

/* ---- the lists of words ---- */

struct lists {
    struct heap word_end, word, posting_end, posting, by_stem;
};
struct sorted {
    const char *p;
    uint32_t word;
    uint8_t n;
};

static int by_bytes(const void *a, const void *b)
{
    const struct sorted *x = a, *y = b;
    const int cmp = memcmp(x->p, y->p, x->n < y->n ? x->n : y->n);

    return cmp != 0 ? cmp : (x->n > y->n) - (x->n < y->n);
}

/* The words in order. at: [n] where the next text of a word belongs, by its number. */
static enum err_code list_words(const struct recall_builder *b, struct lists *l, uint64_t *at, struct err *e)
{
    const struct known *known = b->known.p;
    const size_t n = b->known.n / sizeof *known;
    struct sorted *v = malloc((n + 1) * sizeof *v);
    enum err_code code = v != NULL ? ERR_OK : err_set(e, ERR_NOMEM, "out of memory: %zu words", n);
    uint64_t posting_end = 0, word_end;

    for (size_t i = 0; code == ERR_OK && i < n; i++)
        v[i] = (struct sorted){ (char *)b->words.p + known[i].at, (uint32_t)i, known[i].n };
    if (code == ERR_OK)
        qsort(v, n, sizeof *v, by_bytes);
    for (size_t i = 0; code == ERR_OK && i < n; i++) {
        at[v[i].word] = posting_end;
        posting_end += known[v[i].word].n_texts;
        word_end = l->word.n + v[i].n;
        if (push_bytes(&l->word, v[i].p, v[i].n, e) || push_bytes(&l->word_end, &word_end, sizeof word_end, e) ||
            push_bytes(&l->posting_end, &posting_end, sizeof posting_end, e))
            code = e->code;
    }
    free(v);
    return code;
}

/* Uses stand in the order of their texts, and so they do under each word. */
static enum err_code make_lists(const struct recall_builder *b, struct lists *l, struct err *e)
{
    const struct use *use = b->use.p;
    const size_t n = b->use.n / sizeof *use;
    uint64_t *at = malloc((b->known.n / sizeof(struct known) + 1) * sizeof *at);
    enum err_code code = at != NULL ? list_words(b, l, at, e) : err_nomem(e);

    if (code == ERR_OK)
        code = grow_heap(&l->posting, n * sizeof(struct posting), e);
    for (size_t i = 0; code == ERR_OK && i < n; i++)
        ((struct posting *)l->posting.p)[at[use[i].word]++] = use[i].in;
    if (code == ERR_OK)
        l->posting.n = n * sizeof(struct posting);
    free(at);
    return code;
}

struct stemmed {
    char stem[WORD_BYTES_MAX];
    uint32_t word;
    uint8_t n;
};

static int by_stem(const void *a, const void *b)
{
    const struct stemmed *x = a, *y = b;
    const int cmp = memcmp(x->stem, y->stem, x->n < y->n ? x->n : y->n);

    if (cmp != 0 || x->n != y->n)
        return cmp != 0 ? cmp : x->n < y->n ? -1 : 1;
    return (x->word > y->word) - (x->word < y->word);
}

static enum err_code sort_by_stem(struct lists *l, struct err *e)
{
    const size_t n = l->word_end.n / sizeof(uint64_t);
    const uint64_t *end = l->word_end.p;
    struct stemmed *v = malloc((n + 1) * sizeof *v);
    enum err_code code = v != NULL ? ERR_OK : err_nomem(e);

    for (size_t i = 0; code == ERR_OK && i < n; i++) {
        const uint64_t from = i > 0 ? end[i - 1] : 0;

        v[i].word = (uint32_t)i;
        v[i].n = (uint8_t)recall_stem_english((char *)l->word.p + from, (size_t)(end[i] - from), v[i].stem);
    }
    if (code == ERR_OK)
        qsort(v, n, sizeof *v, by_stem);
    for (size_t i = 0; code == ERR_OK && i < n; i++)
        code = push_bytes(&l->by_stem, &v[i].word, sizeof v[i].word, e);
    free(v);
    return code;
}

/* ---- the file ---- */

/* The mean of all vectors of a model, or that of the old index, taken away from each that does not come from there. */
static enum err_code center(struct recall_builder *b, float *mean, struct err *e)
{
    const uint64_t dims = (uint64_t)b->v.dims;
    float *v = b->vector.p;
    double *sum;

    if (b->old != NULL) {
        memcpy(mean, b->old->mean, (size_t)b->stride * sizeof *mean);
        for (uint64_t i = 0; i < b->n; i++)
            if (b->taken[i] == NO_LINK)
                recall_direct(v + i * b->stride, mean, dims);
        return ERR_OK;
    }
    sum = calloc((size_t)dims, sizeof *sum);
    if (sum == NULL)
        return err_nomem(e);
    for (uint64_t i = 0; i < b->n; i++)
        for (uint64_t d = 0; d < dims; d++)
            sum[d] += (double)v[i * b->stride + d];
    /* One text has no direction from the mean, and what was made to be compared finds more without it. */
    for (uint64_t d = 0; d < dims && b->n > 1 && b->v.maker == RECALL_MODEL; d++)
        mean[d] = (float)(sum[d] / (double)b->n);
    free(sum);
    for (uint64_t i = 0; i < b->n; i++)
        recall_direct(v + i * b->stride, mean, dims);
    return ERR_OK;
}

static enum err_code write_parts(const char *path, const struct recall_builder *b, const struct sizes *s,
                                 const struct part raw[ARRAYS], struct err *e)
{
    unsigned char head[HEAD_BYTES] = { 0 };
    uint64_t bytes[ARRAYS];
    struct io_out *out;
    enum err_code code;
    uint64_t sum = 0;

    recall_array_bytes(bytes, s);
    if (io_out_open(&out, path, e))
        return e->code;
    io_out_versions(out, b->o.versions);
    code = io_out_write(out, head, sizeof head, e);
    for (int i = 0; code == ERR_OK && i < ARRAYS; i++) {
        char *padded = NULL; /* the sum is of an array and its padding */

        if (bytes[i] > raw[i].bytes && (padded = calloc(1, (size_t)bytes[i])) == NULL) {
            code = err_set(e, ERR_NOMEM, "out of memory: %llu bytes", (unsigned long long)bytes[i]);
            break;
        }
        if (padded != NULL && raw[i].bytes > 0)
            memcpy(padded, raw[i].p, (size_t)raw[i].bytes);
        const void *all = padded != NULL ? padded : raw[i].p;

        sum = io_hash(sum, all, (size_t)bytes[i]);
        if (bytes[i] > 0)
            code = io_out_write(out, all, (size_t)bytes[i], e);
        free(padded);
    }
    recall_put_head(head, s, b->path, sum);
    if (code == ERR_OK)
        code = io_out_patch(out, 0, head, sizeof head, e);
    return io_out_end(out, code, e);
}

/* What is new or gone is a small part of the old graph, or all is made anew. */
static enum err_code make_graph(const struct recall_builder *b, struct graph *g, const struct progress *p,
                                struct err *e)
{
    uint64_t same = 0;

    for (uint64_t i = 0; b->old != NULL && i < b->n; i++)
        same += b->taken[i] != NO_LINK;
    if (b->old == NULL || b->old->upper_at == NULL || b->n - same > b->n / PART ||
        (b->old->s.n_texts > same && b->old->s.n_texts - same > b->n / PART))
        return recall_graph_make(g, p, e);
    const struct graph old = recall_graph_of(b->old);

    return recall_graph_go_on(g, &old, b->taken, p, e);
}

/* Vectors that are not in the old file get the numbers behind its own. */
static enum err_code write_outside(struct recall_builder *b, struct sizes *s, struct err *e)
{
    const size_t dims = (size_t)b->v.dims;
    const struct recall *old = b->old != NULL && b->old->s.outside_bytes > 0 ? b->old : NULL;
    const uint64_t n_old = old != NULL ? recall_n_labels(&old->s) : 0;
    struct recall_outside o = { .v = b->vector.p, .dims = b->v.dims, .adds = old != NULL };
    struct origin *origin = b->origin.p;

    for (size_t i = 0; i < (size_t)b->n; i++) {
        if (old != NULL && b->taken[i] != NO_LINK) {
            origin[i].label = old->origin[b->taken[i]].label;
            continue;
        }
        memmove(o.v + (size_t)o.n * dims, o.v + i * (size_t)b->stride, dims * sizeof *o.v);
        origin[i].label = (uint32_t)(n_old + (uint64_t)o.n++);
    }
    if (old != NULL && o.n == 0) {
        o.bytes = old->s.outside_bytes;
        o.sum = old->s.outside_sum;
    } else if (b->o.outside(b->o.ctx, &o, e))
        return e->code;
    s->outside_bytes = o.bytes;
    s->outside_sum = o.sum;
    s->labels = (uint64_t)b->o.how << 32 | (n_old + (uint64_t)o.n);
    return o.bytes > 0 ? ERR_OK : err_set(e, ERR_IO, "no vectors were written");
}

static enum err_code commit_index(struct recall_builder *b, struct lists *l, struct graph *g, float *mean,
                                  const char *path, const struct progress *p, struct err *e)
{
    const bool graph = b->o.outside == NULL && b->n > 1 && b->v.dims > 0 && (b->o.graph || b->n > RECALL_FLAT_MAX);

    if (make_lists(b, l, e) || sort_by_stem(l, e) || center(b, mean, e))
        return e->code;
    *g = (struct graph){ .dot = recall_dot_best(), .vector = b->vector.p, .n = b->n, .stride = b->stride };
    if (graph && make_graph(b, g, p, e))
        return e->code;
    struct sizes s = { .tokenizer = b->o.tokenizer,
                       .model = b->v.model,
                       .n_texts = b->n,
                       .dims = (uint64_t)b->v.dims,
                       .layer = (uint64_t)b->v.layer,
                       .text_bytes = b->text.n,
                       .n_words = l->word_end.n / 8,
                       .word_bytes = l->word.n,
                       .n_postings = l->posting.n / 8,
                       .n_upper = g->n_upper,
                       .graph = graph,
                       .origins = 1,
                       .n_files = b->file_end.n / 8,
                       .file_bytes = b->file.n,
                       .heading_bytes = b->heading.n,
                       .members_bytes = b->members.n,
                       .maker = (uint64_t)b->v.maker };

    if (b->o.outside != NULL && write_outside(b, &s, e))
        return e->code;
    const struct part raw[ARRAYS] = {
        { mean, 4 * b->stride },
        { b->vector.p, s.outside_bytes > 0 ? 0 : b->vector.n },
        { b->text_end.p, b->text_end.n },
        { b->text.p, b->text.n },
        { b->length.p, b->length.n },
        { l->word_end.p, l->word_end.n },
        { l->word.p, l->word.n },
        { l->posting_end.p, l->posting_end.n },
        { l->posting.p, l->posting.n },
        { g->level, graph ? b->n : 0 },
        { g->link, graph ? 8 * LINKS * b->n : 0 },
        { g->upper, 4 * LINKS * g->n_upper },
        { b->origin.p, b->origin.n },
        { b->file_time.p, b->file_time.n },
        { b->file_end.p, b->file_end.n },
        { b->file.p, b->file.n },
        { b->heading_end.p, b->heading_end.n },
        { b->heading.p, b->heading.n },
        { b->members_end.p, b->members_end.n },
        { b->members.p, b->members.n },
        { l->by_stem.p, l->by_stem.n },
    };

    return write_parts(path, b, &s, raw, e);
}

enum err_code recall_build_commit(struct recall_builder *b, const char *path, const struct progress *p, struct err *e)
{
    struct lists l = { 0 };
    struct graph g = { 0 };
    float *mean = calloc((size_t)b->stride, sizeof *mean);
    enum err_code code;

    code = mean != NULL ? commit_index(b, &l, &g, mean, path, p, e) : err_nomem(e);
    free(mean);
    free(l.word_end.p);
    free(l.word.p);
    free(l.posting_end.p);
    free(l.posting.p);
    free(l.by_stem.p);
    recall_graph_free(&g);
    recall_build_abort(b);
    return code;
}
