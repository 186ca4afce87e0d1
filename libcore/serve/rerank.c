/* SPDX-License-Identifier: Apache-2.0 */
/* rerank.c - texts of a request in the order in which they have the words of a query.        room: serve
 *
 * The score is that of search by words in an index (recall/recall.h), which of all that was measured found most
 * (bench/engram.md). The model does not run. */
#include <stdlib.h>

#include "recall/recall.h"
#include "serve/internal.h"

enum { TEXTS_MAX = 1000 };

struct ranked {
    int index;
    float score;
};

static int by_score(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;

    if (x->score != y->score)
        return x->score < y->score ? 1 : -1;
    return (x->index > y->index) - (x->index < y->index);
}

/* A text, or an object with one. */
static const json_t *text_of(const json_t *document)
{
    return json_is_object(document) ? json_object_get(document, "text") : document;
}

static bool read_documents(const json_t *documents, struct str *texts, struct serve_fault *f)
{
    char pointer[40];
    size_t i;
    json_t *document;

    json_array_foreach (documents, i, document) {
        const json_t *text = text_of(document);

        if (!json_is_string(text)) {
            (void)snprintf(pointer, sizeof pointer, "/documents/%zu", i);
            return serve_fault(f, 400, pointer, "%s: neither a text nor an object with a text", pointer + 1);
        }
        texts[i] = json_text(text);
    }
    return true;
}

/* relevance_score: from 0, without a word of the query, towards 1, the most that a text can have. */
static json_t *list_results(const struct ranked *v, int n, double most, const json_t *documents, bool whole)
{
    json_t *list = json_array();

    for (int i = 0; i < n; i++) {
        const json_t *text = text_of(json_array_get(documents, (size_t)v[i].index));
        json_t *one =
            json_pack("{s:i, s:f}", "index", v[i].index, "relevance_score", most > 0 ? (double)v[i].score / most : 0.0);

        if (whole)
            one = json_if(json_object_set_new(one, "document", json_pack("{s:O}", "text", text)) == 0, one);
        json_push(&list, one);
    }
    return list;
}

static json_t *rank_texts(struct serve *s, const json_t *body, int n, int n_top, struct str *texts, struct ranked *v,
                          float *score, struct serve_fault *f)
{
    const json_t *query = json_object_get(body, "query"), *documents = json_object_get(body, "documents");
    double most;
    struct err e = { 0 };

    if (!read_documents(documents, texts, f))
        return NULL;
    if (recall_rank(s->o.text, json_text(query), texts, n, score, &most, &e)) {
        serve_fault(f, e.code == ERR_NOMEM ? 503 : 400, "", "%s", e.msg);
        return NULL;
    }
    for (int i = 0; i < n; i++)
        v[i] = (struct ranked){ i, score[i] };
    qsort(v, (size_t)n, sizeof *v, by_score);
    return json_pack("{s:s, s:O, s:o, s:{s:i, s:i}}", "object", "list", "model", s->model, "results",
                     list_results(v, n_top, most, documents, json_is_true(json_object_get(body, "return_documents"))),
                     "usage", "prompt_tokens", 0, "total_tokens", 0);
}

json_t *serve_rerank(struct serve *s, const json_t *body, const struct serve_client *who, struct serve_fault *f)
{
    const size_t n = json_array_size(json_object_get(body, "documents"));
    const json_t *top = json_object_get(body, "top_n");
    int64_t n_top = (int64_t)n;
    struct str *texts;
    struct ranked *v;
    float *score;
    json_t *reply = NULL;

    (void)who;
    if (n == 0 || n > TEXTS_MAX)
        serve_fault(f, 400, "/documents", "documents: not 1 to %d texts", TEXTS_MAX);
    else if (top != NULL && !json_is_null(top) && (!serve_whole_number(top, &n_top) || n_top < 1))
        serve_fault(f, 400, "/top_n", "top_n: not a whole number of 1 or more");
    if (f->status != 0)
        return NULL;
    texts = calloc(n, sizeof *texts);
    v = calloc(n, sizeof *v);
    score = calloc(n, sizeof *score);
    if (texts != NULL && v != NULL && score != NULL)
        reply = rank_texts(s, body, (int)n, (int)(n_top < (int64_t)n ? n_top : (int64_t)n), texts, v, score, f);
    free(texts);
    free(v);
    free(score);
    return reply;
}
