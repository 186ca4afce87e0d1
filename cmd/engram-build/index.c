/* SPDX-License-Identifier: Apache-2.0 */
/* index.c - texts into an index, and the nearest ones out of it.             room: cmd */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/pool.h"
#include "chat/chat.h"
#include "cli/lines.h"
#include "base/io.h"
#include "cli/recall.h"
#include "engram-build/program.h"
#include "gguf/gguf.h"
#include "text/text.h"

enum {
    CTX = 512, /* tokens of a text that its vector is made of */
    CTX_RERANK = 4096,
    BATCH = 16, /* texts in a step */
    LINE_BYTES = 1 << 20,
    DEPTH = 64,  /* texts of each list that are fused; of more a graph is not asked */
    JUDGED = 20, /* texts that --rerank asks the model about */
};

/* ---- vectors ---- */

struct embed {
    struct cli_opened x;
    struct run *run;
    int dims, layer;
    struct text_tokens token[BATCH];
    int n;
    float *v; /* [BATCH][dims] */
};

static enum err_code embed_open(struct embed *m, const struct build_options *o, int layer, int64_t ctx, struct err *e)
{
    struct run_opts ro = { .n_seq = BATCH,
                           .ctx_tokens = ctx,
                           .rows_max = o->model.chunk > 0 ? o->model.chunk : CTX,
                           .n_taps = 1,
                           .tap_layers = &m->layer,
                           .kv_tokens = ctx > CTX ? ctx + BATCH * CTX : 0,
                           .stop = cli_interrupted };

    if (cli_open_model(&m->x, e))
        return e->code;
    const struct model_info *info = model_info(m->x.model);

    /* Means of the last layer's rows find little: what a text is about stands in the first half. A quarter was best. */
    m->layer = layer >= 0 ? layer : info->n_layer / 4 > 0 ? info->n_layer / 4 - 1 : 0;
    if (m->layer >= info->n_layer)
        return err_set(e, ERR_ARG, "--layer %d: the model has %d", m->layer, info->n_layer);
    m->dims = info->n_embd;
    m->v = malloc((size_t)BATCH * (size_t)m->dims * sizeof *m->v);
    if (m->v == NULL)
        return err_nomem(e);
    return cli_open_run(&m->run, &m->x, &ro, e);
}

static void embed_close(struct embed *m)
{
    run_close(m->run);
    for (int i = 0; i < BATCH; i++)
        text_tokens_free(&m->token[i]);
    free(m->v);
    cli_opened_close(&m->x);
}

/* Means of the rows of texts token[from .. from + n), in one step if all have room there. */
static enum err_code embed_step(struct embed *m, int from, int n, struct err *e)
{
    const int rows_max = run_rows_max(m->run);
    struct run_row *row = malloc((size_t)rows_max * sizeof *row);
    float *hidden = malloc((size_t)m->dims * sizeof *hidden);
    double *sum = calloc((size_t)n * (size_t)m->dims, sizeof *sum);
    int64_t at[BATCH] = { 0 };
    enum err_code code = row && hidden && sum ? ERR_OK : err_nomem(e);

    for (int i = 0; i < n; i++)
        run_clear(m->run, i);
    for (int i = 0; code == ERR_OK && i < n;) {
        int rows = 0;

        for (; i < n; i++) {
            for (; at[i] < m->token[from + i].n && rows < rows_max; at[i]++)
                row[rows++] = (struct run_row){ .token = m->token[from + i].v[at[i]], .seq = i };
            if (at[i] < m->token[from + i].n)
                break;
        }
        code = rows > 0 ? run_step(m->run, row, rows, e) : ERR_OK;
        for (int k = 0; code == ERR_OK && k < rows && run_tap(m->run, 0, k, hidden); k++)
            for (int d = 0; d < m->dims; d++)
                sum[(size_t)row[k].seq * (size_t)m->dims + (size_t)d] += (double)hidden[d];
    }
    for (int i = 0; code == ERR_OK && i < n; i++)
        for (int d = 0; d < m->dims; d++)
            m->v[(size_t)(from + i) * (size_t)m->dims + (size_t)d] =
                (float)(sum[(size_t)i * (size_t)m->dims + (size_t)d] / (double)m->token[from + i].n);
    free(row);
    free(hidden);
    free(sum);
    return code;
}

/* Vectors of all texts that wait, into v. */
static enum err_code embed_run(struct embed *m, struct err *e)
{
    const int rows_max = run_rows_max(m->run);

    for (int from = 0, n; from < m->n; from += n) {
        int64_t rows = 0;

        for (n = 0; from + n < m->n && (n == 0 || rows + m->token[from + n].n <= rows_max); n++)
            rows += m->token[from + n].n;
        if (embed_step(m, from, n, e))
            return e->code;
    }
    return ERR_OK;
}

/* A text waits; *took false: it has no tokens. */
static enum err_code embed_add(struct embed *m, struct str text, bool *took, struct err *e)
{
    struct text_tokens *t = &m->token[m->n];

    t->n = 0;
    if (text_encode(m->x.text, text, 0, t, e))
        return e->code;
    t->n = t->n < CTX ? t->n : CTX;
    *took = t->n > 0;
    m->n += *took;
    return ERR_OK;
}

/* ---- index ---- */

struct indexing {
    struct embed m;
    struct recall_builder *b;
    struct cli_buf open;        /* the document that is being read */
    struct cli_buf text[BATCH]; /* of those that wait */
    int64_t n, n_cut;           /* texts; those that were too long for one */
    double part, from_ms;       /* of all text that came */
};

static enum err_code embed_waiting(struct indexing *x, struct err *e)
{
    if (cli_interrupted())
        return err_set(e, ERR_CANCEL, "interrupted");
    if (embed_run(&x->m, e))
        return e->code;
    for (int i = 0; i < x->m.n; i++)
        if (recall_build_add(x->b, (struct str){ x->text[i].p, x->text[i].n }, x->m.v + (size_t)i * (size_t)x->m.dims,
                             e))
            return e->code;
    x->n += x->m.n;
    x->m.n = 0;
    if (cli_status_asked())
        fprintf(stderr, "%s: %lld texts\n", cli_name(), (long long)x->n);
    const double s = (clock_ms() - x->from_ms) / 1e3, rate = s > 0 ? (double)x->n / s : 0;

    if (x->part > 0)
        cli_progress("%lld texts, %.1f/s, %.0f s left", (long long)x->n, rate, s / x->part - s);
    else
        cli_progress("%lld texts, %.1f/s", (long long)x->n, rate);
    return ERR_OK;
}

static enum err_code add_part(struct indexing *x, struct str s, struct err *e)
{
    bool took;

    x->text[x->m.n].n = 0;
    if (cli_buf_add(&x->text[x->m.n], s, e) || embed_add(&x->m, s, &took, e))
        return e->code;
    return x->m.n == BATCH ? embed_waiting(x, e) : ERR_OK;
}

/* How much of a text makes one text of the index: all, or up to a line's end, a space, a character. */
static size_t part_of(struct str s)
{
    size_t n = RECALL_TEXT_BYTES_MAX, at;

    if (s.n <= n)
        return s.n;
    for (at = n; at > n / 2; at--)
        if (s.p[at - 1] == '\n')
            return at;
    for (at = n; at > n / 2; at--)
        if (s.p[at - 1] == ' ')
            return at;
    for (at = n; at > n - 4 && ((unsigned char)s.p[at] & 0xc0) == 0x80; at--)
        ;
    return at;
}

static enum err_code add_text(struct indexing *x, struct str s, struct err *e)
{

    while (s.n > 0 && strchr(" \t\r\n", s.p[s.n - 1]) != NULL)
        s.n--;
    while (s.n > 0 && strchr("\r\n", s.p[0]) != NULL) {
        s.p++;
        s.n--;
    }
    x->n_cut += s.n > RECALL_TEXT_BYTES_MAX;
    while (s.n > 0) {
        const size_t n = part_of(s);

        if (add_part(x, (struct str){ s.p, n }, e))
            return e->code;
        s.p += n;
        s.n -= n;
    }
    return ERR_OK;
}

/* Where a blank line ends a paragraph; its length, without that line. */
static size_t paragraph(struct str s)
{
    for (size_t i = 0; i + 1 < s.n; i++) {
        size_t k = i + 1;

        if (s.p[i] != '\n')
            continue;
        while (k < s.n && (s.p[k] == ' ' || s.p[k] == '\t' || s.p[k] == '\r'))
            k++;
        if (k < s.n && s.p[k] == '\n')
            return i + 1;
    }
    return s.n;
}

static enum err_code take_piece(void *ctx, const struct cli_engram_piece *p, struct err *e)
{
    struct indexing *x = ctx;

    if (cli_buf_add(&x->open, p->text, e))
        return e->code;
    if (!p->end)
        return ERR_OK;
    struct str s = { x->open.p, x->open.n };
    const double before = x->part;

    while (s.n > 0) {
        x->part = before + (p->part - before) * (1 - (double)s.n / (double)x->open.n);
        const size_t n = p->line ? s.n : paragraph(s);

        if (add_text(x, (struct str){ s.p, n }, e))
            return e->code;
        s.p += n;
        s.n -= n;
        while (s.n > 0 && (s.p[0] == '\n' || s.p[0] == '\r')) {
            s.p++;
            s.n--;
        }
    }
    x->open.n = 0;
    x->part = p->part;
    return ERR_OK;
}

static bool show_progress(void *ctx, uint64_t done, uint64_t total)
{
    (void)ctx;
    cli_progress_count("graph", (int64_t)done, (int64_t)total, " texts");
    return !cli_interrupted();
}

enum err_code cli_engram_index(const struct build_options *o, char *const *files, struct err *e)
{
    const struct progress progress = { show_progress, NULL };
    struct indexing *x = calloc(1, sizeof *x);
    struct pool *pool = NULL;
    const double from = clock_ms();
    struct io_lock *lock = NULL;
    enum err_code code;

    if (x == NULL)
        return err_nomem(e);
    code = io_lock(&lock, o->out, e) || cli_open(&x->m.x, &o->model, e) || cli_open_text(&x->m.x, true, e) ||
                   embed_open(&x->m, o, o->layer, CTX, e) ||
                   pool_open(&pool, o->model.n_threads > 0 ? o->model.n_threads : pool_cpus(), e)
               ? e->code
               : ERR_OK;
    if (code == ERR_OK) {
        const struct recall_build_opts bo = { text_fingerprint(x->m.x.gguf), model_fingerprint(x->m.x.model), x->m.dims,
                                              x->m.layer, false };

        code = recall_build_open(&x->b, &bo, e);
    }
    x->from_ms = clock_ms();
    if (code == ERR_OK)
        code = cli_engram_read(o, files, x->m.x.text, pool, take_piece, x, e) ? e->code : embed_waiting(x, e);
    if (code == ERR_OK && x->n == 0)
        code = err_set(e, ERR_ARG, "no text: the index would be empty");
    if (code == ERR_OK && x->n_cut > 0)
        cli_warn("%lld texts of more than %d bytes became several", (long long)x->n_cut, RECALL_TEXT_BYTES_MAX);
    const double texts_s = (clock_ms() - from) / 1e3;

    if (code == ERR_OK)
        code = recall_build_commit(x->b, o->out, &progress, e);
    else
        recall_build_abort(x->b);
    cli_progress_end();
    if (code == ERR_OK)
        cli_note("%s: %lld texts in %.1f s, written in %.1f s", o->out, (long long)x->n, texts_s,
                 (clock_ms() - from) / 1e3 - texts_s);
    pool_close(pool);
    cli_buf_free(&x->open);
    for (int i = 0; i < BATCH; i++)
        cli_buf_free(&x->text[i]);
    embed_close(&x->m);
    io_unlock(lock);
    free(x);
    return code;
}

/* ---- query ---- */

struct query {
    const struct build_options *o;
    struct recall *r;
    struct embed m;
    struct chat *chat; /* --rerank */
    int32_t yes, no;
    struct pool *pool;
    int number;
    double ms; /* of the searches, without the model */
};

static enum err_code search(struct query *q, struct str text, int k, struct recall_hit *hits, int *n, struct err *e)
{
    struct recall_hit a[DEPTH], b[DEPTH];
    int n_a = 0, n_b = 0;
    bool took = false;
    double from;
    enum err_code code = ERR_OK;

    if (!q->o->bm25) {
        q->m.n = 0;
        if (embed_add(&q->m, text, &took, e) || embed_run(&q->m, e))
            return e->code;
    }
    from = clock_ms();
    if (q->o->bm25)
        code = recall_words(q->r, q->m.x.text, text, k, hits, n, e);
    else if (!q->o->hybrid)
        code = took ? recall_near(q->r, q->m.v, k, q->o->flat, q->pool, hits, n, e) : ERR_OK;
    else {
        code = recall_words(q->r, q->m.x.text, text, DEPTH, a, &n_a, e) ||
                       (took && recall_near(q->r, q->m.v, DEPTH, q->o->flat, q->pool, b, &n_b, e))
                   ? e->code
                   : recall_fuse(a, n_a, b, n_b, k, hits, n, e);
    }
    q->ms += clock_ms() - from;
    return code;
}

/* The probability of "Yes", of "Yes" and "No", when the model is asked whether the text answers the question. */
static enum err_code judge_text(struct query *q, struct str question, struct str text, float *p, struct err *e)
{
    struct cli_buf b = { 0 };
    struct text_tokens t = { 0 };
    json_t *messages = NULL, *extra = json_pack("{s:b}", "enable_thinking", 0);
    bool thinking;
    enum err_code code;

    code = cli_buf_add(&b, cli_notes_head(text), e) || cli_buf_add(&b, STR("\n\nQuestion: "), e) ||
                   cli_buf_add(&b, question, e) ||
                   cli_buf_add(&b, STR("\n\nDoes the text above answer the question? Answer Yes or No."), e)
               ? e->code
               : ERR_OK;
    if (code == ERR_OK)
        messages = json_pack("[{s:s, s:o}]", "role", "user", "content", json_bytes((struct str){ b.p, b.n }));
    if (code == ERR_OK && (messages == NULL || extra == NULL))
        code = err_nomem(e);
    if (code == ERR_OK)
        code = chat_render(q->chat, &(struct chat_prompt){ .messages = messages, .extra = extra, .generate = true }, &t,
                           &thinking, e);
    if (code == ERR_OK) {
        run_clear(q->m.run, 0);
        code = run_feed(q->m.run, 0, t.v, t.n, 1, NULL, NULL, NULL, e);
    }
    if (code == ERR_OK) {
        const float *logits = run_logits_last(q->m.run);

        *p = (float)(1 / (1 + exp((double)logits[q->no] - (double)logits[q->yes])));
    }
    json_decref(messages);
    json_decref(extra);
    cli_buf_free(&b);
    text_tokens_free(&t);
    return code;
}

static int by_score(const void *a, const void *b)
{
    const struct recall_hit *x = a, *y = b;

    if (x->score != y->score)
        return x->score < y->score ? 1 : -1;
    return (x->text > y->text) - (x->text < y->text);
}

static enum err_code answer_query(struct query *q, struct str text, struct err *e)
{
    static struct recall_hit hits[RECALL_HITS_MAX];
    const int k = q->o->nearest, wanted = q->o->rerank && k < JUDGED ? JUDGED : k;
    int n = 0;

    if (search(q, text, wanted, hits, &n, e))
        return e->code;
    for (int i = 0; q->o->rerank && i < n; i++)
        if (judge_text(q, text, recall_text(q->r, hits[i].text), &hits[i].score, e))
            return e->code;
    if (q->o->rerank)
        qsort(hits, (size_t)n, sizeof *hits, by_score);
    for (int i = 0; i < n && i < k; i++) {
        json_t *o = json_pack("{s:s, s:i, s:i, s:I, s:o}", "type", "hit", "query", q->number, "rank", i + 1, "id",
                              (json_int_t)hits[i].text, "score", cli_json_real((double)hits[i].score));

        if (hits[i].share > 0)
            cli_json_set(o, "share", cli_json_real((double)hits[i].share));
        cli_json_set(o, "text", json_bytes(recall_text(q->r, hits[i].text)));
        if (cli_json_line(o, e))
            return e->code;
    }
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

static enum err_code first_token(const struct text *text, struct str word, int32_t *token, struct err *e)
{
    struct text_tokens t = { 0 };
    const enum err_code code = text_encode(text, word, 0, &t, e);

    *token = t.n > 0 ? t.v[0] : 0;
    text_tokens_free(&t);
    return code;
}

static enum err_code open_query(struct query *q, const char *path, struct err *e)
{
    if (recall_open(&q->r, path, e) || cli_open(&q->m.x, &q->o->model, e) || cli_open_text(&q->m.x, true, e) ||
        cli_notes_check(q->r, path, q->m.x.gguf, e))
        return e->code;
    if (q->o->bm25 && !q->o->rerank)
        return ERR_OK;
    const struct recall_info i = recall_info(q->r);

    if (embed_open(&q->m, q->o, i.layer, q->o->rerank ? CTX_RERANK : CTX, e))
        return e->code;
    if (!q->o->bm25 && (i.model != model_fingerprint(q->m.x.model) || i.dims != q->m.dims))
        return err_set(e, ERR_FORMAT, "%s: its vectors were made with another model (--bm25 does without)", path);
    if (pool_open(&q->pool, q->o->model.n_threads > 0 ? q->o->model.n_threads : pool_cpus(), e))
        return e->code;
    if (!q->o->rerank)
        return ERR_OK;
    if (chat_open(&q->chat, q->m.x.text, (struct str){ NULL, 0 }, e))
        return e->code;
    if (first_token(q->m.x.text, STR("Yes"), &q->yes, e) || first_token(q->m.x.text, STR("No"), &q->no, e))
        return e->code;
    return q->yes != q->no
               ? ERR_OK
               : err_set(e, ERR_UNSUPPORTED, "--rerank: \"Yes\" and \"No\" begin with the same token in this model");
}

enum err_code cli_engram_query(const struct build_options *o, const char *path, struct err *e)
{
    struct query *q = calloc(1, sizeof *q);
    enum err_code code;

    if (q == NULL)
        return err_nomem(e);
    q->o = o;
    code = open_query(q, path, e);
    if (code == ERR_OK)
        code = o->prompt != NULL ? answer_query(q, str_of(o->prompt), e) : answer_lines(q, e);
    if (code == ERR_OK && q->number == 0)
        code = err_set(e, ERR_FORMAT, "standard input: there is no question");
    if (code == ERR_OK)
        cli_note("%d questions, %.3f ms each without the model", q->number, q->ms / q->number);
    chat_close(q->chat);
    pool_close(q->pool);
    recall_close(q->r);
    embed_close(&q->m);
    free(q);
    return code;
}
