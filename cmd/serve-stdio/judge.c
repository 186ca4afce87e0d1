/* SPDX-License-Identifier: Apache-2.0 */
/* judge.c - the verifier of a server (judge.h).                              room: cmd */
#include "serve-stdio/judge.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

struct cli_judges {
    struct serve_judge serve;
    struct cli_verifier_use use;
    struct cli_verifier *verifier; /* the thread's; NULL: it has ended */
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool runs; /* the thread was started */
    /* under the mutex */
    enum { OPENING, IDLE, SCORING, SCORED, CLOSING } state;
    struct ask_solution *s; /* [n] */
    size_t n;
    int64_t n_tokens;
    struct err err;
};

static atomic_bool stops; /* what scores asks for it, without an argument */

static bool is_stopped(void)
{
    return stops;
}

static enum err_code score(struct cli_judges *j, int64_t *n_tokens, struct err *e)
{
    int64_t before;

    if (j->verifier == NULL && cli_verifier_open(&j->verifier, &j->use, e))
        return e->code;
    before = cli_verifier_tokens(j->verifier);
    if (cli_verifier_score(j->verifier, j->s, j->n, e)) {
        cli_verifier_close(j->verifier);
        j->verifier = NULL;
    }
    *n_tokens = j->verifier != NULL ? cli_verifier_tokens(j->verifier) - before : 0;
    return e->code;
}

static void *work(void *of)
{
    struct cli_judges *j = of;
    struct err e = { 0 };
    int64_t n_tokens = 0;

    if (cli_verifier_open(&j->verifier, &j->use, &e) != ERR_OK)
        j->verifier = NULL;
    pthread_mutex_lock(&j->mutex);
    j->err = e;
    j->state = j->state == OPENING ? IDLE : j->state;
    pthread_cond_broadcast(&j->changed);
    while (j->state != CLOSING) {
        if (j->state != SCORING) {
            pthread_cond_wait(&j->changed, &j->mutex);
            continue;
        }
        pthread_mutex_unlock(&j->mutex);
        e = (struct err){ 0 };
        (void)score(j, &n_tokens, &e);
        pthread_mutex_lock(&j->mutex);
        j->err = e;
        j->n_tokens = n_tokens;
        j->state = j->state == SCORING ? SCORED : j->state;
        pthread_cond_broadcast(&j->changed);
    }
    pthread_mutex_unlock(&j->mutex);
    cli_verifier_close(j->verifier);
    return NULL;
}

static enum err_code begin(void *of, struct ask_solution *s, size_t n, struct err *e)
{
    struct cli_judges *j = of;

    (void)e;
    pthread_mutex_lock(&j->mutex);
    j->s = s;
    j->n = n;
    stops = false;
    j->state = SCORING;
    pthread_cond_broadcast(&j->changed);
    pthread_mutex_unlock(&j->mutex);
    return ERR_OK;
}

/* Waits until the state is another one, or for so long. */
static bool wait_while(struct cli_judges *j, int state, int ms)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    while ((int)j->state == state && ms > 0)
        if (pthread_cond_timedwait(&j->changed, &j->mutex, &until) != 0)
            break;
    return (int)j->state != state;
}

static bool done(void *of, int wait_ms, int64_t *n_tokens, struct err *why)
{
    struct cli_judges *j = of;
    bool is;

    pthread_mutex_lock(&j->mutex);
    is = wait_while(j, SCORING, wait_ms);
    if (is) {
        *n_tokens = j->n_tokens;
        *why = j->err;
        j->state = IDLE;
    }
    pthread_mutex_unlock(&j->mutex);
    return is;
}

static void stop(void *of)
{
    (void)of;
    stops = true;
}

/* Signals are for the thread that serves. */
static int start(struct cli_judges *j)
{
    sigset_t all, before;
    int why;

    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    why = pthread_create(&j->thread, NULL, work, j);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return why;
}

enum err_code cli_judges_open(struct cli_judges **out, const struct cli_verifier_use *use, struct err *e)
{
    struct cli_judges *j = calloc(1, sizeof *j);
    int why;

    if (j == NULL)
        return err_nomem(e);
    stops = false;
    j->serve = (struct serve_judge){ begin, done, stop, j };
    j->use = *use;
    j->use.stop = is_stopped;
    j->use.quiet = true;
    pthread_mutex_init(&j->mutex, NULL);
    pthread_cond_init(&j->changed, NULL);
    why = start(j);
    j->runs = why == 0;
    if (why != 0)
        (void)err_errno(e, ERR_NOMEM, why, "--verifier: cannot start a thread");
    pthread_mutex_lock(&j->mutex);
    while (j->runs && j->state == OPENING)
        pthread_cond_wait(&j->changed, &j->mutex);
    if (j->runs)
        *e = j->err;
    pthread_mutex_unlock(&j->mutex);
    if (e->code != ERR_OK) {
        cli_judges_close(j);
        return e->code;
    }
    *out = j;
    return ERR_OK;
}

void cli_judges_close(struct cli_judges *j)
{
    if (j == NULL)
        return;
    stops = true;
    pthread_mutex_lock(&j->mutex);
    j->state = CLOSING;
    pthread_cond_broadcast(&j->changed);
    pthread_mutex_unlock(&j->mutex);
    if (j->runs)
        (void)pthread_join(j->thread, NULL);
    pthread_cond_destroy(&j->changed);
    pthread_mutex_destroy(&j->mutex);
    free(j);
}

const struct serve_judge *cli_judges_of(struct cli_judges *j)
{
    return j != NULL ? &j->serve : NULL;
}
