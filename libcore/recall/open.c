/* SPDX-License-Identifier: Apache-2.0 */
/* open.c - opens an index: maps it, checks its sum, bounds and order.         room: recall */
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "recall/internal.h"

enum {
    WORD_FORMAT = 1,
    WORD_SIZES = 2, /* up to the sum */
    WORD_SUM = 13,
    OLD_SIZES = WORD_SUM - WORD_SIZES,
    PLAIN_SIZES = 5, /* behind the sum, in FORMAT_PLAIN */
    ELSEWHERE_SIZES = 8,
    WORD_PATH = 22,
    WORD_LABELS = WORD_PATH + RECALL_PATH_BYTES / 8,
    WORD_HASH = HEAD_BYTES / 8 - 1
};

uint64_t recall_n_labels(const struct sizes *s)
{
    return s->labels & UINT32_MAX;
}

uint64_t recall_stride(uint64_t dims)
{
    return (dims + LANES - 1) / LANES * LANES;
}

void recall_array_bytes(uint64_t bytes[ARRAYS], const struct sizes *s)
{
    const uint64_t row = 4 * recall_stride(s->dims), graph = s->graph, n_origins = s->origins * s->n_texts;
    const uint64_t raw[ARRAYS] = { row,
                                   s->outside_bytes > 0 ? 0 : s->n_texts * row,
                                   8 * s->n_texts,
                                   s->text_bytes,
                                   4 * s->n_texts,
                                   8 * s->n_words,
                                   s->word_bytes,
                                   8 * s->n_words,
                                   8 * s->n_postings,
                                   graph * s->n_texts,
                                   graph * 8 * LINKS * s->n_texts,
                                   graph * 4 * LINKS * s->n_upper,
                                   sizeof(struct origin) * n_origins,
                                   8 * s->n_files,
                                   8 * s->n_files,
                                   s->file_bytes,
                                   8 * n_origins,
                                   s->heading_bytes,
                                   8 * n_origins,
                                   s->members_bytes,
                                   s->origins * 4 * s->n_words };

    for (int i = 0; i < ARRAYS; i++)
        bytes[i] = (raw[i] + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

void recall_put_head(unsigned char head[HEAD_BYTES], const struct sizes *s, const char *path, uint64_t sum)
{
    const uint64_t format = s->labels > 0                                       ? FORMAT
                            : s->maker == RECALL_MODEL && s->outside_bytes == 0 ? FORMAT_PLAIN
                                                                                : FORMAT_UNNUMBERED;
    uint64_t hash;

    memset(head, 0, HEAD_BYTES);
    memcpy(head, RECALL_MAGIC, 8);
    memcpy(head + 8, &format, 8);
    memcpy(head + 8 * WORD_SIZES, s, 8 * OLD_SIZES);
    memcpy(head + 8 * (WORD_SUM + 1), &s->origins, 8 * ELSEWHERE_SIZES);
    memcpy(head + 8 * WORD_LABELS, &s->labels, 8);
    memcpy(head + 8 * WORD_SUM, &sum, 8);
    memcpy(head + 8 * WORD_PATH, path, strlen(path));
    hash = io_hash(0, head, HEAD_BYTES - 8);
    memcpy(head + 8 * WORD_HASH, &hash, 8);
}

uint64_t recall_sum(const struct part part[ARRAYS], bool origins)
{
    uint64_t sum = 0;

    for (int i = 0; i < (origins ? ARRAYS : ARRAY_ORIGIN); i++)
        sum = io_hash(sum, part[i].p, (size_t)part[i].bytes);
    return sum;
}

/* ---- what the arrays say ---- */

static enum err_code check_ends(const uint64_t *end, uint64_t n, uint64_t all, uint64_t most, const char *what,
                                struct err *e)
{
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t from = i > 0 ? end[i - 1] : 0;

        if (end[i] < from || end[i] > all || end[i] - from > most)
            return err_set(e, ERR_FORMAT, "%s %" PRIu64 ": out of bounds", what, i);
    }
    return (n > 0 ? end[n - 1] : 0) == all ? ERR_OK : err_set(e, ERR_FORMAT, "%ss do not fill their array", what);
}

static enum err_code check_words(const struct recall *r, struct err *e)
{
    uint64_t length = 0;

    for (uint64_t w = 0; w < r->s.n_words; w++) {
        const uint64_t from = w > 0 ? r->posting_end[w - 1] : 0, at = w > 0 ? r->word_end[w - 1] : 0;

        if (w > 0) {
            const uint64_t before = w > 1 ? r->word_end[w - 2] : 0, n = at - before, m = r->word_end[w] - at;
            const int cmp = memcmp(r->word + before, r->word + at, (size_t)(n < m ? n : m));

            if (cmp > 0 || (cmp == 0 && n >= m))
                return err_set(e, ERR_FORMAT, "word %" PRIu64 ": out of order", w);
        }
        for (uint64_t i = from; i < r->posting_end[w]; i++)
            if (r->posting[i].text >= r->s.n_texts || r->posting[i].count == 0 ||
                (i > from && r->posting[i].text <= r->posting[i - 1].text))
                return err_set(e, ERR_FORMAT, "word %" PRIu64 ": its texts are out of order", w);
    }
    for (uint64_t i = 0; i < r->s.n_texts; i++)
        length += r->length[i];
    return length < UINT64_C(1) << 40 ? ERR_OK : err_set(e, ERR_FORMAT, "texts are longer than they can be");
}

static enum err_code check_vectors(const struct recall *r, struct err *e)
{
    const uint64_t n = (r->s.outside_bytes > 0 ? 1 : r->s.n_texts + 1) * r->stride;

    for (uint64_t i = 0; i < n; i++) {
        const float x = i < r->stride ? r->mean[i] : r->vector[i - r->stride];

        if (!(fabsf(x) <= (i < r->stride ? 3e38F : 1.001F)))
            return err_set(e, ERR_FORMAT, "a vector has a number out of range");
    }
    return ERR_OK;
}

static enum err_code check_links(const struct recall *r, const uint32_t *link, int n, uint64_t text, uint64_t level,
                                 struct err *e)
{
    for (int k = 0; k < n; k++)
        if (link[k] != NO_LINK && (link[k] >= r->s.n_texts || r->level[link[k]] < level))
            return err_set(e, ERR_FORMAT, "text %" PRIu64 ": a link that leads nowhere", text);
    return ERR_OK;
}

/* Where links of the upper levels begin, and where a search begins. */
static enum err_code open_graph(struct recall *r, struct err *e)
{
    uint64_t n_upper = 0;

    if (r->s.graph == 0 || r->s.n_texts == 0)
        return ERR_OK;
    r->upper_at = malloc((size_t)r->s.n_texts * sizeof *r->upper_at);
    if (r->upper_at == NULL)
        return err_nomem(e);
    for (uint64_t i = 0; i < r->s.n_texts; i++) {
        if (r->level[i] >= LEVELS_MAX)
            return err_set(e, ERR_FORMAT, "text %" PRIu64 ": level %d", i, r->level[i]);
        r->upper_at[i] = n_upper;
        n_upper += r->level[i];
        r->entry = r->level[i] > r->level[r->entry] ? i : r->entry;
    }
    if (n_upper != r->s.n_upper)
        return err_set(e, ERR_FORMAT, "links that belong to no text");
    for (uint64_t i = 0; i < r->s.n_texts; i++) {
        if (check_links(r, r->link + i * 2 * LINKS, 2 * LINKS, i, 0, e))
            return e->code;
        for (uint64_t l = 1; l <= r->level[i]; l++)
            if (check_links(r, r->upper + (r->upper_at[i] + l - 1) * LINKS, LINKS, i, l, e))
                return e->code;
    }
    return ERR_OK;
}

static enum err_code check_origins(const struct recall *r, struct err *e)
{
    const struct sizes *s = &r->s;

    if (s->origins == 0)
        return ERR_OK;
    if (check_ends(r->file_end, s->n_files, s->file_bytes, s->file_bytes, "name of a file", e) ||
        check_ends(r->heading_end, s->n_texts, s->heading_bytes, s->heading_bytes, "heading", e) ||
        check_ends(r->members_end, s->n_texts, s->members_bytes, s->members_bytes, "object", e))
        return e->code;
    for (uint64_t i = 0; i < s->n_texts; i++)
        if ((r->origin[i].file >= s->n_files && r->origin[i].file != NO_FILE) || r->origin[i].line > INT64_MAX)
            return err_set(e, ERR_FORMAT, "text %" PRIu64 ": of no file", i);
    for (uint64_t i = 0; s->labels > 0 && i < s->n_texts; i++)
        if (r->origin[i].label >= recall_n_labels(s))
            return err_set(e, ERR_FORMAT, "text %" PRIu64 ": a vector that is not there", i);
    for (uint64_t i = 0; i < s->n_words; i++)
        if (r->by_stem[i] >= s->n_words)
            return err_set(e, ERR_FORMAT, "stem %" PRIu64 ": of no word", i);
    return ERR_OK;
}

/* ---- the file ---- */

static enum err_code place_arrays(struct recall *r, struct part part[ARRAYS], struct err *e)
{
    const struct sizes *s = &r->s;
    const uint64_t left = r->map.size - HEAD_BYTES, most = left / 4;
    uint64_t bytes[ARRAYS], at = HEAD_BYTES;

    /* None of the products below is near 2^64. */
    if (s->n_texts > RECALL_TEXTS_MAX || s->dims > RECALL_DIMS_MAX || s->text_bytes > left || s->n_words > most ||
        s->word_bytes > left || s->n_postings > most || s->n_upper > most || s->graph > 1 || s->layer > INT32_MAX ||
        s->origins > 1 || s->n_files > most || s->file_bytes > left || s->heading_bytes > left ||
        s->members_bytes > left || s->maker > RECALL_EMBEDDER || (s->outside_bytes > 0 && s->graph != 0) ||
        (s->labels > 0 && (s->outside_bytes == 0 || s->origins == 0 || recall_n_labels(s) < s->n_texts ||
                           recall_n_labels(s) > 2 * (uint64_t)RECALL_TEXTS_MAX)))
        return err_set(e, ERR_FORMAT, "is larger than the file, or than an index can be");
    recall_array_bytes(bytes, s);
    for (int i = 0; i < ARRAYS; i++) {
        part[i] = (struct part){ r->map.data + at, bytes[i] };
        at += bytes[i];
    }
    return at == r->map.size ? ERR_OK : err_set(e, ERR_FORMAT, "its parts do not add up to its size: cut?");
}

static enum err_code open_arrays(struct recall *r, const struct part part[ARRAYS], struct err *e)
{
    r->stride = recall_stride(r->s.dims);
    r->mean = part[ARRAY_MEAN].p;
    r->vector = part[ARRAY_VECTOR].p;
    r->text_end = part[ARRAY_TEXT_END].p;
    r->text = part[ARRAY_TEXT].p;
    r->length = part[ARRAY_LENGTH].p;
    r->word_end = part[ARRAY_WORD_END].p;
    r->word = part[ARRAY_WORD].p;
    r->posting_end = part[ARRAY_POSTING_END].p;
    r->posting = part[ARRAY_POSTING].p;
    r->level = part[ARRAY_LEVEL].p;
    r->link = part[ARRAY_LINK].p;
    r->upper = part[ARRAY_UPPER].p;
    r->origin = r->s.origins ? part[ARRAY_ORIGIN].p : NULL;
    r->file_time = part[ARRAY_FILE_TIME].p;
    r->file_end = part[ARRAY_FILE_END].p;
    r->file = part[ARRAY_FILE].p;
    r->heading_end = part[ARRAY_HEADING_END].p;
    r->heading = part[ARRAY_HEADING].p;
    r->members_end = part[ARRAY_MEMBERS_END].p;
    r->members = part[ARRAY_MEMBERS].p;
    r->by_stem = r->s.origins ? part[ARRAY_BY_STEM].p : NULL;
    if (check_ends(r->text_end, r->s.n_texts, r->s.text_bytes, RECALL_TEXT_BYTES_MAX, "text", e) ||
        check_ends(r->word_end, r->s.n_words, r->s.word_bytes, WORD_BYTES_MAX, "word", e) ||
        check_ends(r->posting_end, r->s.n_words, r->s.n_postings, RECALL_TEXTS_MAX, "list", e) || check_words(r, e) ||
        check_vectors(r, e) || check_origins(r, e))
        return e->code;
    for (uint64_t i = 0; i < r->s.n_texts; i++)
        r->length_mean += (double)r->length[i] / (double)r->s.n_texts;
    r->length_mean = r->length_mean > 1 ? r->length_mean : 1;
    return open_graph(r, e);
}

static enum err_code open_map(struct recall *r, struct err *e)
{
    struct part part[ARRAYS];
    uint64_t word[HEAD_BYTES / 8];

    if (r->map.size < HEAD_BYTES || memcmp(r->map.data, RECALL_MAGIC, 8) != 0)
        return err_set(e, ERR_FORMAT, "not an index of texts");
    memcpy(word, r->map.data, sizeof word);
    if (word[WORD_FORMAT] < FORMAT_OLD || word[WORD_FORMAT] > FORMAT)
        return err_set(e, ERR_UNSUPPORTED, "version %" PRIu64 " of the format; this program knows %d to %d",
                       word[WORD_FORMAT], FORMAT_OLD, FORMAT);
    if (word[WORD_HASH] != io_hash(0, r->map.data, HEAD_BYTES - 8))
        return err_set(e, ERR_FORMAT, "wrong checksum of the head");
    memcpy(&r->s, word + WORD_SIZES, 8 * OLD_SIZES);
    if (word[WORD_FORMAT] != FORMAT_OLD)
        memcpy(&r->s.origins, word + WORD_SUM + 1,
               8 * (word[WORD_FORMAT] > FORMAT_PLAIN ? ELSEWHERE_SIZES : PLAIN_SIZES));
    r->s.labels = word[WORD_FORMAT] == FORMAT ? word[WORD_LABELS] : 0;
    if (word[WORD_FORMAT] > FORMAT_PLAIN)
        memcpy(r->path, word + WORD_PATH, sizeof r->path - 1);
    if (place_arrays(r, part, e))
        return e->code;
    if (word[WORD_SUM] != recall_sum(part, r->s.origins != 0))
        return err_set(e, ERR_FORMAT, "wrong checksum");
    return open_arrays(r, part, e);
}

enum err_code recall_open(struct recall **out, const char *path, struct err *e)
{
    struct recall *r = calloc(1, sizeof *r);
    enum err_code code;

    if (r == NULL)
        return err_nomem(e);
    r->dot = recall_dot_best();
    code = io_map_open(&r->map, path, e);
    if (code == ERR_OK && open_map(r, e))
        code = err_wrap(e, "%s", path);
    if (code == ERR_OK)
        *out = r;
    else
        recall_close(r);
    return code;
}

void recall_close(struct recall *r)
{
    if (r == NULL)
        return;
    io_map_close(&r->map);
    free(r->upper_at);
    free(r);
}

struct recall_info recall_info(const struct recall *r)
{
    return (struct recall_info){ r->s.tokenizer,
                                 r->s.model,
                                 (int64_t)r->s.n_texts,
                                 (int)r->s.dims,
                                 (int)r->s.layer,
                                 (int64_t)r->s.n_words,
                                 (int64_t)r->map.size,
                                 r->upper_at != NULL,
                                 (enum recall_maker)r->s.maker,
                                 r->path,
                                 r->s.outside_bytes,
                                 r->s.outside_sum,
                                 (int64_t)(r->s.labels > 0 ? recall_n_labels(&r->s) : r->s.n_texts) };
}

int64_t recall_label(const struct recall *r, int64_t i)
{
    return r->s.labels > 0 ? r->origin[i].label : i;
}

bool recall_same_vectors(const struct recall *r, const struct recall_vectors *v)
{
    return r->s.dims > 0 && r->s.maker == v->maker && r->s.model == v->model && r->s.layer == (uint64_t)v->layer &&
           (v->dims == 0 || r->s.dims == (uint64_t)v->dims);
}

/* Part i of bytes that are cut at `end`. */
static struct str part_of(const char *p, const uint64_t *end, uint64_t i)
{
    const uint64_t from = i > 0 ? end[i - 1] : 0;

    return (struct str){ p + from, (size_t)(end[i] - from) };
}

struct str recall_text(const struct recall *r, int64_t i)
{
    return part_of(r->text, r->text_end, (uint64_t)i);
}

struct recall_origin recall_origin_of(const struct recall *r, int64_t i)
{
    struct recall_origin o = { 0 };

    if (r->origin == NULL)
        return o;
    const struct origin *at = &r->origin[i];

    o.hash = at->hash;
    if (at->file != NO_FILE) {
        o.file = part_of(r->file, r->file_end, at->file);
        o.time_ns = r->file_time[at->file];
        o.line = (int64_t)at->line;
    }
    o.heading = part_of(r->heading, r->heading_end, (uint64_t)i);
    o.members = part_of(r->members, r->members_end, (uint64_t)i);
    return o;
}
