/* SPDX-License-Identifier: Apache-2.0 */
/* record.c - what is known of an adapter: by its test, in its file, and from there on the terminal.    room: cmd */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "adapt/adapt.h"
#include "base/json.h"
#include "draft-train/program.h"
#include "ramp/ramp.h"
#include "tune/job.h"
#include "tune/lora.h"

const char *cli_train_before(const struct tune_job *j)
{
    return j->begin.old != NULL ? "with the old adapter" : "before";
}

const char *cli_train_by_thought(char to[CLI_TRAIN_THOUGHT_BYTES], const struct tune_outcome *r)
{
    const int64_t n = r->n - r->n_thinks;

    *to = '\0';
    if (n > 0 && r->n_thinks > 0)
        (void)snprintf(to, CLI_TRAIN_THOUGHT_BYTES,
                       ", %" PRId64 " of %" PRId64 " without thinking and %" PRId64 " of %" PRId64 " after %s thought",
                       r->exact[1] - r->exact_thinks[1], n, r->exact_thinks[1], r->n_thinks,
                       r->thoughts ? "a" : "an empty");
    return to;
}

void cli_train_print_outcome(FILE *f, const struct tune_outcome *r, const struct tune_job *j)
{
    char thought[CLI_TRAIN_THOUGHT_BYTES];

    if (r->set == NULL) {
        fprintf(f, "new: answers %" PRId64 " of %" PRId64 " (%" PRId64 " %s)%s; nats a token %.3f -> %.3f\n",
                r->exact[1], r->n, r->exact[0], cli_train_before(j), cli_train_by_thought(thought, r), r->loss[0],
                r->loss[1]);
        return;
    }
    fprintf(f, "%s: answers %" PRId64 " of %" PRId64 " (%" PRId64 " %s): %" PRId64 " lost, %" PRId64 " won; ",
            *r->set != '\0' ? r->set : "kept", r->exact[1], r->n, r->exact[0], cli_train_before(j), r->lost, r->won);
    if (r->ruling == TUNE_BY_ANSWERS)
        fprintf(f, "at most %.1f %% are lost (lost minus won), %.1f %% may be\n", 100 * r->bound, 100 * r->margin);
    else if (r->ruling == TUNE_BY_LIKELIHOOD)
        fprintf(f, "nats a token %.4f -> %.4f, not %.2g more: p %.2g\n", r->loss[0], r->loss[1], (double)j->o->forget,
                r->p);
    else
        fputs(r->ruling == TUNE_POOLED     ? "judged with the other small sets\n"
              : r->ruling == TUNE_WITH_ALL ? "too few to judge alone\n"
                                           : "too few to judge\n",
              f);
}

/* The lines of the test; malloc'ed, NULL when memory is out. */
static char *test_lines(const struct tune_job *j)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);

    for (int i = 0; f != NULL && i < j->report.n_outcome; i++)
        if (j->report.outcome[i].n > 0)
            cli_train_print_outcome(f, &j->report.outcome[i], j);
    if (f == NULL || fclose(f) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

char *cli_train_record(const struct tune_job *j, const struct gguf *model)
{
    const struct tune_opts *o = j->o;
    char fingerprint[20], *lines = test_lines(j), *text = NULL;
    struct str name = { "", 0 };
    json_t *r;

    (void)gguf_str(model, "general.name", &name);
    (void)snprintf(fingerprint, sizeof fingerprint, "%016" PRIx64, ramp_fingerprint(model));
    r = lines == NULL
            ? NULL
            : json_pack("{s:s%, s:s, s:I, s:I, s:I, s:I, s:I, s:s, s:I, s:f, s:i, s:f, s:i, s:f, s:f, s:s, s:s, s:s}",
                        "model", name.p, (int)name.n, "fingerprint", fingerprint, "items", (json_int_t)j->data.learn.n,
                        "tests", (json_int_t)j->data.tests.n, "written", (json_int_t)j->data.n_written, "rehearsed",
                        (json_int_t)(j->data.own.n + j->data.keep.n), "steps", (json_int_t)j->state.step, "method",
                        o->method == TUNE_FIRST ? "first" : "zo", "seed", (json_int_t)o->seed, "rate", (double)o->rate,
                        "batch", j->pace.n_text, "keep_weight", (double)o->keep_weight, "keep_batch",
                        j->data.own.n + j->data.keep.n > 0 ? j->pace.keep_batch : 0, "shield",
                        j->shielded ? (double)o->shield : 0, "strength", j->report.verdict.strength, "accept",
                        o->accept == TUNE_LIKELIHOOD ? "likelihood" : "answers", o->cpu_time ? "cpu_time" : "time",
                        o->time, "test", lines);
    if (r != NULL)
        text = json_dump(r, JSON_COMPACT | JSON_REAL_PRECISION(7));
    json_decref(r);
    free(lines);
    return text;
}

static void print_member(const json_t *r, const char *key)
{
    const json_t *v = json_object_get(r, key);

    if (json_is_string(v))
        printf("%s: %s\n", key, json_string_value(v));
    else if (json_is_integer(v))
        printf("%s: %" JSON_INTEGER_FORMAT "\n", key, json_integer_value(v));
    else if (json_is_real(v))
        printf("%s: %.7g\n", key, json_real_value(v));
}

static enum err_code print_record(const struct adapter *a, struct err *e)
{
    static const char *const keys[] = { "model", "fingerprint", "items",    "tests",  "written",     "rehearsed",
                                        "steps", "method",      "seed",     "rate",   "keep_weight", "keep_batch",
                                        "batch", "shield",      "strength", "accept", "cpu_time",    "time" };
    json_t *r;

    if (a->record == NULL) {
        puts("it has no record of its training");
        return ERR_OK;
    }
    if (json_parse(&r, str_of(a->record), "the record of its training", e))
        return err_wrap(e, "%s", a->path);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        print_member(r, keys[i]);
    if (json_is_string(json_object_get(r, "test")))
        fputs(json_string_value(json_object_get(r, "test")), stdout);
    json_decref(r);
    return ERR_OK;
}

int cli_train_inspect(const char *path)
{
    struct adapter *a;
    struct err e = { 0 };
    enum err_code code = adapter_open(&a, path, &e);

    if (code != ERR_OK)
        return cli_fail(&e);
    printf("%s: adapter of %s, %s, rank %d, alpha %g, %zu matrices, %" PRId64 " parameters\n", path, a->arch,
           adapter_is_scales(a) ? "scales" : "low rank", adapter_rank(a), (double)a->alpha, a->n, adapter_floats(a));
    code = print_record(a, &e);
    adapter_close(a);
    return code == ERR_OK ? EXIT_OK : cli_fail(&e);
}
