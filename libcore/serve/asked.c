/* SPDX-License-Identifier: Apache-2.0 */
/* asked.c - questions of our own programs, as they are, and the events of their answers (ask/wire.h).      room: serve
 *
 * Each part of the reply is an object: first "asked" with what is known of the prompt, or "refused" with an error as
 * the last one; then events, up to the end of the answer. "cannot" of an error: another program with the same model may
 * answer the question, this one has no room for it. */
#include <stdlib.h>
#include <string.h>

#include "ask/wire.h"
#include "base/clock.h"
#include "serve/internal.h"

enum { LIST_MAX = 1024 /* of texts and tokens that end an answer, or a repetition, each */ };

bool serve_read_asked(struct serve_question *w, const struct serve *s, enum serve_method method, const json_t *body,
                      struct serve_fault *f)
{
    const json_t *ctx = json_object_get(body, "ctx_tokens");
    struct err why = { 0 };
    int64_t n;

    (void)method;
    *w = (struct serve_question){ .ask = ask_defaults(), .n = 1, .top = -1, .stream = true, .seeded = true };
    if (!serve_check_object(body, "question:O! ctx_tokens:I! stream:T!", s->o.lenient, f))
        return false;
    if (!serve_whole_number(ctx, &n) || n < 0)
        return serve_fault(f, 400, "/ctx_tokens", "ctx_tokens: not a whole number from 0 on");
    w->ctx_tokens = n;
    if (ask_read(&w->sent, json_object_get(body, "question"), &why) == ERR_OK) {
        w->ask = w->sent->ask;
        return (w->ask.n_stops <= LIST_MAX && w->ask.n_stop_tokens <= LIST_MAX && w->ask.n_breakers <= LIST_MAX) ||
               serve_fault(f, 400, "/question", "question: more than %d texts or tokens that end something", LIST_MAX);
    }
    (void)err_at(&why, "/question");
    return why.code == ERR_NOMEM ? serve_nomem(f) : serve_fault(f, 400, why.where, "%s: %s", why.where + 1, why.msg);
}

static enum err_code refuse(struct serve *s, struct serve_job *j, const struct err *why, bool cannot, struct err *e)
{
    const struct ask_request *r = j->request[0];

    s->m.errors++;
    return serve_push(s, j, SERVE_CHUNK,
                      json_pack("{s:o, s:b, s:I, s:I}", "refused", ask_write_error(why), "cannot", cannot,
                                "prompt_tokens", (json_int_t)(r != NULL ? r->prompt.n : -1), "ctx_tokens",
                                (json_int_t)j->w.ctx_tokens),
                      200, false, e) ||
                   serve_push(s, j, SERVE_END, NULL, 200, true, e)
               ? e->code
               : ERR_OK;
}

enum err_code serve_start_asked(struct serve *s, struct serve_job *j, struct err *e)
{
    struct ask_model m = serve_model(s);
    struct err why = { 0 };

    m.prompt_max = 0; /* who asks says it, in words of options */
    if (ask_open(&j->request[0], &j->w.ask, &m, NULL, &why))
        return why.code == ERR_NOMEM ? err_copy(e, &why) : refuse(s, j, &why, false, e);
    const struct ask_request *r = j->request[0];

    if (j->w.ctx_tokens == 0)
        j->w.ctx_tokens = ask_context(r->prompt.n, r->reasons, j->w.ask.tokens_max, s->o.ctx_train);
    if (r->prompt.n == 0 || r->prompt.n > j->w.ctx_tokens) /* the client says it in its words */
        return refuse(s, j, &(struct err){ ERR_LIMIT, "the prompt has no place in the context", "" }, false, e);
    if (j->w.ctx_tokens <= s->o.ctx_tokens)
        return ERR_OK;
    err_set(&why, ERR_LIMIT, "the question may take %lld tokens, the server's context has %lld",
            (long long)j->w.ctx_tokens, (long long)s->o.ctx_tokens);
    return refuse(s, j, &why, true, e);
}

enum err_code serve_submit_asked(struct serve *s, struct serve_job *j, struct serve_choice *c, struct err *e)
{
    const struct ask_request *r = c->request;
    struct gen_request q = r->q;
    struct err why = { 0 };

    q.user = c;
    q.owner = j->owner;
    q.ctx_max = j->w.ctx_tokens;
    if (s->o.keeper != NULL)
        s->o.keeper->before(s->o.keeper_of, &q);
    if (gen_submit(s->o.gen, &q, &c->id, &why))
        return why.code == ERR_NOMEM ? err_copy(e, &why) : refuse(s, j, &why, why.code == ERR_UNSUPPORTED, e);
    j->n_left++;
    j->n_queued++;
    return serve_push(s, j, SERVE_CHUNK,
                      json_pack("{s:{s:I, s:I, s:b, s:b, s:o, s:b, s:i, s:o}}", "asked", "prompt_tokens",
                                (json_int_t)r->prompt.n, "ctx_tokens", (json_int_t)j->w.ctx_tokens, "thinking",
                                r->thinking, "reasons", r->reasons, "parser",
                                r->parser != NULL ? json_string(r->parser) : json_null(), "tools", r->tools != NULL,
                                "calls", r->n_calls, "loose", r->loose != NULL ? json_incref(r->loose) : json_array()),
                      200, false, e);
}

enum err_code serve_tell_event(struct serve *s, struct serve_job *j, const struct serve_choice *c,
                               const struct gen_event *ev, struct err *e)
{
    json_t *part = ask_write_event(ev, c->request);
    const bool ok = part != NULL && (ev->kind != GEN_PROMPT ||
                                     json_object_set_new(part, "ms", json_real(clock_ms() - c->begin_ms)) == 0);

    if (serve_push(s, j, SERVE_CHUNK, json_if(ok, part), 200, false, e))
        return e->code;
    return ev->kind == GEN_END ? serve_push(s, j, SERVE_END, NULL, 200, true, e) : ERR_OK;
}
