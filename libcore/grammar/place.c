/* SPDX-License-Identifier: Apache-2.0 */
/* place.c - where an answer is: open ways, each a state and a stack of calls.   room: grammar
 *
 * A set of ways is closed: a rule that has ended has also returned, a rule that may be called has
 * also been called. So a byte is one look-up for each way, and then the set is closed again. Stacks
 * share their lower frames; two ways with equal stacks, frame by frame, are one.
 */
#include <stdlib.h>
#include <string.h>
#include "grammar/tables.h"

static uint32_t depth_of(const struct grammar_place *p, uint32_t frame)
{
    return frame == GRAMMAR_BELOW ? 0 : p->frame[frame].depth;
}

static bool same_stack(const struct grammar_place *p, uint32_t a, uint32_t b)
{
    while (a != b) {
        if (a == 0 || b == 0 || a == GRAMMAR_BELOW || b == GRAMMAR_BELOW || p->frame[a].hash != p->frame[b].hash ||
            p->frame[a].ret != p->frame[b].ret)
            return false;
        a = p->frame[a].below;
        b = p->frame[b].below;
    }
    return true;
}

/* A frame above `below`; 0 when there is no room. */
static uint32_t push_frame(struct grammar_place *p, uint32_t ret, uint32_t below)
{
    uint32_t n = p->n_frames, hash = below == GRAMMAR_BELOW ? 1 : p->frame[below].hash;

    for (uint32_t i = n; i-- > 1 && n - i <= 4;)
        if (p->frame[i].ret == ret && p->frame[i].below == below)
            return i;
    if (n == GRAMMAR_FRAMES)
        return 0;
    hash = (hash ^ ret) * 0x9E3779B1U;
    hash ^= hash >> 15;
    p->frame[n] = (struct grammar_frame){ ret, below, hash, depth_of(p, below) + 1 };
    if (p->frame[n].depth > p->deep)
        p->deep = p->frame[n].depth;
    p->n_frames++;
    return n;
}

struct closing {
    struct grammar_place *p;
    struct grammar_config *to;
    uint32_t n, max;
    bool left;
};

/* Adds a way unless it is there. What ended in its rule is added as having returned, too. */
static void add_way(struct closing *c, uint32_t state, uint32_t frame, bool read)
{
    const struct grammar *g = c->p->g;

    for (;;) {
        uint32_t i = 0;

        while (i < c->n && (c->to[i].state != state || !same_stack(c->p, c->to[i].frame, frame)))
            i++;
        if (i < c->n && (c->to[i].read || !read))
            return;
        if (i == c->n && c->n == c->max) {
            c->p->full = true;
            return;
        }
        c->to[i] = (struct grammar_config){ state, frame, read };
        if (i == c->n)
            c->n++;
        if (!read || (g->flag[state] & GRAMMAR_ACC) == 0 || frame == 0)
            return;
        if (frame == GRAMMAR_BELOW) {
            c->left = true;
            return;
        }
        state = c->p->frame[frame].ret;
        frame = c->p->frame[frame].below;
    }
}

static void call(struct closing *c, struct grammar_config from, const struct grammar_call *call)
{
    const struct grammar *g = c->p->g;
    uint32_t frame = from.frame;

    if (depth_of(c->p, frame) + call->need > GRAMMAR_DEPTH_MAX)
        return;
    if ((g->flag[call->ret] & GRAMMAR_LAST) == 0)
        frame = push_frame(c->p, call->ret, frame);
    if (frame == 0 && (g->flag[call->ret] & GRAMMAR_LAST) == 0)
        c->p->full = true;
    else
        add_way(c, call->rule, frame, false);
}

/* Calls what may be called; then leaves out the ways that only led there. */
static uint32_t close_up(struct closing *c)
{
    const struct grammar *g = c->p->g;
    uint32_t n = 0;

    for (uint32_t i = 0; i < c->n; i++) {
        const struct grammar_config from = c->to[i];

        if ((g->flag[from.state] & GRAMMAR_CALLS) != 0)
            for (uint32_t k = g->call_at[from.state]; k < g->call_at[from.state + 1]; k++)
                call(c, from, &g->call[k]);
    }
    for (uint32_t i = 0; i < c->n; i++)
        if ((g->flag[c->to[i].state] & GRAMMAR_OUT) != 0 ||
            (c->to[i].frame == 0 && c->to[i].read && (g->flag[c->to[i].state] & GRAMMAR_ACC) != 0))
            c->to[n++] = c->to[i];
    return n;
}

uint32_t grammar_step(struct grammar_place *p, const struct grammar_config *v, uint32_t n, uint8_t byte, unsigned only,
                      struct grammar_config *to, uint32_t max, bool *left)
{
    const struct grammar *g = p->g;
    struct closing c = { .p = p, .to = to, .max = max };

    for (uint32_t i = 0; i < n; i++) {
        uint32_t next = g->next[(size_t)v[i].state * g->n_cls + g->cls[byte]];

        if (next != 0 && (only == 0 || (g->flag[v[i].state] & only) != 0) &&
            depth_of(p, v[i].frame) + g->need[next] <= GRAMMAR_DEPTH_MAX)
            add_way(&c, next, v[i].frame, true);
    }
    *left = c.left;
    return c.n == 0 ? 0 : close_up(&c);
}

uint32_t grammar_pop(struct grammar_place *p, uint32_t frame, struct grammar_config *to, uint32_t max)
{
    struct closing c = { .p = p, .to = to, .max = max };

    add_way(&c, p->frame[frame].ret, p->frame[frame].below, true);
    return close_up(&c);
}

static void settle_ends(struct grammar_place *p, struct grammar_set *s)
{
    s->may_end = false;
    s->over = false;
    for (uint32_t i = 0; i < s->n; i++)
        s->may_end =
            s->may_end || (s->v[i].frame == 0 && s->v[i].read && (p->g->flag[s->v[i].state] & GRAMMAR_ACC) != 0);
}

enum err_code grammar_begin(struct grammar_place **out, const struct grammar *g, struct err *e)
{
    struct grammar_place *p = calloc(1, sizeof *p);
    struct closing c;

    if (p == NULL)
        return err_nomem(e);
    p->g = g;
    p->n_frames = 1;
    c = (struct closing){ .p = p, .to = p->set[0].v, .max = GRAMMAR_CONFIGS };
    add_way(&c, g->root, 0, true);
    p->set[0].n = close_up(&c);
    settle_ends(p, &p->set[0]);
    *out = p;
    return ERR_OK;
}

void grammar_end(struct grammar_place *p)
{
    free(p);
}

void grammar_copy(struct grammar_place *to, const struct grammar_place *from)
{
    memcpy(to, from, offsetof(struct grammar_place, frame));
    memcpy(to->frame, from->frame, from->n_frames * sizeof *to->frame);
}

static void mark_frames(struct grammar_place *p, const struct grammar_set *s)
{
    for (uint32_t i = 0; i < s->n; i++)
        for (uint32_t f = s->v[i].frame; f != 0 && p->move[f] == 0; f = p->frame[f].below)
            p->move[f] = 1;
}

static void renumber(const struct grammar_place *p, struct grammar_set *s)
{
    for (uint32_t i = 0; i < s->n; i++)
        s->v[i].frame = p->move[s->v[i].frame];
}

/* Frames of the sets in force, in their order: a frame lies above the one below it. */
void grammar_tidy(struct grammar_place *p)
{
    uint32_t n = 1;

    if (p->n_frames < GRAMMAR_FRAMES / 4 * 3)
        return;
    memset(p->move, 0, p->n_frames * sizeof *p->move);
    for (uint32_t i = 0; i <= p->n_past; i++)
        mark_frames(p, &p->set[(p->now + GRAMMAR_PAST - i) % GRAMMAR_PAST]);
    mark_frames(p, &p->temp[0]);
    for (uint32_t f = 1; f < p->n_frames; f++) {
        if (p->move[f] == 0)
            continue;
        p->move[f] = n;
        p->frame[n] = p->frame[f];
        p->frame[n].below = p->move[p->frame[f].below];
        n++;
    }
    for (uint32_t i = 0; i <= p->n_past; i++)
        renumber(p, &p->set[(p->now + GRAMMAR_PAST - i) % GRAMMAR_PAST]);
    renumber(p, &p->temp[0]);
    p->n_frames = n;
}

/* temp[0] is the set to begin with, and where the bytes lead afterwards. */
static bool read_bytes(struct grammar_place *p, struct str s, unsigned only)
{
    bool left;

    for (size_t i = 0; i < s.n && p->temp[0].n > 0; i++) {
        grammar_tidy(p);
        p->temp[1].n =
            grammar_step(p, p->temp[0].v, p->temp[0].n, (uint8_t)s.p[i], only, p->temp[1].v, GRAMMAR_CONFIGS, &left);
        memcpy(p->temp[0].v, p->temp[1].v, p->temp[1].n * sizeof p->temp[1].v[0]);
        p->temp[0].n = p->temp[1].n;
    }
    return p->temp[0].n > 0;
}

static bool take_bytes(struct grammar_place *p, struct str s, unsigned only)
{
    const struct grammar_set *now = &p->set[p->now];
    uint32_t n_frames = p->n_frames;
    bool good;

    if (now->over)
        return false;
    p->full = false;
    p->temp[0].n = now->n;
    memcpy(p->temp[0].v, now->v, now->n * sizeof now->v[0]);
    good = read_bytes(p, s, only);
    /* Ways were dropped, and those that stayed ended: each alone may still have room. */
    for (uint32_t i = 0; !good && p->full && i < now->n; i++) {
        p->temp[0].n = 1;
        p->temp[0].v[0] = now->v[i];
        good = read_bytes(p, s, only);
    }
    if (good) {
        p->now = (p->now + 1) % GRAMMAR_PAST;
        p->n_past += p->n_past < GRAMMAR_BACK_MAX;
        p->set[p->now].n = p->temp[0].n;
        memcpy(p->set[p->now].v, p->temp[0].v, p->temp[0].n * sizeof p->temp[0].v[0]);
        settle_ends(p, &p->set[p->now]);
    } else if (p->n_frames > n_frames) {
        p->n_frames = n_frames;
    }
    p->temp[0].n = 0;
    return good;
}

bool grammar_take(struct grammar_place *p, int32_t token)
{
    const struct grammar_vocab *v = p->g->v;
    struct grammar_set *now = &p->set[p->now];

    if (v == NULL || token < 0 || token >= v->n_tokens)
        return false;
    if (v->kind[token] == GRAMMAR_TOKEN_END) {
        if (!now->may_end || now->over)
            return false;
        p->now = (p->now + 1) % GRAMMAR_PAST;
        p->n_past += p->n_past < GRAMMAR_BACK_MAX;
        p->set[p->now].n = 0;
        p->set[p->now].may_end = p->set[p->now].over = true;
        return true;
    }
    if ((v->piece[token].n == 0 || v->piece[token].n > GRAMMAR_TOKEN_BYTES_MAX) && !grammar_free(p))
        return false;
    return take_bytes(p, v->piece[token], v->kind[token] == GRAMMAR_TOKEN_CONTROL ? GRAMMAR_FREE | GRAMMAR_MARK : 0);
}

bool grammar_take_text(struct grammar_place *p, struct str s)
{
    return take_bytes(p, s, 0);
}

void grammar_back(struct grammar_place *p, int n)
{
    uint32_t back = n < 0 ? 0 : (uint32_t)n;

    if (back > p->n_past)
        back = p->n_past;
    p->now = (p->now + GRAMMAR_PAST - back) % GRAMMAR_PAST;
    p->n_past -= back;
}

bool grammar_free(const struct grammar_place *p)
{
    const struct grammar_set *now = &p->set[p->now];

    return p->g->free_at != NULL && now->n == 1 && p->g->free_at[now->v[0].state];
}

bool grammar_may_end(const struct grammar_place *p)
{
    return p->set[p->now].may_end;
}

bool grammar_done(const struct grammar_place *p)
{
    const struct grammar_set *now = &p->set[p->now];

    for (uint32_t i = 0; i < now->n; i++)
        if ((p->g->flag[now->v[i].state] & GRAMMAR_OUT) != 0)
            return false;
    return true;
}
