/* SPDX-License-Identifier: Apache-2.0 */
/* generate.c - steps of the model until the answer ends, and what they bring: progress, text, logits.      room: cmd */
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/io.h"
#include "chat/reader.h"
#include "model/model.h"
#include "run/program.h"
#include "run/run.h"

static bool may_give_up; /* the step at hand */

bool cli_run_give_up(void)
{
    return may_give_up && cli_interrupted();
}

static void show_prompt_status(const struct cli_run *s, int64_t done)
{
    if (cli_status_asked())
        fprintf(stderr, "%s: prompt: %" PRId64 " of %" PRId64 " tokens\n", cli_name(), done, prompt_of(s)->n);
    cli_progress_count("prompt", done, prompt_of(s)->n, " tokens");
}

static void show_status(const struct cli_run *s)
{
    double s_per = (clock_ms() - s->from_ms) / 1e3, rate = s_per > 0 ? (double)s->answer.ids.n / s_per : 0;

    if (cli_status_asked())
        fprintf(stderr, "%s: %" PRId64 " tokens, %.1f tokens/s\n", cli_name(), s->answer.ids.n, rate);
    if (!isatty(STDOUT_FILENO) && !(s->answer.in_reasoning && s->answer.o.reasoning == REASONING_STDERR))
        cli_progress("%" PRId64 " tokens, %.1f/s", s->answer.ids.n, rate);
}

/* Part of the prompt was read. */
static void show_prompt(struct cli_run *s, int64_t done)
{
    show_prompt_status(s, done);
    if (done < prompt_of(s)->n)
        return;
    s->read = true;
    s->prompt_ms = clock_ms() - s->from_ms;
    s->from_ms = clock_ms();
    s->from_cpu_ms = clock_cpu_ms();
    cli_progress_end();
}

static enum err_code show_end(struct cli_run *s, const struct gen_event *ev, struct err *e)
{
    *(s->read ? &s->decode_ms : &s->prompt_ms) = clock_ms() - s->from_ms;
    s->decode_cpu_ms = s->read ? clock_cpu_ms() - s->from_cpu_ms : 0;
    cli_progress_end();
    s->finish = ev->end;
    s->stats = ev->stats;
    s->n_mixed = ev->n_mixed;
    if (ev->n_mixed > 0)
        memcpy(s->mixed, ev->mixed, (size_t)ev->n_mixed * sizeof *s->mixed);
    if (ev->end == GEN_FAILED) {
        if (strcmp(ev->err.where, "/bias") == 0)
            return err_set(e, ev->err.code, "--logit-bias: forbids every token that the model allows");
        return err_copy(e, &ev->err);
    }
    if (!s->read)
        return ERR_OK;
    if (s->chat && ev->reasoning && ev->stats.tokens > 0 && ev->end != GEN_CANCELLED)
        cli_warn("the answer ended inside the reasoning, after %" PRId64 " tokens: a larger --ctx or --think off helps",
                 ev->stats.tokens);
    if (cli_answer_end(&s->answer, ev, e))
        return e->code;
    if (s->answer.reader != NULL && chat_reader_cut(s->answer.reader) == CHAT_CUT_CALL && ev->end != GEN_CANCELLED)
        cli_warn("the answer ended inside a call of a tool, which is left out");
    return ERR_OK;
}

enum err_code cli_run_show_event(struct cli_run *s, const struct gen_event *ev, struct err *e)
{
    switch (ev->kind) {
    case GEN_BEGIN:
        return ERR_OK;
    case GEN_SECOND:
        ask_turn(&s->asked);
        cli_answer_close(&s->answer);
        return cli_run_open_answer(s, e);
    case GEN_ROW:
        return io_out_write(s->logits, ev->logits, (size_t)model_info(s->open.model)->n_vocab * sizeof(float), e);
    case GEN_PROMPT:
        show_prompt(s, ev->done);
        return ERR_OK;
    case GEN_TOKEN:
        s->first_ms = s->first_ms > 0 ? s->first_ms : clock_ms() - s->begun_ms;
        if (cli_answer_take(&s->answer, ev, e))
            return e->code;
        show_status(s);
        return ERR_OK;
    case GEN_END:
        return show_end(s, ev, e);
    }
    return ERR_OK;
}

/* The reader went away, or the disk is full: the answer ends there, and a session still gets what was written of it. */
static enum err_code show_or_lose(struct cli_run *s, const struct gen_event *ev, struct err *e)
{
    if (s->lost.code == ERR_OK) {
        if (cli_run_show_event(s, ev, e) == ERR_OK || e->code != ERR_IO || s->o->session == NULL)
            return e->code;
        s->lost = *e;
        *e = (struct err){ 0 };
        return ERR_OK;
    }
    if (ev->kind == GEN_TOKEN)
        return text_tokens_push(&s->answer.ids, ev->pick.token, e);
    if (ev->kind == GEN_END && ev->end == GEN_FAILED)
        *e = ev->err;
    return e->code;
}

/* Logits have no mark that tells them from another file, but whole rows. */
static enum err_code open_logits(struct cli_run *s, struct err *e)
{
    const int64_t row = model_info(s->open.model)->n_vocab * (int64_t)sizeof(float);
    struct stat st;

    if (s->o->logits == NULL)
        return ERR_OK;
    if (stat(s->o->logits, &st) == 0 && S_ISREG(st.st_mode) && st.st_size % row != 0)
        return err_set(e, ERR_ARG, "--logits %s: exists, is no file of logits of this model, and stays as it is",
                       s->o->logits);
    return io_out_open(&s->logits, s->o->logits, e);
}

enum err_code cli_run_generate(struct cli_run *s, struct err *e)
{
    struct gen_event ev;

    if (s->via != NULL)
        return cli_via_generate(s, e);
    if (cli_run_submit(s, e) || open_logits(s, e))
        return e->code;
    s->from_ms = clock_ms();
    show_prompt_status(s, run_pos(s->run, 0));
    while (gen_busy(s->gen)) {
        if (cli_interrupted() || s->lost.code != ERR_OK)
            gen_cancel(s->gen, s->request);
        /* Of an answer that goes on later the token at hand is worth its end. */
        may_give_up = !s->read || (s->o->session == NULL && !s->o->interactive);
        if (gen_step(s->gen, e))
            return e->code;
        while (gen_next(s->gen, &ev)) {
            if (show_or_lose(s, &ev, e))
                return e->code;
        }
    }
    if (s->logits == NULL)
        return ERR_OK;
    struct io_out *out = s->logits;

    s->logits = NULL;
    if (s->read)
        return io_out_commit(out, e);
    io_out_abort(out);
    return ERR_OK;
}
