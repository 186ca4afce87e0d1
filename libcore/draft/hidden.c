/* SPDX-License-Identifier: Apache-2.0 */
/* hidden.c - guesses from hidden rows of the model, by the multi-token-prediction block in its own file, which an
 * adapter may change, or by a DFlash drafter, a GGUF file; which rows such a drafter has seen, for every sequence.
 *
 * The context of a drafter's slot are the rows of consecutive tokens of its sequence, from `base`
 * to `done`: all of them, or, where rows were missed (a session was loaded, a text was cut), those
 * since then. After them come rows that wait: saved ones, then those of the last step. They are
 * used when guesses are asked for, and not before: nobody knows whether a prompt's answer will be long enough. When
 * they need room, those of a drafter that was asked lately are used, and of others only the newest stay. The context
 * begins anew with those then. When nobody has asked for long, and no text has begun, not even a copy of rows is made:
 * the next time somebody asks there are no guesses, but rows are kept from then on. */
#include <stdlib.h>
#include <string.h>

#include "draft/internal.h"
#include "gguf/gguf.h"
#include "model/drafter.h"
#include "run/run.h"
#include "run/taps.h"

enum {
    SAVED = 256, /* rows of a sequence */
    NEWEST = 8,  /* that stay where nobody asks; fewer are not enough to guess from */
    BORING = 64, /* steps after which nobody asks any more */
};

struct rows {
    int64_t base, done;
    int n_saved, saved[SAVED]; /* where the saved rows are */
    int n_tap, tap;            /* rows of the last step, from row `tap` on */
};

struct hidden {
    struct model_drafter *net;
    bool needs_next;
    struct draft_env env;
    int n_seq;
    struct rows *rows;             /* [n_seq] */
    int n_used, room;              /* saved rows that are or were in use; at most */
    int idle, since;               /* steps since it was asked; since a text began */
    struct model_drafter_row *row; /* of a call */
    struct model_drafter_ask *ask; /* [n_seq] */
    int32_t *pick;                 /* [room] */
    int *place;                    /* [room] where saved rows go */
};

/* Takes net, also when it fails. needs_next: a row can only be used with the token after it. */
static enum err_code open_hidden(void **out, struct model_drafter *net, bool needs_next, struct err *e)
{
    struct hidden *h = calloc(1, sizeof *h);

    if (h == NULL) {
        model_drafter_close(net);
        return err_nomem(e);
    }
    h->net = net;
    h->needs_next = needs_next;
    *out = h;
    return ERR_OK;
}

static void close_hidden(void *of)
{
    struct hidden *h = of;

    model_drafter_close(h->net);
    free(h->rows);
    free(h->row);
    free(h->ask);
    free(h->pick);
    free(h->place);
    free(h);
}

static int list_taps(const void *of, int *layers)
{
    const struct model_drafter_info *info = model_drafter_info(((const struct hidden *)of)->net);

    memcpy(layers, info->tap, (size_t)info->n_tap * sizeof *layers);
    return info->n_tap;
}

/* A block was learnt in sizes of 4, 8, 16: all of it costs as much as a part. */
static int fit_block(const void *of, int n)
{
    const struct model_drafter_info *info = model_drafter_info(((const struct hidden *)of)->net);
    int size = 3;

    while (info->block && size < n)
        size = 2 * size + 1;
    size = info->block ? size : n;
    return size < info->n_max ? size : info->n_max;
}

static enum err_code attach(void *of, const struct draft_env *env, struct err *e)
{
    struct hidden *h = of;
    const size_t n_seq = (size_t)run_n_seq(env->run), rows = (size_t)run_rows_max(env->run);

    h->env = *env;
    h->n_seq = run_n_seq(env->run);
    h->rows = calloc(n_seq, sizeof *h->rows);
    /* sequences that were forked may wait for the same rows */
    h->row = calloc(n_seq * (SAVED + rows), sizeof *h->row);
    h->ask = calloc(n_seq, sizeof *h->ask);
    h->room = SAVED + 2 * NEWEST * h->n_seq;
    h->pick = calloc((size_t)h->room, sizeof *h->pick);
    h->place = calloc((size_t)h->room, sizeof *h->place);
    h->idle = BORING;
    if (h->rows == NULL || h->row == NULL || h->ask == NULL || h->pick == NULL || h->place == NULL)
        return err_nomem(e);
    return model_drafter_reserve(h->net, h->n_seq, run_ctx(env->run), h->room, e);
}

/* ---- what happens to the text ---- */

static int64_t end_of(const struct rows *q)
{
    return q->done + q->n_saved + q->n_tap;
}

static void drop_to(struct hidden *h, int seq, int64_t n)
{
    struct rows *q = &h->rows[seq];
    const int64_t waiting = n > q->done ? n - q->done : 0;

    q->n_tap = waiting < q->n_saved ? 0 : waiting - q->n_saved < q->n_tap ? (int)waiting - q->n_saved : q->n_tap;
    q->n_saved = waiting < q->n_saved ? (int)waiting : q->n_saved;
    if (n >= q->done)
        return;
    q->done = n > q->base ? n : q->base;
    model_drafter_crop(h->net, seq, q->done - q->base);
}

static void begin_at(struct hidden *h, int seq, int64_t pos)
{
    drop_to(h, seq, 0);
    h->rows[seq].base = h->rows[seq].done = pos;
}

/* The last row that stays was followed by another token: an MTP block's keys of it are a little
 * wrong, which costs at most a guess. */
static void cut(void *of, int seq, int64_t n)
{
    struct hidden *h = of;

    h->since = 0;
    drop_to(h, seq, n);
}

static void fork_rows(void *of, int dst, int src)
{
    struct hidden *h = of;

    model_drafter_fork(h->net, dst, src);
    h->rows[dst] = h->rows[src];
}

static void settle(void *of, int seq, int64_t pos, int n)
{
    struct hidden *h = of;
    struct rows *q = &h->rows[seq];

    if (pos < end_of(q))
        drop_to(h, seq, pos);
    if (pos != end_of(q))
        begin_at(h, seq, pos);
    q->tap = run_first_row(h->env.run, seq);
    q->n_tap = n;
}

/* ---- rows that wait ---- */

/* Row i of those that wait, if it can be used. */
static bool usable(const struct hidden *h, int seq, int i)
{
    return !h->needs_next || h->rows[seq].done + i + 1 < h->env.text[seq].n;
}

static struct model_drafter_row waiting(const struct hidden *h, int seq, int i)
{
    const struct rows *q = &h->rows[seq];
    const int64_t next = q->done + i + 1;
    const bool saved = i < q->n_saved;

    return (struct model_drafter_row){ seq, saved, saved ? q->saved[i] : q->tap + i - q->n_saved,
                                       next < h->env.text[seq].n ? h->env.text[seq].token[next] : 0 };
}

/* The first n rows that waited are in the context now. */
static void used(struct rows *q, int n)
{
    const int saved = n < q->n_saved ? n : q->n_saved;

    q->done += n;
    memmove(q->saved, q->saved + saved, (size_t)(q->n_saved - saved) * sizeof *q->saved);
    q->n_saved -= saved;
    q->tap += n - saved;
    q->n_tap -= n - saved;
}

/* Only the newest n rows are left, and the context begins with them. */
static void keep_newest(struct hidden *h, int seq, int n)
{
    struct rows *q = &h->rows[seq];
    const int extra = q->n_saved + q->n_tap - n;

    if (extra <= 0)
        return;
    model_drafter_crop(h->net, seq, 0);
    used(q, extra);
    q->base = q->done;
}

/* Saved rows that nobody waits for any more make room. */
static enum err_code tidy(struct hidden *h, struct err *e)
{
    int n = 0;

    memset(h->place, 0, (size_t)h->n_used * sizeof *h->place);
    for (int s = 0; s < h->n_seq; s++)
        for (int j = 0; j < h->rows[s].n_saved; j++)
            h->place[h->rows[s].saved[j]] = 1;
    for (int i = 0; i < h->n_used; i++)
        if (h->place[i] > 0) {
            h->place[i] = n;
            h->pick[n++] = i;
        }
    if (n == h->n_used)
        return ERR_OK;
    for (int s = 0; s < h->n_seq; s++)
        for (int j = 0; j < h->rows[s].n_saved; j++)
            h->rows[s].saved[j] = h->place[h->rows[s].saved[j]];
    h->n_used = n;
    return model_drafter_keep(h->net, h->pick, n, e);
}

/* Rows of the last step that are still waiting are saved. */
static enum err_code save_waiting(struct hidden *h, struct err *e)
{
    const bool asleep = h->idle >= BORING && h->since >= BORING;
    int n = 0;

    for (int s = 0; s < h->n_seq; s++) {
        struct rows *q = &h->rows[s];

        if (q->n_saved + q->n_tap > SAVED)
            keep_newest(h, s, NEWEST);
        if (q->n_tap > (asleep ? 0 : h->room - h->n_used - n))
            begin_at(h, s, end_of(q)); /* missed */
        for (; q->n_tap > 0; q->n_tap--) {
            h->pick[n] = q->tap++;
            q->saved[q->n_saved++] = h->n_used + n++;
        }
    }
    if (n == 0)
        return ERR_OK;
    h->n_used += n;
    return model_drafter_save(h->net, run_taps(h->env.run), h->pick, n, h->n_used - n, e);
}

/* All rows that can be used join the contexts; then the guesses of the first n_ask of h->ask. */
static enum err_code use_rows(struct hidden *h, int n_ask, bool *late, struct err *e)
{
    int n = 0;

    for (int s = 0; s < h->n_seq; s++)
        for (int i = 0; i < h->rows[s].n_saved + h->rows[s].n_tap && usable(h, s, i); i++)
            h->row[n++] = waiting(h, s, i);
    *late = n > n_ask * (GEN_DRAFT_MAX + 1);
    if (model_drafter_run(h->net, run_taps(h->env.run), h->row, n, h->ask, n_ask, e) != ERR_OK)
        return e->code;
    for (int i = 0, k; i < n; i += k) {
        for (k = 0; i + k < n && h->row[i + k].slot == h->row[i].slot; k++)
            ;
        used(&h->rows[h->row[i].slot], k);
    }
    return ERR_OK;
}

/* Guesses come after all rows of a sequence but its newest token. */
static bool ready_to_guess(const struct hidden *h, const struct draft_ask *a)
{
    const struct rows *q = &h->rows[a->seq];
    const int64_t rows = end_of(q) - q->base;

    return end_of(q) == h->env.text[a->seq].n - 1 && rows > 0 && (q->base == 0 || rows >= NEWEST) &&
           rows + a->n < model_drafter_ctx(h->net);
}

static int count_good(const int32_t *guess, int n)
{
    int good = 0;

    while (good < n && guess[good] >= 0)
        good++;
    return good;
}

/* Whether rows have to be used now; where nobody asks the newest ones do. */
static bool make_room(struct hidden *h)
{
    int n_tap = 0;
    bool many = false;

    for (int s = 0; s < h->n_seq; s++) {
        many |= h->rows[s].n_saved + h->rows[s].n_tap > SAVED;
        n_tap += h->rows[s].n_tap;
    }
    many |= n_tap > h->room - h->n_used;
    if (many && h->idle < BORING)
        return true;
    for (int s = 0; s < h->n_seq && n_tap > h->room - h->n_used; s++)
        keep_newest(h, s, NEWEST);
    return false;
}

static enum err_code guess(void *of, struct draft_ask *ask, int n, bool *late, struct err *e)
{
    struct hidden *h = of;
    int n_ask = 0;

    *late = false;
    for (int i = 0; i < n; i++) {
        const struct draft_text *text = &h->env.text[ask[i].seq];

        if (ready_to_guess(h, &ask[i]))
            h->ask[n_ask++] =
                (struct model_drafter_ask){ ask[i].seq, text->token[text->n - 1], ask[i].n, ask[i].guess, ask[i].p };
        else
            ask[i].n = 0;
    }
    h->idle = n > 0 ? 0 : h->idle + 1;
    h->since++;
    if ((n_ask > 0 || make_room(h)) && use_rows(h, n_ask, late, e) != ERR_OK)
        return e->code;
    for (int i = 0; i < n; i++)
        ask[i].n = count_good(ask[i].guess, ask[i].n);
    return tidy(h, e) != ERR_OK ? e->code : save_waiting(h, e);
}

static enum err_code narrow(void *of, const int32_t *token, int n, struct err *e)
{
    return model_drafter_narrow(((struct hidden *)of)->net, token, n, e);
}

static enum err_code open_mtp(void **out, const struct draft_source *s, struct err *e)
{
    struct model_drafter *net;

    return model_drafter_mtp(&net, s->opts->model, s->file != NULL ? gguf_path(s->file) : NULL, e) != ERR_OK
               ? e->code
               : open_hidden(out, net, true, e);
}

static enum err_code open_dflash(void **out, const struct draft_source *s, struct err *e)
{
    struct model_drafter *net;

    return model_drafter_dflash(&net, s->opts->model, s->file, e) != ERR_OK ? e->code : open_hidden(out, net, false, e);
}

#define HIDDEN_TYPE \
    .close = close_hidden, .taps = list_taps, .fit = fit_block, .attach = attach, .cut = cut, .fork = fork_rows, \
    .settle = settle, .guess = guess, .narrow = narrow
const struct draft_type draft_type_mtp = { .name = "mtp", .open = open_mtp, HIDDEN_TYPE };
const struct draft_type draft_type_dflash = { .name = "dflash", .file = true, .open = open_dflash, HIDDEN_TYPE };
