/* SPDX-License-Identifier: Apache-2.0 */
/* relevance.c - whether a text answers a question, by a model.                 room: cmd */
#include "engram-build/relevance.h"

#include <math.h>

#include "chat/chat.h"
#include "cli/recall.h"
#include "run/run.h"

/* A model that prefers the right text of fewer pairs does not judge: by chance there are as many with p 0.02. */
enum { RIGHT_LEAST = 15 };

static const struct {
    const char *question, *right, *wrong;
} pairs[] = {
    { "Which option prints the version?", "-V prints the version and ends.", "-v prints more of what is done." },
    { "How many moons does Mars have?", "Mars has two moons, Phobos and Deimos.",
      "Mars is the fourth planet from the sun." },
    { "Who wrote the novel Emma?", "Emma is a novel of 1815 by Jane Austen.",
      "Emma is a novel about a young woman in an English village." },
    { "When was the bridge opened?", "After four years of work the bridge was opened in May 1932.",
      "The bridge has two towers and a span of 503 metres." },
    { "What is the capital of Peru?", "Peru's government sits in Lima, the capital.",
      "Peru borders Ecuador, Colombia, Brazil, Bolivia and Chile." },
    { "Where is the museum?", "The museum stands beside the station, in Mill Lane.",
      "The museum is closed on Mondays and costs five pounds." },
    { "What does the library cost?", "A card for the library costs twelve euros a year.",
      "The library has forty thousand books and a reading room." },
    { "How do I delete a branch in git?", "git branch -d NAME deletes a branch that was merged.",
      "git branch NAME makes a branch at the present commit." },
    { "Why is the sky blue?", "Air scatters short waves of light more than long ones, so that the sky looks blue.",
      "The sky over the bay was blue on all days of the journey." },
    { "How tall is the lighthouse?", "The lighthouse is 38 metres tall.",
      "The lighthouse was painted in red and white last year." },
    { "Which file has the passwords?", "Hashes of passwords are kept in /etc/shadow.",
      "Passwords must have at least eight characters." },
    { "Who is the mayor of the town?", "Since the last election the mayor is Anna Berg.",
      "The mayor is elected by the people of the town for five years." },
    { "What do pandas eat?", "Pandas live almost wholly on bamboo.",
      "Pandas are born blind and weigh about a hundred grams." },
    { "How long does the flight take?", "The flight takes three hours and ten minutes.",
      "The flight leaves from gate 12 each morning." },
    { "What is the boiling point of ethanol?", "Ethanol boils at 78 degrees Celsius.",
      "Ethanol is a clear liquid that burns with a blue flame." },
    { "How can a running job be stopped?", "To stop a running job send it the signal TERM with kill.",
      "A running job is shown with its number and its time by ps." },
    { "Which language is spoken in Brazil?", "The people of Brazil speak Portuguese.",
      "Brazil is the largest country of South America." },
    { "Who invented the telephone?", "Alexander Graham Bell got the patent for the telephone in 1876.",
      "The telephone on the wall rang twice and was silent again." },
    { "What colour is the front door?", "They painted the front door green.",
      "The front door has a new lock and two keys." },
    { "When does the shop close?", "The shop is open until half past six.", "The shop sells bread, cheese and wine." },
};

static enum err_code first_token(const struct text *text, struct str word, int32_t *token, struct err *e)
{
    struct text_tokens t = { 0 };
    const enum err_code code = text_encode(text, word, 0, &t, e);

    *token = t.n > 0 ? t.v[0] : 0;
    text_tokens_free(&t);
    return code;
}

enum err_code cli_relevance_open(struct cli_relevance *j, struct cli_embedder *m, struct err *e)
{
    j->m = m;
    if (chat_open(&j->chat, m->x.text, (struct str){ NULL, 0 }, e) || first_token(m->x.text, STR("Yes"), &j->yes, e) ||
        first_token(m->x.text, STR("No"), &j->no, e))
        return e->code;
    return j->yes != j->no
               ? ERR_OK
               : err_set(e, ERR_UNSUPPORTED, "--rerank: \"Yes\" and \"No\" begin with the same token in this model");
}

void cli_relevance_close(struct cli_relevance *j)
{
    chat_close(j->chat);
}

/* The probability of "Yes", of "Yes" and "No", when the model is asked whether the text answers the question. */
enum err_code cli_relevance_of(struct cli_relevance *j, struct str question, struct str text, float *p, struct err *e)
{
    struct cli_buf b = { 0 };
    struct text_tokens t = { 0 };
    json_t *messages = NULL, *extra = json_pack("{s:b}", "enable_thinking", 0);
    bool thinking;
    enum err_code code;

    code = cli_buf_add(&b, cli_notes_head(text), e) || cli_buf_add(&b, STR("\n\nQuestion: "), e) ||
                   cli_buf_add(&b, question, e) ||
                   cli_buf_add(&b, STR("\n\nDoes the text above answer the question? Answer Yes or No."), e)
               ? e->code
               : ERR_OK;
    if (code == ERR_OK)
        messages = json_pack("[{s:s, s:o}]", "role", "user", "content", json_bytes((struct str){ b.p, b.n }));
    if (code == ERR_OK && (messages == NULL || extra == NULL))
        code = err_nomem(e);
    if (code == ERR_OK)
        code = chat_render(j->chat, &(struct chat_prompt){ .messages = messages, .extra = extra, .generate = true }, &t,
                           &thinking, e);
    if (code == ERR_OK) {
        run_clear(j->m->run, 0);
        code = run_feed(j->m->run, 0, t.v, t.n, 1, NULL, NULL, NULL, e);
    }
    if (code == ERR_OK) {
        const float *logits = run_logits_last(j->m->run);

        *p = (float)(1 / (1 + exp((double)logits[j->no] - (double)logits[j->yes])));
    }
    json_decref(messages);
    json_decref(extra);
    cli_buf_free(&b);
    text_tokens_free(&t);
    return code;
}

enum err_code cli_relevance_fits(struct cli_relevance *j, struct err *e)
{
    const int n = (int)(sizeof pairs / sizeof *pairs);
    int right = 0;

    for (int i = 0; i < n; i++) {
        float a = 0, b = 0;

        if (cli_interrupted())
            return err_set(e, ERR_CANCEL, "interrupted");
        if (cli_relevance_of(j, str_of(pairs[i].question), str_of(pairs[i].right), &a, e) ||
            cli_relevance_of(j, str_of(pairs[i].question), str_of(pairs[i].wrong), &b, e))
            return e->code;
        right += a > b;
    }
    if (right >= RIGHT_LEAST)
        return ERR_OK;
    return err_set(e, ERR_UNSUPPORTED,
                   "--rerank: the model cannot judge texts: it tells right from wrong in %d of %d pairs, as by chance "
                   "(-f does it all the same)",
                   right, n);
}
