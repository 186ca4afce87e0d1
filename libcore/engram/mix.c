/* SPDX-License-Identifier: Apache-2.0 */
/* mix.c - a table beside a model: what is mixed in and how much.               room: engram
 *
 * The mixture p' = (1 - w) p + w q can cost a token -ln(1 - w) nats and no more. A look-up alone says a weight at each
 * of several strengths, by the order of the match, how much the table's occurrences agree, and how sure the model is.
 * How much each strength counts is learnt from the text itself (weigh.h). */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engram/internal.h"
#include "gen/hooks.h"

enum {
    AGREES = 3, /* the commonest token has less than a half, less than 0.95, more */
    SURES = 4,  /* the model's likeliest token: below 0.25, 0.5, 0.9, above */
    KINDS = ENGRAM_ORDER_MAX * AGREES,
    PROMPT_TOKENS = 1024, /* the newest ones of a prompt, from which shares are learnt */
};
/* A prompt's tokens have no probabilities, since a model gives them for the last one only. So there the table is
 * weighed against a model that is supposed to give each token this probability, and its likeliest one SURE_OF_PROMPT:
 * bench/engram.md compares that with the model's own. */
#define P_OF_PROMPT    0.15
#define SURE_OF_PROMPT 0.3F

uint32_t engram_evidence(const struct engram_next *next)
{
    const uint32_t agree = next->n == 0 || next->q[0] < 0.5F ? 0 : next->q[0] < 0.95F ? 1 : 2;
    /* Nothing longer can be known of a short text. */
    const int order = next->whole && next->order > 1 ? ENGRAM_ORDER_MAX : next->order;

    return ((uint32_t)next->file * ENGRAM_ORDER_MAX + (uint32_t)(order > 0 ? order - 1 : 0)) * AGREES + agree;
}

static int file_of(uint32_t evidence)
{
    return (int)(evidence / KINDS);
}

/* Chosen on tables and texts that bench/engram.md names, and shown there with others. The first strength is cautious:
 * it leaves out short contexts, which every text has, and helps without having learnt anything. The longest contexts
 * are hardly there by chance: they must win over a model that is sure, or change nothing. */
static const struct strength {
    float by_order[ENGRAM_ORDER_MAX], by_agree[AGREES], by_sure[SURES], longest_sure[SURES];
} strength[ENGRAM_STRENGTHS] = {
    { { 0, 0, 0, 0.05F, 0.1F, 0.25F, 0.4F, 0.7F }, { 0.1F, 0.4F, 1 }, { 1, 1, 0.7F, 0.3F }, { 1, 1, 1, 0.8F } },
    { { 0.15F, 0.25F, 0.35F, 0.45F, 0.55F, 0.65F, 0.75F, 0.85F },
      { 0.5F, 0.7F, 1 },
      { 1, 1, 0.8F, 0.5F },
      { 1, 1, 1, 0.85F } },
    { { 0.3F, 0.45F, 0.6F, 0.7F, 0.8F, 0.85F, 0.9F, 0.95F }, { 0.6F, 0.8F, 1 }, { 1, 1, 0.9F, 0.7F }, { 1, 1, 1, 1 } },
};

void engram_weights(const struct engram_mix *m, uint32_t evidence, float p_max, float w[ENGRAM_STRENGTHS])
{
    const int sure = p_max < 0.25F ? 0 : p_max < 0.5F ? 1 : p_max < 0.9F ? 2 : 3;
    const int kind = (int)(evidence % KINDS), order = kind / AGREES;
    const float most = m->ceiling[file_of(evidence)];

    for (int i = 0; i < ENGRAM_STRENGTHS; i++) {
        const struct strength *s = &strength[i];
        const float sureness = order + 1 < ENGRAM_ORDER_MAX ? s->by_sure[sure] : s->longest_sure[sure];

        w[i] = s->by_order[order] * s->by_agree[kind % AGREES] * sureness;
        w[i] = w[i] < most ? w[i] : most;
    }
}

/* ---- spaces ---- */

enum { WINDOW = (ENGRAM_PARTS + 1) * ENGRAM_ORDER_MAX };

/* The token of a space and the k tokens behind it; -1: there is none. */
static int32_t join_spaced(const struct engram_mix *m, const int32_t *part, int k)
{
    int32_t lo = 0, hi = m->n_spaced;

    while (lo < hi) {
        const int32_t mid = lo + (hi - lo) / 2, *p = m->parts[m->spaced[mid]];
        int i = 0;

        while (i < ENGRAM_PARTS && p[i] == (i < k ? part[i] : -1))
            i++;
        if (i == ENGRAM_PARTS)
            return m->spaced[mid];
        if (p[i] < (i < k ? part[i] : -1))
            lo = mid + 1;
        else
            hi = mid;
    }
    return -1;
}

/* The newest tokens with spaces joined to the words behind them, into out[WINDOW]; how many. */
static int join_spaces(const struct engram_mix *m, const int32_t *token, int64_t n, int32_t *out)
{
    int kept = 0;

    for (int64_t i = n > WINDOW ? n - WINDOW : 0; i < n; i++) {
        int32_t word = -1;
        int k = token[i] == m->space ? ENGRAM_PARTS : 0;

        for (k = n - 1 - i < k ? (int)(n - 1 - i) : k; k > 0 && word < 0; k -= word < 0)
            word = join_spaced(m, token + i + 1, k);
        out[kept++] = word >= 0 ? word : token[i];
        i += word >= 0 ? k : 0;
    }
    return kept;
}

/* Words of a look-up at the place of a space, of which k tokens are written already, become their next tokens. */
static void take_apart(const struct engram_mix *m, const int32_t *written, int k, struct engram_next *next)
{
    struct engram_next out = *next;
    float mass = 0; /* of the words that begin so */

    out.n = 0;
    for (int i = 0; i < next->n; i++) {
        const int32_t *p = next->token[i] < m->n_vocab ? m->parts[next->token[i]] : NULL;
        int at = 0;

        if (p == NULL || p[0] < 0 || (k > 0 && memcmp(p, written, (size_t)k * sizeof *p) != 0))
            continue;
        mass += next->q[i];
        if (k == ENGRAM_PARTS || p[k] < 0)
            continue; /* the word ends here */
        while (at < out.n && out.token[at] != p[k])
            at++;
        out.token[at] = p[k];
        out.q[at] = (at < out.n ? out.q[at] : 0) + next->q[i];
        out.n += at == out.n;
    }
    for (int i = 0; i < out.n; i++)
        out.q[i] = k > 0 && mass > 0 ? out.q[i] / mass : out.q[i];
    *next = out;
}

struct engram_came engram_came(const struct engram_next *next, int32_t token, double p)
{
    struct engram_came c = { p, 0, 0 };

    for (int i = 0; i < next->n; i++) {
        c.mass += (double)next->q[i];
        c.q = next->token[i] == token ? (double)next->q[i] : c.q;
    }
    return c;
}

static void drop_foreign(const struct engram_mix *m, struct engram_next *next)
{
    int kept = 0;

    for (int i = 0; i < next->n; i++) {
        if (next->token[i] >= m->n_vocab)
            continue;
        next->token[kept] = next->token[i];
        next->q[kept++] = next->q[i];
    }
    next->n = kept;
}

void engram_mix_look(const struct engram_mix *m, const int32_t *token, int64_t n, struct engram_next *out)
{
    struct engram_next other;
    int32_t near[WINDOW];
    bool any = false;

    engram_look(m->table, token, n, out);
    for (int64_t i = n > WINDOW ? n - WINDOW : 0; m->space >= 0 && i < n; i++)
        any = any || token[i] == m->space;
    for (int k = ENGRAM_PARTS - 1; any && k >= -1; k--) { /* -1: no word is half written */
        const int64_t end = k >= 0 ? n - 1 - k : n;

        if (end < 1 || (k >= 0 && token[end] != m->space))
            continue;
        engram_look(m->table, near, join_spaces(m, token, end, near), &other);
        if (k >= 0)
            take_apart(m, token + n - k, k, &other);
        if (other.n > 0 && other.order >= out->order)
            *out = other;
    }
    drop_foreign(m, out);
}

/* ---- the hook ---- */

enum { RECITES = INT32_MAX, RECITES_FIRST = RECITES - 1 }; /* evidence of a recital */

/* The tables of one answer. */
struct reader {
    const struct engram_mix *m;
    int n_files;
    struct engram_trust trust[ENGRAM_FILES_MAX];
    struct gen_mixed mixed[ENGRAM_FILES_MAX + 1]; /* [n_files]: what was recited */
};
static_assert(ENGRAM_FILES_MAX + 1 <= (int)GEN_MIXED_MAX, "room for each part");

/* Whether a table speaks at all, with these weights. */
static bool has_weight(const float w[ENGRAM_STRENGTHS])
{
    return w[ENGRAM_STRENGTHS - 1] > 0;
}

/* Learns from the newest tokens of a prompt, each of which was looked up by those before it. */
static void read_prompt(struct reader *r, const int32_t *token, int64_t n)
{
    struct engram_next next;
    float w[ENGRAM_STRENGTHS];

    for (int64_t i = n > PROMPT_TOKENS ? n - PROMPT_TOKENS : 1; i < n; i++) {
        engram_mix_look(r->m, token, i, &next);
        if (next.n == 0)
            continue;
        const struct engram_came came = engram_came(&next, token[i], P_OF_PROMPT);

        engram_weights(r->m, engram_evidence(&next), SURE_OF_PROMPT, w);
        if (has_weight(w))
            engram_trust_learn(&r->trust[next.file], w, came.p, came.q, came.mass);
    }
    for (int i = 0; i < r->n_files; i++)
        engram_trust_settle(&r->trust[i]);
}

static enum err_code begin_answer(void **place, const void *of, const int32_t *prompt, int64_t n, struct err *e)
{
    const struct engram_mix *m = of;
    struct reader *r = calloc(1, sizeof *r);

    if (r == NULL)
        return err_nomem(e);
    r->m = m;
    r->n_files = m->table != NULL ? engram_n_files(m->table) : 0;
    for (int i = 0; i < r->n_files; i++)
        r->trust[i] = engram_trust_begin();
    if (m->table != NULL)
        read_prompt(r, prompt, n);
    *place = r;
    return ERR_OK;
}

static void look_mix(const void *place, const struct gen_context *at, int32_t *next, float *q, int *n_next,
                     uint32_t *evidence)
{
    const struct engram_mix *m = ((const struct reader *)place)->m;
    struct engram_next found;

    *n_next = 0;
    if (!at->reasoning && engram_recite(&m->recital, at, &found)) {
        *evidence = found.whole ? RECITES_FIRST : RECITES;
    } else if (m->table != NULL && (!at->reasoning || m->thinking)) {
        engram_mix_look(m, at->token, at->n, &found);
        *evidence = engram_evidence(&found);
    } else {
        return;
    }
    *n_next = found.n;
    memcpy(next, found.token, (size_t)found.n * sizeof *next);
    memcpy(q, found.q, (size_t)found.n * sizeof *q);
}

static float weigh_row(const void *place, uint32_t evidence, float p_max, bool ends)
{
    const struct reader *r = place;
    float w[ENGRAM_STRENGTHS];

    /* Where a model knows what comes behind its reasoning, those are newlines. */
    if (evidence == RECITES_FIRST)
        return p_max < 0.9F ? r->m->recital.weight : 0;
    if (evidence == RECITES)
        return r->m->recital.weight;
    if (ends) /* Texts have no turns: where one ends is the model's to say. */
        return 0;
    engram_weights(r->m, evidence, p_max, w);
    return engram_trust_weight(&r->trust[file_of(evidence)], w);
}

static void count_token(struct gen_mixed *mixed, const struct gen_came *c)
{
    mixed->matched++;
    mixed->changed += c->q > c->mass * c->p && c->p < 0.9999 * (double)c->p_max;
}

static void learn_row(void *place, uint32_t evidence, const struct gen_came *c)
{
    struct reader *r = place;
    float w[ENGRAM_STRENGTHS];

    if (evidence >= RECITES_FIRST && weigh_row(place, evidence, c->p_max, c->ends) > 0)
        count_token(&r->mixed[r->n_files], c);
    if (evidence >= RECITES_FIRST || c->ends)
        return;
    engram_weights(r->m, evidence, c->p_max, w);
    if (!has_weight(w))
        return;
    engram_trust_learn(&r->trust[file_of(evidence)], w, c->p, c->q, c->mass);
    count_token(&r->mixed[file_of(evidence)], c);
}

static int tell_parts(const void *place, struct gen_mixed *out)
{
    const struct reader *r = place;

    for (int i = 0; i < r->n_files; i++) {
        out[i] = r->mixed[i];
        out[i].weight = 1 - r->trust[i].alone;
    }
    if (r->m->recital.n == 0)
        return r->n_files;
    out[r->n_files] = r->mixed[r->n_files];
    out[r->n_files].weight = (double)r->m->recital.weight;
    return r->n_files + 1;
}

const struct gen_memory engram_memory = { begin_answer, free, look_mix, weigh_row, learn_row, tell_parts };
