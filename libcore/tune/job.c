/* SPDX-License-Identifier: Apache-2.0 */
/* job.c - the opening of an adapter's training: its items, the memory it takes, its name. */
#include "tune/job.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "adapt/adapt.h"
#include "base/io.h"
#include "base/memory.h"
#include "train/files.h"
#include "tune/lora.h"
#include "tune/self_written.h"
#include "tune/shield.h"
#include "tune/wordings.h"
#include "tune/zo.h"

enum { ALPHA = 2, ALPHA_SHIELD = 8 };
enum { EPOCHS = 12, STEPS = 400 }; /* unless the user says */

/* ---- the program ---- */

double tune_now_ms(const struct tune_job *j)
{
    return j->calls->now_ms(j->calls->ctx);
}

double tune_spent_s(const struct tune_job *j)
{
    return j->report.before_s + (tune_now_ms(j) - j->report.from_ms) / 1e3;
}

void tune_note(const struct tune_job *j, bool warning, const char *fmt, ...)
{
    char line[1024];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    j->calls->note(j->calls->ctx, warning, line);
}

enum err_code tune_tick(const struct tune_job *j, enum tune_phase phase, int64_t done, int64_t total, struct err *e)
{
    const struct tune_tick t = { phase, done, total, 0 };

    return j->calls->tick(j->calls->ctx, &t) ? ERR_OK : err_set(e, ERR_CANCEL, "interrupted");
}

/* ---- items ---- */

/* Where the model thinks, a question is two items. */
static const char *asked_twice(const struct tune_items *s)
{
    int64_t thinks = 0;

    for (int64_t i = 0; i < s->n; i++)
        thinks += s->v[i].thinks;
    return thinks > 0 && thinks < s->n ? " (each question is asked with and without thinking)" : "";
}

/* Whether there is enough to learn, to test on and to keep; says what was left out. */
static enum err_code check_items(const struct tune_job *j, struct err *e)
{
    const int64_t n_out = j->data.learn.n_out + j->data.tests.n_out + j->data.keep.n_out +
                          (j->o->keep_tests_named ? j->data.kept.n_out : 0);
    const int64_t n_keep = j->data.keep.n + (int64_t)json_array_size(j->data.keep.open),
                  same = tune_items_same(&j->data.tests, &j->data.learn);
    char out[160] = "";

    if (n_out > 0)
        (void)snprintf(out, sizeof out,
                       "%" PRId64 " items are left out: more than %" PRId64 " tokens (-c: a longer context), no "
                       "text or no answer",
                       n_out, j->o->tokens_max);
    if (j->data.learn.n == 0)
        return err_set(e, ERR_FORMAT, "there is nothing to learn: %s", n_out > 0 ? out : "the files have no items");
    if (j->data.tests.n < TUNE_LEAST_TESTS)
        return err_set(e, ERR_FORMAT, "%" PRId64 " items to test on are too few%s: at least %d are needed%s%s%s",
                       j->data.tests.n, asked_twice(&j->data.tests), TUNE_LEAST_TESTS,
                       j->o->tests_named        ? " in the files of --held-out"
                       : j->data.n_wordings > 0 ? "; teach more facts, or name a file of questions with --held-out"
                                                : "; ask each fact in two wordings, and the test asks it in others, "
                                                  "or name a file of other questions with --held-out",
                       n_out > 0 ? "; " : "", out);
    if (j->o->keep_tests_named && j->data.kept.n < TUNE_LEAST_TESTS)
        return err_set(e, ERR_FORMAT, "--keep-test: %" PRId64 " items are too few: at least %d are needed%s%s",
                       j->data.kept.n, TUNE_LEAST_TESTS, n_out > 0 ? "; " : "", out);
    if (j->o->keep_named && !j->o->keep_tests_named && n_keep < TUNE_KEEP_EVERY * TUNE_LEAST_TESTS)
        return err_set(e, ERR_FORMAT,
                       "--keep: %" PRId64 " items are too few: one in %d is tested on, and at least %d are needed"
                       "%s%s",
                       n_keep, TUNE_KEEP_EVERY, TUNE_KEEP_EVERY * TUNE_LEAST_TESTS, n_out > 0 ? "; " : "", out);
    if (n_out > 0)
        tune_note(j, true, "%s", out);
    if (same > 0)
        tune_note(j, true,
                  "%" PRId64 " of the %" PRId64
                  " items to test on%s are also learnt: of these the test shows only that they are known by heart",
                  same, j->data.tests.n, asked_twice(&j->data.tests));
    return ERR_OK;
}

/* What is tested for forgetting: sets of --keep-test, which are never trained on, a part of --keep, or task sets. */
static enum err_code choose_kept(struct tune_job *j, struct err *e)
{
    struct tune_data *d = &j->data;
    int64_t learnt = 0, kept = 0;

    if (j->o->keep_named || j->o->keep_tests_named)
        tune_items_free(&d->kept);
    tune_items_drop_texts(&d->kept); /* of task sets: nobody has learnt them, and they show nothing */
    if (!j->o->keep_tests_named)
        return ERR_OK;
    d->kept = d->keep_tests;
    d->keep_tests = (struct tune_items){ 0 };
    if (tune_items_drop(&d->learn, &d->kept, &learnt, e) || tune_items_drop(&d->keep, &d->kept, &kept, e))
        return e->code;
    if (learnt + kept > 0)
        tune_note(j, true, "%" PRId64 " items are not trained on: they are in a file of --keep-test", learnt + kept);
    return ERR_OK;
}

/* Says what of the questions cannot be learnt: the same one with several answers, or the same answer for all. */
static enum err_code look_at_pairs(const struct tune_job *j, const json_t *pairs, bool *one_answer, struct err *e)
{
    json_t *first = json_object(), *twice = json_object(), *pair;
    const json_t *any = NULL;
    bool ok = first != NULL && twice != NULL;
    size_t i;

    *one_answer = json_array_size(pairs) > 1;
    json_array_foreach (pairs, i, pair) {
        const char *prompt = json_string_value(json_object_get(pair, "prompt"));
        json_t *answer = json_object_get(pair, "answer"), *was = json_object_get(first, prompt);

        any = any == NULL ? answer : any;
        *one_answer = *one_answer && json_equal(any, answer);
        if (was == NULL)
            ok = ok && json_object_set(first, prompt, answer) == 0;
        else if (!json_equal(was, answer))
            ok = ok && json_object_set_new(twice, prompt, json_true()) == 0;
    }
    if (ok && json_object_size(twice) > 0)
        tune_note(j, true, "%zu %s different answers: it can learn one of them at most", json_object_size(twice),
                  json_object_size(twice) == 1 ? "question has" : "questions have");
    json_decref(first);
    json_decref(twice);
    return ok ? ERR_OK : err_nomem(e);
}

/* Further wordings of facts. Where the user has named no tests, some are the test: a fact that is held out cannot be
 * learnt from the others. */
static enum err_code make_wordings(struct tune_job *j, struct tune_items *more, bool *one_answer, struct err *e)
{
    struct tune_data *d = &j->data;
    const struct tune_reading how = {
        .text = j->text, .tokens_max = j->o->tokens_max, .now_s = j->o->now_s, .twins = true
    };
    struct tune_wordings w = { 0 };
    json_t *pairs = tune_items_pairs(&d->learn), *tests = tune_items_pairs(&d->tests);
    int64_t n_tests;
    enum err_code code = pairs == NULL || tests == NULL ? err_nomem(e) : look_at_pairs(j, pairs, one_answer, e);

    if (code == ERR_OK)
        code = tune_wordings_make(&w, pairs, tests, j->o->wordings, e);

    json_decref(pairs);
    json_decref(tests);
    if (code == ERR_OK)
        code = tune_items_add_pairs(more, &how, w.learn, e);
    if (code == ERR_OK && !j->o->tests_named)
        code = tune_items_add_pairs(&d->tests, &how, w.tests, e);
    n_tests = d->tests.n;
    if (code == ERR_OK && !j->o->tests_named)
        tune_items_thin(&d->tests, TUNE_TESTS_MAX / 2, false);
    if (code == ERR_OK && more->n > 0)
        tune_note(j, true,
                  "%" PRId64 " %s also learnt in other words: %" PRId64
                  " questions, in %d shapes of the program's own and %d of other items%s",
                  w.n_fact, w.n_fact == 1 ? "fact is" : "facts are", more->n, w.n_own, w.n_shape,
                  !j->o->tests_named && n_tests > 0 ? "; the test asks them in two other shapes" : "");
    tune_wordings_free(&w);
    return code;
}

/* What of the items is tested on; each of those once. */
static enum err_code split_items(struct tune_job *j, struct err *e)
{
    struct tune_data *d = &j->data;
    int64_t twice = 0, keep_twice = 0, asked;
    bool a_tenth = false, one_answer = false; /* of the questions is held out; all have the same */
    struct tune_items more = { 0 };
    enum err_code code;

    d->sets = json_incref(d->kept.sets);
    code = choose_kept(j, e) || make_wordings(j, &more, &one_answer, e) ? e->code : ERR_OK;
    if (code == ERR_OK && !j->o->tests_named && d->tests.n == 0) {
        code = tune_items_split(&d->learn, &d->tests, 10, TUNE_TESTS_MAX, e);
        a_tenth = d->tests.v != NULL && d->tests.n > 0 && !d->tests.v[0].is_text;
    }
    d->n_asked = d->learn.n;
    if (code == ERR_OK)
        code = tune_items_once(&d->tests, &twice, e) || tune_items_once(&d->keep, &keep_twice, e) ||
                       tune_items_part_twins(&d->learn, e) || tune_items_part_twins(&d->tests, e)
                   ? e->code
                   : ERR_OK;
    tune_items_choose_twins(&more, (uint64_t)j->o->seed);
    d->n_given = d->learn.n;
    d->n_wordings = more.n;
    if (code == ERR_OK)
        code = tune_items_move(&d->learn, &more, e);
    tune_items_free(&more);
    if (code != ERR_OK)
        return code;
    if (twice > 0)
        tune_note(j, true, "%" PRId64 " items to test on are named more than once, and count once", twice);
    if (check_items(j, e))
        return e->code;
    if (a_tenth)
        tune_note(j, true, "one item in ten is not learnt but tested on: of facts the others do not tell these; %s",
                  one_answer ? "as all have the same answer, nothing says what a question is about"
                             : "ask each fact in two wordings, and the test asks it in others");
    tune_items_thin(&d->kept, TUNE_SETS_MAX, true);
    asked = tune_items_longest(&d->learn);
    asked = asked > TUNE_OWN_TEXT ? asked : TUNE_OWN_TEXT;
    if ((d->keep.open != NULL || json_array_size(d->sets) > 0) && asked < TUNE_OWN_ASKED)
        asked = TUNE_OWN_ASKED;
    j->own_tokens = asked + TUNE_OWN_ANSWER < j->o->tokens_max ? asked + TUNE_OWN_ANSWER : j->o->tokens_max;
    return ERR_OK;
}

/* ---- memory ---- */

/* Bytes of the parameters and what is kept beside them, of what is rehearsed and of the shield. In the steps these are
 * the parameters, the file, gradient and moments, and what a step began with; in the last test the whole adapter, what
 * is written, and what is read again instead. An old adapter is there three times. */
static int64_t own_bytes(const struct tune_job *j)
{
    const int64_t copies = (j->o->method == TUNE_FIRST ? 6 : 6 + 2 * j->o->samples) + (j->begin.from != NULL);
    const int64_t old = j->begin.old != NULL ? 3 * adapter_floats(j->begin.old) : 0;
    const int64_t n = j->o->rehearse * 9 / 8 + (int64_t)json_array_size(j->data.keep.open);
    int64_t rows = n * TUNE_OWN_ANSWER, shield = j->shielded ? tune_shield_bytes(j->state.lora) : 0;

    for (int64_t i = 0; i < j->data.keep.n; i++)
        rows += j->data.keep.v[i].n_answer;
    return (j->state.lora->n_params * copies + old) * (int64_t)sizeof(float) + shield +
           rows * (int64_t)sizeof(struct grad_soft) + n * j->own_tokens * 2 * (int64_t)sizeof(int32_t);
}

/* Whether there would be a shield: where there is something to rehearse. */
static bool wants_shield(const struct tune_opts *o)
{
    return o->method == TUNE_FIRST && o->shield > 0 && (o->rehearse > 0 || o->keep_named);
}

/* The least --memory for a pass of n rows: with a shield, where half of it is enough for that. */
static int64_t least_bytes(const struct tune_job *j, int64_t n)
{
    const int64_t shield = tune_shield_bytes(j->state.lora);
    const int64_t bare = grad_bytes(j->g, n, j->state.lora->rank, false) + own_bytes(j) - (j->shielded ? shield : 0);

    return wants_shield(j->o) && shield <= bare / 2 ? bare + shield : bare;
}

static int64_t shield_mib(const struct tune_job *j)
{
    return (tune_shield_bytes(j->state.lora) >> 20) + 1;
}

/* Whether there is a shield: where half of --memory is enough for it. */
static enum err_code choose_shield(struct tune_job *j, struct err *e)
{
    const struct tune_opts *o = j->o;

    j->shielded = wants_shield(o) && tune_shield_bytes(j->state.lora) <= o->memory_bytes / 2;
    if (wants_shield(o) && !j->shielded && o->shield_given)
        return err_set(e, ERR_ARG, "--shield takes %" PRId64 " MiB, and --memory has to be twice that", shield_mib(j));
    if (j->begin.fresh && o->alpha_free) /* behind a shield the same step does less */
        j->state.lora->file->alpha = (j->shielded ? ALPHA_SHIELD : ALPHA) * (float)o->rank;
    return ERR_OK;
}

/* Whether a pass of n rows fits into --memory, on a GPU also into what that has beside the adapters. */
static bool pass_fits(const struct tune_job *j, int64_t n, bool keep)
{
    const int64_t gpu = grad_room(j->g), copies = j->o->method == TUNE_FIRST ? 2 : 2 * j->o->samples + 3;
    const int64_t bytes = grad_bytes(j->g, n, j->state.lora->rank, keep), host = j->o->memory_bytes - own_bytes(j);

    if (gpu < 0)
        return bytes <= host;
    return grad_host_bytes(j->g, n) <= host && bytes <= gpu - copies * j->state.lora->n_params * (int64_t)sizeof(float);
}

/* The rows of a pass that memory allows; said before anything is taken. */
static enum err_code bound_memory(struct tune_job *j, struct err *e)
{
    static const char *const what[] = { "an item to learn", "an item to test on", "an item to keep",
                                        "an item that tests what is kept", "a text that the model writes" };
    const int64_t need[] = { tune_items_longest(&j->data.learn), tune_items_longest(&j->data.tests),
                             tune_items_longest(&j->data.keep), tune_items_longest(&j->data.kept),
                             j->o->rehearse > 0 || j->data.keep.open != NULL ? j->own_tokens : 0 };
    const int64_t left = memory_left("");
    int64_t most = 0, all, lo = 0, hi = 1 << 16;
    int longest = 0;
    const bool gpu = grad_room(j->g) >= 0;

    for (int i = 0; i < 5; i++)
        longest = need[i] > need[longest] ? i : longest;
    most = need[longest];
    if (most > grad_longest(j->g))
        return err_set(e, ERR_ARG,
                       "an item of %" PRId64 " tokens is too long for gradients on a GPU, which take %" PRId64
                       ": a smaller --ctx, or --device cpu",
                       most, grad_longest(j->g));
    j->keep_layers = j->o->method == TUNE_FIRST && pass_fits(j, 4 * most, true);
    while (lo < hi) {
        const int64_t mid = (lo + hi + 1) / 2;

        if (pass_fits(j, mid, j->keep_layers))
            lo = mid;
        else
            hi = mid - 1;
    }
    j->rows_max = lo;
    if (lo < most)
        return err_set(
            e, ERR_ARG, "%s too small: %s of %" PRId64 " tokens takes %" PRId64 " MiB%s",
            gpu ? "--memory or the GPU's memory is" : "--memory is", what[longest], most,
            ((gpu ? grad_bytes(j->g, most, j->state.lora->rank, false) : least_bytes(j, most)) + (1 << 20) - 1) >> 20,
            gpu ? " of the GPU's" : "");
    j->room_bytes = j->o->memory_bytes - (gpu ? 0 : own_bytes(j));
    all = own_bytes(j) + (gpu ? grad_host_bytes(j->g, lo) : grad_bytes(j->g, lo, j->state.lora->rank, j->keep_layers));
    if (left >= 0 && all > left)
        return err_set(e, ERR_LIMIT, "%" PRId64 " MiB of memory are left: a smaller --memory takes less", left >> 20);
    if (wants_shield(j->o) && !j->shielded)
        tune_note(j, true, "no shield: it takes %" PRId64 " MiB, more than half of --memory", shield_mib(j));
    if (gpu)
        tune_note(j, true, "a pass takes at most %" PRId64 " MiB of the GPU's memory",
                  grad_bytes(j->g, lo, j->state.lora->rank, j->keep_layers) >> 20);
    tune_note(j, true,
              "memory: at most %" PRId64 " MiB beside the model's file: %" PRId64 " rows in a pass, %" PRId64
              " parameters",
              all >> 20, lo, j->state.lora->n_params);
    return ERR_OK;
}

/* What an interrupted training must have in common with this one. */
static uint64_t hash_items(uint64_t h, const struct tune_items *s)
{
    for (int64_t i = 0; i < s->n; i++)
        h = io_hash(h, s->v[i].token.v, (size_t)s->v[i].token.n * sizeof(int32_t));
    return h;
}

/* Questions without an answer. */
static enum err_code hash_open(uint64_t *h, const json_t *open, struct err *e)
{
    char *text = open == NULL ? NULL : json_dump(open, JSON_COMPACT | JSON_SORT_KEYS);

    if (open != NULL && text == NULL)
        return err_nomem(e);
    if (text != NULL)
        *h = io_hash(*h, text, strlen(text));
    free(text);
    return ERR_OK;
}

static enum err_code name_job(struct tune_job *j, struct err *e)
{
    const struct tune_opts *o = j->o;
    uint64_t h = hash_items(hash_items(0, &j->data.learn), &j->data.keep);

    if (hash_open(&h, j->data.keep.open, e))
        return e->code;
    for (int i = 0; i < grad_n_matrices(j->g); i++) {
        const struct grad_matrix *m = grad_matrix_at(j->g, i);

        h = io_hash(h, m->data, 64 < m->n_in ? 64 : (size_t)m->n_in);
    }
    h = io_hash(h, j->state.lora->theta, (size_t)j->state.lora->n_params * sizeof(float));
    const double rest[] = { (double)o->seed,
                            (double)o->momentum,
                            (double)o->keep_batch,
                            (double)o->keep_weight,
                            (double)o->rehearse,
                            (double)j->state.lora->file->alpha,
                            j->shielded ? (double)o->shield : 0,
                            (double)o->cpu_time };
    h = io_hash(h, rest, sizeof rest);
    (void)snprintf(j->name, sizeof j->name,
                   "%016" PRIx64 " %s rank %d batch %d steps %" PRId64 " rate %g samples %d time %.0f", h,
                   o->method == TUNE_FIRST ? "first" : "zo", j->state.lora->rank, o->n_text, j->steps, (double)o->rate,
                   o->samples, o->time_s);
    return ERR_OK;
}

enum err_code tune_write_neutral(struct tune_job *j, struct err *e)
{
    if (choose_shield(j, e))
        return e->code;
    tune_lora_weaken(j->state.lora, 0);
    j->state.lora->file->record = "{\"method\":\"neutral\"}";
    return tune_lora_write(j->state.lora, j->o->out, "f16", e);
}

/* The adapter in halves, and what is kept of an interrupted training: parameters and two moments. */
static uint64_t file_bytes(const struct tune_job *j)
{
    return (uint64_t)j->state.lora->n_params * (2 + (j->o->method == TUNE_FIRST ? 3 * sizeof(float) : 0));
}

enum err_code tune_job_open(struct tune_job *j, struct err *e)
{
    const struct tune_opts *o = j->o;
    struct tune_state *s = &j->state;

    if (split_items(j, e) || choose_shield(j, e) || bound_memory(j, e))
        return e->code;
    j->pace = (struct tune_pace){ o->n_text, o->keep_batch, o->rehearse };
    j->steps = (j->data.n_given + o->n_text - 1) / o->n_text * (o->epochs > 0 ? o->epochs : EPOCHS);
    j->steps = o->epochs == 0 && j->steps < STEPS ? STEPS : j->steps;
    j->steps = o->steps > 0 && o->steps < j->steps ? o->steps : j->steps;
    if (name_job(j, e) || io_room_for(o->out, file_bytes(j), e))
        return e->code;
    j->half = train_beside(o->out, ".train");
    s->adapters = calloc((size_t)s->lora->n, sizeof *s->adapters);
    if (j->half == NULL || s->adapters == NULL)
        return err_nomem(e);
    if (o->method == TUNE_ZO)
        return tune_zo_open(
            &s->zo, s->lora,
            &(struct tune_zo_opts){ (uint64_t)o->seed, 1e-2, (double)o->rate, o->samples, o->momentum, j->rows_max },
            e);
    s->gradient = calloc((size_t)s->lora->n_params, sizeof *s->gradient);
    return s->gradient == NULL ? err_nomem(e) : train_adam_open(&s->adam, s->lora->n_params, e);
}

void tune_job_close(struct tune_job *j)
{
    for (int i = 0; i < 2; i++) {
        free(j->report.before[i]);
        free(j->report.after[i]);
    }
    if (j->state.log != NULL)
        fclose(j->state.log);
    tune_zo_close(j->state.zo);
    tune_end_steps(j);
    free(j->state.adapters);
    free(j->state.order);
    free(j->state.seen);
    free(j->state.which);
    free(j->state.seq_loss);
    train_drop(&j->fresh);
    free(j->half);
    tune_items_free(&j->data.learn);
    tune_items_free(&j->data.tests);
    tune_items_free(&j->data.keep);
    tune_items_free(&j->data.kept);
    tune_items_free(&j->data.keep_tests);
    tune_items_free(&j->data.own);
    json_decref(j->data.sets);
    free(j->report.outcome);
    free(j->begin.from);
    tune_lora_close(j->begin.lora);
    tune_lora_close(j->begin.champion);
    adapter_close(j->begin.old);
}
