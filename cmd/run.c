/* SPDX-License-Identifier: Apache-2.0 */
/* chimere-run - answer a prompt: answer on stdout, the rest on stderr. See chimere-run_model(1). */
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/io.h"
#include "gguf/gguf.h"
#include "grammar/grammar.h"
#include "model/model.h"
#include "run/best.h"
#include "run/placement.h"
#include "run/program.h"
#include "run/run.h"
#include "run/session.h"
#include "text/text.h"

enum err_code cli_run_check_prompt(const struct cli_run *s, struct err *e)
{
    const int64_t ctx = s->facts.ctx_tokens;
    const int32_t n_vocab = s->facts.n_vocab;
    const char *from = s->o->tokens ? cli_file_name(s->o->tokens) : "prompt";

    if (prompt_of(s)->n == 0)
        return err_set(e, ERR_ARG, "the prompt is empty");
    if (prompt_of(s)->n > ctx) {
        char trained[80] = "all that";

        if (ctx != s->facts.ctx_train)
            (void)snprintf(trained, sizeof trained, "--ctx sets it; %" PRId64 " are what", s->facts.ctx_train);
        return err_set(
            e, ERR_LIMIT, "the prompt has %" PRId64 " tokens, the context %" PRId64 " (%s the model was trained for%s)",
            prompt_of(s)->n, ctx, trained,
            s->chat && s->kept.begun && !s->o->drop_oldest ? "; --drop-oldest goes on without the oldest turns" : "");
    }
    for (int64_t i = 0; i < s->before.n; i++) { /* the others are of our tokenizer */
        if (s->before.v[i] >= n_vocab)
            return err_set(e, ERR_FORMAT, "%s: token %" PRId64 " is %" PRId32 ", the model has %" PRId32, from, i,
                           s->before.v[i], n_vocab);
    }
    return ERR_OK;
}

static struct cli_guess drafting_options(const struct cli_run *s)
{
    const bool tables = cli_beside_has_tables(&s->o->beside);

    return (struct cli_guess){ &s->o->drafts, s->o->draft_max, s->o->engram_drafts && tables,
                               tables ? &s->beside.engram.mix : NULL };
}

static enum err_code check_calibration(const struct cli_run *s, struct err *e)
{
    const char *what = s->o->verifier.what != NULL ? s->o->verifier.what : s->o->verify != NULL ? "self" : "";

    if (cli_calibration_check(s->calibration, s->o->calibration, &s->open, s->o->think == 2, e))
        return e->code;
    if (strcmp(what, "self") == 0)
        cli_calibration_warn(s->calibration, s->o->calibration);
    return ERR_OK;
}

static void note_model(struct cli_run *s, int64_t ctx_tokens)
{
    const struct model_info *i = model_info(s->open.model);

    s->facts = (struct cli_run_facts){
        .arch = i->arch, .ctx_tokens = ctx_tokens, .ctx_train = i->ctx_train, .n_vocab = i->n_vocab
    };
}

static void note_run(struct cli_run *s)
{
    const char *k, *v;

    run_kv(s->run, &k, &v);
    (void)snprintf(s->facts.kv, sizeof s->facts.kv, "%s,%s", k, v);
    s->facts.kv_fallback = s->open.placement != NULL && s->open.placement->kv_fallback;
    s->facts.ctx_tokens = run_ctx(s->run);
}

enum err_code cli_run_open(struct cli_run *s, struct err *e)
{
    const struct cli_guess g = drafting_options(s);
    struct run_opts ro;
    double from;

    s->open.nextn = cli_guess_block(&g);
    if (cli_open_model(&s->open, e) || cli_beside_tables(&s->beside, &s->o->beside, &s->open, e))
        return e->code;
    if (s->calibration != NULL && check_calibration(s, e))
        return e->code;
    if (s->o->drop_oldest && !s->o->interactive && cli_run_drop_oldest(s, cli_run_choose_ctx(s), e))
        return e->code;
    ro = cli_run_sizes(s, cli_guess_off(&g), &s->n_spare);
    if (cli_guess_open(&s->draft, &g, &s->open, &ro, s->taps, e))
        return e->code;
    note_model(s, ro.ctx_tokens);
    if (cli_run_check_prompt(s, e) || cli_run_count_verifier(s, ro.ctx_tokens, e) ||
        (cli_run_wants_best(s->o) && cli_open_fits(&s->open, &ro, e)) || cli_open_run(&s->run, &s->open, &ro, e))
        return e->code;
    note_run(s);
    from = clock_ms();
    if (s->o->session != NULL && cli_session_load(&s->kept, s->run, text_fingerprint(s->open.gguf), s->open.path,
                                                  &s->open.adapters, prompt_of(s), cli_run_wanted_logits(s), e)) {
        const struct err why = *e;

        return s->o->model.loras.n == 0 || why.code != ERR_FORMAT ? why.code
                                                                  : err_set(e, ERR_FORMAT, "%s (with --lora)", why.msg);
    }
    if (s->draft != NULL && draft_attach(s->draft, s->run, e))
        return e->code;
    cli_guess_recall(s->draft, &g, &s->open);
    s->open.load_ms += clock_ms() - from;
    return cli_sampling_make(&s->o->sampling, s->open.text, model_info(s->open.model)->n_vocab, e);
}

/* ---- the answer ---- */

/* What is known once the model is open. */
static enum err_code complete_request(struct cli_run *s, struct err *e)
{
    const struct ask_model m = cli_run_model(s);

    s->ask.sample = s->o->sampling.o;
    cli_beside_ask(&s->ask, &s->beside);
    if (ask_update(s->asked, &s->ask, &m, e))
        return e->code;
    s->asked->q.n_rows = s->o->logits != NULL ? cli_run_wanted_logits(s) : 0;
    s->beside.engram.mix.recital = s->asked->mix.recital; /* for drafts */
    return ERR_OK;
}

enum err_code cli_run_open_gen(struct cli_run *s, struct err *e)
{
    struct gen_opts go = { .run = s->run,
                           .text = s->open.text,
                           .end_token = -1,
                           .n_spare = s->n_spare,
                           .adapters = s->open.adapters.list,
                           .n_adapters = s->open.adapters.n };
    uint32_t eos;

    if (s->draft != NULL) {
        go.drafter = &draft_hook;
        go.drafter_of = s->draft;
    }
    if (s->open.text == NULL && gguf_u32(s->open.gguf, "tokenizer.ggml.eos_token_id", &eos) && eos <= INT32_MAX)
        go.end_token = (int32_t)eos;
    return complete_request(s, e) || (s->gen == NULL && gen_open(&s->gen, &go, e)) ? e->code : ERR_OK;
}

enum err_code cli_run_submit(struct cli_run *s, struct err *e)
{
    return cli_run_open_gen(s, e) ? e->code : gen_submit(s->gen, &s->asked->q, &s->request, e);
}

enum err_code cli_run_open_answer(struct cli_run *s, struct err *e)
{
    struct cli_answer_opts ao = { .text = s->open.text,
                                  .only_ids = s->open.text == NULL && s->via == NULL,
                                  .asked = s->asked };

    ao.form = s->o->json ? ANSWER_JSON : s->o->jsonl ? ANSWER_JSONL : ANSWER_PLAIN;
    ao.reasoning = isatty(STDERR_FILENO) ? REASONING_STDERR : REASONING_NONE;
    if (s->o->reasoning >= 0)
        ao.reasoning = (enum cli_answer_reasoning)s->o->reasoning;
    ao.stream = s->o->stream || isatty(STDOUT_FILENO);
    ao.logprobs = s->o->sampling.logprobs >= 0;
    ao.uncertainty = s->o->uncertainty;
    ao.keeps = s->journal != NULL;
    return cli_answer_open(&s->answer, &ao, e);
}

/* Writes the session. A turn that was not read to its end is no part of a conversation; of a prompt that comes
 * whole the next time, what was read is worth keeping. */
enum err_code cli_run_keep(struct cli_run *s, struct err *e)
{
    if (!s->read && s->o->messages == NULL && s->o->tokens == NULL)
        return ERR_OK;
    return cli_session_save(&s->kept, s->run, s->chat, &s->answer.ids, prompt_of(s)->n, e);
}

/* The model is ready: prompt in, answer out. */
static enum err_code answer_prompt(struct cli_run *s, struct err *e)
{
    struct err unlogged = { 0 };

    cli_run_note_machine(s);
    if (cli_run_open_answer(s, e) || (s->o->jsonl && cli_run_print_start(s, e)))
        return e->code;
    s->started = s->o->jsonl;
    cli_catch_interrupts();
    if (s->o->session != NULL)
        cli_catch_broken_pipe();
    if (s->via == NULL && cli_verbosity() > 0 && strncmp(model_info(s->open.model)->device, "cpu", 3) == 0)
        model_time(s->open.model, true); /* on a GPU the answer would be slower for it */
    if (cli_run_generate(s, e))
        return e->code;
    if (s->lost.code != ERR_OK || cli_run_log(s, &unlogged)) /* before the session, which has its id */
        s->kept.answer[0] = '\0';
    if ((s->o->session && cli_run_keep(s, e)) || (s->via == NULL && cli_open_save_uses(&s->open, e)))
        return e->code;
    if (s->lost.code != ERR_OK) {
        *e = s->lost;
        return e->code;
    }
    if (unlogged.code != ERR_OK)
        return err_copy(e, &unlogged);
    if ((s->o->json || s->o->jsonl) && cli_run_print_end(s, e))
        return e->code;
    cli_run_note_times(s);
    return ERR_OK;
}

/* The same of several answers. */
static enum err_code answer_best(struct cli_run *s, struct err *e)
{
    if (!s->chat)
        return err_set(e, ERR_UNSUPPORTED, "%s: has no chat template, so no --best-of, --dvts and --verify",
                       s->open.path);
    cli_run_note_machine(s);
    cli_catch_interrupts();
    if ((s->o->dvts != NULL ? cli_run_tree(s, e) : cli_run_best(s, e)) || cli_open_save_uses(&s->open, e))
        return e->code;
    return ERR_OK;
}

/* What a session began with stays, whatever defaults say by now. */
static void keep_own(struct cli_run *s)
{
    if (!s->kept.begun)
        return;
    cli_leave_aside(s->cli, "kv");
    s->open.o.kv = s->o->model.kv;
    if (s->kept.chat)
        cli_leave_aside(s->cli, "raw");
    if (s->o->messages != NULL || s->o->system == NULL || cli_origin(s->cli, "system") == NULL ||
        cli_session_same_system(&s->kept, s->o->system))
        return;
    if (s->kept.chat)
        cli_warn("%s: goes on with the system message that it began with; --system of %s is for new sessions",
                 s->o->session, cli_origin(s->cli, "system"));
    cli_leave_aside(s->cli, "system");
}

static enum err_code run_model(struct cli_run *s, char *const *files, struct err *e)
{
    const struct cli_run_options *o = s->o;

    if (cli_log_open(&s->journal, &o->log, e) || cli_open(&s->open, &o->model, e) ||
        cli_sampling_of_model(&s->o->sampling, s->open.gguf, s->cli, e))
        return e->code;
    cli_run_check_cuts(s->cli, o);
    if (o->calibration != NULL && cli_calibration_open(&s->calibration, o->calibration, e))
        return e->code;
    if ((o->via == NULL && cli_open_text(&s->open, o->tokens == NULL, e)) ||
        (o->session != NULL && cli_session_open(&s->kept, o->session, o->session_ro, e)))
        return e->code;
    s->start_ms = clock_ms() - s->begun_ms;
    keep_own(s);
    if (o->session != NULL && !cli_run_comes_whole(s))
        run_session_ends(s->kept.file);
    if (o->interactive)
        return cli_run_talk(s, files, e);
    if (cli_run_question(s, files, e) || (o->via != NULL && cli_via_ask(s, e)))
        return e->code;
    if (s->via != NULL)
        return answer_prompt(s, e);
    if (o->via != NULL && (cli_open_text(&s->open, o->tokens == NULL, e) || (s->chat && cli_run_format(s, e))))
        return e->code;
    return cli_run_ask(s, e) || cli_run_open_verifier(s, e) || cli_run_open(s, e) ||
                   (cli_run_wants_best(o) ? answer_best(s, e) : answer_prompt(s, e))
               ? e->code
               : ERR_OK;
}

static void close_all(struct cli_run *s)
{
    const struct cli_guess g = drafting_options(s);

    cli_answer_close(&s->answer);
    cli_via_close(s->via);
    json_decref(s->thinking);
    cli_verifier_close(s->verifier);
    json_decref(s->search);
    json_decref(s->verified);
    journal_close(s->journal);
    io_out_abort(s->logits);
    gen_close(s->gen);
    cli_guess_keep(s->draft, &g, &s->open);
    draft_close(s->draft);
    cli_beside_close(&s->beside);
    ask_close(s->asked);
    grammar_vocab_close(s->vocab);
    cli_form_free(&s->form);
    free(s->stops);
    text_tokens_free(&s->stop_tokens);
    free(s->system);
    json_decref(s->messages);
    json_decref(s->tools);
    json_decref(s->kwargs);
    reason_calibration_close(s->calibration);
    cli_session_close(&s->kept);
    run_close(s->run);
    text_tokens_free(&s->before);
    cli_buf_free(&s->rendered);
    chat_close(s->format);
    cli_opened_close(&s->open);
    free(s->o->stops.v);
    free(s->o->stop_tokens.v);
    free(s->o->beside.engrams.v);
    free(s->o->log.redact.v);
    free(s->o->model.loras.v);
    cli_sampling_free(&s->o->sampling);
}

/* The program's exit status. The events of --jsonl end with the error. */
static int tell_error(const struct cli_run *s, struct err *e)
{
    const int status = cli_signal() == SIGPIPE ? EXIT_FAILED : cli_fail(e);

    if (s->started && cli_signal() != SIGPIPE && !ferror(stdout) &&
        cli_json_line(
            json_pack("{s:s, s:o, s:i}", "type", "error", "message", json_bytes(str_of(e->msg)), "status", status), e))
        cli_fail(e);
    return status;
}

int main(int argc, char **argv)
{
    struct cli_run s = { .finish = GEN_LENGTH, .begun_ms = clock_ms() };
    char *const *files;
    struct err e = { 0 };
    run_tool *tool;
    int status = EXIT_OK;

    s.o = cli_run_options(&s.cli, argc, argv, &files);
    s.process = journal_process();
    tool = cli_run_tool(s.cli);
    if (cli_text_of(&s.system, s.o->system, &e) == ERR_OK)
        s.o->system = s.system;
    if (e.code != ERR_OK || (tool != NULL ? tool(&s, files, &status, &e) : run_model(&s, files, &e)))
        status = tell_error(&s, &e);
    else if (s.unproven)
        status = EXIT_NO;
    close_all(&s);
    status = cli_close_stdout(status);
    cli_reraise();
    return status;
}
