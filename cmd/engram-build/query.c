/* SPDX-License-Identifier: Apache-2.0 */
/* query.c - the nearest texts of an index: JSON lines, or a line for people.      room: cmd */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/pool.h"
#include "cli/lines.h"
#include "cli/recall.h"
#include "engram-build/embed.h"
#include "engram-build/faiss.h"
#include "engram-build/relevance.h"

enum {
    CTX_RERANK = 4096,
    SNIPPET_BYTES = 200,
    LINE_BYTES = 1 << 20,
    DEPTH = 64,  /* texts of each list that are fused; of more a graph is not asked */
    JUDGED = 20, /* texts that --rerank asks the model about */
};

struct query {
    const struct build_options *o;
    struct recall *r;
    struct cli_embedder m;
    struct cli_relevance judge; /* --rerank */
    struct pool *pool;
    struct cli_faiss *faiss; /* NULL: the vectors are in the index */
    bool words, vectors;     /* what is compared */
    size_t columns;          /* of the terminal; 0: JSON lines */
    int number;
    double ms; /* of the searches, without the model */
};

static enum err_code search_near(struct query *q, int k, struct recall_hit *hits, int *n, struct err *e)
{
    return q->faiss != NULL ? cli_faiss_near(q->faiss, q->m.v, k, hits, n, e)
                            : recall_near(q->r, q->m.v, k, q->o->flat, q->pool, hits, n, e);
}

static enum err_code search(struct query *q, struct str text, int k, struct recall_hit *hits, int *n, struct err *e)
{
    struct recall_hit a[DEPTH], b[DEPTH];
    int n_a = 0, n_b = 0;
    bool took = false;
    double from;
    enum err_code code = ERR_OK;

    if (q->vectors) {
        q->m.n = 0;
        if (cli_embed_add(&q->m, text, &took, e) || cli_embed_run(&q->m, e))
            return e->code;
    }
    from = clock_ms();
    if (!q->vectors)
        code = recall_words(q->r, q->m.x.text, text, q->o->exact, k, hits, n, e);
    else if (!q->words)
        code = took ? search_near(q, k, hits, n, e) : ERR_OK;
    else {
        code = recall_words(q->r, q->m.x.text, text, q->o->exact, DEPTH, a, &n_a, e) ||
                       (took && search_near(q, DEPTH, b, &n_b, e))
                   ? e->code
                   : recall_fuse(q->r, q->m.v, a, n_a, b, n_b, k, hits, n, e);
    }
    q->ms += clock_ms() - from;
    return code;
}

static int by_score(const void *a, const void *b)
{
    const struct recall_hit *x = a, *y = b;

    if (x->score != y->score)
        return x->score < y->score ? 1 : -1;
    return (x->text > y->text) - (x->text < y->text);
}

static json_t *json_time(int64_t ns)
{
    const time_t s = (time_t)(ns / 1000000000);
    struct tm tm;
    char buf[40];

    return gmtime_r(&s, &tm) != NULL && strftime(buf, sizeof buf, "%Y-%m-%dT%H:%M:%SZ", &tm) > 0 ? json_string(buf)
                                                                                                 : json_null();
}

enum err_code cli_engram_origin(json_t *o, const struct recall *r, int64_t text, struct err *e)
{
    const struct recall_origin from = recall_origin_of(r, text);
    json_t *members;

    if (!cli_origin_json(o, r, text) || (from.time_ns != 0 && !cli_json_set(o, "time", json_time(from.time_ns))))
        return err_nomem(e);
    if (from.members.n == 0)
        return ERR_OK;
    if (json_parse_own(&members, from.members, "the members of a text", e))
        return e->code;
    return cli_json_set(o, "members", members) ? ERR_OK : err_nomem(e);
}

static enum err_code print_json(const struct query *q, struct str question, const struct recall_hit *hit, int rank,
                                struct err *e)
{
    const struct str whole = recall_text(q->r, hit->text);
    json_t *o = json_pack("{s:s, s:i, s:i, s:I, s:o}", "type", "hit", "query", q->number, "rank", rank, "id",
                          (json_int_t)hit->text, "score", cli_json_real((double)hit->score));

    if (hit->share > 0)
        cli_json_set(o, "share", cli_json_real((double)hit->share));
    if (cli_engram_origin(o, q->r, hit->text, e)) {
        json_decref(o);
        return e->code;
    }
    if (q->o->snippet)
        cli_json_set(o, "snippet", json_bytes(recall_snippet(whole, question, SNIPPET_BYTES)));
    else
        cli_json_set(o, "text", json_bytes(whole));
    return cli_json_line(o, e);
}

/* "notes/a.md:12: the first line of the text", or the snippet, on one line of the terminal if that has room. */
static void print_hit(const struct query *q, struct str question, const struct recall_hit *hit)
{
    enum { LEAST = 40, MOST = 1000 };
    const struct recall_origin from = recall_origin_of(q->r, hit->text);
    struct str s = recall_text(q->r, hit->text);
    char place[4200], line[MOST], words[MOST];
    const char *end;
    size_t n, room;

    if (q->o->snippet)
        s = recall_snippet(s, question, SNIPPET_BYTES);
    while (s.n > 0 && strchr(" \t\r\n", s.p[0]) != NULL)
        s = (struct str){ s.p + 1, s.n - 1 };
    end = q->o->snippet ? NULL : memchr(s.p, '\n', s.n);
    n = end != NULL ? (size_t)(end - s.p) : s.n;
    n = n < MOST ? n : MOST - 1;
    memcpy(line, s.p, n);
    line[n] = '\0';
    if (from.file.n > 0)
        snprintf(place, sizeof place, "%.*s:%lld: ", (int)(from.file.n < 4096 ? from.file.n : 4096), from.file.p,
                 (long long)from.line);
    else
        snprintf(place, sizeof place, "text %lld: ", (long long)hit->text);
    cli_clean(place);
    n = (size_t)cli_columns(place);
    room = q->o->snippet ? MOST : q->columns > n + LEAST ? q->columns - n + 1 : LEAST;
    cli_first_words(words, room < MOST ? room : MOST, line);
    printf("%s%s\n", place, words);
}

static enum err_code answer_query(struct query *q, struct str text, struct err *e)
{
    static struct recall_hit hits[RECALL_HITS_MAX];
    const int k = q->o->nearest, wanted = q->o->rerank && k < JUDGED ? JUDGED : k;
    int n = 0;

    if (search(q, text, wanted, hits, &n, e))
        return e->code;
    for (int i = 0; q->o->rerank && i < n; i++)
        if (cli_relevance_of(&q->judge, text, recall_text(q->r, hits[i].text), &hits[i].score, e))
            return e->code;
    if (q->o->rerank)
        qsort(hits, (size_t)n, sizeof *hits, by_score);
    if (q->columns > 0 && q->number > 0)
        putchar('\n');
    if (q->columns > 0 && n == 0)
        cli_warn("no text has a word of the question");
    for (int i = 0; i < n && i < k; i++)
        if (q->columns > 0)
            print_hit(q, text, &hits[i]);
        else if (print_json(q, text, &hits[i], i + 1, e))
            return e->code;
    q->number++;
    return cli_interrupted() ? err_set(e, ERR_CANCEL, "interrupted") : ERR_OK;
}

static bool is_blank(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (strchr(" \t\r\n", s.p[i]) == NULL)
            return false;
    return true;
}

static enum err_code answer_lines(struct query *q, struct err *e)
{
    enum { LOOK_MS = 200 };
    struct cli_lines l = { .fd = STDIN_FILENO, .line_max = LINE_BYTES };
    struct str line;
    enum err_code code = ERR_OK;

    for (bool more = true; code == ERR_OK && more; more = !l.eof) {
        enum cli_line got = CLI_LINE_NONE;

        code = cli_interrupted() ? err_set(e, ERR_CANCEL, "interrupted") : cli_lines_read(&l, LOOK_MS, e);
        while (code == ERR_OK && (got = cli_lines_next(&l, &line)) == CLI_LINE) {
            while (line.n > 0 && line.p[line.n - 1] == '\r')
                line.n--;
            if (!is_blank(line))
                code = answer_query(q, line, e);
        }
        if (code == ERR_OK && got != CLI_LINE_NONE)
            code = got == CLI_LINE_NO_MEMORY ? err_nomem(e)
                                             : err_set(e, ERR_LIMIT, "a question of more than %d bytes", LINE_BYTES);
    }
    cli_lines_free(&l);
    return code;
}

/* What makes a question's vector as those of the texts were made. */
static enum err_code open_vectors(struct query *q, const char *path, struct err *e)
{
    static const char *const makers[] = { "model", "program", "embedder" };
    const struct recall_info i = recall_info(q->r);
    const enum recall_maker wanted = q->o->embed_command != NULL ? RECALL_ELSEWHERE
                                     : q->o->embedder != NULL    ? RECALL_EMBEDDER
                                                                 : i.maker;
    const char *embedder = q->o->embedder != NULL ? q->o->embedder : i.path;

    if (i.dims == 0)
        return err_set(e, ERR_FORMAT, "%s: has no vectors (--bm25 does without)", path);
    if (wanted != i.maker)
        return err_set(e, ERR_FORMAT, "%s: its vectors were made with a%s %s: --%s does not fit", path,
                       i.maker == RECALL_EMBEDDER ? "n" : "", makers[i.maker],
                       q->o->embedder != NULL ? "embedder" : "embed-command");
    if (i.outside_bytes == 0 && q->o->faiss != NULL)
        return err_set(e, ERR_FORMAT, "%s: --faiss: its vectors are not in a file of FAISS", path);
    if (i.outside_bytes > 0 && q->o->flat)
        return err_set(e, ERR_FORMAT,
                       "%s: --flat: FAISS searches its vectors (--faiss nprobe=64 looks at more of them)", path);
    if (i.maker == RECALL_ELSEWHERE && q->o->embed_command == NULL)
        return err_set(e, ERR_FORMAT,
                       "%s: its vectors are from elsewhere: --embed-command makes a question's (--bm25 does without)",
                       path);
    if (i.maker == RECALL_EMBEDDER && *embedder == '\0')
        return err_set(e, ERR_FORMAT, "%s: --embedder names the file that its vectors are of (--bm25 does without)",
                       path);
    if (cli_embed_open(&q->m, q->o, i.maker, embedder, i.layer, e))
        return q->o->embedder == NULL && i.maker == RECALL_EMBEDDER
                   ? err_wrap(e, "%s: its embedder (--embedder names another place)", path)
                   : e->code;
    struct recall_vectors made = cli_embed_made(&q->m);

    if (i.maker == RECALL_ELSEWHERE) {
        q->m.dims = i.dims; /* the command may be another one: its vectors have the same length */
        made = (struct recall_vectors){ i.maker, i.model, i.dims, i.layer, NULL };
    }
    return recall_same_vectors(q->r, &made)
               ? ERR_OK
               : err_set(e, ERR_FORMAT, "%s: its vectors were made with another %s (--bm25 does without)", path,
                         makers[i.maker]);
}

/* A run that replaces the index removes FAISS's file of the old one, maybe after that was opened here. */
static enum err_code open_index(struct query *q, const char *path, struct err *e)
{
    enum { TIMES = 4 };

    q->words = q->o->vectors == NULL;
    for (int i = 1;; i++) {
        if (recall_open(&q->r, path, e))
            return e->code;
        const struct recall_info info = recall_info(q->r);

        q->vectors = !q->o->bm25 && (info.dims > 0 || q->o->hybrid || q->o->flat || !q->words || q->o->faiss != NULL ||
                                     q->o->embed_command != NULL || q->o->embedder != NULL);
        if (!q->vectors || info.outside_bytes == 0 ||
            cli_faiss_open(&q->faiss, q->r, path, q->o->faiss, q->o->model.n_threads, e) == ERR_OK)
            return ERR_OK;
        if (e->code != ERR_IO || i == TIMES)
            return e->code;
        recall_close(q->r);
        q->r = NULL;
    }
}

static enum err_code open_query(struct query *q, const char *path, struct err *e)
{
    if (open_index(q, path, e) || cli_open(&q->m.x, &q->o->model, e) || cli_open_text(&q->m.x, true, e) ||
        cli_notes_check(q->r, path, q->m.x.gguf, e))
        return e->code;
    if (!q->vectors && !q->o->rerank)
        return ERR_OK;
    if (q->o->rerank && cli_embed_open_run(&q->m, q->o, recall_info(q->r).layer, CTX_RERANK, e))
        return e->code;
    if (q->vectors && open_vectors(q, path, e))
        return e->code;
    if (pool_open(&q->pool, q->o->model.n_threads > 0 ? q->o->model.n_threads : pool_cpus(), e))
        return e->code;
    if (!q->o->rerank)
        return ERR_OK;
    if (cli_relevance_open(&q->judge, &q->m, e))
        return e->code;
    if (cli_relevance_fits(&q->judge, e) == ERR_UNSUPPORTED && q->o->force) {
        cli_warn("%s", e->msg);
        return ERR_OK;
    }
    return e->code;
}

enum err_code cli_engram_query(const struct build_options *o, const char *path, struct err *e)
{
    struct query *q = calloc(1, sizeof *q);
    enum err_code code;

    if (q == NULL)
        return err_nomem(e);
    q->o = o;
    if (!o->json && isatty(STDOUT_FILENO))
        q->columns = (size_t)cli_width(STDOUT_FILENO);
    code = open_query(q, path, e);
    if (code == ERR_OK && o->prompt == NULL && isatty(STDIN_FILENO))
        cli_note("each line is a question; ^D ends it");
    if (code == ERR_OK)
        code = o->prompt != NULL ? answer_query(q, str_of(o->prompt), e) : answer_lines(q, e);
    if (code == ERR_OK && q->number == 0)
        code = err_set(e, ERR_FORMAT, "standard input: there is no question");
    if (code == ERR_OK)
        cli_note("%d questions, %.3f ms each without the model", q->number, q->ms / q->number);
    cli_relevance_close(&q->judge);
    pool_close(q->pool);
    cli_faiss_close(q->faiss);
    recall_close(q->r);
    cli_embed_close(&q->m);
    free(q);
    return code;
}
