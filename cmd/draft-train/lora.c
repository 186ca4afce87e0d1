/* SPDX-License-Identifier: Apache-2.0 */
/* lora.c - the command lora: an adapter learns answers, and stays when it knows more and has forgotten nothing.
 * room: cmd (cli_) */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "adapt/adapt.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/rng.h"
#include "draft-train/lora.h"
#include "gguf/gguf.h"
#include "grad/grad.h"
#include "train/adam.h"
#include "train/gate.h"
#include "tune/lora.h"
#include "tune/shield.h"
#include "tune/zo.h"

enum { WARM = 10, TRIES = 4, TESTS_MAX = 400, LEAST_TESTS = 5, SHIELD_ROWS = 10000, ALPHA = 2, ALPHA_SHIELD = 8 };
#define P_MAX     0.05  /* of the gate */
#define OWN_SHARE 0.1   /* of the time, in which the model writes texts, and again answers */
#define SAVE_MS   60e3
#define REPORT_MS 1000.0

static const struct train_adam_opts adam = { 0.9f, 0.99f, 1e-8f, 0.0f, 1.0f };

/* An item's part in a test: mean loss of a token, and whether each is the likeliest. */
struct score {
    double loss;
    bool   exact;
};

struct job {
    const struct train_options *o;
    const struct cli    *cli;
    struct cli_opened    x;
    struct train_report  report;
    struct io_lock      *lock;
    struct grad         *g;
    struct train_begin   begin;    /* what serves */
    struct tune_lora    *lora;     /* what learns: begin.lora */
    struct train_items   items, tests, keep, kept, own; /* own: what the model wrote */
    struct score        *before[2], *after[2]; /* of tests, of kept */
    struct train_adam    adam;
    float               *gradient;
    struct grad_adapter *adapters; /* [lora->n] */
    struct tune_shield  *shield;   /* NULL: none */
    float               *was;      /* [n_params] before a step, with a shield */
    struct tune_zo      *zo;
    FILE                *log;      /* of zo */
    char                *fresh, *half; /* paths of what is new (NULL: nothing yet), of what was interrupted */
    char                 name[200];
    int64_t             *order;    /* [items.n] */
    int64_t              rows_max, step, steps, keep_at;
    bool                 keep_layers, shielded;
    int64_t              step_first; /* of this process */
    double               from_ms, before_s, test_s, learn_from_s;
};

static double spent_s(const struct job *j)
{
    return j->before_s + (cli_now_ms() - j->from_ms) / 1e3;
}

static enum err_code no_memory(struct err *e)
{
    return err_set(e, ERR_NOMEM, "out of memory");
}

/* ---- opening ---- */

static enum err_code begin(struct job *j, struct err *e)
{
    const enum err_code code = cli_train_begin(&j->begin, j->o, j->cli, j->x.gguf, j->g, e);

    j->lora = j->begin.lora;
    return code;
}

static enum err_code read_items(struct job *j, char *const *files, struct err *e)
{
    const struct train_options *o = j->o;
    const int64_t most = o->model.ctx_tokens;
    size_t n = 0;

    while (files[n] != NULL)
        n++;
    if (cli_train_items(&j->items, j->x.text, most, false, (const char *const *)files, n, e) ||
        cli_train_items(&j->tests, j->x.text, most, false, o->held_out.v, o->held_out.n, e) ||
        cli_train_items(&j->keep, j->x.text, most, true, o->keep_files.v, o->keep_files.n, e))
        return e->code;
    if (o->held_out.n == 0 && cli_train_items_split(&j->items, &j->tests, 10, TESTS_MAX, e))
        return e->code;
    if (j->items.n + j->tests.n == 0)
        return err_set(e, ERR_FORMAT, "there is nothing to learn: no item of at most %" PRId64 " tokens", most);
    if (j->items.n == 0 || j->tests.n < LEAST_TESTS)
        return err_set(e, ERR_FORMAT, "%" PRId64 " items to learn and %" PRId64 " to test on are too few: at least 1 and %d "
                       "(--held-out names a file to test on)", j->items.n, j->tests.n, LEAST_TESTS);
    if (o->keep_files.n == 0 && cli_train_item_sets(&j->kept, TESTS_MAX, j->x.text, most, e))
        return e->code;
    if (j->items.n_out + j->tests.n_out + j->keep.n_out > 0)
        cli_warn("%" PRId64 " items are left out: more than %" PRId64 " tokens, no text or no answer",
                 j->items.n_out + j->tests.n_out + j->keep.n_out, most);
    return ERR_OK;
}

static int64_t longest(const struct train_items *s)
{
    int64_t n = 0;

    for (int64_t i = 0; i < s->n; i++)
        n = s->v[i].token.n > n ? s->v[i].token.n : n;
    return n;
}

/* Tokens of a question and an answer that the model writes, at most. */
static int64_t own_tokens(const struct job *j)
{
    const int64_t n = longest(&j->items), least = j->keep.open != NULL ? TRAIN_OWN_ASKED : TRAIN_OWN_TEXT;
    const int64_t most = (n > least ? n : least) + TRAIN_OWN_ANSWER;

    return most < j->o->model.ctx_tokens ? most : j->o->model.ctx_tokens;
}

/* Bytes of the parameters and what is kept beside them, of what is rehearsed and of the shield. */
static int64_t own_bytes(const struct job *j)
{
    const int64_t copies = j->o->method == TRAIN_FIRST ? 4 + j->shielded : 3 + 2 * j->o->samples;
    const int64_t n = j->o->rehearse * 9 / 8 + (int64_t)json_array_size(j->keep.open);
    int64_t rows = n * TRAIN_OWN_ANSWER, shield = j->shielded ? tune_shield_bytes(j->lora) : 0;

    for (int64_t i = 0; i < j->keep.n; i++)
        rows += j->keep.v[i].n_answer;
    return j->lora->n_params * (int64_t)sizeof(float) * (copies + (j->begin.champion != NULL)) +
           shield + rows * (int64_t)sizeof(struct grad_soft) + n * own_tokens(j) * 2 * (int64_t)sizeof(int32_t);
}

/* Whether there is a shield: where there is something to rehearse, and half of --memory is enough for it. */
static enum err_code choose_shield(struct job *j, struct err *e)
{
    const struct train_options *o = j->o;
    const int64_t bytes = tune_shield_bytes(j->lora);

    j->shielded = o->method == TRAIN_FIRST && o->shield > 0 && (o->rehearse > 0 || o->keep_files.n > 0);
    if (j->shielded && bytes > o->memory_bytes / 2) {
        if (cli_given(j->cli, "shield"))
            return err_set(e, ERR_ARG, "--shield takes %" PRId64 " MiB, and --memory has to be twice that", (bytes >> 20) + 1);
        cli_warn("no shield: it takes %" PRId64 " MiB, more than half of --memory", (bytes >> 20) + 1);
        j->shielded = false;
    }
    if (j->begin.fresh && o->alpha <= 0 && !o->scales) /* behind a shield the same step does less */
        j->lora->file->alpha = (j->shielded ? ALPHA_SHIELD : ALPHA) * (float)o->rank;
    return ERR_OK;
}

/* The rows of a pass that --memory allows; said before anything is taken. */
static enum err_code bound_memory(struct job *j, struct err *e)
{
    const int64_t need[] = { longest(&j->items), longest(&j->tests), longest(&j->keep), longest(&j->kept),
                             j->o->rehearse > 0 || j->keep.open != NULL ? own_tokens(j) : 0 };
    const int64_t room = j->o->memory_bytes - own_bytes(j), left = memory_left("");
    int64_t most = 0, all, lo = 0, hi = 1 << 16;

    for (int i = 0; i < 5; i++)
        most = need[i] > most ? need[i] : most;
    j->keep_layers = j->o->method == TRAIN_FIRST && grad_bytes(j->g, 4 * most, j->lora->rank, true) <= room;
    while (lo < hi) {
        const int64_t mid = (lo + hi + 1) / 2;

        if (grad_bytes(j->g, mid, j->lora->rank, j->keep_layers) <= room)
            lo = mid;
        else
            hi = mid - 1;
    }
    j->rows_max = lo;
    if (lo < most)
        return err_set(e, ERR_ARG, "--memory is too small: an item of %" PRId64 " tokens takes %" PRId64 " MiB", most,
                       (grad_bytes(j->g, most, j->lora->rank, false) + own_bytes(j) + (1 << 20) - 1) >> 20);
    all = own_bytes(j) + grad_bytes(j->g, lo, j->lora->rank, j->keep_layers);
    cli_warn("memory: at most %" PRId64 " MiB beside the model's file: %" PRId64 " rows in a pass, %" PRId64 " parameters",
             all >> 20, lo, j->lora->n_params);
    if (left >= 0 && all > left)
        return err_set(e, ERR_LIMIT, "%" PRId64 " MiB of memory are left: a smaller --memory takes less", left >> 20);
    return ERR_OK;
}

/* What an interrupted training must have in common with this one. */
static uint64_t hash_items(uint64_t h, const struct train_items *s)
{
    for (int64_t i = 0; i < s->n; i++)
        h = io_hash(h, s->v[i].token.v, (size_t)s->v[i].token.n * sizeof(int32_t));
    return h;
}

static void name_job(struct job *j)
{
    const struct train_options *o = j->o;
    uint64_t h = hash_items(hash_items(0, &j->items), &j->keep);

    for (int i = 0; i < grad_n_matrices(j->g); i++) {
        const struct grad_matrix *m = grad_matrix_at(j->g, i);

        h = io_hash(h, m->data, 64 < m->n_in ? 64 : (size_t)m->n_in);
    }
    h = io_hash(h, j->lora->theta, (size_t)j->lora->n_params * sizeof(float));
    const double rest[] = { (double)o->seed, (double)o->momentum, (double)o->keep_batch, (double)o->keep_weight,
                            (double)o->rehearse, (double)j->lora->file->alpha,
                            j->shielded ? (double)o->shield : 0 };
    h = io_hash(h, rest, sizeof rest);
    (void)snprintf(j->name, sizeof j->name, "%016" PRIx64 " %s rank %d batch %d steps %" PRId64 " rate %g samples %d time %.0f", h,
                   o->method == TRAIN_FIRST ? "first" : "zo", j->lora->rank, o->n_text, j->steps, (double)o->rate,
                   o->samples, o->time_s);
}

static enum err_code open_all(struct job *j, char *const *files, struct err *e)
{
    const struct train_options *o = j->o;

    if (io_lock(&j->lock, o->out, e) || cli_train_report_open(&j->report, o, e) || cli_open(&j->x, &o->model, e) ||
        cli_open_text(&j->x, true, e) || grad_open(&j->g, j->x.gguf, o->model.n_threads, e) || begin(j, e) ||
        read_items(j, files, e) || choose_shield(j, e) || bound_memory(j, e))
        return e->code;
    j->steps = (j->items.n + o->n_text - 1) / o->n_text * o->epochs;
    j->steps = o->steps > 0 && o->steps < j->steps ? o->steps : j->steps;
    name_job(j);
    j->half = cli_train_beside(o->out, ".train");
    j->order = calloc((size_t)j->items.n, sizeof *j->order);
    j->adapters = calloc((size_t)j->lora->n, sizeof *j->adapters);
    if (j->half == NULL || j->order == NULL || j->adapters == NULL)
        return no_memory(e);
    if (o->method == TRAIN_ZO)
        return tune_zo_open(&j->zo, j->lora, &(struct tune_zo_opts){ (uint64_t)o->seed, 1e-2, (double)o->rate, o->samples,
                                                                    o->momentum, j->rows_max }, e);
    j->gradient = calloc((size_t)j->lora->n_params, sizeof *j->gradient);
    return j->gradient == NULL ? no_memory(e) : train_adam_open(&j->adam, j->lora->n_params, e);
}

static void close_all(struct job *j)
{
    for (int i = 0; i < 2; i++) {
        free(j->before[i]);
        free(j->after[i]);
    }
    if (j->log != NULL)
        fclose(j->log);
    tune_zo_close(j->zo);
    train_adam_close(&j->adam);
    tune_shield_close(j->shield);
    free(j->was);
    free(j->gradient);
    free(j->adapters);
    free(j->order);
    cli_train_drop(&j->fresh);
    free(j->half);
    cli_train_items_free(&j->items);
    cli_train_items_free(&j->tests);
    cli_train_items_free(&j->keep);
    cli_train_items_free(&j->kept);
    cli_train_items_free(&j->own);
    cli_train_begin_close(&j->begin);
    grad_close(j->g);
    cli_opened_close(&j->x);
    io_unlock(j->lock);
}

/* ---- tests ---- */

struct test {
    const struct train_items *s;
    struct score             *score;
    int64_t                   first; /* item of sequence 0 */
    unsigned char            *wrong; /* [rows' items] set by any thread */
};

static double judge(void *ctx, int seq, int row, float *logits, int32_t n)
{
    const struct test *t = ctx;
    const int32_t want = t->s->v[t->first + seq].target[row];
    int32_t best = 0;
    double sum = 0.0;

    for (int32_t i = 1; i < n; i++)
        best = logits[i] > logits[best] ? i : best;
    for (int32_t i = 0; i < n; i++)
        sum += exp((double)logits[i] - (double)logits[best]);
    if (best != want)
        __atomic_store_n(&t->wrong[seq], 1, __ATOMIC_RELAXED);
    return log(sum) + (double)logits[best] - (double)logits[want];
}

static struct grad_seq seq_of(const struct train_item *item, double weight)
{
    return (struct grad_seq){ item->token.v, item->target, (int)item->token.n, (float)weight, NULL, item->said };
}

/* Items first .. that fit a pass. */
static int fitting(const struct job *j, const struct train_items *s, int64_t first, struct grad_seq *seq, int most)
{
    int64_t rows = 0;
    int n = 0;

    while (n < most && first + n < s->n && (n == 0 || rows + s->v[first + n].token.n <= j->rows_max)) {
        seq[n] = seq_of(&s->v[first + n], 1.0);
        rows += s->v[first + n++].token.n;
    }
    return n;
}

/* Scores of a set with an adapter; NULL: the bare model's. */
static enum err_code test(struct job *j, const struct train_items *s, const struct tune_lora *l, struct score *score,
                          struct err *e)
{
    enum { MANY = 64 };
    struct grad_seq seq[MANY];
    struct grad_adapter *a = l == NULL ? NULL : calloc((size_t)l->n, sizeof *a);
    unsigned char wrong[MANY];
    double loss[MANY], sum;
    struct test t = { s, score, 0, wrong };
    int n;

    if (l != NULL && a == NULL)
        return no_memory(e);
    e->code = ERR_OK;
    for (; t.first < s->n && e->code == ERR_OK; t.first += n) {
        n = fitting(j, s, t.first, seq, MANY);
        memset(wrong, 0, sizeof wrong);
        if (l != NULL)
            tune_lora_at(l, l->theta, NULL, 0, n, a);
        cli_progress("test: %" PRId64 " of %" PRId64, t.first, s->n);
        if (cli_interrupted())
            err_set(e, ERR_CANCEL, "interrupted");
        else if (grad_forward(j->g, &(struct grad_batch){ .seq = seq, .n_seq = n, .adapter = a,
                                                          .n_adapter = l == NULL ? 0 : l->n, .loss = judge, .loss_ctx = &t,
                                                          .seq_loss = loss }, &sum, e) == ERR_OK)
            for (int i = 0; i < n; i++)
                score[t.first + i] = (struct score){ loss[i] / s->v[t.first + i].n_answer, !wrong[i] };
    }
    free(a);
    return e->code;
}

static enum err_code test_both(struct job *j, const struct tune_lora *l, struct score *const score[2], struct err *e)
{
    return test(j, &j->tests, l, score[0], e) || test(j, &j->kept, l, score[1], e) ? e->code : ERR_OK;
}

/* ---- what is rehearsed ---- */

struct asking {
    struct train_items *s;
    int64_t             first; /* item of sequence 0 */
};

static double note_said(void *ctx, int seq, int row, float *logits, int32_t n)
{
    const struct asking *a = ctx;
    struct train_item *item = &a->s->v[a->first + seq];

    grad_soft_of(&item->said[row - (item->token.n - 1 - item->n_answer)], logits, n);
    return 0;
}

/* Notes what the model says, with the old adapter where there is one. */
static enum err_code ask(struct job *j, struct train_items *s, struct err *e)
{
    enum { MANY = 64 };
    struct grad_seq seq[MANY];
    const struct tune_lora *l = j->begin.champion;
    struct asking a = { s, 0 };
    double sum;

    for (int n; a.first < s->n; a.first += n) {
        n = fitting(j, s, a.first, seq, MANY);
        for (int i = 0; i < n; i++)
            if ((s->v[a.first + i].said = calloc((size_t)s->v[a.first + i].n_answer, sizeof(struct grad_soft))) == NULL)
                return no_memory(e);
        if (l != NULL)
            tune_lora_at(l, l->theta, NULL, 0, n, j->adapters);
        cli_progress("asking the model: %" PRId64 " of %" PRId64, a.first, s->n);
        if (cli_interrupted())
            return err_set(e, ERR_CANCEL, "interrupted");
        if (grad_forward(j->g, &(struct grad_batch){ .seq = seq, .n_seq = n, .adapter = j->adapters,
                                                     .n_adapter = l == NULL ? 0 : l->n, .loss = note_said, .loss_ctx = &a },
                         &sum, e))
            return e->code;
    }
    return ERR_OK;
}

static enum err_code open_scores(struct job *j, struct err *e)
{
    const struct train_items *set[] = { &j->tests, &j->kept };

    for (int i = 0; i < 2; i++) {
        j->before[i] = calloc((size_t)set[i]->n + 1, sizeof **j->before);
        j->after[i] = calloc((size_t)set[i]->n + 1, sizeof **j->after);
        if (j->before[i] == NULL || j->after[i] == NULL)
            return no_memory(e);
    }
    return ERR_OK;
}

/* What is rehearsed as number i of all steps: of --keep and of the model's own in turns. */
static const struct train_item *rehearsed(const struct job *j, int64_t i)
{
    const bool own = j->keep.n == 0 || (j->own.n > 0 && i % 2 == 0);
    const struct train_items *s = own ? &j->own : &j->keep;

    return &s->v[(int64_t)(rng_unit((uint64_t)j->o->seed, 10, (uint64_t)i) * (double)s->n)];
}

static int64_t tokens_of(const struct train_items *s)
{
    int64_t n = 0;

    for (int64_t i = 0; i < s->n; i++)
        n += s->v[i].token.n;
    return n;
}

/* The shield of what is rehearsed, SHIELD_ROWS rows of it at most; a new adapter begins behind it. */
static enum err_code open_shield(struct job *j, struct err *e)
{
    const int64_t there = tokens_of(&j->own) + tokens_of(&j->keep), want = there < SHIELD_ROWS ? there : SHIELD_ROWS;
    int64_t rows = 0;

    if (!j->shielded || there == 0)
        return ERR_OK;
    j->was = calloc((size_t)j->lora->n_params, sizeof *j->was);
    if (j->was == NULL)
        return no_memory(e);
    if (tune_shield_open(&j->shield, j->lora, e))
        return e->code;
    for (int64_t i = -1; rows < want;) {
        enum { MANY = 16 };
        struct grad_seq seq[MANY];
        int64_t some = 0;
        int n = 0;

        for (; n < MANY; n++, i--) {
            seq[n] = seq_of(rehearsed(j, i), 1);
            if (n > 0 && some + seq[n].n > j->rows_max)
                break;
            some += seq[n].n;
        }
        rows += some;
        cli_progress("looking at what the model says: %" PRId64 " of %" PRId64 " tokens", rows, want);
        if (cli_interrupted())
            return err_set(e, ERR_CANCEL, "interrupted");
        if (tune_shield_see(j->shield, seq, n, e))
            return e->code;
    }
    if (tune_shield_raise(j->shield, (double)j->o->shield, e))
        return e->code;
    if (j->begin.fresh)
        tune_shield_apply(j->shield, j->lora->theta);
    return ERR_OK;
}

/* What the model is to say as it does: what --keep names, of which a fifth is tested on, and what it writes itself. */
static enum err_code rehearse(struct job *j, struct err *e)
{
    const struct train_options *o = j->o;
    const struct train_own own = { .adapter = j->begin.old != NULL && !o->scales ? o->out : NULL,
                                   .learn = &j->items, .known = j->keep.open,
                                   .n_texts = (o->rehearse + 7) / 8, .n_answers = o->rehearse, .tokens_max = own_tokens(j),
                                   .time_s = OWN_SHARE * o->time_s, .own = &j->own, .answers = &j->keep };

    if ((o->rehearse > 0 || json_array_size(own.known) > 0) && cli_train_own(&own, o, j->x.text, e))
        return e->code;
    if (o->keep_files.n > 0 && cli_train_items_split(&j->keep, &j->kept, 5, TESTS_MAX, e))
        return e->code;
    if (o->keep_files.n > 0 && j->kept.n < LEAST_TESTS)
        return err_set(e, ERR_FORMAT, "--keep: too few items to test what is forgotten: a fifth of them, and at least %d",
                       LEAST_TESTS);
    if (j->kept.n < LEAST_TESTS)
        cli_warn("what is forgotten is not tested: --keep names a file of what the model knows");
    if (ask(j, &j->own, e) || ask(j, &j->keep, e) || open_scores(j, e) || open_shield(j, e))
        return e->code;
    return ERR_OK;
}

/* ---- training ---- */

/* Items of a step: some of an order that is new in every pass over the data. */
static void shuffle(struct job *j, int64_t pass)
{
    for (int64_t i = 0; i < j->items.n; i++) {
        const int64_t k = (int64_t)(rng_unit((uint64_t)j->o->seed, 11 + (uint64_t)pass, (uint64_t)i) * (double)(i + 1));

        j->order[i] = j->order[k];
        j->order[k] = i;
    }
}

/* seq [n_text + keep_batch]; their losses' weights: of what is learnt the mean over its tokens, of what is rehearsed
 * keep_weight times that. Rows of equal length are not needed. Returns how many. */
static int batch(struct job *j, struct grad_seq *seq)
{
    const int64_t each = (j->items.n + j->o->n_text - 1) / j->o->n_text, at = j->step % each * j->o->n_text;
    int64_t tokens = 0, said = 0;
    int n = 0, n_keep = j->keep.n + j->own.n > 0 ? j->o->keep_batch : 0;

    shuffle(j, j->step / each);
    for (int64_t i = at; i < j->items.n && n < j->o->n_text; i++)
        tokens += j->items.v[j->order[i]].n_answer, n++;
    for (int i = 0; i < n; i++)
        seq[i] = seq_of(&j->items.v[j->order[at + i]], 1.0 / (double)tokens);
    for (int i = 0; i < n_keep; i++)
        said += rehearsed(j, j->step * n_keep + i)->n_answer;
    for (int i = 0; i < n_keep; i++)
        seq[n + i] = seq_of(rehearsed(j, j->step * n_keep + i), (double)j->o->keep_weight / (double)said);
    return n + n_keep;
}

/* The gradient of the batch, in passes that memory allows. */
static enum err_code first_order(struct job *j, const struct grad_seq *seq, int n, double *loss, struct err *e)
{
    memset(j->gradient, 0, (size_t)j->lora->n_params * sizeof *j->gradient);
    *loss = 0.0;
    for (int first = 0, some; first < n; first += some) {
        int64_t rows = 0;
        double part;

        for (some = 0; first + some < n && (some == 0 || rows + seq[first + some].n <= j->rows_max); some++)
            rows += seq[first + some].n;
        tune_lora_at(j->lora, j->lora->theta, j->gradient, 0, some, j->adapters);
        if (grad_backward(j->g, &(struct grad_batch){ .seq = seq + first, .n_seq = some, .adapter = j->adapters,
                                                      .n_adapter = j->lora->n, .keep = j->keep_layers }, &part, e))
            return e->code;
        *loss += part;
    }
    return ERR_OK;
}

/* When steps end at the latest: the last test has to follow. */
static double limit_s(const struct job *j)
{
    const double s = j->o->time_s - 1.2 * j->test_s;

    return s > 1 ? s : 1;
}

/* The part of the training that is done: of its steps, so that it can be repeated; of its time where that will not do for
 * all of them. */
static double part_done(const struct job *j)
{
    const double steps = (double)j->step / (double)j->steps, now = spent_s(j);
    const int64_t taken = j->step - j->step_first;
    const double each = taken > 0 ? (now - j->learn_from_s) / (double)taken : 0;

    if (now >= limit_s(j))
        return 1;
    if (taken < WARM || now + each * (double)(j->steps - j->step) <= limit_s(j) || steps >= now / limit_s(j))
        return steps;
    return now / limit_s(j);
}

/* A step of AdamW, behind the shield; false: the gradient is not a number. */
static bool move(struct job *j, double rate)
{
    float *theta = j->lora->theta;

    if (j->shield != NULL) {
        tune_shield_apply(j->shield, j->gradient);
        memcpy(j->was, theta, (size_t)j->lora->n_params * sizeof *theta);
    }
    if (!isfinite(train_adam_step(&j->adam, grad_pool(j->g), &adam, (float)rate, theta, j->gradient, NULL)))
        return false;
    for (int64_t i = 0; j->shield != NULL && i < j->lora->n_params; i++)
        theta[i] -= j->was[i];
    if (j->shield != NULL)
        tune_shield_apply(j->shield, theta);
    for (int64_t i = 0; j->shield != NULL && i < j->lora->n_params; i++)
        theta[i] += j->was[i];
    return true;
}

static enum err_code one_step(struct job *j, struct grad_seq *seq, double *loss, struct err *e)
{
    const int n = batch(j, seq);
    const double rate = train_rate((double)j->o->rate, j->step, WARM, part_done(j));

    if (j->zo != NULL) {
        if (tune_zo_step(j->zo, seq, n, loss, e))
            return e->code;
        if (fwrite(j->zo->note, sizeof *j->zo->note, (size_t)j->o->samples, j->log) != (size_t)j->o->samples ||
            fflush(j->log) != 0)
            return err_set(e, ERR_IO, "%s: cannot write", j->half);
    } else if (first_order(j, seq, n, loss, e)) {
        return e->code;
    } else if (!isfinite(*loss) || !move(j, rate)) {
        return err_set(e, ERR_FORMAT, "step %" PRId64 ": the loss is not a number: a smaller --rate may help", j->step);
    }
    j->step++;
    return ERR_OK;
}

static void report(struct job *j, double loss, double *last_ms)
{
    const double part = part_done(j), left = part > 0 ? spent_s(j) * (1 - part) / part : j->o->time_s;
    char clock[32];

    cli_train_point(&j->report, loss);
    cli_progress("step %" PRId64 " of %" PRId64 ", loss %.3f, %s left", j->step, j->steps, loss, cli_train_clock(left, clock));
    if (cli_now_ms() - *last_ms < REPORT_MS)
        return;
    *last_ms = cli_now_ms();
    cli_train_event(&j->report, "step", json_pack("{s:I, s:I, s:f, s:f}", "step", (json_int_t)j->step, "steps",
                                                  (json_int_t)j->steps, "loss", loss, "eta_seconds", left));
}

/* ---- what was interrupted ---- */

struct half {
    char    name[200];
    int64_t step, n_params;
    double  spent_s, eps, rate; /* the last two of zo */
};

static enum err_code save(struct job *j, struct err *e)
{
    struct half h = { .step = j->step, .n_params = j->lora->n_params, .spent_s = spent_s(j) };
    const size_t n = (size_t)h.n_params * sizeof(float);
    struct io_out *out;

    if (j->zo != NULL) /* its log is there */
        return ERR_OK;
    memcpy(h.name, j->name, sizeof h.name);
    if (io_out_open(&out, j->half, e))
        return e->code;
    if (io_out_write(out, &h, sizeof h, e) || io_out_write(out, j->lora->theta, n, e) ||
        io_out_write(out, j->adam.m, n, e) || io_out_write(out, j->adam.v, n, e)) {
        io_out_abort(out);
        return e->code;
    }
    return io_out_commit(out, e);
}

static enum err_code replay(struct job *j, const char *at, size_t n, struct err *e)
{
    const size_t each = (size_t)j->o->samples * sizeof(struct tune_zo_note);
    struct tune_zo_note *note = calloc((size_t)j->o->samples, sizeof *note);
    enum err_code code = note == NULL ? no_memory(e) : ERR_OK;

    for (; n >= each && code == ERR_OK; at += each, n -= each) {
        memcpy(note, at, each);
        code = tune_zo_again(j->zo, note, e) ? err_wrap(e, "%s", j->half) : ERR_OK;
        j->step += code == ERR_OK;
    }
    free(note);
    return code;
}

/* Goes on from what an interrupted run of the same command left. */
static enum err_code resume(struct job *j, struct err *e)
{
    const size_t n = (size_t)j->lora->n_params * sizeof(float);
    struct half h;
    char *data;
    size_t bytes;
    enum err_code code = ERR_OK;

    if (access(j->half, F_OK) != 0)
        return ERR_OK;
    if (io_read_all(&data, &bytes, j->half, (size_t)1 << 32, cli_interrupted, e))
        return e->code;
    if (bytes < sizeof h || (memcpy(&h, data, sizeof h), memcmp(h.name, j->name, sizeof h.name) != 0) ||
        h.n_params != j->lora->n_params || (j->zo == NULL && bytes != sizeof h + 3 * n))
        code = err_set(e, ERR_ARG, "%s belongs to another training: finish it with its own command, or remove the file", j->half);
    else if (j->zo != NULL) {
        j->zo->o.eps = h.eps;
        j->zo->o.rate = h.rate;
        code = replay(j, data + sizeof h, bytes - sizeof h, e);
    } else {
        memcpy(j->lora->theta, data + sizeof h, n);
        memcpy(j->adam.m, data + sizeof h + n, n);
        memcpy(j->adam.v, data + sizeof h + 2 * n, n);
        j->adam.step = j->step = h.step;
        j->before_s = h.spent_s;
    }
    free(data);
    if (code == ERR_OK)
        cli_warn("goes on after %" PRId64 " steps", j->step);
    return code;
}

static bool measure_tick(void *ctx, uint64_t done, uint64_t total)
{
    (void)ctx;
    cli_progress("measuring: %llu of %llu", (unsigned long long)done, (unsigned long long)total);
    return !cli_interrupted();
}

/* The log of zo: new with its measured sizes, or cut to whole steps. */
static enum err_code open_log(struct job *j, struct grad_seq *seq, struct err *e)
{
    const struct progress progress = { measure_tick, NULL };
    struct half h = { .n_params = j->lora->n_params };
    const size_t each = (size_t)j->o->samples * sizeof(struct tune_zo_note);
    bool ok;

    if (j->step == 0 && tune_zo_measure(j->zo, seq, batch(j, seq), TRIES, &progress, e))
        return e->code;
    if (cli_given(j->cli, "rate"))
        j->zo->o.rate = (double)j->o->rate;
    cli_note("eps %g, rate %g", j->zo->o.eps, j->zo->o.rate);
    memcpy(h.name, j->name, sizeof h.name);
    h.eps = j->zo->o.eps;
    h.rate = j->zo->o.rate;
    j->log = fopen(j->half, j->step == 0 ? "wb" : "r+b");
    ok = j->log != NULL && (j->step > 0 || fwrite(&h, sizeof h, 1, j->log) == 1) &&
         fseek(j->log, (long)(sizeof h + (size_t)j->step * each), SEEK_SET) == 0 && fflush(j->log) == 0;
    if (!ok && j->step == 0) /* there is nothing to go on from */
        unlink(j->half);
    return ok ? ERR_OK : err_set(e, ERR_IO, "%s: cannot write", j->half);
}

static enum err_code learn(struct job *j, struct err *e)
{
    struct grad_seq *seq = calloc((size_t)(j->o->n_text + j->o->keep_batch), sizeof *seq);
    double loss, last_ms = 0, saved_ms = cli_now_ms();
    enum err_code code = seq == NULL ? no_memory(e) : ERR_OK;

    if (code == ERR_OK && j->zo != NULL)
        code = open_log(j, seq, e);
    j->step_first = j->step;
    j->learn_from_s = spent_s(j);
    while (code == ERR_OK && part_done(j) < 1) {
        code = cli_interrupted() ? err_set(e, ERR_CANCEL, "interrupted") : one_step(j, seq, &loss, e);
        if (code != ERR_OK)
            break;
        report(j, loss, &last_ms);
        if (cli_now_ms() - saved_ms > SAVE_MS) {
            struct err late;

            if (save(j, &late) != ERR_OK)
                cli_warn("what was learnt so far is not saved: %s", late.msg);
            saved_ms = cli_now_ms();
        }
    }
    free(seq);
    return code;
}

/* ---- the gate ---- */

static void print_set(struct job *j, const char *name, const struct train_items *s, int which)
{
    double loss[2] = { 0 };
    int64_t exact[2] = { 0 };

    if (s->n == 0)
        return;
    for (int64_t i = 0; i < s->n; i++) {
        loss[0] += j->before[which][i].loss / (double)s->n;
        loss[1] += j->after[which][i].loss / (double)s->n;
        exact[0] += j->before[which][i].exact;
        exact[1] += j->after[which][i].exact;
    }
    if (!j->o->quiet)
        fprintf(j->report.events == stdout ? stderr : stdout,
                "%-10s %6" PRId64 " items, nats a token %.4f -> %.4f, exact answers %" PRId64 " -> %" PRId64 "\n", name, s->n,
                loss[0], loss[1], exact[0], exact[1]);
    cli_train_event(&j->report, "test", json_pack("{s:s, s:I, s:f, s:f, s:I, s:I}", "set", name, "items", (json_int_t)s->n,
                                                  "loss_before", loss[0], "loss", loss[1], "exact_before",
                                                  (json_int_t)exact[0], "exact", (json_int_t)exact[1]));
}

/* Of what is to be kept, what the user named counts, and of the task sets what was known: the rest may be what is learnt. */
static bool counts(const struct job *j, int which, int64_t i, int set)
{
    return which == 0 || ((j->o->keep_files.n > 0 || j->before[1][i].exact) && (set < 0 || j->kept.v[i].set == set));
}

/* p of: the losses of the items of a set (-1: of all) have fallen (more: have not risen by as much as that); 0 where there are
 * too few. */
static enum err_code p_of(const struct job *j, int which, int set, double more, double *p, struct err *e)
{
    const int64_t n = which == 0 ? j->tests.n : j->kept.n;
    double *gain = calloc((size_t)n + 1, sizeof *gain);
    int64_t m = 0;

    if (gain == NULL)
        return no_memory(e);
    for (int64_t i = 0; i < n; i++)
        if (counts(j, which, i, set))
            gain[m++] = j->before[which][i].loss + more - j->after[which][i].loss;
    *p = m < LEAST_TESTS ? 0 : train_gate(gain, m, (uint64_t)j->o->seed);
    free(gain);
    return ERR_OK;
}

static enum err_code decide(struct job *j, int *status, struct err *e)
{
    int last = -1;
    double p, p_kept = 0, one;
    bool better, keeps;

    for (int64_t i = 0; i < j->kept.n; i++)
        last = j->kept.v[i].set > last ? j->kept.v[i].set : last;
    if (p_of(j, 0, -1, 0, &p, e))
        return e->code;
    for (int set = -1; set <= last; set++) {
        if (p_of(j, 1, set, (double)j->o->forget, &one, e))
            return e->code;
        p_kept = one > p_kept ? one : p_kept;
    }
    better = p < P_MAX;
    keeps = p_kept < P_MAX;
    *status = better && keeps ? EXIT_OK : EXIT_NO;
    cli_train_event(&j->report, "end", json_pack("{s:b, s:f, s:f, s:I}", "published", *status == EXIT_OK, "p", p, "p_kept",
                                                 p_kept, "steps", (json_int_t)j->step));
    if (*status == EXIT_OK && io_publish(j->o->out, j->fresh, j->o->keep, e))
        return e->code;
    if (*status == EXIT_OK)
        cli_warn("%s is written: it knows more than %s (p = %.2g)", j->o->out,
                 j->begin.old != NULL ? "the one before" : "the model alone", p);
    else {
        cli_train_drop(&j->fresh);
        cli_warn("%s: %s (p = %.2g, %g is the limit)%s", j->o->out,
                 !better ? "not better on what is held out" : "it forgets what is kept", better ? p_kept : p, P_MAX,
                 j->begin.old != NULL ? ": the old one stays" : ": nothing is written");
    }
    unlink(j->half);
    return ERR_OK;
}

/* Writes the new one and tests what was written. */
static enum err_code test_fresh(struct job *j, struct err *e)
{
    struct adapter *a = NULL;
    struct tune_lora *l = NULL;
    enum err_code code = cli_train_fresh(&j->fresh, j->o->out, e);

    if (code == ERR_OK)
        code = tune_lora_write(j->lora, j->fresh, "f16", e);
    if (code == ERR_OK)
        code = adapter_open(&a, j->fresh, e);
    if (code == ERR_OK)
        code = tune_lora_of(&l, j->g, a, e);
    if (code == ERR_OK)
        code = test_both(j, l, j->after, e);
    tune_lora_close(l);
    adapter_close(a);
    return code;
}

static enum err_code train(struct job *j, int *status, struct err *e)
{
    double from;

    if (rehearse(j, e) || resume(j, e))
        return e->code;
    from = cli_now_ms();
    if (test_both(j, j->begin.champion, j->before, e))
        return e->code;
    j->test_s = (cli_now_ms() - from) / 1e3;
    cli_train_event(&j->report, "begin", json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "command", "lora", "method",
                                                   j->zo == NULL ? "first" : "zo", "items", (json_int_t)j->items.n, "tests",
                                                   (json_int_t)j->tests.n, "keep", (json_int_t)j->keep.n, "kept",
                                                   (json_int_t)j->kept.n, "own", (json_int_t)j->own.n, "parameters",
                                                   (json_int_t)j->lora->n_params));
    cli_note("%" PRId64 " items to learn, %" PRId64 " to test on, %" PRId64 " to keep, %" PRId64 " of them to test on, %" PRId64
             " that the model wrote; %" PRId64 " parameters", j->items.n, j->tests.n, j->keep.n + j->kept.n, j->kept.n,
             j->own.n, j->lora->n_params);
    if (learn(j, e)) {
        struct err ignored;

        if (e->code == ERR_CANCEL && j->step > 0 && save(j, &ignored) == ERR_OK)
            cli_warn("%s keeps what was learnt in %" PRId64 " steps: the same command goes on from there", j->half, j->step);
        return e->code;
    }
    if (test_fresh(j, e))
        return e->code;
    cli_progress_end();
    print_set(j, "held out", &j->tests, 0);
    print_set(j, "kept", &j->kept, 1);
    return decide(j, status, e);
}

int cli_train_lora(const struct train_options *o, const struct cli *cli, char *const *files)
{
    struct job j = { .o = o, .cli = cli, .from_ms = cli_now_ms() };
    struct err e = { 0 };
    int status = EXIT_OK;
    enum err_code code = open_all(&j, files, &e);

    if (code == ERR_OK)
        code = train(&j, &status, &e);
    status = cli_train_end(&j.report, code, status, &e);
    close_all(&j);
    return status;
}
