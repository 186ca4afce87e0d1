/* SPDX-License-Identifier: Apache-2.0 */
/* status.c - what a server says of itself: metrics, health, its model, props.         room: serve */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "chat/chat.h"
#include "run/run.h"
#include "serve/internal.h"

/* ---- metrics ---- */

struct page {
    struct serve_buf b;
    bool ok;
};

static void print(struct page *p, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void print(struct page *p, const char *fmt, ...)
{
    char line[2048];
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    p->ok = p->ok && n >= 0 && (size_t)n < sizeof line && serve_add(&p->b, (struct str){ line, (size_t)n });
}

static void counter(struct page *p, const char *name, const char *help, uint64_t v)
{
    print(p, "# HELP chimere_%s %s\n# TYPE chimere_%s counter\nchimere_%s %llu\n", name, help, name, name,
          (unsigned long long)v);
}

static void gauge(struct page *p, const char *name, const char *help, int64_t v)
{
    print(p, "# HELP chimere_%s %s\n# TYPE chimere_%s gauge\nchimere_%s %lld\n", name, help, name, name, (long long)v);
}

static void histogram(struct page *p, const char *name, const char *help, const struct serve_count *c)
{
    uint64_t sum = 0;

    print(p, "# HELP chimere_%s %s\n# TYPE chimere_%s histogram\n", name, help, name);
    for (int i = 0; i < SERVE_BUCKETS; i++) {
        sum += c->bucket[i];
        print(p, "chimere_%s_bucket{le=\"%g\"} %llu\n", name, (double)(1 << i) / 1e3, (unsigned long long)sum);
    }
    print(p, "chimere_%s_bucket{le=\"+Inf\"} %llu\nchimere_%s_sum %.6f\nchimere_%s_count %llu\n", name,
          (unsigned long long)c->n, name, c->sum / 1e3, name, (unsigned long long)c->n);
}

static double kv_usage(const struct serve_status *s)
{
    return s->kv_rows > 0 ? (double)s->kv_used / (double)s->kv_rows : 0;
}

/* What the sequences of the engine hold. */
static void holdings(struct page *p, const struct serve_status *s)
{
    gauge(p, "sequences", "Answers side by side, at most.", s->n_seq);
    gauge(p, "held_tokens",
          "Tokens that sequences hold, those of ended requests, from which later ones go on, included.",
          s->held_tokens);
    gauge(p, "kv_size_tokens", "Room for keys and values, of all sequences together.", s->kv_rows);
    gauge(p, "kv_used_tokens", "Of it, what is taken, in whole pages.", s->kv_used);
    gauge(p, "kv_page_tokens", "Tokens of a page.", RUN_KV_PAGE);
    print(p,
          "# HELP chimere_kv_usage What is taken, from 0 to 1.\n# TYPE chimere_kv_usage gauge\nchimere_kv_usage %.6f\n",
          kv_usage(s));
}

/* What was read of experts that are not all in memory. */
static void expert_reads(struct page *p, const struct io_cache_stats *c)
{
    counter(p, "expert_hits_total", "Uses of an expert by a layer of a step that was in memory, or on its way there.",
            c->hits);
    counter(p, "expert_reads_total", "Experts that were read from the disk.", c->reads);
    counter(p, "expert_read_bytes_total", "Bytes of them.", c->bytes);
    print(p,
          "# HELP chimere_expert_wait_seconds_total Time in which nothing could be computed for want of experts.\n"
          "# TYPE chimere_expert_wait_seconds_total counter\nchimere_expert_wait_seconds_total %.6f\n",
          (double)c->wait_ns / 1e9);
    gauge(p, "expert_cache_bytes", "Memory for experts that are read.", c->memory);
}

/* What gateways for vLLM read, by its names. */
static void print_vllm(struct page *p, const struct serve_status *s)
{
    const struct {
        const char *name, *help;
        double v;
    } gauges[] = {
        { "num_requests_running", "Requests with a sequence.", (double)s->running },
        { "num_requests_waiting", "Requests without one.", (double)s->waiting },
        { "kv_cache_usage_perc", "What is taken of the KV cache, from 0 to 1.", kv_usage(s) },
    };

    for (size_t i = 0; i < sizeof gauges / sizeof gauges[0]; i++)
        print(p, "# HELP vllm:%s %s\n# TYPE vllm:%s gauge\nvllm:%s{model_name=\"%s\"} %.6g\n", gauges[i].name,
              gauges[i].help, gauges[i].name, gauges[i].name, s->model, gauges[i].v);
    print(p,
          "# HELP vllm:cache_config_info Pages of the KV cache.\n# TYPE vllm:cache_config_info gauge\n"
          "vllm:cache_config_info{block_size=\"%d\",num_gpu_blocks=\"%lld\"} 1\n",
          RUN_KV_PAGE, (long long)(s->kv_rows / RUN_KV_PAGE));
    if (s->n_adapters == 0)
        return;
    print(p, "# HELP vllm:lora_requests_info Adapters in use, and when that was.\n"
             "# TYPE vllm:lora_requests_info gauge\n");
    print(p,
          "vllm:lora_requests_info{max_lora=\"%d\",running_lora_adapters=\"%s\",waiting_lora_adapters=\"%s\"} %lld\n",
          s->n_adapters, s->running_names, s->waiting_names, (long long)time(NULL));
}

char *serve_metrics(const struct serve_status *s)
{
    const struct serve_counts *m = &s->m;
    struct page p = { .ok = true };

    print(&p, "# HELP chimere_requests_total Requests by method.\n# TYPE chimere_requests_total counter\n");
    for (int i = 0; i < SERVE_N_METHODS; i++) {
        char label[40];

        (void)snprintf(label, sizeof label, "%s", serve_row((enum serve_method)i)->name);
        for (char *slash = label; (slash = strchr(slash, '/')) != NULL;)
            *slash = '_';
        print(&p, "chimere_requests_total{method=\"%s\"} %llu\n", label, (unsigned long long)m->requests[i]);
    }
    counter(&p, "errors_total", "Requests that were refused or failed.", m->errors);
    counter(&p, "cancelled_total", "Requests that were cancelled.", m->cancelled);
    counter(&p, "prompt_tokens_total", "Tokens of prompts.", m->prompt_tokens);
    counter(&p, "cached_tokens_total", "Of them, those that were not evaluated again.", m->cached_tokens);
    counter(&p, "completion_tokens_total", "Tokens of answers.", m->tokens);
    counter(&p, "drafted_tokens_total", "Guesses that were checked.", m->drafted);
    counter(&p, "kept_tokens_total", "Guesses that were right.", m->kept);
    counter(&p, "steps_total", "Steps of the engine that were begun.", m->steps);
    print(&p, "# HELP chimere_thinking_ended_total Answers by why their thinking ended.\n"
              "# TYPE chimere_thinking_ended_total counter\n");
    for (int i = 0; i < GEN_WHYS; i++)
        print(&p, "chimere_thinking_ended_total{end=\"%s\"} %llu\n", gen_why_name((enum gen_why)i),
              (unsigned long long)m->thought[i]);
    counter(&p, "votes_total", "Requests whose answer was chosen among several.", m->votes);
    counter(&p, "candidates_total", "Answers that were chosen among.", m->candidates);
    counter(&p, "verifier_tokens_total", "Tokens that verifiers of such answers wrote.", m->verifier_tokens);
    gauge(&p, "requests_running", "Requests with a sequence.", s->running);
    gauge(&p, "requests_waiting", "Requests without one.", s->waiting);
    gauge(&p, "adapters_running", "Adapters that requests with a sequence use.", s->adapters_running);
    if (s->n_seq > 0)
        holdings(&p, s);
    if (s->reads_experts)
        expert_reads(&p, &s->experts);
    histogram(&p, "first_token_seconds", "From a request to its first token.", &m->first_token);
    histogram(&p, "between_tokens_seconds", "From one token of a request to the next.", &m->between);
    histogram(&p, "queue_seconds", "From a request to its sequence.", &m->queue);
    if (s->vllm_names)
        print_vllm(&p, s);
    if (p.ok)
        return p.b.p;
    free(p.b.p);
    return NULL;
}

/* Whether a request uses adapter a of those attached. */
static bool uses_adapter(const struct serve_job *j, const struct serve_attachments *b, int a)
{
    const json_t *one;
    double scale = j->w.lora != NULL ? 0 : (double)b->adapters[a].scale;
    size_t i;

    json_array_foreach (j->w.lora, i, one)
        if (json_integer_value(json_object_get(one, "id")) == a)
            scale = json_number_value(json_object_get(one, "scale"));
    return scale != 0;
}

/* A text between the quotes of a label, of whole characters. */
static void copy_label(char *out, size_t room, const char *text)
{
    struct str left = str_of(text);
    size_t n = 0, bytes;

    for (; (bytes = str_utf8(left)) > 0 && n + bytes < room; left.p += bytes, left.n -= bytes, n += bytes) {
        memcpy(out + n, left.p, bytes);
        if (*left.p == '"' || *left.p == '\\' || *left.p == ',' || (unsigned char)*left.p < ' ')
            out[n] = '_';
    }
    out[n] = '\0';
}

static void add_name(char names[SERVE_NAMES_BYTES], const struct serve_attachments *b, int a)
{
    const size_t n = strlen(names);
    char name[70], number[12];

    (void)snprintf(number, sizeof number, "%d", a);
    copy_label(name, sizeof name, b->adapter_names != NULL ? b->adapter_names[a] : number);
    (void)snprintf(names + n, SERVE_NAMES_BYTES - n, "%s%s", n > 0 ? "," : "", name);
}

static void look_at_adapters(const struct serve *s, struct serve_status *out)
{
    const struct serve_attachments *b = s->attached;

    out->n_adapters = b->n_adapters;
    for (int a = 0; a < b->n_adapters; a++) {
        bool runs = false, waits = false;

        for (const struct serve_job *j = s->jobs; j != NULL; j = j->next) {
            const bool uses = j->n_answers > 0 && !j->over && !j->dropped && uses_adapter(j, b, a);

            runs = runs || (uses && j->begun);
            waits = waits || (uses && !j->begun);
        }
        out->adapters_running += runs;
        if (runs)
            add_name(out->running_names, b, a);
        if (waits)
            add_name(out->waiting_names, b, a);
    }
}

void serve_look(const struct serve *s, struct serve_status *out)
{
    const struct run *r = s->o.run;

    *out = (struct serve_status){ .m = s->m, .answers_waiting = serve_waiting(s), .vllm_names = s->o.vllm_names };
    copy_label(out->model, sizeof out->model, json_string_value(s->model));
    for (const struct serve_job *j = s->jobs; j != NULL; j = j->next) {
        out->running += j->begun && !j->over && !j->dropped;
        out->waiting += j->n_answers > 0 && !j->begun && !j->over && !j->dropped;
    }
    look_at_adapters(s, out);
    if (r == NULL)
        return;
    out->reads_experts = run_expert_reads(r, &out->experts);
    out->n_seq = run_n_seq(r);
    for (int i = 0; i < run_n_seq(r); i++)
        out->held_tokens += run_pos(r, i);
    out->kv_rows = run_kv_rows(r);
    out->kv_used = run_kv_rows(r) - run_kv_left(r);
}

json_t *serve_show_metrics(struct serve *s, const json_t *body, const struct serve_client *who, struct serve_fault *f)
{
    struct serve_status now;
    char *text;
    json_t *r;

    serve_look(s, &now);
    text = serve_metrics(&now);
    r = text != NULL ? json_pack("{s:s}", "text", text) : NULL;

    (void)who;
    (void)body;
    (void)f;
    free(text);
    return r;
}

json_t *serve_show_health(struct serve *s, const json_t *body, const struct serve_client *who, struct serve_fault *f)
{
    (void)who;
    (void)body;
    (void)f;
    return json_pack("{s:s, s:I}", "status", "ok", "waiting", (json_int_t)serve_waiting(s));
}

static json_t *model_card(const struct serve *s)
{
    return json_pack("{s:O, s:s, s:I, s:s, s:I, s:b}", "id", s->model, "object", "model", "created",
                     (json_int_t)s->o.created_s, "owned_by", "chimere", "context_length", (json_int_t)s->o.ctx_tokens,
                     "feedback", s->o.journal != NULL);
}

json_t *serve_list_models(struct serve *s, const json_t *body, const struct serve_client *who, struct serve_fault *f)
{
    (void)who;
    (void)body;
    (void)f;
    return json_pack("{s:s, s:[o]}", "object", "list", "data", model_card(s));
}

json_t *serve_show_model(struct serve *s, const json_t *body, const struct serve_client *who, struct serve_fault *f)
{
    const json_t *name = json_object_get(body, "model");

    (void)who;
    if (json_equal(name, s->model))
        return model_card(s);
    (void)serve_fault(f, 404, "/model", "model: there is no model %.200s, but %.100s", json_string_value(name),
                      json_string_value(s->model));
    f->code = "model_not_found";
    return NULL;
}

/* ---- what clients of llama.cpp ask at first ---- */

static json_t *piece_of(const struct serve *s, int32_t token)
{
    return token >= 0 ? json_bytes(text_piece(s->o.text, token)) : json_string("");
}

/* Defaults of requests. */
static json_t *params_of(const struct serve *s)
{
    const struct sample_opts usual = sample_defaults();
    const struct sample_opts *o = s->o.sample != NULL ? s->o.sample : &usual;
    json_t *params = json_pack("{s:I, s:i}", "n_predict", (json_int_t)s->o.predict_max, "seed", -1);
    const struct sample_option *row;
    char name[40];

    for (int i = 0; (row = sample_option(i)) != NULL && params != NULL; i++) {
        const double x = sample_option_value(o, row);

        (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(row->names, " "), row->names);
        params = json_if(
            json_object_set_new(params, name, row->whole ? json_integer((json_int_t)x) : json_real(x)) == 0, params);
    }
    return params;
}

json_t *serve_show_props(struct serve *s, const json_t *body, const struct serve_client *who, struct serve_fault *f)
{
    const struct text_info *t = text_info(s->o.text);

    (void)who;
    (void)body;
    (void)f;
    return json_pack("{s:{s:I, s:o}, s:i, s:O, s:O, s:{s:b, s:b}, s:o, s:o, s:o, s:s, s:s, s:O?}",
                     "default_generation_settings", "n_ctx", (json_int_t)s->o.ctx_tokens, "params", params_of(s),
                     "total_slots", s->o.run != NULL ? run_n_seq(s->o.run) : 0, "model_alias", s->model, "model_path",
                     s->model, "modalities", "vision", 0, "audio", 0, "chat_template",
                     json_bytes(s->o.chat != NULL ? chat_template(s->o.chat) : STR("")), "bos_token",
                     piece_of(s, t->bos), "eos_token", piece_of(s, t->eos), "build_info", "chimere " CHIMERE_VERSION,
                     "system_fingerprint", s->fingerprint, "chimere", s->o.facts);
}
