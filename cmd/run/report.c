/* SPDX-License-Identifier: Apache-2.0 */
/* report.c - the report on an answer besides its text: JSON, and notes with -v.             room: cmd */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "cli/expert_cache.h"
#include "cli/placement.h"
#include "model/model.h"
#include "run/placement.h"
#include "run/program.h"
#include "run/run.h"

static const char *const finish_names[] = {
    [GEN_LENGTH] = "length",
    [GEN_EOS] = "stop",
    [GEN_STOP_STRING] = "stop_string",
    [GEN_CONTEXT] = "context",
    [GEN_STOPPED] = "stopped",
    [GEN_LOOP] = "loop",
    [GEN_STEP] = "step",
    [GEN_CANCELLED] = "interrupted",
};

static double per_second(int64_t n, double ms)
{
    return ms > 0 ? (double)n * 1e3 / ms : 0;
}

static int64_t evaluated(const struct cli_run *s)
{
    return prompt_of(s)->n - s->stats.cached_tokens;
}

/* Tokens of the answer after the first one, which the prompt gave. */
static int64_t decoded(const struct cli_run *s)
{
    return s->stats.drafted > 0 ? s->stats.steps + s->stats.kept : s->stats.steps;
}

static json_t *json_usage(const struct cli_run *s)
{
    json_t *u = json_pack("{s:I, s:I, s:I}", "prompt_tokens", (json_int_t)prompt_of(s)->n, "completion_tokens",
                          (json_int_t)s->answer.ids.n, "reasoning_tokens", (json_int_t)s->answer.n_reasoning);

    return json_if(!s->o->session || (cli_json_set(u, "cached_tokens", json_integer(s->stats.cached_tokens)) &&
                                      cli_json_set(u, "evaluated_tokens", json_integer(evaluated(s)))),
                   u);
}

const char *cli_run_finish(const struct cli_run *s)
{
    return finish_names[s->finish];
}

json_t *cli_run_timings(const struct cli_run *s)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:o, s:f, s:f, s:f, s:f, s:f}", "load_ms", s->open.load_ms, "start_ms",
                     s->start_ms, "device_ms", s->open.device_ms, "weights_ms", s->open.weights_ms, "warm_up_ms",
                     s->open.warm_up_ms, "first_token_ms", s->first_ms > 0 ? json_real(s->first_ms) : json_null(),
                     "prompt_ms", s->prompt_ms, "prompt_tps", per_second(evaluated(s), s->prompt_ms), "decode_ms",
                     s->decode_ms, "decode_tps", per_second(decoded(s), s->decode_ms), "decode_cpu_ms",
                     s->decode_cpu_ms);
}

static double share_of(int64_t part, int64_t of)
{
    return of > 0 ? (double)part / (double)of : 0;
}

/* What was guessed, by all drafters and by each. */
static json_t *json_drafts(const struct cli_run *s)
{
    struct draft_stats st[DRAFT_OPEN_MAX];
    const int n = draft_stats(s->draft, st, DRAFT_OPEN_MAX);
    json_t *all = json_array();

    for (int i = 0; i < n; i++)
        json_push(&all, json_pack("{s:o, s:I, s:I, s:f}", "name", json_bytes(str_of(st[i].name)), "drafted",
                                  (json_int_t)st[i].drafted, "kept", (json_int_t)st[i].kept, "ms", st[i].ms));
    return json_pack("{s:I, s:I, s:f, s:I, s:o}", "drafted", (json_int_t)s->stats.drafted, "kept",
                     (json_int_t)s->stats.kept, "kept_share", share_of(s->stats.kept, s->stats.drafted), "steps",
                     (json_int_t)s->stats.steps, "drafters", all);
}

static void note_drafts(const struct cli_run *s)
{
    struct draft_stats st[DRAFT_OPEN_MAX];
    const int n = s->draft != NULL ? draft_stats(s->draft, st, DRAFT_OPEN_MAX) : 0;

    if (s->draft != NULL)
        cli_note("drafts   %" PRId64 " of %" PRId64 " guesses kept (%.0f %%), %" PRId64 " tokens in %" PRId64 " steps",
                 s->stats.kept, s->stats.drafted, 100 * share_of(s->stats.kept, s->stats.drafted), s->stats.tokens,
                 s->stats.steps + 1);
    for (int i = 0; i < n; i++)
        cli_note("  %-30s %8" PRId64 " of %8" PRId64 " kept %10.1f ms", st[i].name, st[i].kept, st[i].drafted,
                 st[i].ms);
}

static void note_tables(const struct cli_run *s)
{
    const int n_files = s->asked->mix.table != NULL ? engram_n_files(s->asked->mix.table) : 0;

    for (int i = 0; i < s->n_mixed; i++)
        if (i == n_files)
            cli_note("recited  %" PRId64 " tokens, %" PRId64 " of them changed", s->mixed[i].matched,
                     s->mixed[i].changed);
        else
            cli_note("table    %s: %" PRId64 " tokens matched, %" PRId64 " changed, believed %.2f at the end",
                     engram_file_name(s->asked->mix.table, i), s->mixed[i].matched, s->mixed[i].changed,
                     s->mixed[i].weight);
}

/* An index that had nothing to say is told, too. */
static void note_unused(const struct cli_run *s, const char *use, const char *from)
{
    const json_t *one;
    size_t i;

    if (from == NULL || (s->asked->retrieves && !s->stats.doubt.doubted))
        return;
    json_array_foreach (s->asked->notes, i, one)
        if (strcmp(json_string_value(json_object_get(one, "use")), use) == 0)
            return;
    cli_note("%-8s nothing of %s", use, from);
}

static void note_texts(const struct cli_run *s)
{
    const struct cli_beside_opts *o = &s->o->beside;
    char words[160];
    const json_t *one;
    size_t i;

    if (s->asked->retrieves)
        cli_note("retrieve %s: mean log-probability %.3f without notes", s->stats.doubt.doubted ? "yes" : "no",
                 (double)s->stats.doubt.mean);

    json_array_foreach (s->asked->notes, i, one) {
        const json_t *line = json_object_get(one, "line");

        cli_first_words(words, sizeof words, json_string_value(json_object_get(one, "text")));
        cli_note("%-8s %s of %s, %s %" PRId64, json_string_value(json_object_get(one, "use")), words,
                 json_string_value(json_object_get(one, "source")), line != NULL ? "line" : "text",
                 (int64_t)json_integer_value(line != NULL ? line : json_object_get(one, "id")));
    }
    note_unused(s, "examples", o->examples);
    note_unused(s, "recite", o->recite != NULL ? o->recite : s->chat ? o->context : NULL);
}

static json_t *json_buf(const struct cli_buf *b)
{
    return json_bytes((struct str){ b->p ? b->p : "", b->n });
}

/* What keys and values are kept as, and whether there was no room for better. */
static bool set_kv(json_t *top, const struct cli_run *s)
{
    return cli_json_set(top, "kv", json_string(s->facts.kv)) &&
           cli_json_set(top, "kv_fallback", json_boolean(s->facts.kv_fallback));
}

/* The object of --json, or the last event of --jsonl. */
enum err_code cli_run_print_end(const struct cli_run *s, struct err *e)
{
    const struct cli_answer *a = &s->answer;
    struct io_cache_stats cache;
    json_t *top = json_object();
    bool ok = top != NULL && cli_json_set(top, "type", json_string(s->o->json ? "completion" : "end"));

    if (ok && s->o->json)
        ok = cli_json_set(top, "model", json_bytes(str_of(s->open.path))) &&
             cli_json_set(top, "text", json_buf(&a->text)) &&
             cli_json_set(top, "reasoning", a->had_reasoning ? json_buf(&a->reasoning) : json_null()) &&
             cli_json_set(top, "tool_calls", cli_answer_calls(a)) && cli_json_set(top, "token_ids", cli_answer_ids(a));
    ok = ok && cli_json_set(top, "finish_reason", json_string(cli_run_finish(s))) &&
         cli_json_set(top, "usage", json_usage(s)) && cli_json_set(top, "timings", cli_run_timings(s)) &&
         cli_json_set(top, "seed", json_integer(s->o->sampling.seed));
    if (ok && (s->thinking != NULL || s->asked->reason.marks != NULL))
        ok = cli_json_set(top, "thinking",
                          s->thinking != NULL ? json_incref(s->thinking) : ask_thinking_json(s->asked, &s->stats));
    if (ok && s->search != NULL)
        ok = cli_json_set(top, "search", json_incref(s->search));
    if (ok && s->verified != NULL)
        ok = cli_json_set(top, "verify", json_incref(s->verified));
    if (ok && s->logged[0] != '\0')
        ok = cli_json_set(top, "id", json_string(s->logged));
    if (ok && s->asked->notes != NULL)
        ok = cli_json_set(top, "notes", json_incref(s->asked->notes));
    if (ok && s->asked->retrieves)
        ok = cli_json_set(top, "retrieve", ask_retrieve_json(&s->stats));
    if (ok && s->o->json)
        ok = set_kv(top, s);
    if (ok && s->via == NULL && model_cache_stats(s->open.model, &cache))
        ok = cli_json_set(top, "expert_cache", cli_cache_json(&cache, NULL));
    if (ok && s->draft != NULL)
        ok = cli_json_set(top, "drafts", json_drafts(s));
    if (ok && s->n_mixed > 0)
        ok = ask_set_mixed(top, s->asked, s->mixed, s->n_mixed);
    if (ok && s->o->session)
        ok = cli_json_set(top, "cache", cli_session_json(&s->kept, s->open.text, prompt_of(s)));
    if (ok && s->o->json && s->o->sampling.logprobs >= 0)
        ok = cli_json_set(top, "logprobs", json_incref(a->logprobs));
    if (ok && a->uncertainty != NULL)
        ok = cli_json_set(top, "uncertainty", json_incref(a->uncertainty));
    return cli_json_line(json_if(ok, top), e);
}

enum err_code cli_run_print_start(const struct cli_run *s, struct err *e)
{
    json_t *top =
        json_pack("{s:s, s:o, s:s, s:I, s:I, s:I}", "type", "start", "model", json_bytes(str_of(s->open.path)), "arch",
                  s->facts.arch, "prompt_tokens", (json_int_t)prompt_of(s)->n, "ctx_tokens",
                  (json_int_t)s->facts.ctx_tokens, "seed", (json_int_t)s->o->sampling.seed);

    return cli_json_line(json_if(set_kv(top, s), top), e);
}

void cli_run_note_machine(const struct cli_run *s)
{
    const struct model_info *i;
    const char *k, *v;

    if (s->via != NULL)
        return;
    i = model_info(s->open.model);
    cli_note("model    %s: %s, %d layers, %.1f M weights, %.1f MB", s->open.path, i->arch, i->n_layer,
             (double)i->n_params / 1e6, (double)i->weight_bytes / 1e6);
    if (model_weights(s->open.model)->copied > 0)
        cli_note("weights  %.1f MB copied from the file, %.1f MB of them laid out",
                 (double)model_weights(s->open.model)->copied / 1e6, (double)model_weights(s->open.model)->laid / 1e6);
    cli_note("device   %s, %s kernels, %d threads, activations %s on a CPU", i->device, i->simd, i->n_threads,
             quant_acts_name((enum quant_acts_type)s->o->model.acts));
    if (i->n_used != i->n_used_trained)
        cli_note("experts  %d for each token, trained with %d", i->n_used, i->n_used_trained);
    cli_cache_note(s->open.model);
    run_kv(s->run, &k, &v);
    cli_note("memory   context of %" PRId64 " tokens, keys and values %s,%s, %.1f MB of state", run_ctx(s->run), k, v,
             (double)run_state_bytes(s->run) / 1e6);
    cli_placement_note(s->open.placement);
    cli_note("seed     %" PRId64, s->o->sampling.seed);
}

static int slower_first(const void *a, const void *b)
{
    const struct model_timing *x = a, *y = b;

    return x->ns < y->ns ? 1 : x->ns > y->ns ? -1 : 0;
}

void cli_run_note_times(const struct cli_run *s)
{
    struct model_timing t[64];
    int n;
    double all_ms = s->prompt_ms + s->decode_ms;

    if (cli_verbosity() < 1)
        return;
    cli_note("load     %.1f ms: device %.1f, weights %.1f, warm-up %.1f; the program took %.1f until the file was open",
             s->open.load_ms, s->open.device_ms, s->open.weights_ms, s->open.warm_up_ms, s->start_ms);
    if (s->first_ms > 0)
        cli_note("first    token after %.1f ms", s->first_ms);
    if (s->o->session)
        cli_session_note(&s->kept, s->open.text, prompt_of(s));
    cli_note("prompt   %" PRId64 " tokens, %.1f ms, %.1f tokens/s", evaluated(s), s->prompt_ms,
             per_second(evaluated(s), s->prompt_ms));
    cli_note("answer   %" PRId64 " tokens, %.1f ms, %.1f tokens/s", s->answer.ids.n, s->decode_ms,
             per_second(decoded(s), s->decode_ms));
    if (s->via == NULL && strncmp(model_info(s->open.model)->device, "cpu", 3) != 0)
        cli_note("logits   %" PRId64 " whole rows for %" PRId64 " tokens", s->stats.whole_rows, s->stats.tokens);
    if (s->logged[0] != '\0')
        cli_note("log      %s", s->logged);
    if (s->via == NULL)
        cli_cache_note_reads(s->open.model);
    note_drafts(s);
    note_tables(s);
    note_texts(s);
    n = s->via != NULL ? 0 : model_timings(s->open.model, t, (int)(sizeof t / sizeof *t));
    qsort(t, (size_t)n, sizeof *t, slower_first);
    for (int i = 0; i < n; i++)
        cli_note("  %-16s %8" PRIu64 " calls %10.1f ms %5.1f %%", t[i].op, t[i].calls, (double)t[i].ns / 1e6,
                 all_ms > 0 ? (double)t[i].ns / 1e4 / all_ms : 0);
}
