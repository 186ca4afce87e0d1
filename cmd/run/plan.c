/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c - what a run takes: its context, rows of a step, snapshots; --plan.               room: cmd */
#include "cli/placement.h"
#include "cli/recipe.h"
#include "model/model.h"
#include "run/best.h"
#include "run/program.h"
#include "run/run.h"

#define TALK_ROOM   16384 /* tokens for a conversation */
#define TALK_RUNGS  4     /* snapshots of its past */
#define CHUNK_LEAST 512   /* rows in one step unless the prompt is shorter */

/* Positions of the prompt whose logits are wanted: the last ones. */
int64_t cli_run_wanted_logits(const struct cli_run *s)
{
    if (s->o->logits == NULL)
        return 1;
    return s->o->logits_last > 0 && s->o->logits_last < prompt_of(s)->n ? s->o->logits_last : prompt_of(s)->n;
}

/* Context: as asked for, else room for this request, within what the model was trained for. */
int64_t cli_run_choose_ctx(const struct cli_run *s)
{
    const struct ask_request *second = s->asked != NULL ? ask_thorough(s->asked) : NULL;
    const int64_t n = second != NULL && second->prompt.n > prompt_of(s)->n ? second->prompt.n : prompt_of(s)->n;
    const bool reasons = second != NULL && second->reasons && s->o->predict_max >= 0;

    if (s->o->model.ctx_tokens > 0)
        return s->o->model.ctx_tokens;
    return ask_context(n, reasons, s->o->interactive ? TALK_ROOM : s->o->predict_max,
                       model_info(s->open.model)->ctx_train);
}

/* The session's next prompt has all of the conversation again, and may leave out what the model reasoned: it goes on
 * from where the last message ends, or from the end of the answer. Else turns are added, always at the end. */
bool cli_run_comes_whole(const struct cli_run *s)
{
    return s->o->session != NULL && !s->o->interactive && (s->o->messages != NULL || s->o->tokens != NULL);
}

/* How certain the model is can be asked of the question at hand, or of any. */
static int make_room(struct run_opts *ro, const struct cli_run *s)
{
    struct reason_opts o;
    struct err why;

    if (s->asked != NULL && !s->o->interactive)
        return cli_reason_room(ro, &ask_thorough(s->asked)->reason);
    return cli_reason_set(&o, &s->o->reason, &why) ? 0 : cli_reason_room(ro, &o);
}

struct run_opts cli_run_sizes(const struct cli_run *s, bool plain, int *n_spare)
{
    const int32_t n_seq = cli_run_n_answers(s->o);
    struct run_opts ro = { .n_seq = n_seq,
                           .ctx_tokens = cli_run_choose_ctx(s),
                           .rows_max = s->o->model.chunk,
                           .stop = cli_run_give_up,
                           .stop_keeps = true };
    const int64_t guesses = n_seq * (int64_t)(plain ? 1 : GEN_DRAFT_MAX + 1);
    const int64_t most = prompt_of(s)->n > guesses ? prompt_of(s)->n : guesses;

    if (!s->o->interactive && prompt_of(s)->n > 0 && most < (s->o->model.chunk > 0 ? s->o->model.chunk : CHUNK_LEAST))
        ro.rows_max = (int)most;
    cli_session_kv(&s->kept, &ro.kv_k, &ro.kv_v);
    if (cli_run_comes_whole(s))
        ro.checkpoint_bytes = run_snapshot_bytes(s->open.model); /* where the last message ends */
    if (s->o->interactive)
        ro.checkpoint_bytes = TALK_RUNGS * run_snapshot_bytes(s->open.model); /* for what is taken back */
    if (s->calibration != NULL || s->o->beside.retrieve == 1)
        ro.checkpoint_bytes += run_snapshot_bytes(s->open.model); /* where the prompts of both answers part */
    *n_spare = make_room(&ro, s);
    return ro;
}

static enum err_code open_shape(struct cli_run *s, struct err *e)
{
    struct shape *shape;
    enum err_code code = cli_shape_open(&shape, s->o->shape, s->o->mix != NULL ? s->o->mix : "q4_k_m", e);

    if (code)
        return code;
    code = cli_open_shape(&s->open, &s->o->model, shape, e);
    shape_close(shape);
    return code;
}

enum err_code cli_run_plan(struct cli_run *s, char *const *files, int *status, struct err *e)
{
    struct run_opts ro;
    int64_t train;
    int n_spare;

    (void)files, (void)status;
    if (s->o->shape == NULL ? cli_open(&s->open, &s->o->model, e) : open_shape(s, e))
        return e->code;
    if (cli_open_model(&s->open, e))
        return e->code;
    ro = cli_run_sizes(s, true, &n_spare);
    train = model_info(s->open.model)->ctx_train;
    if (train > 0 && ro.ctx_tokens > train)
        cli_warn("--ctx %lld: the model was trained for contexts of %lld tokens", (long long)ro.ctx_tokens,
                 (long long)train);
    if (cli_run_count_verifier(s, ro.ctx_tokens, e))
        return e->code;
    return cli_open_plan(&s->open, &ro, e)
               ? e->code
               : cli_placement_print(s->open.placement, (double)s->o->bandwidth * 1e9, s->o->json, e);
}
