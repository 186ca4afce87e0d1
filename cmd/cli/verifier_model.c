/* SPDX-License-Identifier: Apache-2.0 */
/* verifier_model.c - a model that says of each step and of the whole whether it is correct (verifier.h).   room: cmd */
#include <inttypes.h>
#include <stdlib.h>

#include "chat/chat.h"
#include "cli/verifier.h"
#include "gen/gen.h"
#include "grammar/grammar.h"
#include "model/model.h"

static enum err_code take_events(struct gen *g, int64_t *n_done, struct err *e)
{
    struct gen_event ev;

    while (gen_next(g, &ev)) {
        if (ev.kind == GEN_TOKEN && ask_verdict_take(ev.user, &ev, e))
            return e->code;
        if (ev.kind == GEN_END && ev.end == GEN_FAILED)
            return err_copy(e, &ev.err);
        *n_done += ev.kind == GEN_END;
    }
    return ERR_OK;
}

static enum err_code answer_all(struct gen *g, const struct cli_verifier_use *use, struct ask_verdict *v, size_t n,
                                struct err *e)
{
    int64_t n_done = 0, id;

    for (size_t i = 0; i < n; i++) {
        struct gen_request q = v[i].asked->q;

        q.user = &v[i];
        if (gen_submit(g, &q, &id, e))
            return e->code;
    }
    while (gen_busy(g)) {
        if (use->stop())
            return err_set(e, ERR_CANCEL, "interrupted");
        if (!use->quiet)
            cli_progress_count("verdicts", n_done, (int64_t)n, "");
        if (gen_step(g, e) || take_events(g, &n_done, e))
            return e->code;
    }
    return ERR_OK;
}

static int64_t longest(const struct ask_verdict *v, size_t n, bool think)
{
    int64_t most = 0;

    for (size_t i = 0; i < n; i++) {
        const int64_t room = ask_verdict_room(&v[i], think);

        most = room > most ? room : most;
    }
    return most;
}

/* A run of its own, whose context fits the questions. */
static enum err_code run_all(struct cli_opened *x, const struct cli_verifier_use *use, struct ask_verdict *v, size_t n,
                             struct err *e)
{
    const int n_seq = (size_t)use->parallel < n ? use->parallel : (int)n;
    const struct run_opts ro = { .ctx_tokens = longest(v, n, use->think),
                                 .n_seq = n_seq,
                                 .rows_max = n_seq > 256 ? n_seq : 256,
                                 .stop = use->stop };
    struct run *run = NULL;
    struct gen *g = NULL;
    enum err_code code = cli_open_run(&run, x, &ro, e);

    if (code == ERR_OK)
        code = gen_open(&g,
                        &(struct gen_opts){ .run = run,
                                            .text = x->text,
                                            .prompt_rows = ro.rows_max,
                                            .adapters = x->adapters.list,
                                            .n_adapters = x->adapters.n },
                        e);
    if (code == ERR_OK)
        code = answer_all(g, use, v, n, e);
    gen_close(g);
    run_close(run);
    if (!use->quiet)
        cli_progress_end();
    return code;
}

enum err_code cli_ask_verdicts(struct cli_opened *opened, const struct cli_verifier_use *use, struct ask_solution *s,
                               size_t n, int64_t *n_tokens, struct err *e)
{
    struct ask_verdict *v = calloc(n, sizeof *v);
    struct chat *chat = NULL;
    struct grammar_vocab *vocab = NULL;
    enum err_code code = v != NULL ? chat_open(&chat, opened->text, (struct str){ 0 }, e) : err_nomem(e);
    const struct ask_model m = {
        .text = opened->text, .chat = chat, .vocab = &vocab, .n_vocab = model_info(opened->model)->n_vocab
    };

    for (size_t i = 0; i < n && code == ERR_OK; i++) {
        code = ask_verdict_open(&v[i], &s[i], &m, use->think, e);
        if (code != ERR_OK)
            code = err_wrap(e, "solution %zu", i + 1);
    }
    if (code == ERR_OK)
        code = run_all(opened, use, v, n, e);
    for (size_t i = 0; v != NULL && i < n; i++) {
        *n_tokens += v[i].n_tokens;
        ask_verdict_close(&v[i]);
    }
    free(v);
    grammar_vocab_close(vocab);
    chat_close(chat);
    return code;
}
