/* SPDX-License-Identifier: Apache-2.0 */
/* calibrate.c - how far direct answers can be trusted: each question is answered directly and with reasoning.  room:
 * cmd
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "bench/calibrate.h"
#include "chat/chat.h"
#include "chat/reader.h"
#include "cli/route.h"
#include "gen/gen.h"
#include "grammar/grammar.h"
#include "model/model.h"
#include "run/run.h"

/* ---- questions ---- */

/* The set has it already, under another id. */
static bool is_copy(const struct calibration_job *j, const json_t *item, const char *set)
{
    for (size_t i = j->n; i-- > 0 && j->v[i].set == set;)
        if (json_equal(json_object_get(j->v[i].item, "messages"), json_object_get(item, "messages")) &&
            json_equal(json_object_get(j->v[i].item, "answer"), json_object_get(item, "answer")) &&
            json_equal(json_object_get(j->v[i].item, "check"), json_object_get(item, "check")))
            return true;
    return false;
}

static enum err_code ask_both(struct calibration_job *j, struct both *q, struct err *e)
{
    const struct ask_model m = {
        .text = j->b->open.text, .chat = j->format, .vocab = &j->vocab, .n_vocab = model_info(j->b->open.model)->n_vocab
    };

    for (int thinks = 0; thinks < 2; thinks++) {
        struct both_side *s = &q->side[thinks];
        json_t *kwargs = NULL;
        struct ask a;

        if (cli_bench_question(&a, &kwargs, j->b, q->item, e))
            return e->code;
        json_decref(kwargs);
        a.kwargs = NULL;
        a.think = thinks && !j->retrieves;
        a.uncertainty = true;
        if (j->retrieves && thinks)
            cli_beside_ask(&a, &j->beside);
        if (!a.think) {
            a.reason = reason_defaults();
            a.reason.loops = j->b->o->reason.loops == 0;
        }
        *s = (struct both_side){ .of = q, .thinks = a.think != 0 };
        if (ask_open(&s->asked, &a, &m, NULL, e))
            return e->code;
    }
    return ask_user_text(&q->text, &q->n_text, json_object_get(q->item, "messages"), e);
}

static enum err_code read_set(struct calibration_job *j, const char *path, struct err *e)
{
    char buf[128], *set = strdup(cli_bench_set_name(path, buf)); /* free_all() frees it */
    json_t *all, *item;
    const size_t before = j->n;
    size_t i, n_taken = 0;
    enum err_code code = set != NULL ? cli_bench_load(&all, path, e) : err_nomem(e);

    if (code) {
        free(set);
        return code;
    }
    json_array_foreach (all, i, item) {
        if (j->b->o->limit > 0 && (int64_t)n_taken == j->b->o->limit)
            break;
        code = eval_task_check(item, e);
        if (code == ERR_OK && is_copy(j, item, set))
            continue;
        if (code == ERR_OK)
            code = memory_room(&j->v, &j->cap, j->n + 1, sizeof *j->v, e);
        if (code) {
            err_wrap(e, "%s: item %zu", path, i + 1);
            break;
        }
        j->v[j->n++] = (struct both){ .item = json_incref(item), .set = set, .picks = n_taken++ % 2 == 0 };
    }
    json_decref(all);
    if (j->n == before)
        free(set);
    if (code == ERR_OK && j->n == before)
        code = err_set(e, ERR_FORMAT, "%s: no items", path);
    if (code == ERR_OK && j->n == before + 1)
        code = err_set(e, ERR_FORMAT, "%s: one half of the items fits thresholds, so two are needed", path);
    return code;
}

/* ---- classes ---- */

static int class_of(const struct both_classes *c, const char *name)
{
    int i = 1;

    while (i < c->n && strcmp(c->name[i], name) != 0)
        i++;
    return i;
}

static enum err_code find_classes(struct calibration_job *j, struct err *e)
{
    struct both_classes *c = &j->classes;

    c->name[c->n++] = "all";
    if (j->routes == NULL)
        return ERR_OK;
    for (int i = 0; i < reason_routes_n(j->routes); i++)
        c->name[c->n++] = reason_route_name(j->routes, i);
    if (class_of(c, reason_routes_default(j->routes)) == c->n)
        c->name[c->n++] = reason_routes_default(j->routes);
    for (size_t i = 0; i < j->n; i++) {
        struct reason_route_found found;

        if (reason_route_find(j->routes, (struct str){ j->v[i].text, j->v[i].n_text }, STR(""), &found, e))
            return e->code;
        j->v[i].class = class_of(c, found.class >= 0 ? reason_route_name(j->routes, found.class)
                                                     : reason_routes_default(j->routes));
    }
    return ERR_OK;
}

/* ---- answers ---- */

enum err_code cli_bench_add_choice(struct both_side *s, float p, struct err *e)
{
    if (isnan(p)) /* it was no choice */
        return ERR_OK;
    if (memory_room(&s->p, &s->cap, s->n_p + 1, sizeof *s->p, e))
        return e->code;
    s->p[s->n_p++] = p;
    return ERR_OK;
}

static enum err_code grade(const struct calibration_job *j, struct both_side *s, enum gen_end end, struct err *e)
{
    json_t *item = s->of->item;
    char *text;
    size_t n;
    enum err_code code;

    if (json_object_set_new(item, "enable_thinking", json_boolean(s->thinks)))
        return err_nomem(e);
    if (text_decode(j->b->open.text, s->answer.v, s->answer.n, TEXT_SPECIAL, &text, &n, e))
        return e->code;
    code = eval_grade(item, (struct str){ text, n }, &s->right, e);
    s->right = s->right && end == GEN_EOS;
    free(text);
    return code;
}

static enum err_code take_event(struct calibration_job *j, const struct gen_event *ev, int64_t *n_done, struct err *e)
{
    struct both_side *s = ev->user;

    if (ev->kind == GEN_TOKEN)
        return text_tokens_push(&s->answer, ev->pick.token, e) || cli_bench_add_choice(s, ev->p_max, e) ? e->code
                                                                                                        : ERR_OK;
    if (ev->kind != GEN_END)
        return ERR_OK;
    if (ev->end == GEN_FAILED)
        return err_copy(e, &ev->err);
    ++*n_done;
    return cli_bench_add_choice(s, ev->p_max, e) || grade(j, s, ev->end, e) ? e->code
                                                                            : cli_bench_calibrate_keep(j, s, e);
}

static enum err_code answer_all(struct calibration_job *j, struct gen *g, struct err *e)
{
    const struct progress progress = cli_bench_progress("answers");
    int64_t n_done = (int64_t)j->n_done, id;
    struct gen_event ev;

    for (size_t i = 0; i < 2 * j->n; i++) {
        struct both_side *s = &j->v[i / 2].side[i % 2];
        struct gen_request q = s->asked->q;

        q.user = s;
        if (!s->done && gen_submit(g, &q, &id, e))
            return err_wrap(e, "%s: %s", s->of->set, cli_bench_text_in(s->of->item, "id"));
    }
    while (gen_busy(g)) {
        if (!progress_tick(&progress, (uint64_t)n_done, 2 * (uint64_t)j->n))
            return err_set(e, ERR_CANCEL, "interrupted");
        if (gen_step(g, e))
            return e->code;
        while (gen_next(g, &ev))
            if (take_event(j, &ev, &n_done, e))
                return e->code;
    }
    return ERR_OK;
}

static enum err_code run_all(struct calibration_job *j, struct err *e)
{
    const int parallel = (size_t)j->b->o->parallel < 2 * j->n ? j->b->o->parallel : (int)(2 * j->n);
    struct run_opts ro = { .n_seq = parallel, .rows_max = parallel > 256 ? parallel : 256 };
    struct run *run = NULL;
    struct gen *g = NULL;
    int n_spare;
    enum err_code code;

    for (size_t i = 0; i < 2 * j->n; i++) {
        const int64_t n = j->v[i / 2].side[i % 2].asked->prompt.n + j->b->o->predict_max;

        ro.ctx_tokens = n > ro.ctx_tokens ? n : ro.ctx_tokens;
    }
    n_spare = cli_reason_room(&ro, &j->v[0].side[1].asked->reason);
    code = cli_bench_run(&run, j->b, ro, e);
    if (code == ERR_OK)
        code = gen_open(&g,
                        &(struct gen_opts){ .run = run,
                                            .text = j->b->open.text,
                                            .n_spare = n_spare,
                                            .prompt_rows = ro.rows_max,
                                            .adapters = j->b->open.adapters.list,
                                            .n_adapters = j->b->open.adapters.n },
                        e);
    if (code == ERR_OK)
        code = answer_all(j, g, e);
    gen_close(g);
    run_close(run);
    cli_progress_end();
    return code;
}

/* ---- the model as a verifier ---- */

static enum err_code add_piece(struct cli_buf *to, const struct chat_piece *p, int n, enum chat_part part,
                               struct err *e)
{
    for (int i = 0; i < n; i++)
        if (p[i].part == part && p[i].part != CHAT_TOOL && cli_buf_add(to, p[i].text, e))
            return e->code;
    return ERR_OK;
}

/* A solution as --best-of makes one: the lines of the reasoning, or of an answer without it. */
static enum err_code make_solution(const struct calibration_job *j, const struct both_side *s, struct ask_solution *out,
                                   struct err *e)
{
    struct cli_buf reasoning = { 0 }, said = { 0 };
    struct chat_reader *r = NULL;
    const struct chat_piece *piece;
    char *text = NULL;
    size_t n_text = 0;
    int n = 0;
    enum err_code code =
        text_decode(j->b->open.text, s->answer.v, s->answer.n, TEXT_SPECIAL, &text, &n_text, e) ? e->code : ERR_OK;

    if (code == ERR_OK)
        code = ask_reader(&r, s->asked, e);
    if (code == ERR_OK && r != NULL)
        code = chat_read(r, (struct str){ text, n_text }, true, &piece, &n, e);
    if (code == ERR_OK && r != NULL)
        code = add_piece(&reasoning, piece, n, CHAT_REASONING, e) ? e->code : add_piece(&said, piece, n, CHAT_TEXT, e);
    out->problem = strndup(s->of->text, s->of->n_text);
    out->answer = strndup(said.p != NULL ? said.p : "", said.n);
    if (code == ERR_OK && (out->problem == NULL || out->answer == NULL))
        code = err_nomem(e);
    if (code == ERR_OK) {
        const struct cli_buf *steps = reasoning.n > 0 ? &reasoning : &said;

        code = ask_solution_split(out, (struct str){ steps->p != NULL ? steps->p : "", steps->n }, STR("\n"), e);
        if (code == ERR_LIMIT) { /* it gets no score there, either */
            ask_solution_free(out);
            *e = (struct err){ 0 };
            code = ERR_OK;
        }
    }
    chat_reader_close(r);
    cli_buf_free(&reasoning);
    cli_buf_free(&said);
    free(text);
    return code;
}

static enum err_code weigh_verifier(struct calibration_job *j, const struct ask_solution *s, const bool *right,
                                    size_t n, struct err *e)
{
    double *score = calloc(n + 1, sizeof *score);
    bool *ok = calloc(n + 1, sizeof *ok);
    int64_t known = 0, yes = 0;
    struct eval_mean area = { (double)NAN, 0 };
    enum err_code code = score != NULL && ok != NULL ? ERR_OK : err_nomem(e);

    for (size_t i = 0; i < n && code == ERR_OK; i++)
        if (!isnan(s[i].score)) {
            yes += s[i].score > 0.5;
            score[known] = s[i].score;
            ok[known++] = right[i];
        }
    if (code == ERR_OK)
        code = eval_auc(&area, score, ok, known, e);
    free(score);
    free(ok);
    if (code)
        return code;
    if (isnan(area.mean)) {
        cli_warn("--verifier self: the answers are all right or all wrong: its area is not known");
        return ERR_OK;
    }
    j->verified = true;
    j->worth = (struct reason_verifier_worth){ area.mean, area.mean - 1.96 * area.se, area.mean + 1.96 * area.se,
                                               (double)yes / (double)known, known };
    j->worth.lo = j->worth.lo > 0 ? j->worth.lo : 0;
    j->worth.hi = j->worth.hi < 1 ? j->worth.hi : 1;
    return ERR_OK;
}

static enum err_code verify(struct calibration_job *j, struct err *e)
{
    const struct cli_verifier_use use = { .o = j->b->o->verifier,
                                          .model = &j->b->o->model,
                                          .self = &j->b->open,
                                          .think = true,
                                          .parallel = j->b->o->parallel };
    struct ask_solution *s = calloc(j->n + 1, sizeof *s);
    bool *right = calloc(j->n + 1, sizeof *right);
    struct cli_verifier *v = NULL;
    size_t n = 0;
    enum err_code code = s != NULL && right != NULL ? ERR_OK : err_nomem(e);

    for (size_t i = 0; i < j->n && code == ERR_OK; i++) {
        code = make_solution(j, &j->v[i].side[1], &s[n], e);
        if (code == ERR_OK && s[n].n_steps > 0)
            right[n++] = j->v[i].side[1].right;
        else
            ask_solution_free(&s[n]);
    }
    if (code == ERR_OK)
        code = cli_verifier_open(&v, &use, e);
    if (code == ERR_OK)
        code = cli_verifier_score(v, s, n, e);
    cli_verifier_close(v);
    if (code == ERR_OK)
        code = weigh_verifier(j, s, right, n, e);
    for (size_t i = 0; s != NULL && i < j->n; i++)
        ask_solution_free(&s[i]);
    free(s);
    free(right);
    return code;
}

/* ---- the command ---- */

static enum err_code open_all(struct calibration_job *j, struct err *e)
{
    if (j->b->o->classify != NULL && cli_routes_open(&j->routes, j->b->o->classify, e))
        return e->code;
    for (char **f = j->b->operands; *f != NULL; f++)
        if (read_set(j, *f, e))
            return e->code;
    if (cli_bench_open(j->b, true, e))
        return e->code;
    if (chat_open(&j->format, j->b->open.text, (struct str){ 0 }, e))
        return err_wrap(e, "%s", j->b->open.path);
    j->retrieves = j->b->o->beside.examples != NULL || j->b->o->beside.recite != NULL;
    if (j->retrieves && (cli_beside_texts(&j->beside, &j->b->o->beside, &j->b->open, e) ||
                         cli_beside_hash(&j->beside_hash, &j->b->o->beside, e)))
        return e->code;
    for (size_t i = 0; i < j->n; i++)
        if (ask_both(j, &j->v[i], e))
            return err_wrap(e, "%s: %s", j->v[i].set, cli_bench_text_in(j->v[i].item, "id"));
    return find_classes(j, e);
}

static void free_all(struct calibration_job *j)
{
    for (size_t i = 0; i < j->n; i++) {
        struct both *q = &j->v[i];

        for (int k = 2; k-- > 0;) {
            ask_close(q->side[k].asked);
            text_tokens_free(&q->side[k].answer);
            free(q->side[k].p);
        }
        if (i + 1 == j->n || j->v[i + 1].set != q->set)
            free((void *)(uintptr_t)q->set);
        json_decref(q->item);
        free(q->text);
    }
    for (int i = 0; i < j->classes.n; i++)
        reason_isotonic_free(&j->classes.right[i]);
    free(j->v);
    cli_beside_close(&j->beside);
    reason_routes_close(j->routes);
    grammar_vocab_close(j->vocab);
    chat_close(j->format);
}

enum err_code cli_bench_cmd_calibrate(struct bench *b, struct err *e)
{
    struct calibration_job j = { .b = b, .out = -1 };
    struct io_out *to;
    enum err_code code;

    if (*b->operands == NULL)
        return err_set(e, ERR_ARG, "calibrate: no task set named");
    if (b->o->verifier.what != NULL && strcmp(b->o->verifier.what, "self") != 0)
        return err_set(e, ERR_ARG, "calibrate: --verifier %s: only self is a property of the model",
                       b->o->verifier.what);
    if (io_out_open(&to, b->o->out, e)) /* before hours of answers */
        return cli_as_data(e);
    code = open_all(&j, e);
    if (code == ERR_OK)
        code = cli_bench_calibrate_resume(&j, e);
    if (code == ERR_OK)
        code = run_all(&j, e);
    if (code == ERR_OK)
        code = j.retrieves ? cli_bench_calibrate_retrieve(&j, e) : cli_bench_calibrate_fit(&j, e);
    if (code == ERR_OK && b->o->verifier.what != NULL)
        code = verify(&j, e);
    if (code == ERR_OK && !j.retrieves)
        code = cli_bench_calibrate_report(&j, e);
    if (code == ERR_OK)
        code = cli_bench_calibrate_write(&j, to, e);
    code = io_out_end(to, code, e);
    cli_bench_calibrate_forget(&j, code == ERR_OK);
    free_all(&j);
    return code == ERR_OK ? code : cli_as_data(e);
}
