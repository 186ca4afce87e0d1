/* SPDX-License-Identifier: Apache-2.0 */
/* route.c - the class of a request (route.h).                                room: cmd */
#include "cli/route.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ask/ask.h"
#include "chat/chat.h"
#include "eval/eval.h"
#include "gen/gen.h"
#include "grammar/grammar.h"
#include "text/text.h"

enum { TEXT_MAX = 4000 /* bytes of a request that the model sees */ };

const char *cli_stage_name(enum cli_stage stage)
{
    static const char *const names[] = { "pattern", "file", "model", "default" };

    return names[stage];
}

enum err_code cli_routes_open(struct reason_routes **out, const char *path, struct err *e)
{
    json_t *v;
    enum err_code code;

    if (cli_json_file(&v, path, e))
        return e->code;
    code = reason_routes_open(out, v, e);
    json_decref(v);
    return code != ERR_FORMAT ? code : err_wrap(e, "%s: %s", cli_file_name(path), *e->where != '\0' ? e->where : "/");
}

static enum err_code try_patterns(const struct reason_routes *r, struct cli_request *q, struct err *e)
{
    struct reason_route_found found;

    for (int i = 0; i < REASON_CLASSES_MAX; i++)
        q->p[i] = (double)NAN;
    q->class = NULL;
    if (reason_route_find(r, q->text, q->files, &found, e))
        return e->code;
    q->stage = found.by_file ? CLI_STAGE_FILE : CLI_STAGE_PATTERN;
    q->open = found.open;
    if (found.class < 0)
        return ERR_OK;
    q->class = reason_route_name(r, found.class);
    q->certainty = 1;
    return ERR_OK;
}

enum err_code cli_route_patterns(const struct reason_routes *r, struct cli_request *v, size_t n, size_t *left,
                                 struct err *e)
{
    *left = 0;
    for (size_t i = 0; i < n; i++) {
        if (try_patterns(r, &v[i], e))
            return e->code;
        *left += v[i].class == NULL;
    }
    return ERR_OK;
}

/* ---- the model ---- */

/* One request and one class: the log-probability of its name as the answer. */
struct name_task {
    const struct text_tokens *name;
    struct text_tokens tokens; /* the prompt, and the name */
    int64_t n_prompt;
    double sum;
    const struct text *text;
    int32_t n_vocab;
};

/* The same beginning for every request, so that it is read once. */
static enum err_code write_question(struct cli_buf *b, const struct reason_routes *r, struct str text, struct err *e)
{
    const struct str part = { text.p, text.n < TEXT_MAX ? text.n : TEXT_MAX };

    if (cli_buf_add(b, STR("Which of these classes does the request belong to? Answer with the name of the class.\n"),
                    e))
        return e->code;
    for (int i = 0; i < reason_routes_n(r); i++) {
        const char *about = reason_route_about(r, i);

        if (cli_buf_add(b, STR("\n"), e) || cli_buf_add(b, str_of(reason_route_name(r, i)), e) ||
            (*about != '\0' && (cli_buf_add(b, STR(": "), e) || cli_buf_add(b, str_of(about), e))))
            return e->code;
    }
    return cli_buf_add(b, STR("\n\nRequest: "), e) || cli_buf_add(b, part, e) ? e->code : ERR_OK;
}

static enum err_code make_prompt(struct text_tokens *out, const struct reason_routes *r, const struct ask_model *m,
                                 struct str text, struct err *e)
{
    struct ask a = ask_defaults();
    struct cli_buf b = { 0 };
    enum err_code code = write_question(&b, r, text, e);

    a.think = 0;
    if (code == ERR_OK) {
        a.messages = json_pack("[{s:s, s:o}]", "role", "user", "content", json_bytes((struct str){ b.p, b.n }));
        code = a.messages != NULL ? ask_prompt(out, &a, m, NULL, e) : err_nomem(e);
    }
    json_decref(a.messages);
    cli_buf_free(&b);
    return code;
}

static enum err_code submit(struct gen *g, struct name_task *t, struct err *e)
{
    struct gen_request q = gen_defaults();
    int64_t id;

    q.prompt = t->tokens.v;
    q.n_prompt = t->tokens.n;
    q.predict_max = 0;
    q.n_rows = t->name->n + 1;
    q.user = t;
    return gen_submit(g, &q, &id, e);
}

/* The row of a position predicts the next token of the name, or its end. */
static void take_row(struct name_task *t, const struct gen_event *ev)
{
    const int64_t next = ev->done + 1 - t->n_prompt;
    double end = 0;

    if (next < t->name->n) {
        t->sum += eval_logprob(ev->logits, t->n_vocab, t->name->v[next]);
        return;
    }
    for (int32_t i = 0; i < t->n_vocab; i++)
        if (text_is_end(t->text, i))
            end += exp(eval_logprob(ev->logits, t->n_vocab, i));
    t->sum += log(end);
}

static enum err_code run_tasks(struct gen *g, struct name_task *t, size_t n, struct err *e)
{
    struct gen_event ev;
    size_t n_done = 0;

    for (size_t i = 0; i < n; i++)
        if (submit(g, &t[i], e))
            return e->code;
    while (gen_busy(g)) {
        if (cli_interrupted())
            return err_set(e, ERR_CANCEL, "interrupted");
        cli_progress_count("classes", (int64_t)n_done, (int64_t)n, "");
        if (gen_step(g, e))
            return e->code;
        while (gen_next(g, &ev)) {
            if (ev.kind == GEN_ROW)
                take_row(ev.user, &ev);
            if (ev.kind == GEN_END && ev.end == GEN_FAILED)
                return err_copy(e, &ev.err);
            n_done += ev.kind == GEN_END;
        }
    }
    return ERR_OK;
}

static enum err_code ask_model(struct cli_opened *x, int parallel, struct name_task *t, size_t n, struct err *e)
{
    struct run_opts ro = { .n_seq = (size_t)parallel < n ? parallel : (int)n, .stop = cli_interrupted };
    struct run *run = NULL;
    struct gen *g = NULL;
    enum err_code code;

    for (size_t i = 0; i < n; i++)
        ro.ctx_tokens = t[i].tokens.n + 1 > ro.ctx_tokens ? t[i].tokens.n + 1 : ro.ctx_tokens;
    code = cli_open_run(&run, x, &ro, e);
    if (code == ERR_OK)
        code = gen_open(&g,
                        &(struct gen_opts){
                            .run = run, .text = x->text, .adapters = x->adapters.list, .n_adapters = x->adapters.n },
                        e);
    if (code == ERR_OK)
        code = run_tasks(g, t, n, e);
    gen_close(g);
    run_close(run);
    cli_progress_end();
    return code;
}

/* Of the sums of logarithms: the share of each class, and the class that has the largest, if that is enough. */
static void decide(const struct reason_routes *r, struct cli_request *q, const double *sum)
{
    double most = -INFINITY, total = 0;
    int best = -1;

    for (int i = 0; i < reason_routes_n(r); i++)
        if ((q->open >> i & 1) != 0 && sum[i] > most) {
            most = sum[i];
            best = i;
        }
    for (int i = 0; i < reason_routes_n(r) && best >= 0; i++)
        if ((q->open >> i & 1) != 0)
            total += q->p[i] = exp(sum[i] - most);
    for (int i = 0; i < reason_routes_n(r) && best >= 0; i++)
        q->p[i] /= total;
    q->certainty = best >= 0 ? q->p[best] : 0;
    q->stage = q->certainty >= reason_routes_threshold(r) && best >= 0 ? CLI_STAGE_MODEL : CLI_STAGE_DEFAULT;
    q->class = q->stage == CLI_STAGE_MODEL ? reason_route_name(r, best) : reason_routes_default(r);
}

static enum err_code add_tasks(struct name_task *t, size_t *k, const struct text_tokens *prompt,
                               const struct cli_request *q, const struct text_tokens *names, int n_classes,
                               struct err *e)
{
    for (int c = 0; c < n_classes; c++) {
        struct name_task *one = &t[*k];

        if ((q->open >> c & 1) == 0)
            continue;
        ++*k;
        one->name = &names[c];
        one->n_prompt = prompt->n;
        for (int64_t i = 0; i < prompt->n; i++)
            if (text_tokens_push(&one->tokens, prompt->v[i], e))
                return e->code;
        for (int64_t i = 0; i < names[c].n; i++)
            if (text_tokens_push(&one->tokens, names[c].v[i], e))
                return e->code;
    }
    return ERR_OK;
}

/* Tasks of all requests that are left, in order. */
static enum err_code make_tasks(struct name_task *t, size_t *n_tasks, const struct reason_routes *r,
                                const struct ask_model *m, const struct text_tokens *names, struct cli_request *v,
                                size_t n, struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        struct text_tokens prompt = { 0 };
        enum err_code code;

        if (v[i].class != NULL)
            continue;
        code = make_prompt(&prompt, r, m, v[i].text, e);
        if (code == ERR_OK)
            code = add_tasks(t, n_tasks, &prompt, &v[i], names, reason_routes_n(r), e);
        text_tokens_free(&prompt);
        if (code)
            return code;
    }
    for (size_t i = 0; i < *n_tasks; i++) {
        t[i].text = m->text;
        t[i].n_vocab = m->n_vocab;
    }
    return ERR_OK;
}

static void take_sums(const struct reason_routes *r, const struct name_task *t, struct cli_request *v, size_t n)
{
    double sum[REASON_CLASSES_MAX];

    for (size_t i = 0; i < n; i++) {
        if (v[i].class != NULL)
            continue;
        for (int c = 0; c < reason_routes_n(r); c++)
            if ((v[i].open >> c & 1) != 0)
                sum[c] = (t++)->sum;
        decide(r, &v[i], sum);
    }
}

enum err_code cli_route_model(const struct reason_routes *r, struct cli_opened *x, int parallel, struct cli_request *v,
                              size_t n, struct err *e)
{
    const int n_classes = reason_routes_n(r);
    struct name_task *t = calloc(n * (size_t)n_classes + 1, sizeof *t);
    struct text_tokens names[REASON_CLASSES_MAX] = { { 0 } };
    struct grammar_vocab *vocab = NULL;
    struct chat *chat = NULL;
    size_t n_tasks = 0;
    enum err_code code = t != NULL ? chat_open(&chat, x->text, (struct str){ 0 }, e) : err_nomem(e);
    const struct ask_model m = {
        .text = x->text, .chat = chat, .vocab = &vocab, .n_vocab = model_info(x->model)->n_vocab
    };

    for (int c = 0; c < n_classes && code == ERR_OK; c++)
        code = text_encode(x->text, str_of(reason_route_name(r, c)), 0, &names[c], e);
    if (code == ERR_OK)
        code = make_tasks(t, &n_tasks, r, &m, names, v, n, e);
    if (code == ERR_OK && n_tasks > 0)
        code = ask_model(x, parallel, t, n_tasks, e);
    if (code == ERR_OK)
        take_sums(r, t, v, n);
    for (size_t i = 0; i < n_tasks; i++)
        text_tokens_free(&t[i].tokens);
    for (int c = 0; c < n_classes; c++)
        text_tokens_free(&names[c]);
    free(t);
    grammar_vocab_close(vocab);
    chat_close(chat);
    return code;
}
