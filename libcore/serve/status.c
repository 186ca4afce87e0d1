/* SPDX-License-Identifier: Apache-2.0 */
/* status.c - what a server says of itself: metrics, health, its model, props.         room: serve */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    char line[512];
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
    for (int i = 0; i < BUCKETS; i++) {
        sum += c->bucket[i];
        print(p, "chimere_%s_bucket{le=\"%g\"} %llu\n", name, (double)(1 << i) / 1e3, (unsigned long long)sum);
    }
    print(p, "chimere_%s_bucket{le=\"+Inf\"} %llu\nchimere_%s_sum %.6f\nchimere_%s_count %llu\n", name,
          (unsigned long long)c->n, name, c->sum / 1e3, name, (unsigned long long)c->n);
}

/* What the sequences of the engine hold. */
static void holdings(struct page *p, const struct run *r)
{
    int64_t tokens = 0;

    for (int i = 0; i < run_n_seq(r); i++)
        tokens += run_pos(r, i);
    gauge(p, "sequences", "Answers side by side, at most.", run_n_seq(r));
    gauge(p, "held_tokens",
          "Tokens that sequences hold, those of ended requests, from which later ones go on, included.", tokens);
    gauge(p, "kv_size_tokens", "Room for keys and values, of all sequences together.", run_kv_rows(r));
    gauge(p, "kv_used_tokens", "Of it, what is taken, in whole pages.", run_kv_rows(r) - run_kv_left(r));
    gauge(p, "kv_page_tokens", "Tokens of a page.", RUN_KV_PAGE);
}

char *serve_metrics(const struct serve *s)
{
    struct page p = { .ok = true };
    int64_t running = 0, waiting = 0;

    print(&p, "# HELP chimere_requests_total Requests by method.\n# TYPE chimere_requests_total counter\n");
    for (int i = 0; i < SERVE_N_METHODS; i++) {
        char label[40];

        (void)snprintf(label, sizeof label, "%s", serve_row((enum serve_method)i)->name);
        for (char *slash = label; (slash = strchr(slash, '/')) != NULL;)
            *slash = '_';
        print(&p, "chimere_requests_total{method=\"%s\"} %llu\n", label, (unsigned long long)s->requests[i]);
    }
    counter(&p, "errors_total", "Requests that were refused or failed.", s->errors);
    counter(&p, "cancelled_total", "Requests that were cancelled.", s->cancelled);
    counter(&p, "prompt_tokens_total", "Tokens of prompts.", s->prompt_tokens);
    counter(&p, "cached_tokens_total", "Of them, those that were not evaluated again.", s->cached_tokens);
    counter(&p, "completion_tokens_total", "Tokens of answers.", s->tokens);
    counter(&p, "drafted_tokens_total", "Guesses that were checked.", s->drafted);
    counter(&p, "kept_tokens_total", "Guesses that were right.", s->kept);
    print(&p, "# HELP chimere_thinking_ended_total Answers by why their thinking ended.\n"
              "# TYPE chimere_thinking_ended_total counter\n");
    for (int i = 0; i < GEN_WHYS; i++)
        print(&p, "chimere_thinking_ended_total{end=\"%s\"} %llu\n", gen_why_name((enum gen_why)i),
              (unsigned long long)s->thought[i]);
    for (const struct serve_job *j = s->jobs; j != NULL; j = j->next) {
        running += j->begun && !j->over && !j->dropped;
        waiting += j->n_answers > 0 && !j->begun && !j->over && !j->dropped;
    }
    gauge(&p, "requests_running", "Requests with a sequence.", running);
    gauge(&p, "requests_waiting", "Requests without one.", waiting);
    if (s->o.run != NULL)
        holdings(&p, s->o.run);
    histogram(&p, "first_token_seconds", "From a request to its first token.", &s->first_token);
    histogram(&p, "between_tokens_seconds", "From one token of a request to the next.", &s->between);
    histogram(&p, "queue_seconds", "From a request to its sequence.", &s->queue);
    if (p.ok)
        return p.b.p;
    free(p.b.p);
    return NULL;
}

json_t *serve_show_metrics(struct serve *s, const json_t *body, const struct serve_client *who, struct serve_fault *f)
{
    char *text = serve_metrics(s);
    json_t *r = text != NULL ? json_pack("{s:s}", "text", text) : NULL;

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
    return json_pack("{s:{s:I, s:o}, s:i, s:O, s:O, s:{s:b, s:b}, s:o, s:o, s:o, s:s, s:s}",
                     "default_generation_settings", "n_ctx", (json_int_t)s->o.ctx_tokens, "params", params_of(s),
                     "total_slots", s->o.run != NULL ? run_n_seq(s->o.run) : 0, "model_alias", s->model, "model_path",
                     s->model, "modalities", "vision", 0, "audio", 0, "chat_template",
                     json_bytes(s->o.chat != NULL ? chat_template(s->o.chat) : STR("")), "bos_token",
                     piece_of(s, t->bos), "eos_token", piece_of(s, t->eos), "build_info", "chimere " CHIMERE_VERSION,
                     "system_fingerprint", s->fingerprint);
}
